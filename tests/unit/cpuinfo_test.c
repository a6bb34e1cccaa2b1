/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cpuinfo_test.c: a feature counts only when the system granted it; levels, caches, cores, quotas. */
#include "rt/cpuinfo.h"
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool has(uint64_t bits, const char *name) {
    for (int i = 0; i < rt_feature_count(); i++)
        if (strcmp(rt_feature_name(i), name) == 0) return bits >> i & 1;
    cr_assert(false, "no feature %s", name);
    return false;
}

static bool has_all(uint64_t bits, const char *list) {
    char name[32];
    for (const char *p = list; *p; p += p[strcspn(p, ",")] == ',' ? strcspn(p, ",") + 1 : strcspn(p, ",")) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(p, ","), p);
        if (!has(bits, name)) return false;
    }
    return true;
}

Test(cpuinfo, features_need_the_system) {
    rt_cpuid all;
    memset(&all, 0xff, sizeof all);
    all.xcr0 = 0;
    uint64_t bits = rt_features_decode(&all);
    cr_assert(has(bits, "sse4.2"));
    cr_assert(!has(bits, "avx"), "AVX without saved YMM state");
    all.xcr0 = 0x7;
    bits = rt_features_decode(&all);
    cr_assert(has(bits, "avx2") && has(bits, "avxvnni") && !has(bits, "avx512f"));
    all.xcr0 = 0x67; /* upper ZMM registers not saved */
    cr_assert(!has(rt_features_decode(&all), "avx512f"));
    all.xcr0 = 0xe7;
    bits = rt_features_decode(&all);
    cr_assert(has(bits, "avx512f") && has(bits, "avx512bf16") && !has(bits, "amx-tile"));
    all.xcr0 = 0x600e7;
    cr_assert(has_all(rt_features_decode(&all), "amx-tile,amx-int8,amx-bf16,amx-fp16"));
}

Test(cpuinfo, what_tests_assume_is_granted) {
    rt_host_assume("amx-tile,amx-fp16");
    cr_assert(rt_host_has("amx-tile,amx-fp16", NULL, NULL));
    if (rt_host_level() == IR_LEVEL_V4) cr_assert(rt_host_extras(IR_LEVEL_V4) & IR_FEATURE_AMXFP16);
}

Test(cpuinfo, masked_bits_are_respected) {
    rt_cpuid raw;
    memset(&raw, 0xff, sizeof raw);
    raw.leaf7_ebx &= ~(UINT32_C(1) << 30); /* a hypervisor hides avx512bw */
    uint64_t bits = rt_features_decode(&raw);
    cr_assert(!has(bits, "avx512bw") && has(bits, "avx512f"));
}

/* The kernel's own list, where there is one, is a second witness. */
Test(cpuinfo, agrees_with_proc) {
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f) return;
    static char line[8192];
    while (fgets(line, sizeof line, f) && strncmp(line, "flags", 5) != 0) {}
    fclose(f);
    if (strncmp(line, "flags", 5) != 0) return;
    line[strcspn(line, "\n")] = ' ';
    static const char *const pair[][2] = {{"avx2", " avx2 "},
                                          {"fma", " fma "},
                                          {"avx512f", " avx512f "},
                                          {"avx512bw", " avx512bw "},
                                          {"avx512vnni", " avx512_vnni "},
                                          {"avxvnni", " avx_vnni "},
                                          {"bmi2", " bmi2 "},
                                          {"avx512bf16", " avx512_bf16 "},
                                          {"lzcnt", " abm "},
                                          {"f16c", " f16c "}};
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++)
        cr_expect_eq(has(rt_host_features(), pair[i][0]), strstr(line, pair[i][1]) != NULL, "%s", pair[i][0]);
}

Test(cpuinfo, every_level_feature_is_known) {
    for (int l = 0; l < IR_LEVEL_COUNT; l++)
        for (const char *p = ir_levels[l].features; *p;) {
            size_t n = strcspn(p, ",");
            bool known = false;
            for (int i = 0; i < rt_feature_count(); i++)
                known |= strlen(rt_feature_name(i)) == n && !memcmp(rt_feature_name(i), p, n);
            cr_expect(known, "%s: %.*s", ir_levels[l].name, (int)n, p);
            p += n + (p[n] == ',');
        }
}

Test(cpuinfo, extras_are_granted_features) {
    for (int l = 0; l < IR_LEVEL_COUNT; l++) {
        ir_features granted = rt_host_extras((ir_level)l);
        cr_expect_eq(granted & ~ir_level_extras((ir_level)l), 0);
        for (int i = 0; i < IR_FEATURE_COUNT; i++)
            if (ir_feature_table[i].level == (ir_level)l)
                cr_expect_eq(granted >> i & 1, has_all(rt_host_features(), ir_feature_table[i].features), "%s",
                             ir_feature_table[i].name);
    }
}

Test(cpuinfo, level_is_consistent) {
    int level = rt_host_level();
    for (int l = 0; l <= level; l++) cr_expect(rt_host_has(ir_levels[l].features, NULL, NULL));
    const char *missing = NULL;
    size_t n = 0;
    cr_assert(!rt_host_has("sse3,teleport,avx", &missing, &n));
    cr_assert_eq(n, 8);
    cr_assert(!memcmp(missing, "teleport", 8));
    cr_assert(rt_host_has("", NULL, NULL));
}

Test(cpuinfo, caches_are_plausible) {
    const rt_caches *c = rt_host_caches();
    cr_assert(c->l1d_bytes >= 8 << 10 && c->l1d_bytes <= 1 << 20);
    cr_assert(c->l2_bytes >= c->l1d_bytes && c->l3_bytes >= c->l2_bytes && c->l3_sharers >= 1);
}

static void put(const char *root, const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    cr_assert(f);
    fputs(text, f);
    fclose(f);
}

Test(cpuinfo, cgroup_limits) {
    char root[] = "/tmp/fusor-cgroup-XXXXXX";
    cr_assert(mkdtemp(root));
    cr_expect_eq(rt_cgroup_cpus("0::/\n", root), 0);
    put(root, "a/b/cpu.max", "max 100000\n");
    put(root, "a/cpu.max", "250000 100000\n");
    cr_expect_eq(rt_cgroup_cpus("0::/a/b\n", root), 3, "the ancestor's limit, rounded up");
    cr_expect_eq(rt_cgroup_cpus("0::/elsewhere\n", root), 0);
    put(root, "cpu/x/cpu.cfs_quota_us", "-1\n");
    put(root, "cpu/x/cpu.cfs_period_us", "100000\n");
    cr_expect_eq(rt_cgroup_cpus("3:cpu,cpuacct:/x\n", root), 0);
    put(root, "cpu/x/cpu.cfs_quota_us", "50000\n");
    cr_expect_eq(rt_cgroup_cpus("5:memory:/y\n3:cpuacct,cpu:/x\n0::/\n", root), 1);
    cr_expect_eq(rt_cgroup_cpus("nonsense\n:::\n\n0::", root), 0);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", root);
    cr_expect_eq(system(command), 0);
}

Test(cpuinfo, default_threads) {
    unsetenv("OMP_NUM_THREADS");
    int n = rt_default_threads();
    cr_assert(n >= 1 && n <= 1024 && n <= rt_affinity_count());
    setenv("OMP_NUM_THREADS", "1,4", 1);
    cr_assert_eq(rt_default_threads(), 1);
    setenv("OMP_NUM_THREADS", "100000", 1);
    cr_assert_eq(rt_default_threads(), n);
    setenv("OMP_NUM_THREADS", "many", 1);
    cr_assert_eq(rt_default_threads(), n);
}
