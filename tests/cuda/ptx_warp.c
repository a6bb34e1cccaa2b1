/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ptx_warp.c: instructions that a warp does as one: shuffles, votes, matrices, wgmma, asynchronous copies, barriers. */
#include "ptx_machine.h"
#include <stdlib.h>
#include <string.h>

/* ---- warp-wide instructions ---- */
void ptx_need_all(run *r, warp *w, uint32_t active, uint32_t mask) {
    if (mask & ~active)
        ptx_fail(r, thread_of(w, __builtin_ctz(mask & ~active)),
                 "is elsewhere (or has exited) while its warp waits for it here");
}

static void shuffle(run *r, warp *w, const ptx_inst *i, uint32_t active) {
    uint64_t out[LANES];
    bool valid[LANES];
    for (int lane = 0; lane < LANES; lane++) {
        if (!(active >> lane & 1)) continue;
        if (i->n > 4) {
            uint32_t mask = (uint32_t)value(r, w, lane, &i->in[4]);
            ptx_need_all(r, w, active, mask);
            if (!(mask >> lane & 1)) ptx_fail(r, thread_of(w, lane), "is not in the mask of its own shuffle");
        }
        int b = (int)(value(r, w, lane, &i->in[2]) & 31), c = (int)value(r, w, lane, &i->in[3]), segment = c >> 8 & 31,
            clamp = c & 31;
        int low = lane & segment, high = low | (clamp & ~segment), from = lane;
        if (has(i, PTX_M(UP))) from = lane - b, valid[lane] = from >= high;
        else if (has(i, PTX_M(DOWN))) from = lane + b, valid[lane] = from <= high;
        else if (has(i, PTX_M(BFLY))) from = lane ^ b, valid[lane] = from <= high;
        else from = low | (b & ~segment), valid[lane] = from <= high;
        if (!valid[lane]) from = lane;
        if (!(active >> from & 1)) ptx_fail(r, thread_of(w, lane), "shuffles from lane %d, which is not here", from);
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
    ptx_need_all(r, w, active, mask);
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
        ptx_need_all(r, w, active, (uint32_t)value(r, w, lane, &i->in[2]));
        uint64_t v = value(r, w, lane, &i->in[1]);
        all = any ? ptx_combined(r, thread_of(w, lane), i, all, v, 0) : v;
        any = true;
    }
    for (int lane = 0; lane < LANES; lane++)
        if (active >> lane & 1) set(w, lane, &i->in[0], all);
}

static void load_matrix(run *r, warp *w, const ptx_inst *i, uint32_t active) {
    ptx_need_all(r, w, active, ~0u);
    int n = has(i, PTX_M(X4)) ? 4 : has(i, PTX_M(X2)) ? 2 : 1;
    uint16_t row[4][8][8];
    for (int m = 0; m < n; m++)
        for (int k = 0; k < 8; k++)
            memcpy(row[m][k],
                   ptx_memory(r, w, 8 * m + k, PTX_SHARED, address(w, 8 * m + k, &i->in[1]), 16, false, false), 16);
    for (int lane = 0; lane < LANES; lane++)
        for (int m = 0; m < n; m++) {
            int a = lane / 4, b = 2 * (lane % 4);
            uint64_t v = has(i, PTX_M(TRANS)) ? row[m][b][a] | (uint64_t)row[m][b + 1][a] << 16
                                              : row[m][a][b] | (uint64_t)row[m][a][b + 1] << 16;
            set(w, lane, element(r, &i->in[0], m), v);
        }
}

/* m16n8k16 on halves, m16n8k8 on tf32, accumulators f32; m16n8k32 on bytes, accumulators s32. A register of a fragment
 * is 32 bits of a row of k: a[row g + 8 * (r & 1)][word c + 4 * (r >> 1)], b[word c + 4 * r][column g], d[g + 8 * (r >>
 * 1)][2 * c + (r & 1)] for register r of lane 4 * g + c. */
static void multiply_matrix(run *r, warp *w, const ptx_inst *i, uint32_t active) {
    ptx_need_all(r, w, active, ~0u);
    ptx_type ta = i->from, tb = i->third; /* .type of D, A, B, C */
    bool is_bytes = ta == PTX_S8 || ta == PTX_U8, is_tf32 = ta == PTX_TF32;
    bool is_known = is_bytes ? i->type == PTX_S32 && (tb == PTX_S8 || tb == PTX_U8) && has(i, PTX_M(M16N8K32))
                             : i->type == PTX_F32 && ta == tb && (ta == PTX_F16 || ta == PTX_BF16 || is_tf32) &&
                                   has(i, is_tf32 ? PTX_M(M16N8K8) : PTX_M(M16N8K16));
    if (!is_known) ptx_fail(r, -1, "mma of a shape or type that is not known");
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

/* Words that were written by other than the asynchronous proxy have to be fenced: by who wrote them, or by who reads
 * them and knows that they were written. */
static void touch(void *user, uint64_t at, uint64_t bytes) {
    reader *t = user;
    run *r = t->r;
    uint16_t bits;
    memcpy(&bits, r->shared + at, sizeof bits);
    t->sum = (t->sum ^ bits) * 0x100000001b3ull;
    ptx_note_use(r, t->w, at, bytes, false, 0);
    const int writer = r->proxy[at / 4].writer - 1;
    if (writer < 0 || r->w[writer].n_fences != r->proxy[at / 4].fences) return;
    /* or this warp fenced, when it knew of it */
    if (writer == t->w->number || t->w->fenced[writer] < r->proxy[at / 4].clock)
        ptx_fail(r, -1, "reads shared memory at %llu, which warp %d wrote without fence.proxy.async",
                 (unsigned long long)at, writer);
}

static uint64_t read_product(run *r, warp *w, const ptx_product *p, float d[16][PTX_WGMMA_COLUMNS]) {
    reader t = {r, w, 0};
    const char *wrong = ptx_wgmma(p, &(ptx_shared){r->shared, r->shared_bytes, touch, &t}, d);
    if (wrong) ptx_fail(r, -1, "%s", wrong);
    return t.sum;
}

/* Operand A in registers: fragments as those of mma.m16n8k16. */
static void read_fragment(const run *r, const warp *w, const ptx_operand *o, uint16_t a[16][16]) {
    for (int lane = 0; lane < LANES; lane++)
        for (int k = 0; k < 4; k++) {
            uint64_t v = value(r, w, lane, element(r, o, k));
            uint16_t *to = &a[lane / 4 + 8 * (k & 1)][2 * (lane % 4) + 8 * (k >> 1)];
            to[0] = (uint16_t)v;
            to[1] = (uint16_t)(v >> 16);
        }
}

/* The product in flight with these accumulators, or NULL. */
static in_flight *last_with(warp *w, const run *r, const ptx_inst *i) {
    for (int k = w->n_products - 1; k >= 0; k--)
        if (element(r, &w->product[k].inst->in[0], 0)->reg == element(r, &i->in[0], 0)->reg) return &w->product[k];
    return NULL;
}

/* Accumulator k of a lane. */
static float *accumulator(float d[16][PTX_WGMMA_COLUMNS], int lane, int k) {
    return &d[lane / 4 + 8 * (k >> 1 & 1)][k / 4 * 8 + 2 * (lane % 4) + (k & 1)];
}

/* Until the product is waited for, who reads its registers gets NaNs. */
static void set_accumulators(const run *r, warp *w, const in_flight *f, bool is_there) {
    for (int lane = 0; lane < LANES; lane++)
        for (int k = 0; k < f->product.columns / 2; k++)
            set(w, lane, element(r, &f->inst->in[0], k),
                is_there ? ptx_from_double(PTX_F32, (double)*accumulator((float(*)[PTX_WGMMA_COLUMNS])f->d, lane, k))
                         : 0x7fffdead);
}

static in_flight *new_product(run *r, warp *w) {
    if (!(w->n_products & (w->n_products - 1))) {
        in_flight *more = realloc(w->product, (size_t)(w->n_products ? 2 * w->n_products : 1) * sizeof *more);
        if (!more) ptx_fail(r, -1, "out of memory");
        w->product = more;
    }
    return &w->product[w->n_products++];
}

static void multiply_group(run *r, warp *w, const ptx_inst *i) {
    int columns = has(i, PTX_M(M64N256K16)) ? 256 : has(i, PTX_M(M64N128K16)) ? 128 : has(i, PTX_M(M64N64K16)) ? 64 : 0;
    const bool has_a = i->in[1].kind == PTX_VECTOR; /* without a word of how it lies */
    if (!columns || i->type != PTX_F32 || i->from != i->third || (i->from != PTX_F16 && i->from != PTX_BF16) ||
        i->n != 8 - has_a || (has_a && i->in[1].reg != 4))
        ptx_fail(r, -1, "wgmma of a shape or type that is not known");
    if (!w->has_fence) ptx_fail(r, -1, "wgmma.mma_async without wgmma.fence");
    bool adds = value(r, w, 0, &i->in[3]) & 1;
    in_flight *f = new_product(r, w), *before;
    w->n_products--;
    before = last_with(w, r, i);
    w->n_products++;
    *f = (in_flight){.product = {.type = i->from,
                                 .columns = columns,
                                 .warp = w->number % 4,
                                 .is_turned = {!has_a && i->in[6].value != 0, i->in[7 - has_a].value != 0},
                                 .descriptor = {has_a ? 0 : value(r, w, 0, &i->in[1]), value(r, w, 0, &i->in[2])},
                                 .has_a = has_a},
                     .group = w->product_group,
                     .inst = i,
                     .is_last = true};
    if (has_a) read_fragment(r, w, &i->in[1], f->product.a);
    for (int lane = 0; lane < LANES; lane++)
        for (int k = 0; k < columns / 2; k++)
            *accumulator(f->d, lane, k) =
                !adds    ? 0
                : before ? *accumulator(before->d, lane, k)
                         : (float)ptx_to_double(PTX_F32, value(r, w, lane, element(r, &i->in[0], k)));
    if (before) before->is_last = false;
    f->sum = read_product(r, w, &f->product, f->d);
    set_accumulators(r, w, f, false);
}

/* The products of all but the last `keep` groups are done: until now nobody may have written what they read. */
static void finish_products(run *r, warp *w, int keep) {
    int left = 0;
    for (int k = 0; k < w->n_products; k++) {
        const in_flight *f = &w->product[k];
        uint16_t a[16][16];
        if (f->group > w->product_group - 1 - keep) {
            if (left != k) w->product[left] = *f;
            left++;
            continue;
        }
        if (read_product(r, w, &f->product, NULL) != f->sum)
            ptx_fail(r, -1, "shared memory was written while a product still read it");
        if (f->product.has_a) {
            read_fragment(r, w, &f->inst->in[1], a);
            if (memcmp(a, f->product.a, sizeof a) != 0)
                ptx_fail(r, -1, "a register was written while a product still read it");
        }
        if (f->is_last) set_accumulators(r, w, f, true);
    }
    w->n_products = left;
    w->has_fence = false;
}

static void group_product(run *r, warp *w, const ptx_inst *i, uint32_t active) {
    ptx_need_all(r, w, active, ~0u);
    if (has(i, PTX_M(MMA_ASYNC))) multiply_group(r, w, i);
    else if (has(i, PTX_M(FENCE_))) w->has_fence = true;
    else if (has(i, PTX_M(COMMIT_GROUP))) w->product_group++;
    else if (has(i, PTX_M(WAIT_GROUP))) finish_products(r, w, (int)i->in[0].value);
    else ptx_fail(r, -1, "an instruction of wgmma that is not known");
}

/* ---- asynchronous copies: done when they are waited for ---- */
void ptx_push_pending(run *r, warp *w, pending p) {
    if (!(w->n_copies & (w->n_copies - 1))) {
        pending *more = realloc(w->copy, (size_t)(w->n_copies ? 2 * w->n_copies : 1) * sizeof *more);
        if (!more) ptx_fail(r, -1, "out of memory");
        w->copy = more;
    }
    w->copy[w->n_copies++] = p;
}

static void copy_later(run *r, warp *w, int lane, const ptx_inst *i) {
    uint32_t bytes = (uint32_t)i->in[2].value, given = i->n > 3 ? (uint32_t)value(r, w, lane, &i->in[3]) : bytes;
    if (i->n > 3 && i->in[3].is_predicate) given = given & 1 ? 0 : bytes; /* ignore-src */
    pending p = {address(w, lane, &i->in[0]),
                 address(w, lane, &i->in[1]),
                 bytes,
                 given < bytes ? given : bytes,
                 lane,
                 w->group,
                 i->line};
    ptx_memory(r, w, lane, PTX_SHARED, p.to, bytes, true, false); /* from now on it may write */
    ptx_push_pending(r, w, p);
}

static void finish_copy(run *r, const warp *w, const pending *c) {
    uint8_t *to = r->shared + c->to;
    if (c->given) mark(r, r->now->line, PTX_WAITED);
    memset(to, 0, c->bytes);
    if (c->from % c->bytes)
        ptx_fail(r, thread_of(w, c->lane), "copies %u bytes of %#llx, which is not aligned to them", c->bytes,
                 (unsigned long long)c->from);
    const uint8_t *from = c->given ? r->l->memory(r->l->user, c->from, c->given, false) : NULL;
    if (c->given && !from)
        ptx_fail(r, thread_of(w, c->lane), "read of %u bytes at %#llx, which is not allocated", c->given,
                 (unsigned long long)c->from);
    if (from) memcpy(to, from, c->given);
}

/* All but the last `keep` groups of a lane's copies are done; arrivals, where no copy of the lane is left. */
static void finish_copies(run *r, warp *w, uint32_t active, int keep) {
    int left = 0;
    uint32_t has_copies = 0;
    for (int k = 0; k < w->n_copies; k++) {
        pending c = w->copy[k];
        const bool is_kept =
            c.bytes ? !(active >> c.lane & 1) || c.group > w->group - 1 - keep : has_copies >> c.lane & 1;
        if (is_kept) {
            w->copy[left++] = c;
            if (c.bytes) has_copies |= 1u << c.lane;
        } else if (c.bytes) {
            ptx_memory(r, w, c.lane, PTX_SHARED, c.to, c.bytes, true, false);
            finish_copy(r, w, &c);
        } else ptx_arrive(r, w, c.lane, c.to);
    }
    w->n_copies = left;
}

static void finish_lanes(run *r, warp *w, uint64_t at) {
    int last[LANES], left = 0;
    for (int lane = 0; lane < LANES; lane++) last[lane] = -1;
    for (int k = 0; k < w->n_copies; k++)
        if (!w->copy[k].bytes && w->copy[k].to == at) last[w->copy[k].lane] = k;
    for (int k = 0; k < w->n_copies; k++) {
        pending c = w->copy[k];
        if (k > last[c.lane]) w->copy[left++] = c;
        else if (c.bytes) finish_copy(r, w, &c);
        else ptx_arrive(r, w, c.lane, c.to);
    }
    w->n_copies = left;
}

void ptx_finish_arrivals(run *r, uint64_t at) {
    for (int k = 0; k < r->n_warps; k++)
        if (r->w[k].n_copies) finish_lanes(r, &r->w[k], at);
}

static void copy_async(run *r, warp *w, const ptx_inst *i, uint32_t active) {
    if (has(i, PTX_M(MBARRIER_))) ptx_arrive_later(r, w, i, active);
    else if (has(i, PTX_M(COMMIT_GROUP))) w->group++;
    else if (has(i, PTX_M(WAIT_GROUP))) finish_copies(r, w, active, (int)i->in[0].value);
    else if (has(i, PTX_M(WAIT_ALL))) w->group++, finish_copies(r, w, active, 0);
    else
        for (int lane = 0; lane < LANES; lane++)
            if (active >> lane & 1) copy_later(r, w, lane, i);
}

/* ---- all of them ---- */
bool ptx_whole_warp(run *r, warp *w, const ptx_inst *i, uint32_t active) {
    switch (i->op) {
    case PTX_SHFL: shuffle(r, w, i, active); return true;
    case PTX_VOTE: vote(r, w, i, active); return true;
    case PTX_REDUX: reduce_warp(r, w, i, active); return true;
    case PTX_LDMATRIX: load_matrix(r, w, i, active); return true;
    case PTX_MMA: multiply_matrix(r, w, i, active); return true;
    case PTX_WGMMA: group_product(r, w, i, active); return true;
    case PTX_CP: copy_async(r, w, i, active); return true;
    case PTX_MBARRIER: ptx_mbarrier(r, w, i, active); return true;
    case PTX_SETMAXNREG: ptx_need_all(r, w, active, ~0u); return true;
    case PTX_FENCE:
        w->n_fences += has(i, PTX_M(PROXY));
        if (has(i, PTX_M(PROXY))) memcpy(w->fenced, w->clock, sizeof w->fenced);
        return true;
    case PTX_ACTIVEMASK:
        for (int lane = 0; lane < LANES; lane++)
            if (active >> lane & 1) set(w, lane, &i->in[0], active);
        return true;
    case PTX_BAR:
    case PTX_BARRIER:
        if (has(i, PTX_M(WARP))) {
            ptx_need_all(r, w, active, (uint32_t)value(r, w, __builtin_ctz(active), &i->in[0]));
            return true;
        }
        ptx_need_all(r, w, active, ~w->exited);
        w->at_barrier = true;
        w->barrier[1] = i->line;
        return true;
    default: return false;
    }
}
