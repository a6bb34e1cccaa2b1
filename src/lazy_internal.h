/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_SRC_LAZY_INTERNAL_H
#define FUSOR_SRC_LAZY_INTERNAL_H
/* Shared by lazy.c (tensors), lazy_record.c (one operator), lazy_scope.c (scopes and assignments), lazy_eval.c
 * (evaluation), lazy_place.c (on which device) and lazy_plan.c (from recorded operators to an executable).
 *
 * Everything hangs off one lazy_state per context, under its mutex, which is held while kernels run. A tensor is a slot
 * in a table of chunks; a handle is slot number and generation. The generation's upper byte is the operator, so that a
 * stale handle can name what made it; the count below it never wraps: a slot that has used it up is retired.
 *
 * Slots are counted: one reference for a valid handle (in an open scope, or kept), one for each operand that names it,
 * one for a pending assignment of it. Memory is a lazy_storage, counted by the slots that read it. Writing to it by an
 * assignment first moves the readers that outlive the write to a copy: that is what makes an assignment a snapshot. */
#include "auto.h"
#include "lazy.h"
#include "op_call.h"
#include "rt/fork.h"
#include <pthread.h>

typedef enum slot_kind { SLOT_FREE, SLOT_OP, SLOT_LEAF, SLOT_WRAP, SLOT_ERROR } slot_kind;

typedef struct lazy_storage {
    uint32_t refs;
    fusor_buffer buffer;
    enum { STORAGE_BORROWED, STORAGE_POOL, STORAGE_ADOPTED } kind;
    fusor_buffer twin; /* POOL: the same contents on another device (lazy_place.c); data NULL: none. Owned */
    bool is_const;
    bool is_shown;    /* POOL: a caller has its address, and may write it: no twin */
    uint32_t n_reads; /* evaluations that have read it, in contexts with device "auto" */
    void (*release)(void *user);
    void *user;
    uint32_t readers;          /* first LEAF slot that stands for its present contents; 0 = none */
    uint32_t value;            /* slot that a pending assignment will write; 0 = none. Counted */
    uint32_t writes;           /* assignments that have been written */
    struct lazy_storage *next; /* in the list of those to be released once no lock is held */
} lazy_storage;

typedef struct lazy_input {
    uint32_t slot;
    uint8_t dtype;
    ir_bits bits;
} lazy_input; /* slot 0: a scalar */

enum { LAZY_INLINE = 3, LAZY_CHUNK = 256, LAZY_MEMO = 1024, LAZY_PLANS = 256, LAZY_COUNT_MASK = 0xffffff };

/* Another slot that a hint names: not counted, so it may be gone; then its birth differs. */
typedef struct lazy_want {
    uint32_t slot;
    uint64_t birth;
} lazy_want;

typedef struct lazy_slot {
    slot_kind kind;
    uint32_t generation, refs, keeps;
    bool in_scope;
    uint8_t dtype, rank;
    uint8_t op; /* that made it; stays when it has been evaluated. 0: wrapped memory */
    uint8_t to, result;
    int64_t shape[IR_MAX_RANK];
    uint32_t n_in, attr_bytes; /* OP */
    lazy_input *in, inline_in[LAZY_INLINE];
    unsigned char *attr; /* encoded by lazy_pack_attrs; NULL: all defaults */
    lazy_want *wants;    /* OP: values to be computed in one kernel with it */
    uint32_t n_wants;
    bool is_barrier;       /* OP */
    uint64_t birth;        /* a number that no other slot ever has */
    lazy_storage *storage; /* LEAF, WRAP */
    uint32_t next_reader, prev_reader;
    fusor_status status;  /* ERROR */
    char *text;           /* ERROR: message; others: the name, or NULL */
    uint32_t next;        /* free list, list of the dying */
    uint64_t mark;        /* of the evaluation that has it in its order */
    uint32_t index, uses; /* there: place, references that will be left afterwards */
    bool is_root;         /* it becomes a result */
} lazy_slot;

/* An assignment that waits. before: the value that an assignment of another scope would have written there; counted,
 * and pending again where this scope's are dropped, unless the memory has been written since. */
typedef struct lazy_pending {
    lazy_storage *to; /* counted */
    uint32_t before;  /* 0: none */
    uint32_t writes;  /* the memory's */
} lazy_pending;

typedef struct lazy_scope {
    uint64_t id, thread;
    struct lazy_scope *outer; /* list of all open scopes, newest first */
    uint32_t *slots, n_slots, cap_slots;
    lazy_pending *pending; /* in order of assignment */
    uint32_t n_pending, cap_pending;
    fusor_status status; /* first error */
    char *text;
    bool is_broken; /* an assignment failed: none is run */
} lazy_scope;

typedef struct lazy_memo {
    uint64_t hash;
    uint32_t bytes;
    uint8_t dtype, rank, in_dtype[8];
    int64_t shape[IR_MAX_RANK];
    unsigned char key[];
} lazy_memo;

/* Of one plan at some shapes: lazy_place.c. */
enum { LAZY_COSTS = 4 };
typedef struct lazy_costs {
    uint64_t hash; /* 0: none */
    auto_costs of;
    uint32_t calls;
} lazy_costs;

typedef struct lazy_timed {
    uint64_t key; /* 0: the evaluation is not timed */
    rt_side side;
    int64_t begin_ns;
} lazy_timed;

typedef struct lazy_plan {
    uint64_t hash, used;
    uint32_t bytes;
    unsigned char *key;
    rt_exec *exec;         /* NULL: this program needs its sizes baked; look with them */
    fusor_executable *exe; /* device "auto": it has exec too; its context is not held. Else NULL */
    bool may_refuse;       /* an index, when other steps have run */
    bool is_cpu_only;      /* "auto": the other side cannot be had */
    bool has_side;
    rt_side side; /* of the evaluation before */
    lazy_costs costs[LAZY_COSTS];
    uint32_t next_costs;
    struct lazy_plan *next; /* in its bucket */
} lazy_plan;

typedef struct lazy_state {
    fusor_context *ctx; /* borrowed */
    pthread_mutex_t mutex;
    rt_fork_hook hook;
    volatile bool is_busy, is_torn; /* torn: forked while a thread was inside; the child starts anew */
    lazy_slot **chunks;
    uint32_t n_chunks, n_slots, n_live, free_head, free_tail, base_count;
    lazy_scope root, *scopes;
    uint64_t next_scope, next_birth, mark;
    lazy_storage *to_release;
    lazy_memo *memo[LAZY_MEMO];
    lazy_plan *plans[LAZY_PLANS]; /* buckets */
    uint32_t n_plans, last_steps;
    uint64_t plan_clock, plans_made;
    bool is_read;     /* what is evaluated now is read by the CPU next */
    lazy_timed timed; /* the evaluation that is timed: until its result is read */
    uint64_t last_key;
    int32_t last_device;
    /* Work space of an evaluation, kept from one to the next. */
    uint32_t *order, n_order, cap_order;
    uint32_t *stack, cap_stack;
    unsigned char *key;
    size_t key_bytes, cap_key;
} lazy_state;

/* ---- lazy.c ---- */
/* The context's state, locked; NULL when there is no memory. lazy_leave unlocks, then runs release callbacks. */
lazy_state *lazy_enter(fusor_context *ctx);
void lazy_leave(lazy_state *s);
static inline lazy_slot *lazy_at(const lazy_state *s, uint32_t slot) {
    return &s->chunks[slot / LAZY_CHUNK][slot % LAZY_CHUNK];
}
/* A new slot with one reference that is its handle's, which belongs to this thread's innermost scope; 0: no memory.
 * lazy_slot_hidden: without a handle and references. */
uint32_t lazy_slot_new(lazy_state *s, slot_kind kind, ir_op op);
uint32_t lazy_slot_hidden(lazy_state *s, slot_kind kind, ir_op op);
void lazy_drop(lazy_state *s, uint32_t slot);        /* gives a reference back; frees what nothing needs */
void lazy_drop_handle(lazy_state *s, uint32_t slot); /* where it is neither in a scope nor kept any more */
/* The slot behind a handle of s, or 0 with a message: stale, of another context, or a bad one. */
uint32_t lazy_resolve(lazy_state *s, fusor_tensor t, const char *who, fu_error *e);
/* The slot to compute with: of wrapped memory, the pending value or a reader of it. 0: no memory. */
uint32_t lazy_value_of(lazy_state *s, uint32_t slot);
void lazy_read_storage(lazy_state *s, uint32_t slot, lazy_storage *m); /* makes a slot a LEAF that reads m */
void lazy_unread(lazy_state *s, uint32_t slot);                        /* the opposite */
void lazy_clear_inputs(lazy_state *s, uint32_t slot);
lazy_storage *lazy_storage_new(const fusor_buffer *b, int kind);
void lazy_storage_drop(lazy_state *s, lazy_storage *m);
fusor_status lazy_no_memory(fu_error *e);
fusor_status lazy_no_state(const fusor_context *ctx); /* where lazy_enter gave NULL, or no memory is left for a scope */
fusor_status lazy_refuse(fusor_tensor t);             /* says what is wrong with a handle that names no context */
int64_t lazy_bytes(const fusor_buffer *b);            /* of its elements, without gaps */
fusor_tensor lazy_handle(lazy_state *s, uint32_t slot);
fusor_tensor lazy_bad_slot(lazy_state *s, ir_op op, const fu_error *e); /* an error as a handle; recorded too */
bool lazy_grow(void *at, uint32_t *cap, uint32_t want, size_t each);    /* at: address of a pointer */
/* ---- lazy_hint.c ---- */
bool lazy_has_hints(const lazy_slot *x);
/* The place in s->order of a value that x wants beside it, or UINT32_MAX where it is not computed there. */
uint32_t lazy_want_at(const lazy_state *s, const lazy_want *w);
/* Hints of x for the graph; id_of: nodes by place in the order. */
fusor_status lazy_add_hints(const lazy_state *s, ir_graph *g, const lazy_slot *x, const ir_id *id_of);
/* ---- lazy_record.c ---- */
/* Attributes as bytes and back. Each: whether it is set; a count of 16 bits; its number or integer; then its list, or
 * the characters of a text. Lists point into the bytes, which are not aligned: lazy_list_at. */
enum { LAZY_ATTR_HEAD = 1 + 2 + 8 };
uint32_t lazy_pack_attrs(ir_op op, const op_attr *attr, unsigned char *out, uint32_t room); /* 0: does not fit */
void lazy_unpack_attrs(ir_op op, const unsigned char *in, op_attr *out);
static inline int64_t lazy_list_at(const op_attr *x, uint32_t i) {
    int64_t v;
    memcpy(&v, (const char *)x->list + i * sizeof v, sizeof v);
    return v;
}

/* ---- lazy_scope.c ---- */
lazy_scope *lazy_scope_of_thread(lazy_state *s); /* innermost of this thread; &s->root where none is open */
void lazy_scope_error(lazy_scope *scope, const fu_error *e);
/* Assignments that are written, or will not be. */
void lazy_drop_pending(lazy_state *s, lazy_scope *scope);
void lazy_scope_clear(lazy_state *s, lazy_scope *scope); /* its lists; no assignment runs */

/* ---- lazy_eval.c ---- */
/* Evaluates these slots and, in the same graph, the scope's pending assignments. */
fusor_status lazy_eval_slots(lazy_state *s, fu_error *e, lazy_scope *scope, uint32_t n, const uint32_t *slots);

/* ---- lazy_plan.c ---- */
typedef struct lazy_result {
    uint32_t slot;
    lazy_storage *over;
} lazy_result; /* over: memory it is written to, or NULL */
/* The plan of s->order with these results: found, or made. Borrowed from s. Its parameters are the leaves and the
 * scalars of s->order, in order: each slot's own scalars come right before the slot. */
/* The position in s->order of a leaf that reads m, whose buffer a result may be written over; -1: none. */
int lazy_leaf_of(const lazy_state *s, const lazy_storage *m);
fusor_status lazy_plan_get(lazy_state *s, fu_error *e, uint32_t n, const lazy_result *results, lazy_plan **out);
void lazy_plans_free(lazy_state *s);

/* ---- lazy_place.c ---- */
/* One call of a plan with device "auto", on the side that is expected to be faster. from: by input, its storage, or
 * NULL. out: what the results are; where they are is filled in. lazy_placed_done: when the results are where they are
 * wanted. */
fusor_status lazy_call_placed(lazy_state *s, fu_error *e, lazy_plan *p, int n_in, fusor_buffer *in,
                              lazy_storage *const *from, int n, const lazy_result *results, fusor_buffer *out,
                              bool is_read);
fusor_status lazy_placed_done(lazy_state *s, fu_error *e);
#endif
