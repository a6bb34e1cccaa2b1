/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_KERNEL_H
#define IR_KERNEL_H
/* The description of one kernel: what the planner makes, what is the cache key's main part, what code generation reads
 * and what the executor launches. All that jit and rt share.
 *
 * A kernel iterates over a space of dims. Each buffer has a stride (elements) for each dim; 0 = does not vary along it.
 * The program is a list of scalar instructions in SSA order; each value varies along the dims of what it loads. A load
 * may have operands: an element offset added to its address (a gather), and a guard (padding): where that is false
 * nothing is read.
 *
 * kind      dims, outer to inner      program
 * map       p...                      loads, element-wise, stores; the last dim is vectorized
 *           p... t p  (transposed)    the same; some loads are contiguous along t, the stores along the last dim
 * reduce    p... r... (inner)         loads, element-wise, reductions; element-wise on their results; stores of both
 *           p... r... v (column)      the same, vectorized along the kept dim v
 * row       p... r...    (inner)      as reduce, but values per element may use results of reductions (softmax): the
 *           p... r... v  (column)     passes over a row follow from the data flow; a row, or a chunk of its columns, is
 *                                     one unit of work
 * scan      p... r    (inner)         loads, element-wise, exactly one running sum or product along r, element-wise on
 *           p... r v  (column)        it and stores, all per element; vectorized along r, or along the kept dim v
 * contract  b... y... j... m n k      exactly one MATMUL instruction: operand 0 varies along b, j, m, k and operand 1
 *                                     along b, y, j, k, n: y are further dims of columns, j of products, outer to n and
 *                                     k (each a load or element-wise on loads: evaluated while packing); the epilogue
 *                                     (element-wise over b, y, m, n) runs on the register tile. With reductions, which
 *                                     are along n: a row program as in a row kernel runs on complete rows
 *                                     (kernel_rows.c)
 * attention b... [h] m n k j [g]      exactly one ATTENTION instruction (below) of queries m, keys j, head size k,
 *                                     values n; the epilogue (element-wise over b, h, m, n) runs on whole rows. h and
 *                                     g: query heads and the fewer key heads; g has no loop, its index is that of
 *                                     h / (heads h / heads g)
 * window    b... m y n k...           a convolution: exactly one MATMUL instruction of two plain loads of the
 *                                     accumulator type: operand 0, the weights, varies along b, m, k, and its dims k
 *                                     are one in memory, of stride 1; operand 1 varies along b, y, n, k: element k of
 *                                     column n of row y is at the sum of all strides. Epilogue over b, m, y, n. With
 *                                     axes (ir_kaxis) on a CPU the loads are of any type, converted or not, and what
 *                                     they read lies within pads of zeros; with pads on a GPU, and in the form for one
 *                                     channel a group, that load has a guard
 *           b m y n k... q w          with a band: a map over b, m, q, w reads rows of the epilogue's one value, which
 *                                     is stored in scratch (kernel_band.c)
 *
 * Random numbers are instructions of two operands: the seed, and the row-major number of the element, both i64.
 *
 * Baked: sizes of 1 never appear as dims (but of m, y, n, q, w); a size known as an integer up to 64 in dim r, n, k, w
 * (and the last p of a map) is baked (attention: n and k; and in dim m of a direct contraction, as are its strides);
 * strides 0 and 1 are baked, and for loads 2, 3, 4 and -1 (maps on a CPU: to -4) along the last dim (and the last p
 * before a baked r). Everything else is read from the arguments. Baked and run-time forms give the same bits. */
#include "ir/op.h"
#include "ir/schedule.h"

#define IR_KERNEL_ABI 1
enum {
    IR_KERNEL_MAX_DIMS = 10,
    IR_KERNEL_MAX_BUFFERS = 256,
    IR_KERNEL_MAX_INSTS = 512,
    IR_TUNE_COUNT = 8,
    IR_BAKE_MAX = 64,
    IR_COLUMN_BYTES = 512 /* most that a column of a row kernel's column form has of its operand */
};

typedef enum ir_kernel_kind {
    IR_KERNEL_MAP,
    IR_KERNEL_REDUCE,
    IR_KERNEL_ROW,
    IR_KERNEL_CONTRACT,
    IR_KERNEL_SCAN,
    IR_KERNEL_WINDOW,
    IR_KERNEL_ATTENTION,
    IR_KERNEL_KIND_COUNT
} ir_kernel_kind;
extern const char *const ir_kernel_kind_names[IR_KERNEL_KIND_COUNT]; /* "map" ... */

#define IR_SIZE_RUNTIME   (-1)
#define IR_STRIDE_RUNTIME INT64_MIN
typedef struct ir_kdim {
    char role;    /* p t r v b m y n k h j g q w, above */
    int64_t size; /* baked, or IR_SIZE_RUNTIME */
} ir_kdim;
typedef struct ir_kbuffer {
    ir_dtype dtype;
    bool is_output;
    int64_t stride[IR_KERNEL_MAX_DIMS]; /* baked, or IR_STRIDE_RUNTIME */
    /* map, and the map behind a window: 1 + the input that this one is an element behind, columns of both 2 apart */
    uint8_t behind;
    bool is_band; /* window with a band: rows of it lie in scratch; its address in the arguments is a byte offset */
} ir_kbuffer;

/* window: place p of column i, along one spatial axis, is element i * stride + p * dilation - begin of `size` there
 * are; outside are zeros. dim, place: of the kernel's dims; -1: of size 1. The operand's elements lie one after the
 * other, axis by axis, and where its load has a guard its buffer begins at element -begin of each. end: so many zeros
 * behind them are met (or fewer than none); in the form by channel, else 0. */
enum { IR_KERNEL_MAX_AXES = 3 };
typedef struct ir_kaxis {
    int dim, place;
    int64_t stride, dilation, begin, end;
    uint16_t size; /* an IR_K_SCALAR instruction */
    int up;        /* 0, or of a transposed convolution, below */
} ir_kaxis;
/* Transposed (on a CPU, with a slab; then of all axes): element i and place p meet at column i * up + p * dilation -
 * begin; stride is 1. The columns that are r modulo `up`, a phase, meet the same places: each phase is a convolution of
 * its own with strides of 1, of which column q is column q * up + r of the result. All read one slab. In phase r place
 * first - j * step (j < places) meets element q + from + j * along; its places are behind those of the phases before.
 * K has the phases one after the other, in row-major order over the axes; of each the channels, then its places. */
enum { IR_UP_MAX = 16, IR_UP_REACH = 1024 }; /* most of up; of pads, and of (places - 1) * dilation */
typedef struct ir_phases {
    int n;                /* up */
    int64_t step, along;  /* 0: no phase has two places */
    int64_t begin, reach; /* of the slab: zeros before the operand; elements behind the first that a column meets */
    struct {
        int64_t places, first, from, before;
    } phase[IR_UP_MAX];
} ir_phases;

/* map: values that go from row to row, along the last dim but one: instruction to[i] is at each row what from[i] is at
 * the row before (the windows of a pool overlap). n = 0: there are none. */
enum { IR_KERNEL_MAX_SLIDE = 16 };
typedef struct ir_kslide {
    int n;
    uint16_t to[IR_KERNEL_MAX_SLIDE], from[IR_KERNEL_MAX_SLIDE];
} ir_kslide;

/* Instruction codes beyond the operators of ops.def (which keep their ir_op number). */
enum { IR_K_LOAD = IR_OP_COUNT, IR_K_STORE, IR_K_SCALAR, IR_K_INDEX, IR_K_COUNT };
enum { IR_LOAD_OFFSET = 1, IR_LOAD_GUARD = 2 }; /* variant of IR_K_LOAD: which operands it has, in this order */
enum { IR_STORE_OFFSET = 1 };                   /* variant of IR_K_STORE */
enum { IR_SCAN_EXCLUSIVE = 1, IR_SCAN_REVERSE = 2 };
/* variant of ATTENTION: which operands follow q (varies along b, h, m, k), k (b, g, j, k), v (b, g, j, n) and the scale
 * of the scores: what caps them (cap * tanh(score / cap)), a mask (bool: true keeps the key; or added to the score),
 * the least and the greatest j - i that is kept (i64). Scale, cap and bounds vary along nothing; the first two are of
 * the accumulator type. NAN: no operand; a row whose scores are all -infinity is NaN, not 0. */
enum {
    IR_ATTENTION_CAP = 1,
    IR_ATTENTION_MASK = 2,
    IR_ATTENTION_LOW = 4,
    IR_ATTENTION_HIGH = 8,
    IR_ATTENTION_NAN = 16
};
enum { IR_KINST_MAX_IN = 8 };
typedef struct ir_kinst {
    uint16_t op;    /* ir_op, or IR_K_LOAD (index = buffer; operands by variant: an i64 element offset, a bool
                                       without which nothing is read and the value is 0), IR_K_STORE (index = buffer, in[0]; variant IR_STORE_OFFSET:
                                       in[1] is an i64 element offset, and the last dim is walked in order: maps only),
                                       IR_K_SCALAR (index = scalar argument), IR_K_INDEX (index = dim: the i64 index along it) */
    ir_dtype dtype; /* of the result (STORE: of what is stored) */
    uint8_t n_in;
    uint16_t in[IR_KINST_MAX_IN]; /* instruction numbers; scalar attributes (alpha, beta) follow the operands */
    uint16_t index;
    uint16_t variant; /* value of the operator's ENUM attribute; argmax: 1 = select_last; scans: IR_SCAN_* bits;
                                       attention: IR_ATTENTION_* bits */
    bool
        is_kept; /* row: computed once, kept for later passes in an output's row or the worker's; contract: a value before
                                       all reductions: what the row program reads of the tile's */
} ir_kinst;

typedef struct ir_kernel {
    ir_kernel_kind kind;
    ir_level level;
    ir_features features; /* beside the level: those that this kernel uses */
    int n_dims, n_buffers, n_scalars, n_insts;
    ir_kdim dim[IR_KERNEL_MAX_DIMS];
    ir_kbuffer buffer[IR_KERNEL_MAX_BUFFERS];
    ir_dtype scalar[IR_KERNEL_MAX_INSTS]; /* dtype of each scalar argument */
    ir_kinst inst[IR_KERNEL_MAX_INSTS];
    ir_tile tile;            /* contract, window, attention; zeros else */
    int last_columns;        /* contract: of the last panel, whole vectors, where it has a tile of its own; 0: as others */
    bool is_direct;          /* contract: the form for small operands, below */
    bool can_sweep;          /* contract: it has code for IR_CONTRACT_B_SWEPT ("form sweep") */
    bool is_depthwise;       /* window: the form for one channel a group, below */
    bool is_by_channel;      /* window: the form whose vectors are channels made, below */
    bool has_whole_channels; /* of that: m, in whole vectors, is a multiple of nr */
    bool has_last;           /* of that: the operand's channels lie last, and are a multiple of a vector */
    bool has_lower;          /* of that: where registers are many, rows are cut into tiles of mr and mr - 1 columns */
    int n_folded;            /* of the TILE_ form: axes, from the last on, whose places count as channels */
    int n_axes;              /* window: outer to inner; 0: they are not told */
    ir_kaxis axis[IR_KERNEL_MAX_AXES];
    ir_kslide slide;
    int64_t band_rows; /* window with a band: rows of y for each row of q; 0: it has none */
    bool is_each;      /* on a GPU: one launch over many sets of arguments (ir/gpu.h) */
    int only_tile;     /* on a GPU, contract and window: 1 + the one tile that there is code for; 0: all (ir/gpu.h) */
    bool fast_math;
} ir_kernel;

/* ---- arguments: the ABI of generated code. Offsets are fixed; codegen.c asserts them. ---- */
typedef struct ir_kernel_args {
    uint32_t version, phase;     /* IR_KERNEL_ABI; 0-based phase */
    int64_t tune[IR_TUNE_COUNT]; /* run-time fields, by kind: enum below */
    void *const *buffer;         /* n_buffers first-element pointers */
    const int64_t *size;         /* n_dims sizes (baked ones too) */
    const int64_t *stride;       /* n_buffers * n_dims strides, row by buffer (baked ones too) */
    const uint64_t *scalar;      /* n_scalars, each in its dtype's bits, zero-extended */
    void *scratch;               /* of this worker, ir_launch.scratch_bytes, 64-byte aligned */
    void *shared;                /* of this call, ir_launch.shared_bytes, 64-byte aligned; kept between phases */
    void *kept;                  /* of this call, ir_launch.kept_bytes, 64-byte aligned; kept between phases */
} ir_kernel_args;
/* Runs tiles [begin, end) of args->phase. 0 = done. */
typedef int (*ir_kernel_fn)(const ir_kernel_args *args, int64_t tile_begin, int64_t tile_end);

enum { IR_PAGE_BYTES = 4096 }; /* what a hardware prefetcher follows a stream within */

enum {
    /* map: the space is rows (all dims but the last) x columns (the last); a tile is a block of both. Transposed: rows
     * are along t, and a tile has one place in the dims before it; both multiples of 16 unless they cover the dim */
    IR_TUNE_MAP_ROWS = 0,
    IR_TUNE_MAP_COLUMNS = 1, /* >= 1; columns a multiple of 64 unless it covers the dim */
    IR_TUNE_MAP_STREAM = 2,  /* 1: non-temporal stores where the kernel has them */
    /* reduce: phase 0 tiles are (p rows x partials), phase 1 tiles are p rows; grain = units per tile */
    IR_TUNE_REDUCE_GRAIN = 0,
    IR_TUNE_REDUCE_FINISH_GRAIN = 1,
    IR_TUNE_REDUCE_COLUMNS = 2, /* column form: columns per unit, a multiple of 64 */
    /* scan: lines (inner form: or their blocks, column form: and chunks of columns) per tile of phase 2 and of phase 0;
     * inner form: 1 = a line is split into its blocks, whose totals come first; column form: columns per chunk, a
     * multiple of 64 */
    IR_TUNE_SCAN_GRAIN = 0,
    IR_TUNE_SCAN_TWO_PHASES = 1,
    IR_TUNE_SCAN_COLUMNS = 2,
    /* row: units per tile: rows, column form: chunks of columns of rows; column form: columns of a chunk */
    IR_TUNE_ROW_UNITS = 0,
    IR_TUNE_ROW_COLUMNS = 1,
    /* window: rows (of dim y) of a tile, which has all of m; with a band they are made whole rows of q. How many of m
     * go over these rows at a time (by channel: how many of m a tile has, a multiple of nr) */
    IR_TUNE_WINDOW_ROWS = 0,
    IR_TUNE_WINDOW_CHANNELS = 1,
    /* depthwise form: columns of a tile, a multiple of nr; rows are one of mr then. ir_window_cuts_rows: columns of a
     * tile, < 1: all */
    IR_TUNE_WINDOW_COLUMNS = 2,
    IR_TUNE_WINDOW_SHARE = 3, /* in tile registers: channels of a tile, in whole panels of 32; < 1: all */
    /* contract: output block of a tile: multiples of mr and nr */
    IR_TUNE_CONTRACT_MC = 0,
    IR_TUNE_CONTRACT_NC = 1,
    IR_TUNE_CONTRACT_B = 2, /* how operand 1 is read: below */
    /* 1: operand 0 is read where it lies. Ignored where ir_kernel_contract_a_in_place is false. */
    IR_TUNE_CONTRACT_A_IN_PLACE = 3,
    /* with a row program: 0: a block is as wide as n, and its worker goes on with its rows; else rows are made by phase
     * 2, this many a tile, and lie in `kept` until then */
    IR_TUNE_CONTRACT_ROWS = 4,
    /* mr = 1: bytes at the begin of each page of packed panels that are prefetched, IR_PAGE_BYTES: all */
    IR_TUNE_CONTRACT_PAGE_HEAD = 5,
    IR_TUNE_CONTRACT_PREFETCH = 5, /* tiles: which results are prefetched before they are written: below */
    /* Tiles (ir_dot_is_tile): words along k, a multiple of a step's (ir_dot_words), of the parts that a K block is made
     * in, one after the other, less than a step's: all of it; and panels of columns that each part meets before the
     * next part, >= 1, where operand 1 is packed as a whole. No bit depends on them. */
    IR_TUNE_CONTRACT_PART = 6,
    IR_TUNE_CONTRACT_GROUP = 7,
    /* attention: panels of queries in a tile, >= 1 */
    IR_TUNE_ATTENTION_PANELS = 0
};

/* IR_TUNE_CONTRACT_B. Packed as a whole by phase 0, into shared, which serves later calls; where it lies (for few
 * rows); or each panel and K block packed by the block that needs it, into scratch; or where it lies, some of its rows
 * at a time for all columns of the block (for very few rows). But for the first, phase 0 has no tiles and shared is not
 * used. In place counts as by the block where ir_kernel_contract_in_place is false, and swept where
 * can_sweep is, or K no multiple of IR_SWEPT_STEPS. */
enum { IR_CONTRACT_B_PACKED, IR_CONTRACT_B_IN_PLACE, IR_CONTRACT_B_BY_BLOCK, IR_CONTRACT_B_SWEPT };

/* IR_TUNE_CONTRACT_PREFETCH: no results; those written soon behind a panel's products, or beside the next one's where
 * they are only rounded; all that are finished beside the next one's too. */
enum { IR_CONTRACT_PREFETCH_NONE, IR_CONTRACT_PREFETCH_SOON, IR_CONTRACT_PREFETCH_ALL };

/* How a call of given sizes is laid out: pure arithmetic on the description, the sizes and the run-time fields. */
enum { IR_MAX_PHASES = 3 };
typedef struct ir_launch {
    int n_phases; /* at least 1; a barrier between them */
    int64_t tiles[IR_MAX_PHASES];
    int64_t scratch_bytes, shared_bytes, kept_bytes;
} ir_launch;
/* contract, direct form ("form direct" in the text): m, n and k are baked, up to IR_BAKE_MAX, as are the strides of the
 * operands along them; operand 0 is a load of the accumulator type that is read where it lies. So is operand 1 where it
 * is such a load, contiguous along n; else each batch of it is packed into scratch. One phase, whose tiles are batches;
 * or, where ir_kernel_cuts_rows, IR_TUNE_CONTRACT_MC rows of the one there is, in the last tile all that are left. No
 * other run-time field matters. */
bool ir_kernel_can_be_direct(
    const ir_kernel *k); /* launch_contract.c: does the description say all of that, but for the tile? */
bool ir_kernel_cuts_rows(const ir_kernel *k); /* direct form */
void ir_kernel_launch(const ir_kernel *k, const int64_t *size, const int64_t *tune, ir_launch *out);
void ir_launch_contract(const ir_kernel *k, const int64_t *size, const int64_t *tune,
                        ir_launch *out); /* launch_contract.c */
void ir_launch_window(const ir_kernel *k, const int64_t *size, const int64_t *tune,
                      ir_launch *out); /* launch_window.c */
fusor_status ir_verify_window(const ir_kernel *k, fu_error *e);
/* contract: accumulator type, and the part of `scratch` before the packed block of operand 0. Layout of scratch: one
 * register tile [mr][nr], rows being transposed [max(mr, nr)][lanes], in tiles (AMX) a second tile, unless operand 1 is
 * packed as a whole a panel of it [min(K, kb)][nr], each of the accumulator type and rounded up to 64 bytes; unless
 * operand 0 is read in place, the packed block [panels][min(K, kb)][mr] and lanes * (mr + 1) elements that the last
 * stores may touch; where K > kb, partial sums of the output block [n panels][m panels][mr][nr]; where K blocks are
 * made in parts, the sums of a group's [panels][m panels][mr][nr]; where operand 1 is swept, of the block's. Direct
 * form: a tile and rows as above, where operand 1 is packed [n panels][K][nr] of it. Layout of shared: [batches of
 * operand 1][n panels][K][nr]: all that phase 1 needs of phase 0. With an ir_dot, K and kb count words there
 * (ir_dot_words), and each K block of a panel begins with its heads[]. K = 0: a head all the same. Of tiles, a panel of
 * operand 0 is [words / 16][mr][16]; where its words are made ready or computed row by row, [rows][min(K, kb)]. */
ir_dtype ir_kernel_contract_acc(const ir_kernel *k);
ir_dot ir_kernel_contract_dot(const ir_kernel *k);
/* Tile and rows; a second tile, where products are in tiles (AMX); IR_ROW_SLOTS more with a row program. */
int64_t ir_kernel_contract_head_bytes(const ir_kernel *k);
/* Words of the parts that a K block of so many words is made in: all of them, where it is made as a whole. */
int64_t ir_contract_part(const ir_kernel *k, const int64_t *tune, int64_t words);
/* contract, in tiles: the buffer that IR_TUNE_CONTRACT_PREFETCH speaks of, the first that lines of results go to as they are
 * made; -1: there is none. */
int ir_contract_prefetched(const ir_kernel *k);
/* Columns of the last panel, in whole vectors, for which it gets a tile of its own; n: as the text has it, -1 where it
 * does not. 0: none, as they would fill a tile, or there are many panels. */
int ir_kernel_last_columns(const ir_kernel *k, int64_t n);
bool ir_kernel_contract_in_place(
    const ir_kernel *k); /* operand 1 is a load of the accumulator type, contiguous along n */
/* May the description say can_sweep? Operand 1 is read in place, and n and k are one dim each. */
enum { IR_SWEPT_ROWS = 8, IR_SWEPT_STEPS = 4 }; /* rows for which it pays; rows of operand 1 at a time */
bool ir_kernel_can_sweep(const ir_kernel *k);
bool ir_kernel_contract_a_in_place(
    const ir_kernel *k); /* operand 0 is a load of the accumulator type, or words of bytes (DOT_I8)
                                                           as they lie: where K is whole words */
/* window, depthwise form ("form depthwise" in the text): one channel a group (the dims k are places, baked), with its
 * axes. Tiles of mr rows x nr columns read scratch, in which the part of the operand that they meet lies with its pads:
 * [mr][nr] elements, a register tile; then `lead` elements, and [planes][rows][parts][pitch]: a plane for each place
 * along the axes but the last two, as many rows as the result's rows meet, and of each the elements whose number, pads
 * included, is `first` + a multiple of the stride. Along the last axis place p of column 0 is element `at` of part
 * `part`. */
typedef struct ir_depthwise {
    int places[IR_KERNEL_MAX_AXES]; /* along the last three axes; 1 for those that are not there */
    int n_parts, lead;
    int first[IR_BAKE_MAX], part[IR_BAKE_MAX], at[IR_BAKE_MAX];
} ir_depthwise;
enum { IR_DEPTHWISE_PLACES = 64, IR_DEPTHWISE_REACH = 1024, IR_DEPTHWISE_STRIDE = 16, IR_DEPTHWISE_CHANNELS = 4 };
bool ir_kernel_can_be_depthwise(const ir_kernel *k); /* kernel_depthwise.c: does the description say all of that? */
ir_depthwise ir_kernel_depthwise(const ir_kernel *k);
/* Where the level has masks, the size of n is baked and no more than a vector, and the places are few, nothing is
 * copied: masked loads leave out the pads. IR_DEPTHWISE_ZEROS elements of scratch are a row of pads. */
enum { IR_DEPTHWISE_ZEROS = 64 };
bool ir_depthwise_in_place(const ir_kernel *k);
int64_t ir_depthwise_rows(const ir_kernel *k, int64_t rows);     /* of the operand, for so many of the result */
int64_t ir_depthwise_pitch(const ir_kernel *k, int64_t columns); /* of a part, for so many columns of the result */
void ir_launch_depthwise(const ir_kernel *k, const int64_t *size, const int64_t *tune, ir_launch *out);
fusor_status ir_verify_slide(const ir_kernel *k, fu_error *e); /* kernel_slide.c, as its text: "slide %TO %FROM .." */
void ir_print_slide(fu_str *o, const ir_kslide *s);
bool ir_parse_slide(const char *line, ir_kslide *s);
fusor_status ir_verify_axes(const ir_kernel *k, fu_error *e);
/* window with a band (kernel_band.c): its head is the convolution, which stores one value, its tail a map over b, m, q,
 * w that reads it, and what else it likes: the windows of a pool that do not overlap along rows. Row i of q is made of
 * rows i * band_rows .. of y. A tile of work has whole such rows: the head's go to a band, [channels of the tile][rows
 * of the tile][n] at the begin of the worker's scratch, then the tail reads them there. Both programs are kernels with
 * the numbers of the whole; the dims of the tail are its own, and from[i] is number i's in the whole. */
enum { IR_BAND_ROWS = 64 }; /* most of band_rows */
void ir_kernel_head(const ir_kernel *k, ir_kernel *out);
void ir_kernel_tail(const ir_kernel *k, ir_kernel *out, int from[IR_KERNEL_MAX_DIMS]);
int ir_kernel_band(const ir_kernel *k);      /* the buffer that the head stores to */
int ir_kernel_tail_dims(const ir_kernel *k); /* the last ones, q and w; 0 without a band */
/* Up to 2^52 iterations; above it, products of sizes in launches might leave 64 bits. No machine gets there in a
 * year. */
bool ir_kernel_is_countable(const ir_kernel *k, const int64_t *size);
/* Rows of y that the tail needs; without a band: all. */
int64_t ir_band_rows_made(const ir_kernel *k, const int64_t *size);
int64_t ir_band_tile_rows(const ir_kernel *k, int64_t rows); /* so many, or more: whole rows of q */
int64_t ir_band_bytes(const ir_kernel *k, const int64_t *size, int64_t rows, int64_t channels); /* of such a tile */
fusor_status ir_verify_band(const ir_kernel *k, fu_error *e);
/* window: its scratch is the offsets of K elements (i64), those of a packed panel, the register tile [mr][nr], the
 * packed panel [K][nr], and a vector behind it that loads may touch; each rounded up to 64 bytes. With a slab, that
 * comes after the panel: what a tile of rows reads of the operand, with its pads, as elements of the accumulator type
 * or words of an ir_dot, and a vector more; and where ir_kernel_window_packs phase 0 turns the weights into such:
 * shared is [rows of weights][K], and where ir_kernel_window_adds [rows] sums. K counts words of channels; words of
 * bf16 (ir_window_has_pairs) are of two elements that follow one another, and behind them are least exponents. */
const ir_kinst *ir_kernel_window_operand(const ir_kernel *k, int i); /* the load, behind conversions */
bool ir_kernel_has_slab(
    const ir_kernel *k); /* axes on a CPU, not in the form for one channel a group: all below is of these */
/* By the types it multiplies; but TILE_ forms by the features it says to use: so whether they serve is the plan's to
 * say (plan_window.c), and operands may be f32 that were converted from such halves by another kernel. */
ir_dot ir_kernel_window_dot(const ir_kernel *k);
/* TILE_ form (jit/window_amx.c): tiles of 32 channels x 32 columns. K is places, then channels, filled up with zeros to
 * whole steps; of folded axes (n_folded) the places are channels, within each. Weights are packed as [parts][panels of
 * 32 channels][steps][32][64 bytes], and of heads (ir_dot_info) one word a panel is behind them; the slab has a plane
 * for each word of channels, an odd number of lines, and the tile reads a line of all rows, with what lies between
 * them: up to 31 columns behind the last one may be touched. Scratch: offsets of steps (i64), two tiles of sums, the
 * slab. */
bool ir_window_is_tiled(const ir_kernel *k);
int64_t ir_window_folded(const ir_kernel *k, const int64_t *size); /* places of its folded axes */
enum { IR_SLAB_HEAD = 64 }; /* bytes at the begin of its scratch, behind the band if there is one */
bool ir_kernel_window_packs(const ir_kernel *k);
/* Is what is behind the sums (of a head, without what is behind the band) worth to be many times in the code, so that
 * they go from registers to the outputs? */
bool ir_window_is_small(const ir_kernel *k);
bool ir_kernel_window_adds(
    const ir_kernel *k); /* 128 was added to the operand's elements: the weights' sums times -128 go in */
int ir_kernel_window_channels(const ir_kernel *k); /* with axes: the dim k that is no place of an axis; -1: of size 1 */
/* The slab: for each word of channels and each place of the outer axes, planes: those of one part of rows and of
 * columns each, [part of rows][part of columns]. A stride of s takes every s-th element, so a part is the elements that
 * are the same mod s: place p of the axis begins at element p * dilation / s of part p * dilation mod s; or each place
 * has a part of its own, where that is less. By channel a plane is an odd number of lines of a cache, whatever its rows
 * and columns are. */
typedef struct ir_slab_axis {
    int64_t parts, extent; /* extent: elements of a part */
    bool is_by_place;
} ir_slab_axis;
ir_slab_axis ir_kernel_slab_axis(const ir_kernel *k, int axis, const int64_t *size, int64_t count);
/* Of a tile of so many rows and columns (of a phase). */
int64_t ir_kernel_slab_bytes(const ir_kernel *k, const int64_t *size, int64_t rows, int64_t columns);
/* Is the result one row for sure, so that tiles of work are columns of it? (1-D convolutions, which else were one tile
 * an image and had all of the operand in their slab.) */
bool ir_window_cuts_rows(const ir_kernel *k);
/* Columns of a tile, by what is tuned: n or fewer. */
int64_t ir_window_tile_columns(const ir_kernel *k, const int64_t *size, const int64_t *tune);
/* Words of two bf16 (DOT_BF16): elements 2t and 2t + 1 of K, whose order is that of all targets: so they lie in the
 * operand one place along an axis, or one channel, apart, and the slab has a plane of words for each way that they do
 * (jit/window_pairs.c): of each channel one for each axis along which first elements are followed, and, where places
 * are odd, one of every second channel, whose last place is followed by the next channel's first. The second half of
 * the last word of an odd K is no element: 0 in the slab, -0 in the weights. K blocks are even. */
bool ir_window_has_pairs(const ir_kernel *k);
/* Ways from the first element of a word of bf16 to the second, by columns, rows, outer axis, channels: kind 0 ..
 * n_kinds - 1 of each channel, and one more of every second channel where a word has elements of two (`crosses`).
 * kind_of: of words whose first element is followed along that axis. */
typedef struct ir_window_pairs {
    int n_kinds;
    bool crosses;
    int kind_of[4];
    int64_t places[3], by[4][4];
} ir_window_pairs;
/* False: the kernel has no such words (odd K blocks, transposed, sizes of its places unknown). */
bool ir_window_pairs_of(const ir_kernel *k, ir_window_pairs *out);
int64_t ir_window_places(const ir_kernel *k, int number); /* of axis `number` from the last on; 1: there is none */
/* Transposed: */
/* Of axis `number` from the last on: 0 columns, 1 rows, 2 the outer ones; one phase of one place if there is none. */
ir_phases ir_kernel_phases(const ir_kernel *k, int number);
bool ir_kernel_is_transposed_window(const ir_kernel *k);
/* Columns of a phase along dim d of the result, of which there are `size`; size itself where d is of no such axis. */
int64_t ir_window_size(const ir_kernel *k, int d, int64_t size);
/* By channel ("form channels" in the text): a kernel with a slab whose register tile is mr columns x nr channels,
 * lanes along the channels; where the size of n is baked and divides mr, the columns of mr / n whole rows. Weights are
 * always packed, as [vectors / nv][K][nr], then, of a last tile of less, each vector alone as [K][lanes]; channels
 * that are not there hold anything. "form channels whole": there is no such last tile, nor code for it. The slab has no
 * parts: rows are the operand's, with pads, as far as results meet them; mr columns behind it may be touched. It is not
 * made where the operand can be read as it lies. Scratch: the offsets; sums [columns][nr], then turned [nr][columns],
 * for ir_window_columns; the slab (or, in phase 0, `lanes` rows of words).
 * "form last": the operand's channels lie behind its places (one or two axes); blocks of a vector of them are turned
 * into the slab. Where what it stores has its channels last, the sums are not turned. */
enum { IR_CHANNELS_STRIDE = 64 };            /* most along columns; a plan asks it of every axis */
int ir_window_tile_rows(const ir_kernel *k); /* whole rows that its tile is; 0: columns of one */
/* Is there a tile of one column less, by channel? A row of the result then is cut into tiles of both, so that no column
 * is done twice. Of few registers always; else where the plan says that it serves (ir_window_is_cut). */
bool ir_window_has_lower(const ir_kernel *k);
/* Are products with the pads of rows and columns left out, where a tile can know them? So long as all weights are
 * finite that changes no sum but the sign of one that is 0, which ir_window_drops_sign makes +. Then K blocks are whole
 * channels, a tile goes from row to row of the places, and shared has, behind the weights, of each of their vectors the
 * sum of its products with 0: 0, or NaN. */
bool ir_window_leaves_out(const ir_kernel *k);
/* Is there a word for each row of weights behind them in shared: a sum (ir_kernel_window_adds, ir_window_leaves_out) or
 * the least exponent (ir_window_has_pairs)? */
bool ir_window_has_row_words(const ir_kernel *k);
/* Is a sum whose products all underflow +0, never -0? By columns too, so that all forms give the same bits; not where
 * there are so few products that the addition would be felt (where their number is not known here, it is looked at when
 * the kernel runs), nor for places of one. */
bool ir_window_drops_sign(const ir_kernel *k);
int ir_window_ahead(const ir_kernel *k);       /* places behind the offsets: of what comes next, to prefetch it ahead */
int64_t ir_window_turns(const ir_kernel *k);   /* phases along columns, whose columns take turns in the result */
int64_t ir_window_columns(const ir_kernel *k); /* most columns between two turns: tiles, in all less than 64 or one */
int64_t ir_kernel_window_step(const ir_kernel *k); /* stride of operand 1 along n, or IR_STRIDE_RUNTIME */
/* attention: kernel_attention.c. Queries are taken in panels of nr, keys in blocks of kb; up to ir_attention_rows
 * queries are taken one by one instead, and long rows of keys by parts, which a second phase merges. Layout of scratch,
 * in elements of the accumulator type, with D and E rounded up to lanes: keys [kb][D] and values [kb][E] where they are
 * packed; scores [kb][nr]; factors [nr]; rows [nr][max(D, E)]; with a mask its rows [nr][kb] and the same turned
 * [kb][nr]; for each panel queries [D][nr], results [E][nr], largest scores [nr], sums [nr]; with a dot, behind
 * the factors, one element in a row [nr] (the least exponent of keys), and in each panel a row for that of its
 * queries; words lie where the queries and keys do as accumulators; where weights are split, their parts lie where
 * the scores do, and behind that row values turned [E][kb] and products [nr][nr] (one by one: queries [m][D], and as a
 * part: results [m][E], largest scores and sums [lanes]). Layout of shared: for each part and batch results [m][E],
 * largest scores and sums [lanes]. */
typedef struct ir_attention_dims {
    int h, m, n, k, j, g; /* dims; h, g: -1 without groups */
} ir_attention_dims;
ir_attention_dims ir_kernel_attention_dims(const ir_kernel *k);
ir_dtype ir_kernel_attention_acc(const ir_kernel *k);
ir_dot ir_kernel_attention_dot(const ir_kernel *k);  /* of the scores; panels alone */
bool ir_kernel_attention_splits(const ir_kernel *k); /* with it: weights meet the values in two parts of bf16 each */
int ir_attention_rows(const ir_kernel *k);
/* Most parts that the keys of a batch may be in; each has IR_ATTENTION_PART keys or more. */
enum { IR_ATTENTION_PART = 1024, IR_ATTENTION_PARTS = 64 };
int64_t ir_attention_parts(const ir_kernel *k, int64_t batches, int64_t queries, int64_t keys, int64_t *length);
void ir_launch_attention(const ir_kernel *k, const int64_t *size, const int64_t *tune, ir_launch *out);
fusor_status ir_verify_attention(const ir_kernel *k, const uint32_t *varies, fu_error *e);
/* reduce and row: number of partial results of one reduction = product of outer r sizes * blocks of the last r. */
int64_t ir_kernel_partials(const ir_kernel *k, const int64_t *size);

/* reduce, inner form, one r dim of a baked size: each row is one partial result, and phase 0 finishes it. */
bool ir_kernel_is_one_phase(const ir_kernel *k);

/* ---- data flow, used by code generation and launch alike ---- */
/* Bit d set = the value varies along dim d (loads: nonzero stride or output; reductions clear their r dims). */
uint32_t ir_kernel_varies(const ir_kernel *k, int inst);
void ir_kernel_vary_all(const ir_kernel *k, uint32_t varies[IR_KERNEL_MAX_INSTS]);
/* Marks an instruction and all that it is made of. */
void ir_kernel_mark(const ir_kernel *k, int inst, bool *is_marked);
/* What is not needed becomes an index that nobody asks for: numbers stay, and so do lines of the description. */
void ir_kernel_keep(ir_kernel *k, const bool *is_needed);
/* Buffers that no load or store has vary along nothing: they cost no address. */
void ir_kernel_keep_addresses(ir_kernel *k);
int ir_kernel_dim(const ir_kernel *k, char role); /* the first one of this role; -1: there is none */
/* Pass of a row or reduce kernel in which a value is first known: 0 for what needs no reduction, 1 + pass of the
 * operands for a reduction's result. Values of pass p per element are computed while sweeping the row for the p-th
 * time. */
int ir_kernel_pass(const ir_kernel *k, int inst);
const ir_kinst *ir_kernel_matmul(const ir_kernel *k); /* its product, the only one; NULL: it has none */
bool ir_kernel_is_reduce_op(uint16_t op);            /* REDUCE and ARGREDUCE kinds */
bool ir_kernel_is_scatter(const ir_kernel *k);       /* a store has an offset */
bool ir_kernel_scatters_columns(const ir_kernel *k); /* rows of updates, which follow each other in the dim before */
bool ir_kernel_scatters_rows(const ir_kernel *k);    /* and all of a row goes to one place along the axis: in vectors */
bool ir_kernel_is_transposed(const ir_kernel *k);    /* a map whose last dim but one has role t */
bool ir_kernel_is_column(const ir_kernel *k);        /* the last dim has role v */
/* Accumulators of one partial result of a reduction instruction, in bytes, in ir_kernel_launch's shared layout:
 * arg-reductions hold the value then an i64 index (16 bytes), others one element of dtype rounded up to 8 bytes. */
enum { IR_PARTIAL_BYTES = 16 };
/* Layout of `shared` in a reduce kernel: for reduction number j (in instruction order), row q and partial i (and column
 *   c): inner:  shared + 16 * ((j * rows + q) * partials + i)
 *   column: from shared + 16 * ((j * rows + q) * partials + i) * columns on: all values, and 8 * columns further all
 *   indices
 * Scans: shared holds 8 bytes for each line and block (two phases only); scratch, in column form, 3 rows of a chunk, 8
 * bytes a column. Row kernels use the worker's scratch: first 16 * reductions * partials bytes, then each kept value's
 * row (row length elements of its dtype, each row rounded up to 64 bytes), in instruction order. In column form all of
 * it is there for each column of a chunk (and for at least one partial result), and between the two are the lines:
 * for each instruction that has one an element of its dtype a column. */
bool ir_kernel_has_line(const ir_kernel *k, int inst, uint32_t varies, int pass); /* varies, pass: of inst */

/* ---- kernel_rows.c: contractions with a row program ----
 * Kept values lie in rows of n elements, row by row as (b..., m) are counted, one value behind the other (rounded up to
 * 64 bytes): all rows in args.kept, or those of the block in scratch, behind all else there; then the row program's
 * scratch, as a row kernel has it. (Phase 2: that lies behind the head.) The last IR_ROW_SLOTS bytes of the head: the
 * address of each value's row 0. */
enum { IR_ROW_VALUES = 8, IR_ROW_SLOTS = 64 };
bool ir_kernel_has_rows(const ir_kernel *k);
int ir_kernel_row_values(const ir_kernel *k,
                         int inst[IR_ROW_VALUES]); /* their number; instructions up to IR_ROW_VALUES */
int64_t ir_kernel_row_value_bytes(const ir_kernel *k, int64_t rows, int64_t length);
int64_t ir_kernel_row_scratch_bytes(const ir_kernel *k, int64_t length);
/* The two programs, as kernels with the numbers of the whole: buffers from k->n_buffers on are the kept values; the row
 * program has no dim k. Buffers that a program does not use have strides 0 in the second. */
void ir_kernel_tile_program(const ir_kernel *k, ir_kernel *out);
void ir_kernel_row_program(const ir_kernel *k, ir_kernel *out);
fusor_status ir_kernel_verify_rows(const ir_kernel *k, fu_error *e);

/* ---- text ---- */
void ir_kernel_print(fu_str *out, const ir_kernel *k); /* canonical: equal kernels print equal bytes */
fusor_status ir_kernel_parse(fu_error *e, const char *text, size_t length, ir_kernel *out); /* and verifies */
fusor_status ir_kernel_verify(const ir_kernel *k, fu_error *e);
enum { IR_KEY_BYTES = 16, IR_SYMBOL_MAX = 128 };
/* Key = hash of (description, build id); level and options are lines of the description. */
void ir_kernel_key(const char *description, size_t length, const char *build_id, uint8_t key[IR_KEY_BYTES]);
/* fk_<kind>_<types>_<ops>_<shape class>__<isa>_w<lanes>u<unroll>_<key8> */
void ir_kernel_symbol(const ir_kernel *k, const uint8_t key[IR_KEY_BYTES], char out[IR_SYMBOL_MAX]);
static inline ir_target ir_kernel_target(const ir_kernel *k) { return (ir_target){k->level, k->features}; }
/* Does the level have a lowering for this operator at this main-role dtype? */
bool ir_has_lowering(ir_op op, ir_dtype t);
#endif
