/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* window_band.c: a map behind a convolution (a pool), in its kernel: see ir_kernel_head in ir/kernel.h. The head is
 * emitted as a convolution of its own would be, whose one output is the band: in the worker's scratch, before all else
 * there, the rows and channels of one tile of work. When these are complete the tail, a map as it would be alone, goes
 * over them, in a function of its own (BAND). So both have the bits that two kernels would have. */
#include "jit/map.h"
#include "jit/window.h"

static LLVMValueRef bytes_behind(window *w, LLVMValueRef p, LLVMValueRef bytes) {
    return em_gep(w->e, p, w->e->t_i8, bytes);
}

/* So many rows, or the next number of whole ones of q. */
static LLVMValueRef band_rows_of(window *w, LLVMValueRef rows) {
    if (!w->band_rows) return rows;
    LLVMValueRef each = num(w, w->band_rows), more = num(w, w->band_rows - 1);
    return em_mul(w->e, LLVMBuildUDiv(w->e->b, em_add(w->e, rows, more), each, ""), each);
}

LLVMValueRef window_rows_made(window *w) {
    emit *e = w->e;
    return w->rows_made ? w->rows_made : e->size[w->dim_y];
}

LLVMValueRef window_tile_of_rows(window *w) {
    emit *e = w->e;
    LLVMValueRef one = num(w, 1), rows = band_rows_of(w, em_max(e, e->tune[IR_TUNE_WINDOW_ROWS], one));
    return em_max(e, em_min(e, rows, window_rows_made(w)), one);
}

/* The first byte of scratch is the band's; returned: what is behind it. */
static LLVMValueRef lay_band(window *w, LLVMValueRef scratch) {
    emit *e = w->e;
    const int64_t bytes = ir_dtypes[w->k->buffer[w->band].dtype].bytes;
    LLVMValueRef channels = e->size[w->dim_m], n = e->size[w->dim_n];
    if (w->k->is_by_channel) channels = em_min(e, channels, em_max(e, e->tune[IR_TUNE_WINDOW_CHANNELS], num(w, w->nr)));
    w->band_pitch = em_mul(e, window_tile_of_rows(w), n);
    e->base[w->band] = scratch;
    e->stride[w->band][w->dim_m] = w->band_pitch;
    LLVMValueRef size = em_mul(e, em_mul(e, channels, w->band_pitch), num(w, bytes));
    size = em_and(e, em_add(e, size, num(w, IR_PAGE_BYTES - 1)), num(w, -IR_PAGE_BYTES)); /* as ir_band_bytes has it */
    return bytes_behind(w, scratch, size);
}

void window_set_band(window *w) {
    emit *e = w->e;
    if (!w->band_rows) return;
    LLVMValueRef sizes = LLVMBuildLoad2(
        e->b, e->t_ptr, em_gep(e, e->args, e->t_i8, num(w, (int64_t)offsetof(ir_kernel_args, size))), "");
    LLVMValueRef q = LLVMBuildLoad2(e->b, e->t_i64, em_gep(e, sizes, e->t_i64, num(w, e->whole->n_dims - 2)), "");
    w->rows_made = em_min(e, e->size[w->dim_y], em_mul(e, q, num(w, w->band_rows)));
    e->scratch = lay_band(w, e->scratch);
}

LLVMValueRef window_band_offset(window *w, LLVMValueRef off) {
    emit *e = w->e;
    LLVMValueRef before =
        em_add(e, em_mul(e, w->tile_row, e->stride[w->band][w->dim_y]), em_mul(e, w->tile_channel, w->band_pitch));
    return em_sub(e, off, before);
}

/* Number `from[d]` of the whole's dims is number d of the tail's. */
static void take_dims(emit *e, const int *from, int n) {
    LLVMValueRef size[IR_KERNEL_MAX_DIMS], stride[IR_KERNEL_MAX_DIMS];
    for (int d = 0; d < n; d++) size[d] = e->size[from[d]];
    memcpy(e->size, size, (size_t)n * sizeof *size);
    for (int b = 0; b < e->k->n_buffers; b++) {
        for (int d = 0; d < n; d++) stride[d] = e->stride[b][from[d]];
        memcpy(e->stride[b], stride, (size_t)n * sizeof *stride);
    }
}

/* (args, band, block, first channel, channels, first row of q, rows of q): the tail over one tile of work, of the batch
 * whose indices the block has (window_write_block). Its rows lie in the cache, so code that waits for memory as a map of
 * its own may be (em_leave_unoptimized) is not for it. */
fusor_status window_emit_band(window *w, fu_error *err) {
    emit *e = w->e;
    LLVMTypeRef parameter[7] = {e->t_ptr, e->t_ptr, e->t_ptr, e->t_i64, e->t_i64, e->t_i64, e->t_i64};
    if (!w->band_rows) return FUSOR_OK;
    ir_kernel *tail = FU_NEW(e->arena, ir_kernel);
    int from[IR_KERNEL_MAX_DIMS];
    ir_kernel_tail(e->whole, tail, from);
    window_outer *o = window_begin(w, BAND, "band", parameter, 7);
    LLVMValueRef in[7], pitch = w->band_pitch, one = num(w, 1);
    LLVMGetParams(e->fn, in);
    e->k = e->whole;
    em_load_args(e, in[0]);
    take_dims(e, from, tail->n_dims);
    em_take_program(e, tail);
    e->inner.n = 0;
    e->lanes = 1;
    const int m = tail->n_dims - 3, q = m + 1;
    for (int b = 0; b < tail->n_buffers; b++) {
        const int64_t bytes = ir_dtypes[tail->buffer[b].dtype].bytes;
        const int64_t *stride = tail->buffer[b].stride;
        if (tail->buffer[b].is_band) {
            e->base[b] = bytes_behind(w, in[1], LLVMBuildPtrToInt(e->b, e->base[b], e->t_i64, ""));
            for (int d = 0; d <= m; d++) e->stride[b][d] = d == m ? pitch : num(w, 0);
            continue;
        }
        LLVMValueRef at = num(w, 0);
        for (int d = 0; d < m; d++)
            if (stride[d] != 0)
                at = em_add(e, at, em_mul(e, window_told(w, in[2], w->k->n_buffers + d), e->stride[b][d]));
        if (stride[m] != 0) at = em_add(e, at, em_mul(e, in[3], e->stride[b][m]));
        if (stride[q] != 0) at = em_add(e, at, em_mul(e, in[5], e->stride[b][q]));
        e->base[b] = bytes_behind(w, e->base[b], em_mul(e, at, num(w, bytes)));
    }
    for (int d = 0; d < m; d++) e->size[d] = one;
    e->size[m] = in[4];
    e->size[q] = in[6];
    e->tile_begin = num(w, 0);
    e->tile_end = one;
    e->tune[IR_TUNE_MAP_ROWS] = em_mul(e, in[4], in[6]);
    e->tune[IR_TUNE_MAP_COLUMNS] = num(w, INT32_MAX);
    e->tune[IR_TUNE_MAP_STREAM] = num(w, 0);
    FU_TRY(jit_emit_map(e, err));
    window_end(w, o);
    return FUSOR_OK;
}

void window_end_tile(window *w, LLVMValueRef block, LLVMValueRef channels, LLVMValueRef rows) {
    emit *e = w->e;
    if (!w->band_rows) return;
    LLVMValueRef each = num(w, w->band_rows), q = LLVMBuildUDiv(e->b, w->tile_row, each, "");
    window_call(w, BAND,
                (LLVMValueRef[]){e->args, e->base[w->band], block, w->tile_channel, channels, q,
                                 LLVMBuildUDiv(e->b, band_rows_of(w, rows), each, "")},
                7);
}
