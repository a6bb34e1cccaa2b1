/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* f16 and bf16 in kernels, exhaustively: every half through every exact operator of one operand and through every cast;
 * and casts to halves of what lies at and beside every boundary between two of them, where rounding twice would
 * show. */
#include "jit_run.h"
#include <math.h>

static const ir_dtype halves[] = {FUSOR_F16, FUSOR_BF16};

/* y = op(x) for n elements. */
static void run_unary(ir_level level, uint16_t op, ir_dtype from, ir_dtype to, const void *x, void *y, int64_t n) {
    char text[400];
    snprintf(text, sizeof text,
             "fusor-kernel 1\nkind map\nlevel %s\ndim p ?\nbuffer in %s 1\nbuffer out %s 1\n"
             "%%0 = load.%s #0\n%%1 = %s.%s %%0\n%%2 = store.%s #1 %%1\n",
             ir_levels[level].name, ir_dtypes[from].name, ir_dtypes[to].name, ir_dtypes[from].name, ir_ops[op].name,
             ir_dtypes[to].name, ir_dtypes[to].name);
    run_kernel k = run_compile(text);
    void *pointer[2] = {(void *)(uintptr_t)x, y};
    int64_t stride[2] = {1, 1};
    ir_kernel_args a = {.version = IR_KERNEL_ABI, .tune = {1, 64, 0}, .buffer = pointer, .size = &n, .stride = stride};
    cr_assert(k.fn(&a, 0, (n + 63) / 64) == 0);
}

static void compare(ir_level level, uint16_t op, ir_dtype from, ir_dtype to, const void *x, int64_t n) {
    if (!host_has_level(level)) return;
    char *y = malloc((size_t)n * 8);
    cr_assert(y);
    run_unary(level, op, from, to, x, y, n);
    for (int64_t i = 0; i < n; i++) {
        ir_bits in = run_get(from, x, i), got = run_get(to, y, i);
        ir_bits want = op == IR_OP_CAST      ? ir_scalar_cast(from, to, in)
                       : op == IR_OP_BITCAST ? in
                                             : ir_scalar_ew((ir_op)op, from, &in, NULL, 0);
        cr_assert(run_same(to, got, want), "%s of %s %lx to %s at %s: %lx, not %lx", ir_ops[op].name,
                  ir_dtypes[from].name, in, ir_dtypes[to].name, ir_levels[level].name, got, want);
    }
    free(y);
}

/* ---- from halves ---- */
Test(half, every_value, .timeout = 300) {
    static uint16_t all[65537];
    for (int i = 0; i <= 65536; i++) all[i] = (uint16_t)i;
    for (ir_level level = 0; level < IR_LEVEL_COUNT; level++)
        for (int h = 0; h < 2; h++) {
            for (uint16_t op = 1; op < IR_OP_COUNT; op++) {
                const ir_op_info *info = &ir_ops[op];
                if (info->kind != IR_KIND_EW || info->max_in != 1 || info->n_scalar_attrs || !(info->flags & IR_EXACT))
                    continue;
                if (!ir_has_lowering((ir_op)op, halves[h])) continue;
                compare(level, op, halves[h], info->result_is_bool ? FUSOR_BOOL : halves[h], all, 65537);
            }
            for (ir_dtype to = 1; to < IR_DTYPE_COUNT; to++) compare(level, IR_OP_CAST, halves[h], to, all, 65537);
            /* bits pass through, those of a signalling NaN too */
            uint16_t out[65537];
            compare(level, IR_OP_BITCAST, halves[h], FUSOR_U16, all, 65537);
            compare(level, IR_OP_BITCAST, FUSOR_I16, halves[h], all, 65537);
            if (!host_has_level(level)) continue;
            run_unary(level, IR_OP_BITCAST, halves[h], FUSOR_I16, all, out, 65537);
            cr_assert(memcmp(out, all, sizeof all) == 0, "%s bits changed", ir_dtypes[halves[h]].name);
        }
}

/* ---- to halves ---- */
enum { NEAR = 7 };

Test(half, boundaries_of_floats, .timeout = 300) {
    static double f64[65536 * NEAR];
    static float f32[65536 * NEAR];
    for (int h = 0; h < 2; h++) {
        for (int i = 0; i < 65536; i++) {
            double a = ir_bits_to_double(halves[h], (ir_bits)i), b = ir_bits_to_double(halves[h], (ir_bits)i + 1);
            if (isinf(b) && isfinite(a))
                b = copysign(h ? 0x1p128 : 0x1p16, a); /* where overflow begins: in the middle */
            double m = isfinite(a) && isfinite(b) ? (a + b) / 2 : a;
            float mf = (float)m;
            const float near32[NEAR] = {(float)a,
                                        mf,
                                        nextafterf(mf, INFINITY),
                                        nextafterf(mf, -INFINITY),
                                        nextafterf((float)a, INFINITY),
                                        nextafterf((float)a, -INFINITY),
                                        (float)b};
            const double near64[NEAR] = {a,
                                         m,
                                         nextafter(m, INFINITY),
                                         nextafter(m, -INFINITY),
                                         m * (1 + 0x1p-40),
                                         m * (1 - 0x1p-30),
                                         nextafter(a, INFINITY)};
            memcpy(f32 + i * NEAR, near32, sizeof near32);
            memcpy(f64 + i * NEAR, near64, sizeof near64);
        }
        for (ir_level level = 0; level < IR_LEVEL_COUNT; level++) {
            compare(level, IR_OP_CAST, FUSOR_F32, halves[h], f32, 65536 * NEAR);
            compare(level, IR_OP_CAST, FUSOR_F64, halves[h], f64, 65536 * NEAR);
        }
    }
}

/* Integers with few leading bits, a tie below them, and then one far below or above the tie. */
Test(half, boundaries_of_integers, .timeout = 300) {
    enum { COUNT = 64 * 256 * 6 };
    static uint64_t wide[COUNT];
    static uint32_t narrow[COUNT];
    int64_t n = 0;
    for (int shift = 0; shift < 64; shift++)
        for (uint64_t top = 0; top < 256; top++) {
            uint64_t tie = (2 * top + 1) << shift;
            const uint64_t v[6] = {tie, tie + 1, tie - 1, 0 - tie, 0 - tie - 1, 0 - tie + 1};
            for (int i = 0; i < 6; i++) wide[n] = v[i], narrow[n++] = (uint32_t)v[i];
        }
    for (ir_level level = 0; level < IR_LEVEL_COUNT; level++)
        for (int h = 0; h < 2; h++) {
            compare(level, IR_OP_CAST, FUSOR_I64, halves[h], wide, n);
            compare(level, IR_OP_CAST, FUSOR_U64, halves[h], wide, n);
            compare(level, IR_OP_CAST, FUSOR_I32, halves[h], narrow, n);
            compare(level, IR_OP_CAST, FUSOR_U32, halves[h], narrow, n);
        }
}
