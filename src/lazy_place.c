/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* lazy_place.c: device "auto" for lazy tensors: each evaluation runs on the side that is expected to be faster, and its
 * results stay there.
 *
 *   decide     what each side would take: the model or what was measured (rt/select.h), and moving what is not there
 *   bring      results of earlier evaluations: a copy on the other side, kept with them, so that it is made once
 *   run_on     the call; wrapped memory goes there and back with it, as in a call of an executable (auto.c)
 *
 * An evaluation that follows many others with the same data is expected to be followed by as many: of moving data that
 * was read k times, 1 / (k + 1) counts. So data moves after a while where it pays in the long run, and stays where it
 * is used once. */
#include "base/small.h"
#include "auto.h"
#include "lazy_internal.h"
#include "memory.h"
#include "base/hash.h"
#include "rt/device.h"
#include <math.h>

enum { TIMED_OFTEN = 64 }; /* of settled evaluations, one in so many is timed */

typedef struct bytes_moved {
    double up, down;
} bytes_moved;

/* May it have a second copy? Not memory that others may write. */
static bool is_movable(const lazy_storage *m) { return m && m->kind == STORAGE_POOL && !m->is_shown; }
static bool is_at(const lazy_storage *m, int32_t device) {
    return m->buffer.device == device || (m->twin.data && m->twin.device == device);
}

/* ---- the choice ---- */
/* Of inputs of these shapes: found, or reckoned. NULL: nothing can be said. */
static lazy_costs *costs_of(lazy_plan *p, int n_in, const fusor_buffer *in) {
    uint64_t hash = 1;
    auto_costs of;
    for (int i = 0; i < n_in; i++)
        hash = fu_hash(in[i].shape, (size_t)in[i].rank * sizeof *in[i].shape, hash + (uint64_t)in[i].rank);
    if (!hash) hash = 1;
    for (int i = 0; i < LAZY_COSTS; i++)
        if (p->costs[i].hash == hash) return &p->costs[i];
    if (!auto_costs_of(p->exe, n_in, in, 0, NULL, &of)) return NULL;
    lazy_costs *c = &p->costs[p->next_costs++ % LAZY_COSTS];
    *c = (lazy_costs){.hash = hash, .of = of};
    return c;
}

static void note_change(const lazy_state *s, lazy_plan *p, const rt_select_choice *c, const double *moving_ns) {
    if (p->has_side && p->side == c->side) return;
    p->side = c->side;
    p->has_side = true;
    if (!fu_log_on("dispatch")) return;
    fu_log_event(
        &s->ctx->log, "dispatch", "@lazy,auto,%s,%s,cpu %.0f ns %s + %.0f to move,gpu %.0f ns %s + %.0f to move",
        c->side == RT_SIDE_GPU ? "gpu" : "cpu", c->is_trial ? "trial" : "faster",
        c->expected_ns[RT_SIDE_CPU] - moving_ns[RT_SIDE_CPU], c->is_measured[RT_SIDE_CPU] ? "measured" : "estimated",
        moving_ns[RT_SIDE_CPU], c->expected_ns[RT_SIDE_GPU] - moving_ns[RT_SIDE_GPU],
        c->is_measured[RT_SIDE_GPU] ? "measured" : "estimated", moving_ns[RT_SIDE_GPU]);
}

/* Wrapped memory goes there and back with each evaluation, so its way is part of what is measured; that of results of
 * earlier evaluations is not, and is added. */
static rt_side decide(lazy_state *s, lazy_plan *p, int n_in, const fusor_buffer *in, lazy_storage *const *from, int n,
                      const lazy_result *results, bool is_read) {
    const int32_t device = s->ctx->device;
    lazy_costs *c = p->is_cpu_only ? NULL : costs_of(p, n_in, in);
    if (!c) return RT_SIDE_CPU;
    const rt_select_gpu *gpu = auto_gpu_of(s->ctx);
    bytes_moved fixed[RT_SIDES] = {{0, 0}, {0, 0}};
    double ns[RT_SIDES], moving_ns[RT_SIDES] = {0, 0}, needed = 0;
    for (int i = 0; i < n_in; i++) {
        const double bytes = (double)lazy_bytes(&in[i]);
        const lazy_storage *m = from[i];
        if (!is_movable(m)) {
            if (in[i].device) fixed[RT_SIDE_CPU].down += bytes;
            else fixed[RT_SIDE_GPU].up += bytes;
        } else if (!is_at(m, 0)) {
            moving_ns[RT_SIDE_CPU] += rt_select_move_ns(gpu, 0, bytes) / (1 + m->n_reads);
        } else if (!is_at(m, device)) {
            moving_ns[RT_SIDE_GPU] += rt_select_move_ns(gpu, bytes, 0) / (1 + m->n_reads);
        }
        if (m ? !is_at(m, device) : true) needed += bytes;
    }
    for (int r = 0; r < n; r++) {
        const lazy_slot *x = lazy_at(s, results[r].slot);
        fusor_buffer b = {.dtype = x->dtype, .rank = x->rank};
        memcpy(b.shape, x->shape, sizeof x->shape);
        const double bytes = (double)lazy_bytes(&b);
        if (results[r].over && results[r].over->buffer.device) fixed[RT_SIDE_CPU].up += bytes;
        else if (results[r].over || is_read) fixed[RT_SIDE_GPU].down += bytes;
        needed += bytes;
    }
    uint64_t key = c->of.key;
    for (int side = 0; side < RT_SIDES; side++) {
        ns[side] = c->of.ns[side] + rt_select_move_ns(gpu, fixed[side].up, fixed[side].down);
        key = rt_select_key(key, NULL, 0, fixed[side].up, fixed[side].down);
    }
    if (!auto_fits(s->ctx, &c->of, needed)) ns[RT_SIDE_GPU] = INFINITY;
    const rt_select_choice choice = rt_select_ask(s->ctx->select, key, ns, moving_ns);
    const bool is_timed = choice.is_trial || !choice.is_measured[choice.side] || ++c->calls % TIMED_OFTEN == 0;
    s->timed = (lazy_timed){.key = is_timed ? key : 0, .side = choice.side};
    s->last_key = key;
    note_change(s, p, &choice, moving_ns);
    return choice.side;
}

/* ---- the call ---- */
/* Where a leaf is read on `device`: its memory, or its copy there. */
static fusor_status bring(lazy_state *s, fu_error *e, lazy_storage *m, int32_t device, fusor_buffer *out) {
    if (!m->twin.data && m->buffer.device != device && lazy_bytes(&m->buffer)) {
        fusor_buffer to = m->buffer;
        to.flags = 0;
        to.device = device;
        to.data = NULL;
        FU_TRY(memory_get(s->ctx, e, &to));
        if (memory_copy(s->ctx, e, &m->buffer, &to) != FUSOR_OK) return memory_put(s->ctx, &to), e->status;
        m->twin = to;
    }
    *out = m->buffer.device == device || !m->twin.data ? m->buffer : m->twin;
    return FUSOR_OK;
}

static fusor_status run_on(lazy_state *s, fu_error *e, lazy_plan *p, rt_exec *gpu, int n_in, fusor_buffer *in,
                           lazy_storage *const *from, int n, const lazy_result *results, fusor_buffer *out) {
    const int32_t home = gpu ? s->ctx->device : 0;
    for (int i = 0; i < n_in; i++)
        if (is_movable(from[i])) FU_TRY(bring(s, e, from[i], home, &in[i]));
    for (int r = 0; r < n; r++)
        if (!results[r].over) out[r].device = home, out[r].data = NULL;
    if (s->timed.key) {
        FU_TRY(rt_queue_wait(s->ctx->queue, e)); /* for what came before, which is not to be counted */
        s->timed.begin_ns = fu_now_ns();
    }
    return gpu ? rt_exec_call(gpu, e, n_in, in, n, out) : auto_call_here(p->exe, e, n_in, in, n, out);
}

fusor_status lazy_call_placed(lazy_state *s, fu_error *e, lazy_plan *p, int n_in, fusor_buffer *in,
                              lazy_storage *const *from, int n, const lazy_result *results, fusor_buffer *out,
                              bool is_read) {
    s->timed.key = 0;
    const rt_side side = decide(s, p, n_in, in, from, n, results, is_read);
    rt_exec *gpu = side == RT_SIDE_GPU ? auto_gpu(p->exe, NULL) : NULL;
    bool writes_memory = false;
    for (int r = 0; r < n; r++) writes_memory |= results[r].over != NULL;
    if (side == RT_SIDE_GPU && !gpu) {
        p->is_cpu_only = true;
        s->timed.key = 0;
    }
    fusor_status status = run_on(s, e, p, gpu, n_in, in, from, n, results, out);
    if (status == FUSOR_ERROR_MEMORY && gpu && !writes_memory) { /* others took it meanwhile */
        fu_error_clear(e);
        s->timed.key = 0;
        gpu = NULL;
        status = run_on(s, e, p, NULL, n_in, in, from, n, results, out);
    }
    for (int i = 0; i < n_in; i++)
        if (from[i]) from[i]->n_reads++;
    s->last_device = gpu ? s->ctx->device : 0;
    if (status != FUSOR_OK) s->timed.key = 0;
    return status;
}

fusor_status lazy_placed_done(lazy_state *s, fu_error *e) {
    if (!s->timed.key) return FUSOR_OK;
    const uint64_t key = s->timed.key;
    s->timed.key = 0;
    if (s->timed.side == RT_SIDE_GPU) FU_TRY(rt_queue_wait(s->ctx->queue, e));
    rt_select_tell(s->ctx->select, key, s->timed.side, (double)(fu_now_ns() - s->timed.begin_ns));
    return FUSOR_OK;
}
