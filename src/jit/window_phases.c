/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* window_phases.c: transposed convolutions (ir_phases, ir/kernel.h). Columns of the result that are the same modulo the
 * stride are a phase: a convolution with strides of 1 of the places that they meet, so that no product is with a zero
 * between the operand's elements.
 *
 *   slab      is the same for all phases: the operand with its pads
 *   K         has the phases one after the other: each is a range of it, of the table's offsets and of the weights, which
 *             phase 0 puts in that order
 *   sums      of the phases along columns lie side by side, so that they are a row of the result, and FINISH goes along
 *             that. By channel a tile puts them there; by columns the tiles of the phases are interleaved
 *
 * Elsewhere in the kernel sizes of y and n count what a phase has of them; `made` is the result's. */
#include "jit/window.h"

enum { PLACES, FIRST, FROM, BEFORE, WORDS };

/* A constant of the module: the words of an axis' phases. */
static LLVMValueRef table_of(emit *e, const ir_phases *p, int number) {
    const char name[] = {'p', 'h', 'a', 's', 'e', 's', (char)('0' + number), 0};
    LLVMValueRef v[IR_UP_MAX * WORDS];
    for (int r = 0; r < p->n; r++) {
        const int64_t word[WORDS] = {p->phase[r].places, p->phase[r].first, p->phase[r].from, p->phase[r].before};
        for (int i = 0; i < WORDS; i++) v[r * WORDS + i] = em_i64s(e, word[i]);
    }
    const unsigned n = (unsigned)(p->n * WORDS);
    LLVMValueRef global = LLVMAddGlobal(e->mod, LLVMArrayType2(e->t_i64, n), name);
    LLVMSetInitializer(global, LLVMConstArray2(e->t_i64, v, n));
    LLVMSetGlobalConstant(global, 1);
    LLVMSetLinkage(global, LLVMPrivateLinkage);
    LLVMSetAlignment(global, 64);
    return global;
}

void window_find_phases(window *w) {
    w->is_transposed = ir_kernel_is_transposed_window(w->k);
    w->turns = (int)ir_window_turns(w->k);
    for (int i = 0; i < IR_KERNEL_MAX_AXES && w->is_transposed; i++) {
        ir_phases *p = FU_NEW(w->e->arena, ir_phases);
        *p = ir_kernel_phases(w->k, i);
        w->phases[i] = p;
        w->phase_table[i] = table_of(w->e, p, i);
    }
}

void window_set_phases(window *w) {
    emit *e = w->e;
    for (int i = 0; i < 2 && w->is_transposed; i++) {
        const int d = i ? w->dim_y : w->dim_n, n = w->phases[i]->n;
        w->made[i] = e->size[d];
        e->size[d] = LLVMBuildUDiv(e->b, em_add(e, e->size[d], num(w, n - 1)), num(w, n), "");
    }
}

static LLVMValueRef word_of(window *w, int number, LLVMValueRef phase, int word) {
    LLVMValueRef at = em_add(w->e, em_mul(w->e, phase, num(w, WORDS)), num(w, word));
    return LLVMBuildLoad2(w->e->b, w->e->t_i64, em_gep(w->e, w->phase_table[number], w->e->t_i64, at), "");
}

LLVMValueRef window_outer_phase(window *w, LLVMValueRef z, LLVMValueRef *phase) {
    if (!w->is_transposed) return z;
    LLVMValueRef n = num(w, w->phases[2]->n);
    *phase = LLVMBuildURem(w->e->b, z, n, "");
    return LLVMBuildUDiv(w->e->b, z, n, "");
}

void window_phase_range(window *w, const LLVMValueRef phase[3], LLVMValueRef *begin, LLVMValueRef *end) {
    emit *e = w->e;
    LLVMValueRef before = num(w, 0), count = num(w, 1);
    for (int i = 2; i >= 0; i--) {
        int64_t inner = 1; /* all places of the axes within */
        for (int k = 0; k < i; k++) inner *= window_places(w, k);
        LLVMValueRef of_axis = em_mul(e, word_of(w, i, phase[i], BEFORE), num(w, inner));
        before = em_add(e, before, em_mul(e, count, of_axis));
        count = em_mul(e, count, word_of(w, i, phase[i], PLACES));
    }
    LLVMValueRef words = window_channel_words(w);
    *begin = em_mul(e, before, words);
    *end = em_add(e, *begin, em_mul(e, count, words));
}

/* ---- all of K ---- */
enum { NEST = 7 }; /* phases of three axes, channels, places of three axes */
typedef struct nest {
    em_loop l[NEST];
    LLVMValueRef k, channel, place[3], at[3]; /* place: of the kernel; at: of the slab; axes from the last */
} nest;

static nest begin_nest(window *w) {
    emit *e = w->e;
    nest n;
    LLVMValueRef zero = num(w, 0), one = num(w, 1), phase[3], begin, end;
    for (int i = 0; i < 3; i++) {
        n.l[i] = em_for(e, zero, num(w, w->phases[2 - i]->n), one);
        phase[2 - i] = n.l[i].i;
    }
    window_phase_range(w, phase, &begin, &end);
    n.l[3] = em_for(e, zero, window_channel_words(w), one);
    n.channel = n.k = n.l[3].i;
    for (int i = 2; i >= 0; i--) {
        const ir_phases *p = w->phases[i];
        LLVMValueRef places = word_of(w, i, phase[i], PLACES);
        em_loop *l = &n.l[6 - i];
        *l = em_for(e, zero, places, one);
        n.k = em_add(e, em_mul(e, n.k, places), l->i);
        n.place[i] = em_sub(e, word_of(w, i, phase[i], FIRST), em_mul(e, l->i, num(w, p->step)));
        n.at[i] =
            em_add(e, em_add(e, word_of(w, i, phase[i], FROM), em_mul(e, l->i, num(w, p->along))), num(w, p->begin));
    }
    n.k = em_add(e, begin, n.k);
    return n;
}

static void end_nest(window *w, nest *n) {
    for (int i = NEST - 1; i >= 0; i--) em_end(w->e, &n->l[i]);
}

void window_emit_phase_table(window *w, const struct window_slab *slab) {
    emit *e = w->e;
    nest n = begin_nest(w);
    LLVMValueRef of_axis[IR_KERNEL_MAX_AXES] = {NULL};
    for (int i = 0; i < w->k->n_axes; i++) of_axis[w->k->n_axes - 1 - i] = n.at[i];
    LLVMBuildStore(e->b, window_slab_place(w, slab, n.channel, of_axis), em_gep(e, w->table, e->t_i64, n.k));
    if (!w->k->is_by_channel)
        LLVMBuildStore(e->b, em_mul(e, n.k, num(w, (int64_t)w->nr * w->bytes)),
                       em_gep(e, w->panel_table, e->t_i64, n.k));
    end_nest(w, &n);
}

/* Weights at `off` for all of K: e->lanes channels, each `step` further, to the vectors (or elements) at dst, `apart`
 * elements from k to k. */
void window_pack_phases(window *w, LLVMValueRef off, LLVMValueRef step, LLVMValueRef mask, LLVMValueRef dst,
                        LLVMValueRef apart) {
    emit *e = w->e;
    nest n = begin_nest(w);
    if (w->channels >= 0) off = em_add(e, off, em_mul(e, n.channel, e->stride[w->weights][w->channels]));
    for (int i = 0; i < w->k->n_axes; i++) {
        const ir_kaxis *a = window_axis(w, i);
        if (a->place >= 0) off = em_add(e, off, em_mul(e, n.place[i], e->stride[w->weights][a->place]));
    }
    em_store_ptr(e, w->acc, window_weights_at(w, off, step, mask), element(w, dst, em_mul(e, n.k, apart)), mask,
                 (unsigned)w->bytes);
    end_nest(w, &n);
}

/* ---- sums ---- */
/* Vector number i of the result's, of `turns` vectors of the phases. */
static LLVMValueRef interleaved(window *w, const LLVMValueRef *of_phase, int i) {
    emit *e = w->e;
    const int half = w->v_lanes / 2;
    LLVMValueRef lane[64];
    for (int j = 0; j < w->v_lanes; j++)
        lane[j] = LLVMConstInt(e->t_i32, (unsigned)(i * half + j / 2 + j % 2 * w->v_lanes), 0);
    return LLVMBuildShuffleVector(e->b, of_phase[0], of_phase[1], LLVMConstVector(lane, (unsigned)w->v_lanes), "");
}

/* (tiles, sums): the tiles of the phases, one behind the other, as rows of sums whose columns take turns. */
void window_emit_interleave(window *w) {
    emit *e = w->e;
    LLVMTypeRef parameter[2] = {e->t_ptr, e->t_ptr};
    window_outer *o = window_begin(w, TURN, "turn", parameter, 2);
    LLVMValueRef in[2], zero = num(w, 0), size = num(w, w->mr * w->nr), apart = num(w, window_tile_elements(w));
    LLVMGetParams(e->fn, in);
    const bool is_pair = w->turns == 2;
    em_loop l = em_for(e, zero, size, num(w, is_pair ? w->v_lanes : 1));
    LLVMValueRef to = em_mul(e, l.i, num(w, w->turns)), v[2];
    for (int r = 0; r < w->turns; r++) {
        LLVMValueRef from = element(w, in[0], em_add(e, l.i, em_mul(e, apart, num(w, r))));
        LLVMValueRef x = is_pair ? window_load_vector(w, from) : LLVMBuildLoad2(e->b, w->t_acc, from, "");
        if (is_pair) v[r] = x;
        else LLVMSetAlignment(LLVMBuildStore(e->b, x, element(w, in[1], em_add(e, to, num(w, r)))), (unsigned)w->bytes);
    }
    for (int i = 0; i < 2 && is_pair; i++)
        LLVMSetAlignment(
            LLVMBuildStore(e->b, interleaved(w, v, i), element(w, in[1], em_add(e, to, num(w, i * w->v_lanes)))),
            (unsigned)w->bytes);
    em_end(e, &l);
    window_end(w, o);
}
