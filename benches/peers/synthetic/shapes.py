"""Shapes of published models (their config.json on the Hugging Face Hub), for models of random weights. Speed depends on the
shape and the format of weights, not on their values."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    arch: str  # "llama" or "qwen2", which differs by the biases of query, key and value
    layers: int
    n_embd: int
    n_ff: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    rope_theta: float


SHAPES = {
    "smollm2-135m": Shape("llama", 30, 576, 1536, 9, 3, 64, 49152, 100000.0),
    "llama-3.2-1b": Shape("llama", 16, 2048, 8192, 32, 8, 64, 128256, 500000.0),
    "llama-3.2-3b": Shape("llama", 28, 3072, 8192, 24, 8, 128, 128256, 500000.0),
    "llama-3.1-8b": Shape("llama", 32, 4096, 14336, 32, 8, 128, 128256, 500000.0),
    "qwen2.5-0.5b": Shape("qwen2", 24, 896, 4864, 14, 2, 64, 151936, 1000000.0),
    "qwen2.5-1.5b": Shape("qwen2", 28, 1536, 8960, 12, 2, 128, 151936, 1000000.0),
    "tiny": Shape("llama", 2, 256, 512, 4, 2, 64, 1024, 10000.0),
}



@dataclass(frozen=True)
class EncoderShape:
    """Of BERT."""

    layers: int
    n_embd: int
    n_ff: int
    heads: int
    vocab: int
    positions: int


ENCODERS = {"minilm-l6": EncoderShape(6, 384, 1536, 12, 30522, 512)}
# Of all-MiniLM-L6-v2.
LAYER_NORM_EPSILON = 1e-12

CONTEXT_LENGTH = 8192
EPSILON = 1e-5
# Of the random weights, so that activations neither vanish nor overflow float16.
WEIGHT_STD = 0.02
EMBEDDING_STD = 0.05
