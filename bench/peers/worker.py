# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""worker.py PEER: one peer of `fusor bench`, in a process of its own. The command runs it; its text is part of the command.

Lines of JSON come on stdin, and each gets a line back: {"do": "open", ...} hands over a workload as the text of a fusor program with its
parameters and fusor's results in files; the worker builds the same in its system from the operators (a method each in the classes
below), compares, and answers {"ok": true} or {"skip": "why"}. {"do": "time", "ns": T} calls it for about T nanoseconds and answers
{"ns": mean of a call}. An operator that a system lacks, or that nobody has written down here, leaves the workload out."""
import ctypes, json, os, re, sys, time

try:
    ctypes.CDLL(None).prctl(1, 9)           # ends with the command, stopped or not
except (OSError, AttributeError):
    pass
THREADS = int(os.environ.get("FUSOR_BENCH_THREADS", "1"))


class Skip(Exception):
    pass


# ---- programs: func @f(%a: f32[N], const %b: f32[4]) -> f32[N] { %t = mul(%a, 2.0) return %t } ----
def number(word, size):
    """A size such as 2*N, or a number."""
    n = 1
    for part in word.split("*"):
        n *= size if part == "N" else float(part) if re.search(r"[.e]", part) else int(part)
    return n


def split(text):
    """At commas outside of brackets and strings."""
    parts, depth, start, quoted = [], 0, 0, False
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        quoted ^= c == '"'
        if c == "," and depth == 0 and not quoted:
            parts.append(text[start:i])
            start = i + 1
    return [p.strip() for p in parts + [text[start:]] if p.strip()]


def statements(program, size):
    """[(results, operator, operands: a name or a number, attributes)], names of what is returned"""
    body = program[program.index("{") + 1:program.rindex("}")]
    ops = []
    for m in re.finditer(r"((?:%\w+\s*,\s*)*%\w+)\s*=\s*(\w+)\(((?:[^()]|\([^()]*\))*)\)", body):
        names, args, attrs = [n.strip() for n in m[1].split(",")], [], {}
        for a in split(m[3]):
            if a[0] == '"':
                attrs["subscripts"] = a[1:-1]
            elif "=" in a:
                key, value = a.split("=", 1)
                value = value.strip()
                if value in ("true", "false"):
                    value = value == "true"
                elif value[0] == "[":
                    value = [number(v, size) for v in split(value[1:-1])]
                elif re.match(r"[-\d]", value):
                    value = number(value, size)
                attrs[key.strip()] = value
            else:
                args.append(a if a[0] == "%" else float(a))
        ops.append((names, m[2], args, attrs))
    return ops, [n.strip() for n in body[body.index("return") + 6:].split(",")]


def run(ops, returned, values, system):
    values = dict(values)
    for names, op, args, attrs in ops:
        fn = getattr(system, "op_" + op, None)
        if fn is None:
            raise Skip(f"no counterpart of {op} here")
        out = fn(*[values[a] if isinstance(a, str) else a for a in args], **attrs)
        for name, v in zip(names, out if isinstance(out, tuple) else (out,)):
            values[name] = v
    return tuple(values[r] for r in returned)


# ---- systems. The array API that NumPy and JAX share: ----
class Arrays:
    def __init__(self, np):
        self.np = np
    def op_add(self, x, y): return x + y
    def op_sub(self, x, y): return x - y
    def op_mul(self, x, y): return x * y
    def op_div(self, x, y): return x / y
    def op_abs(self, x): return self.np.abs(x)
    def op_sqrt(self, x): return self.np.sqrt(x)
    def op_square(self, x): return x * x
    def op_exp(self, x): return self.np.exp(x)
    def op_log(self, x): return self.np.log(x)
    def op_tanh(self, x): return self.np.tanh(x)
    def op_maximum(self, x, y): return self.np.maximum(x, y)
    def op_relu(self, x): return self.np.maximum(x, 0)
    def op_sigmoid(self, x): return 1 / (1 + self.np.exp(-x))
    def op_silu(self, x): return x / (1 + self.np.exp(-x))
    def op_reduce_sum(self, x, axes=None, keepdims=False): return self.np.sum(x, axis=axes and tuple(axes), keepdims=keepdims)
    def op_reduce_mean(self, x, axes=None, keepdims=False): return self.np.mean(x, axis=axes and tuple(axes), keepdims=keepdims)
    def op_reduce_max(self, x, axes=None, keepdims=False): return self.np.max(x, axis=axes and tuple(axes), keepdims=keepdims)
    def op_reduce_var(self, x, axes=None, keepdims=False): return self.np.var(x, axis=axes and tuple(axes), keepdims=keepdims)
    def op_argmax(self, x, axis): return self.np.argmax(x, axis=axis)
    def op_cumsum(self, x, axis): return self.np.cumsum(x, axis=axis)
    def op_transpose(self, x, perm=None): return self.np.transpose(x, perm)
    def op_concat(self, *x, axis): return self.np.concatenate(x, axis)
    def op_matmul(self, x, y):
        if x.dtype.itemsize == 1:
            raise Skip("no product of 8-bit integers with 32-bit sums here")
        return self.np.matmul(x, y)
    def op_einsum(self, *x, subscripts): return self.np.einsum(subscripts, *x, optimize=True)
    def op_softmax(self, x):
        e = self.np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)
    def op_log_softmax(self, x):
        y = x - x.max(-1, keepdims=True)
        return y - self.np.log(self.np.exp(y).sum(-1, keepdims=True))
    def op_layer_norm(self, x, g, b):
        y = x - x.mean(-1, keepdims=True)
        return y * (1 / self.np.sqrt((y * y).mean(-1, keepdims=True) + 1e-5)) * g + b
    def op_rms_norm(self, x, g): return x * (1 / self.np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)) * g
    def op_attention(self, q, k, v, causal=False):
        s = self.np.matmul(q, self.np.swapaxes(k, -1, -2)) * self.np.float32(q.shape[-1] ** -0.5)
        if causal:
            s = self.np.where(self.np.tril(self.np.ones(s.shape[-2:], bool)), s, self.np.float32("-inf"))
        return self.np.matmul(self.op_softmax(s), v)
    def window(self, x, kernel):
        n, c, h, w = x.shape
        return x.reshape(n, c, h // kernel[0], kernel[0], w // kernel[1], kernel[1])
    def op_max_pool(self, x, kernel, strides): return self.window(x, kernel).max((3, 5))
    def op_average_pool(self, x, kernel, strides): return self.window(x, kernel).mean((3, 5))
    def op_lstm_cell(self, x, h, c, w, u, b, d):
        i, f, g, o = self.np.split(x @ w.T + b + h @ u.T + d, 4, -1)
        c = self.op_sigmoid(f) * c + self.op_sigmoid(i) * self.np.tanh(g)
        return self.op_sigmoid(o) * self.np.tanh(c), c
    def op_gru_cell(self, x, h, w, u, b, d):
        (r, z, n), (s, y, m) = self.np.split(x @ w.T + b, 3, -1), self.np.split(h @ u.T + d, 3, -1)
        z = self.op_sigmoid(z + y)
        return (1 - z) * self.np.tanh(n + self.op_sigmoid(r + s) * m) + z * h
    def op_rnn_cell(self, x, h, w, u, b, d): return self.np.tanh(x @ w.T + b + h @ u.T + d)


class Numpy(Arrays):
    def __init__(self):
        import numpy
        super().__init__(numpy)
        self.version = numpy.__version__
    def op_transpose(self, x, perm=None): return self.np.ascontiguousarray(x.transpose(perm))
    def op_einsum(self, *x, subscripts): return self.np.ascontiguousarray(super().op_einsum(*x, subscripts=subscripts))
    def op_gelu(self, x):
        raise Skip("no error function here")
    def load(self, a, dtype): return a
    def prepare(self, ops, returned, values, const):
        return lambda: run(ops, returned, values, self)
    def array(self, x): return self.np.asarray(x)


class Jax(Arrays):
    def __init__(self):
        if THREADS == 1:
            os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        import jax, numpy
        super().__init__(jax.numpy)
        self.jax, self.numpy, self.version = jax, numpy, jax.__version__
    def op_gelu(self, x): return self.jax.nn.gelu(x, approximate=False)
    def op_matmul(self, x, y):
        if x.dtype.itemsize == 1:
            return self.jax.lax.dot(x, y, preferred_element_type=self.np.int32)
        return self.np.matmul(x, y)
    def op_conv(self, x, w, b, pads=(0, 0, 0, 0)):
        y = self.jax.lax.conv_general_dilated(x, w, (1, 1), [(pads[0], pads[2]), (pads[1], pads[3])], dimension_numbers=("NCHW", "OIHW", "NCHW"))
        return y + b[:, None, None]
    def load(self, a, dtype):
        x = self.np.asarray(a)
        return self.jax.lax.bitcast_convert_type(x, self.np.bfloat16) if dtype == "bf16" else x
    def prepare(self, ops, returned, values, const):
        fixed = {k: v for k, v in values.items() if k in const}
        free = {k: v for k, v in values.items() if k not in const}
        fn = self.jax.jit(lambda v: run(ops, returned, {**fixed, **v}, self))
        return lambda: self.jax.block_until_ready(fn(free))
    def array(self, x):
        if x.dtype == self.np.bfloat16:
            x = x.astype(self.np.float32)
        return self.numpy.asarray(x)


class Torch:
    def __init__(self):
        import numpy, torch
        torch.set_num_threads(THREADS)
        torch.set_grad_enabled(False)
        self.t, self.f, self.numpy, self.version = torch, torch.nn.functional, numpy, torch.__version__
        for name in ("abs", "sqrt", "square", "exp", "log", "tanh", "sigmoid", "relu"):
            setattr(self, "op_" + name, getattr(torch, name))
        self.op_silu, self.op_gelu = self.f.silu, self.f.gelu
    def op_add(self, x, y): return x + y
    def op_sub(self, x, y): return x - y
    def op_mul(self, x, y): return x * y
    def op_div(self, x, y): return x / y
    def op_maximum(self, x, y): return self.t.clamp_min(x, y) if isinstance(y, float) else self.t.maximum(x, y)
    def axes(self, x, axes): return list(range(x.ndim)) if axes is None else axes
    def op_reduce_sum(self, x, axes=None, keepdims=False): return self.t.sum(x, self.axes(x, axes), keepdim=keepdims)
    def op_reduce_mean(self, x, axes=None, keepdims=False): return self.t.mean(x, self.axes(x, axes), keepdim=keepdims)
    def op_reduce_max(self, x, axes=None, keepdims=False): return self.t.amax(x, self.axes(x, axes), keepdim=keepdims)
    def op_reduce_var(self, x, axes=None, keepdims=False): return self.t.var(x, self.axes(x, axes), correction=0, keepdim=keepdims)
    def op_argmax(self, x, axis): return self.t.argmax(x, axis)
    def op_cumsum(self, x, axis): return self.t.cumsum(x, axis)
    def op_transpose(self, x, perm=None): return x.permute(perm or list(range(x.ndim))[::-1]).contiguous()
    def op_concat(self, *x, axis): return self.t.cat(x, axis)
    def op_matmul(self, x, y):
        if x.dtype == self.t.uint8:
            raise Skip("no product of u8 and i8 here")
        return self.t.matmul(x, y)
    def op_einsum(self, *x, subscripts): return self.t.einsum(subscripts, *x).contiguous()
    def op_softmax(self, x): return self.f.softmax(x, -1)
    def op_log_softmax(self, x): return self.f.log_softmax(x, -1)
    def op_layer_norm(self, x, g, b): return self.f.layer_norm(x, x.shape[-1:], g, b, 1e-5)
    def op_rms_norm(self, x, g): return self.f.rms_norm(x, x.shape[-1:], g, 1e-5)
    def op_attention(self, q, k, v, causal=False): return self.f.scaled_dot_product_attention(q, k, v, is_causal=causal)
    def op_conv(self, x, w, b, pads=(0, 0, 0, 0)): return self.f.conv2d(x, w, b, padding=pads[:2])
    def op_max_pool(self, x, kernel, strides): return self.f.max_pool2d(x, kernel, strides)
    def op_average_pool(self, x, kernel, strides): return self.f.avg_pool2d(x, kernel, strides)
    def op_lstm_cell(self, x, h, c, w, u, b, d): return self.t.lstm_cell(x, (h, c), w, u, b, d)
    def op_gru_cell(self, x, h, w, u, b, d): return self.t.gru_cell(x, h, w, u, b, d)
    def op_rnn_cell(self, x, h, w, u, b, d): return self.t.rnn_tanh_cell(x, h, w, u, b, d)
    def load(self, a, dtype):
        x = self.t.from_numpy(a)
        return x.view(self.t.bfloat16) if dtype == "bf16" else x
    def prepare(self, ops, returned, values, const):
        return lambda: run(ops, returned, values, self)
    def array(self, x): return (x.float() if x.dtype == self.t.bfloat16 else x).numpy()


class TorchCompile(Torch):
    """torch.compile: a C++ compiler run for each workload."""
    def prepare(self, ops, returned, values, const):
        names = list(values)
        fn = self.t.compile(lambda *v: run(ops, returned, dict(zip(names, v)), self), dynamic=False)
        args = [values[n] for n in names]
        return lambda: fn(*args)


class Numba:
    """Element-wise programs as one loop; and whole sums of them."""
    class Text(str):
        pass
    def __init__(self):
        import numba, numpy
        numba.set_num_threads(THREADS)
        self.numba, self.numpy, self.version = numba, numpy, numba.__version__
    EW = {"add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "abs": "abs({0})", "sqrt": "math.sqrt({0})", "square": "{0} * {0}",
          "exp": "math.exp({0})", "log": "math.log({0})", "tanh": "math.tanh({0})", "maximum": "max({0}, {1})", "relu": "max({0}, f4(0))",
          "sigmoid": "f4(1) / (f4(1) + math.exp(-{0}))", "silu": "{0} / (f4(1) + math.exp(-{0}))", "gelu": "f4(0.5) * {0} * (f4(1) + math.erf({0} * f4(0.70710678)))"}
    def load(self, a, dtype):
        if dtype != "f32":
            raise Skip("f32 only")
        return a
    def prepare(self, ops, returned, values, const):
        if len({v.shape for v in values.values()}) != 1:
            raise Skip("element-wise programs only")
        lines, total, mean = [], None, False
        for names, op, args, attrs in ops:
            if total:
                raise Skip("element-wise programs only")
            if op in ("reduce_sum", "reduce_mean") and not attrs:
                total, mean = args[0], op == "reduce_mean"
            elif op in self.EW:
                words = [f"v_{a[1:]}" if isinstance(a, str) else f"f4({a})" for a in args]
                lines.append(f"v_{names[0][1:]} = {self.EW[op].format(*words)}")
            else:
                raise Skip("element-wise programs only")
        names = list(values)
        reads = "; ".join(f"v_{n[1:]} = a_{n[1:]}[i]" for n in names)
        inner = "\n        ".join([reads] + lines + ([f"s += v_{total[1:]}"] if total else [f"o{k}[i] = v_{r[1:]}" for k, r in enumerate(returned)]))
        params = ", ".join([f"a_{n[1:]}" for n in names] + ([] if total else [f"o{k}" for k in range(len(returned))]))
        loop = "numba.prange" if THREADS > 1 else "range"
        source = f"def f({params}):\n    s = f4(0)\n    for i in {loop}(a_{names[0][1:]}.size):\n        {inner}\n    return {f'f4(s / a_{names[0][1:]}.size)' if mean else 's'}\n"
        import math
        scope = {"numba": self.numba, "math": math, "f4": self.numpy.float32}
        exec(source, scope)
        fn = self.numba.njit(scope["f"], fastmath=True, parallel=THREADS > 1)
        flat = [v.reshape(-1) for v in values.values()]
        out = [] if total else [self.numpy.empty_like(flat[0]) for _ in returned]
        shape = next(iter(values.values())).shape
        return lambda: (lambda s: (self.numpy.float32(s),) if total else tuple(o.reshape(shape) for o in out))(fn(*flat, *out))
    def array(self, x): return self.numpy.asarray(x)


class Onnx:
    """ONNX Runtime: the program as a graph of ONNX operators."""
    def __init__(self):
        import numpy, onnx, onnxruntime
        self.np, self.onnx, self.ort, self.version = numpy, onnx, onnxruntime, onnxruntime.__version__
        for fusor, name in {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "maximum": "Max", "abs": "Abs", "sqrt": "Sqrt", "exp": "Exp", "log": "Log",
                            "tanh": "Tanh", "sigmoid": "Sigmoid", "relu": "Relu", "gelu": "Gelu"}.items():
            setattr(self, "op_" + fusor, lambda *x, name=name: self.node(name, *x))
    def constant(self, a):
        name = f"c{len(self.inits)}"
        self.inits.append(self.onnx.numpy_helper.from_array(self.np.ascontiguousarray(a), name))
        return name
    def node(self, op, *x, n=1, **attrs):
        ins = [v if isinstance(v, str) else self.constant(self.np.float32(v)) for v in x]
        outs = [f"v{len(self.nodes)}_{k}" for k in range(n)]
        self.nodes.append(self.onnx.helper.make_node(op, ins, outs, **attrs))
        return outs[0] if n == 1 else tuple(outs)
    def ints(self, v): return self.constant(self.np.array(v, self.np.int64))
    def op_square(self, x): return self.node("Mul", x, x)
    def op_silu(self, x): return self.node("Mul", x, self.node("Sigmoid", x))
    def reduce(self, op, x, axes, keepdims): return self.node(op, x, *([] if axes is None else [self.ints(axes)]), keepdims=int(keepdims))
    def op_reduce_sum(self, x, axes=None, keepdims=False): return self.reduce("ReduceSum", x, axes, keepdims)
    def op_reduce_mean(self, x, axes=None, keepdims=False): return self.reduce("ReduceMean", x, axes, keepdims)
    def op_reduce_max(self, x, axes=None, keepdims=False): return self.reduce("ReduceMax", x, axes, keepdims)
    def op_reduce_var(self, x, axes=None, keepdims=False):
        d = self.node("Sub", x, self.reduce("ReduceMean", x, axes, True))
        return self.reduce("ReduceMean", self.node("Mul", d, d), axes, keepdims)
    def op_argmax(self, x, axis): return self.node("ArgMax", x, axis=axis, keepdims=0)
    def op_cumsum(self, x, axis): return self.node("CumSum", x, self.constant(self.np.array(axis, self.np.int64)))
    def op_transpose(self, x, perm=None): return self.node("Transpose", x, **({"perm": perm} if perm else {}))
    def op_concat(self, *x, axis): return self.node("Concat", *x, axis=axis)
    def op_matmul(self, x, y): return self.node("MatMulInteger" if self.types.get(x) == "u8" else "MatMul", x, y)
    def op_einsum(self, *x, subscripts): return self.node("Einsum", *x, equation=subscripts)
    def op_softmax(self, x): return self.node("Softmax", x, axis=-1)
    def op_log_softmax(self, x): return self.node("LogSoftmax", x, axis=-1)
    def op_layer_norm(self, x, g, b): return self.node("LayerNormalization", x, g, b, axis=-1, epsilon=1e-5)
    def op_rms_norm(self, x, g):
        s = self.node("Sqrt", self.node("Add", self.reduce("ReduceMean", self.node("Mul", x, x), [-1], True), 1e-5))
        return self.node("Mul", self.node("Div", x, s), g)
    def op_attention(self, q, k, v, causal=False):
        if causal:
            raise Skip("no causal attention here")
        s = self.node("Mul", self.node("MatMul", q, self.node("Transpose", k, perm=[0, 1, 3, 2])), 0.125)
        return self.node("MatMul", self.node("Softmax", s, axis=-1), v)
    def op_conv(self, x, w, b, pads=(0, 0, 0, 0)): return self.node("Conv", x, w, b, pads=list(pads))
    def op_max_pool(self, x, kernel, strides): return self.node("MaxPool", x, kernel_shape=kernel, strides=strides)
    def op_average_pool(self, x, kernel, strides): return self.node("AveragePool", x, kernel_shape=kernel, strides=strides)
    def load(self, a, dtype):
        if dtype not in ("f32", "u8", "i8"):
            raise Skip(f"no {dtype} here")
        return a
    def prepare(self, ops, returned, values, const):
        helper, proto = self.onnx.helper, self.onnx.TensorProto
        kind = {"float32": proto.FLOAT, "uint8": proto.UINT8, "int8": proto.INT8, "int64": proto.INT64, "int32": proto.INT32}
        self.nodes, self.inits, self.types = [], [], {"p" + k[1:]: "u8" for k, v in values.items() if v.dtype == self.np.uint8}
        named, inputs = {}, []
        for k, v in values.items():
            named[k] = self.constant(v) if k in const else "p" + k[1:]
            if k not in const:
                inputs.append(helper.make_tensor_value_info(named[k], kind[str(v.dtype)], v.shape))
        outs = run(ops, returned, named, self)
        graph = helper.make_graph(self.nodes, "f", inputs, [helper.make_empty_tensor_value_info(o) for o in outs], self.inits)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
        model.ir_version = 9
        options = self.ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = THREADS, 1, 4
        session = self.ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        feed = {"p" + k[1:]: v for k, v in values.items() if k not in const}
        bound = session.io_binding()
        for k, v in feed.items():
            bound.bind_cpu_input(k, v)
        for o in outs:
            bound.bind_output(o)
        return lambda: (session.run_with_iobinding(bound), bound)[1]
    def results(self, value): return [self.np.asarray(v) for v in value.copy_outputs_to_cpu()]
    def array(self, x): return self.np.asarray(x)


SYSTEMS = {"numpy": Numpy, "numba": Numba, "torch": Torch, "torch.compile": TorchCompile, "jax": Jax, "onnxruntime": Onnx}
DTYPES = {"f32": "float32", "bf16": "uint16", "f16": "float16", "f64": "float64", "i64": "int64", "i32": "int32", "i8": "int8", "u8": "uint8"}


def widen(a, dtype):
    """Results of bf16 come as their 16 bits."""
    import numpy
    return (a.astype(numpy.uint32) << 16).view(numpy.float32) if dtype == "bf16" else a


def open_workload(system, q):
    import numpy
    def read(p): return numpy.fromfile(p["file"], DTYPES[p["dtype"]]).reshape(p["shape"])
    if isinstance(system, (Numpy, Onnx, Numba)) and any(p["dtype"] == "bf16" for p in q["parameters"]):
        raise Skip("no bf16 here")
    ops, returned = statements(q["program"], q["size"])
    values = {"%" + p["name"]: system.load(read(p), p["dtype"]) for p in q["parameters"]}
    call = system.prepare(ops, returned, values, {"%" + p["name"] for p in q["parameters"] if p["const"]})
    got = call()
    got = system.results(got) if hasattr(system, "results") else [system.array(v) for v in got]
    for p, a in zip(q["results"], got):
        want = widen(read(p), p["dtype"]).astype(numpy.float64)
        a = numpy.asarray(a, numpy.float64)
        if a.size != want.size:
            raise Skip(f"result %{p['name']} has another shape, {list(a.shape)}")
        a = a.reshape(want.shape)
        error = numpy.abs(a - want) / (numpy.abs(want) + numpy.mean(numpy.abs(want)) + 1e-30)
        worst = float(numpy.max(error)) if error.size else 0.0
        if not worst <= (4e-2 if p["dtype"] == "bf16" else 2e-3):
            raise Skip(f"result %{p['name']} differs by {worst:.3g}")
    return call


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)                           # what a system prints is no answer
    def say(**answer):
        out.write(json.dumps(answer) + "\n")
        out.flush()
    try:
        system = SYSTEMS[sys.argv[1]]()
    except Exception as e:
        return say(missing=str(e).split("\n")[0] or type(e).__name__)
    say(version=system.version)
    call, one = None, 0
    for line in sys.stdin:
        q = json.loads(line)
        try:
            if q["do"] == "open":
                call, one = None, 0
                call = open_workload(system, q)
                say(ok=True)
            else:
                if not one or one < 5e6:
                    start = time.perf_counter_ns()
                    call()
                    one = min(one or 1e18, time.perf_counter_ns() - start + 1)
                n = int(q["ns"] / one) + 1 if one < q["ns"] else 1
                start = time.perf_counter_ns()
                for _ in range(n):
                    call()
                each = (time.perf_counter_ns() - start) / n
                one = min(one, each + 1)
                say(ns=each)
        except Skip as e:
            say(skip=str(e))
        except Exception as e:
            say(skip=f"{type(e).__name__}: {str(e).splitlines()[0][:150] if str(e) else ''}")


main()
