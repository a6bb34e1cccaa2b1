/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* str_test.c: the string builder, floats in both directions, spelling suggestions. */
#include "base/str.h"
#include <criterion/criterion.h>
#include <float.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static fu_arena arena;
static jmp_buf oom;

static void init(void) { fu_arena_init(&arena, &oom); }
static void fini(void) { fu_arena_free(&arena); }
#define CATCH_OOM() cr_assert_eq(setjmp(oom), 0, "out of memory")

TestSuite(str, .init = init, .fini = fini);

Test(str, adds) {
    CATCH_OOM();
    fu_str s;
    fu_str_init(&s, &arena);
    cr_assert_str_eq(s.at, "");
    fu_str_add(&s, "a");
    fu_str_addc(&s, '-');
    fu_str_addn(&s, "bcd", 2);
    fu_str_addf(&s, "%05d", 42);
    cr_assert_str_eq(s.at, "a-bc00042");
    cr_assert_eq(s.n, 9);
}

Test(str, utf8) {
    CATCH_OOM();
    const char *good = "p\xC3\xA9 \xF0\x9F\x98\x80";
    cr_assert_eq(fu_utf8(&arena, good), good);
    cr_assert_str_eq(fu_utf8(&arena, ""), "");
    cr_assert_str_eq(fu_utf8(&arena, "a\xFF\xC3/\xC3\xA9\xC3"), "a\xEF\xBF\xBD\xEF\xBF\xBD/\xC3\xA9\xEF\xBF\xBD");
}

Test(str, grows_by_any_step) {
    CATCH_OOM();
    char piece[300];
    memset(piece, 'z', sizeof piece);
    for (size_t step = 1; step < sizeof piece; step++) {
        fu_str s;
        fu_str_init(&s, &arena);
        for (int i = 0; i < 20; i++) {
            if (i % 2) fu_str_addn(&s, piece, step);
            else fu_str_addf(&s, "%.*s", (int)step, piece);
            cr_assert_eq(s.n, (size_t)(i + 1) * step);
            cr_assert_eq(strlen(s.at), s.n);
        }
    }
}

static const char *text_of(double v, int bits) {
    fu_str s;
    fu_str_init(&s, &arena);
    fu_str_add_float(&s, v, bits);
    return s.at;
}

Test(str, floats_have_the_shortest_text) {
    CATCH_OOM();
    static const struct {
        double v;
        int bits;
        const char *text;
    } row[] = {
        {0.1, 64, "0.1"},
        {1, 64, "1.0"},
        {1e-7, 64, "1e-07"},
        {INFINITY, 64, "inf"},
        {-INFINITY, 32, "-inf"},
        {NAN, 64, "nan"},
        {-0.0, 64, "-0.0"},
        {0, 32, "0.0"},
        {0.1f, 32, "0.1"},
        {0.1f, 64, "0.10000000149011612"},
        {1e16, 64, "1e+16"},
        {123456789012345678.0, 64, "1.2345678901234568e+17"},
        {1e15, 64, "1000000000000000.0"},
        {0.0001, 64, "0.0001"},
        {0.00001, 64, "1e-05"},
        {-2.5, 32, "-2.5"},
        {100, 32, "100.0"},
        {16777216, 32, "16777216.0"},
        {5e-324, 64, "5e-324"},
        {DBL_MAX, 64, "1.7976931348623157e+308"},
        {FLT_MAX, 32, "3.4028235e+38"},
        {1.4012984643248171e-45, 32, "1e-45"},
        {DBL_MIN, 64, "2.2250738585072014e-308"},
        {1.0 / 3, 32, "0.33333334"},
        {1e23, 64, "1e+23"},
        {9007199254740993.0, 64, "9007199254740992.0"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        cr_expect_str_eq(text_of(row[i].v, row[i].bits), row[i].text, "row %zu: %s", i, text_of(row[i].v, row[i].bits));
}

/* xorshift: seeded, the same everywhere. */
static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

Test(str, floats_read_back) {
    CATCH_OOM();
    uint64_t state = 88172645463325252u;
    for (int i = 0; i < 100000; i++) {
        uint64_t r = next_random(&state);
        uint32_t r32 = (uint32_t)(r >> 32);
        double d, back;
        float f, back32;
        const char *end, *text;
        memcpy(&d, &r, 8);
        memcpy(&f, &r32, 4);
        if (i % 10 == 0) d = ldexp(1, (int)(r % 2098) - 1074); /* powers of two: the interval is not symmetric */
        fu_mark m = fu_arena_mark(&arena);
        if (!isnan(d)) {
            text = text_of(d, 64);
            back = fu_parse_float(text, strlen(text), &end);
            cr_assert(memcmp(&d, &back, 8) == 0 && !*end, "%s", text);
        }
        if (!isnan(f)) {
            text = text_of((double)f, 32);
            back32 = strtof(text, NULL);
            cr_assert(memcmp(&f, &back32, 4) == 0, "%s", text);
        }
        fu_arena_release(&arena, m);
    }
}

Test(str, floats_ignore_the_locale) {
    CATCH_OOM();
    if (!setlocale(LC_ALL, "de_DE.UTF-8") && !setlocale(LC_ALL, "fr_FR.UTF-8")) setlocale(LC_ALL, "");
    cr_assert_str_eq(text_of(1.5, 64), "1.5");
    const char *end;
    cr_assert_eq(fu_parse_float("1.5,", 4, &end), 1.5);
    cr_assert_eq(*end, ',');
}

Test(str, parse_float_stops_where_the_number_ends) {
    static const struct {
        const char *text;
        size_t used;
        double v;
    } row[] = {
        {"1", 1, 1},
        {"1.", 2, 1},
        {".5", 2, .5},
        {"1e5x", 3, 1e5},
        {"1e", 1, 1},
        {"1e+", 1, 1},
        {"1.5e-3)", 6, 1.5e-3},
        {"0x1.8p1", 7, 3},
        {"0x", 1, 0},
        {"0x.8p0", 6, .5},
        {"0xg", 1, 0},
        {"-2", 2, -2},
        {"+2", 2, 2},
        {"-", 0, 0},
        {"", 0, 0},
        {".", 0, 0},
        {"abc", 0, 0},
        {" 1", 0, 0},
        {"inf", 3, INFINITY},
        {"-inf,", 4, -INFINITY},
        {"infinity", 8, INFINITY},
        {"1.2.3", 3, 1.2},
        {"1..2", 2, 1},
        {"1e400", 5, INFINITY},
        {"1e-400", 6, 0},
        {"3."
         "1415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253421170679821480865"
         "1",
         112, 3.141592653589793},
        {"0."
         "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
         "0000000000"
         "00000000000001e130",
         139, 0},
    };
    for (size_t i = 0; i + 1 < sizeof row / sizeof *row; i++) {
        const char *end;
        double v = fu_parse_float(row[i].text, strlen(row[i].text), &end);
        cr_expect_eq((size_t)(end - row[i].text), row[i].used, "\"%s\" used %td", row[i].text, end - row[i].text);
        cr_expect_eq(v, row[i].v, "\"%s\" is %a", row[i].text, v);
    }
    /* Never past n, though the text goes on; and long numbers leave the small buffer. */
    const char *end, *text = "12345";
    cr_expect_eq(fu_parse_float(text, 3, &end), 123);
    cr_expect_eq(end, text + 3);
    const char *last = row[sizeof row / sizeof *row - 1].text;
    cr_expect_eq(fu_parse_float(last, strlen(last), &end), strtod(last, NULL));
    cr_expect_eq(*end, 0);
    cr_expect(isnan(fu_parse_float("nan", 3, &end)));
}

Test(str, nearest) {
    static const char *const op[] = {"relu", "gelu", "softmax", "log_softmax", "matmul", "add", "sub", "reduce_sum"};
    size_t n = sizeof op / sizeof *op;
    cr_expect_str_eq(fu_nearest("rleu", op, n), "relu");
    cr_expect_str_eq(fu_nearest("matmull", op, n), "matmul");
    cr_expect_str_eq(fu_nearest("sofmax", op, n), "softmax");
    cr_expect_str_eq(fu_nearest("reduce_smu", op, n), "reduce_sum");
    cr_expect_str_eq(fu_nearest("ad", op, n), "add");
    cr_expect_null(fu_nearest("convolution", op, n));
    cr_expect_null(fu_nearest("x", op, n));
    cr_expect_null(fu_nearest("", op, n));
    char huge[5000];
    memset(huge, 'a', sizeof huge - 1);
    huge[sizeof huge - 1] = 0;
    cr_expect_null(fu_nearest(huge, op, n));
    cr_expect_null(fu_nearest("relu", NULL, 0));
    static const char *const alike[] = {"tan", "tanh"};
    cr_expect_str_eq(fu_nearest("tahn", alike, 2), "tanh"); /* a swap, not a letter too many */
}
