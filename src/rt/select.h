/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_SELECT_H
#define RT_SELECT_H
/* Device "auto": whether a call is for the CPU or the GPU. A model says what each would take; calls that were timed
 * correct it, kept by program, sizes and where the data is, in one file beside the kernels (DIR/select). The slower
 * side is tried now and then, but never where the model finds it more than three times slower. A choice changes no
 * plan, key or bound. */
#include "ir/plan.h"
#include "rt/limits.h"

typedef enum rt_side { RT_SIDE_CPU, RT_SIDE_GPU, RT_SIDES } rt_side;

/* ---- the model ---- */
/* Of a device, with what moving data there and back costs. */
typedef struct rt_select_gpu {
    rt_limits limits;                        /* rt_limits_of_device */
    double up_bytes_per_s, down_bytes_per_s; /* measured */
} rt_select_gpu;
double rt_select_cpu_ns(const ir_plan *p, const int64_t *symbol_values, int n_threads);
/* bytes_up, bytes_down: of inputs and results that are on the CPU. */
double rt_select_gpu_ns(const rt_select_gpu *gpu, const ir_plan *p, const int64_t *symbol_values, double bytes_up,
                        double bytes_down);

/* Its part for moving data, if there is any. */
double rt_select_move_ns(const rt_select_gpu *gpu, double bytes_up, double bytes_down);

/* ---- the choice ---- */
enum { RT_SELECT_KEPT = 5, RT_SELECT_ENOUGH = 3, RT_SELECT_TRY = 8, RT_SELECT_RETRY = 1024, RT_SELECT_WORSE = 3 };
typedef struct rt_select_history {
    uint64_t key;
    int64_t used_s;                     /* when it was last added to */
    uint32_t n[RT_SIDES];               /* calls timed */
    float ns[RT_SIDES][RT_SELECT_KEPT]; /* the last of them */
    uint32_t calls;                     /* choices in this process */
} rt_select_history;
typedef struct rt_select_choice {
    rt_side side;
    bool is_trial;                /* the other side is expected to be faster */
    double expected_ns[RT_SIDES]; /* medians of timed calls where there are enough, else the model's */
    bool is_measured[RT_SIDES];
    bool is_open; /* a side may still be tried, and is not known from calls */
} rt_select_choice;
/* Pure but for h->calls: the same history and model give the same choice. also_ns: by side, what neither the model nor
 * what was timed has; NULL: nothing. */
rt_select_choice rt_select_choose(rt_select_history *h, const double model_ns[RT_SIDES], const double *also_ns);
void rt_select_learn(rt_select_history *h, rt_side side, double ns);

/* ---- the histories of a process, and their file ---- */
typedef struct rt_select rt_select;
/* dir: "" or NULL: memory only. NULL: no memory. */
rt_select *rt_select_open(const char *dir, bool is_read_only);
void rt_select_close(rt_select *s); /* keeps what was learned; NULL is allowed */
/* Chooses for a key, and learns, under a lock. learn keeps the file up to date, now and then. */
rt_select_choice rt_select_ask(rt_select *s, uint64_t key, const double model_ns[RT_SIDES], const double *also_ns);
void rt_select_tell(rt_select *s, uint64_t key, rt_side side, double ns);
bool rt_select_save(rt_select *s);
/* Of a program, its sizes in classes of a quarter of a power of two, and where its data is. */
uint64_t rt_select_key(uint64_t program, const int64_t *sizes, size_t n, double bytes_up, double bytes_down);
#endif
