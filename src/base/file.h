/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FU_FILE_H
#define FU_FILE_H
/* Files: whole reads, private maps, atomic writes (a file appears whole or not at all). Return 0 or an errno value. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fu_mapping {
    void *data;
    size_t bytes;
    void *base;
    size_t base_bytes;
} fu_mapping;

int fu_file_read(
    const char *path, size_t max_bytes, void **data_out,
    size_t *bytes_out); /* malloc'ed by fu_malloc, NUL after the end; owned by the caller (fu_free). "-" is stdin */
int fu_file_map_private(const char *path,
                        fu_mapping *out); /* copy-on-write; regular files only. An empty file maps as data = NULL */
void fu_file_unmap(fu_mapping *m);
/* Temp file in the same directory (O_CREAT|O_EXCL|O_NOFOLLOW, mode), then rename. No fsync. n parts are written one
 * after the other. */
typedef struct fu_part {
    const void *data;
    size_t bytes;
} fu_part;
int fu_file_write_atomic(const char *path, unsigned mode, const fu_part *parts, int n);
/* For a path that a user names: devices and pipes are written as they are, a link stays and what it names is replaced,
 * a file that is there keeps its mode. */
int fu_file_write(const char *path, const fu_part *parts, int n);
int fu_file_replace(const char *path, unsigned mode, const fu_part *parts, int n); /* no devices and pipes: ESPIPE */
/* Past RLIMIT_FSIZE these two are EFBIG: SIGXFSZ does not kill the process. */
int fu_write_parts(int fd, const fu_part *parts, int n);
/* Drops flock and closes; a child that was forked meanwhile has the descriptor too, and would keep the lock. */
void fu_file_unlock(int fd);
int fu_file_set_size(int fd, size_t bytes); /* ftruncate */
/* Deletes the files that writes in progress are making; may be called by a signal handler that ends the process. */
void fu_file_unlink_temps(void);
/* What it replaces: the file (PATH_MAX bytes), links resolved, and its mode, 0 where there is none yet. ESPIPE: a device
 * or a pipe. */
int fu_file_resolve(const char *path, char *real, unsigned *mode_out);
int fu_make_dirs(const char *path, unsigned mode); /* like mkdir -p */
#endif
