#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# bundle.sh: the bundle for a machine with a GPU (bench/gpu/bundle.sh) holds all it needs: it runs out of a bare directory with an empty environment, on
# the fake driver; its summary has the tests, the workloads and the CPU.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../cli/lib.sh"
set -u
cd "$TMPDIR" || exit 1
[ -n "${FUSOR_CODEGEN:-}" ] || { skip 'no module: built without LLVM'; finish; }
[ -z "${FUSOR_SANITIZE:-}" ] || { skip 'a sanitizer: its library is no part of a bundle'; finish; }
command -v xz >/dev/null || { skip 'no xz: the bundle is a tar.xz (xz-utils)'; finish; }
case $(ldd "$FUSOR_CODEGEN") in *libLLVM*) skip 'LLVM is linked shared: not on another machine'; finish ;; esac
if ! XZ_OPT=-0 bash "$FUSOR_SRCDIR/bench/gpu/bundle.sh" --build "$FUSOR_BUILDDIR" --out "$TMPDIR/b.tar.xz" 2>bundle.err; then
    cat bundle.err >&2
    bad 'no bundle'
    finish
fi
ok
tar xf b.tar.xz && mkdir bare && cd bare || exit 1
env -i PATH=/usr/bin:/bin HOME="$PWD" bash ../fusor-gpu/run.sh --small --minutes 10 --out r --driver ../fusor-gpu/tests/libcuda_fake.so >out 2>err
rc=$?
if [ $rc -eq 0 ]; then ok; else bad "run.sh gives $rc: $(tail -n 15 err) $(tail -n 40 out)"; fi
has() { if grep -q -- "$2" "$1" 2>/dev/null; then ok; else bad "$1 lacks '$2'"; fi; }
has r/summary.md '^| device_exec_test | [1-9]'
has r/summary.md 'Fake GPU'
has r/summary.md '^### 1 threads'
has r/results.json '"tests": \[{"name": "device_exec_test"'
if command -v python3 >/dev/null; then
    has r/summary.md '^| softmax | [0-9.e-]* |'
    has r/summary.md '^| relu(64 + bias) bf16 | [0-9.e-]* |'
    if python3 -c 'import json; d = json.load(open("r/results.json")); assert len(d["gpu"]["rows"]) > 15; assert all(r["ok"] for r in d["gpu"]["rows"])'
    then ok; else bad 'results.json'; fi
fi
# A device that is not there: said so, and no success.
if env -i PATH=/usr/bin:/bin HOME="$PWD" bash ../fusor-gpu/run.sh --small --minutes 1 --out s --only gpu --driver libnothing.so >out 2>err; then
    bad 'no driver, and all is well'
else ok; fi
finish
