/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_WINDOW_H
#define JIT_WINDOW_H
/* What the files of the window kernel share: window.c (the kernel), window_tile.c (the register tile), window_row.c
 * (sums that go from it to the outputs), window_pack.c (panels), window_slab.c (the operand within its pads, weights of
 * other types), window_channels.c (lanes along the channels), window_channel_tile.c (their register tile),
 * window_pads.c (what that leaves out), window_phases.c (transposed ones), window_pairs.c (words of bf16),
 * window_amx.c (tile registers), window_depthwise.c (one channel a group), window_band.c (a map behind it). */
#include "jit/emit.h"

enum { WINDOW_MAX_TILE = 32 }; /* vector registers, of sums or columns */
/* NARROW ones are of one vector of columns. LAST is, by channel, of one row where TILE is of some, else of a column
 * less (ir_window_has_lower). In MASKED and, with masks, ROW the last vector may have fewer: masked loads cost a tenth
 * of the speed. */
typedef enum window_function {
    TILE,
    MASKED,
    NARROW,
    LAST,
    ROW,
    NARROW_ROW,
    PANEL,
    SLAB,
    WEIGHTS,
    FINISH,
    LATE,
    LINE,
    TURN,
    COPY,
    PLANE,
    PADS,
    BAND,
    FUNCTIONS
} window_function;

typedef struct window {
    emit *e;
    const ir_kernel *k;
    int n_batch, dim_m, dim_y, dim_n, n_k;
    int matmul, weights, operand; /* an instruction; buffers */
    ir_dtype acc;
    int bytes, lanes, v_lanes, nv, mr, nr, kb;
    int step;                  /* of the operand along n, as the tile reads it; 0: known when it runs */
    bool is_slab, packs, adds; /* the kernel has axes; ir_kernel_window_packs, .._adds */
    ir_dot dot;
    int group, channels;     /* channels: a dim */
    bool is_tiled;           /* ir_window_is_tiled */
    bool has_pairs, is_slow; /* window_pairs.c; is_slow: by fma */
    ir_window_pairs pairs;
    LLVMValueRef elements;                              /* of K, of which kk counts words */
    LLVMValueRef taken, places, folded;                 /* channels of the operand; places of one of them, and those of
                                                         * folded axes (1: there are none) */
    LLVMValueRef pitch;                                 /* of the operand from row to row */
    LLVMValueRef weight_base, weight_pitch, first_sums; /* first_sums: what `adds` takes off, or `leaves_out` checks */
    int tile_rows;                                      /* ir_window_tile_rows */
    bool has_lower;                                     /* ir_window_has_lower */
    bool stores_last;                                   /* by channel: what it stores has its channels last */
    int result;                  /* by channel: what tiles prefetch while they multiply; -1: none */
    bool leaves_out, drops_sign; /* ir_window_leaves_out, .._drops_sign */
    int down, across;            /* with it: places along rows, columns */
    int sums_pitch;              /* of FINISH's sums from row to row */
    /* window_phases.c. is_transposed: all axes have phases; axes from the last. turns: phases along columns; made: the
     * result's columns and rows */
    bool is_transposed;
    int turns;
    const ir_phases *phases[IR_KERNEL_MAX_AXES];
    LLVMValueRef phase_table[IR_KERNEL_MAX_AXES], made[2];
    /* window_band.c; band_rows: 0, or rows of each that the map behind has. k is the head's then, and `band` the buffer
     * that it stores to. rows_made: of the result, that it needs; band_pitch: elements from channel to channel; the
     * tile's first row and channel */
    int64_t band_rows;
    int band;
    LLVMValueRef rows_made, band_pitch, tile_row, tile_channel;
    LLVMTypeRef t_acc, t_vec;
    bool cuts;                                    /* ir_window_cuts_rows */
    LLVMValueRef columns;                         /* of a tile of work: all of n, but where rows are cut */
    LLVMValueRef kk;                              /* product of the dims k */
    LLVMValueRef table, panel_table, tile, panel; /* parts of scratch: ir/kernel.h */
    LLVMValueRef slab;
    bool has_rows; /* ROW is there */
    int few;       /* products of an element, where ROW has them all in its code; else 0 */
    bool holds;    /* and their columns in registers, for all channels */
    LLVMValueRef function[FUNCTIONS];
    LLVMTypeRef function_type[FUNCTIONS];
} window;

static inline LLVMValueRef num(window *w, int64_t v) { return em_i64s(w->e, v); }
static inline LLVMValueRef element(window *w, LLVMValueRef base, LLVMValueRef i) {
    return em_gep(w->e, base, w->t_acc, i);
}
/* Axis `number` from the last on: 0 columns, 1 rows, 2 the outer one; NULL: there is none. */
static inline const ir_kaxis *window_axis(const window *w, int number) {
    return number < w->k->n_axes ? &w->k->axis[w->k->n_axes - 1 - number] : NULL;
}
/* Places of the kernel along it, by the text. */
static inline int64_t window_places(const window *w, int number) { return ir_window_places(w->k, number); }
/* Elements of the operand along an axis. */
static inline LLVMValueRef axis_size(const window *w, const ir_kaxis *a) {
    return w->e->scalar[w->k->inst[a->size].index];
}
/* Do the places of axis `number` from the last on count as channels? */
static inline bool window_is_folded(const window *w, int number) { return number < w->k->n_folded; }
static inline LLVMValueRef window_unfolded(const window *w) { /* places of the axes that are not */
    return w->k->n_folded ? LLVMBuildUDiv(w->e->b, w->places, w->folded, "") : w->places;
}
/* Is the least exponent kept of what is multiplied, as subnormals are not for the instruction? */
static inline bool window_has_exponents(const window *w) { return ir_dots[w->dot].heads[0] != 0; }
/* Channels of the operand (and of each the places of folded axes), or words of them, filled up to whole steps of the
 * dot; not of pairs. */
static inline LLVMValueRef window_channel_words(const window *w) {
    if (w->group == 1) return w->taken;
    const int step = ir_dots[w->dot].step;
    LLVMValueRef more = em_add(w->e, em_mul(w->e, w->taken, w->folded), em_i64s(w->e, step - 1)),
                 each = em_i64s(w->e, step / w->group);
    return em_mul(w->e, LLVMBuildUDiv(w->e->b, more, em_i64s(w->e, step), ""), each);
}

/* ---- window.c: functions beside the kernel's ---- */
typedef struct window_outer {
    emit e;
    window w;
    LLVMBasicBlockRef block;
} window_outer;
/* Into a new function. But for those of register tiles, and TURN, its first parameter is the argument block, and what
 * it holds is loaded. */
window_outer *window_begin(window *w, window_function f, const char *name, LLVMTypeRef *parameter, unsigned n);
void window_end(window *w, const window_outer *o); /* and back */
void window_call(window *w, window_function f, LLVMValueRef *in, unsigned n);

typedef struct window_point {
    window *w;
    LLVMValueRef *off;   /* of each buffer, at lane 0 */
    LLVMValueRef *index; /* of each dim but k */
    int axis;
    LLVMValueRef mask;
} window_point;
LLVMValueRef window_load(emit *e, em_values *v, const ir_kinst *inst,
                         void *user); /* of em_values; user: a window_point */
LLVMValueRef window_step_of(window *w, int buffer, int axis);
int window_result(const window *w); /* the buffer of a result that is contiguous along columns; -1: none */
LLVMValueRef window_offset_of(window *w, int buffer, LLVMValueRef *index); /* at a place of the dims before k */
LLVMValueRef window_new_block(window *w); /* for what window_write_block tells FINISH and ROW */
/* `each` of each batch that weights vary along; of those the number of this one. */
LLVMValueRef window_all_weights(window *w, LLVMValueRef each);
LLVMValueRef window_weights_batch(window *w, LLVMValueRef *index);
LLVMValueRef window_round_up(window *w, LLVMValueRef bytes); /* to whole lines */
/* The indices of those dims before m that are set in `dims`; what is left of the number is returned. */
LLVMValueRef window_decode(window *w, LLVMValueRef number, uint32_t dims, LLVMValueRef *index);
static inline uint32_t window_batch_dims(const window *w) { return (1u << w->n_batch) - 1; }
/* How many elements K has, where that is known here; else -1. */
static inline int64_t window_known_k(const window *w) {
    return LLVMIsAConstantInt(w->kk) ? LLVMConstIntGetSExtValue(w->kk) : -1;
}
static inline LLVMValueRef window_divide_up(window *w, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildUDiv(w->e->b, em_sub(w->e, em_add(w->e, a, b), num(w, 1)), b, "");
}
/* Is what is behind the sums one run of columns from row to row? NULL: no. */
LLVMValueRef window_is_one_run(window *w);

/* A line of columns, of one row of the result or of all that a tile has: of the kernel's channels m_begin .. m_end - 1.
 */
typedef struct window_line {
    /* first element of the operand; columns; columns from row to row, and those of them that are the result's; i1: are
     * the panels packed? */
    LLVMValueRef from, length, pitch, row, is_packed, block, weights;
    LLVMValueRef m_begin, m_end, first_sums;
    LLVMValueRef top, phase; /* transposed: row of a phase that it begins with; phase along the outer axis */
    LLVMValueRef x;          /* column of the result that its columns count from (of a phase); NULL: 0 */
    LLVMValueRef y;          /* by channel: row of the result, or -1 where it goes on with what lies between rows */
    LLVMValueRef sums, rows; /* of what goes to FINISH: where, and how many channels */
} window_line;
/* A tile of work has rows y .. of an image, or, where rows are cut (ir_window_cuts_rows), columns x .. of its one row;
 * x NULL: all of them. */
typedef struct window_part {
    LLVMValueRef y, rows, x, columns;
} window_part;
LLVMValueRef window_parts(window *w, LLVMValueRef rows); /* that an image has, of so many rows */
window_part window_part_of(window *w, LLVMValueRef number, LLVMValueRef rows);
LLVMValueRef window_outer_index(window *w, const LLVMValueRef *index); /* along the outer axis; 0: there is none */
/* The slab of a part, of the batch of `index`; z: along the outer axis (window_outer_phase). */
void window_make_slab(window *w, LLVMValueRef *index, LLVMValueRef z, const window_part *part, LLVMValueRef rows);
/* Columns begin .. end - 1 of a line, from channel m0 on, by rows: those past the result's columns are skipped. phase:
 * of rows; NULL: there are none. */
void window_emit_segments(window *w, const window_line *s, LLVMValueRef begin, LLVMValueRef end, LLVMValueRef m0,
                          LLVMValueRef phase);
/* What functions are told of the place that a line begins at: offsets of buffers, then indices of the dims before m,
 * and of y. */
void window_write_block(window *w, LLVMValueRef block, LLVMValueRef *index);
LLVMValueRef window_told(window *w, LLVMValueRef block, int i);
LLVMValueRef window_told_column(window *w, LLVMValueRef block); /* of the result, which the line's columns count from */
void window_read_block(window *w, LLVMValueRef block, LLVMValueRef *off, LLVMValueRef *index);
/* to[] = off[], i places on along dim d: of each buffer; may be off. */
void window_move_offsets(window *w, const LLVMValueRef *off, LLVMValueRef i, int d, LLVMValueRef *to);
struct window_slab;
/* Byte offsets of the elements of K, in order: in the operand or its slab, and in a panel. */
void window_emit_table(window *w, const struct window_slab *slab);

/* ---- window_row.c ---- */
bool window_has_rows(window *w);                    /* is there ROW? Sets few and holds */
void window_emit_row(window *w, window_function f); /* ROW, NARROW_ROW */

/* ---- window_tile.c ---- */
/* What a register tile starts from: pointers to the weights of each row, the operand (columns `step` elements apart, 1
 * or 2) and its table, how many products, which columns. */
typedef struct window_products {
    int nv, step;
    LLVMValueRef row[16], operand, table, count, mask[8][2];
    LLVMValueRef elements; /* of bf16: that those words are */
    struct { /* of a line that goes on from row to row: where a vector begins, and the lanes that are of the next row;
              * next NULL: it is of one row */
        LLVMValueRef at, next, mask;
    } part[8];
    LLVMValueRef held[WINDOW_MAX_TILE]; /* w->holds: the columns, vectors of a product together */
    struct { /* for with each product: lines of the result, from one to the next up to the last, and this one of the
              * element of the operand; NULL: none is */
        LLVMValueRef result, apart, last, operand;
    } prefetch;
} window_products;
/* So many columns of the last vector are there; the mask of them. */
LLVMValueRef window_mask_last(window *w, window_products *p, LLVMValueRef columns);
/* out[i * nv + j] = sum over k < count (few_products: w->few) of row[i][k] * operand[table[k] + j-th vector]. */
void window_emit_products(window *w, const window_products *p, LLVMValueRef out[WINDOW_MAX_TILE]);
/* The columns of all w->few products into registers (w->holds) or the panel, for all rows of weights. */
void window_gather_few(window *w, window_products *p);
void window_emit_few_products(window *w, const window_products *p, LLVMValueRef out[WINDOW_MAX_TILE]);
/* TILE, MASKED, NARROW: (weights, elements between their rows, operand, table, count, dst, before, columns, first):
 * dst[mr][nr] = the products; plus what is there where `before` is not 0, or else (adds) first[mr]. Of pairs the count
 * is of elements, and `first` what window_tell_slow gave. */
void window_emit_tile(window *w, window_function f);
/* sum + a * b, of elements or words. */
LLVMValueRef window_multiply(window *w, LLVMValueRef a, LLVMValueRef b, LLVMValueRef sum);
/* sum[i * nv + j] + first[i] */
void window_add_first(window *w, LLVMValueRef first, LLVMValueRef *sum, int nv);
LLVMValueRef window_load_vector(window *w, LLVMValueRef ptr);
/* v_lanes columns, `step` elements apart, from element `at` on; mask: of the (one or two) vectors that are read, or
 * NULLs. */
LLVMValueRef window_load_columns(window *w, LLVMValueRef base, int at, int step, LLVMValueRef *mask);
/* Which elements of those two vectors are read, of which the second ends with the last element that is wanted.
 * `active`: the columns; NULL: all. */
LLVMValueRef window_active_elements(window *w, LLVMValueRef active, int step, int vector);

/* ---- window_slab.c ---- */
/* Sizes of the slab for tiles of so many rows. */
typedef struct window_slab {
    LLVMValueRef parts[2], extent[2], is_by_place[2]; /* along rows, columns; i1 */
    LLVMValueRef pitch, plane;                        /* elements from row to row, from plane to plane */
} window_slab;
window_slab window_slab_of(window *w, LLVMValueRef rows);
/* Byte offset in it of channel word c and the place whose indices along the axes are given. */
LLVMValueRef window_slab_place(window *w, const window_slab *s, LLVMValueRef c, LLVMValueRef *place);
/* SLAB: (args, first element of the operand's batch, index along the outer axis or 0, first row, rows of a tile, rows
 * of this one) */
void window_emit_slab(window *w);
/* WEIGHTS: (args, begin, end): phase 0, rows begin .. end - 1 of the weights. */
void window_emit_weights(window *w);

/* -128 times the sum of the elements of a row of words. */
LLVMValueRef window_sum_of_row(window *w, LLVMValueRef row);
/* e->lanes weights, `step` elements apart, from element `off` on, as sums are. */
LLVMValueRef window_weights_at(window *w, LLVMValueRef off, LLVMValueRef step, LLVMValueRef mask);
LLVMValueRef window_weights_row(window *w, LLVMValueRef row); /* where row number `row` begins */
/* e->lanes words of weights of channels that follow one another, w->places elements apart, from element `off` on; the
 * channels that are left of the first word. */
LLVMValueRef window_weight_words(window *w, LLVMValueRef off, LLVMValueRef left);
/* Row `first` + i (i < rows) of weights, as words or converted, at dst + i * kk. */
void window_emit_weight_rows(window *w, LLVMValueRef first, LLVMValueRef rows, LLVMValueRef dst);

/* ---- window_channels.c ---- */
void window_set_channels(window *w, LLVMValueRef scratch); /* where what it has lies; scratch: behind the table */
void window_emit_channels(window *w);                      /* the whole kernel, but for FINISH */

/* ---- window_channel_tile.c ---- */
/* What a tile by channel is told. TOLD_SUMS: [mr][nr], which become the sums over k < count of weights[k][nv] *
 * operand[table[k] + row * pitch + column * step]; plus what is there where TOLD_BEFORE is not 0, or else (adds)
 * TOLD_FIRST (of pairs what window_tell_slow gave). Tiles of rows: TOLD_NEXT, weights of which a line is prefetched with
 * each k. Where pads are left out: the rows of places that are met, begin and end; the first one that the first of two
 * rows of a tile meets, and the end of those that the second one meets, or, of a part of a row, whether it is the first
 * part and the last. Where the result is prefetched: its first element of the first channel, bytes to the next one's. */
enum {
    TOLD_WEIGHTS,
    TOLD_OPERAND,
    TOLD_TABLE,
    TOLD_COUNT,
    TOLD_SUMS,
    TOLD_BEFORE,
    TOLD_FIRST,
    TOLD_PITCH,
    TOLD_NEXT,
    TOLD_BEGIN,
    TOLD_END,
    TOLD_FROM,
    TOLD_TO,
    TOLD_RESULT,
    TOLD_APART,
    WINDOW_TOLD
};
int window_n_told(const window *w);                          /* not all are told of what the kernel has not */
void window_emit_channel_tile(window *w, window_function f); /* TILE, NARROW, LAST */
/* Elements of what is read from column to column; columns of a tile's row. */
static inline int64_t window_columns_apart(const window *w) { return w->k->axis[w->k->n_axes - 1].stride; }
/* Elements from the sums of a column to those of the next; what is between them is of other phases. */
static inline int window_sums_apart(const window *w) { return w->nr * w->turns; }
/* The same of the sums that FINISH reads, which are turned unless channels are stored last. */
static inline int window_finish_apart(const window *w) { return w->stores_last ? window_sums_apart(w) : w->turns; }
static inline int window_row_columns(const window *w) { return w->tile_rows ? w->mr / w->tile_rows : w->mr; }
/* ir_window_ahead offsets behind the table: of the columns of the row that come next. */
void window_extend_table(window *w);

/* ---- window_pads.c ---- */
void window_find_pads(window *w);
/* Of w->leaves_out: is place `place` of a row of places a pad before, or behind, the elements, at a column of so many
 * that begin, or end, with the result's row? */
bool window_is_pad(const window *w, int place, int column, int columns, bool is_behind);
/* The rows of places that row y of the result meets any of; all where y < 0. */
void window_rows_met(window *w, LLVMValueRef y, LLVMValueRef *begin, LLVMValueRef *end);
/* The sum of 0 times a vector of packed weights, for all k: 0, or NaN where one is not finite. */
LLVMValueRef window_check_weights(window *w, LLVMValueRef packed, LLVMValueRef apart);
/* PADS: (args, weights, columns, width, sums, y, column): adds what was left out to the sums of a line; where one of
 * the `width` elements at `checked` is NaN. */
void window_emit_pads(window *w);
void window_add_pads(window *w, LLVMValueRef *in, LLVMValueRef checked, LLVMValueRef width);

/* ---- window_band.c: without a band all do nothing, or what there is without, but window_band_offset ---- */
void window_set_band(window *w);                              /* of window_begin: the arguments are loaded */
LLVMValueRef window_rows_made(window *w);                     /* rows of the result that are made */
LLVMValueRef window_tile_of_rows(window *w);                  /* rows of a tile of work */
LLVMValueRef window_band_offset(window *w, LLVMValueRef off); /* of the band, from the tile's first element */
fusor_status window_emit_band(window *w, fu_error *err);      /* BAND */
/* A tile of so many channels and rows is complete; the block has its batches. */
void window_end_tile(window *w, LLVMValueRef block, LLVMValueRef channels, LLVMValueRef rows);

/* ---- window_pairs.c ---- */
LLVMValueRef window_pair_planes(window *w); /* of the slab, for each place of the outer axis and part */
/* The channel of the first elements of a plane, and the ways from them to the second ones. */
LLVMValueRef window_pair_of_plane(window *w, LLVMValueRef plane, LLVMValueRef by[4]);
void window_emit_pair_table(window *w, const struct window_slab *slab);
/* Words of the row of weights at element `off`. */
void window_emit_pair_row(window *w, LLVMValueRef off, LLVMValueRef row);
LLVMTypeRef window_halves(window *w);
LLVMValueRef window_least_of(window *w, LLVMValueRef least, LLVMValueRef words); /* em_lesser_magnitude of a vector */
LLVMValueRef window_slab_exponent(window *w);                                    /* where it lies */
/* The least exponent of `count` vectors of words, `apart` from one to the next; apart NULL: of so many words. */
void window_store_exponent(window *w, LLVMValueRef from, LLVMValueRef count, LLVMValueRef apart, LLVMValueRef to);
/* i1: do the slab's exponent and one of `count` others forbid the instruction? */
LLVMValueRef window_is_slow(window *w, LLVMValueRef exponents, LLVMValueRef count, int apart);
LLVMValueRef window_tell_slow(window *w, LLVMValueRef is_slow); /* in scratch, for a tile: where */
/* At the begin of tile f: where it is told so at `at`, by_fma is called instead. */
void window_leave_if_slow(window *w, window_function f, LLVMValueRef by_fma, LLVMValueRef at, LLVMValueRef *in, int n);

/* ---- window_amx.c ---- */
void window_set_tiled(window *w);  /* where what it has lies */
void window_emit_tiled(window *w); /* the whole kernel, but for FINISH */

/* ---- window_phases.c ---- */
void window_find_phases(window *w);
void window_set_phases(window *w); /* once the sizes are loaded */
/* Elements of K that a phase has; phase: along columns, rows, and the outer axis. */
void window_phase_range(window *w, const LLVMValueRef phase[3], LLVMValueRef *begin, LLVMValueRef *end);
/* The place of index z along the outer axis within its phase; z where there are no phases. */
LLVMValueRef window_outer_phase(window *w, LLVMValueRef z, LLVMValueRef *phase);
void window_emit_phase_table(window *w, const struct window_slab *slab);
void window_pack_phases(window *w, LLVMValueRef off, LLVMValueRef step, LLVMValueRef mask, LLVMValueRef dst,
                        LLVMValueRef apart);
/* Elements of a register tile in scratch. */
static inline int window_tile_elements(const window *w) { return (w->mr * w->nr * w->bytes + 63) / 64 * 64 / w->bytes; }
void window_emit_interleave(window *w); /* TURN by columns */

/* ---- window_pack.c ---- */
/* PANEL: (args, first element of the operand, first column, columns): up to nr columns of the rows as one line, without
 * what lies between: panel[k][column]. Without masks the others are 0. */
void window_emit_panel(window *w);

/* ---- window_depthwise.c ---- */
void window_emit_depthwise(window *w); /* the whole kernel */
#endif
