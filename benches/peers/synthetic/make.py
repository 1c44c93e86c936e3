"""Writes models of random weights for the side-by-side run: one GGUF file for rillm and wllama, one folder for transformers.js.

usage: make.py OUT [--shape llama-3.2-1b] [--quantization q4_0] [--embedding q8_0] [--dtypes q4f16,q4] [--only gguf|onnx] [--seed 0]

OUT/SHAPE.gguf and OUT/SHAPE/ are written. The packages that it needs stand in requirements.txt."""

import argparse
import pathlib

from shapes import SHAPES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--shape", default="llama-3.2-1b", choices=SHAPES)
    parser.add_argument("--quantization", default="q4_0", choices=["q4_0", "q8_0", "f16"], help="of the GGUF's matrices")
    parser.add_argument("--embedding", default="q8_0", choices=["q4_0", "q8_0", "q6_k", "f16"], help="of the GGUF's embedding, which is the output's too")
    parser.add_argument("--dtypes", default="q4f16,q4", help="of the ONNX graphs; q4f16 needs shader-f16, q4 computes in float32")
    parser.add_argument("--only", choices=["gguf", "onnx"])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    shape = SHAPES[arguments.shape]
    arguments.out.mkdir(parents=True, exist_ok=True)
    # Imported where they are wanted, so that a machine that lacks one of the packages can write the other kind.
    if arguments.only != "onnx":
        from gguf_model import write_gguf

        write_gguf(str(arguments.out / f"{arguments.shape}.gguf"), arguments.shape, shape, arguments.quantization, arguments.embedding, arguments.seed)
    if arguments.only != "gguf":
        from onnx_model import write_onnx

        write_onnx(arguments.out / arguments.shape, shape, arguments.dtypes.split(","), arguments.seed)


if __name__ == "__main__":
    main()
