/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* fake_module.c: modules are PTX, or what the fake linker makes of it ("FAKECUBIN", a head, the text); launches run
 * them in the interpreter when their stream comes to them. The parameters are copied at the call. */
#include "fake_cuda.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cu_function_st {
    struct cu_function_st *next;
    struct cu_module_st *module;
    const ptx_entry *entry;
    int max_dynamic;
};
struct cu_module_st {
    struct cu_module_st *next;
    fake_context *context;
    ptx_module *ptx;
    struct cu_function_st *functions;
};
struct cu_link_st {
    struct cu_link_st *next;
    fake_context *context;
    char *log;
    size_t log_room;
    void **log_size;
    char *text; /* PTX that was added */
    uint8_t *cubin;
};
typedef struct cubin_head {
    char magic[16];
    uint32_t cc, bytes, sum, head_sum; /* of the text; of the head up to here */
} cubin_head;
static struct cu_module_st *modules;
static struct cu_link_st *links;
static const char magic[16] = "\x7f"
                              "FAKECUBIN";

static uint32_t sum_of(const void *data, size_t bytes) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ ((const uint8_t *)data)[i]) * 16777619u;
    return h;
}

/* ---- the just-in-time compiler ---- */
static void *option(unsigned n, const int *options, void **values, int wanted, int *at) {
    for (unsigned i = 0; i < n; i++)
        if (options[i] == wanted) {
            if (at) *at = (int)i;
            return values[i];
        }
    return NULL;
}

/* Into the caller's buffer of the error log; its used size goes back in the options. */
static void write_log(unsigned n, const int *options, void **values, const char *text) {
    int at = -1;
    char *log = option(n, options, values, CU_JIT_ERROR_LOG, NULL);
    size_t room = (size_t)(uintptr_t)option(n, options, values, CU_JIT_ERROR_LOG_BYTES, &at);
    if (at < 0) return;
    if (log && room) snprintf(log, room, "%s", text);
    size_t used = log && room ? strlen(log) + 1 : 0;
    values[at] = (void *)(uintptr_t)(*text ? used : 0);
}

static cu_result compile(const fake_context *c, const char *text, ptx_module **out, char why[PTX_ERROR_ROOM]) {
    int cc = c->device->cc;
    const char *version = strstr(text, ".version");
    int major = 0, minor = 0;
    /* checked before the rest, which a newer version may write in ways that are not known */
    if (version && sscanf(version, ".version %d.%d", &major, &minor) == 2 && 10 * major + minor > fake_set.ptx) {
        snprintf(why, PTX_ERROR_ROOM,
                 "ptxas application ptx input; Unsupported .version %d.%d; current version is '%d.%d'", major, minor,
                 fake_set.ptx / 10, fake_set.ptx % 10);
        return CU_UNSUPPORTED_PTX_VERSION;
    }
    *out = ptx_parse(text, why);
    if (!*out) return CU_INVALID_PTX;
    bool fits = (*out)->is_for_one ? (*out)->target == cc : (*out)->target <= cc;
    if (!fits) {
        snprintf(why, PTX_ERROR_ROOM, "PTX for sm_%d%s does not run on compute capability %d.%d", (*out)->target,
                 (*out)->is_for_one ? "a" : "", cc / 10, cc % 10);
        ptx_free(*out);
        *out = NULL;
        return CU_NO_BINARY_FOR_GPU;
    }
    for (int i = 0; i < (*out)->n_entries; i++)
        if ((*out)->entry[i].shared_bytes > FAKE_MAX_STATIC || (*out)->entry[i].param_bytes > 4096) {
            snprintf(why, PTX_ERROR_ROOM,
                     "Entry function '%s' uses too much shared data (%llu bytes) or parameters (%llu bytes)",
                     (*out)->entry[i].name, (unsigned long long)(*out)->entry[i].shared_bytes,
                     (unsigned long long)(*out)->entry[i].param_bytes);
            ptx_free(*out);
            *out = NULL;
            return CU_INVALID_PTX;
        }
    return CU_OK;
}

/* The text in a cubin of the fake linker. */
static cu_result open_cubin(const fake_context *c, const void *image, const char **text, char why[PTX_ERROR_ROOM]) {
    cubin_head h;
    memcpy(&h, image, sizeof h);
    snprintf(why, PTX_ERROR_ROOM, "a damaged cubin");
    if (h.head_sum != sum_of(&h, offsetof(cubin_head, head_sum))) return CU_INVALID_IMAGE;
    *text = (const char *)image + sizeof h;
    if (h.sum != sum_of(*text, h.bytes) || (*text)[h.bytes - 1]) return CU_INVALID_IMAGE;
    snprintf(why, PTX_ERROR_ROOM, "a cubin for compute capability %u.%u", h.cc / 10, h.cc % 10);
    int cc = c->device->cc;
    return (int)h.cc / 10 == cc / 10 && (int)h.cc <= cc ? CU_OK : CU_NO_BINARY_FOR_GPU;
}

/* ---- modules ---- */
cu_result cuModuleLoadDataEx(cu_module *module, const void *image, unsigned n, int *options, void **values) {
    CALL(cuModuleLoadDataEx, CONTEXT);
    char why[PTX_ERROR_ROOM] = "";
    const char *text = image;
    ptx_module *ptx = NULL;
    if (!module || !image || (n && (!options || !values))) return CU_INVALID_VALUE;
    cu_result r = CU_OK;
    bool is_cubin = *(const char *)image == *magic; /* as ELF begins */
    if (is_cubin)
        r = memcmp(image, magic, sizeof magic) == 0 ? open_cubin(call.context, image, &text, why) : CU_INVALID_IMAGE;
    if (!r) r = compile(call.context, text, &ptx, why);
    if (is_cubin && r == CU_INVALID_PTX) r = CU_INVALID_IMAGE;
    write_log(n, options, values, r ? why : "");
    if (r) return fake_say(r, "cuModuleLoadDataEx: %s", why);
    *module = calloc(1, sizeof **module);
    if (!*module) return ptx_free(ptx), CU_OUT_OF_MEMORY;
    (*module)->context = call.context;
    (*module)->ptx = ptx;
    (*module)->next = modules;
    modules = *module;
    return CU_OK;
}

static cu_result check_module(cu_module module) {
    const struct cu_module_st *m = modules;
    while (m && m != module) m = m->next;
    return m ? CU_OK : fake_say(CU_INVALID_HANDLE, "%p is no module, or an unloaded one", (void *)module);
}

static bool uses_module(const fake_work *w, const void *what) {
    return w->kind == FAKE_LAUNCH && w->function->module == what;
}

cu_result cuModuleUnload(cu_module module) {
    CALL(cuModuleUnload, CONTEXT);
    int stream;
    cu_result r = check_module(module);
    if (r) return r;
    if (fake_is_pending(uses_module, module, &stream))
        return fake_kill(call.context, CU_LAUNCH_FAILED, "cuModuleUnload of a module that stream %d has still to run",
                         stream);
    for (struct cu_module_st **at = &modules; *at; at = &(*at)->next)
        if (*at == module) {
            *at = module->next;
            break;
        }
    while (module->functions) {
        struct cu_function_st *f = module->functions;
        module->functions = f->next;
        free(f);
    }
    ptx_free(module->ptx);
    free(module);
    return CU_OK;
}

cu_result cuModuleGetFunction(cu_function *function, cu_module module, const char *name) {
    CALL(cuModuleGetFunction, CONTEXT);
    if (!function || !name) return CU_INVALID_VALUE;
    cu_result r = check_module(module);
    if (r) return r;
    const ptx_entry *e = ptx_find(module->ptx, name);
    if (!e) return fake_say(CU_NOT_FOUND, "the module has no entry '%s'", name);
    for (*function = module->functions; *function; *function = (*function)->next)
        if ((*function)->entry == e) return CU_OK;
    *function = calloc(1, sizeof **function);
    if (!*function) return CU_OUT_OF_MEMORY;
    (*function)->module = module;
    (*function)->entry = e;
    (*function)->next = module->functions;
    module->functions = *function;
    return CU_OK;
}

static cu_result check_function(cu_function function) {
    for (const struct cu_module_st *m = modules; m; m = m->next)
        for (const struct cu_function_st *f = m->functions; f; f = f->next)
            if (f == function) return CU_OK;
    return fake_say(CU_INVALID_HANDLE, "%p is no function, or one of an unloaded module", (void *)function);
}

cu_result cuFuncGetAttribute(int *value, int attribute, cu_function function) {
    CALL(cuFuncGetAttribute, CONTEXT);
    cu_result r = value ? check_function(function) : CU_INVALID_VALUE;
    if (r) return r;
    const ptx_entry *e = function->entry;
    switch (attribute) {
    case CU_FUNC_MAX_THREADS_PER_BLOCK: *value = e->max_threads ? e->max_threads : 1024; break;
    case CU_FUNC_SHARED_BYTES: *value = (int)e->shared_bytes; break;
    case CU_FUNC_LOCAL_BYTES: *value = (int)e->local_bytes; break;
    case CU_FUNC_REGISTERS: *value = 32; break; /* nobody allocates any here */
    case CU_FUNC_PTX_VERSION: *value = function->module->ptx->version; break;
    case CU_FUNC_MAX_DYNAMIC_SHARED: *value = function->max_dynamic; break;
    default: return CU_INVALID_VALUE;
    }
    return CU_OK;
}

cu_result cuFuncSetAttribute(cu_function function, int attribute, int value) {
    CALL(cuFuncSetAttribute, CONTEXT);
    cu_result r = check_function(function);
    if (r) return r;
    if (attribute != CU_FUNC_MAX_DYNAMIC_SHARED || value < 0) return CU_INVALID_VALUE;
    if ((int64_t)function->entry->shared_bytes + value > fake_limit_of_shared(call.context->device->cc))
        return fake_say(CU_INVALID_VALUE, "%d bytes of dynamic and %llu of static shared memory, of %d", value,
                        (unsigned long long)function->entry->shared_bytes,
                        fake_limit_of_shared(call.context->device->cc));
    function->max_dynamic = value;
    return CU_OK;
}

cu_result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, cu_function function, int threads,
                                                      size_t shared_bytes) {
    CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, CONTEXT);
    cu_result r = blocks && threads > 0 ? check_function(function) : CU_INVALID_VALUE;
    if (r) return r;
    size_t shared = function->entry->shared_bytes + shared_bytes;
    int by_threads = 2048 / ((threads + 31) / 32 * 32),
        by_shared = shared ? fake_limit_of_shared(call.context->device->cc) / (int)shared : 32;
    *blocks = by_threads < by_shared ? by_threads : by_shared;
    return CU_OK;
}

/* ---- launches ---- */
static cu_result check_launch(const struct cu_function_st *f, const uint32_t *grid, const uint32_t *block,
                              uint32_t shared) {
    static const uint32_t grid_max[3] = {0x7fffffff, 65535, 65535}, block_max[3] = {1024, 1024, 64};
    const ptx_entry *e = f->entry;
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    int limit = f->max_dynamic > FAKE_MAX_STATIC - (int)e->shared_bytes ? f->max_dynamic
                                                                        : FAKE_MAX_STATIC - (int)e->shared_bytes;
    for (int i = 0; i < 3; i++) {
        if (!grid[i] || grid[i] > grid_max[i])
            return fake_say(CU_INVALID_VALUE, "%s: a grid of %u,%u,%u blocks", e->name, grid[0], grid[1], grid[2]);
        if (!block[i] || block[i] > block_max[i] || threads > 1024)
            return fake_say(CU_INVALID_VALUE, "%s: a block of %u,%u,%u threads", e->name, block[0], block[1], block[2]);
        if (e->required[0] && (int)block[i] != e->required[i])
            return fake_say(CU_INVALID_VALUE, "%s: a block of %u,%u,%u threads, not .reqntid %d,%d,%d", e->name,
                            block[0], block[1], block[2], e->required[0], e->required[1], e->required[2]);
    }
    if (e->max_threads && threads > (uint64_t)e->max_threads)
        return fake_say(CU_INVALID_VALUE, "%s: %llu threads of a block, .maxntid is %d", e->name,
                        (unsigned long long)threads, e->max_threads);
    if ((int64_t)shared > limit)
        return fake_say(CU_INVALID_VALUE,
                        "%s: %u bytes of dynamic shared memory, %d at most: cuFuncSetAttribute allows more", e->name,
                        shared, limit);
    return CU_OK;
}

cu_result cuLaunchKernel(cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                         unsigned block_y, unsigned block_z, unsigned shared_bytes, cu_stream stream, void **params,
                         void **extra) {
    CALL(cuLaunchKernel, CONTEXT);
    fake_stream *s = fake_stream_of(&call, stream);
    if (!s) return call.result;
    cu_result r = check_function(function);
    if (r) return r;
    const ptx_entry *e = function->entry;
    if (function->module->context != call.context)
        return fake_say(CU_INVALID_HANDLE, "%s is of another context", e->name);
    fake_work w = {.kind = FAKE_LAUNCH,
                   .function = function,
                   .grid = {grid_x, grid_y, grid_z},
                   .block = {block_x, block_y, block_z},
                   .shared = shared_bytes};
    r = check_launch(function, w.grid, w.block, shared_bytes);
    if (r) return r;
    if (extra || (e->n_params && !params))
        return fake_say(CU_INVALID_VALUE, "%s: its parameters are not in `params`", e->name);
    w.params = calloc(e->param_bytes + 1, 1);
    if (!w.params) return CU_OUT_OF_MEMORY;
    for (int i = 0; i < e->n_params; i++) memcpy(w.params + e->param[i].offset, params[i], e->param[i].bytes);
    return fake_put(&call, s, w);
}

typedef struct running {
    fake_device *device;
    char why[PTX_ERROR_ROOM];
} running;

static void *at(void *user, uint64_t address, uint64_t bytes, bool is_write) {
    running *r = user;
    (void)is_write;
    return fake_memory_at(r->device, address, bytes, r->why);
}

cu_result fake_module_launch(fake_context *c, const fake_work *w) {
    running r = {.device = c->device};
    char why[PTX_ERROR_ROOM];
    ptx_launch l = {.module = w->function->module->ptx,
                    .entry = w->function->entry,
                    .dynamic_shared = w->shared,
                    .params = w->params,
                    .memory = at,
                    .user = &r,
                    .is_reversed = fake_set.order == FAKE_REVERSE};
    memcpy(l.grid, w->grid, sizeof l.grid);
    memcpy(l.block, w->block, sizeof l.block);
    if (ptx_run(&l, why)) return CU_OK;
    cu_result code = *r.why                       ? CU_ILLEGAL_ADDRESS
                     : strstr(why, "not aligned") ? CU_MISALIGNED_ADDRESS
                     : strstr(why, "for ever")    ? CU_LAUNCH_TIMEOUT
                                                  : CU_LAUNCH_FAILED;
    return fake_kill(c, code, "%s%s%s", why, *r.why ? ": " : "", r.why);
}

/* ---- the linker ---- */
static cu_result check_link(cu_link link) {
    const struct cu_link_st *l = links;
    while (l && l != link) l = l->next;
    return l ? CU_OK : fake_say(CU_INVALID_HANDLE, "%p is no link, or a destroyed one", (void *)link);
}

cu_result cuLinkCreate_v2(unsigned n, int *options, void **values, cu_link *link) {
    CALL(cuLinkCreate_v2, CONTEXT);
    int size = -1;
    if (!link || (n && (!options || !values))) return CU_INVALID_VALUE;
    struct cu_link_st *l = *link = calloc(1, sizeof *l);
    if (!l) return CU_OUT_OF_MEMORY;
    l->context = call.context;
    l->log = option(n, options, values, CU_JIT_ERROR_LOG, NULL);
    l->log_room = (size_t)(uintptr_t)option(n, options, values, CU_JIT_ERROR_LOG_BYTES, &size);
    l->log_size = size >= 0 ? &values[size] : NULL; /* the caller keeps its options as long as the link */
    l->next = links;
    links = l;
    return CU_OK;
}

cu_result cuLinkAddData_v2(cu_link link, int type, void *data, size_t bytes, const char *name, unsigned n, int *options,
                           void **values) {
    CALL(cuLinkAddData_v2, CONTEXT);
    char why[PTX_ERROR_ROOM];
    ptx_module *ptx = NULL;
    (void)name, (void)n, (void)options, (void)values;
    cu_result r = check_link(link);
    if (r) return r;
    if (type != CU_JIT_INPUT_PTX || !data || !bytes || link->text) return CU_INVALID_VALUE;
    link->text = malloc(bytes + 1);
    if (!link->text) return CU_OUT_OF_MEMORY;
    memcpy(link->text, data, bytes);
    link->text[bytes] = 0;
    r = compile(link->context, link->text, &ptx, why);
    if (link->log && link->log_room) snprintf(link->log, link->log_room, "%s", r ? why : "");
    if (link->log_size)
        *link->log_size = (void *)(uintptr_t)(r && link->log && link->log_room ? strlen(link->log) + 1 : 0);
    ptx_free(ptx);
    return r ? fake_say(r, "cuLinkAddData: %s", why) : CU_OK;
}

cu_result cuLinkComplete(cu_link link, void **cubin, size_t *bytes) {
    CALL(cuLinkComplete, CONTEXT);
    cu_result r = check_link(link);
    if (r) return r;
    if (!cubin || !link->text || link->cubin) return CU_INVALID_VALUE;
    cubin_head h = {.cc = (uint32_t)link->context->device->cc, .bytes = (uint32_t)strlen(link->text) + 1};
    memcpy(h.magic, magic, sizeof magic);
    h.sum = sum_of(link->text, h.bytes);
    h.head_sum = sum_of(&h, offsetof(cubin_head, head_sum));
    link->cubin = malloc(sizeof h + h.bytes);
    if (!link->cubin) return CU_OUT_OF_MEMORY;
    memcpy(link->cubin, &h, sizeof h);
    memcpy(link->cubin + sizeof h, link->text, h.bytes);
    *cubin = link->cubin;
    if (bytes) *bytes = sizeof h + h.bytes;
    return CU_OK;
}

cu_result cuLinkDestroy(cu_link link) {
    CALL(cuLinkDestroy, CONTEXT);
    cu_result r = check_link(link);
    if (r) return r;
    for (struct cu_link_st **l = &links; *l; l = &(*l)->next)
        if (*l == link) {
            *l = link->next;
            break;
        }
    free(link->text);
    free(link->cubin);
    free(link);
    return CU_OK;
}

long fake_module_live(const char *kind) {
    long n = 0;
    if (strcmp(kind, "module") == 0)
        for (const struct cu_module_st *m = modules; m; m = m->next) n++;
    if (strcmp(kind, "link") == 0)
        for (const struct cu_link_st *l = links; l; l = l->next) n++;
    return n;
}
