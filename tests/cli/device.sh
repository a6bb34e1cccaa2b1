#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# device.sh: --device of the command, over the fake driver: results, files, checks, times; what is wrong is said.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
src=${FUSOR_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
fusor=$(realpath "${FUSOR:-./fusor}")
fake=$(realpath "${FUSOR_BUILDDIR:-.}")/tests/cuda/libcuda_fake.so
need_module
if [ ! -e "$fake" ]; then
    skip "there is no $fake (make check builds it)"
    finish
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export FUSOR_CACHE_DIR=$work/cache
mkdir -m 700 "$FUSOR_CACHE_DIR"
cd "$work" || exit 1
need_json
same() { if cmp -s "$1" "$2"; then ok; else bad "$3"; fi; }
export FUSOR_CUDA_LIB=$fake FAKECUDA_DEVICES=2
mlp='func @mlp(%x: f32[B, 24], %w: f32[24, 10], %b: f32[10]) -> f32[B, 10] {
  %h = matmul(%x, %w) %s = add(%h, %b) %y = relu(%s) return %y }'
sgd='func @sgd(%p: f32[N], %g: f32[N], %lr: f32[]) -> (%q: f32[N] alias %p) { %d = mul(%lr, %g) %q = sub(%p, %d) return %q }'

expect 0 'nan 0' run -e "$mlp" --fill normal:1 --dim B=5 --device cuda
expect 0 ': ok' run -e "$mlp" --fill normal:1 --dim B=5 --device cuda:1 --check
expect 0 ': ok' run -e "$mlp" --fill normal:1 --dim B=5 --device cuda --no-fuse --check
expect 0 '' run -e "$sgd" p=arange g=ones lr=0.5 --dim N=7 --device cuda -o q=there.npy
expect 0 '' run -e "$sgd" p=arange g=ones lr=0.5 --dim N=7 -o q=here.npy
same there.npy here.npy 'another result on the device'
expect 0 ': ok' run -e "$sgd" p=there.npy g=ones lr=0.5 --device cuda --check -o q=there.npy
expect 0 '' eval 'tanh(a)*2+b' a=arange b=ones --dim 9 --device cuda
expect 0 '^device: cuda:0' run -e "$sgd" p=arange g=ones lr=0.5 --dim N=7 --device cuda --time --runs 3
json fusor-run/1 'device median_ns transfers.median_ns transfers.bytes_up transfers.bytes_down' run -e "$mlp" --fill ones --dim B=3 --device cuda --time --runs 3
"$fusor" run -e "$mlp" --fill ones --dim B=3 --device cuda:1 --time --runs 3 --json >out 2>err && grep -q '"device": "cuda:1"' out && ok || bad 'device in JSON'
expect 0 'N=2000' run -e "$sgd" --fill ones --dim N=1e3,2e3 --device cuda --runs 2 --time
FUSOR_DEVICE=cuda:1 "$fusor" run -e "$sgd" --fill ones --dim N=3 --time --runs 2 >out 2>err && grep -q '^device: cuda:1' out && ok || bad 'FUSOR_DEVICE'

# plans for a device
expect 0 'for sm_90a' explain -e "$mlp" --dim B=5 --device cuda
expect 0 'blocks* of 256 threads in' explain -e "$mlp" --dim B=5 --device cuda
expect 0 '(launch)' explain -e "$sgd" --dim N=5 --target sm_80
expect 0 'blocks* of' explain -e "$sgd" --dim N=5 --device cuda --measure --min-time 0.01
FAKECUDA_CC=80 "$fusor" emit -e "$sgd" --stage ptx --device cuda >out 2>err && grep -q '^.target sm_80' out && ok || bad 'emit for the device'
expect 0 '^auto     the CPU, .* us estimated; cuda:0 ' explain -e "$sgd" --dim N=5 --device auto
json fusor-explain/1 'auto' explain -e "$sgd" --dim N=5 --device auto
expect 0 '^auto: the CPU, ' run -e "$sgd" --fill ones --dim N=5 --device auto --time --runs 3
json fusor-run/1 'auto device' run -e "$sgd" --fill ones --dim N=5 --device auto --time --runs 3
# workloads, small ones: the driver of this test is an interpreter
"$fusor" bench optimizers --device cuda --filter adamw --dim N=16 --min-time 0.001 --export-json bench.json >out 2>err && grep -q '"device": *"cuda:0"' bench.json && ok || bad 'bench on a device'
# how often auto chose the faster side: here always, as the interpreter is never faster than kernels of the CPU
expect 0 '^auto: 2 of 2 choices were the faster one (100.0 %)' bench optimizers --device auto --filter adamw --dim N=3,16 --threads 1 --min-time 0.001 --export-json auto.json --export-html auto.html
./json_check fusor-bench/1 auto.choices auto.right auto.share results.0.auto.choice results.0.auto.cpu_ns results.0.auto.gpu_ns results.0.auto.auto_ns results.1.auto.right <auto.json >why && ok || bad "$(cat why): bench --device auto"
grep -q '"device": *"auto"' auto.json && ! grep -q '"choice": *"gpu"' auto.json && ok || bad 'a choice of the interpreter'
grep -q '2 of 2' auto.html && grep -q 'The CPU or the GPU' auto.html && ok || bad 'choices on the page'
# verdicts, from times that are made up: row CHOICE CPU GPU SPREAD
row() {
    echo "{\"suite\": \"s\", \"name\": \"w\", \"size\": 9, \"threads\": 1, \"fused_ns\": 100, \"unfused_ns\": 400, \"spread\": 0.02, \"bytes\": 12, \"flops\": 10, \"unfused_bytes\": 36,
           \"kernels\": 1, \"unfused_kernels\": 3, \"rivals\": {}, \"auto\": {\"choice\": \"$1\", \"cpu_ns\": $2, \"gpu_ns\": $3, \"auto_ns\": 100, \"cpu_spread\": $4, \"gpu_spread\": 0}}"
}
judged() { # SUM VERDICT ROW...
    local sum=$1 verdict=$2 IFS=,
    shift 2
    echo "{\"schema\": \"fusor-bench/1\", \"date\": \"2026-01-01\", \"limits\": [], \"auto\": {}, \"results\": [$*]}" >made.json
    "$fusor" bench --import-json made.json >out 2>err && grep -q "^auto: $sum choices" out && grep -q "$verdict" out && ok || bad "not '$sum' and '$verdict'"
}
judged '1 of 2' 'wrong by 50.0 %' "$(row cpu 150 100 0.01)" "$(row gpu 150 100 0.01)"
judged '1 of 2' 'wrong by 100.0 %' "$(row gpu 100 200 0.01)" "$(row cpu 100 200 0.01)"
judged '1 of 1' 'within the noise' "$(row cpu 101 100 0)"
judged '1 of 1' 'within the noise' "$(row gpu 100 105 0.06)"
judged '0 of 1' 'wrong by 5.0 %' "$(row gpu 100 105 0.04)"
judged '0 of 1' 'wrong by 20.0 %' "$(row gpu 100 120 0.9)"
expect 4 'the driver has 2' run -e "$sgd" --fill ones --dim N=3 --device cuda:2
expect 2 "did you mean 'cuda'" run -e "$sgd" --fill ones --dim N=3 --device cudda
expect 4 "its own is sm_90a" run -e "$sgd" --fill ones --dim N=3 --device cuda --target v3
export FUSOR_CUDA_LIB=/nowhere/libcuda.so.1
expect 4 '/nowhere/libcuda.so.1' run -e "$sgd" --fill ones --dim N=3 --device cuda
expect 4 '/nowhere/libcuda.so.1' eval 'a+1' a=arange --dim 3 --device cuda
expect 4 '/nowhere/libcuda.so.1' explain -e "$sgd" --device cuda
expect 0 'nan 0' run -e "$sgd" --fill ones --dim N=3 --device auto
expect 0 '^auto: the CPU: no CUDA driver: /nowhere' run -e "$sgd" --fill ones --dim N=3 --device auto --time --runs 3
expect 0 '^auto: no choice was made: no CUDA driver: /nowhere' bench optimizers --device auto --filter adamw --dim N=16 --threads 1 --min-time 0.0005 --peers none
FUSOR_VERBOSE=dispatch "$fusor" run -e "$sgd" --fill ones --dim N=3 --device auto >out 2>err && grep -q 'auto,cpu,no CUDA driver' err && ok || bad 'auto does not say why'
finish
