"""Loads the golden models' GGUF files with llama.cpp and compares with transformers' answers. Wants llama-cpp-python and numpy.

    python scripts/golden/check_llama_cpp.py

For each model: how far llama.cpp's logits are from the golden ones at the worst position, and whether its greedy tokens are equal.
"""

import json
from pathlib import Path

import llama_cpp
import numpy as np

ROOT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "architectures"


def check(folder: Path) -> str:
    golden = json.loads((folder / "golden.json").read_text())
    wanted = np.load(folder / "logits.npy")
    # F32 caches, and no rearranging of weights that would round activations.
    model = llama_cpp.Llama(
        str(folder / "model.gguf"), n_ctx=128, logits_all=True, verbose=False, type_k=0, type_v=0, n_threads=2, flash_attn=False
    )
    model.eval(golden["ids"])
    logits = np.array(model.scores[: len(golden["ids"])])
    errors = np.linalg.norm(logits - wanted, axis=1) / np.linalg.norm(wanted, axis=1)
    tokens = []
    for _ in golden["greedy"]:
        tokens.append(int(np.argmax(model.scores[model.n_tokens - 1])))
        model.eval(tokens[-1:])
    equal = next((at for at, (a, b) in enumerate(zip(tokens, golden["greedy"])) if a != b), len(tokens))
    bad = np.flatnonzero(errors > 1e-3)
    where = f", off from position {bad[0]} on" if len(bad) else ""
    return f"worst position {errors.max():.1e}{where}; {equal} of {len(tokens)} greedy tokens equal"


def main():
    print(f"llama-cpp-python {llama_cpp.__version__}")
    for folder in sorted(ROOT.iterdir()):
        if (folder / "model.gguf").exists():
            try:
                print(f"{folder.name}: {check(folder)}")
            except Exception as error:  # noqa: BLE001 - one model that does not load must not hide the others
                print(f"{folder.name}: {error}")


if __name__ == "__main__":
    main()
