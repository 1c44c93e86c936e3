"""Writes the tiny random models and their golden outputs into tests/golden/tiny_ARCHITECTURE/.

    python scripts/golden/tiny_models.py [ARCHITECTURE ...]   (needs torch, transformers, tokenizers, numpy; on the CPU)

The reference is transformers in float32 on the CPU. Every model has two layers, grouped-query attention and a
byte-level BPE tokenizer; weights are random with a fixed seed and scaled so that the logits are not flat. For every
format the reference runs on exactly the weights that the GGUF file holds, dequantised.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "demo-model"))
import gguf_file  # noqa: E402
import hf_gguf  # noqa: E402
from bpe import train_bpe  # noqa: E402

SEED = 20260
PROMPT_TOKENS = 37
GREEDY_TOKENS = 24
SMALLEST_MARGIN = 0.03  # between the best and the second logit of each greedy step: no ties for another kernel to flip
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
FIELDS = {"max_position_embeddings": 256, "num_hidden_layers": 2, "tie_word_embeddings": True}
MODELS = {
    "llama": {
        # tied embeddings; sizes near the common ones
        "tied": {
            "config": FIELDS | {
                "vocab_size": 288, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
                "intermediate_size": 96, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
            },
            "formats": ["F32", "F16", "Q8_0", "Q4_0"],
        },
        # own output matrix, four query heads on one key head, attention wider than hidden_size (llama.attention.key_length
        # matters), hidden_size and ffn no powers of two; the widths that a block format divides are odd multiples of 32
        "untied": {
            "config": FIELDS | {
                "vocab_size": 263, "hidden_size": 96, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32,
                "intermediate_size": 96, "rope_theta": 500000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
            },
            "formats": ["Q8_0", "Q4_0"],
        },
    },
    # The keys that llama.cpp's converter writes for Qwen2, so head_dim is hidden_size / num_attention_heads.
    "qwen2": {
        # tied embeddings, three query heads on one key head
        "tied": {
            "config": FIELDS | {
                "vocab_size": 288, "hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 2,
                "intermediate_size": 64, "rope_theta": 1000000.0, "rms_norm_eps": 1e-6,
            },
            "formats": ["Q8_0"],
        },
        # own output matrix, one key head, head_dim 32
        "untied": {
            "config": FIELDS | {
                "vocab_size": 263, "hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1,
                "intermediate_size": 96, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
            },
            "formats": ["Q4_0"],
        },
    },
}
CLASSES = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM)}
TEXT = """The small boat left the harbour at dawn and came back with the tide. Nobody on the quay said a word.
A lamp was lit in the kitchen; there was bread, there was cheese, and there was time to tell the whole story again.
"Where have you been?" she asked. "Out there," he said, "where the water is green and the wind has no name."
Numbers: 0 1 2 3 4 5 6 7 8 9, 10, 42, 365. It's late, they're tired, we'll see. \n\n    indented text\tand tabs"""
TOKENIZER_CASES = [
    "", "a", "The small boat", " the whole story again", "It's late; they'RE tired!", "12345 + 678", "x  y   z", "line\nline\r\n\n end ",
    "naïve café", "日本語 text", "🙂🙂", "<|im_start|>user\nhi<|im_end|>\n", "tab\tand  spaces  ", "don't", "\n\n\n", "a.b,c!?...",
]


def random_state(arch: str, config: dict, seed: int) -> dict:
    generator = np.random.default_rng(seed)
    config_class, model_class = CLASSES[arch]
    reference = model_class(config_class(**config))
    state = {}
    for name, parameter in reference.state_dict().items():
        shape = tuple(parameter.shape)
        if config["tie_word_embeddings"] and name == "lm_head.weight":
            continue
        if name.endswith(".bias"):
            weights = generator.normal(0, 0.5, shape)
        elif len(shape) == 1:
            weights = generator.uniform(0.5, 1.5, shape)
        elif name == "model.embed_tokens.weight":
            weights = generator.normal(0, 0.5, shape)
        else:
            weights = generator.normal(0, 1.6 / np.sqrt(shape[1]), shape)
        state[name] = weights.astype(np.float32)
    return state


def reference_model(arch: str, config: dict, state: dict) -> PreTrainedModel:
    config_class, model_class = CLASSES[arch]
    model = model_class(config_class(**config, attn_implementation="eager", torch_dtype=torch.float32)).eval()
    tensors = {name: torch.from_numpy(np.ascontiguousarray(weights)) for name, weights in state.items()}
    if config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    model.load_state_dict(tensors)
    assert model.dtype == torch.float32
    parameters = getattr(model.config, "rope_parameters", None) or {}
    assert parameters.get("rope_theta", config["rope_theta"]) == config["rope_theta"], parameters
    return model


@torch.inference_mode()
def golden(model: PreTrainedModel, ids: list[int]) -> tuple[np.ndarray, list[int], float]:
    """→ logits [n, vocab], greedy continuation, the smallest margin of its steps."""
    logits = model(torch.tensor([ids])).logits[0].numpy()
    sequence, margins = list(ids), []
    for _ in range(GREEDY_TOKENS):
        best = torch.topk(model(torch.tensor([sequence])).logits[0, -1], 2)
        margins.append(float(best.values[0] - best.values[1]))
        sequence.append(int(best.indices[0]))
    return logits, sequence[len(ids) :], min(margins)


def write_model(arch: str, name: str, spec: dict, seed: int) -> float:
    """Writes everything of one model; returns the smallest greedy margin over its formats."""
    out, config = ROOT / "tests" / "golden" / f"tiny_{arch}", spec["config"]
    out.mkdir(parents=True, exist_ok=True)
    state = random_state(arch, config, seed)
    tokenizer = train_bpe([TEXT], config["vocab_size"], SPECIAL)
    ids = np.random.default_rng(seed + 1).integers(0, config["vocab_size"], PROMPT_TOKENS).tolist()
    (out / f"{name}.ids.json").write_text(json.dumps(ids) + "\n")
    cases = [{"text": text, "ids": tokenizer.encode(text).ids} for text in TOKENIZER_CASES]
    assert all(tokenizer.decode(case["ids"], skip_special_tokens=False) == case["text"] for case in cases)
    (out / f"{name}.tokenizer.json").write_text(json.dumps(cases, ensure_ascii=False, indent=0) + "\n")
    token_metadata = hf_gguf.tokenizer_metadata(json.loads(tokenizer.to_str()), SPECIAL[0], SPECIAL[2], SPECIAL[0])
    greedy, smallest = {}, np.inf
    for fmt in spec["formats"]:
        path = out / f"{name}-{fmt.lower()}.gguf"
        metadata = hf_gguf.metadata(arch, config, f"tiny random {arch.capitalize()}, {name}, {fmt}", fmt)
        gguf_file.write(path, metadata | token_metadata, hf_gguf.to_gguf_tensors(arch, state, config, fmt))
        held = hf_gguf.from_gguf_tensors(arch, gguf_file.read(path)[1], config)
        logits, greedy[fmt], margin = golden(reference_model(arch, config, held), ids)
        np.save(out / f"{name}-{fmt.lower()}.logits.npy", logits.astype("<f4"))
        smallest = min(smallest, margin)
    (out / f"{name}.greedy.json").write_text(json.dumps(greedy, indent=1) + "\n")
    return smallest


def main():
    torch.set_num_threads(1)
    for arch in sys.argv[1:] or MODELS:
        for name, spec in MODELS[arch].items():
            for seed in range(SEED, SEED + 400):
                margin = write_model(arch, name, spec, seed)
                print(f"{arch} {name}: seed {seed}, smallest greedy margin {margin:.3f}")
                if margin >= SMALLEST_MARGIN:
                    break
            else:
                raise SystemExit(f"{arch} {name}: no seed gives greedy steps without near ties")


if __name__ == "__main__":
    main()
