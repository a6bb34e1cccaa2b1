/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache_dir.c: files of the cache directory: who may own them, whole reads, atomic writes, locks, eviction. All go
 * through the directory's descriptor, so that renaming or replacing the directory leads nowhere else. */
#include "base/small.h"
#include "rt/cache_stats.h"
#include "rt/cubin.h"
#include "base/env.h"
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_WAIT_NS = 2000000000, STALE_SECONDS = 3600 };

/* A code cache decides what this process executes: nobody else may have a hand in it. */
static bool is_trusted(const struct stat *st) {
    return (st->st_uid == geteuid() || st->st_uid == 0) && !(st->st_mode & 022);
}

const char *rt_dir_open(const char *path, bool make, rt_dir *out, char *why, size_t room) {
    out->fd = -1;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--; /* O_NOFOLLOW means nothing before a slash */
    char cwd[2048] = "";
    if (path[0] != '/' && !getcwd(cwd, sizeof cwd)) cwd[0] = 0;
    int length = snprintf(out->path, sizeof out->path, "%s%s%.*s", cwd, cwd[0] ? "/" : "", (int)n, path);
    if (!n || length < 0 || (size_t)length >= sizeof out->path) {
        snprintf(why, room, "%s", n ? strerror(ENAMETOOLONG) : "the name is empty");
        return why;
    }
    int e = make ? fu_make_dirs(out->path, 0700) : 0;
    if (!e) {
        out->fd = open(out->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (out->fd < 0) e = errno;
    }
    struct stat st;
    if (!e && fstat(out->fd, &st)) e = errno;
    if (e == ELOOP || ((e == ENOTDIR || e == ENOENT) && lstat(out->path, &st) == 0 && S_ISLNK(st.st_mode)))
        snprintf(why, room, "it is a symbolic link; expected the directory itself");
    else if (e) snprintf(why, room, "%s", strerror(e));
    else if (st.st_uid != geteuid() && st.st_uid != 0)
        snprintf(why, room, "it belongs to user %ld; expected user %ld or root", (long)st.st_uid, (long)geteuid());
    else if (st.st_mode & 022)
        snprintf(why, room, "others may write to it (mode %04o); chmod go-w makes it usable",
                 (unsigned)st.st_mode & 07777);
    else return NULL;
    rt_dir_close(out);
    return why;
}

bool rt_dir_try(const char *path, rt_dir *out) {
    char why[1];
    return path && path[0] && !rt_dir_open(path, false, out, why, sizeof why);
}

const char *rt_dir_reason(int problem) {
    return problem == EPERM   ? "not a plain file that only you or root may write"
           : problem == ELOOP ? "it is a symbolic link"
                              : strerror(problem);
}

void rt_dir_close(rt_dir *d) {
    if (d->fd >= 0) close(d->fd);
    d->fd = -1;
}

int rt_dir_open_file(const rt_dir *d, const char *name, uint64_t *bytes_out, int64_t *mtime_s_out) {
    /* O_NONBLOCK: a pipe of that name must not hang the open. */
    int fd = openat(d->fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return -1;
    struct stat st;
    int e = fstat(fd, &st) ? errno : 0;
    if (!e && (!S_ISREG(st.st_mode) || !is_trusted(&st))) e = EPERM;
    if (e) {
        close(fd);
        errno = e;
        return -1;
    }
    *bytes_out = (uint64_t)st.st_size;
    if (mtime_s_out) *mtime_s_out = st.st_mtime;
    return fd;
}

int rt_dir_read(const rt_dir *d, const char *name, uint64_t max_bytes, void **data_out, size_t *bytes_out,
                int64_t *mtime_s_out) {
    uint64_t file_bytes;
    int fd = rt_dir_open_file(d, name, &file_bytes, mtime_s_out);
    if (fd < 0) return errno;
    int e = file_bytes > max_bytes ? EFBIG : 0;
    char *data = NULL;
    size_t n = 0, size = e ? 0 : (size_t)file_bytes;
    if (!e && !(data = fu_malloc(size + 1))) e = ENOMEM;
    while (!e && n < size) {
        ssize_t got = read(fd, data + n, size - n);
        if (got < 0 && errno != EINTR) e = errno;
        if (got == 0) break;
        if (got > 0) n += (size_t)got;
    }
    close(fd);
    if (e) return fu_free(data), e;
    data[n] = 0;
    *data_out = data;
    *bytes_out = n;
    return 0;
}

/* Is the process gone that a temporary file names? Of a process in another PID namespace it may say so wrongly. */
static bool is_orphan(const char *name) {
    const char *dot = name + strlen(name);
    for (int fields = 0; fields < 3 && dot > name;) /* from the end: .tmp, a counter, the process */
        if (*--dot == '.') fields++;
    const long pid = *dot == '.' ? strtol(dot + 1, NULL, 16) : 0;
    return pid > 0 && pid <= INT_MAX && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

static int write_once(const rt_dir *d, const char *name, const fu_part *parts, int n, bool *is_taken_out) {
    static atomic_uint serial;
    char temp[4200];
    int fd = -1, e = EEXIST;
    for (int attempt = 0; attempt < 16 && e == EEXIST; attempt++) {
        int length = snprintf(temp, sizeof temp, "%s.%lx.%x.tmp", name, (long)getpid(), atomic_fetch_add(&serial, 1));
        if (length < 0 || (size_t)length >= sizeof temp) return ENAMETOOLONG;
        fd = openat(d->fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        e = fd < 0 ? errno : 0;
    }
    if (e) return e;
    e = fu_write_parts(fd, parts, n);
    if (close(fd) && !e && errno != EINTR) e = errno;
    if (!e && renameat(d->fd, temp, d->fd, name)) *is_taken_out = (e = errno) == ENOENT;
    if (e) unlinkat(d->fd, temp, 0);
    return e;
}

/* Somebody who clears the directory may take a file that is being written for one that was left behind. */
int rt_dir_write(const rt_dir *d, const char *name, const fu_part *parts, int n) {
    int e = 0;
    bool is_taken = true;
    for (int attempt = 0; attempt < 8 && is_taken; attempt++) {
        is_taken = false;
        e = write_once(d, name, parts, n, &is_taken);
    }
    return e;
}

/* ---- locks: best effort. Whoever finds none in time compiles as well; the last rename wins and both are right. ----
 */
int rt_dir_lock(const rt_dir *d, const char *name, bool (*is_done)(void *user), void *user) {
    int fd = openat(d->fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    int64_t end = fu_now_ns() + LOCK_WAIT_NS;
    for (long pause_ns = 500000; flock(fd, LOCK_EX | LOCK_NB);
         pause_ns = pause_ns < 10000000 ? pause_ns * 2 : pause_ns) {
        bool gives_up = (errno != EWOULDBLOCK && errno != EINTR) || fu_now_ns() >= end;
        if (gives_up || (is_done && is_done(user))) {
            close(fd);
            return -1;
        }
        nanosleep(&(struct timespec){0, pause_ns}, NULL);
    }
    return fd;
}

void rt_dir_unlock(const rt_dir *d, const char *name, int fd) {
    if (fd < 0) return;
    unlinkat(d->fd, name, 0); /* before the unlock: who waits finds the entry, whoever comes makes a new lock file */
    fu_file_unlock(fd);
}

/* ---- listing and eviction ---- */
static bool ends_with(const char *name, const char *suffix) {
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

static bool is_entry_name(const char *name) {
    return strlen(name) == 2 * IR_KEY_BYTES + RT_ENTRY_SUFFIX_BYTES &&
           strspn(name, "0123456789abcdef") == 2 * IR_KEY_BYTES && ends_with(name, RT_ENTRY_SUFFIX);
}

static bool is_temporary(const char *name) {
    return strspn(name, "0123456789abcdef") == 2 * IR_KEY_BYTES &&
           (ends_with(name, ".tmp") || ends_with(name, ".lock") || ends_with(name, ".bad"));
}

static DIR *open_listing(const rt_dir *d) {
    int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !listing) close(fd);
    return listing;
}

typedef struct found {
    char name[RT_CUBIN_NAME_MAX];
    bool is_cubin, is_gone;
    int64_t used_s; /* its time, which hits touch once an hour, or the use that the stats file knows of */
    long used_ns;
    uint64_t bytes;
} found;

static int older_first(const void *a, const void *b) {
    const found *x = a, *y = b;
    if (x->used_s != y->used_s) return x->used_s < y->used_s ? -1 : 1;
    if (x->used_ns != y->used_ns) return x->used_ns < y->used_ns ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* An empty directory, too: what was found under the name of an entry is set aside, whatever it is. */
static bool remove_file(const rt_dir *d, const char *name, rt_dir_failure *failed) {
    if (unlinkat(d->fd, name, 0) == 0 || errno == ENOENT) return true;
    const int e = errno;
    if (e == EISDIR && unlinkat(d->fd, name, AT_REMOVEDIR) == 0) return true;
    if (!failed->error) {
        failed->error = e == EISDIR ? errno : e;
        snprintf(failed->name, sizeof failed->name, "%s", name);
    }
    return false;
}

/* All entries and what drivers made of them, with their times, by fu_malloc. clean: temporary files older than an hour
 * go on the way; all_temporary: all but those that a process is writing. */
static int survey(const rt_dir *d, found **list_out, size_t *n_out, bool clean, bool all_temporary,
                  rt_dir_failure *failed) {
    DIR *listing = open_listing(d);
    if (!listing) return errno;
    found *list = NULL;
    size_t n = 0, cap = 0;
    int e = 0;
    time_t now = time(NULL);
    for (struct dirent *item; !e && (item = readdir(listing));) {
        struct stat st;
        bool is_cubin = rt_cubin_is_name(item->d_name), is_entry = is_cubin || is_entry_name(item->d_name);
        if (!is_entry && !is_temporary(item->d_name)) continue;
        if (fstatat(d->fd, item->d_name, &st, AT_SYMLINK_NOFOLLOW)) continue;
        if (!is_entry) {
            if (clean && (now - st.st_mtime > STALE_SECONDS ||
                          (all_temporary && (!ends_with(item->d_name, ".tmp") || is_orphan(item->d_name)))))
                (void)remove_file(d, item->d_name, failed);
            continue;
        }
        if (n == cap) {
            size_t more = cap ? cap * 2 : 64;
            found *bigger = fu_realloc(list, more * sizeof *list);
            if (!bigger) {
                e = ENOMEM;
                break;
            }
            list = bigger;
            cap = more;
        }
        strcpy(list[n].name, item->d_name);
        list[n].is_cubin = is_cubin;
        list[n].is_gone = false;
        list[n].used_s = st.st_mtim.tv_sec;
        list[n].used_ns = st.st_mtim.tv_nsec;
        list[n++].bytes = (uint64_t)st.st_size;
    }
    closedir(listing);
    if (e) return fu_free(list), e;
    *list_out = list;
    *n_out = n;
    return 0;
}

static void add_uses(const rt_dir *d, found *list, size_t n) {
    rt_stats_content s;
    rt_stats_read(d, &s);
    for (size_t i = 0; i < n; i++) {
        uint8_t key[IR_KEY_BYTES];
        rt_key_read(list[i].name, key);
        const rt_stats_use *use = rt_stats_find(&s, key);
        if (use && use->last_s > list[i].used_s) list[i].used_s = use->last_s;
    }
    rt_stats_free(&s);
}

static bool remove_found(const rt_dir *d, found *f, bool is_dry_run, uint64_t *total, int64_t *gone_bytes,
                         rt_dir_failure *failed) {
    if (!is_dry_run && !remove_file(d, f->name, failed)) return false;
    f->is_gone = true;
    *total -= f->bytes;
    *gone_bytes += (int64_t)f->bytes;
    return true;
}

uint64_t rt_dir_evict(const rt_dir *d, uint64_t max_bytes, uint64_t target_bytes, int64_t max_age_s, bool is_dry_run,
                      bool all_temporary, int64_t *n_out, int64_t *bytes_out, rt_dir_failure *failed_out) {
    found *list;
    size_t n;
    uint64_t total = 0;
    int64_t gone = 0, gone_bytes = 0;
    rt_dir_failure failed = {0};
    const int unread = survey(d, &list, &n, !is_dry_run, all_temporary, &failed);
    if (unread == 0) {
        size_t n_cubins = 0;
        for (size_t i = 0; i < n; i++) total += list[i].bytes, n_cubins += list[i].is_cubin;
        add_uses(d, list, n);
        if (n) qsort(list, n, sizeof *list, older_first);
        int64_t now = time(NULL);
        bool is_over = total > max_bytes;
        for (size_t i = 0; i < n; i++) {
            bool is_old = max_age_s > 0 && now - list[i].used_s > max_age_s;
            if (list[i].is_gone || (!is_old && !(is_over && total > target_bytes))) continue;
            if (!remove_found(d, &list[i], is_dry_run, &total, &gone_bytes, &failed)) continue;
            if (list[i].is_cubin) continue;
            gone++;
            for (size_t k = 0; k < n && n_cubins; k++) /* what drivers made of it goes with it */
                if (list[k].is_cubin && !list[k].is_gone && memcmp(list[k].name, list[i].name, 2 * IR_KEY_BYTES) == 0)
                    remove_found(d, &list[k], is_dry_run, &total, &gone_bytes, &failed);
        }
        fu_free(list);
    }
    if (n_out) *n_out = gone;
    if (bytes_out) *bytes_out = gone_bytes;
    if (failed_out) *failed_out = unread ? (rt_dir_failure){.error = unread} : failed;
    return total;
}

uint64_t rt_dir_keep_to(const rt_dir *d, uint64_t max_bytes, int64_t *n_out) {
    return rt_dir_evict(d, max_bytes, max_bytes / 10 * 9, 0, false, false, n_out, NULL, NULL);
}

rt_dir_failure rt_dir_quarantined(const rt_dir *d, bool is_removed, int64_t *n_out, int64_t *bytes_out) {
    DIR *listing = open_listing(d);
    rt_dir_failure failed = {0};
    *n_out = *bytes_out = 0;
    if (!listing) failed.error = errno;
    if (!listing) return failed;
    for (struct dirent *item; (item = readdir(listing)) != NULL;) {
        struct stat st;
        if (!is_temporary(item->d_name) || !ends_with(item->d_name, ".bad") ||
            fstatat(d->fd, item->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        if (is_removed && !remove_file(d, item->d_name, &failed)) continue;
        ++*n_out;
        *bytes_out += st.st_size;
    }
    closedir(listing);
    return failed;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

int rt_dir_names(const rt_dir *d, bool of_cubins, char ***names_out, size_t *n_out) {
    found *list;
    size_t n;
    int e = survey(d, &list, &n, false, false, NULL);
    if (e) return e;
    char **names = fu_malloc((n + 1) * sizeof *names + n * sizeof list->name);
    if (!names) return fu_free(list), ENOMEM;
    char *text = (char *)(names + n + 1);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++, text += sizeof list->name)
        if (list[i].is_cubin == of_cubins) names[kept++] = strcpy(text, list[i].name);
    names[kept] = NULL;
    fu_free(list);
    qsort(names, kept, sizeof *names, by_name);
    *names_out = names;
    *n_out = kept;
    return 0;
}

/* ---- which directory ---- */
int rt_cache_find_dir(const char *dir, bool ignore_environment, char *path_out, size_t room) {
    int n = 0;
    if (dir) {
        n = snprintf(path_out, room, "%s", dir);
    } else if (!ignore_environment) {
        const char *own = fu_env_string(FU_FUSOR_CACHE_DIR), *xdg = secure_getenv("XDG_CACHE_HOME"),
                   *home = secure_getenv("HOME");
        /* The XDG specification: a relative path is to be ignored. */
        if (*own) n = snprintf(path_out, room, "%s", own);
        else if (xdg && xdg[0] == '/') n = snprintf(path_out, room, "%s/fusor", xdg);
        else if (home && home[0] == '/') n = snprintf(path_out, room, "%s/.cache/fusor", home);
    }
    return n <= 0 ? ENOENT : (size_t)n < room ? 0 : ENAMETOOLONG;
}
