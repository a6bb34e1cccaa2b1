/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* exec_again.c: a call whose buffers are those of the last run of its frame. Where every step is a kernel on one thread
 * and nothing is copied in or out, all that a run passes to machine code stays the same: it is put together once, after
 * the first run (which may have packed constants), and from then on a call is one indirect call for each phase of a
 * kernel. Everything else - teams, staging, checks of indices, profiles, events - takes the ordinary way through
 * exec_frame.c. */
#include "rt/exec_internal.h"
#include "rt/probes.h"

static bool is_staged(const frame *f) {
    const core *c = f->x->core;
    for (int p = 0; p < c->n_params; p++)
        if (!f->x->bound[p] && f->in[p].is_staged) return true;
    for (int r = 0; r < c->n_results; r++)
        if (f->out[r].is_staged) return true;
    return false;
}

/* Adds the phases of a step; false: it is not what this file is for. */
static bool add_step(frame *f, int number) {
    const core *c = f->x->core;
    const ir_step *st = &c->plan->steps.at[number];
    const frame_step *s = &f->step[number];
    if (st->kind == IR_STEP_COPY) return f->base[st->arg[0]] == f->base[st->arg[1]] || !f->bytes[st->arg[0]];
    if (exec_is_done(f, number)) return true;
    if (st->kind != IR_STEP_KERNEL) return false;
    int first = s->is_prepacked, n_phases = s->launch.n_phases - first;
    for (int p = first; p < s->launch.n_phases; p++) {
        if (s->launch.tiles[p] <= 0) continue;
        if (s->n_threads > 1 && s->launch.tiles[p] > 1) return false;
        again_launch *a = &f->again[f->n_again++];
        *a = (again_launch){c->info[number].kernel->fn, s->launch.tiles[p], c->info[number].kernel->symbol, n_phases,
                            s->args};
        n_phases = 0;
        a->args.phase = (uint32_t)p;
        a->args.scratch = f->memory + f->scratch_at;
    }
    return true;
}

void exec_again_make(frame *f) {
    if (f->again_is != AGAIN_UNKNOWN) return;
    f->again_is = AGAIN_NO;
    f->n_again = 0;
    if (f->x->core->logs_run || f->x->core->options.launch || f->device || is_staged(f)) return;
    for (int i = 0; i < f->x->core->n_steps; i++)
        if (!add_step(f, i)) return;
    f->again_is = AGAIN_YES;
}

bool exec_again(const frame *f) {
    if (f->again_is != AGAIN_YES || __builtin_expect(rt_fpenv_is_other(), 0)) return false;
    if (f->profile) {
        rt_profile *p = atomic_load_explicit(f->profile, memory_order_acquire);
        if (__builtin_expect(p && atomic_load_explicit(&p->on, memory_order_relaxed), 0)) return false;
    }
    int code = 0;
    if (__builtin_expect(f->n_again == 1, 1)) {
        RT_PROBE_RUN(f->again->symbol, f->again->n_phases, f->again->tiles);
        return f->again->fn(&f->again->args, 0, f->again->tiles) == 0;
    }
    for (const again_launch *a = f->again, *end = a + f->n_again; a != end; a++) {
        if (a->n_phases) RT_PROBE_RUN(a->symbol, a->n_phases, a->tiles);
        code |= a->fn(&a->args, 0, a->tiles);
    }
    return __builtin_expect(code == 0, 1);
}

rt_again exec_again_single(const frame *f) {
    if (f->again_is != AGAIN_YES || f->n_again != 1) return (rt_again){0};
    const again_launch *a = f->again;
    return (rt_again){a->fn, &a->args, a->tiles, f->profile, a->symbol, a->n_phases};
}
