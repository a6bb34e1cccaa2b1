#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# gpu_cache.sh: kernels for a GPU are warmed, listed, shown, verified and shipped on a machine without one; fusor info says why there
# is no device.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
src=${FUSOR_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
fusor=$(realpath "${FUSOR:-./fusor}")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
need_module
umask 077
export FUSOR_CACHE_DIR=$work/cache
mkdir -m 700 "$FUSOR_CACHE_DIR"
cd "$work" || exit 1
need_json
printf '%s\n' 'func @f(%a: f32[N]) -> (%s: f32[N], %m: f32) { %s = exp(%a) %m = reduce_sum(%s) return %s, %m }' >p.fusor

expect 0 'compiled now' cache warm p.fusor --target sm_80,v3
expect 0 '0 compiled now' cache warm p.fusor --target sm_80
expect 0 'sm_80' cache list --filter target=sm_80
key=$("$fusor" cache list --filter target=sm_80 | awk 'NR == 2 { print $1 }')
expect 0 'line table: none for a GPU' cache show "$key"
expect 0 '^.visible .entry' cache disasm "$key"
json fusor-cache-disasm/1 'symbol code_bytes has_lines ptx' cache disasm "$key"
json fusor-cache-show/1 'symbol cubins' cache show "$key"
expect 0 '0 bad' cache verify
expect 0 'hit' cache why p.fusor --target sm_80
expect 0 'miss' cache why p.fusor --target sm_70
expect 0 'entries in' cache warm p.fusor --target sm_80 -o gpu.fbundle
mkdir -m 700 other
expect 0 'entries read' cache import gpu.fbundle --cache-dir other
expect 0 'sm_80' cache list --cache-dir other
expect 4 'cannot run target' run p.fusor --fill ones --dim N=4 --target sm_80

# a file beside a kernel that no driver made: it is no entry, verify sets it aside, clear leaves nothing
full=$(basename "$(ls "$FUSOR_CACHE_DIR"/"$key"*.fk)" .fk)
printf 'no cubin' >"$FUSOR_CACHE_DIR/$full.sm90.01234567.fcubin"
chmod 600 "$FUSOR_CACHE_DIR/$full.sm90.01234567.fcubin"
before=$("$fusor" cache list | wc -l)
expect 0 'cubin *'"$full"'.*shorter than a header' cache show "$key"
json fusor-cache-stats/1 'cubins cubin_bytes' cache stats
expect 1 '1 cubins, 1 bad' cache verify
expect 0 ' 0 bad' cache verify
if [ "$("$fusor" cache list | wc -l)" = "$before" ]; then ok; else bad 'a cubin is counted as an entry'; fi
printf 'no cubin' >"$FUSOR_CACHE_DIR/$full.sm90.01234567.fcubin"
expect 0 'deleted' cache clear
if [ -z "$(ls "$FUSOR_CACHE_DIR")" ]; then ok; else bad "left behind: $(ls "$FUSOR_CACHE_DIR")"; fi

# what the (fake) driver makes of a kernel is kept, shown and counted, and goes with the kernels
fake=${FUSOR_BUILDDIR:-$PWD}/tests/cuda/libcuda_fake.so
if [ -f "$fake" ]; then
    export FUSOR_CUDA_LIB=$fake
    expect 0 'cuda:0: Fake GPU' info
    expect 0 ': ok' run p.fusor --device cuda --fill ones --dim N=100 --check
    n=$(find "$FUSOR_CACHE_DIR" -name '*.fcubin' | wc -l)
    if [ "$n" -gt 0 ]; then ok; else bad 'no cubin was kept'; fi
    expect 0 ': ok' run p.fusor --device cuda --fill ones --dim N=100 --check
    if [ "$(find "$FUSOR_CACHE_DIR" -name '*.fcubin' | wc -l)" = "$n" ]; then ok; else bad 'other cubins at the second run'; fi
    key=$("$fusor" cache list --filter target=sm_90a | awk 'NR == 2 { print $1 }')
    expect 0 'cubin .*compute capability 9.0 by driver 13.0' cache show "$key"
    json fusor-cache-show/1 'cubins.0.file cubins.0.cc cubins.0.bytes' cache show "$key"
    expect 0 "cubins, 0 bad" cache verify
    expect 0 "^cubins  *$n, made of PTX by drivers" cache stats
    expect 0 'entries, 0 bad' cache verify --filter key=none
    expect 0 'deleted 1 entry' cache clear --filter "key=$key"
    if [ -z "$(find "$FUSOR_CACHE_DIR" -name "$key*.f*")" ]; then ok; else bad 'clear --filter left the cubin of an entry'; fi
    if [ "$(find "$FUSOR_CACHE_DIR" -name '*.fcubin' | wc -l)" = $((n - 1)) ]; then ok; else bad 'clear --filter deleted other cubins'; fi
    expect 0 'deleted' cache clear
    if [ -z "$(find "$FUSOR_CACHE_DIR" -name "*.f*")" ]; then ok; else bad "left behind: $(ls "$FUSOR_CACHE_DIR")"; fi
else
    skip 'the fake driver is not built'
fi

export FUSOR_CUDA_LIB=/nowhere/libcuda.so
expect 0 'CUDA: none (no CUDA driver: /nowhere/libcuda.so' info
export FUSOR_CUDA_LIB=$work/p.fusor
expect 0 'CUDA: none (no CUDA driver: .*p.fusor' info
json fusor-info/1 'devices.0 devices.1 cuda.problem cuda.devices' info
finish
