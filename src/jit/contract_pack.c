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

/* 128-bit lanes x, y of a, then z, w of b (of four); with two lanes: x of a, y of b. */
static LLVMValueRef pick_lanes(contract *c, LLVMValueRef a, LLVMValueRef b, int x, int y, int z, int w) {
    int n = c->v_lanes, in_lane = 16 / c->acc_bytes, index[64], lane[4] = {x, y, z, w};
    if (n / in_lane == 2) lane[1] = y + 2;
    else lane[2] = z + 4, lane[3] = w + 4;
    for (int i = 0; i < n; i++) index[i] = lane[i / in_lane] * in_lane + i % in_lane;
    return shuffle(c, a, b, index, n);
}

/* In-place transposition of v_lanes vectors: elements inside 128-bit lanes, then whole lanes. Each shuffle is one
 * instruction at every level, and none needs a constant. */
static void transpose(contract *c, LLVMValueRef *v) {
    int in_lane = 16 / c->acc_bytes, lanes = c->v_lanes / in_lane;
    for (int r = 0; r < c->v_lanes; r += in_lane) {
        LLVMValueRef t[4] = {0}, *o = v + r;
        for (int i = 0; i < in_lane; i++) t[i] = unpack(c, o[i / 2 * 2], o[i / 2 * 2 + 1], 1, i & 1);
        for (int i = 0; i < in_lane; i++) o[i] = in_lane == 2 ? t[i] : unpack(c, t[i / 2], t[i / 2 + 2], 2, i & 1);
    }
    for (int j = 0; j < in_lane && lanes > 1; j++) {
        LLVMValueRef a[4], h[4];
        for (int g = 0; g < lanes; g++) a[g] = v[g * in_lane + j];
        if (lanes == 2) {
            for (int g = 0; g < 2; g++) v[g * in_lane + j] = pick_lanes(c, a[0], a[1], g, g, 0, 0);
            continue;
        }
        for (int i = 0; i < 4; i++)
            h[i] = pick_lanes(c, a[i / 2 * 2], a[i / 2 * 2 + 1], i % 2 * 2, i % 2 * 2 + 1, i % 2 * 2, i % 2 * 2 + 1);
        for (int g = 0; g < 4; g++)
            v[g * in_lane + j] = pick_lanes(c, h[g / 2], h[g / 2 + 2], g % 2, g % 2 + 2, g % 2, g % 2 + 2);
    }
}

static LLVMValueRef part(contract *c, LLVMValueRef wide, int begin) {
    int index[64];
    if (c->v_lanes == c->lanes) return wide;
    for (int i = 0; i < c->v_lanes; i++) index[i] = begin + i;
    return shuffle(c, wide, LLVMGetPoison(LLVMTypeOf(wide)), index, c->v_lanes);
}

/* Is the operand so cheap that its program may be repeated for each row of a panel? */
static bool is_plain_load(contract *c, int operand) { return c->k->inst[c->operand[operand]].op == IR_K_LOAD; }

/* One step: `lanes` columns from k0 on. Groups of v_lanes rows, the last group first: where it is not full its stores
 * spill over into the first elements of the next column, which are written afterwards. */
static void transpose_step(contract *c, int operand, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef last,
                           LLVMValueRef k_first, LLVMValueRef k0, LLVMValueRef mask) {
    emit *e = c->e;
    int rows = operand ? c->nr : c->mr, groups = (rows + c->v_lanes - 1) / c->v_lanes;
    bool plain = is_plain_load(c, operand);
    LLVMValueRef k = em_add(e, k_first, k0), to = em_mul(e, k0, em_i64s(e, rows));
    if (!plain) {
        em_loop l = em_for(e, em_i64s(e, 0), em_i64s(e, rows), em_i64s(e, 1));
        contract_point at = point(c, operand, em_add(e, first, contract_min(e, l.i, last)), k, c->dim_k, mask);
        store_acc(c, operand_value(c, operand, &at), at_index(c, c->staging, em_mul(e, l.i, em_i64s(e, c->lanes))));
        em_end(e, &l);
    }
    for (int g = groups - 1; g >= 0; g--) {
        LLVMValueRef wide[64], v[64];
        int have = rows - g * c->v_lanes < c->v_lanes ? rows - g * c->v_lanes : c->v_lanes;
        for (int r = 0; r < have && plain; r++) {
            LLVMValueRef row = em_add(e, first, contract_min(e, em_i64s(e, g * c->v_lanes + r), last));
            contract_point at = point(c, operand, row, k, c->dim_k, mask);
            wide[r] = operand_value(c, operand, &at);
        }
        for (int p = 0; p < c->lanes; p += c->v_lanes) {
            for (int r = 0; r < c->v_lanes; r++) {
                if (r >= have) {
                    v[r] = LLVMGetPoison(c->t_vec);
                } else if (plain) {
                    v[r] = part(c, wide[r], p);
                } else {
                    LLVMValueRef from = em_i64s(e, (g * c->v_lanes + r) * c->lanes + p);
                    v[r] = LLVMBuildLoad2(e->b, c->t_vec, at_index(c, c->staging, from), "");
                    LLVMSetAlignment(v[r], (unsigned)c->acc_bytes);
                }
            }
            transpose(c, v);
            for (int i = 0; i < c->v_lanes; i++)
                store_acc(c, v[i], at_index(c, dst, em_add(e, to, em_i64s(e, (p + i) * rows + g * c->v_lanes))));
        }
    }
}

/* Operand 0 is packed panel after panel by one worker, so with masks the last step may write whole vectors past the end
 * of the panel. Panels of operand 1 are other workers' neighbours: their last columns are packed one element at a time.
 */
static void pack_transposed(contract *c, int operand, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef valid,
                            LLVMValueRef k_first, LLVMValueRef k_count) {
    emit *e = c->e;
    bool masked = operand == 0 && e->level->has_mask;
    LLVMValueRef step = em_i64s(e, c->lanes), last = em_sub(e, valid, em_i64s(e, 1));
    LLVMValueRef whole = masked ? k_count : em_and(e, k_count, em_i64s(e, -c->lanes));
    em_loop l = em_for(e, em_i64s(e, 0), whole, step);
    transpose_step(c, operand, dst, first, last, k_first, l.i, masked ? em_mask(e, em_sub(e, k_count, l.i)) : NULL);
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
