/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* vectors.c: checks the approximated functions against tables of correctly rounded results that others made.
 *
 *   vectors FILE...
 *
 * Two formats, by the file's name:
 *   umath-validation-set-NAME.csv  NumPy:  np.float32,0xINPUT,0xOUTPUT,TOLERANCE      (bits; f32 and f64)
 *   auto-libm-test-out-NAME        glibc:  = NAME tonearest binary64 0xINPUT [0xINPUT2] : 0xRESULT : FLAGS
 *
 * Every level that the host has computes every input; a result may be away from the table's by as many steps as the
 * bound of the row has ULP (f64: 4). Lines that no f32 or f64 kernel can answer (other types, rounding modes, results
 * that depend on the implementation) are left out. Prints a line a file, function and type; the last is the count of
 * test cases. Exit status 1 when something is beyond its bound, 2 when a file has nothing that could be checked. */
#include "../host_level.h"
#include "ulp_inputs.h"
#include "ulp_kernel.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct table {
    ir_dtype type;
    int n;
    double x[CHUNK], y[CHUNK], want[CHUNK];
} table;

static table tables[2] = {{.type = FUSOR_F32}, {.type = FUSOR_F64}};

static ir_op find_op(const char *name) {
    static const char *const other[][2] = {{"arcsin", "asin"},   {"arccos", "acos"},   {"arctan", "atan"},
                                           {"arcsinh", "asinh"}, {"arccosh", "acosh"}, {"arctanh", "atanh"}};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (strcmp(name, other[i][0]) == 0) name = other[i][1];
    for (int op = 0; op < IR_OP_COUNT; op++)
        if (ir_ops[op].kind == IR_KIND_EW && strcmp(ir_ops[op].name, name) == 0) return (ir_op)op;
    return IR_OP_COUNT;
}

static void put(table *t, double x, double y, double want) {
    if (t->n == CHUNK) return;
    t->x[t->n] = x;
    t->y[t->n] = y;
    t->want[t->n++] = want;
}

static void read_numpy(char *line) {
    table *t = strncmp(line, "np.float32,", 11) == 0 ? &tables[0] : &tables[1];
    if (t == &tables[1] && strncmp(line, "np.float64,", 11) != 0) return;
    char *end;
    uint64_t x = strtoull(line + 11, &end, 16), want = *end == ',' ? strtoull(end + 1, NULL, 16) : 0;
    if (*end == ',') put(t, input_of_bits(t->type, x), 0, input_of_bits(t->type, want));
}

/* A number of glibc's: hexadecimal, or plus_infty, minus_infty, qnan_value. */
static bool read_value(const char *word, double *v) {
    char *end;
    *v = strtod(word, &end);
    if (*end == 0) return true;
    bool is_known =
        strcmp(word, "plus_infty") == 0 || strcmp(word, "minus_infty") == 0 || strcmp(word, "qnan_value") == 0;
    *v = word[0] == 'q' ? NAN : word[0] == 'p' ? INFINITY : -INFINITY;
    return is_known;
}

static void read_glibc(char *line, int n_in) {
    char *word[16], *save = NULL;
    int n = 0;
    for (char *w = strtok_r(line, " \n", &save); w && n < 16; w = strtok_r(NULL, " \n", &save)) word[n++] = w;
    double v[2] = {0}, want;
    if (n < 6 + n_in || strcmp(word[0], "=") != 0 || strcmp(word[2], "tonearest") != 0) return;
    table *t = strcmp(word[3], "binary32") == 0 ? &tables[0] : &tables[1];
    if (t == &tables[1] && strcmp(word[3], "binary64") != 0) return;
    for (int i = 0; i < n_in; i++)
        if (!read_value(word[4 + i], &v[i])) return;
    if (strcmp(word[4 + n_in], ":") == 0 && read_value(word[5 + n_in], &want)) put(t, v[0], v[1], want);
}

/* Steps between two values of the type; infinite where one is a NaN, or where the sign of a zero is wrong. */
static double distance(ir_dtype t, double got, double want) {
    if (got != got || want != want) return got != got && want != want ? 0 : INFINITY;
    if (!signbit(got) != !signbit(want)) return INFINITY;
    uint64_t a = input_bits(t, fabs(got)), b = input_bits(t, fabs(want));
    return (double)(a > b ? a - b : b - a);
}

static void to_memory(ir_dtype t, const double *from, int n, void *to) {
    for (int i = 0; i < n; i++) {
        uint64_t bits = input_bits(t, from[i]);
        memcpy((char *)to + (size_t)i * ir_dtypes[t].bytes, &bits, ir_dtypes[t].bytes);
    }
}

/* Returns how many levels failed; -1: no kernel. */
static int check(const char *file, ir_op op, const table *t) {
    static _Alignas(64) unsigned char raw[3][8 * CHUNK];
    variant v = {.op = op};
    double bound = t->type == FUSOR_F64 ? 4 : ir_ops[op].ulp;
    int n_failed = 0;
    to_memory(t->type, t->x, t->n, raw[0]);
    to_memory(t->type, t->y, t->n, raw[1]);
    for (int level = 0; level < IR_LEVEL_COUNT; level++) {
        kernel k = {0};
        if (!host_has_level(level)) continue;
        if (!kernel_make(&v, t->type, level, &k)) return -1;
        kernel_run(&k, raw[0], raw[1], raw[2], t->n);
        kernel_drop(&k);
        double worst = 0;
        int at = 0;
        for (int i = 0; i < t->n; i++) {
            uint64_t bits = 0;
            memcpy(&bits, raw[2] + (size_t)i * ir_dtypes[t->type].bytes, ir_dtypes[t->type].bytes);
            double d = distance(t->type, input_of_bits(t->type, bits), t->want[i]);
            if (d > worst) worst = d, at = i;
        }
        bool is_ok = worst <= bound;
        printf("%s: %s %s %s: %d values, at most %g steps away%s", file, ir_ops[op].name, ir_dtypes[t->type].name,
               ir_levels[level].short_name, t->n, worst, is_ok ? "\n" : "");
        if (!is_ok) printf(" at %a, %a, which should be %a  FAILED\n", t->x[at], t->y[at], t->want[at]);
        n_failed += !is_ok;
    }
    return n_failed;
}

int main(int argc, char **argv) {
    static char line[4096];
    int status = 0;
    for (int i = 1; i < argc; i++) {
        const char *base = strrchr(argv[i], '/') ? strrchr(argv[i], '/') + 1 : argv[i],
                   *numpy = "umath-validation-set-", *glibc = "auto-libm-test-out-";
        bool is_numpy = strncmp(base, numpy, strlen(numpy)) == 0, is_glibc = strncmp(base, glibc, strlen(glibc)) == 0;
        char name[64];
        snprintf(name, sizeof name, "%s", is_numpy || is_glibc ? base + strlen(is_numpy ? numpy : glibc) : "");
        name[strcspn(name, ".")] = 0;
        ir_op op = find_op(name);
        FILE *f = fopen(argv[i], "r");
        if (!f || op == IR_OP_COUNT) {
            fprintf(stderr, "vectors: %s: %s\n", argv[i], f ? "no function of that name" : "cannot be read");
            if (f) fclose(f);
            status = 2;
            continue;
        }
        for (int j = 0; j < 2; j++) tables[j].n = 0;
        while (fgets(line, sizeof line, f)) {
            if (is_numpy) read_numpy(line);
            else read_glibc(line, ir_ops[op].max_in);
        }
        fclose(f);
        if (tables[0].n + tables[1].n == 0) {
            fprintf(stderr, "vectors: %s: no values for %s\n", argv[i], ir_ops[op].name);
            status = 2;
        }
        for (int j = 0; j < 2; j++)
            if (tables[j].n > 0 && check(base, op, &tables[j]) != 0 && status == 0) status = 1;
    }
    return status;
}
