/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* contract_pack.c: packing of a contraction's operands into panels [k][rows], evaluating their programs on the way.
 *
 * Lanes go along the rows of the panel (its elements are then stored as they come; the last ones under masks, with AVX2
 * where these are loads of neighbours) unless memory is contiguous along k and not along rows. Then they go along k,
 * and square blocks are transposed in registers. Operand 0 is packed row by row then, [rows][k], unless its program is
 * a load; and for tiles always (contract_pack_values). */
#include "jit/contract.h"

/* Lanes along k: something varies along k with stride 1, and nothing would have to be gathered. */
static bool is_contiguous_along_k(contract *c, int inst, int row_dim) {
    bool is_used[IR_KERNEL_MAX_INSTS] = {0}, k_unit = false, k_other = false, row_other = false;
    ir_kernel_mark(c->k, inst, is_used);
    for (int i = 0; i <= inst; i++) {
        const ir_kinst *in = &c->k->inst[i];
        if (!is_used[i] || in->op != IR_K_LOAD) continue;
        const int64_t *stride = c->k->buffer[in->index].stride;
        k_unit |= stride[c->dim_k] == 1;
        k_other |= stride[c->dim_k] != 1 && stride[c->dim_k] != 0;
        row_other |= stride[row_dim] != 1 && stride[row_dim] != 0;
    }
    return k_unit && !k_other && row_other;
}

/* Value of the operand at a point, as it lies in panels. */
static LLVMValueRef operand_value(contract *c, int operand, contract_point *at) {
    em_values v;
    int inst = c->operand[operand];
    ir_dtype type = c->k->inst[inst].dtype;
    em_values_init(&v, contract_load, at);
    LLVMValueRef x = em_value(c->e, &v, inst);
    bool is_in_memory = c->is_tile || c->dot == IR_DOT_BF16 || c->dot == IR_DOT_I8;
    return is_in_memory ? em_to_memory(c->e, type, x) : em_cast(c->e, x, type, c->packed);
}

static contract_point point(contract *c, int operand, LLVMValueRef row, LLVMValueRef k, int axis, LLVMValueRef mask) {
    LLVMValueRef zero = em_i64s(c->e, 0);
    return (contract_point){c, operand ? zero : row, operand ? row : zero, k, axis, mask};
}

static LLVMValueRef at_index(contract *c, LLVMValueRef base, LLVMValueRef i) { return em_gep(c->e, base, c->t_acc, i); }
static LLVMValueRef at_element(contract *c, LLVMValueRef base, LLVMValueRef i) {
    return em_gep(c->e, base, c->t_packed, i);
}

static void store_acc(contract *c, LLVMValueRef value, LLVMValueRef ptr) {
    LLVMSetAlignment(LLVMBuildStore(c->e->b, value, ptr), (unsigned)c->acc_bytes);
}

static void store_packed(contract *c, LLVMValueRef value, LLVMValueRef ptr) {
    LLVMSetAlignment(LLVMBuildStore(c->e->b, value, ptr), (unsigned)c->packed_bytes);
}

/* Element k of row `row` of a panel. */
static LLVMValueRef panel_element(contract *c, LLVMValueRef dst, LLVMValueRef k, LLVMValueRef row, int rows) {
    emit *e = c->e;
    if (c->group == 1) return at_index(c, dst, em_add(e, em_mul(e, k, em_i64s(e, rows)), row));
    LLVMValueRef word = LLVMBuildLShr(e->b, k, em_i64s(e, c->group / 2), ""),
                 lane = em_and(e, k, em_i64s(e, c->group - 1));
    if (c->dot == IR_DOT_BF16) lane = em_xor(e, lane, em_i64s(e, 1));
    word = em_add(e, em_mul(e, word, em_i64s(e, rows)), row);
    return at_element(c, dst, em_add(e, em_mul(e, word, em_i64s(e, c->group)), lane));
}

/* Words of padding behind those that hold elements, up to a whole step. */
static void pad_step(contract *c, int operand, LLVMValueRef dst, LLVMValueRef k_count) {
    emit *e = c->e;
    int rows = operand ? c->nr : c->mr;
    LLVMValueRef word = em_i32(e, (int32_t)((uint32_t)contract_padding(c, operand) * 0x10001u)), all[64];
    for (int i = 0; i < c->v_lanes; i++) all[i] = word;
    LLVMValueRef filled = contract_word_of(c, em_add(e, k_count, em_i64s(e, c->group - 1)));
    em_loop l = em_for(e, em_mul(e, filled, em_i64s(e, rows)),
                       em_mul(e, contract_packed_words(c, k_count), em_i64s(e, rows)), em_i64s(e, c->v_lanes));
    store_acc(c, LLVMConstVector(all, (unsigned)c->v_lanes), at_index(c, dst, l.i));
    em_end(e, &l);
}

/* Elements of the last words behind the last k. */
static void pad_words(contract *c, int operand, LLVMValueRef dst, LLVMValueRef k_count) {
    emit *e = c->e;
    int rows = operand ? c->nr : c->mr;
    LLVMValueRef one = em_i64s(e, 1);
    LLVMValueRef end = em_and(e, em_add(e, k_count, em_i64s(e, c->group - 1)), em_i64s(e, -c->group));
    LLVMValueRef zero = LLVMConstInt(c->t_packed, (unsigned)contract_padding(c, operand), 0);
    em_loop lk = em_for(e, k_count, end, one), lr = em_for(e, em_i64s(e, 0), em_i64s(e, rows), one);
    store_packed(c, zero, panel_element(c, dst, lk.i, lr.i, rows));
    em_end(e, &lr);
    em_end(e, &lk);
    if (c->is_tile) pad_step(c, operand, dst, k_count);
}

/* One element at a time; rows past the end repeat the last one, so that every element of the panel is defined. */
static void pack_scalar(contract *c, int operand, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef valid,
                        LLVMValueRef k_first, LLVMValueRef k_begin, LLVMValueRef k_count) {
    emit *e = c->e;
    int rows = operand ? c->nr : c->mr;
    LLVMValueRef one = em_i64s(e, 1), last = em_sub(e, valid, one);
    e->lanes = 1;
    em_loop lk = em_for(e, k_begin, k_count, one), lr = em_for(e, em_i64s(e, 0), em_i64s(e, rows), one);
    LLVMValueRef row = em_add(e, first, em_min(e, lr.i, last));
    contract_point at = point(c, operand, row, em_add(e, k_first, lk.i), -1, NULL);
    LLVMValueRef x = operand_value(c, operand, &at);
    if (operand == 0 && contract_is_flipped(c)) x = em_xor(e, x, LLVMConstInt(c->t_packed, 0x80, 0));
    store_packed(c, x, panel_element(c, dst, lk.i, lr.i, rows));
    em_end(e, &lr);
    em_end(e, &lk);
    if (c->group > 1) pad_words(c, operand, dst, k_count);
    e->lanes = c->lanes;
}

/* ---- lanes along the rows ---- */
static void pack_rows(contract *c, int operand, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef valid,
                      LLVMValueRef k_first, LLVMValueRef k_count, bool masked) {
    emit *e = c->e;
    int rows = operand ? c->nr : c->mr, steps = (rows + c->lanes - 1) / c->lanes;
    LLVMValueRef mask[8] = {0};
    if (masked)
        for (int j = 0; j < steps; j++) {
            LLVMValueRef left = em_sub(e, valid, em_i64s(e, j * c->lanes));
            mask[j] = em_mask(e, em_min(e, left, em_i64s(e, rows - j * c->lanes)));
        }
    LLVMValueRef whole = em_and(e, k_count, em_i64s(e, -c->group));
    em_loop l = em_for(e, em_i64s(e, 0), whole, em_i64s(e, c->group));
    LLVMValueRef to = em_mul(e, contract_word_of(c, l.i), em_i64s(e, rows)), value[8];
    for (int j = 0; j < steps; j++) {
        LLVMValueRef part[4];
        for (int g = 0; g < c->group; g++) {
            LLVMValueRef k = em_add(e, em_add(e, k_first, l.i), em_i64s(e, g));
            contract_point at = point(c, operand, em_add(e, first, em_i64s(e, j * c->lanes)), k,
                                      operand ? c->dim_n : c->dim_m, mask[j]);
            part[g] = operand_value(c, operand, &at);
            /* what the program makes of no element is not to be what the head tells */
            if (mask[j] && c->is_tile && c->heads[operand])
                part[g] = em_select(e, mask[j], part[g], LLVMConstNull(LLVMTypeOf(part[g])));
        }
        value[j] = c->group == 1 ? part[0] : contract_words(c, operand, part);
    }
    for (int j = 0; j < steps; j++) store_acc(c, value[j], at_index(c, dst, em_add(e, to, em_i64s(e, j * c->lanes))));
    em_end(e, &l);
    if (c->group > 1) pack_scalar(c, operand, dst, first, valid, k_first, whole, k_count);
}

/* ---- lanes along k ---- */
static LLVMValueRef shuffle(contract *c, LLVMValueRef a, LLVMValueRef b, const int *index, int n) {
    LLVMValueRef mask[64];
    for (int i = 0; i < n; i++) mask[i] = LLVMConstInt(c->e->t_i32, (unsigned)index[i], 0);
    return LLVMBuildShuffleVector(c->e->b, a, b, LLVMConstVector(mask, (unsigned)n), "");
}

/* Interleaves granules of u elements of a and b inside each 128-bit lane, from the lanes' lower or upper half: an
 * unpack. */
static LLVMValueRef unpack(contract *c, LLVMValueRef a, LLVMValueRef b, int u, int half) {
    int n = c->v_lanes, in_lane = 16 / c->acc_bytes, index[64];
    for (int i = 0; i < n; i++) {
        int lane = i / in_lane * in_lane, granule = i % in_lane / u, from = half * (in_lane / u / 2) + granule / 2;
        index[i] = (granule & 1 ? n : 0) + lane + from * u + i % u;
    }
    return shuffle(c, a, b, index, n);
}

/* a and b, of n elements each, one behind the other; NULL for what is not there. */
static LLVMValueRef join(contract *c, LLVMValueRef a, LLVMValueRef b, int n) {
    int index[64];
    LLVMValueRef none = LLVMGetPoison(LLVMVectorType(c->t_acc, (unsigned)n));
    if (!a && !b) return NULL;
    for (int i = 0; i < 2 * n; i++) index[i] = i;
    return shuffle(c, a ? a : none, b ? b : none, index, 2 * n);
}

/* Words [i][l]: column k.. of row in_lane * l + i, for l up to 4 and in_lane columns: 128 bits each. */
typedef struct source {
    LLVMValueRef at, row[4], lane; /* first word; bytes to row i; to the rows of the next l */
} source;

/* in_lane columns of `have` rows, up to v_lanes: 128 bits of rows in_lane * l + i become lane l of vector i, so that a
 * transposition inside lanes makes whole columns of the panel, `apart` elements from one to the next. */
static void transpose(contract *c, const source *from, LLVMValueRef to, LLVMValueRef apart, int have, int operand) {
    emit *e = c->e;
    int in_lane = 16 / c->acc_bytes, lanes = c->v_lanes / in_lane;
    LLVMTypeRef t_lane = LLVMVectorType(c->t_acc, (unsigned)in_lane);
    LLVMValueRef v[4] = {0}, t[4] = {0}, at[4] = {from->at};
    for (int l = 1; l < lanes; l++) at[l] = bytes_behind(c, at[l - 1], from->lane);
    for (int i = 0; i < in_lane; i++) {
        LLVMValueRef part[4] = {0};
        for (int l = 0; l < lanes && l * in_lane + i < have; l++) {
            part[l] = LLVMBuildLoad2(e->b, t_lane, i ? bytes_behind(c, at[l], from->row[i]) : at[l], "");
            LLVMSetAlignment(part[l], (unsigned)c->packed_bytes);
        }
        if (lanes == 4) part[0] = join(c, part[0], part[1], in_lane), part[1] = join(c, part[2], part[3], in_lane);
        v[i] = lanes == 1 ? part[0] : join(c, part[0], part[1], lanes / 2 * in_lane);
        if (!v[i]) v[i] = LLVMGetPoison(c->t_vec);
        else v[i] = contract_memory_words(c, operand, v[i]);
    }
    for (int i = 0; i < in_lane; i++) t[i] = unpack(c, v[i / 2 * 2], v[i / 2 * 2 + 1], 1, i & 1);
    for (int i = 0; i < in_lane; i++) {
        LLVMValueRef column = in_lane == 2 ? t[i] : unpack(c, t[i / 2], t[i / 2 + 2], 2, i & 1);
        store_acc(c, column, i ? at_index(c, to, em_mul(e, apart, em_i64s(e, i))) : to);
    }
}

/* Is the operand's program nothing but a load, so that rows can be read from memory as they are? */
bool contract_is_plain_load(contract *c, int operand) {
    const ir_kinst *in = &c->k->inst[c->operand[operand]];
    return in->op == IR_K_LOAD && !in->variant && c->k->buffer[in->index].stride[c->dim_k] == 1 &&
           (in->dtype == c->packed || (c->packed == FUSOR_I8 && ir_dtypes[in->dtype].bytes == 1));
}

/* Columns of a step: those of a vector of the program, and of the 128 bits that are transposed. */
static int step_columns(const contract *c) {
    int block = 16 / c->acc_bytes * c->group;
    return c->lanes > block ? c->lanes : block;
}

/* Values of a step's columns of all rows, one row behind the other in scratch. Rows past the end repeat the last
 * one. */
static void stage(contract *c, int operand, LLVMValueRef first, LLVMValueRef last, LLVMValueRef k, LLVMValueRef mask) {
    emit *e = c->e;
    int columns = step_columns(c);
    em_loop l = em_for(e, em_i64s(e, 0), em_i64s(e, operand ? c->nr : c->mr), em_i64s(e, 1));
    LLVMValueRef to = em_mul(e, l.i, em_i64s(e, columns)), row = em_add(e, first, em_min(e, l.i, last));
    for (int j = 0; j < columns; j += c->lanes) {
        contract_point at = point(c, operand, row, j ? em_add(e, k, em_i64s(e, j)) : k, c->dim_k, mask);
        LLVMValueRef x = operand_value(c, operand, &at);
        if (mask && c->group > 1) { /* what the program makes of no element */
            LLVMValueRef padding = LLVMConstInt(c->t_packed, (unsigned)contract_padding(c, operand), 0);
            x = em_select(e, mask, x, em_splat(e, padding));
        }
        store_packed(c, x, at_element(c, c->staging, j ? em_add(e, to, em_i64s(e, j)) : to));
    }
    em_end(e, &l);
}

static source rows_apart(contract *c, LLVMValueRef stride) {
    const int in_lane = 16 / c->acc_bytes;
    source from = {.row = {NULL, stride}, .lane = em_mul(c->e, stride, em_i64s(c->e, in_lane))};
    for (int i = 2; i < in_lane; i++) from.row[i] = em_mul(c->e, stride, em_i64s(c->e, i));
    return from;
}

/* A step's columns of all rows, from scratch to the panel at `to`. In a column the last group of v_lanes rows comes
 * first: where it is not full its stores spill over into the first elements of the next column, which are written
 * afterwards. */
static void transpose_staged(contract *c, int operand, LLVMValueRef to) {
    emit *e = c->e;
    const int rows = operand ? c->nr : c->mr, columns = step_columns(c), in_lane = 16 / c->acc_bytes;
    LLVMValueRef stride = em_i64s(e, columns * c->packed_bytes);
    source from = rows_apart(c, stride);
    em_loop l = em_for(e, em_i64s(e, 0), em_i64s(e, columns / c->group), em_i64s(e, in_lane));
    LLVMValueRef column = at_index(c, c->staging, l.i), panel = at_index(c, to, em_mul(e, l.i, em_i64s(e, rows)));
    for (int g = (rows - 1) / c->v_lanes; g >= 0; g--) {
        const int first = g * c->v_lanes, have = rows - first < c->v_lanes ? rows - first : c->v_lanes;
        from.at = g ? bytes_behind(c, column, em_mul(e, stride, em_i64s(e, first))) : column;
        transpose(c, &from, g ? at_index(c, panel, em_i64s(e, first)) : panel, em_i64s(e, rows), have, operand);
    }
    em_end(e, &l);
}

/* The words from `word` to `end`, whole steps, of groups of rows that are read where they lie: from group[0] up to
 * group[1], of `have` rows each. */
static void transpose_groups(contract *c, int operand, LLVMValueRef begin, LLVMValueRef stride, LLVMValueRef panel,
                             LLVMValueRef word, LLVMValueRef end, const int group[2], int have) {
    enum { MOST_AT_ONCE = 2 };
    emit *e = c->e;
    const int in_lane = 16 / c->acc_bytes, blocks = step_columns(c) / c->group / in_lane,
              at_once = blocks < MOST_AT_ONCE ? blocks : MOST_AT_ONCE;
    LLVMValueRef apart = em_i64s(e, operand ? c->nr : c->mr), lanes = em_i64s(e, c->v_lanes);
    source from = rows_apart(c, stride);
    em_loop lg = em_for(e, em_i64s(e, group[0]), em_i64s(e, group[1]), em_i64s(e, 1));
    LLVMValueRef row = bytes_behind(c, begin, em_mul(e, lg.i, em_mul(e, stride, lanes))),
                 to = at_index(c, panel, em_mul(e, lg.i, lanes));
    em_loop l = em_for(e, word, end, em_i64s(e, at_once * in_lane));
    for (int i = 0; i < at_once; i++) {
        LLVMValueRef column = i ? em_add(e, l.i, em_i64s(e, i * in_lane)) : l.i;
        from.at = at_index(c, row, column);
        transpose(c, &from, at_index(c, to, em_mul(e, column, apart)), apart, have, operand);
    }
    em_end(e, &l);
    em_end(e, &lg);
}

/* `words` of whole steps of rows that are read where they lie: a line of each at a time, of a vector's rows, since rows
 * a power of two apart share a set of L1. (f32, one core with 32 KB of L1, 2, 8 and 32 rows by the transposed 1024 x
 * 1024, over 16 bytes of each of 16 or 24 rows at a time: 0.58, 0.6 to 0.75 and 0.8 of the time.) */
static void transpose_in_place(contract *c, int operand, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef k_first,
                               LLVMValueRef words) {
    emit *e = c->e;
    const int rows = operand ? c->nr : c->mr, full = rows / c->v_lanes, left = rows % c->v_lanes,
              buffer = c->k->inst[c->operand[operand]].index;
    contract_point at = point(c, operand, first, k_first, -1, NULL);
    LLVMValueRef begin = at_element(c, e->base[buffer], contract_offset(c, buffer, &at));
    LLVMValueRef stride = em_mul(e, e->stride[buffer][operand ? c->dim_n : c->dim_m], em_i64s(e, c->packed_bytes));
    LLVMValueRef line = em_i64s(e, EM_LINE_BYTES / c->acc_bytes);
    em_loop l = em_for(e, em_i64s(e, 0), words, line);
    LLVMValueRef end = em_min(e, em_add(e, l.i, line), words);
    if (left) transpose_groups(c, operand, begin, stride, dst, l.i, end, (int[]){full, full + 1}, left);
    if (full) transpose_groups(c, operand, begin, stride, dst, l.i, end, (int[]){0, full}, c->v_lanes);
    em_end(e, &l);
}

/* Operand 0 is packed panel after panel by one worker, so with masks the last step may write whole vectors past the end
 * of the panel. Panels of operand 1 are other workers' neighbours: their last places along k are packed one element at
 * a time, as those of operand 0 are without masks. */
static void pack_transposed(contract *c, int operand, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef valid,
                            LLVMValueRef k_first, LLVMValueRef k_count) {
    emit *e = c->e;
    const bool masked = operand == 0 && e->level->has_mask;
    const int rows = operand ? c->nr : c->mr, columns = step_columns(c);
    LLVMValueRef step = em_i64s(e, columns), last = em_sub(e, valid, em_i64s(e, 1)), begin = em_i64s(e, 0);
    LLVMValueRef whole = em_and(e, k_count, em_i64s(e, -columns));
    if (contract_is_plain_load(c, operand)) {
        LLVMValueRef is_whole = em_icmp(e, LLVMIntSGE, valid, em_i64s(e, rows));
        begin = em_select(e, is_whole, whole, begin);
        transpose_in_place(c, operand, dst, first, k_first, contract_word_of(c, begin));
    }
    em_loop l = em_for(e, begin, masked ? k_count : whole, step);
    stage(c, operand, first, last, em_add(e, k_first, l.i), masked ? em_mask(e, em_sub(e, k_count, l.i)) : NULL);
    transpose_staged(c, operand, at_index(c, dst, em_mul(e, contract_word_of(c, l.i), em_i64s(e, rows))));
    em_end(e, &l);
    if (!masked) pack_scalar(c, operand, dst, first, valid, k_first, whole, k_count);
}

/* Are rows past the end masked lanes? */
static bool masks_rows(const contract *c, int operand) {
    const int dim = operand ? c->dim_n : c->dim_m;
    bool is_used[IR_KERNEL_MAX_INSTS] = {0};
    if (c->e->level->has_mask) return true;
    ir_kernel_mark(c->k, c->operand[operand], is_used);
    for (int i = 0; i < c->k->n_insts; i++) {
        const ir_kinst *in = &c->k->inst[i];
        if (is_used[i] && in->op == IR_K_LOAD && (in->variant || !em_masks_load(c->e, in->index, dim))) return false;
    }
    return c->e->level->has_fma;
}

static void pack_along_rows(contract *c, int operand, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef valid,
                            LLVMValueRef k_first, LLVMValueRef k_count) {
    emit *e = c->e;
    int rows = operand ? c->nr : c->mr;
    int reach = (rows + c->lanes - 1) / c->lanes * c->lanes; /* rows that whole vectors read */
    em_branch b = em_if(e, em_icmp(e, LLVMIntSGE, valid, em_i64s(e, reach)));
    pack_rows(c, operand, dst, first, valid, k_first, k_count, false);
    em_else(e, &b);
    if (masks_rows(c, operand)) pack_rows(c, operand, dst, first, valid, k_first, k_count, true);
    else pack_scalar(c, operand, dst, first, valid, k_first, em_i64s(e, 0), k_count);
    em_endif(e, &b);
}

void contract_pack(contract *c, int operand, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef k_first,
                   LLVMValueRef k_count) {
    LLVMValueRef valid = em_sub(c->e, operand ? c->n : c->m, first);
    c->e->lanes = c->lanes;
    if (is_contiguous_along_k(c, c->operand[operand], operand ? c->dim_n : c->dim_m))
        pack_transposed(c, operand, dst, first, valid, k_first, k_count);
    else pack_along_rows(c, operand, dst, first, valid, k_first, k_count);
}

/* ---- values of operand 0, row by row ---- */
bool contract_packs_by_rows(contract *c) {
    return !c->dot && !c->n_outer_k && !contract_is_plain_load(c, 0) &&
           is_contiguous_along_k(c, c->operand[0], c->dim_m);
}

/* As they would lie in memory, which the register tile reads as well, and nothing is turned. What is left of a row
 * behind whole vectors is in one that ends with it; a row that is shorter than a vector is one under a mask, or single
 * elements. (f32, relu(x) by a matrix, AVX2, of the time with turned blocks: 2000 x 64 by 64 x 8 0.81, 2000 x 256 by
 * 256 x 10 0.75, 500 x 500 by 500 x 8 0.70, 128 x 784 by 784 x 512 and 512 cubed 1.0.) */
static void pack_by_rows(contract *c, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef rows, LLVMValueRef k_first,
                         LLVMValueRef k_count) {
    emit *e = c->e;
    enum { WHOLE, LAST, SHORT };
    LLVMValueRef none = em_i64s(e, 0), last = em_sub(e, k_count, em_i64s(e, c->lanes));
    LLVMValueRef begin[3] = {none, last, none}, end[3];
    LLVMValueRef is_long = em_icmp(e, LLVMIntSGE, last, none), whole = em_and(e, k_count, em_i64s(e, -c->lanes));
    LLVMValueRef has_last = em_and(e, is_long, em_icmp(e, LLVMIntSLT, whole, k_count));
    end[WHOLE] = whole;
    end[LAST] = em_select(e, has_last, k_count, last);
    end[SHORT] = em_select(e, is_long, none, k_count);
    em_loop r = em_for(e, none, rows, em_i64s(e, 1));
    LLVMValueRef to = at_index(c, dst, em_mul(e, r.i, k_count)), row = em_add(e, first, r.i);
    for (int part = WHOLE; part <= SHORT; part++) {
        const bool masked = part == SHORT && e->level->has_mask;
        if (part == SHORT && !masked) e->lanes = 1;
        em_loop l = em_for(e, begin[part], end[part], em_i64s(e, e->lanes));
        contract_point at = point(c, 0, row, em_add(e, k_first, l.i), e->lanes > 1 ? c->dim_k : -1,
                                  masked ? em_mask(e, k_count) : NULL);
        store_packed(c, operand_value(c, 0, &at), at_element(c, to, l.i));
        em_end(e, &l);
        e->lanes = c->lanes;
    }
    em_end(e, &r);
}

/* ---- and for tiles ---- */
/* Row by row, its last vectors filled up with padding. */
static void pack_rows_along_k(contract *c, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef rows,
                              LLVMValueRef k_first, LLVMValueRef k_count) {
    emit *e = c->e;
    const int step = ir_dots[c->dot].step, row_bytes = step * c->packed_bytes;
    LLVMValueRef words = contract_packed_words(c, k_count), whole = em_and(e, k_count, em_i64s(e, -c->lanes));
    LLVMValueRef end = em_mul(e, words, em_i64s(e, c->group)), last = em_sub(e, rows, em_i64s(e, 1));
    LLVMValueRef padding = LLVMConstInt(c->t_packed, (unsigned)contract_padding(c, 0), 0);
    em_loop r = em_for(e, em_i64s(e, 0), em_i64s(e, c->mr), em_i64s(e, 1));
    LLVMValueRef to = bytes_behind(c, dst, em_mul(e, r.i, em_i64s(e, row_bytes)));
    LLVMValueRef row = em_add(e, first, em_min(e, r.i, last));
    for (int is_masked = 0; is_masked < 2; is_masked++) {
        em_loop l = em_for(e, is_masked ? whole : em_i64s(e, 0), is_masked ? end : whole, em_i64s(e, c->lanes));
        LLVMValueRef mask = is_masked ? em_mask(e, em_sub(e, k_count, l.i)) : NULL;
        contract_point at = point(c, 0, row, em_add(e, k_first, l.i), c->dim_k, mask);
        LLVMValueRef x = operand_value(c, 0, &at);
        if (mask) x = em_select(e, mask, x, em_splat(e, padding));
        LLVMValueRef before = em_mul(e, em_and(e, l.i, em_i64s(e, -step)), em_i64s(e, c->mr)); /* whole steps */
        store_packed(c, x, at_element(c, to, em_add(e, before, em_and(e, l.i, em_i64s(e, step - 1)))));
        em_end(e, &l);
    }
    em_end(e, &r);
}

/* Step by step along k: [words][mr] in the part of scratch where rows are turned, which is of that size; from there to
 * rows of a step. Those that the panel has not are any. */
static void pack_rows_turned(contract *c, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef k_first,
                             LLVMValueRef k_count) {
    emit *e = c->e;
    int step = ir_dots[c->dot].step, side = step / c->group, in_lane = 16 / c->acc_bytes;
    LLVMValueRef apart = em_i64s(e, side), valid = em_sub(e, c->m, first);
    LLVMValueRef row = em_i64s(e, c->mr * c->acc_bytes);
    source from = {.row = {NULL, row}, .lane = em_mul(e, row, em_i64s(e, in_lane))};
    for (int i = 2; i < in_lane; i++) from.row[i] = em_mul(e, row, em_i64s(e, i));
    em_loop l = em_for(e, em_i64s(e, 0), k_count, em_i64s(e, step));
    LLVMValueRef left = em_min(e, em_sub(e, k_count, l.i), em_i64s(e, step));
    pack_along_rows(c, 0, c->staging, first, valid, em_add(e, k_first, l.i), left);
    LLVMValueRef to = at_index(c, dst, em_mul(e, contract_word_of(c, l.i), em_i64s(e, c->mr)));
    em_loop r = em_for(e, em_i64s(e, 0), em_i64s(e, c->mr), em_i64s(e, in_lane));
    from.at = at_index(c, c->staging, r.i);
    transpose(c, &from, at_index(c, to, em_mul(e, r.i, apart)), apart, side, 0);
    em_end(e, &r);
    em_end(e, &l);
}

void contract_pack_values(contract *c, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef rows, LLVMValueRef k_first,
                          LLVMValueRef k_count) {
    c->e->lanes = c->lanes;
    if (!c->is_tile) pack_by_rows(c, dst, first, rows, k_first, k_count);
    else if (is_contiguous_along_k(c, c->operand[0], c->dim_m))
        pack_rows_along_k(c, dst, first, rows, k_first, k_count);
    else pack_rows_turned(c, dst, first, k_first, k_count);
}
