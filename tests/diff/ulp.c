/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ulp.c: measures the accuracy of every approximated function of ops.def in one type, compiled as a map kernel for each
 * CPU level that the host has. MPFR (ulp_exact.c) is the judge; something faster chooses what is worth judging.
 *
 *   ulp [--type f32|f64|f16|bf16] [--function NAME] [--level NAME] [--stride N] [--all] [--range I/N] [--table]
 * [--time] [--fast]
 *
 * First a grid with MPFR throughout: special values with their neighbours, random bits, the row's domain, values around
 * 1, multiples of pi/2 and more (ulp_inputs.c).
 *
 * f32 then takes every N-th of all 2^32 floats (--all: every one; --range I/N: part I of N of them, from 0; two
 * arguments: as many pairs). What chooses is the f64 kernel of the same function at the best level, 2^-27 of an f32 ULP
 * from the exact value, which the grid checks to 0.001 ULP: each argument with the largest error so far, or with one
 * within 5 % of the bound, is measured again with MPFR, and that figure counts. The halves take all 65536 values by
 * MPFR.
 *
 * f64 goes on from the grid to a search around the worst arguments, and to 2^32 / N more of the grid's kinds; long
 * double chooses, with a margin of 0.1 ULP for what its own formulas lose.
 *
 * An error passes that is within the row's ULP or absolute bound (f64: 4 ULP); infinities, NaNs and the sign of zero
 * must be right. Exit status 1 when something does not pass. --table: rows for accuracy.sh. --time: speed instead of
 * accuracy. --fast: the fast tier, its functions against its bounds (fast.def). Without MPFR the chooser is the judge,
 * which the last line says. */
#include "../host_level.h"
#include "ir/scalar.h"
#include "ulp_exact.h"
#include "ulp_inputs.h"
#include "ulp_kernel.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SEARCH_ROUNDS = 12, SEARCH_POINTS = 512, HALVES = 65536, LANES = 4 };
static const double AGREEMENT = 0.001; /* of the f64 kernels with MPFR, in ULP of f32 */

typedef struct worst {
    double ulp, abs; /* largest within the ULP bound; largest absolute error of those beyond it */
    double x, y, got;
    long long n_failed, n_measured, n_summed;
    double sum; /* of the errors within the ULP bound where the result is a number */
} worst;

typedef struct job {
    const variant *v;
    const ir_op_info *info;
    ir_dtype type;
    double ulp, abs;                /* the bound */
    double inf_from;                /* magnitudes from here on round to infinity */
    kernel k[IR_LEVEL_COUNT], wide; /* wide: f64 at the best level */
    worst w[IR_LEVEL_COUNT];
    long long n_other; /* disagreements of the chooser on the grid */
    bool has_exact;
} job;

static double input[2][CHUNK], got[IR_LEVEL_COUNT][CHUNK], chosen[CHUNK + LANES];
static _Alignas(64) unsigned char raw[3][8 * CHUNK + 64];
static long long n_judged; /* errors measured with MPFR */
static double most_difference;

/* ---- running kernels on f64 values ---- */
static size_t size_of(ir_dtype t) { return ir_dtypes[t].bytes; }

static void run(const kernel *k, double *out, int n) {
    size_t bytes = size_of(k->type);
    for (int j = 0; j < ir_ops[k->v->op].max_in; j++)
        for (int i = 0; i < n; i++) {
            uint64_t b = input_bits(k->type, input[j][i]);
            memcpy(raw[j] + (size_t)i * bytes, &b, bytes);
        }
    kernel_run(k, raw[0], raw[1], raw[2], n);
    for (int i = 0; i < n; i++) {
        uint64_t b = 0;
        memcpy(&b, raw[2] + (size_t)i * bytes, bytes);
        out[i] = input_of_bits(k->type, b);
    }
}

/* ---- judging ---- */
static double unit_of(const job *j, long double v) {
    exact_format f = exact_format_of(j->type);
    int e;
    frexpl(fabsl(v), &e);
    if (e > f.largest) e = f.largest;
    return ldexp(1, (v == 0 || e < f.least ? f.least : e) - f.digits);
}

/* Error against `real`, in ULP; infinite where the class or the sign is wrong. */
static double error_of(const job *j, long double real, double out, double *abs_out) {
    *abs_out = INFINITY;
    if (real != real) return out != out ? *abs_out = 0 : INFINITY;
    if (out != out) return INFINITY;
    if (fabsl(real) == INFINITY) return (long double)out == real ? *abs_out = 0 : INFINITY;
    if (out == 0 && real == 0) return !signbit(out) == !signbit(real) ? *abs_out = 0 : INFINITY;
    if (out == 0 && !signbit(out) != !signbit(real)) return INFINITY;
    bool is_inf = isinf(out) && !signbit(out) == !signbit(real);
    if (is_inf && fabsl(real) >= (long double)j->inf_from) return *abs_out = 0;
    long double value = isinf(out) ? copysignl(ldexpl(1, exact_format_of(j->type).largest), out) : out;
    *abs_out = (double)fabsl(value - real);
    return *abs_out / unit_of(j, real);
}

static void record(job *j, int level, double ulp, double abs_error, int i, bool is_number) {
    worst *w = &j->w[level];
    w->n_measured++;
    if (is_number && ulp <= j->ulp) w->sum += ulp, w->n_summed++;
    if (!(ulp <= j->ulp || abs_error <= j->abs)) w->n_failed++;
    else if (ulp > j->ulp) { /* near zero: the absolute bound is what holds */ w->abs = fmax(w->abs, abs_error);
        return;
    }
    if (ulp > w->ulp) w->ulp = ulp, w->x = input[0][i], w->y = input[1][i], w->got = got[level][i];
}

/* Where the row has an absolute bound too, an error passes by either: "within 5 % of the bound" is then within 5 % of
 * both, since nothing else can be decided by a better measurement. */
static bool is_worth_judging(const job *j, int level, double ulp, double abs_error, double margin) {
    const worst *w = &j->w[level];
    if (!(ulp < 0.95 * j->ulp - margin) && !(abs_error < 0.95 * j->abs)) return true;
    return ulp > j->ulp ? abs_error > 0.999 * w->abs : ulp > w->ulp - margin;
}

static long double reference(const job *j, int i) {
    long double in[3] = {input[0][i], input[1][i], 0};
    return ir_scalar_real(j->v->op, in, j->v->attr, j->v->variant);
}

static void set_exact(const job *j, int i) {
    exact_set(j->v->op, j->v->variant, j->v->attr, input[0][i], input[1][i]);
    n_judged++;
}

/* n arguments in input, all by MPFR where it is there. f32: the f64 kernel must agree. */
static void judge_all(job *j, int n) {
    for (int l = 0; l < IR_LEVEL_COUNT; l++)
        if (j->k[l].fn) run(&j->k[l], got[l], n);
    if (j->type != FUSOR_F64) run(&j->wide, chosen, n);
    for (int i = 0; i < n; i++) {
        if (j->has_exact) set_exact(j, i);
        long double real = j->type == FUSOR_F64 ? reference(j, i) : (long double)chosen[i];
        for (int l = 0; l < IR_LEVEL_COUNT; l++) {
            if (!j->k[l].fn) continue;
            double abs_error, quick = error_of(j, real, got[l][i], &abs_error), ulp = quick;
            bool is_number = isfinite(got[l][i]);
            if (j->has_exact) {
                ulp = exact_error(j->type, got[l][i], &abs_error);
                is_number = exact_is_finite(j->type);
            }
            record(j, l, ulp, abs_error, i, is_number);
            /* Within the fast tier's bounds two neighbouring powers of 2 may be nearest: the precise run checks the f64
             * kernel. */
            if (j->type == FUSOR_F64 || !j->has_exact || j->v->is_fast) continue;
            double difference = quick == ulp ? 0 : fabs(quick - ulp) / fmax(1, ulp);
            if (difference < INFINITY) most_difference = fmax(most_difference, difference);
            if (!(difference <= AGREEMENT) && j->n_other++ == 0)
                printf("    %s at %a, %a: %a is off by %g ULP of the f64 kernel's value, by %g with MPFR\n",
                       j->info->name, input[0][i], input[1][i], got[l][i], quick, ulp);
        }
    }
}

/* n arguments in input, f64: long double, and MPFR where it is worth it. */
static void judge_by_reference(job *j, int n) {
    for (int l = 0; l < IR_LEVEL_COUNT; l++)
        if (j->k[l].fn) run(&j->k[l], got[l], n);
    for (int i = 0; i < n; i++) {
        long double real = reference(j, i);
        bool is_set = false;
        for (int l = 0; l < IR_LEVEL_COUNT; l++) {
            if (!j->k[l].fn) continue;
            double abs_error, ulp = error_of(j, real, got[l][i], &abs_error);
            if (j->has_exact && is_worth_judging(j, l, ulp, abs_error, 0.1)) {
                if (!is_set) set_exact(j, i);
                is_set = true;
                ulp = exact_error(j->type, got[l][i], &abs_error);
            }
            record(j, l, ulp, abs_error, i, fabsl(real) < (long double)j->inf_from);
        }
    }
}

/* ---- every float ---- */
typedef double lanes_d __attribute__((vector_size(8 * LANES)));
typedef int64_t lanes_i __attribute__((vector_size(8 * LANES)));

/* Errors in ULP of four floats, and which of them need a closer look: those of `least` ULP and more, and whatever is no
 * number or has another sign. 1 / ULP is 2^(23 - exponent), the exponent at least -126. */
static inline __attribute__((always_inline)) void errors_of(const double *real, const float *out, double least,
                                                            lanes_d *ulp, lanes_i *is_suspect) {
    lanes_d r, value, inverse, error;
    lanes_i bits, inverse_bits, error_bits, value_bits;
    memcpy(&r, real, sizeof r);
    for (int i = 0; i < LANES; i++) value[i] = (double)out[i];
    memcpy(&bits, &r, sizeof bits);
    memcpy(&value_bits, &value, sizeof value_bits);
    lanes_i exponent = bits >> 52 & 0x7ff, is_low = exponent<1023 - 126, is_high = exponent> 1023 + 127;
    exponent = (is_low & (1023 - 126)) | (is_high & (1023 + 127)) | (~(is_low | is_high) & exponent);
    inverse_bits = (2 * 1023 + 23 - exponent) << 52;
    error = value - r;
    memcpy(&inverse, &inverse_bits, sizeof inverse);
    memcpy(&error_bits, &error, sizeof error_bits);
    error_bits &= INT64_MAX;
    memcpy(&error, &error_bits, sizeof error);
    *ulp = error * inverse;
    *is_suspect = ~(lanes_i)(*ulp < least) | ((bits ^ value_bits) < 0);
}

/* Adds up the errors of n floats (a multiple of four); suspects: the numbers of those that need a closer look, which
 * are not added. Returns how many. */
__attribute__((target_clones("default", "avx2"))) static int scan(const double *real, const float *out, int n,
                                                                  double least, double *sum, int *suspects) {
    int count = 0;
    lanes_d total = {0};
    for (int i = 0; i < n; i += LANES) {
        lanes_d ulp;
        lanes_i is_suspect;
        int64_t some = 0;
        errors_of(real + i, out + i, least, &ulp, &is_suspect);
        for (int l = 0; l < LANES; l++) some |= is_suspect[l];
        if (!some) {
            total += ulp;
            continue;
        }
        for (int l = 0; l < LANES; l++) {
            if (is_suspect[l]) suspects[count++] = i + l;
            else total[0] += ulp[l];
        }
    }
    for (int l = 0; l < LANES; l++) *sum += total[l];
    return count;
}

/* Level l's n results, out; those that are numbers and not worth judging, nearly all, by scan. */
static void sweep_level(job *j, int l, float *out, int n) {
    static int suspects[CHUNK];
    worst *w = &j->w[l];
    int padded = (n + LANES - 1) & -LANES;
    for (int i = n; i < padded; i++) out[i] = (float)(chosen[i] = 0);
    double least = fmin(w->ulp - AGREEMENT, 0.95 * j->ulp);
    int count = scan(chosen, out, padded, least, &w->sum, suspects), n_plain = padded - count;
    for (int s = 0; s < count; s++) {
        int i = suspects[s];
        if (i >= n) {
            n_plain++; /* of the padding */
            continue;
        }
        double abs_error, value = (double)out[i], ulp = error_of(j, (long double)chosen[i], value, &abs_error);
        got[l][i] = value;
        if (ulp > 0 && j->has_exact && is_worth_judging(j, l, ulp, abs_error, AGREEMENT)) {
            set_exact(j, i);
            ulp = exact_error(j->type, value, &abs_error);
        }
        record(j, l, ulp, abs_error, i, fabs(chosen[i]) < j->inf_from);
    }
    n_plain -= padded - n;
    w->n_measured += n_plain;
    w->n_summed += n_plain;
}

static void sweep(job *j, long long first, long long last, long long stride) {
    static float x[2][CHUNK], out[CHUNK + LANES];
    for (long long at = first; at < last;) {
        int n = 0, most = CHUNK - (int)(at / CHUNK % 17); /* tails of every length */
        for (; n < most && at < last; n++, at++) {
            if (j->info->max_in == 2) {
                input_pair(FUSOR_F32, at, &input[0][n], &input[1][n]);
                x[0][n] = (float)input[0][n];
                x[1][n] = (float)input[1][n];
            } else {
                uint32_t bits = (uint32_t)(at * stride);
                memcpy(&x[0][n], &bits, 4);
                input[0][n] = (double)x[0][n];
            }
        }
        if (j->info->max_in == 1) memset(input[1], 0, sizeof input[1]);
        kernel_run(&j->wide, input[0], input[1], chosen, n);
        for (int l = 0; l < IR_LEVEL_COUNT; l++) {
            if (!j->k[l].fn) continue;
            kernel_run(&j->k[l], x[0], x[1], out, n);
            sweep_level(j, l, out, n);
        }
    }
}

/* ---- f64 and the halves ---- */
static int fill(const job *j, long long first, long long last) {
    int n = 0;
    for (; n < CHUNK && first + n < last; n++) {
        if (j->info->max_in == 2) input_pair(j->type, first + n, &input[0][n], &input[1][n]);
        else input[0][n] = input_single(j->type, j->info, first + n), input[1][n] = 0;
    }
    return n;
}

static void grid(job *j, long long points) {
    long long total = points + (j->info->max_in == 2 ? 8000 : input_specials(j->info));
    for (long long at = 0; at < total;) {
        int n = fill(j, at, total);
        judge_all(j, n);
        at += n;
    }
}

static void halves(job *j) {
    for (int at = 0; at < HALVES; at += CHUNK) {
        for (int i = 0; i < CHUNK; i++) input[0][i] = input_of_bits(j->type, (uint64_t)(at + i)), input[1][i] = 0;
        judge_all(j, CHUNK);
    }
}

/* Around the worst arguments so far, closer and closer. */
static void search(job *j) {
    for (int round = 0; round < SEARCH_ROUNDS; round++)
        for (int l = 0; l < IR_LEVEL_COUNT; l++) {
            if (!j->k[l].fn) continue;
            for (int i = 0; i < SEARCH_POINTS; i++) {
                input[0][i] = input_near(j->type, j->w[l].x);
                input[1][i] = i & 1 ? input_near(j->type, j->w[l].y) : j->w[l].y;
            }
            judge_by_reference(j, SEARCH_POINTS);
        }
}

static void wander(job *j, long long total) {
    long long start = 1000000; /* behind the special values */
    for (long long at = start; at < start + total;) {
        int n = fill(j, at, start + total);
        judge_by_reference(j, n);
        at += n;
    }
}

/* ---- reports ---- */
static void print_row(const job *j, int level, const char *stride) {
    const worst *w = &j->w[level];
    char at[96], beyond[32] = "", bound[48];
    snprintf(at, sizeof at, j->info->max_in == 2 ? "%a, %a" : "%a", w->x, w->y);
    if (w->abs > 0) snprintf(beyond, sizeof beyond, "%.1e", w->abs);
    snprintf(bound, sizeof bound, j->abs > 0 ? "%g or %.0e" : "%g", j->ulp, j->abs);
    printf("| %s%s | %s | %s | %.3f | %.4f | %s | %s | %s | %s | %lld |\n", j->info->name, j->v->variant ? "_tanh" : "",
           ir_dtypes[j->type].name, ir_levels[level].short_name, w->ulp, w->n_summed ? w->sum / (double)w->n_summed : 0,
           at, beyond, bound, stride, w->n_measured);
}

static void print_line(const job *j, int level) {
    const worst *w = &j->w[level];
    char at[96], name[64];
    snprintf(name, sizeof name, "%s%s", j->info->name, j->v->variant ? "_tanh" : "");
    snprintf(at, sizeof at, j->info->max_in == 2 ? "%a, %a" : "%a", w->x, w->y);
    printf("%-12s %-4s max %6.3f ULP  mean %5.3f  beyond it %.1e absolute  worst at %s: %a%s\n", name,
           ir_levels[level].short_name, w->ulp, w->n_summed ? w->sum / (double)w->n_summed : 0, w->abs, at, w->got,
           w->n_failed || j->n_other ? "  FAILED" : "");
    if (w->n_failed) printf("    %lld beyond %g ULP and %g\n", w->n_failed, j->ulp, j->abs);
}

typedef struct options {
    ir_dtype type;
    const char *only;
    int level;
    long long stride, part, parts;
    bool is_table, is_timing, is_fast;
} options;

/* Returns the number of levels where something failed; -1 when a kernel could not be made. */
static int measure(const options *o, const variant *v) {
    static job j;
    const ir_op_info *info = &ir_ops[v->op];
    double max = ldexp(2 - ldexp(1, -exact_format_of(o->type).digits), exact_format_of(o->type).largest - 1);
    j = (job){.v = v, .info = info, .type = o->type, .ulp = info->ulp, .abs = info->abs, .inf_from = max};
    if (o->type == FUSOR_F64)
        j.ulp = info->ulp > 4 ? info->ulp : 4, j.abs *= info->flags & IR_COSTLY ? 0 : 0x1p-29,
        j.inf_from = 0x1.fffffffffffffp1023;
    if (o->is_fast) j.ulp = ir_fast[v->op].ulp, j.abs = ir_fast[v->op].abs;
    if (o->type == FUSOR_F16 || o->type == FUSOR_BF16) j.ulp = 1;
    j.has_exact = exact_has(v->op, v->variant);
    if (!kernel_make(v, FUSOR_F64, kernel_best_level(), &j.wide)) return -1;
    for (int l = 0; l < IR_LEVEL_COUNT; l++) {
        if (!host_has_level(l) || (o->level >= 0 && l != o->level)) continue;
        if (!kernel_make(v, o->type, l, &j.k[l])) return -1;
    }
    char stride[32];
    long long total = ((INT64_C(1) << 32) + o->stride - 1) / o->stride;
    bool is_half = o->type == FUSOR_F16 || o->type == FUSOR_BF16, has_all = o->stride == 1 || is_half;
    grid(&j, o->type == FUSOR_F64 ? 3000 : is_half && info->max_in == 1 ? 0 : 6000);
    if (o->type == FUSOR_F32) sweep(&j, total * o->part / o->parts, total * (o->part + 1) / o->parts, o->stride);
    else if (o->type == FUSOR_F64) {
        wander(&j, total / 40); /* these are dear */
        search(&j);
    } else if (info->max_in == 1) halves(&j);
    snprintf(stride, sizeof stride, info->max_in == 1 && has_all && o->type != FUSOR_F64 ? "every" : "%lld", o->stride);
    int n_failed = j.n_other > 0;
    for (int l = 0; l < IR_LEVEL_COUNT; l++) {
        if (!j.k[l].fn) continue;
        if (o->is_table) print_row(&j, l, stride);
        else print_line(&j, l);
        n_failed += j.w[l].n_failed > 0;
        kernel_drop(&j.k[l]);
    }
    kernel_drop(&j.wide);
    if (j.n_other)
        printf("    %lld errors where MPFR and the f64 kernel differ by more than %g ULP\n", j.n_other, AGREEMENT);
    fflush(stdout);
    return n_failed;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nanoseconds an element on arguments of the row's test domain, by medians; with --fast both tiers in turns. */
static void time_it(const options *o, const variant *v) {
    const ir_op_info *info = &ir_ops[v->op];
    enum { N = 10000, ROUNDS = 101, CALLS = 4 };
    static double took[2][ROUNDS];
    const variant precise = {.op = v->op, .variant = v->variant, .attr = {v->attr[0], v->attr[1]}};
    const int tiers = o->is_fast ? 2 : 1;
    printf("%-12s %-4s", info->name, ir_dtypes[o->type].name);
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < N; i++) {
            double lo = fmax(info->lo, -8), hi = fmin(info->hi, 8);
            uint64_t b = input_bits(o->type, lo + (hi - lo) * ((double)(input_random() >> 11) * 0x1p-53));
            memcpy(raw[j] + (size_t)i * size_of(o->type), &b, size_of(o->type));
        }
    for (int l = 0; l < IR_LEVEL_COUNT; l++) {
        kernel k[2] = {{0}, {0}};
        if (!host_has_level(l) || (o->level >= 0 && l != o->level) || !kernel_make(&precise, o->type, l, &k[0]))
            continue;
        if (o->is_fast && !kernel_make(v, o->type, l, &k[1])) continue;
        for (int round = 0; round < ROUNDS; round++)
            for (int tier = 0; tier < tiers; tier++) {
                double start = seconds();
                for (int i = 0; i < CALLS; i++) kernel_run(&k[tier], raw[0], raw[1], raw[2], N);
                took[tier][round] = (seconds() - start) * 1e9 / (CALLS * N);
            }
        for (int tier = 0; tier < tiers; tier++) {
            qsort(took[tier], ROUNDS, sizeof(double), by_value);
            printf("%s%s %6.3f ns", tier ? "" : "  ", tier ? " fast" : ir_levels[l].short_name, took[tier][ROUNDS / 2]);
            kernel_drop(&k[tier]);
        }
        if (o->is_fast) printf(" x%.2f", took[0][ROUNDS / 2] / took[1][ROUNDS / 2]);
    }
    printf("%s\n", v->variant ? "  (tanh form)" : "");
}

static int usage(void) {
    fprintf(stderr, "usage: ulp [--type f32|f64|f16|bf16] [--function NAME] [--level NAME] [--stride N] [--all] "
                    "[--range I/N] [--table] [--time] [--fast]\n");
    return 2;
}

static bool parse(options *o, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (strcmp(name, "--all") == 0) o->stride = 1;
        else if (strcmp(name, "--table") == 0) o->is_table = true;
        else if (strcmp(name, "--time") == 0) o->is_timing = true;
        else if (strcmp(name, "--fast") == 0) o->is_fast = true;
        else if (++i >= argc) return false;
        else if (strcmp(name, "--function") == 0) o->only = argv[i];
        else if (strcmp(name, "--stride") == 0) o->stride = strtoll(argv[i], NULL, 10);
        else if (strcmp(name, "--range") == 0) {
            if (sscanf(argv[i], "%lld/%lld", &o->part, &o->parts) != 2) return false;
        } else if (strcmp(name, "--level") == 0) {
            o->level = level_of_name(argv[i]);
            if (o->level < 0) return false;
        } else if (strcmp(name, "--type") == 0) {
            bool is_found = false;
            for (int t = 1; t < IR_DTYPE_COUNT; t++)
                if (ir_is_float((ir_dtype)t) && strcmp(ir_dtypes[t].name, argv[i]) == 0)
                    o->type = (ir_dtype)t, is_found = true;
            if (!is_found) return false;
        } else return false;
    }
    return (!o->is_fast || o->type != FUSOR_F64) && o->stride >= 1 && o->part >= 0 && o->parts >= 1 &&
           o->part < o->parts;
}

int main(int argc, char **argv) {
    options o = {.type = FUSOR_F32, .level = -1, .stride = 10007, .parts = 1};
    if (!parse(&o, argc, argv)) return usage();
    int status = 0;
    bool is_known = !o.only, has_all_exact = true;
    for (int op = 0; op < IR_OP_COUNT; op++) {
        const ir_op_info *info = &ir_ops[op];
        bool has_kernels = (info->kernel_types >> FUSOR_F32 & 1) && (info->kernel_types >> FUSOR_F64 & 1);
        if (info->kind != IR_KIND_EW || !has_kernels || info->max_in > 2) continue;
        if (o.is_fast ? !ir_fast[op].levels : (info->flags & IR_EXACT) != 0) continue;
        if (info->n_scalar_attrs > 2 || (o.only && strcmp(o.only, info->name) != 0)) continue;
        is_known = true;
        for (int form = 0; form < 2; form++) {
            bool has_words = info->n_attrs > 0 && info->attrs[0].type == IR_ATTR_ENUM;
            if (form && !has_words) break;
            variant v = {.op = (ir_op)op, .variant = form, .is_fast = o.is_fast};
            for (int j = 0; j < info->n_scalar_attrs; j++) v.attr[j] = (double)(float)info->attrs[j].default_value;
            has_all_exact = has_all_exact && exact_has(v.op, form);
            if (o.is_timing) time_it(&o, &v);
            else if (measure(&o, &v) != 0) status = 1;
        }
    }
    if (n_judged > 0 && !o.is_table && o.type == FUSOR_F64) printf("%lld errors measured with MPFR\n", n_judged);
    else if (n_judged > 0 && !o.is_table)
        printf("%lld errors measured with MPFR; the f64 kernels differ by at most %.1e ULP\n", n_judged,
               most_difference);
    if (!has_all_exact && !o.is_timing) printf("MPFR: missing; what chooses was the judge\n");
    if (!is_known) fprintf(stderr, "ulp: no approximated function '%s'\n", o.only);
    return is_known ? status : 2;
}
