/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef PTX_H
#define PTX_H
/* An interpreter of PTX text, for tests: what code generation emits for a GPU runs here, without one.
 *
 * ptx_parse.c makes a module of decoded instructions; an opcode, modifier or directive that it does not know is an
 * error that names the line. ptx_run.c runs a grid: blocks one after the other, each warp 32 lanes with a program
 * counter each (the group with the least one runs), and checks what hardware leaves undefined: accesses outside an
 * allocation or not aligned, races in shared memory between barriers, barriers and warp-wide instructions that not all
 * lanes reach, reads of asynchronous copies that were not waited for (shared memory starts as NaNs).
 * ptx_mbarrier.c has barriers in shared memory, and who knows of what other warps did. ptx_alu.c has the arithmetic,
 * ptx_fast.c what of it is done for a whole warp at once.
 * Semantics: PTX ISA 9.0. Approximate functions are computed exactly and rounded; tensor-core sums are in f64. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ptx_type {
    PTX_NONE,
    PTX_B8,
    PTX_B16,
    PTX_B32,
    PTX_B64,
    PTX_B128,
    PTX_U8,
    PTX_U16,
    PTX_U32,
    PTX_U64,
    PTX_S8,
    PTX_S16,
    PTX_S32,
    PTX_S64,
    PTX_F16,
    PTX_BF16,
    PTX_F32,
    PTX_F64,
    PTX_TF32,
    PTX_F16X2,
    PTX_BF16X2,
    PTX_U16X2,
    PTX_S16X2,
    PTX_PRED
} ptx_type;
typedef enum ptx_space { PTX_GENERIC, PTX_GLOBAL, PTX_SHARED, PTX_LOCAL, PTX_PARAM, PTX_CONST } ptx_space;

/* name in the text = first word of the opcode */
#define PTX_OPS(X)                                                                                                     \
    X(ABS, "abs")                                                                                                      \
    X(ACTIVEMASK, "activemask")                                                                                        \
    X(ADD, "add") X(ADDC, "addc") X(AND, "and") X(ATOM, "atom") X(BAR, "bar") X(BARRIER, "barrier") X(BFE, "bfe")      \
        X(BFI, "bfi") X(BRA, "bra") X(BREV, "brev") X(CLZ, "clz") X(COPYSIGN, "copysign") X(COS, "cos") X(CP, "cp")    \
            X(CVT, "cvt") X(CVTA, "cvta") X(DIV, "div") X(EX2, "ex2") X(EXIT, "exit") X(FENCE, "fence") X(FMA, "fma")  \
                X(LD, "ld") X(LDMATRIX, "ldmatrix") X(LG2, "lg2") X(MAD, "mad") X(MAX, "max") X(MEMBAR, "membar")      \
                    X(MBARRIER, "mbarrier") X(MIN, "min") X(MMA, "mma") X(MOV, "mov") X(MUL, "mul") X(NEG, "neg") X(NOT, "not") X(OR, "or")    \
                        X(POPC, "popc") X(PREFETCH, "prefetch") X(PRMT, "prmt") X(RCP, "rcp") X(RED, "red")            \
                            X(REDUX, "redux") X(REM, "rem") X(RET, "ret") X(RSQRT, "rsqrt") X(SELP, "selp")            \
                                X(SETMAXNREG, "setmaxnreg") X(SETP, "setp") X(SHF, "shf") X(SHFL, "shfl") X(SHL, "shl") X(SHR, "shr")              \
                                    X(SIN, "sin") X(SQRT, "sqrt") X(ST, "st") X(SUB, "sub") X(SUBC, "subc")            \
                                        X(TANH, "tanh") X(TRAP, "trap") X(VOTE, "vote") X(WGMMA, "wgmma")              \
                                            X(XOR, "xor")
typedef enum ptx_op {
#define X(ID, NAME) PTX_##ID,
    PTX_OPS(X)
#undef X
        PTX_OP_COUNT
} ptx_op;

/* Words behind the opcode, but for types and spaces. */
#define PTX_MODIFIERS(X)                                                                                               \
    X(CC, "cc")                                                                                                        \
    X(LO, "lo")                                                                                                        \
    X(HI, "hi") X(WIDE, "wide") X(RN, "rn") X(RZ, "rz") X(RM, "rm") X(RP, "rp") X(RNI, "rni") X(RZI, "rzi")            \
        X(RMI, "rmi") X(RPI, "rpi") X(FTZ, "ftz") X(SAT, "sat") X(APPROX, "approx") X(FULL, "full") X(NANS, "NaN")     \
            X(SYNC, "sync") X(ALIGNED, "aligned") X(WARP, "warp") X(ARRIVE, "arrive") X(UNI, "uni") X(BFLY, "bfly")    \
                X(UP, "up") X(DOWN, "down") X(IDX, "idx") X(ALL, "all") X(ANY, "any") X(BALLOT, "ballot") X(TO, "to")  \
                    X(V2, "v2") X(V4, "v4") X(L, "l") X(R, "r") X(WRAP, "wrap") X(CLAMP, "clamp") X(EQ, "eq")          \
                        X(NE, "ne") X(LT, "lt") X(LE, "le") X(GT, "gt") X(GE, "ge") X(EQU, "equ") X(NEU, "neu")        \
                            X(LTU, "ltu") X(LEU, "leu") X(GTU, "gtu") X(GEU, "geu") X(NUM, "num") X(NAN_, "nan")       \
                                X(LS, "ls") X(HS, "hs") X(AND_, "and") X(OR_, "or") X(XOR_, "xor") X(ADD_, "add")      \
                                    X(MIN_, "min") X(MAX_, "max") X(EXCH, "exch") X(CAS, "cas") X(INC, "inc")          \
                                        X(ASYNC, "async") X(COMMIT_GROUP, "commit_group") X(WAIT_GROUP, "wait_group")  \
                                            X(WAIT_ALL, "wait_all") X(TRANS, "trans") X(X1, "x1") X(X2, "x2")          \
                                                X(X4, "x4") X(ROW, "row") X(COL, "col") X(M16N8K16, "m16n8k16")        \
                                                    X(M16N8K8, "m16n8k8") X(M8N8, "m8n8") X(M16N8K32, "m16n8k32")      \
                                                        X(MMA_ASYNC, "mma_async") X(FENCE_, "fence") X(PROXY, "proxy") \
                                                            X(M64N64K16, "m64n64k16") X(M64N128K16, "m64n128k16")      \
                                                                X(M64N256K16, "m64n256k16") X(RELU, "relu")            \
                                                                    X(RNA, "rna") X(DEC, "dec") X(INIT, "init")        \
                                                                        X(TRY_WAIT, "try_wait") X(PARITY, "parity")    \
                                                                            X(NOINC, "noinc") X(MBARRIER_, "mbarrier")
/* Words that change no value here: caches, scopes, orders of memory. */
#define PTX_IGNORED                                                                                                    \
    "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "relaxed", "acquire", "release", "acq_rel", "volatile", "weak",    \
        "gpu", "cta", "sys", "sc", "L1", "L2", "L1::no_allocate", "L1::evict_first", "L1::evict_last", "L2::128B",     \
        "L2::256B", "gl", "noftz"
enum {
#define X(ID, NAME) PTX_M_##ID##_,
    PTX_MODIFIERS(X)
#undef X
        PTX_M_COUNT
};
#define PTX_M(ID) ((unsigned __int128)1 << PTX_M_##ID##_)

typedef enum ptx_kind { PTX_REG, PTX_IMM, PTX_ADDRESS, PTX_VECTOR, PTX_LABEL, PTX_SPECIAL, PTX_SINK } ptx_kind;
typedef struct ptx_operand {
    ptx_kind kind;
    int reg;         /* REG; ADDRESS: base or -1; SPECIAL: ptx_special; VECTOR: how many */
    int second;      /* REG: the predicate behind '|', or -1; VECTOR: first in ptx_entry.element */
    bool is_negated; /* !%p */
    bool is_predicate; /* REG: a .pred (the last operand of cp.async is one, or a size) */
    uint64_t value;  /* IMM: bits of the type; ADDRESS: offset; LABEL: instruction */
    ptx_space space; /* ADDRESS, IMM made of a symbol: where it lies */
} ptx_operand;
typedef enum ptx_special {
    PTX_TID,
    PTX_NTID = PTX_TID + 3,
    PTX_CTAID = PTX_NTID + 3,
    PTX_NCTAID = PTX_CTAID + 3,
    PTX_LANEID = PTX_NCTAID + 3,
    PTX_WARPID,
    PTX_CLOCK
} ptx_special;

enum { PTX_MAX_OPERANDS = 8 };
typedef struct ptx_inst {
    ptx_op op;
    ptx_type type, from, third; /* the type words */
    ptx_space space, to;        /* the first and the second space word */
    unsigned __int128 modifier;
    int guard; /* register, or -1 */
    bool is_guard_negated;
    int n;
    ptx_operand in[PTX_MAX_OPERANDS]; /* destination first, as written */
    int line;
} ptx_inst;

/* Generic addresses of what is not allocated memory: window + offset. */
#define PTX_WINDOW_SHARED (1ull << 52)
#define PTX_WINDOW_LOCAL  (2ull << 52)
#define PTX_CONSTANTS     (3ull << 52) /* .global and .const variables of the module: the same in their own space */

typedef struct ptx_symbol {
    char *name;
    ptx_space space;
    uint64_t offset, bytes;
} ptx_symbol;
typedef struct ptx_param {
    char *name;
    ptx_type type;
    uint64_t bytes, offset;
} ptx_param;
typedef struct ptx_entry {
    char *name;
    ptx_param *param;
    int n_params;
    ptx_inst *inst;
    int n_insts;
    ptx_operand *element;
    int n_elements; /* of vectors */
    int n_regs;
    uint64_t shared_bytes, local_bytes, param_bytes;
    int max_threads, required[3]; /* .maxntid as a product, .reqntid; 0: not given */
} ptx_entry;
typedef struct ptx_module {
    ptx_entry *entry;
    int n_entries;
    ptx_symbol *symbol;
    int n_symbols; /* of the module: .shared (dynamic too), .global, .const */
    uint8_t *constants;
    uint64_t constant_bytes;
    uint64_t shared_bytes; /* of the module's own .shared */
    int version, target;   /* 70 for 7.0; 80 for sm_80 */
    bool is_for_one;       /* sm_90a: this compute capability alone */
    bool has_dynamic_shared;
} ptx_module;

enum { PTX_ERROR_ROOM = 512 };
/* NULL, and a text with the line, where the text is wrong or unknown. */
ptx_module *ptx_parse(const char *text, char error[PTX_ERROR_ROOM]);
void ptx_free(ptx_module *m);
const ptx_entry *ptx_find(const ptx_module *m, const char *name);

/* What a grid did, counted in instructions of a warp. Shared memory serves 128 bytes at a time from 32 banks of 4
 * bytes: a warp in as many turns as its bytes need (4 bytes a lane or less: one; 8: two halves of the warp; 16: four
 * quarters), and once more for each further word that lanes of a turn want of the same bank. */
typedef struct ptx_counts {
    uint64_t instructions, mma, wgmma, barriers;
    uint64_t shared_accesses, shared_turns, shared_least; /* shared_least: turns without conflicts */
    int worst_ways, worst_line;                           /* of a turn: 1 is none */
    uint64_t global_bytes;                                /* read and written, asynchronous copies too */
    uint8_t *reached; /* NULL, or by line of the text: 1 where a lane ran it, and the bits below */
} ptx_counts;
enum {
    PTX_WAITED = 2,         /* a wait that a copy of bytes was pending at, not of zeros alone */
    PTX_TOUCHED_BEFORE = 4, /* a barrier: shared memory was used between the one before and it */
    PTX_TOUCHED_BEHIND = 8  /* between it and the next one */
};
void ptx_count_shared(ptx_counts *c, const uint64_t at[32], uint32_t active, int bytes, int line);

typedef struct ptx_launch {
    const ptx_module *module;
    const ptx_entry *entry;
    uint32_t grid[3], block[3], dynamic_shared;
    const void *params; /* entry->param_bytes, each parameter at its offset */
    /* Host memory behind `bytes` bytes of global memory at an address; NULL: not all of it is allocated. */
    void *(*memory)(void *user, uint64_t address, uint64_t bytes, bool is_write);
    void *user;
    bool is_reversed;   /* warps and blocks from the last one on */
    ptx_counts *counts; /* NULL, or added to */
} ptx_launch;
/* false, and what went wrong and where, at the first error. */
bool ptx_run(const ptx_launch *l, char error[PTX_ERROR_ROOM]);

/* ptx_fast.c: a common instruction on the active lanes of reg[][32]; false: not done here. */
bool ptx_fast(const ptx_inst *i, uint64_t *reg, uint32_t active);
/* ptx_wgmma.c: one product of a group of four warps. */
enum { PTX_WGMMA_COLUMNS = 256 };
typedef struct ptx_product {
    ptx_type type;
    int columns, warp; /* of the four */
    bool is_turned[2]; /* not along k */
    uint64_t descriptor[2];
    bool has_a;         /* operand 0 is in registers: the warp's 16 rows */
    uint16_t a[16][16]; /* by row and k */
} ptx_product;
typedef struct ptx_shared {
    const uint8_t *data;
    uint64_t bytes;
    void (*touch)(void *user, uint64_t at, uint64_t bytes); /* what is read */
    void *user;
} ptx_shared;
/* d += the warp's 16 rows of the product (NULL: only reads); what is wrong, or NULL. */
const char *ptx_wgmma(const ptx_product *p, const ptx_shared *s, float d[16][PTX_WGMMA_COLUMNS]);

/* ptx_alu.c: the result of an instruction without side effects on one lane; in[] are the sources' bits. *ok = false:
 * the combination of types and modifiers is not known. */
uint64_t ptx_alu(const ptx_inst *i, const uint64_t *in, bool *ok);
bool ptx_compare(const ptx_inst *i, uint64_t a, uint64_t b, bool *ok);
int ptx_bytes(ptx_type t);
double ptx_to_double(ptx_type t, uint64_t bits);
uint64_t ptx_from_double(ptx_type t, double v); /* to nearest even, once */
#endif
