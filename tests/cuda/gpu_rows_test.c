/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_rows_test.c: reductions, rows, columns, transposes and vectors of GPU kernels (gpu_run.h), at the
 * lengths where their form changes: against the reference evaluator, fused and unfused to the bit, a length that the
 * program knows and the same one that it does not to the bit; and into how many launches programs are made. */
#include "gpu_check.h"

/* T: an element type. Dims A and B; B is what is reduced. */
static const char *const programs[] = {
    "(%x: T[A, B]) -> T[A, B] { %y = softmax(%x, axis=1) return %y }",
    "(%x: T[A, B]) -> T[A, B] { %y = log_softmax(%x, axis=1) return %y }",
    "(%x: T[A, B], %g: T[B], %b: T[B]) -> T[A, B] { %y = layer_norm(%x, %g, %b) return %y }",
    "(%x: T[A, B], %z: T[A, B]) -> T[A] { %m = mul(%x, %z) %y = reduce_sum(%m, axes=[1]) return %y }",
    "(%x: T[A, B]) -> (i64[A], T[A]) { %y = argmax(%x, axis=1) %m = reduce_min(%x, axes=[1]) return %y, %m }",
    "(%x: T[B, A], %z: T[B, A]) -> T[A] { %m = mul(%x, %z) %y = reduce_sum(%m, axes=[0]) return %y }",
    "(%x: T[B, A]) -> (i64[A], T[A]) { %y = argmin(%x, axis=0, select_last=true) %m = reduce_max(%x, axes=[0]) "
    "return %y, %m }",
    "(%x: T[B, A, 5]) -> T[A] { %y = reduce_sum(%x, axes=[0, 2]) return %y }",
    "(%x: T[A, 3, B]) -> T[3] { %y = reduce_max(%x, axes=[0, 2]) return %y }",
    "(%x: T[A, B], %i: i64[B]) -> T[A] { %t = take(%x, %i, axis=1) %y = reduce_sum(%t, axes=[1]) return %y }",
    "(%x: T[A, B]) -> T[A, B] { %p = pad(%x, pads=[0, 2, 0, 1]) %s = softmax(%p, axis=1) "
    "%y = slice(%s, starts=[2], ends=[9223372036854775807], axes=[1]) %z = slice(%y, starts=[0], ends=[-1], axes=[1]) "
    "return %z }",
    "(%x: T[B, A], %z: T[A, B]) -> T[A, B] { %t = transpose(%x) %y = add(%t, %z) return %y }",
    "(%x: T[B, 3, A], %z: T[A, B, 3]) -> T[A, B, 3] { %t = transpose(%x, perm=[2, 0, 1]) %y = sub(%z, %t) return %y }",
    "(%x: T[A, B], %z: T[B]) -> (T[A, B], bool[A, B]) { %y = mul(%x, %z) %c = gt(%y, %x) return %y, %c }",
};
/* Teams of each size, one step and more, rows kept and streamed, chunks; aligned and not. Few rows: parts. */
static const int64_t sizes[][4] = {{7, 1, 1, 1},    {3, 4, 1, 1},    {40, 10, 1, 1},  {9, 64, 1, 1},   {5, 100, 1, 1},
                                   {4, 131, 1, 1},  {6, 256, 1, 1},  {3, 516, 1, 1},  {2, 1000, 1, 1}, {3, 1026, 1, 1},
                                   {1, 4096, 1, 1}, {2, 4099, 1, 1}, {1, 9000, 1, 1}, {0, 5, 1, 1},    {300, 2, 1, 1}};
static const ir_dtype types[] = {FUSOR_F32, FUSOR_BF16, FUSOR_F64};
enum { N_PROGRAMS = sizeof programs / sizeof *programs, N_TYPES = sizeof types / sizeof *types };

static void write_program(char *to, const char *from, const char *type, const char *length) {
    to += sprintf(to, "func @f");
    for (const char *c = from; *c; c++) {
        const char *word = *c == 'T' ? type : length && *c == 'B' ? length : NULL;
        to += sprintf(to, "%.*s", word ? (int)strlen(word) : 1, word ? word : c);
    }
}

GPU_TESTS(gpu_rows, agree_with_the_reference, N_PROGRAMS *N_TYPES) {
    static const int threads[] = {1, 0};
    char text[400];
    ir_dtype t = types[*number % N_TYPES];
    if (!begin()) return;
    gpu_fusions = 2;
    write_program(text, programs[*number / N_TYPES], ir_dtypes[t].name, NULL);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        if (t != FUSOR_F32 && s % 2 == (size_t)*number % 2) continue; /* the interpreter takes its time */
        /* indices of a take are among those of the row, or the reference refuses them */
        check(text, (domain){strstr(text, "take") ? 0 : -3, strstr(text, "take") ? 0.9 : 3, 0, false}, sizes[s],
              threads, (s + (size_t)*number) % 5 == 4, UINT32_MAX);
    }
}

/* ---- loads that a later pass is the first to need, and one behind it too ---- */
static const char *const late[] = {
    /* RMSNorm, backward */
    "(%x: T[A, B], %z: T[A, B]) -> T[A, B] { %q = square(%x) %s = reduce_mean(%q, axes=[1], keepdims=true) %e = "
    "add(%s, "
    "1e-5) %r = rsqrt(%e) %h = mul(%x, %r) %t = mul(%z, %h) %m = reduce_mean(%t, axes=[1], keepdims=true) %n = mul(%h, "
    "%m) %d = sub(%z, %n) %y = mul(%d, %r) return %y }",
    "(%x: T[A, B], %z: T[A, B], %g: T[B]) -> T[A, B] { %m = reduce_max(%x, axes=[1], keepdims=true) %a = sub(%z, %m) "
    "%n = reduce_max(%a, axes=[1], keepdims=true) %w = mul(%g, %n) %b = add(%w, %z) %s = reduce_sum(%b, axes=[1], "
    "keepdims=true) %c = mul(%g, %s) %d = add(%c, %z) %y = sub(%d, %x) return %y }",
};
enum { N_LATE = sizeof late / sizeof *late, N_LEVELS = 3 };

GPU_TESTS(gpu_rows, load_late, N_LATE *N_LEVELS *N_TYPES) {
    static const ir_level levels[N_LEVELS] = {IR_LEVEL_SM70, IR_LEVEL_SM80, IR_LEVEL_SM90A};
    static const char *const known[] = {"3", "10", "64", "256", "1028"};
    static const int64_t named[] = {1, 7, 64, 200, 256, 1026, 4096, 5000};
    const ir_dtype t = types[*number % N_TYPES];
    const char *program = late[*number / N_TYPES / N_LEVELS], *name = ir_dtypes[t].name;
    char text[600];
    if (!begin()) return;
    gpu_fusions = 2;
    gpu_level = levels[*number / N_TYPES % N_LEVELS];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        write_program(text, program, name, known[i]);
        check(text, (domain){-3, 3, 0, false}, (int64_t[4]){5, 1, 1, 1}, one_thread, false, UINT32_MAX);
    }
    write_program(text, program, name, NULL);
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        check(text, (domain){-3, 3, 0, false}, (int64_t[4]){3, named[i], 1, 1}, one_thread, i % 3 == 2, UINT32_MAX);
    rt_cache_close(cache);
}

/* ---- zeros ---- */
/* Of zeros of both signs all threads of a row have the same largest, and the same least: infinities of one sign. */
static void check_zeros(const char *op, ir_dtype t, ir_level level, int64_t length) {
    enum { ROWS = 3 };
    char text[300];
    snprintf(text, sizeof text,
             "func @f(%%x: %s[A, B]) -> %s[A, B] { %%m = %s(%%x, axes=[1], keepdims=true) %%r = reciprocal(%%m) %%y = "
             "add(%%x, %%r) return %%y }",
             ir_dtypes[t].name, ir_dtypes[t].name, op);
    rt_exec *x =
        build(&error, cache, text,
              (setup){.level = gpu_level_for(level), .n_threads = 1, .launch = GPU_LAUNCH, .queue = GPU_QUEUE});
    cr_assert(x, "%s: %s", text, error.text);
    double in[ROWS * 1024], out[ROWS * 1024];
    float *in32 = (float *)in, *out32 = (float *)out;
    for (int64_t i = 0; i < ROWS * length; i++) { /* a half, or every other one, or some are minus */
        const int64_t r = i / length, c = i % length;
        const bool is_minus = r == 0 ? c < length / 2 : r == 1 ? c % 2 : mix((uint64_t)c) % 3 == 0;
        if (t == FUSOR_F64) in[i] = is_minus ? -0.0 : 0.0;
        else in32[i] = is_minus ? -0.0f : 0.0f;
    }
    fusor_buffer bi = {.dtype = t, .rank = 2, .shape = {ROWS, length}, .data = in}, bo = bi;
    bo.data = out;
    cr_assert_eq(rt_exec_call(x, &error, 1, &bi, 1, &bo), FUSOR_OK, "%s: %s", text, error.text);
    for (int64_t i = 0; i < ROWS * length; i++) {
        const int64_t first = i / length * length;
        const double got = t == FUSOR_F64 ? out[i] : out32[i], want = t == FUSOR_F64 ? out[first] : out32[first];
        cr_assert(isinf(got) && got == want, "%s for %s: row %lld of %lld: %g at %lld, %g at 0", text,
                  ir_levels[level].short_name, (long long)(i / length), (long long)length, got, (long long)(i - first),
                  want);
    }
    rt_exec_release(x);
}

GPU_TESTS(gpu_rows, threads_agree_about_zeros, 4) {
    static const int64_t row_lengths[] = {8, 12, 64, 100, 256, 700, 1024};
    if (!begin()) return;
    const ir_dtype t = *number & 1 ? FUSOR_F32 : FUSOR_F64;
    for (size_t i = 0; i < sizeof row_lengths / sizeof *row_lengths; i++)
        check_zeros(*number & 2 ? "reduce_min" : "reduce_max", t, t == FUSOR_F32 ? IR_LEVEL_SM70 : IR_LEVEL_SM80,
                    row_lengths[i]);
    rt_cache_close(cache);
}

/* ---- a length that is known ---- */
static void fill_all(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = (float)(mix((uint64_t)i) >> 40) / (1 << 20) - 8;
}

static setup gpu_setup(void) {
    return (setup){.level = gpu_level_for(IR_LEVEL_SM80), .n_threads = 1, .launch = GPU_LAUNCH, .queue = GPU_QUEUE};
}

/* Rows x length numbers in, as many or one a row out; *bits: how many are out. */
static float *result_of(const char *text, int64_t rows, int64_t length, bool is_row) {
    rt_exec *x = build(&error, cache, text, gpu_setup());
    cr_assert(x, "%s: %s", text, error.text);
    float *in = malloc((size_t)(rows * length) * 4 + 16), *out = calloc((size_t)(rows * length) + 4, 4);
    fill_all(in, rows * length);
    fusor_buffer bi = {.dtype = FUSOR_F32, .rank = 2, .shape = {rows, length}, .data = in};
    fusor_buffer bo = {.dtype = FUSOR_F32, .rank = is_row ? 2 : 1, .shape = {rows, length}, .data = out};
    cr_assert_eq(rt_exec_call(x, &error, 1, &bi, 1, &bo), FUSOR_OK, "%s: %s", text, error.text);
    rt_exec_release(x);
    free(in);
    return out;
}

Test(gpu_rows, a_known_length_changes_no_bit) {
    static const char *const of_row[] = {"(%x: T[A, B]) -> T[A, B] { %y = softmax(%x, axis=1) return %y }",
                                         "(%x: T[A, B]) -> T[A] { %y = reduce_sum(%x, axes=[1]) return %y }"};
    static const int64_t known[] = {2, 3, 7, 10, 17, 33, 50, 63, 64};
    if (!begin()) return;
    for (int p = 0; p < 2; p++)
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            char text[2][300], length[24];
            snprintf(length, sizeof length, "%lld", (long long)known[i]);
            write_program(text[0], of_row[p], "f32", NULL);
            write_program(text[1], of_row[p], "f32", length);
            float *a = result_of(text[0], 37, known[i], p == 0), *b = result_of(text[1], 37, known[i], p == 0);
            size_t n = (size_t)(p == 0 ? 37 * known[i] : 37);
            cr_assert(memcmp(a, b, 4 * n) == 0, "%s and %s differ in bits", text[0], text[1]);
            cr_assert(a[n - 1] != 0, "%s", text[0]);
            free(a);
            free(b);
        }
}

/* ---- launches ---- */
typedef struct counted {
    const char *text;
    int64_t rows, length;
    bool is_row;
    int launches;
} counted;

Test(gpu_rows, are_one_launch_each) {
    static const counted all[] = {
        {"(%x: T[A, B]) -> T[A, B] { %y = softmax(%x, axis=1) return %y }", 16, 256, true, 1},
        {"(%x: T[A, B]) -> T[A, B] { %y = softmax(%x, axis=1) return %y }", 4, 1024, true, 1},
        {"(%x: T[A, B]) -> T[A, B] { %m = reduce_mean(%x, axes=[1], keepdims=true) %d = sub(%x, %m) %q = mul(%d, %d) "
         "%v = reduce_mean(%q, axes=[1], keepdims=true) %e = add(%v, 0.00001) %r = rsqrt(%e) %y = mul(%d, %r) return "
         "%y }",
         4, 1024, true, 1},
        {"(%x: T[A, 10]) -> T[A, 10] { %y = log_softmax(%x, axis=1) return %y }", 4096, 10, true, 1},
        {"(%x: T[A, B]) -> T[A] { %y = reduce_sum(%x, axes=[1]) return %y }", 64, 1024, false, 1},
        {"(%x: T[A, B]) -> T[B] { %y = reduce_sum(%x, axes=[0]) return %y }", 100, 64, false, 1},
        {"(%x: T[A, B]) -> T { %y = reduce_sum(%x) return %y }", 4, 4096, false, 1}, /* the last part joins them */
    };
    if (!begin()) return;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[400];
        const counted *c = &all[i];
        write_program(text, c->text, "f32", NULL);
        gpu_launches = 0;
        if (i < 5) {
            free(result_of(text, c->rows, c->length, c->is_row));
        } else {
            rt_exec *x = build(&error, cache, text, gpu_setup());
            cr_assert(x, "%s: %s", text, error.text);
            float *in = calloc((size_t)(c->rows * c->length), 4), *out = calloc((size_t)c->length, 4);
            fusor_buffer bi = {.dtype = FUSOR_F32, .rank = 2, .shape = {c->rows, c->length}, .data = in};
            fusor_buffer bo = {.dtype = FUSOR_F32, .rank = i == 5, .shape = {c->length}, .data = out};
            cr_assert_eq(rt_exec_call(x, &error, 1, &bi, 1, &bo), FUSOR_OK, "%s: %s", text, error.text);
            rt_exec_release(x);
            free(in);
            free(out);
        }
        if (!on_machine())
            cr_assert_eq(gpu_launches, c->launches, "%s: %d launches, not %d", text, gpu_launches, c->launches);
    }
}
