"""Turns a model of transformers (its config and its state in the hub's names) into the metadata and tensors of a GGUF file.

Names of tensors come from the PyPI package `gguf`; keys, stackings, the permutation of rope's rows and the shifts of weights are
those of llama.cpp's converter (its `conversion/*.py` say what each architecture gets). Knows nothing of tokenizers and files.
"""

import math
import re
from statistics import NormalDist

import gguf
import numpy as np

# GGUF's architecture by transformers' model_type.
ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3_moe": "qwen3moe",
    "gemma2": "gemma2", "gemma3_text": "gemma3", "phi3": "phi3", "smollm3": "smollm3", "olmo2": "olmo2", "olmo3": "olmo2", "granite": "granite",
    "stablelm": "stablelm", "gpt2": "gpt2", "gpt_oss": "gpt-oss", "ministral3": "mistral3", "gemma": "gemma", "qwen2_moe": "qwen2moe",
    "olmoe": "olmoe", "olmo": "olmo", "phi": "phi2", "phimoe": "phimoe", "seed_oss": "seed_oss", "starcoder2": "starcoder2",
    "hunyuan_v1_dense": "hunyuan-dense", "hunyuan_v1_moe": "hunyuan-moe", "ernie4_5": "ernie4_5", "ernie4_5_moe": "ernie4_5-moe",
    "exaone4": "exaone4", "glm4": "glm4", "glm4_moe": "glm4moe", "cohere": "command-r", "cohere2": "cohere2", "apertus": "apertus",
    "arcee": "arcee", "helium": "llama", "nemotron": "nemotron", "gpt_neox": "gptneox", "bloom": "bloom", "falcon": "falcon",
    "granitemoe": "granitemoe", "gemma4_text": "gemma4", "gemma3n_text": "gemma3n", "qwen3_next": "qwen3next", "qwen3_5_text": "qwen35",
    "qwen3_5_moe_text": "qwen35moe", "lfm2": "lfm2", "lfm2_moe": "lfm2moe", "granitemoehybrid": "granitehybrid", "falcon_h1": "falcon-h1",
    "nemotron_h": "nemotron_h", "mamba2": "mamba2", "mamba": "mamba", "falcon_mamba": "mamba", "jamba": "jamba",
    "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2", "glm4_moe_lite": "deepseek2", "youtu": "deepseek2", "minicpm3": "minicpm3",
    "dots1": "dots1", "bitnet": "bitnet",
}
# Whose rows of q and k are reordered, so that rope turns neighbours.
ROPE_ON_NEIGHBOURS = {"llama", "smollm3", "granite", "mistral3", "olmo", "arcee", "granitemoe", "granitehybrid"}
# Whose rows are in that order already.
ON_NEIGHBOURS_ALREADY = {"helium"}
# Whose norms multiply with 1 + weight; the files hold the sum.
SHIFTED_NORMS = {"gemma", "gemma2", "gemma3", "nemotron"}
# Short convolutions between two gates.
SHORT_CONVOLUTIONS = {"lfm2", "lfm2moe"}
# Gated delta nets.
DELTA = {"qwen3next", "qwen35", "qwen35moe"}
# Mamba mixers, of the second form and of the first.
MAMBA2 = {"granitehybrid", "falcon-h1", "nemotron_h", "nemotron_h_moe", "mamba2"}
MAMBA = {"mamba", "falcon_mamba", "jamba"}
# Attention over latents.
LATENTS = {"deepseek2", "minicpm3"}
# Whose weights are stored [inputs, outputs].
TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def arch_of(config) -> str:
    """GGUF's architecture of a model."""
    if config.model_type == "granitemoehybrid" and "linear_attention" not in config.layer_types:
        return "granitemoe" if config.num_local_experts else "granite"
    if config.model_type == "nemotron_h" and "moe" in config.layer_types:
        return "nemotron_h_moe"
    return ARCHITECTURES[config.model_type]


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
    arch = arch_of(config)
    if arch == "gemma4":
        return {f"{arch}.{key}": value for key, value in gemma4_metadata(config).items() if value is not None}
    if arch == "gpt2":
        keys = {
            "context_length": config.n_positions, "embedding_length": config.n_embd, "block_count": config.n_layer,
            "feed_forward_length": config.n_inner or 4 * config.n_embd, "attention.head_count": config.n_head,
            "attention.layer_norm_epsilon": config.layer_norm_epsilon,
        }
        return {f"{arch}.{key}": value for key, value in keys.items()}
    if arch == "bloom":
        keys = {
            "context_length": 2048, "embedding_length": config.hidden_size, "block_count": config.n_layer,
            "feed_forward_length": 4 * config.hidden_size, "attention.head_count": config.n_head, "attention.head_count_kv": config.n_head,
            "attention.layer_norm_epsilon": config.layer_norm_epsilon,
        }
        return {f"{arch}.{key}": value for key, value in keys.items()}
    if arch in ("mamba", "mamba2"):
        keys = {
            "context_length": 2**20, "embedding_length": config.hidden_size, "feed_forward_length": 0, "attention.head_count": 0,
            "block_count": config.num_hidden_layers, "attention.layer_norm_rms_epsilon": config.layer_norm_epsilon,
        } | state_space_keys(config)
        return {f"{arch}.{key}": value for key, value in keys.items()}
    heads = config.num_attention_heads
    rope = rope_of(config)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    keys = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": feed_forward_length(config),
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads(config),
        "rope.freq_base": float(rope["rope_theta"]) if rope else None,
    }
    if "alpha" in rope:
        # Hunyuan's scaling of the base.
        keys["rope.freq_base"] *= rope["alpha"] ** (head_dim / (head_dim - 2))
        rope = {}
    epsilon = LAYER_NORM_EPSILONS.get(arch)
    if epsilon:
        keys["attention.layer_norm_epsilon"] = epsilon if isinstance(epsilon, float) else getattr(config, epsilon)
    if arch in ("stablelm", "gptneox"):
        keys["use_parallel_residual"] = config.use_parallel_residual
    if not epsilon:
        keys["attention.layer_norm_rms_epsilon"] = next(
            value for name in ("rms_norm_eps", "norm_eps", "layer_norm_epsilon") if (value := getattr(config, name, None)))
    if arch in WITH_HEAD_DIM or arch in DELTA:
        keys |= {"attention.key_length": head_dim, "attention.value_length": head_dim}
    if arch in ("llama", "granite", "granitemoe", "smollm3", "mistral3", "arcee"):
        keys |= {"vocab_size": config.vocab_size, "rope.dimension_count": head_dim}
    if arch in ("phi3", "stablelm", "phi2", "glm4", "glm4moe", "nemotron", "gptneox", *DELTA):
        keys["rope.dimension_count"] = int(head_dim * rope.get("partial_rotary_factor", 1.0))
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        keys["attention.sliding_window"] = config.sliding_window
        if arch in ("qwen2", "qwen3", "qwen3moe", "exaone4", "cohere2"):
            keys["attention.sliding_window_pattern"] = [kind == "sliding_attention" for kind in config.layer_types]
    if arch == "gemma2":
        keys["attn_logit_softcapping"] = config.attn_logit_softcapping
        keys["final_logit_softcapping"] = config.final_logit_softcapping
    if arch == "gemma3n":
        keys |= {
            "rope.freq_base_swa": float(config.rope_parameters["sliding_attention"]["rope_theta"]),
            "attention.sliding_window_pattern": [kind == "sliding_attention" for kind in config.layer_types],
            "attention.shared_kv_layers": config.num_kv_shared_layers, "altup.active_idx": config.altup_active_idx,
            "altup.num_inputs": config.altup_num_inputs, "embedding_length_per_layer_input": config.hidden_size_per_layer_input,
            "final_logit_softcapping": config.final_logit_softcapping,
            "activation_sparsity_scale": [
                NormalDist().inv_cdf(share) if share else -math.inf for share in config.activation_sparsity_pattern],
        }
    if arch in ("command-r", "cohere2"):
        keys["logit_scale"] = config.logit_scale
    if arch == "bitnet":
        keys |= {"hidden_activation": config.hidden_act, "rope.scaling.type": "linear", "rope.scaling.factor": 1.0}
    if arch == "olmo":
        keys["attention.clamp_kqv"] = config.clip_qkv
    if arch in ("granite", "granitemoe", "granitehybrid"):
        keys |= {
            "attention.scale": config.attention_multiplier, "embedding_scale": config.embedding_multiplier,
            "residual_scale": config.residual_multiplier, "logit_scale": config.logits_scaling,
        }
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if experts:
        used = getattr(config, "num_experts_per_tok", None) or config.moe_topk
        keys |= {"expert_count": experts, "expert_used_count": used}
    if arch in ("qwen3moe", "qwen2moe", "ernie4_5-moe", "glm4moe", "qwen3next", "qwen35moe"):
        keys["expert_feed_forward_length"] = config.moe_intermediate_size
    if arch == "gpt-oss":
        keys["expert_feed_forward_length"] = config.intermediate_size
    if arch in ("qwen2moe", "qwen3next", "qwen35moe"):
        keys["expert_shared_feed_forward_length"] = config.shared_expert_intermediate_size
    if arch == "hunyuan-moe":
        keys |= {"expert_shared_feed_forward_length": config.intermediate_size, "expert_shared_count": 1}
    if arch == "ernie4_5-moe":
        keys |= {
            "expert_shared_count": config.moe_num_shared_experts, "leading_dense_block_count": config.moe_layer_start_index,
            "interleave_moe_layer_step": config.moe_layer_interval,
            "expert_shared_feed_forward_length": config.moe_num_shared_experts * config.moe_intermediate_size,
        }
    if arch == "glm4moe":
        # One layer more, which predicts a further token.
        keys |= {
            "expert_shared_count": config.n_shared_experts, "leading_dense_block_count": config.first_k_dense_replace,
            "expert_gating_func": 2, "expert_weights_scale": config.routed_scaling_factor, "expert_weights_norm": config.norm_topk_prob,
            "block_count": config.num_hidden_layers + 1, "nextn_predict_layers": 1,
        }
    if arch in LATENTS:
        keys |= latent_keys(config, arch, rope)
    if arch in ("deepseek2", "dots1") and getattr(config, "n_routed_experts", None):
        keys |= {
            "expert_count": config.n_routed_experts, "expert_used_count": config.num_experts_per_tok,
            "expert_feed_forward_length": config.moe_intermediate_size, "expert_shared_count": config.n_shared_experts,
            "expert_weights_scale": config.routed_scaling_factor, "expert_weights_norm": config.norm_topk_prob or None,
            "leading_dense_block_count": getattr(config, "first_k_dense_replace", 1),
            "expert_group_count": config.n_group, "expert_group_used_count": config.topk_group,
            "expert_gating_func": 1 if config.model_type == "deepseek_v2" else 2,
        }
    if arch in DELTA:
        keys |= {
            "ssm.conv_kernel": config.linear_conv_kernel_dim, "ssm.state_size": config.linear_key_head_dim,
            "ssm.group_count": config.linear_num_key_heads, "ssm.time_step_rank": config.linear_num_value_heads,
            "ssm.inner_size": config.linear_num_value_heads * config.linear_value_head_dim,
            "full_attention_interval": config.layer_types.index("full_attention") + 1,
        }
    if arch in MAMBA2 | MAMBA:
        keys |= state_space_keys(config)
    if arch in ("granitehybrid", "nemotron_h", "nemotron_h_moe", "jamba"):
        kinds = config.layer_types
        keys["attention.head_count_kv"] = [config.num_key_value_heads if kind == "full_attention" else 0 for kind in kinds]
        if arch != "jamba":
            keys["rope.scaling.finetuned"] = getattr(config, "position_embedding_type", None) == "rope"
    if arch == "granitehybrid":
        keys |= {"context_length": 2**20, "expert_shared_feed_forward_length": config.shared_intermediate_size}
    if arch in ("nemotron_h", "nemotron_h_moe"):
        lengths = {"mlp": config.intermediate_size, "moe": config.moe_intermediate_size}
        keys["feed_forward_length"] = [lengths.get(kind, 0) for kind in kinds]
        keys |= {"attention.key_length": head_dim, "attention.value_length": head_dim}
        # That the class knows them says nothing of the layers.
        keys = {key: value for key, value in keys.items() if not key.startswith("expert_")}
    if arch == "nemotron_h_moe":
        keys |= {
            "expert_count": config.n_routed_experts, "expert_used_count": config.num_experts_per_tok, "expert_shared_count": 1,
            "expert_feed_forward_length": config.moe_intermediate_size,
            "expert_shared_feed_forward_length": config.moe_shared_expert_intermediate_size, "expert_weights_norm": config.norm_topk_prob,
            "expert_weights_scale": config.routed_scaling_factor, "expert_group_count": config.n_group,
            "expert_group_used_count": config.topk_group,
        }
    if arch == "falcon-h1":
        keys |= {"attention.key_length": head_dim, "attention.value_length": head_dim, "vocab_size": config.vocab_size}
    if arch in SHORT_CONVOLUTIONS:
        kv = config.num_key_value_heads
        keys |= {
            "attention.head_count_kv": [kv if kind == "full_attention" else 0 for kind in config.layer_types],
            "shortconv.l_cache": config.conv_L_cache, "vocab_size": config.vocab_size,
        }
    if arch == "lfm2moe":
        keys |= {
            "expert_feed_forward_length": config.moe_intermediate_size, "leading_dense_block_count": config.num_dense_layers,
            "expert_gating_func": 2,
        }
    if arch in ("qwen35", "qwen35moe"):
        keys["rope.dimension_sections"] = [*rope["mrope_section"], 0]
    keys |= rope_scaling(config, rope)
    return {f"{arch}.{key}": value for key, value in keys.items() if value is not None}


def gemma4_metadata(config) -> dict:
    layers = range(config.num_hidden_layers)
    of_layers = [config.per_layer_config[layer] for layer in layers]
    full, windowed = (of_layers[config.layer_types.index(kind)] for kind in ("full_attention", "sliding_attention"))
    rope = config.rope_parameters
    reuses = [layer >= config.num_hidden_layers - config.num_kv_shared_layers for layer in layers]
    n_ff = config.intermediate_size
    keys = {
        "context_length": config.max_position_embeddings, "embedding_length": config.hidden_size, "block_count": config.num_hidden_layers,
        "feed_forward_length": [n_ff * (1 + reuse) for reuse in reuses] if config.use_double_wide_mlp else n_ff,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": full.num_key_value_heads
        if full.num_key_value_heads == windowed.num_key_value_heads else [layer.num_key_value_heads for layer in of_layers],
        "rope.freq_base": float(rope["full_attention"]["rope_theta"]), "rope.freq_base_swa": float(rope["sliding_attention"]["rope_theta"]),
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps, "attention.sliding_window": config.sliding_window,
        "final_logit_softcapping": config.final_logit_softcapping, "attention.shared_kv_layers": config.num_kv_shared_layers,
        "embedding_length_per_layer_input": config.hidden_size_per_layer_input or 0,
        "attention.sliding_window_pattern": [kind == "sliding_attention" for kind in config.layer_types],
        "attention.key_length": full.head_dim, "attention.value_length": full.head_dim, "attention.key_length_swa": windowed.head_dim,
        "attention.value_length_swa": windowed.head_dim, "rope.dimension_count": full.head_dim, "rope.dimension_count_swa": windowed.head_dim,
    }
    if config.enable_moe_block:
        keys |= {"expert_count": config.num_experts, "expert_used_count": config.top_k_experts,
                 "expert_feed_forward_length": config.moe_intermediate_size}
    return keys


def gemma4_state(config, state: dict) -> dict:
    """The names that llama.cpp's converter maps, of the text model alone."""
    result = {}
    for name, weights in state.items():
        name = name.replace("model.language_model.", "model.")
        if ".vision" in name or ".embed_vision" in name:
            continue
        if name.endswith("layer_scalar") or ".experts." in name:
            name += ".weight"
        result[name] = weights
    return result | unused(config)


def unused(config) -> dict:
    """What published files have for layers that reuse keys and values, and nothing reads."""
    result = {}
    for layer in range(config.num_hidden_layers - config.num_kv_shared_layers, config.num_hidden_layers):
        of_layer = config.per_layer_config[layer]
        for part in ("k_proj", "v_proj"):
            rows = of_layer.num_key_value_heads * of_layer.head_dim
            result[f"model.layers.{layer}.self_attn.{part}.weight"] = np.zeros((rows, config.hidden_size), np.float32)
        result[f"model.layers.{layer}.self_attn.k_norm.weight"] = np.zeros(of_layer.head_dim, np.float32)
    return result


def state_space_keys(config) -> dict:
    """Sizes of Mamba mixers, by the names that the configurations have."""
    of = lambda *names: next((value for name in names if (value := getattr(config, name, None)) is not None), None)
    if config.model_type in MAMBA:
        return {
            "ssm.conv_kernel": of("mamba_d_conv", "conv_kernel"), "ssm.inner_size": of("mamba_expand", "expand") * config.hidden_size,
            "ssm.state_size": of("mamba_d_state", "state_size"), "ssm.time_step_rank": of("mamba_dt_rank", "time_step_rank"),
        } | ({"ssm.dt_b_c_rms": config.model_type == "falcon_mamba"} if config.model_type != "jamba" else {})
    heads = of("mamba_num_heads", "mamba_n_heads", "num_heads")
    inner = of("mamba_d_ssm") or heads * of("mamba_head_dim", "mamba_d_head", "head_dim")
    return {
        "ssm.conv_kernel": of("mamba_d_conv", "conv_kernel"), "ssm.inner_size": inner, "ssm.time_step_rank": heads,
        "ssm.state_size": of("mamba_d_state", "ssm_state_size", "state_size"), "ssm.group_count": of("mamba_n_groups", "n_groups"),
    }


def mamba_tensor(config, name: str, weights: np.ndarray) -> dict:
    """A tensor of an architecture with Mamba mixers as llama.cpp's converter hands it on."""
    if config.model_type in MAMBA:
        if name.endswith("A_log"):
            return {name: -np.exp(weights)}
        return {name: weights.reshape(weights.shape[0], -1) if name.endswith(".conv1d.weight") else weights}
    if config.model_type == "falcon_h1":
        weights = weights * np.asarray(falcon_h1_factor(config, name), np.float32)
    keys = state_space_keys(config)
    mixer = re.search(r"\.(mamba|mixer)\.", name)
    if ".shared_mlp.input_linear." in name:
        gate, up = np.split(weights, 2)
        stem = name.removesuffix(".shared_mlp.input_linear.weight")
        end = "_shexp" if config.num_local_experts else ""
        return {f"{stem}.gate{end}.weight": gate, f"{stem}.up{end}.weight": up}
    if ".shared_mlp.output_linear." in name:
        return {name.replace("shared_mlp.output_linear", "down_shexp" if config.num_local_experts else "down"): weights}
    if name.endswith("A_log"):
        return {name: -np.exp(weights).reshape(-1, 1)}
    if mixer and name.endswith(".D"):
        return {name: weights.reshape(-1, 1)}
    if name.endswith("dt_bias"):
        return {name.replace("dt_bias", "dt_proj.bias"): weights}
    if name.endswith(".conv1d.weight"):
        return {name: weights.reshape(weights.shape[0], -1)}
    if mixer and name.endswith(".norm.weight"):
        return {name: weights.reshape(keys["ssm.group_count"], -1)}
    return {name: weights}


def falcon_h1_factor(config, name: str):
    """What the converter multiplies a tensor with."""
    gate, down = config.mlp_multipliers
    into = config.attention_in_multiplier
    factors = {
        "down_proj.weight": down, "gate_proj.weight": gate, "k_proj.weight": config.key_multiplier * into, "q_proj.weight": into,
        "v_proj.weight": into, "o_proj.weight": config.attention_out_multiplier, "out_proj.weight": config.ssm_out_multiplier,
        "lm_head.weight": config.lm_head_multiplier, "embed_tokens.weight": config.embedding_multiplier,
    }
    if name.endswith(".in_proj.weight"):
        inner, states = config.mamba_d_ssm, config.mamba_n_groups * config.mamba_d_state
        rows = [inner, inner, states, states, config.mamba_n_heads]
        return config.ssm_in_multiplier * np.repeat(config.ssm_multipliers, rows)[:, None]
    return next((factor for end, factor in factors.items() if name.endswith("." + end) or name == end), 1.0)


def feed_forward_length(config) -> int:
    length = getattr(config, "intermediate_size", None) or getattr(config, "ffn_hidden_size", None)
    if getattr(config, "block_auto_adjust_ff_dim", False):
        length = int(config.block_ffn_dim_multiplier * int(2 * length / 3))
        length = config.block_multiple_of * math.ceil(length / config.block_multiple_of)
    return length


def gemma3n_state(config, state: dict) -> dict:
    """With the matrices of the streams in stacks."""
    result = {name + (".weight" if name.endswith("_scale") else ""): weights for name, weights in state.items()}
    for stem in ("model.altup_projections", "model.altup_unembed_projections"):
        parts = [result.pop(f"{stem}.{index}.weight") for index in range(config.altup_num_inputs - 1)]
        result[f"{stem}.weight"] = np.stack(parts)
    return result | unused(config)


def latent_keys(config, arch: str, rope: dict) -> dict:
    """Attention over latents. Old files, and those of MiniCPM3, have the sizes of heads, new ones those of the latents besides."""
    key, value, turned = config.qk_nope_head_dim + config.qk_rope_head_dim, config.v_head_dim, config.qk_rope_head_dim
    keys = {
        "vocab_size": config.vocab_size, "attention.q_lora_rank": config.q_lora_rank, "attention.kv_lora_rank": config.kv_lora_rank,
        "attention.key_length": key, "rope.dimension_count": turned, "attention.head_count_kv": config.num_attention_heads,
    }
    if arch == "deepseek2":
        keys["attention.value_length"] = value
    if splits_kv(config):
        keys |= {
            "attention.head_count_kv": 1, "attention.key_length": config.kv_lora_rank + turned,
            "attention.value_length": config.kv_lora_rank, "attention.key_length_mla": key, "attention.value_length_mla": value,
        }
    if "mscale_all_dim" in rope:
        keys["rope.scaling.yarn_log_multiplier"] = 0.1 * rope["mscale_all_dim"]
    return keys


def splits_kv(config) -> bool:
    """Whether the file has the matrices of keys and values apart; one model's is an old file."""
    return ARCHITECTURES[config.model_type] == "deepseek2" and config.model_type != "deepseek_v2"


WITH_HEAD_DIM = {
    "llama", "qwen3", "qwen3moe", "gemma", "gemma2", "gemma3", "gemma3n", "granite", "granitemoe", "smollm3", "gpt-oss", "mistral3", "seed_oss",
    "hunyuan-dense", "hunyuan-moe", "ernie4_5", "ernie4_5-moe", "exaone4", "glm4", "glm4moe", "arcee", "nemotron", "dots1",
}
# The key of the epsilon, or the number itself, of architectures with layer norms.
LAYER_NORM_EPSILONS = {
    "stablelm": "layer_norm_eps", "olmo": 1e-5, "phi2": "layer_norm_eps", "phimoe": "rms_norm_eps", "starcoder2": "norm_epsilon",
    "command-r": "layer_norm_eps", "cohere2": "layer_norm_eps", "nemotron": "norm_eps", "gptneox": "layer_norm_eps",
    "falcon": "layer_norm_epsilon",
}


def kv_heads(config) -> int:
    if config.model_type == "falcon":
        return config.num_kv_heads if config.new_decoder_architecture or not config.multi_query else 1
    return getattr(config, "num_key_value_heads", None) or config.num_attention_heads


def rope_scaling(config, rope: dict) -> dict:
    kind = rope.get("rope_type", "default")
    if kind == "linear":
        return {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
    if kind == "yarn":
        return {
            "rope.scaling.type": "yarn", "rope.scaling.factor": float(rope["factor"]),
            "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
        } | ({
            "rope.scaling.yarn_log_multiplier": float(rope["mscale_all_dim"]), "attention.temperature_scale": rope["llama_4_scaling_beta"],
            "attention.temperature_length": rope["original_max_position_embeddings"],
        } if config.model_type == "ministral3" else {})
    if config.model_type == "minicpm3":
        return {}
    if config.model_type == "phi3":
        original = rope.get("original_max_position_embeddings", config.max_position_embeddings)
        keys = {"rope.scaling.original_context_length": original}
        if kind == "longrope":
            stretch = config.max_position_embeddings / original
            keys["rope.scaling.attn_factor"] = math.sqrt(1 + math.log(stretch) / math.log(original))
        return keys
    assert kind in ("default", "llama3"), f"GGUF has no rope scaling {kind!r}"
    return {}


def metadata_of_state(state: dict) -> dict:
    """Numbers that are tensors in transformers: those of xIELU, for all layers."""
    result = {}
    for stem in ("alpha_p", "alpha_n", "beta", "eps"):
        names = sorted((name for name in state if name.endswith(f".act_fn.{stem}")), key=lambda name: int(name.split(".")[2]))
        if names:
            result[f"xielu.{stem}"] = [float(np.ravel(state[name])[0]) for name in names]
    return result


def to_interleaved(weights: np.ndarray, heads: int) -> np.ndarray:
    """From halves of a head that turn together to neighbours."""
    rows = weights.shape[0]
    return weights.reshape(heads, 2, rows // heads // 2, -1).swapaxes(1, 2).reshape(weights.shape)


def apart(weights: np.ndarray, heads: int, groups: int) -> np.ndarray:
    """From the queries, the key and the value of each group of heads to all queries, all keys, all values."""
    rows = weights.reshape(groups, heads // groups + 2, -1, *weights.shape[1:])
    parts = rows[:, :-2], rows[:, -2], rows[:, -1]
    return np.concatenate([part.reshape(-1, *weights.shape[1:]) for part in parts])


def mxfp4_blocks(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Neighbours in a byte → GGUF's blocks of 17 bytes, where a byte has two weights 16 apart."""
    codes = np.stack([blocks & 15, blocks >> 4], -1).reshape(*blocks.shape[:-1], 32)
    packed = codes[..., :16] | codes[..., 16:] << 4
    return np.concatenate([scales[..., None], packed], -1).reshape(*blocks.shape[:-2], -1)


def renamed(config, state: dict) -> dict:
    """What llama.cpp's converter takes apart or names itself."""
    result = {}
    for name, weights in state.items():
        if config.model_type == "gpt_oss" and ".mlp.experts." in name:
            stem, part = name.rsplit(".", 1)
            ends = {"gate_up_proj": (("gate_proj", 0), ("up_proj", 1)), "down_proj": (("down_proj", None),)}
            for end, which in ends[part.removesuffix("_blocks").removesuffix("_scales").removesuffix("_bias")]:
                rows = slice(None) if which is None else slice(which, None, 2)
                if part.endswith("_bias"):
                    result[f"{stem}.{end}.bias"] = weights[:, rows]
                elif part.endswith("_blocks"):
                    scales = state[name.removesuffix("_blocks") + "_scales"]
                    result[f"{stem}.{end}.weight"] = mxfp4_blocks(weights[:, rows], scales[:, rows])
        elif name.endswith(".self_attn.sinks"):
            result[name + ".weight"] = weights
        elif name.endswith("e_score_correction_bias"):
            result[name.removesuffix("_bias") + ".bias"] = weights.reshape(-1)
        elif name.endswith(".feed_forward.expert_bias"):
            result[name + ".bias"] = weights
        elif name.endswith(".conv.conv.weight"):
            result[name] = weights.reshape(weights.shape[0], -1)
        elif name.endswith(".block_sparse_moe.input_linear.weight"):
            gate, up = np.split(weights, 2, 1)
            stem = name.removesuffix(".input_linear.weight")
            result[f"{stem}.input_linear.gate.weight"], result[f"{stem}.input_linear.up.weight"] = gate, up
        elif name.endswith(".kv_b_proj.weight") and splits_kv(config):
            heads = weights.reshape(config.num_attention_heads, -1, weights.shape[-1])
            keys, values = np.split(heads, [config.qk_nope_head_dim], 1)
            result[name.replace("kv_b_proj", "k_b_proj")] = keys.swapaxes(1, 2)
            result[name.replace("kv_b_proj", "v_b_proj")] = values
        elif ".act_fn." in name:
            continue  # in the metadata
        elif name.endswith(("query_key_value.weight", "query_key_value.bias")):
            groups = kv_heads(config) if config.model_type == "falcon" else config.num_attention_heads
            result[name] = apart(weights, config.num_attention_heads, groups)
        else:
            result[name] = weights
    if config.model_type == "bloom":
        result = {name.removeprefix("transformer."): weights for name, weights in result.items()}
    return result


# Names of which gguf knows another form.
OWN_NAMES = {
    "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down", "gate_shexp": "ffn_gate_shexp", "up_shexp": "ffn_up_shexp",
    "down_shexp": "ffn_down_shexp",
    "feed_forward.experts.w1": "ffn_gate_exps", "feed_forward.experts.w3": "ffn_up_exps", "feed_forward.experts.w2": "ffn_down_exps",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "block_sparse_moe.input_linear.gate": "ffn_gate_exps", "block_sparse_moe.input_linear.up": "ffn_up_exps",
    "mlp.experts.gate_proj": "ffn_gate_exps", "mlp.experts.up_proj": "ffn_up_exps", "mlp.experts.down_proj": "ffn_down_exps",
    "mixer.experts.up_proj": "ffn_up_exps", "mixer.experts.down_proj": "ffn_down_exps", "mixer.gate.e_score_correction": "exp_probs_b",
    "self_attn.attn_sub_norm": "attn_sub_norm", "mlp.ffn_sub_norm": "ffn_sub_norm",
    "self_attn.sinks": "attn_sinks", "mlp.gate.e_score_correction": "exp_probs_b", "mlp.moe_statics.e_score_correction": "exp_probs_b",
}


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


def tiled(weights: np.ndarray, axis: int, key_heads: int, heads: int) -> np.ndarray:
    """From heads of values that share a key side by side to heads that have the keys in turns."""
    shape = weights.shape
    split = (*shape[:axis], key_heads, heads // key_heads, shape[axis] // heads, *shape[axis + 1 :])
    return weights.reshape(split).swapaxes(axis, axis + 1).reshape(shape)


def delta_tensor(config, name: str, weights: np.ndarray) -> dict:
    """A tensor of an architecture with gated delta nets as llama.cpp's converter hands it on."""
    key_heads, heads = config.linear_num_key_heads, config.linear_num_value_heads
    queries = key_heads * config.linear_key_head_dim
    if config.model_type != "qwen3_next" and "linear_attn." in name:
        if ".in_proj_qkv." in name or ".conv1d." in name:
            weights = np.concatenate([weights[: 2 * queries], tiled(weights[2 * queries :], 0, key_heads, heads)])
        elif ".out_proj." in name:
            weights = tiled(weights, 1, key_heads, heads)
        elif not name.endswith("linear_attn.norm.weight"):
            weights = tiled(weights, 0, key_heads, heads)
    if name.endswith("A_log"):
        return {name: -np.exp(weights)}
    if name.endswith("dt_bias"):
        return {name.replace("dt_bias", "dt_proj.bias"): weights}
    if ".conv1d." in name:
        return {name: weights.reshape(weights.shape[0], -1)}
    if name.endswith("shared_expert_gate.weight"):
        return {name: weights.reshape(-1)}
    if name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
        return {name: weights + np.float32(1)}
    if ".in_proj_qkvz." in name:
        # For each head of keys its query, its key, and the values and gates of the heads that share it.
        values = heads // key_heads * config.linear_value_head_dim
        keys = config.linear_key_head_dim
        groups = weights.reshape(key_heads, 2 * keys + 2 * values, -1)
        query, key, value, gate = np.split(groups, [keys, 2 * keys, 2 * keys + values], axis=1)
        rows = [part.reshape(-1, weights.shape[1]) for part in (query, key, value)]
        return {
            name.replace("qkvz", "qkv"): np.concatenate(rows),
            name.replace("qkvz", "z"): gate.reshape(-1, weights.shape[1]),
        }
    return {name: weights}


def tensors(config, state: dict) -> dict:
    """GGUF tensors of a state in the names that the hub's files use; all are F32."""
    arch = arch_of(config)
    kind = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    layers = getattr(config, "num_hidden_layers", None) or config.n_layer
    names = gguf.get_tensor_name_map(kind, layers)
    result = {}
    if arch == "gemma4":
        state = gemma4_state(config, state)
    if arch == "gemma3n":
        state = gemma3n_state(config, state)
    state = stacked(renamed(config, state))
    if arch in DELTA:
        text = {name.replace("model.language_model.", "model."): weights for name, weights in state.items() if ".visual." not in name}
        state = {key: value for name, weights in text.items() for key, value in delta_tensor(config, name, weights).items()}
    if arch in MAMBA2 | MAMBA or config.model_type == "granitemoehybrid":
        state = {key: value for name, weights in state.items() for key, value in mamba_tensor(config, name, weights).items()}
    for name, weights in state.items():
        if ".linear_attn.in_proj_qkv." in name or ".linear_attn.in_proj_z." in name:
            # The names of Qwen3-Next's tensors are not in the package's map.
            layer = name.split(".")[2]
            result[f"blk.{layer}.attn_{'gate' if '_z.' in name else 'qkv'}.weight"] = (np.ascontiguousarray(weights), "F32")
            continue
        scales = re.fullmatch(r"model\.layers\.(\d+)\.router\.(scale|per_expert_scale)", name)
        if scales:
            stem = "ffn_gate_inp" if scales[2] == "scale" else "ffn_down_exps"
            result[f"blk.{scales[1]}.{stem}.scale"] = (np.ascontiguousarray(weights), "F32")
            continue
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        own = re.fullmatch(r"(?:model|backbone)\.layers\.(\d+)\.(.+)\.(weight|bias)", name)
        if own and own[2] in OWN_NAMES and not target:
            target = f"blk.{own[1]}.{OWN_NAMES[own[2]]}.{own[3]}"
        assert target, f"llama.cpp has no name for {name}"
        if arch == "gpt2" and name.endswith(TRANSPOSED):
            weights = weights.T
        if arch in SHIFTED_NORMS and name.endswith("norm.weight"):
            weights = weights + np.float32(1)
        if weights.dtype == np.uint8:
            result[target] = (np.ascontiguousarray(weights), "MXFP4")
            continue
        if arch in ROPE_ON_NEIGHBOURS and config.model_type not in ON_NEIGHBOURS_ALREADY:
            for part, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
                if f".{part}." in name:
                    weights = to_interleaved(weights, heads)
        result[target] = (np.ascontiguousarray(weights), "F32")
    rope = rope_of(config)
    if rope.get("rope_type") == "proportional":
        pairs = config.per_layer_config["full_attention"].head_dim // 2
        turned = int(pairs * rope["partial_rotary_factor"])
        result["rope_freqs.weight"] = (np.asarray([1.0] * turned + [1e30] * (pairs - turned), np.float32), "F32")
    if rope.get("rope_type") == "llama3":
        result["rope_freqs.weight"] = (llama3_factors(rope, config.head_dim), "F32")
    if rope.get("rope_type") == "longrope":
        result["rope_factors_long.weight"] = (np.asarray(rope["long_factor"], np.float32), "F32")
        result["rope_factors_short.weight"] = (np.asarray(rope["short_factor"], np.float32), "F32")
    return result
