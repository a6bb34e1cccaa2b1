/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* map.c: element-wise kernels. The space is rows (all dims but the last) times columns (the last dim); a tile is a
 * block of both:
 *
 *   for each tile, for each row of it (map_rows.c):
 *       offsets of the row; values that do not vary along the columns, once
 *       for each run of the columns (map_runs.c; else one):
 *           if the call streams: a head that aligns the stores, vector steps with non-temporal stores
 *           vector steps; then a tail: masked vector steps where the level has masks; where not, vectors of the level's
 *           lanes if the steps were longer, then single elements
 *
 * A step has the level's lanes; more where all values are 8- or 16-bit integers, so that they fill a register.
 *
 * The main loop has no masks, for costly programs too: masked steps alone would halve the code, but stream from L3 at
 * 0.4 of the rate (gelu(x*w+b), 1e6 elements, Zen 5, `fusor bench --filter gelu`: 1.11 ms against 0.43).
 * All values of a step are computed before its first store, so an output may be the same memory as an input.
 *
 * Where rows of a small dim take turns in the outputs (elements of a row are its size apart), as many rows are one: a
 * vector of each, shuffled into each other, is that many vectors of contiguous stores.
 *
 * Random numbers of adjacent elements come four vectors at a time (random.c): a body of the main loop is that many
 * steps, and a head of up to three elements is peeled so that it starts at a whole group. */
#include "jit/map.h"
#include <string.h>

static bool is_one(LLVMValueRef v) { return LLVMIsAConstantInt(v) && LLVMConstIntGetSExtValue(v) == 1; }
static bool is_zero(LLVMValueRef v) { return LLVMIsAConstantInt(v) && LLVMConstIntGetSExtValue(v) == 0; }

LLVMValueRef map_advance(emit *e, LLVMValueRef base, LLVMValueRef index, LLVMValueRef stride) {
    if (is_zero(stride) || is_zero(index)) return base;
    LLVMValueRef by = is_one(stride) ? index : is_one(index) ? stride : em_mul(e, index, stride);
    return is_zero(base) ? by : em_add(e, base, by);
}

/* Does what this load is guarded by hold in lanes of the mask alone? */
static bool guard_has_mask(const emit *e, const map *m, const ir_kinst *inst) {
    if (!m->fixed || !m->is_fixed_masked || !(inst->variant & IR_LOAD_GUARD) || e->lanes == 1) return false;
    const int guard = inst->in[inst->n_in - 1];
    const ir_kinst *g = &e->k->inst[guard];
    if (m->fixed->at[guard]) return true;
    return g->op == IR_OP_AND && (m->fixed->at[g->in[0]] || m->fixed->at[g->in[1]]);
}

/* The first of two buffers that take turns in memory, of which `buffer` is one; -1: it is none. */
static int first_of_turns(const ir_kernel *k, int buffer) {
    if (k->buffer[buffer].behind) return k->buffer[buffer].behind - 1;
    for (int b = 0; b < k->n_buffers; b++)
        if (k->buffer[b].behind == buffer + 1) return buffer;
    return -1;
}

static bool has_behind(const ir_kernel *k) {
    for (int b = 0; b < k->n_buffers; b++)
        if (k->buffer[b].behind) return true;
    return false;
}

LLVMValueRef map_load(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    map *m = user;
    if (inst->op == IR_K_INDEX) {
        if (inst->index != m->last) return em_splat(e, m->index[inst->index]);
        LLVMValueRef lane[64];
        for (int i = 0; i < e->lanes; i++) lane[i] = em_i64s(e, i);
        if (e->lanes == 1) return m->column;
        return em_add(e, em_splat(e, m->column), LLVMConstVector(lane, (unsigned)e->lanes));
    }
    int b = inst->index;
    if (m->last < 0) return em_load_value(e, v, inst, -1, m->offset[b], em_i64s(e, 0), NULL);
    LLVMValueRef stride = e->stride[b][m->last];
    const int first = m->shares && e->lanes > 1 && (!m->mask || e->level->has_mask) ? first_of_turns(e->k, b) : -1;
    if (first >= 0)
        return em_load_turns(e, first, map_advance(e, m->offset[first], m->column, stride), b != first, m->mask);
    return em_load_value(e, v, inst, m->last, map_advance(e, m->offset[b], m->column, stride), stride,
                         guard_has_mask(e, m, inst) ? NULL : m->mask);
}

/* ---- one step: e->lanes columns from `column` on ---- */
/* Bytes of one store of a step. */
static int store_bytes(const emit *e, ir_dtype t) {
    int bytes = e->lanes * ir_dtypes[t].bytes;
    return bytes < e->level->vector_bytes ? bytes : e->level->vector_bytes;
}

static void store_streaming(emit *e, map *m, int b, LLVMValueRef value) {
    ir_dtype t = e->k->buffer[b].dtype;
    LLVMValueRef at = em_gep(e, e->base[b], em_memory_type(e, t), em_add(e, m->offset[b], m->column));
    LLVMValueRef store = LLVMBuildStore(e->b, em_to_memory(e, t, value), at);
    LLVMSetAlignment(store, (unsigned)store_bytes(e, t));
    LLVMMetadataRef one = LLVMValueAsMetadata(LLVMConstInt(e->t_i32, 1, 0));
    LLVMValueRef node = LLVMMetadataAsValue(e->ctx, LLVMMDNodeInContext2(e->ctx, &one, 1));
    LLVMSetMetadata(store, LLVMGetMDKindIDInContext(e->ctx, "nontemporal", 11), node);
}

void map_begin_step(emit *e, map *m, map_step *s, LLVMValueRef column, LLVMValueRef mask) {
    const ir_kernel *k = e->k;
    em_values_init(&s->v, map_load, m);
    em_values_init(&s->one, map_load, m);
    memcpy(s->v.at, e->lanes == m->lanes && m->lanes > 1 ? m->row_splat : m->row_scalar, sizeof s->v.at);
    for (int i = 0; i < k->n_insts && e->lanes > 1 && e->lanes < m->lanes; i++)
        if (s->v.at[i]) s->v.at[i] = em_splat(e, s->v.at[i]);
    memcpy(s->one.at, m->row_scalar, sizeof s->one.at);
    s->v.one = &s->one;
    for (int i = 0; i < k->n_insts && m->fixed; i++)
        if (m->fixed->at[i]) s->v.at[i] = m->fixed->at[i];
    m->column = s->column = column;
    m->mask = mask;
    for (int i = 0; i < k->n_insts && m->step_of_body >= 0; i++)
        if (m->random[i].at[0]) s->v.at[i] = m->random[i].at[m->step_of_body];
    if (m->runs) map_begin_sources(e, m, &s->v);
}

/* All that is stored, and where: a step of a scatter goes to one row. */
static void compute_step(emit *e, map_step *s) {
    const ir_kernel *k = e->k;
    for (int i = 0; i < k->n_insts; i++) {
        if (k->inst[i].op != IR_K_STORE) continue;
        em_value(e, &s->v, k->inst[i].in[0]);
        if (k->inst[i].n_in > 1) em_uniform(e, &s->v, k->inst[i].in[1]);
    }
}

void map_end_step(emit *e, map *m, map_step *s, bool is_streaming) {
    const ir_kernel *k = e->k;
    compute_step(e, s);
    m->column = s->column;
    for (int i = 0; i < k->n_insts; i++) {
        if (k->inst[i].op != IR_K_STORE) continue;
        int b = k->inst[i].index;
        LLVMValueRef value = em_value(e, &s->v, k->inst[i].in[0]);
        if (is_streaming) {
            store_streaming(e, m, b, value);
            continue;
        }
        LLVMValueRef stride = m->last >= 0 ? e->stride[b][m->last] : em_i64s(e, 1);
        LLVMValueRef off = map_advance(e, m->offset[b], m->column, stride);
        if (k->inst[i].variant & IR_STORE_OFFSET) off = em_add(e, off, em_uniform(e, &s->v, k->inst[i].in[1]));
        em_store(e, b, value, off, stride, m->mask);
    }
}

void map_emit_step(emit *e, map *m, LLVMValueRef column, LLVMValueRef mask, bool is_streaming) {
    map_step s;
    map_begin_step(e, m, &s, column, mask);
    map_end_step(e, m, &s, is_streaming);
}

/* ---- one row ---- */
/* Elements to pass before every output is aligned for whole-vector stores; *possible: they agree on it. */
static LLVMValueRef stream_head(emit *e, map *m, LLVMValueRef begin, LLVMValueRef *possible) {
    LLVMValueRef head = NULL;
    *possible = LLVMConstAllOnes(e->t_i1);
    for (int b = 0; b < e->k->n_buffers; b++) {
        if (!e->k->buffer[b].is_output) continue;
        int bytes = ir_dtypes[e->k->buffer[b].dtype].bytes;
        LLVMValueRef at =
            em_gep(e, e->base[b], em_memory_type(e, e->k->buffer[b].dtype), em_add(e, m->offset[b], begin));
        LLVMValueRef address = LLVMBuildPtrToInt(e->b, at, e->t_i64, "");
        LLVMValueRef past =
            em_and(e, em_sub(e, em_i64s(e, 0), address), em_i64s(e, store_bytes(e, e->k->buffer[b].dtype) - 1));
        LLVMValueRef n = em_lshr(e, past, __builtin_ctz((unsigned)bytes));
        if (head) *possible = em_and(e, *possible, em_icmp(e, LLVMIntEQ, head, n));
        else head = n;
    }
    return head;
}

/* ---- blocks of random numbers ---- */
static bool is_random(uint16_t op) { return op < IR_OP_COUNT && ir_ops[op].kind == IR_KIND_RANDOM; }

/* Is instruction i the column, plus what a row has one of? */
static bool counts_columns(const ir_kernel *k, const map *m, int i) {
    const ir_kinst *in = &k->inst[i];
    if (in->op == IR_K_INDEX) return in->index == m->last;
    if (in->op != IR_OP_ADD) return false;
    return (counts_columns(k, m, in->in[0]) && !map_varies_in_row(m, in->in[1])) ||
           (counts_columns(k, m, in->in[1]) && !map_varies_in_row(m, in->in[0]));
}

/* Its value at a column, as a scalar. */
static LLVMValueRef number_at(emit *e, const map *m, int i, LLVMValueRef column) {
    const ir_kinst *in = &e->k->inst[i];
    if (in->op == IR_K_INDEX) return column;
    const int counts = counts_columns(e->k, m, in->in[0]) && !map_varies_in_row(m, in->in[1]) ? 0 : 1;
    return em_add(e, number_at(e, m, in->in[counts], column), m->row_scalar[in->in[1 - counts]]);
}

static bool is_in_block(const ir_kernel *k, const map *m, int i) {
    return m->number >= 0 && is_random(k->inst[i].op) && k->inst[i].in[1] == m->number &&
           !map_varies_in_row(m, k->inst[i].in[0]);
}

static void find_blocks(emit *e, map *m) {
    const ir_kernel *k = e->k;
    m->number = m->step_of_body = -1;
    m->random = FU_NEW_N(e->arena, vectors, k->n_insts);
    if (e->lanes == 1) return;
    if (k->dim[m->last].size != IR_SIZE_RUNTIME && k->dim[m->last].size < EM_RANDOM_MAX * e->lanes) return;
    for (int i = 0; i < k->n_insts && m->number < 0; i++) {
        if (!is_random(k->inst[i].op) || map_varies_in_row(m, k->inst[i].in[0])) continue;
        if (counts_columns(k, m, k->inst[i].in[1])) m->number = k->inst[i].in[1];
    }
}

/* The vectors of a body that starts at `column`, a whole group's first element. */
static void emit_blocks(emit *e, map *m, LLVMValueRef column) {
    const ir_kernel *k = e->k;
    for (int i = 0; i < k->n_insts; i++) {
        if (!is_in_block(k, m, i)) continue;
        LLVMValueRef first = number_at(e, m, m->number, column);
        for (int u = 0; u < m->unroll;) {
            LLVMValueRef at = em_add(e, first, em_i64s(e, u * e->lanes));
            u += em_random_block(e, &k->inst[i], m->row_splat[k->inst[i].in[0]], at, m->random[i].at + u);
        }
    }
}

/* Stores come behind the loads of all steps of the body: a load whose address agrees with that of a store before it in
 * the low 12 bits waits for the store. */
static void emit_main_loop(emit *e, map *m, LLVMValueRef begin, LLVMValueRef end, bool is_streaming) {
    const bool has_blocks = m->number >= 0;
    map_step *steps = FU_NEW_N(e->arena, map_step, m->unroll);
    em_loop l = em_for(e, begin, end, em_i64s(e, m->unroll * e->lanes));
    if (has_blocks) emit_blocks(e, m, l.i);
    if (m->is_ordered) {
        for (int u = 0; u < m->unroll; u++) map_emit_step(e, m, em_add(e, l.i, em_i64s(e, u)), NULL, false);
        em_end(e, &l);
        return;
    }
    for (int u = 0; u < m->unroll; u++) {
        m->step_of_body = has_blocks ? u : -1;
        map_begin_step(e, m, &steps[u], u ? em_add(e, l.i, em_i64s(e, u * e->lanes)) : l.i, NULL);
        compute_step(e, &steps[u]);
    }
    m->step_of_body = -1;
    for (int u = 0; u < m->unroll; u++) map_end_step(e, m, &steps[u], is_streaming);
    em_end(e, &l);
}

/* Where the last whole body of those from `begin` on ends. */
static LLVMValueRef past_bodies(emit *e, const map *m, LLVMValueRef begin, LLVMValueRef end) {
    LLVMValueRef whole = em_and(e, em_sub(e, end, begin), em_i64s(e, -(int64_t)(m->unroll * e->lanes)));
    return em_add(e, begin, whole);
}

/* Columns begin..end with masks, or one by one. */
static void emit_few(emit *e, map *m, LLVMValueRef begin, LLVMValueRef end) {
    const int lanes = e->lanes;
    if (!e->level->has_mask) e->lanes = 1;
    em_loop l = em_for(e, begin, end, em_i64s(e, e->lanes));
    em_loop_is_rare(e, &l);
    map_emit_step(e, m, l.i, e->lanes > 1 ? em_mask(e, em_sub(e, end, l.i)) : NULL, false);
    em_end(e, &l);
    e->lanes = lanes;
}

/* Without masks: half a vector as a step, where what is computed is cheap and of whole words and the number of columns,
 * which is known, leaves as many (two elements at a time gained nothing); not where steps are single elements, as of
 * scatters. Returns where to go on. */
static LLVMValueRef emit_half(emit *e, map *m, LLVMValueRef at, LLVMValueRef end) {
    const ir_kernel *k = e->k;
    const int lanes = e->lanes, half = e->level->lanes / 2;
    const int64_t columns = m->last < 0 ? IR_SIZE_RUNTIME : k->dim[m->last].size;
    if (e->level->has_mask || half < 4 || lanes <= half || columns == IR_SIZE_RUNTIME || !(columns & half) ||
        m->is_costly || m->runs || m->number >= 0)
        return at;
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        const bool is_memory = in->op == IR_K_LOAD || in->op == IR_K_STORE;
        if (is_random(in->op) || (ir_dtypes[in->dtype].bytes < 4 && (is_memory || !ir_is_bool(in->dtype)))) return at;
    }
    e->lanes = half;
    LLVMValueRef past = em_add(e, at, em_i64s(e, half));
    LLVMValueRef to = em_select(e, em_icmp(e, LLVMIntSLE, past, end), past, at);
    em_loop once = em_for(e, at, to, em_i64s(e, half));
    map_emit_step(e, m, once.i, NULL, false);
    em_end(e, &once);
    e->lanes = lanes;
    return to;
}

/* Columns begin..end of a row. */
static void emit_segment(emit *e, map *m, LLVMValueRef begin, LLVMValueRef end, bool has_tail) {
    LLVMValueRef at = past_bodies(e, m, begin, end);
    emit_main_loop(e, m, begin, at, false);
    if (!has_tail) return;
    int lanes = e->lanes;
    if (!e->level->has_mask && (lanes > e->level->lanes || (m->runs && m->unroll > 1))) {
        e->lanes = e->level->lanes;
        LLVMValueRef to = em_add(e, at, em_and(e, em_sub(e, end, at), em_i64s(e, -(int64_t)e->lanes)));
        em_loop narrow = em_for(e, at, to, em_i64s(e, e->lanes));
        map_emit_step(e, m, narrow.i, NULL, false);
        em_end(e, &narrow);
        at = to;
    }
    e->lanes = lanes;
    emit_few(e, m, emit_half(e, m, at, end), end);
}

/* Whole bodies with non-temporal stores, where the call asks for them and outputs allow them. Returns where to go
 * on. */
static LLVMValueRef emit_stream(emit *e, map *m, LLVMValueRef begin, LLVMValueRef end) {
    LLVMValueRef possible, at[3] = {begin, begin};
    LLVMBasicBlockRef from[3];
    em_branch asked = em_if(e, em_icmp(e, LLVMIntNE, e->tune[IR_TUNE_MAP_STREAM], em_i64s(e, 0)));
    LLVMValueRef head = stream_head(e, m, begin, &possible), first = NULL;
    em_branch b = em_if(e, possible);
    first = em_add(e, begin, em_min(e, head, em_sub(e, end, begin)));
    emit_few(e, m, begin, first);
    at[2] = past_bodies(e, m, first, end);
    emit_main_loop(e, m, first, at[2], true);
    from[2] = LLVMGetInsertBlock(e->b);
    em_endif(e, &b);
    from[1] = b.other;
    LLVMValueRef inner = LLVMBuildPhi(e->b, e->t_i64, "");
    LLVMAddIncoming(inner, at + 1, from + 1, 2);
    from[1] = LLVMGetInsertBlock(e->b);
    at[1] = inner;
    em_endif(e, &asked);
    from[0] = asked.other;
    LLVMValueRef next = LLVMBuildPhi(e->b, e->t_i64, "");
    LLVMAddIncoming(next, at, from, 2);
    return next;
}

void map_emit_columns(emit *e, map *m, LLVMValueRef begin, LLVMValueRef end, bool has_tail) {
    if (m->last < 0) {
        map_emit_step(e, m, em_i64s(e, 0), NULL, false);
        return;
    }
    if (m->is_straight) {
        const int n = (int)e->k->dim[m->last].size;
        for (int at = 0; at < n; at += e->lanes) {
            m->fixed = m->steps + at / e->lanes;
            map_emit_step(e, m, em_i64s(e, at), n - at < e->lanes ? em_mask(e, em_i64s(e, n - at)) : NULL, false);
        }
        m->fixed = NULL;
        return;
    }
    if (m->number < 0) {
        emit_segment(e, m, m->has_stream ? emit_stream(e, m, begin, end) : begin, end, has_tail || m->has_stream);
        return;
    }
    /* Random numbers: to the next whole group; segment 0 is that, too short for a step, and left out where it is empty. */
    LLVMValueRef zero = em_i64s(e, 0), one = em_i64s(e, 1);
    LLVMValueRef head = em_and(e, em_sub(e, zero, number_at(e, m, m->number, begin)), em_i64s(e, EM_RANDOM_MAX - 1));
    LLVMValueRef middle = em_add(e, begin, em_min(e, head, em_sub(e, end, begin)));
    LLVMValueRef first = em_select(e, em_icmp(e, LLVMIntEQ, middle, begin), one, zero);
    em_loop l = em_for(e, first, em_i64s(e, 2), one);
    LLVMValueRef is_rest = em_icmp(e, LLVMIntNE, l.i, zero);
    emit_segment(e, m, em_select(e, is_rest, middle, begin), em_select(e, is_rest, end, middle), true);
    em_end(e, &l);
}

/* ---- rows that take turns ---- */
static int turns_of(const emit *e, const map *m) {
    enum { MOST = 4 };
    const ir_kernel *k = e->k;
    if (m->last < 1 || m->lanes == 1 || m->number >= 0 || m->is_costly || ir_kernel_is_scatter(k)) return 1;
    const int64_t n = k->dim[m->last - 1].size;
    if (n < 2 || n > MOST || k->slide.n) return 1;
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        if (in->op == IR_K_STORE && ((in->variant & IR_STORE_OFFSET) || k->buffer[in->index].stride[m->last] != n ||
                                     k->buffer[in->index].stride[m->last - 1] != 1))
            return 1;
    }
    return (int)n;
}

/* Lanes at most where single bytes take turns: v4 cannot shuffle those of 64 at once. (Channels of 224x224 pixels turned
 * around, time over that of 64 lanes, 32 and 16: of 2 0.56 and 0.73, of 3 0.50 and 0.49, of 4 1.46 and 1.24; 3 of 4 0.93
 * and 0.76. One core with AVX-512.) */
static int lanes_of_turns(int n) { return n == 2 ? 32 : n == 3 ? 16 : 64; }

/* Vector q of the elements of n vectors in turn. */
static LLVMValueRef in_turn(emit *e, LLVMValueRef *x, int n, int q) {
    LLVMValueRef y = x[0], index[64];
    for (int p = n == 2 ? 1 : 0; p < n; p++) { /* each shuffle puts in what is of x[p]; the first of two has both */
        for (int i = 0; i < e->lanes; i++) {
            const int at = q * e->lanes + i, lane = at / n;
            const int from = at % n == p ? e->lanes + lane : n == 2 ? lane : i;
            index[i] = LLVMConstInt(e->t_i32, (unsigned)from, 0);
        }
        y = LLVMBuildShuffleVector(e->b, y, x[p], LLVMConstVector(index, (unsigned)e->lanes), "");
    }
    return y;
}

/* A step of the rows. left: columns, for a step that may not be whole; else NULL. */
static void emit_turn_step(emit *e, map *rows, LLVMValueRef column, LLVMValueRef left) {
    enum { MOST = 4 };
    const ir_kernel *k = e->k;
    const int n = rows->turns;
    map_step *steps = FU_NEW_N(e->arena, map_step, n);
    for (int p = 0; p < n; p++) {
        map_begin_step(e, &rows[p], &steps[p], column, left ? em_mask(e, left) : NULL);
        for (int i = 0; i < k->n_insts; i++)
            if (k->inst[i].op == IR_K_STORE) em_value(e, &steps[p].v, k->inst[i].in[0]);
    }
    for (int i = 0; i < k->n_insts; i++) {
        if (k->inst[i].op != IR_K_STORE) continue;
        const int b = k->inst[i].index;
        LLVMValueRef x[MOST], at = em_add(e, rows->offset[b], em_mul(e, column, em_i64s(e, n)));
        for (int p = 0; p < n; p++) x[p] = em_value(e, &steps[p].v, k->inst[i].in[0]);
        for (int q = 0; q < n; q++) {
            LLVMValueRef before = em_i64s(e, q * e->lanes), mask = NULL;
            if (left) mask = em_mask(e, em_sub(e, em_mul(e, left, em_i64s(e, n)), before));
            em_store(e, b, in_turn(e, x, n, q), em_add(e, at, before), em_i64s(e, 1), mask);
        }
    }
}

void map_emit_turns(emit *e, map *m, LLVMValueRef begin, LLVMValueRef end) {
    map *rows = FU_NEW_N(e->arena, map, m->turns);
    const int lanes = e->lanes, y = m->last - 1;
    for (int p = 0; p < m->turns; p++) {
        rows[p] = *m;
        rows[p].rows.user = &rows[p];
        rows[p].index[y] = em_i64s(e, p);
        for (int b = 0; b < e->k->n_buffers; b++)
            rows[p].offset[b] = map_advance(e, m->offset[b], em_i64s(e, p), e->stride[b][y]);
        map_emit_row_values(e, &rows[p]);
    }
    LLVMValueRef at = em_add(e, begin, em_and(e, em_sub(e, end, begin), em_i64s(e, -(int64_t)lanes)));
    em_loop l = em_for(e, begin, at, em_i64s(e, lanes));
    emit_turn_step(e, rows, l.i, NULL);
    em_end(e, &l);
    if (!e->level->has_mask) e->lanes = 1;
    em_loop rest = em_for(e, at, end, em_i64s(e, e->lanes));
    if (e->lanes > 1) emit_turn_step(e, rows, rest.i, em_sub(e, end, rest.i));
    for (int p = 0; p < m->turns && e->lanes == 1; p++) map_emit_step(e, &rows[p], rest.i, NULL, false);
    em_end(e, &rest);
    e->lanes = lanes;
}

/* ---- the kernel ---- */
/* Non-temporal stores need whole aligned vectors, so contiguous outputs whose vectors are whole registers. */
static bool can_stream(const ir_kernel *k, int last, int lanes) {
    bool any = false;
    if (last < 0 || ir_levels[k->level].vector_bytes < 32) return false;
    if (k->dim[last].size != IR_SIZE_RUNTIME) return false; /* at most 64 columns */
    for (int b = 0; b < k->n_buffers; b++) {
        if (!k->buffer[b].is_output) continue;
        if (k->buffer[b].stride[last] != 1 || lanes * ir_dtypes[k->buffer[b].dtype].bytes < 16) return false;
        any = true;
    }
    return any;
}

/* May steps follow each other without a loop, with the conditions of columns as masks? Not where a masked load is of
 * elements that are apart: its masks are many. */
static bool can_be_straight(const emit *e, const map *m) {
    enum { STRAIGHT_STEPS = 4 };
    const ir_kernel *k = e->k;
    const int64_t columns = m->last > 0 ? k->dim[m->last].size : IR_SIZE_RUNTIME;
    if (columns == IR_SIZE_RUNTIME || columns > STRAIGHT_STEPS * e->lanes) return false;
    if (m->number >= 0 || m->is_costly || ir_kernel_is_scatter(k)) return false;
    const bool has_edge = columns % e->lanes != 0;
    if (has_edge && !e->level->has_mask) return false;
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        if (in->op != IR_K_LOAD || !(in->variant & IR_LOAD_GUARD)) continue;
        const int64_t stride = k->buffer[in->index].stride[m->last];
        if (stride != 0 && stride != 1 && map_varies_in_row(m, in->in[in->n_in - 1])) return false;
    }
    return true;
}

static bool may_have_runs(const emit *e, const map *m) {
    const ir_kernel *k = e->k;
    if (m->last < 0 || e->is_narrow || ir_kernel_is_scatter(k) || k->slide.n) return false;
    for (int i = 0; i < k->n_insts; i++)
        if (is_random(k->inst[i].op)) return false;
    return true;
}

/* Rows of few columns, no whole vectors, which go on from row to row in all that is written and read but in what all
 * rows of a line share: so many rows are one row of whole vectors (map_rows.c). 0: it is not so. */
static int group_of(const emit *e, const map *m) {
    enum { MANY = 256, SHARED = 3 }; /* elements; operands, of 4 KB at most */
    const ir_kernel *k = e->k;
    const int y = m->last - 1;
    int shared = 0;
    if (y < 0 || k->dim[m->last].size == IR_SIZE_RUNTIME || m->turns > 1 || m->runs || m->number >= 0 || k->slide.n ||
        m->lanes == 1 || ir_kernel_is_scatter(k))
        return 0;
    const int64_t columns = k->dim[m->last].size, group = m->lanes * columns;
    for (int b = 0; b < k->n_buffers; b++) {
        const ir_kbuffer *buffer = &k->buffer[b];
        if (buffer->stride[y] == columns && buffer->stride[m->last] == 1) continue;
        if (buffer->is_output || buffer->stride[y] != 0) return 0;
        if (buffer->stride[m->last] != 0 && buffer->stride[m->last] != 1) return 0; /* turned, or elements apart */
        shared += buffer->stride[m->last] == 1;
    }
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        if ((in->op == IR_K_INDEX && in->index >= y) || (in->op == IR_K_LOAD && in->variant) || is_random(in->op))
            return 0;
    }
    if (columns < 2 || columns % m->lanes == 0 || !shared || shared > SHARED) return 0;
    return (int)(m->lanes * (group < MANY ? MANY / group : 1));
}

/* How many lanes a step has, and what follows from what steps compute. */
static void measure(emit *e, map *m) {
    const ir_kernel *k = e->k;
    int n_ops = 0, bytes = 1; /* of the widest value in a register */
    m->is_costly = false;
    for (int i = 0; i < k->n_insts; i++) {
        if (m->runs && !m->runs->is_needed[i]) continue;
        int of_value = ir_is_half(k->inst[i].dtype) ? 4 : ir_dtypes[k->inst[i].dtype].bytes;
        if (of_value > bytes) bytes = of_value;
        if (k->inst[i].op >= IR_OP_COUNT || !map_varies_in_row(m, i)) continue;
        n_ops++;
        if (ir_ops[k->inst[i].op].flags & IR_COSTLY) m->is_costly = true;
    }
    m->is_ordered = ir_kernel_is_scatter(k) && !ir_kernel_scatters_rows(k);
    e->lanes = m->last < 0 || e->is_narrow || m->is_ordered ? 1 : e->level->lanes;
    if (e->lanes > 1 && bytes < 4 && !m->is_costly) e->lanes = e->level->vector_bytes / bytes;
    m->lanes = e->lanes;
    find_blocks(e, m);
    int64_t columns = m->last < 0 ? 1 : k->dim[m->last].size;
    m->unroll = m->is_costly || n_ops > 16 || k->slide.n || (columns != IR_SIZE_RUNTIME && columns < 2 * e->lanes) ? 1
                : m->is_ordered                                                                                    ? 4
                                                                                                                   : 2;
    if (m->number >= 0) m->unroll = EM_RANDOM_MAX;
    m->turns = turns_of(e, m);
    if (m->turns > 1 && bytes == 1 && e->lanes > lanes_of_turns(m->turns))
        e->lanes = m->lanes = lanes_of_turns(m->turns);
    m->is_straight = k->slide.n == 0 && m->turns == 1 && can_be_straight(e, m);
}

/* A row of a few steps is not cut where its conditions are masks, once for all rows; but where steps of many sources are
 * for the sake of one of several values (rotary embeddings: 0.5 to 0.7 of the time; two parts of 16 columns in runs: 1.3
 * of it). */
static bool are_runs_better(const emit *e, const map *m) {
    enum { LOADS_OF_RUN = 5 }; /* that steps could make in the time that a run takes to begin */
    if (!m->runs->has_cuts || !m->is_straight || m->runs->has_offsets) return true;
    const int64_t steps = (e->k->dim[m->last].size + e->lanes - 1) / e->lanes;
    return m->runs->n_choices && steps * m->runs->n > LOADS_OF_RUN * (m->runs->n_choices + 1);
}

static void analyze(emit *e, map *m) {
    const ir_kernel *k = e->k;
    m->last = k->n_dims - 1;
    for (int i = 0; i < k->n_insts; i++) m->varies[i] = ir_kernel_varies(k, i);
    m->runs = may_have_runs(e, m) ? map_find_runs(e, m) : NULL;
    measure(e, m);
    if (m->runs && (m->turns > 1 || !are_runs_better(e, m))) {
        m->runs = NULL;
        measure(e, m);
    }
    if (m->runs && m->runs->has_cuts) m->is_straight = false;
    if (m->runs && m->runs->is_by_line) m->unroll = 1; /* runs are short */
    /* Optimized code keeps constants in registers and folds loads. Ratio of speeds to unoptimized code, EPYC 9005, 1e3
     * and 1e4 elements: exp 1.29, log 1.13, tanh(a)*sigmoid(b)+c 1.07, pow 1.05, gelu(x*w+b) 1.03, sin 1.03; for 1.5
     * times the time of compilation (exp 1 ms more). Two vectors a step are no faster (exp 1.01, gelu 1.02) and cost
     * 1.2 times that. Short runs take half the time. */
    e->is_optimized = m->is_costly || k->slide.n || m->runs || m->is_ordered;
    m->group = group_of(e, m);
    m->has_stream = !m->is_costly && !e->is_narrow && can_stream(k, m->last, m->lanes);
    if (k->slide.n || ir_kernel_is_scatter(k)) m->has_stream = false;
}

/* Non-temporal stores must be seen before whatever tells another thread of them. */
static void fence_streams(emit *e, bool has_stream) {
    if (!has_stream) return;
    em_branch branch = em_if(e, em_icmp(e, LLVMIntNE, e->tune[IR_TUNE_MAP_STREAM], em_i64s(e, 0)));
    unsigned id = LLVMLookupIntrinsicID("llvm.x86.sse.sfence", 19);
    LLVMValueRef fence = LLVMGetIntrinsicDeclaration(e->mod, id, NULL, 0);
    LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fence), fence, NULL, 0, "");
    em_endif(e, &branch);
}

fusor_status jit_emit_map(emit *e, fu_error *err) {
    (void)err; /* whatever ir_kernel_verify lets pass can be emitted */
    map *m = FU_NEW(e->arena, map);
    if (ir_kernel_is_transposed(e->k)) {
        map_emit_transposed(e);
        fence_streams(e, e->level->vector_bytes >= 32);
        return FUSOR_OK;
    }
    analyze(e, m);
    LLVMValueRef one = em_i64s(e, 1), columns = m->last < 0 ? one : e->size[m->last], rows = one;
    for (int d = 0; d < m->last; d++) rows = em_mul(e, rows, e->size[d]);
    LLVMValueRef block_rows = e->tune[IR_TUNE_MAP_ROWS], block_columns = e->tune[IR_TUNE_MAP_COLUMNS];
    LLVMValueRef blocks = LLVMBuildUDiv(e->b, em_sub(e, em_add(e, columns, block_columns), one), block_columns, "");
    /* Blocks start at multiples of 64, so with a baked number of columns the tail is known. */
    int64_t baked = m->last < 0 ? 1 : e->k->dim[m->last].size;
    bool has_tail = baked == IR_SIZE_RUNTIME || baked % (m->unroll * e->lanes) != 0;

    em_loop tiles = em_for(e, e->tile_begin, e->tile_end, one);
    LLVMValueRef row_begin = em_mul(e, LLVMBuildUDiv(e->b, tiles.i, blocks, ""), block_rows);
    LLVMValueRef begin = em_mul(e, LLVMBuildURem(e->b, tiles.i, blocks, ""), block_columns);
    LLVMValueRef row_end = em_min(e, em_add(e, row_begin, block_rows), rows);
    LLVMValueRef end = em_min(e, em_add(e, begin, block_columns), columns);
    if (m->turns > 1) { /* a tile's part is from one whole turn to another */
        LLVMValueRef step = em_i64s(e, m->turns), more = em_i64s(e, m->turns - 1);
        row_begin = em_mul(e, LLVMBuildUDiv(e->b, em_add(e, row_begin, more), step, ""), step);
        row_end = em_mul(e, LLVMBuildUDiv(e->b, em_add(e, row_end, more), step, ""), step);
    }
    /* From memory, vectors that cross lines bring more of them at a time (Zen 4: 1.3 times as fast). */
    m->shares = has_behind(e->k);
    em_branch b = {0};
    if (m->shares) b = em_if(e, em_icmp(e, LLVMIntEQ, e->tune[IR_TUNE_MAP_STREAM], em_i64s(e, 0)));
    map_emit_rows(e, m, row_begin, row_end, begin, end, has_tail);
    if (m->shares) {
        em_else(e, &b);
        m->shares = false;
        map_emit_rows(e, m, row_begin, row_end, begin, end, has_tail);
        em_endif(e, &b);
    }
    em_end(e, &tiles);

    fence_streams(e, m->has_stream);
    return FUSOR_OK;
}
