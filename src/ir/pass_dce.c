/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_dce: drops nodes that no result needs; parameters stay, they are the function's signature, and so do uses of
 * them as indices, which are checked.
 * Needs: nothing. Keeps: types, order. Breaks: ids. Cost: O(nodes + edges). */
#include "ir/pass.h"

fusor_status ir_pass_dce(fu_arena *a, fu_error *e, ir_graph **g) {
    (void)e;
    ir_graph *live = ir_graph_copy_live(a, *g);
    if (live->nodes.n != (*g)->nodes.n) *g = live;
    return FUSOR_OK;
}
