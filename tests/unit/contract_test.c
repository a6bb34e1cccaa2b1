/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* contract_test.c: the contraction kernel at every level the host has, run between guard pages and compared bit by bit
 * with loops that accumulate in the documented order (ir/schedule.h). Tiles (AMX) are emulated where the host has
 * none.
 *
 * In one file because all tests share the description of a problem, the guarded memory it runs in and the model of the
 * documented orders. */
#include "../amx/amx_emulate.h"
#include "../host_level.h"
#include "../share.h"
#include "ir/codegen_api.h"
#include "ir/kernel.h"
#include "plan_test.h"
#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const fusor_codegen_table *fusor_codegen_module(void);

static const ir_features TILES = IR_FEATURE_AMXINT8 | IR_FEATURE_AMXBF16 | IR_FEATURE_AMXFP16;

static bool host_has_features(ir_features f) {
    if (f & TILES) {
        if (!amx_can_emulate() || ((f & IR_FEATURE_AMXFP16) && !amx_runs_fp16())) return false;
        amx_emulate();
    }
    return (!(f & IR_FEATURE_AVXVNNI) || __builtin_cpu_supports("avxvnni")) &&
           (!(f & IR_FEATURE_VNNI) || __builtin_cpu_supports("avx512vnni")) &&
           (!(f & IR_FEATURE_BF16) || __builtin_cpu_supports("avx512bf16"));
}

/* ---- memory that ends (or begins) at a page nobody may touch ---- */
typedef struct guarded {
    char *map;
    size_t map_bytes;
    void *at;
} guarded;

static guarded guarded_new(size_t bytes, bool at_end) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (bytes + page - 1) / page * page;
    guarded g = {.map_bytes = inner + 2 * page};
    g.map = mmap(NULL, g.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(g.map, MAP_FAILED);
    if (inner) cr_assert_eq(mprotect(g.map + page, inner, PROT_READ | PROT_WRITE), 0);
    g.at = g.map + page + (at_end ? inner - bytes : 0);
    return g;
}

static void guarded_free(guarded *g) { munmap(g->map, g->map_bytes); }

/* ---- compiling ---- */
typedef struct code {
    void *map;
    size_t bytes;
    ir_kernel_fn run;
} code;

static void *take(void *user, size_t bytes) {
    (void)user;
    return malloc(bytes);
}

static fusor_codegen_result generate(const ir_kernel *k, uint32_t stage) {
    jmp_buf no_memory;
    fu_arena a;
    fu_str text;
    fu_error *why = calloc(1, sizeof *why);
    fusor_codegen_result r;
    fu_arena_init(&a, &no_memory);
    cr_assert_eq(setjmp(no_memory), 0);
    cr_assert_eq(ir_kernel_verify(k, why), FUSOR_OK, "%s", why->text);
    fu_str_init(&text, &a);
    ir_kernel_print(&text, k);
    fusor_codegen_request q = {.version = FUSOR_CODEGEN_VERSION,
                               .stage = stage,
                               .description = text.at,
                               .description_bytes = text.n,
                               .symbol = "kernel",
                               .allocate = take};
    int status = fusor_codegen_module()->generate(&q, &r);
    cr_assert_eq(status, 0, "%s\n%s", r.error, text.at);
    fu_arena_free(&a);
    free(why);
    return r;
}

static code compile(const ir_kernel *k) {
    fusor_codegen_result r = generate(k, FUSOR_CODEGEN_BLOB);
    code c = {.bytes = r.bytes};
    c.map = mmap(NULL, r.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(c.map, MAP_FAILED);
    memcpy(c.map, r.data, r.bytes);
    cr_assert_eq(mprotect(c.map, r.bytes, PROT_READ | PROT_EXEC), 0);
    c.run = (ir_kernel_fn)(void *)((char *)c.map + r.entry);
    free(r.data);
    return c;
}

/* ---- problems ---- */
enum { A, B, BIAS, ROW, OUT, OUT2, N_BUFFERS };
enum { PLAIN, BIAS_RELU, TWO_OUTPUTS, SCALED_A, LONG }; /* epilogue, or a program on operand 0 */
typedef struct shape {
    int64_t batch[2], m, n, k;
} shape;
typedef struct problem {
    int level;
    ir_features features; /* of the target; the kernel has those that it uses */
    int values; /* 0: like a user's; 1: the least and the greatest; bf16 2: any but the largest; 3: sums that cancel below 2^-126 */
    ir_dtype in, in_b, out;
    int program;
    int n_batch;
    bool a_batched[2], b_batched[2];    /* does the operand vary along the batch dim? */
    bool transpose_a, transpose_b, gap; /* gap: nothing is contiguous */
    int64_t baked_n, baked_k;           /* 0: run-time */
    ir_tile tile;                       /* zeros: the level's */
    int last;                           /* vectors of the last panel's own tile, where that fits; 0: it has none */
    bool is_direct;
    shape direct; /* its sizes */
} problem;
typedef struct layout {
    int64_t stride[N_BUFFERS][5], elements[N_BUFFERS];
} layout; /* stride by b0 b1 m n k */

static void set_strides(layout *l, int buffer, const int64_t *size, const int *order, int n_order, int64_t gap) {
    int64_t stride = gap, last = 0;
    for (int i = n_order - 1; i >= 0; i--) {
        l->stride[buffer][order[i]] = stride;
        last += (size[order[i]] - 1) * stride;
        stride *= size[order[i]];
    }
    l->elements[buffer] = stride == 0 ? 0 : last + 1;
}

static layout lay_out(const problem *p, const shape *s) {
    layout l;
    memset(&l, 0, sizeof l);
    int64_t size[5] = {s->batch[0], s->batch[1], s->m, s->n, s->k}, gap = p->gap ? 3 : 1;
    for (int o = 0; o < 4; o++) {
        int order[4], n = 0;
        for (int d = 0; d < p->n_batch; d++)
            if (o >= 2 || (o == 0 ? p->a_batched[d] : p->b_batched[d])) order[n++] = d;
        bool swap = o == 0 ? p->transpose_a : o == 1 && p->transpose_b;
        int outer = o == 1 ? 4 : 2, inner = o == 0 ? 4 : 3;
        order[n++] = swap ? inner : outer;
        order[n++] = swap ? outer : inner;
        set_strides(&l, o < 2 ? o : o == 2 ? OUT : OUT2, size, order, n, gap);
    }
    set_strides(&l, BIAS, size, (int[]){3}, 1, 1);
    set_strides(&l, ROW, size, (int[]){2}, 1, 1);
    return l;
}

static uint16_t add(ir_kernel *k, int op, ir_dtype t, int n_in, int x, int y, int index) {
    k->inst[k->n_insts] = (ir_kinst){.op = (uint16_t)op,
                                     .dtype = t,
                                     .n_in = (uint8_t)n_in,
                                     .in = {(uint16_t)x, (uint16_t)y},
                                     .index = (uint16_t)index};
    return (uint16_t)k->n_insts++;
}

/* Which of b0 b1 m n k are dims of the kernel. */
static int dims_of(const problem *p, int which[5]) {
    int n = 0;
    for (int d = 0; d < p->n_batch; d++) which[n++] = d;
    for (int d = 2; d < 5; d++) which[n++] = d;
    return n;
}

static ir_kernel describe(const problem *p) {
    ir_kernel k;
    memset(&k, 0, sizeof k);
    k.kind = IR_KERNEL_CONTRACT;
    ir_dtype acc = ir_contract_acc(p->in, p->in_b, p->out);
    ir_target target = {(ir_level)p->level, p->features};
    ir_dot dot = ir_contract_dot(target, p->in, p->in_b, acc);
    k.level = target.level;
    k.features = ir_contract_features(target, p->in, p->in_b, acc);
    int which[5];
    k.n_dims = dims_of(p, which);
    layout l = lay_out(p, p->is_direct ? &p->direct : &(shape){{1000, 1000}, 1000, 1000, 1000});
    k.is_direct = p->is_direct;
    k.n_buffers = N_BUFFERS;
    for (int b = 0; b < N_BUFFERS; b++) {
        k.buffer[b].dtype = b == A ? p->in : b == B ? p->in_b : b == ROW ? p->in : p->out;
        k.buffer[b].is_output = b >= OUT;
        for (int d = 0; d < k.n_dims; d++) {
            int64_t s = l.stride[b][which[d]];
            k.buffer[b].stride[d] = s <= 1 || (p->is_direct && which[d] >= 2) ? s : IR_STRIDE_RUNTIME;
        }
    }
    for (int d = 0; d < k.n_dims; d++) {
        int64_t baked = which[d] == 3 ? p->baked_n : which[d] == 4 ? p->baked_k : 0;
        if (p->is_direct && which[d] >= 2) baked = (&p->direct.m)[which[d] - 2];
        k.dim[d] = (ir_kdim){"bbmnk"[which[d]], baked ? baked : IR_SIZE_RUNTIME};
    }
    int a = add(&k, IR_K_LOAD, p->in, 0, 0, 0, A), b = add(&k, IR_K_LOAD, p->in_b, 0, 0, 0, B);
    if (p->program == SCALED_A) a = add(&k, IR_OP_MUL, p->in, 2, a, add(&k, IR_K_LOAD, p->in, 0, 0, 0, ROW), 0);
    int x = add(&k, IR_OP_MATMUL, p->out, 2, a, b, 0);
    if (p->program == TWO_OUTPUTS) add(&k, IR_K_STORE, p->out, 1, x, 0, OUT2);
    if (p->program == BIAS_RELU || p->program == TWO_OUTPUTS || p->program == LONG) {
        x = add(&k, IR_OP_ADD, p->out, 2, x, add(&k, IR_K_LOAD, p->out, 0, 0, 0, BIAS), 0);
        for (int i = 0; i < (p->program == LONG ? 20 : 1); i++) x = add(&k, IR_OP_RELU, p->out, 1, x, 0, 0);
    }
    add(&k, IR_K_STORE, p->out, 1, x, 0, OUT);
    if (p->is_direct && !p->tile.mr) {
        k.tile = ir_contract_direct_tile(k.level, ir_contract_acc(p->in, p->in_b, p->out), (int)p->direct.m,
                                         (int)p->direct.n);
        return k;
    }
    k.tile = p->tile.mr ? p->tile
             : dot      ? ir_dot_tile(k.level, dot, -1, p->baked_n ? p->baked_n : -1)
                        : ir_contract_tile_of(k.level, acc, -1, p->baked_n ? p->baked_n : -1);
    k.last_columns = p->last ? ir_kernel_last_columns(&k, k.tile.nr + p->last * ir_levels[k.level].lanes) : 0;
    k.can_sweep = ir_kernel_can_sweep(&k);
    return k;
}

/* ---- values ---- */
static uint64_t random_state = 1;
static uint64_t random_bits(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state * 0x2545f4914f6cdd1du;
}

static float of_bf16(uint16_t bits) {
    uint32_t word = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &word, 4);
    return x;
}

static float of_f16(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    float x = exponent ? ldexpf((float)(fraction + 1024), exponent - 25) : ldexpf((float)fraction, -24);
    return bits >> 15 ? -x : x; /* no infinities here */
}

static uint16_t to_f16(float x) { /* of a magnitude up to 2 */
    float magnitude = fabsf(x);
    int exponent = 0;
    frexpf(magnitude, &exponent);
    if (exponent < -13 || magnitude == 0) exponent = -13;
    int bits = (int)rintf(ldexpf(magnitude, 11 - exponent)); /* 1024 of it is one step of the exponent */
    bits += bits >= 1024 || exponent > -13 ? (exponent + 13) << 10 : 0;
    return (uint16_t)(bits | (x < 0) << 15);
}

static uint16_t to_bf16(float x) { /* to nearest even; no NaNs here */
    uint32_t word;
    memcpy(&word, &x, 4);
    return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

static void fill(ir_dtype t, void *p, int64_t n, int values) {
    for (int64_t i = 0; i < n; i++) {
        uint64_t r = random_bits();
        double x = (double)(int64_t)r / 9.3e18;
        if (t == FUSOR_BF16) {
            uint16_t half = to_bf16((float)x), tiny = (uint16_t)(r & 0x807f) | (uint16_t)(r >> 20 & 3) << 7;
            if (values == 1) half = r >> 40 & 1 ? tiny : r >> 41 & 1 ? (uint16_t)(r >> 50 << 15) : half;
            if (values == 2) half = (uint16_t)r & 0xbfff;
            if (values == 3) half = (uint16_t)(r >> 40 << 15 | (70 + (r >> 30 & 1)) << 7 | (r >> 31 & 1));
            ((uint16_t *)p)[i] = half;
            continue;
        }
        if (t == FUSOR_F16) {
            uint16_t half = to_f16((float)x);
            if (values) half = r >> 40 & 1 ? (uint16_t)(r & 0x83ff) : half; /* subnormals */
            ((uint16_t *)p)[i] = half;
            continue;
        }
        if (ir_dtypes[t].bytes == 1 && values == 1)
            r = r >> 32 & 1 ? (r >> 33 & 1 ? 0x80 : 0x7f) : (r >> 33 & 1 ? 0xff : 0);
        if (t == FUSOR_F32) ((float *)p)[i] = (float)x;
        else if (t == FUSOR_F64) ((double *)p)[i] = x;
        else memcpy((char *)p + i * ir_dtypes[t].bytes, &r, ir_dtypes[t].bytes);
    }
}

static int64_t get_int(ir_dtype t, const void *p, int64_t i) {
    switch (t) {
    case FUSOR_I8: return ((const int8_t *)p)[i];
    case FUSOR_U8: return ((const uint8_t *)p)[i];
    case FUSOR_I16: return ((const int16_t *)p)[i];
    case FUSOR_I32: return ((const int32_t *)p)[i];
    default: return ((const int64_t *)p)[i];
    }
}

static float float_at(const problem *p, const guarded *mem, int operand, int64_t i, int64_t row) {
    uint16_t bits = ((uint16_t *)mem[operand].at)[i];
    float x = p->in == FUSOR_F16 ? of_f16(bits) : of_bf16(bits);
    if (operand == B || p->program != SCALED_A) return x;
    uint16_t scale = ((uint16_t *)mem[ROW].at)[row];
    return p->in == FUSOR_F16 ? of_f16(to_f16(x * of_f16(scale))) : of_bf16(to_bf16(x * of_bf16(scale)));
}

static float high_part(float x) {
    uint32_t word;
    memcpy(&word, &x, 4);
    word &= 0xffff0000;
    memcpy(&x, &word, 4);
    return x;
}

/* The order of tiles: two sums of every other product of a step, added, and added to what is before; of elements that
 * are cut, four times, of their parts. */
static double element_of_tiles(const problem *p, const layout *l, const guarded *mem, int64_t kb, const shape *s,
                               int64_t a, int64_t b, int64_t row, bool is_cut) {
    enum { STEP = 32 };
    static const bool is_low[4][2] = {{false, false}, {false, true}, {true, true}, {true, false}};
    float total = 0;
    for (int64_t k0 = 0; k0 < s->k; k0 += kb) {
        float sum = 0;
        for (int64_t step = k0; step < s->k && step < k0 + kb; step += STEP) {
            for (int q = 0; q < (is_cut ? 4 : 1); q++) {
                float part[2] = {0, 0};
                for (int64_t k = step; k < s->k && k < step + STEP; k++) {
                    float x[2] = {float_at(p, mem, A, a + k * l->stride[A][4], row),
                                  float_at(p, mem, B, b + k * l->stride[B][4], row)};
                    for (int i = 0; i < 2 && is_cut; i++)
                        x[i] = is_low[q][i] ? x[i] - high_part(x[i]) : high_part(x[i]);
                    part[k & 1] = fmaf(x[0], x[1], part[k & 1]);
                }
                sum += part[0] + part[1];
            }
        }
        total = k0 ? total + sum : sum;
    }
    return total;
}

/* One element by the documented order; the integer value in *sum_int. */
static double element(const problem *p, const layout *l, const guarded *mem, int64_t kb, const shape *s,
                      const int64_t *at, int64_t *sum_int) {
    int64_t a = 0, b = 0;
    for (int d = 0; d < 4; d++) {
        a += at[d] * l->stride[A][d];
        b += at[d] * l->stride[B][d];
    }
    *sum_int = 0;
    ir_dot dot = ir_contract_dot((ir_target){(ir_level)p->level, p->features}, p->in, p->in_b, FUSOR_F32);
    if (ir_dot_is_tile(dot)) return element_of_tiles(p, l, mem, kb, s, a, b, at[2], dot == IR_DOT_TILE_CUT);
    bool fma_level = p->level >= IR_LEVEL_V3, is_double = p->in == FUSOR_F64;
    double total = 0;
    uint64_t whole = 0;
    for (int64_t k0 = 0; k0 < s->k; k0 += kb) {
        double sum = 0;
        for (int64_t k = k0; k < s->k && k < k0 + kb; k++) {
            int64_t ai = a + k * l->stride[A][4], bi = b + k * l->stride[B][4];
            if (ir_is_int(p->in)) {
                uint64_t x = (uint64_t)get_int(p->in, mem[A].at, ai);
                if (p->program == SCALED_A) {
                    x *= (uint64_t)get_int(p->in, mem[ROW].at, at[2]);
                    x = (uint64_t)get_int(p->in, &x, 0); /* wraps */
                }
                whole += x * (uint64_t)get_int(p->in_b, mem[B].at, bi);
            } else if (is_double) {
                double x = ((double *)mem[A].at)[ai], y = ((double *)mem[B].at)[bi];
                if (p->program == SCALED_A) x *= ((double *)mem[ROW].at)[at[2]];
                volatile double product = x * y;
                sum = fma_level ? fma(x, y, sum) : product + sum;
            } else if (ir_is_half(p->in)) {
                float x = float_at(p, mem, A, ai, at[2]), y = float_at(p, mem, B, bi, at[2]);
                volatile float product = x * y;
                sum = fma_level ? fmaf(x, y, (float)sum) : product + (float)sum;
            } else {
                float x = ((float *)mem[A].at)[ai], y = ((float *)mem[B].at)[bi];
                if (p->program == SCALED_A) x *= ((float *)mem[ROW].at)[at[2]];
                volatile float product = x * y;
                sum = fma_level ? fmaf(x, y, (float)sum) : product + (float)sum;
            }
        }
        if (k0 == 0) total = sum;
        else total = is_double ? total + sum : (float)((float)total + (float)sum);
    }
    *sum_int = (int64_t)whole;
    return total;
}

/* ---- one call ---- */
static void run_phases(ir_kernel_fn run, ir_kernel_args *args, const ir_launch *launch, int first_phase) {
    for (int ph = first_phase; ph < launch->n_phases; ph++) {
        args->phase = (uint32_t)ph;
        for (int64_t t = launch->tiles[ph]; t-- > 0;) cr_assert_eq(run(args, t, t + 1), 0);
    }
}

static void check(const problem *p, const ir_kernel *k, ir_kernel_fn run, const shape *s, const int64_t *tune,
                  bool at_end) {
    layout l = lay_out(p, s);
    guarded mem[N_BUFFERS];
    void *buffer[N_BUFFERS];
    for (int b = 0; b < N_BUFFERS; b++) {
        ir_dtype t = k->buffer[b].dtype;
        mem[b] = guarded_new((size_t)l.elements[b] * ir_dtypes[t].bytes, at_end);
        buffer[b] = mem[b].at;
        fill(t, mem[b].at, l.elements[b], p->values);
    }
    int which[5], n_dims = dims_of(p, which);
    int64_t all[5] = {s->batch[0], s->batch[1], s->m, s->n, s->k}, size[5], stride[N_BUFFERS * 5];
    for (int d = 0; d < n_dims; d++) size[d] = all[which[d]];
    for (int b = 0; b < N_BUFFERS; b++)
        for (int d = 0; d < n_dims; d++) stride[b * n_dims + d] = l.stride[b][which[d]];
    ir_kernel_args args = {.version = IR_KERNEL_ABI, .buffer = buffer, .size = size, .stride = stride};
    memcpy(args.tune, tune, sizeof args.tune);
    ir_launch launch;
    ir_kernel_launch(k, size, args.tune, &launch);
    cr_assert_eq(launch.scratch_bytes % 64, 0);
    guarded scratch = guarded_new((size_t)launch.scratch_bytes, true),
            shared = guarded_new((size_t)(launch.shared_bytes + 63) / 64 * 64, true);
    memset(scratch.at, 0xff, (size_t)launch.scratch_bytes); /* NaNs where something is used before it is made */
    memset(shared.at, 0xff, (size_t)launch.shared_bytes);
    args.scratch = scratch.at;
    args.shared = shared.at;
    run_phases(run, &args, &launch, 0);

    int64_t at[5] = {0};
    for (at[0] = 0; at[0] < s->batch[0]; at[0]++)
        for (at[1] = 0; at[1] < s->batch[1]; at[1]++)
            for (at[2] = 0; at[2] < s->m; at[2]++)
                for (at[3] = 0; at[3] < s->n; at[3]++) {
                    int64_t o = 0, o2 = 0, si;
                    for (int d = 0; d < 4; d++) o += at[d] * l.stride[OUT][d], o2 += at[d] * l.stride[OUT2][d];
                    double x = element(p, &l, mem, k->tile.kb, s, at, &si), y = x;
                    bool biased = p->program == BIAS_RELU || p->program == TWO_OUTPUTS || p->program == LONG;
#define WHERE                                                                                                          \
    "level %s features %x %s %s values %d program %d m %ld n %ld k %ld at %ld,%ld,%ld,%ld", ir_levels[p->level].name,  \
        p->features, ir_dtypes[p->in].name, ir_dtypes[p->in_b].name, p->values, p->program, (long)s->m, (long)s->n,    \
        (long)s->k, (long)at[0], (long)at[1], (long)at[2], (long)at[3]
                    if (p->out == FUSOR_F32) {
                        if (biased) y = (float)x + ((float *)mem[BIAS].at)[at[3]], y = (float)y < 0 ? 0 : (float)y;
                        float want = (float)y, raw = (float)x;
                        cr_assert_eq(memcmp(&want, (float *)mem[OUT].at + o, 4), 0, WHERE);
                        if (p->program == TWO_OUTPUTS)
                            cr_assert_eq(memcmp(&raw, (float *)mem[OUT2].at + o2, 4), 0, WHERE);
                    } else if (p->out == FUSOR_F64) {
                        if (biased) y = x + ((double *)mem[BIAS].at)[at[3]], y = y < 0 ? 0 : y;
                        cr_assert_eq(memcmp(&y, (double *)mem[OUT].at + o, 8), 0, WHERE);
                        if (p->program == TWO_OUTPUTS)
                            cr_assert_eq(memcmp(&x, (double *)mem[OUT2].at + o2, 8), 0, WHERE);
                    } else {
                        uint64_t raw = (uint64_t)si, want = raw;
                        unsigned bits = 8u * ir_dtypes[p->out].bytes;
                        if (biased) {
                            want += (uint64_t)get_int(p->out, mem[BIAS].at, at[3]);
                            if ((int64_t)(want << (64 - bits)) < 0) want = 0;
                        }
                        cr_assert_eq(memcmp(&want, (char *)mem[OUT].at + o * bits / 8, bits / 8), 0, WHERE);
                        if (p->program == TWO_OUTPUTS)
                            cr_assert_eq(memcmp(&raw, (char *)mem[OUT2].at + o2 * bits / 8, bits / 8), 0, WHERE);
                    }
                }
    /* Operand 1 as it was packed serves later calls. */
    if (s->m > 0 && s->n > 0 && launch.n_phases > 1 && tune[IR_TUNE_CONTRACT_B] == IR_CONTRACT_B_PACKED) {
        memset(scratch.at, 0xff, (size_t)launch.scratch_bytes);
        void *before = malloc((size_t)l.elements[OUT] * ir_dtypes[p->out].bytes + 1);
        memcpy(before, mem[OUT].at, (size_t)l.elements[OUT] * ir_dtypes[p->out].bytes);
        memset(mem[B].at, 0xff, (size_t)l.elements[B] * ir_dtypes[p->in_b].bytes);
        run_phases(run, &args, &launch, 1);
        cr_assert_eq(memcmp(before, mem[OUT].at, (size_t)l.elements[OUT] * ir_dtypes[p->out].bytes), 0,
                     "phase 1 read operand 1");
        free(before);
    }
    for (int b = 0; b < N_BUFFERS; b++) guarded_free(&mem[b]);
    guarded_free(&scratch);
    guarded_free(&shared);
}

static problem plain(int level, ir_dtype t, int program) {
    ir_dtype out = ir_is_float(t) ? t : ir_dtypes[t].bytes == 1 ? FUSOR_I32 : FUSOR_I64;
    return (problem){.level = level, .in = t, .in_b = t, .out = out, .program = program};
}

static int64_t any_of(const int64_t *values, int n) { return values[random_bits() % (unsigned)n]; }

/* Compiles once, runs `count` random sizes. */
static void check_sizes(const problem *p, int count) {
    static unsigned number;
    if (!(p->features ? host_has_level(p->level) : case_has_level(number++, p->level))) return;
    if (!host_has_features(p->features)) return;
    static const int64_t mn[] = {0, 1, 2, 3, 5, 7, 11, 12, 13, 16, 17, 24, 31, 32, 33, 47, 64, 65, 97};
    static const int64_t ks[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 127};
    static const int64_t blocks[] = {0, 1, 2, 3, 100};
    ir_kernel k = describe(p);
    code c = compile(&k);
    for (int i = 0; i < count; i++) {
        shape s = {{1, 1}, any_of(mn, 19), any_of(mn, 19), any_of(ks, 17)};
        if (i % 8 == 7)
            s = (shape){
                {1, 1},
                any_of(mn, 9),
                any_of(mn, 9),
                any_of((int64_t[]){511, 512, 513, 1024, 1031, 2047, 2048, 2051, 4096, 4131}, k.tile.kb > 512 ? 10 : 5)};
        for (int d = 0; d < p->n_batch; d++) s.batch[d] = 1 + (int64_t)(random_bits() % 3);
        if (p->baked_n) s.n = p->baked_n;
        if (p->baked_k) s.k = p->baked_k;
        const int lanes = ir_levels[p->level].lanes;
        if (p->last && i % 4) /* of panels that the last tile is for; else whatever comes */
            s.n = (1 + i % 2) * k.tile.nr + p->last * lanes - (int64_t)(random_bits() % (unsigned)lanes);
        int64_t tune[IR_TUNE_COUNT] = {any_of(blocks, 5) * k.tile.mr, any_of(blocks, 5) * k.tile.nr,
                                       (int64_t)(random_bits() % 4), (int64_t)(random_bits() & 1)};
        if (ir_dot_is_tile(ir_kernel_contract_dot(&k))) {
            tune[IR_TUNE_CONTRACT_PART] = any_of((int64_t[]){0, 16, 32, 40, 256, 5000}, 6);
            tune[IR_TUNE_CONTRACT_GROUP] = any_of(blocks, 5);
            tune[IR_TUNE_CONTRACT_PREFETCH] =
                any_of((int64_t[]){IR_CONTRACT_PREFETCH_NONE, IR_CONTRACT_PREFETCH_SOON, IR_CONTRACT_PREFETCH_ALL}, 3);
        }
        check(p, &k, c.run, &s, tune, i & 1);
    }
    munmap(c.map, c.bytes);
}

/* Lanes go along k, and whole vectors of rows are stored: those of the last column beyond the block. */
Test(contract, the_last_stores_of_a_block_are_in_scratch) {
    if (!host_has_level(IR_LEVEL_V4)) return;
    static const int mr[] = {1, 5, 6, 8, 9, 12}, nv[] = {1, 4, 4, 3, 3, 2};
    for (int t = 0; t < 6; t++) {
        problem p = plain(IR_LEVEL_V4, FUSOR_F32, SCALED_A);
        p.tile = (ir_tile){mr[t], 16 * nv[t], 512};
        ir_kernel k = describe(&p);
        code c = compile(&k);
        for (int panels = 1; panels <= 8; panels++)
            for (int64_t columns = 1; columns <= 33; columns += 16) {
                const shape s = {{1, 1}, mr[t] * panels, 16 * nv[t], columns};
                const int64_t tune[IR_TUNE_COUNT] = {s.m, s.n};
                check(&p, &k, c.run, &s, tune, true);
            }
        munmap(c.map, c.bytes);
    }
}

#define FOR_LEVELS for (int level = 0; level < IR_LEVEL_COUNT; level++)

Test(contract, f32_layouts) {
    FOR_LEVELS
    for (int i = 0; i < 8; i++) {
        problem p = plain(level, FUSOR_F32, i & 4 ? BIAS_RELU : PLAIN);
        p.transpose_a = i & 1;
        p.transpose_b = i & 2;
        check_sizes(&p, 40);
    }
}

Test(contract, f32_strided) {
    FOR_LEVELS {
        problem p = plain(level, FUSOR_F32, BIAS_RELU);
        p.gap = true;
        check_sizes(&p, 25);
    }
}

Test(contract, small_k_block) { /* many K blocks at little cost */
    FOR_LEVELS {
        problem p = plain(level, FUSOR_F32, BIAS_RELU);
        p.tile = ir_contract_tile((ir_level)level, FUSOR_F32);
        p.tile.kb = 7;
        check_sizes(&p, 25);
    }
}

Test(contract, programs) {
    FOR_LEVELS
    for (int i = 0; i < 2; i++) {
        problem p = plain(level, FUSOR_F32, i ? SCALED_A : TWO_OUTPUTS);
        check_sizes(&p, 25);
        p.transpose_a = p.transpose_b = true;
        check_sizes(&p, 25);
    }
}

Test(contract, batches) {
    FOR_LEVELS
    for (int i = 0; i < 4; i++) {
        problem p = plain(level, FUSOR_F32, BIAS_RELU);
        p.n_batch = 1 + (i & 1);
        p.a_batched[0] = i != 3;
        p.a_batched[1] = i == 1;
        p.b_batched[0] = i & 2;
        p.b_batched[1] = i == 1 || i == 3;
        check_sizes(&p, 16);
    }
}

Test(contract, types) {
    static const ir_dtype types[] = {FUSOR_F64, FUSOR_I64, FUSOR_I32, FUSOR_I16, FUSOR_I8, FUSOR_U8};
    FOR_LEVELS
    for (int i = 0; i < 12; i++) {
        problem p = plain(level, types[i / 2], i & 1 ? TWO_OUTPUTS : BIAS_RELU);
        p.transpose_b = i & 1;
        if (p.in == FUSOR_U8) p.in_b = FUSOR_I8;
        check_sizes(&p, 16);
    }
}

/* What a call of a kernel of tiles leaves behind; and that it was one, unless the machine has the instructions
 * itself. */
static void check_tiles(const long before[AMX_KINDS]) {
    cr_assert(amx_is_released());
    if (!amx_can_emulate() || amx_has_hardware()) return;
    for (amx_kind i = 0; i < AMX_KINDS; i++) cr_assert_gt(amx_count(i), before[i]);
}

/* Words of several elements: every pair of types, layout, program and set of features, and values that the instructions
 * are not made for: the largest products of integers, subnormal bf16. */
static void check_dots(ir_dtype a, ir_dtype b, int n_values, int count) {
    static const ir_target targets[] = {{IR_LEVEL_V2, 0},
                                        {IR_LEVEL_V3, 0},
                                        {IR_LEVEL_V3, IR_FEATURE_AVXVNNI},
                                        {IR_LEVEL_V4, 0},
                                        {IR_LEVEL_V4, IR_FEATURE_VNNI},
                                        {IR_LEVEL_V4, IR_FEATURE_BF16},
                                        {IR_LEVEL_V4, IR_FEATURE_AMXBF16},
                                        {IR_LEVEL_V4, TILES}};
    for (size_t t = 0; t < sizeof targets / sizeof *targets; t++) {
        ir_dtype acc = ir_contract_acc(a, b, FUSOR_F32);
        if (targets[t].features && !ir_contract_features(targets[t], a, b, acc)) continue;
        long before[AMX_KINDS];
        for (amx_kind i = 0; i < AMX_KINDS; i++) before[i] = amx_count(i);
        for (int i = 0; i < 10; i++) {
            problem p = plain((int)targets[t].level, a,
                              i >= 8  ? PLAIN
                              : i & 4 ? SCALED_A
                              : i & 1 ? TWO_OUTPUTS
                                      : BIAS_RELU);
            p.in_b = b;
            p.features = targets[t].features;
            p.out = acc;
            p.transpose_a = i & 1;
            p.transpose_b = i & 2;
            p.gap = i == 6 || i == 9;
            p.values = i % n_values;
            p.n_batch = i == 5 || i == 9;
            p.last = i == 2 || i == 6;
            p.a_batched[0] = true;
            if (i == 3 || i == 7) { /* the tile for few columns; short K blocks */
                ir_dot dot = ir_contract_dot(targets[t], a, b, acc);
                p.tile = dot ? ir_dot_tile(targets[t].level, dot, -1, i == 3 ? 10 : -1)
                             : ir_contract_tile(targets[t].level, acc);
                if (i == 7) p.tile.kb = ir_dot_is_tile(dot) ? ir_dots[dot].step : 8;
            }
            check_sizes(&p, count);
        }
        if (targets[t].features & TILES) check_tiles(before);
    }
}

Test(contract, dots_of_unsigned_and_signed) {
    check_dots(FUSOR_U8, FUSOR_I8, 2, 24);
    check_dots(FUSOR_I8, FUSOR_U8, 2, 24);
}
Test(contract, dots_of_signed) { check_dots(FUSOR_I8, FUSOR_I8, 2, 24); }
Test(contract, dots_of_unsigned) { check_dots(FUSOR_U8, FUSOR_U8, 2, 24); }
Test(contract, dots_of_f16) { check_dots(FUSOR_F16, FUSOR_F16, 2, 48); }
Test(contract, dots_of_bf16) { check_dots(FUSOR_BF16, FUSOR_BF16, 4, 48); }

Test(contract, baked) {
    FOR_LEVELS
    for (int i = 0; i < 3; i++) {
        problem p = plain(level, FUSOR_F32, BIAS_RELU);
        p.baked_n = i != 1 ? 10 + 22 * i : 0;
        p.baked_k = i != 0 ? 33 + i : 0;
        check_sizes(&p, 10);
    }
}

Test(contract, tiles_fill_their_columns) {
    static const struct {
        ir_level level;
        ir_dtype acc;
        int64_t m, n;
        int mr, nr;
    } cases[] = {
        {IR_LEVEL_V4, FUSOR_F32, 256, 256, 9, 48},   {IR_LEVEL_V4, FUSOR_F32, 256, 96, 9, 48},
        {IR_LEVEL_V4, FUSOR_F32, 1000, 1000, 9, 48}, {IR_LEVEL_V4, FUSOR_F32, -1, -1, 9, 48},
        {IR_LEVEL_V4, FUSOR_F32, 8, 1024, 8, 48},    {IR_LEVEL_V4, FUSOR_F32, 32, 1024, 8, 48},
        {IR_LEVEL_V4, FUSOR_F32, 12, 128, 6, 64},    {IR_LEVEL_V4, FUSOR_F32, 256, 10, 16, 16},
        {IR_LEVEL_V4, FUSOR_F64, 256, 256, 6, 32},   {IR_LEVEL_V4, FUSOR_F64, 256, 16, 12, 16},
        {IR_LEVEL_V4, FUSOR_I32, 256, 256, 12, 32},  {IR_LEVEL_V3, FUSOR_F32, 256, 256, 6, 16},
        {IR_LEVEL_V3, FUSOR_F32, 256, 24, 4, 24},    {IR_LEVEL_V3, FUSOR_F32, 256, 7, 8, 8},
        {IR_LEVEL_V2, FUSOR_F32, 256, 12, 4, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ir_tile t = ir_contract_tile_of(cases[i].level, cases[i].acc, cases[i].m, cases[i].n);
        cr_assert(t.mr == cases[i].mr && t.nr == cases[i].nr, "%zu: %d x %d, expected %d x %d", i, t.mr, t.nr,
                  cases[i].mr, cases[i].nr);
    }
}

Test(contract, last_columns_have_a_tile_of_their_own) {
    static const ir_dtype types[] = {FUSOR_F32, FUSOR_F64, FUSOR_I64};
    FOR_LEVELS
    for (int i = 0; i < 18; i++) {
        problem p = plain(level, types[i % 3], i / 3 % 3 == 0 ? BIAS_RELU : i / 3 % 3 == 1 ? TWO_OUTPUTS : SCALED_A);
        p.last = 1 + i / 3 % 3;
        p.tile = ir_contract_tile_of((ir_level)level, ir_contract_acc(p.in, p.in, p.out), -1, i & 1 ? 256 : 24);
        if (i & 4) p.tile.kb = 7;
        p.transpose_b = i & 2;
        check_sizes(&p, 12);
    }
}

Test(contract, last_columns) {
    ir_kernel k = {.kind = IR_KERNEL_CONTRACT, .level = IR_LEVEL_V4, .tile = {6, 64, 512}};
    static const struct {
        int64_t n;
        int last;
    } cases[] = {{-1, 0},  {10, 0},   {64, 0},    {65, 16},  {96, 32}, {100, 48},
                 {127, 0}, {196, 16}, {1000, 48}, {2048, 0}, {4000, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_assert_eq(ir_kernel_last_columns(&k, cases[i].n), cases[i].last, "of %ld columns", (long)cases[i].n);
    k.tile.mr = 1;
    cr_assert_eq(ir_kernel_last_columns(&k, 100), 0, "of a single row");
}

Test(contract, tiles_of_other_widths) {
    static const int64_t columns[] = {1, 7, 8, 16, 24, 40, 48, 61};
    FOR_LEVELS
    for (int i = 0; i < 8; i++) {
        problem p = plain(level, FUSOR_F32, i & 1 ? TWO_OUTPUTS : BIAS_RELU);
        p.baked_n = columns[i];
        p.transpose_a = i & 2;
        p.transpose_b = i & 4;
        check_sizes(&p, 10);
    }
}

/* ---- the direct form ---- */
/* The very bits of the packed form, whose order this is; every layout, edges against pages that fault. */
static void check_direct(problem p, shape s) {
    if (!host_has_level(p.level)) return;
    p.is_direct = true;
    p.direct = s;
    ir_kernel k = describe(&p);
    code c = compile(&k);
    for (int i = 0; i < 4; i++) {
        const int64_t tune[IR_TUNE_COUNT] = {[IR_TUNE_CONTRACT_MC] = i * k.tile.mr}; /* one batch: rows of a tile */
        for (int d = 0; d < p.n_batch; d++) s.batch[d] = i == 3 ? 0 : 1 + (int64_t)(random_bits() % 4);
        check(&p, &k, c.run, &s, tune, i & 1);
    }
    munmap(c.map, c.bytes);
}

static shape small_shape(void) {
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 28, 31, 32, 33, 40, 48, 57, 63, 64};
    return (shape){{1, 1}, any_of(sizes, 22), any_of(sizes, 22), any_of(sizes, 22)};
}

Test(contract, direct, .timeout = 300) {
    static const ir_dtype types[] = {FUSOR_F32, FUSOR_F64, FUSOR_I64};
    FOR_LEVELS
    for (int i = 0; i < 64; i++) {
        if (!is_in_mixed_share((uint64_t)(level * 64 + i))) continue;
        problem p =
            plain(level, types[i % 8 < 5 ? 0 : i % 8 - 5], (int[]){PLAIN, BIAS_RELU, TWO_OUTPUTS, LONG}[i / 2 % 4]);
        p.transpose_a = i & 1;
        p.transpose_b = random_bits() % 4 == 0;
        p.gap = i % 16 == 5;
        p.n_batch = (int)(random_bits() % 3);
        for (int d = 0; d < p.n_batch; d++) {
            p.a_batched[d] = random_bits() % 4 != 0;
            p.b_batched[d] = p.transpose_b || p.gap || random_bits() % 4 != 0;
        }
        check_direct(p, small_shape());
    }
}

/* Tiles of every kind: left over rows, vectors and lanes; one tile for all; many. */
Test(contract, direct_tiles) {
    FOR_LEVELS
    for (int mr = 1; mr <= 5; mr += 2)
        for (int nv = 1; nv <= 3; nv++) {
            problem p = plain(level, FUSOR_F32, mr == 3 ? LONG : BIAS_RELU);
            p.n_batch = 1;
            p.a_batched[0] = p.b_batched[0] = true;
            p.tile = (ir_tile){mr, nv * ir_levels[level].lanes, 512};
            check_direct(p, (shape){{1, 1}, 1 + (int64_t)(random_bits() % 12), 1 + (int64_t)(random_bits() % 64), 30});
        }
}

/* Tiles of one vector a row, of which some load operand 0 in groups: whole groups and not, as many rows as there are
 * registers. */
Test(contract, direct_narrow) {
    static const int64_t rows[] = {3, 4, 5, 8, 15, 16, 20, 22, 25, 26, 30},
                         depths[] = {1, 2, 3, 4, 5, 7, 8, 16, 19, 41};
    FOR_LEVELS
    for (int i = 0; i < 11; i++)
        for (int j = 0; j < 10; j++) {
            if (!is_in_mixed_share((uint64_t)(level * 110 + i * 10 + j))) continue;
            problem p = plain(level, j % 3 == 2 ? FUSOR_F64 : FUSOR_F32, BIAS_RELU);
            p.gap = i % 4 == 3;
            check_direct(p, (shape){{1, 1}, rows[i], 5 + (int64_t)(random_bits() % 12), depths[j]});
        }
}

/* Over all sizes the accumulators fit: the tile that is chosen is never larger than the output, but for whole
 * vectors. */
Test(contract, direct_tiles_fit) {
    static const ir_dtype types[] = {FUSOR_F32, FUSOR_F64, FUSOR_I64};
    FOR_LEVELS
    for (int t = 0; t < 3; t++)
        for (int m = 1; m <= IR_BAKE_MAX; m++)
            for (int n = 1; n <= IR_BAKE_MAX; n++) {
                ir_tile tile = ir_contract_direct_tile((ir_level)level, types[t], m, n);
                int lanes = ir_levels[level].vector_bytes / ir_dtypes[types[t]].bytes;
                int unit = lanes > ir_levels[level].lanes ? lanes : ir_levels[level].lanes;
                cr_assert(tile.mr >= 1 && tile.mr <= m && tile.nr % unit == 0 && tile.nr < n + unit &&
                          tile.kb >= IR_BAKE_MAX);
                cr_assert(tile.mr * (tile.nr / lanes) <= (level == IR_LEVEL_V4 ? 30 : 14));
            }
}

/* The loop with the most products must not touch the stack: one spilled accumulator costs a third of the speed. */
static void check_spills(const problem *p) {
    ir_kernel k = describe(p);
    fusor_codegen_result r = generate(&k, FUSOR_CODEGEN_ASM);
    const char *text = r.data, *best = NULL, *best_end = NULL;
    int most = 0;
    bool has_frame = strstr(text, "movq\t%rsp, %rbp") != NULL;
    for (const char *at = text; at && *at;) { /* from label or jump to the next */
        const char *end = strstr(at, "\n.L"), *jump = strstr(at, "\n\tj");
        if (jump && (!end || jump < end)) end = jump;
        if (!end) end = at + strlen(at);
        int products = 0;
        for (const char *q = at; q < end; q++)
            products += strncmp(q, "\tvfmadd", 7) == 0 || strncmp(q, "\tmulp", 5) == 0 || strncmp(q, "mul", 3) == 0 ||
                        strncmp(q, "pmaddwd", 7) == 0 || strncmp(q, "vpdpbusd", 8) == 0 ||
                        strncmp(q, "vdpbf16ps", 9) == 0;
        if (products > most) most = products, best = at, best_end = end;
        at = *end ? end + 1 : end;
    }
    cr_assert(most >= (k.tile.mr < 4 ? k.tile.mr : 4), "no products found in the code of %s", ir_levels[p->level].name);
    for (const char *q = best; q && q < best_end; q++) {
        bool stack = strncmp(q, "(%rsp", 5) == 0 || (has_frame && strncmp(q, "(%rbp", 5) == 0);
        cr_assert(!stack, "%s %s: the inner loop uses the stack:\n%.*s", ir_levels[p->level].name,
                  ir_dtypes[p->in].name, (int)(best_end - best), best);
    }
    free(r.data);
}

static bool is_product(const char *line) {
    if (strncmp(line, "\t{vex}", 6) == 0) line += 6;
    return strncmp(line, "\tvfmadd", 7) == 0 || strncmp(line, "\tmulp", 5) == 0 || strncmp(line, "\tvpmul", 6) == 0 ||
           strncmp(line, "\tpmul", 5) == 0 || strncmp(line, "\tpmadd", 6) == 0 || strncmp(line, "\tvpmadd", 7) == 0 ||
           strncmp(line, "\tvpdp", 5) == 0 || strncmp(line, "\tvdpbf16", 8) == 0;
}

/* The code of a tile's function from its first product to its last, which is its loop over k: no vector register goes
 * to the stack or comes from there. Returns how many products it has. */
static int check_function(const char *assembly, const char *name, const char *what) {
    char label[40], line[128];
    snprintf(label, sizeof label, "\nkernel.%s:", name);
    const char *text = strstr(assembly, label), *end = text ? strstr(text, "\n.Lfunc_end") : NULL;
    cr_assert(text && end, "no function \"%s\" in the code of %s", name, what);
    int products = 0, all = 0;
    const char *frame = strstr(text, "movq\t%rsp, %rbp");
    const bool has_frame = frame && frame < end; /* else rbp is a register like others */
    for (const char *at = text + 1; at < end; at = strchr(at, '\n') + 1) all += is_product(at);
    for (const char *at = text + 1, *next; at < end && products < all; at = next) {
        next = strchr(at, '\n') + 1;
        products += is_product(at);
        snprintf(line, sizeof line, "%.*s", (int)(next - at - 1), at);
        const bool is_stack = strstr(line, "(%rsp") || (has_frame && strstr(line, "(%rbp"));
        cr_assert(!products || !is_stack || !strstr(line, "mm"), "%s: the inner loop of %s uses the stack: %s", what,
                  name, line);
    }
    return products;
}

Test(contract, the_inner_loop_spills_nothing) {
    static const ir_dtype types[] = {FUSOR_F32, FUSOR_F64, FUSOR_I64, FUSOR_I8, FUSOR_I8, FUSOR_BF16};
    char what[80];
    FOR_LEVELS
    for (int i = 0; i < 9; i++)
        for (int program = PLAIN; program <= SCALED_A; program++) {
            problem p = plain(level, types[i < 6 ? i : 0], program);
            if (i > 5) /* one, three and four vectors of columns */
                p.baked_n = i == 6 ? 7 : ir_levels[level].vector_bytes / 4 * (i == 7 ? 3 : 4);
            if (i == 4 || i == 5) p.features = ir_level_extras((ir_level)level) & ~TILES;
            if (i == 5) p.out = FUSOR_F32;
            ir_kernel k = describe(&p);
            fusor_codegen_result r = generate(&k, FUSOR_CODEGEN_ASM);
            snprintf(what, sizeof what, "%s %s, program %d", ir_levels[level].name, ir_dtypes[types[i % 6]].name,
                     program);
            const int products = check_function(r.data, "tile", what);
            cr_assert(products >= k.tile.mr, "%d products found in the code of %s", products, ir_levels[level].name);
            free(r.data);
        }
}

/* Where tiles are parts of rows, the branches around pads must not keep more registers busy than there are; where they
 * are one vector of channels, sums stay in their registers. Narrow: 16 channels and one more vector. */
Test(convolution, tiles_spill_nothing, .init = text_start, .fini = text_stop) {
    static const struct {
        int columns, made;
        const char *lower;
    } cases[] = {{14, 256, "last"}, {13, 384, "last"}, {28, 128, "last"}, {56, 56, "narrow"}, {100, 8, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int n = cases[i].columns;
        char text[300];
        snprintf(
            text, sizeof text,
            "func @f(%%x: f32[1, 64, %d, %d], const %%w: f32[%d, 64, 3, 3]) -> f32[1, %d, %d, %d] { %%y = conv(%%x, "
            "%%w, pads=[1, 1, 1, 1]) return %%y }",
            n, n, cases[i].made, cases[i].made, n, n);
        const ir_plan *plan = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V3});
        cr_assert(plan->steps.n == 1 && plan->steps.at[0].kind == IR_STEP_KERNEL);
        fusor_codegen_result r = generate(plan->steps.at[0].kernel, FUSOR_CODEGEN_ASM);
        snprintf(text, sizeof text, "v3, %d columns, %d channels", n, cases[i].made);
        cr_assert(check_function(r.data, "tile", text) >= 12);
        if (cases[i].lower) cr_assert(check_function(r.data, cases[i].lower, text) >= 6);
        free(r.data);
    }
}

/* Convolutions of bf16 have it too, by channel and by columns, and beside it tiles by fma for what it may not do. */
Test(convolution, words_of_bf16, .init = text_start, .fini = text_stop) {
    static const struct {
        const char *x, *w;
        bool is_by_channel;
    } cases[] = {{"[1, 64, 56, 56]", "[64, 64, 3, 3]", true},
                 {"[1, 512, 7, 7]", "[512, 512, 3, 3]", true},
                 {"[1, 64, 56, 56]", "[256, 64, 1, 1]", false},
                 {"[B, 32, H, W]", "[32, 32, 3, 3]", false}};
    const ir_features features[] = {0, IR_FEATURE_BF16};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int f = 0; f < 2; f++) {
            char text[300];
            snprintf(text, sizeof text,
                     "func @f(%%x: bf16%s, const %%w: bf16%s) -> bf16[?, ?, ?, ?] { %%y = conv(%%x, %%w) return %%y }",
                     cases[i].x, cases[i].w);
            const ir_plan *plan = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V4, .features = features[f]});
            cr_assert(plan->steps.n == 1 && plan->steps.at[0].kind == IR_STEP_KERNEL);
            const ir_kernel *k = plan->steps.at[0].kernel;
            fusor_codegen_result r = generate(k, FUSOR_CODEGEN_ASM);
            cr_assert_eq(strstr(r.data, "vdpbf16ps") != NULL, f == 1, "%s", text);
            if (f) {
                cr_assert_eq(k->is_by_channel, cases[i].is_by_channel, "%s", text);
                cr_assert_geq(check_function(r.data, "tile", text), k->tile.mr);
                cr_assert(strstr(r.data, "vfmadd"), "%s", text);
            }
            free(r.data);
        }
}

/* Rows that tiles of one height would not fill are cut into those and lower ones, so long as all rows in one line would
 * not do as well; no tile keeps a sum in memory. */
Test(convolution, rows_are_cut_into_tiles_of_two_heights, .init = text_start, .fini = text_stop) {
    static const struct {
        int channels, columns, higher; /* of the tile; 0: no other */
    } cases[] = {{128, 32, 11}, {64, 64, 13}, {128, 28, 0}, {64, 56, 0}, {512, 7, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int channels = cases[i].channels, columns = cases[i].columns;
        char text[300];
        snprintf(text, sizeof text,
                 "func @f(%%x: f32[1, %d, %d, %d], const %%w: f32[%d, %d, 3, 3]) -> f32[?, ?, ?, ?] { "
                 "%%y = conv(%%x, %%w, pads=[1, 1, 1, 1]) return %%y }",
                 channels, columns, columns, channels, channels);
        const ir_plan *plan = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V4});
        cr_assert(plan->steps.n == 1 && plan->steps.at[0].kind == IR_STEP_KERNEL);
        const ir_kernel *k = plan->steps.at[0].kernel;
        cr_assert(k->is_by_channel, "%s", text);
        cr_assert_eq(k->has_lower, cases[i].higher > 0, "%s", text);
        if (!cases[i].higher) continue;
        cr_assert_eq(k->tile.mr, cases[i].higher, "%s: %d columns", text, k->tile.mr);
        fusor_codegen_result r = generate(k, FUSOR_CODEGEN_ASM);
        cr_assert_geq(check_function(r.data, "tile", text), k->tile.mr);
        cr_assert_geq(check_function(r.data, "last", text), k->tile.mr - 1);
        free(r.data);
    }
}

/* 1x1 of many channels whose columns lie far apart does not read panels of them where they are. */
Test(convolution, far_columns_of_many_channels_go_by_channel, .init = text_start, .fini = text_stop) {
    static const struct {
        int taken, n, made;
        bool is_by_channel;
    } cases[] = {{1280, 16, 320, true}, {640, 31, 640, true}, {256, 64, 64, true},
                 {128, 14, 128, true},  {96, 28, 512, false}, {64, 56, 256, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        snprintf(text, sizeof text,
                 "func @f(%%x: f32[1, %d, %d, %d], const %%w: f32[%d, %d, 1, 1]) -> f32[?, ?, ?, ?] { "
                 "%%y = conv(%%x, %%w) return %%y }",
                 cases[i].taken, cases[i].n, cases[i].n, cases[i].made, cases[i].taken);
        const ir_plan *plan = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V4});
        cr_assert(plan->steps.n == 1 && plan->steps.at[0].kind == IR_STEP_KERNEL);
        cr_expect_eq(plan->steps.at[0].kernel->is_by_channel, cases[i].is_by_channel, "%s", text);
    }
}

/* 1x1 by columns has one row, where all that it reads and writes has its rows in one run; not of few products, nor along
 * a value that varies along rows alone. */
Test(convolution, rows_of_one_place_are_one, .init = text_start, .fini = text_stop) {
    static const struct {
        const char *taken, *bias;
        bool is_one;
    } cases[] = {{"64", "[96, 1, 1]", true},
                 {"64", "[1, 96, 20, 28]", true},
                 {"64", "[20, 1]", false},
                 {"64", "[28]", false},
                 {"16", "[96, 1, 1]", false}};
    int checked = 0;
    for (int level = IR_LEVEL_V2; level <= IR_LEVEL_V4; level++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            char text[300];
            snprintf(text, sizeof text,
                     "func @f(%%x: f32[B, %s, 20, 28], const %%w: f32[96, %s, 1, 1], %%b: f32%s) -> f32[?, ?, ?, ?] { "
                     "%%y = conv(%%x, %%w) %%z = add(%%y, %%b) return %%z }",
                     cases[i].taken, cases[i].taken, cases[i].bias);
            const ir_plan *plan = plan_text(text, &(ir_plan_options){.level = (ir_level)level});
            cr_assert(plan->steps.n == 1 && plan->steps.at[0].kind == IR_STEP_KERNEL);
            const ir_kernel *k = plan->steps.at[0].kernel;
            int64_t rows = 0, columns = 0;
            for (int d = 0; d < k->n_dims; d++) {
                if (k->dim[d].role == 'y') ir_size_is_const(plan->graph->sizes, plan->steps.at[0].dim[d], &rows);
                if (k->dim[d].role == 'n') ir_size_is_const(plan->graph->sizes, plan->steps.at[0].dim[d], &columns);
            }
            if (k->n_axes) continue; /* by channel */
            checked++;
            cr_expect(rows == (cases[i].is_one ? 1 : 20) && columns == (cases[i].is_one ? 560 : 28), "%s: %d x %d",
                      text, (int)rows, (int)columns);
        }
    cr_expect_geq(checked, (int)(sizeof cases / sizeof *cases), "by columns at one level at least");
}

/* Register tiles ask for lines of the result while they multiply: by channel both of a channel, where its products are
 * few or, of one place, not known; by columns those of the next panel. */
Test(convolution, tiles_prefetch_lines_of_the_result, .init = text_start, .fini = text_stop) {
    static const struct {
        const char *taken, *places;
        int asks; /* in the function that multiplies */
        bool is_by_channel;
    } cases[] = {{"64", "3, 3", 1, true},
                 {"3", "7, 7", 1, true},
                 {"256", "1, 1", 1, true},
                 {"64", "1, 1", 2, false},
                 {"256", "3, 3", 0, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        snprintf(text, sizeof text,
                 "func @f(%%x: f32[1, %s, 58, 58], const %%w: f32[64, %s, %s]) -> f32[?, ?, ?, ?] { "
                 "%%y = conv(%%x, %%w, pads=[%s]) return %%y }",
                 cases[i].taken, cases[i].taken, cases[i].places,
                 cases[i].places[0] == '1' ? "0, 0, 0, 0" : "1, 1, 1, 1");
        const ir_plan *plan = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V4});
        const ir_kernel *k = plan->steps.at[0].kernel;
        cr_assert_eq(k->is_by_channel, cases[i].is_by_channel, "%s", text);
        fusor_codegen_result r = generate(k, FUSOR_CODEGEN_ASM);
        const char *at = strstr(r.data, cases[i].is_by_channel ? "\nkernel.tile:" : "\nkernel.row:"),
                   *end = at ? strstr(at, "\n.Lfunc_end") : NULL;
        cr_assert(at && end, "%s", text);
        int asks = 0;
        while ((at = strstr(at, "prefetcht1")) && at < end) asks++, at++;
        cr_expect(cases[i].asks ? asks >= cases[i].asks : !asks, "%s: %d", text, asks);
        free(r.data);
    }
}

/* Channels that the plan knows to be whole tiles have no code for a part of one; the description says so, and is read
 * back. */
Test(convolution, whole_channels_have_no_narrow_tile, .init = text_start, .fini = text_stop) {
    for (int is_whole = 0; is_whole < 2; is_whole++) {
        char text[300];
        snprintf(text, sizeof text,
                 "func @f(%%x: f32[A, 96, 16, 16], const %%w: f32[%d, 96, 3, 3]) -> f32[?, ?, ?, ?] { "
                 "%%y = conv(%%x, %%w) return %%y }",
                 is_whole ? 192 : 200);
        const ir_plan *plan = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V4});
        cr_assert(plan->steps.n == 1 && plan->steps.at[0].kind == IR_STEP_KERNEL);
        const ir_kernel *k = plan->steps.at[0].kernel;
        cr_assert(k->is_by_channel && k->tile.nr > 16, "%s", text);
        cr_expect_eq(k->has_whole_channels, is_whole);
        fusor_codegen_result r = generate(k, FUSOR_CODEGEN_ASM);
        cr_expect_eq(strstr(r.data, "narrow") == NULL, is_whole, "%s", text);
        free(r.data);
    }
}

/* Columns of rows that no vector goes on from are loaded without masks, in a loop of their own: it has all products of a
 * tile, as has the loop with masks. */
Test(convolution, columns_of_one_row_are_loaded_without_masks, .init = text_start, .fini = text_stop) {
    const ir_plan *plan = plan_text("func @f(%x: f32[1, 8, 64, 64], const %w: f32[64, 8, 3, 3]) -> f32[?, ?, ?, ?] { "
                                    "%y = conv(%x, %w, pads=[1, 1, 1, 1]) return %y }",
                                    &(ir_plan_options){.level = IR_LEVEL_V4});
    cr_assert(plan->steps.n == 1 && plan->steps.at[0].kind == IR_STEP_KERNEL);
    const ir_kernel *k = plan->steps.at[0].kernel;
    cr_assert(!k->is_by_channel);
    fusor_codegen_result r = generate(k, FUSOR_CODEGEN_ASM);
    const char *text = strstr(r.data, "\nkernel.row:"), *end = text ? strstr(text, "\n.Lfunc_end") : NULL;
    cr_assert(text && end);
    int loops[2] = {0}, products = 0, masks = 0;
    for (const char *at = text + 1, *next; at < end; at = next) { /* from label or jump to the next */
        next = strchr(at, '\n') + 1;
        const char *mask = strstr(at, "{%k");
        products += is_product(at);
        masks += mask && mask < next;
        if (*at != '.' && strncmp(at, "\tj", 2) != 0) continue;
        if (products == k->tile.mr * k->tile.nr / 16) loops[masks > 0]++;
        products = masks = 0;
    }
    cr_expect(loops[0] == 1 && loops[1] == 1, "%d loops without masks, %d with", loops[0], loops[1]);
    free(r.data);
}

/* The loops over steps of the largest tile, of which one reads operand 0 past L1: four loads for four products, or
 * ten for sixteen of f16 that are cut, and no vector instruction. */
Test(contract, a_step_of_tiles_is_four_products) {
    static const struct {
        ir_dtype a, b;
        const char *product;
        ir_features features;
        int products, loads, past;
    } cases[] = {{FUSOR_BF16, FUSOR_BF16, "\ttdpbf16ps", TILES, 4, 4, 2},
                 {FUSOR_F16, FUSOR_F16, "\ttdpfp16ps", TILES, 4, 4, 2},
                 {FUSOR_F16, FUSOR_F16, "\ttdpbf16ps", IR_FEATURE_AMXBF16, 16, 10, 4},
                 {FUSOR_I8, FUSOR_I8, "\ttdpbssd", TILES, 4, 4, 2},
                 {FUSOR_I8, FUSOR_U8, "\ttdpbsud", TILES, 4, 4, 2},
                 {FUSOR_U8, FUSOR_I8, "\ttdpbusd", TILES, 4, 4, 2},
                 {FUSOR_U8, FUSOR_U8, "\ttdpbuud", TILES, 4, 4, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        problem p = plain(IR_LEVEL_V4, cases[i].a, BIAS_RELU);
        p.in_b = cases[i].b;
        p.out = ir_contract_acc(p.in, p.in_b, FUSOR_F32);
        p.features = cases[i].features;
        ir_kernel k = describe(&p);
        fusor_codegen_result r = generate(&k, FUSOR_CODEGEN_ASM);
        int loads = 0, past = 0, products = 0, stores = 0, vectors = 0, loops[2] = {0};
        char *line = strstr(r.data, "\nkernel.tile:");
        cr_assert(line);
        for (line++; *line && strncmp(line, ".Lfunc_end", 10); line = strchr(line, '\n') + 1) {
            char text[160];
            snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
            loads += strncmp(text, "\ttileloadd", 10) == 0;
            past += strncmp(text, "\ttileloaddt1", 12) == 0;
            products += strncmp(text, cases[i].product, strlen(cases[i].product)) == 0;
            stores += strncmp(text, "\ttilestored", 11) == 0;
            vectors += strstr(text, "%zmm") || strstr(text, "%ymm") || strstr(text, "%xmm");
            if (text[0] != '.' && strncmp(text, "\tj", 2) != 0) continue;
            if (products == cases[i].products && !stores) { /* to the end of the loop */
                cr_assert_eq(loads, cases[i].loads, "%s: %d loads", cases[i].product, loads);
                cr_assert_eq(vectors, 0, "%s: %d vector instructions", cases[i].product, vectors);
                cr_assert(past == 0 || past == cases[i].past);
                loops[past > 0]++;
            }
            loads = past = products = stores = vectors = 0;
        }
        cr_assert(loops[0] == 1 && loops[1] == 1, "%s: %d and %d loops of a step", cases[i].product, loops[0],
                  loops[1]);
        free(r.data);
    }
}

Test(contract, the_direct_loop_spills_nothing) {
    static const int sizes[] = {13, 16, 28, 32, 48, 64};
    FOR_LEVELS
    for (int i = 0; i < 6; i++) {
        problem p = plain(level, FUSOR_F32, BIAS_RELU);
        p.is_direct = true;
        p.direct = (shape){{1, 1}, sizes[i], sizes[i], 64};
        check_spills(&p);
    }
    FOR_LEVELS
    for (int m = 4; m <= 64; m++) { /* narrow: tiles of all heights */
        problem p = plain(level, FUSOR_F32, BIAS_RELU);
        p.is_direct = true;
        p.direct = (shape){{1, 1}, m, level == IR_LEVEL_V4 ? 16 : 8, 64};
        check_spills(&p);
    }
}

Test(contract, bad_descriptions_are_refused) {
    problem p = plain(IR_LEVEL_V2, FUSOR_F32, PLAIN);
    ir_kernel good = describe(&p);
    p.is_direct = true;
    p.direct = (shape){{1, 1}, 20, 20, 20};
    ir_kernel direct = describe(&p);
    for (int i = 0; i < 17; i++) {
        ir_kernel k = i < 4 || i > 10 ? good : direct;
        if (i == 0) k.tile.mr = 9;
        if (i == 1) k.dim[2].role = 'n';
        if (i == 2) k.buffer[A].stride[1] = 1;
        if (i == 3) k.tile = (ir_tile){0};
        if (i == 4) k.tile.mr = 40;
        if (i == 5) k.tile.nr = 6;
        if (i == 6) k.dim[0].size = IR_SIZE_RUNTIME;
        if (i == 7) k.dim[2].size = IR_BAKE_MAX + 1;
        if (i == 8) k.buffer[A].stride[0] = IR_STRIDE_RUNTIME;
        if (i == 9) k.inst[0].dtype = k.buffer[A].dtype = FUSOR_F16;
        if (i == 10) k.last_columns = 4;
        if (i == 11 || i == 12) k.last_columns = i == 11 ? k.tile.nr : 3;
        if (i == 13) k.last_columns = INT_MAX;
        if (i == 14) k.has_lower = true;
        if (i > 14) k.can_sweep = true;
        if (i == 15) k.tile.kb = 6; /* K blocks are no whole steps */
        if (i == 16) k.buffer[B].stride[1] = IR_STRIDE_RUNTIME;
        jmp_buf no_memory;
        fu_arena a;
        fu_str text;
        fu_arena_init(&a, &no_memory);
        cr_assert_eq(setjmp(no_memory), 0);
        fu_str_init(&text, &a);
        ir_kernel_print(&text, &k);
        fusor_codegen_result r;
        fusor_codegen_request q = {.version = FUSOR_CODEGEN_VERSION,
                                   .description = text.at,
                                   .description_bytes = text.n,
                                   .symbol = "kernel",
                                   .allocate = take};
        cr_assert_neq(fusor_codegen_module()->generate(&q, &r), 0);
        cr_assert(r.error[0]);
        fu_arena_free(&a);
    }
}

/* Rows of batches that share operand 1 count: f16 that are cut want 16 of them. */
Test(contract, rows_of_batches_are_rows_of_a_product) {
    static const struct {
        const char *a, *b;
        bool is_cut;
    } products[] = {{"64, 8, 1024", "1024, 1024", true},
                    {"512, 1024", "1024, 1024", true},
                    {"64, 8, 1024", "64, 1024, 1024", false},
                    {"1, 8, 1024", "1024, 1024", false}};
    for (int i = 0; i < 4; i++) {
        char text[200];
        snprintf(text, sizeof text,
                 "func @f(%%a: f16[%s], %%b: f16[%s]) -> f16[%s] { %%r = matmul(%%a, %%b) return %%r }", products[i].a,
                 products[i].b, products[i].a);
        text_start();
        const ir_plan *p = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V4, .features = IR_FEATURE_AMXBF16});
        const ir_kernel *k = p->steps.at[p->steps.n - 1].kernel;
        cr_expect_eq(ir_kernel_contract_dot(k), products[i].is_cut ? IR_DOT_TILE_CUT : IR_DOT_NONE, "%s", text);
        text_stop();
    }
}
