/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_direct.c: which contractions take the direct form (ir/kernel.h): those of small matrices whose sizes the program
 * gives. Packing them would cost about as much as multiplying them. Order and bits are those of the packed form, so
 * this is a choice of speed alone; it is made from the text alone. */
#include "ir/plan_builder.h"

/* Strides that make a displacement in an instruction. */
enum { STRIDE_MAX = 1 << 20 };

static int64_t known(const ir_sizes *sizes, ir_size s) {
    int64_t v;
    return ir_size_is_const(sizes, s, &v) && v >= -STRIDE_MAX && v <= STRIDE_MAX ? v : IR_STRIDE_RUNTIME;
}

void plan_make_direct(const planner *p, ir_kernel *k, ir_step *st) {
    const ir_sizes *sizes = p->g->sizes;
    int m = k->n_dims - 3;
    if (k->kind != IR_KERNEL_CONTRACT || m < 0 || ir_level_is_gpu(k->level)) return;
    ir_kernel *d = fu_dup(p->arena, k, sizeof *k);
    int64_t v;
    if (!ir_size_is_const(sizes, st->dim[m], &v) || v > IR_BAKE_MAX) return;
    d->dim[m].size = v;
    for (int b = 0; b < d->n_buffers; b++)
        for (int i = m; i < d->n_dims; i++) d->buffer[b].stride[i] = known(sizes, st->stride[b * d->n_dims + i]);
    for (int i = 0; i < m; i++) /* there are no blocks of columns to go on with: batches are as good */
        if (d->dim[i].role == 'y') d->dim[i].role = 'b';
    if (!ir_kernel_can_be_direct(d)) return;
    /* A constant that has to be turned is turned once. */
    if (st->prepack_param >= 0 && !ir_kernel_contract_in_place(d)) return;
    d->is_direct = true;
    d->tile =
        ir_contract_direct_tile(d->level, ir_kernel_contract_acc(d), (int)d->dim[m].size, (int)d->dim[m + 1].size);
    *k = *d;
    st->prepack_param = -1;
}
