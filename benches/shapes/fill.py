"""Makes models of random weights of what `skeleton.py` laid out. Speed depends on shapes and formats, not on values.

usage: fill.py SKELETONS.json OUT [--quantization q4_0]   (gguf, numpy)

OUT/SHAPE.gguf are written. The embedding, which is the output too, is in Q8_0.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

sys.path.append(str(Path(__file__).resolve().parents[1] / "peers" / "synthetic"))
from gguf_model import add_tokenizer, random_blocks  # noqa: E402

# What kernels read as numbers whatever the model's format.
IN_F32 = ("norm", ".ssm_conv1d.", ".shortconv.conv.", ".ssm_a", ".ssm_d", ".ssm_dt.", ".bias")
# Rows of random blocks that large matrices repeat.
SOME_ROWS = 512


def matrix(rng: np.random.Generator, quantization: str, shape: list[int]) -> tuple[np.ndarray, GGMLQuantizationType]:
    *stack, columns = shape
    rows = int(np.prod(stack))
    some, kind = random_blocks(rng, quantization, min(rows, SOME_ROWS), columns, 0.02)
    return np.resize(some, (rows, some.shape[1])).reshape(*stack, -1), kind


def write(path: Path, name: str, skeleton: dict, quantization: str) -> None:
    rng = np.random.default_rng(0)
    writer = GGUFWriter(path, skeleton["architecture"])
    writer.add_name(f"{name} shape, random weights")
    for key, value in skeleton["metadata"].items():
        match value:
            case bool():
                writer.add_bool(key, value)
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case str():
                writer.add_string(key, value)
            case list():
                writer.add_array(key, value)
    add_tokenizer(writer, skeleton["vocab_size"], "qwen2")
    for target, tensor in skeleton["tensors"].items():
        shape = tensor["shape"]
        if len(shape) == 1 or any(part in target for part in IN_F32):
            # A little noise where a vector begins with zero, so that nothing is lost in zeros.
            values = np.full(shape, tensor["value"], np.float32)
            writer.add_tensor(target, values if tensor["value"] != 0.0 else values + rng.standard_normal(shape, np.float32) * np.float32(0.1))
            continue
        kind = "q8_0" if target in ("token_embd.weight", "output.weight") else tensor.get("quantization", quantization)
        # Rows that are no whole blocks stay in halves.
        data, raw = matrix(rng, kind if shape[-1] % 32 == 0 else "f16", shape)
        writer.add_tensor(target, data, raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skeletons", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quantization", default="q4_0", choices=["q4_0", "q8_0", "f16"])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, skeleton in json.loads(options.skeletons.read_text()).items():
        write(options.out / f"{name}.gguf", name, skeleton, options.quantization)
        print(name)


if __name__ == "__main__":
    main()
