/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* module.c: modules as C sees them: parsed from text or files, printed, freed. fusor_module_compile is in api.c;
 * functions that are built rather than parsed are in builder.c. */
#include "base/small.h"
#include "base/file.h"
#include "fusor/graph.h"
#include "op_call.h"
#include "rt/fpenv.h"
#include <errno.h>

enum { MAX_TEXT = 1 << 30 };

static fusor_module *module_new(fusor_context *ctx) {
    fusor_module *m = fu_calloc(1, sizeof *m);
    if (m) m->ctx = context_keep(ctx);
    return m;
}

static fusor_status parse(fu_error *e, const char *name, const char *text, size_t length, fusor_module *m) {
    jmp_buf oom;
    fu_arena_init(&m->arena, &oom);
    if (setjmp(oom)) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "out of memory while parsing");
    fusor_status status = ir_parse(&m->arena, e, name, text, length, &m->module);
    m->arena.oom = NULL;
    return status;
}

fusor_status fusor_module_parse(fusor_context *ctx, const char *name, const char *text, size_t length,
                                fusor_module **out) {
    fu_error e;
    if (!ctx) return context_refuse("fusor_module_parse: the context is NULL");
    fu_error_clear(&e);
    if (!out || (!text && length)) {
        FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_module_parse: text and out must not be NULL");
        return context_fail(ctx, &e);
    }
    fusor_module *m = module_new(ctx);
    rt_fpenv environment;
    rt_fpenv_enter(&environment); /* numbers are rounded */
    if (!m) FU_FAIL(&e, FUSOR_ERROR_MEMORY, "out of memory");
    else if (parse(&e, name ? name : "<text>", text, length, m) == FUSOR_OK) *out = m;
    else fusor_module_free(m);
    rt_fpenv_leave(&environment);
    return context_fail(ctx, &e);
}

fusor_status fusor_module_load(fusor_context *ctx, const char *path, fusor_module **out) {
    fu_error e;
    void *text = NULL;
    size_t length = 0;
    if (!ctx) return context_refuse("fusor_module_load: the context is NULL");
    fu_error_clear(&e);
    if (!path || !out) {
        FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_module_load: path and out must not be NULL");
        return context_fail(ctx, &e);
    }
    int error = fu_file_read(path, MAX_TEXT, &text, &length);
    if (error) {
        FU_FAIL(&e, error == ENOMEM ? FUSOR_ERROR_MEMORY : FUSOR_ERROR_IO, "%s: %s", path, strerror(error));
        return context_fail(ctx, &e);
    }
    fusor_status status = fusor_module_parse(ctx, strcmp(path, "-") == 0 ? NULL : path, text, length, out);
    fu_free(text);
    return status;
}

fusor_status fusor_module_new(fusor_context *ctx, fusor_module **out) {
    fu_error e;
    if (!ctx) return context_refuse("fusor_module_new: the context is NULL");
    fu_error_clear(&e);
    if (!out) {
        FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_module_new: out must not be NULL");
        return context_fail(ctx, &e);
    }
    fusor_module *m = module_new(ctx);
    jmp_buf oom;
    if (m) {
        fu_arena_init(&m->arena, &oom);
        if (setjmp(oom) == 0) {
            m->module = FU_NEW(&m->arena, ir_module);
            m->module->arena = &m->arena;
            m->module->source = (fu_source){"<built>", NULL, 0};
            m->arena.oom = NULL;
            *out = m;
            return FUSOR_OK;
        }
        fusor_module_free(m);
    }
    FU_FAIL(&e, FUSOR_ERROR_MEMORY, "out of memory");
    return context_fail(ctx, &e);
}

static char *print(const fusor_module *module, fu_arena *arena) {
    fu_str text;
    fu_str_init(&text, arena);
    ir_print_module(&text, module->module);
    char *copy = fu_malloc(text.n + 1);
    if (copy) memcpy(copy, text.at, text.n + 1);
    return copy;
}

fusor_status fusor_module_print(const fusor_module *module, char **text_out) {
    fu_error e;
    fu_arena arena;
    jmp_buf oom;
    if (!module) return context_refuse("fusor_module_print: the module is NULL");
    fu_error_clear(&e);
    if (!text_out) {
        FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_module_print: text_out must not be NULL");
        return context_fail(module->ctx, &e);
    }
    rt_fpenv environment;
    rt_fpenv_enter(&environment); /* as many digits as read back */
    fu_arena_init(&arena, &oom);
    char *text = setjmp(oom) ? NULL : print(module, &arena);
    fu_arena_free(&arena);
    rt_fpenv_leave(&environment);
    if (!text) {
        FU_FAIL(&e, FUSOR_ERROR_MEMORY, "out of memory");
        return context_fail(module->ctx, &e);
    }
    *text_out = text;
    return FUSOR_OK;
}

void fusor_module_free(fusor_module *module) {
    if (!module) return;
    if (module->builder) builder_free(module->builder);
    fusor_context *ctx = module->ctx;
    fu_arena_free(&module->arena);
    fu_free(module);
    fusor_context_free(ctx);
}
