/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cmd_run.c: fusor run. Binds the inputs, compiles, calls; then whichever were asked for: check, timing, files,
 * summary. */
#include "auto.h"
#include "inputs.h"
#include "limits.h"
#include "ref/bounds.h"
#include "report.h"
#include "run.h"
#include "timing.h"
#include "fusor/device.h"
#include "fusor/profile.h"
#include "base/log.h"
#include "base/env.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>

typedef struct run {
    tool *t;
    program program;
    ir_graph *flat; /* the function as written, calls inlined: what --check evaluates */
    inputs in;
    const char **output;   /* path of each result; NULL: none */
    bool *makes_directory; /* of each: -o DIR/ */
    double limit_ulp;      /* --check=ULP; -1: documented bounds */
    bool writes_stdout;
    int (*after)(tool *t, const program *p, const inputs *in);
    char *timeline; /* of --trace: the document of fusor_trace_json */
} run;

/* One compiled function on one set of inputs. */
typedef struct point {
    fusor_executable *exe;
    fusor_buffer *out;
    void **copies; /* of aliased parameters, for timing */
    ref_tensor *expected;
    double **bound;
    ref_comparison *comparison;
    timing time, with_transfers; /* the second on a device: with data that comes from the CPU and goes back */
    double bytes_up, bytes_down;
    traffic traffic;
    int64_t compile_ns, load_ns;
    const char *cache;
    int threads;
    json_t *profile; /* of --profile: the document of fusor_profile_json */
} point;

/* ---- outputs ---- */
static int find_result(const ir_graph *g, const char *name, size_t n) {
    if (n && name[0] == '%') name++, n--;
    for (uint32_t i = 0; i < g->results.n; i++)
        if (strlen(g->results.at[i].name) == n && memcmp(g->results.at[i].name, name, n) == 0) return (int)i;
    return -1;
}

static bool is_directory(const char *path) {
    struct stat st;
    size_t n = strlen(path);
    return (n && path[n - 1] == '/') || (stat(path, &st) == 0 && S_ISDIR(st.st_mode));
}

/* The ending of another format that only reading knows; NULL: none. */
static const char *foreign_ending(const char *path) {
    static const char *const endings[] = {".npz", ".safetensors"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t n = strlen(path), k = strlen(endings[i]);
        if (n >= k && strcasecmp(path + n - k, endings[i]) == 0) return endings[i];
    }
    return NULL;
}

/* What a path names, however it is spelled: a file that is there, or its place in a directory that is. */
static const char *resolve(tool *t, const char *path) {
    const char *slash = strrchr(path, '/');
    if (strcmp(path, "-") == 0) return path;
    char *whole = realpath(path, NULL), *parent = NULL;
    if (!whole)
        parent = realpath(!slash          ? "."
                          : slash == path ? "/"
                                          : fu_strndup(&t->arena, path, (size_t)(slash - path)),
                          NULL);
    const char *out = whole    ? fu_strdup(&t->arena, whole)
                      : parent ? fu_format(&t->arena, "%s/%s", parent, slash ? slash + 1 : path)
                               : path;
    free(whole);
    free(parent);
    return out;
}

static int find_outputs(run *r) {
    tool *t = r->t;
    const ir_graph *g = r->flat;
    r->output = FU_NEW_N(&t->arena, const char *, g->results.n + 1);
    r->makes_directory = FU_NEW_N(&t->arena, bool, g->results.n + 1);
    for (uint32_t k = 0; k < t->outputs.n; k++) {
        const char *o = t->outputs.at[k], *equals = strchr(o, '=');
        int i = equals ? find_result(g, o, (size_t)(equals - o)) : -1;
        if (equals && i < 0 && !is_directory(o)) {
            const char **names = FU_NEW_N(&t->arena, const char *, g->results.n + 1);
            for (uint32_t p = 0; p < g->results.n; p++) names[p] = g->results.at[p].name;
            const char *name = fu_strndup(&t->arena, o, (size_t)(equals - o));
            return tool_usage(t, "-o %s: @%s has no result '%s'%s\n  %s", o, g->name, name,
                              tool_suggest(t, name, names, g->results.n, ""), program_signature(t, g));
        }
        if (i >= 0 && !equals[1]) return tool_usage(t, "-o %s: expected a path or - after '='", o);
        if (i >= 0 && r->output[i])
            return tool_usage(t, "-o %s: result '%s' goes to %s already", o, g->results.at[i].name, r->output[i]);
        if (i >= 0) r->output[i] = equals + 1;
        else if (is_directory(o)) {
            for (uint32_t p = 0; p < g->results.n; p++)
                if (!r->output[p])
                    r->makes_directory[p] = true,
                    r->output[p] = fu_format(&t->arena, "%s%s%s.npy", o, o[strlen(o) - 1] == '/' ? "" : "/",
                                             g->results.at[p].name);
        } else if (g->results.n == 1 && !r->output[0]) r->output[0] = o;
        else return tool_usage(t, "-o %s: expected NAME=path.npy, NAME=- or DIR/", o);
    }
    for (uint32_t i = 0; i < g->results.n; i++) {
        if (!r->output[i]) continue;
        const char *ending = foreign_ending(r->output[i]);
        if (ending)
            return tool_usage(t, "-o %s: results are not written as %s; expected NAME=path.npy, NAME=- or DIR/",
                              r->output[i], ending);
        if (strcmp(r->output[i], "-") == 0 && t->json)
            return tool_usage(t, "-o %s=- and --json both want stdout", g->results.at[i].name);
        const char *resolved = resolve(t, r->output[i]);
        for (uint32_t k = 0; k < i; k++)
            if (r->output[k] && strcmp(resolve(t, r->output[k]), resolved) == 0)
                return tool_usage(t, "results '%s' and '%s' both go to %s", g->results.at[k].name,
                                  g->results.at[i].name, r->output[i]);
        r->writes_stdout |= strcmp(r->output[i], "-") == 0;
    }
    return 0;
}

static int write_outputs(run *r, const point *p) {
    fu_error e;
    for (uint32_t i = 0; i < r->flat->results.n; i++) {
        const char *path = r->output[i];
        if (!path) continue;
        const char *slash = strrchr(path, '/'),
                   *parent = slash && slash > path ? fu_strndup(&r->t->arena, path, (size_t)(slash - path)) : NULL;
        struct stat st;
        if (parent && r->makes_directory[i]) {
            int why = fu_make_dirs(parent, 0777);
            if (why) return tool_environment(r->t, "%s: %s", path, strerror(why));
        } else if (parent && stat(parent, &st) != 0) {
            return tool_environment(r->t,
                                    "%s: there is no directory %s (%s); -o %s/ makes it, and writes every result there",
                                    path, parent, strerror(errno), parent);
        }
        fu_error_clear(&e);
        if (strcmp(path, "-") == 0) (void)fflush(stdout);
        if (rt_data_write_npy(&e, path, &p->out[i]) == FUSOR_OK) continue;
        struct pollfd pipe = {.fd = 1};
        if (strcmp(path, "-") == 0 && poll(&pipe, 1, 0) > 0 && (pipe.revents & POLLERR))
            continue; /* the reader went away */
        return tool_fail(r->t, &e);
    }
    return 0;
}

/* ---- one call ---- */
static int context_error(run *r, fusor_status status) {
    fu_error e;
    fu_error_clear(&e);
    const char *text = fusor_error_message(r->t->ctx);
    (void)FU_FAIL(&e, status, "%s", text[0] ? text : fusor_status_name(status));
    return tool_fail(r->t, &e);
}

/* What looks at the fused kernels, or at compiling, waits for them; so does who asked for a certain use of the
 * cache. */
static start_mode start_of(const run *r) {
    const tool *t = r->t;
    if (t->wait || t->time) return START_NEVER;
    bool looks = t->check || t->trace || t->profile || t->perf || t->ctx->checks || fu_env_bool(FU_FUSOR_GDB) ||
                 strcmp(fu_env_string(FU_FUSOR_PERF), "off") != 0;
    return looks || rt_cache_mode_parse(fu_env_string(FU_FUSOR_CACHE)) != RT_CACHE_RW ? START_IF_ASKED : START_IF_QUICK;
}

static int compile(run *r, point *p) {
    fu_error e;
    fu_error_clear(&e);
    compile_request request = {.ctx = r->t->ctx,
                               .name = r->program.name,
                               .text = r->program.printed,
                               .length = r->program.printed ? strlen(r->program.printed) : 0,
                               .module = r->program.module,
                               .function = r->flat->name,
                               .flags = FUSOR_KEEP_SOURCES | (r->t->no_fuse ? FUSOR_NO_FUSE : 0),
                               .start = start_of(r),
                               .symbol_values = r->in.symbols};
    if (compile_executable(&e, &request, &p->exe) != FUSOR_OK) {
        if (r->t->ctx->option_status == FUSOR_ERROR_ARGUMENT)
            return tool_usage(r->t, "%s", e.text); /* FUSOR_TARGET, FUSOR_THREADS */
        return tool_fail(r->t, &e);
    }
    tool_ran(r->t, p->exe);
    rt_cache_stats s = rt_cache_get_stats(r->t->ctx->cache);
    p->compile_ns = s.compile_ns;
    p->load_ns = s.load_ns;
    p->threads = r->t->ctx->n_threads;
    const ir_plan *plan = rt_exec_plan(p->exe->exec);
    rt_cache_mode mode = rt_cache_mode_parse(fu_env_string(FU_FUSOR_CACHE));
    p->cache = "off"; /* nor does what has no kernels ask for any */
    for (uint32_t i = 0; i < plan->steps.n && mode != RT_CACHE_OFF && rt_cache_dir(r->t->ctx->cache)[0]; i++) {
        if (plan->steps.at[i].kind != IR_STEP_KERNEL) continue;
        const bool is_made = rt_exec_step(p->exe->exec, (int)i)->outcome.source == RT_CACHE_COMPILED;
        if (is_made || strcmp(p->cache, "off") == 0) p->cache = is_made ? "miss" : "hit";
    }
    return 0;
}

static void to_reference(const fusor_buffer *b, ref_tensor *out) {
    out->dtype = (ir_dtype)b->dtype;
    out->rank = b->rank;
    memcpy(out->shape, b->shape, sizeof out->shape);
    out->data = b->data;
}

/* The reference is evaluated first: the call may write over its inputs. */
static int evaluate_reference(run *r, point *p) {
    tool *t = r->t;
    int n = r->in.n, n_out = (int)r->flat->results.n;
    ref_tensor *in = FU_NEW_N(&t->arena, ref_tensor, n + 1);
    fu_error e;
    fu_error_clear(&e);
    p->expected = FU_NEW_N(&t->arena, ref_tensor, n_out + 1);
    p->bound = FU_NEW_N(&t->arena, double *, n_out + 1);
    p->comparison = FU_NEW_N(&t->arena, ref_comparison, n_out + 1);
    for (int i = 0; i < n; i++) to_reference(&r->in.buffer[i], &in[i]);
    const bool is_fast = t->math && strcmp(t->math, "fast") == 0;
    if (ref_eval_bounds(&t->arena, &e, r->flat, is_fast, n, in, n_out, p->expected, p->bound) != FUSOR_OK)
        return tool_fail(t, &e);
    return 0;
}

static void compare(run *r, point *p) {
    for (uint32_t i = 0; i < r->flat->results.n; i++) {
        ref_tensor got;
        to_reference(&p->out[i], &got);
        p->comparison[i] = ref_compare(&got, &p->expected[i], p->bound[i], r->limit_ulp);
    }
}

typedef struct timed {
    run *r;
    fusor_call *call;
    fusor_status status;
} timed;
static bool call_once(void *user) {
    timed *c = user;
    c->status = fusor_call_run(c->call);
    if (c->status == FUSOR_OK && c->r->t->ctx->queue) c->status = fusor_context_wait(c->r->t->ctx);
    return c->status == FUSOR_OK;
}
static int64_t warmup_of(const tool *t) { return t->warmup >= 0 ? t->warmup : 3; }
static bool time_calls(tool *t, timed *c, timing *out) {
    return timing_measure(t, call_once, c, warmup_of(t), t->runs, t->min_time >= 0 ? t->min_time : 0.5, out);
}

/* More calls with the profile on: the figures of --time are not touched by it. */
static bool measure_profile(tool *t, timed *c, point *p) {
    char *text = NULL;
    timing unused;
    bool ok = (c->status = fusor_profile_enable(t->ctx, 1)) == FUSOR_OK;
    for (int64_t i = warmup_of(t); i-- > 0 && ok;) ok = call_once(c);
    ok = ok && (c->status = fusor_profile_enable(t->ctx, 0)) == FUSOR_OK && /* it starts from zero again */
         (c->status = fusor_profile_enable(t->ctx, 1)) == FUSOR_OK &&
         timing_measure(t, call_once, c, 0, t->runs, t->min_time >= 0 ? t->min_time : 0.3, &unused) &&
         (c->status = fusor_profile_enable(t->ctx, 0)) == FUSOR_OK &&
         (c->status = fusor_profile_json(t->ctx, &text)) == FUSOR_OK;
    if (ok) p->profile = json_loads(text, 0, NULL);
    fusor_text_free(text);
    return ok;
}

/* A copy of a buffer in the device's memory. */
static fusor_status copy_there(fusor_context *ctx, const fusor_buffer *b, fusor_buffer *out) {
    *out = *b;
    out->flags = 0;
    out->data = NULL;
    out->device = ctx->device;
    fusor_status status = fusor_buffer_new(ctx, out);
    return status == FUSOR_OK ? fusor_buffer_copy(ctx, b, out) : status;
}

static double bytes_of(const fusor_buffer *b) {
    double bytes = (double)fusor_dtype_size((fusor_dtype)b->dtype);
    for (int d = 0; d < b->rank; d++) bytes *= (double)b->shape[d];
    return bytes;
}

/* The same with everything on the device already: what is left is the kernels' time, and the difference that of the
 * transfers. */
static bool measure_there(run *r, point *p, timed *c, const fusor_buffer *host_in, const fusor_buffer *host_out) {
    tool *t = r->t;
    int n_out = (int)r->flat->results.n;
    fusor_buffer *in = FU_NEW_N(&t->arena, fusor_buffer, r->in.n + 1),
                 *out = FU_NEW_N(&t->arena, fusor_buffer, n_out + 1);
    timed there = {.r = r};
    for (int i = 0; i < r->in.n && c->status == FUSOR_OK; i++) {
        p->bytes_up += bytes_of(&host_in[i]);
        c->status = copy_there(t->ctx, &host_in[i], &in[i]);
    }
    for (int i = 0; i < n_out; i++) {
        p->bytes_down += bytes_of(&host_out[i]);
        out[i] = (fusor_buffer){.device = t->ctx->device};
    }
    if (c->status == FUSOR_OK) c->status = fusor_executable_prepare(p->exe, r->in.n, in, n_out, out, &there.call);
    if (c->status == FUSOR_OK && t->time && !time_calls(t, &there, &p->time)) c->status = there.status;
    if (c->status == FUSOR_OK && t->profile && !measure_profile(t, &there, p)) c->status = there.status;
    fusor_call_free(there.call);
    for (int i = 0; i < n_out; i++)
        if (r->flat->results.at[i].alias < 0) fusor_buffer_free(t->ctx, &out[i]);
    for (int i = 0; i < r->in.n; i++) fusor_buffer_free(t->ctx, &in[i]);
    return c->status == FUSOR_OK;
}

/* Repeated on memory of their own where results are written over parameters: what is reported is the first call's. */
static int measure(run *r, point *p, fusor_buffer *first_in) {
    tool *t = r->t;
    int n_out = (int)r->flat->results.n;
    bool advances = false; /* from call to call */
    fusor_buffer *out = FU_NEW_N(&t->arena, fusor_buffer, n_out + 1);
    timed c = {.r = r};
    for (int i = 0; i < n_out; i++) advances |= r->flat->results.at[i].alias >= 0;
    if (!advances) memcpy(out, p->out, (size_t)n_out * sizeof *out);
    fusor_status status = fusor_executable_prepare(p->exe, r->in.n, first_in, n_out, out, &c.call);
    if (status == FUSOR_OK) {
        bool ok = !t->time || time_calls(t, &c, context_home(t->ctx) ? &p->with_transfers : &p->time);
        if (ok && context_home(t->ctx)) ok = measure_there(r, p, &c, first_in, out);
        else if (ok && t->profile) ok = measure_profile(t, &c, p);
        if (!ok) status = c.status;
    }
    fusor_call_free(c.call);
    for (int i = 0; i < n_out && advances; i++)
        if (r->flat->results.at[i].alias < 0) fusor_buffer_free(t->ctx, &out[i]);
    if (status != FUSOR_OK) timing_note_repeat(t, r->flat);
    if (status != FUSOR_OK) return context_error(r, status);
    p->traffic = timing_traffic(rt_exec_plan(p->exe->exec), r->in.symbols);
    return 0;
}

static int run_point(run *r, point *p) {
    tool *t = r->t;
    int n_out = (int)r->flat->results.n, status;
    p->out = FU_NEW_N(&t->arena, fusor_buffer, n_out + 1);
    p->copies = FU_NEW_N(&t->arena, void *, 2 * r->in.n + 1); /* for the calls that are timed, and for the first one */
    if (t->check && (status = evaluate_reference(r, p)) != 0) return status;
    fusor_buffer *in = FU_NEW_N(&t->arena, fusor_buffer, r->in.n + 1), *first = r->in.buffer;
    const bool repeats = t->time || t->profile;
    if (repeats) { /* the next point of a sweep begins with what this one began with */
        first = FU_NEW_N(&t->arena, fusor_buffer, r->in.n + 1);
        if (!inputs_copy_aliased(&r->in, in, p->copies) || !inputs_copy_aliased(&r->in, first, p->copies + r->in.n))
            return tool_environment(t, "no memory for copies of the inputs");
    }
    fusor_status called = fusor_executable_call(p->exe, r->in.n, first, n_out, p->out);
    if (t->trace && called == FUSOR_OK)
        called = fusor_profile_enable(t->ctx, 0); /* the timeline ends with the first call */
    if (t->trace && called == FUSOR_OK)
        called = fusor_trace_json(t->ctx, &r->timeline); /* now: --profile starts from nothing */
    if (called != FUSOR_OK) return context_error(r, called);
    if (t->check) compare(r, p);
    return repeats ? measure(r, p, in) : 0;
}

static void free_point(run *r, point *p) {
    for (uint32_t i = 0; p->out && i < r->flat->results.n; i++)
        if (r->flat->results.at[i].alias < 0) fusor_buffer_free(r->t->ctx, &p->out[i]);
    for (int i = 0; p->copies && i < 2 * r->in.n; i++) fu_free(p->copies[i]);
    json_decref(p->profile);
    fusor_executable_free(p->exe);
    memset(p, 0, sizeof *p);
}

/* ---- reports ---- */
static bool all_ok(const run *r, const point *p) {
    for (uint32_t i = 0; r->t->check && i < r->flat->results.n; i++)
        if (!p->comparison[i].ok) return false;
    return true;
}

static void json_time(run *r, const point *p, json_t *o) {
    const ir_plan *plan = rt_exec_plan(p->exe->exec);
    char target[IR_TARGET_MAX], device[24];
    (void)json_object_update_new(
        o,
        json_pack("{s:f, s:f, s:f, s:I, s:I, s:I, s:s, s:i, s:I, s:I, s:I, s:i, s:s, s:s}", "median_ns",
                  p->time.median_ns, "min_ns", p->time.min_ns, "p99_ns", p->time.p99_ns, "runs",
                  (json_int_t)p->time.runs, "compile_ns", (json_int_t)p->compile_ns, "load_ns", (json_int_t)p->load_ns,
                  "cache", p->cache, "kernels", p->traffic.kernels, "bytes_read", (json_int_t)p->traffic.bytes_read,
                  "bytes_written", (json_int_t)p->traffic.bytes_written, "flops", (json_int_t)p->traffic.flops,
                  "threads", p->threads, "device", context_device_name(r->t->ctx, device), "target",
                  ir_target_name((ir_target){plan->options.level, plan->options.features}, target)));
    (void)json_object_set_new(o, "samples", json_integer(p->time.samples));
    (void)json_object_set_new(o, "calls_per_sample", json_integer(p->time.batch));
    if (p->exe->choice) {
        char text[300];
        auto_last_text(p->exe, text, sizeof text);
        (void)json_object_set_new(o, "auto", json_string(text));
    }
    if (!context_home(r->t->ctx)) return;
    double ns = p->with_transfers.median_ns - p->time.median_ns;
    (void)json_object_set_new(o, "transfers",
                              json_pack("{s:f, s:f, s:I, s:I}", "median_ns", ns > 0 ? ns : 0.0, "call_ns",
                                        p->with_transfers.median_ns, "bytes_up", (json_int_t)p->bytes_up, "bytes_down",
                                        (json_int_t)p->bytes_down));
}

static json_t *json_point(run *r, const point *p, bool with_results) {
    tool *t = r->t;
    json_t *o = json_object(), *a = json_array();
    for (uint32_t i = 0; with_results && i < r->flat->results.n; i++) {
        const fusor_buffer *b = &p->out[i];
        report_summary s = report_summarize(b);
        bool any = s.n > s.n_nan;
        (void)json_array_append_new(
            a, json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:I}", "name", r->flat->results.at[i].name, "dtype",
                         fusor_dtype_name((fusor_dtype)b->dtype), "shape", report_shape(b->rank, b->shape), "min",
                         any ? report_element((ir_dtype)b->dtype, s.least) : json_null(), "max",
                         any ? report_element((ir_dtype)b->dtype, s.most) : json_null(), "mean",
                         any ? report_real(s.mean) : json_null(), "nan", (json_int_t)s.n_nan));
    }
    if (with_results) (void)json_object_set_new(o, "results", a);
    else json_decref(a);
    if (t->check) {
        a = json_array();
        for (uint32_t i = 0; i < r->flat->results.n; i++) {
            const ref_comparison *c = &p->comparison[i];
            (void)json_array_append_new(a, json_pack("{s:s, s:o, s:o, s:b, s:I, s:o, s:o}", "name",
                                                     r->flat->results.at[i].name, "max_ulp", report_real(c->max_ulp),
                                                     "bound", report_real(c->bound_ulp), "ok", c->ok, "at",
                                                     (json_int_t)c->at, "at_ulp", report_real(c->at_ulp), "at_bound",
                                                     report_real(c->at_bound_ulp)));
        }
        (void)json_object_set_new(o, "check", a);
    }
    if (with_results) (void)json_object_set_new(o, "started", json_string(p->exe->job ? "unfused" : "fused"));
    if (t->time) json_time(r, p, o);
    if (p->profile) (void)json_object_set(o, "profile", json_object_get(p->profile, "kernels"));
    return o;
}

/* " at [1, 2]": the place of an element; "" for a scalar and an empty tensor. */
static const char *element_text(tool *t, const fusor_buffer *b, int64_t at) {
    int64_t index[FUSOR_MAX_RANK];
    fu_str s;
    if (at < 0 || !b->rank) return "";
    for (int d = b->rank; d-- > 0; at /= b->shape[d]) index[d] = at % b->shape[d];
    fu_str_init(&s, &t->arena);
    for (int d = 0; d < b->rank; d++) fu_str_addf(&s, "%s%" PRId64, d ? ", " : " at [", index[d]);
    fu_str_addc(&s, ']');
    return s.at;
}

static void print_check(run *r, const point *p, FILE *out) {
    for (uint32_t i = 0; i < r->flat->results.n; i++) {
        const ref_comparison *c = &p->comparison[i];
        const bool is_exact = c->max_ulp == 0;
        fprintf(out, "check %%%s: error %.3g ULP%s, bound %.3g ULP: %s", r->flat->results.at[i].name, c->at_ulp,
                is_exact ? "" : element_text(r->t, &p->out[i], c->at), is_exact ? c->bound_ulp : c->at_bound_ulp,
                c->ok ? "ok" : "ABOVE THE BOUND");
        if (c->max_ulp > c->at_ulp)
            fprintf(out, " (the largest error, %.3g ULP, is farther from its bound)", c->max_ulp);
        fputc('\n', out);
    }
}

static void print_time(run *r, const point *p, FILE *out) {
    tool *t = r->t;
    double seconds = p->time.median_ns * 1e-9, bytes = (p->traffic.bytes_read + p->traffic.bytes_written) / seconds,
           flops = p->traffic.flops / seconds;
    limits l = limits_get(t, p->threads, false);
    if (p->traffic.is_f32) limits_beside(t, &l, flops);
    fprintf(out, "time: median %s, min %s, p99 %s over %" PRId64 " %s\n", report_ns(t, p->time.median_ns),
            report_ns(t, p->time.min_ns), report_ns(t, p->time.p99_ns), p->time.samples,
            p->time.batch == 1 ? "calls"
                               : fu_format(&t->arena, "samples, each the mean of %" PRId64 " calls", p->time.batch));
    fprintf(out, "rate: %s, %s; %s\n", report_rate(t, bytes, "GB/s"), report_rate(t, flops, "GFLOP/s"),
            limits_share(t, &l, p->traffic.type, bytes, flops));
    char device[24];
    if (p->exe->choice) {
        char text[300];
        auto_last_text(p->exe, text, sizeof text);
        fprintf(out, "auto: %s\n", text);
    } else if (t->ctx->auto_why[0]) {
        fprintf(out, "auto: the CPU: %s\n", t->ctx->auto_why);
    } else if (t->ctx->device) {
        double ns = p->with_transfers.median_ns - p->time.median_ns;
        fprintf(out, "device: %s; times are of data that is there. From the CPU and back: %s more, %s up, %s down\n",
                context_device_name(t->ctx, device), report_ns(t, ns > 0 ? ns : 0), report_bytes(t, p->bytes_up),
                report_bytes(t, p->bytes_down));
    }
    fprintf(out, "cost: compile %s, load %s, cache %s; %d kernel%s, %s read, %s written, %d thread%s\n",
            report_ns(t, (double)p->compile_ns), report_ns(t, (double)p->load_ns), p->cache, p->traffic.kernels,
            p->traffic.kernels == 1 ? "" : "s", report_bytes(t, p->traffic.bytes_read),
            report_bytes(t, p->traffic.bytes_written), p->threads, p->threads == 1 ? "" : "s");
}

static void print_results(run *r, const point *p) {
    for (uint32_t i = 0; i < r->flat->results.n; i++) {
        const fusor_buffer *b = &p->out[i];
        report_summary s = report_summarize(b);
        printf("%%%s: %s", r->flat->results.at[i].name, report_shape_text(r->t, (ir_dtype)b->dtype, b->rank, b->shape));
        if (s.n > s.n_nan) printf("  min %.6g  max %.6g  mean %.6g", s.min, s.max, s.mean);
        printf("  nan %" PRId64 "\n", s.n_nan);
        report_tensor(r->t, stdout, b);
    }
}

/* ---- --profile ---- */
static void print_profile(run *r, const point *p, FILE *out) {
    tool *t = r->t;
    const json_t *d = p->profile, *pool = json_object_get(d, "pool"), *cache = json_object_get(d, "cache");
    json_t *k;
    size_t i;
    report_table table = {.t = t, .columns = 11, .left_mask = 1u << 1 | 1u << 2 | 1u << 9 | 1u << 10};
    report_row(&table, "kernel", "kind", "operators", "calls", "median", "min", "share", "GB/s", "GFLOP/s", "limit",
               "from");
    bool is_above = false;
    json_array_foreach(json_object_get(d, "kernels"), i, k) {
        is_above |= json_number_value(json_object_get(k, "limit_share")) > 1.005;
        const char *limit = json_string_value(json_object_get(k, "limit")),
                   *names = json_string_value(json_object_get(k, "names")),
                   *places = json_string_value(json_object_get(k, "places"));
        report_row(&table, fu_format(&t->arena, "%d", (int)json_integer_value(json_object_get(k, "step"))),
                   json_string_value(json_object_get(k, "kind")), json_string_value(json_object_get(k, "ops")),
                   fu_format(&t->arena, "%lld", (long long)json_integer_value(json_object_get(k, "calls"))),
                   report_ns(t, json_number_value(json_object_get(k, "median_ns"))),
                   report_ns(t, json_number_value(json_object_get(k, "min_ns"))),
                   fu_format(&t->arena, "%.1f %%", 100 * json_number_value(json_object_get(k, "share"))),
                   report_rate(t, json_number_value(json_object_get(k, "gb_s")) * 1e9, ""),
                   report_rate(t, json_number_value(json_object_get(k, "gflop_s")) * 1e9, ""),
                   limit[0] ? fu_format(&t->arena, "%s %.0f %%", limit,
                                        100 * json_number_value(json_object_get(k, "limit_share")))
                            : "",
                   names[0] ? names : places);
    }
    report_table_print(&table, out);
    if (is_above)
        fputs("a limit above 100 %: parts of the data came from a cache nearer than the one named, or the limits were "
              "measured at a "
              "busier moment (fusor info --measure)\n",
              out);
    fprintf(out, "memory: %lld blocks taken from the pool, %lld of them used before, %s asked of the system\n",
            (long long)json_integer_value(json_object_get(pool, "gets")),
            (long long)json_integer_value(json_object_get(pool, "reused")),
            report_bytes(t, json_number_value(json_object_get(pool, "system_bytes"))));
    fprintf(out, "cache: %lld kernels from memory, %lld from disk, %lld compiled\n",
            (long long)json_integer_value(json_object_get(cache, "memory_hits")),
            (long long)json_integer_value(json_object_get(cache, "disk_hits")),
            (long long)json_integer_value(json_object_get(cache, "compiles")));
    json_array_foreach(json_object_get(d, "bottleneck"), i, k)
        fprintf(out, "bottleneck: %s\n", report_shown(t, json_string_value(k)));
}

/* The parse happened before there was a context that could keep events. */
static json_t *parse_event(const run *r, const json_t *events) {
    double first = 0;
    size_t i;
    json_t *x;
    json_array_foreach((json_t *)events, i, x) {
        const json_t *ts = json_object_get(x, "ts");
        if (ts && json_number_value(ts) < first) first = json_number_value(ts);
    }
    const double took = (double)r->program.parse_ns / 1e3;
    return json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:i}", "name", "parse", "cat", "plan", "ph", "X", "ts",
                     first - took, "dur", took, "pid", 1, "tid", 1);
}

/* What happened when, on which thread: Chrome trace events. */
static int write_trace(run *r) {
    json_t *d = json_loads(r->timeline, 0, NULL), *events = json_object_get(d, "traceEvents");
    (void)json_array_append_new(events, parse_event(r, events));
    char *text = d ? json_dumps(d, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(d);
    if (!text) return tool_environment(r->t, "out of memory");
    fu_part part = {text, strlen(text)};
    int why = fu_file_write(r->t->trace, &part, 1);
    free(text);
    return why ? tool_environment(r->t, "%s: %s", r->t->trace, strerror(why)) : 0;
}

/* ---- one run, or a sweep ---- */
static int run_single(run *r) {
    tool *t = r->t;
    point p = {0};
    int status = tool_context(t, 0);
    fusor_status traced = !status && t->trace ? fusor_profile_enable(t->ctx, FUSOR_PROFILE_EVENTS) : FUSOR_OK;
    if (traced != FUSOR_OK) status = context_error(r, traced);
    if (!status) status = compile(r, &p);
    if (!status) status = run_point(r, &p);
    if (!status && t->trace) status = write_trace(r);
    if (!status) status = write_outputs(r, &p);
    if (!status && t->json) {
        json_t *document = report_new("fusor-run/1");
        json_t *fields = json_point(r, &p, true);
        (void)json_object_update_new(document, fields);
        status = report_print(t, document);
    } else if (!status) {
        FILE *out = r->writes_stdout ? stderr : stdout;
        if (t->outputs.n == 0 && !t->quiet) print_results(r, &p);
        if (t->check && (!t->quiet || !all_ok(r, &p))) print_check(r, &p, out);
        if (t->time) print_time(r, &p, out);
        if (p.profile) print_profile(r, &p, out);
    }
    if (!status && r->after) status = r->after(t, &r->program, &r->in);
    if (!status && !all_ok(r, &p)) status = EXIT_NO;
    fusor_text_free(r->timeline);
    free_point(r, &p);
    return status;
}

static const char *dims_text(run *r) {
    fu_str s;
    fu_str_init(&s, &r->t->arena);
    for (uint32_t k = 0; k < r->in.dims.n; k++)
        fu_str_addf(&s, "%s%s=%" PRId64, k ? " " : "", ir_size_symbol_name(r->flat->sizes, r->in.dims.at[k].symbol),
                    r->in.symbols[r->in.dims.at[k].symbol]);
    return s.at;
}

static int run_sweep(run *r) {
    tool *t = r->t;
    json_t *points = json_array();
    report_table table = {.t = t, .columns = 8};
    report_row(&table, "sizes", "threads", "median", "min", "p99", "GB/s", "GFLOP/s", t->check ? "check" : "");
    int *choice = FU_NEW_N(&t->arena, int, r->in.dims.n + 1);
    const int n_thread_counts = t->n_thread_counts ? t->n_thread_counts : 1; /* 0: as ever */
    bool is_ok = true, more = true;
    int status = 0;
    int64_t most_batch = 1;
    t->time = true;
    while (more && !status) {
        for (int k = 0; k < n_thread_counts && !status; k++) {
            point p = {0};
            status = inputs_bind(t, &r->in, choice);
            if (!status) status = tool_context(t, t->thread_counts[k]);
            if (!status) status = compile(r, &p);
            if (!status) status = run_point(r, &p);
            if (!status) {
                json_t *o = json_point(r, &p, false);
                (void)json_object_set_new(o, "dims", report_dims(r->flat->sizes, r->in.symbols));
                (void)json_object_set_new(o, "threads", json_integer(p.threads));
                (void)json_array_append_new(points, o);
                if (p.time.batch > most_batch) most_batch = p.time.batch;
                double s = p.time.median_ns * 1e-9;
                report_row(&table, dims_text(r), fu_format(&t->arena, "%d", p.threads), report_ns(t, p.time.median_ns),
                           report_ns(t, p.time.min_ns), report_ns(t, p.time.p99_ns),
                           report_rate(t, (p.traffic.bytes_read + p.traffic.bytes_written) / s, ""),
                           report_rate(t, p.traffic.flops / s, ""),
                           !t->check       ? ""
                           : all_ok(r, &p) ? "ok"
                                           : "ABOVE");
                is_ok &= all_ok(r, &p);
            }
            free_point(r, &p);
        }
        more = false;
        for (uint32_t k = r->in.dims.n; k-- > 0 && !more;) {
            if (++choice[k] < r->in.dims.at[k].n) more = true;
            else choice[k] = 0;
        }
    }
    if (!status && t->json) {
        json_t *document = report_new("fusor-run/1");
        (void)json_object_set(document, "points", points);
        status = report_print(t, document);
    } else if (!status) {
        report_table_print(&table, stdout);
        if (most_batch > 1 && !t->quiet)
            printf("the times of short calls are of samples, each the mean of %" PRId64 " calls at most\n", most_batch);
    }
    json_decref(points);
    return status ? status : is_ok ? 0 : EXIT_NO;
}

int run_program(tool *t, const program *p, uint32_t used, int (*after)(tool *t, const program *p, const inputs *in)) {
    run r = {.t = t, .program = *p, .limit_ulp = -1, .after = after};
    char *end;
    if (t->check && t->check[0] && (!((r.limit_ulp = strtod(t->check, &end)) >= 0) || *end || end == t->check))
        return tool_usage(t, "--check=%s: expected a number of ULP from 0 up", t->check);
    int status = program_function(t, &r.program, used, NULL, &r.flat);
    if (!status) status = inputs_find(t, &r.program, r.flat, used, &r.in);
    if (!status) status = find_outputs(&r);
    if (!status) status = tool_no_stdout(t, "--trace", t->trace);
    if (status) return status;
    bool is_sweep = t->n_thread_counts > 1;
    for (uint32_t k = 0; k < r.in.dims.n; k++) is_sweep |= r.in.dims.at[k].n > 1;
    if (is_sweep && t->outputs.n)
        return tool_usage(t, "-o: a sweep over several sizes or thread counts writes no results");
    if (is_sweep && t->trace) return tool_usage(t, "--trace: not with a sweep");
    if (is_sweep && t->profile) return tool_usage(t, "--profile: not with a sweep; give one size and thread count");
    const char *unused = t->runs >= 0 ? "--runs" : t->warmup >= 0 ? "--warmup" : t->min_time >= 0 ? "--min-time" : NULL;
    if (unused && !is_sweep && !t->time && !t->profile)
        tool_note(t, "%s counts for nothing here; it is for --time, --profile or a sweep", unused);
    if (is_sweep) status = run_sweep(&r);
    else {
        status = inputs_bind(t, &r.in, NULL);
        if (!status) status = run_single(&r);
    }
    inputs_free(&r.in);
    return status;
}

int cmd_run(tool *t) {
    program p;
    uint32_t used;
    int status = program_load(t, &p, &used);
    return status ? status : run_program(t, &p, used, NULL);
}
