/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* bench_chart.c: pieces of the page of fusor bench --export-html: its style, and charts of lines and points as inline SVG. A chart is laid
 * out in units of about a pixel; colours are variables of the style, so that one page serves light and dark. */
#include "bench.h"
#include <math.h>

enum { WIDTH = 460, LEFT = 50, RIGHT = 12, TOP = 10, BOTTOM = 40 };

const char bench_style[] =
    ":root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--text:#1b2430;--muted:#5c6878;--line:#dfe4ea;--grid:#e9edf1;--accent:#0b63ce;--good:#0a7d43;--bad:#c22f2f;"
    "--fused:#0b63ce;--unfused:#9aa7b5;--c:#b7791f;--prepared:#0f8f8a;--numpy:#4d8c2b;--numba:#c2457f;--torch:#d9542b;--jax:#7c4ddb;--onnxruntime:#0d8db0;--compiled:#8f3f1d;"
    "--p0:#0b63ce;--p1:#d9542b;--p2:#0a7d43;--p3:#7c4ddb;--p4:#b7791f;--p5:#c2457f;--p6:#0d8db0;--p7:#5f6b2f}"
    "@media(prefers-color-scheme:dark){:root{--bg:#10151c;--card:#19212b;--text:#e6ebf1;--muted:#9aa8b8;--line:#2c3744;--grid:#252f3a;--accent:#6cb0ff;--good:#4fce8b;--bad:#ff8078;"
    "--fused:#5aa5ff;--unfused:#66748a;--c:#e3b04b;--prepared:#3fc7bf;--numpy:#8ccb63;--numba:#f283b6;--torch:#ff8a60;--jax:#b394ff;--onnxruntime:#4cc3e6;--compiled:#d08a66;"
    "--p0:#5aa5ff;--p1:#ff8a60;--p2:#4fce8b;--p3:#b394ff;--p4:#e3b04b;--p5:#f283b6;--p6:#4cc3e6;--p7:#b9c56a}}"
    "*{box-sizing:border-box}html{scroll-behavior:smooth}body{margin:0;background:var(--bg);color:var(--text);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}"
    "main,header,footer{max-width:1240px;margin:0 auto;padding:0 20px}header{padding-top:28px}h1{font-size:26px;line-height:1.2;margin:0 0 4px}h2{font-size:20px;margin:40px 0 4px;"
    "scroll-margin-top:56px}h3{font-size:15px;margin:0;line-height:1.35;overflow-wrap:anywhere}p{margin:4px 0 12px;max-width:72ch}.sub{color:var(--muted);font-size:13px;margin:0 0 10px}"
    "a{color:var(--accent)}nav{position:sticky;top:0;z-index:1;background:var(--bg);border-bottom:1px solid var(--line);margin-top:18px}nav div{max-width:1240px;margin:0 auto;"
    "padding:9px 20px;display:flex;gap:4px 16px;overflow-x:auto;white-space:nowrap;font-size:14px;scrollbar-width:none}nav a{text-decoration:none}nav a:hover{text-decoration:underline}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,170px),1fr));gap:12px;margin:18px 0 0}.tile{background:var(--card);border:1px solid var(--line);"
    "border-radius:10px;padding:12px 16px}.tile b{display:block;font-size:24px;line-height:1.25;font-variant-numeric:tabular-nums}.tile span{color:var(--muted);font-size:13px}"
    ".grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,380px),1fr));gap:14px;align-items:start}.large{grid-template-columns:repeat(auto-fill,minmax(min(100%,520px),1fr))}.card{background:var(--card);border:1px solid var(--line);"
    "border-radius:10px;padding:14px 16px;min-width:0}.bar{display:grid;grid-template-columns:6.6em 1fr 8.6em;gap:8px;align-items:center;font-size:13px;margin:3px 0}"
    ".bar .n{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}.bar .t{height:14px;background:var(--grid);border-radius:4px;overflow:hidden}.bar .t i{display:block;height:100%;"
    "border-radius:4px;min-width:2px}.bar .v{font-variant-numeric:tabular-nums;white-space:nowrap;text-align:right;color:var(--muted)}.bar .v b{color:var(--text);font-weight:600}"
    "svg{display:block;width:100%;height:auto;margin-top:8px}svg text{font:11px system-ui,sans-serif;fill:var(--muted)}svg .g{stroke:var(--grid)}svg .a{stroke:var(--line)}"
    "svg .roof{stroke:var(--text);fill:none;stroke-width:1.5}svg .l{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}svg circle{stroke:var(--card);stroke-width:1}"
    ".key{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12.5px;color:var(--muted);margin-top:6px}.key i{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:5px}"
    ".wide{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:10px;margin-top:10px}table{border-collapse:collapse;width:100%;font-size:13px;"
    "font-variant-numeric:tabular-nums}th,td{padding:5px 10px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}th{color:var(--muted);font-weight:600}"
    "tr:last-child td{border-bottom:0}td:first-child,th:first-child,td.w,th.w{text-align:left}.slower{color:var(--bad);font-weight:600}.faster{color:var(--good);font-weight:600}"
    "summary{cursor:pointer;margin-top:12px;color:var(--accent)}footer{padding:28px 20px 40px;color:var(--muted);font-size:13px}"
    "@media(max-width:520px){main,header,footer{padding-left:14px;padding-right:14px}nav div{padding-left:14px}.bar{grid-template-columns:5.6em 1fr 8.2em;gap:6px}h1{font-size:22px}}"
    "@media print{nav{display:none}.card,.wide{break-inside:avoid}}";

void bench_escape(fu_str *s, const char *text) {
    for (; *text; text++) {
        switch (*text) {
        case '<': fu_str_add(s, "&lt;"); break;
        case '>': fu_str_add(s, "&gt;"); break;
        case '&': fu_str_add(s, "&amp;"); break;
        case '"': fu_str_add(s, "&quot;"); break;
        default:
            if ((unsigned char)*text >= 32 || *text == '\n') fu_str_addc(s, *text);     /* other control characters are no XML */
        }
    }
}

const char *bench_colour(const char *rival) {
    static const char *const own[] = {"fused", "unfused", "c", "prepared", "numpy", "numba", "torch", "jax", "onnxruntime"};
    static const char *const variable[] = {"var(--fused)", "var(--unfused)", "var(--c)", "var(--prepared)", "var(--numpy)", "var(--numba)", "var(--torch)", "var(--jax)",
                                           "var(--onnxruntime)"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(own[i], rival) == 0) return variable[i];
    return "var(--compiled)";
}

typedef struct frame { double x0, x1, y0, y1; bool log_x, log_y; int height; } frame;      /* the data's ends */
static double along(double v, double from, double to, bool is_log) {
    return is_log ? log(v / from) / log(to / from) : (v - from) / (to - from);
}
static double at_x(const frame *f, double v) { return LEFT + (WIDTH - LEFT - RIGHT) * along(v, f->x0, f->x1, f->log_x); }
static double at_y(const frame *f, double v) { return f->height - BOTTOM - (f->height - TOP - BOTTOM) * along(v, f->y0, f->y1, f->log_y); }

/* 0.01, 1, 250, 10k, 1M */
static void add_number(fu_str *s, double v) {
    if (v >= 999999) fu_str_addf(s, "%.3gM", v / 1e6);
    else if (v >= 1000) fu_str_addf(s, "%.3gk", v / 1e3);
    else fu_str_addf(s, "%.3g", v);
}

static void tick(fu_str *s, const frame *f, bool is_x, double v, const char *name) {
    if (is_x) fu_str_addf(s, "<path class=\"g\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", at_x(f, v), TOP, f->height - BOTTOM, at_x(f, v), f->height - BOTTOM + 15);
    else fu_str_addf(s, "<path class=\"g\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT, at_y(f, v), WIDTH - RIGHT, LEFT - 6, at_y(f, v) + 4);
    if (name) bench_escape(s, name);
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
    if (c->flops > 0) {
        f.x1 = fmax(f.x1, 2 * c->flops / c->bytes);
        f.y1 = fmax(f.y1, c->flops / 1e9);
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
    double ridge = c->flops / c->bytes, x = fmax(f->x0, f->y0 * 1e9 / c->bytes);        /* where memory's line comes in */
    fu_str_addf(s, "<path class=\"roof\" d=\"M%.1f %.1f", at_x(f, x), at_y(f, fmin(x * c->bytes, c->flops) / 1e9));
    if (ridge > x) fu_str_addf(s, "L%.1f %.1f", at_x(f, ridge), at_y(f, c->flops / 1e9));
    fu_str_addf(s, "H%d\"><title>memory %.3g GB/s, arithmetic %.4g GFLOP/s, measured</title></path>", WIDTH - RIGHT, c->bytes / 1e9, c->flops / 1e9);
    fu_str_addf(s, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g GFLOP/s</text>", WIDTH - RIGHT - 4, at_y(f, c->flops / 1e9) - 5, c->flops / 1e9);
    double near = ridge / pow(ridge / x, 0.25);         /* below the line, where few points are */
    if (ridge > x) fu_str_addf(s, "<text x=\"%.1f\" y=\"%.1f\">%.3g GB/s</text>", at_x(f, near) + 8, at_y(f, near * c->bytes / 1e9) + 10, c->bytes / 1e9);
}

void bench_draw(fu_str *s, const bench_chart *c) {
    frame f = frame_of(c);
    fu_str_addf(s, "<svg viewBox=\"0 0 %d %d\" role=\"img\"><title>", WIDTH, f.height);
    bench_escape(s, c->title);
    fu_str_add(s, "</title>");
    if (c->n_x_names)
        for (int i = 0, step = (c->n_x_names + 5) / 6; i < c->n_x_names; i++) tick(s, &f, true, i, (c->n_x_names - 1 - i) % step ? "" : c->x_names[i]);
    else ticks(s, &f, true);
    ticks(s, &f, false);
    fu_str_addf(s, "<path class=\"a\" fill=\"none\" d=\"M%d %dV%dH%d\"/>", LEFT, TOP, f.height - BOTTOM, WIDTH - RIGHT);
    fu_str_addf(s, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (LEFT + WIDTH - RIGHT) / 2, f.height - 6);
    bench_escape(s, c->x_label);
    fu_str_addf(s, "</text><text transform=\"translate(11 %d) rotate(-90)\" text-anchor=\"middle\">", (TOP + f.height - BOTTOM) / 2);
    bench_escape(s, c->y_label);
    fu_str_add(s, "</text>");
    if (c->flops > 0) roof(s, &f, c);
    for (int i = c->n_series - 1; i >= 0; i--) {        /* the first on top */
        const bench_series *p = &c->series[i];
        if (c->has_lines && p->n > 1) {
            fu_str_addf(s, "<path class=\"l\" stroke=\"%s\" d=\"", p->colour);
            for (int k = 0; k < p->n; k++) fu_str_addf(s, "%c%.1f %.1f", k ? 'L' : 'M', at_x(&f, p->x[k]), at_y(&f, p->y[k]));
            fu_str_add(s, "\"/>");
        }
        for (int k = 0; k < p->n && c->has_points; k++) {
            fu_str_addf(s, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"><title>", at_x(&f, p->x[k]), at_y(&f, p->y[k]), p->colour);
            bench_escape(s, p->tip ? p->tip[k] : p->name);
            fu_str_add(s, "</title></circle>");
        }
    }
    fu_str_add(s, "</svg>");
    if (c->n_series < 2 || c->is_without_key) return;
    fu_str_add(s, "<div class=\"key\">");
    for (int i = 0; i < c->n_series; i++) {
        fu_str_addf(s, "<span><i style=\"background:%s\"></i>", c->series[i].colour);
        bench_escape(s, c->series[i].name);
        fu_str_add(s, "</span>");
    }
    fu_str_add(s, "</div>");
}
