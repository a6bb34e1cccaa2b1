/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* einsum_test.c: subscripts as labels, the order of products, the text form, the C API. */
#include "ir/einsum.h"
#include "fusor/fusor.h"
#include "plan_test.h"
#include <criterion/criterion.h>
#include <math.h>

static const char *const programs = "fusor 1\n"
                                    "func @f(%x: f32[N, 4], %y: f32[4, M]) -> f32[M, N] {\n"
                                    "  %r = einsum(\"ij,jk->ki\", %x, %y)\n"
                                    "  return %r\n"
                                    "}\n";

Test(einsum, prints_what_it_read, .init = text_start, .fini = text_stop) {
    cr_assert_str_eq(round_trip(programs), programs);
}

/* Labels of "ab" as a set. */
static ir_labels set_of(const char *letters) {
    ir_labels s = 0;
    for (; *letters; letters++) s |= (ir_labels)1 << (*letters - 'a' + 26);
    return s;
}

typedef struct ordered {
    ir_einsum_step step[16];
    bool is_possible;
} ordered;

static ordered order(fu_arena *a, uint32_t n, const char *const *term, const char *out, const double *of_letter) {
    ordered r = {.is_possible = false};
    ir_labels labels[16];
    double size[64] = {0};
    for (int i = 0; i < 26; i++) size[26 + i] = of_letter ? of_letter[i] : 10;
    for (uint32_t i = 0; i < n; i++) labels[i] = set_of(term[i]);
    r.is_possible = ir_einsum_order(a, n, labels, set_of(out), size, r.step);
    return r;
}

Test(einsum, multiplies_the_cheapest_way, .init = text_start, .fini = text_stop) {
    const char *const chain[3] = {"ab", "bc", "cd"};
    /* 10 x 1000 by 1000 x 5 by 5 x 500: the first two first; the other way round the last two. */
    const ordered forward = order(&arena, 3, chain, "ad", (double[26]){10, 1000, 5, 500});
    cr_assert(forward.is_possible && forward.step[0].a == 0 && forward.step[0].b == 1 &&
              forward.step[0].kept == set_of("ac"));
    const ordered backward = order(&arena, 3, chain, "ad", (double[26]){500, 5, 1000, 10});
    cr_assert(backward.is_possible && backward.step[0].a + backward.step[0].b == 3 &&
              backward.step[0].kept == set_of("bd"));
    cr_assert_eq(backward.step[1].kept, set_of("ad"));
    /* More than are tried exhaustively: a matrix on a vector at the end is best begun there. */
    const char *const many[10] = {"ab", "bc", "cd", "de", "ef", "fg", "gh", "hi", "ij", "j"};
    const ordered greedy = order(&arena, 10, many, "a", NULL);
    cr_assert(greedy.is_possible && greedy.step[0].a == 8 && greedy.step[0].b == 9);
    for (int s = 1; s < 9; s++) cr_assert_eq(greedy.step[s].b, 9u + (unsigned)s);
    /* A product of 9 labels is no tensor. */
    const char *const wide[2] = {"abcde", "fghi"};
    cr_assert(!order(&arena, 2, wide, "abcdefghi", NULL).is_possible);
}

Test(einsum, is_a_function) {
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.cache_dir = "";
    fusor_context *ctx = fusor_context_new(&o);
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {1, 0, 0, 1, 1, 1}, z[4];
    const fusor_tensor in[2] = {fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(2, 3)),
                                fusor_wrap_const(ctx, y, FUSOR_F32, FUSOR_SHAPE(3, 2))};
    cr_assert_eq(fusor_read(fusor_einsum("ij,jk->ki", 2, in), z, sizeof z), FUSOR_OK, "%s", fusor_error_message(ctx));
    cr_assert(z[0] == 4 && z[1] == 10 && z[2] == 5 && z[3] == 11);
    cr_assert_eq(fusor_read(fusor_apply(ctx, "einsum", 2, in, "subscripts=\"ij,ji\""), z, sizeof *z), FUSOR_OK, "%s",
                 fusor_error_message(ctx));
    cr_assert_eq(z[0], 15);
    char spaced[1025]; /* the longest text there is */
    snprintf(spaced, sizeof spaced, "ij,%1017s->ki", "jk");
    z[0] = 0;
    cr_assert_eq(fusor_read(fusor_einsum(spaced, 2, in), z, sizeof z), FUSOR_OK, "%s", fusor_error_message(ctx));
    cr_assert(z[0] == 4 && z[1] == 10 && z[2] == 5 && z[3] == 11);
    z[0] = 0; /* as the language writes it, and with another attribute */
    cr_assert_eq(fusor_read(fusor_apply(ctx, "einsum", 2, in, "\"ij,ji\", dtype=f32"), z, sizeof *z), FUSOR_OK, "%s",
                 fusor_error_message(ctx));
    cr_assert_eq(z[0], 15);
    cr_assert_eq(fusor_status_of(fusor_apply(ctx, "einsum", 2, in, "\"ij,ji\", subscripts=\"ij,ji\"")),
                 FUSOR_ERROR_SYNTAX);
    cr_assert_eq(fusor_status_of(fusor_apply(ctx, "relu", 1, in, "\"ij\"")), FUSOR_ERROR_SYNTAX);
    cr_assert_eq(fusor_status_of(fusor_einsum("ij,j1", 2, in)), FUSOR_ERROR_SHAPE);
    cr_assert(strstr(fusor_error_message(ctx), "'1' in the subscripts of operand 2 is no letter"), "%s",
              fusor_error_message(ctx));
    cr_assert_eq(fusor_status_of(fusor_einsum(NULL, 2, in)), FUSOR_ERROR_ARGUMENT);
    cr_assert_eq(fusor_status_of(fusor_einsum("ij", 1, NULL)), FUSOR_ERROR_ARGUMENT);
    fusor_context_free(ctx);
}

/* K is 0 at the call, and a sum over it is a factor of others, which are infinite: nothing is added, so 0. */
Test(einsum, sums_of_nothing_are_0_beside_infinity) {
    static const char *const program =
        "func @a(%a: f32[2, K], %b: f32[2]) -> f32[2] { %y = einsum(\"nk,n->n\", %a, %b) return %y }\n"
        "func @b(%a: f32[2, K], %b: f32[K, 3], %c: f32[3, 2]) -> f32[2] { %y = einsum(\"nk,km,mn->n\", %a, %b, %c)\n"
        "  return %y }\n"
        "func @c(%a: f32[2, K], %b: f32[2, K], %c: f32[2]) -> f32[2] { %y = einsum(\"nk,nk,n->n\", %a, %b, %c)\n"
        "  return %y }\n"
        "func @e(%a: f32[2, 1], %b: f32[2, K], %c: f32[2]) -> f32[2] { %y = einsum(\"nk,nk,n->n\", %a, %b, %c)\n"
        "  return %y }\n"
        "func @d(%a: f32[K, L], %b: f32[2]) -> f32[2] { %y = einsum(\"kl,n->n\", %a, %b) return %y }\n";
    enum { MOST = 3 };
    static const struct {
        int n, rank[MOST];
        int64_t shape[MOST][2];
    } of[5] = {{2, {2, 1}, {{2, 0}, {2}}},
               {3, {2, 2, 2}, {{2, 0}, {0, 3}, {3, 2}}},
               {3, {2, 2, 1}, {{2, 0}, {2, 0}, {2}}},
               {2, {2, 1}, {{4, 0}, {2}}},
               {3, {2, 2, 1}, {{2, 1}, {2, 0}, {2}}}};
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.cache_dir = "";
    fusor_context *ctx = fusor_context_new(&o);
    float infinite[8];
    for (int i = 0; i < 8; i++) infinite[i] = INFINITY;
    for (int f = 0; f < 5; f++) {
        fusor_executable *exe = NULL;
        float y[2] = {1, 1};
        fusor_buffer in[MOST] = {{0}}, out = {.data = y, .dtype = FUSOR_F32, .rank = 1, .shape = {2}};
        for (int i = 0; i < of[f].n; i++) {
            in[i] = (fusor_buffer){.data = infinite, .dtype = FUSOR_F32, .rank = of[f].rank[i]};
            for (int d = 0; d < of[f].rank[i]; d++) in[i].shape[d] = of[f].shape[i][d];
        }
        cr_assert_eq(fusor_compile_text(ctx, program, (const char *[]){"a", "b", "c", "d", "e"}[f], &exe), FUSOR_OK,
                     "%s", fusor_error_message(ctx));
        cr_assert_eq(fusor_executable_call(exe, of[f].n, in, 1, &out), FUSOR_OK, "%s", fusor_error_message(ctx));
        cr_expect(y[0] == 0 && y[1] == 0, "@%c: %g, %g", 'a' + f, (double)y[0], (double)y[1]);
        fusor_executable_free(exe);
    }
    fusor_context_free(ctx);
}

/* What a diagonal moves it does not change: NaN, infinities, the sign of 0, the least integer; of sizes with names and
 * of axes that are not neighbours, where others of its row could be larger, too. */
Test(einsum, diagonals_keep_bits) {
    static const char *const program =
        "func @n(%x: f32[N, N]) -> f32[N] { %y = einsum(\"ii->i\", %x) return %y }\n"
        "func @k(%x: f32[4, 4]) -> f32[4] { %y = einsum(\"ii->i\", %x) return %y }\n"
        "func @a(%x: f32[4, 1, 4]) -> f32[4] { %y = einsum(\"iji->i\", %x) return %y }\n"
        "func @i(%x: i32[N, N]) -> i64[N] { %y = einsum(\"ii->i\", %x) return %y }\n"
        "func @b(%x: f32[N, 2, N]) -> f32[N, 2] { %y = einsum(\"iji->ij\", %x) return %y }\n";
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.cache_dir = "";
    fusor_context *ctx = fusor_context_new(&o);
    static const float special[4] = {-0.0f, NAN, -INFINITY, INFINITY};
    float x[32], y[8];
    int32_t integers[16];
    int64_t wide[4];
    for (int i = 0; i < 16; i++) x[i] = i % 5 ? 7 : special[i / 5], integers[i] = i % 5 ? 7 : INT32_MIN + i;
    for (int f = 0; f < 5; f++) {
        const bool is_integer = f == 3, is_batch = f == 4;
        fusor_executable *exe = NULL;
        fusor_buffer in = {.data = is_integer ? (void *)integers : x,
                           .dtype = is_integer ? FUSOR_I32 : FUSOR_F32,
                           .rank = 2,
                           .shape = {4, 4}};
        fusor_buffer out = {.data = is_integer ? (void *)wide : y,
                            .dtype = is_integer ? FUSOR_I64 : FUSOR_F32,
                            .rank = 1,
                            .shape = {4, 2}};
        if (f == 2 || is_batch)
            in.rank = 3, in.shape[1] = is_batch ? 2 : 1, in.shape[2] = 4, out.rank = is_batch ? 2 : 1;
        if (is_batch)
            for (int i = 0; i < 32; i++) x[i] = i / 8 == i % 4 ? special[i / 8] : 7;
        cr_assert_eq(fusor_compile_text(ctx, program, (const char *[]){"n", "k", "a", "i", "b"}[f], &exe), FUSOR_OK,
                     "%s", fusor_error_message(ctx));
        cr_assert_eq(fusor_executable_call(exe, 1, &in, 1, &out), FUSOR_OK, "%s", fusor_error_message(ctx));
        for (int i = 0; i < (is_batch ? 8 : 4); i++) {
            const float want = special[is_batch ? i / 2 : i];
            if (is_integer) cr_expect_eq(wide[i], INT32_MIN + 5 * i);
            else
                cr_expect(isnan(want) ? isnan(y[i]) : memcmp(&want, &y[i], sizeof want) == 0, "@%d, %d: %g", f, i,
                          (double)y[i]);
        }
        fusor_executable_free(exe);
    }
    fusor_context_free(ctx);
}

/* ---- products of several subscripts a role, as kernels ---- */
static ir_plan *plan_of(const char *function, ir_level level) {
    return plan_text(function, &(ir_plan_options){.level = level});
}

/* The roles of the dims of the contraction among the kernels of an einsum of x and y. */
static const char *roles_of(const char *x, const char *y, const char *result, const char *subscripts, ir_level level,
                            int *kernels) {
    static char roles[IR_KERNEL_MAX_DIMS + 1];
    const ir_plan *plan = plan_of(fu_format(&arena,
                                            "func @f(%%x: %s, %%y: %s) -> %s { %%r = einsum(\"%s\", %%x, %%y) %%q = "
                                            "relu(%%r) return %%q }",
                                            x, y, result, subscripts),
                                  level);
    *kernels = (int)plan->steps.n;
    roles[0] = 0;
    for (uint32_t s = 0; s < plan->steps.n; s++) {
        const ir_kernel *k = plan->steps.at[s].kernel;
        for (int d = 0; k && k->kind == IR_KERNEL_CONTRACT && d <= k->n_dims; d++)
            roles[d] = d < k->n_dims ? k->dim[d].role : 0;
    }
    return roles;
}

#define ROLES(of, n, level, x, y, result, subscripts)                                                                  \
    do {                                                                                                               \
        int kernels;                                                                                                   \
        const char *are = roles_of(x, y, result, subscripts, level, &kernels);                                         \
        cr_expect(strcmp(are, of) == 0 && kernels == (n), "%s: dims %s, %d kernels", subscripts, are, kernels);        \
    } while (0)

Test(einsum, reads_operands_where_they_lie, .init = text_start, .fini = text_stop) {
    /* rows a c, columns e f, products b d: none of them neighbours; and the result interleaves rows and columns */
    ROLES("byjmnk", 1, IR_LEVEL_V3, "f32[A, B, C, D]", "f32[E, B, F, D]", "f32[A, E, C, F]", "abcd,ebfd->aecf");
    ROLES("byjmnk", 1, IR_LEVEL_V3, "f64[40, 24, 32, 20]", "f64[30, 24, 36, 20]", "f64[40, 30, 32, 36]",
          "abcd,ebfd->aecf");
    /* neighbours everywhere are one dim, wherever they are */
    ROLES("mnk", 1, IR_LEVEL_V3, "f32[K, L, I, J]", "f32[M, K, L]", "f32[I, J, M]", "klij,mkl->ijm");
    ROLES("bbmnk", 1, IR_LEVEL_V3, "f32[I, J, K, L]", "f32[J, L, M]", "f32[I, K, M, J]", "ijkl,jlm->ikmj");
    /* a result that is only split, with what follows; and a softmax along its rows */
    ROLES("mnk", 1, IR_LEVEL_V3, "f32[B, S, D]", "f32[D, F]", "f32[B, S, F]", "bsd,df->bsf");
    const ir_plan *rows = plan_of("func @f(%x: f32[B, D, S], %y: f32[D, F]) -> f32[S, B, F] { %r = "
                                  "einsum(\"bds,df->sbf\", %x, %y) %q = softmax(%r, axis=-1) return %q }",
                                  IR_LEVEL_V3);
    cr_expect_eq(rows->steps.n, 1u);
    ROLES("jmnk", 1, IR_LEVEL_V3, "f32[X, Y, A]", "f32[Y, X, B]", "f32[A, B]", "xya,yxb->ab");
    ROLES("jjmnk", 1, IR_LEVEL_V3, "f32[X, Y, Z, A]", "f32[Z, Y, X, B]", "f32[A, B]", "xyza,zyxb->ab");
}

/* Small matrices, each by a vector of its own, would leave most lanes of a reduction empty. */
Test(einsum, multiplies_small_matrices_and_vectors, .init = text_start, .fini = text_stop) {
    ROLES("bmnk", 1, IR_LEVEL_V3, "f32[B, 4, 3]", "f32[B, 3]", "f32[B, 4]", "bij,bj->bi");
    ROLES("bmnk", 1, IR_LEVEL_V3, "f64[B, 12]", "f64[B, 12, 2]", "f64[B, 2]", "bi,bij->bj");
    ROLES("bmnk", 1, IR_LEVEL_V3, "f32[B, 4, 2, 2]", "f32[B, 2, 2]", "f32[B, 4]", "bijk,bjk->bi");
    ROLES("", 1, IR_LEVEL_V3, "f32[B, 2, 2, 4]", "f32[B, 4]", "f32[B, 2, 2]", "bijk,bk->bij"); /* relu would split it */
    ROLES("", 1, IR_LEVEL_V3, "f32[B, 4, 13]", "f32[B, 13]", "f32[B, 4]", "bij,bj->bi");
    ROLES("", 1, IR_LEVEL_V3, "f32[4, 3]", "f32[3]", "f32[4]", "ij,j->i");
    ROLES("", 1, IR_LEVEL_V3, "f16[B, 4, 3]", "f16[B, 3]", "f16[B, 4]", "bij,bj->bi"); /* halves would be packed */
    ROLES("", 1, IR_LEVEL_V3, "bf16[B, 4, 3]", "bf16[B, 3, 1]", "bf16[B, 4, 1]", "bij,bjk->bik");
}

Test(einsum, copies_where_that_is_faster, .init = text_start, .fini = text_stop) {
    ROLES("", 1, IR_LEVEL_V3, "f32[A, B, C, D]", "f32[B, D]", "f32[A, C]", "abcd,bd->ac"); /* a reduction */
    /* Registers would stay half empty along every subscript; and narrow elements are multiplied several at a time. */
    ROLES("mnk", 4, IR_LEVEL_V3, "f32[8, 8, 8, 8, 8, 8]", "f32[8, 8, 8, 8, 8, 8]", "f32[8, 8, 8, 8, 8, 8]",
          "abcdef,dgbhei->agchfi");
    ROLES("mnk", 2, IR_LEVEL_V3, "bf16[X, Y, A]", "bf16[Y, X, B]", "bf16[A, B]", "xya,yxb->ab");
    /* The same graph on a GPU, whose kernels have one dim each for rows, columns and products. */
    ROLES("mnk", 4, IR_LEVEL_SM80, "f32[A, B, C, D]", "f32[E, B, F, D]", "f32[A, E, C, F]", "abcd,ebfd->aecf");
}
