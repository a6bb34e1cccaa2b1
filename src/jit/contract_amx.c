/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* contract_amx.c: the tile of a contraction on a CPU with tile registers (AMX), which takes the place of contract_tile.c and is
 * called like it: the tiles of one panel of operand 1 and a run of row panels of operand 0, 32 x 32 each.
 *
 *   per panel      its rows differ from those before: ldtilecfg
 *   products       sums of 2 x 2 tiles (1 x 2, 2 x 1, 1 x 1 where 16 rows or columns are all) = 0; for each 16 words along k: load
 *                  2 tiles of each operand, 4 products; store
 *   not the first  add what the blocks before left, a vector at a time
 *   the last       contract_epilogue.c, on the 4 KB that were just stored
 *   at the end     tilerelease
 *
 *   tmm0 tmm1      sums, rows 0-15, columns 0-15 and 16-31     tmm4 tmm5   operand 0, rows 0-15 and 16-31
 *   tmm2 tmm3      sums, rows 16-31                            tmm6 tmm7   operand 1, columns 0-15 and 16-31
 *
 * A tile of operand 1 is 16 words along k of 16 columns, as they lie in a packed panel; one of operand 0 the same words of 16 rows of
 * memory: packed, or where the matrix lies. Both are filled up to whole steps along k, so nothing is configured for what is
 * left; rows are configured, so the last panels read no more rows than there are.
 *
 * The registers are named here, by the instructions' numbers: LLVM then neither moves nor spills any. Nothing about them is
 * alive when the function is left, so the caller may be anything.
 *
 * Where bf16 could be subnormal, which the instruction takes for 0 (contract_is_exact), the same sums in the same order are made by
 * fma (ir/schedule.h). */
#include "jit/contract.h"
#include <string.h>

enum { SIDE = 16, ROW_BYTES = 64, CONFIG_BYTES = 64, CONFIG_COLUMNS = 16, CONFIG_ROWS = 48 };
enum { SUM = 0, TILE_A = 4, TILE_B = 6, TILES = 8 };

typedef struct amx {
    contract *c;
    LLVMValueRef in[CONTRACT_TILE_PARAMETERS];
    LLVMValueRef config;                /* in memory, as the instruction reads it */
    LLVMValueRef m0, rows, pa, partial; /* of the panel */
    LLVMValueRef has_lower;             /* i1: more than 16 rows */
    LLVMValueRef to;                    /* where the products are stored */
    const char *product;
} amx;

static LLVMValueRef tile_number(amx *t, int i) {
    return LLVMConstInt(LLVMInt8TypeInContext(t->c->e->ctx), (unsigned)i, 0);
}

static void instruction(amx *t, const char *name, LLVMValueRef *in, unsigned n) {
    emit *e = t->c->e;
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMTypeRef type = LLVMIntrinsicGetType(e->ctx, id, NULL, 0);
    LLVMBuildCall2(e->b, type, LLVMGetIntrinsicDeclaration(e->mod, id, NULL, 0), in, n, "");
}

static LLVMValueRef bytes_behind(amx *t, LLVMValueRef p, LLVMValueRef bytes) {
    return em_gep(t->c->e, p, t->c->e->t_i8, bytes);
}

static const char *product_name(const contract *c) {
    if (c->dot == IR_DOT_TILE_BF16) return "llvm.x86.tdpbf16ps";
    if (c->dot == IR_DOT_TILE_F16) return "llvm.x86.tdpfp16ps";
    bool is_signed[2];
    for (int i = 0; i < 2; i++) is_signed[i] = ir_is_signed(c->k->inst[c->operand[i]].dtype);
    return is_signed[0] ? (is_signed[1] ? "llvm.x86.tdpbssd" : "llvm.x86.tdpbsud")
                        : (is_signed[1] ? "llvm.x86.tdpbusd" : "llvm.x86.tdpbuud");
}

/* ---- configuration ---- */
static void put_config(amx *t, int at, LLVMValueRef value) {
    LLVMValueRef store = LLVMBuildStore(t->c->e->b, value, bytes_behind(t, t->config, num(t->c, at)));
    LLVMSetAlignment(store, 1);
}

static void begin_config(amx *t) {
    emit *e = t->c->e;
    LLVMTypeRef i8 = LLVMInt8TypeInContext(e->ctx), i16 = LLVMInt16TypeInContext(e->ctx);
    LLVMTypeRef all = LLVMArrayType2(i8, CONFIG_BYTES);
    t->config = LLVMBuildAlloca(e->b, all, "config");
    LLVMSetAlignment(t->config, CONFIG_BYTES);
    put_config(t, 0, LLVMConstNull(LLVMVectorType(i8, CONFIG_BYTES)));
    put_config(t, 0, LLVMConstInt(i8, 1, 0)); /* the palette */
    for (int i = 0; i < TILES; i++) put_config(t, CONFIG_COLUMNS + 2 * i, LLVMConstInt(i16, ROW_BYTES, 0));
    for (int i = TILE_B; i < TILES; i++) put_config(t, CONFIG_ROWS + i, LLVMConstInt(i8, SIDE, 0));
}

/* A tile of operand 0 and of sums that has no rows keeps one, which nothing touches: none would want no columns either. */
static void configure(amx *t) {
    contract *c = t->c;
    emit *e = c->e;
    LLVMTypeRef i8 = LLVMInt8TypeInContext(e->ctx);
    LLVMValueRef upper = contract_min(e, t->rows, num(c, SIDE)), lower = em_sub(e, t->rows, num(c, SIDE));
    lower = em_select(e, t->has_lower, lower, num(c, 1));
    LLVMValueRef is_some = em_icmp(e, LLVMIntSGT, upper, num(c, 0));
    upper = em_select(e, is_some, upper, num(c, 1));
    LLVMValueRef half[2] = {LLVMBuildTrunc(e->b, upper, i8, ""), LLVMBuildTrunc(e->b, lower, i8, "")};
    for (int i = 0; i < TILE_B; i++) put_config(t, CONFIG_ROWS + i, half[i < TILE_A ? i / 2 : i - TILE_A]);
    instruction(t, "llvm.x86.ldtilecfg", &t->config, 1);
}

/* ---- products ---- */
static void load(amx *t, int tile, LLVMValueRef from, LLVMValueRef stride) {
    instruction(t, "llvm.x86.tileloadd64", (LLVMValueRef[]){tile_number(t, tile), from, stride}, 3);
}

/* The sums of a panel with so many tiles of rows and columns. */
static void sum_products(amx *t, int high, int wide) {
    contract *c = t->c;
    emit *e = c->e;
    LLVMValueRef row = t->in[CONTRACT_A_ROW], nr_bytes = num(c, c->nr * c->acc_bytes), half = num(c, ROW_BYTES);
    LLVMValueRef lower = em_mul(e, row, num(c, SIDE));
    for (int i = 0; i < high; i++)
        for (int j = 0; j < wide; j++)
            instruction(t, "llvm.x86.tilezero", (LLVMValueRef[]){tile_number(t, SUM + 2 * i + j)}, 1);
    em_loop l = em_for(e, num(c, 0), t->in[CONTRACT_COUNT], num(c, SIDE));
    LLVMValueRef a = em_loop_phi(e, &l, t->pa), b = em_loop_phi(e, &l, t->in[CONTRACT_B]);
    for (int i = 0; i < high; i++) {
        load(t, TILE_A + i, i ? bytes_behind(t, a, lower) : a, row);
        for (int j = 0; j < wide; j++) {
            if (!i) load(t, TILE_B + j, j ? bytes_behind(t, b, half) : b, nr_bytes);
            LLVMValueRef in[3] = {tile_number(t, SUM + 2 * i + j), tile_number(t, TILE_A + i),
                                  tile_number(t, TILE_B + j)};
            instruction(t, t->product, in, 3);
        }
    }
    em_loop_next(e, a, bytes_behind(t, a, num(c, ROW_BYTES)));
    em_loop_next(e, b, bytes_behind(t, b, num(c, SIDE * c->nr * c->acc_bytes)));
    em_end(e, &l);
    for (int i = 0; i < high; i++)
        for (int j = 0; j < wide; j++) {
            LLVMValueRef to = bytes_behind(t, t->to, num(c, (i * SIDE * c->nr + j * SIDE) * c->acc_bytes));
            instruction(t, "llvm.x86.tilestored64", (LLVMValueRef[]){tile_number(t, SUM + 2 * i + j), to, nr_bytes}, 3);
        }
}

static void all_products(amx *t) {
    contract *c = t->c;
    emit *e = c->e;
    LLVMValueRef is_wide = em_icmp(e, LLVMIntSGT, em_sub(e, c->n, t->in[CONTRACT_N0]), num(c, SIDE));
    em_branch high = em_if(e, t->has_lower);
    for (int i = 2; i >= 1; i--) {
        em_branch wide = em_if(e, is_wide);
        sum_products(t, i, 2);
        em_else(e, &wide);
        sum_products(t, i, 1);
        em_endif(e, &wide);
        if (i == 2) em_else(e, &high);
    }
    em_endif(e, &high);
}

/* The upper or lower elements of words of bf16, as f32. */
static LLVMValueRef elements(amx *t, LLVMValueRef words, bool is_upper) {
    contract *c = t->c;
    emit *e = c->e;
    LLVMTypeRef type = LLVMVectorType(e->t_i32, (unsigned)c->v_lanes);
    LLVMValueRef all[64];
    for (int i = 0; i < c->v_lanes; i++) all[i] = LLVMConstInt(e->t_i32, is_upper ? 0xffff0000u : 16, 0);
    LLVMValueRef by = LLVMConstVector(all, (unsigned)c->v_lanes);
    words = LLVMBuildBitCast(e->b, words, type, "");
    words = is_upper ? LLVMBuildAnd(e->b, words, by, "") : LLVMBuildShl(e->b, words, by, "");
    return LLVMBuildBitCast(e->b, words, c->t_vec, "");
}

/* The sums of bf16 by fma, a row and two vectors of columns at a time. */
static void sum_slowly(amx *t) {
    contract *c = t->c;
    emit *e = c->e;
    LLVMValueRef zero = LLVMConstNull(c->t_vec), one = num(c, 1), words = num(c, SIDE);
    LLVMTypeRef t_words = LLVMVectorType(e->t_i32, (unsigned)c->v_lanes);
    LLVMValueRef first = LLVMConstNull(t_words), sum[2], part[2][2];
    em_loop r = em_for(e, num(c, 0), t->rows, one);
    LLVMValueRef a = bytes_behind(t, t->pa, em_mul(e, r.i, t->in[CONTRACT_A_ROW]));
    em_loop step = em_for(e, num(c, 0), t->in[CONTRACT_COUNT], words);
    for (int j = 0; j < 2; j++) sum[j] = em_loop_phi(e, &step, zero);
    em_loop l = em_for(e, step.i, em_add(e, step.i, words), one);
    for (int j = 0; j < 4; j++) part[j / 2][j % 2] = em_loop_phi(e, &l, zero);
    LLVMValueRef x = LLVMBuildLoad2(e->b, e->t_i32, element(c, a, l.i), ""), b = t->in[CONTRACT_B];
    LLVMSetAlignment(x, 4);
    x = LLVMBuildInsertElement(e->b, LLVMGetPoison(t_words), x, LLVMConstInt(e->t_i32, 0, 0), "");
    x = LLVMBuildShuffleVector(e->b, x, LLVMGetPoison(t_words), first, "");
    b = element(c, b, em_mul(e, l.i, num(c, c->nr)));
    for (int j = 0; j < 2; j++) {
        LLVMValueRef y = contract_tile_load(c, element(c, b, num(c, j * c->v_lanes)), c->acc_bytes);
        for (int h = 0; h < 2; h++)
            em_loop_next(e, part[j][h], em_mad(e, elements(t, x, h), elements(t, y, h), part[j][h]));
    }
    em_end(e, &l);
    for (int j = 0; j < 2; j++) em_loop_next(e, sum[j], em_fadd(e, sum[j], em_fadd(e, part[j][0], part[j][1])));
    em_end(e, &step);
    LLVMValueRef to = element(c, t->to, em_mul(e, r.i, num(c, c->nr)));
    for (int j = 0; j < 2; j++)
        LLVMSetAlignment(LLVMBuildStore(e->b, sum[j], element(c, to, num(c, j * c->v_lanes))), ROW_BYTES);
    em_end(e, &r);
}

/* ---- what becomes of the sums ---- */
/* The products, in scratch, and the partial sums of the K blocks before: to scratch for the epilogue, or else back. */
static void add_partial(amx *t) {
    contract *c = t->c;
    emit *e = c->e;
    LLVMValueRef to = em_select(e, t->in[CONTRACT_IS_LAST], t->to, t->partial);
    em_loop l = em_for(e, num(c, 0), em_mul(e, t->rows, num(c, c->nr)), num(c, c->v_lanes));
    LLVMValueRef sum = contract_tile_load(c, element(c, t->to, l.i), ROW_BYTES);
    LLVMValueRef before = contract_tile_load(c, element(c, t->partial, l.i), ROW_BYTES);
    sum = ir_is_float(c->acc) ? em_fadd(e, before, sum) : em_add(e, before, sum);
    LLVMSetAlignment(LLVMBuildStore(e->b, sum, element(c, to, l.i)), ROW_BYTES);
    em_end(e, &l);
}

static void make_panel(amx *t) {
    contract *c = t->c;
    emit *e = c->e;
    LLVMValueRef is_last = t->in[CONTRACT_IS_LAST], is_later = t->in[CONTRACT_IS_LATER];
    t->to = em_select(e, em_or(e, is_last, is_later), e->scratch, t->partial);
    if (c->dot == IR_DOT_TILE_BF16) {
        em_branch exact = em_if(e, contract_is_exact(c, t->pa, t->in[CONTRACT_B]));
        all_products(t);
        em_else(e, &exact);
        sum_slowly(t);
        em_endif(e, &exact);
    } else all_products(t);
    em_branch later = em_if(e, is_later);
    add_partial(t);
    em_endif(e, &later);
    em_branch last = em_if(e, is_last);
    contract_call(c, FINISH,
                  (LLVMValueRef[]){t->in[CONTRACT_ARGS], t->in[CONTRACT_BATCH], t->m0, t->in[CONTRACT_N0], t->rows}, 5);
    em_endif(e, &last);
}

void contract_emit_amx_tile(contract *c) {
    emit *e = c->e;
    LLVMTypeRef type[CONTRACT_TILE_PARAMETERS];
    contract_tile_types(c, type);
    contract_outer *o = contract_begin(c, TILE, "tile", type, CONTRACT_TILE_PARAMETERS, true);
    amx t = {.c = c, .product = product_name(c)};
    LLVMGetParams(e->fn, t.in);
    begin_config(&t);
    em_loop l = em_for(e, num(c, 0), t.in[CONTRACT_PANELS], num(c, 1));
    LLVMValueRef configured = em_loop_phi(e, &l, num(c, -1));
    t.pa = em_loop_phi(e, &l, t.in[CONTRACT_A]);
    t.m0 = em_loop_phi(e, &l, t.in[CONTRACT_M0]);
    t.partial = em_loop_phi(e, &l, t.in[CONTRACT_PARTIAL]);
    LLVMValueRef is_tall = em_icmp(e, LLVMIntSLT, l.i, t.in[CONTRACT_TALL]);
    t.rows = em_add(e, t.in[CONTRACT_ROWS], LLVMBuildZExt(e->b, is_tall, e->t_i64, ""));
    t.has_lower = em_icmp(e, LLVMIntSGT, t.rows, num(c, SIDE));
    em_branch changed = em_if(e, em_icmp(e, LLVMIntNE, t.rows, configured));
    configure(&t);
    em_endif(e, &changed);
    make_panel(&t);
    em_loop_next(e, configured, t.rows);
    LLVMValueRef next_a = em_add(e, em_mul(e, t.rows, t.in[CONTRACT_A_NEXT_ROW]), t.in[CONTRACT_A_NEXT]);
    em_loop_next(e, t.pa, bytes_behind(&t, t.pa, next_a));
    em_loop_next(e, t.m0, em_add(e, t.m0, t.rows));
    em_loop_next(e, t.partial, element(c, t.partial, num(c, c->mr * c->nr)));
    em_end(e, &l);
    instruction(&t, "llvm.x86.tilerelease", NULL, 0);
    contract_end(c, o);
}
