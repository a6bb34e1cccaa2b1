/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* nvcc_run.c: runs the PTX that nvcc made of nvcc/kernels.cu in the interpreter and compares it, word by word, with the
 * same computed here. nvcc_run FILE.ptx: prints "N passed, N failed, N skipped" (a kernel each). What threads do
 * together is written here a second time, from its definition. The results of a matrix product are exact in f32, so
 * that no order of sums shows. */
#include "nvcc/functions.h"
#include "ptx.h"
#include <stdio.h>
#include <stdlib.h>

enum { N = 4096, BLOCK = 256, BASE = 0x100000 };
static uint32_t memory[4 * N], *const in = memory, *const out = memory + 3 * N;
static uint32_t want[N];

#define HOST(NAME, VALUE)                                                                                              \
    static uint32_t NAME##_here(uint32_t a, uint32_t b, uint32_t c) {                                                  \
        (void)a, (void)b, (void)c;                                                                                     \
        return VALUE;                                                                                                  \
    }
FUNCTIONS(HOST)
static const struct {
    const char *name;
    uint32_t (*of)(uint32_t a, uint32_t b, uint32_t c);
} functions[] = {
#define ROW(NAME, VALUE) {#NAME, NAME##_here},
    FUNCTIONS(ROW)
#undef ROW
};

/* ---- what threads do together ---- */
static void shuffles(void) {
    for (int w = 0; w < N; w += 32) {
        uint32_t sum = 0, ballot = 0, any = 0;
        const uint32_t *v = in + w;
        for (int l = 0; l < 32; l++) sum += v[l], ballot |= (uint32_t)((v[l] & 4) != 0) << l, any |= v[l] > 0xf0000000u;
        for (int l = 0; l < 32; l++)
            want[w + l] = sum ^ v[l >= 3 ? l - 3 : l] * 3 ^ v[l + 5 < 32 ? l + 5 : l] * 5 ^ v[l * 7 & 31] * 7 ^
                          v[l ^ 2] * 9 ^ ballot ^ any;
    }
}
static void shared(void) {
    for (int b = 0; b < N; b += BLOCK) {
        uint32_t running[BLOCK], sum = 0;
        uint64_t sums[8] = {0};
        for (int t = 0; t < BLOCK; t++) running[t] = sum += in[b + t], sums[t & 7] += in[b + t];
        for (int t = 0; t < BLOCK; t++) want[b + t] = running[255 - t] ^ (uint32_t)(sums[t >> 5] >> 3);
    }
}
static uint32_t half_of(const uint32_t *m, int row, int column) {
    return m[row * 8 + column / 2] >> 16 * (column & 1) & 0xffff;
}
static void mma(void) {
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            double d = 1.5;
            for (int k = 0; k < 16; k++)
                d += (double)as_f(half_of(in, m, k) << 16) * (double)as_f(half_of(in + 128, n, k) << 16);
            want[m * 8 + n] = bits_f((float)d);
        }
}
static void ldmatrix(void) {
    for (int lane = 0; lane < 32; lane++)
        for (int k = 0; k < 4; k++) {
            int row = 8 * (k & 1), column = 8 * (k >> 1), g = lane / 4, c = 2 * (lane % 4);
            want[8 * lane + k] = half_of(in, row + g, column + c) | half_of(in, row + g, column + c + 1) << 16;
            want[8 * lane + 4 + k] = half_of(in, row + c, column + g) | half_of(in, row + c + 1, column + g) << 16;
        }
}
static uint32_t to_bf16(float x) {
    uint32_t w = bits_f(x);
    return x != x ? 0x7fff : (w + 0x7fff + (w >> 16 & 1)) >> 16;
}
static void halves(void) {
    for (int i = 0; i < N; i++) {
        float x = as_f(in[i]), y = near_f(in[i]);
        _Float16 h = (_Float16)y;
        uint16_t bits;
        memcpy(&bits, &h, 2);
        want[i] = (bits | to_bf16(x) << 16) ^ (to_bf16(x) << 16 | to_bf16(y)) ^ bits_f((float)h) * 3;
    }
}
static const struct {
    const char *name;
    void (*of)(void);
    int n_out;
    bool is_small; /* pairs of halves that are small integers in */
} together[] = {{"together_shuffles", shuffles, N, false},
                {"together_shared", shared, N, false},
                {"together_mma", mma, 128, true},
                {"together_ldmatrix", ldmatrix, 256, false},
                {"together_halves", halves, N, false}};

/* ---- running ---- */
static void *at(void *user, uint64_t address, uint64_t bytes, bool is_write) {
    (void)user, (void)is_write;
    return address < BASE || bytes > sizeof memory || address - BASE > sizeof memory - bytes
               ? NULL
               : (char *)memory + (address - BASE);
}

static void fill(bool is_small) {
    static const uint32_t special[] = {0,          1,          0x80000000, 0xffffffff, 0x7f800000, 0xff800000,
                                       0x7fc00000, 0x3f800000, 0x00800000, 0x007fffff, 0x7fffffff, 0x4f000000,
                                       0xcf000000, 0x4effffff, 0x3effffff, 2};
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < 3 * N; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        in[i] = (uint32_t)(x >> 20);
        if (x % 11 == 0) in[i] = special[x / 11 % 16];
        if (is_small) in[i] = to_bf16((float)((int)(x % 17) - 8)) | to_bf16((float)((int)(x / 17 % 9) - 4)) << 16;
    }
    memset(out, 0, N * sizeof *out);
}

static bool check(const ptx_module *m, const char *name, int n_out) {
    char why[PTX_ERROR_ROOM];
    struct {
        uint64_t in, out;
        int32_t n;
    } params = {BASE, BASE + 3 * N * sizeof *in, N};
    const ptx_entry *e = ptx_find(m, name);
    if (!e) return printf("%s: not in the PTX\n", name), false;
    ptx_launch l = {
        .module = m, .entry = e, .grid = {N / BLOCK, 1, 1}, .block = {BLOCK, 1, 1}, .params = &params, .memory = at};
    if (!ptx_run(&l, why)) return printf("%s: %s\n", name, why), false;
    for (int i = 0; i < n_out; i++)
        if (out[i] != want[i])
            return printf("%s: word %d is %08x, not %08x (of %08x %08x %08x)\n", name, i, out[i], want[i], in[3 * i],
                          in[3 * i + 1], in[3 * i + 2]),
                   false;
    return true;
}

int main(int n_args, char **args) {
    static char text[4 << 20];
    char why[PTX_ERROR_ROOM];
    int passed = 0, failed = 0;
    FILE *f = n_args == 2 ? fopen(args[1], "r") : NULL;
    if (!f) return fprintf(stderr, "nvcc_run FILE.ptx\n"), 2;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    ptx_module *m = ptx_parse(text, why);
    if (!m) return printf("%s\n0 passed, 1 failed, 0 skipped\n", why), 1;
    fill(false);
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
        for (int i = 0; i < N; i++) want[i] = functions[k].of(in[3 * i], in[3 * i + 1], in[3 * i + 2]);
        if (check(m, functions[k].name, N)) passed++;
        else failed++;
    }
    for (size_t k = 0; k < sizeof together / sizeof *together; k++) {
        fill(together[k].is_small);
        together[k].of();
        if (check(m, together[k].name, together[k].n_out)) passed++;
        else failed++;
    }
    ptx_free(m);
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed > 0;
}
