/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_AST_H
#define IR_AST_H
/* What parse.c makes of a text and build.c makes graphs of. Functions may come in any order in a text and a call needs
 * its callee's result types, so the whole text is read before the first graph is made. */
#include "ir/graph.h"
#include "ir/lex.h"

enum {
    IR_MAX_NESTING = 64,         /* of lists and of parentheses */
    IR_MAX_SIZE_OPERANDS = 4096, /* in one dimexpr; more than a printed size can have */
    IR_MAX_PARAMS = 65535,       /* of a function, and operands of a call: ir_node counts them in 16 bits */
    IR_MAX_INLINED = 1 << 18,    /* nodes of one function with its calls inlined (more where the text is longer) ... */
    IR_MAX_INLINED_TOTAL =
        1 << 20, /* ... and the checks copied over all calls of a module: calls of calls grow as 2^n */
};

typedef uint32_t ast_word; /* index into ast.words: one per distinct ident */

/* A dimexpr in postfix form. */
typedef struct ast_size_item {
    enum { AST_SIZE_INT, AST_SIZE_WORD, AST_SIZE_ADD, AST_SIZE_SUB, AST_SIZE_MUL, AST_SIZE_DIV } kind;
    ast_word word;
    int64_t value;
    fu_loc loc;
} ast_size_item;
typedef struct ast_size {
    ast_size_item *item;
    uint32_t n;
    fu_loc loc;
    bool is_inferred; /* "?" */
} ast_size;
typedef struct ast_type {
    ir_dtype dtype;
    uint8_t rank;
    bool has_dims;
    fu_loc loc;
    ast_size *dim;
} ast_type;

typedef struct ast_literal {
    enum { AST_INT, AST_FLOAT, AST_BOOL } kind;
    ir_number number; /* BOOL: i */
    fu_loc loc;
    const char *at; /* as written */
    uint32_t n;
} ast_literal;

typedef struct ast_attr ast_attr;
struct ast_attr {
    enum {
        AST_ATTR_SIZE /* a dimexpr, a bare word or an integer too */,
        AST_ATTR_LITERAL /* float, bool */,
        AST_ATTR_DTYPE,
        AST_ATTR_STRING,
        AST_ATTR_VALUE,
        AST_ATTR_LIST
    } kind;
    fu_loc loc;
    union {
        ast_size size;
        ast_literal literal;
        ir_dtype dtype;
        const char *string;
        ast_word word;
        struct {
            ast_attr *at;
            uint32_t n;
        } list;
    } as;
};

typedef struct ast_arg {
    enum { AST_ARG_VALUE, AST_ARG_LITERAL, AST_ARG_TYPE, AST_ARG_STRING, AST_ARG_ATTR } kind;
    fu_loc loc;
    ast_word word; /* VALUE; ATTR: its name */
    union {
        ast_literal literal;
        ast_type *type;
        const char *string;
        ast_attr *attr;
    } as;
} ast_arg;

typedef struct ast_name {
    ast_word word;
    fu_loc loc;
} ast_name;

typedef struct ast_stmt {
    ast_name *result;
    uint32_t n_results;
    bool is_call, is_bad; /* bad: a syntax error was reported; only its result names count, where they are known */
    ast_name op;          /* operator or function */
    ast_arg *arg;
    ast_type *annotation;
    uint32_t n_args, n_annotations;
} ast_stmt;

typedef struct ast_param {
    ast_name name;
    bool is_const;
    ast_type type;
    enum { AST_SOURCE_NONE, AST_SOURCE_LITERAL, AST_SOURCE_LIST, AST_SOURCE_STRING } source;
    fu_loc source_loc;
    const char *path;
    ast_literal *value; /* LITERAL: one; LIST: all elements */
    uint32_t n_values;
    uint8_t value_rank;
    int64_t value_dim[IR_MAX_RANK];
} ast_param;

typedef struct ast_result {
    bool has_name, has_alias;
    ast_name name, alias;
    ast_type type;
    fu_loc loc;
} ast_result;

typedef struct ast_func {
    ast_name name;
    ast_param *param;
    ast_result *result;
    fu_vec(ast_stmt) stmts;
    ast_arg *returned; /* VALUE or LITERAL */
    uint32_t n_params, n_results, n_returned;
    fu_loc return_loc;
    bool is_bad;      /* a syntax error outside its statements: nothing is built */
    bool failed;      /* any error in it; calls of it are poisoned */
    uint32_t color;   /* of the walk over calls */
    ir_graph *graph;  /* once built */
    uint64_t inlined; /* nodes with its calls inlined, saturating */
} ast_func;

typedef struct ast_word_info {
    const char *text;
    uint32_t length;
    uint32_t function; /* 1 + index of the function of that name; 0 = none */
    /* Valid while the mark is that of the function being built: */
    uint32_t defined_mark, value_mark, dim_mark, result_mark, used_mark;
    fu_loc defined_loc; /* where the function defines the value, above or below */
    ir_id value;        /* 0 = its statement failed */
    fu_loc value_loc;
    uint32_t n_results; /* results that want this name */
    bool is_op_known;   /* op has been looked up */
    ir_op op;
} ast_word_info;

typedef struct ast_diagnostic {
    fusor_status status;
    fu_loc loc;
    const char *file;
    int line;
    size_t length;
    char *text;
} ast_diagnostic;

typedef struct ast {
    fu_arena *arena;
    const fu_source *source;
    fu_vec(ast_word_info) words;
    fu_map word_map;
    fu_vec(ast_func) funcs;
    fu_error *scratch; /* where graphs report; moved to diagnostics after each statement */
    ast_diagnostic diagnostic[2 * FU_ERROR_MAX_DIAGNOSTICS];
    int n_diagnostics;
    int n_phase; /* of them, of this phase: syntax, then meaning */
    uint64_t n_copied_checks;
} ast;

/* ast.c */
ast_word ast_intern(ast *m, const char *at, size_t n);
static inline const char *ast_text(const ast *m, ast_word w) { return m->words.at[w].text; }
/* Moves what the scratch error holds to the diagnostics, as an error of the place loc. */
void ast_report(ast *m, fu_loc loc);
/* The diagnostics into the caller's record, in the order of the text: the first FU_ERROR_MAX_DIAGNOSTICS that fit. */
void ast_report_all(ast *m, fu_error *e);
static inline bool ast_is_full(const ast *m) { return m->n_phase >= FU_ERROR_MAX_DIAGNOSTICS; }
#define AST_FAIL(m, status, loc, ...)                                                                                  \
    do {                                                                                                               \
        (void)FU_FAIL_AT((m)->scratch, (status), (m)->source, (loc), __VA_ARGS__);                                     \
        ast_report((m), (loc));                                                                                        \
    } while (0)

/* build.c: graphs of all functions, appended to module->functions in the order of the text. */
void ast_build(ast *m, ir_module *module);
/* build_args.c: literals, sizes, types and attributes; false = reported. `mark` is that of the function being built. */
ir_operand ast_operand(ast *m, const ast_literal *l, bool with_text);
bool ast_size_build(ast *m, ir_graph *g, uint32_t mark, const ast_size *size, ir_size *out);
/* dim: type->rank entries; those of "?" are left alone. */
bool ast_type_build(ast *m, ir_graph *g, uint32_t mark, const ast_type *type, ir_size *dim);
/* What every statement accepts beside its operator's attributes. */
typedef struct ast_meta {
    const char *name, *loc;
    bool is_barrier;
    fu_loc barrier_loc;
    const ast_attr *fuse_with; /* a value or a list of values; NULL: not given */
} ast_meta;
/* attr: ir_ops[op].n_attrs entries, zeroed. op IR_OP_CALL: metadata only. meta: zeroed. */
bool ast_attrs_build(ast *m, ir_graph *g, uint32_t mark, const ast_stmt *s, ir_op op, ir_attr *attr, ast_meta *meta);
/* A string as an IR_ATTR_TEXT. */
bool ast_text_attr(ast *m, ir_graph *g, const char *op, const char *text, fu_loc loc, ir_attr *out);
/* The IR_ATTR_SCALAR of op that s gives, emptied in attr but for is_set; NULL: none. */
const ast_attr *ast_scalar_attr(ast *m, const ast_stmt *s, ir_op op, ir_attr *attr);
ir_operand ast_attr_operand(ast *m, const ast_attr *a); /* of one that is a number */
#endif
