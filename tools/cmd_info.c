/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cmd_info.c: fusor info. This machine as fusor sees it, and what is in force. */
#include "limits.h"
#include "report.h"
#include "base/build_options.h"
#include "base/env.h"
#include "rt/cpuinfo.h"
#include "rt/compiler.h"
#include "rt/device.h"
#include <inttypes.h>

/* Why the level is no higher: the first feature of the next level that was not granted. */
static const char *why_level(tool *t, int level) {
    const char *missing;
    size_t n;
    if (level + 1 >= IR_LEVEL_COUNT) return "the highest level: every feature of it is granted";
    if (rt_host_has(ir_levels[level + 1].features, &missing, &n)) return "";
    return fu_format(&t->arena, "%s needs %.*s, which this machine does not grant", ir_levels[level + 1].name, (int)n,
                     missing);
}

/* Features beside the level: those granted, or what is not. */
static ir_features extras_of(int level, bool granted) {
    if (level < 0) return 0;
    const ir_features has = rt_host_extras((ir_level)level);
    return granted ? has : ir_level_extras((ir_level)level) & ~has;
}

/* "vnni (products of 8-bit integers), bf16 (...)" */
static const char *extras_text(tool *t, int level, bool granted) {
    fu_str s;
    fu_str_init(&s, &t->arena);
    for (int i = 0; i < IR_FEATURE_COUNT; i++)
        if (extras_of(level, granted) >> i & 1)
            fu_str_addf(&s, "%s%s (%s)", s.n ? ", " : "", ir_feature_table[i].name, ir_feature_table[i].text);
    return s.n ? s.at : "none";
}

static json_t *extras_json(int level, bool granted) {
    json_t *list = json_array();
    for (int i = 0; i < IR_FEATURE_COUNT; i++)
        if (extras_of(level, granted) >> i & 1)
            (void)json_array_append_new(
                list, json_pack("{s:s, s:s}", "name", ir_feature_table[i].name, "why", ir_feature_table[i].text));
    return list;
}

/* ---- how this was built ---- */
static const struct {
    const char *name, *text;
} build_options[] = {
    {"compiler", BUILD_CC " (" __VERSION__ ")"},
    {"cflags", BUILD_CFLAGS},
    {"openmp", BUILD_OPENMP},
    {"llvm", BUILD_LLVM},
    {"llvm_link", BUILD_LLVM_LINK},
    {"instrumented", BUILD_INSTRUMENTED},
    {"configure", BUILD_ARGUMENTS},
};
enum { BUILD_OPTIONS = sizeof build_options / sizeof *build_options };

static json_t *build_json(void) {
    json_t *o = json_object();
    for (int i = 0; i < BUILD_OPTIONS; i++)
        (void)json_object_set_new(o, build_options[i].name, json_string(build_options[i].text));
    return o;
}

static void print_build(void) {
    printf("build options:\n");
    for (int i = 0; i < BUILD_OPTIONS; i++)
        printf("  %-13s %s\n", build_options[i].name, build_options[i].text[0] ? build_options[i].text : "none");
}

enum { MAX_COUNTS = 12 };

/* Of 1, 2, 4 ... and all threads: each is measured once. */
static int limits_of_all(tool *t, int n_threads, limits *out) {
    int n = 0;
    for (int k = 1; k < n_threads && n < MAX_COUNTS - 1; k *= 2) out[n++] = limits_get(t, k, t->measure);
    out[n++] = limits_get(t, n_threads, t->measure);
    return n;
}

static json_t *limits_json(const limits *all, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        json_t *peaks = json_object(), *bandwidths = json_object();
        for (int k = 0; k < RT_LIMIT_TYPES; k++)
            (void)json_object_set_new(peaks, rt_limit_type_names[k],
                                      all[i].all.peak[k] > 0 ? json_real(all[i].all.peak[k] / 1e9) : json_null());
        for (int k = 0; k < RT_LIMIT_LEVELS; k++)
            (void)json_object_set_new(bandwidths, rt_limit_level_names[k],
                                      all[i].all.bandwidth[k] > 0 ? json_real(all[i].all.bandwidth[k] / 1e9)
                                                                  : json_null());
        (void)json_array_append_new(list, json_pack("{s:i, s:o, s:o}", "threads", all[i].n_threads, "peak_gflops",
                                                    peaks, "bandwidth_gbs", bandwidths));
    }
    return list;
}

static void print_limits(tool *t, const limits *all, int n) {
    report_table table = {.t = t, .columns = 1 + RT_LIMIT_TYPES + RT_LIMIT_LEVELS};
    report_row(&table, "  threads", "f64", "f32", "bf16 dot", "i8 dot", "L1", "L2", "L3", "memory");
    for (int i = 0; i < n; i++) {
        const char *cell[RT_LIMIT_TYPES + RT_LIMIT_LEVELS];
        for (int k = 0; k < RT_LIMIT_TYPES + RT_LIMIT_LEVELS; k++) {
            double v = k < RT_LIMIT_TYPES ? all[i].all.peak[k] : all[i].all.bandwidth[k - RT_LIMIT_TYPES];
            cell[k] = v > 0 ? fu_format(&t->arena, "%.*f", v < 1e10 ? 1 : 0, v / 1e9) : "-";
        }
        report_row(&table, fu_format(&t->arena, "  %d", all[i].n_threads), cell[0], cell[1], cell[2], cell[3], cell[4],
                   cell[5], cell[6], cell[7]);
    }
    printf("measured limits: peak arithmetic in GFLOP/s by type, bandwidth in GB/s by where the data lies\n");
    report_table_print(&table, stdout);
}

/* ---- CUDA ---- */
typedef struct cuda_devices {
    const char *problem; /* NULL: there are some */
    int n;
    rt_device_info *at;
} cuda_devices;

static cuda_devices find_cuda(tool *t) {
    cuda_devices c = {0};
    fu_error e;
    fu_error_clear(&e);
    if (rt_device_count(&e, &c.n) == FUSOR_OK) {
        c.at = FU_NEW_N(&t->arena, rt_device_info, c.n);
        for (int i = 0; i < c.n; i++)
            if (rt_device_describe(&e, i, &c.at[i]) != FUSOR_OK) c.n = i;
    }
    if (e.status != FUSOR_OK) c.problem = fu_strdup(&t->arena, e.text);
    return c;
}

/* "13.0" */
static const char *version_text(tool *t, int version) {
    return fu_format(&t->arena, "%d.%d", version / 1000, version % 1000 / 10);
}

static json_t *cuda_json(tool *t, const cuda_devices *c) {
    json_t *list = json_array();
    char target[IR_TARGET_MAX];
    for (int i = 0; i < c->n; i++) {
        const rt_device_info *d = &c->at[i];
        const char *cc = fu_format(&t->arena, "%d.%d", d->cc / 10, d->cc % 10);
        (void)json_array_append_new(
            list, json_pack("{s:i, s:s, s:s, s:s, s:s?, s:I, s:i, s:I, s:i, s:i, s:i, s:i, s:b}", "ordinal", d->ordinal,
                            "name", d->name, "uuid", d->uuid, "compute_capability", cc, "target",
                            d->target.level == IR_LEVEL_END ? NULL : ir_target_name(d->target, target), "memory_bytes",
                            (json_int_t)d->memory_bytes, "multiprocessors", d->multiprocessors, "l2_bytes",
                            (json_int_t)d->l2_bytes, "shared_bytes", d->shared_bytes, "clock_khz", d->clock_khz,
                            "memory_clock_khz", d->memory_clock_khz, "memory_bus_bits", d->memory_bus_bits,
                            "integrated", d->is_integrated));
    }
    return json_pack("{s:s?, s:s?, s:o}", "driver", c->n ? version_text(t, c->at[0].driver_version) : NULL, "problem",
                     c->problem, "devices", list);
}

static json_t *device_names(tool *t, const cuda_devices *c) {
    json_t *list = json_pack("[s, s]", "cpu", "reference");
    for (int i = 0; i < c->n; i++)
        (void)json_array_append_new(list, json_string(fu_format(&t->arena, "cuda:%d", c->at[i].ordinal)));
    return list;
}

static void print_cuda(tool *t, const cuda_devices *c) {
    char target[IR_TARGET_MAX];
    if (c->problem) printf("CUDA: none (%s)\n", c->problem);
    for (int i = 0; i < c->n; i++) {
        const rt_device_info *d = &c->at[i];
        if (i == 0) printf("CUDA: driver %s\n", version_text(t, d->driver_version));
        printf("  cuda:%d: %s, compute capability %d.%d, %s, %d multiprocessors, L2 %s, target %s\n", d->ordinal,
               d->name, d->cc / 10, d->cc % 10, report_bytes(t, (double)d->memory_bytes), d->multiprocessors,
               report_bytes(t, (double)d->l2_bytes),
               d->target.level == IR_LEVEL_END ? "none (7.0 or newer is needed)" : ir_target_name(d->target, target));
    }
}

int cmd_info(tool *t) {
    if (t->args.n) return tool_usage(t, "argument '%s' was not expected", t->args.at[0]);
    int status = tool_context(t, 0), level = rt_host_level();
    if (status) return status;
    const rt_caches *c = rt_host_caches();
    const fusor_codegen_table *module = NULL;
    fu_error e;
    fu_error_clear(&e);
    const char *problem = rt_module_get(&e, &module) == FUSOR_OK ? NULL : e.text;
    int n_threads = t->ctx->n_threads;
    limits all[MAX_COUNTS];
    const int n_limits = limits_of_all(t, n_threads, all);
    const limits l = all[n_limits - 1];
    const cuda_devices cuda = find_cuda(t);
    const char *level_name = level < 0 ? "none" : ir_levels[level].name, *why = why_level(t, level);
    const char *dir = fusor_cache_directory(t->ctx);
    char target[IR_TARGET_MAX];
    if (level < 0) snprintf(target, sizeof target, "none");
    else ir_target_name((ir_target){(ir_level)level, rt_host_extras((ir_level)level)}, target);
    fu_str features;
    fu_str_init(&features, &t->arena);
    for (int i = 0; i < rt_feature_count(); i++)
        if (rt_host_features() >> i & 1) fu_str_addf(&features, "%s%s", features.n ? " " : "", rt_feature_name(i));
    if (t->json) {
        json_t *d = report_new("fusor-info/1"), *list = json_array(), *env = json_object();
        for (int i = 0; i < rt_feature_count(); i++)
            if (rt_host_features() >> i & 1) (void)json_array_append_new(list, json_string(rt_feature_name(i)));
        for (int i = 0; i < FU_ENV_COUNT; i++)
            (void)json_object_set_new(env, fu_env_table[i].name,
                                      json_pack("{s:s, s:b}", "value", fu_utf8(&t->arena, fu_env_string((fu_env)i)),
                                                "set", fu_env_is_set((fu_env)i)));
        (void)json_object_update_new(
            d, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:{s:I, s:I, s:I, s:i}, s:i, s:i, s:f, s:f, s:s, "
                         "s:s, s:o?, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                         "version", fusor_version_string(), "build_id", rt_build_id(), "llvm", FUSOR_LLVM_VERSION,
                         "cpu", rt_host_brand(), "target", target, "level", level_name, "level_why", why, "features",
                         list, "caches", "l1d_bytes", (json_int_t)c->l1d_bytes, "l2_bytes", (json_int_t)c->l2_bytes,
                         "l3_bytes", (json_int_t)c->l3_bytes, "l3_sharers", c->l3_sharers, "threads", n_threads, "cpus",
                         rt_affinity_count(), "peak_gflops", l.flops / 1e9, "bandwidth_gbs", l.bytes / 1e9, "cache_dir",
                         fu_utf8(&t->arena, dir), "module", fu_utf8(&t->arena, rt_module_path()), "module_problem",
                         problem ? json_string(problem) : NULL, "module_llvm", module ? module->llvm_version : "",
                         "environment", env, "limits", limits_json(all, n_limits), "devices", device_names(t, &cuda),
                         "cuda", cuda_json(t, &cuda), "used_beside", extras_json(level, true), "not_granted",
                         extras_json(level, false), "build_options", build_json()));
        return report_print(t, d);
    }
    printf("fusor %s, build %s\n", fusor_version_string(), rt_build_id());
    printf("CPU: %s\ntarget: %s\nlevel: %s (%s)\n", rt_host_brand(), target, level_name, why);
    printf("used beside the level: %s\nnot granted: %s\nfeatures: %s\n", extras_text(t, level, true),
           extras_text(t, level, false), features.at);
    printf("caches: L1d %s, L2 %s, L3 %s shared by %d thread%s\n", report_bytes(t, (double)c->l1d_bytes),
           report_bytes(t, (double)c->l2_bytes), report_bytes(t, (double)c->l3_bytes), c->l3_sharers,
           c->l3_sharers == 1 ? "" : "s");
    printf("threads: %d (CPUs that this process may use: %d)\n", n_threads, rt_affinity_count());
    print_limits(t, all, n_limits);
    printf("devices: cpu, reference");
    for (int i = 0; i < cuda.n; i++) printf(", cuda:%d", cuda.at[i].ordinal);
    printf("\n");
    print_cuda(t, &cuda);
    if (module) printf("code generation: %s (LLVM %s)\n", rt_module_path(), module->llvm_version);
    else printf("code generation: none; the reference evaluator serves what is not cached (%s)\n", problem);
    print_build();
    printf("cache: %s\n", dir[0] ? dir : "memory only");
    printf("environment:\n");
    report_table table = {.t = t, .columns = 3, .left_mask = 7};
    for (int i = 0; i < FU_ENV_COUNT; i++) {
        const fu_env_info *v = &fu_env_table[i];
        const char *value = fu_env_string((fu_env)i);
        report_row(&table, fu_format(&t->arena, "  %s", v->name),
                   fu_format(&t->arena, "%s%s", value[0] ? value : "\"\"", fu_env_is_set((fu_env)i) ? " (set)" : ""),
                   v->text);
    }
    report_table_print(&table, stdout);
    return 0;
}
