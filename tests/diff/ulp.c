/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ulp.c: measures the accuracy of every approximated f32 function of ops.def, compiled as a map kernel for each CPU
 * level that the host has. MPFR (ulp_exact.c) is the judge; the row's reference in long double, whose error is about
 * 2^-40 of an f32 ULP, chooses what is worth judging.
 *
 *   ulp [--function NAME] [--level NAME] [--stride N] [--all] [--table] [--time]
 *
 * First a coarse grid with MPFR throughout: every 40009th float and special points, for functions of two arguments as
 * many pairs: every pair of a list of special values, then random bits, arguments around 1 with large exponents,
 * moderate values, values of similar size. Long double must agree to 0.001 ULP there; the mean error is that of the
 * grid. Then every N-th of all 2^32 floats, whatever its class (--all: every one; two arguments: as many pairs), in
 * long double: each argument with the largest error so far, or with one within 5 % of the bound, is measured again
 * with MPFR, and that figure counts.
 *
 * An error passes that is within the row's ULP or absolute bound; infinities, NaNs and the sign of zero must be right.
 * Exit status 1 when something does not pass. --table: rows for accuracy.sh. --time: speed instead of accuracy.
 * Without MPFR long double is the judge, which the last line says. */
#include "ir/codegen_api.h"
#include "ir/kernel.h"
#include "ir/scalar.h"
#include "ulp_exact.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

const fusor_codegen_table *fusor_codegen_module(void);

enum { CHUNK = 16384, GRID = 40009 };

typedef struct variant {
    ir_op op;
    int variant;
    double attr[2]; /* rounded to f32, as a kernel's scalars are */
} variant;
typedef struct kernel {
    ir_kernel_fn fn;
    void *map;
    size_t bytes;
} kernel;
typedef struct worst {
    double ulp, abs; /* largest within the ULP bound; largest absolute error of those beyond it */
    float x, y, got;
    long long n_inexact, n_failed;
    double sum; /* of the errors on the grid where the result is a number */
    long long n_summed;
} worst;

static float input[2][CHUNK + 16], output[IR_LEVEL_COUNT][CHUNK + 16];
static float reference[CHUNK];

static void *allocate(void *user, size_t bytes) {
    (void)user;
    return malloc(bytes);
}

static bool has_level(int level) {
    if (level == IR_LEVEL_V4) return __builtin_cpu_supports("x86-64-v4");
    return level == IR_LEVEL_V3 ? __builtin_cpu_supports("x86-64-v3") : __builtin_cpu_supports("x86-64-v2");
}

static bool compile(const variant *v, int level, kernel *out) {
    const ir_op_info *info = &ir_ops[v->op];
    char text[1024], operands[64] = "";
    int n = 0, value = 0;
    n += snprintf(text + n, sizeof text - (size_t)n, "fusor-kernel %d\nkind map\nlevel %s\ndim p ?\n", IR_KERNEL_ABI,
                  ir_levels[level].name);
    for (int i = 0; i < info->max_in; i++) n += snprintf(text + n, sizeof text - (size_t)n, "buffer in f32 1\n");
    n += snprintf(text + n, sizeof text - (size_t)n, "buffer out f32 1\n");
    for (int i = 0; i < info->n_scalar_attrs; i++) n += snprintf(text + n, sizeof text - (size_t)n, "scalar f32\n");
    for (int i = 0; i < info->max_in + info->n_scalar_attrs; i++) {
        bool is_load = i < info->max_in;
        n += snprintf(text + n, sizeof text - (size_t)n, "%%%d = %s.f32 #%d\n", value++, is_load ? "load" : "scalar",
                      is_load ? i : i - info->max_in);
        snprintf(operands + strlen(operands), sizeof operands - strlen(operands), " %%%d", i);
    }
    n += snprintf(text + n, sizeof text - (size_t)n, "%%%d = %s.f32%s", value, info->name, operands);
    if (v->variant) n += snprintf(text + n, sizeof text - (size_t)n, " variant %d", v->variant);
    n += snprintf(text + n, sizeof text - (size_t)n, "\n%%%d = store.f32 #%d %%%d\n", value + 1, info->max_in, value);

    fusor_codegen_request q = {.version = FUSOR_CODEGEN_VERSION,
                               .stage = FUSOR_CODEGEN_BLOB,
                               .description = text,
                               .description_bytes = (size_t)n,
                               .symbol = "fk_ulp",
                               .allocate = allocate};
    fusor_codegen_result r = {0};
    if (fusor_codegen_module()->generate(&q, &r) != 0) {
        fprintf(stderr, "ulp: %s\n%s", r.error, text);
        return false;
    }
    out->bytes = r.bytes;
    out->map = mmap(NULL, r.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (out->map == MAP_FAILED) return false;
    memcpy(out->map, r.data, r.bytes);
    free(r.data);
    if (mprotect(out->map, r.bytes, PROT_READ | PROT_EXEC) != 0) return false;
    void *entry = (char *)out->map + r.entry;
    memcpy(&out->fn, &entry, sizeof out->fn);
    return true;
}

/* A count that is no multiple of the lanes: tails of every length are measured too. */
static void run(const kernel *k, const variant *v, float *dst, int n) {
    void *buffers[3] = {input[0], ir_ops[v->op].max_in == 2 ? (void *)input[1] : (void *)dst, dst};
    int64_t size = n, stride[3] = {1, 1, 1};
    uint64_t scalar[2] = {0};
    for (int i = 0; i < 2; i++) memcpy(&scalar[i], &(float){(float)v->attr[i]}, 4);
    ir_kernel_args args = {.version = IR_KERNEL_ABI,
                           .tune = {[IR_TUNE_MAP_ROWS] = 1, [IR_TUNE_MAP_COLUMNS] = CHUNK + 64},
                           .buffer = buffers,
                           .size = &size,
                           .stride = stride,
                           .scalar = scalar};
    k->fn(&args, 0, 1);
}

/* ---- inputs ---- */
static uint64_t random_state = 20240229;
static uint64_t random_bits(void) { /* splitmix64 */
    uint64_t z = (random_state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static float of_bits(uint32_t b) {
    float f;
    memcpy(&f, &b, 4);
    return f;
}

static const double specials[] = {0, -0x1.1af982p+0,
                                  1,
                                  2,
                                  3,
                                  0.5,
                                  0.75,
                                  1.5,
                                  4,
                                  5,
                                  127,
                                  128,
                                  16777215,
                                  16777216,
                                  16777217,
                                  33554432,
                                  1e30,
                                  1e-30,
                                  0x1p-149,
                                  0x1p-126,
                                  0x1.fffffcp-127,
                                  0x1.fffffep127,
                                  0x1.fffffep-1,
                                  0x1.000002p0,
                                  INFINITY,
                                  NAN};
enum { N_SPECIALS = sizeof specials / sizeof *specials };

static void fill_pair(long long number, int i) {
    uint64_t r = random_bits();
    float x, y;
    if (number < 4 * N_SPECIALS * N_SPECIALS) {
        long long n = number / 4;
        x = (float)specials[n / N_SPECIALS] * (number & 1 ? -1 : 1);
        y = (float)specials[n % N_SPECIALS] * (number & 2 ? -1 : 1);
    } else if (number % 4 == 0) {
        x = of_bits((uint32_t)r), y = of_bits((uint32_t)(r >> 32));
    } else if (number % 4 == 1) { /* around 1, and exponents of any size */
        x = of_bits(0x3f800000 + (uint32_t)(int32_t)((int32_t)r >> (r >> 32 & 15) >> 8));
        y = of_bits(0x3f800000 + (uint32_t)(r >> 36) % 0x0d000000) * (r >> 63 ? -1 : 1);
    } else if (number % 4 == 2) { /* moderate; every second y an integer or a half */
        x = of_bits(0x3a000000 + (uint32_t)r % 0x0c000000) * (r >> 63 ? -1 : 1);
        y = (float)((int)(r >> 40 & 511) - 255) / (r >> 50 & 1 ? 2.0f : 1.7f);
    } else { /* of similar size */
        x = of_bits((uint32_t)r), y = of_bits((uint32_t)r ^ (uint32_t)(r >> 40));
    }
    input[0][i] = x;
    input[1][i] = y;
}

/* ---- judging ---- */
/* Long double and MPFR may differ by this many ULP (relative to an error above 1 ULP). */
static const double AGREEMENT = 0.001;
static long long n_judged; /* errors measured with MPFR */
static double most_difference;

static double ulp_of(long double v) {
    int e;
    frexpl(fabsl(v), &e);
    if (e > 128) e = 128;
    return ldexp(1, (e < -125 ? -125 : e) - 24);
}

/* In ULP; infinite where the class or the sign is wrong. abs_out: the absolute error. */
static double error_of(const variant *v, float x, float y, float got, double *abs_out) {
    long double in[3] = {x, y, 0}, real = ir_scalar_real(v->op, in, v->attr, v->variant);
    *abs_out = INFINITY;
    if (real != real) return got != got ? 0 : INFINITY;
    if (got != got) return INFINITY;
    if (fabsl(real) == INFINITY) return (long double)got == real ? 0 : INFINITY;
    long double value = isinf(got) ? copysignl(0x1p128L, got) : got;
    if (got == 0 && real == 0) return !signbit(got) == !signbit(real) ? 0 : INFINITY;
    *abs_out = (double)fabsl(value - real);
    if (isinf(got) && (float)real == got) return 0;
    return *abs_out / ulp_of(real);
}

static void record(const ir_op_info *info, double ulp, double abs_error, float x, float y, float got, worst *w) {
    if (!(ulp <= info->ulp || abs_error <= info->abs)) w->n_failed++;
    else if (ulp > info->ulp) { /* near zero: the absolute bound is what holds */
        w->abs = fmax(w->abs, abs_error);
        return;
    }
    if (ulp > w->ulp) w->ulp = ulp, w->x = x, w->y = y, w->got = got;
}

/* Where the row has an absolute bound too, an error passes by either: "within 5 % of the bound" is then within 5 % of
 * both, since nothing else can be decided by a better measurement. */
static bool is_worth_judging(const ir_op_info *info, double ulp, double abs_error, const worst *w) {
    if (!(ulp < 0.95 * info->ulp) && !(abs_error < 0.95 * info->abs)) return true;
    return ulp > info->ulp ? abs_error > 0.999 * w->abs : ulp > w->ulp - AGREEMENT;
}

static void judge(const variant *v, const float *got, int n, worst *w) {
    const ir_op_info *info = &ir_ops[v->op];
    bool has_exact = exact_has(v->op, v->variant);
    for (int i = 0; i < n; i++) {
        uint32_t a, b;
        memcpy(&a, &got[i], 4);
        memcpy(&b, &reference[i], 4);
        if (a == b || (got[i] != got[i] && reference[i] != reference[i])) continue;
        w->n_inexact++;
        float x = input[0][i], y = input[1][i];
        double abs_error, ulp = error_of(v, x, y, got[i], &abs_error);
        if (has_exact && is_worth_judging(info, ulp, abs_error, w)) {
            exact_set(v->op, v->variant, v->attr, x, y);
            ulp = exact_error(got[i], &abs_error);
            n_judged++;
        }
        record(info, ulp, abs_error, x, y, got[i], w);
    }
}

/* All of the arguments in input, by MPFR where it is there. Returns how many errors long double has otherwise. */
static long long judge_grid(const variant *v, const kernel *k, int n, worst *w) {
    long long n_other = 0;
    bool has_exact = exact_has(v->op, v->variant);
    for (int l = 0; l < IR_LEVEL_COUNT; l++)
        if (k[l].fn) run(&k[l], v, output[l], n);
    for (int i = 0; i < n; i++) {
        float x = input[0][i], y = input[1][i];
        if (has_exact) exact_set(v->op, v->variant, v->attr, x, y);
        for (int l = 0; l < IR_LEVEL_COUNT; l++) {
            if (!k[l].fn) continue;
            float got = output[l][i];
            double abs_error, ulp = error_of(v, x, y, got, &abs_error);
            if (has_exact) {
                double wide = ulp;
                ulp = exact_error(got, &abs_error);
                n_judged++;
                double difference = wide == ulp ? 0 : fabs(wide - ulp) / fmax(1, ulp);
                if (difference < INFINITY) most_difference = fmax(most_difference, difference);
                if (!(difference <= AGREEMENT) && n_other++ == 0)
                    printf("    %s at %a, %a: %a is off by %g ULP in long double, by %g with MPFR\n",
                           ir_ops[v->op].name, (double)x, (double)y, (double)got, wide, ulp);
            }
            bool is_number = has_exact ? exact_is_finite() : isfinite(got);
            record(&ir_ops[v->op], ulp, abs_error, x, y, got, &w[l]);
            if (is_number && ulp < INFINITY) w[l].sum += ulp, w[l].n_summed++;
        }
    }
    return n_other;
}

static void refer(const variant *v, int n) {
    for (int i = 0; i < n; i++) {
        ir_bits in[2] = {0, 0};
        memcpy(&in[0], &input[0][i], 4);
        memcpy(&in[1], &input[1][i], 4);
        ir_bits bits = ir_scalar_ew(v->op, FUSOR_F32, in, v->attr, v->variant);
        memcpy(&reference[i], &bits, 4);
    }
}

/* Nanoseconds an element, in the first cache, on arguments of the row's test domain: the best of many runs. */
static void time_it(const variant *v, int only_level) {
    const ir_op_info *info = &ir_ops[v->op];
    printf("%-12s", info->name);
    for (int i = 0; i < 2048; i++)
        for (int j = 0; j < 2; j++) {
            double lo = fmax(info->lo, -20), hi = fmin(info->hi, 20);
            input[j][i] = (float)(lo + (hi - lo) * ((double)(random_bits() >> 11) * 0x1p-53));
        }
    for (int l = 0; l < IR_LEVEL_COUNT; l++) {
        kernel k;
        if (!has_level(l) || (only_level >= 0 && l != only_level) || !compile(v, l, &k)) continue;
        double best = 1e9;
        for (int repeat = 0; repeat < 200; repeat++) {
            struct timespec a, b;
            clock_gettime(CLOCK_MONOTONIC, &a);
            for (int i = 0; i < 20; i++) run(&k, v, output[0], 2048);
            clock_gettime(CLOCK_MONOTONIC, &b);
            double ns = (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
            best = fmin(best, ns / (20 * 2048));
        }
        printf("  %s %6.3f ns", ir_levels[l].short_name, best);
        munmap(k.map, k.bytes);
    }
    printf("%s\n", v->variant ? "  (tanh form)" : "");
}

/* The points of the grid: one-argument functions see special values and their neighbours as well. */
static void fill_grid(const variant *v, long long number, int i) {
    const ir_op_info *info = &ir_ops[v->op];
    if (info->max_in == 2) {
        fill_pair(number, i);
        return;
    }
    input[1][i] = 0;
    if (number >= 6 * (N_SPECIALS + 2)) {
        input[0][i] = of_bits((uint32_t)((number - 6 * (N_SPECIALS + 2)) * GRID));
        return;
    }
    long long n = number / 6;
    float x = (float)(n < N_SPECIALS ? specials[n] : n == N_SPECIALS ? info->lo : info->hi);
    if (number % 6 / 2 == 1) x = nextafterf(x, INFINITY);
    if (number % 6 / 2 == 2) x = nextafterf(x, -INFINITY);
    input[0][i] = number & 1 ? -x : x;
}

static void print_row(const variant *v, const char *name, int level, const worst *w, long long stride) {
    const ir_op_info *info = &ir_ops[v->op];
    char at[96], beyond[32] = "", bound[48], each[32];
    snprintf(at, sizeof at, info->max_in == 2 ? "%a, %a" : "%a", (double)w->x, (double)w->y);
    if (w->abs > 0) snprintf(beyond, sizeof beyond, "%.1e", w->abs);
    snprintf(bound, sizeof bound, info->abs > 0 ? "%g or %g" : "%g", info->ulp, info->abs);
    snprintf(each, sizeof each, stride == 1 && info->max_in == 1 ? "every float" : "%lld", stride);
    printf("| %s | %s | %.3f | %.3f | %s | %s | %s | %s |\n", name, ir_levels[level].short_name, w->ulp,
           w->n_summed ? w->sum / (double)w->n_summed : 0, at, beyond, bound, each);
}

/* Returns the number of levels where something failed; -1 when a kernel could not be made. */
static int measure(const variant *v, int only_level, long long stride, bool is_table) {
    const ir_op_info *info = &ir_ops[v->op];
    kernel k[IR_LEVEL_COUNT] = {0};
    worst w[IR_LEVEL_COUNT] = {0};
    for (int l = 0; l < IR_LEVEL_COUNT; l++) {
        if (!has_level(l) || (only_level >= 0 && l != only_level)) continue;
        if (!compile(v, l, &k[l])) return -1;
    }
    long long n_other = 0, total = ((INT64_C(1) << 32) + GRID - 1) / GRID;
    if (info->max_in == 1) total += 6 * (N_SPECIALS + 2);
    for (long long at = 0; at < total;) {
        int n = 0;
        for (; n < CHUNK && at < total; n++, at++) fill_grid(v, at, n);
        n_other += judge_grid(v, k, n, w);
    }
    total = ((INT64_C(1) << 32) + stride - 1) / stride;
    for (long long at = 0; at < total;) {
        int n = 0, most = CHUNK - (int)(at / CHUNK % 17);
        for (; n < most && at < total; n++, at++) {
            if (info->max_in == 2) fill_pair(at, n);
            else input[0][n] = of_bits((uint32_t)(at * stride));
        }
        refer(v, n);
        for (int l = 0; l < IR_LEVEL_COUNT; l++) {
            if (!k[l].fn) continue;
            run(&k[l], v, output[l], n);
            judge(v, output[l], n, &w[l]);
        }
    }
    int n_failed = n_other > 0;
    for (int l = 0; l < IR_LEVEL_COUNT; l++) {
        if (!k[l].fn) continue;
        char name[64], at[96];
        snprintf(name, sizeof name, "%s%s", info->name, v->variant ? "_tanh" : "");
        snprintf(at, sizeof at, info->max_in == 2 ? "%a, %a" : "%a", (double)w[l].x, (double)w[l].y);
        if (is_table) print_row(v, name, l, &w[l], stride);
        else
            printf("%-12s %-4s max %6.3f ULP  mean %5.3f  not nearest %7.4f %%  beyond it %.1e absolute"
                   "  worst at %s: %a%s\n",
                   name, ir_levels[l].short_name, w[l].ulp, w[l].n_summed ? w[l].sum / (double)w[l].n_summed : 0,
                   100.0 * (double)w[l].n_inexact / (double)total, w[l].abs, at, (double)w[l].got,
                   w[l].n_failed || n_other ? "  FAILED" : "");
        if (w[l].n_failed)
            printf("    %lld beyond %g ULP and %g\n", w[l].n_failed, info->ulp, info->abs), n_failed++;
        munmap(k[l].map, k[l].bytes);
    }
    if (n_other) printf("    %lld errors where MPFR and long double differ by more than %g ULP\n", n_other, AGREEMENT);
    fflush(stdout);
    return n_failed;
}

static int usage(void) {
    fprintf(stderr, "usage: ulp [--function NAME] [--level NAME] [--stride N] [--all] [--table] [--time]\n");
    return 2;
}

int main(int argc, char **argv) {
    const char *only = NULL;
    int level = -1, status = 0;
    long long stride = 10007;
    bool is_timing = false, is_table = false, has_all_exact = true;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--all") == 0) stride = 1;
        else if (strcmp(argv[i], "--table") == 0) is_table = true;
        else if (strcmp(argv[i], "--time") == 0) is_timing = true;
        else if (i + 1 < argc && strcmp(argv[i], "--function") == 0) only = argv[++i];
        else if (i + 1 < argc && strcmp(argv[i], "--stride") == 0) stride = strtoll(argv[++i], NULL, 10);
        else if (i + 1 < argc && strcmp(argv[i], "--level") == 0) level = ir_level_find(argv[++i]);
        else return usage();
        if (stride < 1 || (strcmp(argv[i - 1], "--level") == 0 && level < 0)) return usage();
    }
    bool is_known = !only;
    for (int op = 0; op < IR_OP_COUNT; op++) {
        const ir_op_info *info = &ir_ops[op];
        bool is_f32 = info->kind == IR_KIND_EW && (info->kernel_types >> FUSOR_F32 & 1) && !(info->flags & IR_EXACT);
        if (!is_f32 || info->max_in > 2 || info->n_scalar_attrs > 2 || (only && strcmp(only, info->name) != 0))
            continue;
        is_known = true;
        for (int form = 0; form < 2; form++) {
            bool has_words = info->n_attrs > 0 && info->attrs[0].type == IR_ATTR_ENUM;
            if (form && !has_words) break;
            variant v = {(ir_op)op, form, {0}};
            for (int j = 0; j < info->n_scalar_attrs; j++) v.attr[j] = (float)info->attrs[j].default_value;
            has_all_exact = has_all_exact && exact_has(v.op, form);
            if (is_timing) time_it(&v, level);
            else if (measure(&v, level, stride, is_table) != 0) status = 1;
        }
    }
    if (n_judged > 0 && !is_table)
        printf("%lld errors measured with MPFR; long double differs by at most %.1e ULP\n", n_judged, most_difference);
    if (!has_all_exact && !is_timing) printf("MPFR: missing; long double was the judge\n");
    if (!is_known) fprintf(stderr, "ulp: no approximated f32 function '%s'\n", only);
    return is_known ? status : 2;
}
