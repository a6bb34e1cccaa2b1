/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_turn.c: element-wise kernels on a GPU that read something along another dim than they write. The last two dims
 * are y (role t, along which such inputs are contiguous) and x (along which outputs are). A block of 32x8 threads takes
 * a tile of 32x32:
 *
 *   each transposed input: read along y, row by row of x, into a tile in shared memory, whose rows are a word longer
 *       than 32 elements so that its columns lie in different banks
 *   barrier
 *   the program, along x, with those inputs from their tiles; all values of a thread's four elements, then the stores
 *   barrier
 *
 * so memory is read and written by whole warps side by side. Tiles that are not all inside have code of their own, with
 * a test for each element. */
#include "jit/gpu.h"
#include "jit/reduce_common.h"
#include <string.h>

enum {
    SIDE = IR_GPU_TILE,
    STEP = IR_GPU_THREADS / SIDE,
    TILES_MAX = 40960 /* bytes in tiles; inputs beyond that are read as they lie */
};

typedef struct turn {
    int y, x;
    LLVMValueRef tile[IR_KERNEL_MAX_INSTS];                                /* of loads of transposed inputs, or NULL */
    LLVMValueRef index[IR_KERNEL_MAX_DIMS], offset[IR_KERNEL_MAX_BUFFERS]; /* of the place in the outer dims */
    LLVMValueRef x0, y0, thread_x, thread_y;
    LLVMValueRef read_at[IR_KERNEL_MAX_BUFFERS];  /* where the thread begins to fill tiles from a buffer */
    LLVMValueRef write_at[IR_KERNEL_MAX_BUFFERS]; /* where its first element lies; the others rows of STEP further */
    LLVMValueRef at_x, at_y, row;                 /* of the element being emitted; row: of the tile of the output */
    int step;                                     /* its number */
} turn;

static LLVMValueRef place(emit *e, const turn *t, int buffer, LLVMValueRef y, LLVMValueRef x) {
    LLVMValueRef off = red_advance(e, t->offset[buffer], y, e->stride[buffer][t->y]);
    return red_advance(e, off, x, e->stride[buffer][t->x]);
}

/* `at` and s times STEP along dim d. */
static LLVMValueRef further(emit *e, int buffer, LLVMValueRef at, int d, int s) {
    return red_advance(e, at, em_i64s(e, s * STEP), e->stride[buffer][d]);
}

/* Elements of a row of a tile. */
static int64_t row_of(ir_dtype t) { return SIDE + (ir_dtypes[t].bytes < 4 ? 4 / ir_dtypes[t].bytes : 1); }

static LLVMValueRef tile_at(emit *e, const turn *t, int inst, LLVMValueRef row, LLVMValueRef column) {
    ir_dtype type = e->k->inst[inst].dtype;
    LLVMValueRef number = em_add(e, em_mul(e, row, em_i64s(e, row_of(type))), column);
    return em_gep(e, t->tile[inst], em_memory_type(e, type), number);
}

static LLVMValueRef load(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    turn *t = user;
    int number = (int)(inst - e->k->inst), b = inst->index;
    if (inst->op == IR_K_INDEX) return b == t->x ? t->at_x : b == t->y ? t->at_y : t->index[b];
    if (t->tile[number])
        return em_load_ptr(e, inst->dtype, tile_at(e, t, number, t->thread_x, t->row), NULL,
                           ir_dtypes[inst->dtype].bytes);
    return em_load_value(e, v, inst, t->x, further(e, b, t->write_at[b], t->y, t->step), e->stride[b][t->x], NULL);
}

static LLVMValueRef both_below(emit *e, const turn *t, LLVMValueRef y, LLVMValueRef x) {
    return em_and(e, em_icmp(e, LLVMIntSLT, y, e->size[t->y]), em_icmp(e, LLVMIntSLT, x, e->size[t->x]));
}

/* The threads' step s along the slow side of a tile. */
static LLVMValueRef slow(emit *e, const turn *t, int s) { return em_add(e, t->thread_y, em_i64s(e, s * STEP)); }

static void fill_tiles(emit *e, turn *t, bool is_whole) {
    const ir_kernel *k = e->k;
    for (int s = 0; s < SIDE / STEP; s++) {
        LLVMValueRef x = em_add(e, t->x0, slow(e, t, s)), y = em_add(e, t->y0, t->thread_x);
        em_branch inside = {0};
        if (!is_whole) inside = em_if(e, both_below(e, t, y, x));
        for (int i = 0; i < k->n_insts; i++) {
            if (!t->tile[i]) continue;
            LLVMTypeRef type = em_memory_type(e, k->inst[i].dtype);
            unsigned bytes = ir_dtypes[k->inst[i].dtype].bytes;
            int b = k->inst[i].index;
            LLVMValueRef from = em_gep(e, e->base[b], type, further(e, b, t->read_at[b], t->x, s));
            LLVMValueRef raw = LLVMBuildLoad2(e->b, type, from, "");
            LLVMSetAlignment(raw, bytes);
            LLVMSetAlignment(LLVMBuildStore(e->b, raw, tile_at(e, t, i, slow(e, t, s), t->thread_x)), bytes);
        }
        if (!is_whole) em_endif(e, &inside);
    }
}

/* One element: the program, and its stores. Other threads' elements are other memory, and so are this thread's
 * others. */
static void emit_element(emit *e, turn *t, int s, bool is_whole) {
    const ir_kernel *k = e->k;
    em_values v;
    em_branch inside = {0};
    t->step = s;
    t->at_x = em_add(e, t->x0, t->thread_x);
    t->row = slow(e, t, s);
    t->at_y = em_add(e, t->y0, t->row);
    if (!is_whole) inside = em_if(e, both_below(e, t, t->at_y, t->at_x));
    em_values_init(&v, load, t);
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE) em_value(e, &v, i);
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE)
            em_store(e, k->inst[i].index, em_value(e, &v, i),
                     further(e, k->inst[i].index, t->write_at[k->inst[i].index], t->y, s), em_i64s(e, 1), NULL);
    if (!is_whole) em_endif(e, &inside);
}

static void emit_elements(emit *e, turn *t, bool is_whole) {
    fill_tiles(e, t, is_whole);
    gpu_barrier(e);
    for (int s = 0; s < SIDE / STEP; s++) emit_element(e, t, s, is_whole);
    gpu_barrier(e); /* before the tiles are filled again */
}

static void emit_tile(emit *e, turn *t, LLVMValueRef row) {
    const ir_kernel *k = e->k;
    LLVMValueRef tiles = LLVMBuildUDiv(e->b, em_add(e, e->size[t->y], em_i64s(e, SIDE - 1)), em_i64s(e, SIDE), "");
    LLVMValueRef y = row, outer = row;
    if (t->y) red_divide(e, row, tiles, &outer, &y);
    t->y0 = em_mul(e, y, em_i64s(e, SIDE));
    for (int d = t->y - 1; d >= 0; d--) {
        if (d) red_divide(e, outer, e->size[d], &outer, &t->index[d]);
        else t->index[d] = outer;
    }
    for (int b = 0; b < k->n_buffers; b++) {
        t->offset[b] = NULL;
        for (int d = 0; d < t->y; d++) t->offset[b] = red_advance(e, t->offset[b], t->index[d], e->stride[b][d]);
    }
    LLVMValueRef behind = em_i64s(e, SIDE - 1);
    for (int b = 0; b < k->n_buffers; b++) {
        t->read_at[b] = place(e, t, b, em_add(e, t->y0, t->thread_x), em_add(e, t->x0, t->thread_y));
        t->write_at[b] = place(e, t, b, em_add(e, t->y0, t->thread_y), em_add(e, t->x0, t->thread_x));
    }
    em_branch whole = em_if(e, both_below(e, t, em_add(e, t->y0, behind), em_add(e, t->x0, behind)));
    emit_elements(e, t, true);
    em_else(e, &whole);
    emit_elements(e, t, false);
    em_endif(e, &whole);
}

static void make_tiles(emit *e, turn *t) {
    const ir_kernel *k = e->k;
    int64_t used = 0;
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        if (in->op != IR_K_LOAD || in->variant) continue;
        const int64_t *stride = k->buffer[in->index].stride;
        int64_t bytes = SIDE * row_of(in->dtype) * ir_dtypes[in->dtype].bytes;
        if (stride[t->y] != 1 || stride[t->x] == 0 || used + bytes > TILES_MAX) continue;
        used += bytes;
        t->tile[i] = gpu_shared(e, em_memory_type(e, in->dtype), (int)(SIDE * row_of(in->dtype)));
    }
}

void gpu_emit_turn(emit *e) {
    turn *t = FU_NEW(e->arena, turn);
    gpu_limit_registers(e, e->k->n_insts <= 8 ? 32 : 64);
    t->y = e->k->n_dims - 2;
    t->x = e->k->n_dims - 1;
    t->thread_x = gpu_special(e, "tid.x");
    t->thread_y = gpu_special(e, "tid.y");
    make_tiles(e, t);
    LLVMValueRef side = em_i64s(e, SIDE),
                 rows = LLVMBuildUDiv(e->b, em_add(e, e->size[t->y], em_i64s(e, SIDE - 1)), side, "");
    for (int d = 0; d < t->y; d++) rows = em_mul(e, rows, e->size[d]);
    /* The same for all threads of a block: there are barriers inside. */
    em_loop outer = em_for(e, gpu_special(e, "ctaid.y"), rows, gpu_special(e, "nctaid.y"));
    em_loop inner = em_for(e, em_mul(e, gpu_special(e, "ctaid.x"), side), e->size[t->x],
                           em_mul(e, gpu_special(e, "nctaid.x"), side));
    t->x0 = inner.i;
    emit_tile(e, t, outer.i);
    em_end(e, &inner);
    em_end(e, &outer);
}
