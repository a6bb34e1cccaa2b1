/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ptx_run.c: runs a grid. A block runs warp after warp; a warp runs until it waits at a barrier or is done. Within a
 * warp, the lanes with the least program counter go together: threads that took different ways meet again where the
 * ways do. */
#include "ptx_machine.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STEPS 4000000000ull /* warp instructions of a block: what runs longer hangs */

_Noreturn void ptx_fail(run *r, int thread, const char *format, ...) {
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

/* ---- memory ---- */
static void note_write(run *r, const warp *w, uint64_t k, int lane) {
    word_use *u = &r->use[k];
    for (uint32_t others = u->readers & ~(1u << w->number); others; others &= others - 1) {
        const int other = __builtin_ctz(others);
        if (w->clock[other] < r->read[k * (uint64_t)r->n_warps + (uint64_t)other])
            ptx_fail(r, thread_of(w, lane),
                     "race in shared memory at %llu: another warp read it and no barrier is between",
                     (unsigned long long)(4 * k));
    }
    u->writer = (uint8_t)(w->number + 1);
    u->clock = w->clock[w->number];
    u->readers = 0;
    r->proxy[k].writer = (uint8_t)(w->number + 1);
    r->proxy[k].fences = w->n_fences;
    r->proxy[k].clock = u->clock;
}

void ptx_note_use(run *r, const warp *w, uint64_t at, uint64_t bytes, bool is_write, int lane) {
    r->is_touched = true;
    for (uint64_t k = at / 4; k <= (at + bytes - 1) / 4; k++) {
        word_use *u = &r->use[k];
        const int writer = u->writer - 1;
        if (u->is_barrier)
            ptx_fail(r, thread_of(w, lane), "shared memory at %llu is a barrier", (unsigned long long)(4 * k));
        if (writer >= 0 && writer != w->number && w->clock[writer] < u->clock)
            ptx_fail(r, thread_of(w, lane), "race in shared memory at %llu: warp %d wrote it and no barrier is between",
                     (unsigned long long)(4 * k), writer);
        if (is_write) note_write(r, w, k, lane);
        else {
            u->readers |= 1u << w->number;
            r->read[k * (uint64_t)r->n_warps + (uint64_t)w->number] = w->clock[w->number];
        }
    }
}

uint8_t *ptx_memory(run *r, warp *w, int lane, ptx_space space, uint64_t at, uint64_t bytes, bool is_write,
                    bool is_atomic) {
    uint64_t window = at >> 52 << 52;
    if (space == PTX_GENERIC && window == PTX_WINDOW_SHARED) space = PTX_SHARED, at -= window;
    if (space == PTX_GENERIC && window == PTX_WINDOW_LOCAL) space = PTX_LOCAL, at -= window;
    uint64_t align = bytes > 16 ? 16 : bytes;
    if (at % align)
        ptx_fail(r, thread_of(w, lane), "address %#llx is not aligned to %llu", (unsigned long long)at,
                 (unsigned long long)align);
    if (space == PTX_SHARED) {
        if (at > r->shared_bytes || bytes > r->shared_bytes - at)
            ptx_fail(r, thread_of(w, lane), "%llu bytes at %llu of %llu bytes of shared memory",
                     (unsigned long long)bytes, (unsigned long long)at, (unsigned long long)r->shared_bytes);
        if (!is_atomic) ptx_note_use(r, w, at, bytes, is_write, lane);
        return r->shared + at;
    }
    if (space == PTX_LOCAL) {
        if (at > r->e->local_bytes || bytes > r->e->local_bytes - at)
            ptx_fail(r, thread_of(w, lane), "outside local memory");
        return w->local + (uint64_t)lane * r->e->local_bytes + at;
    }
    if (space == PTX_PARAM) {
        if (is_write || at > r->e->param_bytes || bytes > r->e->param_bytes - at)
            ptx_fail(r, thread_of(w, lane), "outside the parameters");
        return (uint8_t *)(uintptr_t)((const uint8_t *)r->l->params + at);
    }
    if (window == PTX_CONSTANTS) {
        at -= window;
        if (is_write || at > r->l->module->constant_bytes || bytes > r->l->module->constant_bytes - at)
            ptx_fail(r, thread_of(w, lane), "outside the module's constants");
        return r->l->module->constants + at;
    }
    void *p = r->l->memory(r->l->user, at, bytes, is_write);
    if (!p)
        ptx_fail(r, thread_of(w, lane), "%s of %llu bytes at %#llx, which is not allocated",
                 is_write ? "write" : "read", (unsigned long long)bytes, (unsigned long long)at);
    return p;
}

uint64_t ptx_special_value(const run *r, const warp *w, int lane, int id) {
    uint32_t t = (uint32_t)thread_of(w, lane);
    const uint32_t *b = r->l->block;
    if (id < PTX_NTID) return id == PTX_TID ? t % b[0] : id == PTX_TID + 1 ? t / b[0] % b[1] : t / b[0] / b[1];
    if (id < PTX_CTAID) return b[id - PTX_NTID];
    if (id < PTX_NCTAID) return r->block[id - PTX_CTAID];
    if (id < PTX_LANEID) return r->l->grid[id - PTX_NCTAID];
    return id == PTX_LANEID ? (uint64_t)lane : id == PTX_WARPID ? (uint64_t)w->number : r->steps & 0xffffffff;
}

/* ---- one instruction on one lane ---- */
static void load(run *r, warp *w, int lane, const ptx_inst *i) {
    int bytes = ptx_bytes(i->type), n = i->in[0].kind == PTX_VECTOR ? i->in[0].reg : 1;
    uint8_t *p = ptx_memory(r, w, lane, i->in[1].space ? i->in[1].space : i->space, address(w, lane, &i->in[1]),
                            (uint64_t)(n * bytes), false, false);
    for (int k = 0; k < n; k++) {
        uint64_t v = 0;
        memcpy(&v, p + k * bytes, (size_t)bytes);
        set(w, lane, element(r, &i->in[0], k), extended(i->type, v));
    }
}

static void store(run *r, warp *w, int lane, const ptx_inst *i) {
    int bytes = ptx_bytes(i->type), n = i->in[1].kind == PTX_VECTOR ? i->in[1].reg : 1;
    uint8_t *p = ptx_memory(r, w, lane, i->in[0].space ? i->in[0].space : i->space, address(w, lane, &i->in[0]),
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
uint64_t ptx_combined(run *r, int thread, const ptx_inst *i, uint64_t old, uint64_t v, uint64_t other) {
    ptx_inst one = {.type = i->type, .n = 3};
    bool ok;
    if (has(i, PTX_M(EXCH))) return v;
    if (has(i, PTX_M(INC))) return old >= v ? 0 : old + 1;
    if (has(i, PTX_M(CAS))) return old == cut(i->type, v) ? other : old;
    one.op = has(i, PTX_M(ADD_))   ? PTX_ADD
             : has(i, PTX_M(MIN_)) ? PTX_MIN
             : has(i, PTX_M(MAX_)) ? PTX_MAX
             : has(i, PTX_M(AND_)) ? PTX_AND
             : has(i, PTX_M(OR_))  ? PTX_OR
             : has(i, PTX_M(XOR_)) ? PTX_XOR
                                   : PTX_TRAP;
    uint64_t out = ptx_alu(&one, (uint64_t[]){old, v}, &ok);
    if (!ok) ptx_fail(r, thread, "an atomic operation that is not known");
    return out;
}

static void atomic(run *r, warp *w, int lane, const ptx_inst *i) {
    int where = i->op == PTX_RED ? 0 : 1, bytes = ptx_bytes(i->type);
    uint8_t *p = ptx_memory(r, w, lane, i->space, address(w, lane, &i->in[where]), (uint64_t)bytes, true, true);
    uint64_t old = 0, v = value(r, w, lane, &i->in[where + 1]),
             other = i->n > where + 2 ? value(r, w, lane, &i->in[where + 2]) : 0;
    memcpy(&old, p, (size_t)bytes);
    uint64_t out = ptx_combined(r, thread_of(w, lane), i, old, v, other);
    memcpy(p, &out, (size_t)bytes);
    if (i->op == PTX_ATOM) set(w, lane, &i->in[0], old);
}

/* setp.lt.and.f32 %p|%q, a, b, c */
static void compare(run *r, warp *w, int lane, const ptx_inst *i) {
    bool ok = true;
    ptx_inst bare = *i;
    bare.modifier &= ~(PTX_M(AND_) | PTX_M(OR_) | PTX_M(XOR_));
    bool is = ptx_compare(&bare, value(r, w, lane, &i->in[1]), value(r, w, lane, &i->in[2]), &ok), not = !is;
    if (!ok) ptx_fail(r, thread_of(w, lane), "a comparison that is not known");
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
    if (!ok) ptx_fail(r, thread_of(w, lane), "an instruction with types or modifiers that are not known");
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
    case PTX_TRAP: ptx_fail(r, thread_of(w, lane), "trap");
    default: compute(r, w, lane, i); break;
    }
}

/* A load or store of all lanes, each behind the one before or all of the same place, is one access of memory. Where
 * anything is wrong, lanes go one by one and say what. */
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
        ptx_note_use(r, w, at, all, !is_load, 0);
        p = r->shared + at;
    } else if (space == PTX_PARAM) p = ptx_memory(r, w, 0, space, at, all, false, false);
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
    case PTX_SETMAXNREG:
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

/* The lanes at the least program counter; 0: the warp is done. Lanes at an instruction that needs others wait for them,
 * as the hardware does from sm_70 on. */
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
        ptx_need_all(r, w, here, needed(r, w, first, stuck));
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
    if (pc >= r->e->n_insts) ptx_fail(r, -1, "the end of the entry without ret");
    const ptx_inst *i = r->now = &r->e->inst[pc];
    if (i->guard >= 0) {
        active = 0;
        for (int lane = 0; lane < LANES; lane++)
            active |= (uint32_t)((w->reg[i->guard * LANES + lane] & 1) != i->is_guard_negated) << lane;
        active &= here;
    }
    if (++r->steps > MAX_STEPS) ptx_fail(r, -1, "runs for ever");
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
    } else if (!ptx_fast(i, w->reg, active) && !whole_memory(r, w, i, active) && !ptx_whole_warp(r, w, i, active)) {
        for (int lane = 0; lane < LANES; lane++)
            if (active >> lane & 1) one_lane(r, w, lane, i);
    }
    if (w->exited == ~0u) r->progress++;
    return !w->at_barrier && !w->is_spinning;
}

/* ---- a block ---- */
static void begin_block(run *r) {
    memset(r->shared, 0xff, r->shared_bytes);
    memset(r->proxy, 0, (r->shared_bytes / 4 + 2) * sizeof *r->proxy);
    ptx_begin_clocks(r);
    r->steps = 0;
    for (int k = 0; k < r->n_warps; k++) {
        warp *w = &r->w[k];
        int threads = r->n_threads - k * LANES;
        w->number = k;
        w->waiting = 0;
        w->exited = threads >= LANES ? 0 : ~0u << threads;
        w->is_together = true;
        w->at = 0;
        w->at_barrier = w->is_spinning = false;
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

/* Each warp in turn as far as it comes. */
static void run_warps(run *r, bool *any, bool *any_spins) {
    *any = *any_spins = false;
    for (int k = 0; k < r->n_warps; k++) {
        warp *w = &r->w[r->l->is_reversed ? r->n_warps - 1 - k : k];
        w->is_spinning = false;
        while (!w->at_barrier && w->exited != ~0u && step(r, w)) continue;
        *any |= w->exited != ~0u;
        *any_spins |= w->is_spinning;
    }
}

static void run_block(run *r) {
    bool any, any_spins;
    begin_block(r);
    for (;;) {
        const uint64_t before = r->progress;
        run_warps(r, &any, &any_spins);
        if (any_spins) {
            if (r->progress == before) ptx_fail(r, -1, "all warps wait, and nobody is left to arrive");
            continue;
        }
        note_barriers(r);
        if (!any) return;
        ptx_meet(r); /* every warp that is left waits at a barrier: all go on */
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
    r->read = calloc((r->shared_bytes / 4 + 2) * (size_t)r->n_warps, sizeof *r->read);
    r->proxy = calloc(r->shared_bytes / 4 + 2, sizeof *r->proxy);
    bool ok = r->shared && r->use && r->read && r->proxy && r->n_threads > 0 && r->n_warps <= MAX_WARPS;
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
    free(r->read);
    free(r->proxy);
    free(r);
    return ok;
}
