# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The workloads of peers.py: each a program of fusor and the same by torch, with the bytes that it must move and its operations."""
from collections import namedtuple

# group, name; inputs: [(dtype, shape, kind)], kind: normal, positive (0.5 to 1.5), scaled (small: sums stay small);
# text: of the function, with {0} {1} ... for the inputs' types; torch: (torch, F, inputs) -> result; bytes, flops: of a call
Workload = namedtuple("Workload", "group name inputs text torch bytes flops")
SIZE = {"f32": 4, "bf16": 2, "f16": 2, "i64": 8}


def count(shape):
    n = 1
    for s in shape: n *= s
    return n


def type_of(dtype, shape):
    return dtype + (f"[{', '.join(map(str, shape))}]" if shape else "")


def make(group, name, inputs, result, body, torch, flops=0, aliases=()):
    """result: (dtype, shape) or a list of them; body: statements with %0 %1 ... for inputs, ending in `return`."""
    results = result if isinstance(result, list) else [result]
    inputs = [i if len(i) == 3 else (*i, "normal") for i in inputs]
    heads = ", ".join(f"%a{k}: {type_of(d, s)}" for k, (d, s, _) in enumerate(inputs))
    aliases = dict(aliases)
    ends = ", ".join(type_of(d, s) + (f" alias %a{aliases[k]}" if k in aliases else "") for k, (d, s) in enumerate(results))
    moved = sum(SIZE[d] * count(s) for d, s, _ in inputs) + sum(SIZE[d] * count(s) for d, s in results)
    text = f"func @f({heads}) -> ({ends}) {{ {body} }}"
    return Workload(group, name, inputs, text, torch, moved, flops)


def attention(torch, F, x):
    return F.scaled_dot_product_attention(*x, is_causal=True)


def adam(torch, F, x):
    p, g, m, v = x
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)
    return p


def workloads(scale=1):
    """scale: sizes are divided by it where that is possible (tests)."""
    n, mb, w = max(1, (1 << 24) // scale), max(1, 8192 // scale), []
    small = scale > 1
    one = [("f32", (n,))]
    for t in ("f32",) if small else ("f32", "bf16"):
        w.append(make("elementwise", f"add {t}", [(t, (n,)), (t, (n,))], (t, (n,)), "%y = add(%a0, %a1) return %y",
                      lambda torch, F, x: x[0] + x[1]))
        w.append(make("elementwise", f"gelu {t}", [(t, (n,))], (t, (n,)), "%y = gelu(%a0) return %y", lambda torch, F, x: F.gelu(x[0])))
    w.append(make("elementwise", "exp", one, ("f32", (n,)), "%y = exp(%a0) return %y", lambda torch, F, x: torch.exp(x[0])))
    w.append(make("elementwise", "add 1000", [("f32", (1000,))] * 2, ("f32", (1000,)), "%y = add(%a0, %a1) return %y",
                  lambda torch, F, x: x[0] + x[1]))
    w.append(make("chains", "relu(a*b+c)", one * 3, ("f32", (n,)), "%t = mul(%a0, %a1) %s = add(%t, %a2) %y = relu(%s) return %y",
                  lambda torch, F, x: torch.relu(x[0] * x[1] + x[2])))
    w.append(make("chains", "tanh(a)*sigmoid(b)+c", one * 3, ("f32", (n,)),
                  "%t = tanh(%a0) %s = sigmoid(%a1) %p = mul(%t, %s) %y = add(%p, %a2) return %y",
                  lambda torch, F, x: torch.tanh(x[0]) * torch.sigmoid(x[1]) + x[2]))
    w.append(make("chains", "8 operators", [("f32", (n,), "positive")] * 2, ("f32", (n,)),
                  "%1 = add(%a0, %a1) %2 = mul(%1, %a0) %3 = sub(%2, 0.5) %4 = abs(%3) %5 = sqrt(%4) %6 = add(%5, %a1) "
                  "%7 = maximum(%6, 0.1) %8 = div(%7, 3.0) return %8",
                  lambda torch, F, x: torch.clamp_min(torch.sqrt(torch.abs((x[0] + x[1]) * x[0] - 0.5)) + x[1], 0.1) / 3.0))
    w.append(make("reductions", "sum", one, ("f32", ()), "%y = reduce_sum(%a0) return %y", lambda torch, F, x: x[0].sum()))
    w.append(make("reductions", "sum of rows", [("f32", (mb, 1024))], ("f32", (mb,)), "%y = reduce_sum(%a0, axes=[1]) return %y",
                  lambda torch, F, x: x[0].sum(1)))
    w.append(make("reductions", "max of columns", [("f32", (mb, 1024))], ("f32", (1024,)), "%y = reduce_max(%a0, axes=[0]) return %y",
                  lambda torch, F, x: x[0].amax(0)))
    w.append(make("reductions", "mean of squares", one * 2, ("f32", ()), "%d = sub(%a0, %a1) %q = square(%d) %m = reduce_mean(%q) return %m",
                  lambda torch, F, x: torch.mean((x[0] - x[1]) ** 2)))
    for rows in (256,) if small else (256, 1024, 4096):
        w.append(make("rows", f"log_softmax {rows}x10", [("f32", (rows, 10))], ("f32", (rows, 10)), "%y = log_softmax(%a0, axis=1) return %y",
                      lambda torch, F, x: F.log_softmax(x[0], 1)))
    w.append(make("rows", "softmax", [("f32", (mb, 1024))], ("f32", (mb, 1024)), "%y = softmax(%a0, axis=1) return %y",
                  lambda torch, F, x: F.softmax(x[0], 1)))
    w.append(make("rows", "layer_norm", [("f32", (mb, 1024)), ("f32", (1024,)), ("f32", (1024,))], ("f32", (mb, 1024)),
                  "%y = layer_norm(%a0, %a1, %a2) return %y", lambda torch, F, x: F.layer_norm(x[0], (1024,), x[1], x[2])))
    for k in (64,) if small else (256, 1024, 4096):
        flops = 2 * k ** 3
        for t in ("f32", "bf16", "f16"):
            if k == 256 and t == "f16": continue
            square = [(t, (k, k), "normal"), (t, (k, k), "scaled")]
            w.append(make("matmul", f"{k} {t}", square, (t, (k, k)), "%y = matmul(%a0, %a1) return %y",
                          lambda torch, F, x: x[0] @ x[1], flops))
        for t in ("f32", "bf16"):
            w.append(make("matmul", f"relu({k} + bias) {t}", [(t, (k, k), "normal"), (t, (k, k), "scaled"), (t, (k,), "normal")], (t, (k, k)),
                          "%h = matmul(%a0, %a1) %s = add(%h, %a2) %y = relu(%s) return %y",
                          lambda torch, F, x: torch.relu(torch.addmm(x[2], x[0], x[1])), flops))
    side = 64 if small else 4096
    w.append(make("moves", "transpose", [("f32", (side, side))], ("f32", (side, side)), "%y = transpose(%a0, perm=[1, 0]) return %y",
                  lambda torch, F, x: x[0].t().contiguous()))
    b, c, h = (1, 4, 12) if small else (32, 64, 56)
    w.append(make("images", "conv 3x3", [("f32", (b, c, h, h)), ("f32", (c, c, 3, 3), "scaled")], ("f32", (b, c, h, h)),
                  "%y = conv(%a0, %a1, pads=[1, 1, 1, 1]) return %y", lambda torch, F, x: F.conv2d(x[0], x[1], padding=1),
                  2 * b * c * c * h * h * 9))
    w.append(make("images", "max_pool 2x2", [("f32", (b, c, h, h))], ("f32", (b, c, h // 2, h // 2)),
                  "%y = max_pool(%a0, kernel=[2, 2], strides=[2, 2]) return %y", lambda torch, F, x: F.max_pool2d(x[0], 2)))
    w.append(make("optimizers", "adam, one tensor", [*one * 2, *[("f32", (n,), "positive")] * 2], [("f32", (n,))] * 3,
                  "%g1 = mul(%a1, 0.1) %m1 = mul(%a2, 0.9) %m = add(%m1, %g1) %q = square(%a1) %q1 = mul(%q, 0.001) %v1 = mul(%a3, 0.999) "
                  "%v = add(%v1, %q1) %r = sqrt(%v) %d = add(%r, 1e-8) %s = div(%m, %d) %u = mul(%s, 0.001) %p = sub(%a0, %u) return %p, %m, %v",
                  adam, aliases={0: 0, 1: 2, 2: 3}.items()))
    m, k = (1, 64) if small else (8, 4096)
    for t in ("f32",) if small else ("f32", "bf16"):
        w.append(make("skinny", f"{m}x{k}x{k} {t}", [(t, (m, k)), (t, (k, k), "scaled")], (t, (m, k)), "%y = matmul(%a0, %a1) return %y",
                      lambda torch, F, x: x[0] @ x[1], 2 * m * k * k))
    b, h, s, d = (1, 2, 32, 16) if small else (4, 16, 2048, 64)
    for t in ("f32",) if small else ("f32", "bf16"):
        w.append(make("attention", f"causal {s}x{d} {t}", [(t, (b, h, s, d))] * 3, (t, (b, h, s, d)),
                      "%y = attention(%a0, %a1, %a2, causal=true) return %y", attention, 2 * b * h * s * s * d))
    t, plain = "f32" if small else "bf16", lambda torch, F, x: F.scaled_dot_product_attention(*x)
    w.append(make("attention", f"{s}x{d} {t}", [(t, (b, h, s, d))] * 3, (t, (b, h, s, d)), "%y = attention(%a0, %a1, %a2) return %y",
                  plain, 4 * b * h * s * s * d))
    w.append(make("attention", f"mask {s}x{d} {t}", [(t, (b, h, s, d))] * 3 + [(t, (s, s))], (t, (b, h, s, d)),
                  "%y = attention(%a0, %a1, %a2, %a3) return %y", lambda torch, F, x: F.scaled_dot_product_attention(*x[:3], attn_mask=x[3]),
                  4 * b * h * s * s * d))
    w.append(make("attention", f"{2 * s}x{2 * d} {t}", [(t, (1, h, 2 * s, 2 * d))] * 3, (t, (1, h, 2 * s, 2 * d)),
                  "%y = attention(%a0, %a1, %a2) return %y", plain, 32 * h * s * s * d))
    for q, g, n, e in ((1, h, 2 * s, d), (1, h // 2, 2 * s, 2 * d)) if small else ((1, h, 4096, 64), (4, h, 4096, 64), (1, 4, 8192, 128)):
        w.append(make("decode", f"{q} of {n}x{e}, {h // g} heads a key {t}", [(t, (b, h, q, e))] + [(t, (b, g, n, e))] * 2, (t, (b, h, q, e)),
                      "%y = attention(%a0, %a1, %a2) return %y",
                      lambda torch, F, x: F.scaled_dot_product_attention(*x, enable_gqa=x[0].shape[1] != x[1].shape[1]), 4 * b * h * q * n * e))
    return w
