/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* report.c: numbers and tables for people, JSON for programs. */
#include "report.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <unistd.h>

/* ---- JSON ---- */
json_t *report_new(const char *schema) { return json_pack("{s:s}", "schema", schema); }

int report_flush(tool *t) {
    static bool is_told; /* by the subcommand; asked again at the end of the program */
    if (is_told) return EXIT_ENVIRONMENT;
    if (fflush(stdout) == 0 && !ferror(stdout)) return 0;
    struct pollfd p = {.fd = 1};
    if (errno == EPIPE || (poll(&p, 1, 0) > 0 && (p.revents & POLLERR))) return 0; /* nobody reads on: no mishap */
    is_told = true;
    return tool_environment(t, "standard output: %s", strerror(errno));
}

/* Jansson's integers end at 2^63 - 1. A larger one is a string that begins with NUL, as no name or argument does, and
 * printed as a number. LARGE_SHOWN: that beginning as Jansson writes it. */
#define LARGE_SHOWN "\"\\u0000"

int report_print(tool *t, json_t *document) {
    char *text = document ? json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(document);
    if (!text) return tool_environment(t, "out of memory");
    const char *from = text;
    for (const char *at = text; (at = strstr(at, LARGE_SHOWN)) != NULL;) {
        const char *digits = at + strlen(LARGE_SHOWN), *end = digits + strspn(digits, "0123456789");
        if (end > digits && *end == '"') {
            printf("%.*s%.*s", (int)(at - from), from, (int)(end - digits), digits);
            from = end + 1;
        }
        at = end;
    }
    puts(from);
    free(text);
    return report_flush(t);
}

json_t *report_real(double v) {
    if (isnan(v)) return json_string("nan");
    if (isinf(v)) return json_string(v > 0 ? "inf" : "-inf");
    return json_real(v);
}

json_t *report_shape(int rank, const int64_t *shape) {
    json_t *a = json_array();
    for (int d = 0; d < rank; d++) (void)json_array_append_new(a, json_integer(shape[d]));
    return a;
}

json_t *report_dims(const ir_sizes *s, const int64_t *values) {
    json_t *o = json_object();
    for (uint32_t i = 0; i < ir_size_symbol_count(s); i++)
        if (values[i] >= 0) (void)json_object_set_new(o, ir_size_symbol_name(s, i), json_integer(values[i]));
    return o;
}

/* ---- numbers ---- */
static const char *scaled(tool *t, double v, double step, const char *const *units, int n) {
    int i = 0;
    while (i + 1 < n && fabs(v) >= step) v /= step, i++;
    int digits = fabs(v) >= 100 || (i == 0 && v == floor(v)) ? 0 : fabs(v) >= 10 ? 1 : 2;
    return fu_format(&t->arena, "%.*f%s%s", digits, v, units[i][0] ? " " : "", units[i]);
}

const char *report_ns(tool *t, double ns) {
    static const char *const units[] = {"ns", "us", "ms", "s"};
    return scaled(t, ns, 1000, units, 4);
}

const char *report_bytes(tool *t, double bytes) {
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    return scaled(t, bytes, 1000, units, 5);
}

const char *report_rate(tool *t, double per_second, const char *unit) {
    double v = per_second / 1e9;
    return fu_format(&t->arena, "%.*f %s", v >= 100 ? 0 : v >= 10 ? 1 : v >= 0.01 ? 2 : 4, v, unit);
}

const char *report_shape_text(tool *t, ir_dtype dtype, int rank, const int64_t *shape) {
    fu_str s;
    fu_str_init(&s, &t->arena);
    fu_str_add(&s, ir_dtypes[dtype].name);
    for (int d = 0; d < rank; d++) fu_str_addf(&s, "%s%" PRId64, d ? ", " : "[", shape[d]);
    if (rank) fu_str_addc(&s, ']');
    return s.at;
}

/* ---- tables ---- */
const char *report_shown(tool *t, const char *text) {
    char *copy = fu_strdup(&t->arena, text);
    (void)fu_make_printable(copy, false);
    return copy;
}

void report_row(report_table *table, ...) {
    va_list ap;
    va_start(ap, table);
    for (int i = 0; i < table->columns; i++) {
        const char *cell = va_arg(ap, const char *);
        fu_push(&table->t->arena, &table->cells, report_shown(table->t, cell ? cell : ""));
    }
    va_end(ap);
}

void report_table_print(report_table *table, FILE *out) {
    for (uint32_t i = 0; i < table->cells.n; i++) {
        int c = (int)(i % (uint32_t)table->columns);
        size_t width = 0;
        for (uint32_t k = (uint32_t)c; k < table->cells.n; k += (uint32_t)table->columns)
            if (strlen(table->cells.at[k]) > width) width = strlen(table->cells.at[k]);
        bool is_left = c == 0 || table->left_mask >> c & 1, is_last = c + 1 == table->columns;
        if (is_last && is_left) fprintf(out, "%s\n", table->cells.at[i]);
        else fprintf(out, is_left ? "%-*s%s" : "%*s%s", (int)width, table->cells.at[i], is_last ? "\n" : "  ");
    }
}

/* ---- tensors ---- */
static ir_bits element_bits(const fusor_buffer *b, int64_t i) {
    ir_bits v = 0;
    size_t bytes = fusor_dtype_size((fusor_dtype)b->dtype);
    memcpy(&v, (const char *)b->data + (size_t)i * bytes, bytes); /* little endian */
    return v;
}

static int64_t count(const fusor_buffer *b) {
    int64_t n = 1;
    for (int d = 0; d < b->rank; d++) n *= b->shape[d];
    return n;
}

/* Of 64-bit integers, neighbours may be the same double. */
static bool is_less(ir_dtype t, ir_bits a, double as_real, ir_bits b, double bs_real) {
    if (t == FUSOR_I64) return (int64_t)a < (int64_t)b;
    return t == FUSOR_U64 ? a < b : as_real < bs_real;
}

json_t *report_element(ir_dtype t, ir_bits bits) {
    if (t == FUSOR_I64 || (t == FUSOR_U64 && bits <= INT64_MAX)) return json_integer((json_int_t)bits);
    if (t == FUSOR_U64) {
        char text[32];
        const int n = snprintf(text + 1, sizeof text - 1, "%" PRIu64, bits);
        text[0] = 0;
        return json_stringn(text, (size_t)n + 1);
    }
    return report_real(ir_bits_to_double(t, bits));
}

report_summary report_summarize(const fusor_buffer *b) {
    report_summary s = {.min = NAN, .max = NAN, .mean = NAN, .n = count(b)};
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < s.n; i++) {
        double v = ir_bits_to_double((ir_dtype)b->dtype, element_bits(b, i));
        if (isnan(v)) {
            s.n_nan++;
            continue;
        }
        const ir_bits bits = element_bits(b, i);
        if (!n || is_less((ir_dtype)b->dtype, bits, v, s.least, s.min)) s.min = v, s.least = bits;
        if (!n || is_less((ir_dtype)b->dtype, s.most, s.max, bits, v)) s.max = v, s.most = bits;
        sum += v;
        n++;
    }
    if (n) s.mean = sum / (double)n;
    return s;
}

enum { WHOLE = 1000, EDGE = 3, LINE_WIDTH = 75 };

typedef struct printer {
    tool *t;
    const fusor_buffer *b;
    FILE *out;
    bool is_short, is_exponent;
    double least, most;       /* magnitudes shown, without zeros */
    int digits, exponent;     /* exponent form: digits after the point and of the exponent, the same in every cell */
    int left, right, special; /* characters before the point, from it on, and of nan and inf */
    int column, after;        /* after: spaces that follow the last cell, unless a line ends there */
} printer;

/* From this magnitude on numbers are shown with an exponent: the rule of NumPy 2.3. */
static double large(const fusor_buffer *b, double of_f64) {
    return b->dtype == FUSOR_F64 ? of_f64 : b->dtype == FUSOR_F16 ? 1e3 : 1e6;
}

/* How many times the least the most is, computed in the buffer's type as NumPy does. */
static double spread(const printer *p) {
    const double ratio = p->most / p->least;
    return p->b->dtype == FUSOR_F32   ? (double)(float)ratio
           : p->b->dtype == FUSOR_F16 ? ir_f16_to_f32(ir_f64_to_f16(ratio))
                                      : ratio;
}

/* Does the text read back as v in the buffer's type? */
static bool is_exact(const printer *p, const char *text, double v) {
    double back = strtod(text, NULL);
    switch (p->b->dtype) {
    case FUSOR_F32: return (float)back == (float)v;
    case FUSOR_F16: return ir_f64_to_f16(back) == ir_f64_to_f16(v);
    case FUSOR_BF16: return ir_f64_to_bf16(back) == ir_f64_to_bf16(v);
    default: return back == v;
    }
}

static void insert(char *at, char c) {
    memmove(at + 1, at, strlen(at) + 1);
    *at = c;
}

/* 1e-10, -1.50000000e+08 or 1.0e+00 to what a cell has: a point, no zeros at the end beyond p->digits, as many digits
 * of the exponent as in every other. */
static void finish_exponent(const printer *p, char *out) {
    char *e = strchr(out, 'e'), *dot = strchr(out, '.');
    if (!dot) insert(dot = e++, '.');
    char *end = e;
    while (end - dot - 1 > p->digits && end[-1] == '0') end--;
    memmove(end, e, strlen(e) + 1);
    while ((int)strlen(end + 2) < p->exponent) insert(end + 2, '0');
}

/* Shortest decimal of a float of the buffer's type; in an array with at most 8 digits after the point, as NumPy's
 * default does. */
static void format_float(const printer *p, double v, char *out, size_t room) {
    if (isnan(v) || isinf(v)) {
        snprintf(out, room, "%s", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
        return;
    }
    if (p->b->rank == 0) {
        int digits = 0;
        do snprintf(out, room, "%.*e", digits, v);
        while (digits++ < 17 && !is_exact(p, out, v));
        int decimals = digits - 1 - atoi(strchr(out, 'e') + 1);
        if (v == 0 || (fabs(v) >= 1e-4 && fabs(v) < large(p->b, 1e16)))
            snprintf(out, room, "%.*f", decimals > 1 ? decimals : 1, strtod(out, NULL));
        return;
    }
    for (int digits = p->is_exponent ? p->digits : 0; digits <= 8; digits++) {
        snprintf(out, room, p->is_exponent ? "%.*e" : "%.*f", digits, v);
        bool is_same = is_exact(p, out, v);
        if (is_same && digits == 0 && !p->is_exponent) snprintf(out, room, "%.0f.", v);
        if (p->is_exponent && (is_same || digits == 8)) finish_exponent(p, out);
        if (is_same) return;
    }
    char *dot = strchr(out, '.'); /* 8 digits were not enough: NumPy cuts there and drops zeros */
    if (dot && !p->is_exponent) {
        char *end = out + strlen(out);
        while (end > dot + 1 && end[-1] == '0') *--end = 0;
    }
}

static void format_cell(const printer *p, int64_t i, char *out, size_t room) {
    ir_dtype t = (ir_dtype)p->b->dtype;
    ir_bits bits = element_bits(p->b, i);
    if (t == FUSOR_BOOL) snprintf(out, room, "%s", bits ? "True" : "False");
    else if (t == FUSOR_U64) snprintf(out, room, "%" PRIu64, bits);
    else if (ir_is_float(t)) format_float(p, ir_bits_to_double(t, bits), out, room);
    else if (t == FUSOR_I64) snprintf(out, room, "%" PRId64, (int64_t)bits);
    else snprintf(out, room, "%.0f", ir_bits_to_double(t, bits));
}

/* Calls each with the offset of every element that is shown. */
static void shown(const printer *p, int axis, int64_t offset, void (*each)(printer *, int64_t), printer *to) {
    if (axis == p->b->rank) {
        each(to, offset);
        return;
    }
    int64_t n = p->b->shape[axis], stride = 1;
    for (int d = axis + 1; d < p->b->rank; d++) stride *= p->b->shape[d];
    for (int64_t i = 0; i < n; i++) {
        if (p->is_short && n > 2 * EDGE && i == EDGE) i = n - EDGE;
        shown(p, axis + 1, offset + i * stride, each, to);
    }
}

static void choose_form(printer *p, int64_t i) {
    double v = fabs(ir_bits_to_double((ir_dtype)p->b->dtype, element_bits(p->b, i)));
    if (v == 0 || !isfinite(v)) return;
    if (p->most == 0 || v < p->least) p->least = v;
    if (v > p->most) p->most = v;
}

static void choose_digits(printer *p, int64_t i) {
    char text[64];
    format_cell(p, i, text, sizeof text);
    const char *dot = strchr(text, '.'), *e = strchr(text, 'e');
    if (dot && e && (int)(e - dot) - 1 > p->digits) p->digits = (int)(e - dot) - 1;
    if (e && (int)strlen(e + 2) > p->exponent) p->exponent = (int)strlen(e + 2);
}

static void measure(printer *p, int64_t i) {
    char text[64];
    format_cell(p, i, text, sizeof text);
    int n = (int)strlen(text), left = n, right = 0;
    const char *dot = strchr(text, '.');
    if (ir_is_float((ir_dtype)p->b->dtype) && dot) {
        left = (int)(dot - text);
        right = n - left;
    } else if (ir_is_float((ir_dtype)p->b->dtype)) {
        left = 0;
        if (n > p->special) p->special = n;
    } else if (p->b->dtype == FUSOR_BOOL) {
        left = 5; /* " True" too */
    }
    if (left > p->left) p->left = left;
    if (right > p->right) p->right = right;
}

static void print_cell(printer *p, int64_t i) {
    char text[64];
    format_cell(p, i, text, sizeof text);
    const char *dot = strchr(text, '.');
    int n = (int)strlen(text), width = p->left + p->right;
    if (p->b->rank == 0) width = 0;
    if (ir_is_float((ir_dtype)p->b->dtype) && dot) {
        int pad = p->left - (int)(dot - text);
        p->column += fprintf(p->out, "%*s%s", p->b->rank && pad > 0 ? pad : 0, "", text);
        int after = p->b->rank ? p->right - (n - (int)(dot - text)) : 0;
        p->after = after > 0 ? after : 0;
        p->column += p->after;
    } else {
        p->column += fprintf(p->out, "%*s", width, text);
    }
}

static void print_after(printer *p) {
    fprintf(p->out, "%*s", p->after, "");
    p->after = 0;
}

static void print_axis(printer *p, int axis, int64_t offset) {
    if (axis == p->b->rank) {
        print_cell(p, offset);
        return;
    }
    int64_t n = p->b->shape[axis], stride = 1;
    int rank = p->b->rank;
    for (int d = axis + 1; d < rank; d++) stride *= p->b->shape[d];
    fputc('[', p->out);
    p->column++;
    for (int64_t i = 0; i < n; i++) {
        bool is_gap = p->is_short && n > 2 * EDGE && i == EDGE;
        if (i && axis + 1 < rank) {
            for (int k = 0; k < rank - axis - 1; k++) fputc('\n', p->out);
            p->column = fprintf(p->out, "%*s", axis + 1, "");
        } else if (i) {
            if (p->column + 1 + (is_gap ? 3 : p->left + p->right) >= LINE_WIDTH - axis) {
                p->after = 0;
                p->column = fprintf(p->out, "\n%*s", axis + 1, "") - 1;
            } else {
                print_after(p);
                p->column += fprintf(p->out, " ");
            }
        }
        if (is_gap) {
            p->column += fprintf(p->out, "...");
            i = n - EDGE - 1;
            continue;
        }
        print_axis(p, axis + 1, offset + i * stride);
    }
    print_after(p);
    fputc(']', p->out);
    p->column++;
}

void report_tensor(tool *t, FILE *out, const fusor_buffer *b) {
    printer p = {.t = t, .b = b, .out = out, .is_short = count(b) > WHOLE};
    if (count(b) == 0) { /* however many rows there are of nothing */
        fprintf(out, "[]\n");
        return;
    }
    if (ir_is_float((ir_dtype)b->dtype)) {
        shown(&p, 0, 0, choose_form, &p);
        p.is_exponent = p.most > 0 && (p.most >= large(b, 1e8) || p.least < 1e-4 || spread(&p) > 1000);
        if (p.is_exponent) shown(&p, 0, 0, choose_digits, &p);
    }
    shown(&p, 0, 0, measure, &p);
    if (p.special > p.left + p.right) p.left = p.special - p.right;
    print_axis(&p, 0, 0);
    fputc('\n', out);
}
