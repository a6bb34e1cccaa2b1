/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* context.c: contexts, their options and environment, and the error record of each thread. */
#include "context.h"
#include "start.h"
#include "base/env.h"
#include "lazy.h"
#include "rt/buffer.h"
#include "rt/cpuinfo.h"
#include "rt/compiler.h"
#include <pthread.h>
#include <stdio.h>

/* ---- error records: one per context and thread, made when a call first fails there ---- */
/* Context 0: errors of calls that name no context (a NULL handle, a number alone); they show in every context until a later one. */
typedef struct record {
    struct record *next;
    uint64_t ctx, order;
    fu_error error;
} record;
static _Atomic uint64_t n_errors;
static pthread_key_t record_key;
static pthread_once_t record_once = PTHREAD_ONCE_INIT;

static void free_records(void *head) {
    for (record *r = head, *next; r; r = next) {
        next = r->next;
        fu_free(r);
    }
}
static void make_key(void) { (void)pthread_key_create(&record_key, free_records); }

static record *find_record(uint64_t ctx, bool make) {
    (void)pthread_once(&record_once, make_key);
    record *head = pthread_getspecific(record_key);
    for (record *r = head; r; r = r->next)
        if (r->ctx == ctx) return r;
    if (!make) return NULL;
    record *r = fu_calloc(1, sizeof *r);
    if (!r) return NULL;
    r->ctx = ctx;
    r->next = head;
    if (pthread_setspecific(record_key, r) != 0) {
        fu_free(r);
        return NULL;
    }
    return r;
}

fusor_status context_refuse(const char *text) {
    fu_error e;
    fu_error_clear(&e);
    (void)FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "%s", text);
    return context_fail(NULL, &e);
}

fusor_status context_fail(const fusor_context *ctx, const fu_error *e) {
    if (e->status == FUSOR_OK) return e->status;
    record *r = find_record(ctx ? ctx->id : 0, true);
    if (r) {
        r->error = *e;
        r->order = atomic_fetch_add(&n_errors, 1);
    }
    if (ctx && fu_log_on("error"))
        fu_log_event(&ctx->log, "error", "%s,%.*s", fusor_status_name(e->status), (int)strcspn(e->text, "\n"), e->text);
    return e->status;
}

const char *fusor_error_message(const fusor_context *ctx) {
    const record *r = ctx ? find_record(ctx->id, false) : NULL, *none = find_record(0, false);
    if (none && none->error.status != FUSOR_OK && (!r || r->error.status == FUSOR_OK || none->order > r->order))
        r = none;
    return r && r->error.status != FUSOR_OK ? r->error.text : "";
}

void fusor_error_clear(fusor_context *ctx) {
    record *r = ctx ? find_record(ctx->id, false) : NULL, *none = find_record(0, false);
    if (r) fu_error_clear(&r->error);
    if (none) fu_error_clear(&none->error);
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

static void choose_device(fusor_context *ctx, const char *device) {
    if (device[0] == 0 || strcmp(device, "cpu") == 0 || strcmp(device, "auto") == 0) return;
    if (strcmp(device, "reference") == 0) {
        ctx->is_reference = true;
        return;
    }
    bad_option(ctx, FUSOR_ERROR_DEVICE, "device '%s' is not here; expected %s", device, "cpu or reference");
    ctx->has_level = false;
}

static atomic_uint_fast64_t next_id = 1;
static atomic_int n_contexts;

fusor_context *fusor_context_new(const fusor_context_options *options) {
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    if (options) memcpy(&o, options, options->size && options->size < sizeof o ? options->size : sizeof o);
    fusor_context *ctx = fu_calloc(1, sizeof *ctx);
    fu_error *e = fu_calloc(1, sizeof *e);
    if (!ctx || !e) {
        fu_free(ctx);
        fu_free(e);
        return NULL;
    }
    atomic_init(&ctx->refs, 1);
    ctx->id = atomic_fetch_add(&next_id, 1);
    ctx->flags = o.flags;
    ctx->log = (fu_log){o.log, o.user};
    ctx->exec.profile = &ctx->profile;
    ctx->exec.parallel_for = o.parallel_for;
    ctx->exec.parallel_user = o.user;
    ctx->exec.allocate = o.allocate && o.deallocate ? o.allocate : NULL;
    ctx->exec.deallocate = o.allocate && o.deallocate ? o.deallocate : NULL;
    ctx->exec.memory_user = o.user;
    ctx->checks = !(o.flags & FUSOR_IGNORE_ENVIRONMENT) && fu_env_bool(FU_FUSOR_CHECK);
    choose_target(ctx, setting(ctx, o.target, FU_FUSOR_TARGET));
    choose_threads(ctx, o.n_threads);
    choose_device(ctx, setting(ctx, o.device, FU_FUSOR_DEVICE));
    rt_cache_options c = {.dir = o.cache_dir,
                          .max_bytes = o.cache_max_bytes,
                          .only = (o.flags & FUSOR_CACHE_ONLY) != 0,
                          .ignore_environment = (o.flags & FUSOR_IGNORE_ENVIRONMENT) != 0,
                          .log = ctx->log};
    if (o.flags & FUSOR_REFERENCE_ON_MISS) c.only = true;
    fusor_status status = rt_cache_open(e, &c, &ctx->cache);
    fu_free(e);
    if (status != FUSOR_OK) {
        fu_free(ctx);
        return NULL;
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
    rt_cache_close(ctx->cache);
    start_close(ctx);
    rt_profile_free(atomic_load(&ctx->profile));
    fu_free(ctx);
    if (atomic_fetch_sub(&n_contexts, 1) == 1) rt_memory_trim(); /* the last one: nothing of the library stays behind */
}

void fusor_buffer_free(fusor_context *ctx, fusor_buffer *buffer) {
    if (!ctx || !buffer || !buffer->data) return;
    rt_buffer_release(&ctx->exec, buffer->data);
    buffer->data = NULL;
}
