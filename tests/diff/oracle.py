#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""oracle.py: the reference evaluator (`fusor run --device reference`) against NumPy.

Each program has many results, one an operator; all inputs and results go through .npy files, so those are tested too.
Optional: without NumPy, or without the command, it skips and says why. The last line is
"N passed, N failed, N skipped".
Usage: oracle.py [--fusor COMMAND] [--seed N] [--device NAME] [WORD ...]; with WORDs only programs whose name holds one.
"""
import argparse
import itertools
import math
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("oracle: skipped: Python has no numpy")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

TYPES = {"f64": "<f8", "f32": "<f4", "f16": "<f2", "i64": "<i8", "i32": "<i4", "i16": "<i2", "i8": "|i1",
         "u64": "<u8", "u32": "<u4", "u16": "<u2", "u8": "|u1", "bool": "|b1"}
NAMES = {np.dtype(v): k for k, v in TYPES.items()}
INTS = ["i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8"]
FLOATS = ["f64", "f32", "f16"]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 6.5, math.inf, -math.inf, math.nan, 1e-40, -1e-40, 6e-8, 65504.0,
           3.0e38, -3.0e38, 1e-30, 100.0, -100.0, 20.25, 1.0000001, 0.9999999]


class Program:
    def __init__(self, name):
        self.name, self.inputs, self.results, self.lines = name, {}, [], []

    def input(self, name, array):
        self.inputs[name] = np.asarray(array, order="C")

    def expect(self, expression, array, ulp=0, atol=0.0, rtol=0.0):
        """array: what the expression gives; a list: of an operator with several results."""
        arrays = array if isinstance(array, list) else [array]
        self.lines.append((expression, len(arrays)))
        self.results += [(expression, np.asarray(a), ulp, atol, rtol) for a in arrays]

    def text(self):
        params = ", ".join(f"%{n}: {type_of(a)}" for n, a in self.inputs.items())
        results = ", ".join(f"%r{i}: {type_of(r[1])}" for i, r in enumerate(self.results))
        lines, first = [], 0
        for expression, n in self.lines:
            lines.append("  " + ", ".join(f"%r{first + k}" for k in range(n)) + f" = {expression}")
            first += n
        values = ", ".join(f"%r{i}" for i in range(len(self.results)))
        return f"fusor 1\nfunc @f({params}) -> ({results}) {{\n" + "\n".join(lines) + f"\n  return {values}\n}}\n"


def type_of(array):
    dims = ", ".join(str(n) for n in array.shape)
    return NAMES[array.dtype] + (f"[{dims}]" if dims else "")


def distance(got, want):
    """Largest distance in units of the last place of `want`; NaN and infinities must agree."""
    if got.dtype.kind != "f":
        return 0 if np.array_equal(got, want) else math.inf
    g, w = got.astype(np.longdouble), want.astype(np.longdouble)
    with np.errstate(all="ignore"):
        same = (np.isnan(g) & np.isnan(w)) | (g == w)
        off = np.where(same, 0, np.abs(g - w) / np.abs(np.spacing(np.where(np.isfinite(want), want, 1))))
        # An overflow on one side only is one step, next to the largest number.
        edge = ~same & (np.isinf(g) != np.isinf(w)) & (np.abs(np.where(np.isinf(g), w, g)) >= np.finfo(want.dtype).max)
        off = np.where(edge, 1, np.where(np.isfinite(off), off, math.inf))
    return float(off.max()) if off.size else 0.0


# ---- programs -------------------------------------------------------------------------------------------------------
def wide(t):
    return {"f64": np.longdouble, "f32": np.float64, "f16": np.float32}[t]


def unary_programs(rng):
    exact = {"neg": np.negative, "abs": np.abs, "square": np.square, "sqrt": np.sqrt, "floor": np.floor,
             "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "isnan": np.isnan, "isinf": np.isinf,
             "isfinite": np.isfinite,
             "reciprocal": np.reciprocal, "sign": lambda x: np.where(x == 0, x, np.sign(x))}
    near = {"exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
            "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
            "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh,
            "acosh": np.arccosh, "atanh": np.arctanh, "cbrt": np.cbrt, "rsqrt": lambda x: 1 / np.sqrt(x),
            "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "silu": lambda x: x / (1 + np.exp(-x)),
            "softsign": lambda x: x / (1 + np.abs(x)), "relu": lambda x: np.where(x < 0, x.dtype.type(0), x),
            "relu6": lambda x: np.where(x < 0, x.dtype.type(0), np.where(x > 6, x.dtype.type(6), x)),
            "softplus": lambda x: np.where(x > 0, x + np.log1p(np.exp(-np.abs(x))), np.log1p(np.exp(x))),
            "elu": lambda x: np.where(x < 0, np.expm1(x), x),
            "erf": np.vectorize(lambda v: math.erf(float(v))), "erfc": np.vectorize(lambda v: math.erfc(float(v)))}
    for t in FLOATS:
        p = Program("unary-" + t)
        with np.errstate(all="ignore"):
            x = np.concatenate([np.array(SPECIAL), rng.normal(size=200) * 5, rng.uniform(-1, 1, 50)]).astype(TYPES[t])
            p.input("x", x)
            for name, f in exact.items():
                p.expect(f"{name}(%x)", f(x).astype(np.bool_ if name.startswith("is") else x.dtype))
            for name, f in near.items():
                p.expect(f"{name}(%x)", f(x.astype(wide(t))).astype(x.dtype), ulp=4 if t == "f64" else 2)
        yield p


def binary_programs(rng):
    for t in FLOATS:
        p = Program("binary-" + t)
        with np.errstate(all="ignore"):
            grid = np.array(list(itertools.product(SPECIAL, SPECIAL))).astype(TYPES[t])
            x = np.concatenate([grid[:, 0], (rng.normal(size=200) * 5).astype(TYPES[t])])
            y = np.concatenate([grid[:, 1], (rng.normal(size=200) * 5).astype(TYPES[t])])
            p.input("x", x)
            p.input("y", y)
            for name, f in {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "fmod": np.fmod,
                            "copysign": np.copysign}.items():
                p.expect(f"{name}(%x, %y)", f(x, y))
            # NumPy's float16 and float32 mod may round twice near the divisor.
            p.expect("mod(%x, %y)", np.where(np.isinf(y) & np.isfinite(x) & (x != 0) & (np.signbit(x) != np.signbit(y)),
                                             y, np.mod(x, y)), ulp=1)
            p.expect("maximum(%x, %y)", np.where((x > y) | np.isnan(x), x, y))
            p.expect("minimum(%x, %y)", np.where((x < y) | np.isnan(x), x, y))
            for name, f in {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
                            "ge": np.greater_equal}.items():
                p.expect(f"{name}(%x, %y)", f(x, y))
            w = wide(t)
            for name, f in {"pow": np.power, "atan2": np.arctan2, "hypot": np.hypot}.items():
                p.expect(f"{name}(%x, %y)", f(x.astype(w), y.astype(w)).astype(x.dtype), ulp=4 if t == "f64" else 2)
            p.input("c", x < y)
            p.expect("select(%c, %x, %y)", np.where(x < y, x, y))
            p.expect("clamp(%x, %y, 1.0)", np.where((x > y) | np.isnan(x), x, y).clip(max=1))
        yield p


def python_int(t, f):
    """f on exact Python integers, wrapped to the type."""
    info = np.iinfo(TYPES[t])
    span = int(info.max) - int(info.min) + 1
    return lambda *v: (f(*(int(i) for i in v)) - int(info.min)) % span + int(info.min)


def int_programs(rng):
    def tdiv(a, b):
        return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)

    def ipow(a, b):
        return (a ** b if b >= 0 else 1 if a == 1 else (1 if b % 2 == 0 else -1) if a == -1 else 0)

    for t in INTS:
        info = np.iinfo(TYPES[t])
        edge = [int(info.min), int(info.max), 0, 1, 2, 3, 7] + ([-1, -2, -7] if info.min < 0 else [])
        pairs = list(itertools.product(edge, edge)) + [
            tuple(int(v) for v in rng.integers(info.min, info.max, 2, dtype=TYPES[t], endpoint=True))
            for _ in range(100)]
        x = np.array([a for a, _ in pairs], dtype=TYPES[t])
        y = np.array([b for _, b in pairs], dtype=TYPES[t])
        width = info.bits
        p = Program("int-" + t)
        p.input("x", x)
        p.input("y", y)
        rows = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": tdiv,
                "mod": lambda a, b: a % b if b else 0, "fmod": lambda a, b: a - tdiv(a, b) * b if b else 0,
                "maximum": max, "minimum": min, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
                "xor": lambda a, b: a ^ b, "shl": lambda a, b: a << b if 0 <= b < width else 0,
                "shr": lambda a, b: a >> b if 0 <= b < width else (-1 if a < 0 else 0)}
        for name, f in rows.items():
            g = python_int(t, f)
            p.expect(f"{name}(%x, %y)", np.array([g(a, b) for a, b in pairs], dtype=x.dtype))
        small = np.array([b % 70 if b >= 0 else -(-b % 70) for _, b in pairs], dtype=x.dtype)
        p.input("s", small)
        g = python_int(t, ipow)
        p.expect("pow(%x, %s)", np.array([g(a, b) for (a, _), b in zip(pairs, small)], dtype=x.dtype))
        for name, f in {"neg": lambda a: -a, "abs": abs, "square": lambda a: a * a, "bitwise_not": lambda a: ~a,
                        "relu": lambda a: max(a, 0), "relu6": lambda a: min(max(a, 0), 6),
                        "sign": lambda a: (a > 0) - (a < 0)}.items():
            g = python_int(t, f)
            p.expect(f"{name}(%x)", np.array([g(a) for a, _ in pairs], dtype=x.dtype))
        for name, f in {"eq": np.equal, "lt": np.less, "ge": np.greater_equal}.items():
            p.expect(f"{name}(%x, %y)", f(x, y))
        # Sums of anything are i64 and wrap; so is matmul but for 8-bit operands.
        total = python_int("i64", lambda *v: sum(v))
        p.expect("reduce_l1(%x)", np.array(python_int("i64", lambda *v: sum(abs(i) for i in v))(*x), dtype="<i8"))
        with np.errstate(over="ignore"):
            p.expect("cumsum(%x, axis=0)", np.cumsum(x.astype("<i8"), dtype="<i8"))
            p.expect("cumprod(%x, axis=0)", np.cumprod(x.astype("<i8"), dtype="<i8"))
        p.expect("reduce_sum(%x)", np.array(total(*x), dtype="<i8"))
        p.expect("reduce_max(%x)", x.max())
        p.expect("reduce_min(%x)", x.min())
        p.expect("argmax(%x)", np.array(np.argmax(x), dtype="<i8"))
        wide_t = "i32" if width == 8 else "i64"
        g = python_int(wide_t, lambda *v: sum(a * b for a, b in pairs))
        p.expect("matmul(%x, %y)", np.array(g(), dtype=TYPES[wide_t]))
        yield p


def cast_programs(rng):
    for t in FLOATS + INTS + ["bool"]:
        p = Program("cast-" + t)
        with np.errstate(all="ignore"):
            if t in FLOATS:
                x = np.concatenate([np.array(SPECIAL), rng.normal(size=50) * 300, [127.5, -128.9, 255.9, 2147483648.0,
                                    9.3e18, -9.3e18, 1.9e19, 65519.0, 65520.0]]).astype(TYPES[t])
            elif t == "bool":
                x = np.array([True, False])
            else:
                info = np.iinfo(TYPES[t])
                x = np.concatenate([np.array([info.min, info.max, 0, 1], dtype=TYPES[t]),
                                    rng.integers(info.min, info.max, 100, dtype=TYPES[t], endpoint=True)])
            p.input("x", x)
            for to in TYPES:
                if to in INTS and t in FLOATS:
                    info = np.iinfo(TYPES[to])
                    least, most = int(info.min), int(info.max)
                    want = [0 if math.isnan(v) else int(max(min(v, most), least)) for v in x.tolist()]
                    p.expect(f"cast(%x, {to})", np.array(want, dtype=TYPES[to]))
                elif to == "f16" and t in ("i64", "u64", "i32", "u32"):
                    p.expect(f"cast(%x, {to})", x.astype(np.float64).astype(TYPES[to]))
                else:
                    p.expect(f"cast(%x, {to})", x.astype(TYPES[to]))
        yield p


def reduce_programs(rng):
    for t in FLOATS:
        p = Program("reduce-" + t)
        x = rng.normal(size=(3, 4, 5)).astype(TYPES[t])
        w = x.astype(wide(t))
        p.input("x", x)
        for axes in [None, (0,), (1,), (2,), (0, 2), (0, 1, 2), ()]:
            for keep in (False, True):
                a = "" if axes is None else f", axes=[{', '.join(str(v) for v in axes)}]"
                k = ", keepdims=true" if keep else ""
                for name, f in {"sum": np.sum, "prod": np.prod, "mean": np.mean, "max": np.max, "min": np.min,
                                "var": np.var, "std": np.std,
                                "l1": lambda v, **k: np.sum(np.abs(v), **k),
                                "l2": lambda v, **k: np.sqrt(np.sum(v * v, **k)),
                                "logsumexp": lambda v, **k: np.log(np.sum(np.exp(v), **k))}.items():
                    p.expect(f"reduce_{name}(%x{a}{k})", f(w, axis=axes, keepdims=keep).astype(x.dtype),
                             # variances: far inside the documented 256 + log2(n)
                             ulp=4 if name in ("var", "std") else 1, rtol=1e-15)
        for ddof in (1, 3.5):
            p.expect(f"reduce_var(%x, axes=[1], correction={ddof})", np.var(w, axis=1, ddof=ddof).astype(x.dtype), ulp=4)
            p.expect(f"reduce_std(%x, correction={ddof})", np.std(w, ddof=ddof).astype(x.dtype), ulp=4)
        for axis in (0, 1, -1):
            for name, f in {"cumsum": np.cumsum, "cumprod": np.cumprod}.items():
                forward, tiny = f(w, axis=axis), dict(ulp=1, atol=1e-6 if t == "f32" else 1e-3 if t == "f16" else 1e-14)
                back = np.flip(f(np.flip(w, axis), axis=axis), axis)
                before = np.roll(forward, 1, axis)
                first = [slice(None)] * 3
                first[axis] = slice(0, 1)
                before[tuple(first)] = 0 if name == "cumsum" else 1
                p.expect(f"{name}(%x, axis={axis})", forward.astype(x.dtype), **tiny)
                p.expect(f"{name}(%x, axis={axis}, reverse=true)", back.astype(x.dtype), **tiny)
                p.expect(f"{name}(%x, axis={axis}, exclusive=true)", before.astype(x.dtype), **tiny)
            over = tuple(range(axis % 3, 3))
            mean, var = w.mean(axis=over, keepdims=True), w.var(axis=over, keepdims=True)
            near = dict(ulp=2, atol=1e-6 if t == "f32" else 1e-3 if t == "f16" else 1e-14)
            p.expect(f"layer_norm(%x, axis={axis})", ((w - mean) / np.sqrt(var + 1e-5)).astype(x.dtype), **near)
            p.expect(f"rms_norm(%x, axis={axis}, epsilon=0.25)",
                     (w / np.sqrt((w * w).mean(axis=over, keepdims=True) + 0.25)).astype(x.dtype), **near)
            p.expect(f"argmax(%x, axis={axis})", np.argmax(x, axis=axis))
            p.expect(f"argmin(%x, axis={axis}, keepdims=true)", np.argmin(x, axis=axis, keepdims=True))
            m = np.exp(w - w.max(axis=axis, keepdims=True))
            s = m / m.sum(axis=axis, keepdims=True)
            documented = dict(ulp=8, atol=1e-7 if t != "f64" else 1e-15)    # doc/numerics.md
            p.expect(f"softmax(%x, axis={axis})", s.astype(x.dtype), **documented)
            p.expect(f"log_softmax(%x, axis={axis})", np.log(s).astype(x.dtype), **documented)
        yield p


def matmul_programs(rng):
    shapes = [((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)),
              ((2, 1, 3, 4), (5, 4, 2)), ((1, 1, 4), (2, 2, 4, 1)), ((0, 4), (4, 2)), ((3, 0), (0, 2)),
              ((70, 130), (130, 67))]
    for t, t2 in [(t, t) for t in FLOATS + ["i32", "i8", "u8", "u16"]] + [("u8", "i8"), ("i8", "u8")]:
        for i, (a, b) in enumerate(shapes):
            p = Program(f"matmul-{t}-{t2}-{i}")
            if t in FLOATS:
                x, y = rng.normal(size=a).astype(TYPES[t]), rng.normal(size=b).astype(TYPES[t])
                out, acc = x.dtype, wide(t)
            else:
                ranges = [np.iinfo(TYPES[v]) for v in (t, t2)]
                x, y = (rng.integers(v.min, v.max, s, dtype=v.dtype, endpoint=True) for v, s in zip(ranges, (a, b)))
                out, acc = np.dtype("<i4" if t in ("i8", "u8") else "<i8"), np.int64
            p.input("x", x)
            p.input("y", y)
            # f16 products sum in more than NumPy's float32 here; near zero only the absolute error counts.
            loose = {"f16": 1e-3, "f32": 1e-6, "f64": 1e-13}.get(t, 0)
            with np.errstate(over="ignore"):
                want = np.matmul(x.astype(acc), y.astype(acc)).astype(out)
                p.expect("matmul(%x, %y)", want, ulp=1, atol=loose)
                if x.ndim > 1 and y.ndim > 1:
                    xt, yt = np.ascontiguousarray(np.swapaxes(x, -1, -2)), np.ascontiguousarray(np.swapaxes(y, -1, -2))
                    p.input("xt", xt)
                    p.input("yt", yt)
                    p.expect("matmul(%xt, %yt, transpose_a=true, transpose_b=true)", want, ulp=1, atol=loose)
            yield p


def einsum_programs(rng):
    cases = [("ij,jk->ik", (3, 4), (4, 5)), ("ij,jk", (3, 4), (4, 5)), ("ij,jk->ki", (3, 4), (4, 5)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
             ("ba,ca", (3, 4), (2, 4)), ("ii", (4, 4)), ("ii->i", (4, 4)), ("iij->ji", (3, 3, 5)), ("iji->j", (4, 3, 4)),
             ("iii->i", (3, 3, 3)), ("ijij->", (2, 3, 2, 3)), ("ijk->", (2, 3, 4)), ("ijk->kj", (2, 3, 4)), ("ba", (3, 4)),
             ("i,i", (5,), (5,)), ("i,j", (5,), (3,)), ("i,j->ji", (5,), (3,)), ("i,i->i", (5,), (5,)), (",ij", (), (2, 3)), ("->", ()),
             ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)), ("...ij,jk", (2, 3, 4), (4, 5)), ("i...,i...->...", (3, 2, 4), (3, 2, 4)),
             ("i...->...", (3, 2)), ("...", (2, 3)), ("...a->a...", (2, 3, 4)), ("ab...,b...->a...", (2, 3, 4), (3, 1)),
             ("ij,jk,kl->il", (3, 4), (4, 5), (5, 2)), ("ij,jk,ki->", (3, 4), (4, 5), (5, 3)), ("i,ij,j", (3,), (3, 4), (4,)),
             ("abc,cd,def->abef", (2, 3, 4), (4, 5), (5, 2, 3)), ("ijkl,klmn->ijmn", (2, 3, 4, 5), (4, 5, 3, 2)),
             ("ikjl,lmkn->imnj", (2, 4, 3, 5), (5, 3, 4, 2)), ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
             ("bqhd,bkhd->bhqk", (2, 4, 3, 5), (2, 6, 3, 5)), ("bhqk,bkhd->bqhd", (2, 3, 4, 6), (2, 6, 3, 5)),
             ("ijk,jil->kl", (3, 4, 5), (4, 3, 2)),
             ("abcd,ebfd->aecf", (9, 4, 17, 5), (3, 4, 18, 5)), ("aebf,dfce->abcd", (6, 5, 3, 8), (18, 8, 2, 5)),
             ("acxyz,zyxd->dac", (2, 9, 3, 4, 5), (5, 4, 3, 20)), ("ij,ij->", (3, 4), (3, 4)), ("ij,ij->i", (3, 4), (3, 4)), ("ij,kj->ijk", (3, 4), (2, 4)),
             ("ij,jk->ik", (3, 1), (4, 5)), ("ij,ij->ij", (3, 1), (1, 4)), ("ij,jk->ik", (0, 4), (4, 5)), ("ij,jk->ik", (3, 0), (0, 5)),
             (" i j , j k -> i k ", (3, 4), (4, 5)), ("Ab,bC->AC", (3, 4), (4, 5)), ("aij,bij,cij->abc", (2, 3, 4), (3, 3, 4), (2, 3, 4)),
             ("abcdefgh->hgfedcba", (2, 1, 2, 1, 2, 1, 2, 3)), ("abcdefgh,abcdefgh->abcdefgh", (2, 1, 2, 1, 2, 1, 2, 3), (2, 1, 2, 2, 2, 1, 2, 3)),
             ("ab,bc,cd,de,ef,fg,gh,hi,ij->aj",) + ((2, 2),) * 9, ("iij,jkk->ik", (3, 3, 4), (4, 2, 2)), ("ij,k->i", (2, 3), (4,))]
    for t in FLOATS + ["i32", "i8", "u16"]:
        p = Program("einsum-" + t)
        for i, (subscripts, *shapes) in enumerate(cases):
            if t in FLOATS:
                x = [rng.uniform(-1, 1, size=s).astype(TYPES[t]) for s in shapes]
                out, acc = np.dtype(TYPES[t]), wide(t)
            else:
                x = [rng.integers(np.iinfo(TYPES[t]).min, np.iinfo(TYPES[t]).max, s, dtype=TYPES[t], endpoint=True) for s in shapes]
                out, acc = np.dtype("<i4" if t == "i8" else "<i8"), np.int64
            for k, v in enumerate(x):
                p.input(f"x{i}_{k}", v)
            with np.errstate(over="ignore"):
                want = np.asarray(np.einsum(subscripts, *(v.astype(acc) for v in x))).astype(out)
            loose = {"f16": 2e-3, "f32": 2e-6, "f64": 1e-13}.get(t, 0)
            p.expect(f'einsum("{subscripts}", ' + ", ".join(f"%x{i}_{k}" for k in range(len(x))) + ")", want, ulp=1, atol=loose)
        yield p


def convolution(x, w, bias, strides, pads, dilations, groups):
    """By windows of the padded operand; spatial axes as there are."""
    n = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + [(pads[i], pads[n + i]) for i in range(n)])
    span = [(w.shape[2 + i] - 1) * dilations[i] + 1 for i in range(n)]
    seen = np.lib.stride_tricks.sliding_window_view(x, span, axis=tuple(range(2, 2 + n)))
    seen = seen[(slice(None), slice(None)) + tuple(slice(None, None, s) for s in strides) + tuple(slice(None, None, d) for d in dilations)]
    parts = []
    for g in range(groups):
        taken, made = w.shape[1], w.shape[0] // groups
        parts.append(np.tensordot(seen[:, g * taken:(g + 1) * taken], w[g * made:(g + 1) * made],
                                  axes=([1] + list(range(2 + n, 2 + 2 * n)), list(range(1, 2 + n)))))
    y = np.moveaxis(np.concatenate(parts, axis=-1), -1, 1)
    return y + bias.reshape((-1,) + (1,) * n)


def conv_programs(rng):
    cases = [((2, 3, 9), (4, 3, 3), [1], [0, 0], [1], 1), ((2, 3, 9, 20), (5, 3, 3, 3), [1, 1], [1, 1, 1, 1], [1, 1], 1),
             ((1, 4, 12, 37), (6, 2, 3, 2), [2, 2], [1, 0, 2, 1], [1, 2], 2), ((2, 6, 8, 18), (12, 1, 3, 3), [1, 1], [1, 1, 1, 1], [1, 1], 6),
             ((1, 70, 7, 9), (17, 70, 3, 3), [1, 1], [1, 1, 1, 1], [1, 1], 1), ((1, 2, 5, 6, 20), (3, 2, 2, 3, 3), [1, 2, 1], [0, 1, 1, 1, 0, 1], [1, 1, 1], 1),
             ((2, 3, 10, 30), (4, 3, 3, 3), [3, 3], [0, 0, 0, 0], [1, 1], 1), ((3, 5, 6, 40), (8, 5, 1, 1), [1, 1], [0, 0, 0, 0], [1, 1], 1)]
    for t in FLOATS + ["i8", "i32"]:
        p = Program("conv-" + t)
        for i, (a, b, strides, pads, dilations, groups) in enumerate(cases):
            if t in FLOATS:
                x, w, bias = (rng.uniform(-1, 1, size=s).astype(TYPES[t]) for s in (a, b, b[:1]))
                out, acc = x.dtype, wide(t)
            else:
                out, acc = np.dtype("<i4" if t == "i8" else "<i8"), np.int64
                x, w = (rng.integers(-100, 100, s).astype(TYPES[t]) for s in (a, b))
                bias = rng.integers(-1000, 1000, b[:1]).astype(out)
            for name, v in ((f"x{i}", x), (f"w{i}", w), (f"b{i}", bias)):
                p.input(name, v)
            want = convolution(x.astype(acc), w.astype(acc), bias.astype(acc), strides, pads, dilations, groups).astype(out)
            loose = {"f16": 4e-3, "f32": 2e-5, "f64": 1e-12}.get(t, 0)
            p.expect(f"conv(%x{i}, %w{i}, %b{i}, strides={strides}, pads={pads}, dilations={dilations}, groups={groups})", want, ulp=1, atol=loose)
        yield p


def view_programs(rng):
    p = Program("views")
    x = rng.integers(-100, 100, (2, 3, 4)).astype("<i4")
    p.input("x", x)
    p.input("f", np.asfortranarray(x))
    p.input("swapped", x)
    for perm in itertools.permutations(range(3)):
        p.expect(f"transpose(%f, perm=[{', '.join(str(v) for v in perm)}])", np.transpose(x, perm))
    p.expect("transpose(%x)", x.T)
    p.expect("reshape(%x, shape=[4, -1])", x.reshape(4, 6))
    p.expect("broadcast_to(%x, shape=[5, 2, 3, 4])", np.broadcast_to(x, (5, 2, 3, 4)))
    p.expect("unsqueeze(%x, axes=[0, -1])", x[None, ..., None])
    p.expect("iota(shape=[3, 4], axis=1, dtype=f32)", np.tile(np.arange(4, dtype="<f4"), (3, 1)))
    p.expect("full(-7, shape=[2, 2], dtype=i16)", np.full((2, 2), -7, dtype="<i2"))
    p.expect("dim(%x, axis=1)", np.array(3, dtype="<i8"))
    yield p
    p = Program("broadcast")
    for name, shape in {"a": (3, 1, 4), "b": (5, 1), "c": (), "d": (1, 1, 1), "e": (3, 5, 4)}.items():
        p.input(name, rng.normal(size=shape).astype("<f4"))
    for m, n in itertools.combinations("abcde", 2):
        p.expect(f"sub(%{m}, %{n})", p.inputs[m] - p.inputs[n])
    yield p


def philox(seed, groups):
    """Words of Philox 4x32-10: an array [groups, 4]."""
    mask = np.uint64(0xFFFFFFFF)
    g = np.arange(groups, dtype=np.uint64)
    c = [g & mask, g >> np.uint64(32), np.zeros_like(g), np.zeros_like(g)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(key[0]), b & mask,
             (a >> np.uint64(32)) ^ c[3] ^ np.uint64(key[1]), a & mask]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, axis=1)


def random_programs(_):
    p = Program("random")
    for seed in (0, 7, 2 ** 64 - 1):
        w = philox(seed, 30)
        f32 = ((w >> np.uint64(8)).astype("<f8") * 2.0 ** -24).reshape(-1)
        f64 = ((w[:, ::2] >> np.uint64(5)).astype("<f8") * 2.0 ** 26 + (w[:, 1::2] >> np.uint64(6)).astype("<f8")) * 2.0 ** -53
        f64 = f64.reshape(-1)
        for name, u in (("f32", f32), ("f64", f64), ("f16", f32)):
            n = u.size - 3
            radius, turn = np.sqrt(-2 * np.log1p(-u[::2])), 2 * np.pi * u[1::2]
            normal = np.stack([radius * np.cos(turn), radius * np.sin(turn)], axis=1).reshape(-1)
            p.expect(f"random_uniform(shape=[{n}], seed={seed}, dtype={name})", u[:n].astype("<f4" if name == "f16" else TYPES[name])
                     .astype(TYPES[name]))
            p.expect(f"random_normal(shape=[3, {n // 3}], seed={seed}, dtype={name})",
                     normal[:n // 3 * 3].reshape(3, -1).astype("<f4" if name == "f16" else TYPES[name]).astype(TYPES[name]),
                     ulp=1 if name == "f16" else 4, atol=1e-7)
    yield p


def move_programs(rng):
    big, least = 2**63 - 1, -2**63
    for t in ["f32", "f16", "i64", "u8", "bool"]:
        p = Program(f"move {t}")
        x, y = rng.integers(0, 2 if t == "bool" else 100, (5, 7)), rng.integers(0, 2 if t == "bool" else 100, (5, 3))
        x, y = x.astype(TYPES[t]), y.astype(TYPES[t])
        k, m = rng.integers(-5, 5, (2, 3)), rng.integers(-7, 7, (5, 4)).astype("<i4")
        for name, array in (("x", x), ("y", y), ("k", k), ("m", m)):
            p.input(name, array)
        for start, end, step in itertools.product([0, 2, -3, 9, -9, least, big], [0, 4, -1, -2, 9, -9, least, big],
                                                  [1, 2, -1, -3]):
            # NumPy starts behind the front for a start before it, which ONNX clamps to the first element.
            if step < 0 and start < -5:
                continue
            last = None if step < 0 and end < -5 else end
            p.expect(f"slice(%x, starts=[{start}], ends=[{end}], steps=[{step}])", x[start:last:step])
        p.expect("slice(%x, starts=[1, 6], ends=[4, 0], steps=[1, -2], axes=[0, 1])", x[1:4, 6:0:-2])
        p.expect("flip(%x, axes=[1])", np.flip(x, 1))
        p.expect("flip(%x, axes=[0, -1])", np.flip(x))
        p.expect("pad(%x, pads=[1, 2, 3, 0])", np.pad(x, ((1, 3), (2, 0))))
        p.expect(f"pad(%x, pads=[0, 2, 1, 1], value={'true' if t == 'bool' else 9})",
                 np.pad(x, ((0, 1), (2, 1)), constant_values=9))
        p.expect("pad(%x, pads=[2, 9, 0, 1], mode=edge)", np.pad(x, ((2, 0), (9, 1)), mode="edge"))
        p.expect("pad(%x, pads=[4, 6, 4, 6], mode=reflect)", np.pad(x, ((4, 4), (6, 6)), mode="reflect"))
        p.expect("pad(%x, pads=[12, 3, 11, 20], mode=wrap)", np.pad(x, ((12, 11), (3, 20)), mode="wrap"))
        p.expect("pad(%x, pads=[-1, 2, 3, -2])", np.pad(x[1:, :-2], ((0, 3), (2, 0))))
        p.expect("concat(%x, %y, %x, axis=1)", np.concatenate([x, y, x], 1))
        p.expect("tile(%x, repeats=[2, 3])", np.tile(x, (2, 3)))
        p.expect("tril(%x)", np.tril(x))
        p.expect("triu(%x, k=-2)", np.triu(x, -2))
        p.expect("take(%x, %k)", np.take(x, k, 0))
        p.expect("take(%x, %m, axis=1)", np.take(x, m, 1))
        p.expect("take(%x, -2, axis=1)", np.take(x, -2, 1))
        p.expect("take_along(%x, %m, axis=-1)", np.take_along_axis(x, m.astype("<i8"), -1))
        p.expect("one_hot(%k, depth=4, dtype=u8)", (k[..., None] == np.arange(4)).astype("|u1"))
        yield p
    p = Program("scatter")
    x, u = rng.integers(-9, 9, (4, 6)).astype("<f4"), rng.integers(-9, 9, (3, 5)).astype("<f4")
    k = rng.integers(-4, 4, (3, 5))
    for name, array in (("x", x), ("u", u), ("k", k)):
        p.input(name, array)
    rows, columns = k % 4, np.broadcast_to(np.arange(5), k.shape)
    for mode, at in {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}.items():
        want = x.copy()
        at.at(want, (rows, columns), u)
        p.expect(f"scatter(%x, %k, %u, axis=0, mode={mode})", want)
    want = x.copy()
    for i, j in np.ndindex(k.shape):
        want[rows[i, j], j] = u[i, j]
    p.expect("scatter(%x, %k, %u, axis=0)", want)
    yield p


def cell_programs(rng):
    """Recurrent cells by their formulas in the gate order of PyTorch, in a wider type; torch itself where it is there."""
    try:
        import torch
    except ImportError:
        torch = None

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    for t, (lead, biases) in itertools.product(FLOATS, [((3,), True), ((), False), ((2, 5), True)]):
        p = Program(f"cells {t} {len(lead)}")
        features, hidden = 7, 5
        x, h, c = (rng.uniform(-1, 1, lead + (n,)).astype(TYPES[t]) for n in (features, hidden, hidden))
        for name, array in (("x", x), ("h", h), ("c", c)):
            p.input(name, array)
        x, h, c = x.astype(wide(t)), h.astype(wide(t)), c.astype(wide(t))
        slack = {"f64": 1e-14, "f32": 4e-6, "f16": 2e-3}[t]
        weights = {}
        for kind, gates in (("rnn", 1), ("gru", 3), ("lstm", 4)):
            shapes = [(gates * hidden, features), (gates * hidden, hidden)] + [(gates * hidden,)] * (2 if biases else 0)
            arrays = [rng.uniform(-1, 1, s).astype(TYPES[t]) for s in shapes]
            for i, array in enumerate(arrays):
                p.input(f"{kind}{i}", array)
            wide_arrays = [a.astype(wide(t)) for a in arrays] + [0] * (0 if biases else 2)
            weights[kind] = [", ".join(f"%{kind}{i}" for i in range(len(arrays))), wide_arrays, arrays]
        text, (w, u, b, d), _ = weights["rnn"]
        s = x @ w.T + b + h @ u.T + d
        narrow = np.dtype(TYPES[t])
        p.expect(f"rnn_cell(%x, %h, {text})", np.tanh(s).astype(narrow), atol=slack)
        p.expect(f"rnn_cell(%x, %h, {text}, activation=relu)", np.maximum(s, 0).astype(narrow), atol=slack)
        text, (w, u, b, d), arrays = weights["gru"]
        q = (h @ u.T + d)
        (xr, xz, xn), (hr, hz, hn) = (np.split(v, 3, axis=-1) for v in (x @ w.T + b, q))
        r, z = sigmoid(xr + hr), sigmoid(xz + hz)
        p.expect(f"gru_cell(%x, %h, {text})", ((1 - z) * np.tanh(xn + r * hn) + z * h).astype(narrow), atol=slack)
        n = np.tanh(xn + (r * h) @ u[2 * hidden:].T + (d[2 * hidden:] if biases else 0))
        p.expect(f"gru_cell(%x, %h, {text}, linear_before_reset=false)", ((1 - z) * n + z * h).astype(narrow), atol=slack)
        if torch and t != "f16" and lead == (3,):
            of = torch.gru_cell(*(torch.from_numpy(a) for a in (p.inputs["x"], p.inputs["h"], *arrays)))
            p.expect(f"gru_cell(%x, %h, {text})", of.numpy(), atol=slack)
        text, (w, u, b, d), arrays = weights["lstm"]
        i, f, g, o = np.split(x @ w.T + b + h @ u.T + d, 4, axis=-1)
        state = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        p.expect(f"lstm_cell(%x, %h, %c, {text})", [(sigmoid(o) * np.tanh(state)).astype(narrow), state.astype(narrow)], atol=slack)
        if torch and t != "f16" and lead == (3,):
            given = [torch.from_numpy(a) for a in (p.inputs["x"], p.inputs["h"], p.inputs["c"], *arrays)]
            both = torch.lstm_cell(given[0], (given[1], given[2]), *given[3:])
            p.expect(f"lstm_cell(%x, %h, %c, {text})", [v.numpy() for v in both], atol=slack)
        yield p


# ---- running --------------------------------------------------------------------------------------------------------
def save(path, name, array):
    if name == "swapped":
        array = array.astype(array.dtype.newbyteorder(">"))
    elif name == "f":
        array = np.asfortranarray(array)
    np.save(path, array)


def run(options, program, folder):
    """Failures of one program, as lines of text."""
    source = os.path.join(folder, "program.fusor")
    with open(source, "w", encoding="utf-8") as f:
        f.write(program.text())
    command = [options.fusor, "run", "--device", options.device, source]
    for name, array in program.inputs.items():
        path = os.path.join(folder, name + ".npy")
        save(path, name, array)
        command.append(f"{name}={path}")
    command += ["-o", os.path.join(folder, "out") + "/"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        return [f"exit status {done.returncode}: {done.stderr.strip()}"]
    failures = []
    for i, (expression, want, ulp, atol, rtol) in enumerate(program.results):
        got = np.load(os.path.join(folder, "out", f"r{i}.npy"))
        if got.dtype != want.dtype or got.shape != want.shape:
            failures.append(f"{expression}: {type_of(got)}; expected {type_of(want)}")
            continue
        with np.errstate(all="ignore"):
            close = distance(got, want) <= ulp
            if ulp == 0 and got.dtype.kind == "f":          # exact operators: zeros have their sign
                zero = (got == 0) & (want == 0)
                close = close and np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))
            if not close and (atol or rtol):
                slack = atol + rtol * np.abs(want) + ulp * np.abs(np.spacing(want))
                close = bool(np.all((np.abs(got - want) <= slack) | (np.isnan(got) & np.isnan(want)) | (got == want)))
        if not close:
            with np.errstate(all="ignore"):
                bad = np.flatnonzero(~((got == want) | ((got != got) & (want != want))).reshape(-1))
            if not bad.size:
                bad = np.flatnonzero(np.signbit(got) != np.signbit(want))
            at = int(bad[0])
            failures.append(f"{expression}: off by {distance(got, want):.3g} ULP; element {at} is "
                            f"{got.reshape(-1)[at]!r}, expected {want.reshape(-1)[at]!r}; inputs "
                            + ", ".join(repr(a.reshape(-1)[at]) for a in program.inputs.values() if a.size > at))
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fusor", default=os.environ.get("FUSOR", "fusor"))
    parser.add_argument("--device", default="reference")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    if shutil.which(options.fusor) is None:
        print(f"oracle: skipped: there is no command {options.fusor}")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    passed = failed = 0
    for make in (unary_programs, binary_programs, int_programs, cast_programs, reduce_programs,
                 matmul_programs, einsum_programs, conv_programs, view_programs, random_programs, move_programs, cell_programs):
        for program in make(np.random.default_rng(options.seed)):
            if options.words and not any(w in program.name for w in options.words):
                continue
            with tempfile.TemporaryDirectory(prefix="fusor-oracle-") as folder:
                failures = run(options, program, folder)
            failed += len(failures)
            passed += max(0, len(program.results) - len(failures))
            for line in failures:
                print(f"oracle: {program.name} (seed {options.seed}): {line}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
