/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* window_tile.c: the register tile of a convolution: mr rows of weights by nv vectors of columns. */
#include "jit/window.h"
#include "jit/llvm_compat.h"
#include <string.h>

static LLVMValueRef call_intrinsic(window *w, const char *name, LLVMValueRef *in, unsigned n) {
    emit *e = w->e;
    const unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMTypeRef type = LLVMIntrinsicGetType(e->ctx, id, NULL, 0), parameter[3];
    LLVMValueRef cast[3];
    LLVMGetParamTypes(type, parameter);
    for (unsigned i = 0; i < n; i++) cast[i] = LLVMBuildBitCast(e->b, in[i], parameter[i], "");
    return LLVMBuildCall2(e->b, type, LLVMGetIntrinsicDeclaration(e->mod, id, NULL, 0), cast, n, "");
}

LLVMValueRef window_multiply(window *w, LLVMValueRef a, LLVMValueRef b, LLVMValueRef sum) {
    emit *e = w->e;
    const int bits = e->level->vector_bytes * 8;
    if (w->has_pairs) {
        if (!w->is_slow) return em_bf16_dot(e, sum, a, b);
        sum = em_mad(e, em_bf16_half(e, a, true), em_bf16_half(e, b, true), sum);
        return em_mad(e, em_bf16_half(e, a, false), em_bf16_half(e, b, false), sum);
    }
    if (ir_is_float(w->acc)) return em_mad(e, a, b, sum);
    if (w->dot == IR_DOT_NONE) return em_add(e, sum, em_mul(e, a, b));
    if (w->dot == IR_DOT_I16) {
        const char *name = bits == 512   ? "llvm.x86.avx512.pmaddw.d.512"
                           : bits == 256 ? "llvm.x86.avx2.pmadd.wd"
                                         : "llvm.x86.sse2.pmadd.wd";
        return em_add(e, sum, call_intrinsic(w, name, (LLVMValueRef[]){a, b}, 2));
    }
    /* Unsigned first: the operand, or else the weights. */
    const bool is_operand = w->adds || !ir_is_signed(w->k->inst[w->k->inst[w->matmul].in[1]].dtype);
    return call_intrinsic(w, bits == 512 ? "llvm.x86.avx512.vpdpbusd.512" : "llvm.x86.avx512.vpdpbusd.256",
                          (LLVMValueRef[]){sum, is_operand ? b : a, is_operand ? a : b}, 3);
}

void window_add_first(window *w, LLVMValueRef first, LLVMValueRef *sum, int nv) {
    emit *e = w->e;
    const int lanes = e->lanes;
    e->lanes = w->v_lanes;
    for (int i = 0; i < w->mr; i++) {
        LLVMValueRef x = LLVMBuildLoad2(e->b, w->t_acc, element(w, first, num(w, i)), "");
        LLVMSetAlignment(x, (unsigned)w->bytes);
        for (int j = 0; j < nv; j++) sum[i * nv + j] = em_add(e, sum[i * nv + j], em_splat(e, x));
    }
    e->lanes = lanes;
}

LLVMValueRef window_load_vector(window *w, LLVMValueRef ptr) {
    LLVMValueRef v = LLVMBuildLoad2(w->e->b, w->t_vec, ptr, "");
    LLVMSetAlignment(v, (unsigned)w->bytes);
    return v;
}

LLVMValueRef window_active_elements(window *w, LLVMValueRef active, int step, int vector) {
    const int n = w->v_lanes;
    LLVMValueRef index[64];
    if (!active || step == 1) return active;
    for (int i = 0; i < n; i++) {
        const int at = vector ? n - 1 + i : i;
        index[i] = LLVMConstInt(w->e->t_i32, (unsigned)(at % 2 ? n : at / 2), 0); /* n: the first of none */
    }
    return LLVMBuildShuffleVector(w->e->b, active, LLVMConstNull(LLVMTypeOf(active)),
                                  LLVMConstVector(index, (unsigned)n), "");
}

/* Lanes that are not read are `other`. */
static LLVMValueRef load_over(window *w, LLVMValueRef ptr, LLVMValueRef mask, LLVMValueRef other) {
    return compat_masked_load(w->e->mod, w->e->b, COMPAT_CONTIGUOUS, w->t_vec, ptr, mask, other, (unsigned)w->bytes);
}

static LLVMValueRef load_masked(window *w, LLVMValueRef ptr, LLVMValueRef mask) {
    return mask ? load_over(w, ptr, mask, LLVMConstNull(w->t_vec)) : window_load_vector(w, ptr);
}

LLVMValueRef window_load_columns(window *w, LLVMValueRef base, int at, int step, LLVMValueRef *mask) {
    const int n = w->v_lanes;
    LLVMValueRef a = load_masked(w, element(w, base, num(w, at)), mask[0]);
    if (step == 1) return a;
    LLVMValueRef b = load_masked(w, element(w, base, num(w, at + n - 1)), mask[1]), index[64];
    for (int i = 0; i < n; i++)
        index[i] = LLVMConstInt(w->e->t_i32, (unsigned)(2 * i < n ? 2 * i : n + 2 * i - (n - 1)), 0);
    return LLVMBuildShuffleVector(w->e->b, a, b, LLVMConstVector(index, (unsigned)n), "");
}

static LLVMValueRef merge(window *w, LLVMValueRef a, LLVMBasicBlockRef from_a, LLVMValueRef b,
                          LLVMBasicBlockRef from_b) {
    LLVMValueRef phi = LLVMBuildPhi(w->e->b, LLVMTypeOf(a), "");
    LLVMAddIncoming(phi, &a, &from_a, 1);
    LLVMAddIncoming(phi, &b, &from_b, 1);
    return phi;
}

LLVMValueRef window_mask_last(window *w, window_products *p, LLVMValueRef columns) {
    emit *e = w->e;
    const int lanes = e->lanes, last = p->nv - 1;
    e->lanes = w->v_lanes;
    LLVMValueRef active = em_mask(e, em_sub(e, columns, num(w, last * w->v_lanes)));
    for (int i = 0; i < 2; i++) p->mask[last][i] = window_active_elements(w, active, p->step, i);
    e->lanes = lanes;
    return active;
}

/* The columns that element k meets. */
static void load_columns(window *w, const window_products *p, LLVMValueRef k, LLVMValueRef *b) {
    emit *e = w->e;
    LLVMValueRef at = LLVMBuildLoad2(e->b, e->t_i64, em_gep(e, p->table, e->t_i64, k), "");
    LLVMValueRef base = p->operand ? em_gep(e, p->operand, e->t_i8, at) : NULL;
    if (p->prefetch.operand) em_prefetch(e, em_gep(e, p->prefetch.operand, e->t_i8, at), 2);
    for (int j = 0; j < p->nv; j++) {
        LLVMValueRef mask[2] = {p->mask[j][0], p->mask[j][1]};
        if (base) {
            b[j] = window_load_columns(w, base, j * w->v_lanes * p->step, p->step, mask);
            continue;
        }
        b[j] = load_masked(w, em_gep(e, p->part[j].at, e->t_i8, at), mask[0]);
        if (p->part[j].next)
            b[j] = load_over(w, em_gep(e, p->part[j].next, e->t_i8, at), p->part[j].mask, b[j]);
    }
}

static void multiply_rows(window *w, const window_products *p, LLVMValueRef k, const LLVMValueRef *b,
                          LLVMValueRef *sum) {
    for (int i = 0; i < w->mr; i++) {
        LLVMValueRef a = em_load_splat(w->e, w->t_vec, element(w, p->row[i], k), (unsigned)w->bytes);
        for (int j = 0; j < p->nv; j++) sum[i * p->nv + j] = window_multiply(w, a, b[j], sum[i * p->nv + j]);
    }
}

/* The products of one k, added to the sums. */
static void emit_step(window *w, const window_products *p, LLVMValueRef k, LLVMValueRef *sum) {
    LLVMValueRef b[8];
    load_columns(w, p, k, b);
    multiply_rows(w, p, k, b, sum);
}

static void emit_products(window *w, const window_products *p, LLVMValueRef out[WINDOW_MAX_TILE]) {
    emit *e = w->e;
    const int n = w->mr * p->nv;
    LLVMValueRef zero = LLVMConstNull(w->t_vec), sum[WINDOW_MAX_TILE], next[WINDOW_MAX_TILE], first = num(w, 0);
    LLVMBasicBlockRef entry = LLVMGetInsertBlock(e->b), body = em_block(e, "products"), done = em_block(e, "sums");
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSGT, p->count, first), body, done);
    LLVMPositionBuilderAtEnd(e->b, body);
    LLVMValueRef k = LLVMBuildPhi(e->b, e->t_i64, "");
    LLVMAddIncoming(k, &first, &entry, 1);
    for (int i = 0; i < n; i++) {
        next[i] = sum[i] = LLVMBuildPhi(e->b, w->t_vec, "");
        LLVMAddIncoming(sum[i], &zero, &entry, 1);
    }
    if (p->prefetch.result) {
        LLVMValueRef from = p->prefetch.result, at = LLVMBuildPhi(e->b, e->t_ptr, "");
        em_prefetch(e, at, 2);
        LLVMValueRef beyond = em_gep(e, at, e->t_i8, p->prefetch.apart);
        beyond = em_select(e, LLVMBuildICmp(e->b, LLVMIntULT, at, p->prefetch.last, ""), beyond, at);
        LLVMAddIncoming(at, &from, &entry, 1);
        LLVMAddIncoming(at, &beyond, &body, 1);
    }
    emit_step(w, p, k, next);
    LLVMValueRef then = em_add(e, k, num(w, 1));
    LLVMAddIncoming(k, &then, &body, 1);
    for (int i = 0; i < n; i++) LLVMAddIncoming(sum[i], &next[i], &body, 1);
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSLT, then, p->count), body, done);
    LLVMPositionBuilderAtEnd(e->b, done);
    for (int i = 0; i < n; i++) out[i] = merge(w, zero, entry, next[i], body);
}

void window_emit_products(window *w, const window_products *p, LLVMValueRef out[WINDOW_MAX_TILE]) {
    emit *e = w->e;
    const int n = w->mr * p->nv, lanes = e->lanes;
    LLVMValueRef zero;
    emit_products(w, p, out);
    if (!w->drops_sign) return;
    /* -0 + -0 stays -0. Behind the first K block, whose sum is not -0, either will do. */
    LLVMValueRef is_many = em_icmp(e, LLVMIntSGE, p->elements ? p->elements : p->count, num(w, IR_WINDOW_UNSIGNED));
    e->lanes = w->v_lanes;
    zero = em_splat(e, em_select(e, is_many, LLVMConstReal(w->t_acc, 0), LLVMConstReal(w->t_acc, -0.0)));
    e->lanes = lanes;
    for (int i = 0; i < n; i++) out[i] = em_fadd(e, out[i], zero);
}

void window_gather_few(window *w, window_products *p) {
    LLVMValueRef b[8];
    for (int k = 0; k < w->few; k++) {
        if (w->holds) {
            load_columns(w, p, num(w, k), p->held + k * p->nv);
            continue;
        }
        load_columns(w, p, num(w, k), b);
        for (int j = 0; j < p->nv; j++)
            LLVMSetAlignment(LLVMBuildStore(w->e->b, b[j], element(w, w->panel, num(w, k * w->nr + j * w->v_lanes))),
                             (unsigned)w->bytes);
    }
}

/* Of those columns; weights lie one row behind the other. LLVM would load what comes next too early. */
static void emit_gathered_step(window *w, const window_products *p, int k, LLVMValueRef *weights, LLVMValueRef *panel,
                               LLVMValueRef *sum) {
    window_products at = *p;
    LLVMValueRef b[8];
    if (!w->holds) *panel = em_opaque(w->e, *panel);
    *weights = em_opaque(w->e, *weights);
    for (int i = 0; i < w->mr; i++) at.row[i] = element(w, *weights, num(w, i * w->few));
    for (int j = 0; j < p->nv; j++)
        b[j] = w->holds ? p->held[k * p->nv + j]
                        : window_load_vector(w, element(w, *panel, num(w, k * w->nr + j * w->v_lanes)));
    multiply_rows(w, &at, num(w, k), b, sum);
}

void window_emit_few_products(window *w, const window_products *p, LLVMValueRef out[WINDOW_MAX_TILE]) {
    LLVMValueRef weights = p->row[0], panel = w->panel;
    for (int i = 0; i < w->mr * p->nv; i++) out[i] = LLVMConstNull(w->t_vec);
    for (int k = 0; k < w->few; k++)
        if (w->nv > 1 || w->holds) emit_gathered_step(w, p, k, &weights, &panel, out);
        else emit_step(w, p, num(w, k), out);
}

void window_emit_tile(window *w, window_function f) {
    emit *e = w->e;
    window_products p = {.nv = f == NARROW ? 1 : w->nv, .step = 1};
    const int nv = p.nv, n = w->mr * nv;
    LLVMTypeRef parameter[9] = {e->t_ptr, e->t_i64, e->t_ptr, e->t_ptr, e->t_i64,
                                e->t_ptr, e->t_i64, e->t_i64, e->t_ptr};
    if (w->has_pairs && !w->is_slow) { /* as in window_channel_tile.c */
        w->is_slow = true;
        window_emit_tile(w, f);
        w->is_slow = false;
    }
    const LLVMValueRef by_fma = w->function[f];
    const char *name = w->is_slow ? "by_fma" : f == NARROW ? "narrow" : f == MASKED ? "masked" : "tile";
    window_outer *o = window_begin(w, f, name, parameter, 9);
    LLVMValueRef in[9], sum[WINDOW_MAX_TILE], both[WINDOW_MAX_TILE], to[WINDOW_MAX_TILE];
    LLVMGetParams(e->fn, in);
    for (int i = 0; i < w->mr; i++) p.row[i] = i ? element(w, p.row[i - 1], in[1]) : in[0];
    for (int i = 0; i < n; i++) to[i] = element(w, in[5], num(w, i / nv * w->nr + i % nv * w->v_lanes));
    p.operand = in[2];
    p.table = in[3];
    p.count = in[4];
    if (w->has_pairs) {
        p.elements = in[4];
        p.count = LLVMBuildLShr(e->b, em_add(e, in[4], num(w, 1)), num(w, 1), "");
        if (!w->is_slow) window_leave_if_slow(w, f, by_fma, in[8], in, 9);
    }
    if (f != TILE) window_mask_last(w, &p, in[7]);
    window_emit_products(w, &p, sum);
    LLVMBasicBlockRef done = LLVMGetInsertBlock(e->b), add = em_block(e, "add"), store = em_block(e, "store");
    LLVMBasicBlockRef first = w->adds ? em_block(e, "first") : store;
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntNE, in[6], num(w, 0)), add, first);
    LLVMPositionBuilderAtEnd(e->b, add);
    for (int i = 0; i < n; i++) {
        LLVMValueRef there = window_load_vector(w, to[i]);
        both[i] = ir_is_float(w->acc) ? em_fadd(e, there, sum[i]) : em_add(e, there, sum[i]);
    }
    LLVMBuildBr(e->b, store);
    if (w->adds) {
        LLVMPositionBuilderAtEnd(e->b, first);
        window_add_first(w, in[8], sum, nv);
        LLVMBuildBr(e->b, store);
        done = first;
    }
    LLVMPositionBuilderAtEnd(e->b, store);
    for (int i = 0; i < n; i++) sum[i] = merge(w, sum[i], done, both[i], add);
    for (int i = 0; i < n; i++) LLVMSetAlignment(LLVMBuildStore(e->b, sum[i], to[i]), (unsigned)w->bytes);
    window_end(w, o);
}
