/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* mutation_test.c: is what tests do without a GPU able to find errors? Kernels of each kind, as they are made, are
 * broken in one place after the other: a barrier, a fence, a wait, a store to shared memory or an asynchronous copy is left out,
 * a shuffle takes another lane, a wait lets one group more pend, an address is swizzled otherwise. A change is found
 * where the interpreter fails or a bit of the result is another, or a rule below shows that it changes nothing. The
 * test prints what is not found, what these sizes do not reach, and what a rule explains. It fails where anything that
 * is reached is neither found nor explained. */
#include "gpu_check.h"

/* Shapes are letters: A to D stand for the sizes. Sizes: so many that each way through the kernel is taken; the fourth
 * of a contraction: 1 + its tile, where it is not 0. */
enum { MAX_RUNS = 24 };
static const struct {
    const char *kind, *text;
    ir_dtype type, out;
    const char *in[3], *result;
    int64_t sizes[MAX_RUNS][4]; /* up to one that begins with 0 */
} programs[] = {
/* Whole tiles, and some that lack rows: their copies are others. */
#define MMA_SIZES                                                                                                      \
    {                                                                                                                  \
        {64, 320, 72}, {65, 330, 70}, {16, 1048, 24}, {7, 331, 35}, {200, 72, 8}, {70, 331, 9}, {130, 330, 140, 1},    \
            {128, 320, 128, 1}, {128, 320, 128, 2}, {128, 320, 128, 3}, {128, 320, 128, 4}, {128, 328, 16, 5},         \
            {120, 328, 120, 1}, {56, 328, 56, 2}, {8, 328, 120, 3}, {                                                  \
            120, 328, 8, 4                                                                                             \
        }                                                                                                              \
    }
#define ROLES "contract, roles of warps, sm_90a"
#define ROWS                                                                                                           \
    {                                                                                                                  \
        {3, 1030}, {40, 10}, {40, 31}, {40, 64}, {5, 100}, {3, 131}, {3, 516}, {6, 1026}, {3, 2049}, {2, 9000},        \
            {1, 70001}, {1, 70000}, {1, 4099}, {                                                                       \
            2, 4096                                                                                                    \
        }                                                                                                              \
    }
    {"row",
     "func @f(%x: f32[A, B]) -> f32[A, B] { %y = softmax(%x, axis=1) return %y }",
     FUSOR_F32,
     FUSOR_F32,
     {"AB"},
     "AB",
     ROWS},
    {"row, known length",
     "func @f(%x: f32[A, 40]) -> f32[A, 40] { %y = log_softmax(%x, axis=1) return %y }",
     FUSOR_F32,
     FUSOR_F32,
     {"AB"},
     "AB",
     {{20, 40}}},
    {"row, two sums",
     "func @f(%x: f32[A, B], %g: f32[B], %b: f32[B]) -> f32[A, B] { %y = layer_norm(%x, %g, %b) return %y }",
     FUSOR_F32,
     FUSOR_F32,
     {"AB", "B", "B"},
     "AB",
     ROWS},
    {"reduce",
     "func @f(%x: f32[A, B]) -> f32[A] { %y = reduce_sum(%x, axes=[1]) return %y }",
     FUSOR_F32,
     FUSOR_F32,
     {"AB"},
     "A",
     {{30, 600},
      {40, 10},
      {40, 31},
      {40, 64},
      {5, 100},
      {3, 131},
      {6, 1026},
      {8, 4096},
      {300, 2049},
      {1, 70000},
      {300, 2048},
      {2, 9001}}},
    {"reduce, in parts",
     "func @f(%x: f32[A, B]) -> f32[B] { %y = reduce_max(%x, axes=[0]) return %y }",
     FUSOR_F32,
     FUSOR_F32,
     {"AB"},
     "B",
     {{300, 70}, {7000, 1}, {5000, 33}, {40, 130}}},
    {"argmax",
     "func @f(%x: f32[A, B]) -> i64[A] { %y = argmax(%x, axis=1) return %y }",
     FUSOR_F32,
     FUSOR_I64,
     {"AB"},
     "A",
     {{300, 40},
      {40, 300},
      {300, 10},
      {300, 31},
      {300, 64},
      {150, 4},
      {10, 3000},
      {30, 2049},
      {300, 512},
      {90, 2048},
      {3, 9001},
      {15, 131072},
      {12, 20003}}},
    {"transpose",
     "func @f(%x: f32[A, B]) -> f32[B, A] { %y = transpose(%x, perm=[1, 0]) return %y }",
     FUSOR_F32,
     FUSOR_F32,
     {"AB"},
     "BA",
     {{100, 70}, {64, 64}}},
    {"contract",
     "func @f(%x: f32[A, B], %w: f32[B, C]) -> f32[A, C] { %y = matmul(%x, %w) return %y }",
     FUSOR_F32,
     FUSOR_F32,
     {"AB", "BC"},
     "AC",
     {{130, 70, 140, 1},
      {128, 64, 128, 1},
      {130, 70, 140, 2},
      {128, 64, 128, 2},
      {10, 200, 20, 3},
      {16, 64, 128, 3},
      {130, 70, 9, 4},
      {128, 64, 16, 4},
      {10, 2000, 20},
      /* copies: rows and columns that end in the last of a thread's places; of whole tiles, single elements */
      {121, 70, 124, 1},
      {121, 70, 125, 1},
      {128, 64, 129, 1},
      {61, 70, 60, 2},
      {61, 70, 61, 2},
      {64, 64, 65, 2},
      {10, 70, 124, 3},
      {10, 70, 125, 3},
      {16, 64, 129, 3},
      {121, 70, 12, 4},
      {121, 70, 13, 4},
      {128, 64, 17, 4}}},
    {"contract, tensor cores",
     "func @f(%x: bf16[A, B], %w: bf16[B, C]) -> bf16[A, C] { %y = matmul(%x, %w) return %y }",
     FUSOR_BF16,
     FUSOR_BF16,
     {"AB", "BC"},
     "AC",
     MMA_SIZES},
    {"contract, tensor cores, turned",
     "func @f(%x: f16[B, A], %w: f16[C, B]) -> f16[A, C] { %y = matmul(%x, %w, transpose_a=true, transpose_b=true) "
     "return %y }",
     FUSOR_F16,
     FUSOR_F16,
     {"BA", "CB"},
     "AC",
     MMA_SIZES},
    {ROLES,
     "func @f(%x: f16[A, B], %w: f16[B, C]) -> f16[A, C] { %y = matmul(%x, %w) return %y }",
     FUSOR_F16,
     FUSOR_F16,
     {"AB", "BC"},
     "AC",
     {{136, 328, 264, 6}, {130, 331, 260, 6}, {130, 328, 260, 6}, {128, 40, 256, 6},  {136, 40, 264, 6},
      {128, 448, 256, 6}, {128, 448, 128, 5}, {130, 40, 140, 5},  {130, 330, 140, 5}, {64, 320, 72},
      {65, 330, 70},      {16, 1048, 24},     {7, 331, 35},       {200, 72, 8},       {70, 331, 9},
      {128, 320, 128, 2}, {128, 320, 128, 3}, {128, 320, 128, 4}, {56, 328, 56, 2},   {8, 328, 120, 3},
      {120, 328, 8, 4}}},
    {"attention",
     "func @f(%q: f32[A, D, C], %k: f32[A, B, C], %v: f32[A, B, C]) -> f32[A, D, C] { %y = attention(%q, %k, %v, "
     "causal=true, causal_offset=100) return %y }",
     FUSOR_F32,
     FUSOR_F32,
     {"ADC", "ABC", "ABC"},
     "ADC",
     {{1, 70, 16, 70},
      {2, 130, 40, 130},
      {1, 65, 128, 65},
      {1, 40, 17, 40},
      {1, 5, 64, 5},
      {2, 1, 32, 1},
      {1, 30, 200, 30},
      {1, 300, 64, 16},
      {1, 121, 36, 11},
      {1, 121, 35, 11}}},
    /* groups of queries that see other numbers of blocks of keys; results that reach into the place of values */
    {"attention, wgmma",
     "func @f(%q: bf16[D, 64], %k: bf16[B, 64], %v: bf16[B, 128]) -> f32[D, 128] { %y = attention(%q, %k, %v, "
     "causal=true, causal_offset=150, dtype=f32) return %y }",
     FUSOR_BF16,
     FUSOR_F32,
     {"DA", "BA", "BC"},
     "DC",
     {{64, 530, 128, 400},
      {64, 511, 128, 400},
      {64, 130, 128, 30},
      {64, 640, 128, 40},
      {64, 40, 128, 12},
      {64, 121, 128, 11},
      {64, 2100, 128, 5}}},
};
enum { N_PROGRAMS = sizeof programs / sizeof *programs, MAX_TEXT = 1 << 20, MAX_LINES = 1 << 15 };

/* ---- runs: one for each of the sizes ---- */
typedef struct sample {
    rt_exec *exec;
    fusor_buffer in[3], out;
    int n_in;
    uint32_t most_blocks;
    int tile;
    size_t out_bytes;
    void *want, *got;
    uint8_t *reached; /* lines of the kernel */
} sample;
static sample samples[2 * MAX_RUNS];
static int n_samples;

static fusor_buffer buffer_of(ir_dtype t, const char *shape, const int64_t *size, size_t *bytes) {
    fusor_buffer b = {.dtype = t};
    *bytes = ir_dtypes[t].bytes;
    for (; shape[b.rank]; b.rank++) *bytes *= (size_t)(b.shape[b.rank] = size[shape[b.rank] - 'A']);
    b.data = malloc(*bytes + 64);
    return b;
}

/* Of rows in which an element is looked for: many ties; in two of three rows there is, somewhere, what is to be found:
 * the largest, or two NaNs. */
static float find_me(uint64_t i, int64_t columns, float v) {
    const uint64_t n = (uint64_t)columns, row = i / n;
    const bool is_it = row % 3 && (i % n == mix(2 * row + 7) % n || (row % 3 == 2 && i % n == mix(2 * row + 8) % n));
    return !is_it ? floorf(v * 20) : row % 3 == 1 ? 100 : NAN;
}

static void prepare(int p, const int64_t *size) {
    size_t bytes;
    const bool has_wgmma = !strcmp(programs[p].kind, ROLES) || strstr(programs[p].kind, "wgmma");
    const ir_level level = has_wgmma ? IR_LEVEL_SM90A : IR_LEVEL_SM80;
    sample *s = &samples[n_samples++];
    s->tile = strncmp(programs[p].kind, "contract", 8) == 0 ? (int)size[3] - 1 : -1;
    s->exec = build(&error, cache, programs[p].text, (setup){.level = level, .n_threads = 1, .launch = gpu_launch});
    cr_assert(s->exec, "%s: %s", programs[p].kind, error.text);
    for (; s->n_in < 3 && programs[p].in[s->n_in]; s->n_in++) {
        fusor_buffer *b = &s->in[s->n_in];
        *b = buffer_of(programs[p].type, programs[p].in[s->n_in], size, &bytes);
        size_t width = ir_dtypes[programs[p].type].bytes;
        for (size_t i = 0; i < bytes / width; i++) {
            float v = (float)(mix(i * 3 + (uint64_t)s->n_in) >> 40) / (1 << 22) - 2; /* -2 to 2 */
            if (programs[p].out == FUSOR_I64) v = find_me(i, size[1], v);
            uint64_t bits = ptx_from_double(width == 4                       ? PTX_F32
                                            : programs[p].type == FUSOR_BF16 ? PTX_BF16
                                                                             : PTX_F16,
                                            (double)v);
            memcpy((char *)b->data + i * width, &bits, width);
        }
    }
    s->out = buffer_of(programs[p].out, programs[p].result, size, &s->out_bytes);
    s->want = malloc(s->out_bytes + 1);
    s->got = malloc(s->out_bytes + 1);
    s->reached = calloc(MAX_LINES, 1);
}

/* The result with blocks and warps in one order; false: an error. */
static bool run_it(sample *s, bool is_reversed, void *to) {
    fu_error e = {0};
    memset(s->out.data, 0xa5, s->out_bytes);
    gpu_is_reversed = is_reversed;
    gpu_most_blocks = s->most_blocks;
    gpu_tile = gpu_fma_tile = s->tile;
    bool ok = rt_exec_call(s->exec, &e, s->n_in, s->in, 1, &s->out) == FUSOR_OK;
    memcpy(to, s->out.data, s->out_bytes);
    return ok;
}

static bool is_whole(sample *s, bool is_reversed) {
    return run_it(s, is_reversed, s->got) && memcmp(s->got, s->want, s->out_bytes) == 0;
}

/* ---- lines of PTX ---- */
static const char *end_of(const char *line) { return line + strcspn(line, "\n"); }
static const char *next_line(const char *line) {
    const char *end = end_of(line);
    return *end ? end + 1 : NULL;
}
static bool line_has(const char *line, const char *word) {
    const char *at = strstr(line, word);
    return at && at < end_of(line);
}
static bool touches_shared(const char *line) {
    return line_has(line, ".shared.") || line_has(line, "ldmatrix") || line_has(line, "shared::cta") ||
           line_has(line, "cp.async");
}
static bool is_mbarrier(const char *line) { return line_has(line, "mbarrier."); }
static bool is_barrier(const char *line) {
    return line_has(line, "bar.sync") || (line_has(line, "barrier.") && !is_mbarrier(line));
}
static bool is_label(const char *line) { return *line == '$' && line_has(line, ":"); }
static bool is_branch(const char *line) { return line_has(line, "bra"); }

/* The integer behind the n-th comma of a line; NULL: no number is there. */
static const char *number_at(const char *line, int n) {
    const char *at = line;
    for (; n; n--) {
        at = strchr(at, ',');
        if (!at || at > end_of(line)) return NULL;
        at++;
    }
    at += strspn(at, " \t");
    return *at >= '0' && *at <= '9' ? at : NULL;
}

typedef enum change { LEAVE_OUT, OTHER_LANE, ONE_MORE, OTHER_SWIZZLE, N_CHANGES } change;
static const char *const names[] = {"left out", "another lane", "one group more", "swizzled otherwise"};

/* `text` with the change in that line; false: it has none of that kind there. */
static bool mutate(const char *text, const char *line, change c, bool has_ldmatrix, char *to) {
    const char *number = NULL;
    long value;
    if (is_label(line) || line_has(line, "//")) return false;
    switch (c) {
    case LEAVE_OUT:
        if (!is_barrier(line) && !line_has(line, "st.shared") && !line_has(line, "cp.async") &&
            !line_has(line, "bar.warp") && !is_mbarrier(line) && !line_has(line, "fence.proxy"))
            return false;
        snprintf(to, MAX_TEXT, "%.*s%s", (int)(line - text), text, end_of(line));
        return true;
    case OTHER_LANE:
        if (line_has(line, "shfl.sync")) number = number_at(line, 2);
        if (!number) return false;
        value = strtol(number, NULL, 10);
        value = value > 1 ? value / 2 : 2;
        break;
    case ONE_MORE:
        if (line_has(line, "wait_group"))
            number = line + (strstr(line, "wait_group") - line) + strcspn(strstr(line, "wait_group"), "0123456789");
        if (!number || number >= end_of(line)) return false;
        value = strtol(number, NULL, 10) + 1;
        break;
    default:
        if (has_ldmatrix && line_has(line, "xor.b")) number = number_at(line, 2);
        if (!number || number - line > 60) return false;
        value = strtol(number, NULL, 10);
        value ^= value % 16 ? 1 : 16;
    }
    snprintf(to, MAX_TEXT, "%.*s%ld%s", (int)(number - text), text, value, number + strspn(number, "0123456789"));
    return true;
}

/* ---- what changes nothing ---- */
/* No shared memory is touched between this barrier and the next one (or the end) on any way: looked for down to a label
 * or branch. */
static bool is_followed_by_nothing(const char *line) {
    for (line = next_line(line); line; line = next_line(line)) {
        if (touches_shared(line)) return false;
        if (is_barrier(line) || line_has(line, "ret;")) return true;
        if (is_branch(line)) return false;
    }
    return true;
}

/* Behind it no line of the kernel touches shared memory, and no way leads back above it. */
static bool is_last(const char *text, const char *line) {
    for (const char *l = next_line(line); l; l = next_line(l)) {
        char label[64];
        if (touches_shared(l)) return false;
        const char *at = is_branch(l) ? strchr(l, '$') : NULL;
        if (!at || at > end_of(l) || sscanf(at, "%62[$A-Za-z0-9_]", label) != 1) continue;
        strcat(label, ":");
        const char *target = strstr(text, label);
        if (target && target < line) return false;
    }
    return true;
}

/* No lane gets another value by a shuffle's change, in no run: asked of the kernel itself, which does both and
 * compares. */
static bool gives_the_same(gpu_kernel *g, const char *line, int number) {
    static char both[MAX_TEXT], changed[MAX_TEXT];
    char why[PTX_ERROR_ROOM];
    ptx_module *whole = g->module;
    bool is_same = true;
    mutate(g->text, line, OTHER_LANE, false, changed);
    const char *other = changed + (line - g->text), *from = strchr(other, ','), *to = strstr(line, ".b32");
    to += strcspn(to, "%");
    snprintf(both, sizeof both,
             "%.*s.reg .b32 %%other;\n.reg .pred %%differs;\nshfl.sync.bfly.b32 %%other%.*s\n%.*s\n"
             "setp.ne.b32 %%differs, %%other, %.*s;\n@%%differs trap;%s",
             (int)(line - g->text), g->text, (int)(end_of(other) - from), from, (int)(end_of(line) - line), line,
             (int)strcspn(to, ",|"), to, end_of(line));
    g->module = strstr(line, "shfl.sync.bfly") ? ptx_parse(both, why) : NULL;
    for (sample *s = samples; g->module && s < samples + n_samples && is_same; s++)
        is_same = !s->reached[number] || run_it(s, false, s->got);
    is_same = is_same && g->module;
    ptx_free(g->module);
    g->module = whole;
    return is_same;
}

/* What a shuffle brings is combined by a maximum or minimum, which bears one lane twice: with the butterfly of the
 * other distances it is only partly seen whether a lane was left out, namely where the largest one lies there. */
static bool is_of_extremum(const char *line) {
    const char *next = next_line(line);
    if (next && line_has(next, "mov.b32")) next = next_line(next); /* LLVM 19 has registers of floats */
    return next && (line_has(next, "setp.lt.f32") || line_has(next, "setp.gt.f32") || line_has(next, "max.") ||
                    line_has(next, "min."));
}

static bool was(int line, int what) {
    for (const sample *s = samples; s < samples + n_samples; s++)
        if (s->reached[line] & what) return true;
    return false;
}

static const char *rule_for(gpu_kernel *g, const char *line, int number, change c) {
    const char *text = g->text;
    if (c == LEAVE_OUT && is_barrier(line)) {
        if (is_last(text, line)) return "the last barrier of a kernel: nothing of shared memory is behind it";
        if (is_followed_by_nothing(line)) return "another barrier follows, and nothing between them";
    }
    if (c == LEAVE_OUT && line_has(line, "bar.warp")) return "the interpreter's lanes go together without it";
    if (c == LEAVE_OUT && line_has(line, "bar.sync")) {
        if (!was(number, PTX_TOUCHED_BEHIND)) return "no run touches shared memory between it and the next barrier";
        if (!was(number, PTX_TOUCHED_BEFORE)) return "no run touches shared memory between the barrier before and it";
    }
    if (line_has(line, "cp.async.wait_group") && !was(number, PTX_WAITED))
        return "no copy of bytes is pending at it in any run";
    if (c == OTHER_LANE && gives_the_same(g, line, number)) return "both lanes hold the same";
    if (c == OTHER_LANE && is_of_extremum(line)) return "an extremum, found all the same";
    return NULL;
}

/* ---- the test ---- */
static int n_all, n_caught, n_equivalent, n_missed, n_unreached;

/* Of the changes one in so many is tried. FUSOR_TEST_MUTATIONS=all tries each, which takes minutes; what sanitizers watch
 * is the interpreter, not whether each change is found. */
static int one_in(void) {
    const char *all = getenv("FUSOR_TEST_MUTATIONS");
#ifdef __SANITIZE_ADDRESS__
    enum { FEW = 8 };
#else
    enum { FEW = 5 };
#endif
    const int share = test_share() < 3 ? (int)test_share() : 3; /* not so few that none is reached */
    return all && !strcmp(all, "all") ? 1 : FEW * share;
}

static void try_line(int p, gpu_kernel *g, const char *line, int number, change c, bool has_ldmatrix) {
    static char changed[MAX_TEXT];
    char why[PTX_ERROR_ROOM];
    bool is_caught = false, is_reached = false;
    ptx_module *whole = g->module;
    if (!mutate(g->text, line, c, has_ldmatrix, changed)) return;
    static int n_seen;
    if (n_seen++ % one_in()) return;
    n_all++;
    g->module = ptx_parse(changed, why);
    cr_assert(g->module, "%s: a change made wrong text: %s", programs[p].kind, why);
    for (sample *s = samples; s < samples + n_samples && !is_caught; s++) {
        if (!s->reached[number]) continue;
        is_reached = true;
        is_caught = !is_whole(s, false) || !is_whole(s, true);
    }
    ptx_free(g->module);
    g->module = whole;
    /* nothing is left behind by what was broken, or all that follows would count as found */
    if (n_all % 8 == 0) cr_assert(is_whole(samples, n_all & 8), "%s", programs[p].kind);
    const char *rule = is_caught ? NULL : rule_for(g, line, number, c);
    n_caught += is_caught;
    n_equivalent += rule && is_reached;
    n_unreached += !is_reached;
    if (rule && is_reached) fprintf(stderr, "mutation: %s: changes nothing: %d: %s\n", programs[p].kind, number, rule);
    if (is_caught || (rule && is_reached)) return;
    n_missed += is_reached;
    fprintf(stderr, "mutation: %s: %s: %d: %.*s: %s\n", programs[p].kind, is_reached ? "not found" : "not reached",
            number, (int)(end_of(line) - line), line, names[c]);
}

ParameterizedTestParameters(mutation, is_found) {
    static int numbers[N_PROGRAMS];
    for (int i = 0; i < N_PROGRAMS; i++) numbers[i] = i;
    return cr_make_param_array(int, numbers, N_PROGRAMS);
}

ParameterizedTest(int *number, mutation, is_found, .timeout = 600) {
    int p = *number, line_number = 1;
    ptx_counts counts = {0};
    if (!begin()) return;
#ifdef __SANITIZE_ADDRESS__
    if (p % 3) cr_skip_test("under sanitizers every third kernel is broken, in fewer ways");
#endif
    for (int k = 0; k < MAX_RUNS && programs[p].sizes[k][0]; k++) {
        prepare(p, programs[p].sizes[k]);
        sample *s = &samples[n_samples - 1];
        counts.reached = s->reached;
        gpu_counts = &counts;
        cr_assert(run_it(s, false, s->want), "%s", programs[p].kind);
        gpu_counts = NULL;
        cr_assert(is_whole(s, true), "%s: the order of blocks shows", programs[p].kind);
        /* and once more with a block that makes all of it, where the kernel bears that */
        samples[n_samples] = *s;
        samples[n_samples].most_blocks = 1;
        if (!is_whole(&samples[n_samples], false)) continue;
        gpu_counts = &counts;
        run_it(&samples[n_samples++], false, s->got);
        gpu_counts = NULL;
    }
    cr_assert(gpu_kernels && !gpu_kernels->next, "%s is not one kernel", programs[p].kind);
    bool has_ldmatrix = strstr(gpu_kernels->text, "ldmatrix");
    for (const char *line = gpu_kernels->text; line; line = next_line(line), line_number++)
        for (change c = 0; c < N_CHANGES; c++) try_line(p, gpu_kernels, line, line_number, c, has_ldmatrix);
    fprintf(stderr, "mutation: %s: %d changes: %d found, %d change nothing, %d are not reached, %d missed\n",
            programs[p].kind, n_all, n_caught, n_equivalent, n_unreached, n_missed);
    int n_reached = n_all - n_unreached;
    cr_assert_geq(100 * n_reached, 50 * n_all);
    cr_assert_eq(n_missed, 0);
    cr_assert_gt(n_caught, 0);
}
