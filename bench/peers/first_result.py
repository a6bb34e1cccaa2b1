#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""first_result.py BUILD_DIR [N]: time to the first result of a never-seen and of a cached chain of 8 operators, processes of their own, N times
(30) in turns, beside Dr.Jit where this Python has it (its caches emptied for the cold figure). Medians and quartiles in microseconds."""
import os, re, shutil, statistics, subprocess, sys, tempfile

DRJIT = """
import time, numpy, drjit as dr
from drjit.llvm import Float
x = Float(numpy.arange(1000, dtype=numpy.float32) * .01); dr.eval(x); dr.sync_thread()
t = time.perf_counter_ns()
e = dr.exp(dr.tanh(x * 2. + 1.)) - x; y = dr.maximum(1. / (1. + dr.exp(-e)) * x, .1); dr.eval(y); dr.sync_thread()
print((time.perf_counter_ns() - t) / 1e3)
"""
here = os.path.dirname(os.path.abspath(__file__))
build, n = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 30
work = tempfile.mkdtemp()
program = os.path.join(work, "first_result")
subprocess.run(["cc", "-O2", "-I" + os.path.join(here, "../../include"), os.path.join(here, "first_result.c"), "-o", program,
                "-L" + build + "/.libs", "-lfusor", "-Wl,-rpath," + build + "/.libs"], check=True)
env = {k: v for k, v in os.environ.items() if not k.startswith("FUSOR_")} | {"FUSOR_CACHE_DIR": work + "/cache", "HOME": work}


def fusor(*args, **more):
    return subprocess.run([program, *args], env=env | more, capture_output=True, text=True, check=True)


def drjit():
    out = subprocess.run([sys.executable, "-c", DRJIT], env=env, capture_output=True, text=True)
    return float(out.stdout) if out.returncode == 0 else None


times = {}
fusor()  # into the cache
for i in range(n):
    times.setdefault("fusor, never seen, starts unfused", []).append(float(fusor("unfused").stdout.split()[1]))
    times.setdefault("fusor, cached", []).append(float(fusor().stdout.split()[1]))
    hit = re.search(r",hit,(\d+)", fusor(FUSOR_VERBOSE="cache").stderr)
    times.setdefault("fusor, loading the first kernel", []).append(int(hit.group(1)) / 1e3)
    shutil.rmtree(work + "/.drjit", ignore_errors=True)
    for name in "Dr.Jit, cold, after its import", "Dr.Jit, cached, after its import":
        t = drjit()
        if t is not None:
            times.setdefault(name, []).append(t)
shutil.rmtree(work)
for name, t in times.items():
    t.sort()
    print(f"{name:36} median {statistics.median(t):9.1f}  quartiles {t[len(t) // 4]:9.1f} .. {t[len(t) * 3 // 4]:9.1f}  n {len(t)}")
