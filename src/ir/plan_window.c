/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_window.c: a convolution as a window kernel, with the pads and conversions in front of its operands. Its space is
 * the result's, then the channels of a group, the places of the kernel, and the groups; the operands are read along it
 * as they lie, with strides that overlap. */
#include "base/small.h"
#include "ir/arith.h"
#include "ir/plan_builder.h"
#include "ir/window.h"
#include <math.h>

/* Dims of the space behind those of the result. */
static int dim_c(const ir_node *n) { return n->rank; }
static int dim_place(const ir_node *n, unsigned axis) { return n->rank + 1 + (int)axis; }
static int dim_group(const ir_node *n) { return 2 * n->rank - 1; }

static int dim_tail(const ir_node *n) { return 2 * n->rank; } /* rows and columns of what follows in its kernel */

static int64_t groups_of(const ir_node *n) {
    const ir_attr *a = ir_node_attr(n, "groups");
    return a ? a->integer : 1;
}

bool ir_conv_fits_window(const ir_graph *g, const ir_node *n) {
    if (n->op != IR_OP_CONV) return false;
    const ir_node *w = ir_at(g, n->in[1]);
    int64_t v;
    for (unsigned d = IR_SPATIAL_AT; d < w->rank; d++)
        if (ir_size_is_const(g->sizes, w->dim[d], &v) && v > INT32_MAX) return false;
    return !ir_size_is(g->sizes, w->dim[0], 0);
}

/* Not for one channel a group, whose convolution of phases is depthwise; nor for fewer channels made of a group than
 * IR_PHASES_FEWEST: as channels, all phases meet an element of the operand at once. (128 channels of 32x32, 4x4, stride
 * 2, EPYC 9005: to 1 channel 3.0 of that time, to 3 1.5, to 4 1.0, to 8 0.9, to 32 0.78.) */
bool ir_conv_fits_phases(const ir_graph *g, const ir_node *n) {
    const ir_node *w = ir_at(g, n->in[1]);
    const int64_t groups = groups_of(n);
    int64_t v;
    bool has_stride = false;
    if (n->op != IR_OP_CONV_TRANSPOSE || !g->packs_const || ir_size_is(g->sizes, w->dim[0], groups) ||
        !ir_size_is_const(g->sizes, n->dim[1], &v) || v < IR_PHASES_FEWEST * groups)
        return false;
    for (unsigned i = 0; i < n->rank - (unsigned)IR_SPATIAL_AT; i++) {
        const int64_t stride = ir_window_entry(g, n, "strides", i, 1),
                      dilation = ir_window_entry(g, n, "dilations", i, 1), begin = ir_window_entry(g, n, "pads", i, 0);
        if (!ir_size_is_const(g->sizes, w->dim[IR_SPATIAL_AT + i], &v) || v > IR_BAKE_MAX || stride > IR_UP_MAX ||
            dilation > IR_UP_REACH || (v - 1) * dilation > IR_UP_REACH || begin > IR_UP_REACH)
            return false;
        has_stride |= stride > 1;
    }
    return has_stride;
}

bool ir_conv_is_depthwise(const ir_graph *g, const ir_node *n) {
    const ir_node *w = ir_at(g, n->in[1]);
    int64_t made, places = 1, v;
    if (!ir_conv_fits_window(g, n) || !ir_size_is(g->sizes, w->dim[1], 1) ||
        !ir_size_is_const(g->sizes, w->dim[0], &made) || made / groups_of(n) > IR_DEPTHWISE_CHANNELS)
        return false;
    for (unsigned d = IR_SPATIAL_AT; d < w->rank; d++) {
        const unsigned i = d - (unsigned)IR_SPATIAL_AT;
        const int64_t dilation = ir_window_entry(g, n, "dilations", i, 1);
        if (!ir_size_is_const(g->sizes, w->dim[d], &v) || v < 1 || v > IR_DEPTHWISE_PLACES ||
            dilation > IR_DEPTHWISE_REACH || (v - 1) * dilation > IR_DEPTHWISE_REACH ||
            ir_window_entry(g, n, "strides", i, 1) > IR_DEPTHWISE_STRIDE)
            return false;
        places *= v;
    }
    return places <= IR_DEPTHWISE_PLACES;
}

bool ir_conv_is_window(const ir_graph *g, const ir_node *n) {
    const ir_dtype t = ir_at(g, n->in[0])->dtype;
    if (n->n_in == 2 && ir_conv_fits_phases(g, n)) return (t == FUSOR_F32 || t == FUSOR_F64) && n->dtype == t;
    if (n->n_in != 2 || !ir_conv_fits_window(g, n)) return false;
    const ir_attr *pads = ir_node_attr(n, "pads");
    const bool takes_pads = ir_conv_is_depthwise(g, n);
    for (uint32_t i = 0; pads && i < pads->n && !takes_pads; i++)
        if (!ir_size_is(g->sizes, pads->list[i], 0)) return false;
    if (!ir_is_float(t)) return n->dtype == (ir_dtypes[t].bytes == 1 ? FUSOR_I32 : FUSOR_I64);
    return (t == FUSOR_F32 || t == FUSOR_F64) && ir_at(g, n->in[1])->dtype == t && n->dtype == t;
}

static bool is_conversion(const ir_graph *g, const ir_node *x) {
    return x->op == IR_OP_CAST && ir_is_half(ir_at(g, x->in[0])->dtype) && x->dtype == FUSOR_F32;
}

/* What f32 is converted from; else it. */
static ir_id of_half(const ir_graph *g, ir_id id) { return is_conversion(g, ir_at(g, id)) ? ir_at(g, id)->in[0] : id; }

/* Tensor cores multiply halves as they are, and add up in f32. */
ir_id plan_window_operand(const planner *p, const ir_node *n, int i) {
    const ir_id own[2] = {of_half(p->g, n->in[0]), of_half(p->g, n->in[1])};
    return ir_levels[p->options->level].cores && ir_at(p->g, own[0])->dtype == ir_at(p->g, own[1])->dtype ? own[i]
                                                                                                          : n->in[i];
}

/* ---- what is in front of the operands, and computed by the kernel ---- */
/* Floating, of this cluster's composite or free to be fused. */
static bool is_absorbed(const planner *p, const ir_node *n, ir_id id) {
    const node_info *v = &p->info[id];
    const uint32_t group = ir_at(p->g, id)->group;
    return !is_leaf(p, id) && !v->home && !v->must_store && !v->is_barrier &&
           (!p->options->no_fuse || (group && group == n->group));
}

/* Zeros around spatial axes of known width. */
static bool is_plain_pad(const ir_graph *g, const ir_node *pad, int64_t begin[IR_MAX_SPATIAL]) {
    const ir_node *value = ir_at(g, pad->in[pad->n_in - 1]);
    const ir_attr *pads = ir_node_attr(pad, "pads"), *mode = ir_node_attr(pad, "mode");
    if (pad->op != IR_OP_PAD || (mode && mode->is_set && mode->integer) || !pads || pads->n != 2u * pad->rank)
        return false;
    if (pad->n_in > 1 && (value->op != IR_OP_LITERAL || value->bits)) return false;
    for (unsigned d = 0; d < 2u * pad->rank; d++) {
        int64_t v;
        if (!ir_size_is_const(g->sizes, pads->list[d], &v) || v < INT32_MIN || v > INT32_MAX) return false;
        if (d % pad->rank < IR_SPATIAL_AT && v) return false;
        if (d >= IR_SPATIAL_AT && d < pad->rank) begin[d - IR_SPATIAL_AT] = v;
    }
    return true;
}

static bool is_transposed(const ir_node *n) { return n->op == IR_OP_CONV_TRANSPOSE; }

/* Of axis i; its phases are convolutions with strides of 1. */
static int64_t phases_along(const ir_graph *g, const ir_node *n, unsigned i) {
    return is_transposed(n) ? ir_window_entry(g, n, "strides", i, 1) : 1;
}
static int64_t stride_along(const ir_graph *g, const ir_node *n, unsigned i) {
    return is_transposed(n) ? 1 : ir_window_entry(g, n, "strides", i, 1);
}

/* Channels that a group takes. */
static ir_size taken_of(const ir_graph *g, const ir_node *n) {
    const ir_node *w = ir_at(g, n->in[1]);
    return is_transposed(n) ? ir_size_div(g->sizes, w->dim[0], ir_size_const(g->sizes, groups_of(n))) : w->dim[1];
}

/* Of a group, for the choice of a tile: a size that has a name counts as 64. */
static int64_t channels_made(const ir_graph *g, const ir_node *n) {
    int64_t made;
    return ir_size_is_const(g->sizes, n->dim[1], &made) ? made / groups_of(n) : 64;
}

/* That an element meets, in one phase the most; 0: not known. */
static int64_t places_of(const ir_graph *g, const ir_node *n) {
    const ir_node *w = ir_at(g, n->in[1]);
    int64_t places = 1, v;
    for (unsigned i = 0; i < n->rank - (unsigned)IR_SPATIAL_AT; i++) {
        if (!ir_size_is_const(g->sizes, w->dim[IR_SPATIAL_AT + i], &v)) return 0;
        v = ir_ceil_div(v, phases_along(g, n, i));
        places = v > INT32_MAX / places ? INT32_MAX : places * v;
    }
    return places;
}

/* Products for each element of a group's channels; -1: not known, or too many to count. */
static int64_t products_of(const ir_graph *g, const ir_node *n) {
    const int64_t places = places_of(g, n);
    int64_t taken;
    return places && ir_size_is_const(g->sizes, taken_of(g, n), &taken) && taken <= INT32_MAX ? taken * places : -1;
}

/* Is it of one place (1x1), and its result's rows one run, as the operand's are? */
static bool is_line(const ir_graph *g, const ir_node *n) {
    bool is = places_of(g, n) == 1 && !is_transposed(n) && ir_at(g, n->in[0])->op != IR_OP_PAD;
    for (unsigned i = 0; i < n->rank - (unsigned)IR_SPATIAL_AT; i++) is &= stride_along(g, n, i) == 1;
    return is;
}

/* Are its rows and columns one dim of a kernel by columns, if those are one run in all else that it reads and writes?
 * Then no vector is of the end of a row and the begin of the next one. (1x1, Cascade Lake, one thread: 64 channels of
 * 56x56 to 256 0.88 of the time, 24 to 144 0.87, 32 of 28x28 to 192 0.92.) Not of few products, whose tiles are others:
 * 16 of 55x55 to 64 1.06. */
static bool is_row_of_columns(const ir_graph *g, const ir_node *n) {
    const int64_t products = products_of(g, n);
    return is_line(g, n) && (products < 0 || products > IR_WINDOW_FEW);
}

/* Columns of a phase; false: not known. */
static bool columns_of(const ir_graph *g, const ir_node *n, unsigned d, int64_t *out) {
    int64_t v;
    if (!ir_size_is_const(g->sizes, n->dim[d], &v)) return false;
    *out = ir_ceil_div(v, phases_along(g, n, d - IR_SPATIAL_AT));
    return true;
}

/* Of so many places along one axis, how many are pads: `before` zeros before the first one of the first column. */
static int64_t pads_met(int64_t columns, int64_t stride, int64_t places, int64_t dilation, int64_t before) {
    int64_t met = 0;
    for (int64_t p = 0; p < places && p * dilation < before; p++) {
        const int64_t n = (before - p * dilation + stride - 1) / stride;
        met += n < columns ? n : columns;
    }
    return met;
}

/* Zeros that the last place of the last column meets behind `taken` elements with `begin` zeros before them; < 0: so
 * many elements are not met. */
static int64_t zeros_behind(int64_t columns, int64_t stride, int64_t places, int64_t dilation, int64_t begin,
                            int64_t taken) {
    return (columns - 1) * stride + (places - 1) * dilation + 1 - begin - taken;
}

/* About the share of the products that is left of a convolution by channel (ir_window_leaves_out: few products are all
 * made). */
static double share_of_products(const planner *p, const ir_node *n) {
    const ir_graph *g = p->g;
    const ir_node *w = ir_at(g, n->in[1]), *x = ir_at(g, n->in[0]);
    int64_t begin[IR_MAX_SPATIAL], columns, places, taken;
    double share = 1;
    if (x->op != IR_OP_PAD || !is_absorbed(p, n, n->in[0]) || !is_plain_pad(g, x, begin) ||
        !ir_size_is_const(g->sizes, w->dim[w->rank - 1], &places) || places > IR_WINDOW_ALONG)
        return 1;
    x = ir_at(g, x->in[0]);
    for (unsigned d = n->rank < 5 ? IR_SPATIAL_AT : n->rank - 2u; d < n->rank; d++) {
        const unsigned i = d - IR_SPATIAL_AT;
        const int64_t stride = ir_window_entry(g, n, "strides", i, 1),
                      dilation = ir_window_entry(g, n, "dilations", i, 1);
        if (!ir_size_is_const(g->sizes, n->dim[d], &columns) || !ir_size_is_const(g->sizes, w->dim[d], &places) ||
            !ir_size_is_const(g->sizes, x->dim[d], &taken) || columns < 1 || places < 1 || places > IR_BAKE_MAX)
            return 1;
        const int64_t end = zeros_behind(columns, stride, places, dilation, begin[i], taken);
        share *= 1 - (double)(pads_met(columns, stride, places, dilation, begin[i]) +
                              pads_met(columns, stride, places, dilation, end)) /
                         ((double)columns * (double)places);
    }
    return share;
}

bool ir_channels_are_vectors(const ir_graph *g, ir_size channels, ir_dtype t) {
    enum { VECTOR_BYTES = 64 };
    int64_t v;
    return ir_size_is_const(g->sizes, channels, &v) && v > 0 && v % (VECTOR_BYTES / ir_dtypes[t].bytes) == 0;
}

/* The images whose channels are last that operand `id` is a transpose of, where the kernel may turn them itself; else
 * 0. A transpose of what another kernel makes is in that, but need not be stored. */
static ir_id of_last_channels(const planner *p, const ir_node *n, ir_id id) {
    const ir_node *x = ir_at(p->g, id), *w = ir_at(p->g, n->in[1]);
    const node_info *v = &p->info[id];
    if (!ir_moves_channels(p->g, x, false) || n->rank > IR_SPATIAL_AT + 2 || p->options->no_fuse || v->must_store ||
        v->is_barrier || !ir_is_float(n->dtype) || x->dtype != n->dtype || is_transposed(n) || groups_of(n) != 1 ||
        !ir_channels_are_vectors(p->g, w->dim[1], x->dtype))
        return 0;
    return x->in[0];
}

/* Conversions and pads that the kernel makes itself, and whether it turns images. */
static plan_window_form taken_in(const planner *p, const ir_node *n) {
    plan_window_form f = {.x = n->in[0], .w = n->in[1]};
    const ir_node *x = ir_at(p->g, f.x), *w = ir_at(p->g, f.w);
    if (is_conversion(p->g, x) && is_absorbed(p, n, f.x)) f.cast[1] = f.x, f.x = x->in[0], x = ir_at(p->g, f.x);
    if (is_transposed(n)) {
        for (unsigned i = 0; i < n->rank - (unsigned)IR_SPATIAL_AT; i++)
            f.begin[i] = ir_window_entry(p->g, n, "pads", i, 0);
    } else if (x->op == IR_OP_PAD && is_absorbed(p, n, f.x) && is_plain_pad(p->g, x, f.begin)) {
        f.pad = f.x;
        f.x = x->in[0];
        x = ir_at(p->g, f.x);
    }
    if (!f.cast[1] && is_conversion(p->g, x) && is_absorbed(p, n, f.x)) f.cast[1] = f.x, f.x = x->in[0];
    if (is_conversion(p->g, w) && is_absorbed(p, n, f.w)) f.cast[0] = f.w, f.w = w->in[0];
    const ir_id last = f.cast[0] || f.cast[1] ? 0 : of_last_channels(p, n, f.x);
    if (last) f.last = f.x, f.x = last;
    return f;
}

/* Are its products of words of two bf16 (ir/kernel.h)? Not where a word would lie in two K blocks, nor where an element
 * of the operand meets so few products that the larger slab takes what they save. (EPYC 9005, the time by words: 64
 * channels of 56x56, 3x3, to 4 1.5, to 8 1.03, to 12 0.93; 3 of 224x224, 3x3, stride 2, to 32 1.08, to 48 0.91, to 64
 * 0.72; 1x1, whose slab is half as large, 32 of 56x56 to 4 0.76.) */
static bool has_pairs(const planner *p, const ir_node *n, const plan_window_form *f) {
    enum { FEWEST_CHANNELS = 12, FEWEST_PRODUCTS = 96 };
    const ir_graph *g = p->g;
    const ir_target target = {p->options->level, p->options->features};
    if (is_transposed(n) || !f->cast[0] || !f->cast[1] ||
        ir_window_dot(target, ir_at(g, f->w)->dtype, ir_at(g, f->x)->dtype, n->dtype) != IR_DOT_BF16)
        return false;
    const int64_t places = places_of(g, n), made = channels_made(g, n);
    int64_t v, met = made * places;
    for (unsigned i = 0; i < n->rank - (unsigned)IR_SPATIAL_AT; i++) {
        if (!ir_size_is_const(g->sizes, ir_at(g, n->in[1])->dim[IR_SPATIAL_AT + i], &v) || v < 1 || v > IR_BAKE_MAX)
            return false;
        met /= stride_along(g, n, i);
    }
    return (places == 1 || (made >= FEWEST_CHANNELS && met >= FEWEST_PRODUCTS)) &&
           ir_window_block(target.level, n->dtype, places) % 2 == 0;
}

/* The halves that an operand was converted from, with zeros around it: whether this kernel does that or another one, so
 * that fusing changes no bits. Else its type. */
static ir_dtype type_multiplied(const ir_graph *g, ir_id id) {
    const ir_node *x = ir_at(g, id);
    int64_t begin[IR_MAX_SPATIAL];
    if (x->op == IR_OP_PAD && is_plain_pad(g, x, begin)) x = ir_at(g, x->in[0]);
    return is_conversion(g, x) ? ir_at(g, x->in[0])->dtype : x->dtype;
}

/* Cycles that a TILE_ form takes for 16 columns of all channels where the places of the last n_folded axes are
 * channels: a product of tiles of each step and 16 channels takes 16; to a vector of words in the slab comes each of
 * its elements in turn, or zeros; sums go through memory. INFINITY: not known, or far too many words. */
static double tile_cycles(const ir_graph *g, const ir_node *n, ir_dot dot, int64_t taken, int n_folded) {
    enum { OF_ELEMENT = 4, OF_ZEROS = 2, OF_SUMS = 2, MOST = 1 << 12 };
    const ir_node *w = ir_at(g, n->in[1]);
    const int step = ir_dots[dot].step, group = ir_dots[dot].group;
    const double made = (double)channels_made(g, n);
    int64_t along, channels = taken;
    double places = 1, parts = 1;
    for (unsigned i = n->rank - (unsigned)IR_SPATIAL_AT; i-- > 0;) {
        if (!ir_size_is_const(g->sizes, w->dim[IR_SPATIAL_AT + i], &along)) return INFINITY;
        if (n_folded-- > 0) {
            if (along > MOST || (channels *= along) > MOST) return INFINITY;
            continue;
        }
        const int64_t stride = stride_along(g, n, i);
        places *= (double)along;
        parts *= (double)(along < stride ? along : stride);
    }
    const double steps = (double)ir_ceil_div(channels, step), words = (double)ir_ceil_div(channels, group);
    const double zeros = steps * step / group - words;
    return steps * places * made + parts * (words * group * OF_ELEMENT + zeros * OF_ZEROS) + OF_SUMS * made;
}

/* The features of a TILE_ form, where it is quicker than two products a cycle of vectors; else none. n_folded: axes,
 * from the last on, whose places are best taken for channels: so few channels fill steps, but each of such places is
 * another word of the slab. */
static ir_features tile_features(const planner *p, const ir_node *n, int *n_folded) {
    enum { FEWEST_MADE = 16 };
    const ir_graph *g = p->g;
    const ir_target target = {p->options->level, p->options->features};
    const ir_dtype w = type_multiplied(g, n->in[1]), x = type_multiplied(g, n->in[0]);
    const ir_dot dot = ir_contract_dot(target, w, x, n->dtype), other = ir_window_dot(target, w, x, n->dtype);
    int64_t taken;
    if (!ir_dot_is_tile(dot) || dot == IR_DOT_TILE_CUT || is_transposed(n) || products_of(g, n) < 1 ||
        !ir_size_is_const(g->sizes, taken_of(g, n), &taken) || channels_made(g, n) < FEWEST_MADE)
        return 0;
    const int64_t words = ir_is_float(n->dtype) ? taken : ir_dot_words(other, taken);
    double best = (double)words * (double)places_of(g, n) * (double)channels_made(g, n) / 2;
    int folded = -1;
    for (int f = 0; f <= n->rank - IR_SPATIAL_AT; f++) {
        const double cycles = tile_cycles(g, n, dot, taken, f);
        if (cycles < best) best = cycles, folded = f;
    }
    if (folded < 0) return 0;
    *n_folded = folded;
    return ir_contract_features(target, w, x, n->dtype);
}

/* Are vectors of channels quicker than those of columns? The weights are packed for them: once, or in each call (a
 * cycle an element). Its tile is that of then. */
static bool is_by_channel(const planner *p, const ir_node *n, plan_window_form *f) {
    /* Larger panels of columns do not stay in L2. (Transposed, 512 to 256 channels of 8x8, 4x4, stride 2, EPYC 9005: 2
     * times the time of by channel.) */
    enum { MOST = 1 << 16, PANEL_BYTES = 1 << 19 };
    /* Words of several places, whose slab has more planes, take more by columns than products do. (3x3, EPYC 9005, time
     * by columns over that by channel: 16 of 56x56 1.07, 32 of 112x112 1.1, 320 of 64x64 1.16, 512 of 24x24, 28x28,
     * 32x32 1.2, 1.15, 1.07, 1280 of 16x16 1.3; 7x7, 3 to 64 of 224x224, stride 2, 1.09.) */
    const double pairs_by_column = 1.12;
    /* Several K blocks: sums go through memory, and a panel's columns are more than L1 holds. (3x3, EPYC 9005, time by
     * columns over that by channel: 64 of 128x128 to 32 1.10, of 64x64 to 64 1.07, 128 of 64x64 to 64 1.10, of 128x128
     * to 128 1.09, 80 of 80x80 to 80 1.10, 64 of 192x192 to 64 0.96; Cascade Lake, 64 of 128x128 to 32 1.16, of 54x54
     * to 64 1.29, 256 of 16x16 to 256 1.40.) So it is of fewer products where tiles by channel prefetch the result's
     * lines. (3x3, Cascade Lake: 16 of 224x224 to 64 1.14, to 16 0.97, 32 of 128x128 to 32 1.24, of 112x112 to 16 0.98,
     * 48 of 56x56 to 16 1.14, of 224x224 to 64 1.42.) */
    const double blocks_by_column = 1.15;
    /* Columns of many channels that are far apart, where they lie: each row of a panel is another page, or shares a few
     * sets of L1 with the others. (1x1, Cascade Lake, time by columns over that by channel: 96 channels to 32, 128, 512
     * of 14x14 0.94 to 1.01, of 28x28 0.81 to 0.85, of 56x56 0.98 to 1.06; 128 of 14x14 1.02 to 1.19, of 28x28 0.92 to
     * 0.99, of 56x56 1.12 to 1.20; 192 1.2 to 1.3, 1.02 to 1.15, 1.16 to 1.29; 256 to 512 1.1 to 1.5.) */
    enum { MANY_CHANNELS = 128, FAR = 1 << 9 };
    const double far_by_column = 1.3;
    const ir_graph *g = p->g;
    const ir_level level = p->options->level;
    const unsigned spatial = n->rank - (unsigned)IR_SPATIAL_AT;
    int64_t made, columns, rows = 1, products = products_of(g, n);
    if (!ir_is_float(n->dtype) || products < 1 || !ir_size_is_const(g->sizes, n->dim[1], &made) ||
        !columns_of(g, n, n->rank - 1u, &columns) || (spatial > 1 && !columns_of(g, n, n->rank - 2u, &rows)) ||
        columns < 1 || rows < 1 || columns > MOST || rows > MOST)
        return false;
    made /= groups_of(n);
    for (unsigned i = 0; i < spatial;
         i++) { /* of rows too: the slab has those between (20001 of stride 1000: 5.6 MB) */
        int64_t places, reach;
        if (stride_along(g, n, i) > IR_CHANNELS_STRIDE) return false;
        if (ir_size_is_const(g->sizes, ir_at(g, n->in[1])->dim[IR_SPATIAL_AT + i], &places) &&
            (__builtin_mul_overflow(places - 1, ir_window_entry(g, n, "dilations", i, 1), &reach) ||
             reach > IR_UP_REACH))
            return false;
    }
    const bool is_one_line = is_line(g, n);
    if (is_one_line && ir_levels[level].registers < IR_WINDOW_MANY) columns *= rows, rows = 1; /* tiles are of a row */
    ir_id of = n->in[1];
    while (ir_at(g, of)->op == IR_OP_CAST) of = ir_at(g, of)->in[0];
    bool is_const = false;
    for (uint32_t i = 0; i < g->params.n; i++) is_const |= g->params.at[i].node == of && g->params.at[i].is_const;
    double by_channel = 0, by_column = 0;
    if (f->has_pairs) products = ir_ceil_div(products, 2);
    f->tile = ir_window_channel_tile(level, n->dtype, made, columns, rows, products, &by_channel);
    if (!f->cast[0] && !f->cast[1] && is_row_of_columns(g, n)) columns *= rows, rows = 1;
    const ir_tile other = ir_window_tile(level, n->dtype, made, columns, rows, products,
                                         stride_along(g, n, spatial - 1), false, &by_column);
    if (f->has_pairs && places_of(g, n) > 1) by_column *= pairs_by_column;
    else if (places_of(g, n) > 1 && !is_transposed(n) &&
             (products > other.kb || (ir_levels[level].has_mask && products >= IR_WINDOW_PREFETCH)))
        by_column *= blocks_by_column;
    else if (is_one_line && products >= MANY_CHANNELS && columns * rows * ir_dtypes[n->dtype].bytes >= FAR)
        by_column *= far_by_column;
    if (!is_transposed(n)) by_channel *= f->has_pairs ? 1 : share_of_products(p, n);
    else {
        double panel = (double)products * other.nr * ir_dtypes[n->dtype].bytes; /* has the columns of all phases */
        for (unsigned i = 0; i < spatial; i++) panel *= (double)phases_along(g, n, i);
        if (panel > PANEL_BYTES) by_column *= 2;
    }
    if (!is_const && !is_transposed(n)) by_channel += (double)made; /* which packs them by columns, too */
    /* Columns of vectors are stored one by one. (1x1, Cascade Lake, 64 channels of 56x56 to 256: 4 times the time.) */
    if (p->goes_last[n - p->g->nodes.at]) by_column *= 4;
    return by_channel < by_column;
}

plan_window_form plan_window_form_of(const planner *p, const ir_node *n) {
    const plan_window_form plain = {.x = n->in[0], .w = n->in[1]};
    if (ir_level_is_gpu(p->options->level))
        return (plan_window_form){.x = plan_window_operand(p, n, 0), .w = plan_window_operand(p, n, 1)};
    if (ir_conv_is_depthwise(p->g, n)) return plain;
    plan_window_form f = taken_in(p, n);
    f.tiles = tile_features(p, n, &f.n_folded);
    if (f.tiles) {
        if (f.last) f.x = f.last, f.last = 0;
        f.has_axes = true;
        return f;
    }
    f.has_pairs = has_pairs(p, n, &f);
    f.is_by_channel = is_by_channel(p, n, &f);
    /* Vectors of every second column in place are quicker than parts of a slab: 7x7 of stride 2 by 16 %. */
    bool is_strided = false;
    for (unsigned i = 0; i < n->rank - (unsigned)IR_SPATIAL_AT; i++) is_strided |= stride_along(p->g, n, i) != 1;
    const bool is_float = ir_is_float(n->dtype), is_in_place = is_strided && is_float && !f.has_pairs;
    if (f.last && !f.is_by_channel) f.x = f.last, f.last = 0;
    f.has_axes =
        f.is_by_channel || (!is_in_place && (is_transposed(n) || f.pad || f.cast[0] || f.cast[1] || !is_float));
    return f.has_axes ? f : plain;
}

bool plan_window_reads_memory(const planner *p, const ir_node *n) {
    const plan_window_form f = plan_window_form_of(p, n);
    for (int i = 0; i < 2; i++) {
        const ir_id root = plan_behind_views(p, i ? f.w : f.x);
        if (!is_leaf(p, root) && !p->info[root].home) return false;
    }
    return true;
}

/* Strides of contiguous memory, also along sizes of 1. */
static void runs(const builder *b, const ir_node *x, ir_size out[IR_MAX_RANK]) {
    ir_size run = b->one;
    for (int d = x->rank - 1; d >= 0; d--) {
        out[d] = run;
        run = ir_size_mul(b->p->g->sizes, run, x->dim[d]);
    }
}

void plan_window_space(builder *b, const ir_node *n) {
    const ir_graph *g = b->p->g;
    const ir_node *w = ir_at(g, n->in[1]);
    const unsigned spatial = n->rank - (unsigned)IR_SPATIAL_AT;
    b->dim[dim_c(n)] = taken_of(g, n);
    for (unsigned i = 0; i < spatial; i++) b->dim[dim_place(n, i)] = w->dim[IR_SPATIAL_AT + i];
    b->dim[dim_group(n)] = ir_size_const(g->sizes, groups_of(n));
    b->space = dim_group(n) + 1;
    plan_window_tile(b, n, true);
}

void plan_window_tile(builder *b, const ir_node *n, bool is_direct) {
    const ir_graph *g = b->p->g;
    const ir_node *w = ir_at(g, n->in[1]);
    const unsigned spatial = n->rank - (unsigned)IR_SPATIAL_AT;
    int64_t columns = -1, rows = 1, products;
    const plan_window_form f = plan_window_form_of(b->p, n);
    const ir_target target = {b->k->level, b->p->options->features};
    const ir_dtype x = ir_at(g, n->in[0])->dtype;
    ir_dot dot = IR_DOT_NONE;
    if (f.has_pairs) dot = IR_DOT_BF16, b->k->features = IR_FEATURE_BF16;
    else if (f.has_axes) {
        dot = ir_window_dot(target, w->dtype, x, n->dtype);
        b->k->features = ir_window_features(target, w->dtype, x, n->dtype);
    }
    products = products_of(g, n);
    if (products > 0) products = (products + ir_dots[dot].group - 1) / ir_dots[dot].group;
    if (f.has_pairs && products > 0 && products <= IR_WINDOW_FEW) products = IR_WINDOW_FEW + 1;
    if (!columns_of(g, n, n->rank - 1u, &columns)) columns = -1;
    if (spatial > 1 && !columns_of(g, n, n->rank - 2u, &rows)) rows = -1;
    b->k->is_depthwise = !ir_level_is_gpu(b->k->level) && ir_conv_is_depthwise(g, n);
    if (b->k->is_depthwise) {
        int64_t places[IR_MAX_SPATIAL] = {1, 1, 1};
        for (unsigned i = 0; i < spatial; i++)
            ir_size_is_const(g->sizes, w->dim[IR_SPATIAL_AT + i], &places[IR_MAX_SPATIAL - spatial + i]);
        b->k->tile = ir_depthwise_tile(b->k->level, n->dtype, columns, rows, places,
                                       spatial > 1 ? ir_window_entry(g, n, "strides", spatial - 2, 1) : 1,
                                       spatial > 1 ? ir_window_entry(g, n, "dilations", spatial - 2, 1) : 1);
        return;
    }
    if (f.tiles) {
        b->k->features = f.tiles;
        b->k->n_folded = f.n_folded;
        b->k->tile = (ir_tile){IR_TILE_SIDE, IR_TILE_SIDE, IR_WINDOW_TILED_BLOCK};
        return;
    }
    b->k->is_by_channel = f.is_by_channel;
    b->k->has_last = f.last != 0;
    b->k->tile = f.tile;
    const int64_t lanes = ir_levels[b->k->level].vector_bytes / ir_dtypes[n->dtype].bytes;
    b->k->has_lower = f.is_by_channel && columns > 0 && rows > 0 && columns > f.tile.mr &&
                      ir_levels[b->k->level].registers >= IR_WINDOW_MANY &&
                      ir_window_is_cut(b->k->level, columns, rows, f.tile.mr);
    b->k->has_whole_channels = f.is_by_channel && ir_round_up(channels_made(g, n), lanes) % f.tile.nr == 0;
    if (!f.has_axes && columns > 0 && rows > 0 && !b->p->clusters.at[b->c].band_rows && is_row_of_columns(g, n))
        columns *= rows, rows = 1;
    if (!f.is_by_channel)
        b->k->tile = ir_window_tile(b->k->level, n->dtype, channels_made(g, n), columns, rows, products,
                                    f.has_axes ? 1 : ir_window_entry(g, n, "strides", spatial - 1, 1),
                                    is_direct && !is_transposed(n), NULL);
    if (!ir_level_is_gpu(b->k->level)) b->k->tile.kb = ir_window_block(b->k->level, n->dtype, places_of(g, n));
}

static uint16_t index_of(builder *b, int d) {
    access a = {0};
    ir_kinst inst;
    memset(&inst, 0, sizeof inst);
    inst.op = IR_K_INDEX;
    inst.dtype = FUSOR_I64;
    inst.index = (uint16_t)d; /* of the space; the kernel's when its dims are known */
    const uint16_t index = builder_inst(b, inst);
    a.buffer = index;
    for (int i = 0; i < MAX_SPACE; i++) a.stride[i] = i == d ? b->one : b->zero;
    fu_push(b->p->arena, &b->indexes, a);
    return index;
}

/* What the kernel is told of spatial axis i of operand x, which `begin` zeros are before. */
static void add_axis(builder *b, const ir_node *n, unsigned i, const ir_node *x, int64_t begin) {
    const ir_sizes *sz = b->p->g->sizes;
    const unsigned d = IR_SPATIAL_AT + i;
    int64_t made, taken, places;
    ir_kaxis a = {.dim = (int)d,
                  .place = dim_place(n, i),
                  .stride = stride_along(b->p->g, n, i),
                  .up = is_transposed(n) ? (int)phases_along(b->p->g, n, i) : 0,
                  .dilation = ir_window_entry(b->p->g, n, "dilations", i, 1),
                  .begin = begin,
                  .size = builder_size(b, x->dim[d])};
    if (b->k->is_by_channel && !a.up && ir_size_is_const(sz, n->dim[d], &made) &&
        ir_size_is_const(sz, x->dim[d], &taken) && ir_size_is_const(sz, ir_at(b->p->g, n->in[1])->dim[d], &places)) {
        const int64_t end = zeros_behind(made, a.stride, places, a.dilation, begin, taken);
        a.end = end > INT32_MIN && end < INT32_MAX ? end : 0;
    }
    b->k->axis[b->k->n_axes++] = a;
}

/* Is the place of axis i no pad? guard: the same of the axes before, or -1; returned with it. */
static int add_guard(builder *b, const ir_node *n, unsigned i, int guard) {
    const ir_graph *g = b->p->g;
    ir_sizes *sz = b->p->g->sizes;
    const unsigned spatial = n->rank - (unsigned)IR_SPATIAL_AT;
    const int dims[2] = {IR_SPATIAL_AT + (int)i, dim_place(n, i)};
    const int64_t steps[2] = {ir_window_entry(g, n, "strides", i, 1), ir_window_entry(g, n, "dilations", i, 1)},
                  begin = ir_window_entry(g, n, "pads", i, 0), end = ir_window_entry(g, n, "pads", i + spatial, 0);
    const ir_size size = ir_at(g, n->in[0])->dim[IR_SPATIAL_AT + i];
    add_axis(b, n, i, ir_at(g, n->in[0]), begin);
    if (begin <= 0 && end <= 0) return guard;
    int at = -1;
    for (int j = 0; j < 2; j++) {
        if (ir_size_is(sz, b->dim[dims[j]], 1)) continue;
        uint16_t x = index_of(b, dims[j]);
        if (steps[j] != 1)
            x = builder_op(b, IR_OP_MUL, FUSOR_I64, 2, (uint16_t[]){x, builder_size(b, ir_size_const(sz, steps[j]))});
        at = at < 0 ? x : builder_op(b, IR_OP_ADD, FUSOR_I64, 2, (uint16_t[]){(uint16_t)at, x});
    }
    if (at < 0) at = builder_size(b, b->zero);
    const ir_size bound[2] = {ir_size_const(sz, begin), ir_size_add(sz, ir_size_const(sz, begin), size)};
    for (int j = 0; j < 2; j++) {
        const uint16_t is = builder_op(b, j ? IR_OP_LT : IR_OP_GE, FUSOR_BOOL, 2,
                                       (uint16_t[]){(uint16_t)at, builder_size(b, bound[j])});
        guard = guard < 0 ? is : builder_op(b, IR_OP_AND, FUSOR_BOOL, 2, (uint16_t[]){(uint16_t)guard, is});
    }
    return guard;
}

uint16_t plan_window_value(builder *b, const ir_node *n) {
    ir_sizes *sz = b->p->g->sizes;
    const plan_window_form f = plan_window_form_of(b->p, n);
    const ir_node x = *ir_at(b->p->g, f.last ? f.last : f.x), w = *ir_at(b->p->g, n->in[1]);
    const unsigned spatial = n->rank - (unsigned)IR_SPATIAL_AT;
    const int made = is_transposed(n) ? 1 : 0; /* dim of the weights; the other one is the channels taken */
    /* of dim 0 of the weights, a group's */
    const ir_size each = ir_size_div(sz, w.dim[0], ir_size_const(sz, groups_of(n)));
    ir_size run[IR_MAX_RANK], stride[2][MAX_SPACE];
    ir_kinst inst;
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < MAX_SPACE; d++) stride[i][d] = b->zero;
    runs(b, &w, run);
    stride[0][1] = run[made];
    stride[0][dim_c(n)] = run[1 - made];
    stride[0][dim_group(n)] = ir_size_mul(sz, run[0], each);
    for (unsigned i = 0; i < spatial; i++) stride[0][dim_place(n, i)] = run[IR_SPATIAL_AT + i];
    runs(b, &x, run);
    if (f.last) { /* places, then channels */
        ir_size at[IR_MAX_RANK];
        runs(b, ir_at(b->p->g, f.x), at);
        run[0] = at[0];
        run[1] = at[x.rank - 1];
        for (int d = IR_SPATIAL_AT; d < x.rank; d++) run[d] = at[d - 1];
    }
    stride[1][0] = run[0];
    stride[1][dim_c(n)] = run[1];
    stride[1][dim_group(n)] = ir_size_mul(sz, run[1], taken_of(b->p->g, n));
    for (unsigned i = 0; i < spatial; i++) {
        const ir_size along = run[IR_SPATIAL_AT + i];
        stride[1][IR_SPATIAL_AT + i] = ir_size_mul(sz, along, ir_size_const(sz, stride_along(b->p->g, n, i)));
        stride[1][dim_place(n, i)] =
            ir_size_mul(sz, along, ir_size_const(sz, ir_window_entry(b->p->g, n, "dilations", i, 1)));
    }
    memset(&inst, 0, sizeof inst);
    inst.op = IR_OP_MATMUL;
    inst.dtype = n->dtype;
    inst.n_in = 2;
    int guard = -1;
    ir_size before = b->zero; /* elements of the pads before the first one that is there */
    bool has_pads = false;
    for (unsigned i = 0; i < 2 * spatial && !made; i++) has_pads |= ir_window_entry(b->p->g, n, "pads", i, 0) != 0;
    for (unsigned i = 0; i < spatial && (has_pads || b->k->is_depthwise); i++) {
        guard = add_guard(b, n, i, guard);
        before = ir_size_add(
            sz, before,
            ir_size_mul(sz, run[IR_SPATIAL_AT + i], ir_size_const(sz, ir_window_entry(b->p->g, n, "pads", i, 0))));
    }
    for (int i = 0; i < 2; i++) { /* operand 0 of the kernel is the weights */
        inst.in[i] = builder_load_guarded(b, i ? f.x : f.w, stride[i], i ? ir_size_sub(sz, b->zero, before) : b->zero,
                                          i ? guard : -1);
        b->window[i] = b->k->inst[inst.in[i]].index;
        if (f.cast[i]) {
            builder_note(b, f.cast[i]);
            inst.in[i] = builder_cast(b, inst.in[i], FUSOR_F32);
        }
    }
    if (f.pad) builder_note(b, f.pad);
    if (f.last) builder_note(b, f.last);
    for (unsigned i = 0; f.has_axes && i < spatial; i++) add_axis(b, n, i, &x, f.begin[i]);
    return builder_inst(b, inst);
}

static bool is_one_row(const builder *b, const ir_node *n, int rows, int columns) {
    if (rows < 0 || b->k->n_axes || b->k->band_rows || b->k->is_depthwise || ir_level_is_gpu(b->k->level) ||
        !is_row_of_columns(b->p->g, n))
        return false;
    return builder_mergeable(b, rows, columns);
}

/* The kernel's dims: batch, groups, outer spatial dims; channels made, rows, columns; channels taken and places that
 * are not one. The result and what it is combined with have the groups within the channels. */
int plan_window_order(builder *b, const ir_node *n, int order[MAX_SPACE + 1], char role[MAX_SPACE + 1]) {
    ir_sizes *sz = b->p->g->sizes;
    const int columns = n->rank - 1;
    int rows = n->rank > IR_SPATIAL_AT + 1 ? n->rank - 2 : -1, count = 0;
    const int outer = rows;
    b->dim[1] = ir_size_div(sz, b->dim[1], b->dim[dim_group(n)]);
    for (uint32_t i = 0; i < b->accesses.n; i++) {
        access *a = &b->accesses.at[i];
        if ((int)i != b->window[0] && (int)i != b->window[1])
            a->stride[dim_group(n)] = ir_size_mul(sz, a->stride[1], b->dim[1]);
    }
    for (uint32_t i = 0; i < b->places.n; i++)
        b->places.at[i].stride[dim_group(n)] = ir_size_mul(sz, b->places.at[i].stride[1], b->dim[1]);
#define PUT(d, r) (order[count] = (d), role[count++] = (r))
    if (!ir_size_is(sz, b->dim[0], 1)) PUT(0, 'b');
    if (!ir_size_is(sz, b->dim[dim_group(n)], 1)) PUT(dim_group(n), 'b');
    if (is_one_row(b, n, rows, columns)) {
        b->dim[columns] = ir_size_mul(sz, b->dim[rows], b->dim[columns]);
        rows = -1;
    }
    for (int d = IR_SPATIAL_AT; d < outer; d++)
        if (!ir_size_is(sz, b->dim[d], 1)) PUT(d, 'b');
    PUT(1, 'm');
    PUT(rows < 0 ? NO_DIM : rows, 'y');
    PUT(columns, 'n');
    for (int d = dim_c(n); d < dim_group(n); d++)
        if (d == dim_group(n) - 1 || !ir_size_is(sz, b->dim[d], 1)) PUT(d, 'k');
    if (b->k->band_rows) {
        PUT(dim_tail(n), 'q');
        PUT(dim_tail(n) + 1, 'w');
    }
#undef PUT
    for (int i = 0; i < b->k->n_axes; i++) {
        ir_kaxis *a = &b->k->axis[i];
        int dim = -1, at = -1;
        for (int d = 0; d < count; d++) {
            if (order[d] == a->dim) dim = d;
            if (order[d] == a->place) at = d;
        }
        a->dim = dim;
        a->place = at;
    }
    return count;
}
