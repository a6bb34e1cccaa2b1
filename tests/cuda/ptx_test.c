/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ptx_test.c: the interpreter of PTX: what it computes, and what it refuses. */
#include "ptx.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static char why[PTX_ERROR_ROOM];
static uint32_t memory[1024];
enum { BASE = 0x10000 };

static void *at(void *user, uint64_t address, uint64_t bytes, bool is_write) {
    (void)user, (void)is_write;
    if (address < BASE || bytes > sizeof memory || address - BASE > sizeof memory - bytes) return NULL;
    return (char *)memory + (address - BASE);
}

/* Runs `body` with %rd1 = the memory's address, %r1 = the thread's number and some registers; true: no error. */
static bool run(const char *body, uint32_t threads) {
    static char text[8192];
    snprintf(text, sizeof text,
             ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n"
             ".reg .pred %%p<4>;\n.reg .b16 %%h<4>;\n.reg .b32 %%r<32>;\n.reg .f32 %%f<16>;\n.reg .b64 %%rd<8>;\n"
             ".shared .align 4 .b8 s[1024];\nld.param.u64 %%rd1, [p];\nmov.u32 %%r1, %%tid.x;\nmul.wide.u32 %%rd2, "
             "%%r1, 4;\n"
             "add.s64 %%rd2, %%rd1, %%rd2;\nshl.b32 %%r2, %%r1, 2;\n%s\nret;\n}\n",
             body);
    ptx_module *m = ptx_parse(text, why);
    if (!m) return false;
    uint64_t p = BASE;
    ptx_launch l = {.module = m,
                    .entry = ptx_find(m, "k"),
                    .grid = {1, 1, 1},
                    .block = {threads, 1, 1},
                    .params = &p,
                    .memory = at};
    bool ok = ptx_run(&l, why);
    ptx_free(m);
    return ok;
}

static float as_float(uint32_t w) {
    float f;
    memcpy(&f, &w, 4);
    return f;
}

Test(ptx, computes) {
    cr_assert(run("mul.lo.s32 %r3, %r1, -3; st.global.u32 [%rd2], %r3;", 40), "%s", why);
    for (int i = 0; i < 40; i++) cr_assert_eq((int32_t)memory[i], -3 * i);
    cr_assert(run("cvt.rn.f32.u32 %f1, %r1; sqrt.rn.f32 %f1, %f1; fma.rn.f32 %f1, %f1, 0f40000000, 0f3F800000; "
                  "st.global.f32 [%rd2], %f1;",
                  33),
              "%s", why);
    for (int i = 0; i < 33; i++) cr_assert_eq(as_float(memory[i]), fmaf(sqrtf((float)i), 2, 1));
    cr_assert(run("cvt.rn.f32.u32 %f1, %r1; mul.rn.f32 %f1, %f1, 0f3DCCCCCD; cvt.rn.f16.f32 %h1, %f1; cvt.f32.f16 %f2, "
                  "%h1; st.global.f32 [%rd2], %f2;",
                  64),
              "%s", why);
    for (int i = 0; i < 64; i++) cr_assert_eq(as_float(memory[i]), (float)(_Float16)((float)i * 0.1f), "%d", i);
}

Test(ptx, least_and_greatest_of_sm_90) {
    cr_assert(run("sub.s32 %r3, %r1, 5; min.relu.s32 %r3, %r3, 3; st.global.u32 [%rd2], %r3;", 20), "%s", why);
    for (int i = 0; i < 20; i++) cr_assert_eq(memory[i], (uint32_t)(i < 5 ? 0 : i < 8 ? i - 5 : 3));
    cr_assert(run("mul.lo.u32 %r3, %r1, 0x1fff; max.u16x2 %r4, %r3, 0x00057000; min.s16x2 %r5, %r3, 0x00057000; "
                  "xor.b32 %r4, %r4, %r5; st.global.u32 [%rd2], %r4;",
                  30),
              "%s", why);
    for (uint32_t i = 0; i < 30; i++) {
        const uint32_t v = i * 0x1fff, low = v & 0xffff, up = v >> 16;
        const uint32_t most = (low > 0x7000 ? low : 0x7000) | (up > 5 ? up : 5) << 16;
        const uint32_t least = (uint16_t)((int16_t)low < 0x7000 ? low : 0x7000) | (uint32_t)(up < 5 ? up : 5) << 16;
        cr_assert_eq(memory[i], most ^ least, "%u", i);
    }
    cr_assert_not(run("add.relu.s32 %r3, %r1, 1;", 1));
}

Test(ptx, diverging_threads_meet_again) {
    cr_assert(run("mov.u32 %r3, 0; and.b32 %r4, %r1, 1; setp.eq.u32 %p1, %r4, 0; @%p1 bra EVEN; mov.u32 %r3, %r1;\n"
                  "LOOP: sub.u32 %r3, %r3, 2; setp.gt.s32 %p2, %r3, 0; @%p2 bra LOOP;\nEVEN: shfl.sync.bfly.b32 %r5, "
                  "%r3, 1, 31, -1;\n"
                  "st.global.u32 [%rd2], %r5;",
                  32),
              "%s", why);
    for (int i = 0; i < 32; i++) cr_assert_eq((int32_t)memory[i], i & 1 ? 0 : -1, "%d", i);
}

Test(ptx, shuffles_and_barriers_sum_a_block) {
    static const char body[] =
        "mov.u32 %%r3, %%r1;\n"
        "shfl.sync.bfly.b32 %%r4, %%r3, 16, 31, -1; add.u32 %%r3, %%r3, %%r4; shfl.sync.bfly.b32 %%r4, %%r3, 8, 31, "
        "-1; add.u32 %%r3, %%r3, %%r4;\n"
        "shfl.sync.bfly.b32 %%r4, %%r3, 4, 31, -1; add.u32 %%r3, %%r3, %%r4; shfl.sync.bfly.b32 %%r4, %%r3, 2, 31, -1; "
        "add.u32 %%r3, %%r3, %%r4;\n"
        "shfl.sync.bfly.b32 %%r4, %%r3, 1, 31, -1; add.u32 %%r3, %%r3, %%r4; shr.u32 %%r5, %%r1, 5; shl.b32 %%r5, "
        "%%r5, 2;\n"
        "mov.u32 %%r6, s; add.u32 %%r5, %%r5, %%r6; st.shared.u32 [%%r5], %%r3;\n%s\n"
        "ld.shared.u32 %%r7, [s]; ld.shared.u32 %%r8, [s+4]; add.u32 %%r7, %%r7, %%r8; st.global.u32 [%%rd2], %%r7;";
    char text[4096];
    snprintf(text, sizeof text, body, "bar.sync 0;");
    cr_assert(run(text, 64), "%s", why);
    for (int i = 0; i < 64; i++) cr_assert_eq(memory[i], 63 * 64 / 2);
    snprintf(text, sizeof text, body, ""); /* the same without its barrier is a race */
    cr_assert(!run(text, 64));
    cr_assert(strstr(why, "race in shared memory"), "%s", why);
}

Test(ptx, asynchronous_copies_need_a_wait) {
    static const char body[] = "mov.u32 %%r3, s; add.u32 %%r3, %%r3, %%r2; cp.async.ca.shared.global [%%r3], [%%rd2], "
                               "4; cp.async.commit_group;\n"
                               "%s\nld.shared.u32 %%r4, [%%r3]; st.global.u32 [%%rd2+512], %%r4;";
    char text[1024];
    for (int i = 0; i < 32; i++) memory[i] = 100u + (uint32_t)i;
    snprintf(text, sizeof text, body, "cp.async.wait_group 0;");
    cr_assert(run(text, 32), "%s", why);
    for (int i = 0; i < 32; i++) cr_assert_eq(memory[128 + i], 100u + (uint32_t)i);
    snprintf(text, sizeof text, body, "");
    cr_assert(run(text, 32), "%s", why);
    cr_assert_eq(memory[128], 0xffffffff, "a copy that nobody waited for was seen");
}

/* A predicate as the last operand makes zeros of it, wherever predicates are declared; a number is how many bytes. */
Test(ptx, asynchronous_copies_leave_out_their_source) {
    static const char body[] = "mov.u32 %%r3, s; add.u32 %%r3, %%r3, %%r2; setp.gt.u32 %%p2, %%r1, 11; %s\n"
                               "mov.u32 %%r5, 2; cp.async.ca.shared.global [%%r3], [%%rd2], 4, %s; cp.async.wait_all;\n"
                               "ld.shared.u32 %%r4, [%%r3]; st.global.u32 [%%rd2+512], %%r4;";
    char text[1024];
    for (int i = 0; i < 32; i++) memory[i] = 0x10000u + (uint32_t)i;
    for (int later = 0; later < 2; later++) {
        snprintf(text, sizeof text, body, later ? ".reg .pred %later;" : "", "%p2");
        cr_assert(run(text, 32), "%s", why);
        for (uint32_t i = 0; i < 32; i++) cr_assert_eq(memory[128 + i], i > 11 ? 0 : 0x10000u + i, "%u", i);
        snprintf(text, sizeof text, body, later ? ".reg .pred %later;" : "", "%r5");
        cr_assert(run(text, 32), "%s", why);
        for (uint32_t i = 0; i < 32; i++) cr_assert_eq(memory[128 + i], i, "%u", i);
    }
}

/* Warp 0 writes, or copies, what warp 1 reads, in two rounds of a barrier in shared memory. */
#define MAKE "setp.ne.u32 %p1, %r1, 0; @%p1 bra MADE; mbarrier.init.shared.b64 [s+512], 32;\nMADE: bar.sync 0;\n"
#define ROLES                                                                                                          \
    "mov.u32 %r3, s; mov.u32 %r9, 0; and.b32 %r4, %r1, 31; shl.b32 %r4, %r4, 2; add.u32 %r3, %r3, %r4; setp.gt.u32 "   \
    "%p2, %r1, 31; @%p2 bra READ;\n"
#define ARRIVE "mbarrier.arrive.shared.b64 %rd3, [s+512];"
#define WAIT   "TRY: mbarrier.try_wait.parity.shared.b64 %p3, [s+512], %r9; @!%p3 bra TRY;\n"
#define READ   "ld.shared.u32 %r5, [%r3]; st.global.u32 [%rd2], %r5;"
#define COPY   "cp.async.ca.shared.global [%r3], [%rd2], 4; "

Test(ptx, barriers_in_shared_memory_order_accesses) {
    cr_assert(run(MAKE ROLES "st.shared.u32 [%r3], %r1; " ARRIVE " bra END;\nREAD:" WAIT READ "\nEND:", 64), "%s", why);
    for (int i = 0; i < 32; i++) cr_assert_eq(memory[32 + i], (uint32_t)i);
    for (int i = 0; i < 32; i++) memory[i] = 200u + (uint32_t)i;
    cr_assert(run(MAKE ROLES COPY "cp.async.mbarrier.arrive.noinc.shared.b64 [s+512]; bra END;\nREAD:" WAIT READ
                                  "\nEND:",
                  64),
              "%s", why);
    for (int i = 0; i < 32; i++) cr_assert_eq(memory[32 + i], 200u + (uint32_t)i);
    /* the odd phase of a fresh barrier is over, the even one of a barrier in its second phase too */
    cr_assert(
        run(MAKE
            "setmaxnreg.inc.sync.aligned.u32 64; setp.gt.u32 %p2, %r1, 31; @%p2 bra END; mov.u32 %r9, 1;\n" WAIT ARRIVE
            "mov.u32 %r9, 0;\nMORE: mbarrier.try_wait.parity.shared.b64 %p3, [s+512], %r9; @!%p3 bra MORE;\nEND:",
            64),
        "%s", why);
}

static const struct {
    const char *body, *words;
} not_ordered[] = {
    {MAKE ROLES "st.shared.u32 [%r3], %r1; " ARRIVE " bra END;\nREAD:" READ "\nEND:", "race in shared memory"},
    {MAKE ROLES ARRIVE " st.shared.u32 [%r3], %r1; bra END;\nREAD:" WAIT READ "\nEND:", "race in shared memory"},
    {MAKE ROLES COPY "bra END;\nREAD:" READ "\nEND:", "race in shared memory"},
    {MAKE ROLES ARRIVE COPY "bra END;\nREAD:" WAIT READ "\nEND:", "race in shared memory"},
    {MAKE ROLES "bra END;\nREAD:" WAIT READ "\nEND:", "nobody is left to arrive"},
    {MAKE ROLES "setp.eq.u32 %p1, %r1, 7; @%p1 bra END; " ARRIVE " bra END;\nREAD:" WAIT READ "\nEND:",
     "nobody is left to arrive"},
    {MAKE "st.shared.u32 [s+516], %r1;", "is a barrier"},
    {"mbarrier.arrive.shared.b64 %rd3, [s+512];", "no barrier was made"},
    {"setp.ne.u32 %p1, %r1, 0; @%p1 bra MADE; mbarrier.init.shared.b64 [s+512], 32;\nMADE: " ARRIVE, "the barrier"},
};

Test(ptx, barriers_in_shared_memory_are_needed) {
    for (size_t i = 0; i < sizeof not_ordered / sizeof *not_ordered; i++) {
        cr_assert(!run(not_ordered[i].body, 64), "%s", not_ordered[i].body);
        cr_assert(strstr(why, not_ordered[i].words), "%s: %s", not_ordered[i].body, why);
    }
}

Test(ptx, matrices_multiply) {
    /* A = identity (16x16), B[k][n] = k + n / 8: D = B in the first 8 columns. Fragments as in the PTX ISA, 9.7.14. */
    cr_assert(
        run("shr.u32 %r3, %r1, 2; and.b32 %r4, %r1, 3; shl.b32 %r5, %r4, 1; sub.u32 %r6, %r3, %r5;\n" /* row - 2c */
            "mov.u32 %r7, 0; setp.eq.u32 %p1, %r6, 0; selp.u32 %r8, 0x3f80, 0, %p1; setp.eq.u32 %p2, %r6, 1; selp.u32 "
            "%r9, 0x3f800000, 0, %p2; or.b32 %r8, %r8, %r9;\n"
            "cvt.rn.f32.u32 %f1, %r5; cvt.rn.bf16.f32 %h1, %f1; add.u32 %r10, %r5, 1; cvt.rn.f32.u32 %f2, %r10; "
            "cvt.rn.bf16.f32 %h2, %f2; mov.b32 %r11, {%h1, %h2};\n"
            "add.u32 %r12, %r5, 8; cvt.rn.f32.u32 %f1, %r12; cvt.rn.bf16.f32 %h1, %f1; add.u32 %r12, %r5, 9; "
            "cvt.rn.f32.u32 %f1, %r12; cvt.rn.bf16.f32 %h2, %f1; mov.b32 %r13, {%h1, %h2};\n"
            "mov.f32 %f3, 0f00000000;\n"
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f4,%f5,%f6,%f7}, {%r8,%r7,%r7,%r8}, {%r11,%r13}, "
            "{%f3,%f3,%f3,%f3};\n"
            "st.global.f32 [%rd2], %f4; st.global.f32 [%rd2+1024], %f6;",
            32),
        "%s", why);
    for (int lane = 0; lane < 32; lane++) {
        cr_assert_eq(as_float(memory[lane]), (float)(lane / 4), "lane %d: %g", lane, (double)as_float(memory[lane]));
        cr_assert_eq(as_float(memory[256 + lane]), (float)(lane / 4 + 8));
    }
}

static const struct {
    const char *body, *words;
    uint32_t threads;
} wrong[] = {
    {"ld.global.u32 %r3, [%rd1+4096];", "not allocated", 1},
    {"ld.global.u32 %r3, [%rd1+2];", "not aligned", 1},
    {"st.shared.u32 [s+1024], %r1;", "of 1024 bytes of shared memory", 1},
    {"setp.eq.u32 %p1, %r1, 0; @%p1 bra A; bar.sync 0; bra B; A: bar.warp.sync 3; B: add.u32 %r3, %r1, 1;",
     "is elsewhere", 2},
    {"setp.eq.u32 %p1, %r1, 0; @%p1 bra A; shfl.sync.idx.b32 %r3, %r1, 0, 31, -1; A: add.u32 %r3, %r1, 1;",
     "is elsewhere", 32},
    {"trap;", "trap", 1},
    {"tcgen05.relinquish;", "unknown instruction 'tcgen05'", 1},
    {"add.weird.u32 %r3, %r1, 1;", "unknown word '.weird'", 1},
    {"add.u32 %r3, %r99x, 1;", "is no register", 1},
    {"bra NOWHERE;", "no label", 1},
    {"add.u32 %r3 %r1, 1;", "expected ','", 1},
};

Test(ptx, refuses_what_is_wrong) {
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_assert(!run(wrong[i].body, wrong[i].threads), "%s", wrong[i].body);
        cr_assert(strstr(why, wrong[i].words), "%s: %s", wrong[i].body, why);
    }
}
