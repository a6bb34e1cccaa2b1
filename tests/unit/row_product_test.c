/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* row_product_test.c: a row times a matrix that is `const`: a contraction on a CPU, packed once where it is bound.
 * Values against sums in f64, over levels, types and sizes; the same bits bound and not bound, on one thread and
 * several. */
#include "fusor/fusor.h"
#include "rt/cpuinfo.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double number(int64_t i, int seed) { return (double)((i * 37 + seed * 101) % 1009) / 1009 - 0.5; }

typedef struct product {
    int64_t k, n;
    fusor_dtype type; /* F32 or F64, or U8: times I8 */
    void *x, *w, *y;
    double *want;
} product;

static size_t bytes_of(fusor_dtype t) { return t == FUSOR_F64 ? 8 : t == FUSOR_F32 || t == FUSOR_I32 ? 4 : 1; }

static void put(void *at, fusor_dtype t, int64_t i, double v) {
    if (t == FUSOR_F64) ((double *)at)[i] = v;
    else if (t == FUSOR_F32) ((float *)at)[i] = (float)v;
    else if (t == FUSOR_U8) ((uint8_t *)at)[i] = (uint8_t)(v * 200 + 100);
    else ((int8_t *)at)[i] = (int8_t)(v * 250);
}
static double get(const void *at, fusor_dtype t, int64_t i) {
    switch (t) {
    case FUSOR_F64: return ((const double *)at)[i];
    case FUSOR_F32: return ((const float *)at)[i];
    case FUSOR_U8: return ((const uint8_t *)at)[i];
    case FUSOR_I8: return ((const int8_t *)at)[i];
    default: return ((const int32_t *)at)[i];
    }
}

static fusor_buffer tensor(void *data, fusor_dtype t, int64_t a, int64_t b) {
    return (fusor_buffer){.data = data, .dtype = t, .rank = 2, .shape = {a, b}};
}

static product new_product(fusor_dtype type, int64_t k, int64_t n) {
    const fusor_dtype of_w = type == FUSOR_U8 ? FUSOR_I8 : type;
    product p = {.k = k, .n = n, .type = type};
    p.x = calloc((size_t)k, 8);
    p.w = calloc((size_t)(k * n), 8);
    p.y = calloc((size_t)n, 8);
    p.want = calloc((size_t)n, sizeof(double));
    for (int64_t i = 0; i < k; i++) put(p.x, type, i, number(i, 1));
    for (int64_t i = 0; i < k * n; i++) put(p.w, of_w, i, number(i, 2));
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < n; j++) p.want[j] += get(p.x, type, i) * get(p.w, of_w, i * n + j);
    return p;
}
static void free_product(product *p) {
    free(p->x);
    free(p->w);
    free(p->y);
    free(p->want);
}

/* relu of it, into p->y. */
static void run(const product *p, const char *target, int n_threads, bool is_bound) {
    static const char *const names[] = {[FUSOR_F32] = "f32", [FUSOR_F64] = "f64", [FUSOR_U8] = "u8"};
    const fusor_dtype of_w = p->type == FUSOR_U8 ? FUSOR_I8 : p->type, to = p->type == FUSOR_U8 ? FUSOR_I32 : p->type;
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.n_threads = n_threads;
    o.target = target;
    fusor_context *ctx = fusor_context_new(&o);
    cr_assert(ctx);
    char text[400];
    snprintf(text, sizeof text,
             "func @f(%%x: %s[1, %lld], const %%w: %s[%lld, %lld]) -> %s[1, %lld] { %%y = matmul(%%x, %%w) %%z = "
             "relu(%%y) return %%z }",
             names[p->type], (long long)p->k, p->type == FUSOR_U8 ? "i8" : names[p->type], (long long)p->k,
             (long long)p->n, p->type == FUSOR_U8 ? "i32" : names[p->type], (long long)p->n);
    fusor_executable *plain, *exe;
    cr_assert_eq(fusor_compile_text(ctx, text, NULL, &plain), FUSOR_OK, "%s", fusor_error_message(ctx));
    fusor_buffer in[2] = {tensor(p->x, p->type, 1, p->k), tensor(p->w, of_w, p->k, p->n)},
                 out = tensor(p->y, to, 1, p->n);
    exe = plain;
    if (is_bound)
        cr_assert_eq(fusor_executable_bind(plain, 1, (const char *[]){"w"}, &in[1], &exe), FUSOR_OK, "%s",
                     fusor_error_message(ctx));
    memset(p->y, 0xff, (size_t)p->n * bytes_of(to));
    for (int i = 0; i < 2; i++) /* packed by the first call, read by the second */
        cr_assert_eq(fusor_executable_call(exe, is_bound ? 1 : 2, in, 1, &out), FUSOR_OK, "%s",
                     fusor_error_message(ctx));
    if (exe != plain) fusor_executable_free(exe);
    fusor_executable_free(plain);
    fusor_context_free(ctx);
}

static void check(fusor_dtype type, const char *target, int64_t k, int64_t n) {
    product p = new_product(type, k, n);
    const fusor_dtype to = type == FUSOR_U8 ? FUSOR_I32 : type;
    const size_t bytes = (size_t)n * bytes_of(to);
    void *first = malloc(bytes);
    for (int variant = 0; variant < 4; variant++) {
        run(&p, target, variant & 1 ? 3 : 1, variant & 2);
        if (!variant) memcpy(first, p.y, bytes);
        cr_expect(memcmp(first, p.y, bytes) == 0, "%s, %lld x %lld: other bits %s, on %d threads", target, (long long)k,
                  (long long)n, variant & 2 ? "bound" : "not bound", variant & 1 ? 3 : 1);
    }
    const double bound = type == FUSOR_F32 ? 1e-6 * (double)k : type == FUSOR_F64 ? 1e-15 * (double)k : 0;
    for (int64_t j = 0; j < n; j++) {
        const double want = p.want[j] > 0 ? p.want[j] : 0, got = get(p.y, to, j);
        cr_assert(fabs(got - want) <= bound, "%s, %lld x %lld, column %lld: %.9g, not %.9g", target, (long long)k,
                  (long long)n, (long long)j, got, want);
    }
    free(first);
    free_product(&p);
}

Test(row_product, of_constants, .timeout = 200) {
    static const int64_t sizes[][2] = {{64, 64}, {65, 100}, {513, 130}, {700, 64}, {1030, 193}, {128, 1000}};
    static const char *const targets[] = {"v2", "v3", "v4", NULL};
    static const ir_level levels[] = {IR_LEVEL_V2, IR_LEVEL_V3, IR_LEVEL_V4, IR_LEVEL_V2};
    static const fusor_dtype types[] = {FUSOR_F32, FUSOR_F64, FUSOR_U8};
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < 6; i++)
            for (int type = 0; type < 3 && rt_host_level() >= (int)levels[t]; type++)
                check(types[type], targets[t], sizes[i][0], sizes[i][1]);
}
