# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# tests: to add a unit test (one file, tests/unit/NAME_test.c, Criterion), append one line
#   unit_tests += %D%/unit/NAME_test
# It links all layers but jit. To build it before the upper layers compile, give it fewer, with one more line:
#   %C%_unit_NAME_test_LDADD = $(ir_test_libs)         (base_, ir_, ref_ or rt_test_libs)
# A test of src/jit needs LLVM and has these two lines instead:
#   jit_unit_tests += %D%/unit/NAME_test
#   %C%_unit_NAME_test_LDADD = $(jit_test_libs)
# A test in any other language is a script that prints one line "N passed, N failed, N skipped" and exits with 0
# when nothing failed (tests/run.sh has its environment):
#   script_tests += %D%/NAME.sh
# A fuzz target (tests/fuzz/NAME.c) is two lines:
#   fuzz_programs += %D%/fuzz/NAME
#   %C%_fuzz_NAME_LDADD = $(fuzz_libs)
unit_tests += %D%/unit/arena_test
%C%_unit_arena_test_LDADD = $(base_test_libs)
unit_tests += %D%/unit/str_test
%C%_unit_str_test_LDADD = $(base_test_libs)
unit_tests += %D%/unit/hash_test
%C%_unit_hash_test_LDADD = $(base_test_libs)
unit_tests += %D%/unit/error_test
%C%_unit_error_test_LDADD = $(base_test_libs)
unit_tests += %D%/unit/env_test
%C%_unit_env_test_LDADD = $(base_test_libs)
unit_tests += %D%/unit/file_test
%C%_unit_file_test_LDADD = $(base_test_libs)

script_tests += %D%/layers.sh
# what GPU code does, in an interpreter of PTX
unit_tests += %D%/cuda/ptx_test
%C%_cuda_ptx_test_SOURCES = %D%/cuda/ptx_test.c $(ptx_sources)
%C%_cuda_ptx_test_LDADD = $(base_test_libs) -lm
ptx_sources = %D%/cuda/ptx_parse.c %D%/cuda/ptx_run.c %D%/cuda/ptx_alu.c %D%/cuda/ptx_fast.c %D%/cuda/ptx_count.c %D%/cuda/ptx_wgmma.c
# the driver of CUDA that tests run on (tests/cuda/README.md)
fake_sources = %D%/cuda/fake_device.c %D%/cuda/fake_memory.c %D%/cuda/fake_stream.c %D%/cuda/fake_copy.c %D%/cuda/fake_module.c
check_LTLIBRARIES = %D%/cuda/libcuda_fake.la
%C%_cuda_libcuda_fake_la_SOURCES = $(fake_sources) $(ptx_sources)
# flags of its own: objects that programs of the same files do not share
%C%_cuda_libcuda_fake_la_CFLAGS = $(AM_CFLAGS)
%C%_cuda_libcuda_fake_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere -Wl,-Bsymbolic -Wl,-z,defs
%C%_cuda_libcuda_fake_la_LIBADD = -lm -lpthread -ldl
fake_library = %D%/cuda/libcuda_fake.so
$(fake_library): %D%/cuda/libcuda_fake.la
	@ln -sf .libs/libcuda_fake.so $@
CLEANFILES += $(fake_library)
unit_tests += %D%/cuda/fake_test
%C%_cuda_fake_test_LDADD = $(base_test_libs) -ldl
# programs on a device, over it
fake_flags = -DFAKE_CUDA='"$(abs_top_builddir)/tests/cuda/libcuda_fake.so"'
unit_tests += %D%/cuda/device_exec_test
%C%_cuda_device_exec_test_CPPFLAGS = $(AM_CPPFLAGS) $(fake_flags)
%C%_cuda_device_exec_test_LDADD = libfu-ref.la $(rt_test_libs) -lm -ldl
unit_tests += %D%/cuda/device_each_test
%C%_cuda_device_each_test_CPPFLAGS = $(AM_CPPFLAGS) $(fake_flags)
%C%_cuda_device_each_test_LDADD = libfu-ref.la $(rt_test_libs) -lm -ldl
unit_tests += %D%/cuda/device_ops_test
%C%_cuda_device_ops_test_CPPFLAGS = $(AM_CPPFLAGS) $(fake_flags)
%C%_cuda_device_ops_test_LDADD = libfu-ref.la $(rt_test_libs) -lm
unit_tests += %D%/cuda/device_api_test
%C%_cuda_device_api_test_CPPFLAGS = $(AM_CPPFLAGS) $(fake_flags)
unit_tests += %D%/cuda/device_auto_test
%C%_cuda_device_auto_test_CPPFLAGS = $(AM_CPPFLAGS) $(fake_flags)
unit_tests += %D%/unit/select_test
%C%_unit_select_test_LDADD = $(rt_test_libs) -lm
unit_tests += %D%/cuda/device_lazy_test
%C%_cuda_device_lazy_test_CPPFLAGS = $(AM_CPPFLAGS) $(fake_flags)
script_tests += %D%/cuda/ptxas.sh
script_tests += %D%/cuda/cuda_h.sh
unit_tests += %D%/unit/gpu_cache_test
%C%_unit_gpu_cache_test_LDADD = $(rt_test_libs)
unit_tests += %D%/unit/cuda_api_test
%C%_unit_cuda_api_test_LDADD = $(rt_test_libs) -ldl
unit_tests += %D%/unit/device_test
%C%_unit_device_test_LDADD = $(rt_test_libs) -ldl
unit_tests += %D%/cuda/gpu_ops_test
%C%_cuda_gpu_ops_test_SOURCES = %D%/cuda/gpu_ops_test.c $(ptx_sources)
%C%_cuda_gpu_ops_test_LDADD = libfu-ref.la $(rt_test_libs) -lm
unit_tests += %D%/cuda/mutation_test
%C%_cuda_mutation_test_SOURCES = %D%/cuda/mutation_test.c $(ptx_sources)
%C%_cuda_mutation_test_LDADD = libfu-ref.la $(rt_test_libs) -lm
script_tests += %D%/cuda/bundle.sh
check_programs += %D%/cuda/nvcc_run
%C%_cuda_nvcc_run_SOURCES = %D%/cuda/nvcc_run.c $(ptx_sources)
%C%_cuda_nvcc_run_LDADD = -lm
script_tests += %D%/cuda/nvcc.sh
unit_tests += %D%/cuda/gpu_rows_test
%C%_cuda_gpu_rows_test_SOURCES = %D%/cuda/gpu_rows_test.c $(ptx_sources)
%C%_cuda_gpu_rows_test_LDADD = libfu-ref.la $(rt_test_libs) -lm
unit_tests += %D%/cuda/gpu_mma_test
%C%_cuda_gpu_mma_test_SOURCES = %D%/cuda/gpu_mma_test.c $(ptx_sources)
%C%_cuda_gpu_mma_test_LDADD = libfu-ref.la $(rt_test_libs) -lm
script_tests += %D%/api/headers.sh
script_tests += %D%/api/cpp_program.sh
script_tests += %D%/api/symbols.sh
script_tests += %D%/diff/oracle.sh
unit_tests += %D%/unit/types_test
%C%_unit_types_test_LDADD = $(ir_test_libs)
unit_tests += %D%/unit/graph_test
%C%_unit_graph_test_LDADD = $(ir_test_libs)
unit_tests += %D%/unit/infer_test
%C%_unit_infer_test_LDADD = $(ir_test_libs)
unit_tests += %D%/unit/move_test
%C%_unit_move_test_LDADD = $(ir_test_libs)
unit_tests += %D%/unit/window_test
%C%_unit_window_test_LDADD = $(ir_test_libs)
unit_tests += %D%/unit/cpuinfo_test
%C%_unit_cpuinfo_test_LDADD = $(rt_test_libs)
unit_tests += %D%/unit/target_test
%C%_unit_target_test_LDADD = $(ir_test_libs)
unit_tests += %D%/unit/threads_test
%C%_unit_threads_test_LDADD = $(rt_test_libs)
unit_tests += %D%/unit/loader_test
%C%_unit_loader_test_LDADD = $(rt_test_libs)
jit_unit_tests += %D%/unit/contract_test
%C%_unit_contract_test_SOURCES = %D%/unit/contract_test.c %D%/amx/amx_emulate.c
%C%_unit_contract_test_LDADD = $(jit_test_libs)
jit_unit_tests += %D%/unit/jit_test
%C%_unit_jit_test_LDADD = $(jit_test_libs)
jit_unit_tests += %D%/unit/half_test
%C%_unit_half_test_LDADD = $(jit_test_libs)
unit_tests += %D%/unit/cache_test
%C%_unit_cache_test_LDADD = $(rt_test_libs)
unit_tests += %D%/unit/scalar_test
%C%_unit_scalar_test_LDADD = $(ir_test_libs)
unit_tests += %D%/unit/interp_test
%C%_unit_interp_test_LDADD = $(ref_test_libs)
unit_tests += %D%/unit/data_test
%C%_unit_data_test_LDADD = $(rt_test_libs)
unit_tests += %D%/unit/buffer_test
%C%_unit_buffer_test_LDADD = $(rt_test_libs)
unit_tests += %D%/unit/random_test
unit_tests += %D%/unit/tune_test
%C%_unit_tune_test_LDADD = $(rt_test_libs)
unit_tests += %D%/unit/pass_test
%C%_unit_pass_test_LDADD = $(ref_test_libs)
jit_unit_tests += %D%/unit/line_table_test
%C%_unit_line_table_test_LDADD = $(jit_test_libs)
jit_unit_tests += %D%/unit/math64_test
%C%_unit_math64_test_LDADD = $(jit_test_libs)
jit_unit_tests += %D%/unit/math_test
%C%_unit_math_test_LDADD = $(jit_test_libs)
jit_diff_programs += %D%/diff/ulp
%C%_diff_ulp_SOURCES = %D%/diff/ulp.c %D%/diff/ulp_exact.c %D%/diff/ulp_inputs.c %D%/diff/ulp_kernel.c
%C%_diff_ulp_LDADD = $(jit_test_libs)
if HAVE_MPFR
%C%_diff_ulp_CPPFLAGS = $(AM_CPPFLAGS) -DFUSOR_HAVE_MPFR
endif
script_tests += %D%/diff/ulp.sh
jit_diff_programs += %D%/diff/vectors
%C%_diff_vectors_SOURCES = %D%/diff/vectors.c %D%/diff/ulp_inputs.c %D%/diff/ulp_kernel.c
%C%_diff_vectors_LDADD = $(jit_test_libs)
script_tests += %D%/diff/vectors.sh
jit_unit_tests += %D%/unit/reduce_test
%C%_unit_reduce_test_LDADD = $(jit_test_libs)
unit_tests += %D%/unit/exec_test
%C%_unit_exec_test_LDADD = libfu-ref.la $(rt_test_libs)
unit_tests += %D%/unit/parse_test
%C%_unit_parse_test_LDADD = $(ir_test_libs)
unit_tests += %D%/unit/print_test
%C%_unit_print_test_LDADD = $(ir_test_libs)
unit_tests += %D%/unit/flatten_test
%C%_unit_flatten_test_LDADD = $(ir_test_libs)
unit_tests += %D%/unit/verify_test
%C%_unit_verify_test_LDADD = $(ir_test_libs)
script_tests += %D%/error/run.sh
fuzz_programs += %D%/fuzz/parse_fuzz
%C%_fuzz_parse_fuzz_LDADD = $(fuzz_libs)
%C%_fuzz_parse_fuzz_CPPFLAGS = $(AM_CPPFLAGS) $(fuzz_cppflags)
if LIBFUZZER
fuzz_cppflags = -DFUSOR_LIBFUZZER
else
fuzz_cppflags =
endif
# entry_fuzz reads cache files and kernel objects; make check runs it for a bounded count. It has its own copy of the linker.
check_programs += %D%/fuzz/entry_fuzz
%C%_fuzz_entry_fuzz_SOURCES = %D%/fuzz/entry_fuzz.c src/jit/link.c src/jit/line_table.c
%C%_fuzz_entry_fuzz_LDADD = libfu-rt.la libfu-openmp.la $(OPENMP_CFLAGS) libfu-ir.la libfu-base.la $(FUSOR_LIBS) $(FUZZ_FLAGS)
%C%_fuzz_entry_fuzz_CPPFLAGS = $(AM_CPPFLAGS) $(fuzz_cppflags)
script_tests += %D%/fuzz/entries.sh
script_tests += %D%/doc/reference.sh
script_tests += %D%/doc/examples.sh
script_tests += %D%/doc/readme.sh
unit_tests += %D%/unit/bounds_test
%C%_unit_bounds_test_LDADD = $(ref_test_libs)
script_tests += %D%/cli/command.sh
script_tests += %D%/cli/debuggers.sh
script_tests += %D%/cli/eval_fmt.sh
script_tests += %D%/cli/export.sh
script_tests += %D%/cli/gpu_cache.sh
script_tests += %D%/cli/start.sh
script_tests += %D%/cli/readonly.sh
script_tests += %D%/cli/device.sh
# Not one of fuzz_programs: it has its own driver, with libFuzzer too.
jit_diff_programs += %D%/fuzz/graph_fuzz
%C%_fuzz_graph_fuzz_CPPFLAGS = $(AM_CPPFLAGS) $(fake_flags)
%C%_fuzz_graph_fuzz_SOURCES = %D%/fuzz/graph_fuzz.c %D%/amx/amx_emulate.c
%C%_fuzz_graph_fuzz_LDADD = $(fu_libs) $(fu_system_libs)
script_tests += %D%/fuzz/graphs.sh
unit_tests += %D%/unit/einsum_test
unit_tests += %D%/unit/lazy_test
unit_tests += %D%/unit/optim_test
unit_tests += %D%/unit/sequence_test
unit_tests += %D%/unit/rows_test
unit_tests += %D%/unit/profile_test
unit_tests += %D%/unit/dlpack_test
unit_tests += %D%/unit/builder_test
unit_tests += %D%/unit/op_header_test
script_tests += %D%/api/first_program.sh
unit_tests += %D%/diff/ops_test
%C%_diff_ops_test_LDADD = libfu-ref.la $(rt_test_libs)
unit_tests += %D%/unit/cache_api_test
unit_tests += %D%/chaos/alloc_test
unit_tests += %D%/chaos/fork_test
unit_tests += %D%/chaos/flat_test
unit_tests += %D%/chaos/processes_test
%C%_chaos_processes_test_LDADD = $(rt_test_libs)
unit_tests += %D%/chaos/threads_test
script_tests += %D%/api/valgrind.sh
unit_tests += %D%/unit/attention_test
unit_tests += %D%/unit/hint_test
script_tests += %D%/cli/bench.sh
script_tests += %D%/bench/counts.sh
unit_tests += %D%/unit/explain_test
# tile instructions of CPUs that this one may not be
unit_tests += %D%/amx/amx_test
%C%_amx_amx_test_SOURCES = %D%/amx/amx_test.c %D%/amx/amx_emulate.c
%C%_amx_amx_test_LDADD = $(base_test_libs) -lm
unit_tests += %D%/amx/amx_ops_test
%C%_amx_amx_ops_test_SOURCES = %D%/amx/amx_ops_test.c %D%/amx/amx_emulate.c
%C%_amx_amx_ops_test_LDADD = libfu-ref.la $(rt_test_libs)
