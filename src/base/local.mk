# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# src/base: to add a file, append one line "base_sources += %D%/NAME.c". Headers need no line.
# These files are compiled into libfusor and, again, into the code generation module.
base_sources += %D%/arena.c
base_sources += %D%/env.c
base_sources += %D%/error.c
base_sources += %D%/file.c
base_sources += %D%/hash.c
base_sources += %D%/log.c
base_sources += %D%/str.c
base_sources += %D%/version.c
