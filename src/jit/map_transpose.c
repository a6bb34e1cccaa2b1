/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* map_transpose.c: element-wise kernels that read something along another dim than they write. The last two dims are y
 * (role t, along which such inputs are contiguous) and x (along which outputs are); a tile is a block of both at one
 * place of the others.
 *
 *   for each tile, for each strip of n rows y, for each n columns x of it:
 *       each transposed input: n whole vectors along y, transposed in registers
 *       for each row of the strip: the program on vectors along x
 *   then the columns and rows that are left: as blocks under masks at levels that have them, else element by element
 *
 * n elements of the transposed type are a vector, 16 at most, so memory is read and written by whole vectors (f32 at
 * v4: whole cache lines). All values of a block are computed before its first store, so an output may be the same
 * memory as an input. */
#include "jit/emit.h"
#include "jit/llvm_compat.h"
#include <string.h>

enum { MAX_SIDE = 16, MAX_UNROLLED = 8 };

typedef struct square {
    int y, x, side;
    bool is_turned[IR_KERNEL_MAX_INSTS]; /* loads of transposed inputs */
    bool is_staged; /* the program of a whole block is a loop over its rows; transposed blocks lie on the stack */
    LLVMValueRef block[IR_KERNEL_MAX_INSTS]; /* staged, or under masks: side * side elements */
    LLVMValueRef index[IR_KERNEL_MAX_DIMS], offset[IR_KERNEL_MAX_BUFFERS]; /* of the place in the outer dims */
    LLVMValueRef at_y, at_x;
    /* of a block that is not whole, else NULL: its rows and columns, and the latter as lanes */
    LLVMValueRef rows, columns, lanes_x;
} square;

static LLVMValueRef advance(emit *e, LLVMValueRef base, LLVMValueRef index, LLVMValueRef stride) {
    bool is_known = LLVMIsAConstantInt(stride) != NULL;
    int64_t s = is_known ? LLVMConstIntGetSExtValue(stride) : 2;
    return s == 0 ? base : em_add(e, base, s == 1 ? index : em_mul(e, index, stride));
}

static LLVMValueRef place(emit *e, const square *q, int buffer) {
    return advance(e, advance(e, q->offset[buffer], q->at_y, e->stride[buffer][q->y]), q->at_x,
                   e->stride[buffer][q->x]);
}

static LLVMValueRef load(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    square *q = user;
    if (inst->op != IR_K_INDEX)
        return em_load_value(e, v, inst, q->x, place(e, q, inst->index), e->stride[inst->index][q->x],
                             e->lanes > 1 ? q->lanes_x : NULL);
    if (inst->index != q->x) return em_splat(e, inst->index == q->y ? q->at_y : q->index[inst->index]);
    LLVMValueRef lane[64];
    for (int i = 0; i < e->lanes; i++) lane[i] = em_i64s(e, i);
    return e->lanes == 1 ? q->at_x : em_add(e, em_splat(e, q->at_x), LLVMConstVector(lane, (unsigned)e->lanes));
}

/* ---- one block ---- */
/* Of a block of the stack: row j, as it is in memory. */
static LLVMValueRef staged(emit *e, const square *q, int inst, LLVMValueRef j) {
    LLVMTypeRef t = em_memory_type(e, e->k->inst[inst].dtype);
    return em_gep(e, q->block[inst], t, em_mul(e, j, em_i64s(e, q->side)));
}

/* Whole vectors along y of the block's columns. Of one that is not whole, those that are there, by way of the stack. */
static void load_block(emit *e, square *q, int inst, LLVMValueRef *v) {
    const ir_kinst *in = &e->k->inst[inst];
    const unsigned align = (unsigned)ir_dtypes[in->dtype].bytes;
    LLVMValueRef x0 = q->at_x;
    LLVMTypeRef element = em_memory_type(e, in->dtype), type = em_vec(e, element); /* as it is in memory */
    if (q->rows) {
        em_loop l = em_for(e, em_i64s(e, 0), q->columns, em_i64s(e, 1));
        q->at_x = em_add(e, x0, l.i);
        LLVMValueRef at = em_gep(e, e->base[in->index], element, place(e, q, in->index)), none = LLVMConstNull(type);
        LLVMValueRef x =
            compat_masked_load(e->mod, e->b, COMPAT_CONTIGUOUS, type, at, em_mask(e, q->rows), none, align);
        LLVMSetAlignment(LLVMBuildStore(e->b, x, staged(e, q, inst, l.i)), align);
        em_end(e, &l);
    }
    for (int i = 0; i < q->side; i++) {
        LLVMValueRef column = em_i64s(e, i), at;
        q->at_x = i ? em_add(e, x0, column) : x0;
        at = q->rows ? staged(e, q, inst, column) : em_gep(e, e->base[in->index], element, place(e, q, in->index));
        v[i] = LLVMBuildLoad2(e->b, type, at, "");
        LLVMSetAlignment(v[i], align);
    }
    q->at_x = x0;
    em_turn(e, v, q->side, ir_dtypes[in->dtype].bytes);
}

static void store(emit *e, square *q, int inst, LLVMValueRef value, bool is_streaming) {
    int b = e->k->inst[inst].index;
    if (!is_streaming) {
        em_store(e, b, value, place(e, q, b), e->stride[b][q->x], e->lanes > 1 ? q->lanes_x : NULL);
        return;
    }
    LLVMValueRef at = em_gep(e, e->base[b], em_memory_type(e, e->k->buffer[b].dtype), place(e, q, b));
    LLVMValueRef to = LLVMBuildStore(e->b, em_to_memory(e, e->k->buffer[b].dtype, value), at);
    LLVMSetAlignment(to, (unsigned)(q->side * ir_dtypes[e->k->buffer[b].dtype].bytes));
    LLVMMetadataRef one = LLVMValueAsMetadata(LLVMConstInt(e->t_i32, 1, 0));
    LLVMSetMetadata(to, LLVMGetMDKindIDInContext(e->ctx, "nontemporal", 11),
                    LLVMMetadataAsValue(e->ctx, LLVMMDNodeInContext2(e->ctx, &one, 1)));
}

/* The program at row at_y and e->lanes columns from at_x on. turned[inst]: values of transposed loads, or NULL. */
static void emit_row(emit *e, square *q, LLVMValueRef *turned, LLVMValueRef *out) {
    em_values v;
    em_values_init(&v, load, q);
    for (int i = 0; i < e->k->n_insts && turned; i++)
        if (q->is_turned[i]) v.at[i] = turned[i];
    for (int i = 0; i < e->k->n_insts; i++)
        if (e->k->inst[i].op == IR_K_STORE) out[i] = em_value(e, &v, i);
}

static void emit_stores(emit *e, square *q, LLVMValueRef *out, bool is_streaming) {
    for (int i = 0; i < e->k->n_insts; i++)
        if (e->k->inst[i].op == IR_K_STORE) store(e, q, i, out[i], is_streaming);
}

static void emit_block(emit *e, square *q, bool is_streaming) {
    const ir_kernel *k = e->k;
    const int n = q->side;
    const bool is_staged = q->is_staged || q->rows;
    LLVMValueRef *v = FU_NEW_N(e->arena, LLVMValueRef, (k->n_insts + 1) * MAX_SIDE), y0 = q->at_y;
    LLVMValueRef turned[IR_KERNEL_MAX_INSTS], *out = FU_NEW_N(e->arena, LLVMValueRef, (k->n_insts + 1) * MAX_SIDE);
    for (int i = 0; i < k->n_insts; i++) {
        if (!q->is_turned[i]) continue;
        load_block(e, q, i, v + i * MAX_SIDE);
        for (int j = 0; j < n && is_staged; j++) {
            LLVMValueRef at = staged(e, q, i, em_i64s(e, j));
            LLVMSetAlignment(LLVMBuildStore(e->b, v[i * MAX_SIDE + j], at),
                             (unsigned)ir_dtypes[k->inst[i].dtype].bytes);
        }
    }
    if (is_staged) { /* rows of a strip are stored before the next is computed: the inputs of the block are read */
        em_loop l = em_for(e, em_i64s(e, 0), q->rows ? q->rows : em_i64s(e, n), em_i64s(e, 1));
        for (int i = 0; i < k->n_insts; i++) {
            if (!q->is_turned[i]) continue;
            ir_dtype t = k->inst[i].dtype;
            turned[i] = em_or_zero(e, em_load_ptr(e, t, staged(e, q, i, l.i), NULL, ir_dtypes[t].bytes),
                                   e->lanes > 1 ? q->lanes_x : NULL);
        }
        q->at_y = em_add(e, y0, l.i);
        emit_row(e, q, turned, out);
        emit_stores(e, q, out, is_streaming);
        em_end(e, &l);
    } else {
        for (int j = 0; j < n; j++) {
            for (int i = 0; i < k->n_insts; i++)
                if (q->is_turned[i]) turned[i] = em_to_register(e, k->inst[i].dtype, v[i * MAX_SIDE + j]);
            q->at_y = j ? em_add(e, y0, em_i64s(e, j)) : y0;
            emit_row(e, q, turned, out + j * k->n_insts);
        }
        for (int j = 0; j < n; j++) {
            q->at_y = j ? em_add(e, y0, em_i64s(e, j)) : y0;
            emit_stores(e, q, out + j * k->n_insts, is_streaming);
        }
    }
    q->at_y = y0;
}

static void emit_elements(emit *e, square *q, LLVMValueRef y0, LLVMValueRef y1, LLVMValueRef x0, LLVMValueRef x1) {
    LLVMValueRef *out = FU_NEW_N(e->arena, LLVMValueRef, e->k->n_insts + 1), one = em_i64s(e, 1);
    e->lanes = 1;
    em_loop ly = em_for(e, y0, y1, one), lx = em_for(e, x0, x1, one);
    q->at_y = ly.i;
    q->at_x = lx.i;
    emit_row(e, q, NULL, out);
    emit_stores(e, q, out, false);
    em_end(e, &lx);
    em_end(e, &ly);
    e->lanes = q->side;
}

static void emit_blocks(emit *e, square *q, LLVMValueRef y0, LLVMValueRef y1, LLVMValueRef x0, LLVMValueRef x1,
                        bool is_whole, bool is_streaming) {
    LLVMValueRef n = em_i64s(e, q->side);
    em_loop ly = em_for(e, y0, y1, n), lx = em_for(e, x0, x1, n);
    q->at_y = ly.i;
    q->at_x = lx.i;
    if (!is_whole) {
        q->rows = em_min(e, em_sub(e, y1, ly.i), n);
        q->columns = em_min(e, em_sub(e, x1, lx.i), n);
        q->lanes_x = em_mask(e, q->columns);
    }
    emit_block(e, q, is_streaming);
    q->rows = q->columns = q->lanes_x = NULL;
    em_end(e, &lx);
    em_end(e, &ly);
}

/* ---- the kernel ---- */
static LLVMValueRef ceil_div(emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildUDiv(e->b, em_sub(e, em_add(e, a, b), em_i64s(e, 1)), b, "");
}

/* All outputs of the tile begin and go on at whole vectors. NULL: never. */
static LLVMValueRef can_stream(emit *e, square *q) {
    LLVMValueRef all = NULL;
    if (e->level->vector_bytes < 32) return NULL;
    for (int b = 0; b < e->k->n_buffers; b++) {
        if (!e->k->buffer[b].is_output) continue;
        int bytes = ir_dtypes[e->k->buffer[b].dtype].bytes;
        if (e->k->buffer[b].stride[q->x] != 1 || q->side * bytes < 32 || e->k->buffer[b].dtype == FUSOR_BOOL)
            return NULL;
        LLVMValueRef at = em_gep(e, e->base[b], em_memory_type(e, e->k->buffer[b].dtype), place(e, q, b));
        LLVMValueRef bits =
            em_or(e, LLVMBuildPtrToInt(e->b, at, e->t_i64, ""), em_mul(e, e->stride[b][q->y], em_i64s(e, bytes)));
        bits = em_and(e, bits, em_i64s(e, q->side * bytes - 1));
        all = all ? em_or(e, all, bits) : bits;
    }
    LLVMValueRef wanted = em_icmp(e, LLVMIntNE, e->tune[IR_TUNE_MAP_STREAM], em_i64s(e, 0));
    return em_and(e, wanted, em_icmp(e, LLVMIntEQ, all, em_i64s(e, 0)));
}

static void emit_tile(emit *e, square *q, LLVMValueRef tile) {
    LLVMValueRef by = e->tune[IR_TUNE_MAP_ROWS], bx = e->tune[IR_TUNE_MAP_COLUMNS], size_y = e->size[q->y],
                 size_x = e->size[q->x];
    LLVMValueRef blocks_x = ceil_div(e, size_x, bx), blocks_y = ceil_div(e, size_y, by),
                 rest = LLVMBuildUDiv(e->b, tile, blocks_x, "");
    LLVMValueRef x0 = em_mul(e, LLVMBuildURem(e->b, tile, blocks_x, ""), bx);
    LLVMValueRef y0 = em_mul(e, LLVMBuildURem(e->b, rest, blocks_y, ""), by);
    rest = LLVMBuildUDiv(e->b, rest, blocks_y, "");
    for (int d = q->y - 1; d >= 0; d--) {
        q->index[d] = d ? LLVMBuildURem(e->b, rest, e->size[d], "") : rest;
        if (d) rest = LLVMBuildUDiv(e->b, rest, e->size[d], "");
    }
    for (int b = 0; b < e->k->n_buffers; b++) {
        q->offset[b] = em_i64s(e, 0);
        for (int d = 0; d < q->y; d++) q->offset[b] = advance(e, q->offset[b], q->index[d], e->stride[b][d]);
    }
    LLVMValueRef y1 = em_min(e, em_add(e, y0, by), size_y), x1 = em_min(e, em_add(e, x0, bx), size_x),
                 whole = em_i64s(e, -q->side);
    LLVMValueRef ym = em_add(e, y0, em_and(e, em_sub(e, y1, y0), whole)),
                 xm = em_add(e, x0, em_and(e, em_sub(e, x1, x0), whole));
    q->at_y = y0;
    q->at_x = x0;
    LLVMValueRef streams = can_stream(e, q);
    if (streams) {
        em_branch b = em_if(e, streams);
        emit_blocks(e, q, y0, ym, x0, xm, true, true);
        em_else(e, &b);
        emit_blocks(e, q, y0, ym, x0, xm, true, false);
        em_endif(e, &b);
    } else emit_blocks(e, q, y0, ym, x0, xm, true, false);
    /* what is left: columns of whole strips, then rows */
    em_loop l = em_for(e, em_i64s(e, 0), em_i64s(e, 2), em_i64s(e, 1));
    LLVMValueRef is_rows = em_icmp(e, LLVMIntNE, l.i, em_i64s(e, 0));
    y0 = em_select(e, is_rows, ym, y0);
    y1 = em_select(e, is_rows, y1, ym);
    x0 = em_select(e, is_rows, x0, xm);
    if (e->level->has_mask) emit_blocks(e, q, y0, y1, x0, x1, false, false);
    else emit_elements(e, q, y0, y1, x0, x1);
    em_end(e, &l);
}

void map_emit_transposed(emit *e) {
    const ir_kernel *k = e->k;
    square *q = FU_NEW(e->arena, square);
    int bytes = 1, n_ops = 0, n_turned = 0;
    bool is_costly = false;
    q->y = k->n_dims - 2;
    q->x = k->n_dims - 1;
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        n_ops += in->op < IR_OP_COUNT;
        is_costly |= in->op < IR_OP_COUNT && (ir_ops[in->op].flags & IR_COSTLY);
        if (in->op != IR_K_LOAD || in->variant) continue;
        const int64_t *stride = k->buffer[in->index].stride;
        if (stride[q->y] != 1 || stride[q->x] != IR_STRIDE_RUNTIME) continue;
        q->is_turned[i] = true;
        n_turned++;
        if (ir_dtypes[in->dtype].bytes > bytes) bytes = ir_dtypes[in->dtype].bytes;
    }
    q->side = e->level->vector_bytes / bytes < MAX_SIDE ? e->level->vector_bytes / bytes : MAX_SIDE;
    q->is_staged = n_ops > MAX_UNROLLED || n_turned > 1 || is_costly; /* 16 copies of sin would not fit a frame */
    for (int i = 0; i < k->n_insts && (q->is_staged || e->level->has_mask); i++)
        if (q->is_turned[i])
            q->block[i] = em_alloca(
                e, LLVMArrayType2(em_memory_type(e, k->inst[i].dtype), (uint64_t)q->side * (uint64_t)q->side), 64);
    e->lanes = q->side;
    em_loop tiles = em_for(e, e->tile_begin, e->tile_end, em_i64s(e, 1));
    emit_tile(e, q, tiles.i);
    em_end(e, &tiles);
}
