/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attention.c: the attention kernel: softmax(scale * queries x keys) x values, block of keys by block, without the
 * matrix of scores. Memory layouts are in ir/kernel.h; products are in attention_tile.c, weights in
 * attention_softmax.c, operands and results in attention_rows.c.
 *
 *   panels        a tile is some panels of up to nr queries of a batch; for each block of keys, and each panel that
 *                 sees any of it: scores = keys x queries, weights and factors, results = results * factors + values x
 *                 weights
 *   one by one    up to ir_attention_rows queries: a tile is a part of the keys of a batch, with lanes along the head;
 *                 where there are several parts, a second phase merges them in order
 *
 * Blocks begin at multiples of kb whatever a query sees of them, and parts follow from sizes; so a result does not
 * depend on the tile it was made in. */
#include "jit/amx.h"
#include "jit/attention.h"

LLVMValueRef attention_at(attention *a, LLVMValueRef base, LLVMValueRef i) { return em_gep(a->e, base, a->t_acc, i); }
static LLVMValueRef num(attention *a, int64_t v) { return em_i64s(a->e, v); }
static LLVMValueRef ceil_div(attention *a, LLVMValueRef x, LLVMValueRef by) {
    emit *e = a->e;
    return LLVMBuildUDiv(e->b, em_sub(e, em_add(e, x, by), num(a, 1)), by, "");
}
static LLVMValueRef round_up(attention *a, LLVMValueRef x, int64_t by) { /* by: a power of two */
    return em_and(a->e, em_add(a->e, x, num(a, by - 1)), num(a, -by));
}
static LLVMValueRef round_down(attention *a, LLVMValueRef x, int64_t by) { return em_and(a->e, x, num(a, -by)); }

/* ---- functions ---- */
static void set_values(attention *a) {
    emit *e = a->e;
    a->n_queries = e->size[a->at.m];
    a->n_values = e->size[a->at.n];
    a->head = e->size[a->at.k];
    a->n_keys = e->size[a->at.j];
    a->head_up = round_up(a, a->head, a->lanes);
    a->values_up = round_up(a, a->n_values, a->lanes);
    for (int b = 0; b < a->k->n_buffers; b++) a->batch_off[b] = num(a, 0);
    for (int d = 0; d < a->k->n_dims; d++) a->index[d] = num(a, 0);
}

attention_outer *attention_begin(attention *a, attention_function f, const char *name, LLVMTypeRef *parameter,
                                 unsigned n, bool has_args, bool is_optimized) {
    emit *e = a->e;
    a->function_type[f] = LLVMFunctionType(e->t_void, parameter, n, 0);
    a->function[f] = em_function(e, name, a->function_type[f], is_optimized);
    LLVMSetLinkage(a->function[f], LLVMInternalLinkage);
    attention_outer *o = FU_NEW(e->arena, attention_outer);
    *o = (attention_outer){*e, *a, LLVMGetInsertBlock(e->b)};
    e->fn = a->function[f];
    LLVMPositionBuilderAtEnd(e->b, em_block(e, "entry"));
    if (!has_args) return o;
    em_load_args(e, LLVMGetParam(e->fn, 0));
    set_values(a);
    return o;
}

void attention_end(attention *a, const attention_outer *o) {
    emit *e = a->e;
    LLVMPositionBuilderAtEnd(e->b, o->block);
    *e = o->e;
    *a = o->a;
}

void attention_call(attention *a, attention_function f, LLVMValueRef *in, unsigned n) {
    LLVMBuildCall2(a->e->b, a->function_type[f], a->function[f], in, n, "");
}

void attention_decode(attention *a, LLVMValueRef batch) {
    emit *e = a->e;
    for (int d = a->at.m - 1; d >= 0; d--) {
        a->index[d] = d ? LLVMBuildURem(e->b, batch, e->size[d], "") : batch;
        if (d) batch = LLVMBuildUDiv(e->b, batch, e->size[d], "");
    }
    if (a->at.g >= 0) { /* query head / (query heads / key heads) */
        LLVMValueRef one = num(a, 1), heads = em_max(e, e->size[a->at.g], one);
        LLVMValueRef each = em_max(e, LLVMBuildUDiv(e->b, e->size[a->at.h], heads, ""), one);
        a->index[a->at.g] = LLVMBuildUDiv(e->b, a->index[a->at.h], each, "");
    }
    for (int b = 0; b < a->k->n_buffers; b++) {
        a->batch_off[b] = num(a, 0);
        for (int d = 0; d < a->k->n_dims; d++)
            if ((d < a->at.m || d == a->at.g) && a->k->buffer[b].stride[d] != 0)
                a->batch_off[b] = em_add(e, a->batch_off[b], em_mul(e, a->index[d], e->stride[b][d]));
    }
}

/* ---- what both forms have ---- */
typedef struct run {
    LLVMValueRef keys, values, scores, factors, rows, least, mask_rows, mask, panels; /* scratch */
    LLVMValueRef turned, sums, turned_words; /* scratch where weights are split: values [E][words], products */
    LLVMValueRef scale, cap, low, high;
    LLVMValueRef is_far, later; /* a->is_raw: queries are scaled at once; the scale of scores then, or of all */
    LLVMValueRef batch, batches;
    LLVMValueRef all, vectors; /* panels of a batch, and registers of queries, which are parted among them evenly */
    /* of a tile: its first query, the end of the keys; of the next one: where queries, keys, values begin */
    LLVMValueRef tile_queries, tile_keys, next[3];
    /* of a block of keys: where keys and values lie, and elements from one key, or one column, to the next */
    LLVMValueRef k, k_row, k_step, v, v_row, v_step;
} run;

static LLVMValueRef uniform(attention *a, int inst, attention_point *at) {
    em_values v;
    if (inst < 0) return NULL;
    em_values_init(&v, attention_load, at);
    return em_value(a->e, &v, inst);
}

static run begin_run(attention *a) {
    emit *e = a->e;
    run r = {0};
    attention_point at = {.a = a, .axis = -1};
    LLVMValueRef kb = num(a, a->kb), nr = num(a, a->nr);
    e->lanes = 1;
    r.keys = e->scratch;
    r.values = attention_at(a, r.keys, em_mul(e, kb, a->head_up));
    r.scores = attention_at(a, r.values, em_mul(e, kb, a->values_up));
    r.factors = attention_at(a, r.scores, num(a, a->kb * a->nr));
    r.rows = attention_at(a, r.factors, nr);
    r.panels = attention_at(a, r.rows, em_mul(e, nr, em_max(e, a->head_up, a->values_up)));
    if (a->dot) {
        r.least = r.panels;
        r.panels = attention_at(a, r.least, nr);
    }
    if (a->splits) {
        r.turned = r.panels;
        r.sums = attention_at(a, r.turned, em_mul(e, kb, a->values_up));
        r.panels = attention_at(a, r.sums, num(a, a->nr * a->nr));
    }
    if (a->mask >= 0) {
        r.mask_rows = r.panels;
        r.mask = attention_at(a, r.mask_rows, num(a, a->kb * a->nr));
        r.panels = attention_at(a, r.mask, num(a, a->kb * a->nr));
    }
    r.batches = num(a, 1);
    for (int d = 0; d < a->at.m; d++) r.batches = em_mul(e, r.batches, e->size[d]);
    r.scale = r.later = uniform(a, a->scale, &at);
    if (a->is_raw) { /* Scores grow with a scale that is positive, and neither it nor its multiples leave the type. */
        LLVMValueRef is_near = em_and(e, em_fcmp(e, LLVMRealOGE, r.scale, em_const(e, a->acc, 0x1p-60)),
                                      em_fcmp(e, LLVMRealOLE, r.scale, em_const(e, a->acc, 0x1p60)));
        r.is_far = LLVMBuildNot(e->b, is_near, "");
        r.later = em_select(e, is_near, r.scale, em_const(e, a->acc, 1));
    }
    r.cap = uniform(a, a->cap, &at);
    r.low = uniform(a, a->low, &at);
    r.high = uniform(a, a->high, &at);
    return r;
}

/* The first key that queries from `query` on see, and the end of those that queries up to `query` see. */
static LLVMValueRef first_key(attention *a, const run *r, LLVMValueRef query) {
    emit *e = a->e;
    if (a->low < 0) return num(a, 0);
    return em_min(e, a->n_keys, em_max(e, num(a, 0), em_add(e, query, r->low)));
}
static LLVMValueRef end_key(attention *a, const run *r, LLVMValueRef query) {
    emit *e = a->e;
    if (a->high < 0) return a->n_keys;
    return em_max(e, num(a, 0), em_min(e, a->n_keys, em_add(e, em_add(e, query, r->high), num(a, 1))));
}

static LLVMValueRef stride_of(attention *a, int inst, int dim) { return a->e->stride[a->k->inst[inst].index][dim]; }

/* Where a load of keys or values begins. */
static LLVMValueRef element_of(attention *a, int inst, LLVMValueRef key) {
    attention_point at = {.a = a, .j = key, .axis = -1};
    const int buffer = a->k->inst[inst].index;
    LLVMTypeRef type = em_memory_type(a->e, a->k->inst[inst].dtype);
    return em_gep(a->e, a->e->base[buffer], type, attention_offset(a, buffer, &at));
}

static void pack(attention *a, attention_function f, LLVMValueRef batch, LLVMValueRef row, LLVMValueRef count,
                 LLVMValueRef last, LLVMValueRef column, LLVMValueRef columns, LLVMValueRef dst, LLVMValueRef dst_row) {
    attention_call(a, f, (LLVMValueRef[]){a->e->args, batch, row, count, last, column, columns, dst, dst_row}, 9);
}

static LLVMValueRef merge(attention *a, em_branch *b, LLVMBasicBlockRef then, LLVMValueRef x, LLVMValueRef y) {
    LLVMValueRef phi = LLVMBuildPhi(a->e->b, LLVMTypeOf(x), "");
    LLVMAddIncoming(phi, (LLVMValueRef[]){x, y}, (LLVMBasicBlockRef[]){then, b->other}, 2);
    return phi;
}

/* Keys or values [key, key + count) in the type that f packs: where they lie if is_direct (i1; NULL: never), else
 * packed. */
static LLVMValueRef block_of(attention *a, const run *r, attention_function f, LLVMValueRef key, LLVMValueRef count,
                             LLVMValueRef packed, LLVMValueRef *row, LLVMValueRef is_direct) {
    emit *e = a->e;
    const bool is_v = f == PACK_V || f == PACK_V_ROWS;
    const int inst = is_v ? a->v : a->keys;
    LLVMValueRef columns = is_v ? a->n_values : a->head, up = is_v ? a->values_up : a->head_up;
    LLVMValueRef last = em_sub(e, a->n_keys, num(a, 1));
    if (!is_direct) {
        pack(a, f, r->batch, key, count, last, num(a, 0), columns, packed, up);
        *row = up;
        return packed;
    }
    em_branch b = em_if(e, is_direct);
    LLVMValueRef here = element_of(a, inst, key), stride = stride_of(a, inst, a->at.j);
    LLVMBasicBlockRef then = LLVMGetInsertBlock(e->b);
    em_else(e, &b);
    pack(a, f, r->batch, key, count, last, num(a, 0), columns, packed, up);
    em_endif(e, &b);
    *row = merge(a, &b, then, stride, up);
    return merge(a, &b, then, here, packed);
}

/* ---- panels ---- */
typedef struct panel {
    LLVMValueRef q0, width; /* its queries, as many as registers hold */
    LLVMValueRef queries, results, largest, sums, least;
} panel;

/* The first query of panel i. Evenly: a panel of one register only where there are no more queries. */
static LLVMValueRef first_query(attention *a, const run *r, LLVMValueRef i) {
    emit *e = a->e;
    if (a->forms == 1) return em_mul(e, i, num(a, a->nr));
    return em_mul(e, LLVMBuildUDiv(e->b, em_mul(e, i, r->vectors), r->all, ""), num(a, a->v_lanes));
}

/* Causal queries see the more keys the later they are: those first, so that no worker ends with a long one. */
static LLVMValueRef first_panel(attention *a, LLVMValueRef tile, LLVMValueRef tiles, LLVMValueRef each) {
    emit *e = a->e;
    LLVMValueRef before = em_sub(e, tiles, num(a, 1));
    return em_mul(e, em_sub(e, before, LLVMBuildURem(e->b, tile, tiles, "")), each);
}

static panel panel_of(attention *a, const run *r, LLVMValueRef first, LLVMValueRef i) {
    emit *e = a->e;
    LLVMValueRef nr = num(a, a->nr),
                 one = em_mul(e, nr, em_add(e, em_add(e, a->head_up, a->values_up), num(a, 2 + !!a->dot)));
    LLVMValueRef number = em_add(e, first, i);
    panel p = {.q0 = first_query(a, r, number)};
    p.width = em_sub(e, first_query(a, r, em_add(e, number, num(a, 1))), p.q0);
    p.queries = attention_at(a, r->panels, em_mul(e, i, one));
    p.results = attention_at(a, p.queries, em_mul(e, nr, a->head_up));
    p.largest = attention_at(a, p.results, em_mul(e, nr, a->values_up));
    p.sums = attention_at(a, p.largest, nr);
    p.least = attention_at(a, p.sums, nr);
    return p;
}

/* PRODUCTS or WEIGHTS of a panel, in the form for its width. */
static void call_of_panel(attention *a, const panel *p, attention_function f, LLVMValueRef *in, unsigned n) {
    em_branch b[ATTENTION_FORMS];
    const int last = a->forms - 1;
    for (int i = 0; i < last; i++) {
        b[i] = em_if(a->e, em_icmp(a->e, LLVMIntEQ, p->width, num(a, a->nr - i * a->v_lanes)));
        attention_call(a, f + i, in, n);
        em_else(a->e, &b[i]);
    }
    attention_call(a, f + last, in, n);
    for (int i = last - 1; i >= 0; i--) em_endif(a->e, &b[i]);
}

/* Of a row of the head, filled up to whole registers. */
static LLVMValueRef head_words(attention *a) {
    return LLVMBuildLShr(a->e->b, round_up(a, a->head, 2 * a->lanes), num(a, 1), "");
}

static LLVMValueRef last_query(attention *a, const panel *p) {
    emit *e = a->e;
    return em_sub(e, em_min(e, em_add(e, p->q0, p->width), a->n_queries), num(a, 1));
}

/* v in every element of dst[0, count), a multiple of lanes. */
static void fill(attention *a, LLVMValueRef dst, LLVMValueRef count, double v) {
    emit *e = a->e;
    const int lanes = e->lanes;
    e->lanes = a->lanes;
    em_loop l = em_for(e, num(a, 0), count, num(a, a->lanes));
    em_store_ptr(e, a->acc, em_const(e, a->acc, v), attention_at(a, dst, l.i), NULL, (unsigned)a->acc_bytes);
    em_end(e, &l);
    e->lanes = lanes;
}

/* Can rows of a load in the type `row` be read as vectors where they lie? i1, or NULL. */
static LLVMValueRef whole_rows(attention *a, int inst, ir_dtype row, int dim, LLVMValueRef size, LLVMValueRef up) {
    const ir_kinst *in = &a->k->inst[inst];
    if (in->op != IR_K_LOAD || in->variant || in->dtype != row || a->k->buffer[in->index].stride[dim] != 1) return NULL;
    return em_icmp(a->e, LLVMIntEQ, size, up);
}

/* The panel's queries as accumulators, the last one again where there are fewer. */
static LLVMValueRef query_rows(attention *a, const run *r, const panel *p, LLVMValueRef *row) {
    emit *e = a->e;
    LLVMValueRef is_whole = whole_rows(a, a->q, a->acc, a->at.k, a->head, a->head_up);
    LLVMValueRef last = em_sub(e, a->n_queries, num(a, 1));
    em_branch b = {0};
    attention_point at = {.a = a, .m = p->q0, .axis = -1};
    LLVMValueRef here = NULL, stride = NULL;
    LLVMBasicBlockRef then = NULL;
    *row = a->head_up;
    if (is_whole) {
        const int buffer = a->k->inst[a->q].index;
        b = em_if(e, em_and(e, is_whole, em_icmp(e, LLVMIntSLE, em_add(e, p->q0, p->width), a->n_queries)));
        here = attention_at(a, e->base[buffer], attention_offset(a, buffer, &at));
        stride = stride_of(a, a->q, a->at.m);
        then = LLVMGetInsertBlock(e->b);
        em_else(e, &b);
    }
    pack(a, PACK_Q, r->batch, p->q0, p->width, last, num(a, 0), a->head, r->rows, a->head_up);
    if (!is_whole) return r->rows;
    em_endif(e, &b);
    *row = merge(a, &b, then, stride, a->head_up);
    return merge(a, &b, then, here, r->rows);
}

/* x[0, n) times the scale; n: a multiple of lanes. */
static void scale_all(attention *a, const run *r, LLVMValueRef x, LLVMValueRef n) {
    emit *e = a->e;
    const int lanes = e->lanes;
    e->lanes = a->lanes;
    em_loop l = em_for(e, num(a, 0), n, num(a, a->lanes));
    attention_put(a, em_fmul(e, attention_get(a, x, l.i), em_splat(e, r->scale)), x, l.i);
    em_end(e, &l);
    e->lanes = lanes;
}

static void scale_queries(attention *a, const run *r, const panel *p) {
    emit *e = a->e;
    em_branch far = em_if(e, r->is_far);
    scale_all(a, r, p->queries, em_mul(e, num(a, a->nr), a->head_up));
    em_endif(e, &far);
}

/* The panel's queries as rows of words. */
static LLVMValueRef words_of_queries(attention *a, const run *r, const panel *p) {
    emit *e = a->e;
    LLVMValueRef words = head_words(a), row, last = em_sub(e, em_sub(e, a->n_queries, num(a, 1)), p->q0);
    if (!attention_has_halves(a, a->q, a->at.k)) {
        LLVMValueRef rows = query_rows(a, r, p, &row);
        attention_call(a, WORDS_OF_ROWS, (LLVMValueRef[]){rows, p->width, a->head_up, words, p->least}, 5);
        return rows;
    }
    attention_point at = {.a = a, .m = p->q0, .axis = -1};
    const int buffer = a->k->inst[a->q].index;
    LLVMValueRef from = em_gep(e, e->base[buffer], e->t_i16, attention_offset(a, buffer, &at));
    LLVMValueRef in[8] = {from, stride_of(a, a->q, a->at.m), p->width, last, a->head, r->rows, words, p->least};
    attention_call(a, WORDS_OF_MEMORY, in, 8);
    return r->rows;
}

static void begin_panel(attention *a, const run *r, const panel *p) {
    emit *e = a->e;
    LLVMValueRef nr = num(a, a->nr), row = head_words(a), columns = a->dot ? row : a->head_up;
    LLVMValueRef rows = a->dot ? words_of_queries(a, r, p) : query_rows(a, r, p, &row);
    attention_call(a, TURN, (LLVMValueRef[]){rows, row, p->queries, nr, p->width, columns}, 6);
    if (a->is_raw && !a->dot) scale_queries(a, r, p);
    fill(a, p->results, em_mul(e, nr, a->values_up), 0);
    fill(a, p->largest, nr, -__builtin_inf());
    fill(a, p->sums, nr, 0);
}

/* Keys [key, key + count) as rows of words. */
static void words_of_keys(attention *a, run *r, LLVMValueRef key, LLVMValueRef count) {
    emit *e = a->e;
    LLVMValueRef words = head_words(a), last = em_sub(e, count, num(a, 1));
    if (attention_has_halves(a, a->keys, a->at.k)) {
        LLVMValueRef from = element_of(a, a->keys, key), row = stride_of(a, a->keys, a->at.j);
        LLVMValueRef in[8] = {from, row, count, last, a->head, r->keys, words, r->least};
        attention_call(a, WORDS_OF_MEMORY, in, 8);
        r->k = r->keys;
    } else {
        r->k = block_of(a, r, PACK_K, key, count, r->keys, &r->k_row, NULL);
        attention_call(a, WORDS_OF_ROWS, (LLVMValueRef[]){r->k, count, r->k_row, words, r->least}, 5);
    }
    r->k_row = words;
}

/* The mask of keys [key, key + count), as weights() reads it. */
static LLVMValueRef panel_mask(attention *a, const run *r, const panel *p, LLVMValueRef key, LLVMValueRef count) {
    emit *e = a->e;
    LLVMValueRef nr = num(a, a->nr), kb = num(a, a->kb), one = num(a, 1);
    if (a->mask < 0) return LLVMConstNull(e->t_ptr);
    pack(a, PACK_MASK, r->batch, p->q0, a->mask_has_queries ? p->width : one, em_sub(e, a->n_queries, one), key, count,
         r->mask_rows, kb);
    if (!a->mask_has_queries) return r->mask_rows;
    attention_call(a, TURN, (LLVMValueRef[]){r->mask_rows, kb, r->mask, nr, p->width, round_up(a, count, a->lanes)}, 6);
    return r->mask;
}

/* The block's values, turned and as words, for the panels that see its first keys; those behind the last are 0. */
static void turn_values(attention *a, run *r, LLVMValueRef count) {
    emit *e = a->e;
    LLVMValueRef up = round_up(a, count, a->lanes), behind = attention_at(a, r->v, em_mul(e, count, r->v_row));
    r->turned_words = LLVMBuildLShr(e->b, round_up(a, up, ir_dots[a->dot].step), num(a, 1), "");
    fill(a, behind, em_mul(e, em_sub(e, up, count), r->v_row), 0);
    attention_call(a, TURN, (LLVMValueRef[]){r->v, r->v_row, r->turned, up, up, a->values_up}, 6);
    LLVMValueRef in[5] = {r->turned, a->values_up, up, r->turned_words, attention_at(a, r->least, num(a, 1))};
    attention_call(a, WORDS_OF_ROWS, in, 5);
}

/* Keys [begin, begin + n) of a block, and which of them query i of a panel sees: low + i <= x <= high + i. */
typedef struct seen {
    LLVMValueRef begin, n, low, high;
    LLVMValueRef is_bound; /* i1: queries see different ones; NULL: never */
} seen;

/* As add_values, by fma. */
static void add_products(attention *a, const run *r, const panel *p, const seen *s) {
    emit *e = a->e;
    em_branch b = {0};
    LLVMValueRef v = attention_at(a, r->v, em_mul(e, s->begin, r->v_row));
    LLVMValueRef in[11] = {v,          r->v_step,  a->n_values, r->v_row, r->scores, s->n,
                           p->results, r->factors, NULL,        s->low,   s->high};
    LLVMValueRef products[9];
    for (int i = 0; i < 8; i++) products[i] = in[i];
    products[8] = LLVMConstNull(e->t_ptr);
    in[8] = r->rows;
    if (s->is_bound) {
        b = em_if(e, s->is_bound);
        LLVMValueRef all = em_mul(e, num(a, a->nr), a->values_up);
        attention_call(a, KEEP, (LLVMValueRef[]){p->results, r->rows, all}, 3);
        em_endif(e, &b);
    }
    call_of_panel(a, p, PRODUCTS, products, 9);
    if (!s->is_bound) return;
    b = em_if(e, s->is_bound);
    attention_call(a, AGAIN, in, 11);
    em_endif(e, &b);
}

/* results = results * factors + values x weights. */
static void add_values(attention *a, const run *r, const panel *p, const seen *s) {
    emit *e = a->e;
    if (!a->splits) {
        add_products(a, r, p, s);
        return;
    }
    LLVMValueRef of_values = attention_at(a, r->least, num(a, 1)), of_weights = attention_at(a, r->least, num(a, 2));
    LLVMValueRef tiles[7] = {r->turned, a->values_up, r->turned_words, r->scores, r->sums, p->results, r->factors};
    LLVMValueRef is_first = em_icmp(e, LLVMIntEQ, s->begin, num(a, 0));
    em_branch exact = em_if(e, em_and(e, is_first, em_bf16_is_exact(e, of_values, of_weights)));
    attention_call(a, VALUES, tiles, 7);
    em_else(e, &exact);
    attention_call(a, JOIN, (LLVMValueRef[]){r->scores, s->n}, 2);
    add_products(a, r, p, s);
    em_endif(e, &exact);
}

/* dots: for PRODUCTS, of words. */
static void scores_of_words(attention *a, const run *r, const panel *p, LLVMValueRef *dots) {
    emit *e = a->e;
    LLVMValueRef is_exact = em_bf16_is_exact(e, r->least, p->least);
    if (r->is_far) is_exact = em_and(e, is_exact, LLVMBuildNot(e->b, r->is_far, ""));
    dots[3] = num(a, 1);
    dots[5] = ceil_div(a, a->head, num(a, ir_dots[a->dot].step));
    em_branch b = em_if(e, is_exact);
    call_of_panel(a, p, SCORES, dots, 9);
    em_else(e, &b);
    dots[9] = r->is_far ? em_select(e, r->is_far, r->scale, em_const(e, a->acc, 1)) : em_const(e, a->acc, 1);
    em_loop l = em_for(e, num(a, 0), p->width, num(a, a->v_lanes)); /* one register of queries at a time */
    static const int columns[] = {4, 6, 7, 8};                      /* panel, scores, largest ones */
    LLVMValueRef in[10];
    for (int i = 0; i < 10; i++) in[i] = dots[i];
    for (int i = 0; i < (a->has_largest ? 4 : 2); i++) in[columns[i]] = attention_at(a, dots[columns[i]], l.i);
    attention_call(a, SCORES_BY_FMA, in, 10);
    em_end(e, &l);
    em_endif(e, &b);
}

/* Far scales multiply queries of bf16 as they are multiplied, by fma, as everywhere; the scores of f16, which are small. */
static void scores_by_tiles(attention *a, const run *r, LLVMValueRef *tiles) {
    emit *e = a->e;
    const bool of_queries = r->is_far && a->dot == IR_DOT_TILE_BF16;
    tiles[7] = LLVMConstReal(a->t_acc, 1);
    if (of_queries) tiles[7] = LLVMBuildSelect(e->b, r->is_far, r->scale, tiles[7], "");
    attention_call(a, SCORES, tiles, 8);
    if (!r->is_far || of_queries) return;
    em_branch far = em_if(e, r->is_far);
    scale_all(a, r, r->scores, em_mul(e, tiles[1], num(a, a->nr)));
    em_endif(e, &far);
}

/* ---- prefetching ----
 * Products run at the rate of the multipliers where the second-level cache has what they read. So WEIGHTS prefetch what
 * comes from beyond it, ATTENTION_PREFETCHED lines with each key: a call prefetches that many lines of each of kb rows. Of the
 * panels' calls of a block the last ones prefetch the next block's keys and values (or those that the next tile begins
 * with), those before them, in the last block but one, for the next tile's queries, in the last one for the rows of the
 * results. (EPYC 9005, 8 heads of 512 by 64: 0.95 of the time, of bf16 0.94.) */
typedef struct rows_prefetched {
    LLVMValueRef at, step, lines; /* first row; bytes from row to row; lines of a row; NULL: none */
} rows_prefetched;

static rows_prefetched rows_of(attention *a, int buffer, LLVMValueRef at, int dim, LLVMValueRef columns) {
    emit *e = a->e;
    const int bytes = ir_dtypes[a->k->buffer[buffer].dtype].bytes;
    LLVMValueRef row = em_add(e, em_mul(e, columns, num(a, bytes)), num(a, EM_LINE_BYTES - 1));
    return (rows_prefetched){at, em_mul(e, e->stride[buffer][dim], num(a, bytes)),
                             LLVMBuildUDiv(e->b, row, num(a, EM_LINE_BYTES), "")};
}

/* Are an operand's rows in memory, adjacent? */
static bool has_rows(const attention *a, int inst) {
    const ir_kinst *in = &a->k->inst[inst];
    const int along = inst == a->v ? a->at.n : a->at.k;
    return in->op == IR_K_LOAD && !in->variant && a->k->buffer[in->index].stride[along] == 1;
}

/* The first element of queries, keys or values at row i; NULL where there are no such rows. */
static LLVMValueRef first_of_row(attention *a, int inst, LLVMValueRef i) {
    if (!has_rows(a, inst)) return NULL;
    attention_point at = {.a = a, .axis = -1};
    if (inst == a->q) at.m = i;
    else at.j = i;
    const int buffer = a->k->inst[inst].index;
    return em_gep(a->e, a->e->base[buffer], em_memory_type(a->e, a->k->buffer[buffer].dtype),
                  attention_offset(a, buffer, &at));
}

/* Tile `number`'s queries, keys and values. */
static void find_next(attention *a, run *r, LLVMValueRef number, LLVMValueRef tiles, LLVMValueRef each) {
    emit *e = a->e;
    const attention before = *a;
    attention_decode(a, em_min(e, LLVMBuildUDiv(e->b, number, tiles, ""), em_sub(e, r->batches, num(a, 1))));
    r->next[0] = first_of_row(a, a->q, first_query(a, r, first_panel(a, number, tiles, each)));
    r->next[1] = first_of_row(a, a->keys, num(a, 0));
    r->next[2] = first_of_row(a, a->v, num(a, 0));
    *a = before;
}

/* Row number `row` of x, line `line`, if `is`; else what is already there. */
static void take_rows(attention *a, const rows_prefetched *x, LLVMValueRef is, LLVMValueRef row, LLVMValueRef line,
                      LLVMValueRef *at, LLVMValueRef *step) {
    emit *e = a->e;
    LLVMValueRef here =
        em_gep(e, x->at, e->t_i8, em_add(e, em_mul(e, row, x->step), em_mul(e, line, num(a, EM_LINE_BYTES))));
    *at = em_select(e, is, here, *at);
    *step = em_select(e, is, x->step, *step);
}

/* What a panel with `i` behind it prefetches in the block of keys from j0 on: ahead[2 * n], and its step behind it. */
static void lines_ahead(attention *a, const run *r, LLVMValueRef i, LLVMValueRef j0, LLVMValueRef *ahead) {
    emit *e = a->e;
    LLVMValueRef zero = num(a, 0), behind = em_add(e, j0, num(a, a->kb));
    LLVMValueRef is_last = em_icmp(e, LLVMIntSGE, behind, r->tile_keys),
                 is_late = em_icmp(e, LLVMIntSGE, em_add(e, behind, num(a, a->kb)), r->tile_keys);
    const int result = attention_plain_result(a);
    rows_prefetched x[4] = {0}; /* keys, values, queries, results */
    for (int n = 0; n < 2; n++) {
        const int inst = n ? a->v : a->keys;
        if (!has_rows(a, inst)) continue;
        LLVMValueRef at = em_select(e, is_last, r->next[1 + n], first_of_row(a, inst, behind));
        x[n] = rows_of(a, a->k->inst[inst].index, at, a->at.j, n ? a->n_values : a->head);
    }
    if (r->next[0]) x[2] = rows_of(a, a->k->inst[a->q].index, r->next[0], a->at.m, a->head);
    if (result >= 0) {
        attention_point at = {.a = a, .m = r->tile_queries, .axis = -1};
        x[3] = rows_of(a, result, attention_at(a, e->base[result], attention_offset(a, result, &at)), a->at.m,
                       a->n_values);
    }
    for (int n = 0; n < ATTENTION_PREFETCHED; n++) {
        LLVMValueRef *at = &ahead[2 * n], *step = &ahead[2 * n + 1];
        LLVMValueRef line = em_add(e, em_mul(e, i, num(a, ATTENTION_PREFETCHED)), num(a, n));
        *at = r->scores;
        *step = zero;
        for (int k = 0; k < 2; k++) {
            if (!x[k].at) continue;
            LLVMValueRef is = em_icmp(e, LLVMIntULT, line, x[k].lines);
            take_rows(a, &x[k], is, zero, line, at, step);
            line = em_sub(e, line, x[k].lines); /* negative: taken */
        }
        for (int k = 2; k < 4; k++) {
            if (!x[k].at) continue;
            LLVMValueRef is = k == 2 ? em_and(e, is_late, LLVMBuildNot(e->b, is_last, "")) : is_last;
            LLVMValueRef number = LLVMBuildUDiv(e->b, line, em_max(e, x[k].lines, num(a, 1)), "");
            is = em_and(e, is, em_icmp(e, LLVMIntSGE, line, zero));
            take_rows(a, &x[k], is, em_mul(e, number, num(a, a->kb)), em_sub(e, line, em_mul(e, number, x[k].lines)),
                      at, step);
        }
    }
}

/* A block of `count` keys from j0 on, of which the panel, with `i` behind it in the tile, may see a part. */
static void panel_block(attention *a, const run *r, const panel *p, LLVMValueRef i, LLVMValueRef j0,
                        LLVMValueRef count) {
    emit *e = a->e;
    LLVMValueRef zero = num(a, 0), last = last_query(a, p), none = LLVMConstNull(e->t_ptr);
    LLVMValueRef begin = round_down(a, em_max(e, zero, em_sub(e, first_key(a, r, p->q0), j0)), a->mr);
    LLVMValueRef end = em_min(e, count, em_sub(e, end_key(a, r, last), j0)), n = em_sub(e, end, begin);
    em_branch any = em_if(e, em_icmp(e, LLVMIntSGT, n, zero));
    LLVMValueRef first = em_add(e, j0, begin), k = attention_at(a, r->k, em_mul(e, begin, r->k_row));
    LLVMValueRef dots[10] = {k,
                             r->k_row,
                             n,
                             r->k_step,
                             p->queries,
                             a->head,
                             r->scores,
                             a->has_largest ? r->factors : none,
                             a->has_largest ? p->largest : none};
    LLVMValueRef tiles[8] = {k, n, p->queries, r->k_row, r->scores, r->least, p->least};
    if (a->is_tile) scores_by_tiles(a, r, tiles);
    else if (a->dot) scores_of_words(a, r, p, dots);
    else call_of_panel(a, p, PRODUCTS, dots, 9);
    LLVMValueRef away = em_sub(e, p->q0, first), no_scale = LLVMConstNull(a->t_acc);
    LLVMValueRef in[ATTENTION_WEIGHTS_IN + 2 * ATTENTION_PREFETCHED + ATTENTION_SPLIT_IN] = {
        r->scores,
        n,
        p->largest,
        p->sums,
        r->factors,
        r->later,
        r->cap ? r->cap : no_scale,
        panel_mask(a, r, p, first, n),
        zero,
        zero};
    if (r->low) in[8] = em_add(e, away, r->low);
    if (r->high) in[9] = em_add(e, away, r->high);
    seen s = {begin, n, in[8], in[9], NULL};
    unsigned n_in = ATTENTION_WEIGHTS_IN + 2 * ATTENTION_PREFETCHED;
    if (a->splits) in[n_in++] = attention_at(a, r->least, num(a, 2)), in[n_in++] = r->turned_words;
    lines_ahead(a, r, i, j0, in + ATTENTION_WEIGHTS_IN);
    if (!attention_has_bounds(a)) {
        call_of_panel(a, p, WEIGHTS, in, n_in);
    } else { /* only some of the queries see its first or its last key? */
        s.is_bound = LLVMConstInt(e->t_i1, 0, 0);
        if (r->low) s.is_bound = em_icmp(e, LLVMIntSLT, first, em_add(e, last, r->low));
        if (r->high)
            s.is_bound =
                em_or(e, s.is_bound,
                      em_icmp(e, LLVMIntSGT, em_sub(e, em_add(e, j0, end), num(a, 1)), em_add(e, p->q0, r->high)));
        em_branch b = em_if(e, s.is_bound);
        call_of_panel(a, p, WEIGHTS_BOUND, in, n_in);
        em_else(e, &b);
        call_of_panel(a, p, WEIGHTS, in, n_in);
        em_endif(e, &b);
    }
    add_values(a, r, p, &s);
    em_endif(e, &any);
}

/* Whole panels of whole registers that go to memory as they are need no copy as rows. */
static void end_panel(attention *a, const run *r, const panel *p) {
    emit *e = a->e;
    const int buffer = attention_plain_result(a);
    LLVMValueRef nr = num(a, a->nr), rows = em_sub(e, em_add(e, last_query(a, p), num(a, 1)), p->q0);
    em_branch b = {0};
    if (buffer >= 0) {
        attention_point at = {.a = a, .m = p->q0, .axis = -1};
        b = em_if(e,
                  em_and(e, em_icmp(e, LLVMIntEQ, a->n_values, a->values_up), em_icmp(e, LLVMIntEQ, rows, p->width)));
        LLVMValueRef to = attention_at(a, e->base[buffer], attention_offset(a, buffer, &at));
        attention_call(a, DIVIDE, (LLVMValueRef[]){p->results, a->values_up, p->sums, a->n_keys}, 4);
        LLVMValueRef in[6] = {p->results, nr, to, e->stride[buffer][a->at.m], a->values_up, p->width};
        attention_call(a, TURN, in, 6);
        em_else(e, &b);
    }
    attention_call(a, TURN, (LLVMValueRef[]){p->results, nr, r->rows, a->values_up, a->values_up, p->width}, 6);
    attention_call(a, STORE_ROWS, (LLVMValueRef[]){e->args, r->batch, p->q0, rows, r->rows, a->values_up, p->sums}, 7);
    if (buffer >= 0) em_endif(e, &b);
}

static void emit_panels(attention *a) {
    emit *e = a->e;
    run r = begin_run(a);
    if (a->is_tile) amx_configure_whole(e);
    LLVMValueRef zero = num(a, 0), one = num(a, 1), nr = num(a, a->nr), kb = num(a, a->kb);
    r.all = ceil_div(a, a->n_queries, nr);
    r.vectors = ceil_div(a, a->n_queries, num(a, a->v_lanes));
    LLVMValueRef each = em_max(e, one, em_min(e, e->tune[IR_TUNE_ATTENTION_PANELS], r.all));
    LLVMValueRef tiles = ceil_div(a, r.all, each), yes = LLVMConstInt(e->t_i1, 1, 0);
    em_loop t = em_for(e, e->tile_begin, e->tile_end, one);
    r.batch = LLVMBuildUDiv(e->b, t.i, tiles, "");
    LLVMValueRef first = first_panel(a, t.i, tiles, each);
    LLVMValueRef n = em_min(e, each, em_sub(e, r.all, first));
    attention_decode(a, r.batch);
    em_loop i = em_for(e, zero, n, one);
    panel p = panel_of(a, &r, first, i.i);
    begin_panel(a, &r, &p);
    em_end(e, &i);
    LLVMValueRef q0 = r.tile_queries = first_query(a, &r, first),
                 q_end = em_min(e, a->n_queries, first_query(a, &r, em_add(e, first, n)));
    find_next(a, &r, em_add(e, t.i, one), tiles, each);
    r.tile_keys = end_key(a, &r, em_sub(e, q_end, one));
    em_loop j = em_for(e, round_down(a, first_key(a, &r, q0), a->kb), r.tile_keys, kb);
    LLVMValueRef count = em_min(e, kb, em_sub(e, a->n_keys, j.i));
    const bool k_plain = attention_is_plain(a, a->keys), v_plain = attention_is_plain(a, a->v);
    if (a->dot) words_of_keys(a, &r, j.i, count);
    else r.k = block_of(a, &r, PACK_K, j.i, count, r.keys, &r.k_row, k_plain ? yes : NULL);
    r.v = block_of(a, &r, PACK_V, j.i, count, r.values, &r.v_row, v_plain ? yes : NULL);
    r.k_step = k_plain ? stride_of(a, a->keys, a->at.k) : one;
    r.v_step = v_plain ? stride_of(a, a->v, a->at.n) : one;
    if (a->splits) turn_values(a, &r, count);
    i = em_for(e, zero, n, one);
    p = panel_of(a, &r, first, i.i);
    panel_block(a, &r, &p, em_sub(e, em_sub(e, n, one), i.i), j.i, count);
    em_end(e, &i);
    em_end(e, &j);
    i = em_for(e, zero, n, one);
    p = panel_of(a, &r, first, i.i);
    end_panel(a, &r, &p);
    em_end(e, &i);
    em_end(e, &t);
    if (a->is_tile) amx_release(e);
}

/* ---- one by one ---- */
typedef struct part {
    LLVMValueRef results, largest, sums;
} part;

static part part_at(attention *a, LLVMValueRef base) {
    part p = {.results = base};
    p.largest = attention_at(a, base, em_mul(a->e, a->n_queries, a->values_up));
    p.sums = attention_at(a, p.largest, num(a, a->lanes));
    return p;
}

static part shared_part(attention *a, const run *r, LLVMValueRef number) {
    emit *e = a->e;
    LLVMValueRef size = em_add(e, em_mul(e, a->n_queries, a->values_up), num(a, 2 * a->lanes));
    return part_at(a, attention_at(a, e->shared, em_mul(e, em_add(e, em_mul(e, number, r->batches), r->batch), size)));
}

static void begin_part(attention *a, const part *p) {
    fill(a, p->results, em_mul(a->e, a->n_queries, a->values_up), 0);
    fill(a, p->largest, num(a, a->lanes), -__builtin_inf());
    fill(a, p->sums, num(a, a->lanes), 0);
}

/* Query i and the keys [j0, j0 + count). */
static void row_block(attention *a, const run *r, const part *p, LLVMValueRef i, LLVMValueRef j0, LLVMValueRef count) {
    emit *e = a->e;
    LLVMValueRef zero = num(a, 0), one = num(a, 1), end = em_min(e, count, em_sub(e, end_key(a, r, i), j0));
    LLVMValueRef is_seen =
        em_and(e, em_icmp(e, LLVMIntSGT, end, zero), em_icmp(e, LLVMIntSLT, first_key(a, r, i), em_add(e, j0, count)));
    em_branch any = em_if(e, is_seen);
    LLVMValueRef q = attention_at(a, r->panels, em_mul(e, i, a->head_up)), mask = LLVMConstNull(e->t_ptr);
    attention_call(a, DOTS, (LLVMValueRef[]){q, r->k, r->k_row, end, a->head_up, r->scores}, 6);
    if (a->mask >= 0) {
        mask = r->mask_rows;
        pack(a, PACK_MASK, r->batch, i, one, i, j0, end, mask, num(a, a->kb));
    }
    LLVMValueRef largest = attention_at(a, p->largest, i), sum = attention_at(a, p->sums, i);
    LLVMValueRef in[10] = {
        r->scores, end,  largest, sum, r->factors, r->scale, r->cap ? r->cap : LLVMConstNull(a->t_acc),
        mask,      zero, zero};
    if (r->low) in[8] = em_sub(e, em_add(e, i, r->low), j0);
    if (r->high) in[9] = em_sub(e, em_add(e, i, r->high), j0);
    attention_call(a, ROW_WEIGHTS, in, 10);
    /* Of what a window hides in front the weights are 0, but the values may be NaN. */
    LLVMValueRef begin = a->low < 0 ? zero : em_max(e, zero, em_sub(e, first_key(a, r, i), j0));
    LLVMValueRef weights = attention_at(a, r->scores, begin),
                 v = em_gep(e, r->v, em_memory_type(e, a->v_row), em_mul(e, begin, r->v_row));
    LLVMValueRef to = attention_at(a, p->results, em_mul(e, i, a->values_up)), n = em_sub(e, end, begin);
    attention_call(a, WEIGH, (LLVMValueRef[]){weights, n, v, r->v_row, a->values_up, to, r->factors}, 7);
    em_endif(e, &any);
}

/* As ir_attention_parts. */
static LLVMValueRef count_parts(attention *a, const run *r, LLVMValueRef *length) {
    emit *e = a->e;
    LLVMValueRef one = num(a, 1), each = num(a, IR_ATTENTION_PART), batches = em_max(e, one, r->batches);
    LLVMValueRef parts =
        em_min(e, ceil_div(a, num(a, IR_ATTENTION_PARTS), batches), LLVMBuildUDiv(e->b, a->n_keys, each, ""));
    parts = em_max(e, one, parts);
    LLVMValueRef is_long = em_icmp(e, LLVMIntSGE, a->n_keys, num(a, 2 * IR_ATTENTION_PART));
    *length = em_select(e, is_long, round_up(a, ceil_div(a, a->n_keys, parts), a->kb),
                        em_max(e, one, round_up(a, a->n_keys, a->kb)));
    return em_max(e, one, ceil_div(a, a->n_keys, *length));
}

static void store_part(attention *a, const run *r, const part *p) {
    attention_call(a, STORE_ROWS,
                   (LLVMValueRef[]){a->e->args, r->batch, num(a, 0), a->n_queries, p->results, a->values_up, p->sums},
                   7);
}

static void emit_one_by_one(attention *a) {
    emit *e = a->e;
    run r = begin_run(a);
    LLVMValueRef zero = num(a, 0), one = num(a, 1), kb = num(a, a->kb), length;
    LLVMValueRef last = em_sub(e, a->n_queries, one), parts = count_parts(a, &r, &length);
    LLVMValueRef is_alone = em_icmp(e, LLVMIntEQ, parts, one),
                 own = attention_at(a, r.panels, em_mul(e, num(a, a->nr), a->head_up));
    em_loop t = em_for(e, e->tile_begin, e->tile_end, one);
    /* batches first: heads that share keys come one after the other */
    LLVMValueRef number = LLVMBuildUDiv(e->b, t.i, r.batches, "");
    r.batch = LLVMBuildURem(e->b, t.i, r.batches, "");
    attention_decode(a, r.batch);
    part p = part_at(a, em_select(e, is_alone, own, shared_part(a, &r, number).results));
    pack(a, PACK_Q, r.batch, zero, a->n_queries, last, zero, a->head, r.panels, a->head_up);
    begin_part(a, &p);
    LLVMValueRef from = em_mul(e, number, length), to = em_min(e, a->n_keys, em_add(e, from, length));
    from = em_max(e, from, round_down(a, first_key(a, &r, zero), a->kb));
    em_loop j = em_for(e, from, em_min(e, to, end_key(a, &r, last)), kb);
    LLVMValueRef count = em_min(e, kb, em_sub(e, a->n_keys, j.i));
    LLVMValueRef k_whole = whole_rows(a, a->keys, a->k_row, a->at.k, a->head, a->head_up);
    LLVMValueRef v_whole = whole_rows(a, a->v, a->v_row, a->at.n, a->n_values, a->values_up);
    r.k = block_of(a, &r, a->k_row == a->acc ? PACK_K : PACK_K_ROWS, j.i, count, r.keys, &r.k_row, k_whole);
    r.v = block_of(a, &r, a->v_row == a->acc ? PACK_V : PACK_V_ROWS, j.i, count, r.values, &r.v_row, v_whole);
    em_loop i = em_for(e, zero, a->n_queries, one);
    row_block(a, &r, &p, i.i, j.i, count);
    em_end(e, &i);
    em_end(e, &j);
    em_branch alone = em_if(e, is_alone);
    store_part(a, &r, &p);
    em_endif(e, &alone);
    em_end(e, &t);
}

/* Phase 1: a tile is a batch, its parts in order. */
static void emit_merge_phase(attention *a) {
    emit *e = a->e;
    run r = begin_run(a);
    LLVMValueRef zero = num(a, 0), one = num(a, 1), length, parts = count_parts(a, &r, &length);
    part p = part_at(a, attention_at(a, r.panels, em_mul(e, num(a, a->nr), a->head_up)));
    em_loop t = em_for(e, e->tile_begin, e->tile_end, one);
    r.batch = t.i;
    begin_part(a, &p);
    em_loop n = em_for(e, zero, parts, one);
    part other = shared_part(a, &r, n.i);
    em_loop i = em_for(e, zero, a->n_queries, one);
    LLVMValueRef row = em_mul(e, i.i, a->values_up);
    attention_call(a, MERGE,
                   (LLVMValueRef[]){attention_at(a, p.results, row), attention_at(a, other.results, row), a->values_up,
                                    attention_at(a, p.largest, i.i), attention_at(a, p.sums, i.i),
                                    attention_at(a, other.largest, i.i), attention_at(a, other.sums, i.i)},
                   7);
    em_end(e, &i);
    em_end(e, &n);
    store_part(a, &r, &p);
    em_end(e, &t);
}

/* ---- the description, which ir_verify_attention has checked ---- */
void attention_read(attention *a, emit *e) {
    const ir_kernel *k = e->k;
    const ir_kinst *in = NULL;
    int n = 3;
    a->e = e;
    a->k = k;
    a->at = ir_kernel_attention_dims(k);
    a->acc = ir_kernel_attention_acc(k);
    a->acc_bytes = ir_dtypes[a->acc].bytes;
    a->dot = ir_kernel_attention_dot(k);
    a->is_tile = ir_dot_is_tile(a->dot);
    a->splits = ir_kernel_attention_splits(k);
    a->t_acc = em_scalar_type(e, a->acc);
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_OP_ATTENTION) in = &k->inst[i], a->inst = i;
    a->q = in->in[0];
    a->keys = in->in[1];
    a->v = in->in[2];
    a->k_row = ir_is_half(k->inst[a->keys].dtype) ? k->inst[a->keys].dtype : a->acc;
    a->v_row = ir_is_half(k->inst[a->v].dtype) ? k->inst[a->v].dtype : a->acc;
    a->scale = in->in[n++];
    a->cap = in->variant & IR_ATTENTION_CAP ? in->in[n++] : -1;
    a->mask = in->variant & IR_ATTENTION_MASK ? in->in[n++] : -1;
    a->low = in->variant & IR_ATTENTION_LOW ? in->in[n++] : -1;
    a->high = in->variant & IR_ATTENTION_HIGH ? in->in[n++] : -1;
    a->is_raw = a->acc == FUSOR_F32 && a->cap < 0 && (a->mask < 0 || ir_is_bool(k->inst[a->mask].dtype));
    a->has_largest = a->is_raw && a->mask < 0 && !a->is_tile;
    a->mask_has_queries = a->mask >= 0 && e->varies[a->mask] >> a->at.m & 1;
}

fusor_status jit_emit_attention(emit *e, fu_error *err) {
    attention *a = FU_NEW(e->arena, attention);
    attention_read(a, e);
    a->lanes = e->level->lanes;
    a->v_lanes = e->level->vector_bytes / a->acc_bytes;
    a->mr = a->k->tile.mr;
    a->nr = a->k->tile.nr;
    a->kb = a->k->tile.kb;
    if (a->mr > 16 || a->nr > ATTENTION_FORMS * a->v_lanes || a->mr * (a->nr / a->v_lanes) > 32 || a->kb & (a->kb - 1))
        return FU_FAIL(err, FUSOR_ERROR_INTERNAL, "attention kernel: tile %d x %d x %d does not fit level %s", a->mr,
                       a->nr, a->kb, e->level->name);
    a->forms = a->is_tile || a->lanes != a->v_lanes ? 1 : a->nr / a->v_lanes;
    a->t_vec = LLVMVectorType(a->t_acc, (unsigned)a->v_lanes);
    set_values(a);
    attention_emit_tiles(a);
    if (a->dot) attention_emit_words(a);
    if (a->is_tile) attention_emit_amx(a);
    attention_emit_softmax(a);
    if (attention_has_bounds(a)) attention_emit_hidden(a);
    attention_emit_rows(a);
    LLVMValueRef rows = num(a, ir_attention_rows(a->k));
    em_branch phase = em_if(e, em_icmp(e, LLVMIntNE, e->phase, LLVMConstInt(LLVMTypeOf(e->phase), 0, 0)));
    emit_merge_phase(a);
    em_else(e, &phase);
    em_branch few = em_if(e, em_icmp(e, LLVMIntSLE, a->n_queries, rows));
    emit_one_by_one(a);
    em_else(e, &few);
    emit_panels(a);
    em_endif(e, &few);
    em_endif(e, &phase);
    em_demote(e);
    return FUSOR_OK;
}
