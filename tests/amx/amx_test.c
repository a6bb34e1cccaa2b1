/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* amx_test.c: the emulated tile instructions (amx_emulate.c), which tests of kernels rest on: every encoding of a
 * memory operand as the assembler writes it (GNU as 2.40), operations against plain C, what is refused, and the way
 * through SIGILL. */
#include "amx_emulate.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15, NONE = -1 };

static uint64_t random_state = 1;
static uint32_t random_bits(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state * 0x2545f4914f6cdd1du >> 32);
}

static void full_config(uint8_t config[AMX_CONFIG_BYTES]) {
    memset(config, 0, AMX_CONFIG_BYTES);
    config[0] = 1;
    for (int i = 0; i < AMX_TILES; i++) config[16 + 2 * i] = AMX_ROW_BYTES, config[48 + i] = AMX_ROWS;
}

static const char *execute(amx_state *s, amx_registers *r, const void *bytes) {
    uint8_t code[16] = {0};
    memcpy(code, bytes, 10);
    return amx_execute(s, r, code);
}

/* ldtilecfg (%rax) */
static const char *configure(amx_state *s, const uint8_t *config) {
    amx_registers r = {.general[RAX] = (uint64_t)config};
    return execute(s, &r, "\xc4\xe2\x78\x49\x00\0\0\0\0\0");
}

static void configure_all(amx_state *s) {
    uint8_t config[AMX_CONFIG_BYTES];
    full_config(config);
    cr_assert_null(configure(s, config));
}

/* ---- addresses ---- */
typedef struct memory_case {
    const char *text;
    uint8_t code[10];
    int length, tile, base, index, scale;
    int64_t displacement;
} memory_case;
static const memory_case loads[] = {
    {"tileloadd (%rcx,%r15,1),%tmm4", {0xc4, 0xa2, 0x7b, 0x4b, 0x24, 0x39}, 6, 4, RCX, R15, 1, 0},
    {"tileloadd (%rdx,%r8,1),%tmm6", {0xc4, 0xa2, 0x7b, 0x4b, 0x34, 0x02}, 6, 6, RDX, R8, 1, 0},
    {"tileloadd (%rsp,%rax,1),%tmm1", {0xc4, 0xe2, 0x7b, 0x4b, 0x0c, 0x04}, 6, 1, RSP, RAX, 1, 0},
    {"tileloadd 0x40(%r13,%rbx,2),%tmm7", {0xc4, 0xc2, 0x7b, 0x4b, 0x7c, 0x5d, 0x40}, 7, 7, R13, RBX, 2, 0x40},
    {"tileloadd (%rbp,%rdi,8),%tmm0", {0xc4, 0xe2, 0x7b, 0x4b, 0x44, 0xfd, 0x00}, 7, 0, RBP, RDI, 8, 0},
    {"tileloadd -0x1000(%r12,%r12,1),%tmm3",
     {0xc4, 0x82, 0x7b, 0x4b, 0x9c, 0x24, 0x00, 0xf0, 0xff, 0xff},
     10,
     3,
     R12,
     R12,
     1,
     -0x1000},
    {"tileloadd (%r9,%riz,1),%tmm2", {0xc4, 0xc2, 0x7b, 0x4b, 0x14, 0x21}, 6, 2, R9, NONE, 1, 0},
    {"tileloadd 0x100(,%r14,4),%tmm2",
     {0xc4, 0xa2, 0x7b, 0x4b, 0x14, 0xb5, 0x00, 0x01, 0x00, 0x00},
     10,
     2,
     NONE,
     R14,
     4,
     0x100},
    {"tileloaddt1 (%rsi,%r11,1),%tmm5", {0xc4, 0xa2, 0x79, 0x4b, 0x2c, 0x1e}, 6, 5, RSI, R11, 1, 0},
};
static const memory_case stores[] = {
    {"tilestored %tmm3,(%rcx,%rdx,1)", {0xc4, 0xe2, 0x7a, 0x4b, 0x1c, 0x11}, 6, 3, RCX, RDX, 1, 0},
    {"tilestored %tmm6,0x40(%r10,%rbp,2)", {0xc4, 0xc2, 0x7a, 0x4b, 0x74, 0x6a, 0x40}, 7, 6, R10, RBP, 2, 0x40},
};
static const memory_case configs[] = {
    {"ldtilecfg (%rax)", {0xc4, 0xe2, 0x78, 0x49, 0x00}, 5, 0, RAX, NONE, 1, 0},
    {"ldtilecfg 0x80(%rsp)", {0xc4, 0xe2, 0x78, 0x49, 0x84, 0x24, 0x80}, 10, 0, RSP, NONE, 1, 0x80},
    {"ldtilecfg 0x12345(%r12)",
     {0xc4, 0xc2, 0x78, 0x49, 0x84, 0x24, 0x45, 0x23, 0x01, 0x00},
     10,
     0,
     R12,
     NONE,
     1,
     0x12345},
    {"ldtilecfg -8(%rbp,%r9,4)", {0xc4, 0xa2, 0x78, 0x49, 0x44, 0x8d, 0xf8}, 7, 0, RBP, R9, 4, -8},
    {"ldtilecfg (,%rcx,8)", {0xc4, 0xe2, 0x78, 0x49, 0x04, 0xcd}, 10, 0, NONE, RCX, 8, 0},
    {"sttilecfg (%rdi)", {0xc4, 0xe2, 0x79, 0x49, 0x07}, 5, 0, RDI, NONE, 1, 0},
    {"sttilecfg -0x40(%r13)", {0xc4, 0xc2, 0x79, 0x49, 0x45, 0xc0}, 6, 0, R13, NONE, 1, -0x40},
};

/* Registers that make the operand of the case `at`, rows `apart`. Where there is no base, address and distance are one
 * number. */
static amx_registers registers_for(const memory_case *m, const uint8_t *at, uint64_t apart) {
    amx_registers r = {.ip = 0x1000};
    for (int i = 0; i < 16; i++) r.general[i] = 0xdead0000u + (unsigned)i;
    if (m->index != NONE) r.general[m->index] = apart / (unsigned)m->scale;
    if (m->base != NONE) r.general[m->base] = (uint64_t)at - (uint64_t)m->displacement;
    return r;
}

Test(amx, loads_and_stores) {
    enum { APART = 8 * 24, MEMORY = 64 << 10 };
    uint8_t *memory = malloc(MEMORY);
    for (int i = 0; i < MEMORY; i++) memory[i] = (uint8_t)random_bits();
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        const memory_case *m = &loads[i];
        if (m->base == NONE || m->base == m->index) continue; /* below */
        amx_state s = {0};
        configure_all(&s);
        s.rows[m->tile] = 11;
        s.columns[m->tile] = 52;
        memset(s.tile[m->tile], 0xee, sizeof s.tile[0]);
        uint64_t apart = m->index == NONE ? 0 : APART;
        amx_registers r = registers_for(m, memory + 4096, APART);
        const char *problem = execute(&s, &r, m->code);
        cr_assert_null(problem, "%s: %s", m->text, problem);
        cr_expect_eq(r.ip, 0x1000u + (unsigned)m->length, "%s: length", m->text);
        for (int row = 0; row < AMX_ROWS; row++)
            for (int j = 0; j < AMX_ROW_BYTES; j++) {
                uint8_t want = row < 11 && j < 52 ? memory[4096 + (uint64_t)row * apart + (uint64_t)j] : 0;
                cr_assert_eq(s.tile[m->tile][row][j], want, "%s: row %d byte %d", m->text, row, j);
            }
    }
    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++) {
        const memory_case *m = &stores[i];
        amx_state s = {0};
        configure_all(&s);
        s.rows[m->tile] = 7;
        s.columns[m->tile] = 60;
        for (int row = 0; row < AMX_ROWS; row++)
            for (int j = 0; j < AMX_ROW_BYTES; j++) s.tile[m->tile][row][j] = (uint8_t)random_bits();
        memset(memory, 0x55, MEMORY);
        amx_registers r = registers_for(m, memory + 4096, APART);
        cr_assert_null(execute(&s, &r, m->code));
        cr_expect_eq(r.ip, 0x1000u + (unsigned)m->length);
        for (int row = -1; row < 9; row++)
            for (int j = 0; j < APART; j++) {
                uint8_t want = row >= 0 && row < 7 && j < 60 ? s.tile[m->tile][row][j] : 0x55;
                cr_assert_eq(memory[4096 + row * APART + j], want, "%s: row %d byte %d", m->text, row, j);
            }
    }
    free(memory);
}

/* One register as base and index: rows lie at multiples of it. */
Test(amx, addresses_of_one_register) {
    const memory_case *m = &loads[5];
    const uint64_t apart = 0x20000000, first = apart + (uint64_t)m->displacement;
    cr_assert_eq(m->base, m->index);
    amx_state s = {0};
    configure_all(&s);
    s.rows[m->tile] = 2;
    for (uint64_t row = 0; row < 2; row++) {
        uint64_t at = first + row * apart, page = at & ~(uint64_t)0xfff;
        void *map =
            mmap((void *)page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if ((uint64_t)map != page) cr_skip_test("no memory at %llx", (unsigned long long)page);
        memset((void *)at, 7 + (int)row, AMX_ROW_BYTES);
    }
    amx_registers r = {.general[R12] = apart};
    cr_assert_null(execute(&s, &r, m->code));
    for (int row = 0; row < 2; row++)
        for (int j = 0; j < AMX_ROW_BYTES; j++) cr_assert_eq(s.tile[m->tile][row][j], 7 + row, "%s", m->text);
}

/* Without a base, one row: the others lie at multiples of the distance, which is a small number. */
Test(amx, addresses_without_a_base) {
    const memory_case *m = &loads[7];
    amx_state s = {0};
    configure_all(&s);
    s.rows[m->tile] = 2;
    s.start_row = 1; /* row 0 would be at the displacement */
    uint8_t *row = malloc(4 * AMX_ROW_BYTES), *at = row + AMX_ROW_BYTES;
    at += -(uintptr_t)(at - m->displacement) & 3; /* a multiple of the scale */
    memset(at, 9, AMX_ROW_BYTES);
    amx_registers r = {.general[R14] = ((uint64_t)at - (uint64_t)m->displacement) / 4};
    cr_assert_null(execute(&s, &r, m->code));
    cr_assert(s.tile[m->tile][1][0] == 9 && s.tile[m->tile][1][63] == 9 && s.start_row == 0);
    free(row);
}

Test(amx, configurations_go_both_ways) {
    uint8_t memory[256], config[AMX_CONFIG_BYTES];
    full_config(config);
    for (int i = 0; i < AMX_TILES; i++) config[16 + 2 * i] = (uint8_t)(4 * i + 4), config[48 + i] = (uint8_t)(i + 3);
    config[1] = 2; /* the row to begin with */
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        const memory_case *m = &configs[i];
        const bool is_load = m->text[0] == 'l';
        amx_state s = {0};
        if (!is_load) cr_assert_null(configure(&s, config));
        memset(memory, 0xaa, sizeof memory);
        memset(s.tile, 0xbb, sizeof s.tile);
        if (is_load) memcpy(memory + 64, config, sizeof config);
        amx_registers r = registers_for(m, memory + 64, 0);
        if (m->base == NONE) continue; /* index alone: an address, as below */
        const char *problem = execute(&s, &r, m->code);
        cr_assert_null(problem, "%s: %s", m->text, problem);
        cr_expect_eq(r.ip, 0x1000u + (unsigned)m->length, "%s", m->text);
        cr_assert_arr_eq(memory + 64, config, AMX_CONFIG_BYTES, "%s", m->text);
        cr_assert(s.is_configured && s.start_row == 2);
        for (int t = 0; t < AMX_TILES; t++) cr_assert(s.rows[t] == t + 3 && s.columns[t] == 4 * t + 4);
        if (is_load) cr_assert_eq(s.tile[3][2][1], 0, "tiles are 0 after ldtilecfg");
    }
    amx_state s = {0};
    amx_registers r = {.general[RCX] = (uint64_t)config / 8}; /* ldtilecfg (,%rcx,8) */
    uint8_t *aligned = aligned_alloc(64, 64);
    memcpy(aligned, config, sizeof config);
    r.general[RCX] = (uint64_t)aligned / 8;
    cr_assert_null(execute(&s, &r, configs[4].code));
    cr_assert(s.is_configured && s.rows[7] == 10);
    cr_assert_null(execute(&s, &r, "\xc4\xe2\x78\x49\xc0\0\0\0\0\0")); /* tilerelease */
    cr_assert(!s.is_configured && !s.rows[7]);
    memset(memory, 0xaa, sizeof memory);
    r.general[RDI] = (uint64_t)memory; /* sttilecfg (%rdi): nothing is configured */
    cr_assert_null(execute(&s, &r, configs[5].code));
    for (int i = 0; i < AMX_CONFIG_BYTES; i++) cr_assert_eq(memory[i], 0);
    free(aligned);
}

/* ldtilecfg 16(%rip): from the next instruction on. */
Test(amx, addresses_behind_the_instruction) {
    uint8_t code[128] = {0xc4, 0xe2, 0x78, 0x49, 0x05, 0x10};
    full_config(code + 9 + 16);
    code[9 + 16 + 48] = 5;
    amx_state s = {0};
    amx_registers r = {.ip = (uint64_t)code};
    cr_assert_null(amx_execute(&s, &r, code));
    cr_assert_eq(s.rows[0], 5);
    cr_assert_eq(r.ip, (uint64_t)code + 9);
}

Test(amx, zero) {
    amx_state s = {0};
    amx_registers r = {0};
    configure_all(&s);
    memset(s.tile, 1, sizeof s.tile);
    cr_assert_null(execute(&s, &r, "\xc4\xe2\x7b\x49\xe8\0\0\0\0\0")); /* tilezero %tmm5 */
    for (int t = 0; t < AMX_TILES; t++) cr_assert_eq(s.tile[t][15][63], t != 5);
}

/* ---- products ---- */
static float of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

static float widened(uint16_t bits, bool is_f16) {
    if (!is_f16) return flushed(of_bits((uint32_t)bits << 16));
    int exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    float x = exponent == 31 ? (fraction ? NAN : INFINITY)
              : exponent     ? ldexpf((float)(fraction + 1024), exponent - 25)
                             : ldexpf((float)fraction, -24);
    return bits >> 15 ? -x : x;
}

static uint16_t half_in(const uint8_t *row, int i) {
    uint16_t x;
    memcpy(&x, row + 2 * i, 2);
    return x;
}

/* The manual's loops, one element at a time. */
static void model(const amx_state *s, int dst, int a, int b, int kind, uint32_t out[AMX_ROWS][AMX_ROWS]) {
    for (int m = 0; m < s->rows[dst]; m++)
        for (int n = 0; n < s->columns[dst] / 4; n++) {
            memcpy(&out[m][n], s->tile[dst][m] + 4 * n, 4);
            if (kind < 2) {
                float part[2] = {0, 0}, sum = of_bits(out[m][n]);
                for (int k = 0; k < s->columns[a] / 4; k++)
                    for (int i = 0; i < 2; i++)
                        part[i] = flushed(fmaf(widened(half_in(s->tile[a][m], 2 * k + i), kind),
                                               widened(half_in(s->tile[b][k], 2 * n + i), kind), part[i]));
                sum = flushed(flushed(sum) + flushed(part[0] + part[1]));
                memcpy(&out[m][n], &sum, 4);
                continue;
            }
            for (int k = 0; k < s->columns[a]; k++) {
                uint8_t x = s->tile[a][m][k], y = s->tile[b][k / 4][4 * n + k % 4];
                int32_t xs = kind == 2 || kind == 3 ? (int8_t)x : x, ys = kind == 2 || kind == 4 ? (int8_t)y : y;
                out[m][n] += (uint32_t)(xs * ys);
            }
        }
}

static const struct {
    const char *text;
    uint8_t code[10];
    int dst, a, b, kind;
} products[] = {
    {"tdpbf16ps %tmm6,%tmm4,%tmm0", {0xc4, 0xe2, 0x4a, 0x5c, 0xc4}, 0, 4, 6, 0},
    {"tdpbf16ps %tmm7,%tmm5,%tmm3", {0xc4, 0xe2, 0x42, 0x5c, 0xdd}, 3, 5, 7, 0},
    {"tdpfp16ps %tmm2,%tmm1,%tmm7", {0xc4, 0xe2, 0x6b, 0x5c, 0xf9}, 7, 1, 2, 1},
    {"tdpbssd %tmm6,%tmm4,%tmm1", {0xc4, 0xe2, 0x4b, 0x5e, 0xcc}, 1, 4, 6, 2},
    {"tdpbsud %tmm6,%tmm4,%tmm1", {0xc4, 0xe2, 0x4a, 0x5e, 0xcc}, 1, 4, 6, 3},
    {"tdpbusd %tmm6,%tmm4,%tmm1", {0xc4, 0xe2, 0x49, 0x5e, 0xcc}, 1, 4, 6, 4},
    {"tdpbuud %tmm7,%tmm5,%tmm2", {0xc4, 0xe2, 0x40, 0x5e, 0xd5}, 2, 5, 7, 5},
};
enum { PRODUCTS = sizeof products / sizeof *products };

/* values 0: like a user's; 1: any bits; 2: products and sums about the least normal number. */
static void fill(amx_state *s, int kind, int values) {
    for (int t = 0; t < AMX_TILES; t++)
        for (int m = 0; m < AMX_ROWS; m++)
            for (int i = 0; i < AMX_ROW_BYTES / 2; i++) {
                uint32_t r = random_bits();
                uint16_t half = (uint16_t)r;
                if (kind == 0 && values != 1)
                    half = (uint16_t)((r & 0x807f) | ((values ? 62 : 120) + (r >> 20 & 3)) << 7);
                if (kind == 1 && values != 1) half = (uint16_t)((r & 0x83ff) | (values ? r >> 20 & 1 : 14) << 10);
                memcpy(s->tile[t][m] + 2 * i, &half, 2);
            }
}

Test(amx, products_are_those_of_the_manual) {
    if (!amx_can_emulate()) cr_skip_test("no AVX-512");
    for (int i = 0; i < PRODUCTS; i++)
        for (int round = 0; round < 30; round++) {
            amx_state s = {0};
            configure_all(&s);
            const int dst = products[i].dst, a = products[i].a, b = products[i].b;
            if (round % 3) {
                s.rows[dst] = s.rows[a] = (uint8_t)(1 + random_bits() % 16);
                s.columns[a] = (uint16_t)(4 + random_bits() % 16 * 4);
                s.rows[b] = (uint8_t)(s.columns[a] / 4);
                s.columns[dst] = s.columns[b] = (uint16_t)(4 + random_bits() % 16 * 4);
            }
            fill(&s, products[i].kind, round / 10);
            for (int m = 0; m < AMX_ROWS; m++) /* sums are floats */
                for (int n = 0; n < AMX_ROWS && products[i].kind < 2; n++) {
                    uint32_t bits = random_bits() & 0x80ffffff;
                    memcpy(s.tile[dst][m] + 4 * n, &bits, 4);
                }
            uint32_t want[AMX_ROWS][AMX_ROWS] = {{0}};
            model(&s, dst, a, b, products[i].kind, want);
            amx_registers r = {.ip = 1};
            const char *problem = execute(&s, &r, products[i].code);
            cr_assert_null(problem, "%s: %s", products[i].text, problem);
            cr_assert_eq(r.ip, 6);
            for (int m = 0; m < s.rows[dst]; m++)
                for (int n = 0; n < AMX_ROWS; n++) {
                    uint32_t got;
                    memcpy(&got, s.tile[dst][m] + 4 * n, 4);
                    bool is_nan = products[i].kind < 2 && isnan(of_bits(got)) && isnan(of_bits(want[m][n]));
                    cr_assert(got == want[m][n] || is_nan, "%s, round %d: row %d column %d: %08x; the model has %08x",
                              products[i].text, round, m, n, got, want[m][n]);
                }
        }
}

/* ---- what is refused ---- */
static void refuse(amx_state *s, const void *code, const char *why) {
    amx_state before = *s;
    amx_registers r = {.ip = 0x1000};
    static uint8_t memory[4096];
    for (int i = 0; i < 16; i++) r.general[i] = (uint64_t)memory;
    const char *problem = execute(s, &r, code);
    cr_assert(problem, "accepted: %s", why);
    cr_expect(strstr(problem, why), "'%s'; expected '%s'", problem, why);
    cr_expect_eq(r.ip, 0x1000);
    cr_assert_arr_eq(s, &before, sizeof before, "'%s' changed something", why);
}

Test(amx, misuse) {
    amx_state s = {0};
    refuse(&s, "\xc4\xe2\x7b\x49\xc0\0\0\0\0\0", "no tiles are configured");
    refuse(&s, loads[0].code, "no tiles are configured");
    refuse(&s, products[0].code, "no tiles are configured");
    configure_all(&s);
    refuse(&s, "\xc4\xe2\x4a\x5c\xf4\0\0\0\0\0", "named twice"); /* tdpbf16ps %tmm6,%tmm4,%tmm6 */
    refuse(&s, "\xc4\xe2\x5a\x5c\xc4\0\0\0\0\0", "named twice"); /* tdpbf16ps %tmm4,%tmm4,%tmm0 */
    refuse(&s, "\xc4\xe2\x02\x5c\xc4\0\0\0\0\0", "beyond tmm7"); /* vvvv = 15 */
    refuse(&s, "\xc4\x62\x4a\x5c\xc4\0\0\0\0\0", "beyond tmm7"); /* VEX.R */
    refuse(&s, "\xc4\xe2\x7b\x4b\x09\0\0\0\0\0", "without an index");
    refuse(&s, "\xc4\xe2\x7f\x49\xc0\0\0\0\0\0", "VEX.L");
    refuse(&s, "\xc4\xe2\x49\x5c\xc4\0\0\0\0\0", "no tile instruction"); /* 5C with 66 */
    refuse(&s, "\x0f\x0b\x90\x90\x90\x90\x90\x90\x90\x90", "no tile instruction");
    s.rows[4] = 8;
    refuse(&s, products[0].code, "do not fit");
    s.rows[0] = 8;
    s.columns[4] = 32;
    refuse(&s, products[0].code, "do not fit");
    s.rows[6] = 8;
    s.columns[6] = 32;
    refuse(&s, products[0].code, "do not fit");
    s.columns[0] = s.columns[6] = 30;
    refuse(&s, products[0].code, "no whole words");
    s.columns[0] = s.columns[6] = 32;
    s.rows[4] = s.columns[4] = 0;
    refuse(&s, products[0].code, "not configured");
    refuse(&s, loads[0].code, "not configured");
}

Test(amx, bad_configurations) {
    static const struct {
        int at, value;
        const char *why;
    } bad[] = {{0, 2, "palette"},   {48, 17, "more rows"}, {16, 65, "more rows"}, {48, 0, "alone"},
               {18, 0, "alone"},    {2, 1, "reserved"},    {15, 1, "reserved"},   {32, 4, "reserved"},
               {56, 1, "reserved"}, {17, 1, "more rows"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint8_t config[AMX_CONFIG_BYTES];
        amx_state s = {0};
        configure_all(&s);
        full_config(config);
        config[bad[i].at] = (uint8_t)bad[i].value;
        const char *problem = configure(&s, config);
        cr_assert(problem, "byte %d = %d is accepted", bad[i].at, bad[i].value);
        cr_expect(strstr(problem, bad[i].why), "byte %d = %d: %s", bad[i].at, bad[i].value, problem);
        cr_expect_eq(s.rows[0], AMX_ROWS);
    }
}

/* ---- through SIGILL ---- */
typedef void (*routine)(const void *config, const void *a, const void *b, void *c, uint64_t apart);
/* ldtilecfg (%rdi); tilezero %tmm0; tileloadd (%rsi,%r8,1),%tmm4; tileloadd (%rdx,%r8,1),%tmm6; tdpbuud
 * %tmm6,%tmm4,%tmm0; tilestored %tmm0,(%rcx,%r8,1); tilerelease; ret */
static const uint8_t multiplication[] = {0xc4, 0xe2, 0x78, 0x49, 0x07, 0xc4, 0xe2, 0x7b, 0x49, 0xc0, 0xc4, 0xa2, 0x7b,
                                         0x4b, 0x24, 0x06, 0xc4, 0xa2, 0x7b, 0x4b, 0x34, 0x02, 0xc4, 0xe2, 0x48, 0x5e,
                                         0xc4, 0xc4, 0xa2, 0x7a, 0x4b, 0x04, 0x01, 0xc4, 0xe2, 0x78, 0x49, 0xc0, 0xc3};

static routine map_routine(const uint8_t *code, size_t bytes) {
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(map, MAP_FAILED);
    memcpy(map, code, bytes);
    cr_assert_eq(mprotect(map, 4096, PROT_READ | PROT_EXEC), 0);
    return (routine)(uintptr_t)map;
}

Test(amx, instructions_of_a_program) {
    if (!amx_can_emulate()) cr_skip_test("no AVX-512");
    static uint8_t a[16][64], b[16][64];
    static uint32_t c[16][16];
    uint8_t config[AMX_CONFIG_BYTES];
    full_config(config);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 64; j++) a[i][j] = (uint8_t)random_bits(), b[i][j] = (uint8_t)random_bits();
    amx_emulate();
    long before = amx_count(AMX_PRODUCT);
    map_routine(multiplication, sizeof multiplication)(config, a, b, c, 64);
    cr_assert(amx_is_released());
    if (!amx_has_hardware()) cr_assert_eq(amx_count(AMX_PRODUCT), before + 1);
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) {
            uint32_t want = 0;
            for (int k = 0; k < 64; k++) want += (uint32_t)a[m][k] * b[k / 4][4 * n + k % 4];
            cr_assert_eq(c[m][n], want, "%d,%d", m, n);
        }
}

/* What is no tile instruction still ends the process as it would without the emulator. */
Test(amx, other_illegal_instructions) {
    pid_t child = fork();
    if (child == 0) {
        amx_emulate();
        close(STDERR_FILENO);
        map_routine((const uint8_t[]){0x0f, 0x0b, 0xc3}, 3)(NULL, NULL, NULL, NULL, 0);
        _exit(0);
    }
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGILL);
}
