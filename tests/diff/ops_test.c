/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ops_test.c: every operator of ops.def x element type x class of shapes x level x threads, against the reference
 * evaluator: to the bit for exact rows, within the documented bound else; the same bits for every number of threads,
 * fused or not. Special values are among the inputs, and every buffer lies between pages that may not be touched.
 *
 * In one file because it is one parameterized test with a row for each operator, a function for each family of them,
 * and is included as a whole by the tests that run the same programs elsewhere (tests/amx, tests/cuda). */
#include "check.h"
#include "../share.h"
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

static fu_error error;
static rt_cache *cache;

static bool begin(void) {
    const fusor_codegen_table *t;
    fu_error_clear(&error);
    if (rt_host_level() < 0 || rt_module_get(&error, &t) != FUSOR_OK) {
        cr_skip("%s", error.text);
        return false;
    }
    rt_cache_options o = {.dir = "", .path = ""};
    cr_assert_eq(rt_cache_open(&error, &o, &cache), FUSOR_OK);
    return true;
}

/* ---- one program at some sizes ---- */
typedef struct domain {
    double lo, hi;
    int special;
    bool is_exact;
} domain;
enum { MAX_IN = 7, MAX_OUT = 3 };
#ifndef QUEUE /* device_ops_test.c runs on a device, with some of the buffers there */
#define QUEUE NULL
#endif
#ifndef PLACE_THERE
#define PLACE_THERE(number, buffer, memory, bytes)
#define PLACE_BACK(number, buffer)
#endif

static void run(rt_exec *x, const ir_graph *g, uint64_t seed, bool strided, bool at_end, const ref_tensor *in,
                ref_tensor *out, const char *where) {
    int n_in = (int)g->params.n, n_out = (int)g->results.n;
    fusor_buffer bi[MAX_IN] = {{0}}, bo[MAX_OUT] = {{0}};
    guarded gi[MAX_IN] = {{0}}, go[MAX_OUT] = {{0}};
    rng r = {mix(seed)};
    for (int k = 0; k < n_in + n_out; k++) {
        bool is_in = k < n_in;
        const ref_tensor *t = is_in ? &in[k] : &out[k - n_in];
        fusor_buffer *b = is_in ? &bi[k] : &bo[k - n_in];
        guarded *m = is_in ? &gi[k] : &go[k - n_in];
        int64_t first = 0, span = ref_count(t), bytes = ir_dtypes[t->dtype].bytes;
        *b = describe(t, NULL);
        if (strided && span > 0) {
            span = strided_layout(t, &r, b->stride, &first);
            b->flags = FUSOR_STRIDED;
        }
        *m = guard_new((size_t)(span * bytes), at_end);
        b->data = m->data + first * bytes;
        if (is_in && b->flags) strided_copy(t, b, true);
        else if (is_in && bytes_of(t)) memcpy(b->data, t->data, bytes_of(t));
        PLACE_THERE(k, b, m->data, (size_t)(span * bytes));
    }
    fu_error_clear(&error);
    cr_assert_eq(rt_exec_call(x, &error, n_in, bi, n_out, bo), FUSOR_OK, "%s: %s", where, error.text);
    for (int k = 0; k < n_in + n_out; k++) PLACE_BACK(k, k < n_in ? &bi[k] : &bo[k - n_in]);
    for (int k = 0; k < n_out; k++) {
        if (bo[k].flags) strided_copy(&out[k], &bo[k], false);
        else if (bytes_of(&out[k])) memcpy(out[k].data, bo[k].data, bytes_of(&out[k]));
        guard_free(&go[k]);
    }
    for (int k = 0; k < n_in; k++) guard_free(&gi[k]);
}

static double at(const ref_tensor *t, int64_t i) { return ir_bits_to_double(t->dtype, ref_get(t, i)); }

static void equal_bits(const ref_tensor *a, const ref_tensor *b, const char *where, const char *what) {
    int64_t i = first_difference(a, b);
    cr_assert(i < 0, "%s: element %lld: %.17g, but %.17g %s", where, (long long)i, i < 0 ? 0 : at(a, i),
              i < 0 ? 0 : at(b, i), what);
}

/* An index that the reference refuses is one that a plan refuses, in the same words. */

static void refuses_index(const char *text, const ir_graph *g, const ref_tensor *in) {
    char words[400];
    fusor_buffer bi[MAX_IN] = {{0}}, bo[MAX_OUT] = {{0}};
    snprintf(words, sizeof words, "%.390s", strstr(error.text, "index ") ? strstr(error.text, "index ") : error.text);
    for (uint32_t i = 0; i < g->params.n; i++) bi[i] = describe(&in[i], in[i].data);
    rt_exec *x = build(&error, cache, text, (setup){.level = (ir_level)rt_host_level(), .n_threads = 1});
    cr_assert(x, "%s: %s", text, error.text);
    fu_error_clear(&error);
    const fusor_status status = rt_exec_call(x, &error, (int)g->params.n, bi, (int)g->results.n, bo);
    cr_assert_eq(status, FUSOR_ERROR_INDEX, "%s: status %d, %s", text, (int)status, error.text);
    cr_assert(strstr(error.text, words), "%s: %s; the reference says %s", text, error.text, words);
    rt_exec_release(x);
}

/* ---- kernels for everything ---- */
#ifndef KERNELS_LEVEL
#define KERNELS_LEVEL IR_LEVEL_V2
#endif
/* Every pair of operator and type that the language allows: none runs on the reference evaluator. */
static void has_kernels(const char *text) {
    static jmp_buf oom;
    fu_arena arena;
    fu_arena_init(&arena, &oom);
    if (setjmp(oom)) cr_assert(false, "out of memory");
    const ir_plan *plan = plan_of(&arena, &error, text, &(ir_plan_options){.level = KERNELS_LEVEL});
    cr_assert(plan, "%s", error.text);
    for (uint32_t s = 0; s < plan->steps.n; s++) {
        if (plan->steps.at[s].kind != IR_STEP_REFERENCE) continue;
        const ir_node *n = ir_at(plan->graph, plan->steps.at[s].node);
        ir_dtype t = n->n_in ? ir_at(plan->graph, n->in[n->n_in - 1])->dtype : n->dtype;
        cr_assert(false, "%s: %s of %s has no kernel", text, ir_ops[n->op].name, ir_dtypes[t].name);
    }
    fu_arena_free(&arena);
}

static UNUSED uint64_t hash_of(const char *text) {
    uint64_t h = 0;
    for (; *text; text++) h = mix(h ^ (uint8_t)*text);
    return h;
}

#ifndef IS_FAST
#define IS_FAST false /* the fast tier */
#endif
/* gpu_ops_test.c includes this file with other targets, and kernels that an interpreter runs. */
#ifndef LAUNCH
#define LAUNCH                NULL
#define IS_FOR_US(size)       true
#define WATCHED_ONE_IN        6
#define IS_TYPE_FOR_US(op, t) true
static bool holds_one_of(const char *text, const char *const *words) {
    while (*words && !strstr(text, *words)) words++;
    return *words != NULL;
}
static bool is_contraction(const char *text) {
    return holds_one_of(text, (const char *const[]){"matmul(", "einsum(", "conv", "attention(", "_cell(", NULL});
}
/* May it have a kernel that uses features beside the level's? */
static bool is_narrow_contraction(const char *text) {
    return holds_one_of(text, (const char *const[]){"i8[", "u8[", "bf16[", NULL}) && is_contraction(text);
}
/* Wide integers are multiplied alike: of contractions each such type has a third. */
static bool is_program_for_us(const char *text) {
    static const char *const wide[] = {"(%x: i16[", "(%x: u16[", "(%x: i32[", "(%x: u32[",
                                       "(%x: i64[", "(%x: u64[", NULL};
    return !is_contraction(text) || !holds_one_of(text, wide) || hash_of(text) / 3 % 3 == 0;
}
#define IS_PROGRAM_FOR_US is_program_for_us
/* Contractions take most of the test's time, for their code: all sizes of a program have one level, which its text
 * chooses, in f32 one more (not in a share). So a shape has every level in some of the types. */
static int choose_level(uint64_t from, uint32_t levels) {
    int chosen = (int)(from % (uint64_t)(rt_host_level() + 1));
    while (!(levels >> chosen & 1)) chosen = (chosen + 1) % (rt_host_level() + 1);
    return chosen;
}
static bool has_level(const char *text, ir_level level, uint32_t levels) {
    if (!(levels >> level & 1) || !is_contraction(text)) return levels >> level & 1;
    const int chosen = choose_level(hash_of(text), levels);
    if ((int)level == chosen) return true;
    return test_share() == 1 && strstr(text, "f32[") && (int)level == choose_level((uint64_t)chosen + 1, levels);
}
/* Fused, and unfused: at every level, contractions at the first that their text chooses. */
static int n_fusions(const char *text, ir_level level, uint32_t levels) {
    return !is_contraction(text) || (int)level == choose_level(hash_of(text), levels) ? 2 : 1;
}
#define N_FUSIONS n_fusions
#define N_TARGETS (2 * (rt_host_level() + 1)) /* each level, then with what this machine has beside it */
static bool choose_target(int i, uint32_t levels, const char *text, ir_target *out) {
    *out = (ir_target){(ir_level)(i / 2), i & 1 ? rt_host_extras((ir_level)(i / 2)) : 0};
    return has_level(text, out->level, levels) && (!(i & 1) || (out->features && is_narrow_contraction(text)));
}
#endif

#ifndef IS_PROGRAM_FOR_US
#define IS_PROGRAM_FOR_US(text) true
#endif

/* What is no number in values at keys that are hidden from some queries of a block reaches none of these
 * (numerics.md). */
#ifndef KEEPS_HIDDEN
#define KEEPS_HIDDEN true
#endif
#ifndef N_PROCESSES /* at most */
#define N_PROCESSES IR_OP_COUNT
#endif

static bool is_of_rows; /* a program of the rows of ops.def, not of a test of its own */
static uint64_t first_of_row;
#ifndef IS_ALWAYS_FOR_US /* f32 is the type that has all forms of a kernel */
#define IS_ALWAYS_FOR_US(text) (strstr(text, "f32[") != NULL)
#endif
static bool is_shared_out(const char *text) {
    const uint64_t program = hash_of(text);
    if (first_of_row == 0) first_of_row = program;
    return is_of_rows && !IS_ALWAYS_FOR_US(text) && program != first_of_row && !is_in_share(mix(program));
}
#ifdef __SANITIZE_ADDRESS__
#ifndef WATCHED_ONE_IN
#define WATCHED_ONE_IN 12 /* the same programs elsewhere */
#endif
/* Generated code is not instrumented: what sanitizers can find in a program, it has at one level; of a row, at its first
 * size and a third of the others, and programs are much alike: one in WATCHED_ONE_IN. All of it runs without them. */
static bool is_watched(const char *text, uint64_t seed, uint32_t *levels) {
    static uint64_t last;
    const uint64_t program = hash_of(text);
    const bool is_first = program != last;
    unsigned level = (unsigned)(program % 3);
    while (!(*levels >> level & 1)) level = (level + 1) % 3;
    *levels = 1u << level;
    last = program;
    return !is_of_rows || (program / 3 % WATCHED_ONE_IN == 0 && (is_first || mix(seed) % 3 == 0));
}
#endif

/* The features that change bits. */
static const ir_features TILES = IR_FEATURE_AMXINT8 | IR_FEATURE_AMXBF16 | IR_FEATURE_AMXFP16;

/* size: of A, B, C, D. */
static void check(const char *text, domain dom, const int64_t size[4], const int *threads, bool strided,
                  uint32_t levels) {
    static jmp_buf oom;
    fu_arena arena;
    char where[1400];
    uint64_t seed =
        mix((uint64_t)size[0] * 31 + (uint64_t)size[1] * 7 + (uint64_t)size[2] * 3 + (uint64_t)size[3] + strided);
    if (!IS_FOR_US(size) || !IS_PROGRAM_FOR_US(text)) return;
    if (is_shared_out(text)) return;
#ifdef __SANITIZE_ADDRESS__
    if (!is_watched(text, seed, &levels)) return;
#endif
    fu_arena_init(&arena, &oom);
    if (setjmp(oom)) cr_assert(false, "out of memory");
    ir_graph *g = reference_graph(&arena, &error, text);
    cr_assert(g, "%s%s", text, error.text);
    has_kernels(text);
    ref_tensor in[MAX_IN] = {{0}}, want[MAX_OUT], first[MAX_OUT], got[MAX_OUT], plain[MAX_OUT];
    double *bound[MAX_OUT];
    int n_in = (int)g->params.n, n_out = (int)g->results.n;
    cr_assert(n_in <= MAX_IN && n_out <= MAX_OUT);
    int64_t symbols[8] = {0};
    for (uint32_t s = 0; s < ir_size_symbol_count(g->sizes); s++)
        symbols[s] = size[ir_size_symbol_name(g->sizes, s)[0] - 'A'];
    for (int i = 0; i < n_in; i++) {
        const ir_node *n = ir_at(g, g->params.at[i].node);
        in[i].dtype = n->dtype;
        in[i].rank = n->rank;
        for (int d = 0; d < n->rank; d++)
            cr_assert_eq(ir_size_eval(g->sizes, n->dim[d], symbols, &in[i].shape[d]), IR_SIZE_OK);
        in[i].data = fu_alloc(&arena, bytes_of(&in[i]) + 1);
        fill(&in[i], seed + (uint64_t)i, dom.lo, dom.hi, dom.special);
    }
    fu_error_clear(&error);
    fusor_status expected = ref_eval_bounds(&arena, &error, g, IS_FAST, n_in, in, n_out, want, bound);
    if (expected == FUSOR_ERROR_SHAPE) return; /* the largest of nothing; exec_test has the kernels' answer */
    if (expected == FUSOR_ERROR_INDEX) {
        refuses_index(text, g, in);
        fu_arena_free(&arena);
        return;
    }
    cr_assert_eq(expected, FUSOR_OK, "%s%s", text, error.text);
    for (int k = 0; k < n_out; k++) {
        first[k] = got[k] = plain[k] = want[k];
        first[k].data = fu_alloc(&arena, bytes_of(&want[k]) + 1);
        plain[k].data = fu_alloc(&arena, bytes_of(&want[k]) + 1);
        got[k].data = fu_alloc(&arena, bytes_of(&want[k]) + 1);
    }
    for (int i = 0; i < N_TARGETS; i++) {
        ir_target target;
        if (!choose_target(i, levels, text, &target)) continue;
        int level = (int)target.level;
        ir_features features = target.features;
        bool is_first = true;
        for (int t = 0; threads[t]; t++)
            for (int no_fuse = 0; no_fuse < (t == 0 ? N_FUSIONS(text, target.level, levels) : 1); no_fuse++) {
                snprintf(where, sizeof where, "%s A=%lld B=%lld C=%lld D=%lld %s %s, %d threads%s%s", text,
                         (long long)size[0], (long long)size[1], (long long)size[2], (long long)size[3],
                         features ? "with features" : "", ir_levels[level].short_name, threads[t],
                         no_fuse ? ", unfused" : "", strided ? ", strided" : "");
                rt_exec *x = build(&error, cache, text,
                                   (setup){.level = target.level,
                                           .features = features,
                                           .n_threads = threads[t],
                                           .no_fuse = no_fuse,
                                           .is_fast = IS_FAST,
                                           .launch = LAUNCH,
                                           .queue = QUEUE});
                cr_assert(x, "%s: %s", where, error.text);
                run(x, g, seed, strided, (t + no_fuse) % 2 == 0, in, is_first ? first : got, where);
                for (int k = 0; k < n_out && !is_first; k++)
                    equal_bits(&got[k], &first[k], where, "on one thread, fused");
                is_first = false;
                rt_exec_release(x);
            }
        for (int k = 0; k < n_out; k++) {
            if (!features) memcpy(plain[k].data, first[k].data, bytes_of(&first[k]));
            else if (!(features & TILES)) equal_bits(&first[k], &plain[k], where, "without features");
            if (dom.is_exact) {
                equal_bits(&first[k], &want[k], where, "by the reference");
                continue;
            }
            ref_comparison c = ref_compare(&first[k], &want[k], bound[k], -1);
            cr_assert(c.ok, "%s: element %lld: %.17g; the reference has %.17g, bound %g", where, (long long)c.at,
                      at(&first[k], c.at), at(&want[k], c.at), bound[k][c.at]);
        }
    }
    fu_arena_free(&arena);
}

static const int one_thread[] = {1, 0}, two_threads[] = {1, 2, 0}, many_threads[] = {1, 2, 3, 7, 0};
enum { ALL_LEVELS = 7 };

/* ---- element-wise ---- */
static const int64_t lengths[] = {0, 1, 7, 15, 16, 17, 31, 33, 65, 127};
static const int64_t planes[][2] = {{1, 1}, {3, 7}, {2, 17}, {31, 5}, {5, 33}, {9, 64}, {0, 4}, {1, 65}};

static void elementwise(const ir_op_info *op, ir_dtype t) {
    const char *T = ir_dtypes[t].name, *first = op->flags & IR_COND ? "bool" : T, *R = op->result_is_bool ? "bool" : T;
    domain dom = {op->lo, op->hi, SPECIAL_HUGE, (op->flags & IR_EXACT) != 0};
    char text[600];
    int n = op->min_in;
    const char *arguments = n == 1 ? "%x" : n == 2 ? "%x, %y" : "%x, %y, %z";
    const struct {
        const char *params, *before, *arguments, *result;
        bool is_plane;
    } shapes[] = {
        {n == 1   ? "%%x: %1$s[A]"
         : n == 2 ? "%%x: %1$s[A], %%y: %2$s[A]"
                  : "%%x: %1$s[A], %%y: %2$s[A], %%z: %2$s[A]",
         "", arguments, "[A]", false},
        {n == 1   ? "%%x: %1$s"
         : n == 2 ? "%%x: %1$s, %%y: %2$s"
                  : "%%x: %1$s, %%y: %2$s, %%z: %2$s",
         "", arguments, "[]", false},
        {n == 1   ? "%%x: %1$s[A, B]"
         : n == 2 ? "%%x: %1$s[A, B], %%y: %2$s[B]"
                  : "%%x: %1$s[A, B], %%y: %2$s[B], %%z: %2$s[A, 1]",
         "", arguments, "[A, B]", true},
        {n == 1   ? "%%x: %1$s[A, 1, B, 1]"
         : n == 2 ? "%%x: %1$s[A, 1, 1, 1], %%y: %2$s[1, B, 1]"
                  : "%%x: %1$s, %%y: %2$s[A, 1, B, 1], %%z: %2$s[B, 1]",
         "", arguments, "[A, 1, B, 1]", true},
        {n == 1   ? "%%q: %1$s[A, B]"
         : n == 2 ? "%%q: %1$s[A, B], %%y: %2$s[B, A]"
                  : "%%q: %1$s[A, B], %%y: %2$s[B, A], %%z: %2$s",
         "%x = transpose(%q) ", arguments, "[B, A]", true},
    };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        char params[300], result[64];
        snprintf(params, sizeof params, shapes[s].params, first, T); /* formats of this file, operator-free */
        snprintf(result, sizeof result, "%s%s", R, shapes[s].result);
        snprintf(text, sizeof text, "func @f(%s) -> %s { %s%%r = %s(%s) return %%r }", params, result, shapes[s].before,
                 op->name, shapes[s].arguments);
        uint32_t levels = s == 0 ? ALL_LEVELS : 1u << (mix(s + t) % 3) | 1;
        if (shapes[s].is_plane) {
            for (size_t k = 0; k < sizeof planes / sizeof *planes; k++)
                check(text, dom, (int64_t[4]){planes[k][0], planes[k][1]}, k == 4 ? two_threads : one_thread,
                      k % 3 == 1, levels);
        } else {
            for (size_t k = 0; k < (s ? 1 : sizeof lengths / sizeof *lengths); k++)
                check(text, dom, (int64_t[4]){lengths[k]}, one_thread, k % 4 == 2, levels);
        }
        if (s == 0 && (t == FUSOR_F32 || t == FUSOR_I32 || t == FUSOR_BOOL))
            check(text, dom, (int64_t[4]){100003}, many_threads, false, ALL_LEVELS);
    }
}

static void conversion(ir_op op, ir_dtype from) {
    char text[300];
    for (ir_dtype to = 1; to < IR_DTYPE_COUNT; to++) {
        if (op == IR_OP_BITCAST &&
            (ir_dtypes[to].bytes != ir_dtypes[from].bytes || to == FUSOR_BOOL || from == FUSOR_BOOL))
            continue;
        snprintf(text, sizeof text, "func @f(%%x: %s[A]) -> %s[A] { %%r = %s(%%x, %s) return %%r }",
                 ir_dtypes[from].name, ir_dtypes[to].name, ir_ops[op].name, ir_dtypes[to].name);
        for (int k = 0; k < 3; k++) {
            double scale = k == 0 ? 300 : k == 1 ? 3e9 : 1e30;
            check(text, (domain){-scale, scale, SPECIAL_HUGE, op == IR_OP_CAST}, (int64_t[4]){k == 1 ? 133 : 65},
                  one_thread, k == 2, ALL_LEVELS);
        }
    }
}

/* ---- reductions, rows, contractions ---- */
/* The result of a reduction or running sum. */
static ir_dtype reduced_type(const ir_op_info *op, ir_dtype t) {
    if (op->kind == IR_KIND_ARGREDUCE || ((op->is_sum_like || op->kind == IR_KIND_SCAN) && !ir_is_float(t)))
        return FUSOR_I64;
    return t;
}

/* Variances where a sum of squares less the square of the sum has no digit left: elements near a million, and a first
 * element far from all others. In the forms that differ in order: one line, rows, columns. */
static void far_from_zero(const ir_op_info *op, ir_dtype t) {
    static const char *const shapes[][2] = {{"[A]", ""}, {"[A, B]", "axes=[1]"}, {"[A, B]", "axes=[0]"}};
    char text[400];
    for (int s = 0; s < 3; s++)
        for (int outlier = 0; outlier < 2; outlier++) {
            snprintf(
                text, sizeof text,
                "func @f(%%x: %1$s%2$s) -> %1$s%3$s { %%i = iota(shape=%2$s, axis=0, dtype=i64) %%o = eq(%%i, %5$s) "
                "%%y = select(%%o, 1000000.0, %%x) %%r = %4$s(%%y%6$s%7$s) return %%r }",
                ir_dtypes[t].name, shapes[s][0],
                s == 0   ? ""
                : s == 1 ? "[A]"
                         : "[B]",
                op->name, outlier ? "0" : "-1", s ? ", " : "", shapes[s][1]);
            check(text, outlier ? (domain){-1, 1, SPECIAL_NONE, false} : (domain){999998, 1000002, SPECIAL_NONE, false},
                  (int64_t[4]){s == 0 ? 100003 : 300, 1000}, many_threads, false, ALL_LEVELS);
        }
}

/* Functions of what rows have one of, a vector of rows at a time: lines of rows, operands of rows in every order, more
 * than one reduction and result, values per element stored beside. Rows are known, named, and of several blocks. */
static void functions_of_rows(ir_dtype t) {
    static const char *const bodies[] = {
        "(%x: T[A, N], %w: T[N], %b: T) -> T[A] { %p = mul(%x, %w) %m = reduce_sum(%p, axes=[1]) %a = add(%m, %b) "
        "%r = sigmoid(%a) return %r }",
        "(%x: T[A, B, N], %c: T[B], %d: T[B, A]) -> (T[A, B], T[A, B, 1], T[A, B, N]) { %y = abs(%x) "
        "%m = reduce_mean(%y, axes=[2]) %n = reduce_max(%x, axes=[2], keepdims=true) %u = transpose(%d) "
        "%v = mul(%m, %c) %z = sub(%v, %u) %r = tanh(%z) %k = exp(%n) %l = iota(shape=[A, B, 1], axis=1, dtype=i64) "
        "%o = cast(%l, T0) %q = add(%k, %o) return %r, %q, %y }",
        "(%x: T[A, N, B], %w: T[A, B, N]) -> (T[A, B], i64[A, B]) { %t = transpose(%x, perm=[0, 2, 1]) "
        "%p = mul(%t, %w) %s = reduce_sum(%p, axes=[2]) %e = erf(%s) %g = gt(%p, 0.0) %h = cast(%g, i64) "
        "%i = reduce_sum(%h, axes=[2]) return %e, %i }",
    };
    static const char *const ns[] = {"C", "64", "100", "33", "3000"};
    static const int64_t sizes[][3] = {{1, 1, 40}, {17, 3, 65}, {5, 19, 200}, {0, 3, 5}, {35, 1, 2100}};
    char text[900];
    for (size_t s = 0; s < sizeof bodies / sizeof *bodies; s++)
        for (size_t n = 0; n < sizeof ns / sizeof *ns; n++) {
            size_t at = (size_t)snprintf(text, sizeof text, "func @f");
            for (const char *c = bodies[s]; *c; c++) {
                const bool is_type = (c[0] == 'T' && (c[1] == '[' || c[1] == ')' || c[1] == '0'));
                if (c[0] == 'N' && (c[1] == ']' || c[1] == ',')) at += (size_t)sprintf(text + at, "%s", ns[n]);
                else if (is_type) at += (size_t)sprintf(text + at, "%s", ir_dtypes[t].name), c += c[1] == '0';
                else text[at++] = *c;
            }
            text[at] = 0;
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
                check(text, (domain){-0.3, 0.3, k == 1 ? SPECIAL_SOME : SPECIAL_NONE, false},
                      (int64_t[4]){sizes[k][0], sizes[k][1], sizes[k][2]}, k % 2 ? many_threads : one_thread, k == 2,
                      k == 1 ? ALL_LEVELS : 1u << (mix(k + s + n) % 3));
        }
}

/* Short rows of a size that is known: of their last vector some lanes are 0 / 0, which the sum must not see. */
static void quotients_of_rows(ir_dtype t) {
    char text[200];
    for (int n = 2; n < 23; n += n < 8 ? 1 : 3)
        for (int has_two = 0; has_two < 2; has_two++) {
            const char *T = ir_dtypes[t].name;
            snprintf(text, sizeof text,
                     "func @f(%%x: %s[A, %d], %%z: %s[A, %d]) -> %s[A] { %%q = div(%%x, %%%s) "
                     "%%y = reduce_sum(%%q, axes=[1]) return %%y }",
                     T, n, T, n, T, has_two ? "z" : "x");
            check(text, (domain){1, 4, SPECIAL_NONE, false}, (int64_t[4]){7}, one_thread, has_two, ALL_LEVELS);
        }
}

static void reduction(const ir_op_info *op, ir_dtype t) {
    static const struct {
        const char *params, *attrs, *result;
        bool is_arg;
    } shapes[] = {
        {"[A]", "", "", true},
        {"[A, B]", "axis=1", "[A]", true},
        {"[A, B]", "axis=0, keepdims=true", "[1, B]", true},
        {"[A, B, 5]", "axis=1", "[A, 5]", true},
        {"[A, 12]", "axis=-1", "[A]", true},
        {"[A, B, 3]", "axis=-1", "[A, B]", true},
        {"[A, B, C]", "axes=[0, 2]", "[B]", false},
        {"[A, B, C]", "axes=[1, 2], keepdims=true", "[A, 1, 1]", false},
        {"[A, B]", "", "", false},
        {"[A, B]", "axes=[]", "[A, B]", false},
    };
    static const int64_t sizes[][3] = {{1, 1, 1},    {3, 7, 2},   {17, 5, 3}, {2, 129, 16}, {33, 64, 1},
                                       {5, 1000, 2}, {300, 9, 4}, {0, 3, 2},  {3, 0, 2}};
    bool is_sum = op->is_sum_like && ir_is_float(t);
    char text[300], attrs[80];
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        bool is_arg = op->kind == IR_KIND_ARGREDUCE;
        if (is_arg && !shapes[s].is_arg) continue;
        snprintf(attrs, sizeof attrs, "%s", shapes[s].attrs);
        int number = 0, end = 0;
        if (!is_arg && sscanf(shapes[s].attrs, "axis=%d%n", &number, &end) == 1)
            snprintf(attrs, sizeof attrs, "axes=[%d]%s", number, shapes[s].attrs + end);
        snprintf(text, sizeof text, "func @f(%%x: %s%s) -> %s%s { %%r = %s(%%x%s%s) return %%r }", ir_dtypes[t].name,
                 shapes[s].params, ir_dtypes[reduced_type(op, t)].name, shapes[s].result, op->name,
                 attrs[0] ? ", " : "", attrs);
        double scale = op->combine == IR_OP_MUL && op->kind == IR_KIND_REDUCE ? 1.2 : 4;
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            for (int special = 0; special < 2; special++)
                check(text,
                      (domain){scale > 2 ? -scale : 0.8, scale,
                               special ? (is_sum ? SPECIAL_SOME : SPECIAL_HUGE) : SPECIAL_NONE, is_arg},
                      (int64_t[4]){sizes[k][0], sizes[k][1], sizes[k][2]}, k == 5 || k == 6 ? many_threads : one_thread,
                      k == 2, k == 3 ? ALL_LEVELS : 1u << (mix(k + s) % 3) | 1);
    }
    if (strcmp(op->name, "reduce_sum") == 0 && ir_is_float(t)) {
        functions_of_rows(t);
        quotients_of_rows(t);
    }
    if (strcmp(op->name, "reduce_var") == 0 || strcmp(op->name, "reduce_std") == 0)
        if (t == FUSOR_F32 || t == FUSOR_F64) far_from_zero(op, t);
    if (t == FUSOR_F32 || t == FUSOR_I32) {
        snprintf(text, sizeof text, "func @f(%%x: %s[A]) -> %s { %%r = %s(%%x) return %%r }", ir_dtypes[t].name,
                 ir_dtypes[reduced_type(op, t)].name, op->name);
        check(
            text,
            (domain){op->combine == IR_OP_MUL && op->kind == IR_KIND_REDUCE ? 0.9999 : -4, 1.0001, SPECIAL_NONE, false},
            (int64_t[4]){100003}, many_threads, false, ALL_LEVELS);
    }
}

static void row(const ir_op_info *op, ir_dtype t) {
    static const char *const shapes[] = {"[A, B], axis=1", "[A, B], axis=0", "[A, B, 10], axis=-1",
                                         "[A, 1, B], axis=2"};
    static const int64_t sizes[][2] = {{1, 1}, {3, 7}, {2, 17}, {31, 5}, {5, 1000}, {300, 33}, {0, 4}, {2, 5000}};
    char text[300], type[64];
    for (int s = 0; s < 4; s++) {
        snprintf(type, sizeof type, "%s%.*s", ir_dtypes[t].name, (int)(strchr(shapes[s], ']') - shapes[s] + 1),
                 shapes[s]);
        snprintf(text, sizeof text, "func @f(%%x: %s) -> %s { %%r = %s(%%x%s) return %%r }", type, type, op->name,
                 strchr(shapes[s], ']') + 1);
        for (int k = 0; k < 8; k++)
            check(text, (domain){-8, 8, k % 3 == 2 ? SPECIAL_SOME : SPECIAL_NONE, false},
                  (int64_t[4]){sizes[k][0], sizes[k][1]}, k == 4 || k == 5 ? many_threads : one_thread, k == 3,
                  ALL_LEVELS);
    }
}

/* Both axes of a plane and one in the middle, every combination of flags; a line that several blocks make, and lines in
 * numbers. */
static void scan(const ir_op_info *op, ir_dtype t) {
    static const char *const shapes[] = {"[A, B], axis=1", "[A, B], axis=0", "[A, B, 5], axis=1", "[A, 12], axis=-1",
                                         "[A, 1, B], axis=2"};
    static const char *const flags[] = {"", ", exclusive=true", ", reverse=true", ", exclusive=true, reverse=true"};
    static const int64_t sizes[][2] = {{1, 1},    {3, 7}, {2, 17}, {31, 5},  {5, 1000},
                                       {300, 33}, {0, 4}, {4, 0},  {2, 5000}};
    const bool is_product = strcmp(op->name, "cumprod") == 0, is_float = ir_is_float(t);
    const ir_dtype to = reduced_type(op, t);
    char text[300];
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t f = 0; f < sizeof flags / sizeof *flags; f++) {
            const int end = (int)(strchr(shapes[s], ']') - shapes[s] + 1);
            snprintf(text, sizeof text, "func @f(%%x: %s%.*s) -> %s%.*s { %%r = %s(%%x%s%s) return %%r }",
                     ir_dtypes[t].name, end, shapes[s], ir_dtypes[to].name, end, shapes[s], op->name, shapes[s] + end,
                     flags[f]);
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
                check(text,
                      (domain){is_product ? 0.9 : -4, is_product ? 1.1 : 4,
                               (k + f) % 3 == 2 ? SPECIAL_SOME : SPECIAL_NONE, !is_float},
                      (int64_t[4]){sizes[k][0], sizes[k][1]}, k == 4 || k == 5 ? many_threads : one_thread, k == 3,
                      1u << (mix(k + s + f) % 3) | (f == 0 ? 4u : 1u));
        }
    if (t != FUSOR_F32 && t != FUSOR_F64 && t != FUSOR_I32) return;
    for (size_t f = 0; f < sizeof flags / sizeof *flags; f++) {
        snprintf(text, sizeof text, "func @f(%%x: %s[A]) -> %s[A] { %%r = %s(%%x, axis=0%s) return %%r }",
                 ir_dtypes[t].name, ir_dtypes[to].name, op->name, flags[f]);
        check(text, (domain){is_product ? 0.9999 : -4, is_product ? 1.0001 : 4, SPECIAL_NONE, !is_float},
              (int64_t[4]){200003}, many_threads, false, ALL_LEVELS);
    }
    if (t != FUSOR_F32) return;
    snprintf(
        text, sizeof text, /* what is fused in front and behind, and another type */
        "func @f(%%x: f32[A, B], %%y: f32[B]) -> (f32[A, B], f64[A, B]) { %%a = mul(%%x, %%y) %%b = %s(%%a, axis=1) "
        "%%c = sub(%%b, %%x) %%d = %s(%%c, axis=1, dtype=f64, reverse=true) return %%c, %%d }",
        op->name, op->name);
    check(text, (domain){is_product ? 0.9 : -4, is_product ? 1.1 : 4, SPECIAL_NONE, false}, (int64_t[4]){7, 1500},
          many_threads, false, ALL_LEVELS);
}

static void norm(const ir_op_info *op, ir_dtype t) {
    static const struct {
        const char *x, *gamma, *beta, *attrs;
    } shapes[] = {
        {"[A, B]", NULL, NULL, ""},
        {"[A, B]", "[B]", NULL, ", axis=1"},
        {"[A, B]", "[B]", "[B]", ", epsilon=0.001"},
        {"[A, B, 10]", "[B, 10]", "[10]", ", axis=1"},
        {"[B, 5, A]", "[1]", "[5, 1]", ", axis=-3"},
        {"[A, 12]", "[12]", "[A, 1]", ""},
    };
    static const int64_t sizes[][2] = {{1, 1}, {3, 7}, {2, 17}, {31, 5}, {5, 1000}, {300, 33}, {0, 4}, {2, 5000}};
    char text[400], gamma[80], beta[80];
    const char *T = ir_dtypes[t].name;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const bool has_gamma = shapes[s].gamma && op->max_in > 1, has_beta = shapes[s].beta && op->max_in > 2;
        snprintf(gamma, sizeof gamma, has_gamma ? ", %%g: %s%s" : "", T, shapes[s].gamma);
        snprintf(beta, sizeof beta, has_beta ? ", %%b: %s%s" : "", T, shapes[s].beta);
        snprintf(text, sizeof text, "func @f(%%x: %s%s%s%s) -> %s%s { %%r = %s(%%x%s%s%s) return %%r }", T, shapes[s].x,
                 gamma, beta, T, shapes[s].x, op->name, has_gamma ? ", %g" : "", has_beta ? ", %b" : "",
                 shapes[s].attrs);
        for (int k = 0; k < 8; k++)
            check(text, (domain){k == 2 ? 999 : -8, k == 2 ? 1001 : 8, k % 3 == 2 ? SPECIAL_SOME : SPECIAL_NONE, false},
                  (int64_t[4]){sizes[k][0], sizes[k][1]}, k == 4 || k == 5 ? many_threads : one_thread, k == 3,
                  k == 4 ? ALL_LEVELS : 1u << (mix((uint64_t)k + s) % 3) | 1);
    }
}

/* Reductions along the rows of a product, which share its kernel. N is a name and numbers; R is the type of the
 * product. */
static void rows_of_products(ir_dtype t) {
    static const char *const floats[] = {
        "(%x: T[A, B], %w: T[B, N]) -> T[A, N] { %m = matmul(%x, %w) %r = softmax(%m) return %r }",
        "(%x: T[A, B], %w: T[B, N], %b: T[N]) -> (i64[A], T[A, N]) { %m = matmul(%x, %w) %s = add(%m, %b) %i = "
        "argmax(%s, axis=1) "
        "%r = log_softmax(%s) return %i, %r }",
        "(%x: T[A, B], %w: T[N, B], %b: T[A, N], %g: T[N]) -> (T[A, N], T[A, N], T[A]) { %m = matmul(%x, %w, "
        "transpose_b=true) %u = tanh(%m) "
        "%s = add(%u, %b) %r = layer_norm(%s, %g) %e = reduce_mean(%s, axes=[1]) return %r, %s, %e }",
        "(%x: T[D, A, B], %w: T[D, B, N], %g: T[N]) -> (T[D, A, N], T[D, A, 1]) { %m = matmul(%x, %w) %s = abs(%m) %r "
        "= rms_norm(%s, %g) "
        "%e = reduce_max(%s, axes=[2], keepdims=true) return %r, %e }",
        "(%x: T[2, A, B], %w: T[B, N]) -> (T[2, A], i64[2, A]) { %m = matmul(%x, %w) %r = reduce_logsumexp(%m, "
        "axes=[-1]) "
        "%i = argmin(%m, axis=2, select_last=true) return %r, %i }",
    };
    static const char *const integers[] = {
        "(%x: T[A, B], %w: T[B, N]) -> (i64[A], i64[A], R[A, N]) { %m = matmul(%x, %w) %s = reduce_sum(%m, axes=[1]) "
        "%i = argmax(%m, axis=1) "
        "%d = neg(%m) return %s, %i, %d }",
    };
    static const int64_t sizes[][4] = {{1, 1, 3, 1}, {13, 7, 17, 2}, {37, 513, 65, 1}, {5, 600, 500, 1},
                                       {0, 3, 4, 2}, {3, 0, 5, 2},   {30, 20, 2100, 1}};
    static const char *const columns[] = {"C", "10", "64", "1000"};
    const bool is_float = ir_is_float(t);
    const int n_programs = is_float ? sizeof floats / sizeof *floats : sizeof integers / sizeof *integers;
    for (int s = 0; s < n_programs; s++)
        for (size_t n = 0; n < sizeof columns / sizeof *columns; n++) {
            char text[600] = "func @f", *to = text + 7;
            for (const char *c = is_float ? floats[s] : integers[s]; *c; c++) {
                const char *word = NULL;
                if (*c == 'T') word = ir_dtypes[t].name;
                if (*c == 'R') word = ir_dtypes[ir_dtypes[t].bytes == 1 ? FUSOR_I32 : FUSOR_I64].name;
                if (*c == 'N') word = columns[n];
                to += sprintf(to, "%.*s", word ? (int)strlen(word) : 1, word ? word : c);
            }
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
                if (k >= 2 && n && (s + n + k) % 3) continue;
                check(text, (domain){-2, 2, k == 1 ? SPECIAL_SOME : SPECIAL_NONE, !is_float}, sizes[k],
                      k == 2 ? many_threads : two_threads, k == 1,
                      t == FUSOR_F32 || k == 1 ? ALL_LEVELS : 1u << (mix(k + (size_t)s) % 3) | 1);
            }
        }
}

static void contraction_of(const ir_op_info *op, ir_dtype t, ir_dtype t2) {
    static const struct {
        const char *a, *b, *attrs, *result;
    } shapes[] = {
        {"[A, B]", "[B, C]", "", "[A, C]"},
        {"[B, A]", "[B, C]", ", transpose_a=true", "[A, C]"},
        {"[A, B]", "[C, B]", ", transpose_b=true", "[A, C]"},
        {"[B, A]", "[C, B]", ", transpose_a=true, transpose_b=true", "[A, C]"},
        {"[3, A, B]", "[B, C]", "", "[3, A, C]"},
        {"[D, A, B]", "[D, B, C]", "", "[D, A, C]"},
        {"[2, 1, A, B]", "[D, B, C]", "", "[2, D, A, C]"},
        {"[B]", "[B, C]", "", "[C]"},
        {"[A, B]", "[B]", "", "[A]"},
        {"[B]", "[B]", "", ""},
        {"[A, 16]", "[16, 10]", "", "[A, 10]"},
        {"[1, B]", "[B, 1]", "", "[1, 1]"},
        {"[A, B]", "[1, B]", ", transpose_b=true", "[A, 1]"},
        {"[B, A]", "[B, 1]", ", transpose_a=true", "[A, 1]"},
        {"[D, 1, B]", "[B, C]", "", "[D, 1, C]"},
        {"[B, 1]", "[2, C, B]", ", transpose_a=true, transpose_b=true", "[2, 1, C]"},
        {"[A, B]", "[D, B, 1]", "", "[D, A, 1]"},
        {"[B, A]", "[2, D, 1, B]", ", transpose_a=true, transpose_b=true", "[2, D, A, 1]"},
        {"[2, D, B, 1]", "[C, B]", ", transpose_a=true, transpose_b=true", "[2, D, 1, C]"},
        {"[D, A, 1]", "[1, C]", "", "[D, A, C]"},
        {"[1, A]", "[2, C, 1]", ", transpose_a=true, transpose_b=true", "[2, A, C]"},
        /* a matrix of a few elements and many rows or columns: element by element */
        {"[A, 3]", "[3, 2]", "", "[A, 2]"},
        {"[D, A, 4]", "[D, 3, 4]", ", transpose_b=true", "[D, A, 3]"},
        {"[4, 2]", "[D, A, 4]", ", transpose_a=true, transpose_b=true", "[D, 2, A]"},
        {"[2, D, 70, 2]", "[2, 4]", "", "[2, D, 70, 4]"},
        {"[4, B]", "[7, B]", ", transpose_b=true", "[4, 7]"}, /* few sums of many products */
        /* all known: the direct form where the type is that of the accumulators */
        {"[D, 13, 24]", "[D, 24, 21]", "", "[D, 13, 21]"},
        {"[3, D, 30, 9]", "[3, D, 30, 64]", ", transpose_a=true", "[3, D, 9, 64]"},
        {"[D, 33, 64]", "[D, 40, 64]", ", transpose_b=true", "[D, 33, 40]"},
        {"[2, D, 4, 4]", "[D, 4, 4]", "", "[2, D, 4, 4]"},
        {"[D, 1, 40]", "[D, 40, 7]", "", "[D, 1, 7]"},
        {"[9, 40]", "[40, 1]", "", "[9, 1]"},
        {"[D, 5, 1]", "[D, 1, 4]", "", "[D, 5, 4]"},
        {"[D, 3, 5]", "[D, 5, 1]", "", "[D, 3, 1]"},
        {"[D, 12, 4]", "[2, 1, 1, 12]", ", transpose_a=true, transpose_b=true", "[2, D, 4, 1]"},
        {"[D, 5, 0]", "[D, 0, 4]", "", "[D, 5, 4]"},
        {"[D, 0, 5]", "[D, 5, 4]", "", "[D, 0, 4]"},
    };
    static const int64_t sizes[][4] = {{1, 1, 1, 1},     {3, 7, 2, 2}, {17, 5, 31, 3}, {2, 129, 16, 2}, {33, 64, 65, 1},
                                       {70, 600, 90, 2}, {0, 3, 2, 2}, {3, 0, 2, 2},   {5, 4, 0, 0}};
    ir_dtype result = ir_is_float(t) ? t : ir_dtypes[t].bytes == 1 ? FUSOR_I32 : FUSOR_I64;
    char text[300];
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        snprintf(text, sizeof text, "func @f(%%x: %s%s, %%y: %s%s) -> %s%s { %%r = %s(%%x, %%y%s) return %%r }",
                 ir_dtypes[t].name, shapes[s].a, ir_dtypes[t2].name, shapes[s].b, ir_dtypes[result].name,
                 shapes[s].result, op->name, shapes[s].attrs);
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            check(text, (domain){-4, 4, k % 3 == 1 ? SPECIAL_SOME : SPECIAL_NONE, !ir_is_float(t)}, sizes[k],
                  k == 5 ? many_threads : one_thread, k == 2,
                  s == 0 || k == 4 ? ALL_LEVELS : 1u << (mix(k + s) % 3) | 1);
    }
}

/* dtype=: any number, whatever the operands are. */
static void products_of_all_types(ir_dtype t) {
    static const char *const programs[] = {
        "func @f(%%x: %1$s[A, B], %%w: %1$s[B, C]) -> %2$s[A, C] { %%r = matmul(%%x, %%w, dtype=%2$s) return %%r }",
        "func @f(%%x: %1$s[A, 12], %%w: %1$s[12, 9]) -> %2$s[A, 9] { %%r = matmul(%%x, %%w, dtype=%2$s) return %%r }",
        "func @f(%%x: %1$s[A, B], %%w: %1$s[B]) -> %2$s[A] { %%r = matmul(%%x, %%w, dtype=%2$s) return %%r }",
        "func @f(%%x: %1$s[A, B], %%w: %1$s[B, C]) -> %2$s[C, A] {"
        " %%r = einsum(\"ab,bc->ca\", %%x, %%w, dtype=%2$s) return %%r }",
        "func @f(%%x: %1$s[A, 3, B], %%w: %1$s[5, 3, 3]) -> %2$s[A, 5, B] {"
        " %%r = conv(%%x, %%w, pads=[1, 1], dtype=%2$s) return %%r }",
    };
    static const int64_t sizes[][4] = {{3, 7, 2, 2}, {17, 65, 33, 3}};
    char text[300];
    for (ir_dtype to = 1; to < IR_DTYPE_COUNT; to++)
        for (int s = 0; s < 5 && to != FUSOR_BOOL; s++)
            for (int k = 0; k < 2; k++) {
                snprintf(text, sizeof text, programs[s], ir_dtypes[t].name, /* formats of this function */
                         ir_dtypes[to].name);
                check(text, (domain){-4, 4, SPECIAL_NONE, !ir_is_float(t)}, sizes[k], k ? two_threads : one_thread,
                      false, 1u << (mix((uint64_t)s + to) % 3) | 1);
            }
}

static void contraction(const ir_op_info *op, ir_dtype t) {
    contraction_of(op, t, t);
    products_of_all_types(t);
    rows_of_products(t);
    if (t == FUSOR_I8) contraction_of(op, t, FUSOR_U8);
    if (t == FUSOR_U8) contraction_of(op, t, FUSOR_I8);
}

/* ---- movement and creation ---- */
static void movement(ir_op op, ir_dtype t) {
    static const struct {
        ir_op op;
        const char *params, *arguments, *result;
    } cases[] = {
        {IR_OP_RESHAPE, "[A, B]", "shape=[B, A]", "[B, A]"},
        {IR_OP_RESHAPE, "[A, 6]", "shape=[A, 2, -1]", "[A, 2, 3]"},
        {IR_OP_TRANSPOSE, "[A, B]", "", "[B, A]"},
        {IR_OP_TRANSPOSE, "[A, B, C]", "perm=[2, 0, 1]", "[C, A, B]"},
        {IR_OP_TRANSPOSE, "[A, 20, B]", "perm=[0, 2, 1]", "[A, B, 20]"}, /* blocks that are not whole */
        {IR_OP_TRANSPOSE, "[B, 37, 5, 7]", "perm=[0, 2, 3, 1]", "[B, 5, 7, 37]"},
        {IR_OP_BROADCAST_TO, "[B]", "shape=[7, B]", "[7, B]"},
        {IR_OP_BROADCAST_TO, "[A, 1]", "shape=[3, A, 5]", "[3, A, 5]"},
        {IR_OP_SQUEEZE, "[A, 1, B]", "axes=[1]", "[A, B]"},
        {IR_OP_UNSQUEEZE, "[A, B]", "axes=[0, -1]", "[1, A, B, 1]"},
    };
    char text[300];
    for (size_t s = 0; s < sizeof cases / sizeof *cases; s++) {
        if (cases[s].op != op) continue;
        snprintf(text, sizeof text, "func @f(%%x: %s%s) -> %s%s { %%r = %s(%%x%s%s) return %%r }", ir_dtypes[t].name,
                 cases[s].params, ir_dtypes[t].name, cases[s].result, ir_ops[op].name,
                 cases[s].arguments[0] ? ", " : "", cases[s].arguments);
        for (size_t k = 0; k < sizeof planes / sizeof *planes; k++)
            check(text, (domain){-100, 100, SPECIAL_HUGE, true}, (int64_t[4]){planes[k][0], planes[k][1], 3},
                  k == 5 ? two_threads : one_thread, k % 3 == 1, ALL_LEVELS);
    }
    /* A named size that must be 1: what it becomes stretches, whatever made it; another size is refused. */
    static const char *const ones[] = {
        "func @f(%x: f32[A]) -> f32[3] { %a = broadcast_to(%x, shape=[1]) %b = broadcast_to(%a, shape=[3]) return %b }",
        "func @f(%x: f32[A, B]) -> f32[3, B] { %a = broadcast_to(%x, shape=[1, B]) %b = broadcast_to(%a, shape=[3, B]) "
        "%c = neg(%b) return %c }",
        "func @f(%x: f32[A]) -> f32[2, 70] { %a = broadcast_to(%x, shape=[2, 1]) %b = broadcast_to(%a, shape=[2, 70]) "
        "return %b }",
        "func @f(%x: f32[A, B]) -> f32[] { %a = slice(%x, starts=[0], ends=[9]) %b = broadcast_to(%a, shape=[1, B]) %c "
        "= "
        "broadcast_to(%b, shape=[70, B]) %d = reduce_max(%c) return %d }",
        "func @f(%x: f32[B, A]) -> f32[1] { %a = reduce_max(%x, axes=[0]) %b = broadcast_to(%a, shape=[1]) return %b }",
        "func @f(%x: f32[A]) -> f32[1] { %a = cumsum(%x, axis=0) %b = broadcast_to(%a, shape=[1]) return %b }",
        "func @f(%x: f32[A, B], %y: f32[B]) -> f32[1, B] { %a = softmax(%x, axis=0) %b = broadcast_to(%a, shape=[1, "
        "B]) "
        "%c = mul(%b, %y) return %c }",
        "func @f(%x: f32[A, B], %y: f32[B, 3]) -> f32[1, 3] { %a = matmul(%x, %y) %b = broadcast_to(%a, shape=[1, 3]) "
        "return %b }",
    };
    for (size_t s = 0; s < sizeof ones / sizeof *ones && op == IR_OP_BROADCAST_TO && t == FUSOR_F32; s++)
        for (int64_t a = 1; a < 3; a++)
            check(ones[s], (domain){-4, 4, SPECIAL_NONE, s < 5}, (int64_t[4]){a, 33}, one_thread, false, ALL_LEVELS);
    /* What an expansion takes an operand for, whose size must be 1 but has a name: it stretches as well. */
    static const char *const stands_for[] = {
        "func @f(%x: f32[3, A]) -> f32[3, 5] { %k = split(%x, axis=1, sizes=[1]) %r = broadcast_to(%k, shape=[3, 5]) "
        "return %r }",
        "func @f(%x: f32[3, A], %y: f32[0, 1]) -> f32[3, 5] { %k = concat(%y, %x, axis=0) %r = broadcast_to(%k, "
        "shape=[3, 5]) return %r }",
        "func @f(%x: f32[4, 1], %u: f32[4, A]) -> f32[4, 5] { %i = iota(shape=[4, 1], axis=0, dtype=i64) %k = "
        "scatter(%x, %i, %u, axis=0) %r = broadcast_to(%k, shape=[4, 5]) return %r }",
        "func @f(%x: f32[4, 1], %u: f32[2, A]) -> f32[4, 5] { %i = iota(shape=[2, 1], axis=0, dtype=i64) %k = "
        "scatter(%x, %i, %u, axis=0) %r = broadcast_to(%k, shape=[4, 5]) return %r }",
        "func @f(%x: f32[A, 7], %y: f32[4, 2]) -> f32[4, 2] { %k = split(%x, axis=0, sizes=[1]) %j = cast(%y, i32) %i "
        "= clamp(%j, -3, 3) %r = take_along(%k, %i, axis=1) return %r }",
        "func @f(%x: f32[A, 3, 4], %y: f32[5, 4, 3]) -> f32[5, 3, 3] { %k = split(%x, axis=0, sizes=[1]) %r = "
        "matmul(%k, %y) return %r }",
        "func @f(%q: f32[2, 4, 5, 8], %x: f32[A, 4, 6, 8], %y: f32[A, 4, 6, 8]) -> f32[2, 4, 5, 8] { %k = split(%x, "
        "axis=0, sizes=[1]) %v = split(%y, axis=0, sizes=[1]) %r = attention(%q, %k, %v) return %r }",
        "func @f(%x: f32[3, A], %y: f32[3, 7]) -> f32[3] { %k = split(%x, axis=1, sizes=[1]) %r = einsum(\"ij,ij->i\", "
        "%k, %y) return %r }",
        "func @f(%x: f32[A, 9], %y: f32[5, 9]) -> f32[5, 9] { %s = softmax(%x) %k = split(%s, axis=0, sizes=[1]) %e = "
        "exp(%k) %r = sub(%y, %e) return %r }",
    };
    for (size_t s = 0; s < sizeof stands_for / sizeof *stands_for && op == IR_OP_BROADCAST_TO && t == FUSOR_F32; s++)
        check(stands_for[s], (domain){-4, 4, SPECIAL_NONE, s < 5}, (int64_t[4]){1}, one_thread, false, ALL_LEVELS);
}

enum { NUMBERS = 1 /* not for bool */, SLOW = 2 /* to compile: for f32 */ };
/* T stands for the type. Indices are made of a parameter of any numbers: fmod keeps them within -n < i < n. */
#define INDICES(axis, t) "%n = dim(%x, axis=" axis ") %q = cast(%n, " t ") %i = fmod(%k, %q) "
static const struct {
    ir_op op;
    const char *params, *body, *result;
    int flags;
} moves[] = {
    {IR_OP_SLICE, "%x: T[A, B]", "%r = slice(%x, starts=[1], ends=[9223372036854775807])", "T[?, B]", 0},
    {IR_OP_SLICE, "%x: T[A, B]", "%r = slice(%x, starts=[0, -3], ends=[-1, 9223372036854775807])", "T[?, ?]", 0},
    {IR_OP_SLICE, "%x: T[A, B]",
     "%r = slice(%x, starts=[-1, 5], ends=[-9223372036854775808, -9223372036854775808], steps=[-1, -2])", "T[A, ?]", 0},
    {IR_OP_SLICE, "%x: T[A, 40]", "%r = slice(%x, starts=[3], ends=[38], steps=[3], axes=[1])", "T[A, 12]", 0},
    {IR_OP_SLICE, "%x: T[A, B, 5]", "%r = slice(%x, starts=[1, 1], ends=[4, 4], axes=[2, 0])", "T[?, B, 3]", 0},
    {IR_OP_SLICE, "%x: T[A, B], %y: T[C, D]", "%r = slice(%x, starts=[C-2], ends=[C+1], axes=[1])", "T[A, ?]", 0},
    {IR_OP_SLICE, "%x: T[A, B, 4]", "%r = slice(%x, starts=[-2], ends=[0], steps=[-1], axes=[1])", "T[A, ?, 4]", 0},
    {IR_OP_SLICE, "%x: T[A, B, 5]",
     "%r = slice(%x, starts=[0, -1], ends=[9, -9223372036854775808], "
     "steps=[9223372036854775807, -9223372036854775808])",
     "T[?, ?, 5]", 0},
    {IR_OP_SLICE, "%x: T[A, B, 5]",
     "%r = slice(%x, starts=[-1, 0], ends=[-9, 90], steps=[-4611686018427387904, 3000000000])", "T[?, ?, 5]", 0},
    {IR_OP_FLIP, "%x: T[A, B]", "%r = flip(%x, axes=[0])", "T[A, B]", 0},
    {IR_OP_FLIP, "%x: T[A, B]", "%r = flip(%x, axes=[-1])", "T[A, B]", 0},
    {IR_OP_FLIP, "%x: T[A, B, 3]", "%r = flip(%x, axes=[2, 0])", "T[A, B, 3]", 0},
    /* rows of a few take turns in the result */
    {IR_OP_FLIP, "%x: T[A, B, 3]", "%r = flip(%x, axes=[1])", "T[A, B, 3]", 0},
    {IR_OP_FLIP, "%x: T[A, B, 4]", "%t = flip(%x, axes=[1]) %r = slice(%t, starts=[1], ends=[4], axes=[2])",
     "T[A, B, 3]", 0},
    {IR_OP_FLIP, "%x: T[A, B, 4], %y: T[4], %z: T[B, 1]",
     "%t = flip(%x, axes=[1, 2]) %u = maximum(%t, %y) %r = minimum(%u, %z)", "T[A, B, 4]", NUMBERS},
    {IR_OP_FLIP, "%x: T[A, B, 2], %y: T[A, 1, 2]", "%t = flip(%x, axes=[1]) %r = maximum(%t, %y)", "T[A, B, 2]",
     NUMBERS},
    {IR_OP_FLIP, "%x: T[A, 2, B]", "%t = flip(%x, axes=[0]) %r = transpose(%t, perm=[0, 2, 1])", "T[A, B, 2]", 0},
    {IR_OP_FLIP, "%x: T[4, A, B]", "%t = flip(%x, axes=[0]) %r = transpose(%t, perm=[1, 2, 0])", "T[A, B, 4]", 0},
    {IR_OP_FLIP, "%x: T[3, A, B]", "%t = flip(%x, axes=[2]) %u = flip(%t, axes=[1]) %r = transpose(%u, perm=[1, 2, 0])",
     "T[A, B, 3]", 0},
    /* rows of few columns, of which all of a line share something */
    {IR_OP_BROADCAST_TO, "%x: T[A, B, 5], %y: T[5]", "%b = broadcast_to(%y, shape=[A, B, 5]) %r = maximum(%x, %b)",
     "T[A, B, 5]", NUMBERS},
    {IR_OP_BROADCAST_TO, "%x: T[B, A, 3], %y: T[B, 1, 3], %z: T[1]",
     "%t = concat(%x, %x, %x, %x, %x, %x, %x, axis=1) %m = maximum(%t, %y) %b = broadcast_to(%z, shape=[3]) "
     "%r = minimum(%m, %b)",
     "T[B, 7*A, 3]", NUMBERS},
    {IR_OP_FLIP, "%x: T[A, B, 5], %y: T[5], %z: T[5]",
     "%f = flip(%z, axes=[0]) %m = maximum(%x, %y) %r = minimum(%m, %f)", "T[A, B, 5]", NUMBERS},
    {IR_OP_SLICE, "%x: T[A, B, 5], %y: T[5], %z: T[10]",
     "%o = slice(%z, starts=[1], ends=[10], axes=[0], steps=[2]) %m = maximum(%x, %y) %r = minimum(%m, %o)",
     "T[A, B, 5]", NUMBERS},
    {IR_OP_TRANSPOSE, "%x: T[A, 90, 3], %y: T[3], %z: T[3, 2]",
     "%t = transpose(%z) %u = slice(%t, starts=[1], ends=[2], axes=[0]) %m = maximum(%x, %y) %r = minimum(%m, %u)",
     "T[A, 90, 3]", NUMBERS},
    {IR_OP_PAD, "%x: T[A, B]", "%r = pad(%x, pads=[1, 2, 0, 3])", "T[A+1, B+5]", 0},
    {IR_OP_PAD, "%x: T[A, B]", "%r = pad(%x, pads=[0, 17, 2, 1], value=7)", "T[A+2, B+18]", NUMBERS},
    {IR_OP_PAD, "%x: T[A, B], %y: T[]", "%r = pad(%x, pads=[1, 0, 1, 0], value=%y)", "T[A+2, B]", 0},
    {IR_OP_PAD, "%x: T[A, B]", "%r = pad(%x, pads=[0, -1, 2, 1])", "T[A+2, B]", 0},
    {IR_OP_PAD, "%x: T[A, B]", "%r = pad(%x, pads=[0, -1, 0, 0])", "T[A, B-1]", 0},
    {IR_OP_PAD, "%x: T[A, B]", "%r = pad(%x, pads=[2, 1, 1, 3], mode=edge)", "T[A+3, B+4]", 0},
    {IR_OP_PAD, "%x: T[A, B]", "%r = pad(%x, pads=[0, 2, 0, 1], mode=reflect)", "T[A, B+3]", 0},
    {IR_OP_PAD, "%x: T[A, B]", "%r = pad(%x, pads=[1, 9, 0, 4], mode=wrap)", "T[A+1, B+13]", 0},
    /* rows in runs: of a baked length, of columns that are apart, nested, as a part of something else */
    {IR_OP_PAD, "%x: T[A, B, 3]", "%r = pad(%x, pads=[2, 1, 0, 0, 2, 0])", "T[A+2, B+3, 3]", 0},
    {IR_OP_PAD, "%x: T[A, B, 5]",
     "%p = pad(%x, pads=[0, 2, 0, 0, 1, 0]) %q = pad(%p, pads=[0, 2, 0, 0, 3, 0], value=1) %r = concat(%q, %x, axis=1)",
     "T[A, 2*B+8, 5]", NUMBERS},
    {IR_OP_PAD, "%x: T[A, 30]", "%r = pad(%x, pads=[1, 3, 0, 2], mode=reflect)", "T[A+1, 35]", SLOW},
    {IR_OP_PAD, "%x: T[A, 13]", "%r = pad(%x, pads=[0, 12, 0, 12], mode=reflect)", "T[A, 37]", 0},
    {IR_OP_PAD, "%x: T[A, 20]", "%r = pad(%x, pads=[2, 41, 1, 33], mode=wrap)", "T[A+3, 94]", 0},
    {IR_OP_PAD, "%x: T[A, B]", "%t = transpose(%x) %r = pad(%t, pads=[1, 2, 0, 1], mode=edge)", "T[B+1, A+3]", 0},
    {IR_OP_PAD, "%x: T[A, B], %y: T[A, C]",
     "%p = pad(%x, pads=[0, 2, 0, 1], mode=edge) %q = pad(%y, pads=[0, 1, 0, 70], value=1) %r = concat(%p, %q, %x, "
     "axis=1) "
     "%s = concat(%r, %x, axis=1)",
     "T[A, 2*B+C+74], T[A, 3*B+C+74]", SLOW},
    {IR_OP_CONCAT, "%x: T[A, B], %y: T[C, B]",
     "%s = concat(%x, %y, axis=0) %t = flip(%s, axes=[0]) %r = concat(%s, %t, %t, axis=1)", "T[A+C, 3*B], T[A+C, B]",
     SLOW},
    {IR_OP_CONCAT, "%x: T[A, B]",
     "%t = slice(%x, starts=[2], ends=[9223372036854775807], axes=[1]) %u = slice(%x, starts=[0], ends=[2], axes=[1]) "
     "%v = concat(%t, %u, axis=1) %r = add(%v, %x)",
     "T[A, ?]", SLOW | NUMBERS},
    /* a loop for each of the values that are one behind the other: two decided by the same condition, one in another one
     * that a row decides, lengths baked, too many of them */
    {IR_OP_CONCAT, "%x: T[A, B], %y: T[A, C], %z: T[A, D]",
     "%a = add(%x, %x) %b = maximum(%y, %y) %p = concat(%a, %b, %z, axis=1) %m = minimum(%z, %z) %s = concat(%b, %a, "
     "%m, "
     "axis=1) %u = concat(%x, %y, %m, axis=1) %r = add(%p, %u)",
     "T[A, B+C+D], T[A, B+C+D]", SLOW | NUMBERS},
    {IR_OP_CONCAT, "%x: T[A, B], %y: T[C, B]",
     "%a = add(%x, %x) %p = pad(%a, pads=[0, 2, 1, 1], value=1) %b = mul(%y, %y) %q = pad(%b, pads=[0, 1, 0, 2]) "
     "%r = concat(%p, %q, axis=0)",
     "T[A+C+1, B+3]", SLOW | NUMBERS},
    {IR_OP_CONCAT, "%x: T[A, B, 40], %y: T[B, 20]",
     "%a, %b = split(%x, axis=2, sizes=[20, 20]) %c = mul(%a, %y) %d = add(%b, %y) %e = add(%a, %y) %f = mul(%b, %y) "
     "%g = add(%c, %d) %h = maximum(%e, %f) %r = concat(%g, %h, axis=2)",
     "T[A, B, 40]", SLOW | NUMBERS},
    {IR_OP_CONCAT, "%x: T[A, B], %y: T[A, B]",
     "%a = add(%x, %y) %b = maximum(%x, %y) %c = minimum(%x, %y) %p = concat(%a, %b, %c, %a, %x, %b, %c, %a, %b, "
     "axis=1) "
     "%q = concat(%a, %y, %x, %b, %c, axis=1) %t = pad(%q, pads=[0, B, 0, 3*B], value=1) %r = maximum(%p, %t)",
     "T[A, 9*B]", SLOW | NUMBERS},
    {IR_OP_CONCAT, "%x: T[A, B], %y: T[A, C]", "%r = concat(%x, %y, axis=1)", "T[A, B+C]", 0},
    {IR_OP_CONCAT, "%x: T[A, B], %y: T[C, B], %z: T[D, B]", "%r = concat(%x, %y, %z, axis=0)", "T[A+C+D, B]", 0},
    {IR_OP_CONCAT, "%x: T[A, B]", "%t = transpose(%x) %r = concat(%t, %t, %t, %t, %t, %t, %t, %t, %t, %t, axis=-1)",
     "T[B, 10*A]", SLOW},
    {IR_OP_CONCAT, "%x: T[A, B], %y: T[A, B]",
     "%t = unsqueeze(%x, axes=[2]) %u = unsqueeze(%y, axes=[2]) %r = concat(%t, %u, axis=2)", "T[A, B, 2]", 0},
    {IR_OP_CONCAT, "%x: T[A, B]", "%r = concat(%x, axis=0)", "T[A, B]", 0},
    {IR_OP_SPLIT, "%x: T[A, 20]", "%r, %s = split(%x, axis=1, sizes=[3, 17])", "T[A, 3], T[A, 17]", 0},
    {IR_OP_SPLIT, "%x: T[A, B], %y: T[C, B]", "%z = concat(%x, %y, axis=0) %r, %s = split(%z, axis=0, sizes=[C, A])",
     "T[C, B], T[A, B]", 0},
    {IR_OP_TILE, "%x: T[A, B]", "%r = tile(%x, repeats=[2, 3])", "T[2*A, 3*B]", 0},
    {IR_OP_TILE, "%x: T[A, B]", "%r = tile(%x, repeats=[2, 3]) %s = tile(%x, repeats=[3, 2])",
     "T[2*A, 3*B], T[3*A, 2*B]", 0},
    {IR_OP_TILE, "%x: T[A, B]", "%r = tile(%x, repeats=[1, 0])", "T[A, 0]", 0},
    {IR_OP_TILE, "%x: T[A, 1, B, 1, 2]", "%r = tile(%x, repeats=[2, 3, 2, 5, 2])", "T[2*A, 3, 2*B, 5, 4]", 0},
    {IR_OP_TRIL, "%x: T[A, B]", "%r = tril(%x)", "T[A, B]", 0},
    {IR_OP_TRIL, "%x: T[3, A, B]", "%r = tril(%x, k=-2)", "T[3, A, B]", 0},
    {IR_OP_TRIU, "%x: T[A, B]", "%r = triu(%x, k=3)", "T[A, B]", 0},
    {IR_OP_TRIU, "%x: T[A, 17]", "%r = triu(%x, k=-9223372036854775808)", "T[A, 17]", 0},
    {IR_OP_TAKE, "%x: T[A, B], %k: i32[C]", INDICES("0", "i32") "%r = take(%x, %i)", "T[C, B]", 0},
    {IR_OP_TAKE, "%x: T[A, B], %k: i64[C, D]", INDICES("1", "i64") "%r = take(%x, %i, axis=1)", "T[A, C, D]", 0},
    {IR_OP_TAKE, "%x: T[A, 2, B], %i: i64[C]", "%r = take(%x, %i, axis=1)", "T[A, C, B]", NUMBERS},
    {IR_OP_TAKE, "%x: T[A, 2, B]", "%r = take(%x, -1, axis=1)", "T[A, B]", 0},
    {IR_OP_TAKE_ALONG, "%x: T[A, B], %k: i16[A, D]", INDICES("1", "i16") "%r = take_along(%x, %i, axis=1)", "T[A, D]",
     0},
    {IR_OP_TAKE_ALONG, "%x: T[A, B], %k: i64[D, 1]", INDICES("0", "i64") "%r = take_along(%x, %i, axis=0)", "T[D, B]",
     0},
    {IR_OP_TAKE_ALONG, "%x: T[1, B], %k: i32[A, C]", INDICES("1", "i32") "%r = take_along(%x, %i, axis=-1)", "T[A, C]",
     0},
    {IR_OP_SCATTER, "%x: T[A, B], %k: i64[C, B], %u: T[C, B]", INDICES("0", "i64") "%r = scatter(%x, %i, %u, axis=0)",
     "T[A, B]", 0},
    {IR_OP_SCATTER, "%x: T[A, B], %k: i32[A, D], %u: T[A, D]",
     INDICES("1", "i32") "%r = scatter(%x, %i, %u, axis=1, mode=add) %s = scatter(%x, %i, %u, axis=1, mode=max)",
     "T[A, B], T[A, B]", NUMBERS},
    {IR_OP_SCATTER, "%x: T[A, B], %k: i32[C, 1], %u: T[C, 1]",
     INDICES("0", "i32") "%r = scatter(%x, %i, %u, axis=0, mode=mul) %s = scatter(%x, %i, %u, axis=0, mode=min)",
     "T[A, B], T[A, B]", NUMBERS},
    {IR_OP_SCATTER, "%x: T[A, B], %k: i64[C], %u: T[C, B]",
     INDICES("0", "i64") "%j = unsqueeze(%i, axes=[1]) %b = broadcast_to(%j, shape=[C, B]) %h = clamp(%x, %x, %x) "
                         "%r = scatter(%x, %b, %u, axis=0, mode=add) %s = scatter(%h, %b, %u, axis=0)",
     "T[A, B], T[A, B]", NUMBERS},
    {IR_OP_SCATTER, "%x: T[A, B, 2, C], %k: i32[B], %u: T[A, B, 2, C]",
     INDICES(
         "1",
         "i32") "%j = reshape(%i, shape=[1, B, 1, 1]) %b = broadcast_to(%j, shape=[A, B, 2, C]) "
                "%v = abs(%u) %r = scatter(%x, %b, %v, axis=1, mode=mul) %s = scatter(%r, %b, %u, axis=1, mode=max)",
     "T[A, B, 2, C], T[A, B, 2, C]", NUMBERS},
    {IR_OP_TAKE_ALONG, "%x: T[A, B], %k: i32[C]",
     INDICES("0", "i32") "%j = unsqueeze(%i, axes=[1]) %b = broadcast_to(%j, shape=[C, B]) "
                         "%r = take_along(%x, %b, axis=0)",
     "T[C, B]", 0},
    {IR_OP_ONE_HOT, "%k: T[A]", "%r = one_hot(%k, depth=7)", "f32[A, 7]", 0},
    {IR_OP_ONE_HOT, "%k: T[A, B], %y: T[C]",
     "%r = one_hot(%k, depth=C, dtype=i8) %s = one_hot(%k, depth=1, dtype=bool)", "i8[A, B, C], bool[A, B, 1]", 0},
};

static void with_type(char *out, size_t size, const char *text, const char *type) {
    size_t n = 0;
    for (; *text && n + 8 < size; text++) {
        const bool is_type = text[0] == 'T' && text[1] == '[';
        if (is_type) n += (size_t)snprintf(out + n, size - n, "%s", type);
        else out[n++] = *text;
    }
    out[n] = 0;
}

static void moving(ir_op op, ir_dtype t) {
    char text[800], typed[800];
    for (size_t s = 0; s < sizeof moves / sizeof *moves; s++) {
        if (moves[s].op != op || (t == FUSOR_BOOL && (moves[s].flags & NUMBERS))) continue;
        if (t != FUSOR_F32 && (moves[s].flags & SLOW)) continue;
        snprintf(text, sizeof text, "func @f(%s) -> (%s) { %s return %%r%s }", moves[s].params, moves[s].result,
                 moves[s].body, strstr(moves[s].body, "%s = ") || strstr(moves[s].body, ", %s") ? ", %s" : "");
        with_type(typed, sizeof typed, text, ir_dtypes[t].name);
        /* Parameters of indices are -1, 0 or 1; others may be anything. */
        const bool is_index = ir_ops[op].kind == IR_KIND_INDEX, is_plain = strstr(moves[s].params, "%i: ") != NULL;
        const double limit = is_plain ? 1.9 : is_index ? 90 : 1000;
        for (size_t k = 0; k < sizeof planes / sizeof *planes; k++)
            check(typed, (domain){-limit, limit, is_index ? SPECIAL_NONE : SPECIAL_HUGE, true},
                  (int64_t[4]){planes[k][0], planes[k][1], k % 2 ? 3 : 5, k == 6 ? 0 : 2},
                  k == 3 ? two_threads : one_thread, k % 3 == 1,
                  t == FUSOR_F32 && k == 5 ? ALL_LEVELS : 1u << (mix(k / 3 + s + t) % 3));
        if (t == FUSOR_F32 || (t == FUSOR_I8 && s % 2))
            check(typed, (domain){-limit, limit, SPECIAL_NONE, true}, (int64_t[4]){301, 213, 100, 40}, many_threads,
                  false, ALL_LEVELS);
    }
}

static void creation(ir_op op, ir_dtype t) {
    const char *T = ir_dtypes[t].name;
    char text[300];
    if (op == IR_OP_DIM)
        snprintf(
            text, sizeof text,
            "func @f(%%x: %s[A, B]) -> (i64, i64) { %%r = dim(%%x, axis=0) %%s = dim(%%x, axis=-1) return %%r, %%s }",
            T);
    else if (op == IR_OP_FULL)
        snprintf(text, sizeof text,
                 "func @f(%%x: %s[A, B]) -> %s[B, A] { %%r = full(%s, shape=[B, A], dtype=%s) return %%r }", T, T,
                 t == FUSOR_BOOL ? "true" : "3", T);
    else
        snprintf(text, sizeof text,
                 "func @f(%%x: %s[A, B]) -> (%s[A, B], %s[A, B]) { %%r = iota(shape=[A, B], axis=0, dtype=%s) %%s = "
                 "iota(shape=[A, B], axis=-1, dtype=%s) return %%r, %%s }",
                 T, T, T, T, T);
    for (size_t k = 0; k < sizeof planes / sizeof *planes; k++)
        check(text, (domain){0, 1, SPECIAL_NONE, true}, (int64_t[4]){planes[k][0], planes[k][1]}, one_thread, k == 4,
              ALL_LEVELS);
}

/* Alone, where a kernel makes whole groups at once; across, along rows and under reductions, where it may not. */
static void random_numbers(ir_op op, ir_dtype t) {
    const char *T = ir_dtypes[t].name, *name = ir_ops[op].name;
    char text[500];
    bool is_exact = op == IR_OP_RANDOM_UNIFORM;
    snprintf(text, sizeof text,
             "func @f(%%x: %s[A], %%s: i64) -> %s[A] { %%r = %s(shape=[A], seed=%%s, dtype=%s) return %%r }", T, T,
             name, T);
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
        check(text, (domain){-1e9, 1e9, SPECIAL_NONE, is_exact}, (int64_t[4]){lengths[k]}, one_thread, k % 4 == 2,
              ALL_LEVELS);
    check(text, (domain){-1e9, 1e9, SPECIAL_NONE, is_exact}, (int64_t[4]){100003}, many_threads, false, ALL_LEVELS);
    snprintf(text, sizeof text,
             "func @f(%%x: %s[A, B]) -> (%s[B, A], %s[A, B]) { %%u = %s(shape=[A, B], seed=3, dtype=%s) %%r = "
             "transpose(%%u) "
             "%%v = %s(shape=[B], seed=4, dtype=%s) %%w = add(%%x, %%v) %%z = select(true, %%w, %%u) return %%r, %%z }",
             T, T, T, name, T, name, T);
    for (size_t k = 0; k < sizeof planes / sizeof *planes; k++)
        check(text, (domain){-1, 1, SPECIAL_NONE, is_exact}, (int64_t[4]){planes[k][0], planes[k][1]},
              k == 4 ? two_threads : one_thread, k % 3 == 1, ALL_LEVELS);
    snprintf(
        text, sizeof text,
        "func @f(%%x: %s[A, B]) -> (%s[A], %s[A, B]) { %%u = %s(shape=[A, B], seed=5, dtype=%s) %%p = mul(%%x, %%u) "
        "%%r = reduce_max(%%p, axes=[1]) %%y = softmax(%%p, axis=1) return %%r, %%y }",
        T, T, T, name, T);
    for (size_t k = 0; k < sizeof planes / sizeof *planes; k++)
        check(text, (domain){-1, 1, SPECIAL_NONE, false}, (int64_t[4]){planes[k][0], planes[k][1] ? planes[k][1] : 1},
              one_thread, false, ALL_LEVELS);
}

/* Masks, grouped heads, bounds of keys, and what stands before and behind; rows without a key among them. D is
 * causal_offset. */
static void attention_op(ir_dtype t) {
    static const struct {
        const char *params, *arguments, *result;
    } cases[] = {
        {"%q: T[A, B], %k: T[C, B], %v: T[C, 5]", "", "T[A, 5]"},
        {"%q: T[2, A, B], %k: T[2, C, B], %v: T[2, C, B]", ", causal=true", "T[2, A, B]"},
        {"%q: T[A, 6, C, 8], %k: T[A, 2, B, 8], %v: T[A, 2, B, 7]", ", causal=true, causal_offset=-1, scale=0.3",
         "T[A, 6, C, 7]"},
        {"%q: T[4, A, 16], %k: T[B, 16], %v: T[B, 16]", ", window=[3, 1], causal_offset=2", "T[4, A, 16]"},
        {"%q: T[A, 8], %k: T[3, B, 8], %v: T[3, B, 9], %m: bool[A, B]", ", %m, causal=true, window=[9, -1]",
         "T[3, A, 9]"},
        {"%q: T[4, A, B], %k: T[2, C, B], %v: T[1, C, 3], %m: T[4, 1, C]", ", %m, softcap=5", "T[4, A, 3]"},
        {"%q: T[2, A, 4], %k: T[2, B, 4], %v: T[2, B, 4], %m: bool[B]", ", %m", "T[2, A, 4]"},
        {"%q: T[A, B], %k: T[C, B], %v: T[C, 5], %o: i32", ", causal=true, causal_offset=%o", "T[A, 5]"},
        {"%q: T[A, B], %k: T[C, B], %v: T[C, 5], %o: u64", ", causal=true, causal_offset=%o", "T[A, 5]"},
        {"%q: T[A, 2*B, 3, 4], %k: T[A, B, C, 4], %v: T[B, C, 2]", ", causal=true, causal_offset=1", "T[A, 2*B, 3, 2]"},
    };
    static const int64_t sizes[][4] = {{1, 1, 1},
                                       {3, 7, 5},
                                       {2, 17, 33},
                                       {5, 2, 70},
                                       {2, 0, 3},
                                       {3, 4, 0},
                                       {0, 3, 2},
                                       /* panels of queries, blocks of keys */ {70, 19, 140},
                                       {19, 290, 37}};
    char text[500], typed[500];
    for (size_t s = 0; s < sizeof cases / sizeof *cases; s++) {
        snprintf(text, sizeof text,
                 "func @f(%s) -> %s { %%a = neg(%%q) %%y = attention(%%a, %%k, %%v%s) %%r = square(%%y) return %%r }",
                 cases[s].params, cases[s].result, cases[s].arguments);
        with_type(typed, sizeof typed, text, ir_dtypes[t].name);
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            check(typed, (domain){-3, 3, SPECIAL_NONE, false}, sizes[k], k == 2 ? two_threads : one_thread, k == 3,
                  k == 2 ? ALL_LEVELS : 1u << (mix(k + s) % 3) | 1);
    }
    if (t == FUSOR_F32)
        check("func @f(%q: f16[4, A, B], %k: f16[2, C, B], %v: f16[2, C, B]) -> f32[4, A, B] { %y = attention(%q, %k, "
              "%v, "
              "causal=true, dtype=f32) return %y }",
              (domain){-3, 3, SPECIAL_NONE, false}, (int64_t[4]){130, 32, 600}, many_threads, false, ALL_LEVELS);
    /* Queries and keys that are read where they lie, scores scaled late (panels) or at once, keys that cannot be seen. */
    static const char *const scales[] = {"", ", scale=-0.3", ", scale=0", ", scale=-1e-25",
                                         ", scale=1e25, causal=true"};
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        snprintf(
            text, sizeof text,
            "func @f(%%q: T[2, A, B], %%k: T[2, C, B], %%v: T[2, C, B], %%m: bool[C]) -> (T[2, A, B], T[2, A, B]) { "
            "%%x = attention(%%q, %%k, %%v%s) %%y = attention(%%q, %%k, %%v, %%m%s) return %%x, %%y }",
            scales[s], scales[s]);
        with_type(typed, sizeof typed, text, ir_dtypes[t].name);
        for (int special = 0; special < (KEEPS_HIDDEN || !strstr(scales[s], "causal") ? 2 : 1); special++)
            check(typed, (domain){-3, 3, special ? SPECIAL_SOME : SPECIAL_NONE, false},
                  (int64_t[4]){special ? 20 : 70, 32, 150}, one_thread, false, ALL_LEVELS);
    }
    if (t == FUSOR_BF16) /* products that the instruction would take for 0 */
        for (int is_raw = 0; is_raw < 2; is_raw++)
            check(is_raw ? "func @f(%q: bf16[A, B], %k: bf16[C, B], %v: bf16[C, 5]) -> bf16[A, 5] { %y = "
                           "attention(%q, %k, %v, scale=1e38) return %y }"
                         : "func @f(%q: bf16[A, B], %k: bf16[C, B], %v: bf16[C, 5]) -> bf16[A, 5] { %y = "
                           "attention(%q, %k, %v, scale=1e38, softcap=5) return %y }",
                  (domain){-3e-20, 3e-20, SPECIAL_NONE, false}, (int64_t[4]){70, 33 + is_raw, 140}, one_thread, false,
                  ALL_LEVELS);
    if (t == FUSOR_F16) return;
    /* Keys in parts, which a second phase merges; keys and values in other layouts, heads that are no whole
     * registers. */
    for (int64_t queries = 1; queries <= 4; queries += 3) {
        with_type(
            typed, sizeof typed,
            "func @f(%q: T[2, A, B], %k: T[2, C, B], %v: T[2, C, 24], %m: bool[A, C]) -> (T[2, A, 24], T[2, A, 24]) { "
            "%x = attention(%q, %k, %v, causal=true, causal_offset=4000, window=[2500, -1]) %y = attention(%q, %k, %v, "
            "%m) return %x, %y }",
            ir_dtypes[t].name);
        check(typed, (domain){-3, 3, SPECIAL_NONE, false}, (int64_t[4]){queries, 16 + queries, 4100}, many_threads,
              queries == 4, ALL_LEVELS);
    }
    with_type(typed, sizeof typed,
              "func @f(%q: T[A, 3, B], %k: T[3, B, C], %v: T[3, 10, C], %n: T[C]) -> T[A, 3, 10] { %a = transpose(%q, "
              "perm=[1, 0, 2]) "
              "%b = transpose(%k, perm=[0, 2, 1]) %c = transpose(%v, perm=[0, 2, 1]) %y = attention(%a, %b, %c, %n) "
              "%r = transpose(%y, perm=[1, 0, 2]) return %r }",
              ir_dtypes[t].name);
    for (int64_t queries = 3; queries <= 40; queries += 37)
        check(typed, (domain){-3, 3, SPECIAL_NONE, false}, (int64_t[4]){queries, 20, 150}, two_threads, queries == 3,
              ALL_LEVELS);
}

/* Alone, and between what fuses with it. */
static void windows(ir_op op, ir_dtype t) {
    static const struct {
        const char *shape, *attrs, *result;
    } cases[] = {
        {"[A, B, C, D]", "kernel=[2, 2], strides=[2, 2]", "[A, B, ?, ?]"},
        {"[A, B, C, D]", "kernel=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]", "[A, B, ?, ?]"},
        {"[A, B, C, D]", "kernel=[3, 2], dilations=[2, 3], pads=[2, 1, 0, 3]", "[A, B, ?, ?]"},
        {"[A, B, C, D]", "kernel=[3, 3], strides=[2, 3], pads=[0, 1, 1, 0], ceil=true", "[A, B, ?, ?]"},
        {"[A, B, D]", "kernel=[4], strides=[3], pads=[1, 2], ceil=true", "[A, B, ?]"},
        {"[A, B, 7, C, D]", "kernel=[2, 1, 3], strides=[1, 2, 2], pads=[1, 0, 0, 0, 0, 2]", "[A, B, ?, ?, ?]"},
        {"[A, B, C, D]", "kernel=[9, 9], pads=[4, 4, 4, 4]", "[A, B, ?, ?]"},
        /* more places than one kernel takes: by axes, and by parts of an axis */
        {"[A, B, C, D]", "kernel=[3, 37], strides=[2, 6], pads=[1, 30, 0, 18], ceil=true", "[A, B, ?, ?]"},
        {"[A, B, D]", "kernel=[47], strides=[2], dilations=[3], pads=[100, 60]", "[A, B, ?]"},
        {"[A, B, D]", "kernel=[24], strides=[24], pads=[0, 23]", "[A, B, ?]"},
        {"[A, B, C, 3, D]", "kernel=[3, 3, 3], strides=[1, 1, 2], pads=[1, 1, 1, 1, 1, 1]", "[A, B, ?, ?, ?]"},
        /* rows that several windows share: columns of any number and of a known one, below and above a vector's lanes */
        {"[A, B, C, D]", "kernel=[3, 3], pads=[1, 1, 1, 1]", "[A, B, ?, ?]"},
        {"[A, B, C, 28]", "kernel=[4, 3], pads=[2, 1, 1, 1]", "[A, B, ?, ?]"},
        {"[A, B, C, 13]", "kernel=[3, 3], strides=[1, 2], pads=[0, 1, 1, 0]", "[A, B, ?, ?]"},
    };
    static const int64_t sizes[][4] = {{1, 1, 5, 5},   {2, 3, 8, 24}, {1, 2, 9, 33},
                                       {3, 1, 16, 70}, {1, 1, 75, 9}, {0, 2, 6, 6}};
    const bool is_global = op == IR_OP_GLOBAL_AVERAGE_POOL, is_max = op == IR_OP_MAX_POOL;
    const char *T = ir_dtypes[t].name;
    char text[500];
    for (size_t s = 0; s < (is_global ? 2 : sizeof cases / sizeof *cases); s++)
        for (int variant = 0; variant < (op == IR_OP_AVERAGE_POOL ? 2 : 1); variant++) {
            if (t != FUSOR_F32 && !is_global && (s + (size_t)variant + t) % 2)
                continue; /* other types: half of the cases each */
            const char *shape = s == 1 && is_global ? "[A, B, D]" : cases[s].shape;
            const char *result = !is_global ? cases[s].result : s ? "[A, B, 1]" : "[A, B, 1, 1]";
            snprintf(text, sizeof text,
                     "func @f(%%x: %s%s, %%b: %s[B]) -> (%s%s, %s%s) { %%p = %s(%%x%s%s%s) %%h = relu(%%x) %%q = "
                     "%s(%%h%s%s%s) "
                     "%%c = unsqueeze(%%b, axes=[%s]) %%r = add(%%q, %%c) return %%p, %%r }",
                     T, shape, T, T, result, T, result, ir_ops[op].name, is_global ? "" : ", ",
                     is_global ? "" : cases[s].attrs, variant ? ", count_include_pad=true" : "", ir_ops[op].name,
                     is_global ? "" : ", ", is_global ? "" : cases[s].attrs, variant ? ", count_include_pad=true" : "",
                     strlen(result) < 10   ? "1"
                     : strlen(result) < 13 ? "1, 2"
                                           : "1, 2, 3");
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
                check(text, (domain){-4, 4, is_max && k % 2 ? SPECIAL_SOME : SPECIAL_NONE, false}, sizes[k],
                      k == 1 ? two_threads : one_thread, k == 2, t == FUSOR_F32 ? ALL_LEVELS : 1u << (mix(s + t) % 3));
        }
}

/* What becomes of subscripts: products with one or several dims of each kind, in every order in memory; diagonals,
 * sums, sizes of 1; three operands and more; behind an operator and before one. */
static void subscripts(ir_dtype t) {
    static const struct {
        const char *text, *x, *y, *z, *result;
    } cases[] = {
        {"ij,jk->ik", "[A, B]", "[B, C]", NULL, "[A, C]"},
        {"ij,kj->ki", "[A, B]", "[C, B]", NULL, "[C, A]"},
        {"bij,bjk->bik", "[3, A, B]", "[3, B, C]", NULL, "[3, A, C]"},
        {"ijkl,klmn->ijmn", "[A, 2, B, 3]", "[B, 3, C, 2]", NULL, "[A, 2, C, 2]"},
        {"ikjl,lmkn->imnj", "[A, B, 2, 3]", "[3, C, B, 2]", NULL, "[A, C, 2, 2]"},
        {"bqhd,bkhd->bhqk", "[2, A, 3, B]", "[2, C, 3, B]", NULL, "[2, 3, A, C]"},
        {"gabk,gkcd->gcadb", "[2, A, 3, B]", "[2, B, C, 2]", NULL, "[2, C, A, 2, 3]"},
        {"aebf,dfce->abcd", "[A, B, 3, 4]", "[5, 4, C, B]", NULL, "[A, 3, C, 5]"},
        {"abxyz,zyxc->cab", "[A, 9, 2, B, 3]", "[3, B, 2, C]", NULL, "[C, A, 9]"},
        {"abcd,db->ca", "[A, 3, C, B]", "[B, 3]", NULL, "[C, A]"},
        {"db,abcd->ac", "[3, B]", "[A, B, C, 3]", NULL, "[A, C]"},
        {"...ij,...jk", "[2, 1, A, B]", "[4, B, C]", NULL, "[2, 4, A, C]"},
        {"i,j", "[A]", "[C]", NULL, "[A, C]"},
        {"ij,ij->i", "[A, B]", "[A, B]", NULL, "[A]"},
        {"ij,jk->", "[A, B]", "[B, C]", NULL, ""},
        {"ij,jk,kl->il", "[A, B]", "[B, C]", "[C, A]", "[A, A]"},
        {"i,ij,j->", "[A]", "[A, B]", "[B]", ""},
        {"aij,bij,cij->abc", "[A, B, 2]", "[C, B, 2]", "[3, B, 2]", "[A, C, 3]"},
        {"iij,jk->ki", "[A, A, B]", "[B, C]", NULL, "[C, A]"},
        {"iji,jk->ik", "[5, B, 5]", "[B, C]", NULL, "[5, C]"},
        {"iij->ji", "[7, 7, B]", NULL, NULL, "[B, 7]"},
        {"bij,bj->bi", "[A, 4, 3]", "[A, 3]", NULL, "[A, 4]"}, /* small matrices, each by a vector of its own */
        {"bij,bi->jb", "[A, 4, 12]", "[A, 4]", NULL, "[12, A]"},
        {"abk,abjhk->jabh", "[A, 2, 4]", "[A, 2, 2, 3, 4]", NULL, "[2, A, 2, 3]"},
        {"bjk,bikj->bi", "[C, 2, 2]", "[C, 3, 2, 2]", NULL, "[C, 3]"},
        {"nij,kj->ink", "[B, A, 3]", "[2, 3]", NULL, "[A, B, 2]"}, /* many rows by a matrix of a few elements */
        {"bij,bjk->kbi", "[C, 4, 2]", "[C, 2, A]", NULL, "[A, C, 4]"},
        {"ii", "[A, A]", NULL, NULL, ""},
        {"kij->ji", "[C, A, B]", NULL, NULL, "[B, A]"},
    };
    static const int64_t sizes[][3] = {{1, 1, 1}, {3, 7, 5}, {17, 40, 33}, {2, 0, 3}, {0, 2, 4}, {21, 600, 18}};
    const char *T = ir_dtypes[t].name, *to = ir_is_float(t) ? T : ir_dtypes[t].bytes == 1 ? "i32" : "i64";
    char text[600], operands[3][40] = {""};
    for (size_t s = 0; s < sizeof cases / sizeof *cases; s++) {
        snprintf(operands[1], sizeof operands[1], cases[s].y ? ", %%y: %s%s" : "", T, cases[s].y);
        snprintf(operands[2], sizeof operands[2], cases[s].z ? ", %%z: %s%s" : "", T, cases[s].z);
        snprintf(text, sizeof text,
                 "func @f(%%x: %s%s%s%s) -> (%s%s, %s%s) { %%h = relu(%%x) %%r = einsum(\"%s\", %%h%s%s) %%q = "
                 "abs(%%r) return %%r, %%q }",
                 T, cases[s].x, operands[1], operands[2], to, cases[s].result, to, cases[s].result, cases[s].text,
                 cases[s].y ? ", %y" : "", cases[s].z ? ", %z" : "");
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            if (t != FUSOR_F32 && (s + k + t) % 3) continue; /* other types: a third of the cases each */
            check(text, (domain){-1, 1, SPECIAL_NONE, !ir_is_float(t)},
                  (int64_t[4]){sizes[k][0], sizes[k][1], sizes[k][2]}, k == 2 ? two_threads : one_thread, k == 1,
                  k == 1 || k == 2 ? ALL_LEVELS : 1u << (mix(k + s) % 3));
        }
    }
    if (t == FUSOR_F32) /* rows that are cut from several dims, with a row program */
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            check(
                "func @f(%x: f32[2, B, A], %y: f32[B, C]) -> f32[A, 2, C] { %r = einsum(\"bds,df->sbf\", %x, %y) %q = "
                "softmax(%r, axis=-1) return %q }",
                (domain){-1, 1, SPECIAL_NONE, false}, (int64_t[4]){sizes[k][0], sizes[k][1], sizes[k][2]},
                k == 2 ? two_threads : one_thread, false, ALL_LEVELS);
    /* Sums over nothing beside infinities: what is summed before the others is 0, the whole is no NaN. */
    static const struct {
        const char *text, *x, *y, *z, *result;
    } empty[] = {{"ij,k->k", "[0, A]", "[B]", NULL, "[B]"}, {"ij,jk,kl->il", "[A, 0]", "[0, B]", "[B, C]", "[A, C]"}};
    for (size_t s = 0; s < sizeof empty / sizeof *empty && ir_is_float(t); s++) {
        snprintf(operands[2], sizeof operands[2], empty[s].z ? ", %%z: %s%s" : "", T, empty[s].z);
        snprintf(text, sizeof text,
                 "func @f(%%x: %s%s, %%y: %s%s%s) -> %s%s { %%r = einsum(\"%s\", %%x, %%y%s) return %%r }", T,
                 empty[s].x, T, empty[s].y, operands[2], T, empty[s].result, empty[s].text, empty[s].z ? ", %z" : "");
        check(text, (domain){-1, 1, SPECIAL_SOME, true}, (int64_t[4]){3, 65, 31}, one_thread, false, ALL_LEVELS);
    }
    if (t == FUSOR_U8)
        check("func @f(%x: u8[A, B], %y: i8[B, C]) -> i32[A, C] { %r = einsum(\"ij,jk\", %x, %y) return %r }",
              (domain){-120, 120, SPECIAL_NONE, true}, (int64_t[4]){5, 70, 19}, one_thread, false, ALL_LEVELS);
    if (t == FUSOR_F16)
        check("func @f(%x: f16[A, B], %y: f16[B, C], %z: f16[C]) -> f32[A] { %r = einsum(\"ij,jk,k->i\", %x, %y, %z, "
              "dtype=f32) return %r }",
              (domain){-1, 1, SPECIAL_NONE, false}, (int64_t[4]){5, 70, 19}, one_thread, false, ALL_LEVELS);
}

/* A convolution of x, w and a bias, and what is behind it. */
typedef struct conv_case {
    const char *x, *w, *bias, *result, *attrs, *behind;
} conv_case;

/* Of case s at so many sizes, on one thread and two; at the later ones for one level each. */
static void check_sizes(const char *text, domain dom, const int64_t (*sizes)[4], size_t n, size_t s) {
    for (size_t k = 0; k < n; k++)
        check(text, dom, sizes[k], k % 2 ? two_threads : one_thread, k == 0,
              k < 2 ? ALL_LEVELS : 1u << (mix(k + s) % 3));
}

/* Vectors of channels: sizes are known, lines short. The last vector not full, one behind the last tile; strides; several
 * K blocks, also with a last tile of columns that begins in the one before; groups; an operand that is read as it lies;
 * images of fewer columns than a tile; other axes. */
static void by_channel(ir_dtype t) {
    static const conv_case cases[] = {
        {"[A, 20, 7, 7]", "[40, 20, 3, 3]", "[40]", "[A, 40, 7, 7]", "pads=[1, 1, 1, 1]", "%y = relu(%r)"},
        /* one window of the whole image: a product of matrices */
        {"[A, 20, 3, 5]", "[9, 20, 3, 5]", "[9]", "[A, 9, 1, 1]", "strides=[2, 1]", "%y = relu(%r)"},
        {"[A, 20, 1, 1]", "[33, 20, 1, 1]", "[33]", "[A, 33, 1, 1]", "dilations=[2, 3]", "%y = abs(%r)"},
        {"[A, 20, 15, 13]", "[33, 20, 3, 3]", "[33]", "[A, 33, 7, 7]", "strides=[2, 2], pads=[1, 0, 0, 2]",
         "%y = abs(%r)"},
        {"[A, 64, 5, 5]", "[34, 64, 3, 3]", "[34]", "[A, 34, 5, 5]", "pads=[1, 1, 1, 1]", "%y = gelu(%r)"},
        {"[A, 72, 4, 17]", "[48, 72, 3, 3]", "[48]", "[A, 48, 4, 17]", "pads=[1, 1, 1, 1]", "%y = relu(%r)"},
        {"[A, 64, 9, 7]", "[96, 32, 3, 3]", "[96]", "[A, 96, 7, 5]", "groups=2", "%y = neg(%r)"},
        {"[A, 70, 6, 7]", "[65, 70, 1, 1]", "[65]", "[A, 65, 6, 7]", "groups=1", "%y = relu(%r)"},
        {"[A, 24, 20, 20]", "[48, 24, 2, 2]", "[48]", "[A, 48, 6, 6]", "strides=[3, 3], dilations=[2, 2]",
         "%y = abs(%r)"},
        {"[A, 3, 32, 33]", "[24, 3, 8, 8]", "[24]", "[A, 24, 4, 4]", "strides=[8, 8]", "%y = neg(%r)"},
        {"[A, 6, 5, 6, 7]", "[32, 6, 3, 3, 3]", "[32]", "[A, 32, 3, 6, 4]",
         "strides=[2, 1, 2], pads=[1, 1, 1, 1, 1, 1]", "%y = relu(%r)"},
        {"[A, 48, 19]", "[20, 48, 5]", "[20]", "[A, 20, 10]", "strides=[2], pads=[1, 4]", "%y = relu(%r)"},
        {"[A, 32, 2, 2]", "[64, 32, 3, 3]", "[64]", "[A, 64, 2, 2]", "pads=[1, 1, 1, 1]", "%y = exp(%r)"},
        /* Tiles of whole rows: rows behind the last of them, vectors behind the last whole tile of channels, several K
         * blocks; the operand in place and with a stride; what is behind them is no run, and varies by row. */
        {"[A, 64, 7, 7]", "[80, 64, 3, 3]", "[80]", "[A, 80, 7, 7]", "pads=[1, 1, 1, 1]", "%y = add(%r, %r)"},
        {"[A, 520, 7, 7]", "[49, 520, 1, 1]", "[49]", "[A, 49, 7, 7]", "groups=1", "%y = relu(%r)"},
        {"[A, 96, 14, 13]", "[64, 96, 1, 1]", "[64]", "[A, 64, 7, 7]", "strides=[2, 2]", "%y = abs(%r)"},
        {"[A, 48, 9, 9]", "[48, 48, 3, 3]", "[48]", "[A, 48, 7, 7]", "groups=1",
         "%p = slice(%x, starts=[0, 0, 1, 1], ends=[A, 48, 8, 8]) %y = add(%r, %p)"},
        {"[A, 48, 4, 4]", "[64, 48, 3, 3]", "[64]", "[A, 64, 4, 4]", "pads=[1, 1, 1, 1]",
         "%i = iota(shape=[4, 1], axis=0, dtype=i64) %e = eq(%i, 2) %n = neg(%r) %y = select(%e, %n, %r)"},
        /* Pads that are left out: parts of a row, a kernel wider than its tile, rows that meet none of it, steps, three
         * axes, places that are too many. */
        {"[A, 32, 28, 28]", "[48, 32, 5, 5]", "[48]", "[A, 48, 28, 28]", "pads=[2, 2, 2, 2]", "%y = relu(%r)"},
        {"[A, 16, 9, 31]", "[33, 16, 3, 3]", "[33]", "[A, 33, 5, 16]", "strides=[2, 2], pads=[1, 1, 1, 1]",
         "%y = neg(%r)"},
        {"[A, 32, 3, 14]", "[32, 32, 2, 3]", "[32]", "[A, 32, 13, 14]", "pads=[6, 3, 6, 1], dilations=[2, 2]",
         "%y = abs(%r)"},
        {"[A, 16, 5, 5, 7]", "[32, 16, 3, 3, 3]", "[32]", "[A, 32, 5, 5, 7]", "pads=[1, 1, 1, 1, 1, 1]",
         "%y = relu(%r)"},
        {"[A, 16, 7, 7]", "[32, 16, 3, 9]", "[32]", "[A, 32, 7, 7]", "pads=[1, 4, 1, 4]", "%y = relu(%r)"},
        {"[A, 32, 56]", "[48, 32, 7]", "[48]", "[A, 48, 56]", "pads=[3, 3]", "%y = relu(%r)"},
        /* Pads before a row so wide that columns of its last tile, which has one less, meet those on both sides. */
        {"[A, 32, 17]", "[16, 32, 2]", "[16]", "[A, 16, 13]", "strides=[2], pads=[7, 2]", "%y = relu(%r)"},
        {"[A, 16, 30, 15]", "[32, 16, 2, 2]", "[32]", "[A, 32, 15, 15]", "strides=[2, 2], pads=[0, 13, 0, 2]",
         "%y = abs(%r)"},
    };
    static const int64_t sizes[][4] = {{1}, {3}};
    char text[500];
    for (size_t s = 0; s < sizeof cases / sizeof *cases; s++) {
        const char *n = ir_dtypes[t].name;
        snprintf(text, sizeof text,
                 "func @f(%%x: %s%s, const %%w: %s%s, %%b: %s%s) -> %s%s { %%r = conv(%%x, %%w, %%b, %s) %s "
                 "return %%y }",
                 n, cases[s].x, n, cases[s].w, n, cases[s].bias, n, cases[s].result, cases[s].attrs, cases[s].behind);
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            check(text, (domain){-2, 2, SPECIAL_NONE, false}, sizes[k], s % 2 == k ? two_threads : one_thread, k == 0,
                  k ? 1u << (mix(s) % 3) : ALL_LEVELS);
    }
}

/* Transposed with strides: phases of as many places and of more and fewer, of none; cut and beyond the operand's ends;
 * whose steps are dilations; along one axis, two and three; by columns in lines, panels and their rests, and by channel;
 * sizes that the text has and that it has not, which is the same in bits. */
static void transposed(ir_dtype t) {
    static const conv_case cases[] = {
        {"[A, 5, C, D]", "[5, 6, 2, 2]", "[6]", "[?, ?, ?, ?]", "strides=[2, 2]", "relu(%s)"},
        {"[A, 5, 1, 1]", "[5, 6, 3, 2]", "[6]", "[A, 6, 3, 2]", "strides=[2, 3]", "relu(%s)"}, /* of one place */
        {"[A, 4, C, D]", "[4, 9, 4, 4]", "[9]", "[?, ?, ?, ?]", "strides=[2, 2], pads=[1, 1, 1, 1]", "abs(%s)"},
        {"[A, 3, C, D]", "[3, 12, 3, 3]", "[12]", "[?, ?, ?, ?]",
         "strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]", "gelu(%s)"},
        {"[A, 6, C, D]", "[6, 5, 5, 1]", "[10]", "[?, ?, ?, ?]", "groups=2, strides=[3, 4], output_padding=[2, 1]",
         "neg(%s)"},
        {"[A, 2, C, D]", "[2, 4, 3, 4]", "[4]", "[?, ?, ?, ?]", "strides=[2, 3], dilations=[3, 2], pads=[4, 0, 1, 7]",
         "relu(%s)"},
        {"[A, 2, C, D]", "[2, 4, 3, 3]", "[4]", "[?, ?, ?, ?]", "strides=[2, 4], dilations=[2, 2], pads=[2, 1, 3, 1]",
         "abs(%s)"},
        {"[A, 9, D]", "[9, 4, 8]", "[4]", "[?, ?, ?]", "strides=[4], pads=[2, 1]", "relu(%s)"},
        {"[A, 2, 3, C, D]", "[2, 4, 3, 2, 3]", "[4]", "[?, ?, ?, ?, ?]", "strides=[2, 1, 2], pads=[1, 0, 1, 0, 1, 0]",
         "neg(%s)"},
        {"[A, 20, 14, 14]", "[20, 48, 2, 2]", "[48]", "[A, 48, 28, 28]", "strides=[2, 2]", "relu(%s)"},
        {"[A, 24, 7, 7]", "[24, 33, 4, 4]", "[33]", "[A, 33, 14, 14]", "strides=[2, 2], pads=[1, 1, 1, 1]", "abs(%s)"},
        {"[A, 16, 9, 28]", "[16, 40, 3, 3]", "[40]", "[A, 40, 18, 56]",
         "strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]", "mul(%s, %s)"},
        {"[A, 80, 5, 5]", "[80, 16, 5, 5]", "[32]", "[A, 32, 17, 17]", "groups=2, strides=[4, 4], pads=[2, 2, 2, 2]",
         "relu(%s)"},
        {"[A, 40, 12]", "[40, 32, 9]", "[32]", "[A, 32, 64]", "strides=[5], output_padding=[0]", "neg(%s)"},
        {"[A, 8, 3, 4, 7]", "[8, 32, 2, 3, 3]", "[32]", "[A, 32, 6, 9, 15]", "strides=[2, 2, 2]", "relu(%s)"},
    };
    static const int64_t sizes[][4] = {{1, 1, 4, 9}, {3, 1, 1, 37}, {1, 1, 29, 16}, {0, 1, 3, 3}};
    char text[500];
    for (size_t s = 0; s < sizeof cases / sizeof *cases; s++) {
        const char *n = ir_dtypes[t].name;
        const bool has_sizes = !strchr(cases[s].result, '?');
        snprintf(
            text, sizeof text,
            "func @f(%%x: %s%s, %s%%w: %s%s, %%b: %s%s) -> %s%s { %%s = conv_transpose(%%x, %%w, %%b, %s) %%y = %s "
            "return %%y }",
            n, cases[s].x, s % 2 ? "const " : "", n, cases[s].w, n, cases[s].bias, n, cases[s].result, cases[s].attrs,
            cases[s].behind);
        check_sizes(text, (domain){-2, 2, SPECIAL_NONE, false}, sizes, has_sizes ? 2 : 4, s);
    }
}

/* Convolutions of one channel a group, which read the operand without its pads: one to three axes, steps that divide a
 * row into parts, pads of one side and wider than the kernel, rows and columns of several tiles, places of one. */
static void depthwise(ir_dtype t) {
    static const conv_case cases[] = {
        {"[A, 3, C, D]", "[3, 1, 3, 3]", "[3]", "[?, ?, ?, ?]", "groups=3, pads=[1, 1, 1, 1]", "relu(%r)"},
        {"[A, 5, 4, 7]", "[5, 1, 4, 7]", "[5]", "[A, 5, 1, 1]", "groups=5, strides=[2, 1]",
         "relu(%r)"}, /* one window */
        {"[A, 5, C, D]", "[5, 1, 3, 3]", "[5]", "[?, ?, ?, ?]", "groups=5, pads=[1, 0, 2, 5], strides=[2, 2]",
         "mul(%r, %r)"},
        {"[A, 2, C, D]", "[6, 1, 5, 4]", "[6]", "[?, ?, ?, ?]",
         "groups=2, pads=[4, 9, 4, 3], strides=[1, 3], dilations=[2, 2]", "gelu(%r)"},
        {"[A, 1, C, D]", "[2, 1, 7, 7]", "[2]", "[?, ?, ?, ?]", "pads=[3, 3, 3, 3], strides=[3, 1]", "abs(%r)"},
        {"[A, 2, D]", "[4, 1, 9]", "[4]", "[?, ?, ?]", "groups=2, pads=[8, 0]", "neg(%r)"},
        {"[A, 2, D]", "[2, 1, 4]", "[2]", "[?, ?, ?]", "groups=2, pads=[0, 20], strides=[5], dilations=[3]", "exp(%r)"},
        {"[A, 2, 4, C, D]", "[2, 1, 3, 2, 3]", "[2]", "[?, ?, ?, ?, ?]",
         "groups=2, pads=[2, 0, 1, 1, 1, 1], strides=[2, 1, 2]", "relu(%r)"},
        {"[A, 2, 3, C, D]", "[2, 1, 3, 1, 1]", "[2]", "[?, ?, ?, ?, ?]", "groups=2, pads=[1, 0, 0, 1, 0, 2]",
         "neg(%r)"},
        /* Known sizes: rows of a vector or less, of half of one, in place; and of more. */
        {"[A, 3, 7, 7]", "[3, 1, 3, 3]", "[3]", "[A, 3, 7, 7]", "groups=3, pads=[1, 1, 1, 1]", "relu(%r)"},
        {"[A, 3, 14, 14]", "[3, 1, 5, 5]", "[3]", "[A, 3, 7, 7]", "groups=3, pads=[2, 2, 1, 1], strides=[2, 2]",
         "abs(%r)"},
        {"[A, 3, 7, 7]", "[3, 1, 5, 5]", "[3]", "[A, 3, 7, 7]", "groups=3, pads=[2, 2, 2, 2]", "relu(%r)"},
        {"[A, 2, 19, 8]", "[4, 1, 4, 5]", "[4]", "[A, 4, 19, 8]", "groups=2, pads=[2, 3, 1, 1]", "neg(%r)"},
        {"[A, 2, 5, 16]", "[2, 1, 3, 3]", "[2]", "[A, 2, 4, 8]",
         "groups=2, pads=[4, 6, 0, 0], strides=[2, 2], dilations=[1, 3]", "relu(%r)"},
        {"[A, 2, 9, 3]", "[6, 1, 2, 4]", "[6]", "[A, 6, 4, 16]",
         "groups=2, pads=[3, 7, 1, 9], strides=[3, 1], dilations=[2, 1]", "gelu(%r)"},
        {"[A, 2, 1, 31]", "[2, 1, 3, 5]", "[2]", "[A, 2, 12, 14]",
         "groups=2, pads=[5, 3, 8, 2], strides=[1, 2], dilations=[1, 2]", "neg(%r)"},
        {"[A, 3, 9]", "[6, 1, 4]", "[6]", "[A, 6, 8]", "groups=3, pads=[0, 2]", "mul(%r, %r)"},
        {"[A, 2, 6, 31]", "[2, 1, 3, 33]", "[2]", "[A, 2, 6, 15]", "groups=2, pads=[1, 16, 1, 14], strides=[1, 2]",
         "relu(%r)"},
        {"[A, 2, 3, 6, 8]", "[2, 1, 3, 3, 3]", "[2]", "[A, 2, 3, 6, 8]", "groups=2, pads=[1, 1, 1, 1, 1, 1]",
         "relu(%r)"},
    };
    static const int64_t sizes[][4] = {{1, 1, 7, 9}, {2, 1, 16, 64}, {0, 1, 6, 12}, {1, 1, 61, 35}, {1, 1, 5, 2090}};
    char text[500];
    for (size_t s = 0; s < sizeof cases / sizeof *cases; s++) {
        const char *n = ir_dtypes[t].name, *r = ir_is_float(t) ? n : ir_dtypes[t].bytes == 1 ? "i32" : "i64";
        const bool is_of_floats = strstr(cases[s].behind, "gelu") || strstr(cases[s].behind, "exp");
        snprintf(
            text, sizeof text,
            "func @f(%%x: %s%s, %%w: %s%s, %%b: %s%s) -> %s%s { %%r = conv(%%x, %%w, %%b, %s) %%y = %s return %%y }", n,
            cases[s].x, t == FUSOR_U8 ? "i8" : n, cases[s].w, r, cases[s].bias, r, cases[s].result, cases[s].attrs,
            is_of_floats && r != n ? "neg(%r)" : cases[s].behind);
        check_sizes(text, (domain){ir_is_float(t) ? -2 : -200, ir_is_float(t) ? 2 : 250, SPECIAL_NONE, !ir_is_float(t)},
                    sizes, sizeof sizes / sizeof *sizes, s);
    }
}

/* Strides, pads, dilations, groups, depthwise, a bias, one to three spatial axes; behind what is fused in front. Of
 * integers the result, and the bias, are those of sums. */
static void convolution(ir_op op, ir_dtype t) {
    static const struct {
        const char *x, *plain, *transposed, *bias, *attrs;
    } cases[] = {
        {"[A, 4, C, D]", "[5, 4, 1, 1]", "[4, 5, 1, 1]", "[5]", ""},
        {"[A, B, C, D]", "[3, B, 3, 3]", "[B, 3, 3, 3]", NULL, ", pads=[1, 1, 1, 1]"},
        {"[A, 4, C, D]", "[6, 2, 3, 2]", "[4, 3, 3, 2]", "[6]", ", strides=[2, 3], pads=[0, 1, 2, 1], groups=2"},
        {"[A, 3, D]", "[6, 1, 3]", "[3, 2, 3]", NULL, ", groups=3, dilations=[2], pads=[3, 1]"},
        {"[A, 2, 4, C, D]", "[3, 2, 2, 1, 3]", "[2, 3, 2, 1, 3]", "[3]",
         ", strides=[1, 2, 1], pads=[1, 0, 0, 0, 0, 2]"},
        /* Sizes of the kernel that have names, and channels made. */
        {"[A, 4, C, D]", "[6, 2, B, 2]", "[4, 3, B, 2]", "[6]",
         ", strides=[2, 1], pads=[0, 1, 2, 1], groups=2, dilations=[1, 2]"},
        {"[A, 4, C, D]", "[5, 4, B, B]", "[4, 5, B, B]", NULL, ", strides=[2, 3], dilations=[2, 1], pads=[1, 1, 1, 2]"},
        {"[A, 3, D]", "[B, 3, B]", "[3, B, B]", "[B]", ", pads=[1, 2]"},
        {"[A, 3, D]", "[6, 1, B]", "[3, 2, B]", NULL, ", groups=3, strides=[2], pads=[1, 1]"},
        {"[A, 2, 4, C, D]", "[3, 2, 2, B, B]", "[2, 3, 2, B, B]", "[3]",
         ", strides=[1, 2, 1], pads=[1, 1, 0, 1, 1, 2], dilations=[2, 1, 1]"},
        {"[A, 70, C, 5]", "[D, 70, 3, 1]", "[70, D, 3, 1]", "[D]", ", strides=[2, 1], pads=[1, 0, 1, 0]"},
        {"[A, 0, C, 5]", "[6, 0, B, 1]", "[0, 6, B, 1]", "[6]", ""},
        {"[A, 2, C, 5]", "[0, 1, 3, 1]", "[2, 0, 3, 1]", "[0]", ", groups=2"},
    };
    static const int64_t sizes[][4] = {{1, 1, 5, 7}, {2, 3, 8, 24}, {0, 2, 6, 6}};
    const bool is_plain = op == IR_OP_CONV;
    const ir_dtype to = ir_is_float(t) ? t : ir_dtypes[t].bytes == 1 ? FUSOR_I32 : FUSOR_I64;
    char text[500], bias[40];
    for (size_t s = 0; s < sizeof cases / sizeof *cases; s++) {
        const bool is_strided = strstr(cases[s].attrs, "strides=[2, 3]") != NULL;
        int rank = 1;
        for (const char *c = cases[s].x; *c; c++) rank += *c == ',';
        snprintf(bias, sizeof bias, cases[s].bias ? ", %%b: %s%s" : "", ir_dtypes[to].name, cases[s].bias);
        snprintf(text, sizeof text,
                 "func @f(%%x: %s%s, %%w: %s%s%s) -> %s%s { %%h = relu(%%x) %%r = %s(%%h, %%w%s%s%s) return %%r }",
                 ir_dtypes[t].name, cases[s].x, ir_dtypes[t].name, is_plain ? cases[s].plain : cases[s].transposed,
                 bias, ir_dtypes[to].name,
                 rank == 3   ? "[?, ?, ?]"
                 : rank == 5 ? "[?, ?, ?, ?, ?]"
                             : "[?, ?, ?, ?]",
                 ir_ops[op].name, cases[s].bias ? ", %b" : "", cases[s].attrs,
                 is_strided && !is_plain ? ", output_padding=[1, 2]" : "");
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            check(text, (domain){-3, 3, SPECIAL_NONE, !ir_is_float(t)}, sizes[k], k == 1 ? two_threads : one_thread,
                  k == 0, k == 1 ? ALL_LEVELS : 1u << (mix(k + s) % 3) | 1);
    }
    /* Window kernels: lines and rows, panels that are whole, most and little of one, several K blocks and channel
     * tiles, steps of 2 and more, one channel a group, channels enough for packed panels, few products whose lines go
     * on from row to row or may not; a program behind the sums that is short, long, costly. */
    static const struct {
        const char *x, *w, *attrs, *behind;
    } windows_of[] = {
        {"[A, 1, C, D]", "[20, 1, 3, 3]", "", "%s = add(%r, %c) %y = relu(%s)"},
        {"[A, 1, C, D]", "[33, 1, 4, 4]", ", pads=[1, 1, 1, 2]", "%s = add(%r, %c) %y = abs(%s)"},
        {"[A, 1, 9, 37]", "[12, 1, 3, 3]", "",
         "%p = slice(%x, starts=[0, 0, 1, 1], ends=[A, 1, 8, 36]) %q = mul(%r, %p) %s = add(%q, %c) %y = relu(%s)"},
        {"[A, B, C, D]", "[16, B, 3, 3]", ", pads=[1, 1, 1, 1]", "%s = add(%r, %c) %y = relu(%s)"},
        {"[A, 64, C, D]", "[9, 64, 3, 3]", "", "%s = mul(%r, %c) %y = gelu(%s)"},
        {"[A, B, C, D]", "[13, B, 3, 3]", ", strides=[1, 2], pads=[1, 1, 1, 1]", "%s = add(%r, %c) %y = abs(%s)"},
        {"[A, B, C, 28]", "[16, B, 3, 3]", "", "%s = maximum(%r, %c) %y = neg(%s)"},
        {"[A, 6, C, D]", "[6, 1, 3, 3]", ", groups=6, pads=[1, 1, 1, 1]", "%s = add(%r, %c) %y = relu6(%s)"},
        {"[A, 6, C, D]", "[12, 1, 5, 2]", ", groups=6, strides=[2, 2]", "%s = sub(%r, %c) %y = neg(%s)"},
        {"[A, B, C, D]", "[66, B, 3, 3]", ", pads=[1, 1, 1, 1]", "%s = add(%r, %c) %y = relu(%s)"},
        {"[A, 8, C, D]", "[70, 8, 3, 3]", ", strides=[2, 2]", "%s = add(%r, %c) %y = abs(%s)"},
        {"[A, 8, C, D]", "[40, 4, 2, 2]", ", groups=2, strides=[3, 3], dilations=[2, 2]",
         "%s = add(%r, %c) %y = neg(%s)"},
        {"[A, B, C, D]", "[33, B, 1, 1]", ", strides=[1, 5]", "%s = mul(%r, %c) %y = relu(%s)"},
    };
    static const int64_t window_sizes[][4] = {{1, 1, 7, 9}, {2, 3, 9, 41}, {3, 5, 30, 58}, {1, 2, 5, 130}};
    for (size_t s = 0; s < sizeof windows_of / sizeof *windows_of && is_plain && (t == FUSOR_F32 || t == FUSOR_F64);
         s++) {
        snprintf(text, sizeof text,
                 "func @f(%%x: %s%s, %%w: %s%s, %%c: %s) -> %s[?, ?, ?, ?] { %%r = conv(%%x, %%w%s) %s return %%y }",
                 ir_dtypes[t].name, windows_of[s].x, ir_dtypes[t].name, windows_of[s].w, ir_dtypes[t].name,
                 ir_dtypes[t].name, windows_of[s].attrs, windows_of[s].behind);
        for (size_t k = s < 9 ? 0 : 1; k < sizeof window_sizes / sizeof *window_sizes; k += s < 9 ? 1 : 2)
            check(text, (domain){-2, 2, SPECIAL_NONE, false}, window_sizes[k], k % 2 ? two_threads : one_thread, k == 0,
                  ALL_LEVELS);
    }
    if (is_plain && (t == FUSOR_F32 || t == FUSOR_F64 || t == FUSOR_I32 || t == FUSOR_U8 || t == FUSOR_I8))
        depthwise(t);
    if (is_plain && ir_is_float(t)) by_channel(t);
    if (!is_plain) transposed(t);
    /* Kernels with axes: pads of one side, larger than the window, beside all strides; strides that leave places out;
     * places of their own parts; words of channels that are not full; several K blocks and channel tiles; the other
     * 8-bit type. */
    static const struct {
        const char *x, *w, *attrs;
    } padded[] = {
        {"[A, B, C, D]", "[7, B, 3, 3]", ", pads=[2, 0, 0, 7], strides=[1, 1]"},
        {"[A, 6, C, D]", "[12, 3, 3, 2]", ", pads=[1, 4, 5, 1], strides=[2, 3], groups=2"},
        {"[A, 5, C, D]", "[3, 5, 2, 3]", ", pads=[0, 9, 9, 2], strides=[3, 2], dilations=[1, 3]"},
        {"[A, B, C, D]", "[16, B, 1, 1]", ", pads=[1, 0, 0, 0], strides=[2, 4]"},
        {"[A, 71, C, D]", "[18, 71, 3, 3]", ", pads=[1, 1, 1, 1]"},
        {"[A, B, C, 3]", "[4, B, 2, 3]", ", pads=[0, 1, 1, 1], dilations=[4, 2]"},
    };
    for (size_t s = 0; s < sizeof padded / sizeof *padded && is_plain; s++) {
        const char *T = ir_dtypes[t].name, *R = ir_dtypes[to].name;
        for (int other = 0; other < 1 + (t == FUSOR_U8 || t == FUSOR_I8); other++) {
            const char *W = !other ? T : t == FUSOR_U8 ? "i8" : "u8";
            static const int64_t small[][4] = {{1, 1, 6, 7}, {2, 3, 9, 37}};
            snprintf(
                text, sizeof text,
                "func @f(%%x: %s%s, %%w: %s%s, %%c: %s) -> %s[?, ?, ?, ?] { %%r = conv(%%x, %%w%s) %%s = add(%%r, %%c) "
                "%%y = abs(%%s) return %%y }",
                T, padded[s].x, W, padded[s].w, R, R, padded[s].attrs);
            for (int k = 0; k < 2; k++)
                check(text,
                      (domain){ir_is_float(t) ? -2 : -200, ir_is_float(t) ? 2 : 250, SPECIAL_NONE, !ir_is_float(t)},
                      small[k], k ? two_threads : one_thread, k == 0, k ? ALL_LEVELS : 1u << (mix(s) % 3));
        }
    }
    /* Channels last, between transposes: a product over them where there is one place. */
    static const struct {
        const char *x, *w, *to, *attrs, *behind, *back;
    } last[] = {
        {"[A, C, D, B]", "[19, B, 1, 1]", "[0, 3, 1, 2]", "", "%s = add(%r, %c) %t = relu(%s)", "[0, 2, 3, 1]"},
        {"[A, C, D, B]", "[5, B, 1, 1]", "[0, -1, 1, 2]", "", "%s = mul(%c, %r) %t = tanh(%s)", "[0, 2, 3, 1]"},
        {"[A, D, 70]", "[33, 70, 1]", "[0, 2, 1]", "", "%t = sub(%r, %c)", "[0, 2, 1]"},
        {"[A, C, D, B]", "[7, B, 1, 1]", "[0, 3, 1, 2]", ", strides=[2, 1]", "%t = add(%r, %c)", "[0, 2, 3, 1]"},
        {"[A, C, D, B]", "[7, B, 1, 1]", "[0, 3, 1, 2]", ", pads=[0, 0, 1, 0]", "%t = add(%r, %c)", "[0, 2, 3, 1]"},
        {"[A, C, D, B]", "[7, B, 1, 1]", "[0, 3, 2, 1]", "", "%t = add(%r, %c)", "[0, 2, 3, 1]"},
        {"[A, C, D, B]", "[7, B, 1, 1]", "[0, 3, 1, 2]", "", "%t = add(%r, %c)", "[0, 3, 2, 1]"},
    };
    for (size_t s = 0; s < sizeof last / sizeof *last && is_plain && ir_is_float(t); s++) {
        static const int64_t small[][4] = {{1, 1, 6, 7}, {2, 65, 9, 37}};
        const char *T = ir_dtypes[t].name, *R = ir_dtypes[to].name;
        for (int with_bias = 0; with_bias < 2; with_bias++) {
            char of[40] = "";
            if (with_bias) snprintf(of, sizeof of, ", %%b: %s[%d]", T, atoi(last[s].w + 1));
            snprintf(text, sizeof text,
                     "func @f(%%x: %s%s, const %%w: %s%s%s, %%c: %s) -> %s%s { %%a = transpose(%%x, perm=%s) "
                     "%%r = conv(%%a, %%w%s%s) %s %%y = transpose(%%t, perm=%s) return %%y }",
                     T, last[s].x, T, last[s].w, of, R, R, s == 2 ? "[?, ?, ?]" : "[?, ?, ?, ?]", last[s].to,
                     with_bias ? ", %b" : "", last[s].attrs, last[s].behind, last[s].back);
            for (int k = 0; k < 2; k++)
                check(text, (domain){-2, 2, SPECIAL_NONE, false}, small[k], k ? two_threads : one_thread, k == 0,
                      k ? ALL_LEVELS : 1u << (mix(s) % 3));
        }
    }
    if (t == FUSOR_U8 && is_plain)
        check("func @f(%x: u8[A, 4, D], %w: i8[3, 4, 3]) -> i32[A, 3, ?] { %r = conv(%x, %w, strides=[2]) return %r }",
              (domain){-120, 120, SPECIAL_NONE, true}, sizes[1], one_thread, false, ALL_LEVELS);
}

/* t: the float type of quantize, the integer type of dequantize. */
static void quantization(ir_op op, ir_dtype t) {
    static const char *const to[] = {"i8", "u8", "i16", "u16"}, *const floats[] = {"f32", "f16", "bf16", "f64"};
    const bool quantizes = op == IR_OP_QUANTIZE;
    char text[500];
    if (!quantizes && ir_dtypes[t].bytes > 2 && t != FUSOR_I32) return;
    for (int k = 0; k < 4; k++) {
        const char *X = ir_dtypes[t].name, *F = quantizes ? X : floats[k], *Q = quantizes ? to[k] : X,
                   *R = quantizes ? Q : F;
        const double scale = ir_dtypes[t].bytes >= 4 ? 300 : 100;
        for (int axis = -1; axis < 2; axis++) {
            const char *P = axis < 0 ? "" : axis ? "[B]" : "[A]";
            snprintf(
                text, sizeof text,
                "func @f(%%x: %s[A, B], %%s: %s%s, %%z: %s%s) -> %s[A, B] { %%y = %s(%%x, %%s, %%z%s) return %%y }", X,
                F, P, Q, P, R, ir_ops[op].name,
                axis < 0 ? ""
                : axis   ? ", axis=-1"
                         : ", axis=0");
            for (size_t p = 0; p < sizeof planes / sizeof *planes; p++)
                check(text, (domain){-scale, scale, p % 2 ? SPECIAL_SOME : SPECIAL_NONE, true},
                      (int64_t[4]){planes[p][0], planes[p][1]}, p == 4 ? two_threads : one_thread, p % 3 == 1,
                      ALL_LEVELS);
        }
    }
}

/* Leading axes: one, none, two; biases or none; sizes of gates named or computed. */
static void cell(ir_op op, ir_dtype t) {
    static const struct {
        const char *lead, *rows; /* rows: of weights, where they are a name of their own */
        bool has_biases;
    } cases[] = {
        {"A, ", NULL, true}, {"A, ", "D", false}, {"", NULL, true}, {"2, A, ", NULL, false}, {"A, 3, ", "D", true}};
    static const int64_t sizes[][3] = {{1, 1, 1}, {3, 7, 5}, {17, 5, 33}, {2, 0, 4},
                                       {0, 3, 2}, {2, 4, 0}, {5, 600, 19}};
    const char *T = ir_dtypes[t].name;
    const int gates = op == IR_OP_LSTM_CELL ? 4 : op == IR_OP_GRU_CELL ? 3 : 1;
    const char *variants[2] = {"", op == IR_OP_GRU_CELL   ? ", linear_before_reset=false"
                                   : op == IR_OP_RNN_CELL ? ", activation=relu"
                                                          : NULL};
    char text[800], rows[20], state[40], second[40], biases[80];
    for (size_t s = 0; s < sizeof cases / sizeof *cases; s++)
        for (int v = 0; v < 2 && variants[v]; v++) {
            const char *lead = cases[s].lead;
            snprintf(rows, sizeof rows, "%d*C", gates);
            if (cases[s].rows) snprintf(rows, sizeof rows, "%s", cases[s].rows);
            snprintf(state, sizeof state, ", %%c: %s[%sC]", T, lead);
            snprintf(second, sizeof second, ", %s[%sC]", T, lead);
            snprintf(biases, sizeof biases, ", %%b: %s[%s], %%d: %s[%s]", T, rows, T, rows);
            snprintf(text, sizeof text,
                     "func @f(%%x: %s[%sB], %%h: %s[%sC]%s, %%w: %s[%s, B], %%u: %s[%s, C]%s) -> (%s[%sC]%s) { "
                     "%%r%s = %s(%%x, %%h%s, %%w, %%u%s%s) return %%r%s }",
                     T, lead, T, lead, gates == 4 ? state : "", T, rows, T, rows, cases[s].has_biases ? biases : "", T,
                     lead, gates == 4 ? second : "", gates == 4 ? ", %s" : "", ir_ops[op].name,
                     gates == 4 ? ", %c" : "", cases[s].has_biases ? ", %b, %d" : "", variants[v],
                     gates == 4 ? ", %s" : "");
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
                check(text, (domain){-1, 1, k == 1 ? SPECIAL_SOME : SPECIAL_NONE, false},
                      (int64_t[4]){sizes[k][0], sizes[k][1], sizes[k][2], gates * sizes[k][2]},
                      k == 2 ? two_threads : one_thread, k == 1,
                      s == 0 || k == 1 ? ALL_LEVELS : 1u << (mix(k + s) % 3));
        }
}

#ifndef HAS_OWN_PROGRAMS /* gpu_mma_test.c */
/* A process an operator, or N_PROCESSES of them, with every so many-th operator each. */
static int n_processes(void) {
    return getenv("FUSOR_TEST_OPS") || N_PROCESSES > IR_OP_COUNT ? IR_OP_COUNT : N_PROCESSES;
}

ParameterizedTestParameters(ops, agree_with_the_reference) {
    static int rows[IR_OP_COUNT];
    size_t n = 0;
    const char *only = getenv("FUSOR_TEST_OPS"); /* names of operators, for a look at a few */
    for (int op = IR_OP_RESULT + 1; op < IR_OP_COUNT; op++)
        if (!only || strstr(only, ir_ops[op].name)) rows[n++] = op;
    return cr_make_param_array(int, rows, n < (size_t)n_processes() ? n : (size_t)n_processes());
}

static void row_agrees(ir_op op);

ParameterizedTest(int *row_number, ops, agree_with_the_reference, .timeout = 1500) {
    for (int op = *row_number; op < IR_OP_COUNT; op += n_processes()) row_agrees((ir_op)op);
}

static void row_agrees(ir_op op) {
    const ir_op_info *info = &ir_ops[op];
    if (!begin()) return;
    is_of_rows = true;
    first_of_row = 0;
    for (ir_dtype t = 1; t < IR_DTYPE_COUNT; t++) {
        if (t == FUSOR_F32) first_of_row = 0; /* of f32 there is one too */
        if (!(info->classes & ir_dtypes[t].cls) && info->kind != IR_KIND_CONVERT) continue;
        if (!IS_TYPE_FOR_US(op, t)) continue;
        switch (info->kind) {
        case IR_KIND_EW: elementwise(info, t); break;
        case IR_KIND_CONVERT: conversion(op, t); break;
        case IR_KIND_REDUCE:
        case IR_KIND_ARGREDUCE: reduction(info, t); break;
        case IR_KIND_ROW: row(info, t); break;
        case IR_KIND_SCAN: scan(info, t); break;
        case IR_KIND_NORM: norm(info, t); break;
        case IR_KIND_CONTRACT: contraction(info, t); break;
        case IR_KIND_VIEW: movement(op, t); break;
        case IR_KIND_CREATE: creation(op, t); break;
        case IR_KIND_RANDOM: random_numbers(op, t); break;
        case IR_KIND_ATTENTION: attention_op(t); break;
        case IR_KIND_WINDOW: windows(op, t); break;
        case IR_KIND_CONV: convolution(op, t); break;
        case IR_KIND_EINSUM: subscripts(t); break;
        case IR_KIND_QUANTIZE: quantization(op, t); break;
        case IR_KIND_CELL: cell(op, t); break;
        case IR_KIND_MOVE:
        case IR_KIND_INDEX: moving(op, t); break;
        case IR_KIND_CORE: break;
        }
    }
    rt_cache_close(cache);
}
#endif
