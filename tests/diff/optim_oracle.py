#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""optim_oracle.py: examples/optim.fusor against torch.optim, five steps each, with the options that PyTorch's own tests
(optim_db) vary. Optional: without torch it is one counted skip. The last line is "N passed, N failed, N skipped".
Usage: optim_oracle.py [--fusor COMMAND] [--program examples/optim.fusor]
"""
import argparse
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
except ImportError as missing:
    print(f"optim_oracle: skipped: {missing}")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

# function, torch class, state in the order of the function's parameters, torch options, fusor scalars
CASES = [("sgd", "SGD", [], dict(lr=lr, weight_decay=wd), dict(lr=lr, wd=wd)) for lr, wd in ((1e-2, 0), (1e-3, 0.1))]
CASES += [("momentum", "SGD", ["v"], dict(lr=1e-2, momentum=mu, dampening=0, weight_decay=wd), dict(lr=1e-2, mu=mu, wd=wd))
          for mu, wd in ((0.9, 0), (0.5, 0.1))]
CASES += [("nesterov", "SGD", ["v"], dict(lr=1e-2, momentum=mu, nesterov=True, weight_decay=wd), dict(lr=1e-2, mu=mu, wd=wd))
          for mu, wd in ((0.9, 0), (0.5, 0.1))]
for name, cls in (("adam", "Adam"), ("adamw", "AdamW"), ("radam", "RAdam"), ("nadam", "NAdam")):
    for lr, wd, b1, b2, eps in ((1e-2, 0.0, 0.9, 0.999, 1e-8), (1e-3, 0.1, 0.8, 0.99, 1e-6)):
        CASES.append((name, cls, ["m", "v"], dict(lr=lr, weight_decay=wd, betas=(b1, b2), eps=eps),
                      dict(lr=lr, wd=wd, beta1=b1, beta2=b2, eps=eps)))
for lr, wd in ((1e-2, 0.0), (1e-3, 0.1)):
    CASES.append(("adamax", "Adamax", ["m", "u"], dict(lr=lr, weight_decay=wd), dict(lr=lr, wd=wd)))
    CASES.append(("adagrad", "Adagrad", ["s"], dict(lr=lr, weight_decay=wd, lr_decay=0.1), dict(lr=lr, wd=wd, lr_decay=0.1)))
    CASES.append(("rmsprop", "RMSprop", ["v"], dict(lr=lr, weight_decay=wd, alpha=0.9), dict(lr=lr, wd=wd, alpha=0.9)))
HAS_STEP = {"adam", "adamw", "radam", "nadam", "adamax", "adagrad"}
N, STEPS = 1003, 7


def run_case(fusor, program, case, directory):
    name, cls, state, options, scalars = case
    rng = np.random.default_rng(7)
    tensors = {"p": rng.standard_normal(N).astype("f4")}
    tensors.update({s: np.zeros(N, "f4") for s in state})
    param = torch.nn.Parameter(torch.from_numpy(tensors["p"].copy()))
    peer = getattr(torch.optim, cls)([param], foreach=False, **options)
    mu_product = 1.0
    for step in range(1, STEPS + 1):
        g = (rng.standard_normal(N) * 10.0 ** rng.integers(-3, 2, N)).astype("f4")
        param.grad = torch.from_numpy(g.copy())
        peer.step()
        np.save(f"{directory}/g.npy", g)
        for key, value in tensors.items():
            np.save(f"{directory}/{key}.npy", value)
        given = dict(scalars)
        if name in HAS_STEP:
            given["step"] = step
        if name == "nadam":
            mu_product *= scalars["beta1"] * (1 - 0.5 * 0.96 ** (step * 0.004))
            given["mu_product"] = mu_product
        command = [fusor, "run", program, "@" + name] + [f"{k}={v!r}" for k, v in given.items()]
        command += [f"{k}={directory}/{k}.npy" for k in list(tensors) + ["g"]]
        for key in tensors:
            command += ["-o", f"{key}1={directory}/new_{key}.npy"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return f"exit {done.returncode}: {done.stderr.strip()}"
        tensors = {key: np.load(f"{directory}/new_{key}.npy") for key in tensors}
        want = param.detach().numpy()
        worst = np.max(np.abs(tensors["p"] - want) / (1e-6 + 1e-5 * np.abs(want)))
        if not worst <= 1:
            at = int(np.argmax(np.abs(tensors["p"] - want)))
            return f"step {step}: p[{at}] is {tensors['p'][at]!r}; torch has {want[at]!r}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fusor", default="fusor")
    parser.add_argument("--program", default=os.path.join(os.path.dirname(__file__), "../../examples/optim.fusor"))
    args = parser.parse_args()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as directory:
        for case in CASES:
            trouble = run_case(args.fusor, args.program, case, directory)
            passed, failed = passed + (trouble is None), failed + (trouble is not None)
            if trouble:
                print(f"FAILED @{case[0]} {case[3]}: {trouble}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


main()
