/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_SRC_CONTEXT_H
#define FUSOR_SRC_CONTEXT_H
/* Contexts, modules and executables as the public entry points see them. */
#include "fusor/compile.h"
#include "base/log.h"
#include "ir/graph.h"
#include "ir/plan.h"
#include "rt/cache.h"
#include "rt/exec.h"
#include "rt/limits.h"
#include "rt/select.h"
#include <stdatomic.h>

struct fusor_context {
    atomic_int refs;
    uint64_t id;               /* never reused: finds the threads' error records */
    uint64_t born;             /* the last error of any thread before it */
    struct context_life *life; /* shared with its error records, which outlive it */
    uint32_t flags;
    int n_threads;
    bool is_reference; /* device "reference" */
    ir_level level;
    ir_features features; /* beside the level */
    bool is_level_given;  /* by option or environment: no lower level serves instead */
    bool checks;          /* FUSOR_CHECK */
    bool has_level;       /* false: option_error says why nothing can run here */
    char option_error[512];
    fusor_status option_status;
    fu_log log;
    rt_cache *cache;
    _Atomic(rt_cache *) start_cache; /* start.c: kernels of one operator, opened when first needed; NULL */
    atomic_int start_state;          /* start.c */
    rt_exec_options exec;
    struct rt_queue *queue; /* owned: of the device that calls run on; NULL: the CPU's alone */
    int32_t device;         /* of the queue, as in fusor_buffer.device; 0: none */
    bool is_auto;           /* auto.c: calls run on the CPU or the device; exec is the CPU's */
    ir_target gpu_target;
    rt_select *select; /* owned; NULL unless is_auto */
    rt_select_gpu select_gpu;
    bool has_select_gpu;
    char auto_why[200];            /* of "auto" without a device: why */
    _Atomic(rt_profile *) profile; /* profile_api.c; NULL until first switched on */
    struct lazy_state *lazy;       /* owned by lazy.c; NULL until first used */
};
fusor_context *context_keep(fusor_context *ctx);
/* Is it the name of a device, here or not? ARGUMENT, with what is accepted and the nearest name. */
fusor_status context_check_device(fu_error *e, const char *name);
/* Is nothing that was measured to be written beside the cache? */
bool context_keeps_nothing(const fusor_context *ctx);
/* What its programs can be measured by: of the machine, kept beside the cache, or of the device. */
rt_limits context_limits(const fusor_context *ctx, bool is_read_only);
/* "cpu", "cuda:0", "reference": where its programs run. */
const char *context_device_name(const fusor_context *ctx, char out[24]);
/* Makes `e` the calling thread's record of ctx (NULL: of the thread, whatever context it asks); returns its status. */
fusor_status context_fail(const fusor_context *ctx, const fu_error *e);
/* ARGUMENT with this text, for calls that name no context. */
fusor_status context_refuse(const char *text);

struct fusor_module {
    fusor_context *ctx; /* held */
    fu_arena arena;     /* everything below */
    ir_module *module;
    struct builder_state *builder; /* builder.c; NULL for parsed modules */
};

struct fusor_executable {
    fusor_context *ctx; /* held */
    rt_exec *exec;
    struct auto_choice *choice; /* auto.c; NULL: it runs where its context does */
    uint64_t program;           /* hash of what it computes; auto.c */
    struct start_job *job;      /* start.c: exec is the interim of a program that is being compiled; NULL */
};
/* fusor_executable_free without the reference to its context. NULL is allowed. */
void executable_drop(fusor_executable *exe);
struct fusor_call {
    rt_again again; /* of call, once it ran */
    fusor_executable *exe;
    rt_call *call; /* one of the three */
    rt_each *each;
    rt_scan *scan;
};

/* May a program run unfused while its kernels compile (start.c)? */
typedef enum start_mode {
    START_NEVER,
    START_IF_ASKED, /* by the context's flag or FUSOR_START_UNFUSED=1 */
    START_IF_QUICK, /* also where little memory would be moved, unless FUSOR_START_UNFUSED=0 */
} start_mode;

/* What a compile is told: fusor.c. */
typedef struct compile_request {
    fusor_context *ctx;
    const char *name, *text; /* name: path or "<text>" */
    size_t length;
    ir_module *module;    /* instead of text, which is then the module's in the language or NULL; borrowed */
    const char *function; /* NULL: the first */
    uint32_t flags;       /* FUSOR_NO_FUSE, FUSOR_KEEP_SOURCES */
    const char *target;   /* NULL: the context's */
    start_mode start;
    const int64_t *symbol_values; /* of START_IF_QUICK: the sizes of the coming call */
} compile_request;
/* Front half, shared with the tools: text or module to plan. The plan lives in arena. Level from target, else ctx. */
fusor_status compile_plan(fu_arena *arena, fu_error *e, const compile_request *r, ir_plan **out);
/* Is there an entry for every kernel of the plan? in_tiers_only: as in rt_cache_holds. */
bool compile_holds(rt_cache *cache, const ir_plan *p, bool in_tiers_only);
/* A program that a read-only tier (a bundle that was shipped) holds for a lower target only is taken from there, before
 * anything is compiled: all of it from one target, a level with what the host has beside it, less and less of that.
 * *plan is that one then. Not where somebody named the target, and not where an entry is bad, which is a warning. */
void compile_choose_held(fu_arena *arena, fu_error *e, const compile_request *r, ir_plan **plan);
/* The whole pipeline. */
fusor_status compile_executable(fu_error *e, const compile_request *r, fusor_executable **out);
/* The same program, planned once more, for the device of a context with "auto"; nothing is bound. */
fusor_status compile_for_gpu(fusor_context *ctx, fu_error *e, const rt_exec *cpu, rt_exec **out);
/* Where the data of calls is best: with "auto", which chooses call by call, on the CPU. */
static inline int32_t context_home(const fusor_context *ctx) { return ctx->is_auto ? 0 : ctx->device; }
/* explain.c: the plan as JSON text, the caller's (fu_free). arena: for what it needs on the way. */
enum { EXPLAIN_ASSUMED_SIZE = 1024 }; /* of sizes that nobody gave, where that is not too much */
typedef struct explain_request {
    const ir_plan *plan;
    const rt_exec *exec;          /* or NULL: says where each kernel came from */
    const int64_t *symbol_values; /* by symbol, -1: not given; NULL: none is */
    int assumed_size;             /* what those stand at, EXPLAIN_ASSUMED_SIZE or less; the document says so */
    int n_threads;                /* of a call */
    const double *measured_ns;    /* by step: of one call, with these sizes; NULL: nothing was measured */
    double fused_ns, unfused_ns;  /* of one whole call; 0: not measured */
    const rt_limits *limits; /* of n_threads, or of the device: then estimates are by them; NULL: no shares of them */
    const char *choice;      /* of device "auto": what is chosen, and why; NULL */
} explain_request;
fusor_status explain_json(fu_arena *arena, fu_error *e, const explain_request *r, char **out);
/* explain_text.c: that document for a terminal. */
void explain_text(fu_str *out, const char *json);
#endif
