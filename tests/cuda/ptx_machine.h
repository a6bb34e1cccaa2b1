/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef PTX_MACHINE_H
#define PTX_MACHINE_H
/* A grid that runs, for the files of the interpreter: ptx_run.c (lanes, steps, blocks), ptx_warp.c (what a whole warp
 * does). */
#include "ptx.h"
#include <setjmp.h>

enum { LANES = 32, MAX_WARPS = 32, DONE = INT32_MAX };

/* Who touched a word of shared memory last. A warp has a clock, which goes on where others may come to know what it did
 * before; an access is ordered behind another one where the warp knows of a clock of that one's warp that is as late.
 */
typedef struct word_use {
    uint32_t clock;   /* of the writer, then */
    uint8_t writer;   /* warp + 1 */
    bool is_barrier;  /* part of one */
    uint32_t readers; /* bit a warp: since it was written; their clocks: run.read */
} word_use;

/* A barrier in shared memory: mbarrier. */
typedef struct mbarrier {
    uint64_t at;
    uint32_t count, missing, phase; /* missing: arrivals of this phase */
    int maker;                      /* warp */
    uint32_t made;                  /* its clock */
    uint32_t clock[MAX_WARPS];      /* what those know who arrived */
    uint32_t known[MAX_WARPS];      /* and what a warp knows that has waited */
} mbarrier;
enum { MAX_MBARRIERS = 64 };

/* An asynchronous copy that was not waited for; or, without bytes, an arrival at barrier `to` behind the copies of its
 * lane. */
typedef struct pending {
    uint64_t to, from;
    uint32_t bytes, given; /* bytes to fill, bytes to copy: the rest is 0 */
    int lane, group;
    int line;
} pending;

/* A product of wgmma that was not waited for: what it reads may not change until then. */
typedef struct in_flight {
    ptx_product product;
    uint64_t sum; /* of what it read */
    int group;
    const ptx_inst *inst;
    float d[16][PTX_WGMMA_COLUMNS]; /* what the accumulators become */
    bool is_last;                   /* of the products with these accumulators */
} in_flight;

typedef struct warp {
    int number;
    uint32_t exited;
    uint32_t waiting; /* for other lanes at their instruction */
    bool is_together; /* all lanes that have not exited are at `at`, and pc[] is not kept */
    int at, pc[LANES];
    bool carry[LANES];
    bool at_barrier;
    int barrier[2]; /* lines: the last one that was passed, and the one where it waits or waited */
    uint64_t *reg;  /* [n_regs][LANES] */
    uint8_t *local; /* [LANES][local_bytes] */
    pending *copy;
    int n_copies, group;
    in_flight *product;
    int n_products, product_group;
    bool has_fence;             /* wgmma.fence since the registers could be touched */
    uint32_t n_fences;          /* fence.proxy.async */
    bool is_spinning;           /* its last step was to ask a barrier in vain */
    uint32_t clock[MAX_WARPS];  /* its own, and what it knows of others' */
    uint32_t fenced[MAX_WARPS]; /* at its last fence.proxy.async */
} warp;

typedef struct run {
    const ptx_launch *l;
    const ptx_entry *e;
    uint32_t block[3]; /* index of the block that runs */
    int n_threads, n_warps;
    warp w[MAX_WARPS];
    uint8_t *shared;
    uint64_t shared_bytes;
    word_use *use;
    uint32_t *read; /* [word][n_warps]: clocks of who read it */
    struct {
        uint8_t writer;  /* warp + 1 that wrote the word by st or cp.async, */
        uint32_t fences; /* after so many of its fences */
        uint32_t clock;
    } * proxy;
    mbarrier barrier[MAX_MBARRIERS];
    int n_barriers;
    uint32_t latest;   /* clock */
    uint64_t progress; /* what a warp that waits for a barrier may wait for */
    bool is_touched;   /* shared memory, since the last barrier */
    uint64_t steps;
    const ptx_inst *now;
    char *error;
    jmp_buf failed;
} run;

/* The grid ends with this error; thread -1: no single one is at fault. */
_Noreturn void ptx_fail(run *r, int thread, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Bytes of shared memory are used by a lane: a race is an error. */
void ptx_note_use(run *r, const warp *w, uint64_t at, uint64_t bytes, bool is_write, int lane);
/* Host memory behind an address; is_atomic: no race. */
uint8_t *ptx_memory(run *r, warp *w, int lane, ptx_space space, uint64_t at, uint64_t bytes, bool is_write,
                    bool is_atomic);
uint64_t ptx_special_value(const run *r, const warp *w, int lane, int id);
/* What an atomic operation or a reduction puts in the place of `old`. */
uint64_t ptx_combined(run *r, int thread, const ptx_inst *i, uint64_t old, uint64_t v, uint64_t other);
/* Lanes of the mask that are not here are an error. */
void ptx_need_all(run *r, warp *w, uint32_t active, uint32_t mask);
/* ---- ptx_mbarrier.c ---- */
void ptx_begin_clocks(run *r); /* of a block */
void ptx_meet(run *r);         /* all warps, at a barrier of the block */
void ptx_mbarrier(run *r, warp *w, const ptx_inst *i, uint32_t active);
void ptx_arrive_later(run *r, warp *w, const ptx_inst *i, uint32_t active); /* cp.async.mbarrier.arrive */
void ptx_arrive(run *r, warp *w, int lane, uint64_t at); /* one arrival, of what was known by who knew it then */
/* ptx_warp.c: the copies of lanes before their arrivals at this barrier are done, and so are these. */
void ptx_finish_arrivals(run *r, uint64_t at);
void ptx_push_pending(run *r, warp *w, pending p);
/* ptx_warp.c. false: not an instruction of the whole warp. */
bool ptx_whole_warp(run *r, warp *w, const ptx_inst *i, uint32_t active);

static inline bool has(const ptx_inst *i, unsigned __int128 m) { return (i->modifier & m) != 0; }
static inline int thread_of(const warp *w, int lane) { return w->number * LANES + lane; }

static inline void mark(run *r, int line, int what) {
    if (r->l->counts && r->l->counts->reached) r->l->counts->reached[line] |= (uint8_t)what;
}

/* ---- operands ---- */
static inline uint64_t value(const run *r, const warp *w, int lane, const ptx_operand *o) {
    switch (o->kind) {
    case PTX_REG: return w->reg[o->reg * LANES + lane] ^ o->is_negated;
    case PTX_SPECIAL: return ptx_special_value(r, w, lane, o->reg);
    case PTX_SINK: return 0;
    default: return o->value;
    }
}

static inline void set(warp *w, int lane, const ptx_operand *o, uint64_t v) {
    if (o->kind == PTX_REG) w->reg[o->reg * LANES + lane] = v;
}

static inline uint64_t address(const warp *w, int lane, const ptx_operand *o) {
    return o->value + (o->reg >= 0 ? w->reg[o->reg * LANES + lane] : 0);
}

static inline const ptx_operand *element(const run *r, const ptx_operand *vector, int k) {
    return vector->kind == PTX_VECTOR ? &r->e->element[vector->second + k] : vector;
}

static inline uint64_t cut(ptx_type t, uint64_t v) {
    int bytes = ptx_bytes(t);
    return bytes >= 8 ? v : v & ((1ull << 8 * bytes) - 1);
}

static inline uint64_t extended(ptx_type t, uint64_t v) {
    if (t < PTX_S8 || t > PTX_S64) return v;
    int shift = 64 - 8 * ptx_bytes(t);
    return (uint64_t)((int64_t)(v << shift) >> shift);
}
#endif
