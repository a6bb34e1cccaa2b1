/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ptx_mbarrier.c: what warps know of each other: their clocks; barriers in shared memory (mbarrier), by which some of
 * them come to know what others did. PTX ISA 9.0, 9.7.13.15: a phase is over when as many have arrived as the barrier
 * was made for; who waits names the parity of a phase, and of a fresh barrier the odd one is over. Arrivals behind
 * asynchronous copies take place when somebody waits for them in vain else. */
#include "ptx_machine.h"
#include <string.h>

static void learn(uint32_t to[MAX_WARPS], const uint32_t from[MAX_WARPS]) {
    for (int k = 0; k < MAX_WARPS; k++)
        if (from[k] > to[k]) to[k] = from[k];
}

/* What the warp does from now on is later than what others come to know. */
static void go_on(run *r, warp *w) {
    if (++w->clock[w->number] > r->latest) r->latest = w->clock[w->number];
}

void ptx_begin_clocks(run *r) {
    const uint32_t now = ++r->latest;
    for (int k = 0; k < r->n_warps; k++) {
        for (int j = 0; j < MAX_WARPS; j++) r->w[k].clock[j] = r->w[k].fenced[j] = now;
        r->w[k].number = k;
        go_on(r, &r->w[k]);
    }
    for (int k = 0; k < r->n_barriers; k++)
        r->use[r->barrier[k].at / 4].is_barrier = r->use[r->barrier[k].at / 4 + 1].is_barrier = false;
    r->n_barriers = 0;
}

void ptx_meet(run *r) {
    uint32_t all[MAX_WARPS] = {0};
    for (int k = 0; k < r->n_warps; k++) learn(all, r->w[k].clock);
    for (int k = 0; k < r->n_warps; k++) {
        memcpy(r->w[k].clock, all, sizeof all);
        go_on(r, &r->w[k]);
    }
}

static mbarrier *find(run *r, const warp *w, int lane, uint64_t at) {
    for (int k = 0; k < r->n_barriers; k++) {
        mbarrier *b = &r->barrier[k];
        if (b->at != at) continue;
        if (b->maker != w->number && w->clock[b->maker] < b->made)
            ptx_fail(r, thread_of(w, lane), "race: warp %d made the barrier and no other one is between", b->maker);
        return b;
    }
    ptx_fail(r, thread_of(w, lane), "no barrier was made at %llu of shared memory", (unsigned long long)at);
}

static void make(run *r, warp *w, int lane, uint64_t at, uint64_t count) {
    if (count < 1 || count >= 1 << 20) ptx_fail(r, thread_of(w, lane), "a barrier of %llu", (unsigned long long)count);
    if (r->n_barriers == MAX_MBARRIERS) ptx_fail(r, -1, "more than %d barriers", MAX_MBARRIERS);
    ptx_memory(r, w, lane, PTX_SHARED, at, 8, true, false);
    r->barrier[r->n_barriers++] = (mbarrier){.at = at,
                                             .count = (uint32_t)count,
                                             .missing = (uint32_t)count,
                                             .maker = w->number,
                                             .made = w->clock[w->number]};
    r->use[at / 4].is_barrier = r->use[at / 4 + 1].is_barrier = true;
}

void ptx_arrive(run *r, warp *w, int lane, uint64_t at) {
    mbarrier *b = find(r, w, lane, at);
    r->progress++;
    if (--b->missing) return;
    b->phase++;
    b->missing = b->count;
    learn(b->known, b->clock);
}

void ptx_arrive_later(run *r, warp *w, const ptx_inst *i, uint32_t active) {
    if (!has(i, PTX_M(NOINC))) ptx_fail(r, -1, "cp.async.mbarrier.arrive without .noinc");
    for (int lane = 0; lane < LANES; lane++) {
        if (!(active >> lane & 1)) continue;
        const uint64_t at = address(w, lane, &i->in[0]);
        learn(find(r, w, lane, at)->clock, w->clock);
        ptx_push_pending(r, w, (pending){.to = at, .lane = lane, .group = w->group, .line = i->line});
    }
    r->progress++;
    go_on(r, w);
}

/* Is the phase of this parity over? */
static bool try_wait(run *r, warp *w, int lane, uint64_t at, uint64_t parity) {
    mbarrier *b = find(r, w, lane, at);
    if ((b->phase & 1) == (parity & 1)) ptx_finish_arrivals(r, at);
    if ((b->phase & 1) == (parity & 1)) return false;
    learn(w->clock, b->known);
    r->progress++;
    return true;
}

void ptx_mbarrier(run *r, warp *w, const ptx_inst *i, uint32_t active) {
    const int where = has(i, PTX_M(INIT)) ? 0 : 1;
    for (int lane = 0; lane < LANES; lane++) {
        if (!(active >> lane & 1)) continue;
        const uint64_t at = address(w, lane, &i->in[where]);
        if (has(i, PTX_M(INIT))) make(r, w, lane, at, value(r, w, lane, &i->in[1]));
        else if (has(i, PTX_M(ARRIVE))) {
            mbarrier *b = find(r, w, lane, at);
            learn(b->clock, w->clock);
            set(w, lane, &i->in[0], b->phase);
            ptx_arrive(r, w, lane, at);
        } else if (has(i, PTX_M(TRY_WAIT)) && has(i, PTX_M(PARITY))) {
            const bool is_over = try_wait(r, w, lane, at, value(r, w, lane, &i->in[2]));
            set(w, lane, &i->in[0], is_over);
            w->is_spinning |= !is_over;
        } else ptx_fail(r, -1, "an instruction of barriers that is not known");
    }
    if (has(i, PTX_M(ARRIVE))) go_on(r, w);
}
