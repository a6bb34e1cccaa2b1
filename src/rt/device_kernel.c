/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* device_kernel.c: a cache's kernel as a function on a device. Each kernel is loaded once on a device; modules that
 * nobody uses any more stay for a while, since the next executable often has the same kernels. Threads that want the
 * same one at once wait for the first. Machine code that the driver made of PTX is kept in files (cubin.h). */
#include "base/small.h"
#include "rt/device_internal.h"
#include "base/arena.h"
#include "base/log.h"
#include <stdio.h>
#include <string.h>

enum { MAX_UNUSED = 256, LOG_ROOM = 4096, DEFAULT_SHARED = 48 << 10 };

/* ---- loading ---- */
/* "7.0" of "\n.version 7.0\n"; where may be NULL. */
static int version_length(const char *ptx, const char *word, const char **out) {
    const char *p = strstr(ptx, word);
    if (!p) return 0;
    p += strlen(word);
    p += strspn(p, " \t");
    *out = p;
    return (int)strcspn(p, " ,\t\r\n");
}

static fusor_status refuse(rt_device *d, fu_error *e, const rt_kernel *k, cu_result code, const char *log) {
    const rt_device_info *i = &d->info;
    const char *version = "?", *target = "?";
    int n_version = version_length(k->ptx, ".version", &version), n_target = version_length(k->ptx, ".target", &target);
    char help[256] = "";
    if (code == CU_UNSUPPORTED_PTX_VERSION)
        snprintf(help, sizeof help,
                 "its PTX is of version %.*s, newer than this driver (CUDA %d.%d) knows; a newer driver is needed",
                 n_version, version, i->driver_version / 1000, i->driver_version % 1000 / 10);
    else if (code == CU_JIT_COMPILER_NOT_FOUND)
        snprintf(help, sizeof help, "the driver's compiler of PTX is not installed (libnvidia-ptxjitcompiler.so.1)");
    else if (code == CU_JIT_COMPILATION_DISABLED)
        snprintf(help, sizeof help, "compiling PTX is switched off (CUDA_DISABLE_PTX_JIT)");
    else if (code == CU_NO_BINARY_FOR_GPU || code == CU_INVALID_PTX)
        snprintf(help, sizeof help, "it is PTX %.*s for %.*s; the device has compute capability %d.%d", n_version,
                 version, n_target, target, i->cc / 10, i->cc % 10);
    size_t n = strlen(log);
    while (n && (log[n - 1] == '\n' || log[n - 1] == ' ')) n--;
    return device_fail(d, e, code, "loading kernel %s%s%s%s%.*s", k->symbol, help[0] ? ": " : "", help,
                       n ? "; the driver says: " : "", (int)(n > 2000 ? 2000 : n), log);
}

static cu_result load_image(rt_device *d, const void *image, char *log, cu_module *out) {
    int option[] = {CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BYTES};
    void *value[] = {log, (void *)(uintptr_t)LOG_ROOM};
    log[0] = 0;
    return d->cu->cuModuleLoadDataEx(out, image, 2, option, value);
}

/* Machine code of the kernel by the driver's linker, by fu_malloc; NULL: the driver makes none, and loading the text
 * says why. */
static void *link_ptx(rt_device *d, const rt_kernel *k, char *log, size_t *bytes_out) {
    const rt_cuda_api *cu = d->cu;
    if (!cu->cuLinkCreate_v2 || !cu->cuLinkAddData_v2 || !cu->cuLinkComplete || !cu->cuLinkDestroy) return NULL;
    int option[] = {CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BYTES};
    void *value[] = {log, (void *)(uintptr_t)LOG_ROOM}, *made = NULL, *copy = NULL;
    cu_link link;
    size_t bytes = 0;
    if (cu->cuLinkCreate_v2(2, option, value, &link) != CU_OK) return NULL;
    void *text = (void *)(uintptr_t)k->ptx; /* read only */
    cu_result code = cu->cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, text, k->ptx_bytes + 1, k->symbol, 0, NULL, NULL);
    if (code == CU_OK) code = cu->cuLinkComplete(link, &made, &bytes);
    if (code == CU_OK && bytes) copy = fu_malloc(bytes); /* what was made is the link's */
    if (copy) memcpy(copy, made, bytes);
    cu->cuLinkDestroy(link);
    *bytes_out = bytes;
    return copy;
}

/* The cubin that is kept, else one that is kept from now on, else the text itself. */
static cu_result load_module(device_kernel *m, char *log) {
    rt_device *d = m->device;
    const rt_kernel *k = m->kernel;
    size_t bytes;
    void *cubin = rt_cubin_read(k->cubins, k->key, k->ptx, k->ptx_bytes, &d->driver, &bytes);
    cu_result code = CU_INVALID_IMAGE;
    if (cubin) {
        code = load_image(d, cubin, log, &m->module);
        m->shown.is_from_cubin = code == CU_OK;
        if (code != CU_OK) rt_cubin_drop(k->cubins, k->key, &d->driver);
    } else if (rt_cubins_may_write(k->cubins)) {
        cubin = link_ptx(d, k, log, &bytes);
        if (cubin) code = load_image(d, cubin, log, &m->module);
        if (code == CU_OK) rt_cubin_write(k->cubins, k->key, k->ptx, k->ptx_bytes, &d->driver, cubin, bytes);
    }
    fu_free(cubin);
    return code == CU_OK ? CU_OK : load_image(d, k->ptx, log, &m->module);
}

static int function_attribute(const device_kernel *m, int which) {
    int value = 0;
    return m->device->cu->cuFuncGetAttribute(&value, which, m->function) == CU_OK ? value : 0;
}

static fusor_status load(device_kernel *m, fu_error *e, char *log) {
    rt_device *d = m->device;
    rt_kernel *k = m->kernel;
    int64_t start = fu_now_ns();
    cu_result code = load_module(m, log);
    if (code != CU_OK) return refuse(d, e, k, code, log);
    code = d->cu->cuModuleGetFunction(&m->function, m->module, k->symbol);
    if (code != CU_OK) {
        d->cu->cuModuleUnload(m->module);
        return device_fail(d, e, code, "finding %s in its module", k->symbol);
    }
    m->shown.registers = function_attribute(m, CU_FUNC_REGISTERS);
    m->shown.shared_bytes = function_attribute(m, CU_FUNC_SHARED_BYTES);
    m->shown.local_bytes = function_attribute(m, CU_FUNC_LOCAL_BYTES);
    m->shown.load_ns = fu_now_ns() - start;
    atomic_store(&m->allowed_shared_bytes, DEFAULT_SHARED - m->shown.shared_bytes);
    return FUSOR_OK;
}

static fusor_status load_on_device(device_kernel *m, fu_error *e) {
    FU_TRY(device_enter(m->device, e));
    char *log = fu_malloc(LOG_ROOM);
    fusor_status s =
        log ? load(m, e, log) : FU_FAIL(e, FUSOR_ERROR_MEMORY, "kernel %s: no memory to load it", m->kernel->symbol);
    fu_free(log);
    device_leave(m->device);
    return s;
}

/* The driver allows 48 KB unless told so. All that the device has, once: queues that set it in turns would not. */
fusor_status device_kernel_allow_shared(device_kernel *k, fu_error *e, uint32_t bytes) {
    rt_device *d = k->device;
    if ((int64_t)bytes <= atomic_load_explicit(&k->allowed_shared_bytes, memory_order_relaxed)) return FUSOR_OK;
    int most = d->info.shared_bytes - k->shown.shared_bytes;
    if ((int64_t)bytes > most)
        return FU_FAIL(e, FUSOR_ERROR_DEVICE,
                       "cuda:%d (%s): kernel %s wants %u bytes of dynamic shared memory; a block has %d",
                       d->info.ordinal, d->info.name, k->kernel->symbol, bytes, most);
    cu_result code = d->cu->cuFuncSetAttribute(k->function, CU_FUNC_MAX_DYNAMIC_SHARED, most);
    if (code != CU_OK) return device_fail(d, e, code, "allowing %s %d bytes of shared memory", k->kernel->symbol, most);
    atomic_store_explicit(&k->allowed_shared_bytes, most, memory_order_relaxed);
    return FUSOR_OK;
}

/* ---- the table; under kernel_lock ---- */
static device_kernel **bucket_of(rt_device *d, const rt_kernel *k) { return &d->modules[k->key[0] % MODULE_BUCKETS]; }

static device_kernel *find(rt_device *d, const rt_kernel *k) {
    for (device_kernel *m = *bucket_of(d, k); m; m = m->next)
        if (m->kernel == k || (memcmp(m->kernel->key, k->key, IR_KEY_BYTES) == 0 &&
                               m->kernel->description_bytes == k->description_bytes &&
                               memcmp(m->kernel->description, k->description, k->description_bytes) == 0))
            return m;
    return NULL;
}

static void take_out(rt_device *d, device_kernel *m) {
    for (device_kernel **p = bucket_of(d, m->kernel); *p; p = &(*p)->next)
        if (*p == m) {
            *p = m->next;
            return;
        }
}

static device_kernel *longest_unused(rt_device *d) {
    device_kernel *oldest = NULL;
    for (int b = 0; b < MODULE_BUCKETS; b++)
        for (device_kernel *m = d->modules[b]; m; m = m->next)
            if (!m->refs && !m->is_loading && (!oldest || m->used < oldest->used)) oldest = m;
    return oldest;
}

/* Waits while another thread loads it; NULL: it is ours to load, and *out_new is in the table, or there is no
 * memory. */
static device_kernel *find_or_begin(rt_device *d, rt_kernel *k, device_kernel **out_new) {
    device_kernel *m;
    *out_new = NULL;
    while ((m = find(d, k)) != NULL && m->is_loading) pthread_cond_wait(&d->landed, &d->kernel_lock);
    if (m) {
        d->n_unused -= m->refs++ == 0;
        return m;
    }
    m = fu_calloc(1, sizeof *m);
    if (!m) return NULL;
    m->device = d;
    m->kernel = rt_kernel_keep(k);
    m->is_loading = true;
    m->refs = 1;
    m->next = *bucket_of(d, k);
    *bucket_of(d, k) = m;
    *out_new = m;
    return NULL;
}

fusor_status rt_device_kernel_get(rt_device *d, fu_error *e, rt_kernel *k, rt_device_kernel **out) {
    FU_TRY(device_check(d, e));
    if (!k->ptx)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "kernel %s is for a CPU; cuda:%d takes PTX", k->symbol,
                       d->info.ordinal);
    device_kernel *mine;
    pthread_mutex_lock(&d->kernel_lock);
    device_kernel *m = find_or_begin(d, k, &mine);
    pthread_mutex_unlock(&d->kernel_lock);
    if (!m && !mine) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "kernel %s: no memory to load it", k->symbol);
    if (mine) {
        fusor_status s = load_on_device(mine, e);
        pthread_mutex_lock(&d->kernel_lock);
        mine->is_loading = false;
        if (s != FUSOR_OK) take_out(d, mine);
        pthread_cond_broadcast(&d->landed);
        pthread_mutex_unlock(&d->kernel_lock);
        if (s != FUSOR_OK) {
            rt_kernel_release(mine->kernel);
            fu_free(mine);
            return s;
        }
        m = mine;
    }
    *out = &m->shown;
    return FUSOR_OK;
}

void rt_device_kernel_release(rt_device_kernel *shown) {
    device_kernel *m = (device_kernel *)shown, *leaves = NULL;
    if (!m || rt_cuda_is_forked()) return;
    rt_device *d = m->device;
    pthread_mutex_lock(&d->kernel_lock);
    if (--m->refs == 0) {
        m->used = ++d->clock;
        if (++d->n_unused > MAX_UNUSED && (leaves = longest_unused(d)) != NULL) {
            take_out(d, leaves);
            d->n_unused--;
        }
    }
    pthread_mutex_unlock(&d->kernel_lock);
    if (!leaves) return;
    if (device_enter_quietly(d)) {
        device_note(d, d->cu->cuModuleUnload(leaves->module));
        device_leave(d);
    }
    rt_kernel_release(leaves->kernel);
    fu_free(leaves);
}
