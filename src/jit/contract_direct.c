/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* contract_direct.c: the contraction of small matrices, whose sizes and strides are all known (ir/kernel.h: direct
 * form).
 *
 * A batch is cut into tiles of mr rows x nr columns; rows and columns that are left over make smaller tiles. The
 * accumulators of a tile are registers: for each k, the vectors of operand 1's row are loaded from where they lie (or
 * from the panel that the batch was packed into; or element by element, where it is strided and so small that packing
 * would take longer) and multiplied with an element of each row of operand 0 in all lanes. The last vector of a row is
 * as wide as its columns, up to a power of two, and masked. The totals go from the registers through the epilogue to
 * the outputs; an epilogue that depends on the width of its vectors, or is long, reads them from a tile in scratch
 * (contract_epilogue.c). Where there is one batch, threads have rows of it.
 *
 * Each accumulator starts at 0 and takes the products in order of k, as in the packed form: K is no more than a K
 * block. */
#include "jit/contract.h"

enum {
    MAX_VECTORS = 8, /* in a row of a tile */
    MAX_ROWS = 32,
    UNROLLED = 160,   /* products of vectors that are written out; more of them become a loop */
    GROUPED = 4,      /* every which row of a narrow tile reads elements of operand 0 in groups */
    NARROW = 26,      /* rows of a tile and registers for such groups */
    PREFETCHED = 4096 /* bytes of a batch of operands from which on the next one is prefetched */
};

/* Vectors of a row of a tile: where each begins, its width, and how many of its lanes are columns. */
typedef struct vector {
    int at, lanes, valid;
} vector;
typedef struct row {
    int n;
    vector v[MAX_VECTORS];
} row;

typedef struct direct {
    contract *c;
    int m, n, k, w; /* sizes; lanes of a register */
    int64_t a_row, a_k, b_n,
        b_k;        /* elements from a row of operand 0 or a column of operand 1 to the next, from k to the next */
    bool is_packed; /* operand 1: in panels of nr columns, else where it lies */
    bool is_plain;  /* the epilogue runs on the accumulators */
    LLVMValueRef batch, a, b; /* in the batch being made: first elements */
    LLVMValueRef first, end;  /* its rows that are made, from a whole tile on; NULL: all */
    LLVMValueRef next[2]; /* of the operands, in the batch after this one; NULL: there is none, or it is near enough */
    int64_t next_step[2]; /* bytes to prefetch in one step of a tile along k */
} direct;

static vector make_vector(const direct *d, int at, int columns) {
    int lanes = 1;
    while (lanes < columns && lanes < d->w) lanes *= 2;
    return (vector){at, lanes, columns < lanes ? columns : lanes};
}

static row make_row(const direct *d, int columns) {
    row r = {0};
    for (int at = 0; at < columns; at += d->w) r.v[r.n++] = make_vector(d, at, columns - at);
    return r;
}

static LLVMTypeRef type_of(const direct *d, int lanes) {
    return lanes == 1 ? d->c->t_acc : LLVMVectorType(d->c->t_acc, (unsigned)lanes);
}

static LLVMValueRef first_lanes(const direct *d, int valid, int lanes) {
    LLVMValueRef bit[64];
    for (int i = 0; i < lanes; i++) bit[i] = LLVMConstInt(d->c->e->t_i1, i < valid, 0);
    return LLVMConstVector(bit, (unsigned)lanes);
}

/* Lanes from..from + n of x; past its last they are any. */
static LLVMValueRef lanes_of(const direct *d, LLVMValueRef x, int from, int n) {
    emit *e = d->c->e;
    LLVMValueRef index[64];
    if (n == 1) return LLVMBuildExtractElement(e->b, x, LLVMConstInt(e->t_i32, (unsigned)from, 0), "");
    for (int i = 0; i < n; i++) index[i] = LLVMConstInt(e->t_i32, (unsigned)(from + i), 0);
    return LLVMBuildShuffleVector(e->b, x, LLVMGetPoison(LLVMTypeOf(x)), LLVMConstVector(index, (unsigned)n), "");
}

/* ---- the next batch ---- */
/* While a batch is multiplied, the next one is brought into L1, a little with each step along k: operands that stream
 * from memory would else be waited for in the first tile of each batch, which reads all of operand 1. EPYC 9005, 1,000
 * batches of 64^3 f32 in 48 MB, one thread: 2.4 ms, without 3.5 to 5.3; where all is in L2 it makes no difference. (Into
 * L2, EPYC 9004: 1.05 to 1.12 times as long for 32^3 to 64^3.) */
static void plan_prefetch(direct *d) {
    contract *c = d->c;
    emit *e = c->e;
    int tiles = (d->m / c->mr) * (d->n / c->nr);
    int64_t bytes[2] = {(int64_t)d->m * d->k * c->acc_bytes, (int64_t)d->k * d->n * c->acc_bytes};
    if (!c->n_batch || d->is_packed || bytes[0] + bytes[1] < PREFETCHED || !tiles) return;
    for (int i = 0; i < 2; i++) {
        int buffer = c->k->inst[c->operand[i]].index, inner = c->batch[c->n_batch - 1];
        if (c->k->buffer[buffer].stride[inner] == 0) continue;
        d->next[i] = element(c, i ? d->b : d->a, e->stride[buffer][inner]);
        d->next_step[i] = (bytes[i] + tiles * d->k - 1) / (tiles * d->k);
    }
}

/* Where a tile begins to prefetch, of operand i. */
static LLVMValueRef prefetch_from(const direct *d, int i, LLVMValueRef m0, LLVMValueRef n0) {
    contract *c = d->c;
    emit *e = c->e;
    if (!d->next[i]) return NULL;
    int64_t each = d->next_step[i] * d->k; /* bytes a tile: m0 / mr + n0 / nr * row tiles of it are done */
    LLVMValueRef rows = LLVMBuildUDiv(e->b, m0, num(c, c->mr), ""),
                 columns = LLVMBuildUDiv(e->b, n0, num(c, c->nr), "");
    LLVMValueRef done = em_add(e, rows, em_mul(e, columns, num(c, d->m / c->mr)));
    return em_gep(e, d->next[i], e->t_i8, em_mul(e, done, num(c, each)));
}

/* ---- products ---- */
static LLVMValueRef load_vector(const direct *d, LLVMValueRef at, vector v) {
    contract *c = d->c;
    int lanes = c->e->lanes;
    bool is_whole = v.valid == v.lanes || d->is_packed; /* panels are wide enough */
    if (d->b_n != 1 && v.lanes > 1) {
        LLVMValueRef x = LLVMConstNull(type_of(d, v.lanes));
        for (int i = 0; i < v.valid; i++) {
            LLVMValueRef one = LLVMBuildLoad2(c->e->b, c->t_acc, element(c, at, num(c, i * d->b_n)), "");
            LLVMSetAlignment(one, (unsigned)c->acc_bytes);
            x = LLVMBuildInsertElement(c->e->b, x, one, LLVMConstInt(c->e->t_i32, (unsigned)i, 0), "");
        }
        return x;
    }
    c->e->lanes = v.lanes;
    LLVMValueRef x =
        em_load_ptr(c->e, c->acc, at, is_whole ? NULL : first_lanes(d, v.valid, v.lanes), (unsigned)c->acc_bytes);
    c->e->lanes = lanes;
    return x;
}

/* x in all lanes of the widest vector of the row, and in the others'. */
static void splat(const direct *d, const row *r, LLVMValueRef x, LLVMValueRef out[MAX_VECTORS]) {
    emit *e = d->c->e;
    int lanes = e->lanes;
    for (int j = 0; j < r->n; j++) {
        e->lanes = r->v[j].lanes;
        if (j && r->v[j].lanes == r->v[0].lanes) out[j] = out[0];
        else out[j] = j && r->v[j].lanes > 1 ? lanes_of(d, out[0], 0, r->v[j].lanes) : em_splat(e, x);
    }
    e->lanes = lanes;
}

static LLVMValueRef mul_add(contract *c, LLVMValueRef a, LLVMValueRef b, LLVMValueRef sum) {
    return ir_is_float(c->acc) ? em_mad(c->e, a, b, sum) : em_add(c->e, em_mul(c->e, a, b), sum);
}

/* One k for a tile of `rows` rows. */
static void add_products(const direct *d, int rows, const row *r, LLVMValueRef *sum, LLVMValueRef pa, LLVMValueRef pb) {
    contract *c = d->c;
    LLVMValueRef b[MAX_VECTORS], a[MAX_VECTORS];
    for (int j = 0; j < r->n; j++) b[j] = load_vector(d, element(c, pb, num(c, r->v[j].at * d->b_n)), r->v[j]);
    for (int i = 0; i < rows; i++) {
        LLVMValueRef x = LLVMBuildLoad2(c->e->b, c->t_acc, element(c, pa, num(c, i * d->a_row)), "");
        LLVMSetAlignment(x, (unsigned)c->acc_bytes);
        splat(d, r, x, a);
        for (int j = 0; j < r->n; j++) sum[i * r->n + j] = mul_add(c, a[j], b[j], sum[i * r->n + j]);
    }
}

/* A tile of one vector a row loads an element of operand 0 for each product: as many loads as products, and more with
 * operand 1's, which is more than a core loads while it multiplies. So some rows load the adjacent elements of 16 bytes
 * to all lanes at once and take them apart in registers. EPYC 9005, 16x16x16 f32: 33 ns, without 37.5. Too many such
 * rows, and where shuffles and products share ports they would be what is waited for. Returns how many elements; 0: it
 * is not for this tile. */
static int grouped(const direct *d, int rows, const row *r) {
    bool is_narrow = ir_is_float(d->c->acc) && d->a_k == 1 && r->n == 1 && d->c->e->level->has_mask;
    return is_narrow && r->v[0].lanes >= 8 && rows >= GROUPED && rows < NARROW ? 16 / d->c->acc_bytes : 0;
}

/* As many rows as there are registers for. */
static bool is_grouped(int rows, int i) { return i % GROUPED == GROUPED - 1 && i / GROUPED < NARROW - rows; }

/* The n elements at p, each in all lanes. */
static void load_group(const direct *d, int n, int lanes, LLVMValueRef p, LLVMValueRef *out) {
    contract *c = d->c;
    emit *e = c->e;
    LLVMTypeRef part = LLVMVectorType(c->t_acc, (unsigned)n), type = type_of(d, lanes);
    LLVMValueRef x = LLVMBuildLoad2(e->b, part, p, ""), index[64];
    LLVMSetAlignment(x, (unsigned)c->acc_bytes);
    for (int i = 0; i < lanes; i++) index[i] = LLVMConstInt(e->t_i32, (unsigned)(i % n), 0);
    x = LLVMBuildShuffleVector(e->b, x, LLVMGetPoison(part), LLVMConstVector(index, (unsigned)lanes), "");
    x = em_opaque(e, x); /* seen through, they would become n loads */
    for (int k = 0; k < n; k++) {
        for (int i = 0; i < lanes; i++) index[i] = LLVMConstInt(e->t_i32, (unsigned)(i / n * n + k), 0);
        out[k] = LLVMBuildShuffleVector(e->b, x, LLVMGetPoison(type), LLVMConstVector(index, (unsigned)lanes), "");
    }
}

/* n adjacent k for a tile of one vector a row. */
static void add_group(const direct *d, int n, int rows, const row *r, LLVMValueRef *sum, LLVMValueRef pa,
                      LLVMValueRef pb) {
    contract *c = d->c;
    LLVMValueRef group[MAX_ROWS][4], a[MAX_VECTORS];
    for (int i = 0; i < rows; i++)
        if (is_grouped(rows, i)) load_group(d, n, r->v[0].lanes, element(c, pa, num(c, i * d->a_row)), group[i]);
    for (int k = 0; k < n; k++) {
        LLVMValueRef b = load_vector(d, element(c, pb, num(c, k * d->b_k)), r->v[0]);
        for (int i = 0; i < rows; i++) {
            if (!is_grouped(rows, i)) {
                LLVMValueRef x = LLVMBuildLoad2(c->e->b, c->t_acc, element(c, pa, num(c, i * d->a_row + k)), "");
                LLVMSetAlignment(x, (unsigned)c->acc_bytes);
                splat(d, r, x, a);
            } else a[0] = group[i][k];
            sum[i] = mul_add(c, a[0], b, sum[i]);
        }
    }
}

static void add_steps(const direct *d, int rows, const row *r, LLVMValueRef *sum, LLVMValueRef pa, LLVMValueRef pb,
                      int steps) {
    contract *c = d->c;
    int k = 0, n = grouped(d, rows, r);
    for (; n && k + n <= steps; k += n)
        add_group(d, n, rows, r, sum, element(c, pa, num(c, k)), element(c, pb, num(c, k * d->b_k)));
    for (; k < steps; k++)
        add_products(d, rows, r, sum, element(c, pa, num(c, k * d->a_k)), element(c, pb, num(c, k * d->b_k)));
}

/* All K products from 0 on: written out, or a loop of a number of steps and the rest behind it. */
static void add_all(const direct *d, int rows, const row *r, LLVMValueRef *sum, LLVMValueRef pa, LLVMValueRef pb,
                    LLVMValueRef m0, LLVMValueRef n0) {
    contract *c = d->c;
    emit *e = c->e;
    int n = rows * r->n, steps = d->k;
    for (int i = 0; i < n; i++) sum[i] = LLVMConstNull(type_of(d, r->v[i % r->n].lanes));
    if (n * d->k > UNROLLED) {
        /* What is loaded early for the next k would take registers of large tiles. */
        steps = e->level->has_mask ? 32 / n : 12 / n;
        if (steps < 1) steps = 1;
        const int group = grouped(d, rows, r);
        if (group) steps = (steps + group - 1) / group * group;
        while (!group && d->k % steps > steps / 2) steps--;
    }
    int rounds = d->k / steps;
    if (rounds > 1) {
        LLVMValueRef phi[4], start[4] = {pa, pb}, then[4], next[MAX_ROWS], left, one = num(c, 1),
                             count = num(c, rounds);
        int64_t step[4];
        int n_phi = 2;
        for (int i = 0; i < 2; i++) {
            if (!d->next[i] || rows < c->mr || r->n < c->nv) continue;
            step[n_phi] = steps * d->next_step[i];
            start[n_phi++] = prefetch_from(d, i, m0, n0);
        }
        LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b), body = em_block(e, "products"), done = em_block(e, "sums");
        LLVMBuildBr(e->b, body);
        LLVMPositionBuilderAtEnd(e->b, body);
        left = LLVMBuildPhi(e->b, e->t_i64, "");
        LLVMAddIncoming(left, &count, &before, 1);
        for (int i = 0; i < n_phi; i++) {
            phi[i] = LLVMBuildPhi(e->b, e->t_ptr, "");
            LLVMAddIncoming(phi[i], &start[i], &before, 1);
        }
        for (int i = 0; i < n; i++) {
            LLVMValueRef zero = sum[i];
            next[i] = sum[i] = LLVMBuildPhi(e->b, LLVMTypeOf(zero), "");
            LLVMAddIncoming(sum[i], &zero, &before, 1);
        }
        add_steps(d, rows, r, next, phi[0], phi[1], steps);
        pa = then[0] = element(c, phi[0], num(c, steps * d->a_k));
        pb = then[1] = element(c, phi[1], num(c, steps * d->b_k));
        for (int i = 2; i < n_phi; i++) {
            em_prefetch_lines(e, phi[i], step[i], 1);
            then[i] = em_gep(e, phi[i], e->t_i8, num(c, step[i]));
        }
        LLVMValueRef less = em_sub(e, left, one);
        LLVMAddIncoming(left, &less, &body, 1);
        for (int i = 0; i < n_phi; i++) LLVMAddIncoming(phi[i], &then[i], &body, 1);
        for (int i = 0; i < n; i++) {
            LLVMAddIncoming(sum[i], &next[i], &body, 1);
            sum[i] = next[i];
        }
        LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntNE, less, num(c, 0)), body, done);
        LLVMPositionBuilderAtEnd(e->b, done);
    } else {
        rounds = 0;
    }
    add_steps(d, rows, r, sum, pa, pb, d->k - rounds * steps);
}

/* ---- what becomes of the totals ---- */
static void finish_lanes(const direct *d, LLVMValueRef m, LLVMValueRef n, LLVMValueRef sum, int lanes,
                         LLVMValueRef mask) {
    contract_point at = {d->c, m, n, NULL, lanes > 1 ? d->c->dim_n : -1, mask};
    d->c->e->lanes = lanes;
    contract_finish(d->c, &at, sum);
    d->c->e->lanes = d->c->lanes;
}

/* Without masks, a vector that is not full is stored by its halves. */
static void finish_vector(const direct *d, LLVMValueRef m, LLVMValueRef n, LLVMValueRef sum, vector v) {
    emit *e = d->c->e;
    if (v.valid == v.lanes || e->level->has_mask) {
        finish_lanes(d, m, n, sum, v.lanes, v.valid == v.lanes ? NULL : first_lanes(d, v.valid, v.lanes));
        return;
    }
    for (int at = 0, part = v.lanes / 2; part; part /= 2)
        if (v.valid - at >= part) {
            finish_lanes(d, m, em_add(e, n, num(d->c, at)), lanes_of(d, sum, at, part), part, NULL);
            at += part;
        }
}

static void emit_tile(const direct *d, int rows, const row *r, LLVMValueRef m0, LLVMValueRef n0, LLVMValueRef pb) {
    contract *c = d->c;
    emit *e = c->e;
    LLVMValueRef sum[MAX_ROWS];
    add_all(d, rows, r, sum, element(c, d->a, em_mul(e, m0, num(c, d->a_row))), pb, m0, n0);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < r->n; j++) {
            if (d->is_plain) {
                finish_vector(d, em_add(e, m0, num(c, i)), em_add(e, n0, num(c, r->v[j].at)), sum[i * r->n + j],
                              r->v[j]);
                continue;
            }
            LLVMValueRef to = element(c, e->scratch, num(c, i * c->nr + r->v[j].at));
            LLVMSetAlignment(LLVMBuildStore(e->b, sum[i * r->n + j], to), (unsigned)c->acc_bytes);
        }
    if (!d->is_plain)
        contract_call(c, FINISH, (LLVMValueRef[]){e->args, d->batch, m0, n0, num(c, rows), e->scratch}, 6);
}

/* ---- loops ---- */
static void emit_rows(const direct *d, const row *r, LLVMValueRef n0, LLVMValueRef pb) {
    contract *c = d->c;
    emit *e = c->e;
    int whole = d->m / c->mr, left = d->m % c->mr;
    LLVMValueRef whole_end = num(c, whole * c->mr);
    if (whole > 1) {
        em_loop l = em_for(e, d->first ? d->first : num(c, 0), d->first ? em_min(e, d->end, whole_end) : whole_end,
                           num(c, c->mr));
        emit_tile(d, c->mr, r, l.i, n0, pb);
        em_end(e, &l);
    } else if (whole) emit_tile(d, c->mr, r, num(c, 0), n0, pb);
    if (!left) return;
    em_branch last = {0};
    if (d->first) last = em_if(e, em_icmp(e, LLVMIntSGT, d->end, whole_end));
    emit_tile(d, left, r, whole_end, n0, pb);
    if (d->first) em_endif(e, &last);
}

/* The rows of tiles [tile_begin, tile_end): launch_contract.c. */
static void cut_rows(direct *d) {
    contract *c = d->c;
    emit *e = c->e;
    LLVMValueRef rows = em_max(e, e->tune[IR_TUNE_CONTRACT_MC], num(c, c->mr)), m = num(c, d->m);
    d->first = em_mul(e, e->tile_begin, rows);
    d->end = em_mul(e, e->tile_end, rows);
    d->end = em_select(e, em_icmp(e, LLVMIntSLT, em_sub(e, m, d->end), rows), m, d->end);
}

/* Where the columns from n0 on, of panel number `panel`, begin. */
static LLVMValueRef columns_at(const direct *d, LLVMValueRef n0) {
    return element(d->c, d->b, em_mul(d->c->e, n0, num(d->c, d->is_packed ? d->k : d->b_n)));
}

static void emit_columns(const direct *d) {
    contract *c = d->c;
    emit *e = c->e;
    int whole = d->n / c->nr, left = d->n % c->nr;
    row all = make_row(d, c->nr), rest = make_row(d, left);
    if (whole > 1) {
        em_loop l = em_for(e, num(c, 0), num(c, whole * c->nr), num(c, c->nr));
        emit_rows(d, &all, l.i, columns_at(d, l.i));
        em_end(e, &l);
    } else if (whole) emit_rows(d, &all, num(c, 0), columns_at(d, num(c, 0)));
    LLVMValueRef n0 = num(c, whole * c->nr);
    if (left) emit_rows(d, &rest, n0, columns_at(d, n0));
}

static LLVMValueRef operand_at(const direct *d, int operand) {
    contract *c = d->c;
    int buffer = c->k->inst[c->operand[operand]].index;
    return em_gep(c->e, c->e->base[buffer], c->t_acc, c->batch_off[buffer]);
}

/* Any width is right for what is element by element without functions of more than a few instructions, and without
 * halves: their lowerings know the level's width and single elements. */
static bool is_plain_epilogue(const contract *c) {
    int n = 0;
    for (int i = 0; i < c->k->n_insts; i++) {
        const ir_kinst *in = &c->k->inst[i];
        if (in->op == IR_K_LOAD && in->variant) return false;
        if (ir_is_half(in->dtype)) return false;
        if (in->op >= IR_OP_COUNT || in->op == IR_OP_MATMUL) continue;
        if (ir_ops[in->op].flags & IR_COSTLY || ir_ops[in->op].kind == IR_KIND_RANDOM || in->op == IR_OP_FMA)
            return false;
        n++;
    }
    return n <= 12;
}

fusor_status contract_emit_direct(contract *c, fu_error *err) {
    emit *e = c->e;
    int lanes = c->v_lanes > c->lanes ? c->v_lanes : c->lanes;
    direct d = {.c = c, .w = c->v_lanes};
    const ir_kinst *y = &c->k->inst[c->operand[1]];
    const int64_t *b = y->op == IR_K_LOAD && !y->variant && y->dtype == c->acc ? c->k->buffer[y->index].stride : NULL;
    d.is_plain = is_plain_epilogue(c);
    if (c->mr < 1 || c->kb < IR_BAKE_MAX || c->nr < 1 || c->nr % lanes || c->nv > MAX_VECTORS ||
        c->mr * c->nv > MAX_ROWS)
        return FU_FAIL(err, FUSOR_ERROR_INTERNAL, "direct contract kernel: tile %d x %d x %d does not fit level %s",
                       c->mr, c->nr, c->kb, e->level->name);
    d.m = (int)c->k->dim[c->dim_m].size;
    d.n = (int)c->k->dim[c->dim_n].size;
    d.k = (int)c->k->dim[c->dim_k].size;
    const int64_t *a = c->k->buffer[c->k->inst[c->operand[0]].index].stride;
    d.a_row = a[c->dim_m];
    d.a_k = a[c->dim_k];
    d.is_packed = !b || b[c->dim_n] == IR_STRIDE_RUNTIME || b[c->dim_k] == IR_STRIDE_RUNTIME ||
                  (b[c->dim_n] != 1 && (d.k >= c->lanes || d.n > c->lanes));
    d.b_n = d.is_packed ? 1 : b[c->dim_n];
    d.b_k = d.is_packed ? c->nr : b[c->dim_k];
    contract_set_values(c);
    if (d.is_packed) contract_emit_pack(c, 1);
    if (!d.is_plain) contract_emit_epilogue(c);
    const bool has_rows = ir_kernel_has_rows(c->whole);
    if (has_rows) FU_TRY(contract_emit_rows(c, err));
    e->is_optimized = true;
    e->lanes = c->lanes;
    const bool cuts_rows = ir_kernel_cuts_rows(c->whole);
    em_loop l = {0};
    if (cuts_rows) cut_rows(&d);
    else l = em_for(e, e->tile_begin, e->tile_end, num(c, 1));
    d.batch = cuts_rows ? num(c, 0) : l.i;
    contract_decode_batch(c, d.batch, UINT32_MAX);
    d.a = operand_at(&d, 0);
    int64_t kept_at = ir_kernel_contract_head_bytes(c->whole);
    if (d.is_packed) kept_at += ((int64_t)(d.n + c->nr - 1) / c->nr * c->nr * d.k * c->acc_bytes + 63) / 64 * 64;
    LLVMValueRef kept = em_gep(e, e->scratch, e->t_i8, num(c, kept_at));
    if (has_rows) contract_begin_batch(c, kept, d.batch);
    if (d.is_packed) {
        LLVMValueRef panels = num(c, (d.n + c->nr - 1) / c->nr), zero = num(c, 0);
        d.b = em_gep(e, e->scratch, e->t_i8, num(c, ir_kernel_contract_head_bytes(c->whole)));
        contract_call_pack(c, 1, d.b, d.batch, zero, panels, zero, num(c, d.k));
    } else d.b = operand_at(&d, 1);
    plan_prefetch(&d);
    emit_columns(&d);
    if (has_rows) contract_end_batch(c, kept, d.batch);
    if (!cuts_rows) em_end(e, &l);
    return FUSOR_OK;
}
