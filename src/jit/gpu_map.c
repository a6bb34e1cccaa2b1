/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_map.c: element-wise kernels on a GPU. Threads along x take columns (the last dim), one or ir_gpu_lanes at a time,
 * threads along y rows; each goes on by the size of the grid. A scatter's line is one thread's: its updates come in
 * order. Transposed maps are in gpu_turn.c. */
#include "jit/gpu.h"
#include "jit/math.h"
#include "jit/reduce_common.h"
#include <string.h>

typedef struct map {
    int last; /* number of the last dim; -1: a single element */
    LLVMValueRef offset[IR_KERNEL_MAX_BUFFERS], index[IR_KERNEL_MAX_DIMS], column;
} map;

static LLVMValueRef advance(emit *e, LLVMValueRef base, LLVMValueRef index, LLVMValueRef stride) {
    int64_t zero = -1;
    return red_advance(e, red_constant(base, &zero) && zero == 0 ? NULL : base, index, stride);
}

static LLVMValueRef load(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    map *m = user;
    if (inst->op == IR_K_INDEX) {
        LLVMValueRef n = em_splat(e, inst->index == m->last ? m->column : m->index[inst->index]);
        return inst->index == m->last && e->lanes > 1 ? em_add(e, n, red_lane_numbers(e, e->t_i64, 0)) : n;
    }
    int b = inst->index;
    if (m->last < 0) return em_load_value(e, v, inst, -1, m->offset[b], em_i64s(e, 0), NULL);
    LLVMValueRef stride = e->stride[b][m->last];
    return em_load_value(e, v, inst, m->last, advance(e, m->offset[b], m->column, stride), stride, NULL);
}

/* e->lanes columns from `column` on: all values, then the stores, so an output may be the same memory as an input. */
static void emit_step(emit *e, map *m, LLVMValueRef column) {
    const ir_kernel *k = e->k;
    em_values v;
    em_values_init(&v, load, m);
    m->column = column;
    for (int i = 0; i < k->n_insts; i++)
        for (int j = 0; k->inst[i].op == IR_K_STORE && j < k->inst[i].n_in; j++) em_value(e, &v, k->inst[i].in[j]);
    for (int i = 0; i < k->n_insts; i++) {
        if (k->inst[i].op != IR_K_STORE) continue;
        int b = k->inst[i].index;
        LLVMValueRef stride = m->last >= 0 ? e->stride[b][m->last] : em_i64s(e, 1),
                     off = advance(e, m->offset[b], column, stride);
        if (k->inst[i].variant & IR_STORE_OFFSET) off = em_add(e, off, em_value(e, &v, k->inst[i].in[1]));
        em_store(e, b, em_value(e, &v, k->inst[i].in[0]), off, stride, NULL);
    }
}

static void emit_columns(emit *e, map *m, int lanes, gpu_span x) {
    LLVMValueRef n = em_i64s(e, lanes);
    e->lanes = lanes;
    e->is_aligned = lanes > 1;
    em_loop l = em_for(e, em_mul(e, x.first, n), e->size[m->last], em_mul(e, x.step, n));
    emit_step(e, m, l.i);
    em_end(e, &l);
    e->lanes = 1;
    e->is_aligned = false;
}

/* Do the offsets that gathers add, which a row has one of each, fall on multiples of `lanes` too? NULL: there are
 * none. */
static LLVMValueRef are_offsets_aligned(emit *e, map *m, int lanes) {
    const ir_kernel *k = e->k;
    LLVMValueRef all = NULL;
    em_values v;
    em_values_init(&v, load, m);
    m->column = em_i64s(e, 0);
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        if (in->op != IR_K_LOAD || !(in->variant & IR_LOAD_OFFSET) || k->buffer[in->index].stride[m->last] != 1)
            continue;
        LLVMValueRef off = em_value(e, &v, in->in[0]);
        all = all ? em_or(e, all, off) : off;
    }
    return all ? em_icmp(e, LLVMIntEQ, em_and(e, all, em_i64s(e, lanes - 1)), em_i64s(e, 0)) : NULL;
}

static void emit_row(emit *e, map *m, LLVMValueRef row, gpu_span x) {
    const ir_kernel *k = e->k;
    for (int d = m->last - 1; d >= 0; d--) { /* the outermost index is what is left */
        if (d) red_divide(e, row, e->size[d], &row, &m->index[d]);
        else m->index[d] = row;
    }
    for (int b = 0; b < k->n_buffers; b++) {
        m->offset[b] = em_i64s(e, 0);
        for (int d = 0; d < m->last; d++) m->offset[b] = advance(e, m->offset[b], m->index[d], e->stride[b][d]);
    }
    int lanes = ir_gpu_lanes(k);
    if (lanes == 1) {
        emit_columns(e, m, 1, x);
        return;
    }
    LLVMValueRef is_wide = em_icmp(e, LLVMIntNE, gpu_word(e, IR_GPU_WORD_HOW), em_i64s(e, 0)),
                 has_place = are_offsets_aligned(e, m, lanes);
    em_branch b = em_if(e, has_place ? em_and(e, is_wide, has_place) : is_wide);
    emit_columns(e, m, lanes, x);
    em_else(e, &b);
    emit_columns(e, m, 1, x);
    em_endif(e, &b);
}

/* Is this one of the instructions that need many registers: f64, functions without a version for GPUs, 64-bit
 * quotients? */
static bool is_heavy(const ir_kinst *in) {
    if (ir_dtypes[in->dtype].bytes > 4) return true;
    if (in->op >= IR_OP_COUNT || !(ir_ops[in->op].flags & IR_COSTLY) || in->op == IR_OP_CAST) return false;
    return !ir_is_float(in->dtype) ||
           !(math_gpu_has((ir_op)in->op) || in->op == IR_OP_DIV || in->op == IR_OP_RECIPROCAL);
}

/* Limits the registers of a thread: without one ptxas takes more than it has a use for. With these it spills nothing of
 * all functions alone (ptxas 13). */
static void limit_registers(emit *e) {
    enum { MOST_INSTS = 40 };
    const ir_kernel *k = e->k;
    bool is_heavy_one = k->is_each || k->n_insts > MOST_INSTS;
    for (int i = 0; i < k->n_insts; i++)
        is_heavy_one |= is_heavy(&k->inst[i]) || (k->inst[i].op == IR_K_LOAD && k->inst[i].variant);
    if (k->n_insts > 4 * MOST_INSTS) return;
    gpu_limit_registers(e, is_heavy_one || k->n_buffers > 6 ? 64 : k->n_buffers > 4 ? 48 : 40);
}

fusor_status gpu_emit_map(emit *e, fu_error *err) {
    (void)err; /* whatever ir_kernel_verify lets pass can be emitted */
    if (ir_kernel_is_transposed(e->k)) {
        gpu_emit_turn(e);
        return FUSOR_OK;
    }
    limit_registers(e);
    map *m = FU_NEW(e->arena, map);
    LLVMValueRef rows = em_i64s(e, 1), zero = em_i64s(e, 0);
    gpu_span x = gpu_threads(e, 'x'), y = gpu_threads(e, 'y');
    m->last = e->k->n_dims - 1;
    for (int d = 0; d < m->last; d++) rows = em_mul(e, rows, e->size[d]);
    if (m->last < 0) { /* one element: of the first thread */
        em_branch first = em_if(e, em_icmp(e, LLVMIntEQ, em_or(e, x.first, y.first), zero));
        for (int b = 0; b < e->k->n_buffers; b++) m->offset[b] = zero;
        emit_step(e, m, zero);
        em_endif(e, &first);
        return FUSOR_OK;
    }
    if (ir_kernel_is_scatter(e->k)) x = (gpu_span){zero, em_i64s(e, 1)};
    em_loop l = em_for(e, y.first, rows, y.step);
    emit_row(e, m, l.i, x);
    em_end(e, &l);
    return FUSOR_OK;
}
