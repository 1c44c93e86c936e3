"""Lets rillm train adapters of golden models, loads what it saved with PEFT and with llama.cpp, and compares logits.

    python scripts/golden/check_trained_adapters.py   (needs cargo, torch, transformers, peft, numpy; llama-cpp-python if it is installed)

For each adapter: how far the logits of the other program are from rillm's at the worst position. Above 1e-3 it fails.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

ROOT = Path(__file__).resolve().parents[2]
TEST = ["cargo", "test", "--test", "engine", "training::what_was_trained"]
MOST = 1e-3

try:
    import llama_cpp
except ImportError:
    llama_cpp = None


@torch.inference_mode()
def of_peft(folder: Path, model: Path, ids: list[int]) -> np.ndarray:
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager").eval()
    return PeftModel.from_pretrained(base, folder).eval()(torch.tensor([ids])).logits[0].numpy()


def of_llama_cpp(folder: Path, model: Path, ids: list[int]) -> np.ndarray:
    # F32 caches, and no rearranging of weights that would round activations.
    loaded = llama_cpp.Llama(
        str(model / "model.gguf"), lora_path=str(folder / "adapter.gguf"), n_ctx=128, logits_all=True, verbose=False,
        type_k=0, type_v=0, n_threads=2, flash_attn=False,
    )
    loaded.eval(ids)
    return np.array(loaded.scores[: len(ids)])


def main():
    torch.set_num_threads(1)
    programs = {"peft": of_peft} | ({"llama.cpp": of_llama_cpp} if llama_cpp else {})
    if not llama_cpp:
        print("llama-cpp-python is not installed: GGUF files are not checked")
    worst = 0.0
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(TEST, cwd=ROOT, env=os.environ | {"TRAINED_ADAPTERS": out}, check=True, stdout=subprocess.DEVNULL)
        for folder in sorted(Path(out).iterdir()):
            said = json.loads((folder / "rillm.json").read_text())
            own = np.array(said["logits"], dtype=np.float32).reshape(len(said["ids"]), -1)
            for name, run in programs.items():
                theirs = run(folder, ROOT / "tests" / "golden" / Path(said["model"]).parent, said["ids"])
                error = float((np.linalg.norm(theirs - own, axis=1) / np.linalg.norm(theirs, axis=1)).max())
                worst = max(worst, error)
                print(f"{said['model']}, {name}: worst position {error:.1e}")
    if not worst <= MOST:
        sys.exit(f"wanted at most {MOST}")


if __name__ == "__main__":
    main()
