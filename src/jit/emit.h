/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_EMIT_H
#define JIT_EMIT_H
/* Emit context: the LLVM context and module that a kernel is emitted into (each part of it into its own, parts.h), the
 * function being emitted, cached types, loop helpers. Lowering functions are vector-width
 * agnostic: `e->lanes` is 1 (scalar code: plain float, i32, i1) or the level's lanes (<16 x float> ...), and every
 * helper makes values of the current width. A bool is i1 in registers and a byte (0 or 1; any nonzero byte is true when
 * read) in memory. An f16 or bf16 is a float in registers, always a value of its type, and 16 bits in memory
 * (lower_half.c). */
#include "ir/kernel.h"
#include <llvm-c/Core.h>

/* A half in a register (a float) with its 16 bits, so that what only passes through is not converted back. */
typedef struct em_half {
    LLVMValueRef value, bits;
    ir_dtype type;
} em_half;
enum { EM_HALVES = 64 };

/* A loop without loops in it: the block before it, its first and its last one. */
typedef struct em_inner {
    LLVMBasicBlockRef before, head, last;
} em_inner;

/* Masks of the vectors that lanes `step` apart are read by, made of the lanes' mask. */
enum { EM_SPREAD = 4, EM_SPREADS = 32 };
typedef struct em_spread {
    LLVMValueRef active, part[EM_SPREAD];
    int step, lanes;
} em_spread;

typedef struct emit {
    LLVMContextRef ctx;
    LLVMModuleRef mod;
    LLVMBuilderRef b;
    LLVMValueRef fn;
    const ir_kernel *k;
    const ir_kernel *whole; /* whose arguments are passed: k, or what k is a program of (ir_kernel_tile_program) */
    const ir_level_info *level;
    int lanes;   /* 1, or level->lanes */
    ir_dtype dt; /* main-role dtype of the operator being lowered */
    int variant; /* its ENUM attribute */
    bool fast_math;
    bool is_aligned;   /* contiguous accesses of all lanes are aligned as one */
    bool is_narrow;    /* map: one element a step, for kernels whose vectors would not fit a frame */
    bool is_optimized; /* set by the function of a kind: e->fn is compiled at O2, else without optimization */
    LLVMTypeRef t_void, t_i1, t_i8, t_i16, t_i32, t_i64, t_f32, t_f64, t_ptr;
    /* loaded once at function entry */
    LLVMValueRef args, phase, tile_begin, tile_end, scratch, shared, kept;
    LLVMValueRef tune[IR_TUNE_COUNT], size[IR_KERNEL_MAX_DIMS];
    LLVMValueRef stride[IR_KERNEL_MAX_BUFFERS][IR_KERNEL_MAX_DIMS]; /* i64; constants where baked */
    LLVMValueRef base[IR_KERNEL_MAX_BUFFERS];
    uint32_t varies[IR_KERNEL_MAX_INSTS];     /* ir_kernel_varies */
    bool has_short_nans[IR_KERNEL_MAX_INSTS]; /* no NaN of this f32 has more bits than a bf16 */
    LLVMValueRef scalar[IR_KERNEL_MAX_INSTS]; /* scalar args as scalars of their type; splat at use */
    fu_vec(em_inner) inner;                   /* loops made so far */
    int n_loops;
    em_half half[EM_HALVES]; /* the last ones */
    unsigned n_half;
    em_spread spread[EM_SPREADS]; /* made so far, where they are valid: em_spread_masks */
    int n_spread;
    LLVMValueRef set, place[4][2]; /* GPU, is_each: words of the block's set; gpu.c's specials along x and y there */
    fu_arena *arena;
    struct jit_debug *debug; /* debug_info.c; NULL: no line table is wanted */
} emit;

/* ---- types and constants at the current width ---- */
LLVMTypeRef em_scalar_type(emit *e, ir_dtype t);     /* bool: i1; halves: float */
LLVMTypeRef em_memory_type(emit *e, ir_dtype t);     /* bool: i8; halves: i16 */
LLVMTypeRef em_type(emit *e, ir_dtype t);            /* at e->lanes */
LLVMTypeRef em_vec(emit *e, LLVMTypeRef scalar);     /* at e->lanes */
LLVMValueRef em_splat(emit *e, LLVMValueRef scalar); /* scalar -> current width (no-op at 1) */
LLVMValueRef em_load_splat(emit *e, LLVMTypeRef vector, LLVMValueRef ptr, unsigned align); /* in every lane */
LLVMValueRef em_f32(emit *e, double v); /* v rounded to float, splat */
LLVMValueRef em_f64(emit *e, double v);
LLVMValueRef em_int(emit *e, ir_dtype t, int64_t v); /* splat constant of an integer dtype or bool */
LLVMValueRef em_i32(emit *e, int32_t v);
LLVMValueRef em_const(emit *e, ir_dtype t, double v); /* of any numeric dtype: float or integer, splat */
LLVMValueRef em_i64s(emit *e, int64_t v);             /* scalar i64 constant, for index arithmetic */

/* ---- instructions (any width) ---- */
LLVMValueRef em_fadd(emit *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef em_fsub(emit *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef em_fmul(emit *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef em_fdiv(emit *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef em_mad(
    emit *e, LLVMValueRef a, LLVMValueRef b,
    LLVMValueRef c); /* a*b+c inside functions and accumulations: one rounding where the level has fma, two where not */
LLVMValueRef em_intrinsic(
    emit *e, const char *name, int n,
    LLVMValueRef *
        args); /* overloaded on args[0]'s type: "llvm.sqrt", "llvm.fabs", "llvm.fma", "llvm.roundeven" ... only ones that never become a library call at this level */
LLVMValueRef em_fcmp(emit *e, LLVMRealPredicate p, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef em_icmp(emit *e, LLVMIntPredicate p, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef em_select(emit *e, LLVMValueRef c, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef em_min(emit *e, LLVMValueRef a, LLVMValueRef b); /* signed integers */
LLVMValueRef em_max(emit *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef em_bits_of_f32(emit *e, LLVMValueRef x); /* float -> i32 bitcast */
LLVMValueRef em_f32_of_bits(emit *e, LLVMValueRef x);
LLVMValueRef em_add(emit *e, LLVMValueRef a, LLVMValueRef b); /* integers, wrapping */
LLVMValueRef em_sub(emit *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef em_mul(emit *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef em_and(emit *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef em_or(emit *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef em_xor(emit *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef em_shl(emit *e, LLVMValueRef a, int bits);
LLVMValueRef em_lshr(emit *e, LLVMValueRef a, int bits);
LLVMValueRef em_ashr(emit *e, LLVMValueRef a, int bits);
LLVMValueRef em_fabs(emit *e, LLVMValueRef x);
LLVMValueRef em_fneg(emit *e, LLVMValueRef x);
LLVMValueRef em_copysign(emit *e, LLVMValueRef magnitude, LLVMValueRef sign);
LLVMValueRef em_rint(emit *e, LLVMValueRef x); /* nearest even; SSE4.1 roundps and up */
/* The same value, a register's, of which LLVM does not see where it comes from. No instruction. */
LLVMValueRef em_opaque(emit *e, LLVMValueRef x);
/* Has x in a register here, so that it is computed before and not behind a later branch. No instruction. */
void em_use(emit *e, LLVMValueRef x);

/* ---- memory. mask: <lanes x i1>, or NULL = all lanes ---- */
LLVMValueRef em_gep(emit *e, LLVMValueRef base, LLVMTypeRef element, LLVMValueRef index);
/* Loads `lanes` elements of buffer `buf` at element offset `off`, `step` apart (i64; constant 0 = one element splat,
 * read whatever the mask; constant 1 = contiguous, else gathered). */
LLVMValueRef em_load(emit *e, int buf, LLVMValueRef off, LLVMValueRef step, LLVMValueRef mask);
/* Every second element of 2 * lanes from `off` on, all of which may be read: the first ones or the second ones. Both of
 * a place in one block are loaded once. */
LLVMValueRef em_load_turns(emit *e, int buf, LLVMValueRef off, bool is_second, LLVMValueRef mask);
void em_store(emit *e, int buf, LLVMValueRef value, LLVMValueRef off, LLVMValueRef step, LLVMValueRef mask);
/* x where the mask (NULL: everywhere) is set, else 0: lanes that hold nothing make no function slow. */
LLVMValueRef em_or_zero(emit *e, LLVMValueRef x, LLVMValueRef mask);
LLVMValueRef em_load_ptr(emit *e, ir_dtype t, LLVMValueRef ptr, LLVMValueRef mask,
                         unsigned align); /* contiguous, current width */
void em_store_ptr(emit *e, ir_dtype t, LLVMValueRef value, LLVMValueRef ptr, LLVMValueRef mask, unsigned align);
/* Prefetches the line at `ptr`, which need not be memory, into the cache of level 1, 2 or 3; to be written, too: no level
 * has an instruction of its own for that. */
enum { EM_LINE_BYTES = 64 };
void em_prefetch(emit *e, LLVMValueRef ptr, int level);
void em_prefetch_lines(emit *e, LLVMValueRef ptr, int64_t bytes, int level); /* a line for each that begins there */
enum { EM_MAX_SIDE = 16 };
/* Transposes n vectors of n elements of `bytes` each: v[i][j] becomes v[j][i]. n: a power of 2. */
void em_turn(emit *e, LLVMValueRef *v, int n, int bytes);
LLVMValueRef em_to_register(emit *e, ir_dtype t, LLVMValueRef v); /* and back */
LLVMValueRef em_to_memory(emit *e, ir_dtype t, LLVMValueRef v);   /* a value as its memory type */
/* Makes the masks of loads `step` apart that are active in these lanes, here and once; whoever calls it takes them back
 * (e->n_spread) where they are valid no longer. Nothing where such loads have none. */
void em_spread_masks(emit *e, LLVMValueRef active, LLVMValueRef step);
/* One element for each lane, `at` elements (<lanes x i64>) behind element `off`. */
LLVMValueRef em_gather(emit *e, int buf, LLVMValueRef off, LLVMValueRef at, LLVMValueRef mask);
/* Lanes i < n of the current width; n is a scalar i64, any value. Only where level->has_mask or n is a constant. */
LLVMValueRef em_mask(emit *e, LLVMValueRef n);
/* Is a load along dim d of the kernel cheap under a mask? AVX2 has that of neighbours of 4 and 8 bytes; its stores under
 * masks are slow. */
bool em_masks_load(const emit *e, int buf, int d);

/* ---- control ---- */
/* next: the block that ends the body, known after em_end. */
typedef struct em_loop {
    LLVMBasicBlockRef head, body, next, done;
    LLVMValueRef i, step;
    int number;
} em_loop;
/* for (i = begin; i < end; i += step), of any integers. Between the calls the builder is inside the body; after em_end it is behind
 * the loop. Values that change across iterations live in allocas (em_alloca; the back end keeps them in memory under
 * optnone) or in phis made by em_loop_phi. */
em_loop em_for(emit *e, LLVMValueRef begin, LLVMValueRef end, LLVMValueRef step);
/* Its body runs less often than other loops': it need not have registers for its constants. */
void em_loop_is_rare(emit *e, const em_loop *l);
LLVMValueRef em_loop_phi(emit *e, em_loop *l, LLVMValueRef initial); /* call right after em_for */
void em_loop_next(
    emit *e, LLVMValueRef phi,
    LLVMValueRef
        value); /* the phi's value in the next iteration: call before em_end, in the block that ends the body */
void em_end(emit *e, em_loop *l);
typedef struct em_branch {
    LLVMBasicBlockRef then, other, done;
} em_branch;
em_branch em_if(emit *e, LLVMValueRef cond);
void em_else(emit *e, em_branch *b);
void em_endif(emit *e, em_branch *b);                           /* works without em_else */
LLVMValueRef em_alloca(emit *e, LLVMTypeRef t, unsigned align); /* in the entry block */
LLVMBasicBlockRef em_block(emit *e, const char *name);

/* ---- line tables (debug_info.c) ---- */
/* What is emitted up to em_back belongs to this instruction of the kernel; em_back takes what em_at gave. */
void *em_at(emit *e, int inst);
void em_back(emit *e, void *before);

/* ---- the scalar program ---- */
/* Lowers instruction op on operand values of the current width (operands, then scalar attributes); dispatch made from
 * ops.def. */
LLVMValueRef em_lower(emit *e, const ir_kinst *inst, LLVMValueRef *in, const ir_dtype *in_type);
LLVMValueRef em_cast(emit *e, LLVMValueRef x, ir_dtype from, ir_dtype to);
/* bf16_words.c: vectors of 32-bit words, each of two bf16, the upper one first. */
LLVMValueRef em_bf16_dot(emit *e, LLVMValueRef acc, LLVMValueRef a, LLVMValueRef b); /* vdpbf16ps */
LLVMValueRef em_bf16_half(emit *e, LLVMValueRef words, bool is_upper);               /* as f32 */
/* Rounds n vectors of 16 f32 to bf16 (em_half_round), by vcvtneps2bf16 where none of them has a subnormal element. */
void em_bf16_round(emit *e, LLVMValueRef *x, int n);
/* An instruction of products by the name of its intrinsic; operands are cast to its types. */
LLVMValueRef em_dot(emit *e, const char *name, LLVMValueRef *in, unsigned n);
/* The lesser of `least`, all ones at first, and of magnitudes (bits of halves or f32, without sign) less 1: so 0 is the
 * largest. */
LLVMValueRef em_lesser_magnitude(emit *e, LLVMValueRef least, LLVMValueRef magnitude);
/* The exponent field of the least of them, as an i32: -1000 of a subnormal, 512 where all are 0. */
void em_store_least_exponent(emit *e, LLVMValueRef least, LLVMValueRef to);
/* A vector of f16, bits as i16: as two of bf16, the upper 8 significant bits and the others, which are NaN where the
 * element is not finite. The larger of `most`, 0 at first, and of magnitudes of f16; and what is stored for the most of
 * them, as above: -1000 where that is not finite, else 512. */
void em_f16_cut(emit *e, LLVMValueRef bits, LLVMValueRef part[2]);
LLVMValueRef em_f16_most(emit *e, LLVMValueRef most, LLVMValueRef bits);
void em_store_is_finite(emit *e, LLVMValueRef most, LLVMValueRef to);
/* i1: may the instruction multiply elements of the least exponents that are stored here? */
LLVMValueRef em_bf16_is_exact(emit *e, LLVMValueRef at, LLVMValueRef other);
/* lower_half.c; t is f16 or bf16, bits are i16. */
LLVMValueRef em_half_value(emit *e, ir_dtype t, LLVMValueRef bits);
LLVMValueRef em_half_bits(emit *e, ir_dtype t, LLVMValueRef value); /* of a value of the type */
/* Any float to the nearest value of the type. has_short_nans: no NaN of it has more bits than a bf16. */
LLVMValueRef em_half_round(emit *e, ir_dtype t, LLVMValueRef value, bool has_short_nans);
/* random.c: elements of a RANDOM instruction: one a lane, of any numbers (i64); or as em_random_block(...) vectors
 * those from element `first` on (a scalar, a multiple of 4) in adjacent lanes: a quarter of the work. seed: i64 at the
 * current width. */
LLVMValueRef em_random(emit *e, const ir_kinst *inst, LLVMValueRef seed, LLVMValueRef number);
enum { EM_RANDOM_MAX = 4 };
int em_random_block(emit *e, const ir_kinst *inst, LLVMValueRef seed, LLVMValueRef first,
                    LLVMValueRef out[EM_RANDOM_MAX]);
/* Operator of a reduction on accumulators: combine(acc, x) for values of dtype t. */
bool em_has_max_nan(const emit *e, ir_dtype t); /* max.NaN, min.NaN of a GPU, which tell -0 from +0 */
LLVMValueRef em_combine(emit *e, ir_op reduce_op, ir_dtype t, LLVMValueRef acc, LLVMValueRef x);
LLVMValueRef em_identity(emit *e, ir_op reduce_op, ir_dtype t); /* current width */
LLVMValueRef em_lane(emit *e, LLVMValueRef vector, int lane);

/* Evaluates the program lazily: em_value(e, v, inst) lowers `inst` and what it needs once into v->at[]; loads go
 * through v->load so that each kernel kind decides addresses. */
typedef struct em_values em_values;
struct em_values {
    LLVMValueRef at[IR_KERNEL_MAX_INSTS]; /* NULL = not yet lowered in this body */
    LLVMValueRef (*load)(emit *e, em_values *v, const ir_kinst *inst, void *user); /* IR_K_LOAD and IR_K_INDEX */
    void *user;
    em_values *one; /* scalars of what does not vary along the lanes; made where it is needed */
};
void em_take_program(emit *e, const ir_kernel *k); /* k: whose instructions are emitted from now on */
void em_values_init(em_values *v, LLVMValueRef (*load)(emit *, em_values *, const ir_kinst *, void *), void *user);
LLVMValueRef em_value(emit *e, em_values *v, int inst);
/* A value that does not vary along the lanes, as a scalar whatever the width. */
LLVMValueRef em_uniform(emit *e, em_values *v, int inst);
/* emit_access.c: what v->load does for IR_K_LOAD: the lanes along dim `lane_dim` (-1: none) are `step` apart from
 * element `off` on; the instruction's own offset and guard come to that. */
LLVMValueRef em_load_value(emit *e, em_values *v, const ir_kinst *inst, int lane_dim, LLVMValueRef off,
                           LLVMValueRef step, LLVMValueRef mask);

/* ---- one function a kernel kind: builds the whole body of e->fn after the entry block; codegen.c adds the last `ret
 * 0` ---- */
fusor_status jit_emit_map(emit *e, fu_error *err);
void map_emit_transposed(emit *e); /* map_transpose.c */
fusor_status jit_emit_reduce(emit *e, fu_error *err);
fusor_status jit_emit_row(emit *e, fu_error *err);
fusor_status row_emit(emit *e, fu_error *err, LLVMValueRef begin,
                      LLVMValueRef end); /* rows [begin, end) into e->fn; end may be past the last */
fusor_status jit_emit_scan(emit *e, fu_error *err);
fusor_status jit_emit_contract(emit *e, fu_error *err);
fusor_status jit_emit_window(emit *e, fu_error *err);
fusor_status jit_emit_attention(emit *e, fu_error *err);
/* A function beside e->fn in its module, with the attributes of all generated code. */
/* demote.c: integers and pointers of e->fn that live in more than one block go through memory; the builder at its
 * end. */
void em_demote(emit *e);
/* The same but inside innermost loops: what they use from outside is loaded in front of them. */
void em_demote_nests(emit *e);
/* Loads what the argument block holds into e, at the entry of e->fn; nothing of buffers that e->whole does not have. */
void em_load_args(emit *e, LLVMValueRef args);
void em_leave_unoptimized(emit *e, LLVMValueRef fn); /* of a function made as an optimized one */
LLVMValueRef em_function(emit *e, const char *name, LLVMTypeRef type, bool is_optimized);
/* An instruction that computes values of the program, not places: nothing may be supposed of its operands. */
void em_mark_program(emit *e, LLVMValueRef v);
bool em_is_program(emit *e, LLVMValueRef v);
#endif
