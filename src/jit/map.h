/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_MAP_H
#define JIT_MAP_H
/* What the files of element-wise kernels share: map.c emits steps of vectors along a row, map_rows.c goes from row to
 * row, map_runs.c cuts rows where what they are read from changes, map_slide.c has values that go from row to row. */
#include "jit/emit.h"

typedef struct vectors {
    LLVMValueRef at[EM_RANDOM_MAX];
} vectors;

/* Values of one step that are the same in every row. */
typedef struct map_fixed {
    LLVMValueRef at[IR_KERNEL_MAX_INSTS]; /* NULL: varies, or is not made */
} map_fixed;

/* map_runs.c: where elements of a row come from. Of a run of columns: `at` is where column 0 of it would be; `slope` by
 * how many elements it goes on (1, but where single elements are moved); is_there: i1, NULL: always; fill: what it is
 * where it is not. */
enum { MAP_SOURCES = 16, MAP_CHOICES = 7 };
typedef struct map_source {
    int inst;
    LLVMValueRef at, slope, is_there, fill;
} map_source;
/* A select of computed values whose condition decides for a whole run: side is in[side] of it, 0: not decided. */
typedef struct map_choice {
    int inst, side;
} map_choice;
typedef struct map_runs {
    const struct analysis *analysis;
    int n, n_choices;
    map_source source[MAP_SOURCES];
    map_choice choice[MAP_CHOICES];
    bool has_cuts;                       /* a row is several runs */
    bool has_offsets;                    /* that vary in a row */
    bool is_by_line;                     /* the same ones in all rows of a line */
    bool is_all_there;                   /* in the run being emitted */
    bool is_needed[IR_KERNEL_MAX_INSTS]; /* by steps */
    bool is_read[IR_KERNEL_MAX_INSTS];   /* of what is needed: by what is decided in the run being emitted */
} map_runs;

typedef struct map {
    int last; /* number of the last dim; -1: a single element */
    uint32_t varies[IR_KERNEL_MAX_INSTS];
    int unroll, lanes;
    int turns; /* rows that take turns in the outputs; 1: none */
    int group; /* rows of few columns that are one, where a line has as many; 0: none */
    bool is_costly, has_stream;
    bool shares;      /* now: columns of two inputs that take turns in memory come from the same vectors */
    bool is_ordered;  /* a scatter, element by element */
    bool is_straight; /* a row is a few steps one after the other: no loop along it */
    LLVMValueRef offset[IR_KERNEL_MAX_BUFFERS]; /* of the row's first element */
    LLVMValueRef index[IR_KERNEL_MAX_DIMS];     /* along the outer dims */
    em_values rows;                             /* scalars of what does not vary along a row */
    LLVMValueRef row_scalar[IR_KERNEL_MAX_INSTS],
        row_splat[IR_KERNEL_MAX_INSTS]; /* of it, what steps need; else NULL */
    LLVMValueRef column, mask;          /* of the step being emitted */
    map_fixed *steps, *fixed;           /* straight: all, and this one's */
    bool is_fixed_masked;               /* they hold in lanes of the mask only */
    int number;       /* instruction with the elements' numbers in a block of random ones; -1: no blocks */
    vectors *random;  /* by instruction: of the body's steps; NULL in the first: none */
    int step_of_body; /* -1: not in a body that has them */
    map_runs *runs;   /* NULL: none */
} map;

static inline bool map_varies_in_row(const map *m, int inst) {
    return m->last >= 0 && (m->varies[inst] >> m->last & 1) != 0;
}

static inline bool map_varies_in_line(const map *m, int inst) {
    return m->last > 0 && (m->varies[inst] >> (m->last - 1) & 1) != 0;
}

/* base + index * stride without the instructions that baked strides save. */
LLVMValueRef map_advance(emit *e, LLVMValueRef base, LLVMValueRef index, LLVMValueRef stride);
LLVMValueRef map_load(emit *e, em_values *v, const ir_kinst *inst, void *user); /* em_values.load; user: the map */

/* One step: e->lanes columns from `column` on. Between begin and end s->v has the values that are known. */
typedef struct map_step {
    em_values v, one;
    LLVMValueRef column;
} map_step;
void map_begin_step(emit *e, map *m, map_step *s, LLVMValueRef column, LLVMValueRef mask);
void map_emit_step(emit *e, map *m, LLVMValueRef column, LLVMValueRef mask, bool is_streaming);
void map_end_step(emit *e, map *m, map_step *s, bool is_streaming);

/* Columns begin..end of the row that offset[], index[] and the row's values are of. */
void map_emit_columns(emit *e, map *m, LLVMValueRef begin, LLVMValueRef end, bool has_tail);
/* map_rows.c: the same of rows row_begin..row_end, of which there is one or more. */
void map_emit_rows(emit *e, map *m, LLVMValueRef row_begin, LLVMValueRef row_end, LLVMValueRef begin, LLVMValueRef end,
                   bool has_tail);
/* Conditions of the columns from `column` on into *out; the line's values are known. */
void map_emit_conditions(emit *e, map *m, LLVMValueRef column, map_fixed *out);
void map_emit_row_values(emit *e, map *m); /* of row index[], anew */
/* A line of m->turns rows, whose offsets offset[] has, as one. */
void map_emit_turns(emit *e, map *m, LLVMValueRef begin, LLVMValueRef end);
/* map_runs.c: NULL where nothing is found; the columns of a row; what sources are at a step. */
map_runs *map_find_runs(emit *e, const map *m);
void map_emit_runs(emit *e, map *m, LLVMValueRef begin, LLVMValueRef end);
void map_emit_line_runs(emit *e, map *m, LLVMValueRef y0, LLVMValueRef y1, LLVMValueRef begin, LLVMValueRef end);
void map_begin_sources(emit *e, const map *m, em_values *v);
/* map_slide.c: rows y0..y1 of a line, whose offsets at y0 offset[] has, with values that go from row to row. */
void map_emit_slide(emit *e, map *m, LLVMValueRef y0, LLVMValueRef y1, LLVMValueRef begin, LLVMValueRef end);
#endif
