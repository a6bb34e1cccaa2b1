/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* contract.c: the contraction kernel. Phase 0 packs operand 1 into panels of nr columns; phase 1 makes blocks of the
 * output: for each K block in order it packs a block of operand 0 and runs the register tile over the panels of both;
 * the last K block's totals go through the epilogue; phase 2 is a row program's (contract_row.c). Memory layouts are in
 * ir/kernel.h. Here are the loops and what all parts share; packing is in contract_pack.c, the register tile in
 * contract_tile.c, the epilogue in contract_epilogue.c.
 *
 * In machine code these are functions, which share nothing but their arguments and the scratch memory: the kernel
 * (loops and calls), pack0 and pack1, tile, finish, with words of several elements (contract_dot.c) head and by_fma,
 * with row reductions behind it rows. LLVM's time grows faster than the size of a function; this way, with only `tile`
 * optimized and words in memory elsewhere (demote.c), it is 0.41 of what one optimized function took (of a product of
 * floats; head and by_fma are optimized too, finish where it is costly or the products are tiles of AMX, rows where it
 * would be in a row kernel).
 *
 * The order that an element is accumulated in depends on K, kb and the level alone (and on the dot, where that is of
 * tiles): a block's products from 0 upwards, then block sums in order. So blocking, threads and fusion do not change
 * bits. */
#include "jit/amx.h"
#include "jit/contract.h"

/* ---- loads of the program ---- */
static LLVMValueRef coordinate(const contract_point *at, int dim) {
    const contract *c = at->c;
    return dim == c->dim_m ? at->m : dim == c->dim_n ? at->n : dim == c->dim_k ? at->k : c->index[dim];
}

/* In row c->row->number, at m: a sum instead of a product, and one for all vectors of the row. n's stride is 0 or 1. */
static LLVMValueRef offset_in_row(contract *c, int buffer, LLVMValueRef m) {
    contract_row *r = c->row;
    emit *e = c->e;
    LLVMValueRef stride = e->stride[buffer][c->dim_m];
    const bool has_n = c->k->buffer[buffer].stride[c->dim_n] != 0;
    if (!r->offset[buffer]) {
        r->offset[buffer] = em_add(e, c->batch_off[buffer], em_mul(e, m, stride));
        if (has_n) r->offset[buffer] = em_add(e, r->offset[buffer], r->n0);
    } else if (r->at[buffer] != r->number) r->offset[buffer] = em_add(e, r->offset[buffer], stride);
    r->at[buffer] = r->number;
    return em_add(e, r->offset[buffer], num(c, has_n ? r->column : 0));
}

LLVMValueRef contract_offset(contract *c, int buffer, const contract_point *at) {
    if (c->row) return offset_in_row(c, buffer, at->m);
    LLVMValueRef off = c->batch_off[buffer];
    const int dims[3] = {c->dim_m, c->dim_n, c->dim_k};
    for (int i = 0; i < 3; i++) {
        int d = dims[i];
        if (c->k->buffer[buffer].stride[d] == 0 || !coordinate(at, d)) continue;
        LLVMValueRef x = coordinate(at, d);
        if (c->k->buffer[buffer].stride[d] != 1) x = em_mul(c->e, x, c->e->stride[buffer][d]);
        off = em_add(c->e, off, x);
    }
    return off;
}

LLVMValueRef contract_step(contract *c, int buffer, int axis) {
    if (axis < 0) return num(c, 0);
    int64_t s = c->k->buffer[buffer].stride[axis];
    return s == 0 || s == 1 ? num(c, s) : c->e->stride[buffer][axis];
}

LLVMValueRef contract_load(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    contract_point *at = user;
    if (inst->op == IR_K_LOAD)
        return em_load_value(e, v, inst, at->axis, contract_offset(at->c, inst->index, at),
                             contract_step(at->c, inst->index, at->axis), at->mask);
    LLVMValueRef x = em_splat(e, coordinate(at, inst->index));
    if (inst->index != at->axis || e->lanes == 1) return x;
    LLVMValueRef lane[64];
    for (int i = 0; i < e->lanes; i++) lane[i] = num(at->c, i);
    return em_add(e, x, LLVMConstVector(lane, (unsigned)e->lanes));
}

/* Batch number -> index of each batch dim and offset of each buffer. With only the dims in `which`. */
void contract_decode_batch(contract *c, LLVMValueRef number, uint32_t which) {
    emit *e = c->e;
    for (int i = c->n_batch - 1; i >= 0; i--) {
        int d = c->batch[i];
        c->index[d] = num(c, 0);
        if (!(which >> d & 1)) continue;
        bool is_last = !(which & ((1u << d) - 1)); /* of those that the number is made of */
        c->index[d] = is_last ? number : LLVMBuildURem(e->b, number, e->size[d], "");
        if (!is_last) number = LLVMBuildUDiv(e->b, number, e->size[d], "");
    }
    for (int b = 0; b < c->k->n_buffers; b++) {
        c->batch_off[b] = num(c, 0);
        for (int i = 0; i < c->n_batch; i++) {
            int d = c->batch[i];
            if (!(which >> d & 1) || c->k->buffer[b].stride[d] == 0) continue;
            c->batch_off[b] = em_add(e, c->batch_off[b], em_mul(e, c->index[d], e->stride[b][d]));
        }
    }
}

/* c->index[d] = i, which adds to offsets. */
static void add_index(contract *c, int d, LLVMValueRef i) {
    c->index[d] = i;
    for (int b = 0; b < c->k->n_buffers; b++)
        if (c->k->buffer[b].stride[d] != 0)
            c->batch_off[b] = em_add(c->e, c->batch_off[b], em_mul(c->e, i, c->e->stride[b][d]));
}

static void decode(contract *c, const int *dim, int n, LLVMValueRef number) {
    for (int i = n - 1; i >= 0; i--) {
        add_index(c, dim[i], i ? LLVMBuildURem(c->e->b, number, c->e->size[dim[i]], "") : number);
        if (i) number = LLVMBuildUDiv(c->e->b, number, c->e->size[dim[i]], "");
    }
}

static LLVMValueRef ceil_div(contract *c, LLVMValueRef a, int64_t b);

LLVMValueRef contract_decode_columns(contract *c, LLVMValueRef flat) {
    if (!c->n_outer_n) return flat;
    LLVMBuilderRef b = c->e->b;
    LLVMValueRef panel = LLVMBuildUDiv(b, flat, num(c, c->nr), ""), panels = ceil_div(c, c->n, c->nr);
    decode(c, c->outer_n, c->n_outer_n, LLVMBuildUDiv(b, panel, panels, ""));
    return em_mul(c->e, LLVMBuildURem(b, panel, panels, ""), num(c, c->nr));
}

LLVMValueRef contract_run_length(contract *c) {
    LLVMValueRef n = c->e->size[c->dim_k], one = num(c, 1);
    return em_select(c->e, em_icmp(c->e, LLVMIntSGT, n, one), n, one);
}

void contract_decode_run(contract *c, LLVMValueRef run) { decode(c, c->outer_k, c->n_outer_k, run); }

LLVMValueRef contract_merge(contract *c, LLVMValueRef a, LLVMBasicBlockRef from_a, LLVMValueRef b,
                            LLVMBasicBlockRef from_b) {
    LLVMValueRef phi = LLVMBuildPhi(c->e->b, LLVMTypeOf(a), "");
    LLVMAddIncoming(phi, &a, &from_a, 1);
    LLVMAddIncoming(phi, &b, &from_b, 1);
    return phi;
}

static LLVMValueRef ceil_div(contract *c, LLVMValueRef a, int64_t b) {
    return LLVMBuildUDiv(c->e->b, em_add(c->e, a, num(c, b - 1)), num(c, b), "");
}

/* What is loaded at the entry of each function. */
void contract_set_values(contract *c) {
    emit *e = c->e;
    int64_t tile_bytes = (int64_t)c->mr * c->nr * c->acc_bytes;
    c->m = e->size[c->dim_m];
    c->n = e->size[c->dim_n];
    c->kk = e->size[c->dim_k];
    for (int i = 0; i < c->n_outer_k; i++) c->kk = em_mul(e, c->kk, e->size[c->outer_k[i]]);
    c->k_words = contract_in_words(c, c->kk);
    c->staging = em_gep(e, e->scratch, e->t_i8, num(c, (tile_bytes + 63) / 64 * 64));
}

/* Of columns. */
static LLVMValueRef count_panels(contract *c) {
    LLVMValueRef n = ceil_div(c, c->n, c->nr);
    for (int i = 0; i < c->n_outer_n; i++) n = em_mul(c->e, n, c->e->size[c->outer_n[i]]);
    return n;
}

/* At least one. */
static LLVMValueRef blocks_of_k(contract *c) {
    LLVMValueRef n = ceil_div(c, c->kk, c->kb), one = num(c, 1);
    return em_select(c->e, em_icmp(c->e, LLVMIntSGT, n, one), n, one);
}

/* Of a panel of operand 1: its heads and words are [K block][head, words][nr]. */
static LLVMValueRef words_of_panel(contract *c) {
    return c->heads[1] ? em_add(c->e, c->k_words, blocks_of_k(c)) : c->k_words;
}

static LLVMValueRef panel_of_b(contract *c, LLVMValueRef batch, LLVMValueRef panel, LLVMValueRef panels) {
    LLVMValueRef i = em_add(c->e, em_mul(c->e, batch, panels), panel);
    return element(c, c->e->shared, em_mul(c->e, em_mul(c->e, i, words_of_panel(c)), num(c, c->nr)));
}

/* Where in it the K block at k0, a multiple of kb, begins, behind its head: words. */
static LLVMValueRef block_of_panel(contract *c, LLVMValueRef k0) {
    LLVMValueRef words = contract_in_words(c, k0);
    if (c->heads[1]) {
        LLVMValueRef number = LLVMBuildUDiv(c->e->b, k0, num(c, c->kb), "");
        words = em_add(c->e, words, em_add(c->e, number, num(c, 1)));
    }
    return em_mul(c->e, words, num(c, c->nr));
}

/* Row panels: `full` of mr rows, and what is left (0: nothing) in one more. (Panels as even as can be make no
 * difference at few rows, and only full ones take the quickest way through the register tile.) */
typedef struct row_panels {
    LLVMValueRef n, full, left;
} row_panels;
static row_panels cut_rows(contract *c) {
    LLVMBuilderRef b = c->e->b;
    LLVMValueRef mr = num(c, c->mr);
    return (row_panels){ceil_div(c, c->m, c->mr), LLVMBuildUDiv(b, c->m, mr, ""), LLVMBuildURem(b, c->m, mr, "")};
}

static LLVMValueRef first_row(contract *c, LLVMValueRef panel) {
    return em_min(c->e, em_mul(c->e, panel, num(c, c->mr)), c->m);
}

/* ---- functions beside the kernel's: deep nests of loops in one function cost much more to compile ---- */
/* Into a new function. But for heads, rows and the tile, its first parameter is the argument block, and what it holds
 * is loaded. */
contract_outer *contract_begin(contract *c, contract_function f, const char *name, LLVMTypeRef *parameter, unsigned n,
                               bool is_optimized) {
    emit *e = c->e;
    c->function_type[f] = LLVMFunctionType(e->t_void, parameter, n, 0);
    c->function[f] = em_function(e, name, c->function_type[f], is_optimized);
    LLVMSetLinkage(c->function[f], LLVMInternalLinkage);
    contract_outer *o = FU_NEW(e->arena, contract_outer);
    *o = (contract_outer){*e, *c, LLVMGetInsertBlock(e->b)};
    e->fn = c->function[f];
    LLVMPositionBuilderAtEnd(e->b, em_block(e, "entry"));
    if (f == HEAD || f == ROWS || f == BY_FMA || f == LAST_TILE || f == SWEEP || f == PAIR ||
        (f == TILE && !c->is_tile))
        return o;
    contract_load_args(c, LLVMGetParam(e->fn, 0));
    contract_set_values(c);
    return o;
}

void contract_end(contract *c, const contract_outer *o) {
    emit *e = c->e;
    LLVMBuildRetVoid(e->b);
    LLVMPositionBuilderAtEnd(e->b, o->block);
    *e = o->e;
    *c = o->c;
}

void contract_call(contract *c, contract_function f, LLVMValueRef *in, unsigned n) {
    LLVMBuildCall2(c->e->b, c->function_type[f], c->function[f], in, n, "");
}

/* ---- packing ---- */
/* contract_pack run by run, of those that [k0, k0 + k_count) is part of. */
static void pack_runs(contract *c, int operand, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef k0,
                      LLVMValueRef k_count) {
    emit *e = c->e;
    LLVMValueRef length = contract_run_length(c), end = em_add(e, k0, k_count);
    LLVMValueRef runs_end = LLVMBuildUDiv(e->b, em_add(e, end, em_sub(e, length, num(c, 1))), length, "");
    LLVMValueRef has_any = em_icmp(e, LLVMIntSGT, k_count, num(c, 0));
    em_loop l = em_for(e, LLVMBuildUDiv(e->b, k0, length, ""), em_select(e, has_any, runs_end, num(c, 0)), num(c, 1));
    LLVMValueRef run = em_mul(e, l.i, length), to = em_min(e, em_add(e, run, length), end);
    LLVMValueRef from = em_max(e, run, k0);
    contract_decode_run(c, l.i);
    contract_pack(c, operand, element(c, dst, em_mul(e, em_sub(e, from, k0), num(c, operand ? c->nr : c->mr))), first,
                  em_sub(e, from, run), em_sub(e, to, from));
    em_end(e, &l);
}

/* (args, dst, batch, first, panels, k0, k_count): `panels` panels of the operand from number `first` on, each
 * min(K, kb) words and its head, of mr, behind the one before; heads are in front of dst. */
void contract_emit_pack(contract *c, int operand) {
    emit *e = c->e;
    LLVMTypeRef parameter[7] = {e->t_ptr, e->t_ptr, e->t_i64, e->t_i64, e->t_i64, e->t_i64, e->t_i64};
    const bool is_quick = c->is_tile && !operand; /* next to products of tiles its time counts */
    contract_outer *o = contract_begin(c, operand ? PACK1 : PACK0, operand ? "pack1" : "pack0", parameter, 7, is_quick);
    LLVMValueRef in[7];
    LLVMGetParams(e->fn, in);
    contract_decode_batch(c, in[2], operand ? ir_kernel_varies(c->k, c->operand[1]) : UINT32_MAX);
    int rows = operand ? c->nr : c->mr;
    LLVMValueRef words = contract_block_words(c);
    LLVMValueRef elements = em_mul(e, em_add(e, words, num(c, c->heads[operand])), num(c, rows));
    em_loop l = em_for(e, num(c, 0), in[4], num(c, 1));
    LLVMValueRef dst = element(c, in[1], em_mul(e, l.i, elements)), panel = em_add(e, in[3], l.i);
    LLVMValueRef first = operand ? contract_decode_columns(c, em_mul(e, panel, num(c, rows))) : first_row(c, panel);
    LLVMValueRef filled = num(c, rows); /* rows of the panel */
    bool has_head = c->heads[operand];
    if (c->copies_a && !operand) {
        LLVMValueRef left = em_min(e, em_sub(e, c->m, first), filled);
        if (!contract_is_plain_load(c, 0)) contract_pack_values(c, dst, first, left, in[5], in[6]);
        else if (c->is_tile) contract_copy_tiles(c, dst, first, left, in[5], in[6]);
        else contract_copy_rows(c, dst, first, left, in[5], in[6]);
        if (!c->is_tile) filled = left;
        has_head &= !c->is_tile || !contract_is_plain_load(c, 0);
    } else if (c->n_outer_k) pack_runs(c, operand, dst, first, in[5], in[6]);
    else contract_pack(c, operand, dst, first, in[5], in[6]);
    if (has_head)
        contract_call(c, HEAD,
                      (LLVMValueRef[]){dst, element(c, dst, num(c, -rows)), contract_in_words(c, in[6]), filled}, 4);
    em_end(e, &l);
    if (!is_quick) em_demote_nests(e);
    contract_end(c, o);
}

void contract_call_pack(contract *c, int operand, LLVMValueRef dst, LLVMValueRef batch, LLVMValueRef first,
                        LLVMValueRef panels, LLVMValueRef k0, LLVMValueRef k_count) {
    LLVMValueRef in[7] = {c->e->args, dst, batch, first, panels, k0, k_count};
    contract_call(c, operand ? PACK1 : PACK0, in, 7);
}

/* Phase 0: a tile is one panel of one batch of operand 1. */
static void emit_pack_phase(contract *c) {
    emit *e = c->e;
    LLVMValueRef panels = count_panels(c);
    em_loop t = em_for(e, e->tile_begin, e->tile_end, num(c, 1));
    LLVMValueRef batch = LLVMBuildUDiv(e->b, t.i, panels, ""), panel = LLVMBuildURem(e->b, t.i, panels, "");
    LLVMValueRef to = panel_of_b(c, batch, panel, panels);
    if (c->heads[1]) {
        em_loop l = em_for(e, num(c, 0), em_mul(e, blocks_of_k(c), num(c, c->kb)), num(c, c->kb));
        contract_call_pack(c, 1, element(c, to, block_of_panel(c, l.i)), batch, panel, num(c, 1), l.i,
                           em_min(e, em_sub(e, c->kk, l.i), num(c, c->kb)));
        em_end(e, &l);
    } else contract_call_pack(c, 1, to, batch, panel, num(c, 1), num(c, 0), c->kk);
    em_end(e, &t);
}

/* ---- phase 1: a tile is a block of MC x NC elements of one batch ---- */
typedef struct block {
    row_panels rows;                                   /* all of the rows */
    LLVMValueRef mc, nc, m_blocks, n_blocks, n_panels; /* panels of a block; blocks; all panels of columns */
    LLVMValueRef packed, in_place, swept, a_in_place;  /* where operands are read */
    LLVMValueRef edge, a, partial, sums, kept;         /* in scratch */
    LLVMValueRef a_rows;                               /* of `a`, and of what a row program keeps */
    LLVMValueRef batch, b_batch, m_first, m_count, n_first, n_count, k0, k_count; /* the block that is made */
    LLVMValueRef next_step; /* CONTRACT_B_NEXT_STEP where a panel is prefetched */
} block;

/* k with several dims: into the run that it is in; its place there. */
static LLVMValueRef enter_run(contract *c, LLVMValueRef k) {
    if (!c->n_outer_k) return k;
    LLVMValueRef length = contract_run_length(c);
    contract_decode_run(c, LLVMBuildUDiv(c->e->b, k, length, ""));
    return LLVMBuildURem(c->e->b, k, length, "");
}

/* Elements from the end of a run to the begin of the next; NULL with one dim of k. (In place there are at most two.) */
static LLVMValueRef jump_of(contract *c, int buffer) {
    emit *e = c->e;
    if (c->n_outer_k != 1) return NULL;
    LLVMValueRef back = em_mul(e, em_sub(e, contract_run_length(c), num(c, 1)), e->stride[buffer][c->dim_k]);
    return em_sub(e, e->stride[buffer][c->outer_k[0]], back);
}

/* Where column n0 of its run begins in operand 1 as it lies, at k0; enters the run of k. */
static LLVMValueRef column_in_place(contract *c, const block *s, LLVMValueRef n0) {
    const int buffer = c->k->inst[c->operand[1]].index;
    contract_point at = {c, NULL, n0, enter_run(c, s->k0), -1, NULL};
    return em_gep(c->e, c->e->base[buffer], c->t_acc, contract_offset(c, buffer, &at));
}

/* Where the panel of columns begins, and c->b_stride, c->b_jump: in the packed operand; or where it lies, but for what
 * is left of the last one, which is no whole panel; or in scratch, where it is packed for this block, by its first part
 * (is_begin; NULL: it has one). */
static LLVMValueRef panel_to_read(contract *c, const block *s, LLVMValueRef packed, LLVMValueRef panel,
                                  LLVMValueRef is_begin) {
    emit *e = c->e;
    LLVMValueRef nr = num(c, c->nr), here = NULL, stride = NULL, jump = NULL;
    LLVMBasicBlockRef start = LLVMGetInsertBlock(e->b), own = em_block(e, "own"), pack = em_block(e, "pack");
    LLVMBasicBlockRef ready = em_block(e, "ready"), in_place = NULL;
    LLVMBuildCondBr(e->b, s->packed, ready, own);
    LLVMPositionBuilderAtEnd(e->b, own);
    if (s->in_place) {
        int buffer = c->k->inst[c->operand[1]].index;
        const contract outer = *c;
        LLVMValueRef n0 = contract_decode_columns(c, em_mul(e, panel, nr));
        in_place = own;
        here = column_in_place(c, s, n0);
        stride = e->stride[buffer][c->dim_k];
        jump = jump_of(c, buffer);
        *c = outer;
        LLVMValueRef is_whole = em_icmp(e, LLVMIntSGE, em_sub(e, c->n, n0), nr);
        LLVMBuildCondBr(e->b, em_and(e, s->in_place, is_whole), ready, pack);
    } else LLVMBuildBr(e->b, pack);
    LLVMPositionBuilderAtEnd(e->b, pack);
    em_branch begin = {0};
    if (is_begin) begin = em_if(e, is_begin);
    contract_call_pack(c, 1, s->edge, s->b_batch, panel, num(c, 1), s->k0, s->k_count);
    if (is_begin) em_endif(e, &begin);
    LLVMBasicBlockRef pack_end = LLVMGetInsertBlock(e->b);
    LLVMBuildBr(e->b, ready);
    LLVMPositionBuilderAtEnd(e->b, ready);
    LLVMValueRef from = contract_merge(c, packed, start, s->edge, pack_end);
    c->b_stride = contract_merge(c, nr, start, nr, pack_end);
    c->b_jump = c->n_outer_k ? contract_merge(c, nr, start, nr, pack_end) : NULL;
    if (in_place) {
        LLVMAddIncoming(from, &here, &in_place, 1);
        LLVMAddIncoming(c->b_stride, &stride, &in_place, 1);
        if (c->n_outer_k) LLVMAddIncoming(c->b_jump, &jump, &in_place, 1);
    }
    return from;
}

/* Packs the block of operand 0, unless it is read where it lies: what the tile's function gets of it. */
static void block_of_a(contract *c, const block *s, LLVMValueRef m_first, LLVMValueRef m_count, LLVMValueRef *tile_in) {
    emit *e = c->e;
    LLVMValueRef zero = num(c, 0), bytes = num(c, c->acc_bytes), row = bytes, next_row = zero, a = s->a;
    LLVMValueRef k = num(c, c->mr * c->acc_bytes), words = contract_block_words(c);
    LLVMValueRef next = em_mul(e, em_add(e, words, num(c, c->heads[0])), k);
    LLVMValueRef row_bytes = em_mul(e, tile_in[CONTRACT_COUNT], bytes);
    LLVMValueRef jump = NULL, step = num(c, ir_dots[c->dot].step * c->packed_bytes);
    LLVMBasicBlockRef ready = em_block(e, "ready"), here = NULL;
    if (s->a_in_place) {
        int buffer = c->k->inst[c->operand[0]].index;
        LLVMBasicBlockRef pack = em_block(e, "pack");
        here = em_block(e, "in_place");
        LLVMBuildCondBr(e->b, s->a_in_place, here, pack);
        LLVMPositionBuilderAtEnd(e->b, here);
        const contract outer = *c;
        contract_point at = {c, tile_in[CONTRACT_M0], NULL, enter_run(c, s->k0), -1, NULL};
        a = em_gep(e, e->base[buffer], c->t_packed, contract_offset(c, buffer, &at));
        *c = outer;
        if (c->n_outer_k) jump = em_mul(e, jump_of(c, buffer), bytes);
        row = next_row = em_mul(e, e->stride[buffer][c->dim_m], num(c, c->packed_bytes));
        k = c->is_tile ? step : c->dot ? bytes : em_mul(e, e->stride[buffer][c->dim_k], bytes);
        LLVMBuildBr(e->b, ready);
        LLVMPositionBuilderAtEnd(e->b, pack);
    }
    contract_call_pack(c, 0, s->a, s->batch, m_first, m_count, s->k0, s->k_count);
    LLVMBasicBlockRef packed = LLVMGetInsertBlock(e->b);
    LLVMBuildBr(e->b, ready);
    LLVMPositionBuilderAtEnd(e->b, ready);
    LLVMValueRef from_pack[5] = {s->a, c->copies_a ? row_bytes : bytes,
                                 c->copies_a ? bytes : num(c, c->mr * c->acc_bytes), next, zero};
    if (c->is_tile) {
        from_pack[1] = step;
        from_pack[2] = em_mul(e, step, num(c, c->mr * c->parts));
    }
    LLVMValueRef in_place[5] = {a, row, k, zero, next_row};
    for (int i = 0; i < 5; i++)
        tile_in[CONTRACT_A + i] = here ? contract_merge(c, from_pack[i], packed, in_place[i], here) : from_pack[i];
    if (!c->n_outer_k) return;
    tile_in[CONTRACT_A_JUMP] = here ? contract_merge(c, from_pack[2], packed, jump, here) : from_pack[2];
}

/* ir_contract_part of the K block; at least a step. */
static LLVMValueRef part_of_k(contract *c) {
    emit *e = c->e;
    LLVMValueRef step = num(c, ir_dot_words(c->dot, 1)), all = contract_block_words(c);
    LLVMValueRef part = em_and(e, e->tune[IR_TUNE_CONTRACT_PART], em_sub(e, num(c, 0), step));
    part = em_select(e, em_icmp(e, LLVMIntSGE, part, step), part, all);
    return em_max(e, em_min(e, part, all), step);
}

/* A panel that is packed by this block is there as long as it is the only one of its group. */
static LLVMValueRef group_of_panels(contract *c, const block *s) {
    LLVMValueRef one = num(c, 1), n = em_max(c->e, c->e->tune[IR_TUNE_CONTRACT_GROUP], one);
    return em_select(c->e, s->packed, n, one);
}

/* The tiles of the block's panel j of columns. next: bytes from what they read of it to what is read next, of a packed
 * operand; 0: nothing. */
static void emit_panel(contract *c, const block *s, LLVMValueRef told, LLVMValueRef j, LLVMValueRef is_begin,
                       LLVMValueRef next) {
    emit *e = c->e;
    LLVMValueRef zero = num(c, 0), panel = em_add(e, s->n_first, j);
    LLVMValueRef pb = element(c, panel_of_b(c, s->b_batch, panel, s->n_panels), block_of_panel(c, s->k0));
    contract_tell(c, told, CONTRACT_B, panel_to_read(c, s, pb, panel, is_begin));
    contract_tell(c, told, CONTRACT_B_K, em_mul(e, c->b_stride, num(c, c->acc_bytes)));
    next = em_select(e, s->packed, next, zero);
    contract_tell(c, told, CONTRACT_B_NEXT, next);
    if (!c->is_tile)
        contract_tell(c, told, CONTRACT_B_NEXT_STEP,
                      em_select(e, em_icmp(e, LLVMIntNE, next, zero), s->next_step, zero));
    if (c->mr == 1) {
        LLVMValueRef is_stream = em_icmp(e, LLVMIntEQ, c->b_stride, num(c, c->nr));
        contract_tell(c, told, CONTRACT_PAGE_HEAD,
                      em_select(e, is_stream, e->tune[IR_TUNE_CONTRACT_PAGE_HEAD], num(c, IR_PAGE_BYTES)));
    }
    if (c->n_outer_k) contract_tell(c, told, CONTRACT_B_JUMP, em_mul(e, c->b_jump, num(c, c->acc_bytes)));
    contract_tell(c, told, CONTRACT_N0, em_mul(e, panel, num(c, c->nr)));
    LLVMValueRef before = em_mul(e, em_mul(e, j, s->m_count), num(c, c->mr * c->nr));
    contract_tell(c, told, CONTRACT_PARTIAL, element(c, s->partial, before));
    LLVMValueRef tile_of[2] = {e->args, told};
    if (c->k->last_columns) {
        LLVMValueRef left = em_sub(e, c->n, em_mul(e, panel, num(c, c->nr)));
        left = em_and(e, em_add(e, left, num(c, c->lanes - 1)), num(c, -c->lanes));
        em_branch b = em_if(e, em_icmp(e, LLVMIntEQ, left, num(c, c->k->last_columns)));
        contract_call(c, LAST_TILE, tile_of, 2);
        em_else(e, &b);
        contract_call(c, TILE, tile_of, 2);
        em_endif(e, &b);
    } else contract_call(c, TILE, tile_of, 2);
}

/* Bytes from panel j to the next; 0: there is none, or it is not to be prefetched: one row panel waits for memory
 * anyway, and while more are made than a row of the panel has bytes, the next is soon there. */
static LLVMValueRef next_panel(contract *c, const block *s, LLVMValueRef j) {
    emit *e = c->e;
    LLVMValueRef one = num(c, 1), line = num(c, c->nr * c->acc_bytes), panel = em_mul(e, words_of_panel(c), line);
    LLVMValueRef is_some = em_and(e, em_icmp(e, LLVMIntSGT, s->m_count, one), em_icmp(e, LLVMIntSLE, s->m_count, line));
    is_some = em_and(e, is_some, em_icmp(e, LLVMIntSLT, em_add(e, j, one), s->n_count));
    return em_select(e, is_some, panel, num(c, 0));
}

/* Bytes from a part of panel j to what comes behind it: the same of the next panel of the group, or the group's next part,
 * or the next group's first; 0: nothing. */
static LLVMValueRef next_part(contract *c, const block *s, LLVMValueRef first, LLVMValueRef j, LLVMValueRef end,
                              LLVMValueRef from, LLVMValueRef is_end, LLVMValueRef part) {
    emit *e = c->e;
    LLVMValueRef one = num(c, 1), line = num(c, c->nr * c->acc_bytes), panel = em_mul(e, words_of_panel(c), line);
    LLVMValueRef behind = em_add(e, j, one), back = em_mul(e, em_sub(e, first, j), panel);
    LLVMValueRef next =
        em_select(e, is_end, em_sub(e, panel, em_mul(e, from, line)), em_add(e, back, em_mul(e, part, line)));
    next = em_select(e, em_icmp(e, LLVMIntSLT, behind, end), panel, next);
    LLVMValueRef is_last = em_and(e, is_end, em_icmp(e, LLVMIntSGE, behind, s->n_count));
    LLVMValueRef is_none =
        em_or(e, is_last, em_icmp(e, LLVMIntSLE, s->m_count, one)); /* that waits for memory anyway */
    return em_select(e, is_none, num(c, 0), next);
}

/* Of tiles: groups of panels of columns; for each part of the K block, the panels of the group. A part of a panel stays
 * in L1 while the row panels go by, and the sums of a group in L2 between parts. */
static void emit_parts(contract *c, const block *s, LLVMValueRef told) {
    emit *e = c->e;
    LLVMValueRef one = num(c, 1), zero = num(c, 0), words = contract_in_words(c, s->k_count);
    LLVMValueRef part = part_of_k(c), group = group_of_panels(c, s);
    em_loop lg = em_for(e, zero, s->n_count, group);
    em_loop lp = em_for(e, zero, em_max(e, words, one), part);
    LLVMValueRef left = em_sub(e, words, lp.i), is_begin = em_icmp(e, LLVMIntEQ, lp.i, zero);
    contract_tell(c, told, CONTRACT_FROM, lp.i);
    contract_tell(c, told, CONTRACT_COUNT, em_min(e, left, part));
    contract_tell(c, told, CONTRACT_IS_BEGIN, is_begin);
    contract_tell(c, told, CONTRACT_IS_END, em_icmp(e, LLVMIntSLE, left, part));
    LLVMValueRef group_end = em_min(e, em_add(e, lg.i, group), s->n_count);
    em_loop lj = em_for(e, lg.i, group_end, one);
    LLVMValueRef before = em_mul(e, em_mul(e, em_sub(e, lj.i, lg.i), s->m_count), num(c, c->mr * c->nr));
    contract_tell(c, told, CONTRACT_SUMS, element(c, s->sums, before));
    emit_panel(c, s, told, lj.i, is_begin,
               next_part(c, s, lg.i, lj.i, group_end, lp.i, em_icmp(e, LLVMIntSLE, left, part), part));
    em_end(e, &lj);
    em_end(e, &lp);
    em_end(e, &lg);
}

/* Bytes of a panel's row that each of `panels` prefetches, rounded up. */
static LLVMValueRef share_of_row(contract *c, LLVMValueRef panels) {
    emit *e = c->e;
    LLVMValueRef n = LLVMBuildTrunc(e->b, panels, e->t_i32, ""), row = em_i32(e, c->nr * c->acc_bytes - 1);
    return LLVMBuildZExt(e->b, LLVMBuildUDiv(e->b, em_add(e, row, n), n, ""), e->t_i64, "");
}

/* Into how many blocks of how many panels the operands are cut. */
static void cut_blocks(contract *c, block *s) {
    emit *e = c->e;
    LLVMValueRef one = num(c, 1);
    s->rows = cut_rows(c);
    s->n_panels = count_panels(c);
    s->mc = LLVMBuildUDiv(e->b, e->tune[IR_TUNE_CONTRACT_MC], num(c, c->mr), "");
    s->nc = LLVMBuildUDiv(e->b, e->tune[IR_TUNE_CONTRACT_NC], num(c, c->nr), "");
    s->mc = em_max(e, s->mc, one);
    s->nc = em_max(e, s->nc, one);
    s->m_blocks = LLVMBuildUDiv(e->b, em_sub(e, em_add(e, s->rows.n, s->mc), one), s->mc, "");
    s->n_blocks = LLVMBuildUDiv(e->b, em_sub(e, em_add(e, s->n_panels, s->nc), one), s->nc, "");
    if (ir_kernel_has_rows(c->whole)) { /* a block as wide as n, be that 0 */
        s->nc = em_select(e, contract_rows_later(c), s->nc, s->n_panels);
        s->n_blocks = em_select(e, contract_rows_later(c), s->n_blocks, one);
    }
}

/* Up to whole lines. */
static LLVMValueRef in_lines(contract *c, LLVMValueRef bytes) {
    return em_and(c->e, em_add(c->e, bytes, num(c, 63)), num(c, -64));
}

/* Scratch: ir_kernel_contract_head_bytes, a panel of operand 1, a block of operand 0, partial sums, sums between parts,
 * what a row program keeps; each as long as it is used (ir_launch_contract counts the same). */
static void divide_scratch(contract *c, block *s) {
    emit *e = c->e;
    const ir_kernel *k = c->k;
    LLVMValueRef zero = num(c, 0), k_panel = contract_block_words(c), how = e->tune[IR_TUNE_CONTRACT_B];
    s->edge = em_gep(e, e->scratch, e->t_i8, num(c, ir_kernel_contract_head_bytes(c->whole)));
    LLVMValueRef b_bytes = em_mul(e, em_add(e, k_panel, num(c, c->heads[1])), num(c, c->nr * c->acc_bytes));
    s->packed = em_icmp(e, LLVMIntEQ, how, num(c, IR_CONTRACT_B_PACKED));
    if (ir_kernel_contract_in_place(k)) s->in_place = em_icmp(e, LLVMIntEQ, how, num(c, IR_CONTRACT_B_IN_PLACE));
    if (k->can_sweep) {
        LLVMValueRef rest = em_and(e, c->kk, num(c, IR_SWEPT_STEPS - 1));
        s->swept =
            em_and(e, em_icmp(e, LLVMIntEQ, how, num(c, IR_CONTRACT_B_SWEPT)), em_icmp(e, LLVMIntEQ, rest, zero));
    }
    s->a = em_gep(e, s->edge, e->t_i8, em_select(e, s->packed, zero, in_lines(c, b_bytes)));
    s->edge = element(c, s->edge, num(c, c->heads[1] * c->nr));
    s->a_rows = em_mul(e, em_min(e, s->mc, s->rows.n), num(c, c->mr));
    LLVMValueRef a_words = em_mul(e, s->a_rows, em_add(e, k_panel, num(c, c->heads[0])));
    a_words = em_add(e, a_words, num(c, c->lanes * (c->mr + 1)));
    LLVMValueRef a_bytes = in_lines(c, em_mul(e, a_words, num(c, c->acc_bytes)));
    if (ir_kernel_contract_a_in_place(k)) {
        LLVMValueRef whole = em_icmp(e, LLVMIntEQ, em_and(e, c->kk, num(c, ir_dots[c->dot].step - 1)), zero);
        s->a_in_place = em_and(e, em_icmp(e, LLVMIntNE, e->tune[IR_TUNE_CONTRACT_A_IN_PLACE], zero), whole);
        a_bytes = em_select(e, s->a_in_place, zero, a_bytes);
    }
    s->partial = em_gep(e, s->a, e->t_i8, a_bytes);
    s->a = element(c, s->a, num(c, c->heads[0] * c->mr));
    if (!ir_kernel_has_rows(c->whole) && !c->is_tile && !s->swept) return;
    LLVMValueRef columns = em_min(e, s->nc, s->n_panels), panel_bytes = num(c, c->nr * c->acc_bytes);
    LLVMValueRef partial_bytes = in_lines(c, em_mul(e, em_mul(e, s->a_rows, columns), panel_bytes));
    LLVMValueRef has_sums = em_icmp(e, LLVMIntSGT, c->kk, num(c, c->kb));
    s->sums = s->kept = em_gep(e, s->partial, e->t_i8, em_select(e, has_sums, partial_bytes, zero));
    if (s->swept) s->kept = em_gep(e, s->kept, e->t_i8, em_select(e, s->swept, partial_bytes, zero));
    if (!c->is_tile) return;
    LLVMValueRef group = em_min(e, group_of_panels(c, s), columns);
    LLVMValueRef has_parts = em_icmp(e, LLVMIntSLT, part_of_k(c), k_panel);
    LLVMValueRef bytes = em_mul(e, em_mul(e, s->a_rows, group), panel_bytes);
    s->kept = em_gep(e, s->kept, e->t_i8, em_select(e, has_parts, bytes, zero));
}

/* The block that tile t is: its batch and its panels. */
static void enter_block(contract *c, block *s, LLVMValueRef t) {
    emit *e = c->e;
    LLVMValueRef nb = LLVMBuildURem(e->b, t, s->n_blocks, ""), q = LLVMBuildUDiv(e->b, t, s->n_blocks, "");
    LLVMValueRef mb = LLVMBuildURem(e->b, q, s->m_blocks, "");
    const uint32_t b_dims = ir_kernel_varies(c->k, c->operand[1]);
    s->batch = LLVMBuildUDiv(e->b, q, s->m_blocks, "");
    contract_decode_batch(c, s->batch, UINT32_MAX);
    s->b_batch = num(c, 0);
    for (int i = 0; i < c->n_batch; i++)
        if (b_dims >> c->batch[i] & 1)
            s->b_batch = em_add(e, em_mul(e, s->b_batch, e->size[c->batch[i]]), c->index[c->batch[i]]);
    s->m_first = em_mul(e, mb, s->mc);
    s->n_first = em_mul(e, nb, s->nc);
    s->m_count = em_min(e, em_sub(e, s->rows.n, s->m_first), s->mc);
    s->n_count = em_min(e, em_sub(e, s->n_panels, s->n_first), s->nc);
}

/* The whole panels of a block that is swept: how many they are. */
static LLVMValueRef sweep_panels(contract *c, const block *s, LLVMValueRef told) {
    emit *e = c->e;
    LLVMValueRef nr = num(c, c->nr), zero = num(c, 0), all = LLVMBuildUDiv(e->b, c->n, nr, "");
    LLVMValueRef whole = em_select(e, s->swept, em_min(e, em_sub(e, all, s->n_first), s->n_count), zero);
    em_branch b = em_if(e, em_icmp(e, LLVMIntSGT, whole, zero));
    LLVMValueRef n0 = em_mul(e, s->n_first, nr);
    const int buffer = c->k->inst[c->operand[1]].index;
    contract_tell(c, told, CONTRACT_B, column_in_place(c, s, n0));
    contract_tell(c, told, CONTRACT_B_K, em_mul(e, e->stride[buffer][c->dim_k], num(c, c->acc_bytes)));
    contract_tell(c, told, CONTRACT_N0, n0);
    contract_tell(c, told, CONTRACT_COLUMNS, whole);
    contract_tell(c, told, CONTRACT_SUMS, s->sums);
    contract_tell(c, told, CONTRACT_PARTIAL, s->partial);
    contract_call(c, SWEEP, (LLVMValueRef[]){e->args, told}, 2);
    em_endif(e, &b);
    return whole;
}

/* Products of the K block from k0 on: told is what the tile's function gets. */
static void emit_k_block(contract *c, block *s, LLVMValueRef k0, LLVMValueRef row_first, LLVMValueRef told) {
    emit *e = c->e;
    LLVMValueRef zero = num(c, 0), one = num(c, 1);
    s->k0 = k0;
    s->k_count = em_min(e, em_sub(e, c->kk, k0), num(c, c->kb));
    LLVMValueRef tile_in[CONTRACT_TILE_PARAMETERS] = {
        [CONTRACT_COUNT] = contract_in_words(c, s->k_count), /* tiles: of all parts */
        [CONTRACT_M0] = row_first,
        [CONTRACT_PANELS] = s->m_count,
        [CONTRACT_ROWS_LEFT] = s->rows.left,
        [CONTRACT_FULL] = em_sub(e, s->rows.full, s->m_first),
        [CONTRACT_BATCH] = s->batch,
        [CONTRACT_IS_LATER] = em_icmp(e, LLVMIntNE, k0, zero),
        [CONTRACT_IS_LAST] = em_icmp(e, LLVMIntSGE, em_add(e, k0, num(c, c->kb)), c->kk),
    };
    s->next_step = share_of_row(c, s->m_count);
    block_of_a(c, s, s->m_first, s->m_count, tile_in);
    if (c->n_outer_k) {
        tile_in[CONTRACT_RUN] = contract_run_length(c);
        tile_in[CONTRACT_LEFT] = em_sub(e, tile_in[CONTRACT_RUN], LLVMBuildURem(e->b, k0, tile_in[CONTRACT_RUN], ""));
    }
    for (int i = 0; i < CONTRACT_TILE_PARAMETERS; i++)
        if (tile_in[i]) contract_tell(c, told, i, tile_in[i]);
    if (c->dot == IR_DOT_BF16) contract_tell(c, told, CONTRACT_SUMS, e->scratch);
    if (c->is_tile) {
        emit_parts(c, s, told);
        return;
    }
    em_loop lj = em_for(e, s->swept ? sweep_panels(c, s, told) : zero, s->n_count, one);
    emit_panel(c, s, told, lj.i, NULL, next_panel(c, s, lj.i));
    em_end(e, &lj);
}

static void emit_compute_phase(contract *c) {
    emit *e = c->e;
    LLVMValueRef zero = num(c, 0), one = num(c, 1);
    const bool has_rows = ir_kernel_has_rows(c->whole);
    block s = {.packed = NULL};
    cut_blocks(c, &s);
    divide_scratch(c, &s);
    LLVMValueRef told = em_alloca(e, LLVMArrayType2(e->t_i64, CONTRACT_TILE_PARAMETERS), 8);
    if (c->is_tile) contract_tell(c, told, CONTRACT_CONFIGURED, num(c, -1));
    em_loop t = em_for(e, e->tile_begin, e->tile_end, one);
    enter_block(c, &s, t.i);
    LLVMValueRef row_first = first_row(c, s.m_first);
    if (has_rows) contract_begin_block(c, s.kept, s.batch, row_first, s.a_rows);
    /* K = 0 still makes one (empty) block: its totals are 0 and the epilogue runs. */
    em_loop lk = em_for(e, zero, em_max(e, c->kk, one), num(c, c->kb));
    emit_k_block(c, &s, lk.i, row_first, told);
    em_end(e, &lk);
    if (has_rows)
        contract_end_block(c, s.kept, s.batch, row_first, first_row(c, em_add(e, s.m_first, s.m_count)), s.a_rows);
    em_end(e, &t);
    if (c->is_tile) amx_release(e);
}

/* ---- checks beyond ir_kernel_verify, which made sure of the dims b.. m n k and of one matmul ---- */
static fusor_status read_description(contract *c, fu_error *err) {
    const ir_kernel *k = c->k;
    c->dim_m = k->n_dims - 3;
    c->dim_n = k->n_dims - 2;
    c->dim_k = k->n_dims - 1;
    for (int d = 0; d < c->dim_m; d++) {
        switch (k->dim[d].role) {
        case 'b': c->batch[c->n_batch++] = d; break;
        case 'y': c->outer_n[c->n_outer_n++] = d; break;
        case 'j': c->outer_k[c->n_outer_k++] = d; break;
        default:
            return FU_FAIL(err, FUSOR_ERROR_INTERNAL,
                           "contract kernel: dim %d has role '%c'; expected 'b', 'y' or 'j' before m, n, k", d,
                           k->dim[d].role);
        }
    }
    uint32_t columns = 1u << c->dim_n, products = 1u << c->dim_k;
    for (int i = 0; i < c->n_outer_n; i++) columns |= 1u << c->outer_n[i];
    for (int i = 0; i < c->n_outer_k; i++) products |= 1u << c->outer_k[i];
    for (int i = 0; i < k->n_insts; i++) {
        uint32_t varies = ir_kernel_varies(k, i);
        if (k->inst[i].op == IR_OP_MATMUL) {
            c->matmul = i;
            c->operand[0] = k->inst[i].in[0];
            c->operand[1] = k->inst[i].in[1];
            if ((ir_kernel_varies(k, c->operand[0]) & columns) || (ir_kernel_varies(k, c->operand[1]) >> c->dim_m & 1))
                return FU_FAIL(err, FUSOR_ERROR_INTERNAL,
                               "contract kernel: an operand of %%%d varies along the other's dim", i);
        } else if (k->inst[i].op == IR_K_STORE) {
            if (varies & products)
                return FU_FAIL(err, FUSOR_ERROR_INTERNAL, "contract kernel: the value stored by %%%d varies along k",
                               i);
            if (k->buffer[k->inst[i].index].stride[c->dim_n] == 0)
                return FU_FAIL(err, FUSOR_ERROR_INTERNAL, "contract kernel: output %d does not vary along n",
                               k->inst[i].index);
        }
    }
    return FUSOR_OK;
}

fusor_status jit_emit_contract(emit *e, fu_error *err) {
    contract *c = FU_NEW(e->arena, contract);
    c->e = e;
    c->whole = e->k;
    if (ir_kernel_has_rows(c->whole)) {
        ir_kernel *tile = FU_NEW(e->arena, ir_kernel);
        ir_kernel_tile_program(c->whole, tile);
        em_take_program(e, tile);
    }
    c->k = e->k;
    FU_TRY(read_description(c, err));
    c->acc = ir_kernel_contract_acc(c->k);
    c->acc_bytes = ir_dtypes[c->acc].bytes;
    c->lanes = e->level->lanes;
    c->v_lanes = e->level->vector_bytes / c->acc_bytes;
    c->mr = c->k->tile.mr;
    c->nr = c->k->tile.nr;
    c->kb = c->k->tile.kb;
    c->nv = c->nr / c->v_lanes;
    const int64_t n = c->k->dim[c->dim_n].size;
    c->columns = n >= 1 && n < c->nr ? (int)n : c->nr;
    c->t_acc = em_scalar_type(e, c->acc);
    c->t_vec = LLVMVectorType(c->t_acc, (unsigned)c->v_lanes);
    contract_set_dot(c);
    if (c->k != c->whole) contract_load_args(c, e->args);
    if (c->k->is_direct) return contract_emit_direct(c, err);
    bool fits = c->is_tile ? c->mr == 32 && c->nr == 32
                           : c->mr <= c->lanes && c->mr <= CONTRACT_MAX_ROWS && c->nv <= 8 &&
                                 c->mr * c->nv <= CONTRACT_MAX_TILE;
    if (c->mr < 1 || c->kb < 1 || c->nr < 1 || c->nr % c->lanes || c->nr % c->v_lanes || !fits)
        return FU_FAIL(err, FUSOR_ERROR_INTERNAL, "contract kernel: tile %d x %d x %d does not fit level %s", c->mr,
                       c->nr, c->kb, e->level->name);
    if (c->n_outer_k && c->dot)
        return FU_FAIL(err, FUSOR_ERROR_INTERNAL,
                       "contract kernel: words of several elements along k, but several dims of k");
    if ((c->n_outer_n || c->n_outer_k) && ir_kernel_has_rows(c->whole))
        return FU_FAIL(err, FUSOR_ERROR_INTERNAL, "contract kernel: a row program needs one dim each of n and k");
    if (c->kb % ir_dots[c->dot].step)
        return FU_FAIL(err, FUSOR_ERROR_INTERNAL, "contract kernel: K blocks of %d are no whole steps of %d", c->kb,
                       ir_dots[c->dot].step);
    contract_set_values(c);
    contract_emit_head(c);
    contract_emit_pack(c, 0);
    contract_emit_pack(c, 1);
    contract_emit_epilogue(c);
    if (c->is_tile) contract_emit_amx_tile(c);
    else contract_emit_tiles(c);
    if (c->k->can_sweep) contract_emit_sweep(c);
    const bool has_rows = ir_kernel_has_rows(c->whole);
    if (has_rows) FU_TRY(contract_emit_rows(c, err));

    em_branch phase = em_if(e, em_icmp(e, LLVMIntEQ, e->phase, LLVMConstInt(LLVMTypeOf(e->phase), 0, 0)));
    emit_pack_phase(c);
    em_else(e, &phase);
    em_branch rows = {0};
    if (has_rows) {
        rows = em_if(e, em_icmp(e, LLVMIntEQ, e->phase, LLVMConstInt(LLVMTypeOf(e->phase), 2, 0)));
        contract_emit_row_phase(c);
        em_else(e, &rows);
    }
    emit_compute_phase(c);
    if (has_rows) em_endif(e, &rows);
    em_endif(e, &phase);
    em_demote(e);
    return FUSOR_OK;
}
