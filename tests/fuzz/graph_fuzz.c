/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* graph_fuzz.c: random programs give the same bits fused and not, on one thread and several, at a second call of the
 * same executable, and numbers within the documented bounds of the reference evaluator; and the same program in other
 * words (another order, other names, dead code) has the same plan.
 *
 *     graph_fuzz [--seed N] [--count N] [--seconds N] [--level v2|v3|v4] [--device cuda] [--print] [FILE ...]
 *
 * FILEs are cases found before (their "# fuzz:" line has sizes and seed); with them nothing is made up. Cases run in
 * child processes, so that a crash is a finding like others. A failure prints its seed and the program cut down as far
 * as it still fails. The last line is "N passed, N failed, N skipped".
 *
 * With --tiles the target has tile instructions (AMX), which are executed by tests/amx where the machine has none.
 * With --device cuda programs run on a device (that of the fake driver, if FUSOR_CUDA_LIB names no other), with inputs
 * and outputs at random here or there: within the bounds of the reference evaluator, and the same bits at a second
 * call. */
#include "../host_level.h"
#include "../amx/amx_emulate.h"
#include "graph_gen.h"
#include "../cuda/device_place.h"
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CASE_SECONDS = 60, CASES_A_CHILD = 200, MAX_FAILURES = 8 };

/* Of a case, beside its text: the "# fuzz:" line. */
typedef struct facts {
    unsigned long long seed;
    long long size[GEN_SYMBOLS];
    ir_features features;
    int level, n_threads, special, strided;
    double scale;
} facts;

/* What a child tells: in memory that both see. */
typedef struct report {
    volatile uint64_t at; /* the seed in work */
    volatile long passed, rejected;
    volatile int failed;
    char message[4096];
} report;
static report *shared;

static int fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int fail(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(shared->message, sizeof shared->message, fmt, ap);
    va_end(ap);
    shared->failed = 1;
    return -1;
}

/* ---- one case ---- */
typedef struct run {
    rt_exec *exec;
    ref_tensor out[GEN_RESULTS + 4];
    fusor_status status;
    const char *name;
} run;

static rt_cache *cache;
static fu_error error;
static bool on_device;
static rt_queue *queue;           /* of a child: a driver does not survive a fork */
enum { DEVICE_ELEMENTS = 20000 }; /* of all tensors of a program: an interpreter runs it */

static uint64_t name_hash(const char *name) {
    uint64_t h = 14695981039346656037u;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 1099511628211u;
    return h;
}

/* Calls with inputs and outputs between guard pages; results are copied to r->out. */
static int call(run *r, const ir_graph *g, const facts *f, const ref_tensor *in, const ref_tensor *shape,
                fu_arena *arena) {
    int n_in = (int)g->params.n, n_out = (int)g->results.n;
    fusor_buffer *bi = FU_NEW_N(arena, fusor_buffer, n_in + 1), *bo = FU_NEW_N(arena, fusor_buffer, n_out + 1);
    guarded *gi = FU_NEW_N(arena, guarded, n_in + 1), *go = FU_NEW_N(arena, guarded, n_out + 1);
    placed *pi = FU_NEW_N(arena, placed, n_in + 1), *po = FU_NEW_N(arena, placed, n_out + 1);
    rng order = {mix(f->seed + (uint64_t)r->name[0])};
    for (int i = 0; i < n_in; i++) {
        int64_t span = ref_count(&in[i]), first = 0;
        bi[i] = describe(&in[i], NULL);
        if (f->strided && span > 0) {
            span = strided_layout(&in[i], &order, bi[i].stride, &first);
            bi[i].flags = FUSOR_STRIDED;
        }
        gi[i] = guard_new((size_t)span * ir_dtypes[in[i].dtype].bytes, chance(&order, 60));
        bi[i].data = gi[i].data + first * ir_dtypes[in[i].dtype].bytes;
        if (bi[i].flags) strided_copy(&in[i], &bi[i], true);
        else if (bytes_of(&in[i])) memcpy(bi[i].data, in[i].data, bytes_of(&in[i]));
        if (queue && chance(&order, 50))
            pi[i] = place_there(queue, &error, &bi[i], gi[i].data, (size_t)span * ir_dtypes[in[i].dtype].bytes);
    }
    for (int k = 0; k < n_out; k++) {
        int alias = g->results.at[k].alias;
        if (alias >= 0) {
            bo[k] = bi[alias];
            if (chance(&order, 30) && !bi[alias].flags) bo[k].data = NULL;
        } else if (chance(&order, 75)) {
            bo[k] = describe(&shape[k], NULL);
            go[k] = guard_new(bytes_of(&shape[k]), chance(&order, 60));
            bo[k].data = go[k].data;
            if (queue && chance(&order, 50))
                po[k] = place_there(queue, &error, &bo[k], go[k].data, bytes_of(&shape[k]));
        }
    }
    fu_error_clear(&error);
    r->status = rt_exec_call(r->exec, &error, n_in, bi, n_out, bo);
    const fusor_status status = r->status;
    for (int k = 0; k < n_out; k++) {
        const int alias = g->results.at[k].alias;
        if (po[k].at) place_back(queue, &error, &bo[k], &po[k]);
        if (alias >= 0 && pi[alias].at) {
            bo[k].data = (char *)pi[alias].host + ((rt_address)(uintptr_t)bi[alias].data - pi[alias].at);
            bo[k].device = 0;
        }
    }
    for (int i = 0; i < n_in; i++)
        if (pi[i].at) place_back(queue, &error, &bi[i], &pi[i]);
    r->status = status;
    for (int k = 0; k < n_out && r->status == FUSOR_OK; k++) {
        r->out[k] = shape[k];
        r->out[k].data = fu_alloc(arena, bytes_of(&shape[k]) + 1);
        if (bo[k].dtype != shape[k].dtype || bo[k].rank != shape[k].rank || (bytes_of(&shape[k]) && !bo[k].data))
            return fail("%s: result %d has type %d and rank %d; expected %d and %d", r->name, k, bo[k].dtype,
                        bo[k].rank, shape[k].dtype, shape[k].rank);
        if (bo[k].flags & FUSOR_STRIDED) strided_copy(&r->out[k], &bo[k], false);
        else if (bytes_of(&shape[k])) memcpy(r->out[k].data, bo[k].data, bytes_of(&shape[k]));
    }
    for (int i = 0; i < n_in && r->status == FUSOR_OK; i++) { /* inputs must stay as they were */
        bool is_aliased = false;
        ref_tensor now = in[i];
        for (int k = 0; k < n_out; k++) is_aliased |= g->results.at[k].alias == i;
        if (is_aliased || bi[i].flags) continue;
        now.data = bi[i].data;
        if (bytes_of(&now) && memcmp(now.data, in[i].data, bytes_of(&now)) != 0)
            return fail("%s: input %d was written", r->name, i);
    }
    for (int k = 0; k < n_out; k++) {
        if (!go[k].map && g->results.at[k].alias < 0 && bo[k].data) rt_buffer_release(NULL, bo[k].data);
        guard_free(&go[k]);
    }
    for (int i = 0; i < n_in; i++) guard_free(&gi[i]);
    return 0;
}

static double shown(const ref_tensor *t, int64_t i) { return ir_bits_to_double(t->dtype, ref_get(t, i)); }

static int same(const run *a, const run *b, int n_out) {
    for (int k = 0; k < n_out; k++) {
        int64_t i = first_difference(&a->out[k], &b->out[k]);
        if (i >= 0)
            return fail("result %d [%lld]: %.17g %s, but %.17g %s", k, (long long)i, shown(&a->out[k], i), a->name,
                        shown(&b->out[k], i), b->name);
    }
    return 0;
}

/* The documented bound with some slack: it is carried through the graph to first order only. */
static int near_reference(const run *a, const ref_tensor *want, double *const *bound, int n_out, bool is_first) {
    for (int k = 0; k < n_out; k++) {
        int64_t n = ref_count(&want[k]);
        for (int64_t i = 0; i < n; i++) {
            double y = shown(&want[k], i);
            if (is_first && bound[k][i] > 0) bound[k][i] = 4 * bound[k][i] + 2 * ref_ulp(want[k].dtype, y);
            /* sums that overflow on the way may do so in the accumulator only */
            double limit = want[k].dtype == FUSOR_F64 ? 1e295 : 1e28;
            if (bound[k][i] > limit || fabs(y) > (want[k].dtype == FUSOR_F64 ? 1e307 : 1e37)) bound[k][i] = INFINITY;
        }
        ref_comparison c = ref_compare(&a->out[k], &want[k], bound[k], -1);
        if (!c.ok)
            return fail("result %d [%lld]: %.17g %s; the reference has %.17g, bound %.3g (%.3g ULP away)", k,
                        (long long)c.at, shown(&a->out[k], c.at), a->name, shown(&want[k], c.at), bound[k][c.at],
                        c.max_ulp);
    }
    return 0;
}

/* Fused, again, and unfused. */
static int check_on_device(fu_arena *arena, const char *text, const ir_graph *g, const facts *f, const ref_tensor *in,
                           ref_tensor *want, double **bound, fusor_status expected) {
    const int n_out = (int)g->results.n;
    int64_t n = 0;
    if (!queue && !(queue = place_queue(&error, 0))) return fail("no device: %s", error.text);
    for (uint32_t i = 0; i < g->params.n; i++) n += ref_count(&in[i]);
    for (int k = 0; k < n_out && expected == FUSOR_OK; k++) n += ref_count(&want[k]);
    if (n > DEVICE_ELEMENTS) return 1;
    for (int k = 0; k < n_out && expected != FUSOR_OK; k++) want[k].dtype = ir_at(g, g->results.at[k].node)->dtype;
    run runs[3] = {{.name = "fused"}, {.name = "again"}, {.name = "unfused"}};
    int rc = 0;
    for (int k = 0; k < 3 && rc == 0; k++) {
        setup s = {.level = rt_device_get_info(rt_queue_device(queue))->target.level,
                   .n_threads = 1,
                   .no_fuse = k == 2,
                   .queue = queue};
        runs[k].exec = k == 1 ? rt_exec_keep(runs[0].exec) : build(&error, cache, text, s);
        if (!runs[k].exec)
            rc = fail("%s: not compiled: %s: %s", runs[k].name, fusor_status_name(error.status), error.text);
        else rc = call(&runs[k], g, f, in, want, arena);
        if (rc == 0 && runs[k].status != expected)
            rc = fail("%s: %s: %s; the reference gives %s", runs[k].name, fusor_status_name(runs[k].status), error.text,
                      fusor_status_name(expected));
        if (rc == 0 && k == 1 && expected == FUSOR_OK) rc = same(&runs[0], &runs[1], n_out);
    }
    for (int k = 0; k < 3 && rc == 0 && expected == FUSOR_OK; k += 2)
        rc = near_reference(&runs[k], want, bound, n_out, k == 0);
    for (int k = 0; k < 3; k++) rt_exec_release(runs[k].exec);
    return rc;
}

static int count_attention(const rt_exec *exec) {
    const ir_plan *p = rt_exec_plan(exec);
    int n = 0;
    for (uint32_t i = 0; i < p->steps.n; i++)
        n += p->steps.at[i].kernel && p->steps.at[i].kernel->kind == IR_KERNEL_ATTENTION;
    return n;
}

static int check_case(fu_arena *arena, const char *text, const facts *f) {
    ir_graph *g = reference_graph(arena, &error, text);
    if (!g) {
        if (error.status == FUSOR_ERROR_INTERNAL || error.status == FUSOR_ERROR_MEMORY)
            return fail("refused: %s", error.text);
        if (getenv("GRAPH_FUZZ_VERBOSE")) fprintf(stderr, "rejected: %s%s\n", text, error.text);
        return 1;
    }
    int n_in = (int)g->params.n, n_out = (int)g->results.n;
    uint32_t n_symbols = ir_size_symbol_count(g->sizes);
    int64_t *symbols = FU_NEW_N(arena, int64_t, n_symbols + 1);
    for (uint32_t s = 0; s < n_symbols; s++) {
        const char *name = ir_size_symbol_name(g->sizes, s);
        if ((name[1] == 0 || name[1] == '.') && name[0] >= 'A' && name[0] < 'A' + GEN_SYMBOLS)
            symbols[s] = f->size[name[0] - 'A'];
    }
    ref_tensor *in = FU_NEW_N(arena, ref_tensor, n_in + 1), *want = FU_NEW_N(arena, ref_tensor, n_out + 1);
    double **bound = FU_NEW_N(arena, double *, n_out + 1);
    const uint32_t *uses = ir_use_counts(arena, g);
    for (int i = 0; i < n_in; i++) {
        const ir_node *n = ir_at(g, g->params.at[i].node);
        in[i].dtype = n->dtype;
        in[i].rank = n->rank;
        for (int d = 0; d < n->rank; d++)
            if (ir_size_eval(g->sizes, n->dim[d], symbols, &in[i].shape[d]) != IR_SIZE_OK || in[i].shape[d] < 0)
                return 1;
        in[i].data = fu_alloc(arena, bytes_of(&in[i]) + 1);
        fill(&in[i], f->seed ^ name_hash(g->params.at[i].name), -f->scale, f->scale, f->special);
        /* what no result needs may be indices, which are checked (of an empty axis in vain) */
        if (!uses[g->params.at[i].node]) memset(in[i].data, 0, bytes_of(&in[i]));
    }
    fu_error_clear(&error);
    fusor_status expected = ref_eval_bounds(arena, &error, g, false, n_in, in, n_out, want, bound);
    if (expected == FUSOR_ERROR_INDEX) return 1;
    if (expected != FUSOR_OK && expected != FUSOR_ERROR_SHAPE) return fail("the reference evaluator: %s", error.text);

    if (on_device) return check_on_device(arena, text, g, f, in, want, bound, expected);
    run runs[5] = {{.name = "fused"},
                   {.name = "with threads"},
                   {.name = "unfused"},
                   {.name = "unfused, with threads"},
                   {.name = "again, with threads"}};
    for (int k = 0; k < 4; k++) {
        setup s = {.level = (ir_level)f->level,
                   .features = f->features,
                   .n_threads = k & 1 ? f->n_threads : 1,
                   .no_fuse = k >= 2};
        runs[k].exec = build(&error, cache, text, s);
        if (!runs[k].exec)
            return fail("%s: not compiled: %s: %s", runs[k].name, fusor_status_name(error.status), error.text);
    }
    runs[4].exec = runs[1].exec;
    if (expected != FUSOR_OK) {
        for (int k = 0; k < n_out; k++) want[k].dtype = ir_at(g, g->results.at[k].node)->dtype;
    }
    /* attention that was recognized in primitives has an order of its own, within its bound */
    const bool is_recognized = count_attention(runs[0].exec) > count_attention(runs[2].exec);
    int rc = 0;
    for (int k = 0; k < 5 && rc == 0; k++) {
        const bool is_unfused = k == 2 || k == 3;
        rc = call(&runs[k], g, f, in, want, arena);
        if (rc == 0 && runs[k].status != expected)
            rc = fail("%s: %s: %s; the reference gives %s", runs[k].name, fusor_status_name(runs[k].status), error.text,
                      fusor_status_name(expected));
        if (rc == 0 && k > 0 && expected == FUSOR_OK && !(is_recognized && k == 2))
            rc = same(&runs[is_recognized && is_unfused ? 2 : 0], &runs[k], n_out);
    }
    if (rc == 0 && expected == FUSOR_OK) rc = near_reference(&runs[0], want, bound, n_out, true);
    if (rc == 0 && expected == FUSOR_OK && is_recognized) rc = near_reference(&runs[2], want, bound, n_out, false);
    for (int k = 0; k < 4; k++) rt_exec_release(runs[k].exec);
    return rc;
}

/* All of a plan but the names in it. */
static const char *shape_of_plan(fu_arena *arena, const char *text, const facts *f) {
    ir_module *m;
    ir_graph *g;
    ir_plan *plan;
    ir_plan_options options = {.level = (ir_level)f->level, .features = f->features};
    fu_error_clear(&error);
    if (ir_parse(arena, &error, "fuzz.fusor", text, strlen(text), &m) != FUSOR_OK ||
        ir_flatten(arena, &error, m, ir_module_find(m, "f"), &g) != FUSOR_OK ||
        ir_normalize(arena, &error, &g, &options) != FUSOR_OK ||
        ir_plan_make(arena, &error, g, &options, &plan) != FUSOR_OK)
        return NULL;
    fu_str s;
    fu_str_init(&s, arena);
    for (uint32_t i = 0; i < plan->steps.n; i++) {
        const ir_step *st = &plan->steps.at[i];
        fu_str_addf(&s, "step %d", (int)st->kind);
        for (int a = 0; a < st->n_args; a++) fu_str_addf(&s, " %d", st->arg[a]);
        fu_str_addc(&s, '\n');
        if (st->kernel) ir_kernel_print(&s, st->kernel);
    }
    for (uint32_t i = 0; i < plan->boundaries.n; i++)
        fu_str_addf(&s, "%d %d %s\n", plan->boundaries.at[i].from, plan->boundaries.at[i].to,
                    ir_reason_names[plan->boundaries.at[i].reason]);
    return s.n ? s.at : "";
}

/* What says the same in other words has the same plan: the same kernels, so the same keys. */
static int check_restated(const gen_program *p, const char *text, const facts *f) {
    static jmp_buf oom;
    fu_arena arena;
    fu_arena_init(&arena, &oom);
    if (setjmp(oom)) return fail("out of memory");
    const char *restated = gen_restate(p, &arena, text), *a = shape_of_plan(&arena, text, f),
               *b = a ? shape_of_plan(&arena, restated, f) : NULL;
    int rc = 0;
    if (a && !b) rc = fail("in other words it is refused: %s\n%s", error.text, restated);
    else if (a && strcmp(a, b) != 0) rc = fail("in other words it has another plan:\n%s", restated);
    fu_arena_free(&arena);
    return rc;
}

/* In a child. 0 passed, 1 rejected, -1 failed. */
static int run_case(const char *text, const facts *f) {
    static jmp_buf oom;
    fu_arena arena;
    if (!cache) {
        rt_cache_options o = {.dir = "", .path = ""};
        if (rt_cache_open(&error, &o, &cache) != FUSOR_OK) return fail("no cache: %s", error.text);
    }
    fu_arena_init(&arena, &oom);
    if (setjmp(oom)) return fail("out of memory");
    alarm(CASE_SECONDS);
    int rc = check_case(&arena, text, f);
    alarm(0);
    fu_arena_free(&arena);
    return rc;
}

/* ---- cases in child processes ---- */
static facts facts_of(const gen_program *p) {
    facts f = {.seed = p->seed,
               .level = (int)p->level,
               .features = p->features,
               .n_threads = p->n_threads,
               .special = p->special,
               .strided = p->strided,
               .scale = p->scale};
    for (int i = 0; i < GEN_SYMBOLS; i++) f.size[i] = p->size[i];
    return f;
}

static int wait_for(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0) {}
    if (WIFSIGNALED(status))
        return fail("killed by signal %d (%s)", WTERMSIG(status),
                    WTERMSIG(status) == SIGALRM ? "time" : strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) > 1) return fail("exit status %d", WEXITSTATUS(status));
    return shared->failed ? -1 : 0;
}

static int run_in_child(const char *text, const facts *f) {
    shared->failed = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(3);
        _exit(run_case(text, f) < 0);
    }
    return wait_for(child);
}

static bool still_fails(gen_program *p) {
    static jmp_buf oom;
    fu_arena arena;
    fu_arena_init(&arena, &oom);
    if (setjmp(oom)) exit(2);
    facts f = facts_of(p);
    bool fails = run_in_child(gen_print(p, &arena), &f) < 0;
    fu_arena_free(&arena);
    return fails;
}

/* Cuts the program down while it fails: results, statements (which become parameters), sizes, strides, special values.
 */
static void minimise(gen_program *p) {
    gen_program best = *p;
    bool better = true;
#define TRY(...)                                                                                                       \
    do {                                                                                                               \
        gen_program t = best;                                                                                          \
        __VA_ARGS__;                                                                                                   \
        if (still_fails(&t)) best = t, better = true;                                                                  \
    } while (0)
    for (int round = 0; better && round < 5; round++) {
        better = false;
        for (int r = best.n_results - 1; r >= 0 && best.n_results > 1; r--)
            TRY({
                for (int k = r; k + 1 < t.n_results; k++) t.result[k] = t.result[k + 1], t.alias[k] = t.alias[k + 1];
                t.n_results--;
            });
        for (int r = 0; r < best.n_results; r++)
            if (best.alias[r] >= 0) TRY(t.alias[r] = -1);
        for (int r = 0; r < best.n_results; r++)
            for (int k = 0; k < best.value[best.result[r]].n_in; k++) {
                if (best.value[best.result[r]].is_param) break;
                TRY(t.result[r] = t.value[t.result[r]].in[k]; t.alias[r] = -1);
            }
        mark_used(&best);
        for (int i = best.n - 1; i >= 0; i--) {
            mark_used(&best);
            if (!best.value[i].is_param && best.value[i].is_used) TRY(t.value[i].is_param = true; t.value[i].n_in = 0);
        }
        if (best.strided) TRY(t.strided = false);
        if (best.special) TRY(t.special = SPECIAL_NONE);
        if (best.n_threads > 2) TRY(t.n_threads = 2);
        for (int i = 0; i < GEN_SYMBOLS; i++) {
            static const int64_t sizes[] = {1, 2, 3, 4, 5, 8, 16, 17, 33};
            for (int k = 0; k < 9 && best.size[i] > sizes[k]; k++) {
                int64_t was = best.size[i];
                TRY(t.size[i] = sizes[k]);
                if (best.size[i] != was) break;
            }
        }
    }
#undef TRY
    *p = best;
}

static void show_failure(gen_program *p) {
    static jmp_buf oom;
    fu_arena arena;
    char first[sizeof shared->message];
    snprintf(first, sizeof first, "%s", shared->message);
    printf("FAILED seed %llu: %s\n", (unsigned long long)p->seed, first);
    minimise(p);
    (void)still_fails(p);
    fu_arena_init(&arena, &oom);
    if (setjmp(oom)) exit(2);
    printf("cut down: %s\n%s\n", shared->message, gen_print(p, &arena));
    fflush(stdout);
    fu_arena_free(&arena);
}

static bool read_facts(const char *text, facts *f) {
    char level[IR_TARGET_MAX] = "";
    const char *at = strstr(text, "# fuzz:");
    memset(f, 0, sizeof *f);
    if (!at ||
        sscanf(at,
               "# fuzz: seed=%llu level=%31s threads=%d special=%d strided=%d scale=%lf A=%lld B=%lld C=%lld D=%lld",
               &f->seed, level, &f->n_threads, &f->special, &f->strided, &f->scale, &f->size[0], &f->size[1],
               &f->size[2], &f->size[3]) != 10)
        return false;
    ir_target target;
    fu_error e;
    fu_error_clear(&e);
    if (ir_target_parse(&e, level, &target) != FUSOR_OK) return false;
    f->level = (int)target.level;
    f->features = target.features;
    return f->n_threads >= 1;
}

static int replay(const char *path, bool *skipped) {
    static char text[65536];
    facts f;
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[n] = 0;
    if (!read_facts(text, &f)) {
        printf("FAILED %s: no '# fuzz:' line\n", path);
        return -1;
    }
    if (f.level > rt_host_level() || f.features & ~rt_host_extras((ir_level)f.level)) {
        *skipped = true;
        return 0;
    }
    int rc = run_in_child(text, &f);
    if (rc < 0) printf("FAILED %s: %s\n", path, shared->message);
    return rc;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seeds first .. first + n in one child; returns how many are done, the failing one included. */
static long run_seeds(uint64_t first, long n, int level, double until) {
    static gen_program p;
    shared->failed = 0;
    shared->at = first;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        static jmp_buf oom;
        fu_arena arena;
        fu_arena_init(&arena, &oom);
        if (setjmp(oom)) _exit(2);
        for (long i = 0; i < n && seconds() < until; i++) {
            shared->at = first + (uint64_t)i;
            generate(&p, shared->at, level);
            facts f = facts_of(&p);
            const char *text = gen_print(&p, &arena);
            int rc = run_case(text, &f);
            if (rc == 0) rc = check_restated(&p, text, &f);
            if (rc < 0) _exit(1);
            if (rc > 0) shared->rejected++;
            else shared->passed++;
            shared->at = first + (uint64_t)i + 1;
        }
        _exit(0);
    }
    bool failed = wait_for(child) < 0;
    uint64_t at = shared->at;
    if (!failed) return (long)(at - first);
    generate(&p, at, level);
    show_failure(&p);
    shared->failed = 1;
    return (long)(at - first) + 1;
}

static int print_program(uint64_t seed, int level) {
    static jmp_buf oom;
    static gen_program p;
    fu_arena arena;
    fu_arena_init(&arena, &oom);
    if (setjmp(oom)) return 2;
    generate(&p, seed, level);
    fputs(gen_print(&p, &arena), stdout);
    fu_arena_free(&arena);
    return 0;
}

int main(int argc, char **argv) {
    uint64_t seed = 1;
    long count = 0, n_files = 0, passed = 0, failed = 0, skipped = 0;
    double limit = 0;
    int level = -1;
    bool print = false;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 2;
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--seed") == 0) seed = strtoull(next, NULL, 10), i++;
        else if (strcmp(argv[i], "--count") == 0) count = atol(next), i++;
        else if (strcmp(argv[i], "--seconds") == 0) limit = atof(next), i++;
        else if (strcmp(argv[i], "--level") == 0) level = level_of_name(next), i++;
        else if (strcmp(argv[i], "--device") == 0) on_device = strcmp(next, "cuda") == 0, i++;
        else if (strcmp(argv[i], "--tiles") == 0) {
            amx_emulate();
            if (amx_can_emulate()) rt_host_assume(amx_features());
        } else if (strcmp(argv[i], "--print") == 0) print = true;
        else if (argv[i][0] == '-') {
            fprintf(stderr,
                    "graph_fuzz: unknown option %s; expected --seed N, --count N, --seconds N, --level L, --device "
                    "cuda, --tiles, --print or "
                    "files\n",
                    argv[i]);
            return 2;
        } else {
            bool is_skipped = false;
            n_files++;
            if (replay(argv[i], &is_skipped) < 0) failed++;
            else if (is_skipped) skipped++;
            else passed++;
        }
    }
    if (rt_host_level() < 0) {
        printf("no code can be generated for this processor\n0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    if (print) return print_program(seed, level);
    if (n_files == 0) {
        if (count == 0 && limit == 0) count = 300;
        double until = limit > 0 ? seconds() + limit : INFINITY;
        for (long done = 0; (count == 0 || done < count) && seconds() < until && failed < MAX_FAILURES;) {
            long left = count ? count - done : CASES_A_CHILD;
            long made = run_seeds(seed + (uint64_t)done, left < CASES_A_CHILD ? left : CASES_A_CHILD, level, until);
            failed += shared->failed;
            done += made;
            if (made == 0) break;
        }
        passed = shared->passed;
        skipped = shared->rejected; /* programs that the generator got wrong */
        printf("seeds from %llu, %ld programs were refused by the type rules\n", (unsigned long long)seed,
               (long)shared->rejected);
    }
    printf("%ld passed, %ld failed, %ld skipped\n", passed, failed, skipped);
    return failed > 0;
}
