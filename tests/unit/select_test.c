/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* select_test.c: the policy of "auto" on made-up times: it ends at the faster side, tries the other seldom, and never
 * where the model forbids it; its file survives damage, other processes and too many programs. */
#include "rt/select.h"
#include "base/file.h"
#include "rt/limits.h"
#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* n calls of what really takes `truth`; how many went to each side, and what was lost beside always taking the
 * faster. */
typedef struct played {
    int n[RT_SIDES];
    double lost; /* share of the best possible time */
} played;
static played play(rt_select_history *h, const double model[RT_SIDES], const double truth[RT_SIDES], int n,
                   double noise) {
    played p = {{0}, 0};
    const double best = fmin(truth[0], truth[1]);
    uint32_t seed = 1;
    for (int i = 0; i < n; i++) {
        const rt_select_choice c = rt_select_choose(h, model, NULL);
        seed = seed * 1664525 + 1013904223;
        const double ns = truth[c.side] * (1 + noise * ((double)(seed >> 8) / (1 << 24) - 0.5));
        p.n[c.side]++;
        p.lost += (truth[c.side] - best) / (best * n);
        if (c.is_trial || !c.is_measured[c.side] || i % 64 == 0) rt_select_learn(h, c.side, ns);
    }
    return p;
}

Test(select, a_right_model_costs_little) {
    rt_select_history h = {0};
    const double model[] = {1000, 2000};
    played p = play(&h, model, model, 10000, 0.2);
    cr_assert_gt(p.n[RT_SIDE_CPU], 9900);
    cr_assert_geq(p.n[RT_SIDE_GPU], RT_SELECT_ENOUGH);
    cr_assert_lt(p.lost, 0.01);
}

Test(select, a_wrong_model_is_corrected) {
    for (int wrong = 0; wrong < RT_SIDES; wrong++) {
        rt_select_history h = {0};
        double model[] = {1000, 1000}, truth[] = {1000, 1000};
        model[wrong] = 600; /* said to be faster, and is slower */
        truth[wrong] = 5000;
        played p = play(&h, model, truth, 10000, 0.2);
        cr_assert_lt(p.n[wrong], 100, "%d calls of the slower side", p.n[wrong]);
        const rt_select_choice c = rt_select_choose(&h, model, NULL);
        cr_assert(c.is_measured[0] && c.is_measured[1] && !c.is_open);
    }
}

Test(select, what_the_model_finds_three_times_slower_is_never_tried) {
    rt_select_history h = {0};
    const double model[] = {1000, 3100}, none[] = {1000, INFINITY};
    cr_assert_eq(play(&h, model, (double[]){1000, 10}, 10000, 0).n[RT_SIDE_GPU], 0);
    h = (rt_select_history){0};
    cr_assert_eq(play(&h, none, (double[]){1000, 10}, 10000, 0).n[RT_SIDE_GPU], 0);
}

Test(select, a_change_of_the_machine_is_noticed) {
    rt_select_history h = {0};
    const double model[] = {1000, 1500};
    (void)play(&h, model, (double[]){1000, 1500}, 3000, 0);
    played p = play(&h, model, (double[]){4000, 1500}, 20000, 0); /* somebody else has the cores now */
    cr_assert_gt(p.n[RT_SIDE_GPU], 19000);
    p = play(&h, model, (double[]){1000, 1500}, 20000, 0);
    cr_assert_gt(p.n[RT_SIDE_CPU], 10000, "%d", p.n[RT_SIDE_CPU]);
}

Test(select, outliers_do_not_decide) {
    rt_select_history h = {0};
    for (int i = 0; i < 5; i++) {
        rt_select_learn(&h, RT_SIDE_CPU, i == 2 ? 1e9 : 1000);
        rt_select_learn(&h, RT_SIDE_GPU, 2000);
    }
    const rt_select_choice c = rt_select_choose(&h, (double[]){1, 1}, NULL);
    cr_assert(c.side == RT_SIDE_CPU && c.expected_ns[RT_SIDE_CPU] == 1000 && c.expected_ns[RT_SIDE_GPU] == 2000);
}

Test(select, keys) {
    const int64_t a[] = {1000, 64}, near[] = {1010, 64}, far[] = {2000, 64};
    const uint64_t k = rt_select_key(7, a, 2, 4e3, 0);
    cr_assert_eq(k, rt_select_key(7, near, 2, 4e3, 0));
    cr_assert_neq(k, rt_select_key(8, a, 2, 4e3, 0));
    cr_assert_neq(k, rt_select_key(7, far, 2, 4e3, 0));
    cr_assert_neq(k, rt_select_key(7, a, 2, 0, 0));
    cr_assert_neq(k, rt_select_key(7, a, 2, 4e3, 4e3));
}

/* ---- the file ---- */
static char dir[] = "/tmp/fusor-select.XXXXXX";
static char path[64], lock_path[80];
static void make_dir(void) {
    cr_assert(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/select", dir);
    snprintf(lock_path, sizeof lock_path, "%s/select.lock", dir);
}
static void drop_dir(void) {
    (void)unlink(path);
    (void)unlink(lock_path);
    (void)rmdir(dir);
}
TestSuite(select_file, .init = make_dir, .fini = drop_dir);

static const double model_[] = {1000, 1000};
static void teach(rt_select *s, uint64_t key, double cpu, double gpu) {
    for (int i = 0; i < RT_SELECT_ENOUGH; i++) {
        rt_select_tell(s, key, RT_SIDE_CPU, cpu);
        rt_select_tell(s, key, RT_SIDE_GPU, gpu);
    }
}
static double known(rt_select *s, uint64_t key, rt_side side) {
    const rt_select_choice c = rt_select_ask(s, key, model_, NULL);
    return c.is_measured[side] ? c.expected_ns[side] : -1;
}

Test(select_file, what_was_learned_is_kept) {
    rt_select *s = rt_select_open(dir, false);
    teach(s, 1, 10, 20);
    rt_select_close(s);
    s = rt_select_open(dir, true);
    cr_assert(known(s, 1, RT_SIDE_CPU) == 10 && known(s, 1, RT_SIDE_GPU) == 20 && known(s, 2, RT_SIDE_CPU) == -1);
    teach(s, 2, 1, 1);
    cr_assert_not(rt_select_save(s)); /* read only */
    rt_select_close(s);
    s = rt_select_open(dir, false);
    cr_assert_eq(known(s, 2, RT_SIDE_CPU), -1);
    rt_select_close(s);
    s = rt_select_open(NULL, false);
    teach(s, 1, 1, 1);
    cr_assert_not(rt_select_save(s));
    rt_select_close(s);
}

Test(select_file, two_processes_learn_side_by_side) {
    rt_select *a = rt_select_open(dir, false), *b = rt_select_open(dir, false);
    teach(a, 1, 10, 20);
    teach(b, 2, 30, 40);
    rt_select_close(a);
    rt_select_close(b);
    a = rt_select_open(dir, false);
    cr_assert(known(a, 1, RT_SIDE_CPU) == 10 && known(a, 2, RT_SIDE_GPU) == 40);
    teach(a, 3, 1, 1);
    const int fd = open(lock_path, O_RDWR | O_CREAT, 0600);
    cr_assert_eq(flock(fd, LOCK_EX), 0);
    cr_assert_not(rt_select_save(a)); /* somebody is at it: later */
    close(fd);
    cr_assert(rt_select_save(a));
    rt_select_close(a);
}

Test(select_file, damage_counts_as_empty) {
    rt_select *s = rt_select_open(dir, false);
    teach(s, 1, 10, 20);
    rt_select_close(s);
    void *data;
    size_t n;
    cr_assert_eq(fu_file_read(path, 1 << 20, &data, &n), 0);
    char *good = malloc(n), *bad = malloc(n + 1);
    memcpy(good, data, n);
    for (size_t i = 0; i < n; i += 3) {
        for (int cut = 0; cut < 2; cut++) {
            memcpy(bad, good, n);
            bad[i] ^= 0x41;
            cr_assert_eq(fu_file_write_atomic(path, 0600, &(fu_part){bad, cut ? i : n}, 1), 0);
            s = rt_select_open(dir, true);
            cr_assert_eq(known(s, 1, RT_SIDE_CPU), -1, "byte %zu", i);
            rt_select_close(s);
        }
    }
    cr_assert_eq(fu_file_write_atomic(path, 0600, &(fu_part){good, n}, 1), 0);
    s = rt_select_open(dir, false);
    cr_assert_eq(known(s, 1, RT_SIDE_CPU), 10);
    rt_select_close(s);
    free(good);
    free(bad);
}

/* What others may write, or is no plain file, is nobody's word; a pipe hangs nobody. */
Test(select_file, only_own_plain_files_count, .timeout = 20) {
    char good[200];
    snprintf(good, sizeof good, "%s.good", path);
    rt_select *s = rt_select_open(dir, false);
    teach(s, 1, 10, 20);
    rt_select_close(s);
    cr_assert_eq(rename(path, good), 0);
    for (int kind = 0; kind < 4; kind++) {
        const bool is_good = kind == 0;
        cr_assert_eq(kind < 2    ? link(good, path) | chmod(path, is_good ? 0600 : 0622)
                     : kind == 2 ? chmod(good, 0600) | symlink(good, path)
                                 : mkfifo(path, 0600),
                     0);
        s = rt_select_open(dir, true);
        cr_assert_eq(known(s, 1, RT_SIDE_CPU), is_good ? 10 : -1, "kind %d", kind);
        rt_select_close(s);
        cr_assert_eq(unlink(path), 0);
    }
    (void)unlink(good);
}

/* Nor are the machine's limits read from such a file. */
Test(select_file, limits_as_well, .timeout = 60) {
    char name[200];
    snprintf(name, sizeof name, "%s/limits-1", dir);
    cr_assert_eq(mkfifo(name, 0600), 0);
    const rt_limits measured = rt_limits_get(dir, 1, false, false);
    struct stat st;
    cr_assert(measured.is_known && lstat(name, &st) == 0 && S_ISREG(st.st_mode)); /* kept, in its place */
    (void)unlink(name);
}

Test(select_file, it_stays_small) {
    rt_select *s = rt_select_open(dir, false);
    for (uint64_t k = 1; k <= 5000; k++) rt_select_tell(s, k * 0x9E3779B97F4A7C15u, RT_SIDE_CPU, (double)k);
    rt_select_close(s);
    void *data;
    size_t n;
    cr_assert_eq(fu_file_read(path, 1 << 24, &data, &n), 0);
    cr_assert_lt(n, 2100 * sizeof(rt_select_history));
    s = rt_select_open(dir, true);
    teach(s, 5000 * 0x9E3779B97F4A7C15u, 5, 5);
    cr_assert_eq(known(s, 5000 * 0x9E3779B97F4A7C15u, RT_SIDE_CPU), 5);
    rt_select_close(s);
}
