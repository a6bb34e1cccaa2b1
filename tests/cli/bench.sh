#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# bench.sh: fusor bench: what it lists, measures and writes; how it compares with baselines (made here, so that no time is judged);
# what it says about peers, compilers, baselines and paths that are not there.
. "$(dirname "$0")/lib.sh"
src=${FUSOR_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
fusor=$(realpath "${FUSOR:-./fusor}")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export FUSOR_CACHE_DIR=$work/cache TMPDIR=$work/tmp
mkdir -m 700 "$FUSOR_CACHE_DIR" "$TMPDIR"
${CC:-cc} -o "$work/html_check" "$src/tests/cli/html_check.c" || exit 1
cd "$work" || exit 1
need_json
# bench STATUS WORDS ARGUMENT...: the exit status, and WORDS (a grep pattern, "" for any; !PATTERN: none) in stdout or stderr.
bench() {
    local want=$1 words=$2
    shift 2
    "$fusor" bench "$@" >out 2>err </dev/null
    local got=$?
    if [ $got -ne "$want" ]; then bad "status $got, expected $want: fusor bench $*"
    elif [ "${words:0:1}" = '!' ]; then if grep -qe "${words:1}" out err; then bad "has '${words:1}': fusor bench $*"; else ok; fi
    elif [ -n "$words" ] && ! grep -qe "$words" out err; then bad "no '$words': fusor bench $*"
    else ok; fi
}
holds() { if ./json_check "$@" <"$file" >out 2>err; then ok; else bad "$file: $*"; fi; }
page() { if ./html_check "$@" <"$file" >out 2>err; then ok; else bad "$file: $*"; fi; }

# what there is
bench 0 'adamw' --list
bench 0 '!softmax' --list optimizers
bench 0 'silu(x)\*y' --list --filter silu
bench 2 "did you mean 'rows'" rosw
bench 2 'no workload has' --list --filter nothinglikeit
bench 2 'expected N=SIZE' --dim N=0 rows
bench 2 'expected N=SIZE' --dim M=3 rows
bench 2 'no workload of these suites has' rows --filter adamw
"$fusor" bench --list --json >list.json 2>err
file=list.json holds fusor-bench-list/1 'workloads.0.suite' 'workloads.0.name' 'workloads.0.sizes'
for what in --list --counts; do
    for option in --export-json=x.json --export-html=x.html --import-json=x.json --save-baseline=x --baseline=x --threshold=5; do
        bench 2 "$what measures nothing, so ${option%=*} cannot be given" $what $option chains
    done
done
bench 2 'so --counts cannot be given' --list --counts

# measured: a document, a page, a table
quick=(--quick --min-time 0.0005 --threads 1)
bench 0 'silu(x)\*y' chains "${quick[@]}" --filter silu --export-json run.json --export-html run.html
file=run.json holds fusor-bench/1 date build cpu level limits.0.flops limits.0.bytes results.0.suite results.0.name results.0.kind results.0.size results.0.threads \
    results.0.fused_ns results.0.unfused_ns results.0.ratio results.0.spread results.0.rounds results.0.kernels results.0.unfused_kernels results.0.bytes \
    results.0.unfused_bytes results.0.flops results.1.fused_ns
file=run.html page 'silu(x)*y' Roofline 'prefers-color-scheme' 'All numbers' '<svg'
bench 0 'silu' chains --filter silu --dim N=1e4 --threads 1,2 --min-time 0.0005 --peers none --export-json two.json --export-html two.html
file=two.json holds fusor-bench/1 limits.1.threads limits.1.bandwidth.memory limits.1.peak.f32 results.1.threads results.0.limit results.0.share
file=two.html page 'Scaling with threads' 'GFLOP/s'
if [ -n "${FUSOR_CODEGEN-}" ]; then
    # Every kind of a workload, and every result beside its C where a compiler is found.
    bench 0 '' dispatch lazy compile start "${quick[@]}" --filter 'relu(a*b+c)' --export-json kinds.json
    file=kinds.json holds fusor-bench/1 results.0.rivals.prepared.ns
    for kind in dispatch lazy compile load cold warm; do grep -q "\"kind\": \"$kind\"" kinds.json && ok || bad "no result of kind $kind"; done
    bench 0 '!plain C is left out of' elementwise chains reductions rows convolutions movement optimizers matmul --dim N=37 "${quick[@]}" --export-json plain.json
    if command -v cc >/dev/null; then file=plain.json holds fusor-bench/1 results.0.rivals.c.ns; fi
fi
[ -z "$(ls -A "$TMPDIR")" ] && ok || bad "left behind: $(ls "$TMPDIR")"
CC=/nonexistent/cc PATH=/nonexistent "$fusor" bench chains "${quick[@]}" --filter '(a-b)' >out 2>err
grep -q 'plain C is left out: none of cc' err && ok || bad 'a machine without a C compiler'

# peers: none where there is no Python, and those that do not load or answer are left out
bench 2 "did you mean 'torch'" --peers troch chains
bench 0 'no peers: /nonexistent/python: No such file' chains "${quick[@]}" --filter silu --peers found --python /nonexistent/python
printf '#!/bin/sh\necho "{\\"missing\\": \\"no module of this name\\"}"\n' >missing && chmod +x missing
bench 0 'peer jax is left out: no module of this name' chains "${quick[@]}" --filter silu --peers jax --python ./missing
printf '#!/bin/sh\necho "{\\"version\\": \\"1.5\\"}"\nread -r line\necho "{\\"skip\\": \\"not today\\"}"\nread -r line\n' >skips && chmod +x skips
bench 0 'peer numpy did not answer' chains "${quick[@]}" --filter silu --peers numpy --python ./skips --export-json skips.json
file=skips.json holds fusor-bench/1 peers.numpy results.0.left_out.numpy
if python3 -c 'import numpy' 2>/dev/null; then
    bench 0 '' elementwise chains reductions rows movement convolutions recurrent attention --dim N=36 "${quick[@]}" --peers numpy --export-json numpy.json
    file=numpy.json holds fusor-bench/1 peers.numpy results.0.rivals.numpy.ns
    grep -q '"numpy": "result' numpy.json && bad "NumPy's results differ: $(grep -m1 '"numpy": "result' numpy.json)" || ok
fi

# baselines, with times that are made up: row NAME FUSED SPREAD [C]
row() {
    local c=
    [ -z "${4-}" ] || c="\"c\": {\"ns\": $4, \"spread\": 0.01}"
    echo "{\"suite\": \"chains\", \"name\": \"$1\", \"size\": 100, \"threads\": 1, \"fused_ns\": $2, \"unfused_ns\": 400, \"spread\": $3, \"bytes\": 1200, \"flops\": 100,
           \"unfused_bytes\": 3600, \"kernels\": 1, \"unfused_kernels\": 3, \"rivals\": {$c}}"
}
document() { local IFS=,; echo "{\"schema\": \"fusor-bench/1\", \"date\": \"2026-01-0$day\", \"limits\": [{\"threads\": 1, \"flops\": 1e11, \"bytes\": 3e10}], \"results\": [$*]}"; }
day=1 document "$(row a 100 0.02)" "$(row 'b<&>\"' 100 0.02)" >base.json
day=2 document "$(row a 120 0.02)" "$(row 'b<&>\"' 101 0.02)" "$(row c 5 0.02)" >slow.json
day=3 document "$(row a 120 0.4)" "$(row 'b<&>\"' 80 0.02)" >noisy.json
bench 0 '' --import-json base.json --save-baseline first
[ -f "$FUSOR_CACHE_DIR/bench-first.json" ] && ok || bad 'no baseline was kept'
bench 1 'SLOWER: chains, a, size 100, 1 threads: +20.0%' --import-json slow.json --baseline first --export-json judged.json --export-html judged.html
grep -q '1 regression among 2 results' err && ok || bad 'the number of regressions'
file=judged.json holds fusor-bench/1 results.0.baseline_ns results.0.change results.0.verdict baseline.slower baseline.compared
file=judged.html page 'Beside baseline first' 'History' 'b&lt;&amp;&gt;&quot;' '+20.0 %'
bench 0 '+20.0%' --import-json slow.json --baseline first --threshold 25
bench 0 '0 regressions' --import-json noisy.json --baseline first
bench 0 'faster: chains, b' --import-json noisy.json --baseline first
bench 0 '!SLOWER' --import-json base.json --baseline first
# a machine that is slower as a whole, told by plain C, is no regression; a result beyond it is
mapfile -t then < <(for k in 1 2 3 4 5 6; do row "r$k" 100 0.01 50 | tr '\n' ' '; echo; done)
mapfile -t now < <(for k in 1 2 3 4 5 6; do row "r$k" 130 0.01 65 | tr '\n' ' '; echo; done)
day=1 document "${then[@]}" >then.json
day=2 document "${now[@]}" >now.json
now[2]=$(row r3 160 0.01 65)
day=3 document "${now[@]}" >worse.json
bench 0 '' --import-json then.json --save-baseline then
bench 0 'the machine is 30.0% slower' --import-json now.json --baseline then
bench 1 'SLOWER: chains, r3, .* +23.1%' --import-json worse.json --baseline then

# suites and --filter say which of them count
day=1 document "$(row a 100 0.02)" "$(row bb 100 0.02 | sed 's/"chains"/"rows"/')" >both.json
bench 0 '!bb' --import-json both.json chains --export-json one.json
[ "$(grep -c '"suite"' one.json)" = 1 ] && ok || bad 'what is written of an import of one suite'
bench 0 '!chains' --import-json both.json --filter bb
bench 2 'no result is of these suites' --import-json both.json matmul
bench 2 'measures nothing, so --dim cannot be given' --import-json both.json --dim N=3

# what is wrong with files and names
bench 4 'made with --save-baseline none\|No such file' --import-json base.json --baseline none
bench 2 "a name has no '/'" --import-json base.json --baseline a/b
bench 2 "a name has no '/'" --import-json base.json --save-baseline ''
echo '{"schema": ' >"$FUSOR_CACHE_DIR/bench-cut.json"
bench 3 'bench-cut.json:' --import-json base.json --baseline cut
echo '{"schema": "fusor-run/1"}' >"$FUSOR_CACHE_DIR/bench-other.json"
bench 3 'schema is not fusor-bench/1' --import-json base.json --baseline other
echo '{"schema": "fusor-bench/1", "results": [{"suite": "x", "name": "y"}]}' >lacks.json
bench 3 'a result lacks one of' --import-json lacks.json
bench 4 'No such file' --import-json nothing.json
bench 4 '/nonexistent/x.json: /nonexistent: No such file' chains --export-json /nonexistent/x.json
bench 4 '/nonexistent/x.html: /nonexistent: No such file' chains --export-html /nonexistent/x.html
bench 4 'no cache directory' --import-json base.json --save-baseline x --cache off
bench 0 '' --import-json base.json --export-html empty.html -q
day=1 document >empty.json
bench 0 '' --import-json empty.json --export-html empty.html
file=empty.html page 'fusor bench'

# counts
if [ -n "${FUSOR_CODEGEN-}" ]; then
    bench 0 'chains: 8 operators, .*: kernels 1 of 8, ' --counts chains
    "$fusor" bench --counts optimizers --json >counts.json 2>err
    file=counts.json holds fusor-bench-counts/1 llvm levels.2 workloads.0.kernels workloads.0.bytes workloads.0.instructions.2 workloads.0.code_bytes.0
fi
finish
