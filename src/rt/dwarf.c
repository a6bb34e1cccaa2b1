/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* dwarf.c: the ELF file in memory that GDB reads for a kernel: one text section that lies where the code is, one
 * function symbol, and where the kernel has a line table, DWARF 4 for it: a unit, its one subprogram, and the line
 * program. */
#include "base/small.h"
#include "rt/debugger_internal.h"
#include "base/arena.h"
#include "ir/codegen_api.h"
#include <elf.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 1, SYMTAB, STRTAB, SHSTRTAB, DEBUG_ABBREV, DEBUG_INFO, DEBUG_LINE, N_SECTIONS };
static const char section_names[] = "\0.text\0.symtab\0.strtab\0.shstrtab\0.debug_abbrev\0.debug_info\0.debug_line";
static const uint32_t name_at[N_SECTIONS] = {0, 1, 7, 15, 23, 33, 47, 59};

/* Writes where there is room and counts in any case: the first pass finds the size. */
typedef struct out {
    uint8_t *data;
    size_t n, room;
} out;
static void put(out *o, const void *p, size_t n) {
    if (o->n + n <= o->room) memcpy(o->data + o->n, p, n);
    o->n += n;
}
static void put_byte(out *o, unsigned v) { put(o, &(uint8_t){(uint8_t)v}, 1); }
static void put_u16(out *o, unsigned v) { put(o, &(uint16_t){(uint16_t)v}, 2); }
static void put_u32(out *o, size_t v) { put(o, &(uint32_t){(uint32_t)v}, 4); }
static void put_u64(out *o, uint64_t v) { put(o, &v, 8); }
static void put_text(out *o, const char *s) { put(o, s, strlen(s) + 1); }
static void put_leb(out *o, int64_t v, bool is_signed) {
    for (bool more = true; more;) {
        unsigned byte = (unsigned)(v & 0x7f);
        v = is_signed ? v >> 7 : (int64_t)((uint64_t)v >> 7);
        more = is_signed ? !((v == 0 && !(byte & 0x40)) || (v == -1 && byte & 0x40)) : v != 0;
        put_byte(o, byte | (more ? 0x80 : 0));
    }
}
/* A length that is known once what it counts is written. */
static size_t begin_length(out *o) { return put_u32(o, 0), o->n; }
static void end_length(out *o, size_t from) {
    uint32_t v = (uint32_t)(o->n - from);
    if (from <= o->room) memcpy(o->data + from - 4, &v, 4);
}

static void put_abbrev(out *o) {
    /* 1: compile_unit, has children: name, stmt_list, low_pc, high_pc. 2: subprogram: name, low_pc, high_pc,
     * external */
    static const uint8_t table[] = {1,    0x11, 1,    0x03, 0x08, 0x10, 0x17, 0x11, 0x01, 0x12, 0x07, 0, 0, 2,
                                    0x2e, 0,    0x03, 0x08, 0x11, 0x01, 0x12, 0x07, 0x3f, 0x19, 0,    0, 0};
    put(o, table, sizeof table);
}

static void put_info(out *o, const char *symbol, const void *code, size_t bytes, const char *file) {
    size_t unit = begin_length(o);
    put_u16(o, 4);
    put_u32(o, 0); /* abbreviations */
    put_byte(o, 8);
    put_byte(o, 1);
    put_text(o, file);
    put_u32(o, 0); /* line program */
    put_u64(o, (uint64_t)(uintptr_t)code);
    put_u64(o, bytes);
    put_byte(o, 2);
    put_text(o, symbol);
    put_u64(o, (uint64_t)(uintptr_t)code);
    put_u64(o, bytes);
    put_byte(o, 0);
    end_length(o, unit);
}

static void set_address(out *o, const void *at) {
    put_byte(o, 0);
    put_byte(o, 9);
    put_byte(o, 2);
    put_u64(o, (uint64_t)(uintptr_t)at);
}

static void end_sequence(out *o) { put(o, "\0\1\1", 3); }

static void put_line(out *o, const char *code, size_t bytes, const rt_code_debug *debug, const char *file) {
    static const uint8_t lengths[9] = {0, 1, 1, 1, 1, 0, 0, 0, 1};
    size_t unit = begin_length(o);
    put_u16(o, 4);
    size_t head = begin_length(o);
    put_byte(o, 1); /* smallest instruction */
    put_byte(o, 1);
    put_byte(o, 1); /* rows are statements */
    put_byte(o, (unsigned)-5);
    put_byte(o, 14);
    put_byte(o, 10); /* first special opcode; none is used */
    put(o, lengths, sizeof lengths);
    put_byte(o, 0); /* no directories */
    put_text(o, file);
    put(o, "\0\0\0", 3);
    put_byte(o, 0);
    end_length(o, head);
    size_t n = debug->lines_bytes / sizeof(fusor_codegen_line);
    int64_t line = 1;
    bool is_open = false;
    for (size_t i = 0; i < n; i++) {
        fusor_codegen_line row;
        memcpy(&row, (const char *)debug->lines + i * sizeof row, sizeof row);
        if (row.offset > bytes) break;
        if (!row.line && !is_open) continue;
        set_address(o, code + row.offset);
        is_open = row.line != 0;
        if (!is_open) {
            end_sequence(o);
            line = 1;
            continue;
        }
        put_byte(o, 3);
        put_leb(o, (int64_t)row.line - line, true);
        put_byte(o, 1);
        line = row.line;
    }
    if (is_open) {
        set_address(o, code + bytes);
        end_sequence(o);
    }
    end_length(o, unit);
}

static void put_file(out *o, const char *symbol, const void *code, size_t bytes, const rt_code_debug *debug,
                     const char *file) {
    bool has_lines = debug && debug->lines_bytes;
    unsigned n = has_lines ? N_SECTIONS : DEBUG_ABBREV;
    Elf64_Ehdr h = {.e_type = ET_EXEC,
                    .e_machine = EM_X86_64,
                    .e_version = EV_CURRENT,
                    .e_ehsize = sizeof h,
                    .e_shoff = sizeof h,
                    .e_shentsize = sizeof(Elf64_Shdr),
                    .e_shnum = (uint16_t)n,
                    .e_shstrndx = SHSTRTAB};
    memcpy(h.e_ident, ELFMAG, SELFMAG);
    h.e_ident[EI_CLASS] = ELFCLASS64;
    h.e_ident[EI_DATA] = ELFDATA2LSB;
    h.e_ident[EI_VERSION] = EV_CURRENT;
    put(o, &h, sizeof h);
    Elf64_Shdr section[N_SECTIONS] = {{0}};
    for (unsigned i = 1; i < n; i++)
        section[i] = (Elf64_Shdr){.sh_name = name_at[i], .sh_type = SHT_PROGBITS, .sh_addralign = 1};
    size_t table = o->n;
    put(o, section, n * sizeof *section);
    section[TEXT] = (Elf64_Shdr){.sh_name = name_at[TEXT],
                                 .sh_type = SHT_NOBITS,
                                 .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                                 .sh_addr = (Elf64_Addr)(uintptr_t)code,
                                 .sh_offset = o->n,
                                 .sh_size = bytes,
                                 .sh_addralign = 64};
    Elf64_Sym symbols[2] = {{0},
                            {.st_name = 1,
                             .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                             .st_shndx = TEXT,
                             .st_value = (Elf64_Addr)(uintptr_t)code,
                             .st_size = bytes}};
    section[SYMTAB].sh_type = SHT_SYMTAB;
    section[SYMTAB].sh_link = STRTAB;
    section[SYMTAB].sh_info = 1;
    section[SYMTAB].sh_entsize = sizeof *symbols;
    section[STRTAB].sh_type = section[SHSTRTAB].sh_type = SHT_STRTAB;
    for (unsigned i = SYMTAB; i < n; i++) {
        section[i].sh_offset = o->n;
        switch (i) {
        case SYMTAB: put(o, symbols, sizeof symbols); break;
        case STRTAB: put_byte(o, 0), put_text(o, symbol); break;
        case SHSTRTAB: put(o, section_names, sizeof section_names); break;
        case DEBUG_ABBREV: put_abbrev(o); break;
        case DEBUG_INFO: put_info(o, symbol, code, bytes, file); break;
        default: put_line(o, code, bytes, debug, file);
        }
        section[i].sh_size = o->n - section[i].sh_offset;
    }
    if (o->n <= o->room) memcpy(o->data + table, section, n * sizeof *section);
}

void *rt_dwarf_file(const char *symbol, const void *code, size_t bytes, const rt_code_debug *debug, const char *file,
                    size_t *bytes_out) {
    out size = {0};
    put_file(&size, symbol, code, bytes, debug, file);
    out o = {.data = fu_calloc(1, size.n), .room = size.n};
    if (!o.data) return NULL;
    put_file(&o, symbol, code, bytes, debug, file);
    *bytes_out = o.n;
    return o.data;
}
