#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# eval_fmt.sh: fusor eval (infix expressions: values, types of inputs, errors, --emit) and fusor fmt (layout, comments, idempotence).
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
src=${FUSOR_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
src=$(realpath "$src")
fusor=$(realpath "${FUSOR:-./fusor}")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export FUSOR_CACHE_DIR=$work/cache
mkdir -m 700 "$FUSOR_CACHE_DIR"
cd "$work" || exit 1

fixed=-F # words are no patterns
# value WANT EXPRESSION ARGUMENT...: the printed elements of the one result.
value() {
    local want=$1
    shift
    "$fusor" eval --device reference "$@" >out 2>err </dev/null
    local got
    got=$(sed 1d out | tr -s ' \n' ' ' | sed 's/ $//')
    if [ "$got" = "$want" ]; then ok; else bad "'$got', expected '$want': fusor eval $*"; fi
}

# values: precedence and associativity, numbers, names, functions
value '[1. 3. 5.]' '1 + 2*a' a:f32[3]=arange
value '[9. 7. 5.]' '10 - 1 - 2*a' a:f32[3]=arange
value '[0. 1. 4.]' 'a**2' a:f32[3]=arange
value '[-0. -1. -4.]' -- '-a**2' a:f32[3]=arange
value '[ 1. 2. 16.]' '2**a**2' a:f32[3]=arange
value '1024.3333333333333' '1/3 + 2**10'
value '42' '6*7'
value 'True' 'true'
value '[False False True]' 'a > 0 && !(a == 1)' a:f32[3]=arange
value '[False False True]' 'a > 0 and not (a == 1)' a:f32[3]=arange
value '[ 0. -1. 2.]' 'a == 1 ? -a : a' a:f32[3]=arange
value '[0 5 2]' 'a ^ 4 & (a << 2)' a:i32[3]=arange
value '[[0. 2.] [1. 3.]]' 'a.T' a:f32[2,2]=arange
value '[[ 5. 14.] [14. 50.]]' 'a @ a.T' a:f32[2,3]=arange
value '3.0' 'max(a) + sum(a, axes=[0]) - 2' 'a:f32[3]=arange'
value '[1. 1. 2.]' 'max(a, 1)' a:f32[3]=arange
value '[0 1 2]' 'cast(a, i32)' a:f32[3]=arange
value '[2. 3. 4.]' 's = a + 1; t = s + 1; t' a:f32[3]=arange
value '[3. 4. 5.]' 'a + N' 'a:f32[3]=arange' N=3
value '[1.5 2.5 3.5]' 'reshape(a, shape=[3]) + .5e0 + 1' 'a:f32[1,3]=arange'

# the types of the inputs
expect 0 '%result: f32[4]' eval 'a + b' --fill 1 --dim 4
"$fusor" eval 'a' a:f64[2,3]=arange -q -o x.npy
expect 0 '%result: f64[2, 3]' eval 'x * k' x=x.npy k=2
expect 0 '%result: f64[3]' eval 'reduce_sum(x, axes=[0]) * k' x=x.npy k=2
expect 0 '%y: f32' eval 'y = a + 1, z = y * 2' --fill 1 --dim 3
expect 0 '%z: f32' eval 'y = a + 1, z = y * 2' --fill 1 --dim 3
expect 0 '' eval 'y = a + 1, z = y * 2' --fill 1 --dim 3 -o z=z.npy -o y=y.npy
expect 0 ': ok' eval 'tanh(a)*sigmoid(b)+c' --fill normal:1 --dim 1000 --check
expect 0 '1.8446744073709552e+19' eval '18446744073709551615 + 1'
expect 0 '-1.8446744073709552e+19' eval -- '-18446744073709551615'
expect 0 '-9223372036854775808' eval -- '-9223372036854775808'
expect 0 'unfused' eval 'tanh(a)*sigmoid(b)+c' --fill uniform:1 --dim 1000 --time --min-time 0.01
expect 0 'fusor-run/1' eval 'a*2' --fill 1 --dim 4 --json
expect 0 '%result = mul(%a, 2.0)' eval 'a*2' --fill 1 --emit
"$fusor" eval 's = a - mean(a); v = mean(s*s), s / sqrt(v + 1e-5)' --emit --fill 1 >e.fusor
expect 0 '@eval(%a: f32[N]) -> (%v: f32, %result1: f32[N])' check e.fusor

# errors, located in the expression
expect 3 '<expression>:1:4: error: expected a value, found' eval 'a +* b'
expect 3 "<expression>:1:3: error: expected a value, found 'é'" eval 'a+é'
expect 3 "did you mean 'relu'" eval 'relo(a)'
expect 3 "<expression>:1:3: error: expected ')'" eval '(a'
expect 3 '<expression>:1:3: error: add: lhs %a is f32[3] but rhs %b is f32[4]' eval 'a + b' a:f32[3]=ones b:f32[4]=ones
expect 3 'axis 5 is out of range' eval 'sum(a, axes=[5])' --fill 1 --dim 3
expect 3 'not used' eval 'a; b' --fill 1
expect 0 'True' eval '3 > 2'
expect 0 '1.4142135623730951' eval 'sqrt(2)'
expect 0 'i64  min 3' eval 'abs(-3)'
expect 0 'f64  min 5' eval 'hypot(3, 4)'
expect 0 'f32  min 8' eval 'pow(2.0, 3.0, dtype=f32)'
expect 0 '2.5' eval 'clamp(5, 0, 2.5)'
expect 0 'i64  min 2' eval 'where(false, 1, 2)'
expect 3 "expected an operator, ',' or the end" eval 'a b'
expect 3 "two results are called 'y'" eval 'y = a, y = a' --fill 1
expect 3 'a word of the language' eval 'func + 1'
expect 2 'no expression' eval
expect 2 "has no value 'c'" eval 'a + b' c=3
expect 2 'is given twice' eval 'a' a=1 a=2
expect 2 'there is no size to give in' eval 'a + b' a=1 b=2 --dim 2
expect 2 'with a name of' eval 'a' 'a:f32[N,M]=ones' --dim 2
expect 2 '--emit prints the program alone; it takes no --json' eval 'a' --emit --json
expect 2 '--emit prints the program alone; it takes no -o' eval 'a' --emit -o x.fusor
expect 3 '1e400: too large for f64' eval 'a' a:f64=1e400
expect 3 '-1e39: too large for f32' eval 'a' a=-1e39
expect 0 'min -inf' eval 'a' a=-inf
expect 2 'no source for parameter %a' eval 'a'
expect 2 "say it: 'a:f32[N]=-'" eval 'a' a=-
expect 4 'No such file' eval 'a' a=nowhere.npy
# what errors show is what the user wrote: the expression, with the attribute in it, or the argument of a type
expect 3 "<expression>:1:10: error: reduce_sum has no attribute axs" eval 'b+sum(a, axs=[0])' --fill 1 --dim 3
expect 3 'b+sum(a, axs=[0])' eval 'b+sum(a, axs=[0])' --fill 1 --dim 3
expect 3 '<expression>:2:13: error: reduce_sum: attribute axes is given twice' eval "sum(axes=[0], a ,
 dtype=f16, axes=[1])" a:f32[3]=1
expect 3 '<expression>:1:22: error: softmax: attribute axis must be an integer' eval 'b + softmax(a,  axis="x")' --fill 1
expect 3 '<expression>:1:9: error: einsum: operand 1 has rank 1' eval 'einsum("ij,jk", a, b)' --fill 1
expect 3 "<argument>:1:3: error: unknown type 'f33'" eval 'a+1' a:f33[3]=1
expect 3 '<argument>:1:7: error: size -3 is negative' eval 'b+a' a:f32[-3]=1 b=1
expect 3 'a:f32[-3]' eval 'b+a' a:f32[-3]=1 b=1
expect 3 '<expression>:1:3: error: parameter %b has the name of a size' eval 'a+b' a:f32[b]=1 b=3
for type in '' 'f32[N' 'f32[N]) -> i64 { return 1 } #' 'f32[N], b' 'f32[N]
'; do
    expect 3 'expected one type such as' eval 'a+b' "a:$type=1" b=1
    expect 3 '<argument>:1:' eval 'b+a' "a:$type=1" b=1
done
expect 0 '%result: f16' eval 'sum(axes=[0], a , dtype=f16)' a:f32[3]=1
deep=$(printf '(%.0s' $(seq 2000))
expect 3 'nested' eval "${deep}a"

# fmt: every example is laid out already; odd text becomes so, keeps its meaning, and then stays
for f in "$src"/examples/*.fusor "$src"/examples/*/*.fusor; do
    expect 0 '' fmt --check "$f"
done
cat >odd.fusor <<'END'
# head

fusor 1 # version


# about f


# more
func @f ( %x:f32 [ N,2*( M + 1 ) ] , # the x
   # own
   const %w : f32[M]=[ 1.5,-2 ] ) -> ( %y:f32[N , ?], f32 ) # sig
{ # body
# first
%a=add( %x , 1e-3 ) :f32[N,2*(M+1)] # trailing a
   # before b

   %b
     # mid
     =reduce_sum(%a,axes=[ 0 ,1 ],keepdims = false, name="q")
%c = select(true, %a, %a) return %c,%b
# end
}
# tail
END
cat >want.fusor <<'END'
# head

fusor 1 # version

# about f

# more
# the x
# own
# sig
func @f(%x: f32[N, 2*(M+1)], const %w: f32[M] = [1.5, -2]) -> (%y: f32[N, ?], f32) { # body
  # first
  %a = add(%x, 1e-3) : f32[N, 2*(M+1)] # trailing a
  # before b
  # mid

  %b = reduce_sum(%a, axes=[0, 1], keepdims=false, name="q")
  %c = select(true, %a, %a)
  return %c, %b
  # end
}
# tail
END
"$fusor" fmt odd.fusor >out 2>err
if cmp -s out want.fusor; then ok; else bad "layout of odd.fusor: $(diff want.fusor out | head -5)"; fi
"$fusor" fmt want.fusor >out 2>err
if cmp -s out want.fusor; then ok; else bad "a second layout differs"; fi
expect 1 'odd.fusor' fmt --check odd.fusor want.fusor
cp odd.fusor here.fusor
expect 0 '' fmt -i here.fusor
if cmp -s here.fusor want.fusor; then ok; else bad "fmt -i"; fi
for f in "$src"/tests/golden/*.fusor; do
    "$fusor" fmt "$f" >g.fusor 2>err || { bad "fmt $f"; continue; }
    "$fusor" fmt g.fusor >h.fusor
    if cmp -s g.fusor h.fusor; then ok; else bad "fmt of fmt of $f"; fi
    a=$("$fusor" emit "$f" --stage ir 2>/dev/null) b=$("$fusor" emit g.fusor --stage ir 2>/dev/null)
    if [ "$a" = "$b" ]; then ok; else bad "fmt changes the meaning of $f"; fi
    a=$(grep -o '#.*' "$f" | sed 's/[ \t]*$//' | sort) b=$(grep -o '#.*' g.fusor | sort)
    if [ "$a" = "$b" ]; then ok; else bad "fmt loses comments of $f"; fi
done
expect 3 'error:' fmt -e 'func @f('
expect 4 'No such file' fmt nowhere.fusor
expect 2 'no program' fmt

finish
