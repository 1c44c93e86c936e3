"""Ternary weights of BitNet for the golden data: transformers' own linear layers compute them, and its packing stores them."""

import json
import os
from pathlib import Path

# Nothing here is worth compiling.
os.environ["TORCHDYNAMO_DISABLE"] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import BitNetQuantConfig  # noqa: E402
from transformers.integrations.bitnet import AutoBitLinear, pack_weights, replace_with_bitnet_linear  # noqa: E402

# Of the golden data: more than what kernels differ by.
LEAST_DISTANCE = 1.5e-6

CONFIG = BitNetQuantConfig(linear_class="autobitlinear", quantization_mode="offline")


def make_ternary(model, seed: int):
    """Replaces the linear layers by ternary ones with random weights and factors."""
    generator = np.random.default_rng(seed + 2)
    others = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    replace_with_bitnet_linear(model, ["lm_head"], CONFIG)
    for name, module in model.named_modules():
        if isinstance(module, AutoBitLinear):
            shape = (module.out_features, module.in_features)
            weights = torch.from_numpy(generator.integers(-1, 2, shape).astype(np.float32))
            scale = torch.tensor([generator.uniform(1.0, 2.0) / np.sqrt(module.in_features)]).to(torch.bfloat16).float()
            module.weight = torch.nn.Parameter(weights, requires_grad=False)
            module.weight_scale = torch.nn.Buffer(scale)
    assert all(parameter.device.type == "cpu" for parameter in model.parameters())
    model.load_state_dict({name: others[name] for name in others if "_proj." not in name}, strict=False)
    model.tie_weights()


@torch.inference_mode()
def distance(model, ids: list[int]) -> float:
    """How near the inputs of products come to a half of a step, where other kernels could round them otherwise: a share of the largest of a row."""
    nearest = []

    def see(module, inputs):
        x = inputs[0].double()
        steps = 127 * x / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
        nearest.append(float((steps - steps.floor() - 0.5).abs().min()) / 127)

    hooks = [module.register_forward_pre_hook(see) for module in model.modules() if isinstance(module, AutoBitLinear)]
    model(torch.tensor([ids]), use_cache=False)
    for hook in hooks:
        hook.remove()
    return min(nearest)


def pack(folder: Path):
    """Packs the saved weights, and says so in the configuration."""
    file = folder / "model.safetensors"
    state = load_file(file)
    for name in [name for name in state if name.endswith("_proj.weight")]:
        state[name] = pack_weights(state[name].float())
    save_file(state, file, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline", "modules_to_not_convert": None,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
