#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# messages.sh: what a message says and where it points: sizes that cannot be, in the user's own lines, the same with every subcommand;
# limits; settings that count for nothing; text of the user's that a terminal would obey.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
fusor=$(realpath "${FUSOR:-./fusor}")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export FUSOR_CACHE_DIR=$work/cache
mkdir -m 700 "$FUSOR_CACHE_DIR"
cd "$work" || exit 1
one='func @f(%x: f32[N]) -> f32[N] { %y = relu(%x) return %y }'
printf '%s\n' "$one" >one.fusor

# Sizes that cannot be: the same message, at a place of the user's text, whichever subcommand meets them.
cat >call.fusor <<'P'
# sizes of two names that must be equal
func @g(%x: f32[N], %z: f32[M]) -> f32[?] {
  %y = add(%x, %z)
  return %y
}
func @f(%x: f32[N], %z: f32[M]) -> f32[?] {
  %q = relu(%x)
  %r = @g(%q, %z)
  return %r
}
P
# refused PLACE-AND-TEXT ARGUMENT...: by all of them, with exit status 3
refused() {
    local words=$1 sub
    shift
    expect 3 "$words" run "$@" --fill ones
    for sub in 'cache warm' 'cache why' explain 'emit --stage plan'; do
        # shellcheck disable=SC2086
        expect 3 "$words" $sub "$@"
        ! grep -q '__' err && ok || bad "$sub shows a name that the user did not write"
    done
}
refused '^call.fusor:3:8: error: add: .*: N = 64 but M = 3$' call.fusor @f --dim N=64 --dim M=3
# A statement is called several times: the call whose sizes cannot be is named, and so is a call's own argument.
cat >layers.fusor <<'P'
func @lin(%x: f32[B, K], %w: f32[K, N], %b: f32[M]) -> f32[B, N] {
  %h = matmul(%x, %w)
  %y = add(%h, %b)
  return %y
}
func @net(%x: f32[B, 8], %w1: f32[8, H], %b1: f32[H1], %w2: f32[G, O], %b2: f32[O1]) -> (%y: f32[B, O]) {
  %h = @lin(%x, %w1, %b1, name="fc1", loc="net.py:10")
  %y = @lin(%h, %w2, %b2, name="fc2", loc="net.py:11")
  return %y
}
P
refused '^layers.fusor:3:8: error: add: .*: O = 3 but O1 = 4 (in "fc2", from net.py:11)$' layers.fusor @net --dim B=2 --dim H=5 --dim H1=5 --dim G=5 --dim O=3 --dim O1=4
sed 's/%y = add(%h, %b)/%y = add(%h, %b, name="bias")/' layers.fusor >named.fusor
refused '^named.fusor:3:8: error: add: .*: O = 3 but O1 = 4 (in "bias", from net.py:11)$' named.fusor @net --dim B=2 --dim H=5 --dim H1=5 --dim G=5 --dim O=3 --dim O1=4
refused '^layers.fusor:8:8: error: call of @lin: dim 0 of argument %w: G = 6 but H = 5 (in "fc2", from net.py:11)$' layers.fusor @net --dim B=2 --dim H=5 --dim H1=5 --dim G=6 --dim O=3 --dim O1=3
refused '^one.fusor:1:9: error: parameter %x: the bytes of f32\[9000000000000000000\] overflow 64 bits$' one.fusor --dim N=9e18
refused ':1:21: error: parameter %y: dim 0 of f32\[N-100\] is negative' -e 'func @f(%x: f32[N], %y: f32[N-100]) -> f32[N] { %z = neg(%x) return %z }' --dim N=64
refused ':1:41: error: reshape: the elements .*: N = 64 but 7\*(N/7) = 63' -e 'func @f(%x: f32[N]) -> f32[7, ?] { %z = reshape(%x, shape=[7, -1]) return %z }' --dim N=64
# Shapes that files have: at the parameter, with its line.
"$fusor" run -e 'func @f() -> f32[3] { %y = full(1, shape=[3], dtype=f32) return %y }' -o a.npy 2>err && ok || bad 'a.npy'
"$fusor" run -e 'func @f() -> f32[1] { %y = full(1, shape=[1], dtype=f32) return %y }' -o b.npy 2>err && ok || bad 'b.npy'
expect 3 '^<text>:1:21: error: parameter %w: dim 0 is 1, expected: 3$' run -e 'func @f(%a: f32[3], %w: f32[3] = "b.npy") -> f32[3] { return %a }' a=a.npy
grep -q '^                    ^$' err && ok || bad 'no caret under %w'
expect 3 '^<text>:1:9: error: parameter %a: dim 0 is 1, expected: 3$' run -e 'func @f(%a: f32[3]) -> f32[3] { return %a }' a=b.npy
expect 3 '^<text>:1:21: error: dim N is 3 in parameter %a but 1 in parameter %b (dim 0)$' run -e 'func @f(%a: f32[N], %b: f32[N]) -> f32[N] { return %a }' a=a.npy b=b.npy
expect 3 '^<text>:1:21: error: parameter %b: dim 0 of f32\[N-4\] is negative with these sizes$' run -e 'func @f(%a: f32[N], %b: f32[N-4]) -> f32[N] { return %a }' a=a.npy b=b.npy
expect 3 '^<text>:1:9: error: parameter %a: b.npy is f32\[1\]; expected f32\[N, 2\]$' run -e 'func @f(%a: f32[N, 2]) -> f32[N, 2] { return %a }' a=b.npy
expect 3 '^<text>:1:9: error: parameter %a: b.npy.*f32' run -e 'func @f(%a: f64[1]) -> f64[1] { return %a }' a=b.npy
expect 3 'of @f would have more than 2^52 steps' explain one.fusor --dim N=1.2e18
expect 3 'overflow 64 bits' explain -e 'func @f(%x: f32[N, M]) -> f32[N, M] { %y = exp(%x) return %y }' --dim N=1.2e17 --dim M=1024
expect 0 'N=1000000000000000,' explain one.fusor --dim N=1e15
expect 0 '' emit one.fusor --stage plan --dim N=3
expect 2 "has no size 'M'" emit one.fusor --stage plan --dim M=3
expect 3 ':3:8: error: .*: N = 2 but M = 3' cache why call.fusor @g --dim N=3,2 --dim M=3
if [ -n "${FUSOR_CODEGEN-}" ]; then
    expect 0 '3 kernels ready' cache warm -e 'func @sized__(%x: f32[N]) -> f32[N] { %y = exp(%x) return %y }' --dim N=1,64
else skip 'no code generation module'; fi

# Limits are those that there are.
many() { local i; printf 'func @f(%%x: f32[1]) -> f32[?] { %%y = concat(%%x'; for ((i = 1; i < $1; i++)); do printf ', %%x'; done; printf ', axis=0) return %%y }\n'; }
many 40000 >many.fusor
expect 3 'concat: takes 32767 operands at most, got 40000' check many.fusor
product() { # of so many vectors, element by element
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) { s = s (i ? "," : "") "a"; x = x ", %x" } print "func @f(%x: f32[2]) -> f32[2] { %y = einsum(\"" s "->a\"" x ") return %y }" }'
}
product 300 >product.fusor
expect 0 '^\[1. 1.\]$' run product.fusor x=1
product 600 >product.fusor
expect 3 'einsum: the string has 1202 characters; expected at most 1024' check product.fusor

# What is meant, and what counts for nothing.
expect 2 "did you mean '--time'" run one.fusor --tim
expect 2 "did you mean '--dim'" run one.fusor --dmi
expect 3 "did you mean the type 'f32'?" check -e 'func @f(%a: f32[4]) -> f32[4] { %y = cast(%a, f23) return %y }'
expect 0 '[-]-runs counts for nothing here; it is for --time, --profile or a sweep' run one.fusor --fill 1 --dim N=3 --runs 3
expect 2 '[-]-profile: not with a sweep' run one.fusor --fill 1 --dim N=3,4 --profile
printf '{' >bad.json
expect 3 '^fusor bench: error: --import-json: bad.json:1:1: ' bench --import-json bad.json
printf '{}' >bad.json
expect 3 '^fusor bench: error: --import-json: bad.json: its schema' bench --import-json bad.json

# -v says what was asked of the machine and of the cache.
expect 0 '^fusor run: target x86-64-.*, device cpu, 1 thread$' run one.fusor --fill 1 --dim N=3 --threads 1 -v
if [ -n "${FUSOR_CODEGEN-}" ]; then
    expect 0 "^fusor run: cache refresh, $FUSOR_CACHE_DIR; kernels: 0 from disk in 0 ms, 0 from memory, 1 compiled in [1-9].* ms$" run one.fusor --fill 1 --dim N=3 --cache refresh -v
    expect 0 "^fusor run: cache rw, $FUSOR_CACHE_DIR; kernels: 1 from disk in .* ms, 0 from memory, 0 compiled in 0 ms$" run one.fusor --fill 1 --dim N=3 -v
fi
expect 0 '' run one.fusor --fill 1 --dim N=3
[ ! -s err ] && ok || bad 'it says more without -v'

# What a terminal would obey does not reach it: names and places of the program, names of files.
cat >esc.fusor <<'P'
func @f(%x: f32[N]) -> f32[N] { %y = relu(%x, name="layer\u001b[31m\u009b31m\u202e", loc="m.py:1\u001b]0;t\u0007\n") return %y }
P
printf 'func @f(%%x: f32[N]) -> f32[N] { return %%z }\n' >"$(printf 'a\033[31m\nb.fusor')"
printed() { if LC_ALL=C grep -q -e "$(printf '\033')" -e "$(printf '\302\233')" -e "$(printf '\342\200\256')" -e "$(printf '\a')" out err; then bad "a control character: fusor $*"; else ok; fi; }
expect 0 '"layer?\[31m?31m?" (m.py:1?\]0;t??)' explain esc.fusor
printed explain
expect 0 'layer?\[31m?31m?' run esc.fusor --fill ones --dim N=3 --profile --runs 2
printed run --profile
expect 3 '^a?\[31m?b.fusor:1:40: error: ' run "$(printf 'a\033[31m\nb.fusor')"
printed 'run FILE'
expect 4 'no?where: No such file' run "$(printf 'no\033where')"
printed 'run FILE that is not there'

# Events that cannot go where they should say so, once; nothing is said where there are none.
FUSOR_VERBOSE=cache,run FUSOR_LOG_FILE=$work/no/where expect 0 "^fusor: FUSOR_LOG_FILE=$work/no/where: No such file or directory; events go here$" run one.fusor --fill 1 --dim N=3
[ "$(grep -c FUSOR_LOG_FILE err)" -eq 1 ] && ok || bad 'told once'
FUSOR_LOG_FILE=$work/no/where expect 0 '' run one.fusor --fill 1 --dim N=3
[ ! -s err ] && ok || bad 'there were no events'

finish
