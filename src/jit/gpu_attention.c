/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_attention.c: attention on a GPU, without the matrix of scores:
 *
 *   launch 1   a block of threads takes 64 queries of a batch (16, where there are no more: of halves by
 *              gpu_attention_few.c; by wgmma 64 or 128: gpu_attention_wgmma.c), `width` columns of the
 *              values, and a part of the keys, block by block of them (gpu_attention_block.c); results, largest scores
 *              and sums are in registers. Blocks of keys that none of the queries may see are left out. Later queries
 *              come first: of causal ones they see the most keys.
 *   launch 2   where keys are in several parts: a thread merges an element's, in their order
 *
 * Results go through shared memory, so that stores are contiguous and the epilogue is there once. Blocks of keys begin
 * at multiples of their size and parts follow from sizes. The description is that of the CPU's kernel (attention.c,
 * attention_rows.c). */
#include "jit/gpu_attention.h"

static LLVMValueRef num(flash *f, int64_t v) { return flash_num(f, v); }
static LLVMValueRef zero(flash *f) { return em_const(f->e, f->a.acc, 0); }

LLVMValueRef flash_ceil_div(flash *f, LLVMValueRef x, LLVMValueRef by) {
    emit *e = f->e;
    return LLVMBuildUDiv(e->b, em_sub(e, em_add(e, x, by), num(f, 1)), by, "");
}

static LLVMValueRef uniform(flash *f, int inst) {
    attention_point at = {.a = &f->a, .axis = -1};
    em_values v;
    if (inst < 0) return NULL;
    em_values_init(&v, attention_load, &at);
    return em_value(f->e, &v, inst);
}

/* ---- results ---- */
void flash_store_result(flash *f, LLVMValueRef m, LLVMValueRef n, LLVMValueRef value) {
    emit *e = f->e;
    attention *a = &f->a;
    attention_point at = {.a = a, .m = m, .n = n, .axis = -1};
    em_values v;
    em_values_init(&v, attention_load, &at);
    v.at[a->inst] = em_cast(e, value, a->acc, a->k->inst[a->inst].dtype);
    for (int i = 0; i < a->k->n_insts; i++)
        if (a->k->inst[i].op == IR_K_STORE) em_value(e, &v, a->k->inst[i].in[0]);
    for (int i = 0; i < a->k->n_insts; i++) {
        const ir_kinst *in = &a->k->inst[i];
        if (in->op == IR_K_STORE)
            em_store(e, in->index, em_value(e, &v, in->in[0]), attention_offset(a, in->index, &at), num(f, 1), NULL);
    }
}

LLVMValueRef flash_inverse(flash *f, LLVMValueRef sum) { return attention_inverse(&f->a, sum, f->a.n_keys); }

LLVMValueRef flash_scratch_row(flash *f, LLVMValueRef part, LLVMValueRef batches, LLVMValueRef batch, LLVMValueRef m) {
    emit *e = f->e;
    LLVMValueRef row = em_add(e, em_mul(e, part, batches), batch);
    row = em_add(e, em_mul(e, row, f->a.n_queries), m);
    return flash_at(f, e->scratch, em_mul(e, row, em_add(e, f->a.n_values, num(f, 2))));
}

typedef struct place {
    LLVMValueRef batches, batch, parts, part;
} place;

static void store_part_sums(flash *f, const place *p) {
    emit *e = f->e;
    em_branch first = em_if(e, em_icmp(e, LLVMIntEQ, f->x, num(f, 0)));
    for (int i = 0; i < f->rows; i++) {
        LLVMValueRef m = em_add(e, f->q0, em_add(e, f->y, num(f, i * f->row_step)));
        em_branch b = em_if(e, em_icmp(e, LLVMIntSLT, m, f->a.n_queries));
        LLVMValueRef at = flash_at(f, flash_scratch_row(f, p->part, p->batches, p->batch, m), f->a.n_values);
        flash_store(f, f->largest[i], at);
        flash_store(f, f->sum[i], flash_at(f, at, num(f, 1)));
        em_endif(e, &b);
    }
    em_endif(e, &first);
}

static void finish_by_shared(flash *f, const place *p, LLVMValueRef is_alone) {
    emit *e = f->e;
    const int of_row = f->width / f->side;
    LLVMValueRef one = em_const(e, f->a.acc, 1);
    LLVMValueRef to = em_add(e, em_mul(e, f->y, num(f, f->width)), em_mul(e, f->x, num(f, f->column_vec)));
    to = flash_at(f, f->shared, to);
    gpu_barrier(e); /* weights and values are read */
    for (int i = 0; i < f->rows; i++) {
        LLVMValueRef by = em_select(e, is_alone, flash_inverse(f, f->sum[i]), one);
        for (int c = 0; c < of_row; c++) {
            const int at = i * f->row_step * f->width + flash_column(f, c);
            flash_store(f, attention_share(e, f->a.acc, f->result[i * of_row + c], by), flash_at(f, to, num(f, at)));
        }
    }
    gpu_barrier(e);
    em_branch several = em_if(e, is_alone);
    em_else(e, &several);
    store_part_sums(f, p);
    em_endif(e, &several);
    em_loop l = em_for(e, f->thread, num(f, f->queries * f->width), num(f, f->threads));
    LLVMValueRef m = em_add(e, f->q0, LLVMBuildUDiv(e->b, l.i, num(f, f->width), "")),
                 n = em_add(e, f->n0, em_and(e, l.i, num(f, f->width - 1)));
    em_branch inside =
        em_if(e, em_and(e, em_icmp(e, LLVMIntSLT, m, f->a.n_queries), em_icmp(e, LLVMIntSLT, n, f->a.n_values)));
    LLVMValueRef value = flash_load(f, flash_at(f, f->shared, l.i));
    em_branch alone = em_if(e, is_alone);
    flash_store_result(f, m, n, value);
    em_else(e, &alone);
    flash_store(f, value, flash_at(f, flash_scratch_row(f, p->part, p->batches, p->batch, m), n));
    em_endif(e, &alone);
    em_endif(e, &inside);
    em_end(e, &l);
    gpu_keep_loop(e, &l);
    gpu_barrier(e); /* before the next block's operands */
}

/* The buffer that results go to as they are, adjacent along the columns; -1: there is more to do. */
static int plain_buffer(const flash *f) {
    const attention *a = &f->a;
    int found = -1;
    for (int i = 0; i < a->k->n_insts; i++) {
        const ir_kinst *in = &a->k->inst[i];
        if (in->op != IR_K_STORE) continue;
        if (found >= 0 || in->variant || in->in[0] != a->inst || a->k->buffer[in->index].stride[a->at.n] != 1)
            return -1;
        if (a->k->buffer[in->index].dtype != a->k->inst[a->inst].dtype || !ir_is_half(a->k->inst[a->inst].dtype))
            return -1;
        found = in->index;
    }
    return found;
}

static LLVMValueRef result_at(flash *f, int buffer, LLVMValueRef m, LLVMValueRef n) {
    attention_point at = {.a = &f->a, .m = m, .n = n, .axis = -1};
    return em_gep(f->e, f->e->base[buffer], f->e->t_i16, attention_offset(&f->a, buffer, &at));
}

/* Pairs of adjacent results, as fragments have them, go to where they belong at once: is all of it aligned so? */
static LLVMValueRef can_store_pairs(flash *f, int buffer) {
    emit *e = f->e;
    LLVMValueRef at = LLVMBuildPtrToInt(e->b, result_at(f, buffer, f->q0, f->n0), e->t_i64, "");
    LLVMValueRef odd = em_or(e, em_lshr(e, at, 1), em_or(e, e->stride[buffer][f->a.at.m], f->a.n_values));
    return em_icmp(e, LLVMIntEQ, em_and(e, odd, num(f, 1)), num(f, 0));
}

static void store_pairs(flash *f, int buffer) {
    emit *e = f->e;
    const ir_dtype t = f->a.k->inst[f->a.inst].dtype;
    const int of_row = f->width / f->side;
    LLVMValueRef n = em_add(e, f->n0, em_mul(e, f->x, num(f, 2)));
    for (int i = 0; i < f->rows; i++) {
        LLVMValueRef m = em_add(e, f->q0, em_add(e, f->y, num(f, i * f->row_step))), by = flash_inverse(f, f->sum[i]);
        em_branch row = em_if(e, em_icmp(e, LLVMIntSLT, m, f->a.n_queries));
        LLVMValueRef to = result_at(f, buffer, m, n), left = em_sub(e, f->a.n_values, n);
        for (int c = 0; c < of_row; c += 2) {
            const int column = flash_column(f, c);
            LLVMValueRef v[2];
            for (int half = 0; half < 2; half++)
                v[half] = attention_share(e, f->a.acc, f->result[i * of_row + c + half], by);
            LLVMValueRef pair = flash_pair(f, t, v[0], v[1]);
            em_branch inside = em_if(e, em_icmp(e, LLVMIntSLT, num(f, column), left));
            LLVMSetAlignment(LLVMBuildStore(e->b, pair, em_gep(e, to, e->t_i16, num(f, column))), 4);
            em_endif(e, &inside);
        }
        em_endif(e, &row);
    }
}

static void finish(flash *f, const place *p) {
    emit *e = f->e;
    const int buffer = f->is_group ? plain_buffer(f) : -1;
    LLVMValueRef is_alone = em_icmp(e, LLVMIntEQ, p->parts, num(f, 1));
    for (int i = 0; i < f->rows; i++)
        for (int mask = f->side / 2; mask; mask /= 2)
            f->sum[i] = em_fadd(e, f->sum[i], gpu_shuffle(e, f->sum[i], mask));
    if (buffer < 0) {
        finish_by_shared(f, p, is_alone);
        return;
    }
    em_branch direct = em_if(e, em_and(e, is_alone, can_store_pairs(f, buffer)));
    store_pairs(f, buffer);
    em_else(e, &direct);
    finish_by_shared(f, p, is_alone);
    em_endif(e, &direct);
}

/* ---- launch 1 ---- */
static void add_all_keys(flash *f, LLVMValueRef from, LLVMValueRef to) {
    emit *e = f->e;
    const int n = f->rows * f->width / f->side;
    em_loop l = em_for(e, from, to, num(f, f->keys));
    LLVMValueRef result[FLASH_ROWS * FLASH_WIDTH], largest[FLASH_ROWS], sum[FLASH_ROWS];
    for (int i = 0; i < n; i++) f->result[i] = result[i] = em_loop_phi(e, &l, zero(f));
    for (int i = 0; i < f->rows; i++) {
        f->largest[i] = largest[i] = em_loop_phi(e, &l, em_const(e, f->a.acc, -__builtin_inf()));
        f->sum[i] = sum[i] = em_loop_phi(e, &l, zero(f));
    }
    (f->is_mma ? flash_mma_keys : flash_add_keys)(f, l.i);
    for (int i = 0; i < n; i++) em_loop_next(e, result[i], f->result[i]);
    for (int i = 0; i < f->rows; i++) em_loop_next(e, largest[i], f->largest[i]), em_loop_next(e, sum[i], f->sum[i]);
    em_end(e, &l);
    for (int i = 0; i < n; i++) f->result[i] = result[i];
    for (int i = 0; i < f->rows; i++) f->largest[i] = largest[i], f->sum[i] = sum[i];
}

void flash_find_part(flash *f, LLVMValueRef part, LLVMValueRef parts, LLVMValueRef first, LLVMValueRef last,
                     LLVMValueRef *from, LLVMValueRef *to) {
    emit *e = f->e;
    attention *a = &f->a;
    LLVMValueRef keys = num(f, f->keys), length = flash_ceil_div(f, a->n_keys, parts);
    length = em_mul(e, flash_ceil_div(f, length, keys), keys);
    *from = em_mul(e, part, length);
    *to = em_min(e, a->n_keys, em_add(e, *from, length));
    if (a->low >= 0) {
        LLVMValueRef seen = em_and(e, em_max(e, num(f, 0), em_add(e, first, f->low)), num(f, -f->keys));
        *from = em_max(e, *from, seen);
    }
    f->seen_end = a->n_keys;
    if (a->high >= 0) f->seen_end = em_min(e, a->n_keys, em_add(e, em_add(e, last, f->high), num(f, 1)));
    *to = em_min(e, *to, f->seen_end);
}

static void emit_queries(flash *f, const place *p) {
    emit *e = f->e;
    LLVMValueRef from, to;
    LLVMValueRef last = em_sub(e, em_min(e, em_add(e, f->q0, num(f, f->queries)), f->a.n_queries), num(f, 1));
    flash_find_part(f, p->part, p->parts, f->q0, last, &from, &to);
    (f->is_group ? flash_group_keys : add_all_keys)(f, from, to);
    finish(f, p);
}

LLVMValueRef flash_count_batches(flash *f) {
    LLVMValueRef n = num(f, 1);
    for (int d = 0; d < f->a.at.m; d++) n = em_mul(f->e, n, f->e->size[d]);
    return n;
}

static void emit_blocks(flash *f, int rows, bool is_mma) {
    emit *e = f->e;
    attention *a = &f->a;
    f->is_mma = is_mma;
    f->rows = is_mma ? FLASH_MMA_ROWS : rows;
    f->queries = f->is_group ? f->threads / 2 : rows * FLASH_GROUPS;
    f->side = is_mma ? FLASH_MMA_SIDE : FLASH_SIDE;
    f->row_step = is_mma ? 8 : FLASH_GROUPS;
    f->key_vec = is_mma ? 2 : 1;
    f->column_vec = is_mma ? 2 : f->vec;
    f->own_keys = f->keys / f->side;
    f->x = em_and(e, f->thread, num(f, f->side - 1));
    f->y = LLVMBuildUDiv(e->b, f->thread, num(f, f->side), "");
    if (is_mma) { /* 8 queries of each warp, then 8 more */
        LLVMValueRef warp = LLVMBuildUDiv(e->b, f->thread, num(f, IR_GPU_WARP), "");
        f->y = em_add(e, f->y, em_mul(e, warp, num(f, 8)));
    }
    place p = {.batches = flash_count_batches(f), .parts = gpu_word(e, IR_GPU_WORD_CHUNKS)};
    LLVMValueRef width = num(f, f->width), blocks = flash_ceil_div(f, a->n_queries, num(f, f->queries));
    em_loop lb = em_for(e, gpu_special(e, "ctaid.z"), p.batches, gpu_special(e, "nctaid.z"));
    p.batch = lb.i;
    attention_decode(a, lb.i);
    flash_find_vectors(f);
    em_loop ln = em_for(e, em_mul(e, gpu_special(e, "ctaid.y"), width), a->n_values,
                        em_mul(e, gpu_special(e, "nctaid.y"), width));
    f->n0 = ln.i;
    em_loop lq = em_for(e, gpu_special(e, "ctaid.x"), em_mul(e, blocks, p.parts), gpu_special(e, "nctaid.x"));
    p.part = LLVMBuildURem(e->b, lq.i, p.parts, "");
    LLVMValueRef block = em_sub(e, em_sub(e, blocks, num(f, 1)), LLVMBuildUDiv(e->b, lq.i, p.parts, ""));
    f->q0 = em_mul(e, block, num(f, f->queries));
    emit_queries(f, &p);
    em_end(e, &lq);
    em_end(e, &ln);
    em_end(e, &lb);
}

/* ---- launch 2 ---- */
enum { PARTS = 8 }; /* parts that are read at a time */
static void emit_merge(flash *f) {
    emit *e = f->e;
    attention *a = &f->a;
    LLVMValueRef batches = flash_count_batches(f), parts = gpu_word(e, IR_GPU_WORD_CHUNKS);
    LLVMValueRef total = em_mul(e, em_mul(e, batches, a->n_queries), a->n_values);
    gpu_span x = gpu_threads(e, 'x');
    em_loop l = em_for(e, x.first, total, x.step);
    LLVMValueRef n = LLVMBuildURem(e->b, l.i, a->n_values, ""), row = LLVMBuildUDiv(e->b, l.i, a->n_values, "");
    LLVMValueRef m = LLVMBuildURem(e->b, row, a->n_queries, ""), batch = LLVMBuildUDiv(e->b, row, a->n_queries, "");
    attention_decode(a, batch);
    LLVMValueRef last = em_sub(e, parts, num(f, 1)), at[PARTS], v[PARTS], sums[PARTS], largest[PARTS];
    em_loop p = em_for(e, num(f, 0), parts, num(f, PARTS));
    LLVMValueRef most = em_loop_phi(e, &p, em_const(e, a->acc, -__builtin_inf())), next = most;
    for (int i = 0; i < PARTS; i++) {
        at[i] = flash_scratch_row(f, em_min(e, em_add(e, p.i, num(f, i)), last), batches, batch, m);
        largest[i] = flash_load(f, flash_at(f, at[i], a->n_values));
    }
    for (int i = 0; i < PARTS; i++) next = flash_larger(f, largest[i], next);
    em_loop_next(e, most, next);
    em_end(e, &p);
    gpu_keep_loop(e, &p);
    LLVMValueRef minus = flash_about(f, most);
    p = em_for(e, num(f, 0), parts, num(f, PARTS));
    LLVMValueRef sum = em_loop_phi(e, &p, zero(f)), result = em_loop_phi(e, &p, zero(f)), more[2] = {sum, result};
    for (int i = 0; i < PARTS; i++) {
        at[i] = flash_scratch_row(f, em_min(e, em_add(e, p.i, num(f, i)), last), batches, batch, m);
        v[i] = flash_load(f, flash_at(f, at[i], n));
        at[i] = flash_at(f, at[i], a->n_values);
        largest[i] = flash_load(f, at[i]);
        sums[i] = flash_load(f, flash_at(f, at[i], num(f, 1)));
    }
    for (int i = 0; i < PARTS; i++) { /* what is behind the last part was read as it */
        LLVMValueRef is_part = em_icmp(e, LLVMIntSLE, em_add(e, p.i, num(f, i)), last);
        LLVMValueRef factor = flash_exp(f, em_fsub(e, largest[i], minus));
        more[0] = em_select(e, is_part, em_mad(e, sums[i], factor, more[0]), more[0]);
        more[1] = em_select(e, is_part, em_mad(e, v[i], factor, more[1]), more[1]);
    }
    em_loop_next(e, sum, more[0]);
    em_loop_next(e, result, more[1]);
    em_end(e, &p);
    gpu_keep_loop(e, &p);
    flash_store_result(f, m, n, attention_share(e, f->a.acc, result, flash_inverse(f, sum)));
    em_end(e, &l);
}

/* Elements of shared memory: queries and keys, or weights, and values behind them; or the results. */
static int lay_out(flash *f) {
    const bool is_wide = f->a.acc == FUSOR_F64;
    f->vec = is_wide ? 2 : 4;
    f->keys = f->a.k->tile.kb;
    f->slice = is_wide ? 16 : 32;
    f->line = f->slice + f->vec;
    f->weight_line = f->keys + 2 * f->vec;
    f->width = ir_gpu_attention_width(f->a.k);
    f->value_rows = is_wide ? 16 : 32;
    const int queries = IR_GPU_ATTENTION_QUERIES, operands = (queries + f->keys) * f->line,
              weights = queries * f->weight_line;
    f->values_at = operands > weights ? operands : weights;
    const int all = f->values_at + f->value_rows * f->width, results = queries * f->width;
    int most = all > results ? all : results;
    if (flash_can_mma(f) && most < flash_mma_elements(f)) most = flash_mma_elements(f);
    if (ir_gpu_attention_has_few(f->a.k) && most < flash_few_elements(f)) most = flash_few_elements(f);
    return most;
}

static void enter_groups(flash *f, const ir_gpu_attention_group *g) {
    f->is_group = true;
    f->group = *g;
    f->threads = g->groups * 4 * IR_GPU_WARP;
    f->keys = g->keys;
    f->width = g->width;
    f->weight_line = g->keys + 2 * f->vec;
    f->weights = em_gep(f->e, f->shared, f->e->t_i8,
                        num(f, 2 * (f->threads / 2 * g->head + 2 * g->keys * (g->head + g->width))));
}

fusor_status gpu_emit_attention(emit *e, fu_error *err) {
    flash *f = FU_NEW(e->arena, flash);
    attention *a = &f->a;
    (void)err;
    f->e = e;
    attention_read(a, e);
    a->n_queries = e->size[a->at.m];
    a->n_values = e->size[a->at.n];
    a->head = e->size[a->at.k];
    a->n_keys = e->size[a->at.j];
    for (int b = 0; b < a->k->n_buffers; b++) a->batch_off[b] = num(f, 0);
    for (int d = 0; d < a->k->n_dims; d++) a->index[d] = num(f, 0);
    ir_gpu_attention_group g;
    const int elements = lay_out(f);
    const bool has_groups = ir_gpu_attention_group_of(a->k, &g);
    if (has_groups) {
        f->shared = gpu_dynamic_shared(e);
        gpu_limit(e, g.groups * 4 * IR_GPU_WARP, g.blocks);
    } else {
        f->shared = gpu_shared(e, a->t_acc, elements);
        /* 168 registers, or 255 */
        gpu_limit(e, IR_GPU_ATTENTION_THREADS, a->acc == FUSOR_F64 || (flash_can_mma(f) && f->width == 128) ? 2 : 3);
    }
    f->weights = f->shared;
    f->threads = IR_GPU_ATTENTION_THREADS;
    f->thread = gpu_special(e, "tid.x");
    f->scale = uniform(f, a->scale);
    f->cap = uniform(f, a->cap);
    f->low = uniform(f, a->low);
    f->high = uniform(f, a->high);
    em_branch phase = em_if(e, em_icmp(e, LLVMIntNE, e->phase, num(f, 0)));
    emit_merge(f);
    em_else(e, &phase);
    const bool has_few = ir_gpu_attention_has_few(a->k);
    LLVMValueRef is_small = em_icmp(e, LLVMIntSLE, a->n_queries, num(f, IR_GPU_ATTENTION_FEW)),
                 is_long = em_icmp(e, LLVMIntSGT, a->n_keys, num(f, IR_GPU_ATTENTION_KEYS));
    LLVMValueRef can_copy = has_groups || has_few ? flash_can_group(f) : NULL;
    em_branch rows;
    if (has_few) {
        flash *few = FU_NEW(e->arena, flash);
        *few = *f;
        rows = em_if(e, em_and(e, em_and(e, is_small, LLVMBuildNot(e->b, is_long, "")), can_copy));
        flash_emit_few(few);
        em_else(e, &rows);
    }
    LLVMValueRef is_few = em_or(e, is_small, is_long);
    if (has_groups) is_few = em_or(e, is_few, LLVMBuildNot(e->b, can_copy, ""));
    em_branch few = em_if(e, is_few);
    /* groups have more threads than the others: these end here */
    em_branch some = em_if(e, em_icmp(e, LLVMIntSLT, f->thread, num(f, IR_GPU_ATTENTION_THREADS)));
    emit_blocks(f, IR_GPU_ATTENTION_FEW / FLASH_GROUPS, false);
    em_endif(e, &some);
    em_else(e, &few);
    if (has_groups) enter_groups(f, &g);
    emit_blocks(f, FLASH_ROWS, has_groups || flash_can_mma(f));
    em_endif(e, &few);
    if (has_few) em_endif(e, &rows);
    em_endif(e, &phase);
    return FUSOR_OK;
}
