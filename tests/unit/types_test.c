/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* types_test.c: conversions round once; symbolic sizes are canonical, checked for overflow, and print so that they read
 * back. */
#include "ir/types.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static jmp_buf oom;
static fu_arena arena;
static void setup(void) { fu_arena_init(&arena, &oom); }
static void teardown(void) { fu_arena_free(&arena); }
TestSuite(dtype, .init = setup, .fini = teardown);
TestSuite(size, .init = setup, .fini = teardown);

Test(dtype, table_matches_the_public_numbers) {
    cr_expect_str_eq(fusor_dtype_name(FUSOR_BF16), "bf16");
    cr_expect_str_eq(fusor_dtype_name((fusor_dtype)0), "?");
    cr_expect_str_eq(fusor_dtype_name((fusor_dtype)14), "?");
    cr_expect_str_eq(fusor_dtype_name((fusor_dtype)-1), "?");
    cr_expect_eq(fusor_dtype_size(FUSOR_U64), 8);
    cr_expect_eq(fusor_dtype_size((fusor_dtype)0), 0);
    cr_expect_eq(fusor_dtype_size((fusor_dtype)99), 0);
    for (ir_dtype t = 1; t < IR_DTYPE_COUNT; t++) {
        cr_expect_eq(ir_dtype_parse(ir_dtypes[t].name, strlen(ir_dtypes[t].name)), t);
    }
    cr_expect_eq(ir_dtype_parse("f8e4m3", 6), 0);
    cr_expect_eq(ir_dtype_parse("f3", 2), 0);
}

Test(dtype, f16_agrees_with_the_compiler) {
    for (uint32_t h = 0; h < 65536; h++) {
        _Float16 x;
        const uint16_t bits = (uint16_t)h;
        memcpy(&x, &bits, 2);
        const float f = ir_f16_to_f32(bits);
        if (isnan((float)x)) {
            cr_expect(isnan(f));
            cr_expect(isnan(ir_f16_to_f32(ir_f32_to_f16(f))));
            continue;
        }
        cr_expect(memcmp(&f, &(float){(float)x}, 4) == 0, "%04x", h);
        cr_expect_eq(ir_f32_to_f16(f), bits, "%04x", h);
        cr_expect_eq(ir_f64_to_f16((double)f), bits);
    }
    uint64_t s = 1;
    for (int i = 0; i < 2000000; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        uint64_t u = (s & ~(0x7ffull << 52)) | ((1023ull - 30 + (s >> 40) % 50) << 52); /* 2^-30 .. 2^20 */
        if (i & 1) u &= ~0x3ffffffffffull;                                              /* near and at ties */
        if (i % 3 == 0) u |= 1;
        double d;
        memcpy(&d, &u, 8);
        const _Float16 want = (_Float16)d;
        const uint16_t got = ir_f64_to_f16(d);
        cr_assert(memcmp(&want, &got, 2) == 0, "%a", d);
    }
}

Test(dtype, bf16_rounds_once_to_even) {
    for (uint32_t h = 0; h < 65536; h++) {
        const float f = ir_bf16_to_f32((uint16_t)h);
        if (!isnan(f)) cr_expect_eq(ir_f32_to_bf16(f), (uint16_t)h);
    }
    cr_expect_eq(ir_f64_to_bf16(0x1.01p0), 0x3f80, "a tie goes to even");
    cr_expect_eq(ir_f64_to_bf16(0x1.03p0), 0x3f82);
    cr_expect_eq(ir_f64_to_bf16(0x1.0100000000001p0), 0x3f81, "above the tie by a bit that f32 does not have");
    cr_expect_eq(ir_f64_to_f16(0x1.0020000000001p0), 0x3c01);
    cr_expect_eq(ir_f64_to_bf16(0x1.fep127), 0x7f7f);
    cr_expect_eq(ir_f64_to_bf16(0x1.ffp127), 0x7f80, "to infinity");
    cr_expect_eq(ir_f64_to_bf16(-0x1p-133), 0x8001);
    cr_expect_eq(ir_f64_to_bf16(0x1p-134), 0, "half of the smallest is a tie");
    cr_expect_eq(ir_f64_to_bf16(0x1.8p-134), 1);
    cr_expect_eq(ir_f64_to_f16(0x1p-1070), 0);
    cr_expect_eq(ir_f64_to_f16(-INFINITY), 0xfc00);
}

Test(dtype, literals_fit_or_not) {
    bool ok;
    cr_expect_eq(ir_bits_from_int(FUSOR_I8, -128, &ok), 0x80u);
    cr_expect(ok);
    ir_bits_from_int(FUSOR_I8, 128, &ok);
    cr_expect(!ok);
    ir_bits_from_int(FUSOR_U8, -1, &ok);
    cr_expect(!ok);
    ir_bits_from_int(FUSOR_U64, -1, &ok);
    cr_expect(!ok);
    cr_expect_eq(ir_bits_from_int(FUSOR_U32, UINT32_MAX, &ok), UINT32_MAX);
    cr_expect(ok);
    ir_bits_from_int(FUSOR_F16, 65520, &ok);
    cr_expect(!ok, "rounds to infinity");
    cr_expect_eq(ir_bits_from_int(FUSOR_F16, 65519, &ok), 0x7bff);
    cr_expect(ok);
    /* 2^62 + 2^54 is a bf16 tie; one more bit, which f64 does not have, decides. */
    cr_expect_eq(ir_bits_from_int(FUSOR_BF16, (1ll << 62) + (1ll << 54), &ok), 0x5e80);
    cr_expect_eq(ir_bits_from_int(FUSOR_BF16, (1ll << 62) + (1ll << 54) + 1, &ok), 0x5e81);
    cr_expect_eq(ir_bits_from_int(FUSOR_BF16, -(1ll << 62) - (1ll << 54) - 1, &ok), 0xde81);
    ir_bits_from_double(FUSOR_F32, 1e39, &ok);
    cr_expect(!ok);
    ir_bits_from_double(FUSOR_F32, INFINITY, &ok);
    cr_expect(ok);
    ir_bits_from_double(FUSOR_I32, 1.5, &ok);
    cr_expect(!ok);
    for (ir_dtype t = 1; t < IR_DTYPE_COUNT; t++) {
        const double v = ir_is_bool(t) ? 1 : ir_dtypes[t].cls == IR_CLASS_U ? 77 : -77;
        cr_expect_eq(ir_bits_to_double(t, ir_bits_from_double(t, v, &ok)), v);
        cr_expect(ok);
    }
}

/* ---- sizes ---- */

static const char *text(const ir_sizes *s, ir_size x) {
    fu_str out;
    fu_str_init(&out, &arena);
    ir_size_print(&out, s, x);
    return out.at;
}

Test(size, equal_polynomials_are_one_size) {
    ir_sizes *s = ir_sizes_new(&arena);
    const ir_size n = ir_size_sym(s, "N"), m = ir_size_sym(s, "M"), one = ir_size_const(s, 1),
                  two = ir_size_const(s, 2);
    cr_expect_eq(ir_size_sym(s, "N"), n);
    cr_expect_eq(ir_size_mul(s, ir_size_add(s, n, one), ir_size_sub(s, n, one)),
                 ir_size_sub(s, ir_size_mul(s, n, n), one));
    cr_expect_eq(ir_size_mul(s, n, m), ir_size_mul(s, m, n));
    cr_expect_eq(ir_size_sub(s, ir_size_add(s, n, m), m), n);
    cr_expect_eq(ir_size_div(s, ir_size_mul(s, n, m), m), n);
    cr_expect_eq(ir_size_div(s, ir_size_mul(s, ir_size_add(s, n, one), m), ir_size_add(s, one, n)), m);
    cr_expect_eq(ir_size_div(s, ir_size_add(s, ir_size_mul(s, n, two), one), two), n, "whole multiples come out");
    cr_expect(ir_size_never_equal(s, n, ir_size_add(s, n, one)));
    cr_expect(!ir_size_never_equal(s, n, m));
    cr_expect(!ir_size_never_equal(s, n, n));
    cr_expect(ir_size_never_negative(s, ir_size_add(s, n, m)));
    cr_expect(!ir_size_never_negative(s, ir_size_sub(s, n, m)));
    cr_expect_str_eq(text(s, ir_size_add(s, ir_size_mul(s, two, n), one)), "2*N+1");
    cr_expect_str_eq(text(s, ir_size_div(s, ir_size_add(s, n, ir_size_const(s, 3)), ir_size_const(s, 4))), "(N+3)/4");
    cr_expect_str_eq(text(s, ir_size_mul(s, two, ir_size_div(s, n, two))), "2*(N/2)");
    cr_expect_str_eq(text(s, ir_size_sub(s, one, n)), "-1*N+1");
    cr_expect_str_eq(text(s, ir_size_mul(s, ir_size_const(s, INT64_MIN), n)), "-9223372036854775808*N");
    cr_expect_str_eq(text(s, ir_size_add(s, n, ir_size_const(s, INT64_MIN))), "N-9223372036854775807-1");
}

Test(size, evaluation_is_checked) {
    ir_sizes *s = ir_sizes_new(&arena);
    const ir_size n = ir_size_sym(s, "N"), m = ir_size_sym(s, "M");
    int64_t v[2] = {7, 3}, out = 0;
    cr_expect_eq(ir_size_eval(s, ir_size_div(s, n, ir_size_const(s, 2)), v, &out), IR_SIZE_OK);
    cr_expect_eq(out, 3);
    cr_expect_eq(ir_size_eval(s, ir_size_div(s, ir_size_sub(s, m, n), ir_size_const(s, 3)), v, &out), IR_SIZE_OK);
    cr_expect_eq(out, -2, "rounds down");
    v[1] = 0;
    cr_expect_eq(ir_size_eval(s, ir_size_div(s, n, m), v, &out), IR_SIZE_ZERO_DIVISION);
    cr_expect_eq(ir_size_eval(s, ir_size_div(s, n, ir_size_const(s, 0)), v, &out), IR_SIZE_ZERO_DIVISION);
    v[0] = v[1] = INT64_MAX;
    cr_expect_eq(ir_size_eval(s, ir_size_mul(s, n, m), v, &out), IR_SIZE_OVERFLOW);
    cr_expect_eq(ir_size_eval(s, ir_size_add(s, n, m), v, &out), IR_SIZE_OVERFLOW);
    cr_expect_eq(ir_size_eval(s, ir_size_sub(s, n, m), v, &out), IR_SIZE_OK,
                 "N - M + ... does not overflow on the way");
    const ir_size big = ir_size_mul(s, ir_size_const(s, INT64_MAX), ir_size_const(s, 2));
    cr_expect(ir_size_is_huge(s, big));
    cr_expect_eq(ir_size_eval(s, ir_size_add(s, big, n), v, &out), IR_SIZE_OVERFLOW);
    cr_expect(ir_size_is_huge(s, ir_size_div(s, ir_size_const(s, INT64_MIN), ir_size_const(s, -1))));
}

Test(size, hostile_growth_ends) {
    ir_sizes *s = ir_sizes_new(&arena);
    ir_size x = ir_size_const(s, 1), y = ir_size_sym(s, "N");
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "S%d", i);
        x = ir_size_mul(s, x, ir_size_add(s, ir_size_sym(s, name), ir_size_const(s, 1)));
        y = ir_size_div(s, ir_size_add(s, ir_size_mul(s, y, y), y), ir_size_const(s, 3));
    }
    cr_expect(ir_size_is_huge(s, x));
    cr_expect(ir_size_is_huge(s, y));
    cr_expect_lt(arena.bytes, 8u << 20);
}

Test(size, copies_and_substitutes) {
    ir_sizes *s = ir_sizes_new(&arena);
    const ir_size n = ir_size_sym(s, "N"), m = ir_size_sym(s, "M");
    const ir_size q = ir_size_div(s, ir_size_add(s, ir_size_mul(s, n, m), ir_size_const(s, 3)), ir_size_const(s, 4));
    ir_sizes *t = ir_sizes_copy(&arena, s);
    cr_expect_str_eq(text(t, q), text(s, q));
    cr_expect_eq(ir_size_hash(t, q), ir_size_hash(s, q));
    cr_expect_eq(ir_size_sym(t, "M"), m);
    const ir_size map[2] = {ir_size_const(t, 8), ir_size_sym(t, "K")};
    cr_expect_str_eq(text(t, ir_size_substitute(t, s, q, map)), "2*K");
    /* The order in which symbols were met changes nothing. */
    ir_sizes *u = ir_sizes_new(&arena);
    const ir_size m2 = ir_size_sym(u, "M"), n2 = ir_size_sym(u, "N");
    const ir_size q2 = ir_size_div(u, ir_size_add(u, ir_size_mul(u, n2, m2), ir_size_const(u, 3)), ir_size_const(u, 4));
    cr_expect_str_eq(text(u, q2), text(s, q));
    cr_expect_eq(ir_size_hash(u, q2), ir_size_hash(s, q));
}
