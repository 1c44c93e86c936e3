"""Writes a tiny random model of every architecture and its golden outputs into tests/golden/architectures/MODEL/.

    python scripts/golden/architectures.py [MODEL ...]
    python scripts/golden/architectures.py --gguf MODEL ...   (only the GGUF files, of folders that are there)

(needs torch, transformers, tokenizers, safetensors, gguf, numpy; on the CPU)

The reference is transformers in float32 on the CPU. Windows and the contexts before rope's scaling are so short that the prompt
passes them. Weights are random with a fixed seed and representable in bfloat16, so that the safetensors file, as transformers
saves it in the hub's names, holds exactly what the GGUF file holds in float32.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.utils import logging

import bitnet
import hf_to_gguf
import mxfp4
from tiny_models import SPECIAL, TEXT, gguf_file, hf_gguf, train_bpe

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "architectures"
SEED = 4242
VOCABULARY = 264
PROMPT_TOKENS = 64
GREEDY_TOKENS = 32
CONTEXT = 128
SMALLEST_MARGIN = 0.03  # between the best and the second logit of each greedy step
FEWEST_KINDS = 8  # of tokens in the greedy answer: a model that repeats one token shows little

SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 64, "max_position_embeddings": CONTEXT, "tie_word_embeddings": False,
}
HEADS = SIZES | {"head_dim": 16}
LONG_FACTORS = [1.0, 1.4, 2.3, 3.1, 4.4, 6.0]
SHORT_FACTORS = [1.0, 1.05, 1.1, 1.2, 1.3, 1.5]


def rope(kind: str = "default", theta: float = 10000.0, **more) -> dict:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **more}}


FALCON = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": CONTEXT,
    "parallel_attn": True, "bias": False, "alibi": False, "tie_word_embeddings": True} | rope()

DELTA = HEADS | {
    "num_hidden_layers": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
}
DELTA_LAYERS = ["linear_attention", "full_attention", "linear_attention", "full_attention"]
SHARED_EXPERTS = {
    "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64, "norm_topk_prob": True,
}

# Most layers are short convolutions, the first of them included. Three taps, as published.
LFM2 = SIZES | {
    "num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 3,
    "tie_word_embeddings": True, "pad_token_id": 0}

NEMOTRON_H = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 64, "max_position_embeddings": CONTEXT, "mamba_num_heads": 4, "mamba_head_dim": 24, "n_groups": 2,
    "ssm_state_size": 16, "chunk_size": 16, "num_nextn_predict_layers": 0,
}

# Mamba-2 mixers with heads and groups. A chunk is shorter than the prompt.
GRANITE4 = SIZES | {
    "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2,
    "mamba_chunk_size": 16, "embedding_multiplier": 3.0, "logits_scaling": 2.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2,
    "tie_word_embeddings": True, "pad_token_id": 0}
MAMBA_LAYERS = ["linear_attention", "full_attention", "linear_attention"]
FALCON_H1 = SIZES | {
    "intermediate_size": 32, "mamba_d_ssm": 96, "mamba_n_heads": 6, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_chunk_size": 16,
    "embedding_multiplier": 3.0, "lm_head_multiplier": 0.7, "mlp_multipliers": [0.8, 0.6], "key_multiplier": 0.7,
    "attention_in_multiplier": 1.2, "attention_out_multiplier": 0.9, "ssm_multipliers": [0.7, 1.3, 0.8, 1.1, 0.6],
    "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.85, "pad_token_id": 0}


# A token's latent has 20 numbers, and a head's key 12 besides the 8 for rope.
LATENTS = SIZES | {
    "num_key_value_heads": 4, "intermediate_size": 32, "tie_word_embeddings": True, "q_lora_rank": 24, "kv_lora_rank": 20,
    "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10,
}
DEEPSEEK_EXPERTS = {
    "moe_intermediate_size": 16, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 2, "n_group": 4, "topk_group": 2,
    "routed_scaling_factor": 1.5, "first_k_dense_replace": 1,
}


def mrope() -> dict:
    """Rope by three positions, which are equal for text."""
    return rope(theta=1000000.0, partial_rotary_factor=0.5, mrope_section=[2, 1, 1], mrope_interleaved=True)


# Layers with full attention have other heads than those with a window, and rope turns a quarter of their pairs.
GEMMA4 = SIZES | {
    "head_dim": 16, "global_head_dim": 32, "sliding_window": 16, "tie_word_embeddings": True, "final_logit_softcapping": 6.0,
    "hidden_size_per_layer_input": 0, "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25},
    }}
KEYS_FOR_VALUES = {"attention_k_eq_v": True, "num_global_key_value_heads": 1}
WINDOWED, FULL = "sliding_attention", "full_attention"

MODELS = {
    # Llama 3.1 and later: rope's long wavelengths are stretched. Tied embeddings.
    "llama3": ("llama", HEADS | {"tie_word_embeddings": True} | rope(
        "llama3", 500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)),
    # Linear rope scaling, and every bias that Llama's config can switch on.
    "llama_linear": ("llama", HEADS | {"attention_bias": True, "mlp_bias": True} | rope("linear", factor=4.0)),
    "llama_dynamic": ("llama", HEADS | rope("dynamic", factor=4.0) | {"max_position_embeddings": 48}),
    "mistral": ("mistral", HEADS | {"sliding_window": 16} | rope(theta=1000000.0)),
    "mixtral": ("mixtral", HEADS | {"num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": None} | rope()),
    "qwen2_yarn": ("qwen2", SIZES | rope("yarn", 1000000.0, factor=4.0, original_max_position_embeddings=32)),
    # Windows in the last layers.
    "qwen2_window": ("qwen2", SIZES | {
        "num_hidden_layers": 4, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2} | rope(theta=1000000.0)),
    # Between fast and slow pairs, YaRN begins and ends where it does, rather than at whole pairs.
    "llama_yarn": ("llama", HEADS | rope("yarn", factor=4.0, original_max_position_embeddings=32, truncate=False)),
    "qwen3": ("qwen3", HEADS | {"num_key_value_heads": 1, "tie_word_embeddings": True} | rope(theta=1000000.0)),
    "qwen3_moe": ("qwen3_moe", HEADS | {
        "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "norm_topk_prob": True} | rope(theta=1000000.0)),
    "gemma2": ("gemma2", HEADS | {
        "num_hidden_layers": 4, "sliding_window": 16, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 4.0,
        "final_logit_softcapping": 6.0, "tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh"} | rope()),
    "gemma3": ("gemma3_text", HEADS | {
        "num_hidden_layers": 7, "num_key_value_heads": 1, "sliding_window": 16, "query_pre_attn_scalar": 16,
        "tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh",
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
        }}),
    "phi3": ("phi3", SIZES | {
        "hidden_size": 64, "num_key_value_heads": 4, "sliding_window": 16, "pad_token_id": 0, "original_max_position_embeddings": CONTEXT}
        | rope()),
    # Phi-4-mini: rope on three quarters of a head, longrope, tied embeddings, GQA.
    "phi4_mini": ("phi3", SIZES | {
        "hidden_size": 64, "tie_word_embeddings": True, "pad_token_id": 0, "original_max_position_embeddings": 32, "sliding_window": None}
        | rope("longrope", partial_rotary_factor=0.75, long_factor=LONG_FACTORS, short_factor=SHORT_FACTORS,
               original_max_position_embeddings=32)),
    "smollm3": ("smollm3", SIZES | {"num_hidden_layers": 5, "tie_word_embeddings": True, "pad_token_id": 0} | rope(theta=2000000.0)),
    "olmo2": ("olmo2", SIZES | rope(theta=500000.0)),
    # Windows, and YaRN in the layers without.
    "olmo3": ("olmo3", SIZES | {"num_hidden_layers": 5, "sliding_window": 16, "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
        "full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 4.0, "original_max_position_embeddings": 32},
    }}),
    "granite": ("granite", SIZES | {
        "tie_word_embeddings": True, "attention_multiplier": 0.5, "embedding_multiplier": 3.0, "residual_multiplier": 0.4,
        "logits_scaling": 2.0} | rope()),
    # StableLM 2 1.6B: layer norms, biases of queries, keys and values, rope on a quarter of a head.
    "stablelm": ("stablelm", SIZES | {"use_qkv_bias": True} | rope(partial_rotary_factor=0.25)),
    # StableLM 2 12B: attention and feed-forward side by side, a layer norm of each head of queries and keys.
    "stablelm_parallel": ("stablelm", SIZES | {"use_parallel_residual": True, "qk_layernorm": True} | rope(partial_rotary_factor=0.25)),
    # Gated delta nets, and every fourth layer with gated attention; experts, one of them for all tokens.
    "qwen3_next": ("qwen3_next", DELTA | SHARED_EXPERTS | {"linear_num_value_heads": 4} | rope(partial_rotary_factor=0.5)),
    # The text part of a multimodal model.
    "qwen3_5": ("qwen3_5", DELTA | {"tie_word_embeddings": True, "linear_num_value_heads": 6, "layer_types": DELTA_LAYERS}
        | mrope()),
    "qwen3_5_moe": ("qwen3_5_moe_text", DELTA | SHARED_EXPERTS | {"linear_num_value_heads": 4} | mrope()),
    "gpt2": ("gpt2", {
        "vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT, "n_inner": None,
        "bos_token_id": 261, "eos_token_id": 263}),
    # Windows in every other layer, rope that is stretched, and experts in MXFP4 (see mxfp4.py).
    "gpt_oss": ("gpt_oss", HEADS | {
        "sliding_window": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "swiglu_limit": 7.0}
        | rope("yarn", 150000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=32)),
    # Positions beyond the original context sharpen attention.
    "ministral3": ("ministral3", HEADS | rope(
        "yarn", 1000000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
        original_max_position_embeddings=16, llama_4_scaling_beta=0.3)),
    "gemma": ("gemma", HEADS | {"num_key_value_heads": 1, "tie_word_embeddings": True} | rope()),
    # A dense layer between two of experts.
    "qwen2_moe": ("qwen2_moe", SIZES | {
        "num_hidden_layers": 3, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 64, "norm_topk_prob": False, "mlp_only_layers": [1]} | rope(theta=1000000.0)),
    "qwen3_moe_mixed": ("qwen3_moe", HEADS | {
        "num_hidden_layers": 3, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True,
        "decoder_sparse_step": 2} | rope(theta=1000000.0)),
    "olmoe": ("olmoe", SIZES | {
        "intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": False} | rope()),
    "olmo": ("olmo", SIZES | {"clip_qkv": 1.0} | rope()),
    "phi2": ("phi", SIZES | {"num_key_value_heads": 4} | rope(partial_rotary_factor=0.5)),
    "phimoe": ("phimoe", SIZES | {
        "intermediate_size": 32, "num_local_experts": 4, "num_experts_per_tok": 2, "router_jitter_noise": 0.01, "attention_bias": True,
        "lm_head_bias": True} | rope()),
    "seed_oss": ("seed_oss", HEADS | rope()),
    "starcoder2": ("starcoder2", SIZES | {"sliding_window": 16, "tie_word_embeddings": True} | rope()),
    # The base of rope as Hunyuan stretches it.
    "hunyuan_dense": ("hunyuan_v1_dense", HEADS | rope("dynamic", alpha=50.0, factor=1.0)),
    "hunyuan_moe": ("hunyuan_v1_moe", HEADS | {"intermediate_size": 32, "num_experts": 4, "moe_topk": 2} | rope("dynamic", alpha=50.0, factor=1.0)),
    "ernie4_5": ("ernie4_5", HEADS | {"use_bias": False, "tie_word_embeddings": True} | rope(theta=500000.0)),
    "ernie4_5_moe": ("ernie4_5_moe", HEADS | {
        "num_hidden_layers": 3, "moe_intermediate_size": 32, "moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 2,
        "moe_layer_start_index": 1, "tie_word_embeddings": True} | rope(theta=500000.0)),
    # Three layers with a window, and one without, which has no rope.
    "exaone4": ("exaone4", HEADS | {
        "num_hidden_layers": 4, "sliding_window": 16, "sliding_window_pattern": 4} | rope(theta=1000000.0)),
    "glm4": ("glm4", HEADS | {"pad_token_id": 0} | rope(partial_rotary_factor=0.5)),
    "glm4_moe": ("glm4_moe", HEADS | {
        "num_hidden_layers": 3, "moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
        "routed_scaling_factor": 1.5, "first_k_dense_replace": 1, "use_qk_norm": True, "attention_bias": True}
        | rope(partial_rotary_factor=0.5)),
    "cohere": ("cohere", SIZES | {"use_qk_norm": True, "logit_scale": 0.25, "tie_word_embeddings": True} | rope()),
    "cohere2": ("cohere2", SIZES | {
        "num_hidden_layers": 4, "sliding_window": 16, "logit_scale": 0.25, "tie_word_embeddings": True} | rope()),
    "apertus": ("apertus", SIZES | rope(theta=12000000.0)),
    "arcee": ("arcee", HEADS | rope()),
    "helium": ("helium", SIZES | {"head_dim": 8} | rope(theta=100000.0)),
    "nemotron": ("nemotron", HEADS | rope(partial_rotary_factor=0.5)),
    "gptneox": ("gpt_neox", SIZES | {"num_key_value_heads": 4} | rope(partial_rotary_factor=0.25)),
    "gptneox_serial": ("gpt_neox", SIZES | {"num_key_value_heads": 4, "use_parallel_residual": False} | rope(partial_rotary_factor=1.0)),
    "opt": ("opt", {
        "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64,
        "max_position_embeddings": CONTEXT, "word_embed_proj_dim": 32}),
    "bloom": ("bloom", {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4, "tie_word_embeddings": False}),
    # 7B: one key and value for all heads, one norm.
    "falcon": ("falcon", FALCON | {"multi_query": True, "new_decoder_architecture": False}),
    # 40B: groups of heads, a norm for each branch.
    "falcon_groups": ("falcon", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}),
    # Dense: layers with full attention have keys for values.
    "gemma4": ("gemma4_text", GEMMA4 | KEYS_FOR_VALUES | {
        "num_hidden_layers": 4, "layer_types": [WINDOWED, FULL, WINDOWED, FULL]}),
    # Small: an embedding for each layer, and the last layers reuse keys and values and have wider feed-forwards. The text part of a
    # multimodal model.
    "gemma4_e": ("gemma4", GEMMA4 | {
        "num_hidden_layers": 5, "layer_types": [WINDOWED, FULL, WINDOWED, WINDOWED, FULL], "num_attention_heads": 2, "num_key_value_heads": 1,
        "num_kv_shared_layers": 2, "use_double_wide_mlp": True, "intermediate_size": 32, "hidden_size_per_layer_input": 32,
        "vocab_size_per_layer_input": VOCABULARY}),
    # Four residual streams, a learned residual, gates of which the largest count, and the last layers reuse keys and values.
    "gemma3n": ("gemma3n_text", SIZES | {
        "head_dim": 16, "num_hidden_layers": 5, "layer_types": [WINDOWED, FULL, WINDOWED, WINDOWED, FULL], "sliding_window": 16,
        "num_attention_heads": 2, "num_key_value_heads": 1, "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 32,
        "vocab_size_per_layer_input": VOCABULARY, "intermediate_size": 32, "laurel_rank": 8, "altup_active_idx": 1,
        "activation_sparsity_pattern": [0.6, 0.0, 0.3, 0.8, 0.0], "final_logit_softcapping": 6.0, "tie_word_embeddings": True,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
        }}),
    # Experts beside a dense feed-forward.
    "gemma4_moe": ("gemma4_text", GEMMA4 | KEYS_FOR_VALUES | {
        "num_hidden_layers": 2, "layer_types": [WINDOWED, FULL], "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2,
        "moe_intermediate_size": 32}),
    # Latents. V2: groups by their best expert; one matrix of keys and values in the GGUF file.
    "deepseek_v2": ("deepseek_v2", LATENTS | DEEPSEEK_EXPERTS | {
        "q_lora_rank": None, "topk_method": "group_limited_greedy", "attention_bias": True}
        | rope("yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, mscale=0.707, mscale_all_dim=0.707, original_max_position_embeddings=32)),
    # V3: groups by their two best, weights that are shares, queries by way of fewer numbers.
    "deepseek_v3": ("deepseek_v3", LATENTS | DEEPSEEK_EXPERTS | {
        "norm_topk_prob": True, "num_nextn_predict_layers": 0}
        | rope("yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, original_max_position_embeddings=32)),
    "minicpm3": ("minicpm3", LATENTS | {
        "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256, "v_head_dim": 8,
        "original_max_position_embeddings": CONTEXT}
        | rope("longrope", long_factor=LONG_FACTORS[:4], short_factor=SHORT_FACTORS[:4], original_max_position_embeddings=CONTEXT)),
    "glm4_moe_lite": ("glm4_moe_lite", LATENTS | DEEPSEEK_EXPERTS | {
        "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "mlp_layer_types": ["dense", "sparse"]} | rope(theta=1000000.0)),
    "youtu": ("youtu", LATENTS | rope(theta=500000.0)),
    "bitnet": ("bitnet", SIZES | {"tie_word_embeddings": True} | rope(theta=500000.0)),
    # Ternary weights, four in a byte, and inputs of products that are rounded to 8 bits (see bitnet.py), one layer of them.
    "bitnet_packed": ("bitnet", SIZES | {"num_hidden_layers": 1, "tie_word_embeddings": True} | rope(theta=500000.0)),
    "dots1": ("dots1", HEADS | DEEPSEEK_EXPERTS | {
        "norm_topk_prob": True, "sliding_window": None, "tie_word_embeddings": True} | rope()),
    "granitemoe": ("granitemoe", SIZES | {
        "intermediate_size": 32, "num_local_experts": 4, "num_experts_per_tok": 2, "embedding_multiplier": 3.0, "logits_scaling": 2.0,
        "residual_multiplier": 0.5, "attention_multiplier": 0.2, "tie_word_embeddings": True} | rope()),
    # The length of the feed-forward follows from another number.
    "lfm2": ("lfm2", LFM2 | {
        "intermediate_size": 81, "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.1, "block_multiple_of": 32}
        | rope(theta=1000000.0)),
    # A dense layer, then experts.
    "lfm2_moe": ("lfm2_moe", LFM2 | {
        "conv_L_cache": 4, "num_dense_layers": 1, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "use_expert_bias": True, "norm_topk_prob": True, "routed_scaling_factor": 1.0} | rope(theta=1000000.0)),
    # A convolution before attention with a window, then attention without one, whose rope turns half of the pairs.
    "lfm3": ("lfm3", SIZES | {
        "num_hidden_layers": 4, "layer_types": ["conv", "sliding_attention", "full_attention", "conv"], "conv_L_cache": 7, "sliding_window": 9,
        "head_dim": 16, "tie_word_embeddings": True, "pad_token_id": 0,
        "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                            "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.5}}}),
    # Mamba-2 mixers, and attention without rope.
    "granite4": ("granitemoehybrid", GRANITE4 | {
        "num_hidden_layers": 3, "layer_types": MAMBA_LAYERS, "num_local_experts": 0, "num_experts_per_tok": 0,
        "shared_intermediate_size": 64, "position_embedding_type": None} | rope()),
    # The same with rope, and with experts, one of them for all tokens.
    "granite4_moe": ("granitemoehybrid", GRANITE4 | {
        "layer_types": MAMBA_LAYERS[:2], "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 32,
        "shared_intermediate_size": 64, "position_embedding_type": "rope"} | rope()),
    # Without Mamba-2 mixers: in GGUF a Granite.
    "granite4_attention": ("granitemoehybrid", GRANITE4 | {
        "layer_types": ["full_attention"] * 2, "num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 64,
        "position_embedding_type": "rope"} | rope()),
    # Attention and a Mamba-2 mixer side by side, and every factor.
    "falcon_h1": ("falcon_h1", FALCON_H1 | {"mamba_rms_norm": False} | rope()),
    # With the norm, before the gate.
    "falcon_h1_norm": ("falcon_h1", FALCON_H1 | {"mamba_rms_norm": True, "mamba_norm_before_gate": True} | rope()),
    # Each layer one part alone.
    "nemotron_h": ("nemotron_h", NEMOTRON_H | {
        "layers_block_type": ["linear_attention", "mlp", "full_attention", "linear_attention", "mlp"]}),
    # Two groups of experts, of which one is open.
    "nemotron_h_moe": ("nemotron_h", NEMOTRON_H | {
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp", "moe"], "n_routed_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 48, "moe_shared_expert_intermediate_size": 64, "n_group": 2, "topk_group": 1, "norm_topk_prob": True,
        "routed_scaling_factor": 2.5}),
    "mamba2": ("mamba2", {
        "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 3, "num_heads": 8, "head_dim": 8, "n_groups": 1,
        "state_size": 16, "chunk_size": 16, "tie_word_embeddings": False, "pad_token_id": 0}),
    "mamba": ("mamba", {
        "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 3, "state_size": 16, "time_step_rank": "auto",
        "tie_word_embeddings": True, "pad_token_id": 0}),
    # The one ε that llama.cpp knows for all norms.
    "falcon_mamba": ("falcon_mamba", {
        "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 3, "state_size": 16, "expand": 2, "time_step_rank": 5,
        "layer_norm_epsilon": 1e-2, "mixer_rms_eps": 1e-2, "tie_word_embeddings": False, "pad_token_id": 0}),
    # Attention and experts in the second of three layers.
    "jamba": ("jamba", SIZES | {
        "num_hidden_layers": 3, "intermediate_size": 32, "num_experts": 3, "num_experts_per_tok": 2, "expert_layer_period": 2,
        "expert_layer_offset": 1, "attn_layer_period": 3, "attn_layer_offset": 1, "mamba_d_state": 16, "mamba_dt_rank": 6,
        "pad_token_id": 0}),
}
# GGUF has no such ropes, of which generation would change the first from token to token.
WITHOUT_ANSWER = {"llama_dynamic", "llama_yarn"}
# Nor has it norms before gates, and products whose inputs are rounded.
ONLY_SAFETENSORS = WITHOUT_ANSWER | {"falcon_h1_norm", "bitnet_packed"}
# The matrices of their GGUF files are F32; those of the others BF16, which is half as long.
IN_F32 = {
    "llama3", "llama_linear", "mistral", "mixtral", "qwen2_yarn", "qwen2_window", "qwen3", "qwen3_moe", "gemma2", "gemma3", "phi3", "phi4_mini",
    "smollm3", "olmo2", "olmo3", "granite", "stablelm", "stablelm_parallel", "gpt2", "qwen3_next", "qwen3_5", "qwen3_5_moe",
    "falcon_h1",  # whose converter multiplies weights with factors
}
# llama.cpp knows no such files.
ONLY_SAFETENSORS_OF = {"opt", "lfm3"}


def random_model(config, seed: int):
    """A model in float32 whose weights bfloat16 represents."""
    generator = np.random.default_rng(seed)
    shifted = config.model_type in ("gemma", "gemma2", "gemma3_text", "nemotron")
    text = config.get_text_config()
    is_delta = hasattr(text, "linear_num_key_heads")
    # Where the model scales them itself, a token's embedding would drown what the layers add to it.
    embedding_scale = text.hidden_size**0.5 if config.model_type.startswith("gemma") else getattr(
        config, "embedding_multiplier", getattr(config, "scale_emb", 1.0))
    if config.model_type == "gemma":
        # Tied, and no norms after its layers' parts: logits would all be small.
        embedding_scale **= 0.5
    auto = AutoModelForImageTextToText if text is not config else AutoModelForCausalLM
    model = auto.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            shape = tuple(parameter.shape)
            if name.endswith((".alpha_p", ".alpha_n")):
                values = generator.normal(0, 0.5, shape)
            elif name.endswith((".sinks", "e_score_correction_bias")):
                values = generator.normal(0, 1.0 if name.endswith(".sinks") else 0.2, shape)
            elif name.endswith(("_proj", "_proj_bias")) and config.model_type == "gpt_oss":
                # [experts, inputs, outputs]; weights are those that MXFP4 represents.
                # Gates so large that some are clamped.
                scale = 3.0 if "gate_up" in name else 0.1
                values = generator.normal(0, 0.3 if len(shape) == 2 else scale / np.sqrt(shape[1]), shape)
                if len(shape) == 3:
                    values = mxfp4.rounded(values)
            elif name.endswith(".bias"):
                values = generator.normal(0, 0.3, shape)
            elif name.endswith("A_log"):
                # Some heads forget slowly.
                values = generator.uniform(-4, 0, shape)
            elif name.endswith("dt_bias"):
                values = generator.uniform(-1, 1, shape)
            elif config.model_type.startswith(("gemma4", "gemma3n")) and name.endswith(("q_norm.weight", "router.proj.weight", "_router.weight")):
                # Scores are not divided by the root of a head's length, and what routers read is by the width or its root.
                values = generator.uniform(0.2, 0.6, shape) if len(shape) == 1 else generator.normal(0, 3, shape)
            elif name.endswith("tion_coefs.weight"):
                values = generator.normal(0, 0.3, shape)
            elif len(shape) == 1:
                values = generator.uniform(0.5, 1.5, shape) - (shifted or (is_delta and "linear_attn" not in name))
            elif any(part in name for part in ("embed", "wte", "wpe")) and "embed_out" not in name:
                values = generator.normal(0, 0.5 / embedding_scale, shape)
            else:
                inputs = shape[0] if config.model_type == "gpt2" and name.endswith(hf_to_gguf.TRANSPOSED) else shape[-1]
                values = generator.normal(0, 1.6 / np.sqrt(inputs), shape)
            parameter.copy_(torch.from_numpy(values).to(torch.bfloat16).float())
        # Buffers that are learned too.
        for name, buffer in model.named_buffers():
            if name.endswith(("e_score_correction_bias", ".expert_bias")):
                buffer.copy_(torch.from_numpy(generator.normal(0, 0.2, tuple(buffer.shape))).to(torch.bfloat16).float())
            elif name.endswith("layer_scalar") and "vision" not in name:
                buffer.copy_(torch.from_numpy(generator.uniform(0.6, 1.3, tuple(buffer.shape))).to(torch.bfloat16).float())
    assert tied == bool(text.tie_word_embeddings)
    return model


@torch.inference_mode()
def golden(model, ids: list[int], greedy_tokens: int) -> tuple[np.ndarray, list[int], float]:
    """→ logits [n, vocabulary], greedy continuation, the smallest margin of its steps. Each step is a pass without a cache."""
    logits = model(torch.tensor([ids]), use_cache=False).logits[0].numpy()
    sequence, margin = list(ids), np.inf
    for _ in range(greedy_tokens):
        best = torch.topk(model(torch.tensor([sequence]), use_cache=False).logits[0, -1], 2)
        margin = min(margin, float(best.values[0] - best.values[1]))
        sequence.append(int(best.indices[0]))
    return logits, sequence[len(ids) :], margin


def as_numpy(tensor) -> np.ndarray:
    return tensor.numpy() if tensor.dtype == torch.uint8 else tensor.float().numpy()


def write_gguf(name: str, config, saved: dict):
    """The GGUF file of the tensors that transformers saved."""
    folder = OUT / name
    config = config.get_text_config()
    state = {key: as_numpy(tensor) for key, tensor in saved.items()}
    arch = hf_to_gguf.arch_of(config)
    matrices = "F32" if name in IN_F32 else "BF16"
    file_type = 0 if matrices == "F32" else 32
    general = {"general.architecture": arch, "general.type": "model", "general.name": f"tiny random {name}", "general.file_type": file_type}
    tokens = hf_gguf.tokenizer_metadata(json.loads((folder / "tokenizer.json").read_text()), SPECIAL[0], SPECIAL[2], SPECIAL[0])
    metadata = general | hf_to_gguf.metadata(config) | hf_to_gguf.metadata_of_state(state) | tokens
    # Norms and short convolutions are vectors for llama.cpp, and the experts' biases stay as they are.
    convolutions = (".shortconv.conv.", ".ssm_conv1d.", ".ssm_a", ".ssm_d")
    is_vector = lambda target: "norm" in target or target.endswith(".bias") or any(part in target for part in convolutions)
    is_matrix = lambda target, weights, fmt: fmt == "F32" and weights.ndim > 1 and not is_vector(target)
    tensors = {
        target: (weights, matrices if is_matrix(target, weights, fmt) else fmt)
        for target, (weights, fmt) in hf_to_gguf.tensors(config, state).items()
    }
    gguf_file.write(folder / "model.gguf", metadata, tensors)


def make_config(kind: str, fields: dict):
    special = {"bos_token_id": VOCABULARY - 3, "eos_token_id": VOCABULARY - 1}
    if kind == "qwen3_5":
        vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "patch_size": 4, "out_hidden_size": 32,
                  "num_position_embeddings": 16}
        return AutoConfig.for_model(
            kind, text_config=special | fields, vision_config=vision, tie_word_embeddings=fields["tie_word_embeddings"])
    if kind == "gemma4":
        vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1,
                  "head_dim": 16, "patch_size": 4, "position_embedding_size": 16}
        return AutoConfig.for_model(
            kind, text_config=special | fields, vision_config=vision, audio_config=None, tie_word_embeddings=fields["tie_word_embeddings"])
    return AutoConfig.for_model(kind, **(special | fields))


def as_published(name: str, file: Path):
    """Brings a file to the form of published ones, where transformers saves another one."""
    state = load_file(file)
    if name == "qwen3_5":
        # A part of the layers that predict several tokens at once, which transformers leaves out.
        state["mtp.fc.weight"] = torch.zeros(32, 64, dtype=torch.bfloat16)
    elif name == "qwen3_5_moe":
        # All experts of a layer in two tensors.
        for key in [key for key in state if ".mlp.experts.0.down_proj." in key]:
            stem = key.split(".0.down_proj.")[0]
            parts = [[state.pop(f"{stem}.{expert}.{part}_proj.weight") for part in ("gate", "up", "down")] for expert in range(6)]
            state[f"{stem}.gate_up_proj"] = torch.stack([torch.cat([gate, up]) for gate, up, _ in parts])
            state[f"{stem}.down_proj"] = torch.stack([down for *_, down in parts])
    elif name == "gemma4_e":
        # Layers that reuse keys and values have tensors for own ones, which nothing reads.
        for layer, head_dim in ((3, 16), (4, 32)):
            stem = f"model.language_model.layers.{layer}.self_attn"
            for part in ("k_proj", "v_proj"):
                state[f"{stem}.{part}.weight"] = torch.zeros(head_dim, 32, dtype=torch.bfloat16)
            state[f"{stem}.k_norm.weight"] = torch.zeros(head_dim, dtype=torch.bfloat16)
    elif name in ("gemma4", "gemma4_moe"):
        # The configuration names what layers with full attention have otherwise.
        path = file.parent / "config.json"
        config = json.loads(path.read_text())
        config.pop("per_layer_config")
        path.write_text(json.dumps(config | {key: MODELS[name][1][key] for key in ("global_head_dim", "num_global_key_value_heads")}, indent=2))
        return
    else:
        return
    save_file(state, file, metadata={"format": "pt"})


def write_model(name: str, seed: int) -> float:
    """Writes everything of one model, if its answer is a good one; returns the smallest greedy margin or 0."""
    kind, fields = MODELS[name]
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = make_config(kind, fields)
    model = random_model(config, seed)
    if name == "bitnet_packed":
        bitnet.make_ternary(model, seed)
    ids = np.random.default_rng(seed + 1).integers(0, VOCABULARY, PROMPT_TOKENS).tolist()
    with_gguf = name not in ONLY_SAFETENSORS and kind not in ONLY_SAFETENSORS_OF
    logits, greedy, margin = golden(model, ids, 0 if name in WITHOUT_ANSWER else GREEDY_TOKENS)
    if margin < SMALLEST_MARGIN or (greedy and len(set(greedy)) < FEWEST_KINDS):
        return 0.0
    if name == "bitnet_packed" and bitnet.distance(model, ids + greedy) < bitnet.LEAST_DISTANCE:
        return 0.0
    np.save(folder / "logits.npy", logits.astype("<f4"))
    answers = {"ids": ids, "greedy": greedy}
    if "longrope" in json.dumps(fields) and fields["original_max_position_embeddings"] < CONTEXT:
        # Up to the original context, the short factors count.
        original = fields["original_max_position_embeddings"]
        np.save(folder / "short.logits.npy", golden(model, ids[:original], 0)[0].astype("<f4"))
        answers["short"] = original
    (folder / "golden.json").write_text(json.dumps(answers) + "\n")
    model.to(torch.bfloat16).save_pretrained(folder)
    if kind == "gpt_oss":
        mxfp4.rewrite(folder)
    if name == "bitnet_packed":
        bitnet.pack(folder)
    # Those of transformers itself, since published files may hold more or other tensors.
    saved = load_file(folder / "model.safetensors")
    (folder / "generation_config.json").unlink(missing_ok=True)
    as_published(name, folder / "model.safetensors")
    (folder / "model.safetensors").chmod(0o644)
    tokenizer = train_bpe([TEXT], VOCABULARY, SPECIAL)
    (folder / "tokenizer.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False))
    if with_gguf:
        write_gguf(name, config, saved)
    return margin


def main():
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if sys.argv[1:2] == ["--gguf"]:
        for name in sys.argv[2:]:
            write_gguf(name, AutoConfig.from_pretrained(OUT / name), load_file(OUT / name / "model.safetensors"))
        return
    for name in sys.argv[1:] or MODELS:
        for seed in range(SEED, SEED + 400):
            margin = write_model(name, seed)
            if margin >= SMALLEST_MARGIN:
                print(f"{name}: seed {seed}, smallest greedy margin {margin:.3f}")
                break
        else:
            raise SystemExit(f"{name}: no seed gives greedy steps without near ties")


if __name__ == "__main__":
    main()
