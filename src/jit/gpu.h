/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_GPU_H
#define JIT_GPU_H
/* What all GPU kernels share (gpu_*.c; a function below for each kind or form): the entry (gpu.c), numbers of threads,
 * barriers, shuffles and shared memory. Operators are lowered by the same functions as for the CPU, on the e->lanes
 * adjacent elements that a thread takes at once: 1, or as many as ir_gpu_lanes and the kernel's own loads allow. All
 * addresses of buffers are of global memory (address space 1). */
#include "jit/emit.h"
#include "ir/gpu.h"

/* The kernel function e->fn, and what its parameter holds in e. */
void gpu_begin(emit *e, const char *symbol);
/* A call of an intrinsic, by its name. */
LLVMValueRef gpu_call(emit *e, const char *name, LLVMTypeRef *overload, unsigned n_overload, LLVMValueRef *in,
                      unsigned n);
LLVMValueRef gpu_word(emit *e, int word);            /* i64: IR_GPU_WORD_* */
LLVMValueRef gpu_special(emit *e, const char *name); /* "tid.x", "ctaid.y", "ntid.x", "nctaid.z": i64 */
/* Number of the thread along x (or y, z) in the grid, and how many there are: where its elements begin, and their
 * step. */
typedef struct gpu_span {
    LLVMValueRef first, step;
} gpu_span;
gpu_span gpu_threads(emit *e, char axis);
/* Threads of a block, where that is not IR_GPU_THREADS, and blocks that one multiprocessor is to hold (0: any). */
void gpu_limit(emit *e, int threads, int blocks);
/* Registers of a thread, at most. Not by a number of blocks, which ptxas takes no notice of where a multiprocessor holds
 * fewer. */
void gpu_limit_registers(emit *e, int registers);
/* A loop, after its em_end, that ptxas is not to unroll: that takes registers and time. */
void gpu_keep_loop(emit *e, const em_loop *l);
/* v (i64, below 2^32) plus the sign of a loop's i, which is none, but neither LLVM nor ptxas knows: what is computed of
 * it is not computed in front of the loop, to wait there in registers. */
LLVMValueRef gpu_made_here(emit *e, LLVMValueRef v, LLVMValueRef i);
/* a / b of i64 that are not negative, without the call that ptxas makes of it. Slow. */
LLVMValueRef gpu_wide_quotient(emit *e, LLVMValueRef a, LLVMValueRef b);
/* The same in straight code, for all that a kernel of few divisions has: with a call in it ptxas, as the linker runs it,
 * waits for each wgmma by itself. */
void gpu_replace_quotients(emit *e);
void gpu_barrier(emit *e);
LLVMValueRef gpu_shuffle(emit *e, LLVMValueRef v, int mask); /* the value of lane ^ mask; any scalar */
/* An i32 that all lanes of a warp have alike: ptxas then knows, and keeps it in a register of the warp. */
LLVMValueRef gpu_same_in_warp(emit *e, LLVMValueRef v);
LLVMValueRef gpu_exp2(emit *e, LLVMValueRef x); /* 2^x of an f32, to about 2 units; below the least normal number 0 */
/* What this thread wrote before is seen by whoever sees what it writes behind it, on the whole device; and so for what
 * it reads. */
void gpu_fence(emit *e);
/* Adds 1 to the u32 at address (i64) + 4 * index, `most` becomes 0: what it was, i32. */
LLVMValueRef gpu_count(emit *e, LLVMValueRef address, LLVMValueRef index, LLVMValueRef most);
LLVMValueRef gpu_shared(emit *e, LLVMTypeRef element, int n); /* an array in shared memory of the block */
LLVMValueRef gpu_dynamic_shared(emit *e); /* as much as the launch asks for; aligned for wgmma's permutation */

/* ---- gpu_async.c: copies to shared memory and products of four warps, which run while others are asked for ---- */
/* An instruction as text, with constraints as LLVM has them; has_effects: on memory, or on when others happen. */
LLVMValueRef gpu_asm(emit *e, const char *text, const char *constraints, bool has_effects, LLVMTypeRef result,
                     LLVMValueRef *in, unsigned n);
void gpu_say(emit *e, const char *text);    /* with effects, without operands */
void gpu_commit_copies(emit *e);            /* of this thread, since the last time: a group */
void gpu_wait_for_copies(emit *e, int but); /* for all groups of this thread but the last ones */
/* Text with n in (is_read) and out registers of f32 in front, $0 to $n - 1, then what is only read. */
void gpu_on_sums(emit *e, const char *text, LLVMValueRef *acc, int n, bool is_read, LLVMValueRef *in,
                 const char *in_kinds, int n_in);
/* acc[n] (adds: +)= a * b, of 64 rows, 2 * n columns and 16 products of halves: wgmma. */
typedef struct gpu_product {
    ir_dtype type;
    bool adds, a_turned, b_turned; /* contiguous along rows or columns, not k */
    LLVMValueRef a[4], b;          /* descriptors of shared memory; a: or four registers of a fragment */
    int n_a;                       /* 1, or 4 */
} gpu_product;
void gpu_begin_product(emit *e, const gpu_product *p, LLVMValueRef *acc, int n);

/* ---- gpu_space.c: the matrices of a contraction or convolution ---- */
typedef struct gpu_space {
    ir_gpu_space of;
    LLVMValueRef size[IR_GPU_AXES]; /* i64 */
} gpu_space;
void gpu_space_of(emit *e, gpu_space *s);
/* index[dim], i64, of the dims of an axis at a number along it; columns and products by 32-bit division, below 2^31. */
void gpu_space_split(emit *e, const gpu_space *s, ir_gpu_axis axis, LLVMValueRef number, LLVMValueRef *index);
/* Elements of a buffer from number 0 to `number` along an axis. */
LLVMValueRef gpu_space_offset(emit *e, const gpu_space *s, ir_gpu_axis axis, int buffer, LLVMValueRef number);
/* The index along one dim; NULL: the axis has no such dim. */
LLVMValueRef gpu_space_index(emit *e, const gpu_space *s, ir_gpu_axis axis, int dim, LLVMValueRef number);

fusor_status gpu_emit_map(emit *e, fu_error *err);
void gpu_emit_turn(emit *e);                       /* transposed maps */
fusor_status gpu_emit_row(emit *e, fu_error *err); /* reduce and row */
fusor_status gpu_emit_scan(emit *e, fu_error *err);
fusor_status gpu_emit_contract(emit *e, fu_error *err);
void gpu_emit_fma(emit *e); /* a contraction's or convolution's tiles without tensor cores */
void gpu_emit_mma(emit *e); /* where ir_gpu_is_mma */
fusor_status gpu_emit_window(emit *e, fu_error *err);
fusor_status gpu_emit_attention(emit *e, fu_error *err);
#endif
