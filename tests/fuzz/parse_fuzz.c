/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* parse_fuzz.c: whatever the bytes, the parser answers. A text that it takes must verify, print, read back to the same
 * bytes, and flatten. With libFuzzer (FUSOR_LIBFUZZER) only the target; else a local driver:
 *     parse_fuzz [COUNT [SEED [FILE ...]]]
 * mutates FILEs (default: the texts below) COUNT times (default 20000). A failure prints seed and text, and exits
 * with 1. */
#include "ir/graph.h"
#include "tests/fuzz/random.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static fu_arena arena;
static jmp_buf oom;
static fu_error error;
static uint64_t case_seed;

static void fail(const char *what, const char *text, size_t n) {
    fprintf(stderr, "parse_fuzz: %s (seed %llu): %s\n", what, (unsigned long long)case_seed, error.text);
    fwrite(text, 1, n, stderr);
    fputc('\n', stderr);
    abort();
}

static const char *print(const ir_module *m) {
    fu_str s;
    fu_str_init(&s, &arena);
    ir_print_module(&s, m);
    return s.at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    fu_arena_init(&arena, &oom);
    if (setjmp(oom)) fail("out of memory", text, size);
    fu_error_clear(&error);
    ir_module *m = NULL, *again = NULL;
    if (ir_parse(&arena, &error, "<fuzz>", text, size, &m) != FUSOR_OK) {
        if (error.n < 1 || error.n > FU_ERROR_MAX_DIAGNOSTICS || m || strncmp(error.text, "<fuzz>:", 7) != 0)
            fail("an error without a place", text, size);
        if (error.status == FUSOR_ERROR_INTERNAL) fail("an internal error", text, size);
    } else {
        const char *first = print(m);
        if (ir_parse(&arena, &error, "printed", first, strlen(first), &again) != FUSOR_OK)
            fail("its print is refused", first, strlen(first));
        const char *second = print(again);
        if (strcmp(first, second) != 0) {
            fputs(second, stderr);
            fail("it prints differently the second time", first, strlen(first));
        }
        for (uint32_t i = 0; i < m->functions.n; i++) {
            ir_graph *flat;
            if (ir_verify(m->functions.at[i], &error, "parse") != FUSOR_OK) fail("it does not verify", text, size);
            if (ir_flatten(&arena, &error, m, m->functions.at[i], &flat) != FUSOR_OK)
                fail("it does not flatten", text, size);
            if (ir_verify(flat, &error, "flatten") != FUSOR_OK) fail("flattened it does not verify", text, size);
        }
    }
    fu_arena_free(&arena);
    return 0;
}

#ifndef FUSOR_LIBFUZZER
static const char *const texts[] = {
    "fusor 1\nfunc @f(%x: f32[N, 4], const %w: f32[4, K] = \"w.npy\", %b: f32[K] = [1, 2.5, -inf]) -> (%y: f32[N, K], "
    "f32) {\n"
    "  %h = matmul(%x, %w, transpose_a=false)\n  %s = add(%h, %b) : f32[N, ?]\n  %y = softmax(%s, axis=-1, "
    "name=\"a/b\")\n"
    "  %m = reduce_max(%y, axes=[0, 1], keepdims=false)\n  return %y, %m\n}\n",
    "func @g(%x: i32[N], %c: bool[N], %k: u64) -> i32[?] {\n  %a = add(%x, -3)\n  %b = select(%c, %a, 7)\n  %d = "
    "cast(%b, f16)\n"
    "  %e = gelu(%d, approximate=tanh)\n  %r = reshape(%b, shape=[N/2, -1])\n  %z = full(0x1.8p3, shape=[2*(N+1), 3], "
    "dtype=bf16)\n"
    "  %i = iota(shape=[N], axis=0, dtype=i32)\n  return %b # done\n}\n",
    "func @main(%x: f32[B, 8]) -> (f32[B, 8] alias %x, f32[?]) {\n  %a, %b = @two(%x, 2)\n  %c = @one(%a)\n  return "
    "%c, %b\n}\n"
    "func @two(%x: f32[P, Q], %s: f32, %w: f32[Q, J] = \"m.npz:w\", %z: f32[Q] = 0.5) -> (f32[P, Q], f32[?]) {\n  %y = "
    "mul(%x, %s)\n"
    "  %v = add(%y, %z)\n  %t = matmul(%v, %w)\n  %r = reduce_sum(%t, axes=[0])\n  return %v, %r\n}\n"
    "func @one(%x: f32[M, L]) -> f32[M, L] {\n  %y = relu(%x, loc=\"a.py:1\")\n  return %y\n}\n",
};
static const char *const tokens[] = {
    "func",
    "@f",
    "@g",
    "@two",
    "%x",
    "%y",
    "%0",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "=",
    "->",
    "-",
    "+",
    "*",
    "/",
    "?",
    "#",
    "\"",
    "return ",
    "alias ",
    "const ",
    "f32",
    "f16",
    "i8",
    "u64",
    "bool",
    "N",
    "K",
    "0",
    "1",
    "-1",
    "9223372036854775807",
    "18446744073709551616",
    "1e39",
    "0x1p-149",
    "nan",
    "inf",
    "true",
    "add(%x, %x)",
    "relu",
    "matmul",
    "reshape",
    "reduce_max",
    "transpose",
    "squeeze",
    "unsqueeze",
    "broadcast_to",
    "argmax",
    "dim",
    "axes=[",
    "axis=",
    "shape=[",
    "perm=[1, 0]",
    "dtype=f64",
    "keepdims=true",
    "name=\"n\"",
    "\\u0041",
    "\n  %z = neg(%x)\n",
    "[[1, 2], [3, 4]]",
    "f32[0]",
    "f32[1]",
    "f32[N/0]",
    "\x80",
    "\xc3\xa9",
};

enum { MAX = 1 << 16 };

static size_t replace(char *text, size_t n, size_t at, size_t cut, const char *with, size_t m) {
    if (n - cut + m > MAX) return n;
    memmove(text + at + m, text + at + cut, n - at - cut);
    memcpy(text + at, with, m);
    return n - cut + m;
}

static size_t mutate(char *text, size_t n, const char *other, size_t other_n) {
    char piece[256];
    size_t at = below(n + 1), cut = 0, m;
    switch (below(7)) {
    case 0:
        if (at < n) text[at] = (char)(text[at] ^ 1 << below(8));
        return n;
    case 1: m = 1 + below(12); return replace(text, n, at, m < n - at ? m : n - at, "", 0);
    case 2:
    case 3: {
        const char *token = tokens[below(sizeof tokens / sizeof *tokens)];
        return replace(text, n, at, 0, token, strlen(token));
    }
    case 4: {
        const char *token = tokens[below(sizeof tokens / sizeof *tokens)];
        cut = 1 + below(4);
        return replace(text, n, at, cut < n - at ? cut : n - at, token, strlen(token));
    }
    case 5:
        m = below(sizeof piece);
        if (m > n - at) m = n - at;
        memcpy(piece, text + at, m);
        return replace(text, n, below(n + 1), 0, piece, m);
    default:
        at = below(other_n + 1);
        m = below(sizeof piece);
        if (m > other_n - at) m = other_n - at;
        memcpy(piece, other + at, m);
        return replace(text, n, below(n + 1), 0, piece, m);
    }
}

int main(int argc, char **argv) {
    enum { MAX_SEEDS = 64 };
    static char text[MAX + 1], *seed[MAX_SEEDS];
    size_t length[MAX_SEEDS], n_seeds = 0;
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000, first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    for (int i = 3; i < argc && n_seeds < MAX_SEEDS; i++) {
        FILE *f = fopen(argv[i], "rb");
        if (!f) {
            fprintf(stderr, "parse_fuzz: cannot open %s\n", argv[i]);
            return 2;
        }
        seed[n_seeds] = malloc(MAX);
        length[n_seeds] = seed[n_seeds] ? fread(seed[n_seeds], 1, MAX, f) : 0;
        n_seeds++;
        fclose(f);
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts && argc <= 3; i++) {
        seed[n_seeds] = strdup(texts[i]);
        length[n_seeds++] = strlen(texts[i]);
    }
    for (uint64_t i = 0; i < count; i++) {
        state = case_seed = first + i;
        size_t k = below(n_seeds), other = below(n_seeds), n = length[k];
        memcpy(text, seed[k], n);
        for (size_t rounds = 1 + below(6); rounds > 0; rounds--) n = mutate(text, n, seed[other], length[other]);
        LLVMFuzzerTestOneInput((const uint8_t *)text, n);
    }
    for (size_t i = 0; i < n_seeds; i++) free(seed[i]);
    printf("%llu texts\n", (unsigned long long)count);
    return 0;
}
#endif
