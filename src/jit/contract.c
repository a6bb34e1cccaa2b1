/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* contract.c: the contraction kernel. Phase 0 packs operand 1 into panels of nr columns; phase 1 makes blocks of the
 * output: for each K block in order it packs a block of operand 0 and runs the register tile over the panels of both;
 * the last K block's totals go through the epilogue. Memory layouts are in ir/kernel.h, packing is in contract_pack.c.
 *
 * In machine code these are functions, which share nothing but their arguments and the scratch memory: the kernel
 * (loops and calls), pack0 and pack1, tile, add, finish. LLVM's time grows faster than the size of a function; this
 * way, with only `tile` optimized and words in memory elsewhere (demote.c), it is 0.41 of what one optimized function
 * took.
 *
 * The order that an element is accumulated in depends on K, kb and the level alone: a block's products from 0 upwards,
 * then block sums in order. So blocking, threads and fusion do not change bits. */
#include "jit/contract.h"
#include <string.h>

enum {
    MAX_TILE = 32 /* vector registers in a tile */
};

LLVMValueRef contract_min(emit *e, LLVMValueRef a, LLVMValueRef b) {
    return em_select(e, em_icmp(e, LLVMIntSLT, a, b), a, b);
}

static LLVMValueRef num(contract *c, int64_t v) { return em_i64s(c->e, v); }
static LLVMValueRef element(contract *c, LLVMValueRef base, LLVMValueRef i) { return em_gep(c->e, base, c->t_acc, i); }

/* ---- loads of the program ---- */
static LLVMValueRef coordinate(const contract_point *at, int dim) {
    const contract *c = at->c;
    return dim == c->dim_m ? at->m : dim == c->dim_n ? at->n : dim == c->dim_k ? at->k : c->index[dim];
}

LLVMValueRef contract_offset(contract *c, int buffer, const contract_point *at) {
    LLVMValueRef off = c->batch_off[buffer];
    const int dims[3] = {c->dim_m, c->dim_n, c->dim_k};
    for (int i = 0; i < 3; i++) {
        int d = dims[i];
        if (c->k->buffer[buffer].stride[d] == 0 || !coordinate(at, d)) continue;
        LLVMValueRef x = coordinate(at, d);
        if (c->k->buffer[buffer].stride[d] != 1) x = em_mul(c->e, x, c->e->stride[buffer][d]);
        off = em_add(c->e, off, x);
    }
    return off;
}

LLVMValueRef contract_step(contract *c, int buffer, int axis) {
    if (axis < 0) return num(c, 0);
    int64_t s = c->k->buffer[buffer].stride[axis];
    return s == 0 || s == 1 ? num(c, s) : c->e->stride[buffer][axis];
}

LLVMValueRef contract_load(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    contract_point *at = user;
    if (inst->op == IR_K_LOAD)
        return em_load_value(e, v, inst, at->axis, contract_offset(at->c, inst->index, at),
                             contract_step(at->c, inst->index, at->axis), at->mask);
    LLVMValueRef x = em_splat(e, coordinate(at, inst->index));
    if (inst->index != at->axis || e->lanes == 1) return x;
    LLVMValueRef lane[64];
    for (int i = 0; i < e->lanes; i++) lane[i] = num(at->c, i);
    return em_add(e, x, LLVMConstVector(lane, (unsigned)e->lanes));
}

/* Batch number -> index of each batch dim and offset of each buffer. With only the dims in `which`. */
static void decode_batch(contract *c, LLVMValueRef number, uint32_t which) {
    emit *e = c->e;
    for (int i = c->n_batch - 1; i >= 0; i--) {
        int d = c->batch[i];
        c->index[d] = num(c, 0);
        if (!(which >> d & 1)) continue;
        c->index[d] = LLVMBuildURem(e->b, number, e->size[d], "");
        number = LLVMBuildUDiv(e->b, number, e->size[d], "");
    }
    for (int b = 0; b < c->k->n_buffers; b++) {
        c->batch_off[b] = num(c, 0);
        for (int i = 0; i < c->n_batch; i++) {
            int d = c->batch[i];
            if (!(which >> d & 1) || c->k->buffer[b].stride[d] == 0) continue;
            c->batch_off[b] = em_add(e, c->batch_off[b], em_mul(e, c->index[d], e->stride[b][d]));
        }
    }
}

static LLVMValueRef ceil_div(contract *c, LLVMValueRef a, int64_t b) {
    return LLVMBuildUDiv(c->e->b, em_add(c->e, a, num(c, b - 1)), num(c, b), "");
}

/* What is loaded at the entry of each function. */
static void set_values(contract *c) {
    emit *e = c->e;
    int64_t tile_bytes = (int64_t)c->mr * c->nr * c->acc_bytes;
    c->m = e->size[c->dim_m];
    c->n = e->size[c->dim_n];
    c->kk = e->size[c->dim_k];
    c->staging = em_gep(e, e->scratch, e->t_i8, num(c, (tile_bytes + 63) / 64 * 64));
}

static LLVMValueRef panel_of_b(contract *c, LLVMValueRef batch, LLVMValueRef panel, LLVMValueRef panels) {
    LLVMValueRef i = em_add(c->e, em_mul(c->e, batch, panels), panel);
    return element(c, c->e->shared, em_mul(c->e, em_mul(c->e, i, c->kk), num(c, c->nr)));
}

/* ---- functions beside the kernel's: deep nests of loops in one function cost much more to compile ---- */
typedef struct outer {
    emit e;
    contract c;
    LLVMBasicBlockRef block;
} outer;

/* Into a new function. But for tile and add, its first parameter is the argument block, and what it holds is loaded. */
static outer *begin_function(contract *c, contract_function f, const char *name, LLVMTypeRef *parameter, unsigned n,
                             bool is_optimized) {
    emit *e = c->e;
    c->function_type[f] = LLVMFunctionType(e->t_void, parameter, n, 0);
    c->function[f] = em_function(e, name, c->function_type[f], is_optimized);
    LLVMSetLinkage(c->function[f], LLVMInternalLinkage);
    outer *o = FU_NEW(e->arena, outer);
    *o = (outer){*e, *c, LLVMGetInsertBlock(e->b)};
    e->fn = c->function[f];
    LLVMPositionBuilderAtEnd(e->b, em_block(e, "entry"));
    if (f == TILE || f == ADD) return o;
    em_load_args(e, LLVMGetParam(e->fn, 0));
    set_values(c);
    return o;
}

static void end_function(contract *c, const outer *o) {
    emit *e = c->e;
    LLVMBuildRetVoid(e->b);
    LLVMPositionBuilderAtEnd(e->b, o->block);
    *e = o->e;
    *c = o->c;
}

static void call(contract *c, contract_function f, LLVMValueRef *in, unsigned n) {
    LLVMBuildCall2(c->e->b, c->function_type[f], c->function[f], in, n, "");
}

/* ---- packing ---- */
/* (args, dst, batch, first, panels, k0, k_count): `panels` panels of the operand from row (column) `first` on, each
 * min(K, kb) * mr elements behind the one before. */
static void emit_pack_function(contract *c, int operand) {
    emit *e = c->e;
    LLVMTypeRef parameter[7] = {e->t_ptr, e->t_ptr, e->t_i64, e->t_i64, e->t_i64, e->t_i64, e->t_i64};
    outer *o = begin_function(c, operand ? PACK1 : PACK0, operand ? "pack1" : "pack0", parameter, 7, false);
    LLVMValueRef in[7];
    LLVMGetParams(e->fn, in);
    decode_batch(c, in[2], operand ? ir_kernel_varies(c->k, c->operand[1]) : UINT32_MAX);
    int rows = operand ? c->nr : c->mr;
    LLVMValueRef elements = em_mul(e, contract_min(e, c->kk, num(c, c->kb)), num(c, rows));
    em_loop l = em_for(e, num(c, 0), in[4], num(c, 1));
    contract_pack(c, operand, element(c, in[1], em_mul(e, l.i, elements)),
                  em_add(e, in[3], em_mul(e, l.i, num(c, rows))), in[5], in[6]);
    em_end(e, &l);
    em_demote(e);
    end_function(c, o);
}

static void call_pack(contract *c, int operand, LLVMValueRef dst, LLVMValueRef batch, LLVMValueRef first,
                      LLVMValueRef panels, LLVMValueRef k0, LLVMValueRef k_count) {
    LLVMValueRef in[7] = {c->e->args, dst, batch, first, panels, k0, k_count};
    call(c, operand ? PACK1 : PACK0, in, 7);
}

/* Phase 0: a tile is one panel of one batch of operand 1. */
static void emit_pack_phase(contract *c) {
    emit *e = c->e;
    LLVMValueRef panels = ceil_div(c, c->n, c->nr);
    em_loop t = em_for(e, e->tile_begin, e->tile_end, num(c, 1));
    LLVMValueRef batch = LLVMBuildUDiv(e->b, t.i, panels, ""), panel = LLVMBuildURem(e->b, t.i, panels, "");
    call_pack(c, 1, panel_of_b(c, batch, panel, panels), batch, em_mul(e, panel, num(c, c->nr)), num(c, 1), num(c, 0),
              c->kk);
    em_end(e, &t);
}

/* ---- the register tile ---- */
static LLVMValueRef tile_load(contract *c, LLVMValueRef ptr, int align) {
    LLVMValueRef v = LLVMBuildLoad2(c->e->b, c->t_vec, ptr, "");
    LLVMSetAlignment(v, (unsigned)align);
    return v;
}

static LLVMValueRef mul_add(contract *c, LLVMValueRef a, LLVMValueRef b, LLVMValueRef acc) {
    emit *e = c->e;
    return ir_is_float(c->acc) ? em_mad(e, a, b, acc) : em_add(e, em_mul(e, a, b), acc);
}

static void prefetch(contract *c, LLVMValueRef ptr) {
    emit *e = c->e;
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, LLVMLookupIntrinsicID("llvm.prefetch", 13), &e->t_ptr, 1);
    LLVMValueRef in[4] = {ptr, LLVMConstInt(e->t_i32, 0, 0), LLVMConstInt(e->t_i32, 3, 0),
                          LLVMConstInt(e->t_i32, 1, 0)};
    LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, in, 4, "");
}

/* How far ahead the panel is prefetched: a kilobyte. */
static int64_t rows_ahead(const contract *c) { return 1024 / (c->nr * c->acc_bytes) + 1; }

/* One product of the panels at pa and pb into acc. */
static void tile_step(contract *c, LLVMValueRef *acc, LLVMValueRef pa, LLVMValueRef pb) {
    emit *e = c->e;
    LLVMValueRef zeros = LLVMConstNull(LLVMVectorType(e->t_i32, (unsigned)c->v_lanes)), b[8];
    for (int j = 0; j < c->nv; j++) b[j] = tile_load(c, element(c, pb, num(c, j * c->v_lanes)), c->acc_bytes);
    /* The panel of operand 1 comes from the next cache the first time; the hardware's prefetcher is late for it. */
    for (int at = 0; at < c->nr * c->acc_bytes; at += 64)
        prefetch(c, em_gep(e, element(c, pb, c->b_ahead), e->t_i8, num(c, at)));
    for (int i = 0; i < c->mr; i++) {
        LLVMValueRef x = LLVMBuildLoad2(e->b, c->t_acc, element(c, pa, num(c, i)), "");
        LLVMSetAlignment(x, (unsigned)c->acc_bytes);
        LLVMValueRef poison = LLVMGetPoison(c->t_vec);
        LLVMValueRef a = LLVMBuildShuffleVector(
            e->b, LLVMBuildInsertElement(e->b, poison, x, LLVMConstInt(e->t_i32, 0, 0), ""), poison, zeros, "");
        for (int j = 0; j < c->nv; j++) acc[i * c->nv + j] = mul_add(c, a, b[j], acc[i * c->nv + j]);
    }
}

static LLVMValueRef merge(contract *c, LLVMValueRef a, LLVMBasicBlockRef from_a, LLVMValueRef b,
                          LLVMBasicBlockRef from_b) {
    LLVMValueRef phi = LLVMBuildPhi(c->e->b, LLVMTypeOf(a), "");
    LLVMAddIncoming(phi, &a, &from_a, 1);
    LLVMAddIncoming(phi, &b, &from_b, 1);
    return phi;
}

/* (pa, pb, count, dst, b_stride, b_ahead): dst[mr][nr] = sum over k < count of pa[k] x pb[k]. The only function that is
 * optimized, and what costs most to compile: so it has a loop of single products (two an iteration are no faster:
 * EPYC 9005, 512^3 f32, level v4 and v3), and stores its sums however they go on. */
static void emit_tile_function(contract *c) {
    emit *e = c->e;
    int n = c->mr * c->nv;
    LLVMTypeRef parameter[6] = {e->t_ptr, e->t_ptr, e->t_i64, e->t_ptr, e->t_i64, e->t_i64};
    outer *o = begin_function(c, TILE, "tile", parameter, 6, true);
    LLVMValueRef in[6], zero = LLVMConstNull(c->t_vec), phi[3], sum[MAX_TILE], next[MAX_TILE];
    LLVMGetParams(e->fn, in);
    bool in_place = ir_kernel_contract_in_place(c->k);
    c->b_stride = in_place ? in[4] : num(c, c->nr);
    c->b_ahead = in_place ? in[5] : num(c, c->nr * rows_ahead(c));

    LLVMBasicBlockRef entry = LLVMGetInsertBlock(e->b), body = em_block(e, "products"), done = em_block(e, "sums");
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSGT, in[2], num(c, 0)), body, done);
    LLVMPositionBuilderAtEnd(e->b, body);
    for (int i = 0; i < 3; i++) {
        phi[i] = LLVMBuildPhi(e->b, LLVMTypeOf(in[i]), "");
        LLVMAddIncoming(phi[i], &in[i], &entry, 1);
    }
    for (int i = 0; i < n; i++) {
        next[i] = sum[i] = LLVMBuildPhi(e->b, c->t_vec, "");
        LLVMAddIncoming(sum[i], &zero, &entry, 1);
    }
    tile_step(c, next, phi[0], phi[1]);
    LLVMValueRef then[3] = {element(c, phi[0], num(c, c->mr)), element(c, phi[1], c->b_stride),
                            em_sub(e, phi[2], num(c, 1))};
    for (int i = 0; i < 3; i++) LLVMAddIncoming(phi[i], &then[i], &body, 1);
    for (int i = 0; i < n; i++) LLVMAddIncoming(sum[i], &next[i], &body, 1);
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntNE, then[2], num(c, 0)), body, done);

    LLVMPositionBuilderAtEnd(e->b, done);
    for (int i = 0; i < n; i++) sum[i] = merge(c, zero, entry, next[i], body);
    for (int i = 0; i < n; i++) {
        LLVMValueRef at = element(c, in[3], num(c, i / c->nv * c->nr + i % c->nv * c->v_lanes));
        LLVMSetAlignment(LLVMBuildStore(e->b, sum[i], at), (unsigned)(c->v_lanes * c->acc_bytes));
    }
    end_function(c, o);
}

/* ---- the epilogue: from the tile in memory (in L1, just written) to the outputs, row by row ---- */
/* Evaluates and stores everything at one point; x is where the accumulators of this point lie. */
static void epilogue_at(contract *c, contract_point *at, LLVMValueRef x) {
    emit *e = c->e;
    em_values v;
    em_values_init(&v, contract_load, at);
    LLVMValueRef sum = em_load_ptr(e, c->acc, x, NULL, (unsigned)c->acc_bytes);
    v.at[c->matmul] = em_cast(e, sum, c->acc, c->k->inst[c->matmul].dtype);
    for (int i = 0; i < c->k->n_insts; i++) {
        const ir_kinst *in = &c->k->inst[i];
        if (in->op != IR_K_STORE) continue;
        LLVMValueRef value = em_value(e, &v, in->in[0]);
        em_store(e, in->index, value, contract_offset(c, in->index, at), contract_step(c, in->index, at->axis),
                 at->mask);
    }
}

static bool is_costly_epilogue(const contract *c) {
    for (int i = c->matmul; i < c->k->n_insts; i++)
        if (c->k->inst[i].op < IR_OP_COUNT && (ir_ops[c->k->inst[i].op].flags & IR_COSTLY)) return true;
    return false;
}

/* Vectors of a row, or single elements where the end cannot be masked. A costly program is emitted once, in a loop.
 * Whole vectors are stored without masks: masked stores are slow where they miss the caches near. */
static void epilogue_row(contract *c, LLVMValueRef row, LLVMValueRef m, LLVMValueRef n0, LLVMValueRef columns,
                         LLVMValueRef *mask, bool is_whole, bool in_loop) {
    emit *e = c->e;
    if (!in_loop) {
        for (int j = 0; j < c->nr / c->lanes; j++) {
            contract_point at = {c, m, em_add(e, n0, num(c, j * c->lanes)), NULL, c->dim_n, mask[j]};
            epilogue_at(c, &at, element(c, row, num(c, j * c->lanes)));
        }
        return;
    }
    em_loop l = em_for(e, num(c, 0), columns, num(c, e->lanes));
    bool is_masked = !is_whole && e->lanes > 1;
    contract_point at = {c,
                         m,
                         em_add(e, n0, l.i),
                         NULL,
                         e->lanes > 1 ? c->dim_n : -1,
                         is_masked ? em_mask(e, em_sub(e, columns, l.i)) : NULL};
    epilogue_at(c, &at, element(c, row, l.i));
    em_end(e, &l);
}

static void epilogue_rows(contract *c, LLVMValueRef tile, LLVMValueRef m0, LLVMValueRef rows, LLVMValueRef n0,
                          LLVMValueRef columns, bool is_whole, bool is_costly) {
    emit *e = c->e;
    LLVMValueRef mask[8] = {0};
    bool has_mask = e->level->has_mask;
    e->lanes = is_whole || has_mask ? c->lanes : 1;
    for (int j = 0; j < c->nr / c->lanes && !is_whole && !is_costly && has_mask; j++)
        mask[j] = em_mask(e, em_sub(e, columns, num(c, j * c->lanes)));
    em_loop l = em_for(e, num(c, 0), rows, num(c, 1));
    LLVMValueRef row = element(c, tile, em_mul(e, l.i, num(c, c->nr)));
    epilogue_row(c, row, em_add(e, m0, l.i), n0, columns, mask, is_whole, is_costly || e->lanes == 1);
    em_end(e, &l);
}

/* (args, batch, m0, n0): what becomes of the tile in scratch, whose first element is at m0, n0. */
static void emit_epilogue_function(contract *c) {
    emit *e = c->e;
    bool is_costly = is_costly_epilogue(c);
    LLVMTypeRef parameter[4] = {e->t_ptr, e->t_i64, e->t_i64, e->t_i64};
    outer *o = begin_function(c, FINISH, "finish", parameter, 4, is_costly);
    LLVMValueRef m0 = LLVMGetParam(e->fn, 2), n0 = LLVMGetParam(e->fn, 3), tile = e->scratch, nr = num(c, c->nr);
    decode_batch(c, LLVMGetParam(e->fn, 1), UINT32_MAX);
    LLVMValueRef rows = contract_min(e, em_sub(e, c->m, m0), num(c, c->mr)), left = em_sub(e, c->n, n0);
    em_branch b = em_if(e, em_icmp(e, LLVMIntSGE, left, nr));
    epilogue_rows(c, tile, m0, rows, n0, nr, true, is_costly);
    em_else(e, &b);
    epilogue_rows(c, tile, m0, rows, n0, left, false, is_costly);
    em_endif(e, &b);
    end_function(c, o);
}

/* ---- phase 1: a tile is a block of MC x NC elements of one batch ---- */
typedef struct block {
    LLVMValueRef k0, k_count, is_first, is_last, in_place, edge, a, batch, b_batch, partial, tile;
} block;

/* (partial, tile, dst): dst = partial + tile, a row at a time: once a K block, so simple. */
static void emit_add_function(contract *c) {
    emit *e = c->e;
    int align = c->v_lanes * c->acc_bytes;
    LLVMTypeRef parameter[3] = {e->t_ptr, e->t_ptr, e->t_ptr};
    outer *o = begin_function(c, ADD, "add", parameter, 3, false);
    LLVMValueRef in[3];
    LLVMGetParams(e->fn, in);
    em_loop l = em_for(e, num(c, 0), num(c, c->mr * c->nr), num(c, c->nr));
    for (int j = 0; j < c->nv; j++) {
        LLVMValueRef at = em_add(e, l.i, num(c, j * c->v_lanes));
        LLVMValueRef a = tile_load(c, element(c, in[0], at), align), b = tile_load(c, element(c, in[1], at), align);
        LLVMValueRef sum = ir_is_float(c->acc) ? em_fadd(e, a, b) : em_add(e, a, b);
        LLVMSetAlignment(LLVMBuildStore(e->b, sum, element(c, in[2], at)), (unsigned)align);
    }
    em_end(e, &l);
    end_function(c, o);
}

static void emit_register_tile(contract *c, const block *s, LLVMValueRef pa, LLVMValueRef pb, LLVMValueRef partial,
                               LLVMValueRef m0, LLVMValueRef n0) {
    emit *e = c->e;
    LLVMValueRef kept = em_and(e, s->is_first, em_xor(e, s->is_last, LLVMConstInt(e->t_i1, 1, 0)));
    LLVMValueRef in[6] = {pa, pb, s->k_count, em_select(e, kept, partial, s->tile), c->b_stride, c->b_ahead};
    call(c, TILE, in, 6);
    em_branch later = em_if(e, em_icmp(e, LLVMIntEQ, s->is_first, LLVMConstInt(e->t_i1, 0, 0)));
    call(c, ADD, (LLVMValueRef[]){partial, s->tile, em_select(e, s->is_last, s->tile, partial)}, 3);
    em_endif(e, &later);
    em_branch last = em_if(e, s->is_last);
    call(c, FINISH, (LLVMValueRef[]){e->args, s->batch, m0, n0}, 4);
    em_endif(e, &last);
}

/* Where the panel of columns from n0 on begins, and c->b_stride. In place only whole panels can be read; what is left
 * of the last one is packed into scratch, K block by K block. */
static LLVMValueRef panel_to_read(contract *c, const block *s, LLVMValueRef packed, LLVMValueRef n0) {
    emit *e = c->e;
    LLVMValueRef nr = num(c, c->nr);
    c->b_stride = nr;
    if (s->in_place) {
        int buffer = c->k->inst[c->operand[1]].index;
        contract_point at = {c, NULL, n0, s->k0, -1, NULL};
        LLVMBasicBlockRef start = LLVMGetInsertBlock(e->b), check = em_block(e, "in_place"), edge = em_block(e, "edge");
        LLVMBasicBlockRef ready = em_block(e, "ready");
        LLVMBuildCondBr(e->b, s->in_place, check, ready);
        LLVMPositionBuilderAtEnd(e->b, check);
        LLVMValueRef here = em_gep(e, e->base[buffer], c->t_acc, contract_offset(c, buffer, &at));
        LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSGE, em_sub(e, c->n, n0), nr), ready, edge);
        LLVMPositionBuilderAtEnd(e->b, edge);
        call_pack(c, 1, s->edge, s->b_batch, n0, num(c, 1), s->k0, s->k_count);
        LLVMBasicBlockRef edge_end = LLVMGetInsertBlock(e->b);
        LLVMBuildBr(e->b, ready);
        LLVMPositionBuilderAtEnd(e->b, ready);
        LLVMValueRef from = merge(c, packed, start, here, check);
        LLVMAddIncoming(from, (LLVMValueRef[]){s->edge}, &edge_end, 1);
        c->b_stride = merge(c, nr, start, e->stride[buffer][c->dim_k], check);
        LLVMAddIncoming(c->b_stride, &nr, &edge_end, 1);
        packed = from;
    }
    c->b_ahead = em_mul(e, c->b_stride, num(c, rows_ahead(c)));
    return packed;
}

static void emit_compute_phase(contract *c) {
    emit *e = c->e;
    LLVMValueRef one = num(c, 1), zero = num(c, 0);
    LLVMValueRef m_panels = ceil_div(c, c->m, c->mr), n_panels = ceil_div(c, c->n, c->nr);
    LLVMValueRef mc = LLVMBuildUDiv(e->b, e->tune[IR_TUNE_CONTRACT_MC], num(c, c->mr), "");
    LLVMValueRef nc = LLVMBuildUDiv(e->b, e->tune[IR_TUNE_CONTRACT_NC], num(c, c->nr), "");
    mc = em_select(e, em_icmp(e, LLVMIntSLT, mc, one), one, mc);
    nc = em_select(e, em_icmp(e, LLVMIntSLT, nc, one), one, nc);
    LLVMValueRef m_blocks = LLVMBuildUDiv(e->b, em_sub(e, em_add(e, m_panels, mc), one), mc, "");
    LLVMValueRef n_blocks = LLVMBuildUDiv(e->b, em_sub(e, em_add(e, n_panels, nc), one), nc, "");
    LLVMValueRef k_panel = contract_min(e, c->kk, num(c, c->kb));

    /* scratch: ir_kernel_contract_head_bytes, the packed block, partial sums */
    block s = {.tile = e->scratch};
    s.a = em_gep(e, e->scratch, e->t_i8, num(c, ir_kernel_contract_head_bytes(c->k)));
    if (ir_kernel_contract_in_place(c->k)) {
        LLVMValueRef bytes = em_mul(e, k_panel, num(c, c->nr * c->acc_bytes));
        s.in_place = em_icmp(e, LLVMIntNE, e->tune[IR_TUNE_CONTRACT_IN_PLACE], zero);
        s.edge = s.a;
        s.a = em_gep(e, s.edge, e->t_i8, em_and(e, em_add(e, bytes, num(c, 63)), num(c, -64)));
    }
    LLVMValueRef a_rows = em_mul(e, contract_min(e, mc, m_panels), num(c, c->mr));
    LLVMValueRef a_bytes =
        em_mul(e, em_add(e, em_mul(e, a_rows, k_panel), num(c, c->lanes * c->mr)), num(c, c->acc_bytes));
    s.partial = em_gep(e, s.a, e->t_i8, em_and(e, em_add(e, a_bytes, num(c, 63)), num(c, -64)));

    em_loop t = em_for(e, e->tile_begin, e->tile_end, one);
    LLVMValueRef nb = LLVMBuildURem(e->b, t.i, n_blocks, ""), q = LLVMBuildUDiv(e->b, t.i, n_blocks, "");
    LLVMValueRef mb = LLVMBuildURem(e->b, q, m_blocks, ""), batch = LLVMBuildUDiv(e->b, q, m_blocks, "");
    decode_batch(c, batch, UINT32_MAX);
    uint32_t b_dims = ir_kernel_varies(c->k, c->operand[1]);
    LLVMValueRef b_batch = zero;
    for (int i = 0; i < c->n_batch; i++)
        if (b_dims >> c->batch[i] & 1)
            b_batch = em_add(e, em_mul(e, b_batch, e->size[c->batch[i]]), c->index[c->batch[i]]);
    s.b_batch = b_batch;
    s.batch = batch;
    LLVMValueRef m_first = em_mul(e, mb, mc), n_first = em_mul(e, nb, nc);
    LLVMValueRef m_count = contract_min(e, em_sub(e, m_panels, m_first), mc),
                 n_count = contract_min(e, em_sub(e, n_panels, n_first), nc);

    /* K = 0 still makes one (empty) block: its totals are 0 and the epilogue runs. */
    LLVMValueRef k_end = em_select(e, em_icmp(e, LLVMIntSGT, c->kk, zero), c->kk, one);
    em_loop lk = em_for(e, zero, k_end, num(c, c->kb));
    s.k0 = lk.i;
    s.k_count = contract_min(e, em_sub(e, c->kk, lk.i), num(c, c->kb));
    s.is_first = em_icmp(e, LLVMIntEQ, lk.i, zero);
    s.is_last = em_icmp(e, LLVMIntSGE, em_add(e, lk.i, num(c, c->kb)), c->kk);

    LLVMValueRef panel_elements = em_mul(e, k_panel, num(c, c->mr));
    call_pack(c, 0, s.a, batch, em_mul(e, m_first, num(c, c->mr)), m_count, s.k0, s.k_count);

    em_loop lj = em_for(e, zero, n_count, one);
    LLVMValueRef panel = em_add(e, n_first, lj.i);
    LLVMValueRef n0 = em_mul(e, panel, num(c, c->nr));
    LLVMValueRef pb = element(c, panel_of_b(c, b_batch, panel, n_panels), em_mul(e, s.k0, num(c, c->nr)));
    pb = panel_to_read(c, &s, pb, n0);
    em_loop li = em_for(e, zero, m_count, one);
    LLVMValueRef pa = element(c, s.a, em_mul(e, li.i, panel_elements));
    LLVMValueRef tile = em_add(e, em_mul(e, lj.i, m_count), li.i);
    emit_register_tile(c, &s, pa, pb, element(c, s.partial, em_mul(e, tile, num(c, c->mr * c->nr))),
                       em_mul(e, em_add(e, m_first, li.i), num(c, c->mr)), n0);
    em_end(e, &li);
    em_end(e, &lj);
    em_end(e, &lk);
    em_end(e, &t);
}

/* ---- checks beyond ir_kernel_verify, which made sure of the dims b.. m n k and of one matmul ---- */
static fusor_status read_description(contract *c, fu_error *err) {
    const ir_kernel *k = c->k;
    c->dim_m = k->n_dims - 3;
    c->dim_n = k->n_dims - 2;
    c->dim_k = k->n_dims - 1;
    for (int d = 0; d < c->dim_m; d++) {
        if (k->dim[d].role != 'b')
            return FU_FAIL(err, FUSOR_ERROR_INTERNAL,
                           "contract kernel: dim %d has role '%c'; expected 'b' before m, n, k", d, k->dim[d].role);
        c->batch[c->n_batch++] = d;
    }
    for (int i = 0; i < k->n_insts; i++) {
        uint32_t varies = ir_kernel_varies(k, i);
        if (k->inst[i].op == IR_OP_MATMUL) {
            c->matmul = i;
            c->operand[0] = k->inst[i].in[0];
            c->operand[1] = k->inst[i].in[1];
            if ((ir_kernel_varies(k, c->operand[0]) >> c->dim_n & 1) ||
                (ir_kernel_varies(k, c->operand[1]) >> c->dim_m & 1))
                return FU_FAIL(err, FUSOR_ERROR_INTERNAL,
                               "contract kernel: an operand of %%%d varies along the other's dim", i);
        } else if (k->inst[i].op == IR_K_STORE) {
            if (varies >> c->dim_k & 1)
                return FU_FAIL(err, FUSOR_ERROR_INTERNAL, "contract kernel: the value stored by %%%d varies along k",
                               i);
            if (k->buffer[k->inst[i].index].stride[c->dim_n] == 0)
                return FU_FAIL(err, FUSOR_ERROR_INTERNAL, "contract kernel: output %d does not vary along n",
                               k->inst[i].index);
        }
    }
    return FUSOR_OK;
}

fusor_status jit_emit_contract(emit *e, fu_error *err) {
    contract *c = FU_NEW(e->arena, contract);
    c->e = e;
    c->k = e->k;
    FU_TRY(read_description(c, err));
    c->acc = ir_kernel_contract_acc(c->k);
    c->acc_bytes = ir_dtypes[c->acc].bytes;
    c->lanes = e->level->lanes;
    c->v_lanes = e->level->vector_bytes / c->acc_bytes;
    c->mr = c->k->tile.mr;
    c->nr = c->k->tile.nr;
    c->kb = c->k->tile.kb;
    c->nv = c->nr / c->v_lanes;
    if (c->mr < 1 || c->kb < 1 || c->nr < 1 || c->nr % c->lanes || c->nr % c->v_lanes || c->mr > c->lanes ||
        c->nv > 8 || c->mr * c->nv > MAX_TILE)
        return FU_FAIL(err, FUSOR_ERROR_INTERNAL, "contract kernel: tile %d x %d x %d does not fit level %s", c->mr,
                       c->nr, c->kb, e->level->name);
    c->t_acc = em_scalar_type(e, c->acc);
    c->t_vec = LLVMVectorType(c->t_acc, (unsigned)c->v_lanes);
    set_values(c);
    emit_pack_function(c, 0);
    emit_pack_function(c, 1);
    emit_tile_function(c);
    emit_add_function(c);
    emit_epilogue_function(c);

    em_branch phase = em_if(e, em_icmp(e, LLVMIntEQ, e->phase, LLVMConstInt(LLVMTypeOf(e->phase), 0, 0)));
    emit_pack_phase(c);
    em_else(e, &phase);
    emit_compute_phase(c);
    em_endif(e, &phase);
    em_demote(e);
    return FUSOR_OK;
}
