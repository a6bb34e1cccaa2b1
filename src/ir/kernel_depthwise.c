/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* kernel_depthwise.c: spatial axes in the description of a convolution, and the form for one channel a group: how the
 * operand lies in scratch, tiles and memory. The generated code (jit/window_depthwise.c) does the same arithmetic. */
#include "base/small.h"
#include "ir/arith.h"
#include "ir/kernel.h"
#include <string.h>

static const ir_kaxis *axis_from_last(const ir_kernel *k, int i) {
    return i < k->n_axes ? &k->axis[k->n_axes - 1 - i] : NULL;
}

static int places_of(const ir_kernel *k, const ir_kaxis *a) {
    return a && a->place >= 0 ? (int)k->dim[a->place].size : 1;
}

fusor_status ir_verify_axes(const ir_kernel *k, fu_error *e) {
    for (int i = 0; i < k->n_axes; i++) {
        const ir_kaxis *a = &k->axis[i];
        if (k->kind != IR_KERNEL_WINDOW || a->dim < -1 || a->dim >= k->n_dims || a->place < -1 ||
            a->place >= k->n_dims || (a->dim >= 0 && !strchr("byn", k->dim[a->dim].role)) ||
            (a->place >= 0 && k->dim[a->place].role != 'k') || a->stride < 1 || a->dilation < 1 ||
            a->size >= k->n_insts || k->inst[a->size].op != IR_K_SCALAR || k->inst[a->size].dtype != FUSOR_I64)
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "axis %d of a window kernel: no such dims, size or step", i);
    }
    if (k->is_depthwise && (k->kind != IR_KERNEL_WINDOW || !ir_kernel_can_be_depthwise(k)))
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a depthwise kernel needs axes, and no dim k but its few places");
    if (k->is_by_channel && !ir_kernel_has_slab(k))
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a kernel by channels is a window kernel with axes, on a CPU");
    if (k->n_folded && !(ir_kernel_has_slab(k) && ir_window_is_tiled(k)))
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a kernel whose places are channels multiplies in tile registers");
    if (k->has_last && (!k->is_by_channel || k->n_axes > 2 || ir_kernel_is_transposed_window(k) ||
                        ir_kernel_window_dot(k) || ir_kernel_window_channels(k) < 0 ||
                        ir_kernel_window_operand(k, 1)->dtype != ir_kernel_contract_acc(k)))
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a kernel with channels last is by channels, of floats as they are");
    return FUSOR_OK;
}

bool ir_kernel_can_be_depthwise(const ir_kernel *k) {
    int64_t places = 1;
    uint32_t is_place = 0;
    if (k->n_axes < 1 || k->axis[k->n_axes - 1].dim < 0 || k->dim[k->axis[k->n_axes - 1].dim].role != 'n') return false;
    for (int i = 0; i < k->n_axes; i++) {
        const ir_kaxis *a = &k->axis[i];
        if (a->place >= 0) is_place |= 1u << a->place;
        const int64_t size = a->place >= 0 ? k->dim[a->place].size : 1;
        if (size < 1 || size > IR_DEPTHWISE_PLACES || a->stride > IR_DEPTHWISE_STRIDE ||
            a->dilation > IR_DEPTHWISE_REACH || (size - 1) * a->dilation > IR_DEPTHWISE_REACH)
            return false;
        places *= size;
    }
    for (int d = 0; d < k->n_dims; d++)
        if (k->dim[d].role == 'k' && !(is_place >> d & 1) && k->dim[d].size != 1) return false;
    return places <= IR_DEPTHWISE_PLACES;
}

ir_depthwise ir_kernel_depthwise(const ir_kernel *k) {
    const ir_kaxis *x = axis_from_last(k, 0);
    const int lanes = ir_levels[k->level].vector_bytes / ir_dtypes[ir_kernel_contract_acc(k)].bytes;
    ir_depthwise d = {.n_parts = 0};
    for (int i = 0; i < IR_KERNEL_MAX_AXES; i++)
        d.places[IR_KERNEL_MAX_AXES - 1 - i] = places_of(k, axis_from_last(k, i));
    for (int p = 0; p < d.places[IR_KERNEL_MAX_AXES - 1]; p++) {
        const int column = (int)(p * x->dilation), first = column % (int)x->stride;
        int i = 0;
        while (i < d.n_parts && d.first[i] != first) i++;
        if (i == d.n_parts) d.first[d.n_parts++] = first;
        d.part[p] = i;
        d.at[p] = column / (int)x->stride;
    }
    /* the first column that is no pad, at a vector's begin */
    if (x->begin > 0) d.lead = (int)(lanes - (x->begin + x->stride - 1) / x->stride % lanes) % lanes;
    return d;
}

bool ir_depthwise_in_place(const ir_kernel *k) {
    const ir_kaxis *x = axis_from_last(k, 0);
    const int bytes = ir_dtypes[ir_kernel_contract_acc(k)].bytes, nr = k->tile.nr;
    const int64_t n = k->dim[x->dim].size, reach = (places_of(k, x) - 1) * x->dilation;
    const ir_kinst *of = ir_kernel_window_operand(k, 1);
    return ir_levels[k->level].has_mask && of && of->dtype == ir_kernel_contract_acc(k) && k->n_axes <= 2 &&
           nr * bytes <= ir_levels[k->level].vector_bytes && n > 0 && n <= nr && x->stride <= 2 &&
           (n - 1) * x->stride + reach < IR_DEPTHWISE_ZEROS;
}

int64_t ir_depthwise_rows(const ir_kernel *k, int64_t rows) {
    const ir_kaxis *y = axis_from_last(k, 1);
    return y ? (rows - 1) * y->stride + (places_of(k, y) - 1) * y->dilation + 1 : rows;
}

int64_t ir_depthwise_pitch(const ir_kernel *k, int64_t columns) {
    const ir_kaxis *x = axis_from_last(k, 0);
    return ir_round_up(columns + (places_of(k, x) - 1) * x->dilation / x->stride, 16);
}

void ir_launch_depthwise(const ir_kernel *k, const int64_t *size, const int64_t *tune, ir_launch *out) {
    const ir_depthwise d = ir_kernel_depthwise(k);
    const int64_t rows = tune[IR_TUNE_WINDOW_ROWS] < k->tile.mr ? k->tile.mr : tune[IR_TUNE_WINDOW_ROWS],
                  columns = tune[IR_TUNE_WINDOW_COLUMNS] < k->tile.nr ? k->tile.nr : tune[IR_TUNE_WINDOW_COLUMNS],
                  bytes = ir_dtypes[ir_kernel_contract_acc(k)].bytes;
    int64_t tiles = 1;
    for (int i = 0; i < k->n_dims; i++) {
        switch (k->dim[i].role) {
        case 'b': tiles *= size[i]; break;
        case 'y': tiles *= ir_ceil_div(size[i], rows); break;
        case 'n': tiles *= ir_ceil_div(size[i], columns); break;
        case 'm': tiles = size[i] ? tiles : 0; break;
        default: break;
        }
    }
    out->n_phases = 1;
    out->tiles[0] = tiles;
    out->scratch_bytes =
        ir_round_up(k->tile.mr * k->tile.nr * bytes, 64) +
        ir_round_up(
            (d.lead + d.places[0] * ir_depthwise_rows(k, rows) * d.n_parts * ir_depthwise_pitch(k, columns) + 64) *
                bytes,
            64);
}
