"""Writes weights and what the Python package gguf quantises them to into tests/golden/quantize/.

    python scripts/golden/quantize_blocks.py   (needs gguf, numpy)

Blocks of 32: random ones of many magnitudes, and such as rounding depends on: halves, equal magnitudes of both signs, zeros, numbers
that are subnormal as f16, and the largest ones.
"""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import quantize

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "quantize"
BLOCKS = 512


def blocks() -> np.ndarray:
    generator = np.random.default_rng(99)
    scales = 10.0 ** generator.uniform(-7, 4, (BLOCKS, 1))
    values = (generator.normal(0, 1, (BLOCKS, 32)) * scales).astype(np.float32)
    # Halves of the step: with a largest magnitude of 127 or 8, x / d is x.
    values[0] = np.arange(32) * 0.5 - 8
    values[1] = np.arange(32) * 0.5 - 7.5
    values[2] = np.concatenate([[127.0], np.arange(31) + 0.5])
    values[3] = np.concatenate([[-127.0], -np.arange(31) - 0.5])
    values[4] = 0
    values[5] = np.where(np.arange(32) % 2 == 0, 3.0, -3.0)
    values[6] = np.where(np.arange(32) % 2 == 0, -3.0, 3.0)
    values[7] = 2.0**-24 * np.arange(32)
    values[8] = -1e-7 * np.arange(32)
    values[9] = np.linspace(-65000, 65000, 32)
    values[11:40] = np.round(values[11:40] / scales[11:40] * 16) / 16  # many exact halves of powers of two
    # As f16 and bf16 have them.
    values[40:200] = values[40:200].astype(np.float16)
    values[200:360] = (values[200:360].view(np.uint32) & 0xFFFF0000).view(np.float32)
    return values


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    values = blocks()
    values.tofile(OUT / "weights.f32")
    for kind in (GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0):
        quantize(values, kind).tofile(OUT / f"{kind.name.lower()}.blocks")


if __name__ == "__main__":
    main()
