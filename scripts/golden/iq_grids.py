"""Writes the grids of GGML's types IQ1, IQ2 and IQ3 into src/tensor/quant/grids.bin, as bitmaps.

    python scripts/golden/iq_grids.py   (needs gguf and numpy)

A grid is a sorted set of four or eight numbers out of a few (`grid_map` of the package gguf). Bit n of its bitmap says whether the numbers
whose places in `grid_map` are the digits of n, the first the lowest, are in it.
"""

from pathlib import Path

import numpy as np
from gguf import quants

OUT = Path(__file__).resolve().parents[2] / "src" / "tensor" / "quant" / "grids.bin"
GRIDS = [quants.IQ2_XXS, quants.IQ2_XS, quants.IQ2_S, quants.IQ1_S, quants.IQ3_XXS, quants.IQ3_S]


def bitmap(kind) -> bytes:
    kind.init_grid()
    base = len(kind.grid_map)
    entries, digits = kind.grid_shape
    places = {float(number): place for place, number in enumerate(kind.grid_map)}
    rows = kind.grid.reshape(entries, digits)
    numbers = [sum(places[float(number)] * base**at for at, number in enumerate(row)) for row in rows]
    assert numbers == sorted(set(numbers)), kind
    bits = np.zeros(base**digits, np.uint8)
    bits[numbers] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def main():
    bitmaps = [bitmap(kind) for kind in GRIDS]
    OUT.write_bytes(b"".join(bitmaps))
    print([len(bitmap) for bitmap in bitmaps], OUT.stat().st_size)


if __name__ == "__main__":
    main()
