# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# src/rt: to add a file, append one line "rt_sources += %D%/NAME.c". Headers need no line.
# threads.c alone is compiled with OpenMP: "rt_openmp_sources += %D%/threads.c".
rt_sources += %D%/data.c
rt_sources += %D%/data_archive.c
rt_sources += %D%/data_fill.c
rt_sources += %D%/cpuinfo.c
# fork.c goes with it: threads.c needs it, and the other files need both.
rt_openmp_sources += %D%/fork.c
rt_sources += %D%/debugger.c
rt_sources += %D%/dwarf.c
rt_sources += %D%/jitdump.c
rt_sources += %D%/loader.c
rt_openmp_sources += %D%/threads.c
rt_sources += %D%/module.c
rt_sources += %D%/cache.c
rt_sources += %D%/cache_entry.c
rt_sources += %D%/cache_stats.c
rt_sources += %D%/cache_why.c
rt_sources += %D%/cache_bundle.c
rt_sources += %D%/cache_dir.c
rt_sources += %D%/cache_list.c
rt_sources += %D%/buffer.c
rt_sources += %D%/tune.c
rt_sources += %D%/exec.c
rt_sources += %D%/exec_frame.c
rt_sources += %D%/exec_each.c
rt_sources += %D%/exec_buffer.c
