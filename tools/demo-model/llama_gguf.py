"""Maps a Llama model (Hugging Face names) and a byte-level BPE tokenizer to llama.cpp's GGUF names and back.

Knows names, the rope permutation and the metadata keys; knows nothing of how a model was trained.
"""

import re

import numpy as np

LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTER_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7}
NORMAL, CONTROL = 1, 3  # tokenizer.ggml.token_type


def to_interleaved(weights: np.ndarray, heads: int) -> np.ndarray:
    """HF rotates the halves of a head, llama.cpp's "llama" rotates neighbours: reorder the rows of q and k."""
    rows, columns = weights.shape
    return weights.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def to_halves(weights: np.ndarray, heads: int) -> np.ndarray:
    rows, columns = weights.shape
    return weights.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def gguf_name(name: str) -> str:
    if name in OUTER_NAMES:
        return OUTER_NAMES[name]
    layer, part = re.fullmatch(r"model\.layers\.(\d+)\.(.+)\.weight", name).groups()
    return f"blk.{layer}.{LAYER_NAMES[part]}.weight"


def _rotated_heads(name: str, heads: int, kv_heads: int) -> int | None:
    return heads if name.endswith("q_proj.weight") else kv_heads if name.endswith("k_proj.weight") else None


def to_gguf_tensors(state: dict, config: dict, fmt: str, formats: dict | None = None) -> dict:
    """HF state (name → float32 array) → GGUF tensors; 1-D tensors stay F32, `formats` overrides by GGUF name."""
    tensors = {}
    for name, weights in state.items():
        target = gguf_name(name)
        heads = _rotated_heads(name, config["num_attention_heads"], config["num_key_value_heads"])
        if heads:
            weights = to_interleaved(weights, heads)
        wanted = "F32" if weights.ndim == 1 else (formats or {}).get(target, fmt)
        tensors[target] = (np.ascontiguousarray(weights), wanted)
    return tensors


def from_gguf_tensors(tensors: dict, config: dict) -> dict:
    """GGUF tensors (as gguf_file.read gives them) → HF state of float32 arrays."""
    back = {gguf_name(name): name for name in _hf_names(config["num_hidden_layers"])}
    state = {}
    for target, (weights, _) in tensors.items():
        name = back[target]
        heads = _rotated_heads(name, config["num_attention_heads"], config["num_key_value_heads"])
        state[name] = to_halves(weights, heads) if heads else weights
    return state


def _hf_names(layers: int):
    yield from OUTER_NAMES
    for layer in range(layers):
        for part in LAYER_NAMES:
            yield f"model.layers.{layer}.{part}.weight"


def llama_metadata(config: dict, name: str, file_type: str, general: dict | None = None) -> dict:
    """config uses the field names of transformers' LlamaConfig."""
    return {
        "general.architecture": "llama",
        "general.type": "model",
        "general.name": name,
        **(general or {}),
        "general.file_type": FILE_TYPES[file_type],
        "general.quantization_version": 2,
        "llama.vocab_size": config["vocab_size"],
        "llama.context_length": config["max_position_embeddings"],
        "llama.embedding_length": config["hidden_size"],
        "llama.block_count": config["num_hidden_layers"],
        "llama.feed_forward_length": config["intermediate_size"],
        "llama.attention.head_count": config["num_attention_heads"],
        "llama.attention.head_count_kv": config["num_key_value_heads"],
        "llama.attention.key_length": config["head_dim"],
        "llama.attention.value_length": config["head_dim"],
        "llama.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "llama.rope.dimension_count": config["head_dim"],
        "llama.rope.freq_base": float(config["rope_theta"]),
    }


def tokenizer_metadata(tokenizer_json: dict, bos: str, eos: str, pad: str, chat_template: str | None = None) -> dict:
    """tokenizer_json: the parsed tokenizer.json of a byte-level BPE tokenizer with Qwen2's pre-tokenizer."""
    vocab = dict(tokenizer_json["model"]["vocab"])
    special = {entry["content"]: entry["id"] for entry in tokenizer_json["added_tokens"]}
    vocab.update(special)
    tokens = sorted(vocab, key=vocab.get)
    if [vocab[token] for token in tokens] != list(range(len(tokens))):
        raise ValueError("the token ids have gaps")
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in tokenizer_json["model"]["merges"]]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL if token in special else NORMAL for token in tokens],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": vocab[bos],
        "tokenizer.ggml.eos_token_id": vocab[eos],
        "tokenizer.ggml.padding_token_id": vocab[pad],
        "tokenizer.ggml.add_bos_token": False,
    }
    if chat_template:
        metadata["tokenizer.chat_template"] = chat_template
    return metadata
