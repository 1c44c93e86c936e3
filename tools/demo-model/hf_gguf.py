"""Maps a Llama or Qwen2 model (Hugging Face names) and a byte-level BPE tokenizer to llama.cpp's GGUF names and back.

Knows names, the rope permutation and the metadata keys; knows nothing of how a model was trained. An architecture is
called by its name in GGUF: "llama" or "qwen2".
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
ROPE_ON_NEIGHBOURS = {"llama"}  # the architectures whose q and k rows llama.cpp's converter reorders
# llama.cpp's converter writes these for Llama alone; of others they follow from the rest.
LLAMA_KEYS = {"vocab_size", "attention.key_length", "attention.value_length", "rope.dimension_count"}
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
    layer, part, kind = re.fullmatch(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)", name).groups()
    return f"blk.{layer}.{LAYER_NAMES[part]}.{kind}"


def _reordered_heads(arch: str, name: str, config: dict) -> int | None:
    if arch not in ROPE_ON_NEIGHBOURS:
        return None
    kinds = {"q_proj.weight": "num_attention_heads", "k_proj.weight": "num_key_value_heads"}
    return next((config[heads] for end, heads in kinds.items() if name.endswith(end)), None)


def to_gguf_tensors(arch: str, state: dict, config: dict, fmt: str, formats: dict | None = None) -> dict:
    """HF state (name → float32 array) → GGUF tensors; 1-D tensors stay F32, `formats` overrides by GGUF name."""
    tensors = {}
    for name, weights in state.items():
        target = gguf_name(name)
        heads = _reordered_heads(arch, name, config)
        if heads:
            weights = to_interleaved(weights, heads)
        wanted = "F32" if weights.ndim == 1 else (formats or {}).get(target, fmt)
        tensors[target] = (np.ascontiguousarray(weights), wanted)
    return tensors


def from_gguf_tensors(arch: str, tensors: dict, config: dict) -> dict:
    """GGUF tensors (as gguf_file.read gives them) → HF state of float32 arrays."""
    back = {gguf_name(name): name for name in _hf_names(config["num_hidden_layers"])}
    state = {}
    for target, (weights, _) in tensors.items():
        name = back[target]
        heads = _reordered_heads(arch, name, config)
        state[name] = to_halves(weights, heads) if heads else weights
    return state


def _hf_names(layers: int):
    yield from OUTER_NAMES
    for layer in range(layers):
        for part in LAYER_NAMES:
            yield f"model.layers.{layer}.{part}.weight"
            yield f"model.layers.{layer}.{part}.bias"


def metadata(arch: str, config: dict, name: str, file_type: str, general: dict | None = None) -> dict:
    """config uses the field names of transformers' LlamaConfig and Qwen2Config."""
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    keys = {
        "vocab_size": config["vocab_size"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "rope.dimension_count": head_dim,
        "rope.freq_base": float(config["rope_theta"]),
    }
    return {
        "general.architecture": arch,
        "general.type": "model",
        "general.name": name,
        **(general or {}),
        "general.file_type": FILE_TYPES[file_type],
        "general.quantization_version": 2,
        **{f"{arch}.{key}": value for key, value in keys.items() if arch == "llama" or key not in LLAMA_KEYS},
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
