/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_WINDOW_H
#define IR_WINDOW_H
/* The kernel kind `window` is convolutions only (plan_window.c); pools become maps (pass_expand_window.c). */
/* Windows that slide over the spatial axes of [N, C, spatial..]: what the attributes of pooling (and of whatever
 * slides) mean. Along an axis, element k of window o is at o * stride + k * dilation - begin; what lies outside 0 ..
 * size - 1 is padding. */
#include "ir/graph.h"

enum {
    IR_MAX_SPATIAL = 3,
    IR_PHASES_FEWEST = 4, /* channels made of a transposed convolution whose phases are a kernel's */
    IR_SPATIAL_AT = 2     /* the first spatial axis */
};
typedef struct ir_window_axis {
    int64_t kernel, stride, dilation, begin, end;
} ir_window_axis;
typedef struct ir_window {
    int n; /* spatial axes; 0: the window is all of them */
    ir_window_axis axis[IR_MAX_SPATIAL];
    bool is_ceil, counts_pads;
} ir_window;
/* The attributes of a node that ir_infer has accepted. */
ir_window ir_window_of(const ir_graph *g, const ir_node *n);
/* Entry i of a list attribute with a number for each spatial axis (pads: two); absent: where the list is not given or
 * has no such entry. */
int64_t ir_window_entry(const ir_graph *g, const ir_node *n, const char *name, unsigned i, int64_t absent);
/* A convolution of f32, f64 or integers without pads and bias, whose kernel is known: one kernel of kind window
 * (plan_window.c), which also takes in the pads and conversions in front of it. pass_expand_conv.c makes others of this
 * one. */
bool ir_conv_fits_window(const ir_graph *g, const ir_node *n); /* but for pads, bias and types */
bool ir_conv_is_window(const ir_graph *g, const ir_node *n);
/* Transposed with strides, and on a CPU (packs_const): a kernel of the same kind, which makes the phases of the result;
 * but for bias and types. */
bool ir_conv_fits_phases(const ir_graph *g, const ir_node *n);
/* index of a node. TRANSPOSE: of an image whose channels were put last (pass_channels.c), as it was: not stored.
 * MATMUL: of a convolution of such images: its rows are places. */
enum { IR_PLANES = 1, IR_PLACES = 1 };
/* A transpose that brings the last axis, the channels, to the second place; is_back: that from there to the end. */
bool ir_moves_channels(const ir_graph *g, const ir_node *n, bool is_back);
/* Is it of one place of the kernel (1x1), without pads: a product over the channels? */
bool ir_conv_has_one_place(const ir_graph *g, const ir_node *n);
/* A number of channels of type t that is known, and whole vectors of all levels (which then make the same kernels). */
bool ir_channels_are_vectors(const ir_graph *g, ir_size channels, ir_dtype t);
/* By node: is all that is made of it, by element-wise operators, transposed so that its channels are last? */
const bool *ir_goes_last(fu_arena *a, const ir_graph *g);
/* One channel a group, few places and few channels made of each: its kernel reads the operand without its pads. */
bool ir_conv_is_depthwise(const ir_graph *g, const ir_node *n);
#endif
