/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* processes_test.c: 8 processes of 4 threads work in one cache directory while they are killed, stopped and continued,
 * and files of the directory are cut, flipped, deleted, exchanged and dated into the past and the future. Half of the
 * processes are of another build. Every answer is right; in the end the directory verifies clean, but for entries set
 * aside.
 *
 * Code generation is a fake that makes `mov eax, VALUE; ret` of the description "value VALUE" and the build.
 * FUSOR_CHAOS_FAULTS (default 400) is how many faults are injected. */
#include "rt/cache.h"
#include "rt/cache_entry.h"
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 8, THREADS = 4, VALUES = 120, WRONG = 3 };
static const char *const builds[2] = {"build-one", "build-two"};
static char dir[128];

static int fake(const fusor_codegen_request *q, fusor_codegen_result *r) {
    const char *at = strstr(q->description, "value ");
    unsigned char *blob = at ? q->allocate(q->user, 100) : NULL;
    if (!blob) return FUSOR_ERROR_MEMORY;
    int value = atoi(at + 6);
    usleep(300);
    memset(blob, 0xcc, 100);
    blob[0] = 0xb8;
    memcpy(blob + 1, &value, 4);
    blob[5] = 0xc3;
    r->data = blob;
    r->bytes = 100;
    r->code_bytes = 6;
    return 0;
}

static void ignore(void *user, int level, const char *line) { (void)user, (void)level, (void)line; }

/* The number that `value` stands for in a build: another one each, so that a foreign entry would be seen. */
static bool is_right(rt_cache *c, int value, int build) {
    fu_error *e = calloc(1, sizeof *e);
    char text[80];
    uint8_t key[IR_KEY_BYTES];
    rt_kernel *k = NULL;
    int number = value + 1000 * build;
    snprintf(text, sizeof text, "fusor-kernel 1\nvalue %d\nend\n", number);
    ir_kernel_key(text, strlen(text), builds[build], key);
    const rt_cache_request r = {text, strlen(text), {IR_LEVEL_V2, 0}, "fk_fake", key, 1};
    bool ok = e && rt_cache_get_text(c, e, &r, &k, NULL) == FUSOR_OK && k->fn(NULL, 0, 0) == number;
    rt_kernel_release(k);
    free(e);
    return ok;
}

static rt_cache *open_build(int build, uint64_t max_bytes) {
    fu_error *e = calloc(1, sizeof *e);
    rt_cache *c = NULL;
    rt_cache_options o = {.dir = dir,
                          .path = "",
                          .mode = RT_CACHE_RW,
                          .build_id = builds[build],
                          .generate = fake,
                          .max_bytes = max_bytes,
                          .max_kernels = 20,
                          .log = {.sink = ignore}};
    if (!e || rt_cache_open(e, &o, &c) != FUSOR_OK) _exit(WRONG);
    free(e);
    return c;
}

typedef struct work {
    rt_cache *c;
    int build;
    unsigned seed;
} work;
static void *run(void *arg) {
    work *w = arg;
    for (;;)
        if (!is_right(w->c, rand_r(&w->seed) % VALUES, w->build)) _exit(WRONG);
    return NULL;
}

static pid_t start(int number, unsigned seed) {
    pid_t pid = fork();
    if (pid) return pid;
    static work works[THREADS];
    int build = number % 2;
    rt_cache *c = open_build(build, number % 4 == 3 ? 20000 : 0); /* some evict all the time */
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_t t;
        works[i] = (work){c, build, seed * 31 + i};
        if (i && pthread_create(&t, NULL, run, &works[i])) _exit(WRONG);
    }
    run(&works[0]);
    _exit(WRONG);
}

/* A file of the directory, or false. */
static bool pick(char path[512], unsigned *seed) {
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *item; d && (item = readdir(d));)
        if (item->d_name[0] != '.' && rand_r(seed) % ++n == 0) snprintf(path, 512, "%s/%.200s", dir, item->d_name);
    if (d) closedir(d);
    return n > 0;
}

static void damage(unsigned *seed) {
    char path[512], other[512];
    struct stat st;
    if (!pick(path, seed) || stat(path, &st)) return;
    off_t at = st.st_size ? (off_t)(rand_r(seed) % st.st_size) : 0;
    switch (rand_r(seed) % 6) {
    case 0: (void)!truncate(path, at); break;
    case 1: {
        int fd = open(path, O_RDWR);
        unsigned char byte;
        if (fd >= 0 && pread(fd, &byte, 1, at) == 1) {
            byte ^= (unsigned char)(1 << rand_r(seed) % 8);
            (void)!pwrite(fd, &byte, 1, at);
        }
        if (fd >= 0) close(fd);
        break;
    }
    case 2: unlink(path); break;
    case 3:
        if (pick(other, seed)) rename(other, path);
        break;
    case 4: {
        struct timespec t[2] = {{.tv_sec = 1}, {.tv_sec = rand_r(seed) % 2 ? 4000000000 : 1}};
        utimensat(AT_FDCWD, path, t, 0);
        break;
    }
    default: chmod(path, rand_r(seed) % 2 ? 0666 : 0);
    }
}

static int n_entries, n_problems;
static bool count(void *user, const rt_cache_entry *e) {
    (void)user;
    n_entries++;
    n_problems += e->problem != NULL;
    return true;
}

static bool set_aside(void *user, const rt_cache_entry *e) {
    if (e->problem) cr_assert_eq(rt_cache_quarantine(user, dir, e->file), FUSOR_OK);
    return true;
}

Test(processes, faults_of_every_kind, .timeout = 900) {
    const char *wanted = getenv("FUSOR_CHAOS_FAULTS");
    int n_faults = wanted ? atoi(wanted) : 400, n_kills = 0, n_stops = 0, n_damages = 0;
    pid_t pid[PROCESSES];
    unsigned seed = 12345;
    static fu_error e;
    strcpy(dir, "/tmp/fusor-chaos-XXXXXX");
    cr_assert(mkdtemp(dir));
    for (int i = 0; i < PROCESSES; i++) pid[i] = start(i, (unsigned)i + 1);
    for (int f = 0; f < n_faults; f++) {
        int who = rand_r(&seed) % PROCESSES, status;
        usleep((useconds_t)(rand_r(&seed) % 8000));
        if (f % 3) {
            damage(&seed);
            n_damages++;
        } else if (f % 6) {
            kill(pid[who], SIGSTOP);
            usleep((useconds_t)(rand_r(&seed) % 20000));
            kill(pid[who], SIGCONT);
            n_stops++;
        } else {
            kill(pid[who], SIGKILL);
            n_kills++;
            cr_assert_eq(waitpid(pid[who], &status, 0), pid[who]);
            cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
                      "after %d faults process %d ended by itself: 0x%x", f, who, status);
            pid[who] = start(who, seed);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        usleep(20000);
        kill(pid[i], SIGKILL);
        cr_assert_eq(waitpid(pid[i], &status, 0), pid[i]);
        cr_assert(WIFSIGNALED(status), "process %d ended by itself: 0x%x", i, status);
    }
    /* What is damaged still is set aside by verify; then all is clean, and every answer right from both builds. */
    cr_assert_eq(rt_cache_list(&e, dir, set_aside, &e), FUSOR_OK, "%s", e.text);
    for (int build = 0; build < 2; build++) {
        rt_cache *c = open_build(build, 0);
        for (int v = 0; v < VALUES; v++) cr_assert(is_right(c, v, build), "value %d of build %d", v, build);
        rt_cache_close(c);
    }
    cr_assert_eq(rt_cache_list(&e, dir, count, NULL), FUSOR_OK);
    cr_assert_eq(n_problems, 0);
    cr_assert_eq(n_entries, 2 * VALUES);
    /* Temporary files of the killed, locks and what was set aside go. */
    int64_t n;
    cr_assert_eq(rt_cache_clear(&e, dir, &n), FUSOR_OK);
    if (rmdir(dir)) {
        char path[512];
        cr_assert(pick(path, &seed));
        cr_assert(false, "left behind: %s", path);
    }
    fprintf(stderr, "%d faults: %d kills, %d stops, %d damaged files\n", n_faults, n_kills, n_stops, n_damages);
}

/* A file system of 64 KB: what does not fit stays in memory, with one warning; what was written is whole. */
static int n_warnings;
static void warned(void *user, int level, const char *line) { (void)user, (void)level, (void)line, n_warnings++; }
Test(processes, full_file_system, .timeout = 60) {
    static fu_error e;
    strcpy(dir, "/tmp/fusor-chaos-XXXXXX");
    cr_assert(mkdtemp(dir));
    if (mount("none", dir, "tmpfs", 0, "size=64k,mode=700")) {
        rmdir(dir);
        cr_skip("no tmpfs may be mounted");
    }
    rt_cache_options o = {
        .dir = dir, .path = "", .mode = RT_CACHE_RW, .build_id = builds[0], .generate = fake, .log = {.sink = warned}};
    rt_cache *c = NULL;
    bool all_right = rt_cache_open(&e, &o, &c) == FUSOR_OK;
    for (int v = 0; v < VALUES && all_right; v++) all_right = is_right(c, v, 0);
    rt_cache_stats s = rt_cache_get_stats(c);
    rt_cache_close(c);
    n_entries = n_problems = 0;
    bool listed = rt_cache_list(&e, dir, count, NULL) == FUSOR_OK;
    umount(dir);
    rmdir(dir);
    cr_assert(all_right && listed);
    cr_assert(s.written > 0 && s.written < VALUES, "%ld written", (long)s.written);
    cr_assert_eq(n_warnings, 1);
    cr_assert(n_problems == 0 && n_entries == s.written);
}

/* Files dated into the future or the far past are neither lost nor kept for ever. */
Test(processes, clock_jumps, .timeout = 60) {
    static fu_error e;
    strcpy(dir, "/tmp/fusor-chaos-XXXXXX");
    cr_assert(mkdtemp(dir));
    rt_cache *c = open_build(0, 0);
    for (int v = 0; v < 10; v++) cr_assert(is_right(c, v, 0));
    rt_cache_close(c);
    char path[512];
    unsigned seed = 1;
    struct timespec future[2] = {{.tv_sec = 4000000000}, {.tv_sec = 4000000000}},
                    past[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *item; d && (item = readdir(d));)
        if (strstr(item->d_name, ".fk")) {
            snprintf(path, sizeof path, "%s/%.200s", dir, item->d_name);
            utimensat(AT_FDCWD, path, n++ % 2 ? future : past, 0);
        }
    closedir(d);
    cr_assert_eq(n, 10);
    c = open_build(0, 0);
    for (int v = 0; v < 10; v++) cr_assert(is_right(c, v, 0));
    cr_assert_eq(rt_cache_get_stats(c).disk_hits, 10);
    rt_cache_close(c);
    /* The hits have set the times right: nothing is older than a day, nothing is from the future. */
    int64_t gone;
    cr_assert_eq(rt_cache_prune(&e, dir, UINT64_MAX, 86400, true, &gone, NULL), FUSOR_OK);
    cr_assert_eq(gone, 0);
    struct stat st;
    for (int i = 0; i < 50 && pick(path, &seed); i++) cr_assert(stat(path, &st) == 0 && st.st_mtime < 3000000000);
    cr_assert_eq(rt_cache_clear(&e, dir, NULL), FUSOR_OK);
    cr_assert_eq(rmdir(dir), 0);
}
