#compdef fusor
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Made from tools/commands.def and tools/options.def by make generated.
_fusor() {
    local curcontext=$curcontext state line rest='*:file:_files' ret=1
    local -a commands common own found
    commands=(
        'run:compile (or load from the cache) and run one function'
        'check:parse and type-check files, print their signatures'
        'explain:the fusion plan\: kernels, boundaries and their reasons, memory traffic'
        'emit:what each step of the pipeline made (ir, opt, plan, llvm, asm, obj, header, ptx, cubin)'
        'cache:inspect and manage the kernel cache'
        'bench:fused against unfused, plain C and other systems, in one interleaved run'
        'info:the CPU, its measured limits, CUDA devices, the cache and the environment in force'
        'fmt:canonical layout that keeps comments, on stdout'
        'eval:run an infix expression'
        'help:help of a command'
    )
    common=(
        '--target=[what code is generated for\: a CPU level with any features beside it, LEVEL+FEATURE..., or a GPU (fusor info lists them)]:target:(v2 x86-64-v2 v3 x86-64-v3 v4 x86-64-v4 v3+avxvnni v4+vnni v4+bf16 v4+amxint8 v4+amxbf16 v4+amxfp16 sm_70 sm_80 sm_90a)'
        '--cache=[off, ro, rw or refresh]:cache:(off ro rw refresh)'
        '--cache-dir=[directory of the kernel cache]:DIR:_files -/'
        '--threads=[threads, 1 to 1024; run and bench\: 1,2 sweeps]:N: '
        '--device=[cpu, cuda (the first GPU), cuda\:K, auto (bench\: how often it chose right) or reference]:device:(cpu cuda cuda:0 auto reference)'
        '--math=[precise, or fast\: faster f32 functions, within 64 ULP (numerics.md)]:math:(precise fast)'
        '--no-fuse[one kernel an operator]'
        '--color=[auto, always or never]:color:(auto always never)'
        '-q[no summaries and remarks]'
        '--quiet[no summaries and remarks]'
        '*-v[say more\: target, device and threads; the cache, and the kernels that came from it or were compiled]'
        '*--verbose[say more\: target, device and threads; the cache, and the kernels that came from it or were compiled]'
        '-V[version, build id, LLVM, CPU level]'
        '--version[version, build id, LLVM, CPU level]'
        '-h[this text]'
        '--help[this text]'
    )
    _arguments -C $common '1: :->command' '*:: :->rest' && return 0
    case $state in
    command) _describe -t commands 'fusor command' commands && ret=0 ;;
    rest)
        curcontext="${curcontext%:*}-$words[1]:"
        case $words[1] in
        run)
            own=(
        '-e+[the program itself instead of a FILE (a FILE - is stdin)]:TEXT: '
        '--expression=[the program itself instead of a FILE (a FILE - is stdin)]:TEXT: '
        '--fill=[serves all parameters that are not named\: uniform\:1, normal\:1, arange, zeros, ones, a number]:SOURCE: '
        '*--weights=[binds parameters by name from a .npz or .safetensors file]:FILE:_files'
        '*--dim=[a size that no file binds; 64K (64,000), 1e6; N alone where there is one size (not of cache, bench); run\: several (N=1e3,1e4) sweep; bench\: sizes instead of the suites'\'' own]:NAME=N: '
        '*-o+[where to\: NAME=path.npy, DIR/ or NAME=- (run), a file (others)]:OUT:_files'
        '*--output=[where to\: NAME=path.npy, DIR/ or NAME=- (run), a file (others)]:OUT:_files'
        '--check=[compare with the reference evaluator, by the documented bounds or ULP; exit 1 above (fmt\: name the files whose layout would change; exit 1 if any)]::check: '
        '--time[repeat the call\: median, min, p99, GB/s, GFLOP/s, cost of compiling]'
        '--min-time=[seconds to repeat for (0.5)]:S: '
        '--runs=[exactly so many timed calls]:N: '
        '--warmup=[calls before timing (3)]:N: '
        '--trace=[write a timeline (Chrome trace events) of parse, compile and run]:FILE:_files'
        '--profile[time, share and rates of each kernel, and which limit binds it]'
        '--wait[wait for the fused kernels; do not start on unfused ones]'
        '--perf[write /tmp/perf-PID.map for Linux perf]'
        '--json[one JSON document on stdout]'
            )
            _arguments $common $own $rest && ret=0 ;;
        check)
            own=(
        '-e+[the program itself instead of a FILE (a FILE - is stdin)]:TEXT: '
        '--expression=[the program itself instead of a FILE (a FILE - is stdin)]:TEXT: '
        '--json[one JSON document on stdout]'
            )
            _arguments $common $own $rest && ret=0 ;;
        explain)
            own=(
        '-e+[the program itself instead of a FILE (a FILE - is stdin)]:TEXT: '
        '--expression=[the program itself instead of a FILE (a FILE - is stdin)]:TEXT: '
        '--fill=[serves all parameters that are not named\: uniform\:1, normal\:1, arange, zeros, ones, a number]:SOURCE: '
        '*--weights=[binds parameters by name from a .npz or .safetensors file]:FILE:_files'
        '*--dim=[a size that no file binds; 64K (64,000), 1e6; N alone where there is one size (not of cache, bench); run\: several (N=1e3,1e4) sweep; bench\: sizes instead of the suites'\'' own]:NAME=N: '
        '*-o+[where to\: NAME=path.npy, DIR/ or NAME=- (run), a file (others)]:OUT:_files'
        '*--output=[where to\: NAME=path.npy, DIR/ or NAME=- (run), a file (others)]:OUT:_files'
        '--min-time=[seconds to repeat for (0.5)]:S: '
        '--format=[text, json, dot or html]:format:(text json dot html)'
        '--measure[explain\: measure the times of calls and kernels; info\: measure the limits of this machine again]'
        '--json[one JSON document on stdout]'
            )
            _arguments $common $own $rest && ret=0 ;;
        emit)
            own=(
        '-e+[the program itself instead of a FILE (a FILE - is stdin)]:TEXT: '
        '--expression=[the program itself instead of a FILE (a FILE - is stdin)]:TEXT: '
        '*--dim=[a size that no file binds; 64K (64,000), 1e6; N alone where there is one size (not of cache, bench); run\: several (N=1e3,1e4) sweep; bench\: sizes instead of the suites'\'' own]:NAME=N: '
        '*-o+[where to\: NAME=path.npy, DIR/ or NAME=- (run), a file (others)]:OUT:_files'
        '*--output=[where to\: NAME=path.npy, DIR/ or NAME=- (run), a file (others)]:OUT:_files'
        '--stage=[ir, opt, plan, llvm, asm, obj, header, ptx or cubin]:stage:(ir opt plan llvm asm obj header ptx cubin)'
        '--kernel=[only the kernel of this number (fusor explain), else those whose symbol or key starts so]:PREFIX: '
            )
            _arguments $common $own $rest && ret=0 ;;
        cache)
            own=(
        '-e+[the program itself instead of a FILE (a FILE - is stdin)]:TEXT: '
        '--expression=[the program itself instead of a FILE (a FILE - is stdin)]:TEXT: '
        '*--dim=[a size that no file binds; 64K (64,000), 1e6; N alone where there is one size (not of cache, bench); run\: several (N=1e3,1e4) sweep; bench\: sizes instead of the suites'\'' own]:NAME=N: '
        '*-o+[where to\: NAME=path.npy, DIR/ or NAME=- (run), a file (others)]:OUT:_files'
        '*--output=[where to\: NAME=path.npy, DIR/ or NAME=- (run), a file (others)]:OUT:_files'
        '--filter=[only what has TEXT in its name; cache also FIELD=TEXT (kind=row, target=v3, build=other)]:TEXT: '
        '--sort=[list by key, function, kind, target, size, compile, hits or age]:sort:(key function kind target size compile hits age)'
        '--max-size=[prune to this size\: 512M (of 1024)]:BYTES: '
        '--max-age=[prune what was not used for\: 30d, 12h]:AGE: '
        '--dry-run[say what prune or clear would delete]'
        '-z[set the counters of stats to zero]'
        '--zero[set the counters of stats to zero]'
        '--json[one JSON document on stdout]'
            )
            if [[ $words[2] == (show|disasm) ]]; then
                found=(${${(f)"$(fusor cache list 2>/dev/null)"}[2,-1]%% *})
                rest="*:key:($found)"
            fi
            _arguments $common $own '1:action:(list show disasm why verify prune clear stats path warm export import)' $rest && ret=0 ;;
        bench)
            own=(
        '*--dim=[a size that no file binds; 64K (64,000), 1e6; N alone where there is one size (not of cache, bench); run\: several (N=1e3,1e4) sweep; bench\: sizes instead of the suites'\'' own]:NAME=N: '
        '--min-time=[seconds to repeat for (0.5)]:S: '
        '--list[the workloads, without running them]'
        '--filter=[only what has TEXT in its name; cache also FIELD=TEXT (kind=row, target=v3, build=other)]:TEXT: '
        '--quick[smaller sizes and less time]'
        '--peers=[found (default; none with --quick), all, none, or names\: numpy, numba, torch, jax, onnxruntime, torch.compile]:peers:(found all none numpy numba torch jax onnxruntime torch.compile)'
        '--python=[the interpreter that peers run in (python3)]:FILE:_files'
        '--export-json=[write the results]:FILE:_files'
        '--export-html=[write a page with charts that needs no other file]:FILE:_files'
        '--import-json=[take the results from a file instead of measuring]:FILE:_files'
        '--save-baseline=[keep the results beside the kernel cache]:NAME: '
        '--baseline=[compare with kept results; exit 1 on a regression]:NAME: '
        '--threshold=[what counts as a regression (5)]:PERCENT: '
        '--counts[kernels, bytes moved and instructions, which no machine'\''s mood changes; nothing runs]'
        '--json[one JSON document on stdout]'
            )
            found=(${(u)${(f)"$(fusor bench --list 2>/dev/null)"}%% *})
            rest="*:suite:($found)"
            _arguments $common $own $rest && ret=0 ;;
        info)
            own=(
        '--measure[explain\: measure the times of calls and kernels; info\: measure the limits of this machine again]'
        '--json[one JSON document on stdout]'
            )
            _arguments $common $own $rest && ret=0 ;;
        fmt)
            own=(
        '-e+[the program itself instead of a FILE (a FILE - is stdin)]:TEXT: '
        '--expression=[the program itself instead of a FILE (a FILE - is stdin)]:TEXT: '
        '*-o+[where to\: NAME=path.npy, DIR/ or NAME=- (run), a file (others)]:OUT:_files'
        '*--output=[where to\: NAME=path.npy, DIR/ or NAME=- (run), a file (others)]:OUT:_files'
        '--check=[compare with the reference evaluator, by the documented bounds or ULP; exit 1 above (fmt\: name the files whose layout would change; exit 1 if any)]::check: '
        '-i[write the files themselves, each whole or not at all]'
        '--in-place[write the files themselves, each whole or not at all]'
            )
            _arguments $common $own $rest && ret=0 ;;
        eval)
            own=(
        '--fill=[serves all parameters that are not named\: uniform\:1, normal\:1, arange, zeros, ones, a number]:SOURCE: '
        '*--weights=[binds parameters by name from a .npz or .safetensors file]:FILE:_files'
        '*--dim=[a size that no file binds; 64K (64,000), 1e6; N alone where there is one size (not of cache, bench); run\: several (N=1e3,1e4) sweep; bench\: sizes instead of the suites'\'' own]:NAME=N: '
        '*-o+[where to\: NAME=path.npy, DIR/ or NAME=- (run), a file (others)]:OUT:_files'
        '*--output=[where to\: NAME=path.npy, DIR/ or NAME=- (run), a file (others)]:OUT:_files'
        '--check=[compare with the reference evaluator, by the documented bounds or ULP; exit 1 above (fmt\: name the files whose layout would change; exit 1 if any)]::check: '
        '--time[repeat the call\: median, min, p99, GB/s, GFLOP/s, cost of compiling]'
        '--min-time=[seconds to repeat for (0.5)]:S: '
        '--runs=[exactly so many timed calls]:N: '
        '--warmup=[calls before timing (3)]:N: '
        '--trace=[write a timeline (Chrome trace events) of parse, compile and run]:FILE:_files'
        '--profile[time, share and rates of each kernel, and which limit binds it]'
        '--wait[wait for the fused kernels; do not start on unfused ones]'
        '--perf[write /tmp/perf-PID.map for Linux perf]'
        '--emit[print the expression as IR instead of running it]'
        '--json[one JSON document on stdout]'
            )
            _arguments $common $own $rest && ret=0 ;;
        help) _describe -t commands 'fusor command' commands && ret=0 ;;
        esac ;;
    esac
    return ret
}
_fusor "$@"
