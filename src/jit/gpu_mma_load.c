/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_mma_load.c: pieces of the operands of a contraction into shared memory.
 *
 * Where an operand lies in memory as it is, 16 bytes aligned (the launch says so), copies are asynchronous, 16 bytes a
 * thread, threads side by side along a line; what is outside the matrix is filled with zeros by the copy. Element-wise
 * producers of what lies so are computed 16 bytes at a time by the same threads. Operand 1 of a convolution is
 * gathered: a thread has one column, and reads the elements of some chunks of 16 bytes along k from where a table says
 * that these products are from there on. What is contiguous, but not aligned, is read by elements in the same chunks.
 * Else each thread computes single elements (any strides). All are visible after the next barrier but one, or where a
 * stage is "full" (gpu_wgmma_roles.c). */
#include "jit/gpu_mma.h"

enum { SEGMENT = 128, EIGHT = 8 };

LLVMValueRef mma_permutation(mma *m, const mma_operand *p, LLVMValueRef line) {
    int chunks = (p->segment ? SEGMENT : p->line_bytes) / 16;
    /* fragments of 4 lines, two chunks of each */
    if (p->is_turned && p->bytes == 4)
        return em_shl(m->e, chunks >= 8 ? mma_bits(m, line, 0, 2) : mma_bits(m, line, 1, 1), 1);
    int log = chunks >= 8 ? 3 : chunks == 4 ? 2 : chunks == 2 ? 1 : 0;
    return mma_bits(m, line, 3 - log, log);
}

/* Offset in a piece of byte `byte` of a line (both i32). */
static LLVMValueRef place(mma *m, const mma_operand *p, LLVMValueRef line, LLVMValueRef byte) {
    emit *e = m->e;
    int line_bytes = p->segment ? SEGMENT : p->line_bytes;
    LLVMValueRef x = em_shl(e, mma_permutation(m, p, line), 4), at = em_mul(e, line, em_i32(e, line_bytes));
    if (p->segment) {
        at = em_add(e, at, em_mul(e, em_lshr(e, byte, 7), em_i32(e, p->segment)));
        byte = em_and(e, byte, em_i32(e, SEGMENT - 1));
    }
    return em_add(e, at, em_xor(e, byte, x));
}

void mma_lay_out(mma *m, bool is_wgmma) {
    int at = 0;
    for (int o = 0; o < 2; o++) {
        mma_operand *p = &m->operand[o];
        p->rows = o ? m->t->columns : m->t->rows;
        p->k = m->t->k_bytes / p->bytes;
        p->lines = p->is_turned ? p->k : p->rows;
        p->line_bytes = (p->is_turned ? p->rows : p->k) * p->bytes;
        p->at = at;
        p->segment = is_wgmma && p->line_bytes > SEGMENT ? p->lines * SEGMENT : 0;
        at += p->lines * p->line_bytes;
    }
    m->stage_bytes = at;
}

/* Bytes of so many elements (i32), of 16. */
static LLVMValueRef bytes_of(mma *m, LLVMValueRef n, int bytes) {
    emit *e = m->e;
    LLVMValueRef none = em_i32(e, 0), most = em_i32(e, 16 / bytes);
    n = em_max(e, n, none);
    n = em_min(e, n, most);
    return em_mul(e, n, em_i32(e, bytes));
}

/* Bytes of the 16 from element `at` on that are before `end` (i64). */
static LLVMValueRef bytes_before(mma *m, LLVMValueRef at, LLVMValueRef end, int bytes) {
    emit *e = m->e;
    LLVMValueRef n = em_sub(e, end, at), zero = mma_num(m, 0), most = mma_num(m, 16 / bytes);
    n = em_max(e, n, zero);
    n = em_min(e, n, most);
    return em_mul(e, mma_i32(m, n), em_i32(e, bytes));
}

/* ---- gathers ---- */
/* All tiles have threads for a column each, or for several times as many. The last column is read in the place of those
 * outside, whose products nobody stores. */
static void begin_gather(mma *m, mma_operand *p) {
    emit *e = m->e;
    const int columns_log = __builtin_ctz((unsigned)p->rows), buffer = m->k->inst[p->inst].index;
    LLVMValueRef line = mma_bits(m, m->thread, 0, columns_log), column = em_add(e, m->n0, mma_i64(m, line));
    LLVMValueRef last = em_sub(e, m->s.size[IR_GPU_COLUMNS], mma_num(m, 1));
    column = em_min(e, column, last);
    p->chunk = em_lshr(e, m->thread, columns_log);
    p->passes = p->rows * p->line_bytes / 16 / m->n_threads;
    p->line = line;
    LLVMValueRef off = em_add(e, m->batch_off[buffer], gpu_space_offset(e, &m->s, IR_GPU_COLUMNS, buffer, column));
    p->can = em_gep(e, e->base[buffer], em_memory_type(e, m->k->inst[p->inst].dtype), off);
}

/* Bytes of the half of the table that has the piece from k on; i32. */
static LLVMValueRef table_of(mma *m, const mma_operand *p, LLVMValueRef k) {
    emit *e = m->e;
    LLVMValueRef half = mma_i32(m, em_and(e, k, mma_num(m, p->k)));
    return mma_add(m, em_shl(e, half, 2), m->stage_bytes * m->t->stages);
}

void mma_fill_table(mma *m, LLVMValueRef k) {
    emit *e = m->e;
    const mma_operand *p = &m->operand[1];
    const int buffer = m->k->inst[p->inst].index;
    em_branch few = em_if(e, em_icmp(e, LLVMIntULT, m->thread, em_i32(e, p->k)));
    LLVMValueRef product = em_add(e, k, mma_i64(m, m->thread));
    product = em_select(e, em_icmp(e, LLVMIntSLT, product, m->k_end), product, mma_num(m, 0));
    LLVMValueRef off = mma_i32(m, gpu_space_offset(e, &m->s, IR_GPU_PRODUCTS, buffer, product));
    LLVMValueRef to = mma_at(m, em_add(e, table_of(m, p, k), em_shl(e, m->thread, 2)));
    LLVMSetAlignment(LLVMBuildStore(e->b, off, to), 4);
    em_endif(e, &few);
}

/* The elements of a chunk that are products before k_end; the others 0. */
static LLVMValueRef before_end(mma *m, const mma_operand *p, LLVMValueRef chunk, LLVMValueRef k) {
    emit *e = m->e;
    LLVMTypeRef type = LLVMTypeOf(chunk);
    em_branch tail = em_if(e, em_icmp(e, LLVMIntSGT, em_add(e, k, mma_num(m, p->lanes)), m->k_end));
    LLVMValueRef left = mma_i32(m, em_sub(e, m->k_end, k)), part = LLVMGetPoison(type);
    for (int i = 0; i < p->lanes; i++) {
        LLVMValueRef at = em_i32(e, i), one = LLVMBuildExtractElement(e->b, chunk, at, "");
        one = em_select(e, em_icmp(e, LLVMIntSGT, left, at), one, LLVMConstNull(LLVMTypeOf(one)));
        part = LLVMBuildInsertElement(e->b, part, one, at, "");
    }
    LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b);
    em_endif(e, &tail);
    LLVMValueRef phi = LLVMBuildPhi(e->b, type, "");
    LLVMAddIncoming(phi, (LLVMValueRef[]){part, chunk}, (LLVMBasicBlockRef[]){from, tail.other}, 2);
    return phi;
}

static LLVMValueRef chunk_of_pass(mma *m, const mma_operand *p, int pass) {
    return mma_add(m, p->chunk, pass * (m->n_threads / p->rows));
}

static LLVMTypeRef chunk_type(mma *m, const mma_operand *p) {
    return LLVMVectorType(LLVMIntTypeInContext(m->e->ctx, (unsigned)(8 * p->bytes)), (unsigned)p->lanes);
}

static LLVMValueRef read_chunk(mma *m, const mma_operand *p, LLVMValueRef table, int pass) {
    enum { TABLE_LANES = 4 };
    emit *e = m->e;
    LLVMTypeRef memory = em_memory_type(e, m->k->inst[p->inst].dtype), type = chunk_type(m, p);
    LLVMValueRef number = em_mul(e, chunk_of_pass(m, p, pass), em_i32(e, p->lanes)), off = NULL;
    LLVMValueRef at = em_add(e, table, em_shl(e, number, 2)), out = LLVMGetPoison(type);
    for (int l = 0; l < p->lanes; l++) {
        if (l % TABLE_LANES == 0) {
            off = LLVMBuildLoad2(e->b, LLVMVectorType(e->t_i32, TABLE_LANES), mma_at(m, mma_add(m, at, 4 * l)), "");
            LLVMSetAlignment(off, 16);
        }
        LLVMValueRef one = LLVMBuildExtractElement(e->b, off, em_i32(e, l % TABLE_LANES), "");
        one = em_gep(e, p->can, memory, LLVMBuildSExt(e->b, one, e->t_i64, ""));
        one = LLVMBuildLoad2(e->b, LLVMGetElementType(type), one, "");
        LLVMSetAlignment(one, (unsigned)p->bytes);
        out = LLVMBuildInsertElement(e->b, out, one, em_i32(e, l), "");
    }
    return out;
}

static void put_chunk(mma *m, const mma_operand *p, LLVMValueRef stage, LLVMValueRef k, int pass, LLVMValueRef v) {
    emit *e = m->e;
    LLVMValueRef chunk = chunk_of_pass(m, p, pass);
    LLVMValueRef at_k = em_add(e, k, mma_i64(m, em_mul(e, chunk, em_i32(e, p->lanes))));
    LLVMValueRef to = em_add(e, stage, mma_add(m, place(m, p, p->line, em_shl(e, chunk, 4)), p->at));
    LLVMSetAlignment(LLVMBuildStore(e->b, before_end(m, p, v, at_k), mma_at(m, to)), 16);
}

/* Registers are few: of more than so many passes nothing waits in them. */
static bool has_room(const mma_operand *p) { return p->passes <= 2; }

/* Pieces beyond the last one are not multiplied, and not read: the table has no products for them. */
void mma_gather(mma *m, LLVMValueRef stage, LLVMValueRef k) {
    emit *e = m->e;
    mma_operand *p = &m->operand[1];
    if (!p->is_gathered) return;
    LLVMTypeRef type = chunk_type(m, p);
    p->is_inside = em_icmp(e, LLVMIntSLT, k, m->k_end);
    em_branch b = em_if(e, p->is_inside);
    for (int i = 0; i < p->passes; i++) p->read[i] = read_chunk(m, p, table_of(m, p, k), i);
    for (int i = 0; i < p->passes && !has_room(p); i++) put_chunk(m, p, stage, k, i, p->read[i]);
    LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b);
    em_endif(e, &b);
    for (int i = 0; i < p->passes && has_room(p); i++) {
        LLVMValueRef phi = LLVMBuildPhi(e->b, type, "");
        LLVMAddIncoming(phi, (LLVMValueRef[]){p->read[i], LLVMGetPoison(type)}, (LLVMBasicBlockRef[]){from, b.other},
                        2);
        p->read[i] = phi;
    }
}

void mma_put_gathered(mma *m, LLVMValueRef stage, LLVMValueRef k) {
    emit *e = m->e;
    const mma_operand *p = &m->operand[1];
    if (!p->is_gathered) return;
    if (has_room(p)) {
        em_branch b = em_if(e, p->is_inside);
        for (int i = 0; i < p->passes; i++) put_chunk(m, p, stage, k, i, p->read[i]);
        em_endif(e, &b);
    }
    mma_fill_table(m, em_add(e, k, mma_num(m, p->k)));
}

/* ---- copies ---- */
void mma_begin_copies(mma *m, int operand) {
    emit *e = m->e;
    mma_operand *p = &m->operand[operand];
    p->can = p->first = NULL;
    if (p->is_gathered) {
        begin_gather(m, p);
        return;
    }
    if (p->buffer < 0 && !p->has_vectors) return;
    int chunks = p->line_bytes / 16;
    /* the permutation of all passes is that of the first: whole eights of lines */
    p->columns = p->segment && chunks > m->n_threads / EIGHT ? chunks * EIGHT / m->n_threads : 1;
    chunks /= p->columns;
    p->lines_of_pass = m->n_threads / chunks;
    p->passes = p->lines / p->lines_of_pass;
    int log = __builtin_ctz((unsigned)chunks);
    LLVMValueRef chunk = mma_bits(m, m->thread, 0, log), line = em_lshr(e, m->thread, log);
    LLVMValueRef element = em_mul(e, mma_i64(m, chunk), mma_num(m, 16 / p->bytes)), line64 = mma_i64(m, line);
    LLVMValueRef row0 = operand ? m->n0 : m->m0, rows = m->s.size[operand ? IR_GPU_COLUMNS : IR_GPU_ROWS];
    LLVMValueRef row = em_add(e, row0, p->is_turned ? element : line64);
    p->can = em_icmp(e, LLVMIntNE, em_and(e, m->flags, mma_num(m, IR_GPU_MMA_COPY << operand)), mma_num(m, 0));
    p->to = mma_add(m, place(m, p, line, em_shl(e, chunk, 4)), p->at);
    p->k_of_thread = p->is_turned ? line64 : element;
    p->line = line64;
    p->element = element;
    if (p->buffer < 0) return;
    const LLVMValueRef *stride = e->stride[p->buffer];
    LLVMValueRef k = em_add(e, m->k_begin, p->k_of_thread), bytes = mma_num(m, p->bytes);
    LLVMValueRef off = em_add(e, m->batch_off[p->buffer], em_mul(e, row, stride[p->row_dim]));
    off = em_add(e, off, em_mul(e, k, stride[m->dim[IR_GPU_PRODUCTS]]));
    p->first = em_gep(e, e->base[p->buffer], e->t_i8, em_mul(e, off, bytes));
    p->step = em_mul(e, stride[m->dim[IR_GPU_PRODUCTS]], mma_num(m, m->t->k_bytes));
    p->has_all_rows = em_icmp(e, LLVMIntSLE, em_add(e, row0, mma_num(m, p->rows)), rows);
    p->pass_step = em_mul(e, p->is_turned ? stride[m->dim[IR_GPU_PRODUCTS]] : stride[p->row_dim],
                          mma_num(m, p->lines_of_pass * p->bytes));
    LLVMValueRef left = em_sub(e, rows, row), most = mma_num(m, p->rows), none = mma_num(m, 0);
    left = em_min(e, left, most);
    p->rows_left = mma_i32(m, em_max(e, left, none));
}

/* The copies of a pass; to: where that of the first goes. bytes[]: how many of the 16 are in the matrix; NULL: all.
 * Returns where the next pass begins. */
static LLVMValueRef copy_pass(mma *m, const mma_operand *p, LLVMValueRef to, int pass, LLVMValueRef from,
                              LLVMValueRef *bytes) {
    emit *e = m->e;
    const int line = pass * p->lines_of_pass * (p->segment ? SEGMENT : p->line_bytes),
              part = p->line_bytes / p->columns;
    for (int c = 0; c < p->columns; c++) {
        LLVMValueRef in[3] = {mma_at(m, mma_add(m, to, line + c * (part / SEGMENT) * p->segment)),
                              em_gep(e, from, e->t_i8, mma_num(m, c * part)), bytes ? bytes[c] : NULL};
        gpu_call(e, bytes ? "llvm.nvvm.cp.async.cg.shared.global.16.s" : "llvm.nvvm.cp.async.cg.shared.global.16", NULL,
                 0, in, bytes ? 3 : 2);
    }
    return pass + 1 < p->passes ? em_gep(e, from, e->t_i8, p->pass_step) : from;
}

/* The same value, of which LLVM does not see where it comes from, in this place: what is made of it is neither worked
 * out in front of the loop nor of a branch, in registers that the other way lacks. */
static LLVMValueRef hidden(mma *m, LLVMValueRef v) {
    emit *e = m->e;
    LLVMTypeRef type = LLVMTypeOf(v);
    const bool is_pointer = LLVMGetTypeKind(type) == LLVMPointerTypeKind;
    if (is_pointer) v = LLVMBuildPtrToInt(e->b, v, e->t_i64, "");
    LLVMTypeRef in = LLVMTypeOf(v);
    v = gpu_asm(e, "", in == e->t_i64 ? "=l,0" : "=r,0", true, in, &v, 1);
    return is_pointer ? LLVMBuildIntToPtr(e->b, v, type, "") : v;
}

/* How many bytes are in the matrix costs ten instructions a copy: most pieces are whole. */
static void copy_piece(mma *m, const mma_operand *p, LLVMValueRef stage, LLVMValueRef k, LLVMValueRef from) {
    emit *e = m->e;
    LLVMValueRef at_k = em_add(e, k, p->k_of_thread), to = em_add(e, stage, p->to), along = NULL, at = from;
    LLVMValueRef has_all_k = em_icmp(e, LLVMIntSLE, em_add(e, k, mma_num(m, p->k)), m->k_end);
    em_branch whole = em_if(e, em_and(e, p->has_all_rows, has_all_k));
    for (int i = 0; i < p->passes; i++) at = copy_pass(m, p, to, i, at, NULL);
    em_else(e, &whole);
    if (!p->is_turned) along = bytes_before(m, at_k, m->k_end, p->bytes);
    to = hidden(m, to);
    at = hidden(m, from);
    LLVMValueRef rows_left = hidden(m, p->rows_left);
    for (int i = 0; i < p->passes; i++) {
        LLVMValueRef bytes[2];
        if (p->is_turned) {
            LLVMValueRef inside = em_icmp(e, LLVMIntSLT, em_add(e, at_k, mma_num(m, i * p->lines_of_pass)), m->k_end);
            for (int c = 0; c < p->columns; c++) {
                LLVMValueRef left = mma_add(m, rows_left, -c * p->rows / p->columns);
                bytes[c] = em_select(e, inside, bytes_of(m, left, p->bytes), em_i32(e, 0));
            }
        } else {
            LLVMValueRef inside = em_icmp(e, LLVMIntSGT, rows_left, em_i32(e, i * p->lines_of_pass));
            bytes[0] = em_select(e, inside, along, em_i32(e, 0));
        }
        at = copy_pass(m, p, to, i, at, bytes);
    }
    em_endif(e, &whole);
}

static LLVMValueRef at_most(mma *m, LLVMValueRef v, LLVMValueRef most) {
    return em_select(m->e, em_icmp(m->e, LLVMIntSLT, v, most), v, most);
}

/* The same chunks as copies have, computed. Outside the matrix along its rows: what the last row has, whose products
 * nobody stores; along k: zeros. */
static void compute_chunks(mma *m, int operand, LLVMValueRef stage, LLVMValueRef k) {
    emit *e = m->e;
    const mma_operand *p = &m->operand[operand];
    const ir_dtype type = m->k->inst[p->inst].dtype;
    LLVMValueRef to = em_add(e, stage, p->to);
    LLVMValueRef last_row =
        em_sub(e, m->s.size[operand ? IR_GPU_COLUMNS : IR_GPU_ROWS], mma_num(m, p->is_turned ? p->lanes : 1));
    LLVMValueRef last_k = em_sub(e, m->k_end, mma_num(m, p->is_turned ? 1 : p->lanes));
    for (int i = 0; i < p->passes; i++) {
        LLVMValueRef line = em_add(e, p->line, mma_num(m, i * p->lines_of_pass));
        LLVMValueRef row = em_add(e, operand ? m->n0 : m->m0, p->is_turned ? p->element : line);
        LLVMValueRef at_k = em_add(e, k, p->is_turned ? line : p->element);
        LLVMValueRef inside = em_icmp(e, LLVMIntSLE, at_k, last_k);
        row = at_most(m, row, last_row);
        at_k = at_most(m, at_k, last_k);
        mma_point at = {
            m, {operand ? NULL : row, operand ? row : NULL, at_k}, p->is_turned ? p->row_dim : m->dim[IR_GPU_PRODUCTS]};
        em_values v;
        em_values_init(&v, mma_load_value, &at);
        e->lanes = p->lanes;
        e->is_aligned = true;
        LLVMValueRef value = em_to_memory(e, type, em_value(e, &v, p->inst));
        e->is_aligned = false;
        e->lanes = 1;
        value = em_select(e, inside, value, LLVMConstNull(LLVMTypeOf(value)));
        int more = i * p->lines_of_pass * (p->segment ? SEGMENT : p->line_bytes);
        LLVMSetAlignment(LLVMBuildStore(e->b, value, mma_at(m, mma_add(m, to, more))), 16);
    }
}

/* Elements of a chunk from `from` on, of which the first n are in the matrix: the others are 0. */
static LLVMValueRef read_elements(mma *m, const mma_operand *p, LLVMValueRef from, LLVMValueRef n) {
    emit *e = m->e;
    LLVMTypeRef type = chunk_type(m, p), element = LLVMGetElementType(type);
    LLVMValueRef last = mma_add(m, n, -1), chunk = LLVMGetPoison(type);
    em_branch b = em_if(e, em_icmp(e, LLVMIntSGT, n, em_i32(e, 0)));
    for (int i = 0; i < p->lanes; i++) {
        LLVMValueRef at = em_i32(e, i), one;
        one = LLVMBuildLoad2(e->b, element, em_gep(e, from, element, mma_i64(m, em_min(e, at, last))), "");
        LLVMSetAlignment(one, (unsigned)p->bytes);
        one = em_select(e, em_icmp(e, LLVMIntSGT, n, at), one, LLVMConstNull(element));
        chunk = LLVMBuildInsertElement(e->b, chunk, one, at, "");
    }
    LLVMBasicBlockRef in = LLVMGetInsertBlock(e->b);
    em_endif(e, &b);
    LLVMValueRef phi = LLVMBuildPhi(e->b, type, "");
    LLVMAddIncoming(phi, (LLVMValueRef[]){chunk, LLVMConstNull(type)}, (LLVMBasicBlockRef[]){in, b.other}, 2);
    return phi;
}

/* The same chunks as copies have, where addresses do not allow these. */
static void read_piece(mma *m, const mma_operand *p, LLVMValueRef stage, LLVMValueRef k, LLVMValueRef from) {
    emit *e = m->e;
    const int line_bytes = p->segment ? SEGMENT : p->line_bytes, part = p->line_bytes / p->columns;
    em_loop l = em_for(e, mma_num(m, 0), mma_num(m, p->lines), mma_num(m, p->lines_of_pass));
    LLVMValueRef at = em_loop_phi(e, &l, from), line = mma_i32(m, l.i), at_k = em_add(e, k, p->k_of_thread), n;
    if (p->is_turned) at_k = em_add(e, at_k, l.i);
    LLVMValueRef left = em_sub(e, m->k_end, at_k), most = mma_num(m, p->lanes);
    LLVMValueRef to = em_add(e, em_add(e, stage, p->to), em_mul(e, line, em_i32(e, line_bytes)));
    for (int c = 0; c < p->columns; c++) {
        LLVMValueRef inside =
            em_icmp(e, LLVMIntSGT, p->is_turned ? left : mma_i64(m, p->rows_left), p->is_turned ? mma_num(m, 0) : l.i);
        if (p->is_turned) {
            n = mma_add(m, p->rows_left, -c * p->rows / p->columns);
            n = em_min(e, n, em_i32(e, p->lanes));
        } else {
            n = mma_i32(m, em_min(e, left, most));
        }
        n = em_select(e, inside, n, em_i32(e, 0));
        LLVMValueRef chunk = read_elements(m, p, em_gep(e, at, e->t_i8, mma_num(m, c * part)), n);
        LLVMValueRef place_of = mma_add(m, to, c * (part / SEGMENT) * p->segment);
        LLVMSetAlignment(LLVMBuildStore(e->b, chunk, mma_at(m, place_of)), 16);
    }
    em_loop_next(e, at, em_gep(e, at, e->t_i8, p->pass_step));
    em_end(e, &l);
    gpu_keep_loop(e, &l);
}

/* Elements one by one. Threads side by side take what lies side by side in memory. */
static void compute_piece(mma *m, int operand, LLVMValueRef stage, LLVMValueRef k) {
    emit *e = m->e;
    const mma_operand *p = &m->operand[operand];
    const int n_fast = p->is_turned ? p->rows : p->k, log = __builtin_ctz((unsigned)n_fast);
    em_loop l = em_for(e, mma_i64(m, m->thread), mma_num(m, p->rows * p->k), mma_num(m, m->n_threads));
    LLVMValueRef fast = em_and(e, l.i, mma_num(m, n_fast - 1)), line = em_lshr(e, l.i, log);
    LLVMValueRef row = em_add(e, operand ? m->n0 : m->m0, p->is_turned ? fast : line);
    LLVMValueRef at_k = em_add(e, k, p->is_turned ? line : fast);
    mma_point at = {m, {operand ? NULL : row, operand ? row : NULL, at_k}, -1};
    LLVMValueRef inside = em_and(e, em_icmp(e, LLVMIntSLT, row, m->s.size[operand ? IR_GPU_COLUMNS : IR_GPU_ROWS]),
                                 em_icmp(e, LLVMIntSLT, at_k, m->k_end));
    em_values v;
    em_values_init(&v, mma_load_value, &at);
    em_branch b = em_if(e, inside);
    LLVMValueRef value = em_to_memory(e, m->k->inst[p->inst].dtype, em_value(e, &v, p->inst));
    LLVMValueRef zero = LLVMConstNull(LLVMTypeOf(value));
    LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b);
    em_endif(e, &b);
    LLVMValueRef phi = LLVMBuildPhi(e->b, LLVMTypeOf(value), "");
    LLVMAddIncoming(phi, (LLVMValueRef[]){value, zero}, (LLVMBasicBlockRef[]){from, b.other}, 2);
    LLVMValueRef to = place(m, p, mma_i32(m, line), em_mul(e, mma_i32(m, fast), em_i32(e, p->bytes)));
    LLVMSetAlignment(LLVMBuildStore(e->b, phi, mma_at(m, mma_add(m, em_add(e, to, stage), p->at))), (unsigned)p->bytes);
    em_end(e, &l);
}

/* Pieces beyond the last one are not multiplied. from: of an operand that might be copied. */
static void compute(mma *m, int operand, LLVMValueRef stage, LLVMValueRef k, LLVMValueRef from, bool by_chunks) {
    em_branch b = em_if(m->e, em_icmp(m->e, LLVMIntSLT, k, m->k_end));
    if (from) read_piece(m, &m->operand[operand], stage, k, from);
    else if (by_chunks) compute_chunks(m, operand, stage, k);
    else compute_piece(m, operand, stage, k);
    em_endif(m->e, &b);
}

void mma_load_piece(mma *m, int operand, LLVMValueRef stage, LLVMValueRef k, LLVMValueRef from) {
    const mma_operand *p = &m->operand[operand];
    if (!p->can) {
        compute(m, operand, stage, k, NULL, false);
        return;
    }
    em_branch b = em_if(m->e, p->can);
    if (p->buffer >= 0) copy_piece(m, p, stage, k, from);
    else compute(m, operand, stage, k, NULL, true);
    em_else(m->e, &b);
    compute(m, operand, stage, k, from, false);
    em_endif(m->e, &b);
}
