#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# ptxas.sh: the PTX of programs of each kernel kind is what ptxas takes, for each target, without spills beyond a budget. Skipped, counted, where
# there is no ptxas.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../cli/lib.sh"
set -u
cd "$TMPDIR" || exit 1
fusor=$FUSOR
need_module
if [ -n "${FUSOR_SANITIZE-}" ]; then
    skip 'what ptxas takes is the same without sanitizers; the gpu tests make such PTX with them'
    finish
fi
cat >p.fusor <<'P'
func @map(%a: f32[N], %b: f32[N], %c: f32[N]) -> f32[N] { %t = mul(%a, %b) %s = add(%t, %c) %y = relu(%s) return %y }
func @costly(%x: f32[M, N], %b: f32[N]) -> f32[M, N] { %s = add(%x, %b) %y = gelu(%s) return %y }
func @half(%x: f16[M, N], %b: bf16[M, N]) -> bf16[M, N] { %s = cast(%x, bf16) %t = tanh(%s) %y = mul(%t, %b) return %y }
func @bytes(%a: bf16[N], %b: bf16[N]) -> bf16[N] { %t = mul(%a, %b) %y = relu(%t) return %y }
func @turned(%x: f32[M, N], %z: f32[N, M]) -> f32[N, M] { %t = transpose(%x) %y = add(%t, %z) return %y }
func @softmax(%x: bf16[M, N]) -> bf16[M, N] { %y = softmax(%x, axis=1) return %y }
func @column_sum(%x: bf16[M, N]) -> bf16[N] { %y = reduce_sum(%x, axes=[0]) return %y }
func @f64(%x: f64[N]) -> f64[N] { %e = exp(%x) %y = log1p(%e) return %y }
func @sum(%x: f32[N]) -> f32 { %y = reduce_sum(%x) return %y }
func @columns(%x: f32[M, N]) -> f32[N] { %y = reduce_max(%x, axes=[0]) return %y }
func @arg(%x: f32[M, N]) -> i64[M] { %y = argmax(%x, axis=1) return %y }
func @short(%x: f32[B, 10]) -> f32[B, 10] { %y = log_softmax(%x, axis=1) return %y }
func @norm(%x: f32[B, N], %g: f32[N], %b: f32[N]) -> f32[B, N] { %y = layer_norm(%x, %g, %b) return %y }
func @norm_back(%x: bf16[B, N], %d: bf16[B, N]) -> bf16[B, N] { %q = square(%x) %s = reduce_mean(%q, axes=[1], keepdims=true) %e = add(%s, 1e-5) %r = rsqrt(%e) %h = mul(%x, %r) %t = mul(%d, %h) %m = reduce_mean(%t, axes=[1], keepdims=true) %n = mul(%h, %m) %o = sub(%d, %n) %y = mul(%o, %r) return %y }
func @linear(%x: f32[M, K], %w: f32[K, N], %b: f32[N]) -> f32[M, N] { %h = matmul(%x, %w) %s = add(%h, %b) %y = relu(%s) return %y }
func @mma(%x: bf16[M, K], %w: bf16[K, N], %b: bf16[N]) -> bf16[M, N] { %h = matmul(%x, %w) %s = add(%h, %b) %y = gelu(%s) return %y }
func @mma_turned(%x: f16[B, K, M], %w: f16[N, K]) -> f16[B, M, N] { %y = matmul(%x, %w, transpose_a=true, transpose_b=true) return %y }
func @mma_cast(%x: f32[M, K], %w: f32[K, N]) -> bf16[M, N] { %c = cast(%x, bf16) %d = cast(%w, bf16) %y = matmul(%c, %d) return %y }
func @mma_bytes(%x: u8[M, K], %w: i8[N, K]) -> i32[M, N] { %y = matmul(%x, %w, transpose_b=true) return %y }
func @conv(%x: f32[B, 3, 32, 32], %w: f32[8, 3, 3, 3]) -> f32[B, 8, 30, 30] { %y = conv(%x, %w) return %y }
func @conv_mma(%x: bf16[B, C, H, 20], %w: bf16[64, C, 3, 3], %b: bf16[64]) -> bf16[B, 64, ?, 18] { %s = conv(%x, %w, %b) %y = relu(%s) return %y }
func @att(%q: f32[B, 8, S, 64], %k: f32[B, 8, T, 64], %v: f32[B, 8, T, 64]) -> f32[B, 8, S, 64] { %y = attention(%q, %k, %v, causal=true) return %y }
func @att_half(%q: bf16[B, 32, S, 128], %k: bf16[B, 8, T, 128], %v: bf16[B, 8, T, 128]) -> bf16[B, 32, S, 128] { %y = attention(%q, %k, %v) return %y }
func @att_mma(%q: f16[B, 32, S, 64], %k: f16[B, 8, T, 64], %v: f16[B, 8, T, 64], %m: bool[S, T]) -> f16[B, 32, S, 64] { %y = attention(%q, %k, %v, %m) return %y }
func @att_added(%q: f16[B, 32, S, 64], %k: f16[B, 8, T, 64], %v: f16[B, 8, T, 64], %m: f32[B, 1, S, T]) -> f16[B, 32, S, 64] { %y = attention(%q, %k, %v, %m) return %y }
func @att_f64(%q: f64[S, 40], %k: f64[T, 40], %v: f64[T, 60], %m: f64[S, T]) -> f64[S, 60] { %y = attention(%q, %k, %v, %m) return %y }
P
has_ptxas=$(command -v ptxas || true)
only_made='no ptxas: PTX is only made'
[ -n "$has_ptxas" ] || skip "$only_made"
for f in map costly half bytes turned softmax column_sum f64 sum columns arg short norm norm_back linear mma mma_turned mma_cast mma_bytes conv conv_mma att att_half att_added att_f64 att_mma; do
    for target in sm_70 sm_80 sm_90a; do
        [ $f-$target != conv_mma-sm_70 ] || continue # halves are f32 there, by a kernel in front
        if ! "$fusor" emit p.fusor @$f --stage ptx --target $target -o k.ptx 2>err || ! grep -q "^\.target $target" k.ptx; then
            bad "PTX of @$f for $target"
            continue
        fi
        ok
        [ -n "$has_ptxas" ] || continue
        arch=$target
        [ $target != sm_70 ] || arch=sm_75 # toolkits from CUDA 13 on know nothing older; the text is for sm_70
        linked=() # as the driver's linker compiles, to which shuffles are calls before sm_90a
        [ $target != sm_90a ] || linked=(-c)
        if ! ptxas "${linked[@]}" -arch=$arch -v -o k.cubin k.ptx >out 2>&1; then bad "ptxas -arch=$arch refuses @$f"
        elif grep -qi serializ out; then bad "@$f: wgmma is serialized for $arch"
        elif awk -v most=$(case $f-$target in linear-* | conv-* | mma*-sm_70) echo 160 ;; *) echo 64 ;; esac) '/spill stores/ { if ($5 > most) exit 1 }' out; then ok
        else bad "@$f spills for $arch"; fi
    done
done
if ! "$fusor" emit p.fusor @linear --math fast --stage ptx --target sm_80 -o k.ptx 2>err || ! grep -q 'mma.*tf32' k.ptx; then
    bad 'f32 by tensor cores in the fast tier'
elif [ -z "$has_ptxas" ]; then skip "$only_made"
elif ptxas -arch=sm_80 -v -o k.cubin k.ptx >out 2>&1 && grep -q ' 0 bytes spill stores' out; then ok
else bad 'ptxas refuses f32 by tensor cores in the fast tier, or it spills'; fi
expect 2 'is for a GPU' emit p.fusor @map --stage ptx --target v3
expect 2 'is for a CPU' emit p.fusor @map --stage asm --target sm_80
expect 4 "cannot run target 'sm_80'" run p.fusor @map --fill ones --dim N=3 --target sm_80
expect 2 'sm_80' emit p.fusor @map --stage ptx --target sm_81
finish
