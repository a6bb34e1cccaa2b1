#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# start-bundle.sh BUILD_ID_FILE BUNDLE: in a build directory, writes BUNDLE: the kernels of tools/reference start-programs for all levels,
# made by ./fusor. BUNDLE.id says what it was made from; where that is still so, nothing is done. Where the programs do not run here
# (another machine is being built for) or fail, there is a note and no bundle: programs then wait for their kernels.
set -u
id_file=$1 bundle=$2
work=start-bundle.tmp
trap 'rm -rf "$work"' EXIT
if ! ./fusor --version >/dev/null 2>&1; then
    echo "start bundle: this machine does not run the programs that were built; left out"
    exit 0
fi
mkdir -p "$work/cache" && chmod 700 "$work/cache" && tools/reference start-programs >"$work/programs.fusor" || exit 1
{ cat "$id_file"; cksum <"$work/programs.fusor"; } >"$work/id"
if [ -f "$bundle" ] && cmp -s "$work/id" "$bundle.id"; then exit 0; fi
rm -f "$bundle" "$bundle.id"
# Nothing of the caller's settings; a process for each level, then one that finds all of them.
for v in $(env | sed -n 's/^\(FUSOR_[A-Z_]*\)=.*/\1/p'); do unset "$v"; done
export FUSOR_CODEGEN=.libs/fusor-codegen.so FUSOR_CACHE_DIR="$work/cache"
split -l 50 "$work/programs.fusor" "$work/part."         # what a compile costs grows with the file it is in
warm() { ./fusor cache warm "$work"/part.* --no-fuse "$@" 2>&1; }
for level in v2 v3 v4; do warm --target $level >/dev/null & done
wait
if ! warm --target v2,v3,v4 -o "$bundle" >"$work/out"; then
    cat "$work/out"
    echo "start bundle: not made; programs will wait for their kernels"
    rm -f "$bundle"
    exit 0
fi
chmod 644 "$bundle" && mv "$work/id" "$bundle.id"
sed -n 's/^\([0-9]* entries\) in .*/  START    \1/p' "$work/out"
