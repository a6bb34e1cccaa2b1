/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* exec_test.c: programs run through plan and kernels as through the reference evaluator; the rules for the caller's
 * buffers; binding, prepared calls, many callers. Tests that need kernels are skipped where the code generation module
 * is not built. Above 900 lines because all of them share one pipeline and one cache, opened once for the file. */
#include "rt/exec.h"
#include "ir/pass.h"
#include "ref/interp.h"
#include "rt/buffer.h"
#include "rt/cpuinfo.h"
#include "rt/compiler.h"
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static fu_error error;

static fusor_status reference_node(const ir_graph *g, fu_error *e, const ir_node *n, const rt_tensor *in,
                                   rt_tensor *out, const int64_t *symbols) {
    return ref_eval_node(g, e, n, (const ref_tensor *)in, (ref_tensor *)out, symbols);
}

static bool has_module(void) {
    const fusor_codegen_table *t;
    fu_error_clear(&error);
    bool yes = rt_host_level() >= 0 && rt_module_get(&error, &t) == FUSOR_OK;
    if (!yes) cr_log_info("skipped: %s", error.text);
    fu_error_clear(&error);
    return yes;
}

static rt_cache *cache;
static void init(void) {
    unsetenv("FUSOR_CACHE_PATH");
    rt_cache_options o = {.dir = ""};
    cr_assert_eq(rt_cache_open(&error, &o, &cache), FUSOR_OK);
}
TestSuite(exec, .init = init);

typedef struct setup {
    int n_threads;
    bool reference;
} setup;

/* What runs kernels instead of their code; NULL: the code does. */
static fusor_status (*launch)(void *user, fu_error *e, const ir_kernel *k, const ir_kernel_args *args);

/* The pipeline of src/fusor.c. NULL when it fails; the record says why. */
static rt_exec *compile(const char *text, setup s) {
    static jmp_buf oom;
    fu_arena arena;
    fu_arena_init(&arena, &oom);
    fu_error_clear(&error);
    if (setjmp(oom)) cr_assert(false, "out of memory");
    ir_module *m;
    ir_graph *g;
    ir_plan *plan;
    rt_exec *x = NULL;
    ir_plan_options po = {.level = (ir_level)(rt_host_level() < 0 ? 0 : rt_host_level()), .reference = s.reference};
    rt_exec_options xo = {.n_threads = s.n_threads, .reference = reference_node, .launch = launch};
    if (ir_parse(&arena, &error, "<text>", text, strlen(text), &m) == FUSOR_OK &&
        ir_flatten(&arena, &error, m, ir_module_find(m, NULL), &g) == FUSOR_OK &&
        ir_normalize(&arena, &error, &g, &po) == FUSOR_OK && ir_plan_make(&arena, &error, g, &po, &plan) == FUSOR_OK &&
        rt_exec_new(&error, &arena, plan, cache, &xo, &x) == FUSOR_OK)
        return x;
    fu_arena_free(&arena);
    return NULL;
}

static fusor_buffer f32(float *p, int rank, int64_t a, int64_t b) {
    return (fusor_buffer){.data = p, .dtype = FUSOR_F32, .rank = rank, .shape = {a, b}};
}

static fusor_status run(rt_exec *x, int n_in, const fusor_buffer *in, int n_out, fusor_buffer *out) {
    fu_error_clear(&error);
    return rt_exec_call(x, &error, n_in, in, n_out, out);
}
#define OK(x, ...) cr_assert_eq(run(x, __VA_ARGS__), FUSOR_OK, "%s", error.text)
#define FAILS(want_status, words, x, ...)                                                                              \
    do {                                                                                                               \
        cr_expect_eq(run(x, __VA_ARGS__), want_status, "%d: %s", error.status, error.text);                            \
        cr_expect(strstr(error.text, words), "'%s' has no '%s'", error.text, words);                                   \
    } while (0)

/* ---- stores past the cache ---- */
static int64_t asked_to_stream;
static fusor_status see_stream(void *user, fu_error *e, const ir_kernel *k, const ir_kernel_args *args) {
    (void)user, (void)e;
    cr_assert_eq(k->kind, IR_KERNEL_MAP);
    asked_to_stream = args->tune[IR_TUNE_MAP_STREAM];
    return FUSOR_OK;
}

/* Whether an output lies over an input is known at the call, and may be another way at the next. Nothing is computed:
 * the memory is never touched. */
Test(exec, what_is_written_over_an_input_is_not_streamed) {
    if (!has_module()) return;
    const int64_t n = rt_host_caches()->l3_bytes;
    float *p = calloc((size_t)n, sizeof *p), *q = calloc((size_t)n, sizeof *q);
    cr_assert(p && q);
    launch = see_stream;
    rt_exec *x = compile("func @f(%p: f32[N], %g: f32[N]) -> (f32[N] alias %p) { %s = sub(%p, %g) return %s }",
                         (setup){.n_threads = 1});
    fusor_buffer out = f32(p, 1, n, 0);
    asked_to_stream = -1;
    OK(x, 2, ((fusor_buffer[]){f32(p, 1, n, 0), f32(q, 1, n, 0)}), 1, &out);
    cr_assert_eq(asked_to_stream, 0);
    rt_exec_release(x);
    x = compile("func @f(%p: f32[N]) -> f32[N] { %s = relu(%p) return %s }", (setup){.n_threads = 1});
    for (int i = 0; i < 2; i++) {
        out = f32(i ? p : q, 1, n, 0);
        OK(x, 1, ((fusor_buffer[]){f32(i ? q : p, 1, n, 0)}), 1, &out);
        cr_assert_eq(asked_to_stream, 1);
    }
    rt_exec_release(x);
    launch = NULL;
    free(p);
    free(q);
}

/* ---- kernels against the reference, over sizes and threads ---- */
static const char *const programs[] = {
    "func @f(%a: f32[M, N], %b: f32[M, N]) -> f32[M, N] { %c = mul(%a, %b) %d = add(%c, %a) return %d }",
    "func @f(%a: f32[M, N], %b: f32[N]) -> f32[M, N] { %c = sub(%a, %b) %d = relu(%c) return %d }",
    "func @f(%a: f32[M, N], %b: f32[M, N]) -> (f32[M, N], f32[N, M]) { %c = add(%a, %b) %d = transpose(%c) return %c, "
    "%d }",
    "func @f(%a: f32[M, N], %b: f32[M, N]) -> (f32[M], f32[N]) { %c = mul(%a, %b) %d = reduce_sum(%c, axes=[1]) %e = "
    "reduce_sum(%c, axes=[0]) return %d, %e }",
    "func @f(%a: f32[M, N], %b: f32[M, N]) -> f32 { %c = sub(%a, %b) %d = square(%c) %e = reduce_mean(%d) return %e }",
    "func @f(%a: f32[M, N], %b: f32[M, N]) -> f32[M, N] { %c = add(%a, %b) %d = softmax(%c) return %d }",
    "func @f(%a: f32[M, K], %b: f32[K, N]) -> f32[M, N] { %c = matmul(%a, %b) %d = relu(%c) return %d }",
    "func @f(%a: f32[M, N], %b: f32[M, N]) -> f32[M, M] { %c = matmul(%a, %b, transpose_b=true) %d = exp(%c) %e = "
    "reduce_sum(%d, axes=[1], keepdims=true) "
    "%g = div(%d, %e) return %g }",
    "func @f(%a: f32[M, N], %b: f32[M, N]) -> i64[M, N] { %c = lt(%a, %b) %d = cast(%c, i64) %e = dim(%a, axis=1) %g = "
    "mul(%d, %e) return %g }",
};
enum { N_PROGRAMS = sizeof programs / sizeof *programs };

static void compare(const fusor_buffer *got, const fusor_buffer *want, const char *program, int m, int n, int threads) {
    cr_assert_eq(got->dtype, want->dtype);
    int64_t count = 1;
    for (int d = 0; d < want->rank; d++) {
        cr_assert_eq(got->shape[d], want->shape[d]);
        count *= want->shape[d];
    }
    for (int64_t i = 0; i < count; i++) {
        double a, b;
        if (got->dtype == FUSOR_F32) {
            a = ((float *)got->data)[i];
            b = ((float *)want->data)[i];
        } else {
            a = (double)((int64_t *)got->data)[i];
            b = (double)((int64_t *)want->data)[i];
        }
        cr_assert(a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-4 * (1 + fabs(b)),
                  "%.80s %dx%d threads %d [%ld]: %g, expected %g", program, m, n, threads, (long)i, a, b);
    }
}

Test(exec, kernels_agree_with_the_reference, .timeout = 300) {
    if (!has_module()) return;
    static const int sizes[][2] = {{1, 1},    {1, 17},  {5, 3}, {3, 64}, {33, 65},  {128, 100},
                                   {1, 5000}, {700, 9}, {0, 4}, {4, 0},  {300, 301}};
    static const int threads[] = {1, 2, 5};
    for (int p = 0; p < N_PROGRAMS; p++) {
        rt_exec *ref = compile(programs[p], (setup){1, true});
        cr_assert(ref, "%s: %s", programs[p], error.text);
        for (int t = 0; t < 3; t++) {
            rt_exec *x = compile(programs[p], (setup){threads[t], false});
            cr_assert(x, "%s: %s", programs[p], error.text);
            int n_out = (int)rt_exec_plan(x)->graph->results.n;
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                int m = sizes[s][0], n = sizes[s][1];
                bool is_product = strstr(programs[p], "f32[K, N]") != NULL;
                if (n == 0 && (strstr(programs[p], "reduce_mean") || strstr(programs[p], "softmax"))) continue;
                float *a = malloc(sizeof *a * ((size_t)m * (size_t)n + 1)),
                      *b = malloc(sizeof *b * ((size_t)m * (size_t)n + 1));
                for (int i = 0; i < m * n; i++) {
                    a[i] = (float)((int64_t)i * 7919 % 113) / 64 - 0.9f;
                    b[i] = (float)((int64_t)i * 104729 % 127) / 64 - 1;
                }
                bool is_row = strstr(programs[p], "%b: f32[N]") != NULL;
                fusor_buffer in[2] = {f32(a, 2, m, n), is_row       ? f32(b, 1, n, 0)
                                                       : is_product ? f32(b, 2, n, m)
                                                                    : f32(b, 2, m, n)};
                if (is_row && m == 0) in[1].data = b;
                fusor_buffer got[2] = {{0}}, want[2] = {{0}};
                OK(ref, 2, in, n_out, want);
                OK(x, 2, in, n_out, got);
                for (int r = 0; r < n_out; r++) {
                    compare(&got[r], &want[r], programs[p], m, n, threads[t]);
                    rt_buffer_release(NULL, got[r].data);
                    rt_buffer_release(NULL, want[r].data);
                }
                free(a);
                free(b);
            }
            rt_exec_release(x);
        }
        rt_exec_release(ref);
    }
    cr_assert_eq(rt_memory_get_stats().live_buffers, 0);
}

/* ---- buffers; the reference serves, so these run everywhere ---- */
#define ADD "func @f(%a: f32[M, N], %b: f32[M, N]) -> (%c: f32[M, N]) { %c = add(%a, %b) return %c }"
static rt_exec *adder(void) {
    rt_exec *x = compile(ADD, (setup){1, true});
    cr_assert(x, "%s", error.text);
    return x;
}

Test(exec, strided_ends) {
    rt_exec *x = adder();
    float a[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, b[3] = {100, 200, 300}, c[20] = {0};
    fusor_buffer in[2] = {f32(a + 11, 2, 2, 3), f32(b, 2, 2, 3)}, out = f32(c, 2, 2, 3);
    in[0].flags = in[1].flags = out.flags = FUSOR_STRIDED;
    in[0].stride[0] = -6, in[0].stride[1] = -2; /* backwards */
    in[1].stride[0] = 0, in[1].stride[1] = 1;   /* broadcast */
    out.stride[0] = 1, out.stride[1] = 4;       /* transposed with gaps */
    OK(x, 2, in, 1, &out);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++) cr_expect_eq(c[i + 4 * j], a[11 - 6 * i - 2 * j] + b[j]);
    cr_expect(c[2] == 0 && c[3] == 0 && c[6] == 0 && c[12] == 0, "gaps stay");
    rt_exec_release(x);
}

Test(exec, checks) {
    rt_exec *x = adder();
    float a[64], c[64];
    fusor_buffer in[2] = {f32(a, 2, 2, 3), f32(a, 2, 2, 3)}, out = f32(c, 2, 2, 3), keep[2] = {in[0], in[1]};
    FAILS(FUSOR_ERROR_ARGUMENT, "takes 2 inputs; 1 given", x, 1, in, 1, &out);
    FAILS(FUSOR_ERROR_ARGUMENT, "takes 2 inputs; 2 given, but their array is NULL", x, 2, NULL, 1, &out);
    FAILS(FUSOR_ERROR_ARGUMENT, "gives 1 results; 1 outputs given, but their array is NULL", x, 2, in, 1, NULL);
    FAILS(FUSOR_ERROR_ARGUMENT, "gives 1 results; 0 outputs", x, 2, in, 0, &out);
    in[0].dtype = FUSOR_F64;
    FAILS(FUSOR_ERROR_TYPE, "input %a is f64; expected f32", x, 2, in, 1, &out);
    in[0].dtype = 99;
    FAILS(FUSOR_ERROR_TYPE, "no dtype", x, 2, in, 1, &out);
    in[0] = keep[0];
    in[1].rank = 3;
    FAILS(FUSOR_ERROR_SHAPE, "input %b has rank 3; expected 2", x, 2, in, 1, &out);
    in[1] = keep[1];
    in[1].shape[1] = 4;
    FAILS(FUSOR_ERROR_SHAPE, "dim N", x, 2, in, 1, &out);
    in[1].shape[1] = -3;
    FAILS(FUSOR_ERROR_SHAPE, "negative", x, 2, in, 1, &out);
    in[1] = keep[1];
    in[1].data = NULL;
    FAILS(FUSOR_ERROR_ARGUMENT, "input %b has no data", x, 2, in, 1, &out);
    in[1].data = (char *)a + 2;
    FAILS(FUSOR_ERROR_ARGUMENT, "not aligned", x, 2, in, 1, &out);
    in[1] = keep[1];
    in[1].device = 1;
    FAILS(FUSOR_ERROR_DEVICE, "device 1", x, 2, in, 1, &out);
    in[1] = keep[1];
    in[0].flags = FUSOR_STRIDED;
    in[0].stride[0] = INT64_MAX / 2;
    in[0].stride[1] = INT64_MAX / 2;
    FAILS(FUSOR_ERROR_ARGUMENT, "address space", x, 2, in, 1, &out);
    in[0] = keep[0];
    out.shape[0] = 3;
    FAILS(FUSOR_ERROR_SHAPE, "output %c: dim 0 is 3; the result's is 2", x, 2, in, 1, &out);
    out.shape[0] = 2;
    out.flags = FUSOR_READONLY;
    FAILS(FUSOR_ERROR_ARGUMENT, "output %c is read-only", x, 2, in, 1, &out);
    out.flags = 0;
    in[0].flags = FUSOR_READONLY;
    OK(x, 2, in, 1, &out);
    for (int i = 0; i < 2; i++) in[i].shape[0] = in[i].shape[1] = INT64_C(1) << 40;
    FAILS(FUSOR_ERROR_SHAPE, "overflow", x, 2, in, 1, &out);
    for (int i = 0; i < 2; i++) in[i].shape[1] = 0; /* no element: strides lead nowhere */
    in[0].flags = FUSOR_STRIDED;
    in[0].stride[0] = INT64_MAX / 2;
    out.shape[0] = INT64_C(1) << 40;
    out.shape[1] = 0;
    OK(x, 2, in, 1, &out);
    rt_exec_release(x);
}

Test(exec, overlaps) {
    rt_exec *x = adder();
    float a[64] = {0}, b[64] = {0};
    fusor_buffer in[2] = {f32(a, 2, 2, 3), f32(b, 2, 2, 3)}, out = f32(a, 2, 2, 3);
    FAILS(FUSOR_ERROR_OVERLAP, "output %c overlaps input %a", x, 2, in, 1, &out);
    out.data = a + 5;
    FAILS(FUSOR_ERROR_OVERLAP, "overlaps input %a", x, 2, in, 1, &out);
    out.data = a + 6;
    OK(x, 2, in, 1, &out);
    /* interleaved: even elements in, odd elements out */
    in[0].flags = out.flags = FUSOR_STRIDED;
    in[0].stride[0] = out.stride[0] = 6;
    in[0].stride[1] = out.stride[1] = 2;
    out.data = a + 1;
    OK(x, 2, in, 1, &out);
    out.data = a + 2;
    FAILS(FUSOR_ERROR_OVERLAP, "overlaps input %a", x, 2, in, 1, &out);
    in[0].flags = 0;
    out.data = b + 20;
    out.stride[0] = 0;
    FAILS(FUSOR_ERROR_OVERLAP, "overlaps itself", x, 2, in, 1, &out);
    out.stride[0] = 2, out.stride[1] = 1;
    FAILS(FUSOR_ERROR_OVERLAP, "overlaps itself", x, 2, in, 1, &out);
    out.stride[0] = 3, out.stride[1] = 2; /* 0 2 4 3 5 7: interlocked but apart */
    OK(x, 2, in, 1, &out);
    rt_exec_release(x);
    x = compile("func @g(%a: f32[N]) -> (%c: f32[N], %d: f32[N]) { %c = neg(%a) %d = abs(%a) return %c, %d }",
                (setup){1, true});
    fusor_buffer one = f32(a, 1, 4, 0), two[2] = {f32(b, 1, 4, 0), f32(b + 3, 1, 4, 0)};
    FAILS(FUSOR_ERROR_OVERLAP, "output %d overlaps output %c", x, 1, &one, 2, two);
    rt_exec_release(x);
}

/* A result that is a stored value under another shape is stored where the result lies, once. */
Test(exec, results_under_another_shape) {
    rt_exec *x = compile("func @f(%a: f32[N, 3]) -> (%c: f32[3*N], %d: f32[N, 3], %e: f32[3*N], %g: f32[1, 3*N]) { "
                         "%b = neg(%a) %t = transpose(%b) %c = reshape(%t, shape=[3*N]) %d = reshape(%t, shape=[N, 3]) "
                         "%g = unsqueeze(%c, axes=[0]) return %c, %d, %c, %g }",
                         (setup){1, true});
    float a[6] = {1, 2, 3, 4, 5, 6}, c[12] = {0}, d[6] = {0}, e[6] = {0}, g[6] = {0};
    const float want[6] = {-1, -4, -2, -5, -3, -6};
    fusor_buffer in = f32(a, 2, 2, 3), out[4] = {f32(c, 1, 6, 0), f32(d, 2, 2, 3), f32(e, 1, 6, 0), f32(g, 2, 1, 6)};
    out[0].flags = FUSOR_STRIDED;
    out[0].stride[0] = 2;
    OK(x, 1, &in, 4, out);
    for (int i = 0; i < 6; i++)
        cr_expect(c[2 * i] == want[i] && c[2 * i + 1] == 0 && d[i] == want[i] && e[i] == want[i] && g[i] == want[i],
                  "element %d", i);
    rt_exec_release(x);
}

Test(exec, outputs_without_memory) {
    rt_exec *x = adder();
    float a[6] = {1, 2, 3, 4, 5, 6};
    fusor_buffer in[2] = {f32(a, 2, 2, 3), f32(a, 2, 2, 3)}, out = {0};
    OK(x, 2, in, 1, &out);
    cr_assert(out.data && out.dtype == FUSOR_F32 && out.rank == 2 && out.shape[1] == 3 &&
              (uintptr_t)out.data % 64 == 0);
    cr_assert_eq(((float *)out.data)[5], 12);
    rt_buffer_release(NULL, out.data);
    fusor_buffer shape = {0};
    in[0].data = in[1].data = NULL;
    in[0].shape[0] = in[1].shape[0] = 1000;
    fu_error_clear(&error);
    cr_assert_eq(rt_exec_infer(x, &error, 2, in, 1, &shape), FUSOR_OK, "%s", error.text);
    cr_assert(shape.shape[0] == 1000 && shape.shape[1] == 3 && !shape.data);
    in[0].shape[0] = in[1].shape[0] = 0; /* no elements: no data needed */
    out = (fusor_buffer){0};
    OK(x, 2, in, 1, &out);
    cr_assert_eq(out.shape[0], 0);
    rt_buffer_release(NULL, out.data);
    rt_exec_release(x);
}

#define SGD                                                                                                            \
    "func @sgd(%p: f32[N], %g: f32[N], %lr: f32) -> (%q: f32[N] alias %p) { %d = mul(%lr, %g) %q = sub(%p, %d) "       \
    "return %q }"
static void aliases(bool reference) {
    rt_exec *x = compile(SGD, (setup){1, reference});
    cr_assert(x, "%s", error.text);
    float p[8] = {1, 2, 3, 4, 5, 6, 7, 8}, g[4] = {10, 20, 30, 40}, lr = 0.5f, other[4];
    fusor_buffer in[3] = {f32(p, 1, 4, 0), f32(g, 1, 4, 0), f32(&lr, 0, 0, 0)}, out = {0};
    OK(x, 3, in, 1, &out);
    cr_assert_eq(out.data, p);
    cr_assert_eq(out.shape[0], 4);
    cr_assert(p[0] == -4 && p[3] == -16 && p[4] == 5);
    rt_buffer_release(NULL, out.data); /* the caller's: left alone */
    OK(x, 3, in, 1, &out);             /* given: the same buffer */
    cr_assert_eq(p[0], -9);
    out.data = other;
    FAILS(FUSOR_ERROR_ARGUMENT, "written over %p", x, 3, in, 1, &out);
    out = (fusor_buffer){0};
    in[0].flags = FUSOR_READONLY;
    FAILS(FUSOR_ERROR_ARGUMENT, "read-only", x, 3, in, 1, &out);
    in[0].flags = FUSOR_STRIDED;
    in[0].stride[0] = 2;
    for (int i = 0; i < 8; i++) p[i] = (float)i;
    OK(x, 3, in, 1, &out);
    cr_assert(p[0] == -5 && p[1] == 1 && p[2] == -8 && p[3] == 3 && p[6] == -14);
    in[0].flags = 0;
    in[1].data = p + 2; /* the gradient overlaps what is overwritten */
    out = (fusor_buffer){0};
    FAILS(FUSOR_ERROR_OVERLAP, "overlaps input %g", x, 3, in, 1, &out);
    rt_exec_release(x);
}
Test(exec, aliases_by_reference) { aliases(true); }
Test(exec, aliases_by_kernels) {
    if (has_module()) aliases(false);
}

Test(exec, bool_inputs_are_any_byte) {
    for (int reference = 0; reference < 2; reference++) {
        if (!reference && !has_module()) continue;
        rt_exec *x = compile("func @f(%m: bool[N], %a: f32[N]) -> (f32[N], bool[N]) { %z = neg(%a) %s = select(%m, %a, "
                             "%z) return %s, %m }",
                             (setup){1, reference});
        cr_assert(x, "%s", error.text);
        uint8_t m[4] = {0, 1, 2, 255}, n[4];
        float a[4] = {1, 2, 3, 4}, s[4];
        fusor_buffer in[2] = {{.data = m, .dtype = FUSOR_BOOL, .rank = 1, .shape = {4}}, f32(a, 1, 4, 0)};
        fusor_buffer out[2] = {f32(s, 1, 4, 0), {.data = n, .dtype = FUSOR_BOOL, .rank = 1, .shape = {4}}};
        OK(x, 2, in, 2, out);
        cr_assert(s[0] == -1 && s[1] == 2 && s[2] == 3 && s[3] == 4);
        cr_assert(n[0] == 0 && n[1] == 1 && n[2] == 1 && n[3] == 1);
        rt_exec_release(x);
    }
}

/* ---- binding ---- */
#define DENSE                                                                                                          \
    "func @d(%x: f32[B, K], const %w: f32[K, N], const %b: f32[N]) -> (%y: f32[B, N]) { %h = matmul(%x, %w) %s = "     \
    "add(%h, %b) %y = relu(%s) return %y }"
static void binding(bool reference, int n_threads) {
    enum { B = 37, K = 130, N = 70 };
    rt_exec *x = compile(DENSE, (setup){n_threads, reference});
    cr_assert(x, "%s", error.text);
    static float in_x[B * K], w[K * N], w2[K * N], b[N], want[B * N], got[B * N];
    for (int i = 0; i < B * K; i++) in_x[i] = (float)(i % 17) - 8;
    for (int i = 0; i < K * N; i++) w[i] = (float)(i % 11) - 5;
    for (int i = 0; i < N; i++) b[i] = (float)i;
    fusor_buffer in[3] = {f32(in_x, 2, B, K), f32(w, 2, K, N), f32(b, 1, N, 0)}, out = f32(want, 2, B, N);
    OK(x, 3, in, 1, &out);
    int both[2] = {1, 2}, first = 1;
    rt_exec *bound, *half, *rest;
    fu_error_clear(&error);
    memcpy(w2, w, sizeof w);
    in[1].data = w2;
    cr_assert_eq(rt_exec_bind(x, &error, 2, both, &in[1], &bound), FUSOR_OK, "%s", error.text);
    cr_assert_eq(rt_exec_bind(x, &error, 1, &first, &in[1], &half), FUSOR_OK, "%s", error.text);
    memset(w2, 0, sizeof w2); /* the contents were copied */
    fusor_buffer unlike[2] = {in[1], f32(b, 1, N - 1, 0)};
    cr_assert_eq(rt_exec_bind(x, &error, 2, both, unlike, &rest), FUSOR_ERROR_SHAPE);
    cr_assert(strstr(error.text, "dim N is 70 in parameter %w but 69 in parameter %b"), "%s", error.text);
    fu_error_clear(&error);
    rt_exec_release(x);
    cr_assert(rt_exec_n_inputs(bound) == 1 && rt_exec_is_bound(bound, 1) && !rt_exec_is_bound(half, 2));
    out.data = got;
    for (int i = 0; i < 3; i++) {
        memset(got, 0, sizeof got);
        OK(bound, 1, in, 1, &out);
        cr_assert(!memcmp(want, got, sizeof got), "the same bits");
    }
    fusor_buffer two[2] = {in[0], in[2]};
    OK(half, 2, two, 1, &out);
    cr_assert(!memcmp(want, got, sizeof got));
    cr_assert_eq(rt_exec_bind(half, &error, 1, &both[1], &in[2], &rest), FUSOR_OK);
    rt_exec_release(half);
    in[0].shape[0] = 1; /* few rows: another launch, the same packed operand */
    fusor_buffer row = f32(got, 2, 1, N);
    OK(rest, 1, in, 1, &row);
    cr_assert(!memcmp(want, got, N * sizeof *got));
    fu_error_clear(&error);
    cr_assert_eq(rt_exec_bind(rest, &error, 1, &first, &in[1], &half), FUSOR_ERROR_ARGUMENT);
    cr_assert(strstr(error.text, "bound already"), "%s", error.text);
    in[0].shape[1] = K + 1;
    FAILS(FUSOR_ERROR_SHAPE, "dim K", rest, 1, in, 1, &row);
    rt_exec_release(rest);
    rt_exec_release(bound);
}
Test(exec, binding_by_reference) { binding(true, 1); }
Test(exec, binding_by_kernels) {
    if (!has_module()) return;
    binding(false, 1);
    binding(false, 3);
}

Test(exec, prepared_calls) {
    for (int reference = 0; reference < 2; reference++) {
        if (!reference && !has_module()) continue;
        rt_exec *x = compile(ADD, (setup){1, reference});
        float a[6] = {1, 2, 3, 4, 5, 6}, c[6];
        fusor_buffer in[2] = {f32(a, 2, 2, 3), f32(a, 2, 2, 3)}, out = f32(c, 2, 2, 3);
        rt_call *call;
        fu_error_clear(&error);
        cr_assert_eq(rt_call_new(x, &error, 2, in, 1, &out, &call), FUSOR_OK, "%s", error.text);
        rt_exec_release(x);
        for (int i = 0; i < 3; i++) {
            a[0] = (float)i;
            /* from the second run on by exec_again.c, where there are kernels */
            bool again = rt_call_again(call);
            cr_assert_eq(again, i > 0 && !reference);
            if (!again) cr_assert_eq(rt_call_run(call, &error), FUSOR_OK);
            cr_assert(c[0] == 2 * i && c[5] == 12);
        }
        rt_call_free(call);
    }
    rt_call_free(NULL);
}

/* A step of the reference evaluator writes, and another reads, memory that has the shape of a result that is a reshape of
 * its value: a convolution whose kernel has a named size has no kernel. */
Test(exec, reference_steps_know_the_shapes_of_values) {
    static const char text[] =
        "func @f(%x: f32[2, 1, 7], %w: f32[4, 1, A], %u: f32[1, 4, A]) -> (%z: f32[16, ?], %v: f32[2, 1, ?]) "
        "{ %y = conv(%x, %w) %z = reshape(%y, shape=[16, -1]) %v = conv(%y, %u) return %z, %v }";
    float in_x[14], in_w[16] = {0}, in_u[16], z[32], v[2];
    for (int i = 0; i < 14; i++) in_x[i] = (float)i;
    for (int i = 0; i < 4; i++) in_w[4 * i + i] = 1; /* row i of %y: %x from element i on */
    for (int i = 0; i < 16; i++) in_u[i] = 1;
    rt_exec *x = compile(text, (setup){1, false});
    cr_assert(x, "%s", error.text);
    fusor_buffer in[3] = {f32(in_x, 3, 2, 1), f32(in_w, 3, 4, 1), f32(in_u, 3, 1, 4)};
    in[0].shape[2] = 7, in[1].shape[2] = in[2].shape[2] = 4;
    fusor_buffer out[2] = {f32(z, 2, 16, 2), f32(v, 3, 2, 1)};
    out[1].shape[2] = 1;
    OK(x, 3, in, 2, out);
    for (int i = 0; i < 32; i++)
        cr_assert_eq(z[i], in_x[7 * (i / 16) + i % 16 / 4 + i % 4], "element %d is %g", i, z[i]);
    cr_assert(v[0] == 48 && v[1] == 160, "%g %g", v[0], v[1]);
    rt_exec_release(x);
}

/* Calls with the buffers of the last one check only that they are: whatever differs is seen, and what is the same again
 * is right. */
static void repeated_calls(bool reference) {
    rt_exec *x = compile(ADD, (setup){1, reference});
    float a[12] = {0}, b[12], c[12], other[12], wide[24] = {0};
    for (int i = 0; i < 12; i++) b[i] = (float)i;
    fusor_buffer in[2] = {f32(a, 2, 2, 3), f32(b, 2, 2, 3)}, out = f32(c, 2, 2, 3);
    for (int i = 0; i < 40; i++) {
        a[5] = (float)i;
        OK(x, 2, in, 1, &out);
        cr_assert_eq(c[5], 5 + i);
        fusor_buffer changed[2] = {in[0], in[1]}, to = out;
        switch (i % 10) {
        case 0:
            to.data = other;
            OK(x, 2, changed, 1, &to);
            cr_assert_eq(other[5], 5 + i);
            break;
        case 1:
            changed[0].data = b;
            OK(x, 2, changed, 1, &to);
            cr_assert_eq(c[5], 10);
            break;
        case 2:
            changed[0].shape[1] = changed[1].shape[1] = to.shape[1] = 6;
            OK(x, 2, changed, 1, &to);
            cr_assert_eq(c[11], 11);
            break;
        case 3:
            changed[1].shape[1] = 4;
            FAILS(FUSOR_ERROR_SHAPE, "", x, 2, changed, 1, &to);
            break;
        case 4:
            changed[1].dtype = FUSOR_F64;
            FAILS(FUSOR_ERROR_TYPE, "", x, 2, changed, 1, &to);
            break;
        case 5:
            to.flags = FUSOR_READONLY;
            FAILS(FUSOR_ERROR_ARGUMENT, "read-only", x, 2, changed, 1, &to);
            break;
        case 6: FAILS(FUSOR_ERROR_ARGUMENT, "takes 2 inputs", x, 1, changed, 1, &to); break;
        case 7:
            changed[0] = (fusor_buffer){.data = wide,
                                        .dtype = FUSOR_F32,
                                        .rank = 2,
                                        .shape = {2, 3},
                                        .stride = {12, 2},
                                        .flags = FUSOR_STRIDED};
            wide[16] = 7;
            OK(x, 2, changed, 1, &to);
            OK(x, 2, changed, 1, &to);
            cr_assert_eq(c[5], 12);
            changed[0].stride[1] = 1;
            OK(x, 2, changed, 1, &to);
            cr_assert_eq(c[5], 5);
            break;
        case 8:
            changed[0].device = 1;
            FAILS(FUSOR_ERROR_DEVICE, "", x, 2, changed, 1, &to);
            break;
        case 9: FAILS(FUSOR_ERROR_ARGUMENT, "", x, 2, NULL, 1, &to); break;
        }
        OK(x, 2, in, 1, &out);
        OK(x, 2, in, 1, &out);
        OK(x, 2, in, 1, &out);
        cr_assert_eq(c[5], 5 + i);
    }
    rt_exec_release(x);
}
Test(exec, repeated_calls_by_reference) { repeated_calls(true); }
Test(exec, repeated_calls_by_kernels) {
    if (has_module()) repeated_calls(false);
}

/* What the first run packed of a constant stays what later ones read. */
Test(exec, repeated_calls_with_constants) {
    if (!has_module()) return;
    rt_exec *x = compile(
        "func @f(%a: f32[M, 20], const %b: f32[20, 33]) -> f32[M, 33] { %c = matmul(%a, %b) %d = relu(%c) return %d }",
        (setup){1, false});
    static float a[70 * 20], b[20 * 33], c[70 * 33];
    for (int i = 0; i < 20 * 33; i++) b[i] = (float)(i % 7 - 3);
    int param = 1;
    fusor_buffer in = f32(a, 2, 70, 20), value = f32(b, 2, 20, 33), out = f32(c, 2, 70, 33);
    rt_exec *bound;
    rt_call *call;
    cr_assert_eq(rt_exec_bind(x, &error, 1, &param, &value, &bound), FUSOR_OK, "%s", error.text);
    cr_assert_eq(rt_call_new(bound, &error, 1, &in, 1, &out, &call), FUSOR_OK, "%s", error.text);
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 70 * 20; j++) a[j] = (float)((i + j) % 5);
        if (i % 2) OK(bound, 1, &in, 1, &out);
        else if (!rt_call_again(call)) cr_assert_eq(rt_call_run(call, &error), FUSOR_OK);
        for (int m = 0; m < 70; m++)
            for (int n = 0; n < 33; n++) {
                float want = 0;
                for (int k = 0; k < 20; k++) want += a[m * 20 + k] * b[k * 33 + n];
                cr_assert_eq(c[m * 33 + n], want > 0 ? want : 0);
            }
    }
    cr_assert(rt_call_again(call));
    rt_call_free(call);
    rt_exec_release(bound);
    rt_exec_release(x);
}

/* What products with vectors become: reductions along k, whichever operand is the vector; outer products are maps. */
Test(exec, products_with_vectors) {
    static const struct {
        const char *text;
        int n_kernels;
        ir_kernel_kind last;
    } cases[] = {
        {"func @f(%a: f32[M, K], %x: f32[K]) -> f32[M] { %y = matmul(%a, %x) return %y }", 1, IR_KERNEL_REDUCE},
        {"func @f(%x: f32[K], const %b: f32[K, N], %c: f32[N]) -> f32[N] { %y = matmul(%x, %b) %z = add(%y, %c) return "
         "%z }",
         1, IR_KERNEL_REDUCE},
        {"func @f(%x: f32[1, 64], const %b: f32[64, 65]) -> f32[1, 65] { %y = matmul(%x, %b) return %y }", 1,
         IR_KERNEL_CONTRACT},
        {"func @f(%x: f32[80], const %b: f32[80, 64]) -> f32[64] { %y = matmul(%x, %b) return %y }", 1,
         IR_KERNEL_CONTRACT},
        {"func @f(%x: f32[1, 64], %b: f32[64, 65]) -> f32[1, 65] { %y = matmul(%x, %b) return %y }", 1,
         IR_KERNEL_REDUCE},
        {"func @f(%x: f32[1, 64], const %b: f32[65, 64]) -> f32[1, 65] { %y = matmul(%x, %b, transpose_b=true) return "
         "%y }",
         1, IR_KERNEL_REDUCE},
        {"func @f(%x: f16[K], %y: f16[K]) -> f16 { %z = matmul(%x, %y) return %z }", 1, IR_KERNEL_REDUCE},
        {"func @f(%a: f32[M, 1], %b: f32[1, N]) -> f32[M, N] { %y = matmul(%a, %b) return %y }", 1, IR_KERNEL_MAP},
        {"func @f(%a: f32[M, K], %x: f32[K]) -> f32[M] { %e = exp(%x) %y = matmul(%a, %e) return %y }", 2,
         IR_KERNEL_REDUCE},
        {"func @f(%a: i32[M, K], %x: i32[K]) -> i64[M] { %y = matmul(%a, %x) return %y }", 1, IR_KERNEL_CONTRACT},
        {"func @f(%a: f32[B, 1, 16], %b: f32[B, 16, 16]) -> f32[B, 1, 16] { %y = matmul(%a, %b) return %y }", 1,
         IR_KERNEL_CONTRACT},
    };
    if (!has_module()) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rt_exec *x = compile(cases[i].text, (setup){1, false});
        cr_assert(x, "%s", error.text);
        const ir_plan *plan = rt_exec_plan(x);
        cr_assert_eq((int)plan->steps.n, cases[i].n_kernels, "%s", cases[i].text);
        cr_expect_eq(plan->steps.at[plan->steps.n - 1].kernel->kind, cases[i].last, "%s", cases[i].text);
        rt_exec_release(x);
    }
}

/* Which contractions take the direct form is read in the text. */
Test(exec, small_contractions_are_direct) {
    static const struct {
        const char *text;
        bool is_direct;
    } cases[] = {
        {"func @f(%a: f32[64, 64], %b: f32[64, 64]) -> f32[64, 64] { %y = matmul(%a, %b) return %y }", true},
        {"func @f(%a: f64[B, 5, 7], %b: f64[B, 7, 9]) -> f64[B, 5, 9] { %y = matmul(%a, %b) return %y }", true},
        {"func @f(%a: f32[5, 7], const %b: f32[7, 9], %c: f32[9]) -> f32[5, 9] { %x = matmul(%a, %b) %y = add(%x, %c) "
         "return %y }",
         true},
        {"func @f(%a: f32[B, 7, 5], %b: f32[B, 9, 7]) -> f32[B, 5, 9] { %y = matmul(%a, %b, transpose_a=true, "
         "transpose_b=true) return %y }",
         true},
        {"func @f(%a: f32[4, 7], const %b: f32[9, 7]) -> f32[4, 9] { %y = matmul(%a, %b, transpose_b=true) return %y }",
         false},
        {"func @f(%a: f32[M, 7], %b: f32[7, 9]) -> f32[M, 9] { %y = matmul(%a, %b) return %y }", false},
        {"func @f(%a: f32[4, 65], %b: f32[65, 9]) -> f32[4, 9] { %y = matmul(%a, %b) return %y }", false},
        {"func @f(%a: f16[4, 8], %b: f16[8, 9]) -> f16[4, 9] { %y = matmul(%a, %b) return %y }", false},
        {"func @f(%a: f32[4, 0], %b: f32[0, 9]) -> f32[4, 9] { %y = matmul(%a, %b) return %y }", false},
    };
    if (!has_module()) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rt_exec *x = compile(cases[i].text, (setup){1, false});
        cr_assert(x, "%s", error.text);
        const ir_plan *plan = rt_exec_plan(x);
        cr_expect_eq(plan->steps.n, 1);
        cr_expect_eq(plan->steps.at[0].kernel->is_direct, cases[i].is_direct, "%s", cases[i].text);
        rt_exec_release(x);
    }
}

/* The sanitizers' own allocator takes locks that a fork of a threaded process leaves behind in the child. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FORKS = 0 };
#else
enum { FORKS = 5 };
#endif

/* ---- many callers, forks ---- */
static rt_exec *shared;
static void *caller(void *arg) {
    int seed = *(int *)arg;
    for (int i = 0; i < 100; i++) {
        int64_t m = 1 + (seed * 31 + i) % 7, n = 1 + (seed * 17 + i * 3) % 900;
        float *a = malloc(sizeof *a * (size_t)(m * n));
        for (int64_t j = 0; j < m * n; j++) a[j] = (float)(j + seed);
        fusor_buffer in[2] = {f32(a, 2, m, n), f32(a, 2, m, n)}, out = {0};
        fu_error *e = calloc(1, sizeof *e);
        cr_assert_eq(rt_exec_call(shared, e, 2, in, 1, &out), FUSOR_OK, "%s", e->text);
        for (int64_t j = 0; j < m * n; j++) cr_assert_eq(((float *)out.data)[j], 2 * a[j]);
        rt_buffer_release(NULL, out.data);
        free(a);
        free(e);
    }
    return NULL;
}
Test(exec, several_callers_and_forks, .timeout = 60) {
    for (int reference = 0; reference < 2; reference++) {
        if (!reference && !has_module()) continue;
        shared = compile(ADD, (setup){2, reference});
        pthread_t t[4];
        int seed[4] = {1, 2, 3, 4};
        for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, caller, &seed[i]);
        for (int i = 0; i < FORKS; i++) {
            pid_t pid = fork();
            if (pid == 0) {
                alarm(20);
                caller(&seed[1]);
                _exit(0);
            }
            int status;
            waitpid(pid, &status, 0);
            cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%x", status);
        }
        for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
        rt_exec_release(shared);
    }
}

Test(exec, thread_count_does_not_change_bits) {
    if (!has_module()) return;
    enum { M = 301, N = 1009 };
    float *a = malloc(sizeof *a * M * N), *b = malloc(sizeof *b * M * N);
    for (int i = 0; i < M * N; i++) {
        a[i] = (float)((int64_t)i * 7919 % 1013) / 333 - 1.5f;
        b[i] = (float)((int64_t)i * 104729 % 1019) / 777 - 0.6f;
    }
    fusor_buffer in[2] = {f32(a, 2, M, N), f32(b, 2, M, N)};
    for (int p = 0; p < N_PROGRAMS; p++) {
        if (strstr(programs[p], "f32[K, N]") || strstr(programs[p], "%b: f32[N]")) continue;
        fusor_buffer first[2] = {{0}};
        for (int t = 1; t <= 64; t = t * 4 - 1) {
            rt_exec *x = compile(programs[p], (setup){t, false});
            int n_out = (int)rt_exec_plan(x)->graph->results.n;
            fusor_buffer out[2] = {{0}};
            OK(x, 2, in, n_out, out);
            for (int r = 0; r < n_out; r++) {
                size_t bytes = ir_dtypes[out[r].dtype].bytes;
                for (int d = 0; d < out[r].rank; d++) bytes *= (size_t)out[r].shape[d];
                if (t == 1) first[r] = out[r];
                else {
                    cr_assert(!memcmp(first[r].data, out[r].data, bytes), "%.60s with %d threads", programs[p], t);
                    rt_buffer_release(NULL, out[r].data);
                }
            }
            rt_exec_release(x);
        }
        for (int r = 0; r < 2; r++) rt_buffer_release(NULL, first[r].data);
    }
    free(a);
    free(b);
}

Test(exec, memory_runs_out) {
    rt_exec *x = adder();
    float a[8] = {1};
    fusor_buffer in[2] = {f32(a, 2, 2, 3), f32(a, 2, 2, 3)};
    for (long i = 1; i < 12; i++) {
        fusor_buffer out = {0};
        rt_memory_trim();
        fu_malloc_fail_at(i);
        fusor_status s = run(x, 2, in, 1, &out);
        fu_malloc_fail_at(0);
        cr_assert(s == FUSOR_OK || (s == FUSOR_ERROR_MEMORY && !out.data), "%s", error.text);
        rt_buffer_release(NULL, out.data);
        in[0].shape[0] = in[1].shape[0] = 2 - i % 2;
    }
    rt_exec_release(x);
    cr_assert_eq(rt_memory_get_stats().live_buffers, 0);
}

Test(exec, peak_bytes) {
    rt_exec *x = compile(DENSE, (setup){1, true});
    int64_t symbols[3] = {10, 20, 30}, huge[3] = {INT64_C(1) << 40, INT64_C(1) << 40, INT64_C(1) << 40};
    int64_t peak = rt_exec_peak_bytes(x, symbols);
    cr_assert(peak >= 0 && peak < 1 << 16, "%ld", (long)peak);
    cr_assert_eq(rt_exec_peak_bytes(x, huge), -1);
    rt_exec_release(x);
}

/* ---- kernels that have to be compiled ---- */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int inside, most, calls, waits_for; /* a call waits until so many have been inside at once, ten seconds at most */
    const char *refuses[2];             /* kernels whose symbols have these words */
} made = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int make_and_count(const fusor_codegen_request *q, fusor_codegen_result *r) {
    const fusor_codegen_table *t;
    fu_error e;
    fu_error_clear(&e);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    pthread_mutex_lock(&made.lock);
    made.calls++;
    if (++made.inside > made.most) made.most = made.inside;
    pthread_cond_broadcast(&made.changed);
    while (made.most < made.waits_for && !pthread_cond_timedwait(&made.changed, &made.lock, &until)) {}
    made.inside--;
    pthread_mutex_unlock(&made.lock);
    for (int i = 0; i < 2; i++)
        if (made.refuses[i] && strstr(q->symbol, made.refuses[i])) return FUSOR_ERROR_UNSUPPORTED;
    return rt_module_get(&e, &t) == FUSOR_OK ? t->generate(q, r) : FUSOR_ERROR_INTERNAL;
}

/* A map, three kinds of reduction, the first one twice. */
#define SEVERAL                                                                                                        \
    "func @f(%a: f32[M, N], %b: f32[M, N]) -> (f32[N, M], f32[M], f32[M], f32[N, M], f32[M]) { "                       \
    "%c = transpose(%a) %d = reduce_sum(%a, axes=[1]) %e = reduce_max(%a, axes=[1]) %g = transpose(%b) "               \
    "%h = cumsum(%a, axis=1) %i = reduce_prod(%h, axes=[1]) return %c, %d, %e, %g, %i }"

static rt_exec *compile_counted(int n_threads, int waits_for) {
    rt_cache *old = cache;
    made.inside = made.most = made.calls = 0;
    made.waits_for = waits_for;
    cr_assert_eq(rt_cache_open(&error, &(rt_cache_options){.dir = "", .generate = make_and_count}, &cache), FUSOR_OK);
    rt_exec *x = compile(SEVERAL, (setup){n_threads, false});
    if (!x) rt_cache_close(cache);
    cache = x ? cache : old;
    return x;
}

Test(exec, threads_compile_together) {
    if (!has_module()) return;
    enum { M = 3, N = 5 };
    float a[M * N], b[M * N];
    for (int i = 0; i < M * N; i++) a[i] = b[i] = (float)(i % 7) - 2;
    fusor_buffer in[2] = {f32(a, 2, M, N), f32(b, 2, M, N)}, first[5] = {{0}};
    int n_kernels = 0;
    for (int t = 1; t <= 3; t++) {
        rt_exec *x = compile_counted(t, t);
        cr_assert(x, "%s", error.text);
        cr_expect_eq(made.most, t, "%d at once", made.most);
        if (t == 1) n_kernels = made.calls;
        cr_expect_eq(made.calls, n_kernels, "%d kernels, with one thread %d", made.calls, n_kernels);
        fusor_buffer out[5] = {{0}};
        OK(x, 2, in, 5, out);
        for (int r = 0; r < 5; r++) {
            const size_t bytes = sizeof(float) * (r == 0 || r == 3 ? M * N : M);
            if (t == 1) first[r] = out[r];
            else cr_expect(!memcmp(first[r].data, out[r].data, bytes), "result %d with %d threads", r, t);
            if (t > 1) rt_buffer_release(NULL, out[r].data);
        }
        rt_exec_release(x);
        rt_cache_close(cache);
    }
    for (int r = 0; r < 5; r++) rt_buffer_release(NULL, first[r].data);
    cr_assert_geq(n_kernels, 3);
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int inside, most;
    struct timespec until; /* a part waits so long for others, at most */
} lent = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void count_part(void *arg, int i) {
    (void)arg;
    (void)i;
    pthread_mutex_lock(&lent.lock);
    if (++lent.inside > lent.most) lent.most = lent.inside;
    pthread_cond_broadcast(&lent.changed);
    while (lent.most <= RT_MOST_COMPILERS && !pthread_cond_timedwait(&lent.changed, &lent.lock, &lent.until)) {}
    lent.inside--;
    pthread_mutex_unlock(&lent.lock);
}

/* Asks for as many threads for the parts of each kernel as it can have. */
static int make_in_parts(const fusor_codegen_request *q, fusor_codegen_result *r) {
    q->run_all(q->user, 4 * RT_MOST_COMPILERS, count_part, NULL);
    return make_and_count(q, r);
}

Test(exec, kernels_and_their_parts_share_the_threads_of_a_compile) {
    if (!has_module()) return;
    rt_cache *old = cache;
    made.waits_for = lent.most = 0;
    cr_assert_eq(rt_cache_open(&error, &(rt_cache_options){.dir = "", .generate = make_in_parts}, &cache), FUSOR_OK);
    clock_gettime(CLOCK_REALTIME, &lent.until);
    lent.until.tv_sec++;
    rt_exec *x = compile(SEVERAL, (setup){3 * RT_MOST_COMPILERS, false});
    cr_assert(x, "%s", error.text);
    cr_expect(lent.most > 1 && lent.most <= RT_MOST_COMPILERS, "%d threads at once", lent.most);
    rt_exec_release(x);
    rt_cache_close(cache);
    cache = old;
}

Test(exec, one_thread_compiles_where_the_address_space_is_limited) {
    if (!has_module()) return;
    struct rlimit space;
    cr_assert_eq(getrlimit(RLIMIT_AS, &space), 0);
    space.rlim_cur = (rlim_t)1 << 47; /* more than anything takes */
    if (setrlimit(RLIMIT_AS, &space) != 0) return;
    rt_exec *x = compile_counted(3, 1);
    cr_assert(x, "%s", error.text);
    cr_expect_eq(made.most, 1, "%d at once", made.most);
    rt_exec_release(x);
    rt_cache_close(cache);
}

Test(exec, the_first_kernel_that_fails_is_reported) {
    if (!has_module()) return;
    static fu_error with_one;
    made.refuses[0] = "reduce_max";
    made.refuses[1] = "reduce_prod";
    for (int t = 1; t <= 3; t++) {
        cr_assert(!compile_counted(t, 1));
        cr_expect_eq(error.status, FUSOR_ERROR_UNSUPPORTED);
        if (t == 1) with_one = error;
        cr_expect_str_eq(error.text, with_one.text, "with %d threads", t);
    }
    made.refuses[0] = made.refuses[1] = NULL;
}
