#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# readonly.sh: a cache that is shipped: files of root, a user that nobody knows, no home, no code generation module, a directory or bundle
# that nobody may write to, a file system that is read-only. Everything is a hit. Needs root and setpriv; mount for the last part.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
set -u
cd "$TMPDIR" || exit 1
user="setpriv --reuid=54321 --regid=54321 --clear-groups"
if [ -z "${FUSOR_CODEGEN-}" ] || [ "$(id -u)" -ne 0 ] || ! $user true 2>/dev/null; then
    skip 'no module, not root, or no setpriv'
    finish
fi
# TMPDIR is for its owner only; this one is for all to read.
app=$(mktemp -d /tmp/fusor-readonly.XXXXXX) || exit 1
trap 'umount "$app/mnt" 2>/dev/null; rm -rf "$app"' EXIT
chmod 755 "$app"
cp "$FUSOR" "$app/fusor" && cp "$FUSOR_BUILDDIR"/.libs/libfusor.so.0 "$app/"
cat >"$app/p.fusor" <<'P'
func @f(%x: f32[M, N]) -> f32[M] { %a = tanh(%x) %s = softmax(%a, axis=1) %y = reduce_sum(%s, axes=[1]) return %y }
P
cat >"$app/only.c" <<'C'
#include "fusor/fusor.h"
#include <stdio.h>
/* Fails where anything would have to be compiled. */
int main(int argc, char **argv) {
    static float x[6] = {1, 2, 3, 4, 5, 6}, y[2];
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.flags = FUSOR_CACHE_ONLY;
    fusor_context *ctx = fusor_context_new(&o);
    fusor_executable *exe;
    const char *text = argc > 1 ? argv[1] : "func @f(%x: f32[M, N]) -> f32[M] { %a = tanh(%x) %s = softmax(%a, axis=1) %y = reduce_sum(%s, axes=[1]) return %y }";
    fusor_buffer in = {.data = x, .dtype = FUSOR_F32, .rank = 2, .shape = {2, 3}}, out = {.data = y, .dtype = FUSOR_F32, .rank = 1, .shape = {2}};
    if (fusor_compile_text(ctx, text, NULL, &exe) != FUSOR_OK || fusor_executable_call(exe, 1, &in, 1, &out) != FUSOR_OK) return puts(fusor_error_message(ctx)), 1;
    printf("%.3f %.3f\n", y[0], y[1]);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
    return 0;
}
C
out=$TMPDIR/out
FUSOR_CACHE_DIR=$app/cache "$FUSOR" cache warm "$app/p.fusor" -o "$app/app.fbundle" >"$out" 2>&1 && ok || bad 'warm'
chmod 755 "$app/cache"
chmod 644 "$app"/cache/* "$app/app.fbundle"
FUSOR_CACHE_DIR=$app/cache "$FUSOR" run "$app/p.fusor" --fill arange --dim M=5 --dim N=7 -o "y=$app/want.npy" >"$out" 2>&1 && ok || bad 'what it should be'
# shellcheck disable=SC2086
as_user() { env -u HOME -u XDG_CACHE_HOME -u FUSOR_CACHE_DIR FUSOR_CODEGEN=/nowhere FUSOR_VERBOSE=error,cache,compile LD_LIBRARY_PATH="$app" "${setting[@]}" $user "$@"; }
hits() { # WHAT: all kernels are hits, the bytes are right, nothing is said
    as_user "$1/fusor" run "$1/p.fusor" --fill arange --dim M=5 --dim N=7 -o y=- 2>"$out" >"$TMPDIR/got.npy" || bad "$2: the run"
    cmp -s "$TMPDIR/got.npy" "$app/want.npy" && ok || bad "$2: other bytes"
    grep -q ',hit,' "$out" && ! grep -qE ',(why|miss),|,compile,|,error,' "$out" && ok || bad "$2: not a hit, or a warning"
}
setting=("FUSOR_CACHE_DIR=$app/cache" FUSOR_CACHE=ro); hits "$app" 'directory of root'
setting=("FUSOR_CACHE_PATH=$app/cache"); hits "$app" 'directory of root as a tier'
setting=("FUSOR_CACHE_PATH=$app/app.fbundle"); hits "$app" 'bundle of root'
# shellcheck disable=SC2086
if ${CC:-cc} $FUSOR_SANITIZE -I"$FUSOR_SRCDIR/include" "$app/only.c" -o "$app/only" "$app/libfusor.so.0" >"$out" 2>&1; then
    as_user "$app/only" >"$out" 2>/dev/null && grep -q '^1.000 1.000$' "$out" && ok || bad 'FUSOR_CACHE_ONLY'
    as_user "$app/only" 'func @g(%x: f32[M, N]) -> f32[M] { %a = exp(%x) %y = reduce_sum(%a, axes=[1]) return %y }' >"$out" 2>/dev/null && bad 'FUSOR_CACHE_ONLY compiles' || ok
else bad 'the program with FUSOR_CACHE_ONLY'; fi
# Files of somebody else are not code to run: a miss with a warning, not a hit.
chown 12345 "$app/app.fbundle"
as_user "$app/fusor" run "$app/p.fusor" --fill arange --dim M=5 --dim N=7 >"$out" 2>&1
grep -q ',hit,' "$out" && bad 'a bundle of another user was used' || ok
chown 0 "$app/app.fbundle"
# What cannot be deleted is not said to be deleted.
setting=("FUSOR_CACHE_DIR=$app/cache")
for words in clear 'prune --max-size 1' 'prune --max-age 1s'; do
    touch -d '1 hour ago' "$app"/cache/*.fk
    rm -f "$app/cache/stats" # it knows of later uses
    # shellcheck disable=SC2086
    as_user "$app/fusor" cache $words >"$out" 2>&1
    [ $? -eq 4 ] && grep -q "cache directory $app/cache: cannot delete [0-9a-f.]*[.]fk: Permission denied" "$out" && ! grep -q deleted "$out" && ok ||
        bad "cache $words of a directory of root"
done
as_user "$app/fusor" cache prune --max-size 1 --dry-run >"$out" 2>&1 && grep -q 'would delete' "$out" && ok || bad 'a dry run needs no right to delete'
# A file system that is read-only, as images of containers are, in a mount namespace of its own.
mkdir "$app/mnt"
cat >"$app/mounted.sh" <<'S'
set -e
mount -t tmpfs tmpfs "$1/mnt"
cp -a "$1/fusor" "$1/p.fusor" "$1/cache" "$1/mnt/"
mount -o remount,ro "$1/mnt"
S
if unshare -m sh "$app/mounted.sh" "$app" 2>/dev/null; then
    for mode in rw ro; do
        unshare -m bash -c '. "$1/mounted.sh" "$1"; shift; exec "$@"' - "$app" \
            env -u HOME -u XDG_CACHE_HOME FUSOR_CODEGEN=/nowhere FUSOR_VERBOSE=error,cache,compile FUSOR_CACHE=$mode FUSOR_CACHE_DIR="$app/mnt/cache" \
            $user "$app/mnt/fusor" run "$app/mnt/p.fusor" --fill arange --dim M=5 --dim N=7 -o y=- 2>"$out" >"$TMPDIR/got.npy"
        cmp -s "$TMPDIR/got.npy" "$app/want.npy" && grep -q ',hit,' "$out" && ! grep -qE ',(why|miss),|,compile,' "$out" && ok || bad "read-only file system, $mode"
    done
else skip 'no mount namespaces here'; fi
finish
