/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* kernel_rows.c: row reductions behind a contraction, in its kernel. Such a description is two programs over the same
 * rows that meet in the kept values: the tile program makes them from the products, and the row program reads them when
 * the row is complete. Each is a kernel of its own kind (contract, row) with the numbering of the whole, so that code
 * generation needs no third way: a kept value is an output of the first and an input of the second, in a buffer behind
 * those of the whole. */
#include "base/small.h"
#include "ir/kernel.h"

bool ir_kernel_has_rows(const ir_kernel *k) {
    if (k->kind != IR_KERNEL_CONTRACT) return false;
    for (int i = 0; i < k->n_insts; i++)
        if (ir_kernel_is_reduce_op(k->inst[i].op)) return true;
    return false;
}

/* Values that depend on a reduction. */
static void find_late(const ir_kernel *k, bool late[IR_KERNEL_MAX_INSTS]) {
    for (int i = 0; i < k->n_insts; i++) {
        late[i] = ir_kernel_is_reduce_op(k->inst[i].op);
        for (int j = 0; j < k->inst[i].n_in; j++) late[i] |= late[k->inst[i].in[j]];
    }
}

int ir_kernel_row_values(const ir_kernel *k, int inst[IR_ROW_VALUES]) {
    bool late[IR_KERNEL_MAX_INSTS];
    int n = 0;
    find_late(k, late);
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].is_kept && !late[i] && n++ < IR_ROW_VALUES) inst[n - 1] = i;
    return n;
}

int64_t ir_kernel_row_value_bytes(const ir_kernel *k, int64_t rows, int64_t length) {
    int inst[IR_ROW_VALUES], n = ir_kernel_row_values(k, inst);
    int64_t bytes = 0;
    for (int i = 0; i < n && i < IR_ROW_VALUES; i++)
        bytes += (rows * length * ir_dtypes[k->inst[inst[i]].dtype].bytes + 63) / 64 * 64;
    return bytes;
}

int64_t ir_kernel_row_scratch_bytes(const ir_kernel *k, int64_t length) {
    bool late[IR_KERNEL_MAX_INSTS];
    int64_t partials = (length + IR_REDUCE_BLOCK - 1) / IR_REDUCE_BLOCK, reductions = 0, bytes = 0;
    find_late(k, late);
    for (int i = 0; i < k->n_insts; i++) {
        reductions += ir_kernel_is_reduce_op(k->inst[i].op);
        if (k->inst[i].is_kept && late[i]) bytes += (length * ir_dtypes[k->inst[i].dtype].bytes + 63) / 64 * 64;
    }
    return (IR_PARTIAL_BYTES * reductions * partials + 63) / 64 * 64 + bytes;
}

/* Buffer number n of the whole: rows one behind the other. */
static int add_buffer(ir_kernel *k, ir_dtype t, bool is_output) {
    ir_kbuffer *b = &k->buffer[k->n_buffers];
    *b = (ir_kbuffer){.dtype = t, .is_output = is_output};
    for (int d = 0; d < k->n_dims; d++)
        b->stride[d] = k->dim[d].role == 'k'                            ? 0
                       : k->dim[d].role == 'n' || k->dim[d].role == 'r' ? 1
                                                                        : IR_STRIDE_RUNTIME;
    return k->n_buffers++;
}

void ir_kernel_tile_program(const ir_kernel *k, ir_kernel *out) {
    bool late[IR_KERNEL_MAX_INSTS], is_needed[IR_KERNEL_MAX_INSTS] = {false};
    int value[IR_ROW_VALUES], n = ir_kernel_row_values(k, value);
    find_late(k, late);
    *out = *k;
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE && !late[i]) ir_kernel_mark(out, i, is_needed);
    for (int i = 0; i < n; i++) ir_kernel_mark(out, value[i], is_needed);
    ir_kernel_keep(out, is_needed);
    for (int i = 0; i < n; i++) {
        ir_dtype t = k->inst[value[i]].dtype;
        out->inst[value[i]].is_kept = false;
        ir_kinst *st = &out->inst[out->n_insts++];
        memset(st, 0, sizeof *st);
        st->op = IR_K_STORE;
        st->dtype = t;
        st->n_in = 1;
        st->in[0] = (uint16_t)value[i];
        st->index = (uint16_t)add_buffer(out, t, true);
    }
}

void ir_kernel_row_program(const ir_kernel *k, ir_kernel *out) {
    bool late[IR_KERNEL_MAX_INSTS], is_needed[IR_KERNEL_MAX_INSTS] = {false};
    int value[IR_ROW_VALUES], n = ir_kernel_row_values(k, value);
    find_late(k, late);
    *out = *k;
    out->kind = IR_KERNEL_ROW;
    out->is_direct = false;
    memset(&out->tile, 0, sizeof out->tile);
    while (out->dim[out->n_dims - 1].role == 'k') out->n_dims--;
    for (int d = 0; d < out->n_dims; d++) out->dim[d].role = out->dim[d].role == 'n' ? 'r' : 'p';
    for (int i = 0; i < n; i++) {
        ir_kinst *in = &out->inst[value[i]];
        ir_dtype t = in->dtype;
        memset(in, 0, sizeof *in);
        in->op = IR_K_LOAD;
        in->dtype = t;
        in->index = (uint16_t)add_buffer(out, t, false);
    }
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE && late[i]) ir_kernel_mark(out, i, is_needed);
    ir_kernel_keep(out, is_needed);
    ir_kernel_keep_addresses(out);
}

fusor_status ir_kernel_verify_rows(const ir_kernel *k, fu_error *e) {
    bool late[IR_KERNEL_MAX_INSTS], reaches[IR_KERNEL_MAX_INSTS]; /* the products, but not through a kept value */
    int value[IR_ROW_VALUES], n = ir_kernel_row_values(k, value);
    uint32_t varies[IR_KERNEL_MAX_INSTS], row = 0;
    if (n < 1 || n > IR_ROW_VALUES || k->n_insts + n > IR_KERNEL_MAX_INSTS || k->n_buffers + n > IR_KERNEL_MAX_BUFFERS)
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL,
                       "a contract kernel with reductions keeps 1 to %d values of its rows, not %d", IR_ROW_VALUES, n);
    for (int d = 0; d < k->n_dims; d++)
        if (k->dim[d].role == 'n') row = 1u << d;
    ir_kernel_vary_all(k, varies);
    find_late(k, late);
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        reaches[i] = in->op == IR_OP_MATMUL;
        for (int j = 0; j < in->n_in; j++) reaches[i] |= reaches[in->in[j]];
        if (late[i] && reaches[i])
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL,
                           "kernel instruction %%%d: a row program reads products that are not kept", i);
        if (ir_kernel_is_reduce_op(in->op) && !(varies[in->in[0]] & row))
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "kernel instruction %%%d: a contract kernel reduces along n", i);
        if (in->is_kept && !late[i]) reaches[i] = false;
    }
    return FUSOR_OK;
}
