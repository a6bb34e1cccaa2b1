/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* profile_advice.c: what to do about a slow kernel. The first row that fits speaks; doc/guide.md explains each. */
#include "profile_advice.h"
#include <stdbool.h>
#include <string.h>

/* Per cent of a limit. PAST: no kernel is so fast; with data, what a nearer cache serves and loads without stores are. */
enum { NEAR = 70, FAR = 35, PAST = 110, PAST_DATA = 200 };

static bool has(const char *list, const char *word) { return strstr(list, word) != NULL; }

const char *profile_advice(const profile_facts *f) {
    const double share = 100 * f->limit_share;
    const bool is_arithmetic = strcmp(f->limit, "arithmetic") == 0, is_memory = strcmp(f->limit, "memory") == 0,
               is_window = strcmp(f->kind, "window") == 0, is_attention = strcmp(f->kind, "attention") == 0,
               is_product = is_window || is_attention || strcmp(f->kind, "contract") == 0;
    if (strcmp(f->kind, "reference") == 0)
        return "the reference evaluator computes this operator: another type or operator would have a kernel "
               "(doc/operators.md)";
    if (strcmp(f->kind, "upload") == 0 || strcmp(f->kind, "download") == 0)
        return "copies between the host and the device: keep data there (buffers of the device, bound parameters)";
    if (strcmp(f->kind, "copy") == 0)
        return "a copy: return a computed value, or let the aliased parameter be read only by what overwrites it";
    if (strcmp(f->kind, "check") == 0)
        return "indices are checked: computed ones are stored for it; indices that are parameters cost less";
    if (strcmp(f->limit, "call") == 0)
        return "the call costs more than the work: more work a call (larger batches, fusor_executable_call_each), or "
               "fusor_executable_prepare";
    if (f->limit[0] && share > (is_arithmetic ? PAST : PAST_DATA))
        return "faster than the stored limit, which is wrong (measured on a busy machine): fusor info --measure renews "
               "it";
    if (is_arithmetic && share >= NEAR && is_product)
        return "arithmetic binds it, near the peak: a narrower type (bf16, i8) or more threads; the kernel has little "
               "left";
    if (is_arithmetic && share >= NEAR)
        return "arithmetic binds it, near the peak: --math fast, fewer functions, or more threads";
    if (is_memory && share >= NEAR)
        return "memory binds it, near the peak: fewer bytes would help (a narrower type, or more operators in one "
               "kernel: fusor explain)";
    if (share >= NEAR)
        return "a cache level binds it, near its peak: fewer bytes or fewer passes would help (a narrower type, more "
               "operators in one kernel)";
    if (strcmp(f->kind, "scan") == 0)
        return "a running sum depends on the element before: several lines side by side (another axis) use more of the "
               "machine";
    if (strcmp(f->kind, "contract") == 0 && share < FAR)
        return "a small or thin contraction: batches of them, or a larger dimension, use more of the machine; bind "
               "const weights so that they are packed once";
    if (strcmp(f->kind, "contract") == 0)
        return "a contraction below the peak: bind const weights (packed once), and give it sizes that are multiples "
               "of the register tile (fusor explain)";
    if (is_window)
        return "a convolution below the peak: bind const weights (packed once); few channels leave little to do with "
               "what is loaded, small images little for a thread: more of them a call";
    if (is_attention && is_arithmetic)
        return "attention below the peak: its softmax is work too, and few queries read all keys for little: more of "
               "them a call";
    if (has(f->ops, "take") || has(f->ops, "scatter"))
        return "gathered or scattered elements: neighbouring indices beside each other use whole cache lines";
    if (f->n_threads > 1 && f->median_ns < 20000)
        return "short work on a team: starting it costs microseconds; one thread, or more work a call, may be faster";
    if (is_arithmetic)
        return "functions bind it: --math fast, or fewer of them; see the instructions with fusor explain --format "
               "html";
    if (is_memory)
        return "memory is waited for, below its peak: larger contiguous rows, or more threads, use more of it";
    return "no limit is near: fusor explain --format html shows its instructions; fusor run --trace shows what its "
           "threads wait for";
}
