/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* file_test.c: whole reads, private maps, atomic writes, directories. */
#include "base/file.h"
#include "base/arena.h"
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[256];
static void init(void) {
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/fusor-file-XXXXXX", tmp ? tmp : "/tmp");
    cr_assert_not_null(mkdtemp(dir));
}
TestSuite(file, .init = init);

#define PATH(name) path_of((char[512]){0}, name)
static const char *path_of(char *out, const char *name) {
    snprintf(out, 512, "%s/%s", dir, name);
    return out;
}

static int n_entries(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

Test(file, what_is_written_is_read) {
    fu_part parts[] = {{"head", 4}, {NULL, 0}, {"body\n", 5}};
    cr_assert_eq(fu_file_write_atomic(PATH("f"), 0600, parts, 3), 0);
    struct stat st;
    cr_assert_eq(stat(PATH("f"), &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0600);
    void *data;
    size_t n;
    cr_assert_eq(fu_file_read(PATH("f"), 9, &data, &n), 0);
    cr_assert_eq(n, 9);
    cr_assert_str_eq((char *)data, "headbody\n");
    fu_free(data);
    cr_assert_eq(fu_file_read(PATH("f"), 8, &data, &n), EFBIG);
    fu_part again = {"new", 3};
    cr_assert_eq(fu_file_write_atomic(PATH("f"), 0600, &again, 1), 0);
    cr_assert_eq(fu_file_read(PATH("f"), 100, &data, &n), 0);
    cr_assert_str_eq((char *)data, "new");
    fu_free(data);
    cr_assert_eq(n_entries(dir), 1, "no temporary file stays");
}

/* What a user names may be a link, a device or a pipe. */
Test(file, what_is_there_decides_how_it_is_written) {
    fu_part part = {"text", 4};
    char got[8] = "", real[4096];
    unsigned mode;
    struct stat st;
    cr_assert_eq(fu_file_write(PATH("f"), &part, 1), 0);
    cr_assert_eq(chmod(PATH("f"), 0640), 0);
    cr_assert_eq(symlink("f", PATH("link")), 0);
    part.bytes = 3;
    cr_assert_eq(fu_file_write(PATH("link"), &part, 1), 0);
    cr_assert(lstat(PATH("link"), &st) == 0 && S_ISLNK(st.st_mode), "a link stays");
    cr_assert(stat(PATH("f"), &st) == 0 && st.st_size == 3 && (st.st_mode & 0777) == 0640, "what it names is replaced");
    cr_assert_eq(n_entries(dir), 2);
    cr_assert(fu_file_resolve(PATH("link"), real, &mode) == 0 && strcmp(strrchr(real, '/'), "/f") == 0 && mode == 0640);
    cr_assert(fu_file_resolve(PATH("none"), real, &mode) == 0 && strcmp(strrchr(real, '/'), "/none") == 0 && mode == 0);
    cr_assert_eq(mkfifo(PATH("pipe"), 0600), 0);
    int fd = open(PATH("pipe"), O_RDWR);
    cr_assert_eq(fu_file_write(PATH("pipe"), &part, 1), 0);
    cr_assert(read(fd, got, sizeof got) == 3 && strcmp(got, "tex") == 0);
    cr_assert(lstat(PATH("pipe"), &st) == 0 && S_ISFIFO(st.st_mode), "a pipe stays");
    close(fd);
    cr_assert_eq(fu_file_resolve(PATH("pipe"), real, &mode), ESPIPE);
    cr_assert_eq(fu_file_write(dir, &part, 1), EISDIR);
}

/* Who waits for a reader of a pipe must not meet one that goes away at once. */
static void *open_writer(void *is_open) {
    int fd = open(PATH("pipe"), O_WRONLY);
    __atomic_store_n((int *)is_open, 1, __ATOMIC_SEQ_CST);
    close(fd);
    return NULL;
}
Test(file, a_pipe_is_not_opened_to_be_mapped) {
    pthread_t thread;
    fu_mapping m;
    int is_open = 0;
    cr_assert_eq(mkfifo(PATH("pipe"), 0600), 0);
    cr_assert_eq(pthread_create(&thread, NULL, open_writer, &is_open), 0);
    for (int i = 0; i < 50; i++) {
        cr_assert_eq(fu_file_map_private(PATH("pipe"), &m), ESPIPE);
        usleep(1000);
    }
    cr_assert_eq(__atomic_load_n(&is_open, __ATOMIC_SEQ_CST), 0);
    int fd = open(PATH("pipe"), O_RDONLY);
    pthread_join(thread, NULL);
    close(fd);
}

Test(file, read_errors) {
    void *data;
    size_t n;
    cr_assert_eq(fu_file_read(PATH("none"), 100, &data, &n), ENOENT);
    cr_assert_eq(fu_file_read(dir, 100, &data, &n), EISDIR);
    fu_part p = {"x", 1};
    cr_assert_eq(fu_file_write_atomic(PATH("f"), 0600, &p, 1), 0);
    fu_malloc_fail_at(1);
    cr_assert_eq(fu_file_read(PATH("f"), 100, &data, &n), ENOMEM);
    fu_malloc_fail_at(0);
}

Test(file, read_without_a_known_size) {
    void *data;
    size_t n;
    cr_assert_eq(fu_file_read("/proc/self/status", 1 << 20, &data, &n), 0);
    cr_assert_gt(n, 100);
    fu_free(data);
    /* Standard input as a pipe, larger than the first guess. */
    int fd[2];
    cr_assert_eq(pipe(fd), 0);
    char text[20000];
    memset(text, 'p', sizeof text);
    cr_assert_eq(write(fd[1], text, sizeof text), (ssize_t)sizeof text);
    close(fd[1]);
    dup2(fd[0], 0);
    cr_assert_eq(fu_file_read("-", 1 << 20, &data, &n), 0);
    cr_assert_eq(n, sizeof text);
    cr_assert_arr_eq(data, text, sizeof text);
    fu_free(data);
}

Test(file, private_map) {
    fu_part p = {"abcdef", 6};
    cr_assert_eq(fu_file_write_atomic(PATH("f"), 0600, &p, 1), 0);
    fu_mapping m;
    cr_assert_eq(fu_file_map_private(PATH("f"), &m), 0);
    cr_assert_eq(m.bytes, 6);
    cr_assert_arr_eq(m.data, "abcdef", 6);
    ((char *)m.data)[0] = 'X';
    void *data;
    size_t n;
    cr_assert_eq(fu_file_read(PATH("f"), 100, &data, &n), 0);
    cr_assert_str_eq((char *)data, "abcdef", "writes stay in this process");
    fu_free(data);
    fu_file_unmap(&m);
    cr_assert_null(m.data);
    fu_part empty = {NULL, 0};
    cr_assert_eq(fu_file_write_atomic(PATH("e"), 0600, &empty, 1), 0);
    cr_assert_eq(fu_file_map_private(PATH("e"), &m), 0);
    cr_assert_null(m.data);
    cr_assert_eq(m.bytes, 0);
    fu_file_unmap(&m);
    cr_assert_eq(fu_file_map_private(dir, &m), EISDIR);
    cr_assert_eq(fu_file_map_private(PATH("none"), &m), ENOENT);
    cr_assert_eq(mkfifo(PATH("pipe"), 0600), 0);
    cr_assert_eq(fu_file_map_private(PATH("pipe"), &m), ESPIPE, "and it does not wait for a writer");
}

Test(file, failed_writes_leave_nothing) {
    fu_part p = {"x", 1};
    cr_assert_eq(fu_file_write_atomic(PATH("none/f"), 0600, &p, 1), ENOENT);
    cr_assert_eq(mkdir(PATH("d"), 0700), 0);
    cr_assert_neq(fu_file_write_atomic(PATH("d"), 0600, &p, 1), 0, "a directory is in the way");
    cr_assert_eq(n_entries(dir), 1);
    int e = fu_file_write_atomic("/dev/full/x", 0600, &p, 1);
    cr_assert_eq(e, ENOTDIR);
}

static void *writer(void *letter) {
    char body[8192];
    memset(body, *(char *)letter, sizeof body);
    fu_part parts[] = {{body, 4096}, {body, 4096}};
    for (int i = 0; i < 50; i++) cr_assert_eq(fu_file_write_atomic(PATH("race"), 0600, parts, 2), 0);
    return NULL;
}

Test(file, readers_see_whole_files) {
    char letter[] = "abcd";
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, writer, &letter[i]);
    for (int i = 0; i < 100; i++) {
        void *data;
        size_t n;
        if (fu_file_read(PATH("race"), 1 << 20, &data, &n)) continue;
        cr_assert_eq(n, 8192);
        for (size_t k = 1; k < n; k++) cr_assert_eq(((char *)data)[k], ((char *)data)[0]);
        fu_free(data);
    }
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    cr_assert_eq(n_entries(dir), 1);
}

Test(file, make_dirs) {
    cr_assert_eq(fu_make_dirs(PATH("a/b//c/"), 0700), 0);
    struct stat st;
    cr_assert_eq(stat(PATH("a/b/c"), &st), 0);
    cr_assert(S_ISDIR(st.st_mode));
    cr_assert_eq(st.st_mode & 0777, 0700);
    cr_assert_eq(fu_make_dirs(PATH("a/b/c"), 0700), 0, "already there");
    fu_part p = {"x", 1};
    cr_assert_eq(fu_file_write_atomic(PATH("f"), 0600, &p, 1), 0);
    cr_assert_eq(fu_make_dirs(PATH("f/g"), 0700), ENOTDIR);
    cr_assert_eq(fu_make_dirs(PATH("f"), 0700), ENOTDIR);
    cr_assert_eq(fu_make_dirs("", 0700), ENOENT);
    cr_assert_eq(fu_make_dirs("/", 0700), 0);
}
