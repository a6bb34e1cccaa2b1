/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* lazy_hint.c: fusor_barrier and fusor_fuse_with. On a lazy tensor a hint is kept with the operator that makes it,
 * becomes part of the key of its plan, and a hint of the graph when one is made (lazy_plan.c); on a value of a function
 * that is being built it is one at once. */
#include "lazy_internal.h"

bool lazy_has_hints(const lazy_slot *x) { return x->is_barrier || x->n_wants; }

uint32_t lazy_want_at(const lazy_state *s, const lazy_want *w) {
    const lazy_slot *x = lazy_at(s, w->slot);
    return x->birth == w->birth && x->kind == SLOT_OP && x->mark == s->mark ? x->index : UINT32_MAX;
}

fusor_status lazy_add_hints(const lazy_state *s, ir_graph *g, const lazy_slot *x, const ir_id *id_of) {
    ir_hint h = {
        .kind = IR_HINT_BARRIER, .node = id_of[x->index], .name = x->text ? fu_strdup(g->arena, x->text) : NULL};
    if (x->is_barrier) fu_push(g->arena, &g->hints, h);
    h.kind = IR_HINT_FUSE_WITH;
    for (uint32_t i = 0; i < x->n_wants; i++) {
        const uint32_t at = lazy_want_at(s, &x->wants[i]);
        if (at == UINT32_MAX)
            return FU_FAIL(g->error, FUSOR_ERROR_ARGUMENT,
                           "fusor_fuse_with: %s is evaluated without the other value: that one was evaluated before, "
                           "or is not needed now",
                           ir_ops[x->op].name);
        const lazy_slot *y = lazy_at(s, x->wants[i].slot);
        h.with = id_of[at];
        h.with_name = y->text ? fu_strdup(g->arena, y->text) : NULL;
        fu_push(g->arena, &g->hints, h);
    }
    return FUSOR_OK;
}

fusor_tensor fusor_barrier(fusor_tensor t) {
    fu_error e;
    if (!t.owner || op_is_weak(t)) return t;
    if (builder_owns(t)) return builder_hint(t, NULL);
    fu_error_clear(&e);
    lazy_state *s = lazy_enter(t.owner);
    if (!s) return t;
    uint32_t slot = lazy_resolve(s, t, "fusor_barrier", &e);
    if (slot && lazy_at(s, slot)->kind == SLOT_OP) lazy_at(s, slot)->is_barrier = true; /* others are in memory */
    lazy_leave(s);
    return t;
}

static fusor_status want(lazy_state *s, fu_error *e, fusor_tensor a, fusor_tensor b) {
    uint32_t slot[2] = {lazy_resolve(s, a, "fusor_fuse_with", e), 0};
    slot[1] = slot[0] ? lazy_resolve(s, b, "fusor_fuse_with", e) : 0;
    if (!slot[1]) return e->status;
    for (int i = 0; i < 2; i++)
        if (lazy_at(s, slot[i])->kind != SLOT_OP)
            return FU_FAIL(e, FUSOR_ERROR_ARGUMENT,
                           "fusor_fuse_with: the %s value is in memory already; expected results of operators that are "
                           "still to be computed",
                           i ? "second" : "first");
    if (slot[0] == slot[1]) return FUSOR_OK;
    if (lazy_at(s, slot[0])->birth <
        lazy_at(s, slot[1])->birth) { /* the later one has it: the other may be needed without it */
        uint32_t x = slot[0];
        slot[0] = slot[1];
        slot[1] = x;
    }
    lazy_slot *x = lazy_at(s, slot[0]);
    lazy_want *more = fu_realloc(x->wants, (x->n_wants + 1) * sizeof *more);
    if (!more) return lazy_no_memory(e);
    more[x->n_wants] = (lazy_want){slot[1], lazy_at(s, slot[1])->birth};
    x->wants = more;
    x->n_wants++;
    return FUSOR_OK;
}

fusor_tensor fusor_fuse_with(fusor_tensor a, fusor_tensor b) {
    fu_error e;
    fu_error_clear(&e);
    if (builder_owns(a)) return builder_hint(a, &b);
    if (!a.owner || op_is_weak(a)) {
        (void)context_refuse("fusor_fuse_with: the first value is no tensor");
        return a;
    }
    lazy_state *s = lazy_enter(a.owner);
    if (!s) return a;
    if (want(s, &e, a, b) != FUSOR_OK) a = lazy_bad_slot(s, IR_OP_NONE, &e);
    lazy_leave(s);
    return a;
}
