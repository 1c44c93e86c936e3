"""Writes blocks of every quantised type and what they stand for into tests/golden/quants/.

    python scripts/golden/quants.py [TYPE …]   (needs gguf, numpy and, for the types that GGML quantises here, llama-cpp-python)

For each type four rows of 512 weights: two that GGML quantised, of normal numbers with outliers and with a run of zeros, and two
of random bytes with factors of a sane size, so that every bit pattern of quants and scales occurs. Of types that GGML quantises only with
data of a model's activations, or which that package lacks, all four rows are random. `TYPE.blocks` holds the bytes as
they stand in a file, `TYPE.f32` the weights as the Python package gguf dequantises them, little-endian; `rows.f32` the two rows of numbers.
"""

import ctypes
import sys
from pathlib import Path

import gguf
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


# Types of which all rows are random.
RANDOM = {
    Type.IQ2_XXS: {0: 0.005},
    Type.IQ2_XS: {0: 0.005},
    Type.IQ3_XXS: {0: 0.003},
    Type.IQ1_S: {0: 0.05},
    Type.IQ3_S: {0: 0.003},
    Type.IQ2_S: {0: 0.005},
    Type.IQ1_M: {},
    Type.TQ1_0: {52: 0.3},
    Type.TQ2_0: {64: 0.3},
    Type.NVFP4: {},
}
# Types that the package gguf does not know, or does not dequantise: bits of a weight, and what a number of that many bits becomes. An f16
# factor stands first (ggml, `block_q1_0` and `block_q2_0`).
PLAIN = {"q1_0": (1, lambda quant: 2 * quant - 1), "q2_0": (2, lambda quant: quant - 1)}
PLAIN_BLOCK = {"q1_0": 128, "q2_0": 64}


def ggml():
    import llama_cpp

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
    for at, largest in (TYPES | RANDOM)[kind].items():
        factors = rng.uniform(-largest, largest, len(blocks)).astype(np.float16)
        blocks[:, at:at + 2] = factors.view(np.uint8).reshape(-1, 2)
    if kind == Type.IQ1_M:
        # The factor stands in the top four bits of four half words.
        factors = rng.uniform(-0.05, 0.05, len(blocks)).astype(np.float16).view(np.uint16)
        for at in range(4):
            blocks[:, 49 + 2 * at] = blocks[:, 49 + 2 * at] & 15 | (factors >> 4 * at & 15) << 4
    if kind == Type.MXFP4:
        blocks[:, 0] = rng.integers(110, 135, len(blocks))
    return blocks.reshape(rows, -1)


def ggml_rows(rng):
    """The rows that GGML quantises."""
    rows = rng.standard_normal((2, COLUMNS), dtype=np.float32) * np.float32(0.5)
    rows[:, rng.integers(0, COLUMNS, 12)] *= 8
    rows[1, 300:400] = 0
    return rows


def plain(rng, name):
    """Random blocks of a type of one factor and bits in order, and their weights."""
    bits, value = PLAIN[name]
    size = PLAIN_BLOCK[name]
    factors = rng.uniform(-0.3, 0.3, (4 * COLUMNS // size, 1)).astype(np.float16)
    quants = rng.integers(0, 2**bits, (len(factors), size))
    in_bytes = quants.reshape(len(factors), -1, 8 // bits) << np.arange(0, 8, bits)
    blocks = np.concatenate([factors.view(np.uint8), in_bytes.sum(-1).astype(np.uint8)], axis=1)
    weights = factors.astype(np.float32) * value(quants).astype(np.float32)
    return blocks.reshape(4, -1), weights.reshape(4, COLUMNS)


def write(name, blocks, weights):
    assert weights.shape == (4, COLUMNS) and np.isfinite(weights).all(), name
    (OUT / f"{name}.blocks").write_bytes(blocks.tobytes())
    (OUT / f"{name}.f32").write_bytes(weights.astype("<f4").tobytes())
    print(f"{name:8} {blocks.nbytes:6} bytes")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[1:]
    is_wanted = lambda name: not wanted or name.lower() in wanted
    rows = ggml_rows(np.random.default_rng(20261120))
    (OUT / "rows.f32").write_bytes(rows.astype("<f4").tobytes())
    for kind in filter(lambda kind: is_wanted(kind.name), TYPES):
        rng = np.random.default_rng(20261120)
        rows = ggml_rows(rng)
        blocks = np.concatenate([quantize(ggml(), kind, rows), random_blocks(rng, kind, 2)])
        weights = gguf.quants.dequantize(blocks, kind).astype(np.float32)
        error = np.linalg.norm(weights[:2] - rows) / np.linalg.norm(rows)
        assert error < 0.5, (kind, error)
        write(kind.name.lower(), blocks, weights)
    for kind in filter(lambda kind: is_wanted(kind.name), RANDOM):
        blocks = random_blocks(np.random.default_rng(20261126), kind, 4)
        write(kind.name.lower(), blocks, gguf.quants.dequantize(blocks, kind).astype(np.float32))
    for name in filter(is_wanted, PLAIN):
        write(name, *plain(np.random.default_rng(20261126), name))


if __name__ == "__main__":
    main()
