// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cpp_program.cc: fusor.hpp as a program uses it. Prints what cpp_program.sh expects.
#include <cstdio>
#include <fusor/fusor.hpp>

using fusor::tensor;

int main() {
    fusor::context ctx;
    float x[6] = {1, -2, 3, 4, 5, -6}, w[6] = {1, 0, 0, 1, 1, 1}, b[2] = {.5f, -9};
    tensor X = ctx.wrap(x, {2, 3}), W = ctx.wrap(w, {3, 2}), B = ctx.wrap(b, {2});
    for (float v : fusor::read<float>(relu(matmul(X, W) + B))) std::printf("%g ", v);
    std::printf("\n");
    for (bool v : fusor::read<bool>((X > 0) & !(X == 3.0))) std::printf("%d ", v);
    std::printf("\n%g\n", fusor::read<float>(reduce_sum(1 - 2 * X, {0, 1}))[0]);
    std::printf("%d\n", int(fusor::read<int64_t>(argmax(X))[0]));

    tensor stacked = fusor::concat({slice(X, {0, 1}, {2, 3}), W}, 0);      // 5 x 2
    for (float v : fusor::read<float>(reduce_max(pad(stacked, {0, 1, 0, 0}), {1}))) std::printf("%g ", v);
    for (float v : fusor::read<float>(ctx.apply("cumsum", {split(X, 1, {1, 2})[1]}, "axis=1"))) std::printf("%g ", v);
    std::printf("\n");

    float p[3] = {1, 2, 3}, g[3] = {10, 20, 30};
    {
        fusor::scope scope(ctx);
        tensor P = ctx.wrap(p, {3}), G = ctx.wrap(static_cast<const float *>(g), {3});
        assign(P, P - 0.1 * G);
        scope.end();
    }
    std::printf("%g %g %g\n", p[0], p[1], p[2]);

    fusor::executable f(ctx, "func @f(%a: f32[N]) -> f32[N] { %y = square(%a) return %y }");
    float y[3];
    std::vector<fusor_buffer> out = {fusor::buffer(y, {3})};
    f.call({fusor::buffer(g, {3})}, out);
    std::printf("%g %g %g\n", y[0], y[1], y[2]);

    fusor::executable running(ctx, "func @f(%x: f32[], %s: f32[]) -> (%r: f32[]) { %r = add(%x, %s) return %r }");
    float start[1] = {1};
    std::vector<fusor_buffer> sums = {fusor::buffer(y, {3})};
    running.scan(3, {{1, 0}}, {fusor::buffer(g, {3}), fusor::buffer(start, {})}, sums);
    std::printf("%g %g %g\n", y[0], y[1], y[2]);

    fusor::memory there(ctx, FUSOR_F32, {3});
    fusor::copy(ctx, fusor::buffer(g, {3}), there.buffer());
    f.call({there.buffer()}, out);
    ctx.wait();
    std::printf("%g %g %g\n", out[0].shape[0] + 0., static_cast<float *>(out[0].data)[1], fusor::read<float>(fusor::to_device(X))[0]);
    std::unique_ptr<fusor::context> brief(new fusor::context);
    fusor::memory longer(*brief, FUSOR_F32, {3});
    fusor::executable layer(*brief, "func @f(%a: f32[N, 2], const %w: f32[2], const %b: f32[]) -> f32[N] { %m = matmul(%a, %w) %y = add(%m, %b) return %y }");
    brief.reset(); /* what is made of a context holds it */
    fusor::copy(ctx, longer.buffer(), longer.buffer());
    {
        float weights[2] = {1, 10}, bias = .5f;
        layer = layer.bind({{"b", fusor::buffer(&bias, {})}, {"w", fusor::buffer(weights, {2})}});
        weights[0] = bias = 7;
    }
    layer.call({fusor::buffer(x, {3, 2})}, out);
    std::printf("%g %g %g\n", y[0], y[1], y[2]);
    try {
        (void)layer.bind({{"w", fusor::buffer(w, {2})}});
    } catch (const fusor::error &e) {
        std::printf("%s\n", e.what());
    }
    try {
        (void)fusor::context::on("cuba");
    } catch (const fusor::error &e) {
        std::printf("%s\n", e.what());
    }

    try {
        (void)fusor::read<float>(X + B + ctx.wrap(p, {3}));
        std::printf("no error\n");
    } catch (const fusor::error &e) {
        std::printf("%s\n", fusor_status_name(e.status()));
    }
    try {
        (void)fusor::read<float>(fusor::tensor(1.0)); /* of no context */
    } catch (const fusor::error &e) {
        std::printf("%s\n", std::string(e.what()).substr(0, 28).c_str());
    }
    try {
        (void)fusor::read<double>(X);
    } catch (const fusor::error &e) {
        std::printf("%s\n", e.what());
    }
    try {
        (void)slice(X, {0, 0}, {1});
    } catch (const fusor::error &e) {
        std::printf("%s\n", e.what());
    }
    try {
        f.call({fusor::buffer(y, {1, 1, 1, 1, 1, 1, 1, 1, 3})}, out);
    } catch (const fusor::error &e) {
        std::printf("%s\n", e.what());
    }
    try {
        fusor::context other, moved(std::move(other));
        fusor::scope scope(other);
        scope.end();
    } catch (const fusor::error &e) {
        std::printf("%s\n", e.what());
    }
    try {
        std::unique_ptr<fusor::context> gone(new fusor::context);
        fusor::executable first(*gone, "func @f(%a: f32[N]) -> f32[N] { %y = square(%a) return %y }");
        {
            fusor::executable second(std::move(first));
            gone.reset();
        }
        first.call({fusor::buffer(g, {3})}, out); /* its context is no more */
    } catch (const fusor::error &e) {
        std::printf("%s\n", e.what());
    }
    try {
        fusor::executable bad(ctx, "func @f(");
    } catch (const fusor::error &e) {
        std::printf("%s\n", fusor_status_name(e.status()));
    }
}
