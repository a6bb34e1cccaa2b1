/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_attention_mma.c: a block of keys of attention by tensor cores (mma.m16n8k16), for operands of one 16-bit type. A
 * warp has 16 queries, all keys and all columns:
 *
 *   for each slice of the head: queries and keys -> shared memory; fragments by ldmatrix; scores in f32
 *   scores -> weights in registers (gpu_attention_block.c); they are fragments of the second product as they lie
 *   values -> shared memory; fragments by ldmatrix, transposed; results in f32
 *
 * A weight is multiplied as two numbers of 16 bits, the nearest and what is left: so its error is that of an f32 sum's
 * order, and results have the bound of the reference. */
#include "jit/gpu_attention.h"

enum { SLICE = 64, PAD = 8, LINE = SLICE + PAD };

bool flash_can_mma(const flash *f) {
    const attention *a = &f->a;
    const ir_dtype t = a->k->inst[a->q].dtype;
    return ir_levels[a->k->level].cores && a->acc == FUSOR_F32 && ir_is_half(t) && a->k->inst[a->keys].dtype == t &&
           a->k->inst[a->v].dtype == t;
}

static int values_line(const flash *f) { return f->width + PAD; }
/* Behind queries and keys, in whose place masks are too. Elements of 16 bits. */
static int values_at(const flash *f) {
    const int operands = (IR_GPU_ATTENTION_QUERIES + f->keys) * LINE,
              mask = 2 * IR_GPU_ATTENTION_QUERIES * f->weight_line;
    return operands > mask ? operands : mask;
}
int flash_mma_elements(const flash *f) { return (values_at(f) + f->keys * values_line(f)) / 2; }

static LLVMValueRef half_at(flash *f, LLVMValueRef base, LLVMValueRef i) { return em_gep(f->e, base, f->e->t_i16, i); }

static void load_matrices(flash *f, LLVMValueRef at, bool is_turned, LLVMValueRef *out) {
    emit *e = f->e;
    LLVMTypeRef overload = LLVMTypeOf(at);
    LLVMValueRef all = gpu_call(e,
                                is_turned ? "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16"
                                          : "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16",
                                &overload, 1, &at, 1);
    for (unsigned i = 0; i < 4; i++) out[i] = LLVMBuildExtractValue(e->b, all, i, "");
}

void flash_multiply(flash *f, const LLVMValueRef *a, const LLVMValueRef *b, LLVMValueRef *c) {
    emit *e = f->e;
    const bool is_f16 = f->a.k->inst[f->a.q].dtype == FUSOR_F16;
    LLVMTypeRef pair = is_f16 ? LLVMVectorType(LLVMHalfTypeInContext(e->ctx), 2) : e->t_i32;
    LLVMValueRef in[10];
    for (int i = 0; i < 4; i++) in[i] = LLVMBuildBitCast(e->b, a[i], pair, "");
    for (int i = 0; i < 2; i++) in[4 + i] = LLVMBuildBitCast(e->b, b[i], pair, "");
    for (int i = 0; i < 4; i++) in[6 + i] = c[i];
    LLVMValueRef out = gpu_call(
        e, is_f16 ? "llvm.nvvm.mma.m16n8k16.row.col.f32.f32" : "llvm.nvvm.mma.m16n8k16.row.col.bf16", NULL, 0, in, 10);
    for (unsigned i = 0; i < 4; i++) c[i] = LLVMBuildExtractValue(e->b, out, i, "");
}

/* Accumulators of tile n: of the two queries, two adjacent elements each. */
static void get_tile(LLVMValueRef *all, int of_row, int n, LLVMValueRef *c) {
    for (int i = 0; i < 4; i++) c[i] = all[i / 2 * of_row + 2 * n + i % 2];
}
static void put_tile(LLVMValueRef *all, int of_row, int n, LLVMValueRef *c) {
    for (int i = 0; i < 4; i++) all[i / 2 * of_row + 2 * n + i % 2] = c[i];
}

/* Row and column of shared memory that this lane gives the address of: of 16 x 16 elements, the four matrices by rows
 * first, or by columns first. */
static LLVMValueRef lane_place(flash *f, int line, bool is_row_first) {
    emit *e = f->e;
    LLVMValueRef lane = em_and(e, f->thread, flash_num(f, IR_GPU_WARP - 1)), seven = flash_num(f, 7);
    LLVMValueRef low = em_and(e, em_lshr(e, lane, 3), flash_num(f, 1)), high = em_lshr(e, lane, 4);
    LLVMValueRef row = em_add(e, em_and(e, lane, seven), em_shl(e, is_row_first ? low : high, 3));
    return em_add(e, em_mul(e, row, flash_num(f, line)), em_shl(e, is_row_first ? high : low, 3));
}

static void add_scores(flash *f, LLVMValueRef *score, LLVMValueRef count) {
    emit *e = f->e;
    const int n = f->rows * f->own_keys;
    LLVMValueRef phi[FLASH_ROWS * FLASH_KEYS], next[FLASH_ROWS * FLASH_KEYS], a[4], b[4], c[4];
    LLVMValueRef warp = LLVMBuildUDiv(e->b, f->thread, flash_num(f, IR_GPU_WARP), "");
    LLVMValueRef q = em_add(e, lane_place(f, LINE, true), em_mul(e, warp, flash_num(f, 16 * LINE)));
    LLVMValueRef k = em_add(e, lane_place(f, LINE, false), flash_num(f, f->queries * LINE));
    em_loop l = em_for(e, flash_num(f, 0), count, flash_num(f, 16));
    for (int i = 0; i < n; i++) next[i] = phi[i] = em_loop_phi(e, &l, score[i]);
    load_matrices(f, half_at(f, f->shared, em_add(e, q, l.i)), false, a);
    k = half_at(f, f->shared, em_add(e, k, l.i));
    for (int t = 0; t < f->keys / 8; t += 2) {
        load_matrices(f, half_at(f, k, flash_num(f, t * 8 * LINE)), false, b);
        for (int half = 0; half < 2; half++) {
            get_tile(next, f->own_keys, t + half, c);
            flash_multiply(f, a, b + 2 * half, c);
            put_tile(next, f->own_keys, t + half, c);
        }
    }
    for (int i = 0; i < n; i++) em_loop_next(e, phi[i], next[i]);
    em_end(e, &l);
    gpu_keep_loop(e, &l);
    for (int i = 0; i < n; i++) score[i] = phi[i];
}

/* Two numbers as 16 bits each, the first in the low half; what they are off by takes their place. */
static LLVMValueRef pack(flash *f, LLVMValueRef *x) {
    emit *e = f->e;
    const ir_dtype t = f->a.k->inst[f->a.q].dtype;
    LLVMValueRef both = NULL;
    for (int i = 0; i < 2; i++) {
        LLVMValueRef near = em_half_round(e, t, x[i], false), bits = em_half_bits(e, t, near);
        bits = LLVMBuildZExt(e->b, bits, e->t_i32, "");
        both = both ? em_or(e, both, em_shl(e, bits, 16)) : bits;
        x[i] = em_fsub(e, x[i], near);
    }
    return both;
}

static void add_values(flash *f, LLVMValueRef *weight) {
    emit *e = f->e;
    const int line = values_line(f), of_row = f->width / f->side;
    LLVMValueRef from = half_at(f, f->shared, em_add(e, lane_place(f, line, true), flash_num(f, values_at(f))));
    for (int g = 0; g < f->keys / 16; g++) {
        LLVMValueRef a[2][4], b[4], c[4];
        for (int part = 0; part < 2; part++)
            for (int i = 0; i < 4; i++) a[part][i] = pack(f, &weight[i % 2 * f->own_keys + 2 * (2 * g + i / 2)]);
        for (int t = 0; t < f->width / 8; t += 2) {
            load_matrices(f, half_at(f, from, flash_num(f, 16 * g * line + 8 * t)), true, b);
            for (int half = 0; half < 2; half++) {
                get_tile(f->result, of_row, t + half, c);
                for (int part = 0; part < 2; part++) flash_multiply(f, a[part], b + 2 * half, c);
                put_tile(f->result, of_row, t + half, c);
            }
        }
    }
}

void flash_mma_keys(flash *f, LLVMValueRef j0) {
    emit *e = f->e;
    const attention *a = &f->a;
    LLVMValueRef score[FLASH_ROWS * FLASH_KEYS];
    flash_make_scores(f, &(flash_slices){SLICE, LINE, true, add_scores}, j0, score);
    gpu_barrier(e);
    if (a->mask >= 0) flash_stage_mask(f, j0);
    flash_stage(f, &(flash_piece){2, a->v, a->at.j, a->at.n, f->keys, f->width, values_line(f), j0, f->n0,
                                  half_at(f, f->shared, flash_num(f, values_at(f))), true});
    flash_make_weights(f, score, j0);
    gpu_barrier(e);
    add_values(f, score);
}
