# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# src: to add a file, append one line "fusor_sources += %D%/NAME.c"; for a public header one line
# "fusor_headers += include/fusor/NAME.h" (those are installed).
fusor_headers += include/fusor/type.h
