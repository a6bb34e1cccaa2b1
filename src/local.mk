# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# src: to add a file, append one line "fusor_sources += %D%/NAME.c"; for a public header one line
# "fusor_headers += include/fusor/NAME.h" (those are installed).
fusor_headers += include/fusor/type.h
fusor_headers += include/fusor/fusor.h
fusor_headers += include/fusor/context.h
fusor_headers += include/fusor/compile.h
fusor_headers += include/fusor/tensor.h
fusor_headers += include/fusor/graph.h
fusor_headers += include/fusor/cache.h
fusor_sources += %D%/fusor.c
fusor_sources += %D%/context.c
fusor_sources += %D%/api.c
fusor_sources += %D%/sources.c
fusor_sources += %D%/cache_api.c
fusor_sources += %D%/explain.c
fusor_sources += %D%/check.c
fusor_sources += %D%/dump.c
