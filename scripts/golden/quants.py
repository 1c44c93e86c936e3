"""Writes blocks of every quantised type and what they stand for into tests/golden/quants/.

    python scripts/golden/quants.py   (needs gguf, numpy and llama-cpp-python, whose libggml quantises)

For each type four rows of 512 weights: two that GGML quantised, of normal numbers with outliers and with a run of zeros, and two
of random bytes with factors of a sane size, so that every bit pattern of quants and scales occurs. `TYPE.blocks` holds the bytes as
they stand in a file, `TYPE.f32` the weights as the Python package gguf dequantises them, little-endian.
"""

import ctypes
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
from gguf import GGMLQuantizationType as Type

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "quants"
COLUMNS = 512
# Of each type: where in a block the f16 factors stand, and how large they are at most.
TYPES = {
    Type.BF16: {},
    Type.Q4_0: {0: 0.1},
    Type.Q4_1: {0: 0.1, 2: 0.8},
    Type.Q5_0: {0: 0.05},
    Type.Q5_1: {0: 0.05, 2: 0.8},
    Type.Q8_0: {0: 0.01},
    Type.Q2_K: {80: 0.03, 82: 0.03},
    Type.Q3_K: {108: 0.01},
    Type.Q4_K: {0: 0.003, 2: 0.02},
    Type.Q5_K: {0: 0.0015, 2: 0.02},
    Type.Q6_K: {208: 0.0005},
    Type.IQ4_NL: {0: 0.01},
    Type.IQ4_XS: {0: 0.0005},
    Type.MXFP4: {},
}


def ggml():
    library = ctypes.CDLL(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so")
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p,
    ]
    return library


def quantize(library, kind, rows):
    """The rows as GGML quantises them, with all columns of equal weight."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    out = np.zeros((rows.shape[0], rows.shape[1] // block * size), dtype=np.uint8)
    even = np.ones(rows.shape[1], dtype=np.float32)
    written = library.ggml_quantize_chunk(
        kind.value, rows.ctypes.data, out.ctypes.data, 0, rows.shape[0], rows.shape[1], even.ctypes.data,
    )
    assert written == out.size, kind
    return out


def random_blocks(rng, kind, rows):
    block, size = gguf.GGML_QUANT_SIZES[kind]
    if kind == Type.BF16:
        return gguf.quants.quantize(rng.standard_normal((rows, COLUMNS), dtype=np.float32), kind)
    blocks = rng.integers(0, 256, (rows * COLUMNS // block, size), dtype=np.uint8)
    for at, largest in TYPES[kind].items():
        factors = rng.uniform(-largest, largest, len(blocks)).astype(np.float16)
        blocks[:, at:at + 2] = factors.view(np.uint8).reshape(-1, 2)
    if kind == Type.MXFP4:
        blocks[:, 0] = rng.integers(110, 135, len(blocks))
    return blocks.reshape(rows, -1)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    library = ggml()
    for kind in TYPES:
        rng = np.random.default_rng(20261120)
        rows = rng.standard_normal((2, COLUMNS), dtype=np.float32) * np.float32(0.5)
        rows[:, rng.integers(0, COLUMNS, 12)] *= 8
        rows[1, 300:400] = 0
        blocks = np.concatenate([quantize(library, kind, rows), random_blocks(rng, kind, 2)])
        weights = gguf.quants.dequantize(blocks, kind).astype(np.float32)
        assert weights.shape == (4, COLUMNS) and np.isfinite(weights).all(), kind
        error = np.linalg.norm(weights[:2] - rows) / np.linalg.norm(rows)
        assert error < 0.5, (kind, error)
        name = kind.name.lower()
        (OUT / f"{name}.blocks").write_bytes(blocks.tobytes())
        (OUT / f"{name}.f32").write_bytes(weights.astype("<f4").tobytes())
        print(f"{name:8} {blocks.nbytes:6} bytes, ‖quantised − rows‖/‖rows‖ = {error:.4f}")


if __name__ == "__main__":
    main()
