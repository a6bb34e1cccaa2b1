/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* auto.c: the CPU or the GPU, call by call. An executable of a context with device "auto" has the CPU's side from the
 * start and the GPU's from when it is first chosen. A call looks up its shapes and where its buffers are; what it takes
 * is timed, where more has to be known, and told to the context's histories. Buffers that are on the device are brought
 * to the CPU for a call there, and back. */
#include "base/small.h"
#include "auto.h"
#include "memory.h"
#include "start.h"
#include "base/hash.h"
#include "rt/buffer.h"
#include "rt/device.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>

enum { KNOWN = 16, MEASURED_OFTEN = 64 };
#define ASK_ABOVE_BYTES 6.4e7 /* calls of less do not ask the driver again what is free */
#define SHARE_OF_FREE   0.9

/* Calls of the same shapes, with buffers in the same places. */
typedef struct known {
    uint64_t hash, key; /* hash 0: none */
    double model_ns[RT_SIDES];
    uint32_t calls;
} known;

struct auto_choice {
    pthread_mutex_t lock;
    rt_exec *gpu;
    bool is_failed; /* it cannot be had */
    char why[200];
    known known[KNOWN];
    uint32_t next;
    rt_select_choice last;
    bool has_last;
};

auto_choice *auto_new(rt_exec *gpu) {
    auto_choice *a = fu_calloc(1, sizeof *a);
    if (!a) {
        rt_exec_release(gpu);
        return NULL;
    }
    pthread_mutex_init(&a->lock, NULL);
    a->gpu = gpu;
    return a;
}

void auto_free(auto_choice *a) {
    if (!a) return;
    rt_exec_release(a->gpu);
    pthread_mutex_destroy(&a->lock);
    fu_free(a);
}

/* ---- the GPU's side ---- */
rt_exec *auto_gpu(fusor_executable *exe, fu_error *why) {
    auto_choice *a = exe->choice;
    pthread_mutex_lock(&a->lock);
    if (!a->gpu && !a->is_failed) {
        fu_error *e = fu_calloc(1, sizeof *e);
        if (!e || compile_for_gpu(exe->ctx, e, exe->exec, &a->gpu) != FUSOR_OK) {
            a->is_failed = true;
            snprintf(a->why, sizeof a->why, "%.199s", e ? e->text : "out of memory");
            fu_log_event(&exe->ctx->log, "dispatch", "@%s,auto,cpu,%s", rt_exec_plan(exe->exec)->graph->name, a->why);
        }
        fu_free(e);
    }
    rt_exec *gpu = a->gpu;
    pthread_mutex_unlock(&a->lock);
    if (!gpu && why) (void)FU_FAIL(why, FUSOR_ERROR_DEVICE, "cuda:%d: %s", exe->ctx->device - 1, a->why);
    return gpu;
}

/* ---- the bus ---- */
enum { PROBE_BYTES = 1 << 20, PROBES = 3 };
static double rate_of(rt_queue *q, fu_error *e, rt_address at, void *host, bool is_up) {
    double best = 0;
    for (int i = 0; i < PROBES; i++) {
        const int64_t begin = fu_now_ns();
        fusor_status s =
            is_up ? rt_queue_upload(q, e, at, host, PROBE_BYTES) : rt_queue_download(q, e, host, at, PROBE_BYTES);
        if (s != FUSOR_OK || rt_queue_wait(q, e) != FUSOR_OK) return 0;
        best = fmax(best, 1e9 * PROBE_BYTES / (double)(fu_now_ns() - begin + 1));
    }
    return best;
}

const rt_select_gpu *auto_gpu_of(fusor_context *ctx) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    rt_select_gpu *g = &ctx->select_gpu;
    if (!ctx->queue) return NULL;
    pthread_mutex_lock(&lock);
    if (!ctx->has_select_gpu) {
        fu_error *e = fu_calloc(1, sizeof *e);
        void *host = rt_memory_get(NULL, PROBE_BYTES);
        rt_address at = 0;
        g->limits = rt_limits_of_device(rt_device_get_info(rt_queue_device(ctx->queue)));
        if (e && host && rt_queue_get(ctx->queue, e, PROBE_BYTES, &at) == FUSOR_OK) {
            memset(host, 0, PROBE_BYTES);
            g->up_bytes_per_s = rate_of(ctx->queue, e, at, host, true);
            g->down_bytes_per_s = rate_of(ctx->queue, e, at, host, false);
        }
        rt_queue_put(ctx->queue, at);
        rt_memory_put(NULL, host, PROBE_BYTES);
        fu_free(e);
        ctx->has_select_gpu = true;
    }
    pthread_mutex_unlock(&lock);
    return g;
}

/* ---- one call's choice ---- */
static double bytes_of(const fusor_buffer *b) {
    double bytes = (double)fusor_dtype_size((fusor_dtype)b->dtype);
    for (int d = 0; d < b->rank; d++) bytes *= (double)b->shape[d];
    return bytes;
}

static uint64_t hash_call(int n_in, const fusor_buffer *in, int n_out, const fusor_buffer *out) {
    uint64_t h = (uint64_t)n_in;
    for (int i = 0; i < n_in; i++) {
        const int rank = in[i].rank < 0 || in[i].rank > FUSOR_MAX_RANK ? 0 : in[i].rank;
        h = fu_hash(in[i].shape, (size_t)rank * sizeof *in[i].shape,
                    h + (uint64_t)(in[i].device != 0) + 2 * (uint64_t)rank);
    }
    for (int r = 0; r < n_out; r++) h = h * 31 + (uint64_t)(out[r].device != 0);
    return h ? h : 1;
}

static double free_bytes(const fusor_context *ctx, fu_error *e) {
    int64_t n = 0;
    return rt_device_free_bytes(rt_queue_device(ctx->queue), e, &n) == FUSOR_OK ? (double)n : 0;
}

static bool are_given(int n_in, const fusor_buffer *in, int n_out, const fusor_buffer *out) {
    return n_in >= 0 && n_out >= 0 && (!n_in || in) && (!n_out || out);
}

static bool has_device(int n, const fusor_buffer *b) {
    for (int i = 0; i < n && b; i++)
        if (b[i].device) return true;
    return false;
}

bool auto_costs_of(fusor_executable *exe, int n_in, const fusor_buffer *in, int n_out, fusor_buffer *outputs,
                   auto_costs *out) {
    const ir_plan *p = rt_exec_plan(exe->exec);
    const uint32_t n_symbols = ir_size_symbol_count(p->graph->sizes);
    const rt_select_gpu *gpu = auto_gpu_of(exe->ctx);
    int64_t few[16], *symbols = n_symbols <= 16 ? few : fu_malloc(n_symbols * sizeof *symbols);
    fusor_buffer *plain = fu_malloc((size_t)(n_in + 1) * sizeof *plain);
    fu_error *e = fu_calloc(1, sizeof *e);
    bool ok = symbols && plain && e && gpu;
    for (int i = 0; i < n_in && ok; i++) {
        plain[i] = in[i];
        plain[i].device = 0;
    }
    if (outputs) memset(outputs, 0, (size_t)n_out * sizeof *outputs);
    ok = ok && (!outputs || rt_exec_infer(exe->exec, e, n_in, plain, n_out, outputs) == FUSOR_OK) &&
         rt_exec_symbols(exe->exec, e, n_in, plain, symbols) == FUSOR_OK;
    if (ok) {
        const int64_t peak = rt_exec_peak_bytes(exe->exec, symbols);
        *out = (auto_costs){.key = rt_select_key(exe->program, symbols, n_symbols, 0, 0),
                            .temp_bytes = peak > 0 ? (double)peak : 0,
                            .free_bytes = free_bytes(exe->ctx, e)};
        out->ns[RT_SIDE_CPU] = rt_select_cpu_ns(p, symbols, exe->ctx->n_threads);
        out->ns[RT_SIDE_GPU] = rt_select_gpu_ns(gpu, p, symbols, 0, 0);
    }
    if (symbols != few) fu_free(symbols);
    fu_free(plain);
    fu_free(e);
    return ok;
}

bool auto_fits(const fusor_context *ctx, const auto_costs *c, double bytes) {
    double is_free = c->free_bytes;
    bytes += c->temp_bytes;
    if (bytes > ASK_ABOVE_BYTES) {
        fu_error *e = fu_calloc(1, sizeof *e);
        is_free = e ? free_bytes(ctx, e) : 0;
        fu_free(e);
    }
    return bytes <= SHARE_OF_FREE * is_free;
}

/* Fills in what the model says; false: nothing can be said (the call is wrong, and the CPU's side will say how). */
static bool look(fusor_executable *exe, int n_in, const fusor_buffer *in, int n_out, const fusor_buffer *out,
                 known *k) {
    const ir_graph *g = rt_exec_plan(exe->exec)->graph;
    const rt_select_gpu *gpu = auto_gpu_of(exe->ctx);
    fusor_buffer *shapes = fu_malloc((size_t)(n_out + 1) * sizeof *shapes);
    auto_costs costs;
    double up = 0, down = 0, here = 0, back = 0; /* there and back with the GPU, and with the CPU */
    const bool ok = shapes && auto_costs_of(exe, n_in, in, n_out, shapes, &costs);
    for (int i = 0; i < n_in && ok; i++) *(in[i].device ? &here : &up) += bytes_of(&in[i]);
    for (int r = 0; r < n_out && ok; r++) {
        const bool is_there = out[r].device || (g->results.at[r].alias >= 0 && has_device(n_in, in));
        *(is_there ? &back : &down) += bytes_of(&shapes[r]);
    }
    if (ok) {
        k->model_ns[RT_SIDE_CPU] = costs.ns[RT_SIDE_CPU] + rt_select_move_ns(gpu, back, here);
        k->model_ns[RT_SIDE_GPU] = auto_fits(exe->ctx, &costs, up + down + here + back)
                                       ? costs.ns[RT_SIDE_GPU] + rt_select_move_ns(gpu, up, down)
                                       : INFINITY;
        k->key = rt_select_key(costs.key, NULL, 0, up, down);
    }
    fu_free(shapes);
    return ok;
}

static bool choose(fusor_executable *exe, int n_in, const fusor_buffer *in, int n_out, const fusor_buffer *out,
                   rt_select_choice *c, uint64_t *key, bool *is_timed) {
    auto_choice *a = exe->choice;
    if (!are_given(n_in, in, n_out, out) || n_in != rt_exec_n_inputs(exe->exec) ||
        n_out != (int)rt_exec_plan(exe->exec)->graph->results.n)
        return false;
    const uint64_t hash = hash_call(n_in, in, n_out, out);
    known k = {0};
    pthread_mutex_lock(&a->lock);
    for (int i = 0; i < KNOWN && !k.hash; i++)
        if (a->known[i].hash == hash) a->known[i].calls++, k = a->known[i];
    if (k.hash && a->is_failed) k.model_ns[RT_SIDE_GPU] = INFINITY;
    pthread_mutex_unlock(&a->lock);
    if (!k.hash) {
        if (!look(exe, n_in, in, n_out, out, &k)) return false;
        k.hash = hash;
        pthread_mutex_lock(&a->lock);
        a->known[a->next++ % KNOWN] = k;
        pthread_mutex_unlock(&a->lock);
    }
    *c = rt_select_ask(exe->ctx->select, k.key, k.model_ns, NULL);
    *key = k.key;
    *is_timed = c->is_trial || !c->is_measured[c->side] || k.calls % MEASURED_OFTEN == 0;
    pthread_mutex_lock(&a->lock);
    const bool is_news = !a->has_last || a->last.side != c->side;
    a->last = *c;
    a->has_last = true;
    pthread_mutex_unlock(&a->lock);
    if (is_news && fu_log_on("dispatch"))
        fu_log_event(&exe->ctx->log, "dispatch", "@%s,auto,%s,%s,cpu %.0f ns %s,gpu %.0f ns %s",
                     rt_exec_plan(exe->exec)->graph->name, c->side == RT_SIDE_GPU ? "gpu" : "cpu",
                     c->is_trial ? "trial" : "faster", c->expected_ns[RT_SIDE_CPU],
                     c->is_measured[RT_SIDE_CPU] ? "measured" : "estimated", c->expected_ns[RT_SIDE_GPU],
                     c->is_measured[RT_SIDE_GPU] ? "measured" : "estimated");
    return true;
}

/* ---- a call on the CPU whose buffers are on the device ---- */
static void drop_copies(fusor_context *ctx, int n, const fusor_buffer *given, const fusor_buffer *copy) {
    for (int i = 0; i < n; i++)
        if (given[i].device && copy[i].data) memory_put(ctx, &copy[i]);
}

/* sent: what out becomes. */
static fusor_status send_results(fusor_executable *exe, fu_error *e, const fusor_buffer *in,
                                 const fusor_buffer *host_in, int n_out, const fusor_buffer *out,
                                 const fusor_buffer *host_out, const int *alias, fusor_buffer *sent) {
    fusor_context *ctx = exe->ctx;
    for (int r = 0; r < n_out; r++) {
        const bool is_alias = alias[r] >= 0 && in[alias[r]].device;
        fusor_buffer *to = &sent[r];
        *to = is_alias ? in[alias[r]] : out[r].device ? out[r] : host_out[r];
        if (is_alias) FU_TRY(memory_copy(ctx, e, &host_in[alias[r]], to));
        if (is_alias || !out[r].device) continue;
        if (!to->data) {
            *to = host_out[r];
            to->data = NULL;
            to->flags = 0;
            to->device = out[r].device;
            FU_TRY(memory_get(ctx, e, to));
        }
        FU_TRY(memory_copy(ctx, e, &host_out[r], to));
    }
    return FUSOR_OK;
}

fusor_status auto_call_here(fusor_executable *exe, fu_error *e, int n_in, const fusor_buffer *in, int n_out,
                            fusor_buffer *out) {
    fusor_context *ctx = exe->ctx;
    if (!are_given(n_in, in, n_out, out) || (!has_device(n_in, in) && !has_device(n_out, out))) /* with its message */
        return rt_exec_call(start_exec(exe), e, n_in, in, n_out, out);
    fusor_buffer *host = fu_calloc((size_t)n_in + 2 * (size_t)n_out + 1, sizeof *host),
                 *host_out = host ? host + n_in : NULL, *sent = host ? host_out + n_out : NULL;
    int *alias = fu_malloc((size_t)(n_out + 1) * sizeof *alias);
    fusor_argument_info *info = fu_calloc((size_t)n_out + 1, sizeof *info);
    fusor_status status = host && alias && info ? FUSOR_OK : FU_FAIL(e, FUSOR_ERROR_MEMORY, "out of memory");
    if (status == FUSOR_OK) (void)fusor_executable_outputs(exe, n_out, info);
    for (int i = 0; i < n_in && status == FUSOR_OK; i++) {
        host[i] = in[i];
        if (!in[i].device) continue;
        host[i].data = NULL;
        host[i].device = 0;
        host[i].flags = in[i].flags & FUSOR_READONLY;
        status = memory_check_device(e, "input", ctx, in[i].device);
        if (status == FUSOR_OK) status = memory_get(ctx, e, &host[i]);
        if (status == FUSOR_OK) status = memory_copy(ctx, e, &in[i], &host[i]);
    }
    for (int r = 0; r < n_out && status == FUSOR_OK; r++) {
        alias[r] = info[r].alias;
        if (!out[r].device) host_out[r] = out[r];
    }
    if (status == FUSOR_OK) status = rt_exec_call(start_exec(exe), e, n_in, host, n_out, host_out);
    const bool is_done = status == FUSOR_OK;
    if (is_done) status = send_results(exe, e, in, host, n_out, out, host_out, alias, sent);
    for (int r = 0; r < n_out && is_done; r++) { /* all of them, or what was made goes */
        const bool is_ours = alias[r] < 0 && !out[r].data;
        if (status == FUSOR_OK) out[r] = sent[r];
        else if (is_ours && !out[r].device) memory_put(ctx, &host_out[r]);
        else if (is_ours && sent[r].data) memory_put(ctx, &sent[r]);
    }
    for (int r = 0; r < n_out && host_out && alias && info; r++) /* a result's own memory, once it is there */
        if (out[r].device && host_out[r].data && alias[r] < 0) memory_put(ctx, &host_out[r]);
    if (host) drop_copies(ctx, n_in, in, host);
    fu_free(host);
    fu_free(alias);
    fu_free(info);
    return status;
}

/* ---- entry points ---- */
fusor_status auto_call(fusor_executable *exe, fu_error *e, int n_in, const fusor_buffer *in, int n_out,
                       fusor_buffer *out) {
    rt_select_choice c = {.side = RT_SIDE_CPU};
    uint64_t key = 0;
    bool is_timed = false, is_chosen = choose(exe, n_in, in, n_out, out, &c, &key, &is_timed);
    rt_exec *gpu = is_chosen && c.side == RT_SIDE_GPU ? auto_gpu(exe, NULL) : NULL;
    if (!gpu) c.side = RT_SIDE_CPU;
    if (is_timed && exe->ctx->queue)
        FU_TRY(rt_queue_wait(exe->ctx->queue, e)); /* for earlier work, not to be counted */
    const int64_t begin = is_timed ? fu_now_ns() : 0;
    fusor_status status =
        gpu ? rt_exec_call(gpu, e, n_in, in, n_out, out) : auto_call_here(exe, e, n_in, in, n_out, out);
    if (gpu && is_timed && status == FUSOR_OK) status = rt_queue_wait(exe->ctx->queue, e);
    if (is_timed && status == FUSOR_OK) rt_select_tell(exe->ctx->select, key, c.side, (double)(fu_now_ns() - begin));
    return status;
}

rt_exec *auto_prepare(fusor_executable *exe, int n_in, const fusor_buffer *in, int n_out, const fusor_buffer *out) {
    rt_select_choice c = {.side = RT_SIDE_CPU};
    uint64_t key;
    bool is_timed;
    const bool is_there = (in && has_device(n_in, in)) || (out && has_device(n_out, out));
    if (!is_there && !choose(exe, n_in, in, n_out, out, &c, &key, &is_timed)) return start_exec(exe);
    rt_exec *gpu = is_there || c.side == RT_SIDE_GPU ? auto_gpu(exe, NULL) : NULL;
    return gpu ? gpu : start_exec(exe);
}

/* ---- in words ---- */
static void say(const fusor_context *ctx, const rt_select_choice *c, char *out, size_t room) {
    const rt_side s = c->side, o = s == RT_SIDE_CPU ? RT_SIDE_GPU : RT_SIDE_CPU;
    char name[RT_SIDES][16] = {"the CPU", ""};
    snprintf(name[RT_SIDE_GPU], sizeof name[RT_SIDE_GPU], "cuda:%d", (ctx->device - 1) % 1000);
    snprintf(out, room, "%s%s, %.3g us %s; %s %.3g us %s", name[s], c->is_trial ? " (to learn what it takes)" : "",
             c->expected_ns[s] / 1e3, c->is_measured[s] ? "measured" : "estimated", name[o], c->expected_ns[o] / 1e3,
             c->is_measured[o] ? "measured" : "estimated");
}

bool auto_last(const fusor_executable *exe, rt_select_choice *out) {
    auto_choice *a = exe->choice;
    pthread_mutex_lock(&a->lock);
    const bool is_there = a->has_last && !a->is_failed;
    *out = a->last;
    pthread_mutex_unlock(&a->lock);
    return is_there;
}

void auto_last_text(const fusor_executable *exe, char *out, size_t room) {
    auto_choice *a = exe->choice;
    pthread_mutex_lock(&a->lock);
    if (a->is_failed) snprintf(out, room, "the CPU: %s", a->why);
    else if (a->has_last) say(exe->ctx, &a->last, out, room);
    else snprintf(out, room, "the CPU");
    pthread_mutex_unlock(&a->lock);
}

void auto_plan_text(fusor_context *ctx, const ir_plan *p, const int64_t *symbol_values, char *out, size_t room) {
    const rt_select_gpu *gpu = auto_gpu_of(ctx);
    double up = 0, down = 0;
    if (!gpu) {
        snprintf(out, room, "the CPU: %s", ctx->auto_why);
        return;
    }
    for (uint32_t b = 0; b < p->buffers.n; b++) {
        const ir_plan_buffer *x = &p->buffers.at[b];
        double bytes = ir_dtypes[x->dtype].bytes;
        for (int d = 0; d < x->rank; d++) {
            int64_t n = 0;
            if (ir_size_eval(p->graph->sizes, x->dim[d], symbol_values, &n) != IR_SIZE_OK) n = 0;
            bytes *= (double)n;
        }
        if (x->storage == IR_STORE_INPUT) up += bytes;
        if (x->storage == IR_STORE_OUTPUT) down += bytes;
    }
    const double model[RT_SIDES] = {rt_select_cpu_ns(p, symbol_values, ctx->n_threads),
                                    rt_select_gpu_ns(gpu, p, symbol_values, up, down)};
    rt_select_history none = {0};
    const rt_select_choice c = rt_select_choose(&none, model, NULL);
    say(ctx, &c, out, room);
}
