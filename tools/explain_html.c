/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* explain_html.c: the plan as one page: what fusing saves, the graph, a panel for each kernel (its statements,
 * description, LLVM IR and machine code), the boundaries with their reasons, the memory plan. Everything is in the
 * page; without scripts all panels are open. */
#include "explain.h"
#include "disasm.h"
#include "html.h"

static const char style[] =
    ".graph{display:block;margin:0 auto}.graph a{cursor:pointer}.graph "
    ".box{fill:var(--card);stroke:var(--line);stroke-width:1.2}"
    ".graph a:hover .box,.graph a:focus .box{stroke:var(--accent)}.graph a.on "
    ".box{stroke:var(--accent);stroke-width:2.4}.graph a:focus{outline:none}"
    ".graph .track{fill:var(--code)}.graph .edge{fill:none;stroke:var(--s6);stroke-width:1.4}.graph "
    ".tip{fill:var(--s6)}"
    ".graph .strong{font-weight:650}.graph "
    ".halo{paint-order:stroke;stroke:var(--card);stroke-width:5px;stroke-linejoin:round;font-size:11.5px}\n"
    ".kernel{scroll-margin-top:12px}.kernel h3{margin:0 0 8px}.js .kernel{display:none}.js .kernel.on{display:block}"
    ".facts{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:0 0 12px;font-size:14px}.facts "
    "dt{color:var(--soft)}.facts dd{margin:0;overflow-wrap:anywhere}\n"
    ".tabs{display:none;gap:4px;margin:0 0 -1px;flex-wrap:wrap}.js .tabs{display:flex}.tabs "
    "button{font:inherit;font-size:13.5px;padding:4px 12px;border:1px solid transparent;"
    "border-radius:6px 6px 0 0;background:none;color:var(--soft);cursor:pointer}.tabs "
    "button.on{background:var(--code);border-color:var(--line);border-bottom-color:var(--code);"
    "color:var(--ink)}.js .pane{display:none}.js "
    ".pane.on{display:block}.pane>b{font-weight:600;font-size:13px;color:var(--soft)}.js .pane>b{display:none}"
    ".pane pre{margin:0 0 8px;max-height:520px;white-space:pre;tab-size:4}.js .pane pre{border-radius:0 6px 6px "
    "6px}.src{color:var(--s1);font-weight:600}\n"
    "tr[data-kernel] td:last-child{white-space:nowrap}tr[data-kernel]{cursor:pointer}tr[data-kernel]:hover "
    "td{background:var(--code)}\n";

/* A chosen kernel, and the tab that all panels show, are kept while the page is open. */
static const char script[] =
    "const body=document.body,all=s=>[...document.querySelectorAll(s)];body.classList.add('js');\n"
    "function choose(k,jump){all('.kernel').forEach(e=>e.classList.toggle('on',e.id==='k'+k));"
    "all('.graph a').forEach(e=>e.classList.toggle('on',e.dataset.kernel===k));"
    "if(jump){const "
    "e=document.getElementById('k'+k);if(e&&e.getBoundingClientRect().top>innerHeight*0.7)e.scrollIntoView({behavior:'"
    "smooth',block:'nearest'});history.replaceState(null,'','#k'+k)}}\n"
    "function tab(n){all('.tabs "
    "button').forEach(e=>e.classList.toggle('on',e.dataset.tab===n));all('.pane').forEach(e=>e.classList.toggle('on',e."
    "dataset.tab===n))}\n"
    "all('[data-kernel]').forEach(e=>e.addEventListener('click',v=>{v.preventDefault();choose(e.dataset.kernel,true)}))"
    ";\n"
    "all('.tabs button').forEach(e=>e.addEventListener('click',()=>tab(e.dataset.tab)));\n"
    "tab('ir');choose((/^#k(\\d+)$/.exec(location.hash)||[0,'0'])[1],false);\n";

static const char *words(tool *t, const json_t *list, const char *prefix) {
    fu_str s;
    size_t i;
    json_t *w;
    fu_str_init(&s, &t->arena);
    json_array_foreach((json_t *)list, i, w) fu_str_addf(&s, "%s%s%s", i ? " " : "", prefix, json_string_value(w));
    return s.at ? s.at : "";
}

static void fact(fu_str *o, const char *name, const char *text) {
    fu_str_addf(o, "<dt>%s</dt><dd>", name);
    html_text(o, text);
    fu_str_add(o, "</dd>\n");
}

static const char *count_text(tool *t, double v) {
    return v >= 1e9   ? fu_format(&t->arena, "%.2f GFLOP", v / 1e9)
           : v >= 1e6 ? fu_format(&t->arena, "%.2f MFLOP", v / 1e6)
           : v >= 1e4 ? fu_format(&t->arena, "%.1f kFLOP", v / 1e3)
                      : fu_format(&t->arena, "%.0f FLOP", v);
}

/* "memory, 83 %" */
static const char *limit_text(tool *t, const json_t *k) {
    const char *limit = explain_text_of(k, "limit");
    if (!limit[0]) return explain_text_of(k, "estimated_limit");
    return fu_format(&t->arena, "%s, %.0f %%", limit, 100 * explain_number(k, "limit_share"));
}

static void figures(tool *t, fu_str *o, const json_t *d) {
    const json_t *fused = json_object_get(d, "fused"), *apart = json_object_get(d, "unfused");
    const double one = explain_number(fused, "measured_ns"), other = explain_number(apart, "measured_ns");
    fu_str_add(o, "<div class=\"figures\">");
    html_figure(
        o, fu_format(&t->arena, "%.0f of %.0f", explain_number(fused, "kernels"), explain_number(apart, "kernels")),
        "kernels, fused of unfused");
    html_figure(o, report_bytes(t, explain_number(fused, "bytes")),
                fu_format(&t->arena, "moved; %s unfused", report_bytes(t, explain_number(apart, "bytes"))));
    html_figure(
        o, report_bytes(t, explain_number(fused, "peak_bytes")),
        fu_format(&t->arena, "peak of temporaries; %s unfused", report_bytes(t, explain_number(apart, "peak_bytes"))));
    html_figure(o, count_text(t, explain_number(fused, "flops")), "arithmetic");
    if (one > 0)
        html_figure(
            o, report_ns(t, one),
            other > 0 ? fu_format(&t->arena, "a call; %s unfused, %.2f times as long", report_ns(t, other), other / one)
                      : "a call");
    fu_str_add(o, "</div>\n");
}

static void kernel_table(tool *t, fu_str *o, const json_t *d) {
    static const char *const heads[] = {"kernel", "operators",         "read",    "written", "arithmetic",
                                        "time",   "share of the time", "bound by"};
    const json_t *kernels = json_object_get(d, "kernels");
    double all = 0;
    size_t i;
    json_t *k;
    json_array_foreach((json_t *)kernels, i, k) all += explain_ns(k);
    html_table table = html_table_begin(o, 8, 1u << 1 | 1u << 6 | 1u << 7, heads);
    json_array_foreach((json_t *)kernels, i, k) {
        const double share = all > 0 ? explain_ns(k) / all : 0;
        const int series = explain_series(explain_text_of(k, "kind"));
        fu_str_addf(o, "<tr data-kernel=\"%zu\">", i);
        html_cell(&table, 0);
        fu_str_addf(o, "<a href=\"#k%zu\">", i);
        html_key(o, series, fu_format(&t->arena, "%zu %s", i, explain_text_of(k, "kind")));
        fu_str_add(o, "</a>");
        html_cell(&table, 1);
        html_text(o, words(t, json_object_get(k, "ops"), ""));
        const char *const cells[] = {report_bytes(t, explain_number(k, "bytes_read")),
                                     report_bytes(t, explain_number(k, "bytes_written")),
                                     count_text(t, explain_number(k, "flops")), report_ns(t, explain_ns(k))};
        for (int c = 0; c < 4; c++) {
            html_cell(&table, 2 + c);
            html_text(o, cells[c]);
        }
        html_cell(&table, 6);
        html_bar(o, share, series, fu_format(&t->arena, "%.0f %%", 100 * share));
        html_cell(&table, 7);
        html_text(o, limit_text(t, k));
        html_row_end(&table);
    }
    html_table_end(&table);
}

static void pane(fu_str *o, const char *id, const char *title, const char *text) {
    fu_str_addf(o, "<div class=\"pane\" data-tab=\"%s\"><b>%s</b><pre>", id, title);
    for (const char *p = text; *p;) { /* lines of the description among instructions stand out */
        const size_t n = strcspn(p, "\n");
        char line[512];
        snprintf(line, sizeof line, "%.*s", (int)(n < sizeof line - 1 ? n : sizeof line - 1), p);
        if (line[0] == ';' && strcmp(id, "asm") == 0) fu_str_add(o, "<span class=\"src\">");
        html_text(o, line);
        if (line[0] == ';' && strcmp(id, "asm") == 0) fu_str_add(o, "</span>");
        fu_str_addc(o, '\n');
        p += n + (p[n] == '\n');
    }
    fu_str_add(o, "</pre></div>\n");
}

static void code_panes(tool *t, fu_str *o, const json_t *k, const fusor_codegen_table *module, const char *problem) {
    const char *description = explain_text_of(k, "description"), *symbol = explain_text_of(k, "symbol"), *llvm = NULL,
               *code = NULL;
    disasm_counts n = {0};
    if (module) llvm = disasm_llvm(t, module, description, symbol, &problem);
    if (module) code = disasm_code(t, module, description, symbol, &n, &problem);
    const char *none = fu_format(&t->arena, "no code generator: %s", problem ? problem : "unknown");
    pane(o, "llvm", "LLVM IR", llvm ? llvm : none);
    pane(o, "asm", "machine code",
         code ? fu_format(&t->arena, "%d instructions; %d stores to the frame and %d loads from it\n%s", n.instructions,
                          n.stores, n.loads, code)
              : none);
}

static void kernel_panel(tool *t, fu_str *o, size_t i, const json_t *k, const fusor_codegen_table *module,
                         const char *problem) {
    const json_t *schedule = json_object_get(k, "schedule"), *tile = json_object_get(schedule, "tile");
    const bool has_kernel = explain_text_of(k, "key")[0] != 0;
    size_t s;
    json_t *v;
    fu_str_addf(o, "<section class=\"card kernel\" id=\"k%zu\"><h3>Kernel %zu: %s</h3>\n<dl class=\"facts\">", i, i,
                explain_text_of(k, "kind"));
    if (has_kernel) fact(o, "symbol", explain_text_of(k, "symbol"));
    else fact(o, "because", explain_text_of(k, "reason"));
    if (has_kernel) fact(o, "key", explain_text_of(k, "key"));
    if (has_kernel)
        fact(o, "loop",
             fu_format(&t->arena, "%s; %s", explain_text_of(k, "loop")[0] ? explain_text_of(k, "loop") : "one element",
                       explain_text_of(schedule, "form")));
    if (schedule)
        fact(o, "schedule",
             fu_format(&t->arena, "%.0f lanes%s; %.0f tiles in %.0f phase%s on %.0f thread%s",
                       explain_number(schedule, "vector"),
                       tile ? fu_format(&t->arena, ", register tile %.0f x %.0f, k block %.0f",
                                        explain_number(tile, "rows"), explain_number(tile, "columns"),
                                        explain_number(tile, "k_block"))
                            : "",
                       explain_number(schedule, "tiles"), explain_number(schedule, "phases"),
                       explain_number(schedule, "phases") == 1 ? "" : "s", explain_number(schedule, "threads"),
                       explain_number(schedule, "threads") == 1 ? "" : "s"));
    fact(o, "data",
         fu_format(&t->arena, "reads %s (%s); writes %s (%s)", words(t, json_object_get(k, "reads"), "%"),
                   report_bytes(t, explain_number(k, "bytes_read")), words(t, json_object_get(k, "writes"), "%"),
                   report_bytes(t, explain_number(k, "bytes_written"))));
    fact(o, "arithmetic", count_text(t, explain_number(k, "flops")));
    fact(o, "estimated",
         fu_format(&t->arena, "%s, bound by %s", report_ns(t, explain_number(k, "estimated_ns")),
                   explain_text_of(k, "estimated_limit")));
    if (json_object_get(k, "measured_ns"))
        fact(o, "measured",
             strcmp(explain_text_of(k, "limit"), "call") == 0
                 ? fu_format(&t->arena, "%s; %.0f %% of it is the cost of a call",
                             report_ns(t, explain_number(k, "measured_ns")), 100 * explain_number(k, "limit_share"))
                 : fu_format(&t->arena, "%s; %s allows %s (%.0f %%)", report_ns(t, explain_number(k, "measured_ns")),
                             explain_text_of(k, "limit"), report_ns(t, explain_number(k, "limit_ns")),
                             100 * explain_number(k, "limit_share")));
    json_array_foreach(json_object_get(k, "statements"), s, v) {
        if (!explain_text_of(v, "at")[0] && !explain_text_of(v, "name")[0] && !explain_text_of(v, "loc")[0]) continue;
        fact(o, s ? "" : "from",
             fu_format(&t->arena, "%s  %%%s = %s  %s %s", explain_text_of(v, "at"), explain_text_of(v, "value"),
                       explain_text_of(v, "op"), explain_text_of(v, "name"), explain_text_of(v, "loc")));
    }
    fu_str_add(o, "</dl>\n<div class=\"tabs\"><button data-tab=\"ir\">IR</button>");
    if (has_kernel)
        fu_str_add(o, "<button data-tab=\"kernel\">Kernel description</button><button data-tab=\"llvm\">LLVM "
                      "IR</button><button data-tab=\"asm\">Assembly</button>");
    fu_str_add(o, "</div>\n");
    pane(o, "ir", "statements after normalization", explain_text_of(k, "ir"));
    if (has_kernel) pane(o, "kernel", "kernel description", explain_text_of(k, "description"));
    if (has_kernel) code_panes(t, o, k, module, problem);
    fu_str_add(o, "</section>\n");
}

static void boundary_table(tool *t, fu_str *o, const json_t *d) {
    static const char *const heads[] = {"from", "to", "value", "bytes", "reason", ""};
    const json_t *boundaries = json_object_get(d, "boundaries");
    size_t i;
    json_t *b;
    fu_str_add(o, "<h2>Boundaries: why they are not one kernel</h2>\n");
    if (json_array_size(boundaries) == 0) {
        fu_str_add(o, "<p class=\"note\">None: no value goes from one kernel to another.</p>\n");
        return;
    }
    html_table table = html_table_begin(o, 6, 1u << 2 | 1u << 4 | 1u << 5, heads);
    json_array_foreach((json_t *)boundaries, i, b) {
        html_row_begin(&table);
        for (int c = 0; c < 6; c++) {
            html_cell(&table, c);
            if (c < 2)
                fu_str_addf(o, "<a href=\"#k%.0f\" data-kernel=\"%.0f\">%.0f</a>", explain_number(b, c ? "to" : "from"),
                            explain_number(b, c ? "to" : "from"), explain_number(b, c ? "to" : "from"));
            if (c == 2) html_text(o, fu_format(&t->arena, "%%%s", explain_text_of(b, "value")));
            if (c == 3) html_text(o, report_bytes(t, explain_number(b, "bytes")));
            if (c == 4) fu_str_addf(o, "<span class=\"tag\">%s</span>", explain_text_of(b, "reason"));
            if (c == 5) html_text(o, explain_text_of(b, "text"));
        }
        html_row_end(&table);
    }
    html_table_end(&table);
}

/* A line for each temporary, from the kernel that writes it to the last that reads it; as high as its share of the
 * largest. */
static void memory_plan(tool *t, fu_str *o, const json_t *d) {
    enum { LEFT = 190, RIGHT = 90, ROW = 22, WIDTH = 1080 };
    json_t *memory = json_array(); /* but for values that lie in others */
    const size_t steps = json_array_size(json_object_get(d, "kernels"));
    const double unit = (double)(WIDTH - LEFT - RIGHT) / (double)(steps ? steps : 1);
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(d, "memory"), i, v) {
        if (!json_object_get(v, "part_of")) (void)json_array_append(memory, v);
    }
    fu_str_add(o, "<h2>Memory plan</h2>\n");
    if (json_array_size(memory) == 0) {
        json_decref(memory);
        fu_str_add(o, "<p class=\"note\">No temporaries: every value stays in registers, or is a result.</p>\n");
        return;
    }
    const int h = (int)json_array_size(memory) * ROW + 34;
    fu_str_addf(o,
                "<div class=\"card scroll\"><svg width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" "
                "aria-label=\"lifetimes of temporaries\">\n",
                WIDTH, h, WIDTH, h);
    for (size_t s = 0; s < steps; s++) {
        const double x = LEFT + unit * (double)s;
        fu_str_addf(o, "<path class=\"axis\" d=\"M%.1f 20V%d\"/>", x, h - 8);
        if (unit >= 14 || s % 10 == 0)
            fu_str_addf(o, "<text class=\"soft\" x=\"%.1f\" y=\"13\" text-anchor=\"middle\">%zu</text>\n", x + unit / 2,
                        s);
    }
    json_array_foreach(memory, i, v) {
        const bool in_place = json_object_get(v, "in_place") != NULL;
        const double y = 24 + (double)i * ROW, first = explain_number(v, "first"), last = explain_number(v, "last");
        fu_str_addf(o, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 10, y + 14);
        html_text(o, fu_format(&t->arena, "%%%.26s", explain_text_of(v, "value")));
        fu_str_addf(o,
                    "</text><rect class=\"s%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"12\" rx=\"3\"/><text "
                    "class=\"soft\" x=\"%.1f\" y=\"%.1f\">",
                    in_place ? 3 : 1, LEFT + unit * first + 1, y + 4, unit * (last - first + 1) - 2,
                    LEFT + unit * (last + 1) + 6, y + 14);
        html_text(o, in_place ? fu_format(&t->arena, "in %%%s", explain_text_of(v, "in_place"))
                              : report_bytes(t, explain_number(v, "bytes")));
        fu_str_add(o, "</text>\n");
    }
    fu_str_add(o, "</svg></div>\n<p class=\"note\">Columns are kernels in order. Memory of values that do not overlap "
                  "is one; green: written over a parameter, or what nothing reads any more.</p>\n");
    json_decref(memory);
}

void explain_html(tool *t, fu_str *o, const json_t *d, const fusor_codegen_table *module, const char *problem) {
    fu_str lead;
    const char *name;
    size_t i;
    json_t *v;
    fu_str_init(&lead, &t->arena);
    fu_str_addf(&lead, "Plan for %s, %.0f thread%s", explain_text_of(d, "target"), explain_number(d, "threads"),
                explain_number(d, "threads") == 1 ? "" : "s");
    json_object_foreach(json_object_get((json_t *)d, "dims"), name, v)
        fu_str_addf(&lead, ", %s=%lld", name, (long long)json_integer_value(v));
    if (json_is_true(json_object_get(d, "assumed"))) fu_str_add(&lead, " (sizes that were not given are assumed)");
    html_begin(o, fu_format(&t->arena, "@%s", explain_text_of(d, "function")), lead.at, style);
    figures(t, o, d);
    fu_str_add(o, "<h2>Kernels</h2>\n");
    explain_graph(t, o, d);
    json_array_foreach(json_object_get(d, "kernels"), i, v) kernel_panel(t, o, i, v, module, problem);
    kernel_table(t, o, d);
    boundary_table(t, o, d);
    memory_plan(t, o, d);
    html_end(o, script);
}
