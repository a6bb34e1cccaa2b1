/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_cache_test.c: kernels for a GPU in the cache, and the machine code that drivers make of them, in files beside
 * them. Code generation is a fake that gives back text with the description's value in it. */
#include "rt/cubin.h"
#include "base/hash.h"
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static fu_error error;
static int n_generated;
static const char *text_to_give; /* NULL: PTX of the value */
static char dir[128];
static const ir_target sm80 = {IR_LEVEL_SM80, 0};

static int fake(const fusor_codegen_request *q, fusor_codegen_result *r) {
    n_generated++;
    cr_assert_eq(q->options & FUSOR_CODEGEN_LINES, 0);
    char *text = q->allocate(q->user, 256);
    if (!text) return FUSOR_ERROR_MEMORY;
    snprintf(text, 256, ".version 7.0\n.target sm_80\n.visible .entry k() { ret; } // %s",
             strstr(q->description, "value"));
    if (text_to_give) snprintf(text, 256, "%s", text_to_give);
    r->data = text;
    r->bytes = strlen(text) + 1;
    r->code_bytes = strlen(text);
    return 0;
}

static void init(void) {
    strcpy(dir, "/tmp/fusor-gpu-cache-XXXXXX");
    cr_assert(mkdtemp(dir));
    unsetenv("FUSOR_CACHE");
    unsetenv("FUSOR_CACHE_PATH");
}
static void fini(void) {
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    cr_assert_eq(system(command), 0);
}
TestSuite(gpu_cache, .init = init, .fini = fini);

static rt_cache *open_cache(rt_cache_mode mode, const char *where, const char *path) {
    rt_cache *c = NULL;
    rt_cache_options o = {.dir = where, .path = path, .mode = mode, .generate = fake, .build_id = NULL};
    fu_error_clear(&error);
    cr_assert_eq(rt_cache_open(&error, &o, &c), FUSOR_OK);
    return c;
}

static fusor_status get(rt_cache *c, int value, ir_target target, rt_kernel **out, rt_cache_outcome *o) {
    char text[64];
    uint8_t key[IR_KEY_BYTES];
    int n = snprintf(text, sizeof text, "fusor-kernel 1\nvalue %d\nend\n", value);
    ir_kernel_key(text, (size_t)n, "test", key);
    fu_error_clear(&error);
    const rt_cache_request r = {text, (size_t)n, target, "fk_fake", key, 1};
    return rt_cache_get_text(c, &error, &r, out, o);
}

static rt_kernel *want(rt_cache *c, int value, rt_cache_source source) {
    rt_kernel *k = NULL;
    rt_cache_outcome o;
    char wanted[32];
    snprintf(wanted, sizeof wanted, "// value %d\n", value);
    cr_assert_eq(get(c, value, sm80, &k, &o), FUSOR_OK, "%s", error.text);
    cr_assert_eq(o.source, source);
    cr_assert(k->ptx && !k->fn && !k->code);
    cr_assert_eq(k->ptx_bytes, strlen(k->ptx));
    cr_assert(strstr(k->ptx, wanted), "%s", k->ptx);
    return k;
}

static int count(const char *suffix) {
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *i; (i = readdir(d)) != NULL;) {
        size_t a = strlen(i->d_name), b = strlen(suffix);
        n += a > b && strcmp(i->d_name + a - b, suffix) == 0;
    }
    closedir(d);
    return n;
}

Test(gpu_cache, text_in_memory_on_disk_and_in_a_bundle) {
    rt_cache *c = open_cache(RT_CACHE_RW, dir, "");
    rt_kernel_release(want(c, 5, RT_CACHE_COMPILED));
    rt_kernel *k = want(c, 5, RT_CACHE_MEMORY);
    rt_cache_close(c);
    cr_assert(strstr(k->ptx, "value 5")); /* outlives it */
    rt_kernel_release(k);
    c = open_cache(RT_CACHE_RW, dir, "");
    rt_kernel_release(want(c, 5, RT_CACHE_DISK));
    rt_cache_close(c);
    char bundle[200];
    int64_t n;
    snprintf(bundle, sizeof bundle, "%s/b.fbundle", dir);
    cr_assert_eq(rt_cache_export(&error, dir, bundle, &n), FUSOR_OK);
    cr_assert_eq(n, 1);
    c = open_cache(RT_CACHE_RW, "", bundle);
    k = want(c, 5, RT_CACHE_DISK);
    cr_assert_null(k->cubins); /* there is no directory */
    rt_kernel_release(k);
    rt_cache_close(c);
    cr_assert_eq(n_generated, 1);
}

/* No CPU has the features of a GPU's level: it is for another machine, or this one's device. */
Test(gpu_cache, no_feature_of_the_processor_is_asked_for) {
    rt_cache *c = open_cache(RT_CACHE_RW, dir, "");
    rt_kernel *k;
    for (int l = IR_LEVEL_COUNT; l < IR_LEVEL_END; l++) {
        cr_assert_eq(get(c, 10 + l, (ir_target){(ir_level)l, 0}, &k, NULL), FUSOR_OK, "%s", error.text);
        cr_assert(k->ptx);
        rt_kernel_release(k);
        cr_assert_eq(get(c, 100 + l, (ir_target){(ir_level)l, 0}, NULL, NULL), FUSOR_OK);
    }
    rt_cache_close(c);
    cr_assert_eq(count(".fk"), 2 * (IR_LEVEL_END - IR_LEVEL_COUNT));
}

static bool is_text_bad(void *user, const rt_cache_entry *e) {
    *(bool *)user = e->problem && strstr(e->problem, "no entry");
    return true;
}

Test(gpu_cache, what_is_no_text_is_refused) {
    rt_cache *c = open_cache(RT_CACHE_RW, dir, "");
    rt_kernel *k = NULL;
    text_to_give = "garbage";
    cr_assert_eq(get(c, 1, sm80, &k, NULL), FUSOR_ERROR_INTERNAL);
    cr_assert(strstr(error.text, "no entry"), "%s", error.text);
    cr_assert_eq(get(c, 1, sm80, NULL, NULL), FUSOR_OK); /* is written as it came ... */
    bool is_bad = false;
    cr_assert_eq(rt_cache_list(&error, dir, is_text_bad, &is_bad), FUSOR_OK);
    cr_assert(is_bad);
    text_to_give = NULL;
    rt_kernel_release(want(c, 1, RT_CACHE_COMPILED)); /* ... and not taken */
    cr_assert_eq(rt_cache_get_stats(c).bad_entries, 1);
    rt_cache_close(c);
}

/* ---- cubins ---- */
static const uint8_t key[IR_KEY_BYTES] = {0xab, 1, 2, 3};
static const char ptx[] = ".version 7.0 .entry";
static const rt_cubin_driver by = {90, 13000, "NVRM version: 580.1"};

static rt_cubins *open_cubins(bool reads, bool writes) {
    rt_dir d;
    char why[256];
    cr_assert_null(rt_dir_open(dir, true, &d, why, sizeof why));
    rt_cubins *c = rt_cubins_new(&d, 1 << 30, reads, writes);
    rt_dir_close(&d);
    cr_assert(c);
    return c;
}

static bool has(rt_cubins *c, const uint8_t *k, const char *text, rt_cubin_driver driver) {
    size_t bytes;
    char *data = rt_cubin_read(c, k, text, strlen(text), &driver, &bytes);
    bool found = data != NULL;
    if (found) cr_assert(bytes == 6 && memcmp(data, "machin", 6) == 0);
    fu_free(data);
    return found;
}

static void put(rt_cubins *c) { rt_cubin_write(c, key, ptx, strlen(ptx), &by, "machin", 6); }

static void only_file(char path[512]) {
    DIR *d = opendir(dir);
    path[0] = 0;
    for (struct dirent *i; (i = readdir(d)) != NULL;)
        if (rt_cubin_is_name(i->d_name)) snprintf(path, 512, "%s/%s", dir, i->d_name);
    closedir(d);
    cr_assert(path[0]);
}

Test(gpu_cache, a_cubin_serves_its_own_alone) {
    rt_cubins *c = open_cubins(true, true);
    cr_assert(!has(c, key, ptx, by));
    put(c);
    cr_assert(has(c, key, ptx, by));
    const uint8_t other_key[IR_KEY_BYTES] = {0xab, 1, 2, 4};
    rt_cubin_driver other = by;
    cr_assert(!has(c, other_key, ptx, by));
    other.cc = 80;
    cr_assert(!has(c, key, ptx, other));
    other = by;
    other.version = 12080;
    cr_assert(!has(c, key, ptx, other));
    other = by;
    strcpy(other.line, "NVRM version: 580.2");
    cr_assert(!has(c, key, ptx, other));
    cr_assert(has(c, key, ptx, by)); /* the others have other names */
    cr_assert(!has(c, key, ".version 7.1 .entry", by));
    cr_assert_eq(count(".fcubin"), 0); /* of other PTX: deleted */
    rt_cubins_release(c);
    cr_assert(!has(NULL, key, ptx, by));
    put(NULL);
}

Test(gpu_cache, modes_of_cubins) {
    rt_cubins *none = open_cubins(true, false), *refresh = open_cubins(false, true), *rw = open_cubins(true, true);
    put(none);
    cr_assert_eq(count(".fcubin"), 0);
    put(refresh);
    cr_assert(!has(refresh, key, ptx, by));
    cr_assert(has(none, key, ptx, by));
    cr_assert(!has(none, key, "other", by));
    cr_assert_eq(count(".fcubin"), 1); /* what only reads deletes nothing */
    rt_cubin_drop(rw, key, &by);
    cr_assert_eq(count(".fcubin"), 0);
    rt_cubins_release(none);
    rt_cubins_release(refresh);
    rt_cubins_release(rw);
}

/* Every length and every byte: a miss, never another answer; and the file goes. */
Test(gpu_cache, damaged_cubins_are_misses) {
    rt_cubins *c = open_cubins(true, true);
    char path[512];
    unsigned char good[1024], bad[1024];
    put(c);
    only_file(path);
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, good, sizeof good);
    close(fd);
    cr_assert(n > 100 && n < 1000);
    for (ssize_t at = 0; at < 2 * n; at++) {
        size_t bytes = at < n ? (size_t)at : (size_t)n;
        memcpy(bad, good, (size_t)n);
        if (at >= n) bad[at - n] ^= (unsigned char)(1 << at % 8);
        unlink(path);
        fd = open(path, O_WRONLY | O_CREAT, 0600);
        cr_assert_eq(write(fd, bad, bytes), (ssize_t)bytes);
        close(fd);
        cr_assert(!has(c, key, ptx, by), "byte %zd", at);
        cr_assert_neq(access(path, F_OK), 0, "byte %zd", at);
    }
    put(c);
    cr_assert(has(c, key, ptx, by));
    cr_assert_eq(chmod(path, 0666), 0); /* anybody could have written it */
    cr_assert(!has(c, key, ptx, by));
    cr_assert_eq(symlink("/etc/passwd", path), 0);
    cr_assert(!has(c, key, ptx, by));
    rt_cubins_release(c);
}

static bool count_visit(void *user, const rt_cache_cubin *c) {
    int *n = user;
    n[c->problem != NULL]++;
    if (!c->problem) cr_assert(c->cc == 90 && c->driver_version == 13000 && strcmp(c->driver, by.line) == 0);
    return true;
}
static bool count_entries(void *user, const rt_cache_entry *e) {
    cr_assert_null(e->problem);
    return ++*(int *)user > 0;
}

Test(gpu_cache, listed_evicted_and_cleared) {
    rt_cache *c = open_cache(RT_CACHE_RW, dir, "");
    rt_kernel *k = want(c, 1, RT_CACHE_COMPILED), *other = want(c, 2, RT_CACHE_COMPILED);
    rt_cubin_write(k->cubins, k->key, k->ptx, k->ptx_bytes, &by, "machin", 6);
    rt_cubin_write(other->cubins, other->key, other->ptx, other->ptx_bytes, &by, "machin", 6);
    cr_assert_eq(count(".fcubin"), 2);
    int n[2] = {0}, n_entries = 0;
    cr_assert_eq(rt_cache_list_cubins(&error, dir, count_visit, n), FUSOR_OK);
    cr_assert(n[0] == 2 && n[1] == 0);
    cr_assert_eq(rt_cache_list(&error, dir, count_entries, &n_entries), FUSOR_OK);
    cr_assert_eq(n_entries, 2); /* and none of them is bad */
    /* The older entry leaves, and its cubin with it. */
    char hex[33], path[512];
    rt_key_text(k->key, hex);
    snprintf(path, sizeof path, "%s/%s.fk", dir, hex);
    struct timespec old[2] = {{time(NULL) - 5000, 0}, {time(NULL) - 5000, 0}};
    cr_assert_eq(utimensat(AT_FDCWD, path, old, 0), 0);
    int64_t gone, bytes;
    cr_assert_eq(rt_cache_prune(&error, dir, UINT64_MAX, 3000, true, &gone, &bytes), FUSOR_OK);
    cr_assert_eq(gone, 1);
    cr_assert_eq(count(".fcubin"), 2);
    int64_t would = bytes;
    cr_assert_eq(rt_cache_prune(&error, dir, UINT64_MAX, 3000, false, &gone, &bytes), FUSOR_OK);
    cr_assert(gone == 1 && bytes == would);
    cr_assert(count(".fcubin") == 1 && count(".fk") == 1);
    size_t got;
    char *data = rt_cubin_read(other->cubins, other->key, other->ptx, other->ptx_bytes, &by, &got);
    cr_assert(data);
    fu_free(data);
    cr_assert_eq(rt_cache_clear(&error, dir, &gone), FUSOR_OK);
    cr_assert_eq(gone, 1);
    cr_assert(count(".fcubin") == 0 && count(".fk") == 0);
    rt_kernel_release(k);
    rt_kernel_release(other);
    rt_cache_close(c);
}
