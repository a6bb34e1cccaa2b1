/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* kernel_attention.c: the description of attention: its dims, tiles and memory, and what code generation relies on. The
 * generated code does the same arithmetic. */
#include "base/small.h"
#include "ir/arith.h"
#include "ir/kernel.h"

static const ir_kinst *find_attention(const ir_kernel *k) {
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_OP_ATTENTION) return &k->inst[i];
    return NULL;
}

ir_attention_dims ir_kernel_attention_dims(const ir_kernel *k) {
    return (ir_attention_dims){ir_kernel_dim(k, 'h'), ir_kernel_dim(k, 'm'), ir_kernel_dim(k, 'n'),
                               ir_kernel_dim(k, 'k'), ir_kernel_dim(k, 'j'), ir_kernel_dim(k, 'g')};
}

/* That of the scale: the planner gives it the type that all of it is computed in. */
ir_dtype ir_kernel_attention_acc(const ir_kernel *k) {
    const ir_kinst *a = find_attention(k);
    return a && a->n_in > 3 ? k->inst[a->in[3]].dtype : FUSOR_F32;
}

ir_dot ir_kernel_attention_dot(const ir_kernel *k) {
    const ir_kinst *a = find_attention(k);
    if (!a || a->n_in < 4) return IR_DOT_NONE;
    return ir_attention_dot(ir_kernel_target(k), k->inst[a->in[0]].dtype, k->inst[a->in[1]].dtype,
                            ir_kernel_attention_acc(k));
}

bool ir_kernel_attention_splits(const ir_kernel *k) {
    const ir_kinst *a = find_attention(k);
    return ir_kernel_attention_dot(k) == IR_DOT_TILE_BF16 && k->inst[a->in[2]].dtype == FUSOR_BF16;
}

/* Up to a quarter of a register of queries, the work of half a panel is as much. */
int ir_attention_rows(const ir_kernel *k) { return ir_levels[k->level].lanes / 4; }

int64_t ir_attention_parts(const ir_kernel *k, int64_t batches, int64_t queries, int64_t keys, int64_t *length) {
    int64_t parts = 1;
    *length = keys;
    if (queries > ir_attention_rows(k) || batches < 1 || keys < 2 * IR_ATTENTION_PART) return 1;
    parts = ir_ceil_div(IR_ATTENTION_PARTS, batches);
    if (parts > keys / IR_ATTENTION_PART) parts = keys / IR_ATTENTION_PART;
    *length = ir_round_up(ir_ceil_div(keys, parts), k->tile.kb);
    return ir_ceil_div(keys, *length);
}

void ir_launch_attention(const ir_kernel *k, const int64_t *size, const int64_t *tune, ir_launch *out) {
    const ir_attention_dims at = ir_kernel_attention_dims(k);
    const int64_t bytes = ir_dtypes[ir_kernel_attention_acc(k)].bytes, lanes = ir_levels[k->level].lanes;
    const int64_t nr = k->tile.nr, kb = k->tile.kb;
    int64_t panels = tune[IR_TUNE_ATTENTION_PANELS], batches = 1, length;
    if (!find_attention(k) || at.m < 0 || at.n < 0 || at.k < 0 || at.j < 0 || nr < 1 || kb < 1) return;
    const int64_t m = size[at.m], d = ir_round_up(size[at.k], lanes), e = ir_round_up(size[at.n], lanes);
    for (int i = 0; i < at.m; i++) batches *= size[i];
    const bool by_rows = m <= ir_attention_rows(k);
    const int64_t most = ir_ceil_div(m, nr), parts = ir_attention_parts(k, batches, m, size[at.j], &length);
    if (panels > most) panels = most;
    if (panels < 1) panels = 1;
    out->n_phases = parts > 1 ? 2 : 1;
    if (m > 0 && e > 0) out->tiles[0] = by_rows ? batches * parts : batches * ir_ceil_div(m, nr * panels);
    if (parts > 1) {
        out->tiles[1] = e > 0 && m > 0 ? batches : 0;
        out->shared_bytes = batches * parts * (m * e + 2 * lanes) * bytes;
    }
    const bool has_mask = find_attention(k)->variant & IR_ATTENTION_MASK, has_dot = ir_kernel_attention_dot(k);
    out->scratch_bytes = (kb * (d + e + nr) + nr + nr * (d > e ? d : e) + (has_mask ? 2 * kb * nr : 0) + has_dot * nr +
                          (ir_kernel_attention_splits(k) ? kb * e + nr * nr : 0) +
                          panels * nr * (d + e + 2 + has_dot)) *
                         bytes;
}

fusor_status ir_verify_attention(const ir_kernel *k, const uint32_t *varies, fu_error *e) {
    const ir_attention_dims at = ir_kernel_attention_dims(k);
    const int lanes = ir_levels[k->level].lanes;
    int found = 0;
#define REQUIRE(cond, what)                                                                                            \
    if (!(cond)) return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "an attention kernel: %s", what)
    REQUIRE(at.m >= 0 && at.n == at.m + 1 && at.k == at.m + 2 && at.j == at.m + 3,
            "needs dims m, n, k and j, in this order");
    REQUIRE((at.h < 0) == (at.g < 0) && (at.g < 0 || (at.g == at.j + 1 && at.h == at.m - 1)),
            "h is before m and g behind j, or neither is there");
    REQUIRE(k->n_dims == at.j + 1 + (at.g >= 0), "has dims behind the keys");
    const ir_tile own = ir_attention_tile(k->level, ir_kernel_attention_acc(k), ir_kernel_attention_dot(k));
    const bool is_gpu = ir_level_is_gpu(k->level);
    const bool is_own = k->tile.mr == own.mr && k->tile.nr == own.nr && k->tile.kb == own.kb;
    REQUIRE(is_gpu ? is_own
                   : k->tile.mr > 0 && k->tile.nr > 0 && k->tile.kb > 0 && k->tile.nr % lanes == 0 &&
                         k->tile.kb % k->tile.mr == 0 && lanes % k->tile.mr == 0 && k->tile.kb % lanes == 0,
            "has no tile of this level");
    const uint32_t m = 1u << at.m, n = 1u << at.n, d = 1u << at.k, j = 1u << at.j, g = at.g < 0 ? 0 : 1u << at.g;
    const uint32_t h = at.h < 0 ? 0 : 1u << at.h, b = (1u << (at.h < 0 ? at.m : at.h)) - 1;
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        if (in->op == IR_K_STORE)
            REQUIRE(k->buffer[in->index].stride[at.n] != 0 && (varies[in->in[0]] & (d | j | g)) == 0,
                    "a result does not vary along m and n alone");
        if (in->op != IR_OP_ATTENTION) continue;
        const uint32_t of[3] = {b | h | m | d, b | g | j | d, b | g | j | n};
        int at_in = 4;
        found++;
        REQUIRE(in->n_in == 4 + __builtin_popcount(in->variant & 15) && in->variant < 32, "wrong number of operands");
        for (int x = 0; x < 3; x++) {
            REQUIRE((varies[in->in[x]] & ~of[x]) == 0, "an operand varies along another's dim");
            REQUIRE(ir_is_float(k->inst[in->in[x]].dtype), "an operand is no float");
        }
        const ir_dtype acc = k->inst[in->in[3]].dtype;
        REQUIRE((acc == FUSOR_F32 || acc == FUSOR_F64) && varies[in->in[3]] == 0, "the scale is no f32 or f64");
        REQUIRE(is_gpu || k->tile.nr == own.nr, "has no tile of this level");
        if (in->variant & IR_ATTENTION_CAP) {
            REQUIRE(k->inst[in->in[at_in]].dtype == acc && varies[in->in[at_in]] == 0, "the cap is no scalar");
            at_in++;
        }
        if (in->variant & IR_ATTENTION_MASK) {
            const ir_dtype t = k->inst[in->in[at_in]].dtype;
            REQUIRE((ir_is_float(t) || ir_is_bool(t)) && (varies[in->in[at_in]] & ~(b | h | m | j)) == 0,
                    "a mask of the wrong kind");
            at_in++;
        }
        for (int x = at_in; x < in->n_in; x++)
            REQUIRE(k->inst[in->in[x]].dtype == FUSOR_I64 && varies[in->in[x]] == 0, "a bound of the keys is no i64");
    }
    REQUIRE(found == 1, "has exactly one attention");
#undef REQUIRE
    return FUSOR_OK;
}
