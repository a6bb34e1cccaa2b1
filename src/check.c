/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* check.c: FUSOR_CHECK=1: each call is repeated by the reference evaluator on copies of its inputs and compared, judged
 * by the documented bounds. A difference is an error of the call (FUSOR_ERROR_INTERNAL) that names result, element and
 * bound. */
#include "check.h"
#include "memory.h"
#include "ref/bounds.h"

/* A contiguous copy of a buffer of any device in arena; bool elements become 0 or 1. */
static fusor_status copy_of(fusor_context *ctx, fu_arena *a, fu_error *e, const fusor_buffer *b, ref_tensor *out) {
    int64_t bytes = 0;
    *out = (ref_tensor){.dtype = (ir_dtype)b->dtype, .rank = b->rank};
    memcpy(out->shape, b->shape, sizeof out->shape);
    FU_TRY(memory_check(e, "FUSOR_CHECK", b, true, &bytes));
    out->data = fu_alloc_n(a, (size_t)bytes + 1, 1);
    return memory_read(ctx, e, b, out->data);
}

static bool is_empty(const fusor_buffer *b) {
    for (int d = 0; d < b->rank; d++)
        if (b->shape[d] == 0) return true;
    return false;
}

static fusor_status compare(fusor_context *ctx, fu_arena *a, fu_error *e, const ir_graph *g, bool is_fast, int n_in,
                            const ref_tensor *in, int n_out, const fusor_buffer *out) {
    ref_tensor *expected = FU_NEW_N(a, ref_tensor, n_out + 1);
    double **bound = FU_NEW_N(a, double *, n_out + 1);
    FU_TRY(ref_eval_bounds(a, e, g, is_fast, n_in, in, n_out, expected, bound));
    for (int r = 0; r < n_out; r++) {
        ref_tensor got;
        FU_TRY(copy_of(ctx, a, e, &out[r], &got));
        ref_comparison c = ref_compare(&got, &expected[r], bound[r], -1);
        if (!c.ok)
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL,
                           "FUSOR_CHECK: @%s: result %%%s differs from the reference evaluator by %g ULP at element "
                           "%lld; the bound there is %g",
                           g->name, g->results.at[r].name, c.max_ulp, (long long)c.at, c.bound_ulp);
    }
    return FUSOR_OK;
}

static fusor_status call_and_compare(fusor_context *ctx, fu_error *e, rt_exec *x, int n_in, const fusor_buffer *in,
                                     int n_out, fusor_buffer *out) {
    const ir_graph *g = rt_exec_plan(x)->graph;
    FU_CALL_ARENA(arena, return FU_FAIL(e, FUSOR_ERROR_MEMORY, "out of memory while checking a call"));
    fusor_buffer *probe = FU_NEW_N(&arena, fusor_buffer, n_out + 1);
    fusor_status status =
        rt_exec_infer(x, e, n_in, in, n_out, probe); /* refuses what a call would refuse, before anything is read */
    bool has_data = true;
    for (int i = 0; i < n_in && status == FUSOR_OK; i++) has_data &= in[i].data != NULL || is_empty(&in[i]);
    if (status == FUSOR_OK && !has_data) {
        fu_arena_free(&arena);
        return rt_exec_call(x, e, n_in, in, n_out, out); /* has its own message */
    }
    ref_tensor *copies = FU_NEW_N(&arena, ref_tensor, n_in + 1);
    for (int i = 0; i < n_in && status == FUSOR_OK; i++)
        status = copy_of(ctx, &arena, e, &in[i], &copies[i]); /* before aliased results overwrite them */
    if (status == FUSOR_OK) status = rt_exec_call(x, e, n_in, in, n_out, out);
    if (status == FUSOR_OK)
        status = compare(ctx, &arena, e, g, rt_exec_plan(x)->options.fast_math, n_in, copies, n_out, out);
    fu_arena_free(&arena);
    return status;
}

fusor_status check_call(fusor_context *ctx, fu_error *e, rt_exec *x, int n_in, const fusor_buffer *in, int n_out,
                        fusor_buffer *out) {
    const ir_graph *g = rt_exec_plan(x)->graph;
    if (n_in != (int)g->params.n || n_out != (int)g->results.n || (n_in && !in) || !out)
        return rt_exec_call(x, e, n_in, in, n_out, out); /* it has a message; bound parameters are not at hand */
    fusor_buffer *given = fu_malloc((size_t)n_out * sizeof *given);
    if (!given) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "out of memory while checking a call");
    memcpy(given, out, (size_t)n_out * sizeof *given);
    const fusor_status status = call_and_compare(ctx, e, x, n_in, in, n_out, out);
    for (int r = 0; r < n_out && status != FUSOR_OK; r++) { /* results that nobody gets */
        if (!given[r].data && g->results.at[r].alias < 0) fusor_buffer_free(ctx, &out[r]);
        out[r] = given[r];
    }
    fu_free(given);
    return status;
}
