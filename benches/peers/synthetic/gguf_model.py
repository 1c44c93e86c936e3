"""A GGUF file of a shape with random weights, for rillm and wllama."""

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType

from shapes import CONTEXT_LENGTH, EMBEDDING_STD, EPSILON, WEIGHT_STD, Shape
from vocabulary import vocabulary

FILE_TYPES = {
    "f32": LlamaFileType.ALL_F32,
    "f16": LlamaFileType.MOSTLY_F16,
    "q4_0": LlamaFileType.MOSTLY_Q4_0,
    "q4_k_m": LlamaFileType.MOSTLY_Q4_K_M,
    "q8_0": LlamaFileType.MOSTLY_Q8_0,
}
# The standard deviation of evenly spread 4-bit and 8-bit numbers; a block's scale is the wanted one over it.
STD_OF_4_BITS, STD_OF_5_BITS, STD_OF_6_BITS, STD_OF_8_BITS = 4.61, 9.23, 18.5, 73.9
# What llama.cpp writes in place of a format with blocks of 256 where these don't divide a row.
WITHOUT_BLOCKS_OF_256 = {"q4_k": "q5_0", "q6_k": "q8_0"}


def random_blocks(rng: np.random.Generator, quantization: str, rows: int, columns: int, std: float):
    """Weights of about this standard deviation: raw rows of blocks (layouts of ggml-common.h) and their type."""

    def scales(blocks: int, value: float) -> np.ndarray:
        return np.full((blocks, 1), value, np.float16).view(np.uint8)

    def noise(blocks: int, size: int) -> np.ndarray:
        return rng.integers(0, 256, (blocks, size), np.uint8)

    if quantization == "f32":
        return rng.standard_normal((rows, columns), np.float32) * np.float32(std), None
    count = rows * columns
    if columns % 256 != 0:
        quantization = WITHOUT_BLOCKS_OF_256.get(quantization, quantization)
    if quantization == "f16":
        return (rng.standard_normal((rows, columns), np.float32) * std).astype(np.float16), None
    if quantization == "q4_0":
        n = count // 32
        data, kind = [scales(n, std / STD_OF_4_BITS), noise(n, 16)], GGMLQuantizationType.Q4_0
    elif quantization == "q5_0":
        n = count // 32
        data, kind = [scales(n, std / STD_OF_5_BITS), noise(n, 4), noise(n, 16)], GGMLQuantizationType.Q5_0
    elif quantization == "q8_0":
        n = count // 32
        data, kind = [scales(n, std / STD_OF_8_BITS), noise(n, 32)], GGMLQuantizationType.Q8_0
    elif quantization == "mxfp4":
        n = count // 32
        # One power of two for all blocks: floats of four bits have a standard deviation of 2.93.
        exponents = np.full((n, 1), 127 + round(np.log2(std / 2.93)), np.uint8)
        data, kind = [exponents, noise(n, 16)], GGMLQuantizationType.MXFP4
    elif quantization == "q4_k":
        n = count // 256
        # Eight scales and eight minima of six bits, all 32, so that a weight is 32 · (scale · quant - minimum); the minimum is the mean quant.
        sub_scales = np.broadcast_to(np.array([160] * 8 + [0] * 4, np.uint8), (n, 12))
        scale = std / STD_OF_4_BITS / 32
        data, kind = [scales(n, scale), scales(n, scale * 7.5), sub_scales, noise(n, 128)], GGMLQuantizationType.Q4_K
    elif quantization == "q6_k":
        n = count // 256
        sub_scales = np.full((n, 16), 16, np.uint8)
        data, kind = [noise(n, 192), sub_scales, scales(n, std / STD_OF_6_BITS / 16)], GGMLQuantizationType.Q6_K
    else:
        raise SystemExit(f"there is no quantization {quantization} here")
    return np.concatenate(data, axis=1).reshape(rows, -1), kind


def add_tokenizer(writer: GGUFWriter, size: int, pre: str) -> None:
    """A made-up vocabulary of so many tokens, cut beforehand as that of `pre`."""
    tokens, merges = vocabulary(size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (size - 2) + [3, 3])
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_bos_token_id(size - 2)
    writer.add_eos_token_id(size - 1)
    writer.add_add_bos_token(False)


def takes_more_bits(layer: int, layers: int) -> bool:
    """The layers whose value and down-projection have six bits in the mix Q4_K_M (llama.cpp's `use_more_bits`)."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def write_gguf(path: str, name: str, shape: Shape, quantization: str, embedding: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    writer = GGUFWriter(path, shape.arch)
    writer.add_name(f"{name} shape, random weights")
    writer.add_block_count(shape.layers)
    writer.add_context_length(CONTEXT_LENGTH)
    writer.add_embedding_length(shape.n_embd)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_vocab_size(shape.vocab)
    writer.add_file_type(FILE_TYPES[quantization])

    add_tokenizer(writer, shape.vocab, "llama-bpe" if shape.arch == "llama" else "qwen2")

    def matrix(tensor: str, rows: int, columns: int, kind: str, std: float = WEIGHT_STD) -> None:
        data, raw_dtype = random_blocks(rng, kind, rows, columns, std)
        writer.add_tensor(tensor, data, raw_dtype=raw_dtype)

    def ones(tensor: str, size: int) -> None:
        writer.add_tensor(tensor, np.ones(size, np.float32))

    query, key_value = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    matrix("token_embd.weight", shape.vocab, shape.n_embd, embedding, EMBEDDING_STD)
    ones("output_norm.weight", shape.n_embd)
    mixed = quantization == "q4_k_m"
    for layer in range(shape.layers):
        prefix = f"blk.{layer}"
        plain = "q4_k" if mixed else quantization
        more = "q6_k" if mixed and takes_more_bits(layer, shape.layers) else plain
        ones(f"{prefix}.attn_norm.weight", shape.n_embd)
        for part, rows in {"q": query, "k": key_value, "v": key_value}.items():
            matrix(f"{prefix}.attn_{part}.weight", rows, shape.n_embd, more if part == "v" else plain)
            if shape.arch == "qwen2":
                bias = (rng.standard_normal(rows) * WEIGHT_STD).astype(np.float32)
                writer.add_tensor(f"{prefix}.attn_{part}.bias", bias)
        matrix(f"{prefix}.attn_output.weight", shape.n_embd, query, plain)
        ones(f"{prefix}.ffn_norm.weight", shape.n_embd)
        matrix(f"{prefix}.ffn_gate.weight", shape.n_ff, shape.n_embd, plain)
        matrix(f"{prefix}.ffn_up.weight", shape.n_ff, shape.n_embd, plain)
        matrix(f"{prefix}.ffn_down.weight", shape.n_embd, shape.n_ff, more)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
