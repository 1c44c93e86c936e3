"""Turns a model of transformers (its config and its state in the hub's names) into the metadata and tensors of a GGUF file.

Names of tensors come from the PyPI package `gguf`; keys, stackings, the permutation of rope's rows and the shifts of weights are
those of llama.cpp's converter (its `conversion/*.py` say what each architecture gets). Knows nothing of tokenizers and files.
"""

import math
import re

import gguf
import numpy as np

# GGUF's architecture by transformers' model_type.
ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3_moe": "qwen3moe",
    "gemma2": "gemma2", "gemma3_text": "gemma3", "phi3": "phi3", "smollm3": "smollm3", "olmo2": "olmo2", "olmo3": "olmo2", "granite": "granite",
    "stablelm": "stablelm", "gpt2": "gpt2",
}
# Whose rows of q and k are reordered, so that rope turns neighbours.
ROPE_ON_NEIGHBOURS = {"llama", "smollm3", "granite"}
# Whose norms multiply with 1 + weight; the files hold the sum.
SHIFTED_NORMS = {"gemma2", "gemma3"}
# Whose weights are stored [inputs, outputs].
TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def rope_of(config) -> dict:
    """The parameters of rope; of the layers with full attention where layers differ."""
    parameters = getattr(config, "rope_parameters", None) or {}
    return parameters.get("full_attention", parameters)


def llama3_factors(rope: dict, head_dim: int) -> np.ndarray:
    """What divides each frequency (Llama 3.1's model card and transformers' `_compute_llama3_parameters`)."""
    context = rope["original_max_position_embeddings"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    factors = []
    for i in range(head_dim // 2):
        turns = context / (2 * math.pi * rope["rope_theta"] ** (2 * i / head_dim))
        smooth = min(max((turns - low) / (high - low), 0.0), 1.0)
        factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.asarray(factors, np.float32)


def metadata(config) -> dict:
    arch = ARCHITECTURES[config.model_type]
    if arch == "gpt2":
        keys = {
            "context_length": config.n_positions, "embedding_length": config.n_embd, "block_count": config.n_layer,
            "feed_forward_length": config.n_inner or 4 * config.n_embd, "attention.head_count": config.n_head,
            "attention.layer_norm_epsilon": config.layer_norm_epsilon,
        }
        return {f"{arch}.{key}": value for key, value in keys.items()}
    heads = config.num_attention_heads
    rope = rope_of(config)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    keys = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "rope.freq_base": float(rope["rope_theta"]),
    }
    if arch == "stablelm":
        keys["attention.layer_norm_epsilon"] = config.layer_norm_eps
        keys["use_parallel_residual"] = config.use_parallel_residual
    else:
        keys["attention.layer_norm_rms_epsilon"] = config.rms_norm_eps
    if arch in ("llama", "qwen3", "qwen3moe", "gemma2", "gemma3", "granite", "smollm3"):
        keys |= {"attention.key_length": head_dim, "attention.value_length": head_dim}
    if arch in ("llama", "granite", "smollm3"):
        keys |= {"vocab_size": config.vocab_size, "rope.dimension_count": head_dim}
    if arch in ("phi3", "stablelm"):
        keys["rope.dimension_count"] = int(head_dim * rope.get("partial_rotary_factor", 1.0))
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        keys["attention.sliding_window"] = config.sliding_window
        if arch in ("qwen2", "qwen3", "qwen3moe"):
            keys["attention.sliding_window_pattern"] = [kind == "sliding_attention" for kind in config.layer_types]
    if arch == "gemma2":
        keys["attn_logit_softcapping"] = config.attn_logit_softcapping
        keys["final_logit_softcapping"] = config.final_logit_softcapping
    if arch == "granite":
        keys |= {
            "attention.scale": config.attention_multiplier, "embedding_scale": config.embedding_multiplier,
            "residual_scale": config.residual_multiplier, "logit_scale": config.logits_scaling,
        }
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if experts:
        keys |= {"expert_count": experts, "expert_used_count": config.num_experts_per_tok}
    if arch == "qwen3moe":
        keys["expert_feed_forward_length"] = config.moe_intermediate_size
    keys |= rope_scaling(config, rope)
    return {f"{arch}.{key}": value for key, value in keys.items()}


def rope_scaling(config, rope: dict) -> dict:
    kind = rope.get("rope_type", "default")
    if kind == "linear":
        return {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
    if kind == "yarn":
        return {
            "rope.scaling.type": "yarn", "rope.scaling.factor": float(rope["factor"]),
            "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
        }
    if config.model_type == "phi3":
        original = rope.get("original_max_position_embeddings", config.max_position_embeddings)
        keys = {"rope.scaling.original_context_length": original}
        if kind == "longrope":
            stretch = config.max_position_embeddings / original
            keys["rope.scaling.attn_factor"] = math.sqrt(1 + math.log(stretch) / math.log(original))
        return keys
    assert kind in ("default", "llama3"), f"GGUF has no rope scaling {kind!r}"
    return {}


def to_interleaved(weights: np.ndarray, heads: int) -> np.ndarray:
    """From halves of a head that turn together to neighbours."""
    rows = weights.shape[0]
    return weights.reshape(heads, 2, rows // heads // 2, -1).swapaxes(1, 2).reshape(weights.shape)


def stacked(state: dict) -> dict:
    """Experts, and norms of single heads, as one tensor each."""
    groups, rest = {}, {}
    for name, weights in state.items():
        match = re.fullmatch(r"(.+\.(?:experts|q_layernorm\.norms|k_layernorm\.norms))\.(\d+)\.(.+)", name)
        if match:
            groups.setdefault((match[1], match[3]), {})[int(match[2])] = weights
        else:
            rest[name] = weights
    for (stem, end), parts in groups.items():
        name = f"{stem}.{end}" if stem.endswith("experts") else f"{stem.removesuffix('.norms')}.{end}"
        rest[name] = np.stack([parts[index] for index in range(len(parts))])
    return rest


def tensors(config, state: dict) -> dict:
    """GGUF tensors of a state in the names that the hub's files use; all are F32."""
    arch = ARCHITECTURES[config.model_type]
    kind = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    layers = getattr(config, "num_hidden_layers", None) or config.n_layer
    names = gguf.get_tensor_name_map(kind, layers)
    result = {}
    for name, weights in stacked(state).items():
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert target, f"llama.cpp has no name for {name}"
        if name.endswith(TRANSPOSED):
            weights = weights.T
        if arch in SHIFTED_NORMS and name.endswith("norm.weight"):
            weights = weights + np.float32(1)
        if arch in ROPE_ON_NEIGHBOURS:
            for part, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
                if f".{part}." in name:
                    weights = to_interleaved(weights, heads)
        result[target] = (np.ascontiguousarray(weights), "F32")
    rope = rope_of(config)
    if rope.get("rope_type") == "llama3":
        result["rope_freqs.weight"] = (llama3_factors(rope, config.head_dim), "F32")
    if rope.get("rope_type") == "longrope":
        result["rope_factors_long.weight"] = (np.asarray(rope["long_factor"], np.float32), "F32")
        result["rope_factors_short.weight"] = (np.asarray(rope["short_factor"], np.float32), "F32")
    return result
