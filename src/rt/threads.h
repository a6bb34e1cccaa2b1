/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_THREADS_H
#define RT_THREADS_H
/* Runs tiles on a team of threads: OpenMP, or the caller's own parallel-for. The only file that knows OpenMP.
 *
 * Each worker starts on its own contiguous share of the tiles (so that repeated calls find their data in the same
 * core's cache), takes them in chunks from an atomic counter, and then helps the others: a worker that lost its core
 * delays nobody by more than a chunk. Which worker runs a tile is therefore not defined, and no result may depend on
 * it.
 *
 * After a fork the child never enters a team of the parent's OpenMP run time (libgomp would wait for ever for threads
 * that do not exist): it makes plain threads for each call. A call from inside a tile runs serially on the calling
 * worker. */
#include <stdbool.h>
#include <stdint.h>

enum { RT_MAX_THREADS = 1024 };

/* Runs tiles [begin, end); worker < n_threads of the call, and no two calls run at the same time with the same worker.
 */
typedef void (*rt_tile_fn)(void *user, int worker, int64_t begin, int64_t end);
/* fusor_context_options.parallel_for: calls task(arg, i) for each i < n, in any order, on any threads, and returns when
 * all are done. */
typedef struct rt_parallel_for {
    void (*run)(void *user, int64_t n, void (*task)(void *arg, int64_t index), void *arg);
    void *user;
} rt_parallel_for;
typedef struct rt_phase {
    int64_t n_tiles;
    rt_tile_fn fn;
    void *user;
} rt_phase;

/* Runs all tiles and returns. Serial (worker 0, no OpenMP touched) when n_threads <= 1, n_tiles <= 1, or inside a tile.
 * n_threads above the number of cores is honoured, up to RT_MAX_THREADS; where the system refuses more threads, with
 * those that it gives. own: the caller's parallel-for, or NULL. Any thread. */
void rt_parallel(int n_threads, int64_t n_tiles, rt_tile_fn fn, void *user, const rt_parallel_for *own);
/* Nanoseconds that a team of n_threads costs that has nothing to do, between these bounds: the least of some, entered and
 * left one after the other while it spins, measured when it is first asked for. The least where no team would be entered
 * (in a tile, in a parallel region of the caller's); in a forked child the most. Any thread. */
enum { RT_FORK_LEAST_NS = 700, RT_FORK_MOST_NS = 2800 };
int64_t rt_fork_ns(int n_threads);
/* Several phases in one team, with a barrier between them (own: one parallel-for each). Phases of no tiles are skipped.
 */
void rt_parallel_phases(int n_threads, int n_phases, const rt_phase *phases, const rt_parallel_for *own);
#endif
