/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* exec_scan.c: one program over the steps of a sequence, as a recurrent network makes: each step reads its part of the
 * inputs that have one, and the state that the step before left.
 *
 * Everything is checked once, over the whole sequence; a step then only moves addresses in one frame, so that it
 * allocates nothing, and bound weights are packed once. Where a state comes from and goes to:
 *
 *   stored for all steps, each dense   written where the caller wants it, and read there by the next step
 *   else                               two buffers in turn; copied to the caller's after each step, or after the last
 *   written over its parameter         the parameter's own memory, in every step
 *
 * On a device, what is elsewhere has a copy there for all steps: brought before the first, and handed back behind the
 * last. */
#include "rt/exec_device.h"
#include "rt/exec_internal.h"
#include "rt/buffer.h"

typedef struct scan_end {
    call_end whole;     /* all steps */
    call_end first;     /* inputs: of step 0, as prepared */
    int64_t step_bytes; /* from one step to the next; 0: the same for all */
    bool is_sequence;
} scan_end;

/* The way of one carried result. */
typedef struct carried {
    int param; /* that reads it; -1: it is not carried, or written over its parameter */
    bool is_direct;
    char *at[2];         /* the two buffers in turn */
    size_t bytes;        /* of each */
    fusor_buffer layout; /* of one step, contiguous */
} carried;

struct rt_scan {
    rt_exec *x;
    frame *f;
    int64_t n_steps;
    scan_end *in, *out;    /* by param, by result */
    int *source;           /* by param: the result that it carries on; -1 */
    carried *state;        /* by result */
    device_mirror *mirror; /* by param, then result; NULL on the CPU */
};

static const char *param_name(const core *c, int p) { return c->plan->graph->params.at[p].name; }
static const char *result_name(const core *c, int r) { return c->plan->graph->results.at[r].name; }
static int alias_of(const core *c, int r) { return c->plan->graph->results.at[r].alias; }

/* ---- running ---- */
static char *at_step(const scan_end *n, int64_t t) { return (char *)n->whole.user.data + t * n->step_bytes; }

static void aim_input(rt_scan *c, int p, int64_t t) {
    frame *f = c->f;
    call_end *n = &f->in[p];
    const carried *s = c->source[p] >= 0 ? &c->state[c->source[p]] : NULL;
    if (t == 0) {
        void *staging = n->staging;
        *n = c->in[p].first;
        n->staging = staging;
    } else if (s) {
        n->user = s->layout;
        n->user.data = s->is_direct ? at_step(&c->out[c->source[p]], t - 1) : s->at[(t - 1) & 1];
        n->is_device = exec_device_is_own(f->x->core, &n->user);
        n->is_dense = true;
        n->is_staged = f->x->core->normalizes[p] && !n->is_device;
    } else {
        n->user.data = at_step(&c->in[p], t);
    }
    exec_aim_end(f, p, n);
}

static void aim_output(rt_scan *c, int r, int64_t t) {
    frame *f = c->f;
    call_end *n = &f->out[r];
    const carried *s = &c->state[r];
    n->user.data = s->param >= 0 && !s->is_direct ? s->at[t & 1] : at_step(&c->out[r], t);
    exec_aim_end(f, f->x->core->n_params + r, n);
}

static fusor_status hand_out(rt_scan *c, fu_error *e, int r, int64_t t, const void *state) {
    fusor_buffer to = c->out[r].whole.user;
    if (c->out[r].is_sequence) {
        to.rank--;
        memmove(to.shape, to.shape + 1, (size_t)to.rank * sizeof *to.shape);
        memmove(to.stride, to.stride + 1, (size_t)to.rank * sizeof *to.stride);
        to.data = at_step(&c->out[r], t);
    }
    if (c->mirror) return exec_device_pack(c->x->core, e, &to, (rt_address)(uintptr_t)state, false);
    exec_scatter(&to, state, ir_dtypes[to.dtype].bytes);
    return FUSOR_OK;
}

/* Brings what is elsewhere, or hands it back. */
static fusor_status load_mirrors(rt_scan *c, fu_error *e) {
    for (int p = 0; c->mirror && p < c->x->core->n_params; p++)
        FU_TRY(exec_device_mirror_load(c->x->core, e, &c->mirror[p]));
    return FUSOR_OK;
}
static fusor_status store_mirrors(rt_scan *c, fu_error *e) {
    const core *of = c->x->core;
    for (int r = 0; c->mirror && r < of->n_results; r++) {
        const int alias = alias_of(of, r);
        if (alias >= 0 && c->n_steps == 0) continue; /* it is as it was, and may be read only */
        FU_TRY(exec_device_mirror_store(of, e, &c->mirror[alias >= 0 ? alias : of->n_params + r]));
    }
    return FUSOR_OK;
}

fusor_status rt_scan_run(rt_scan *c, fu_error *e) {
    const core *of = c->x->core;
    int64_t start = of->logs_run ? fu_now_ns() : 0;
    FU_TRY(load_mirrors(c, e));
    for (int64_t t = 0; t < c->n_steps; t++) {
        for (int p = 0; p < of->n_params; p++)
            if (!c->x->bound[p]) aim_input(c, p, t);
        for (int r = 0; r < of->n_results; r++) aim_output(c, r, t);
        FU_TRY(exec_complete(c->f, e));
        for (int r = 0; r < of->n_results; r++) {
            const carried *s = &c->state[r];
            if (s->param >= 0 && !s->is_direct && (c->out[r].is_sequence || t + 1 == c->n_steps))
                FU_TRY(hand_out(c, e, r, t, s->at[t & 1]));
        }
    }
    for (int r = 0; r < of->n_results && c->n_steps == 0; r++) { /* the last state is the first */
        const carried *s = &c->state[r];
        if (s->param < 0 || c->out[r].is_sequence) continue;
        const fusor_buffer *first = &c->in[s->param].whole.user;
        if (c->mirror) FU_TRY(exec_device_pack(of, e, first, (rt_address)(uintptr_t)s->at[0], true));
        else exec_gather(s->at[0], first, ir_dtypes[s->layout.dtype].bytes);
        if (!c->mirror && ir_is_bool(s->layout.dtype)) exec_normalize_bool((uint8_t *)s->at[0], (int64_t)s->bytes);
        FU_TRY(hand_out(c, e, r, 0, s->at[0]));
    }
    FU_TRY(store_mirrors(c, e));
    if (of->logs_run)
        fu_log_event(of->options.log, "run", "%s,%lld,%d", of->plan->graph->name, (long long)(fu_now_ns() - start),
                     of->n_steps);
    return FUSOR_OK;
}

/* ---- checks ---- */
/* The first step of a buffer that may have one more dim than `rank`. */
static fusor_status split(rt_scan *c, fu_error *e, const char *what, const char *name, const fusor_buffer *given,
                          int rank, scan_end *end, fusor_buffer *step) {
    *step = end->whole.user = *given;
    if (given->rank != rank + 1 || given->dtype <= 0 || given->dtype >= IR_DTYPE_COUNT)
        return FUSOR_OK; /* reported with the others */
    if (rank >= 8)
        return FU_FAIL(e, FUSOR_ERROR_SHAPE, "%s %%%s has 8 dims: there is none left for the steps of a sequence", what,
                       name);
    if (given->shape[0] != c->n_steps)
        return FU_FAIL(e, FUSOR_ERROR_SHAPE, "%s %%%s has %lld steps along dim 0; expected %lld", what, name,
                       (long long)given->shape[0], (long long)c->n_steps);
    end->is_sequence = true;
    if (!exec_measure(&end->whole))
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%s %%%s: its strides leave the address space", what, name);
    *step = end->whole.user;
    step->flags |= FUSOR_STRIDED;
    step->rank--;
    memmove(step->shape, step->shape + 1, (size_t)step->rank * sizeof *step->shape);
    memmove(step->stride, step->stride + 1, (size_t)step->rank * sizeof *step->stride);
    end->step_bytes = end->whole.user.stride[0] * (int64_t)ir_dtypes[given->dtype].bytes;
    return FUSOR_OK;
}

static fusor_status check_carries(rt_scan *c, fu_error *e, int n, const rt_carry *carry) {
    const core *of = c->x->core;
    for (int i = 0; i < n; i++) {
        int in = carry[i].input, r = carry[i].output;
        if (in < 0 || in >= c->x->n_inputs || r < 0 || r >= of->n_results)
            return FU_FAIL(e, FUSOR_ERROR_ARGUMENT,
                           "state %d goes from output %d to input %d; @%s has %d results and %d inputs", i, r, in,
                           of->plan->graph->name, of->n_results, c->x->n_inputs);
        int p = c->x->input_param[in];
        if (c->source[p] >= 0)
            return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "state %d: input %%%s is given a state twice", i,
                           param_name(of, p));
        if (alias_of(of, r) == p) continue; /* carries itself */
        if (alias_of(of, r) >= 0 || of->alias_of[p] >= 0)
            return FU_FAIL(e, FUSOR_ERROR_ARGUMENT,
                           "state %d: %%%s is written over %%%s, and that is all it is carried to", i,
                           result_name(of, alias_of(of, r) >= 0 ? r : of->alias_of[p]),
                           param_name(of, alias_of(of, r) >= 0 ? alias_of(of, r) : p));
        c->source[p] = r;
        c->state[r].param = p;
    }
    return FUSOR_OK;
}

/* A state is what the step before made of it: of one type and shape. */
static fusor_status check_states(rt_scan *c, fu_error *e, const fusor_buffer *in, const fusor_buffer *result) {
    const core *of = c->x->core;
    for (int i = 0; i < c->x->n_inputs; i++) {
        int p = c->x->input_param[i], r = c->source[p];
        if (r < 0) continue;
        const fusor_buffer *y = &result[r];
        if (c->in[p].is_sequence)
            return FU_FAIL(e, FUSOR_ERROR_SHAPE, "input %%%s is a state: its first value is expected, of rank %d",
                           param_name(of, p), y->rank);
        if (in[i].dtype != y->dtype)
            return FU_FAIL(e, FUSOR_ERROR_TYPE, "state %%%s is %s, but %%%s, which the next step reads as it, is %s",
                           param_name(of, p), ir_dtypes[in[i].dtype].name, result_name(of, r),
                           ir_dtypes[y->dtype].name);
        bool same = in[i].rank == y->rank;
        int d = 0;
        while (same && d < y->rank && in[i].shape[d] == y->shape[d]) d++;
        if (!same || d < y->rank)
            return FU_FAIL(e, FUSOR_ERROR_SHAPE, "state %%%s and %%%s, which the next step reads as it, differ in %s%d",
                           param_name(of, p), result_name(of, r), same ? "dim " : "rank, from rank ",
                           same ? d : in[i].rank);
    }
    return FUSOR_OK;
}

/* What any step writes, no step reads or writes as something else. The last value of a state may replace the first. */
static fusor_status check_apart(rt_scan *c, fu_error *e) {
    const core *of = c->x->core;
    for (int p = 0; p < of->n_params; p++)
        if (!c->x->bound[p] && !exec_measure(&c->in[p].whole))
            return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "input %%%s: its strides leave the address space",
                           param_name(of, p));
    for (int r = 0; r < of->n_results; r++) {
        call_end *n = &c->out[r].whole;
        const int alias = alias_of(of, r);
        if (alias >= 0) *n = c->in[alias].whole;
        if (!exec_measure(n))
            return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "output %%%s: its strides leave the address space",
                           result_name(of, r));
        if (exec_overlaps_itself(n))
            return FU_FAIL(e, FUSOR_ERROR_OVERLAP, "output %%%s overlaps itself: two of its elements share memory",
                           result_name(of, r));
        for (int p = 0; p < of->n_params; p++) {
            bool replaces = c->state[r].param == p && !c->out[r].is_sequence;
            if (!c->x->bound[p] && p != alias && !replaces && exec_ends_overlap(n, &c->in[p].whole))
                return FU_FAIL(e, FUSOR_ERROR_OVERLAP, "output %%%s overlaps input %%%s", result_name(of, r),
                               param_name(of, p));
        }
        for (int q = 0; q < r; q++)
            if (exec_ends_overlap(n, &c->out[q].whole))
                return FU_FAIL(e, FUSOR_ERROR_OVERLAP, "output %%%s overlaps output %%%s", result_name(of, r),
                               result_name(of, q));
    }
    return FUSOR_OK;
}

/* ---- memory ---- */
/* Memory of an output that was given none: all its steps. */
static fusor_status make_output(rt_scan *c, fu_error *e, int r, const fusor_buffer *result, int32_t device) {
    const core *of = c->x->core;
    call_end *n = &c->out[r].whole;
    int64_t bytes = ir_dtypes[result->dtype].bytes, all;
    if (result->rank >= 8)
        return FU_FAIL(e, FUSOR_ERROR_SHAPE, "result %%%s has 8 dims: there is none left for the steps of a sequence",
                       result_name(of, r));
    for (int d = 0; d < result->rank; d++) bytes *= result->shape[d]; /* fits: the frame's sizes were evaluated */
    if (__builtin_mul_overflow(bytes, c->n_steps, &all) || all > INT64_MAX / 4)
        return FU_FAIL(e, FUSOR_ERROR_SHAPE, "the bytes of %lld steps of %%%s overflow 64 bits", (long long)c->n_steps,
                       result_name(of, r));
    n->user = *result;
    n->user.flags = 0;
    n->user.rank++;
    memmove(n->user.shape + 1, result->shape, (size_t)result->rank * sizeof *result->shape);
    n->user.shape[0] = c->n_steps;
    n->user.device = of->device ? device : 0;
    n->user.data = exec_output_get(of, e, &n->user, result_name(of, r), all);
    if (!n->user.data) return e->status;
    n->is_new = true;
    return FUSOR_OK;
}

static fusor_status make_state(rt_scan *c, fu_error *e, int r, const fusor_buffer *result, const fusor_buffer *step) {
    const core *of = c->x->core;
    carried *s = &c->state[r];
    call_end one = {.user = *step};
    size_t bytes = ir_dtypes[result->dtype].bytes;
    for (int d = 0; d < result->rank; d++) bytes *= (size_t)result->shape[d];
    s->layout = *result;
    s->layout.flags = 0;
    (void)exec_measure(&one);
    s->is_direct = c->out[r].is_sequence && one.is_dense;
    if (of->device) s->layout.device = of->device->number;
    if (s->is_direct) return FUSOR_OK;
    s->bytes = bytes ? bytes : 1;
    for (int i = 0; i < 2 && of->device; i++) {
        rt_address at;
        FU_TRY(rt_queue_get(of->options.queue, e, s->bytes, &at));
        s->at[i] = (char *)(uintptr_t)at;
    }
    for (int i = 0; i < 2 && !of->device; i++)
        if (!(s->at[i] = rt_memory_get(&of->options, s->bytes)))
            return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for the state %%%s, %zu bytes", result_name(of, r),
                           s->bytes);
    return FUSOR_OK;
}

/* ---- life ---- */
void rt_scan_free(rt_scan *c) {
    if (!c) return;
    const core *of = c->x->core;
    exec_frame_free(c->f);
    for (int r = 0; c->state && r < of->n_results; r++)
        for (int i = 0; i < 2; i++) {
            if (of->device) rt_queue_put(of->options.queue, (rt_address)(uintptr_t)c->state[r].at[i]);
            else rt_memory_put(&of->options, c->state[r].at[i], c->state[r].bytes);
        }
    for (int i = 0; c->mirror && i < of->n_params + of->n_results; i++) exec_device_mirror_drop(of, &c->mirror[i]);
    fu_free(c->mirror);
    fu_free(c->in);
    fu_free(c->out);
    fu_free(c->source);
    fu_free(c->state);
    rt_exec_release(c->x);
    fu_free(c);
}

/* Gives what is not on the queue's device a copy there, in the place of it from here on; step: of step 0. */
static fusor_status mirror_end(rt_scan *c, fu_error *e, scan_end *end, device_mirror *mirror, fusor_buffer *step) {
    const core *of = c->x->core;
    if (exec_device_is_own(of, &end->whole.user)) return FUSOR_OK;
    FU_TRY(exec_device_mirror(of, e, &end->whole.user, mirror));
    end->whole.user = mirror->copy;
    (void)exec_measure(&end->whole);
    if (end->is_sequence) end->step_bytes = end->whole.user.stride[0] * (int64_t)ir_dtypes[mirror->copy.dtype].bytes;
    *step = end->whole.user;
    if (!end->is_sequence) return FUSOR_OK;
    step->rank--;
    memmove(step->shape, step->shape + 1, (size_t)step->rank * sizeof *step->shape);
    return FUSOR_OK;
}

static fusor_status mirror_ends(rt_scan *c, fu_error *e, fusor_buffer *row, fusor_buffer *to) {
    const core *of = c->x->core;
    c->mirror = fu_calloc((size_t)(of->n_params + of->n_results) + 1, sizeof *c->mirror);
    if (!c->mirror) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a call over a sequence");
    for (int i = 0; i < c->x->n_inputs; i++) {
        const int p = c->x->input_param[i];
        FU_TRY(mirror_end(c, e, &c->in[p], &c->mirror[p], &row[i]));
    }
    for (int r = 0; r < of->n_results; r++) {
        fusor_buffer step;
        if (alias_of(of, r) >= 0) {
            c->out[r].whole = c->in[alias_of(of, r)].whole;
            c->out[r].step_bytes = c->in[alias_of(of, r)].step_bytes;
            continue;
        }
        step = to[r];
        FU_TRY(mirror_end(c, e, &c->out[r], &c->mirror[of->n_params + r], &step));
        if (c->state[r].param < 0 || c->state[r].is_direct) to[r] = step;
    }
    return FUSOR_OK;
}

/* Checks everything and aims the frame at step 0; row: room for the inputs and outputs of one step, then for the
 * results. */
static fusor_status prepare(rt_scan *c, fu_error *e, int n_carries, const rt_carry *carries, const fusor_buffer *in,
                            fusor_buffer *out, fusor_buffer *row) {
    const core *of = c->x->core;
    const ir_plan_buffer *want = of->plan->buffers.at;
    const int n_in = c->x->n_inputs, n_out = of->n_results;
    fusor_buffer *to = row + n_in, *result = to + n_out;
    FU_TRY(check_carries(c, e, n_carries, carries));
    for (int i = 0; i < n_in; i++) {
        int p = c->x->input_param[i];
        FU_TRY(split(c, e, "input", param_name(of, p), &in[i], want[p].rank, &c->in[p], &row[i]));
        /* Before a device's copy takes its place. With 0 steps nothing below looks at it. */
        call_end unused = {0};
        FU_TRY(exec_check_input(of, e, p, &row[i], c->n_steps || !c->in[p].is_sequence, &unused));
    }
    FU_TRY(rt_exec_infer(c->x, e, n_in, row, n_out, result));
    FU_TRY(check_states(c, e, row, result));
    for (int r = 0; r < n_out; r++) {
        to[r] = (fusor_buffer){0};
        if (alias_of(of, r) >= 0) { /* the parameter's memory */
            const int p = alias_of(of, r);
            if (out[r].data && out[r].data != c->in[p].whole.user.data)
                return FU_FAIL(e, FUSOR_ERROR_ARGUMENT,
                               "output %%%s is written over %%%s: its buffer must have that input's data, or no data",
                               result_name(of, r), param_name(of, p));
            c->out[r].is_sequence = c->in[p].is_sequence;
            c->out[r].step_bytes = c->in[p].step_bytes;
            continue;
        }
        if (!out[r].data) FU_TRY(make_output(c, e, r, &result[r], out[r].device));
        const fusor_buffer given = out[r].data ? out[r] : c->out[r].whole.user;
        if (given.dtype != result[r].dtype)
            return FU_FAIL(e, FUSOR_ERROR_TYPE, "output %%%s is given as another type; the result is %s",
                           result_name(of, r), ir_dtypes[result[r].dtype].name);
        if (given.rank != result[r].rank && given.rank != result[r].rank + 1)
            return FU_FAIL(e, FUSOR_ERROR_SHAPE,
                           "output %%%s has %d dims; expected %d, or one of %lld steps before them", result_name(of, r),
                           given.rank, result[r].rank, (long long)c->n_steps);
        FU_TRY(split(c, e, "output", result_name(of, r), &given, result[r].rank, &c->out[r], &to[r]));
        FU_TRY(exec_check_place(of, e, r, &given));
        if (c->state[r].param < 0) continue;
        FU_TRY(make_state(c, e, r, &result[r], &to[r]));
        if (c->state[r].is_direct) continue;
        bool same = to[r].rank == result[r].rank;
        for (int d = 0; d < result[r].rank; d++) same = same && to[r].shape[d] == result[r].shape[d];
        if (!same)
            return FU_FAIL(e, FUSOR_ERROR_SHAPE,
                           "output %%%s is not of the result's shape, with or without a dim of %lld steps before it",
                           result_name(of, r), (long long)c->n_steps);
        to[r] = c->state[r].layout;
        to[r].data = c->state[r].at[0];
    }
    FU_TRY(check_apart(c, e));
    if (of->device) FU_TRY(mirror_ends(c, e, row, to));
    if (c->n_steps == 0) {
        for (int r = 0; r < n_out; r++)
            if (!c->out[r].is_sequence && c->state[r].param < 0 && alias_of(of, r) < 0)
                return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "there are 0 steps, and the last value of %%%s is asked for",
                               result_name(of, r));
        return FUSOR_OK;
    }
    FU_TRY(exec_prepare(c->f, e, n_in, row, n_out, to));
    for (int p = 0; p < of->n_params; p++) c->in[p].first = c->f->in[p];
    return FUSOR_OK;
}

/* The whole of a result as the caller has it, or gets it. */
static fusor_buffer whole_of(const rt_scan *c, int r) {
    const core *of = c->x->core;
    const int i = alias_of(of, r) >= 0 ? alias_of(of, r) : of->n_params + r;
    return c->mirror && c->mirror[i].copy.data ? c->mirror[i].user : c->out[r].whole.user;
}

fusor_status rt_scan_new(rt_exec *x, fu_error *e, int64_t n_steps, int n_carries, const rt_carry *carries, int n_in,
                         const fusor_buffer *in, int n_out, fusor_buffer *out, rt_scan **scan_out) {
    const core *of = x->core;
    const char *name = of->plan->graph->name;
    if (n_steps < 0) return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%lld steps given", (long long)n_steps);
    if (n_carries < 0 || (n_carries && !carries))
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%d states given%s", n_carries,
                       n_carries < 0 ? "" : ", and no list of them");
    if (n_in != x->n_inputs || (n_in && !in))
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "@%s takes %d inputs; %d given%s", name, x->n_inputs, n_in,
                       n_in == x->n_inputs ? ", but their array is NULL" : "");
    if (n_out != of->n_results || (n_out && !out))
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "@%s gives %d results; %d outputs given%s", name, of->n_results, n_out,
                       n_out == of->n_results ? ", but their array is NULL" : "");
    rt_scan *c = fu_calloc(1, sizeof *c);
    if (!c) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a call over a sequence");
    c->x = rt_exec_keep(x);
    c->n_steps = n_steps;
    c->in = fu_calloc((size_t)of->n_params + 1, sizeof *c->in);
    c->out = fu_calloc((size_t)n_out + 1, sizeof *c->out);
    c->source = fu_calloc((size_t)of->n_params + 1, sizeof *c->source);
    c->state = fu_calloc((size_t)n_out + 1, sizeof *c->state);
    fusor_buffer *row = fu_calloc((size_t)(n_in + 2 * n_out) + 1, sizeof *row);
    fusor_status s = c->in && c->out && c->source && c->state && row
                         ? exec_frame_new(x, e, &c->f)
                         : FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a call over a sequence");
    if (s == FUSOR_OK) {
        for (int p = 0; p < of->n_params; p++) c->source[p] = -1;
        for (int r = 0; r < n_out; r++) c->state[r].param = -1;
        s = prepare(c, e, n_carries, carries, in, out, row);
    }
    fu_free(row);
    if (s != FUSOR_OK) {
        for (int r = 0; c->out && r < n_out; r++)
            if (c->out[r].whole.is_new) rt_buffer_release(&of->options, whole_of(c, r).data);
        rt_scan_free(c);
        return s;
    }
    for (int r = 0; r < n_out; r++)
        if (!out[r].data) out[r] = whole_of(c, r);
    *scan_out = c;
    return FUSOR_OK;
}
