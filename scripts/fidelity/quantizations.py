"""Holds the demo model in every quantisation to llama.cpp on the same file: perplexity of held-out answers, and logits.

    python scripts/fidelity/quantizations.py FOLDER [NAME ...]   (needs numpy, jinja2 and llama-cpp-python)

Quantises models/demo/rillm-demo-q8_0.gguf with llama.cpp into FOLDER, lets llama.cpp score the answers of
models/demo/eval-prompts.json, and then runs `cargo test --test fidelity` on the same files and token ids, which prints the table of
docs/fidelity.md and fails where the two are more than 1% apart.
"""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import llama_cpp
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "demo"
ANSWERS = 100
# Of how many answers the logits are kept.
LOGITS = 10
CONTEXT = 1024
# By the name that files of the hub have.
NAMES = [
    "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K_M", "Q4_K_S", "Q4_K_M", "Q5_K_M", "Q6_K", "IQ4_NL", "IQ4_XS",
]


def quantize(name: str, out: Path):
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{name}")
    params.allow_requantize = True  # the source is Q8_0, whose numbers all types take as they are
    params.nthread = 2
    status = llama_cpp.llama_model_quantize(str(DEMO / "rillm-demo-q8_0.gguf").encode(), str(out).encode(), ctypes.byref(params))
    if status != 0:
        raise SystemExit(f"llama.cpp could not quantise to {name}: status {status}")


def texts(model: llama_cpp.Llama) -> list[dict]:
    """Token ids of prompts with their answers, and where the answers begin."""
    formatter = llama_cpp.llama_chat_format.Jinja2ChatFormatter(
        template=model.metadata["tokenizer.chat_template"], eos_token="<|im_end|>", bos_token="", add_generation_prompt=True,
    )
    prompts = [prompt for prompt in json.loads((DEMO / "eval-prompts.json").read_text()) if "tools" not in prompt]
    result = []
    for prompt in prompts[:ANSWERS]:
        text = formatter(messages=prompt["messages"]).prompt
        ids = model.tokenize(text.encode("utf-8"), add_bos=False, special=True)
        result.append({"ids": ids + prompt["token_ids"], "answer": len(ids)})
    return result


def score(model: llama_cpp.Llama, all_texts: list[dict]) -> tuple[float, np.ndarray]:
    """→ negative log-likelihood of the answers' tokens, logits [n, vocabulary] that predict those of the first answers."""
    loss, kept = 0.0, []
    for number, text in enumerate(all_texts):
        model.reset()
        model.eval(text["ids"])
        rows = np.array(model.scores[text["answer"] - 1 : len(text["ids"]) - 1], dtype=np.float32)
        if number < LOGITS:
            kept.append(rows)
        rows = rows.astype(np.float64) - rows.max(axis=1, keepdims=True)
        wanted = np.array(text["ids"][text["answer"] :])
        loss += float((np.log(np.exp(rows).sum(axis=1)) - rows[np.arange(len(wanted)), wanted]).sum())
    return loss, np.concatenate(kept)


def main():
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or NAMES:
        path = folder / f"{name.lower()}.gguf"
        quantize(name, path)
        model = llama_cpp.Llama(str(path), n_ctx=CONTEXT, n_threads=2, logits_all=True, verbose=False)
        if not (folder / "texts.json").exists():
            (folder / "texts.json").write_text(json.dumps(texts(model)))
        loss, logits = score(model, json.loads((folder / "texts.json").read_text()))
        path.with_suffix(".logits").write_bytes(logits.astype("<f4").tobytes())
        path.with_suffix(".json").write_text(json.dumps({"loss": loss}))
        print(f"{name}: llama.cpp's loss {loss:.4f}", flush=True)
    test = ["cargo", "test", "--test", "fidelity", "quantisation", "--", "--nocapture"]
    raise SystemExit(subprocess.run(test, cwd=ROOT, env=os.environ | {"RILLM_QUANTIZATIONS": str(folder)}).returncode)


if __name__ == "__main__":
    main()
