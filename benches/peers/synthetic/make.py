"""Writes models of random weights for the side-by-side run: one GGUF file for rillm and wllama, one folder for transformers.js.

usage: make.py OUT [--shape llama-3.2-1b] [--format q4_0] [--embedding q8_0] [--dtypes q4f16,q4] [--only gguf|onnx] [--name NAME] [--seed 0]

OUT/NAME.gguf and OUT/NAME/ are written; the name is that of the shape if no other is given. The format q4_k_m is llama.cpp's mix: Q4_K, and Q6_K for the
embedding and in half of the layers for value and down-projection; where a row is no multiple of 256 weights, Q5_0 and Q8_0 in their places.
minilm-l6 is an encoder, of which formats are f32, f16 and q8_0 and dtypes q8 and fp32. The packages that it needs stand in requirements.txt."""

import argparse
import pathlib

from shapes import ENCODERS, SHAPES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--shape", default="llama-3.2-1b", choices=[*SHAPES, *ENCODERS])
    parser.add_argument("--format", choices=["q4_0", "q4_k_m", "q8_0", "f16", "f32"], help="of the GGUF's matrices; q4_0, of encoders q8_0")
    parser.add_argument("--embedding", choices=["q4_0", "q8_0", "q6_k", "f16"], help="of the GGUF's embedding, which is the output's too; q8_0, with q4_k_m q6_k")
    parser.add_argument("--dtypes", help="of the ONNX graphs; q4f16,q4, of encoders q8,fp32; q4f16 needs shader-f16, q4 and fp32 compute in float32, q8 too but for products")
    parser.add_argument("--name", help="of the file and the folder")
    parser.add_argument("--only", choices=["gguf", "onnx"])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    name = arguments.name or arguments.shape
    file, folder = str(arguments.out / f"{name}.gguf"), arguments.out / name
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.shape in ENCODERS:
        if arguments.format not in (None, "f32", "f16", "q8_0") or arguments.embedding is not None:
            parser.error("encoders are written in f32, f16 and q8_0, all matrices in the same")
        from encoder import write_encoder_gguf, write_encoder_onnx

        shape = ENCODERS[arguments.shape]
        if arguments.only != "onnx":
            write_encoder_gguf(file, arguments.shape, shape, arguments.format or "q8_0", arguments.seed)
        if arguments.only != "gguf":
            write_encoder_onnx(folder, shape, (arguments.dtypes or "q8,fp32").split(","), arguments.seed)
        return
    shape, format = SHAPES[arguments.shape], arguments.format or "q4_0"
    embedding = arguments.embedding or ("q6_k" if format == "q4_k_m" else "q8_0")
    # Imported where they are wanted, so that a machine that lacks one of the packages can write the other kind.
    if arguments.only != "onnx":
        from gguf_model import write_gguf

        write_gguf(file, arguments.shape, shape, format, embedding, arguments.seed)
    if arguments.only != "gguf":
        from onnx_model import write_onnx

        write_onnx(folder, shape, (arguments.dtypes or "q4f16,q4").split(","), arguments.seed)


if __name__ == "__main__":
    main()
