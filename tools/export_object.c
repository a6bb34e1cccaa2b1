/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* export_object.c: kernels as one ELF64 relocatable. A blob is position-independent and has its constants behind its
 * code, so all of them are the one section .text, and there is nothing to relocate. */
#include "export.h"
#include <elf.h>

enum { TEXT = 1, SYMTAB, STRTAB, SHSTRTAB, NOTE, N_SECTIONS, ALIGN = 64 };
static const char names[] = "\0.text\0.symtab\0.strtab\0.shstrtab\0.note.GNU-stack";

static void align(fu_str *s, size_t to, char with) {
    while (s->n % to) fu_str_addc(s, with);
}
static void add(fu_str *s, const void *p, size_t n) { fu_str_addn(s, p, n); }

void export_object(fu_str *out, const export_blob *blob, size_t n) {
    Elf64_Ehdr h = {.e_type = ET_REL,
                    .e_machine = EM_X86_64,
                    .e_version = EV_CURRENT,
                    .e_ehsize = sizeof h,
                    .e_shentsize = sizeof(Elf64_Shdr),
                    .e_shnum = N_SECTIONS,
                    .e_shstrndx = SHSTRTAB};
    Elf64_Shdr section[N_SECTIONS] = {
        {0},
        {.sh_name = 1, .sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC | SHF_EXECINSTR, .sh_addralign = ALIGN},
        {.sh_name = 7,
         .sh_type = SHT_SYMTAB,
         .sh_link = STRTAB,
         .sh_info = 1,
         .sh_addralign = 8,
         .sh_entsize = sizeof(Elf64_Sym)},
        {.sh_name = 15, .sh_type = SHT_STRTAB, .sh_addralign = 1},
        {.sh_name = 23, .sh_type = SHT_STRTAB, .sh_addralign = 1},
        {.sh_name = 33, .sh_type = SHT_PROGBITS, .sh_addralign = 1}};
    memcpy(h.e_ident, ELFMAG, SELFMAG);
    h.e_ident[EI_CLASS] = ELFCLASS64;
    h.e_ident[EI_DATA] = ELFDATA2LSB;
    h.e_ident[EI_VERSION] = EV_CURRENT;
    add(out, &h, sizeof h);
    align(out, ALIGN, 0);
    section[TEXT].sh_offset = out->n;
    fu_str symbols, text;
    fu_str_init(&symbols, out->arena);
    fu_str_init(&text, out->arena);
    fu_str_addc(&text, 0);
    add(&symbols, &(Elf64_Sym){0}, sizeof(Elf64_Sym));
    for (size_t i = 0; i < n; i++) {
        align(out, ALIGN, (char)0xcc);
        Elf64_Sym s = {.st_name = (Elf64_Word)text.n,
                       .st_info = ELF64_ST_INFO(STB_WEAK, STT_FUNC),
                       .st_shndx = TEXT,
                       .st_value = out->n - section[TEXT].sh_offset + blob[i].entry,
                       .st_size = blob[i].code_bytes - blob[i].entry};
        s.st_other = STV_HIDDEN;
        add(&symbols, &s, sizeof s);
        add(&text, blob[i].symbol, strlen(blob[i].symbol) + 1);
        add(out, blob[i].data, blob[i].bytes);
    }
    section[TEXT].sh_size = out->n - section[TEXT].sh_offset;
    align(out, 8, 0);
    section[SYMTAB].sh_offset = out->n;
    section[SYMTAB].sh_size = symbols.n;
    add(out, symbols.at, symbols.n);
    section[STRTAB].sh_offset = out->n;
    section[STRTAB].sh_size = text.n;
    add(out, text.at, text.n);
    section[SHSTRTAB].sh_offset = section[NOTE].sh_offset = out->n;
    section[SHSTRTAB].sh_size = sizeof names;
    add(out, names, sizeof names);
    align(out, 8, 0);
    h.e_shoff = out->n;
    add(out, section, sizeof section);
    memcpy(out->at, &h, sizeof h);
}
