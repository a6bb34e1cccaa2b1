/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_GPU_H
#define IR_GPU_H
/* GPU kernels: what generated code and its launch agree on. A kernel has one parameter: words of 8 bytes, by value.
 * How many threads a block has is what ir_gpu_plan says: IR_GPU_THREADS of maps, reductions, rows, convolutions and
 * contractions by fma, a warp of scans, of others (tensor cores, attention) what their tile asks for; code says so by
 * gpu_limit (jit/gpu.h). A thread computes one element, or adjacent ones of 16 bytes (map); a team of 1 to
 * IR_GPU_THREADS threads of a block a row (reduce, row).
 *
 * The order of a reduction, which depends on its sizes alone, in every kernel, fused or not:
 *   inner: n elements along the last reduced axis have a team of t = ir_gpu_team(n) threads. They are cut into blocks
 *     of IR_REDUCE_BLOCK; element i of a block joins accumulator i mod (IR_GPU_VECTOR * t), in increasing i, and the
 *     blocks of a chunk follow each other. Accumulators l, l + 1, ... of a thread become one by halves; those of a warp
 *     by halves; those of the warps in order. Chunk c of all joins accumulator c mod t of the row, in order; these
 *     become one as before.
 *   column: a chunk of the rows to be reduced has IR_GPU_COLUMN_ROWS accumulators a column; row i of a block of
 *     IR_COLUMN_BLOCK joins number i mod IR_GPU_COLUMN_ROWS; these become one in order. Then chunks, in the same way.
 * How many chunks there are follows from the sizes.
 *
 * Where rows are few, their chunks are dealt to blocks of threads, each of which leaves a partial result in scratch and
 * counts itself; the last one of a row joins what they left, in the order above. */
#include "ir/kernel.h"

enum {
    IR_GPU_COUNTERS = 16384, /* of a launch, at most */
    IR_GPU_THREADS = 256,    /* of a block, x * y of them, where a kind has no number of its own */
    IR_GPU_WARP = 32,
    IR_GPU_VECTOR_BYTES = 16, /* the widest access of a thread */
    IR_GPU_VECTOR = 4,        /* adjacent elements of a thread but in maps; one access where IR_GPU_WORD_HOW says so */
    IR_GPU_ROW_STEPS = 4,     /* times so many in a row that is kept in registers, or are loaded at once */
    IR_GPU_COLUMN_ROWS = 8,   /* reduce, column form: threads of a column; a block has IR_GPU_WARP columns */
    IR_GPU_TILE = 32,         /* maps, transposed: side of a tile in shared memory */
    IR_GPU_PARAM_MAX = 4096   /* bytes of parameters: PTX ISA 7.0, 5.1.6 */
};
/* First words; those after them: ir_gpu_next_word. */
enum {
    IR_GPU_WORD_PHASE,
    IR_GPU_WORD_COUNTERS, /* address of u32 that are 0 and become 0 again, ir_gpu_launch.n_counters of them; or 0 */
    IR_GPU_WORD_HOW,      /* which of its forms the kernel is to take: below */
    IR_GPU_WORD_CHUNKS,
    IR_GPU_WORD_SCRATCH,
    IR_GPU_WORDS
};
/* IR_GPU_WORD_HOW is, by the kind of the kernel:
 *   map, reduce, row           1: what is contiguous along the last dim is aligned for ir_gpu_lanes elements at once;
 *                              else 0
 *   by tensor cores            IR_GPU_MMA_COPY << operand and IR_GPU_MMA_STORE, where vectors may be; + IR_GPU_MMA_TILE
 *                              * its tile
 *   by fma                     the number of its tile, of ir_gpu_fma_tiles
 *   window without tiles       IR_GPU_WINDOW_DIRECT
 *   scan, attention            0
 * where the second and third are of contract and window. */

/* A word after the first ones: one for each buffer's address, then run-time size, run-time stride (row by buffer),
 * scalar. */
typedef struct ir_gpu_word {
    int at; /* its place in the parameter */
    enum { IR_GPU_BUFFER, IR_GPU_SIZE, IR_GPU_STRIDE, IR_GPU_SCALAR, IR_GPU_NO_WORD } is;
    int number, dim; /* of a buffer, dim or scalar; of a stride: the buffer's, and along which dim */
    int next;        /* to be looked at, among those of its kind */
} ir_gpu_word;
/* for (ir_gpu_word w = {0}; ir_gpu_next_word(k, &w);): all of them. This is the one place that knows their order. */
bool ir_gpu_next_word(const ir_kernel *k, ir_gpu_word *w);

typedef struct ir_gpu_launch {
    int n_phases; /* launches, one after the other */
    uint32_t grid[2][3], block[2][3];
    uint32_t shared_bytes[2]; /* dynamic shared memory of a block; beyond 48 KB it has to be asked for */
    int64_t
        chunks; /* parts that a reduced row, or the products of a contraction, are cut into; each gives a partial result */
    int tile;              /* contract and window: of ir_gpu_mma_tiles or ir_gpu_fma_tiles, or IR_GPU_WINDOW_DIRECT */
    int64_t scratch_bytes; /* of the call, kept between phases */
    bool goes_on; /* blocks are resident, one a multiprocessor: more along x than there are of these gain nothing */
    int n_counters; /* reduce, cut into parts: one for each row (column form: row and 32 columns); the last part joins them */
} ir_gpu_launch;
int ir_gpu_words(const ir_kernel *k);
void ir_gpu_plan(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out);
/* Contract and window: is there code for this tile, of the table of its kind (fma, tensor cores)? */
bool ir_gpu_has_tile(const ir_kernel *k, int tile);
/* What only_tile is to be where the sizes are known: ptxas takes a fifth of the time for one tile as for all. 0: none,
 * or the launch is one without tiles. */
int ir_gpu_only_tile(const ir_kernel *k, const int64_t *size);
/* The parameter of a phase, but for the counters' address. args: as for a CPU kernel, addresses of the device. */
void ir_gpu_param(const ir_kernel *k, const ir_kernel_args *args, const ir_gpu_launch *l, int phase, uint64_t *out);

/* ---- one launch over many sets of arguments: kernels with is_each ----
 * The parameter is two addresses: of an index, which has for each block of the launch the number of its set (u32), and
 * of the sets, each its words as above and IR_GPU_EACH_* more. The grid is one row of blocks of IR_GPU_THREADS threads
 * in a row: those of set 0, then those of set 1 ... A block finds out its set and takes the place in that set's grid
 * and block that its number stands for. Only what is one launch of its own can be part of one: ir_gpu_launch.n_phases
 * is 1 and n_counters 0. */
enum {
    IR_GPU_EACH_FIRST,
    IR_GPU_EACH_GRID_X,
    IR_GPU_EACH_GRID_Y,
    IR_GPU_EACH_BLOCK_X /* a power of two: its log */,
    IR_GPU_EACH_WORDS
};
enum { IR_GPU_EACH_PARAMS = 2 };
/* Is there such a kernel of this description? Map, reduce and row kernels have one. */
bool ir_gpu_can_each(const ir_kernel *k);
int64_t ir_gpu_each_blocks(const ir_gpu_launch *l); /* of a set */
/* Words of a set; the first ones are those of ir_gpu_param. `first`: blocks of the sets before. */
int ir_gpu_each_words(const ir_kernel *k);
void ir_gpu_each_set(const ir_kernel *k, const ir_kernel_args *args, const ir_gpu_launch *l, int64_t first,
                     uint64_t *out);

/* reduce and row: threads of a team for n elements along the last reduced axis: a power of two. */
int ir_gpu_team(int64_t n);
/* Elements along the last dim that a thread takes at once where IR_GPU_WORD_HOW says that it can, 1: never. Of maps:
 * those of 16 bytes of the widest type; what varies along the last dim is contiguous there. */
int ir_gpu_lanes(const ir_kernel *k);

/* ---- gpu_space.c: a contraction, or a convolution, as a product of matrices: the dims, outer to inner, whose sizes
 * multiplied count batches, rows (m), columns (n) and products (k). Columns of a convolution are the places of all
 * images together: its batches are groups. */
typedef enum ir_gpu_axis { IR_GPU_ROWS, IR_GPU_COLUMNS, IR_GPU_PRODUCTS, IR_GPU_BATCHES, IR_GPU_AXES } ir_gpu_axis;
typedef struct ir_gpu_space {
    int n[IR_GPU_AXES];
    int8_t dim[IR_GPU_AXES][IR_KERNEL_MAX_DIMS];
} ir_gpu_space;
void ir_gpu_space_of(const ir_kernel *k, ir_gpu_space *out); /* of a kernel with a matmul */
int64_t ir_gpu_space_size(const ir_gpu_space *s, const int64_t *size, ir_gpu_axis axis);
/* Convolutions whose groups make up to IR_GPU_WINDOW_FEW channels (depthwise ones), and those of very many places, are
 * made without tiles: the number of the tile is then IR_GPU_WINDOW_DIRECT. */
enum { IR_GPU_WINDOW_FEW = 4, IR_GPU_WINDOW_DIRECT = 31 };
bool ir_gpu_window_has_pads(const ir_kernel *k); /* these are direct too */
bool ir_gpu_window_is_direct(const ir_kernel *k, const int64_t *size);

/* ---- gpu_mma.c: contractions on tensor cores (jit/gpu_mma.c) ----
 * A block of threads makes rows x columns elements of the result, its warps warps_m x warps_n parts of it. Shared
 * memory has `stages` pieces of both operands, each k_bytes of products long, filled by asynchronous copies while the
 * piece before is multiplied. */
typedef struct ir_gpu_mma_tile {
    int rows, columns, k_bytes, warps_m, warps_n, stages;
} ir_gpu_mma_tile;
enum { IR_GPU_MMA_TILES = 7, IR_GPU_MMA_SPLIT = 128 /* bytes along k that a part begins at */ };
extern const ir_gpu_mma_tile ir_gpu_mma_tiles[IR_GPU_MMA_TILES];
/* Does a kernel have code for this tile? is_wgmma: by the instructions of four warps together (jit/gpu_wgmma.c). */
bool ir_gpu_mma_has_tile(const ir_kernel *k, int tile);
bool ir_gpu_mma_is_wgmma(int tile);
/* Tiles of wgmma, of a kernel both of whose operands are copied: the tile's warps multiply, IR_GPU_MMA_COPIERS threads
 * more copy (jit/gpu_wgmma_roles.c); k has one part. Shared memory then has, behind the pieces, IR_GPU_MMA_OUT bytes of each of the
 * tile's warps for results on their way out, and two barriers a stage. Blocks go on to the next of their tiles. */
enum { IR_GPU_MMA_COPIERS = 128, IR_GPU_MMA_OUT = 4096, IR_GPU_MMA_BARRIER = 8 /* bytes */ };
bool ir_gpu_mma_has_roles(const ir_kernel *k, int tile);
int ir_gpu_mma_threads(const ir_kernel *k, int tile); /* of a block */
int ir_gpu_mma_shared(const ir_kernel *k, int tile);  /* bytes */
/* A convolution's operand 1 is gathered: threads read its elements where they lie. Where the products of a piece are,
 * from their column on, is said by a table, behind the pieces in shared memory: i32, of this piece and of the next. */
enum { IR_GPU_MMA_TABLE = 2 * 128 * 4 /* bytes; a piece has up to 128 elements */ };
bool ir_gpu_mma_is_gathered(const ir_kernel *k, int operand);
/* Are the products of this kernel made by tensor cores? Operands both f16 or both bf16 (sums in f32), or
 * 8-bit integers; f32 in the fast tier alone: each operand is rounded to tf32. */
bool ir_gpu_is_mma(const ir_kernel *k);
/* An operand that is a plain load, contiguous along k or along its row: its buffer; else -1: it is computed, or loaded
 * element by element. */
int ir_gpu_mma_buffer(const ir_kernel *k, int operand);
/* Of an operand: do its rows lie along shared memory's lines (ldmatrix then transposes), not k? */
bool ir_gpu_mma_is_turned(const ir_kernel *k, int operand);
/* An operand that is computed of what is contiguous along shared memory's lines, so 16 bytes at a time. */
enum { IR_GPU_MMA_LANES = 8 /* at most */ };
bool ir_gpu_mma_has_vectors(const ir_kernel *k, int operand);
/* IR_GPU_WORD_HOW: operand 0 or 1 may be copied, or computed, 16 bytes at a time; outputs and what the epilogue loads
 * may be accessed IR_GPU_VECTOR elements at a time; from IR_GPU_MMA_TILE on: the number of the tile. */
enum { IR_GPU_MMA_COPY = 1, IR_GPU_MMA_STORE = 4, IR_GPU_MMA_TILE = 8 };
void ir_gpu_plan_mma(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out);
void ir_gpu_plan_mma_tile(const ir_kernel *k, const int64_t *size, int tile, ir_gpu_launch *out); /* with that tile */
uint64_t ir_gpu_mma_word(const ir_kernel *k, const ir_kernel_args *args, const ir_gpu_launch *l);

/* ---- gpu_contract.c: contractions without tensor cores. A block of threads makes rows x columns elements, step
 * products at a time; a thread thread_rows x thread_columns; its warps are warps_m x warps_n. IR_GPU_WORD_HOW is the
 * number of the tile. ---- */
typedef struct ir_gpu_fma_tile {
    int rows, columns, step, thread_rows, thread_columns, warps_m, warps_n;
} ir_gpu_fma_tile;
enum {
    IR_GPU_FMA_LARGE,
    IR_GPU_FMA_SMALL,
    IR_GPU_FMA_FLAT /* few rows */,
    IR_GPU_FMA_TALL /* few columns */,
    IR_GPU_FMA_TILES
};
extern const ir_gpu_fma_tile ir_gpu_fma_tiles[IR_GPU_FMA_TILES];
bool ir_gpu_fma_has(const ir_kernel *k, int tile); /* does the kernel have code for this one? */
void ir_gpu_plan_fma(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out);
void ir_gpu_plan_fma_tile(const ir_kernel *k, const int64_t *size, int tile,
                          ir_gpu_launch *out); /* with this tile; into a plan of one phase */

/* ---- gpu_attention.c: attention. A block makes that many queries' results, `width` columns of them, from a part of
 * the keys. Layout of scratch, where there are several parts, in elements of the accumulator type: for each part, batch
 * and query the E results, then the largest score and the sum. A part is keys / parts rounded up to whole blocks of
 * keys. ---- */
enum {
    IR_GPU_ATTENTION_THREADS = 128,
    IR_GPU_ATTENTION_QUERIES = IR_GPU_ATTENTION_TILE,
    IR_GPU_ATTENTION_FEW = 16,  /* where there are no more */
    IR_GPU_ATTENTION_FEW_KEYS = 64, /* that a block of these takes at a time, a warp 16, by tensor cores */
    IR_GPU_ATTENTION_BAKE = 256 /* sizes of the head and of values up to this are baked */
};
enum { IR_GPU_ATTENTION_KEYS = 1 << 30 /* of more than so many: as for few queries */ };
static inline bool ir_gpu_attention_is_few(int64_t queries, int64_t keys) {
    return queries <= IR_GPU_ATTENTION_FEW || keys > IR_GPU_ATTENTION_KEYS;
}
int ir_gpu_attention_width(const ir_kernel *k);
/* Is there no mask, or one that lies in memory as it is added (or chosen by), adjacent along the keys? */
bool ir_gpu_attention_mask_is_plain(const ir_kernel *k);
/* Few queries by tensor cores (jit/gpu_attention_few.c): a block has that many rows, of the queries of all heads that
 * share their keys. */
bool ir_gpu_attention_has_few(const ir_kernel *k);
/* More queries than IR_GPU_ATTENTION_FEW, by wgmma (jit/gpu_attention_wgmma.c): a block is `groups` of four warps, 64
 * queries each, and takes `keys` at a time. Lines of shared memory are 128 bytes: head and width are the sizes of the
 * head and of the columns, rounded up to 64 elements. shared_bytes: of queries, two pieces of keys and of values, and a
 * mask that is not plain; or of the results, which take their place; at least as much as few queries need. */
typedef struct ir_gpu_attention_group {
    int groups, keys, head, width, blocks /* of a multiprocessor */, shared_bytes;
} ir_gpu_attention_group;
bool ir_gpu_attention_group_of(const ir_kernel *k,
                               ir_gpu_attention_group *out); /* false: the kernel has no such form */
void ir_gpu_plan_attention(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out);
#endif
