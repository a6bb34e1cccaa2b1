/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reduce and row kernels at every level the host has, against a model that evaluates a description element by element
 * in exactly the order of ir/schedule.h: bit for bit where no approximated function is involved. Buffers, scratch and
 * shared memory are between guard pages; tiles run in several calls. */
#include "jit_run.h"
#include <math.h>

enum { BAKE = 1, SPECIAL = 2, STRETCH = 4, AT_BEGIN = 8 };
static double tolerance; /* 0: bits */

/* ---- the model ---- */
typedef struct model {
    const ir_kernel *k;
    const int64_t *size, *stride;
    void **buffer;
    const uint64_t *scalar;
    int lanes, last;
    int64_t rows; /* results of reductions, by instruction and row */
    bool *is_known;
    ir_bits *memo;
} model;
typedef struct pair {
    ir_bits value;
    int64_t index;
} pair;

static ir_bits evaluate(model *m, int n, int64_t *at);

static double number(ir_dtype t, ir_bits v) {
    float f;
    double d;
    memcpy(&f, &v, 4);
    memcpy(&d, &v, 8);
    return t == FUSOR_F64 ? d : (double)f;
}

/* -1, 0, 1: a is before, equal to, behind b for what argmax (or argmin) looks for. */
static int order(ir_dtype t, bool max, ir_bits a, ir_bits b) {
    bool x = run_is_nan(t, a), y = run_is_nan(t, b);
    if (x || y) return y - x;
    bool less = ir_scalar_ew(IR_OP_LT, t, (ir_bits[]){a, b}, NULL, 0) != 0;
    bool more = ir_scalar_ew(IR_OP_GT, t, (ir_bits[]){a, b}, NULL, 0) != 0;
    return max ? less - more : more - less;
}

static pair combine(const ir_kinst *in, ir_dtype t, pair a, pair b) {
    if (ir_ops[in->op].kind == IR_KIND_REDUCE)
        return (pair){ir_scalar_ew(ir_ops[in->op].combine, t, (ir_bits[]){a.value, b.value}, NULL, 0), 0};
    if (a.index < 0 || b.index < 0) return a.index < 0 ? b : a;
    int o = order(t, in->op == IR_OP_ARGMAX, a.value, b.value);
    bool first = in->variant ? a.index > b.index : a.index < b.index;
    return o < 0 || (o == 0 && first) ? a : b;
}

static pair identity(const ir_kinst *in, ir_dtype t) {
    double v = 0;
    int bits = 8 * ir_dtypes[t].bytes;
    uint64_t ones = UINT64_MAX >> (64 - bits), i = 0;
    if (ir_ops[in->op].kind == IR_KIND_ARGREDUCE) return (pair){0, -1};
    ir_op op = ir_ops[in->op].combine;
    if (op == IR_OP_MUL) v = 1, i = 1;
    if (op == IR_OP_AND) i = 1;
    if (op == IR_OP_MAXIMUM) v = -INFINITY, i = ir_is_signed(t) ? UINT64_C(1) << (bits - 1) : 0;
    if (op == IR_OP_MINIMUM) v = INFINITY, i = ir_is_signed(t) ? ones >> 1 : ones;
    if (!ir_is_float(t)) return (pair){i, 0};
    float f = (float)v;
    uint64_t r = 0;
    if (t == FUSOR_F64) memcpy(&r, &v, 8);
    else memcpy(&r, &f, 4);
    return (pair){r, 0};
}

/* One partial result: elements [begin, end) of the last r dim at `at`. */
static pair reduce_block(model *m, int n, int64_t *at, int64_t outer, int64_t begin, int64_t end) {
    const ir_kinst *in = &m->k->inst[n];
    ir_dtype t = m->k->inst[in->in[0]].dtype;
    int accumulators = ir_kernel_is_column(m->k) ? 1 : IR_REDUCE_UNROLL * m->lanes;
    pair acc[64];
    for (int a = 0; a < accumulators; a++) acc[a] = identity(in, t);
    for (int64_t i = begin; i < end; i++) {
        pair *a = &acc[(i - begin) % accumulators];
        at[m->last] = i;
        *a = combine(in, t, *a, (pair){evaluate(m, in->in[0], at), outer * m->size[m->last] + i});
    }
    for (int h = accumulators / 2; h >= 1; h /= 2)
        for (int a = 0; a < h; a++) acc[a] = combine(in, t, acc[a], acc[a + h]);
    return acc[0];
}

static ir_bits reduce(model *m, int n, const int64_t *place) {
    const ir_kernel *k = m->k;
    int64_t at[IR_KERNEL_MAX_DIMS], outer = 1, block = ir_kernel_is_column(k) ? IR_COLUMN_BLOCK : IR_REDUCE_BLOCK;
    int64_t row = 0;
    memcpy(at, place, sizeof at);
    for (int d = 0; d < k->n_dims; d++) {
        if (k->dim[d].role != 'r') row = row * m->size[d] + at[d];
        else if (d < m->last) outer *= m->size[d];
    }
    row += n * m->rows;
    if (m->is_known[row]) return m->memo[row];
    int64_t blocks = (m->size[m->last] + block - 1) / block, count = outer * blocks;
    pair *p = calloc((size_t)count + 1, sizeof *p);
    p[0] = identity(&k->inst[n], k->inst[k->inst[n].in[0]].dtype);
    for (int64_t i = 0; i < count; i++) {
        int64_t o = i / blocks, b = i % blocks * block, rest = o;
        for (int d = m->last - 1; d >= 0 && k->dim[d].role == 'r'; d--) at[d] = rest % m->size[d], rest /= m->size[d];
        p[i] = reduce_block(m, n, at, o, b, b + block < m->size[m->last] ? b + block : m->size[m->last]);
    }
    for (int64_t s = 1; s < count; s *= 2)
        for (int64_t i = 0; i + s < count; i += 2 * s)
            p[i] = combine(&k->inst[n], k->inst[k->inst[n].in[0]].dtype, p[i], p[i + s]);
    m->is_known[row] = true;
    m->memo[row] = ir_ops[k->inst[n].op].kind == IR_KIND_ARGREDUCE ? (ir_bits)p[0].index : p[0].value;
    free(p);
    return m->memo[row];
}

static int64_t offset(const model *m, int b, const int64_t *at) {
    int64_t off = 0;
    for (int d = 0; d < m->k->n_dims; d++) off += at[d] * m->stride[b * m->k->n_dims + d];
    return off;
}

static ir_bits evaluate(model *m, int n, int64_t *at) {
    const ir_kinst *in = &m->k->inst[n];
    if (in->op == IR_K_LOAD) {
        ir_bits v = run_get(in->dtype, m->buffer[in->index], offset(m, in->index, at));
        return ir_is_bool(in->dtype) ? v != 0 : v;
    }
    if (in->op == IR_K_INDEX) return (ir_bits)at[in->index];
    if (in->op == IR_K_SCALAR) return m->scalar[in->index];
    if (ir_kernel_is_reduce_op(in->op)) return reduce(m, n, at);
    ir_bits x[5];
    for (int i = 0; i < in->n_in; i++) x[i] = evaluate(m, in->in[i], at);
    if (in->op == IR_OP_CAST) return ir_scalar_cast(m->k->inst[in->in[0]].dtype, in->dtype, x[0]);
    return ir_scalar_ew((ir_op)in->op, m->k->inst[in->in[(ir_ops[in->op].flags & IR_COND) ? 1 : 0]].dtype, x, NULL,
                        in->variant);
}

/* ---- running ---- */
static bool same(ir_dtype t, ir_bits a, ir_bits b) {
    if (run_same(t, a, b)) return true;
    if (tolerance == 0 || !ir_is_float(t)) return false;
    double x = number(t, a), y = number(t, b);
    return fabs(x - y) <= tolerance * (1 + fabs(y));
}

/* Tiles of a phase in two calls, the later ones first. */
static void run_phase(const run_kernel *r, ir_kernel_args *a, int phase, int64_t tiles) {
    a->phase = (uint32_t)phase;
    cr_assert_eq(r->fn(a, tiles / 3, tiles), 0);
    cr_assert_eq(r->fn(a, 0, tiles / 3), 0);
}

static void check_at(ir_level level, const char *body, const int64_t *size, int flags, int64_t grain) {
    static ir_kernel k;
    static model m;
    static fu_error error;
    char text[8192], *description;
    jmp_buf oom;
    fu_arena arena;
    fu_str printed;
    snprintf(text, sizeof text, "fusor-kernel 1\nkind %.*s\nlevel %s\n%s", (int)strcspn(body, "\n"), body,
             ir_levels[level].name, strchr(body, '\n') + 1);
    fu_error_clear(&error);
    cr_assert_eq(ir_kernel_parse(&error, text, strlen(text), &k), FUSOR_OK, "%s\n%s", error.text, text);
    m = (model){.k = &k, .size = size, .lanes = ir_levels[level].lanes};
    for (int d = 0; d < k.n_dims; d++) {
        if (k.dim[d].role == 'r') m.last = d;
        if ((flags & BAKE) && k.dim[d].role == 'r' && size[d] <= IR_BAKE_MAX) k.dim[d].size = size[d];
    }
    fu_arena_init(&arena, &oom);
    cr_assert_eq(setjmp(oom), 0);
    fu_str_init(&printed, &arena);
    ir_kernel_print(&printed, &k);
    description = printed.at;
    run_kernel r = run_compile(description);

    int64_t stride[16 * IR_KERNEL_MAX_DIMS] = {0}, count[16];
    run_buffer buffer[16], expected[16];
    void *pointer[16], *model_pointer[16];
    uint64_t state = 12345, scalar[4] = {0x3f000000, 0x40490fdb, 3, 5};
    for (int b = 0; b < k.n_buffers; b++) {
        int64_t n = 1, extent = 1;
        for (int i = 2 * k.n_dims - 1; i >= 0; i--) { /* the contiguous dim first */
            int d = i % k.n_dims;
            int64_t s = k.buffer[b].stride[d];
            if (s == 0 || (s == 1) != (i >= k.n_dims)) continue;
            if (s == IR_STRIDE_RUNTIME && (flags & STRETCH)) n = n * 2 + 1;
            stride[b * k.n_dims + d] = n;
            extent += size[d] ? (size[d] - 1) * n : 0;
            n *= size[d] ? size[d] : 1;
        }
        for (int d = 0; d < k.n_dims; d++)
            if (stride[b * k.n_dims + d] && !size[d]) extent = 0;
        ir_dtype t = k.buffer[b].dtype;
        count[b] = extent;
        buffer[b] = run_guarded((size_t)extent * ir_dtypes[t].bytes, !(flags & AT_BEGIN));
        expected[b] = run_guarded((size_t)extent * ir_dtypes[t].bytes, true);
        pointer[b] = buffer[b].data;
        model_pointer[b] = expected[b].data;
        for (int64_t i = 0; i < extent; i++) {
            ir_bits v = run_value(t, &state);
            if (!(flags & SPECIAL) && ir_is_float(t)) {
                double d = (double)((int64_t)run_random(&state) >> 40) * 0x1p-22;
                float f = (float)d;
                v = 0;
                if (t == FUSOR_F64) memcpy(&v, &d, 8);
                else memcpy(&v, &f, 4);
            }
            if ((flags & SPECIAL) && ir_is_bool(t)) v = run_random(&state) % 64 != 0;
            run_put(t, buffer[b].data, i, v);
            run_put(t, expected[b].data, i, v);
        }
    }
    m.stride = stride;
    m.buffer = model_pointer;
    m.scalar = scalar;
    m.rows = 1;
    for (int d = 0; d < k.n_dims; d++) m.rows *= k.dim[d].role == 'r' ? 1 : size[d];
    m.is_known = calloc((size_t)(k.n_insts * m.rows) + 1, sizeof *m.is_known);
    m.memo = calloc((size_t)(k.n_insts * m.rows) + 1, sizeof *m.memo);
    ir_launch launch;
    ir_kernel_args a = {.version = IR_KERNEL_ABI,
                        .tune = {grain, grain, 64 * (grain % 3 + 1)},
                        .buffer = pointer,
                        .size = size,
                        .stride = stride,
                        .scalar = scalar};
    ir_kernel_launch(&k, size, a.tune, &launch);
    run_buffer shared = run_guarded((size_t)(launch.shared_bytes + 63) / 64 * 64, true);
    run_buffer scratch = run_guarded((size_t)(launch.scratch_bytes + 63) / 64 * 64, true);
    memset(shared.data, 0xff, (size_t)launch.shared_bytes);
    memset(scratch.data, 0xff, (size_t)launch.scratch_bytes);
    a.shared = shared.data;
    a.scratch = scratch.data;
    for (int phase = 0; phase < launch.n_phases; phase++) run_phase(&r, &a, phase, launch.tiles[phase]);

    int64_t elements = 1, at[IR_KERNEL_MAX_DIMS];
    for (int d = 0; d < k.n_dims; d++) elements *= k.dim[d].role == 'r' && !size[d] ? 1 : size[d];
    for (int i = 0; i < k.n_insts; i++) {
        if (k.inst[i].op != IR_K_STORE) continue;
        int b = k.inst[i].index;
        for (int64_t e = 0; e < elements; e++) {
            int64_t n = e;
            bool first = true, empty = false; /* dims the output lacks: once */
            for (int d = k.n_dims - 1; d >= 0; d--) {
                int64_t by = k.dim[d].role == 'r' && !size[d] ? 1 : size[d];
                at[d] = n % by;
                n /= by;
                if (k.buffer[b].stride[d] == 0 && at[d]) first = false;
                if (k.buffer[b].stride[d] != 0 && !size[d]) empty = true;
            }
            if (first && !empty)
                run_put(k.inst[i].dtype, expected[b].data, offset(&m, b, at), evaluate(&m, k.inst[i].in[0], at));
        }
    }
    for (int b = 0; b < k.n_buffers; b++)
        for (int64_t i = 0; i < count[b]; i++) {
            ir_dtype t = k.buffer[b].dtype;
            ir_bits got = run_get(t, buffer[b].data, i), want = run_get(t, expected[b].data, i);
            cr_assert(
                same(t, got, want),
                "buffer %d element %lld: %llx (%g), expected %llx (%g); sizes %lld %lld %lld grain %lld flags %d\n%s",
                b, (long long)i, (unsigned long long)got, number(t, got), (unsigned long long)want, number(t, want),
                (long long)size[0], (long long)size[1], (long long)size[2], (long long)grain, flags, description);
        }
    for (int b = 0; b < k.n_buffers; b++) {
        run_free(&buffer[b]);
        run_free(&expected[b]);
    }
    run_free(&shared);
    run_free(&scratch);
    free(m.is_known);
    free(m.memo);
    fu_arena_free(&arena);
}

static void check(const char *body, const int64_t *size, int flags, int64_t grain) {
    static unsigned number;
    number++;
    for (int level = 0; level < IR_LEVEL_COUNT; level++)
        if (case_has_level(number, level)) check_at((ir_level)level, body, size, flags, grain);
}

static const int64_t lengths[] = {0, 1, 2, 3, 7, 15, 16, 17, 63, 64, 65, 255, 4095, 4096, 4097, 10000};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

/* ---- inner form ---- */
static const char sum_f32[] = "reduce\ndim p ?\ndim r ?\nbuffer in f32 ? 1\nbuffer out f32 1 0\n"
                              "%0 = load.f32 #0\n%1 = reduce_sum.f32 %0\n%2 = store.f32 #1 %1\n";

Test(reduce, sums_of_every_length) {
    static const int64_t rows[] = {0, 1, 3, 17};
    for (int l = 0; l < LENGTHS; l++)
        for (int r = 0; r < 4; r++) {
            int64_t size[4] = {rows[r], lengths[l]};
            check(sum_f32, size, (l & 1) * AT_BEGIN, l % 5 + 1);
            if (lengths[l] <= 64) check(sum_f32, size, BAKE, r + 1);
        }
}

/* The same kernel text but for operator and types. */
static void check_op(const char *op, const char *in, const char *via, const char *out, const char *extra, int flags) {
    char body[1024];
    bool is_cast = strcmp(in, via) != 0;
    snprintf(
        body, sizeof body,
        "reduce\ndim p ?\ndim r ?\nbuffer in %s ? 1\nbuffer out %s 1 0\n%%0 = load.%s #0\n%s%s%s%%%d = %s.%s %%%d%s\n"
        "%%%d = store.%s #1 %%%d\n",
        in, out, in, is_cast ? "%1 = cast." : "", is_cast ? via : "", is_cast ? " %0\n" : "", 1 + is_cast, op, out,
        is_cast, extra, 2 + is_cast, out, 1 + is_cast);
    bool is_arg = strncmp(op, "arg", 3) == 0;
    for (int l = is_arg; l < LENGTHS; l += l < 9 ? 1 : 2) {
        int64_t size[4] = {3, lengths[l]};
        check(body, size, flags, 2);
        if (lengths[l] <= 64) check(body, size, flags | BAKE, 2);
    }
}

Test(reduce, every_operator_and_type) {
    check_op("reduce_sum", "f64", "f64", "f64", "", 0);
    check_op("reduce_prod", "f32", "f32", "f32", "", 0);
    check_op("reduce_prod", "f64", "f64", "f64", "", SPECIAL);
    check_op("reduce_max", "f32", "f32", "f32", "", SPECIAL);
    check_op("reduce_min", "f64", "f64", "f64", "", SPECIAL);
    check_op("reduce_max", "f32", "f32", "f32", "", 0);
    check_op("reduce_min", "f32", "f32", "f32", "", 0);
    check_op("reduce_max", "i8", "i8", "i8", "", 0);
    check_op("reduce_min", "u16", "u16", "u16", "", 0);
    check_op("reduce_max", "u64", "u64", "u64", "", 0);
    check_op("reduce_min", "i64", "i64", "i64", "", 0);
    check_op("reduce_sum", "i32", "i64", "i64", "", 0);
    check_op("reduce_sum", "u8", "i64", "i64", "", 0);
    check_op("reduce_sum", "bool", "i64", "i64", "", 0);
    check_op("reduce_prod", "i16", "i64", "i64", "", 0);
    check_op("reduce_all", "bool", "bool", "bool", "", SPECIAL);
    check_op("reduce_all", "bool", "bool", "bool", "", 0);
    check_op("reduce_any", "bool", "bool", "bool", "", 0);
}

Test(reduce, argmax_with_ties_and_nans) {
    static const char *const types[] = {"f32", "f64", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"};
    for (int t = 0; t < 10; t++) {
        check_op("argmax", types[t], types[t], "i64", t & 1 ? " variant 1" : "", SPECIAL);
        check_op("argmin", types[t], types[t], "i64", t & 1 ? "" : " variant 1", SPECIAL);
    }
    check_op("argmax", "f32", "f32", "i64", "", 0);
    check_op("argmax", "f32", "f32", "i64", " variant 1", SPECIAL);
    check_op("argmin", "f64", "f64", "i64", " variant 1", 0);
}

/* A kernel of argmax or argmin over one row of f32; and its result for a row. */
static run_kernel arg_kernel(int level, const char *op, bool is_last) {
    char text[512];
    snprintf(text, sizeof text,
             "fusor-kernel 1\nkind reduce\nlevel %s\ndim r ?\nbuffer in f32 1\nbuffer out i64 0\n%%0 = load.f32 #0\n"
             "%%1 = %s.i64 %%0%s\n%%2 = store.i64 #1 %%1\n",
             ir_levels[level].name, op, is_last ? " variant 1" : "");
    return run_compile(text);
}
static int64_t arg_of_row(const run_kernel *k, float *x, int64_t n) {
    int64_t out = -1, stride[2] = {1, 0};
    char shared[64];
    void *pointer[2] = {x, &out};
    ir_kernel_args a = {
        .version = 1, .tune = {1, 1}, .buffer = pointer, .size = &n, .stride = stride, .shared = shared};
    for (a.phase = 0; a.phase < 2; a.phase++) k->fn(&a, 0, a.phase ? 1 : (n + 4095) / 4096);
    return out;
}

/* All equal to the identity; one NaN; the ends of the row. */
Test(reduce, argmax_picks_the_first) {
    static const float fill[] = {-INFINITY, INFINITY, 0.0f};
    for (int level = 0; level < IR_LEVEL_COUNT; level++) {
        if (!host_has_level((ir_level)level)) continue;
        for (int variant = 0; variant < 4; variant++) {
            run_kernel r = arg_kernel(level, variant & 1 ? "argmax" : "argmin", variant & 2);
            static float x[5000];
            for (int l = 1; l < LENGTHS - 1; l++)
                for (int f = 0; f < 3; f++)
                    for (int nan = 0; nan < 3; nan++) {
                        int64_t n = lengths[l];
                        for (int64_t i = 0; i < n; i++) x[i] = fill[f];
                        if (nan) x[n / 3] = x[n / 3 + n / 2] = NAN;
                        int64_t want = nan ? (variant & 2 ? n / 3 + n / 2 : n / 3) : variant & 2 ? n - 1 : 0;
                        const int64_t out = arg_of_row(&r, x, n);
                        cr_assert_eq(out, want, "level %d variant %d length %d fill %g nan %d: %d, expected %d", level,
                                     variant, (int)n, (double)fill[f], nan, (int)out, (int)want);
                    }
        }
    }
}

/* Two equal extremes at each pair of places of a row: groups of vectors, the vectors behind the last group, two blocks;
 * the first or the last of the pair wins. */
Test(reduce, argmax_at_every_place) {
    static float x[4300];
    static const int64_t sizes[] = {30, 70, 127, 256, 257, 300, 4096 + 150};
    for (int level = 0; level < IR_LEVEL_COUNT; level++) {
        if (!host_has_level((ir_level)level)) continue;
        for (int variant = 0; variant < 2; variant++) {
            run_kernel r = arg_kernel(level, "argmax", variant);
            for (int l = 0; l < (int)(sizeof sizes / sizeof *sizes); l++) {
                int64_t n = sizes[l];
                for (int64_t i = 0; i < n; i++) x[i] = (float)(i % 7) - 9;
                for (int64_t first = 0; first < n; first += 1 + n / 150) {
                    int64_t second = first + (n - 1 - first) * (first % 5) / 4;
                    float top[2] = {x[first], x[second]};
                    x[first] = x[second] = first & 1 ? INFINITY : first & 2 ? NAN : 0;
                    const int64_t out = arg_of_row(&r, x, n);
                    cr_assert_eq(out, variant ? second : first, "level %d variant %d length %d: %d, of %d and %d",
                                 level, variant, (int)n, (int)out, (int)first, (int)second);
                    x[second] = top[1];
                    x[first] = top[0];
                }
            }
        }
    }
}

/* Rows by one vector: several go through it together, and results of as many rows as lanes are made at once. What is in
 * types that no level, or not every one, loads under a mask goes row by row. */
static void check_rows(const char *body) {
    static const int64_t rows[] = {1, 4, 7, 8, 16, 21, 41};
    static const int64_t few[] = {5, 6, 12, 17, 20, 31, 33, 50, 64, 100, 130, 4096, 4100};
    for (int l = 0; l < 13; l++)
        for (int i = l % 2; i < 7; i += l < 11 ? 2 : 5) {
            const int64_t size[4] = {3, rows[i], few[l]};
            check(body, size, few[l] <= IR_BAKE_MAX && l % 3 ? BAKE : l & 1 ? STRETCH : 0, l % 4 ? 128 : 9);
        }
}

Test(reduce, rows_that_share_a_vector) {
    static const char *const types[] = {"f32", "f64", "f16", "i32"};
    char body[1024];
    for (int t = 0; t < 4; t++) {
        const char *x = types[t], *acc = t == 2 ? "f32" : x, *cast = t == 2 ? "cast.f32" : t == 3 ? "abs.i32" : NULL;
        snprintf(body, sizeof body,
                 "reduce\ndim p ?\ndim p ?\ndim r ?\nbuffer in %s ? ? 1\nbuffer in %s 0 0 1\nbuffer in %s ? 1 0\n"
                 "buffer out %s ? 1 0\n%%0 = load.%s #0\n%%1 = load.%s #1\n%%2 = %s%s %%0\n%%3 = mul.%s %%2 %%1\n"
                 "%%4 = %s.%s %%3\n%%5 = load.%s #2\n%%6 = add.%s %%4 %%5\n%%7 = store.%s #3 %%6\n",
                 x, acc, acc, acc, x, acc, cast ? cast : "neg.", cast ? "" : acc, acc,
                 t == 3 ? "reduce_max" : "reduce_sum", acc, acc, acc, acc);
        check_rows(body);
    }
    check_rows("reduce\ndim p ?\ndim p ?\ndim r ?\nbuffer in f32 ? ? 1\nbuffer in f32 0 0 1\nbuffer out f32 ? 1 0\n"
               "buffer out f32 ? ? 0\n%0 = load.f32 #0\n%1 = load.f32 #1\n%2 = mul.f32 %0 %1\n%3 = reduce_sum.f32 %2\n"
               "%4 = reduce_max.f32 %0\n%5 = store.f32 #2 %3\n%6 = store.f32 #3 %4\n");
}

Test(reduce, several_dims) {
    static const char body[] =
        "reduce\ndim p ?\ndim p ?\ndim r ?\ndim r ?\ndim r ?\nbuffer in f32 ? ? ? ? ?\nbuffer in f32 0 ? 0 1 0\n"
        "buffer out f32 ? 1 0 0 0\nbuffer out i64 ? 1 0 0 0\nbuffer out f32 ? ? ? ? 1\nscalar f32\n"
        "%0 = load.f32 #0\n%1 = load.f32 #1\n%2 = scalar.f32 #0\n%3 = mul.f32 %1 %2\n%4 = add.f32 %0 %3\n"
        "%5 = index.i64 #4\n%6 = cast.f32 %5\n%7 = index.i64 #2\n%8 = cast.f32 %7\n%9 = mul.f32 %6 %8\n"
        "%10 = add.f32 %4 %9\n%11 = reduce_sum.f32 %10\n%12 = argmax.i64 %10\n%13 = store.f32 #2 %11\n"
        "%14 = store.i64 #3 %12\n%15 = store.f32 #4 %10\n";
    static const int64_t sizes[][5] = {
        {2, 3, 3, 5, 7}, {1, 2, 1, 3, 64}, {3, 1, 2, 2, 100}, {1, 1, 2, 1, 5000}, {2, 2, 7, 1, 1}};
    for (int s = 0; s < 5; s++)
        for (int flags = 0; flags < 16; flags += 3) check(body, sizes[s], flags & ~SPECIAL, s + 1);
}

/* A mean, a maximum, an element-wise output and a row-level input in one kernel. */
Test(reduce, two_reductions_and_an_epilogue) {
    static const char body[] =
        "reduce\ndim p ?\ndim r ?\nbuffer in f32 ? 1\nbuffer in f32 1 0\nbuffer out f32 1 0\nbuffer out f32 1 0\n"
        "buffer out f32 ? 1\nscalar f32\n"
        "%0 = load.f32 #0\n%1 = load.f32 #1\n%2 = sub.f32 %0 %1\n%3 = reduce_sum.f32 %2\n%4 = scalar.f32 #0\n"
        "%5 = mul.f32 %3 %4\n%6 = reduce_max.f32 %0\n%7 = add.f32 %6 %5\n%8 = store.f32 #2 %5\n%9 = store.f32 #3 %7\n"
        "%10 = store.f32 #4 %2\n";
    for (int l = 0; l < LENGTHS; l++) {
        int64_t size[4] = {5, lengths[l]};
        check(body, size, 0, l % 5 + 1);
        check(body, size, STRETCH | (lengths[l] <= 64 ? BAKE : 0), l % 3 + 1);
    }
}

Test(reduce, strided_and_broadcast_operands) {
    static const char body[] =
        "reduce\ndim p ?\ndim r ?\nbuffer in f32 1 ?\nbuffer in i8 0 ?\nbuffer in f64 ? 0\nbuffer out f64 1 0\n"
        "%0 = load.f32 #0\n%1 = cast.f64 %0\n%2 = load.i8 #1\n%3 = cast.f64 %2\n%4 = load.f64 #2\n"
        "%5 = mul.f64 %1 %3\n%6 = add.f64 %5 %4\n%7 = reduce_sum.f64 %6\n%8 = store.f64 #3 %7\n";
    static const char constant[] = "reduce\ndim p ?\ndim r ?\nbuffer in f32 1 0\nbuffer out f32 1 0\n"
                                   "%0 = load.f32 #0\n%1 = reduce_sum.f32 %0\n%2 = store.f32 #1 %1\n";
    for (int l = 0; l < LENGTHS; l += 2) {
        int64_t size[4] = {3, lengths[l]};
        check(body, size, 0, 2);
        check(body, size, STRETCH | BAKE, 1);
        check(constant, size, l & 4 ? BAKE : 0, 2);
    }
}

/* A function makes a program costly: accumulators in memory. sqrt and division are exact. */
Test(reduce, costly_programs) {
    static const char body[] =
        "reduce\ndim p ?\ndim r ?\nbuffer in f32 ? 1\nbuffer out f32 1 0\nbuffer out i64 1 0\nbuffer out f32 1 0\n"
        "%0 = load.f32 #0\n%1 = abs.f32 %0\n%2 = sqrt.f32 %1\n%3 = reduce_sum.f32 %2\n%4 = argmin.i64 %2 variant 1\n"
        "%5 = sqrt.f32 %3\n%6 = store.f32 #1 %5\n%7 = store.i64 #2 %4\n%8 = reduce_max.f32 %2\n%9 = store.f32 #3 %8\n";
    for (int l = 1; l < LENGTHS; l++) {
        int64_t size[4] = {3, lengths[l]};
        check(body, size, 0, 1);
        if (lengths[l] <= 64) check(body, size, BAKE, 2);
    }
}

/* ---- column form ---- */
static const char column_sum[] = "reduce\ndim p ?\ndim r ?\ndim v ?\nbuffer in f32 ? ? 1\nbuffer out f32 ? 0 1\n"
                                 "%0 = load.f32 #0\n%1 = reduce_sum.f32 %0\n%2 = store.f32 #1 %1\n";

Test(reduce, columns) {
    static const char many[] =
        "reduce\ndim p ?\ndim r ?\ndim r ?\ndim v ?\nbuffer in f32 ? ? ? ?\nbuffer in f32 0 0 0 1\nbuffer in f32 ? 0 ? "
        "0\n"
        "buffer out f32 ? 0 0 ?\nbuffer out i64 ? 0 0 1\nbuffer out f32 ? ? ? 1\nbuffer out bool ? 0 0 1\n"
        "%0 = load.f32 #0\n%1 = load.f32 #1\n%2 = load.f32 #2\n%3 = mul.f32 %0 %1\n%4 = add.f32 %3 %2\n"
        "%5 = reduce_sum.f32 %4\n%6 = argmax.i64 %4\n%7 = mul.f32 %5 %1\n%8 = store.f32 #3 %7\n%9 = store.i64 #4 %6\n"
        "%10 = store.f32 #5 %4\n%11 = lt.bool %0 %1\n%12 = reduce_any.bool %11\n%13 = store.bool #6 %12\n";
    static const char costly[] =
        "reduce\ndim r ?\ndim v ?\nbuffer in f64 ? 1\nbuffer out f64 0 1\n"
        "%0 = load.f64 #0\n%1 = abs.f64 %0\n%2 = sqrt.f64 %1\n%3 = index.i64 #1\n%4 = cast.f64 %3\n%5 = mul.f64 %2 %4\n"
        "%6 = reduce_max.f64 %5\n%7 = store.f64 #1 %6\n";
    static const int64_t columns[] = {1, 3, 16, 63, 64, 65, 200, 0};
    for (int c = 0; c < 8; c++)
        for (int l = 0; l < LENGTHS - 3; l++) {
            int64_t size[4] = {1 + l % 3, lengths[l] > 255 ? 1000 : lengths[l], columns[c]};
            if (lengths[l] > 255 && c > 4) continue;
            check(column_sum, size, l & 1 ? BAKE : AT_BEGIN, l % 5 + 1);
            check(costly, size + 1, 0, l % 3 + 1);
            int64_t four[4] = {2, 3, size[1] > 255 ? 300 : size[1] ? size[1] : 1, columns[c]};
            if (l % 3 == 0) check(many, four, l & 2 ? STRETCH | BAKE : SPECIAL, 3);
        }
}

/* Few columns: several blocks at once, whole and not; sums, extremes with NaNs, what has no mask; where the number of the
 * row, two reduced axes or an argument are in the way. */
Test(reduce, few_columns) {
    static const char extremes[] =
        "reduce\ndim p ?\ndim r ?\ndim v ?\nbuffer in f64 ? ? 1\nbuffer in f64 0 0 1\nbuffer in f64 ? ? 0\n"
        "buffer out f64 ? 0 1\nbuffer out f64 ? 0 1\n%0 = load.f64 #0\n%1 = load.f64 #1\n%2 = load.f64 #2\n"
        "%3 = mul.f64 %0 %1\n%4 = add.f64 %3 %2\n%5 = reduce_max.f64 %4\n%6 = reduce_min.f64 %3\n"
        "%7 = store.f64 #3 %5\n%8 = store.f64 #4 %6\n";
    static const char bytes[] =
        "reduce\ndim r ?\ndim v ?\nbuffer in u8 ? 1\nbuffer in f16 ? ?\nbuffer out f32 0 1\nbuffer out f32 0 1\n"
        "%0 = load.u8 #0\n%1 = cast.f32 %0\n%2 = reduce_sum.f32 %1\n%3 = store.f32 #2 %2\n%4 = load.f16 #1\n"
        "%5 = cast.f32 %4\n%6 = mul.f32 %5 %1\n%7 = reduce_sum.f32 %6\n%8 = store.f32 #3 %7\n";
    static const char stored[] =
        "reduce\ndim r ?\ndim r ?\ndim v ?\nbuffer in f32 ? ? 1\nbuffer out f32 0 0 1\nbuffer out i64 0 0 1\n"
        "buffer out f32 ? ? 1\n%0 = load.f32 #0\n%1 = reduce_sum.f32 %0\n%2 = store.f32 #1 %1\n%3 = argmin.i64 %0\n"
        "%4 = store.i64 #2 %3\n%5 = abs.f32 %0\n%6 = store.f32 #3 %5\n";
    static const int64_t columns[] = {1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 24, 31, 32, 33, 48, 61, 64};
    static const int64_t rows[] = {0, 1, 100, 128, 257, 512, 640, 1024, 1100};
    for (int c = 0; c < 17; c++)
        for (int l = c % 2; l < 9; l += 2) {
            const int64_t size[3] = {1 + l % 3, rows[l], columns[c]}, three[3] = {3, l ? 150 : 0, columns[c]};
            check(column_sum, size, BAKE | (l & 2 ? AT_BEGIN : 0), l + 1);
            check(extremes, size, BAKE | SPECIAL | (l & 4 ? STRETCH : 0), 2 * l + 1);
            check(bytes, size + 1, BAKE | (l & 2 ? STRETCH : 0), 20);
            if (l) check(stored, three, BAKE, l);
        }
}

/* ---- rows ---- */
static const char norm[] =
    "row\ndim p ?\ndim r ?\nbuffer in f32 ? 1\nbuffer out f32 ? 1\nbuffer out f32 1 0\nbuffer out i64 1 0\nscalar f32\n"
    "%0 = load.f32 #0\n%1 = reduce_max.f32 %0\n%2 = sub.f32 %0 %1\n%3 = abs.f32 %2\n%4 = sqrt.f32 %3 kept\n"
    "%5 = reduce_sum.f32 %4\n%6 = div.f32 %4 %5\n%7 = store.f32 #1 %6\n%8 = scalar.f32 #0\n%9 = mul.f32 %5 %8\n"
    "%10 = store.f32 #2 %9\n%11 = argmax.i64 %2\n%12 = store.i64 #3 %11\n";

Test(row, exact_rows) {
    for (int l = 1; l < LENGTHS; l++) {
        int64_t size[4] = {4, lengths[l]};
        check(norm, size, (l & 1) * AT_BEGIN, l % 5 + 1);
        check(norm, size, STRETCH, l % 3 + 1);
        if (lengths[l] <= 64) check(norm, size, BAKE | SPECIAL, 3);
    }
}

/* Rows and reduce kernels reduce alike, over several dims and gathered loads too; a bool is kept and broadcast back. */
Test(row, several_dims) {
    static const char body[] =
        "row\ndim p ?\ndim p ?\ndim r ?\ndim r ?\nbuffer in f32 ? ? ? ?\nbuffer in f32 0 1 0 0\nbuffer in f32 0 0 ? 1\n"
        "buffer out f32 ? ? ? 1\nbuffer out bool ? ? ? ?\nbuffer out f32 1 ? 0 0\nbuffer out f32 ? ? ? ?\n"
        "%0 = load.f32 #0\n%1 = load.f32 #1\n%2 = load.f32 #2\n%3 = mul.f32 %0 %2\n%4 = reduce_sum.f32 %3\n"
        "%5 = lt.bool %0 %2 kept\n%6 = sub.f32 %3 %4\n%7 = reduce_min.f32 %6\n%8 = mul.f32 %7 %1\n"
        "%9 = select.f32 %5 %6 %8\n%10 = store.f32 #3 %9\n%11 = store.bool #4 %5\n%12 = store.f32 #5 %8\n"
        "%13 = store.f32 #6 %4\n";
    static const int64_t sizes[][4] = {{2, 3, 5, 7}, {1, 2, 3, 64}, {3, 1, 2, 100}, {1, 1, 2, 5000},
                                       {2, 2, 7, 1}, {2, 2, 0, 3},  {0, 2, 3, 3}};
    for (int s = 0; s < 7; s++)
        for (int flags = 0; flags < 16; flags += 3) check(body, sizes[s], flags & ~SPECIAL, s + 1);
}

static const char softmax[] =
    "row\ndim p ?\ndim r ?\nbuffer in f32 ? 1\nbuffer out f32 ? 1\n"
    "%0 = load.f32 #0\n%1 = reduce_max.f32 %0\n%2 = sub.f32 %0 %1\n%3 = exp.f32 %2 kept\n%4 = reduce_sum.f32 %3\n"
    "%5 = div.f32 %3 %4\n%6 = store.f32 #1 %5\n";
static const char log_softmax[] =
    "row\ndim p ?\ndim r ?\nbuffer in f32 ? 1\nbuffer out f32 ? 1\n"
    "%0 = load.f32 #0\n%1 = reduce_max.f32 %0\n%2 = sub.f32 %0 %1\n%3 = exp.f32 %2\n%4 = reduce_sum.f32 %3\n"
    "%5 = log.f32 %4\n%6 = sub.f32 %2 %5\n%7 = store.f32 #1 %6\n";

Test(row, softmax) {
    tolerance = 4e-6;
    for (int l = 1; l < LENGTHS; l++) {
        int64_t size[4] = {3, lengths[l]};
        check(softmax, size, 0, 2);
        check(log_softmax, size, STRETCH, 1);
        if (lengths[l] <= 64) check(softmax, size, BAKE, 1);
        if (lengths[l] <= 64) check(log_softmax, size, BAKE, 1);
    }
}

/* Column form: chunks of a few columns, of one vector, of several; values of columns that later passes read, costly ones
 * among them; kept values in an output, in scratch (which is stored before its last pass, along several dims). */
static const char columns_norm[] =
    "row\ndim p ?\ndim r ?\ndim v ?\nbuffer in f32 ? ? 1\nbuffer in f32 0 ? 0\nbuffer in f32 0 0 1\n"
    "buffer out f32 ? ? 1\nbuffer out f32 ? 0 1\nbuffer out i64 ? 0 1\nscalar f32\n"
    "%0 = load.f32 #0\n%1 = reduce_max.f32 %0\n%2 = sub.f32 %0 %1\n%3 = abs.f32 %2\n%4 = sqrt.f32 %3 kept\n"
    "%5 = reduce_sum.f32 %4\n%6 = sqrt.f32 %5\n%7 = div.f32 %4 %6\n%8 = load.f32 #1\n%9 = mul.f32 %7 %8\n"
    "%10 = load.f32 #2\n%11 = add.f32 %9 %10\n%12 = store.f32 #3 %11\n%13 = scalar.f32 #0\n%14 = mul.f32 %6 %13\n"
    "%15 = add.f32 %14 %10\n%16 = store.f32 #4 %15\n%17 = argmax.i64 %9\n%18 = store.i64 #5 %17\n";

Test(row, columns) {
    static const char norms[] =
        "row\ndim r ?\ndim v ?\nbuffer in f64 ? 1\nbuffer in f64 ? 0\nbuffer out f64 ? 1\nscalar f64\n"
        "%0 = load.f64 #0\n%1 = reduce_sum.f64 %0\n%2 = scalar.f64 #0\n%3 = mul.f64 %1 %2\n%4 = sub.f64 %0 %3\n"
        "%5 = mul.f64 %4 %4\n%6 = reduce_sum.f64 %5\n%7 = mul.f64 %6 %2\n%8 = abs.f64 %7\n%9 = sqrt.f64 %8\n"
        "%10 = div.f64 %4 %9\n%11 = load.f64 #1\n%12 = mul.f64 %10 %11\n%13 = store.f64 #2 %12\n";
    static const char several[] =
        "row\ndim p ?\ndim r ?\ndim r ?\ndim v ?\nbuffer in f32 ? ? ? 1\nbuffer in f32 0 ? 1 0\n"
        "buffer out f32 ? ? ? 1\nbuffer out bool ? ? ? ?\nbuffer out f32 ? 0 0 ?\nbuffer out f32 ? ? ? ?\n"
        "%0 = load.f32 #0\n%1 = load.f32 #1\n%2 = mul.f32 %0 %1\n%3 = reduce_sum.f32 %2\n%4 = lt.bool %0 %1 kept\n"
        "%5 = sub.f32 %2 %3\n%6 = reduce_min.f32 %5\n%7 = index.i64 #3\n%8 = cast.f32 %7\n%9 = mul.f32 %6 %8\n"
        "%10 = select.f32 %4 %5 %9\n%11 = store.f32 #2 %10\n%12 = store.bool #3 %4\n%13 = store.f32 #4 %9\n"
        "%14 = store.f32 #5 %3\n";
    static const char behind[] =
        "row\ndim r ?\ndim v ?\nbuffer in f32 ? 1\nbuffer out f32 ? 1\nbuffer out f32 ? 1\n%0 = load.f32 #0\n"
        "%1 = abs.f32 %0 kept\n%2 = reduce_sum.f32 %1\n%3 = div.f32 %1 %2\n%4 = store.f32 #1 %3\n"
        "%5 = reduce_max.f32 %3\n%6 = sub.f32 %3 %5\n%7 = store.f32 #2 %6\n";
    static const int64_t columns[] = {1, 16, 65, 130}, rows[] = {1, 2, 9, 64, 128, 300};
    static const int64_t grains[] = {5, 64, 16, 200, 33}; /* units of a tile and columns of a chunk */
    int turn = 0;
    for (int c = 0; c < 4; c++)
        for (int l = c % 2; l < 6; l += 2) {
            const int64_t size[4] = {1 + l % 3, rows[l], columns[c]},
                          four[4] = {2, 3, l < 4 ? rows[l] : 140, columns[c]};
            check(columns_norm, size, l & 1 ? BAKE | SPECIAL : AT_BEGIN, grains[turn++ % 5]);
            check(norms, size + 1, l & 2 ? STRETCH : 0, grains[turn++ % 5]);
            check(behind, size + 1, l & 1 ? BAKE : STRETCH, grains[turn++ % 5]);
            check(several, four, l & 2 ? STRETCH | BAKE : AT_BEGIN, grains[turn++ % 5]);
        }
    static const int64_t none[][4] = {{0, 20}, {2, 3, 0, 20}, {2, 9, 0}}; /* nothing is reduced; no columns */
    check(norms, none[0], 0, 16);
    check(several, none[1], 0, 16);
    check(columns_norm, none[2], 0, 16);
}

/* Kept values lie in the rows of outputs. */
Test(row, two_kept_values_and_two_outputs) {
    static const char body[] =
        "row\ndim p ?\ndim r ?\nbuffer in f32 ? 1\nbuffer out f32 ? 1\nbuffer out f32 ? 1\nbuffer out f32 ? 1\n"
        "%0 = load.f32 #0\n%1 = reduce_max.f32 %0\n%2 = sub.f32 %0 %1\n%3 = abs.f32 %2 kept\n%4 = sqrt.f32 %3 kept\n"
        "%5 = reduce_sum.f32 %4\n%6 = div.f32 %4 %5\n%7 = sub.f32 %3 %5\n%8 = store.f32 #1 %6\n%9 = store.f32 #2 %7\n"
        "%10 = store.f32 #3 %4\n";
    for (int l = 1; l < LENGTHS; l++) {
        int64_t size[4] = {3, lengths[l]};
        check(body, size, (l & 1) * STRETCH, 2);
    }
}

/* Not in that of an output which is stored before the last pass that reads the value. */
Test(row, kept_value_is_read_behind_a_store) {
    static const char body[] =
        "row\ndim p ?\ndim r ?\nbuffer in f32 ? 1\nbuffer out f32 ? 1\nbuffer out f32 ? 1\n%0 = load.f32 #0\n"
        "%1 = abs.f32 %0 kept\n%2 = reduce_sum.f32 %1\n%3 = div.f32 %1 %2\n%4 = store.f32 #1 %3\n"
        "%5 = reduce_max.f32 %3\n%6 = sub.f32 %3 %5\n%7 = store.f32 #2 %6\n";
    for (int l = 1; l < LENGTHS; l++) {
        int64_t size[4] = {3, lengths[l]};
        check(body, size, (l & 1) * STRETCH, 2);
    }
}

/* Not where a later pass loads what may be the same memory. */
Test(row, in_place_with_a_late_load) {
    static const char body[] =
        "dim p ?\ndim r ?\nbuffer in f32 ? 1\nbuffer out f32 ? 1\n%0 = load.f32 #0\n%1 = sqrt.f32 %0 kept\n"
        "%2 = reduce_sum.f32 %1\n%3 = div.f32 %1 %2\n%4 = mul.f32 %0 %3\n%5 = store.f32 #1 %4\n";
    enum { ROWS = 2, LENGTH = 100 };
    static float x[ROWS * LENGTH], y[ROWS * LENGTH];
    for (int level = 0; level < IR_LEVEL_COUNT; level++) {
        if (!host_has_level((ir_level)level)) continue;
        char text[2048];
        for (int i = 0; i < ROWS * LENGTH; i++) x[i] = (float)i;
        snprintf(text, sizeof text, "fusor-kernel 1\nkind row\nlevel %s\n%s", ir_levels[level].name, body);
        run_kernel r = run_compile(text);
        int64_t size[2] = {ROWS, LENGTH}, stride[4] = {LENGTH, 1, LENGTH, 1};
        _Alignas(64) char scratch[1024];
        void *apart[2] = {x, y}, *same[2] = {x, x};
        ir_kernel_args a = {
            .version = 1, .tune = {1}, .buffer = apart, .size = size, .stride = stride, .scratch = scratch};
        r.fn(&a, 0, ROWS);
        a.buffer = same;
        r.fn(&a, 0, ROWS);
        cr_assert_eq(memcmp(x, y, sizeof x), 0, "level %d", level);
    }
}

/* Baked and run-time lengths, and any grain, give the same bits, with approximated functions too. */
Test(row, baked_lengths_give_the_same_bits) {
    static float x[3 * 64], y[2][3 * 64];
    for (int i = 0; i < 3 * 64; i++) x[i] = sinf((float)i * 0.7f) * 5;
    for (int level = 0; level < IR_LEVEL_COUNT; level++) {
        if (!host_has_level((ir_level)level)) continue;
        for (int64_t n = 1; n <= 64; n += n < 20 ? 1 : 11)
            for (int which = 0; which < 2; which++) {
                for (int baked = 0; baked < 2; baked++) {
                    char text[2048], length[8] = "?";
                    const char *body = which ? log_softmax : softmax, *after = strstr(body, "dim r ?") + 7;
                    if (baked) snprintf(length, sizeof length, "%d", (int)n);
                    snprintf(text, sizeof text, "fusor-kernel 1\nkind row\nlevel %s\ndim p ?\ndim r %s%s",
                             ir_levels[level].name, length, after);
                    run_kernel r = run_compile(text);
                    int64_t size[2] = {3, n}, stride[4] = {n, 1, n, 1};
                    void *pointer[2] = {x, y[baked]};
                    _Alignas(64) char scratch[1024];
                    ir_kernel_args a = {.version = 1,
                                        .tune = {1 + baked},
                                        .buffer = pointer,
                                        .size = size,
                                        .stride = stride,
                                        .scratch = scratch};
                    r.fn(&a, 0, baked ? 2 : 3);
                }
                cr_assert_eq(memcmp(y[0], y[1], (size_t)n * 12), 0, "level %d length %d", level, (int)n);
            }
    }
}

/* As many rows at once as there are lanes: whole groups and what is left of them; written out and in loops. */
Test(row, short_rows) {
    static const char cheap[] =
        "row\ndim p ?\ndim r ?\nbuffer in f32 ? 1\nbuffer in f32 0 1\nbuffer in f32 1 0\nbuffer in f32 1 ?\n"
        "buffer out f32 ? 1\nbuffer out f32 1 ?\nbuffer out f64 1 0\nbuffer out i64 ? 0\n"
        "%0 = load.f32 #0\n%1 = load.f32 #1\n%2 = load.f32 #2\n%3 = load.f32 #3\n%4 = mul.f32 %0 %1\n%5 = add.f32 %4 "
        "%2\n"
        "%6 = reduce_sum.f32 %5\n%7 = sub.f32 %5 %6\n%8 = mul.f32 %7 %3\n%9 = store.f32 #4 %8\n%10 = store.f32 #5 %7\n"
        "%11 = cast.f64 %6\n%12 = store.f64 #6 %11\n%13 = argmin.i64 %8 variant 1\n%14 = store.i64 #7 %13\n";
    static const char integers[] =
        "reduce\ndim p ?\ndim p ?\ndim r ?\nbuffer in i32 ? ? 1\nbuffer out i64 ? 1 0\nbuffer out i32 ? 1 0\n"
        "buffer out i64 ? 1 0\n"
        "%0 = load.i32 #0\n%1 = cast.i64 %0\n%2 = reduce_sum.i64 %1\n%3 = store.i64 #1 %2\n%4 = reduce_min.i32 %0\n"
        "%5 = store.i32 #2 %4\n%6 = index.i64 #1\n%7 = index.i64 #2\n%8 = mul.i64 %6 %7\n%9 = reduce_max.i64 %8\n"
        "%10 = store.i64 #3 %9\n";
    static const char halves[] =
        "row\ndim p ?\ndim r ?\nbuffer in bf16 ? 1\nbuffer in f16 1 ?\nbuffer out bf16 ? 1\nbuffer out f16 ? 1\n"
        "buffer out f16 1 ?\nbuffer out bf16 1 0\n"
        "%0 = load.bf16 #0\n%1 = load.f16 #1\n%2 = cast.f32 %0\n%3 = cast.f32 %1\n%4 = mul.f32 %2 %3\n"
        "%5 = reduce_max.f32 %4\n%6 = sub.f32 %4 %5\n%7 = cast.bf16 %6\n%8 = store.bf16 #2 %7\n%9 = cast.f16 %4\n"
        "%10 = store.f16 #3 %9\n%11 = store.f16 #4 %9\n%12 = cast.bf16 %5\n%13 = store.bf16 #5 %12\n";
    static const int64_t length[] = {2, 3, 5, 8, 10, 16, 17, 24, 32, 33}, rows[] = {1, 4, 15, 16, 17, 35, 0};
    static const int flags[] = {BAKE, BAKE | SPECIAL | AT_BEGIN, BAKE | STRETCH, BAKE | STRETCH | AT_BEGIN};
    for (int l = 0; l < 10; l++)
        for (int q = 0; q < 7; q++) {
            int64_t size[4] = {rows[q], length[l]}, three[4] = {3, rows[q], length[l]};
            check(cheap, size, flags[(l + q) % 4] & ~SPECIAL, l % 2 ? 100 : 17);
            check(halves, size, flags[(l + q) % 4], l % 2 ? 100 : 17);
            check(norm, size, flags[(l + q + 1) % 4], l % 3 ? 100 : 16);
            check(sum_f32, size, flags[(l + q + 2) % 4], 100);
            check(integers, three, flags[(l + q + 3) % 4], q % 3 ? 100 : 13);
        }
}

/* Rows of pixels: their distance is baked or not, and the bits are the same. */
Test(row, short_rows_a_few_elements_apart) {
    static const ir_dtype types[] = {FUSOR_F32, FUSOR_F64, FUSOR_BF16, FUSOR_F16, FUSOR_U8, FUSOR_I16, FUSOR_I64};
    static const int rows[] = {1, 3, 8, 15, 16, 17, 32, 67};
    enum { APART = 4, MOST = 67, KINDS = sizeof types / sizeof *types };
    for (int level = 0; level < IR_LEVEL_COUNT; level++) {
        if (!host_has_level((ir_level)level)) continue;
        for (int which = 0; which < 2 * KINDS; which++)
            for (int apart = 2; apart <= APART; apart++)
                for (int n = 2; n <= apart; n++) {
                    const ir_dtype t = types[which % KINDS];
                    const char *T = ir_dtypes[t].name;
                    uint8_t x[MOST * APART * 8], y[2][MOST * APART * 8], z[2][MOST * 8];
                    for (int i = 0; i < MOST * APART; i++) {
                        bool fits;
                        const uint64_t bits = ir_bits_from_double(t, (double)(i * 37 % 101) / 8 + 1, &fits);
                        memcpy(x + i * ir_dtypes[t].bytes, &bits, ir_dtypes[t].bytes);
                    }
                    run_kernel r[2];
                    for (int baked = 0; baked < 2; baked++) {
                        char text[1024], by[12] = "?";
                        if (baked) snprintf(by, sizeof by, "%d", apart);
                        snprintf(text, sizeof text,
                                 "fusor-kernel 1\nkind row\nlevel %s\ndim p ?\ndim r %d\nbuffer in %s %s 1\n"
                                 "buffer out %s ? 1\nbuffer out %s 1 0\n%%0 = load.%s #0\n%%1 = reduce_max.%s %%0\n"
                                 "%%2 = %s.%s %%1 %%0\n%%3 = store.%s #1 %%2\n%%4 = store.%s #2 %%1\n",
                                 ir_levels[level].name, n, T, by, T, T, T, T, which < KINDS ? "sub" : "div", T, T, T);
                        r[baked] = run_compile(text);
                    }
                    for (int q = 0; q < 8; q++) {
                        for (int baked = 0; baked < 2; baked++) {
                            ir_kernel_args a = {.version = 1,
                                                .tune = {rows[q], rows[q]},
                                                .buffer = (void *[]){x, y[baked], z[baked]},
                                                .size = (int64_t[]){rows[q], n},
                                                .stride = (int64_t[]){apart, 1, n, 1, 1, 0}};
                            memset(y[baked], 0, sizeof y[baked]);
                            memset(z[baked], 0, sizeof z[baked]);
                            cr_assert_eq(r[baked].fn(&a, 0, 1), 0);
                        }
                        cr_assert(memcmp(y[0], y[1], sizeof y[0]) == 0 && memcmp(z[0], z[1], sizeof z[0]) == 0,
                                  "level %d: %d rows of %d %s, %d apart", level, rows[q], n, T, apart);
                    }
                }
    }
}

/* A sum of nothing but -0 is +0, in one lane as in accumulators. */
Test(row, short_rows_of_minus_zero) {
    float x[17 * 3], y[17];
    for (int i = 0; i < 17 * 3; i++) x[i] = -0.0f;
    for (int level = 0; level < IR_LEVEL_COUNT; level++) {
        char text[1024];
        if (!host_has_level((ir_level)level)) continue;
        snprintf(text, sizeof text, "fusor-kernel 1\nkind reduce\nlevel %s\ndim p ?\ndim r 3%s", ir_levels[level].name,
                 strstr(sum_f32, "dim r ?") + 7);
        run_kernel r = run_compile(text);
        ir_kernel_args a = {.version = 1,
                            .tune = {17, 17},
                            .buffer = (void *[]){x, y},
                            .size = (int64_t[]){17, 3},
                            .stride = (int64_t[]){3, 1, 1, 0}};
        cr_assert_eq(r.fn(&a, 0, 1), 0);
        for (int i = 0; i < 17; i++)
            cr_assert(y[i] == 0 && !signbit(y[i]), "level %d row %d: %g", level, i, (double)y[i]);
    }
}

Test(row, refuses_what_it_cannot_reduce) {
    char error[1024];
    static const char late[] =
        "fusor-kernel 1\nkind reduce\nlevel x86-64-v2\ndim p ?\ndim r ?\nbuffer in f32 ? 1\nbuffer out f32 ? 1\n"
        "%0 = load.f32 #0\n%1 = reduce_sum.f32 %0\n%2 = sub.f32 %0 %1\n%3 = store.f32 #1 %2\n";
    cr_assert_null(run_stage(late, FUSOR_CODEGEN_BLOB, NULL, error));
    cr_assert(strstr(error, "needs a row kernel"), "%s", error);
    static const char type[] =
        "fusor-kernel 1\nkind reduce\nlevel x86-64-v2\ndim r ?\nbuffer in bool 1\nbuffer out bool 0\n"
        "%0 = load.bool #0\n%1 = reduce_sum.bool %0\n%2 = store.bool #1 %1\n";
    cr_assert_null(run_stage(type, FUSOR_CODEGEN_BLOB, NULL, error));
    cr_assert(strstr(error, "reduce_sum of bool"), "%s", error);
}
