/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* amx.c: products of 32 rows by 32 columns in tile registers.
 *
 *   sums of 2 x 2 tiles (1 x 2, 2 x 1, 1 x 1 where 16 rows or columns are all) = 0; for each 16 words along k: load 2
 *   tiles of each operand, 4 products; store. A sum is ready 52 cycles behind its last product, and its register is not
 *   renamed: so the last two products of each of 2 x 2 tiles come one tile after the other (finish_tiles), and three are
 *   stored while others are made (bf16, 2 / 4 / 8 steps: 163 / 282 / 537 cycles for 200 / 305 / 579).
 *
 *   tmm0 tmm1      sums, rows 0-15, columns 0-15 and 16-31     tmm4 tmm5   operand 0, rows 0-15 and 16-31
 *   tmm2 tmm3      sums, rows 16-31                            tmm6 tmm7   operand 1, columns 0-15 and 16-31
 *
 * A tile of operand 1 is 16 words along k of 16 columns, as they lie in a packed panel; one of operand 0 the same words
 * of 16 rows of memory: packed, or where the matrix lies. Both are filled up to whole steps along k, so nothing is
 * configured for what is left; rows are configured, so the last panels read no more rows than there are.
 *
 * The registers are named here, by the instructions' numbers: LLVM then neither moves nor spills any. Nothing about
 * them is alive when the function is left, so its caller may be anything. */
#include "jit/amx.h"
#include <string.h>

enum { CONFIG_BYTES = 64, CONFIG_COLUMNS = 16, CONFIG_ROWS = 48 };
enum { SUM = 0, TILE_A = 4, TILE_B = 6, TILES = 8 };

static LLVMTypeRef t_byte(emit *e) { return LLVMInt8TypeInContext(e->ctx); }
static LLVMValueRef tile_number(emit *e, int i) { return LLVMConstInt(t_byte(e), (unsigned)i, 0); }
static LLVMValueRef behind(emit *e, LLVMValueRef p, LLVMValueRef bytes) { return em_gep(e, p, e->t_i8, bytes); }

static void instruction(emit *e, const char *name, LLVMValueRef *in, unsigned n) {
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMTypeRef type = LLVMIntrinsicGetType(e->ctx, id, NULL, 0);
    LLVMBuildCall2(e->b, type, LLVMGetIntrinsicDeclaration(e->mod, id, NULL, 0), in, n, "");
}

/* ---- configuration ---- */
static void put(emit *e, LLVMValueRef config, int at, LLVMValueRef value) {
    LLVMSetAlignment(LLVMBuildStore(e->b, value, behind(e, config, em_i64s(e, at))), 1);
}

/* A tile of operand 0 and of sums that has no rows keeps one, which nothing touches: none would want no columns
 * either. */
void amx_configure(emit *e, const amx_product *p) {
    LLVMValueRef side = em_i64s(e, AMX_SIDE), one = em_i64s(e, 1);
    LLVMValueRef lower = em_select(e, p->is_high, em_sub(e, p->rows, side), one);
    LLVMValueRef upper = em_select(e, p->is_high, side, p->rows);
    upper = em_max(e, upper, one);
    LLVMValueRef half[2] = {LLVMBuildTrunc(e->b, upper, t_byte(e), ""), LLVMBuildTrunc(e->b, lower, t_byte(e), "")},
                 config = em_alloca(e, LLVMArrayType2(t_byte(e), CONFIG_BYTES), CONFIG_BYTES);
    LLVMTypeRef i16 = LLVMInt16TypeInContext(e->ctx);
    put(e, config, 0, LLVMConstNull(LLVMVectorType(t_byte(e), CONFIG_BYTES)));
    put(e, config, 0, LLVMConstInt(t_byte(e), 1, 0)); /* the palette */
    for (int i = 0; i < TILES; i++) put(e, config, CONFIG_COLUMNS + 2 * i, LLVMConstInt(i16, AMX_ROW_BYTES, 0));
    for (int i = TILE_B; i < TILES; i++) put(e, config, CONFIG_ROWS + i, LLVMConstInt(t_byte(e), AMX_SIDE, 0));
    for (int i = 0; i < TILE_B; i++) put(e, config, CONFIG_ROWS + i, half[i < TILE_A ? i / 2 : i - TILE_A]);
    instruction(e, "llvm.x86.ldtilecfg", &config, 1);
}

void amx_configure_whole(emit *e) {
    const amx_product p = {.rows = em_i64s(e, AMX_COLUMNS), .is_high = LLVMConstInt(e->t_i1, 1, 0)};
    amx_configure(e, &p);
}

void amx_release(emit *e) { instruction(e, "llvm.x86.tilerelease", NULL, 0); }

/* ---- products ---- */
const char *amx_product_name(ir_dot dot, ir_dtype a, ir_dtype b) {
    if (dot == IR_DOT_TILE_BF16 || dot == IR_DOT_TILE_CUT) return "llvm.x86.tdpbf16ps";
    if (dot == IR_DOT_TILE_F16) return "llvm.x86.tdpfp16ps";
    return ir_is_signed(a) ? (ir_is_signed(b) ? "llvm.x86.tdpbssd" : "llvm.x86.tdpbsud")
                           : (ir_is_signed(b) ? "llvm.x86.tdpbusd" : "llvm.x86.tdpbuud");
}

static void load(emit *e, const char *how, int tile, LLVMValueRef from, LLVMValueRef stride) {
    instruction(e, how, (LLVMValueRef[]){tile_number(e, tile), from, stride}, 3);
}

/* Where the tile of sums i, j is among rows so far apart. */
static LLVMValueRef part_of(emit *e, LLVMValueRef sums, LLVMValueRef row, int i, int j) {
    if (i) sums = behind(e, sums, em_mul(e, row, em_i64s(e, AMX_SIDE)));
    return j ? behind(e, sums, em_i64s(e, j * AMX_ROW_BYTES)) : sums;
}

static void begin_sums(emit *e, const amx_product *p, int high, int wide) {
    LLVMValueRef line = em_i64s(e, AMX_LINE_BYTES);
    em_branch begin = {0};
    if (p->is_begin) begin = em_if(e, p->is_begin);
    for (int i = 0; i < high; i++)
        for (int j = 0; j < wide; j++)
            instruction(e, "llvm.x86.tilezero", (LLVMValueRef[]){tile_number(e, SUM + 2 * i + j)}, 1);
    if (!p->is_begin) return;
    em_else(e, &begin);
    for (int i = 0; i < high; i++)
        for (int j = 0; j < wide; j++)
            load(e, "llvm.x86.tileloadd64", SUM + 2 * i + j, part_of(e, p->from, line, i, j), line);
    em_endif(e, &begin);
}

static void prefetch_line(emit *e, LLVMValueRef ahead, int line) {
    em_prefetch(e, behind(e, ahead, em_i64s(e, line * EM_LINE_BYTES)), 2);
}

static int b_row(const amx_product *p) { return p->b_row ? p->b_row : AMX_LINE_BYTES; }
static LLVMValueRef pitch_of_b(emit *e, const amx_product *p) { return p->table ? p->b_pitch : em_i64s(e, b_row(p)); }
/* How operand 0 is loaded where it goes by once, packed as tiles, while operand 1 stays in L1: as what is read once. (Of
 * rows that lie 512 or 1,024 bytes apart products took 1.4 to 1.9 times as long so, measured.) */
static const char *load_a(bool a_stays) { return a_stays ? "llvm.x86.tileloadd64" : "llvm.x86.tileloaddt164"; }

static void product(emit *e, const amx_product *p, int i, int j, int tile_a, int tile_b) {
    LLVMValueRef in[3] = {tile_number(e, SUM + 2 * i + j), tile_number(e, tile_a), tile_number(e, tile_b)};
    instruction(e, p->name, in, 3);
}

static void store_tile(emit *e, const amx_product *p, int i, int j) {
    LLVMValueRef row = p->to_row ? p->to_row : em_i64s(e, AMX_LINE_BYTES);
    LLVMValueRef in[3] = {tile_number(e, SUM + 2 * i + j), part_of(e, p->to, row, i, j), row};
    instruction(e, "llvm.x86.tilestored64", in, 3);
}

/* Where a step finds operands and what is prefetched; how many operands 1 there are. */
typedef struct place {
    LLVMValueRef a, b[3], ahead, prefetch, table;
    int n;
} place;

static place first_place(const amx_product *p) {
    place at = {.a = p->a, .b = {p->b}, .ahead = p->ahead, .prefetch = p->prefetch, .table = p->table, .n = 1};
    for (; at.n < 3 && p->more[at.n - 1]; at.n++) at.b[at.n] = p->more[at.n - 1];
    return at;
}

/* Where the low parts of a step are, of operand 0 and 1. */
static LLVMValueRef low_a(emit *e, LLVMValueRef a) { return behind(e, a, em_i64s(e, AMX_COLUMNS * AMX_ROW_BYTES)); }
static LLVMValueRef low_b(emit *e, LLVMValueRef b) { return behind(e, b, em_i64s(e, AMX_SIDE * AMX_LINE_BYTES)); }

/* Operand 1 of the step that the table is at. */
static LLVMValueRef by_table(emit *e, const amx_product *p, LLVMValueRef table) {
    return behind(e, p->b, LLVMBuildLoad2(e->b, e->t_i64, table, ""));
}
static void look_up(emit *e, const amx_product *p, place *at) {
    if (p->table) at->b[0] = by_table(e, p, at->table);
}

static int words_of_step(const amx_product *p) { return p->is_cut ? 2 * AMX_SIDE : AMX_SIDE; }

static place next_place(emit *e, const amx_product *p, const place *at) {
    place next = *at;
    const int words = words_of_step(p);
    next.a = behind(e, at->a, p->a_step);
    if (p->table) next.table = behind(e, at->table, em_i64s(e, 8));
    for (int q = 0; q < at->n && !p->table; q++) next.b[q] = behind(e, at->b[q], em_i64s(e, words * b_row(p)));
    look_up(e, p, &next);
    if (at->prefetch) next.prefetch = behind(e, at->prefetch, p->prefetch_step);
    if (at->ahead) next.ahead = behind(e, at->ahead, em_mul(e, p->ahead_step, em_i64s(e, words / AMX_SIDE)));
    return next;
}

static void prefetch_results(emit *e, const amx_product *p, LLVMValueRef row) {
    LLVMValueRef at = LLVMBuildPtrToInt(e->b, row, e->t_i64, "");
    em_branch prefetches = em_if(e, LLVMBuildICmp(e->b, LLVMIntULT, at, p->prefetch_end, ""));
    for (int i = 0; i < AMX_PREFETCHED_ROWS; i++)
        em_prefetch_lines(e, i ? behind(e, row, p->prefetch_row[i - 1]) : row,
                          (int64_t)p->prefetch_lines * EM_LINE_BYTES, 1);
    em_endif(e, &prefetches);
}

/* What a step has beside its products. */
static void make_beside(emit *e, const amx_product *p, const place *at, int prefetched) {
    while (at->ahead && prefetched < AMX_AHEAD) prefetch_line(e, at->ahead, prefetched++);
    if (at->prefetch) prefetch_results(e, p, at->prefetch);
    if (p->beside) p->beside(e, p->user);
}

/* Which part of operand 0 and of operand 1 product q of a step takes, where elements are cut: ten loads for sixteen
 * products of tiles, as the high part of operand 1, which is in L1, is loaded once more. */
static bool is_low(const amx_product *p, int q, int operand) {
    static const bool low[4][2] = {{false, false}, {false, true}, {true, true}, {true, false}};
    return p->is_cut && low[q][operand];
}

/* Products `begin` to `end` of a step, and what it has beside them (of elements that are cut: half of it). */
static void make_products(emit *e, const amx_product *p, const place *at, int begin, int end, int high, int wide,
                          bool a_stays) {
    LLVMValueRef line = pitch_of_b(e, p), half = em_i64s(e, AMX_ROW_BYTES);
    LLVMValueRef lower = em_mul(e, p->a_row, em_i64s(e, AMX_SIDE));
    int prefetched = 0;
    for (int q = begin; q < end; q++) {
        const bool loads_a = !q || is_low(p, q, 0) != is_low(p, q - 1, 0);
        const bool loads_b = !q || !p->is_cut || is_low(p, q, 1) != is_low(p, q - 1, 1);
        LLVMValueRef a = is_low(p, q, 0) ? low_a(e, at->a) : at->a, b = at->b[p->is_cut ? 0 : q];
        if (is_low(p, q, 1)) b = low_b(e, b);
        for (int i = 0; i < high; i++) {
            if (loads_a) load(e, load_a(a_stays), TILE_A + i, i ? behind(e, a, lower) : a, p->a_row);
            for (int j = 0; j < wide; j++) {
                if (!i && loads_b) load(e, "llvm.x86.tileloadd64", TILE_B + j, j ? behind(e, b, half) : b, line);
                product(e, p, i, j, TILE_A + i, TILE_B + j);
                if (at->ahead && prefetched < AMX_AHEAD) prefetch_line(e, at->ahead, prefetched++);
            }
        }
    }
    make_beside(e, p, at, prefetched);
}

static LLVMValueRef second_ahead(emit *e, const amx_product *p, const place *at) {
    return at->ahead ? behind(e, at->ahead, p->ahead_step) : NULL;
}

/* Steps of the first `words`; where the next is. */
static place make_steps(emit *e, const amx_product *p, LLVMValueRef words, int high, int wide, bool a_stays) {
    place first = first_place(p), at = first;
    em_loop l = em_for(e, em_i64s(e, 0), words, em_i64s(e, words_of_step(p)));
    at.a = em_loop_phi(e, &l, first.a);
    for (int q = 0; q < at.n && !p->table; q++) at.b[q] = em_loop_phi(e, &l, first.b[q]);
    if (at.ahead) at.ahead = em_loop_phi(e, &l, first.ahead);
    if (at.prefetch) at.prefetch = em_loop_phi(e, &l, first.prefetch);
    if (p->table) at.table = em_loop_phi(e, &l, first.table);
    look_up(e, p, &at);
    if (p->is_cut) {
        place half = at;
        half.prefetch = NULL;
        make_products(e, p, &half, 0, 2, high, wide, a_stays);
        half = at;
        half.ahead = second_ahead(e, p, &at);
        make_products(e, p, &half, 2, 4, high, wide, a_stays);
    } else make_products(e, p, &at, 0, at.n, high, wide, a_stays);
    const place next = next_place(e, p, &at);
    em_loop_next(e, at.a, next.a);
    for (int q = 0; q < at.n && !p->table; q++) em_loop_next(e, at.b[q], next.b[q]);
    if (at.ahead) em_loop_next(e, at.ahead, next.ahead);
    if (at.prefetch) em_loop_next(e, at.prefetch, next.prefetch);
    if (p->table) em_loop_next(e, at.table, next.table);
    em_end(e, &l);
    look_up(e, p, &at);
    return at;
}

/* The last two products of each of 2 x 2 tiles, of two steps or of one with two operands 1 (the parts of one that is
 * cut), tile by tile, and stores. */
static void finish_tiles(emit *e, const amx_product *p, const place *at, bool a_stays) {
    static const int order[4][2] = {{0, 0}, {0, 1}, {1, 1}, {1, 0}};
    LLVMValueRef line = pitch_of_b(e, p), half = em_i64s(e, AMX_ROW_BYTES);
    LLVMValueRef lower = em_mul(e, p->a_row, em_i64s(e, AMX_SIDE));
    const place next = next_place(e, p, at);
    const int steps = at->n == 1 ? 2 : 1;
    LLVMValueRef a[2] = {at->a, next.a}, b[2] = {at->b[0], steps == 2 ? next.b[0] : at->b[1]};
    int row = -1, column = -1;
    for (int t = 0; t < 4; t++) {
        const int i = order[t][0], j = order[t][1];
        for (int u = 0; u < 2; u++) {
            if (i != row && u < steps)
                load(e, load_a(a_stays), TILE_A + u, i ? behind(e, a[u], lower) : a[u], p->a_row);
            if (j != column) load(e, "llvm.x86.tileloadd64", TILE_B + u, j ? behind(e, b[u], half) : b[u], line);
            product(e, p, i, j, TILE_A + (steps == 2 ? u : 0), TILE_B + u);
        }
        store_tile(e, p, i, j);
        row = i;
        column = j;
        if (t == 1) make_beside(e, p, at, 0);
    }
    if (steps == 2) make_beside(e, p, &next, 0);
}

/* With so many tiles of rows and columns: what is left of the steps behind the first `words`, and stores. */
static void multiply_from(emit *e, const amx_product *p, LLVMValueRef words, LLVMValueRef is_long, int high, int wide,
                          bool a_stays) {
    const place at = make_steps(e, p, words, high, wide, a_stays);
    if (p->before_stores) p->before_stores(e, p->user);
    em_branch b = {0};
    if (is_long) {
        b = em_if(e, is_long);
        place last = at;
        if (p->is_cut) {
            make_products(e, p, &at, 0, 2, high, wide, a_stays);
            last = (place){
                .a = low_a(e, at.a), .b = {low_b(e, at.b[0]), at.b[0]}, .ahead = second_ahead(e, p, &at), .n = 2};
        }
        finish_tiles(e, p, &last, a_stays);
        em_else(e, &b);
    }
    for (int i = 0; i < high; i++)
        for (int j = 0; j < wide; j++) store_tile(e, p, i, j);
    if (is_long) em_endif(e, &b);
}

static void multiply(emit *e, const amx_product *p, int high, int wide) {
    LLVMValueRef words = p->words, is_long = NULL;
    const int parts = first_place(p).n;
    begin_sums(e, p, high, wide);
    if (high == 2 && wide == 2 && parts <= 2) {
        LLVMValueRef last = em_i64s(e, parts == 1 ? 2 * AMX_SIDE : AMX_SIDE); /* one step, of elements that are cut */
        is_long = em_icmp(e, LLVMIntSGE, words, last);
        if (p->is_whole) is_long = em_and(e, is_long, p->is_whole); /* else a register has fewer rows than the sums */
        words = em_select(e, is_long, em_sub(e, words, last), words);
    }
    const bool is_known = LLVMIsConstant(p->a_stays);
    em_branch stays = {0};
    if (!is_known) stays = em_if(e, p->a_stays);
    multiply_from(e, p, words, is_long, high, wide, true);
    if (!is_known) {
        em_else(e, &stays);
        multiply_from(e, p, words, is_long, high, wide, false);
        em_endif(e, &stays);
    }
}

void amx_multiply(emit *e, const amx_product *p) {
    em_branch high = em_if(e, p->is_high), wide;
    for (int i = 2; i >= 1; i--) {
        if (p->is_wide) wide = em_if(e, p->is_wide);
        multiply(e, p, i, 2);
        if (p->is_wide) {
            em_else(e, &wide);
            multiply(e, p, i, 1);
            em_endif(e, &wide);
        }
        if (i == 2) em_else(e, &high);
    }
    em_endif(e, &high);
}

/* ---- by fma ---- */
/* Vector j of row r of the sums that a product begins with. */
static LLVMValueRef slow_begin(emit *e, const amx_product *p, LLVMValueRef r, int j) {
    LLVMTypeRef type = LLVMVectorType(e->t_f32, AMX_SIDE);
    LLVMValueRef zero = LLVMConstNull(type);
    if (!p->is_begin) return zero;
    LLVMValueRef at = behind(e, p->from, em_mul(e, r, em_i64s(e, AMX_LINE_BYTES)));
    LLVMValueRef x = LLVMBuildLoad2(e->b, type, behind(e, at, em_i64s(e, j * AMX_ROW_BYTES)), "");
    LLVMSetAlignment(x, 4);
    return em_select(e, p->is_begin, zero, x);
}

/* Word l of each step of a row: where the step begins. */
static LLVMValueRef slow_step(emit *e, const amx_product *p, LLVMValueRef row, LLVMValueRef words) {
    LLVMValueRef step = LLVMBuildUDiv(e->b, words, em_i64s(e, words_of_step(p)), "");
    return behind(e, row, em_mul(e, step, p->a_step));
}

static LLVMValueRef slow_step_of_b(emit *e, const amx_product *p, LLVMValueRef words) {
    if (!p->table) return behind(e, p->b, em_mul(e, words, em_i64s(e, AMX_LINE_BYTES)));
    return by_table(e, p, em_gep(e, p->table, e->t_i64, em_lshr(e, words, 4)));
}

/* Words l of a step: of a row of operand 0, and two vectors of columns. */
static void slow_words(emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef pitch, LLVMValueRef l,
                       LLVMValueRef word[3]) {
    LLVMTypeRef t_words = LLVMVectorType(e->t_i32, AMX_SIDE);
    word[0] = em_load_splat(e, t_words, em_gep(e, a, e->t_i32, l), 2);
    LLVMValueRef line = behind(e, b, em_mul(e, l, pitch));
    for (int j = 0; j < 2; j++) {
        word[1 + j] = LLVMBuildLoad2(e->b, t_words, behind(e, line, em_i64s(e, j * AMX_ROW_BYTES)), "");
        LLVMSetAlignment(word[1 + j], 4);
    }
}

/* The sums, and a step's products; scale: NULL, or what elements of operand 1 are multiplied by. */
static void slow_products(emit *e, const amx_product *p, LLVMValueRef a, LLVMValueRef b, LLVMValueRef scale,
                          LLVMValueRef sum[2]) {
    LLVMValueRef part[2][2], word[3];
    em_loop l = em_for(e, em_i64s(e, 0), em_i64s(e, AMX_SIDE), em_i64s(e, 1));
    for (int j = 0; j < 4; j++) part[j / 2][j % 2] = em_loop_phi(e, &l, LLVMConstNull(LLVMTypeOf(sum[0])));
    slow_words(e, a, b, p->table ? p->b_pitch : em_i64s(e, AMX_LINE_BYTES), l.i, word);
    for (int j = 0; j < 2; j++)
        for (int h = 0; h < 2; h++) {
            LLVMValueRef y = em_bf16_half(e, word[1 + j], h);
            if (scale) y = em_fmul(e, y, scale);
            em_loop_next(e, part[j][h], em_mad(e, em_bf16_half(e, word[0], h), y, part[j][h]));
        }
    em_end(e, &l);
    for (int j = 0; j < 2; j++) sum[j] = em_fadd(e, sum[j], em_fadd(e, part[j][0], part[j][1]));
}

/* Elements that were cut, of words of their parts. */
static LLVMValueRef slow_whole(emit *e, LLVMValueRef high, LLVMValueRef low, bool is_upper) {
    high = em_bf16_half(e, high, is_upper);
    low = em_bf16_half(e, low, is_upper);
    return em_select(e, em_fcmp(e, LLVMRealUNO, low, low), high, em_fadd(e, high, low));
}

/* The sums, and a step's products of whole elements, in any order. */
static void slow_whole_products(emit *e, const LLVMValueRef a[2], const LLVMValueRef b[2], LLVMValueRef sum[2]) {
    LLVMValueRef word[2][3], next[2];
    em_loop l = em_for(e, em_i64s(e, 0), em_i64s(e, AMX_SIDE), em_i64s(e, 1));
    for (int j = 0; j < 2; j++) next[j] = sum[j] = em_loop_phi(e, &l, sum[j]);
    for (int q = 0; q < 2; q++) slow_words(e, a[q], b[q], em_i64s(e, AMX_LINE_BYTES), l.i, word[q]);
    for (int h = 0; h < 2; h++) {
        LLVMValueRef x = slow_whole(e, word[0][0], word[1][0], h);
        for (int j = 0; j < 2; j++) next[j] = em_mad(e, x, slow_whole(e, word[0][1 + j], word[1][1 + j], h), next[j]);
    }
    for (int j = 0; j < 2; j++) em_loop_next(e, sum[j], next[j]);
    em_end(e, &l);
}

/* A row and two vectors of columns at a time. What the sums begin with is read though it may not be used: it is memory
 * of ours. Of elements that are cut: what is not finite has an element in it that is not, as sums of products of finite
 * f16 are far from overflow; it is the sum of products of whole elements instead. */
void amx_multiply_bf16_slowly(emit *e, const amx_product *p) {
    LLVMValueRef one = em_i64s(e, 1), sum[2], whole[2], scale = NULL;
    e->lanes = AMX_SIDE;
    if (p->scale) scale = em_splat(e, p->scale);
    em_loop r = em_for(e, em_i64s(e, 0), p->rows, one);
    LLVMValueRef row = behind(e, p->a, em_mul(e, r.i, p->a_row)), begin[2];
    for (int j = 0; j < 2; j++) begin[j] = slow_begin(e, p, r.i, j);
    em_loop step = em_for(e, em_i64s(e, 0), p->words, em_i64s(e, words_of_step(p)));
    LLVMValueRef before[4] = {0};
    for (int j = 0; j < (p->is_cut ? 4 : 2); j++) before[j] = em_loop_phi(e, &step, begin[j % 2]);
    for (int j = 0; j < 2; j++) sum[j] = before[j], whole[j] = before[2 + j];
    LLVMValueRef a[2] = {slow_step(e, p, row, step.i)}, b[2] = {slow_step_of_b(e, p, step.i)};
    slow_products(e, p, a[0], b[0], scale, sum);
    if (p->is_cut) {
        a[1] = low_a(e, a[0]);
        b[1] = low_b(e, b[0]);
        slow_products(e, p, a[0], b[1], NULL, sum);
        slow_products(e, p, a[1], b[1], NULL, sum);
        slow_products(e, p, a[1], b[0], NULL, sum);
        slow_whole_products(e, a, b, whole);
    }
    for (int j = 0; j < 2; j++) em_loop_next(e, before[j], sum[j]);
    for (int j = 0; j < 2 && p->is_cut; j++) em_loop_next(e, before[2 + j], whole[j]);
    em_end(e, &step);
    LLVMValueRef to = behind(e, p->to, em_mul(e, r.i, p->to_row ? p->to_row : em_i64s(e, AMX_LINE_BYTES)));
    for (int j = 0; j < 2; j++) {
        LLVMValueRef x = before[j];
        if (p->is_cut) { /* x - x is NaN where x is not finite */
            LLVMValueRef zero = em_fsub(e, x, x);
            x = em_select(e, em_fcmp(e, LLVMRealUNO, zero, zero), before[2 + j], x);
        }
        LLVMSetAlignment(LLVMBuildStore(e->b, x, behind(e, to, em_i64s(e, j * AMX_ROW_BYTES))), 4);
    }
    em_end(e, &r);
}
