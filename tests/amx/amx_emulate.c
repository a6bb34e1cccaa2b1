/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* amx_emulate.c: decode one VEX instruction -> check what the manual says raises #UD or #GP -> do it. The operations
 * are written as the manual has them, element by element; loops over the columns of a row become vectors. Products of
 * f32 run with the processor's own flushing of subnormals (MXCSR), which is what the instructions are defined by. */
#include "amx_emulate.h"
#include <cpuid.h>
#include <immintrin.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static __thread amx_state own;
static atomic_long counts[AMX_KINDS];

/* ---- decoding ---- */
enum { NP, P66, PF3, PF2 };
typedef struct decoded {
    int opcode, prefix, mod, reg, rm, vvvv, length;
    bool is_sib, has_index;
    uint64_t address, stride; /* of a memory operand: of its first row; to the next */
} decoded;

static int64_t signed_at(const uint8_t *p, int bytes) {
    if (bytes == 1) return (int8_t)*p;
    int32_t x;
    memcpy(&x, p, 4);
    return x;
}

/* A three-byte VEX prefix in front of map 0F38, L = 0, W = 0. */
static const char *decode(const amx_registers *r, const uint8_t *code, decoded *d) {
    if (code[0] != 0xC4 || (code[1] & 0x1f) != 2) return "no tile instruction";
    if (code[2] & 0x84) return "VEX.L and VEX.W are 0 in tile instructions";
    const bool r_bit = !(code[1] & 0x80), x_bit = !(code[1] & 0x40), b_bit = !(code[1] & 0x20);
    *d = (decoded){.opcode = code[3],
                   .prefix = code[2] & 3,
                   .vvvv = ~code[2] >> 3 & 15,
                   .mod = code[4] >> 6,
                   .reg = code[4] >> 3 & 7,
                   .rm = code[4] & 7};
    int at = 5;
    if (r_bit) return "a tile beyond tmm7";
    if (d->mod == 3) {
        if (x_bit || b_bit) return "a tile beyond tmm7";
        d->length = at;
        return NULL;
    }
    int bytes = d->mod == 1 ? 1 : d->mod == 2 ? 4 : 0;
    uint64_t base = 0;
    if (d->rm == 4) {
        const uint8_t sib = code[at++];
        const int index = (sib >> 3 & 7) | x_bit << 3, from = (sib & 7) | b_bit << 3;
        d->is_sib = true;
        d->has_index = index != 4;
        if (d->has_index) d->stride = r->general[index] << (sib >> 6);
        if ((sib & 7) == 5 && d->mod == 0) bytes = 4;
        else base = r->general[from];
    } else if (d->rm == 5 && d->mod == 0) {
        bytes = 4;
        base = r->ip + (uint64_t)at + 4;
    } else {
        base = r->general[d->rm | b_bit << 3];
    }
    d->address = base + (bytes ? (uint64_t)signed_at(code + at, bytes) : 0);
    d->length = at + bytes;
    return NULL;
}

/* ---- configuration ---- */
enum { START_ROW = 1, COLUMNS = 16, ROWS = 48 };

static const char *configure(amx_state *s, const uint8_t *memory) {
    amx_state next = {.is_configured = true, .start_row = memory[START_ROW]};
    if (memory[0] > 1) return "ldtilecfg: no such palette";
    if (memory[0] == 0) {
        memset(s, 0, sizeof *s);
        return NULL;
    }
    for (int i = 2; i < AMX_CONFIG_BYTES; i++) {
        const bool is_used = (i >= COLUMNS && i < COLUMNS + 2 * AMX_TILES) || (i >= ROWS && i < ROWS + AMX_TILES);
        if (!is_used && memory[i]) return "ldtilecfg: reserved bytes are not 0";
    }
    for (int i = 0; i < AMX_TILES; i++) {
        memcpy(&next.columns[i], memory + COLUMNS + 2 * i, 2);
        next.rows[i] = memory[ROWS + i];
        if (next.rows[i] > AMX_ROWS || next.columns[i] > AMX_ROW_BYTES)
            return "ldtilecfg: more rows or columns than the palette has";
        if (!next.rows[i] != !next.columns[i]) return "ldtilecfg: a tile with rows or columns alone";
    }
    *s = next;
    return NULL;
}

static void store_configuration(const amx_state *s, uint8_t *memory) {
    memset(memory, 0, AMX_CONFIG_BYTES);
    if (!s->is_configured) return;
    memory[0] = 1;
    memory[START_ROW] = s->start_row;
    memcpy(memory + COLUMNS, s->columns, sizeof s->columns);
    memcpy(memory + ROWS, s->rows, sizeof s->rows);
}

static const char *check_tile(const amx_state *s, int tile) {
    if (!s->is_configured) return "no tiles are configured";
    if (!s->rows[tile]) return "a tile that is not configured";
    return NULL;
}

/* ---- memory ---- */
static void load(amx_state *s, const decoded *d) {
    const size_t bytes = s->columns[d->reg];
    for (int i = s->start_row; i < AMX_ROWS; i++) {
        uint8_t row[AMX_ROW_BYTES] = {0};
        if (i < s->rows[d->reg]) memcpy(row, (const void *)(d->address + (uint64_t)i * d->stride), bytes);
        memcpy(s->tile[d->reg][i], row, sizeof row);
    }
    s->start_row = 0;
}

static void store(amx_state *s, const decoded *d) {
    for (int i = s->start_row; i < s->rows[d->reg]; i++)
        memcpy((void *)(d->address + (uint64_t)i * d->stride), s->tile[d->reg][i], s->columns[d->reg]);
    s->start_row = 0;
}

/* ---- products ---- */
/* Row k of tile b as elements 0 and 1 of each word, converted. */
__attribute__((target("avx512f"))) static __m512 half_of(const uint8_t *words, bool is_f16, int element) {
    __m512i w = _mm512_loadu_si512(words);
    if (element) w = _mm512_srli_epi32(w, 16);
    if (is_f16) return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(w));
    return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
}

/* Two sums of products for each word, each fused, from 0 on, in order of k; their sum; that to the destination. */
__attribute__((target("avx512f"))) static void multiply_floats(amx_state *s, int dst, int a, int b, bool is_f16) {
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(0x9fc0); /* all masked, to nearest, subnormals are 0 on the way in and out */
    const __mmask16 columns = (__mmask16)((1u << s->columns[dst] / 4) - 1);
    for (int m = 0; m < s->rows[dst]; m++) {
        __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
        for (int k = 0; k < s->columns[a] / 4; k++) {
            uint32_t word;
            uint8_t all[AMX_ROW_BYTES];
            memcpy(&word, s->tile[a][m] + 4 * k, 4);
            _mm512_storeu_si512(all, _mm512_set1_epi32((int)word));
            for (int i = 0; i < 2; i++)
                sum[i] = _mm512_fmadd_ps(half_of(all, is_f16, i), half_of(s->tile[b][k], is_f16, i), sum[i]);
        }
        __m512 to = _mm512_loadu_ps(s->tile[dst][m]);
        to = _mm512_add_ps(to, _mm512_add_ps(sum[0], sum[1]));
        _mm512_storeu_ps(s->tile[dst][m], _mm512_maskz_mov_ps(columns, to));
    }
    _mm_setcsr(saved);
}

static int32_t byte_of(uint8_t x, bool is_signed) { return is_signed ? (int8_t)x : x; }

static void multiply_bytes(amx_state *s, int dst, int a, int b, bool a_signed, bool b_signed) {
    for (int m = 0; m < s->rows[dst]; m++)
        for (int n = 0; n < AMX_ROW_BYTES / 4; n++) {
            uint32_t sum = 0;
            if (n < s->columns[dst] / 4) {
                memcpy(&sum, s->tile[dst][m] + 4 * n, 4);
                for (int k = 0; k < s->columns[a]; k++)
                    sum += (uint32_t)(byte_of(s->tile[a][m][k], a_signed) *
                                      byte_of(s->tile[b][k / 4][4 * n + k % 4], b_signed));
            }
            memcpy(s->tile[dst][m] + 4 * n, &sum, 4);
        }
}

static const char *multiply(amx_state *s, const decoded *d) {
    const int dst = d->reg, a = d->rm, b = d->vvvv;
    if (b >= AMX_TILES) return "a tile beyond tmm7";
    if (dst == a || dst == b || a == b) return "a product with a tile that is named twice";
    const int tile[3] = {dst, a, b};
    for (int i = 0; i < 3; i++) {
        const char *problem = check_tile(s, tile[i]);
        if (problem) return problem;
        if (s->columns[tile[i]] % 4) return "a product of rows that are no whole words";
    }
    if (s->rows[dst] != s->rows[a] || s->columns[a] / 4 != s->rows[b] || s->columns[dst] != s->columns[b])
        return "a product of tiles that do not fit each other";
    if (d->opcode == 0x5C) multiply_floats(s, dst, a, b, d->prefix == PF2);
    else multiply_bytes(s, dst, a, b, d->prefix == PF2 || d->prefix == PF3, d->prefix == PF2 || d->prefix == P66);
    s->start_row = 0;
    return NULL;
}

/* ---- one instruction ---- */
static const char *in_group_49(amx_state *s, const decoded *d, amx_kind *kind) {
    const uint64_t at = d->address + d->stride; /* an operand like any other's */
    if (d->vvvv) return "VEX.vvvv names a register that there is not";
    if (d->mod != 3) {
        if (d->reg || (d->prefix != NP && d->prefix != P66)) return "no tile instruction";
        *kind = AMX_CONFIGURE;
        if (d->prefix == NP) {
            uint8_t memory[AMX_CONFIG_BYTES];
            memcpy(memory, (const void *)at, sizeof memory);
            return configure(s, memory);
        }
        store_configuration(s, (void *)at);
        return NULL;
    }
    if (d->prefix == NP && !d->reg && !d->rm) {
        *kind = AMX_RELEASE;
        memset(s, 0, sizeof *s);
        return NULL;
    }
    if (d->prefix != PF2 || d->rm) return "no tile instruction";
    const char *problem = check_tile(s, d->reg);
    if (problem) return problem;
    *kind = AMX_ZERO;
    memset(s->tile[d->reg], 0, sizeof s->tile[d->reg]);
    s->start_row = 0;
    return NULL;
}

static const char *in_group_4B(amx_state *s, const decoded *d, amx_kind *kind) {
    if (d->vvvv || d->mod == 3 || d->prefix == NP) return "no tile instruction";
    if (!d->is_sib) return "rows of a tile in memory without an index for their distance";
    const char *problem = check_tile(s, d->reg);
    if (problem) return problem;
    if (s->start_row >= s->rows[d->reg]) return "a first row that the tile has not";
    *kind = d->prefix == PF3 ? AMX_STORE : AMX_LOAD;
    if (d->prefix == PF3) store(s, d);
    else load(s, d);
    return NULL;
}

const char *amx_execute(amx_state *s, amx_registers *r, const uint8_t *code) {
    decoded d;
    amx_kind kind = AMX_PRODUCT;
    const char *problem = decode(r, code, &d);
    if (problem) return problem;
    switch (d.opcode) {
    case 0x49: problem = in_group_49(s, &d, &kind); break;
    case 0x4B: problem = in_group_4B(s, &d, &kind); break;
    case 0x5C: problem = d.mod != 3 || d.prefix < PF3 ? "no tile instruction" : multiply(s, &d); break;
    case 0x5E: problem = d.mod != 3 ? "no tile instruction" : multiply(s, &d); break;
    default: problem = "no tile instruction";
    }
    if (problem) return problem;
    atomic_fetch_add_explicit(&counts[kind], 1, memory_order_relaxed);
    r->ip += (uint64_t)d.length;
    return NULL;
}

/* ---- behind SIGILL ---- */
static void on_illegal(int number, siginfo_t *info, void *context) {
    static const int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                  REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    ucontext_t *u = context;
    greg_t *g = u->uc_mcontext.gregs;
    amx_registers r = {.ip = (uint64_t)g[REG_RIP]};
    (void)number;
    for (int i = 0; i < 16; i++) r.general[i] = (uint64_t)g[order[i]];
    const char *problem = amx_execute(&own, &r, info->si_addr);
    if (problem) {
        ssize_t written = write(STDERR_FILENO, "amx_emulate: ", 13);
        written = write(STDERR_FILENO, problem, strlen(problem));
        written = write(STDERR_FILENO, "\n", 1);
        (void)written;
        signal(SIGILL, SIG_DFL); /* the instruction again, and that ends the process */
        return;
    }
    g[REG_RIP] = (greg_t)r.ip;
}

void amx_emulate(void) {
    struct sigaction action = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGILL, &action, NULL);
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    if (amx_has_hardware()) syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA);
}

bool amx_can_emulate(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512cd");
}

bool amx_has_hardware(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1);
}

bool amx_runs_fp16(void) {
    unsigned a, b, c, d;
    return !amx_has_hardware() || (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 21 & 1));
}

const char *amx_features(void) {
    return amx_runs_fp16() ? "amx-tile,amx-int8,amx-bf16,amx-fp16" : "amx-tile,amx-int8,amx-bf16";
}

long amx_count(amx_kind kind) { return atomic_load(&counts[kind]); }
bool amx_is_released(void) { return !own.is_configured; }
