/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* tune_test.c: run-time fields keep the rules of ir/kernel.h for every size, and tiles have a sensible number. */
#include "rt/tune.h"
#include "plan_test.h"
#include "rt/cpuinfo.h"
#include "rt/threads.h"

static ir_kernel kernel(ir_kernel_kind kind, const char *roles) {
    static ir_kernel k;
    memset(&k, 0, sizeof k);
    k.kind = kind;
    k.level = IR_LEVEL_V3;
    for (; roles[k.n_dims]; k.n_dims++) k.dim[k.n_dims] = (ir_kdim){roles[k.n_dims], IR_SIZE_RUNTIME};
    k.n_buffers = 2;
    for (int b = 0; b < 2; b++) {
        k.buffer[b].dtype = FUSOR_F32;
        k.buffer[b].is_output = b;
        for (int d = 0; d < k.n_dims; d++) k.buffer[b].stride[d] = d + 1 == k.n_dims ? 1 : IR_STRIDE_RUNTIME;
    }
    k.inst[0] = (ir_kinst){.op = IR_K_LOAD, .dtype = FUSOR_F32};
    k.inst[1] = (ir_kinst){.op = IR_OP_ADD, .dtype = FUSOR_F32, .n_in = 2};
    k.inst[2] = (ir_kinst){.op = IR_K_STORE, .dtype = FUSOR_F32, .n_in = 1, .in = {1}, .index = 1};
    k.n_insts = 3;
    if (kind == IR_KERNEL_CONTRACT) {
        k.tile = (ir_tile){6, 16, 256};
        k.inst[1].op = IR_OP_MATMUL;
    }
    if (kind == IR_KERNEL_REDUCE || kind == IR_KERNEL_ROW)
        k.inst[1] = (ir_kinst){.op = IR_OP_REDUCE_SUM, .dtype = FUSOR_F32, .n_in = 1};
    return k;
}

static const int64_t sizes[] = {0, 1, 2, 3, 10, 63, 64, 65, 1000, 4096, 65537, 1 << 20, INT64_C(1) << 33};
enum { N_SIZES = sizeof sizes / sizeof *sizes };
static const int threads[] = {1, 2, 3, 16, 1024};

Test(tune, map_rules) {
    ir_kernel k = kernel(IR_KERNEL_MAP, "pp");
    for (int a = 0; a < N_SIZES; a++)
        for (int b = 0; b < N_SIZES; b++)
            for (int t = 0; t < 5; t++) {
                int64_t size[2] = {sizes[a], sizes[b]}, tune[IR_TUNE_COUNT];
                rt_tune(&k, size, NULL, threads[t], tune);
                cr_assert_geq(tune[IR_TUNE_MAP_ROWS], 1);
                cr_assert_geq(tune[IR_TUNE_MAP_COLUMNS], 1);
                cr_assert(tune[IR_TUNE_MAP_COLUMNS] >= size[1] || tune[IR_TUNE_MAP_COLUMNS] % 64 == 0);
                if (threads[t] > 1) cr_assert_leq(tune[IR_TUNE_MAP_ROWS] * tune[IR_TUNE_MAP_COLUMNS], 65536 + 64);
                else if (size[0] > 0 && size[1] > 0 && (size[0] < 1 << 30 || size[1] < 1 << 30))
                    cr_assert(tune[IR_TUNE_MAP_ROWS] >= size[0] && tune[IR_TUNE_MAP_COLUMNS] >= size[1]);
            }
    int64_t size[2] = {1000, 1000}, tune[IR_TUNE_COUNT];
    rt_tune(&k, size, NULL, 2, tune);
    ir_launch l;
    ir_kernel_launch(&k, size, tune, &l);
    cr_assert(l.tiles[0] >= 8 && l.tiles[0] < 100, "%ld", (long)l.tiles[0]);
    cr_assert_eq(tune[IR_TUNE_MAP_STREAM], 0);
    size[0] = 1000000;
    rt_tune(&k, size, NULL, 2, tune);
    cr_assert_eq(tune[IR_TUNE_MAP_STREAM], 1);
}

Test(tune, a_map_without_dims) {
    ir_kernel k = kernel(IR_KERNEL_MAP, "");
    int64_t tune[IR_TUNE_COUNT];
    rt_tune(&k, NULL, NULL, 4, tune);
    ir_launch l;
    ir_kernel_launch(&k, NULL, tune, &l);
    cr_assert_eq(l.tiles[0], 1);
    cr_assert_eq(rt_tune_threads(&k, NULL, 4), 1);
}

Test(tune, reduce_and_row_rules) {
    static const struct {
        ir_kernel_kind kind;
        const char *roles;
    } forms[] = {{IR_KERNEL_REDUCE, "pr"},
                 {IR_KERNEL_REDUCE, "rr"},
                 {IR_KERNEL_REDUCE, "rv"},
                 {IR_KERNEL_ROW, "pr"},
                 {IR_KERNEL_ROW, "rv"}};
    for (int f = 0; f < 5; f++) {
        ir_kernel k = kernel(forms[f].kind, forms[f].roles);
        for (int a = 0; a < N_SIZES - 1; a++)
            for (int b = 0; b < N_SIZES - 1; b++)
                for (int t = 0; t < 5; t++) {
                    int64_t size[2] = {sizes[a], sizes[b]}, tune[IR_TUNE_COUNT];
                    rt_tune(&k, size, NULL, threads[t], tune);
                    cr_assert_geq(tune[0], 1);
                    if (k.kind == IR_KERNEL_REDUCE) cr_assert(tune[1] >= 1 && tune[2] >= 64 && tune[2] % 64 == 0);
                    else if (f == 4) cr_assert(tune[IR_TUNE_ROW_COLUMNS] >= 16 && tune[IR_TUNE_ROW_COLUMNS] % 16 == 0);
                    ir_launch l;
                    ir_kernel_launch(&k, size, tune, &l);
                    cr_assert_geq(l.tiles[0], 0);
                }
    }
    ir_kernel k = kernel(IR_KERNEL_REDUCE, "rv");
    int64_t size[2] = {4096, 4096}, tune[IR_TUNE_COUNT];
    rt_tune(&k, size, NULL, 2, tune);
    ir_launch l;
    ir_kernel_launch(&k, size, tune, &l);
    cr_assert(l.tiles[0] >= 8, "%ld", (long)l.tiles[0]);
    cr_assert_leq(tune[IR_TUNE_REDUCE_COLUMNS] * 4, rt_host_caches()->l1d_bytes / 2, "accumulators stay in L1");
    ir_kernel row = kernel(IR_KERNEL_ROW, "rv");
    size[1] = 1 << 16;
    for (size[0] = 1; size[0] <= 128; size[0] *= 2) {
        rt_tune(&row, size, NULL, 2, tune);
        ir_kernel_launch(&row, size, tune, &l);
        cr_assert(l.tiles[0] >= 2 && tune[IR_TUNE_ROW_COLUMNS] * 4 <= rt_host_caches()->l1d_bytes / 2);
        cr_assert(size[0] * tune[IR_TUNE_ROW_COLUMNS] * 8 <= rt_host_caches()->l2_bytes, "a chunk stays in L2");
    }
}

Test(tune, contract_rules) {
    ir_kernel k = kernel(IR_KERNEL_CONTRACT, "bmnk");
    for (int a = 0; a < N_SIZES - 2; a++)
        for (int b = 0; b < N_SIZES - 2; b++)
            for (int c = 0; c < N_SIZES - 2; c++)
                for (int t = 0; t < 5; t++) {
                    int64_t size[4] = {1, sizes[a], sizes[b], sizes[c]}, tune[IR_TUNE_COUNT];
                    rt_tune(&k, size, NULL, threads[t], tune);
                    cr_assert(tune[0] >= 6 && tune[0] % 6 == 0 && tune[1] >= 16 && tune[1] % 16 == 0);
                }
    for (int t = 0; t < 5; t++) { /* at once */
        int64_t size[4] = {1, INT64_C(1) << 45, 8, 8}, tune[IR_TUNE_COUNT];
        rt_tune(&k, size, NULL, threads[t], tune);
        cr_assert(tune[0] >= 6 && tune[0] % 6 == 0 && tune[1] == 16);
    }
    int64_t size[4] = {1, 1024, 1024, 1024}, tune[IR_TUNE_COUNT];
    rt_tune(&k, size, NULL, 2, tune);
    ir_launch l;
    ir_kernel_launch(&k, size, tune, &l);
    /* as many for each of the two threads as makes them end together: a cache of 2 MB has 6, others more */
    cr_assert(l.tiles[1] >= 4 && l.tiles[1] <= 64, "%ld", (long)l.tiles[1]);
    cr_assert_eq(tune[IR_TUNE_CONTRACT_A_IN_PLACE], 0, "in place without strides");
}

/* Operand 0 is read in place unless its rows crowd a set of the L1 cache, or its columns lie far apart. */
Test(tune, operand_0_in_place) {
    ir_kernel k = kernel(IR_KERNEL_CONTRACT, "mnk");
    k.tile.mr = 12;
    int64_t size[3] = {256, 256, 256}, stride[6] = {256, 0, 1}, tune[IR_TUNE_COUNT];
    rt_tune(&k, size, stride, 1, tune);
    cr_assert_eq(tune[IR_TUNE_CONTRACT_A_IN_PLACE], 1);
    stride[0] = 1, stride[2] = 100000;
    rt_tune(&k, size, stride, 1, tune);
    cr_assert_eq(tune[IR_TUNE_CONTRACT_A_IN_PLACE], 0, "columns far apart");
    stride[0] = 1024, stride[2] = 1;
    k.tile.mr = 16;
    size[0] = 1 << 20;
    rt_tune(&k, size, stride, 1, tune);
    cr_assert_eq(tune[IR_TUNE_CONTRACT_A_IN_PLACE], rt_host_caches()->l1d_bytes >= 16 * 4096);
}

/* Operand 1 is read in place where rows are few, or some more and its own are in few pages; not many rows, nor rows of
 * its own that crowd a few sets of the L2 cache. */
Test(tune, operand_1_in_place) {
    ir_kernel k = kernel(IR_KERNEL_CONTRACT, "mnk");
    k.inst[1] = (ir_kinst){.op = IR_K_LOAD, .dtype = FUSOR_F32, .index = 1};
    k.inst[2] = (ir_kinst){.op = IR_OP_MATMUL, .dtype = FUSOR_F32, .n_in = 2, .in = {0, 1}};
    k.buffer[1].stride[1] = 1;
    k.buffer[1].stride[2] = IR_STRIDE_RUNTIME;
    rt_host_assume_caches((rt_caches){32 << 10, 512 << 10, 32 << 20, 8});
    const int64_t l2 = rt_host_caches()->l2_bytes;
    const struct {
        int64_t m, n, apart;
        bool in_place;
    } cases[] = {{48, 1000, 1000, true},     {128, 1000, 1000, false},  {128, 128, 128, true},
                 {256, 128, 128, true},      {257, 128, 128, false},    {1000, 10, 10, false},
                 {48, 64, l2 / 1024, false}, {20, 64, l2 / 1024, true}, {20, 64, l2 / 64, false},
                 {12, 64, l2 / 64, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t n = cases[i].n, size[3] = {cases[i].m, n, 1000}, stride[6] = {1000, 0, 1, 0, 1, cases[i].apart};
        int64_t tune[IR_TUNE_COUNT];
        rt_tune(&k, size, stride, 1, tune);
        cr_assert_eq(tune[IR_TUNE_CONTRACT_B] == IR_CONTRACT_B_IN_PLACE, cases[i].in_place, "%ld rows, %ld apart",
                     (long)size[0], (long)cases[i].apart);
    }
}

/* It is swept where rows are few and its own crowd the L2 cache, whatever threads there are: columns whose sums stay in
 * L1, a part for each. */
Test(tune, operand_1_swept) {
    ir_kernel k = kernel(IR_KERNEL_CONTRACT, "mnk");
    k.inst[1] = (ir_kinst){.op = IR_K_LOAD, .dtype = FUSOR_F32, .index = 1};
    k.inst[2] = (ir_kinst){.op = IR_OP_MATMUL, .dtype = FUSOR_F32, .n_in = 2, .in = {0, 1}};
    k.buffer[1].stride[1] = 1;
    k.buffer[1].stride[2] = IR_STRIDE_RUNTIME;
    rt_host_assume_caches((rt_caches){48 << 10, 2 << 20, 32 << 20, 8});
    const int64_t l1 = rt_host_caches()->l1d_bytes, l2 = rt_host_caches()->l2_bytes;
    const struct {
        int64_t m, k, apart;
        bool can_sweep, is_swept;
    } cases[] = {{2, 1000, l2 / 64, true, true},  {8, 1000, l2 / 64, true, true}, {9, 1000, l2 / 64, true, false},
                 {2, 1002, l2 / 64, true, false}, {2, 1000, 1000, true, false},   {2, 1000, l2 / 64, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int n_threads = 1; n_threads <= 16; n_threads *= 4) {
            const int64_t n = 4096, size[3] = {cases[i].m, n, cases[i].k},
                          stride[6] = {cases[i].k, 0, 1, 0, 1, cases[i].apart};
            int64_t tune[IR_TUNE_COUNT];
            k.can_sweep = cases[i].can_sweep;
            rt_tune(&k, size, stride, n_threads, tune);
            cr_assert_eq(tune[IR_TUNE_CONTRACT_B] == IR_CONTRACT_B_SWEPT, cases[i].is_swept, "case %zu", i);
            if (!cases[i].is_swept) continue;
            cr_assert(tune[IR_TUNE_CONTRACT_NC] * cases[i].m * 4 <= l1);
            cr_assert(tune[IR_TUNE_CONTRACT_NC] * n_threads <= n + 2 * n_threads * k.tile.nr);
            cr_assert(tune[IR_TUNE_CONTRACT_MC] >= cases[i].m);
        }
}

/* Each thread packs operand 1 for itself where its rows are worth that. */
Test(tune, threads_pack_for_themselves) {
    ir_kernel k = kernel(IR_KERNEL_CONTRACT, "mnk");
    int64_t stride[6] = {128, 0, 1, 0, 1, 512}, tune[IR_TUNE_COUNT];
    const int64_t size[3] = {512, 64, 128};
    rt_tune(&k, size, stride, 2, tune);
    cr_assert_eq(tune[IR_TUNE_CONTRACT_B], IR_CONTRACT_B_BY_BLOCK);
    cr_assert(tune[IR_TUNE_CONTRACT_MC] >= 256 && tune[IR_TUNE_CONTRACT_MC] < 256 + 6);
    rt_tune(&k, size, stride, 16, tune);
    cr_assert_eq(tune[IR_TUNE_CONTRACT_B], IR_CONTRACT_B_PACKED);
}

/* Elements of the result that the thread with most of them makes: whole blocks go first. */
static int64_t most_of_a_thread(const int64_t *size, const int64_t *tune, int n_threads) {
    const int64_t mc = tune[IR_TUNE_CONTRACT_MC], nc = tune[IR_TUNE_CONTRACT_NC];
    int64_t made[16] = {0}, most = 0, n = 0;
    for (int64_t i = 0; i < size[0]; i += mc)
        for (int64_t j = 0; j < size[1]; j += nc, n++) {
            int64_t *mine = &made[n % n_threads];
            *mine += (size[0] - i < mc ? size[0] - i : mc) * (size[1] - j < nc ? size[1] - j : nc);
            if (*mine > most) most = *mine;
        }
    return most;
}

/* A team gets enough tiles, and no thread more than a sixteenth above its share; of few rows an eighth, where blocks are
 * small for L2's sake a quarter. */
static void check_tiles_are_even(int64_t l2_bytes) {
    ir_kernel k = kernel(IR_KERNEL_CONTRACT, "mnk");
    rt_host_assume_caches((rt_caches){32 << 10, l2_bytes, 32 << 20, 8});
    for (int64_t n = 64; n <= 1024; n *= 2)
        for (int t = 2; t <= 16; t *= 2)
            for (int64_t pad = 0; pad <= 16; pad += 16) {
                int64_t size[3] = {n, n, n}, stride[6] = {n + pad, 0, 1, n, 1, 0}, tune[IR_TUNE_COUNT];
                rt_tune(&k, size, stride, t, tune);
                ir_launch l;
                ir_kernel_launch(&k, size, tune, &l);
                cr_assert(l.tiles[1] >= (n > 64 || t <= 4 ? t : 4), "%ld: %ld tiles for %d", (long)n, (long)l.tiles[1],
                          t);
                if (n <= 64) continue;
                cr_expect(tune[IR_TUNE_CONTRACT_A_IN_PLACE] || (pad == 0 && n == 1024), "%ld, %ld apart: packed",
                          (long)n, (long)(n + pad));
                const int64_t most = most_of_a_thread(size, tune, t);
                const int64_t part = l2_bytes < 1 << 20 ? 4 : n > 128 ? 16 : 8;
                cr_expect_leq(most * t * part, n * n * (part + 1), "%ld: %ld x %ld: %ld of %ld for %d", (long)n,
                              (long)tune[0], (long)tune[1], (long)most, (long)(n * n), t);
            }
}

Test(tune, contract_tiles_are_even) {
    for (int64_t l2_bytes = 512 << 10; l2_bytes <= 2 << 20; l2_bytes *= 2) check_tiles_are_even(l2_bytes);
}

/* Few rows of few columns: whichever of them makes as much for each. */
Test(tune, few_tiles_are_even) {
    static const int64_t of[][3] = {{291, 60, 104}, {197, 50, 240}, {100, 60, 200}};
    static const int n_threads[] = {5, 5, 2};
    ir_kernel k = kernel(IR_KERNEL_CONTRACT, "mnk");
    k.tile = (ir_tile){9, 48, 512};
    for (int i = 0; i < 3; i++) {
        const int64_t *size = of[i], stride[6] = {size[2], 0, 1, size[1], 1, 0};
        int64_t tune[IR_TUNE_COUNT];
        rt_tune(&k, size, stride, n_threads[i], tune);
        const int64_t most = most_of_a_thread(size, tune, n_threads[i]);
        cr_expect(most * n_threads[i] * 5 <= size[0] * size[1] * 6, "%ld x %ld: %ld", (long)size[0], (long)size[1],
                  (long)most);
    }
}

/* Rows of operand 0 a multiple of 4096 bytes apart are in one set of L1: as many as its ways, of few ways half,
 * are read where they lie. */
Test(tune, rows_of_one_set_are_packed) {
    ir_kernel k = kernel(IR_KERNEL_CONTRACT, "mnk");
    const int64_t ways = rt_host_caches()->l1d_bytes / 4096, most = ways <= 8 ? ways / 2 : ways;
    for (int64_t apart = 1024; apart <= 2048; apart += 512)
        for (int mr = 1; mr <= 12; mr++) {
            int64_t size[3] = {32, 512, 512}, stride[6] = {apart, 0, 1, 512, 1, 0}, tune[IR_TUNE_COUNT];
            k.tile.mr = mr;
            rt_tune(&k, size, stride, 1, tune);
            if (apart % 1024 == 0)
                cr_assert_eq(tune[IR_TUNE_CONTRACT_A_IN_PLACE], mr <= most, "%d rows, %ld apart", mr, (long)apart);
            else if (mr <= ways) cr_assert(tune[IR_TUNE_CONTRACT_A_IN_PLACE], "%d rows, %ld apart", mr, (long)apart);
        }
}

/* More of them than L2 has places for are packed, however few are read at a time. */
Test(tune, rows_that_crowd_l2_are_packed) {
    ir_kernel k = kernel(IR_KERNEL_CONTRACT, "mnk");
    for (int64_t apart = 1024; apart <= 16384; apart *= 2) {
        int64_t size[3] = {1 << 20, 64, 64}, stride[6] = {apart, 0, 1, 64, 1, 0}, tune[IR_TUNE_COUNT];
        k.tile.mr = 1;
        for (int far = 0; far < 2; far++) {
            stride[0] = apart + (far ? 0 : 16);
            rt_tune(&k, size, stride, 1, tune);
            cr_assert_eq(tune[IR_TUNE_CONTRACT_A_IN_PLACE], !far, "%ld apart", (long)stride[0]);
        }
    }
}

/* A product in tile registers, of operands of one type. */
static ir_kernel tiles(ir_features features, ir_dot dot, ir_dtype operand, ir_dtype sum) {
    ir_kernel k = kernel(IR_KERNEL_CONTRACT, "mnk");
    k.level = IR_LEVEL_V4;
    k.features = features;
    for (int i = 0; i < 2; i++) k.inst[i] = (ir_kinst){.op = IR_K_LOAD, .dtype = operand, .index = (uint16_t)i};
    k.inst[2] = (ir_kinst){.op = IR_OP_MATMUL, .dtype = sum, .n_in = 2, .in = {0, 1}};
    k.tile = ir_dot_tile(IR_LEVEL_V4, dot, -1, -1);
    return k;
}

/* Of tiles, a part of a panel of columns stays in L1, the rows that go by in half of L2 and what waits in a 32nd,
 * or what one panel has; all of 4096 columns meet the rows. */
Test(tune, parts_of_tiles) {
    const ir_kernel k = tiles(IR_FEATURE_AMXBF16, IR_DOT_TILE_BF16, FUSOR_BF16, FUSOR_F32);
    rt_host_assume_caches((rt_caches){48 << 10, 2 << 20, 32 << 20, 8}); /* of a CPU that has tiles */
    const int64_t l1 = rt_host_caches()->l1d_bytes, l2 = rt_host_caches()->l2_bytes, row = 32 * 4;
    for (int a = 0; a < N_SIZES - 2; a++)
        for (int c = 0; c < N_SIZES - 2; c++)
            for (int t = 0; t < 5; t++) {
                int64_t size[3] = {sizes[a], 4096, sizes[c]}, tune[IR_TUNE_COUNT];
                rt_tune(&k, size, NULL, threads[t], tune);
                const int64_t panels = tune[IR_TUNE_CONTRACT_MC] / 32, part = tune[IR_TUNE_CONTRACT_PART];
                const int64_t words = ir_dot_words(IR_DOT_TILE_BF16, size[2] < 2048 ? size[2] : 2048);
                cr_assert(panels >= 1 && tune[IR_TUNE_CONTRACT_MC] % 32 == 0 && tune[IR_TUNE_CONTRACT_NC] % 32 == 0);
                cr_assert(panels == 1 || panels * words * row <= l2 / 2);
                cr_assert(part % 16 == 0 && part >= 0 && tune[IR_TUNE_CONTRACT_GROUP] >= 1);
                const int64_t stays = ir_contract_part(&k, tune, words) * row;
                cr_assert(panels == 1 || stays <= l1 * 3 / 4, "%ld of %ld bytes", (long)stays, (long)l1);
                cr_assert(tune[IR_TUNE_CONTRACT_GROUP] == 1 ||
                          tune[IR_TUNE_CONTRACT_GROUP] * panels * 32 * row <= l2 / 32);
                cr_assert(threads[t] > 1 || tune[IR_TUNE_CONTRACT_NC] == 4096);
            }
}

/* What a thread's part of L2 holds is there; results that are finished late are asked for where twice as many are. */
Test(tune, results_of_tiles_beyond_l2_are_asked_for) {
    ir_kernel k = tiles(IR_FEATURE_AMXINT8, IR_DOT_TILE_I8, FUSOR_U8, FUSOR_I32);
    k.inst[3] = (ir_kinst){.op = IR_K_STORE, .n_in = 1, .in = {2}, .index = 2};
    k.n_insts = 4;
    k.buffer[2] = (ir_kbuffer){.dtype = FUSOR_I32, .stride = {1024, 1, 0}};
    const int64_t l2 = rt_host_caches()->l2_bytes;
    for (int threads_of = 1; threads_of <= 3; threads_of++)
        for (int64_t quarters = 1; quarters <= 12; quarters++) { /* of L2, each thread's */
            int64_t size[3] = {threads_of * quarters * l2 / 4 / 4096, 1024, 512}, tune[IR_TUNE_COUNT];
            rt_tune(&k, size, NULL, threads_of, tune);
            const int64_t wanted = quarters < 4   ? IR_CONTRACT_PREFETCH_NONE
                                   : quarters < 8 ? IR_CONTRACT_PREFETCH_SOON
                                                  : IR_CONTRACT_PREFETCH_ALL;
            cr_assert_eq(tune[IR_TUNE_CONTRACT_PREFETCH], wanted, "%d threads, %ld quarters", threads_of,
                         (long)quarters);
        }
}

Test(tune, rows_of_a_small_contraction_are_shared) {
    ir_kernel k = kernel(IR_KERNEL_CONTRACT, "mnk");
    int64_t size[3] = {64, 64, 64}, tune[IR_TUNE_COUNT];
    k.is_direct = true;
    for (int d = 0; d < 3; d++) k.dim[d].size = 64;
    k.buffer[0].stride[1] = 1;
    for (int t = 0; t < 5; t++) {
        ir_launch l;
        rt_tune(&k, size, NULL, threads[t], tune);
        ir_kernel_launch(&k, size, tune, &l);
        cr_assert_eq(tune[IR_TUNE_CONTRACT_MC] % k.tile.mr, 0);
        cr_assert_eq(l.tiles[0], threads[t] < 10 ? threads[t] : 10, "%d: %ld", threads[t], (long)l.tiles[0]);
    }
}

Test(tune, threshold) {
    ir_kernel k = kernel(IR_KERNEL_MAP, "p");
    int64_t n = 10000;
    cr_assert_eq(rt_tune_threads(&k, &n, 8), 1);
    n = 1000000;
    cr_assert_eq(rt_tune_threads(&k, &n, 8), 8);
    cr_assert_eq(rt_tune_threads(&k, &n, 1), 1);
    n = 12000;
    k.inst[1].op = IR_OP_EXP;
    cr_assert_eq(rt_tune_threads(&k, &n, 8), 8, "costly elements pay earlier");
    k = kernel(IR_KERNEL_CONTRACT, "mnk");
    int64_t small[3] = {32, 32, 32}, large[3] = {128, 128, 128};
    cr_assert_eq(rt_tune_threads(&k, small, 8), 1);
    cr_assert_eq(rt_tune_threads(&k, large, 8), 8);
    /* a fork that costs twice as much needs twice the work */
    const int64_t work = rt_tune_work(&k, (int64_t[]){64, 64, 64}), ns = RT_FORK_LEAST_NS;
    cr_assert_eq(rt_tune_team(work, 8, ns), 8);
    cr_assert_eq(rt_tune_team(work, 8, 2 * ns), 1);
    cr_assert_eq(rt_tune_team(2 * work, 8, 2 * ns), 8);
    cr_assert_eq(rt_tune_team(INT64_MAX, 8, RT_FORK_MOST_NS), 8);
}

/* Small images, whose weights are more than they: whole images, and channels parted so that all threads have as many
 * tiles, or some each. */
TestSuite(tune_window, .init = text_start, .fini = text_stop);
Test(tune_window, small_images_are_shared_by_channels) {
    static const char text[] =
        "func @f(%x: f32[A, 128, 7, 7], const %w: f32[512, 128, 3, 3]) -> f32[?, ?, ?, ?] { %y = "
        "conv(%x, %w, pads=[1, 1, 1, 1]) return %y }";
    const ir_plan *plan = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V4});
    const ir_kernel *k = plan->steps.at[0].kernel;
    cr_assert(plan->steps.n == 1 && k->is_by_channel && ir_window_tile_rows(k) > 1);
    for (int64_t batches = 1; batches <= 5; batches++)
        for (int t = 0; t < 4; t++) {
            int64_t size[IR_KERNEL_MAX_DIMS], tune[IR_TUNE_COUNT];
            for (int d = 0; d < k->n_dims; d++) {
                int64_t known;
                size[d] = ir_size_is_const(plan->graph->sizes, plan->steps.at[0].dim[d], &known) ? known : batches;
            }
            ir_launch l;
            rt_tune(k, size, NULL, threads[t], tune);
            ir_kernel_launch(k, size, tune, &l);
            const int64_t tiles = l.tiles[l.n_phases - 1];
            cr_expect(tune[IR_TUNE_WINDOW_ROWS] == 7, "%ld images, %d threads", (long)batches, threads[t]);
            cr_expect(tiles % threads[t] == 0 || tiles >= 4 * threads[t] || tiles == 16 * batches,
                      "%ld images, %d threads: %ld tiles", (long)batches, threads[t], (long)tiles);
        }
}

/* A slab that is too large at four rows too: 56 rows in 12 and in 13 parts are five each. */
Test(tune_window, rows_that_never_fit) {
    static const char *const texts[] = {
        "func @f(%x: f32[1, 4096, 112, 112], const %w: f32[32, 4096, 3, 3]) -> f32[?, ?, ?, ?] { %y = conv(%x, %w, "
        "pads=[1, 1, 1, 1], strides=[2, 2]) return %y }",
        "func @f(%x: u8[1, 40000, 56, 56], const %w: i8[32, 40000, 3, 3]) -> i32[?, ?, ?, ?] { %y = conv(%x, %w, "
        "pads=[1, 1, 1, 1]) return %y }",
    };
    for (int i = 0; i < 2; i++) {
        const ir_plan *plan = plan_text(texts[i], &(ir_plan_options){.level = IR_LEVEL_V4});
        const ir_kernel *k = plan->steps.at[0].kernel;
        cr_assert(plan->steps.n == 1 && k->is_by_channel == (i == 0));
        int64_t size[IR_KERNEL_MAX_DIMS], tune[IR_TUNE_COUNT];
        for (int d = 0; d < k->n_dims; d++)
            cr_assert(ir_size_is_const(plan->graph->sizes, plan->steps.at[0].dim[d], &size[d]));
        rt_tune(k, size, NULL, 1, tune);
        cr_expect(tune[IR_TUNE_WINDOW_ROWS] == 4, "%ld rows", (long)tune[IR_TUNE_WINDOW_ROWS]);
    }
}

/* A band that is too large with all channels: four panels in two and in three parts are two each. */
Test(tune_window, channels_whose_bands_do_not_fit) {
    for (int columns = 56; columns <= 1792; columns *= 2)
        for (int made = 64; made <= 512; made += 64) {
            const char *text = fu_format(&arena,
                                         "func @f(%%x: f32[1, 64, 112, %d], const %%w: f32[%d, 64, 3, 3]) -> f32[?, ?, "
                                         "?, ?] { %%y = conv(%%x, %%w, pads=[1, 1, 1, 1]) %%z = max_pool(%%y, "
                                         "kernel=[2, 2], strides=[2, 2]) return %%z }",
                                         columns, made);
            const ir_plan *plan = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V4});
            const ir_kernel *k = plan->steps.at[0].kernel;
            int64_t size[IR_KERNEL_MAX_DIMS], tune[IR_TUNE_COUNT];
            cr_assert(plan->steps.n == 1 && k->band_rows == 2);
            for (int d = 0; d < k->n_dims; d++)
                cr_assert(ir_size_is_const(plan->graph->sizes, plan->steps.at[0].dim[d], &size[d]));
            rt_tune(k, size, NULL, 1, tune);
            const int64_t channels = tune[IR_TUNE_WINDOW_CHANNELS];
            cr_expect(channels >= k->tile.nr && channels % k->tile.nr == 0, "%d columns, %d channels", columns, made);
        }
}

/* A result of one row is parted into columns, as many parts for each thread, and what a part reads of the operand stays
 * in half of L2; where weights are more than the operand, channels are. */
Test(tune_window, one_row_is_shared_by_columns) {
    static const char *const texts[] = {
        "func @f(%x: f32[1, 32, 40000], const %w: f32[32, 32, 7]) -> f32[?, ?, ?] { %y = conv(%x, %w, pads=[3, 3]) "
        "return %y }",
        "func @f(%x: f32[1, 64, 1, 20000], const %w: f32[256, 64, 1, 3]) -> f32[?, ?, ?, ?] { %y = conv(%x, %w) "
        "return %y }",
        "func @f(%x: f32[1, 64, 20000], const %w: f32[64, 32, 4]) -> f32[?, ?, ?] { %y = conv_transpose(%x, %w, "
        "strides=[2]) return %y }",
        "func @f(%x: f32[1, 256, 300], const %w: f32[256, 256, 7]) -> f32[?, ?, ?] { %y = conv(%x, %w, pads=[3, 3]) "
        "return %y }",
    };
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < 4; t++) {
            const ir_plan *plan = plan_text(texts[i], &(ir_plan_options){.level = IR_LEVEL_V4});
            const ir_kernel *k = plan->steps.at[0].kernel;
            cr_assert(plan->steps.n == 1 && ir_window_cuts_rows(k));
            int64_t size[IR_KERNEL_MAX_DIMS], tune[IR_TUNE_COUNT];
            for (int d = 0; d < k->n_dims; d++)
                cr_assert(ir_size_is_const(plan->graph->sizes, plan->steps.at[0].dim[d], &size[d]));
            ir_launch l;
            rt_tune(k, size, NULL, threads[t], tune);
            ir_kernel_launch(k, size, tune, &l);
            const int64_t tiles = l.tiles[l.n_phases - 1], columns = ir_window_tile_columns(k, size, tune),
                          n = ir_window_size(k, ir_kernel_dim(k, 'n'), size[ir_kernel_dim(k, 'n')]);
            const int64_t of_one = (tiles + threads[t] - 1) / threads[t], of_all = (n + columns - 1) / columns;
            cr_expect(of_one * columns * threads[t] <= tiles / of_all * n * 6 / 5, "%d, %d threads: %ld tiles of %ld",
                      i, threads[t], (long)tiles, (long)columns);
            cr_expect(ir_kernel_slab_bytes(k, size, 1, columns) <= rt_host_caches()->l2_bytes / 2 || columns < 1000,
                      "%d, %d threads: %ld columns", i, threads[t], (long)columns);
            cr_expect(i < 3 || 4 % threads[t] || columns == n, "%ld columns", (long)columns);
        }
}

/* Of a single row's panels the begin of each page, or all of it. */
Test(tune, page_head) {
    ir_kernel k = kernel(IR_KERNEL_CONTRACT, "mnk");
    int64_t size[3] = {1, 1024, 1024}, tune[IR_TUNE_COUNT];
    rt_tune(&k, size, NULL, 1, tune);
    const int64_t head = tune[IR_TUNE_CONTRACT_PAGE_HEAD];
    cr_assert(head % 64 == 0 && head >= 64 && head <= IR_PAGE_BYTES);
    cr_assert_eq(head < IR_PAGE_BYTES, rt_host_caches()->l1d_bytes <= 32 << 10);
}
