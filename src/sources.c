/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* sources.c: loads the parameters that have a source and binds them. */
#include "sources.h"
#include "rt/data.h"
#include <stdio.h>

char *source_path(fu_arena *a, const char *program, const char *path) {
    const char *slash = program && program[0] != '<' ? strrchr(program, '/') : NULL;
    if (path[0] == '/' || !slash) return fu_strdup(a, path);
    return fu_format(a, "%.*s/%s", (int)(slash - program), program, path);
}

/* The value of a source that is written in the text, as a tensor of the parameter's shape. */
static fusor_status written_value(fu_error *e, fu_arena *a, const ir_graph *g, const ir_param *p, fusor_buffer *b) {
    const ir_node *n = ir_at(g, p->node);
    int64_t count = 1, given = 1;
    memset(b, 0, sizeof *b);
    b->dtype = n->dtype;
    b->rank = n->rank;
    for (int d = 0; d < p->value_rank; d++) given *= p->value_dim[d];
    for (int d = 0; d < n->rank; d++) {
        if (p->value_rank == n->rank) b->shape[d] = p->value_dim[d];
        else if (!ir_size_is_const(g->sizes, n->dim[d], &b->shape[d]))
            return FU_FAIL_AT(e, FUSOR_ERROR_SHAPE, g->source, p->source_loc,
                              "parameter %%%s is filled with a number, so its sizes must be known; pass %%%s or write "
                              "its sizes as integers",
                              p->name, p->name);
        count *= b->shape[d];
    }
    size_t bytes = ir_dtypes[n->dtype].bytes;
    char *data = fu_alloc_n(a, (size_t)count + 1, bytes);
    for (int64_t i = 0; i < count; i++)
        memcpy(data + (size_t)i * bytes, &p->value[given == 1 ? 0 : i], bytes); /* little endian */
    b->data = data;
    return FUSOR_OK;
}

typedef struct loaded {
    int n;
    int *param;
    fusor_buffer *value;
    rt_data *data;
} loaded;

static fusor_status load_all(fu_error *e, fu_arena *a, const ir_graph *g, const char *program, loaded *l) {
    for (uint32_t i = 0; i < g->params.n; i++) {
        const ir_param *p = &g->params.at[i];
        if (!p->path && !p->has_value) continue;
        for (uint32_t r = 0; r < g->results.n; r++)
            if (g->results.at[r].alias == (int)i)
                return FU_FAIL_AT(e, FUSOR_ERROR_ARGUMENT, g->source, p->source_loc,
                                  "parameter %%%s has a source and is written over by result %%%s; "
                                  "fusor_module_compile with FUSOR_KEEP_SOURCES leaves it an input to pass",
                                  p->name, g->results.at[r].name);
        l->param[l->n] = (int)i;
        if (p->has_value) {
            FU_TRY(written_value(e, a, g, p, &l->value[l->n]));
        } else {
            fu_error *own = FU_NEW(a, fu_error);
            fusor_status status =
                rt_data_read(own, source_path(a, program, p->path), ir_at(g, p->node)->dtype, &l->data[l->n]);
            if (status != FUSOR_OK)
                return FU_FAIL_AT(e, status, g->source, p->source_loc, "source of parameter %%%s: %s", p->name,
                                  own->text);
            l->value[l->n] = l->data[l->n].buffer;
        }
        l->n++;
    }
    return FUSOR_OK;
}

fusor_status sources_bind(fu_error *e, rt_exec *x, const char *program, rt_exec **out) {
    const ir_graph *g = rt_exec_plan(x)->graph;
    fu_arena arena;
    jmp_buf oom;
    loaded l = {0};
    size_t room = (size_t)g->params.n + 1;
    bool any = false;
    for (uint32_t i = 0; i < g->params.n; i++) any |= g->params.at[i].path != NULL || g->params.at[i].has_value;
    if (!any) {
        *out = rt_exec_keep(x);
        return FUSOR_OK;
    }
    rt_data *volatile data = fu_calloc(room, sizeof *data); /* outside the arena: freed after a jump too */
    if (!data) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "out of memory while loading sources");
    fu_arena_init(&arena, &oom);
    fusor_status status;
    if (setjmp(oom)) {
        status = FU_FAIL(e, FUSOR_ERROR_MEMORY, "out of memory while loading sources");
    } else {
        l = (loaded){0, FU_NEW_N(&arena, int, room), FU_NEW_N(&arena, fusor_buffer, room), data};
        status = load_all(e, &arena, g, program, &l);
        if (status == FUSOR_OK) status = rt_exec_bind(x, e, l.n, l.param, l.value, out);
    }
    for (size_t i = 0; i < room; i++) rt_data_free(&data[i]);
    fu_free(data);
    fu_arena_free(&arena);
    return status;
}
