#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# command.sh: the command's contract: exit statuses, messages, JSON, files that appear whole, inputs that never change.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
src=${FUSOR_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
fusor=${FUSOR:-./fusor}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export FUSOR_CACHE_DIR=$work/cache
mkdir -m 700 "$FUSOR_CACHE_DIR"
fusor=$(realpath "$fusor")
cd "$work" || exit 1
need_json

same() { if cmp -s "$1" "$2"; then ok; else bad "$3"; fi; }

sgd='func @sgd(%p: f32[N], %g: f32[N], %lr: f32) -> (%q: f32[N] alias %p) { %d = mul(%lr, %g) %q = sub(%p, %d) return %q }'
two='func @f(%a: f32[N], %b: f32[N]) -> (%s: f32[N], %m: f32) { %s = add(%a, %b) %m = reduce_sum(%s) return %s, %m }
func @g(%a: f32[4]) -> f32[4] { %y = relu(%a) return %y }'
mlp='func @m(%x: f32[B, 8], const %w: f32[8, 4], %b: f32[4]) -> (%y: f32[B, 4]) { %h = matmul(%x, %w) %s = add(%h, %b) %r = relu(%s) %y = softmax(%r) return %y }'
printf '%s\n' "$two" >two.fusor

# help, version, usage
expect 0 'Usage: fusor COMMAND' --help
expect 0 'Usage: fusor COMMAND' help
expect 0 'Usage: fusor COMMAND' help help
expect 0 'warm FILE' help cache
expect 2 'Usage' 
expect 0 '^fusor 0' -V
expect 0 'build' --version
for c in run check explain emit cache bench info fmt eval; do
    expect 0 'Example:' help $c
    expect 0 'Example:' $c --help
    grep -q "^\.B fusor $c\$" "$src/doc/man/fusor.1" && ok || bad "$c is not in the synopsis of the manual"
done
actions=$("$fusor" cache 2>&1 | sed -n 's/.*expected \(list.*\)/\1/p' | tr -d ',' | sed 's/ or / /')
for action in $actions; do grep -A1 '^\.B fusor cache$' "$src/doc/man/fusor.1" | grep -q "[ |]$action\( \|\$\)" && ok || bad "cache $action is not in the manual"; done
[ "$(wc -w <<<"$actions")" -ge 12 ] && ok || bad "actions of cache: $actions"
expect 2 "did you mean 'run'" rnu
expect 2 "did you mean '--time'" run --tmie
expect 2 'needs a value' run --dim
expect 2 'takes no value' run --time=3
expect 2 "not one of" check --time
expect 2 'expected off, ro, rw or refresh' run --cache on
FUSOR_CACHE=on expect 0 'FUSOR_CACHE=on: expected off, ro, rw or refresh' run two.fusor @g a=1
for threads in two 1,2 -3 99999; do FUSOR_THREADS=$threads expect 2 "FUSOR_THREADS=$threads: expected a number from 0 to 1024" run two.fusor @g a=1; done
for command in 'explain two.fusor' 'emit two.fusor --stage ir' info 'check two.fusor' 'cache list'; do # shellcheck disable=SC2086
    FUSOR_DEVICE=foo expect 2 "FUSOR_DEVICE: device 'foo': expected cpu" $command
    FUSOR_TARGET=v9 expect 2 "FUSOR_TARGET: unknown target 'v9'" $command
done
FUSOR_THREADS=two expect 0 '' run two.fusor @g a=1 --threads 1
FUSOR_THREADS=0 expect 0 '' run two.fusor @g a=1
FUSOR_VERBOSE=cash,run expect 0 'FUSOR_VERBOSE=cash,run: expected some of: all error' run two.fusor @g a=1
FUSOR_PASSES=-cse,-simplfy,+dce expect 0 "FUSOR_PASSES=-cse,-simplfy,+dce: expected some of: -expand +expand .* -dce +dce" run two.fusor @g a=1
expect 2 'unknown target' run --target v9 -e "$sgd"
expect 2 "did you mean 'vnni'" run --target v4+vnnu -e "$sgd"
expect 2 'vnni adds to x86-64-v4' run --target v3+vnni -e "$sgd"
expect 2 'vnni adds to x86-64-v4' explain --target v3+vnni two.fusor @f
expect 2 'vnni adds to x86-64-v4' cache warm --target v3+vnni two.fusor
expect 0 'level x86-64-v4' emit --target v4+vnni+bf16 --stage plan two.fusor @f
if grep -q '^flags.* avx512_vnni' /proc/cpuinfo; then expect 0 '' run --target v4+vnni two.fusor @g a=1
else expect 4 'cannot run target' run --target v4+vnni two.fusor @g a=1; fi
expect 2 "expected cpu, cuda, cuda:K, auto or reference" run --device gpu -e "$sgd"
expect 4 "no CUDA driver" run --device cuda -e "$sgd" --fill ones --dim N=3
expect 2 '1 to 1024' run --threads 0 -e "$sgd"
expect 2 'runs 0: expected 1 or more' run two.fusor @g a=1 --time --runs 0
expect 2 'no program' run
expect 2 "it has @f, @g" run two.fusor @relu
expect 2 "has no parameter" run two.fusor @g aa=1
expect 2 'expected NAME=SOURCE' run two.fusor @g a
for size in 9223372036854775807 99999999999999999999 1e19 9e18K 1e999; do expect 2 "'$size' is too large" run two.fusor --fill 1 --dim N=$size; done
for size in 1KiB 1.5 1Q -1 0x10 1e-999; do expect 2 "'$size' is no size" run two.fusor --fill 1 --dim N=$size; done
expect 0 'f32\[2000\]' run two.fusor --fill 1 --dim N=2K
expect 2 'given twice' run two.fusor @g a=1 a=2
expect 4 "no such file; did you mean 'ones'" run two.fusor @g a=oness
expect 4 "did you mean 'uniform:1'" run two.fusor @g a=uniform
expect 2 'expected a seed' run two.fusor @g a=normal:x
expect 2 'expected a seed' run two.fusor @g --fill uniform:
expect 2 'is a type, which the program says' run two.fusor @g 'a=f32[2, 3]'
expect 2 'expected x:bf16\[4\]=SOURCE' eval 'exp(x)' 'x=bf16[4]'
expect 4 "did you mean 'normal:1'" eval 'exp(x)' x=norml:1
expect 2 'a number of ULP' run two.fusor @g a=1 --check=nan
long=$(printf '/%0200d' {1..25})
expect 0 'longer than 4095 bytes; kernels stay in memory' run two.fusor @g a=1 --cache-dir "$long"
expect 4 'longer than 4095 bytes' cache path --cache-dir "$long"

# completion: commands, options, and what stands behind an option
completes() {
    local want=$1
    shift
    COMP_WORDS=("$fusor" "$@") COMP_CWORD=$#
    COMPREPLY=()
    _fusor
    if [[ " ${COMPREPLY[*]} " == *" $want "* ]]; then ok; else bad "completion of '$*' has no '$want': ${COMPREPLY[*]}"; fi
}
# shellcheck source=tools/fusor.bash
. "$src/tools/fusor.bash"
completes explain e
completes explain --target v3 e
completes explain help e
completes --target --t
completes --measure explain --target v3 --m
completes reference --device r
completes v4+bf16 run --target = v4
completes refresh run --cache =
completes sm_80 emit --target sm
completes cubin emit --stage c
completes warm cache w
completes two.fusor run two
completes two.fusor run --time two
if ! command -v zsh >/dev/null; then skip 'zsh is not installed'
else zsh -n "$src/tools/fusor.zsh" 2>err && ok || bad 'completion for zsh is no zsh'; fi
expect 2 'is for a GPU' emit two.fusor --stage ptx --target v3
expect 2 'which stage' emit two.fusor
expect 0 'bottleneck: kernel 0 (map' run two.fusor @g a=1 --profile --runs 5
expect 3 ':1:23: error: parameter %y: dim 0 of f32\[N-4\] is negative' run -e 'func @f(%x: f32[N],   %y: f32[N-4]) -> f32[N] { %z = neg(%x) return %z }' --fill 1 --dim N=2
expect 3 'divides by zero' run -e 'func @f(%x: f32[N], %y: f32[4/N]) -> f32[N] { %z = neg(%x) return %z }' --fill 1 --dim N=0
for size in N/N 0/N '(2*N)/N' '0*(6/N)' '6/N-6/N' 'N*(6/N)'; do
    expect 3 'a size expression divides by zero' run -e "func @f(%x: f32[N]) -> f32[?] { %y = full(1, shape=[$size], dtype=f32) return %y }" --fill 1 --dim N=0
done
expect 3 ':1:30: error: a size expression divides by zero' run -e 'func @f(%x: f32[N], %w: f32[N/N]) -> f32[N] { return %x }' --fill 1 --dim N=0
expect 3 'a size expression divides by zero' run -e 'func @g(%x: f32[M]) -> f32[M/M] { %y = full(1, shape=[M/M], dtype=f32) return %y } func @f(%x: f32[N]) -> f32[?] { %y = @g(%x) return %y }' @f --fill 1 --dim N=0
# Indices that are a parameter's are checked where no result needs what they pick, too.
for unused in '%y = take(%x, %i)' '%e = exp(%x) %y = take(%e, %i, axis=0) %r = relu(%y)' '%y = scatter(%x, %i, %u, axis=0)' '%y = @g(%x, %i)'; do
    text="func @f(%x: f32[5], %i: i64[1], %u: f32[1]) -> f32[5] { $unused %z = neg(%x) return %z }
        func @g(%a: f32[5], %k: i64[1]) -> f32[1] { %b = take(%a, %k) return %b }"
    for how in --threads=1 --no-fuse --device=reference; do
        expect 3 'index 9 at position \[0\] of the indices' run -e "$text" @f --fill 1 i=9 $how
        expect 0 '-1. -1.' run -e "$text" @f --fill 1 i=-5 $how
    done
done
expect 0 'f32\[1\]' run -e 'func @f(%x: f32[N]) -> f32[N/N] { %y = full(1, shape=[N/N], dtype=f32) return %y }' --fill 1 --dim N=3
expect 0 '"max": 9223372036854775807' run -e 'func @f() -> (%w: i64) { %w = full(9223372036854775807, shape=[], dtype=i64) return %w }' --json
expect 0 '"max": 18446744073709551615,$' run -e 'func @f() -> (%w: u64) { %w = full(18446744073709551615, shape=[], dtype=u64) return %w }' --json
for ending in npz safetensors; do
    expect 2 "-o y.$ending: results are not written as .$ending; expected NAME=path.npy" run two.fusor @g a=1 -o "y=y.$ending"
    [ -e y.$ending ] && bad "y.$ending was written" || ok
done
expect 3 "$(printf '\033\\[1;31merror:\033\\[0m there is no value %%z')" check --color=always -e 'func @f(%x: f32) -> f32 { return %z }'
expect 4 '"file": "nosuch"' check --json two.fusor nosuch
expect 3 'overflow 64 bits' run -e 'func @f(%x: f32[N,N]) -> f32 { %y = reduce_sum(%x) return %y }' x=1 --dim N=4e9
for warmup in 0 4; do
    json fusor-run/1 'profile.0.calls profile.0.gb_s profile.0.share' run two.fusor @g a=1 --profile --runs 5 --warmup $warmup
    grep -q '"calls": 5,' out && ok || bad '--profile counts other calls than those of --runs'
done

# tensors as NumPy 2.3 prints them
expect 0 '^\[\]$' run -e 'func @f(%x: f32[5, 0]) -> f32[5, 0] { %y = neg(%x) return %y }' --fill ones
expect 0 '^\[ nan   1.  inf -inf\]$' run -e 'func @f(%x: f32[4] = [nan, 1, inf, -inf]) -> f32[4] { return %x }'
expect 0 '^\[ True  True\]$' run -e 'func @f(%x: bool[2] = true) -> bool[2] { return %x }'
expect 0 '^0.33482960055713207$' run -e 'func @f(%x: f64 = 0.33482960055713207) -> f64 { return %x }'
expect 0 '^-1.6522202e+07$' run -e 'func @f(%x: f32 = -16522202) -> f32 { return %x }'
expect 0 '^\[1.e+00 2.e+00 1.e+03\]$' run -e 'func @f(%x: f16[3] = [1, 2, 1000]) -> f16[3] { return %x }'

expect 0 '^\[  0.1 100.    inf\]$' run -e 'func @f(%x: f16[3] = [0.1, 100, inf]) -> f16[3] { return %x }'
expect 0 '^\[1.e-01 1.e+03\]$' run -e 'func @f(%x: f32[2] = [0.1, 1000]) -> f32[2] { return %x }'
expect 0 '^\[1.0e+100 1.5e+000\]$' run -e 'func @f(%x: f64[2] = [1e100, 1.5]) -> f64[2] { return %x }'
expect 0 '^\[1.4452955e+08\]$' run -e 'func @f(%x: f64[1] = [144529549.996]) -> f64[1] { return %x }'
expect 0 '^\[1.44529550e+08 1.23456789e+00\]$' run -e 'func @f(%x: f64[2] = [144529549.996, 1.23456789]) -> f64[2] { return %x }'
expect 0 '^\[-1.e+00  1.e-10     nan\]$' run -e 'func @f(%x: f64[3] = [-1, 1e-10, nan]) -> f64[3] { return %x }'

# missing inputs: the signature and a command that works
expect 2 'A complete command' run two.fusor
line=$(grep -A1 'A complete command' err | tail -1 | sed "s|^  fusor |$fusor |")
if eval "$line" >out 2>err; then ok; else bad "the command to copy does not work: $line"; fi
expect 2 'give --dim N=SIZE' run two.fusor --fill ones
line=$(grep -A1 'A complete command' err | tail -1 | sed "s|^  fusor |$fusor |")
if eval "$line" >out 2>err; then ok; else bad "the command to copy does not work: $line"; fi
expect 2 'A complete command' run -e 'func @f(%x: f32[N], %i: i64[M]) -> f32[M] { %y = take(%x, %i) return %y }' --check --time --runs 3 --threads 1,2 -o y=y\ z.npy -q
line=$(grep -A1 'A complete command' err | tail -1 | sed "s|^  fusor |$fusor |")
[[ $line == *" x=normal:1 i=zeros --output 'y=y z.npy' --check --time --runs 3 --threads 1,2 --quiet --dim N=64 --dim M=64" ]] && ok || bad "the command to copy: $line"
line=${line/--threads 1,2/--threads 2}
if eval "$line" >out 2>err && [ -f 'y z.npy' ]; then ok; else bad "the command to copy does not work: $line"; fi
rm -f 'y z.npy'

# programs and data that are wrong
expect 3 "<text>:1:.*unknown operator 'rleu'; did you mean 'relu'" run -e 'func @f(%a: f32[4]) -> f32[4] { %y = rleu(%a) return %y }'
expect 3 'the module has no function' run -e ''
expect 3 'unknown operator' check -e 'func @f(%a: f32[4]) -> f32[4] { %y = rleu(%a) return %y }'
expect 4 'No such file' run nowhere.fusor
expect 4 'No such file' check nowhere.fusor
expect 4 'more than 256 MB; expected the text of a program' check /dev/zero
expect 4 'No such file' run two.fusor a=nowhere.npy b=ones
expect 4 '' run two.fusor --fill ones --dim N=1e18
expect 3 'no such\|No such\|rleu' run -e 'func @f(%a: f32[4]) -> f32[4] { %y = rleu(%a) return %y }' a=nowhere.npy

# running
expect 0 '^\[0\. 1\. 2\. 3\.\]$' run two.fusor @g a=arange
expect 0 'f32\[3\]' run two.fusor --fill ones --dim N=3
expect 0 '' run two.fusor -q --fill ones --dim N=3
[ -s out ] && bad '-q prints' || ok
expect 0 ': ok' run -e "$mlp" --fill normal:1 --dim B=7 --check
expect 1 'ABOVE' run -e "$mlp" --fill normal:1 --dim B=64 --check=0
# the fast tier: its own bounds, its own kernels
acts='func @a(%x: f32[N]) -> (%s: f32[N], %g: f32[N], %d: f64[N]) { %s = sigmoid(%x) %g = exp(%x) %w = cast(%x, f64) %d = exp(%w) return %s, %g, %d }'
expect 0 'check %g: .* bound 64 ULP: ok' run -e "$acts" --fill normal:1 --dim N=3001 --math fast --check
expect 0 'check %d: .* bound 4 ULP: ok' run -e "$acts" --fill normal:1 --dim N=3001 --math fast --check
expect 0 'check %g: .* bound 2 ULP: ok' run -e "$acts" --fill normal:1 --dim N=3001 --check
expect 1 'ABOVE' run -e "$acts" --fill normal:1 --dim N=3001 --math fast --check=4
expect 0 ': ok' run -e "$mlp" --fill normal:1 --dim B=64 --math fast --check
# Attention in primitives: one kernel within the bounds of what was written; unfused, its own kernels.
scores='func @f(%q: f32[3, S, 64], %k: f32[3, 64, T], %v: f32[3, T, 32], %m: f32[S, T]) -> f32[3, S, 32] {
  %a = matmul(%q, %k) %b = div(%a, 8.0) %s = add(%b, %m) %p = softmax(%s) %y = matmul(%p, %v) return %y }'
for sizes in 'S=3 --dim T=7' 'S=40 --dim T=300' 'S=5 --dim T=0'; do
    expect 0 ': ok' run -e "$scores" --fill normal:1 --dim $sizes --check --wait
    expect 0 ': ok' run -e "$scores" --fill normal:1 --dim $sizes --check --wait --no-fuse
done
expect 0 '^kernel 0: attention: attention$' explain -e "$scores"
expect 0 'loop .*; tiles: blocks of queries' explain -e "$scores"
expect 0 '^unfused  [4-9] kernels' explain -e "$scores"
# many sizes that nobody gives: smaller ones than are assumed of a few; those that are given are taken at their word
many='func @f(%x: f32[N, C, H, W], %w: f32[O, C, 3, 3]) -> f32[?, ?, ?, ?] { %y = conv(%x, %w) return %y }'
expect 0 'N=256, C=256, H=256, W=256, O=256.*assumed' explain -e "$many"
expect 0 'N=2, C=1024, H=1024.*assumed' explain -e "$many" --dim N=2
expect 3 'more than 2.52 steps' explain -e "$many" --dim N=1 --dim C=64K --dim H=64K --dim W=64K --dim O=8
masked='func @f(%q: f32[3, S, 64], %k: f32[3, 64, T], %v: f32[3, T, 32], %m: bool[S, T]) -> f32[3, S, 32] {
  %a = matmul(%q, %k) %s = select(%m, -inf, %a) %p = softmax(%s) %y = matmul(%p, %v) return %y }'
causal='func @f(%q: f32[3, S, 64], %k: f32[3, 64, T], %v: f32[3, T, 32]) -> f32[3, S, 32] {
  %i = iota(shape=[S, 1], axis=0, dtype=i64) %j = iota(shape=[T], axis=0, dtype=i64) %l = le(%j, %i)
  %a = matmul(%q, %k) %s = select(%l, %a, -inf) %p = softmax(%s) %y = matmul(%p, %v) return %y }'
for sizes in 'S=3 --dim T=7' 'S=40 --dim T=300' 'S=300 --dim T=40'; do
    expect 0 ': ok' run -e "$masked" --fill uniform:1 --dim $sizes --check --wait
    expect 0 ': ok' run -e "$causal" --fill normal:1 --dim $sizes --check --wait
done
expect 0 '^check %y: error [0-9.e+]* ULP at \[[0-2], [0-9]*, [0-9]*\], bound [0-9.e+]* ULP: ok' \
    run -e "$scores" --fill normal:1 --dim S=40 --dim T=300 --check --wait
expect 0 'nan 6$' run -e 'func @f(%q: f32[2, 5], %k: f32[5, 4], %v: f32[4, 3]) -> f32[2, 3] {
  %a = matmul(%q, %k) %s = add(%a, -inf) %p = softmax(%s) %y = matmul(%p, %v) return %y }' --fill normal:1 --wait
# 1/2 + 2^-25 + 2^-54: the quotient rounded once to f32 is above 1/2; by way of f64 it would be 1/2, which goes to 0
for device in cpu reference; do
    expect 0 '^\[1\]' run -e 'func @f(%x: f64[1], %s: f64, %z: i8) -> i8[1] { %y = quantize(%x, %s, %z, dtype=i8) return %y }' \
        x=0.5000000307336451 s=1.0000000018626451 z=0 --device $device
done
expect 0 'median' run two.fusor --fill ones --dim N=1K --time --runs 3
for runs in 2 3 7; do
    "$fusor" run two.fusor --fill ones --dim N=1K --time --warmup 0 --runs $runs --json >out 2>err &&
        tr -d ' ,' <out | awk -F: '{ v[$1] = $2 } END { exit !(v["\"min_ns\""] <= v["\"median_ns\""] + 0 && v["\"median_ns\""] <= v["\"p99_ns\""] + 0) }' && ok || bad "min, median and p99 of $runs runs"
done
# However short a call: for the time asked for, and what a sample is is said.
from=$(date +%s%N)
expect 0 'over [0-9]* samples, each the mean of [0-9]* calls$' run two.fusor @g a=1 --time --warmup 0 --min-time 1.5
[ $(($(date +%s%N) - from)) -ge 1500000000 ] && ok || bad '--min-time is cut short'
expect 0 'over 70000 calls$' run two.fusor @g a=1 --time --runs 70000
expect 0 'N=2000' run two.fusor --fill ones --dim N=1e3,2e3 --threads 1,2 --runs 2 --time
expect 0 'N=2000 .* 2 ' run two.fusor --fill ones --dim N=1e3,2e3 --threads 1e0,2 --runs 2 --time
expect 0 'f32\[3\]' run two.fusor --fill ones --dim N=3 --no-fuse
expect 0 'f32\[3\]' run two.fusor --fill ones --dim N=3 --device reference
"$fusor" run - @g a=arange <two.fusor >out 2>err && grep -q '0\. 1\.' out && ok || bad 'a program on stdin'

# files: whole or not at all, inputs unchanged unless named
expect 0 '' run -e "$sgd" p=arange g=ones lr=0.5 --dim N=5 -o q=p.npy
cp p.npy before.npy
expect 0 '' run -e "$sgd" p=p.npy g=ones lr=0.5 --time --runs 3
same p.npy before.npy 'an aliased input file changed'
expect 3 'dim N is 6 in --dim but 5 in p.npy' run -e "$sgd" p=p.npy g=ones lr=1 --dim N=6
"$fusor" run -e "$sgd" p=- g=ones lr=0.5 -o q=- <p.npy >q.npy 2>err && cmp -s -n 6 q.npy p.npy && ok || bad 'stdin to stdout'
expect 0 '' run -e "$sgd" p=p.npy g=ones lr=0.5 -o q=p.npy
same p.npy q.npy 'in place: another result'
expect 0 '' run two.fusor --fill ones --dim N=3 -o results/here/
[ -f results/here/s.npy ] && [ -f results/here/m.npy ] && ok || bad '-o DIR/'
for other in both.npy ./both.npy results/../both.npy "$PWD/both.npy" results/here/link.npy; do
    ln -sf ../../both.npy results/here/link.npy && : >both.npy
    expect 2 "results 's' and 'm' both go to" run two.fusor --fill ones --dim N=3 -o s=both.npy -o m="$other"
    [ "$other" = results/here/link.npy ] || rm both.npy
    expect 2 "results 's' and 'm' both go to" run two.fusor --fill ones --dim N=3 -o s=both.npy -o m="$other"
done
rm -f both.npy results/here/link.npy
expect 2 "has no result 'x'" run two.fusor --fill ones --dim N=3 -o x=x.npy
expect 4 '' run two.fusor --fill ones --dim N=3 -o s=/dev/full/x.npy
expect 4 'there is no directory missing/below .*; -o missing/below/ makes it' run two.fusor --fill ones --dim N=3 -o s=missing/below/x.npy
[ ! -e missing ] && ok || bad '-o FILE made a directory'
[ -z "$(ls | grep -v -e '\.npy$' -e '\.fusor$' -e '^out$' -e '^err$' -e '^why$' -e cache -e results -e json_check)" ] && ok || bad "left behind: $(ls)"

# pipes
"$fusor" run two.fusor --fill ones --dim N=900 2>err | head -c 1 >/dev/null
[ "${PIPESTATUS[0]}" -eq 0 ] && [ ! -s err ] && ok || bad 'EPIPE is not quiet'
if [ -w /dev/full ]; then "$fusor" run two.fusor --fill ones --dim N=9 >/dev/full 2>err; [ $? -eq 4 ] && ok || bad 'a full disk is not exit 4'
    "$fusor" info --json >/dev/full 2>err; [ $? -eq 4 ] && [ "$(grep -c 'standard output' err)" -eq 1 ] && ok || bad 'a full disk is told once'; fi

# JSON
json fusor-run/1 'results.0.dtype results.0.shape results.1.mean results.0.nan' run two.fusor --fill ones --dim N=3
json fusor-run/1 'check.0.max_ulp check.0.bound check.0.ok check.0.at_ulp check.0.at_bound check.1.at check.1.name' run two.fusor --fill normal:1 --dim N=300 --check
json fusor-run/1 'median_ns min_ns p99_ns runs samples calls_per_sample compile_ns load_ns cache kernels bytes_read bytes_written flops threads device target' \
    run two.fusor --fill ones --dim N=3 --time --runs 2
json fusor-run/1 'points.1.dims.N points.1.threads points.0.median_ns' run two.fusor --fill ones --dim N=3,4 --runs 2
json fusor-run/1 'results.0.max' run -e 'func @f(%a: f32[4]) -> f32[4] { %y = log(%a) return %y }' a=zeros
json fusor-check/1 'files.0.functions.1.signature' check two.fusor
json fusor-check/1 'files.0.errors' check -e 'func @f('
json fusor-check/1 'files.0.diagnostics.0.line files.0.diagnostics.0.severity' check -e 'func @f(%a: f32[4]) -> f32[4] {
  %y = rleu(%a)
  return %y }'
grep -q '"line": 2, *$' out && grep -q '"column": 8, *$' out && grep -q '"message": "unknown operator' out && ok || bad "check --json: no place"
printf 'func @f(%%a: f32[B]) -> f32[B] { %%y = r\377elu(%%a) return %%y }' >"$(printf 'q\377.fusor')" # no UTF-8, which JSON would not have
json fusor-check/1 'files.0.file files.0.errors' check "$(printf 'q\377.fusor')"
grep -qF "\"q$(printf '\357\277\275').fusor\"" out && ok || bad 'U+FFFD in the name of a file'
cp two.fusor "$(printf 'b\377.fusor')"
json fusor-explain/1 'kernels.0.statements.0.at' explain "$(printf 'b\377.fusor')"
mkdir -m 700 "$(printf 'c\377')"
json fusor-cache-path/1 'directory exists' cache path --cache-dir "$(printf 'c\377')"
grep -qF "c$(printf '\357\277\275')\"" out && ok || bad 'U+FFFD in the name of a directory'
json fusor-cache-list/1 'directory entries' cache list --cache-dir "$(printf 'c\377')"
json fusor-cache-stats/1 'directory entries' cache stats --cache-dir "$(printf 'c\377')"
json fusor-cache-why/1 'directory hits' cache why "$(printf 'b\377.fusor')" --cache-dir "$(printf 'c\377')"
json fusor-info/1 'cache_dir environment.FUSOR_CACHE_DIR.value' info --cache-dir "$(printf 'c\377')"
json fusor-explain/1 'kernels.0.key kernels.0.kind kernels.0.ops.0 kernels.0.bytes_read kernels.0.flops kernels.0.estimated_ns boundaries fused.kernels fused.bytes fused.peak_bytes unfused.kernels memory' \
    explain -e "$mlp" --dim B=4
json fusor-info/1 'level features.0 threads environment.FUSOR_CACHE.value peak_gflops bandwidth_gbs build_options.compiler build_options.configure used_beside not_granted' info
expect 0 '^  cflags  ' info
json fusor-cache-list/1 'directory entries' cache list
json fusor-cache-stats/1 'entries bytes hits misses misses_by_reason.new misses_by_reason.gone saved_ns since' cache stats
json fusor-cache-path/1 'directory exists' cache path
json fusor-cache-why/1 'hits misses kernels' cache why two.fusor
json fusor-bench-list/1 'workloads.0.name' bench --list
json fusor-bench/1 'results.0.fused_ns results.0.unfused_ns' bench chains --quick --filter silu --min-time 0.001 --threads 1

# explain, emit: what is printed is read again
expect 0 'unfused' explain -e "$mlp"
expect 0 'digraph' explain -e "$mlp" --format dot
expect 0 'html' explain -e "$mlp" --format html
expect 0 'a call takes' explain -e "$mlp" --dim B=4 --measure --min-time 0.001
json fusor-explain/1 'kernels.0.measured_ns kernels.0.limit kernels.0.limit_share kernels.0.schedule.tiles kernels.0.statements.0.at fused.measured_ns unfused.measured_ns' \
    explain -e "$mlp" --dim B=4 --measure --min-time 0.001
expect 2 'inputs are for --measure' explain two.fusor @g a=1
expect 0 '[-]-min-time counts for nothing here; it is for --measure' explain two.fusor @g --min-time 1
expect 0 '[-]-fill counts for nothing here; it is for --measure' explain two.fusor @g --fill 1
"$fusor" explain two.fusor @g --fill 1 --min-time 1 -q >out 2>err && [ ! -s err ] && ok || bad 'explain -q has remarks'
expect 2 'N: 2 sizes; explain shows one' explain two.fusor @f --dim N=1,32
"$fusor" explain -e "$mlp" --dim B=4 --format html -o page.html 2>err && grep -q 'class="graph"' page.html && grep -q 'data-tab="asm"' page.html &&
    ! grep -qE '(src|href)="?https?:' page.html && ok || bad 'the page of explain lacks its parts, or is not self-contained'
echo 'func @c(%x: f32[1, 8, 14, 14], %w: f32[8, 8, 3, 3]) -> f32[1, 8, 12, 12] { %y = conv(%x, %w) return %y }' >conv.fusor
"$fusor" explain conv.fusor --format html -o page.html 2>err && grep -q 'rect class="s2"' page.html && ok || bad 'convolutions are not drawn like other products'
rm -f page.html conv.fusor
"$fusor" run two.fusor --fill ones --dim N=3 --trace trace.json >/dev/null 2>err && ./json_check - traceEvents.0.name traceEvents.3.ts otherData.dropped <trace.json >>err && ok || bad 'run --trace'
"$fusor" run two.fusor --fill ones --dim N=3 --trace trace.json --profile --runs 2 >out 2>err && ./json_check - traceEvents.3.ts <trace.json >>err && grep -q '"thread_name"' trace.json && ok || bad 'run --trace --profile'
rm -f trace.json
# Where the report has stdout, "-" makes no file of this name.
expect 2 'trace -: expected a file' run two.fusor --fill ones --dim N=3 --trace -
expect 2 'cache export -: expected a file' cache export -
expect 2 '[-]o -: expected a file' cache warm two.fusor -o -
expect 2 'export-json -: expected a file' bench --quick --export-json -
[ ! -e ./- ] && ok || bad 'a file called -'
# What is no file stays what it is, a link too, and a file keeps its mode.
mkfifo pipe && for words in 'emit two.fusor --stage ir -o' 'explain two.fusor -o' 'fmt two.fusor -o' 'run two.fusor --fill ones --dim N=3 --trace'; do
    { cat pipe >got & } 2>/dev/null
    # shellcheck disable=SC2086
    timeout 20 "$fusor" $words pipe >out 2>err && wait $! && [ -p pipe ] && [ -s got ] && ok || bad "into a pipe: $words"
done
expect 4 'not supported' cache export pipe
[ -p pipe ] && ok || bad 'cache export replaced a pipe'
cp two.fusor kept.fusor && echo >>kept.fusor && chmod 640 kept.fusor && ln -sf kept.fusor link.fusor && "$fusor" fmt --in-place link.fusor >out 2>err &&
    [ -L link.fusor ] && [ "$(stat -c %a kept.fusor)" = 640 ] && "$fusor" fmt --check kept.fusor >out 2>err && ok || bad 'fmt --in-place of a link'
rm -f pipe got kept.fusor link.fusor
for stage in ir opt; do
    "$fusor" emit -e "$mlp" --stage $stage >$stage.fusor 2>err && "$fusor" emit $stage.fusor --stage ir >again.fusor 2>>err && ok || bad "emit --stage $stage is not read"
done
expect 0 'plan @m' emit -e "$mlp" --stage plan
if [ -n "${FUSOR_CODEGEN-}" ]; then
    three='func @f(%a: f32[M, K], %b: f32[K, K]) -> f32[M] { %c = matmul(%a, %b) %d = softmax(%c, axis=0) %e = matmul(%d, %b) %y = reduce_max(%e, axes=[1]) return %y }'
    for level in v2 v3 v4; do
        expect 0 'globl' emit -e "$sgd" --stage asm --target $level
        ${CC:-cc} -c -x assembler out -o asm.o 2>err && ok || bad "asm of $level does not assemble"
        "$fusor" emit -e "$three" --stage asm --target $level -o asm.s 2>err && ${CC:-cc} -c asm.s -o asm.o 2>>err && ok || bad "asm of several kernels: $level"
        rm -f asm.s asm.o
    done
    expect 0 'target triple' emit -e "$sgd" --stage llvm
    # A number is that kernel alone, though keys begin with it too; other words are the beginning of a symbol or key.
    "$fusor" explain -e "$three" --json --target v3 >out 2>err
    n=$(grep -c '"key": ' out)
    for ((k = 0; k < n; k++)); do # n may be what a key begins with
        key=$(grep '"key": ' out | sed -n "$((k + 1))s/.*: \"\(.*\)\".*/\1/p")
        "$fusor" emit -e "$three" --stage asm --target v3 --kernel $k >by_number 2>err
        "$fusor" emit -e "$three" --stage asm --target v3 --kernel "$key" >by_key 2>err; same by_number by_key "--kernel $k is not $key"
    done
    rm -f by_number by_key
    many= results=
    for op in abs neg exp log sin cos tan tanh sqrt relu gelu sigmoid floor ceil silu erf; do many+=" %a$op = $op(%x) %b$op = $op(%d)" results+=", %a$op, %b$op"; done
    many="func @f(%x: f32[64], %d: f64[64]) -> ($(printf 'f32[64], f64[64]%.0s, ' {1..15})f32[64], f64[64]) { $many return ${results#, } }"
    "$fusor" emit -e "$many" --stage asm --no-fuse --kernel 1 >out 2>err
    [ "$(grep -c '\.globl' out)" = 1 ] && ok || bad '--kernel 1 of 32'
    expect 2 'no kernel of @f has this symbol, key or number' emit -e "$many" --stage asm --no-fuse --kernel 99999999999999999999
    expect 0 '' emit -e "$sgd" --stage obj -o k.o
    expect 0 '' emit -e "$mlp" --stage obj -o k.o
    expect 2 'no text' emit -e "$mlp" --stage obj
    for stage in ir opt plan header; do
        expect 2 "--stage $stage is of all kernels; --kernel is for llvm" emit -e "$many" --stage $stage --kernel 1
    done
    expect 0 '' emit -e "$mlp" --stage obj --kernel 0 -o k.o
    rm -f k.o

    # cache
    expect 0 'fk_map_f32' cache list
    key=$(sed -n 2p out | cut -c1-12)
    expect 0 'fusor-kernel' cache show "$key"
    completes "$(cut -c1-12 <<<"$key")" cache show "$(cut -c1-4 <<<"$key")"
    expect 0 '^checksum   [0-9a-f]\{32\}, good' cache show "$key"
    json fusor-cache-show/1 'key checksum features description' cache show "$key"
    grep -q '"checksum": "[0-9a-f]\{32\}"' out && ok || bad 'show --json: the checksum'
    expect 0 'ret' cache disasm "$key"
    # a branch goes to an instruction of the listing
    awk '{ sub(/:/, "", $1); at[$1] = 1 } $2 ~ /^j/ { sub(/^0x/, "", $3); to[$3] = 1 }
        END { for (t in to) if (!(t in at)) exit 1 }' out && ok || bad 'disasm: a branch to no instruction'
    json fusor-cache-disasm/1 'symbol code_bytes spills reloads has_lines instructions.0.offset instructions.0.text' cache disasm "$key"
    expect 0 ' 0 bad' cache verify
    file=$(ls "$FUSOR_CACHE_DIR"/*.fk | head -1)
    printf x | dd of="$file" bs=1 seek=700 conv=notrunc 2>/dev/null
    expect 1 'checksum' cache show "$(basename "$file" .fk | cut -c1-32)"
    expect 1 'is bad: checksum does not match' cache disasm "$(basename "$file" .fk | cut -c1-32)"
    expect 1 '1 bad (left where they are' cache verify --cache ro
    mkdir "$file.bad" # for root, too, nothing can be renamed to that
    expect 1 'checksum.*; not quarantined: .*s a directory' cache verify
    grep -q '1 bad (not quarantined)' out && ok || bad 'verify: what could not be set aside'
    json fusor-cache-verify/1 'bad.0.file bad.0.not_quarantined' cache verify
    rmdir "$file.bad"
    expect 1 '1 bad (quarantined)' cache verify
    expect 0 'set aside     1 bad' cache stats
    json fusor-cache-stats/1 'quarantined quarantined_bytes' cache stats
    expect 0 'deleted 1 entr' cache prune --max-size 1G
    expect 0 'entries' cache stats
    grep -q 'set aside' out && bad 'prune leaves what was set aside' || ok
    expect 0 'would delete' cache prune --max-size 1K --dry-run
    expect 0 'would be compiled' cache why two.fusor --dim N=7
    # the field that differs, where the other text has no line of it
    exp='func @f(%x: f32[N]) -> f32[N] { %y = exp(%x) return %y }'
    expect 0 '' run -q -e "$exp" --fill 1 --dim N=9
    expect 0 "math is 'math fast'; the nearest entry, [0-9a-f]*, has 'no such math'" cache why -e "$exp" --math fast
    expect 0 'ready' cache warm two.fusor --target v2,v3 --dim N=1,32
    expect 0 'would be compiled' cache why --dim B=4 \
        -e 'func @f(%x: f32[B, N]) -> f32[B, ?] { %y = slice(%x, starts=[10], ends=[99], axes=[1]) return %y }'
    expect 0 ' hit ' cache why two.fusor --target v3
    FUSOR_TARGET=sm_80 expect 0 '1 kernel ready' cache warm two.fusor @g --cache-dir "$work/gpu"
    FUSOR_TARGET=sm_80 expect 0 'hit .*__sm_80' cache why two.fusor @g --cache-dir "$work/gpu"
    for mode in 'refresh: entries are not looked for' 'off: no directory and no bundle is in use'; do
        FUSOR_CACHE=${mode%%:*} expect 0 "$mode" cache why two.fusor @g
        grep -q '^1 kernel, 1 would be compiled' out && ok || bad "cache why, $mode"
    done
    # A bundle of a lower level serves: the level is said, and what is seen is what runs.
    expect 0 '1 entries' cache warm two.fusor @g --target v2 -o low.fbundle --cache-dir "$work/low"
    FUSOR_CACHE_PATH=low.fbundle expect 0 '@g *hit .*in low.fbundle' cache why two.fusor @g --cache-dir "$work/none"
    FUSOR_CACHE_PATH=low.fbundle expect 0 'target x86-64-v2, device cpu' run two.fusor @g a=ones -v --cache-dir "$work/none"
    grep -q ' 1 from disk .* 0 compiled' err && ok || bad 'a bundle of a lower level'
    rm -f low.fbundle
    # What --dim warms is what a run of these sizes asks for, and a program that has them as integers.
    rows='%w: f32[64, 32]) -> f32[B, 32] { %h = matmul(%x, %w) %y = relu(%h) return %y }'
    expect 0 ' 3 compiled now' cache warm -e "func @f(%x: f32[B, 64], $rows" --dim B=1,32 --cache-dir "$work/dims" -o dims.fbundle
    expect 0 '3 kernels, 0 would be compiled' cache why -e "func @f(%x: f32[B, 64], $rows" --dim B=1,32 --cache-dir "$work/dims"
    for b in 1 32; do
        json fusor-run/1 'cache' run -e "func @f(%x: f32[B, 64], $rows" --fill ones --dim B=$b --time --runs 1 --cache-dir "$work/dims"
        grep -q '"cache": "hit"' out && ok || bad "cache warm --dim B=1,32, then run --dim B=$b"
        json fusor-run/1 'cache' run -e "func @f(%x: f32[$b, 64], ${rows/\[B/[$b}" --fill ones --time --runs 1 --cache-dir "$work/dims"
        grep -q '"cache": "hit"' out && ok || bad "cache warm --dim B=1,32, then run with $b rows in the text"
    done
    expect 0 '^3 entries' cache import dims.fbundle --cache-dir "$work/bundled"
    rm -f dims.fbundle
    expect 0 ' 0 would be compiled' cache why two.fusor --target v2,v3 --dim N=32
    expect 0 'ready' cache warm -e 'func @one(%a: f32[N]) -> f32[N] { %y = tanh(%a) return %y }' --target v2 -o one.fbundle
    expect 0 '1 entries' cache import one.fbundle
    rm -f one.fbundle
    expect 2 'no function has a size' cache why two.fusor --dim Q=2
    expect 0 '1 kernel,' cache why two.fusor @g
    expect 0 '1 kernel ready' cache warm two.fusor @g
    expect 2 "no function '@nowhere'" cache why two.fusor @g @nowhere
    expect 2 'expected FILE before @g' cache why @g
    expect 2 "argument 'two.fusor' was not expected" cache why -e 'func @one(%a: f32[N]) -> f32[N] { %y = tanh(%a) return %y }' @one two.fusor
    expect 2 'expected NAME=SIZE' cache warm two.fusor --dim 3
    json fusor-cache-warm/1 'directory kernels compiled' cache warm two.fusor --target v2
    json fusor-cache-why/1 'kernels.0.symbol kernels.0.key kernels.0.hit kernels.0.target kernels.0.where' cache why two.fusor --target v2
    json fusor-cache-list/1 'entries.0.key entries.0.function entries.0.symbol entries.0.kind entries.0.shape entries.0.bytes entries.0.hits entries.0.used' cache list --sort hits
    expect 0 'x86-64-v2' cache list --filter target=v2 --sort age
    expect 0 'used  function' cache list --sort function --filter function=fk_
    expect 2 'expected kind=, target=, function=, key=, build=this' cache list --filter unknownfield=map
    expect 2 "did you mean 'kind'" cache verify --filter kin=map
    expect 0 'fk_map' cache list --filter '= load'
    expect 2 "did you mean 'size'" cache list --sort siez
    expect 0 'counted       since' cache stats
    expect 0 'counted       nothing yet' cache stats -z
    (umask 022 && exec "$fusor" cache export app.fbundle) >out 2>err && [ "$(stat -c %a app.fbundle)" = 644 ] && ok || bad 'a bundle follows the umask'
    chmod 640 app.fbundle
    expect 0 'written' cache export app.fbundle
    [ "$(stat -c %a app.fbundle)" = 640 ] && ok || bad 'cache export keeps the mode of a bundle'
    (umask 0 && exec "$fusor" cache export all.fbundle) >out 2>err && expect 0 'read from' cache import all.fbundle
    rm -f all.fbundle
    expect 0 'written to out.fbundle' cache export -o out.fbundle
    expect 2 'one bundle file' cache export app.fbundle -o out.fbundle
    rm -f out.fbundle
    # --filter: what is deleted or written is that alone.
    expect 0 '' cache warm two.fusor --target v2,v3 -q
    for level in v2 v3; do expect 0 "$level" cache list --filter target=$level; eval "n_$level=$(($(wc -l <out) - 1))"; done
    n_all=$(ls "$FUSOR_CACHE_DIR"/*.fk | wc -l)
    expect 0 "would delete $n_v2 entr" cache clear --filter target=v2 --dry-run
    expect 0 'deleted 0 entries' cache prune --filter target=v2 --max-size 1G
    expect 0 'deleted 0 entries' cache prune --filter target=v2 --max-age 1d
    expect 0 "^$n_v3 entries written" cache export v3.fbundle --filter target=v3
    expect 0 "deleted $n_v2 entr" cache prune --filter target=v2 --max-size 1
    [ "$(ls "$FUSOR_CACHE_DIR"/*.fk | wc -l)" = $((n_all - n_v2)) ] && ok || bad 'prune --filter deleted something else'
    expect 0 "deleted $n_v3 entr" cache clear --filter target=v3
    [ "$(ls "$FUSOR_CACHE_DIR"/*.fk | wc -l)" = $((n_all - n_v2 - n_v3)) ] && ok || bad 'clear --filter deleted something else'
    expect 0 "^$n_v3 entries read" cache import v3.fbundle
    rm -f v3.fbundle
    expect 2 "did you mean 'kind'" cache clear --filter kin=map
    expect 2 'cache clear deletes all that' cache prune --filter kind=map
    expect 0 'deleted' cache clear
    expect 0 'read from' cache import app.fbundle
    # in the last entry, before the zeros (63 at most) that fill the bundle up
    printf x | dd of=app.fbundle bs=1 seek=$(($(wc -c <app.fbundle) - 100)) conv=notrunc 2>/dev/null
    expect 3 'damaged' cache import app.fbundle
    head -c 100 app.fbundle >cut.fbundle
    expect 3 'truncated' cache import cut.fbundle
    printf '#!/bin/sh\necho hello, this is no bundle at all, but it is long enough\n' >text.fbundle
    expect 3 'not a bundle' cache import text.fbundle
    expect 4 'No such file' cache import nowhere.fbundle
    rm -f cut.fbundle text.fbundle
    # The line that a compile leaves compiles the same kernel again.
    FUSOR_VERBOSE=compile "$fusor" run -e "func @f(%a: f32[N]) -> f32[N] { %y = atan(%a, name=\"it's\") return %y }" --fill ones --dim N=4 --cache refresh --wait >out 2>err
    line=$(grep -o 'fusor cache warm .*' err | sed "s|^fusor |$fusor |")
    symbol=$(grep -o 'compile,fk_[a-z0-9_]*' err)
    FUSOR_VERBOSE=compile sh -c "$line" >out 2>err && [ -n "$symbol" ] && grep -q "$symbol" err && ok || bad "replay: $line"
    json fusor-run/1 'cache' run two.fusor @g a=ones --time --runs 1 --cache off
    grep -q '"cache": "off"' out && ok || bad 'cache off'
    json fusor-run/1 'cache' run two.fusor @g a=ones --time --runs 1 --device reference
    grep -q '"cache": "off"' out && ok || bad 'the reference evaluator asks for no kernel'
    # A rate above the kept peak shows that this is too low, but bytes and halves have peaks of their own.
    for type in i8 f32; do
        "$fusor" run two.fusor @g a=ones --time --runs 1 --threads 1 >out 2>err # makes the file
        sed -i 's/"f32": [0-9.e]*/"f32": 1.0/' "$FUSOR_CACHE_DIR/limits-1"
        "$fusor" run -e "func @f(%x: $type[64, 64], const %w: $type[64, 64]) -> $type[64, 64] { %y = matmul(%x, %w) return %y }" --fill uniform:1 --time --threads 1 >out 2>err
        grep -q '"f32": 1.0,' "$FUSOR_CACHE_DIR/limits-1"; kept=$?
        case $type$kept in i80 | f321) ok ;; *) bad "the kept peak of f32 beside a run of $type" ;; esac
    done
    # However little memory there is, nothing ends the process: LLVM would where it gets none.
    if ldd "$fusor" | grep -q 'lib[a-z]*san'; then skip 'limits of memory: sanitizers'
    else
        died=
        for mb in $(seq 12 100); do
            (ulimit -v $((mb * 1024)) && exec "$fusor" run two.fusor @g a=ones --cache off) >out 2>err
            case $? in 0 | 3 | 4) ;; *) died="$died $mb" ;; esac
        done
        [ -z "$died" ] && ok || bad "it dies in this many MB:$died"
        # What planning takes goes with the text: as many constants as there may be, and many kernels.
        awk 'BEGIN { printf "func @f("; for (i = 0; i < 65535; i++) printf "%sconst %%p%d: f32", i ? ", " : "", i
                     print ") -> (f32, f32) { %a = neg(%p0) %b = abs(%p0) return %a, %b }" }' >many.fusor
        awk 'BEGIN { printf "func @f(%%x: f32[1, 4, 8, 8]"; for (i = 0; i < 300; i++) printf ", %%w%d: f32[4, 4, 3, 3]", i
                     printf ") -> ("; for (i = 0; i < 300; i++) printf "%sf32[1, 4, 3, 3]", i ? ", " : ""
                     print ") {"; for (i = 0; i < 300; i++) printf "%%c%d = conv(%%x, %%w%d) %%p%d = max_pool(%%c%d, kernel=[2, 2], strides=[2, 2])\n", i, i, i, i
                     printf "return "; for (i = 0; i < 300; i++) printf "%s%%p%d", i ? ", " : "", i; print " }" }' >convs.fusor
        (ulimit -v 1500000 && exec "$fusor" explain many.fusor) >out 2>err && grep -q '^kernel 0' out && ok || bad "65,535 constants: $(tail -c 200 err)"
        (ulimit -v 300000 && exec "$fusor" explain convs.fusor) >out 2>err && grep -q '^kernel 299' out && ok || bad "300 convolutions: $(tail -c 200 err)"
    fi
fi
expect 2 "'cache clear' changes the directory; expected rw" cache clear --cache ro
for action in 'prune --max-size 1G' clear 'stats -z' 'import nosuch' 'warm two.fusor'; do
    export FUSOR_CACHE=ro; expect 2 "FUSOR_CACHE=ro: 'cache ${action%% *}' changes the directory; expected rw" cache $action; unset FUSOR_CACHE
done
expect 2 "'cache clear' takes no --max-age, which is for cache prune" cache clear --max-age 30d
expect 2 'takes no --max-size' cache clear --max-size 1G
expect 2 'takes no -o, which is for cache warm, export' cache list -o here
expect 2 'takes no --zero, which is for cache stats' cache list -z
expect 2 'takes no --max-age' cache list --max-age 3d
expect 2 'takes no --sort' cache stats --sort size
expect 2 'takes no --filter' cache import nosuch --filter kind=row
expect 2 'takes no --filter' cache why two.fusor --filter kind=row
expect 2 'takes no --target, which is for cache why, warm' cache list --target v3
expect 2 'takes no --no-fuse' cache path --no-fuse
expect 2 'takes no --math' cache stats --math fast
expect 2 "'cache warm' changes the directory; expected rw" cache warm two.fusor --cache ro
expect 2 "'bench' takes no --no-fuse" bench chains --no-fuse
expect 2 'takes no --dry-run' cache import nosuch --dry-run
expect 2 'takes no -e' cache verify -e "$sgd"
expect 2 'takes no --dim' cache path --dim N=3
expect 2 '[-]o is given 2 times' cache warm two.fusor -o one -o two
expect 2 "'cache import' changes the directory; expected rw" cache import nosuch --cache off
# A limit on the size of files is a disk that is full: no new kernels on it, no results, no signal.
(ulimit -f 0; exec "$fusor" run -e 'func @f(%x: f32[N]) -> f32[N] { %a = cosh(%x) %y = sub(%a, 0.25) return %y }' \
    --fill 1 --dim N=3 --cache-dir "$PWD/limited") 2>&1 </dev/null | cat >out
grep -q 'File too large; new kernels stay in memory' out && grep -q '^%y: f32\[3\]' out && ok || bad "a limit on files: $(cat out)"
(ulimit -f 0; "$fusor" eval 'a+1' --fill 1 --dim 3 -o result=limited.npy; echo "status $?") 2>&1 </dev/null | cat >out
grep -q 'limited.npy: cannot write: File too large' out && grep -q 'status 4' out && ok || bad "-o past a limit on files: $(cat out)"
# What a link names is written, whether it is there already or not; a pipe is read once for all points of a sweep.
mkdir linked && ln -s linked/r.npy link.npy
expect 0 '' eval 'a+1' --fill 1 --dim 3 -o result=link.npy
[ -L link.npy ] && [ -f linked/r.npy ] && ok || bad 'a link to what is not there yet'
"$fusor" eval "a+1" "a:f32[N]=-" --threads 1,2 --runs 2 --time <linked/r.npy >out 2>err && [ "$(wc -l <out)" = 3 ] && ok || bad "a sweep over stdin: $(cat err)"
# Each point begins with what the file has, also where a result is written over it.
expect 0 '' eval 'a*0' a:i32[N]=arange --dim N=3 -o result=i.npy
expect 0 ' 2 ' run -e 'func @f(%i: i32[3], %x: f32[5]) -> (%y: f32[3], %j: i32[3] alias %i) {
  %y = take(%x, %i) %j = add(%i, 4) return %y, %j }' i=i.npy x=arange --threads 1,2,1 --runs 1 --warmup 0 --time
# What is reported is the first call's, beside a result that each repeat goes on with too; a repeat that fails says so.
stepped='func @f(%a: f32[N]) -> (%y: f32[N] alias %a, %s: f32) { %y = add(%a, 1) %s = reduce_sum(%a) return %y, %s }'
for how in --time --profile; do
    expect 0 '^%s: f32  min 0  max 0 ' run -e "$stepped" a=zeros --dim N=5 --runs 20 $how
done
walked='func @f(%a: f32[N], %p: i64) -> (%y: f32, %q: i64 alias %p) { %y = take(%a, %p, axis=0) %q = add(%p, 1) return %y, %q }'
expect 0 '' run -e "$walked" a=arange p=0 --dim N=5
expect 3 'a repeated call failed, not the first: .* wrote over %p' run -e "$walked" a=arange p=0 --dim N=5 --runs 20 --time
expect 3 'a repeated call failed, not the first: .* wrote over %p' explain -e "$walked" a=arange p=0 --dim N=5 --measure
# Nothing takes no time, however many rows of it there are.
for name in softmax cumsum; do
    expect 0 '^\[\]$' run -e "func @f(%a: f32[A, B]) -> f32[A, B] { %y = $name(%a, axis=1) return %y }" a=zeros --dim A=1e18 --dim B=0 --check
done
expect 2 "unknown option '-x'" -x
expect 2 "unknown option '-o'" -o y.npy run two.fusor
# A file appears whole or not at all, and what was being written of it goes with the process.
for signal in TERM INT HUP; do
    env --default-signal "$fusor" eval 'a+1' --fill 1 --dim 2e7 -o result=cut.npy >out 2>err </dev/null &
    pid=$!
    until ls cut.npy* >/dev/null 2>&1 || ! kill -0 $pid 2>/dev/null; do :; done
    kill -$signal $pid 2>/dev/null
    wait $pid 2>/dev/null
    rm -f cut.npy
    ls cut.npy* >/dev/null 2>&1 && bad "SIG$signal leaves $(ls cut.npy*)" || ok
    rm -f cut.npy*
done
expect 2 'cache why: expected FILE' cache why
expect 2 'no entry' cache show ffffffffffffffffffff
expect 2 'unknown action' cache lsit
expect 0 "$FUSOR_CACHE_DIR" cache path

finish
