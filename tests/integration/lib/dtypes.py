"""The 14 data types of the Open Inference Protocol: names, encodings and telling values.

Encodings are written out here from the protocol's text, not taken from a client library.
"""
import struct
from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class DType:
    name: str  # in the protocol: "FP32"
    config: str  # in config.pbtxt: "TYPE_FP32"
    numpy: object  # None for BYTES
    contents: str  # field of InferTensorContents; "" = raw only
    values: tuple  # as JSON values; every one survives a round trip

    def __str__(self):
        return self.name

    @property
    def size(self):
        return 0 if self.numpy is None else np.dtype(self.numpy).itemsize

    def encode(self, values):
        """Packed little-endian bytes, as in binary_data and raw_input_contents."""
        if self.name == "BYTES":
            return encode_bytes(values)
        return np.array(values, dtype=self.numpy).tobytes()

    def decode(self, raw):
        if self.name == "BYTES":
            return decode_bytes(raw)
        return np.frombuffer(raw, dtype=self.numpy).tolist()

    def array(self, values, shape=None):
        """As the numpy array that tritonclient takes."""
        if self.name == "BYTES":
            a = np.array([as_bytes(v) for v in values], dtype=np.object_)
        else:
            a = np.array(values, dtype=self.numpy)
        return a if shape is None else a.reshape(shape)


def as_bytes(v):
    return v if isinstance(v, bytes) else v.encode()


def encode_bytes(values):
    return b"".join(struct.pack("<I", len(as_bytes(v))) + as_bytes(v) for v in values)


def decode_bytes(raw):
    out = []
    while raw:
        (n,) = struct.unpack_from("<I", raw)
        assert len(raw) >= 4 + n, "a BYTES element is longer than what is left"
        out.append(raw[4 : 4 + n])
        raw = raw[4 + n :]
    return out


def _int(bits, signed):
    kind = "INT" if signed else "UINT"
    top = 2 ** (bits - signed) - 1
    low = -(2 ** (bits - 1)) if signed else 0
    numpy = np.dtype(f"{'i' if signed else 'u'}{bits // 8}")
    contents = ("" if signed else "u") + ("int64_contents" if bits == 64 else "int_contents")
    return DType(f"{kind}{bits}", f"TYPE_{kind}{bits}", numpy, contents, (low, top, 0, 1, low + 1, top - 1))


DTYPES = (
    DType("BOOL", "TYPE_BOOL", np.dtype("?"), "bool_contents", (True, False, False, True, True, False)),
    *(_int(bits, False) for bits in (8, 16, 32, 64)),
    *(_int(bits, True) for bits in (8, 16, 32, 64)),
    DType("FP16", "TYPE_FP16", np.dtype("f2"), "", (0.0, -1.5, 65504.0, -65504.0, 2.0**-24, 0.333251953125)),
    DType("FP32", "TYPE_FP32", np.dtype("f4"), "fp32_contents",
          (0.0, -1.5, 3.4028234663852886e38, 1.401298464324817e-45, 0.10000000149011612, -123456.7890625)),
    DType("FP64", "TYPE_FP64", np.dtype("f8"), "fp64_contents",
          (0.0, -1.5, 1.7976931348623157e308, 5e-324, 0.1, 2.0**53 + 2)),
    DType("BYTES", "TYPE_STRING", None, "bytes_contents",
          ("", "plain", "line\nquote\"back\\slash", "naïve 漢字 😀", "nul\0inside", "x" * 300)),
    DType("BF16", "TYPE_BF16", ml_dtypes.bfloat16, "", (0.0, -1.5, 256.0, 2.0**-100, 3.3895313892515355e38, -0.75)),
)
BY_NAME = {d.name: d for d in DTYPES}
assert len(DTYPES) == 14
