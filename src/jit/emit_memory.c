/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* emit_memory.c: loads and stores. Buffers are aligned to their element only. Inactive lanes of a mask are never
 * touched. A bool is a byte in memory: compared with zero when it is read, 0 or 1 when it is written; a half is 16
 * bits. */
#include "jit/emit.h"
#include "jit/llvm_compat.h"
#include <string.h>

LLVMValueRef em_to_register(emit *e, ir_dtype t, LLVMValueRef v) {
    if (ir_is_half(t)) return em_half_value(e, t, v);
    return ir_is_bool(t) ? em_icmp(e, LLVMIntNE, v, LLVMConstNull(LLVMTypeOf(v))) : v;
}

LLVMValueRef em_to_memory(emit *e, ir_dtype t, LLVMValueRef v) {
    if (ir_is_half(t)) return em_half_bits(e, t, v);
    if (!ir_is_bool(t)) return v;
    LLVMTypeRef type = LLVMTypeOf(v);
    bool is_vector = LLVMGetTypeKind(type) == LLVMVectorTypeKind;
    return LLVMBuildZExt(e->b, v, is_vector ? LLVMVectorType(e->t_i8, LLVMGetVectorSize(type)) : e->t_i8, "");
}

static bool is_constant(LLVMValueRef v, int64_t value) {
    return LLVMIsAConstantInt(v) && LLVMConstIntGetSExtValue(v) == value;
}

LLVMValueRef em_gep(emit *e, LLVMValueRef base, LLVMTypeRef element, LLVMValueRef index) {
    if (is_constant(index, 0)) return base;
    return LLVMBuildGEP2(e->b, element, base, &index, 1, "");
}

LLVMValueRef em_load_ptr(emit *e, ir_dtype t, LLVMValueRef ptr, LLVMValueRef mask, unsigned align) {
    if (e->is_aligned) align *= (unsigned)e->lanes;
    LLVMTypeRef type = em_vec(e, em_memory_type(e, t));
    if (!mask) {
        LLVMValueRef v = LLVMBuildLoad2(e->b, type, ptr, "");
        LLVMSetAlignment(v, align);
        return em_to_register(e, t, v);
    }
    if (e->lanes > 1)
        return em_to_register(
            e, t, compat_masked_load(e->mod, e->b, COMPAT_CONTIGUOUS, type, ptr, mask, LLVMConstNull(type), align));
    em_branch branch = em_if(e, mask);
    LLVMValueRef v = LLVMBuildLoad2(e->b, type, ptr, ""), zero = LLVMConstNull(type);
    LLVMSetAlignment(v, align);
    em_endif(e, &branch);
    LLVMValueRef phi = LLVMBuildPhi(e->b, type, "");
    LLVMAddIncoming(phi, &v, &branch.then, 1);
    LLVMAddIncoming(phi, &zero, &branch.other, 1);
    return em_to_register(e, t, phi);
}

void em_store_ptr(emit *e, ir_dtype t, LLVMValueRef value, LLVMValueRef ptr, LLVMValueRef mask, unsigned align) {
    if (e->is_aligned) align *= (unsigned)e->lanes;
    LLVMValueRef v = em_to_memory(e, t, value);
    if (mask && e->lanes > 1) {
        compat_masked_store(e->mod, e->b, COMPAT_CONTIGUOUS, v, ptr, mask, align);
        return;
    }
    em_branch branch = {0};
    if (mask) branch = em_if(e, mask);
    LLVMSetAlignment(LLVMBuildStore(e->b, v, ptr), align);
    if (mask) em_endif(e, &branch);
}

void em_prefetch(emit *e, LLVMValueRef ptr, int level) {
    const unsigned id = LLVMLookupIntrinsicID("llvm.prefetch", strlen("llvm.prefetch"));
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, id, &e->t_ptr, 1);
    LLVMValueRef in[4] = {ptr, LLVMConstInt(e->t_i32, 0, 0), LLVMConstInt(e->t_i32, (unsigned)(4 - level), 0),
                          LLVMConstInt(e->t_i32, 1, 0)};
    LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, in, 4, "");
}

void em_prefetch_lines(emit *e, LLVMValueRef ptr, int64_t bytes, int level) {
    for (int64_t at = 0; at < bytes; at += EM_LINE_BYTES)
        em_prefetch(e, em_gep(e, ptr, e->t_i8, em_i64s(e, at)), level);
}

/* 0, 1, .. lanes - 1. */
static LLVMValueRef lane_numbers(emit *e, LLVMTypeRef element) {
    LLVMValueRef all[64];
    for (int i = 0; i < e->lanes; i++) all[i] = LLVMConstInt(element, (unsigned)i, 0);
    return LLVMConstVector(all, (unsigned)e->lanes);
}

/* Gathers and scatters exist for 4- and 8-byte elements of a masked level; elsewhere one scalar access a lane is what
 * the back end would make too (with a mask: through the masked intrinsic, which it expands into branches). */
static bool has_gather(emit *e, ir_dtype t) { return e->level->has_mask && ir_dtypes[t].bytes >= 4 && e->lanes > 1; }

static LLVMValueRef lane_pointers(emit *e, LLVMValueRef base, LLVMTypeRef element, LLVMValueRef off,
                                  LLVMValueRef step) {
    LLVMValueRef index = em_mul(e, lane_numbers(e, e->t_i64), em_splat(e, step));
    return LLVMBuildGEP2(e->b, element, em_gep(e, base, element, off), &index, 1, "");
}

static LLVMValueRef all_lanes(emit *e) { return LLVMConstAllOnes(em_vec(e, e->t_i1)); }

/* One address a lane. */
static LLVMValueRef load_lanes(emit *e, ir_dtype t, LLVMValueRef at, LLVMValueRef mask) {
    LLVMTypeRef type = em_vec(e, em_memory_type(e, t));
    unsigned align = ir_dtypes[t].bytes;
    return em_to_register(e, t,
                          compat_masked_load(e->mod, e->b, COMPAT_SCATTERED, type, at, mask ? mask : all_lanes(e),
                                             LLVMConstNull(type), align));
}

LLVMValueRef em_gather(emit *e, int buf, LLVMValueRef off, LLVMValueRef at, LLVMValueRef mask) {
    ir_dtype t = e->k->buffer[buf].dtype;
    LLVMTypeRef element = em_memory_type(e, t);
    LLVMValueRef base = em_gep(e, e->base[buf], element, off);
    if (e->lanes == 1) return em_load_ptr(e, t, em_gep(e, base, element, at), mask, ir_dtypes[t].bytes);
    if (mask || has_gather(e, t)) return load_lanes(e, t, LLVMBuildGEP2(e->b, element, base, &at, 1, ""), mask);
    LLVMValueRef v = LLVMGetPoison(em_vec(e, element));
    for (int i = 0; i < e->lanes; i++) {
        LLVMValueRef x = LLVMBuildLoad2(e->b, element, em_gep(e, base, element, em_lane(e, at, i)), "");
        LLVMSetAlignment(x, ir_dtypes[t].bytes);
        v = LLVMBuildInsertElement(e->b, v, x, LLVMConstInt(e->t_i32, (unsigned)i, 0), "");
    }
    return em_to_register(e, t, v);
}

/* Of lanes s elements apart (backwards: -s, and the last lane comes first in memory): part p of the |s| vectors that are
 * read begins at this element from the first one on; the last part ends at the last element that is read. */
static int spread_from(int n, int s, int p) {
    const int apart = s < 0 ? -s : s;
    return p < apart - 1 || p == 0 ? p * n : (apart - 1) * (n - 1);
}

/* The place in memory of lane i, in lanes from the first one on. */
static int spread_place(int n, int s, int i) { return s < 0 ? n - 1 - i : i; }

/* Active elements of a part: those of active lanes. */
static LLVMValueRef spread_mask(emit *e, LLVMValueRef active, int s, int p) {
    const int n = e->lanes, from = spread_from(n, s, p), apart = s < 0 ? -s : s;
    for (int i = 0; i < e->n_spread; i++) {
        const em_spread *made = &e->spread[i];
        if (made->active == active && made->step == s && made->lanes == n) return made->part[p];
    }
    LLVMValueRef mask[64], none = LLVMConstNull(LLVMTypeOf(active));
    for (int i = 0; i < n; i++) { /* the lane that element i of this part is, or none: lane n, which is false */
        int lane = (from + i) % apart ? n : spread_place(n, s, (from + i) / apart);
        mask[i] = LLVMConstInt(e->t_i32, (unsigned)lane, 0);
    }
    return LLVMBuildShuffleVector(e->b, active, none, LLVMConstVector(mask, (unsigned)n), "");
}

/* Lanes s = -4 .. -1, 2, 3, 4 elements apart: whole vectors and shuffles. With a mask each vector is read under what it means
 * for its elements: for 12 active lanes of 16 that are 2 apart, a quarter of the time of a gather. */
static LLVMValueRef load_spread(emit *e, ir_dtype t, LLVMValueRef base, LLVMValueRef off, int s, LLVMValueRef active) {
    LLVMTypeRef element = em_memory_type(e, t), type = em_vec(e, element);
    const int n = e->lanes, parts = s < 0 ? -s : s;
    LLVMValueRef mask[64], v = LLVMGetPoison(type);
    if (s < 0) off = em_add(e, off, em_i64s(e, (int64_t)s * (n - 1)));
    for (int p = 0; p < parts; p++) {
        int from = spread_from(n, s, p);
        LLVMValueRef x, ptr = em_gep(e, base, element, em_add(e, off, em_i64s(e, from)));
        if (active) {
            x = compat_masked_load(e->mod, e->b, COMPAT_CONTIGUOUS, type, ptr, spread_mask(e, active, s, p),
                                   LLVMConstNull(type), ir_dtypes[t].bytes);
        } else {
            x = LLVMBuildLoad2(e->b, type, ptr, "");
            LLVMSetAlignment(x, ir_dtypes[t].bytes);
        }
        for (int i = 0; i < n; i++) { /* what this part has joins the lanes that are there already */
            const int place = spread_place(n, s, i) * parts, at = place - from;
            bool is_here = at >= 0 && at < n && (p == 0 || place >= p * n);
            mask[i] = LLVMConstInt(e->t_i32, (unsigned)(is_here ? n + at : i), 0);
        }
        v = LLVMBuildShuffleVector(e->b, v, x, LLVMConstVector(mask, (unsigned)n), "");
    }
    return em_to_register(e, t, v);
}

static int spread_of(LLVMValueRef step) {
    int64_t s = LLVMIsAConstantInt(step) ? LLVMConstIntGetSExtValue(step) : 0;
    return (s <= -1 && s >= -EM_SPREAD) || (s >= 2 && s <= EM_SPREAD) ? (int)s : 0;
}

LLVMValueRef em_load_turns(emit *e, int buf, LLVMValueRef off, bool is_second, LLVMValueRef mask) {
    const ir_dtype t = e->k->buffer[buf].dtype;
    LLVMTypeRef element = em_memory_type(e, t), type = em_vec(e, element);
    LLVMValueRef v[2], base = em_gep(e, e->base[buf], element, off), lane[64];
    const int n = e->lanes;
    for (int p = 0; p < 2; p++) {
        LLVMValueRef ptr = em_gep(e, base, element, em_i64s(e, p * n)), active = mask;
        for (int i = 0; i < n; i++) lane[i] = LLVMConstInt(e->t_i32, (unsigned)(p * n + i) / 2, 0);
        if (mask) active = LLVMBuildShuffleVector(e->b, mask, mask, LLVMConstVector(lane, (unsigned)n), "");
        if (active == all_lanes(e)) active = NULL;
        v[p] = active ? compat_masked_load(e->mod, e->b, COMPAT_CONTIGUOUS, type, ptr, active, LLVMConstNull(type),
                                           ir_dtypes[t].bytes)
                      : LLVMBuildLoad2(e->b, type, ptr, "");
        if (!active) LLVMSetAlignment(v[p], ir_dtypes[t].bytes);
    }
    for (int i = 0; i < n; i++) lane[i] = LLVMConstInt(e->t_i32, (unsigned)(2 * i + is_second), 0);
    return em_to_register(e, t, LLVMBuildShuffleVector(e->b, v[0], v[1], LLVMConstVector(lane, (unsigned)n), ""));
}

void em_spread_masks(emit *e, LLVMValueRef active, LLVMValueRef step) {
    const int s = spread_of(step);
    em_spread made = {.active = active, .step = s, .lanes = e->lanes};
    if (!s || e->n_spread == EM_SPREADS) return;
    for (int p = 0; p < (s < 0 ? -s : s); p++) made.part[p] = spread_mask(e, active, s, p);
    e->spread[e->n_spread++] = made;
}

LLVMValueRef em_load(emit *e, int buf, LLVMValueRef off, LLVMValueRef step, LLVMValueRef mask) {
    ir_dtype t = e->k->buffer[buf].dtype;
    unsigned align = ir_dtypes[t].bytes;
    LLVMTypeRef element = em_memory_type(e, t);
    LLVMValueRef base = e->base[buf];
    if (e->lanes == 1 || is_constant(step, 1)) return em_load_ptr(e, t, em_gep(e, base, element, off), mask, align);
    if (is_constant(step, 0)) { /* a step runs with at least one lane active, so the element may be read */
        int lanes = e->lanes;
        e->lanes = 1;
        LLVMValueRef v = em_load_ptr(e, t, em_gep(e, base, element, off), NULL, align);
        e->lanes = lanes;
        return em_splat(e, v);
    }
    LLVMTypeRef type = em_vec(e, element);
    if ((!mask || e->level->has_mask) && spread_of(step)) return load_spread(e, t, base, off, spread_of(step), mask);
    if (mask || has_gather(e, t)) return load_lanes(e, t, lane_pointers(e, base, element, off, step), mask);
    LLVMValueRef v = LLVMGetPoison(type);
    for (int i = 0; i < e->lanes; i++) {
        LLVMValueRef x = LLVMBuildLoad2(e->b, element, em_gep(e, base, element, off), "");
        LLVMSetAlignment(x, align);
        v = LLVMBuildInsertElement(e->b, v, x, LLVMConstInt(e->t_i32, (unsigned)i, 0), "");
        if (i + 1 < e->lanes) off = em_add(e, off, step);
    }
    return em_to_register(e, t, v);
}

static void store_lanes(emit *e, int buf, LLVMValueRef value, LLVMValueRef off, LLVMValueRef step, LLVMValueRef mask) {
    ir_dtype t = e->k->buffer[buf].dtype;
    unsigned align = ir_dtypes[t].bytes;
    LLVMTypeRef element = em_memory_type(e, t);
    LLVMValueRef base = e->base[buf];
    if (e->lanes == 1 || is_constant(step, 1)) {
        em_store_ptr(e, t, value, em_gep(e, base, element, off), mask, align);
        return;
    }
    LLVMValueRef v = em_to_memory(e, t, value);
    if (mask) { /* all lanes one by one are no slower than a scatter, and twice as fast on Zen 5 */
        LLVMValueRef at = lane_pointers(e, base, element, off, step);
        compat_masked_store(e->mod, e->b, COMPAT_SCATTERED, v, at, mask, align);
        return;
    }
    for (int i = 0; i < e->lanes; i++) {
        LLVMSetAlignment(LLVMBuildStore(e->b, em_lane(e, v, i), em_gep(e, base, element, off)), align);
        if (i + 1 < e->lanes) off = em_add(e, off, step);
    }
}

void em_store(emit *e, int buf, LLVMValueRef value, LLVMValueRef off, LLVMValueRef step, LLVMValueRef mask) {
    int number = e->k->n_insts - 1;
    while (number >= 0 && (e->k->inst[number].op != IR_K_STORE || e->k->inst[number].index != buf)) number--;
    void *before = em_at(e, number);
    store_lanes(e, buf, value, off, step, mask);
    em_back(e, before);
}

bool em_masks_load(const emit *e, int buf, int d) {
    const ir_kbuffer *b = &e->k->buffer[buf];
    const bool are_neighbours = b->stride[d] == 0 || b->stride[d] == 1;
    return e->level->has_mask || (e->level->has_fma && are_neighbours && ir_dtypes[b->dtype].bytes >= 4);
}

/* n is brought into 0..lanes first. With mask registers: the low n bits of an integer, moved to the mask
 * (llvm.get.active.lane.mask with i64 made nine vector instructions and four 64-byte constants of the same thing). */
LLVMValueRef em_mask(emit *e, LLVMValueRef n) {
    if (e->lanes == 1) return em_icmp(e, LLVMIntSGT, n, em_i64s(e, 0));
    LLVMValueRef lanes = em_i64s(e, e->lanes), zero = em_i64s(e, 0);
    n = em_max(e, n, zero);
    n = em_min(e, n, lanes);
    if (!e->level->has_mask) {
        LLVMValueRef limit = em_splat(e, LLVMBuildTrunc(e->b, n, e->t_i32, ""));
        return em_icmp(e, LLVMIntSLT, lane_numbers(e, e->t_i32), limit);
    }
    LLVMValueRef bits = em_sub(e, LLVMBuildShl(e->b, em_i64s(e, 1), n, ""), em_i64s(e, 1));
    if (e->lanes == 64) bits = em_select(e, em_icmp(e, LLVMIntEQ, n, lanes), em_i64s(e, -1), bits);
    LLVMTypeRef narrow = LLVMIntTypeInContext(e->ctx, (unsigned)e->lanes);
    return LLVMBuildBitCast(e->b, LLVMBuildTrunc(e->b, bits, narrow, ""), em_vec(e, e->t_i1), "");
}
