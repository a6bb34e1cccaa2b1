/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_row.c: reduce and row kernels on a GPU, in the order that ir/gpu.h says. A team of 1 to 256 threads takes one
 * row; the teams of a block lie side by side.
 *
 *   a row of up to IR_REDUCE_BLOCK elements of a row kernel: each thread has IR_GPU_ROW_STEPS times four adjacent
 *       elements; what it loads and what later passes use stays in its registers:
 *       load all steps; for each pass: for each step: load what is new, values, accumulators, stores; the team's
 *       accumulators become one
 *   else: for each pass, for each chunk of the row: a loop over it, four elements at a time (a reduce kernel:
 *       IR_GPU_ROW_STEPS times that are loaded at once, as long as there are so many); then the chunks become one
 *   first thread of a team: values of the row and their stores
 *
 * Where rows are aligned (IR_GPU_WORD_HOW) four elements are one access, and are all in the row or none; else they are
 * four, and the last ones of a row are masked. There is code for either. Chunks of few long rows of a reduce kernel are
 * dealt to blocks, of which the last one of a row combines the partial results of all. Data flow, addresses and
 * accumulators are those of the CPU's kernels (reduce_common.c). */
#include "jit/gpu_row.h"
#include <string.h>

enum { WARPS = IR_GPU_THREADS / IR_GPU_WARP, LANES = IR_GPU_VECTOR, STEPS = IR_GPU_ROW_STEPS };
/* Rows whose kept values need more registers of a thread than this are read again instead. */
enum { KEPT_REGISTERS = 80 };

typedef gpu_cell lane_cells[LANES];
typedef struct row {
    gpu_row w;
    int n_passes;
    bool has_vectors;
    LLVMValueRef is_vector, is_valid;  /* are rows aligned; is the team's row one of its own? */
    int first[IR_KERNEL_MAX_INSTS];    /* the pass in which elements of a value are needed first, or -1 */
    bool is_kept[IR_KERNEL_MAX_INSTS]; /* values of elements that later passes use too */
    bool is_plain[IR_KERNEL_MAX_INSTS];
    lane_cells *acc;       /* by reduction */
    gpu_cell *mine, *last; /* chunks of this thread, and the last chunk */
} row;

/* What is known of a step's elements, where the first is one of the row: all are, and what is contiguous is aligned;
 * all are; nothing. */
typedef enum form { FORM_VECTOR, FORM_WHOLE, FORM_REST } form;

/* One step: LANES elements of a thread. */
typedef struct step {
    row *w;
    form form;
    LLVMValueRef i, in_row;                       /* the first element; is it one of the row? */
    LLVMValueRef left;                            /* FORM_REST, i32: elements from there on, LANES at most */
    LLVMValueRef raw[IR_KERNEL_MAX_INSTS], *kept; /* loaded memory; kept values' places, by instruction */
} step;

/* ---- what is computed when ---- */
static bool is_element(const red *r, int inst) { return (r->varies[inst] & r->r_mask) != 0; }

static void need(row *w, int inst, int pass) {
    const red *r = w->w.r;
    const ir_kinst *in = &r->k->inst[inst];
    if (!is_element(r, inst) || w->first[inst] >= 0) return;
    w->first[inst] = pass;
    if (ir_kernel_is_reduce_op(in->op)) return;
    for (int i = 0; i < in->n_in; i++) need(w, in->in[i], pass);
}

/* Does the sweep of this pass itself use this instruction: to reduce its operand, or to store it? */
static bool is_end(const red *r, int inst, int pass) {
    const ir_kinst *in = &r->k->inst[inst];
    if (ir_kernel_is_reduce_op(in->op)) return r->pass[inst] == pass + 1;
    return in->op == IR_K_STORE && r->is_element_store[inst] && r->pass[inst] == pass;
}

static void keep(row *w, int inst, int pass) {
    if (is_element(w->w.r, inst) && w->first[inst] < pass) w->is_kept[inst] = true;
}

static void find_needs(row *w) {
    const red *r = w->w.r;
    const ir_kernel *k = r->k;
    for (int i = 0; i < k->n_insts; i++) w->first[i] = -1;
    for (int pass = 0; pass < w->n_passes; pass++)
        for (int i = 0; i < k->n_insts; i++)
            for (int o = 0; is_end(r, i, pass) && o < k->inst[i].n_in; o++) need(w, k->inst[i].in[o], pass);
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        bool is_last = ir_kernel_is_reduce_op(in->op) || in->op == IR_K_STORE;
        int pass = !is_last ? w->first[i] : ir_kernel_is_reduce_op(in->op) ? r->pass[i] - 1 : r->pass[i];
        if (in->op == IR_K_STORE && !r->is_element_store[i]) continue;
        for (int o = 0; pass >= 0 && o < in->n_in; o++) keep(w, in->in[o], pass);
        w->is_plain[i] = in->op == IR_K_LOAD && !in->variant && k->buffer[in->index].stride[r->last] != 0;
    }
}

static int words_of(ir_dtype t) { return ir_dtypes[t].bytes > 4 ? 2 : 1; } /* registers of an element */

/* Registers that hold what passes keep of a whole row. */
static int kept_registers(const row *w) {
    int n = 0;
    for (int i = 0; i < w->w.r->k->n_insts; i++)
        if (w->is_kept[i]) n += LANES * STEPS * words_of(w->w.r->k->inst[i].dtype);
    return n;
}

/* ---- loads ---- */
/* What the first block of a branch, ended before, made; 0 behind the other: of a register that is not written there
 * ptxas keeps what it had, around the whole loop over rows. */
static LLVMValueRef or_zero(emit *e, const em_branch *b, LLVMValueRef x) {
    LLVMValueRef v = LLVMBuildPhi(e->b, LLVMTypeOf(x), ""), both[2] = {x, LLVMConstNull(LLVMTypeOf(x))};
    LLVMAddIncoming(v, both, (LLVMBasicBlockRef[]){b->then, b->other}, 2);
    return v;
}

/* A load or an index at the lanes of a step; e->lanes is LANES. */
static LLVMValueRef at_lanes(emit *e, LLVMValueRef *lane) {
    LLVMValueRef v = LLVMGetPoison(LLVMVectorType(LLVMTypeOf(lane[0]), LANES));
    for (int l = 0; l < LANES; l++)
        v = LLVMBuildInsertElement(e->b, v, lane[l], LLVMConstInt(e->t_i32, (unsigned)l, 0), "");
    return v;
}

static LLVMValueRef position(emit *e, const step *s, int l) { return em_add(e, s->i, em_i64s(e, l)); }

/* NULL: it is. */
static LLVMValueRef valid_lane(emit *e, const step *s, int l) {
    if (s->form < FORM_REST || !l) return NULL;
    return em_icmp(e, LLVMIntSGT, s->left, LLVMConstInt(e->t_i32, (unsigned)l, 0));
}

/* A gather or a guarded load: lane by lane, and no more of them than the row has. */
static LLVMValueRef load_access(emit *e, em_values *v, const ir_kinst *inst, step *s) {
    red *r = s->w->w.r;
    LLVMTypeRef type = em_memory_type(e, inst->dtype);
    LLVMValueRef in[2], lane[LANES];
    int n = 0, offset = -1, guard = -1;
    if (inst->variant & IR_LOAD_OFFSET) in[offset = n] = em_value(e, v, inst->in[n]), n++;
    if (inst->variant & IR_LOAD_GUARD) in[guard = n] = em_value(e, v, inst->in[n]), n++;
    e->lanes = 1;
    for (int l = 0; l < LANES; l++) {
        LLVMValueRef may = valid_lane(e, s, l), zero = LLVMConstNull(type);
        if (!may) may = LLVMConstAllOnes(LLVMInt1TypeInContext(e->ctx));
        if (guard >= 0) may = em_and(e, may, em_lane(e, in[guard], l));
        LLVMValueRef at = red_advance(e, NULL, position(e, s, l), e->stride[inst->index][r->last]);
        if (offset >= 0) at = em_add(e, at, em_lane(e, in[offset], l));
        em_branch b = em_if(e, may);
        LLVMValueRef x = LLVMBuildLoad2(e->b, type, em_gep(e, e->base[inst->index], type, at), "");
        LLVMSetAlignment(x, ir_dtypes[inst->dtype].bytes);
        em_endif(e, &b);
        lane[l] = LLVMBuildPhi(e->b, type, "");
        LLVMAddIncoming(lane[l], (LLVMValueRef[]){x, zero}, (LLVMBasicBlockRef[]){b.then, b.other}, 2);
    }
    e->lanes = LANES;
    return em_to_register(e, inst->dtype, at_lanes(e, lane));
}

static LLVMValueRef load(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    step *s = user;
    red *r = s->w->w.r;
    int number = (int)(inst - r->k->inst);
    if (inst->op == IR_K_INDEX && inst->index != r->last) return em_splat(e, r->index[inst->index]);
    if (inst->op == IR_K_INDEX) {
        LLVMValueRef lane[LANES];
        for (int l = 0; l < LANES; l++) lane[l] = position(e, s, l);
        return at_lanes(e, lane);
    }
    if (inst->variant) return load_access(e, v, inst, s);
    if (s->raw[number]) return em_to_register(e, inst->dtype, s->raw[number]);
    return em_load(e, inst->index, em_i64s(e, 0), em_i64s(e, 0), NULL); /* the same for all elements */
}

static bool is_loaded_in(const row *w, int inst, int pass, bool has_kept) {
    if (!w->is_plain[inst] || w->first[inst] < 0) return false;
    return has_kept ? w->first[inst] == pass : w->first[inst] <= pass;
}

static LLVMValueRef load_vector(emit *e, const step *s, int b) {
    LLVMTypeRef type = em_memory_type(e, e->k->buffer[b].dtype);
    LLVMValueRef x = LLVMBuildLoad2(e->b, LLVMVectorType(type, LANES), em_gep(e, e->base[b], type, s->i), "");
    LLVMSetAlignment(x, LANES * ir_dtypes[e->k->buffer[b].dtype].bytes);
    return x;
}

static LLVMValueRef load_apart(emit *e, const step *s, int b) {
    const red *r = s->w->w.r;
    LLVMTypeRef type = em_memory_type(e, e->k->buffer[b].dtype);
    LLVMValueRef lane[LANES];
    for (int l = 0; l < LANES; l++) {
        LLVMValueRef off = red_advance(e, NULL, position(e, s, l), e->stride[b][r->last]), may = valid_lane(e, s, l);
        em_branch valid = {0};
        if (may) valid = em_if(e, may);
        lane[l] = LLVMBuildLoad2(e->b, type, em_gep(e, e->base[b], type, off), "");
        LLVMSetAlignment(lane[l], ir_dtypes[e->k->buffer[b].dtype].bytes);
        if (!may) continue;
        em_endif(e, &valid);
        lane[l] = or_zero(e, &valid, lane[l]);
    }
    return at_lanes(e, lane);
}

/* What the first n_steps steps load, before anything is computed, so that loads overlap. */
static void load_steps(row *w, step *s, int n_steps, const bool *wanted) {
    emit *e = w->w.r->e;
    const ir_kernel *k = e->k;
    for (int u = 0; u < n_steps; u++)
        for (int i = 0; i < k->n_insts; i++) {
            if (!wanted[i]) continue;
            bool is_vector = s[u].form == FORM_VECTOR && k->buffer[k->inst[i].index].stride[w->w.r->last] == 1;
            s[u].raw[i] = (is_vector ? load_vector : load_apart)(e, &s[u], k->inst[i].index);
        }
}

/* The same, of those steps alone that begin in the row. */
static void load_steps_in_row(row *w, step *s, int n_steps, const bool *wanted) {
    emit *e = w->w.r->e;
    for (int u = 0; u < n_steps; u++) {
        em_branch b = em_if(e, s[u].in_row);
        load_steps(w, &s[u], 1, wanted);
        b.then = LLVMGetInsertBlock(e->b);
        em_endif(e, &b);
        for (int i = 0; i < e->k->n_insts; i++)
            if (wanted[i]) s[u].raw[i] = or_zero(e, &b, s[u].raw[i]);
    }
}

/* The step whose first element is i. */
static void begin_step(row *w, form f, step *s, LLVMValueRef i, LLVMValueRef *kept) {
    red *r = w->w.r;
    emit *e = r->e;
    memset(s, 0, sizeof *s);
    s->w = w;
    s->form = f;
    s->i = i;
    s->kept = kept;
    s->in_row = em_icmp(e, LLVMIntSLT, i, e->size[r->last]);
    if (f < FORM_REST) return;
    LLVMValueRef left = em_sub(e, e->size[r->last], i);
    s->left = LLVMBuildTrunc(e->b, em_min(e, left, em_i64s(e, LANES)), e->t_i32, "");
}

/* ---- one step ---- */
/* What the pass stores of lane l of a step; is_vector: where elements are contiguous, of all lanes with the first. */
static void store_lane(row *w, const gpu_pass *p, const step *s, const em_values *v, int l, bool is_vector) {
    red *r = w->w.r;
    emit *e = r->e;
    const ir_kernel *k = r->k;
    for (int i = 0; i < k->n_insts; i++) {
        if (k->inst[i].op != IR_K_STORE || !is_end(r, i, p->number)) continue;
        int to = k->inst[i].index;
        bool is_whole = is_vector && k->buffer[to].stride[r->last] == 1;
        if (is_whole && l) continue;
        LLVMValueRef x = v->at[k->inst[i].in[0]], at = em_add(e, s->i, em_i64s(e, l));
        e->lanes = is_whole ? LANES : 1;
        e->is_aligned = is_whole;
        em_store(e, to, is_whole ? x : em_lane(e, x, l), red_advance(e, NULL, at, e->stride[to][r->last]),
                 em_i64s(e, 1), NULL);
        e->is_aligned = false;
        e->lanes = 1;
    }
}

static void store_values(row *w, const gpu_pass *p, step *s, em_values *v) {
    emit *e = w->w.r->e;
    e->lanes = 1;
    em_branch own = em_if(e, w->is_valid);
    for (int l = 0; l < LANES; l++) {
        LLVMValueRef is_in_row = valid_lane(e, s, l);
        em_branch valid = {0};
        if (is_in_row) valid = em_if(e, is_in_row);
        store_lane(w, p, s, v, l, s->form == FORM_VECTOR);
        if (is_in_row) em_endif(e, &valid);
    }
    em_endif(e, &own);
    e->lanes = LANES;
}

/* Values of the row's level that elements of the pass use, once. */
static void find_row_values(row *w, int pass, em_values *of_row) {
    const red *r = w->w.r;
    const ir_kernel *k = r->k;
    for (int i = 0; i < k->n_insts; i++) {
        bool is_user = (w->first[i] >= 0 && w->first[i] <= pass && k->inst[i].op != IR_K_STORE) || is_end(r, i, pass);
        for (int o = 0; is_user && o < k->inst[i].n_in; o++)
            if (!is_element(r, k->inst[i].in[o]) && r->pass[k->inst[i].in[o]] <= pass)
                em_value(r->e, of_row, k->inst[i].in[o]);
    }
}

/* Lane l of a value of the pass: what does not vary along the row is one for all. */
static LLVMValueRef lane_of(emit *e, LLVMValueRef v, int l) {
    return LLVMGetTypeKind(LLVMTypeOf(v)) == LLVMVectorTypeKind ? em_lane(e, v, l) : v;
}

/* Values of the step: what the pass reduces joins the accumulators; its stores; what is kept. s->in_row is known to
 * hold. */
static void take_step(row *w, const gpu_pass *p, const em_values *of_row, step *s, bool has_kept) {
    red *r = w->w.r;
    emit *e = r->e;
    const ir_kernel *k = r->k;
    em_values v;
    em_values_init(&v, load, s);
    e->lanes = LANES;
    for (int i = 0; i < k->n_insts; i++) {
        if (of_row->at[i]) v.at[i] = em_splat(e, of_row->at[i]);
        else if (has_kept && w->is_kept[i] && !w->is_plain[i] && w->first[i] < p->number)
            v.at[i] = LLVMBuildLoad2(e->b, em_type(e, k->inst[i].dtype), s->kept[i], "");
    }
    for (int i = 0; i < k->n_insts; i++)
        for (int o = 0; is_end(r, i, p->number) && o < k->inst[i].n_in; o++) em_value(e, &v, k->inst[i].in[o]);
    for (int i = 0; i < k->n_insts && has_kept; i++)
        if (w->is_kept[i] && !w->is_plain[i] && w->first[i] == p->number)
            LLVMBuildStore(e->b, em_value(e, &v, i), s->kept[i]);
    e->lanes = 1;
    for (int l = 0; l < LANES; l++) {
        LLVMValueRef valid = valid_lane(e, s, l), i = em_add(e, s->i, em_i64s(e, l)),
                     position = red_advance(e, i, r->outer, e->size[r->last]);
        for (int a = 0; a < p->n_acc; a++) {
            int j = p->acc[a];
            LLVMValueRef x = lane_of(e, v.at[k->inst[r->reduction[j]].in[0]], l);
            red_acc now = gpu_cell_get(&w->w, j, w->acc[j][l]);
            gpu_cell_set(&w->w, j, w->acc[j][l], red_take(r, j, now, x, position, valid));
        }
    }
    if (p->has_stores) store_values(w, p, s, &v);
    e->lanes = 1;
}

static void clear(row *w, const gpu_pass *p) {
    for (int a = 0; a < p->n_acc; a++)
        for (int l = 0; l < LANES; l++)
            gpu_cell_set(&w->w, p->acc[a], w->acc[p->acc[a]][l], gpu_no_acc(&w->w, p->acc[a]));
}

/* A thread's accumulators as one, then the team's. */
static void gather(row *w, const gpu_pass *p, red_acc *acc) {
    for (int a = 0; a < p->n_acc; a++) {
        int j = p->acc[a];
        red_acc lane[LANES];
        for (int l = 0; l < LANES; l++) lane[l] = gpu_cell_get(&w->w, j, w->acc[j][l]);
        for (int half = LANES / 2; half; half /= 2)
            for (int l = 0; l < half; l++) lane[l] = red_merge(w->w.r, j, lane[l], lane[l + half]);
        acc[a] = lane[0];
    }
    gpu_combine_team(&w->w, p, acc);
}

/* ---- sweeps ---- */
/* How many steps are loaded at once: one access of each thread at a time would wait for memory most of the time. Row
 * kernels are made for rows that stay in registers, of which this would take some. */
static int streamed_steps(const row *w, int pass) {
    enum { REGISTERS = 48, MOST_INSTS = 24 };
    const ir_kernel *k = w->w.r->k;
    int registers = 0;
    for (int i = 0; i < k->n_insts; i++)
        if (is_loaded_in(w, i, pass, false)) registers += LANES * STEPS * words_of(k->inst[i].dtype);
    return k->kind == IR_KERNEL_REDUCE && registers <= REGISTERS && k->n_insts <= MOST_INSTS ? STEPS : 1;
}

/* The steps of a thread from element i on, `apart` one from the next; n of them are loaded at once. */
static void take_steps(row *w, const gpu_pass *p, const em_values *of_row, form f, LLVMValueRef i, LLVMValueRef apart,
                       int n) {
    emit *e = w->w.r->e;
    bool wanted[IR_KERNEL_MAX_INSTS];
    step s[STEPS];
    for (int j = 0; j < w->w.r->k->n_insts; j++) wanted[j] = is_loaded_in(w, j, p->number, false);
    for (int u = 0; u < n; u++) begin_step(w, f, &s[u], u ? em_add(e, s[u - 1].i, apart) : i, NULL);
    load_steps(w, s, n, wanted);
    for (int u = 0; u < n; u++) take_step(w, p, of_row, &s[u], false);
}

/* Elements [begin, end), n steps at once as long as all of them are there, then one by one. */
static void sweep_steps(row *w, const gpu_pass *p, const em_values *of_row, bool is_vector, LLVMValueRef begin,
                        LLVMValueRef end) {
    emit *e = w->w.r->e;
    LLVMValueRef lanes = em_i64s(e, LANES), apart = em_mul(e, w->w.team, lanes),
                 i = em_add(e, begin, em_mul(e, w->w.lane, lanes));
    const int n = streamed_steps(w, p->number);
    if (n > 1 || !is_vector) {
        LLVMValueRef behind = em_add(e, em_mul(e, apart, em_i64s(e, n - 1)), em_i64s(e, is_vector ? 0 : LANES - 1));
        em_loop many = em_for(e, i, em_sub(e, end, behind), em_mul(e, apart, em_i64s(e, n)));
        take_steps(w, p, of_row, is_vector ? FORM_VECTOR : FORM_WHOLE, many.i, apart, n);
        em_end(e, &many);
        gpu_keep_loop(e, &many);
        i = many.i;
    }
    em_loop rest = em_for(e, i, end, apart);
    take_steps(w, p, of_row, is_vector ? FORM_VECTOR : FORM_REST, rest.i, apart, 1);
    em_end(e, &rest);
    gpu_keep_loop(e, &rest);
}

/* Where rows are aligned their length is a multiple of LANES, so that a step is in the row or not. */
static void sweep_range(row *w, const gpu_pass *p, const em_values *of_row, LLVMValueRef begin, LLVMValueRef end) {
    emit *e = w->w.r->e;
    em_branch b = {0};
    if (w->has_vectors) {
        b = em_if(e, w->is_vector);
        sweep_steps(w, p, of_row, true, begin, end);
        em_else(e, &b);
    }
    sweep_steps(w, p, of_row, false, begin, end);
    if (w->has_vectors) em_endif(e, &b);
}

_Static_assert(IR_REDUCE_BLOCK % (IR_GPU_THREADS * LANES) == 0,
               "an accumulator's elements are as far apart in the next block");
/* Blocks [from, to) of the row. Those of one dim lie behind each other: one range. */
static void sweep(row *w, const gpu_pass *p, const em_values *of_row, LLVMValueRef from, LLVMValueRef to) {
    red *r = w->w.r;
    emit *e = r->e;
    if (r->r0 == r->last) {
        LLVMValueRef block = em_i64s(e, IR_REDUCE_BLOCK), end = em_min(e, em_mul(e, to, block), e->size[r->last]);
        r->outer = em_i64s(e, 0);
        sweep_range(w, p, of_row, em_mul(e, from, block), end);
        return;
    }
    em_loop blocks = em_for(e, from, to, em_i64s(e, 1));
    red_enter_block(r, blocks.i);
    sweep_range(w, p, of_row, r->begin, r->end);
    red_leave_block(r);
    em_end(e, &blocks);
}

typedef struct unit {
    red_at at;
    em_values v; /* of the row */
    gpu_pass p;
    red_acc acc[IR_KERNEL_MAX_INSTS];
} unit;

static void begin_unit(row *w, unit *u) {
    u->at = (red_at){w->w.r, NULL, NULL, NULL};
    em_values_init(&u->v, red_load_value, &u->at);
}

static void finish(row *w, unit *u) {
    emit *e = w->w.r->e;
    LLVMValueRef is_first = em_icmp(e, LLVMIntEQ, w->w.lane, em_i64s(e, 0));
    em_branch first = em_if(e, em_and(e, is_first, w->is_valid));
    red_finish(w->w.r, &u->v, &u->at);
    em_endif(e, &first);
}

/* The number of steps that a row kept in registers has: all its threads have some of the first. */
static int row_steps(const row *w) { return w->w.known_team ? 1 : STEPS; /* known: up to IR_BAKE_MAX elements */ }

/* All passes over a row in registers; it is not empty. */
static void kept_row(row *w, form f) {
    red *r = w->w.r;
    emit *e = r->e;
    int n = row_steps(w);
    step *s = FU_NEW_N(e->arena, step, n);
    unit *u = FU_NEW(e->arena, unit);
    bool wanted[IR_KERNEL_MAX_INSTS];
    begin_unit(w, u);
    red_enter_block(r, em_i64s(e, 0));
    for (int i = 0; i < n; i++) {
        LLVMValueRef at = em_add(e, w->w.lane, em_mul(e, w->w.team, em_i64s(e, i)));
        LLVMValueRef *kept = FU_NEW_N(e->arena, LLVMValueRef, r->k->n_insts + 1);
        e->lanes = LANES;
        for (int k = 0; k < r->k->n_insts; k++)
            if (w->is_kept[k] && !w->is_plain[k]) {
                kept[k] = em_alloca(e, em_type(e, r->k->inst[k].dtype), 16);
                LLVMBuildStore(e->b, LLVMConstNull(em_type(e, r->k->inst[k].dtype)), kept[k]); /* as in or_zero */
            }
        e->lanes = 1;
        begin_step(w, f, &s[i], em_mul(e, at, em_i64s(e, LANES)), kept);
    }
    for (int number = 0; number < w->n_passes; number++) {
        gpu_find_pass(r, number, &u->p);
        if (!u->p.n_acc && !u->p.has_stores) continue;
        find_row_values(w, number, &u->v);
        for (int i = 0; i < r->k->n_insts; i++) wanted[i] = is_loaded_in(w, i, number, true);
        if (number == 0) load_steps_in_row(w, s, n, wanted);
        clear(w, &u->p);
        for (int i = 0; i < n; i++) {
            em_branch in_row = em_if(e, s[i].in_row);
            if (number) load_steps(w, &s[i], 1, wanted); /* all of them at once would take too many registers */
            take_step(w, &u->p, &u->v, &s[i], true);
            in_row.then = LLVMGetInsertBlock(e->b);
            em_endif(e, &in_row);
            for (int k = 0; number && k < r->k->n_insts; k++) /* loaded in this branch, used in those of later passes */
                if (wanted[k] && w->is_kept[k]) s[i].raw[k] = or_zero(e, &in_row, s[i].raw[k]);
        }
        gather(w, &u->p, u->acc);
        gpu_set_results(&w->w, &u->p, u->acc, &u->v);
    }
    red_leave_block(r);
    finish(w, u);
}

/* All passes over a row, chunk by chunk. */
static void streamed_row(row *w) {
    red *r = w->w.r;
    emit *e = r->e;
    unit *u = FU_NEW(e->arena, unit);
    begin_unit(w, u);
    for (int number = 0; number < w->n_passes; number++) {
        gpu_pass *p = &u->p;
        LLVMValueRef from, to;
        gpu_find_pass(r, number, p);
        if (!p->n_acc && !p->has_stores) continue;
        find_row_values(w, number, &u->v);
        for (int a = 0; a < p->n_acc; a++) {
            gpu_cell_set(&w->w, p->acc[a], w->mine[p->acc[a]], gpu_no_acc(&w->w, p->acc[a]));
            gpu_cell_set(&w->w, p->acc[a], w->last[p->acc[a]], gpu_no_acc(&w->w, p->acc[a]));
        }
        em_loop chunks = em_for(e, em_i64s(e, 0), w->w.chunks, em_i64s(e, 1));
        gpu_chunk_range(&w->w, chunks.i, &from, &to);
        clear(w, p);
        sweep(w, p, &u->v, from, to);
        gather(w, p, u->acc);
        LLVMValueRef thread = em_and(e, chunks.i, em_sub(e, w->w.team, em_i64s(e, 1))),
                     is_mine = em_icmp(e, LLVMIntEQ, thread, w->w.lane);
        for (int a = 0; a < p->n_acc; a++) {
            int j = p->acc[a];
            red_acc mine = gpu_cell_get(&w->w, j, w->mine[j]);
            gpu_cell_set(&w->w, j, w->mine[j], gpu_select(&w->w, j, is_mine, red_merge(r, j, mine, u->acc[a]), mine));
            gpu_cell_set(&w->w, j, w->last[j], u->acc[a]);
        }
        em_end(e, &chunks);
        em_branch many = em_if(e, em_icmp(e, LLVMIntSGT, w->w.chunks, em_i64s(e, 1)));
        for (int a = 0; a < p->n_acc; a++) u->acc[a] = gpu_cell_get(&w->w, p->acc[a], w->mine[p->acc[a]]);
        gpu_combine_team(&w->w, p, u->acc);
        for (int a = 0; a < p->n_acc; a++) gpu_cell_set(&w->w, p->acc[a], w->last[p->acc[a]], u->acc[a]);
        em_endif(e, &many);
        for (int a = 0; a < p->n_acc; a++) u->acc[a] = gpu_cell_get(&w->w, p->acc[a], w->last[p->acc[a]]);
        gpu_set_results(&w->w, p, u->acc, &u->v);
    }
    finish(w, u);
}

static void kept_rows(row *w) {
    emit *e = w->w.r->e;
    em_branch b = {0};
    if (w->has_vectors) {
        b = em_if(e, w->is_vector);
        kept_row(w, FORM_VECTOR);
        em_else(e, &b);
    }
    kept_row(w, FORM_REST);
    if (w->has_vectors) em_endif(e, &b);
}

static void whole(row *w, LLVMValueRef q) {
    red *r = w->w.r;
    emit *e = r->e;
    LLVMValueRef n = e->size[r->last];
    int64_t known = -1;
    bool is_short = red_constant(n, &known), is_one = r->r0 == r->last;
    bool can_keep = is_one && (is_short || e->k->kind == IR_KERNEL_ROW) && kept_registers(w) <= KEPT_REGISTERS;
    red_enter_row(r, q);
    if (!can_keep || known == 0) {
        streamed_row(w);
        return;
    }
    if (is_short) {
        kept_rows(w);
        return;
    }
    LLVMValueRef some = em_icmp(e, LLVMIntSGT, n, em_i64s(e, 0)),
                 fits = em_icmp(e, LLVMIntSLE, n, em_i64s(e, IR_REDUCE_BLOCK));
    em_branch b = em_if(e, em_and(e, some, fits));
    kept_rows(w);
    em_else(e, &b);
    streamed_row(w);
    em_endif(e, &b);
}

/* ---- parts ---- */
static void part(row *w, LLVMValueRef q, LLVMValueRef chunk) {
    red *r = w->w.r;
    emit *e = r->e;
    LLVMValueRef number = em_add(e, em_mul(e, q, w->w.chunks), chunk), from, to;
    unit *u = FU_NEW(e->arena, unit);
    red_enter_row(r, q);
    begin_unit(w, u);
    gpu_find_pass(r, 0, &u->p);
    find_row_values(w, 0, &u->v);
    gpu_chunk_range(&w->w, chunk, &from, &to);
    clear(w, &u->p);
    sweep(w, &u->p, &u->v, from, to);
    gather(w, &u->p, u->acc);
    LLVMValueRef is_first = em_icmp(e, LLVMIntEQ, w->w.lane, em_i64s(e, 0));
    em_branch first = em_if(e, em_and(e, is_first, w->is_valid));
    for (int a = 0; a < u->p.n_acc; a++)
        red_store_partial(r, u->p.acc[a], u->acc[a], gpu_part_slot(&w->w, u->p.acc[a], number, NULL));
    em_endif(e, &first);
}

/* The parts of row q as one: by every team, and by one that is valid its results. */
static void join_parts(row *w, LLVMValueRef q) {
    red *r = w->w.r;
    emit *e = r->e;
    unit *u = FU_NEW(e->arena, unit);
    red_enter_row(r, q);
    begin_unit(w, u);
    gpu_find_pass(r, 0, &u->p);
    for (int a = 0; a < u->p.n_acc; a++)
        gpu_cell_set(&w->w, u->p.acc[a], w->mine[u->p.acc[a]], gpu_no_acc(&w->w, u->p.acc[a]));
    em_loop l = em_for(e, w->w.lane, w->w.chunks, w->w.team);
    for (int a = 0; a < u->p.n_acc; a++) {
        int j = u->p.acc[a];
        LLVMValueRef number = em_add(e, em_mul(e, q, w->w.chunks), l.i);
        red_acc one = gpu_load_partial(&w->w, j, gpu_part_slot(&w->w, j, number, NULL));
        gpu_cell_set(&w->w, j, w->mine[j], red_merge(r, j, gpu_cell_get(&w->w, j, w->mine[j]), one));
    }
    em_end(e, &l);
    for (int a = 0; a < u->p.n_acc; a++) u->acc[a] = gpu_cell_get(&w->w, u->p.acc[a], w->mine[u->p.acc[a]]);
    gpu_combine_team(&w->w, &u->p, u->acc);
    gpu_set_results(&w->w, &u->p, u->acc, &u->v);
    finish(w, u);
}

/* ---- the grid ---- */
/* Units [0, n), one a team; the number of rounds is the same for all teams of a block, for there are barriers: a team
 * beyond the last takes that too, and stores nothing. */
static void each_unit(row *w, LLVMValueRef n, void (*make)(row *w, LLVMValueRef number)) {
    emit *e = w->w.r->e;
    LLVMValueRef teams = gpu_special(e, "ntid.y"), own = gpu_special(e, "tid.y");
    em_loop l = em_for(e, em_mul(e, gpu_special(e, "ctaid.x"), teams), n, em_mul(e, gpu_special(e, "nctaid.x"), teams));
    LLVMValueRef number = em_add(e, l.i, own), lane = w->w.lane;
    w->w.lane = gpu_made_here(e, lane, l.i); /* else the addresses of all steps are made before the loop */
    w->is_valid = em_icmp(e, LLVMIntSLT, number, n);
    make(w, em_select(e, w->is_valid, number, em_sub(e, n, em_i64s(e, 1))));
    w->w.lane = lane;
    em_end(e, &l);
}

/* A block takes parts of one row, one for each team. */
static void each_part(row *w) {
    red *r = w->w.r;
    emit *e = r->e;
    LLVMValueRef teams = gpu_special(e, "ntid.y"), own = gpu_special(e, "tid.y"), one = em_i64s(e, 1);
    LLVMValueRef groups, rest, q, group;
    red_divide(e, em_sub(e, em_add(e, w->w.chunks, teams), one), teams, &groups, &rest);
    em_loop l = em_for(e, gpu_special(e, "ctaid.x"), em_mul(e, r->rows, groups), gpu_special(e, "nctaid.x"));
    red_divide(e, l.i, groups, &q, &group);
    LLVMValueRef chunk = em_add(e, em_mul(e, group, teams), own), lane = w->w.lane;
    w->w.lane = gpu_made_here(e, lane, l.i);
    w->is_valid = em_icmp(e, LLVMIntSLT, chunk, w->w.chunks);
    part(w, q, em_select(e, w->is_valid, chunk, em_sub(e, w->w.chunks, one)));
    em_branch last = em_if(e, gpu_is_last(&w->w, q, groups));
    w->is_valid = em_icmp(e, LLVMIntEQ, own, em_i64s(e, 0));
    join_parts(w, q);
    em_endif(e, &last);
    w->w.lane = lane;
    em_end(e, &l);
}

static void emit_rows(row *w) {
    red *r = w->w.r;
    emit *e = r->e;
    bool has_parts = e->k->kind == IR_KERNEL_REDUCE && !(w->w.known_team && r->r0 == r->last);
    em_branch cut;
    if (has_parts) {
        cut = em_if(e, w->w.is_cut);
        w->w.is_last = gpu_shared(e, e->t_i32, 1);
        each_part(w);
        em_else(e, &cut);
    }
    each_unit(w, r->rows, whole);
    if (has_parts) em_endif(e, &cut);
}

/* Registers that a thread may have, by what is in some at once: loads, or what is kept of a row, and accumulators.
 * Without a limit ptxas takes more, and fewer threads have room; with it, it spills nothing of sums, softmax and layer_norm
 * for sm_90a. Older ones need more for the same. */
static int most_registers(const row *w) {
    const red *r = w->w.r;
    int registers = 0;
    for (int pass = 0; pass < w->n_passes; pass++) {
        int of_pass = 0;
        for (int i = 0; i < r->k->n_insts; i++)
            if (is_loaded_in(w, i, pass, false))
                of_pass += streamed_steps(w, pass) * LANES * words_of(r->k->inst[i].dtype);
        for (int j = 0; j < r->n_reductions; j++)
            if (r->pass[r->reduction[j]] == pass + 1)
                of_pass += LANES * (words_of(red_type(r, j)) + (red_is_arg(r, j) ? 2 : 0));
        if (of_pass > registers) registers = of_pass;
    }
    registers += r->k->kind == IR_KERNEL_ROW ? kept_registers(w) : 0;
    registers += r->k->level == IR_LEVEL_SM90A ? 0 : 16;
    return registers <= 20 ? 40 : registers <= 36 ? 48 : registers <= 52 ? 64 : registers <= 68 ? 80 : 128;
}

fusor_status gpu_emit_row(emit *e, fu_error *err) {
    row *w = FU_NEW(e->arena, row);
    FU_TRY(red_init(e, err, &w->w.r));
    red *r = w->w.r;
    int64_t n = e->k->dim[r->last].size;
    w->w.chunks = gpu_word(e, IR_GPU_WORD_CHUNKS);
    w->w.counters = gpu_word(e, IR_GPU_WORD_COUNTERS);
    w->w.is_cut = em_icmp(e, LLVMIntNE, w->w.counters, em_i64s(e, 0));
    if (r->v >= 0) {
        gpu_emit_columns(&w->w);
        return FUSOR_OK;
    }
    w->w.known_team = n == IR_SIZE_RUNTIME ? 0 : ir_gpu_team(n);
    w->w.team = w->w.known_team ? em_i64s(e, w->w.known_team) : gpu_special(e, "ntid.x");
    w->w.lane = gpu_special(e, "tid.x");
    w->w.thread = em_add(e, em_mul(e, gpu_special(e, "tid.y"), w->w.team), w->w.lane);
    w->has_vectors = ir_gpu_lanes(e->k) > 1;
    w->is_vector = em_icmp(e, LLVMIntNE, gpu_word(e, IR_GPU_WORD_HOW), em_i64s(e, 0));
    w->n_passes = gpu_passes(r);
    find_needs(w);
    w->acc = FU_NEW_N(e->arena, lane_cells, r->n_reductions + 1);
    w->mine = FU_NEW_N(e->arena, gpu_cell, r->n_reductions + 1);
    w->last = FU_NEW_N(e->arena, gpu_cell, r->n_reductions + 1);
    for (int j = 0; j < r->n_reductions; j++) {
        for (int l = 0; l < LANES; l++) w->acc[j][l] = gpu_cell_new(&w->w, j);
        w->mine[j] = gpu_cell_new(&w->w, j);
        w->last[j] = gpu_cell_new(&w->w, j);
    }
    if (!w->w.known_team || w->w.known_team > IR_GPU_WARP)
        w->w.slots =
            gpu_shared(e, e->t_i64, (gpu_most_accs(r) + 1) * WARPS * IR_PARTIAL_BYTES / 8); /* one read beyond */
    gpu_limit_registers(e, most_registers(w));
    emit_rows(w);
    return FUSOR_OK;
}
