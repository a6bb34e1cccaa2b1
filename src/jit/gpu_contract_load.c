/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_contract_load.c: operands of a contraction without tensor cores, where they are not copied as they lie
 * (gpu_contract_copy.c): from memory to registers, while another step is multiplied, and from there to shared memory. An
 * operand that is a plain load of what lies side by side, along its rows or along k, is read 16 bytes at a time where
 * addresses allow it: products past the end of k are not read, and are 0 in shared memory; in the place of rows past the
 * edge the first one is read, as nobody stores their sums. Else its elements are evaluated one by one, element-wise
 * producers with them, and go to shared memory at once.
 *
 * Operand 1 of a convolution is gathered: a thread has one column of the tile, whose address it knows, and some
 * products of each step; where these are from there on is the same for all columns, so threads of one warp note it for
 * the next step in a table. */
#include "jit/gpu_contract.h"

static LLVMValueRef num(contract *c, int64_t v) { return fma_num(c, v); }

LLVMValueRef fma_offset(const fma_point *at, int buffer) {
    contract *c = at->c;
    LLVMValueRef off = c->batch_off[buffer];
    for (ir_gpu_axis i = 0; i < 3; i++)
        if (at->x[i]) off = em_add(c->e, off, gpu_space_offset(c->e, &c->s, i, buffer, at->x[i]));
    return off;
}

LLVMValueRef fma_load(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    const fma_point *at = user;
    const contract *c = at->c;
    if (inst->op == IR_K_LOAD) return em_load_value(e, v, inst, -1, fma_offset(at, inst->index), em_i64s(e, 0), NULL);
    for (ir_gpu_axis i = 0; i < 3; i++) {
        LLVMValueRef index = at->x[i] ? gpu_space_index(e, &c->s, i, inst->index, at->x[i]) : NULL;
        if (index) return index;
    }
    return c->index[inst->index];
}

static bool is_plain(const contract *c, int inst) {
    return c->k->inst[inst].op == IR_K_LOAD && !c->k->inst[inst].variant;
}

/* Of what the operand loads, is something adjacent along its rows, and nothing along k? */
static bool is_row_fast(const contract *c, const fma_operand *o) {
    bool along_row = false, along_k = false;
    if (is_plain(c, o->inst)) {
        const int64_t *stride = c->k->buffer[c->k->inst[o->inst].index].stride;
        return stride[o->row_dim] == 1 && stride[c->dim[IR_GPU_PRODUCTS]] != 1;
    }
    for (int b = 0; b < c->k->n_buffers; b++) {
        if (c->k->buffer[b].is_output) continue;
        along_row |= c->k->buffer[b].stride[o->row_dim] == 1 && (ir_kernel_varies(c->k, o->inst) >> o->row_dim & 1);
        along_k |= c->k->buffer[b].stride[c->dim[IR_GPU_PRODUCTS]] == 1;
    }
    return along_row && !along_k;
}

static fma_way way_of(contract *c, const fma_operand *o, int n) {
    emit *e = c->e;
    const int places = o->rows * c->t->step / n, side = o->is_row_fast ? o->rows : c->t->step, of_line = side / n;
    fma_way w = {.n = n, .threads = places < IR_GPU_THREADS ? places : IR_GPU_THREADS};
    w.passes = places / w.threads;
    LLVMValueRef fast = em_mul(e, em_and(e, c->thread, num(c, of_line - 1)), num(c, n));
    LLVMValueRef slow = LLVMBuildUDiv(e->b, c->thread, num(c, of_line), "");
    w.row = o->is_row_fast ? fast : slow;
    w.k = o->is_row_fast ? slow : fast;
    *(o->is_row_fast ? &w.k_step : &w.row_step) = w.threads / of_line;
    return w;
}

void fma_find_operands(contract *c) {
    for (int i = 0; i < 2; i++) {
        fma_operand *o = &c->operand[i];
        o->inst = c->k->inst[c->matmul].in[i];
        o->axis = i ? IR_GPU_COLUMNS : IR_GPU_ROWS;
        o->row_dim = c->dim[i];
        o->is_gathered = c->table && i == 1;
        o->is_row_fast = o->is_gathered || is_row_fast(c, o);
        o->is_copied = fma_is_copied(c, o);
    }
}

static bool has_copies(const contract *c) { return c->operand[0].is_copied || c->operand[1].is_copied; }

int fma_stages(const contract *c, const ir_gpu_fma_tile *t) {
    enum { MOST = 4, ROOM = 47 << 10 }; /* of 48 KB; the rest is for the table of gathers */
    const int bytes = fma_stage_elements(t) * ir_dtypes[c->acc].bytes;
    if (!has_copies(c) || 2 * bytes > ROOM) return 2;
    return ROOM / bytes < MOST ? ROOM / bytes : MOST;
}

void fma_lay_out(contract *c) {
    for (int i = 0; i < 2; i++) {
        fma_operand *o = &c->operand[i];
        o->rows = i ? c->t->columns : c->t->rows;
        o->line = o->rows + FMA_PAD;
        o->way[FMA_VECTORS] = way_of(c, o, c->vec);
        o->way[FMA_SINGLES] = way_of(c, o, 1);
    }
    c->stages = fma_stages(c, c->t);
}

/* Can the operand, a plain load, be taken vec elements at a time in this batch? */
LLVMValueRef fma_can_take_vectors(contract *c, const fma_operand *o) {
    emit *e = c->e;
    /* several dims are one in memory in a convolution's weights alone */
    const bool is_one = c->s.of.n[o->axis] == 1 && (c->table || c->s.of.n[IR_GPU_PRODUCTS] == 1);
    if (!is_plain(c, o->inst) || !is_one) return NULL;
    const int buffer = c->k->inst[o->inst].index, along = o->is_row_fast ? o->row_dim : c->dim[IR_GPU_PRODUCTS];
    const ir_kbuffer *b = &c->k->buffer[buffer];
    if (b->stride[along] != 1) return NULL;
    LLVMValueRef at = em_gep(e, e->base[buffer], em_memory_type(e, b->dtype), c->batch_off[buffer]);
    LLVMValueRef bits = LLVMBuildPtrToInt(e->b, at, e->t_i64, "");
    LLVMValueRef steps = em_or(e, e->stride[buffer][o->is_row_fast ? c->dim[IR_GPU_PRODUCTS] : o->row_dim],
                               c->s.size[o->is_row_fast ? o->axis : IR_GPU_PRODUCTS]);
    bits =
        em_or(e, em_and(e, bits, num(c, c->vec * ir_dtypes[b->dtype].bytes - 1)), em_and(e, steps, num(c, c->vec - 1)));
    LLVMValueRef has_any = em_icmp(e, LLVMIntSGT, c->s.size[IR_GPU_PRODUCTS], num(c, 0));
    return em_and(e, has_any, em_icmp(e, LLVMIntEQ, bits, num(c, 0)));
}

/* A thread's places that begin in rows of their own. */
static int places_of(const fma_operand *o) { return o->way[FMA_VECTORS].row_step ? o->way[FMA_VECTORS].passes : 1; }

/* Offset of the thread's row (one for each place, where these differ in it), or of row 0 where it is past the edge. */
static void find_rows(contract *c, fma_operand *o) {
    emit *e = c->e;
    const int buffer = c->k->inst[o->inst].index;
    const fma_way *w = &o->way[FMA_VECTORS];
    for (int p = 0; p < places_of(o); p++) {
        LLVMValueRef row = em_add(e, em_add(e, c->first[o->axis], w->row), num(c, p * w->row_step));
        LLVMValueRef inside = em_icmp(e, LLVMIntSLT, row, c->s.size[o->axis]);
        row = em_mul(e, em_select(e, inside, row, num(c, 0)), e->stride[buffer][o->row_dim]);
        o->offset[p] = em_add(e, c->batch_off[buffer], row);
    }
}

static LLVMValueRef is_product(contract *c, LLVMValueRef k) {
    return em_icmp(c->e, LLVMIntSLT, k, c->s.size[IR_GPU_PRODUCTS]);
}

/* The first product of a thread's place, of the step from k0 on. */
static LLVMValueRef place_k(contract *c, const fma_operand *o, LLVMValueRef k0, int place) {
    const fma_way *w = &o->way[FMA_VECTORS];
    return em_add(c->e, k0, em_add(c->e, w->k, num(c, place * w->k_step)));
}

/* ---- gathers ---- */
/* Column 0 is read in the place of those past the edge. */
LLVMValueRef fma_gather_column(contract *c, const fma_operand *o) {
    emit *e = c->e;
    const int buffer = c->k->inst[o->inst].index;
    LLVMValueRef column = em_add(e, c->first[1], o->way[FMA_SINGLES].row);
    LLVMValueRef inside = em_icmp(e, LLVMIntSLT, column, c->s.size[IR_GPU_COLUMNS]);
    column = em_select(e, inside, column, num(c, 0));
    return em_add(e, c->batch_off[buffer], gpu_space_offset(e, &c->s, IR_GPU_COLUMNS, buffer, column));
}

static LLVMValueRef table_at(contract *c, LLVMValueRef k, LLVMValueRef i) {
    emit *e = c->e;
    LLVMValueRef half = em_and(e, k, num(c, c->t->step)); /* every other step */
    return em_gep(e, c->table, e->t_i32, em_add(e, half, i));
}

LLVMValueRef fma_table_offset(contract *c, LLVMValueRef k, LLVMValueRef i) {
    LLVMValueRef off = LLVMBuildLoad2(c->e->b, c->e->t_i32, table_at(c, k, i), "");
    LLVMSetAlignment(off, 4);
    return LLVMBuildSExt(c->e->b, off, c->e->t_i64, "");
}

void fma_fill_table(contract *c, LLVMValueRef k) {
    emit *e = c->e;
    if (!c->table) return;
    const int buffer = c->k->inst[c->operand[1].inst].index;
    em_branch few = em_if(e, em_icmp(e, LLVMIntULT, c->thread, num(c, c->t->step)));
    LLVMValueRef product = em_add(e, k, c->thread);
    product = em_select(e, em_icmp(e, LLVMIntSLT, product, c->s.size[IR_GPU_PRODUCTS]), product, num(c, 0));
    LLVMValueRef off = gpu_space_offset(e, &c->s, IR_GPU_PRODUCTS, buffer, product);
    LLVMSetAlignment(LLVMBuildStore(e->b, LLVMBuildTrunc(e->b, off, e->t_i32, ""), table_at(c, k, c->thread)), 4);
    em_endif(e, &few);
}

static void gather(contract *c, fma_operand *o, LLVMValueRef k0) {
    emit *e = c->e;
    const ir_kinst *in = &c->k->inst[o->inst];
    const fma_way *w = &o->way[FMA_SINGLES];
    LLVMValueRef read[FMA_LOADS];
    em_branch b = em_if(e, o->can);
    for (int p = 0; p < w->passes; p++) {
        LLVMValueRef i = em_add(e, w->k, num(c, p * w->k_step));
        LLVMValueRef off = em_add(e, o->offset[0], fma_table_offset(c, k0, i));
        read[p] = em_cast(e, em_load(e, in->index, off, num(c, 1), NULL), in->dtype, c->acc);
    }
    LLVMBasicBlockRef then = LLVMGetInsertBlock(e->b);
    em_endif(e, &b);
    for (int p = 0; p < w->passes; p++) {
        o->value[p] = LLVMBuildPhi(e->b, c->t_acc, "");
        LLVMAddIncoming(o->value[p], (LLVMValueRef[]){read[p], LLVMConstNull(c->t_acc)},
                        (LLVMBasicBlockRef[]){then, b.other}, 2);
    }
}

/* What was read for product k, or 0 where there is no such product. Only here, so that nothing waits for memory before
 * the products of the step are made. Rows past the edge need no 0: nobody stores their sums. */
static LLVMValueRef product_or_0(contract *c, LLVMValueRef k, LLVMValueRef v) {
    return em_select(c->e, is_product(c, k), v, LLVMConstNull(LLVMTypeOf(v)));
}

static void put_gathered(contract *c, const fma_operand *o, LLVMValueRef to, LLVMValueRef k0) {
    emit *e = c->e;
    const fma_way *w = &o->way[FMA_SINGLES];
    to = em_gep(e, to, c->t_acc, em_add(e, em_mul(e, w->k, num(c, o->line)), w->row));
    for (int p = 0; p < w->passes; p++) {
        LLVMValueRef at = em_gep(e, to, c->t_acc, num(c, p * w->k_step * o->line));
        LLVMValueRef k = em_add(e, em_add(e, k0, w->k), num(c, p * w->k_step));
        LLVMSetAlignment(LLVMBuildStore(e->b, product_or_0(c, k, o->value[p]), at), ir_dtypes[c->acc].bytes);
    }
}

void fma_begin_tile(contract *c) {
    for (int i = 0; i < 2; i++) {
        fma_operand *o = &c->operand[i];
        if (o->is_copied) {
            fma_begin_copies(c, o);
        } else if (o->is_gathered) {
            o->offset[0] = fma_gather_column(c, o);
            o->can = em_icmp(c->e, LLVMIntSGT, c->s.size[IR_GPU_PRODUCTS], num(c, 0));
        } else {
            o->can = fma_can_take_vectors(c, o);
            if (o->can) find_rows(c, o);
        }
    }
}

static LLVMValueRef k_stride(contract *c, const fma_operand *o) {
    return c->e->stride[c->k->inst[o->inst].index][c->dim[IR_GPU_PRODUCTS]];
}

void fma_begin(contract *c, LLVMValueRef k) {
    emit *e = c->e;
    for (int i = 0; i < 2; i++) {
        fma_operand *o = &c->operand[i];
        if (o->is_gathered) continue;
        if (o->is_copied) {
            LLVMValueRef bytes = num(c, ir_dtypes[c->acc].bytes);
            o->copy.from = em_gep(e, o->copy.from, e->t_i8, em_mul(e, em_mul(e, k, k_stride(c, o)), bytes));
            continue;
        }
        if (!o->can) continue;
        LLVMValueRef ahead = em_mul(e, em_add(e, k, o->way[FMA_VECTORS].k), k_stride(c, o));
        for (int r = 0; r < places_of(o); r++) o->offset[r] = em_add(e, o->offset[r], ahead);
    }
}

int fma_places(contract *c, LLVMValueRef **out) {
    int n = 0;
    for (int i = 0; i < 2; i++) {
        fma_operand *o = &c->operand[i];
        if (o->is_gathered) continue;
        if (o->is_copied) out[n++] = &o->copy.from;
        for (int r = 0; !o->is_copied && o->can && r < places_of(o); r++) out[n++] = &o->offset[r];
    }
    return n;
}

static void fetch(contract *c, fma_operand *o, LLVMValueRef k0) {
    emit *e = c->e;
    const ir_kinst *in = &c->k->inst[o->inst];
    const fma_way *w = &o->way[FMA_VECTORS];
    LLVMTypeRef type = LLVMVectorType(c->t_acc, (unsigned)c->vec);
    for (int p = 0; p < w->passes; p++) {
        LLVMValueRef off = em_add(e, o->offset[w->row_step ? p : 0], em_mul(e, num(c, p * w->k_step), k_stride(c, o)));
        em_branch b = em_if(e, em_and(e, o->can, is_product(c, place_k(c, o, k0, p))));
        e->lanes = c->vec;
        e->is_aligned = true;
        LLVMValueRef v = em_cast(e, em_load(e, in->index, off, num(c, 1), NULL), in->dtype, c->acc);
        e->is_aligned = false;
        e->lanes = 1;
        LLVMBasicBlockRef then = LLVMGetInsertBlock(e->b);
        em_endif(e, &b);
        o->value[p] = LLVMBuildPhi(e->b, type, "");
        LLVMAddIncoming(o->value[p], (LLVMValueRef[]){v, LLVMGetUndef(type)}, (LLVMBasicBlockRef[]){then, b.other}, 2);
    }
    for (int r = 0; r < places_of(o); r++)
        o->offset[r] = em_add(e, o->offset[r], em_mul(e, num(c, c->t->step), k_stride(c, o)));
}

static LLVMValueRef part_of(contract *c, int operand, LLVMValueRef stage) {
    LLVMValueRef to = em_add(c->e, stage, num(c, operand ? c->operand[0].line * c->t->step : 0));
    return em_gep(c->e, c->shared, c->t_acc, to);
}

void fma_take(contract *c, LLVMValueRef stage, LLVMValueRef k) {
    for (int i = 0; i < 2; i++)
        if (c->operand[i].is_copied) fma_copy(c, &c->operand[i], part_of(c, i, stage), k);
    if (has_copies(c)) gpu_commit_copies(c->e);
    for (int i = 0; i < 2; i++)
        if (!c->operand[i].is_copied && c->operand[i].can)
            (c->operand[i].is_gathered ? gather : fetch)(c, &c->operand[i], k);
}

void fma_wait(contract *c, int but) {
    if (has_copies(c)) gpu_wait_for_copies(c->e, but);
}

static void put_vectors(contract *c, const fma_operand *o, LLVMValueRef to, LLVMValueRef k0) {
    emit *e = c->e;
    const fma_way *w = &o->way[FMA_VECTORS];
    em_branch few;
    to = em_gep(e, to, c->t_acc, em_add(e, em_mul(e, w->k, num(c, o->line)), w->row));
    if (w->threads < IR_GPU_THREADS) few = em_if(e, em_icmp(e, LLVMIntSLT, c->thread, num(c, w->threads)));
    for (int p = 0; p < w->passes; p++) {
        LLVMValueRef at = em_gep(e, to, c->t_acc, num(c, p * (w->k_step * o->line + w->row_step)));
        LLVMValueRef v = product_or_0(c, place_k(c, o, k0, p), o->value[p]);
        if (o->is_row_fast) {
            LLVMSetAlignment(LLVMBuildStore(e->b, v, at), 16);
            continue;
        }
        for (int l = 0; l < c->vec; l++) {
            LLVMValueRef one = LLVMBuildExtractElement(e->b, v, num(c, l), "");
            one = LLVMBuildStore(e->b, one, em_gep(e, at, c->t_acc, num(c, l * o->line)));
            LLVMSetAlignment(one, ir_dtypes[c->acc].bytes);
        }
    }
    if (w->threads < IR_GPU_THREADS) em_endif(e, &few);
}

/* Evaluated one by one, straight to shared memory. */
static void put_elements(contract *c, const fma_operand *o, LLVMValueRef to, LLVMValueRef k0) {
    emit *e = c->e;
    const int side = o->is_row_fast ? o->rows : c->t->step;
    const contract around = *c;
    fma_unpark(c);
    em_loop l = em_for(e, c->thread, num(c, o->rows * c->t->step), num(c, IR_GPU_THREADS));
    LLVMValueRef fast = em_and(e, l.i, num(c, side - 1)), slow = LLVMBuildUDiv(e->b, l.i, num(c, side), "");
    LLVMValueRef x = o->is_row_fast ? fast : slow, y = o->is_row_fast ? slow : fast;
    LLVMValueRef row = em_add(e, c->first[o->axis], x), k = em_add(e, k0, y);
    fma_point at = {c, {o->axis == IR_GPU_ROWS ? row : NULL, o->axis == IR_GPU_COLUMNS ? row : NULL, k}};
    em_values v;
    em_values_init(&v, fma_load, &at);
    em_branch b = em_if(e, em_and(e, em_icmp(e, LLVMIntSLT, row, c->s.size[o->axis]),
                                  em_icmp(e, LLVMIntSLT, k, c->s.size[IR_GPU_PRODUCTS])));
    LLVMValueRef value = em_cast(e, em_value(e, &v, o->inst), c->k->inst[o->inst].dtype, c->acc);
    LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b);
    em_endif(e, &b);
    LLVMValueRef phi = LLVMBuildPhi(e->b, c->t_acc, ""), zero = LLVMConstNull(c->t_acc);
    LLVMAddIncoming(phi, (LLVMValueRef[]){value, zero}, (LLVMBasicBlockRef[]){from, b.other}, 2);
    to = em_gep(e, to, c->t_acc, em_add(e, em_mul(e, y, num(c, o->line)), x));
    LLVMSetAlignment(LLVMBuildStore(e->b, phi, to), ir_dtypes[c->acc].bytes);
    em_end(e, &l);
    gpu_keep_loop(e, &l);
    *c = around;
}

void fma_put(contract *c, LLVMValueRef stage, LLVMValueRef k) {
    emit *e = c->e;
    for (int i = 0; i < 2; i++) {
        const fma_operand *o = &c->operand[i];
        if (o->is_copied) continue;
        LLVMValueRef to = part_of(c, i, stage);
        if (o->is_gathered) {
            put_gathered(c, o, to, k);
            continue;
        }
        if (!o->can) {
            put_elements(c, o, to, k);
            continue;
        }
        em_branch b = em_if(e, o->can);
        put_vectors(c, o, to, k);
        em_else(e, &b);
        put_elements(c, o, to, k);
        em_endif(e, &b);
    }
}
