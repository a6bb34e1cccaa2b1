/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TESTS_DIFF_CHECK_H
#define TESTS_DIFF_CHECK_H
/* What the differential tests and the graph fuzzer share: numbers with special values in them, memory between guard
 * pages, the pipeline of src/fusor.c at a given level, thread count and fusion, and the comparison of bits. A test
 * includes it once. */
#include "ir/pass.h"
#include "ref/bounds.h"
#include "ref/kinds.h"
#include "rt/buffer.h"
#include "rt/cpuinfo.h"
#include "rt/exec.h"
#include "rt/compiler.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define UNUSED __attribute__((unused))

/* ---- numbers ---- */
static uint64_t mix(uint64_t x) { /* splitmix64 (Steele, Lea, Flood 2014) */
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
typedef struct rng {
    uint64_t state;
} rng;
static UNUSED uint64_t rnd(rng *r) { return mix(r->state++); }
static UNUSED int below(rng *r, int n) { return (int)(rnd(r) % (uint64_t)n); }
static UNUSED bool chance(rng *r, int percent) { return below(r, 100) < percent; }

/* Which values besides ordinary ones. HUGE: the largest finite ones too, on which sums overflow in one order and not in
 * another. */
enum { SPECIAL_NONE, SPECIAL_SOME, SPECIAL_HUGE };

static UNUSED ir_bits special_value(ir_dtype t, int k, int special) {
    int width = 8 * ir_dtypes[t].bytes;
    if (!ir_is_float(t)) {
        switch (k % 5) {
        case 0: return 0;
        case 1: return t == FUSOR_BOOL ? 1 : (ir_bits)1 << (width - 1); /* the minimum, or half of the range */
        case 2: return t == FUSOR_BOOL ? 1 : (~(ir_bits)0 >> (64 - width)) >> ir_is_signed(t); /* the maximum */
        case 3: return 1;
        default: return t == FUSOR_BOOL ? 0 : ~(ir_bits)0 >> (64 - width); /* -1, or the maximum */
        }
    }
    int digits = t == FUSOR_F64 ? 52 : t == FUSOR_F32 ? 23 : t == FUSOR_F16 ? 10 : 7;
    ir_bits sign = (ir_bits)(k & 1) << (width - 1), infinity = ((((ir_bits)1 << (width - 1)) - 1) >> digits) << digits;
    switch (k / 2 % (special == SPECIAL_HUGE ? 6 : 4)) {
    case 0: return sign;
    case 1: return sign | infinity;
    case 2: return sign | infinity | (ir_bits)1 << (digits - 1);
    case 3: return sign | (1 + (ir_bits)k * 3);  /* subnormal */
    case 4: return sign | (infinity - 1);        /* the largest */
    default: return sign | (ir_bits)1 << digits; /* the smallest normal */
    }
}

static UNUSED void fill(ref_tensor *t, uint64_t seed, double lo, double hi, int special) {
    rng r = {mix(seed)};
    int64_t n = ref_count(t);
    if (lo < -1e30) lo = -1e30;
    if (hi > 1e30) hi = 1e30;
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = rnd(&r);
        double u = (double)(bits >> 11) * 0x1p-53, v = lo + u * (hi - lo);
        if (special && bits % 13 == 0) ref_put(t, i, special_value(t->dtype, (int)(bits >> 32 & 31), special));
        else if (t->dtype == FUSOR_BOOL) ref_put(t, i, bits >> 40 & 1);
        else if (ir_is_float(t->dtype)) ref_put_real(t, i, (long double)v);
        else {
            if (lo < 0 && !ir_is_signed(t->dtype)) v = -v < v ? v : -v;
            ref_put(t, i, (ir_bits)(int64_t)(v < -100 ? -100 : v > 100 ? 100 : v));
        }
    }
}

/* ---- memory between guard pages ---- */
typedef struct guarded {
    char *map;
    size_t mapped;
    char *data;
} guarded;

/* `bytes` bytes that end, or begin, at a page that may not be touched. */
static UNUSED guarded guard_new(size_t bytes, bool at_end) {
    size_t page = 4096, inner = (bytes + page - 1) / page * page + (bytes == 0 ? page : 0);
    guarded g = {.mapped = inner + 2 * page};
    g.map = mmap(NULL, g.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.map == MAP_FAILED || mprotect(g.map + page, inner, PROT_READ | PROT_WRITE) != 0) {
        fprintf(stderr, "no memory for a test buffer\n");
        exit(2);
    }
    memset(g.map + page, 0xa5, inner);
    g.data = g.map + page + (at_end ? inner - bytes : 0);
    return g;
}
static UNUSED void guard_free(guarded *g) {
    if (g->map) munmap(g->map, g->mapped);
    g->map = NULL;
}

/* What a call has for temporaries and its workers ends at such a page, too. */
static UNUSED void *guard_allocate(void *user, size_t bytes, size_t align) {
    (void)user;
    return guard_new(((bytes ? bytes : 1) + align - 1) / align * align, true).data;
}

/* The end of what was asked for is in the last page of it. */
static UNUSED void guard_deallocate(void *user, void *p, size_t bytes) {
    (void)user;
    const size_t page = 4096;
    char *begin = (char *)((uintptr_t)p / page * page),
         *end = (char *)(((uintptr_t)p + (bytes ? bytes : 1) + page - 1) / page * page);
    guarded g = {.map = begin - page, .mapped = (size_t)(end - begin) + 2 * page};
    guard_free(&g);
}

/* ---- the pipeline ---- */
typedef struct setup {
    ir_level level;
    ir_features features;
    int n_threads;
    bool no_fuse, reference, is_fast;
    fusor_status (*launch)(void *user, fu_error *e, const ir_kernel *k, const ir_kernel_args *args); /* or NULL */
    struct rt_queue *queue;                                                                          /* or NULL */
    _Atomic(rt_profile *) *profile;                                                                  /* or NULL */
} setup;

static fusor_status reference_node(const ir_graph *g, fu_error *e, const ir_node *n, const rt_tensor *in,
                                   rt_tensor *out, const int64_t *symbols) {
    return ref_eval_node(g, e, n, (const ref_tensor *)in, (ref_tensor *)out, symbols);
}

/* The plan of a text's one function. NULL where there is none; the record says why. */
static UNUSED ir_plan *plan_of(fu_arena *arena, fu_error *e, const char *text, const ir_plan_options *options) {
    ir_module *m;
    ir_graph *g;
    ir_plan *plan;
    fu_error_clear(e);
    if (ir_parse(arena, e, "<text>", text, strlen(text), &m) != FUSOR_OK ||
        ir_flatten(arena, e, m, ir_module_find(m, NULL), &g) != FUSOR_OK)
        return NULL;
    return ir_normalize(arena, e, &g, options) == FUSOR_OK && ir_plan_make(arena, e, g, options, &plan) == FUSOR_OK
               ? plan
               : NULL;
}

/* NULL where it fails; the record says why. */
static UNUSED rt_exec *build(fu_error *e, rt_cache *cache, const char *text, setup s) {
    static jmp_buf oom;
    fu_arena arena;
    rt_exec *x = NULL;
    fu_arena_init(&arena, &oom);
    if (setjmp(oom)) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    ir_plan_options po = {.level = s.level,
                          .features = s.features,
                          .no_fuse = s.no_fuse,
                          .reference = s.reference,
                          .fast_math = s.is_fast};
    rt_exec_options xo = {.n_threads = s.n_threads,
                          .reference = reference_node,
                          .launch = s.launch,
                          .queue = s.queue,
                          .profile = s.profile};
    if (!s.queue) {
        xo.allocate = guard_allocate;
        xo.deallocate = guard_deallocate;
    }
    ir_plan *plan = plan_of(&arena, e, text, &po);
    if (plan && rt_exec_new(e, &arena, plan, cache, &xo, &x) == FUSOR_OK) return x;
    fu_arena_free(&arena);
    return NULL;
}

/* The text as a graph with calls inlined and nothing else done to it: what the reference evaluates. NULL where it is
 * refused. */
static UNUSED ir_graph *reference_graph(fu_arena *arena, fu_error *e, const char *text) {
    ir_module *m;
    ir_graph *g;
    fu_error_clear(e);
    if (ir_parse(arena, e, "<text>", text, strlen(text), &m) != FUSOR_OK) return NULL;
    ir_graph *f = ir_module_find(m, NULL);
    return f && ir_flatten(arena, e, m, f, &g) == FUSOR_OK ? g : NULL;
}

static UNUSED fusor_buffer describe(const ref_tensor *t, void *data) {
    fusor_buffer b = {.data = data, .dtype = t->dtype, .rank = t->rank};
    for (int d = 0; d < t->rank; d++) b.shape[d] = t->shape[d];
    return b;
}

static UNUSED size_t bytes_of(const ref_tensor *t) { return (size_t)ref_count(t) * ir_dtypes[t->dtype].bytes; }

/* First element whose bits differ, all NaNs being equal; -1 where there is none. */
static UNUSED int64_t first_difference(const ref_tensor *a, const ref_tensor *b) {
    int64_t n = ref_count(a);
    if (bytes_of(a) == 0 || memcmp(a->data, b->data, bytes_of(a)) == 0) return -1;
    for (int64_t i = 0; i < n; i++) {
        ir_bits x = ref_get(a, i), y = ref_get(b, i);
        if (x != y &&
            !(ir_is_float(a->dtype) && isnan(ir_bits_to_double(a->dtype, x)) && isnan(ir_bits_to_double(a->dtype, y))))
            return i;
    }
    return -1;
}

/* ---- strided buffers of the caller ---- */
/* A layout of t with dims in another order, some of them backwards, and gaps; strides in elements. Returns the elements
 * it spans; *first_out is the number of the first element in them. */
static UNUSED int64_t strided_layout(const ref_tensor *t, rng *r, int64_t *stride, int64_t *first_out) {
    int order[IR_MAX_RANK];
    int64_t span = 1, at = 1;
    for (int d = 0; d < t->rank; d++) order[d] = d;
    for (int d = t->rank - 1; d > 0; d--) {
        int other = chance(r, 50) ? d : below(r, d + 1), k = order[d];
        order[d] = order[other];
        order[other] = k;
    }
    *first_out = 0;
    for (int d = t->rank - 1; d >= 0; d--) {
        int k = order[d];
        int64_t n = t->shape[k], gap = chance(r, 30) ? 1 + below(r, 3) : 0;
        stride[k] = at;
        span += (n > 0 ? n - 1 : 0) * at;
        if (chance(r, 30) && n > 0) {
            *first_out += (n - 1) * at;
            stride[k] = -at;
        }
        at *= (n > 0 ? n : 1) + gap;
    }
    return span;
}

/* Copies t's elements to (or from) a strided buffer. */
static UNUSED void strided_copy(const ref_tensor *t, const fusor_buffer *b, bool to_buffer) {
    int64_t n = ref_count(t), size = ir_dtypes[t->dtype].bytes, at[IR_MAX_RANK] = {0}, offset = 0;
    for (int64_t i = 0; i < n; i++) {
        char *p = (char *)b->data + offset * size, *q = (char *)t->data + i * size;
        if (to_buffer) memcpy(p, q, (size_t)size);
        else memcpy(q, p, (size_t)size);
        for (int d = t->rank - 1; d >= 0; d--) {
            offset += b->stride[d];
            if (++at[d] < t->shape[d]) break;
            offset -= at[d] * b->stride[d];
            at[d] = 0;
        }
    }
}
#endif
