#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# bundle.sh [--build DIR] [--out FILE] [--max-mb N]: a tarball with all that a machine with a GPU needs to prove and to measure fusor: the command,
# libfusor, the module with LLVM in it, the tests of tests/cuda, bench/gpu/*.py and run.sh, and the libraries that they are linked
# with, but for glibc. There: tar xf FILE; fusor-gpu/run.sh. --build: a build directory to take it from (its tests are made); without
# one, fusor is built here with -O2. FILE: fusor-gpu.tar.xz.
set -eu
src=$(cd "$(dirname "$0")/../.." && pwd)
build= out=$PWD/fusor-gpu.tar.xz max_mb=60
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$(cd "$2" && pwd); shift 2 ;;
    --out) out=$(cd "$(dirname "$2")" && pwd)/$(basename "$2"); shift 2 ;;
    --max-mb) max_mb=$2; shift 2 ;;
    *) sed -n 's/^# //p' "$0" | sed -n '2,5p' >&2; exit 2 ;;
    esac
done
work=$(mktemp -d "${TMPDIR:-/tmp}/fusor-bundle.XXXXXX")
trap 'rm -rf "$work"' EXIT
say() { echo "bundle: $*" >&2; }
command -v xz >/dev/null || { say "there is no xz (package xz-utils)"; exit 1; }
if [ -z "$build" ]; then
    build=$work/build
    mkdir "$build"
    [ -x "$src/configure" ] || (cd "$src" && autoreconf -fi)
    (cd "$build" && "$src/configure" -q --disable-start-bundle CFLAGS=-O2 && make -j"$(nproc)") >&2
fi

# The tests that run kernels through the driver, those of the interpreter, which say whether the bundle itself is sound,
# those of tile instructions, and random programs.
tests=$(sed -n 's/^unit_tests += %D%\/\(\(cuda\|amx\)\/.*\)/tests\/\1/p' "$src/tests/local.mk")
# shellcheck disable=SC2086
make -C "$build" fusor libfusor.la fusor-codegen.la tests/cuda/libcuda_fake.so tests/fuzz/graph_fuzz $tests >"$work/make.log" 2>&1 || { cat "$work/make.log" >&2; exit 1; }

to=$work/fusor-gpu
mkdir -p "$to/bin" "$to/lib" "$to/tests" "$to/bench"
cp "$build/fusor" "$to/bin/"
cp -L "$build/.libs/libfusor.so.0" "$build/.libs/fusor-codegen.so" "$to/"
cp -L "$build/tests/cuda/libcuda_fake.so" "$to/tests/"
for t in $tests tests/fuzz/graph_fuzz; do cp "$build/$t" "$to/tests/"; done
cp "$src"/bench/gpu/*.py "$to/bench/"
cp "$src/bench/gpu/run.sh" "$src/LICENSE" "$to/"
strip --strip-unneeded "$to"/bin/* "$to"/*.so* "$to"/tests/*
(cd "$src" && git log -1 --format='%H %cd' 2>/dev/null || echo unknown) >"$to/VERSION"

# glibc, whose parts fit together only among themselves and to the machine's driver, stays out.
ldd "$to"/bin/* "$to"/*.so* "$to"/tests/* | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    while read -r lib; do
        case ${lib##*/} in
        libc.so.*|libm.so.*|libdl.so.*|libpthread.so.*|librt.so.*|libresolv.so.*|ld-linux*|libLLVM*) ;;
        *) cp -L "$lib" "$to/lib/" ;;
        esac
    done
if ldd "$to/fusor-codegen.so" | grep -q libLLVM; then
    say "the module is linked with a shared LLVM, which is not on the other machine; configure --with-llvm-link=static"
    exit 1
fi
tar -C "$work" -cf - fusor-gpu | xz -T0 >"$out"
bytes=$(stat -c %s "$out")
say "$out: $((bytes >> 20)) MB ($(du -sm "$to" | cut -f1) MB unpacked)"
if [ "$bytes" -gt $((max_mb << 20)) ]; then
    say "more than $max_mb MB"
    exit 1
fi
