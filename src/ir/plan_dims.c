/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_dims.c: in which order a kernel has the dims of its cluster: those that are one run in all that it reads and
 * writes become one, the one that vectors lie along is last, and sizes of 1 go. */
#include "base/small.h"
#include "ir/arith.h"
#include "ir/gpu.h"
#include "ir/plan_builder.h"

enum { GROUPED_ROWS = 64 }; /* from which on rows of few columns go by groups (jit/map_rows.c) */

bool builder_mergeable(const builder *b, int x, int y) {
    ir_sizes *sz = b->p->g->sizes;
    for (uint32_t i = 0; i < b->accesses.n + b->indexes.n; i++) {
        const access *a = i < b->accesses.n ? &b->accesses.at[i] : &b->indexes.at[i - b->accesses.n];
        if (a->stride[x] != ir_size_mul(sz, a->stride[y], b->dim[y])) return false;
    }
    return true;
}

/* Of a dim with those outer to it that it is one run with: how many elements; those of a named size count as many. */
static int64_t run_length(const builder *b, int d) {
    const ir_sizes *sz = b->p->g->sizes;
    int64_t run = 1, n = 0;
    for (int outer = d - 1;; outer--) {
        if (!ir_size_is_const(sz, b->dim[d], &n)) return INT32_MAX;
        run = n < INT32_MAX && run * n < INT32_MAX ? run * n : INT32_MAX;
        while (outer >= 0 && ir_size_is(sz, b->dim[outer], 1)) outer--;
        if (outer < 0 || !builder_mergeable(b, outer, d)) return run;
        d = outer;
    }
}

/* MAP: do elements that follow one another along dim d go to so many pages, or so few sets of the first cache, that a
 * vector of them is stored slowly? Then blocks of few columns pay, too. (EPYC 9005, f32, 4x128x8x64 by 0 3 1 2 1750 us
 * by vectors along 64, 49 by blocks, 4x3x256x256 by 0 3 2 1 2600 and 390, by 3 2 1 0 6000 and 1350.) */
static bool is_crowded(const builder *b, int d, int64_t columns) {
    /* The sets of a way are a page; 8 to 12 ways. Blocks of fewer bytes (3 columns of u8: 220 and 266 us) lose to what
     * crowds sets, not to what touches as many pages. */
    enum { PAGE = IR_PAGE_BYTES, LINE = 64, WAYS = 8, FEWEST_BYTES = 12 };
    const ir_sizes *sz = b->p->g->sizes;
    int64_t n = 0, run = INT32_MAX;
    (void)ir_size_is_const(sz, b->dim[d], &run);
    for (uint32_t i = 0; i < b->accesses.n; i++) {
        const access *a = &b->accesses.at[i];
        const int64_t bytes = ir_dtypes[b->k->buffer[i].dtype].bytes;
        if (!a->is_output) continue;
        if (!ir_size_is_const(sz, a->stride[d], &n)) return true;
        if (n > INT32_MAX || n < -INT32_MAX) return true;
        const int64_t low = n * bytes & -(n * bytes), sets = low >= PAGE ? 1 : PAGE / (low > LINE ? low : LINE);
        if (n * bytes >= PAGE || (n * bytes >= LINE && run > WAYS * sets && columns * bytes >= FEWEST_BYTES))
            return true;
    }
    return false;
}

/* MAP: the dim along which inputs are contiguous that have the last dim's elements apart; -1: there is none. Where
 * either is short, blocks of both are no use, but of a few columns where the alternative is_crowded. */
static int transposed_dim(builder *b) {
    const ir_sizes *sz = b->p->g->sizes;
    /* A block of the vectors that there are; blocks under masks pay from here on (EPYC 9005, 1000 x 10: f32 3.6 us
     * without, 2.5 with them, u8 7 and 2.2; 10 x 1000: 5.1, 2.5, 14.4, 2.2). Fewer columns are mostly vector_dim's. */
    enum { SHORT = 16, FEW_COLUMNS = 9, FEWEST = 3, FEW_RUN = 8 };
    const bool has_mask = ir_levels[b->k->level].has_mask && !ir_level_is_gpu(b->k->level);
    int last = b->space - 1, found = -1;
    int64_t n = 0;
    while (last >= 0 && ir_size_is(sz, b->dim[last], 1)) last--;
    if (last < 1) return -1;
    const int64_t columns = run_length(b, last);
    const bool is_short = columns < (has_mask ? FEW_COLUMNS : SHORT);
    if (columns < FEWEST || (is_short && !has_mask)) return -1;
    for (uint32_t i = 0; i < b->accesses.n; i++) {
        const access *a = &b->accesses.at[i];
        if (a->is_output && a->stride[last] != b->one) return -1;
        if (a->is_output || ir_size_is_const(sz, a->stride[last], &n)) {
            if (a->is_output || (n >= -1 && n <= 4)) continue;
        }
        for (int d = 0; d < last; d++) {
            if (a->stride[d] != b->one || ir_size_is(sz, b->dim[d], 1) ||
                run_length(b, d) < (has_mask ? FEW_RUN : SHORT) || (is_short && !is_crowded(b, d, columns)))
                continue;
            if (found >= 0 && found != d) return -1;
            found = d;
        }
    }
    return found;
}

/* MAP on a CPU: where rows are pixels, of 2 to 4 elements, that are no run with the dim before them in all that is read,
 * but that are next to each other there or apart by a few elements: that dim. Vectors go along it, and rows take turns
 * in the outputs (jit/map.c). -1: it is not so. */
static int pixels_dim(const builder *b, int last) {
    enum { MOST = 4, MANY = 16 };
    const ir_sizes *sz = b->p->g->sizes;
    int64_t few = 0, n = 0;
    bool is_group = true;
    int d = last - 1;
    while (d > 0 && ir_size_is(sz, b->dim[d], 1)) d--;
    if (ir_level_is_gpu(b->k->level) || d < 0 || !ir_size_is_const(sz, b->dim[last], &few) || few > MOST ||
        (ir_size_is_const(sz, b->dim[d], &n) && n < MANY) || builder_mergeable(b, d, last))
        return -1;
    for (int i = 0; i < b->k->n_insts; i++) {
        const ir_kinst *in = &b->k->inst[i];
        if ((in->op == IR_K_LOAD && in->variant) || (in->op == IR_K_INDEX && in->index >= PLACE)) return -1;
        is_group &= in->op != IR_K_INDEX || (in->index != d && in->index != last);
    }
    for (uint32_t i = 0; i < b->accesses.n; i++) {
        const access *a = &b->accesses.at[i];
        int64_t along = 0;
        const bool is_near = ir_size_is_const(sz, a->stride[last], &n) && n >= -1 && n <= 1;
        if (!ir_size_is_const(sz, a->stride[d], &along) || (!is_near && along != 0) || along < -MOST || along > MOST ||
            (a->is_output && (n != 1 || along != few)))
            return -1;
        is_group &= is_near && ((n == 1 && along == few) || along == 0);
    }
    const bool is_short = ir_size_is_const(sz, b->dim[d], &n) && n < GROUPED_ROWS;
    return is_group && !is_short ? -1 : d; /* a group: columns_of_groups */
}

/* MAP on a CPU: the dim along which vectors go where the last one is of a few elements that its inputs have apart (not
 * 2 to 4 elements, which are whole vectors and shuffles; what has one element for each of the last dim does not count):
 * one along which an input is contiguous, that which varies along most dims (others are small beside it), else, for very
 * few, the largest that is known; else the last one, `last`. (Elements of several tensors that take turns: their stores
 * are apart.) */
static int vector_dim(builder *b, int last) {
    enum { FEW = 8, VERY_FEW = 4, MANY = 16 };
    const ir_sizes *sz = b->p->g->sizes;
    int64_t n = 0, most = MANY - 1;
    int contiguous_dim = -1, varied = 0, largest = last;
    bool may_gather = false, has_one_each = false, is_apart = false;
    if (ir_level_is_gpu(b->k->level) || last < 1 || !ir_size_is_const(sz, b->dim[last], &n) || n > FEW) return last;
    const int pixels = pixels_dim(b, last);
    if (pixels >= 0) return pixels;
    const bool is_very_few = n <= VERY_FEW, is_fewer = n < FEW;
    for (uint32_t i = 0; i < b->accesses.n; i++) {
        const access *a = &b->accesses.at[i];
        if (a->is_output) continue;
        int varies = 0;
        for (int d = 0; d <= last; d++) varies += a->stride[d] != b->zero && !ir_size_is(sz, b->dim[d], 1);
        const bool is_one_each = is_fewer && varies == 1 && a->stride[last] != b->zero; /* of the last dim alone */
        if (is_one_each) {
            has_one_each = true;
            continue;
        }
        may_gather = is_very_few;
        if (ir_size_is_const(sz, a->stride[last], &n) && n != 0 && n >= -1 && n <= 4) return last;
        for (int d = 0; d < last; d++)
            if (a->stride[d] == b->one && varies >= varied && !ir_size_is(sz, b->dim[d], 1) &&
                !(ir_size_is_const(sz, b->dim[d], &n) && n < MANY))
                contiguous_dim = d, varied = varies, is_apart = a->stride[last] != b->zero;
    }
    if (has_one_each && !is_very_few && !is_apart) return last; /* an outer sum: rows are written as they lie */
    for (int d = 0; d < last && may_gather; d++)
        if (ir_size_is_const(sz, b->dim[d], &n) && n > most) {
            most = n;
            largest = d;
        }
    return contiguous_dim >= 0 ? contiguous_dim : largest;
}

/* The sums that place() left open: over the kernel's dims, whose cluster dims are order[]. */
static void make_places(builder *b, const int *order) {
    ir_kernel *k = b->k;
    if (!b->places.n) return;
    int n = k->n_insts;
    ir_kinst *old = fu_dup(b->p->arena, k->inst, (size_t)n * sizeof *old);
    uint16_t *now = FU_NEW_N(b->p->arena, uint16_t, n);
    k->n_insts = 0;
    for (int i = 0; i < n; i++) {
        ir_kinst inst = old[i];
        for (int j = 0; j < inst.n_in; j++) inst.in[j] = now[inst.in[j]];
        if (inst.op != IR_K_INDEX || inst.index < PLACE) {
            if (k->n_insts == IR_KERNEL_MAX_INSTS) {
                builder_fail(b, "too many instructions in one kernel");
                return;
            }
            k->inst[k->n_insts] = inst; /* as it was: builder_inst would merge stores */
            now[i] = (uint16_t)k->n_insts++;
            continue;
        }
        const access *a = &b->places.at[inst.index - PLACE];
        int sum = -1;
        for (int d = 0; d < k->n_dims; d++) {
            ir_size s = order[d] == NO_DIM ? b->zero : a->stride[order[d]];
            if (s == b->zero) continue;
            ir_kinst x;
            memset(&x, 0, sizeof x);
            x.dtype = FUSOR_I64;
            x.op = IR_K_INDEX;
            x.index = (uint16_t)d;
            uint16_t term = builder_inst(b, x);
            x.index = 0;
            x.n_in = 2;
            if (s != b->one) {
                x.op = IR_OP_MUL;
                x.in[0] = term;
                x.in[1] = builder_scalar(b, (ir_plan_scalar){.dtype = FUSOR_I64, .kind = IR_SCALAR_SIZE, .size = s});
                term = builder_inst(b, x);
            }
            x.op = IR_OP_ADD;
            x.in[0] = (uint16_t)sum;
            x.in[1] = term;
            sum = sum < 0 ? term : builder_inst(b, x);
        }
        now[i] = sum >= 0 ? (uint16_t)sum : builder_scalar(b, (ir_plan_scalar){.dtype = FUSOR_I64});
    }
    for (int i = 0; i < k->n_axes; i++) k->axis[i].size = now[k->axis[i].size];
}

/* Is it an INDEX of dim d of the space? */
static bool is_index_of(const ir_kernel *k, int inst, int d) {
    return k->inst[inst].op == IR_K_INDEX && k->inst[inst].index == d;
}

/* Is it a comparison of the index along d with a size, which says the same of the elements of a run along d when both
 * are times their number? */
static bool is_bound(const builder *b, const ir_kinst *in, int d) {
    if ((in->op != IR_OP_GE && in->op != IR_OP_LT) || !is_index_of(b->k, in->in[0], d)) return false;
    const ir_kinst *to = &b->k->inst[in->in[1]];
    return to->op == IR_K_SCALAR && b->scalars.at[to->index].kind == IR_SCALAR_SIZE;
}

/* MAP on a CPU: where rows are pixels, a few elements that are one run with the dim before them in all that is read and
 * written, and that dim's index only says from where (pads and operands of concat), both are one dim. */
static void merge_pixels(builder *b) {
    enum { FEW = 16 };
    ir_sizes *sz = b->p->g->sizes;
    ir_kernel *k = b->k;
    int last = b->space - 1, d, bounds = 0;
    int64_t few = 0;
    while (last > 0 && ir_size_is(sz, b->dim[last], 1)) last--;
    for (d = last - 1; d > 0 && ir_size_is(sz, b->dim[d], 1);) d--;
    if (d < 0 || !ir_size_is_const(sz, b->dim[last], &few) || few > FEW) return;
    for (uint32_t i = 0; i < b->accesses.n + b->places.n; i++) {
        const access *a = i < b->accesses.n ? &b->accesses.at[i] : &b->places.at[i - b->accesses.n];
        if (a->stride[d] != ir_size_mul(sz, a->stride[last], b->dim[last])) return;
    }
    for (int i = 0; i < k->n_insts; i++) {
        if (is_index_of(k, i, last)) return;
        if (is_bound(b, &k->inst[i], d)) bounds++;
        else
            for (int j = 0; j < k->inst[i].n_in; j++)
                if (is_index_of(k, k->inst[i].in[j], d)) return;
    }
    if (!bounds || k->n_insts + bounds > IR_KERNEL_MAX_INSTS || k->n_scalars + bounds > IR_KERNEL_MAX_INSTS) return;
    const int n = k->n_insts;
    ir_kinst *old = fu_dup(b->p->arena, k->inst, (size_t)n * sizeof *old);
    uint16_t *now = FU_NEW_N(b->p->arena, uint16_t, n), *scaled = FU_NEW_N(b->p->arena, uint16_t, n); /* + 1 */
    bool *is_scaled = FU_NEW_N(b->p->arena, bool, n), *has_others = FU_NEW_N(b->p->arena, bool, n);
    for (int i = 0; i < n; i++) {
        is_scaled[i] = is_bound(b, &old[i], d);
        for (int j = 0; j < old[i].n_in && !is_scaled[i]; j++) has_others[old[i].in[j]] = true;
    }
    k->n_insts = 0;
    for (int i = 0; i < n; i++) {
        ir_kinst inst = old[i];
        const int bound = is_scaled[i] ? inst.in[1] : i;
        for (int j = 0; j < inst.n_in; j++) inst.in[j] = now[inst.in[j]];
        if (is_scaled[i] && !scaled[bound]) {
            ir_plan_scalar *was = &b->scalars.at[old[bound].index], times = *was;
            times.size = ir_size_mul(sz, was->size, b->dim[last]);
            scaled[bound] = now[bound] + 1;
            if (has_others[bound]) scaled[bound] = builder_scalar(b, times) + 1;
            else *was = times;
        }
        if (is_scaled[i]) inst.in[1] = scaled[bound] - 1;
        if (inst.op == IR_K_INDEX && inst.index == d) inst.index = (uint16_t)last;
        k->inst[k->n_insts] = inst; /* as it was: builder_inst would merge stores */
        now[i] = (uint16_t)k->n_insts++;
    }
    b->dim[last] = ir_size_mul(sz, b->dim[d], b->dim[last]);
    b->dim[d] = b->one; /* its strides are those of `last`, whose size it is part of now */
    for (uint32_t i = 0; i < b->indexes.n; i++) {
        ir_size *stride = b->indexes.at[i].stride;
        if (stride[d] == b->one) stride[last] = b->one, stride[d] = b->zero;
    }
}

/* Dims before `last`, down to one whose bit is in `stop`, from which on memory runs on to it in every buffer become
 * part of it: b->dim changes. */
static void take_run(builder *b, int last, uint32_t stop) {
    for (int d = last - 1; d >= 0 && !(stop >> d & 1); d--) {
        if (ir_size_is(b->p->g->sizes, b->dim[d], 1)) continue;
        if (!builder_mergeable(b, d, last)) break;
        b->dim[last] = ir_size_mul(b->p->g->sizes, b->dim[d], b->dim[last]);
        b->dim[d] = b->one; /* its strides are those of `last`, whose size it is part of now */
    }
}

/* Column form: the column, which takes in the dims before it that are one run with it. (Sums over the channels of
 * 8x64x32x32: 60 us, 21 as rows of 1024.) -1: inner form. */
static int column_of(builder *b, const cluster *c) {
    if (c->column >= 0) take_run(b, c->column, c->kind == CLUSTER_SCAN ? 1u << c->scanned : c->reduced);
    return c->column;
}

/* MAP on a CPU: of how many elements is the dim before the last, along which rows take turns in all outputs
 * (jit/map.c)? 0: they do not. */
static int64_t turns_of(const builder *b, const int *order, int n) {
    enum { MOST = 4 };
    const ir_sizes *sz = b->p->g->sizes;
    int64_t turns, apart;
    if (b->k->kind != IR_KERNEL_MAP || b->p->clusters.at[b->c].anchor || ir_level_is_gpu(b->k->level) || n < 2 ||
        order[n - 1] == NO_DIM || order[n - 2] == NO_DIM || !ir_size_is_const(sz, b->dim[order[n - 2]], &turns) ||
        turns < 2 || turns > MOST)
        return 0;
    for (uint32_t i = 0; i < b->accesses.n; i++) {
        const access *a = &b->accesses.at[i];
        if (a->is_output && (!ir_size_is(sz, a->stride[order[n - 2]], 1) ||
                             !ir_size_is_const(sz, a->stride[order[n - 1]], &apart) || apart != turns))
            return 0;
    }
    return turns;
}

/* MAP on a CPU: are many rows of a few columns, which no whole vectors have, one run in all that is written and read
 * but in what all of them share (jit/map_rows.c)? Their number of columns, which is baked as their stride, or 0. */
static int64_t columns_of_groups(const builder *b, const int *order, int n) {
    const ir_sizes *sz = b->p->g->sizes;
    const ir_level_info *level = &ir_levels[b->k->level];
    int64_t columns, rows, x, y;
    bool shares = false;
    if (b->k->kind != IR_KERNEL_MAP || b->p->clusters.at[b->c].anchor || ir_level_is_gpu(b->k->level) || n < 2 ||
        order[n - 1] == NO_DIM || order[n - 2] == NO_DIM || !ir_size_is_const(sz, b->dim[order[n - 1]], &columns) ||
        columns < 2 || columns >= 2 * level->lanes || columns % level->lanes == 0 ||
        (ir_size_is_const(sz, b->dim[order[n - 2]], &rows) && rows < GROUPED_ROWS))
        return 0;
    for (uint32_t i = 0; i < b->accesses.n; i++) {
        const access *a = &b->accesses.at[i];
        if (!ir_size_is_const(sz, a->stride[order[n - 1]], &x) || !ir_size_is_const(sz, a->stride[order[n - 2]], &y) ||
            ((x != 1 || y != columns) && (a->is_output || y != 0 || (x != 0 && x != 1))))
            return 0;
        shares |= x == 1 && y == 0;
    }
    return shares ? columns : 0;
}

/* Does what an instruction computes vary along cluster dim d? */
static bool varies_along(const builder *b, uint16_t inst, int d) {
    const ir_kinst *in = &b->k->inst[inst];
    if (in->op == IR_K_INDEX)
        return in->index < PLACE ? in->index == d : b->places.at[in->index - PLACE].stride[d] != b->zero;
    if (in->op == IR_K_LOAD && b->accesses.at[in->index].stride[d] != b->zero) return true;
    for (int i = 0; i < in->n_in; i++)
        if (varies_along(b, in->in[i], d)) return true;
    return false;
}

/* Scatter on a CPU: the last dim, where it is not the axis: rows of updates are stored one after the other, in vectors
 * where all elements of one go to one place along the axis. Else, and of a few columns that do not, -1. */
static int rows_of_scatter(const builder *b, int axis) {
    enum { FEW = 8 };
    const ir_sizes *sz = b->p->g->sizes;
    int last = b->space - 1;
    int64_t columns = FEW;
    while (last > axis && ir_size_is(sz, b->dim[last], 1)) last--;
    if (last <= axis || ir_size_is(sz, b->dim[axis], 1) || ir_level_is_gpu(b->k->level)) return -1;
    ir_size_is_const(sz, b->dim[last], &columns);
    for (int i = 0; i < b->k->n_insts && columns < FEW; i++) {
        const ir_kinst *in = &b->k->inst[i];
        if (in->op == IR_K_STORE && varies_along(b, in->in[1], last)) return -1;
    }
    return last;
}

/* ---- the kernel's dims ---- */
/* They are cluster dims, at[0..n), or NO_DIM, each with its role. */
typedef struct dim_order {
    int at[MAX_SPACE + 1], n;
    char role[MAX_SPACE + 1];
} dim_order;

static void put_dim(dim_order *o, int d, char role) {
    o->at[o->n] = d;
    o->role[o->n++] = role;
}

/* Those of the cluster dims first..past that have a bit in `mask` and more than one element. */
static void put_dims(const builder *b, dim_order *o, int first, int past, uint32_t mask, char role) {
    for (int d = first; d < past; d++)
        if (mask >> d & 1 && !ir_size_is(b->p->g->sizes, b->dim[d], 1)) put_dim(o, d, role);
}

static const uint32_t ALL_DIMS = UINT32_MAX;

/* Rows, columns and products of one element are dims at size 1 too. */
static void order_contract(builder *b, const cluster *c, dim_order *o) {
    put_dims(b, o, 0, c->rank - 2, ALL_DIMS, 'b');
    put_dim(o, c->rank - 2, 'm');
    put_dim(o, c->rank - 1, 'n');
    put_dim(o, c->rank, 'k');
}

/* Queries, values, head size and keys are dims at size 1 too. */
static void order_attention(builder *b, const cluster *c, dim_order *o) {
    const int heads =
        b->space == c->rank + 3 ? c->rank - 3 : c->rank - 2; /* from here on they have roles of their own */
    put_dims(b, o, 0, heads, ALL_DIMS, 'b');
    for (int d = heads; d < b->space; d++) put_dim(o, d, "hmnkjg"[d - (c->rank - 3)]);
}

/* Of reductions and scans. */
static void order_rows(builder *b, const cluster *c, dim_order *o) {
    const int column = column_of(b, c);
    const uint32_t along = c->kind == CLUSTER_SCAN ? 1u << c->scanned : c->reduced,
                   of_column = column < 0 ? 0 : 1u << column;
    put_dims(b, o, 0, b->space, ~along & ~of_column, 'p');
    const int n_rows = o->n;
    put_dims(b, o, 0, b->space, along, 'r');
    if (o->n == n_rows && c->kind == CLUSTER_REDUCE) /* every reduced size is 1, or there is no axis */
        put_dim(o, NO_DIM, 'r');
    put_dims(b, o, 0, b->space, of_column, 'v');
}

/* A scatter's axis is walked in order: last but for a run of columns, which are those before them that they are one
 * run with. */
static void order_scatter(builder *b, int axis, dim_order *o) {
    int run = rows_of_scatter(b, axis);
    if (run < 0) run = b->space;
    for (int d = run - 1; d > axis && run < b->space; d--) {
        if (ir_size_is(b->p->g->sizes, b->dim[d], 1)) continue;
        if (!builder_mergeable(b, d, run)) break;
        run = d;
    }
    put_dims(b, o, 0, run, ~(1u << axis), 'p');
    put_dims(b, o, axis, axis + 1, ALL_DIMS, 'p');
    put_dims(b, o, run, b->space, ALL_DIMS, 'p');
}

/* Vectors go along the last one; with a dim of role t they are blocks of both. */
static void order_map(builder *b, dim_order *o) {
    const int t = transposed_dim(b);
    int last = b->space - 1;
    while (last > 0 && ir_size_is(b->p->g->sizes, b->dim[last], 1)) last--;
    const int along = t >= 0 ? last : vector_dim(b, last);
    if (t >= 0) take_run(b, last, 1u << t);
    if (t < 0 && along == last) {
        put_dims(b, o, 0, b->space, ALL_DIMS, 'p');
        return;
    }
    put_dims(b, o, 0, b->space, ~(1u << along) & ~(t < 0 ? 0 : 1u << t), 'p');
    if (t >= 0) put_dims(b, o, t, t + 1, ALL_DIMS, 't');
    put_dims(b, o, along, along + 1, ALL_DIMS, 'p');
}

/* Neighbours of one role that are one run become one dim, and a batch that only operand 0 has becomes rows. */
static void merge_dims(builder *b, const cluster *c, dim_order *o) {
    ir_sizes *sz = b->p->g->sizes;
    for (int d = o->n - 2; d >= 0; d--) {
        const char role = o->role[d], next = o->role[d + 1];
        const bool is_batch = role == 'b' && next == 'm';
        bool same = role == next && role != 'v' && c->kind != CLUSTER_WINDOW;
        if ((c->kind == CLUSTER_CONTRACT && is_batch) || (role == 'p' && next == 't')) same = true;
        if (role == 'r' && o->at[d] != NO_DIM && !(c->merged >> o->at[d] & 1)) same = false;
        if (!same || o->at[d] == NO_DIM || o->at[d + 1] == NO_DIM || !builder_mergeable(b, o->at[d], o->at[d + 1]))
            continue;
        if (is_batch && ir_size_is(sz, b->dim[o->at[d + 1]], 1)) continue;
        b->dim[o->at[d + 1]] = ir_size_mul(sz, b->dim[o->at[d]], b->dim[o->at[d + 1]]);
        memmove(&o->at[d], &o->at[d + 1], (size_t)(o->n - d - 1) * sizeof *o->at);
        memmove(&o->role[d], &o->role[d + 1], (size_t)(o->n - d - 1));
        o->n--;
    }
}

/* What is baked in a kernel's code depends on these. */
typedef struct form {
    const cluster *c;
    const dim_order *o;
    int64_t turns, columns; /* turns_of, columns_of_groups */
    bool is_gpu, is_short;  /* rows are lanes (jit/reduce_short.c) */
} form;

static form form_of(const builder *b, const cluster *c, const dim_order *o) {
    const int n = o->n;
    int64_t row;
    form f = {c, o, turns_of(b, o->at, n), columns_of_groups(b, o->at, n), ir_level_is_gpu(b->k->level), false};
    f.is_short = c->kind == CLUSTER_REDUCE && !f.is_gpu && n >= 2 && o->role[n - 1] == 'r' && o->role[n - 2] == 'p' &&
                 o->at[n - 1] != NO_DIM && ir_size_is_const(b->p->g->sizes, b->dim[o->at[n - 1]], &row) &&
                 row <= IR_BAKE_MAX;
    return f;
}

/* The size of kernel dim d, as its code has it. */
static int64_t size_in_code(const builder *b, const form *f, int d, ir_size size) {
    const ir_kernel *k = b->k;
    const int n = f->o->n;
    const char role = f->o->role[d];
    const bool is_window = f->c->kind == CLUSTER_WINDOW, is_gpu = f->is_gpu;
    int64_t v = 0;
    if (k->kind == IR_KERNEL_REDUCE && role == 'v') { /* few columns: jit/reduce_column.c */
        const int most = is_gpu ? 0 : IR_COLUMN_VECTORS * ir_levels[k->level].lanes;
        return ir_size_is_const(b->p->g->sizes, size, &v) && v <= most ? v : IR_SIZE_RUNTIME;
    }
    /* one row: tiles of work are columns (ir_window_cuts_rows) */
    if (is_window && role == 'y' && !is_gpu && !k->is_depthwise && ir_size_is(b->p->g->sizes, size, 1)) return 1;
    /* On a GPU one length is as good as another, and an optimizer's maps of all parameters are one kernel. */
    const bool may_bake =
        (strchr("rnkw", role) != NULL && !(k->kind == IR_KERNEL_ROW && f->c->column >= 0)) ||
        (k->kind == IR_KERNEL_MAP && d == n - 1 && !(is_gpu && n == 1) && !(n > 1 && f->o->role[n - 2] == 't')) ||
        (f->turns && d == n - 2);
    if (!may_bake || !ir_size_is_const(b->p->g->sizes, size, &v)) return IR_SIZE_RUNTIME;
    if (is_window && role != 'k' && !(role == 'w' && v > 0) &&
        !(k->is_by_channel && v > 0 && k->tile.mr % ir_window_size(k, d, v) == 0) &&
        !(k->is_depthwise && v <= k->tile.nr && ir_levels[k->level].has_mask))
        return IR_SIZE_RUNTIME;
    return v <= (is_gpu && f->c->kind == CLUSTER_ATTENTION ? IR_GPU_ATTENTION_BAKE : IR_BAKE_MAX) ? v : IR_SIZE_RUNTIME;
}

/* The stride of a buffer along kernel dim d, as the code has it. */
static int64_t stride_in_code(const builder *b, const form *f, int buffer, int d, ir_size stride) {
    const ir_kernel *k = b->k;
    const int n = f->o->n;
    const bool is_last = d == n - 1, is_output = k->buffer[buffer].is_output, is_window = f->c->kind == CLUSTER_WINDOW;
    int64_t v = 0;
    if (!ir_size_is_const(b->p->g->sizes, stride, &v)) return IR_STRIDE_RUNTIME;
    if (v == 0 || v == 1 || (f->columns && d == n - 2 && v == f->columns)) return v;
    /* along the lanes, loads of every 2nd to 4th element, or backwards, are whole vectors and shuffles */
    const bool spreads = (is_last && f->c->kind != CLUSTER_CONTRACT && f->c->kind != CLUSTER_ATTENTION && !is_output) ||
                         (f->turns && is_last) || (f->is_short && d == n - 2 && !is_output) ||
                         (is_window && f->o->role[d] == 'n' && buffer == b->window[1]);
    const int64_t most_back = k->kind == IR_KERNEL_MAP && !f->is_gpu ? -4 : -1;
    return spreads && ((v >= most_back && v <= -1) || (v >= 2 && v <= 4)) ? v : IR_STRIDE_RUNTIME;
}

void builder_order_dims(builder *b, ir_step *st) {
    const cluster *c = &b->p->clusters.at[b->c];
    ir_kernel *k = b->k;
    dim_order o = {.n = 0};
    const bool has_subscripts = c->kind == CLUSTER_CONTRACT && ir_at(b->p->g, c->anchor)->op == IR_OP_EINSUM;
    if (k->kind == IR_KERNEL_MAP && !c->anchor && !ir_level_is_gpu(k->level)) merge_pixels(b);
    if (has_subscripts) o.n = plan_einsum_order(b, ir_at(b->p->g, c->anchor), o.at, o.role);
    else if (c->kind == CLUSTER_CONTRACT) order_contract(b, c, &o);
    else if (c->kind == CLUSTER_WINDOW) o.n = plan_window_order(b, ir_at(b->p->g, c->anchor), o.at, o.role);
    else if (c->kind == CLUSTER_ATTENTION) order_attention(b, c, &o);
    else if (c->kind == CLUSTER_REDUCE || c->kind == CLUSTER_SCAN) order_rows(b, c, &o);
    else if (c->anchor) order_scatter(b, (int)ir_at(b->p->g, c->anchor)->attr[0].integer, &o);
    else order_map(b, &o);
    if (!has_subscripts) merge_dims(b, c, &o);
    const form f = form_of(b, c, &o);
    const int n = k->n_dims = o.n;
    st->dim = FU_NEW_N(b->p->arena, ir_size, n);
    st->stride = FU_NEW_N(b->p->arena, ir_size, n * k->n_buffers);
    for (int d = 0; d < n; d++) {
        st->dim[d] = o.at[d] == NO_DIM ? b->one : b->dim[o.at[d]];
        k->dim[d] = (ir_kdim){o.role[d], size_in_code(b, &f, d, st->dim[d])};
        for (int i = 0; i < k->n_buffers; i++) {
            const ir_size s = o.at[d] == NO_DIM ? b->zero : b->accesses.at[i].stride[o.at[d]];
            k->buffer[i].stride[d] = stride_in_code(b, &f, i, d, s);
            st->stride[i * n + d] = s;
        }
    }
    for (int i = 0; i < k->n_insts; i++) {
        if (k->inst[i].op != IR_K_INDEX) continue;
        int d = 0;
        while (d < n && o.at[d] != k->inst[i].index) d++;
        if (d < n) k->inst[i].index = (uint16_t)d;
    }
    make_places(b, o.at);
}

/* Is a value computed, and rounded to a half? */
static bool is_rounded(const ir_kernel *k, int inst) {
    const ir_kinst *in = &k->inst[inst];
    if (in->op >= IR_OP_COUNT || ir_kernel_is_reduce_op(in->op)) return false;
    return ir_is_half(in->dtype) || (in->op == IR_OP_CAST && is_rounded(k, in->in[0]));
}

/* Values of a pass that a later pass reads again are kept where a function makes them costly, or, of rows that are not
 * known to be longer than caches hold, a rounding. (A row program's of the first pass are read from the kept rows of the contraction. x + z of bf16 and
 * its layer_norm, over making the sum in each pass, one core with AVX-512: rows of 64 0.84, 256 0.79, 4096 0.77, 65,536
 * 0.89, 400,000 1.22; softmax 0.92, 0.90, 0.81, 0.92, 1.18.) */
void builder_mark_kept(const builder *b, const ir_step *st) {
    enum { LONG = 1 << 17 };
    ir_kernel *k = b->k;
    uint32_t r = 0;
    int64_t length = 1, size;
    for (int d = 0; d < k->n_dims; d++) {
        if (k->dim[d].role != (k->kind == IR_KERNEL_CONTRACT ? 'n' : 'r')) continue;
        r |= 1u << d;
        if (ir_size_is_const(b->p->g->sizes, st->dim[d], &size)) length = ir_times(length, size);
    }
    const bool keeps_rounded = length <= LONG && !ir_level_is_gpu(k->level);
    for (int i = 0; i < k->n_insts; i++) {
        uint16_t op = k->inst[i].op;
        if (op >= IR_OP_COUNT || !(ir_kernel_varies(k, i) & r)) continue;
        if (!(ir_ops[op].flags & IR_COSTLY) && !(keeps_rounded && is_rounded(k, i))) continue;
        int pass = ir_kernel_pass(k, i);
        if (k->kind == IR_KERNEL_CONTRACT && pass == 0) continue;
        for (int u = i + 1; u < k->n_insts && !k->inst[i].is_kept; u++) {
            if (ir_kernel_is_reduce_op(k->inst[u].op) || ir_kernel_pass(k, u) <= pass) continue;
            for (int j = 0; j < k->inst[u].n_in; j++)
                if (k->inst[u].in[j] == i) k->inst[i].is_kept = true;
        }
    }
}
