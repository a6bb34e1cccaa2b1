/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* lazy_eval.c: evaluation of lazy tensors: which operators are needed, which old contents must be saved, one call of
 * one executable, and what the slots are afterwards. */
#include "lazy_internal.h"
#include "memory.h"

/* ---- what is needed ---- */

/* Puts everything behind root into s->order, operands first. The stack holds slot and next operand; a chain may be
 * long. */
static fusor_status collect(lazy_state *s, fu_error *e, uint32_t root) {
    uint32_t depth = 0;
    if (lazy_at(s, root)->mark == s->mark) return FUSOR_OK;
    if (!lazy_grow(&s->stack, &s->cap_stack, 2, sizeof *s->stack)) return lazy_no_memory(e);
    s->stack[depth++] = root;
    s->stack[depth++] = 0;
    lazy_at(s, root)->mark = s->mark;
    while (depth) {
        uint32_t slot = s->stack[depth - 2], k = s->stack[depth - 1];
        lazy_slot *x = lazy_at(s, slot);
        while (k < x->n_in && (!x->in[k].slot || lazy_at(s, x->in[k].slot)->mark == s->mark)) k++;
        if (k < x->n_in) {
            uint32_t in = x->in[k].slot;
            s->stack[depth - 1] = k + 1;
            if (!lazy_grow(&s->stack, &s->cap_stack, depth + 2, sizeof *s->stack)) return lazy_no_memory(e);
            s->stack[depth++] = in;
            s->stack[depth++] = 0;
            lazy_at(s, in)->mark = s->mark;
            continue;
        }
        if (!lazy_grow(&s->order, &s->cap_order, s->n_order + 1, sizeof *s->order)) return lazy_no_memory(e);
        x->index = s->n_order;
        x->uses = x->refs;
        x->is_root = false;
        s->order[s->n_order++] = slot;
        depth -= 2;
    }
    return FUSOR_OK;
}

/* How many references every slot of the order will have left once the roots are evaluated and what only they needed is
 * gone. Users come after what they use, so one walk from the end settles it. */
static void count_uses(lazy_state *s, uint32_t n, const lazy_result *results) {
    for (uint32_t i = 0; i < n; i++)
        if (results[i].over) lazy_at(s, results[i].slot)->uses--; /* the assignment's own */
    for (uint32_t i = s->n_order; i-- > 0;) {
        lazy_slot *x = lazy_at(s, s->order[i]);
        if (!x->is_root && x->uses) continue;
        for (uint32_t k = 0; k < x->n_in; k++)
            if (x->in[k].slot) lazy_at(s, x->in[k].slot)->uses--;
    }
}

/* The elements of b in memory of its own, on a device; no slot reads it yet. */
static fusor_status copy_of(lazy_state *s, fu_error *e, const fusor_buffer *b, int32_t device, lazy_storage **out) {
    fusor_buffer to = *b;
    to.flags = 0;
    to.device = device;
    FU_TRY(memory_get(s->ctx, e, &to));
    fusor_status status = device || b->device ? memory_copy(s->ctx, e, b, &to) : memory_read(s->ctx, e, b, to.data);
    lazy_storage *made = status == FUSOR_OK ? lazy_storage_new(&to, STORAGE_POOL) : NULL;
    if (made) return *out = made, FUSOR_OK;
    memory_put(s->ctx, &to);
    return status != FUSOR_OK ? status : lazy_no_memory(e);
}

/* Readers of m that outlive the write to it get a copy of what it holds now. */
static fusor_status save_contents(lazy_state *s, fu_error *e, lazy_storage *m) {
    bool is_needed = false;
    for (uint32_t r = m->readers; r && !is_needed; r = lazy_at(s, r)->next_reader) {
        const lazy_slot *x = lazy_at(s, r);
        is_needed = x->mark == s->mark ? x->uses > 0 : x->refs > 0;
    }
    if (!is_needed) return FUSOR_OK;
    lazy_storage *copy;
    FU_TRY(copy_of(s, e, &m->buffer, m->buffer.device, &copy));
    m->refs++;
    while (m->readers) {
        uint32_t r = m->readers;
        lazy_unread(s, r);
        lazy_read_storage(s, r, copy);
    }
    lazy_storage_drop(s, m);
    return FUSOR_OK;
}

/* ---- the call ---- */

static fusor_buffer scalar_buffer(lazy_input *in) {
    return (fusor_buffer){.data = &in->bits, .dtype = in->dtype}; /* little endian: the low bytes are the value */
}

static uint32_t count_params(const lazy_state *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_order; i++) {
        const lazy_slot *x = lazy_at(s, s->order[i]);
        n += x->kind == SLOT_LEAF;
        for (uint32_t k = 0; k < x->n_in; k++) n += x->in[k].slot == 0;
    }
    return n;
}

/* Is result r assigned to memory that the program does not read, and made elsewhere first, so that a refused index leaves
 * what was there? Memory that it reads is a parameter, for which the plan sees to that. */
static bool is_written_last(const lazy_state *s, const lazy_plan *plan, const lazy_result *r) {
    return r->over && plan->may_refuse && lazy_leaf_of(s, r->over) < 0;
}

/* After the call: results that waited go where they were assigned to. */
static fusor_status write_last(lazy_state *s, fu_error *e, const lazy_plan *plan, uint32_t n,
                               const lazy_result *results, const fusor_buffer *out) {
    fusor_status status = FUSOR_OK;
    for (uint32_t r = 0; r < n; r++) {
        if (!is_written_last(s, plan, &results[r])) continue;
        if (status == FUSOR_OK) status = memory_copy(s->ctx, e, &out[r], &results[r].over->buffer);
        memory_put(s->ctx, &out[r]);
    }
    for (uint32_t r = 0; r < n && status != FUSOR_OK; r++)
        if (!results[r].over) memory_put(s->ctx, &out[r]);
    return status;
}

static fusor_status call(lazy_state *s, fu_error *e, lazy_plan *plan, uint32_t n, const lazy_result *results,
                         fusor_buffer *out) {
    enum { FEW = 32 };
    const uint32_t n_params = count_params(s);
    uint32_t p = 0;
    fusor_buffer few[FEW], *in = n_params <= FEW ? few : fu_malloc(n_params * sizeof *in);
    lazy_storage *few_from[FEW], **from = n_params <= FEW ? few_from : fu_malloc(n_params * sizeof *from);
    fusor_status status = in && from ? FUSOR_OK : lazy_no_memory(e);
    if (status != FUSOR_OK) goto end;
    for (uint32_t i = 0; i < s->n_order; i++) {
        lazy_slot *x = lazy_at(s, s->order[i]);
        for (uint32_t k = 0; k < x->n_in; k++)
            if (!x->in[k].slot) from[p] = NULL, in[p++] = scalar_buffer(&x->in[k]);
        if (x->kind != SLOT_LEAF) continue;
        from[p] = x->storage;
        in[p++] = x->storage->buffer;
    }
    for (uint32_t r = 0; r < n; r++) {
        const lazy_slot *x = lazy_at(s, results[r].slot);
        memset(&out[r], 0, sizeof out[r]);
        if (results[r].over) {
            out[r] = results[r].over->buffer;
            if (is_written_last(s, plan, &results[r])) out[r].data = NULL;
            continue;
        }
        out[r].device = s->ctx->device; /* results stay there until they are read */
        out[r].dtype = x->dtype;
        out[r].rank = x->rank;
        memcpy(out[r].shape, x->shape, sizeof x->shape);
    }
    if (plan->exe) {
        status = lazy_call_placed(s, e, plan, (int)n_params, in, from, (int)n, results, out, s->is_read);
        if (status == FUSOR_OK && !s->is_read) status = lazy_placed_done(s, e);
    } else status = rt_exec_call(plan->exec, e, (int)n_params, in, (int)n, out);
    if (status == FUSOR_ERROR_OVERLAP) { /* the program's names of them say nothing to who wrote no program */
        fu_error_clear(e);
        FU_FAIL(e, status,
                "fusor_assign: memory of the target is wrapped a second time, and that tensor is read or assigned too; "
                "wrap memory once and use that handle, or slices of it");
    }
    if (status == FUSOR_OK) status = write_last(s, e, plan, n, results, out);
end:
    if (in != few) fu_free(in);
    if (from != few_from) fu_free(from);
    return status;
}

/* Moves a result that lives in wrapped memory to memory of its own, which no later assignment touches. */
static fusor_status make_private(lazy_state *s, fu_error *e, uint32_t slot) {
    lazy_slot *x = lazy_at(s, slot);
    if (x->kind != SLOT_LEAF || x->storage->kind == STORAGE_POOL) return FUSOR_OK;
    lazy_storage *copy;
    FU_TRY(copy_of(s, e, &x->storage->buffer, x->storage->buffer.device, &copy));
    lazy_unread(s, slot);
    lazy_read_storage(s, slot, copy);
    return FUSOR_OK;
}

/* Slots of results become leaves; assigned memory has its new contents. */
static fusor_status settle(lazy_state *s, fu_error *e, uint32_t n, const lazy_result *results,
                           const fusor_buffer *out) {
    fusor_status status = FUSOR_OK;
    for (uint32_t r = 0; r < n; r++) {
        lazy_slot *x = lazy_at(s, results[r].slot);
        lazy_storage *m = results[r].over;
        if (x->kind == SLOT_OP) {
            if (!m) {
                m = lazy_storage_new(&out[r], STORAGE_POOL);
                if (!m) {
                    memory_put(s->ctx, &out[r]);
                    status = lazy_no_memory(e);
                    continue;
                }
            }
            lazy_clear_inputs(s, results[r].slot);
            lazy_read_storage(s, results[r].slot, m);
            /* Others mostly go with the scope of an optimizer's step: a copy would cost more than the step. */
            if (x->keeps && make_private(s, e, results[r].slot) != FUSOR_OK) status = e->status;
        }
        if (!results[r].over) continue;
        results[r].over->value = 0;
        results[r].over->writes++;
        lazy_drop(s, results[r].slot);
    }
    return status;
}

static fusor_status run(lazy_state *s, fu_error *e, uint32_t n, lazy_result *results) {
    lazy_plan *plan = NULL;
    fusor_buffer few[16], *out = few;
    count_uses(s, n, results);
    for (uint32_t r = 0; r < n; r++)
        if (results[r].over) FU_TRY(save_contents(s, e, results[r].over));
    FU_TRY(lazy_plan_get(s, e, n, results, &plan));
    s->last_steps = rt_exec_plan(plan->exec)->steps.n;
    if (n > 16) {
        out = fu_malloc(n * sizeof *out);
        if (!out) return lazy_no_memory(e);
    }
    fusor_status status = call(s, e, plan, n, results, out);
    if (status == FUSOR_OK) status = settle(s, e, n, results, out);
    if (out != few) fu_free(out);
    return status;
}

/* Adds what slot stands for to the results, unless it has been computed or is one already. */
static void add_root(lazy_state *s, uint32_t slot, lazy_result *results, uint32_t *n) {
    lazy_slot *x = lazy_at(s, slot);
    if (x->kind != SLOT_OP || x->is_root) return;
    x->is_root = true;
    results[(*n)++] = (lazy_result){slot, NULL};
}

fusor_status lazy_eval_slots(lazy_state *s, fu_error *e, lazy_scope *scope, uint32_t n_slots, const uint32_t *slots) {
    lazy_result few[16], *results = few;
    uint32_t n = 0, most = n_slots + scope->n_pending;
    if (scope->is_broken)
        return FU_FAIL(e, scope->status, "%s", scope->text ? scope->text : "an assignment of this scope failed");
    if (most > 16) {
        results = fu_malloc(most * sizeof *results);
        if (!results) return lazy_no_memory(e);
    }
    s->mark++;
    s->n_order = 0;
    fusor_status status = FUSOR_OK;
    /* Targets too: a wrapped tensor that is asked for after its assignment is read through memory. */
    for (uint32_t i = 0; i < scope->n_pending && status == FUSOR_OK; i++)
        if (scope->pending[i].to->value) status = collect(s, e, scope->pending[i].to->value);
    for (uint32_t i = 0; i < n_slots && status == FUSOR_OK; i++) status = collect(s, e, slots[i]);
    if (status == FUSOR_OK) {
        for (uint32_t i = 0; i < scope->n_pending; i++) {
            lazy_storage *m = scope->pending[i].to;
            if (!m->value) continue; /* an inner scope wrote it, later */
            lazy_at(s, m->value)->is_root = lazy_at(s, m->value)->kind == SLOT_OP;
            results[n++] = (lazy_result){m->value, m};
        }
        for (uint32_t i = 0; i < n_slots; i++) add_root(s, slots[i], results, &n);
        if (n) status = run(s, e, n, results);
    }
    if (results != few) fu_free(results);
    /* In the root scope nothing would ever take a failed assignment away. */
    if (status == FUSOR_OK || scope == &s->root) lazy_drop_pending(s, scope);
    return status;
}

/* ---- entry points ---- */

/* Evaluates t; *out: its slot, which is a LEAF then, or wrapped memory without a pending assignment. */
static fusor_status eval_one(lazy_state *s, fu_error *e, fusor_tensor t, const char *who, uint32_t *out) {
    lazy_scope *scope = lazy_scope_of_thread(s);
    uint32_t slot = lazy_resolve(s, t, who, e), value = slot ? lazy_value_of(s, slot) : 0;
    if (!slot) return e->status;
    if (!value) return lazy_no_memory(e);
    lazy_at(s, value)->refs++;
    fusor_status status = lazy_eval_slots(s, e, scope, 1, &value);
    if (status != FUSOR_OK) lazy_scope_error(scope, e);
    /* The value outlives this call by its handle, or as the memory that it was written to. */
    *out = lazy_at(s, slot)->kind == SLOT_WRAP && !lazy_at(s, slot)->storage->value ? slot : value;
    lazy_drop(s, value);
    return status;
}

static fusor_context *context_of(fusor_tensor t) {
    return t.owner && !op_is_weak(t) && !builder_owns(t) ? t.owner : NULL;
}

fusor_status lazy_refuse(fusor_tensor t) {
    if (builder_is_stale(t)) return builder_status_of(t);
    return context_refuse("this is no tensor with data: a number alone, the result of an operator on numbers alone "
                          "(one operand must be a tensor; fusor_full makes one of a number), a parameter of a function "
                          "being built, or a handle that was never set");
}

fusor_status fusor_eval(int n, const fusor_tensor *t) {
    fu_error e;
    fusor_context *ctx = NULL;
    if (n < 0 || (n && !t)) return context_refuse("fusor_eval: the tensors are missing");
    for (int i = 0; i < n && !ctx; i++) ctx = context_of(t[i]);
    if (!ctx) return n ? lazy_refuse(t[0]) : FUSOR_OK;
    fu_error_clear(&e);
    lazy_state *s = lazy_enter(ctx);
    if (!s) return lazy_no_state(ctx);
    lazy_scope *scope = lazy_scope_of_thread(s);
    uint32_t *slots = fu_calloc((size_t)n, sizeof *slots), got = 0;
    fusor_status status = slots ? FUSOR_OK : lazy_no_memory(&e);
    for (int i = 0; i < n && status == FUSOR_OK; i++) {
        if (op_is_weak(t[i])) continue;
        uint32_t slot = lazy_resolve(s, t[i], "fusor_eval", &e);
        if (slot && !(slot = lazy_value_of(s, slot))) lazy_no_memory(&e);
        if (slot) {
            lazy_at(s, slot)->refs++;
            slots[got++] = slot;
        }
        status = e.status;
    }
    if (status == FUSOR_OK) status = lazy_eval_slots(s, &e, scope, got, slots);
    for (uint32_t i = 0; i < got; i++) lazy_drop(s, slots[i]);
    fu_free(slots);
    lazy_scope_error(scope, &e);
    lazy_leave(s);
    return context_fail(ctx, &e);
}

fusor_status fusor_read(fusor_tensor t, void *dst, size_t bytes) {
    fu_error e;
    uint32_t slot = 0;
    fusor_context *ctx = context_of(t);
    if (!ctx) return lazy_refuse(t);
    fu_error_clear(&e);
    lazy_state *s = lazy_enter(ctx);
    if (!s) return lazy_no_state(t.owner);
    s->is_read = true;
    s->timed.key = 0;
    const fusor_status status = eval_one(s, &e, t, "fusor_read", &slot);
    s->is_read = false;
    if (status == FUSOR_OK) {
        const fusor_buffer *b = &lazy_at(s, slot)->storage->buffer;
        if (bytes != (size_t)lazy_bytes(b))
            FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_read: %zu bytes given; the tensor has %lld", bytes,
                    (long long)lazy_bytes(b));
        else if (bytes && !dst) FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_read: dst must not be NULL");
        else if (memory_read(ctx, &e, b, dst) == FUSOR_OK) (void)lazy_placed_done(s, &e);
    }
    lazy_leave(s);
    return context_fail(ctx, &e);
}

/* From now on its contents are the caller's as well. */
static fusor_buffer show(lazy_state *s, lazy_storage *m) {
    m->is_shown = true;
    if (m->twin.data) memory_put(s->ctx, &m->twin);
    m->twin.data = NULL;
    return m->buffer;
}

/* A handle of wrapped memory whose pending value's memory was handed out (another scope has the assignment) holds the
 * value, which the assignment alone would let go. */
static bool hold(lazy_state *s, uint32_t wrap, uint32_t value) {
    lazy_slot *x = lazy_at(s, wrap);
    if (x->kind != SLOT_WRAP || wrap == value) return true;
    for (uint32_t k = 0; k < x->n_in; k++)
        if (x->in[k].slot == value) return true;
    lazy_input *in = fu_realloc(x->n_in ? x->in : NULL, (x->n_in + 1) * sizeof *in);
    if (!in) return false;
    in[x->n_in++].slot = value;
    x->in = in;
    lazy_at(s, value)->refs++;
    return true;
}

fusor_status fusor_buffer_of(fusor_tensor t, fusor_buffer *out) {
    fu_error e;
    uint32_t slot = 0;
    fusor_context *ctx = context_of(t);
    if (!out) return context_refuse("fusor_buffer_of: out is NULL");
    if (!ctx) return lazy_refuse(t);
    fu_error_clear(&e);
    lazy_state *s = lazy_enter(ctx);
    if (!s) return lazy_no_state(t.owner);
    if (eval_one(s, &e, t, "fusor_buffer_of", &slot) == FUSOR_OK && make_private(s, &e, slot) == FUSOR_OK) {
        if (hold(s, t.slot, slot)) *out = show(s, lazy_at(s, slot)->storage);
        else lazy_no_memory(&e);
    }
    lazy_leave(s);
    return context_fail(ctx, &e);
}

/* Memory of the context's device with the contents of slot, which has been evaluated. */
static fusor_status place(lazy_state *s, fu_error *e, uint32_t slot, fusor_tensor *out) {
    lazy_storage *m = lazy_at(s, slot)->storage;
    if (m->kind != STORAGE_POOL || m->buffer.device != s->ctx->device)
        FU_TRY(copy_of(s, e, &m->buffer, s->ctx->device, &m));
    m->refs++; /* also of one that no slot reads, where there is no slot */
    uint32_t leaf = lazy_slot_new(s, SLOT_LEAF, IR_OP_NONE);
    if (leaf) {
        lazy_slot *x = lazy_at(s, leaf), *from = lazy_at(s, slot);
        x->dtype = from->dtype;
        x->rank = from->rank;
        memcpy(x->shape, from->shape, sizeof x->shape);
        lazy_read_storage(s, leaf, m);
        *out = lazy_handle(s, leaf);
    }
    lazy_storage_drop(s, m);
    return leaf ? FUSOR_OK : lazy_no_memory(e);
}

fusor_tensor fusor_to_device(fusor_tensor t) {
    fu_error e;
    uint32_t slot = 0;
    fusor_context *ctx = context_of(t);
    if (!ctx) return t;
    fu_error_clear(&e);
    lazy_state *s = lazy_enter(ctx);
    if (!s) return (fusor_tensor){ctx, 0, 0};
    fusor_tensor out = {ctx, 0, 0};
    if (eval_one(s, &e, t, "fusor_to_device", &slot) != FUSOR_OK || place(s, &e, slot, &out) != FUSOR_OK)
        out = lazy_bad_slot(s, IR_OP_NONE, &e);
    lazy_leave(s);
    return out;
}
