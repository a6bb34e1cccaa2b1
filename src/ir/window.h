/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_WINDOW_H
#define IR_WINDOW_H
/* Windows that slide over the spatial axes of [N, C, spatial..]: what the attributes of pooling (and of whatever slides) mean. Along an
 * axis, element k of window o is at o * stride + k * dilation - begin; what lies outside 0 .. size - 1 is padding. */
#include "ir/graph.h"

enum { IR_MAX_SPATIAL = 3, IR_SPATIAL_AT = 2 /* the first spatial axis */ };
typedef struct ir_window_axis { int64_t kernel, stride, dilation, begin, end; } ir_window_axis;
typedef struct ir_window {
    int n;                      /* spatial axes; 0: the window is all of them */
    ir_window_axis axis[IR_MAX_SPATIAL];
    bool is_ceil, counts_pads;
} ir_window;
/* The attributes of a node that ir_infer has accepted. */
ir_window ir_window_of(const ir_graph *g, const ir_node *n);
#endif
