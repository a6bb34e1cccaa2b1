/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass.c: the pass table, the runner (verifies, dumps and times; no pass prints by itself), and the frame of a rewrite.
 */
#include "base/small.h"
#include "ir/pass.h"
#include "base/env.h"
#include "base/log.h"
#include <stdlib.h>
#include <string.h>

/* FUSOR_DEBUG and FUSOR_PASSES of env.def list the names. */
const ir_pass ir_passes[] = {
    {"expand", "composites become marked groups of primitives", ir_pass_expand},
    {"fold", "operators of literals become literals", ir_pass_fold},
    {"simplify", "algebraic rules that keep every bit", ir_pass_simplify},
    {"cse", "equal nodes become one; canonical order", ir_pass_cse},
    {"dce", "nodes that no result needs go, but checks of indices", ir_pass_dce},
    {NULL, NULL, NULL},
};

/* ---- rewriting ---- */

void ir_rewrite_begin(ir_rewrite *rw, fu_arena *a, const ir_graph *g) {
    *rw = (ir_rewrite){.arena = a, .from = g, .to = ir_graph_like(a, g), .map = FU_NEW_N(a, ir_id, g->nodes.n)};
    for (uint32_t p = 0; p < g->params.n; p++) {
        ir_param param = g->params.at[p];
        const ir_id old = param.node;
        rw->map[old] = param.node = ir_add_raw(rw->to, ir_at(g, old));
        fu_push(a, &rw->to->params, param);
    }
}

ir_node ir_rewrite_node(const ir_rewrite *rw, ir_id i) {
    ir_node n = *ir_at(rw->from, i);
    ir_id *in = FU_NEW_N(rw->arena, ir_id, n.n_in);
    for (unsigned k = 0; k < n.n_in; k++) in[k] = rw->map[n.in[k]];
    n.in = in;
    return n;
}

void ir_rewrite_finish(ir_rewrite *rw, ir_graph **g) {
    for (uint32_t r = 0; r < rw->from->results.n; r++) {
        ir_result result = rw->from->results.at[r];
        result.node = rw->map[result.node];
        fu_push(rw->arena, &rw->to->results, result);
    }
    ir_map_hints(rw->to, rw->from, rw->map);
    rw->to->failed = rw->from->failed;
    if (rw->is_changed) *g = rw->to;
}

/* ---- running ---- */

/* Is `word`, of n characters, the name with a sign before it? */
static bool is_about(const char *word, size_t n, const char *name) {
    return n == strlen(name) + 1 && (*word == '-' || *word == '+') && memcmp(word + 1, name, n - 1) == 0;
}

/* FUSOR_PASSES=-fold,+cse: the last word about a name counts; all passes are on by default. */
static bool is_on(const char *name) {
    bool on = true;
    for (const char *p = fu_env_string(FU_FUSOR_PASSES); *p;) {
        const size_t n = strcspn(p, ",");
        if (is_about(p, n, name)) on = *p == '+';
        p += n + (p[n] == ',');
    }
    return on;
}

static void dump(fu_arena *a, const ir_pass *pass, const ir_graph *g, bool is_changed) {
    if (!fu_dump_on(fu_format(a, "pass=%s", pass->name))) return;
    fu_str s;
    fu_str_init(&s, a);
    /* A comment, so that the dump stays valid input. */
    if (!is_changed) fu_str_add(&s, "# (unchanged)\n");
    fu_str_add(&s, "fusor 1\n");
    ir_print_graph(&s, g);
    fu_dump(pass->name, g->name ? g->name : "graph", s.at);
}

typedef struct timing {
    const char *name;
    int64_t ns;
} timing;

static int slower_first(const void *a, const void *b) {
    const int64_t x = ((const timing *)a)->ns, y = ((const timing *)b)->ns;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void print_times(fu_arena *a, const ir_graph *g, timing *t, size_t n) {
    fu_str s;
    fu_str_init(&s, a);
    qsort(t, n, sizeof *t, slower_first);
    for (size_t i = 0; i < n; i++) fu_str_addf(&s, "%10.3f us  %s\n", (double)t[i].ns / 1000, t[i].name);
    fu_dump("times", g->name ? g->name : "graph", s.at);
}

fusor_status ir_normalize(fu_arena *a, fu_error *e, ir_graph **g, const ir_plan_options *options) {
    ir_graph *from = *g;
    from->packs_const = !ir_level_is_gpu(options->level);
    from->has_fma = ir_levels[options->level].has_fma;
    if (!options->no_fuse && !options->reference) FU_TRY(ir_recognize_attention(a, e, g));
    if (!options->no_fuse && !options->reference && from->packs_const) ir_put_channels_last(a, g);
    FU_TRY(ir_run_passes(a, e, g));
    if (*g != from) (*g)->as_written = from;
    return FUSOR_OK;
}

fusor_status ir_run_passes(fu_arena *a, fu_error *e, ir_graph **g) {
    enum { N_PASSES = sizeof ir_passes / sizeof *ir_passes - 1 };
    const int64_t verify = fu_env_int(FU_FUSOR_VERIFY);
    timing times[N_PASSES];
    size_t n_times = 0;
    if (verify >= 1) FU_TRY(ir_verify(*g, e, "the front end"));
    for (const ir_pass *pass = ir_passes; pass->name; pass++) {
        if (!is_on(pass->name)) continue;
        const ir_graph *before = *g;
        const int64_t start = fu_now_ns();
        FU_TRY(pass->run(a, e, g));
        times[n_times++] = (timing){pass->name, fu_now_ns() - start};
        if (verify >= 2 || (verify == 1 && !pass[1].name)) FU_TRY(ir_verify(*g, e, pass->name));
        dump(a, pass, *g, *g != before);
    }
    if (fu_env_bool(FU_FUSOR_TIME_PASSES)) print_times(a, *g, times, n_times);
    return FUSOR_OK;
}
