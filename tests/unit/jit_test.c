/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Map kernels against the scalar references: every exact row and type, every cast, every shape form, at every level
 * that the host has, between guard pages; and the linker on damaged objects. */
#include "jit_run.h"
#include "jit/link.h"
#include <math.h>
#include <pthread.h>

enum { N = 611 }; /* no multiple of anything */

/* Runs a kernel of one dim and n elements; in[] and out are contiguous. */
static void run_1d(const run_kernel *k, const ir_kernel *d, run_buffer *buffer, int64_t n, int stream) {
    void *pointer[8];
    int64_t stride[8];
    for (int b = 0; b < d->n_buffers; b++) {
        pointer[b] = buffer[b].data;
        stride[b] = 1;
    }
    ir_kernel_args a = {
        .version = IR_KERNEL_ABI, .tune = {1, 64, stream}, .buffer = pointer, .size = &n, .stride = stride};
    int64_t tiles = (n + 63) / 64;
    cr_assert(k->fn(&a, 0, tiles / 2) == 0);
    cr_assert(k->fn(&a, tiles / 2, tiles) == 0);
}

static ir_kernel new_map(ir_level level) {
    ir_kernel k;
    memset(&k, 0, sizeof k);
    k.kind = IR_KERNEL_MAP;
    k.level = level;
    k.n_dims = 1;
    k.dim[0] = (ir_kdim){'p', IR_SIZE_RUNTIME};
    return k;
}

static int add_inst(ir_kernel *k, uint16_t op, ir_dtype t, int index, int n_in, const int *in) {
    ir_kinst *i = &k->inst[k->n_insts];
    *i = (ir_kinst){.op = op, .dtype = t, .n_in = (uint8_t)n_in, .index = (uint16_t)index};
    for (int j = 0; j < n_in; j++) i->in[j] = (uint16_t)in[j];
    return k->n_insts++;
}

static int add_load(ir_kernel *k, ir_dtype t) {
    k->buffer[k->n_buffers] = (ir_kbuffer){.dtype = t, .stride = {1}};
    return add_inst(k, IR_K_LOAD, t, k->n_buffers++, 0, NULL);
}

static void add_store(ir_kernel *k, int value) {
    k->buffer[k->n_buffers] = (ir_kbuffer){.dtype = k->inst[value].dtype, .is_output = true, .stride = {1}};
    add_inst(k, IR_K_STORE, k->inst[value].dtype, k->n_buffers++, 1, &value);
}

static run_kernel compile(const ir_kernel *k) {
    fu_arena a;
    jmp_buf oom;
    fu_arena_init(&a, &oom);
    cr_assert(setjmp(oom) == 0);
    fu_str text;
    fu_str_init(&text, &a);
    ir_kernel_print(&text, k);
    run_kernel r = run_compile(text.at);
    fu_arena_free(&a);
    return r;
}

typedef ir_bits (*reference)(const ir_kernel *k, const ir_bits *x);

/* Runs k (loads, then one operator, then a store) on N and on few elements and compares. */
static void check(const ir_kernel *k, reference ref, double ulp) {
    run_kernel r = compile(k);
    if (!host_has_level(k->level)) { /* that it links, so calls nothing, is checked all the same */
        return;
    }
    int n_in = k->n_buffers - 1;
    ir_dtype out = k->buffer[n_in].dtype;
    uint64_t state = k->inst[n_in].op * 1000 + k->inst[n_in].dtype;
    static const int sizes[] = {N, 0, 1, 5, 15, 16, 17, 33, 63, 64, 65};
    for (int pass = 0; pass < 22; pass++) {
        int64_t n = sizes[pass / 2];
        run_buffer b[8];
        for (int i = 0; i < k->n_buffers; i++) {
            b[i] = run_guarded((size_t)(n * ir_dtypes[k->buffer[i].dtype].bytes), pass & 1);
            bool is_attribute = i < n_in && i >= ir_ops[k->inst[n_in].op].max_in;
            for (int64_t j = 0; j < n; j++) {
                ir_dtype t = k->buffer[i].dtype;
                ir_bits v = run_value(t, &state);
                if (is_attribute) v = ir_bits_from_double(t, (double)(run_random(&state) % 64) / 16 - 2, &(bool){0});
                run_put(t, b[i].data, j, v);
            }
        }
        run_1d(&r, k, b, n, pass & 1);
        for (int64_t j = 0; j < n; j++) {
            ir_bits x[4] = {0};
            for (int i = 0; i < n_in; i++) {
                x[i] = run_get(k->buffer[i].dtype, b[i].data, j);
                if (ir_is_bool(k->buffer[i].dtype)) x[i] = x[i] != 0;
            }
            ir_bits got = run_get(out, b[n_in].data, j), want = ref(k, x);
            if (run_same(out, got, want)) continue;
            int64_t distance = llabs((int64_t)(got - want));
            if (ulp > 0.5 && (double)distance <= ulp && !run_is_nan(out, got)) continue;
            if (ulp > 0.5 && fabs(ir_bits_to_double(out, got) - ir_bits_to_double(out, want)) <= 1e-7) continue;
            cr_assert(false, "%s.%s at %s, n %ld: (%lx, %lx, %lx) gave %lx; expected %lx",
                      ir_ops[k->inst[n_in].op].name, ir_dtypes[k->inst[0].dtype].name, ir_levels[k->level].name,
                      (long)n, x[0], x[1], x[2], got, want);
        }
        for (int i = 0; i < k->n_buffers; i++) run_free(&b[i]);
    }
}

static ir_bits ew_reference(const ir_kernel *k, const ir_bits *x) {
    const ir_kinst *i = &k->inst[k->n_buffers - 1];
    const ir_op_info *op = &ir_ops[i->op];
    ir_dtype t = k->inst[i->in[op->flags & IR_COND ? 1 : 0]].dtype;
    double attr[2] = {0};
    for (int a = 0; a < op->n_scalar_attrs; a++)
        attr[a] = ir_bits_to_double(ir_is_half(t) ? FUSOR_F32 : t, x[op->max_in + a]);
    return ir_scalar_ew((ir_op)i->op, t, x, attr, 0);
}

static ir_bits cast_reference(const ir_kernel *k, const ir_bits *x) {
    return ir_scalar_cast(k->inst[0].dtype, k->inst[1].dtype, x[0]);
}

/* Operators of more than a few instructions that are not in math_*.c. */
static bool is_arithmetic(ir_op op) {
    return op == IR_OP_HARD_SIGMOID || op == IR_OP_HARD_SWISH || op == IR_OP_SOFTSIGN;
}

static void check_rows(ir_level level) {
    for (int op = 1; op < IR_OP_COUNT; op++) {
        const ir_op_info *info = &ir_ops[op];
        if (info->kind != IR_KIND_EW) continue;
        for (ir_dtype t = 1; t < IR_DTYPE_COUNT; t++) {
            if (!ir_has_lowering((ir_op)op, t)) continue;
            bool is_exact = (info->flags & IR_EXACT) || !ir_is_float(t);
            if (!is_exact && !is_arithmetic((ir_op)op)) continue;
            ir_kernel k = new_map(level);
            int in[5], n = info->max_in + info->n_scalar_attrs;
            for (int i = 0; i < n; i++) {
                bool is_attribute = i >= info->max_in && ir_is_half(t);
                in[i] = add_load(&k, (info->flags & IR_COND) && i == 0 ? FUSOR_BOOL : is_attribute ? FUSOR_F32 : t);
            }
            add_store(&k, add_inst(&k, (uint16_t)op, info->result_is_bool ? FUSOR_BOOL : t, 0, n, in));
            check(&k, ew_reference, is_exact ? 0.5 : info->ulp);
        }
    }
}

static void check_casts(ir_level level) {
    for (ir_dtype from = 1; from < IR_DTYPE_COUNT; from++)
        for (ir_dtype to = 1; to < IR_DTYPE_COUNT; to++) {
            ir_kernel k = new_map(level);
            int in = add_load(&k, from);
            add_store(&k, add_inst(&k, IR_OP_CAST, to, 0, 1, &in));
            check(&k, cast_reference, 0.5);
        }
}

Test(jit_ew, v2, .timeout = 300) { check_rows(IR_LEVEL_V2); }
Test(jit_ew, v3, .timeout = 300) { check_rows(IR_LEVEL_V3); }
Test(jit_ew, v4, .timeout = 300) { check_rows(IR_LEVEL_V4); }
Test(jit_cast, v2, .timeout = 300) { check_casts(IR_LEVEL_V2); }
Test(jit_cast, v3, .timeout = 300) { check_casts(IR_LEVEL_V3); }
Test(jit_cast, v4, .timeout = 300) { check_casts(IR_LEVEL_V4); }

/* fma where the terms cancel, underflow, overflow or lie on a tie: where an emulation could be wrong. */
static void check_fma(ir_level level, ir_dtype t) {
    enum { COUNT = 40000 };
    if (!host_has_level(level)) return;
    ir_kernel k = new_map(level);
    int in[3];
    for (int i = 0; i < 3; i++) in[i] = add_load(&k, t);
    add_store(&k, add_inst(&k, IR_OP_FMA, t, 0, 3, in));
    run_kernel r = compile(&k);
    run_buffer b[4];
    uint64_t state = 3;
    int bits = t == FUSOR_F64 ? 52 : 23, field = t == FUSOR_F64 ? 2047 : 255;
    for (int i = 0; i < 4; i++) b[i] = run_guarded(COUNT * ir_dtypes[t].bytes, true);
    for (int64_t j = 0; j < COUNT; j++) {
        ir_bits x[3];
        for (int i = 0; i < 2; i++) {
            uint64_t mantissa = run_random(&state) & ((UINT64_C(1) << bits) - 1),
                     exponent = run_random(&state) % (uint64_t)field;
            if (run_random(&state) % 3 == 0) mantissa &= UINT64_C(7) << (bits - 3);
            if (run_random(&state) % 3) exponent = (uint64_t)field / 2 + run_random(&state) % 8 - 4;
            if (run_random(&state) % 8 == 0) exponent = run_random(&state) % 4;
            x[i] = (run_random(&state) & 1) << (bits == 52 ? 63 : 31) | exponent << bits | mantissa;
        }
        /* c near -a*b, or up to 120 binary places away from it */
        ir_bits p = ir_scalar_ew(IR_OP_MUL, t, x, NULL, 0);
        x[2] = p ^ UINT64_C(1) << (bits == 52 ? 63 : 31);
        uint64_t how = run_random(&state) % 4;
        if (how == 1) x[2] += run_random(&state) % 5 - 2;
        if (how >= 2) x[2] += (run_random(&state) % 240 - 120) << bits;
        if (how == 3) x[2] ^= run_random(&state) & ((UINT64_C(1) << bits) - 1);
        if (run_random(&state) & 1) x[2] ^= UINT64_C(1) << (bits == 52 ? 63 : 31);
        for (int i = 0; i < 3; i++) run_put(t, b[i].data, j, x[i]);
    }
    run_1d(&r, &k, b, COUNT, 0);
    for (int64_t j = 0; j < COUNT; j++) {
        ir_bits x[3], got = run_get(t, b[3].data, j);
        for (int i = 0; i < 3; i++) x[i] = run_get(t, b[i].data, j);
        ir_bits want = ir_scalar_ew(IR_OP_FMA, t, x, NULL, 0);
        cr_assert(run_same(t, got, want), "fma.%s at %s: (%lx, %lx, %lx) gave %lx; expected %lx", ir_dtypes[t].name,
                  ir_levels[level].name, x[0], x[1], x[2], got, want);
    }
    for (int i = 0; i < 4; i++) run_free(&b[i]);
}

Test(jit_ew, fma, .timeout = 60) {
    for (int level = 0; level < IR_LEVEL_COUNT; level++) {
        check_fma((ir_level)level, FUSOR_F32);
        check_fma((ir_level)level, FUSOR_F64);
    }
}

/* ---- shapes ---- */
/* out[i, j, l] = relu(a[i, j, l] * b[l] + s) + index(j), of all forms of strides. */
typedef struct form {
    int64_t size[3], stride[4][3];
    bool is_baked[3];
} form;
static const form forms[] = {
    /* buffers: a, b, out, last: elements of a */
    {{3, 5, 37}, {{185, 37, 1}, {0, 0, 1}, {185, 37, 1}, {0}}, {false, false, false}},
    {{3, 5, 37}, {{185, 37, 1}, {0, 1, 0}, {185, 37, 1}, {0}}, {false, false, true}},
    {{2, 7, 64}, {{448, 64, 1}, {0, 0, 1}, {448, 64, 1}, {0}}, {false, false, true}},
    {{2, 7, 13}, {{91, 13, 1}, {0, 0, 1}, {91, 13, 1}, {0}}, {false, false, true}},
    {{2, 7, 5}, {{35, 5, 1}, {1, 0, 0}, {35, 5, 1}, {0}}, {false, false, true}},
    {{2, 70, 3}, {{210, 3, 1}, {3, 0, 1}, {210, 3, 1}, {0}}, {false, true, true}},
    {{4, 3, 50}, {{1, 4, 12}, {0, 0, 0}, {150, 50, 1}, {0}}, {false, false, false}}, /* a transposed */
    {{4, 3, 50}, {{150, 50, 1}, {0, 0, 1}, {1, 4, 12}, {0}}, {false, false, false}}, /* out transposed */
    {{2, 10, 37}, {{370, 1, 10}, {0, 0, 1}, {370, 37, 1}, {0}}, {false, false, false}},
    {{2, 21, 9}, {{189, 1, 21}, {0, 1, 0}, {189, 9, 1}, {0}}, {false, false, false}},
    {{1, 48, 33}, {{0, 1, 48}, {0, 33, 1}, {0, 33, 1}, {0}}, {false, false, false}},
    {{3, 3, 17}, {{51, 1, 3}, {0, 1, 0}, {51, 17, 1}, {0}}, {false, false, false}},
    {{1, 1, 1}, {{1, 1, 1}, {0, 0, 1}, {1, 1, 1}, {0}}, {false, false, false}},
    {{3, 0, 9}, {{0, 9, 1}, {0, 0, 1}, {0, 9, 1}, {0}}, {false, false, false}},
};

static int64_t extent(const form *f, int b) {
    int64_t n = 1;
    for (int d = 0; d < 3; d++) {
        if (f->size[d] == 0) return 0;
        n += (f->size[d] - 1) * f->stride[b][d];
    }
    return n;
}

static void check_form(ir_level level, const form *f, ir_dtype t, int64_t rows, int64_t columns) {
    ir_kernel k = new_map(level);
    k.n_dims = 3;
    for (int d = 0; d < 3; d++) k.dim[d] = (ir_kdim){'p', f->is_baked[d] ? f->size[d] : IR_SIZE_RUNTIME};
    if (f->stride[0][1] == 1 && f->stride[0][2] != 1) k.dim[1].role = 't'; /* blocks of a are transposed */
    for (int b = 0; b < 3; b++) {
        k.buffer[b] = (ir_kbuffer){.dtype = t, .is_output = b == 2};
        for (int d = 0; d < 3; d++)
            k.buffer[b].stride[d] = f->stride[b][d] == 0 || f->stride[b][d] == 1 ? f->stride[b][d] : IR_STRIDE_RUNTIME;
    }
    k.n_buffers = 3;
    k.n_scalars = 1;
    k.scalar[0] = t;
    int a = add_inst(&k, IR_K_LOAD, t, 0, 0, NULL), b = add_inst(&k, IR_K_LOAD, t, 1, 0, NULL);
    int s = add_inst(&k, IR_K_SCALAR, t, 0, 0, NULL), index = add_inst(&k, IR_K_INDEX, FUSOR_I64, 1, 0, NULL);
    int last = add_inst(&k, IR_K_INDEX, FUSOR_I64, 2, 0, NULL);
    int where = add_inst(&k, IR_OP_ADD, FUSOR_I64, 0, 2, (int[]){index, last});
    int product = add_inst(&k, IR_OP_MUL, t, 0, 2, (int[]){a, b}),
        sum = add_inst(&k, IR_OP_ADD, t, 0, 2, (int[]){product, s});
    int relu = add_inst(&k, IR_OP_RELU, t, 0, 1, &sum), cast = add_inst(&k, IR_OP_CAST, t, 0, 1, &where);
    int value = add_inst(&k, IR_OP_ADD, t, 0, 2, (int[]){relu, cast});
    add_inst(&k, IR_K_STORE, t, 2, 1, &value);
    run_kernel r = compile(&k);
    run_buffer buffer[3];
    uint64_t state = 7;
    void *pointer[3];
    int64_t stride[9];
    for (int i = 0; i < 3; i++) {
        buffer[i] = run_guarded((size_t)(extent(f, i) * ir_dtypes[t].bytes), true);
        pointer[i] = buffer[i].data;
        for (int64_t j = 0; j < extent(f, i); j++) run_put(t, pointer[i], j, run_value(t, &state));
        for (int d = 0; d < 3; d++) stride[i * 3 + d] = f->stride[i][d];
    }
    ir_bits scalar = run_value(t, &state);
    ir_kernel_args args = {.version = IR_KERNEL_ABI,
                           .tune = {rows, columns, 1},
                           .buffer = pointer,
                           .size = f->size,
                           .stride = stride,
                           .scalar = &scalar};
    ir_launch launch;
    ir_kernel_launch(&k, f->size, args.tune, &launch);
    for (int64_t tile = 0; tile < launch.tiles[0]; tile++) cr_assert(r.fn(&args, tile, tile + 1) == 0);
    for (int64_t i = 0; i < f->size[0]; i++)
        for (int64_t j = 0; j < f->size[1]; j++)
            for (int64_t l = 0; l < f->size[2]; l++) {
                int64_t at[3];
                for (int n = 0; n < 3; n++) at[n] = i * f->stride[n][0] + j * f->stride[n][1] + l * f->stride[n][2];
                ir_bits x[2] = {run_get(t, pointer[0], at[0]), run_get(t, pointer[1], at[1])};
                x[0] = ir_scalar_ew(IR_OP_MUL, t, x, NULL, 0);
                x[1] = scalar;
                x[0] = ir_scalar_ew(IR_OP_ADD, t, x, NULL, 0);
                x[0] = ir_scalar_ew(IR_OP_RELU, t, x, NULL, 0);
                x[1] = ir_scalar_cast(FUSOR_I64, t, (ir_bits)(j + l));
                ir_bits want = ir_scalar_ew(IR_OP_ADD, t, x, NULL, 0), got = run_get(t, pointer[2], at[2]);
                cr_assert(run_same(t, got, want), "%s %s form %d at %ld,%ld,%ld: %lx; expected %lx",
                          ir_levels[level].name, ir_dtypes[t].name, (int)(f - forms), (long)i, (long)j, (long)l, got,
                          want);
            }
    for (int i = 0; i < 3; i++) run_free(&buffer[i]);
}

Test(jit_map, shapes, .timeout = 300) {
    static const ir_dtype types[] = {FUSOR_F32, FUSOR_F64, FUSOR_I32, FUSOR_U8, FUSOR_I64};
    for (int level = 0; level < IR_LEVEL_COUNT; level++) {
        if (!host_has_level((ir_level)level)) continue;
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
            for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
                check_form((ir_level)level, &forms[i], types[t], 1, 64);
                check_form((ir_level)level, &forms[i], types[t], 4, 128);
            }
    }
}

/* No dim at all: one element; and an output over its input. */
Test(jit_map, scalar_and_in_place) {
    for (int level = 0; level < IR_LEVEL_COUNT; level++) {
        if (!host_has_level((ir_level)level)) continue;
        ir_kernel k = new_map((ir_level)level);
        int in = add_load(&k, FUSOR_F32);
        add_store(&k, add_inst(&k, IR_OP_SQRT, FUSOR_F32, 0, 1, &in));
        run_kernel whole = compile(&k);
        k.n_dims = 0;
        run_kernel one = compile(&k);
        float data[100];
        for (int i = 0; i < 100; i++) data[i] = (float)(i * i);
        void *pointer[2] = {data, data};
        int64_t n = 100, stride[2] = {1, 1};
        ir_kernel_args a = {
            .version = IR_KERNEL_ABI, .tune = {1, 128, 1}, .buffer = pointer, .size = &n, .stride = stride};
        whole.fn(&a, 0, 1);
        for (int i = 0; i < 100; i++) cr_assert(data[i] == (float)i);
        pointer[1] = data + 1;
        data[0] = 81;
        one.fn(&a, 0, 1);
        cr_assert(data[1] == 9 && data[2] == 2);
    }
}

/* ---- stages and refusals ---- */
static const char relu_text[] =
    "fusor-kernel 1\nkind map\nlevel x86-64-v3\ndim p ?\nbuffer in f32 1\nbuffer out f32 1\n"
    "%0 = load.f32 #0\n%1 = relu.f32 %0\n%2 = store.f32 #1 %1\n";

Test(jit_codegen, stages) {
    char error[1024];
    for (int stage = FUSOR_CODEGEN_BLOB; stage <= FUSOR_CODEGEN_DISASM; stage++) {
        size_t bytes = 0;
        char *data = run_stage(relu_text, (fusor_codegen_stage)stage, &bytes, error);
        cr_assert(data && bytes, "stage %d: %s", stage, error);
        if (stage == FUSOR_CODEGEN_LLVM) cr_assert(strstr(data, "define i32 @fk_test"));
        if (stage == FUSOR_CODEGEN_ASM) cr_assert(strstr(data, "fk_test:") && strstr(data, "ymm"));
        if (stage == FUSOR_CODEGEN_DISASM)
            cr_assert(strstr(data, "ret") && strstr(data, "vmaxps") && !strstr(data, "(bad)"));
        free(data);
    }
}

/* The largest constant that is subtracted from the stack pointer. */
static int frame_bytes(const char *code, size_t bytes) {
    int most = 0;
    for (size_t i = 0; i + 7 <= bytes; i++) {
        int n = 0;
        if (memcmp(code + i, "\x48\x81\xec", 3) == 0) memcpy(&n, code + i + 3, 4);
        if (n > most && n < 1 << 20) most = n;
    }
    return most;
}

/* A hundred values of a step that are all alive before the first store. */
Test(jit_codegen, frames_are_bounded, .timeout = 120) {
    enum { OUTPUTS = 100, SIZE = 33 };
    for (int level = 0; level < IR_LEVEL_COUNT; level++) {
        ir_kernel k = new_map((ir_level)level);
        int value[OUTPUTS];
        for (int i = 0; i < OUTPUTS; i++) value[i] = add_load(&k, FUSOR_F64);
        for (int i = 0; i < OUTPUTS; i++)
            add_store(&k, add_inst(&k, IR_OP_MUL, FUSOR_F64, 0, 2, (int[]){value[i], value[(i + 1) % OUTPUTS]}));
        run_kernel r = compile(&k);
        cr_assert(frame_bytes(r.map, r.map_bytes) <= 16384, "%s: a frame of %d bytes", ir_levels[level].name,
                  frame_bytes(r.map, r.map_bytes));
        if (host_has_level((ir_level)level)) {
            static double data[2 * OUTPUTS][SIZE];
            void *pointer[2 * OUTPUTS];
            int64_t n = SIZE, stride[2 * OUTPUTS];
            for (int b = 0; b < 2 * OUTPUTS; b++) {
                pointer[b] = data[b], stride[b] = 1;
                for (int i = 0; i < SIZE; i++) data[b][i] = b < OUTPUTS ? b + i : -1;
            }
            ir_kernel_args a = {
                .version = IR_KERNEL_ABI, .tune = {1, 64, 0}, .buffer = pointer, .size = &n, .stride = stride};
            r.fn(&a, 0, 1);
            for (int b = 0; b < OUTPUTS; b++)
                for (int i = 0; i < SIZE; i++)
                    cr_assert(data[OUTPUTS + b][i] == data[b][i] * data[(b + 1) % OUTPUTS][i]);
        }
    }
}

Test(jit_codegen, refuses_what_it_cannot_build) {
    char error[1024];
    cr_assert_null(run_stage("", FUSOR_CODEGEN_BLOB, NULL, error));
    cr_assert_null(run_stage("fusor-kernel 1\nkind map\nlevel x86-64-v3\ndim p ?\nbuffer in f32 1\nbuffer out i64 1\n"
                             "%0 = load.f32 #0\n%1 = bitcast.i64 %0\n%2 = store.i64 #1 %1\n",
                             FUSOR_CODEGEN_BLOB, NULL, error));
    cr_assert(strstr(error, "bitcast"), "%s", error);
}

static void *refuse(void *user, size_t bytes) {
    (void)user, (void)bytes;
    return NULL;
}

/* Out of memory anywhere is a status, and leaks nothing (sanitizer builds see that). */
Test(jit_codegen, out_of_memory) {
    fusor_codegen_request q = run_request(relu_text, FUSOR_CODEGEN_DISASM);
    fusor_codegen_result r;
    int status = FUSOR_ERROR_MEMORY;
    long n = 1;
    for (; status != FUSOR_OK && n < 1000; n++) {
        fu_malloc_fail_at(n);
        status = fusor_codegen_module()->generate(&q, &r);
        cr_assert(status == FUSOR_OK || (status == FUSOR_ERROR_MEMORY && r.error[0]), "%d %s", status, r.error);
    }
    fu_malloc_fail_at(0);
    cr_assert(n > 2 && n < 1000);
    free(r.data);
    q.allocate = refuse;
    cr_assert(fusor_codegen_module()->generate(&q, &r) == FUSOR_ERROR_MEMORY);
    q.version++;
    cr_assert(fusor_codegen_module()->generate(&q, &r) == FUSOR_ERROR_ARGUMENT);
}

/* Four threads at once, each time the same bytes: a cached kernel must not depend on who made it. */
static void *compile_often(void *bytes_out) {
    for (int i = 0; i < 20; i++) {
        char *data = run_stage(relu_text, FUSOR_CODEGEN_BLOB, bytes_out, NULL), *again;
        size_t bytes = 0;
        again = run_stage(relu_text, FUSOR_CODEGEN_BLOB, &bytes, NULL);
        if (!data || !again || bytes != *(size_t *)bytes_out || memcmp(data, again, bytes) != 0)
            *(size_t *)bytes_out = 0;
        free(data);
        free(again);
    }
    return NULL;
}

Test(jit_codegen, threads, .timeout = 60) {
    pthread_t thread[4];
    size_t bytes[4] = {0};
    for (int i = 0; i < 4; i++) cr_assert(pthread_create(&thread[i], NULL, compile_often, &bytes[i]) == 0);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 4; i++) cr_assert(bytes[i] && bytes[i] == bytes[0]);
}

/* ---- linker ---- */
Test(jit_link, damaged_objects, .timeout = 120) {
    static size_t bytes; /* not lost by a longjmp */
    uint8_t *object = (uint8_t *)run_stage(relu_text, FUSOR_CODEGEN_OBJECT, &bytes, NULL);
    cr_assert_not_null(object);
    uint8_t *copy = malloc(bytes);
    fu_arena a;
    jmp_buf oom;
    static fu_error err;
    jit_blob blob;
    fu_arena_init(&a, &oom);
    cr_assert(setjmp(oom) == 0);
    cr_assert(jit_link(&(jit_object){object, bytes}, 1, "fk_test", &a, &blob, &err) == FUSOR_OK);
    cr_assert(jit_link(&(jit_object){object, bytes}, 1, "other", &a, &blob, &err) != FUSOR_OK);
    for (size_t n = 0; n < bytes; n++) {
        fu_error_clear(&err);
        memcpy(copy, object, n);
        uint8_t *exact = malloc(n ? n : 1); /* so that a sanitizer sees a read behind the end */
        memcpy(exact, object, n);
        (void)!jit_link(&(jit_object){exact, n}, 1, "fk_test", &a, &blob, &err);
        free(exact);
    }
    uint64_t state = 1;
    for (int i = 0; i < 20000; i++) {
        fu_error_clear(&err);
        memcpy(copy, object, bytes);
        for (uint64_t j = run_random(&state) % 4 + 1; j; j--) {
            uint64_t at = run_random(&state) % bytes, value = run_random(&state);
            if (run_random(&state) & 1 && at + 8 <= bytes) memcpy(copy + at, &value, 8);
            else copy[at] = (uint8_t)value;
        }
        fu_mark mark = fu_arena_mark(&a);
        (void)!jit_link(&(jit_object){copy, bytes}, 1, "fk_test", &a, &blob, &err);
        fu_arena_release(&a, mark);
    }
    fu_arena_free(&a);
    free(copy);
    free(object);
}
