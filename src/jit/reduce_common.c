/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* reduce_common.c: data flow, addresses and accumulators of reduce and row kernels (reduce_common.h). */
#include "jit/reduce_common.h"
#include "jit/gpu.h"
#include <string.h>

/* ---- data flow ---- */
bool red_is_arg(const red *r, int j) { return ir_ops[r->k->inst[r->reduction[j]].op].kind == IR_KIND_ARGREDUCE; }
ir_dtype red_type(const red *r, int j) { return r->k->inst[r->k->inst[r->reduction[j]].in[0]].dtype; }

LLVMValueRef red_product(const red *r, int from, int to) {
    LLVMValueRef n = em_i64s(r->e, 1);
    for (int d = from; d < to; d++) n = red_advance(r->e, NULL, n, r->e->size[d]);
    return n;
}

fusor_status red_init(emit *e, fu_error *err, red **out) {
    const ir_kernel *k = e->k;
    red *r = FU_NEW(e->arena, red);
    r->e = e;
    r->k = k;
    r->v = ir_kernel_is_column(k) ? k->n_dims - 1 : -1;
    while (r->n_p < k->n_dims && k->dim[r->n_p].role == 'p') r->n_p++;
    r->r0 = r->n_p;
    r->last = k->n_dims - 1 - (r->v >= 0);
    r->along = r->v >= 0 ? r->v : r->last;
    if (r->last < r->r0)
        return FU_FAIL(err, FUSOR_ERROR_INTERNAL, "a %s kernel without a dim to reduce", ir_kernel_kind_names[k->kind]);
    for (int d = r->r0; d <= r->last; d++) r->r_mask |= 1u << d;
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *inst = &k->inst[i];
        r->varies[i] = ir_kernel_varies(k, i);
        r->pass[i] = ir_kernel_pass(k, i);
        r->has_access |= inst->op == IR_K_LOAD && inst->variant;
        if (inst->op == IR_K_STORE)
            for (int d = r->r0; d <= r->last; d++)
                if (k->buffer[inst->index].stride[d] != 0) r->is_element_store[i] = true;
        if (!ir_kernel_is_reduce_op(inst->op)) continue;
        ir_op op = (ir_op)inst->op;
        ir_dtype t = k->inst[inst->in[0]].dtype;
        bool is_arg = ir_ops[op].kind == IR_KIND_ARGREDUCE;
        if (is_arg ? inst->dtype != FUSOR_I64 || ir_is_bool(t)
                   : inst->dtype != t || !ir_has_lowering(ir_ops[op].combine, t))
            return FU_FAIL(err, FUSOR_ERROR_INTERNAL,
                           "kernel instruction %%%d: %s of %s giving %s is not a reduction of kernels", i,
                           ir_ops[op].name, ir_dtypes[t].name, ir_dtypes[inst->dtype].name);
        r->number[i] = r->n_reductions;
        r->reduction[r->n_reductions++] = i;
    }
    int block = r->v >= 0 ? IR_COLUMN_BLOCK : IR_REDUCE_BLOCK;
    LLVMValueRef padded = em_add(e, e->size[r->last], em_i64s(e, block - 1));
    r->rows = red_product(r, 0, r->n_p);
    r->blocks = em_lshr(e, padded, __builtin_ctz((unsigned)block));
    r->partials = red_advance(e, NULL, red_product(r, r->r0, r->last), r->blocks);
    r->columns = r->v >= 0 ? e->size[r->v] : em_i64s(e, 1);
    memcpy(r->root, e->base, sizeof r->root);
    *out = r;
    return FUSOR_OK;
}

/* ---- arithmetic on indices ---- */
bool red_constant(LLVMValueRef v, int64_t *out) {
    if (!LLVMIsAConstantInt(v)) return false;
    *out = LLVMConstIntGetSExtValue(v);
    return true;
}

LLVMValueRef red_advance(emit *e, LLVMValueRef base, LLVMValueRef index, LLVMValueRef stride) {
    int64_t i = -1, s = -1;
    red_constant(index, &i);
    red_constant(stride, &s);
    if (i == 0 || s == 0) return base ? base : em_i64s(e, 0);
    LLVMValueRef by = i == 1 ? stride : s == 1 ? index : em_mul(e, index, stride);
    return base ? em_add(e, base, by) : by;
}

/* Bit by bit, on a GPU, where numbers this large are rare: ptxas makes a 64-bit division a call, for which the whole
 * kernel needs up to twice the registers (gpu.c, gpu_wide_quotient). */
static LLVMValueRef wide_quotient(emit *e, LLVMValueRef a, LLVMValueRef b) {
    return ir_level_is_gpu(e->k->level) ? gpu_wide_quotient(e, a, b) : LLVMBuildUDiv(e->b, a, b, "");
}

/* A 64-bit division takes 40 to 90 cycles where a 32-bit one takes 25, and rows may be a few elements long. */
void red_divide(emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef *quotient_out, LLVMValueRef *rest_out) {
    int64_t n;
    if (red_constant(b, &n) && n <= 1) {
        *quotient_out = a;
        *rest_out = em_i64s(e, 0);
        return;
    }
    em_branch wide = em_if(e, em_icmp(e, LLVMIntUGT, em_or(e, a, b), em_i64s(e, UINT32_MAX)));
    LLVMValueRef q[2], by[2];
    q[0] = wide_quotient(e, a, b);
    wide.then = LLVMGetInsertBlock(e->b);
    em_else(e, &wide);
    q[1] = LLVMBuildUDiv(e->b, LLVMBuildTrunc(e->b, a, e->t_i32, ""), LLVMBuildTrunc(e->b, b, e->t_i32, ""), "");
    q[1] = LLVMBuildZExt(e->b, q[1], e->t_i64, "");
    em_endif(e, &wide);
    LLVMValueRef quotient = LLVMBuildPhi(e->b, e->t_i64, "");
    LLVMAddIncoming(quotient, q, (LLVMBasicBlockRef[]){wide.then, wide.other}, 2);
    by[0] = em_mul(e, quotient, b);
    *quotient_out = quotient;
    *rest_out = em_sub(e, a, by[0]);
}

LLVMValueRef red_lane_numbers(emit *e, LLVMTypeRef element, int from) {
    LLVMValueRef all[64];
    for (int i = 0; i < e->lanes; i++) all[i] = LLVMConstInt(element, (unsigned)(from + i), 0);
    return e->lanes == 1 ? all[0] : LLVMConstVector(all, (unsigned)e->lanes);
}

/* ---- rows and blocks ---- */
/* Indices along dims [from, to) of the row-major number n, and addresses `base` moved there. */
static void enter(red *r, int from, int to, LLVMValueRef n, LLVMValueRef *base) {
    emit *e = r->e;
    for (int d = to - 1; d >= from; d--) {
        if (d > from) red_divide(e, n, e->size[d], &n, &r->index[d]);
        else r->index[d] = n;
    }
    for (int b = 0; b < r->k->n_buffers; b++) {
        LLVMValueRef off = NULL;
        for (int d = from; d < to; d++) off = red_advance(e, off, r->index[d], e->stride[b][d]);
        base[b] = off ? em_gep(e, base[b], em_memory_type(e, r->k->buffer[b].dtype), off) : base[b];
    }
}

void red_enter_row(red *r, LLVMValueRef q) {
    memcpy(r->at_row, r->root, sizeof r->at_row);
    enter(r, 0, r->n_p, q, r->at_row);
    red_leave_block(r);
}

void red_enter_block(red *r, LLVMValueRef partial) {
    emit *e = r->e;
    int64_t block = r->v >= 0 ? IR_COLUMN_BLOCK : IR_REDUCE_BLOCK, only = 0;
    LLVMValueRef number = partial;
    r->partial = partial;
    r->outer = em_i64s(e, 0);
    if (r->r0 < r->last) red_divide(e, partial, r->blocks, &r->outer, &number);
    if (red_constant(r->blocks, &only) && only <= 1) number = em_i64s(e, 0);
    enter(r, r->r0, r->last, r->outer, e->base);
    r->begin = em_mul(e, number, em_i64s(e, block));
    r->end = em_min(e, em_add(e, r->begin, em_i64s(e, block)), e->size[r->last]);
}

void red_leave_block(red *r) { memcpy(r->e->base, r->at_row, sizeof r->at_row); }

LLVMValueRef red_load_value(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    red_at *at = user;
    red *r = at->r;
    if (inst->op == IR_K_INDEX) {
        LLVMValueRef n = inst->index == r->last ? at->i : inst->index == r->v ? at->c : r->index[inst->index];
        LLVMValueRef all = em_splat(e, n);
        return inst->index == r->along && e->lanes > 1 ? em_add(e, all, red_lane_numbers(e, e->t_i64, 0)) : all;
    }
    int b = inst->index;
    LLVMValueRef off = NULL;
    if (at->i) off = red_advance(e, off, at->i, e->stride[b][r->last]);
    if (at->c) off = red_advance(e, off, at->c, e->stride[b][r->v]);
    return em_load_value(e, v, inst, r->along, off ? off : em_i64s(e, 0), e->stride[b][r->along], at->mask);
}

/* ---- accumulators ---- */
static ir_op op_of(const red *r, int j) { return (ir_op)r->k->inst[r->reduction[j]].op; }
bool red_is_last(const red *r, int j) { return r->k->inst[r->reduction[j]].variant == 1; }

red_acc red_identity(red *r, int j, LLVMValueRef index) {
    return (red_acc){em_identity(r->e, op_of(r, j), red_type(r, j)), index};
}

/* The first of equals wins: an accumulator starts with the identity at its own first position, so an element equal to
 * the identity (-inf) needs no care, and one past the end loses each tie. The last wins: -1 loses each tie. */
LLVMValueRef red_no_index(red *r, int j, LLVMValueRef position) {
    return red_is_last(r, j) ? LLVMConstAllOnes(LLVMTypeOf(position)) : position;
}

/* b before a in the order of values that argmax or argmin looks for; a NaN is before all numbers. `ties`: or equal. */
static LLVMValueRef wins(red *r, int j, LLVMValueRef b, LLVMValueRef a, bool ties) {
    emit *e = r->e;
    ir_dtype t = red_type(r, j);
    bool max = op_of(r, j) == IR_OP_ARGMAX;
    if (!ir_is_float(t)) {
        LLVMIntPredicate s = max ? (ties ? LLVMIntSGE : LLVMIntSGT) : ties ? LLVMIntSLE : LLVMIntSLT;
        LLVMIntPredicate u = max ? (ties ? LLVMIntUGE : LLVMIntUGT) : ties ? LLVMIntULE : LLVMIntULT;
        return em_icmp(e, ir_is_signed(t) ? s : u, b, a);
    }
    /* true where either is a NaN; then it is b's that counts */
    LLVMRealPredicate p = max ? (ties ? LLVMRealUGE : LLVMRealUGT) : ties ? LLVMRealULE : LLVMRealULT;
    LLVMValueRef number = em_fcmp(e, LLVMRealORD, a, a);
    if (ties) number = em_or(e, number, em_fcmp(e, LLVMRealUNO, b, b));
    return em_and(e, em_fcmp(e, p, b, a), number);
}

static LLVMValueRef ties_of(red *r, int j, LLVMValueRef a, LLVMValueRef b) {
    emit *e = r->e;
    if (!ir_is_float(red_type(r, j))) return em_icmp(e, LLVMIntEQ, a, b);
    LLVMValueRef both = em_and(e, em_fcmp(e, LLVMRealUNO, a, a), em_fcmp(e, LLVMRealUNO, b, b));
    return em_or(e, em_fcmp(e, LLVMRealOEQ, a, b), both);
}

red_acc red_take(red *r, int j, red_acc acc, LLVMValueRef x, LLVMValueRef position, LLVMValueRef mask) {
    emit *e = r->e;
    if (!red_is_arg(r, j)) {
        LLVMValueRef next = em_combine(e, op_of(r, j), red_type(r, j), acc.value, x);
        return (red_acc){mask ? em_select(e, mask, next, acc.value) : next, NULL};
    }
    LLVMValueRef take = wins(r, j, x, acc.value, red_is_last(r, j)); /* positions only grow */
    if (mask) take = em_and(e, take, mask);
    return (red_acc){em_select(e, take, x, acc.value), em_select(e, take, position, acc.index)};
}

red_acc red_merge(red *r, int j, red_acc a, red_acc b) {
    emit *e = r->e;
    if (!red_is_arg(r, j)) return (red_acc){em_combine(e, op_of(r, j), red_type(r, j), a.value, b.value), NULL};
    LLVMValueRef order = em_icmp(e, red_is_last(r, j) ? LLVMIntSGT : LLVMIntSLT, b.index, a.index);
    LLVMValueRef take =
        em_or(e, wins(r, j, b.value, a.value, false), em_and(e, ties_of(r, j, a.value, b.value), order));
    return (red_acc){em_select(e, take, b.value, a.value), em_select(e, take, b.index, a.index)};
}

red_acc red_load(red *r, int j, LLVMValueRef at, LLVMValueRef index_at, ir_dtype index_type, LLVMValueRef mask) {
    ir_dtype t = red_type(r, j);
    red_acc acc = {em_load_ptr(r->e, t, at, mask, ir_dtypes[t].bytes), NULL};
    if (red_is_arg(r, j)) acc.index = em_load_ptr(r->e, index_type, index_at, mask, ir_dtypes[index_type].bytes);
    return acc;
}

void red_store(red *r, int j, red_acc acc, LLVMValueRef at, LLVMValueRef index_at, ir_dtype index_type,
               LLVMValueRef mask) {
    ir_dtype t = red_type(r, j);
    em_store_ptr(r->e, t, acc.value, at, mask, ir_dtypes[t].bytes);
    if (red_is_arg(r, j)) em_store_ptr(r->e, index_type, acc.index, index_at, mask, ir_dtypes[index_type].bytes);
}

static LLVMValueRef part(emit *e, LLVMValueRef v, int from, int n) {
    if (!v) return NULL;
    if (n == 1) return em_lane(e, v, from);
    LLVMValueRef index[64];
    for (int i = 0; i < n; i++) index[i] = LLVMConstInt(e->t_i32, (unsigned)(from + i), 0);
    return LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)), LLVMConstVector(index, (unsigned)n), "");
}

LLVMValueRef red_better(red *r, int j, LLVMValueRef a, LLVMValueRef b) {
    emit *e = r->e;
    ir_dtype t = red_type(r, j);
    bool max = op_of(r, j) == IR_OP_ARGMAX || ir_ops[op_of(r, j)].combine == IR_OP_MAXIMUM;
    if (ir_is_float(t)) return em_select(e, em_fcmp(e, max ? LLVMRealOGT : LLVMRealOLT, a, b), a, b);
    LLVMIntPredicate p = ir_is_signed(t) ? (max ? LLVMIntSGT : LLVMIntSLT) : max ? LLVMIntUGT : LLVMIntULT;
    return em_select(e, em_icmp(e, p, a, b), a, b);
}

bool red_sets_nans_apart(const red *r, int j) {
    const ir_op combine = ir_ops[op_of(r, j)].combine;
    return !red_is_arg(r, j) && ir_is_float(red_type(r, j)) && (combine == IR_OP_MAXIMUM || combine == IR_OP_MINIMUM);
}

/* Lanes of a mask register, or as wide as the elements. */
static LLVMTypeRef type_of_nans(red *r, LLVMValueRef x) {
    emit *e = r->e;
    if (e->level->has_mask || e->lanes == 1) return em_vec(e, e->t_i1);
    return em_vec(e, LLVMGetElementType(LLVMTypeOf(x)) == LLVMDoubleTypeInContext(e->ctx) ? e->t_i64 : e->t_i32);
}

static LLVMValueRef as_mask(red *r, LLVMValueRef nans) {
    LLVMTypeRef t = LLVMTypeOf(nans);
    return t == em_vec(r->e, r->e->t_i1) ? nans : em_icmp(r->e, LLVMIntNE, nans, LLVMConstNull(t));
}

static LLVMValueRef add_nans(red *r, LLVMValueRef nans, LLVMValueRef mask) {
    LLVMTypeRef t = LLVMTypeOf(nans);
    return em_or(r->e, nans, t == LLVMTypeOf(mask) ? mask : LLVMBuildSExt(r->e->b, mask, t, ""));
}

LLVMValueRef red_no_nans(red *r, int j) { return LLVMConstNull(type_of_nans(r, red_identity(r, j, NULL).value)); }

LLVMValueRef red_add_nans(red *r, LLVMValueRef nans, LLVMValueRef a, LLVMValueRef b) {
    return add_nans(r, nans, em_fcmp(r->e, LLVMRealUNO, a, b));
}

red_acc red_take_apart(red *r, int j, red_acc acc, LLVMValueRef x, LLVMValueRef mask, LLVMValueRef *nans) {
    emit *e = r->e;
    *nans = add_nans(r, *nans, em_and(e, em_fcmp(e, LLVMRealUNO, x, x), mask));
    return (red_acc){em_select(e, mask, red_better(r, j, acc.value, x), acc.value), NULL};
}

red_acc red_put_nans(red *r, int j, red_acc acc, LLVMValueRef nans) {
    emit *e = r->e;
    return (red_acc){em_select(e, as_mask(r, nans), em_const(e, red_type(r, j), __builtin_nan("")), acc.value), NULL};
}

static LLVMValueRef bits_of(emit *e, LLVMValueRef mask) {
    LLVMTypeRef t = LLVMIntTypeInContext(e->ctx, (unsigned)e->lanes);
    return LLVMBuildZExt(e->b, LLVMBuildBitCast(e->b, mask, t, ""), e->t_i32, "");
}

/* The extreme value of the lanes, by halves; lanes from `elements` on hold the identity. */
static LLVMValueRef extreme_lane(red *r, int j, LLVMValueRef x, int64_t elements) {
    emit *e = r->e;
    const int lanes = e->lanes;
    for (int n = lanes / 2; n >= 1; n /= 2) {
        e->lanes = n;
        x = n < elements ? red_better(r, j, part(e, x, 0, n), part(e, x, n, n)) : part(e, x, 0, n);
    }
    e->lanes = lanes;
    return x;
}

LLVMValueRef red_extreme_lane(red *r, int j, LLVMValueRef x) { return extreme_lane(r, j, x, r->e->lanes); }

/* The extreme value of the lanes; a NaN where one of `nans` is set: asked once, beside the chain of maxima.
 * Of +0 and -0 the second wins, as in the operator. */
static LLVMValueRef extreme_of_lanes(red *r, int j, LLVMValueRef x, int64_t elements, LLVMValueRef nans) {
    emit *e = r->e;
    int lanes = e->lanes;
    LLVMValueRef m = extreme_lane(r, j, x, elements);
    LLVMValueRef any = em_icmp(e, LLVMIntNE, bits_of(e, as_mask(r, nans)), LLVMConstInt(e->t_i32, 0, 0));
    e->lanes = 1;
    m = em_select(e, any, em_const(e, red_type(r, j), __builtin_nan("")), m);
    e->lanes = lanes;
    return m;
}

/* One accumulator of the lanes: the extreme value, then the first (last) index among the lanes that have it. */
static red_acc arg_of_lanes(red *r, int j, red_acc acc, int64_t elements) {
    emit *e = r->e;
    ir_dtype t = red_type(r, j);
    int lanes = e->lanes;
    LLVMValueRef nans = ir_is_float(t) ? em_fcmp(e, LLVMRealUNO, acc.value, acc.value) : NULL, is, index;
    LLVMValueRef m = nans ? extreme_of_lanes(r, j, acc.value, elements, nans) : extreme_lane(r, j, acc.value, elements);
    LLVMValueRef all = em_splat(e, m);
    is = nans ? em_or(e, nans, em_fcmp(e, LLVMRealOEQ, acc.value, all)) : em_icmp(e, LLVMIntEQ, acc.value, all);
    index = em_select(e, is, acc.index, em_int(e, FUSOR_I32, red_is_last(r, j) ? -1 : INT32_MAX));
    for (int n = lanes / 2; n >= 1; n /= 2) {
        LLVMValueRef low = part(e, index, 0, n), high = part(e, index, n, n);
        e->lanes = n;
        index = em_select(e, em_icmp(e, red_is_last(r, j) ? LLVMIntSGT : LLVMIntSLT, low, high), low, high);
    }
    e->lanes = lanes;
    return (red_acc){m, index};
}

/* Steps that would only combine with identities are left out: they change no bit (a sum is never -0: it began at +0).
 */
void red_fold(red *r, int j, red_acc *acc, LLVMValueRef nans, int64_t elements) {
    for (int h = IR_REDUCE_UNROLL / 2; h >= 1; h /= 2)
        for (int u = 0; u < h && (int64_t)(u + h) * r->e->lanes < elements; u++) {
            if (nans) acc[u].value = red_better(r, j, acc[u].value, acc[u + h].value);
            else acc[u] = red_merge(r, j, acc[u], acc[u + h]);
        }
}

red_acc red_halves(red *r, int j, red_acc *acc, LLVMValueRef nans, int64_t elements) {
    emit *e = r->e;
    int lanes = e->lanes;
    red_acc a[IR_REDUCE_UNROLL];
    memcpy(a, acc, sizeof a);
    red_fold(r, j, a, nans, elements);
    if (red_is_arg(r, j) && lanes > 1) return arg_of_lanes(r, j, a[0], elements);
    if (lanes > 1 && red_sets_nans_apart(r, j)) {
        if (!nans) nans = em_fcmp(e, LLVMRealUNO, a[0].value, a[0].value);
        return (red_acc){extreme_of_lanes(r, j, a[0].value, elements, nans), NULL};
    }
    for (int n = lanes / 2; n >= 1; n /= 2) {
        red_acc low = {part(e, a[0].value, 0, n), part(e, a[0].index, 0, n)};
        if (n < elements) {
            red_acc high = {part(e, a[0].value, n, n), part(e, a[0].index, n, n)};
            e->lanes = n;
            low = red_merge(r, j, low, high);
        }
        a[0] = low;
    }
    e->lanes = lanes;
    return a[0];
}

LLVMValueRef red_bits_below(emit *e, LLVMValueRef n) {
    return em_sub(e, LLVMBuildShl(e->b, em_i64s(e, 1), n, ""), em_i64s(e, 1));
}

LLVMValueRef red_mask_of(emit *e, LLVMValueRef left, LLVMValueRef bits, int u) {
    if (!e->level->has_mask) {
        LLVMValueRef all = em_splat(e, LLVMBuildTrunc(e->b, left, e->t_i32, ""));
        return em_icmp(e, LLVMIntSLT, red_lane_numbers(e, e->t_i32, u * e->lanes), all);
    }
    LLVMTypeRef narrow = LLVMIntTypeInContext(e->ctx, (unsigned)e->lanes);
    LLVMValueRef part = LLVMBuildTrunc(e->b, em_lshr(e, bits, u * e->lanes), narrow, "");
    return LLVMBuildBitCast(e->b, part, em_vec(e, e->t_i1), "");
}

LLVMValueRef red_no_nan(red *r, int j) { return em_int(r->e, FUSOR_I32, red_is_last(r, j) ? -1 : INT32_MAX); }

red_acc red_take_group(red *r, int j, red_acc acc, const LLVMValueRef *x, LLVMValueRef first, LLVMValueRef *nan) {
    emit *e = r->e;
    ir_dtype t = red_type(r, j);
    bool max = op_of(r, j) == IR_OP_ARGMAX, last = red_is_last(r, j);
    LLVMValueRef m[IR_REDUCE_UNROLL], any = NULL, take;
    memcpy(m, x, sizeof m);
    for (int h = IR_REDUCE_UNROLL / 2; h >= 1; h /= 2)
        for (int u = 0; u < h; u++) m[u] = red_better(r, j, m[u], m[u + h]);
    if (!ir_is_float(t)) {
        take = wins(r, j, m[0], acc.value, last);
    } else { /* m may be a number where a NaN is: its group is remembered, and nothing else counts */
        for (int u = 0; u < IR_REDUCE_UNROLL; u += 2) {
            LLVMValueRef either = em_fcmp(e, LLVMRealUNO, x[u], x[u + 1]);
            any = any ? em_or(e, any, either) : either;
        }
        LLVMValueRef earlier = em_min(e, first, *nan);
        *nan = em_select(e, any, last ? first : earlier, *nan);
        take = em_fcmp(e, max ? (last ? LLVMRealOGE : LLVMRealOGT) : last ? LLVMRealOLE : LLVMRealOLT, m[0], acc.value);
    }
    return (red_acc){red_better(r, j, m[0], acc.value), em_select(e, take, first, acc.index)};
}

red_acc red_with_nans(red *r, int j, red_acc acc, LLVMValueRef nan) {
    emit *e = r->e;
    if (!ir_is_float(red_type(r, j))) return acc;
    LLVMValueRef is = em_icmp(e, LLVMIntNE, nan, red_no_nan(r, j));
    return (red_acc){em_select(e, is, em_const(e, red_type(r, j), __builtin_nan("")), acc.value),
                     em_select(e, is, nan, acc.index)};
}

/* The lanes of x[] that are equal to `value` (NULL: that are NaN), one bit each. */
static LLVMValueRef bits_of_vectors(red *r, int j, const LLVMValueRef *x, int64_t elements, LLVMValueRef value) {
    emit *e = r->e;
    const bool is_float = ir_is_float(red_type(r, j));
    LLVMValueRef all = NULL;
    for (int64_t u = 0; u * e->lanes < elements; u++) {
        LLVMValueRef is = !value     ? em_fcmp(e, LLVMRealUNO, x[u], x[u])
                          : is_float ? em_fcmp(e, LLVMRealOEQ, x[u], value)
                                     : em_icmp(e, LLVMIntEQ, x[u], value);
        LLVMValueRef bits = LLVMBuildZExt(e->b, bits_of(e, is), e->t_i64, "");
        const int64_t at = u * e->lanes, left = elements - at;
        if (left < e->lanes) bits = em_and(e, bits, em_i64s(e, (1ll << left) - 1));
        all = at ? em_or(e, all, LLVMBuildShl(e->b, bits, em_i64s(e, at), "")) : bits;
    }
    return all;
}

red_acc red_find(red *r, int j, const LLVMValueRef *x, int64_t elements) {
    emit *e = r->e;
    ir_dtype t = red_type(r, j);
    const int lanes = e->lanes, vectors = (int)((elements + lanes - 1) / lanes);
    const int64_t left = elements - (int64_t)(vectors - 1) * lanes;
    LLVMValueRef v[RED_FIND_MAX];
    memcpy(v, x, (size_t)vectors * sizeof *v);
    if (left < lanes)
        v[vectors - 1] = em_select(e, em_mask(e, em_i64s(e, left)), x[vectors - 1], em_identity(e, op_of(r, j), t));
    for (int h = 1; h < vectors; h *= 2)
        for (int u = 0; u + h < vectors; u += 2 * h) v[u] = red_better(r, j, v[u], v[u + h]);
    LLVMValueRef m = extreme_lane(r, j, v[0], elements);
    LLVMValueRef found = bits_of_vectors(r, j, x, elements, em_splat(e, m));
    if (ir_is_float(t)) { /* the first NaN, if there is one */
        LLVMValueRef nans = bits_of_vectors(r, j, x, elements, NULL), any = em_icmp(e, LLVMIntNE, nans, em_i64s(e, 0));
        found = em_select(e, any, nans, found);
        int64_t parts = -1; /* m is a number where lanes before the last step were NaN: other blocks compare with it */
        if (!red_constant(r->partials, &parts) || parts != 1) {
            e->lanes = 1;
            m = em_select(e, any, em_const(e, t, __builtin_nan("")), m);
            e->lanes = lanes;
        }
    }
    const bool last = red_is_last(r, j);
    LLVMValueRef in[2] = {found, LLVMConstInt(e->t_i1, 1, 0)},
                 n = em_intrinsic(e, last ? "llvm.ctlz" : "llvm.cttz", 2, in);
    return (red_acc){m, LLVMBuildTrunc(e->b, last ? em_sub(e, em_i64s(e, 63), n) : n, e->t_i32, "")};
}

/* ---- partial results of the inner form ---- */
LLVMValueRef red_slot(emit *e, LLVMValueRef base, LLVMValueRef number) {
    return em_gep(e, base, e->t_i8, em_mul(e, number, em_i64s(e, IR_PARTIAL_BYTES)));
}

static LLVMValueRef index_of(emit *e, LLVMValueRef slot) { return em_gep(e, slot, e->t_i8, em_i64s(e, 8)); }

void red_store_partial(red *r, int j, red_acc acc, LLVMValueRef slot) {
    int lanes = r->e->lanes;
    r->e->lanes = 1;
    red_store(r, j, acc, slot, index_of(r->e, slot), FUSOR_I64, NULL);
    r->e->lanes = lanes;
}

LLVMValueRef red_tree(red *r, int j, LLVMValueRef slots) {
    emit *e = r->e;
    int lanes = e->lanes;
    int64_t n = -1;
    bool known = red_constant(r->partials, &n);
    e->lanes = 1;
    if (!known || n > 1) {
        em_loop by = em_for(e, em_i64s(e, 1), r->partials, em_i64s(e, 1));
        by.step = by.i; /* 1, 2, 4 ... */
        LLVMValueRef twice = em_add(e, by.i, by.i);
        em_loop l = em_for(e, em_i64s(e, 0), em_sub(e, r->partials, by.i), twice);
        LLVMValueRef at = red_slot(e, slots, l.i), other = red_slot(e, slots, em_add(e, l.i, by.i));
        red_acc a = red_load(r, j, at, index_of(e, at), FUSOR_I64, NULL);
        red_acc b = red_load(r, j, other, index_of(e, other), FUSOR_I64, NULL);
        red_store_partial(r, j, red_merge(r, j, a, b), at);
        em_end(e, &l);
        em_end(e, &by);
    }
    red_acc none = red_identity(r, j, em_i64s(e, 0)), some = none;
    LLVMValueRef result = red_is_arg(r, j) ? none.index : none.value;
    if (known && n > 0) {
        some = red_load(r, j, slots, index_of(e, slots), FUSOR_I64, NULL);
        result = red_is_arg(r, j) ? some.index : some.value;
    } else if (!known) { /* an empty reduction has no slot to read */
        em_branch any = em_if(e, em_icmp(e, LLVMIntSGT, r->partials, em_i64s(e, 0)));
        some = red_load(r, j, slots, index_of(e, slots), FUSOR_I64, NULL);
        em_endif(e, &any);
        LLVMValueRef phi = LLVMBuildPhi(e->b, LLVMTypeOf(result), ""),
                     taken = red_is_arg(r, j) ? some.index : some.value;
        LLVMAddIncoming(phi, (LLVMValueRef[]){taken, result}, (LLVMBasicBlockRef[]){any.then, any.other}, 2);
        result = phi;
    }
    e->lanes = lanes;
    return result;
}

/* ---- row-level results ---- */
void red_finish(red *r, em_values *v, const red_at *at) {
    emit *e = r->e;
    const ir_kernel *k = r->k;
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE && !r->is_element_store[i]) em_value(e, v, i);
    for (int i = 0; i < k->n_insts; i++) {
        if (k->inst[i].op != IR_K_STORE || r->is_element_store[i]) continue;
        int b = k->inst[i].index;
        LLVMValueRef off = at->c ? red_advance(e, NULL, at->c, e->stride[b][r->v]) : em_i64s(e, 0);
        em_store(e, b, em_value(e, v, i), off, e->stride[b][r->along], at->mask);
    }
}
