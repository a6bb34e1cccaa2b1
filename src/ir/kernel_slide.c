/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* kernel_slide.c: which values of a map go from row to row: its text and verification. That they are the same values
 * there is what the planner knows (plan_slide.c): a description has no offsets to tell it by. */
#include "base/small.h"
#include "ir/kernel.h"
#include <stdlib.h>

void ir_print_slide(fu_str *o, const ir_kslide *s) {
    fu_str_add(o, "slide");
    for (int i = 0; i < s->n; i++) fu_str_addf(o, " %%%d %%%d", s->to[i], s->from[i]);
    fu_str_addc(o, '\n');
}

/* " %NUMBER" */
static bool read_value(const char **at, uint16_t *out) {
    char *end;
    if ((*at)[0] != ' ' || (*at)[1] != '%') return false;
    const long value = strtol(*at + 2, &end, 10);
    if (end == *at + 2 || value < 0 || value >= IR_KERNEL_MAX_INSTS) return false;
    *out = (uint16_t)value;
    *at = end;
    return true;
}

bool ir_parse_slide(const char *line, ir_kslide *s) {
    const char *at = line + 5;
    for (s->n = 0; *at && s->n < IR_KERNEL_MAX_SLIDE; s->n++)
        if (!read_value(&at, &s->to[s->n]) || !read_value(&at, &s->from[s->n])) return false;
    return *at == 0 && s->n > 0;
}

fusor_status ir_verify_slide(const ir_kernel *k, fu_error *e) {
    const ir_kslide *s = &k->slide;
    bool is_right = k->kind == IR_KERNEL_MAP && k->n_dims >= 2 && !ir_level_is_gpu(k->level) &&
                    !ir_kernel_is_transposed(k) && !ir_kernel_is_scatter(k) && s->n <= IR_KERNEL_MAX_SLIDE;
    for (int i = 0; is_right && i < s->n; i++)
        is_right = s->to[i] < k->n_insts && s->from[i] < k->n_insts && k->inst[s->to[i]].op != IR_K_STORE &&
                   k->inst[s->from[i]].op != IR_K_STORE && k->inst[s->to[i]].dtype == k->inst[s->from[i]].dtype;
    if (!is_right)
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL,
                       "a slide needs a map of rows on a CPU, and pairs of values of one type");
    return FUSOR_OK;
}
