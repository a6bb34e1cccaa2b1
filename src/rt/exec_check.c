/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* exec_check.c: steps that check indices. Tiles of a tensor of indices are scanned by the team; each block of a tile is
 * one branch, and the first wrong index in row-major order is the lowest that any tile found. */
#include "rt/cpuinfo.h"
#include "rt/exec_internal.h"
#include "rt/threads.h"

enum { TILE = 64 << 10, BLOCK = 256 };

typedef struct scan {
    const void *data;
    ir_dtype dtype;
    int64_t n, size;
    bool is_wide;          /* vectors of 32 bytes */
    _Atomic int64_t first; /* position of a wrong index; n: none */
} scan;

/* -size <= v < size, for size < 2^62 (of 32-bit words: 2^30): v + size and 2 * size - 1 - (v + size) are both not
 * negative, as signed words (and where the sum wraps it is negative). Indices are often more bytes than what they
 * take, so the common types are scanned in vectors; those of 32 bytes read 8 MB in the L3 cache at 85 GB/s, those that
 * every x86-64 has at 46. */
#define VECTORS __attribute__((optimize("O3")))
#if defined(__x86_64__)
#define WIDE __attribute__((optimize("O3"), target("avx2")))
#else
#define WIDE VECTORS
#endif
#define SCAN(name, how, type, word)                                                                                    \
    how static int64_t scan_##name(const type *x, int64_t begin, int64_t end, int64_t size) {                          \
        const word least = (word)size, most = 2 * least - 1, sign = (word) ~((word)-1 >> 1);                           \
        for (int64_t at = begin; at < end; at += BLOCK) {                                                              \
            int64_t stop = at + BLOCK < end ? at + BLOCK : end;                                                        \
            word any = 0;                                                                                              \
            for (int64_t i = at; i < stop; i++) {                                                                      \
                const word up = (word)x[i] + least;                                                                    \
                any |= up | (most - up);                                                                               \
            }                                                                                                          \
            for (int64_t i = at; (any & sign) && i < stop; i++) {                                                      \
                const word up = (word)x[i] + least;                                                                    \
                if ((up | (most - up)) & sign) return i;                                                               \
            }                                                                                                          \
        }                                                                                                              \
        return -1;                                                                                                     \
    }
SCAN(int64_t, VECTORS, int64_t, uint64_t)
SCAN(int32_t, VECTORS, int32_t, uint32_t)
SCAN(wide_int64_t, WIDE, int64_t, uint64_t)
SCAN(wide_int32_t, WIDE, int32_t, uint32_t)
SCAN(far_int32_t, , int32_t, uint64_t)
SCAN(int16_t, , int16_t, uint64_t)
SCAN(int8_t, , int8_t, uint64_t)
SCAN(uint32_t, , uint32_t, uint64_t)
SCAN(uint16_t, , uint16_t, uint64_t)
SCAN(uint8_t, , uint8_t, uint64_t)
#undef SCAN

static int64_t scan_uint64_t(const uint64_t *x, int64_t begin, int64_t end, int64_t size) {
    for (int64_t i = begin; i < end; i++)
        if (x[i] >= (uint64_t)size) return i;
    return -1;
}

static void scan_tiles(void *user, int worker, int64_t begin, int64_t end) {
    scan *s = user;
    int64_t from = begin * TILE, to = end * TILE < s->n ? end * TILE : s->n, at = -1;
    (void)worker;
    if (from >= atomic_load_explicit(&s->first, memory_order_relaxed)) return;
    switch (s->dtype) {
    case FUSOR_I64: at = (s->is_wide ? scan_wide_int64_t : scan_int64_t)(s->data, from, to, s->size); break;
    case FUSOR_I32:
        at = (s->size >> 30 ? scan_far_int32_t
              : s->is_wide  ? scan_wide_int32_t
                            : scan_int32_t)(s->data, from, to, s->size);
        break;
    case FUSOR_I16: at = scan_int16_t(s->data, from, to, s->size); break;
    case FUSOR_I8: at = scan_int8_t(s->data, from, to, s->size); break;
    case FUSOR_U64: at = scan_uint64_t(s->data, from, to, s->size); break;
    case FUSOR_U32: at = scan_uint32_t(s->data, from, to, s->size); break;
    case FUSOR_U16: at = scan_uint16_t(s->data, from, to, s->size); break;
    case FUSOR_U8: at = scan_uint8_t(s->data, from, to, s->size); break;
    default: break;
    }
    int64_t first = atomic_load(&s->first);
    while (at >= 0 && at < first && !atomic_compare_exchange_weak(&s->first, &first, at)) {}
}

fusor_status exec_check_indices(const frame *f, fu_error *e, int number, const void *data) {
    const core *c = f->x->core;
    const ir_step *st = &c->plan->steps.at[number];
    int arg = st->arg[0];
    ir_dtype t = c->plan->buffers.at[arg].dtype;
    scan s = {.data = data, .dtype = t, .n = f->count[arg], .size = f->step[number].axis_size};
    s.is_wide = rt_host_level() >= (int)IR_LEVEL_V3;
    if (!f->step[number].n_indices) return FUSOR_OK;
    const int bits = 8 * ir_dtypes[t].bytes; /* u8 into 256 places: every word is one of them */
    if (!ir_is_signed(t) && bits < 64 && s.size >> bits) return FUSOR_OK;
    atomic_init(&s.first, s.n);
    int64_t tiles = s.n / TILE + (s.n % TILE != 0);
    rt_parallel_for own = {c->options.parallel_for, c->options.parallel_user};
    rt_parallel(c->options.n_threads, tiles, scan_tiles, &s, own.run ? &own : NULL);
    int64_t at = atomic_load(&s.first);
    if (at >= s.n) return FUSOR_OK;
    ir_bits index = 0;
    int bytes = ir_dtypes[t].bytes;
    memcpy(&index, (const char *)s.data + at * bytes, (size_t)bytes); /* little-endian */
    /* The shape is that of the indices: their buffer may have that of a reshape of them, a result. */
    const ir_node *base = ir_at(c->plan->graph, st->base);
    int64_t shape[IR_MAX_RANK];
    for (int d = 0; d < base->rank; d++) FU_TRY(exec_size(f, e, base->dim[d], &shape[d]));
    return ir_fail_index(c->plan->graph, e, ir_at(c->plan->graph, st->node), st->base, index, at, shape, s.size);
}
