/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_CELL_H
#define IR_CELL_H
/* Which operand of a recurrent cell is what: x and h are the first two. */
#include "ir/graph.h"

typedef struct ir_cell {
    int gates;                       /* lstm: i, f, g, o; gru: r, z, n */
    unsigned c;                      /* 0: none */
    unsigned w_ih, w_hh, b_ih, b_hh; /* b_*: 0 where they are left out */
} ir_cell;

static inline ir_cell ir_cell_of(const ir_node *n) {
    const bool is_lstm = n->op == IR_OP_LSTM_CELL;
    const unsigned w = is_lstm ? 3 : 2;
    const bool has_biases = n->n_in > w + 2;
    return (ir_cell){.gates = is_lstm                   ? 4
                              : n->op == IR_OP_GRU_CELL ? 3
                                                        : 1,
                     .c = is_lstm ? 2 : 0,
                     .w_ih = w,
                     .w_hh = w + 1,
                     .b_ih = has_biases ? w + 2 : 0,
                     .b_hh = has_biases ? w + 3 : 0};
}
#endif
