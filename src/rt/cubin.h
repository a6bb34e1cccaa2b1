/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_CUBIN_H
#define RT_CUBIN_H
/* Machine code of a GPU that a driver made of a cached kernel's PTX, in files beside the kernels:
 * DIR/<key>.sm<cc>.<driver>.fcubin. A file serves one kernel, one compute capability and one driver (its version and
 * the line that the kernel's module says), and is used only where all of it, the PTX too, is what is wanted; anything
 * else is a miss. */
#include "rt/cache_entry.h"

#define RT_CUBIN_MAGIC  "FUSORC1\n"
#define RT_CUBIN_SUFFIX ".fcubin"
enum { RT_CUBIN_FORMAT = 1, RT_CUBIN_NAME_MAX = 2 * IR_KEY_BYTES + 32, RT_CUBIN_DRIVER_MAX = 256 };

typedef struct rt_cubin_header {
    char magic[8];
    uint32_t format, header_bytes;
    uint8_t checksum[16]; /* XXH3-128 of everything after this field */
    uint64_t file_bytes;
    uint8_t key[IR_KEY_BYTES], ptx_hash[16];
    int32_t cc, driver_version;
    char driver[RT_CUBIN_DRIVER_MAX]; /* NUL-terminated and zero-filled */
    uint64_t cubin_bytes;             /* the rest of the file */
} rt_cubin_header;

/* Who makes and takes machine code. */
typedef struct rt_cubin_driver {
    int cc, version;
    char line[RT_CUBIN_DRIVER_MAX]; /* first one of /proc/driver/nvidia/version; "" where there is none */
} rt_cubin_driver;
void rt_cubin_describe_driver(int cc, int version, rt_cubin_driver *out);

/* Where a cache's kernels have theirs. Counted; NULL is allowed everywhere and holds nothing. Any thread. */
typedef struct rt_cubins rt_cubins;
/* max_bytes: of the directory, above which the least recently used files go. NULL: no memory, no descriptor. */
rt_cubins *rt_cubins_new(const rt_dir *d, uint64_t max_bytes, bool reads, bool writes);
/* The directory was removed and made again. */
void rt_cubins_follow(const rt_cubins *c, const rt_dir *d);
rt_cubins *rt_cubins_keep(rt_cubins *c);
void rt_cubins_release(rt_cubins *c);
bool rt_cubins_may_write(const rt_cubins *c);

/* By fu_malloc; NULL: a miss. A file that is no good is deleted. */
void *rt_cubin_read(const rt_cubins *c, const uint8_t key[IR_KEY_BYTES], const char *ptx, size_t ptx_bytes,
                    const rt_cubin_driver *by, size_t *bytes_out);
/* Trouble costs the next process the same work, and nothing else. */
void rt_cubin_write(rt_cubins *c, const uint8_t key[IR_KEY_BYTES], const char *ptx, size_t ptx_bytes,
                    const rt_cubin_driver *by, const void *cubin, size_t bytes);
/* The driver refuses what is in it. */
void rt_cubin_drop(const rt_cubins *c, const uint8_t key[IR_KEY_BYTES], const rt_cubin_driver *by);

bool rt_cubin_is_name(const char *name);
/* NULL when the bytes are an intact file, else what is wrong (static text). */
const char *rt_cubin_problem(const void *data, size_t bytes);
#endif
