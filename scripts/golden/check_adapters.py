"""Lets rillm train adapters of golden models, loads what it saved with PEFT and with llama.cpp, and compares logits. So it does with the golden
GGUF adapter, which rillm's tests load, and PEFT's logits with it.

    python scripts/golden/check_adapters.py                     needs cargo, numpy, torch, transformers, peft and llama-cpp-python
    python scripts/golden/check_adapters.py --only llama.cpp    (or peft) needs of those what that program needs
    python scripts/golden/check_adapters.py --save FOLDER       trains and saves alone: needs cargo and numpy
    python scripts/golden/check_adapters.py --saved FOLDER      what was saved so, also elsewhere: needs no cargo

For each adapter: how far the logits of the other program are from rillm's at the worst position, and how far the adapter moves them. It fails
above the limits below, and where a program that is to be asked is not installed. docs/fidelity.md has what it printed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
TEST = ["cargo", "test", "--test", "engine", "training::what_was_trained"]
# llama.cpp takes GELU from a table in half precision, so Gemma's logits differ without an adapter too.
MOST = {"peft": 1e-3, "llama.cpp": 2e-3}


def of_peft(folder: Path | None, model: Path, ids: list[int]) -> np.ndarray:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.inference_mode():
        adapted = PeftModel.from_pretrained(base, folder).eval() if folder else base
        return adapted(torch.tensor([ids])).logits[0].numpy()


def of_llama_cpp(folder: Path | None, model: Path, ids: list[int]) -> np.ndarray:
    import llama_cpp

    # F32 caches, and no rearranging of weights that would round activations.
    loaded = llama_cpp.Llama(
        str(model / "model.gguf"), lora_path=str(folder / "adapter.gguf") if folder else None, n_ctx=128, logits_all=True, verbose=False,
        type_k=0, type_v=0, n_threads=2, flash_attn=False,
    )
    loaded.eval(ids)
    return np.array(loaded.scores[: len(ids)])


PROGRAMS = {"peft": of_peft, "llama.cpp": of_llama_cpp}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=PROGRAMS)
    parser.add_argument("--save", type=Path, metavar="FOLDER")
    parser.add_argument("--saved", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    if given.save:
        given.save.mkdir(parents=True)
        return train(given.save)
    programs = {given.only: PROGRAMS[given.only]} if given.only else PROGRAMS
    failed = False

    def check(what: str, folder: Path, model: Path, ids: list[int], wanted: np.ndarray, names):
        nonlocal failed
        for name in names:
            theirs, without = programs[name](folder, model, ids), programs[name](None, model, ids)
            error, moved = worst(wanted, theirs), worst(without, theirs)
            # An adapter that moves nothing would agree with everything.
            failed |= not (error <= MOST[name] and moved > 20 * error)
            print(f"{what}, {name}: worst position {error:.1e}; the adapter moves {moved:.1e}")

    with tempfile.TemporaryDirectory() as out:
        trained = given.saved or Path(out) / "trained"
        if not given.saved:
            trained.mkdir()
            train(trained)
        folders = sorted(trained.iterdir())
        if not folders:
            sys.exit(f"{trained} holds no adapters")
        for folder in folders:
            said = json.loads((folder / "rillm.json").read_text())
            own = np.array(said["logits"], dtype=np.float32).reshape(len(said["ids"]), -1)
            check(said["model"], folder, (GOLDEN / said["model"]).parent, said["ids"], own, programs)
        if "llama.cpp" in programs:
            folder = GOLDEN / "adapters" / "llama"
            said = json.loads((folder / "golden.json").read_text())
            (Path(out) / "adapter.gguf").write_bytes((folder / "adapter0.gguf").read_bytes())
            model, wanted = (GOLDEN / said["models"][0]).parent, np.load(folder / "logits.npy")
            check("golden adapter of PEFT as GGUF", Path(out), model, said["ids"], wanted, ["llama.cpp"])
    if failed:
        sys.exit(f"wanted at most {MOST}, and an adapter that moves the logits by 20 times what they differ by")


def train(out: Path) -> None:
    """Has rillm's test write its adapters and logits to folders of a folder."""
    subprocess.run(TEST, cwd=ROOT, env=os.environ | {"TRAINED_ADAPTERS": str(out.resolve())}, check=True, stdout=subprocess.DEVNULL)


def worst(a: np.ndarray, b: np.ndarray) -> float:
    """‖a − b‖ / ‖b‖ at the worst position."""
    return float((np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)).max())


if __name__ == "__main__":
    main()
