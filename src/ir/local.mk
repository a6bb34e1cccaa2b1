# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# src/ir: to add a file, append one line "ir_sources += %D%/NAME.c". Headers need no line.
# What the code generation module needs too has a second line "codegen_ir_sources += %D%/NAME.c".
ir_sources += %D%/scalar.c
ir_sources += %D%/types.c
ir_sources += %D%/size.c
ir_sources += %D%/op.c
ir_sources += %D%/graph.c
ir_sources += %D%/infer.c
