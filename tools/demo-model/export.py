"""Writes the GGUF files from WORK/model.npz and checks them.

    python export.py --work WORK --out models/demo

The Q4_0 file keeps the token embedding, which is the output matrix too, in Q8_0. Checks: our quantised bytes equal
those of the PyPI package `gguf` (where installed), and transformers computes the same logits from the written
file's weights as our own model does.
"""

import argparse
import json
from pathlib import Path

import numpy as np

import chat
import gguf_file
import hf_gguf
from model import CONFIG

NAME = "rillm demo"
FILES = {"q8_0": ("Q8_0", {}), "q4_0": ("Q4_0", {"token_embd.weight": "Q8_0"})}
GENERAL = {
    "general.description": "A small model trained from scratch for the demo of rillm, on generated conversations.",
    "general.license": "mit OR apache-2.0",
    "general.size_label": "14M",
    "general.languages": ["en"],
}


def load_state(work) -> dict:
    """HF names → float32; the embedding is also the output matrix."""
    with np.load(Path(work) / "model.npz") as data:
        return {name: data[name].astype(np.float32) for name in data.files}


def held_state(state: dict, file: str | None) -> dict:
    """The float32 weights that a reader of this GGUF file has; None for the weights themselves."""
    if file is None:
        return state
    fmt, overrides = FILES[file]
    tensors = hf_gguf.to_gguf_tensors("llama", state, CONFIG, fmt, overrides)
    read = {name: (gguf_file.round_trip(weights, kind), kind) for name, (weights, kind) in tensors.items()}
    return hf_gguf.from_gguf_tensors("llama", read, CONFIG)


def transformers_model(state: dict):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(**CONFIG, bos_token_id=None, eos_token_id=None)).float().eval()
    tensors = {name: torch.from_numpy(np.ascontiguousarray(weights)) for name, weights in state.items()}
    model.load_state_dict({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"]})
    return model


def write(work, out) -> None:
    state = load_state(work)
    tokenizer = json.loads((Path(work) / "tokenizer.json").read_text())
    words = hf_gguf.tokenizer_metadata(tokenizer, chat.PAD, chat.EOS, chat.PAD, chat.CHAT_TEMPLATE)
    for file, (fmt, overrides) in FILES.items():
        path = Path(out) / f"rillm-demo-{file}.gguf"
        metadata = hf_gguf.metadata("llama", CONFIG, f"{NAME} {fmt}", fmt, GENERAL) | words
        gguf_file.write(path, metadata, hf_gguf.to_gguf_tensors("llama", state, CONFIG, fmt, overrides))
        read = hf_gguf.from_gguf_tensors("llama", gguf_file.read(path)[1], CONFIG)
        wanted = held_state(state, file)
        assert read.keys() == wanted.keys() and all(np.array_equal(read[name], wanted[name]) for name in read)
        print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")


def write_f32(state: dict, work, path) -> None:
    tokenizer = json.loads((Path(work) / "tokenizer.json").read_text())
    words = hf_gguf.tokenizer_metadata(tokenizer, chat.PAD, chat.EOS, chat.PAD, chat.CHAT_TEMPLATE)
    gguf_file.write(path, hf_gguf.metadata("llama", CONFIG, NAME, "F32", GENERAL) | words, hf_gguf.to_gguf_tensors("llama", state, CONFIG, "F32"))


def check(work) -> None:
    import torch

    from model import Llama

    state = load_state(work)
    try:
        gguf_file.check_against_gguf_package(np.concatenate([w for w in state.values() if w.ndim == 2 and w.shape[1] == 512]))
        print("the quantisers agree with the package gguf, byte by byte")
    except ModuleNotFoundError:
        print("the package gguf is not installed: quantisers not compared")
    ours = Llama().eval()
    ours.load_state_dict({name: torch.from_numpy(weights) for name, weights in state.items()})
    ids = torch.randint(0, CONFIG["vocab_size"], (1, 200), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        mine, theirs = ours(ids)[0], transformers_model(state)(ids).logits[0]
    difference = float((mine - theirs).norm() / theirs.norm())
    assert difference < 1e-4, difference
    print(f"transformers computes the same logits (relative difference {difference:.1e})")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", default="/tmp/rillm-demo-model")
    parser.add_argument("--out", default=str(Path(__file__).resolve().parents[2] / "models" / "demo"))
    options = parser.parse_args()
    Path(options.out).mkdir(parents=True, exist_ok=True)
    write(options.work, options.out)
    check(options.work)


if __name__ == "__main__":
    main()
