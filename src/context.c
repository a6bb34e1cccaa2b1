/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* context.c: contexts, their options and environment, and the error record of each thread. */
#include "base/small.h"
#include "context.h"
#include "start.h"
#include "base/env.h"
#include "base/str.h"
#include "fusor/device.h"
#include "ir/pass.h"
#include "lazy.h"
#include "rt/buffer.h"
#include "rt/device.h"
#include "rt/cpuinfo.h"
#include "rt/compiler.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- error records: one per context and thread, made when a call first fails there ---- */
/* Context 0: errors of calls that name no context (a NULL handle, a number alone); they show in every context that was
 * there, until a later one, unless they are aside: no call has failed (there is no device), it is told to who asks for
 * the thread's last error. A record of a context that is gone goes with the next new one. */
struct context_life {
    atomic_int refs; /* the context, and each record */
    atomic_bool is_dead;
};
typedef struct record {
    struct record *next;
    uint64_t ctx, order;
    bool is_aside;
    struct context_life *life; /* held; NULL: of context 0 */
    fu_error error;
} record;
static _Atomic uint64_t n_errors;
/* 1 + the context of this thread's last error, where there was no memory for its record; 0: there is a record. */
static _Thread_local uint64_t lost_record;
static pthread_key_t record_key;
static pthread_once_t record_once = PTHREAD_ONCE_INIT;

static void drop_life(struct context_life *life) {
    if (life && atomic_fetch_sub(&life->refs, 1) == 1) fu_free(life);
}
static void free_record(record *r) {
    drop_life(r->life);
    fu_free(r);
}
static void free_records(void *head) {
    for (record *r = head, *next; r; r = next) {
        next = r->next;
        free_record(r);
    }
}
static void make_key(void) { (void)pthread_key_create(&record_key, free_records); }

static record *records(void) {
    (void)pthread_once(&record_once, make_key);
    return pthread_getspecific(record_key);
}

static record *find_record(uint64_t ctx) {
    for (record *r = records(); r; r = r->next)
        if (r->ctx == ctx) return r;
    return NULL;
}

static record *make_record(const fusor_context *ctx) {
    record *made = fu_calloc(1, sizeof *made);
    if (!made) return NULL;
    record **link = &made->next;
    made->next = records();
    if (pthread_setspecific(record_key, made) != 0) {
        fu_free(made);
        return NULL;
    }
    if (ctx) {
        made->ctx = ctx->id;
        made->life = ctx->life;
        atomic_fetch_add(&ctx->life->refs, 1);
    }
    while (*link) {
        record *r = *link;
        if (r->life && atomic_load(&r->life->is_dead)) {
            *link = r->next;
            free_record(r);
        } else link = &r->next;
    }
    return made;
}

fusor_status context_refuse(const char *text) {
    fu_error e;
    fu_error_clear(&e);
    (void)FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "%s", text);
    return context_fail(NULL, &e);
}

static fusor_status keep_error(const fusor_context *ctx, const fu_error *e, bool is_aside) {
    if (e->status == FUSOR_OK) return e->status;
    const uint64_t id = ctx ? ctx->id : 0;
    record *r = find_record(id);
    lost_record = 0;
    if (!r && !(r = make_record(ctx))) {
        lost_record = 1 + id;
    } else {
        r->error = *e;
        r->order = atomic_fetch_add(&n_errors, 1) + 1;
        r->is_aside = is_aside;
    }
    if (ctx && fu_log_on("error"))
        fu_log_event(&ctx->log, "error", "%s,%.*s", fusor_status_name(e->status), (int)strcspn(e->text, "\n"), e->text);
    return e->status;
}

fusor_status context_fail(const fusor_context *ctx, const fu_error *e) { return keep_error(ctx, e, false); }

const char *fusor_error_message(const fusor_context *ctx) {
    uint64_t last = ctx ? ctx->born : 0;
    const char *text = "";
    if (lost_record && (!ctx || lost_record == 1 || lost_record == 1 + ctx->id))
        return "out of memory, for the text of this error too";
    for (const record *r = records(); r; r = r->next) {
        if (ctx && r->ctx != ctx->id && (r->ctx || r->is_aside)) continue;
        if (r->error.status == FUSOR_OK || r->order <= last) continue;
        last = r->order;
        text = r->error.text;
    }
    return text;
}

void fusor_error_clear(fusor_context *ctx) {
    if (!ctx || lost_record == 1 || lost_record == 1 + ctx->id) lost_record = 0;
    for (record *r = records(); r; r = r->next)
        if (!ctx || r->ctx == ctx->id || r->ctx == 0) fu_error_clear(&r->error);
}

/* ---- options ---- */
static void bad_option(fusor_context *ctx, fusor_status status, const char *fmt, const char *given,
                       const char *expected) {
    if (ctx->option_status != FUSOR_OK) return;
    ctx->option_status = status;
    snprintf(ctx->option_error, sizeof ctx->option_error, fmt, given, expected);
}

static const char *setting(const fusor_context *ctx, const char *option, fu_env variable) {
    if (option) return option;
    return ctx->flags & FUSOR_IGNORE_ENVIRONMENT ? "" : fu_env_string(variable);
}

/* What a newer program asks of this library is not passed over in silence. */
static void check_options(fusor_context *ctx, const fusor_context_options *o) {
    const uint32_t known =
        FUSOR_CACHE_ONLY | FUSOR_REFERENCE_ON_MISS | FUSOR_IGNORE_ENVIRONMENT | FUSOR_FAST_MATH | FUSOR_START_UNFUSED;
    char given[16];
    snprintf(given, sizeof given, "0x%x", (unsigned)(o->flags & ~known));
    if (o->flags & ~known)
        bad_option(ctx, FUSOR_ERROR_ARGUMENT, "the context's flags %s are unknown; expected %s", given,
                   "those of fusor/context.h");
    if (!o->allocate != !o->deallocate)
        bad_option(ctx, FUSOR_ERROR_ARGUMENT, "the context has the callback %s alone; expected %s",
                   o->allocate ? "allocate" : "deallocate", "allocate and deallocate, or neither");
}

/* A value that is passed over, a slip of the pen most of all, is said. */
static void check_environment(const fusor_context *ctx) {
    if (ctx->flags & FUSOR_IGNORE_ENVIRONMENT) return;
    char words[120];
    for (int v = 0; v < FU_ENV_COUNT; v++) {
        const char *expected = fu_env_expected((fu_env)v, words, sizeof words);
        if (expected)
            fu_log_warn(&ctx->log, "%s=%s: expected %s", fu_env_table[v].name, fu_env_string((fu_env)v), expected);
    }
}

static void choose_target(fusor_context *ctx, const char *text) {
    int host = rt_host_level();
    ctx->has_level = true;
    ctx->is_level_given = text[0] != 0;
    if (host < 0) {
        ctx->is_reference = true; /* below x86-64-v2: nothing can be generated */
        return;
    }
    ir_target own = {(ir_level)host, rt_host_extras((ir_level)host)}, target = own;
    fu_error e;
    fu_error_clear(&e);
    if (text[0] && ir_target_parse(&e, text, &target) != FUSOR_OK) {
        bad_option(ctx, FUSOR_ERROR_ARGUMENT, "%.500s%s", e.text, "");
        ctx->has_level = false;
    } else {
        char list[IR_TARGET_FEATURES_MAX], name[IR_TARGET_MAX];
        if (ir_level_is_gpu(target.level) || !rt_host_has(ir_target_features(target, list), NULL, NULL)) {
            bad_option(ctx, FUSOR_ERROR_DEVICE, "this machine cannot run target '%s'; its own is %s", text,
                       ir_target_name(own, name));
            ctx->has_level = false;
        }
    }
    ctx->level = target.level;
    ctx->features = target.features;
}

static void choose_threads(fusor_context *ctx, int32_t option) {
    int64_t n = option ? option : ctx->flags & FUSOR_IGNORE_ENVIRONMENT ? 0 : fu_env_int(FU_FUSOR_THREADS);
    if (n < 0 || n > 1024) {
        char given[32];
        snprintf(given, sizeof given, "%lld", (long long)n);
        bad_option(ctx, FUSOR_ERROR_ARGUMENT, "%s threads asked for; expected %s", given,
                   "1 to 1024, or 0 for the default");
        ctx->has_level = false;
        n = 1;
    }
    ctx->n_threads = n ? (int)n : rt_default_threads();
    ctx->exec.n_threads = ctx->n_threads;
}

/* ---- the device ---- */
/* The number behind "cuda:"; -1 where it is none. */
static int ordinal_of(const char *device) {
    if (device[4] == 0) return 0;
    char *end;
    long k = device[5] >= '0' && device[5] <= '9' ? strtol(device + 5, &end, 10) : -1;
    return k >= 0 && k < 1024 && *end == 0 ? (int)k : -1;
}

/* Kernels for the device's target, or for an older one that was asked for. */
static void choose_gpu_target(fusor_context *ctx, const rt_device_info *info, const char *text) {
    ir_target target = info->target;
    char own[IR_TARGET_MAX];
    fu_error e;
    fu_error_clear(&e);
    if (text[0] && ir_target_parse(&e, text, &target) != FUSOR_OK)
        bad_option(ctx, FUSOR_ERROR_ARGUMENT, "%.500s%s", e.text, "");
    else if (!ir_level_is_gpu(target.level) || target.level > info->target.level)
        bad_option(ctx, FUSOR_ERROR_DEVICE, "the device cannot run target '%s'; its own is %s", text,
                   ir_target_name(info->target, own));
    ctx->has_level = ctx->option_status == FUSOR_OK;
    ctx->is_level_given = true; /* no lower level serves instead */
    ctx->level = target.level;
    ctx->features = target.features;
}

/* The queue of a CUDA device, and its number. */
static fusor_status open_device(fusor_context *ctx, fu_error *e, int ordinal) {
    rt_device *device = NULL;
    FU_TRY(rt_device_open(e, ordinal, &device));
    FU_TRY(rt_queue_new(device, e, &ctx->queue));
    ctx->device = 1 + ordinal;
    return FUSOR_OK;
}

/* Without a device the CPU does it all, and says why to who asks. */
static void open_auto(fusor_context *ctx, fu_error *e) {
    if (open_device(ctx, e, 0) == FUSOR_OK) {
        ctx->gpu_target = rt_device_get_info(rt_queue_device(ctx->queue))->target;
        ctx->is_auto = true;
    } else {
        snprintf(ctx->auto_why, sizeof ctx->auto_why, "%.199s", e->text);
        fu_log_event(&ctx->log, "dispatch", "auto,cpu,%s", ctx->auto_why);
    }
}

fusor_status context_check_device(fu_error *e, const char *name) {
    static const char *const names[] = {"cpu", "cuda", "auto", "reference"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return FUSOR_OK;
    if (strncmp(name, "cuda:", 5) == 0 && ordinal_of(name) >= 0) return FUSOR_OK;
    const char *near =
        strncmp(name, "cuda:", 5) == 0 || strcmp(name, "gpu") == 0 ? "cuda:0" : fu_nearest(name, names, 4);
    return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "device '%.64s': expected cpu, cuda, cuda:K, auto or reference%s%s%s", name,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static void choose_device(fusor_context *ctx, const char *device, const char *target) {
    fu_error e;
    fu_error_clear(&e);
    const bool is_cuda = strncmp(device, "cuda", 4) == 0;
    if (device[0] && context_check_device(&e, device) != FUSOR_OK) {
        bad_option(ctx, e.status, "%.500s%s", e.text, "");
        ctx->has_level = false;
    } else if (is_cuda) {
        if (open_device(ctx, &e, ordinal_of(device)) == FUSOR_OK) {
            ctx->exec.queue = ctx->queue;
            choose_gpu_target(ctx, rt_device_get_info(rt_queue_device(ctx->queue)), target);
        } else bad_option(ctx, e.status, "device %.40s: %.440s", device, e.text), ctx->has_level = false;
    } else {
        choose_target(ctx, target);
        ctx->is_reference |= strcmp(device, "reference") == 0;
        if (strcmp(device, "auto") == 0 && !ctx->is_reference) open_auto(ctx, &e);
    }
}

const char *context_device_name(const fusor_context *ctx, char out[24]) {
    if (ctx->is_auto) snprintf(out, 24, "auto");
    else if (ctx->device) snprintf(out, 24, "cuda:%d", ctx->device - 1);
    else snprintf(out, 24, "%s", ctx->is_reference ? "reference" : "cpu");
    return out;
}

bool context_keeps_nothing(const fusor_context *ctx) {
    return !(ctx->flags & FUSOR_IGNORE_ENVIRONMENT) && rt_cache_mode_parse(fu_env_string(FU_FUSOR_CACHE)) != RT_CACHE_RW;
}

rt_limits context_limits(const fusor_context *ctx, bool is_read_only) {
    if (ctx->device && !ctx->is_auto) return rt_limits_of_device(rt_device_get_info(rt_queue_device(ctx->queue)));
    return rt_limits_get(rt_cache_dir(ctx->cache), ctx->n_threads, is_read_only, false);
}

static atomic_uint_fast64_t next_id = 1;
static atomic_int n_contexts;

fusor_context *fusor_context_new(const fusor_context_options *options) {
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    if (options) memcpy(&o, options, options->size && options->size < sizeof o ? options->size : sizeof o);
    fusor_context *ctx = fu_calloc(1, sizeof *ctx);
    fu_error *e = fu_calloc(1, sizeof *e);
    struct context_life *life = fu_calloc(1, sizeof *life);
    if (!ctx || !e || !life) {
        fu_free(ctx);
        fu_free(e);
        fu_free(life);
        return NULL;
    }
    atomic_init(&ctx->refs, 1);
    atomic_init(&life->refs, 1);
    ctx->life = life;
    ctx->id = atomic_fetch_add(&next_id, 1);
    ctx->born = atomic_load(&n_errors);
    ctx->flags = o.flags;
    ctx->log = (fu_log){o.log, o.user};
    ctx->exec.profile = &ctx->profile;
    ctx->exec.parallel_for = o.parallel_for;
    ctx->exec.parallel_user = o.user;
    ctx->exec.allocate = o.allocate && o.deallocate ? o.allocate : NULL;
    ctx->exec.deallocate = o.allocate && o.deallocate ? o.deallocate : NULL;
    ctx->exec.memory_user = o.user;
    ctx->checks = !(o.flags & FUSOR_IGNORE_ENVIRONMENT) && fu_env_bool(FU_FUSOR_CHECK);
    choose_device(ctx, setting(ctx, o.device, FU_FUSOR_DEVICE), setting(ctx, o.target, FU_FUSOR_TARGET));
    choose_threads(ctx, o.n_threads);
    check_options(ctx, &o);
    check_environment(ctx);
    rt_cache_options c = {.dir = o.cache_dir,
                          .max_bytes = o.cache_max_bytes,
                          .only = (o.flags & FUSOR_CACHE_ONLY) != 0,
                          .ignore_environment = (o.flags & FUSOR_IGNORE_ENVIRONMENT) != 0,
                          .log = ctx->log};
    if (o.flags & FUSOR_REFERENCE_ON_MISS) c.only = true;
    fusor_status status = rt_cache_open(e, &c, &ctx->cache);
    fu_free(e);
    if (status != FUSOR_OK) {
        rt_queue_free(ctx->queue);
        drop_life(ctx->life);
        fu_free(ctx);
        return NULL;
    }
    if (ctx->is_auto) {
        ctx->select = rt_select_open(rt_cache_dir(ctx->cache), context_keeps_nothing(ctx));
        if (!ctx->select) ctx->is_auto = false;
    }
    atomic_fetch_add(&n_contexts, 1);
    return ctx;
}

fusor_context *context_keep(fusor_context *ctx) {
    atomic_fetch_add_explicit(&ctx->refs, 1, memory_order_relaxed);
    return ctx;
}

void fusor_context_free(fusor_context *ctx) {
    if (!ctx || atomic_fetch_sub_explicit(&ctx->refs, 1, memory_order_acq_rel) != 1) return;
    lazy_free(ctx);
    rt_select_close(ctx->select);
    rt_cache_close(ctx->cache);
    start_close(ctx);
    rt_profile_free(atomic_load(&ctx->profile));
    if (ctx->queue) {
        rt_device *device = rt_queue_device(ctx->queue);
        rt_buffer_give_all(ctx->queue);
        rt_queue_free(ctx->queue);
        rt_device_trim(device); /* others may need the memory */
    }
    atomic_store(&ctx->life->is_dead, true);
    drop_life(ctx->life);
    fu_free(ctx);
    if (atomic_fetch_sub(&n_contexts, 1) == 1) rt_memory_trim(); /* the last one: nothing of the library stays behind */
}

void fusor_buffer_free(fusor_context *ctx, fusor_buffer *buffer) {
    if (!ctx || !buffer || !buffer->data) return;
    rt_buffer_release(&ctx->exec, buffer->data);
    buffer->data = NULL;
}

/* ---- entry points: device.h; buffers are in memory.c ---- */
int fusor_device_count(void) {
    fu_error e;
    int n = 0;
    fu_error_clear(&e);
    if (rt_device_count(&e, &n) != FUSOR_OK || e.status != FUSOR_OK) (void)keep_error(NULL, &e, true);
    return n;
}

static void describe_cpu(fusor_device_info *out) {
    int level = rt_host_level();
    char name[IR_TARGET_MAX];
    snprintf(out->name, sizeof out->name, "CPU");
    snprintf(out->target, sizeof out->target, "%s",
             level < 0 ? "reference"
                       : ir_target_name((ir_target){(ir_level)level, rt_host_extras((ir_level)level)}, name));
    out->multiprocessors = rt_default_threads();
}

fusor_status fusor_device_describe(int32_t device, fusor_device_info *out) {
    fu_error e;
    fusor_device_info d = {0};
    rt_device_info info;
    char name[IR_TARGET_MAX];
    if (!out) return context_refuse("fusor_device_describe: out is NULL");
    fu_error_clear(&e);
    if (out->size < offsetof(fusor_device_info, name) + sizeof d.name)
        return context_refuse("fusor_device_describe: out->size must be sizeof(fusor_device_info); start "
                              "from FUSOR_DEVICE_INFO_INIT");
    d.size = out->size < sizeof d ? out->size : sizeof d;
    if (device == 0) {
        describe_cpu(&d);
    } else if (device < 0) {
        (void)FU_FAIL(&e, FUSOR_ERROR_DEVICE, "device %d; expected 0, the CPU, or 1 + K for cuda:K", device);
    } else if (rt_device_describe(&e, device - 1, &info) == FUSOR_OK) {
        snprintf(d.name, sizeof d.name, "%s", info.name);
        snprintf(d.target, sizeof d.target, "%s", ir_target_name(info.target, name));
        d.compute_capability = info.cc;
        d.multiprocessors = info.multiprocessors;
        d.memory_bytes = info.memory_bytes;
    }
    if (e.status == FUSOR_OK) memcpy(out, &d, d.size);
    return context_fail(NULL, &e);
}

fusor_status fusor_context_device(fusor_context *ctx, int32_t *device_out) {
    fu_error e;
    if (!ctx || !device_out) return context_refuse("fusor_context_device: the context or device_out is NULL");
    fu_error_clear(&e);
    if (ctx->option_status != FUSOR_OK) (void)FU_FAIL(&e, ctx->option_status, "%s", ctx->option_error);
    else *device_out = ctx->device;
    return context_fail(ctx, &e);
}

fusor_status fusor_context_wait(fusor_context *ctx) {
    fu_error e;
    if (!ctx) return context_refuse("fusor_context_wait: the context is NULL");
    if (!ctx->queue) return FUSOR_OK;
    fu_error_clear(&e);
    (void)rt_queue_wait(ctx->queue, &e);
    return context_fail(ctx, &e);
}
