/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_contract.c: contractions on a GPU, in the accumulator's own arithmetic (f32: fma, no tensor cores). A block of 16 x 16
 * threads makes TILE x TILE elements, each thread PART x PART of them:
 *
 *   for each K block, for each STEP products: operands' values -> shared memory (element-wise prologues are evaluated here; what is
 *       past an edge is 0); barrier; each thread adds PART x PART x STEP products to its accumulators
 *   totals -> shared memory; each thread evaluates the epilogue of every 256th element, so that stores are contiguous
 *
 * The order of an element's sum is that of the CPU's kernels: products from 0 upwards in K blocks, then block sums in order. */
#include "jit/gpu.h"

enum { TILE = IR_GPU_CONTRACT_TILE, STEP = IR_GPU_CONTRACT_K, SIDE = 16, PART = TILE / SIDE };

typedef struct contract {
    emit *e;
    const ir_kernel *k;
    int dim_m, dim_n, dim_k, matmul;
    ir_dtype acc;
    LLVMTypeRef t_acc;
    LLVMValueRef shared, thread, m0, n0;
    LLVMValueRef index[IR_KERNEL_MAX_DIMS], batch_off[IR_KERNEL_MAX_BUFFERS];
} contract;

typedef struct point {
    contract *c;
    LLVMValueRef m, n, k;
} point; /* NULL: does not vary along it */

static LLVMValueRef num(contract *c, int64_t v) { return em_i64s(c->e, v); }

static LLVMValueRef offset(const point *at, int buffer) {
    contract *c = at->c;
    LLVMValueRef off = c->batch_off[buffer], x[3] = {at->m, at->n, at->k};
    const int dim[3] = {c->dim_m, c->dim_n, c->dim_k};
    for (int i = 0; i < 3; i++)
        if (x[i] && c->k->buffer[buffer].stride[dim[i]] != 0)
            off = em_add(c->e, off, em_mul(c->e, x[i], c->e->stride[buffer][dim[i]]));
    return off;
}

static LLVMValueRef load(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    const point *at = user;
    const contract *c = at->c;
    if (inst->op == IR_K_LOAD) return em_load_value(e, v, inst, -1, offset(at, inst->index), em_i64s(e, 0), NULL);
    return inst->index == c->dim_m   ? at->m
           : inst->index == c->dim_n ? at->n
           : inst->index == c->dim_k ? at->k
                                     : c->index[inst->index];
}

static void enter_batch(contract *c, LLVMValueRef number) {
    emit *e = c->e;
    for (int d = c->dim_m - 1; d >= 0; d--) {
        c->index[d] = d ? LLVMBuildURem(e->b, number, e->size[d], "") : number;
        if (d) number = LLVMBuildUDiv(e->b, number, e->size[d], "");
    }
    for (int b = 0; b < c->k->n_buffers; b++) {
        c->batch_off[b] = num(c, 0);
        for (int d = 0; d < c->dim_m; d++)
            if (c->k->buffer[b].stride[d] != 0)
                c->batch_off[b] = em_add(e, c->batch_off[b], em_mul(e, c->index[d], e->stride[b][d]));
    }
}

/* ---- operands into shared memory: [STEP][TILE] of operand 0, then of operand 1 ---- */
static LLVMValueRef slot(contract *c, LLVMValueRef i) { return em_gep(c->e, c->shared, c->t_acc, i); }

static void stage(contract *c, int operand, LLVMValueRef k0) {
    emit *e = c->e;
    int inst = c->k->inst[c->matmul].in[operand], row_dim = operand ? c->dim_n : c->dim_m;
    bool is_row_fast = false; /* threads side by side read what lies side by side */
    for (int b = 0; b < c->k->n_buffers; b++)
        if (!c->k->buffer[b].is_output && c->k->buffer[b].stride[row_dim] == 1 &&
            (ir_kernel_varies(c->k, inst) >> row_dim & 1))
            is_row_fast = true;
    LLVMValueRef first = operand ? c->n0 : c->m0;
    em_loop l = em_for(e, c->thread, num(c, TILE * STEP), num(c, IR_GPU_THREADS));
    LLVMValueRef row = is_row_fast ? em_and(e, l.i, num(c, TILE - 1)) : em_lshr(e, l.i, 4);
    LLVMValueRef k = is_row_fast ? em_lshr(e, l.i, 6) : em_and(e, l.i, num(c, STEP - 1));
    LLVMValueRef at_row = em_add(e, first, row), at_k = em_add(e, k0, k);
    point at = {c, operand ? NULL : at_row, operand ? at_row : NULL, at_k};
    LLVMValueRef inside =
        em_and(e, em_icmp(e, LLVMIntSLT, at_row, e->size[row_dim]), em_icmp(e, LLVMIntSLT, at_k, e->size[c->dim_k]));
    em_values v;
    em_values_init(&v, load, &at);
    em_branch b = em_if(e, inside);
    LLVMValueRef value = em_cast(e, em_value(e, &v, inst), c->k->inst[inst].dtype, c->acc),
                 zero = LLVMConstNull(c->t_acc);
    LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b);
    em_endif(e, &b);
    LLVMValueRef phi = LLVMBuildPhi(e->b, c->t_acc, "");
    LLVMAddIncoming(phi, (LLVMValueRef[]){value, zero}, (LLVMBasicBlockRef[]){from, b.other}, 2);
    LLVMValueRef to = em_add(e, em_add(e, em_mul(e, k, num(c, TILE)), row), num(c, operand ? STEP * TILE : 0));
    LLVMSetAlignment(LLVMBuildStore(e->b, phi, slot(c, to)), ir_dtypes[c->acc].bytes);
    em_end(e, &l);
}

static LLVMValueRef load_slot(contract *c, LLVMValueRef i) {
    LLVMValueRef v = LLVMBuildLoad2(c->e->b, c->t_acc, slot(c, i), "");
    LLVMSetAlignment(v, ir_dtypes[c->acc].bytes);
    return v;
}

/* ---- products ---- */
/* acc += what STEP products give. Thread (x, y) has rows PART * y + i and columns x + SIDE * j. */
static void add_products(contract *c, LLVMValueRef *acc, LLVMValueRef x, LLVMValueRef y) {
    emit *e = c->e;
    LLVMValueRef a[PART], b[PART];
    em_loop l = em_for(e, num(c, 0), num(c, STEP), num(c, 1));
    LLVMValueRef phi[PART * PART], row = em_mul(e, l.i, num(c, TILE));
    for (int i = 0; i < PART * PART; i++) phi[i] = em_loop_phi(e, &l, acc[i]);
    for (int i = 0; i < PART; i++)
        a[i] = load_slot(c, em_add(e, row, em_add(e, em_mul(e, y, num(c, PART)), num(c, i))));
    for (int j = 0; j < PART; j++) b[j] = load_slot(c, em_add(e, row, em_add(e, x, num(c, STEP * TILE + SIDE * j))));
    for (int i = 0; i < PART * PART; i++) {
        LLVMValueRef p = a[i / PART], q = b[i % PART];
        em_loop_next(e, phi[i], ir_is_float(c->acc) ? em_mad(e, p, q, phi[i]) : em_add(e, em_mul(e, p, q), phi[i]));
    }
    em_end(e, &l);
    for (int i = 0; i < PART * PART; i++) acc[i] = phi[i];
}

/* A loop with an accumulator for each element of the thread. */
static em_loop begin(contract *c, LLVMValueRef from, LLVMValueRef to, LLVMValueRef step, LLVMValueRef *acc) {
    em_loop l = em_for(c->e, from, to, step);
    for (int i = 0; i < PART * PART; i++) acc[i] = em_loop_phi(c->e, &l, acc[i]);
    return l;
}

static void sum_up(contract *c, LLVMValueRef *total, LLVMValueRef x, LLVMValueRef y) {
    emit *e = c->e;
    LLVMValueRef kb = num(c, c->k->tile.kb), kk = e->size[c->dim_k];
    for (int i = 0; i < PART * PART; i++) total[i] = LLVMConstNull(c->t_acc);
    em_loop block = begin(c, num(c, 0), kk, kb, total);
    LLVMValueRef sum[PART * PART], now[PART * PART], end = em_add(e, block.i, kb);
    end = em_select(e, em_icmp(e, LLVMIntSLT, end, kk), end, kk);
    for (int i = 0; i < PART * PART; i++) sum[i] = LLVMConstNull(c->t_acc);
    em_loop step = begin(c, block.i, end, num(c, STEP), sum);
    stage(c, 0, step.i);
    stage(c, 1, step.i);
    gpu_barrier(e);
    for (int i = 0; i < PART * PART; i++) now[i] = sum[i];
    add_products(c, now, x, y);
    gpu_barrier(e);
    for (int i = 0; i < PART * PART; i++) em_loop_next(e, sum[i], now[i]);
    em_end(e, &step);
    for (int i = 0; i < PART * PART; i++)
        em_loop_next(e, total[i], ir_is_float(c->acc) ? em_fadd(e, total[i], sum[i]) : em_add(e, total[i], sum[i]));
    em_end(e, &block);
}

/* ---- the epilogue ---- */
static void emit_epilogue(contract *c) {
    emit *e = c->e;
    const ir_kernel *k = c->k;
    em_loop l = em_for(e, c->thread, num(c, TILE * TILE), num(c, IR_GPU_THREADS));
    point at = {c, em_add(e, c->m0, em_lshr(e, l.i, 6)), em_add(e, c->n0, em_and(e, l.i, num(c, TILE - 1))), NULL};
    em_branch b = em_if(
        e, em_and(e, em_icmp(e, LLVMIntSLT, at.m, e->size[c->dim_m]), em_icmp(e, LLVMIntSLT, at.n, e->size[c->dim_n])));
    em_values v;
    em_values_init(&v, load, &at);
    v.at[c->matmul] = em_cast(e, load_slot(c, l.i), c->acc, k->inst[c->matmul].dtype);
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE) em_value(e, &v, i);
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE)
            em_store(e, k->inst[i].index, em_value(e, &v, i), offset(&at, k->inst[i].index), num(c, 1), NULL);
    em_endif(e, &b);
    em_end(e, &l);
}

static void emit_block(contract *c, LLVMValueRef batch) {
    emit *e = c->e;
    LLVMValueRef x = em_and(e, c->thread, num(c, SIDE - 1)), y = em_lshr(e, c->thread, 4), total[PART * PART];
    enter_batch(c, batch);
    sum_up(c, total, x, y);
    for (int i = 0; i < PART * PART; i++) {
        LLVMValueRef row = em_add(e, em_mul(e, y, num(c, PART)), num(c, i / PART));
        LLVMValueRef to = em_add(e, em_mul(e, row, num(c, TILE)), em_add(e, x, num(c, SIDE * (i % PART))));
        LLVMSetAlignment(LLVMBuildStore(e->b, total[i], slot(c, to)), ir_dtypes[c->acc].bytes);
    }
    gpu_barrier(e);
    emit_epilogue(c);
    gpu_barrier(e); /* before the next block's operands */
}

fusor_status gpu_emit_contract(emit *e, fu_error *err) {
    if (ir_gpu_is_mma(e->k)) return gpu_emit_mma(e, err);
    contract *c = FU_NEW(e->arena, contract);
    const ir_kernel *k = e->k;
    c->e = e;
    c->k = k;
    c->dim_m = k->n_dims - 3;
    c->dim_n = k->n_dims - 2;
    c->dim_k = k->n_dims - 1;
    for (int d = 0; d < c->dim_m; d++)
        if (k->dim[d].role != 'b')
            return FU_FAIL(err, FUSOR_ERROR_UNSUPPORTED,
                           "a contraction with several m, n or k dims has no code on a GPU yet");
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_OP_MATMUL) c->matmul = i;
    c->acc = ir_kernel_contract_acc(k);
    c->t_acc = em_scalar_type(e, c->acc);
    c->shared = gpu_shared(e, c->t_acc, TILE * TILE);
    c->thread = gpu_special(e, "tid.x");
    LLVMValueRef batches = num(c, 1), tile = num(c, TILE);
    for (int d = 0; d < c->dim_m; d++) batches = em_mul(e, batches, e->size[d]);
    em_loop lb = em_for(e, gpu_special(e, "ctaid.z"), batches, gpu_special(e, "nctaid.z"));
    em_loop lm = em_for(e, em_mul(e, gpu_special(e, "ctaid.y"), tile), e->size[c->dim_m],
                        em_mul(e, gpu_special(e, "nctaid.y"), tile));
    em_loop ln = em_for(e, em_mul(e, gpu_special(e, "ctaid.x"), tile), e->size[c->dim_n],
                        em_mul(e, gpu_special(e, "nctaid.x"), tile));
    c->m0 = lm.i;
    c->n0 = ln.i;
    emit_block(c, lb.i);
    em_end(e, &ln);
    em_end(e, &lm);
    em_end(e, &lb);
    return FUSOR_OK;
}
