# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# src/jit: to add a file, append one line "jit_sources += %D%/NAME.c". Headers need no line.
# These files go into the code generation module only.
jit_sources += %D%/emit.c
jit_sources += %D%/emit_memory.c
jit_sources += %D%/demote.c
jit_sources += %D%/llvm_compat.c
jit_sources += %D%/codegen.c
jit_sources += %D%/link.c
jit_sources += %D%/lower_ew.c
jit_sources += %D%/lower_cast.c
jit_sources += %D%/lower_fma.c
jit_sources += %D%/map.c
jit_sources += %D%/contract.c
jit_sources += %D%/contract_pack.c
jit_sources += %D%/math_exp.c
jit_sources += %D%/math_log.c
jit_sources += %D%/math_trig.c
jit_sources += %D%/math_atan.c
jit_sources += %D%/math_hyper.c
jit_sources += %D%/math_erf.c
jit_sources += %D%/math_pow.c
jit_sources += %D%/math_act.c
jit_sources += %D%/reduce_common.c
jit_sources += %D%/reduce_sweep.c
jit_sources += %D%/reduce_column.c
jit_sources += %D%/row.c
jit_sources += %D%/reduce.c
