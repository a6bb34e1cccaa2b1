/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* contract_tile.c: the register tile of a contraction, in the function that most of the time is spent in. A call makes
 * the tiles of one panel of operand 1 and a run of row panels of operand 0, one below the other:
 *
 *   accumulators = 0; for k: for each row of the panel: products with nv vectors of operand 1
 *   not the first K block: add what the blocks before left
 *   not the last: store to the partial sums; else to the outputs from the registers, where the program behind the
 *   matmul is cheap and the columns are whole, or by way of memory and contract_epilogue.c
 *
 * A panel has any number of rows up to mr. In one of fewer each step branches out behind the panel's last row, so the
 * last panel of an output is not filled up, and operand 0 can be read where it lies.
 *
 * Words of panels that hold several elements are multiplied by contract_dot.c. */
#include "jit/contract.h"
#include <string.h>

/* Rows that one pointer into operand 0 serves: x86 addresses reach 0, 1 and 2 strides from it. */
enum { ROWS_A_POINTER = 3, A_POINTERS = (CONTRACT_MAX_ROWS + ROWS_A_POINTER - 1) / ROWS_A_POINTER };

typedef struct tile {
    contract *c;
    LLVMValueRef in[CONTRACT_TILE_PARAMETERS]; /* what products need, loaded in front of them */
    LLVMValueRef n0;                           /* in its run of columns */
    LLVMValueRef m0, rows, pa, partial;        /* of the panel */
    LLVMValueRef next, next_step; /* the next panel of operand 1: where this row panel prefetches; bytes each step */
    LLVMValueRef page_head;       /* of a single row: bytes at the begin of each page that are prefetched */
    LLVMValueRef sum[CONTRACT_MAX_TILE]; /* [row][vector] */
} tile;

LLVMValueRef contract_tile_load(contract *c, LLVMValueRef ptr, int align) {
    LLVMValueRef v = LLVMBuildLoad2(c->e->b, c->t_vec, ptr, "");
    LLVMSetAlignment(v, (unsigned)align);
    return v;
}

LLVMValueRef contract_mul_add(contract *c, LLVMValueRef a, LLVMValueRef b, LLVMValueRef acc, bool is_slow) {
    emit *e = c->e;
    if (c->dot) return contract_dot(c, acc, a, b, is_slow);
    return ir_is_float(c->acc) ? em_mad(e, a, b, acc) : em_add(e, em_mul(e, a, b), acc);
}

/* The compiler would make one pointer and a register for the distance of each row of several pointers that advance
 * alike. */
static LLVMValueRef opaque(contract *c, LLVMValueRef x) { return em_opaque(c->e, x); }

static LLVMBasicBlockRef here(contract *c) { return LLVMGetInsertBlock(c->e->b); }
static void at_end_of(contract *c, LLVMBasicBlockRef block) { LLVMPositionBuilderAtEnd(c->e->b, block); }

/* Behind row i of a step or store: on to the next row, in a block of its own, if the panel has it, else to `out`. */
static void next_row(tile *t, int i, LLVMBasicBlockRef out) {
    contract *c = t->c;
    LLVMBasicBlockRef next = em_block(c->e, "row");
    LLVMBuildCondBr(c->e->b, em_icmp(c->e, LLVMIntSGT, t->rows, num(c, i + 1)), next, out);
    at_end_of(c, next);
}

/* Of operand 1, that a step reads. */
static int bytes_of_step(const contract *c) { return c->nv * c->v_lanes * c->acc_bytes; }

/* The vectors of operand 1 of a step. */
static void load_columns(contract *c, LLVMValueRef pb, LLVMValueRef *b) {
    for (int j = 0; j < c->nv; j++) b[j] = contract_tile_load(c, element(c, pb, num(c, j * c->v_lanes)), c->acc_bytes);
}

/* The panel of operand 1 comes from L3 or memory the first time; the hardware's prefetcher is late for it. Eight steps
 * ahead: as far as an address reaches, and more is slower in place, where rows may share sets of the cache.
 * A single row reads packed panels as one stream, which the hardware follows except where a page begins: how much of a
 * page is prefetched is the launch's to say (src/rt/tune.c). Two lines a step (v2) cost no more than to see where they
 * are. */
static void prefetch_columns(tile *t, LLVMValueRef pb) {
    contract *c = t->c;
    emit *e = c->e;
    const int bytes = bytes_of_step(c);
    const bool is_stream = c->mr == 1 && bytes > 2 * EM_LINE_BYTES;
    LLVMValueRef ahead = bytes_behind(c, pb, LLVMBuildShl(e->b, t->in[CONTRACT_B_K], num(c, 3), ""));
    em_branch wanted = {0};
    if (is_stream) {
        LLVMValueRef in_page = em_and(e, LLVMBuildPtrToInt(e->b, ahead, e->t_i64, ""), num(c, IR_PAGE_BYTES - 1));
        wanted = em_if(e, em_icmp(e, LLVMIntSLT, in_page, t->page_head));
    }
    em_prefetch_lines(e, ahead, bytes, 1);
    if (is_stream) em_endif(e, &wanted);
}

/* acc += the element at p times the vectors of operand 1. */
static void row_products(contract *c, LLVMValueRef p, LLVMValueRef *b, LLVMValueRef *acc, bool is_slow) {
    LLVMValueRef a = em_load_splat(c->e, c->t_vec, p, (unsigned)c->packed_bytes);
    for (int j = 0; j < c->nv; j++) acc[j] = contract_mul_add(c, a, b[j], acc[j], is_slow);
}

/* Of the pointers into operand 0, each of which serves some rows. */
static LLVMValueRef row_of(tile *t, LLVMValueRef *pa, int i) {
    const int far = i % ROWS_A_POINTER;
    LLVMValueRef p = pa[i / ROWS_A_POINTER], row = t->in[CONTRACT_A_ROW];
    if (!far) return p;
    return bytes_behind(t->c, p, far == 1 ? row : LLVMBuildShl(t->c->e->b, row, num(t->c, 1), ""));
}

/* The products of one step into acc, and on to `latch`. end[i]: where row i ends. next: what is prefetched of the next
 * panel, or NULL. */
static void tile_step(tile *t, LLVMValueRef *acc, LLVMValueRef *pa, LLVMValueRef pb, LLVMValueRef next,
                      LLVMBasicBlockRef latch, LLVMBasicBlockRef *end, bool is_slow) {
    contract *c = t->c;
    LLVMValueRef b[8];
    load_columns(c, pb, b);
    if (next) em_prefetch(c->e, next, 2);
    prefetch_columns(t, pb);
    for (int i = 0; i < c->mr; i++) {
        row_products(c, row_of(t, pa, i), b, &acc[i * c->nv], is_slow);
        end[i] = here(c);
        if (i + 1 < c->mr) next_row(t, i, latch);
    }
    LLVMBuildBr(c->e->b, latch);
    at_end_of(c, latch);
}

/* What products have come to. */
typedef struct progress {
    LLVMValueRef pa, pb, next, count, sum[CONTRACT_MAX_TILE]; /* count: words along k that are left */
} progress;

/* Panels of mr rows, by STEPS: without a branch for each row, and what the steps AHEAD read of operand 1 on its way to
 * L1, since the panel comes from L2, or L3 the first time, and the hardware's prefetcher is late for it. (A core of two
 * 512-bit loads a cycle, 32 KB L1 and 1 MB L2, one thread, f32, time with it over without: 128 and 256 cubed 0.97, 1000
 * cubed 0.975, 32 x 1024 x 1024 0.91. 12 steps ahead 1000 cubed takes 1.3 times as long. A core that shares its decoders
 * with another thread is bound by the number of instructions: of the peak, 68 % with branches, 80 % without by two
 * steps, 82 % by four.) Rows have a pointer each, where there are registers for them, and one offset. What is left
 * along k goes on in the loop with branches. Products of integers that take several instructions: half as many steps,
 * for registers. */
enum { STEPS = 4, AHEAD = 4, MOST_ROW_POINTERS = 8 };
static void sum_whole_panel(tile *t, progress *at) {
    enum { B, COUNT, OFFSET, NEXT, ROW_POINTERS }; /* what a turn of the loop hands on */
    contract *c = t->c;
    emit *e = c->e;
    const int n_sums = c->mr * c->nv,
              steps = (ir_is_float(c->acc) || c->dot == IR_DOT_I8) && !c->is_last ? STEPS : STEPS / 2;
    const bool has_row_pointers = c->mr <= MOST_ROW_POINTERS;
    const int n_pointers = has_row_pointers ? c->mr : (c->mr + ROWS_A_POINTER - 1) / ROWS_A_POINTER,
              apart = has_row_pointers ? 1 : ROWS_A_POINTER,
              n_phis = ROW_POINTERS + (has_row_pointers ? 0 : n_pointers);
    LLVMValueRef row = t->in[CONTRACT_A_ROW], a_step = t->in[CONTRACT_A_K], b_step = t->in[CONTRACT_B_K];
    LLVMBasicBlockRef start = em_block(e, "whole_panel"), body = em_block(e, "whole_steps"), done = em_block(e, "rest"),
                      entry = here(c);
    LLVMValueRef is_whole = em_icmp(e, LLVMIntEQ, t->rows, num(c, c->mr)),
                 has_steps = em_icmp(e, LLVMIntSGE, at->count, num(c, steps));
    LLVMBuildCondBr(e->b, em_and(e, is_whole, has_steps), start, done);

    at_end_of(c, start);
    LLVMValueRef pa[CONTRACT_MAX_ROWS], begin[ROW_POINTERS + CONTRACT_MAX_ROWS], phi[ROW_POINTERS + CONTRACT_MAX_ROWS];
    LLVMValueRef acc[CONTRACT_MAX_TILE], sum[CONTRACT_MAX_TILE];
    pa[0] = at->pa;
    for (int i = 1; i < n_pointers; i++) pa[i] = opaque(c, bytes_behind(c, pa[i - 1], em_mul(e, row, num(c, apart))));
    begin[B] = at->pb;
    begin[COUNT] = at->count;
    begin[OFFSET] = num(c, 0);
    begin[NEXT] = at->next;
    for (int i = ROW_POINTERS; i < n_phis; i++) begin[i] = pa[i - ROW_POINTERS];
    LLVMBuildBr(e->b, body);
    at_end_of(c, body);
    for (int i = 0; i < n_phis; i++) {
        phi[i] = LLVMBuildPhi(e->b, LLVMTypeOf(begin[i]), "");
        LLVMAddIncoming(phi[i], &begin[i], &start, 1);
    }
    for (int i = 0; i < n_sums; i++) {
        acc[i] = sum[i] = LLVMBuildPhi(e->b, c->t_vec, "");
        LLVMAddIncoming(sum[i], &at->sum[i], &start, 1);
    }
    LLVMValueRef pb = phi[B], offset = phi[OFFSET], b[8];
    for (int i = ROW_POINTERS; i < n_phis; i++) pa[i - ROW_POINTERS] = phi[i];
    const int most = steps * bytes_of_step(c) / 2; /* of two row panels; there are no fewer */
    em_prefetch_lines(e, phi[NEXT], most > EM_LINE_BYTES ? most : EM_LINE_BYTES, 2);
    LLVMValueRef next = bytes_behind(c, phi[NEXT], em_mul(e, t->next_step, num(c, steps)));
    for (int step = 0; step < steps; step++) {
        load_columns(c, pb, b);
        em_prefetch_lines(e, bytes_behind(c, pb, em_mul(e, b_step, num(c, AHEAD))), bytes_of_step(c), 1);
        for (int i = 0; i < c->mr; i++)
            row_products(c, has_row_pointers ? bytes_behind(c, pa[i], offset) : row_of(t, pa, i), b, &acc[i * c->nv],
                         false);
        pb = bytes_behind(c, pb, b_step);
        if (has_row_pointers) offset = opaque(c, em_add(e, offset, a_step));
        for (int i = ROW_POINTERS; i < n_phis; i++)
            pa[i - ROW_POINTERS] = opaque(c, bytes_behind(c, pa[i - ROW_POINTERS], a_step));
    }
    LLVMValueRef then[ROW_POINTERS + CONTRACT_MAX_ROWS] = {pb, em_sub(e, phi[COUNT], num(c, steps)), offset, next};
    for (int i = ROW_POINTERS; i < n_phis; i++) then[i] = pa[i - ROW_POINTERS];
    for (int i = 0; i < n_phis; i++) LLVMAddIncoming(phi[i], &then[i], &body, 1);
    for (int i = 0; i < n_sums; i++) LLVMAddIncoming(sum[i], &acc[i], &body, 1);
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSGE, then[COUNT], num(c, steps)), body, done);

    at_end_of(c, done);
    at->pb = contract_merge(c, at->pb, entry, pb, body);
    at->next = contract_merge(c, at->next, entry, next, body);
    at->count = contract_merge(c, at->count, entry, then[COUNT], body);
    for (int i = 0; i < n_sums; i++) at->sum[i] = contract_merge(c, at->sum[i], entry, acc[i], body);
    if (has_row_pointers) at->pa = bytes_behind(c, at->pa, contract_merge(c, num(c, 0), entry, offset, body));
    else at->pa = contract_merge(c, at->pa, entry, pa[0], body);
}

/* t->sum = the products of the panels. */
static void sum_products(tile *t, bool is_slow) {
    contract *c = t->c;
    emit *e = c->e;
    int n = c->mr * c->nv, n_pointers = (c->mr + ROWS_A_POINTER - 1) / ROWS_A_POINTER;
    progress at = {t->pa, t->in[CONTRACT_B], t->next, t->in[CONTRACT_COUNT], {0}};
    for (int i = 0; i < n; i++) { /* sums begin with the head of the panel */
        LLVMValueRef head = element(c, at.pb, num(c, i % c->nv * c->v_lanes - c->nr));
        at.sum[i] = i >= c->nv            ? at.sum[i - c->nv]
                    : c->dot == IR_DOT_I8 ? contract_tile_load(c, head, c->acc_bytes)
                                          : LLVMConstNull(c->t_vec);
    }
    if (!is_slow && !c->n_outer_k && c->mr > 1) sum_whole_panel(t, &at);
    LLVMBasicBlockRef entry = here(c), body = em_block(e, "products"), done = em_block(e, "sums"),
                      end[CONTRACT_MAX_ROWS];
    LLVMBasicBlockRef latch = em_block(e, "step");
    LLVMValueRef acc[CONTRACT_MAX_TILE], pa[A_POINTERS], row = t->in[CONTRACT_A_ROW];
    LLVMValueRef begin[A_POINTERS + 3], phi[A_POINTERS + 3];
    /* With several dims along k there are no registers for where the next panel is. (256 x 1024 x 4096: 1.00 of the
     * time with prefetches.) */
    const int last = n_pointers + 2, left = c->n_outer_k ? last : -1, next = left < 0 && c->mr > 1 ? last : -1,
              n_phis = last + (left >= 0 || next >= 0);
    begin[0] = at.pb;
    begin[1] = at.count;
    for (int i = 0; i < n_pointers; i++)
        begin[2 + i] = i ? bytes_behind(c, begin[1 + i], em_mul(e, row, num(c, ROWS_A_POINTER))) : at.pa;
    if (next >= 0) begin[next] = at.next;
    if (left >= 0) begin[left] = t->in[CONTRACT_LEFT];
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSGT, begin[1], num(c, 0)), body, done);

    at_end_of(c, body);
    for (int i = 0; i < n_phis; i++) {
        phi[i] = LLVMBuildPhi(e->b, LLVMTypeOf(begin[i]), "");
        LLVMAddIncoming(phi[i], &begin[i], &entry, 1);
        if (i >= 2 && i < n_pointers + 2) pa[i - 2] = phi[i];
    }
    for (int i = 0; i < n; i++) {
        acc[i] = t->sum[i] = LLVMBuildPhi(e->b, c->t_vec, "");
        LLVMAddIncoming(t->sum[i], &at.sum[i], &entry, 1);
    }
    tile_step(t, acc, pa, phi[0], next < 0 ? NULL : phi[next], latch, end, is_slow);
    for (int i = 0; i < n; i++) {
        LLVMValueRef after = LLVMBuildPhi(e->b, c->t_vec, "");
        for (int r = 0; r < c->mr; r++) LLVMAddIncoming(after, r < i / c->nv ? &t->sum[i] : &acc[i], &end[r], 1);
        LLVMAddIncoming(t->sum[i], &after, &latch, 1);
        acc[i] = after;
    }
    LLVMValueRef a_step = t->in[CONTRACT_A_K], b_step = t->in[CONTRACT_B_K], then[A_POINTERS + 3];
    if (left >= 0) {
        LLVMValueRef rest = em_sub(e, phi[left], num(c, 1)), at_end = em_icmp(e, LLVMIntEQ, rest, num(c, 0));
        a_step = em_select(e, at_end, t->in[CONTRACT_A_JUMP], a_step);
        b_step = em_select(e, at_end, t->in[CONTRACT_B_JUMP], b_step);
        then[left] = em_select(e, at_end, t->in[CONTRACT_RUN], rest);
    }
    then[0] = bytes_behind(c, phi[0], b_step);
    then[1] = em_sub(e, phi[1], num(c, 1));
    if (next >= 0) then[next] = bytes_behind(c, phi[next], t->next_step);
    for (int i = 0; i < n_pointers; i++) then[2 + i] = opaque(c, bytes_behind(c, pa[i], a_step));
    for (int i = 0; i < n_phis; i++) LLVMAddIncoming(phi[i], &then[i], &latch, 1);
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntNE, then[1], num(c, 0)), body, done);

    at_end_of(c, done);
    for (int i = 0; i < n; i++) t->sum[i] = contract_merge(c, at.sum[i], entry, acc[i], latch);
}

/* What products need: loaded for each panel anew. */
static void load_words(tile *t) {
    static const uint8_t words[] = {CONTRACT_A_ROW, CONTRACT_A_K, CONTRACT_B,      CONTRACT_B_K,   CONTRACT_COUNT,
                                    CONTRACT_LEFT,  CONTRACT_RUN, CONTRACT_A_JUMP, CONTRACT_B_JUMP};
    for (size_t i = 0; i < sizeof words; i++)
        if (words[i] < CONTRACT_LEFT || t->c->n_outer_k) t->in[words[i]] = contract_tile_in(t->c, words[i]);
}

/* Vector i of a tile in memory, whose rows are nr wide. */
static LLVMValueRef vector_at(contract *c, LLVMValueRef p, int i) {
    return element(c, p, num(c, i / c->nv * c->nr + i % c->nv * c->v_lanes));
}

/* All rows, whatever the panel has: the memory is that of a whole tile. */
static void store_tile(tile *t, LLVMValueRef to) {
    contract *c = t->c;
    for (int i = 0; i < c->mr * c->nv; i++) {
        LLVMValueRef store = LLVMBuildStore(c->e->b, t->sum[i], vector_at(c, to, i));
        LLVMSetAlignment(store, (unsigned)(c->v_lanes * c->acc_bytes));
    }
}

/* (args, words, first row, rows): the sums of a panel where the instruction that adds products of bf16 may not be used
 * (contract_dot.c), to memory: some rows at a time, since this is seldom and whole tiles of it would take as long to
 * compile as those by the instruction. */
static void emit_by_fma(contract *c) {
    emit *e = c->e;
    LLVMTypeRef parameter[4] = {e->t_ptr, e->t_ptr, e->t_ptr, e->t_i64};
    contract_outer *o = contract_begin(c, BY_FMA, "by_fma", parameter, 4, true);
    LLVMValueRef first = LLVMGetParam(e->fn, 2), rows = LLVMGetParam(e->fn, 3), nr = num(c, c->nr);
    tile t = {.c = c, .next_step = num(c, 0), .page_head = num(c, IR_PAGE_BYTES)};
    int at_once = 4;
    while (c->mr % at_once) at_once--;
    c->mr = at_once; /* contract_end gives it back */
    load_words(&t);
    em_loop l = em_for(e, num(c, 0), rows, num(c, at_once));
    t.rows = em_sub(e, rows, l.i);
    t.pa = bytes_behind(c, first, em_mul(e, l.i, t.in[CONTRACT_A_ROW]));
    t.next = t.pa;
    sum_products(&t, true);
    store_tile(&t, element(c, contract_tile_in(c, CONTRACT_SUMS), em_mul(e, l.i, nr)));
    em_end(e, &l);
    contract_end(c, o);
}

/* sum_products by the instruction, or where that may not be by fma. */
static void sum_exact_products(tile *t) {
    contract *c = t->c;
    emit *e = c->e;
    LLVMValueRef fast[CONTRACT_MAX_TILE];
    LLVMBasicBlockRef exact = em_block(e, "exact"), slow = em_block(e, "slow"), done = em_block(e, "all_products");
    LLVMBuildCondBr(e->b, contract_is_exact(c, t->pa, t->in[CONTRACT_B]), exact, slow);
    at_end_of(c, exact);
    sum_products(t, false);
    memcpy(fast, t->sum, sizeof fast);
    LLVMBasicBlockRef fast_end = here(c);
    LLVMBuildBr(e->b, done);
    at_end_of(c, slow);
    contract_call(c, BY_FMA, (LLVMValueRef[]){LLVMGetParam(e->fn, 0), LLVMGetParam(e->fn, 1), t->pa, t->rows}, 4);
    LLVMValueRef sums = contract_tile_in(c, CONTRACT_SUMS);
    for (int i = 0; i < c->mr * c->nv; i++)
        t->sum[i] = contract_tile_load(c, vector_at(c, sums, i), c->v_lanes * c->acc_bytes);
    LLVMBuildBr(e->b, done);
    at_end_of(c, done);
    for (int i = 0; i < c->mr * c->nv; i++) t->sum[i] = contract_merge(c, fast[i], fast_end, t->sum[i], slow);
}

/* t->sum += the partial sums, behind the first K block. */
static void add_partial(tile *t) {
    contract *c = t->c;
    emit *e = c->e;
    LLVMBasicBlockRef before = here(c), add = em_block(e, "add"), done = em_block(e, "added");
    LLVMValueRef sum[CONTRACT_MAX_TILE];
    int n = c->mr * c->nv;
    LLVMBuildCondBr(e->b, contract_tile_in(c, CONTRACT_IS_LATER), add, done);
    at_end_of(c, add);
    for (int i = 0; i < n; i++) {
        LLVMValueRef p = contract_tile_load(c, vector_at(c, t->partial, i), c->v_lanes * c->acc_bytes);
        sum[i] = contract_add(c, p, t->sum[i]);
    }
    LLVMBuildBr(e->b, done);
    at_end_of(c, done);
    for (int i = 0; i < n; i++) t->sum[i] = contract_merge(c, t->sum[i], before, sum[i], add);
}

/* From the registers to the outputs, and on to `done`. */
static void store_rows(tile *t, LLVMBasicBlockRef done) {
    contract *c = t->c;
    contract_columns *columns = contract_epilogue_begin(c, t->n0);
    for (int i = 0; i < c->mr; i++) {
        contract_epilogue_row(c, columns, em_add(c->e, t->m0, num(c, i)), &t->sum[i * c->nv]);
        if (i + 1 < c->mr) next_row(t, i, done);
    }
    LLVMBuildBr(c->e->b, done);
}

/* What stores need of the arguments is loaded behind the products of each tile, where nothing has to be divided for it:
 * from the entry on it would be alive, and in memory, across them. */
static bool loads_late(const contract *c) { return c->n_batch <= 1 && !c->n_outer_n && !c->n_outer_k; }

static void load_arguments(tile *t) {
    contract *c = t->c;
    contract_load_args(c, LLVMGetParam(c->e->fn, 0));
    contract_set_values(c);
    contract_decode_batch(c, contract_tile_in(c, CONTRACT_BATCH), UINT32_MAX);
    t->n0 = contract_decode_columns(c, contract_tile_in(c, CONTRACT_N0));
}

static void store_sums(tile *t) {
    contract *c = t->c;
    emit *e = c->e;
    if (loads_late(c)) load_arguments(t);
    LLVMBasicBlockRef done = em_block(e, "done");
    LLVMValueRef is_last = contract_tile_in(c, CONTRACT_IS_LAST);
    if (contract_ends_in_registers(c)) {
        LLVMBasicBlockRef rows = em_block(e, "rows"), memory = em_block(e, "memory");
        LLVMValueRef is_whole = contract_is_whole(c, t->n0);
        LLVMBuildCondBr(e->b, em_and(e, is_last, is_whole), rows, memory);
        at_end_of(c, rows);
        store_rows(t, done);
        at_end_of(c, memory);
    }
    store_tile(t, em_select(e, is_last, e->scratch, t->partial));
    LLVMBasicBlockRef finish = em_block(e, "finish");
    LLVMBuildCondBr(e->b, is_last, finish, done);
    at_end_of(c, finish);
    contract_call(c, FINISH,
                  (LLVMValueRef[]){LLVMGetParam(e->fn, 0), contract_tile_in(c, CONTRACT_BATCH), t->m0,
                                   contract_tile_in(c, CONTRACT_N0), t->rows, e->scratch},
                  6);
    LLVMBuildBr(e->b, done);
    at_end_of(c, done);
}

contract_outer *contract_begin_tile(contract *c, contract_function f) {
    LLVMTypeRef type[2] = {c->e->t_ptr, c->e->t_ptr};
    return contract_begin(c, f, f == TILE ? "tile" : "last_tile", type, 2, true);
}

void contract_tell(contract *c, LLVMValueRef told, int word, LLVMValueRef value) {
    emit *e = c->e;
    if (LLVMTypeOf(value) == e->t_i1) value = LLVMBuildZExt(e->b, value, e->t_i64, "");
    LLVMSetAlignment(LLVMBuildStore(e->b, value, em_gep(e, told, e->t_i64, num(c, word))), 8);
}

LLVMValueRef contract_tile_in(contract *c, int word) {
    emit *e = c->e;
    const bool is_pointer =
        word == CONTRACT_A || word == CONTRACT_B || word == CONTRACT_PARTIAL || word == CONTRACT_SUMS;
    const bool is_flag =
        word == CONTRACT_IS_LATER || word == CONTRACT_IS_LAST || word == CONTRACT_IS_BEGIN || word == CONTRACT_IS_END;
    LLVMValueRef at = em_gep(e, LLVMGetParam(e->fn, 1), e->t_i64, num(c, word));
    LLVMValueRef x = LLVMBuildLoad2(e->b, is_pointer ? e->t_ptr : e->t_i64, at, "");
    return is_flag ? em_icmp(e, LLVMIntNE, x, num(c, 0)) : x;
}

LLVMValueRef contract_panel_rows(contract *c, LLVMValueRef panel) {
    LLVMValueRef is_full = em_icmp(c->e, LLVMIntSLT, panel, contract_tile_in(c, CONTRACT_FULL));
    return em_select(c->e, is_full, num(c, c->mr), contract_tile_in(c, CONTRACT_ROWS_LEFT));
}

static void emit_tile(contract *c, contract_function f) {
    emit *e = c->e;
    contract_outer *o = contract_begin_tile(c, f);
    if (f == LAST_TILE) {
        c->is_last = true;
        c->columns = c->k->last_columns;
        c->nv = c->columns / c->v_lanes;
    }
    tile t = {.c = c};
    if (!loads_late(c)) load_arguments(&t);

    enum { N_PHIS = 5 };
    LLVMBasicBlockRef entry = here(c), panel = em_block(e, "panel"), done = em_block(e, "return");
    LLVMValueRef next = bytes_behind(c, contract_tile_in(c, CONTRACT_B), contract_tile_in(c, CONTRACT_B_NEXT));
    LLVMValueRef begin[] = {num(c, 0), contract_tile_in(c, CONTRACT_A), contract_tile_in(c, CONTRACT_M0),
                            contract_tile_in(c, CONTRACT_PARTIAL), next},
                 phi[N_PHIS];
    LLVMBuildBr(e->b, panel);
    at_end_of(c, panel);
    for (int i = 0; i < N_PHIS; i++) {
        phi[i] = LLVMBuildPhi(e->b, LLVMTypeOf(begin[i]), "");
        LLVMAddIncoming(phi[i], &begin[i], &entry, 1);
    }
    t.rows = contract_panel_rows(c, phi[0]);
    load_words(&t);
    t.pa = phi[1];
    /* The panel of columns that comes next, from the last cache or memory to L2, a part of it while each row panel is
     * made. (All of it during the first one or two, 1032 x 4096 x 4096, f32, Zen 3: 1.18 times the time.) */
    t.next = phi[4];
    t.next_step = contract_tile_in(c, CONTRACT_B_NEXT_STEP);
    if (c->mr == 1) t.page_head = contract_tile_in(c, CONTRACT_PAGE_HEAD);
    t.m0 = phi[2];
    t.partial = phi[3];
    if (c->dot == IR_DOT_BF16) sum_exact_products(&t);
    else sum_products(&t, false);
    add_partial(&t);
    store_sums(&t);
    LLVMValueRef next_a =
        em_add(e, em_mul(e, t.rows, contract_tile_in(c, CONTRACT_A_NEXT_ROW)), contract_tile_in(c, CONTRACT_A_NEXT));
    next = bytes_behind(c, t.next, em_mul(e, t.next_step, t.in[CONTRACT_COUNT]));
    LLVMValueRef then[N_PHIS] = {em_add(e, phi[0], num(c, 1)), bytes_behind(c, t.pa, next_a), em_add(e, t.m0, t.rows),
                                 element(c, t.partial, num(c, c->mr * c->nr)), next};
    for (int i = 0; i < N_PHIS; i++) LLVMAddIncoming(phi[i], &then[i], (LLVMBasicBlockRef[]){here(c)}, 1);
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSLT, then[0], contract_tile_in(c, CONTRACT_PANELS)), panel, done);
    at_end_of(c, done);
    contract_end(c, o);
}

void contract_emit_tiles(contract *c) {
    if (c->dot == IR_DOT_BF16) emit_by_fma(c);
    emit_tile(c, TILE);
    if (c->k->last_columns) emit_tile(c, LAST_TILE);
}
