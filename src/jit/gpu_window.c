/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_window.c: convolutions on a GPU. Where groups make channels enough, and numbers of 32 bits say where a group's
 * products are, they are products of matrices by the kernels of contractions (gpu_mma.c, gpu_contract.c), which gather
 * operand 1. Else, directly: a thread makes one element of the output, and the next one a grid further: products from 0
 * upwards in K blocks, then block sums in order, as everywhere (schedule.h); operands are read where they lie. */
#include "jit/gpu.h"
#include "jit/reduce_common.h"

typedef struct window {
    emit *e;
    const ir_kernel *k;
    int first_k, matmul;
    LLVMValueRef index[IR_KERNEL_MAX_DIMS];
} window;

static LLVMValueRef offset(const window *w, int buffer) {
    emit *e = w->e;
    LLVMValueRef off = em_i64s(e, 0);
    for (int d = 0; d < w->k->n_dims; d++)
        if (w->index[d] && w->k->buffer[buffer].stride[d] != 0)
            off = em_add(e, off, em_mul(e, w->index[d], e->stride[buffer][d]));
    return off;
}

static LLVMValueRef load(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    const window *w = user;
    if (inst->op == IR_K_LOAD) return em_load_value(e, v, inst, -1, offset(w, inst->index), em_i64s(e, 0), NULL);
    return w->index[inst->index];
}

/* Indices along dims [from, to) of a row-major number. */
static void decode(window *w, int from, int to, LLVMValueRef number) {
    emit *e = w->e;
    for (int d = to - 1; d >= from; d--) {
        w->index[d] = number;
        if (d > from) red_divide(e, number, e->size[d], &number, &w->index[d]);
    }
}

static LLVMValueRef product(window *w, int from, int to) {
    LLVMValueRef n = em_i64s(w->e, 1);
    for (int d = from; d < to; d++) n = em_mul(w->e, n, w->e->size[d]);
    return n;
}

static LLVMValueRef sum_up(window *w, ir_dtype acc) {
    emit *e = w->e;
    const ir_kinst *mm = &w->k->inst[w->matmul];
    LLVMValueRef zero = LLVMConstNull(em_scalar_type(e, acc)), all = product(w, w->first_k, w->k->n_dims),
                 kb = em_i64s(e, w->k->tile.kb);
    em_loop block = em_for(e, em_i64s(e, 0), all, kb);
    LLVMValueRef total = em_loop_phi(e, &block, zero), end = em_add(e, block.i, kb);
    end = em_min(e, end, all);
    em_loop l = em_for(e, block.i, end, em_i64s(e, 1));
    LLVMValueRef sum = em_loop_phi(e, &l, zero), x[2];
    decode(w, w->first_k, w->k->n_dims, l.i);
    em_values v;
    em_values_init(&v, load, w);
    for (int i = 0; i < 2; i++) x[i] = em_cast(e, em_value(e, &v, mm->in[i]), w->k->inst[mm->in[i]].dtype, acc);
    em_loop_next(e, sum, ir_is_float(acc) ? em_mad(e, x[0], x[1], sum) : em_add(e, sum, em_mul(e, x[0], x[1])));
    em_end(e, &l);
    em_loop_next(e, total, ir_is_float(acc) ? em_fadd(e, total, sum) : em_add(e, total, sum));
    em_end(e, &block);
    for (int d = w->first_k; d < w->k->n_dims; d++) w->index[d] = NULL;
    return total;
}

static void emit_direct(window *w) {
    emit *e = w->e;
    const ir_kernel *k = w->k;
    const ir_dtype acc = ir_kernel_contract_acc(k);
    gpu_span x = gpu_threads(e, 'x');
    em_loop l = em_for(e, x.first, product(w, 0, w->first_k), x.step);
    em_values v;
    decode(w, 0, w->first_k, l.i);
    LLVMValueRef sum = sum_up(w, acc);
    em_values_init(&v, load, w);
    v.at[w->matmul] = em_cast(e, sum, acc, k->inst[w->matmul].dtype);
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE) em_value(e, &v, i);
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE)
            em_store(e, k->inst[i].index, em_value(e, &v, i), offset(w, k->inst[i].index), em_i64s(e, 1), NULL);
    em_end(e, &l);
}

/* Is the launch one without tiles, or a group's last product too far from its first for 32 bits? */
static LLVMValueRef is_direct(const window *w) {
    emit *e = w->e;
    const int buffer = w->k->inst[w->k->inst[w->matmul].in[1]].index;
    LLVMValueRef tile = gpu_word(e, IR_GPU_WORD_HOW), far = em_i64s(e, 0);
    if (ir_gpu_is_mma(w->k)) tile = em_lshr(e, tile, IR_GPU_MMA_TILE);
    for (int d = w->first_k; d < w->k->n_dims; d++)
        far = em_add(e, far, em_mul(e, em_sub(e, e->size[d], em_i64s(e, 1)), e->stride[buffer][d]));
    LLVMValueRef is_far = em_icmp(e, LLVMIntSGT, far, em_i64s(e, INT32_MAX));
    return em_or(e, em_icmp(e, LLVMIntEQ, tile, em_i64s(e, IR_GPU_WINDOW_DIRECT)), is_far);
}

fusor_status gpu_emit_window(emit *e, fu_error *err) {
    (void)err; /* ir_verify_window has seen to its shape */
    window *w = FU_NEW(e->arena, window);
    const ir_kernel *k = e->k;
    w->e = e;
    w->k = k;
    while (k->dim[w->first_k].role != 'k') w->first_k++;
    w->matmul = (int)(ir_kernel_matmul(k) - k->inst);
    if (ir_gpu_window_has_pads(k)) {
        emit_direct(w);
        return FUSOR_OK;
    }
    em_branch direct = em_if(e, is_direct(w));
    em_branch first =
        em_if(e, em_icmp(e, LLVMIntEQ, e->phase, em_i64s(e, 0))); /* what is far has two with some sizes */
    emit_direct(w);
    em_endif(e, &first);
    em_else(e, &direct);
    (ir_gpu_is_mma(k) ? gpu_emit_mma : gpu_emit_fma)(e);
    em_endif(e, &direct);
    return FUSOR_OK;
}
