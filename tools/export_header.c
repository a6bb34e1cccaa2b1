/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* export_header.c: the C header of a function that is compiled ahead of time. The executor lays the call out for each
 * combination of sizes (exec_peak: sizes, strides, tiles, memory), and the header is that, as tables, with one function
 * that runs the steps. */
#include "export.h"
#include "inputs.h"
#include "rt/exec_internal.h"
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

/* Indices within [-size, size) (from 0 where they have no sign), as rt/exec_check.c. A test that every value of the
 * type passes, or that none does, is not written: compilers warn of it. */
static void add_check(tool *t, fu_str *s, const frame *f, int number) {
    int arg = f->x->core->plan->steps.at[number].arg[0];
    ir_dtype dtype = f->x->core->plan->buffers.at[arg].dtype;
    int64_t size = f->step[number].axis_size;
    const int bits = 8 * ir_dtypes[dtype].bytes - ir_is_signed(dtype); /* of the largest value */
    if (!f->step[number].n_indices || !f->count[arg] || (bits < 63 && size >> bits)) return;
    if (!size) {
        fu_str_add(s, "        return FUSOR_AOT_INDEX;\n");
        return;
    }
    fu_str_addf(s, "        const %s *index = (const %s *)(%s);\n        for (int64_t i = 0; i < %" PRId64 "; i++)\n",
                c_type(dtype), c_type(dtype), place(t, f, arg), f->count[arg]);
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

/* fusor_aot_NAME_case<variant>: the steps with everything known. */
static void add_variant(tool *t, fu_str *s, const frame *f, const export_kernels *kernels, const char *name,
                        int variant) {
    const ir_plan *plan = f->x->core->plan;
    fu_str_addf(
        s,
        "static inline int fusor_aot_%s_case%d(void *const *in, void *const *out, char *memory) {\n    int status = "
        "FUSOR_AOT_OK;\n",
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
 * sizes. Its own names begin with fusor_aot, and it calls nothing else. */
static void add_function(fu_str *s, const ir_graph *g, const export_names *names) {
    const uint32_t n_symbols = ir_size_symbol_count(g->sizes);
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
    for (uint32_t i = 0; i < n_symbols; i++, first = false)
        fu_str_addf(s, "%sint64_t %s", first ? "" : ", ", names->dim[i]);
    fu_str_addf(s, "%s) {\n    void *const fusor_aot_in[] = {", first ? "void" : "");
    for (uint32_t p = 0; p < g->params.n; p++) fu_str_addf(s, "%s(void *)%s", p ? ", " : "", names->param[p]);
    fu_str_add(s, g->params.n ? "};\n    void *const fusor_aot_out[] = {" : "0};\n    void *const fusor_aot_out[] = {");
    for (uint32_t r = 0; r < g->results.n; r++) fu_str_addf(s, "%s(void *)%s", r ? ", " : "", names->result[r]);
    fu_str_add(s, "};\n    const int64_t fusor_aot_size[] = {");
    for (uint32_t i = 0; i < n_symbols; i++) fu_str_addf(s, "%s%s", i ? ", " : "", names->dim[i]);
    fu_str_addf(s, "%s};\n    return fusor_aot_%s_call(fusor_aot_in, fusor_aot_out, fusor_aot_size);\n}\n#endif\n",
                n_symbols ? "" : "0", names->function);
}

/* Linux hands out tile registers on request only, to all threads of a process (arch_prctl, ARCH_REQ_XCOMP_PERM of
 * XFEATURE_XTILEDATA). The C library's functions for system calls are not C99's. */
static void add_permission(fu_str *s, const char *name) {
    fu_str_addf(s,
                "/* Asks Linux for the tile registers, once: 0 where it refuses. */\n"
                "static inline int fusor_aot_%s_has_tiles(void) {\n"
                "    static int answer; /* 1: refused, 2: granted */\n"
                "    int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);\n"
                "    if (!known) {\n"
                "        long status;\n"
                "        __asm__ volatile(\"syscall\" : \"=a\"(status) : \"0\"(158L), \"D\"(0x1023L), \"S\"(18L)\n"
                "                         : \"rcx\", \"r11\", \"memory\");\n"
                "        known = status == 0 ? 2 : 1;\n"
                "        __atomic_store_n(&answer, known, __ATOMIC_RELAXED);\n"
                "    }\n"
                "    return known == 2;\n}\n\n",
                name);
}

static bool has_tiles(ir_features used) {
    for (int i = 0; i < IR_FEATURE_COUNT; i++)
        if (used >> i & 1 && strstr(ir_feature_table[i].features, "amx-tile")) return true;
    return false;
}

/* fusor_aot_NAME_call: finds the case of these sizes, and gives it memory that begins at a cache line. cases: a
 * condition and a call each, which add_case makes. */
static void add_call(fu_str *s, const char *name, ir_level level, ir_features used, const char *cases) {
    if (has_tiles(used)) add_permission(s, name);
    fu_str_addf(s,
                "static inline int fusor_aot_%s_call(void *const *in, void *const *out, const int64_t *size) {\n"
                "    char *memory;\n    int status;\n    (void)size;\n"
                "#if defined __GNUC__ && (__GNUC__ >= 12 || __clang_major__ >= 18)\n"
                "    if (!__builtin_cpu_supports(\"%s\")",
                name, ir_levels[level].name);
    for (int i = 0; i < IR_FEATURE_COUNT; i++) {
        if (!(used >> i & 1)) continue;
        for (const char *f = ir_feature_table[i].features; *f; f += strcspn(f, ","), f += *f == ',')
            fu_str_addf(s, " || !__builtin_cpu_supports(\"%.*s\")", (int)strcspn(f, ","), f);
    }
    fu_str_add(s, ") return FUSOR_AOT_CPU;\n#endif\n");
    if (has_tiles(used)) fu_str_addf(s, "    if (!fusor_aot_%s_has_tiles()) return FUSOR_AOT_CPU;\n", name);
    fu_str_addf(s, "%s    return FUSOR_AOT_SIZES;\n}\n\n", cases);
}

static void add_case(fu_str *s, const char *name, int variant, const int64_t *values, uint32_t n_values,
                     int64_t bytes) {
    fu_str_add(s, "    if (1");
    for (uint32_t i = 0; i < n_values; i++) fu_str_addf(s, " && size[%u] == %" PRId64, i, values[i]);
    fu_str_addf(s,
                ") {\n        if (!(memory = (char *)malloc(%" PRId64 "))) return FUSOR_AOT_NO_MEMORY;\n"
                "        status = fusor_aot_%s_case%d(in, out, memory + (64 - (uintptr_t)memory %% 64));\n"
                "        free(memory);\n        return status;\n    }\n",
                bytes + 64, name, variant);
}

/* ---- sizes that the function may have ---- */
/* Would a call with these sizes be refused? As a call is checked: before the passes, and by the executor. */
static fusor_status check_sizes(tool *t, fu_error *e, const ir_graph *g, const int64_t *values) {
    const int64_t **shape = FU_NEW_N(&t->arena, const int64_t *, g->params.n + 1);
    int64_t *found = FU_NEW_N(&t->arena, int64_t, ir_size_symbol_count(g->sizes) + 1);
    for (uint32_t p = 0; p < g->params.n; p++) {
        const ir_node *n = ir_at(g, g->params.at[p].node);
        int64_t *dim = FU_NEW_N(&t->arena, int64_t, IR_MAX_RANK);
        shape[p] = dim;
        for (int d = 0; d < n->rank; d++)
            if (ir_size_eval(g->sizes, n->dim[d], values, &dim[d]) != IR_SIZE_OK || dim[d] < 0)
                return FU_FAIL_AT(e, FUSOR_ERROR_SHAPE, g->source, g->params.at[p].loc,
                                  "parameter %%%s: dim %d is negative or has no value with these sizes",
                                  g->params.at[p].name, d);
    }
    return ir_bind_sizes(g, e, shape, found);
}

/* What was left out, for the remark: "N=64, M=4: " and the first line of why. */
enum { SHOWN = 8 };
typedef struct left_out {
    int n;
    fu_str text;
    fu_error first;
} left_out;

static void leave_out(left_out *x, const ir_graph *g, const int64_t *values, const fu_error *e) {
    if (!x->n++) x->first = *e;
    if (x->n > SHOWN) return;
    for (uint32_t i = 0; i < ir_size_symbol_count(g->sizes); i++)
        fu_str_addf(&x->text, "%s%s=%" PRId64, i ? ", " : "\n  ", ir_size_symbol_name(g->sizes, i), values[i]);
    fu_str_addf(&x->text, ": %.*s", (int)strcspn(e->text, "\n"), e->text);
}

/* Every combination: its case behind *out, its condition in *cases. */
static int add_cases(tool *t, const ir_graph *written, ir_plan *plan, const export_kernels *kernels, sizes *z,
                     const char *name, fu_str *out, fu_str *cases) {
    const uint32_t n_symbols = ir_size_symbol_count(written->sizes);
    fu_arena own;
    rt_exec *x = NULL;
    frame *f = NULL;
    int status = 0, variant = 0;
    fu_error e;
    fu_error_clear(&e);
    left_out *out_of = fu_alloc(&t->arena, sizeof *out_of);
    out_of->n = 0;
    fu_str_init(&out_of->text, &t->arena);
    /* From here on the plan is the executor's. */
    fu_arena_init(&own, &t->oom);
    rt_exec_options options = {.n_threads = 1, .is_layout_only = true};
    if (rt_exec_new(&e, &own, plan, NULL, &options, &x) != FUSOR_OK || exec_frame_new(x, &e, &f) != FUSOR_OK)
        status = tool_fail(t, &e);
    if (!status) do {
            int64_t bytes = -1;
            set_values(z);
            if (check_sizes(t, &e, written, z->values) == FUSOR_OK &&
                check_sizes(t, &e, plan->graph, z->values) == FUSOR_OK)
                bytes = exec_peak(f, &e, z->values);
            if (bytes >= 0) {
                add_variant(t, out, f, kernels, name, variant);
                add_case(cases, name, variant++, z->values, n_symbols, bytes);
            } else if (e.status == FUSOR_ERROR_SHAPE || e.status == FUSOR_ERROR_MEMORY) {
                leave_out(out_of, written, z->values, &e);
                fu_error_clear(&e);
            } else {
                status = tool_fail(t, &e);
            }
        } while (!status && next_choice(z));
    exec_frame_free(f);
    rt_exec_release(x);
    if (status || !out_of->n) return status;
    if (variant + out_of->n > 1)
        tool_note(t, "@%s leaves out %d of %d combinations of --dim, which a run would refuse:%s%s", written->name,
                  out_of->n, variant + out_of->n, out_of->text.at, out_of->n > SHOWN ? "\n  ..." : "");
    return variant ? 0 : tool_fail(t, &out_of->first);
}

int export_header(tool *t, const ir_graph *written, ir_plan *plan, const export_kernels *kernels, fu_str *out) {
    const ir_graph *g = plan->graph;
    const ir_level level = plan->options.level;
    uint32_t n_symbols = ir_size_symbol_count(g->sizes);
    sizes z = {.values = FU_NEW_N(&t->arena, int64_t, n_symbols + 1)};
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
    const export_names names = export_make_names(t, g);
    const char *name = names.function;
    ir_features used = 0;
    char target[IR_TARGET_MAX];
    for (uint32_t i = 0; i < plan->steps.n; i++)
        if (plan->steps.at[i].kind == IR_STEP_KERNEL) used |= plan->steps.at[i].kernel->features;
    fu_str_addf(out,
                "/* %s for %s. Made by fusor emit --stage header; link the object of --stage obj.\n * Sizes are those "
                "that were given; others are FUSOR_AOT_SIZES. Single-threaded, no library. C99 or C++11. */\n",
                program_signature(t, g), ir_target_name((ir_target){level, used}, target));
    fu_str_addf(out, "#ifndef FUSOR_AOT_%s_H\n#define FUSOR_AOT_%s_H\n%s#ifdef __cplusplus\nextern \"C\" {\n#endif\n",
                name, name, prelude);
    for (uint32_t i = 0; i < kernels->n; i++)
        fu_str_addf(out, "int %s(const fusor_aot_args *, int64_t, int64_t);\n", kernels->at[i].symbol);
    fu_str_add(out, "#ifdef __cplusplus\n}\n#endif\n\n");
    fu_str cases, last;
    fu_str_init(&cases, &t->arena);
    fu_str_init(&last, &t->arena);
    add_function(&last, g, &names); /* before the plan is given away */
    status = add_cases(t, written, plan, kernels, &z, name, out, &cases);
    add_call(out, name, level, used, cases.at);
    fu_str_addn(out, last.at, last.n);
    return status;
}
