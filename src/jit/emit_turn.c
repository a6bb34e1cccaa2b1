/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* emit_turn.c: square blocks of elements transposed in registers. */
#include "jit/emit.h"
#include <string.h>

static LLVMValueRef shuffle(emit *e, LLVMValueRef a, LLVMValueRef b, const int *index, int n) {
    LLVMValueRef mask[64];
    for (int i = 0; i < n; i++) mask[i] = LLVMConstInt(e->t_i32, (unsigned)index[i], 0);
    return LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(mask, (unsigned)n), "");
}

/* Elements of a and b in turn, inside each 128-bit lane of `part` elements, of its lower or upper half: an unpack. */
static LLVMValueRef interleave(emit *e, LLVMValueRef a, LLVMValueRef b, int n, int part, int half) {
    int index[64];
    for (int i = 0; i < n; i++) index[i] = (i & 1 ? n : 0) + i / part * part + half * part / 2 + i % part / 2;
    return shuffle(e, a, b, index, n);
}

/* Every other lane of a, then of b. */
static LLVMValueRef pick_lanes(emit *e, LLVMValueRef a, LLVMValueRef b, int n, int part, int odd) {
    int index[64], half = n / part / 2;
    for (int i = 0; i < n; i++) {
        int lane = i / part;
        index[i] = (lane >= half ? n : 0) + (2 * (lane % half) + odd) * part + i % part;
    }
    return shuffle(e, a, b, index, n);
}

/* For each shuffle LLVM's x86 back end looks for better ones through all shuffles that lead to it: of a block of 16 x 16
 * that took a third of the time of a convolution's compilation, and found none. So stages do not see each other, where registers
 * hold all rows; smaller blocks are quick. */
static void hide(emit *e, LLVMValueRef *v, int n, int side) {
    for (int i = 0; i < n && side == EM_MAX_SIDE && e->level->has_mask; i++) v[i] = em_opaque(e, v[i]);
}

/* log2(part) unpacks of rows half a group apart transpose inside lanes; then whole lanes change places. */
void em_turn(emit *e, LLVMValueRef *v, int n, int bytes) {
    int part = n * bytes <= 16 ? n : 16 / bytes, groups = n / part;
    LLVMValueRef t[EM_MAX_SIDE];
    for (int g = 0; g < groups; g++)
        for (int s = 1; s < part; s *= 2) {
            for (int i = 0; i < part / 2; i++)
                for (int h = 0; h < 2; h++)
                    t[2 * i + h] = interleave(e, v[g * part + i], v[g * part + i + part / 2], n, part, h);
            memcpy(v + g * part, t, (size_t)part * sizeof *t);
        }
    if (groups > 1) hide(e, v, n, n);
    for (int j = 0; j < part; j++) { /* lane l of v[g * part + j] is rows of group g of column l * part + j */
        LLVMValueRef now[4], next[4];
        for (int g = 0; g < groups; g++) now[g] = v[g * part + j];
        for (int s = 1; s < groups; s *= 2) {
            for (int g = 0; g < groups; g += 2)
                for (int h = 0; h < 2; h++)
                    next[g / 2 + h * groups / 2] = pick_lanes(e, now[g], now[g + 1], n, part, h);
            memcpy(now, next, sizeof now);
            if (2 * s < groups) hide(e, now, groups, n);
        }
        for (int g = 0; g < groups; g++) v[g * part + j] = now[g];
    }
}
