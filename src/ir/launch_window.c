/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* launch_window.c: tiles and memory of a window kernel, and what its description must be. The generated code does the
 * same arithmetic. */
#include "ir/arith.h"
#include "ir/kernel.h"

static const ir_kinst *operand(const ir_kernel *k, int i) {
    for (int j = 0; j < k->n_insts; j++)
        if (k->inst[j].op == IR_OP_MATMUL) return &k->inst[k->inst[j].in[i]];
    return NULL;
}
static int dim_of(const ir_kernel *k, char role) {
    for (int d = 0; d < k->n_dims; d++)
        if (k->dim[d].role == role) return d;
    return -1;
}

int64_t ir_kernel_window_step(const ir_kernel *k) { return k->buffer[operand(k, 1)->index].stride[dim_of(k, 'n')]; }

fusor_status ir_verify_window(const ir_kernel *k, fu_error *e) {
    const int m = dim_of(k, 'm'), y = dim_of(k, 'y'), n = dim_of(k, 'n');
    if (m < 0 || y != m + 1 || n != y + 1 || n + 1 >= k->n_dims || k->tile.mr < 1 || k->tile.nr < 1 || k->tile.kb < 1)
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a window kernel needs dims m, y, n, k and a tile");
    const ir_kinst *mm = NULL;
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_OP_MATMUL) mm = &k->inst[i];
    for (int i = 0; i < 2 && mm; i++) {
        if (mm->n_in != 2 || mm->in[i] >= k->n_insts)
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a window kernel multiplies two operands");
        const ir_kinst *x = &k->inst[mm->in[i]];
        const int variant = i == 1 && k->n_axes ? x->variant & ~IR_LOAD_GUARD : x->variant;
        if (x->op != IR_K_LOAD || variant || x->index >= k->n_buffers || x->dtype != mm->dtype ||
            !ir_is_float(x->dtype) || ir_is_half(x->dtype))
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL,
                           "operand %d of a window kernel is no plain load of the type of its sums", i);
        const int64_t *stride = k->buffer[x->index].stride;
        if (i == 0 && (stride[y] != 0 || stride[n] != 0 || stride[k->n_dims - 1] != 1))
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL,
                           "the weights of a window kernel vary along y or n, or not by 1 along the last k");
        if (i == 1 && (stride[m] != 0 || (stride[n] < 1 && stride[n] != IR_STRIDE_RUNTIME)))
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "operand 1 of a window kernel varies along m, or not along n");
    }
    return ir_verify_axes(k, e);
}

void ir_launch_window(const ir_kernel *k, const int64_t *size, const int64_t *tune, ir_launch *out) {
    if (k->is_depthwise) {
        ir_launch_depthwise(k, size, tune, out);
        return;
    }
    const int64_t bytes = ir_dtypes[ir_kernel_contract_acc(k)].bytes;
    int64_t batches = 1, rows = tune[IR_TUNE_WINDOW_ROWS] < 1 ? 1 : tune[IR_TUNE_WINDOW_ROWS], y = 1, kk = 1;
    bool is_empty = false;
    for (int d = 0; d < k->n_dims; d++) {
        switch (k->dim[d].role) {
        case 'b': batches *= size[d]; break;
        case 'y': y = size[d]; break;
        case 'k': kk *= size[d]; break;
        default: is_empty |= size[d] == 0;
        }
    }
    out->n_phases = 1;
    out->tiles[0] = is_empty ? 0 : batches * ir_ceil_div(y, rows);
    out->scratch_bytes = 2 * ir_round_up(kk * 8, 64) + ir_round_up(k->tile.mr * k->tile.nr * bytes, 64) +
                         ir_round_up(kk * k->tile.nr * bytes, 64) + 64 * 8;
}
