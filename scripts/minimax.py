#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the polynomial coefficients of src/jit/math_*.c and math64_*.c. Needs mpmath (gmpy2 makes it ten times as fast).

usage: minimax.py [NAME ...]      (all tables when none is named)

Each table is a minimax fit of g(x) by x^shift * P(x^step) on a Chebyshev grid, relative to weight(x): least squares,
made nearly minimax by Lawson's reweighting (the exchange algorithm does not converge where rounded coefficients leave
an error at 0). Coefficients are rounded to float (24 bits) or double (53) one after the other, lowest first, and the
rest is fitted anew after each, so that later ones make up for the rounding of earlier ones. The tables of f64 functions
(names in 64) have the first three treated so, or more where the argument goes up to 1: what the rounding of the others
leaves is far below 2^-53, because their powers are small. The error given is the largest one after rounding."""
import re
import sys
from mpmath import (mp, mpf, matrix, lu_solve, exp, expm1, log, log1p, sin, cos, tan, asin, atan, sinh, tanh, erf, erfc,
                    sqrt, pi)

mp.dps = 50
LN2 = log(mpf(2))


def rounded(v, bits):
    m, e = mp.frexp(v)
    return mp.ldexp(mp.nint(mp.ldexp(m, bits)), int(e) - bits)


def minimax(basis, target, weight, n, rounds=24):
    """basis[j][i], target[i], weight[i] on a grid; returns n coefficients."""
    size, lawson = len(target), [mpf(1)] * len(target)
    kept, kept_peak = None, mpf("inf")
    for _ in range(rounds):
        a, b = matrix(n, n), matrix(n, 1)
        v = [l * w * w for l, w in zip(lawson, weight)]
        for j in range(n):
            row = [p * q for p, q in zip(basis[j], v)]
            b[j] = mp.fdot(row, target)
            for k in range(j, n):
                a[j, k] = a[k, j] = mp.fdot(row, basis[k])
        c = lu_solve(a, b)
        err = [abs(target[i] - mp.fdot((c[j], basis[j][i]) for j in range(n))) * weight[i] for i in range(size)]
        peak = max(err)
        if peak < kept_peak:
            kept, kept_peak = [c[j] for j in range(n)], peak
        lawson = [l * (x / peak + mpf("1e-6")) for l, x in zip(lawson, err)]
        total = sum(lawson) / size
        lawson = [l / total for l in lawson]
    return kept


def chebyshev(lo, hi, points):
    return [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(pi * (i + mpf(1) / 2) / points) for i in range(points)]


def fit_rounded(powers, target, weight, bits, one_by_one, rounds):
    """powers[j][i], target[i], weight[i] on a grid; returns rounded coefficients, and what they leave of the target."""
    done = []
    while len(done) < len(powers):
        j = len(done)
        c = minimax(powers[j:], target, weight, len(powers) - j, rounds)
        for v in c if one_by_one is not None and j >= one_by_one else c[:1]:
            target = [t - rounded(v, bits) * p for t, p in zip(target, powers[len(done)])]
            done.append(rounded(v, bits))
    return done, target


def fit(name, g, lo, hi, n, weight, shift=0, step=1, bits=24, points=None, one_by_one=None):
    """one_by_one: how many coefficients are rounded before the rest is fitted; None: all."""
    lo, hi, points = mpf(lo), mpf(hi), points or max(120, 12 * n)
    xs = [x for x in chebyshev(lo, hi, points) if abs(x) > mpf(2) ** -30]
    target, w = [g(x) for x in xs], [1 / abs(weight(x)) for x in xs]
    powers = [[x ** (shift + step * j) for x in xs] for j in range(n)]
    done, target = fit_rounded(powers, target, w, bits, one_by_one, 24 if one_by_one is None else 12)
    worst = max(abs(t * v) for t, v in zip(target, w))
    text = [re.sub(r"\.?0*p", "p", float(c).hex()) + ("f" if bits == 24 else "") for c in done]
    print("/* %s: error 2^%.1f */" % (name, float(mp.log(worst, 2))))
    print("static const %s %s[%d] = {" % ("float" if bits == 24 else "double", name, n))
    for i in range(0, n, 3):
        print("    " + " ".join(t + "," for t in text[i:i + 3]))
    print("};")
    sys.stdout.flush()


def print_pieces(name, worst, rows, columns, pieces="PIECES"):
    print("/* %s: error 2^%.1f */" % (name, float(mp.log(worst, 2))))
    print("static const float %s[%s][%s] = {" % (name, columns, pieces))
    for column in zip(*rows):
        text = [re.sub(r"\.?0*p", "p", float(v).hex()) + "f" if v else "0" for v in column]
        print("    {" + ",\n     ".join(", ".join(text[i:i + 4]) for i in range(0, len(text), 4)) + "},")
    print("};")
    sys.stdout.flush()


def fit_pieces(name, f, top, weight):
    """f(a) = ((c5 h + c4) h + ...) h + c0, h = a - center, in 32 pieces: four an octave from 2^-4 on, the first one
    from 0 on, numbered by the five bits of the float a that tell them apart; from top on a constant. A center is
    near the middle of its piece, where c0 is almost a float, so that its rounding does not count; that of the first is 0."""
    rows, worst = [None] * 32, mpf(0)
    for i in range(32):
        octave, part = i // 4 - 4, i % 4
        lo, hi = (1 + mpf(part) / 4) * mpf(2) ** octave, (1 + mpf(part + 1) / 4) * mpf(2) ** octave
        if i == 0:
            lo = mpf(0)
        number = ((octave + 127) * 4 + part) & 31
        if lo >= top:
            rows[number] = [lo, rounded(f(lo), 24)] + [mpf(0)] * 5
            continue
        middle = rounded((lo + hi) / 2, 24)
        if i == 0:
            center, c0 = mpf(0), rounded(f(mpf(0)), 24)
            c = mp.chebyfit(lambda h: (f(h) - c0) / h if abs(h) > mpf(2) ** -40 else mp.diff(f, 0), [lo, hi], 5)
        else:
            p = mp.chebyfit(lambda h: f(middle + h), [lo - middle, hi - middle], 6)
            value = lambda k: mp.polyval(p, k * mpf(2) ** (octave - 23))
            k = min(range(-200, 200), key=lambda k: abs(value(k) / rounded(value(k), 24) - 1))
            center, c0 = middle + k * mpf(2) ** (octave - 23), rounded(value(k), 24)
            c = mp.chebyfit(lambda h: f(center + h), [lo - center, hi - center], 6)[:5]
        c = [rounded(v, 24) for v in reversed(c)]
        rows[number] = [center, c0] + c
        for k in range(1, 41):
            h = lo - center + (hi - lo) * k / 40
            worst = max(worst, abs((mp.polyval(list(reversed([c0] + c)), h) - f(center + h)) / weight(center + h)))
    print_pieces(name, worst, rows, "COLUMNS")


def fit_quarters(name, f, n):
    """f(a) = (.. (c[n - 1] h + c[n - 2]) h + ..) h + c[0], h = a - i / 4, in 32 pieces: number i from i / 4 - 1/8 to
    i / 4 + 1/8. The last one is 0. Errors count as those of a f(a)."""
    rows, worst = [], mpf(0)
    for i in range(31):
        center, lo, hi = mpf(i) / 4, mpf(-1) / 8 if i else mpf(0), mpf(1) / 8
        rows.append([rounded(v, 24) for v in reversed(mp.chebyfit(lambda h: f(center + h), [lo, hi], n))])
        for k in range(41):
            h = lo + (hi - lo) * k / 40
            worst = max(worst, abs((mp.polyval(list(reversed(rows[i])), h) - f(center + h)) * (center + h)))
    rows.append([mpf(0)] * n)
    print_pieces(name, worst, rows, "QUARTER_COLUMNS")


def fit_fours(name, f, n):
    """f(a) = (.. (c[n - 1] h + c[n - 2]) h + ..) h + c[0], h = a - (i + 1) w, in 4 pieces, number i from i w to (i + 1) w,
    with w = 93 / 64. c[0] of the last one is 0, so that f(4 w) is exactly 0, and f(a) - f(4 w) is what it fits.
    Errors count as those of a f(a), below 1 as those of f(a), so that tiny a have few, and in the last piece by
    1 / (100 sqrt(f(a))) more, so that none changes its sign."""
    rows, worst, w = [], mpf(0), mpf(93) / 64
    for i in range(4):
        h, end = chebyshev(-w, mpf(0), 120), (i + 1) * w
        first = 1 if i == 3 else 0
        g = [f(end + x) - first * f(end) for x in h]
        weight = [max(end + x, mpf(1)) + first / (100 * sqrt(f(end + x))) for x in h]
        c, left = fit_rounded([[x ** j for x in h] for j in range(first, n)], g, weight, 24, None, 12)
        rows.append([mpf(0)] * first + c)
        worst = max([worst] + [abs(t * (end + x)) for t, x in zip(left, h)])
    print_pieces(name, worst, rows, "FOURS_COLUMNS", "FOURS")


def fit64(name, g, lo, hi, n, weight, shift=0, step=1, one_by_one=3):
    fit(name, g, lo, hi, n, weight, shift, step, bits=53, one_by_one=one_by_one)


def fit_ratio(name, g, hi, n, m, points=160, rounds=30):
    """g(x) = x P(x^2) / Q(x^2) on (0, hi], relative to g; n coefficients of P, m of Q, whose first is 1. Weighted by the
    last denominator the problem is linear; coefficients are rounded at the end."""
    hi = mpf(hi)
    xs = [hi / 2 - hi / 2 * mp.cos(pi * (i + mpf(1) / 2) / points) for i in range(points)]
    target, lawson, q = [g(x) for x in xs], [mpf(1)] * points, [mpf(1)] * points
    basis = [[x ** (2 * j + 1) / y for x, y in zip(xs, target)] for j in range(n)]
    basis += [[-x ** (2 * j) for x in xs] for j in range(1, m)]
    best = None
    for _ in range(rounds):
        size = n + m - 1
        a, b, v = matrix(size, size), matrix(size, 1), [l / w ** 2 for l, w in zip(lawson, q)]
        for j in range(size):
            row = [p * w for p, w in zip(basis[j], v)]
            b[j] = sum(row)
            for k in range(j, size):
                a[j, k] = a[k, j] = mp.fdot(row, basis[k])
        c = lu_solve(a, b)
        kept = [rounded(c[j], 24) for j in range(size)]
        q = [1 + mp.fsum(kept[n + j - 1] * x ** (2 * j) for j in range(1, m)) for x in xs]
        p = [mp.fsum(kept[j] * basis[j][i] for j in range(n)) for i in range(points)]
        err = [abs(u / w - 1) for u, w in zip(p, q)]
        if best is None or max(err) < best[0]:
            best = (max(err), kept)
        lawson = [l * (x / max(err) + mpf("1e-6")) for l, x in zip(lawson, err)]
        total = sum(lawson) / points
        lawson = [l / total for l in lawson]
    text = [re.sub(r"\.?0*p", "p", float(v).hex()) + "f" for v in best[1]]
    text.insert(n, "0x1p+0f")
    print("/* %s: error 2^%.1f */" % (name, float(mp.log(best[0], 2))))
    for kind, part in (("p", text[:n]), ("q", text[n:])):
        print("static const float %s_%s[%d] = {%s};" % (name, kind, len(part), ", ".join(part)))
    sys.stdout.flush()


def log_ratio(s):                               # log((1 + s) / (1 - s))
    return log1p(2 * s / (1 - s))


def erfcx_flat(q):                              # (1 + 2 a) erfcx(a), nearly flat, of q = (a - 4) / (a + 4)
    a = 4 * (1 + q) / (1 - q)
    return (1 + 2 * a) * erfcx_scaled(a)


def erfcx_scaled(a):                            # erfc(a) * exp(a * a)
    return erfc(a) * exp(a * a)


def normal_tail(a):
    return erfc(a / sqrt(mpf(2))) / 2


def gelu_tanh_tail(a):                          # (1 - tanh(sqrt(2 / pi) (a + 0.044715 a^3))) / 2
    return 1 / (1 + exp(sqrt(8 / pi) * (a + mpf("0.044715") * a ** 3)))


def mills(a):                                   # upper tail of the normal distribution, times exp(a * a / 2)
    return erfc(a / sqrt(mpf(2))) / 2 * exp(a * a / 2)


def from_t(t, c):
    return (1 / t - 1) / c


H = "0.3466"                                    # ln(2) / 2 and a little
Q = "0.7855"                                    # pi / 4 and a little
TABLES = {
    "exp_p": lambda k: fit(k, lambda x: exp(x) - 1 - x, "-" + H, H, 5, exp, 2),
    "exp2_p": lambda k: fit(k, lambda x: mpf(2) ** x - 1, "-0.5", "0.5", 6, lambda x: mpf(2) ** x, 1),
    "weight_p": lambda k: fit(k, lambda x: mpf(2) ** x - 1, "0", "1", 5, lambda x: mpf(2) ** x, 1),
    "weight_near_p": lambda k: fit(k, lambda x: mpf(2) ** x - 1, "-0.5", "0.5", 5, lambda x: mpf(2) ** x, 1),
    "expm1_p": lambda k: fit(k, lambda x: expm1(x) - x, "-" + H, H, 6, expm1, 2),
    "tanh_p": lambda k: fit(k, lambda x: tanh(x) - x, "0", "0.55", 5, tanh, 3, 2),
    "tanh_pieces": lambda k: fit_pieces(k, tanh, 10, tanh),
    "erf_pieces": lambda k: fit_pieces(k, lambda a: erf(a) - a / 4, 4, erf),
    "gelu_quarters": lambda k: fit_quarters(k, normal_tail, 5),
    "gelu_tanh_quarters": lambda k: fit_quarters(k, gelu_tanh_tail, 5),
    "gelu_fours": lambda k: fit_fours(k, normal_tail, 9),
    "gelu_tanh_fours": lambda k: fit_fours(k, gelu_tanh_tail, 9),
    "exp2x_p": lambda k: fit(k, lambda x: exp(2 * x) - 1, "-0.1735", "0.1735", 6, lambda x: exp(2 * x), 1),
    "log_p": lambda k: fit(k, lambda x: log1p(x) - x + x * x / 2, "-0.25", "0.5", 8, log1p, 3),
    "log2_p": lambda k: fit(k, lambda x: log1p(x) / LN2, "-0.2930", "0.4143", 10, log1p, 1),
    "log10_p": lambda k: fit(k, lambda x: log1p(x) / log(mpf(10)), "-0.2930", "0.4143", 10, log1p, 1),
    "sin_p": lambda k: fit(k, lambda x: sin(x) - x, "0", Q, 3, sin, 3, 2),
    "cos_p": lambda k: fit(k, lambda x: cos(x) - 1 + x * x / 2, "0", Q, 3, cos, 4, 2),
    "tan_p": lambda k: fit(k, lambda x: tan(x) - x, "0", "0.82", 7, tan, 3, 2),    # near 2^20 r is off by as much
    "asin_p": lambda k: fit(k, lambda x: asin(x) - x, "0", "0.5", 5, asin, 3, 2),
    "atan_p": lambda k: fit(k, lambda x: atan(x) - x, "0", "1.01", 9, atan, 3, 2),     # 1.01: atan(1) rounds to pi/4
    "sinh_p": lambda k: fit(k, lambda x: sinh(x) - x, "0", "1", 4, sinh, 3, 2),
    "erf_p": lambda k: fit(k, lambda x: erf(x) - x, "0", "0.95", 7, erf, 1, 2),
    "erf_q": lambda k: fit(k, lambda x: log(erfc(x)) / LN2, "0.9", "4", 9, lambda x: 1 / erfc(x), 0),
    "gelu_p": lambda k: fit(k, lambda s: mills(from_t(s + mpf("0.5"), mpf("0.5"))) / (s + mpf("0.5")),
                            1 / (1 + mpf("14.6") / 2) - mpf("0.5"), "0.5", 12,
                            lambda s: mills(from_t(s + mpf("0.5"), mpf("0.5"))) / (s + mpf("0.5"))),
    "gelu_log": lambda k: fit(k, lambda a: log(normal_tail(a)) / LN2, "0", "13.2", 13,
                              lambda a: min(mpf(2) ** 11, max(1, 1 / (a * normal_tail(a)))), points=160),
    "exp2_d": lambda k: fit(k, lambda x: mpf(2) ** x - 1, "-0.5", "0.5", 8, lambda x: mpf(2) ** x, 1, bits=53),
    "log_d": lambda k: fit(k, lambda x: log1p(x) - x, "-0.25", "0.5", 14, log1p, 2, bits=53),
    "sin_d": lambda k: fit(k, lambda x: sin(x) - x, "0", Q, 4, sin, 3, 2, bits=53),
    "cos_d": lambda k: fit(k, lambda x: cos(x) - 1, "0", Q, 5, cos, 2, 2, bits=53),
    "erfcx_d": lambda k: fit(k, lambda t: erfcx_scaled(from_t(t, mpf("0.4"))), str(1 / (1 + mpf("4.08"))), "1", 14,
                             lambda t: erfcx_scaled(from_t(t, mpf("0.4"))), 1, bits=53),
    "fast_exp": lambda k: fit(k, exp, "-" + H, H, 5, exp),
    "fast_exp2": lambda k: fit(k, lambda x: mpf(2) ** x, "-0.5", "0.5", 5, lambda x: mpf(2) ** x),
    "fast_expm1": lambda k: fit(k, lambda x: expm1(x) - x, "-" + H, H, 4, expm1, 2),
    "fast_log": lambda k: fit(k, log1p, "-0.25", "0.5", 7, log1p, 1),
    "fast_log2": lambda k: fit(k, lambda x: log1p(x) / LN2, "-0.25", "0.5", 7, log1p, 1),
    "fast_log10": lambda k: fit(k, lambda x: log1p(x) / log(mpf(10)), "-0.25", "0.5", 7, log1p, 1),
    "fast_softplus": lambda k: fit(k, log1p, "0", "1", 7, log1p, 1),
    "fast_sin": lambda k: fit(k, lambda x: sin(x) - x, "0", "1.5709", 3, sin, 3, 2),
    "fast_gelu": lambda k: fit(k, lambda s: mills(from_t(s + mpf("0.5"), mpf("0.5"))) / (s + mpf("0.5")),
                               1 / (1 + mpf("14.6") / 2) - mpf("0.5"), "0.5", 9,
                               lambda s: mills(from_t(s + mpf("0.5"), mpf("0.5"))) / (s + mpf("0.5"))),
    "fast_erfc": lambda k: fit(k, lambda t: erfcx_scaled(from_t(t, mpf("0.4"))), str(1 / (1 + mpf("4.08"))), "1", 8,
                               lambda t: erfcx_scaled(from_t(t, mpf("0.4"))), 1),
    "fast_cbrt": lambda k: fit(k, lambda d: 1 / mp.cbrt(1 + d), "-0.1035", "0.1035", 5, lambda d: 1 / mp.cbrt(1 + d)),
    "fast_log_d": lambda k: fit(k, lambda x: log1p(x) - x, "-0.25", "0.5", 9, log1p, 2, bits=53),
    "fast_tanh": lambda k: fit_ratio(k, tanh, "9", 5, 4),
    "fast_erf": lambda k: fit_ratio(k, erf, "3.9", 5, 5),
    "exp_64": lambda k: fit64(k, lambda x: exp(x) - 1 - x, "-" + H, H, 10, exp, 2),
    "exp2_64": lambda k: fit64(k, lambda x: mpf(2) ** x - 1, "-0.5", "0.5", 11, lambda x: mpf(2) ** x, 1),
    "expm1_64": lambda k: fit64(k, lambda x: expm1(x) - x, "-" + H, H, 11, expm1, 2),
    "log_64": lambda k: fit64(k, lambda s: log_ratio(s) - 2 * s, "0", "0.2001", 8, log_ratio, 3, 2),
    "log_tail_64": lambda k: fit64(k, lambda s: log_ratio(s) - 2 * s - 2 * s ** 3 / 3, "0", "0.2001", 9, log_ratio, 5, 2),
    "sin_64": lambda k: fit64(k, lambda x: sin(x) - x, "0", Q, 6, sin, 3, 2),
    "cos_64": lambda k: fit64(k, lambda x: cos(x) - 1 + x * x / 2, "0", Q, 6, cos, 4, 2),
    "asin_64": lambda k: fit64(k, lambda x: asin(x) - x, "0", "0.5", 13, asin, 3, 2),
    "atan_64": lambda k: fit64(k, lambda x: atan(x) - x, "0", "0.4143", 11, atan, 3, 2),
    "sinh_64": lambda k: fit64(k, lambda x: sinh(x) - x, "0", "1", 7, sinh, 3, 2),
    "erf_64": lambda k: fit64(k, lambda x: erf(x) - x, "0", "0.95", 13, erf, 1, 2, one_by_one=7),
    "erfcx_64": lambda k: fit64(k, erfcx_flat, "-1", "0.746", 23, erfcx_flat, one_by_one=10),
    "cbrt_64": lambda k: fit64(k, lambda d: 1 / mp.cbrt(1 + d), "-0.135", "0.135", 6, lambda d: 1 / mp.cbrt(1 + d)),
}

if __name__ == "__main__":
    for table in sys.argv[1:] or TABLES:
        if table not in TABLES:
            sys.exit("minimax.py: no table %s; there are: %s" % (table, " ".join(TABLES)))
        TABLES[table](table)
