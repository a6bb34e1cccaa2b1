/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* f16 and bf16 in kernels, exhaustively: every half through every exact operator of one operand and through every cast;
 * and casts to halves of what lies at and beside every boundary between two of them, where rounding twice would
 * show. */
#include "jit_run.h"
#include <math.h>

static const ir_dtype halves[] = {FUSOR_F16, FUSOR_BF16};

/* A map of one dim, n elements: its buffers are `pointer`, each a row; scalars, two at most, are 0.5. */
static void run_text(const char *text, void **pointer, int64_t n) {
    run_kernel k = run_compile(text);
    const float half = 0.5f;
    uint64_t scalar[2] = {0};
    for (int i = 0; i < 2; i++) memcpy(&scalar[i], &half, sizeof half);
    ir_kernel_args a = {.version = IR_KERNEL_ABI,
                        .tune = {1, 64, 0},
                        .buffer = pointer,
                        .size = &n,
                        .stride = (int64_t[]){1, 1, 1},
                        .scalar = scalar};
    cr_assert(k.fn(&a, 0, (n + 63) / 64) == 0);
}

/* y = op(x) for n elements. */
static void run_unary(ir_level level, uint16_t op, ir_dtype from, ir_dtype to, const void *x, void *y, int64_t n) {
    char text[400];
    snprintf(text, sizeof text,
             "fusor-kernel 1\nkind map\nlevel %s\ndim p ?\nbuffer in %s 1\nbuffer out %s 1\n"
             "%%0 = load.%s #0\n%%1 = %s.%s %%0\n%%2 = store.%s #1 %%1\n",
             ir_levels[level].name, ir_dtypes[from].name, ir_dtypes[to].name, ir_dtypes[from].name, ir_ops[op].name,
             ir_dtypes[to].name, ir_dtypes[to].name);
    run_text(text, (void *[]){(void *)(uintptr_t)x, y}, n);
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

/* ---- NaN at the end of a chain in f32 ---- */
/* y = bf16(op(f32(x))), for the operators of arithmetic: NaN stays NaN, whatever bits it has where it comes from. */
static void chain(ir_level level, ir_op op, ir_dtype from, const void *x, int64_t n) {
    if (!host_has_level(level)) return;
    const int n_in = ir_ops[op].max_in;
    char text[400], *const end = text + sizeof text, *p = text;
    p += snprintf(p, sizeof text,
                  "fusor-kernel 1\nkind map\nlevel %s\ndim p ?\nbuffer in %s 1\nbuffer out bf16 1\n%%0 = load.%s #0\n",
                  ir_levels[level].name, ir_dtypes[from].name, ir_dtypes[from].name);
    const int value = from != FUSOR_F32;
    if (value) p += snprintf(p, (size_t)(end - p), "%%1 = cast.f32 %%0\n");
    p += snprintf(p, (size_t)(end - p), "%%%d = %s.f32", value + 1, ir_ops[op].name);
    for (int i = 0; i < n_in; i++) p += snprintf(p, (size_t)(end - p), " %%%d", value);
    snprintf(p, (size_t)(end - p), "\n%%%d = cast.bf16 %%%d\n%%%d = store.bf16 #1 %%%d\n", value + 2, value + 1,
             value + 3, value + 2);
    uint16_t *y = malloc((size_t)n * sizeof *y);
    run_text(text, (void *[]){(void *)(uintptr_t)x, y}, n);
    for (int64_t i = 0; i < n; i++) {
        const ir_bits bits = ir_scalar_cast(from, FUSOR_F32, run_get(from, x, i)), in[3] = {bits, bits, bits};
        const ir_bits want = ir_scalar_cast(FUSOR_F32, FUSOR_BF16, ir_scalar_ew(op, FUSOR_F32, in, NULL, 0));
        cr_assert(run_same(FUSOR_BF16, y[i], want), "%s of %s %lx as bf16 at %s: %x, not %lx", ir_ops[op].name,
                  ir_dtypes[from].name, run_get(from, x, i), ir_levels[level].name, y[i], want);
    }
    free(y);
}

Test(half, nans_of_chains, .timeout = 300) {
    static const ir_op ops[] = {IR_OP_NEG,      IR_OP_ABS,   IR_OP_SIGN, IR_OP_SQUARE, IR_OP_SQRT,    IR_OP_RECIPROCAL,
                                IR_OP_FLOOR,    IR_OP_ROUND, IR_OP_RELU, IR_OP_RELU6,  IR_OP_ADD,     IR_OP_SUB,
                                IR_OP_MUL,      IR_OP_DIV,   IR_OP_MOD,  IR_OP_FMOD,   IR_OP_MAXIMUM, IR_OP_MINIMUM,
                                IR_OP_COPYSIGN, IR_OP_CLAMP, IR_OP_FMA};
    static uint16_t all[65536];
    static uint32_t nan[2 * 23 * 23];
    int64_t n = 0;
    for (int i = 0; i < 65536; i++) all[i] = (uint16_t)i;
    for (unsigned sign = 0; sign < 2; sign++) /* all ones from bit `low` to bit `high` */
        for (unsigned high = 0; high < 23; high++)
            for (unsigned low = 0; low <= high; low++)
                nan[n++] = sign << 31 | 0x7f800000u | (((2u << high) - 1) & ~((1u << low) - 1));
    for (ir_level level = 0; level < IR_LEVEL_COUNT; level++)
        for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
            chain(level, ops[i], FUSOR_F32, nan, n);
            chain(level, ops[i], FUSOR_F16, all, 65536);
            chain(level, ops[i], FUSOR_BF16, all, 65536);
        }
}

/* A NaN that a function of f32 makes has no bits that a bf16 has not, where its operands have none: em_take_program. */
static void no_long_nans(ir_level level, const char *math, ir_op op, int variant, const float *x, const float *y,
                         int64_t n) {
    if (!host_has_level(level)) return;
    const ir_op_info *info = &ir_ops[op];
    char text[400], *const end = text + sizeof text, *p = text;
    p += snprintf(p, sizeof text,
                  "fusor-kernel 1\nkind map\nlevel %s\n%sdim p ?\nbuffer in f32 1\nbuffer in f32 1\nbuffer out f32 1\n",
                  ir_levels[level].name, math);
    for (int i = 0; i < info->n_scalar_attrs; i++) p += snprintf(p, (size_t)(end - p), "scalar f32\n");
    p += snprintf(p, (size_t)(end - p), "%%0 = load.f32 #0\n%%1 = load.f32 #1\n");
    int last = 1;
    for (int i = 0; i < info->n_scalar_attrs; i++)
        p += snprintf(p, (size_t)(end - p), "%%%d = scalar.f32 #%d\n", ++last, i);
    p += snprintf(p, (size_t)(end - p), "%%%d = %s.f32 %%0%s", last + 1, info->name, info->max_in == 2 ? " %1" : "");
    for (int i = 0; i < info->n_scalar_attrs; i++) p += snprintf(p, (size_t)(end - p), " %%%d", 2 + i);
    if (variant) p += snprintf(p, (size_t)(end - p), " variant %d", variant);
    snprintf(p, (size_t)(end - p), "\n%%%d = store.f32 #2 %%%d\n", last + 2, last + 1);
    uint32_t *z = malloc((size_t)n * sizeof *z);
    run_text(text, (void *[]){(void *)(uintptr_t)x, (void *)(uintptr_t)y, z}, n);
    for (int64_t i = 0; i < n; i++)
        cr_assert((z[i] & 0x7fffffff) <= 0x7f800000 || !(z[i] & 0xffff), "%s of %a and %a at %s: %x", info->name,
                  (double)x[i], (double)y[i], ir_levels[level].name, z[i]);
    free(z);
}

Test(half, functions_make_no_long_nans, .timeout = 300) {
    enum { N = 65536 * 8 };
    static float x[N], y[N];
    uint64_t state = 1;
    for (int i = 0; i < 2 * N; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t bits = (uint32_t)(state >> 32);
        if (i < 65536) bits = (uint32_t)i << 16; /* every bf16 beside any */
        if ((bits & 0x7fffffff) > 0x7f800000 || i % 8 == 0) bits &= 0xffff0000u;
        memcpy(i < N ? &x[i] : &y[i - N], &bits, sizeof bits);
    }
    for (ir_level level = 0; level < IR_LEVEL_COUNT; level++)
        for (uint16_t op = 1; op < IR_OP_COUNT; op++)
            for (int variant = 0; variant <= (op == IR_OP_GELU); variant++)
                for (int is_fast = 0; is_fast < 2; is_fast++) {
                    const ir_op_info *info = &ir_ops[op];
                    if (info->kind == IR_KIND_EW && info->max_in <= 2 && !info->result_is_bool &&
                        ir_has_lowering((ir_op)op, FUSOR_F32))
                        no_long_nans(level, is_fast ? "math fast\n" : "", (ir_op)op, variant, x, y, N);
                }
}
