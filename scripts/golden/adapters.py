"""Writes adapters (LoRA) for tiny golden models, and what the models give with them, into tests/golden/adapters/CASE/.

    python scripts/golden/adapters.py [CASE ...]   (needs torch, transformers, peft, safetensors, gguf, numpy; on the CPU)

The reference is transformers with PEFT in float32 on the CPU, where the model's weights are those of its folder in
tests/golden/architectures, or those that a quantised GGUF file of tests/golden/tiny_llama holds. An adapter's numbers are random with a
fixed seed, and representable in bfloat16, so that the engine, which holds them in f16, rounds none; B is not zero. GGUF adapters have the
keys, names and order of rows that llama.cpp's convert_lora_to_gguf.py gives them.
"""

import json
import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging

import hf_to_gguf
from tiny_models import MODELS, ROOT, gguf_file, hf_gguf, reference_model

ARCHITECTURES = ROOT / "tests" / "golden" / "architectures"
OUT = ROOT / "tests" / "golden" / "adapters"
SEED = 7100
TOKENS = 24
GREEDY_TOKENS = 12
SMALLEST_MARGIN = 0.03  # between the best and the second logit of each greedy step
LLAMA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

# A case is a model and the adapters that run together, each with its scale.
CASES = {
    "llama": {"model": "llama3", "adapters": [{"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}]},
    # An odd rank, a regular expression, ranks and alphas of some modules, and the root of the rank.
    "llama_patterns": {"model": "llama3", "scale": 0.75, "adapters": [{
        "r": 3, "lora_alpha": 4, "use_rslora": True, "target_modules": r".*layers\.\d\.(self_attn\.(q|v)_proj|mlp\.down_proj)",
        "rank_pattern": {"v_proj": 5, "model.layers.1.mlp.down_proj": 1}, "alpha_pattern": {r".*\.v_proj": 2.5}}]},
    # Two at once, one of them against what it was trained for.
    "llama_two": {"model": "llama3", "adapters": [
        {"r": 4, "lora_alpha": 8, "target_modules": LLAMA},
        {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj", "up_proj"], "scale": -0.6}]},
    "qwen3": {"model": "qwen3", "adapters": [
        {"r": 8, "lora_alpha": 8, "target_modules": LLAMA, "layers_to_transform": [1], "dtype": "bfloat16"}]},
    "gemma3": {"model": "gemma3", "adapters": [{"r": 4, "lora_alpha": 6, "target_modules": "all-linear", "dtype": "float16"}]},
    # One matrix for queries, keys and values, and one for gate and up.
    "phi3": {"model": "phi3", "adapters": [{"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}]},
    # Transposed matrices, biases, and no gate.
    "gpt2": {"model": "gpt2", "adapters": [
        {"r": 4, "lora_alpha": 8, "target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True}]},
    # Feed-forward beside attention; one op at a time.
    "bloom": {"model": "bloom", "adapters": [{"r": 4, "lora_alpha": 8, "target_modules": ["dense", "dense_h_to_4h", "dense_4h_to_h"]}]},
    # On quantised weights.
    "llama_q4_0": {"quantised": ("llama", "tied", "Q4_0"), "adapters": [{"r": 8, "lora_alpha": 12, "target_modules": LLAMA}]},
}


def base_model(case: dict):
    if "model" in case:
        return AutoModelForCausalLM.from_pretrained(ARCHITECTURES / case["model"], dtype=torch.float32, attn_implementation="eager").eval()
    arch, name, fmt = case["quantised"]
    config = MODELS[arch][name]["config"]
    path = ROOT / "tests" / "golden" / f"tiny_{arch}" / f"{name}-{fmt.lower()}.gguf"
    return reference_model(arch, config, hf_gguf.from_gguf_tensors(arch, gguf_file.read(path)[1], config))


def write_adapter(model, fields: dict, folder: Path, generator) -> None:
    """Saves a random adapter for a model as PEFT does."""
    dtype = getattr(torch, fields.pop("dtype", "float32"))
    wrapped = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **fields))
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_" in name:
                size = 1.0 if "lora_A" in name else 0.15
                values = generator.normal(0, size / np.sqrt(parameter.shape[1]), tuple(parameter.shape)).astype(np.float32)
                parameter.copy_(torch.from_numpy(values).to(torch.bfloat16).to(dtype))
                parameter.data = parameter.data.to(dtype)
    wrapped.save_pretrained(folder)
    wrapped.unload()
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    # A path of this machine.
    config["base_model_name_or_path"] = None
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


def with_adapters(case: dict, folders: list[Path], scales: list[float]):
    """The model with these adapters, each times its scale."""
    model = PeftModel.from_pretrained(base_model(case), folders[0], adapter_name="a0").float()
    for number, folder in enumerate(folders[1:], 1):
        model.load_adapter(folder, adapter_name=f"a{number}")
    model = model.float()
    names = [f"a{number}" for number in range(len(folders))]
    model.base_model.set_adapter(names)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            for name, scale in zip(names, scales):
                if name in module.scaling:
                    module.scaling[name] *= scale
    return model.eval()


@torch.inference_mode()
def golden(model, ids: list[int]):
    logits = model(torch.tensor([ids])).logits[0].float().numpy()
    sequence, margins = list(ids), []
    for _ in range(GREEDY_TOKENS):
        best = torch.topk(model(torch.tensor([sequence])).logits[0, -1], 2)
        margins.append(float(best.values[0] - best.values[1]))
        sequence.append(int(best.indices[0]))
    return logits, sequence[len(ids) :], min(margins)


def write_gguf(model_name: str, folder: Path, out: Path) -> None:
    """The adapter of a PEFT folder as llama.cpp's converter writes it, in float32."""
    config = AutoModelForCausalLM.from_pretrained(ARCHITECTURES / model_name).config
    arch = hf_to_gguf.arch_of(config)
    fields = json.loads((folder / "adapter_config.json").read_text())
    writer = gguf.GGUFWriter(out, arch)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(fields["lora_alpha"]))
    map_ = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, weights in sorted(load_file(folder / "adapter_model.safetensors").items()):
        module, half = name.removeprefix("base_model.model.").removesuffix(".weight").rsplit(".", 1)
        ours = map_.get_name(f"{module}.weight", try_suffixes=(".weight",))
        if half == "lora_B" and module.endswith(("q_proj", "k_proj")):
            heads = config.num_attention_heads if module.endswith("q_proj") else config.num_key_value_heads
            weights = hf_to_gguf.to_interleaved(weights, heads)
        writer.add_tensor(f"{ours}.{half.lower()}", np.ascontiguousarray(weights.astype(np.float32)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_case(name: str, seed: int) -> float:
    case, out = CASES[name], OUT / name
    shutil.rmtree(out, ignore_errors=True)
    generator = np.random.default_rng(seed)
    folders, scales = [], []
    for number, fields in enumerate(case["adapters"]):
        fields = dict(fields)
        scales.append(fields.pop("scale", case.get("scale", 1.0)))
        folders.append(out / f"adapter{number}")
        write_adapter(base_model(case), fields, folders[-1], generator)
    model = with_adapters(case, folders, scales)
    ids = generator.integers(0, model.config.vocab_size, TOKENS).tolist()
    logits, greedy, margin = golden(model, ids)
    np.save(out / "logits.npy", logits.astype("<f4"))
    if "model" in case:
        files = [f"architectures/{case['model']}/{file}" for file in ("model.gguf", "model.safetensors")]
    else:
        arch, kind, fmt = case["quantised"]
        files = [f"tiny_{arch}/{kind}-{fmt.lower()}.gguf"]
    (out / "golden.json").write_text(json.dumps({"models": files, "scales": scales, "ids": ids, "greedy": greedy}) + "\n")
    if name == "llama":
        write_gguf(case["model"], folders[0], out / "adapter0.gguf")
    return margin


def main():
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    for name in sys.argv[1:] or CASES:
        for seed in range(SEED, SEED + 100):
            margin = write_case(name, seed)
            print(f"{name}: seed {seed}, smallest greedy margin {margin:.3f}", flush=True)
            if margin >= SMALLEST_MARGIN:
                break
        else:
            raise SystemExit(f"{name}: no seed gives greedy steps without near ties")


if __name__ == "__main__":
    main()
