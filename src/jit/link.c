/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* link.c: ELF64 relocatables -> flat blob. A kernel compiled as position-independent code for the small code model has
 * .text, .rodata* and PC-relative relocations between them only; everything else is refused by name: a symbol that no
 * object of the kernel defines would be a library call, a writable section state, another relocation an absolute
 * address, and none of them may be in a cached blob. */
#include "jit/link.h"
#include "jit/line_table.h"
#include <elf.h>
#include <string.h>

typedef struct object {
    const uint8_t *data;
    size_t bytes;
    Elf64_Ehdr header;
    Elf64_Shdr *section;        /* e_shnum */
    uint64_t *at;               /* offset in the blob; NOT_PLACED */
    const struct object *first; /* of the n_objects that are linked */
    int n_objects;
    fu_error *err;
} object;
#define NOT_PLACED UINT64_MAX

static bool in_file(const object *o, uint64_t offset, uint64_t bytes) {
    return offset <= o->bytes && bytes <= o->bytes - offset;
}

/* The string at `offset` of string table `table`; "?" where there is none. */
static const char *string_at(const object *o, uint32_t table, uint32_t offset) {
    if (table >= o->header.e_shnum || o->section[table].sh_type != SHT_STRTAB) return "?";
    const Elf64_Shdr *s = &o->section[table];
    if (!in_file(o, s->sh_offset, s->sh_size) || offset >= s->sh_size) return "?";
    const char *text = (const char *)o->data + s->sh_offset + offset;
    return memchr(text, 0, s->sh_size - offset) ? text : "?";
}

static const char *section_name(const object *o, uint32_t i) {
    return string_at(o, o->header.e_shstrndx, o->section[i].sh_name);
}

#define REFUSE(o, ...) FU_FAIL((o)->err, FUSOR_ERROR_INTERNAL, "kernel object: " __VA_ARGS__)

static fusor_status read_header(object *o, fu_arena *a) {
    Elf64_Ehdr *h = &o->header;
    if (o->bytes < sizeof *h) return REFUSE(o, "%zu bytes are too few for an ELF header", o->bytes);
    memcpy(h, o->data, sizeof *h);
    if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 || h->e_ident[EI_CLASS] != ELFCLASS64 ||
        h->e_ident[EI_DATA] != ELFDATA2LSB || h->e_type != ET_REL || h->e_machine != EM_X86_64)
        return REFUSE(o, "not an x86-64 ELF relocatable");
    if (h->e_shentsize != sizeof(Elf64_Shdr) || !in_file(o, h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr)))
        return REFUSE(o, "the section table (%u entries) lies outside the file", (unsigned)h->e_shnum);
    o->section = FU_NEW_N(a, Elf64_Shdr, h->e_shnum + 1u);
    o->at = FU_NEW_N(a, uint64_t, h->e_shnum + 1u);
    memcpy(o->section, o->data + h->e_shoff, (size_t)h->e_shnum * sizeof(Elf64_Shdr));
    for (uint32_t i = 0; i < h->e_shnum; i++) o->at[i] = NOT_PLACED;
    return FUSOR_OK;
}

/* Gives every section that is code (or, the second time, constants) its place behind *end. */
static fusor_status place(object *o, bool is_code, uint64_t *end) {
    for (uint32_t i = 0; i < o->header.e_shnum; i++) {
        const Elf64_Shdr *s = &o->section[i];
        if (!(s->sh_flags & SHF_ALLOC) || ((s->sh_flags & SHF_EXECINSTR) != 0) != is_code) continue;
        const char *name = section_name(o, i);
        if (s->sh_flags & (SHF_WRITE | SHF_TLS))
            return REFUSE(o, "section %s is writable; kernels have no state", name);
        if (s->sh_type != SHT_PROGBITS || (strncmp(name, ".text", 5) != 0 && strncmp(name, ".rodata", 7) != 0))
            return REFUSE(o, "section %s (type %u) is neither code nor constants", name, (unsigned)s->sh_type);
        if (!in_file(o, s->sh_offset, s->sh_size)) return REFUSE(o, "section %s lies outside the file", name);
        uint64_t align = s->sh_addralign ? s->sh_addralign : 1;
        if (align > JIT_BLOB_ALIGN || (align & (align - 1)) != 0)
            return REFUSE(o, "section %s is aligned to %llu; at most %d is possible", name, (unsigned long long)align,
                          JIT_BLOB_ALIGN);
        o->at[i] = (*end + align - 1) & ~(align - 1);
        if (s->sh_size > JIT_BLOB_MAX_BYTES - o->at[i]) return REFUSE(o, "more than %d bytes", JIT_BLOB_MAX_BYTES);
        *end = o->at[i] + s->sh_size;
    }
    return FUSOR_OK;
}

static void read_entry(const object *o, const Elf64_Shdr *table, uint64_t i, void *out, size_t size) {
    memcpy(out, o->data + table->sh_offset + i * size, size);
}

static bool is_table(const object *o, uint32_t i, uint32_t type, size_t entry) {
    return i < o->header.e_shnum && o->section[i].sh_type == type && o->section[i].sh_entsize == entry &&
           in_file(o, o->section[i].sh_offset, o->section[i].sh_size);
}

/* Relocation i of a table and its symbol; symbols: the table's own. */
static fusor_status read_relocation(const object *o, const Elf64_Shdr *table, uint64_t i, Elf64_Rela *r, Elf64_Sym *s,
                                    const Elf64_Shdr **symbols) {
    if (!is_table(o, table->sh_link, SHT_SYMTAB, sizeof *s)) return REFUSE(o, "relocations without symbols");
    *symbols = &o->section[table->sh_link];
    read_entry(o, table, i, r, sizeof *r);
    uint64_t number = ELF64_R_SYM(r->r_info);
    if (number >= (*symbols)->sh_size / sizeof *s)
        return REFUSE(o, "relocation %llu has no symbol", (unsigned long long)i);
    read_entry(o, *symbols, number, s, sizeof *s);
    return FUSOR_OK;
}

/* Where the function that an object defines under this name is in the blob; NOT_PLACED: it defines none. STT_FUNC only:
 * the STT_FILE symbol carries the module's name and may be equal to the function's. */
static fusor_status find_function(const object *o, const char *name, uint64_t *at) {
    *at = NOT_PLACED;
    for (uint32_t i = 0; i < o->header.e_shnum; i++) {
        const Elf64_Shdr *table = &o->section[i];
        if (table->sh_type != SHT_SYMTAB) continue;
        if (!is_table(o, i, SHT_SYMTAB, sizeof(Elf64_Sym))) return REFUSE(o, "the symbol table lies outside the file");
        for (uint64_t j = 0; j < table->sh_size / sizeof(Elf64_Sym); j++) {
            Elf64_Sym s;
            read_entry(o, table, j, &s, sizeof s);
            if (ELF64_ST_TYPE(s.st_info) != STT_FUNC || s.st_shndx == SHN_UNDEF ||
                strcmp(string_at(o, table->sh_link, s.st_name), name) != 0)
                continue;
            if (s.st_shndx >= o->header.e_shnum || o->at[s.st_shndx] == NOT_PLACED ||
                !(o->section[s.st_shndx].sh_flags & SHF_EXECINSTR) || s.st_value >= o->section[s.st_shndx].sh_size)
                return REFUSE(o, "function %s is not in a code section", name);
            *at = o->at[s.st_shndx] + s.st_value;
            return FUSOR_OK;
        }
    }
    return FUSOR_OK;
}

/* The same in all objects. */
static fusor_status find_anywhere(const object *o, const char *name, uint64_t *at) {
    *at = NOT_PLACED;
    for (int i = 0; i < o->n_objects && *at == NOT_PLACED; i++) FU_TRY(find_function(&o->first[i], name, at));
    return FUSOR_OK;
}

static fusor_status relocate(const object *o, const Elf64_Shdr *table, uint8_t *blob) {
    uint32_t target = table->sh_info;
    for (uint64_t i = 0; i < table->sh_size / sizeof(Elf64_Rela); i++) {
        Elf64_Rela r;
        Elf64_Sym s;
        const Elf64_Shdr *symbols;
        FU_TRY(read_relocation(o, table, i, &r, &s, &symbols));
        const char *name = string_at(o, symbols->sh_link, s.st_name);
        uint64_t to_at = NOT_PLACED;
        if (s.st_shndx == SHN_UNDEF) {
            FU_TRY(find_anywhere(o, name, &to_at));
            if (to_at == NOT_PLACED)
                return REFUSE(o, "undefined symbol %s; kernels call nothing outside themselves", name);
        }
        if (ELF64_R_TYPE(r.r_info) != R_X86_64_PC32 && ELF64_R_TYPE(r.r_info) != R_X86_64_PLT32)
            return REFUSE(o, "relocation of type %u against %s is not relative to the code",
                          (unsigned)ELF64_R_TYPE(r.r_info), name);
        if (to_at == NOT_PLACED) {
            if (s.st_shndx >= o->header.e_shnum || o->at[s.st_shndx] == NOT_PLACED)
                return REFUSE(o, "symbol %s is in section %u, which is neither code nor constants", name,
                              (unsigned)s.st_shndx);
            if (s.st_value > o->section[s.st_shndx].sh_size)
                return REFUSE(o, "symbol %s lies outside its section", name);
            to_at = o->at[s.st_shndx] + s.st_value;
        }
        uint64_t size = o->section[target].sh_size;
        if (size < 4 || r.r_offset > size - 4)
            return REFUSE(o, "relocation %llu against %s lies outside its section", (unsigned long long)i, name);
        uint64_t place_at = o->at[target] + r.r_offset;
        /* Unsigned, so that no hostile addend overflows; both places are below 2^26. */
        int64_t delta = (int64_t)(to_at + (uint64_t)r.r_addend - place_at);
        if (delta < INT32_MIN || delta > INT32_MAX) return REFUSE(o, "relocation against %s is out of range", name);
        int32_t value = (int32_t)delta;
        memcpy(blob + place_at, &value, sizeof value);
    }
    return FUSOR_OK;
}

/* Addresses in a debug section, as offsets in the blob; what else is relocated there is not read. */
static fusor_status relocate_debug(const object *o, const Elf64_Shdr *table, uint8_t *section, uint64_t bytes) {
    for (uint64_t i = 0; i < table->sh_size / sizeof(Elf64_Rela); i++) {
        Elf64_Rela r;
        Elf64_Sym s;
        const Elf64_Shdr *symbols;
        FU_TRY(read_relocation(o, table, i, &r, &s, &symbols));
        if (ELF64_R_TYPE(r.r_info) != R_X86_64_64) continue;
        if (bytes < 8 || r.r_offset > bytes - 8)
            return REFUSE(o, "relocation %llu of the line table lies outside", (unsigned long long)i);
        if (s.st_shndx >= o->header.e_shnum || o->at[s.st_shndx] == NOT_PLACED)
            return REFUSE(o, "the line table is of section %u, which is no code", (unsigned)s.st_shndx);
        uint64_t value = o->at[s.st_shndx] + s.st_value + (uint64_t)r.r_addend;
        memcpy(section + r.r_offset, &value, sizeof value);
    }
    return FUSOR_OK;
}

/* Adds an object's lines to those of the objects before it, whose code lies before its own. */
static fusor_status read_lines(const object *o, fu_arena *a, jit_blob *out) {
    for (uint32_t i = 0; i < o->header.e_shnum; i++) {
        const Elf64_Shdr *s = &o->section[i];
        if (s->sh_type != SHT_PROGBITS || strcmp(section_name(o, i), ".debug_line") != 0) continue;
        if (s->sh_flags & SHF_COMPRESSED || !in_file(o, s->sh_offset, s->sh_size))
            return REFUSE(o, "the line table lies outside the file");
        uint8_t *copy = fu_alloc(a, s->sh_size + 1);
        memcpy(copy, o->data + s->sh_offset, s->sh_size);
        for (uint32_t r = 0; r < o->header.e_shnum; r++)
            if (o->section[r].sh_info == i && is_table(o, r, SHT_RELA, sizeof(Elf64_Rela)))
                FU_TRY(relocate_debug(o, &o->section[r], copy, s->sh_size));
        fusor_codegen_line *own, *all;
        size_t n, before = out->n_lines;
        FU_TRY(jit_line_table(copy, s->sh_size, out->code_bytes, a, &own, &n, o->err));
        if (before && n && out->lines[before - 1].offset >= own[0].offset) before--; /* an end where this begins */
        all = FU_NEW_N(a, fusor_codegen_line, before + n + 1);
        if (before) memcpy(all, out->lines, before * sizeof *all);
        if (n) memcpy(all + before, own, n * sizeof *all);
        out->lines = all;
        out->n_lines = before + n;
        return FUSOR_OK;
    }
    return FUSOR_OK;
}

static fusor_status fill(const object *o, uint8_t *blob) {
    for (uint32_t i = 0; i < o->header.e_shnum; i++)
        if (o->at[i] != NOT_PLACED) memcpy(blob + o->at[i], o->data + o->section[i].sh_offset, o->section[i].sh_size);
    for (uint32_t i = 0; i < o->header.e_shnum; i++) {
        const Elf64_Shdr *s = &o->section[i];
        if ((s->sh_type != SHT_RELA && s->sh_type != SHT_REL) || s->sh_info >= o->header.e_shnum ||
            o->at[s->sh_info] == NOT_PLACED)
            continue; /* of debug sections */
        if (!is_table(o, i, SHT_RELA, sizeof(Elf64_Rela)))
            return REFUSE(o, "section %s is malformed", section_name(o, i));
        FU_TRY(relocate(o, s, blob));
    }
    return FUSOR_OK;
}

fusor_status jit_link(const jit_object *objects, int n, const char *symbol, fu_arena *a, jit_blob *out, fu_error *err) {
    object *o = FU_NEW_N(a, object, n);
    uint64_t code = 0, end;
    for (int i = 0; i < n; i++) {
        o[i] = (object){.data = objects[i].data, .bytes = objects[i].bytes, .first = o, .n_objects = n, .err = err};
        FU_TRY(read_header(&o[i], a));
        FU_TRY(place(&o[i], true, &code));
    }
    end = (code + JIT_BLOB_ALIGN - 1) & ~(uint64_t)(JIT_BLOB_ALIGN - 1);
    for (int i = 0; i < n; i++) FU_TRY(place(&o[i], false, &end));
    jit_blob blob = {.bytes = end, .code_bytes = code};
    FU_TRY(find_anywhere(o, symbol, &blob.entry));
    if (blob.entry == NOT_PLACED)
        return FU_FAIL(err, FUSOR_ERROR_INTERNAL, "kernel object: function %s is not in it", symbol);
    blob.data = fu_alloc(a, end ? end : 1);
    memset(blob.data, 0xcc, code); /* int3 between functions */
    for (int i = 0; i < n; i++) FU_TRY(fill(&o[i], blob.data));
    for (int i = 0; i < n; i++) FU_TRY(read_lines(&o[i], a, &blob));
    *out = blob;
    return FUSOR_OK;
}
