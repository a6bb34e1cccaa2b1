/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_contract_copy.c: operands of a contraction without tensor cores that lie in memory as they are multiplied (plain
 * loads of the accumulator's type), on sm_80 and newer: copied to shared memory asynchronously, several steps ahead of the
 * products. Nothing waits in registers, and what is outside the matrix is filled with zeros by the copy.
 *
 * A copy is of 16 bytes where the operand is adjacent along its rows and addresses allow it, else of one element: so an
 * operand that is adjacent along k is turned on its way, and any strides will do. A convolution's operand 1 is gathered
 * by single elements. */
#include "jit/gpu_contract.h"
#include <stdio.h>

static LLVMValueRef num(contract *c, int64_t v) { return fma_num(c, v); }

bool fma_is_copied(const contract *c, const fma_operand *o) {
    const ir_kinst *in = &c->k->inst[o->inst];
    if (!ir_levels[c->k->level].cores || in->op != IR_K_LOAD || in->variant || in->dtype != c->acc) return false;
    if (o->is_gathered) return true;
    /* several dims are one in memory in a convolution's weights alone */
    if (c->s.of.n[o->axis] != 1) return false;
    return c->table ? c->k->buffer[in->index].stride[c->dim[IR_GPU_PRODUCTS]] == 1 : c->s.of.n[IR_GPU_PRODUCTS] == 1;
}

/* Along the rows alone: on its way 16 bytes along k would not be turned. */
static bool is_ever_wide(const fma_operand *o) { return o->is_row_fast && !o->is_gathered; }

static LLVMValueRef place_of(contract *c, const fma_operand *o, const fma_way *w) {
    return em_add(c->e, em_mul(c->e, w->k, num(c, o->line)), w->row);
}

void fma_begin_copies(contract *c, fma_operand *o) {
    emit *e = c->e;
    const int buffer = c->k->inst[o->inst].index;
    LLVMValueRef bytes = num(c, ir_dtypes[c->acc].bytes), k_bytes = NULL, row_bytes = NULL, off[2], place[2];
    LLVMValueRef end = em_add(e, c->first[o->axis], num(c, o->rows));
    o->copy.has_all_rows = em_icmp(e, LLVMIntSLE, end, c->s.size[o->axis]);
    o->can = NULL;
    if (o->is_gathered) {
        off[FMA_SINGLES] = fma_gather_column(c, o);
    } else {
        o->can = is_ever_wide(o) ? fma_can_take_vectors(c, o) : NULL;
        k_bytes = em_mul(e, e->stride[buffer][c->dim[IR_GPU_PRODUCTS]], bytes);
        row_bytes = em_mul(e, e->stride[buffer][o->row_dim], bytes);
        o->copy.next_step = em_mul(e, k_bytes, num(c, c->t->step));
    }
    for (fma_width i = FMA_VECTORS; i <= FMA_SINGLES; i++) {
        const fma_way *w = &o->way[i];
        place[i] = place_of(c, o, w);
        if (o->is_gathered) continue;
        LLVMValueRef row = em_add(e, c->first[o->axis], w->row);
        off[i] = em_add(e, em_mul(e, row, e->stride[buffer][o->row_dim]),
                        em_mul(e, w->k, e->stride[buffer][c->dim[IR_GPU_PRODUCTS]]));
        off[i] = em_add(e, off[i], c->batch_off[buffer]);
        o->copy.pass[i] =
            w->row_step ? em_mul(e, row_bytes, num(c, w->row_step)) : em_mul(e, k_bytes, num(c, w->k_step));
    }
    LLVMValueRef from = off[FMA_SINGLES];
    o->copy.place = place[FMA_SINGLES];
    if (o->can) {
        from = em_select(e, o->can, off[FMA_VECTORS], from);
        o->copy.place = em_select(e, o->can, place[FMA_VECTORS], o->copy.place);
    }
    o->copy.from = em_gep(e, e->base[buffer], e->t_i8, em_mul(e, from, bytes));
}

/* inside: bytes of it that are copied, i32; NULL: all. */
static void copy_one(contract *c, LLVMValueRef to, LLVMValueRef from, int bytes, LLVMValueRef inside) {
    char name[64];
    LLVMValueRef in[3] = {to, from, inside};
    snprintf(name, sizeof name, "llvm.nvvm.cp.async.%s.shared.global.%d%s", bytes == 16 ? "cg" : "ca", bytes,
             inside ? ".s" : "");
    gpu_call(c->e, name, NULL, 0, in, inside ? 3 : 2);
}

/* Bytes of the elements of place p that are before the end of the rows, and of the block's products. */
static LLVMValueRef bytes_inside(contract *c, const fma_operand *o, const fma_way *w, LLVMValueRef k0, int p) {
    emit *e = c->e;
    LLVMValueRef row = em_add(e, c->first[o->axis], em_add(e, w->row, num(c, p * w->row_step)));
    LLVMValueRef k = em_add(e, k0, em_add(e, w->k, num(c, p * w->k_step)));
    LLVMValueRef n = em_sub(e, c->s.size[o->axis], row), zero = num(c, 0), most = num(c, w->n);
    if (o->is_gathered) n = most; /* in the place of columns past the edge another one is read */
    n = em_max(e, n, zero);
    n = em_min(e, n, most);
    n = em_select(e, em_icmp(e, LLVMIntSLT, k, c->k_end), n, zero);
    return LLVMBuildTrunc(e->b, em_mul(e, n, num(c, ir_dtypes[c->acc].bytes)), e->t_i32, "");
}

static void copy_places(contract *c, const fma_operand *o, fma_width width, LLVMValueRef to, LLVMValueRef k0,
                        bool is_whole) {
    emit *e = c->e;
    const fma_way *w = &o->way[width];
    const int bytes = w->n * ir_dtypes[c->acc].bytes;
    LLVMValueRef from = o->copy.from;
    for (int p = 0; p < w->passes; p++) {
        LLVMValueRef at = from;
        if (o->is_gathered) {
            LLVMValueRef i = em_add(e, w->k, num(c, p * w->k_step));
            at = em_gep(e, from, c->t_acc, fma_table_offset(c, k0, i));
        } else if (p + 1 < w->passes) {
            from = em_gep(e, from, e->t_i8, o->copy.pass[width]);
        }
        copy_one(c, em_gep(e, to, c->t_acc, num(c, p * (w->k_step * o->line + w->row_step))), at, bytes,
                 is_whole ? NULL : bytes_inside(c, o, w, k0, p));
    }
}

/* How much of a place is inside costs as much again as its copy, and nearly all steps are whole. */
static void copy_step(contract *c, const fma_operand *o, fma_width width, LLVMValueRef to, LLVMValueRef k0) {
    emit *e = c->e;
    const fma_way *w = &o->way[width];
    em_branch few, whole;
    if (w->threads < IR_GPU_THREADS) few = em_if(e, em_icmp(e, LLVMIntSLT, c->thread, num(c, w->threads)));
    LLVMValueRef is_whole = em_icmp(e, LLVMIntSLE, em_add(e, k0, num(c, c->t->step)), c->k_end);
    if (!o->is_gathered) is_whole = em_and(e, is_whole, o->copy.has_all_rows);
    whole = em_if(e, is_whole);
    copy_places(c, o, width, to, k0, true);
    em_else(e, &whole);
    copy_places(c, o, width, to, k0, false);
    em_endif(e, &whole);
    if (w->threads < IR_GPU_THREADS) em_endif(e, &few);
}

void fma_copy(contract *c, fma_operand *o, LLVMValueRef to, LLVMValueRef k) {
    emit *e = c->e;
    to = em_gep(e, to, c->t_acc, o->copy.place);
    if (o->can) {
        em_branch wide = em_if(e, o->can);
        copy_step(c, o, FMA_VECTORS, to, k);
        em_else(e, &wide);
        copy_step(c, o, FMA_SINGLES, to, k);
        em_endif(e, &wide);
    } else {
        copy_step(c, o, FMA_SINGLES, to, k);
    }
    if (!o->is_gathered) o->copy.from = em_gep(e, o->copy.from, e->t_i8, o->copy.next_step);
}
