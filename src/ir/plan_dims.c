/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_dims.c: in which order a kernel has the dims of its cluster: those that are one run in all that it reads and
 * writes become one, the one that vectors lie along is last, and sizes of 1 go. */
#include "base/small.h"
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
 * 2 to 4 elements, which are whole vectors and shuffles): one along which an input is contiguous, that which varies
 * along most dims (others are small beside it), else, for very few, the largest that is known; else the last one, `last`. (Elements of several tensors that take turns: their stores are
 * apart.) */
static int vector_dim(builder *b, int last) {
    enum { FEW = 8, VERY_FEW = 4, MANY = 16 };
    const ir_sizes *sz = b->p->g->sizes;
    int64_t n = 0, most = MANY - 1;
    int contiguous_dim = -1, varied = 0, largest = last;
    bool may_gather = false;
    if (ir_level_is_gpu(b->k->level) || last < 1 || !ir_size_is_const(sz, b->dim[last], &n) || n > FEW) return last;
    const int pixels = pixels_dim(b, last);
    if (pixels >= 0) return pixels;
    const bool is_very_few = n <= VERY_FEW;
    for (uint32_t i = 0; i < b->accesses.n; i++) {
        const access *a = &b->accesses.at[i];
        if (a->is_output) continue;
        may_gather = is_very_few;
        if (ir_size_is_const(sz, a->stride[last], &n) && n != 0 && n >= -1 && n <= 4) return last;
        int varies = 0;
        for (int d = 0; d <= last; d++) varies += a->stride[d] != b->zero && !ir_size_is(sz, b->dim[d], 1);
        for (int d = 0; d < last; d++)
            if (a->stride[d] == b->one && varies >= varied && !ir_size_is(sz, b->dim[d], 1) &&
                !(ir_size_is_const(sz, b->dim[d], &n) && n < MANY))
                contiguous_dim = d, varied = varies;
    }
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
            ir_size s = order[d] == MAX_SPACE - 1 ? b->zero : a->stride[order[d]];
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
        order[n - 1] == MAX_SPACE - 1 || order[n - 2] == MAX_SPACE - 1 ||
        !ir_size_is_const(sz, b->dim[order[n - 2]], &turns) || turns < 2 || turns > MOST)
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
        order[n - 1] == MAX_SPACE - 1 || order[n - 2] == MAX_SPACE - 1 ||
        !ir_size_is_const(sz, b->dim[order[n - 1]], &columns) || columns < 2 || columns >= 2 * level->lanes ||
        columns % level->lanes == 0 || (ir_size_is_const(sz, b->dim[order[n - 2]], &rows) && rows < GROUPED_ROWS))
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

void builder_order_dims(builder *b, ir_step *st) {
    const cluster *c = &b->p->clusters.at[b->c];
    ir_sizes *sz = b->p->g->sizes;
    ir_kernel *k = b->k;
    int order[MAX_SPACE + 1], n = 0;
    char role[MAX_SPACE + 1];
    bool contract = c->kind == CLUSTER_CONTRACT;
    if (k->kind == IR_KERNEL_MAP && !c->anchor && !ir_level_is_gpu(k->level)) merge_pixels(b);
#define TAKE(cond, r)                                                                                                  \
    for (int d = 0; d < b->space; d++)                                                                                 \
        if ((cond) && (contract && d >= c->rank - 2 ? true : !ir_size_is(sz, b->dim[d], 1)))                           \
            order[n] = d, role[n++] = (r);
    const bool has_subscripts = contract && ir_at(b->p->g, c->anchor)->op == IR_OP_EINSUM;
    if (has_subscripts) {
        n = plan_einsum_order(b, ir_at(b->p->g, c->anchor), order, role);
    } else if (contract) {
        TAKE(d < c->rank - 2, 'b')
        TAKE(d == c->rank - 2, 'm')
        TAKE(d == c->rank - 1, 'n')
        TAKE(d == c->rank, 'k')
    } else if (c->kind == CLUSTER_WINDOW) {
        n = plan_window_order(b, ir_at(b->p->g, c->anchor), order, role);
    } else if (c->kind == CLUSTER_ATTENTION) { /* queries, values, head size and keys are dims at size 1 too */
        const int heads =
            b->space == c->rank + 3 ? c->rank - 3 : c->rank - 2; /* from here on they have roles of their own */
        TAKE(d < heads, 'b')
        for (int d = heads; d < b->space; d++) order[n] = d, role[n++] = "hmnkjg"[d - (c->rank - 3)];
    } else if (c->kind == CLUSTER_REDUCE) {
        const int column = column_of(b, c);
        TAKE(!(c->reduced >> d & 1) && d != column, 'p')
        int before = n;
        TAKE(c->reduced >> d & 1, 'r')
        if (n == before) { /* every reduced size is 1, or there is no axis: one element is reduced */
            order[n] = MAX_SPACE - 1;
            role[n++] = 'r';
        }
        TAKE(d == column, 'v')
    } else if (c->kind == CLUSTER_SCAN) {
        const int column = column_of(b, c);
        TAKE(d != c->scanned && d != column, 'p')
        TAKE(d == c->scanned, 'r')
        TAKE(d == column, 'v')
    } else if (c->anchor && rows_of_scatter(b, (int)ir_at(b->p->g, c->anchor)->attr[0].integer) >= 0) {
        const int axis = (int)ir_at(b->p->g, c->anchor)->attr[0].integer;
        int run = rows_of_scatter(b, axis); /* with those before it that it is one run with */
        for (int d = run - 1; d > axis; d--) {
            if (ir_size_is(sz, b->dim[d], 1)) continue;
            if (!builder_mergeable(b, d, run)) break;
            run = d;
        }
        TAKE(d != axis && d < run, 'p')
        TAKE(d == axis, 'p')
        TAKE(d >= run, 'p')
    } else {
        int t = transposed_dim(b), last = b->space - 1;
        if (c->anchor)
            last = (int)ir_at(b->p->g, c->anchor)->attr[0].integer,
            t = MAX_SPACE; /* a scatter's axis is walked in order */
        else
            while (last > 0 && ir_size_is(sz, b->dim[last], 1)) last--;
        if (t >= 0 && !c->anchor) take_run(b, last, 1u << t); /* a scatter's t is past the space */
        const int along = c->anchor || t >= 0 ? last : vector_dim(b, last);
        if (along != last) last = along, t = MAX_SPACE;
        TAKE(d != t && (t < 0 || d != last), 'p') /* t past the space: last only moves to the end */
        TAKE(d == t, 't')
        TAKE(t >= 0 && d == last, 'p')
    }
#undef TAKE
    /* merge neighbours of one role, and a batch that only operand 0 has into the rows */
    for (int d = has_subscripts ? -1 : n - 2; d >= 0; d--) {
        bool same = role[d] == role[d + 1] && role[d] != 'v' && c->kind != CLUSTER_WINDOW;
        if (contract && role[d] == 'b' && role[d + 1] == 'm') same = true;
        if (role[d] == 'p' && role[d + 1] == 't') same = true;
        if (role[d] == 'r' && order[d] != MAX_SPACE - 1 && !(c->merged >> order[d] & 1)) same = false;
        if (!same || order[d] == MAX_SPACE - 1 || order[d + 1] == MAX_SPACE - 1 ||
            !builder_mergeable(b, order[d], order[d + 1]))
            continue;
        if (role[d] == 'b' && role[d + 1] == 'm' && ir_size_is(sz, b->dim[order[d + 1]], 1)) continue;
        b->dim[order[d + 1]] = ir_size_mul(sz, b->dim[order[d]], b->dim[order[d + 1]]);
        memmove(&order[d], &order[d + 1], (size_t)(n - d - 1) * sizeof *order);
        memmove(&role[d], &role[d + 1], (size_t)(n - d - 1));
        n--;
    }
    k->n_dims = n;
    const bool is_gpu = ir_level_is_gpu(k->level);
    const int64_t turns = turns_of(b, order, n), columns = columns_of_groups(b, order, n);
    int64_t row; /* of a reduction along short rows lanes are rows (jit/reduce_short.c) */
    const bool is_short = c->kind == CLUSTER_REDUCE && !is_gpu && n >= 2 && role[n - 1] == 'r' && role[n - 2] == 'p' &&
                          order[n - 1] != MAX_SPACE - 1 && ir_size_is_const(sz, b->dim[order[n - 1]], &row) &&
                          row <= IR_BAKE_MAX;
    st->dim = FU_NEW_N(b->p->arena, ir_size, n);
    st->stride = FU_NEW_N(b->p->arena, ir_size, n * k->n_buffers);
    for (int d = 0; d < n; d++) {
        ir_size size = order[d] == MAX_SPACE - 1 ? b->one : b->dim[order[d]];
        int64_t v = 0;
        /* On a GPU one length is as good as another, and an optimizer's maps of all parameters are one kernel. */
        bool bakes =
            (strchr("rnkw", role[d]) != NULL && !(k->kind == IR_KERNEL_ROW && c->column >= 0)) ||
            (k->kind == IR_KERNEL_MAP && d == n - 1 && !(is_gpu && n == 1) && !(n > 1 && role[n - 2] == 't')) ||
            (turns && d == n - 2);
        /* one row: tiles of work are columns (ir_window_cuts_rows) */
        const bool is_row =
            c->kind == CLUSTER_WINDOW && role[d] == 'y' && !is_gpu && !k->is_depthwise && ir_size_is(sz, size, 1);
        bakes = bakes && ir_size_is_const(sz, size, &v) &&
                (c->kind != CLUSTER_WINDOW || role[d] == 'k' || (role[d] == 'w' && v > 0) ||
                 (k->is_by_channel && v > 0 && k->tile.mr % ir_window_size(k, d, v) == 0) ||
                 (k->is_depthwise && v <= k->tile.nr && ir_levels[k->level].has_mask)) &&
                v <= (is_gpu && c->kind == CLUSTER_ATTENTION ? IR_GPU_ATTENTION_BAKE : IR_BAKE_MAX);
        k->dim[d] = (ir_kdim){role[d], is_row ? 1 : bakes ? v : IR_SIZE_RUNTIME};
        st->dim[d] = size;
        for (int i = 0; i < k->n_buffers; i++) {
            ir_size s = order[d] == MAX_SPACE - 1 ? b->zero : b->accesses.at[i].stride[order[d]];
            /* along the lanes, loads of every 2nd to 4th element, or backwards, are whole vectors and shuffles */
            bool spreads = d == n - 1 && !contract && c->kind != CLUSTER_ATTENTION && !k->buffer[i].is_output;
            spreads |= turns && d == n - 1;
            spreads |= is_short && d == n - 2 && !k->buffer[i].is_output;
            spreads |= role[d] == 'n' && i == b->window[1] && c->kind == CLUSTER_WINDOW;
            const int64_t most_back = k->kind == IR_KERNEL_MAP && !is_gpu ? -4 : -1;
            bool baked =
                ir_size_is_const(sz, s, &v) && (v == 0 || v == 1 || (columns && d == n - 2 && v == columns) ||
                                                (spreads && ((v >= most_back && v <= -1) || (v >= 2 && v <= 4))));
            k->buffer[i].stride[d] = baked ? v : IR_STRIDE_RUNTIME;
            st->stride[i * n + d] = s;
        }
    }
    for (int i = 0; i < k->n_insts; i++) {
        if (k->inst[i].op != IR_K_INDEX) continue;
        for (int d = 0; d < n; d++)
            if (order[d] == k->inst[i].index) {
                k->inst[i].index = (uint16_t)d;
                break;
            }
    }
    make_places(b, order);
}

/* Values of a pass that a later pass reads again are kept where a function makes them costly. (A row program's of the
 * first pass are read from the kept rows of the contraction.) */
void builder_mark_kept(ir_kernel *k) {
    uint32_t r = 0;
    for (int d = 0; d < k->n_dims; d++)
        if (k->dim[d].role == (k->kind == IR_KERNEL_CONTRACT ? 'n' : 'r')) r |= 1u << d;
    for (int i = 0; i < k->n_insts; i++) {
        uint16_t op = k->inst[i].op;
        if (op >= IR_OP_COUNT || !(ir_ops[op].flags & IR_COSTLY) || !(ir_kernel_varies(k, i) & r)) continue;
        int pass = ir_kernel_pass(k, i);
        if (k->kind == IR_KERNEL_CONTRACT && pass == 0) continue;
        for (int u = i + 1; u < k->n_insts && !k->inst[i].is_kept; u++) {
            if (ir_kernel_is_reduce_op(k->inst[u].op) || ir_kernel_pass(k, u) <= pass) continue;
            for (int j = 0; j < k->inst[u].n_in; j++)
                if (k->inst[u].in[j] == i) k->inst[i].is_kept = true;
        }
    }
}
