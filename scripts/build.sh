#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# build.sh DIR [CONFIGURE-OPTION...]: makes configure if the checkout has none, configures DIR if it is not configured
# with these options yet, and builds there. Output is short; the whole of it is in DIR/build.log.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
dir=$1
shift
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
log=$dir/build.log
: >"$log"
step() {
    echo "build: $1"
    shift
    if ! "$@" >>"$log" 2>&1; then
        grep -nE 'error|Error|warning:|undefined' "$log" | tail -n 25 || true
        echo "build: failed; the last lines of $log:"
        tail -n 15 "$log"
        exit 1
    fi
}
if [ ! -f configure ] || [ configure.ac -nt configure ]; then step autoreconf autoreconf -fi; fi
options="$*"
if [ ! -f "$dir/Makefile" ] || [ "$(cat "$dir/.options" 2>/dev/null)" != "$options" ]; then
    cd "$dir"
    step "configure${options:+ $options}" "$root/configure" -q "$@"
    printf '%s\n' "$options" >.options
fi
cd "$dir"
# All of it takes about six minutes of one core.
cores=$(nproc) about=
if [ ! -e fusor ]; then about=" (about $(((6 + cores - 1) / cores)) min on $cores cores)"; fi
step "make$about" make -s -j"$cores"
