/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_DATA_PARTS_H
#define RT_DATA_PARTS_H
/* Between data.c (files, .npy) and data_archive.c (.npz, .safetensors). `label` begins every message: the source as
 * given. */
#include "rt/data.h"

typedef struct rt_bytes { /* a whole file, or a member of an archive */
    uint8_t *at;
    size_t n;
    fu_mapping map; /* owned; or */
    void *memory;   /* owned; or neither: borrowed from the archive */
} rt_bytes;

typedef struct rt_array { /* an array inside of some bytes */
    ir_dtype dtype;
    int rank;
    int64_t shape[8];
    bool is_fortran, is_swapped;
    uint8_t *data;
    size_t bytes;
} rt_array;

/* Reads a .npy image. Where the header is right, the data fits in n. */
fusor_status rt_npy_decode(fu_error *e, const char *label, uint8_t *at, size_t n, ir_dtype wanted, rt_array *out);
/* Bytes of rank dims; false where a size is negative or the product (of the nonzero sizes too) overflows. */
bool rt_shape_bytes(ir_dtype t, int rank, const int64_t *shape, size_t *bytes_out);

/* name NULL: the only array of the archive. The member may borrow from `zip` or own inflated memory. */
fusor_status rt_npz_find(fu_error *e, const char *label, const rt_bytes *zip, const char *name, rt_bytes *member_out);
fusor_status rt_safetensors_find(fu_error *e, const char *label, const rt_bytes *file, const char *name, rt_array *out);
fusor_status rt_npz_names(fu_error *e, const char *label, const rt_bytes *zip, bool (*each)(void *, const char *),
                          void *user);
fusor_status rt_safetensors_names(fu_error *e, const char *label, const rt_bytes *file,
                                  bool (*each)(void *, const char *), void *user);
#endif
