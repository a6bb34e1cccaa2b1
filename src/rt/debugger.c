/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* debugger.c: what tools are told of a kernel that is loaded: the perf map and the GDB JIT interface; dwarf.c and
 * jitdump.c write the larger formats. */
#include "base/small.h"
#include "rt/debugger_internal.h"
#include "base/arena.h"
#include "base/env.h"
#include "rt/fork.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- perf ---- */
static int perf_fd = -1;
static pid_t perf_pid; /* whose map perf_fd is; a forked child begins its own */

/* /tmp is everybody's: the file is new, or it is ours, plain, and has no second name. */
static int open_perf_map(void) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 || errno != EEXIST) return fd;
    /* Another JIT compiler of this process may have made it. */
    fd = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void add_to_perf(const char *symbol, const void *code, size_t bytes) {
    if (perf_pid != getpid()) {
        if (perf_fd >= 0) close(perf_fd);
        perf_fd = open_perf_map();
        perf_pid = getpid();
    }
    if (perf_fd < 0) return;
    char line[256];
    int n = snprintf(line, sizeof line, "%lx %zx %.180s\n", (unsigned long)code, bytes, symbol);
    /* One write a line: perf may read while we run. */
    if (n > 0 && write(perf_fd, line, (size_t)n) != n) {
        close(perf_fd);
        perf_fd = -1;
    }
}

/* ---- GDB: https://sourceware.org/gdb/current/onlinedocs/gdb.html/JIT-Interface.html. Names and layout are fixed by
 * it. ---- */
struct jit_code_entry {
    struct jit_code_entry *next_entry, *prev_entry;
    const char *symfile_addr;
    uint64_t symfile_size;
};
struct jit_descriptor {
    uint32_t version, action_flag;
    struct jit_code_entry *relevant_entry, *first_entry;
};
enum { JIT_NOACTION, JIT_REGISTER, JIT_UNREGISTER };

/* Weak: LLVM has the same two where it is linked into the same program; either pair serves both. */
void __jit_debug_register_code(void);
extern struct jit_descriptor __jit_debug_descriptor;
__attribute__((weak, noinline)) void __jit_debug_register_code(void) { __asm__ volatile("" ::: "memory"); }
__attribute__((weak)) struct jit_descriptor __jit_debug_descriptor = {1, JIT_NOACTION, NULL, NULL};

typedef struct registration {
    struct jit_code_entry entry;
    void *file;
} registration;

static void *add_to_gdb(const char *symbol, const void *code, size_t bytes, const rt_code_debug *debug,
                        const char *path) {
    registration *r = fu_calloc(1, sizeof *r);
    size_t file_bytes = 0;
    if (r) r->file = rt_dwarf_file(symbol, code, bytes, debug, path, &file_bytes);
    if (!r || !r->file) {
        fu_free(r);
        return NULL;
    }
    r->entry.symfile_addr = r->file;
    r->entry.symfile_size = file_bytes;
    r->entry.next_entry = __jit_debug_descriptor.first_entry;
    if (r->entry.next_entry) r->entry.next_entry->prev_entry = &r->entry;
    __jit_debug_descriptor.first_entry = &r->entry;
    __jit_debug_descriptor.relevant_entry = &r->entry;
    __jit_debug_descriptor.action_flag = JIT_REGISTER;
    __jit_debug_register_code();
    return r;
}

/* ---- the texts that line tables point at ---- */
static char text_dir[PATH_MAX]; /* FUSOR_DUMP_DIR, else one that is made; "": not known yet */

/* Writes a description; path_out is "" where that fails (tools then show line numbers without text). */
static void write_text(const char *symbol, const rt_code_debug *debug, char *path_out, size_t room) {
    const char *dump = fu_env_string(FU_FUSOR_DUMP_DIR);
    path_out[0] = 0;
    if (!text_dir[0]) {
        if (*dump) {
            if (!realpath(dump, text_dir)) text_dir[0] = 0;
        } else {
            snprintf(text_dir, sizeof text_dir, "/tmp/fusor-%ld-XXXXXX", (long)getpid());
            if (!mkdtemp(text_dir)) text_dir[0] = 0;
        }
    }
    int n = text_dir[0] ? snprintf(path_out, room, "%s/%s.kernel", text_dir, symbol) : -1;
    if (n < 0 || (size_t)n >= room) {
        path_out[0] = 0;
        return;
    }
    /* The symbol ends in the key: a file that is there has this text. (Writing it again would wait for the disk.) */
    int fd = open(path_out, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST) return;
    if (fd < 0 || write(fd, debug->text, debug->text_bytes) != (ssize_t)debug->text_bytes) path_out[0] = 0;
    if (fd >= 0) close(fd);
}

static void watch_forks(void) {
    static rt_fork_hook hook;
    rt_fork_guard(&hook, &lock);
}

static bool perf_is(const char *word) { return strcmp(fu_env_string(FU_FUSOR_PERF), word) == 0; }

/* A debugger cannot write its breakpoints into memory that two mappings share, and perf looks into its map for
 * addresses of anonymous memory only. */
bool rt_debugger_wants_private_code(void) { return fu_env_bool(FU_FUSOR_GDB) || perf_is("map"); }

bool rt_debugger_wants_lines(void) { return fu_env_bool(FU_FUSOR_GDB) || perf_is("jitdump"); }

void *rt_debugger_add(const char *symbol, const void *code, size_t bytes, const rt_code_debug *debug) {
    bool has_map = perf_is("map"), has_dump = perf_is("jitdump"), has_gdb = fu_env_bool(FU_FUSOR_GDB);
    if (!has_map && !has_dump && !has_gdb) return NULL;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    char path[PATH_MAX] = "";
    pthread_mutex_lock(&lock);
    if ((has_dump || has_gdb) && debug && debug->lines_bytes) write_text(symbol, debug, path, sizeof path);
    const char *file = path[0] ? path : "kernel";
    if (has_map) add_to_perf(symbol, code, bytes);
    if (has_dump) rt_jitdump_add(symbol, code, bytes, debug, file);
    void *handle = has_gdb ? add_to_gdb(symbol, code, bytes, debug, file) : NULL;
    pthread_mutex_unlock(&lock);
    return handle;
}

void rt_debugger_remove(void *handle) {
    registration *r = handle;
    if (!r) return;
    pthread_mutex_lock(&lock);
    if (r->entry.prev_entry) r->entry.prev_entry->next_entry = r->entry.next_entry;
    else __jit_debug_descriptor.first_entry = r->entry.next_entry;
    if (r->entry.next_entry) r->entry.next_entry->prev_entry = r->entry.prev_entry;
    __jit_debug_descriptor.relevant_entry = &r->entry;
    __jit_debug_descriptor.action_flag = JIT_UNREGISTER;
    __jit_debug_register_code();
    pthread_mutex_unlock(&lock);
    fu_free(r->file);
    fu_free(r);
}
