#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# export.sh: a function as object and header, in a C program without the library: same results as fusor run, to the byte.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
set -u
work=$TMPDIR/export
mkdir -p "$work" && cd "$work" || exit 1
need_module
cat >p.fusor <<'P'
func @mlp(%x: f32[B, 70], %w: f32[70, 33], %b: f32[33], %int: f32[B, 33]) -> (%y: f32[B, 33], %m: f32, %q: f32[B, 33] alias %int) {
  %h = matmul(%x, %w) %s = add(%h, %b) %y = softmax(%s, axis=1) %m = reduce_max(%y)
  %k = mul(%int, 0.5) %q = add(%k, %y) return %y, %m, %q
}
func @join(%x: f32[1, 2, 4, 4], %w: f32[3, 2, 1, 1], %v: f32[2, 2, 1, 1], %u: f32[4, 5, 1, 1]) -> (f32[1, 5, 4, 4], f32[1, 7, 4, 4]) {
  %a = conv(%x, %w) %b = conv(%x, %v) %c = concat(%a, %b, axis=1) %d = conv(%c, %u) %e = concat(%d, %a, axis=1)
  %f = cumsum(%e, axis=1) return %c, %f
}
func @count(%a: i32[N]) -> (i64, i32[N]) { %c = cast(%a, i64) %s = reduce_sum(%c) %d = mul(%a, 3) return %s, %d }
P
cat >main.c <<'M'
#include <stdio.h>
#include "mlp.h"
#include "count.h"
#include "join.h"
static void fill(float *p, int n, int seed) { for (int i = 0; i < n; i++) p[i] = (float)((i * 7 + seed) % 23) / 8 - 1; }
static int save(const char *name, const void *p, size_t n) { FILE *f = fopen(name, "wb"); return !f || fwrite(p, 1, n, f) != n || fclose(f); }
static float x[40 * 70], w[70 * 33], b[33], z[40 * 33], y[40 * 33], m;
int main(void) {
    static const int batch[] = {1, 3, 40};
    for (int i = 0; i < 3; i++) {
        char name[32];
        int n = batch[i];
        fill(x, n * 70, 1), fill(w, 70 * 33, 2), fill(b, 33, 3), fill(z, n * 33, 4);
        snprintf(name, sizeof name, "x%d", n); if (save(name, x, (size_t)n * 280)) return 9;
        snprintf(name, sizeof name, "z%d", n); if (save(name, z, (size_t)n * 132)) return 9;
        if (save("w", w, sizeof w) || save("b", b, sizeof b)) return 9;
        int status = mlp(x, w, b, z, y, &m, n);
        if (status) return 10 + status;
        snprintf(name, sizeof name, "y%d", n); if (save(name, y, (size_t)n * 132)) return 9;
        snprintf(name, sizeof name, "q%d", n); if (save(name, z, (size_t)n * 132)) return 9;
        snprintf(name, sizeof name, "m%d", n); if (save(name, &m, 4)) return 9;
    }
    if (mlp(x, w, b, z, y, &m, 2) != FUSOR_AOT_SIZES) return 2;
    int32_t a[5] = {1, -2, 3, 2147483647, 5}, d[5];
    int64_t s;
    if (count(a, &s, d, 5) || s != 2147483654 || d[1] != -6) return 3;
    /* values that are made where a concatenation of them lies: in a result, and in the call's memory */
    float im[32], k[14], c[80], f[112], u[20];
    for (int i = 0; i < 32; i++) im[i] = (float)i;
    for (int i = 0; i < 10; i++) k[i] = (float)(i - 3);
    for (int i = 0; i < 20; i++) u[i] = (float)(i % 3 - 1);
    if (join(im, k, k + 6, u, c, f)) return 4;
    for (int p = 0; p < 16; p++) {
        float sum = 0;
        for (int j = 0; j < 5; j++)
            if (c[j * 16 + p] != im[p] * k[2 * j] + im[16 + p] * k[2 * j + 1]) return 5;
        for (int j = 0; j < 7; j++) {
            float d = j < 4 ? 0 : c[(j - 4) * 16 + p];
            for (int i = 0; j < 4 && i < 5; i++) d += c[i * 16 + p] * u[j * 5 + i];
            if (f[j * 16 + p] != (sum += d)) return 6;
        }
    }
    return 0;
}
M
# npy NAME SHAPE: raw little-endian floats as .npy
npy() {
    local head="{'descr': '<f4', 'fortran_order': False, 'shape': ($2), }"
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "$head" | cat - "$1" >"$1.npy"
}
for f in mlp count join; do
    dims='--dim B=1,3,40'
    [ $f = count ] && dims='--dim N=5'
    [ $f = join ] && dims=''
    "$FUSOR" emit p.fusor @$f --stage obj -o $f.o 2>err && "$FUSOR" emit p.fusor @$f --stage header $dims -o $f.h 2>>err && ok || bad "export of @$f"
done
${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror main.c mlp.o count.o join.o -o main 2>err && ok || bad 'it does not compile'
if ldd ./main 2>/dev/null | grep -q fusor; then bad 'it links the library'; else ok; fi
if readelf -lW ./main 2>/dev/null | grep -q 'GNU_STACK.*RWE'; then bad 'an executable stack'; else ok; fi
env -u FUSOR_CODEGEN -u FUSOR_CACHE_DIR ./main 2>err && ok || bad "the program ended with $?"
for n in 1 3 40; do
    npy x$n "$n, 70" && npy z$n "$n, 33" && npy w '70, 33' && npy b '33,'
    "$FUSOR" run p.fusor @mlp x=x$n.npy w=w.npy b=b.npy int=z$n.npy -o y=ry.npy -o m=rm.npy -o q=rq.npy >err 2>&1 || bad "fusor run, B=$n"
    for r in y m q; do
        size=$(stat -c %s $r$n)
        tail -c "$size" r$r.npy | cmp -s - $r$n && ok || bad "B=$n: result $r differs"
    done
done
# No newer C than the header says: it asks nothing of the C library that C99 has not.
${CC:-cc} -std=c99 -pedantic -O2 -Wall -Wextra -Werror main.c mlp.o count.o join.o -o main99 2>err && env -u FUSOR_CODEGEN -u FUSOR_CACHE_DIR ./main99 2>>err &&
    ok || bad "C99: $?"
if command -v "${CXX:-c++}" >/dev/null; then
    printf '#include "mlp.h"\nint main() { return mlp(0, 0, 0, 0, 0, 0, 2) != FUSOR_AOT_SIZES; }\n' >cpp.cc
    ${CXX:-c++} -std=c++11 -pedantic -Wall -Wextra -Werror cpp.cc mlp.o -o cpp 2>err && ./cpp && ok || bad 'C++'
fi
# Tile registers are asked for: where the CPU has them the results are those of a run, else the call says what lacks.
cat >tiles.fusor <<'END'
func @tiles(%x: bf16[M, 64], %w: bf16[64, 48]) -> (%y: f32[M, 48]) {
  %y = matmul(%x, %w, dtype=f32)
  return %y
}
END
cat >tiles.c <<'END'
#include <stdio.h>
#include "tiles.h"
static uint16_t x[100 * 64], w[64 * 48];
static float y[100 * 48];
int main(void) {
    for (int i = 0; i < 100 * 64; i++) x[i] = i % 3 ? 0x3f80 : 0x4000; /* 1, 2 */
    for (int i = 0; i < 64 * 48; i++) w[i] = i % 5 ? 0x3f00 : 0xbf80;  /* 0.5, -1 */
    for (int call = 0; call < 2; call++) {
        const int status = tiles(x, w, y, 100);
        if (status) return status == FUSOR_AOT_CPU ? 77 : status;
    }
    for (int m = 0; m < 100; m++)
        for (int n = 0; n < 48; n++) {
            float sum = 0;
            for (int k = 0; k < 64; k++)
                sum += ((m * 64 + k) % 3 ? 1.0f : 2.0f) * ((k * 48 + n) % 5 ? 0.5f : -1.0f);
            if (y[m * 48 + n] != sum) return 100;
        }
    return 0;
}
END
"$FUSOR" emit tiles.fusor --stage obj --target v4+amxbf16 -o tiles.o 2>err &&
    "$FUSOR" emit tiles.fusor --stage header --target v4+amxbf16 --dim M=100 -o tiles.h 2>>err &&
    ${CC:-cc} -std=c99 -pedantic -O2 -Wall -Wextra -Werror tiles.c tiles.o -o tiles 2>>err && ok || bad 'export with tiles'
grep -q 'fusor_aot_tiles_has_tiles()) return FUSOR_AOT_CPU' tiles.h && ok || bad 'nobody asks for tile registers'
expected=77
grep -q amx_bf16 /proc/cpuinfo && grep -q amx_tile /proc/cpuinfo && expected=0
./tiles
status=$?
"$FUSOR" info 2>/dev/null | grep -q '^target:.*amxbf16' || expected=77 # the system may refuse what the CPU has
[ $status = $expected ] && ok || bad "tiles in an exported function: $status"
# Indices are checked, and nothing is written over.
cat >pick.fusor <<'END'
func @pick(%x: f32[4, 2], %i: i32[N]) -> f32[N, 2] {
  %y = take(%x, %i, axis=0)
  return %y
}
END
cat >pick.c <<'END'
#include "pick.h"
int main(void) {
    float x[8] = {0, 1, 2, 3, 4, 5, 6, 7}, y[6];
    int32_t good[3] = {3, -4, 1}, bad[3] = {3, 4, 1};
    if (pick(x, good, y, 3) || y[0] != 6 || y[1] != 7 || y[2] != 0 || y[3] != 1 || y[4] != 2 || y[5] != 3) return 1;
    if (pick(x, bad, y, 3) != FUSOR_AOT_INDEX) return 2;
    for (int i = 0; i < 8; i++)
        if (x[i] != (float)i) return 3;
    return 0;
}
END
"$FUSOR" emit pick.fusor --stage obj -o pick.o 2>err && "$FUSOR" emit pick.fusor --stage header --dim N=3 -o pick.h 2>>err &&
    ${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror pick.c pick.o -o pick 2>>err && ./pick && ok || bad "indices in an exported function: $?"
# A test that every index of a type passes is none: compilers warn of it.
"$FUSOR" emit -e 'func @all(%x: f32[N], %i: u8[K], %j: i8[K]) -> (f32[K], f32[K]) { %y = take(%x, %i) %z = take(%x, %j) return %y, %z }' \
    --stage header --dim N=0,1,128,256,300 --dim K=0,3 -o all.h 2>err && echo '#include "all.h"' >all.c &&
    ${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror -c all.c 2>err && ok || bad 'indices that no type has'
# Sizes that a run would refuse are as those that were not given.
cat >related.fusor <<'END'
func @add(%x: f32[N], %z: f32[M]) -> (%y: f32[M]) { %y = add(%x, %z) return %y }
func @product(%a: f32[N, K], %b: f32[L, M]) -> (%y: f32[N, M]) { %y = matmul(%a, %b) return %y }
func @mirror(%x: f32[N]) -> (%y: f32[N + 6]) { %y = pad(%x, pads=[3, 3], mode=reflect) return %y }
func @most(%x: f32[N]) -> (%y: f32) { %y = reduce_max(%x) return %y }
func @least(%x: f32[N], %z: f32[N - 2]) -> (%y: f32[N - 2]) { %d = reshape(%x, shape=[N / 2, 2]) %y = neg(%z) return %y }
END
cat >related.c <<'END'
#include "add.h"
#include "product.h"
#include "mirror.h"
#include "most.h"
#include "least.h"
int main(void) {
    static float x[64], z[64], y[80];
    for (int i = 0; i < 64; i++) x[i] = z[i] = (float)i;
    if (add(x, z, y, 64, 4) != FUSOR_AOT_SIZES || add(x, z, y, 4, 64) != FUSOR_AOT_SIZES) return 1;
    if (product(x, z, y, 2, 3, 1, 2) != FUSOR_AOT_SIZES) return 2;
    if (mirror(x, y, 2) != FUSOR_AOT_SIZES || mirror(x, y, 3) != FUSOR_AOT_SIZES) return 3;
    if (most(x, y, 0) != FUSOR_AOT_SIZES) return 4;
    if (least(x, z, y, 5) != FUSOR_AOT_SIZES || least(x, z, y, 0) != FUSOR_AOT_SIZES) return 5;
    for (int i = 0; i < 80; i++)
        if (y[i] != 0) return 6;
    if (add(x, z, y, 4, 4) || y[3] != 6 || y[4] != 0 || add(x, z, y, 64, 64) || y[63] != 126) return 7;
    if (product(x, z, y, 2, 3, 3, 2) || y[3] != 3 * 1 + 4 * 3 + 5 * 5) return 8;
    if (mirror(x, y, 4) || y[0] != 3 || y[9] != 0 || most(x, y, 64) || y[0] != 63) return 9;
    return least(x, z, y, 6) || y[3] != -3 ? 10 : 0;
}
END
for f in 'add 2 of 4 --dim N=4,64 --dim M=4,64' 'product 1 of 2 --dim N=2 --dim K=3 --dim L=1,3 --dim M=2' 'mirror 2 of 3 --dim N=2,3,4' \
    'most 1 of 2 --dim N=0,64' 'least 2 of 3 --dim N=5,0,6'; do
    # shellcheck disable=SC2086
    set -- $f
    name=$1 left=$2 all=$4
    shift 4
    "$FUSOR" emit related.fusor "@$name" --stage obj -o "$name.o" 2>err && "$FUSOR" emit related.fusor "@$name" --stage header "$@" -o "$name.h" 2>>err &&
        grep -q "@$name leaves out $left of $all combinations" err && grep -q '^  N=.*: error: ' err && ok || bad "sizes of @$name that a run refuses"
done
${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror related.c add.o product.o mirror.o most.o least.o -o related 2>err && ./related && ok || bad "related sizes: $?"
"$FUSOR" emit related.fusor @add --stage header -q --dim N=4,64 --dim M=4 >out 2>err && [ ! -s err ] && ok || bad 'a remark in spite of -q'
rm -f none.h
"$FUSOR" emit related.fusor @add --stage header --dim N=64 --dim M=4,5 -o none.h >out 2>err
[ $? -eq 3 ] && [ ! -e none.h ] && grep -q 'leaves out 2 of 2' err && grep -q 'N = 64 but M = 4' err && ok || bad 'no sizes that a run takes'
# Names that C has no place for, or has one place for where the language has two.
cat >names.fusor <<'END'
func @tanh(%result_y: f32[free], %a.b: f32[free], %a_b: f32[free], %1: f32, %_1: f32, %status: f32, %memory: f32, %in: f32, %in_: f32, %typeof: f32, %namespace: f32, %uint8_t: f32, %tanh: f32)
    -> (%y: f32[free], %result_y: bool[free], %y.: f32[free] alias %a.b) {
  %s = sub(%a.b, %a_b) %t = mul(%s, %1) %u = add(%t, %_1) %v = sub(%u, %status) %w = mul(%v, %memory) %x = add(%w, %in)
  %z = sub(%x, %in_) %p = add(%z, %typeof) %q = sub(%p, %namespace) %r = mul(%q, %uint8_t) %o = sub(%r, %tanh)
  %y = add(%o, %result_y) %b = gt(%y, 0) %n = neg(%a.b)
  return %y, %b, %n
}
END
cat >names.c <<'END'
#include "names.h"
#include <math.h>
int main(void) {
    float first[2] = {1, -100}, a[2] = {5, 6}, b[2] = {2, 2}, y[2], v[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    uint8_t positive[2];
    int rc = tanh_(first, a, b, v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7, v + 8, v + 9, y, positive, 2);
    /* (((5 - 2) * 2 + 3 - 4) * 5 + 6 - 7 + 8 - 9) * 10 - 11 + 1 */
    return rc || y[0] != 220 || y[1] != 219 || positive[0] != 1 || positive[1] != 1 || a[0] != -5 || a[1] != -6;
}
END
if "$FUSOR" emit names.fusor --stage obj -o names.o 2>err && "$FUSOR" emit names.fusor --stage header --dim free=2 -o names.h 2>>err; then
    ${CC:-cc} -O2 -Wall -Wextra -Werror names.c names.o -o names -lm 2>>err && ./names && ok || bad 'names that C has no place for'
    if command -v "${CXX:-c++}" >/dev/null; then
        ${CXX:-c++} -x c++ -Wall -Wextra -Werror -fsyntax-only names.c 2>err && ok || bad 'names that C++ has no place for'
    fi
else
    bad 'export of names'
fi
# Whatever the headers of C, the compiler and the exported header itself name may be a parameter, and a size.
headers='#include <complex.h>\n#include <errno.h>\n#include <math.h>\n#include <stdio.h>\n'
{
    printf '%b' "$headers" '#include <stdint.h>\n#include <stdlib.h>\n#include <string.h>\n' >std.c
    ${CC:-cc} -E -P std.c
    ${CC:-cc} -E -P -dM std.c
    cat mlp.h
    echo alignas and bitor char16_t class co_await concept constexpr export final import module namespace nullptr operator template this \
        typename using virtual xor_eq _Bool _Complex _Atomic _Float16 __int128 _ __ _1 1 v1 free__0 free_0 a..b a.__.b _a free fusor_aot_in \
        fusor_aot_free_call FUSOR_AOT_free_H fusor_aot_free_call_
} | sed 's/"[^"]*"//g' | grep -oE '(^|[^A-Za-z0-9_.])[A-Za-z_][A-Za-z0-9_.]*' | grep -oE '[A-Za-z_].*' | grep -vxE 'x|y|BUFSIZ|fusor_aot_size' | sort -u >words
{
    echo 'func @free(%x: f32[fusor_aot_size], %y: f32[BUFSIZ]'
    sed 's/.*/  , %&: f32/' words
    echo ') -> (%restrict: f32[fusor_aot_size], %z: f32[BUFSIZ]) { %restrict.. = neg(%x) return %restrict.., %y }'
} >all_names.fusor
"$FUSOR" emit all_names.fusor --stage header --dim fusor_aot_size=2 --dim BUFSIZ=3 -o all_names.h 2>err && [ "$(wc -l <words)" -gt 500 ] && ok || bad 'export of all names'
for as in 'c -std=c99 -pedantic' 'c -std=gnu11' 'c++ -std=c++11'; do
    { [ "${as%% *}" = c ] && printf '%b' "$headers" || printf '#include <complex>\n#include <cmath>\n#include <cstdio>\n'; echo '#include "all_names.h"'; } >all_names.c
    if [ "${as%% *}" = c ] || command -v "${CXX:-c++}" >/dev/null; then
        # shellcheck disable=SC2086
        $([ "${as%% *}" = c ] && echo "${CC:-cc}" || echo "${CXX:-c++}") -x $as -Wall -Wextra -Werror -Wno-unused-parameter -fsyntax-only all_names.c 2>err && ok || bad "all names, $as"
    fi
done
# A function is none of C's library, of which compilers know a part without any header.
for name in size_t tanhf roundf32 memcpy index select NULL INT64_MAX std main _x _Bool f__0 int linux div abort y0 abs errno I fusor_aot_run FUSOR_AOT_OK cexp isnan; do
    "$FUSOR" emit -e "func @$name(%x: f32[N]) -> (%y: f32[N]) { %y = neg(%x) return %y }" --stage header --dim N=2 -o one.h 2>err || bad "export of @$name"
    for as in "${CC:-cc} -x c" "${CXX:-c++} -x c++"; do
        command -v "${as%% *}" >/dev/null || continue
        { [ "${as##* }" = c ] && printf '#include "one.h"\n%b' "$headers" || printf '#include "one.h"\n#include <cmath>\n'; } >one.c
        $as -Wall -Wextra -Werror -fsyntax-only one.c 2>err && ok || bad "@$name, $as"
    done
    case $name in size_t | memcpy | int | std) grep -q "^static inline int ${name}_(" one.h && ok || bad "the name of @$name" ;; esac
done
# A function of copies alone has no kernel; its object is empty.
cat >copies.fusor <<'END'
func @both(%x: f32[N, M], %z: i8[N]) -> (%y: f32[N, M], %k: i8[N]) {
  return %x, %z
}
END
cat >copies.c <<'END'
#include "copies.h"
int main(void) {
    float x[6] = {0, 1, 2, 3, 4, 5}, y[6];
    int8_t z[3] = {1, -2, 3}, k[3];
    return both(x, z, y, k, 2, 3) || memcmp(x, y, sizeof x) || k[0] != 1 || k[1] != -2;
}
END
"$FUSOR" emit copies.fusor --stage obj -o copies.o 2>err && "$FUSOR" emit copies.fusor --stage header --dim N=2 --dim M=3 -o copies.h 2>>err &&
    ${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror copies.c copies.o -o copies 2>>err && ./copies && ok || bad "copies alone: $? $(cat err)"
"$FUSOR" emit copies.fusor --stage asm >out 2>err
[ $? -eq 2 ] && grep -q 'copies alone' err && ok || bad 'assembly of copies'
"$FUSOR" emit p.fusor @mlp --stage header >out 2>err
[ $? -eq 2 ] && grep -q "size 'B' of @mlp is not known" err && ok || bad 'a size that is missing'
finish
