/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cmd_cache_disasm.c: fusor cache disasm. The instructions of an entry, below the line of the description that they
 * come from. An entry without a line table is generated again with one; where that gives the same code, its table
 * serves. */
#include "cache_entries.h"
#include "disasm.h"
#include "ir/codegen_api.h"
#include "rt/compiler.h"
#include <inttypes.h>
#include <stdlib.h>

static void *allocate(void *user, size_t bytes) {
    (void)user;
    return malloc(bytes ? bytes : 1);
}

static fusor_codegen_request request_of(const cache_entry *e, fusor_codegen_stage stage) {
    return (fusor_codegen_request){.version = FUSOR_CODEGEN_VERSION,
                                   .stage = stage,
                                   .description = e->description,
                                   .description_bytes = strlen(e->description),
                                   .symbol = e->symbol,
                                   .allocate = allocate};
}

/* Rows of offset and line; NULL where there are none. */
static const fusor_codegen_line *find_lines(tool *t, const fusor_codegen_table *module, const cache_entry *e,
                                            size_t *n_out) {
    *n_out = e->lines ? (size_t)e->lines_bytes / sizeof(fusor_codegen_line) : 0;
    if (e->lines || !e->is_of_this_build) return e->lines;
    fusor_codegen_request q = request_of(e, FUSOR_CODEGEN_BLOB);
    fusor_codegen_result r = {0};
    const fusor_codegen_line *lines = NULL;
    q.options = FUSOR_CODEGEN_LINES;
    if (module->generate(&q, &r) == 0 && r.bytes == e->blob_bytes && memcmp(r.data, e->blob, r.bytes) == 0 &&
        r.lines_bytes) {
        lines = fu_dup(&t->arena, r.lines, r.lines_bytes);
        *n_out = r.lines_bytes / sizeof *lines;
    }
    free(r.data);
    free(r.lines);
    return lines;
}

/* A GPU's entry has no instructions, but the text that a driver makes them of. */
static int print_ptx(tool *t, const cache_entry *e) {
    const char *text = fu_strndup(&t->arena, e->blob, strnlen(e->blob, e->blob_bytes));
    if (t->json) {
        json_t *d = report_new("fusor-cache-disasm/1");
        (void)json_object_update_new(d, json_pack("{s:s, s:s, s:I, s:b, s:s}", "key", e->key, "symbol", e->symbol,
                                                  "code_bytes", (json_int_t)e->code_bytes, "has_lines", false, "ptx",
                                                  text));
        return report_print(t, d);
    }
    printf("# %s: %" PRIu64 " bytes of PTX for %s; the driver makes instructions of it\n", e->symbol, e->code_bytes,
           e->level);
    (void)fputs(text, stdout);
    return report_flush(t);
}

int cache_disasm(tool *t, const char *dir) {
    const cache_entry *e;
    const fusor_codegen_table *module;
    fu_error error;
    fu_error_clear(&error);
    int status = cache_find_key(t, dir, &e);
    if (status) return status;
    if (e->problem) {
        (void)tool_environment(t, "entry %s is bad: %s", e->key, e->problem);
        return EXIT_NO; /* as for show */
    }
    if (e->is_gpu) return print_ptx(t, e);
    if (rt_module_get(&error, &module) != FUSOR_OK) return tool_fail(t, &error);
    fusor_codegen_request request = request_of(e, FUSOR_CODEGEN_DISASM);
    request.blob = e->blob;
    request.blob_bytes = e->code_bytes && e->code_bytes <= e->blob_bytes ? e->code_bytes : e->blob_bytes;
    fusor_codegen_result result = {0};
    if (module->generate(&request, &result) != 0) {
        free(result.data);
        return tool_environment(t, "%s", result.error);
    }
    size_t n_lines;
    const fusor_codegen_line *rows = find_lines(t, module, e, &n_lines);
    fu_str out;
    fu_str_init(&out, &t->arena);
    json_t *instructions = t->json ? json_array() : NULL;
    const disasm_counts n = disasm_interleave(t, &out, result.data, e->description, rows, n_lines, instructions);
    free(result.data);
    if (t->json) {
        json_t *d = report_new("fusor-cache-disasm/1");
        (void)json_object_update_new(d, json_pack("{s:s, s:s, s:I, s:i, s:i, s:b, s:o}", "key", e->key, "symbol",
                                                  e->symbol, "code_bytes", (json_int_t)e->code_bytes, "spills",
                                                  n.stores, "reloads", n.loads, "has_lines", rows != NULL,
                                                  "instructions", instructions));
        return report_print(t, d);
    }
    printf("# %s: %" PRIu64 " bytes of code, %d instructions, %d stores to the frame and %d loads from it%s\n",
           e->symbol, e->code_bytes, n.instructions, n.stores, n.loads, rows ? "" : "; no line table");
    (void)fwrite(out.at, 1, out.n, stdout);
    return report_flush(t);
}
