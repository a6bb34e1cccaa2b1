/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* lazy_scope.c: scopes of lazy tensors, and assignments, which wait in a scope until it ends or evaluates something. */
#include "lazy_internal.h"
#include <stdio.h>

/* Never reused, unlike an address: a scope that a dead thread left open is no other thread's. */
static uint64_t this_thread(void) {
    static uint64_t next = 1;
    static _Thread_local uint64_t id;
    if (!id) id = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
    return id;
}

lazy_scope *lazy_scope_of_thread(lazy_state *s) {
    if (!s->scopes) return &s->root;
    uint64_t me = this_thread();
    for (lazy_scope *x = s->scopes; x; x = x->outer)
        if (x->thread == me) return x;
    return &s->root;
}

void lazy_scope_error(lazy_scope *scope, const fu_error *e) {
    if (scope->id == 0 || scope->status != FUSOR_OK || e->status == FUSOR_OK) return;
    scope->status = e->status;
    scope->text = fu_malloc(e->length + 1);
    if (scope->text) memcpy(scope->text, e->text, e->length + 1);
}

void lazy_drop_pending(lazy_state *s, lazy_scope *scope) {
    for (uint32_t i = 0; i < scope->n_pending; i++) {
        lazy_pending *x = &scope->pending[i];
        uint32_t value = x->to->value; /* 0: written */
        x->to->value = 0;
        if (value && x->writes == x->to->writes) x->to->value = x->before;
        else if (x->before) lazy_drop(s, x->before);
        if (value) lazy_drop(s, value);
        lazy_storage_drop(s, x->to);
    }
    scope->n_pending = 0;
}

void lazy_scope_clear(lazy_state *s, lazy_scope *scope) {
    lazy_drop_pending(s, scope);
    for (uint32_t i = 0; i < scope->n_slots; i++) {
        lazy_at(s, scope->slots[i])->in_scope = false;
        lazy_drop_handle(s, scope->slots[i]);
    }
    scope->n_slots = 0;
    fu_free(scope->slots);
    fu_free(scope->pending);
    fu_free(scope->text);
    scope->slots = NULL;
    scope->pending = NULL;
    scope->text = NULL;
}

fusor_scope fusor_scope_begin(fusor_context *ctx, fusor_status *status) {
    fusor_scope out = {.ctx = ctx, .status = status};
    const fusor_status begun = ctx ? FUSOR_OK : context_refuse("fusor_scope_begin: the context is NULL");
    if (status) *status = begun;
    if (!ctx) return out;
    lazy_state *s = lazy_enter(ctx);
    lazy_scope *scope = s ? fu_calloc(1, sizeof *scope) : NULL;
    if (scope) {
        scope->id = s->next_scope++;
        scope->thread = this_thread();
        scope->outer = s->scopes;
        s->scopes = scope;
        out.id = scope->id;
        out.is_open = 1;
        (void)context_keep(ctx);
    }
    if (s) lazy_leave(s);
    if (!scope) { /* its tensors then belong to the scope around it */
        const fusor_status failed = lazy_no_state(ctx);
        if (status) *status = failed;
    }
    return out;
}

void fusor_scope_end(fusor_scope *end) {
    fu_error e;
    if (!end || !end->is_open) return;
    end->is_open = 0;
    fu_error_clear(&e);
    lazy_state *s = lazy_enter(end->ctx);
    if (!s) return;
    lazy_scope **link = &s->scopes, *scope;
    while (*link && (*link)->id != end->id) link = &(*link)->outer;
    scope = *link;
    if (scope) {
        /* Handles go first: what only they need is not computed, and no old contents are saved for it. */
        for (uint32_t i = 0; i < scope->n_slots; i++) {
            lazy_at(s, scope->slots[i])->in_scope = false;
            lazy_drop_handle(s, scope->slots[i]);
        }
        scope->n_slots = 0;
        if (scope->n_pending && !scope->is_broken && lazy_eval_slots(s, &e, scope, 0, NULL) != FUSOR_OK)
            lazy_scope_error(scope, &e);
        if (scope->status != FUSOR_OK) {
            fu_error_clear(&e);
            FU_FAIL(&e, scope->status, "%s", scope->text ? scope->text : "out of memory");
            (void)context_fail(s->ctx, &e);
        }
        if (end->status) *end->status = scope->status;
        *link = scope->outer;
        lazy_scope_clear(s, scope);
        fu_free(scope);
    }
    lazy_leave(s);
    fusor_context_free(end->ctx);
}

/* A scalar fills: the value is full(scalar, shape). */
static fusor_tensor fill(lazy_state *s, const lazy_slot *target, fusor_tensor value) {
    op_attr attrs[IR_MAX_ATTRS] = {{.is_set = true, .list = target->shape, .n = target->rank},
                                   {.is_set = true, .integer = target->dtype}};
    op_call c = {.op = IR_OP_FULL, .n = 1, .args = &value, .attrs = attrs};
    lazy_slot copy = *target;
    attrs[0].list = copy.shape;
    fusor_context *ctx = s->ctx;
    lazy_leave(s); /* recording locks by itself */
    fusor_tensor t = lazy_record(ctx, &c);
    (void)lazy_enter(ctx);
    return t;
}

static fusor_status assign(lazy_state *s, fu_error *e, lazy_scope *scope, fusor_tensor wrapped, fusor_tensor value) {
    uint32_t target = lazy_resolve(s, wrapped, "fusor_assign", e);
    if (!target) return e->status;
    const lazy_slot *x = lazy_at(s, target);
    if (x->kind != SLOT_WRAP)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT,
                       "fusor_assign: the target is the result of '%s'; expected memory from fusor_wrap",
                       ir_ops[x->op].name);
    if (x->storage->is_const)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT,
                       "fusor_assign: the target was wrapped as read only; expected fusor_wrap");
    if (x->storage->buffer.flags & FUSOR_STRIDED)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "fusor_assign: the target has strides; expected contiguous memory");
    if (op_is_weak(value)) value = fill(s, x, value);
    uint32_t slot = lazy_resolve(s, value, "fusor_assign", e);
    if (!slot) return e->status;
    slot = lazy_value_of(s, slot);
    if (!slot) return lazy_no_memory(e);
    x = lazy_at(s, target);
    const lazy_slot *v = lazy_at(s, slot);
    if (v->dtype != x->dtype)
        return FU_FAIL(e, FUSOR_ERROR_TYPE, "fusor_assign: the value is %s but the target %s; cast the value",
                       ir_dtypes[v->dtype].name, ir_dtypes[x->dtype].name);
    bool same = v->rank == x->rank;
    for (int d = 0; same && d < x->rank; d++) same = v->shape[d] == x->shape[d];
    if (!same) {
        char text[2][IR_MAX_RANK * 21 + 8];
        const lazy_slot *both[2] = {v, x};
        for (int i = 0; i < 2; i++) {
            char *p = text[i], *end = text[i] + sizeof text[i];
            p += snprintf(p, (size_t)(end - p), "[");
            for (int d = 0; d < both[i]->rank; d++)
                p += snprintf(p, (size_t)(end - p), "%s%lld", d ? ", " : "", (long long)both[i]->shape[d]);
            snprintf(p, (size_t)(end - p), "]");
        }
        return FU_FAIL(e, FUSOR_ERROR_SHAPE, "fusor_assign: the value is %s but the target %s; they must be equal",
                       text[0], text[1]);
    }
    lazy_storage *m = x->storage;
    bool is_listed = false;
    for (uint32_t i = 0; i < scope->n_pending; i++) is_listed |= scope->pending[i].to == m;
    if (!is_listed) {
        if (!lazy_grow(&scope->pending, &scope->cap_pending, scope->n_pending + 1, sizeof *scope->pending))
            return lazy_no_memory(e);
    }
    lazy_at(s, slot)->refs++; /* first: it may be the value that is dropped */
    if (!is_listed) {
        scope->pending[scope->n_pending++] = (lazy_pending){m, m->value, m->writes};
        m->refs++;
    } else if (m->value) {
        lazy_drop(s, m->value);
    }
    m->value = slot;
    return FUSOR_OK;
}

fusor_status fusor_assign(fusor_tensor wrapped, fusor_tensor value) {
    fu_error e;
    if (!wrapped.owner || op_is_weak(wrapped) || builder_owns(wrapped)) return lazy_refuse(wrapped);
    fu_error_clear(&e);
    lazy_state *s = lazy_enter(wrapped.owner);
    if (!s) return lazy_no_state(wrapped.owner);
    lazy_scope *scope = lazy_scope_of_thread(s);
    if (assign(s, &e, scope, wrapped, value) != FUSOR_OK) {
        lazy_scope_error(scope, &e);
        scope->is_broken = scope != &s->root;
    }
    lazy_leave(s);
    return e.status == FUSOR_OK ? FUSOR_OK : context_fail(wrapped.owner, &e);
}
