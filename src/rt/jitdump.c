/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* jitdump.c: the file that `perf inject --jit` reads (tools/perf/Documentation/jitdump-specification.txt of Linux):
 * code of each kernel and the lines of its description. Each record leaves with one write; on the first failure the
 * file is given up. */
#include "base/small.h"
#include "rt/debugger_internal.h"
#include "base/arena.h"
#include "base/env.h"
#include "base/log.h"
#include "ir/codegen_api.h"
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAGIC = 0x4A695444, DUMP_VERSION = 1, CODE_LOAD = 0, CODE_DEBUG_INFO = 2 };
typedef struct file_header {
    uint32_t magic, version, total_size, elf_mach, pad1, pid;
    uint64_t timestamp, flags;
} file_header;
typedef struct record {
    uint32_t id, total_size;
    uint64_t timestamp;
} record;
typedef struct code_load {
    record head;
    uint32_t pid, tid;
    uint64_t vma, code_addr, code_size, code_index;
} code_load;
typedef struct debug_info {
    record head;
    uint64_t code_addr, n;
} debug_info;
typedef struct debug_entry {
    uint64_t code_addr;
    uint32_t line, discriminator;
} debug_entry;

static int dump_fd = -1;
static pid_t dump_pid; /* whose file it is; a forked child begins its own */
static void *marker = MAP_FAILED;
static uint64_t n_loaded;

static void give_up(void) {
    if (dump_fd >= 0) close(dump_fd);
    dump_fd = -1;
}

/* In FUSOR_DUMP_DIR or /tmp. perf finds the file by the executable mapping of its first page that it recorded. */
static void open_dump(void) {
    char path[4096];
    const char *dir = fu_env_string(FU_FUSOR_DUMP_DIR);
    long page = sysconf(_SC_PAGESIZE);
    give_up();
    dump_pid = getpid();
    int n = snprintf(path, sizeof path, "%s/jit-%ld.dump", *dir ? dir : "/tmp", (long)dump_pid);
    if (n < 0 || (size_t)n >= sizeof path) return;
    dump_fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (dump_fd < 0) return;
    file_header h = {MAGIC, DUMP_VERSION, sizeof h, EM_X86_64, 0, (uint32_t)dump_pid, (uint64_t)fu_now_ns(), 0};
    if (write(dump_fd, &h, sizeof h) != sizeof h) return give_up();
    if (marker != MAP_FAILED) munmap(marker, (size_t)page);
    marker = mmap(NULL, (size_t)page, PROT_READ | PROT_EXEC, MAP_PRIVATE, dump_fd, 0);
}

static void write_lines(const rt_code_debug *debug, const void *code, const char *file) {
    size_t n = debug->lines_bytes / sizeof(fusor_codegen_line), name = strlen(file) + 1;
    size_t bytes = sizeof(debug_info) + n * (sizeof(debug_entry) + name);
    char *data = n ? fu_malloc(bytes) : NULL;
    if (!data) return;
    debug_info h = {{CODE_DEBUG_INFO, (uint32_t)bytes, (uint64_t)fu_now_ns()}, (uint64_t)(uintptr_t)code, n};
    memcpy(data, &h, sizeof h);
    char *at = data + sizeof h;
    for (size_t i = 0; i < n; i++) {
        fusor_codegen_line row;
        memcpy(&row, (const char *)debug->lines + i * sizeof row, sizeof row);
        debug_entry e = {(uint64_t)(uintptr_t)code + row.offset, row.line, 0};
        memcpy(at, &e, sizeof e);
        memcpy(at + sizeof e, file, name);
        at += sizeof e + name;
    }
    if (write(dump_fd, data, bytes) != (ssize_t)bytes) give_up();
    fu_free(data);
}

void rt_jitdump_add(const char *symbol, const void *code, size_t bytes, const rt_code_debug *debug, const char *file) {
    if (dump_pid != getpid()) open_dump();
    if (dump_fd < 0) return;
    if (debug && debug->lines_bytes) write_lines(debug, code, file);
    size_t name = strlen(symbol) + 1, all = sizeof(code_load) + name + bytes;
    char *data = dump_fd >= 0 ? fu_malloc(all) : NULL;
    if (!data) return;
    code_load h = {{CODE_LOAD, (uint32_t)all, (uint64_t)fu_now_ns()},
                   (uint32_t)getpid(),
                   (uint32_t)syscall(SYS_gettid),
                   (uint64_t)(uintptr_t)code,
                   (uint64_t)(uintptr_t)code,
                   bytes,
                   ++n_loaded};
    memcpy(data, &h, sizeof h);
    memcpy(data + sizeof h, symbol, name);
    memcpy(data + sizeof h + name, code, bytes);
    if (write(dump_fd, data, all) != (ssize_t)all) give_up();
    fu_free(data);
}
