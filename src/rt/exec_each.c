/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* exec_each.c: one call over many sets of buffers, as an optimizer makes for all parameters of a model.
 *
 * Each set is a frame, prepared as for a call of its own. Running walks the steps once; a kernel step becomes one
 * launch whose tiles are the tiles of all sets, one after the other, so that a thousand small tensors cost one team,
 * and a set of any size keeps all workers busy. The bits are those of separate calls: a tile does not know whose
 * neighbour it is. */
#include "rt/exec_device.h"
#include "rt/exec_internal.h"
#include "rt/buffer.h"
#include "rt/tune.h"
#include <stdlib.h>

struct rt_each {
    rt_exec *x;
    int64_t n;
    frame **set;
    char *scratch; /* of the workers, for the step that needs most */
    size_t scratch_bytes, scratch_stride;
    int *n_threads;      /* by step */
    int64_t *ends;       /* of one step and phase: tiles of sets 0..i */
    exec_phase *runs;    /* of one step and phase, by set */
    device_item *item;   /* on a device: of one step, by set */
    device_table *table; /* and by step */
};

/* ---- running ---- */
typedef struct joint {
    const int64_t *ends;
    exec_phase *runs;
    int64_t n;
} joint;

/* Tiles [begin, end) of the joint numbering: set by set. */
static void run_joint_tiles(void *user, int worker, int64_t begin, int64_t end) {
    const joint *j = user;
    int64_t low = 0, high = j->n - 1;
    while (low < high) { /* the first set that ends past begin */
        int64_t middle = low + (high - low) / 2;
        if (j->ends[middle] > begin) high = middle;
        else low = middle + 1;
    }
    for (int64_t i = low; begin < end; i++) {
        int64_t start = i ? j->ends[i - 1] : 0, stop = j->ends[i] < end ? j->ends[i] : end;
        if (stop <= begin) continue;
        exec_run_tiles(&j->runs[i], worker, begin - start, stop - start);
        begin = stop;
    }
}

static fusor_status run_joint(rt_each *c, fu_error *e, int step) {
    const core *of = c->x->core;
    const rt_kernel *k = of->info[step].kernel;
    rt_parallel_for own = {of->options.parallel_for, of->options.parallel_user};
    atomic_int code = 0;
    if (c->n > 0 && exec_is_done(c->set[0], step)) return FUSOR_OK;
    for (int64_t i = 0; i < c->n; i++) FU_TRY(exec_aim_kernel(c->set[i], e, step));
    for (uint32_t p = 0; p < IR_MAX_PHASES; p++) {
        int64_t tiles = 0;
        for (int64_t i = 0; i < c->n; i++) {
            const frame_step *s = &c->set[i]->step[step];
            bool has = (int)p < s->launch.n_phases && !(p == 0 && s->is_prepacked);
            c->runs[i] = (exec_phase){s, k->fn, c->scratch, c->scratch_stride, p, &code, NULL, 0};
            c->ends[i] = tiles += has ? s->launch.tiles[p] : 0;
        }
        joint j = {c->ends, c->runs, c->n};
        if (tiles) rt_parallel(c->n_threads[step], tiles, run_joint_tiles, &j, own.run ? &own : NULL);
    }
    return code ? FU_FAIL(e, FUSOR_ERROR_INTERNAL, "kernel %s returned %d", k->symbol, code) : FUSOR_OK;
}

/* An error names its set. */
static fusor_status of_set(fu_error *e, int64_t set, fusor_status status) {
    if (status != FUSOR_OK) fu_error_prefix(e, "set %lld: ", (long long)set);
    return status;
}

/* Step by step, one launch for all sets where there can be one; and one wait for all that the host gets. */
static fusor_status run_on_device(rt_each *c, fu_error *e) {
    const core *of = c->x->core;
    fusor_status s = FUSOR_OK;
    bool waits = false;
    int64_t begun = 0;
    for (; begun < c->n && s == FUSOR_OK; begun++) s = exec_device_begin_call(c->set[begun], e);
    for (int step = 0; step < of->n_steps && s == FUSOR_OK; step++) {
        const bool is_kernel = of->plan->steps.at[step].kind == IR_STEP_KERNEL;
        for (int64_t i = 0; i < c->n; i++) c->item[i] = (device_item){c->set[i], step};
        if (is_kernel && c->n > 1 && c->n <= INT32_MAX && ir_gpu_can_each(of->plan->steps.at[step].kernel))
            s = exec_device_run_as_one(of, e, &c->table[step], c->item, (int)c->n);
        else
            for (int64_t i = 0; i < c->n && s == FUSOR_OK; i++)
                s = of_set(e, i, exec_device_run_step(c->set[i], e, step));
    }
    for (int64_t i = begun - 1; i >= 0; i--) { /* backwards: the next call finds the pool's memory as this one did */
        bool one;
        s = exec_device_end_call(c->set[i], e, s, &one);
        waits |= one;
    }
    if (waits) {
        const fusor_status w = rt_queue_wait(c->x->core->options.queue, e); /* the first failure is what is told */
        if (s == FUSOR_OK) s = w;
    }
    for (int64_t i = 0; i < c->n && s == FUSOR_OK; i++) s = exec_device_hand_out(c->set[i], e);
    return s;
}

static fusor_status run_steps(rt_each *c, fu_error *e) {
    const core *of = c->x->core;
    for (int64_t i = 0; i < c->n; i++) exec_copy_in(c->set[i]);
    rt_profile *profile = exec_profile(of);
    for (int s = 0; s < of->n_steps; s++) {
        int64_t from = profile ? fu_now_ns() : 0;
        if (of->plan->steps.at[s].kind == IR_STEP_KERNEL) FU_TRY(run_joint(c, e, s));
        else
            for (int64_t i = 0; i < c->n; i++) FU_TRY(of_set(e, i, exec_run_step(c->set[i], e, s)));
        /* One launch serves all sets: its time is shared out evenly, so that the sums are right. */
        int64_t each = profile && c->n ? (fu_now_ns() - from) / c->n : 0;
        for (int64_t i = 0; profile && i < c->n; i++)
            exec_profile_step(c->set[i], profile, s, from + i * each, from + (i + 1) * each);
    }
    for (int64_t i = 0; i < c->n; i++) exec_copy_out(c->set[i]);
    return FUSOR_OK;
}

fusor_status rt_each_run(rt_each *c, fu_error *e) {
    const core *of = c->x->core;
    int64_t start = of->logs_run ? fu_now_ns() : 0;
    rt_fpenv environment;
    rt_fpenv_enter(&environment);
    const fusor_status status = of->device ? run_on_device(c, e) : run_steps(c, e);
    rt_fpenv_leave(&environment);
    if (status != FUSOR_OK) return status;
    if (of->logs_run)
        fu_log_event(of->options.log, "run", "%s,%lld,%d", of->plan->graph->name, (long long)(fu_now_ns() - start),
                     of->n_steps);
    return FUSOR_OK;
}

/* ---- checks between sets ---- */
typedef struct place {
    const call_end *end;
    const char *name;
    int64_t set;
    bool is_param, is_written;
} place;

static int by_address(const void *a, const void *b) {
    const char *x = ((const place *)a)->end->low, *y = ((const place *)b)->end->low;
    return x < y ? -1 : x > y;
}

/* Every input and output of every set that has bytes. An aliased output is its parameter. */
static size_t list_places(const rt_each *c, place *all) {
    const core *of = c->x->core;
    const ir_graph *g = of->plan->graph;
    size_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        for (int p = 0; p < of->n_params; p++) {
            const call_end *end = &c->set[i]->in[p];
            if (!c->x->bound[p] && end->low < end->high)
                all[n++] = (place){end, g->params.at[p].name, i, true, of->alias_of[p] >= 0};
        }
        for (int r = 0; r < of->n_results; r++) {
            const call_end *end = &c->set[i]->out[r];
            if (g->results.at[r].alias < 0 && end->low < end->high)
                all[n++] = (place){end, g->results.at[r].name, i, false, true};
        }
    }
    return n;
}

static fusor_status check_pair(const place *a, const place *b, fu_error *e) {
    if (a->set == b->set || (!a->is_written && !b->is_written) || !exec_ends_overlap(a->end, b->end)) return FUSOR_OK;
    if (!a->is_written) return check_pair(b, a, e);
    return FU_FAIL(
        e, FUSOR_ERROR_OVERLAP,
        "%s %%%s of set %lld overlaps %s %%%s of set %lld; the sets of one call must not share memory that is written",
        a->is_param ? "aliased parameter" : "output", a->name, (long long)a->set, b->is_param ? "parameter" : "output",
        b->name, (long long)b->set);
}

/* Sets run side by side, so what one writes no other may read or write. In order of first byte; a place is compared
 * with those before it only where one of them reaches so far: O(n log n) unless ranges interleave. */
static fusor_status check_sets_apart(const rt_each *c, fu_error *e) {
    size_t most = (size_t)c->n * (size_t)(c->x->core->n_params + c->x->core->n_results);
    place *all = fu_calloc(most + 1, sizeof *all);
    if (!all) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a call over %lld sets of buffers", (long long)c->n);
    size_t n = list_places(c, all);
    qsort(all, n, sizeof *all, by_address);
    fusor_status status = FUSOR_OK;
    const char *written_to = NULL, *used_to = NULL; /* how far what came so far reaches */
    for (size_t i = 0; i < n && status == FUSOR_OK; i++) {
        const place *a = &all[i];
        const char *reach = a->is_written ? used_to : written_to;
        for (size_t j = i; j-- > 0 && reach && a->end->low < reach && status == FUSOR_OK;)
            status = check_pair(a, &all[j], e);
        if (a->is_written && (!written_to || a->end->high > written_to)) written_to = a->end->high;
        if (!used_to || a->end->high > used_to) used_to = a->end->high;
    }
    fu_free(all);
    return status;
}

/* ---- life ---- */
void rt_each_free(rt_each *c) {
    if (!c) return;
    for (int64_t i = 0; i < c->n && c->set; i++) exec_frame_free(c->set[i]);
    rt_memory_put(&c->x->core->options, c->scratch, c->scratch_bytes);
    fu_free(c->set);
    fu_free(c->n_threads);
    fu_free(c->ends);
    fu_free(c->runs);
    for (int i = 0; c->table && i < c->x->core->n_steps; i++) exec_device_table_free(c->x->core, &c->table[i]);
    fu_free(c->table);
    fu_free(c->item);
    rt_exec_release(c->x);
    fu_free(c);
}

static fusor_status check_list(fu_error *e, const rt_buffers *list, const char *what, const char *name, int64_t n_sets,
                               bool may_be_one) {
    if (!list->at && n_sets) return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "the list of %s for %%%s is NULL", what, name);
    if (list->n != n_sets && (list->n != 1 || !may_be_one))
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%lld %s given for %%%s; expected %lld, one a set%s",
                       (long long)list->n, what, name, (long long)n_sets, may_be_one ? ", or 1 for all sets" : "");
    return FUSOR_OK;
}

static fusor_status check_lists(const rt_exec *x, fu_error *e, int64_t n_sets, int n_in, const rt_buffers *in,
                                int n_out, const rt_buffers *out) {
    const ir_graph *g = x->core->plan->graph;
    if (n_sets < 0) return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%lld sets of buffers given", (long long)n_sets);
    if (n_in != x->n_inputs || (n_in && !in))
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "@%s takes %d inputs; %d lists of buffers given%s", g->name,
                       x->n_inputs, n_in, n_in == x->n_inputs ? ", but their array is NULL" : "");
    if (n_out != x->core->n_results || (n_out && !out))
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "@%s gives %d results; %d lists of outputs given%s", g->name,
                       x->core->n_results, n_out, n_out == x->core->n_results ? ", but their array is NULL" : "");
    for (int i = 0; i < n_in; i++) {
        const int p = x->input_param[i];
        FU_TRY(check_list(e, &in[i], "buffers", g->params.at[p].name, n_sets, x->core->alias_of[p] < 0));
    }
    for (int r = 0; r < n_out; r++) FU_TRY(check_list(e, &out[r], "outputs", g->results.at[r].name, n_sets, false));
    return FUSOR_OK;
}

static fusor_status prepare_set(rt_each *c, fu_error *e, int64_t i, int n_in, const rt_buffers *in, int n_out,
                                const rt_buffers *out, fusor_buffer *row) {
    for (int k = 0; k < n_in; k++) row[k] = in[k].at[in[k].n == 1 ? 0 : i];
    for (int k = 0; k < n_out; k++) row[n_in + k] = out[k].at[i];
    FU_TRY(exec_frame_new(c->x, e, &c->set[i]));
    return exec_prepare(c->set[i], e, n_in, row, n_out, row + n_in);
}

static fusor_status plan_steps(rt_each *c, fu_error *e) {
    const core *of = c->x->core;
    int workers = 1;
    if (of->device) return FUSOR_OK;
    for (int s = 0; s < of->n_steps; s++) {
        int64_t work = 0;
        c->n_threads[s] = 1;
        if (of->plan->steps.at[s].kind != IR_STEP_KERNEL) continue;
        for (int64_t i = 0; i < c->n; i++) {
            const frame_step *f = &c->set[i]->step[s];
            if (__builtin_add_overflow(work, rt_tune_work(of->plan->steps.at[s].kernel, f->size), &work))
                work = INT64_MAX;
            if ((size_t)f->launch.scratch_bytes > c->scratch_stride)
                c->scratch_stride = (size_t)f->launch.scratch_bytes;
        }
        c->n_threads[s] = exec_team(&of->options, work);
        if (c->n_threads[s] > workers) workers = c->n_threads[s];
    }
    c->scratch_stride = (c->scratch_stride + 63) / 64 * 64;
    if (!c->scratch_stride) return FUSOR_OK;
    if (__builtin_mul_overflow(c->scratch_stride, (size_t)workers, &c->scratch_bytes) ||
        !(c->scratch = rt_memory_get(&of->options, c->scratch_bytes))) {
        c->scratch_bytes = 0;
        return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for the scratch of %d workers", workers);
    }
    return FUSOR_OK;
}

fusor_status rt_each_new(rt_exec *x, fu_error *e, int64_t n_sets, int n_in, const rt_buffers *in, int n_out,
                         const rt_buffers *out, rt_each **each_out) {
    FU_TRY(check_lists(x, e, n_sets, n_in, in, n_out, out));
    rt_each *c = fu_calloc(1, sizeof *c);
    if (!c) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a call over sets of buffers");
    c->x = rt_exec_keep(x);
    c->n = n_sets;
    c->set = fu_calloc((size_t)n_sets + 1, sizeof *c->set);
    c->ends = fu_calloc((size_t)n_sets + 1, sizeof *c->ends);
    c->runs = fu_calloc((size_t)n_sets + 1, sizeof *c->runs);
    c->n_threads = fu_calloc((size_t)x->core->n_steps + 1, sizeof *c->n_threads);
    c->item = fu_calloc((size_t)n_sets + 1, sizeof *c->item);
    c->table = fu_calloc((size_t)x->core->n_steps + 1, sizeof *c->table);
    fusor_buffer *row = fu_calloc((size_t)(n_in + n_out) + 1, sizeof *row);
    fusor_status s =
        c->set && c->ends && c->runs && c->n_threads && c->item && c->table && row
            ? FUSOR_OK
            : FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a call over %lld sets of buffers", (long long)n_sets);
    int64_t done = 0;
    for (; done < n_sets && s == FUSOR_OK; done++)
        s = of_set(e, done, prepare_set(c, e, done, n_in, in, n_out, out, row));
    fu_free(row);
    if (s == FUSOR_OK) s = check_sets_apart(c, e);
    if (s == FUSOR_OK) s = plan_steps(c, e);
    if (s != FUSOR_OK) {
        for (int64_t i = 0; i < done && c->set[i]; i++) exec_drop_outputs(c->set[i]);
        rt_each_free(c);
        return s;
    }
    for (int64_t i = 0; i < n_sets; i++)
        for (int r = 0; r < n_out; r++) out[r].at[i] = c->set[i]->out[r].user;
    *each_out = c;
    return FUSOR_OK;
}
