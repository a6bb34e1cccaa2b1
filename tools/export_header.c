/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* export_header.c: the C header of a function that is compiled ahead of time. The executor lays the call out for each
 * combination of sizes (exec_peak: sizes, strides, tiles, memory), and the header is that, as tables, with one function
 * that runs the steps. */
#include "export.h"
#include "inputs.h"
#include "rt/exec_internal.h"
#include <ctype.h>
#include <inttypes.h>

static const char *c_type(ir_dtype t) {
    switch (t) {
    case FUSOR_F64: return "double";
    case FUSOR_F32: return "float";
    case FUSOR_F16:
    case FUSOR_BF16:
    case FUSOR_U16: return "uint16_t";
    case FUSOR_I64: return "int64_t";
    case FUSOR_I32: return "int32_t";
    case FUSOR_I16: return "int16_t";
    case FUSOR_I8: return "int8_t";
    case FUSOR_U32: return "uint32_t";
    case FUSOR_U64: return "uint64_t";
    default: return "uint8_t"; /* u8, bool */
    }
}

/* The names of the function and of its arguments, as C (and C++) has them and no two alike. */
typedef struct c_names {
    const char *function, **param, **result, **dim;
    fu_vec(const char *) taken;
} c_names;

/* Keywords, macros, and what the function's own text uses. */
static const char reserved[] =
    " alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class "
    "co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype "
    "default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline "
    "int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register "
    "reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch "
    "template this thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using "
    "virtual void volatile wchar_t while xor xor_eq NULL INT64_MIN errno stdin stdout stderr linux unix i386 int8_t "
    "int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t in out memory status aligned_alloc free FUSOR_AOT_OK "
    "FUSOR_AOT_NO_MEMORY FUSOR_AOT_SIZES FUSOR_AOT_INDEX FUSOR_AOT_KERNEL FUSOR_AOT_CPU fusor_aot_args fusor_aot_run ";
/* Functions of C that a function may be called after: of math.h (which a compiler knows without it) and of what the
 * header includes. */
static const char library[] =
    " abort abs acos acosh asin asinh atan atan2 atanh calloc cbrt ceil copysign cos cosh div erf erfc exit exp exp2 "
    "expm1 floor fma fmax fmin fmod gamma hypot index j0 j1 log log10 log1p log2 main malloc memcpy memmove memset "
    "pow printf puts rand random realloc rindex round select sin sinh sqrt strlen system tan tanh tgamma trunc y0 y1 ";

/* Is name one of these words? */
static bool is_in(tool *t, const char *name, const char *words) {
    return strstr(words, fu_format(&t->arena, " %s ", name)) != NULL;
}

static bool is_taken(const c_names *names, const char *name) {
    for (uint32_t i = 0; i < names->taken.n; i++)
        if (strcmp(names->taken.at[i], name) == 0) return true;
    return false;
}

static const char *c_name(tool *t, c_names *names, const char *prefix, const char *name) {
    fu_str s;
    fu_str_init(&s, &t->arena);
    fu_str_add(&s, prefix);
    if (!*prefix && isdigit((unsigned char)name[0])) fu_str_addc(&s, '_');
    for (; *name; name++) fu_str_addc(&s, isalnum((unsigned char)*name) ? *name : '_');
    while (is_in(t, s.at, reserved) || is_taken(names, s.at) || (names->taken.n == 0 && is_in(t, s.at, library)))
        fu_str_addc(&s, '_');
    fu_push(&t->arena, &names->taken, s.at);
    return s.at;
}

static c_names make_names(tool *t, const ir_graph *g) {
    const uint32_t n_dims = ir_size_symbol_count(g->sizes);
    c_names x = {.param = FU_NEW_N(&t->arena, const char *, g->params.n + 1),
                 .result = FU_NEW_N(&t->arena, const char *, g->results.n + 1),
                 .dim = FU_NEW_N(&t->arena, const char *, n_dims + 1)};
    x.function = c_name(t, &x, "", g->name); /* the first: what is visible in the whole program */
    for (uint32_t p = 0; p < g->params.n; p++) x.param[p] = c_name(t, &x, "", g->params.at[p].name);
    for (uint32_t r = 0; r < g->results.n; r++) {
        const int alias = g->results.at[r].alias;
        x.result[r] = alias >= 0 ? x.param[alias] : c_name(t, &x, "result_", g->results.at[r].name);
    }
    for (uint32_t i = 0; i < n_dims; i++) x.dim[i] = c_name(t, &x, "", ir_size_symbol_name(g->sizes, i));
    return x;
}

static const char prelude[] =
    "#include <stdint.h>\n#include <stdlib.h>\n#include <string.h>\n\n"
    "#ifndef FUSOR_AOT_ARGS\n#define FUSOR_AOT_ARGS\n"
    "typedef struct fusor_aot_args {\n    uint32_t version, phase;\n    int64_t tune[8];\n    void *const *buffer;\n   "
    " const int64_t *size, *stride;\n"
    "    const uint64_t *scalar;\n    void *scratch, *shared, *kept;\n} fusor_aot_args;\n"
    "/* Results of the functions: 0 is success. */\n"
    "enum { FUSOR_AOT_OK, FUSOR_AOT_NO_MEMORY, FUSOR_AOT_SIZES, FUSOR_AOT_INDEX, FUSOR_AOT_KERNEL, FUSOR_AOT_CPU };\n"
    "static inline int fusor_aot_run(int (*kernel)(const fusor_aot_args *, int64_t, int64_t), fusor_aot_args *args, "
    "int n_phases, const int64_t *tiles) {\n"
    "    int failed = 0;\n"
    "    for (int p = 0; p < n_phases && !failed; p++) {\n        args->phase = (uint32_t)p;\n        if (tiles[p]) "
    "failed = kernel(args, 0, tiles[p]);\n    }\n"
    "    return failed ? FUSOR_AOT_KERNEL : FUSOR_AOT_OK;\n}\n#endif\n\n";
/* The text above is ir_kernel_args. */
_Static_assert(offsetof(ir_kernel_args, tune) == 8 && IR_TUNE_COUNT == 8 && offsetof(ir_kernel_args, buffer) == 72 &&
                   offsetof(ir_kernel_args, size) == 80 && offsetof(ir_kernel_args, stride) == 88 &&
                   offsetof(ir_kernel_args, scalar) == 96 && offsetof(ir_kernel_args, scratch) == 104 &&
                   offsetof(ir_kernel_args, shared) == 112 && offsetof(ir_kernel_args, kept) == 120 &&
                   sizeof(ir_kernel_args) == 128,
               "prelude");

static void add_list(fu_str *s, const char *type, const char *name, const int64_t *v, int n) {
    fu_str_addf(s, "        static const %s %s[] = {", type, name);
    for (int i = 0; i < n; i++) {
        if (v[i] == INT64_MIN) fu_str_add(s, i ? ", INT64_MIN" : "INT64_MIN");
        else fu_str_addf(s, "%s%" PRId64, i ? ", " : "", v[i]);
    }
    fu_str_add(s, n ? "};\n" : "0};\n");
}

/* Where plan buffer `number` is. */
static const char *place(tool *t, const frame *f, int number) {
    const ir_plan *plan = f->x->core->plan;
    const ir_plan_buffer *b = &plan->buffers.at[number];
    int64_t at;
    const int whole = exec_whole(f, number, &at);
    if (whole != number) return fu_format(&t->arena, "%s + %" PRId64, place(t, f, whole), at);
    if (b->storage == IR_STORE_INPUT) return fu_format(&t->arena, "(char *)in[%d]", b->index);
    if (b->storage == IR_STORE_OUTPUT) return fu_format(&t->arena, "(char *)out[%d]", b->index);
    if (b->storage == IR_STORE_LITERAL) return fu_format(&t->arena, "(char *)&literal%d", number);
    return fu_format(&t->arena, "memory + %" PRId64, f->temp_at[number]);
}

static void add_kernel(tool *t, fu_str *s, const frame *f, int number, const char *symbol) {
    const ir_step *st = &f->x->core->plan->steps.at[number];
    const frame_step *x = &f->step[number];
    const ir_kernel *k = st->kernel;
    add_list(s, "int64_t", "size", x->size, k->n_dims);
    add_list(s, "int64_t", "stride", x->stride, k->n_buffers * k->n_dims);
    add_list(s, "int64_t", "tiles", x->launch.tiles, x->launch.n_phases);
    fu_str_add(s, "        static const uint64_t scalar[] = {");
    for (int i = 0; i < k->n_scalars; i++) fu_str_addf(s, "%s0x%" PRIx64 "u", i ? ", " : "", x->scalar[i]);
    fu_str_add(s, k->n_scalars ? "};\n        void *const buffer[] = {" : "0};\n        void *const buffer[] = {");
    for (int b = 0; b < st->n_args; b++) {
        if (b) fu_str_add(s, ", ");
        if (k->buffer[b].is_band) { /* the kernel adds where it is */
            fu_str_addf(s, "(void *)(uintptr_t)%" PRId64, x->offset_bytes[b]);
            continue;
        }
        if (x->offset_bytes[b]) /* perhaps before it, where only guarded loads begin */
            fu_str_addf(s, "(void *)((uintptr_t)(%s) + (uintptr_t)INT64_C(%" PRId64 "))", place(t, f, st->arg[b]),
                        x->offset_bytes[b]);
        else fu_str_add(s, place(t, f, st->arg[b]));
    }
    fu_str_addf(s, "};\n        fusor_aot_args args = {%d, 0, {", IR_KERNEL_ABI);
    for (int i = 0; i < IR_TUNE_COUNT; i++) fu_str_addf(s, "%s%" PRId64, i ? ", " : "", x->args.tune[i]);
    fu_str_addf(s, "}, buffer, size, stride, scalar, memory + %zu, memory + %zu, memory + %zu};\n", f->scratch_at,
                f->shared_at, f->kept_at);
    fu_str_addf(s, "        if ((status = fusor_aot_run(%s, &args, %d, tiles)) != 0) return status;\n", symbol,
                x->launch.n_phases);
}

static const char *symbol_of(const export_kernels *kernels, const ir_kernel *k, fu_arena *a) {
    fu_str text;
    fu_str_init(&text, a);
    ir_kernel_print(&text, k);
    for (uint32_t i = 0; i < kernels->n; i++)
        if (kernels->at[i].text.n == text.n && memcmp(kernels->at[i].text.at, text.at, text.n) == 0)
            return kernels->at[i].symbol;
    return "";
}

/* Indices within [-size, size) (from 0 where they have no sign), as rt/exec_check.c. */
static void add_check(tool *t, fu_str *s, const frame *f, int number) {
    int arg = f->x->core->plan->steps.at[number].arg[0];
    ir_dtype dtype = f->x->core->plan->buffers.at[arg].dtype;
    int64_t size = f->step[number].axis_size;
    fu_str_addf(s, "        const %s *index = (const %s *)(%s);\n        for (int64_t i = 0; i < %" PRId64 "; i++)\n",
                c_type(dtype), c_type(dtype), place(t, f, arg), f->step[number].n_indices ? f->count[arg] : 0);
    if (ir_is_signed(dtype))
        fu_str_addf(s,
                    "            if (index[i] < -INT64_C(%" PRId64 ") || index[i] >= INT64_C(%" PRId64
                    ")) return FUSOR_AOT_INDEX;\n",
                    size, size);
    else fu_str_addf(s, "            if (index[i] >= UINT64_C(%" PRId64 ")) return FUSOR_AOT_INDEX;\n", size);
}

static void add_copy(tool *t, fu_str *s, const frame *f, const int *arg) {
    if (!f->bytes[arg[0]]) return;
    fu_str_addf(s, "        if (%s != %s) memmove(%s, %s, %" PRId64 ");\n", place(t, f, arg[1]), place(t, f, arg[0]),
                place(t, f, arg[1]), place(t, f, arg[0]), f->bytes[arg[0]]);
}

/* NAME__<variant>: the steps with everything known. */
static void add_variant(tool *t, fu_str *s, const frame *f, const export_kernels *kernels, const char *name,
                        int variant) {
    const ir_plan *plan = f->x->core->plan;
    fu_str_addf(
        s,
        "static inline int %s__%d(void *const *in, void *const *out, char *memory) {\n    int status = FUSOR_AOT_OK;\n",
        name, variant);
    for (uint32_t i = 0; i < plan->buffers.n; i++)
        if (plan->buffers.at[i].storage == IR_STORE_LITERAL)
            fu_str_addf(s, "    static const uint64_t literal%u = 0x%" PRIx64 "u;\n", i, plan->buffers.at[i].bits);
    fu_str_add(s, "    (void)in, (void)out, (void)memory;\n");
    for (int i = 0; i < (int)plan->steps.n; i++) {
        const ir_step *st = &plan->steps.at[i];
        fu_str_add(s, "    {\n");
        switch (st->kind) {
        case IR_STEP_KERNEL: add_kernel(t, s, f, i, symbol_of(kernels, st->kernel, &t->arena)); break;
        case IR_STEP_CHECK: add_check(t, s, f, i); break;
        case IR_STEP_COPY: add_copy(t, s, f, st->arg); break;
        case IR_STEP_REFERENCE: break; /* check_plan refuses it */
        }
        fu_str_add(s, "    }\n");
    }
    fu_str_add(s, "    return status;\n}\n\n");
}

typedef struct sizes {
    inputs in;
    int *choice;
    int64_t *values;
} sizes;

static void set_values(sizes *z) {
    for (uint32_t i = 0; i < z->in.dims.n; i++)
        z->values[z->in.dims.at[i].symbol] = z->in.dims.at[i].value[z->choice[i]];
}
/* The next combination; false after the last. */
static bool next_choice(sizes *z) {
    for (uint32_t d = 0; d < z->in.dims.n; d++) {
        if (++z->choice[d] < z->in.dims.at[d].n) return true;
        z->choice[d] = 0;
    }
    return false;
}

static int check_plan(tool *t, const ir_plan *plan) {
    for (uint32_t i = 0; i < plan->steps.n; i++) {
        const ir_step *st = &plan->steps.at[i];
        if (st->kind == IR_STEP_REFERENCE)
            return tool_usage(t, "@%s cannot be exported: its operator '%s' has no kernel here (%s)", plan->graph->name,
                              ir_ops[ir_at(plan->graph, st->node)->op].name,
                              st->reason ? st->reason : "reference evaluator");
    }
    return 0;
}

/* int NAME(const float *x, ..., float *y, ..., int64_t B, ...): parameters, results that are no parameter's memory,
 * sizes. */
static void add_signature(fu_str *s, const ir_graph *g, const c_names *names) {
    bool first = true;
    fu_str_addf(s, "static inline int %s(", names->function);
    for (uint32_t p = 0; p < g->params.n; p++, first = false) {
        bool is_written = false;
        for (uint32_t r = 0; r < g->results.n; r++) is_written |= g->results.at[r].alias == (int)p;
        fu_str_addf(s, "%s%s%s *%s", first ? "" : ", ", is_written ? "" : "const ",
                    c_type(ir_at(g, g->params.at[p].node)->dtype), names->param[p]);
    }
    for (uint32_t r = 0; r < g->results.n; r++) {
        if (g->results.at[r].alias >= 0) continue;
        fu_str_addf(s, "%s%s *%s", first ? "" : ", ", c_type(ir_at(g, g->results.at[r].node)->dtype), names->result[r]);
        first = false;
    }
    for (uint32_t i = 0; i < ir_size_symbol_count(g->sizes); i++, first = false)
        fu_str_addf(s, "%sint64_t %s", first ? "" : ", ", names->dim[i]);
    fu_str_add(s, first ? "void)" : ")");
}

static void add_body(fu_str *s, const ir_graph *g, const c_names *names) {
    fu_str_add(s, " {\n    void *const in[] = {");
    for (uint32_t p = 0; p < g->params.n; p++) fu_str_addf(s, "%s(void *)%s", p ? ", " : "", names->param[p]);
    fu_str_add(s, g->params.n ? "};\n    void *const out[] = {" : "NULL};\n    void *const out[] = {");
    for (uint32_t r = 0; r < g->results.n; r++) fu_str_addf(s, "%s(void *)%s", r ? ", " : "", names->result[r]);
    fu_str_add(s, "};\n    char *memory;\n    int status = FUSOR_AOT_SIZES;\n");
}

int export_header(tool *t, ir_plan *plan, const export_kernels *kernels, fu_str *out) {
    const ir_graph *g = plan->graph;
    const ir_level level = plan->options.level;
    uint32_t n_symbols = ir_size_symbol_count(g->sizes);
    sizes z = {.values = FU_NEW_N(&t->arena, int64_t, n_symbols + 1)};
    fu_error e;
    fu_error_clear(&e);
    int status = check_plan(t, plan);
    if (!status) status = inputs_dims(t, g, &z.in);
    if (status) return status;
    for (uint32_t i = 0; i < n_symbols; i++) z.values[i] = -1;
    z.choice = FU_NEW_N(&t->arena, int, z.in.dims.n + 1);
    set_values(&z);
    for (uint32_t i = 0; i < n_symbols; i++)
        if (z.values[i] < 0)
            return tool_usage(
                t, "--stage header: size '%s' of @%s is not known; a header has fixed sizes: --dim %s=64 or %s=1,64",
                ir_size_symbol_name(g->sizes, i), g->name, ir_size_symbol_name(g->sizes, i),
                ir_size_symbol_name(g->sizes, i));
    const c_names names = make_names(t, g);
    const char *name = names.function;
    ir_features used = 0;
    char target[IR_TARGET_MAX];
    fu_str beside;
    fu_str_init(&beside, &t->arena);
    for (uint32_t i = 0; i < plan->steps.n; i++)
        if (plan->steps.at[i].kind == IR_STEP_KERNEL) used |= plan->steps.at[i].kernel->features;
    for (int i = 0; i < IR_FEATURE_COUNT; i++)
        if (used >> i & 1) fu_str_addf(&beside, "%s%s", beside.n ? "," : "", ir_feature_table[i].features);
    fu_str_addf(out,
                "/* %s for %s. Made by fusor emit --stage header; link the object of --stage obj.\n * Sizes are those "
                "that were given; others are FUSOR_AOT_SIZES. Single-threaded, no library. */\n",
                program_signature(t, g), ir_target_name((ir_target){level, used}, target));
    fu_str_addf(out, "#ifndef FUSOR_AOT_%s_H\n#define FUSOR_AOT_%s_H\n%s#ifdef __cplusplus\nextern \"C\" {\n#endif\n",
                name, name, prelude);
    for (uint32_t i = 0; i < kernels->n; i++)
        fu_str_addf(out, "int %s(const fusor_aot_args *, int64_t, int64_t);\n", kernels->at[i].symbol);
    fu_str_add(out, "#ifdef __cplusplus\n}\n#endif\n\n");
    fu_str body;
    fu_str_init(&body, &t->arena);
    add_signature(&body, g, &names);
    add_body(&body, g, &names);
    fu_str_addf(
        &body,
        "#if defined __GNUC__ && (__GNUC__ >= 12 || __clang_major__ >= 18)\n    if (!__builtin_cpu_supports(\"%s\")",
        ir_levels[level].name);
    for (const char *f = beside.at; f && *f; f += strcspn(f, ",") + (f[strcspn(f, ",")] == ','))
        fu_str_addf(&body, " || !__builtin_cpu_supports(\"%.*s\")", (int)strcspn(f, ","), f);
    fu_str_add(&body, ") return FUSOR_AOT_CPU;\n#endif\n");
    /* From here on the plan is the executor's. */
    fu_arena own;
    rt_exec *x = NULL;
    frame *f = NULL;
    fu_arena_init(&own, &t->oom);
    rt_exec_options options = {.n_threads = 1, .is_layout_only = true};
    if (rt_exec_new(&e, &own, plan, NULL, &options, &x) != FUSOR_OK || exec_frame_new(x, &e, &f) != FUSOR_OK)
        status = tool_fail(t, &e);
    int variant = 0;
    if (!status) do {
            set_values(&z);
            int64_t bytes = exec_peak(f, &e, z.values);
            if (bytes < 0) {
                status = tool_fail(t, &e);
                break;
            }
            add_variant(t, out, f, kernels, name, variant);
            fu_str_add(&body, "    if (1");
            for (uint32_t i = 0; i < n_symbols; i++)
                fu_str_addf(&body, " && %s == %" PRId64, names.dim[i], z.values[i]);
            fu_str_addf(&body,
                        ") {\n        if (!(memory = (char *)aligned_alloc(64, %" PRId64
                        "))) return FUSOR_AOT_NO_MEMORY;\n        status = %s__%d(in, out, memory);\n        "
                        "free(memory);\n    }\n",
                        (bytes + 127) / 64 * 64, name, variant++);
        } while (next_choice(&z));
    exec_frame_free(f);
    rt_exec_release(x);
    fu_str_addf(&body, "    return status;\n}\n#endif\n");
    fu_str_addn(out, body.at, body.n);
    return status;
}
