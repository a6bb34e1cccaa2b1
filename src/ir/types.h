/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_TYPES_H
#define IR_TYPES_H
/* Element types and symbolic sizes. */
#include "base/arena.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/str.h"
#include "base/vec.h"

/* ---- element types ---- */
typedef uint8_t ir_dtype;     /* a fusor_dtype; 0 = none */
enum { IR_DTYPE_COUNT = 14 }; /* numbers 1..13 */
typedef enum ir_class { IR_CLASS_F = 1, IR_CLASS_S = 2, IR_CLASS_U = 4, IR_CLASS_B = 8 } ir_class;
typedef struct ir_dtype_info {
    const char *name;
    uint8_t bytes;
    uint8_t cls;
} ir_dtype_info;
extern const ir_dtype_info ir_dtypes[IR_DTYPE_COUNT]; /* index by fusor_dtype; row 0 is empty */
ir_dtype ir_dtype_parse(const char *name, size_t n);  /* 0 when no dtype */
const char *ir_dtype_nearest(const char *word);       /* what else may be meant by it, "float32" too; NULL */
static inline bool ir_is_half(ir_dtype t) { return t == FUSOR_F16 || t == FUSOR_BF16; }
static inline bool ir_is_float(ir_dtype t) { return ir_dtypes[t].cls == IR_CLASS_F; }
static inline bool ir_is_int(ir_dtype t) { return (ir_dtypes[t].cls & (IR_CLASS_S | IR_CLASS_U)) != 0; }
static inline bool ir_is_signed(ir_dtype t) { return ir_dtypes[t].cls == IR_CLASS_S; }
static inline bool ir_is_bool(ir_dtype t) { return t == FUSOR_BOOL; }
/* One element as bits, zero-extended into 64 (f16 and bf16 as their 16 bits). */
typedef uint64_t ir_bits;
ir_bits ir_bits_from_double(
    ir_dtype t, double v,
    bool *exact_or_rounded_ok); /* weak literal: rounded once; false where it overflows to inf or does not fit */
ir_bits ir_bits_from_int(ir_dtype t, int64_t v, bool *fits);
double ir_bits_to_double(ir_dtype t, ir_bits b);
/* A 64-bit integer as a double that rounds to f16 and bf16 as the integer itself does: beyond 2^53 the bits that do not
 * fit are kept as one lowest bit. */
double ir_odd_double(bool is_negative, uint64_t magnitude);
float ir_f16_to_f32(uint16_t h);
float ir_bf16_to_f32(uint16_t h);
uint16_t ir_f32_to_f16(float f); /* nearest even */
uint16_t ir_f32_to_bf16(float f);
uint16_t ir_f64_to_f16(double d); /* the exact value rounded once */
uint16_t ir_f64_to_bf16(double d);

/* ---- symbolic sizes ----
 * A size is a number in a table of hash-consed expressions, kept in a canonical form: a polynomial over symbols and
 * opaque quotients (floor division). So two sizes that are provably equal have one id, and ids compare with ==.
 * Constants past 64 bits, and expressions past the limits of size.c, become the one size "huge" (id 0): it absorbs what
 * it meets, and evaluating it is IR_SIZE_OVERFLOW. Symbols stand for sizes, so they are never negative. */
typedef uint32_t ir_size;
typedef struct ir_sizes ir_sizes;
typedef enum ir_size_kind {
    IR_SIZE_CONST,
    IR_SIZE_SYM,
    IR_SIZE_POLY,
    IR_SIZE_DIV,
    IR_SIZE_POSITIVE,
    IR_SIZE_HUGE
} ir_size_kind;

ir_sizes *ir_sizes_new(fu_arena *a);
ir_sizes *ir_sizes_copy(fu_arena *a, const ir_sizes *from); /* every id keeps its meaning */
ir_size ir_size_const(ir_sizes *s, int64_t v);
ir_size ir_size_sym(ir_sizes *s, const char *name); /* the symbol of that name, made where new */
uint32_t ir_size_symbol_count(const ir_sizes *s);
const char *ir_size_symbol_name(const ir_sizes *s, uint32_t symbol);
int ir_size_find_symbol(const ir_sizes *s, const char *name); /* -1 when there is none */
bool ir_size_is_symbol(const ir_sizes *s, ir_size x, uint32_t *symbol_out);
ir_size ir_size_add(ir_sizes *s, ir_size a, ir_size b);
ir_size ir_size_sub(ir_sizes *s, ir_size a, ir_size b);
ir_size ir_size_mul(ir_sizes *s, ir_size a, ir_size b);
ir_size ir_size_div(
    ir_sizes *s, ir_size a,
    ir_size
        b); /* floor; an exact polynomial quotient simplifies; division by constant 0 stays and fails when evaluated */
/* What clamped bounds come to. No text of a program can say them (ir_size_is_writable); messages print "max(N-1,
 * 0)". */
ir_size ir_size_positive(ir_sizes *s, ir_size x); /* max(x, 0) */
ir_size ir_size_max(ir_sizes *s, ir_size a, ir_size b);
ir_size ir_size_min(ir_sizes *s, ir_size a, ir_size b);
bool ir_size_is_writable(const ir_sizes *s, ir_size x); /* can a program's text say it */
bool ir_size_is_const(const ir_sizes *s, ir_size x, int64_t *value_out);
bool ir_size_is(const ir_sizes *s, ir_size x, int64_t value);      /* is the constant `value` */
bool ir_size_never_equal(const ir_sizes *s, ir_size a, ir_size b); /* the difference is a constant other than 0 */
bool ir_size_never_negative(const ir_sizes *s, ir_size x);         /* provably; false = not known */
bool ir_size_is_huge(const ir_sizes *s, ir_size x);
uint64_t ir_size_hash(const ir_sizes *s, ir_size x); /* of the structure, symbols by name: the same in every table */
typedef enum ir_size_result { IR_SIZE_OK, IR_SIZE_OVERFLOW, IR_SIZE_ZERO_DIVISION } ir_size_result;
/* Is x made of these symbols (and numbers) alone? symbols: by number. */
bool ir_size_is_made_of(const ir_sizes *s, ir_size x, const bool *symbols);
ir_size_result ir_size_eval(const ir_sizes *s, ir_size x, const int64_t *symbol_values,
                            int64_t *out); /* allocates nothing; O(terms) */
bool ir_size_is_known(const ir_sizes *s, ir_size x, const int64_t *symbol_values); /* no symbol of x stands at -1 */
/* Rewrites x from table `from` into table `to`, symbol i becoming map[i]. */
ir_size ir_size_substitute(ir_sizes *to, const ir_sizes *from, ir_size x, const ir_size *map);
void ir_size_print(fu_str *out, const ir_sizes *s,
                   ir_size x); /* parses back to the same size: "N", "2*N+1", "(N+3)/4" */
#endif
