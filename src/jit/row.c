/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* row.c: row kernels: reductions and what uses their results per element (softmax, norms), one row a unit of work.
 *
 *   for each row of the tiles:
 *       for each pass: sweep the blocks of the row; combine the partial results; they are scalars of the passes behind
 *       row-level stores
 *
 * where the first pass over a row may come before the last one over the row before it.
 *
 * Rows of a few elements go several at once where that can be (reduce_short.c). Else a row that is known to fit one
 * masked vector stays in registers through all passes. That is the inner form; the column form: row_column.c. */
#include "jit/row.h"
#include <string.h>

void row_place_kept(row_passes *w, LLVMValueRef at, LLVMValueRef columns) {
    red *r = w->r;
    emit *e = r->e;
    LLVMValueRef length = red_advance(e, NULL, columns, red_product(r, r->r0, r->last + 1));
    for (int i = 0; i < r->k->n_insts; i++) {
        if (!r->k->inst[i].is_kept) continue;
        at = em_and(e, em_add(e, at, em_i64s(e, 63)), em_i64s(e, -64));
        w->place[i] = em_gep(e, e->scratch, e->t_i8, at);
        at = em_add(e, at, em_mul(e, length, em_i64s(e, ir_dtypes[r->k->inst[i].dtype].bytes)));
    }
}

/* Does a pass behind `pass` load elements? */
static bool loads_after(const row_passes *w, int pass) {
    for (int p = pass + 1; p < w->n; p++)
        for (int i = 0; i < w->r->k->n_insts && w->sweep[p]; i++)
            if (w->sweep[p]->is_needed[i] && !w->sweep[p]->is_seed[i] && w->r->k->inst[i].op == IR_K_LOAD) return true;
    return false;
}

/* The last pass that reads instruction i. */
static int last_use(const row_passes *w, int i) {
    int p = w->n - 1;
    while (p > 0 && !(w->sweep[p] && w->sweep[p]->is_needed[i])) p--;
    return p;
}

/* A kept value lies in the row of an output of its type that a later pass stores: the lines come while the value is
 * computed, and the last pass finds them. Not where a pass behind that one still reads the value, and not where later
 * passes load, for what they load may be the same memory.
 * (Softmax of 4096x1024 as C loops: 0.87 of the time with scratch; EPYC 9004, Zen 4.) */
static void find_kept_in_outputs(row_passes *w) {
    red *r = w->r;
    const ir_kernel *k = r->k;
    bool is_taken[IR_KERNEL_MAX_BUFFERS] = {false};
    for (int i = 0; i < k->n_insts; i++) {
        w->kept_in[i] = -1;
        if (!k->inst[i].is_kept || r->r0 != r->last || loads_after(w, r->pass[i])) continue;
        const int last = last_use(w, i);
        for (int s = 0; s < k->n_insts && w->kept_in[i] < 0; s++) {
            const int b = k->inst[s].index;
            if (k->inst[s].op != IR_K_STORE || !r->is_element_store[s]) continue;
            if (r->pass[s] <= r->pass[i] || r->pass[s] < last) continue;
            if (k->buffer[b].dtype != k->inst[i].dtype || k->buffer[b].stride[r->along] != 1 || is_taken[b]) continue;
            w->kept_in[i] = b;
            is_taken[b] = true;
        }
    }
}

/* The row entered. */
static void enter_kept_rows(row_passes *w) {
    for (int i = 0; i < w->r->k->n_insts; i++)
        w->kept[i] = w->kept_in[i] >= 0 ? w->r->at_row[w->kept_in[i]] : w->place[i];
}

static int last_pass(const row_passes *w) {
    int p = w->n - 1;
    while (p > 0 && !w->sweep[p]) p--;
    return p;
}

/* ---- prefetching ----
 * Between the first pass and the last one the row is in the first-level cache and memory has nothing to do. A pass
 * there prefetches the next row, whose first lines no prefetcher of pages would find, and for the row of an output that
 * no pass has touched. Where functions take the time: both from a page a row on; else one line for each of the row, the
 * next row's or, of long rows, the output's. Shorter rows are what prefetchers follow by themselves (softmax of
 * 8192x512, which writes in that pass: 1.3 of the time).
 * (Zen 5, time with it over without: log_softmax of 2000x2048 0.70, of 1024x4096 0.65, softmax 0.90, 0.80, layer_norm
 * of 4096x1024 0.8, of 1024x4096 0.75. In a cheap last pass, as loops in C: 0.96 to 1.05, so not there.) */
enum {
    AHEAD_MAX = 4,
    NEXT_KEPT_BYTES = 4096 + 1,
    NEXT_COSTLY_BYTES = 4096,
    NEXT_CHEAP_BYTES = 2048,
    OUT_CHEAP_BYTES = 8192 + 1
};

static bool is_contiguous(const red *r, int b) { return r->k->buffer[b].stride[r->last] == 1; }

/* Does the first pass read adjacent elements of input b that are others in the next row? */
static bool is_next_new(const row_passes *w, int b) {
    const red *r = w->r;
    const ir_kernel *k = r->k;
    if (!is_contiguous(r, b) || k->buffer[b].is_output || k->buffer[b].stride[r->n_p - 1] == 0) return false;
    for (int i = 0; i < k->n_insts; i++)
        if (w->sweep[0]->is_needed[i] && k->inst[i].op == IR_K_LOAD && k->inst[i].index == b && !k->inst[i].variant)
            return true;
    return false;
}

/* Is the row of output b first touched behind `pass`? */
static bool is_untouched(const row_passes *w, int b, int pass) {
    const red *r = w->r;
    const ir_kernel *k = r->k;
    bool is_stored = false;
    if (!is_contiguous(r, b)) return false;
    for (int i = 0; i < k->n_insts; i++) {
        if (k->inst[i].is_kept && w->kept_in[i] == b && r->pass[i] <= pass) return false;
        if (k->inst[i].op != IR_K_STORE || k->inst[i].index != b || !r->is_element_store[i]) continue;
        if (r->pass[i] <= pass) return false;
        is_stored = true;
    }
    return is_stored;
}

static LLVMValueRef has_bytes(const row_passes *w, int b, int at_least) {
    emit *e = w->r->e;
    const int bytes = ir_dtypes[w->r->k->buffer[b].dtype].bytes;
    return em_icmp(e, LLVMIntSGE, em_mul(e, e->size[w->r->last], em_i64s(e, bytes)), em_i64s(e, at_least));
}

static void find_ahead(row_passes *w, int pass) {
    red *r = w->r;
    emit *e = r->e;
    red_sweep *s = w->sweep[pass];
    int n_in = 0;
    if (pass == 0 || !w->sweep[0] || r->n_p == 0 || r->r0 != r->last) return;
    for (int p = 1; p < pass; p++)
        if (w->sweep[p]) return;
    if (pass == last_pass(w) && !s->is_costly) return;
    s->ahead = FU_NEW_N(e->arena, red_ahead, 2 * AHEAD_MAX);
    LLVMValueRef apart = em_i64s(e, 1); /* two rows at once: the next one is read right behind this pass */
    if (w->overlaps) apart = em_select(e, w->overlaps, em_i64s(e, 2), apart);
    for (int b = 0; b < r->k->n_buffers && n_in < AHEAD_MAX; b++) {
        if (!is_next_new(w, b)) continue;
        const ir_dtype t = r->k->buffer[b].dtype;
        LLVMValueRef next = em_gep(e, r->at_row[b], em_memory_type(e, t), em_mul(e, e->stride[b][r->n_p - 1], apart));
        if (n_in == 0)
            s->prefetches_ahead = has_bytes(w, b,
                                            !s->is_costly ? NEXT_CHEAP_BYTES
                                            : s->n_kept   ? NEXT_KEPT_BYTES
                                                          : NEXT_COSTLY_BYTES);
        s->ahead[n_in++] = (red_ahead){next, ir_dtypes[t].bytes};
    }
    s->n_ahead = n_in;
    for (int b = 0, n = 0; b < r->k->n_buffers && n < n_in; b++) {
        const int bytes = ir_dtypes[r->k->buffer[b].dtype].bytes;
        if (!is_untouched(w, b, pass) || s->ahead[n].bytes != bytes) continue;
        if (s->is_costly) {
            s->ahead[s->n_ahead++] = (red_ahead){r->at_row[b], bytes};
            continue;
        }
        LLVMValueRef is_long = has_bytes(w, b, OUT_CHEAP_BYTES);
        s->ahead[n].row = em_select(e, is_long, r->at_row[b], s->ahead[n].row);
        n++;
    }
}

/* ---- rows of any length ---- */
static void emit_pass(row_passes *w, red_sweep *s, em_values *values) {
    red *r = w->r;
    emit *e = r->e;
    LLVMValueRef slot[s->n_acc + 1], first[s->n_acc + 1];
    int64_t n = 0;
    bool one = red_constant(r->partials, &n) && n == 1;
    em_loop l = {0};
    red_sweep_row(s, values);
    if (!one) l = em_for(e, em_i64s(e, 0), r->partials, em_i64s(e, 1));
    for (int a = 0; a < s->n_acc; a++) {
        LLVMValueRef number = em_mul(e, em_i64s(e, s->acc[a]), r->partials);
        slot[a] = red_slot(e, e->scratch, one ? number : em_add(e, number, l.i));
    }
    red_enter_block(r, one ? em_i64s(e, 0) : l.i);
    red_sweep_block(s, values, slot);
    red_leave_block(r);
    if (!one) em_end(e, &l);
    for (int a = 0; a < s->n_acc; a++)
        first[a] = red_slot(e, e->scratch, em_mul(e, em_i64s(e, s->acc[a]), r->partials));
    for (int a = 0; a < s->n_acc; a++) values->at[r->reduction[s->acc[a]]] = red_result(s, a, values, first[a]);
}

/* Passes [from, to) over the row entered. */
static void emit_passes(row_passes *w, int from, int to, em_values *values) {
    for (int p = from; p < to; p++) {
        if (!w->sweep[p]) continue;
        find_ahead(w, p);
        emit_pass(w, w->sweep[p], values);
    }
}

static void emit_row(row_passes *w, LLVMValueRef q) {
    red_at at = {w->r, NULL, NULL, NULL};
    em_values values;
    em_values_init(&values, red_load_value, &at);
    red_enter_row(w->r, q);
    enter_kept_rows(w);
    emit_passes(w, 0, w->n, &values);
    red_finish(w->r, &values, &at);
}

/* ---- two rows at once ----
 * Behind each pass its partial results are added, and divided, one operation waiting for the other: in the first-level
 * cache as long as the pass over some hundred elements. So the first pass over the next row, where it only reads,
 * stands in front of the last one over this row: each has something to compute while the other's results are made. Of
 * cheap passes only rows of up to so many bytes, of two passes only where that is known: longer ones come from memory,
 * which takes all the time, and the first pass is twice in the code.
 * (Zen 5, time with it over without: softmax of 64x1024 0.87, of 4096x256 0.85, layer_norm of 4096x100 0.82, of
 * 1024x1024 0.87, at v3 of 1000x100 0.71, rms_norm there 0.65, at v4 0.93; of 2048x2048 it would be 1.2.) */
enum { OVERLAP_TWO_BYTES = 2048, OVERLAP_CHEAP_BYTES = 8192 };

static bool may_overlap(const row_passes *w) {
    const red_sweep *s = w->sweep[0];
    if (w->r->n_p == 0 || w->r->r0 != w->r->last || !s || s->n_acc == 0 || last_pass(w) == 0) return false;
    return s->n_stores + s->n_kept == 0 && !s->has_arg && !s->is_costly;
}

/* i1: are rows so short? By the widest elements. NULL: they are not, or it pays only where that is known. */
static LLVMValueRef is_overlapping(const row_passes *w) {
    const red *r = w->r;
    int passes = 0, widest = -1;
    for (int p = 1; p < w->n; p++) {
        if (!w->sweep[p]) continue;
        passes++;
        if (w->sweep[p]->is_costly) return LLVMConstInt(r->e->t_i1, 1, 0);
    }
    for (int b = 0; b < r->k->n_buffers; b++) {
        if (r->k->buffer[b].stride[r->last] == 0) continue;
        const int bytes = ir_dtypes[r->k->buffer[b].dtype].bytes;
        if (widest < 0 || bytes > ir_dtypes[r->k->buffer[widest].dtype].bytes) widest = b;
    }
    if (widest < 0) return NULL;
    LLVMValueRef is =
        LLVMBuildNot(r->e->b, has_bytes(w, widest, (passes > 1 ? OVERLAP_CHEAP_BYTES : OVERLAP_TWO_BYTES) + 1), "");
    int64_t known = 0;
    if (red_constant(is, &known) ? !known : passes < 2) return NULL;
    return is;
}

/* The first pass over row q, whose results go to w->results; the row entered stays so. */
static void first_pass(row_passes *w, LLVMValueRef q) {
    red *r = w->r;
    red_sweep *s = w->sweep[0];
    const red before = *r;
    red_at at = {r, NULL, NULL, NULL};
    em_values values;
    em_values_init(&values, red_load_value, &at);
    red_enter_row(r, q);
    emit_pass(w, s, &values);
    for (int a = 0; a < s->n_acc; a++) w->results[a] = values.at[r->reduction[s->acc[a]]];
    *r = before;
    red_leave_block(r);
}

static void first_pass_if(row_passes *w, LLVMValueRef is, LLVMValueRef q) {
    emit *e = w->r->e;
    const int n = w->sweep[0]->n_acc;
    LLVMValueRef other[n];
    memcpy(other, w->results, sizeof other);
    em_branch b = em_if(e, is);
    first_pass(w, q);
    LLVMBasicBlockRef then = LLVMGetInsertBlock(e->b);
    em_endif(e, &b);
    for (int a = 0; a < n; a++) w->results[a] = red_phi(e, w->results[a], then, other[a], b.other);
}

static void emit_overlapping(row_passes *w, LLVMValueRef begin, LLVMValueRef end) {
    red *r = w->r;
    emit *e = r->e;
    const red_sweep *s = w->sweep[0];
    const int last = last_pass(w);
    const bool always = LLVMIsConstant(w->overlaps);
    LLVMValueRef result[s->n_acc], one = em_i64s(e, 1);
    w->results = FU_NEW_N(e->arena, LLVMValueRef, s->n_acc);
    for (int a = 0; a < s->n_acc; a++)
        w->results[a] = em_identity(e, (ir_op)r->k->inst[r->reduction[s->acc[a]]].op, red_type(r, s->acc[a]));
    em_branch any = em_if(e, em_icmp(e, LLVMIntSLT, begin, end));
    if (always) first_pass(w, begin);
    em_loop l = em_for(e, begin, end, one);
    LLVMValueRef next = em_add(e, l.i, one);
    for (int a = 0; a < s->n_acc; a++) w->results[a] = result[a] = em_loop_phi(e, &l, w->results[a]);
    if (!always)
        first_pass_if(w, LLVMBuildNot(e->b, em_and(e, w->overlaps, em_icmp(e, LLVMIntSGT, l.i, begin)), ""), l.i);
    red_at at = {r, NULL, NULL, NULL};
    em_values values;
    em_values_init(&values, red_load_value, &at);
    for (int a = 0; a < s->n_acc; a++) values.at[r->reduction[s->acc[a]]] = w->results[a];
    red_enter_row(r, l.i);
    enter_kept_rows(w);
    emit_passes(w, 1, last, &values);
    if (always) first_pass(w, em_min(e, next, em_sub(e, end, one))); /* behind the last row that again, for nothing */
    else first_pass_if(w, em_and(e, w->overlaps, em_icmp(e, LLVMIntSLT, next, end)), next);
    emit_passes(w, last, w->n, &values);
    red_finish(r, &values, &at);
    for (int a = 0; a < s->n_acc; a++) em_loop_next(e, result[a], w->results[a]);
    em_end(e, &l);
    em_endif(e, &any);
}

/* ---- rows of one vector ---- */
static int64_t known_length(const red *r) {
    int64_t n;
    return r->r0 == r->last && red_constant(r->e->size[r->last], &n) ? n : INT64_MAX;
}

static LLVMValueRef load_or_reduce(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    red_at *at = user;
    red *r = at->r;
    if (!ir_kernel_is_reduce_op(inst->op)) return red_load_value(e, v, inst, user);
    int j = r->number[inst - r->k->inst];
    int64_t n = known_length(r);
    if (red_is_arg(r, j) && n > 0) {
        LLVMValueRef x = em_value(e, v, inst->in[0]), lane = red_find(r, j, &x, n).index;
        return em_splat(e, LLVMBuildZExt(e->b, lane, e->t_i64, ""));
    }
    LLVMValueRef position = red_is_arg(r, j) ? red_lane_numbers(e, e->t_i32, 0) : NULL;
    red_acc acc[IR_REDUCE_UNROLL] = {red_identity(r, j, position ? red_no_index(r, j, position) : NULL)};
    acc[0] = red_take(r, j, acc[0], em_value(e, v, inst->in[0]), position, at->mask);
    acc[0] = red_halves(r, j, acc, NULL, n);
    return em_splat(e, acc[0].index ? LLVMBuildSExt(e->b, acc[0].index, e->t_i64, "") : acc[0].value);
}

static void emit_one_vector(row_passes *w) {
    red *r = w->r;
    emit *e = r->e;
    const ir_kernel *k = r->k;
    int64_t n = known_length(r);
    em_values values;
    e->lanes = e->level->lanes;
    red_at at = {r, em_i64s(e, 0), NULL, n < e->lanes ? em_mask(e, em_i64s(e, n)) : NULL};
    em_values_init(&values, load_or_reduce, &at);
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE) em_value(e, &values, i);
    for (int i = 0; i < k->n_insts; i++) {
        if (k->inst[i].op != IR_K_STORE) continue;
        int b = k->inst[i].index;
        LLVMValueRef x = em_value(e, &values, i), step = e->stride[b][r->last];
        e->lanes = r->is_element_store[i] ? e->level->lanes : 1;
        em_store(e, b, e->lanes == 1 ? em_lane(e, x, 0) : x, em_i64s(e, 0), step, e->lanes == 1 ? NULL : at.mask);
        e->lanes = e->level->lanes;
    }
    e->lanes = 1;
}

/* ---- the kernel ---- */
fusor_status row_emit(emit *e, fu_error *err, LLVMValueRef begin, LLVMValueRef end) {
    row_passes *w = FU_NEW(e->arena, row_passes);
    FU_TRY(red_init(e, err, &w->r));
    red *r = w->r;
    if (r->v < 0) {
        end = em_min(e, end, r->rows);
        if (red_is_short(r)) {
            red_short_rows(r, begin, end);
            return FUSOR_OK;
        }
    }
    bool one_vector = r->v < 0 && known_length(r) <= e->level->lanes;
    if (!one_vector) {
        for (int i = 0; i < e->k->n_insts; i++)
            if (r->pass[i] >= w->n) w->n = r->pass[i] + 1;
        for (int p = 0; p < w->n; p++) {
            FU_TRY(red_sweep_new(r, p, w->kept, err, &w->sweep[p]));
            if (!w->sweep[p]) continue;
            w->sweep[p]->kept_step = w->step;
            if (w->sweep[p]->is_costly) e->is_optimized = true; /* a function's constants stay in registers */
        }
        find_kept_in_outputs(w);
    }
    if (r->v >= 0) {
        row_columns(w, begin, end);
        em_demote_nests(e);
        return FUSOR_OK;
    }
    if (!one_vector)
        row_place_kept(w, em_mul(e, r->partials, em_i64s(e, IR_PARTIAL_BYTES * r->n_reductions)), em_i64s(e, 1));
    if (!one_vector && may_overlap(w)) w->overlaps = is_overlapping(w);
    if (w->overlaps) {
        emit_overlapping(w, begin, end);
        em_demote_nests(e);
        return FUSOR_OK;
    }
    em_loop l = em_for(e, begin, end, em_i64s(e, 1));
    if (one_vector) {
        red_enter_row(r, l.i);
        emit_one_vector(w);
    } else {
        emit_row(w, l.i);
    }
    em_end(e, &l);
    em_demote_nests(e);
    return FUSOR_OK;
}

fusor_status jit_emit_row(emit *e, fu_error *err) {
    LLVMValueRef tile = e->tune[IR_TUNE_ROW_UNITS];
    return row_emit(e, err, em_mul(e, e->tile_begin, tile), em_mul(e, e->tile_end, tile));
}
