/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* bench_lazy.c: the LAZY rows of bench/suite.def as a program would write them with lazy tensors: operators record, and
 * the end of the scope (or a read) evaluates them. */
#include "bench.h"
#include "fusor/op.h"

static fusor_tensor wrap(fusor_context *ctx, fusor_buffer *b) {
    return fusor_wrap(ctx, b->data, (fusor_dtype)b->dtype, b->rank, b->shape);
}

/* The value, evaluated at once where each operator is to be a graph of its own. */
static fusor_tensor step(fusor_tensor v, bool each) {
    if (each) (void)!fusor_eval(1, &v); /* an error stays in the handle, and the scope reports it */
    return v;
}

static fusor_status chain(fusor_context *ctx, fusor_buffer *in, fusor_buffer *out, bool each) {
    fusor_status status;
    FUSOR_SCOPE(ctx, &status) {
        fusor_tensor a = wrap(ctx, &in[0]), b = wrap(ctx, &in[1]), c = wrap(ctx, &in[2]), y = wrap(ctx, &out[0]);
        fusor_tensor product = step(fusor_mul(a, b), each), sum = step(fusor_add(product, c), each);
        (void)fusor_assign(y, step(fusor_relu(sum), each));
    }
    return status;
}

static fusor_status momentum(fusor_context *ctx, fusor_buffer *in, fusor_buffer *out, bool each) {
    (void)out;
    fusor_status status;
    FUSOR_SCOPE(ctx, &status) {
        fusor_tensor p = wrap(ctx, &in[0]), v = wrap(ctx, &in[1]), g = wrap(ctx, &in[2]);
        fusor_tensor w = step(fusor_add(step(fusor_mul(v, 0.9), each), g), each);
        (void)fusor_assign(p, step(fusor_sub(p, step(fusor_mul(w, 1e-6), each)), each));
        (void)fusor_assign(v, w);
    }
    return status;
}

bench_lazy_fn bench_lazy_find(const char *name) {
    static const struct {
        const char *name;
        bench_lazy_fn fn;
    } rows[] = {{"relu(a*b+c)", chain}, {"momentum", momentum}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0) return rows[i].fn;
    return NULL;
}
