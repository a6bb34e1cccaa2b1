/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* start.c: programs that start unfused (start.h). The interim executable and the fused one are two executables of the
 * same program; both live until the outer one is freed, so a call never meets one that goes away.
 *
 * A process that ends waits for the threads, so that their kernels reach the cache; the module leaves LLVM standing
 * meanwhile (src/jit/exit.c). A forked child has no such thread and stays
 * unfused. */
#include "start.h"
#include "base/env.h"
#include "rt/fork.h"
#include "rt/compiler.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct start_job {
    atomic_int refs;
    pid_t pid; /* whose thread it is */
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done;
    bool is_nice;                          /* the program goes on, and does not end with the first result */
    _Atomic(fusor_executable *) fused;     /* NULL until it is there */
    fusor_context *ctx;                    /* held */
    rt_exec *interim;                      /* held, until the fused program has what is bound to it */
    char *name, *text, *function, *target; /* the last two may be NULL */
    size_t length;
    uint32_t flags;
} start_job;

/* ---- threads that still compile ---- */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static int n_running;
static pthread_once_t once = PTHREAD_ONCE_INIT, once_loaded = PTHREAD_ONCE_INIT;

static void before_fork(void *user) {
    (void)user;
    pthread_mutex_lock(&lock);
}
static void after_fork(void *user) {
    (void)user;
    pthread_mutex_unlock(&lock);
}
static void after_fork_child(void *user) {
    (void)user;
    n_running = 0;
    pthread_cond_init(&ended, NULL);
    pthread_mutex_unlock(&lock);
}
static void wait_for_all(void) {
    pthread_mutex_lock(&lock);
    while (n_running) pthread_cond_wait(&ended, &lock);
    pthread_mutex_unlock(&lock);
}
/* Registered when the first job begins, and again once the module is loaded: where LLVM is a library of its own, what
 * is registered last runs first, so before its destructors. */
static void wait_at_exit(void) { (void)atexit(wait_for_all); }
static void watch_forks_and_exit(void) {
    wait_at_exit();
    static rt_fork_hook hook = {.prepare = before_fork, .parent = after_fork, .child = after_fork_child};
    rt_fork_add(&hook);
}

/* ---- jobs ---- */
void start_drop(start_job *j) {
    if (!j || atomic_fetch_sub_explicit(&j->refs, 1, memory_order_acq_rel) != 1) return;
    fusor_executable_free(atomic_load(&j->fused));
    rt_exec_release(j->interim);
    fusor_context_free(j->ctx);
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->done);
    fu_free(j->name);
    fu_free(j->text);
    fu_free(j->function);
    fu_free(j->target);
    fu_free(j);
}

/* Sources were read once: files may be others by now, or gone. */
static fusor_status bind_as_interim(start_job *j, fu_error *e, fusor_executable *exe) {
    rt_exec *bound;
    FU_TRY(rt_exec_bind_as(exe->exec, e, j->interim, &bound));
    rt_exec_release(exe->exec);
    exe->exec = bound;
    rt_exec_release(j->interim);
    j->interim = NULL;
    return FUSOR_OK;
}

static void *compile_fused(void *arg) {
    start_job *j = arg;
    fusor_executable *exe = NULL;
    if (j->is_nice) (void)setpriority(PRIO_PROCESS, 0, 10); /* this thread: the caller's work goes first */
    const fusor_codegen_table *module;
    fu_error *e = fu_calloc(1, sizeof *e);
    if (e && rt_module_get(e, &module) == FUSOR_OK) {
        pthread_once(&once_loaded, wait_at_exit);
        compile_request r = {.ctx = j->ctx,
                             .name = j->name,
                             .text = j->text,
                             .length = j->length,
                             .function = j->function,
                             .flags = j->flags | FUSOR_KEEP_SOURCES,
                             .target = j->target};
        fu_error_clear(e);
        if (compile_executable(e, &r, &exe) == FUSOR_OK && bind_as_interim(j, e, exe) != FUSOR_OK) {
            fusor_executable_free(exe);
            exe = NULL;
        }
        if (exe) {
            fu_log_event(&j->ctx->log, "dispatch", "@%s,fused", rt_exec_plan(exe->exec)->graph->name);
            atomic_store_explicit(&j->fused, exe, memory_order_release);
        }
    }
    fu_free(e);
    pthread_mutex_lock(&j->lock);
    j->is_done = true;
    pthread_cond_broadcast(&j->done);
    pthread_mutex_unlock(&j->lock);
    start_drop(j);
    pthread_mutex_lock(&lock);
    n_running--;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static char *copy(const char *text, size_t n) {
    char *p = text ? fu_malloc(n + 1) : NULL;
    if (p) {
        memcpy(p, text, n);
        p[n] = 0;
    }
    return p;
}

start_job *start_compile(const compile_request *r, rt_exec *interim) {
    const fu_source *source = r->text ? NULL : &r->module->source;
    const char *text = source ? source->text : r->text, *name = source ? source->name : r->name;
    size_t length = source ? source->length : r->length;
    start_job *j = fu_calloc(1, sizeof *j);
    if (!j) return NULL;
    pthread_once(&once, watch_forks_and_exit);
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->done, NULL);
    atomic_init(&j->refs, 2);
    j->pid = getpid();
    j->ctx = context_keep(r->ctx);
    j->interim = rt_exec_keep(interim);
    j->text = copy(text, length);
    j->length = length;
    j->name = copy(name ? name : "<text>", strlen(name ? name : "<text>"));
    j->function = r->function ? copy(r->function, strlen(r->function)) : NULL;
    j->target = r->target ? copy(r->target, strlen(r->target)) : NULL;
    j->flags = r->flags;
    j->is_nice = r->start != START_IF_QUICK;
    bool ok = j->text && j->name && (!r->function || j->function) && (!r->target || j->target);
    pthread_t thread;
    pthread_mutex_lock(&lock);
    ok = ok && pthread_create(&thread, NULL, compile_fused, j) == 0;
    if (ok) {
        n_running++;
        (void)pthread_detach(thread);
    }
    pthread_mutex_unlock(&lock);
    if (!ok) {
        atomic_store(&j->refs, 1);
        start_drop(j);
        return NULL;
    }
    return j;
}

rt_exec *start_exec(const fusor_executable *exe) {
    if (!exe->job) return exe->exec;
    const fusor_executable *fused = atomic_load_explicit(&exe->job->fused, memory_order_acquire);
    return fused ? fused->exec : exe->exec;
}

void start_wait(const fusor_executable *exe) {
    start_job *j = exe->job;
    if (!j || j->pid != getpid()) return;
    pthread_mutex_lock(&j->lock);
    while (!j->is_done) pthread_cond_wait(&j->done, &j->lock);
    pthread_mutex_unlock(&j->lock);
}

/* ---- the interim ---- */
/* A call that moves more memory than this is left to the fused kernels: moving it takes about as long as compiling. */
#define QUICK_BYTES (64.0 * (1 << 20))
enum { START_NOT_OPENED, START_OPENING, START_OPENED }; /* fusor_context.start_state */

static bool is_wanted(const fusor_context *ctx, start_mode mode) {
    if (ctx->flags & (FUSOR_CACHE_ONLY | FUSOR_REFERENCE_ON_MISS)) return false;
    if (ctx->flags & FUSOR_START_UNFUSED) return true;
    if (ctx->flags & FUSOR_IGNORE_ENVIRONMENT) return mode == START_IF_QUICK;
    return fu_env_is_set(FU_FUSOR_START_UNFUSED) ? fu_env_bool(FU_FUSOR_START_UNFUSED) : mode == START_IF_QUICK;
}

/* Once a context; who comes while another thread opens it compiles as ever. */
static rt_cache *open_bundle(fusor_context *ctx) {
    int state = START_NOT_OPENED;
    if (!atomic_compare_exchange_strong(&ctx->start_state, &state, START_OPENING))
        return atomic_load(&ctx->start_cache);
    char found[4096];
    const char *path = ctx->flags & FUSOR_IGNORE_ENVIRONMENT ? "" : fu_env_string(FU_FUSOR_START_BUNDLE);
    fu_error *e = fu_calloc(1, sizeof *e);
    if (!path[0] && rt_module_find_file("fusor-start.fbundle", found, sizeof found)) path = found;
    rt_cache *cache = NULL;
    rt_cache_options o = {.mode = RT_CACHE_RO, .dir = "", .path = path, .only = true, .log = ctx->log};
    if (e && path[0] && rt_cache_open(e, &o, &cache) == FUSOR_OK) atomic_store(&ctx->start_cache, cache);
    fu_free(e);
    atomic_store(&ctx->start_state, START_OPENED);
    return cache;
}

void start_close(fusor_context *ctx) { rt_cache_close(atomic_load(&ctx->start_cache)); }

static bool moves_little(const ir_plan *p, const int64_t *symbol_values) {
    double bytes = 0;
    for (uint32_t i = 0; i < p->steps.n; i++) {
        ir_cost c = ir_step_cost(p, (int)i, symbol_values);
        bytes += c.bytes_read + c.bytes_written;
    }
    return bytes <= QUICK_BYTES;
}

bool start_unfused(fu_arena *arena, fu_error *e, const compile_request *r, const ir_plan *plan,
                   const rt_exec_options *options, rt_exec **out) {
    ir_plan_options unfused = plan->options;
    ir_plan *interim;
    rt_cache *cache;
    const char *text = r->text ? r->text : r->module->source.text;
    if (!text || unfused.no_fuse || unfused.reference || !is_wanted(r->ctx, r->start) ||
        compile_holds(r->ctx->cache, plan, false) || !(cache = open_bundle(r->ctx)))
        return false;
    unfused.no_fuse = true;
    bool is_asked = is_wanted(r->ctx, START_IF_ASKED);
    if (ir_plan_make(arena, e, plan->graph, &unfused, &interim) == FUSOR_OK && compile_holds(cache, interim, false) &&
        (is_asked || moves_little(interim, r->symbol_values)) &&
        rt_exec_new(e, arena, interim, cache, options, out) == FUSOR_OK) {
        fu_log_event(&r->ctx->log, "dispatch", "@%s,starts-unfused",
                     (*out ? rt_exec_plan(*out) : interim)->graph->name);
        return true;
    }
    fu_error_clear(e);
    return false;
}
