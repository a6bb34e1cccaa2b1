/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* compiler.c: the way to the code generation module. */
#include "rt/compiler.h"
#include "base/arena.h"
#include "base/build_id.h"
#include "base/env.h"
#include "rt/fork.h"
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef FUSOR_PKGLIBDIR
#define FUSOR_PKGLIBDIR "/usr/local/lib/fusor"
#endif
#define MODULE_FILE "fusor-codegen.so"

static _Atomic(const fusor_codegen_table *) loaded;
static char loaded_path[PATH_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const char *rt_build_id(void) { return FUSOR_BUILD_ID; }

/* Where the module and what belongs to it may be, from the directory of the library (or of the program that contains
 * it): installed libraries, installed programs, a build tree's library, program and tests. */
static const char *const places[] = {"fusor/", "",          "../",          "../lib/fusor/",  "../lib64/fusor/",
                                     ".libs/", "../.libs/", "../../.libs/", "../../../.libs/"};

/* Directory of this code, with its '/'. */
static bool own_directory(char *path) {
    Dl_info info;
    char *slash;
    if (dladdr((void *)(uintptr_t)rt_build_id, &info) && info.dli_fname && strchr(info.dli_fname, '/') &&
        realpath(info.dli_fname, path) && strstr(path, ".so")) {
        slash = strrchr(path, '/');
    } else {
        /* Linked into the program; its name in argv[0] may mean nothing here. */
        ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
        if (n <= 0) return false;
        path[n] = 0;
        slash = strrchr(path, '/');
    }
    if (!slash) return false;
    slash[1] = 0;
    return true;
}

bool rt_module_find_file(const char *name, char *path, size_t room) {
    char dir[PATH_MAX];
    if (own_directory(dir))
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            int n = snprintf(path, room, "%s%s%s", dir, places[i], name);
            if (n > 0 && (size_t)n < room && access(path, R_OK) == 0) return true;
        }
    int n = snprintf(path, room, "%s/%s", FUSOR_PKGLIBDIR, name);
    return n > 0 && (size_t)n < room && access(path, R_OK) == 0;
}

/* Address space for the module: with LLVM inside and what it links 38 MB, and what src/jit/codegen.c asks for. */
enum { MODULE_ROOM = 60 << 20 };

/* Of the first object, the program itself. In one without a dynamic linker dlopen makes a second libc, whose threads
 * are not set up: the module would crash. */
static int has_linker(struct dl_phdr_info *program, size_t bytes, void *out) {
    (void)bytes;
    for (int i = 0; i < program->dlpi_phnum; i++)
        if (program->dlpi_phdr[i].p_type == PT_INTERP) *(bool *)out = true;
    return 1;
}

/* Under the lock. */
static fusor_status load(fu_error *e, const fusor_codegen_table **out) {
    char path[PATH_MAX];
    bool is_dynamic = false;
    (void)dl_iterate_phdr(has_linker, &is_dynamic);
    if (!is_dynamic)
        return FU_FAIL(e, FUSOR_ERROR_UNSUPPORTED,
                       "the code generation module does not load into a program that is linked statically");
    const char *given = fu_env_string(FU_FUSOR_CODEGEN);
    if (*given) snprintf(path, sizeof path, "%s", given);
    else if (!rt_module_find_file(MODULE_FILE, path, sizeof path))
        return FU_FAIL(
            e, FUSOR_ERROR_UNSUPPORTED,
            "no code generation module: %s is neither beside the library nor in %s (FUSOR_CODEGEN names another path)",
            MODULE_FILE, FUSOR_PKGLIBDIR);
    if (!fu_has_room(MODULE_ROOM))
        return FU_FAIL(e, FUSOR_ERROR_UNSUPPORTED, "the code generation module does not load: no memory for it");
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return FU_FAIL(e, FUSOR_ERROR_UNSUPPORTED, "the code generation module does not load: %s", dlerror());
    void *symbol = dlsym(handle, FUSOR_CODEGEN_SYMBOL);
    fusor_codegen_module_fn get;
    memcpy(&get, &symbol, sizeof get);
    if (!symbol)
        return FU_FAIL(e, FUSOR_ERROR_UNSUPPORTED, "%s is no code generation module: it has no %s", path,
                       FUSOR_CODEGEN_SYMBOL);
    const fusor_codegen_table *table = get();
    if (!table || table->version != FUSOR_CODEGEN_VERSION)
        return FU_FAIL(e, FUSOR_ERROR_UNSUPPORTED, "%s has interface version %u; this library expects %d", path,
                       table ? table->version : 0, FUSOR_CODEGEN_VERSION);
    if (!table->build_id || strcmp(table->build_id, FUSOR_BUILD_ID) != 0)
        return FU_FAIL(e, FUSOR_ERROR_UNSUPPORTED, "%s is of another build (%s); this library is build %s", path,
                       table->build_id ? table->build_id : "unnamed", FUSOR_BUILD_ID);
    snprintf(loaded_path, sizeof loaded_path, "%s", path);
    *out = table;
    return FUSOR_OK;
}

/* A fork waits until the module is loaded. */
static void guard_lock(void) {
    static rt_fork_hook hook;
    rt_fork_guard(&hook, &lock);
}

fusor_status rt_module_get(fu_error *e, const fusor_codegen_table **out) {
    const fusor_codegen_table *table = atomic_load_explicit(&loaded, memory_order_acquire);
    if (!table) {
        /* A failure is not kept: the module may be installed while a service runs. */
        static pthread_once_t once = PTHREAD_ONCE_INIT;
        pthread_once(&once, guard_lock);
        pthread_mutex_lock(&lock);
        table = atomic_load_explicit(&loaded, memory_order_relaxed);
        fusor_status s = table ? FUSOR_OK : load(e, &table);
        if (s == FUSOR_OK) atomic_store_explicit(&loaded, table, memory_order_release);
        pthread_mutex_unlock(&lock);
        if (s != FUSOR_OK) return s;
    }
    *out = table;
    return FUSOR_OK;
}

/* ---- requests ---- */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_inside;
    bool is_forking; /* others wait, so that a fork is not put off for ever */
} requests = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void wait_for_requests(void *unused) {
    (void)unused;
    pthread_mutex_lock(&requests.lock);
    requests.is_forking = true;
    while (requests.n_inside > 0) pthread_cond_wait(&requests.changed, &requests.lock);
}

static void go_on(void *unused) {
    (void)unused;
    requests.is_forking = false;
    pthread_cond_broadcast(&requests.changed);
    pthread_mutex_unlock(&requests.lock);
}

/* Threads that waited are not in the child. */
static void go_on_in_child(void *unused) {
    (void)unused;
    requests.is_forking = false;
    requests.changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pthread_mutex_unlock(&requests.lock);
}

static void guard_requests(void) {
    static rt_fork_hook hook = {.prepare = wait_for_requests, .parent = go_on, .child = go_on_in_child};
    rt_fork_add(&hook);
}

int rt_module_generate(int (*generate)(const fusor_codegen_request *, fusor_codegen_result *),
                       const fusor_codegen_request *request, fusor_codegen_result *result) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, guard_requests);
    pthread_mutex_lock(&requests.lock);
    while (requests.is_forking) pthread_cond_wait(&requests.changed, &requests.lock);
    requests.n_inside++;
    pthread_mutex_unlock(&requests.lock);
    const int status = generate(request, result);
    pthread_mutex_lock(&requests.lock);
    if (--requests.n_inside == 0) pthread_cond_broadcast(&requests.changed);
    pthread_mutex_unlock(&requests.lock);
    return status;
}

/* ---- threads that compile ---- */
static bool is_space_limited(void) {
    struct rlimit space;
    return getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY;
}

void rt_compilers_run(int n, void *(*work)(void *arg), void *arg) {
    pthread_t thread[RT_MOST_COMPILERS];
    const int most = n > RT_MOST_COMPILERS ? RT_MOST_COMPILERS : n > 1 && is_space_limited() ? 1 : n;
    int made = 1;
    while (made < most && pthread_create(&thread[made], NULL, work, arg) == 0) made++;
    work(arg);
    for (int i = 1; i < made; i++) pthread_join(thread[i], NULL);
}

const char *rt_module_path(void) { return atomic_load_explicit(&loaded, memory_order_acquire) ? loaded_path : ""; }
