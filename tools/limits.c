/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* limits.c: the measured limits beside the cache of the tool's context, and shares of them in words. */
#include "limits.h"

static const char *dir_of(const tool *t) { return t->ctx ? fusor_cache_directory(t->ctx) : ""; }

static limits of(const rt_limits *all) {
    return (limits){all->peak[RT_LIMIT_F32], all->bandwidth[RT_LIMIT_MEMORY], all->n_threads, all->is_known, *all};
}

limits limits_get(tool *t, int n_threads, bool again) {
    rt_limits all = t->ctx && context_home(t->ctx)
                        ? context_limits(t->ctx, true)
                        : rt_limits_get(dir_of(t), n_threads, tool_cache_is_read_only(t), again);
    return of(&all);
}

void limits_beside(tool *t, limits *l, double flops_per_s) {
    if (t->ctx && context_home(t->ctx)) return; /* not measured, so not measured again */
    rt_limits_beside(&l->all, dir_of(t), tool_cache_is_read_only(t), FUSOR_F32, flops_per_s, true);
    *l = of(&l->all);
}

const char *limits_share(tool *t, const limits *l, ir_dtype type, double bytes_per_s, double flops_per_s) {
    const double peak = rt_limits_peak(&l->all, type);
    if (!l->is_known || peak <= 0 || l->bytes <= 0) return "";
    double memory = bytes_per_s / l->bytes, compute = flops_per_s / peak;
    return memory >= compute ? fu_format(&t->arena, "%.0f%% of memory bandwidth%s", 100 * memory,
                                         memory > 1.005 ? " (the caches serve the rest)" : "")
                             : fu_format(&t->arena, "%.0f%% of peak arithmetic%s", 100 * compute,
                                         compute > 1.005 ? " (measured at a busier moment: fusor info --measure)" : "");
}
