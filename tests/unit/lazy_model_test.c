/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* lazy_model_test.c: random programs of lazy tensors beside a model that computes at once: expressions, assignments,
 * scopes within scopes, scopes that fail, reads and keeps. After every step the wrapped memory is what the model says,
 * and every value that is read is the one that its operands had when it was recorded. */
#include "api_test.h"
#include "../fuzz/random.h"

enum { N_WRAPPED = 4, N = 5, MAX_VALUES = 300, MAX_DEPTH = 5, SEEDS = 120, STEPS = 800 };

typedef struct value {
    fusor_tensor t;
    float is[N];
    int depth; /* of its scope; -1: it has ended, and the value is kept */
    bool is_kept;
} value;
/* Assignments that wait in a scope (0: in none), and what the tensors had been before. */
typedef struct level {
    fusor_scope scope;
    fusor_status status;
    bool waits[N_WRAPPED];
    float before[N_WRAPPED][N];
} level;

static fusor_context *ctx;
static fusor_tensor wrapped[N_WRAPPED], wrong_shape, bad_indices;
static float memory[N_WRAPPED][N], written[N_WRAPPED][N],
    now[N_WRAPPED][N]; /* is, must be; what the tensors stand for */
static value values[MAX_VALUES];
static int n_values, depth;
static level levels[MAX_DEPTH + 1];

static void check_memory(const char *after, uint64_t seed, int step) {
    cr_assert_eq(memcmp(memory, written, sizeof memory), 0, "seed %llu, step %d: memory after %s",
                 (unsigned long long)seed, step, after);
}

static void wait_for(int k) {
    level *l = &levels[depth];
    if (!l->waits[k]) memcpy(l->before[k], now[k], sizeof now[k]);
    l->waits[k] = true;
}

/* What waits in the innermost scope is written; then nothing waits for that memory anywhere. */
static void write_pending(void) {
    for (int k = 0; k < N_WRAPPED; k++) {
        if (!levels[depth].waits[k]) continue;
        memcpy(written[k], now[k], sizeof now[k]);
        for (int d = 0; d <= depth; d++) levels[d].waits[k] = false;
    }
}

static fusor_tensor operand(float *is) {
    const size_t k = below(N_WRAPPED);
    const value *v = n_values && below(3) ? &values[below((size_t)n_values)] : NULL;
    memcpy(is, v ? v->is : now[k], sizeof now[k]);
    return v ? v->t : wrapped[k];
}

static void record(void) {
    float a[N], b[N];
    fusor_tensor x = operand(a), y = operand(b);
    if (n_values == MAX_VALUES) return;
    value v = {.depth = depth};
    const size_t op = below(4);
    v.t = op == 0   ? fusor_add(x, y)
          : op == 1 ? fusor_sub(x, y)
          : op == 2 ? fusor_maximum(x, y)
                    : fusor_flip(x, FUSOR_AXES(0));
    v.t = fusor_clamp(v.t, -1e6, 1e6);
    for (int i = 0; i < N; i++) {
        const float r = op == 0   ? a[i] + b[i]
                        : op == 1 ? a[i] - b[i]
                        : op == 2 ? a[i] > b[i] ? a[i] : b[i]
                                  : a[N - 1 - i];
        v.is[i] = r < -1e6f ? -1e6f : r > 1e6f ? 1e6f : r;
    }
    values[n_values++] = v;
}

static void assign(void) {
    float is[N];
    const size_t k = below(N_WRAPPED);
    fusor_tensor x = operand(is);
    OK(fusor_assign(wrapped[k], x));
    wait_for((int)k);
    memcpy(now[k], is, sizeof is);
}

static void read_one(uint64_t seed, int step) {
    float want[N], got[N];
    OK(fusor_read(operand(want), got, sizeof got));
    write_pending();
    for (int i = 0; i < N; i++)
        cr_assert_eq(got[i], want[i], "seed %llu, step %d: element %d is %g, expected %g", (unsigned long long)seed,
                     step, i, (double)got[i], (double)want[i]);
}

static void begin_scope(void) {
    if (depth == MAX_DEPTH) return;
    level *l = &levels[++depth];
    memset(l, 0, sizeof *l);
    l->scope = fusor_scope_begin(ctx, &l->status);
}

/* fails: 1: a wrong assignment, so none is run; 2: one that fails when it is run. */
static void end_scope(size_t fails) {
    level *l = &levels[depth];
    const size_t k = below(N_WRAPPED);
    if (fails == 1) cr_assert_eq(fusor_assign(wrapped[k], wrong_shape), FUSOR_ERROR_SHAPE);
    if (fails == 2) {
        OK(fusor_assign(wrapped[k], fusor_take(wrapped[below(N_WRAPPED)], bad_indices, 0)));
        wait_for((int)k);
    }
    fusor_scope_end(&l->scope);
    cr_assert_eq(l->status, fails == 1 ? FUSOR_ERROR_SHAPE : fails == 2 ? FUSOR_ERROR_INDEX : FUSOR_OK);
    if (!fails) write_pending();
    for (int i = 0; i < N_WRAPPED; i++)
        if (l->waits[i]) memcpy(now[i], l->before[i], sizeof now[i]);
    for (int i = n_values; i-- > 0;) {
        if (values[i].depth != depth) continue;
        values[i].depth = -1;
        if (!values[i].is_kept) values[i] = values[--n_values];
    }
    depth--;
}

static void keep_or_release(void) {
    if (!n_values) return;
    const size_t i = below((size_t)n_values);
    value *v = &values[i];
    if (v->is_kept) fusor_release(v->t);
    else (void)fusor_keep(v->t);
    v->is_kept = !v->is_kept;
    if (v->depth == -1) *v = values[--n_values];
}

static void run_program(uint64_t seed) {
    static const int64_t at[N] = {0, 1, 2, 3, 99};
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.cache_dir = "";
    o.device = "reference"; /* what is written and when is the same there, and nothing is compiled */
    ctx = fusor_context_new(&o);
    state = seed;
    n_values = depth = 0;
    memset(levels, 0, sizeof levels);
    for (int k = 0; k < N_WRAPPED; k++) {
        for (int i = 0; i < N; i++) memory[k][i] = (float)below(100) - 50;
        wrapped[k] = fusor_wrap(ctx, memory[k], FUSOR_F32, FUSOR_SHAPE(N));
    }
    memcpy(written, memory, sizeof memory);
    memcpy(now, memory, sizeof memory);
    wrong_shape = fusor_wrap_const(ctx, memory[0], FUSOR_F32, FUSOR_SHAPE(N - 1));
    bad_indices = fusor_wrap_const(ctx, at, FUSOR_I64, FUSOR_SHAPE(N));
    for (int step = 0; step < STEPS; step++) {
        const size_t what = below(12);
        switch (what) {
        case 0: begin_scope(); break;
        case 1:
            if (depth) end_scope(below(2) ? below(3) : 0);
            break;
        case 2:
        case 3: assign(); break;
        case 4:
        case 5: read_one(seed, step); break;
        case 6: keep_or_release(); break;
        default: record(); break;
        }
        check_memory(what == 0   ? "a scope's begin"
                     : what == 1 ? "a scope's end"
                     : what < 4  ? "an assignment"
                                 : "a read",
                     seed, step);
    }
    while (depth) end_scope(0);
    check_memory("the last scope", seed, STEPS);
    fusor_context_free(ctx);
}

Test(lazy_model, random_programs, .timeout = 600) {
    for (uint64_t seed = 1; seed <= SEEDS; seed++) run_program(seed);
}
