/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_DATA_H
#define RT_DATA_H
/* Tensors in files, and tensors made from a word: what a parameter's source and `fusor run NAME=SOURCE` may be.
 *
 * A malformed file is an error that names the file, what was found and what was expected: FUSOR_ERROR_SYNTAX for its
 * contents, FUSOR_ERROR_TYPE for another element type, FUSOR_ERROR_ARGUMENT for a name that an archive lacks,
 * FUSOR_ERROR_UNSUPPORTED for encryption and compression methods, FUSOR_ERROR_IO for what the system refuses. Sizes
 * that a file declares are checked against its length before anything is allocated. */
#include "fusor/type.h"
#include "ir/types.h"
#include "base/file.h"

typedef struct rt_data {
    fusor_buffer buffer; /* contiguous, row-major, native byte order, writable (a write never reaches the file) */
    fu_mapping map;      /* owned: the private mapping that buffer.data lies in, or empty */
    void *memory;        /* owned: else the memory that it lies in; NULL where the tensor has no elements */
} rt_data;

/* source: "x.npy", "x.npz:name", "x.safetensors:name" (the name may be left out where the archive holds one array), or
 * "-" for a .npy on stdin. wanted: the element type that must come out, or 0 for any (16-bit void reads as bf16). *out
 * is untouched on failure; rt_data_free releases it. Element types are not converted. */
fusor_status rt_data_read(fu_error *e, const char *source, ir_dtype wanted, rt_data *out);
void rt_data_free(rt_data *d); /* zero-filled and freed ones too */
/* Calls `each` with every array name of a .npz or .safetensors file, in the file's order, until it returns false. */
fusor_status rt_data_names(fu_error *e, const char *path, bool (*each)(void *user, const char *name), void *user);

/* Writes .npy 1.0 in C order: "-" is stdout; else the file appears whole or not at all (devices and pipes are written
 * to directly). The buffer is on the CPU; strides are honoured. */
fusor_status rt_data_write_npy(fu_error *e, const char *path, const fusor_buffer *b);

/* Is the source one of rt_data_fill's words (a number, true, false, uniform:SEED, normal:SEED, arange, zeros, ones)? */
bool rt_data_is_fill(const char *source);
const char *rt_data_fill_problem(const char *source); /* why rt_data_fill takes it for no tensor; NULL: none known */
/* Fills a contiguous tensor.
 *   number       every element; must be representable (floats are rounded once); true and false for bool only
 *   uniform:SEED floats in [0, 1): Philox 4x32-10 (data_fill.c); integers 0..99; bool: value < 0.5
 *   normal:SEED  floats: Box-Muller on the same words; integers: ten times the value, cast; bool: value < 0
 *   arange       0 .. n-1 in row-major order, cast;  zeros, ones: in any type */
fusor_status rt_data_fill(fu_error *e, const char *spec, const fusor_buffer *b);
#endif
