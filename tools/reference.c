/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* reference.c: writes what is made from tables, each as a page: "reference operators" (ops.def) and
 * "reference environment" (env.def) print doc/operators.md and doc/environment.md; "op-declarations", "op-macros",
 * "op-overloads" and "op-symbols" (ops.def) the regions of include/fusor/op.h, fusor.hpp and tests/api/symbols.txt
 * between markers with these names. scripts/generated.sh puts them in their places. "start-programs" is the text of
 * programs of one operator each, whose kernels are installed (start.c). "reference reasons" (plan_reason.c) prints a
 * table of doc/planning.md, "fast-functions" one of doc/numerics.md; "man-..." are the manual pages, "bash-words" and
 * "zsh" the completions. */
#include "base/env.h"
#include "ir/plan.h"
#include "manual.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *types_of(uint8_t classes) {
    static const struct {
        uint8_t classes;
        const char *text;
    } names[] = {
        {IR_CLASS_F, "floats"},
        {IR_CLASS_S | IR_CLASS_U, "integers"},
        {IR_CLASS_B, "bool"},
        {IR_CLASS_F | IR_CLASS_S | IR_CLASS_U, "numbers"},
        {IR_CLASS_S | IR_CLASS_U | IR_CLASS_B, "integers, bool"},
        {IR_CLASS_F | IR_CLASS_S | IR_CLASS_U | IR_CLASS_B, "any"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].classes == classes) return names[i].text;
    return "?";
}

/* "gelu(x, approximate=none\|tanh)": operands, then attributes with their defaults. */
static void print_signature(const ir_op_info *op) {
    static const char *const names[] = {"x", "y", "z"}, *const selecting[] = {"cond", "a", "b"};
    static const char *const of_norms[] = {"x", "gamma", "beta"};
    static const char *const of_attention[] = {"q", "k", "v"};
    static const char *const of_quantization[] = {"x", "scale", "zero_point"};
    const char *const *operand = op->kind == IR_KIND_ATTENTION  ? of_attention
                                 : op->kind == IR_KIND_QUANTIZE ? of_quantization
                                 : op->flags & IR_COND          ? selecting
                                 : op->kind == IR_KIND_NORM     ? of_norms
                                                                : names;
    static const char *const of_lstm[] = {"x", "h", "c", "w_ih", "w_hh", "b_ih", "b_hh"};
    static const char *const of_cells[] = {"x", "h", "w_ih", "w_hh", "b_ih", "b_hh"};
    if (op->kind == IR_KIND_CELL) operand = op->max_in == 7 ? of_lstm : of_cells;
    const char *comma = "";
    printf("`%s(", op->name);
    bool has_scalar = false, needs_scalar = false;
    for (int i = 0; i < op->n_attrs; i++) {
        has_scalar |= op->attrs[i].type == IR_ATTR_SCALAR;
        needs_scalar |= op->attrs[i].type == IR_ATTR_SCALAR && op->attrs[i].is_required;
    }
    for (int i = 0; i < op->n_attrs; i++)
        if (op->attrs[i].type == IR_ATTR_TEXT) printf("\"%s\", ", op->attrs[i].name);
    for (int i = 0; i < op->min_in - needs_scalar; i++, comma = ", ") printf("%s%s", comma, operand[i]);
    if (op->kind == IR_KIND_CELL) printf(" [, b_ih, b_hh]");
    else if (op->max_in <= 3 && !has_scalar) { /* operands that may be left out */
        for (int i = op->min_in; i < op->max_in; i++) printf(" [, %s", operand[i]);
        for (int i = op->min_in; i < op->max_in; i++) putchar(']');
    }
    if (op->kind == IR_KIND_ATTENTION) printf(" [, mask]");
    if (op->max_in == IR_ANY_NUMBER) printf(", ..");
    if (op->kind == IR_KIND_CONVERT) printf(", DTYPE");
    for (int i = 0; i < op->n_attrs; i++, comma = ", ") {
        const ir_attr_info *a = &op->attrs[i];
        /* The type of literals that have no tensor beside them: said once, above the table. */
        if (op->kind == IR_KIND_EW && a->type == IR_ATTR_DTYPE) continue;
        if (a->type == IR_ATTR_TEXT) continue; /* written before the operands */
        printf("%s%s=", comma, a->name);
        switch (a->type) {
        case IR_ATTR_FLOAT:
        case IR_ATTR_NUMBER:
            if (isnan(a->default_value)) fputs("n", stdout);
            else printf("%g", a->default_value);
            break;
        case IR_ATTR_BOOL: fputs(a->default_value != 0 ? "true" : "false", stdout); break;
        case IR_ATTR_ENUM:
            for (const char *p = a->words; *p; p++) printf(*p == '|' ? "\\|" : "%c", *p);
            break;
        case IR_ATTR_DTYPE: fputs("T", stdout); break;
        case IR_ATTR_AXES:
        case IR_ATTR_INTS:
        case IR_ATTR_SIZES:
        case IR_ATTR_INDICES: fputs("[..]", stdout); break;
        case IR_ATTR_SIZE: fputs("n", stdout); break;
        case IR_ATTR_SCALAR: fputs("%v", stdout); break;
        case IR_ATTR_TEXT: break;
        case IR_ATTR_INT:
        case IR_ATTR_AXIS:
            if (isnan(a->default_value)) fputs("k", stdout);
            else printf("%g", a->default_value);
            break;
        }
    }
    fputs(")`", stdout);
}

static void print_bound(const ir_op_info *op) {
    if (op->result_is_bool || !(op->classes & IR_CLASS_F)) fputs("exact", stdout);
    else if (op->flags & IR_EXACT) fputs("rounded once", stdout);
    else if (op->abs > 0) printf("%g ULP or %g", op->ulp, op->abs);
    else printf("%g ULP", op->ulp);
}

static void print_kernel_types(const ir_op_info *op) {
    static const struct {
        ir_dtype type;
        const char *text;
    } shown[] = {{FUSOR_F32, "f32"},   {FUSOR_F64, "f64"},      {FUSOR_F16, "f16"},
                 {FUSOR_BF16, "bf16"}, {FUSOR_I64, "integers"}, {FUSOR_BOOL, "bool"}};
    const char *space = "";
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (op->kernel_types >> shown[i].type & 1) {
            printf("%s%s", space, shown[i].text);
            space = " ";
        }
}

static void print_group(const char *title, ir_kind kind, ir_kind also, int operands) {
    bool is_ew = kind == IR_KIND_EW;
    printf("\n## %s\n\n| operator | types | %smeaning |\n|---|---|%s---|\n", title,
           is_ew ? "error at most | kernels for | " : "", is_ew ? "---|---|" : "");
    for (int i = IR_OP_RESULT + 1; i < IR_OP_COUNT; i++) {
        const ir_op_info *op = &ir_ops[i];
        if ((op->kind != kind && op->kind != also) || (operands && op->min_in != operands)) continue;
        fputs("| ", stdout);
        print_signature(op);
        printf(" | %s%s | ", types_of(op->classes), op->result_is_bool ? " -> bool" : "");
        if (is_ew) {
            print_bound(op);
            fputs(" | ", stdout);
            print_kernel_types(op);
            fputs(" | ", stdout);
        }
        for (const char *p = op->text; *p; p++) printf(*p == '|' ? "\\|" : "%c", *p);
        puts(" |");
    }
}

static void print_operators(void) {
    puts("# Operators\n\n"
         "Made from `src/ir/ops.def` by `make generated`; `tests/doc/reference.sh` fails when this page is not "
         "current.\n\n"
         "*Types* are those of the main operands; the result has the same type unless it says otherwise. *Error* is "
         "for f32 against the\n"
         "correctly rounded result, in units in the last place, or absolute where two are given; integers are exact. "
         "*Kernels for* lists the\n"
         "types with generated code; the reference evaluator computes the others (`fusor explain` says so). Every "
         "element-wise operator\n"
         "also takes `dtype=T`, the type of its literals where no operand is a tensor. A `k`, an `n`, a `T` or `[..]` "
         "stands for a value: `axis=k`\n"
         "may be left out of argmax, argmin, quantize and dequantize, which then take all elements together, and is "
         "needed "
         "elsewhere;\n"
         "`dtype=T` is another type for result and accumulation. Meanings name operands x, y, z or a, b, c in\n"
         "their order. numerics.md has the rules of rounding.");
    print_group("Element-wise, one operand", IR_KIND_EW, IR_KIND_EW, 1);
    print_group("Element-wise, two operands", IR_KIND_EW, IR_KIND_EW, 2);
    print_group("Element-wise, three operands", IR_KIND_EW, IR_KIND_EW, 3);
    print_group("Conversion", IR_KIND_CONVERT, IR_KIND_CONVERT, 0);
    print_group("Reductions", IR_KIND_REDUCE, IR_KIND_ARGREDUCE, 0);
    print_group("Running sums and products", IR_KIND_SCAN, IR_KIND_SCAN, 0);
    print_group("Norms", IR_KIND_NORM, IR_KIND_NORM, 0);
    print_group("Contractions and row composites", IR_KIND_CONTRACT, IR_KIND_ROW, 0);
    print_group("Sums of products by subscripts", IR_KIND_EINSUM, IR_KIND_EINSUM, 0);
    print_group("Attention", IR_KIND_ATTENTION, IR_KIND_ATTENTION, 0);
    print_group("Movement", IR_KIND_VIEW, IR_KIND_VIEW, 0);
    print_group("Movement: parts, pads and indices", IR_KIND_MOVE, IR_KIND_INDEX, 0);
    print_group("Creation", IR_KIND_CREATE, IR_KIND_RANDOM, 0);
    print_group("Convolutions", IR_KIND_CONV, IR_KIND_CONV, 0);
    print_group("Windows and quantization", IR_KIND_WINDOW, IR_KIND_QUANTIZE, 0);
    print_group("Recurrent cells", IR_KIND_CELL, IR_KIND_CELL, 0);
}

static void print_environment(void) {
    puts(
        "# Environment variables\n\n"
        "Made from `src/base/env.def` by `make generated`; `tests/doc/reference.sh` fails when this page is not "
        "current. Options of the\n"
        "command and fields of `fusor_context_options` come before the environment; of a context with `FUSOR_IGNORE_ENVIRONMENT` those for its\n"
        "target, device, threads, cache and check do not count, and set-user-id programs do not see it. `fusor info` prints what is in force. A value that is none "
        "of the expected ones counts\n"
        "as the default; the context's log and the command's stderr say so. Of FUSOR_THREADS, FUSOR_TARGET and "
        "FUSOR_DEVICE it is an\n"
        "error of the command, as of their options; a context takes the default of FUSOR_THREADS, but compiles nothing "
        "with a FUSOR_TARGET or\n"
        "FUSOR_DEVICE that it does not know or the machine does not have.\n\n"
        "| variable | type | default | meaning |\n|---|---|---|---|");
    for (int i = 0; i < FU_ENV_COUNT; i++) {
        const fu_env_info *v = &fu_env_table[i];
        const char *type = v->type[0] == 'I'   ? "number"
                           : v->type[0] == 'B' ? "0 or 1"
                           : v->type[0] == 'L' ? "list"
                           : v->type[0] == 'W' ? "word"
                                               : "text";
        printf("| `%s` | %s | %s%s%s | %s |\n", v->name, type, *v->default_value ? "`" : "", v->default_value,
               *v->default_value ? "`" : "", v->text);
    }
}

/* Rows of the table of boundaries in doc/planning.md. */
static void print_reasons(void) {
    for (int i = 0; i < IR_REASON_COUNT; i++) printf("| %s | %s |\n", ir_reason_names[i], ir_reason_texts[i]);
}

/* The table of the fast tier in doc/numerics.md. */
static void print_fast(void) {
    for (int i = 0; i < IR_OP_COUNT; i++) {
        if (!ir_fast[i].levels) continue;
        printf("| %s | %g ULP", ir_ops[i].name, ir_fast[i].ulp);
        if (ir_fast[i].abs > 0) printf(" or %g", ir_fast[i].abs);
        printf(" | %s |\n", ir_fast[i].levels);
    }
}

/* ---- what C has of the operators ---- */

/* The functions of these rows have operands only, so their C forms follow from the row. A scalar attribute has a place
 * and a name among the arguments that the table does not decide: such functions are written by hand. */
static bool takes_operands_only(const ir_op_info *op) { return op->kind == IR_KIND_EW && op->n_scalar_attrs == 0; }

static void print_op_declarations(void) {
    static const char *const titles[] = {"unary", "binary", "ternary"};
    static const char *const plain[][3] = {{"x"}, {"a", "b"}, {"a", "b", "c"}}, *const selecting[] = {"cond", "a", "b"};
    for (int n = 1; n <= 3; n++) {
        printf("%s/* ---- element by element: %s ---- */\n", n > 1 ? "\n" : "", titles[n - 1]);
        for (int i = IR_OP_RESULT + 1; i < IR_OP_COUNT; i++) {
            const ir_op_info *op = &ir_ops[i];
            if (!takes_operands_only(op) || op->max_in != n) continue;
            const char *const *operand = op->flags & IR_COND ? selecting : plain[n - 1];
            printf("/** %s */\nFUSOR_API fusor_tensor fusor_%s(", op->text, op->name);
            for (int k = 0; k < n; k++) printf("%sfusor_tensor %s", k ? ", " : "", operand[k]);
            puts(");");
        }
    }
}

/* In columns, as clang-format aligns consecutive macros. */
static void print_op_macros(void) {
    static const char *const arguments[] = {"(a)", "(a, b)", "(a, b, c)"};
    int width = 0;
    for (int i = IR_OP_RESULT + 1; i < IR_OP_COUNT; i++) {
        if (!takes_operands_only(&ir_ops[i])) continue;
        int length = (int)(strlen(ir_ops[i].name) + strlen(arguments[ir_ops[i].max_in - 1]));
        if (length > width) width = length;
    }
    for (int n = 1; n <= 3; n++)
        for (int i = IR_OP_RESULT + 1; i < IR_OP_COUNT; i++) {
            const ir_op_info *op = &ir_ops[i];
            if (!takes_operands_only(op) || op->max_in != n) continue;
            int pad = width - (int)strlen(op->name);
            printf("#define fusor_%s%-*s fusor_%s(", op->name, pad, arguments[n - 1], op->name);
            for (int k = 0; k < n; k++) printf("%sFUSOR_TENSOR_OF(%c)", k ? ", " : "", 'a' + k);
            puts(")");
        }
}

/* C++ has words of its own for some of them. */
static bool is_cpp_word(const char *name) {
    static const char *const words[] = {"and", "or", "not", "xor"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], name) == 0) return true;
    return false;
}

static void print_op_overloads(void) {
    static const char *const operands[] = {"tensor a", "tensor a, tensor b", "tensor a, tensor b, tensor c"},
                             *const given[] = {"a", "a, b", "a, b, c"};
    for (int i = IR_OP_RESULT + 1; i < IR_OP_COUNT; i++) {
        const ir_op_info *op = &ir_ops[i];
        if (!takes_operands_only(op)) continue;
        printf("inline tensor %s%s(%s) { return fusor_%s(%s); }\n", op->name, is_cpp_word(op->name) ? "_" : "",
               operands[op->max_in - 1], op->name, given[op->max_in - 1]);
    }
}

static void print_op_symbols(void) {
    for (int i = IR_OP_RESULT + 1; i < IR_OP_COUNT; i++) printf("fusor_%s\n", ir_ops[i].name);
}

/* ---- the programs of the start bundle: kernels that unfused programs are made of. All operators for f32 (else i32,
 * else bool), and those that are a few instructions for the other common types ---- */
static void start_function(const ir_op_info *op, const char *form, const char *params, const char *operands,
                           const char *type, const char *dims) {
    printf("func @%s_%s_%s_%s(%s) -> %s[%s] { %%y = %s(%s) return %%y }\n", op->name, form, type,
           dims[0] == 'N' ? "n" : "m", params, op->result_is_bool ? "bool" : type, dims, op->name, operands);
}

static void start_functions(const ir_op_info *op, fusor_dtype dtype, bool all_forms) {
    const char *t = fusor_dtype_name(dtype);
    char params[200];
    bool selects = op->flags & IR_COND;
    snprintf(params, sizeof params,
             selects ? "%%c: bool[N], %%a: %s[N], %%b: %s[N]" : "%%a: %s[N], %%b: %s[N], %%c: %s[N]", t, t, t);
    if (op->min_in == 3) start_function(op, "all", params, selects ? "%c, %a, %b" : "%a, %b, %c", t, "N");
    snprintf(params, sizeof params, "%%a: %s[N]", t);
    if (op->min_in == 1) start_function(op, "one", params, "%a", t, "N");
    if (op->min_in != 2) return;
    snprintf(params, sizeof params, "%%a: %s[N], %%b: %s[N]", t, t);
    start_function(op, "all", params, "%a, %b", t, "N");
    snprintf(params, sizeof params, "%%a: %s[M, N], %%b: %s[N]", t, t);
    start_function(op, "row", params, "%a, %b", t, "M, N");
    snprintf(params, sizeof params, "%%a: %s[N]", t);
    start_function(op, "literal", params, dtype == FUSOR_BOOL ? "%a, true" : "%a, 2", t, "N");
    if (!all_forms) return;
    snprintf(params, sizeof params, "%%a: %s[M, N], %%b: %s[M, 1]", t, t);
    start_function(op, "column", params, "%a, %b", t, "M, N");
    /* The broadcast operand first: also what a commutative operator gets whose other operand is made later. */
    snprintf(params, sizeof params, "%%b: %s[N], %%a: %s[M, N]", t, t);
    start_function(op, "row_first", params, "%b, %a", t, "M, N");
    snprintf(params, sizeof params, "%%b: %s[M, 1], %%a: %s[M, N]", t, t);
    start_function(op, "column_first", params, "%b, %a", t, "M, N");
    snprintf(params, sizeof params, "%%a: %s[N]", t);
    start_function(op, "of_literal", params, dtype == FUSOR_BOOL ? "true, %a" : "2, %a", t, "N");
}

static void print_start_programs(void) {
    static const fusor_dtype types[] = {FUSOR_F32, FUSOR_F64, FUSOR_F16, FUSOR_BF16, FUSOR_I32, FUSOR_I64, FUSOR_BOOL};
    static const uint8_t classes[] = {IR_CLASS_F, IR_CLASS_F, IR_CLASS_F, IR_CLASS_F,
                                      IR_CLASS_S, IR_CLASS_S, IR_CLASS_B};
    enum { TYPES = sizeof types / sizeof *types };
    for (int i = IR_OP_RESULT + 1; i < IR_OP_COUNT; i++) {
        const ir_op_info *op = &ir_ops[i];
        bool needs_attribute = false;
        for (int a = 0; a < op->n_attrs; a++) needs_attribute |= op->attrs[a].is_required;
        if (op->kind != IR_KIND_EW || needs_attribute) continue;
        fusor_dtype main_type = op->classes & IR_CLASS_F   ? FUSOR_F32
                                : op->classes & IR_CLASS_S ? FUSOR_I32
                                                           : FUSOR_BOOL;
        bool is_cheap = op->flags & IR_EXACT || op->result_is_bool || op->flags & IR_COND;
        for (int t = 0; t < TYPES; t++)
            if (op->classes & classes[t] && op->kernel_types >> types[t] & 1 && (is_cheap || types[t] == main_type))
                start_functions(op, types[t], types[t] == main_type);
    }
    for (int from = 0; from < TYPES; from++)
        for (int to = 0; to < TYPES; to++)
            if (from != to)
                printf("func @cast_%s_%s(%%a: %s[N]) -> %s[N] { %%y = cast(%%a, %s) return %%y }\n",
                       fusor_dtype_name(types[from]), fusor_dtype_name(types[to]), fusor_dtype_name(types[from]),
                       fusor_dtype_name(types[to]), fusor_dtype_name(types[to]));
    static const char *const sums[] = {"reduce_sum", "reduce_max", "reduce_min", "reduce_mean"};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        printf("func @%s_rows(%%a: f32[M, N]) -> f32[M] { %%y = %s(%%a, axes=[1]) return %%y }\n"
               "func @%s_columns(%%a: f32[M, N]) -> f32[N] { %%y = %s(%%a, axes=[0]) return %%y }\n"
               "func @%s_all(%%a: f32[N]) -> f32 { %%y = %s(%%a) return %%y }\n",
               sums[i], sums[i], sums[i], sums[i], sums[i], sums[i]);
    puts("func @softmax_rows(%a: f32[M, N]) -> f32[M, N] { %y = softmax(%a, axis=1) return %y }\n"
         "func @matmul_plain(%a: f32[M, K], %b: f32[K, N]) -> f32[M, N] { %y = matmul(%a, %b) return %y }");
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*print)(void);
    } pages[] = {{"operators", print_operators},
                 {"environment", print_environment},
                 {"reasons", print_reasons},
                 {"fast-functions", print_fast},
                 {"op-declarations", print_op_declarations},
                 {"op-macros", print_op_macros},
                 {"op-overloads", print_op_overloads},
                 {"op-symbols", print_op_symbols},
                 {"start-programs", print_start_programs}};
    for (size_t i = 0; argc == 2 && i < sizeof pages / sizeof *pages; i++)
        if (strcmp(argv[1], pages[i].name) == 0) {
            pages[i].print();
            return fflush(stdout) || ferror(stdout);
        }
    if (argc == 2 && manual_print(argv[1])) return fflush(stdout) || ferror(stdout);
    fputs("usage: reference PAGE, one of man-COMMAND zsh bash-words", stderr);
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) fprintf(stderr, " %s", pages[i].name);
    fputs("\n", stderr);
    return 2;
}
