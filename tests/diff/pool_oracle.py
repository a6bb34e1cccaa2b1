#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""pool_oracle.py: pooling and quantization against ONNX Runtime, over ranks, strides, pads, dilations and ceil. Optional:
without onnxruntime and onnx it is one counted skip. The last line is "N passed, N failed, N skipped".
Usage: pool_oracle.py [--fusor COMMAND]
"""
import argparse
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnxruntime as ort
    from onnx import TensorProto, helper
except ImportError as missing:
    print(f"pool_oracle: skipped: {missing}")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

# shape, attributes by ONNX's names
CASES = [
    ((2, 3, 24, 24), dict(kernel_shape=[2, 2], strides=[2, 2])),
    ((1, 2, 17, 33), dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])),
    ((1, 2, 17, 33), dict(kernel_shape=[3, 3], strides=[2, 3], pads=[0, 1, 1, 0], ceil_mode=1)),
    ((2, 1, 30), dict(kernel_shape=[5], strides=[3], pads=[2, 2])),
    ((1, 2, 9, 10, 21), dict(kernel_shape=[2, 3, 3], strides=[1, 2, 2], pads=[1, 1, 0, 0, 1, 2])),
    ((1, 3, 40, 50), dict(kernel_shape=[9, 20], strides=[2, 4], pads=[4, 10, 4, 9])),
    ((1, 3, 40, 50), dict(kernel_shape=[3, 2], dilations=[2, 3], pads=[2, 1, 1, 1])),
]
NAMES = {"kernel_shape": "kernel", "ceil_mode": "ceil"}


def peer(op, inputs, attrs):
    types = {np.dtype("f4"): TensorProto.FLOAT, np.dtype("i1"): TensorProto.INT8, np.dtype("u1"): TensorProto.UINT8}
    named = [helper.make_tensor_value_info(n, types[a.dtype], a.shape) for n, a in inputs.items()]
    node = helper.make_node(op, list(inputs), ["y"], **attrs)
    out = types[inputs["z"].dtype] if op == "QuantizeLinear" else TensorProto.FLOAT
    graph = helper.make_graph([node], "g", named, [helper.make_tensor_value_info("y", out, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)[0]


def fusor(command, directory, text, inputs):
    with open(f"{directory}/p.fusor", "w") as f:
        f.write(text)
    given = []
    for name, value in inputs.items():
        np.save(f"{directory}/{name}.npy", value)
        given.append(f"{name}={directory}/{name}.npy")
    done = subprocess.run([command, "run", f"{directory}/p.fusor", "@f", *given, "-o", f"y={directory}/y.npy"],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return np.load(f"{directory}/y.npy")


def kind(a):
    return {"f4": "f32", "i1": "i8", "u1": "u8"}[a.dtype.str[1:]] + (str(list(a.shape)) if a.shape else "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fusor", default="fusor")
    command, rng = parser.parse_args().fusor, np.random.default_rng(11)
    jobs = []
    for shape, attrs in CASES:
        x = {"x": rng.standard_normal(shape).astype("f4")}
        ours = ", ".join(f"{NAMES.get(k, k)}={'true' if k == 'ceil_mode' else v}" for k, v in attrs.items())
        jobs.append(("MaxPool", x, attrs, f"max_pool(%x, {ours})", 0))
        for pad in (0, 1):
            jobs.append(("AveragePool", x, dict(attrs, count_include_pad=pad),
                         f"average_pool(%x, {ours}, count_include_pad={'true' if pad else 'false'})", 2e-6))
    x = {"x": rng.standard_normal((3, 5, 31, 17)).astype("f4")}
    jobs.append(("GlobalAveragePool", x, {}, "global_average_pool(%x)", 2e-6))
    for dtype in ("i1", "u1"):
        q = {"x": (rng.standard_normal((7, 33)) * 40).astype("f4"), "s": np.float32(0.37), "z": np.array(5, dtype)}
        jobs.append(("QuantizeLinear", q, {}, "quantize(%x, %s, %z)", 0))
        d = dict(q, x=rng.integers(0, 100, (7, 33)).astype(dtype))
        jobs.append(("DequantizeLinear", d, {}, "dequantize(%x, %s, %z)", 0))
    passed = failed = 0
    with tempfile.TemporaryDirectory() as directory:
        for op, inputs, attrs, expression, bound in jobs:
            inputs = {n: np.asarray(a) for n, a in inputs.items()}
            want = peer(op, inputs, attrs)
            params = ", ".join(f"%{n}: {kind(a)}" for n, a in inputs.items())
            try:
                got = fusor(command, directory, f"func @f({params}) -> {kind(want)} {{ %y = {expression} return %y }}\n", inputs)
                ok = got.shape == want.shape and got.dtype == want.dtype and np.allclose(got, want, rtol=bound, atol=bound)
            except RuntimeError as error:
                ok = False
                print(error)
            passed, failed = passed + ok, failed + (not ok)
            if not ok:
                print(f"{op} {attrs}: differs from ONNX Runtime: {expression}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
