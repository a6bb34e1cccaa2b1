/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* contract_amx.c: the tile of a contraction on a CPU with tile registers (AMX), which takes the place of
 * contract_tile.c and is called like it: the tiles of one panel of operand 1 and a run of row panels of operand 0, 32 x
 * 32 each; and how rows of memory become panels of operand 0.
 *
 *   per panel      its rows differ from those before: the registers are configured
 *   products       amx.c, from what the part of the K block before left, or 0, into memory: of the last part, straight
 *                  to the output where that is the sums (stores_sums), or 4 KB of scratch
 *   not the first  add what the blocks before left, a vector at a time
 *   the last       contract_epilogue.c, on what was stored, to lines that were prefetched beside the products: rows of a
 *                  panel are finished beside the products of the next one, which leave the vector units idle, so two
 *                  panels of scratch are in turn
 *
 * Where bf16 could be subnormal, which the instruction takes for 0 (contract_is_exact: of the whole K block, so that no
 * part begins with sums that the instruction would change), the same sums in the same order are made by fma
 * (ir/schedule.h). */
#include "jit/amx.h"
#include "jit/contract.h"

/* Rows [LATE_ROW, LATE_END) of the panel whose row 0 is row LATE_M0 of the output (or, of sums that are only rounded, its
 * address there), and lies at LATE_AT; LATE_NEXT: bytes of scratch to the next panel. */
enum { LATE_ROW, LATE_END, LATE_M0, LATE_AT, LATE_NEXT, LATE_SLOTS, LATE_ROWS = 4 };

typedef struct amx {
    contract *c;
    LLVMValueRef in[CONTRACT_TILE_PARAMETERS];
    LLVMValueRef a, m0, partial, sums; /* of the panel; a: its K block */
    LLVMValueRef a_from, b_from;       /* bytes to the part */
    LLVMValueRef is_direct;            /* i1: this part's sums are the output, maybe rounded; NULL: never */
    int output;                        /* buffer of that; -1: none */
    bool rounds;                       /* to bf16 */
    /* Where results are finished late (is_late): memory of the function for what is left to finish of the panel before,
     * and the panel of scratch that is next. */
    bool is_late;
    LLVMValueRef late[LATE_SLOTS], late_rows; /* late_rows: of a step */
    int prefetched;                           /* buffer of results that may be prefetched; -1: none */
    LLVMValueRef prefetches, prefetched_row;  /* i1: are they, in this part; bytes from row to row there */
    LLVMValueRef scratch;                     /* where the panel's sums are when they are not direct */
    LLVMValueRef out;                         /* its element 0 in the output; NULL: never direct */
    amx_product p;
} amx;

/* The products, in scratch, and the partial sums of the K blocks before: to scratch for the epilogue, or else back. */
static void add_partial(amx *t) {
    contract *c = t->c;
    emit *e = c->e;
    LLVMValueRef to = em_select(e, t->in[CONTRACT_IS_LAST], t->p.to, t->partial);
    em_loop l = em_for(e, num(c, 0), em_mul(e, t->p.rows, num(c, c->nr)), num(c, c->v_lanes));
    LLVMValueRef sum = contract_tile_load(c, element(c, t->p.to, l.i), AMX_ROW_BYTES);
    LLVMValueRef before = contract_tile_load(c, element(c, t->partial, l.i), AMX_ROW_BYTES);
    sum = contract_add(c, before, sum);
    LLVMSetAlignment(LLVMBuildStore(e->b, sum, element(c, to, l.i)), AMX_ROW_BYTES);
    em_end(e, &l);
}

/* ---- straight to the output ---- */
/* The buffer, where the program behind the matmul is nothing but a store of the sums of that type, as lines of memory;
 * else -1. */
static int stores_sums(const contract *c, ir_dtype type) {
    int output = -1, stores = 0;
    for (int i = 0; i < c->k->n_insts; i++) {
        const ir_kinst *in = &c->k->inst[i];
        if (in->op != IR_K_STORE) continue;
        stores++;
        if (in->in[0] == c->matmul && !in->variant && c->k->buffer[in->index].stride[c->dim_n] == 1 &&
            c->k->buffer[in->index].dtype == type)
            output = in->index;
    }
    return stores == 1 && c->k->inst[c->matmul].dtype == type && c->k == c->whole ? output : -1;
}

/* Of one K block, or its last part, and all 32 columns. */
static void set_direct(amx *t, LLVMValueRef n0) {
    contract *c = t->c;
    emit *e = c->e;
    if (t->output < 0) return;
    LLVMValueRef is_whole = em_icmp(e, LLVMIntSGE, em_sub(e, c->n, n0), num(c, c->nr));
    LLVMValueRef is_only =
        em_and(e, t->in[CONTRACT_IS_LAST], em_xor(e, t->in[CONTRACT_IS_LATER], LLVMConstInt(e->t_i1, 1, 0)));
    t->is_direct = em_and(e, em_and(e, is_whole, is_only), t->in[CONTRACT_IS_END]);
}

/* Element 0 of the panel's tile in a buffer of results, and bytes from row to row of that. */
static LLVMValueRef results_in(amx *t, int buffer, LLVMValueRef n0) {
    contract *c = t->c;
    emit *e = c->e;
    contract_point at = {c, t->m0, n0, NULL, c->dim_n, NULL};
    LLVMTypeRef type = em_memory_type(e, c->k->buffer[buffer].dtype);
    return em_gep(e, e->base[buffer], type, contract_offset(c, buffer, &at));
}
static LLVMValueRef row_bytes(amx *t, int buffer) {
    emit *e = t->c->e;
    const int bytes = ir_dtypes[t->c->k->buffer[buffer].dtype].bytes;
    return em_mul(e, e->stride[buffer][t->c->dim_m], em_i64s(e, bytes));
}

/* Rows of results from row m of the output on, whose sums are at `tile`. */
static void finish_rows(amx *t, LLVMValueRef m, LLVMValueRef rows, LLVMValueRef tile) {
    LLVMValueRef in[6] = {t->c->e->args, t->in[CONTRACT_BATCH], m, t->in[CONTRACT_N0], rows, tile};
    contract_call(t->c, FINISH, in, 6);
}

/* ---- results that are finished beside the products of the next panel ---- */
static LLVMValueRef late_get(amx *t, int slot) {
    emit *e = t->c->e;
    return LLVMBuildLoad2(e->b, e->t_i64, t->late[slot], "");
}
static void late_set(amx *t, int slot, LLVMValueRef v) { LLVMBuildStore(t->c->e->b, v, t->late[slot]); }

/* Rows of sums to bf16, 32 in an instruction, row_bytes from one to the next of the output. They are not subnormal where
 * the tile was made by instructions. */
static void round_rows(amx *t, LLVMValueRef from, LLVMValueRef to, LLVMValueRef rows) {
    contract *c = t->c;
    emit *e = c->e;
    em_loop l = em_for(e, num(c, 0), rows, num(c, 1));
    LLVMValueRef at = em_loop_phi(e, &l, to), row = em_loop_phi(e, &l, from), half[2];
    for (int j = 0; j < 2; j++) half[j] = contract_tile_load(c, element(c, row, num(c, j * AMX_SIDE)), AMX_ROW_BYTES);
    LLVMValueRef x = em_dot(e, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", (LLVMValueRef[]){half[1], half[0]}, 2);
    LLVMSetAlignment(LLVMBuildStore(e->b, x, at), 2);
    em_loop_next(e, at, em_gep(e, at, e->t_i8, row_bytes(t, t->output)));
    em_loop_next(e, row, element(c, row, num(c, c->nr)));
    em_end(e, &l);
}

/* Rows for each step of so many words that make all of a panel in its steps, up to `most`. */
static LLVMValueRef rows_of_step(amx *t, int words, int most) {
    contract *c = t->c;
    emit *e = c->e;
    LLVMValueRef steps = em_max(e, LLVMBuildUDiv(e->b, t->in[CONTRACT_COUNT], num(c, words), ""), num(c, 1));
    LLVMValueRef rows = LLVMBuildUDiv(e->b, em_add(e, steps, num(c, c->mr - 1)), steps, "");
    return em_min(e, rows, num(c, most));
}

/* At the entry: nothing is left. Of costly results as many rows a step as make all of them in the steps of a panel, up to
 * LATE_ROWS; of others so many. What takes fewer instructions than calls is finished at once (u8 x i8 512 cubed with scale,
 * bias and relu in f32: 13 % slower when late). */
static void begin_late(amx *t) {
    contract *c = t->c;
    emit *e = c->e;
    t->is_late = t->rounds ? t->output >= 0 : t->output < 0 && contract_has_long_epilogue(c);
    if (!t->is_late) return;
    for (int i = 0; i < LATE_SLOTS; i++) {
        t->late[i] = em_alloca(e, e->t_i64, 8);
        late_set(t, i, num(c, 0));
    }
    const bool is_costly = t->rounds || contract_has_costly_epilogue(c);
    t->late_rows = is_costly ? rows_of_step(t, AMX_SIDE, LATE_ROWS) : num(c, LATE_ROWS);
}

/* Up to `most` rows of what is left. */
static void finish_late(amx *t, LLVMValueRef most) {
    contract *c = t->c;
    emit *e = c->e;
    LLVMValueRef row = late_get(t, LATE_ROW), left = em_sub(e, late_get(t, LATE_END), row);
    em_branch any = em_if(e, em_icmp(e, LLVMIntSGT, left, num(c, 0)));
    LLVMValueRef n = most ? em_min(e, left, most) : left, m0 = late_get(t, LATE_M0);
    LLVMValueRef at = em_add(e, late_get(t, LATE_AT), em_mul(e, row, num(c, AMX_LINE_BYTES)));
    LLVMValueRef from = em_gep(e, e->scratch, e->t_i8, at);
    if (t->rounds) {
        LLVMValueRef to = em_add(e, m0, em_mul(e, row, row_bytes(t, t->output)));
        round_rows(t, from, LLVMBuildIntToPtr(e->b, to, e->t_ptr, ""), n);
    } else finish_rows(t, em_add(e, m0, row), n, from);
    late_set(t, LATE_ROW, em_add(e, row, n));
    em_endif(e, &any);
}

static void finish_beside(emit *e, void *user) {
    amx *t = user;
    (void)e;
    finish_late(t, t->late_rows);
}

/* The panel's results are in scratch: they are what is left from here on. */
static void leave_panel(amx *t, LLVMValueRef m0) {
    contract *c = t->c;
    emit *e = c->e;
    const int64_t second = ir_kernel_contract_head_bytes(c->whole) - (ir_kernel_has_rows(c->whole) ? IR_ROW_SLOTS : 0) -
                           (int64_t)c->mr * AMX_LINE_BYTES;
    finish_late(t, NULL);
    LLVMValueRef at = late_get(t, LATE_NEXT);
    late_set(t, LATE_ROW, num(c, 0));
    late_set(t, LATE_END, t->p.rows);
    late_set(t, LATE_M0, m0);
    late_set(t, LATE_AT, at);
    late_set(t, LATE_NEXT, em_sub(e, num(c, second), at));
}

/* ---- a panel ---- */
/* Where its sums come from and go to. */
static void set_sums(amx *t, LLVMValueRef n0) {
    contract *c = t->c;
    emit *e = c->e;
    LLVMValueRef is_begin = t->in[CONTRACT_IS_BEGIN], is_end = t->in[CONTRACT_IS_END];
    LLVMValueRef is_last = t->in[CONTRACT_IS_LAST], is_later = t->in[CONTRACT_IS_LATER], scratch = e->scratch;
    if (t->is_late) scratch = em_gep(e, scratch, e->t_i8, late_get(t, LATE_NEXT));
    t->scratch = scratch;
    t->p.is_begin = is_begin;
    t->p.from = em_select(e, is_begin, e->scratch, t->sums); /* a K block of one part has no memory for sums */
    t->p.to = em_select(e, is_end, em_select(e, em_or(e, is_last, is_later), scratch, t->partial), t->sums);
    t->p.to_row = NULL;
    if (!t->is_direct) return;
    t->out = results_in(t, t->output, n0);
    if (t->rounds) return;
    t->p.to = em_select(e, t->is_direct, t->out, t->p.to);
    t->p.to_row = em_select(e, t->is_direct, row_bytes(t, t->output), num(c, AMX_LINE_BYTES));
}

static void finish_panel(amx *t) {
    contract *c = t->c;
    emit *e = c->e;
    em_branch end = em_if(e, t->in[CONTRACT_IS_END]);
    em_branch later = em_if(e, t->in[CONTRACT_IS_LATER]);
    add_partial(t);
    em_endif(e, &later);
    LLVMValueRef is_last = t->in[CONTRACT_IS_LAST];
    if (t->is_direct && !t->rounds) is_last = em_and(e, is_last, em_xor(e, t->is_direct, LLVMConstInt(e->t_i1, 1, 0)));
    em_branch last = em_if(e, is_last);
    if (t->is_late && !t->rounds) leave_panel(t, t->m0);
    else finish_rows(t, t->m0, t->p.rows, t->scratch);
    em_endif(e, &last);
    em_endif(e, &end);
}

/* ---- results that are prefetched ---- */
/* At the entry. As many rows in each step as make all of a panel in its steps, up to AMX_PREFETCHED_ROWS. */
static void begin_prefetches(amx *t) {
    contract *c = t->c;
    emit *e = c->e;
    t->prefetched = ir_contract_prefetched(c->whole);
    if (t->prefetched < 0) return;
    const int least = t->is_late && !t->rounds ? IR_CONTRACT_PREFETCH_ALL : IR_CONTRACT_PREFETCH_SOON;
    LLVMValueRef pays = em_icmp(e, LLVMIntSGE, e->tune[IR_TUNE_CONTRACT_PREFETCH], num(c, least));
    t->prefetches = em_and(e, pays, em_and(e, t->in[CONTRACT_IS_LAST], t->in[CONTRACT_IS_END]));
    t->prefetched_row = row_bytes(t, t->prefetched);
    LLVMValueRef n = rows_of_step(t, t->p.is_cut ? 2 * AMX_SIDE : AMX_SIDE, AMX_PREFETCHED_ROWS),
                 behind = t->prefetched_row;
    for (int i = 1; i < AMX_PREFETCHED_ROWS; i++) {
        t->p.prefetch_row[i - 1] = em_select(e, em_icmp(e, LLVMIntSGT, n, num(c, i)), behind, num(c, 0));
        behind = em_add(e, behind, t->prefetched_row);
    }
    t->p.prefetch_step = em_mul(e, n, t->prefetched_row);
    const int bytes = AMX_COLUMNS * ir_dtypes[c->k->buffer[t->prefetched].dtype].bytes;
    t->p.prefetch_lines = (bytes + EM_LINE_BYTES - 1) / EM_LINE_BYTES;
}

/* Of the panel: beside the last of its products, where the launch finds that it pays (src/rt/tune.c). */
static void set_prefetches(amx *t, LLVMValueRef n0) {
    emit *e = t->c->e;
    if (t->prefetched < 0) return;
    t->p.prefetch = results_in(t, t->prefetched, n0);
    LLVMValueRef first = LLVMBuildPtrToInt(e->b, t->p.prefetch, e->t_i64, "");
    LLVMValueRef end = em_add(e, first, em_mul(e, t->prefetched_row, t->p.rows));
    t->p.prefetch_end = em_select(e, t->prefetches, end, em_i64s(e, 0));
}

/* By instructions. */
static void make_exact(amx *t) {
    emit *e = t->c->e;
    amx_multiply(e, &t->p);
    em_branch rounds = {0};
    if (t->is_direct && t->rounds) {
        rounds = em_if(e, t->is_direct);
        leave_panel(t, LLVMBuildPtrToInt(e->b, t->out, e->t_i64, ""));
        em_else(e, &rounds);
    }
    finish_panel(t);
    if (t->is_direct && t->rounds) em_endif(e, &rounds);
}

static void make_panel(amx *t, LLVMValueRef n0) {
    contract *c = t->c;
    emit *e = c->e;
    t->p.a = em_gep(e, t->a, e->t_i8, t->a_from);
    set_sums(t, n0);
    set_prefetches(t, n0);
    if (!c->heads[0]) {
        make_exact(t);
        return;
    }
    em_branch exact = em_if(e, contract_is_exact(c, t->a, t->in[CONTRACT_B]));
    make_exact(t);
    em_else(e, &exact);
    amx_multiply_bf16_slowly(e, &t->p);
    finish_panel(t);
    em_endif(e, &exact);
}

/* The first row panels prefetch what of operand 1 is read next, a slice each; the others what is there
 * already. */
static void set_ahead(amx *t, LLVMValueRef panel) {
    contract *c = t->c;
    emit *e = c->e;
    enum { LINES = AMX_SIDE * AMX_LINE_BYTES / EM_LINE_BYTES, SLICES = LINES / AMX_AHEAD }; /* of a step */
    LLVMValueRef slice = em_mul(e, t->p.words, num(c, AMX_AHEAD * EM_LINE_BYTES / AMX_SIDE));
    LLVMValueRef is_any = em_and(e, em_icmp(e, LLVMIntNE, t->in[CONTRACT_B_NEXT], num(c, 0)),
                                 em_icmp(e, LLVMIntSLT, panel, num(c, SLICES)));
    LLVMValueRef at = em_add(e, t->in[CONTRACT_B_NEXT], em_mul(e, panel, slice));
    t->p.ahead = em_gep(e, t->p.b, e->t_i8, em_select(e, is_any, at, num(c, 0)));
    t->p.ahead_step = em_select(e, is_any, num(c, AMX_AHEAD * EM_LINE_BYTES), num(c, 0));
}

void contract_emit_amx_tile(contract *c) {
    emit *e = c->e;
    contract_outer *o = contract_begin_tile(c, TILE);
    amx t = {.c = c, .p = {.is_cut = c->parts > 1}};
    t.p.name = amx_product_name(c->dot, c->k->inst[c->operand[0]].dtype, c->k->inst[c->operand[1]].dtype);
    for (int i = 0; i < CONTRACT_LEFT; i++) t.in[i] = contract_tile_in(c, i);
    t.rounds = contract_stores_bf16(c);
    t.output = stores_sums(c, t.rounds ? FUSOR_BF16 : c->acc);
    contract_decode_batch(c, t.in[CONTRACT_BATCH], UINT32_MAX);
    LLVMValueRef n0 = contract_decode_columns(c, t.in[CONTRACT_N0]);
    t.p.a_row = t.in[CONTRACT_A_ROW];
    t.p.a_step = t.in[CONTRACT_A_K];
    /* rows that are read in place: the next step is in their lines' neighbours, which L1 fetches by itself */
    t.p.a_stays = em_or(e, em_icmp(e, LLVMIntSLE, t.in[CONTRACT_PANELS], num(c, 1)),
                        em_icmp(e, LLVMIntNE, t.in[CONTRACT_A_ROW], num(c, AMX_ROW_BYTES)));
    t.a_from = em_mul(e, LLVMBuildUDiv(e->b, t.in[CONTRACT_FROM], num(c, ir_dot_words(c->dot, 1)), ""), t.p.a_step);
    t.b_from = em_mul(e, t.in[CONTRACT_FROM], num(c, AMX_LINE_BYTES));
    t.p.b = em_gep(e, t.in[CONTRACT_B], e->t_i8, t.b_from);
    t.p.words = t.in[CONTRACT_COUNT];
    t.p.is_wide = em_icmp(e, LLVMIntSGT, em_sub(e, c->n, n0), num(c, AMX_SIDE));
    set_direct(&t, n0);
    begin_late(&t);
    begin_prefetches(&t);
    if (t.is_late) t.p.beside = finish_beside, t.p.user = &t;
    em_loop l = em_for(e, num(c, 0), t.in[CONTRACT_PANELS], num(c, 1));
    LLVMValueRef configured = em_loop_phi(e, &l, t.in[CONTRACT_CONFIGURED]);
    t.a = em_loop_phi(e, &l, t.in[CONTRACT_A]);
    t.m0 = em_loop_phi(e, &l, t.in[CONTRACT_M0]);
    t.partial = em_loop_phi(e, &l, t.in[CONTRACT_PARTIAL]);
    t.sums = em_loop_phi(e, &l, t.in[CONTRACT_SUMS]);
    LLVMValueRef is_full = em_icmp(e, LLVMIntSLT, l.i, t.in[CONTRACT_FULL]);
    t.p.rows = em_select(e, is_full, num(c, c->mr), t.in[CONTRACT_ROWS_LEFT]);
    t.p.is_whole = em_icmp(e, LLVMIntEQ, t.p.rows, num(c, c->mr));
    t.p.is_high = em_icmp(e, LLVMIntSGT, t.p.rows, num(c, AMX_SIDE));
    em_branch changed = em_if(e, em_icmp(e, LLVMIntNE, t.p.rows, configured));
    amx_configure(e, &t.p);
    em_endif(e, &changed);
    set_ahead(&t, l.i);
    make_panel(&t, n0);
    em_loop_next(e, configured, t.p.rows);
    LLVMValueRef next_a = em_add(e, em_mul(e, t.p.rows, t.in[CONTRACT_A_NEXT_ROW]), t.in[CONTRACT_A_NEXT]);
    em_loop_next(e, t.a, em_gep(e, t.a, e->t_i8, next_a));
    em_loop_next(e, t.m0, em_add(e, t.m0, t.p.rows));
    em_loop_next(e, t.partial, element(c, t.partial, num(c, c->mr * c->nr)));
    em_loop_next(e, t.sums, element(c, t.sums, num(c, c->mr * c->nr)));
    em_end(e, &l);
    if (t.is_late) finish_late(&t, NULL);
    contract_tell(c, LLVMGetParam(e->fn, 1), CONTRACT_CONFIGURED, configured);
    contract_end(c, o);
}

/* ---- rows of memory to panels ---- */
/* Steps from `begin` to `end` elements along k, `n` at a time; a step behind k_count has none of the last elements.
 * found: NULL, or what the head is made of so far, which is returned: the least of magnitudes; of f16 that are cut, the
 * largest. */
static LLVMValueRef copy_steps(contract *c, LLVMValueRef to, LLVMValueRef from, LLVMValueRef begin, LLVMValueRef end,
                               int n, LLVMValueRef k_count, LLVMValueRef found) {
    emit *e = c->e;
    const int step = ir_dots[c->dot].step;
    const ir_dtype type = c->packed_bytes == 2 ? FUSOR_I16 : FUSOR_I8;
    em_loop l = em_for(e, begin, end, num(c, n * step));
    LLVMValueRef all = found ? em_loop_phi(e, &l, found) : NULL, next = all;
    for (int i = 0; i < n; i++) {
        LLVMValueRef k = i ? em_add(e, l.i, num(c, i * step)) : l.i;
        LLVMValueRef mask = k_count ? em_mask(e, em_sub(e, k_count, k)) : NULL;
        LLVMValueRef x = em_load_ptr(e, type, em_gep(e, from, c->t_packed, k), mask, (unsigned)c->packed_bytes);
        LLVMValueRef at = em_gep(e, to, c->t_packed, em_mul(e, k, num(c, c->mr * c->parts))), part[2] = {x};
        if (c->parts > 1) em_f16_cut(e, x, part);
        for (int p = 0; p < c->parts; p++) {
            LLVMValueRef row = p ? em_gep(e, at, c->t_packed, num(c, step * c->mr)) : at;
            LLVMSetAlignment(LLVMBuildStore(e->b, part[p], row), AMX_ROW_BYTES);
        }
        if (c->parts > 1) next = em_f16_most(e, next, x);
        else if (found)
            next = em_lesser_magnitude(e, next, em_and(e, x, em_splat(e, LLVMConstInt(e->t_i16, 0x7fff, 0))));
    }
    if (found) em_loop_next(e, all, next);
    em_end(e, &l);
    return all;
}

/* Rows that the panel has not stay as they are: tiles are configured without them. */
void contract_copy_tiles(contract *c, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef rows, LLVMValueRef k_first,
                         LLVMValueRef k_count) {
    emit *e = c->e;
    enum { UNROLL = 4 };
    const int step = ir_dots[c->dot].step, buffer = c->k->inst[c->operand[0]].index;
    const bool has_head = c->heads[0];
    contract_point at = {c, first, NULL, k_first, -1, NULL};
    LLVMValueRef base = em_gep(e, e->base[buffer], c->t_packed, contract_offset(c, buffer, &at));
    LLVMValueRef zero = num(c, 0), many = em_and(e, k_count, num(c, -UNROLL * step)),
                 whole = em_and(e, k_count, num(c, -step));
    e->lanes = step;
    em_loop r = em_for(e, zero, rows, num(c, 1));
    LLVMTypeRef t_found = em_vec(e, e->t_i16);
    LLVMValueRef none = c->parts > 1 ? LLVMConstNull(t_found) : LLVMConstAllOnes(t_found);
    LLVMValueRef before = has_head ? em_loop_phi(e, &r, none) : NULL, found;
    LLVMValueRef from = em_gep(e, base, c->t_packed, em_mul(e, r.i, e->stride[buffer][c->dim_m]));
    LLVMValueRef to = em_gep(e, dst, e->t_i8, em_mul(e, r.i, num(c, AMX_ROW_BYTES)));
    found = copy_steps(c, to, from, zero, many, UNROLL, NULL, before);
    found = copy_steps(c, to, from, many, whole, 1, NULL, found);
    found = copy_steps(c, to, from, whole, k_count, 1, k_count, found);
    if (has_head) em_loop_next(e, before, found);
    em_end(e, &r);
    LLVMValueRef head = element(c, dst, num(c, -c->mr));
    if (c->parts > 1) em_store_is_finite(e, before, head);
    else if (has_head) em_store_least_exponent(e, before, head);
    e->lanes = c->lanes;
}
