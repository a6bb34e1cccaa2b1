/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ast.c: what a tree collects while it is made and built: diagnostics, and words, one of each. */
#include "base/small.h"
#include "ir/ast.h"
#include <string.h>

/* ---- diagnostics ---- */

void ast_report(ast *m, fu_loc loc) {
    fu_error *e = m->scratch;
    if (e->n && m->n_diagnostics < 2 * FU_ERROR_MAX_DIAGNOSTICS) {
        ast_diagnostic *d = &m->diagnostic[m->n_diagnostics++];
        *d = (ast_diagnostic){e->status,      loc,       e->source_file,
                              e->source_line, e->length, fu_strndup(m->arena, e->text, e->length)};
        m->n_phase++;
    }
    fu_error_clear(e);
}

static bool is_before(fu_loc a, fu_loc b) { return a.line != b.line ? a.line < b.line : a.col < b.col; }

void ast_report_all(ast *m, fu_error *e) {
    for (int i = 1; i < m->n_diagnostics; i++) {
        ast_diagnostic d = m->diagnostic[i];
        int k = i;
        for (; k > 0 && is_before(d.loc, m->diagnostic[k - 1].loc); k--) m->diagnostic[k] = m->diagnostic[k - 1];
        m->diagnostic[k] = d;
    }
    if (e->n) return;
    e->length = 0;
    for (int i = 0; i < m->n_diagnostics && e->n < FU_ERROR_MAX_DIAGNOSTICS; i++) {
        const ast_diagnostic *d = &m->diagnostic[i];
        if (e->length + d->length + 2 > FU_ERROR_TEXT_MAX) break;
        if (e->n++ == 0) {
            e->status = d->status;
            e->source_file = d->file;
            e->source_line = d->line;
        } else {
            e->text[e->length++] = '\n';
        }
        memcpy(e->text + e->length, d->text, d->length);
        e->length += d->length;
        e->text[e->length] = 0;
    }
}

/* ---- words ---- */

ast_word ast_intern(ast *m, const char *at, size_t n) {
    uint64_t h = fu_hash(at, n, 0);
    for (uint32_t i = fu_map_find(&m->word_map, h); i != UINT32_MAX; i = fu_map_next(&m->word_map, h, i)) {
        const ast_word_info *w = &m->words.at[m->word_map.value[i]];
        if (w->length == n && memcmp(w->text, at, n) == 0) return m->word_map.value[i];
    }
    fu_push(m->arena, &m->words, (ast_word_info){.text = fu_strndup(m->arena, at, n), .length = (uint32_t)n});
    fu_map_add(&m->word_map, h, m->words.n - 1);
    return m->words.n - 1;
}
