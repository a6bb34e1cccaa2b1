/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cubin.c: machine code of GPUs beside the cached kernels: names, the format, reading, writing. */
#include "base/small.h"
#include "rt/cubin.h"
#include "base/arena.h"
#include "base/hash.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOUCH_SECONDS = 3600, LOOKS_PER_LIMIT = 32 };
#define CHECKED_FROM (offsetof(rt_cubin_header, checksum) + 16)
#define DRIVER_FILE  "/proc/driver/nvidia/version"

struct rt_cubins {
    atomic_int refs;
    bool reads, writes;
    rt_dir dir; /* a descriptor of its own */
    uint64_t max_bytes;
    atomic_uint_fast64_t written; /* bytes since the directory was looked through */
};

rt_cubins *rt_cubins_new(const rt_dir *d, uint64_t max_bytes, bool reads, bool writes) {
    rt_cubins *c = fu_calloc(1, sizeof *c);
    if (!c) return NULL;
    *c = (rt_cubins){.reads = reads, .writes = writes, .dir = *d, .max_bytes = max_bytes};
    atomic_init(&c->refs, 1);
    atomic_init(&c->written, max_bytes); /* the first write looks */
    c->dir.fd = fcntl(d->fd, F_DUPFD_CLOEXEC, 0);
    if (c->dir.fd >= 0) return c;
    fu_free(c);
    return NULL;
}

void rt_cubins_follow(const rt_cubins *c, const rt_dir *d) {
    if (c) (void)dup3(d->fd, c->dir.fd, O_CLOEXEC); /* it keeps its number: other threads may be using it */
}

rt_cubins *rt_cubins_keep(rt_cubins *c) {
    if (c) atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    return c;
}

void rt_cubins_release(rt_cubins *c) {
    if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) return;
    rt_dir_close(&c->dir);
    fu_free(c);
}

bool rt_cubins_may_write(const rt_cubins *c) { return c && c->writes; }

/* The driver's API version stays the same over its patch releases; the kernel module's line does not. */
void rt_cubin_describe_driver(int cc, int version, rt_cubin_driver *out) {
    *out = (rt_cubin_driver){.cc = cc, .version = version};
    int fd = open(DRIVER_FILE, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t n = read(fd, out->line, sizeof out->line - 1);
    close(fd);
    size_t length = n > 0 ? strcspn(out->line, "\n") : 0;
    memset(out->line + length, 0, sizeof out->line - length);
}

/* ---- names and format ---- */
static void name_of(const uint8_t key[IR_KEY_BYTES], const rt_cubin_driver *by, char out[RT_CUBIN_NAME_MAX]) {
    char text[RT_CUBIN_DRIVER_MAX + 16];
    uint8_t sum[16];
    snprintf(text, sizeof text, "%d\n%s", by->version, by->line);
    fu_hash128(text, strlen(text), sum);
    rt_key_text(key, out);
    snprintf(out + 2 * IR_KEY_BYTES, RT_CUBIN_NAME_MAX - 2 * IR_KEY_BYTES, ".sm%d.%02x%02x%02x%02x" RT_CUBIN_SUFFIX,
             by->cc, sum[0], sum[1], sum[2], sum[3]);
}

bool rt_cubin_is_name(const char *name) {
    size_t n = strlen(name), suffix = strlen(RT_CUBIN_SUFFIX), key = 2 * IR_KEY_BYTES;
    return n < RT_CUBIN_NAME_MAX && strspn(name, "0123456789abcdef") == key && strncmp(name + key, ".sm", 3) == 0 &&
           n > key + 3 + suffix && strcmp(name + n - suffix, RT_CUBIN_SUFFIX) == 0;
}

const char *rt_cubin_problem(const void *data, size_t bytes) {
    const rt_cubin_header *h = data;
    uint8_t sum[16];
    if (bytes < sizeof *h) return "shorter than a header";
    if (memcmp(h->magic, RT_CUBIN_MAGIC, 8) != 0) return "no machine code of a GPU";
    if (h->format != RT_CUBIN_FORMAT || h->header_bytes != sizeof *h) return "another format version";
    if (h->file_bytes != bytes) return h->file_bytes > bytes ? "truncated" : "longer than its header says";
    if (!memchr(h->driver, 0, sizeof h->driver)) return "a header text without end";
    if (!h->cubin_bytes || h->cubin_bytes != bytes - sizeof *h) return "code length out of range";
    fu_hash128((const char *)data + CHECKED_FROM, bytes - CHECKED_FROM, sum);
    return memcmp(sum, h->checksum, sizeof sum) != 0 ? "checksum does not match" : NULL;
}

static bool is_wanted(const rt_cubin_header *h, const uint8_t key[IR_KEY_BYTES], const char *ptx, size_t ptx_bytes,
                      const rt_cubin_driver *by) {
    uint8_t sum[16];
    fu_hash128(ptx, ptx_bytes, sum);
    return memcmp(h->key, key, IR_KEY_BYTES) == 0 && memcmp(h->ptx_hash, sum, sizeof sum) == 0 && h->cc == by->cc &&
           h->driver_version == by->version && strcmp(h->driver, by->line) == 0;
}

/* ---- files ---- */
/* What the cache counts are its entries: a new driver makes machine code for all that are there, and no entry. */
static void note_written(rt_cubins *c, size_t bytes) {
    if (atomic_fetch_add(&c->written, bytes) + bytes <= c->max_bytes / LOOKS_PER_LIMIT) return;
    atomic_store(&c->written, 0);
    (void)rt_dir_keep_to(&c->dir, c->max_bytes, NULL);
}

/* Once an hour, so that eviction knows what is used. */
static void touch(const rt_cubins *c, const char *name, int64_t mtime_s) {
    int64_t age_s = time(NULL) - mtime_s;
    if (c->writes && (age_s > TOUCH_SECONDS || age_s < -TOUCH_SECONDS))
        utimensat(c->dir.fd, name, NULL, AT_SYMLINK_NOFOLLOW);
}

void *rt_cubin_read(const rt_cubins *c, const uint8_t key[IR_KEY_BYTES], const char *ptx, size_t ptx_bytes,
                    const rt_cubin_driver *by, size_t *bytes_out) {
    char name[RT_CUBIN_NAME_MAX];
    void *data;
    size_t bytes;
    int64_t mtime_s;
    if (!c || !c->reads) return NULL;
    name_of(key, by, name);
    int problem = rt_dir_read(&c->dir, name, RT_ENTRY_MAX_BYTES, &data, &bytes, &mtime_s);
    if (problem) {
        if (rt_dir_is_bad(problem)) rt_cubin_drop(c, key, by);
        return NULL;
    }
    if (rt_cubin_problem(data, bytes) || !is_wanted(data, key, ptx, ptx_bytes, by)) {
        rt_cubin_drop(c, key, by);
        fu_free(data);
        return NULL;
    }
    touch(c, name, mtime_s);
    *bytes_out = bytes - sizeof(rt_cubin_header);
    return memmove(data, (char *)data + sizeof(rt_cubin_header), *bytes_out);
}

void rt_cubin_write(rt_cubins *c, const uint8_t key[IR_KEY_BYTES], const char *ptx, size_t ptx_bytes,
                    const rt_cubin_driver *by, const void *cubin, size_t bytes) {
    size_t all = sizeof(rt_cubin_header) + bytes;
    if (!rt_cubins_may_write(c) || !bytes || bytes > RT_ENTRY_MAX_BYTES - sizeof(rt_cubin_header)) return;
    char name[RT_CUBIN_NAME_MAX], *whole = fu_calloc(1, all);
    if (!whole) return;
    rt_cubin_header *h = (rt_cubin_header *)(void *)whole;
    *h = (rt_cubin_header){.format = RT_CUBIN_FORMAT,
                           .header_bytes = sizeof *h,
                           .file_bytes = all,
                           .cc = by->cc,
                           .driver_version = by->version,
                           .cubin_bytes = bytes};
    memcpy(h->magic, RT_CUBIN_MAGIC, 8);
    memcpy(h->key, key, IR_KEY_BYTES);
    memcpy(h->driver, by->line, sizeof h->driver);
    fu_hash128(ptx, ptx_bytes, h->ptx_hash);
    memcpy(whole + sizeof *h, cubin, bytes);
    fu_hash128(whole + CHECKED_FROM, all - CHECKED_FROM, h->checksum);
    name_of(key, by, name);
    /* A full disk: the next process makes it again. */
    if (rt_dir_write(&c->dir, name, &(fu_part){whole, all}, 1) == 0) note_written(c, all);
    fu_free(whole);
}

void rt_cubin_drop(const rt_cubins *c, const uint8_t key[IR_KEY_BYTES], const rt_cubin_driver *by) {
    char name[RT_CUBIN_NAME_MAX];
    if (!rt_cubins_may_write(c)) return;
    name_of(key, by, name);
    unlinkat(c->dir.fd, name, 0);
}
