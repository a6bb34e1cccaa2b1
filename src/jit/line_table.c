/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* line_table.c: runs the line number program of DWARF 4 and 5 (https://dwarfstd.org, section 6.2), of which rows of
 * address and line are kept. Every read is checked: the section is bytes from outside as far as this file is
 * concerned. */
#include "jit/line_table.h"
#include "base/vec.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    LNS_COPY = 1,
    LNS_ADVANCE_PC,
    LNS_ADVANCE_LINE,
    LNS_SET_FILE,
    LNS_SET_COLUMN,
    LNS_NEGATE_STMT,
    LNS_BASIC_BLOCK,
    LNS_CONST_ADD_PC,
    LNS_FIXED_ADVANCE_PC,
    LNS_PROLOGUE_END,
    LNS_EPILOGUE_BEGIN,
    LNS_SET_ISA,
    LNE_END_SEQUENCE = 1,
    LNE_SET_ADDRESS = 2,
    MAX_ROWS = 1 << 20
};

typedef struct cursor {
    const uint8_t *at, *end;
    bool failed;
} cursor;

static uint64_t fixed(cursor *c, size_t bytes) {
    uint64_t v = 0;
    if ((size_t)(c->end - c->at) < bytes) {
        c->failed = true;
        c->at = c->end;
        return 0;
    }
    memcpy(&v, c->at, bytes); /* little-endian */
    c->at += bytes;
    return v;
}

static uint64_t leb(cursor *c, bool is_signed) {
    uint64_t v = 0;
    int shift = 0;
    uint8_t byte;
    do {
        byte = (uint8_t)fixed(c, 1);
        if (shift < 64) v |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
    } while (byte & 0x80 && shift < 70);
    if (is_signed && byte & 0x40 && shift < 64) v |= UINT64_MAX << shift;
    return v;
}

typedef fu_vec(fusor_codegen_line) rows;
typedef struct machine {
    uint64_t address, line, code_bytes;
    fu_arena *arena;
    rows *out;
} machine;

static void add_row(machine *m, uint64_t line) {
    fusor_codegen_line row = {(uint32_t)m->address, line <= UINT32_MAX ? (uint32_t)line : 0};
    if (m->address <= m->code_bytes && m->out->n < MAX_ROWS) fu_push(m->arena, m->out, row);
}

/* One unit; false where it is malformed. */
static bool run_unit(cursor *section, machine *m) {
    uint64_t length = fixed(section, 4);
    if (section->failed || length >= 0xfffffff0 || length > (uint64_t)(section->end - section->at)) return false;
    cursor c = {section->at, section->at + length, false};
    section->at += length;
    uint64_t version = fixed(&c, 2);
    if (version < 2 || version > 5) return false;
    if (version >= 5) (void)fixed(&c, 2); /* sizes of addresses and of segments */
    uint64_t header_length = fixed(&c, 4);
    if (c.failed || header_length > (uint64_t)(c.end - c.at)) return false;
    const uint8_t *program = c.at + header_length;
    uint64_t step = fixed(&c, 1);
    if (version >= 4) (void)fixed(&c, 1); /* operations in one instruction: 1 */
    (void)fixed(&c, 1);                   /* is_stmt */
    int8_t line_base = (int8_t)fixed(&c, 1);
    uint64_t line_range = fixed(&c, 1), opcode_base = fixed(&c, 1);
    uint8_t operands[256] = {0};
    if (!line_range || !opcode_base) return false;
    for (uint64_t i = 1; i < opcode_base; i++) operands[i] = (uint8_t)fixed(&c, 1);
    if (c.failed || program < c.at) return false;
    c.at = program;
    m->address = 0;
    m->line = 1;
    while (c.at < c.end) {
        uint64_t op = fixed(&c, 1);
        if (op >= opcode_base) {
            op -= opcode_base;
            m->address += op / line_range * step;
            m->line += (uint64_t)(line_base + (int64_t)(op % line_range));
            add_row(m, m->line);
            continue;
        }
        switch (op) {
        case 0: {
            uint64_t n = leb(&c, false);
            if (c.failed || !n || n > (uint64_t)(c.end - c.at)) return false;
            const uint8_t *next = c.at + n;
            uint64_t extended = fixed(&c, 1);
            if (extended == LNE_END_SEQUENCE) {
                add_row(m, 0);
                m->address = 0;
                m->line = 1;
            } else if (extended == LNE_SET_ADDRESS && n == 9) {
                m->address = fixed(&c, 8);
            }
            c.at = next;
            break;
        }
        case LNS_COPY: add_row(m, m->line); break;
        case LNS_ADVANCE_PC: m->address += leb(&c, false) * step; break;
        case LNS_ADVANCE_LINE: m->line += leb(&c, true); break;
        case LNS_CONST_ADD_PC: m->address += (255 - opcode_base) / line_range * step; break;
        case LNS_FIXED_ADVANCE_PC: m->address += fixed(&c, 2); break;
        case LNS_SET_FILE:
        case LNS_SET_COLUMN:
        case LNS_SET_ISA: (void)leb(&c, false); break;
        case LNS_NEGATE_STMT:
        case LNS_BASIC_BLOCK:
        case LNS_PROLOGUE_END:
        case LNS_EPILOGUE_BEGIN: break;
        default:
            for (int i = 0; i < operands[op]; i++) (void)leb(&c, false);
        }
        if (c.failed) return false;
    }
    return true;
}

/* By offset; the end of a sequence before what begins there. */
static int by_offset(const void *pa, const void *pb) {
    const fusor_codegen_line *a = pa, *b = pb;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    return (a->line != 0) - (b->line != 0);
}

fusor_status jit_line_table(const void *section, size_t bytes, uint64_t code_bytes, fu_arena *a,
                            fusor_codegen_line **rows_out, size_t *n_out, fu_error *err) {
    rows all = {0};
    machine m = {.code_bytes = code_bytes, .arena = a, .out = &all};
    cursor c = {section, (const uint8_t *)section + bytes, false};
    while (c.at < c.end)
        if (!run_unit(&c, &m)) return FU_FAIL(err, FUSOR_ERROR_INTERNAL, "kernel object: its line table is malformed");
    if (all.n) qsort(all.at, all.n, sizeof *all.at, by_offset);
    size_t n = 0;
    for (uint32_t i = 0; i < all.n; i++) {
        fusor_codegen_line row = all.at[i];
        if (n && all.at[n - 1].offset == row.offset) n--; /* nothing lies between: the later row counts */
        if (n && all.at[n - 1].line == row.line) continue;
        if (row.offset < code_bytes || row.line == 0) all.at[n++] = row;
    }
    *rows_out = all.at;
    *n_out = n;
    return FUSOR_OK;
}
