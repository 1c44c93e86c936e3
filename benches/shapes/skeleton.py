"""Lays out GGUF files of real shapes: metadata and tensors without values, as JSON that `fill.py` makes models of. transformers builds each model
without memory, and scripts/golden/hf_to_gguf.py names its tensors.

usage: skeleton.py OUT.json SHAPE…   (torch, transformers, gguf, numpy)
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts" / "golden"))
import hf_to_gguf  # noqa: E402

ROPE = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10], "mrope_interleaved": True}
QWEN3_5 = {
    "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 248320, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4, "tie_word_embeddings": True, "rope_parameters": ROPE,
}
FULL = "full_attention"

# Sizes of published models, by their configurations on the Hugging Face Hub.
SHAPES = {
    "qwen3.5-0.8b": ("qwen3_5_text", QWEN3_5 | {
        "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 8, "intermediate_size": 3584, "linear_num_value_heads": 16}),
    "qwen3.5-4b": ("qwen3_5_text", QWEN3_5 | {
        "hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 9216,
        "linear_num_value_heads": 32}),
    "lfm2-1.2b": ("lfm2", {
        "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536,
        "intermediate_size": 12288, "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256,
        "conv_L_cache": 3, "layer_types": [FULL if layer in (2, 5, 8, 10, 12, 14) else "conv" for layer in range(16)],
        "tie_word_embeddings": True}),
    "granite-4.0-h-micro": ("granitemoehybrid", {
        "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 100352,
        "intermediate_size": 8192, "shared_intermediate_size": 8192, "num_local_experts": 0, "num_experts_per_tok": 0, "mamba_n_heads": 64,
        "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2, "position_embedding_type": "nope",
        "embedding_multiplier": 12.0, "logits_scaling": 8.0, "residual_multiplier": 0.22, "attention_multiplier": 0.015625,
        "layer_types": ["attention" if layer in (5, 15, 25, 35) else "mamba" for layer in range(40)], "tie_word_embeddings": True}),
    "qwen3-30b-a3b": ("qwen3_moe", {
        "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
        "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "tie_word_embeddings": False}),
    "gemma-4-e2b": ("gemma4_text", {
        "hidden_size": 1536, "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "global_head_dim": 512,
        "vocab_size": 262144, "intermediate_size": 6144, "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144,
        "num_kv_shared_layers": 20, "use_double_wide_mlp": True, "sliding_window": 512, "tie_word_embeddings": True,
        "layer_types": [FULL if layer % 5 == 4 else "sliding_attention" for layer in range(35)]}),
    "gpt-oss-20b": ("gpt_oss", {
        "hidden_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088,
        "intermediate_size": 2880, "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128, "tie_word_embeddings": False,
        "swiglu_limit": 7.0, "layer_types": ["sliding_attention" if layer % 2 == 0 else FULL for layer in range(24)],
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
            "original_max_position_embeddings": 4096}}),
}
# Formats of some tensors, by a part of their names, where the published files have others than `fill.py` is asked for.
FORMATS = {"gpt-oss-20b": {"_exps.weight": "mxfp4", "attn_": "q8_0"}}


def zeros(shape) -> np.ndarray:
    """So many zeros, of which one lies in memory."""
    return np.broadcast_to(np.float32(0), tuple(shape))


def skeleton(name: str) -> dict:
    kind, fields = SHAPES[name]
    config = AutoConfig.for_model(kind, max_position_embeddings=8192, **fields)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    tied = config.tie_word_embeddings
    state, experts_of = {}, {}
    for key, value in model.state_dict().items():
        if kind == "gpt_oss" and key.endswith((".experts.gate_up_proj", ".experts.down_proj")):
            # [experts, inputs, outputs], of gates and ups in turns.
            stacked, inputs, outputs = value.shape
            layer = key.split(".")[2]
            ends = {"gate": 2, "up": 2} if key.endswith("gate_up_proj") else {"down": 1}
            for end, parts in ends.items():
                experts_of[f"blk.{layer}.ffn_{end}_exps.weight"] = [stacked, outputs // parts, inputs]
        elif key.endswith(".experts.gate_up_proj"):
            experts, rows, columns = value.shape
            for part in ("gate_proj", "up_proj"):
                state[key.replace("gate_up_proj", f"{part}.weight")] = zeros((experts, rows // 2, columns))
        elif key.endswith(".experts.down_proj"):
            state[key + ".weight"] = zeros(value.shape)
        elif not (tied and key == "lm_head.weight"):
            state[key] = zeros(value.shape)
    metadata = {key: value for key, value in hf_to_gguf.metadata(config).items() if value is not None} | hf_to_gguf.metadata_of_state(state)
    tensors = {}
    for target, (weights, _) in hf_to_gguf.tensors(config, state).items():
        # Vectors keep the number that they begin with, but for norms, which multiply by one.
        first = 1.0 if "norm" in target else float(weights.flat[0])
        tensors[target] = {"shape": weights.shape, "value": first}
    tensors |= {target: {"shape": shape, "value": 0.0} for target, shape in experts_of.items()}
    for part, quantization in FORMATS.get(name, {}).items():
        for target in tensors:
            if part in target and target.endswith(".weight") and len(tensors[target]["shape"]) > 1:
                tensors[target]["quantization"] = quantization
    return {"architecture": hf_to_gguf.arch_of(config), "vocab_size": config.vocab_size, "metadata": metadata, "tensors": tensors}


def main():
    # Nothing has values, so that nothing needs to lie side by side.
    hf_to_gguf.np.ascontiguousarray = lambda weights: weights
    found = {name: skeleton(name) for name in sys.argv[2:] or SHAPES}
    Path(sys.argv[1]).write_text(json.dumps(found, default=lambda value: value.tolist()) + "\n")


if __name__ == "__main__":
    main()
