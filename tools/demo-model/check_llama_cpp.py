"""Compares llama.cpp with the reference: same tokens for each prompt, same greedy text. Wants llama-cpp-python.

    python check_llama_cpp.py [models/demo]

Reads eval-prompts.json and runs the Q8_0 file on every prompt in it; then loads the Q4_0 file and asks it one sum.
llama.cpp multiplies Q8_0 weights with activations rounded to eight bits, so that a near-tie may fall the other way;
each difference is shown with the reference's margin at that step.
"""

import json
import sys
from pathlib import Path

import llama_cpp

import chat


def greedy(model, prompt: str, limit: int) -> tuple[list, list]:
    """→ prompt ids, answer ids."""
    ids = model.tokenize(prompt.encode(), add_bos=False, special=True)
    model.reset()
    answer = []
    for token in model.generate(ids, temp=0.0, top_k=1):
        if token == model.token_eos() or len(answer) == limit:
            break
        answer.append(token)
    return ids, answer


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[2] / "models" / "demo")
    entries = json.loads((folder / "eval-prompts.json").read_text())
    model = llama_cpp.Llama(str(folder / "rillm-demo-q8_0.gguf"), n_ctx=1024, verbose=False)
    same = 0
    for entry in entries:
        prompt = chat.render(entry["messages"], entry.get("tools"), True)
        ids, answer = greedy(model, prompt, 240)
        if len(ids) != entry["prompt_tokens"]:
            raise SystemExit(f"llama.cpp makes {len(ids)} tokens of the prompt, not {entry['prompt_tokens']}: {prompt!r}")
        if answer == entry["token_ids"]:
            same += 1
            continue
        step = next((at for at, (a, b) in enumerate(zip(answer, entry["token_ids"])) if a != b), min(len(answer), len(entry["token_ids"])))
        print(f"differs at step {step}, margin {entry['margins'][step]}: {model.detokenize(answer).decode()!r} for {entry['text']!r}")
    print(f"llama.cpp {llama_cpp.__version__}, Q8_0: {same} of {len(entries)} texts equal the reference's")
    model = llama_cpp.Llama(str(folder / "rillm-demo-q4_0.gguf"), n_ctx=1024, verbose=False)
    _, answer = greedy(model, chat.render([{"role": "user", "content": "What is 12 plus 30?"}], None, True), 40)
    print("Q4_0:", model.detokenize(answer).decode())


if __name__ == "__main__":
    main()
