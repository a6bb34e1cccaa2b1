/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* map_runs.c: where a row comes from, in runs of columns. Concatenation, padding, rolling and tiling say by
 * comparisons, clamps, reflections and remainders of the column where an element is read, and each of these changes a
 * few times in a row. Between two changes, a run, it is one place and the next ones behind it: vectors and no conditions:
 *
 *   for each run of a row:          for each source: its place, by how much it goes on, whether it is read at all
 *       all go on by one element:   the steps of map.c; with a branch a source where one is not read
 *       else (clamped, reflected):  element by element
 *
 * map_rows.c asks for a row at a time (map_emit_runs), or for the rows of a line whose cuts are the same for each of
 * them (map_emit_line_runs: run by run, the rows of a block in it).
 *
 * A source is a load with a guard or an offset, or a select between such that its condition decides for a whole run.
 * Where it decides between computed values (sin(x) and cos(x), one behind the other), there is a loop for each of them.
 * What the sources of a kernel ask of the column alone is never made as vectors. */
#include "jit/map.h"
#include <string.h>

enum { KNOWN = 32 }; /* conditions above a load that are looked at */

struct analysis {
    const ir_kernel *k;
    const map *m;
    bool is_place[IR_KERNEL_MAX_INSTS]; /* a guard or offset is made of it: sums of sizes, which never wrap around */
};
typedef struct analysis analysis;

static bool varies(const analysis *a, int inst) { return map_varies_in_row(a->m, inst); }

/* The column plus what a row has one of? */
static bool is_affine(const analysis *a, int inst) {
    const ir_kinst *in = &a->k->inst[inst];
    if (!varies(a, inst)) return false;
    if (in->op == IR_K_INDEX) return true;
    if (!a->is_place[inst] || in->dtype != FUSOR_I64) return false;
    if (in->op == IR_OP_SUB) return is_affine(a, in->in[0]) && !varies(a, in->in[1]);
    if (in->op != IR_OP_ADD) return false;
    return (is_affine(a, in->in[0]) && !varies(a, in->in[1])) || (is_affine(a, in->in[1]) && !varies(a, in->in[0]));
}

/* minimum(|x|, y - |x|): a reflection at both ends. */
static bool is_reflection(const analysis *a, const ir_kinst *in) {
    const ir_kinst *up = &a->k->inst[in->in[0]], *down = &a->k->inst[in->in[1]];
    return up->op == IR_OP_ABS && is_affine(a, up->in[0]) && down->op == IR_OP_SUB && down->in[1] == in->in[0] &&
           !varies(a, down->in[0]);
}

static bool is_offset(const analysis *a, int inst) {
    const ir_kinst *in = &a->k->inst[inst];
    if (!varies(a, inst) || is_affine(a, inst)) return true;
    if (!a->is_place[inst] || in->dtype != FUSOR_I64) return false;
    switch (in->op) {
    case IR_OP_ADD: return is_offset(a, in->in[0]) && is_offset(a, in->in[1]);
    case IR_OP_CLAMP: return is_affine(a, in->in[0]) && !varies(a, in->in[1]) && !varies(a, in->in[2]);
    case IR_OP_MOD: return is_affine(a, in->in[0]) && !varies(a, in->in[1]);
    case IR_OP_MINIMUM: return is_reflection(a, in);
    default: return false;
    }
}

static bool is_condition(const analysis *a, int inst) {
    const ir_kinst *in = &a->k->inst[inst];
    if (!ir_is_bool(in->dtype)) return false;
    if (!varies(a, inst)) return true;
    if (in->op == IR_OP_AND) return is_condition(a, in->in[0]) && is_condition(a, in->in[1]);
    return (in->op == IR_OP_LT || in->op == IR_OP_GE) && is_affine(a, in->in[0]) && !varies(a, in->in[1]);
}

static int offset_of(const ir_kinst *in) { return in->variant & IR_LOAD_OFFSET ? in->in[0] : -1; }
static int guard_of(const ir_kinst *in) { return in->variant & IR_LOAD_GUARD ? in->in[in->n_in - 1] : -1; }

static bool is_source(const analysis *a, int inst, bool is_part) {
    const ir_kinst *in = &a->k->inst[inst];
    if (!varies(a, inst)) return is_part; /* a value to select */
    if (in->op == IR_OP_SELECT)
        return is_condition(a, in->in[0]) && is_source(a, in->in[1], true) && is_source(a, in->in[2], true);
    if (in->op != IR_K_LOAD || (!in->variant && !is_part)) return false;
    const int offset = offset_of(in), guard = guard_of(in);
    const bool is_moved = offset >= 0 && varies(a, offset);
    if (a->k->buffer[in->index].stride[a->m->last] != (is_moved ? 0 : 1)) return false;
    return (offset < 0 || is_offset(a, offset)) && (guard < 0 || is_condition(a, guard));
}

static map_choice *choice_of(map_runs *r, int inst) {
    for (int i = 0; i < r->n_choices; i++)
        if (r->choice[i].inst == inst) return &r->choice[i];
    return NULL;
}

/* Sources and choices that the steps need, from the stores on; what else they need is marked. */
static void find_sources(const analysis *a, int inst, map_runs *r) {
    const ir_kinst *in = &a->k->inst[inst];
    if (r->is_needed[inst]) return;
    r->is_needed[inst] = true;
    if (is_source(a, inst, false)) {
        if (r->n < MAP_SOURCES) r->source[r->n].inst = inst;
        r->n++;
        return;
    }
    int first = 0;
    if (in->op == IR_OP_SELECT && varies(a, inst) && is_condition(a, in->in[0]) && r->n_choices < MAP_CHOICES) {
        r->choice[r->n_choices++].inst = inst;
        first = 1;
    }
    for (int i = first; i < in->n_in; i++) find_sources(a, in->in[i], r);
}

/* What is read of the sides that are decided, and of both where they are not. */
static void mark_read(const analysis *a, map_runs *r, int inst) {
    const ir_kinst *in = &a->k->inst[inst];
    if (!r->is_needed[inst] || r->is_read[inst]) return;
    r->is_read[inst] = true;
    if (is_source(a, inst, false)) return;
    const map_choice *c = choice_of(r, inst);
    if (c && c->side) {
        mark_read(a, r, in->in[c->side]);
        return;
    }
    for (int i = c ? 1 : 0; i < in->n_in; i++) mark_read(a, r, in->in[i]);
}

/* The first choice that is read and not decided, or NULL; one by the same condition as another is decided with it. */
static map_choice *next_choice(const analysis *a, map_runs *r) {
    for (bool is_more = true; is_more;) {
        map_choice *next = NULL;
        is_more = false;
        memset(r->is_read, 0, sizeof r->is_read);
        for (int i = 0; i < a->k->n_insts; i++)
            if (a->k->inst[i].op == IR_K_STORE) mark_read(a, r, i);
        for (int i = 0; i < r->n_choices; i++) {
            map_choice *c = &r->choice[i];
            if (c->side || !r->is_read[c->inst]) continue;
            for (int j = 0; j < r->n_choices && !c->side; j++)
                if (a->k->inst[r->choice[j].inst].in[0] == a->k->inst[c->inst].in[0]) c->side = r->choice[j].side;
            if (c->side) is_more = true;
            else if (!next) next = c;
        }
        if (!is_more) return next;
    }
    return NULL;
}

/* How much code a loop of what is marked has. */
static int64_t code_of(const analysis *a, const bool *is_marked) {
    enum { FUNCTION = 16 };
    int64_t n = 0;
    for (int i = 0; i < a->k->n_insts; i++) {
        const ir_kinst *in = &a->k->inst[i];
        const bool is_function = in->op < IR_OP_COUNT && ir_ops[in->op].flags & IR_COSTLY;
        if (is_marked[i]) n += is_function ? FUNCTION * (ir_dtypes[in->dtype].bytes == 8 ? 2 : 1) : 1;
    }
    return n;
}

/* Loops that there are for what all choices decide, and the code of all. */
static int count_loops(const analysis *a, map_runs *r, int64_t *code) {
    map_choice before[MAP_CHOICES], *c;
    int n = 0;
    memcpy(before, r->choice, sizeof before);
    c = next_choice(a, r);
    if (!c) *code += code_of(a, r->is_read);
    for (int side = 1; c && side <= 2; side++) {
        c->side = side;
        n += count_loops(a, r, code);
    }
    memcpy(r->choice, before, sizeof before);
    return c ? n : 1;
}

/* No more choices than their loops may have code: what reads their values is in each loop. */
static void limit_choices(const analysis *a, map_runs *r) {
    enum { MORE = 2 };
    for (; r->n_choices; r->n_choices--) {
        int64_t code = 0;
        if (count_loops(a, r, &code) <= MAP_CHOICES + 1 && code <= MORE * code_of(a, r->is_needed)) return;
        ir_kernel_mark(a->k, a->k->inst[r->choice[r->n_choices - 1].inst].in[0], r->is_needed);
    }
}

static bool has_offset(const analysis *a, int inst) {
    const ir_kinst *in = &a->k->inst[inst];
    if (!varies(a, inst)) return false;
    if (in->op == IR_OP_SELECT) return has_offset(a, in->in[1]) || has_offset(a, in->in[2]);
    return offset_of(in) >= 0 && varies(a, offset_of(in));
}

static bool has_cuts(const analysis *a, int inst) {
    const ir_kinst *in = &a->k->inst[inst];
    if (!varies(a, inst)) return false;
    if (in->op == IR_OP_SELECT) return varies(a, in->in[0]) || has_cuts(a, in->in[1]) || has_cuts(a, in->in[2]);
    for (int i = 0; i < in->n_in; i++)
        if (varies(a, in->in[i])) return true;
    return false;
}

/* Do the places where rows are cut vary from row to row? */
static bool has_row_cuts(const analysis *a, int inst) {
    const ir_kinst *in = &a->k->inst[inst];
    if (!varies(a, inst) || is_affine(a, inst)) return false;
    if (in->op == IR_OP_SELECT || in->op == IR_K_LOAD || in->op == IR_OP_ADD || in->op == IR_OP_AND) {
        for (int i = 0; i < in->n_in; i++)
            if (has_row_cuts(a, in->in[i])) return true;
        return false;
    }
    return a->m->last > 0 && a->m->varies[inst] >> (a->m->last - 1) & 1;
}

map_runs *map_find_runs(emit *e, const map *m) {
    const ir_kernel *k = e->k;
    analysis *a = FU_NEW(e->arena, analysis);
    map_runs *r = FU_NEW(e->arena, map_runs);
    *a = (analysis){.k = k, .m = m};
    for (int i = 0; i < k->n_insts; i++)
        for (int j = 0; k->inst[i].op == IR_K_LOAD && j < k->inst[i].n_in; j++)
            ir_kernel_mark(k, k->inst[i].in[j], a->is_place);
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE) find_sources(a, i, r);
    if (!r->n || r->n > MAP_SOURCES) return NULL;
    limit_choices(a, r);
    for (int i = 0; i < r->n_choices; i++) r->has_cuts |= varies(a, k->inst[r->choice[i].inst].in[0]);
    for (int i = 0; i < r->n; i++) r->has_cuts |= has_cuts(a, r->source[i].inst);
    for (int i = 0; i < r->n; i++) r->has_offsets |= has_offset(a, r->source[i].inst);
    r->is_by_line = r->has_cuts && m->last > 0;
    for (int i = 0; i < r->n; i++) r->is_by_line &= !has_row_cuts(a, r->source[i].inst);
    for (int i = 0; i < r->n_choices; i++) r->is_by_line &= !has_row_cuts(a, k->inst[r->choice[i].inst].in[0]);
    r->analysis = a;
    return r;
}

/* ---- one run ---- */
typedef struct run {
    emit *e;
    const analysis *a;
    em_values v;                             /* at its first column */
    LLVMValueRef begin;                      /* that column */
    LLVMValueRef left;                       /* columns until something changes, unsigned; NULL: nothing does */
    LLVMValueRef slope[IR_KERNEL_MAX_INSTS]; /* of loads: by how much what they read goes on from column to column */
    bool is_seen[IR_KERNEL_MAX_INSTS];
    int known[KNOWN], n_known; /* conditions that hold: inst, or ~inst for one that does not */
} run;

static LLVMValueRef at(run *r, int inst) { return em_value(r->e, &r->v, inst); }

static void cut(run *r, LLVMValueRef when, LLVMValueRef left) {
    left = em_select(r->e, when, left, em_i64s(r->e, -1));
    r->left = r->left ? em_select(r->e, em_icmp(r->e, LLVMIntULT, left, r->left), left, r->left) : left;
}

static void cut_condition(run *r, int inst) {
    const ir_kinst *in = &r->a->k->inst[inst];
    if (!varies(r->a, inst) || r->is_seen[inst]) return;
    r->is_seen[inst] = true;
    if (in->op == IR_OP_AND) {
        cut_condition(r, in->in[0]);
        cut_condition(r, in->in[1]);
        return;
    }
    LLVMValueRef x = at(r, in->in[0]), past = at(r, in->in[1]);
    cut(r, em_icmp(r->e, LLVMIntSLT, x, past), em_sub(r->e, past, x));
}

/* Of an offset. */
static LLVMValueRef slope_of(run *r, int inst) {
    emit *e = r->e;
    const ir_kinst *in = &r->a->k->inst[inst];
    LLVMValueRef zero = em_i64s(e, 0), one = em_i64s(e, 1), minus = em_i64s(e, -1);
    if (!varies(r->a, inst)) return zero;
    if (is_affine(r->a, inst)) return one;
    if (in->op == IR_OP_ADD) return em_add(e, slope_of(r, in->in[0]), slope_of(r, in->in[1]));
    const LLVMValueRef y = at(r, in->in[1]);
    if (in->op == IR_OP_MOD) {
        cut(r, LLVMConstAllOnes(e->t_i1), em_sub(e, y, at(r, inst)));
        return one;
    }
    if (in->op == IR_OP_CLAMP) {
        LLVMValueRef x = at(r, in->in[0]), high = at(r, in->in[2]);
        LLVMValueRef is_low = em_icmp(e, LLVMIntSLT, x, y), is_high = em_icmp(e, LLVMIntSGT, x, high);
        cut(r, is_low, em_sub(e, y, x));
        cut(r, em_xor(e, is_high, LLVMConstAllOnes(e->t_i1)), em_add(e, em_sub(e, high, x), one));
        return em_select(e, em_or(e, is_low, is_high), zero, one);
    }
    /* a reflection: |x| goes down to 0 and up, until its mirror image is less */
    const int inner = r->a->k->inst[in->in[0]].in[0];
    LLVMValueRef x = at(r, inner), more = em_sub(e, y, at(r, in->in[0])), is_before = em_icmp(e, LLVMIntSLT, x, zero),
                 is_up = em_icmp(e, LLVMIntSGE, more, zero), up = em_select(e, is_before, minus, one);
    LLVMValueRef apart = em_lshr(e, em_select(e, is_up, more, em_sub(e, one, more)), 1);
    cut(r, is_before, em_sub(e, zero, x));
    cut(r, em_xor(e, is_before, is_up), em_add(e, apart, em_select(e, is_up, one, zero)));
    return em_select(e, is_up, up, em_sub(e, zero, up));
}

static void cut_source(run *r, int inst) {
    const ir_kinst *in = &r->a->k->inst[inst];
    if (!varies(r->a, inst)) return;
    if (in->op == IR_OP_SELECT) {
        cut_condition(r, in->in[0]);
        cut_source(r, in->in[1]);
        cut_source(r, in->in[2]);
        return;
    }
    const int offset = offset_of(in), guard = guard_of(in);
    r->slope[inst] = offset >= 0 && varies(r->a, offset) ? slope_of(r, offset) : em_i64s(r->e, 1);
    if (guard >= 0) cut_condition(r, guard);
}

/* Does the condition hold by what is known? Where it is not: what there is of it to ask, in *rest (NULL: nothing). */
static void ask(run *r, int inst, LLVMValueRef *rest) {
    const ir_kinst *in = &r->a->k->inst[inst];
    if (in->op == IR_OP_AND && ir_is_bool(in->dtype)) {
        ask(r, in->in[0], rest);
        ask(r, in->in[1], rest);
        return;
    }
    for (int i = 0; i < r->n_known; i++) {
        const ir_kinst *other = &r->a->k->inst[r->known[i] < 0 ? ~r->known[i] : r->known[i]];
        if (r->known[i] == inst) return;
        if (r->known[i] < 0 && other->op == IR_OP_LT && in->op == IR_OP_GE && other->in[0] == in->in[0] &&
            other->in[1] == in->in[1])
            return;
    }
    *rest = *rest ? em_and(r->e, *rest, at(r, inst)) : at(r, inst);
}

static void know(run *r, int inst) {
    const ir_kinst *in = &r->a->k->inst[inst];
    if (in->op == IR_OP_AND && ir_is_bool(in->dtype)) {
        know(r, in->in[0]);
        know(r, in->in[1]);
    } else if (r->n_known < KNOWN) {
        r->known[r->n_known++] = inst;
    }
}

static map_source find(run *r, int inst);

static map_source find_load(run *r, int inst) {
    emit *e = r->e;
    const ir_kinst *in = &r->a->k->inst[inst];
    const int offset = offset_of(in), guard = guard_of(in);
    LLVMValueRef from = r->a->m->offset[in->index];
    map_source s = {.slope = r->slope[inst], .fill = LLVMConstNull(em_scalar_type(e, in->dtype))};
    if (offset >= 0) from = em_add(e, from, at(r, offset));
    if (offset >= 0 && varies(r->a, offset)) from = em_sub(e, from, em_mul(e, s.slope, r->begin));
    if (guard >= 0) ask(r, guard, &s.is_there);
    s.at = em_gep(e, e->base[in->index], em_memory_type(e, in->dtype), from);
    return s;
}

/* Of two that a condition selects from. */
static LLVMValueRef either(emit *e, LLVMValueRef c, LLVMValueRef x, LLVMValueRef y) {
    return !x || x == y ? y : !y ? x : em_select(e, c, x, y);
}

static map_source find_selected(run *r, int inst) {
    emit *e = r->e;
    const ir_kinst *in = &r->a->k->inst[inst];
    const int n_known = r->n_known;
    LLVMValueRef c = at(r, in->in[0]), all = LLVMConstAllOnes(e->t_i1), none = LLVMConstNull(e->t_i1);
    know(r, in->in[0]);
    const map_source x = find(r, in->in[1]);
    r->n_known = n_known;
    if (n_known < KNOWN) r->known[r->n_known++] = ~in->in[0];
    const map_source y = find(r, in->in[2]);
    r->n_known = n_known;
    map_source s = {
        .at = either(e, c, x.at, y.at), .slope = either(e, c, x.slope, y.slope), .fill = either(e, c, x.fill, y.fill)};
    if (x.at && y.at && !x.is_there && !y.is_there) return s;
    if (x.at && !x.is_there && !y.at) s.is_there = c;
    else
        s.is_there = either(e, c,
                            !x.at        ? none
                            : x.is_there ? x.is_there
                                         : all,
                            !y.at        ? none
                            : y.is_there ? y.is_there
                                         : all);
    return s;
}

static map_source find(run *r, int inst) {
    if (!varies(r->a, inst)) return (map_source){.fill = at(r, inst)};
    return r->a->k->inst[inst].op == IR_OP_SELECT ? find_selected(r, inst) : find_load(r, inst);
}

/* What sources and choices are at a step: e->lanes elements from the column on. */
void map_begin_sources(emit *e, const map *m, em_values *v) {
    for (int i = 0; i < m->runs->n; i++) {
        const map_source *s = &m->runs->source[i];
        if (!m->runs->is_read[s->inst]) continue;
        const ir_dtype t = e->k->inst[s->inst].dtype;
        const bool is_branch = s->is_there && !m->runs->is_all_there;
        if (!s->at) {
            v->at[s->inst] = em_splat(e, s->fill);
            continue;
        }
        LLVMValueRef fill = is_branch ? em_splat(e, s->fill) : NULL, column = m->column;
        em_branch b = {0};
        if (is_branch) b = em_if(e, s->is_there);
        if (e->lanes == 1) column = em_mul(e, column, s->slope);
        LLVMValueRef x = em_load_ptr(e, t, em_gep(e, s->at, em_memory_type(e, t), column), m->mask, ir_dtypes[t].bytes);
        if (is_branch) {
            LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b);
            em_endif(e, &b);
            LLVMValueRef phi = LLVMBuildPhi(e->b, LLVMTypeOf(x), "");
            LLVMAddIncoming(phi, (LLVMValueRef[]){x, fill}, (LLVMBasicBlockRef[]){from, b.other}, 2);
            x = phi;
        }
        v->at[s->inst] = x;
    }
    for (int i = 0; i < e->k->n_insts; i++) { /* an inner one before those that read it */
        const map_choice *c = m->runs->is_read[i] ? choice_of(m->runs, i) : NULL;
        if (c && c->side) v->at[i] = em_value(e, v, e->k->inst[i].in[c->side]);
    }
}

/* Where sources are in a run. */
static void find_all(run *r, map *m) {
    const int lanes = r->e->lanes;
    r->e->lanes = 1;
    for (int i = 0; i < m->runs->n; i++) {
        const int inst = m->runs->source[i].inst;
        m->runs->source[i] = find(r, inst);
        m->runs->source[i].inst = inst;
    }
    r->e->lanes = lanes;
}

/* Columns begin..end of a run, whose sources all go on by one element; choices are decided. */
static void emit_decided(emit *e, map *m, LLVMValueRef begin, LLVMValueRef end) {
    map_runs *r = m->runs;
    const bool has_stream = m->has_stream;
    const int unroll = m->unroll;
    LLVMValueRef all = NULL;
    for (int i = 0; i < r->n; i++)
        if (r->is_read[r->source[i].inst] && r->source[i].is_there)
            all = all ? em_and(e, all, r->source[i].is_there) : r->source[i].is_there;
    em_branch b = {0};
    if (all) b = em_if(e, all);
    r->is_all_there = true;
    map_emit_columns(e, m, begin, end, true);
    r->is_all_there = false;
    if (!all) return;
    em_else(e, &b);
    m->has_stream = false;
    m->unroll = 1;
    map_emit_columns(e, m, begin, end, true);
    m->has_stream = has_stream;
    m->unroll = unroll;
    em_endif(e, &b);
}

/* The same for what choices are still to be decided, whose conditions r has. */
static void emit_run(emit *e, map *m, run *r, LLVMValueRef begin, LLVMValueRef end) {
    map_runs *runs = m->runs;
    map_choice before[MAP_CHOICES];
    map_source source[MAP_SOURCES];
    bool is_read[IR_KERNEL_MAX_INSTS];
    memcpy(before, runs->choice, sizeof before);
    memcpy(source, runs->source, sizeof source);
    memcpy(is_read, runs->is_read, sizeof is_read);
    map_choice *c = next_choice(r->a, runs);
    if (c) {
        const int condition = r->a->k->inst[c->inst].in[0];
        run *side = FU_NEW(e->arena, run); /* what is asked in one is not known in the other */
        *side = *r;
        em_branch b = em_if(e, r->v.at[condition]);
        c->side = 1;
        know(side, condition);
        emit_run(e, m, side, begin, end);
        em_else(e, &b);
        *side = *r;
        c->side = 2;
        if (side->n_known < KNOWN) side->known[side->n_known++] = ~condition;
        emit_run(e, m, side, begin, end);
        em_endif(e, &b);
    } else {
        if (r->n_known) find_all(r, m);
        emit_decided(e, m, begin, end);
    }
    memcpy(runs->is_read, is_read, sizeof is_read);
    memcpy(runs->source, source, sizeof source);
    memcpy(runs->choice, before, sizeof before);
}

static void emit_element(emit *e, map *m, LLVMValueRef column) {
    const int lanes = e->lanes;
    e->lanes = 1;
    map_emit_step(e, m, column, NULL, false);
    e->lanes = lanes;
}

/* The next run of columns: where it begins, and by how much sources go on in it. Of values, those are known that the
 * line has. Returns where it ends. */
static LLVMValueRef begin_run(emit *e, map *m, run *r, em_loop *l, LLVMValueRef end) {
    const int lanes = e->lanes;
    *r = (run){.e = e, .a = m->runs->analysis, .begin = l->i};
    em_values_init(&r->v, map_load, m);
    for (int i = 0; i < e->k->n_insts; i++)
        if (!m->runs->is_by_line || !map_varies_in_line(m, i)) r->v.at[i] = m->row_scalar[i];
    m->column = l->i;
    e->lanes = 1;
    for (int i = 0; i < m->runs->n; i++) cut_source(r, m->runs->source[i].inst);
    for (int i = 0; i < m->runs->n_choices; i++) cut_condition(r, e->k->inst[m->runs->choice[i].inst].in[0]);
    e->lanes = lanes;
    if (!r->left) return end;
    LLVMValueRef rest = em_sub(e, end, l->i);
    l->step = em_select(e, em_icmp(e, LLVMIntULT, r->left, rest), r->left, rest);
    return em_add(e, l->i, l->step);
}

/* Do all sources go on by one element? NULL: by their kind. A select of the row's that is not known yet: both. */
static LLVMValueRef goes_on(run *r, int inst) {
    emit *e = r->e;
    const ir_kinst *in = &r->a->k->inst[inst];
    if (!varies(r->a, inst)) return NULL;
    if (in->op != IR_OP_SELECT) {
        LLVMValueRef slope = r->slope[inst];
        return LLVMIsAConstantInt(slope) ? NULL : em_icmp(e, LLVMIntEQ, slope, em_i64s(e, 1));
    }
    LLVMValueRef x = goes_on(r, in->in[1]), y = goes_on(r, in->in[2]), all = LLVMConstAllOnes(e->t_i1);
    if (!x && !y) return NULL;
    if (!x) x = all;
    if (!y) y = all;
    return map_varies_in_line(r->a->m, in->in[0]) ? em_and(e, x, y) : em_select(e, at(r, in->in[0]), x, y);
}

static LLVMValueRef all_go_on(run *r, const map_runs *sources) {
    const int lanes = r->e->lanes;
    LLVMValueRef all = NULL;
    r->e->lanes = 1;
    for (int i = 0; i < sources->n; i++) {
        LLVMValueRef one = goes_on(r, sources->source[i].inst);
        if (one) all = all ? em_and(r->e, all, one) : one;
    }
    r->e->lanes = lanes;
    return all;
}

/* The run in the row whose offsets and values are known: where its sources are, what choices are by. */
static run *begin_row(emit *e, map *m, const run *of_line) {
    const int lanes = e->lanes;
    run *r = FU_NEW(e->arena, run);
    *r = *of_line;
    for (int i = 0; i < e->k->n_insts; i++)
        if (m->row_scalar[i]) r->v.at[i] = m->row_scalar[i];
    m->column = r->begin;
    find_all(r, m);
    e->lanes = 1;
    for (int i = 0; i < m->runs->n_choices; i++) at(r, e->k->inst[m->runs->choice[i].inst].in[0]);
    e->lanes = lanes;
    memcpy(m->runs->is_read, m->runs->is_needed, sizeof m->runs->is_read);
    return r;
}

void map_emit_runs(emit *e, map *m, LLVMValueRef begin, LLVMValueRef end) {
    em_loop l = {.i = begin};
    em_branch b = {0};
    run *r = FU_NEW(e->arena, run);
    if (m->runs->has_cuts) l = em_for(e, begin, end, em_i64s(e, 1));
    LLVMValueRef past = begin_run(e, m, r, &l, end), go_on = all_go_on(r, m->runs);
    r = begin_row(e, m, r);
    if (go_on) b = em_if(e, go_on);
    emit_run(e, m, r, l.i, past);
    if (go_on) {
        em_else(e, &b);
        em_loop each = em_for(e, l.i, past, em_i64s(e, 1));
        emit_element(e, m, each.i);
        em_end(e, &each);
        em_endif(e, &b);
    }
    if (m->runs->has_cuts) em_end(e, &l);
}

/* Rows y0..y1 of a run, at one column or (NULL) at all up to `past`. */
static void emit_rows(emit *e, map *m, run *r, LLVMValueRef y0, LLVMValueRef y1, const LLVMValueRef *first,
                      LLVMValueRef column, LLVMValueRef past) {
    const ir_kernel *k = e->k;
    const int y = m->last - 1;
    LLVMValueRef next[IR_KERNEL_MAX_BUFFERS] = {NULL};
    em_loop rows = em_for(e, y0, y1, em_i64s(e, 1));
    for (int b = 0; b < k->n_buffers; b++)
        if (k->buffer[b].stride[y] != 0) m->offset[b] = next[b] = em_loop_phi(e, &rows, first[b]);
    m->index[y] = rows.i;
    map_emit_row_values(e, m);
    r = begin_row(e, m, r);
    if (column) emit_element(e, m, column);
    else emit_run(e, m, r, r->begin, past);
    for (int b = 0; b < k->n_buffers; b++)
        if (next[b]) em_loop_next(e, next[b], em_add(e, next[b], e->stride[b][y]));
    em_end(e, &rows);
}

void map_emit_line_runs(emit *e, map *m, LLVMValueRef y0, LLVMValueRef y1, LLVMValueRef begin, LLVMValueRef end) {
    enum { BLOCK = 4096, ROWS = 64, FEW = 4 };
    const ir_kernel *k = e->k;
    const int y = m->last - 1;
    LLVMValueRef first[IR_KERNEL_MAX_BUFFERS], offset[IR_KERNEL_MAX_BUFFERS];
    LLVMValueRef one = em_i64s(e, 1), columns = em_sub(e, end, begin), least = em_i64s(e, BLOCK / ROWS);
    run *r = FU_NEW(e->arena, run);
    memcpy(first, m->offset, sizeof first);
    columns = em_max(e, em_min(e, columns, em_i64s(e, BLOCK)), least);
    em_loop blocks = em_for(e, y0, y1, LLVMBuildUDiv(e->b, em_i64s(e, BLOCK), columns, ""));
    LLVMValueRef past_row = em_min(e, em_add(e, blocks.i, blocks.step), y1);
    for (int b = 0; b < k->n_buffers; b++)
        offset[b] = map_advance(e, first[b], em_sub(e, blocks.i, y0), e->stride[b][y]);
    em_loop l = em_for(e, begin, end, one);
    LLVMValueRef past = begin_run(e, m, r, &l, end), go_on = all_go_on(r, m->runs);
    LLVMValueRef is_few = em_icmp(e, LLVMIntULE, l.step, em_i64s(e, FEW));
    if (go_on) is_few = em_or(e, is_few, em_xor(e, go_on, LLVMConstAllOnes(e->t_i1)));
    em_branch b = em_if(e, is_few);
    em_loop each = em_for(e, l.i, past, one);
    emit_rows(e, m, r, blocks.i, past_row, offset, each.i, past);
    em_end(e, &each);
    em_else(e, &b);
    emit_rows(e, m, r, blocks.i, past_row, offset, NULL, past);
    em_endif(e, &b);
    em_end(e, &l);
    em_end(e, &blocks);
}
