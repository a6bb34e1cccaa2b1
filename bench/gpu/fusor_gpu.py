# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fusor's C API by ctypes: programs on a device, on tensors that lie there. Needs nothing but Python."""
import array
import ctypes as C
import os
import random
import struct

DTYPES = {"f64": 1, "f32": 2, "f16": 3, "bf16": 4, "i64": 5}
BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8}


class Buffer(C.Structure):
    _fields_ = [("data", C.c_void_p), ("dtype", C.c_int32), ("rank", C.c_int32), ("shape", C.c_int64 * 8), ("stride", C.c_int64 * 8),
                ("flags", C.c_uint32), ("device", C.c_int32)]


class Options(C.Structure):
    _fields_ = [("size", C.c_size_t), ("flags", C.c_uint32), ("n_threads", C.c_int32), ("device", C.c_char_p), ("target", C.c_char_p),
                ("cache_dir", C.c_char_p), ("cache_max_bytes", C.c_uint64), ("callbacks", C.c_void_p * 5)]


class Failed(Exception):
    pass


def load_needed(folder):
    """What libfusor and its module are linked with: the machine's where it has it (torch's own must not be replaced), else the bundle's."""
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for _ in range(3):  # they need each other
        for name in names:
            for path in (name, os.path.join(folder, name)):
                try: C.CDLL(path)
                except OSError: continue
                break


def library():
    path = os.environ.get("FUSOR_LIB", "libfusor.so.0")
    load_needed(os.path.join(os.path.dirname(path), "lib"))
    lib = C.CDLL(path)
    lib.fusor_context_new.restype = C.c_void_p
    lib.fusor_context_new.argtypes = [C.POINTER(Options)]
    lib.fusor_error_message.restype = C.c_char_p
    lib.fusor_error_message.argtypes = [C.c_void_p]
    lib.fusor_compile_text.argtypes = [C.c_void_p, C.c_char_p, C.c_char_p, C.POINTER(C.c_void_p)]
    lib.fusor_executable_call.argtypes = [C.c_void_p, C.c_int, C.POINTER(Buffer), C.c_int, C.POINTER(Buffer)]
    if hasattr(lib, "fusor_context_wait"):
        lib.fusor_context_wait.argtypes = [C.c_void_p]
        lib.fusor_context_device.argtypes = [C.c_void_p, C.POINTER(C.c_int32)]
        lib.fusor_buffer_new.argtypes = [C.c_void_p, C.POINTER(Buffer)]
        lib.fusor_buffer_copy.argtypes = [C.c_void_p, C.POINTER(Buffer), C.POINTER(Buffer)]
        lib.fusor_buffer_free.argtypes = [C.c_void_p, C.POINTER(Buffer)]
    return lib


def count(shape):
    n = 1
    for s in shape: n *= s
    return n


def half_bits(dtype, v):
    if dtype == "f16": return struct.unpack("<H", struct.pack("<e", v))[0]
    bits = struct.unpack("<I", struct.pack("<f", v))[0]
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16


def values(dtype, shape, kind, seed):
    """The contents of an input as an array: a block of random numbers again and again."""
    r = random.Random(seed)
    n = count(shape)
    block = min(n, 65521)
    scale = 1 / max(1, (shape[-2] if len(shape) == 2 else count(shape[1:])) ** 0.5) if kind == "scaled" else 1
    numbers = [r.uniform(0.5, 1.5) if kind == "positive" else r.gauss(0, scale) for _ in range(block)]
    code = {"f32": "f", "f64": "d"}.get(dtype, "H")
    if code == "H": numbers = [half_bits(dtype, v) for v in numbers]
    one = array.array(code, numbers)
    whole = one * (n // block + 1)
    del whole[n:]
    return whole


def as_floats(dtype, data):
    if dtype == "f16": return list(struct.unpack(f"<{len(data)}e", data.tobytes()))
    if dtype == "bf16": return list(struct.unpack(f"<{len(data)}f", b"".join(b"\0\0" + struct.pack("<H", v) for v in data)))
    return list(data)


class Context:
    def __init__(self, lib, device):
        self.lib = lib
        self.ctx = lib.fusor_context_new(C.byref(Options(size=C.sizeof(Options), device=device.encode())))
        self.number = C.c_int32(0)
        if device != "cpu": self.check(lib.fusor_context_device(self.ctx, C.byref(self.number)))

    def check(self, status):
        if status: raise Failed((self.lib.fusor_error_message(self.ctx) or b"?").decode())

    def describe(self, dtype, shape, data=None, device=0):
        b = Buffer(dtype=DTYPES[dtype], rank=len(shape), device=device)
        for k, s in enumerate(shape): b.shape[k] = s
        if data is not None: b.data = data.buffer_info()[0]
        return b

    def place(self, dtype, shape, data):
        """A tensor with these contents on the context's device. The caller keeps `data` where that is the CPU."""
        host = self.describe(dtype, shape, data)
        if not self.number.value: return host
        there = self.describe(dtype, shape, device=self.number.value)
        self.check(self.lib.fusor_buffer_new(self.ctx, C.byref(there)))
        self.check(self.lib.fusor_buffer_copy(self.ctx, C.byref(host), C.byref(there)))
        return there

    def read(self, buffer, dtype, shape):
        data = array.array({"f32": "f", "f64": "d"}.get(dtype, "H"), bytes(BYTES[dtype] * count(shape)))
        host = self.describe(dtype, shape, data)
        self.check(self.lib.fusor_buffer_copy(self.ctx, C.byref(buffer), C.byref(host)))
        return data

    def free(self, buffers):
        for b in buffers if self.number.value else []: self.lib.fusor_buffer_free(self.ctx, C.byref(b))

    def wait(self):
        if self.number.value: self.check(self.lib.fusor_context_wait(self.ctx))

    def compile(self, text):
        exe = C.c_void_p()
        self.check(self.lib.fusor_compile_text(self.ctx, text.encode(), None, C.byref(exe)))
        return exe


class Program:
    """A workload on a context: call() asks for it once."""
    def __init__(self, context, workload, data, results, aliases):
        self.context = context
        self.exe = context.compile(workload.text)
        self.data = [array.array(d.typecode, d) for d in data] if not context.number.value and aliases else data
        self.inputs = [context.place(d, s, v) for (d, s, _), v in zip(workload.inputs, self.data)]
        self.kept = [array.array({"f32": "f", "f64": "d"}.get(d, "H"), bytes(BYTES[d] * count(s))) for d, s in results]
        self.outputs = [self.inputs[aliases[k]] if k in aliases else context.place(d, s, self.kept[k]) for k, (d, s) in enumerate(results)]
        self.own = self.inputs + [o for k, o in enumerate(self.outputs) if k not in aliases]
        self.results = results
        self.ins = (Buffer * len(self.inputs))(*self.inputs)
        self.outs = (Buffer * len(self.outputs))(*self.outputs)

    def call(self):
        status = self.context.lib.fusor_executable_call(self.exe, len(self.ins), self.ins, len(self.outs), self.outs)
        if status: self.context.check(status)

    def result(self, k=0):
        dtype, shape = self.results[k]
        if not self.context.number.value:
            at = self.outs[k].data
            typecode = {"f32": "f", "f64": "d"}.get(dtype, "H")
            data = array.array(typecode)
            data.frombytes(C.string_at(at, BYTES[dtype] * count(shape)))
            return data
        return self.context.read(self.outs[k], dtype, shape)

    def free(self):
        self.context.free(self.own)
        self.context.lib.fusor_executable_free.argtypes = [C.c_void_p]
        self.context.lib.fusor_executable_free(self.exe)
