/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* lazy_record.c: recording one operator. The type and shape of its result come from ir_infer at once, so that errors
 * are found where they are made; what it said is remembered by operand types, and a repeated step costs one look-up an
 * operator. */
#include "lazy_internal.h"
#include "rt/fpenv.h"

static bool is_number(ir_op op, unsigned i) {
    ir_attr_type t = ir_ops[op].attrs[i].type;
    return t == IR_ATTR_FLOAT || t == IR_ATTR_NUMBER;
}

uint32_t lazy_pack_attrs(ir_op op, const op_attr *attr, unsigned char *out, uint32_t room) {
    uint32_t n = 0;
    for (unsigned i = 0; i < ir_ops[op].n_attrs; i++) {
        const op_attr *x = &attr[i];
        const uint16_t count = (uint16_t)x->n;
        uint32_t bytes = LAZY_ATTR_HEAD + x->n * (uint32_t)sizeof *x->list;
        if (x->n > IR_MAX_TEXT || n + bytes > room) return 0;
        out[n] = x->is_set;
        memcpy(out + n + 1, &count, sizeof count);
        if (is_number(op, i)) memcpy(out + n + 3, &x->number, sizeof x->number);
        else memcpy(out + n + 3, &x->integer, sizeof x->integer);
        if (x->n) memcpy(out + n + LAZY_ATTR_HEAD, x->list, x->n * sizeof *x->list);
        n += bytes;
    }
    return n;
}

void lazy_unpack_attrs(ir_op op, const unsigned char *in, op_attr *out) {
    for (unsigned i = 0; i < ir_ops[op].n_attrs; i++) {
        op_attr *x = &out[i];
        uint16_t count;
        memcpy(&count, in + 1, sizeof count);
        *x = (op_attr){.is_set = in[0], .n = count};
        if (is_number(op, i)) memcpy(&x->number, in + 3, sizeof x->number);
        else memcpy(&x->integer, in + 3, sizeof x->integer);
        x->list = (const int64_t *)(const void *)(in + LAZY_ATTR_HEAD); /* not aligned: read by memcpy only */
        in += LAZY_ATTR_HEAD + x->n * sizeof *x->list;
    }
}

/* The attributes of fusor_apply's text, encoded. *scalar: the operand among them, if there is one. */
static fusor_status pack_text(fu_arena *arena, fu_error *e, const op_call *c, unsigned char *out, uint32_t room,
                              uint32_t *bytes, ir_dtype *to, ir_operand *scalar) {
    ir_attr attr[IR_MAX_ATTRS] = {{0}};
    op_attr plain[IR_MAX_ATTRS] = {{0}};
    ir_graph *g = ir_graph_new(arena, e, NULL, "lazy");
    FU_TRY(ir_parse_attrs(g, c->op, c->text, NULL, attr, to, scalar));
    for (unsigned i = 0; i < ir_ops[c->op].n_attrs; i++) {
        int64_t *list = FU_NEW_N(arena, int64_t, attr[i].n);
        for (uint32_t k = 0; k < attr[i].n; k++)
            if (!ir_size_is_const(g->sizes, attr[i].list[k], &list[k]))
                return FU_FAIL(e, FUSOR_ERROR_SHAPE, "%s: a size in \"%.80s\" is too large", ir_ops[c->op].name,
                               c->text);
        plain[i] = (op_attr){attr[i].is_set, attr[i].number, attr[i].integer, list, attr[i].n};
    }
    *bytes = lazy_pack_attrs(c->op, plain, out, room);
    return FUSOR_OK;
}

static fusor_status pack_text_once(fu_error *e, const op_call *c, unsigned char *out, uint32_t room, uint32_t *bytes,
                                   ir_dtype *to, ir_operand *scalar) {
    FU_CALL_ARENA(arena, return lazy_no_memory(e));
    fusor_status status = pack_text(&arena, e, c, out, room, bytes, to, scalar);
    fu_arena_free(&arena);
    return status;
}

typedef struct recording {
    lazy_state *s;
    const op_call *call;
    const uint32_t *in; /* slots; 0: a scalar */
    unsigned char *key;
    uint32_t key_bytes, attr_at, attr_bytes;
    ir_dtype to;
    uint8_t dtype, rank, *in_dtype;
    int64_t shape[IR_MAX_RANK];
} recording;

static const fu_source source = {"lazy", NULL, 0};

/* What ir_infer says of these operands, in a graph of its own. */
static fusor_status infer_graph(fu_arena *arena, recording *r, fu_error *e) {
    static const fu_loc nowhere = {0, 0};
    const op_call *c = r->call;
    const ir_op_info *info = &ir_ops[c->op];
    ir_graph *g = ir_graph_new(arena, e, &source, "lazy");
    ir_operand *in = FU_NEW_N(arena, ir_operand, c->n + 1);
    ir_attr attr[IR_MAX_ATTRS] = {{0}};
    op_attr plain[IR_MAX_ATTRS] = {{0}};
    for (int i = 0; i < c->n; i++) {
        if (!r->in[i]) {
            in[i] = op_weak_operand(c->args[i]);
            continue;
        }
        const lazy_slot *x = lazy_at(r->s, r->in[i]);
        ir_size dim[IR_MAX_RANK];
        for (int d = 0; d < x->rank; d++) dim[d] = ir_size_const(g->sizes, x->shape[d]);
        in[i] = ir_use(ir_add_param(g, x->text, x->dtype, x->rank, dim, nowhere));
    }
    if (r->attr_bytes) lazy_unpack_attrs(c->op, r->key + r->attr_at, plain);
    for (unsigned i = 0; i < info->n_attrs; i++) {
        attr[i] = (ir_attr){
            .is_set = plain[i].is_set, .number = plain[i].number, .integer = plain[i].integer, .n = plain[i].n};
        attr[i].list = FU_NEW_N(arena, ir_size, attr[i].n);
        for (uint32_t k = 0; k < attr[i].n; k++) attr[i].list[k] = ir_size_const(g->sizes, lazy_list_at(&plain[i], k));
    }
    const ir_attr *given = r->attr_bytes ? attr : NULL;
    ir_id id = info->n_results == 1 && !c->result ? ir_add(g, c->op, c->n, in, given, r->to, nowhere)
                                                  : ir_add_result(g, c->op, c->result, c->n, in, given, nowhere);
    if (!id) return e->status != FUSOR_OK ? e->status : FU_FAIL(e, FUSOR_ERROR_INTERNAL, "%s: failed", info->name);
    const ir_node *n = ir_at(g, id);
    r->dtype = (uint8_t)n->dtype;
    r->rank = n->rank;
    memset(r->shape, 0, sizeof r->shape);
    for (int d = 0; d < n->rank; d++)
        if (!ir_size_is_const(g->sizes, n->dim[d], &r->shape[d]))
            return FU_FAIL(e, FUSOR_ERROR_SHAPE, "%s: a size overflows 64 bits", info->name);
    for (int i = 0; i < c->n; i++) r->in_dtype[i] = (uint8_t)ir_at(g, n->in[i])->dtype;
    return FUSOR_OK;
}

static fusor_status infer(recording *r, fu_error *e) {
    FU_CALL_ARENA(arena, return lazy_no_memory(e));
    fusor_status status = infer_graph(&arena, r, e);
    fu_arena_free(&arena);
    return status;
}

/* Type and shape of the result, and the dtypes of the scalars: remembered, or inferred. */
static fusor_status type_of(recording *r, fu_error *e) {
    uint64_t hash = fu_hash(r->key, r->key_bytes, 0);
    lazy_memo **place = &r->s->memo[hash % LAZY_MEMO], *m = *place;
    if (m && m->hash == hash && m->bytes == r->key_bytes && memcmp(m->key, r->key, r->key_bytes) == 0) {
        r->dtype = m->dtype;
        r->rank = m->rank;
        memcpy(r->shape, m->shape, sizeof r->shape);
        memcpy(r->in_dtype, m->in_dtype, (size_t)r->call->n);
        return FUSOR_OK;
    }
    FU_TRY(infer(r, e));
    if (r->call->n > 8) return FUSOR_OK;
    m = fu_malloc(sizeof *m + r->key_bytes);
    if (!m) return FUSOR_OK;
    *m = (lazy_memo){.hash = hash, .bytes = r->key_bytes, .dtype = r->dtype, .rank = r->rank};
    memcpy(m->in_dtype, r->in_dtype, (size_t)r->call->n);
    memcpy(m->shape, r->shape, sizeof m->shape);
    memcpy(m->key, r->key, r->key_bytes);
    fu_free(*place);
    *place = m;
    return FUSOR_OK;
}

static uint32_t add_operand(lazy_state *s, unsigned char *key, uint32_t at, uint32_t slot, fusor_tensor t) {
    if (!slot) {
        const ir_operand x = op_weak_operand(t); /* a seed from 2^63 up is a u64 */
        const bool is_past_i64 = x.literal == IR_LIT_INT && x.i < 0 && x.f > 0;
        key[at] = (unsigned char)(0x80 | (is_past_i64 ? 0x40 : 0) | x.literal);
        return at + 1;
    }
    const lazy_slot *x = lazy_at(s, slot);
    key[at] = x->dtype;
    key[at + 1] = x->rank;
    memcpy(key + at + 2, x->shape, x->rank * sizeof *x->shape);
    return at + 2 + x->rank * (uint32_t)sizeof *x->shape;
}

static fusor_status new_op(recording *r, fu_error *e, uint32_t *out) {
    lazy_state *s = r->s;
    const op_call *c = r->call;
    ir_graph shell = {.error = e, .source = &source}; /* ir_literal_bits reports there */
    ir_bits bits[256];
    for (int i = 0; i < c->n; i++) {
        if (r->in[i]) continue;
        ir_operand x = op_weak_operand(c->args[i]);
        FU_TRY(ir_literal_bits(&shell, ir_ops[c->op].name, &x, r->in_dtype[i], &bits[i]));
    }
    lazy_input *in = c->n > LAZY_INLINE ? fu_malloc((size_t)c->n * sizeof *in) : NULL;
    unsigned char *attr = r->attr_bytes ? fu_malloc(r->attr_bytes) : NULL;
    uint32_t slot = (c->n > LAZY_INLINE && !in) || (r->attr_bytes && !attr) ? 0 : lazy_slot_new(s, SLOT_OP, c->op);
    if (!slot) {
        fu_free(in);
        fu_free(attr);
        return lazy_no_memory(e);
    }
    lazy_slot *x = lazy_at(s, slot);
    if (in) x->in = in;
    x->n_in = (uint32_t)c->n;
    x->to = (uint8_t)r->to;
    x->result = (uint8_t)c->result;
    x->dtype = r->dtype;
    x->rank = r->rank;
    memcpy(x->shape, r->shape, sizeof x->shape);
    x->attr = attr;
    x->attr_bytes = r->attr_bytes;
    if (attr) memcpy(attr, r->key + r->attr_at, r->attr_bytes);
    for (int i = 0; i < c->n; i++) {
        x->in[i] = (lazy_input){.slot = r->in[i], .dtype = r->in_dtype[i], .bits = r->in[i] ? 0 : bits[i]};
        if (r->in[i]) lazy_at(s, r->in[i])->refs++;
    }
    *out = slot;
    return FUSOR_OK;
}

static fusor_status record(lazy_state *s, fu_error *e, const op_call *c, uint32_t *out) {
    enum { HEAD = 5, ATTR_ROOM = IR_MAX_ATTRS * (LAZY_ATTR_HEAD + IR_MAX_LIST * 8) };
    unsigned char key[HEAD + ATTR_ROOM + 256 * (2 + IR_MAX_RANK * 8)];
    uint32_t in[256];
    uint8_t in_dtype[256];
    const char *name = ir_ops[c->op].name;
    recording r = {.s = s, .call = c, .in = in, .key = key, .to = c->to, .in_dtype = in_dtype, .attr_at = HEAD};
    fusor_tensor args[256];
    op_call with_scalar = *c;
    if (c->n > 256) return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%s: %d operands; expected at most 256", name, c->n);
    for (int i = 0; i < c->n; i++) {
        in[i] = 0;
        if (op_is_weak(c->args[i])) continue;
        in[i] = lazy_resolve(s, c->args[i], name, e);
        if (!in[i]) return e->status;
    }
    for (int i = 0; i < c->n; i++)
        if (in[i] && !(in[i] = lazy_value_of(s, in[i]))) return lazy_no_memory(e);
    if (c->text) {
        ir_operand scalar = {0};
        FU_TRY(pack_text_once(e, c, key + HEAD, ATTR_ROOM, &r.attr_bytes, &r.to, &scalar));
        if (scalar.literal && c->n < 256) {
            if (c->n) memcpy(args, c->args, (size_t)c->n * sizeof *args);
            args[c->n] = op_weak_of(&scalar);
            in[c->n] = 0;
            with_scalar.args = args;
            with_scalar.n++;
            r.call = c = &with_scalar;
        }
    } else if (c->attrs && ir_ops[c->op].n_attrs) {
        r.attr_bytes = lazy_pack_attrs(c->op, c->attrs, key + HEAD, ATTR_ROOM);
    }
    if (!r.attr_bytes && ir_ops[c->op].n_attrs && (c->text || c->attrs))
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%s: its attributes are too long", name);
    key[0] = (unsigned char)c->op;
    key[1] = (unsigned char)r.to;
    key[2] = (unsigned char)c->n;
    key[3] = r.attr_bytes != 0;
    key[4] = (unsigned char)c->result;
    r.key_bytes = HEAD + r.attr_bytes;
    for (int i = 0; i < c->n; i++) r.key_bytes = add_operand(s, key, r.key_bytes, in[i], c->args[i]);
    FU_TRY(type_of(&r, e));
    return new_op(&r, e, out);
}

fusor_tensor lazy_record(fusor_context *ctx, const op_call *c) {
    fu_error e;
    uint32_t slot = 0;
    fu_error_clear(&e);
    lazy_state *s = lazy_enter(ctx);
    if (!s) return (fusor_tensor){ctx, 0, 0};
    rt_fpenv environment;
    rt_fpenv_enter(&environment); /* numbers are rounded */
    fusor_tensor t = record(s, &e, c, &slot) == FUSOR_OK ? lazy_handle(s, slot) : lazy_bad_slot(s, c->op, &e);
    rt_fpenv_leave(&environment);
    lazy_leave(s);
    return t;
}
