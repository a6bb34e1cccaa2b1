# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# src/ref: to add a file, append one line "ref_sources += %D%/NAME.c". Headers need no line.
ref_sources += %D%/interp.c
ref_sources += %D%/reduce.c
ref_sources += %D%/random.c
ref_sources += %D%/window.c
ref_sources += %D%/contract.c
ref_sources += %D%/cell.c
ref_sources += %D%/bounds.c
ref_sources += %D%/scan.c
ref_sources += %D%/norm.c
ref_sources += %D%/bounds_norm.c
ref_sources += %D%/move.c
ref_sources += %D%/attention.c
ref_sources += %D%/conv.c
ref_sources += %D%/einsum.c
