/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* launch_window.c: tiles and memory of a window kernel, and what its description must be. The generated code does the
 * same arithmetic. */
#include "base/small.h"
#include "ir/arith.h"
#include "ir/kernel.h"

const ir_kinst *ir_kernel_window_operand(const ir_kernel *k, int i) {
    const ir_kinst *mm = ir_kernel_matmul(k), *x = mm ? &k->inst[mm->in[i]] : NULL;
    while (x && x->op == IR_OP_CAST) x = &k->inst[x->in[0]];
    return x;
}

int64_t ir_kernel_window_step(const ir_kernel *k) {
    return k->buffer[ir_kernel_window_operand(k, 1)->index].stride[ir_kernel_dim(k, 'n')];
}

bool ir_window_is_small(const ir_kernel *k) {
    int n = 0;
    for (int i = (int)(ir_kernel_matmul(k) - k->inst); i < k->n_insts; i++, n++) {
        const uint16_t op = k->inst[i].op;
        if (op < IR_OP_COUNT && (ir_ops[op].flags & IR_COSTLY)) return false;
    }
    return n <= 12;
}

/* ---- the form with axes ---- */
bool ir_kernel_has_slab(const ir_kernel *k) {
    return k->kind == IR_KERNEL_WINDOW && k->n_axes && !k->is_depthwise && !ir_level_is_gpu(k->level);
}

ir_dot ir_kernel_window_dot(const ir_kernel *k) {
    const ir_kinst *mm = ir_kernel_matmul(k), *x[2];
    if (!mm || !ir_kernel_has_slab(k)) return IR_DOT_NONE;
    if (k->features & IR_FEATURE_AMXINT8) return IR_DOT_TILE_I8; /* a plan says so only where tiles serve */
    if (k->features & IR_FEATURE_AMXFP16) return IR_DOT_TILE_F16;
    if (k->features & IR_FEATURE_AMXBF16) return IR_DOT_TILE_BF16;
    for (int i = 0; i < 2; i++) {
        x[i] = &k->inst[mm->in[i]];
        if (x[i]->op == IR_OP_CAST && x[i]->dtype == FUSOR_F32) x[i] = &k->inst[x[i]->in[0]];
    }
    return ir_window_dot(ir_kernel_target(k), x[0]->dtype, x[1]->dtype, mm->dtype);
}

bool ir_window_is_tiled(const ir_kernel *k) { return ir_dot_is_tile(ir_kernel_window_dot(k)); }

static bool is_folded(const ir_kernel *k, int axis) { return axis >= k->n_axes - k->n_folded; }
static int64_t places_along(const ir_kernel *k, int axis, const int64_t *size) {
    return k->axis[axis].place < 0 ? 1 : size[k->axis[axis].place];
}

int64_t ir_window_folded(const ir_kernel *k, const int64_t *size) {
    int64_t places = 1;
    for (int i = 0; i < k->n_axes; i++)
        if (is_folded(k, i)) places *= places_along(k, i, size);
    return places;
}

bool ir_kernel_window_packs(const ir_kernel *k) {
    return ir_kernel_has_slab(k) &&
           (k->is_by_channel || ir_kernel_is_transposed_window(k) ||
            ir_kernel_window_operand(k, 0)->dtype != ir_kernel_matmul(k)->dtype || ir_kernel_window_dot(k));
}

bool ir_kernel_window_adds(const ir_kernel *k) {
    const ir_kinst *mm = ir_kernel_matmul(k);
    return ir_kernel_window_dot(k) == IR_DOT_I8 && k->inst[mm->in[0]].dtype == FUSOR_I8 &&
           k->inst[mm->in[1]].dtype == FUSOR_I8;
}

int ir_kernel_window_channels(const ir_kernel *k) {
    for (int d = 0; d < k->n_dims; d++) {
        bool is_place = false;
        for (int i = 0; i < k->n_axes; i++) is_place |= k->axis[i].place == d;
        if (k->dim[d].role == 'k' && !is_place) return d;
    }
    return -1;
}

/* ---- words of two bf16 ---- */
bool ir_window_has_pairs(const ir_kernel *k) { return ir_kernel_window_dot(k) == IR_DOT_BF16; }

int64_t ir_window_places(const ir_kernel *k, int number) {
    const int i = k->n_axes - 1 - number;
    return i < 0 || k->axis[i].place < 0 ? 1 : k->dim[k->axis[i].place].size;
}

bool ir_window_pairs_of(const ir_kernel *k, ir_window_pairs *out) {
    bool is_odd = true;    /* the places of the axes so far: only then are some of the words between two of the next */
    bool is_known = true;  /* places are */
    int64_t back[3] = {0}; /* from the last place to the first */
    *out = (ir_window_pairs){0};
    for (int i = 0; i < 4; i++) {
        const ir_kaxis *a = i < k->n_axes && i < 3 ? &k->axis[k->n_axes - 1 - i] : NULL;
        out->kind_of[i] = out->n_kinds;
        if (i < 3) out->places[i] = ir_window_places(k, i);
        if (is_odd && (i == 3 || out->places[i] > 1)) {
            for (int j = 0; j < i; j++) out->by[out->n_kinds][j] = -back[j];
            out->by[out->n_kinds][i] = a ? a->dilation : 1;
            if (i == 3) out->crosses = true;
            else out->n_kinds++;
        }
        if (i == 3) break;
        back[i] = a ? (out->places[i] - 1) * a->dilation : 0;
        is_odd &= out->places[i] % 2 != 0;
        is_known &= out->places[i] >= 1 && out->places[i] <= IR_BAKE_MAX;
    }
    return is_known && k->tile.kb % 2 == 0 && !ir_kernel_is_transposed_window(k);
}

/* Planes of the slab, for each place of the outer axes and part. */
static int64_t planes_of(const ir_kernel *k, int64_t channels) {
    const ir_dot dot = ir_kernel_window_dot(k);
    ir_window_pairs pairs;
    if (dot != IR_DOT_BF16) return ir_dot_words(dot, channels);
    (void)ir_window_pairs_of(k, &pairs);
    return pairs.n_kinds * channels + (pairs.crosses ? ir_ceil_div(channels, 2) : 0);
}

/* ---- transposed ---- */
bool ir_kernel_is_transposed_window(const ir_kernel *k) { return k->n_axes && k->axis[0].up; }

ir_phases ir_kernel_phases(const ir_kernel *k, int number) {
    ir_phases p = {.n = 1, .phase = {{.places = 1}}};
    if (number >= k->n_axes) return p;
    const ir_kaxis *a = &k->axis[k->n_axes - 1 - number];
    const int64_t places = a->place < 0 ? 1 : k->dim[a->place].size;
    int64_t before = 0, last = -4 * IR_UP_REACH;
    p.n = a->up;
    p.begin = -4 * IR_UP_REACH;
    for (p.step = 1; p.step * a->dilation % a->up; p.step++) {}
    p.along = p.step * a->dilation / a->up;
    for (int r = 0; r < p.n; r++) {
        int64_t first = places - 1;
        while (first >= 0 && (r + a->begin - first * a->dilation) % a->up) first--;
        p.phase[r].before = before;
        p.phase[r].first = first;
        p.phase[r].places = (first + p.step) / p.step; /* 0 where first is -1 */
        if (first < 0) continue;
        const int64_t from = (r + a->begin - first * a->dilation) / a->up,
                      to = from + (p.phase[r].places - 1) * p.along;
        p.phase[r].from = from;
        before += p.phase[r].places;
        if (-from > p.begin) p.begin = -from;
        if (to > last) last = to;
    }
    p.reach = last + p.begin;
    return p;
}

int64_t ir_window_size(const ir_kernel *k, int d, int64_t size) {
    for (int i = 0; i < k->n_axes && size >= 0; i++)
        if (k->axis[i].dim == d && k->axis[i].up) return ir_ceil_div(size, k->axis[i].up);
    return size;
}

ir_slab_axis ir_kernel_slab_axis(const ir_kernel *k, int axis, const int64_t *size, int64_t count) {
    const ir_kaxis *a = &k->axis[axis];
    if (a->up) return (ir_slab_axis){1, count + ir_kernel_phases(k, k->n_axes - 1 - axis).reach, false};
    const int64_t places = is_folded(k, axis) ? 1 : places_along(k, axis, size), reach = (places - 1) * a->dilation;
    if (k->is_by_channel) return (ir_slab_axis){1, (count - 1) * a->stride + reach + 1, false};
    const int64_t more = reach / a->stride;
    const bool is_by_place = places < a->stride || places * count < count + more;
    return (ir_slab_axis){is_by_place ? places : a->stride, count + (is_by_place ? 0 : more), is_by_place};
}

int64_t ir_kernel_slab_bytes(const ir_kernel *k, const int64_t *size, int64_t rows, int64_t columns) {
    enum { LINE_BYTES = 64 };
    const int64_t bytes = ir_dtypes[ir_kernel_matmul(k)->dtype].bytes;
    const int channels = ir_kernel_window_channels(k), last = k->n_axes - 1;
    int64_t n = planes_of(k, (channels < 0 ? 1 : size[channels]) * ir_window_folded(k, size)), plane = 1;
    for (int i = 0; i <= last; i++) {
        const ir_kaxis *a = &k->axis[i];
        if (i < last - 1) {
            n *= a->up ? ir_kernel_phases(k, 2).reach + 1 : is_folded(k, i) ? 1 : places_along(k, i, size);
            continue;
        }
        const ir_slab_axis part = ir_kernel_slab_axis(k, i, size, i == last ? columns : rows);
        n *= part.parts;
        plane *= part.extent;
    }
    const bool is_tiled = ir_window_is_tiled(k);
    if (k->is_by_channel || is_tiled) plane = (ir_ceil_div(plane * bytes, LINE_BYTES) | 1) * LINE_BYTES / bytes;
    n *= plane;
    if (is_tiled) n += k->tile.nr;
    if (k->is_by_channel) n += k->tile.mr * k->axis[last].stride;
    return ir_round_up(n * bytes + ir_levels[k->level].vector_bytes, 64);
}

static fusor_status verify_axes(const ir_kernel *k, const ir_kinst *mm, int n, fu_error *e) {
    int places = 0, dims = 0;
    if (k->n_axes < 0 || k->n_axes > IR_KERNEL_MAX_AXES)
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a window kernel has up to %d axes", IR_KERNEL_MAX_AXES);
    for (int i = 0; i < k->n_axes; i++) {
        const ir_kaxis *a = &k->axis[i];
        const int last = k->n_axes - 1;
        const int64_t reach = a->place < 0 || a->place >= k->n_dims ? 0 : (k->dim[a->place].size - 1) * a->dilation;
        if (!a->up != !k->axis[0].up || a->up < 0 || a->up > IR_UP_MAX ||
            (a->up &&
             (a->stride != 1 || a->begin < -IR_UP_REACH || a->begin > IR_UP_REACH || reach < 0 || reach > IR_UP_REACH)))
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "axis %d of a window kernel: no such phases", i);
        if (a->stride < 1 || a->dilation < 1 || a->stride > INT32_MAX || a->dilation > INT32_MAX ||
            a->begin < INT32_MIN || a->begin > INT32_MAX || a->end < INT32_MIN || a->end > INT32_MAX ||
            a->size >= k->n_insts || k->inst[a->size].op != IR_K_SCALAR || k->inst[a->size].dtype != FUSOR_I64)
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "axis %d of a window kernel: numbers out of range", i);
        const bool is_there = i == last ? a->dim == n : i == last - 1 ? a->dim == n - 1 : a->dim < n - 2;
        if (!is_there || a->dim < (i < last - 1 ? -1 : 0) || a->place < -1 || a->place >= k->n_dims ||
            (a->place >= 0 && k->dim[a->place].role != 'k') || (a->dim >= 0 && (dims >> a->dim & 1)) ||
            (a->place >= 0 && (places >> a->place & 1)))
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "axis %d of a window kernel: no such dims", i);
        if (a->dim >= 0) dims |= 1 << a->dim;
        if (a->place >= 0) places |= 1 << a->place;
    }
    int taken = 0, channels = 0;
    for (int d = 0; d < k->n_dims; d++) {
        channels += k->dim[d].role == 'k' && !(places >> d & 1);
        taken += k->dim[d].role == 'b' && !(dims >> d & 1);
    }
    if (channels > 1 || taken > 2)
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL,
                       "a window kernel with axes has other dims than channels, batch and groups");
    for (int i = 0; i < 2; i++) {
        const ir_kinst *x = &k->inst[mm->in[i]];
        while (x->op == IR_OP_CAST) x = &k->inst[x->in[0]];
        if (x->op != IR_K_LOAD || x->variant || x->index >= k->n_buffers || x->dtype == FUSOR_BOOL)
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "operand %d of a window kernel is no plain load, converted", i);
        const ir_dtype t = k->inst[mm->in[i]].dtype;
        if (ir_is_float(mm->dtype) ? t != mm->dtype || !ir_is_float(x->dtype) : !ir_is_int(t) || !ir_is_int(x->dtype))
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL,
                           "operand %d of a window kernel is no number of the kind of its sums", i);
    }
    return FUSOR_OK;
}

static fusor_status verify_tiled(const ir_kernel *k, const ir_kinst *mm, fu_error *e) {
    const ir_dot dot = ir_kernel_window_dot(k);
    bool fits = !ir_kernel_is_transposed_window(k) && !k->is_by_channel &&
                (k->n_folded || ir_kernel_window_channels(k) >= 0) && k->tile.mr == IR_TILE_SIDE &&
                k->tile.nr == IR_TILE_SIDE && k->tile.kb % ir_dots[dot].step == 0 && k->n_folded <= k->n_axes;
    for (int i = 0; i < 2; i++) {
        const ir_dtype type = ir_kernel_window_operand(k, i)->dtype;
        fits &= dot == IR_DOT_TILE_I8
                    ? mm->dtype == FUSOR_I32 && ir_dtypes[k->inst[mm->in[i]].dtype].bytes == 1
                    : mm->dtype == FUSOR_F32 &&
                          (type == FUSOR_F32 || type == (dot == IR_DOT_TILE_F16 ? FUSOR_F16 : FUSOR_BF16));
    }
    if (!fits) return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a window kernel of tiles has other tiles, types or dims");
    return FUSOR_OK;
}

fusor_status ir_verify_window(const ir_kernel *k, fu_error *e) {
    const int m = ir_kernel_dim(k, 'm'), y = ir_kernel_dim(k, 'y'), n = ir_kernel_dim(k, 'n');
    if (m < 0 || y != m + 1 || n != y + 1 || n + 1 >= k->n_dims || k->tile.mr < 1 || k->tile.nr < 1 || k->tile.kb < 1)
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a window kernel needs dims m, y, n, k and a tile");
    const ir_kinst *mm = ir_kernel_matmul(k);
    int last_k = k->n_dims - 1;
    while (last_k > n + 1 && k->dim[last_k].role != 'k') last_k--;
    for (int i = 0; i < 2 && mm; i++) {
        if (mm->n_in != 2 || mm->in[i] >= k->n_insts)
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a window kernel multiplies two operands");
        if (k->is_by_channel &&
            (k->tile.nr * ir_dtypes[mm->dtype].bytes % ir_levels[k->level].vector_bytes || k->tile.mr > 64 ||
             k->tile.nr > 1024 || (k->n_axes && k->axis[k->n_axes - 1].stride > IR_CHANNELS_STRIDE)))
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "the tile of a window kernel by channels is whole vectors");
        if (ir_kernel_has_slab(k)) {
            if (i == 1) FU_TRY(verify_axes(k, mm, n, e));
            continue;
        }
        const ir_kinst *x = &k->inst[mm->in[i]];
        const int variant = i == 1 && k->n_axes ? x->variant & ~IR_LOAD_GUARD : x->variant;
        /* on a GPU halves too, whose sums are f32 */
        const bool is_half = ir_level_is_gpu(k->level) && ir_is_half(x->dtype) && mm->dtype == FUSOR_F32;
        if (x->op != IR_K_LOAD || variant || x->index >= k->n_buffers ||
            (ir_is_float(mm->dtype) || (!ir_level_is_gpu(k->level) && !k->is_depthwise)
                 ? !is_half && (x->dtype != mm->dtype || !ir_is_float(x->dtype) || ir_is_half(x->dtype))
                 : !ir_is_int(x->dtype)))
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL,
                           "operand %d of a window kernel is no plain load of the type of its sums", i);
        const int64_t *stride = k->buffer[x->index].stride;
        if (i == 0 && (stride[y] != 0 || stride[n] != 0 || stride[last_k] != 1))
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL,
                           "the weights of a window kernel vary along y or n, or not by 1 along the last k");
        if (i == 1 && (stride[m] != 0 || (stride[n] < 1 && stride[n] != IR_STRIDE_RUNTIME)))
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "operand 1 of a window kernel varies along m, or not along n");
    }
    if (ir_window_is_tiled(k)) FU_TRY(verify_tiled(k, mm, e));
    return ir_verify_axes(k, e);
}

int ir_window_tile_rows(const ir_kernel *k) {
    const int d = ir_kernel_dim(k, 'n');
    const int64_t n = k->is_by_channel ? ir_window_size(k, d, k->dim[d].size) : IR_SIZE_RUNTIME;
    return n > 0 && k->tile.mr % n == 0 ? (int)(k->tile.mr / n) : 0;
}

bool ir_window_cuts_rows(const ir_kernel *k) {
    return !k->is_depthwise && !k->band_rows && k->dim[ir_kernel_dim(k, 'y')].size == 1 && !ir_window_tile_rows(k);
}

int64_t ir_window_tile_columns(const ir_kernel *k, const int64_t *size, const int64_t *tune) {
    const int d = ir_kernel_dim(k, 'n');
    const int64_t n = ir_window_size(k, d, size[d]), columns = tune[IR_TUNE_WINDOW_COLUMNS];
    return ir_window_cuts_rows(k) && columns > 0 && columns < n ? columns : n;
}

bool ir_window_has_lower(const ir_kernel *k) {
    return k->is_by_channel && !ir_window_tile_rows(k) && k->tile.mr > 1 &&
           (k->has_lower || ir_levels[k->level].registers < IR_WINDOW_MANY);
}

bool ir_window_drops_sign(const ir_kernel *k) {
    const ir_kinst *mm = ir_kernel_matmul(k);
    int64_t products = 1, behind_first = 1;
    int n = 0;
    if (k->is_depthwise || ir_level_is_gpu(k->level) || !mm || !ir_is_float(mm->dtype)) return false;
    for (int d = 0; d < k->n_dims; d++) {
        if (k->dim[d].role != 'k') continue;
        const int64_t size = k->dim[d].size == IR_SIZE_RUNTIME ? IR_WINDOW_UNSIGNED : k->dim[d].size;
        products = products < IR_WINDOW_UNSIGNED ? products * size : products;
        if (n++ && behind_first < 2) behind_first *= size;
    }
    return products >= IR_WINDOW_UNSIGNED && behind_first > 1;
}

bool ir_window_leaves_out(const ir_kernel *k) {
    int64_t places = 1, along = 1;
    bool has_pads = false;
    if (!k->is_by_channel || ir_kernel_is_transposed_window(k) || !ir_window_drops_sign(k) || ir_window_has_pairs(k))
        return false;
    for (int i = 0; i < k->n_axes; i++) {
        const ir_kaxis *a = &k->axis[i];
        along = a->place < 0 ? 1 : k->dim[a->place].size;
        if (along < 1) return false;
        places *= along;
        has_pads |= i >= k->n_axes - 2 && (a->begin > 0 || a->end > 0);
    }
    return has_pads && along <= IR_WINDOW_ALONG && k->tile.kb % places == 0;
}

bool ir_window_has_row_words(const ir_kernel *k) {
    return ir_kernel_window_adds(k) || ir_window_leaves_out(k) || ir_window_has_pairs(k);
}

int64_t ir_window_turns(const ir_kernel *k) {
    return ir_kernel_is_transposed_window(k) ? k->axis[k->n_axes - 1].up : 1;
}

int64_t ir_window_columns(const ir_kernel *k) {
    const int64_t turns = ir_window_turns(k), most = turns > 4 ? 256 / turns : 64;
    return k->tile.mr < most ? most / k->tile.mr * k->tile.mr : k->tile.mr;
}

int ir_window_ahead(const ir_kernel *k) { return k->is_by_channel ? 8 : 0; }

static int64_t rows_of_tile(const ir_kernel *k, const int64_t *tune) {
    return ir_band_tile_rows(k, tune[IR_TUNE_WINDOW_ROWS] < 1 ? 1 : tune[IR_TUNE_WINDOW_ROWS]);
}

/* tiles: of rows or columns, each of which has all channels. */
static void launch_by_channel(const ir_kernel *k, const int64_t *size, const int64_t *tune, int64_t tiles,
                              int64_t parts, int64_t kk, ir_launch *out) {
    const int64_t bytes = ir_dtypes[ir_kernel_matmul(k)->dtype].bytes, lanes = ir_levels[k->level].vector_bytes / bytes,
                  nr = k->tile.nr, m = size[ir_kernel_dim(k, 'm')],
                  y = ir_window_size(k, ir_kernel_dim(k, 'y'), ir_band_rows_made(k, size)),
                  rows = rows_of_tile(k, tune),
                  channels = tune[IR_TUNE_WINDOW_CHANNELS] < nr ? nr : tune[IR_TUNE_WINDOW_CHANNELS],
                  vectors = ir_ceil_div(m, lanes), staged = ir_round_up(kk * lanes * bytes, 64),
                  table = ir_round_up((kk + ir_window_ahead(k)) * 8, 64),
                  columns = ir_round_up(ir_window_columns(k) * ir_window_turns(k), lanes);
    int64_t slab =
        tiles ? ir_kernel_slab_bytes(k, size, rows < y ? rows : y, ir_window_tile_columns(k, size, tune)) : 0;
    if (slab < staged) slab = staged;
    out->scratch_bytes = IR_SLAB_HEAD + table + 2 * ir_round_up(columns * nr * bytes, 64) + slab +
                         ir_band_bytes(k, size, rows < y ? rows : y, channels < m ? channels : m);
    out->n_phases = 2;
    out->tiles[0] = tiles ? parts * vectors : 0;
    out->tiles[1] = tiles * ir_ceil_div(m, channels);
    out->shared_bytes = ir_round_up(parts * vectors * lanes * kk * bytes, 64) +
                        ir_round_up(parts * vectors * lanes * bytes, 64) * ir_window_has_row_words(k);
}

/* tiles: of rows or columns; kk: words. */
static void launch_tiled(const ir_kernel *k, const int64_t *size, const int64_t *tune, int64_t tiles, int64_t parts,
                         int64_t kk, ir_launch *out) {
    enum { STEP_WORDS = 16 };
    const int64_t y = ir_band_rows_made(k, size), rows = rows_of_tile(k, tune), made = rows < y ? rows : y,
                  m = ir_ceil_div(size[ir_kernel_dim(k, 'm')], IR_TILE_SIDE), panels = tiles ? parts * m : 0,
                  share = tune[IR_TUNE_WINDOW_SHARE] < 1 ? m : ir_ceil_div(tune[IR_TUNE_WINDOW_SHARE], IR_TILE_SIDE);
    out->scratch_bytes = IR_SLAB_HEAD + ir_round_up(kk / STEP_WORDS * 8, 64) +
                         2 * (int64_t)k->tile.mr * k->tile.nr * 4 +
                         ir_kernel_slab_bytes(k, size, made, ir_window_tile_columns(k, size, tune)) +
                         ir_band_bytes(k, size, made, m * IR_TILE_SIDE);
    out->n_phases = 2;
    out->tiles[0] = panels;
    out->tiles[1] = tiles ? tiles * ir_ceil_div(m, share) : 0;
    out->shared_bytes = panels * k->tile.mr * kk * 4 + ir_round_up(panels * 4, 64);
}

void ir_launch_window(const ir_kernel *k, const int64_t *size, const int64_t *tune, ir_launch *out) {
    if (k->is_depthwise) {
        ir_launch_depthwise(k, size, tune, out);
        return;
    }
    const int64_t bytes = ir_dtypes[ir_kernel_matmul(k)->dtype].bytes;
    int64_t batches = 1, parts = 1, rows = rows_of_tile(k, tune), y = 1, kk = 1;
    const ir_dot dot = ir_kernel_window_dot(k);
    const bool has_pairs = dot == IR_DOT_BF16;
    const int channels = dot && !has_pairs ? ir_kernel_window_channels(k) : -1;
    const int64_t folded = ir_window_folded(k, size);
    int64_t taken = 1;
    bool is_empty = false;
    for (int d = 0; d < k->n_dims; d++) {
        switch (k->dim[d].role) {
        case 'b':
            batches *= size[d];
            if (k->buffer[ir_kernel_window_operand(k, 0)->index].stride[d] != 0) parts *= size[d];
            break;
        case 'y': y = ir_window_size(k, d, ir_band_rows_made(k, size)); break;
        case 'k': *(d == channels ? &taken : &kk) *= size[d]; break;
        default: is_empty |= size[d] == 0;
        }
    }
    if (has_pairs) kk = ir_ceil_div(kk, 2);
    else if (dot && folded > 0) kk = kk / folded * ir_dot_words(dot, taken * folded);
    const int dim_n = ir_kernel_dim(k, 'n');
    const int64_t n = ir_window_size(k, dim_n, size[dim_n]), columns = ir_window_tile_columns(k, size, tune),
                  tiles = is_empty ? 0 : batches * ir_ceil_div(y, rows) * ir_ceil_div(n, columns);
    if (k->is_by_channel) {
        launch_by_channel(k, size, tune, tiles, parts, kk, out);
        return;
    }
    if (ir_dot_is_tile(dot)) {
        launch_tiled(k, size, tune, tiles, parts, kk, out);
        return;
    }
    const int64_t turns = ir_window_turns(k), sums = ir_round_up(k->tile.mr * k->tile.nr * bytes, 64);
    out->scratch_bytes = 2 * ir_round_up(kk * 8, 64) + sums * (turns > 1 ? 2 * turns : 1) +
                         ir_round_up(kk * k->tile.nr * bytes, 64) + 64 * 8 +
                         ir_band_bytes(k, size, rows < y ? rows : y, size[ir_kernel_dim(k, 'm')]);
    out->n_phases = 1;
    out->tiles[0] = tiles;
    if (!ir_kernel_has_slab(k)) return;
    out->scratch_bytes += IR_SLAB_HEAD + ir_kernel_slab_bytes(k, size, rows < y ? rows : y, columns);
    if (!ir_kernel_window_packs(k)) return;
    const int64_t made = tiles ? parts * size[ir_kernel_dim(k, 'm')] : 0;
    out->n_phases = 2;
    out->tiles[0] = made;
    out->tiles[1] = tiles;
    /* The words of a whole tile are read with fewer channels, too. */
    out->shared_bytes =
        ir_round_up(made * kk * bytes, 64) + ir_round_up((made + k->tile.mr) * bytes, 64) * ir_window_has_row_words(k);
}
