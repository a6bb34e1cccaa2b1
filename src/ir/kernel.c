/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* kernel.c: the kernel description: canonical text both ways, verification, data flow, launch arithmetic, key. */
#include "base/small.h"
#include "ir/arith.h"
#include "ir/gpu.h"
#include "ir/kernel.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

const char *const ir_kernel_kind_names[IR_KERNEL_KIND_COUNT] = {
    [IR_KERNEL_MAP] = "map",           [IR_KERNEL_REDUCE] = "reduce", [IR_KERNEL_ROW] = "row",
    [IR_KERNEL_CONTRACT] = "contract", [IR_KERNEL_SCAN] = "scan",     [IR_KERNEL_WINDOW] = "window",
    [IR_KERNEL_ATTENTION] = "attention",
};
static const char *const k_names[] = {"load", "store", "scalar", "index"}; /* ORDER IR_K_* */

static const char *inst_name(uint16_t op) {
    if (op < IR_OP_COUNT) return ir_ops[op].name;
    return op < IR_K_COUNT ? k_names[op - IR_OP_COUNT] : "?";
}

/* ---- data flow ---- */
bool ir_kernel_is_reduce_op(uint16_t op) {
    return op < IR_OP_COUNT && (ir_ops[op].kind == IR_KIND_REDUCE || ir_ops[op].kind == IR_KIND_ARGREDUCE);
}

bool ir_kernel_is_scatter(const ir_kernel *k) {
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE && k->inst[i].variant) return true;
    return false;
}

/* Forms that plan_dims.c makes of it: p... axis columns; else the axis is last, along which a store has no stride. */
static int scatter_of_columns(const ir_kernel *k) {
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE && k->inst[i].variant)
            return k->n_dims > 1 && k->buffer[k->inst[i].index].stride[k->n_dims - 1] == 1 ? i : -1;
    return -1;
}

bool ir_kernel_scatters_columns(const ir_kernel *k) { return scatter_of_columns(k) >= 0; }

bool ir_kernel_scatters_rows(const ir_kernel *k) {
    const int store = scatter_of_columns(k);
    return store >= 0 && !(ir_kernel_varies(k, k->inst[store].in[1]) >> (k->n_dims - 1) & 1);
}

bool ir_kernel_is_transposed(const ir_kernel *k) { return k->n_dims > 1 && k->dim[k->n_dims - 2].role == 't'; }
bool ir_kernel_is_column(const ir_kernel *k) { return k->n_dims > 0 && k->dim[k->n_dims - 1].role == 'v'; }

static uint32_t dims_of_role(const ir_kernel *k, char role) {
    uint32_t m = 0;
    for (int d = 0; d < k->n_dims; d++)
        if (k->dim[d].role == role) m |= 1u << d;
    return m;
}

/* Does load i read where a scatter stores? What is there changes from step to step, wherever it is. */
static bool is_of_scatter(const ir_kernel *k, int i) {
    if (!(k->inst[i].variant & IR_LOAD_OFFSET)) return false;
    for (int s = i + 1; s < k->n_insts; s++)
        if (k->inst[s].op == IR_K_STORE && k->inst[s].variant && k->inst[s].in[1] == k->inst[i].in[0]) return true;
    return false;
}

/* One forward sweep: what each instruction varies along and the pass it belongs to. */
static void analyze(const ir_kernel *k, uint32_t *varies, int *pass) {
    uint32_t r = dims_of_role(k, k->kind == IR_KERNEL_CONTRACT ? 'n' : 'r'), kk = dims_of_role(k, 'k');
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        uint32_t v = 0;
        int p = 0;
        for (int j = 0; j < in->n_in; j++) {
            v |= varies[in->in[j]];
            if (pass[in->in[j]] > p) p = pass[in->in[j]];
        }
        if (in->op == IR_K_LOAD) {
            for (int d = 0; d < k->n_dims; d++)
                if (k->buffer[in->index].stride[d] != 0) v |= 1u << d; /* and its operands */
            if (is_of_scatter(k, i)) v |= (1u << k->n_dims) - 1;
        } else if (in->op == IR_K_INDEX) {
            v = 1u << in->index;
        } else if (ir_kernel_is_reduce_op(in->op)) {
            v &= ~r;
            p++;
        } else if (in->op < IR_OP_COUNT && ir_ops[in->op].kind == IR_KIND_SCAN) {
            v |= r;
        } else if (in->op == IR_OP_MATMUL) {
            v = dims_of_role(k, 'm') | dims_of_role(k, 'n') | (v & (dims_of_role(k, 'b') | dims_of_role(k, 'y')));
            v &= ~kk;
        } else if (in->op == IR_OP_ATTENTION) {
            v = dims_of_role(k, 'm') | dims_of_role(k, 'n') | dims_of_role(k, 'h') | (v & dims_of_role(k, 'b'));
        }
        varies[i] = v;
        pass[i] = p;
    }
}

const ir_kinst *ir_kernel_matmul(const ir_kernel *k) {
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_OP_MATMUL) return &k->inst[i];
    return NULL;
}

uint32_t ir_kernel_varies(const ir_kernel *k, int inst) {
    uint32_t v[IR_KERNEL_MAX_INSTS];
    int p[IR_KERNEL_MAX_INSTS];
    analyze(k, v, p);
    return v[inst];
}

void ir_kernel_vary_all(const ir_kernel *k, uint32_t varies[IR_KERNEL_MAX_INSTS]) {
    int p[IR_KERNEL_MAX_INSTS];
    analyze(k, varies, p);
}

void ir_kernel_mark(const ir_kernel *k, int inst, bool *is_marked) {
    if (is_marked[inst]) return;
    is_marked[inst] = true;
    for (int i = 0; i < k->inst[inst].n_in; i++) ir_kernel_mark(k, k->inst[inst].in[i], is_marked);
}

void ir_kernel_keep(ir_kernel *k, const bool *is_needed) {
    for (int i = 0; i < k->n_insts; i++) {
        if (is_needed[i]) continue;
        memset(&k->inst[i], 0, sizeof k->inst[i]);
        k->inst[i].op = IR_K_INDEX;
        k->inst[i].dtype = FUSOR_I64;
    }
}

void ir_kernel_keep_addresses(ir_kernel *k) {
    bool is_used[IR_KERNEL_MAX_BUFFERS] = {false};
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_LOAD || k->inst[i].op == IR_K_STORE) is_used[k->inst[i].index] = true;
    for (int b = 0; b < k->n_buffers; b++)
        if (!is_used[b]) memset(k->buffer[b].stride, 0, sizeof k->buffer[b].stride);
}

int ir_kernel_dim(const ir_kernel *k, char role) {
    for (int d = 0; d < k->n_dims; d++)
        if (k->dim[d].role == role) return d;
    return -1;
}

int ir_kernel_pass(const ir_kernel *k, int inst) {
    uint32_t v[IR_KERNEL_MAX_INSTS];
    int p[IR_KERNEL_MAX_INSTS];
    analyze(k, v, p);
    return p[inst];
}

bool ir_has_lowering(ir_op op, ir_dtype t) { return op < IR_OP_COUNT && (ir_ops[op].kernel_types >> t & 1) != 0; }

/* ---- launch ---- */

static int64_t role_product(const ir_kernel *k, const int64_t *size, char role) {
    int64_t n = 1;
    for (int d = 0; d < k->n_dims; d++)
        if (k->dim[d].role == role) n *= size[d];
    return n;
}

int64_t ir_kernel_partials(const ir_kernel *k, const int64_t *size) {
    int last = -1;
    int64_t outer = 1;
    for (int d = 0; d < k->n_dims; d++)
        if (k->dim[d].role == 'r') {
            if (last >= 0) outer *= size[last];
            last = d;
        }
    if (last < 0) return 0;
    return outer * ir_ceil_div(size[last], ir_kernel_is_column(k) ? IR_COLUMN_BLOCK : IR_REDUCE_BLOCK);
}

static int64_t count_reductions(const ir_kernel *k) {
    int64_t n = 0;
    for (int i = 0; i < k->n_insts; i++) n += ir_kernel_is_reduce_op(k->inst[i].op);
    return n;
}

static void launch_map(const ir_kernel *k, const int64_t *size, const int64_t *tune, ir_launch *out) {
    int64_t rows = 1, columns = k->n_dims ? size[k->n_dims - 1] : 1;
    out->n_phases = 1;
    if (ir_kernel_is_transposed(k)) {
        int t = k->n_dims - 2;
        out->tiles[0] = ir_ceil_div(size[t], tune[IR_TUNE_MAP_ROWS]) * ir_ceil_div(columns, tune[IR_TUNE_MAP_COLUMNS]);
        for (int d = 0; d < t; d++) out->tiles[0] *= size[d];
        return;
    }
    for (int d = 0; d + 1 < k->n_dims; d++) rows *= size[d];
    out->tiles[0] = ir_ceil_div(rows, tune[IR_TUNE_MAP_ROWS]) * ir_ceil_div(columns, tune[IR_TUNE_MAP_COLUMNS]);
}

bool ir_kernel_is_one_phase(const ir_kernel *k) {
    int r = 0;
    for (int d = 0; d < k->n_dims; d++) r += k->dim[d].role == 'r';
    return k->kind == IR_KERNEL_REDUCE && !ir_kernel_is_column(k) && r == 1 && k->dim[k->n_dims - 1].size > 0 &&
           k->dim[k->n_dims - 1].size <= IR_REDUCE_BLOCK;
}

static void launch_reduce(const ir_kernel *k, const int64_t *size, const int64_t *tune, ir_launch *out) {
    int64_t rows = role_product(k, size, 'p'), partials = ir_kernel_partials(k, size);
    int64_t reductions = count_reductions(k);
    out->n_phases = ir_kernel_is_one_phase(k) ? 1 : 2;
    if (ir_kernel_is_column(k)) {
        int64_t columns = size[k->n_dims - 1], chunks = ir_ceil_div(columns, tune[IR_TUNE_REDUCE_COLUMNS]);
        out->tiles[0] = ir_ceil_div(rows * partials * chunks, tune[IR_TUNE_REDUCE_GRAIN]);
        out->tiles[1] = ir_ceil_div(rows * chunks, tune[IR_TUNE_REDUCE_FINISH_GRAIN]);
        out->shared_bytes = IR_PARTIAL_BYTES * reductions * rows * partials * columns;
    } else {
        out->tiles[0] = ir_ceil_div(rows * partials, tune[IR_TUNE_REDUCE_GRAIN]);
        if (out->n_phases > 1) out->tiles[1] = ir_ceil_div(rows, tune[IR_TUNE_REDUCE_FINISH_GRAIN]);
        out->shared_bytes = IR_PARTIAL_BYTES * reductions * rows * partials;
    }
}

bool ir_kernel_has_line(const ir_kernel *k, int inst, uint32_t varies, int pass) {
    const uint16_t op = k->inst[inst].op;
    return pass > 0 && !(varies & dims_of_role(k, 'r')) && op != IR_K_STORE && !ir_kernel_is_reduce_op(op);
}

static void launch_row(const ir_kernel *k, const int64_t *size, const int64_t *tune, ir_launch *out) {
    const bool is_column = ir_kernel_is_column(k);
    const int64_t width = is_column ? tune[IR_TUNE_ROW_COLUMNS] : 1, partials = ir_kernel_partials(k, size);
    int64_t units = role_product(k, size, 'p'), length = role_product(k, size, 'r') * width;
    uint32_t varies[IR_KERNEL_MAX_INSTS];
    int pass[IR_KERNEL_MAX_INSTS];
    if (is_column) units *= ir_ceil_div(size[k->n_dims - 1], width);
    out->n_phases = 1;
    out->tiles[0] = ir_ceil_div(units, tune[IR_TUNE_ROW_UNITS]); /* rows of no elements still have results */
    out->scratch_bytes = IR_PARTIAL_BYTES * count_reductions(k) * width * (is_column && partials < 1 ? 1 : partials);
    out->scratch_bytes = ir_round_up(out->scratch_bytes, 64);
    if (is_column) analyze(k, varies, pass);
    for (int i = 0; i < k->n_insts; i++) {
        const int64_t bytes = ir_dtypes[k->inst[i].dtype].bytes;
        if (is_column && ir_kernel_has_line(k, i, varies[i], pass[i]))
            out->scratch_bytes += ir_round_up(width * bytes, 64);
        if (k->inst[i].is_kept) out->scratch_bytes += ir_round_up(length * bytes, 64);
    }
}

static void launch_scan(const ir_kernel *k, const int64_t *size, const int64_t *tune, ir_launch *out) {
    int64_t lines = role_product(k, size, 'p'), blocks = ir_ceil_div(role_product(k, size, 'r'), IR_SCAN_BLOCK);
    bool split = tune[IR_TUNE_SCAN_TWO_PHASES] != 0 && !ir_kernel_is_column(k);
    int64_t units = split ? lines * blocks : lines;
    out->n_phases = 3;
    if (ir_kernel_is_column(k)) {
        units *= ir_ceil_div(size[k->n_dims - 1], tune[IR_TUNE_SCAN_COLUMNS]);
        out->scratch_bytes = 3 * 8 * tune[IR_TUNE_SCAN_COLUMNS];
    }
    out->tiles[2] = ir_ceil_div(units, tune[IR_TUNE_SCAN_GRAIN]);
    if (!split) return;
    out->tiles[0] = out->tiles[2];
    out->tiles[1] = lines;
    out->shared_bytes = 8 * units;
}

/* Are all outputs without an element, however many rows of nothing there are? */
static bool makes_nothing(const ir_kernel *k, const int64_t *size) {
    for (int b = 0; b < k->n_buffers; b++) {
        if (!k->buffer[b].is_output) continue;
        int d = 0;
        while (d < k->n_dims && (size[d] != 0 || k->buffer[b].stride[d] == 0)) d++;
        if (d == k->n_dims) return false;
    }
    return true;
}

void ir_kernel_launch(const ir_kernel *k, const int64_t *size, const int64_t *tune, ir_launch *out) {
    memset(out, 0, sizeof *out);
    if (makes_nothing(k, size)) {
        out->n_phases = 1;
        return;
    }
    switch (k->kind) {
    case IR_KERNEL_MAP: launch_map(k, size, tune, out); break;
    case IR_KERNEL_REDUCE: launch_reduce(k, size, tune, out); break;
    case IR_KERNEL_ROW: launch_row(k, size, tune, out); break;
    case IR_KERNEL_SCAN: launch_scan(k, size, tune, out); break;
    case IR_KERNEL_CONTRACT: ir_launch_contract(k, size, tune, out); break;
    case IR_KERNEL_WINDOW: ir_launch_window(k, size, tune, out); break;
    case IR_KERNEL_ATTENTION: ir_launch_attention(k, size, tune, out); break;
    case IR_KERNEL_KIND_COUNT: break;
    }
}

/* ---- text ---- */
static void print_stride(fu_str *o, int64_t s) {
    if (s == IR_STRIDE_RUNTIME) fu_str_add(o, " ?");
    else fu_str_addf(o, " %" PRId64, s);
}

void ir_kernel_print(fu_str *o, const ir_kernel *k) {
    char target[IR_TARGET_MAX];
    fu_str_addf(o, "fusor-kernel %d\nkind %s\nlevel %s\n", IR_KERNEL_ABI, ir_kernel_kind_names[k->kind],
                ir_target_name(ir_kernel_target(k), target));
    if (k->fast_math) fu_str_add(o, "math fast\n");
    if (k->tile.mr) fu_str_addf(o, "tile %d %d %d", k->tile.mr, k->tile.nr, k->tile.kb);
    if (k->last_columns) fu_str_addf(o, " last %d", k->last_columns);
    if (k->tile.mr) fu_str_addc(o, '\n');
    if (k->is_direct) fu_str_add(o, "form direct\n");
    if (k->can_sweep) fu_str_add(o, "form sweep\n");
    if (k->is_each) fu_str_add(o, "form each\n");
    if (k->only_tile) fu_str_addf(o, "form tile %d\n", k->only_tile - 1);
    if (k->is_depthwise) fu_str_add(o, "form depthwise\n");
    if (k->is_by_channel) fu_str_add(o, k->has_whole_channels ? "form channels whole\n" : "form channels\n");
    if (k->has_last) fu_str_add(o, "form last\n");
    if (k->has_lower) fu_str_add(o, "form lower\n");
    if (k->n_folded) fu_str_addf(o, "form folded %d\n", k->n_folded);
    for (int i = 0; i < k->n_axes; i++) {
        const ir_kaxis *a = &k->axis[i];
        fu_str_addf(o, "axis %d %d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %%%d", a->dim, a->place, a->stride,
                    a->dilation, a->begin, a->end, a->size);
        if (a->up) fu_str_addf(o, " up %d", a->up);
        fu_str_addc(o, '\n');
    }
    if (k->slide.n) ir_print_slide(o, &k->slide);
    if (k->band_rows) fu_str_addf(o, "band %" PRId64 "\n", k->band_rows);
    for (int d = 0; d < k->n_dims; d++) {
        if (k->dim[d].size == IR_SIZE_RUNTIME) fu_str_addf(o, "dim %c ?\n", k->dim[d].role);
        else fu_str_addf(o, "dim %c %" PRId64 "\n", k->dim[d].role, k->dim[d].size);
    }
    for (int b = 0; b < k->n_buffers; b++) {
        fu_str_addf(o, "buffer %s %s", k->buffer[b].is_output ? "out" : "in", ir_dtypes[k->buffer[b].dtype].name);
        for (int d = 0; d < k->n_dims; d++) print_stride(o, k->buffer[b].stride[d]);
        if (k->buffer[b].is_band) fu_str_add(o, " band");
        if (k->buffer[b].behind) fu_str_addf(o, " behind #%d", k->buffer[b].behind - 1);
        fu_str_addc(o, '\n');
    }
    for (int s = 0; s < k->n_scalars; s++) fu_str_addf(o, "scalar %s\n", ir_dtypes[k->scalar[s]].name);
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        fu_str_addf(o, "%%%d = %s.%s", i, inst_name(in->op), ir_dtypes[in->dtype].name);
        if (in->op >= IR_OP_COUNT) fu_str_addf(o, " #%d", in->index);
        for (int j = 0; j < in->n_in; j++) fu_str_addf(o, " %%%d", in->in[j]);
        if (in->variant) fu_str_addf(o, " variant %d", in->variant);
        if (in->is_kept) fu_str_add(o, " kept");
        fu_str_addc(o, '\n');
    }
}

/* The reader accepts exactly what the printer writes. */
typedef struct reader {
    const char *at, *end;
    int line;
    fu_error *e;
} reader;

static bool next_line(reader *r, char line[512]) {
    if (r->at >= r->end) return false;
    const char *nl = memchr(r->at, '\n', (size_t)(r->end - r->at));
    size_t n = (size_t)((nl ? nl : r->end) - r->at);
    if (n >= 512) n = 511;
    memcpy(line, r->at, n);
    line[n] = 0;
    r->at = nl ? nl + 1 : r->end;
    r->line++;
    return true;
}

static fusor_status bad(reader *r, const char *what) {
    return FU_FAIL(r->e, FUSOR_ERROR_SYNTAX, "kernel description line %d: %s", r->line, what);
}

static int find_word(const char *word, const char *const *table, int n) {
    for (int i = 0; i < n; i++)
        if (strcmp(word, table[i]) == 0) return i;
    return -1;
}

static fusor_status read_dim(reader *r, const char *line, ir_kernel *k) {
    char role, value[32];
    if (k->n_dims >= IR_KERNEL_MAX_DIMS || sscanf(line, "dim %c %31s", &role, value) != 2 ||
        !strchr("ptrvbmynkhjgqw", role))
        return bad(r, "expected 'dim ROLE SIZE'");
    int64_t size = strcmp(value, "?") == 0 ? IR_SIZE_RUNTIME : strtoll(value, NULL, 10);
    if (size < IR_SIZE_RUNTIME) return bad(r, "a size is '?' or not negative");
    k->dim[k->n_dims++] = (ir_kdim){role, size};
    return FUSOR_OK;
}

static fusor_status read_buffer(reader *r, const char *line, ir_kernel *k) {
    char dir[8], type[8];
    int used = 0;
    if (k->n_buffers >= IR_KERNEL_MAX_BUFFERS || sscanf(line, "buffer %7s %7s%n", dir, type, &used) != 2)
        return bad(r, "expected 'buffer in|out DTYPE STRIDES'");
    ir_kbuffer *b = &k->buffer[k->n_buffers++];
    b->dtype = ir_dtype_parse(type, strlen(type));
    b->is_output = strcmp(dir, "out") == 0;
    if (!b->dtype || (!b->is_output && strcmp(dir, "in") != 0)) return bad(r, "expected 'buffer in|out DTYPE STRIDES'");
    const char *p = line + used;
    for (int d = 0; d < k->n_dims; d++) {
        char word[32];
        int n = 0;
        if (sscanf(p, " %31s%n", word, &n) != 1) return bad(r, "a stride for each dim is missing");
        b->stride[d] = strcmp(word, "?") == 0 ? IR_STRIDE_RUNTIME : strtoll(word, NULL, 10);
        p += n;
    }
    b->is_band = strncmp(p, " band", 5) == 0;
    if (b->is_band) p += 5;
    if (sscanf(p, " behind #%" SCNu8, &b->behind) == 1) b->behind++;
    return FUSOR_OK;
}

static fusor_status read_axis(reader *r, const char *line, ir_kernel *k) {
    ir_kaxis a = {.up = 0};
    if (k->n_axes >= IR_KERNEL_MAX_AXES ||
        sscanf(line, "axis %d %d %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %%%" SCNu16 " up %d", &a.dim, &a.place,
               &a.stride, &a.dilation, &a.begin, &a.end, &a.size, &a.up) < 7)
        return bad(r, "expected 'axis DIM PLACE STRIDE DILATION BEGIN END %SIZE [up UP]'");
    k->axis[k->n_axes++] = a;
    return FUSOR_OK;
}

static fusor_status read_inst(reader *r, char *line, ir_kernel *k) {
    int number = 0, used = 0;
    char name[64];
    if (k->n_insts >= IR_KERNEL_MAX_INSTS || sscanf(line, "%%%d = %63s%n", &number, name, &used) != 2 ||
        number != k->n_insts)
        return bad(r, "expected '%N = OP.DTYPE OPERANDS'");
    char *dot = strrchr(name, '.');
    if (!dot) return bad(r, "an instruction needs a type");
    *dot = 0;
    ir_kinst *in = &k->inst[k->n_insts];
    memset(in, 0, sizeof *in);
    in->dtype = ir_dtype_parse(dot + 1, strlen(dot + 1));
    int special = find_word(name, k_names, IR_K_COUNT - IR_OP_COUNT);
    in->op = special >= 0 ? (uint16_t)(IR_OP_COUNT + special) : (uint16_t)ir_op_find(name, strlen(name));
    if (!in->dtype || in->op == IR_OP_NONE) return bad(r, "unknown operator or type");
    char *save = NULL;
    for (char *w = strtok_r(line + used, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        long v = w[0] == '%' || w[0] == '#' ? strtol(w + 1, NULL, 10) : 0;
        if (v < 0 || v > 65535) return bad(r, "number out of range");
        if (w[0] == '#') in->index = (uint16_t)v;
        else if (w[0] == '%' && in->n_in < IR_KINST_MAX_IN) in->in[in->n_in++] = (uint16_t)v;
        else if (strcmp(w, "kept") == 0) in->is_kept = true;
        else if (strcmp(w, "variant") == 0 && (w = strtok_r(NULL, " ", &save)))
            in->variant = (uint16_t)strtol(w, NULL, 10);
        else return bad(r, "unexpected word in an instruction");
    }
    k->n_insts++;
    return FUSOR_OK;
}

static fusor_status read_line(reader *r, char *line, ir_kernel *k) {
    char word[64], digits[3];
    int used = 0;
    if (strncmp(line, "dim ", 4) == 0) return read_dim(r, line, k);
    if (strncmp(line, "buffer ", 7) == 0) return read_buffer(r, line, k);
    if (strncmp(line, "axis ", 5) == 0) return read_axis(r, line, k);
    if (line[0] == '%') return read_inst(r, line, k);
    if (strncmp(line, "slide ", 6) == 0)
        return ir_parse_slide(line, &k->slide) ? FUSOR_OK : bad(r, "expected 'slide %TO %FROM ..'");
    if (sscanf(line, "kind %63s", word) == 1) {
        int kind = find_word(word, ir_kernel_kind_names, IR_KERNEL_KIND_COUNT);
        if (kind < 0) return bad(r, "unknown kernel kind");
        k->kind = (ir_kernel_kind)kind;
        return FUSOR_OK;
    }
    if (sscanf(line, "level %63s", word) == 1) {
        ir_target target;
        FU_TRY(ir_target_parse(r->e, word, &target));
        k->level = target.level;
        k->features = target.features;
        return FUSOR_OK;
    }
    if (sscanf(line, "scalar %63s", word) == 1) {
        if (k->n_scalars >= IR_KERNEL_MAX_INSTS) return bad(r, "too many scalars");
        ir_dtype t = ir_dtype_parse(word, strlen(word));
        if (!t) return bad(r, "unknown type");
        k->scalar[k->n_scalars++] = t;
        return FUSOR_OK;
    }
    if (strcmp(line, "math fast") == 0) return k->fast_math = true, FUSOR_OK;
    if (strcmp(line, "form direct") == 0) return k->is_direct = true, FUSOR_OK;
    if (strcmp(line, "form sweep") == 0) return k->can_sweep = true, FUSOR_OK;
    if (strcmp(line, "form depthwise") == 0) return k->is_depthwise = true, FUSOR_OK;
    if (strcmp(line, "form channels") == 0) return k->is_by_channel = true, FUSOR_OK;
    if (strcmp(line, "form channels whole") == 0) return k->is_by_channel = k->has_whole_channels = true, FUSOR_OK;
    if (strcmp(line, "form last") == 0) return k->has_last = true, FUSOR_OK;
    if (strcmp(line, "form lower") == 0) return k->has_lower = true, FUSOR_OK;
    if (strcmp(line, "form each") == 0) return k->is_each = true, FUSOR_OK;
    if (sscanf(line, "form folded %1[0-9]%n", digits, &used) == 1 && !line[used])
        return k->n_folded = atoi(digits), FUSOR_OK;
    if (sscanf(line, "form tile %2[0-9]%n", digits, &used) == 1 && !line[used])
        return k->only_tile = atoi(digits) + 1, FUSOR_OK;
    if (sscanf(line, "band %" SCNd64, &k->band_rows) == 1) return FUSOR_OK;
    if (sscanf(line, "tile %d %d %d last %d", &k->tile.mr, &k->tile.nr, &k->tile.kb, &k->last_columns) >= 3)
        return FUSOR_OK;
    return bad(r, "unknown line");
}

fusor_status ir_kernel_parse(fu_error *e, const char *text, size_t length, ir_kernel *out) {
    reader r = {text, text + length, 0, e};
    char line[512], expected[32];
    snprintf(expected, sizeof expected, "fusor-kernel %d", IR_KERNEL_ABI);
    if (!next_line(&r, line) || strcmp(line, expected) != 0) return bad(&r, "not a kernel description of this version");
    memset(out, 0, sizeof *out);
    while (next_line(&r, line)) FU_TRY(read_line(&r, line, out));
    return ir_kernel_verify(out, e);
}

/* ---- verification: what code generation relies on ---- */
static fusor_status verify_inst(const ir_kernel *k, int i, fu_error *e, const uint32_t *varies) {
    const ir_kinst *in = &k->inst[i];
#define REQUIRE(cond, what)                                                                                            \
    if (!(cond)) return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "kernel instruction %%%d (%s): %s", i, inst_name(in->op), what)
    for (int j = 0; j < in->n_in; j++) {
        REQUIRE(in->in[j] < i, "an operand comes after its use");
        REQUIRE(k->inst[in->in[j]].op != IR_K_STORE, "a store has no value");
    }
    switch (in->op) {
    case IR_K_LOAD:
    case IR_K_STORE:
        REQUIRE(in->index < k->n_buffers, "no such buffer");
        if (in->op == IR_K_LOAD) {
            int n = 0;
            REQUIRE((in->variant & ~(IR_LOAD_OFFSET | IR_LOAD_GUARD)) == 0, "unknown operands of a load");
            REQUIRE(in->n_in == !!(in->variant & IR_LOAD_OFFSET) + !!(in->variant & IR_LOAD_GUARD),
                    "wrong number of operands");
            if (in->variant & IR_LOAD_OFFSET) REQUIRE(k->inst[in->in[n++]].dtype == FUSOR_I64, "an offset is i64");
            if (in->variant & IR_LOAD_GUARD) REQUIRE(k->inst[in->in[n]].dtype == FUSOR_BOOL, "a guard is bool");
        } else {
            REQUIRE(in->variant <= IR_STORE_OFFSET && in->n_in == 1 + in->variant, "wrong number of operands");
            if (in->variant)
                REQUIRE(k->kind == IR_KERNEL_MAP && k->inst[in->in[1]].dtype == FUSOR_I64,
                        "only maps scatter, by i64 offsets");
        }
        REQUIRE(k->buffer[in->index].is_output == (in->op == IR_K_STORE), "loads read inputs and stores write outputs");
        REQUIRE(k->buffer[in->index].dtype == in->dtype, "type of the buffer differs");
        if (in->op == IR_K_STORE) {
            uint32_t has = 0;
            for (int d = 0; d < k->n_dims; d++)
                if (k->buffer[in->index].stride[d] != 0) has |= 1u << d;
            REQUIRE(in->variant || (varies[in->in[0]] & ~has) == 0,
                    "the value varies along a dim that the output does not have");
            REQUIRE(k->inst[in->in[0]].dtype == in->dtype, "type of the value differs");
        }
        return FUSOR_OK;
    case IR_K_SCALAR:
        REQUIRE(in->index < k->n_scalars && k->scalar[in->index] == in->dtype && !in->n_in, "no such scalar");
        return FUSOR_OK;
    case IR_K_INDEX:
        REQUIRE(in->index < k->n_dims && in->dtype == FUSOR_I64 && !in->n_in, "no such dim");
        return FUSOR_OK;
    default: break;
    }
    const ir_op_info *op = &ir_ops[in->op];
    ir_kind kind = op->kind;
    REQUIRE(kind == IR_KIND_EW || kind == IR_KIND_CONVERT || kind == IR_KIND_REDUCE || kind == IR_KIND_ARGREDUCE ||
                kind == IR_KIND_SCAN || in->op == IR_OP_MATMUL || in->op == IR_OP_ATTENTION || kind == IR_KIND_RANDOM,
            "not an operator of kernels");
    if (kind == IR_KIND_RANDOM) { /* seed, row-major number of the element */
        REQUIRE(in->n_in == 2 && k->inst[in->in[0]].dtype == FUSOR_I64 && k->inst[in->in[1]].dtype == FUSOR_I64,
                "needs a seed and a number");
        REQUIRE(in->dtype == FUSOR_F32 || in->dtype == FUSOR_F64, "wrong result type");
        return FUSOR_OK;
    }
    if (in->op == IR_OP_ATTENTION) { /* ir_verify_attention has the rest */
        REQUIRE(k->kind == IR_KERNEL_ATTENTION, "attention outside an attention kernel");
        return FUSOR_OK;
    }
    REQUIRE(in->n_in >= op->min_in && in->n_in <= op->max_in + (kind == IR_KIND_EW ? op->n_scalar_attrs : 0),
            "wrong number of operands");
    if (ir_kernel_is_reduce_op(in->op))
        REQUIRE(k->kind == IR_KERNEL_REDUCE || k->kind == IR_KERNEL_ROW || k->kind == IR_KERNEL_CONTRACT,
                "a reduction outside a reduce, row or contract kernel");
    if (kind == IR_KIND_SCAN) {
        REQUIRE(k->kind == IR_KERNEL_SCAN, "a running sum or product outside a scan kernel");
        REQUIRE(k->inst[in->in[0]].dtype == in->dtype, "operand type differs");
    }
    if (in->op == IR_OP_MATMUL)
        REQUIRE(k->kind == IR_KERNEL_CONTRACT || k->kind == IR_KERNEL_WINDOW,
                "a contraction outside a contract or window kernel");
    if (kind == IR_KIND_EW) {
        ir_dtype main = k->inst[in->in[(op->flags & IR_COND) ? 1 : 0]].dtype;
        REQUIRE(ir_has_lowering((ir_op)in->op, main), "no lowering for this type");
        for (int j = 0; j < in->n_in; j++) { /* scalar attributes of halves are f32 */
            ir_dtype expected = (op->flags & IR_COND) && j == 0       ? FUSOR_BOOL
                                : j >= op->max_in && ir_is_half(main) ? FUSOR_F32
                                                                      : main;
            REQUIRE(k->inst[in->in[j]].dtype == expected, "operand types differ");
        }
        REQUIRE(in->dtype == (op->result_is_bool ? FUSOR_BOOL : main), "wrong result type");
    }
    if (in->is_kept) REQUIRE(k->kind == IR_KERNEL_ROW || k->kind == IR_KERNEL_CONTRACT, "only rows keep values");
#undef REQUIRE
    return FUSOR_OK;
}

static fusor_status verify_behind(const ir_kernel *k, const ir_kbuffer *b, fu_error *e) {
    const ir_kbuffer *first = &k->buffer[b->behind - 1];
    const size_t bytes = (size_t)k->n_dims * sizeof *b->stride;
    if ((k->kind != IR_KERNEL_MAP && !b->is_band) || b->behind > k->n_buffers || b->is_output || first->is_output ||
        first->behind || first->dtype != b->dtype || k->n_dims < 1 || b->stride[k->n_dims - 1] != 2 ||
        memcmp(b->stride, first->stride, bytes) != 0)
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a buffer behind another is an input like it, columns 2 apart");
    return FUSOR_OK;
}

fusor_status ir_kernel_verify(const ir_kernel *k, fu_error *e) {
    static const char *const orders[IR_KERNEL_KIND_COUNT] = {
        [IR_KERNEL_MAP] = "ptp",         [IR_KERNEL_REDUCE] = "prv", [IR_KERNEL_ROW] = "prv",
        [IR_KERNEL_CONTRACT] = "byjmnk", [IR_KERNEL_SCAN] = "prv",   [IR_KERNEL_WINDOW] = "bmynkqw",
        [IR_KERNEL_ATTENTION] = "bhmnkjg",
    };
    int at = 0, matmuls = 0, reductions = 0, scans = 0;
    for (int d = 0; d < k->n_dims; d++) {
        const char *p = strchr(orders[k->kind] + at, k->dim[d].role);
        if (!p || !k->dim[d].role)
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "kernel dim %d: role '%c' is out of place", d, k->dim[d].role);
        at = (int)(p - orders[k->kind]);
        if (strchr(k->kind == IR_KERNEL_WINDOW     ? "mynqw"
                   : k->kind == IR_KERNEL_CONTRACT ? "mnk"
                                                   : "tvmnkhjg",
                   k->dim[d].role) &&
            d && k->dim[d - 1].role == k->dim[d].role)
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "kernel dim %d: a second dim of role '%c'", d, k->dim[d].role);
    }
    for (int b = 0; b < k->n_buffers; b++)
        if (k->buffer[b].behind) FU_TRY(verify_behind(k, &k->buffer[b], e));
    for (int d = 0; d < k->n_dims; d++)
        if (k->dim[d].role == 't' &&
            (d != k->n_dims - 2 || k->dim[d].size != IR_SIZE_RUNTIME || k->dim[d + 1].size != IR_SIZE_RUNTIME))
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL,
                           "kernel dim %d: a transposed kernel ends with two dims of any size, t and p", d);
    if (k->kind == IR_KERNEL_CONTRACT &&
        (k->n_dims < 3 || k->dim[k->n_dims - 3].role != 'm' || k->dim[k->n_dims - 2].role != 'n' ||
         k->dim[k->n_dims - 1].role != 'k' || k->tile.mr < 1 || k->tile.nr < 1 || k->tile.kb < 1))
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a contract kernel needs dims m, n, k and a tile");
    for (int d = 0; d < k->n_dims && k->kind == IR_KERNEL_CONTRACT; d++) {
        if (k->dim[d].role != 'y' && k->dim[d].role != 'j') continue;
        if (ir_level_is_gpu(k->level) || k->is_direct)
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL,
                           "kernel dim %d: a contract kernel of this form has no dims of role '%c'", d, k->dim[d].role);
    }
    if (k->kind == IR_KERNEL_WINDOW) FU_TRY(ir_verify_window(k, e));
    else FU_TRY(ir_verify_axes(k, e));
    uint32_t varies[IR_KERNEL_MAX_INSTS];
    int pass[IR_KERNEL_MAX_INSTS];
    for (int i = 0; i < k->n_insts; i++) { /* operand order first: the analysis relies on it */
        for (int j = 0; j < k->inst[i].n_in; j++)
            if (k->inst[i].in[j] >= i)
                return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "kernel instruction %%%d: an operand comes after its use", i);
        if ((k->inst[i].op == IR_K_LOAD || k->inst[i].op == IR_K_STORE) && k->inst[i].index >= k->n_buffers)
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "kernel instruction %%%d: no such buffer", i);
        matmuls += k->inst[i].op == IR_OP_MATMUL;
        reductions += ir_kernel_is_reduce_op(k->inst[i].op);
        scans += k->inst[i].op < IR_OP_COUNT && ir_ops[k->inst[i].op].kind == IR_KIND_SCAN;
    }
    FU_TRY(ir_verify_band(k, e));
    analyze(k, varies, pass);
    for (int i = 0; i < k->n_insts; i++) FU_TRY(verify_inst(k, i, e, varies));
    if ((k->kind == IR_KERNEL_CONTRACT || k->kind == IR_KERNEL_WINDOW) && matmuls != 1)
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a %s kernel has exactly one matmul", ir_kernel_kind_names[k->kind]);
    if (k->last_columns && ir_kernel_last_columns(k, (int64_t)k->tile.nr + k->last_columns) != k->last_columns)
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a kernel of this form has no last columns of %d", k->last_columns);
    if (k->can_sweep && (k->kind != IR_KERNEL_CONTRACT || !ir_kernel_can_sweep(k)))
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL,
                       "a kernel that sweeps needs a contraction of one n and one k, and an operand 1 that is read in "
                       "place");
    if (k->has_lower && !k->is_by_channel)
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "tiles of two heights are of kernels by channel");
    if (k->slide.n) FU_TRY(ir_verify_slide(k, e));
    if (k->is_direct && (k->kind != IR_KERNEL_CONTRACT || !ir_kernel_can_be_direct(k)))
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL,
                       "a direct kernel needs a contraction of known sizes, and an operand 0 that is read in place");
    if (k->is_each && !ir_gpu_can_each(k))
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a %s kernel for %s has no form for many sets of arguments",
                       ir_kernel_kind_names[k->kind], ir_levels[k->level].name);
    if (k->only_tile && !ir_gpu_has_tile(k, k->only_tile - 1))
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a %s kernel for %s has no tile %d", ir_kernel_kind_names[k->kind],
                       ir_levels[k->level].name, k->only_tile - 1);
    if (reductions && k->kind == IR_KERNEL_CONTRACT) FU_TRY(ir_kernel_verify_rows(k, e));
    if (k->kind == IR_KERNEL_SCAN) {
        int last = k->n_dims - 1 - ir_kernel_is_column(k);
        if (scans != 1 || last < 0 || k->dim[last].role != 'r' || (last > 0 && k->dim[last - 1].role == 'r'))
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL,
                           "a scan kernel has exactly one running sum or product, along one dim of role 'r'");
        for (int i = 0; i < k->n_insts; i++)
            if (k->inst[i].op == IR_K_STORE && k->buffer[k->inst[i].index].stride[last] == 0)
                return FU_FAIL(e, FUSOR_ERROR_INTERNAL,
                               "kernel instruction %%%d: a scan kernel stores values per element only", i);
    }
    if (k->kind == IR_KERNEL_ATTENTION) FU_TRY(ir_verify_attention(k, varies, e));
    if ((k->kind == IR_KERNEL_REDUCE || k->kind == IR_KERNEL_ROW) && reductions == 0)
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "a %s kernel needs a reduction", ir_kernel_kind_names[k->kind]);
    return FUSOR_OK;
}

/* ---- identity ---- */
void ir_kernel_key(const char *description, size_t length, const char *build_id, uint8_t key[IR_KEY_BYTES]) {
    uint8_t both[2 * IR_KEY_BYTES];
    fu_hash128(description, length, both);
    fu_hash128(build_id, strlen(build_id), both + IR_KEY_BYTES);
    fu_hash128(both, sizeof both, key);
}

void ir_kernel_symbol(const ir_kernel *k, const uint8_t key[IR_KEY_BYTES], char out[IR_SYMBOL_MAX]) {
    char types[24] = "", ops[48] = "", shape[16] = "";
    uint32_t seen = 0;
    int n_ops = 0;
    for (int b = 0; b < k->n_buffers; b++) {
        ir_dtype t = k->buffer[b].dtype;
        if (seen >> t & 1 || strlen(types) > 12) continue;
        seen |= 1u << t;
        strcat(types, ir_dtypes[t].name);
    }
    for (int i = 0; i < k->n_insts; i++) {
        if (k->inst[i].op >= IR_OP_COUNT) continue;
        const char *name = ir_ops[k->inst[i].op].name;
        if (++n_ops > 6 || strlen(ops) + strlen(name) > 44) continue;
        if (ops[0]) strcat(ops, "_");
        strcat(ops, name);
    }
    for (int d = 0, n = 0; d < k->n_dims && n < 12; d++)
        n += snprintf(shape + n, sizeof shape - (size_t)n, "%c%s", k->dim[d].role, k->dim[d].size >= 0 ? "c" : "");
    const ir_level_info *l = &ir_levels[k->level];
    snprintf(out, IR_SYMBOL_MAX, "fk_%s_%s_%s_%s__%s_w%du%d_%02x%02x%02x%02x", ir_kernel_kind_names[k->kind],
             types[0] ? types : "none", ops[0] ? ops : "copy", shape[0] ? shape : "s", l->short_name, l->lanes,
             k->kind == IR_KERNEL_MAP ? 2 : IR_REDUCE_UNROLL, key[0], key[1], key[2], key[3]);
}
