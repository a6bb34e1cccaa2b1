/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_attention_weights.c: scores to weights where tensor cores left them, for the forms of attention whose weights are
 * operand A of the second product as registers hold them (gpu_attention_wgmma.c, gpu_attention_few.c): scale, cap and
 * mask; keys out of bounds; exponentials; each weight as two numbers of 16 bits, so that its error is that of an f32
 * sum's order.
 *
 * Weights and results are relative to a reference of each query, which moves to the largest score only where that is
 * 2^NEAR times as much, so results are seldom multiplied. What a query's reference is depends on its own scores alone.
 *
 * Exponents of 2 are score * log2_scale + reference, one fma. With a mask or a cap, whose scores may be -1e10, half an
 * ulp of such a product is a weight of infinity or 0: there a reference is minus a score (is_minus_score), exponents are
 * (score + reference) * log2_scale + offset, and a score that is the reference's has exactly the offset. */
#include "jit/gpu_attention.h"
#include <string.h>

enum {
    NEAR = 8,       /* a power of 2 */
    NEAR_F16 = 4,   /* weights are 2^OFFSET_F16 times as large, and end at 2^16 */
    OFFSET_F16 = 11 /* so that small ones are no subnormals of 16 bits so soon */
};

static ir_dtype operand_type(const flash_weights *w) { return w->f->a.k->inst[w->f->a.q].dtype; }
static int key_of(int i) { return i / 4 * 8 + i % 2; }

LLVMValueRef flash_pair(flash *f, ir_dtype t, LLVMValueRef low, LLVMValueRef high) {
    emit *e = f->e;
    const char *text = t == FUSOR_BF16 ? "cvt.rn.bf16x2.f32 $0, $1, $2;" : "cvt.rn.f16x2.f32 $0, $1, $2;";
    return gpu_asm(e, text, "=r,f,f", false, e->t_i32, (LLVMValueRef[]){high, low}, 2);
}

static LLVMValueRef half_of_pair(flash_weights *w, LLVMValueRef pair, int which) {
    emit *e = w->f->e;
    if (operand_type(w) == FUSOR_BF16) {
        LLVMValueRef bits = which ? em_and(e, pair, em_i32(e, (int32_t)0xffff0000)) : em_shl(e, pair, 16);
        return LLVMBuildBitCast(e->b, bits, e->t_f32, "");
    }
    LLVMTypeRef half = LLVMHalfTypeInContext(e->ctx);
    LLVMValueRef both = LLVMBuildBitCast(e->b, pair, LLVMVectorType(half, 2), "");
    return LLVMBuildFPExt(e->b, LLVMBuildExtractElement(e->b, both, em_i32(e, which), ""), e->t_f32, "");
}

void flash_join(flash *f, em_branch *b, LLVMValueRef *now, LLVMValueRef *was, int n) {
    emit *e = f->e;
    LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b);
    em_endif(e, b);
    for (int i = 0; i < n; i++) {
        LLVMValueRef phi = LLVMBuildPhi(e->b, LLVMTypeOf(was[i]), "");
        LLVMAddIncoming(phi, (LLVMValueRef[]){now[i], was[i]}, (LLVMBasicBlockRef[]){from, b->other}, 2);
        now[i] = phi;
    }
}

/* ---- scale and bounds ---- */
void flash_find_scale(flash_weights *w) {
    flash *f = w->f;
    emit *e = f->e;
    const bool is_f16 = operand_type(w) == FUSOR_F16;
    LLVMValueRef one = em_f32(e, 1), log2_e = em_f32(e, 0x1.715476p0);
    w->offset = em_f32(e, is_f16 ? OFFSET_F16 : 0);
    w->is_far = NULL;
    w->log2_scale = log2_e;
    w->is_minus_score = f->a.cap >= 0 || f->a.mask >= 0;
    if (w->is_minus_score) return;
    /* scores grow with a scale that is positive */
    LLVMValueRef is_near = em_and(e, em_fcmp(e, LLVMRealOGE, f->scale, em_f32(e, 0x1p-60)),
                                  em_fcmp(e, LLVMRealOLE, f->scale, em_f32(e, 0x1p60)));
    w->is_far = LLVMBuildNot(e->b, is_near, "");
    w->log2_scale = em_fmul(e, em_select(e, is_near, f->scale, one), log2_e);
}

LLVMValueRef flash_distance(flash_weights *w, LLVMValueRef key) {
    emit *e = w->f->e;
    LLVMValueRef most = em_i64s(e, 1 << 30), least = em_i64s(e, -(1 << 30)), d = em_sub(e, key, w->first);
    d = em_max(e, em_min(e, d, most), least);
    return LLVMBuildTrunc(e->b, d, e->t_i32, "");
}

void flash_find_bounds(flash_weights *w, LLVMValueRef least, LLVMValueRef most, const LLVMValueRef query[2],
                       LLVMValueRef to) {
    flash *f = w->f;
    emit *e = f->e;
    const attention *a = &f->a;
    LLVMValueRef one = flash_num(f, 1), end = to, x = LLVMBuildTrunc(e->b, f->x, e->t_i32, "");
    if (a->high >= 0) end = em_min(e, to, em_add(e, em_add(e, least, f->high), one));
    w->all_to = flash_distance(w, end);
    if (a->low >= 0) w->all_from = flash_distance(w, em_add(e, most, f->low));
    x = em_add(e, x, x);
    for (int r = 0; r < 2; r++) {
        end = to;
        if (a->high >= 0) end = em_min(e, to, em_add(e, em_add(e, query[r], f->high), one));
        w->own_to[r] = em_sub(e, flash_distance(w, end), x);
        if (a->low >= 0) w->own_from[r] = em_sub(e, flash_distance(w, em_add(e, query[r], f->low)), x);
    }
}

/* j: of the block's first key. */
static void hide(flash_weights *w, LLVMValueRef j) {
    emit *e = w->f->e;
    const bool has_low = w->f->a.low >= 0;
    LLVMValueRef was[FLASH_SCORES], none = em_f32(e, -__builtin_inf());
    memcpy(was, w->score, sizeof was);
    LLVMValueRef hides = em_icmp(e, LLVMIntSGT, em_add(e, j, em_i32(e, 2 * w->n_scores)), w->all_to);
    if (has_low) hides = em_or(e, hides, em_icmp(e, LLVMIntSLT, j, w->all_from));
    em_branch b = em_if(e, hides);
    for (int r = 0; r < 2; r++) {
        LLVMValueRef to = em_sub(e, w->own_to[r], j), from = has_low ? em_sub(e, w->own_from[r], j) : NULL;
        for (int i = 0; i < w->n_scores; i++) {
            if (flash_row_of(i) != r) continue;
            LLVMValueRef key = em_i32(e, key_of(i)), keep = em_icmp(e, LLVMIntSLT, key, to);
            if (from) keep = em_and(e, keep, em_icmp(e, LLVMIntSGE, key, from));
            w->score[i] = em_select(e, keep, w->score[i], none);
        }
    }
    flash_join(w->f, &b, w->score, was, w->n_scores);
}

/* ---- masks ---- */
void flash_find_mask(flash_weights *w, const LLVMValueRef head[2], const LLVMValueRef query[2]) {
    flash *f = w->f;
    emit *e = f->e;
    const attention *a = &f->a;
    const int buffer = a->k->inst[a->mask].index, bytes = ir_dtypes[a->k->buffer[buffer].dtype].bytes;
    LLVMTypeRef element = em_memory_type(e, a->k->buffer[buffer].dtype);
    LLVMValueRef *stride = e->stride[buffer], last = em_sub(e, a->n_queries, flash_num(f, 1)), odd = a->n_keys;
    odd = em_or(e, odd,
                em_lshr(e, LLVMBuildPtrToInt(e->b, e->base[buffer], e->t_i64, ""), __builtin_ctz((unsigned)bytes)));
    for (int d = 0; d < a->k->n_dims; d++)
        if (d != a->at.j && a->k->buffer[buffer].stride[d] != 0) odd = em_or(e, odd, stride[d]);
    w->mask_has_pairs = em_icmp(e, LLVMIntEQ, em_and(e, odd, flash_num(f, 1)), flash_num(f, 0));
    for (int r = 0; r < 2; r++) {
        LLVMValueRef off = a->batch_off[buffer];
        if (a->k->buffer[buffer].stride[a->at.m] != 0)
            off = em_add(e, off, em_mul(e, em_min(e, query[r], last), stride[a->at.m]));
        if (head && a->k->buffer[buffer].stride[a->at.h] != 0)
            off = em_add(e, off, em_mul(e, head[r], stride[a->at.h]));
        w->mask_row[r] = em_gep(e, e->base[buffer], element, off);
        /* a mask of no keys has no element, so some other memory is read in its place */
        LLVMValueRef any = em_icmp(e, LLVMIntSGT, a->n_keys, flash_num(f, 0));
        w->mask_row[r] = em_select(e, any, w->mask_row[r], e->base[a->k->inst[a->q].index]);
    }
}

/* What is behind the last key is read as something in front of it: `hide` comes behind. */
void flash_load_mask(flash_weights *w, LLVMValueRef j) {
    flash *f = w->f;
    emit *e = f->e;
    const ir_dtype t = f->a.k->buffer[f->a.k->inst[f->a.mask].index].dtype;
    const unsigned bytes = (unsigned)ir_dtypes[t].bytes;
    const int n = w->n_scores / 2;
    LLVMTypeRef element = em_memory_type(e, t), pair = LLVMVectorType(element, 2);
    LLVMValueRef whole[FLASH_SCORES / 2], each[FLASH_SCORES / 2];
    LLVMValueRef last = em_max(e, em_sub(e, f->a.n_keys, flash_num(f, 1)), flash_num(f, 0));
    LLVMValueRef own = em_add(e, j, em_shl(e, f->x, 1)), end = em_add(e, j, flash_num(f, 2 * w->n_scores));
    em_branch b = em_if(e, em_and(e, w->mask_has_pairs, em_icmp(e, LLVMIntSLE, end, f->a.n_keys)));
    for (int i = 0; i < n; i++) {
        LLVMValueRef at = em_gep(e, em_gep(e, w->mask_row[i & 1], element, own), element, flash_num(f, i / 2 * 8));
        whole[i] = LLVMBuildLoad2(e->b, pair, at, "");
        LLVMSetAlignment(whole[i], 2 * bytes);
    }
    LLVMBasicBlockRef from[2] = {LLVMGetInsertBlock(e->b), NULL};
    em_else(e, &b);
    for (int i = 0; i < n; i++) {
        each[i] = LLVMGetPoison(pair);
        for (int h = 0; h < 2; h++) {
            LLVMValueRef key = em_min(e, em_add(e, own, flash_num(f, i / 2 * 8 + h)), last);
            LLVMValueRef v = LLVMBuildLoad2(e->b, element, em_gep(e, w->mask_row[i & 1], element, key), "");
            LLVMSetAlignment(v, bytes);
            each[i] = LLVMBuildInsertElement(e->b, each[i], v, em_i32(e, h), "");
        }
    }
    from[1] = LLVMGetInsertBlock(e->b);
    em_endif(e, &b);
    for (int i = 0; i < n; i++) {
        w->mask[i] = LLVMBuildPhi(e->b, pair, "");
        LLVMAddIncoming(w->mask[i], (LLVMValueRef[]){whole[i], each[i]}, from, 2);
    }
}

static LLVMValueRef mask_of(flash_weights *w, int i) {
    flash *f = w->f;
    emit *e = f->e;
    if (f->a.mask < 0) return NULL;
    if (!w->has_mask) return flash_staged_mask(f, flash_row_of(i), 2 * (i / 4) + i % 2);
    const ir_dtype t = f->a.k->inst[f->a.mask].dtype;
    LLVMValueRef v = LLVMBuildExtractElement(e->b, w->mask[i / 2], em_i32(e, i % 2), "");
    return em_cast(e, em_to_register(e, t, v), t, f->a.acc);
}

/* Scales that are not near 1 are multiplied with here: then a score times log2_scale neither overflows nor is lost. */
static void scale(flash_weights *w) {
    flash *f = w->f;
    emit *e = f->e;
    if (w->is_minus_score) {
        for (int i = 0; i < w->n_scores; i++) w->score[i] = flash_score(f, w->score[i], mask_of(w, i));
        return;
    }
    LLVMValueRef was[FLASH_SCORES];
    memcpy(was, w->score, sizeof was);
    em_branch b = em_if(e, w->is_far);
    for (int i = 0; i < w->n_scores; i++) w->score[i] = em_fmul(e, w->score[i], f->scale);
    flash_join(f, &b, w->score, was, w->n_scores);
}

/* ---- weights ---- */
/* The largest score of a row of the block, by halves. */
static LLVMValueRef largest_of(flash_weights *w, int row) {
    LLVMValueRef v[FLASH_SCORES];
    int n = 0;
    for (int i = 0; i < w->n_scores; i++)
        if (flash_row_of(i) == row) v[n++] = w->score[i];
    for (; n > 1; n /= 2)
        for (int i = 0; i < n / 2; i++) v[i] = flash_larger(w->f, v[i], v[i + n / 2]);
    for (int mask = 2; mask; mask /= 2) v[0] = flash_larger(w->f, gpu_shuffle(w->f->e, v[0], mask), v[0]);
    return v[0];
}

static LLVMValueRef any_of_warp(flash_weights *w, LLVMValueRef is) {
    LLVMValueRef in[2] = {em_i32(w->f->e, -1), is};
    return gpu_call(w->f->e, "llvm.nvvm.vote.any.sync", NULL, 0, in, 2);
}

static LLVMValueRef exponent_of(flash_weights *w, LLVMValueRef score, LLVMValueRef reference) {
    emit *e = w->f->e;
    if (!w->is_minus_score) return em_mad(e, score, w->log2_scale, reference);
    return em_mad(e, em_fadd(e, score, reference), w->log2_scale, w->offset);
}

LLVMValueRef flash_power(flash_weights *w, LLVMValueRef difference) {
    emit *e = w->f->e;
    return gpu_exp2(e, w->is_minus_score ? em_fmul(e, difference, w->log2_scale) : difference);
}

LLVMValueRef flash_top(flash_weights *w, LLVMValueRef reference) {
    emit *e = w->f->e;
    return w->is_minus_score ? em_fneg(e, reference) : em_fsub(e, w->offset, reference);
}

LLVMValueRef flash_top_score(flash_weights *w, LLVMValueRef top) {
    emit *e = w->f->e;
    return w->is_minus_score ? top : em_fmul(e, top, em_f32(e, 0x1.62e43p-1));
}

static LLVMValueRef reference_of(flash_weights *w, LLVMValueRef most) {
    emit *e = w->f->e;
    return w->is_minus_score ? em_fneg(e, most) : em_fsub(e, w->offset, em_fmul(e, most, w->log2_scale));
}

/* A reference is infinite as long as there was no score. */
static void move_references(flash_weights *w) {
    emit *e = w->f->e;
    const bool is_f16 = operand_type(w) == FUSOR_F16;
    LLVMValueRef most[2], moves[2], near = em_f32(e, is_f16 ? OFFSET_F16 + NEAR_F16 : NEAR), one = em_f32(e, 1), is[2];
    for (int r = 0; r < 2; r++) {
        most[r] = largest_of(w, r);
        is[r] = moves[r] = em_fcmp(e, LLVMRealOGT, exponent_of(w, most[r], w->reference[r]), near);
    }
    w->is_moved = any_of_warp(w, em_or(e, is[0], is[1]));
    LLVMValueRef was[6] = {one, one, w->reference[0], w->reference[1], w->sum[0], w->sum[1]}, now[6];
    em_branch b = em_if(e, w->is_moved);
    for (int r = 0; r < 2; r++) {
        LLVMValueRef to = reference_of(w, most[r]);
        now[2 + r] = em_select(e, moves[r], to, w->reference[r]);
        now[r] = em_select(e, moves[r], flash_power(w, em_fsub(e, to, w->reference[r])), one);
        now[4 + r] = em_fmul(e, w->sum[r], now[r]);
    }
    flash_join(w->f, &b, now, was, 6);
    for (int r = 0; r < 2; r++) w->factor[r] = now[r], w->reference[r] = now[2 + r], w->sum[r] = now[4 + r];
}

void flash_weigh(flash_weights *w, LLVMValueRef j) {
    emit *e = w->f->e;
    scale(w);
    hide(w, j);
    move_references(w);
    for (int r = 0; r < 2; r++) {
        LLVMValueRef sum[2] = {NULL, NULL};
        LLVMValueRef is_none = em_fcmp(e, LLVMRealOEQ, w->reference[r], em_f32(e, __builtin_inf()));
        LLVMValueRef reference = em_select(e, is_none, em_f32(e, 0), w->reference[r]);
        for (int i = 0, n = 0; i < w->n_scores; i++) {
            if (flash_row_of(i) != r) continue;
            LLVMValueRef v = gpu_exp2(e, exponent_of(w, w->score[i], reference));
            w->score[i] = v;
            sum[n % 2] = sum[n % 2] ? em_fadd(e, sum[n % 2], v) : v;
            n++;
        }
        w->sum[r] = em_fadd(e, w->sum[r], em_fadd(e, sum[0], sum[1]));
    }
}

void flash_split(flash_weights *w, LLVMValueRef part[2][FLASH_SCORES / 2]) {
    emit *e = w->f->e;
    const ir_dtype t = operand_type(w);
    for (int i = 0; i < w->n_scores / 2; i++) {
        LLVMValueRef *v = w->score + 2 * i, left[2];
        part[0][i] = flash_pair(w->f, t, v[0], v[1]);
        for (int h = 0; h < 2; h++) left[h] = em_fsub(e, v[h], half_of_pair(w, part[0][i], h));
        part[1][i] = flash_pair(w->f, t, left[0], left[1]);
    }
}
