/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* exec_frame.c: what one call needs. Sizes are evaluated when shapes change; memory is laid out once for them; running
 * is then a walk over the steps. */
#include "rt/exec_device.h"
#include "rt/exec_internal.h"
#include "rt/probes.h"
#include "rt/buffer.h"
#include "rt/threads.h"
#include "rt/tune.h"

enum { ALIGN = 64, DEVICE_ALIGN = 256 }; /* what neighbouring threads of a GPU load then lies in the fewest pieces */

static bool is_for_gpu(const frame *f) { return ir_level_is_gpu(f->x->core->plan->options.level); }
static int64_t align_up(const frame *f, int64_t n) {
    const int64_t to = is_for_gpu(f) ? DEVICE_ALIGN : ALIGN;
    return (n + to - 1) / to * to;
}

/* ---- life ---- */
static void allocate_steps(frame *f) {
    const ir_plan *plan = f->x->core->plan;
    f->step = FU_NEW_N(&f->arena, frame_step, plan->steps.n + 1);
    for (uint32_t i = 0; i < plan->steps.n; i++) {
        const ir_step *st = &plan->steps.at[i];
        frame_step *s = &f->step[i];
        if (st->kind == IR_STEP_REFERENCE) s->tensor = FU_NEW_N(&f->arena, rt_tensor, st->n_args + 1);
        if (st->kind != IR_STEP_KERNEL) continue;
        const ir_kernel *k = st->kernel;
        s->buffer = FU_NEW_N(&f->arena, void *, k->n_buffers + 1);
        s->offset_bytes = FU_NEW_N(&f->arena, int64_t, k->n_buffers + 1);
        s->size = FU_NEW_N(&f->arena, int64_t, k->n_dims + 1);
        s->stride = FU_NEW_N(&f->arena, int64_t, k->n_buffers * k->n_dims + 1);
        s->scalar = FU_NEW_N(&f->arena, uint64_t, k->n_scalars + 1);
        s->args.version = IR_KERNEL_ABI;
        s->args.buffer = s->buffer;
        s->args.size = s->size;
        s->args.stride = s->stride;
        s->args.scalar = s->scalar;
    }
}

static void allocate(frame *f) {
    const core *c = f->x->core;
    f->shape = fu_alloc_n(&f->arena, (size_t)c->n_params + 1, sizeof *f->shape);
    f->shapes = fu_alloc_n(&f->arena, (size_t)c->n_params + 1, sizeof *f->shapes);
    f->symbols = FU_NEW_N(&f->arena, int64_t, c->n_symbols + 1);
    f->dim = fu_alloc_n(&f->arena, (size_t)c->n_buffers + 1, sizeof *f->dim);
    f->count = FU_NEW_N(&f->arena, int64_t, c->n_buffers + 1);
    f->bytes = FU_NEW_N(&f->arena, int64_t, c->n_buffers + 1);
    f->temp_at = FU_NEW_N(&f->arena, int64_t, c->n_buffers + 1);
    f->part_at = FU_NEW_N(&f->arena, int64_t, c->n_buffers + 1);
    f->base = FU_NEW_N(&f->arena, void *, c->n_buffers + 1);
    f->in = FU_NEW_N(&f->arena, call_end, c->n_params + 1);
    f->out = FU_NEW_N(&f->arena, call_end, c->n_results + 1);
    f->last = FU_NEW_N(&f->arena, fusor_buffer, c->n_params + c->n_results + 1);
    f->again = FU_NEW_N(&f->arena, again_launch, IR_MAX_PHASES * c->n_steps + 1);
    f->profile = c->options.profile;
    allocate_steps(f);
    for (int p = 0; p < c->n_params; p++) {
        f->shapes[p] = f->shape[p];
        if (!f->x->bound[p]) continue;
        f->in[p].user = f->x->bound[p]->value;
        memcpy(f->shape[p], f->in[p].user.shape, sizeof f->shape[p]);
        f->base[p] = f->x->core->device ? (void *)(uintptr_t)f->x->bound[p]->device_at : f->in[p].user.data;
    }
    if (c->device) f->device = exec_device_frame(f);
}

fusor_status exec_frame_new(rt_exec *x, fu_error *e, frame **out) {
    frame *f = fu_calloc(1, sizeof *f);
    if (!f) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a call");
    jmp_buf oom;
    f->x = x;
    fu_arena_init(&f->arena, &oom);
    if (setjmp(oom)) {
        fu_arena_free(&f->arena);
        fu_free(f);
        return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a call");
    }
    allocate(f);
    f->arena.oom = NULL; /* nothing is added to it from here on */
    *out = f;
    return FUSOR_OK;
}

void exec_frame_free(frame *f) {
    if (!f) return;
    const core *c = f->x->core;
    for (int p = 0; p < c->n_params; p++) rt_memory_put(&c->options, f->in[p].staging, f->in[p].staging_bytes);
    for (int r = 0; r < c->n_results; r++) rt_memory_put(&c->options, f->out[r].staging, f->out[r].staging_bytes);
    rt_memory_put(&c->options, f->memory, f->memory_bytes);
    if (f->device) exec_device_frame_free(f);
    fu_arena_free(&f->arena);
    fu_free(f);
}

/* ---- evaluation ---- */
fusor_status exec_size(const frame *f, fu_error *e, ir_size s, int64_t *out) {
    const ir_sizes *sizes = f->x->core->plan->graph->sizes;
    switch (ir_size_eval(sizes, s, f->symbols, out)) {
    case IR_SIZE_OK: return FUSOR_OK;
    case IR_SIZE_ZERO_DIVISION:
        return FU_FAIL(e, FUSOR_ERROR_SHAPE, "a size of the plan divides by zero for these inputs");
    case IR_SIZE_OVERFLOW: break;
    }
    return FU_FAIL(e, FUSOR_ERROR_SHAPE, "a size of the plan overflows 64 bits for these inputs");
}

/* A team is measured where that decides. */
int exec_team(const rt_exec_options *o, int64_t work) {
    const int most = rt_tune_team(work, o->n_threads, RT_FORK_LEAST_NS);
    if (most == 1 || o->parallel_for) return most;
    if (rt_tune_team(work, o->n_threads, RT_FORK_MOST_NS) > 1) return most;
    return rt_tune_team(work, o->n_threads, rt_fork_ns(o->n_threads));
}

static fusor_status evaluate_buffers(frame *f, fu_error *e) {
    const ir_plan *plan = f->x->core->plan;
    for (uint32_t i = 0; i < plan->buffers.n; i++) {
        const ir_plan_buffer *b = &plan->buffers.at[i];
        int64_t n = ir_dtypes[b->dtype].bytes;
        bool is_empty = false;
        for (int d = 0; d < b->rank; d++) {
            FU_TRY(exec_size(f, e, b->dim[d], &f->dim[i][d]));
            if (f->dim[i][d] < 0)
                return FU_FAIL(e, FUSOR_ERROR_SHAPE, "a size of the plan is negative for these inputs");
            is_empty |= f->dim[i][d] == 0;
        }
        for (int d = 0; d < b->rank && !is_empty; d++)
            if (__builtin_mul_overflow(n, f->dim[i][d], &n))
                return FU_FAIL(e, FUSOR_ERROR_SHAPE, "the bytes of a tensor overflow 64 bits for these inputs");
        if (n > INT64_MAX / 4)
            return FU_FAIL(e, FUSOR_ERROR_SHAPE, "the bytes of a tensor overflow 64 bits for these inputs");
        f->bytes[i] = is_empty ? 0 : n;
        f->count[i] = f->bytes[i] / ir_dtypes[b->dtype].bytes;
        if (b->part_of < 0) continue;
        FU_TRY(exec_size(f, e, b->part_at, &f->part_at[i]));
        f->part_at[i] *= ir_dtypes[b->dtype].bytes;
    }
    return FUSOR_OK;
}

static uint64_t size_as(ir_dtype t, int64_t v) {
    bool fits;
    return ir_is_float(t) ? ir_bits_from_double(t, (double)v, &fits) : ir_bits_from_int(t, v, &fits);
}

/* Who keeps what a step packed: of the parameters that it is made of the one that was bound last, so that whoever has
 * that one has the same others. NULL: one is not bound. */
static bound_param *keeper(const frame *f, const ir_step *st) {
    if (st->prepack_param < 0) return NULL;
    bound_param *last = f->x->bound[st->prepack_param];
    for (int i = 0; i < st->n_sources && last; i++) {
        bound_param *b = f->x->bound[st->sources[i]];
        if (!b || b->order > last->order) last = b;
    }
    return last;
}

bool exec_is_done(const frame *f, int number) {
    const ir_plan *plan = f->x->core->plan;
    const ir_step *st = &plan->steps.at[number];
    for (uint32_t i = 0; i < st->serves.n; i++) {
        const int k = st->serves.at[i];
        if (!f->step[k].is_prepacked ||
            !atomic_load_explicit(&keeper(f, &plan->steps.at[k])->packed[k], memory_order_acquire))
            return false;
    }
    return st->serves.n > 0;
}

static fusor_status evaluate_kernel(frame *f, fu_error *e, int number) {
    const core *c = f->x->core;
    const ir_step *st = &c->plan->steps.at[number];
    const ir_kernel *k = st->kernel;
    frame_step *s = &f->step[number];
    for (int d = 0; d < k->n_dims; d++) FU_TRY(exec_size(f, e, st->dim[d], &s->size[d]));
    if (!ir_kernel_is_countable(k, s->size))
        return FU_FAIL(e, FUSOR_ERROR_SHAPE, "a kernel would have more than 2^52 steps for these inputs");
    for (int b = 0; b < k->n_buffers; b++) {
        FU_TRY(exec_size(f, e, st->offset[b], &s->offset_bytes[b]));
        s->offset_bytes[b] *= ir_dtypes[k->buffer[b].dtype].bytes;
        for (int d = 0; d < k->n_dims; d++)
            FU_TRY(exec_size(f, e, st->stride[b * k->n_dims + d], &s->stride[b * k->n_dims + d]));
    }
    for (int i = 0; i < k->n_scalars; i++) {
        const ir_plan_scalar *scalar = &st->scalar[i];
        int64_t v;
        s->scalar[i] = scalar->bits;
        if (scalar->kind != IR_SCALAR_SIZE) continue;
        FU_TRY(exec_size(f, e, scalar->size, &v));
        s->scalar[i] = size_as(scalar->dtype, v);
    }
    if (is_for_gpu(f)) {
        ir_gpu_plan(k, s->size, &s->gpu);
        return FUSOR_OK;
    }
    s->n_threads = c->options.n_threads > 1 ? exec_team(&c->options, rt_tune_work(k, s->size)) : 1;
    rt_tune(k, s->size, s->stride, s->n_threads, s->args.tune);
    s->may_stream = k->kind == IR_KERNEL_MAP && s->args.tune[IR_TUNE_MAP_STREAM];
    s->is_prepacked = keeper(f, st) != NULL;
    if (s->is_prepacked && k->kind == IR_KERNEL_CONTRACT) s->args.tune[IR_TUNE_CONTRACT_B] = IR_CONTRACT_B_PACKED;
    ir_kernel_launch(k, s->size, s->args.tune, &s->launch);
    if (s->launch.tiles[0] == 0) s->is_prepacked = false;
    return FUSOR_OK;
}

/* Shapes are those of the values: a buffer may have that of a reshape of them, a result. */
static fusor_status evaluate_reference(frame *f, fu_error *e, int number) {
    const ir_plan *plan = f->x->core->plan;
    const ir_step *st = &plan->steps.at[number];
    const ir_node *node = ir_at(plan->graph, st->node);
    for (int a = 0; a < st->n_args; a++) {
        const ir_node *n = a < node->n_in ? ir_at(plan->graph, node->in[a]) : node;
        rt_tensor *t = &f->step[number].tensor[a];
        t->dtype = n->dtype;
        t->rank = n->rank;
        for (int d = 0; d < n->rank; d++) FU_TRY(exec_size(f, e, n->dim[d], &t->shape[d]));
    }
    return FUSOR_OK;
}

/* ---- memory: temps by lifetime, then literals, shared memory of one kernel at a time, scratch of each worker ---- */
static bool is_temp(const ir_plan_buffer *b) {
    return b->storage == IR_STORE_TEMP && b->first_step >= 0 && b->part_of < 0;
}

int exec_whole(const frame *f, int b, int64_t *at) {
    const ir_plan *plan = f->x->core->plan;
    for (*at = 0; plan->buffers.at[b].part_of >= 0; b = plan->buffers.at[b].part_of) *at += f->part_at[b];
    return b;
}

/* Each temp at the lowest place that is free while it lives: in order of first use, so that a step's inputs and outputs
 * lie side by side. O(temps^2), when shapes change only. */
static int64_t place_temps(frame *f) {
    const ir_plan *plan = f->x->core->plan;
    int64_t top = 0;
    for (uint32_t i = 0; i < plan->buffers.n; i++) {
        const ir_plan_buffer *b = &plan->buffers.at[i];
        f->temp_at[i] = -1;
        if (!is_temp(b)) continue;
        int64_t bytes = align_up(f, f->bytes[i]), at = 0;
        for (bool moved = true; moved;) {
            moved = false;
            for (uint32_t j = 0; j < i; j++) {
                const ir_plan_buffer *o = &plan->buffers.at[j];
                if (!is_temp(o) || o->last_step < b->first_step || o->first_step > b->last_step) continue;
                int64_t end = f->temp_at[j] + align_up(f, f->bytes[j]);
                if (at >= end || at + bytes <= f->temp_at[j]) continue;
                at = end;
                moved = true;
            }
        }
        f->temp_at[i] = at;
        if (at + bytes > top) top = at + bytes;
    }
    for (int i = f->x->core->first_part; i < f->x->core->n_buffers; i++) {
        int64_t at;
        const int whole = exec_whole(f, i, &at);
        if (whole != i && f->temp_at[whole] >= 0) f->temp_at[i] = f->temp_at[whole] + at;
    }
    return top;
}

static bool add(int64_t *sum, int64_t n) { return !__builtin_add_overflow(*sum, n, sum) && *sum < INT64_MAX / 4; }

static fusor_status lay_out(frame *f, fu_error *e) {
    const core *c = f->x->core;
    const ir_plan *plan = c->plan;
    int64_t need = place_temps(f), shared = 0, kept = 0, scratch = 0, workers = 0;
    for (uint32_t i = 0; i < plan->buffers.n; i++) {
        if (plan->buffers.at[i].storage != IR_STORE_LITERAL) continue;
        f->temp_at[i] = need;
        need += align_up(f, 1);
    }
    for (int i = 0; i < c->n_steps; i++) {
        if (plan->steps.at[i].kind != IR_STEP_KERNEL) continue;
        const frame_step *s = &f->step[i];
        if (is_for_gpu(f)) { /* one kernel at a time: its scratch is all workers' */
            if (s->gpu.scratch_bytes > scratch) scratch = s->gpu.scratch_bytes;
            workers = 1;
            continue;
        }
        int64_t tiles = 1;
        for (int p = 0; p < s->launch.n_phases; p++)
            if (s->launch.tiles[p] > tiles) tiles = s->launch.tiles[p];
        int64_t n = s->n_threads < tiles ? s->n_threads : tiles;
        if (!s->is_prepacked && s->launch.shared_bytes > shared) shared = s->launch.shared_bytes;
        if (s->launch.kept_bytes > kept) kept = s->launch.kept_bytes;
        if (s->launch.scratch_bytes > scratch) scratch = s->launch.scratch_bytes;
        if (s->launch.scratch_bytes && n > workers) workers = n;
    }
    shared = align_up(f, shared);
    scratch = align_up(f, scratch);
    f->shared_at = (size_t)need;
    bool ok = add(&need, shared);
    f->kept_at = (size_t)need;
    ok = ok && add(&need, align_up(f, kept));
    f->scratch_at = (size_t)need;
    f->scratch_stride = (size_t)scratch;
    int64_t all;
    ok = ok && !__builtin_mul_overflow(scratch, workers, &all) && add(&need, all);
    if (!ok) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "the memory of one call overflows 64 bits for these inputs");
    f->need_bytes = (size_t)need;
    return FUSOR_OK;
}

static fusor_status make_memory(frame *f, fu_error *e) {
    const core *c = f->x->core;
    if (f->need_bytes > f->memory_bytes || !f->memory) {
        rt_memory_put(&c->options, f->memory, f->memory_bytes);
        f->memory_bytes = 0;
        f->memory = rt_memory_get(&c->options, f->need_bytes);
        if (!f->memory)
            return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for %zu bytes of temporary tensors", f->need_bytes);
        f->memory_bytes = f->need_bytes;
    }
    for (int i = 0; i < c->n_buffers; i++) {
        const ir_plan_buffer *b = &c->plan->buffers.at[i];
        if (f->temp_at[i] < 0) continue;
        f->base[i] = f->memory + f->temp_at[i];
        if (b->storage == IR_STORE_LITERAL) memcpy(f->base[i], &b->bits, ir_dtypes[b->dtype].bytes); /* little endian */
    }
    for (int i = 0; i < c->n_steps; i++) {
        f->step[i].args.shared = f->memory + f->shared_at;
        f->step[i].args.kept = f->memory + f->kept_at;
    }
    return FUSOR_OK;
}

static fusor_status evaluate_steps(frame *f, fu_error *e) {
    const core *c = f->x->core;
    for (int i = 0; i < c->n_steps; i++) {
        f->step[i].has_cost = false;
        if (c->plan->steps.at[i].kind == IR_STEP_KERNEL) FU_TRY(evaluate_kernel(f, e, i));
        if (c->plan->steps.at[i].kind == IR_STEP_CHECK) {
            FU_TRY(exec_size(f, e, c->plan->steps.at[i].dim[0], &f->step[i].axis_size));
            FU_TRY(exec_size(f, e, c->plan->steps.at[i].dim[1], &f->step[i].n_indices));
        }
        if (c->plan->steps.at[i].kind == IR_STEP_REFERENCE) FU_TRY(evaluate_reference(f, e, i));
    }
    return lay_out(f, e);
}

int64_t exec_peak(frame *f, fu_error *e, const int64_t *symbol_values) {
    memcpy(f->symbols, symbol_values, f->x->core->n_symbols * sizeof *f->symbols);
    if (evaluate_buffers(f, e) != FUSOR_OK || evaluate_steps(f, e) != FUSOR_OK) return -1;
    return (int64_t)f->need_bytes;
}

fusor_status exec_evaluate(frame *f, fu_error *e, bool with_memory) {
    const core *c = f->x->core;
    f->is_evaluated = false;
    FU_TRY(ir_bind_sizes(c->plan->graph, e, f->shapes, f->symbols));
    FU_TRY(evaluate_buffers(f, e));
    if (!with_memory) return FUSOR_OK;
    FU_TRY(evaluate_steps(f, e));
    if (!f->device) FU_TRY(make_memory(f, e));
    f->is_evaluated = true;
    return FUSOR_OK;
}

/* ---- running ---- */
void exec_run_tiles(void *user, int worker, int64_t begin, int64_t end) {
    exec_phase *r = user;
    ir_kernel_args args = r->s->args;
    args.phase = r->phase;
    args.scratch = r->scratch + (size_t)worker * r->scratch_stride;
    const int64_t from = __builtin_expect(r->trace != NULL, 0) ? fu_now_ns() : 0;
    int code = r->fn(&args, begin, end);
    if (__builtin_expect(r->trace != NULL, 0))
        rt_trace_add_tiles(r->trace, r->entry, (int)r->phase, begin, end, from, fu_now_ns());
    if (__builtin_expect(code != 0, 0)) atomic_store_explicit(r->code, code, memory_order_relaxed);
}

static fusor_status run_phases(const frame *f, fu_error *e, int number, const frame_step *s, int first_phase) {
    const core *c = f->x->core;
    const rt_kernel *k = c->info[number].kernel;
    atomic_int code = 0;
    rt_trace *trace = rt_trace_of(c->options.profile);
    const int entry = trace ? exec_profile_entry(c, atomic_load(c->options.profile), number) : 0;
    exec_phase run[IR_MAX_PHASES];
    rt_phase phase[IR_MAX_PHASES];
    int n = s->launch.n_phases - first_phase;
    for (int i = 0; i < n; i++) {
        run[i] = (exec_phase){
            s, k->fn, f->memory + f->scratch_at, f->scratch_stride, (uint32_t)(i + first_phase), &code, trace, entry};
        phase[i] = (rt_phase){s->launch.tiles[i + first_phase], exec_run_tiles, &run[i]};
    }
    RT_PROBE_RUN(k->symbol, n, s->launch.tiles[first_phase]);
    rt_parallel_for own = {c->options.parallel_for, c->options.parallel_user};
    rt_parallel_phases(s->n_threads, n, phase, own.run ? &own : NULL);
    return code ? FU_FAIL(e, FUSOR_ERROR_INTERNAL, "kernel %s returned %d", k->symbol, code) : FUSOR_OK;
}

void exec_packed_free(const rt_exec_options *options, packed *p) {
    if (!p) return;
    rt_memory_put(options, p->data, p->bytes);
    fu_free(p);
}

/* The packed operand of a step, a contraction's operand 1 or a convolution's weights, which are bound; packed by the
 * first call, by two at once at worst. */
static fusor_status find_packed(const frame *f, fu_error *e, int number, void **out) {
    const ir_step *st = &f->x->core->plan->steps.at[number];
    bound_param *b = keeper(f, st);
    packed *have = atomic_load_explicit(&b->packed[number], memory_order_acquire);
    if (!have) {
        frame_step once = f->step[number];
        packed *made = fu_calloc(1, sizeof *made);
        if (made) {
            made->bytes = (size_t)once.launch.shared_bytes;
            made->data = rt_memory_get(&b->options, made->bytes);
        }
        if (!made || !made->data) {
            fu_free(made);
            return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a packed parameter, %lld bytes",
                           (long long)once.launch.shared_bytes);
        }
        once.args.shared = made->data;
        once.launch.n_phases = 1;
        fusor_status s = run_phases(f, e, number, &once, 0);
        if (s != FUSOR_OK) {
            exec_packed_free(&b->options, made);
            return s;
        }
        if (atomic_compare_exchange_strong(&b->packed[number], &have, made)) have = made;
        else exec_packed_free(&b->options, made);
    }
    *out = have->data;
    return FUSOR_OK;
}

/* An output over an input: its lines come into the cache anyway, and a non-temporal store throws them out again. */
static bool is_in_place(const ir_kernel *k, void *const *buffer) {
    for (int b = 0; b < k->n_buffers; b++)
        for (int i = 0; k->buffer[b].is_output && i < k->n_buffers; i++)
            if (!k->buffer[i].is_output && buffer[i] == buffer[b]) return true;
    return false;
}

fusor_status exec_aim_kernel(frame *f, fu_error *e, int number) {
    const ir_step *st = &f->x->core->plan->steps.at[number];
    frame_step *s = &f->step[number];
    for (int b = 0; b < st->n_args; b++) /* of no elements: NULL, and it is not read */
        s->buffer[b] = (void *)((uintptr_t)f->base[st->arg[b]] + (uintptr_t)s->offset_bytes[b]);
    if (s->may_stream) s->args.tune[IR_TUNE_MAP_STREAM] = !is_in_place(st->kernel, s->buffer);
    return s->is_prepacked ? find_packed(f, e, number, &s->args.shared) : FUSOR_OK;
}

static fusor_status run_kernel(frame *f, fu_error *e, int number) {
    const core *c = f->x->core;
    FU_TRY(exec_aim_kernel(f, e, number));
    if (c->options.launch)
        return c->options.launch(c->options.launch_user, e, c->plan->steps.at[number].kernel, &f->step[number].args);
    return run_phases(f, e, number, &f->step[number], f->step[number].is_prepacked);
}

fusor_status exec_run_reference(frame *f, fu_error *e, int number, void *const *at) {
    const core *c = f->x->core;
    const ir_step *st = &c->plan->steps.at[number];
    rt_tensor *t = f->step[number].tensor;
    for (int a = 0; a < st->n_args; a++) t[a].data = at[st->arg[a]];
    if (!c->options.reference)
        return FU_FAIL(e, FUSOR_ERROR_UNSUPPORTED, "this program needs the reference evaluator, and there is none");
    return c->options.reference(c->plan->graph, e, ir_at(c->plan->graph, st->node), t, &t[st->n_args - 1], f->symbols);
}

fusor_status exec_run_step(frame *f, fu_error *e, int number) {
    const ir_step *st = &f->x->core->plan->steps.at[number];
    if (exec_is_done(f, number)) return FUSOR_OK;
    switch (st->kind) {
    case IR_STEP_KERNEL: return run_kernel(f, e, number);
    case IR_STEP_REFERENCE: return exec_run_reference(f, e, number, f->base);
    case IR_STEP_CHECK: return exec_check_indices(f, e, number, f->base[st->arg[0]]);
    case IR_STEP_COPY:
        if (f->base[st->arg[0]] != f->base[st->arg[1]] && f->bytes[st->arg[0]])
            memmove(f->base[st->arg[1]], f->base[st->arg[0]], (size_t)f->bytes[st->arg[0]]);
        break;
    }
    return FUSOR_OK;
}

int exec_profile_entry(const core *c, rt_profile *p, int number) {
    int entry = atomic_load_explicit(&c->profile_entry[number], memory_order_acquire), none = 0;
    if (entry == 0 && atomic_compare_exchange_strong(&c->profile_entry[number], &none, -2)) {
        entry = rt_profile_add(p, c->plan, number, c->info[number].kernel ? c->info[number].kernel->symbol : NULL);
        atomic_store_explicit(&c->profile_entry[number], entry, memory_order_release);
    }
    return entry;
}

void exec_profile_step(frame *f, rt_profile *p, int number, int64_t begin_ns, int64_t end_ns) {
    const core *c = f->x->core;
    frame_step *s = &f->step[number];
    const int entry = exec_profile_entry(c, p, number);
    if (!s->has_cost) {
        s->cost = ir_step_cost(c->plan, number, f->symbols);
        s->has_cost = true;
    }
    rt_profile_count(p, entry, end_ns - begin_ns, &s->cost);
    if (atomic_load_explicit(&p->on, memory_order_relaxed) == RT_PROFILE_EVENTS)
        rt_trace_add_step(atomic_load(&p->trace), entry, begin_ns, end_ns);
}

/* One reading of the clock a step, and one before the first. */
static fusor_status run_profiled(frame *f, fu_error *e, rt_profile *p) {
    const int64_t start = fu_now_ns();
    int64_t begin = start;
    for (int i = 0; i < f->x->core->n_steps; i++) {
        FU_TRY(exec_run_step(f, e, i));
        const int64_t end = fu_now_ns();
        exec_profile_step(f, p, i, begin, end);
        begin = end;
    }
    if (atomic_load_explicit(&p->on, memory_order_relaxed) == RT_PROFILE_EVENTS)
        rt_trace_add(atomic_load(&p->trace), RT_EVENT_CALL, f->x->core->plan->graph->name, start, begin);
    return FUSOR_OK;
}

rt_profile *exec_profile(const core *c) {
    rt_profile *p = c->options.profile ? atomic_load_explicit(c->options.profile, memory_order_acquire) : NULL;
    return p && atomic_load_explicit(&p->on, memory_order_relaxed) ? p : NULL;
}

fusor_status exec_run(frame *f, fu_error *e) {
    rt_profile *p = exec_profile(f->x->core);
    if (__builtin_expect(p != NULL, 0)) return run_profiled(f, e, p);
    for (int i = 0; i < f->x->core->n_steps; i++) FU_TRY(exec_run_step(f, e, i));
    return FUSOR_OK;
}

static fusor_status call_on_cpu(frame *f, fu_error *e) {
    exec_copy_in(f);
    const fusor_status status = exec_run(f, e);
    if (status == FUSOR_OK) exec_copy_out(f);
    return status;
}

fusor_status exec_complete(frame *f, fu_error *e) {
    rt_fpenv environment;
    rt_fpenv_enter(&environment);
    const fusor_status status = f->device ? exec_device_call(f, e) : call_on_cpu(f, e);
    rt_fpenv_leave(&environment);
    return status;
}
