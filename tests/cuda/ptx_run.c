/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ptx_run.c: runs a grid. A block runs warp after warp; a warp runs until it waits at a barrier or is done. Within a warp, the
 * lanes with the least program counter go together: threads that took different ways meet again where the ways do. */
#include "ptx.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 32, MAX_WARPS = 32, DONE = INT32_MAX };
#define MAX_STEPS 4000000000ull /* warp instructions of a block: what runs longer hangs */

/* Who touched a word of shared memory since the last barrier. */
typedef struct word_use {
    uint32_t epoch;
    uint8_t writer;   /* warp + 1 */
    uint32_t readers; /* bit a warp */
} word_use;

/* An asynchronous copy that was not waited for. */
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
    bool has_fence;    /* wgmma.fence since the registers could be touched */
    uint32_t n_fences; /* fence.proxy.async */
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
    struct {
        uint8_t writer;  /* warp + 1 that wrote the word by st or cp.async, */
        uint32_t fences; /* after so many of its fences */
    } *proxy;
    bool is_touched; /* shared memory, since the last barrier */
    uint32_t epoch;
    uint64_t steps;
    const ptx_inst *now;
    char *error;
    jmp_buf failed;
} run;

static _Noreturn void fail(run *r, int thread, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = snprintf(r->error, PTX_ERROR_ROOM, "ptx:%d: %s: block %u,%u,%u", r->now ? r->now->line : 0, r->e->name,
                     r->block[0], r->block[1], r->block[2]);
    if (thread >= 0) n += snprintf(r->error + n, (size_t)(PTX_ERROR_ROOM - n), " thread %d", thread);
    n += snprintf(r->error + n, (size_t)(PTX_ERROR_ROOM - n), ": ");
    vsnprintf(r->error + n, (size_t)(PTX_ERROR_ROOM - n), format, args);
    va_end(args);
    longjmp(r->failed, 1);
}

static bool has(const ptx_inst *i, unsigned __int128 m) { return (i->modifier & m) != 0; }
static int thread_of(const warp *w, int lane) { return w->number * LANES + lane; }

static void mark(run *r, int line, int what) {
    if (r->l->counts && r->l->counts->reached) r->l->counts->reached[line] |= (uint8_t)what;
}

/* ---- memory ---- */
static void note_use(run *r, const warp *w, uint64_t at, uint64_t bytes, bool is_write, int lane) {
    r->is_touched = true;
    for (uint64_t k = at / 4; k <= (at + bytes - 1) / 4; k++) {
        word_use *u = &r->use[k];
        if (u->epoch != r->epoch) *u = (word_use){.epoch = r->epoch};
        if (u->writer && u->writer != w->number + 1)
            fail(r, thread_of(w, lane), "race in shared memory at %llu: warp %d wrote it and no barrier is between",
                 (unsigned long long)(4 * k), u->writer - 1);
        if (is_write) {
            if (u->readers & ~(1u << w->number))
                fail(r, thread_of(w, lane),
                     "race in shared memory at %llu: another warp read it and no barrier is between",
                     (unsigned long long)(4 * k));
            u->writer = (uint8_t)(w->number + 1);
            r->proxy[k].writer = (uint8_t)(w->number + 1);
            r->proxy[k].fences = w->n_fences;
        } else u->readers |= 1u << w->number;
    }
}

/* Host memory behind an address; is_atomic: no race. */
static uint8_t *memory(run *r, warp *w, int lane, ptx_space space, uint64_t at, uint64_t bytes, bool is_write,
                       bool is_atomic) {
    uint64_t window = at >> 52 << 52;
    if (space == PTX_GENERIC && window == PTX_WINDOW_SHARED) space = PTX_SHARED, at -= window;
    if (space == PTX_GENERIC && window == PTX_WINDOW_LOCAL) space = PTX_LOCAL, at -= window;
    uint64_t align = bytes > 16 ? 16 : bytes;
    if (at % align)
        fail(r, thread_of(w, lane), "address %#llx is not aligned to %llu", (unsigned long long)at,
             (unsigned long long)align);
    if (space == PTX_SHARED) {
        if (at > r->shared_bytes || bytes > r->shared_bytes - at)
            fail(r, thread_of(w, lane), "%llu bytes at %llu of %llu bytes of shared memory", (unsigned long long)bytes,
                 (unsigned long long)at, (unsigned long long)r->shared_bytes);
        if (!is_atomic) note_use(r, w, at, bytes, is_write, lane);
        return r->shared + at;
    }
    if (space == PTX_LOCAL) {
        if (at > r->e->local_bytes || bytes > r->e->local_bytes - at)
            fail(r, thread_of(w, lane), "outside local memory");
        return w->local + (uint64_t)lane * r->e->local_bytes + at;
    }
    if (space == PTX_PARAM) {
        if (is_write || at > r->e->param_bytes || bytes > r->e->param_bytes - at)
            fail(r, thread_of(w, lane), "outside the parameters");
        return (uint8_t *)(uintptr_t)((const uint8_t *)r->l->params + at);
    }
    if (window == PTX_CONSTANTS) {
        at -= window;
        if (is_write || at > r->l->module->constant_bytes || bytes > r->l->module->constant_bytes - at)
            fail(r, thread_of(w, lane), "outside the module's constants");
        return r->l->module->constants + at;
    }
    void *p = r->l->memory(r->l->user, at, bytes, is_write);
    if (!p)
        fail(r, thread_of(w, lane), "%s of %llu bytes at %#llx, which is not allocated", is_write ? "write" : "read",
             (unsigned long long)bytes, (unsigned long long)at);
    return p;
}

/* ---- operands ---- */
static uint64_t special(const run *r, const warp *w, int lane, int id) {
    uint32_t t = (uint32_t)thread_of(w, lane);
    const uint32_t *b = r->l->block;
    if (id < PTX_NTID) return id == PTX_TID ? t % b[0] : id == PTX_TID + 1 ? t / b[0] % b[1] : t / b[0] / b[1];
    if (id < PTX_CTAID) return b[id - PTX_NTID];
    if (id < PTX_NCTAID) return r->block[id - PTX_CTAID];
    if (id < PTX_LANEID) return r->l->grid[id - PTX_NCTAID];
    return id == PTX_LANEID ? (uint64_t)lane : id == PTX_WARPID ? (uint64_t)w->number : r->steps & 0xffffffff;
}

static uint64_t value(const run *r, const warp *w, int lane, const ptx_operand *o) {
    switch (o->kind) {
    case PTX_REG: return w->reg[o->reg * LANES + lane] ^ o->is_negated;
    case PTX_SPECIAL: return special(r, w, lane, o->reg);
    case PTX_SINK: return 0;
    default: return o->value;
    }
}

static void set(warp *w, int lane, const ptx_operand *o, uint64_t v) {
    if (o->kind == PTX_REG) w->reg[o->reg * LANES + lane] = v;
}

static uint64_t address(const warp *w, int lane, const ptx_operand *o) {
    return o->value + (o->reg >= 0 ? w->reg[o->reg * LANES + lane] : 0);
}

static const ptx_operand *element(const run *r, const ptx_operand *vector, int k) {
    return vector->kind == PTX_VECTOR ? &r->e->element[vector->second + k] : vector;
}

static uint64_t cut(ptx_type t, uint64_t v) {
    int bytes = ptx_bytes(t);
    return bytes >= 8 ? v : v & ((1ull << 8 * bytes) - 1);
}

static uint64_t extended(ptx_type t, uint64_t v) {
    if (t < PTX_S8 || t > PTX_S64) return v;
    int shift = 64 - 8 * ptx_bytes(t);
    return (uint64_t)((int64_t)(v << shift) >> shift);
}

/* ---- one instruction on one lane ---- */
static void load(run *r, warp *w, int lane, const ptx_inst *i) {
    int bytes = ptx_bytes(i->type), n = i->in[0].kind == PTX_VECTOR ? i->in[0].reg : 1;
    uint8_t *p = memory(r, w, lane, i->in[1].space ? i->in[1].space : i->space, address(w, lane, &i->in[1]),
                        (uint64_t)(n * bytes), false, false);
    for (int k = 0; k < n; k++) {
        uint64_t v = 0;
        memcpy(&v, p + k * bytes, (size_t)bytes);
        set(w, lane, element(r, &i->in[0], k), extended(i->type, v));
    }
}

static void store(run *r, warp *w, int lane, const ptx_inst *i) {
    int bytes = ptx_bytes(i->type), n = i->in[1].kind == PTX_VECTOR ? i->in[1].reg : 1;
    uint8_t *p = memory(r, w, lane, i->in[0].space ? i->in[0].space : i->space, address(w, lane, &i->in[0]),
                        (uint64_t)(n * bytes), true, false);
    for (int k = 0; k < n; k++) {
        uint64_t v = value(r, w, lane, element(r, &i->in[1], k));
        memcpy(p + k * bytes, &v, (size_t)bytes);
    }
}

static void move(run *r, warp *w, int lane, const ptx_inst *i) {
    const ptx_operand *to = &i->in[0], *from = &i->in[1];
    if (from->kind == PTX_VECTOR) { /* pack */
        uint64_t v = 0;
        int bits = 8 * ptx_bytes(i->type) / from->reg;
        for (int k = 0; k < from->reg; k++)
            v |= (value(r, w, lane, element(r, from, k)) & ((1ull << bits) - 1)) << k * bits;
        set(w, lane, to, v);
    } else if (to->kind == PTX_VECTOR) { /* unpack */
        uint64_t v = value(r, w, lane, from);
        int bits = 8 * ptx_bytes(i->type) / to->reg;
        for (int k = 0; k < to->reg; k++) set(w, lane, element(r, to, k), v >> k * bits & ((1ull << bits) - 1));
    } else set(w, lane, to, cut(i->type, value(r, w, lane, from)));
}

/* The word that says how, of atom, red and redux, as an instruction of its own. */
static uint64_t combined(run *r, int thread, const ptx_inst *i, uint64_t old, uint64_t v, uint64_t other) {
    ptx_inst one = {.type = i->type, .n = 3};
    bool ok;
    if (has(i, PTX_M(EXCH))) return v;
    if (has(i, PTX_M(CAS))) return old == cut(i->type, v) ? other : old;
    one.op = has(i, PTX_M(ADD_))   ? PTX_ADD
             : has(i, PTX_M(MIN_)) ? PTX_MIN
             : has(i, PTX_M(MAX_)) ? PTX_MAX
             : has(i, PTX_M(AND_)) ? PTX_AND
             : has(i, PTX_M(OR_))  ? PTX_OR
             : has(i, PTX_M(XOR_)) ? PTX_XOR
                                   : PTX_TRAP;
    uint64_t out = ptx_alu(&one, (uint64_t[]){old, v}, &ok);
    if (!ok) fail(r, thread, "an atomic operation that is not known");
    return out;
}

static void atomic(run *r, warp *w, int lane, const ptx_inst *i) {
    int where = i->op == PTX_RED ? 0 : 1, bytes = ptx_bytes(i->type);
    uint8_t *p = memory(r, w, lane, i->space, address(w, lane, &i->in[where]), (uint64_t)bytes, true, true);
    uint64_t old = 0, v = value(r, w, lane, &i->in[where + 1]),
             other = i->n > where + 2 ? value(r, w, lane, &i->in[where + 2]) : 0;
    memcpy(&old, p, (size_t)bytes);
    uint64_t out = combined(r, thread_of(w, lane), i, old, v, other);
    memcpy(p, &out, (size_t)bytes);
    if (i->op == PTX_ATOM) set(w, lane, &i->in[0], old);
}

/* setp.lt.and.f32 %p|%q, a, b, c */
static void compare(run *r, warp *w, int lane, const ptx_inst *i) {
    bool ok = true;
    ptx_inst bare = *i;
    bare.modifier &= ~(PTX_M(AND_) | PTX_M(OR_) | PTX_M(XOR_));
    bool is = ptx_compare(&bare, value(r, w, lane, &i->in[1]), value(r, w, lane, &i->in[2]), &ok), not = !is;
    if (!ok) fail(r, thread_of(w, lane), "a comparison that is not known");
    if (i->n > 3) {
        bool c = value(r, w, lane, &i->in[3]) & 1;
        is = has(i, PTX_M(AND_)) ? is && c : has(i, PTX_M(OR_)) ? is || c : is != c;
        not = has(i, PTX_M(AND_)) ? not &&c : has(i, PTX_M(OR_)) ? not || c : not != c;
    }
    set(w, lane, &i->in[0], is);
    if (i->in[0].second >= 0) w->reg[i->in[0].second * LANES + lane] = not ;
}

static void compute(run *r, warp *w, int lane, const ptx_inst *i) {
    uint64_t in[PTX_MAX_OPERANDS];
    bool ok;
    for (int k = 1; k < i->n; k++) in[k - 1] = value(r, w, lane, &i->in[k]);
    uint64_t v = ptx_alu(i, in, &ok);
    if (!ok) fail(r, thread_of(w, lane), "an instruction with types or modifiers that are not known");
    set(w, lane, &i->in[0], v);
}

/* add.cc, addc, sub.cc, subc: sums of several words. */
static void add_carry(run *r, warp *w, int lane, const ptx_inst *i) {
    uint64_t a = cut(i->type, value(r, w, lane, &i->in[1])), b = cut(i->type, value(r, w, lane, &i->in[2]));
    bool is_sub = i->op == PTX_SUB || i->op == PTX_SUBC, takes = i->op == PTX_ADDC || i->op == PTX_SUBC;
    int bits = 8 * ptx_bytes(i->type);
    unsigned __int128 c = takes && w->carry[lane],
                      all = is_sub ? (unsigned __int128)a - b - c : (unsigned __int128)a + b + c;
    set(w, lane, &i->in[0], cut(i->type, (uint64_t)all));
    if (has(i, PTX_M(CC))) w->carry[lane] = all >> bits & 1;
}

static void convert_address(run *r, warp *w, int lane, const ptx_inst *i) {
    uint64_t at = value(r, w, lane, &i->in[1]), window = i->space == PTX_SHARED  ? PTX_WINDOW_SHARED
                                                         : i->space == PTX_LOCAL ? PTX_WINDOW_LOCAL
                                                                                 : 0;
    set(w, lane, &i->in[0], has(i, PTX_M(TO)) ? at - window : at + window);
}

/* ---- warp-wide instructions ---- */
static void need_all(run *r, warp *w, uint32_t active, uint32_t mask) {
    if (mask & ~active)
        fail(r, thread_of(w, __builtin_ctz(mask & ~active)),
             "is elsewhere (or has exited) while its warp waits for it here");
}

static void shuffle(run *r, warp *w, const ptx_inst *i, uint32_t active) {
    uint64_t out[LANES];
    bool valid[LANES];
    for (int lane = 0; lane < LANES; lane++) {
        if (!(active >> lane & 1)) continue;
        if (i->n > 4) {
            uint32_t mask = (uint32_t)value(r, w, lane, &i->in[4]);
            need_all(r, w, active, mask);
            if (!(mask >> lane & 1)) fail(r, thread_of(w, lane), "is not in the mask of its own shuffle");
        }
        int b = (int)(value(r, w, lane, &i->in[2]) & 31), c = (int)value(r, w, lane, &i->in[3]), segment = c >> 8 & 31,
            clamp = c & 31;
        int low = lane & segment, high = low | (clamp & ~segment), from = lane;
        if (has(i, PTX_M(UP))) from = lane - b, valid[lane] = from >= high;
        else if (has(i, PTX_M(DOWN))) from = lane + b, valid[lane] = from <= high;
        else if (has(i, PTX_M(BFLY))) from = lane ^ b, valid[lane] = from <= high;
        else from = low | (b & ~segment), valid[lane] = from <= high;
        if (!valid[lane]) from = lane;
        if (!(active >> from & 1)) fail(r, thread_of(w, lane), "shuffles from lane %d, which is not here", from);
        out[lane] = value(r, w, from, &i->in[1]) & 0xffffffff;
    }
    for (int lane = 0; lane < LANES; lane++) {
        if (!(active >> lane & 1)) continue;
        set(w, lane, &i->in[0], out[lane]);
        if (i->in[0].second >= 0) w->reg[i->in[0].second * LANES + lane] = valid[lane];
    }
}

static void vote(run *r, warp *w, const ptx_inst *i, uint32_t active) {
    uint32_t yes = 0, mask = active;
    for (int lane = 0; lane < LANES; lane++)
        if (active >> lane & 1) {
            yes |= (uint32_t)(value(r, w, lane, &i->in[1]) & 1) << lane;
            if (i->n > 2) mask = (uint32_t)value(r, w, lane, &i->in[2]);
        }
    need_all(r, w, active, mask);
    uint64_t out = has(i, PTX_M(BALLOT)) ? yes & mask
                   : has(i, PTX_M(ALL))  ? (yes & mask) == mask
                   : has(i, PTX_M(ANY))  ? (yes & mask) != 0
                                         : (yes & mask) == 0 || (yes & mask) == mask;
    for (int lane = 0; lane < LANES; lane++)
        if (active >> lane & 1) set(w, lane, &i->in[0], out);
}

static void reduce_warp(run *r, warp *w, const ptx_inst *i, uint32_t active) {
    uint64_t all = 0;
    bool any = false;
    for (int lane = 0; lane < LANES; lane++) {
        if (!(active >> lane & 1)) continue;
        need_all(r, w, active, (uint32_t)value(r, w, lane, &i->in[2]));
        uint64_t v = value(r, w, lane, &i->in[1]);
        all = any ? combined(r, thread_of(w, lane), i, all, v, 0) : v;
        any = true;
    }
    for (int lane = 0; lane < LANES; lane++)
        if (active >> lane & 1) set(w, lane, &i->in[0], all);
}

static void load_matrix(run *r, warp *w, const ptx_inst *i, uint32_t active) {
    need_all(r, w, active, ~0u);
    int n = has(i, PTX_M(X4)) ? 4 : has(i, PTX_M(X2)) ? 2 : 1;
    uint16_t row[4][8][8];
    for (int m = 0; m < n; m++)
        for (int k = 0; k < 8; k++)
            memcpy(row[m][k], memory(r, w, 8 * m + k, PTX_SHARED, address(w, 8 * m + k, &i->in[1]), 16, false, false),
                   16);
    for (int lane = 0; lane < LANES; lane++)
        for (int m = 0; m < n; m++) {
            int a = lane / 4, b = 2 * (lane % 4);
            uint64_t v = has(i, PTX_M(TRANS)) ? row[m][b][a] | (uint64_t)row[m][b + 1][a] << 16
                                              : row[m][a][b] | (uint64_t)row[m][a][b + 1] << 16;
            set(w, lane, element(r, &i->in[0], m), v);
        }
}

/* m16n8k16 on halves, m16n8k8 on tf32, accumulators f32; m16n8k32 on bytes, accumulators s32. A register of a fragment is 32 bits of
 * a row of k: a[row g + 8 * (r & 1)][word c + 4 * (r >> 1)], b[word c + 4 * r][column g], d[g + 8 * (r >> 1)][2 * c + (r & 1)] for
 * register r of lane 4 * g + c. */
static void multiply_matrix(run *r, warp *w, const ptx_inst *i, uint32_t active) {
    need_all(r, w, active, ~0u);
    ptx_type ta = i->from, tb = i->third; /* .type of D, A, B, C */
    bool is_bytes = ta == PTX_S8 || ta == PTX_U8, is_tf32 = ta == PTX_TF32;
    bool is_known = is_bytes ? i->type == PTX_S32 && (tb == PTX_S8 || tb == PTX_U8) && has(i, PTX_M(M16N8K32))
                             : i->type == PTX_F32 && ta == tb && (ta == PTX_F16 || ta == PTX_BF16 || is_tf32) &&
                                   has(i, is_tf32 ? PTX_M(M16N8K8) : PTX_M(M16N8K16));
    if (!is_known) fail(r, -1, "mma of a shape or type that is not known");
    int in_word = is_bytes ? 4 : is_tf32 ? 1 : 2, bits = 32 / in_word, kk = 8 * in_word;
    double a[16][32], b[32][8];
    uint64_t d[16][8];
#define ELEMENT(t, v, h)                                                                                               \
    (is_bytes ? (double)(int64_t)extended(t, (v) >> 8 * (h)&0xff)                                                      \
              : ptx_to_double(t, (v) >> bits * (h) & ((1ull << bits) - 1)))
    for (int lane = 0; lane < LANES; lane++) {
        int g = lane / 4, c = lane % 4;
        for (int k = 0; k < 4; k++) {
            uint64_t v = value(r, w, lane, element(r, &i->in[1], k));
            for (int h = 0; h < in_word; h++) a[g + 8 * (k & 1)][(c + 4 * (k >> 1)) * in_word + h] = ELEMENT(ta, v, h);
        }
        for (int k = 0; k < 2; k++) {
            uint64_t v = value(r, w, lane, element(r, &i->in[2], k));
            for (int h = 0; h < in_word; h++) b[(c + 4 * k) * in_word + h][g] = ELEMENT(tb, v, h);
        }
        for (int k = 0; k < 4; k++)
            d[g + 8 * (k >> 1)][2 * c + (k & 1)] = value(r, w, lane, element(r, &i->in[3], k)) & 0xffffffff;
    }
#undef ELEMENT
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            double sum = is_bytes ? 0 : ptx_to_double(PTX_F32, d[m][n]);
            for (int k = 0; k < kk; k++) sum += a[m][k] * b[k][n];
            d[m][n] = is_bytes ? (d[m][n] + (uint64_t)(int64_t)sum) & 0xffffffff : ptx_from_double(PTX_F32, sum);
        }
    for (int lane = 0; lane < LANES; lane++)
        for (int k = 0; k < 4; k++)
            set(w, lane, element(r, &i->in[0], k), d[lane / 4 + 8 * (k >> 1)][2 * (lane % 4) + (k & 1)]);
}

/* ---- wgmma ---- */
typedef struct reader {
    run *r;
    warp *w;
    uint64_t sum;
} reader;

/* Words that were written by other than the asynchronous proxy have to be fenced by who wrote them. */
static void touch(void *user, uint64_t at, uint64_t bytes) {
    reader *t = user;
    run *r = t->r;
    uint16_t bits;
    memcpy(&bits, r->shared + at, sizeof bits);
    t->sum = (t->sum ^ bits) * 0x100000001b3ull;
    note_use(r, t->w, at, bytes, false, 0);
    int writer = r->proxy[at / 4].writer;
    if (writer && r->w[writer - 1].n_fences == r->proxy[at / 4].fences)
        fail(r, -1, "reads shared memory at %llu, which warp %d wrote without fence.proxy.async", (unsigned long long)at,
             writer - 1);
}

static uint64_t read_product(run *r, warp *w, const ptx_product *p, float d[16][PTX_WGMMA_COLUMNS]) {
    reader t = {r, w, 0};
    const char *wrong = ptx_wgmma(p, &(ptx_shared){r->shared, r->shared_bytes, touch, &t}, d);
    if (wrong) fail(r, -1, "%s", wrong);
    return t.sum;
}

static void multiply_group(run *r, warp *w, const ptx_inst *i) {
    static float d[16][PTX_WGMMA_COLUMNS];
    int columns = has(i, PTX_M(M64N256K16)) ? 256 : has(i, PTX_M(M64N128K16)) ? 128 : 0;
    if (!columns || i->type != PTX_F32 || i->from != i->third || (i->from != PTX_F16 && i->from != PTX_BF16) || i->n != 8)
        fail(r, -1, "wgmma of a shape or type that is not known");
    if (!w->has_fence) fail(r, -1, "wgmma.mma_async without wgmma.fence");
    bool adds = value(r, w, 0, &i->in[3]) & 1;
    ptx_product p = {i->from,
                     columns,
                     w->number % 4,
                     {i->in[6].value != 0, i->in[7].value != 0},
                     {value(r, w, 0, &i->in[1]), value(r, w, 0, &i->in[2])}};
    for (int lane = 0; lane < LANES; lane++)
        for (int k = 0; k < columns / 2; k++)
            d[lane / 4 + 8 * (k >> 1 & 1)][k / 4 * 8 + 2 * (lane % 4) + (k & 1)] =
                adds ? (float)ptx_to_double(PTX_F32, value(r, w, lane, element(r, &i->in[0], k))) : 0;
    uint64_t sum = read_product(r, w, &p, d);
    for (int lane = 0; lane < LANES; lane++)
        for (int k = 0; k < columns / 2; k++)
            set(w, lane, element(r, &i->in[0], k),
                ptx_from_double(PTX_F32, d[lane / 4 + 8 * (k >> 1 & 1)][k / 4 * 8 + 2 * (lane % 4) + (k & 1)]));
    if (!(w->n_products & (w->n_products - 1))) {
        in_flight *more = realloc(w->product, (size_t)(w->n_products ? 2 * w->n_products : 1) * sizeof *more);
        if (!more) fail(r, -1, "out of memory");
        w->product = more;
    }
    w->product[w->n_products++] = (in_flight){p, sum, w->product_group};
}

/* The products of all but the last `keep` groups are done: until now nobody may have written what they read. */
static void finish_products(run *r, warp *w, int keep) {
    int left = 0;
    for (int k = 0; k < w->n_products; k++) {
        in_flight f = w->product[k];
        if (f.group > w->product_group - 1 - keep) w->product[left++] = f;
        else if (read_product(r, w, &f.product, NULL) != f.sum)
            fail(r, -1, "shared memory was written while a product still read it");
    }
    w->n_products = left;
    w->has_fence = false;
}

static void group_product(run *r, warp *w, const ptx_inst *i, uint32_t active) {
    need_all(r, w, active, ~0u);
    if (has(i, PTX_M(MMA_ASYNC))) multiply_group(r, w, i);
    else if (has(i, PTX_M(FENCE_))) w->has_fence = true;
    else if (has(i, PTX_M(COMMIT_GROUP))) w->product_group++;
    else if (has(i, PTX_M(WAIT_GROUP))) finish_products(r, w, (int)i->in[0].value);
    else fail(r, -1, "an instruction of wgmma that is not known");
}

/* ---- asynchronous copies: done when they are waited for ---- */
static void copy_later(run *r, warp *w, int lane, const ptx_inst *i) {
    if (!(w->n_copies & (w->n_copies - 1))) {
        pending *more = realloc(w->copy, (size_t)(w->n_copies ? 2 * w->n_copies : 1) * sizeof *more);
        if (!more) fail(r, -1, "out of memory");
        w->copy = more;
    }
    uint32_t bytes = (uint32_t)i->in[2].value, given = i->n > 3 ? (uint32_t)value(r, w, lane, &i->in[3]) : bytes;
    w->copy[w->n_copies++] = (pending){address(w, lane, &i->in[0]),
                                       address(w, lane, &i->in[1]),
                                       bytes,
                                       given < bytes ? given : bytes,
                                       lane,
                                       w->group,
                                       i->line};
}

/* All but the last `keep` groups of a lane's copies are done. */
static void finish_copies(run *r, warp *w, uint32_t active, int keep) {
    int left = 0;
    for (int k = 0; k < w->n_copies; k++) {
        pending c = w->copy[k];
        if (!(active >> c.lane & 1) || c.group > w->group - 1 - keep) {
            w->copy[left++] = c;
            continue;
        }
        if (c.given) mark(r, r->now->line, PTX_WAITED);
        uint8_t *to = memory(r, w, c.lane, PTX_SHARED, c.to, c.bytes, true, false);
        memset(to, 0, c.bytes);
        if (c.from % c.bytes)
            fail(r, thread_of(w, c.lane), "copies %u bytes of %#llx, which is not aligned to them", c.bytes,
                 (unsigned long long)c.from);
        const uint8_t *from = c.given ? r->l->memory(r->l->user, c.from, c.given, false) : NULL;
        if (c.given && !from)
            fail(r, thread_of(w, c.lane), "read of %u bytes at %#llx, which is not allocated", c.given,
                 (unsigned long long)c.from);
        if (from) memcpy(to, from, c.given);
    }
    w->n_copies = left;
}

static void copy_async(run *r, warp *w, const ptx_inst *i, uint32_t active) {
    if (has(i, PTX_M(COMMIT_GROUP))) w->group++;
    else if (has(i, PTX_M(WAIT_GROUP))) finish_copies(r, w, active, (int)i->in[0].value);
    else if (has(i, PTX_M(WAIT_ALL))) w->group++, finish_copies(r, w, active, 0);
    else
        for (int lane = 0; lane < LANES; lane++)
            if (active >> lane & 1) copy_later(r, w, lane, i);
}

/* ---- a warp ---- */
static void one_lane(run *r, warp *w, int lane, const ptx_inst *i) {
    switch (i->op) {
    case PTX_LD: load(r, w, lane, i); break;
    case PTX_ST: store(r, w, lane, i); break;
    case PTX_MOV: move(r, w, lane, i); break;
    case PTX_ATOM:
    case PTX_RED: atomic(r, w, lane, i); break;
    case PTX_ADDC:
    case PTX_SUBC: add_carry(r, w, lane, i); break;
    case PTX_ADD:
    case PTX_SUB:
        if (has(i, PTX_M(CC))) add_carry(r, w, lane, i);
        else compute(r, w, lane, i);
        break;
    case PTX_SETP: compare(r, w, lane, i); break;
    case PTX_CVTA: convert_address(r, w, lane, i); break;
    case PTX_MEMBAR:
    case PTX_PREFETCH: break;
    case PTX_TRAP: fail(r, thread_of(w, lane), "trap");
    default: compute(r, w, lane, i); break;
    }
}

/* A load or store of all lanes, each behind the one before or all of the same place, is one access of memory. Where anything is
 * wrong, lanes go one by one and say what. */
static bool whole_memory(run *r, warp *w, const ptx_inst *i, uint32_t active) {
    bool is_load = i->op == PTX_LD;
    if (active != ~0u || (!is_load && i->op != PTX_ST)) return false;
    const ptx_operand *where = &i->in[is_load ? 1 : 0], *what = &i->in[is_load ? 0 : 1];
    ptx_space space = where->space ? where->space : i->space;
    int bytes = ptx_bytes(i->type), n = what->kind == PTX_VECTOR ? what->reg : 1, each = n * bytes;
    if (space != PTX_GLOBAL && space != PTX_SHARED && space != PTX_PARAM) return false;
    uint64_t at = address(w, 0, where),
             step_of = where->reg >= 0 ? w->reg[where->reg * LANES + 1] - w->reg[where->reg * LANES] : 0;
    if ((step_of && (step_of != (uint64_t)each || space == PTX_PARAM)) || (!step_of && !is_load) || at % (uint64_t)each)
        return false;
    for (int lane = 2; where->reg >= 0 && lane < LANES; lane++)
        if (w->reg[where->reg * LANES + lane] != w->reg[where->reg * LANES] + (uint64_t)lane * step_of) return false;
    uint64_t all = step_of ? (uint64_t)each * LANES : (uint64_t)each;
    uint8_t *p = NULL;
    if (space == PTX_SHARED) {
        if (at > r->shared_bytes || all > r->shared_bytes - at) return false;
        note_use(r, w, at, all, !is_load, 0);
        p = r->shared + at;
    } else if (space == PTX_PARAM) p = memory(r, w, 0, space, at, all, false, false);
    else if (at >> 52 == 0) p = r->l->memory(r->l->user, at, all, !is_load);
    if (!p) return false;
    for (int k = 0; k < n; k++) {
        const ptx_operand *o = element(r, what, k);
        for (int lane = 0; lane < LANES; lane++) {
            uint8_t *q = p + (step_of ? lane * each : 0) + k * bytes;
            uint64_t v = is_load ? 0 : value(r, w, lane, o);
            if (is_load) {
                memcpy(&v, q, (size_t)bytes);
                set(w, lane, o, extended(i->type, v));
            } else memcpy(q, &v, (size_t)bytes);
        }
    }
    return true;
}

/* false: not an instruction of the whole warp */
static bool whole_warp(run *r, warp *w, const ptx_inst *i, uint32_t active) {
    switch (i->op) {
    case PTX_SHFL: shuffle(r, w, i, active); return true;
    case PTX_VOTE: vote(r, w, i, active); return true;
    case PTX_REDUX: reduce_warp(r, w, i, active); return true;
    case PTX_LDMATRIX: load_matrix(r, w, i, active); return true;
    case PTX_MMA: multiply_matrix(r, w, i, active); return true;
    case PTX_WGMMA: group_product(r, w, i, active); return true;
    case PTX_CP: copy_async(r, w, i, active); return true;
    case PTX_FENCE:
        w->n_fences += has(i, PTX_M(PROXY));
        return true;
    case PTX_ACTIVEMASK:
        for (int lane = 0; lane < LANES; lane++)
            if (active >> lane & 1) set(w, lane, &i->in[0], active);
        return true;
    case PTX_BAR:
    case PTX_BARRIER:
        if (has(i, PTX_M(WARP))) {
            need_all(r, w, active, (uint32_t)value(r, w, __builtin_ctz(active), &i->in[0]));
            return true;
        }
        need_all(r, w, active, ~w->exited);
        w->at_barrier = true;
        w->barrier[1] = i->line;
        return true;
    default: return false;
    }
}

/* ---- counts ---- */
static int vector_length(const ptx_operand *o) { return o->kind == PTX_VECTOR ? o->reg : 1; }

static void count(run *r, warp *w, const ptx_inst *i, uint32_t active) {
    ptx_counts *c = r->l->counts;
    uint64_t at[LANES] = {0};
    int bytes = 0, where = i->op == PTX_LD || i->op == PTX_LDMATRIX ? 1 : 0, n = __builtin_popcount(active);
    c->instructions++;
    if (c->reached) c->reached[i->line] |= 1;
    c->mma += i->op == PTX_MMA;
    c->wgmma += i->op == PTX_WGMMA && has(i, PTX_M(MMA_ASYNC));
    c->barriers += i->op == PTX_BAR || i->op == PTX_BARRIER;
    if (i->op == PTX_LD || i->op == PTX_ST) bytes = ptx_bytes(i->type) * vector_length(&i->in[1 - where]);
    if (i->op == PTX_LDMATRIX || (i->op == PTX_CP && i->n > 2)) bytes = 16;
    if (!bytes) return;
    ptx_space space = i->in[where].space ? i->in[where].space : i->space;
    if (i->op == PTX_CP)
        for (int lane = 0; lane < LANES; lane++) /* what a copy leaves out is not read */
            c->global_bytes += active >> lane & 1 ? i->n > 3 ? value(r, w, lane, &i->in[3]) : 16 : 0;
    else if (space == PTX_GLOBAL) c->global_bytes += (uint64_t)(n * bytes);
    if (i->op != PTX_CP && i->op != PTX_LDMATRIX && space != PTX_SHARED) return;
    if (i->op == PTX_LDMATRIX) {
        int lanes = 8 * (has(i, PTX_M(X4)) ? 4 : has(i, PTX_M(X2)) ? 2 : 1);
        active = lanes == LANES ? active : active & ((1u << lanes) - 1);
    }
    for (int lane = 0; lane < LANES; lane++)
        if (active >> lane & 1) at[lane] = address(w, lane, &i->in[where]);
    ptx_count_shared(c, at, active, bytes, i->line);
}

/* The lanes that an instruction of the whole warp needs; 0: it is none. */
static uint32_t needed(const run *r, const warp *w, int lane, const ptx_inst *i) {
    switch (i->op) {
    case PTX_SHFL: return i->n > 4 ? (uint32_t)value(r, w, lane, &i->in[4]) : ~w->exited;
    case PTX_VOTE:
    case PTX_REDUX: return i->n > 2 ? (uint32_t)value(r, w, lane, &i->in[2]) : 0;
    case PTX_LDMATRIX:
    case PTX_MMA:
    case PTX_WGMMA: return ~0u;
    case PTX_BAR:
    case PTX_BARRIER: return has(i, PTX_M(WARP)) ? (uint32_t)value(r, w, lane, &i->in[0]) : ~w->exited;
    default: return 0;
    }
}

static void part(warp *w) {
    for (int lane = 0; lane < LANES; lane++) w->pc[lane] = w->at;
    w->is_together = false;
}

/* The lanes at the least program counter; 0: the warp is done. Lanes at an instruction that needs others wait for them, as the
 * hardware does from sm_70 on. */
static uint32_t gather(run *r, warp *w) {
    int pc = DONE;
    uint32_t here = 0;
    if (w->is_together) return ~w->exited;
    for (int lane = 0; lane < LANES; lane++)
        if (!((w->exited | w->waiting) >> lane & 1) && w->pc[lane] < pc) pc = w->pc[lane];
    if (pc == DONE && w->waiting) { /* nobody else will come */
        int first = __builtin_ctz(w->waiting);
        const ptx_inst *stuck = r->now = &r->e->inst[w->pc[first]];
        for (int lane = 0; lane < LANES; lane++)
            here |= (uint32_t)(w->waiting >> lane & 1 && w->pc[lane] == w->pc[first]) << lane;
        need_all(r, w, here, needed(r, w, first, stuck));
        w->waiting &= ~here; /* those that it waited for have exited */
        pc = w->pc[first];
    }
    if (pc == DONE) return 0;
    here = 0;
    for (int lane = 0; lane < LANES; lane++) here |= (uint32_t)(w->pc[lane] == pc) << lane;
    here &= ~w->exited;
    w->at = pc;
    if (here == ~w->exited) w->is_together = true, w->waiting = 0;
    return here;
}

/* One step of the lanes that go together; false: the warp waits or is done. */
static bool step(run *r, warp *w) {
    uint32_t here = gather(r, w), active = here;
    if (!here) return false;
    int pc = w->at;
    if (pc >= r->e->n_insts) fail(r, -1, "the end of the entry without ret");
    const ptx_inst *i = r->now = &r->e->inst[pc];
    if (i->guard >= 0) {
        active = 0;
        for (int lane = 0; lane < LANES; lane++)
            active |= (uint32_t)((w->reg[i->guard * LANES + lane] & 1) != i->is_guard_negated) << lane;
        active &= here;
    }
    if (++r->steps > MAX_STEPS) fail(r, -1, "runs for ever");
    if (active && needed(r, w, 31 - __builtin_clz(here), i) & ~here) {
        if (w->is_together) part(w);
        w->waiting |= here;
        return true;
    }
    w->waiting &= ~here;
    if (w->is_together) w->at = pc + 1;
    else
        for (int lane = 0; lane < LANES; lane++)
            if (here >> lane & 1) w->pc[lane] = pc + 1;
    if (!active) return true;
    if (r->l->counts) count(r, w, i, active);
    if (i->op == PTX_RET || i->op == PTX_EXIT) {
        w->exited |= active;
    } else if (i->op == PTX_BRA) {
        if (w->is_together && active == here) {
            w->at = (int)i->in[0].value;
            return true;
        }
        if (w->is_together) part(w);
        for (int lane = 0; lane < LANES; lane++)
            if (active >> lane & 1) w->pc[lane] = (int)i->in[0].value;
    } else if (!ptx_fast(i, w->reg, active) && !whole_memory(r, w, i, active) && !whole_warp(r, w, i, active)) {
        for (int lane = 0; lane < LANES; lane++)
            if (active >> lane & 1) one_lane(r, w, lane, i);
    }
    return !w->at_barrier;
}

/* ---- a block ---- */
static void begin_block(run *r) {
    memset(r->shared, 0xff, r->shared_bytes);
    memset(r->proxy, 0, (r->shared_bytes / 4 + 2) * sizeof *r->proxy);
    r->epoch++;
    r->steps = 0;
    for (int k = 0; k < r->n_warps; k++) {
        warp *w = &r->w[k];
        int threads = r->n_threads - k * LANES;
        w->number = k;
        w->waiting = 0;
        w->exited = threads >= LANES ? 0 : ~0u << threads;
        w->is_together = true;
        w->at = 0;
        w->at_barrier = false;
        w->barrier[0] = w->barrier[1] = 0;
        w->n_copies = w->group = w->n_products = w->product_group = 0;
        w->has_fence = false;
        w->n_fences = 1;
        memset(w->reg, 0xff, sizeof *w->reg * (size_t)(r->e->n_regs * LANES));
        memset(w->local, 0xff, LANES * r->e->local_bytes + 1);
    }
}

/* Which barriers have shared memory touched before them and behind. */
static void note_barriers(run *r) {
    for (int k = 0; k < r->n_warps && r->is_touched; k++) {
        warp *w = &r->w[k];
        if (w->barrier[0]) mark(r, w->barrier[0], PTX_TOUCHED_BEHIND);
        if (w->at_barrier) mark(r, w->barrier[1], PTX_TOUCHED_BEFORE);
    }
    for (int k = 0; k < r->n_warps; k++) r->w[k].barrier[0] = r->w[k].barrier[1];
    r->is_touched = false;
}

static void run_block(run *r) {
    begin_block(r);
    for (;;) {
        bool any = false;
        for (int k = 0; k < r->n_warps; k++) {
            warp *w = &r->w[r->l->is_reversed ? r->n_warps - 1 - k : k];
            if (w->exited == ~0u) continue;
            while (step(r, w)) continue;
            any = true;
        }
        note_barriers(r);
        if (!any) return;
        r->epoch++; /* every warp that is left waits at a barrier: all go on */
        for (int k = 0; k < r->n_warps; k++) r->w[k].at_barrier = false;
    }
}

static bool run_grid(run *r) {
    uint64_t blocks = (uint64_t)r->l->grid[0] * r->l->grid[1] * r->l->grid[2];
    if (setjmp(r->failed)) return false;
    for (uint64_t k = 0; k < blocks; k++) {
        uint64_t b = r->l->is_reversed ? blocks - 1 - k : k;
        r->block[0] = (uint32_t)(b % r->l->grid[0]);
        r->block[1] = (uint32_t)(b / r->l->grid[0] % r->l->grid[1]);
        r->block[2] = (uint32_t)(b / r->l->grid[0] / r->l->grid[1]);
        run_block(r);
    }
    return true;
}

bool ptx_run(const ptx_launch *l, char error[PTX_ERROR_ROOM]) {
    run *r = calloc(1, sizeof *r);
    snprintf(error, PTX_ERROR_ROOM, "out of memory");
    if (!r) return false;
    r->l = l;
    r->e = l->entry;
    r->error = error;
    r->n_threads = (int)(l->block[0] * l->block[1] * l->block[2]);
    r->n_warps = (r->n_threads + LANES - 1) / LANES;
    r->shared_bytes = r->e->shared_bytes + l->dynamic_shared;
    r->shared = malloc(r->shared_bytes + 1);
    r->use = calloc(r->shared_bytes / 4 + 2, sizeof *r->use);
    r->proxy = calloc(r->shared_bytes / 4 + 2, sizeof *r->proxy);
    bool ok = r->shared && r->use && r->proxy && r->n_threads > 0 && r->n_warps <= MAX_WARPS;
    for (int k = 0; ok && k < r->n_warps; k++) {
        r->w[k].reg = malloc(sizeof *r->w->reg * (size_t)(r->e->n_regs * LANES + 1));
        r->w[k].local = malloc(LANES * r->e->local_bytes + 1);
        ok = r->w[k].reg && r->w[k].local;
    }
    if (ok) ok = run_grid(r);
    for (int k = 0; k < MAX_WARPS; k++) {
        free(r->w[k].reg);
        free(r->w[k].local);
        free(r->w[k].copy);
        free(r->w[k].product);
    }
    free(r->shared);
    free(r->use);
    free(r->proxy);
    free(r);
    return ok;
}
