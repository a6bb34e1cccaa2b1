#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""chains.py: three element-wise chains by fusor and by what is installed of NumPy, torch and JAX, in one interleaved run.

    FUSOR_LIB=build/.libs/libfusor.so python3 bench/peers/chains.py [--threads 1] [--sizes 1e4,1e6,1e7] [--rounds 15]

Every result is checked against NumPy. A round times each peer once, in turn; printed is the median over rounds in microseconds
(calls through ctypes for fusor) and the ratio of the best peer to fusor. Peers that are not installed are named and left out."""
import argparse, ctypes as C, os, time

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("--threads", type=int, default=1)
ap.add_argument("--sizes", default="1e4,1e6,1e7")
ap.add_argument("--rounds", type=int, default=15)
args = ap.parse_args()
for v in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "FUSOR_THREADS", "MKL_NUM_THREADS"):
    os.environ[v] = str(args.threads)
if args.threads == 1:
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
import numpy as np

f4 = np.float32
CHAINS = {
    "relu(a*b+c)": (["mul(%a, %b)", "add(%0, %c)", "relu(%1)"], lambda m, a, b, c: m.maximum(a * b + c, f4(0))),
    "gelu(a*b+c)": (["mul(%a, %b)", "add(%0, %c)", "gelu(%1, approximate=tanh)"],
                    lambda m, a, b, c: (lambda x: f4(0.5) * x * (f4(1) + m.tanh(f4(0.7978845608) * (x + f4(0.044715) * x * x * x))))(a * b + c)),
    "tanh(a)*sigmoid(b)+c": (["tanh(%a)", "sigmoid(%b)", "mul(%0, %1)", "add(%2, %c)"],
                             lambda m, a, b, c: m.tanh(a) * (f4(1) / (f4(1) + m.exp(-b))) + c),
}


class Buffer(C.Structure):
    _fields_ = [("data", C.c_void_p), ("dtype", C.c_int32), ("rank", C.c_int32), ("shape", C.c_int64 * 8), ("stride", C.c_int64 * 8),
                ("flags", C.c_uint32), ("device", C.c_int32)]


def buffer(a):
    b = Buffer(a.ctypes.data, 2, a.ndim)
    b.shape[0] = a.size
    return b


lib = C.CDLL(os.environ.get("FUSOR_LIB", "libfusor.so.0"))
lib.fusor_context_new.restype = C.c_void_p
lib.fusor_error_message.restype = C.c_char_p
ctx = C.c_void_p(lib.fusor_context_new(None))


def fusor(lines, a, b, c, out):
    body = "".join(f"  %{i} = {line}\n" for i, line in enumerate(lines))
    text = f"func @f(%a: f32[N], %b: f32[N], %c: f32[N]) -> f32[N] {{\n{body}  return %{len(lines) - 1}\n}}\n"
    exe = C.c_void_p()
    if lib.fusor_compile_text(ctx, text.encode(), None, C.byref(exe)):
        raise SystemExit(lib.fusor_error_message(ctx).decode())
    ins, outs = (Buffer * 3)(buffer(a), buffer(b), buffer(c)), (Buffer * 1)(buffer(out))
    call = lib.fusor_executable_call
    return lambda: call(exe, 3, ins, 1, outs) and None


def peers(fn, a, b, c):
    yield "numpy", lambda: fn(np, a, b, c)
    try:
        import torch
        torch.set_num_threads(args.threads)
        t = [torch.from_numpy(x) for x in (a, b, c)]
        zero = torch.zeros(())

        class M:
            tanh, exp = torch.tanh, torch.exp
            maximum = staticmethod(lambda x, y: torch.maximum(x, zero))
        with torch.inference_mode():
            yield "torch", lambda: fn(M, *t)
    except ImportError:
        print("torch is not installed: left out")
    try:
        import jax, jax.numpy as jnp
        j, jitted = [jnp.asarray(x) for x in (a, b, c)], jax.jit(lambda x, y, z: fn(jnp, x, y, z))
        yield "jax", lambda: jitted(*j).block_until_ready()
    except ImportError:
        print("jax is not installed: left out")


for size in (int(float(s)) for s in args.sizes.split(",")):
    rng = np.random.default_rng(1)
    a, b, c = (rng.standard_normal(size, dtype=f4) for _ in range(3))
    for name, (lines, fn) in CHAINS.items():
        out = np.empty_like(a)
        run = {"fusor": fusor(lines, a, b, c, out), **dict(peers(fn, a, b, c))}
        run["fusor"]()
        assert np.allclose(out, fn(np, a, b, c), rtol=1e-4, atol=1e-5), name
        calls = max(1, int(2e7 / size) // 20)
        times = {k: [] for k in run}
        for _ in range(args.rounds + 1):
            for k, f in run.items():
                start = time.perf_counter()
                for _ in range(calls):
                    f()
                times[k].append((time.perf_counter() - start) / calls * 1e6)
        median = {k: sorted(v[1:])[len(v[1:]) // 2] for k, v in times.items()}
        best = min((k for k in median if k != "fusor"), key=median.get)
        print(f"{name:22} {size:>9}  " + "  ".join(f"{k} {v:.1f}" for k, v in median.items()) + f"  ({best} / fusor = {median[best] / median['fusor']:.2f})")
