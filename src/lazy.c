/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* lazy.c: lazy tensors: the table of slots, handles, and wrapped memory. How it fits together: lazy_internal.h. */
#include "ir/lex.h"
#include "lazy_internal.h"
#include "memory.h"

_Static_assert(IR_OP_COUNT <= 255, "a generation has 8 bits for the operator");

fusor_status lazy_no_memory(fu_error *e) { return FU_FAIL(e, FUSOR_ERROR_MEMORY, "out of memory"); }

fusor_status lazy_no_state(const fusor_context *ctx) {
    fu_error e;
    fu_error_clear(&e);
    (void)lazy_no_memory(&e);
    return context_fail(ctx, &e);
}

bool lazy_grow(void *at, uint32_t *cap, uint32_t want, size_t each) {
    void *old;
    if (*cap >= want) return true;
    uint32_t n = *cap ? *cap : 16;
    while (n < want) n *= 2;
    memcpy(&old, at, sizeof old);
    void *p = fu_realloc(old, n * each);
    if (!p) return false;
    memcpy(at, &p, sizeof p);
    *cap = n;
    return true;
}

/* ---- state ---- */

/* Forked inside, or beside a thread that was in there too long: what is half done is given up, not repaired. */
static void in_child(void *user) {
    lazy_state *s = user;
    if (s->is_busy) s->is_torn = true;
    pthread_mutex_init(&s->mutex, NULL);
}

static lazy_state *state_new(fusor_context *ctx, uint32_t base_count) {
    lazy_state *s = fu_calloc(1, sizeof *s);
    if (!s) return NULL;
    s->ctx = ctx;
    s->base_count = base_count;
    s->next_scope = 1;
    s->n_slots = 1; /* slot 0 is "out of memory" */
    pthread_mutex_init(&s->mutex, NULL);
    s->hook = (rt_fork_hook){.child = in_child, .user = s, .is_busy = &s->is_busy};
    rt_fork_add(&s->hook);
    return s;
}

static void enter(lazy_state *s) {
    for (;;) {
        pthread_mutex_lock(&s->mutex);
        __atomic_store_n(&s->is_busy, true, __ATOMIC_SEQ_CST);
        if (rt_fork_enter()) return;
        s->is_busy = false;
        pthread_mutex_unlock(&s->mutex);
        rt_fork_rest();
    }
}

lazy_state *lazy_enter(fusor_context *ctx) {
    lazy_state *s = __atomic_load_n(&ctx->lazy, __ATOMIC_ACQUIRE);
    if (!s || s->is_torn) {
        /* Without a lock, which a child could inherit: of several threads one has made it, the others drop theirs.
         * Generations go on from where the old state cannot have been, so none of its handles is taken for a new
         * one. */
        lazy_state *made = state_new(ctx, s ? s->base_count + (LAZY_COUNT_MASK >> 3) : 1);
        if (!made) return NULL;
        if (__atomic_compare_exchange_n(&ctx->lazy, &s, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            s = made;
        } else {
            rt_fork_remove(&made->hook);
            pthread_mutex_destroy(&made->mutex);
            fu_free(made);
        }
    }
    enter(s);
    return s;
}

void lazy_leave(lazy_state *s) {
    lazy_storage *list = s->to_release;
    s->to_release = NULL;
    s->is_busy = false;
    pthread_mutex_unlock(&s->mutex);
    rt_fork_leave();
    while (list) {
        lazy_storage *next = list->next;
        if (list->release) list->release(list->user);
        fu_free(list);
        list = next;
    }
}

/* ---- memory ---- */

lazy_storage *lazy_storage_new(const fusor_buffer *b, int kind) {
    lazy_storage *m = fu_calloc(1, sizeof *m);
    if (!m) return NULL;
    m->buffer = *b;
    m->kind = kind;
    m->is_const = (b->flags & FUSOR_READONLY) != 0;
    return m;
}

void lazy_storage_drop(lazy_state *s, lazy_storage *m) {
    if (--m->refs) return;
    if (m->kind == STORAGE_POOL) memory_put(s->ctx, &m->buffer);
    if (m->twin.data) memory_put(s->ctx, &m->twin);
    if (m->kind == STORAGE_ADOPTED) {
        m->next = s->to_release;
        s->to_release = m;
    } else {
        fu_free(m);
    }
}

int64_t lazy_bytes(const fusor_buffer *b) {
    int64_t bytes = ir_dtypes[b->dtype].bytes;
    for (int d = 0; d < b->rank; d++) bytes *= b->shape[d];
    return bytes;
}

void lazy_read_storage(lazy_state *s, uint32_t slot, lazy_storage *m) {
    lazy_slot *x = lazy_at(s, slot);
    x->kind = SLOT_LEAF;
    x->storage = m;
    x->prev_reader = 0;
    x->next_reader = m->readers;
    if (m->readers) lazy_at(s, m->readers)->prev_reader = slot;
    m->readers = slot;
    m->refs++;
}

void lazy_unread(lazy_state *s, uint32_t slot) {
    lazy_slot *x = lazy_at(s, slot);
    if (x->prev_reader) lazy_at(s, x->prev_reader)->next_reader = x->next_reader;
    else x->storage->readers = x->next_reader;
    if (x->next_reader) lazy_at(s, x->next_reader)->prev_reader = x->prev_reader;
    lazy_storage *m = x->storage;
    x->storage = NULL;
    lazy_storage_drop(s, m);
}

/* ---- slots ---- */

uint32_t lazy_slot_hidden(lazy_state *s, slot_kind kind, ir_op op) {
    uint32_t slot = s->free_head;
    if (slot) {
        s->free_head = lazy_at(s, slot)->next;
        if (!s->free_head) s->free_tail = 0;
    } else {
        if (s->n_slots >= s->n_chunks * LAZY_CHUNK) {
            lazy_slot **chunks = fu_realloc(s->chunks, (s->n_chunks + 1) * sizeof *chunks);
            if (!chunks) return 0;
            s->chunks = chunks;
            chunks[s->n_chunks] = fu_calloc(LAZY_CHUNK, sizeof **chunks);
            if (!chunks[s->n_chunks]) return 0;
            s->n_chunks++;
        }
        slot = s->n_slots++;
        lazy_at(s, slot)->generation = s->base_count;
    }
    lazy_slot *x = lazy_at(s, slot);
    uint32_t count = x->generation & LAZY_COUNT_MASK;
    memset(x, 0, offsetof(lazy_slot, inline_in));
    memset(&x->attr, 0, sizeof *x - offsetof(lazy_slot, attr));
    x->kind = kind;
    x->op = (uint8_t)op;
    x->generation = (uint32_t)op << 24 | count;
    x->in = x->inline_in;
    x->birth = ++s->next_birth;
    s->n_live++;
    return slot;
}

uint32_t lazy_slot_new(lazy_state *s, slot_kind kind, ir_op op) {
    lazy_scope *scope = lazy_scope_of_thread(s);
    if (scope != &s->root && !lazy_grow(&scope->slots, &scope->cap_slots, scope->n_slots + 1, sizeof *scope->slots))
        return 0;
    uint32_t slot = lazy_slot_hidden(s, kind, op);
    if (!slot) return 0;
    lazy_at(s, slot)->refs = 1;
    lazy_at(s, slot)->in_scope = true;
    if (scope != &s->root) scope->slots[scope->n_slots++] = slot;
    return slot;
}

fusor_tensor lazy_handle(lazy_state *s, uint32_t slot) {
    return (fusor_tensor){s->ctx, slot, slot ? lazy_at(s, slot)->generation : 0};
}

void lazy_clear_inputs(lazy_state *s, uint32_t slot) {
    lazy_slot *x = lazy_at(s, slot);
    uint32_t n = x->n_in;
    lazy_input *in = x->in, copy[LAZY_INLINE];
    if (in == x->inline_in && n) in = memcpy(copy, in, n * sizeof *in);
    x->n_in = 0;
    for (uint32_t i = 0; i < n; i++)
        if (in[i].slot) lazy_drop(s, in[i].slot);
    if (x->in != x->inline_in) fu_free(x->in);
    x->in = x->inline_in;
    fu_free(x->attr);
    fu_free(x->wants);
    x->attr = NULL;
    x->attr_bytes = 0;
    x->wants = NULL;
    x->n_wants = 0;
    x->is_barrier = false;
}

/* Chains are as long as a user's loop, so what dies is a list, not a recursion. */
void lazy_drop(lazy_state *s, uint32_t slot) {
    lazy_slot *x = lazy_at(s, slot);
    if (--x->refs) return;
    x->next = 0;
    for (uint32_t dying = slot; dying;) {
        uint32_t dead = dying;
        x = lazy_at(s, dead);
        dying = x->next;
        for (uint32_t i = 0; i < x->n_in; i++) {
            lazy_slot *in = x->in[i].slot ? lazy_at(s, x->in[i].slot) : NULL;
            if (!in || --in->refs) continue;
            in->next = dying;
            dying = x->in[i].slot;
        }
        if (x->in != x->inline_in) fu_free(x->in);
        fu_free(x->attr);
        fu_free(x->wants);
        fu_free(x->text);
        if (x->kind == SLOT_LEAF) lazy_unread(s, dead);
        if (x->kind == SLOT_WRAP) {
            for (uint32_t r = x->storage->readers; r; r = lazy_at(s, r)->next_reader) {
                if (lazy_at(s, r)->refs) continue; /* those that nothing took up go too */
                lazy_at(s, r)->next = dying;
                dying = r;
            }
            lazy_storage_drop(s, x->storage);
        }
        x->kind = SLOT_FREE;
        x->in = x->inline_in;
        x->n_in = 0;
        x->next = 0;
        s->n_live--;
        if ((++x->generation & LAZY_COUNT_MASK) == LAZY_COUNT_MASK) continue; /* retired */
        if (s->free_tail) lazy_at(s, s->free_tail)->next = dead;
        else s->free_head = dead;
        s->free_tail = dead; /* first in, first out: a stale handle stays recognizable for long */
    }
}

void lazy_drop_handle(lazy_state *s, uint32_t slot) {
    lazy_slot *x = lazy_at(s, slot);
    if (!x->in_scope && x->keeps == 0) lazy_drop(s, slot);
}

static const char *made_by(uint32_t generation) {
    uint32_t op = generation >> 24;
    return op > IR_OP_RESULT && op < IR_OP_COUNT ? ir_ops[op].name : "wrap";
}

uint32_t lazy_resolve(lazy_state *s, fusor_tensor t, const char *who, fu_error *e) {
    if (!t.owner) {
        FU_FAIL(e, FUSOR_ERROR_ARGUMENT,
                "%s: a tensor is no tensor: an operator without a context made it, or it was never set", who);
    } else if (op_is_weak(t)) {
        FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%s: a scalar has no memory; expected a tensor", who);
    } else if (builder_is_stale(t)) {
        FU_FAIL(e, FUSOR_ERROR_STALE, "%s: %s", who, builder_stale);
    } else if (builder_owns(t)) {
        FU_FAIL(e, FUSOR_ERROR_ARGUMENT,
                "%s: a value of a function that is being built has no data; compile the function and call it", who);
    } else if (t.owner != s->ctx) {
        FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%s: the tensors belong to different contexts; expected one", who);
    } else if (t.slot == 0) {
        lazy_no_memory(e);
    } else {
        lazy_slot *x = t.slot < s->n_slots ? lazy_at(s, t.slot) : NULL;
        if (!x || x->generation != t.generation || x->kind == SLOT_FREE || (!x->in_scope && x->keeps == 0)) {
            FU_FAIL(e, FUSOR_ERROR_STALE,
                    (t.generation & LAZY_COUNT_MASK) < s->base_count
                        ? "%s: stale tensor: the result of '%s' is of before a fork during an evaluation; this process "
                          "has no tensors of then"
                        : "%s: stale tensor: the result of '%s' is used after its scope has ended; fusor_keep makes it "
                          "outlive the scope",
                    who, made_by(t.generation));
        } else if (x->kind == SLOT_ERROR) {
            FU_FAIL(e, x->status, "%s", x->text ? x->text : "out of memory");
        } else {
            return t.slot;
        }
    }
    return 0;
}

uint32_t lazy_value_of(lazy_state *s, uint32_t slot) {
    lazy_slot *x = lazy_at(s, slot);
    if (x->kind != SLOT_WRAP) return slot;
    lazy_storage *m = x->storage;
    if (m->value) return m->value;
    if (m->readers) return m->readers;
    uint32_t leaf = lazy_slot_hidden(s, SLOT_LEAF, IR_OP_NONE);
    if (!leaf) return 0;
    lazy_slot *y = lazy_at(s, leaf);
    x = lazy_at(s, slot);
    y->dtype = x->dtype;
    y->rank = x->rank;
    memcpy(y->shape, x->shape, sizeof y->shape);
    lazy_read_storage(s, leaf, m);
    return leaf;
}

fusor_tensor lazy_bad_slot(lazy_state *s, ir_op op, const fu_error *e) {
    lazy_scope_error(lazy_scope_of_thread(s), e);
    uint32_t slot = lazy_slot_new(s, SLOT_ERROR, op);
    if (slot) {
        lazy_slot *x = lazy_at(s, slot);
        x->status = e->status;
        x->text = fu_malloc(e->length + 1);
        if (x->text) memcpy(x->text, e->text, e->length + 1);
    }
    (void)context_fail(s->ctx, e);
    return lazy_handle(s, slot);
}

fusor_tensor lazy_bad(fusor_context *ctx, const fu_error *e) {
    lazy_state *s = lazy_enter(ctx);
    if (!s) return (fusor_tensor){ctx, 0, 0};
    fusor_tensor t = lazy_bad_slot(s, IR_OP_NONE, e);
    lazy_leave(s);
    return t;
}

/* ---- wrapped memory ---- */

static fusor_status check_buffer(fu_error *e, const char *who, const fusor_context *ctx, const fusor_buffer *b) {
    int64_t bytes, low, high;
    FU_TRY(memory_check(e, who, b, true, &bytes));
    if (bytes && b->flags & FUSOR_STRIDED && !rt_find_range(b, &low, &high))
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%s: the strides leave the address space", who);
    return memory_check_device(e, who, ctx, b->device);
}

/* release: run by lazy_leave where this fails. */
static fusor_tensor wrap(fusor_context *ctx, const char *who, const fusor_buffer *b, int kind, void (*release)(void *),
                         void *user) {
    fu_error e;
    fu_error_clear(&e);
    lazy_state *s = lazy_enter(ctx);
    lazy_storage *m = s ? lazy_storage_new(b, kind) : NULL;
    if (!m) {
        if (s) lazy_leave(s);
        if (release) release(user);
        return (fusor_tensor){ctx, 0, 0};
    }
    m->refs = 1;
    m->release = release;
    m->user = user;
    uint32_t slot = 0;
    if (check_buffer(&e, who, ctx, b) == FUSOR_OK) {
        slot = lazy_slot_new(s, SLOT_WRAP, IR_OP_NONE);
        if (!slot) lazy_no_memory(&e);
    }
    fusor_tensor t;
    if (slot) {
        lazy_slot *x = lazy_at(s, slot);
        x->dtype = (uint8_t)b->dtype;
        x->rank = (uint8_t)b->rank;
        memcpy(x->shape, b->shape, (size_t)b->rank * sizeof *b->shape);
        x->storage = m;
        t = lazy_handle(s, slot);
    } else {
        t = lazy_bad_slot(s, IR_OP_NONE, &e);
        lazy_storage_drop(s, m);
    }
    lazy_leave(s);
    return t;
}

static fusor_tensor refuse_wrap(fusor_context *ctx, const char *who, const char *what) {
    fu_error e;
    fu_error_clear(&e);
    (void)FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "%s: %s is NULL", who, what);
    return lazy_bad(ctx, &e);
}

static fusor_tensor wrap_plain(fusor_context *ctx, const char *who, void *data, fusor_dtype dtype, int rank,
                               const int64_t *shape, uint32_t flags) {
    fusor_buffer b = {.data = data, .dtype = dtype, .rank = rank, .flags = flags};
    if (!ctx) return (fusor_tensor){NULL, 0, 0};
    if (rank > 0 && !shape) return refuse_wrap(ctx, who, "shape");
    for (int d = 0; shape && d < rank && d < IR_MAX_RANK; d++) b.shape[d] = shape[d];
    return wrap(ctx, who, &b, STORAGE_BORROWED, NULL, NULL);
}

fusor_tensor fusor_wrap(fusor_context *ctx, void *data, fusor_dtype dtype, int rank, const int64_t *shape) {
    return wrap_plain(ctx, "fusor_wrap", data, dtype, rank, shape, 0);
}

fusor_tensor fusor_wrap_const(fusor_context *ctx, const void *data, fusor_dtype dtype, int rank, const int64_t *shape) {
    return wrap_plain(ctx, "fusor_wrap_const", (void *)data, dtype, rank, shape, FUSOR_READONLY);
}

fusor_tensor lazy_adopt(fusor_context *ctx, const char *who, const fusor_buffer *buffer, void (*release)(void *user),
                        void *user) {
    return wrap(ctx, who, buffer, STORAGE_ADOPTED, release, user);
}

fusor_tensor fusor_adopt(fusor_context *ctx, const fusor_buffer *buffer, void (*release)(void *user), void *user) {
    if (ctx && buffer) return lazy_adopt(ctx, "fusor_adopt", buffer, release, user);
    fusor_tensor bad = ctx ? refuse_wrap(ctx, "fusor_adopt", "the buffer") : (fusor_tensor){NULL, 0, 0};
    if (release) release(user);
    return bad;
}

/* ---- handles ---- */

fusor_tensor fusor_keep(fusor_tensor t) {
    fu_error e;
    if (!t.owner || op_is_weak(t) || builder_owns(t) || t.slot == 0) return t;
    fu_error_clear(&e);
    lazy_state *s = lazy_enter(t.owner);
    if (!s) return t;
    lazy_slot *x = t.slot < s->n_slots ? lazy_at(s, t.slot) : NULL;
    bool good = x && x->generation == t.generation && x->kind != SLOT_FREE && (x->in_scope || x->keeps);
    if (good) {
        x->keeps++;
        (void)context_keep(s->ctx);
    } else {
        (void)lazy_resolve(s, t, "fusor_keep", &e);
        t = lazy_bad_slot(s, IR_OP_NONE, &e);
    }
    lazy_leave(s);
    return t;
}

void fusor_release(fusor_tensor t) {
    if (!t.owner || op_is_weak(t) || builder_owns(t) || t.slot == 0) return;
    fusor_context *ctx = t.owner;
    lazy_state *s = lazy_enter(ctx);
    if (!s) return;
    lazy_slot *x = t.slot < s->n_slots ? lazy_at(s, t.slot) : NULL;
    bool good = x && x->generation == t.generation && x->kind != SLOT_FREE && x->keeps;
    if (good) {
        x->keeps--;
        lazy_drop_handle(s, t.slot);
    }
    lazy_leave(s);
    if (good) fusor_context_free(ctx); /* may free everything, so with no lock */
}

fusor_tensor fusor_name(fusor_tensor t, const char *name) {
    fu_error e;
    if (!name || !t.owner || op_is_weak(t)) return t;
    if (builder_owns(t)) return builder_name(t, name);
    fu_error_clear(&e);
    lazy_state *s = lazy_enter(t.owner);
    if (!s) return t;
    uint32_t slot = lazy_resolve(s, t, "fusor_name", &e);
    size_t n = strnlen(name, 256);
    char *copy = slot ? fu_malloc(n + 1) : NULL;
    if (copy) {
        memcpy(copy, name, n);
        copy[n] = 0;
        fu_make_utf8(copy); /* reports are JSON */
        fu_free(lazy_at(s, slot)->text);
        lazy_at(s, slot)->text = copy;
    }
    lazy_leave(s);
    return t;
}

fusor_status fusor_shape_of(fusor_tensor t, fusor_buffer *out) {
    fu_error e;
    if (!out) return context_refuse("fusor_shape_of: out is NULL");
    if (!t.owner) return lazy_refuse(t);
    memset(&e, 0, offsetof(fu_error, text) + 1);
    if (op_is_weak(t)) {
        int literal = op_weak_operand(t).literal;
        *out = (fusor_buffer){.dtype = literal == IR_LIT_FLOAT  ? FUSOR_F64
                                       : literal == IR_LIT_BOOL ? FUSOR_BOOL
                                                                : FUSOR_I64};
        return FUSOR_OK;
    }
    if (builder_owns(t)) return builder_shape_of(t, out);
    lazy_state *s = lazy_enter(t.owner);
    if (!s) return lazy_no_state(t.owner);
    uint32_t slot = lazy_resolve(s, t, "fusor_shape_of", &e);
    if (slot) {
        const lazy_slot *x = lazy_at(s, slot);
        *out = (fusor_buffer){.dtype = x->dtype, .rank = x->rank};
        memcpy(out->shape, x->shape, x->rank * sizeof *x->shape);
    }
    lazy_leave(s);
    return slot ? FUSOR_OK : context_fail(t.owner, &e);
}

fusor_status fusor_status_of(fusor_tensor t) {
    fu_error e;
    if (!t.owner) return lazy_refuse(t);
    if (op_is_weak(t)) return FUSOR_OK;
    if (builder_owns(t)) return builder_status_of(t);
    fu_error_clear(&e);
    lazy_state *s = lazy_enter(t.owner);
    if (!s) return lazy_no_state(t.owner);
    (void)lazy_resolve(s, t, "fusor_status_of", &e);
    lazy_leave(s);
    return context_fail(t.owner, &e);
}

/* ---- the end ---- */

void lazy_free(fusor_context *ctx) {
    lazy_state *s = ctx->lazy;
    if (!s) return;
    ctx->lazy = NULL;
    rt_fork_remove(&s->hook);
    if (s->is_torn) return; /* not to be touched; the process is a fork of one that still has it */
    enter(s);
    while (s->scopes) {
        lazy_scope *scope = s->scopes;
        s->scopes = scope->outer;
        lazy_scope_clear(s, scope);
        fu_free(scope);
    }
    lazy_scope_clear(s, &s->root);
    /* Handles first: then nothing but the graph holds anything, and it goes with them. */
    for (uint32_t i = 1; i < s->n_slots; i++) {
        lazy_slot *x = lazy_at(s, i);
        if (x->kind == SLOT_FREE || (!x->in_scope && x->keeps == 0)) continue;
        x->in_scope = false;
        x->keeps = 0;
        lazy_drop(s, i);
    }
    for (uint32_t i = 1; i < s->n_slots; i++) {
        lazy_slot *x = lazy_at(s, i);
        if (x->kind != SLOT_LEAF || x->refs) continue; /* readers that nothing took up */
        x->refs = 1;
        lazy_drop(s, i);
    }
    lazy_plans_free(s);
    for (int i = 0; i < LAZY_MEMO; i++) fu_free(s->memo[i]);
    for (uint32_t i = 0; i < s->n_chunks; i++) fu_free(s->chunks[i]);
    fu_free(s->chunks);
    fu_free(s->order);
    fu_free(s->stack);
    fu_free(s->key);
    lazy_leave(s);
    pthread_mutex_destroy(&s->mutex);
    fu_free(s);
}

lazy_stats lazy_get_stats(fusor_context *ctx) {
    lazy_stats out = {0};
    lazy_state *s = lazy_enter(ctx);
    if (!s) return out;
    out = (lazy_stats){s->n_live, s->n_plans, s->plans_made, s->last_steps, s->last_device, s->last_key};
    lazy_leave(s);
    return out;
}
