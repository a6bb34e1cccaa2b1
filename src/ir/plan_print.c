/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_print.c: the plan as text (emit --stage plan) and the cost of its steps. */
#include "base/small.h"
#include "ir/plan.h"
#include <inttypes.h>

static void print_buffer(fu_str *o, const ir_plan *p, int i) {
    const ir_plan_buffer *b = &p->buffers.at[i];
    const ir_graph *g = p->graph;
    switch (b->storage) {
    case IR_STORE_INPUT: fu_str_addf(o, "%%%s", g->params.at[b->index].name); break;
    case IR_STORE_OUTPUT: fu_str_addf(o, "%%%s", g->results.at[b->index].name); break;
    case IR_STORE_TEMP: fu_str_addf(o, "temp%d", i); break;
    case IR_STORE_BAND: fu_str_addf(o, "band%d", i); break;
    case IR_STORE_LITERAL: fu_str_addf(o, "literal%d", i); break;
    }
    fu_str_addf(o, ":%s[", ir_dtypes[b->dtype].name);
    for (int d = 0; d < b->rank; d++) {
        if (d) fu_str_add(o, ", ");
        ir_size_print(o, g->sizes, b->dim[d]);
    }
    fu_str_addc(o, ']');
    if (b->part_of < 0) return;
    if (b->is_over) {
        fu_str_add(o, " over ");
    } else {
        fu_str_add(o, " from ");
        ir_size_print(o, g->sizes, b->part_at);
        fu_str_add(o, " of ");
    }
    print_buffer(o, p, b->part_of);
}

static void print_ops(fu_str *o, const ir_plan *p, const ir_step *s) {
    for (int i = 0; i < s->n_ops; i++)
        fu_str_addf(o, "%s%s", i ? " " : "", ir_ops[ir_at(p->graph, s->ops[i])->op].name);
}

static void print_kernel(fu_str *o, const ir_plan *p, const ir_step *s) {
    const ir_kernel *k = s->kernel;
    fu_str_add(o, "  space");
    for (int d = 0; d < k->n_dims; d++) {
        fu_str_addf(o, " %c=", k->dim[d].role);
        ir_size_print(o, p->graph->sizes, s->dim[d]);
    }
    fu_str_addc(o, '\n');
    for (int b = 0; b < k->n_buffers; b++) {
        fu_str_add(o, k->buffer[b].is_output ? "  writes " : "  reads ");
        print_buffer(o, p, s->arg[b]);
        fu_str_add(o, " strides (");
        for (int d = 0; d < k->n_dims; d++) {
            if (d) fu_str_add(o, ", ");
            ir_size_print(o, p->graph->sizes, s->stride[b * k->n_dims + d]);
        }
        fu_str_add(o, ")\n");
    }
    fu_str text;
    fu_str_init(&text, o->arena);
    ir_kernel_print(&text, k);
    for (const char *line = text.at; *line;) {
        const char *nl = strchr(line, '\n');
        fu_str_addf(o, "  | %.*s\n", (int)(nl - line), line);
        line = nl + 1;
    }
}

void ir_plan_print(fu_str *o, const ir_plan *p) {
    char target[IR_TARGET_MAX];
    fu_str_addf(o, "plan @%s level %s%s%s\n", p->graph->name,
                ir_target_name((ir_target){p->options.level, p->options.features}, target),
                p->options.no_fuse ? " no-fuse" : "", p->options.reference ? " reference" : "");
    for (uint32_t i = 0; i < p->steps.n; i++) {
        const ir_step *s = &p->steps.at[i];
        fu_str_addf(o, "step %u: ", i);
        switch (s->kind) {
        case IR_STEP_KERNEL:
            fu_str_addf(o, "%s kernel: ", ir_kernel_kind_names[s->kernel->kind]);
            print_ops(o, p, s);
            if (s->prepack_param >= 0)
                fu_str_addf(o, " (%%%s can be packed once)", p->graph->params.at[s->prepack_param].name);
            fu_str_addc(o, '\n');
            print_kernel(o, p, s);
            break;
        case IR_STEP_CHECK:
            fu_str_addf(o, "check the indices of %s", ir_ops[ir_at(p->graph, s->node)->op].name);
            print_buffer(o, p, s->arg[0]);
            fu_str_addc(o, '\n');
            break;
        case IR_STEP_REFERENCE:
        case IR_STEP_COPY:
            fu_str_add(o, s->kind == IR_STEP_COPY ? "copy" : "reference: ");
            print_ops(o, p, s);
            for (int a = 0; a < s->n_args; a++) {
                fu_str_add(o, a + 1 == s->n_args ? " -> " : " ");
                print_buffer(o, p, s->arg[a]);
            }
            fu_str_addf(o, "\n  because %s\n", s->reason);
            break;
        }
    }
    for (uint32_t i = 0; i < p->boundaries.n; i++) {
        const ir_boundary *b = &p->boundaries.at[i];
        const ir_node *n = ir_at(p->graph, b->value);
        fu_str_addf(o, "boundary %d -> %d at %%%s (%s): %s: %s\n", b->from, b->to, n->name ? n->name : "?",
                    ir_ops[n->op].name, ir_reason_names[b->reason], ir_reason_texts[b->reason]);
    }
}

/* Some ten multiply-adds: range reduction, polynomial, special values; and div and sqrt, one instruction that takes as
 * long as some. */
enum { FUNCTION_WORK = 20, DIVISION_WORK = 8 };

static double size_of(const ir_plan *p, ir_size s, const int64_t *symbols) {
    int64_t v = 0;
    return ir_size_eval(p->graph->sizes, s, symbols, &v) == IR_SIZE_OK ? (double)v : 0;
}

static double buffer_bytes(const ir_plan *p, int i, const int64_t *symbols) {
    const ir_plan_buffer *b = &p->buffers.at[i];
    double n = ir_dtypes[b->dtype].bytes;
    for (int d = 0; d < b->rank; d++) n *= size_of(p, b->dim[d], symbols);
    return n;
}

ir_cost ir_step_cost(const ir_plan *p, int step, const int64_t *symbols) {
    const ir_step *s = &p->steps.at[step];
    ir_cost c = {0};
    for (int a = 0; a < s->n_args; a++) {
        bool is_output = s->kind == IR_STEP_KERNEL ? s->kernel->buffer[a].is_output
                                                   : a + 1 == s->n_args && s->kind != IR_STEP_CHECK,
             again = s->kind == IR_STEP_KERNEL && s->kernel->buffer[a].is_band;
        for (int b = 0; b < a; b++) /* a buffer read in two ways is counted once, a band not at all */
            again |=
                s->arg[b] == s->arg[a] && (s->kind != IR_STEP_KERNEL || s->kernel->buffer[b].is_output == is_output);
        if (again) continue;
        *(is_output ? &c.bytes_written : &c.bytes_read) += buffer_bytes(p, s->arg[a], symbols);
    }
    if (s->kind != IR_STEP_KERNEL) return c;
    const ir_kernel *k = s->kernel;
    for (int i = 0; i < k->n_insts; i++) {
        if (k->inst[i].op >= IR_OP_COUNT || k->inst[i].op == IR_OP_CAST || k->inst[i].op == IR_OP_BITCAST) continue;
        double n = k->inst[i].op == IR_OP_MATMUL ? 2 : 1;
        if (k->inst[i].op == IR_OP_ATTENTION) { /* two products of every key with every query */
            const ir_attention_dims at = ir_kernel_attention_dims(k);
            const double head = size_of(p, s->dim[at.k], symbols) + size_of(p, s->dim[at.n], symbols);
            for (int d = 0; d < k->n_dims; d++) n *= strchr("nkg", k->dim[d].role) ? 1 : size_of(p, s->dim[d], symbols);
            c.flops += 2 * n * head;
            continue;
        }
        uint32_t varies = ir_kernel_varies(k, i);
        bool over_all = k->inst[i].op == IR_OP_MATMUL || ir_kernel_is_reduce_op(k->inst[i].op);
        for (int d = 0; d < k->n_dims; d++)
            if (varies >> d & 1 ||
                (over_all &&
                 strchr(k->kind == IR_KERNEL_CONTRACT && k->inst[i].op != IR_OP_MATMUL ? "n" : "rjk", k->dim[d].role)))
                n *= size_of(p, s->dim[d], symbols);
        for (int d = 0; d < k->n_axes && k->inst[i].op == IR_OP_MATMUL; d++) /* a phase does not meet all places */
            if (k->axis[d].up) n /= k->axis[d].up;
        c.flops += n;
        const uint32_t flags = ir_ops[k->inst[i].op].flags;
        c.work += !(flags & IR_COSTLY) ? n : flags & IR_EXACT ? DIVISION_WORK * n : FUNCTION_WORK * n;
    }
    return c;
}

ir_dtype ir_step_work_type(const ir_plan *p, int step) {
    const ir_kernel *k = p->steps.at[step].kernel;
    if (!k) return FUSOR_F32;
    if (k->kind == IR_KERNEL_CONTRACT && k->features && k->n_buffers)
        return k->buffer[0].dtype; /* products of the narrow type */
    for (int b = 0; b < k->n_buffers; b++)
        if (k->buffer[b].dtype == FUSOR_F64) return FUSOR_F64;
    return FUSOR_F32;
}
