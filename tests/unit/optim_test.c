/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* optim_test.c: optimizer steps: composed ones (optim.h) against the formulas in double, three steps each, one kernel a
 * step; and calls over many sets of buffers: the bits of separate calls, for every number of threads, and their
 * errors. */
#include "api_test.h"
#include "lazy.h"
#include <math.h>
#include <stdlib.h>

/* ---- composed steps ---- */
enum { N = 100, STEPS = 8 };
typedef struct cell {
    double p, m, v;
} cell;

static double decayed(const cell *c, double g, const fusor_optim_options *o) { return g + o->weight_decay * c->p; }

static void sgd(cell *c, double g, const fusor_optim_options *o) { c->p -= o->lr * decayed(c, g, o); }
static void momentum(cell *c, double g, const fusor_optim_options *o) {
    c->m = o->momentum * c->m + (1 - o->dampening) * decayed(c, g, o);
    c->p -= o->lr * c->m;
}
static void nesterov(cell *c, double g, const fusor_optim_options *o) {
    double d = decayed(c, g, o);
    c->m = o->momentum * c->m + d;
    c->p -= o->lr * (d + o->momentum * c->m);
}
static void adam(cell *c, double g, const fusor_optim_options *o) {
    double d = decayed(c, g, o), t = (double)o->step;
    c->m = o->beta1 * c->m + (1 - o->beta1) * d;
    c->v = o->beta2 * c->v + (1 - o->beta2) * d * d;
    c->p -= o->lr / (1 - pow(o->beta1, t)) * c->m / (sqrt(c->v / (1 - pow(o->beta2, t))) + o->epsilon);
}
static void adamw(cell *c, double g, const fusor_optim_options *o) {
    fusor_optim_options plain = *o;
    plain.weight_decay = 0;
    c->p *= 1 - o->lr * o->weight_decay;
    adam(c, g, &plain);
}
static void adamax(cell *c, double g, const fusor_optim_options *o) {
    double d = decayed(c, g, o);
    c->m = o->beta1 * c->m + (1 - o->beta1) * d;
    c->v = fmax(o->beta2 * c->v, fabs(d) + o->epsilon);
    c->p -= o->lr / (1 - pow(o->beta1, (double)o->step)) * c->m / c->v;
}
static void nadam(cell *c, double g, const fusor_optim_options *o) {
    double d = decayed(c, g, o), t = (double)o->step;
    double mu = o->beta1 * (1 - 0.5 * pow(0.96, t * o->momentum_decay));
    double next = o->beta1 * (1 - 0.5 * pow(0.96, (t + 1) * o->momentum_decay));
    c->m = o->beta1 * c->m + (1 - o->beta1) * d;
    c->v = o->beta2 * c->v + (1 - o->beta2) * d * d;
    double den = sqrt(c->v / (1 - pow(o->beta2, t))) + o->epsilon;
    c->p -= o->lr * (1 - mu) / (1 - o->mu_product) * d / den + o->lr * next / (1 - o->mu_product * next) * c->m / den;
}
static void radam(cell *c, double g, const fusor_optim_options *o) {
    double d = decayed(c, g, o), t = (double)o->step, b2t = pow(o->beta2, t);
    c->m = o->beta1 * c->m + (1 - o->beta1) * d;
    c->v = o->beta2 * c->v + (1 - o->beta2) * d * d;
    double corrected = c->m / (1 - pow(o->beta1, t)), inf = 2 / (1 - o->beta2) - 1, rho = inf - 2 * t * b2t / (1 - b2t);
    if (rho <= 5) {
        c->p -= o->lr * corrected;
        return;
    }
    double r = sqrt((rho - 4) * (rho - 2) * inf / ((inf - 4) * (inf - 2) * rho));
    c->p -= o->lr * corrected * r * sqrt(1 - b2t) / (sqrt(c->v) + o->epsilon);
}
static void adagrad(cell *c, double g, const fusor_optim_options *o) {
    double d = decayed(c, g, o);
    c->m += d * d;
    c->p -= o->lr / (1 + (double)(o->step - 1) * o->lr_decay) * d / (sqrt(c->m) + o->epsilon);
}
static void rmsprop(cell *c, double g, const fusor_optim_options *o) {
    double d = decayed(c, g, o);
    c->m = o->alpha * c->m + (1 - o->alpha) * d * d;
    c->p -= o->lr * d / (sqrt(c->m) + o->epsilon);
}

typedef struct algorithm {
    const char *name;
    fusor_optim (*step)(fusor_optim s, fusor_tensor g, const fusor_optim_options *o);
    void (*formula)(cell *c, double g, const fusor_optim_options *o);
    int n_state; /* of m, v */
    fusor_optim_options o;
} algorithm;
static const algorithm algorithms[] = {
    {"sgd", fusor_optim_sgd, sgd, 0, FUSOR_SGD_INIT},
    {"momentum", fusor_optim_momentum, momentum, 1, FUSOR_SGD_INIT},
    {"nesterov", fusor_optim_nesterov, nesterov, 1, FUSOR_SGD_INIT},
    {"adam", fusor_optim_adam, adam, 2, FUSOR_ADAM_INIT},
    {"adamw", fusor_optim_adamw, adamw, 2, FUSOR_ADAMW_INIT},
    {"adamax", fusor_optim_adamax, adamax, 2, FUSOR_ADAMAX_INIT},
    {"nadam", fusor_optim_nadam, nadam, 2, FUSOR_NADAM_INIT},
    {"radam", fusor_optim_radam, radam, 2, FUSOR_RADAM_INIT},
    {"adagrad", fusor_optim_adagrad, adagrad, 1, FUSOR_ADAGRAD_INIT},
    {"rmsprop", fusor_optim_rmsprop, rmsprop, 1, FUSOR_RMSPROP_INIT},
};

static float gradient(int step, int i) { return (float)(sin(1.7 * i + step) * (i % 7 ? 1 : 1e-4)); }

static void check_algorithm(const algorithm *a, double weight_decay) {
    fusor_context *ctx = new_context(1);
    float p[N], m[N] = {0}, v[N] = {0}, g[N];
    cell want[N];
    fusor_optim_options o = a->o;
    o.weight_decay = weight_decay;
    o.lr_decay = a->formula == adagrad ? 0.1 : 0;
    for (int i = 0; i < N; i++) {
        p[i] = (float)cos(i);
        want[i] = (cell){p[i], 0, 0};
    }
    fusor_optim at = {.p = fusor_wrap(ctx, p, FUSOR_F32, FUSOR_SHAPE(N))};
    if (a->n_state > 0) at.m = fusor_wrap(ctx, m, FUSOR_F32, FUSOR_SHAPE(N));
    if (a->n_state > 1) at.v = fusor_wrap(ctx, v, FUSOR_F32, FUSOR_SHAPE(N));
    for (int step = 1; step <= STEPS; step++) {
        fusor_status status = FUSOR_ERROR_INTERNAL;
        o.step = step;
        if (a->formula == nadam) o.mu_product *= fusor_optim_nadam_mu(&o);
        for (int i = 0; i < N; i++) g[i] = gradient(step, i);
        for (int i = 0; i < N; i++) a->formula(&want[i], g[i], &o);
        FUSOR_SCOPE(ctx, &status) {
            fusor_tensor G = fusor_wrap_const(ctx, g, FUSOR_F32, FUSOR_SHAPE(N));
            OK(fusor_optim_assign(at, a->step(at, G, &o)));
        }
        OK(status);
        cr_assert_eq(lazy_get_stats(ctx).last_steps, 1, "%s: %u steps", a->name, lazy_get_stats(ctx).last_steps);
        for (int i = 0; i < N; i++) {
            double bound = 3e-6 * (1 + fabs(want[i].p));
            cr_assert_lt(fabs(p[i] - want[i].p), bound, "%s: step %d, p[%d] is %.9g; expected %.9g", a->name, step, i,
                         p[i], want[i].p);
            if (a->n_state > 0)
                cr_assert_lt(fabs(m[i] - want[i].m), 3e-6 * (1 + fabs(want[i].m)), "%s: m[%d]", a->name, i);
            if (a->n_state > 1)
                cr_assert_lt(fabs(v[i] - want[i].v), 3e-6 * (1 + fabs(want[i].v)), "%s: v[%d]", a->name, i);
        }
    }
    /* another step, learning rate and epsilon are arguments; radam changes its formula once */
    cr_assert_eq(lazy_get_stats(ctx).plans_made, a->formula == radam ? 2 : 1, "%s", a->name);
    fusor_context_free(ctx);
}

Test(optim, composed_steps_are_the_formulas_in_one_kernel) {
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++) {
        check_algorithm(&algorithms[i], 0);
        check_algorithm(&algorithms[i], 0.05);
    }
}

Test(optim, bad_options_are_an_error_of_the_scope) {
    fusor_context *ctx = new_context(1);
    float p[2] = {1, 2}, g[2] = {1, 1};
    fusor_optim at = {.p = fusor_wrap(ctx, p, FUSOR_F32, FUSOR_SHAPE(2))};
    at.m = at.v = at.p;
    fusor_tensor G = fusor_wrap_const(ctx, g, FUSOR_F32, FUSOR_SHAPE(2));
    fusor_optim_options o = FUSOR_ADAM_INIT;
    o.step = 0;
    FAILS(fusor_status_of(fusor_optim_adam(at, G, &o).p), FUSOR_ERROR_ARGUMENT, "counts from 1");
    FAILS(fusor_status_of(fusor_optim_sgd(at, G, NULL).p), FUSOR_ERROR_ARGUMENT, "FUSOR_ADAM_INIT");
    o.step = 1;
    o.size = 0;
    cr_assert_eq(fusor_status_of(fusor_optim_adam(at, G, &o).p), FUSOR_OK); /* all fields count */
    o = (fusor_optim_options)FUSOR_ADAM_INIT;
    o.step = 0;
    fusor_status status = FUSOR_OK;
    FUSOR_SCOPE(ctx, &status) {
        (void)fusor_optim_assign((fusor_optim){.p = at.p}, (fusor_optim){.p = fusor_optim_adam(at, G, &o).p});
    }
    cr_assert_eq(status, FUSOR_ERROR_ARGUMENT);
    cr_assert(p[0] == 1 && p[1] == 2);
    fusor_context_free(ctx);
}

/* ---- calls over many sets ---- */
static const char *const adamw_text = "func @f(%p: f32[N], %m: f32[N], %v: f32[N], %g: f32[N], %lr: f32) -> (%q: "
                                      "f32[N] alias %p, %n: f32[N] alias %m, %w: f32[N] alias %v) {\n"
                                      "  %a = mul(%m, 0.9)\n  %b = mul(%g, 0.1)\n  %n = add(%a, %b)\n  %c = mul(%v, "
                                      "0.999)\n  %d = square(%g)\n  %e = mul(%d, 0.001)\n"
                                      "  %w = add(%c, %e)\n  %r = sqrt(%w)\n  %s = add(%r, 1e-8)\n  %t = div(%n, %s)\n "
                                      " %u = mul(%t, %lr)\n  %q = sub(%p, %u)\n"
                                      "  return %q, %n, %w\n}\n";
static const int64_t sizes[] = {0, 1, 7, 64, 1000, 70000, 3, 300001, 16};
enum { SETS = sizeof sizes / sizeof *sizes };

static fusor_buffer vector(float *data, int64_t n) {
    return (fusor_buffer){.data = data, .dtype = FUSOR_F32, .rank = 1, .shape = {n}};
}

static float *filled(int64_t n, int seed) {
    float *x = malloc((size_t)n * sizeof *x + 1);
    cr_assert(x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)((i * 37 + seed * 101) % 1009) / 1009;
    return x;
}

Test(each, has_the_bits_of_separate_calls) {
    for (int threads = 1; threads <= 3; threads++) {
        fusor_context *ctx = new_context(threads);
        fusor_executable *exe;
        OK(fusor_compile_text(ctx, adamw_text, NULL, &exe));
        fusor_buffer in[4][SETS], alone[4][SETS], out[3][SETS] = {0};
        float rate = 0.01f;
        fusor_buffer lr = {.data = &rate, .dtype = FUSOR_F32};
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < SETS; i++) {
                in[k][i] = vector(filled(sizes[i], k + 4 * i), sizes[i]);
                alone[k][i] = vector(filled(sizes[i], k + 4 * i), sizes[i]);
            }
        fusor_buffer_list lists[5] = {{in[0], SETS}, {in[1], SETS}, {in[2], SETS}, {in[3], SETS}, {&lr, 1}};
        fusor_buffer_list results[3] = {{out[0], SETS}, {out[1], SETS}, {out[2], SETS}};
        fusor_call *call;
        OK(fusor_executable_prepare_each(exe, SETS, 5, lists, 3, results, &call));
        for (int step = 0; step < 3; step++) {
            rate *= 0.5f;
            OK(fusor_call_run(call));
            for (int i = 0; i < SETS; i++) {
                fusor_buffer one[5] = {alone[0][i], alone[1][i], alone[2][i], alone[3][i], lr}, to[3] = {{0}};
                OK(fusor_executable_call(exe, 5, one, 3, to));
                for (int k = 0; k < 4; k++)
                    cr_assert_eq(memcmp(in[k][i].data, alone[k][i].data, (size_t)sizes[i] * 4), 0, "set %d, tensor %d",
                                 i, k);
            }
        }
        for (int i = 0; i < SETS; i++) cr_assert_eq(out[0][i].data, in[0][i].data);
        fusor_executable_free(exe); /* the prepared call holds what it needs */
        OK(fusor_call_run(call));
        fusor_call_free(call);
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < SETS; i++) {
                free(in[k][i].data);
                free(alone[k][i].data);
            }
        fusor_context_free(ctx);
    }
}

/* Kernels of several phases, with scratch and temporaries, and outputs made by the call. */
Test(each, runs_any_program) {
    const char *text = "func @f(%x: f32[B, K], %w: f32[K, N]) -> (%y: f32[B, N], %s: f32) {\n  %a = matmul(%x, %w)\n  "
                       "%y = softmax(%a)\n"
                       "  %e = exp(%x)\n  %s = reduce_sum(%e)\n  return %y, %s\n}\n";
    enum { COUNT = 3, K = 33, COLUMNS = 70 };
    static const int64_t rows[COUNT] = {1, 200, 17};
    for (int threads = 1; threads <= 2; threads++) {
        fusor_context *ctx = new_context(threads);
        fusor_executable *exe;
        OK(fusor_compile_text(ctx, text, NULL, &exe));
        fusor_buffer x[COUNT],
            w = {.data = filled(K * COLUMNS, 5), .dtype = FUSOR_F32, .rank = 2, .shape = {K, COLUMNS}}, y[COUNT] = {0},
            s[COUNT] = {0};
        for (int i = 0; i < COUNT; i++)
            x[i] = (fusor_buffer){.data = filled(rows[i] * K, i), .dtype = FUSOR_F32, .rank = 2, .shape = {rows[i], K}};
        fusor_buffer_list in[2] = {{x, COUNT}, {&w, 1}}, out[2] = {{y, COUNT}, {s, COUNT}};
        OK(fusor_executable_call_each(exe, COUNT, 2, in, 2, out));
        for (int i = 0; i < COUNT; i++) {
            fusor_buffer one[2] = {x[i], w}, to[2] = {{0}};
            OK(fusor_executable_call(exe, 2, one, 2, to));
            cr_assert(y[i].shape[0] == rows[i] && y[i].shape[1] == COLUMNS);
            cr_assert_eq(memcmp(y[i].data, to[0].data, (size_t)(rows[i] * COLUMNS) * 4), 0);
            cr_assert_eq(memcmp(s[i].data, to[1].data, 4), 0);
            fusor_buffer_free(ctx, &to[0]);
            fusor_buffer_free(ctx, &to[1]);
            fusor_buffer_free(ctx, &y[i]);
            fusor_buffer_free(ctx, &s[i]);
            free(x[i].data);
        }
        free(w.data);
        fusor_executable_free(exe);
        fusor_context_free(ctx);
    }
}

Test(each, refuses_what_does_not_fit) {
    fusor_context *ctx = new_context(1);
    fusor_executable *exe;
    OK(fusor_compile_text(ctx,
                          "func @f(%x: f32[N], %y: f32[N], %a: f32) -> (%r: f32[N] alias %x, %z: f32[N]) {\n"
                          "  %s = mul(%y, %a)\n  %r = add(%x, %s)\n  %z = sub(%x, %s)\n  return %r, %z\n}\n",
                          NULL, &exe));
    float data[8][10] = {{0}}, rate = 2;
    fusor_buffer x[2] = {vector(data[0], 10), vector(data[1], 10)}, y[2] = {vector(data[2], 10), vector(data[3], 10)};
    fusor_buffer a = {.data = &rate, .dtype = FUSOR_F32}, r[2] = {{0}},
                 z[2] = {vector(data[4], 10), vector(data[5], 10)};
    fusor_buffer_list in[3] = {{x, 2}, {y, 2}, {&a, 1}}, out[2] = {{r, 2}, {z, 2}};
    OK(fusor_executable_call_each(exe, 2, 3, in, 2, out));
    OK(fusor_executable_call_each(exe, 0, 3, (fusor_buffer_list[]){{x, 0}, {y, 0}, {&a, 1}}, 2,
                                  (fusor_buffer_list[]){{r, 0}, {z, 0}}));
    FAILS(fusor_executable_call_each(exe, 2, 2, in, 2, out), FUSOR_ERROR_ARGUMENT, "@f takes 3 inputs; 2 lists");
    FAILS(fusor_executable_call_each(exe, -1, 3, in, 2, out), FUSOR_ERROR_ARGUMENT, "-1 sets");
    in[0].n = 1;
    FAILS(fusor_executable_call_each(exe, 2, 3, in, 2, out), FUSOR_ERROR_ARGUMENT,
          "1 buffers given for %x; expected 2, one a set");
    in[0].n = 2;
    out[1].n = 1;
    FAILS(fusor_executable_call_each(exe, 2, 3, in, 2, out), FUSOR_ERROR_ARGUMENT,
          "1 outputs given for %z; expected 2");
    out[1].n = 2;
    y[1].shape[0] = 9;
    FAILS(fusor_executable_call_each(exe, 2, 3, in, 2, out), FUSOR_ERROR_SHAPE, "set 1: ");
    y[1].shape[0] = 10;
    r[0] = r[1] = (fusor_buffer){0};
    x[1].data = data[0];
    FAILS(fusor_executable_call_each(exe, 2, 3, in, 2, out), FUSOR_ERROR_OVERLAP, "aliased parameter %x of set");
    x[1].data = data[1];
    z[1].data = data[2];
    FAILS(fusor_executable_call_each(exe, 2, 3, in, 2, out), FUSOR_ERROR_OVERLAP,
          "output %z of set 1 overlaps parameter %y of set 0");
    z[1].data = data[5];
    y[1].data = data[2]; /* what is only read may be shared */
    r[0] = r[1] = (fusor_buffer){0};
    OK(fusor_executable_call_each(exe, 2, 3, in, 2, out));
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

/* The gradient and the state are the parameter's in shape: nothing is broadcast. */
Test(optim, shapes_that_differ) {
    fusor_context *ctx = new_context(1);
    float p[3] = {1, 2, 3}, m[3] = {0}, v[3] = {0}, one[1] = {1};
    const fusor_optim_options adam = FUSOR_ADAM_INIT, sgd = FUSOR_SGD_INIT;
    fusor_tensor g = fusor_wrap(ctx, one, FUSOR_F32, FUSOR_SHAPE(1)),
                 whole = fusor_wrap(ctx, m, FUSOR_F32, FUSOR_SHAPE(3));
    fusor_optim s = {fusor_wrap(ctx, p, FUSOR_F32, FUSOR_SHAPE(3)), whole,
                     fusor_wrap(ctx, v, FUSOR_F32, FUSOR_SHAPE(3))};
    cr_expect_eq(fusor_status_of(fusor_optim_adam(s, g, &adam).p), FUSOR_ERROR_SHAPE);
    cr_expect(strstr(fusor_error_message(ctx), "must have the parameter's shape"), "%s", fusor_error_message(ctx));
    cr_expect_eq(fusor_status_of(fusor_optim_sgd(s, fusor_f(1), &sgd).p), FUSOR_ERROR_SHAPE);
    cr_expect_eq(fusor_status_of(fusor_optim_adam(s, whole, &adam).p), FUSOR_OK);
    s.m = g;
    cr_expect_eq(fusor_status_of(fusor_optim_momentum(s, whole, &sgd).p), FUSOR_ERROR_SHAPE);
    cr_expect_eq(fusor_status_of(fusor_optim_sgd(s, whole, &sgd).p), FUSOR_OK); /* has no state */
    fusor_context_free(ctx);
}
