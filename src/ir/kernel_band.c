/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* kernel_band.c: a map behind a convolution, in its kernel: see ir_kernel_head in kernel.h. */
#include "base/small.h"
#include "ir/arith.h"
#include "ir/kernel.h"

enum { TAIL_DIMS = 2 }; /* q and w, the last ones of the whole */

int ir_kernel_tail_dims(const ir_kernel *k) { return k->band_rows ? TAIL_DIMS : 0; }

bool ir_kernel_is_countable(const ir_kernel *k, const int64_t *size) {
    int64_t points = 1;
    for (int d = 0; d < k->n_dims; d++)
        if (size[d] == 0) return true;
    for (int d = 0; d < k->n_dims - ir_kernel_tail_dims(k); d++)
        if (__builtin_mul_overflow(points, size[d], &points) || points > INT64_C(1) << 52 || points < 0) return false;
    return true;
}

int ir_kernel_band(const ir_kernel *k) {
    for (int b = 0; b < k->n_buffers; b++)
        if (k->buffer[b].is_band && k->buffer[b].is_output) return b;
    return -1;
}

/* Is it the tail's: does it read the band? */
static void find_late(const ir_kernel *k, bool late[IR_KERNEL_MAX_INSTS]) {
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        late[i] = in->op == IR_K_LOAD && k->buffer[in->index].is_band;
        for (int j = 0; j < in->n_in; j++) late[i] |= late[in->in[j]];
    }
}

/* The stores of one of the programs, with what they need. */
static void keep_stores(ir_kernel *k, bool of_tail) {
    bool late[IR_KERNEL_MAX_INSTS], is_needed[IR_KERNEL_MAX_INSTS] = {false};
    find_late(k, late);
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE && late[i] == of_tail) ir_kernel_mark(k, i, is_needed);
    for (int i = 0; i < k->n_axes && !of_tail; i++) is_needed[k->axis[i].size] = true;
    ir_kernel_keep(k, is_needed);
    ir_kernel_keep_addresses(k);
}

void ir_kernel_head(const ir_kernel *k, ir_kernel *out) {
    *out = *k;
    keep_stores(out, false);
    while (k->inst[out->n_insts - 1].op != IR_K_STORE || k->inst[out->n_insts - 1].index != ir_kernel_band(k))
        out->n_insts--; /* what is behind the store is the tail's */
    out->n_dims -= TAIL_DIMS;
    out->band_rows = 0;
    for (int b = 0; b < out->n_buffers; b++) /* the band is of one batch and the channels of a tile */
        for (int d = 0; d < out->n_dims && out->buffer[b].is_band; d++)
            if (out->dim[d].role == 'b') out->buffer[b].stride[d] = 0;
            else if (out->dim[d].role == 'm' && out->buffer[b].is_output) out->buffer[b].stride[d] = IR_STRIDE_RUNTIME;
}

void ir_kernel_tail(const ir_kernel *k, ir_kernel *out, int from[IR_KERNEL_MAX_DIMS]) {
    const int m = ir_kernel_dim(k, 'm');
    *out = *k;
    out->kind = IR_KERNEL_MAP;
    out->features = 0;
    out->is_by_channel = out->has_whole_channels = out->has_last = out->has_lower = false;
    out->n_axes = out->n_folded = 0;
    out->band_rows = 0;
    memset(&out->tile, 0, sizeof out->tile);
    out->n_dims = m + 1 + TAIL_DIMS;
    for (int d = 0; d < out->n_dims; d++) {
        from[d] = d <= m ? d : k->n_dims - out->n_dims + d;
        out->dim[d] = (ir_kdim){'p', k->dim[from[d]].size};
        for (int b = 0; b < k->n_buffers; b++) {
            const int64_t stride = k->buffer[b].stride[from[d]];
            ir_kbuffer *to = &out->buffer[b];
            const bool is_read = to->is_band && !to->is_output;
            to->stride[d] = is_read && k->dim[from[d]].role == 'b' ? 0 : is_read && d == m ? IR_STRIDE_RUNTIME : stride;
        }
    }
    keep_stores(out, true);
}

int64_t ir_band_rows_made(const ir_kernel *k, const int64_t *size) {
    const int64_t y = size[ir_kernel_dim(k, 'y')];
    if (!k->band_rows) return y;
    const int64_t needed = ir_times(size[ir_kernel_dim(k, 'q')], k->band_rows);
    return needed < y ? needed : y;
}

int64_t ir_band_tile_rows(const ir_kernel *k, int64_t rows) {
    return k->band_rows ? ir_round_up(rows, k->band_rows) : rows;
}

int64_t ir_band_bytes(const ir_kernel *k, const int64_t *size, int64_t rows, int64_t channels) {
    if (!k->band_rows) return 0;
    const int64_t elements = ir_times(ir_times(channels, rows), size[ir_kernel_dim(k, 'n')]);
    return ir_round_up(ir_times(elements, ir_dtypes[k->buffer[ir_kernel_band(k)].dtype].bytes), IR_PAGE_BYTES);
}

fusor_status ir_verify_band(const ir_kernel *k, fu_error *e) {
    bool late[IR_KERNEL_MAX_INSTS], reaches[IR_KERNEL_MAX_INSTS]; /* is it made of the products? */
    const int band = ir_kernel_band(k), n = k->n_dims, m = ir_kernel_dim(k, 'm'), y = ir_kernel_dim(k, 'y'),
              column = ir_kernel_dim(k, 'n');
    int bands = 0, stores = 0;
    if (!k->band_rows) {
        for (int b = 0; b < k->n_buffers; b++)
            if (k->buffer[b].is_band)
                return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "buffer %d of a kernel without a band is one", b);
        return FUSOR_OK;
    }
    if (k->kind != IR_KERNEL_WINDOW || ir_level_is_gpu(k->level) || k->is_depthwise ||
        ir_kernel_is_transposed_window(k))
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a band is of a window kernel of plain convolutions, on a CPU");
    if (k->band_rows < 1 || k->band_rows > IR_BAND_ROWS || band < 0 || n < TAIL_DIMS || k->dim[n - 2].role != 'q' ||
        k->dim[n - 1].role != 'w')
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a band needs 1 to %d rows, a buffer, and dims q and w", IR_BAND_ROWS);
    find_late(k, late);
    for (int b = 0; b < k->n_buffers; b++) {
        const ir_kbuffer *at = &k->buffer[b];
        bands += at->is_band && at->is_output;
        for (int d = 0; d < n && at->is_band; d++) {
            const bool is_own = d <= m || (at->is_output ? d <= column : d >= n - TAIL_DIMS);
            if (!is_own && at->stride[d] != 0)
                return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "buffer %d, a band, varies along dim %d", b, d);
        }
        if (at->is_band && (at->dtype != k->buffer[band].dtype || at->stride[m] == 0))
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "buffer %d is no part of the band", b);
    }
    if (bands != 1 || k->buffer[band].stride[column] != 1 || k->buffer[band].stride[y] == 0)
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a window kernel has one band, of rows of adjacent elements");
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        reaches[i] = in->op == IR_OP_MATMUL;
        for (int j = 0; j < in->n_in; j++) reaches[i] |= reaches[in->in[j]];
        if (stores && reaches[i])
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "kernel instruction %%%d: products behind the band's store", i);
        if (in->op != IR_K_STORE) continue;
        stores += in->index == band;
        if (!late[i] != (in->index == band))
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "kernel instruction %%%d: only the band is stored by its head", i);
    }
    bool of_tail[IR_KERNEL_MAX_INSTS] = {false};
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE && late[i]) ir_kernel_mark(k, i, of_tail);
    for (int i = 0; i < k->n_insts; i++)
        if (of_tail[i] && (k->inst[i].op == IR_K_INDEX || (k->inst[i].op == IR_K_LOAD && k->inst[i].variant)))
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "kernel instruction %%%d: a tail knows no indices", i);
    return stores == 1 ? FUSOR_OK : FU_FAIL(e, FUSOR_ERROR_INTERNAL, "the head of a band stores one value");
}
