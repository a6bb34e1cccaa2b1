/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* exec.c: executables: life, bound parameters, calls. */
#include "rt/exec_device.h"
#include "rt/exec_internal.h"
#include "rt/buffer.h"

/* ---- the shared part ---- */
static void core_release(core *c) {
    if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) return;
    exec_device_stop(c);
    for (int i = 0; i < c->n_steps && c->info; i++) rt_kernel_release((rt_kernel *)c->info[i].kernel);
    fu_arena_free(&c->arena);
    fu_free(c->info);
    fu_free(c->profile_entry);
    fu_free(c->normalizes);
    fu_free(c->alias_of);
    fu_free(c);
}

static void bound_release(bound_param *b) {
    if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1) return;
    for (int i = 0; i < b->n_steps && b->packed; i++) exec_packed_free(&b->options, atomic_load(&b->packed[i]));
    rt_memory_put(&b->options, b->value.data, b->bytes);
    if (b->device_at) rt_queue_put(b->options.queue, b->device_at);
    fu_free(b->packed);
    fu_free(b);
}

/* ---- execs ---- */
static void exec_free(rt_exec *x) {
    for (int i = 0; i < SPARE_FRAMES; i++) exec_frame_free(atomic_load(&x->spare[i]));
    for (int p = 0; x->bound && p < x->core->n_params; p++) bound_release(x->bound[p]);
    core_release(x->core);
    fu_free(x->bound);
    fu_free(x->input_param);
    fu_free(x);
}

/* Takes over one reference of c, also on failure. bound: n_params entries to take references of, or NULL. */
static fusor_status exec_make(fu_error *e, core *c, bound_param *const *bound, rt_exec **out) {
    rt_exec *x = fu_calloc(1, sizeof *x);
    if (!x) {
        core_release(c);
        return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for an executable");
    }
    atomic_init(&x->refs, 1);
    x->core = c;
    x->bound = fu_calloc((size_t)c->n_params + 1, sizeof(bound_param *));
    x->input_param = fu_calloc((size_t)c->n_params + 1, sizeof *x->input_param);
    if (!x->bound || !x->input_param) {
        exec_free(x);
        return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for an executable");
    }
    for (int p = 0; p < c->n_params; p++) {
        x->bound[p] = bound ? bound[p] : NULL;
        if (x->bound[p]) atomic_fetch_add_explicit(&x->bound[p]->refs, 1, memory_order_relaxed);
        else x->input_param[x->n_inputs++] = p;
    }
    *out = x;
    return FUSOR_OK;
}

fusor_status rt_exec_new(fu_error *e, fu_arena *arena, ir_plan *plan, rt_cache *cache, const rt_exec_options *options,
                         rt_exec **out) {
    core *c = fu_calloc(1, sizeof *c);
    if (!c) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for an executable");
    atomic_init(&c->refs, 1);
    c->plan = plan;
    c->cache = cache;
    c->options = *options;
    if (c->options.n_threads < 1) c->options.n_threads = 1;
    c->n_params = (int)plan->graph->params.n;
    c->n_results = (int)plan->graph->results.n;
    c->n_steps = (int)plan->steps.n;
    c->n_buffers = (int)plan->buffers.n;
    while (c->first_part < c->n_buffers && plan->buffers.at[c->first_part].part_of < 0) c->first_part++;
    c->n_symbols = ir_size_symbol_count(plan->graph->sizes);
    c->logs_run = fu_log_on("run");
    c->info = fu_calloc((size_t)c->n_steps + 1, sizeof *c->info);
    c->profile_entry = fu_calloc((size_t)c->n_steps + 1, sizeof *c->profile_entry);
    c->normalizes = fu_calloc((size_t)c->n_params + 1, sizeof *c->normalizes);
    c->alias_of = fu_calloc((size_t)c->n_params + 1, sizeof *c->alias_of);
    fusor_status status = FUSOR_OK;
    if (!c->info || !c->normalizes || !c->alias_of || !c->profile_entry)
        status = FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for an executable");
    if (status == FUSOR_OK) status = exec_find_kernels(c, e);
    if (status == FUSOR_OK && c->options.queue && !c->options.is_layout_only) status = exec_device_start(c, e);
    if (status != FUSOR_OK) {
        core_release(c); /* its arena is empty still: the caller's stays whole */
        return status;
    }
    for (int p = 0; p < c->n_params; p++) c->alias_of[p] = -1;
    for (int r = 0; r < c->n_results; r++)
        if (plan->graph->results.at[r].alias >= 0) c->alias_of[plan->graph->results.at[r].alias] = r;
    for (int i = 0; i < c->n_steps; i++) {
        const ir_step *st = &plan->steps.at[i];
        if (st->kind == IR_STEP_KERNEL) continue;
        for (int a = 0; a < st->n_args; a++)
            if (st->arg[a] < c->n_params && plan->buffers.at[st->arg[a]].dtype == FUSOR_BOOL)
                c->normalizes[st->arg[a]] = true;
    }
    FU_TRY(exec_make(e, c, NULL, out));
    c->arena = *arena;
    c->arena.oom = NULL;
    plan->graph->arena = NULL; /* the caller's struct is left behind; nothing is added any more */
    plan->graph->error = NULL;
    *arena = (fu_arena){.oom = arena->oom};
    return FUSOR_OK;
}

rt_exec *rt_exec_keep(rt_exec *x) {
    atomic_fetch_add_explicit(&x->refs, 1, memory_order_relaxed);
    return x;
}

void rt_exec_release(rt_exec *x) {
    if (x && atomic_fetch_sub_explicit(&x->refs, 1, memory_order_acq_rel) == 1) exec_free(x);
}

/* ---- bound parameters ---- */
fusor_status exec_bind_host(const core *c, fu_error *e, bound_param *b, const fusor_buffer *value) {
    int64_t n = 1;
    for (int d = 0; d < value->rank; d++) n *= value->shape[d];
    b->value.data = rt_memory_get(&b->options, b->bytes);
    if (!b->value.data) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for %zu bytes", b->bytes);
    if (n && value->device) FU_TRY(exec_device_bring(c, e, value, b->value.data));
    else if (n) exec_gather(b->value.data, value, ir_dtypes[value->dtype].bytes);
    if (value->dtype == FUSOR_BOOL) exec_normalize_bool(b->value.data, n);
    return FUSOR_OK;
}

static fusor_status bind_one(rt_exec *x, fu_error *e, int param, const fusor_buffer *value) {
    core *c = x->core;
    const ir_param *p = &c->plan->graph->params.at[param];
    const ir_plan_buffer *want = &c->plan->buffers.at[param];
    call_end checked = {0};
    if (x->bound[param]) return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "bind: parameter %%%s is bound already", p->name);
    if (c->alias_of[param] >= 0)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "bind: parameter %%%s is overwritten by result %%%s", p->name,
                       c->plan->graph->results.at[c->alias_of[param]].name);
    FU_TRY(exec_check_input(c, e, param, value, true, &checked));
    if (!exec_measure(&checked))
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "bind: %%%s: its strides leave the address space", p->name);
    int64_t bytes = ir_dtypes[want->dtype].bytes;
    for (int d = 0; d < value->rank; d++) {
        int64_t known;
        if (ir_size_is_const(c->plan->graph->sizes, want->dim[d], &known) && known != value->shape[d])
            return FU_FAIL(e, FUSOR_ERROR_SHAPE, "bind: dim %d of %%%s is %lld; expected %lld", d, p->name,
                           (long long)value->shape[d], (long long)known);
    }
    bool is_empty = false;
    for (int d = 0; d < value->rank; d++) is_empty |= value->shape[d] == 0;
    for (int d = 0; d < value->rank && !is_empty; d++)
        if (__builtin_mul_overflow(bytes, value->shape[d], &bytes))
            return FU_FAIL(e, FUSOR_ERROR_SHAPE, "bind: the bytes of %%%s overflow 64 bits", p->name);
    bound_param *b = fu_calloc(1, sizeof *b);
    if (!b) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "bind: no memory");
    atomic_init(&b->refs, 1);
    b->options = c->options;
    b->bytes = is_empty ? 1 : (size_t)bytes;
    b->n_steps = c->n_steps;
    for (int q = 0; q < c->n_params; q++) b->order += x->bound[q] != NULL;
    b->value = *value;
    b->value.flags = b->value.device = 0;
    b->value.data = NULL;
    b->packed = fu_calloc((size_t)c->n_steps + 1, sizeof *b->packed);
    fusor_status status = !b->packed  ? FU_FAIL(e, FUSOR_ERROR_MEMORY, "bind: no memory")
                          : c->device ? exec_device_bind(c, e, param, b, &checked.user)
                                      : exec_bind_host(c, e, b, &checked.user);
    if (status != FUSOR_OK) {
        fu_error_prefix(e, "bind: %%%s: ", p->name);
        bound_release(b);
        return status;
    }
    x->bound[param] = b;
    return FUSOR_OK;
}

/* Sizes that two constants give must agree: else no call could ever be right. */
static fusor_status check_bound_sizes(const rt_exec *x, fu_error *e) {
    const ir_graph *g = x->core->plan->graph;
    for (int p = 0; p < x->core->n_params; p++)
        for (int q = 0; q < p && x->bound[p]; q++) {
            if (!x->bound[q]) continue;
            const ir_node *a = ir_at(g, g->params.at[p].node), *b = ir_at(g, g->params.at[q].node);
            for (int i = 0; i < a->rank; i++)
                for (int j = 0; j < b->rank; j++) {
                    uint32_t symbol;
                    int64_t given = x->bound[p]->value.shape[i], other = x->bound[q]->value.shape[j];
                    if (a->dim[i] != b->dim[j] || given == other || !ir_size_is_symbol(g->sizes, a->dim[i], &symbol))
                        continue;
                    return FU_FAIL(e, FUSOR_ERROR_SHAPE,
                                   "bind: dim %s is %lld in parameter %%%s but %lld in parameter %%%s",
                                   ir_size_symbol_name(g->sizes, symbol), (long long)other, g->params.at[q].name,
                                   (long long)given, g->params.at[p].name);
                }
        }
    return FUSOR_OK;
}

fusor_status rt_exec_bind(rt_exec *x, fu_error *e, int n, const int *param, const fusor_buffer *values, rt_exec **out) {
    core *c = x->core;
    rt_exec *made;
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    FU_TRY(exec_make(e, c, x->bound, &made));
    for (int i = 0; i < n; i++) {
        fusor_status s = param[i] < 0 || param[i] >= c->n_params
                             ? FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "bind: there is no parameter %d", param[i])
                             : bind_one(made, e, param[i], &values[i]);
        if (s != FUSOR_OK) {
            rt_exec_release(made);
            return s;
        }
    }
    fusor_status status = check_bound_sizes(made, e);
    if (status != FUSOR_OK) {
        rt_exec_release(made);
        return status;
    }
    made->n_inputs = 0;
    for (int p = 0; p < c->n_params; p++)
        if (!made->bound[p]) made->input_param[made->n_inputs++] = p;
    *out = made;
    return FUSOR_OK;
}

fusor_status rt_exec_bind_as(rt_exec *x, fu_error *e, const rt_exec *from, rt_exec **out) {
    const int room = from->core->n_params;
    int n = 0, *param = fu_malloc(((size_t)room + 1) * sizeof *param);
    fusor_buffer *value = fu_malloc(((size_t)room + 1) * sizeof *value);
    for (int p = 0; param && value && p < room; p++) {
        const bound_param *b = from->bound[p];
        if (!b) continue;
        param[n] = p;
        value[n] = b->value;
        if (!b->value.data) { /* on the device alone */
            value[n].data = (void *)(uintptr_t)b->device_at;
            value[n].device = from->core->device->number;
        }
        n++;
    }
    const fusor_status status =
        param && value ? rt_exec_bind(x, e, n, param, value, out) : FU_FAIL(e, FUSOR_ERROR_MEMORY, "bind: no memory");
    fu_free(param);
    fu_free(value);
    return status;
}

bool rt_exec_is_bound(const rt_exec *x, int param) {
    return param >= 0 && param < x->core->n_params && x->bound[param];
}

/* ---- frames: a few slots, taken and given by exchange; no lock that a fork could leave behind ---- */
static frame *take_spare(rt_exec *x) {
    for (int i = 0; i < SPARE_FRAMES; i++) {
        if (!atomic_load_explicit(&x->spare[i], memory_order_relaxed)) continue;
        frame *f = atomic_exchange_explicit(&x->spare[i], NULL, memory_order_acquire);
        if (f) return f;
    }
    return NULL;
}

static fusor_status take_frame(rt_exec *x, fu_error *e, frame **out) {
    frame *f = take_spare(x);
    return f ? (*out = f, FUSOR_OK) : exec_frame_new(x, e, out);
}

static void give_frame(rt_exec *x, frame *f) {
    for (int i = 0; i < SPARE_FRAMES; i++) {
        frame *empty = NULL;
        if (!atomic_load_explicit(&x->spare[i], memory_order_relaxed) &&
            atomic_compare_exchange_strong_explicit(&x->spare[i], &empty, f, memory_order_release,
                                                    memory_order_relaxed))
            return;
    }
    exec_frame_free(f);
}

/* ---- calls ---- */
/* Checks the inputs and evaluates sizes where shapes differ from those that were evaluated last. A shape that differs
 * says so at once: a later input may be refused. */
static fusor_status take_inputs(frame *f, fu_error *e, int n_in, const fusor_buffer *in, bool with_memory) {
    const rt_exec *x = f->x;
    const core *c = x->core;
    if (n_in != x->n_inputs || (n_in && !in))
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "@%s takes %d inputs; %d given%s", c->plan->graph->name, x->n_inputs,
                       n_in, n_in == x->n_inputs ? ", but their array is NULL" : "");
    for (int i = 0; i < n_in; i++) {
        int p = x->input_param[i];
        FU_TRY(exec_check_input(c, e, p, &in[i], with_memory, &f->in[p]));
        for (int d = 0; d < in[i].rank; d++)
            if (f->shape[p][d] != in[i].shape[d]) {
                f->is_evaluated = false;
                f->shape[p][d] = in[i].shape[d];
            }
    }
    return f->is_evaluated ? FUSOR_OK : exec_evaluate(f, e, with_memory);
}

fusor_status exec_prepare(frame *f, fu_error *e, int n_in, const fusor_buffer *in, int n_out, const fusor_buffer *out) {
    const core *c = f->x->core;
    if (n_out != c->n_results || (n_out && !out))
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "@%s gives %d results; %d outputs given%s", c->plan->graph->name,
                       c->n_results, n_out, n_out == c->n_results ? ", but their array is NULL" : "");
    f->again_is = AGAIN_UNKNOWN;
    FU_TRY(take_inputs(f, e, n_in, in, true));
    FU_TRY(exec_stage_inputs(f, e));
    return exec_prepare_outputs(f, e, out);
}

/* All that a call looks at: sizes and strides past the rank, and strides that do not count, may differ. */
static bool is_equal(const fusor_buffer *a, const fusor_buffer *b) {
    if (a->data != b->data || a->dtype != b->dtype || a->rank != b->rank || a->flags != b->flags ||
        a->device != b->device)
        return false;
    for (int d = 0; d < a->rank; d++)
        if (a->shape[d] != b->shape[d] || (a->flags & FUSOR_STRIDED && a->stride[d] != b->stride[d])) return false;
    return true;
}

/* A loop that calls with the same buffers again: what was checked then holds now. */
static bool is_last_call(const frame *f, int n_in, const fusor_buffer *in, int n_out, const fusor_buffer *out) {
    if (!f->has_last || n_in != f->x->n_inputs || n_out != f->x->core->n_results || (n_in && !in) || (n_out && !out))
        return false;
    for (int i = 0; i < n_in; i++)
        if (!is_equal(&f->last[i], &in[i])) return false;
    for (int r = 0; r < n_out; r++)
        if (!is_equal(&f->last[n_in + r], &out[r])) return false;
    return true;
}

static void note_call(frame *f, int n_in, const fusor_buffer *in, int n_out, const fusor_buffer *out) {
    f->has_last = n_out > 0;
    for (int r = 0; r < n_out; r++) f->has_last &= out[r].data != NULL;
    if (!f->has_last) return;
    if (n_in) memcpy(f->last, in, (size_t)n_in * sizeof *in);
    memcpy(f->last + n_in, out, (size_t)n_out * sizeof *out);
}

static fusor_status run(frame *f, fu_error *e) {
    const core *c = f->x->core;
    int64_t start = c->logs_run ? fu_now_ns() : 0;
    FU_TRY(exec_complete(f, e));
    if (c->logs_run)
        fu_log_event(c->options.log, "run", "%s,%lld,%d", c->plan->graph->name, (long long)(fu_now_ns() - start),
                     c->n_steps);
    return FUSOR_OK;
}

static fusor_status call_with(frame *f, fu_error *e, int n_in, const fusor_buffer *in, int n_out, fusor_buffer *out) {
    bool is_again = is_last_call(f, n_in, in, n_out, out);
    if (is_again && exec_again(f)) return FUSOR_OK;
    if (!is_again) {
        f->has_last = false;
        FU_TRY(exec_prepare(f, e, n_in, in, n_out, out));
        note_call(f, n_in, in, n_out, out);
    }
    fusor_status s = run(f, e);
    if (s != FUSOR_OK) {
        exec_drop_outputs(f);
        return s;
    }
    exec_give_outputs(f, out);
    if (is_again) exec_again_make(f);
    return FUSOR_OK;
}

fusor_status rt_exec_call(rt_exec *x, fu_error *e, int n_in, const fusor_buffer *in, int n_out, fusor_buffer *out) {
    frame *f;
    FU_TRY(take_frame(x, e, &f));
    fusor_status s = call_with(f, e, n_in, in, n_out, out);
    give_frame(x, f);
    return s;
}

fusor_status rt_exec_infer(rt_exec *x, fu_error *e, int n_in, const fusor_buffer *in, int n_out, fusor_buffer *out) {
    const core *c = x->core;
    frame *f;
    if (n_out != c->n_results || (n_out && !out))
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "@%s gives %d results; %d outputs given%s", c->plan->graph->name,
                       c->n_results, n_out, n_out == c->n_results ? ", but their array is NULL" : "");
    FU_TRY(take_frame(x, e, &f));
    f->has_last = false;
    fusor_status s = take_inputs(f, e, n_in, in, false);
    for (int r = 0; r < n_out && s == FUSOR_OK; r++) {
        void *data = out[r].data;
        exec_fill_shape(f, r, &out[r]);
        out[r].data = data;
    }
    give_frame(x, f);
    return s;
}

fusor_status rt_exec_symbols(rt_exec *x, fu_error *e, int n_in, const fusor_buffer *in, int64_t *values_out) {
    frame *f;
    FU_TRY(take_frame(x, e, &f));
    f->has_last = false;
    fusor_status s = take_inputs(f, e, n_in, in, false);
    if (s == FUSOR_OK && x->core->n_symbols) memcpy(values_out, f->symbols, x->core->n_symbols * sizeof *values_out);
    give_frame(x, f);
    return s;
}

const ir_plan *rt_exec_plan(const rt_exec *x) { return x->core->plan; }
int rt_exec_n_inputs(const rt_exec *x) { return x->n_inputs; }
const rt_step_info *rt_exec_step(const rt_exec *x, int step) { return &x->core->info[step]; }

/* ---- prepared calls ---- */
struct rt_call {
    rt_exec *x;
    frame *f;
};

fusor_status rt_call_new(rt_exec *x, fu_error *e, int n_in, const fusor_buffer *in, int n_out, fusor_buffer *out,
                         rt_call **call_out) {
    rt_call *c = fu_calloc(1, sizeof *c);
    if (!c) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a prepared call");
    fusor_status s = exec_frame_new(x, e, &c->f);
    if (s == FUSOR_OK) s = exec_prepare(c->f, e, n_in, in, n_out, out);
    if (s != FUSOR_OK) {
        exec_frame_free(c->f);
        fu_free(c);
        return s;
    }
    exec_give_outputs(c->f, out);
    c->x = rt_exec_keep(x);
    *call_out = c;
    return FUSOR_OK;
}

bool rt_call_again(const rt_call *c) { return exec_again(c->f); }
rt_again rt_call_single(const rt_call *c) { return exec_again_single(c->f); }

fusor_status rt_call_run(rt_call *c, fu_error *e) {
    FU_TRY(run(c->f, e));
    exec_again_make(c->f);
    return FUSOR_OK;
}

void rt_call_free(rt_call *c) {
    if (!c) return;
    exec_frame_free(c->f);
    rt_exec_release(c->x);
    fu_free(c);
}

int64_t rt_exec_peak_bytes(const rt_exec *x, const int64_t *symbol_values) {
    fu_error *e = fu_calloc(1, sizeof *e);
    frame *f = NULL;
    int64_t bytes = -1;
    if (e && exec_frame_new((rt_exec *)x, e, &f) == FUSOR_OK) bytes = exec_peak(f, e, symbol_values);
    exec_frame_free(f);
    fu_free(e);
    return bytes;
}
