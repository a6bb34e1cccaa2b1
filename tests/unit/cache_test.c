/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache_test.c: kernels are found or made, once; whatever happens to the files, the call succeeds and the answer is
 * right. Code generation is a fake that makes `mov eax, VALUE; ret` of the description "value VALUE". */
#include "rt/cache.h"
#include "rt/cache_entry.h"
#include "rt/cache_internal.h"
#include "base/hash.h"
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static _Thread_local fu_error error;
static atomic_int n_generated, n_warnings;
static char last_warning[1024];
static char dir[128];
static int generate_sleep_us;

static int fake(const fusor_codegen_request *q, fusor_codegen_result *r) {
    n_generated++;
    if (generate_sleep_us) usleep((useconds_t)generate_sleep_us);
    const char *at = strstr(q->description, "value ");
    if (!at) {
        snprintf(r->error, sizeof r->error, "line 1: no value");
        return FUSOR_ERROR_UNSUPPORTED;
    }
    int value = atoi(at + 6);
    unsigned char *blob = q->allocate(q->user, 100);
    if (!blob) return FUSOR_ERROR_MEMORY;
    memset(blob, 0xcc, 100);
    blob[64] = 0xb8;
    memcpy(blob + 65, &value, 4);
    blob[69] = 0xc3;
    r->data = blob;
    r->bytes = 100;
    r->entry = 64;
    r->code_bytes = 6;
    return 0;
}

static void warned(void *user, int level, const char *line) {
    (void)user, (void)level;
    n_warnings++;
    snprintf(last_warning, sizeof last_warning, "%s", line);
}

static void init(void) {
    strcpy(dir, "/tmp/fusor-cache-XXXXXX");
    cr_assert(mkdtemp(dir));
    static const char *const names[] = {"FUSOR_CACHE", "FUSOR_CACHE_DIR", "FUSOR_CACHE_PATH", "FUSOR_CODEGEN",
                                        "XDG_CACHE_HOME"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    setenv("HOME", "/dev/null/home", 1);
}
static void fini(void) {
    char command[300];
    snprintf(command, sizeof command, "chmod -R u+w %s; rm -rf %s", dir, dir);
    cr_assert_eq(system(command), 0);
}
TestSuite(cache, .init = init, .fini = fini);

static rt_cache_options options(void) {
    return (rt_cache_options){.dir = dir, .generate = fake, .log = {.sink = warned}};
}

static rt_cache *open_with(rt_cache_options o) {
    rt_cache *c = NULL;
    fu_error_clear(&error);
    cr_assert_eq(rt_cache_open(&error, &o, &c), FUSOR_OK);
    return c;
}
static rt_cache *open_cache(void) { return open_with(options()); }

static fusor_status get_text(rt_cache *c, const char *text, rt_kernel **out, rt_cache_outcome *outcome) {
    uint8_t key[IR_KEY_BYTES];
    ir_kernel_key(text, strlen(text), "test", key);
    fu_error_clear(&error);
    const rt_cache_request r = {text, strlen(text), {IR_LEVEL_V2, 0}, "fk_fake", key, 1};
    return rt_cache_get_text(c, &error, &r, out, outcome);
}

static int call(const rt_kernel *k) { return k->fn(NULL, 0, 0); }

/* The kernel for `value`; returns where it came from, and checks that it is the right one. */
static rt_cache_source want(rt_cache *c, int value) {
    char text[64];
    snprintf(text, sizeof text, "fusor-kernel 1\nvalue %d\nend\n", value);
    rt_kernel *k = NULL;
    rt_cache_outcome o;
    cr_assert_eq(get_text(c, text, &k, &o), FUSOR_OK, "%s", error.text);
    cr_assert_eq(call(k), value);
    cr_assert_str_eq(k->description, text);
    rt_kernel_release(k);
    return o.source;
}

static void file_of(int value, char path[512]) {
    char text[64], hex[33];
    uint8_t key[IR_KEY_BYTES];
    snprintf(text, sizeof text, "fusor-kernel 1\nvalue %d\nend\n", value);
    ir_kernel_key(text, strlen(text), "test", key);
    rt_key_text(key, hex);
    snprintf(path, 512, "%s/%s.fk", dir, hex);
}

static bool exists(int value) {
    char path[512];
    file_of(value, path);
    return access(path, F_OK) == 0;
}

static size_t slurp(const char *path, unsigned char *data, size_t room) {
    int fd = open(path, O_RDONLY);
    cr_assert(fd >= 0);
    ssize_t n = read(fd, data, room);
    close(fd);
    return (size_t)n;
}
static void spill(const char *path, const void *data, size_t n) {
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    close(fd);
}

Test(cache, memory_then_disk) {
    rt_cache *c = open_cache();
    cr_assert_eq(want(c, 5), RT_CACHE_COMPILED);
    cr_assert_eq(want(c, 5), RT_CACHE_MEMORY);
    cr_assert_eq(want(c, 6), RT_CACHE_COMPILED);
    rt_cache_close(c);
    c = open_cache();
    cr_assert_eq(want(c, 5), RT_CACHE_DISK);
    cr_assert_eq(want(c, 5), RT_CACHE_MEMORY);
    rt_cache_stats s = rt_cache_get_stats(c);
    cr_assert(s.disk_hits == 1 && s.memory_hits == 1 && s.compiles == 0 && s.load_ns > 0);
    cr_assert_eq(n_generated, 2);
    cr_assert_eq(n_warnings, 0, "%s", last_warning);
    rt_cache_close(c);
    cr_assert_eq(rt_code_get_stats().kernels, 0);
}

Test(cache, kernels_outlive_the_cache) {
    rt_cache *c = open_cache();
    rt_kernel *k;
    cr_assert_eq(get_text(c, "value 9", &k, NULL), FUSOR_OK);
    rt_cache_close(c);
    cr_assert_eq(call(k), 9);
    rt_kernel_release(rt_kernel_keep(k));
    rt_kernel_release(k);
    rt_kernel_release(NULL);
    cr_assert_eq(rt_code_get_stats().kernels, 0);
}

Test(cache, truncation_at_every_byte) {
    rt_cache *c = open_cache();
    want(c, 7);
    rt_cache_close(c);
    char path[512];
    file_of(7, path);
    static unsigned char data[4096];
    size_t n = slurp(path, data, sizeof data);
    for (size_t cut = 0; cut < n; cut++) {
        spill(path, data, cut);
        n_warnings = 0;
        c = open_cache();
        cr_assert_eq(want(c, 7), RT_CACHE_COMPILED, "cut at %zu", cut);
        cr_assert_eq(n_warnings, 1);
        cr_assert_eq(rt_cache_get_stats(c).bad_entries, 1);
        rt_cache_close(c);
        c = open_cache(); /* it was made again */
        cr_assert_eq(want(c, 7), RT_CACHE_DISK);
        rt_cache_close(c);
    }
    data[n] = 0;
    spill(path, data, n + 1);
    c = open_cache();
    cr_assert_eq(want(c, 7), RT_CACHE_COMPILED);
    rt_cache_close(c);
}

Test(cache, every_flipped_bit) {
    rt_cache *c = open_cache();
    want(c, 7);
    rt_cache_close(c);
    char path[512];
    file_of(7, path);
    static _Alignas(8) unsigned char data[4096];
    size_t n = slurp(path, data, sizeof data);
    rt_entry entry;
    cr_assert_null(rt_entry_decode(data, n, &entry));
    for (size_t bit = 0; bit < n * 8; bit++) {
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        cr_assert_not_null(rt_entry_decode(data, n, &entry), "bit %zu", bit);
        if (bit % 101 == 0) {
            spill(path, data, n);
            c = open_cache();
            cr_assert_eq(want(c, 7), RT_CACHE_COMPILED, "bit %zu", bit);
            rt_cache_close(c);
        }
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

/* Lengths that a valid checksum vouches for are checked all the same. */
Test(cache, hostile_lengths) {
    rt_cache *c = open_cache();
    want(c, 7);
    rt_cache_close(c);
    char path[512];
    file_of(7, path);
    static _Alignas(8) unsigned char data[4096], copy[4096];
    size_t n = slurp(path, data, sizeof data);
    static const size_t fields[] = {offsetof(rt_entry_header, description_bytes), offsetof(rt_entry_header, blob_bytes),
                                    offsetof(rt_entry_header, entry), offsetof(rt_entry_header, code_bytes),
                                    offsetof(rt_entry_header, file_bytes)};
    static const uint64_t values[] = {0, 1, 4096, UINT32_MAX, INT64_MAX, UINT64_MAX, UINT64_MAX - 63, UINT64_MAX - 600};
    for (size_t f = 0; f < 5; f++)
        for (size_t v = 0; v < 8; v++) {
            memcpy(copy, data, n);
            memcpy(copy + fields[f], &values[v], 8);
            fu_hash128(copy + 32, n - 32, copy + 16);
            rt_entry entry;
            const char *problem = rt_entry_decode(copy, n, &entry);
            if (!problem)
                cr_assert(entry.head->entry < entry.head->blob_bytes &&
                          (const unsigned char *)entry.blob + entry.head->blob_bytes == copy + n);
        }
}

/* An intact entry of another kernel under this name, and one of another build. */
Test(cache, foreign_entries) {
    rt_cache *c = open_cache();
    want(c, 1);
    want(c, 2);
    rt_cache_close(c);
    char one[512], two[512];
    file_of(1, one);
    file_of(2, two);
    cr_assert_eq(rename(one, two), 0);
    c = open_cache();
    cr_assert_eq(want(c, 2), RT_CACHE_COMPILED);
    rt_cache_close(c);
    rt_cache_options o = options();
    o.build_id = "another";
    c = open_with(o);
    cr_assert_eq(want(c, 2), RT_CACHE_COMPILED);
    rt_cache_close(c);
}

Test(cache, trouble_with_the_directory_never_fails) {
    char path[256];
    /* a file where the directory should be, a link, writable by others, a name too long */
    snprintf(path, sizeof path, "%s/file", dir);
    spill(path, "x", 1);
    rt_cache_options o = options();
    o.dir = path;
    rt_cache *c = open_with(o);
    cr_assert_eq(want(c, 1), RT_CACHE_COMPILED);
    cr_assert_eq(want(c, 1), RT_CACHE_MEMORY);
    cr_assert_eq(n_warnings, 1);
    cr_assert_str_empty(rt_cache_dir(c));
    rt_cache_close(c);
    char link[256];
    snprintf(link, sizeof link, "%s/link/", dir);
    link[strlen(link) - 1] = 0;
    cr_assert_eq(symlink(dir, link), 0);
    strcat(link, "/");
    o.dir = link;
    c = open_with(o);
    cr_assert_str_empty(rt_cache_dir(c));
    cr_assert(strstr(last_warning, "symbolic link"), "%s", last_warning);
    rt_cache_close(c);
    snprintf(path, sizeof path, "%s/lost", dir);
    cr_assert_eq(symlink("/nowhere/at/all", path), 0);
    o.dir = path;
    c = open_with(o);
    cr_assert(strstr(last_warning, "symbolic link"), "a link that leads nowhere: %s", last_warning);
    rt_cache_close(c);
    snprintf(path, sizeof path, "%s/open", dir);
    mkdir(path, 0700);
    chmod(path, 0770);
    o.dir = path;
    c = open_with(o);
    cr_assert_eq(want(c, 1), RT_CACHE_COMPILED);
    cr_assert(strstr(last_warning, "chmod go-w"), "%s", last_warning);
    rt_cache_close(c);
    chmod(path, 0700);
    if (geteuid() == 0 && chown(path, 12345, 0) == 0) {
        c = open_with(o);
        cr_assert(strstr(last_warning, "belongs to user 12345"), "%s", last_warning);
        rt_cache_close(c);
    }
    static char longest[9000];
    memset(longest, 'a', sizeof longest - 1);
    o.dir = longest;
    c = open_with(o);
    cr_assert_eq(want(c, 1), RT_CACHE_COMPILED);
    rt_cache_close(c);
    cr_assert_eq(n_generated, 3);
}

/* What cannot be read has its time and size all the same. */
static bool is_of_now(void *user, const rt_cache_entry *e) {
    (void)user;
    cr_expect(e->used_s > time(NULL) - 100 && e->file_bytes > 0, "%s", e->problem ? e->problem : "good");
    return true;
}

Test(cache, bad_files_under_the_name) {
    char path[512];
    file_of(3, path);
    rt_cache *c;
    mkdir(path, 0700); /* a directory */
    c = open_cache();
    cr_assert_eq(want(c, 3), RT_CACHE_COMPILED);
    cr_assert_eq(want(c, 3), RT_CACHE_MEMORY);
    rt_cache_close(c);
    cr_assert_eq(n_warnings, 1);
    c = open_cache();
    cr_assert_eq(want(c, 3), RT_CACHE_DISK); /* it was set aside */
    rt_cache_close(c);
    char aside[530], inside[550];
    int64_t n = 0, bytes;
    snprintf(aside, sizeof aside, "%s.bad", path);
    snprintf(inside, sizeof inside, "%s/file", aside);
    cr_assert_eq(mkdir(inside, 0700), 0);
    fu_error_clear(&error);
    cr_assert_eq(rt_cache_prune(&error, dir, UINT64_MAX, 0, false, &n, &bytes), FUSOR_ERROR_IO);
    cr_assert(strstr(error.text, ".fk.bad: Directory not empty"), "%s", error.text);
    /* nor can one be set aside where another one is: one warning, and other kernels are stored */
    unlink(path);
    snprintf(aside, sizeof aside, "%s/file", path);
    cr_assert(mkdir(path, 0700) == 0 && mkdir(aside, 0700) == 0);
    n_warnings = 0;
    c = open_cache();
    cr_assert_eq(want(c, 3), RT_CACHE_COMPILED);
    cr_assert_eq(want(c, 4), RT_CACHE_COMPILED);
    rt_cache_close(c);
    cr_assert(n_warnings == 1 && exists(4), "%d: %s", atomic_load(&n_warnings), last_warning);
    cr_assert(rmdir(aside) == 0 && rmdir(path) == 0 && rmdir(inside) == 0);
    fu_error_clear(&error);
    cr_assert_eq(rt_cache_prune(&error, dir, UINT64_MAX, 0, false, &n, &bytes), FUSOR_OK, "%s", error.text);
    cr_assert_eq(n, 1);
    cr_assert_eq(mkfifo(path, 0600), 0); /* must not hang */
    c = open_cache();
    cr_assert_eq(want(c, 3), RT_CACHE_COMPILED);
    rt_cache_close(c);
    c = open_cache();
    cr_assert_eq(want(c, 3), RT_CACHE_DISK);
    rt_cache_close(c);
    chmod(path, 0666); /* others could have written it */
    cr_assert_eq(rt_cache_list(&error, dir, is_of_now, NULL), FUSOR_OK);
    c = open_cache();
    cr_assert_eq(want(c, 3), RT_CACHE_COMPILED);
    rt_cache_close(c);
}

/* Machine code of a GPU, as a driver would leave it. */
static const rt_cubin_driver driver = {.cc = 90, .version = 13000};
static void keep_cubin(const rt_cache *c, int number) {
    const uint8_t key[IR_KEY_BYTES] = {(uint8_t)number};
    static const char code[1000];
    rt_cubin_write(c->cubins, key, "text", 4, &driver, code, sizeof code);
}
static bool has_cubin(const rt_cache *c, int number) {
    const uint8_t key[IR_KEY_BYTES] = {(uint8_t)number};
    size_t bytes;
    void *data = rt_cubin_read(c->cubins, key, "text", 4, &driver, &bytes);
    fu_free(data);
    return data != NULL;
}

Test(cache, removed_directory_is_made_again) {
    char path[256], command[300];
    snprintf(path, sizeof path, "%s/a/b", dir);
    snprintf(command, sizeof command, "rm -rf %s/a", dir);
    rt_cache_options o = options();
    o.dir = path;
    rt_cache *c = open_with(o);
    want(c, 1);
    cr_assert_eq(system(command), 0);
    cr_assert_eq(want(c, 2), RT_CACHE_COMPILED);
    keep_cubin(c, 1);
    rt_cache_close(c);
    c = open_with(o);
    cr_assert_eq(want(c, 2), RT_CACHE_DISK);
    cr_assert(has_cubin(c, 1));
    cr_assert_eq(n_warnings, 0, "%s", last_warning);
    rt_cache_close(c);
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0700);
}

/* Files larger than the limit cannot be written: like a full disk. */
Test(cache, full_disk) {
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGXFSZ, SIG_IGN);
        struct rlimit none = {10, 10};
        setrlimit(RLIMIT_FSIZE, &none);
        rt_cache *c = open_cache();
        for (int i = 0; i < 5; i++) want(c, i);
        for (int i = 0; i < 5; i++)
            if (want(c, i) != RT_CACHE_MEMORY) _exit(2);
        rt_cache_close(c);
        _exit(n_warnings == 1 ? 0 : 1);
    }
    int status;
    waitpid(pid, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
    DIR *d = opendir(dir);
    for (struct dirent *f; (f = readdir(d));) cr_expect(f->d_name[0] == '.', "%s was left", f->d_name);
    closedir(d);
}

Test(cache, modes) {
    rt_cache_options o = options();
    o.mode = RT_CACHE_OFF;
    rt_cache *c = open_with(o);
    cr_assert_eq(want(c, 1), RT_CACHE_COMPILED);
    rt_cache_close(c);
    c = open_cache();
    cr_assert_eq(want(c, 1), RT_CACHE_COMPILED, "off writes nothing");
    rt_cache_close(c);
    o.mode = RT_CACHE_RO;
    c = open_with(o);
    cr_assert_eq(want(c, 1), RT_CACHE_DISK);
    cr_assert_eq(want(c, 2), RT_CACHE_COMPILED);
    rt_cache_close(c);
    c = open_with(o);
    cr_assert_eq(want(c, 2), RT_CACHE_COMPILED, "ro writes nothing");
    rt_cache_close(c);
    o.mode = RT_CACHE_REFRESH;
    c = open_with(o);
    cr_assert_eq(want(c, 1), RT_CACHE_COMPILED);
    cr_assert_eq(want(c, 1), RT_CACHE_MEMORY);
    rt_cache_close(c);
    setenv("FUSOR_CACHE", "sometimes", 1);
    c = open_cache();
    cr_assert_eq(want(c, 1), RT_CACHE_DISK);
    cr_assert(strstr(last_warning, "FUSOR_CACHE=sometimes"));
    rt_cache_close(c);
    o = options();
    o.mode = RT_CACHE_RO;
    o.dir = "/dev/null/fusor";
    n_warnings = 0;
    rt_cache_close(open_with(o));
    cr_assert_eq(n_warnings, 0, "a reader does not need the directory");
}

Test(cache, read_only_files_in_ro_mode_stay) {
    rt_cache *c = open_cache();
    want(c, 1);
    rt_cache_close(c);
    char path[512];
    file_of(1, path);
    spill(path, "junk", 4);
    rt_cache_options o = options();
    o.mode = RT_CACHE_RO;
    c = open_with(o);
    cr_assert_eq(want(c, 1), RT_CACHE_COMPILED);
    rt_cache_close(c);
    cr_assert_eq(access(path, F_OK), 0, "a reader does not delete");
}

Test(cache, which_directory) {
    char path[256];
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", "/home/h", 1);
    cr_assert_eq(rt_cache_find_dir(NULL, false, path, sizeof path), 0);
    cr_assert_str_eq(path, "/home/h/.cache/fusor");
    setenv("XDG_CACHE_HOME", "/x", 1);
    cr_assert_eq(rt_cache_find_dir(NULL, false, path, sizeof path), 0);
    cr_assert_str_eq(path, "/x/fusor");
    setenv("FUSOR_CACHE_DIR", "/c", 1);
    cr_assert_eq(rt_cache_find_dir(NULL, false, path, sizeof path), 0);
    cr_assert_str_eq(path, "/c");
    cr_assert_eq(rt_cache_find_dir("/d", false, path, sizeof path), 0);
    cr_assert_str_eq(path, "/d");
    cr_assert_eq(rt_cache_find_dir("", false, path, sizeof path), ENOENT);
    cr_assert_eq(rt_cache_find_dir(NULL, true, path, sizeof path), ENOENT);
    cr_assert_eq(rt_cache_find_dir(NULL, false, path, 2), ENAMETOOLONG);
    unsetenv("FUSOR_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    cr_assert_eq(rt_cache_find_dir(NULL, false, path, sizeof path), ENOENT);
}

Test(cache, cache_only_names_the_difference) {
    rt_cache *c = open_cache();
    want(c, 1);
    rt_kernel *k = NULL;
    cr_assert_eq(get_text(c, "fusor-kernel 1\nkind map\ndim p ?\nvalue 3\n", &k, NULL), FUSOR_OK);
    rt_kernel_release(k);
    rt_cache_close(c);
    rt_cache_options o = options();
    o.only = true;
    c = open_with(o);
    cr_assert_eq(want(c, 1), RT_CACHE_DISK);
    k = NULL;
    cr_assert_eq(get_text(c, "fusor-kernel 1\nkind map\ndim p 64\nvalue 3\n", &k, NULL), FUSOR_ERROR_MISS);
    cr_assert_null(k);
    cr_assert(strstr(error.text, "'dim p 64'") && strstr(error.text, "'dim p ?'"), "%s", error.text);
    rt_cache_close(c);
    o.dir = "";
    c = open_with(o);
    cr_assert_eq(get_text(c, "value 3", &k, NULL), FUSOR_ERROR_MISS);
    cr_assert(strstr(error.text, "no intact entry"), "%s", error.text);
    rt_cache_close(c);
    cr_assert_eq(n_generated, 2);
}

Test(cache, errors_of_code_generation) {
    rt_cache *c = open_cache();
    rt_kernel *k = NULL;
    cr_assert_eq(get_text(c, "nothing\n", &k, NULL), FUSOR_ERROR_UNSUPPORTED);
    cr_assert(strstr(error.text, "line 1: no value"), "%s", error.text);
    cr_assert_null(k);
    cr_assert_eq(rt_cache_get_stats(c).failures, 1);
    rt_code_set_mode(RT_CODE_NONE);
    cr_assert_eq(get_text(c, "value 3", &k, NULL), FUSOR_ERROR_UNSUPPORTED);
    cr_assert(strstr(error.text, "executable memory"), "%s", error.text);
    rt_code_set_mode(RT_CODE_AUTO);
    cr_assert_eq(get_text(c, "value 3", &k, NULL), FUSOR_OK);
    rt_kernel_release(k);
    rt_cache_close(c);
}

Test(cache, warm_stores_without_loading) {
    rt_cache *c = open_cache();
    rt_cache_outcome o;
    char text[] = "fusor-kernel 1\nvalue 8\nend\n";
    cr_assert_eq(get_text(c, text, NULL, &o), FUSOR_OK);
    cr_assert_eq(o.source, RT_CACHE_COMPILED);
    cr_assert_eq(get_text(c, text, NULL, &o), FUSOR_OK);
    cr_assert_eq(o.source, RT_CACHE_DISK);
    cr_assert_eq(rt_code_get_stats().kernels, 0);
    cr_assert_eq(want(c, 8), RT_CACHE_DISK);
    rt_cache_close(c);
}

Test(cache, without_a_module) {
    setenv("FUSOR_CODEGEN", "/nonexistent.so", 1);
    rt_cache_options o = options();
    o.generate = NULL;
    rt_cache *c = open_with(o);
    rt_kernel *k = NULL;
    cr_assert_eq(get_text(c, "value 3", &k, NULL), FUSOR_ERROR_UNSUPPORTED);
    cr_assert(strstr(error.text, "/nonexistent.so"), "%s", error.text);
    rt_cache_close(c);
}

/* ---- many at once ---- */
static rt_cache *shared;
static void *ask(void *arg) {
    for (int i = 0; i < 20; i++) want(shared, i);
    return arg;
}
Test(cache, threads_compile_once) {
    generate_sleep_us = 2000;
    shared = open_cache();
    pthread_t t[8];
    for (int i = 0; i < 8; i++) pthread_create(&t[i], NULL, ask, NULL);
    for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
    cr_assert_eq(n_generated, 20);
    rt_cache_close(shared);
}

Test(cache, processes_compile_once, .timeout = 60) {
    atomic_int *total = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    generate_sleep_us = 20000;
    for (int p = 0; p < 4; p++)
        if (fork() == 0) {
            rt_cache *c = open_cache();
            for (int i = 0; i < 10; i++) want(c, i);
            const rt_cache_stats s = rt_cache_get_stats(c); /* who waited for another has a hit, and no miss */
            rt_cache_close(c);
            *total += n_generated;
            _exit(n_warnings + (s.misses != n_generated || s.disk_hits != 10 - s.misses));
        }
    for (int p = 0, status; p < 4; p++) {
        wait(&status);
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    cr_assert_eq(*total, 10);
}

/* A process that hangs while it holds the lock costs two seconds at most. */
Test(cache, a_hung_holder_stops_nobody, .timeout = 30) {
    char path[520];
    file_of(4, path);
    strcpy(path + strlen(path) - 3, ".lock");
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    cr_assert_eq(flock(fd, LOCK_EX), 0);
    rt_cache *c = open_cache();
    time_t start = time(NULL);
    cr_assert_eq(want(c, 4), RT_CACHE_COMPILED);
    cr_assert(time(NULL) - start >= 1, "the lock was not waited for"); /* that it ends is the test's timeout */
    rt_cache_close(c);
}

/* The sanitizers' own allocator takes locks that a fork of a threaded process leaves behind in the child. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
Test(cache, fork_while_compiling, .timeout = 30) {
    generate_sleep_us = 100000;
    shared = open_cache();
    pthread_t t;
    pthread_create(&t, NULL, ask, NULL);
    usleep(30000);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(15);
        generate_sleep_us = 0;
        want(shared, 0); /* the thread that was making it is not here */
        want(shared, 100);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
    pthread_join(t, NULL);
    rt_cache_close(shared);
}
#endif

/* ---- size ---- */
Test(cache, flat_memory) {
    rt_cache_options o = options();
    o.dir = "";
    o.max_kernels = 100;
    rt_cache *c = open_with(o);
    rt_kernel *held;
    cr_assert_eq(get_text(c, "value 12345", &held, NULL), FUSOR_OK);
    for (int i = 0; i < 10000; i++) want(c, i);
    cr_assert_leq(rt_code_get_stats().kernels, 101);
    cr_assert_eq(want(c, 9999), RT_CACHE_MEMORY);
    cr_assert_eq(call(held), 12345);
    rt_kernel_release(held);
    rt_cache_close(c);
    cr_assert_eq(rt_code_get_stats().kernels, 0);
}

/* The counters would know of a later use. */
static void age(int value, int seconds) {
    char path[512];
    snprintf(path, sizeof path, "%s/stats", dir);
    (void)unlink(path);
    file_of(value, path);
    struct timespec t[2] = {{time(NULL) - seconds, 0}, {time(NULL) - seconds, 0}};
    cr_assert_eq(utimensat(AT_FDCWD, path, t, 0), 0);
}
Test(cache, least_recently_used_goes) {
    rt_cache *c = open_cache();
    for (int i = 0; i < 10; i++) want(c, i);
    rt_cache_close(c);
    for (int i = 0; i < 10; i++) age(i, 100000 - i * 1000);
    c = open_cache();
    want(c, 0); /* used: it becomes the newest */
    rt_cache_close(c);
    char path[512];
    file_of(1, path);
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    rt_cache_options o = options();
    o.max_bytes = (uint64_t)st.st_size * 6;
    c = open_with(o);
    want(c, 11);
    cr_assert_eq(rt_cache_get_stats(c).evicted, 6);
    rt_cache_close(c);
    cr_assert(exists(0) && exists(11) && !exists(1) && !exists(6) && exists(9));
}

/* A new driver makes machine code of all kernels, and no new entry. */
Test(cache, cubins_keep_to_the_limit) {
    rt_cache_options o = options();
    o.max_bytes = 20000;
    rt_cache *c = open_with(o);
    want(c, 1);
    age(1, 5000);
    for (int i = 1; i <= 60; i++) keep_cubin(c, i);
    int64_t n_left = 0;
    for (int i = 1; i <= 60; i++) n_left += has_cubin(c, i);
    cr_assert(n_left >= 10 && n_left <= 15, "%lld", (long long)n_left);
    cr_assert(has_cubin(c, 60));
    cr_assert(!exists(1));
    rt_cache_close(c);
}

Test(cache, mtime_is_touched_once_an_hour) {
    rt_cache *c = open_cache();
    want(c, 1);
    rt_cache_close(c);
    char path[512];
    file_of(1, path);
    struct stat st;
    age(1, 600);
    c = open_cache();
    want(c, 1);
    rt_cache_close(c);
    stat(path, &st);
    cr_assert(time(NULL) - st.st_mtime >= 600);
    int64_t n = -1;
    cr_assert_eq(rt_cache_prune(&error, dir, UINT64_MAX, 300, true, &n, NULL), FUSOR_OK);
    cr_assert_eq(n, 0, "the use that is counted");
    age(1, 4000);
    c = open_cache();
    want(c, 1);
    rt_cache_close(c);
    stat(path, &st);
    cr_assert(time(NULL) - st.st_mtime < 60);
}

/* ---- inspection ---- */
static int n_listed, n_problems;
static bool visit(void *user, const rt_cache_entry *e) {
    (void)user;
    n_listed++;
    n_problems += e->problem != NULL;
    if (!e->problem) {
        cr_expect_str_eq(e->symbol, "fk_fake");
        cr_expect_str_eq(e->level, "x86-64-v2");
        cr_expect(strstr(e->description, "value") && e->blob_bytes == 100 && e->entry == 64 && e->is_of_this_build);
        cr_expect(strncmp(e->file, e->key, 32) == 0);
    } else {
        cr_expect_eq(rt_cache_quarantine(&error, dir, e->file), FUSOR_OK);
    }
    return true;
}

Test(cache, list_quarantine_prune_clear) {
    rt_cache *c = open_cache();
    for (int i = 0; i < 5; i++) want(c, i);
    rt_cache_close(c);
    char path[512];
    file_of(2, path);
    spill(path, "FUSORK1\nxxxx", 12);
    cr_assert_eq(rt_cache_list(&error, dir, visit, NULL), FUSOR_OK);
    cr_assert(n_listed == 5 && n_problems == 1);
    cr_assert(!exists(2));
    age(3, 1000000);
    int64_t n, bytes;
    cr_assert_eq(rt_cache_prune(&error, dir, UINT64_MAX, 86400, true, &n, &bytes), FUSOR_OK);
    cr_assert(n == 2 && bytes > 112 && exists(3)); /* what was set aside counts too */
    cr_assert_eq(rt_cache_count_quarantined(&error, dir, &n, &bytes), FUSOR_OK);
    cr_assert(n == 1 && bytes == 12);
    cr_assert_eq(rt_cache_prune(&error, dir, UINT64_MAX, 86400, false, &n, &bytes), FUSOR_OK);
    cr_assert(n == 2 && !exists(3) && exists(4));
    cr_assert_eq(rt_cache_count_quarantined(&error, dir, &n, &bytes), FUSOR_OK);
    cr_assert_eq(n, 0);
    cr_assert_eq(rt_cache_clear(&error, dir, &n), FUSOR_OK);
    cr_assert_eq(n, 3);
    cr_assert_eq(rmdir(dir), 0, "nothing is left");
    cr_assert_eq(mkdir(dir, 0700), 0);
    fu_error_clear(&error);
    cr_assert_eq(rt_cache_list(&error, "/dev/null/nowhere", visit, NULL), FUSOR_ERROR_IO);
    fu_error_clear(&error);
    cr_assert_eq(rt_cache_quarantine(&error, dir, "../x"), FUSOR_ERROR_ARGUMENT);
}

/* DIR/KEY.fk.PROCESS.0.tmp, as rt_dir_write calls them. */
static void temporary(char path[512], long process) {
    file_of(1, path);
    snprintf(path + strlen(path), 64, ".%lx.0.tmp", process);
}

Test(cache, clear_leaves_what_is_being_written) {
    rt_cache *c = open_cache();
    for (int i = 0; i < 3; i++) want(c, i);
    rt_cache_close(c);
    char mine[512], dead[512];
    const pid_t child = fork();
    if (child == 0) _exit(0);
    cr_assert_eq(waitpid(child, NULL, 0), child);
    temporary(mine, (long)getpid());
    temporary(dead, (long)child);
    spill(mine, "x", 1);
    spill(dead, "x", 1);
    int64_t n;
    cr_assert_eq(rt_cache_clear(&error, dir, &n), FUSOR_OK);
    cr_assert_eq(n, 3);
    cr_assert_eq(access(mine, F_OK), 0);
    cr_assert_neq(access(dead, F_OK), 0);
    struct timespec long_ago[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    cr_assert_eq(utimensat(AT_FDCWD, mine, long_ago, 0), 0);
    cr_assert_eq(rt_cache_clear(&error, dir, &n), FUSOR_OK);
    cr_assert_neq(access(mine, F_OK), 0);
}

Test(cache, bundles) {
    rt_cache *c = open_cache();
    for (int i = 0; i < 20; i++) want(c, i);
    rt_cache_close(c);
    char bundle[256], other[256];
    snprintf(bundle, sizeof bundle, "%s/app.fbundle", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    int64_t n;
    cr_assert_eq(rt_cache_export(&error, dir, bundle, &n), FUSOR_OK, "%s", error.text);
    cr_assert_eq(n, 20);
    n_generated = 0;
    rt_cache_options o = options();
    o.dir = "";
    o.path = bundle;
    o.only = true;
    c = open_with(o);
    for (int i = 0; i < 20; i++) cr_assert_eq(want(c, i), RT_CACHE_DISK);
    rt_cache_close(c);
    o.path = "";
    o.only = false;
    c = open_with(o); /* added later; a directory as a tier, too */
    cr_assert_eq(rt_cache_add_tier(c, &error, "/dev/null/nowhere"), FUSOR_ERROR_IO);
    cr_assert_eq(rt_cache_add_tier(c, &error, dir), FUSOR_OK);
    cr_assert_eq(want(c, 3), RT_CACHE_DISK);
    rt_cache_close(c);
    cr_assert_eq(rt_cache_import(&error, bundle, other, &n), FUSOR_OK);
    cr_assert_eq(n, 20);
    o.dir = other;
    c = open_with(o);
    cr_assert_eq(want(c, 19), RT_CACHE_DISK);
    rt_cache_close(c);
    cr_assert_eq(n_generated, 0);
    /* an entry under another's name is left out: the index is in the order of keys */
    char from[512], to[512], strays[256];
    static unsigned char data[65536];
    snprintf(strays, sizeof strays, "%s/strays.fbundle", dir);
    for (int i = 0; i < 10; i += 2) {
        file_of(i, from);
        file_of(i + 1, to);
        spill(to, data, slurp(from, data, sizeof data));
    }
    cr_assert_eq(rt_cache_export(&error, dir, strays, &n), FUSOR_OK, "%s", error.text);
    cr_assert_eq(n, 15);
    o.dir = "";
    o.path = strays;
    c = open_with(o);
    for (int i = 0; i < 20; i++) cr_assert_eq(want(c, i), i < 10 && i % 2 ? RT_CACHE_COMPILED : RT_CACHE_DISK, "%d", i);
    rt_cache_close(c);
    /* damage: never a wrong answer */
    size_t size = slurp(bundle, data, sizeof data);
    o.dir = "";
    o.path = bundle;
    for (size_t i = 0; i < size; i += 13) {
        data[i] ^= 0x81;
        spill(bundle, data, size);
        c = open_with(o);
        want(c, (int)(i % 20));
        rt_cache_close(c);
        data[i] ^= 0x81;
    }
    for (size_t cut = 0; cut < size; cut += 97) {
        spill(bundle, data, cut);
        c = open_with(o);
        want(c, (int)(cut % 20));
        rt_cache_close(c);
    }
}

/* Every allocation may fail; what was opened is closed, and the next call works. */
Test(cache, allocation_failures) {
    for (long i = 1; i < 40; i++) {
        rt_cache *c = NULL;
        rt_kernel *k = NULL;
        rt_cache_options o = options();
        fu_error_clear(&error);
        fu_malloc_fail_at(i);
        fusor_status s = rt_cache_open(&error, &o, &c);
        if (s == FUSOR_OK) s = get_text(c, "value 55", &k, NULL);
        fu_malloc_fail_at(0);
        cr_assert(s == FUSOR_OK || s == FUSOR_ERROR_MEMORY, "allocation %ld: %s", i, error.text);
        if (s == FUSOR_OK) cr_assert_eq(call(k), 55);
        if (c) cr_assert_eq(want(c, (int)i), RT_CACHE_COMPILED);
        rt_kernel_release(k);
        rt_cache_close(c);
        cr_assert_eq(rt_code_get_stats().kernels, 0);
        char command[300];
        snprintf(command, sizeof command, "rm -f %s/*", dir);
        cr_assert_eq(system(command), 0);
    }
}
