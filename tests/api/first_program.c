/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* first_program.c: the README's first program, then the optimizer step of the same document, against the public
 * headers. */
#include <fusor/fusor.h>
#include <stdio.h>

static int step(void) {
    float m[4] = {0, 1, 2, 3}, v[4] = {4, 4, 4, 4}, p[4] = {1, 1, 1, 1}, g[4] = {1, -1, 2, 0};
    double lr = .5;
    fusor_status status;
    fusor_context *ctx = fusor_context_new(NULL);
    fusor_tensor M = fusor_wrap(ctx, m, FUSOR_F32, FUSOR_SHAPE(4)), V = fusor_wrap(ctx, v, FUSOR_F32, FUSOR_SHAPE(4));
    fusor_tensor P = fusor_wrap(ctx, p, FUSOR_F32, FUSOR_SHAPE(4)),
                 G = fusor_wrap_const(ctx, g, FUSOR_F32, FUSOR_SHAPE(4));
    FUSOR_SCOPE(ctx, &status) {
        fusor_tensor m1 = fusor_add(fusor_mul(M, .9), fusor_mul(G, .1));
        fusor_tensor v1 = fusor_add(fusor_mul(V, .999), fusor_mul(fusor_square(G), .001));
        fusor_assign(M, m1);
        fusor_assign(V, v1);
        fusor_assign(P, fusor_sub(P, fusor_div(fusor_mul(m1, lr), fusor_add(fusor_sqrt(v1), 1e-8))));
    }
    if (status) return fprintf(stderr, "%s\n", fusor_error_message(ctx)), 1;
    for (int i = 0; i < 4; i++) printf("%.4f %.4f %.4f\n", m[i], v[i], p[i]);
    fusor_context_free(ctx);
    return 0;
}

int main(void) {
    float x[6] = {1, -2, 3, 4, 5, -6}, w[6] = {1, 0, 0, 1, 1, 1}, b[2] = {.5f, -9}, y[4];
    fusor_context *ctx = fusor_context_new(NULL);
    fusor_tensor X = fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(2, 3)),
                 W = fusor_wrap_const(ctx, w, FUSOR_F32, FUSOR_SHAPE(3, 2));
    fusor_tensor B = fusor_wrap_const(ctx, b, FUSOR_F32, FUSOR_SHAPE(2));
    if (fusor_read(fusor_relu(fusor_add(fusor_matmul(X, W), B)), y, sizeof y))
        return fprintf(stderr, "%s\n", fusor_error_message(ctx)), 1;
    printf("%g %g\n%g %g\n", y[0], y[1], y[2], y[3]);
    fusor_context_free(ctx);
    return step();
}
