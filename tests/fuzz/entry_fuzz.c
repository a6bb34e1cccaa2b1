/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* entry_fuzz.c: whatever the bytes of a cache entry, a bundle, a stats file or a kernel object, reading them stays
 * inside them, and what is taken is whole. The input's first byte chooses which of the four the rest is; with its high
 * bit set the checksum is made right first, or nearly every input would end there. With libFuzzer (FUSOR_LIBFUZZER)
 *     only the target; else entry_fuzz [COUNT [SEED]]
 * mutates made files COUNT times (default 200000). Inputs lie before a page that cannot be read, so that reading past
 * the end is seen without a sanitizer too. A failure prints the seed and aborts. */
#include "base/hash.h"
#include "jit/link.h"
#include "rt/cache_stats.h"
#include "rt/compiler.h"
#include "tests/fuzz/random.h"
#include <elf.h>
#include <unistd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ENTRY, BUNDLE, STATS, OBJECT, KINDS, ROOM = 1 << 16 };
static uint64_t case_seed, n_taken[KINDS];
static char *fence; /* the end of what may be read */

static void fail(const char *what) {
    fprintf(stderr, "entry_fuzz: %s (seed %llu)\n", what, (unsigned long long)case_seed);
    abort();
}

static uint64_t touch(const void *p, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((const uint8_t *)p)[i];
    return sum;
}
static volatile uint64_t sink;

/* A copy that ends at the fence, as nearly as the alignment allows. */
static char *place(const uint8_t *data, size_t size, size_t align) {
    if (!fence) {
        char *p = mmap(NULL, 2 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED || mprotect(p + ROOM, ROOM, PROT_NONE)) abort();
        fence = p + ROOM;
    }
    char *at = fence - (size + align - 1) / align * align;
    memcpy(at, data, size);
    return at;
}

static bool read_entry(const char *data, size_t size) {
    rt_entry e;
    const char *problem = rt_entry_decode(data, size, &e);
    if (problem) return false;
    const rt_entry_header *h = e.head;
    if (strlen(e.description) != h->description_bytes || strlen(h->symbol) >= IR_SYMBOL_MAX ||
        strlen(h->level) >= sizeof h->level)
        fail("a text without end");
    if (h->entry >= h->blob_bytes || h->code_bytes > h->blob_bytes) fail("an entry point outside the code");
    if ((const char *)e.blob + h->blob_bytes > data + size) fail("code outside the file");
    sink += touch(e.blob, (size_t)h->blob_bytes) + (e.lines ? touch(e.lines, (size_t)h->lines_bytes) : 0);
    if (case_seed % 64 == 0) { /* loading copies, whatever the code is */
        fu_error error;
        rt_code *code;
        rt_code_debug debug = {e.description, (size_t)h->description_bytes, e.lines, (size_t)h->lines_bytes};
        fu_error_clear(&error);
        if (rt_code_load(&error, e.blob, (size_t)h->blob_bytes, h->entry, h->symbol, &debug, &code) != FUSOR_OK)
            fail(error.text);
        if (memcmp((const char *)rt_code_entry(code) - h->entry, e.blob, (size_t)h->blob_bytes) != 0)
            fail("another code was loaded");
        rt_code_release(code);
    }
    return true;
}

static bool read_bundle(const char *data, size_t size) {
    rt_bundle b;
    if (rt_bundle_of_memory(data, size, &b)) return false;
    uint8_t key[IR_KEY_BYTES] = {1};
    for (uint64_t i = 0; i < b.n && i < 64; i++) {
        size_t bytes;
        void *entry = rt_bundle_at(&b, i, &bytes);
        if (entry) read_entry(entry, bytes);
        fu_free(entry);
        memcpy(key, b.slot[i].key, sizeof key);
        fu_free(rt_bundle_find(&b, key, &bytes));
    }
    rt_bundle_close(&b);
    return true;
}

static bool read_stats(const char *data, size_t size) {
    rt_stats_content s;
    bool ok = rt_stats_decode(data, size, &s);
    if (ok) {
        for (size_t i = 0; i < s.n; i++) sink += (uint64_t)s.use[i].hits;
        rt_stats_find(&s, (const uint8_t *)"0123456789abcdef");
    }
    rt_stats_free(&s);
    return ok;
}

static bool read_object(const char *data, size_t size) {
    fu_arena a;
    jmp_buf oom;
    fu_error error;
    jit_blob blob;
    fu_error_clear(&error);
    fu_arena_init(&a, &oom);
    if (setjmp(oom)) fail("out of memory");
    bool ok = jit_link(&(jit_object){data, size}, 1, "kernel", &a, &blob, &error) == FUSOR_OK;
    if (ok && (blob.entry >= blob.code_bytes || blob.code_bytes > blob.bytes)) fail("a function outside the code");
    if (ok) sink += touch(blob.data, blob.bytes);
    if (!ok && (error.status == FUSOR_OK || !error.text[0])) fail("refused without a reason");
    fu_arena_free(&a);
    return ok;
}

static void make_checksum_right(uint8_t *data, size_t size, int kind) {
    size_t at = kind == STATS ? 16 : offsetof(rt_entry_header, checksum);
    if (kind == BUNDLE || kind == OBJECT || size < at + 16) return;
    fu_hash128(data + at + 16, size - at - 16, data + at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t copy[ROOM];
    if (size < 1 || size > ROOM / 2) return 0;
    int kind = (data[0] & 0x7f) % KINDS;
    memcpy(copy, data + 1, size - 1);
    if (data[0] & 0x80) make_checksum_right(copy, size - 1, kind);
    char *at = place(copy, size - 1, kind == BUNDLE || kind == OBJECT ? 1 : 8);
    bool taken = kind == ENTRY    ? read_entry(at, size - 1)
                 : kind == BUNDLE ? read_bundle(at, size - 1)
                 : kind == STATS  ? read_stats(at, size - 1)
                                  : read_object(at, size - 1);
    n_taken[kind] += taken;
    return 0;
}

#ifndef FUSOR_LIBFUZZER
/* ---- made files ---- */
static size_t make_entry(uint8_t *out, int number) {
    static const char description[] = "fusor-kernel 1\nkind map\nlevel x86-64-v2\nend\n";
    uint8_t blob[200];
    fusor_codegen_line lines[3] = {{0, 1}, {5, 2}, {9, 0}};
    rt_entry_header h = {.entry = 64, .code_bytes = 128, .compile_ns = 1000, .created_s = 1};
    fu_part parts[RT_ENTRY_PARTS];
    size_t n = 0;
    memset(blob, 0xcc, sizeof blob);
    memset(h.key, number, sizeof h.key);
    snprintf(h.build_id, sizeof h.build_id, "%s", rt_build_id());
    strcpy(h.level, "x86-64-v2");
    strcpy(h.symbol, "fk_map_fuzz");
    if (!rt_entry_encode(&h, description, sizeof description - 1, blob, sizeof blob, lines,
                         number % 2 ? sizeof lines : 0, parts))
        abort();
    for (int i = 0; i < RT_ENTRY_PARTS; i++) {
        if (parts[i].bytes) memcpy(out + n, parts[i].data, parts[i].bytes);
        n += parts[i].bytes;
    }
    return n;
}

static size_t make_bundle(uint8_t *out) {
    enum { N = 3 };
    struct {
        char magic[8];
        uint32_t format, slot;
        uint64_t n;
        rt_bundle_slot slots[N];
    } head = {.format = RT_BUNDLE_FORMAT, .slot = sizeof(rt_bundle_slot), .n = N};
    memcpy(head.magic, RT_BUNDLE_MAGIC, 8);
    size_t at = (sizeof head + 63) / 64 * 64;
    for (int i = 0; i < N; i++) {
        memset(head.slots[i].key, i, IR_KEY_BYTES);
        head.slots[i].at = at;
        head.slots[i].bytes = make_entry(out + at, i);
        at += (head.slots[i].bytes + 63) / 64 * 64;
    }
    memcpy(out, &head, sizeof head);
    return at;
}

static size_t make_stats(uint8_t *out) {
    char dir[] = "/tmp/fusor-entry-fuzz-XXXXXX", why[256];
    rt_dir d;
    rt_stats_delta *delta = calloc(1, sizeof *delta);
    void *data;
    size_t n = 0;
    if (!delta || !mkdtemp(dir) || rt_dir_open(dir, true, &d, why, sizeof why)) abort();
    delta->counts.misses = 3;
    for (uint8_t i = 0; i < 5; i++) rt_stats_note_use(delta, (uint8_t[IR_KEY_BYTES]){i}, true, false);
    if (!rt_stats_add(&d, delta) || rt_dir_read(&d, RT_STATS_FILE, ROOM, &data, &n, NULL)) abort();
    memcpy(out, data, n);
    fu_free(data);
    free(delta);
    unlinkat(d.fd, RT_STATS_FILE, 0);
    rt_dir_close(&d);
    rmdir(dir);
    return n;
}

/* Code, constants, a relocation between them and two symbols. */
static size_t make_object(uint8_t *out) {
    static const char names[] = "\0.text\0.rodata\0.rela.text\0.symtab\0.strtab", symbols[] = "\0kernel\0table";
    struct {
        Elf64_Ehdr head;
        uint8_t text[64], rodata[64];
        Elf64_Rela rela[2];
        Elf64_Sym sym[3];
        char names[64], symbols[16];
        Elf64_Shdr section[7];
    } o;
    memset(&o, 0, sizeof o);
    memcpy(o.head.e_ident, ELFMAG, SELFMAG);
    o.head.e_ident[EI_CLASS] = ELFCLASS64;
    o.head.e_ident[EI_DATA] = ELFDATA2LSB;
    o.head.e_type = ET_REL;
    o.head.e_machine = EM_X86_64;
    o.head.e_shentsize = sizeof(Elf64_Shdr);
    o.head.e_shnum = 7;
    o.head.e_shstrndx = 6;
    o.head.e_shoff = (Elf64_Off)((char *)o.section - (char *)&o);
    memcpy(o.names, names, sizeof names);
    memcpy(o.symbols, symbols, sizeof symbols);
#define AT(field) (Elf64_Off)((char *)o.field - (char *)&o)
    o.section[1] = (Elf64_Shdr){.sh_name = 1,
                                .sh_type = SHT_PROGBITS,
                                .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                                .sh_offset = AT(text),
                                .sh_size = 64,
                                .sh_addralign = 64};
    o.section[2] = (Elf64_Shdr){.sh_name = 7,
                                .sh_type = SHT_PROGBITS,
                                .sh_flags = SHF_ALLOC,
                                .sh_offset = AT(rodata),
                                .sh_size = 64,
                                .sh_addralign = 32};
    o.section[3] = (Elf64_Shdr){.sh_name = 15,
                                .sh_type = SHT_RELA,
                                .sh_offset = AT(rela),
                                .sh_size = sizeof o.rela,
                                .sh_link = 4,
                                .sh_info = 1,
                                .sh_entsize = sizeof(Elf64_Rela)};
    o.section[4] = (Elf64_Shdr){.sh_name = 26,
                                .sh_type = SHT_SYMTAB,
                                .sh_offset = AT(sym),
                                .sh_size = sizeof o.sym,
                                .sh_link = 5,
                                .sh_entsize = sizeof(Elf64_Sym)};
    o.section[5] =
        (Elf64_Shdr){.sh_name = 34, .sh_type = SHT_STRTAB, .sh_offset = AT(symbols), .sh_size = sizeof o.symbols};
    o.section[6] =
        (Elf64_Shdr){.sh_name = 34, .sh_type = SHT_STRTAB, .sh_offset = AT(names), .sh_size = sizeof o.names};
#undef AT
    o.sym[1] = (Elf64_Sym){.st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = 1, .st_size = 64};
    o.sym[2] = (Elf64_Sym){.st_name = 8, .st_shndx = 2};
    o.rela[0] = (Elf64_Rela){.r_offset = 4, .r_info = ELF64_R_INFO(2, R_X86_64_PC32), .r_addend = -4};
    o.rela[1] = (Elf64_Rela){.r_offset = 40, .r_info = ELF64_R_INFO(1, R_X86_64_PLT32), .r_addend = -4};
    memcpy(out, &o, sizeof o);
    return sizeof o;
}

/* ---- mutations ---- */

static size_t mutate(uint8_t *data, size_t n) {
    static const uint64_t values[] = {0,
                                      1,
                                      2,
                                      7,
                                      63,
                                      64,
                                      65,
                                      255,
                                      4096,
                                      0x7fffffff,
                                      0x80000000,
                                      0xffffffff,
                                      0x7fffffffffffffff,
                                      UINT64_MAX,
                                      UINT64_MAX - 63,
                                      (uint64_t)64 << 20};
    size_t at = below(n);
    switch (below(8)) {
    case 0: return n ? 1 + below(n) : n; /* cut */
    case 1: data[at] ^= (uint8_t)(1 << below(8)); return n;
    case 2: data[at] = (uint8_t)next_random(); return n;
    case 3: { /* longer */
        size_t more = below(100);
        if (n + more > ROOM / 2 - 2) return n;
        for (size_t i = 0; i < more; i++) data[n + i] = (uint8_t)next_random();
        return n + more;
    }
    case 4: { /* one piece over another */
        size_t from = below(n), m = below(40);
        if (m > n - at) m = n - at;
        if (m > n - from) m = n - from;
        memmove(data + at, data + from, m);
        return n;
    }
    default: { /* a number that lengths and offsets meet */
        uint64_t v = below(3) ? values[below(sizeof values / sizeof *values)] : n + below(17) - 8;
        size_t bytes = below(2) ? 8 : 4;
        at = at / bytes * bytes;
        if (at + bytes <= n) memcpy(data + at, &v, bytes);
        return n;
    }
    }
}

int main(int argc, char **argv) {
    static uint8_t seeds[KINDS][ROOM / 2], data[ROOM];
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 200000,
             first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    size_t length[KINDS] = {make_entry(seeds[ENTRY], 1), make_bundle(seeds[BUNDLE]), make_stats(seeds[STATS]),
                            make_object(seeds[OBJECT])};
    case_seed = 0;
    for (uint8_t kind = 0; kind < KINDS; kind++) {
        data[0] = kind;
        memcpy(data + 1, seeds[kind], length[kind]);
        LLVMFuzzerTestOneInput(data, 1 + length[kind]);
        if (!n_taken[kind]) fail("a whole file is refused");
    }
    for (uint64_t i = 0; i < count; i++) {
        state = case_seed = first + i;
        size_t kind = below(KINDS), n = length[kind];
        data[0] = (uint8_t)(kind | (below(4) ? 0x80 : 0));
        memcpy(data + 1, seeds[kind], n);
        for (size_t rounds = 1 + below(4); rounds > 0 && n; rounds--) n = mutate(data + 1, n);
        LLVMFuzzerTestOneInput(data, 1 + n);
    }
    if (rt_code_get_stats().kernels != 0) fail("code stays loaded");
    printf("%llu inputs; taken: %llu entries, %llu bundles, %llu stats, %llu objects\n", (unsigned long long)count,
           (unsigned long long)n_taken[ENTRY], (unsigned long long)n_taken[BUNDLE], (unsigned long long)n_taken[STATS],
           (unsigned long long)n_taken[OBJECT]);
    return 0;
}
#endif
