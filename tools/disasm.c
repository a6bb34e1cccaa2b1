/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* disasm.c: machine code beside the lines of the kernel's description that it comes from. */
#include "disasm.h"
#include <stdlib.h>

/* Moves between a register and the frame: what did not fit the registers. */
static bool is_spill(const char *text, bool *is_store) {
    const char *frame = strstr(text, "(%rsp)");
    if (!strstr(text, "mov") || !frame) return false;
    *is_store = frame[6] == 0;
    return true;
}

disasm_counts disasm_interleave(tool *t, fu_str *out, const char *text, const char *description,
                                const fusor_codegen_line *lines, size_t n_lines, json_t *instructions) {
    tool_words rows = {0};
    disasm_counts n = {0};
    size_t at_row = 0;
    uint32_t line = 0, shown = 0;
    for (const char *p = description; *p; p += strcspn(p, "\n"), p += *p == '\n')
        fu_push(&t->arena, &rows, fu_strndup(&t->arena, p, strcspn(p, "\n")));
    for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        char *code, *row = fu_strndup(&t->arena, p, strcspn(p, "\n"));
        unsigned long offset = strtoul(row, &code, 16);
        bool is_store;
        code += *code == ':';
        while (at_row < n_lines && lines[at_row].offset <= offset) line = lines[at_row++].line;
        if (is_spill(code, &is_store)) *(is_store ? &n.stores : &n.loads) += 1;
        n.instructions++;
        while (*code == '\t' || *code == ' ') code++;
        if (instructions)
            (void)json_array_append_new(instructions, json_pack("{s:I, s:I, s:s}", "offset", (json_int_t)offset, "line",
                                                                (json_int_t)line, "text", code));
        if (line != shown && line && line <= rows.n) fu_str_addf(out, "; %u: %s\n", line, rows.at[line - 1]);
        shown = line;
        fu_str_addf(out, "%s\n", row);
    }
    return n;
}

static void *allocate(void *user, size_t bytes) { return fu_alloc(user, bytes ? bytes : 1); }

/* False: *problem_out says why not. */
static bool generate(tool *t, const fusor_codegen_table *module, fusor_codegen_request *q, fusor_codegen_result *r,
                     const char **problem_out) {
    q->version = FUSOR_CODEGEN_VERSION;
    q->allocate = allocate;
    q->user = &t->arena;
    *r = (fusor_codegen_result){0};
    if (module->generate(q, r) == 0) return true;
    *problem_out = fu_strdup(&t->arena, r->error);
    return false;
}

const char *disasm_llvm(tool *t, const fusor_codegen_table *module, const char *description, const char *symbol,
                        const char **problem_out) {
    fusor_codegen_request q = {.stage = FUSOR_CODEGEN_LLVM,
                               .description = description,
                               .description_bytes = strlen(description),
                               .symbol = symbol};
    fusor_codegen_result r;
    return generate(t, module, &q, &r, problem_out) ? r.data : NULL;
}

const char *disasm_code(tool *t, const fusor_codegen_table *module, const char *description, const char *symbol,
                        disasm_counts *counts_out, const char **problem_out) {
    fusor_codegen_request q = {.stage = FUSOR_CODEGEN_BLOB,
                               .description = description,
                               .description_bytes = strlen(description),
                               .symbol = symbol,
                               .options = FUSOR_CODEGEN_LINES};
    fusor_codegen_result blob, text;
    if (!generate(t, module, &q, &blob, problem_out)) return NULL;
    q.stage = FUSOR_CODEGEN_DISASM;
    q.options = 0;
    q.blob = blob.data;
    q.blob_bytes = blob.code_bytes && blob.code_bytes <= blob.bytes ? blob.code_bytes : blob.bytes;
    if (!generate(t, module, &q, &text, problem_out)) return NULL;
    fu_str out;
    fu_str_init(&out, &t->arena);
    *counts_out = disasm_interleave(t, &out, text.data, description, blob.lines,
                                    blob.lines_bytes / sizeof(fusor_codegen_line), NULL);
    return out.at;
}
