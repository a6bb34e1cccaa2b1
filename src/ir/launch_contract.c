/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* launch_contract.c: tiles and memory of a contraction's phases: one (direct), two, or three with a row program. The
 * generated code does the same arithmetic. */
#include "ir/arith.h"
#include "ir/kernel.h"

/* Dims of k beside the innermost. */
static int outer_k(const ir_kernel *k) {
    int n = 0;
    for (int d = 0; d < k->n_dims; d++) n += k->dim[d].role == 'j';
    return n;
}

ir_dtype ir_kernel_contract_acc(const ir_kernel *k) {
    const ir_kinst *mm = ir_kernel_matmul(k);
    return mm ? ir_contract_acc(k->inst[mm->in[0]].dtype, k->inst[mm->in[1]].dtype, mm->dtype) : FUSOR_F32;
}

ir_dot ir_kernel_contract_dot(const ir_kernel *k) {
    const ir_kinst *mm = ir_kernel_matmul(k);
    if (!mm) return IR_DOT_NONE;
    return ir_contract_dot(ir_kernel_target(k), k->inst[mm->in[0]].dtype, k->inst[mm->in[1]].dtype,
                           ir_kernel_contract_acc(k));
}

int64_t ir_kernel_contract_head_bytes(const ir_kernel *k) {
    int64_t bytes = ir_dtypes[ir_kernel_contract_acc(k)].bytes, lanes = ir_levels[k->level].lanes;
    int64_t rows = k->tile.mr > k->tile.nr ? k->tile.mr : k->tile.nr,
            tile = ir_round_up(k->tile.mr * k->tile.nr * bytes, 64);
    return tile + ir_round_up(rows * lanes * bytes, 64) + (ir_dot_is_tile(ir_kernel_contract_dot(k)) ? tile : 0) +
           (ir_kernel_has_rows(k) ? IR_ROW_SLOTS : 0);
}

int64_t ir_contract_part(const ir_kernel *k, const int64_t *tune, int64_t words) {
    const ir_dot dot = ir_kernel_contract_dot(k);
    const int64_t step = ir_dot_words(dot, 1), part = tune[IR_TUNE_CONTRACT_PART] / step * step;
    return ir_dot_is_tile(dot) && part >= step && part < words ? part : words;
}

int ir_contract_prefetched(const ir_kernel *k) {
    if (ir_kernel_has_rows(k)) return -1;
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        if (in->op == IR_K_STORE && !in->variant && k->buffer[in->index].stride[k->n_dims - 2] == 1) return in->index;
    }
    return -1;
}

int ir_kernel_last_columns(const ir_kernel *k, int64_t n) {
    enum { MOST_PANELS = 32 };
    if (k->kind != IR_KERNEL_CONTRACT || ir_level_is_gpu(k->level) || k->is_direct || k->tile.mr <= 1) return 0;
    if (n <= k->tile.nr || n > (int64_t)MOST_PANELS * k->tile.nr || ir_dot_is_tile(ir_kernel_contract_dot(k))) return 0;
    for (int d = 0; d < k->n_dims; d++)
        if (k->dim[d].role == 'y') return 0;
    return (int)ir_round_up(n % k->tile.nr, ir_levels[k->level].lanes) % k->tile.nr;
}

bool ir_kernel_contract_in_place(const ir_kernel *k) {
    const ir_kinst *mm = ir_kernel_matmul(k), *b = mm ? &k->inst[mm->in[1]] : NULL;
    int n = k->n_dims - 2;
    return b && n >= 0 && outer_k(k) <= 1 && b->op == IR_K_LOAD && !b->variant &&
           b->dtype == ir_kernel_contract_acc(k) && k->buffer[b->index].stride[n] == 1;
}

bool ir_kernel_can_sweep(const ir_kernel *k) {
    if (!ir_kernel_contract_in_place(k) || outer_k(k) || k->is_direct) return false;
    if (k->tile.mr <= 1 || k->tile.kb % IR_SWEPT_STEPS) return false;
    for (int d = 0; d < k->n_dims; d++)
        if (k->dim[d].role == 'y') return false;
    return !ir_level_is_gpu(k->level) && !ir_kernel_contract_dot(k);
}

bool ir_kernel_contract_a_in_place(const ir_kernel *k) {
    const ir_kinst *mm = ir_kernel_matmul(k), *a = mm ? &k->inst[mm->in[0]] : NULL;
    if (!a || a->op != IR_K_LOAD || a->variant || outer_k(k) > 1) return false;
    /* Bytes are words as they lie where k is contiguous and one operand is unsigned already. */
    const ir_dot dot = ir_kernel_contract_dot(k);
    /* Rows of bf16, and of f16 that are cut, are read for what is in their head, and copied while they are. */
    if (ir_dot_is_tile(dot)) return !ir_dots[dot].heads[0] && k->buffer[a->index].stride[k->n_dims - 1] == 1;
    if (dot == IR_DOT_I8)
        return ir_is_signed(a->dtype) != ir_is_signed(k->inst[mm->in[1]].dtype) &&
               k->buffer[a->index].stride[k->n_dims - 1] == 1;
    return a->dtype == ir_kernel_contract_acc(k);
}

static bool is_known(int64_t stride) { return stride != IR_STRIDE_RUNTIME; }

bool ir_kernel_can_be_direct(const ir_kernel *k) {
    const ir_kinst *mm = ir_kernel_matmul(k), *a = mm ? &k->inst[mm->in[0]] : NULL,
                   *b = mm ? &k->inst[mm->in[1]] : NULL;
    int m = k->n_dims - 3, n = m + 1, kk = m + 2;
    if (!mm || m < 0 || k->dim[m].role != 'm' || k->dim[n].role != 'n' || (m > 0 && k->dim[m - 1].role != 'b'))
        return false;
    for (int d = m; d <= kk; d++)
        if (k->dim[d].size < 1 || k->dim[d].size > IR_BAKE_MAX) return false;
    if (!ir_kernel_contract_a_in_place(k) || ir_kernel_contract_dot(k)) return false;
    const int64_t *x = k->buffer[a->index].stride, *y = b->op == IR_K_LOAD ? k->buffer[b->index].stride : NULL;
    if (!is_known(x[m]) || !is_known(x[kk])) return false;
    if (ir_kernel_contract_in_place(k)) return is_known(y[kk]);
    /* Packed anew for each batch: only where each batch has its own. */
    uint32_t varies = ir_kernel_varies(k, mm->in[1]);
    for (int d = 0; d < m; d++)
        if (!(varies >> d & 1)) return false;
    return true;
}

bool ir_kernel_cuts_rows(const ir_kernel *k) {
    return k->is_direct && k->n_dims == 3 && k->dim[0].size >= 2 * k->tile.mr && !ir_kernel_has_rows(k) &&
           ir_kernel_contract_in_place(k);
}

/* block: rows of a block that goes on with them; -1: phase 2 makes them. */
static void launch_rows(const ir_kernel *k, const int64_t *tune, int64_t rows, int64_t n, int64_t block,
                        ir_launch *out) {
    out->n_phases = 3;
    out->scratch_bytes += ir_kernel_row_scratch_bytes(k, n);
    if (block >= 0) {
        out->scratch_bytes += ir_kernel_row_value_bytes(k, block, n);
        return;
    }
    out->tiles[2] = ir_ceil_div(rows, tune[IR_TUNE_CONTRACT_ROWS]);
    out->kept_bytes = ir_kernel_row_value_bytes(k, rows, n);
}

void ir_launch_contract(const ir_kernel *k, const int64_t *size, const int64_t *tune, ir_launch *out) {
    const ir_kinst *mm = ir_kernel_matmul(k);
    int64_t mr = k->tile.mr, nr = k->tile.nr, kb = k->tile.kb;
    if (!mm || mr < 1 || nr < 1 || kb < 1) return;
    int64_t m = 1, n = 1, kk = 1, batches = 1, b_batches = 1, n_outer = 1,
            bytes = ir_dtypes[ir_kernel_contract_acc(k)].bytes;
    uint32_t b_varies = ir_kernel_varies(k, mm->in[1]);
    for (int d = 0; d < k->n_dims; d++) {
        switch (k->dim[d].role) {
        case 'm': m = size[d]; break;
        case 'n': n = size[d]; break;
        case 'j':
        case 'k': kk *= size[d]; break;
        case 'y': n_outer *= size[d]; break;
        default:
            batches *= size[d];
            if (b_varies >> d & 1) b_batches *= size[d];
        }
    }
    if (k->is_direct) {
        out->n_phases = 1;
        out->tiles[0] = batches * (m > 0 && n > 0);
        if (ir_kernel_cuts_rows(k)) {
            const int64_t whole = m / mr * mr, rows = tune[IR_TUNE_CONTRACT_MC];
            out->tiles[0] = rows > whole ? 1 : whole / (rows < mr ? mr : rows);
        }
        out->scratch_bytes = ir_kernel_contract_head_bytes(k);
        if (!ir_kernel_contract_in_place(k))
            out->scratch_bytes += ir_round_up(ir_ceil_div(n, nr) * nr * kk * bytes, 64);
        if (ir_kernel_has_rows(k))
            out->scratch_bytes += ir_kernel_row_value_bytes(k, m, n) + ir_kernel_row_scratch_bytes(k, n);
        return;
    }
    /* Blocks are whole register tiles, at least one, and no larger than the output needs. */
    int64_t mp = ir_ceil_div(m, mr), np = n_outer * ir_ceil_div(n, nr);
    int64_t mc = tune[IR_TUNE_CONTRACT_MC] / mr, nc = tune[IR_TUNE_CONTRACT_NC] / nr;
    if (mc < 1) mc = 1;
    if (nc < 1) nc = 1;
    const bool has_rows = ir_kernel_has_rows(k), in_blocks = has_rows && !tune[IR_TUNE_CONTRACT_ROWS];
    if (in_blocks) nc = np;
    out->n_phases = 2;
    out->tiles[0] = b_batches * np; /* whatever M is: a packed operand may serve later calls */
    out->tiles[1] = batches * ir_ceil_div(mp, mc) *
                    (in_blocks ? 1 : ir_ceil_div(np, nc)); /* rows of no elements still have results */
    const ir_dot type = ir_kernel_contract_dot(k);
    const ir_dot_info *dot = &ir_dots[type];
    out->shared_bytes =
        b_batches * np * (ir_dot_words(type, kk) + dot->heads[1] * (kk > kb ? ir_ceil_div(kk, kb) : 1)) * nr * bytes;
    int64_t kc = ir_dot_words(type, kk < kb ? kk : kb);
    if (mc > mp) mc = mp;
    if (nc > np) nc = np;
    out->scratch_bytes = ir_kernel_contract_head_bytes(k);
    if (!tune[IR_TUNE_CONTRACT_A_IN_PLACE] || !ir_kernel_contract_a_in_place(k) || kk % dot->step)
        out->scratch_bytes +=
            ir_round_up((mc * mr * (kc + dot->heads[0]) + ir_levels[k->level].lanes * (mr + 1)) * bytes, 64);
    if (kk > kb) out->scratch_bytes += ir_round_up(mc * nc * mr * nr * bytes, 64);
    if (ir_contract_part(k, tune, kc) < kc) {
        const int64_t group = tune[IR_TUNE_CONTRACT_B] == IR_CONTRACT_B_PACKED ? tune[IR_TUNE_CONTRACT_GROUP] : 1;
        out->scratch_bytes += mc * (group < 1 ? 1 : group > nc ? nc : group) * mr * nr * bytes;
    }
    if (tune[IR_TUNE_CONTRACT_B] != IR_CONTRACT_B_PACKED) {
        out->scratch_bytes += ir_round_up((kc + dot->heads[1]) * nr * bytes, 64);
        out->tiles[0] = out->shared_bytes = 0;
    }
    if (tune[IR_TUNE_CONTRACT_B] == IR_CONTRACT_B_SWEPT && k->can_sweep && kk % IR_SWEPT_STEPS == 0)
        out->scratch_bytes += ir_round_up(mc * nc * mr * nr * bytes, 64);
    if (has_rows) launch_rows(k, tune, batches * m, n, in_blocks ? mc * mr : -1, out);
}
