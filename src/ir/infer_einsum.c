/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* infer_einsum.c: type and shape of einsum (kind EINSUM). The sizes of a subscript agree over all operands; the
 * constant 1 stretches between operands, but not within one. Faults of the subscripts are told at their place in the
 * string. */
#include "base/small.h"
#include "ir/infer_parts.h"
#include "ir/einsum.h"
#include <string.h>

static fusor_status check_types(ir_graph *g, const ir_node *n) {
    const ir_node *x = ir_at(g, n->in[0]);
    for (unsigned i = 0; i < n->n_in; i++) {
        const ir_node *y = ir_at(g, n->in[i]);
        const bool mixed = n->n_in == 2 && ((x->dtype == FUSOR_U8 && y->dtype == FUSOR_I8) ||
                                            (x->dtype == FUSOR_I8 && y->dtype == FUSOR_U8));
        FU_TRY(check_class(g, n, i, ir_ops[n->op].classes));
        if (y->dtype == x->dtype || mixed) continue;
        return TYPE_ERROR("%s is %s but %s is %s; expected one type%s: cast one of them", label(g, n, 0),
                          type_text(g, x), label(g, n, i), type_text(g, y),
                          n->n_in == 2 ? " (u8 with i8 is the one mixed pair)" : "");
    }
    return FUSOR_OK;
}

static const char *name_of(ir_graph *g, unsigned k) {
    return k >= IR_EINSUM_ELLIPSIS ? "..." : fu_format(g->arena, "%c", ir_einsum_letter(k));
}

typedef struct known {
    int operand;
    unsigned dim;
} known; /* operand -1: none yet */

/* Where the size of each subscript is from: the most telling operand, a known size before a named one, and 1 only where
 * all are. */
static fusor_status find_sizes(ir_graph *g, const ir_node *n, const ir_einsum *e, known *of) {
    for (unsigned k = 0; k < IR_EINSUM_LABELS; k++) of[k].operand = -1;
    for (unsigned i = 0; i < n->n_in; i++) {
        const ir_node *x = ir_at(g, n->in[i]);
        for (unsigned d = 0; d < e->in[i].rank; d++) {
            known *s = &of[e->in[i].label[d]];
            if (s->operand >= 0) {
                const ir_size had = ir_at(g, n->in[s->operand])->dim[s->dim];
                const bool is_better =
                    ir_size_is_const(g->sizes, x->dim[d], NULL) && !ir_size_is_const(g->sizes, had, NULL);
                if (ir_size_is(g->sizes, x->dim[d], 1) || (!is_better && !ir_size_is(g->sizes, had, 1))) continue;
            }
            *s = (known){(int)i, d};
        }
    }
    for (unsigned i = 0; i < n->n_in; i++) {
        const ir_node x = *ir_at(g, n->in[i]);
        for (unsigned d = 0; d < e->in[i].rank; d++) {
            const unsigned k = e->in[i].label[d];
            const known s = of[k];
            const ir_size want = ir_at(g, n->in[s.operand])->dim[s.dim];
            unsigned first = 0;
            while (e->in[i].label[first] != k) first++;
            if (first < d && !agree(g, n, x.dim[first], x.dim[d], label(g, n, i), first, label(g, n, i), d))
                return SHAPE_ERROR("%s is %s and has the subscript %s at dims %u and %u; expected equal sizes",
                                   label(g, n, i), type_text(g, &x), name_of(g, k), first, d);
            if (ir_size_is(g->sizes, x.dim[d], 1)) continue;
            if (agree(g, n, want, x.dim[d], label(g, n, (unsigned)s.operand), s.dim, label(g, n, i), d)) continue;
            return SHAPE_ERROR("subscript %s is %s in %s, which is %s, but %s is %s; expected its dim %u = %s or 1",
                               name_of(g, k), size_text(g, want), label(g, n, (unsigned)s.operand),
                               type_text(g, ir_at(g, n->in[s.operand])), label(g, n, i), type_text(g, &x), d,
                               size_text(g, want));
        }
    }
    return FUSOR_OK;
}

fusor_status infer_einsum(ir_graph *g, ir_node *n) {
    FU_TRY(check_types(g, n));
    const ir_attr *attr = attr_of(n, "subscripts");
    const char *text = ir_attr_text(g, g->arena, attr);
    uint8_t *rank = FU_NEW_N(g->arena, uint8_t, n->n_in);
    known of[IR_EINSUM_LABELS];
    ir_einsum e;
    size_t where = 0;
    for (unsigned i = 0; i < n->n_in; i++) rank[i] = ir_at(g, n->in[i])->rank;
    const char *wrong = ir_einsum_read(g->arena, text, strlen(text), n->n_in, rank, &e, &where);
    if (wrong) {
        fu_loc loc = n->loc;
        if (attr->integer)
            loc = (fu_loc){(uint32_t)(attr->integer >> 32), (uint32_t)attr->integer + 1 + (uint32_t)where};
        return FU_FAIL_AT(g->error, FUSOR_ERROR_SHAPE, g->source, loc, "einsum: %s", wrong);
    }
    FU_TRY(find_sizes(g, n, &e, of));
    n->rank = e.out.rank;
    for (unsigned d = 0; d < e.out.rank; d++) {
        const known s = of[e.out.label[d]];
        n->dim[d] = s.operand < 0 ? ir_size_const(g->sizes, 1) : ir_at(g, n->in[s.operand])->dim[s.dim];
    }
    const ir_dtype said = dtype_attr(n), t = ir_at(g, n->in[0])->dtype;
    n->dtype = said ? said : ir_is_float(t) ? t : ir_dtypes[t].bytes == 1 ? FUSOR_I32 : FUSOR_I64;
    return FUSOR_OK;
}
