/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* file.c: whole reads, private maps, atomic writes, mkdir -p. All return 0 or an errno value. */
#include "base/small.h"
#include "base/file.h"
#include "base/arena.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Reads to the end; the size that stat gives is only a first guess (pipes and /proc have none). */
static int read_all(int fd, size_t guess, size_t max_bytes, void **data_out, size_t *bytes_out) {
    size_t cap = guess < max_bytes ? guess : max_bytes, n = 0;
    if (cap > SIZE_MAX - 2) return EFBIG;
    cap += 2; /* the NUL, and a byte to see the end of the file without growing */
    char *data = fu_malloc(cap);
    if (!data) return ENOMEM;
    for (;;) {
        if (n + 1 == cap) {
            char *more = cap > SIZE_MAX / 2 ? NULL : fu_realloc(data, cap * 2);
            if (!more) return fu_free(data), ENOMEM;
            data = more;
            cap *= 2;
        }
        ssize_t got = read(fd, data + n, cap - n - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            int e = errno;
            return fu_free(data), e;
        }
        if (got == 0) break;
        n += (size_t)got;
        if (n > max_bytes) return fu_free(data), EFBIG;
    }
    data[n] = 0;
    *data_out = data;
    *bytes_out = n;
    return 0;
}

int fu_file_read(const char *path, size_t max_bytes, void **data_out, size_t *bytes_out) {
    bool is_stdin = !strcmp(path, "-");
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) return errno;
    struct stat st;
    int e = fstat(fd, &st) ? errno : 0;
    if (!e && S_ISDIR(st.st_mode)) e = EISDIR;
    if (!e && S_ISREG(st.st_mode) && st.st_size > 0 && (uintmax_t)st.st_size > max_bytes && !is_stdin) e = EFBIG;
    size_t guess = !e && S_ISREG(st.st_mode) ? (size_t)st.st_size : 4096;
    if (!e) e = read_all(fd, guess, max_bytes, data_out, bytes_out);
    if (!is_stdin) close(fd);
    return e;
}

int fu_file_map_private(const char *path, fu_mapping *out) {
    /* A pipe is not opened at all: its writer would take the close for the end of its reader. O_NONBLOCK: nor must one
     * hang that comes now; it is refused below. */
    struct stat st;
    if (!stat(path, &st) && !S_ISREG(st.st_mode)) return S_ISDIR(st.st_mode) ? EISDIR : ESPIPE;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return errno;
    int e = fstat(fd, &st) ? errno : 0;
    if (!e && S_ISDIR(st.st_mode)) e = EISDIR;
    else if (!e && !S_ISREG(st.st_mode)) e = ESPIPE;
    fu_mapping m = {0};
    if (!e && st.st_size > 0) {
        m.bytes = m.base_bytes = (size_t)st.st_size;
        m.base = mmap(NULL, m.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        if (m.base == MAP_FAILED) e = errno;
        else m.data = m.base;
    }
    close(fd);
    if (!e) *out = m;
    return e;
}

void fu_file_unmap(fu_mapping *m) {
    if (m->base) munmap(m->base, m->base_bytes);
    *m = (fu_mapping){0};
}

static void size_limit_enter(sigset_t *limit, sigset_t *was) {
    sigemptyset(limit);
    sigaddset(limit, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, limit, was);
}

static void size_limit_leave(const sigset_t *limit, const sigset_t *was) {
    /* It is sent to the thread that writes. Where the thread had it blocked, it may be somebody's. */
    if (!sigismember(was, SIGXFSZ)) (void)sigtimedwait(limit, NULL, &(struct timespec){0, 0});
    pthread_sigmask(SIG_SETMASK, was, NULL);
}

static int write_parts(int fd, const fu_part *parts, int n) {
    for (int i = 0; i < n; i++) {
        const char *p = parts[i].data;
        size_t left = parts[i].bytes;
        while (left) {
            ssize_t done = write(fd, p, left);
            if (done < 0 && errno == EINTR) continue;
            if (done < 0) return errno;
            if (done == 0) return EIO;
            p += done;
            left -= (size_t)done;
        }
    }
    return 0;
}

int fu_write_parts(int fd, const fu_part *parts, int n) {
    sigset_t limit, was;
    size_limit_enter(&limit, &was);
    const int e = write_parts(fd, parts, n);
    size_limit_leave(&limit, &was);
    return e;
}

void fu_file_unlock(int fd) {
    (void)flock(fd, LOCK_UN);
    close(fd);
}

int fu_file_set_size(int fd, size_t bytes) {
    sigset_t limit, was;
    size_limit_enter(&limit, &was);
    const int e = ftruncate(fd, (off_t)bytes) ? errno : 0;
    size_limit_leave(&limit, &was);
    return e;
}

/* Names of files that are being made. One more than there is room for is not listed. */
static struct {
    atomic_int state; /* 0: free, 1: its name is being written, 2: there may be such a file */
    char name[PATH_MAX];
} temps[8];
enum { N_TEMPS = sizeof temps / sizeof *temps };

static int list_temp(const char *name) {
    for (int i = 0; i < N_TEMPS; i++) {
        int is_free = 0;
        if (!atomic_compare_exchange_strong(&temps[i].state, &is_free, 1)) continue;
        memcpy(temps[i].name, name, strlen(name) + 1);
        atomic_store(&temps[i].state, 2);
        return i;
    }
    return -1;
}
static void unlist_temp(int i) {
    if (i >= 0) atomic_store(&temps[i].state, 0);
}

void fu_file_unlink_temps(void) {
    for (int i = 0; i < N_TEMPS; i++)
        if (atomic_load(&temps[i].state) == 2) (void)unlink(temps[i].name);
}

static int write_temp(const char *path, unsigned mode, bool is_exact, const fu_part *parts, int n) {
    static atomic_uint serial;
    char temp[PATH_MAX];
    int fd = -1, e = EEXIST, listed = -1;
    /* The name has the process, a counter and the time: threads, processes and what a killed process of the same id
     * (another PID namespace) left behind do not meet; where they do, O_EXCL says so and the next name is tried. */
    for (int attempt = 0; attempt < 16 && e == EEXIST; attempt++) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        int length = snprintf(temp, sizeof temp, "%s.tmp%lx-%x-%lx", path, (long)getpid(),
                              atomic_fetch_add(&serial, 1) + 1, (unsigned long)t.tv_nsec);
        if (length < 0 || (size_t)length >= sizeof temp) return ENAMETOOLONG;
        listed = list_temp(temp); /* before there is one: a signal may come between any two instructions */
        fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, (mode_t)mode);
        e = fd < 0 ? errno : 0;
        if (e) unlist_temp(listed);
    }
    if (e) return e;
    if (is_exact && fchmod(fd, (mode_t)mode)) e = 0; /* a file system without modes */
    e = fu_write_parts(fd, parts, n);
    /* A full quota may show at close only (NFS). */
    if (close(fd) && !e && errno != EINTR) e = errno;
    if (!e && rename(temp, path)) e = errno;
    if (e) unlink(temp);
    unlist_temp(listed);
    return e;
}

int fu_file_write_atomic(const char *path, unsigned mode, const fu_part *parts, int n) {
    return write_temp(path, mode, false, parts, n);
}

/* The name that a link at `real` has, from where that lies; itself where there is no link. */
static int follow(char *real) {
    enum { MOST_LINKS = 40 };
    char target[PATH_MAX];
    for (int i = 0; i < MOST_LINKS; i++) {
        const ssize_t n = readlink(real, target, sizeof target);
        const char *slash = strrchr(real, '/');
        if (n < 0) return 0;
        const size_t before = target[0] == '/' || !slash ? 0 : (size_t)(slash + 1 - real);
        if (before + (size_t)n >= PATH_MAX) return ENAMETOOLONG;
        memcpy(real + before, target, (size_t)n);
        real[before + (size_t)n] = 0;
    }
    return ELOOP;
}

int fu_file_resolve(const char *path, char *real, unsigned *mode_out) {
    struct stat st;
    *mode_out = 0;
    if (stat(path, &st)) {
        if (strlen(path) >= PATH_MAX) return ENAMETOOLONG;
        memcpy(real, path, strlen(path) + 1);
        return follow(real); /* what it names need not be there yet */
    }
    if (!S_ISREG(st.st_mode)) return S_ISDIR(st.st_mode) ? EISDIR : ESPIPE;
    *mode_out = st.st_mode & 0777;
    return realpath(path, real) ? 0 : errno;
}

int fu_file_replace(const char *path, unsigned mode, const fu_part *parts, int n) {
    char real[PATH_MAX];
    unsigned old;
    const int e = fu_file_resolve(path, real, &old);
    return e ? e : write_temp(real, old ? old : mode, old != 0, parts, n);
}

int fu_file_write(const char *path, const fu_part *parts, int n) {
    int e = fu_file_replace(path, 0666, parts, n);
    if (e != ESPIPE) return e;
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) return errno;
    e = fu_write_parts(fd, parts, n);
    if (close(fd) && !e && errno != EINTR) e = errno;
    return e;
}

static int make_dir(const char *path, unsigned mode) {
    if (!mkdir(path, (mode_t)mode)) return 0;
    int e = errno;
    struct stat st;
    /* mkdir may say EEXIST, EROFS or EACCES for a directory that is there, and EEXIST for a link that leads nowhere. */
    if (!stat(path, &st)) return S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
    return e == EEXIST ? errno : e;
}

int fu_make_dirs(const char *path, unsigned mode) {
    char copy[PATH_MAX];
    size_t n = strlen(path);
    if (!n) return ENOENT;
    if (n >= sizeof copy) return ENAMETOOLONG;
    memcpy(copy, path, n + 1);
    for (size_t i = 1; i < n; i++) {
        if (copy[i] != '/' || copy[i - 1] == '/') continue;
        copy[i] = 0;
        int e = make_dir(copy, mode);
        if (e) return e;
        copy[i] = '/';
    }
    return make_dir(copy, mode);
}
