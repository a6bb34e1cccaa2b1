/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* band_test.c: maps behind convolutions in one kernel (ir/kernel_band.c): which plans have it, what the description
 * says and may not say, and that the bits are those of two kernels. */
#include "../host_level.h"
#include "api_test.h"
#include "plan_test.h"
#include <stdio.h>
#include <stdlib.h>

TestSuite(band, .init = text_start, .fini = text_stop);

#define CONV "%%c = conv(%%x, %%w, %%b, pads=[1, 1, 1, 1]) "
static const ir_plan *plan_of(ir_level level, bool no_fuse, const char *results, const char *body) {
    char text[900], all[700];
    snprintf(all, sizeof all, CONV "%s", body);
    snprintf(text, sizeof text,
             "func @f(%%x: f32[N, 5, 24, 40], %%w: f32[32, 5, 3, 3], %%b: f32[32], %%s: f32[32, 1, 1], "
             "%%y: f32[N, 32, 12, 20]) -> %s { %s }",
             results, all);
    return plan_text(text, &(ir_plan_options){.level = level, .no_fuse = no_fuse});
}
#define ONE "f32[?, ?, ?, ?]"
#define TWO "(f32[?, ?, ?, ?], f32[?, ?, ?, ?])"

/* How many steps; one of them, the first, with a band of so many rows (0: none). */
#define EXPECT(steps_, rows, level, results, body)                                                                     \
    do {                                                                                                               \
        const ir_plan *p = plan_of(level, false, results, body);                                                       \
        cr_expect(p->steps.n == (steps_) && p->steps.at[0].kernel->band_rows == (rows), "%s: %u steps, %d rows", body, \
                  p->steps.n, (int)p->steps.at[0].kernel->band_rows);                                                  \
    } while (0)
#define POOL "%p = max_pool(%c, kernel=[2, 2], strides=[2, 2]) "

Test(band, windows_that_do_not_overlap_along_rows_share_the_kernel) {
    for (ir_level level = IR_LEVEL_V2; level <= IR_LEVEL_V4; level++) {
        EXPECT(1, 2, level, ONE, POOL "return %p");
        EXPECT(1, 2, level, ONE, "%r = relu(%c) %p = average_pool(%r, kernel=[2, 2], strides=[2, 2]) return %p");
        EXPECT(1, 2, level, ONE, POOL "%q = mul(%p, %s) %r = add(%q, %y) return %r");
        EXPECT(1, 2, level, TWO, POOL "%q = neg(%p) return %p, %q");
        EXPECT(1, 4, level, ONE, "%p = max_pool(%c, kernel=[3, 3], strides=[4, 2]) return %p");
        EXPECT(1, 1, level, ONE, "%p = max_pool(%c, kernel=[1, 3], strides=[1, 1]) return %p");
        EXPECT(1, 2, level, ONE,
               "%u = slice(%c, starts=[0], ends=[24], steps=[2], axes=[2]) "
               "%v = slice(%c, starts=[1], ends=[24], steps=[2], axes=[2]) %r = sub(%u, %v) return %r");
    }
}

Test(band, what_needs_memory_has_it) {
    const ir_level level = IR_LEVEL_V4;
    EXPECT(2, 0, level, ONE, "%p = max_pool(%c, kernel=[3, 3], strides=[2, 2]) return %p"); /* overlap */
    EXPECT(2, 0, level, ONE,
           "%p = max_pool(%c, kernel=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1]) return %p"); /* pads */
    EXPECT(2, 0, level, TWO, POOL "return %p, %c");                                          /* a result */
    EXPECT(2, 0, level, ONE, "%r = relu(%c, barrier=true) %p = max_pool(%r, kernel=[2, 2], strides=[2, 2]) return %p");
    EXPECT(3, 0, level, TWO, POOL "%q = max_pool(%c, kernel=[4, 4], strides=[4, 4]) return %p, %q"); /* two readers */
    EXPECT(2, 0, level, ONE, "%p = slice(%c, starts=[0], ends=[16], axes=[1]) %q = neg(%p) return %q"); /* channels */
    EXPECT(2, 0, level, ONE,
           "%t = transpose(%c, perm=[0, 1, 3, 2]) %p = max_pool(%t, kernel=[2, 2], strides=[2, 2]) return %p");
    EXPECT(2, 0, level, ONE,
           POOL "%i = iota(shape=[12, 1], axis=0, dtype=f32) %q = add(%p, %i) return %q"); /* its place */
    cr_expect(plan_of(level, true, ONE, POOL "return %p")->steps.n == 2);
}

Test(band, a_boundary_says_why_not) {
    const ir_plan *p = plan_of(IR_LEVEL_V4, false, ONE, "%p = max_pool(%c, kernel=[3, 3], strides=[2, 2]) return %p");
    cr_assert_eq(p->boundaries.n, 1, "once, however many places a window has");
    cr_expect_eq(p->boundaries.at[0].reason, IR_REASON_RECOMPUTE);
    /* row 2 on: no row twice */
    p = plan_of(IR_LEVEL_V4, false, ONE, "%p = slice(%c, starts=[2], ends=[24], axes=[2]) %q = neg(%p) return %q");
    cr_assert_eq(p->boundaries.n, 1);
    cr_expect_eq(p->boundaries.at[0].reason, IR_REASON_DIFFERENT_SPACE);
}

Test(band, descriptions_are_read_back_and_launched) {
    const ir_plan *p =
        plan_of(IR_LEVEL_V3, false, ONE, "%r = relu(%c) %p = max_pool(%r, kernel=[2, 2], strides=[2, 2]) return %p");
    const ir_kernel *k = p->steps.at[0].kernel;
    ir_kernel *back = FU_NEW(&arena, ir_kernel);
    fu_str once = {.arena = &arena}, again = {.arena = &arena};
    ir_kernel_print(&once, k);
    cr_assert_eq(ir_kernel_parse(&error, once.at, once.n, back), FUSOR_OK, "%s", error.text);
    ir_kernel_print(&again, back);
    cr_expect_str_eq(once.at, again.at);
    int64_t size[IR_KERNEL_MAX_DIMS], tune[IR_TUNE_COUNT] = {[IR_TUNE_WINDOW_ROWS] = 3, [IR_TUNE_WINDOW_CHANNELS] = 1};
    const int64_t of_role[128] = {['b'] = 3, ['m'] = 32, ['y'] = 25, ['n'] = 40, ['k'] = 3, ['q'] = 12, ['w'] = 20};
    for (int d = 0; d < k->n_dims; d++) size[d] = of_role[(int)k->dim[d].role];
    cr_expect_eq(ir_band_rows_made(k, size), 24, "the last row is not needed");
    cr_expect_eq(ir_band_tile_rows(k, 3), 4, "whole rows of the pool");
    ir_launch launch;
    ir_kernel_launch(k, size, tune, &launch);
    cr_expect_eq(launch.tiles[launch.n_phases - 1] % (3 * 6), 0, "6 tiles of 4 rows an image");
    cr_expect_geq(launch.scratch_bytes, ir_band_bytes(k, size, 4, k->is_by_channel ? k->tile.nr : 32));
}

/* A description with `from` replaced by `to` is refused. */
static void refused(const char *from, const char *to) {
    const ir_plan *p = plan_of(IR_LEVEL_V3, false, ONE, POOL "return %p");
    fu_str text = {.arena = &arena};
    ir_kernel_print(&text, p->steps.at[0].kernel);
    const char *at = strstr(text.at, from);
    cr_assert(at, "no '%s' in\n%s", from, text.at);
    const char *changed = fu_format(&arena, "%.*s%s%s", (int)(at - text.at), text.at, to, at + strlen(from));
    ir_kernel *back = FU_NEW(&arena, ir_kernel);
    cr_expect_neq(ir_kernel_parse(&error, changed, strlen(changed), back), FUSOR_OK, "'%s' for '%s'", to, from);
    fu_error_clear(&error);
}

Test(band, descriptions_that_make_no_sense_are_refused) {
    refused("band 2\n", "");
    refused("band 2\n", "band 65\n");
    refused("band 2\n", "band -1\n");
    refused("dim q", "dim k");
    refused("kind window", "kind map");
    refused(" band\n", "\n");
    refused("buffer out f32 ? ? ? 1", "buffer out f32 ? ? ? 2");
}

/* ---- bits ---- */
typedef struct program {
    const char *x, *w, *conv, *behind;
    const char *type; /* of the operands; NULL: f32 */
} program;
#define MAX2    "%r = relu(%c) %p = max_pool(%r, kernel=[2, 2], strides=[2, 2]) return %p"
#define AVERAGE "%p = average_pool(%c, kernel=[2, 2], strides=[2, 2]) return %p"
static const program programs[] = {
    {"[5, 1, 14, 28]", "[16, 1, 3, 3]", "", MAX2, NULL}, /* few products */
    {"[B, 1, H, W]", "[24, 1, 3, 3]", "", MAX2, NULL},   /* a row and a column left over */
    {"[1, 3, 33, 37]", "[33, 3, 5, 5]", ", pads=[2, 2, 2, 2]", AVERAGE, NULL},
    {"[B, 24, 14, 14]", "[48, 24, 3, 3]", ", pads=[1, 1, 1, 1]", MAX2, NULL}, /* by channel, rows in tiles */
    {"[2, 40, 30, 30]", "[70, 40, 3, 3]", ", pads=[1, 1, 1, 1]", MAX2, NULL},
    {"[1, 64, 7, 7]", "[1, 64, 3, 3]", ", pads=[1, 1, 1, 1]", MAX2, NULL}, /* one channel */
    {"[2, 8, 17, 1]", "[16, 8, 3, 1]", "", "%p = max_pool(%c, kernel=[3, 1], strides=[4, 1]) return %p", NULL},
    {"[B, 20, 9, 50]", "[12, 20, 1, 1]", "", "%p = max_pool(%c, kernel=[1, 3]) %q = exp(%p) return %q", NULL},
    {"[2, 16, 21, 21]", "[32, 16, 3, 3]", ", strides=[2, 2], pads=[1, 1, 1, 1]", AVERAGE, NULL},
    {"[2, 32, 20, 20]", "[64, 32, 3, 3]", ", pads=[1, 1, 1, 1]", MAX2, "bf16"},
    {"[1, 4, 20, 24]", "[8, 4, 3, 3]", ", pads=[1, 1, 1, 1]", AVERAGE, "f16"},
    {"[2, 6, 12, 18]", "[10, 6, 3, 3]", "", MAX2, "f64"},
    {"[2, 16, 12, 18]", "[20, 16, 3, 3]", ", pads=[1, 1, 1, 1]", MAX2, "i8"},
};
enum { PROGRAMS = sizeof programs / sizeof *programs, ROOM = 1 << 19 };

static void fill(void *to, size_t bytes, fusor_dtype t, uint64_t seed) {
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const double v = (double)((int64_t)(seed >> 33) % 1001 - 500) / 256;
        if (t == FUSOR_F32) ((float *)to)[i / 4] = (float)v;
        else if (t == FUSOR_F64) ((double *)to)[i / 8] = v;
        else if (t == FUSOR_F16)
            ((uint16_t *)to)[i / 2] = (uint16_t)(0x3000 + (seed >> 40) % 0x0c00 + (seed >> 63 << 15));
        else if (t == FUSOR_BF16)
            ((uint16_t *)to)[i / 2] = (uint16_t)(0x3e80 + (seed >> 40) % 0x180 + (seed >> 63 << 15));
        else ((int8_t *)to)[i] = (int8_t)(seed >> 40);
    }
}

/* Sizes in a type's text; a name is `named`. */
static fusor_buffer tensor(const char *text, fusor_dtype t, int64_t named, void *data) {
    fusor_buffer b = {.data = data, .dtype = (int32_t)t};
    for (const char *p = text + 1; *p; p = strchr(p, ',') ? strchr(p, ',') + 2 : "")
        b.shape[b.rank++] = *p >= '0' && *p <= '9' ? strtoll(p, NULL, 10) : named;
    return b;
}

static size_t run(const program *g, const char *level, int threads, uint32_t flags, void **out) {
    static char room[2][ROOM];
    char text[700];
    const char *type = g->type ? g->type : "f32";
    const bool is_byte = strcmp(type, "i8") == 0;
    const fusor_dtype t = ir_dtype_parse(type, strlen(type)), acc = is_byte ? FUSOR_I32 : t;
    snprintf(text, sizeof text, "func @f(%%x: %s%s, %%w: %s%s) -> %s[?, ?, ?, ?] { %%c = conv(%%x, %%w%s) %s }", type,
             g->x, type, g->w, ir_dtypes[acc].name, g->conv, g->behind);
    fusor_context *ctx = new_context_for(level, threads);
    fusor_buffer in[2] = {tensor(g->x, t, 13, room[0]), tensor(g->w, t, 3, room[1])};
    for (int i = 0; i < 2; i++) {
        size_t bytes = ir_dtypes[t].bytes;
        for (int d = 0; d < in[i].rank; d++) bytes *= (size_t)in[i].shape[d];
        cr_assert_leq(bytes, ROOM);
        fill(room[i], bytes, t, (uint64_t)i + 1);
    }
    fusor_executable *exe = compiled_with(ctx, text, flags);
    char *json = NULL;
    OK(fusor_explain_json(exe, &json));
    cr_expect_eq(strstr(json, "go by scratch") != NULL, flags == 0, "%s", text);
    fusor_text_free(json);
    const size_t bytes = bytes_after_calls(ctx, exe, 2, 2, in, out);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
    return bytes;
}

Test(band, the_bits_are_those_of_two_kernels) {
    for (int level = IR_LEVEL_V2; level <= IR_LEVEL_V4; level++) {
        if (!host_has_level(level)) continue;
        for (int i = 0; i < PROGRAMS; i++) {
            void *fused, *apart;
            const char *name =
                level == IR_LEVEL_V4 ? NULL : ir_levels[level].name; /* the host's: with what is beside it */
            const size_t a = run(&programs[i], name, 1 + (i + level) % 3, 0, &fused),
                         b = run(&programs[i], name, 1, FUSOR_NO_FUSE, &apart);
            cr_expect(a == b && memcmp(fused, apart, a) == 0, "program %d at %s", i, ir_levels[level].name);
            free(fused);
            free(apart);
        }
    }
}
