/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* contract_pack.c: packing of a contraction's operands into panels [k][rows], evaluating their programs on the way.
 *
 * Lanes go along the rows of the panel (its elements are then stored as they come) unless memory is contiguous along k:
 * then they go along k, and square blocks are transposed in registers. */
#include "jit/contract.h"

/* Lanes along k: something varies along k with stride 1, and nothing would have to be gathered. */
static bool is_contiguous_along_k(contract *c, int inst, int row_dim) {
    uint8_t seen[IR_KERNEL_MAX_INSTS] = {0};
    bool k_unit = false, k_other = false, row_other = false;
    seen[inst] = 1;
    for (int i = inst; i >= 0; i--) {
        if (!seen[i]) continue;
        const ir_kinst *in = &c->k->inst[i];
        for (int j = 0; j < in->n_in; j++) seen[in->in[j]] = 1;
        if (in->op != IR_K_LOAD) continue;
        const int64_t *stride = c->k->buffer[in->index].stride;
        k_unit |= stride[c->dim_k] == 1;
        k_other |= stride[c->dim_k] != 1 && stride[c->dim_k] != 0;
        row_other |= stride[row_dim] != 1 && stride[row_dim] != 0;
    }
    return k_unit && !k_other && row_other;
}

/* Value of the operand at a point, in the accumulator type. */
static LLVMValueRef operand_value(contract *c, int operand, contract_point *at) {
    em_values v;
    int inst = c->operand[operand];
    em_values_init(&v, contract_load, at);
    return em_cast(c->e, em_value(c->e, &v, inst), c->k->inst[inst].dtype, c->acc);
}

static contract_point point(contract *c, int operand, LLVMValueRef row, LLVMValueRef k, int axis, LLVMValueRef mask) {
    LLVMValueRef zero = em_i64s(c->e, 0);
    return (contract_point){c, operand ? zero : row, operand ? row : zero, k, axis, mask};
}

static LLVMValueRef at_index(contract *c, LLVMValueRef base, LLVMValueRef i) { return em_gep(c->e, base, c->t_acc, i); }

static void store_acc(contract *c, LLVMValueRef value, LLVMValueRef ptr) {
    LLVMSetAlignment(LLVMBuildStore(c->e->b, value, ptr), (unsigned)c->acc_bytes);
}

/* One element at a time; rows past the end repeat the last one, so that every element of the panel is defined. */
static void pack_scalar(contract *c, int operand, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef valid,
                        LLVMValueRef k_first, LLVMValueRef k_begin, LLVMValueRef k_count) {
    emit *e = c->e;
    int rows = operand ? c->nr : c->mr;
    LLVMValueRef one = em_i64s(e, 1), last = em_sub(e, valid, one);
    e->lanes = 1;
    em_loop lk = em_for(e, k_begin, k_count, one), lr = em_for(e, em_i64s(e, 0), em_i64s(e, rows), one);
    LLVMValueRef row = em_add(e, first, contract_min(e, lr.i, last));
    contract_point at = point(c, operand, row, em_add(e, k_first, lk.i), -1, NULL);
    LLVMValueRef to = em_add(e, em_mul(e, lk.i, em_i64s(e, rows)), lr.i);
    store_acc(c, operand_value(c, operand, &at), at_index(c, dst, to));
    em_end(e, &lr);
    em_end(e, &lk);
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
            mask[j] = em_mask(e, contract_min(e, left, em_i64s(e, rows - j * c->lanes)));
        }
    em_loop l = em_for(e, em_i64s(e, 0), k_count, em_i64s(e, 1));
    LLVMValueRef k = em_add(e, k_first, l.i), to = em_mul(e, l.i, em_i64s(e, rows)), value[8];
    for (int j = 0; j < steps; j++) {
        contract_point at =
            point(c, operand, em_add(e, first, em_i64s(e, j * c->lanes)), k, operand ? c->dim_n : c->dim_m, mask[j]);
        value[j] = operand_value(c, operand, &at);
    }
    for (int j = 0; j < steps; j++) store_acc(c, value[j], at_index(c, dst, em_add(e, to, em_i64s(e, j * c->lanes))));
    em_end(e, &l);
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

/* Elements [i][l]: column k.. of row in_lane * l + i, for l up to 4 and in_lane columns: 128 bits each. */
typedef struct source {
    LLVMValueRef at, row[4], lane; /* first element; elements to row i; to the rows of the next l */
} source;

/* in_lane columns of `have` rows, up to v_lanes: 128 bits of rows in_lane * l + i become lane l of vector i, so that a
 * transposition inside lanes makes whole columns of the panel. */
static void transpose(contract *c, const source *from, LLVMValueRef to, int rows, int have) {
    emit *e = c->e;
    int in_lane = 16 / c->acc_bytes, lanes = c->v_lanes / in_lane;
    LLVMTypeRef t_lane = LLVMVectorType(c->t_acc, (unsigned)in_lane);
    LLVMValueRef v[4] = {0}, t[4] = {0}, at[4] = {from->at};
    for (int l = 1; l < lanes; l++) at[l] = at_index(c, at[l - 1], from->lane);
    for (int i = 0; i < in_lane; i++) {
        LLVMValueRef part[4] = {0};
        for (int l = 0; l < lanes && l * in_lane + i < have; l++) {
            part[l] = LLVMBuildLoad2(e->b, t_lane, i ? at_index(c, at[l], from->row[i]) : at[l], "");
            LLVMSetAlignment(part[l], (unsigned)c->acc_bytes);
        }
        if (lanes == 4) part[0] = join(c, part[0], part[1], in_lane), part[1] = join(c, part[2], part[3], in_lane);
        v[i] = lanes == 1 ? part[0] : join(c, part[0], part[1], lanes / 2 * in_lane);
        if (!v[i]) v[i] = LLVMGetPoison(c->t_vec);
    }
    for (int i = 0; i < in_lane; i++) t[i] = unpack(c, v[i / 2 * 2], v[i / 2 * 2 + 1], 1, i & 1);
    for (int i = 0; i < in_lane; i++) {
        LLVMValueRef column = in_lane == 2 ? t[i] : unpack(c, t[i / 2], t[i / 2 + 2], 2, i & 1);
        store_acc(c, column, at_index(c, to, em_i64s(e, i * rows)));
    }
}

/* Is the operand's program nothing but a load, so that rows can be read from memory as they are? */
static bool is_plain_load(contract *c, int operand) {
    const ir_kinst *in = &c->k->inst[c->operand[operand]];
    return in->op == IR_K_LOAD && !in->variant && in->dtype == c->acc && c->k->buffer[in->index].stride[c->dim_k] == 1;
}

/* Values of `lanes` columns of all rows, one row behind the other in scratch. Rows past the end repeat the last one. */
static void stage(contract *c, int operand, LLVMValueRef first, LLVMValueRef last, LLVMValueRef k, LLVMValueRef mask) {
    emit *e = c->e;
    em_loop l = em_for(e, em_i64s(e, 0), em_i64s(e, operand ? c->nr : c->mr), em_i64s(e, 1));
    contract_point at = point(c, operand, em_add(e, first, contract_min(e, l.i, last)), k, c->dim_k, mask);
    store_acc(c, operand_value(c, operand, &at), at_index(c, c->staging, em_mul(e, l.i, em_i64s(e, c->lanes))));
    em_end(e, &l);
}

/* One step: `lanes` columns from k0 on. is_direct (i1, or NULL for never): they are read where they lie, else staged.
 * In a column the last group of v_lanes rows comes first: where it is not full its stores spill over into the first
 * elements of the next column, which are written afterwards. */
static void transpose_step(contract *c, int operand, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef last,
                           LLVMValueRef k_first, LLVMValueRef k0, LLVMValueRef mask, LLVMValueRef is_direct) {
    emit *e = c->e;
    int rows = operand ? c->nr : c->mr, groups = (rows + c->v_lanes - 1) / c->v_lanes, in_lane = 16 / c->acc_bytes;
    LLVMValueRef k = em_add(e, k_first, k0), stride = em_i64s(e, c->lanes), begin = c->staging;
    if (is_direct) {
        int buffer = c->k->inst[c->operand[operand]].index;
        contract_point at = point(c, operand, first, k, -1, NULL);
        LLVMValueRef own = e->stride[buffer][operand ? c->dim_n : c->dim_m];
        stride = em_select(e, is_direct, own, stride);
        begin = em_select(e, is_direct, at_index(c, e->base[buffer], contract_offset(c, buffer, &at)), begin);
        em_branch staged = em_if(e, em_xor(e, is_direct, LLVMConstInt(e->t_i1, 1, 0)));
        stage(c, operand, first, last, k, mask);
        em_endif(e, &staged);
    } else stage(c, operand, first, last, k, mask);
    source from = {.row = {NULL, stride}};
    for (int i = 2; i < in_lane; i++) from.row[i] = em_mul(e, stride, em_i64s(e, i));
    from.lane = em_mul(e, stride, em_i64s(e, in_lane));
    LLVMValueRef to = at_index(c, dst, em_mul(e, k0, em_i64s(e, rows)));
    em_loop l = em_for(e, em_i64s(e, 0), em_i64s(e, c->lanes), em_i64s(e, in_lane));
    LLVMValueRef column = at_index(c, begin, l.i), panel = at_index(c, to, em_mul(e, l.i, em_i64s(e, rows)));
    for (int g = groups - 1; g >= 0; g--) {
        int have = rows - g * c->v_lanes < c->v_lanes ? rows - g * c->v_lanes : c->v_lanes;
        from.at = g ? at_index(c, column, em_mul(e, stride, em_i64s(e, g * c->v_lanes))) : column;
        transpose(c, &from, g ? at_index(c, panel, em_i64s(e, g * c->v_lanes)) : panel, rows, have);
    }
    em_end(e, &l);
}

/* Operand 0 is packed panel after panel by one worker, so with masks the last step may write whole vectors past the end
 * of the panel. Panels of operand 1 are other workers' neighbours: their last columns are packed one element at a time.
 */
static void pack_transposed(contract *c, int operand, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef valid,
                            LLVMValueRef k_first, LLVMValueRef k_count) {
    emit *e = c->e;
    bool masked = operand == 0 && e->level->has_mask;
    LLVMValueRef step = em_i64s(e, c->lanes), last = em_sub(e, valid, em_i64s(e, 1)), is_direct = NULL;
    LLVMValueRef whole = em_and(e, k_count, em_i64s(e, -c->lanes));
    LLVMValueRef is_whole = em_icmp(e, LLVMIntSGE, valid, em_i64s(e, operand ? c->nr : c->mr));
    em_loop l = em_for(e, em_i64s(e, 0), masked ? k_count : whole, step);
    if (is_plain_load(c, operand))
        is_direct = masked ? em_and(e, is_whole, em_icmp(e, LLVMIntSLT, l.i, whole)) : is_whole;
    transpose_step(c, operand, dst, first, last, k_first, l.i, masked ? em_mask(e, em_sub(e, k_count, l.i)) : NULL,
                   is_direct);
    em_end(e, &l);
    if (!masked) pack_scalar(c, operand, dst, first, valid, k_first, whole, k_count);
}

void contract_pack(contract *c, int operand, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef k_first,
                   LLVMValueRef k_count) {
    emit *e = c->e;
    int rows = operand ? c->nr : c->mr, row_dim = operand ? c->dim_n : c->dim_m;
    LLVMValueRef valid = em_sub(e, operand ? c->n : c->m, first);
    e->lanes = c->lanes;
    if (is_contiguous_along_k(c, c->operand[operand], row_dim)) {
        pack_transposed(c, operand, dst, first, valid, k_first, k_count);
    } else {
        int reach = (rows + c->lanes - 1) / c->lanes * c->lanes; /* rows that whole vectors read */
        em_branch b = em_if(e, em_icmp(e, LLVMIntSGE, valid, em_i64s(e, reach)));
        pack_rows(c, operand, dst, first, valid, k_first, k_count, false);
        em_else(e, &b);
        if (e->level->has_mask) pack_rows(c, operand, dst, first, valid, k_first, k_count, true);
        else pack_scalar(c, operand, dst, first, valid, k_first, em_i64s(e, 0), k_count);
        em_endif(e, &b);
    }
}
