/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* explain_graph.c: a plan as SVG. Kernels stand in layers by the longest path that leads to them; an edge over several
 * layers goes through a place in each; within a layer places are sorted a few times by the mean of their neighbours, so
 * that few edges cross. */
#include "explain.h"
#include "html.h"
#include <math.h>
#include <stdlib.h>

enum { BOX_W = 216, BOX_H = 66, LANE_W = 120, GAP = 22, LAYER_H = 138, MARGIN = 14, SWEEPS = 8, LETTERS = 30 };

typedef struct place {
    int kernel, layer, first_in, first_out;
    double x, y, w, want;
} place; /* kernel -1: only an edge goes through */
/* Places; n boundaries between these two kernels; the next links (1 + number) into the one and out of the other. */
typedef struct link {
    int from, to;
    const json_t *boundary;
    int n, next_in, next_out;
} link;
typedef struct drawing {
    tool *t;
    fu_vec(place) places;
    fu_vec(link) links; /* between adjacent layers; boundary only at the last link of an edge */
    int n_layers;
    double width;
} drawing;

int explain_series(const char *kind) {
    static const char *const kinds[] = {"map", "contract", "reduce", "row", "scan"};
    for (int i = 0; i < 5; i++)
        if (strcmp(kind, kinds[i]) == 0) return i + 1;
    const bool is_of_products = strcmp(kind, "window") == 0 || strcmp(kind, "attention") == 0;
    return is_of_products ? 2 : HTML_SERIES;
}

static int add_place(drawing *d, int kernel, int layer) {
    fu_push(&d->t->arena, &d->places, (place){.kernel = kernel, .layer = layer, .w = kernel < 0 ? LANE_W : BOX_W});
    if (layer >= d->n_layers) d->n_layers = layer + 1;
    return (int)d->places.n - 1;
}

static void add_link(drawing *d, int from, int to, const json_t *boundary) {
    place *a = &d->places.at[from], *b = &d->places.at[to];
    fu_push(&d->t->arena, &d->links, (link){from, to, boundary, boundary != NULL, b->first_in, a->first_out});
    a->first_out = b->first_in = (int)d->links.n;
}

static void build(drawing *d, const json_t *document) {
    const json_t *kernels = json_object_get(document, "kernels"), *boundaries = json_object_get(document, "boundaries");
    const int n = (int)json_array_size(kernels);
    int *layer = FU_NEW_N(&d->t->arena, int, n + 1);
    size_t i;
    json_t *b;
    for (int round = 0; round < n; round++) { /* boundaries go forward, but are not sorted */
        bool moved = false;
        json_array_foreach((json_t *)boundaries, i, b) {
            int from = (int)explain_number(b, "from"), to = (int)explain_number(b, "to");
            if (from < 0 || to < 0 || from >= n || to >= n || layer[to] > layer[from]) continue;
            layer[to] = layer[from] + 1;
            moved = true;
        }
        if (!moved) break;
    }
    for (int k = 0; k < n; k++) (void)add_place(d, k, layer[k]);
    json_array_foreach((json_t *)boundaries, i, b) {
        int from = (int)explain_number(b, "from"), to = (int)explain_number(b, "to"), at = from;
        bool is_new = true;
        if (from < 0 || to < 0 || from >= n || to >= n) continue;
        for (uint32_t k = 0; k < d->links.n; k++) {
            const json_t *o = d->links.at[k].boundary;
            if (!o || (int)explain_number(o, "from") != from || (int)explain_number(o, "to") != to) continue;
            d->links.at[k].n++;
            is_new = false;
        }
        if (!is_new) continue;
        for (int l = layer[from] + 1; l < layer[to]; l++) {
            int through = add_place(d, -1, l);
            add_link(d, at, through, NULL);
            at = through;
        }
        add_link(d, at, to, b);
    }
}

static const drawing *sorting; /* qsort has no user pointer */
static int by_want(const void *a, const void *b) {
    double x = sorting->places.at[*(const int *)a].want, y = sorting->places.at[*(const int *)b].want;
    return x != y ? (x > y) - (x < y) : *(const int *)a - *(const int *)b;
}

/* Order within the layers, then positions: a layer is centred. */
static void arrange(drawing *d) {
    const int n = (int)d->places.n;
    int *order = FU_NEW_N(&d->t->arena, int, n + 1);
    for (int i = 0; i < n; i++) d->places.at[i].x = i;
    for (int sweep = 0; sweep <= SWEEPS; sweep++)
        for (int step = 0; step < d->n_layers; step++) {
            const int l = sweep % 2 ? d->n_layers - 1 - step : step;
            int in_layer = 0;
            double width = 0;
            for (int i = 0; i < n; i++) {
                place *p = &d->places.at[i];
                if (p->layer != l) continue;
                double sum = 0;
                int neighbours = 0;
                for (int k = sweep % 2 ? p->first_out : p->first_in; k;
                     k = sweep % 2 ? d->links.at[k - 1].next_out : d->links.at[k - 1].next_in) {
                    sum += d->places.at[sweep % 2 ? d->links.at[k - 1].to : d->links.at[k - 1].from].x;
                    neighbours++;
                }
                p->want = neighbours ? sum / neighbours : p->x;
                order[in_layer++] = i;
                width += p->w + GAP;
            }
            sorting = d;
            qsort(order, (size_t)in_layer, sizeof *order, by_want);
            if (width > d->width) d->width = width;
            double x = -width / 2;
            for (int i = 0; i < in_layer; i++) {
                place *p = &d->places.at[order[i]];
                p->x = x + (p->w + GAP) / 2;
                p->y = MARGIN + l * LAYER_H;
                x += p->w + GAP;
            }
        }
    for (int i = 0; i < n; i++) d->places.at[i].x += d->width / 2 + MARGIN;
}

static void draw_links(drawing *d, fu_str *o) {
    for (uint32_t i = 0; i < d->links.n; i++) {
        const link *e = &d->links.at[i];
        const place *a = &d->places.at[e->from], *b = &d->places.at[e->to];
        const double y0 = a->kernel < 0 ? a->y + BOX_H / 2.0 : a->y + BOX_H,
                     y1 = b->kernel < 0 ? b->y + BOX_H / 2.0 : b->y, bend = (y1 - y0) * 0.45;
        fu_str_addf(o, "<path class=\"edge\" d=\"M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f\"%s/>\n", a->x, y0, a->x,
                    y0 + bend, b->x, y1 - bend, b->x, y1, b->kernel < 0 ? "" : " marker-end=\"url(#tip)\"");
    }
    for (uint32_t i = 0; i < d->links.n; i++) { /* above all lines */
        const link *e = &d->links.at[i];
        const place *a = &d->places.at[e->from], *b = &d->places.at[e->to];
        if (!e->boundary) continue;
        /* Where edges fan out, near the end; where they meet, near the start; of a long one, beside the boxes that it
         * passes. */
        const bool fans = a->first_out && d->links.at[a->first_out - 1].next_out,
                   meets = b->first_in && d->links.at[b->first_in - 1].next_in;
        const double at = a->kernel < 0    ? 0
                          : fans && !meets ? 0.7
                          : meets && !fans ? 0.3
                                           : 0.5,
                     ease = at * at * (3 - 2 * at);
        const double y0 = a->kernel < 0 ? a->y + BOX_H / 2.0 : a->y + BOX_H, x = a->x + (b->x - a->x) * ease,
                     y = y0 + (b->y - y0) * at;
        fu_str_addf(o, "<text class=\"halo\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\"><title>", x, y - 3);
        html_text(o, explain_text_of(e->boundary, "text"));
        fu_str_add(o, "</title>%");
        html_text(o, fu_format(&d->t->arena, "%.24s", explain_text_of(e->boundary, "value")));
        fu_str_addf(o, " %s", report_bytes(d->t, explain_number(e->boundary, "bytes")));
        if (e->n > 1) fu_str_addf(o, " and %d more", e->n - 1);
        fu_str_addf(o, "</text><text class=\"halo soft\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", x, y + 12);
        html_text(o, explain_text_of(e->boundary, "reason"));
        fu_str_add(o, "</text>\n");
    }
}

static void draw_box(drawing *d, fu_str *o, const place *p, const json_t *k, double share) {
    const double x = p->x - BOX_W / 2.0, y = p->y;
    const int series = explain_series(explain_text_of(k, "kind"));
    fu_str ops;
    size_t i;
    json_t *w;
    fu_str_init(&ops, &d->t->arena);
    json_array_foreach(json_object_get(k, "ops"), i, w) fu_str_addf(&ops, "%s%s", i ? " " : "", json_string_value(w));
    const char *all = ops.at ? ops.at : "";
    const bool is_long = strlen(all) > LETTERS;
    fu_str_addf(o, "<a href=\"#k%d\" data-kernel=\"%d\"><title>%s: ", p->kernel, p->kernel, explain_text_of(k, "kind"));
    html_text(o, all);
    fu_str_addf(o,
                "</title><rect class=\"box\" x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"6\"/>"
                "<rect class=\"s%d\" x=\"%.1f\" y=\"%.1f\" width=\"5\" height=\"%d\" rx=\"2\"/>",
                x, y, BOX_W, BOX_H, series, x, y, BOX_H);
    fu_str_addf(o,
                "<text class=\"strong\" x=\"%.1f\" y=\"%.1f\">%d %s</text><text class=\"soft\" x=\"%.1f\" y=\"%.1f\" "
                "text-anchor=\"end\">%s</text><text x=\"%.1f\" y=\"%.1f\">",
                x + 14, y + 19, p->kernel, explain_text_of(k, "kind"), x + BOX_W - 9, y + 19,
                report_ns(d->t, explain_ns(k)), x + 14, y + 37);
    html_text(o, is_long ? fu_format(&d->t->arena, "%.*s ...", LETTERS - 4, all) : all);
    fu_str_addf(o,
                "</text><rect class=\"track\" x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"5\" rx=\"2\"/><rect "
                "class=\"s%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"5\" rx=\"2\"/></a>\n",
                x + 14, y + 49, BOX_W - 24, series, x + 14, y + 49, fmax(2, share * (BOX_W - 24)));
}

void explain_graph(tool *t, fu_str *o, const json_t *document) {
    drawing d = {.t = t};
    const json_t *kernels = json_object_get(document, "kernels");
    double all = 0;
    size_t i;
    json_t *k;
    build(&d, document);
    if (d.places.n == 0) return;
    arrange(&d);
    json_array_foreach((json_t *)kernels, i, k) all += explain_ns(k);
    const int w = (int)d.width + 2 * MARGIN, h = (d.n_layers - 1) * LAYER_H + BOX_H + 2 * MARGIN;
    fu_str_addf(o,
                "<div class=\"card scroll\"><svg class=\"graph\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                "role=\"img\" aria-label=\"kernels and the values between them\">\n",
                w, h, w, h);
    fu_str_add(o, "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" "
                  "markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8Z\" class=\"tip\"/></marker></defs>\n");
    draw_links(&d, o);
    for (uint32_t p = 0; p < d.places.n; p++) {
        if (d.places.at[p].kernel < 0) continue;
        k = json_array_get(kernels, (size_t)d.places.at[p].kernel);
        draw_box(&d, o, &d.places.at[p], k, all > 0 ? explain_ns(k) / all : 0);
    }
    fu_str_add(o, "</svg></div>\n");
}
