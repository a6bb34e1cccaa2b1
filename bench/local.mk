# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# bench: to add a benchmark program (one file, bench/NAME.c), append one line "bench_programs += %D%/NAME".
# They link all layers; `make bench-programs` builds them.
