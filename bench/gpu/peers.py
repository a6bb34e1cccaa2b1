#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fusor on a GPU beside torch eager and torch.compile (its matrix products are cuBLAS's, its fused kernels Triton's), in interleaved rounds.

peers.py --out FILE.json [--minutes M] [--device cuda] [--filter TEXT] [--rounds N] [--small] [--eager]

Every result is compared with that of fusor on the CPU, element by element of a sample. Times are medians over rounds of the time of a call in
a batch that ends with a wait; limits are measured on the same device: bytes per second of a copy, operations per second of a large product.
Without torch: fusor alone. The table goes to stdout. Exit status: 1 where a result was wrong or fusor failed."""
import argparse
import json
import math
import statistics
import sys
import time

import fusor_gpu
from workloads import workloads

SAMPLE = 4096
# what results may differ by, of the largest magnitude: sums in another order; one rounding of the type for halves
TOLERANCE = {"f32": 3e-5, "f64": 1e-12, "f16": 4e-3, "bf16": 3e-2}


def results_of(w):
    """[(dtype, shape)], {result: aliased input} of the program's head."""
    head = w.text[w.text.index("->") + 2:w.text.index("{")].strip()[1:-1]
    found, aliases, depth, part, parts = [], {}, 0, "", []
    for c in head + ",":
        depth += (c == "[") - (c == "]")
        if c == "," and not depth: parts.append(part.strip()); part = ""
        else: part += c
    for k, p in enumerate(parts):
        kind, _, alias = p.partition(" alias %a")
        dtype, _, dims = kind.partition("[")
        found.append((dtype, tuple(int(d) for d in dims.rstrip("]").split(",")) if dims else ()))
        if alias: aliases[k] = int(alias)
    return found, aliases


def worst(dtype, got, want):
    """The largest difference of a sample, as a part of the largest magnitude."""
    step = max(1, len(want) // SAMPLE)
    got, want = fusor_gpu.as_floats(dtype, got[::step]), fusor_gpu.as_floats(dtype, want[::step])
    top = max((abs(v) for v in want if math.isfinite(v)), default=0) or 1.0
    error = 0.0
    for g, v in zip(got, want):
        if math.isnan(g) != math.isnan(v): return math.inf
        if g != v and not math.isnan(v): error = max(error, abs(g - v) / top if math.isfinite(g) and math.isfinite(v) else math.inf)
    return error


def batch_time(call, wait, n):
    start = time.perf_counter()
    for _ in range(n): call()
    wait()
    return (time.perf_counter() - start) / n


def calls_for(call, wait, seconds):
    """How many calls take about that long."""
    n = 1
    batch_time(call, wait, 3)  # modules are loaded when they are first used, and the clock of an idle device is low
    while True:
        t = batch_time(call, wait, n) * n
        if t >= seconds / 2 or n >= 10000: return max(1, min(10000, int(n * seconds / max(t, 1e-9))))
        n = min(10000, max(2 * n, int(n * seconds / max(t, 1e-6) / 2)))


class Torch:
    def __init__(self, is_eager):
        self.is_eager = is_eager
        import torch
        import torch.nn.functional
        if not torch.cuda.is_available(): raise ImportError("torch has no CUDA device")
        self.torch, self.F = torch, torch.nn.functional
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        self.types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}

    def tensors(self, w, data):
        out = []
        for (dtype, shape, _), d in zip(w.inputs, data):
            raw = self.torch.frombuffer(d, dtype=self.types[dtype]) if d.typecode != "H" else \
                self.torch.frombuffer(d, dtype=self.torch.int16).view(self.types[dtype])
            out.append(raw.reshape(shape).clone().cuda())
        return out

    def ways(self, w, data):
        x, torch, F = self.tensors(w, data), self.torch, self.F
        yield "torch", lambda: w.torch(torch, F, x)
        if self.is_eager: return
        try:
            compiled = torch.compile(lambda x: w.torch(torch, F, x), mode="max-autotune-no-cudagraphs" if w.group == "matmul" else "default")
            compiled(x)
            yield "torch.compile", lambda: compiled(x)
        except Exception as e:  # no compiler, no Triton: eager alone
            print(f"torch.compile: {w.name}: {str(e).splitlines()[0][:100]}", file=sys.stderr)

    def wait(self):
        self.torch.cuda.synchronize()


def limits(context, torch, small):
    """GB/s of a copy and TFLOP/s of products; of torch's where it is here, else of fusor's."""
    out = {}
    n = 1 << (16 if small else 28)
    if torch:
        t = torch.torch
        x, y = t.empty(n, device="cuda"), t.empty(n, device="cuda")
        copy = lambda: y.copy_(x)
        calls = calls_for(copy, torch.wait, 0.1)
        out["copy_gb_s"] = 8e-9 * n / min(batch_time(copy, torch.wait, calls) for _ in range(3))
        for name, type_of in torch.types.items():
            k = 128 if small else 8192 if name in ("f16", "bf16") else 4096
            a, b = t.randn(k, k, device="cuda").to(type_of), t.randn(k, k, device="cuda").to(type_of)
            product = lambda: a @ b
            calls = calls_for(product, torch.wait, 0.1)
            out[f"{name}_tflop_s"] = 2e-12 * k ** 3 / min(batch_time(product, torch.wait, calls) for _ in range(3))
    return out


def measure(w, context, cpu, torch, rounds, seconds):
    row = {"group": w.group, "name": w.name, "bytes": w.bytes, "flops": w.flops, "ms": {}}
    results, aliases = results_of(w)
    data = [fusor_gpu.values(d, s, k, 7 * i + 1) for i, (d, s, k) in enumerate(w.inputs)]
    program, reference = None, None
    try:
        reference = fusor_gpu.Program(cpu, w, data, results, aliases)
        reference.call()
        start = time.perf_counter()
        program = fusor_gpu.Program(context, w, data, results, aliases)
        program.call()
        context.wait()
        row["first_ms"] = (time.perf_counter() - start) * 1e3
        row["error"] = max(worst(d, program.result(k), reference.result(k)) for k, (d, _) in enumerate(results))
        row["ok"] = row["error"] <= TOLERANCE[results[0][0]]
        ways = [("fusor", program.call, context.wait)]
        if torch: ways += [(name, call, torch.wait) for name, call in torch.ways(w, data)]
        n = {name: calls_for(call, wait, seconds) for name, call, wait in ways}
        times = {name: [] for name in n}
        for _ in range(rounds):
            for name, call, wait in ways: times[name].append(batch_time(call, wait, n[name]) * 1e3)
        row["ms"] = {name: statistics.median(t) for name, t in times.items()}
        row["spread"] = {name: max(t) / min(t) for name, t in times.items()}
        alone = [batch_time(program.call, context.wait, 1) * 1e3 for _ in range(2 * rounds)]
        row["alone_ms"] = statistics.median(alone)  # asked for and waited for
    except (fusor_gpu.Failed, RuntimeError) as e:
        row["failed"] = str(e)
    finally:
        for p in (program, reference):
            if p: p.free()
    return row


def table(rows, limit):
    lines = ["| workload | fusor ms | torch | compile | fusor / best | of copy GB/s | of peak | alone ms | error |", "|---|---|---|---|---|---|---|---|---|"]
    group = None
    for r in rows:
        if r["group"] != group:
            group = r["group"]
            lines.append(f"| **{group}** | | | | | | | | |")
        if "failed" in r or not r["ms"]:
            lines.append(f"| {r['name']} | {r.get('failed', 'not run')[:90]} | | | | | | | |")
            continue
        ms, mine = r["ms"], r["ms"]["fusor"]
        others = [v for k, v in ms.items() if k != "fusor"]
        text = lambda name: f"{ms[name]:.4g}" if name in ms else "-"
        gb = r["bytes"] / mine * 1e-6
        peak = limit.get(f"{r['name'].split()[-1]}_tflop_s") or limit.get("f32_tflop_s")
        lines.append(f"| {r['name']} | {mine:.4g} | {text('torch')} | {text('torch.compile')} | " +
                     (f"{mine / min(others):.2f}" if others else "-") +
                     f" | {gb:.0f}" + (f" ({100 * gb / limit['copy_gb_s']:.0f} %)" if "copy_gb_s" in limit else "") +
                     " | " + (f"{r['flops'] / mine * 1e-9:.2f} TFLOP/s" + (f" ({100 * r['flops'] / mine * 1e-9 / peak:.0f} %)" if peak else "") if r["flops"] else "-") +
                     f" | {r['alone_ms']:.4g} | {r['error']:.1e}{'' if r['ok'] else ' WRONG'} |")
    return "\n".join(lines)


def main():
    o = argparse.ArgumentParser()
    o.add_argument("--out", required=True)
    o.add_argument("--minutes", type=float, default=10)
    o.add_argument("--device", default="cuda")
    o.add_argument("--filter", default="")
    o.add_argument("--rounds", type=int, default=7)
    o.add_argument("--eager", action="store_true", help="without torch.compile, which takes seconds a workload")
    o.add_argument("--small", action="store_true", help="sizes of a test")
    o = o.parse_args()
    end = time.monotonic() + 60 * o.minutes
    lib = fusor_gpu.library()
    context, cpu = fusor_gpu.Context(lib, o.device), fusor_gpu.Context(lib, "cpu")
    try: torch = Torch(o.eager)
    except ImportError as e:
        torch = None
        print(f"without torch: {e}", file=sys.stderr)
    document = {"device": o.device, "torch": torch.torch.__version__ if torch else None, "limits": limits(context, torch, o.small), "rows": []}
    every = [w for w in workloads(4096 if o.small else 1) if o.filter in f"{w.group} {w.name}"]
    for w in every:
        if time.monotonic() > end:
            print(f"the time is over: {len(every) - len(document['rows'])} of {len(every)} workloads were left out", file=sys.stderr)
            document["left_out"] = len(every) - len(document["rows"])
            break
        document["rows"].append(measure(w, context, cpu, torch, o.rounds, 0.0 if o.small else 0.02))
        with open(o.out, "w") as f: json.dump(document, f, indent=1)
    print(table(document["rows"], document["limits"]))
    wrong = [r for r in document["rows"] if "failed" in r or not r.get("ok")]
    for r in wrong: print(f"{r['group']} {r['name']}: {r.get('failed') or 'wrong: error %g' % r['error']}", file=sys.stderr)
    return 1 if wrong or not document["rows"] else 0


if __name__ == "__main__":
    sys.exit(main())
