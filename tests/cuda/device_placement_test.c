/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* device_placement_test.c: programs with every kind of step give the reference's bits wherever their inputs and outputs
 * are, on the host or the device, strided or not, and in whichever order the driver runs its streams. */
#include "device_exec.h"
TestSuite(device_placement, .init = init, .timeout = 300);

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
    rt_exec *x = NULL;
    volatile int n_kernels_seen = 0, n_made = 0; /* past a longjmp */
    fu_arena_init(&arena, &oom);
    if (setjmp(oom)) cr_assert(false, "out of memory");
    ir_plan_options po = {.level = rt_device_get_info(rt_queue_device(queue))->target.level, .no_fuse = true};
    rt_exec_options xo = {.n_threads = 1, .reference = reference_node, .queue = queue};
    ir_plan *plan = plan_of(&arena, &error, text, &po);
    cr_assert(plan, "%s", error.text);
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
        rt_exec *ref = compile_reference(programs[p]);
        rt_exec *x[3] = {compile(programs[p]), compile_mixed(programs[p], 0), compile_mixed(programs[p], 1)};
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

Test(device_placement, every_placement_gives_the_reference_s_bits) { check_all_placements("lazy", 5); }
Test(device_placement, every_placement_when_streams_run_at_once) { check_all_placements("eager", 2); }
Test(device_placement, every_placement_when_streams_run_in_reverse) { check_all_placements("reverse", 3); }
