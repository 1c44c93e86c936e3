"""MXFP4 as the folders of gpt-oss hold it: blocks of 32 weights, two neighbours in a byte, the first in the lower half, and an exponent for each
block (OCP Microscaling Formats 1.0). transformers' own function checks it.
"""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

VALUES = np.asarray([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float64)


def encode(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[..., columns] → codes [..., columns / 32, 32] of 0 to 15, exponents [..., columns / 32]"""
    blocks = weights.reshape(*weights.shape[:-1], -1, 32)
    largest = np.abs(blocks).max(-1)
    exponents = np.where(largest > 0, np.floor(np.log2(np.maximum(largest, 1e-30))) - 2, 0)
    scaled = blocks / 2.0 ** exponents[..., None]
    codes = np.abs(scaled[..., None] - VALUES).argmin(-1)
    return codes.astype(np.uint8), (exponents + 127).astype(np.uint8)


def rounded(weights: np.ndarray) -> np.ndarray:
    """[experts, inputs, outputs]: the nearest weights that MXFP4 represents, in blocks of inputs."""
    codes, exponents = encode(weights.swapaxes(1, 2))
    values = VALUES[codes] * 2.0 ** (exponents.astype(np.float64) - 127)[..., None]
    return values.reshape(weights.swapaxes(1, 2).shape).swapaxes(1, 2)


def rewrite(folder: Path):
    """Replaces the matrices of the experts in a folder of gpt-oss by blocks and scales, as OpenAI published the models."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    state = load_file(folder / "model.safetensors")
    for name in [name for name in state if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        weights = state.pop(name).float().numpy()  # [experts, inputs, outputs]
        codes, exponents = encode(weights.swapaxes(1, 2).astype(np.float64))
        blocks = torch.from_numpy(codes[..., 0::2] | codes[..., 1::2] << 4)
        scales = torch.from_numpy(exponents)
        back = convert_moe_packed_tensors(blocks.clone(), scales.clone(), dtype=torch.float32)
        assert torch.equal(back.cpu(), torch.from_numpy(weights)), name
        state[name + "_blocks"], state[name + "_scales"] = blocks.contiguous(), scales.contiguous()
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
