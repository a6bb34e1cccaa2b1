/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ptx_wgmma.c: products of wgmma.mma_async: where its operands lie in shared memory (PTX ISA 9.0, 9.7.15.5: matrix
 * descriptors, strides, canonical layouts of the 128-byte swizzle), and a warp's 16 of the 64 rows.
 *
 * A descriptor has, in units of 16 bytes, the address (bits 0-13), the leading (16-29) and the stride (32-45) offset,
 * then the base offset (49-51) and the swizzle (62-63; 1: 128 bytes). Elements of 16 bits; "row" is one of m of A, of n
 * of B:
 *   along k       8 rows of 128 bytes, rows side by side; each further 8 rows at the stride offset
 *   along the row 64 rows make a line of 128 bytes; 8 lines, each a k; each further 8 k at the stride offset, each
 *   further 64
 *                 rows at the leading offset
 * and bits 4-6 of every address are xored with bits 7-9. */
#include "ptx.h"
#include <string.h>

enum { K = 16, ROW_BYTES = 128, ROWS_OF_LINE = 64 };

static uint64_t field(uint64_t descriptor, int from, int bits) { return descriptor >> from & ((1ull << bits) - 1); }

static uint64_t place(uint64_t descriptor, bool is_turned, uint64_t row, uint64_t k) {
    uint64_t at = 16 * field(descriptor, 0, 14), leading = 16 * field(descriptor, 16, 14),
             stride = 16 * field(descriptor, 32, 14);
    if (is_turned) at += 2 * (row % ROWS_OF_LINE) + row / ROWS_OF_LINE * leading + k % 8 * ROW_BYTES + k / 8 * stride;
    else at += row % 8 * ROW_BYTES + row / 8 * stride + 2 * k;
    return at ^ (at >> 7 & 7) << 4;
}

static const char *read_operand(const ptx_product *p, int operand, int first, int rows, const ptx_shared *s,
                                double out[][K]) {
    uint64_t d = p->descriptor[operand];
    if (field(d, 62, 2) != 1) return "a descriptor without the 128-byte swizzle";
    if (field(d, 49, 3) != 0) return "a descriptor with a base offset";
    for (int row = 0; row < rows; row++)
        for (int k = 0; k < K; k++) {
            uint16_t bits;
            uint64_t at = place(d, p->is_turned[operand], (uint64_t)(first + row), (uint64_t)k);
            if (at + 2 > s->bytes) return "an operand outside shared memory";
            memcpy(&bits, s->data + at, 2);
            s->touch(s->user, at, 2);
            if (out) out[row][k] = ptx_to_double(p->type, bits);
        }
    return NULL;
}

const char *ptx_wgmma(const ptx_product *p, const ptx_shared *s, float d[16][PTX_WGMMA_COLUMNS]) {
    static double a[16][K], b[PTX_WGMMA_COLUMNS][K];
    const char *wrong = p->has_a ? NULL : read_operand(p, 0, 16 * p->warp, 16, s, d ? a : NULL);
    for (int m = 0; m < 16 && p->has_a; m++)
        for (int k = 0; k < K; k++) a[m][k] = ptx_to_double(p->type, p->a[m][k]);
    if (!wrong) wrong = read_operand(p, 1, 0, p->columns, s, d ? b : NULL);
    for (int m = 0; m < 16 && d && !wrong; m++)
        for (int n = 0; n < p->columns; n++) {
            double sum = d[m][n];
            for (int k = 0; k < K; k++) sum += a[m][k] * b[n][k];
            d[m][n] = (float)sum;
        }
    return wrong;
}
