/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_CPUINFO_H
#define RT_CPUINFO_H
/* What this machine grants to this process: instruction set features, cache sizes, cores.
 * Features come from CPUID bits (so those that a hypervisor masks are absent) and count only where the operating system
 * saves their registers (XGETBV). The model number is never looked at. Threads: all functions may be called from any
 * thread; what they find is kept for the process. No function fails: what cannot be found out is 0 or a modest default.
 */
#include "ir/schedule.h"

/* The raw bits that features are decoded from; tests make their own. */
typedef struct rt_cpuid {
    uint32_t leaf1_ecx, leaf1_edx, leaf7_ebx, leaf7_ecx, leaf7_edx, leaf7_1_eax, ext1_ecx;
    uint64_t xcr0; /* 0 where OSXSAVE is not set */
} rt_cpuid;
rt_cpuid rt_cpuid_read(void);
/* Bit i = feature number i of rt_feature_name(). */
uint64_t rt_features_decode(const rt_cpuid *raw);

int rt_feature_count(void);
const char *rt_feature_name(int i); /* LLVM's name: "avx512f" */
uint64_t rt_host_features(void);
/* Are all features of the comma-separated list granted? An unknown name is not. Where not, *missing_out (may be NULL)
 * points at the first name missing, inside `list`, and *length_out is its length. amx-* asks the kernel for the tile
 * registers at the first question (arch_prctl), since the answer lasts for the life of the process. */
bool rt_host_has(const char *list, const char **missing_out, size_t *length_out);
/* For tests, which make good what is missing: from now on these features (LLVM's names, separated by commas) count as
 * granted. */
void rt_host_assume(const char *list);
/* The highest level whose features are all granted; -1 when not even the lowest is. */
int rt_host_level(void);
/* What is granted of the features that kernels of a level may use beside it. */
ir_features rt_host_extras(ir_level level);

typedef struct rt_caches {
    int64_t l1d_bytes, l2_bytes, l3_bytes; /* of one core (L3: the whole cache); defaults where unknown */
    int l3_sharers;                        /* hardware threads that share the L3; at least 1 */
} rt_caches;
const rt_caches *rt_host_caches(void);
void rt_host_assume_caches(rt_caches caches); /* for tests: from now on the host's */
const char *rt_host_brand(void); /* for reports: "AMD EPYC ..."; "" when unknown */

int rt_affinity_count(void); /* CPUs this process may run on; asked anew each time; at least 1 */
/* Whole CPUs (rounded up) that cgroup limits grant, 0 = no limit. proc_text is the content of /proc/self/cgroup; root
 * is where the hierarchies are mounted ("/sys/fs/cgroup"). Limits of all ancestors count. */
int rt_cgroup_cpus(const char *proc_text, const char *root);
/* min(OMP_NUM_THREADS, affinity, cgroup quota), 1..1024. */
int rt_default_threads(void);
#endif
