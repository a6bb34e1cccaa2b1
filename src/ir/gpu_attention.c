/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_attention.c: the grid of attention on a GPU (jit/gpu_attention.c). A block of threads takes some queries, a part
 * of the keys and some columns of the values; where there are several parts, a second launch merges them. */
#include "base/small.h"
#include "ir/gpu_grid.h"

enum {
    BLOCKS_WANTED = 512,      /* some for each multiprocessor of the largest devices */
    FEW_BLOCKS_WANTED = 1024, /* of few queries, of which a multiprocessor holds more */
    PART_MIN = 256,           /* keys: fewer are not worth the results that are merged */
};

enum {
    LINE = 64 /* elements of 16 bits */,
    GROUP_QUERIES = 64,
    GROUP_HEAD = 128,     /* at most */
    FEW_SHARED = 36 << 10 /* bytes: jit/gpu_attention.c, lay_out */
};

int ir_gpu_attention_width(const ir_kernel *k) {
    const int64_t e = k->dim[ir_kernel_attention_dims(k).n].size;
    const int step = ir_kernel_attention_acc(k) == FUSOR_F64 ? 16 : 32;
    if (e == IR_SIZE_RUNTIME) return 2 * step;
    return e <= step ? step : e <= 2 * step ? 2 * step : 4 * step;
}

static const ir_kinst *attention_of(const ir_kernel *k) {
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_OP_ATTENTION) return &k->inst[i];
    return NULL;
}

static int shared_of(const ir_gpu_attention_group *g, bool has_mask) {
    const int queries = GROUP_QUERIES * g->groups, results = queries * g->width * 4;
    int bytes = 2 * (queries * g->head + 2 * g->keys * (g->head + g->width));
    if (has_mask) bytes += queries * (g->keys + 8) * 4;
    if (bytes < results) bytes = results;
    return bytes < FEW_SHARED ? FEW_SHARED : bytes;
}

/* A load of 16 bits that lies side by side along dim, a multiple of 16 bytes. */
static bool is_copied(const ir_kernel *k, int inst, int dim) {
    const ir_kinst *in = &k->inst[inst];
    const int64_t size = k->dim[dim].size;
    return in->op == IR_K_LOAD && !in->variant && k->buffer[in->index].dtype == in->dtype &&
           k->buffer[in->index].stride[dim] == 1 && size > 0 && size % 8 == 0;
}

bool ir_gpu_attention_mask_is_plain(const ir_kernel *k) {
    const ir_kinst *a = attention_of(k);
    const ir_attention_dims at = ir_kernel_attention_dims(k);
    if (!a || !(a->variant & IR_ATTENTION_MASK)) return true;
    const ir_kinst *mask = &k->inst[a->in[3 + 1 + !!(a->variant & IR_ATTENTION_CAP)]];
    return mask->op == IR_K_LOAD && !mask->variant && k->buffer[mask->index].dtype == mask->dtype &&
           k->buffer[mask->index].stride[at.j] == 1 && ir_dtypes[mask->dtype].bytes <= 4;
}

/* Queries, keys and values of one 16-bit type, that 16 bytes can be read of. */
static bool are_copied(const ir_kernel *k, const ir_kinst *a) {
    const ir_dtype t = k->inst[a->in[0]].dtype;
    const ir_attention_dims at = ir_kernel_attention_dims(k);
    if (!ir_is_half(t) || k->inst[a->in[1]].dtype != t || k->inst[a->in[2]].dtype != t) return false;
    return is_copied(k, a->in[0], at.k) && is_copied(k, a->in[1], at.k) && is_copied(k, a->in[2], at.n);
}

bool ir_gpu_attention_has_few(const ir_kernel *k) {
    const ir_kinst *a = attention_of(k);
    const ir_attention_dims at = ir_kernel_attention_dims(k);
    return a && ir_levels[k->level].cores && ir_kernel_attention_acc(k) == FUSOR_F32 && are_copied(k, a) &&
           k->dim[at.k].size <= GROUP_HEAD && k->dim[at.n].size <= GROUP_HEAD && ir_gpu_attention_mask_is_plain(k);
}

/* Measured on an H100 (bf16, 4096 keys of 128, causal: us): 192 queries and 64 keys 520, 128 and 128 keys 253. Of 2048
 * keys of 64: 128 queries and 64 keys, two blocks to a multiprocessor, 140; 128 keys, one block, 175; 64 queries and 64
 * keys, four blocks, 128: one has products while others make weights. */
bool ir_gpu_attention_group_of(const ir_kernel *k, ir_gpu_attention_group *out) {
    const ir_kinst *a = attention_of(k);
    if (!a || ir_levels[k->level].cores != IR_CORES_WGMMA || ir_kernel_attention_acc(k) != FUSOR_F32) return false;
    const int64_t head = k->dim[ir_kernel_attention_dims(k).k].size;
    if (!are_copied(k, a) || head > GROUP_HEAD) return false;
    const bool is_wide = ir_gpu_attention_width(k) > LINE,
               has_more = a->variant & (IR_ATTENTION_MASK | IR_ATTENTION_CAP);
    *out = (ir_gpu_attention_group){.groups = is_wide || has_more ? 2 : 1,
                                    .keys = is_wide && !has_more ? 128 : 64,
                                    .head = (int)ir_round_up(head, LINE),
                                    .width = is_wide ? 2 * LINE : LINE,
                                    .blocks = is_wide || has_more ? 1 : 4};
    out->shared_bytes = shared_of(out, !ir_gpu_attention_mask_is_plain(k));
    return true;
}

void ir_gpu_plan_attention(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out) {
    const ir_attention_dims at = ir_kernel_attention_dims(k);
    const int64_t m = size[at.m], e = size[at.n], keys = size[at.j];
    ir_gpu_attention_group g;
    const bool is_few = ir_gpu_attention_is_few(m, keys), has_groups = ir_gpu_attention_group_of(k, &g),
               is_group = has_groups && !is_few,
               is_shared = m <= IR_GPU_ATTENTION_FEW && keys <= IR_GPU_ATTENTION_KEYS && ir_gpu_attention_has_few(k);
    const int64_t of_block = is_few     ? IR_GPU_ATTENTION_FEW
                             : is_group ? g.groups * GROUP_QUERIES
                                        : IR_GPU_ATTENTION_QUERIES;
    const int64_t wanted = is_shared ? FEW_BLOCKS_WANTED : BLOCKS_WANTED;
    int64_t rows = ir_ceil_div(m, of_block), columns = ir_ceil_div(e, ir_gpu_attention_width(k));
    int64_t batches = 1, outer, units, parts = 1;
    for (int d = 0; d < at.m; d++) batches = ir_times(batches, size[d]);
    outer = batches;
    /* rows are queries of all heads that share keys */
    if (is_shared && at.g >= 0 && size[at.h] > 0 && size[at.g] > 0) {
        rows = ir_ceil_div(ir_times(m, size[at.h] / size[at.g]), of_block);
        outer = batches / size[at.h] * size[at.g];
    }
    units = ir_times(ir_times(outer, rows), columns);
    if (units > 0 && units < wanted) {
        parts = ir_ceil_div(wanted, units);
        if (parts > keys / PART_MIN) parts = keys / PART_MIN;
        if (parts < 1) parts = 1;
    }
    if (parts > 1) parts = ir_ceil_div(keys, ir_round_up(ir_ceil_div(keys, parts), k->tile.kb));
    out->chunks = parts;
    if (parts > 1) {
        const int64_t results = ir_times(ir_times(batches, m), ir_times(parts, e + 2));
        out->n_phases = 2;
        out->scratch_bytes = ir_times(results, ir_dtypes[ir_kernel_attention_acc(k)].bytes);
    }
    for (int p = 0; p < 2; p++) out->block[p][0] = IR_GPU_ATTENTION_THREADS;
    if (is_group) out->block[0][0] = (uint32_t)(g.groups * 4 * IR_GPU_WARP);
    if (has_groups) out->shared_bytes[0] = is_few ? FEW_SHARED : (uint32_t)g.shared_bytes;
    out->grid[0][0] = grid_at_most(ir_times(rows, parts), GRID_X_MAX);
    out->grid[0][1] = grid_at_most(columns, GRID_Y_MAX);
    out->grid[0][2] = grid_at_most(outer, GRID_Y_MAX);
    out->grid[1][0] =
        grid_at_most(ir_ceil_div(ir_times(ir_times(batches, m), e), IR_GPU_ATTENTION_THREADS), GRID_X_MAX);
}
