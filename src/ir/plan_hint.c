/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_hint.c: what the user asks of the plan. A barrier cuts: its value is stored, and what reads it is in other
 * kernels. fuse_with is a wish where the planner weighs costs, and a demand in the end: where no kernel computes both
 * values, the plan is refused. */
#include "base/small.h"
#include "ir/plan_internal.h"

/* A statement that no result needs asks for nothing; it may still be there for the check of its indices. */
static bool is_needed(const planner *p, ir_id id) { return id && p->uses[id]; }

void plan_take_hints(planner *p) {
    if (p->options->reference) return;
    for (uint32_t i = 0; i < p->g->hints.n; i++) {
        const ir_hint *h = &p->g->hints.at[i];
        if (!is_needed(p, h->node)) continue;
        p->info[h->node].is_barrier |= h->kind == IR_HINT_BARRIER;
        if (h->kind == IR_HINT_FUSE_WITH) p->info[h->node].is_wanted = p->info[h->with].is_wanted = true;
    }
}

static bool computes(const ir_step *s, ir_id id) {
    for (int i = 0; i < s->n_ops; i++)
        if (s->ops[i] == id) return true;
    return false;
}

/* What computes the elements of a view that has no memory of its own. */
static ir_id behind(const planner *p, ir_id id) {
    while (is_view(ir_at(p->g, id)) && !p->info[id].made_by) id = ir_at(p->g, id)->in[0];
    return id;
}

static bool is_given(const planner *p, ir_id id) {
    return ir_at(p->g, id)->op == IR_OP_PARAM || ir_at(p->g, id)->op == IR_OP_LITERAL;
}

static bool is_met(const planner *p, const ir_hint *h) {
    const ir_id a = behind(p, h->node), b = behind(p, h->with);
    if (a == b || is_given(p, a) || is_given(p, b)) return true;
    for (uint32_t s = 0; s < p->plan->steps.n; s++)
        if (computes(&p->plan->steps.at[s], a) && computes(&p->plan->steps.at[s], b)) return true;
    return false;
}

/* The reason of the boundary that lies between the two: of one of the values itself, else of the last one before the
 * later value. */
static const char *why_apart(const planner *p, const ir_hint *h) {
    const ir_plan *plan = p->plan;
    const ir_boundary *found = NULL;
    const ir_id a = behind(p, h->node), c = behind(p, h->with);
    for (uint32_t i = 0; i < plan->boundaries.n; i++) {
        const ir_boundary *b = &plan->boundaries.at[i];
        const bool is_own = b->value == a || b->value == c;
        const bool leads = computes(&plan->steps.at[b->to], a > c ? a : c);
        if (is_own && leads) return ir_reason_texts[b->reason];
        if (is_own || (leads && !found)) found = b;
    }
    const bool is_cut = p->info[a].is_barrier || p->info[c].is_barrier;
    return found    ? ir_reason_texts[found->reason]
           : is_cut ? ir_reason_texts[IR_REASON_BARRIER]
                    : "neither needs the other, and they iterate over different spaces or wait for different kernels";
}

static fusor_status fail(const planner *p, const ir_hint *h, const char *text) {
    return h->loc.line && p->g->source ? FU_FAIL_AT(p->error, FUSOR_ERROR_ARGUMENT, p->g->source, h->loc, "%s", text)
                                       : FU_FAIL(p->error, FUSOR_ERROR_ARGUMENT, "%s", text);
}

fusor_status plan_check_hints(planner *p) {
    if (p->options->reference || p->options->no_fuse) return FUSOR_OK;
    for (uint32_t i = 0; i < p->g->hints.n; i++) {
        const ir_hint *h = &p->g->hints.at[i];
        const char *a = h->name ? h->name : ir_ops[ir_at(p->g, h->node)->op].name;
        const char *b = h->with_name ? h->with_name : h->with ? ir_ops[ir_at(p->g, h->with)->op].name : "?";
        if (h->kind != IR_HINT_FUSE_WITH || !is_needed(p, h->node)) continue;
        if (!is_needed(p, h->with))
            return fail(
                p, h,
                fu_format(p->arena, "fuse_with: no result needs %%%.64s, so no kernel computes it with %%%.64s", b, a));
        if (!is_met(p, h))
            return fail(p, h,
                        fu_format(p->arena, "fuse_with: %%%.64s and %%%.64s are not computed in one kernel: %s", a, b,
                                  why_apart(p, h)));
    }
    return FUSOR_OK;
}
