/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_TUNE_INTERNAL_H
#define RT_TUNE_INTERNAL_H
/* Shared by tune.c, tune_contract.c and tune_window.c. */
#include "rt/tune.h"

/* Of a call, for each worker that has some: so that one that loses its core delays the end by little. */
enum { TILES_PER_THREAD = 4 };

/* Of the sizes of dims that have one of these roles; saturates. */
int64_t tune_product(const ir_kernel *k, const int64_t *size, const char *roles);
/* Units of work per tile: TILES_PER_THREAD tiles each where tiles then have TILE_MIN elements or more; TILE_MAX at
 * most. */
int64_t tune_grain(int64_t units, int64_t elements_per_unit, int n_threads);

void tune_contract(const ir_kernel *k, const int64_t *size, const int64_t *stride, int n_threads, int64_t *tune);
void tune_window(const ir_kernel *k, const int64_t *size, int n_threads, int64_t *tune);
#endif
