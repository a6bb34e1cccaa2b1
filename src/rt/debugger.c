/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* debugger.c: the perf map and the GDB JIT interface. */
#include "rt/debugger.h"
#include "base/arena.h"
#include "base/env.h"
#include "rt/fork.h"
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- perf ---- */
static int perf_fd = -1;
static pid_t perf_pid;              /* whose map perf_fd is; a forked child begins its own */

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

/* The smallest file that GDB takes: one text section that lies where the code is, with one function symbol. */
typedef struct symbol_file {
    struct jit_code_entry entry;
    Elf64_Ehdr head;
    Elf64_Shdr section[5];
    Elf64_Sym  symbol[2];
    char names[40];                 /* section names */
    char text[160];                 /* symbol names */
} symbol_file;

static void fill(symbol_file *f, const char *symbol, const void *code, size_t bytes) {
    static const char names[] = "\0.text\0.symtab\0.strtab\0.shstrtab";
    memcpy(f->names, names, sizeof names);
    snprintf(f->text + 1, sizeof f->text - 1, "%s", symbol);
    const char *start = (const char *)&f->head;
#define OFFSET(field) ((Elf64_Off)((const char *)&f->field - start))
    memcpy(f->head.e_ident, ELFMAG, SELFMAG);
    f->head.e_ident[EI_CLASS] = ELFCLASS64;
    f->head.e_ident[EI_DATA] = ELFDATA2LSB;
    f->head.e_ident[EI_VERSION] = EV_CURRENT;
    f->head.e_type = ET_EXEC;
    f->head.e_machine = EM_X86_64;
    f->head.e_version = EV_CURRENT;
    f->head.e_ehsize = sizeof f->head;
    f->head.e_shoff = OFFSET(section);
    f->head.e_shentsize = sizeof f->section[0];
    f->head.e_shnum = 5;
    f->head.e_shstrndx = 4;
    f->section[1] = (Elf64_Shdr){.sh_name = 1, .sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                                 .sh_addr = (Elf64_Addr)code, .sh_size = bytes, .sh_addralign = 64};
    f->section[2] = (Elf64_Shdr){.sh_name = 7,
                                 .sh_type = SHT_SYMTAB,
                                 .sh_offset = OFFSET(symbol),
                                 .sh_size = sizeof f->symbol,
                                 .sh_link = 3,
                                 .sh_info = 1,
                                 .sh_addralign = 8,
                                 .sh_entsize = sizeof f->symbol[0]};
    f->section[3] = (Elf64_Shdr){
        .sh_name = 15, .sh_type = SHT_STRTAB, .sh_offset = OFFSET(text), .sh_size = sizeof f->text, .sh_addralign = 1};
    f->section[4] = (Elf64_Shdr){.sh_name = 23,
                                 .sh_type = SHT_STRTAB,
                                 .sh_offset = OFFSET(names),
                                 .sh_size = sizeof f->names,
                                 .sh_addralign = 1};
    f->symbol[1] = (Elf64_Sym){.st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = 1,
                               .st_value = (Elf64_Addr)code, .st_size = bytes};
#undef OFFSET
    f->entry.symfile_addr = start;
    f->entry.symfile_size = sizeof *f - offsetof(symbol_file, head);
}

static void *add_to_gdb(const char *symbol, const void *code, size_t bytes) {
    symbol_file *f = fu_calloc(1, sizeof *f);
    if (!f) return NULL;
    fill(f, symbol, code, bytes);
    f->entry.next_entry = __jit_debug_descriptor.first_entry;
    if (f->entry.next_entry) f->entry.next_entry->prev_entry = &f->entry;
    __jit_debug_descriptor.first_entry = &f->entry;
    __jit_debug_descriptor.relevant_entry = &f->entry;
    __jit_debug_descriptor.action_flag = JIT_REGISTER;
    __jit_debug_register_code();
    return f;
}

static void take_lock(void *user) { (void)user; pthread_mutex_lock(&lock); }
static void drop_lock(void *user) { (void)user; pthread_mutex_unlock(&lock); }
static void watch_forks(void) {
    static rt_fork_hook hook = {.prepare = take_lock, .parent = drop_lock, .child = drop_lock};
    rt_fork_add(&hook);
}

void *rt_debugger_add(const char *symbol, const void *code, size_t bytes, const rt_code_debug *debug) {
    (void)debug;
    bool has_perf = strcmp(fu_env_string(FU_FUSOR_PERF), "map") == 0, has_gdb = fu_env_bool(FU_FUSOR_GDB);
    if (!has_perf && !has_gdb) return NULL;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    if (has_perf) add_to_perf(symbol, code, bytes);
    void *handle = has_gdb ? add_to_gdb(symbol, code, bytes) : NULL;
    pthread_mutex_unlock(&lock);
    return handle;
}

void rt_debugger_remove(void *handle) {
    symbol_file *f = handle;
    if (!f) return;
    pthread_mutex_lock(&lock);
    if (f->entry.prev_entry) f->entry.prev_entry->next_entry = f->entry.next_entry;
    else __jit_debug_descriptor.first_entry = f->entry.next_entry;
    if (f->entry.next_entry) f->entry.next_entry->prev_entry = f->entry.prev_entry;
    __jit_debug_descriptor.relevant_entry = &f->entry;
    __jit_debug_descriptor.action_flag = JIT_UNREGISTER;
    __jit_debug_register_code();
    pthread_mutex_unlock(&lock);
    fu_free(f);
}
