/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* bench_chart.c: pieces of the page of fusor bench --export-html: its own style, and charts of lines and points as
 * inline SVG. A chart is laid out in units of about a pixel; colours are variables of the style, so that one page
 * serves light and dark. */
#include "bench.h"
#include "html.h"
#include <math.h>

enum { WIDTH = 460, LEFT = 50, RIGHT = 12, TOP = 10, BOTTOM = 40 };

/* Beside the style that pages share (html.c): colours of rivals and of lines, cards in a grid, bars, charts. */
const char bench_style[] =
    ":root{--grid:#e8ecf0;--fused:#1f6fc4;--unfused:#99a5b3;--c:#b57714;--prepared:#0f8f8a;--numpy:#4d8c2b;--numba:#"
    "c2457f;--torch:#d2552d;--jax:#7c4ddb;--onnxruntime:#0d8db0;"
    "--compiled:#8f3f1d;--p0:#1f6fc4;--p1:#d2552d;--p2:#1f8a52;--p3:#7c4ddb;--p4:#b57714;--p5:#c2457f;--p6:#0d8db0;--"
    "p7:#6c7a2f}"
    "@media(prefers-color-scheme:dark){:root{--grid:#2a3139;--fused:#5aa5f5;--unfused:#6c788a;--c:#e3b04b;--prepared:#"
    "3fc7bf;--numpy:#8ccb63;--numba:#f283b6;--torch:#ff8a60;"
    "--jax:#b394ff;--onnxruntime:#4cc3e6;--compiled:#d08a66;--p0:#5aa5f5;--p1:#ff8a60;--p2:#5cc48e;--p3:#b394ff;--p4:#"
    "e3b04b;--p5:#f283b6;--p6:#4cc3e6;--p7:#b9c56a}}"
    "html{scroll-behavior:smooth}main{max-width:1240px}h2{font-size:19px;margin:38px 0 "
    "4px;scroll-margin-top:52px}h3{margin:0;line-height:1.35;overflow-wrap:anywhere}"
    "p{max-width:78ch}.grid+h2{margin-top:44px}.card{margin:0}.scroll{padding:0;margin-top:10px}.scroll "
    "td:first-child{white-space:nowrap}.figures{display:grid;"
    "grid-template-columns:repeat(auto-fit,minmax(min(100%,160px),1fr))}.figure{min-width:0}"
    "nav{position:sticky;top:0;z-index:1;background:var(--page);border-bottom:1px solid var(--line);margin:4px 0 "
    "0;padding:9px 0;display:flex;flex-wrap:wrap;gap:2px 16px;"
    "font-size:14px}nav a{text-decoration:none}nav a:hover{text-decoration:underline}"
    ".grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,370px),1fr));gap:14px;align-items:start;"
    "margin-top:12px}"
    ".large{grid-template-columns:repeat(auto-fill,minmax(min(100%,520px),1fr))}.grid .card{min-width:0}"
    ".rival{display:grid;grid-template-columns:6.8em 1fr 8.4em;gap:8px;align-items:center;font-size:13px;margin:3px "
    "0}.rival .n{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}"
    ".rival .t{height:14px;background:var(--grid);border-radius:4px;overflow:hidden}.rival .t "
    "i{display:block;height:100%;border-radius:4px;min-width:2px}"
    ".long{grid-template-columns:11.5em 1fr 7.4em}.rival "
    ".v{font-variant-numeric:tabular-nums;white-space:nowrap;text-align:right;color:var(--soft)}.rival .v "
    "b{color:var(--ink);font-weight:600}"
    "svg{display:block;width:100%;height:auto;margin-top:8px}svg text{font-size:11px;fill:var(--soft)}svg "
    ".g{stroke:var(--grid)}svg .a{stroke:var(--line)}"
    "svg .roof{stroke:var(--ink);fill:none;stroke-width:1.5}svg "
    ".thin{stroke:var(--soft);stroke-width:1;stroke-dasharray:4 3}svg "
    ".l{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}svg "
    "circle{stroke:var(--card);stroke-width:1}"
    ".keys{display:flex;flex-wrap:wrap;gap:2px 14px;margin-top:6px;color:var(--soft)}.keys "
    ".key{margin:0;font-size:12.5px}.slower{color:var(--bad);font-weight:600}.faster{color:var(--good);font-weight:600}"
    "summary{cursor:pointer;margin-top:10px;color:var(--accent)}footer{margin-top:36px}@media(max-width:520px){main{"
    "padding:20px 14px 40px}nav{flex-wrap:nowrap;overflow-x:auto;white-space:nowrap;scrollbar-width:none}.scroll "
    "td:first-child{white-space:normal}.rival{grid-template-columns:5.8em 1fr "
    "8.2em;gap:6px}.long{grid-template-columns:9em 1fr 7.4em}}"
    "@media print{nav{display:none}.card{break-inside:avoid}}";

const char *bench_colour(const char *rival) {
    static const char *const own[] = {"fused", "unfused", "c",   "prepared",   "numpy",
                                      "numba", "torch",   "jax", "onnxruntime"};
    static const char *const variable[] = {"var(--fused)",    "var(--unfused)", "var(--c)",
                                           "var(--prepared)", "var(--numpy)",   "var(--numba)",
                                           "var(--torch)",    "var(--jax)",     "var(--onnxruntime)"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(own[i], rival) == 0) return variable[i];
    return "var(--compiled)";
}

typedef struct frame {
    double x0, x1, y0, y1;
    bool log_x, log_y;
    int height;
} frame; /* the data's ends */
static double along(double v, double from, double to, bool is_log) {
    return is_log ? log(v / from) / log(to / from) : (v - from) / (to - from);
}
static double at_x(const frame *f, double v) {
    return LEFT + (WIDTH - LEFT - RIGHT) * along(v, f->x0, f->x1, f->log_x);
}
static double at_y(const frame *f, double v) {
    return f->height - BOTTOM - (f->height - TOP - BOTTOM) * along(v, f->y0, f->y1, f->log_y);
}

/* 0.01, 1, 250, 10k, 1M */
static void add_number(fu_str *s, double v) {
    if (v >= 999999) fu_str_addf(s, "%.3gM", v / 1e6);
    else if (v >= 1000) fu_str_addf(s, "%.3gk", v / 1e3);
    else fu_str_addf(s, "%.3g", v);
}

static void tick(fu_str *s, const frame *f, bool is_x, double v, const char *name) {
    if (is_x)
        fu_str_addf(s, "<path class=\"g\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">",
                    at_x(f, v), TOP, f->height - BOTTOM, at_x(f, v), f->height - BOTTOM + 15);
    else
        fu_str_addf(s, "<path class=\"g\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT,
                    at_y(f, v), WIDTH - RIGHT, LEFT - 6, at_y(f, v) + 4);
    if (name) html_text(s, name);
    else add_number(s, v);
    fu_str_add(s, "</text>");
}

static void ticks(fu_str *s, const frame *f, bool is_x) {
    double from = is_x ? f->x0 : f->y0, to = is_x ? f->x1 : f->y1;
    if (!(is_x ? f->log_x : f->log_y)) {
        double step = pow(10, floor(log10((to - from) / 4)));
        step *= (to - from) / step > 20 ? 5 : (to - from) / step > 8 ? 2 : 1;
        for (double v = ceil(from / step) * step; v <= to * (1 + 1e-9); v += step) tick(s, f, is_x, v, NULL);
        return;
    }
    double decades = log10(to / from);
    int every = decades > 7 ? 2 : 1;
    for (int e = (int)floor(log10(from)) / every * every; e <= (int)ceil(log10(to)); e += every)
        for (int k = 0; k < (decades < 1.7 ? 3 : 1); k++) {
            double v = (k == 0 ? 1 : k == 1 ? 2 : 5) * pow(10, e);
            if (v >= from * (1 - 1e-9) && v <= to * (1 + 1e-9)) tick(s, f, is_x, v, NULL);
        }
}

static frame frame_of(const bench_chart *c) {
    frame f = {HUGE_VAL, -HUGE_VAL, HUGE_VAL, -HUGE_VAL, c->log_x, c->log_y, c->is_without_key ? 200 : 270};
    for (int i = 0; i < c->n_series; i++)
        for (int k = 0; k < c->series[i].n; k++) {
            double x = c->series[i].x[k], y = c->series[i].y[k];
            f.x0 = fmin(f.x0, x), f.x1 = fmax(f.x1, x), f.y0 = fmin(f.y0, y), f.y1 = fmax(f.y1, y);
        }
    if (!(f.x0 <= f.x1)) f.x0 = f.y0 = 1, f.x1 = f.y1 = 10;
    if (c->flops > 0 && c->n_slopes) {
        f.x1 = fmax(f.x1, 2 * c->flops / c->slope[c->n_slopes - 1].bytes);
        f.y1 = fmax(f.y1, 1.2 * c->flops / 1e9);
    }
    if (c->n_x_names) f.x0 = -0.3, f.x1 = c->n_x_names - 0.7;
    else if (c->log_x) f.x0 /= 1.25, f.x1 *= 1.25;
    else {
        double more = f.x1 > f.x0 ? 0.06 * (f.x1 - f.x0) : 1;
        f.x0 -= more, f.x1 += more;
    }
    if (c->log_y) f.y0 /= 1.3, f.y1 *= 1.3;
    else f.y0 = fmin(f.y0, 0), f.y1 = f.y1 > 0 ? 1.08 * f.y1 : 1;
    return f;
}

static void roof(fu_str *s, const frame *f, const bench_chart *c) {
    for (int i = 0; i < c->n_slopes; i++) {
        double bytes = c->slope[i].bytes, ridge = c->flops / bytes,
               x = fmax(f->x0, f->y0 * 1e9 / bytes); /* where the line comes in */
        bool is_last = i + 1 == c->n_slopes;
        if (ridge <= x) continue;
        fu_str_addf(s, "<path class=\"roof%s\" d=\"M%.1f %.1fL%.1f %.1f", is_last ? "" : " thin", at_x(f, x),
                    at_y(f, x * bytes / 1e9), at_x(f, ridge), at_y(f, c->flops / 1e9));
        if (i == 0 || is_last) fu_str_addf(s, "H%d", WIDTH - RIGHT);
        fu_str_add(s, "\"><title>");
        html_text(s, c->slope[i].name);
        fu_str_addf(s, ": %.3g GB/s, measured</title></path>", bytes / 1e9);
        fu_str_addf(s, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", at_x(f, ridge),
                    at_y(f, c->flops / 1e9) - 5);
        html_text(s, c->slope[i].name);
        fu_str_add(s, "</text>");
    }
}

void bench_draw(fu_str *s, const bench_chart *c) {
    frame f = frame_of(c);
    fu_str_addf(s, "<svg viewBox=\"0 0 %d %d\" role=\"img\"><title>", WIDTH, f.height);
    html_text(s, c->title);
    fu_str_add(s, "</title>");
    if (c->n_x_names)
        for (int i = 0, step = (c->n_x_names + 5) / 6; i < c->n_x_names; i++)
            tick(s, &f, true, i, (c->n_x_names - 1 - i) % step ? "" : c->x_names[i]);
    else ticks(s, &f, true);
    ticks(s, &f, false);
    fu_str_addf(s, "<path class=\"a\" fill=\"none\" d=\"M%d %dV%dH%d\"/>", LEFT, TOP, f.height - BOTTOM, WIDTH - RIGHT);
    fu_str_addf(s, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (LEFT + WIDTH - RIGHT) / 2, f.height - 6);
    html_text(s, c->x_label);
    fu_str_addf(s, "</text><text transform=\"translate(11 %d) rotate(-90)\" text-anchor=\"middle\">",
                (TOP + f.height - BOTTOM) / 2);
    html_text(s, c->y_label);
    fu_str_add(s, "</text>");
    if (c->flops > 0 && c->n_slopes) roof(s, &f, c);
    for (int i = c->n_series - 1; i >= 0; i--) { /* the first on top */
        const bench_series *p = &c->series[i];
        if (c->has_lines && p->n > 1) {
            fu_str_addf(s, "<path class=\"l\" stroke=\"%s\" d=\"", p->colour);
            for (int k = 0; k < p->n; k++)
                fu_str_addf(s, "%c%.1f %.1f", k ? 'L' : 'M', at_x(&f, p->x[k]), at_y(&f, p->y[k]));
            fu_str_add(s, "\"/>");
        }
        for (int k = 0; k < p->n && c->has_points; k++) {
            fu_str_addf(s, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"><title>", at_x(&f, p->x[k]),
                        at_y(&f, p->y[k]), p->colour);
            html_text(s, p->tip ? p->tip[k] : p->name);
            fu_str_add(s, "</title></circle>");
        }
    }
    fu_str_add(s, "</svg>");
    if (c->n_series < 2 || c->is_without_key) return;
    fu_str_add(s, "<div class=\"keys\">");
    for (int i = 0; i < c->n_series; i++) {
        fu_str_addf(s, "<span class=\"key\"><i style=\"background:%s\"></i>", c->series[i].colour);
        html_text(s, c->series[i].name);
        fu_str_add(s, "</span>");
    }
    for (int i = 0; i < c->n_slopes; i++) {
        fu_str_add(s, "<span class=\"key\">");
        html_text(s, c->slope[i].name);
        fu_str_addf(s, " %.3g GB/s</span>", c->slope[i].bytes / 1e9);
    }
    if (c->flops > 0 && c->n_slopes) fu_str_addf(s, "<span class=\"key\">f32 %.4g GFLOP/s</span>", c->flops / 1e9);
    fu_str_add(s, "</div>");
}
