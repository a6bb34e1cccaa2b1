/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* bench_counts.c: fusor bench --counts. What is the same on every machine: for each workload the kernels and the bytes
 * that they move, fused and unfused, and for each CPU level the instructions and bytes of code of the fused kernels.
 * tests/bench keeps what it prints, so that a fusion that is lost fails a test, and so does a kernel that grows by more
 * than a fifth and 16 instructions. */
#include "bench.h"
#include "timing.h"
#include "ir/codegen_api.h"
#include "rt/compiler.h"
#include <inttypes.h>
#include <stdlib.h>

static void *allocate(void *user, size_t bytes) {
    (void)user;
    return malloc(bytes ? bytes : 1);
}

/* Lines of a listing, but for int3: what lies between functions. */
static int64_t instructions_of(const char *listing) {
    static const char padding[] = "int3\n";
    const size_t n = sizeof padding - 1;
    int64_t lines = 0;
    for (const char *p = listing, *end; (end = strchr(p, '\n')); p = end + 1)
        lines += end - p < (ptrdiff_t)n || strncmp(end + 1 - n, padding, n) != 0;
    return lines;
}

/* Instructions and bytes of one kernel. */
static int count_kernel(tool *t, const fusor_codegen_table *module, const ir_kernel *k, int64_t *instructions,
                        int64_t *bytes) {
    fu_str text;
    fu_str_init(&text, &t->arena);
    ir_kernel_print(&text, k);
    fusor_codegen_request q = {.version = FUSOR_CODEGEN_VERSION,
                               .stage = FUSOR_CODEGEN_BLOB,
                               .description = text.at,
                               .description_bytes = text.n,
                               .symbol = "counted",
                               .allocate = allocate};
    fusor_codegen_result blob = {0}, listing = {0};
    int code = module->generate(&q, &blob);
    if (!code) {
        q.stage = FUSOR_CODEGEN_DISASM;
        q.blob = blob.data;
        q.blob_bytes = blob.code_bytes && blob.code_bytes <= blob.bytes ? blob.code_bytes : blob.bytes;
        *bytes += (int64_t)q.blob_bytes;
        code = module->generate(&q, &listing);
    }
    if (!code) *instructions += instructions_of(listing.data);
    int status = code ? tool_environment(t, "%s", blob.error[0] ? blob.error : listing.error) : 0;
    free(blob.data);
    free(listing.data);
    return status;
}

static int plan_of(tool *t, const bench_workload *w, bool no_fuse, const char *target, ir_plan **out) {
    fu_error e;
    fu_error_clear(&e);
    compile_request request = {.ctx = t->ctx,
                               .name = w->name,
                               .text = w->text,
                               .length = strlen(w->text),
                               .flags = no_fuse ? FUSOR_NO_FUSE : 0,
                               .target = target};
    return compile_plan(&t->arena, &e, &request, out) == FUSOR_OK ? 0 : tool_fail(t, &e);
}

int bench_counts(tool *t) {
    static const char *const levels[] = {"v2", "v3", "v4"};
    fu_error e;
    fu_error_clear(&e);
    const fusor_codegen_table *module;
    json_t *rows = json_array();
    int64_t sizes[8];
    int status = tool_context(t, 0);
    if (!status && rt_module_get(&e, &module) != FUSOR_OK) status = tool_fail(t, &e);
    if (!status && !t->json) printf("# llvm %.*s\n", (int)strcspn(module->llvm_version, "."), module->llvm_version);
    for (int i = 0; i < bench_n_workloads && !status; i++) {
        const bench_workload *w = &bench_workloads[i];
        if (!bench_is_wanted(t, w) || w->kind != BENCH_CALL) continue;
        ir_plan *fused, *unfused;
        fu_mark mark = fu_arena_mark(&t->arena);
        int n = bench_sizes(t, w, sizes);
        int64_t symbols[1] = {sizes[n / 2]}, instructions[3] = {0}, bytes[3] = {0};
        if ((status = plan_of(t, w, false, "v3", &fused)) != 0 || (status = plan_of(t, w, true, "v3", &unfused)) != 0)
            break;
        traffic moved = timing_traffic(fused, symbols), apart = timing_traffic(unfused, symbols);
        for (int k = 0; k < 3 && !status; k++) {
            ir_plan *plan;
            status = plan_of(t, w, false, levels[k], &plan);
            for (uint32_t s = 0; s < (status ? 0 : plan->steps.n) && !status; s++)
                if (plan->steps.at[s].kind == IR_STEP_KERNEL)
                    status = count_kernel(t, module, plan->steps.at[s].kernel, &instructions[k], &bytes[k]);
        }
        double all = moved.bytes_read + moved.bytes_written, all_apart = apart.bytes_read + apart.bytes_written;
        if (!status && !t->json)
            printf("%s: %s, %" PRId64 ": kernels %d of %d, bytes %.0f of %.0f, instructions %" PRId64 " %" PRId64
                   " %" PRId64 ", code %" PRId64 " %" PRId64 " %" PRId64 "\n",
                   w->suite, w->name, symbols[0], moved.kernels, apart.kernels, all, all_apart, instructions[0],
                   instructions[1], instructions[2], bytes[0], bytes[1], bytes[2]);
        if (!status)
            (void)json_array_append_new(
                rows, json_pack("{s:s, s:s, s:I, s:i, s:i, s:I, s:I, s:[I,I,I], s:[I,I,I]}", "suite", w->suite, "name",
                                w->name, "size", (json_int_t)symbols[0], "kernels", moved.kernels, "unfused_kernels",
                                apart.kernels, "bytes", (json_int_t)all, "unfused_bytes", (json_int_t)all_apart,
                                "instructions", (json_int_t)instructions[0], (json_int_t)instructions[1],
                                (json_int_t)instructions[2], "code_bytes", (json_int_t)bytes[0], (json_int_t)bytes[1],
                                (json_int_t)bytes[2]));
        fu_arena_release(&t->arena, mark);
    }
    if (!status && t->json) {
        json_t *d = report_new("fusor-bench-counts/1");
        (void)json_object_set_new(d, "llvm", json_string(module->llvm_version));
        (void)json_object_set_new(d, "levels", json_pack("[s,s,s]", levels[0], levels[1], levels[2]));
        (void)json_object_set(d, "workloads", rows);
        status = report_print(t, d);
    }
    json_decref(rows);
    return status;
}
