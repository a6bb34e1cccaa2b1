/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* device_exec_test.c: calls on a device, over the fake driver. Programs with every kind of step give the reference's bits wherever
 * their inputs and outputs are; what is put on the queue, and what is not; bound parameters, sets, sequences; failures of the
 * driver at every call.
 *
 * In one file because all of it stands on one table of programs, one cache and queue, and one count of the driver's
 * calls; sets of buffers over one launch, lazy tensors, the C API and "auto" have files of their own beside it. */
#include "../diff/check.h"
#include "device_place.h"
#include "rt/profile.h"
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static fu_error error;
static rt_cache *cache;
static rt_queue *queue;

static void init(void) {
    unsetenv("FUSOR_CACHE_PATH");
    fu_error_clear(&error);
    rt_cache_options o = {.dir = "", .path = ""};
    cr_assert_eq(rt_cache_open(&error, &o, &cache), FUSOR_OK);
}
TestSuite(device_exec, .init = init, .timeout = 300);

static bool begin(void) {
    const fusor_codegen_table *t;
    if (rt_module_get(&error, &t) != FUSOR_OK) {
        cr_skip("%s", error.text);
        return false;
    }
    queue = place_queue(&error, 0);
    cr_assert(queue, "%s", error.text);
    return true;
}

/* Calls of a function of the driver since the process began. */
static long calls_of(const char *name) {
    static long (*count)(const char *);
    void *lib = dlopen(getenv("FUSOR_CUDA_LIB"), RTLD_NOW | RTLD_NOLOAD);
    if (!count && lib) *(void **)&count = dlsym(lib, "fake_cuda_count");
    cr_assert(count, "the driver does not count");
    return count(name);
}

static rt_exec *compile(const char *text, bool reference) {
    const ir_target target = rt_device_get_info(rt_queue_device(queue))->target;
    rt_exec *x = build(&error, cache, text,
                       (setup){.level = reference ? IR_LEVEL_V2 : target.level,
                               .n_threads = 1,
                               .reference = reference,
                               .queue = reference ? NULL : queue});
    cr_assert(x, "%s: %s", text, error.text);
    return x;
}

/* ---- every placement ---- */
/* Whole numbers, so that all orders of sums give the same bits. M, N, K: sizes. */
static const char *const programs[] = {
    "func @f(%a: f32[M, N], %b: f32[N]) -> f32[M, N] { %c = add(%a, %b) %d = relu(%c) return %d }",
    "func @f(%a: f32[M, K], %b: f32[K, N], %c: f32[N, N]) -> (f32[M, N], f32[M]) { %d = matmul(%a, %b) %e = "
    "matmul(%d, %c) "
    "%g = reduce_sum(%e, axes=[1]) return %e, %g }",
    "func @f(%a: f32[M, N], %b: f32[M, N]) -> (f32[M, N] alias %a, f32[N]) { %c = mul(%a, %b) %d = reduce_sum(%a, "
    "axes=[0]) "
    "return %c, %d }",
    "func @f(%a: bool[M, N], %b: bool[M, N]) -> (bool[M, N], bool[M, N]) { %c = and(%a, %b) return %c, %a }",
    "func @f(%a: f32[M, N], %i: i32[K]) -> f32[K, N] { %b = take(%a, %i, axis=0) %c = neg(%b) return %c }",
    "func @f(%a: f32[M, N], %i: i64[K, N], %u: f32[K, N]) -> f32[M, N] alias %a { %b = scatter(%a, %i, %u, axis=0, "
    "mode=add) "
    "return %b }",
    "func @f(%a: f32[M, N]) -> (f32[M, N], f32[N, M], f32) { %b = transpose(%a) %c = reduce_max(%a) return %a, %b, "
    "%c "
    "}",
    "func @f(%a: f64[M, N], %b: u8[M, N]) -> (i64[M, N], f64) { %c = cast(%b, i64) %d = reduce_sum(%a) return %c, "
    "%d "
    "}",
    "func @f() -> (f32[2], i32) { %a = full(1.5, shape=[2], dtype=f32) %b = full(7, shape=[], dtype=i32) return "
    "%a, "
    "%b }",
};
enum { N_PROGRAMS = sizeof programs / sizeof *programs, MAX_ENDS = 8 };

typedef struct end {
    ref_tensor value; /* contents; of an input before the call, of an output after */
    fusor_buffer buffer;
    char *memory;
    size_t bytes;
    placed there;
} end;

/* Memory for t, on the host or the device, strided or not. */
static void place_end(end *n, rng *r, bool strided, bool there) {
    const bool is_bool = n->value.dtype == FUSOR_BOOL;
    const ref_tensor *t = &n->value;
    int64_t first = 0, span = ref_count(t);
    const int64_t bytes = ir_dtypes[t->dtype].bytes;
    n->buffer = describe(t, NULL);
    if (strided && span > 0) {
        span = strided_layout(t, r, n->buffer.stride, &first);
        n->buffer.flags = FUSOR_STRIDED;
    }
    n->bytes = (size_t)(span * bytes);
    n->memory = malloc(n->bytes + 1);
    memset(n->memory, 0x5a, n->bytes + 1);
    n->buffer.data = n->memory + first * bytes;
    if (n->buffer.flags) strided_copy(t, &n->buffer, true);
    else if (n->bytes) memcpy(n->buffer.data, t->data, n->bytes);
    for (size_t i = 0; is_bool && i < n->bytes; i++) n->memory[i] = n->memory[i] ? 3 : 0; /* what is not 0 is true */
    if (there) n->there = place_there(queue, &error, &n->buffer, n->memory, n->bytes);
}

static void read_end(end *n) {
    if (n->there.at) place_back(queue, &error, &n->buffer, &n->there);
    n->there.at = 0;
    if (n->buffer.flags & FUSOR_STRIDED) strided_copy(&n->value, &n->buffer, false);
    else if (bytes_of(&n->value)) memcpy(n->value.data, n->buffer.data, bytes_of(&n->value));
}

static int64_t *sizes_of(const ir_graph *g, const int64_t size[3]) {
    static int64_t symbols[8];
    for (uint32_t s = 0; s < ir_size_symbol_count(g->sizes); s++) {
        const char name = ir_size_symbol_name(g->sizes, s)[0];
        symbols[s] = size[name == 'M' ? 0 : name == 'N' ? 1 : 2];
    }
    return symbols;
}

static ref_tensor tensor_of(const ir_graph *g, ir_id id, const int64_t *symbols) {
    const ir_node *n = ir_at(g, id);
    ref_tensor t = {.dtype = n->dtype, .rank = n->rank};
    for (int d = 0; d < n->rank; d++) cr_assert_eq(ir_size_eval(g->sizes, n->dim[d], symbols, &t.shape[d]), IR_SIZE_OK);
    t.data = calloc(1, bytes_of(&t) + 8);
    return t;
}

static void fill_whole(ref_tensor *t, rng *r, int64_t limit) {
    for (int64_t i = 0; i < ref_count(t); i++) {
        const int64_t v = ir_is_float(t->dtype) ? below(r, 9) - 4 : below(r, (int)(limit > 0 ? limit : 1));
        if (ir_is_float(t->dtype)) ref_put_real(t, i, (long double)v);
        else ref_put(t, i, (ir_bits)(t->dtype == FUSOR_BOOL ? v & 1 : v));
    }
}

/* One call with ends at random places, twice with the same buffers where nothing is overwritten. */
static void check_placements(int number, rt_exec *x, rt_exec *ref, const int64_t size[3], uint64_t seed) {
    const ir_graph *g = rt_exec_plan(x)->graph;
    const int n_in = (int)g->params.n, n_out = (int)g->results.n;
    const int64_t *symbols = sizes_of(g, size);
    end in[MAX_ENDS] = {0}, out[MAX_ENDS] = {0};
    fusor_buffer bi[MAX_ENDS] = {{0}}, bo[MAX_ENDS] = {{0}}, ri[MAX_ENDS] = {{0}}, ro[MAX_ENDS] = {{0}};
    ref_tensor want[MAX_ENDS];
    rng r = {mix(seed * 64 + (uint64_t)number)};
    for (int i = 0; i < n_in; i++) {
        in[i].value = tensor_of(g, g->params.at[i].node, symbols);
        fill_whole(&in[i].value, &r, size[0]);
        place_end(&in[i], &r, chance(&r, 40), chance(&r, 50));
        bi[i] = in[i].buffer;
        ri[i] = describe(&in[i].value, malloc(bytes_of(&in[i].value) + 1));
        if (bytes_of(&in[i].value)) memcpy(ri[i].data, in[i].value.data, bytes_of(&in[i].value));
    }
    bool is_aliased = false;
    for (int k = 0; k < n_out; k++) {
        const int alias = g->results.at[k].alias;
        want[k] = out[k].value = tensor_of(g, g->results.at[k].node, symbols);
        want[k].data = calloc(1, bytes_of(&want[k]) + 1);
        ro[k] = describe(&want[k], want[k].data);
        is_aliased |= alias >= 0;
        if (alias >= 0) {
            ro[k] = ri[alias];
            if (chance(&r, 50)) bo[k] = bi[alias];
        } else if (chance(&r, 70)) {
            place_end(&out[k], &r, chance(&r, 40), chance(&r, 50));
            bo[k] = out[k].buffer;
        } else bo[k].device = chance(&r, 50) ? 1 : 0;
    }
    fu_error_clear(&error);
    const fusor_status status = rt_exec_call(ref, &error, n_in, ri, n_out, ro); /* the largest of nothing is refused */
    for (int again = 0; again < (is_aliased ? 1 : 3); again++) {
        fu_error_clear(&error);
        cr_assert_eq(rt_exec_call(x, &error, n_in, bi, n_out, bo), status, "%s: %s", programs[number], error.text);
    }
    for (int k = 0; k < n_out && status == FUSOR_OK; k++) {
        const int alias = g->results.at[k].alias;
        end *n = alias >= 0 ? &in[alias] : &out[k];
        if (alias >= 0) want[k].data = ri[alias].data;
        if (n->memory) read_end(n);
        else { /* made by the call */ cr_assert(bo[k].data);
            if (bo[k].device) {
                cr_assert_eq(rt_queue_download(queue, &error, n->value.data, (rt_address)(uintptr_t)bo[k].data,
                                               bytes_of(&n->value)),
                             FUSOR_OK);
            } else if (bytes_of(&n->value)) memcpy(n->value.data, bo[k].data, bytes_of(&n->value));
            rt_buffer_release(NULL, bo[k].data);
        }
        const int64_t at = first_difference(&n->value, &want[k]);
        cr_assert(at < 0, "%s M=%d N=%d K=%d seed %d: result %d, element %lld", programs[number], (int)size[0],
                  (int)size[1], (int)size[2], (int)seed, k, (long long)at);
    }
    for (int i = 0; i < n_in; i++) {
        if (in[i].there.at) rt_queue_put(queue, in[i].there.at);
        free(in[i].memory), free(in[i].value.data), free(ri[i].data);
    }
    for (int k = 0; k < n_out; k++) {
        if (out[k].there.at) rt_queue_put(queue, out[k].there.at);
        free(out[k].memory), free(out[k].value.data);
        if (g->results.at[k].alias < 0) free(want[k].data);
    }
}

static int buffer_of(const ir_plan *plan, ir_id node) {
    for (uint32_t b = 0; b < plan->buffers.n; b++)
        if (plan->buffers.at[b].node == node) return (int)b;
    return -1;
}

/* A kernel of one operator as a step of the reference evaluator, where all that it reads is in buffers. */
static bool make_reference(fu_arena *arena, const ir_plan *plan, ir_step *st) {
    if (st->kind != IR_STEP_KERNEL || st->n_ops != 1) return false;
    const ir_node *n = ir_at(plan->graph, st->ops[0]);
    int *arg = FU_NEW_N(arena, int, n->n_in + 1);
    for (int k = 0; k < n->n_in; k++)
        if ((arg[k] = buffer_of(plan, n->in[k])) < 0) return false;
    if ((arg[n->n_in] = buffer_of(plan, st->ops[0])) < 0) return false;
    bool is_output = false; /* of this very kernel */
    for (int a = 0; a < st->n_args; a++) is_output |= st->kernel->buffer[a].is_output && st->arg[a] == arg[n->n_in];
    if (!is_output) return false;
    *st = (ir_step){.kind = IR_STEP_REFERENCE, .n_args = n->n_in + 1, .arg = arg, .node = st->ops[0]};
    return true;
}

/* Unfused, with some kernels done by the reference evaluator: by turns from `first` on. NULL: there is none for it. */
static rt_exec *compile_mixed(const char *text, int first) {
    static jmp_buf oom;
    fu_arena arena;
    ir_module *m;
    ir_graph *g;
    ir_plan *plan;
    rt_exec *x = NULL;
    volatile int n_kernels_seen = 0, n_made = 0; /* past a longjmp */
    fu_arena_init(&arena, &oom);
    fu_error_clear(&error);
    if (setjmp(oom)) cr_assert(false, "out of memory");
    ir_plan_options po = {.level = rt_device_get_info(rt_queue_device(queue))->target.level, .no_fuse = true};
    rt_exec_options xo = {.n_threads = 1, .reference = reference_node, .queue = queue};
    cr_assert(ir_parse(&arena, &error, "<text>", text, strlen(text), &m) == FUSOR_OK &&
                  ir_flatten(&arena, &error, m, ir_module_find(m, NULL), &g) == FUSOR_OK &&
                  ir_run_passes(&arena, &error, &g) == FUSOR_OK &&
                  ir_plan_make(&arena, &error, g, &po, &plan) == FUSOR_OK,
              "%s", error.text);
    for (uint32_t i = 0; i < plan->steps.n; i++)
        if (plan->steps.at[i].kind == IR_STEP_KERNEL && (n_kernels_seen++ + first) % 2 == 0)
            n_made += make_reference(&arena, plan, &plan->steps.at[i]);
    if (n_made) cr_assert_eq(rt_exec_new(&error, &arena, plan, cache, &xo, &x), FUSOR_OK, "%s", error.text);
    else fu_arena_free(&arena);
    return x;
}

/* order: of the driver's streams, where nothing but events keeps them apart. */
static void check_all_placements(const char *order, int n_seeds) {
    static const int64_t sizes[][3] = {{3, 5, 4}, {1, 1, 1}, {33, 17, 9}, {4, 0, 3}, {2, 70, 65}};
    setenv("FAKECUDA_ORDER", order, 1);
    if (!begin()) return;
    int n_mixed = 0;
    for (int p = 0; p < N_PROGRAMS; p++) {
        rt_exec *ref = compile(programs[p], true);
        rt_exec *x[3] = {compile(programs[p], false), compile_mixed(programs[p], 0), compile_mixed(programs[p], 1)};
        for (int k = 0; k < 3; k++) {
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes && x[k]; s++)
                for (uint64_t seed = 0; seed < (uint64_t)(k ? 2 : n_seeds); seed++)
                    check_placements(p, x[k], ref, sizes[s], seed + 100 * s);
            n_mixed += k && x[k];
            rt_exec_release(x[k]);
        }
        rt_exec_release(ref);
    }
    cr_assert(n_mixed > 8, "%d", n_mixed);
}

Test(device_exec, every_placement_gives_the_reference_s_bits) { check_all_placements("lazy", 5); }
Test(device_exec, every_placement_when_streams_run_at_once) { check_all_placements("eager", 2); }
Test(device_exec, every_placement_when_streams_run_in_reverse) { check_all_placements("reverse", 3); }

/* ---- what is put on the queue ---- */
#define CUDA(NEED, SYMBOL, PARAMETERS) #SYMBOL,
static const char *const functions[] = {
#include "rt/cuda_api.def"
};
#undef CUDA
enum { N_FUNCTIONS = sizeof functions / sizeof *functions };

static void count_all(long *out) {
    for (int i = 0; i < N_FUNCTIONS; i++) out[i] = calls_of(functions[i]);
}

static fusor_buffer there(int64_t m, int64_t n) {
    rt_address at;
    place_must(rt_queue_get(queue, &error, (size_t)(m * n) * sizeof(float), &at), &error);
    place_must(rt_queue_fill(queue, &error, at, 0, (size_t)(m * n) * sizeof(float)), &error);
    return (fusor_buffer){.data = (void *)(uintptr_t)at, .dtype = FUSOR_F32, .rank = 2, .shape = {m, n}, .device = 1};
}
static fusor_buffer here(float *data, int rank, int64_t m, int64_t n) {
    return (fusor_buffer){.data = data, .dtype = FUSOR_F32, .rank = rank, .shape = {m, n}};
}
static void drop(const fusor_buffer *b) { rt_queue_put(queue, (rt_address)(uintptr_t)b->data); }

#define OK(...)                                                                                                        \
    do {                                                                                                               \
        fu_error_clear(&error);                                                                                        \
        cr_assert_eq((__VA_ARGS__), FUSOR_OK, "%s", error.text);                                                       \
    } while (0)
#define FAILS(want, words, ...)                                                                                        \
    do {                                                                                                               \
        fu_error_clear(&error);                                                                                        \
        cr_assert_eq((__VA_ARGS__), want, "%s", error.text);                                                           \
        cr_assert(strstr(error.text, words), "'%s' has no '%s'", error.text, words);                                   \
    } while (0)

static const char two_products[] =
    "func @f(%a: f32[M, K], %b: f32[K, N], %c: f32[N, N]) -> (f32[M, N], f32[M]) { %d = matmul(%a, %b) "
    "%e = matmul(%d, %c) %g = reduce_sum(%e, axes=[1]) return %e, %g }";

static int n_kernels(const rt_exec *x) {
    int n = 0;
    for (uint32_t i = 0; i < rt_exec_plan(x)->steps.n; i++) n += rt_exec_plan(x)->steps.at[i].kind == IR_STEP_KERNEL;
    return n;
}

/* Only launches, and what makes the context current. */
static void launches_only(const long *before, const long *after, int launches) {
    for (int i = 0; i < N_FUNCTIONS; i++) {
        const char *name = functions[i];
        if (strcmp(name, "cuLaunchKernel") == 0) cr_assert_eq(after[i] - before[i], launches);
        else if (strncmp(name, "cuCtx", 5) != 0) cr_assert_eq(after[i], before[i], "%s", name);
    }
}

Test(device_exec, a_repeated_call_puts_launches_on_the_queue_and_nothing_else) {
    long before[N_FUNCTIONS], after[N_FUNCTIONS];
    if (!begin()) return;
    rt_exec *x = compile(two_products, false);
    fusor_buffer in[3] = {there(8, 8), there(8, 8), there(8, 8)}, out[2] = {there(8, 8), there(8, 1)};
    out[1].rank = 1;
    for (int i = 0; i < 2; i++) OK(rt_exec_call(x, &error, 3, in, 2, out));
    OK(rt_queue_wait(queue, &error));
    for (int i = 0; i < 3; i++) {
        count_all(before);
        OK(rt_exec_call(x, &error, 3, in, 2, out));
        count_all(after);
        launches_only(before, after, n_kernels(x));
    }
    rt_call *call;
    OK(rt_call_new(x, &error, 3, in, 2, out, &call));
    OK(rt_call_run(call, &error));
    count_all(before);
    cr_assert(!rt_call_again(call));
    OK(rt_call_run(call, &error));
    count_all(after);
    launches_only(before, after, n_kernels(x));
    rt_call_free(call);
    OK(rt_queue_wait(queue, &error));
    for (int i = 0; i < 3; i++) drop(&in[i]);
    for (int i = 0; i < 2; i++) drop(&out[i]);
    rt_exec_release(x);
}

static long copies(const char *direction) {
    char name[64];
    snprintf(name, sizeof name, "cuMemcpy%sAsync_v2", direction);
    return calls_of(name);
}

Test(device_exec, only_what_has_to_be_is_copied) {
    float a[64] = {0}, y[64], s[8];
    if (!begin()) return;
    rt_exec *x = compile(two_products, false);
    fusor_buffer in[3] = {here(a, 2, 8, 8), there(8, 8), there(8, 8)}, out[2] = {there(8, 8), here(s, 1, 8, 0)};
    OK(rt_exec_call(x, &error, 3, in, 2, out));
    long up = copies("HtoD"), down = copies("DtoH");
    OK(rt_exec_call(x, &error, 3, in, 2, out));
    cr_assert(copies("HtoD") == up + 1 && copies("DtoH") == down + 1);
    rt_exec_release(x);
    /* an index that the host has is checked where it is */
    x = compile("func @f(%a: f32[M, N], %i: i32[K]) -> f32[K, N] { %b = take(%a, %i, axis=0) return %b }", false);
    int32_t index[8] = {1, 2, 3, 4, 5, 6, 7, -8};
    fusor_buffer take[2] = {there(8, 8), {.data = index, .dtype = FUSOR_I32, .rank = 1, .shape = {8}}},
                 taken = there(8, 8);
    OK(rt_exec_call(x, &error, 2, take, 1, &taken));
    up = copies("HtoD"), down = copies("DtoH");
    OK(rt_exec_call(x, &error, 2, take, 1, &taken));
    cr_assert(copies("HtoD") == up + 1 && copies("DtoH") == down, "%ld", copies("DtoH") - down);
    /* a wrong one is found before anything is written */
    float mark[64];
    for (int i = 0; i < 64; i++) mark[i] = 7;
    OK(rt_queue_upload(queue, &error, (rt_address)(uintptr_t)taken.data, mark, sizeof mark));
    index[3] = 8;
    FAILS(FUSOR_ERROR_INDEX, "8", rt_exec_call(x, &error, 2, take, 1, &taken));
    placed moved = place_there(queue, &error, &take[1], index, sizeof index);
    FAILS(FUSOR_ERROR_INDEX, "8", rt_exec_call(x, &error, 2, take, 1, &taken));
    OK(rt_queue_download(queue, &error, y, (rt_address)(uintptr_t)taken.data, sizeof y));
    cr_assert(memcmp(y, mark, sizeof y) == 0);
    place_back(queue, &error, &take[1], &moved);
    index[3] = 0;
    OK(rt_exec_call(x, &error, 2, take, 1, &taken));
    drop(&in[1]), drop(&in[2]), drop(&out[0]), drop(&take[0]), drop(&taken);
    rt_exec_release(x);
}

Test(device_exec, a_bound_parameter_has_one_copy_on_the_device) {
    float a[64], b[64], c[64], y[64], s[8], want[64], sums[8];
    if (!begin()) return;
    for (int i = 0; i < 64; i++) a[i] = (float)(i % 5), b[i] = (float)(i % 7), c[i] = (float)(i % 3);
    rt_exec *x = compile(two_products, false), *ref = compile(two_products, true), *one, *both;
    fusor_buffer values[3] = {here(a, 2, 8, 8), here(b, 2, 8, 8), here(c, 2, 8, 8)};
    fusor_buffer out[2] = {here(y, 2, 8, 8), here(s, 1, 8, 0)}, wanted[2] = {here(want, 2, 8, 8), here(sums, 1, 8, 0)};
    OK(rt_exec_call(ref, &error, 3, values, 2, wanted));
    placed moved = place_there(queue, &error, &values[2], c, sizeof c);
    OK(rt_exec_bind(x, &error, 1, &(int){1}, &values[1], &one));
    const long before = copies("DtoH");
    OK(rt_exec_bind(one, &error, 1, &(int){2}, &values[2], &both));
    cr_assert_eq(copies("DtoH"), before); /* from the device to the device */
    place_back(queue, &error, &values[2], &moved);
    memset(b, 0xff, sizeof b);
    memset(c, 0xff, sizeof c);
    rt_exec_release(x);
    rt_exec_release(one);
    long up = copies("HtoD");
    for (int i = 0; i < 2; i++) {
        memset(y, 0, sizeof y);
        OK(rt_exec_call(both, &error, 1, values, 2, out));
        cr_assert(memcmp(y, want, sizeof y) == 0 && memcmp(s, sums, sizeof s) == 0);
    }
    cr_assert_eq(copies("HtoD"), up + 2);
    rt_exec_release(both);
    rt_exec_release(ref);
}

/* Turned views, bool that is not 0 or 1, indices that are checked on the host: bound from here and from there. */
Test(device_exec, bound_parameters_of_all_kinds) {
    static const char text[] = "func @f(%a: f32[M, N], %i: i32[K], %m: bool[K, N]) -> (f32[K, N], bool[K, N]) { "
                               "%b = take(%a, %i, axis=0) %c = select(%m, %b, 0) return %c, %m }";
    float a[40], want[24], y[24];
    uint8_t mask[24], passed[24], passes[24];
    int32_t index[6] = {4, 0, -1, 2, 2, 1};
    if (!begin()) return;
    rt_exec *x = compile(text, false), *ref = compile(text, true);
    for (int i = 0; i < 40; i++) a[i] = (float)(i * i % 31);
    for (int i = 0; i < 24; i++) mask[i] = i % 3 ? (uint8_t)(i + 1) : 0;
    for (int bits = 0; bits < 8; bits++) {
        fusor_buffer v[3] = {here(a, 2, 8, 4),
                             {.data = index, .dtype = FUSOR_I32, .rank = 1, .shape = {6}},
                             {.data = mask, .dtype = FUSOR_BOOL, .rank = 2, .shape = {6, 4}}};
        v[0].flags = FUSOR_STRIDED;
        v[0].stride[0] = 1, v[0].stride[1] = 9;
        void *memory[3] = {a, index, mask};
        const size_t bytes[3] = {sizeof a, sizeof index, sizeof mask};
        placed there_too[3] = {{0}};
        fusor_buffer out[2] = {here(y, 2, 6, 4), {.data = passed, .dtype = FUSOR_BOOL, .rank = 2, .shape = {6, 4}}},
                     wanted[2] = {here(want, 2, 6, 4),
                                  {.data = passes, .dtype = FUSOR_BOOL, .rank = 2, .shape = {6, 4}}};
        OK(rt_exec_call(ref, &error, 3, v, 2, wanted));
        for (int i = 0; i < 3; i++)
            if (bits >> i & 1) there_too[i] = place_there(queue, &error, &v[i], memory[i], bytes[i]);
        rt_exec *bound;
        OK(rt_exec_bind(x, &error, 3, (int[]){0, 1, 2}, v, &bound));
        for (int i = 0; i < 3; i++)
            if (there_too[i].at) place_back(queue, &error, &v[i], &there_too[i]);
        for (int k = 0; k < 2; k++) {
            OK(rt_exec_call(bound, &error, 0, NULL, 2, out));
            cr_assert(memcmp(y, want, sizeof y) == 0 && memcmp(passed, passes, sizeof passed) == 0, "%d", bits);
        }
        rt_exec_release(bound);
    }
    rt_exec_release(x);
    rt_exec_release(ref);
}

Test(device_exec, a_child_of_fork_is_told) {
    float a[64] = {0}, y[64];
    if (!begin()) return;
    rt_exec *x = compile("func @f(%a: f32[M, N]) -> f32[M, N] { %b = exp(%a) return %b }", false);
    fusor_buffer in = here(a, 2, 8, 8), out = here(y, 2, 8, 8);
    OK(rt_exec_call(x, &error, 1, &in, 1, &out));
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        fu_error_clear(&error);
        const fusor_status s = rt_exec_call(x, &error, 1, &in, 1, &out);
        rt_exec_release(x);
        _exit(s != FUSOR_ERROR_DEVICE || !strstr(error.text, "fork"));
    }
    int status;
    cr_assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "%x", status);
    OK(rt_exec_call(x, &error, 1, &in, 1, &out));
    rt_exec_release(x);
}

Test(device_exec, what_is_refused) {
    float a[64] = {0}, y[64];
    if (!begin()) return;
    rt_exec *x = compile("func @f(%a: f32[M, N]) -> f32[M, N] { %b = exp(%a) return %b }", false);
    rt_exec *on_cpu = build(&error, cache, "func @f(%a: f32[M, N]) -> f32[M, N] { %b = exp(%a) return %b }",
                            (setup){.level = IR_LEVEL_V2, .n_threads = 1});
    cr_assert(on_cpu, "%s", error.text);
    fusor_buffer in = here(a, 2, 8, 8), out = here(y, 2, 8, 8), near = there(8, 8), part;
    FAILS(FUSOR_ERROR_DEVICE, "expected 0, the CPU", rt_exec_call(on_cpu, &error, 1, &near, 1, &out));
    FAILS(FUSOR_ERROR_DEVICE, "expected 0, the CPU", rt_exec_call(on_cpu, &error, 1, &in, 1, &near));
    in.device = -1;
    FAILS(FUSOR_ERROR_DEVICE, "input %a is on device -1", rt_exec_call(x, &error, 1, &in, 1, &out));
    in.device = 7;
    FAILS(FUSOR_ERROR_DEVICE, "", rt_exec_call(x, &error, 1, &in, 1, &out));
    in.device = 0;
    FAILS(FUSOR_ERROR_DEVICE, "device 3", rt_exec_call(x, &error, 1, &in, 1, &(fusor_buffer){.device = 3}));
    /* buffers of the device may overlap as little as others */
    part = near;
    part.data = (char *)near.data + 4;
    part.shape[0] = near.shape[0] = 4;
    FAILS(FUSOR_ERROR_OVERLAP, "overlaps input", rt_exec_call(x, &error, 1, &near, 1, &part));
    OK(rt_exec_call(x, &error, 1, &in, 1, &out));
    drop(&near);
    rt_exec_release(x);
    rt_exec_release(on_cpu);
}

Test(device_exec, buffers_of_another_device) {
    float a[64], y[64], z[64];
    setenv("FAKECUDA_DEVICES", "2", 1);
    if (!begin()) return;
    rt_queue *other = place_queue(&error, 1);
    cr_assert(other, "%s", error.text);
    rt_exec *x = compile("func @f(%a: f32[M, N], %b: f32[M, N]) -> (f32[M, N], f32[M, N] alias %b) { %c = add(%a, %b) "
                         "%d = mul(%a, %b) return %c, %d }",
                         false);
    for (int i = 0; i < 64; i++) a[i] = (float)i, z[i] = (float)(i % 5);
    fusor_buffer in[2] = {here(a, 2, 8, 8), here(z, 2, 8, 8)}, out[2] = {here(y, 2, 8, 8), {0}};
    placed pa = place_there(other, &error, &in[0], a, sizeof a), pz = place_there(other, &error, &in[1], z, sizeof z),
           py = place_there(other, &error, &out[0], y, sizeof y);
    OK(rt_queue_wait(other, &error));
    cr_assert_eq(in[0].device, 2);
    OK(rt_exec_call(x, &error, 2, in, 2, out));
    cr_assert(out[1].data == in[1].data && out[1].device == 2);
    in[0].flags = FUSOR_STRIDED;
    in[0].stride[0] = 1, in[0].stride[1] = 8;
    FAILS(FUSOR_ERROR_UNSUPPORTED, "must be contiguous", rt_exec_call(x, &error, 2, in, 2, out));
    place_back(other, &error, &in[0], &pa);
    place_back(other, &error, &in[1], &pz);
    place_back(other, &error, &out[0], &py);
    for (int i = 0; i < 64; i++) cr_assert(y[i] == (float)(i + i % 5) && z[i] == (float)(i * (i % 5)));
    rt_exec_release(x);
    rt_queue_free(other);
}

/* ---- sets and sequences ---- */
Test(device_exec, sets_of_buffers) {
    static const char text[] = "func @f(%p: f32[N], %g: f32[N], %lr: f32) -> f32[N] alias %p { %s = mul(%g, %lr) "
                               "%q = sub(%p, %s) return %q }";
    enum { SETS = 5 };
    float p[SETS][40], g[SETS][40], want[SETS][40], rate = 0.5f;
    if (!begin()) return;
    rt_exec *x = compile(text, false);
    fusor_buffer bp[SETS], bg[SETS], lr = {.data = &rate, .dtype = FUSOR_F32}, out[SETS] = {{0}};
    placed tp[SETS] = {{0}}, tg[SETS] = {{0}};
    for (int i = 0; i < SETS; i++) {
        for (int k = 0; k < 40; k++) {
            p[i][k] = (float)(k + i), g[i][k] = (float)(k % 3);
            want[i][k] = k < 8 * i ? p[i][k] - rate * g[i][k] : p[i][k];
        }
        bp[i] = here(p[i], 1, 8 * i, 0), bg[i] = here(g[i], 1, 8 * i, 0);
        if (i & 1) tp[i] = place_there(queue, &error, &bp[i], p[i], sizeof p[i]);
        if (i & 2) tg[i] = place_there(queue, &error, &bg[i], g[i], sizeof g[i]);
    }
    rt_each *each;
    OK(rt_each_new(x, &error, SETS, 3, (rt_buffers[]){{bp, SETS}, {bg, SETS}, {&lr, 1}}, 1, &(rt_buffers){out, SETS},
                   &each));
    OK(rt_each_run(each, &error));
    for (int i = 0; i < SETS; i++) {
        if (tp[i].at) place_back(queue, &error, &bp[i], &tp[i]);
        if (tg[i].at) place_back(queue, &error, &bg[i], &tg[i]);
        cr_assert(memcmp(p[i], want[i], sizeof p[i]) == 0, "set %d", i);
    }
    rt_each_free(each);
    rt_exec_release(x);
}

/* A state that is stored for all steps, one that is not, one in place; all combinations of here and there. */
Test(device_exec, sequences) {
    static const char text[] =
        "func @f(%x: f32[N], %h: f32[N], %c: f32[N], %n: f32[N]) -> (%y: f32[N], %d: f32[N], %m: f32[N] alias %n) "
        "{ "
        "%a = add(%x, %h) %y = mul(%a, 0.5) %d = maximum(%c, %y) %m = add(%n, %x) return %y, %d, %m }";
    enum { T = 6, N = 10 };
    if (!begin()) return;
    rt_exec *x = compile(text, false), *cpu = compile(text, true);
    const rt_carry carries[2] = {{1, 0}, {2, 1}};
    for (int steps = 0; steps <= T; steps += T)
        for (int bits = 0; bits < 128; bits++) {
            float xs[T][N], h[2][N], c[2][N], n[2][N], y[2][T][N] = {{{0}}}, d[2][N] = {{0}};
            for (int i = 0; i < T * N; i++) xs[i / N][i % N] = (float)(i % 11);
            for (int i = 0; i < N; i++) {
                h[0][i] = h[1][i] = (float)i;
                c[0][i] = c[1][i] = (float)(i % 4);
                n[0][i] = n[1][i] = (float)(i % 3);
            }
            for (int k = 0; k < 2; k++) { /* the reference, then the device */
                fusor_buffer in[4] = {here(xs[0], 2, steps, N), here(h[k], 1, N, 0), here(c[k], 1, N, 0),
                                      here(n[k], 1, N, 0)};
                fusor_buffer out[3] = {here(y[k][0], 2, steps, N), here(d[k], 1, N, 0), {0}};
                placed moved[6] = {{0}};
                if (bits & 64 && k) { /* backwards in time */
                    in[0].flags = FUSOR_STRIDED;
                    in[0].stride[0] = -N, in[0].stride[1] = 1;
                    if (steps) in[0].data = xs[steps - 1];
                } else if (bits & 64) {
                    for (int i = 0; i < T * N; i++) xs[T - 1 - i / N][i % N] = (float)(i % 11);
                }
                if (bits & 64 && k)
                    for (int i = 0; i < T * N; i++) xs[i / N][i % N] = (float)(i % 11);
                for (int i = 0; k && i < 6; i++) {
                    fusor_buffer *b = i < 4 ? &in[i] : &out[i - 4];
                    void *memory[6] = {xs, h[k], c[k], n[k], y[k], d[k]};
                    if (bits >> i & 1)
                        moved[i] = place_there(queue, &error, b, memory[i], i == 0 || i == 4 ? sizeof xs : sizeof h[k]);
                }
                rt_scan *scan;
                OK(rt_scan_new(k ? x : cpu, &error, steps, 2, carries, 4, in, 3, out, &scan));
                OK(rt_scan_run(scan, &error));
                rt_scan_free(scan);
                for (int i = 0; i < 6; i++)
                    if (moved[i].at) place_back(queue, &error, i < 4 ? &in[i] : &out[i - 4], &moved[i]);
            }
            cr_assert(memcmp(y[0], y[1], sizeof y[0]) == 0 && memcmp(d[0], d[1], sizeof d[0]) == 0 &&
                          memcmp(n[0], n[1], sizeof n[0]) == 0,
                      "%d steps, places %x", steps, bits);
        }
    rt_exec_release(x);
    rt_exec_release(cpu);
}

/* ---- threads, profiles, memory ---- */
typedef struct caller {
    rt_exec *exec;
    int number;
    bool ok;
} caller;

static void *call_often(void *user) {
    caller *c = user;
    static _Thread_local fu_error e;
    float a[64], y[64], s[8], unit[64] = {0};
    for (int i = 0; i < 8; i++) unit[i * 9] = 1;
    c->ok = true;
    for (int k = 0; k < 30; k++) {
        for (int i = 0; i < 64; i++) a[i] = (float)(i * c->number + k);
        fusor_buffer in[3] = {here(a, 2, 8, 8), here(unit, 2, 8, 8), here(unit, 2, 8, 8)};
        fusor_buffer out[2] = {here(y, 2, 8, 8), here(s, 1, 8, 0)};
        fu_error_clear(&e);
        c->ok &= rt_exec_call(c->exec, &e, 3, in, 2, out) == FUSOR_OK && memcmp(y, a, sizeof y) == 0;
    }
    return NULL;
}

Test(device_exec, threads_share_an_executable) {
    pthread_t id[3];
    caller c[3];
    if (!begin()) return;
    rt_exec *x = compile(two_products, false);
    for (int i = 0; i < 3; i++) {
        c[i] = (caller){x, i + 1, false};
        cr_assert_eq(pthread_create(&id[i], NULL, call_often, &c[i]), 0);
    }
    for (int i = 0; i < 3; i++) pthread_join(id[i], NULL);
    for (int i = 0; i < 3; i++) cr_assert(c[i].ok, "thread %d", i);
    rt_exec_release(x);
}

Test(device_exec, a_profile_has_steps_and_transfers) {
    if (!begin()) return;
    static _Atomic(rt_profile *) profile;
    rt_profile *p = rt_profile_new();
    atomic_store(&profile, p);
    rt_exec *x = build(&error, cache, two_products,
                       (setup){.level = rt_device_get_info(rt_queue_device(queue))->target.level,
                               .n_threads = 1,
                               .queue = queue,
                               .profile = &profile});
    float a[64] = {0}, y[64], s[8];
    fusor_buffer in[3] = {here(a, 2, 8, 8), here(a, 2, 8, 8), here(a, 2, 8, 8)},
                 out[2] = {here(y, 2, 8, 8), here(s, 1, 8, 0)};
    OK(rt_exec_call(x, &error, 3, in, 2, out)); /* off */
    cr_assert_eq(atomic_load(&p->used), 0);
    atomic_store(&p->on, RT_PROFILE_COUNTS);
    for (int i = 0; i < 2; i++) OK(rt_exec_call(x, &error, 3, in, 2, out));
    int kernels = 0, up = 0, down = 0;
    for (int i = 0; i < atomic_load(&p->used); i++) {
        const rt_profile_entry *n = &p->entry[i];
        if (strcmp(n->kind, "upload") == 0) {
            up++;
            cr_assert(atomic_load(&n->calls) == 6 && atomic_load(&n->bytes) == 6 * 256.0);
        } else if (strcmp(n->kind, "download") == 0) {
            down++;
            cr_assert(atomic_load(&n->calls) == 4 && atomic_load(&n->bytes) == 2 * (256.0 + 32.0));
        } else {
            kernels++;
            cr_assert(atomic_load(&n->calls) == 2 && n->symbol[0]);
        }
    }
    cr_assert(kernels == n_kernels(x) && up == 1 && down == 1, "%d %d %d", kernels, up, down);
    rt_exec_release(x);
    rt_profile_free(p);
}

Test(device_exec, peak_bytes_are_the_device_s) {
    if (!begin()) return;
    rt_exec *x = compile(
        "func @f(%a: f32[M, N], %b: f32[N, N]) -> f32[M, N] { %c = matmul(%a, %b) %d = matmul(%c, %b) return %d }",
        false);
    /* one tensor between two products, and no packed operands */
    int64_t symbols[2] = {8, 100};
    const ir_graph *g = rt_exec_plan(x)->graph;
    for (uint32_t s = 0; s < 2; s++) symbols[s] = ir_size_symbol_name(g->sizes, s)[0] == 'M' ? 8 : 100;
    cr_assert_eq(rt_exec_peak_bytes(x, symbols), (8 * 100 * 4 + 255) / 256 * 256, "%lld",
                 (long long)rt_exec_peak_bytes(x, symbols));
    rt_exec_release(x);
}

Test(device_exec, too_little_memory_is_an_error_and_no_end) {
    enum { SIDE = 1024 };
    setenv("FAKECUDA_MEMORY", "6291456", 1);
    if (!begin()) return;
    rt_exec *x =
        compile("func @f(%a: f32[M, N]) -> (f32[M, N], f32[M, N]) { %b = neg(%a) %d = exp(%a) return %b, %d }", false);
    float *a = calloc(SIDE * SIDE, sizeof *a), *y = calloc(SIDE * SIDE, sizeof *y), *z = calloc(SIDE * SIDE, sizeof *z);
    for (int side = SIDE; side >= 4; side /= 256) {
        fusor_buffer in = here(a, 2, side, side), out[2] = {here(y, 2, side, side), {.device = 1}};
        a[0] = 3;
        if (side == SIDE) FAILS(FUSOR_ERROR_MEMORY, "bytes", rt_exec_call(x, &error, 1, &in, 2, out));
        else {
            OK(rt_exec_call(x, &error, 1, &in, 2, out));
            cr_assert(y[0] == -3);
            rt_buffer_release(NULL, out[1].data);
        }
    }
    free(a), free(y), free(z);
    rt_exec_release(x);
}

Test(device_exec, a_dead_context_fails_each_call) {
    setenv("FAKECUDA_FAIL", "cuLaunchKernel:3=700", 1);
    if (!begin()) return;
    rt_exec *x = compile("func @f(%a: f32[M, N]) -> f32[M, N] { %b = exp(%a) return %b }", false);
    float a[64] = {0}, y[64];
    fusor_buffer in = here(a, 2, 8, 8), out = here(y, 2, 8, 8), made = {.device = 1};
    for (int i = 0; i < 2; i++) OK(rt_exec_call(x, &error, 1, &in, 1, &out));
    for (int i = 0; i < 3; i++) FAILS(FUSOR_ERROR_DEVICE, "", rt_exec_call(x, &error, 1, &in, 1, &out));
    FAILS(FUSOR_ERROR_DEVICE, "", rt_exec_call(x, &error, 1, &in, 1, &made));
    cr_assert(!made.data);
    rt_exec_release(x);
}

/* ---- a failure of each call of the driver ---- */
typedef struct session {
    bool is_sequence; /* sets of buffers, and a sequence; else single calls */
    rt_exec *exec;
    float a[8 * 8], w[8 * 8], y[8 * 8], s[8];
    int32_t index[8];
} session;

/* y = x + h, and h = y; over 8 steps from h = 0 that is the running sum. Twice: as a sequence, and by sets, of one step each, of
 * buffers of the device. */
static fusor_status use_sequence(session *n) {
    rt_each *each = NULL;
    rt_scan *scan = NULL;
    fusor_buffer in[2] = {here(n->a, 2, 8, 8), here(n->w, 1, 8, 0)}, out = here(n->y, 2, 8, 8);
    if (!n->exec)
        n->exec = build(
            &error, cache, "func @f(%x: f32[N], %h: f32[N]) -> f32[N] { %y = add(%x, %h) return %y }",
            (setup){.level = rt_device_get_info(rt_queue_device(queue))->target.level, .n_threads = 1, .queue = queue});
    if (!n->exec) return error.status;
    memset(n->w, 0, sizeof n->w);
    memset(n->y, 0, sizeof n->y);
    FU_TRY(rt_scan_new(n->exec, &error, 8, 1, &(rt_carry){1, 0}, 2, in, 1, &out, &scan));
    fusor_status s = rt_scan_run(scan, &error);
    rt_scan_free(scan);
    FU_TRY(s);
    fusor_buffer x[8], h[8], y[8];
    for (int t = 0; t < 8; t++) {
        x[t] = here(n->a + 8 * t, 1, 8, 0);
        h[t] = here(t ? n->y + 8 * (t - 1) : n->w, 1, 8, 0);
        y[t] = (fusor_buffer){.device = 1};
    }
    FU_TRY(rt_each_new(n->exec, &error, 8, 2, (rt_buffers[]){{x, 8}, {h, 8}}, 1, &(rt_buffers){y, 8}, &each));
    s = rt_each_run(each, &error);
    rt_each_free(each);
    for (int t = 0; t < 8; t++) {
        if (s == FUSOR_OK)
            s = rt_queue_download(queue, &error, n->y + 8 * t, (rt_address)(uintptr_t)y[t].data, 8 * sizeof(float));
        rt_buffer_release(NULL, y[t].data);
    }
    return s;
}

/* What of it is not there yet, then a call with memory here, there, and made by it. */
static fusor_status use(session *n) {
    static const char text[] =
        "func @f(%a: f32[M, N], %i: i32[K], %w: f32[N, N]) -> (f32[K, N], f32[K]) { %b = take(%a, %i, axis=0) "
        "%c = matmul(%b, %w) %e = matmul(%c, %w) %s = reduce_sum(%e, axes=[1]) return %e, %s }";
    fu_error_clear(&error);
    if (!queue && !(queue = place_queue(&error, 0))) return error.status;
    if (n->is_sequence) return use_sequence(n);
    if (!n->exec) {
        fusor_buffer w = here(n->w, 2, 8, 8);
        rt_exec *whole = build(
            &error, cache, text,
            (setup){.level = rt_device_get_info(rt_queue_device(queue))->target.level, .n_threads = 1, .queue = queue});
        if (!whole) return error.status;
        const fusor_status s = rt_exec_bind(whole, &error, 1, &(int){2}, &w, &n->exec);
        rt_exec_release(whole);
        FU_TRY(s);
    }
    fusor_buffer in[2] = {here(n->a, 2, 8, 8), {.data = n->index, .dtype = FUSOR_I32, .rank = 1, .shape = {8}}};
    fusor_buffer out[2] = {{.device = 1}, here(n->s, 1, 8, 0)};
    in[0].flags = FUSOR_STRIDED; /* a turned view */
    in[0].stride[0] = 1, in[0].stride[1] = 8;
    memset(n->y, 0, sizeof n->y);
    memset(n->s, 0, sizeof n->s);
    FU_TRY(rt_exec_call(n->exec, &error, 2, in, 2, out));
    fusor_status s = rt_queue_download(queue, &error, n->y, (rt_address)(uintptr_t)out[0].data, sizeof n->y);
    rt_buffer_release(NULL, out[0].data);
    return s;
}

static bool is_right(const session *n) {
    for (int i = 0; i < 64 && n->is_sequence; i++) {
        float sum = 0;
        for (int t = i % 8; t <= i; t += 8) sum += n->a[t];
        if (n->y[i] != sum) return false;
    }
    if (n->is_sequence) return true;
    for (int i = 0; i < 8; i++) {
        float sum = 0;
        for (int k = 0; k < 8; k++) { /* w is twice the unit matrix */
            const float want = 4 * n->a[k * 8 + n->index[i]];
            if (n->y[i * 8 + k] != want) return false;
            sum += want;
        }
        if (n->s[i] != sum) return false;
    }
    return true;
}

static void start(session *n, bool is_sequence) {
    memset(n, 0, sizeof *n);
    n->is_sequence = is_sequence;
    for (int i = 0; i < 64; i++) n->a[i] = (float)(i % 13), n->w[i] = i % 9 == 0 ? 2 : 0;
    for (int i = 0; i < 8; i++) n->index[i] = (i * 5) % 8;
}

static long live(const char *kind) {
    long (*count)(const char *);
    void *lib = dlopen(getenv("FUSOR_CUDA_LIB"), RTLD_NOW | RTLD_NOLOAD);
    *(void **)&count = dlsym(lib, "fake_cuda_live");
    return count(kind);
}

int __lsan_do_recoverable_leak_check(void) __attribute__((weak)); /* where the sanitizer is */

/* In a child: 0 = a failure that was reported, and then all was well; 1 = nothing failed; else what is wrong. */
static int fail_at(bool is_sequence, const char *function, long nth, int code) {
    char fault[80];
    session n;
    const bool is_deadly = code >= 700;
    snprintf(fault, sizeof fault, "%s:%ld=%d", function, nth, code);
    setenv("FAKECUDA_FAIL", fault, 1);
    start(&n, is_sequence);
    fusor_status s = use(&n);
    const bool failed = s != FUSOR_OK, has_context = queue != NULL;
    if (failed && (s != FUSOR_ERROR_DEVICE && s != FUSOR_ERROR_MEMORY)) return 2;
    if (failed && !error.text[0]) return 3;
    if (!failed && !is_right(&n)) return 4;
    for (int i = 0; i < 2; i++) {
        s = use(&n);
        if (failed && !has_context) return s == FUSOR_OK && !is_right(&n) ? 10 : 0; /* may stay so in the process */
        if (is_deadly && failed && s != FUSOR_ERROR_DEVICE) return 5;
        if (!is_deadly && s != FUSOR_OK) return 6;
        if (s == FUSOR_OK && !is_right(&n)) return 7;
    }
    rt_exec_release(n.exec);
    if (rt_memory_get_stats().live_buffers) return 8;
    if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check()) return 11;
    if (is_deadly) return 0;
    rt_device *d = rt_queue_device(queue);
    rt_queue_free(queue);
    rt_device_trim(d);
    if (live("memory") != 0) return 9;
    return !failed;
}

/* The driver of the process that runs the test is not touched: each child opens its own. */
static int in_child(bool is_sequence, const char *function, long nth, int code) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        if (!freopen("/dev/null", "w", stderr)) _exit(90);
        _exit(fail_at(is_sequence, function, nth, code));
    }
    int status;
    while (waitpid(child, &status, 0) < 0) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

static void fail_each_call(bool is_sequence) {
    static const int codes[] = {1, 2, 719};
    long total[N_FUNCTIONS];
    int n_failed = 0, n_survived = 0, pipes[2];
    const fusor_codegen_table *t;
    if (rt_module_get(&error, &t) != FUSOR_OK) cr_skip("%s", error.text);
    /* Kernels come from a directory, not from code generation, in the children. */
    char dir[] = "/tmp/fusor-device-XXXXXX";
    cr_assert(mkdtemp(dir));
    rt_cache_close(cache);
    OK(rt_cache_open(&error, &(rt_cache_options){.dir = dir, .path = ""}, &cache));
    cr_assert_eq(pipe(pipes), 0);
    if (fork() == 0) {
        session n;
        start(&n, is_sequence);
        if (use(&n) != FUSOR_OK || !is_right(&n)) _exit(1);
        count_all(total);
        _exit(write(pipes[1], total, sizeof total) != sizeof total);
    }
    close(pipes[1]);
    cr_assert_eq(read(pipes[0], total, sizeof total), (ssize_t)sizeof total, "without a failure it does not run");
    for (int f = 0; f < N_FUNCTIONS; f++)
        for (long nth = 1; nth <= total[f] && nth <= 40; nth++)
            for (int c = 0; c < 3; c++) {
                const int rc = in_child(is_sequence, functions[f], nth, codes[c]);
                cr_assert(rc < 2, "%s, call %ld gives %d: %d", functions[f], nth, codes[c], rc);
                n_failed += rc == 0;
                n_survived += rc == 1;
            }
    cr_log_info("%d failures reported, %d survived", n_failed, n_survived);
    cr_assert(n_failed > 50);
    rt_cache_clear(&error, dir, NULL);
    rmdir(dir);
}

Test(device_exec, a_failure_of_each_call_of_the_driver) { fail_each_call(false); }
Test(device_exec, a_failure_of_each_call_of_a_sequence) { fail_each_call(true); }
