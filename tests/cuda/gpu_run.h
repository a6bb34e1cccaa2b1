/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef GPU_RUN_H
#define GPU_RUN_H
/* Where kernels for a GPU run in a test: GPU_LAUNCH and GPU_QUEUE, of rt_exec_options.
 *
 * gpu_launch runs them as PTX in the interpreter, on the caller's memory. Each description is compiled once.
 *
 * With FUSOR_TEST_DEVICE=1 (bench/gpu/run.sh) they run on the first device of the machine's driver by the executor's
 * queue: for its target, with the tiles that sizes ask for, and nothing is counted. A test includes this once. */
#include "device_place.h"
#include "ptx.h"
#include "ir/codegen_api.h"
#include "ir/gpu.h"
#include "rt/compiler.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct gpu_kernel {
    char *description, *text; /* text: PTX */
    ptx_module *module;
    struct gpu_kernel *next;
} gpu_kernel;
static gpu_kernel *gpu_kernels;
static int gpu_fma_tile = -1;  /* of contractions that have it: ir_gpu_fma_tiles */
static int gpu_fma_parts;      /* not 0: the K blocks of contractions by fma are cut into so many parts at most */
static bool gpu_is_reversed;   /* blocks and warps from the last on */
static int gpu_launches;       /* so far: of several phases, several */
static ptx_counts *gpu_counts; /* where a test wants them */
static int gpu_tile = -1;      /* of tensor cores, whatever the sizes ask for; where a kernel has it */
static uint32_t
    gpu_most_blocks; /* not 0: along each dim of a grid at most. Kernels whose blocks go on from where the grid ends bear it */

enum { GPU_DEVICE_PROCESSES = 3 };

/* The device's; NULL: the interpreter. One a process: Criterion forks before a test. */
static rt_queue *gpu_queue(void) {
    static rt_queue *q;
    static fu_error e;
    if (!on_machine() || q) return q;
    q = place_queue(&e, 0);
    place_must(q ? FUSOR_OK : e.status, &e);
    return q;
}

/* That is generated code for: the device's own, where there is one. */
static ir_level gpu_level_for(ir_level interpreted) {
    return on_machine() ? rt_device_get_info(rt_queue_device(gpu_queue()))->target.level : interpreted;
}

static void *gpu_allocate(void *user, size_t bytes) {
    (void)user;
    return malloc(bytes ? bytes : 1);
}

/* Guard pages of the test's buffers catch what lies outside them. */
static void *gpu_memory(void *user, uint64_t address, uint64_t bytes, bool is_write) {
    (void)user, (void)bytes, (void)is_write;
    return address < 65536 ? NULL : (void *)(uintptr_t)address;
}

static fusor_status gpu_compile(fu_error *e, const ir_kernel *k, const gpu_kernel **out) {
    jmp_buf oom;
    fu_arena a;
    fu_str text;
    uint8_t key[IR_KEY_BYTES];
    char symbol[IR_SYMBOL_MAX], why[PTX_ERROR_ROOM];
    const fusor_codegen_table *codegen;
    FU_TRY(rt_module_get(e, &codegen));
    fu_arena_init(&a, &oom);
    if (setjmp(oom)) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a kernel");
    fu_str_init(&text, &a);
    ir_kernel_print(&text, k);
    for (const gpu_kernel *g = gpu_kernels; g; g = g->next)
        if (strcmp(g->description, text.at) == 0) {
            *out = g;
            fu_arena_free(&a);
            return FUSOR_OK;
        }
    ir_kernel_key(text.at, text.n, rt_build_id(), key);
    ir_kernel_symbol(k, key, symbol);
    fusor_codegen_request request = {.version = FUSOR_CODEGEN_VERSION,
                                     .stage = FUSOR_CODEGEN_ASM,
                                     .description = text.at,
                                     .description_bytes = text.n,
                                     .symbol = symbol,
                                     .allocate = gpu_allocate};
    fusor_codegen_result result = {0};
    int status = codegen->generate(&request, &result);
    if (status) {
        fu_arena_free(&a);
        return FU_FAIL(e, (fusor_status)status, "%s", result.error);
    }
    gpu_kernel *g = calloc(1, sizeof *g);
    g->description = strdup(text.at);
    g->module = ptx_parse(result.data, why);
    g->next = gpu_kernels;
    if (g->module) gpu_kernels = g;
    else (void)FU_FAIL(e, FUSOR_ERROR_INTERNAL, "%s: %s", symbol, why);
    g->text = result.data;
    fu_arena_free(&a);
    *out = g;
    return e->status;
}

static fusor_status gpu_launch(void *user, fu_error *e, const ir_kernel *k, const ir_kernel_args *args) {
    const gpu_kernel *g;
    char why[PTX_ERROR_ROOM];
    ir_gpu_launch plan;
    (void)user;
    FU_TRY(gpu_compile(e, k, &g));
    ir_gpu_plan(k, args->size, &plan);
    gpu_launches += plan.n_phases;
    const bool has_tiles = plan.tile != IR_GPU_WINDOW_DIRECT;
    if (gpu_tile >= 0 && has_tiles && ir_gpu_is_mma(k) && ir_gpu_mma_has_tile(k, gpu_tile)) {
        plan.n_phases = 1;
        plan.chunks = 1;
        ir_gpu_plan_mma_tile(k, args->size, gpu_tile, &plan);
    }
    const bool is_fma = (k->kind == IR_KERNEL_CONTRACT || k->kind == IR_KERNEL_WINDOW) && !ir_gpu_is_mma(k);
    if (gpu_fma_tile >= 0 && has_tiles && is_fma && ir_gpu_fma_has(k, gpu_fma_tile)) {
        plan.n_phases = 1, plan.chunks = 1, plan.scratch_bytes = 0;
        ir_gpu_plan_fma_tile(k, args->size, gpu_fma_tile, &plan);
    }
    if (gpu_fma_parts && has_tiles && is_fma && plan.chunks > gpu_fma_parts) {
        plan.chunks = gpu_fma_parts;
        if (plan.chunks == 1) plan.n_phases = 1;
    }
    uint64_t *words = calloc((size_t)ir_gpu_words(k), 8);
    ir_kernel_args at = *args;
    at.scratch = aligned_alloc(64, (size_t)(plan.scratch_bytes + 127) / 64 * 64);
    memset(at.scratch, 0xff, (size_t)plan.scratch_bytes);
    uint32_t *counters = calloc((size_t)plan.n_counters + 1, sizeof *counters);
    fusor_status status = FUSOR_OK;
    for (int p = 0; p < plan.n_phases && status == FUSOR_OK; p++) {
        ir_gpu_param(k, &at, &plan, p, words);
        if (plan.n_counters) words[IR_GPU_WORD_COUNTERS] = (uint64_t)(uintptr_t)counters;
        ptx_launch l = {.module = g->module,
                        .entry = &g->module->entry[0],
                        .params = words,
                        .memory = gpu_memory,
                        .is_reversed = gpu_is_reversed,
                        .counts = gpu_counts};
        memcpy(l.grid, plan.grid[p], sizeof l.grid);
        for (int d = 0; d < 3 && gpu_most_blocks; d++)
            l.grid[d] = l.grid[d] > gpu_most_blocks ? gpu_most_blocks : l.grid[d];
        memcpy(l.block, plan.block[p], sizeof l.block);
        l.dynamic_shared = plan.shared_bytes[p];
        if (!ptx_run(&l, why)) status = FU_FAIL(e, FUSOR_ERROR_DEVICE, "%s", why);
        gpu_is_reversed = !gpu_is_reversed;
    }
    for (int i = 0; i <= plan.n_counters && status == FUSOR_OK; i++)
        if (counters[i]) status = FU_FAIL(e, FUSOR_ERROR_DEVICE, "counter %d is left at %u", i, counters[i]);
    free(counters);
    free(at.scratch);
    free(words);
    return status;
}
#define GPU_LAUNCH (on_machine() ? NULL : gpu_launch)
#define GPU_QUEUE  gpu_queue()
#endif
