"""What SmolLM2-135M-Instruct in Q4_1 (scripts/real_model.py) answers, greedily, into tests/golden/smollm2/texts.json: by transformers, which
dequantises the file to float32, and by llama.cpp (0.3.36 of its Python package) on the very file, whose CPU kernels round activations to 8 bits.

    python scripts/golden/smollm2_texts.py target/smollm2   (needs torch, transformers, accelerate, gguf, llama-cpp-python; CPU, minutes)
"""

import json
import sys
from pathlib import Path

import torch
from llama_cpp import Llama
from transformers import AutoModelForCausalLM, AutoTokenizer

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"

PROMPTS = [
    "The capital of France is", "def fibonacci(n):\n", "Once upon a time, there was a", "1, 2, 3, 4, 5,", "Water boils at",
    "Der Hund läuft", "A haiku about rain:\n", '{"name": "Ada", "born":', "🙂 means", "In 1969, two people",
]
NEW_TOKENS = 32

TURNS = [
    "Hello! What can you do?", "Name three fruits.", "Which of them is yellow?", "Write one sentence about it.", "Now in capital letters, please.",
    "What is 7 + 5?", "And 12 - 4?", "What did I ask you first?", "Give me a word that rhymes with cat.", "Thank you. Say goodbye.",
]
TURN_TOKENS = 24

NEARLY = 0.1


@torch.inference_mode()
def greedy(model, ids: list[int], count: int, stop: int | None) -> tuple[list[int], float]:
    """The tokens, and the smallest distance between the two highest logits of a step: where it is small, a rounding may choose."""
    tokens, margin, past, step = [], float("inf"), None, torch.tensor([ids])
    while len(tokens) < count:
        out = model(step, past_key_values=past, use_cache=True)
        best = torch.topk(out.logits[0, -1], 2)
        margin = min(margin, float(best.values[0] - best.values[1]))
        past, token = out.past_key_values, int(best.indices[0])
        if token == stop:
            break
        tokens.append(token)
        step = torch.tensor([[token]])
    return tokens, round(margin, 4)


def llama_greedy(llama: Llama, ids: list[int], count: int, stop: int | None) -> list[int]:
    llama.reset()
    tokens = []
    for token in llama.generate(ids, temp=0.0, top_k=1, repeat_penalty=1.0):
        if token == stop or len(tokens) == count:
            break
        tokens.append(token)
    return tokens


def main():
    folder = Path(sys.argv[1])
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=FILE)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=FILE, dtype=torch.float32).eval()
    llama = Llama(str(folder / FILE), n_ctx=2048, verbose=False)

    def text_of(tokens: list[int]) -> str:
        return tokenizer.decode(tokens, skip_special_tokens=True)

    def entry(ids: list[int], count: int, stop: int | None) -> dict:
        tokens, margin = greedy(model, ids, count, stop)
        other = llama_greedy(llama, ids, count, stop)
        return {"prompt_ids": ids, "tokens": tokens, "text": text_of(tokens), "least_margin": margin, "llama_cpp": text_of(other)}

    texts = [{"prompt": prompt, **entry(tokenizer(prompt)["input_ids"], NEW_TOKENS, None)} for prompt in PROMPTS]
    messages, turns = [], []
    for turn in TURNS:
        messages.append({"role": "user", "content": turn})
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        found = entry(tokenizer(text, add_special_tokens=False)["input_ids"], TURN_TOKENS, tokenizer.eos_token_id)
        turns.append({"user": turn, **found})
        messages.append({"role": "assistant", "content": found["text"]})
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "texts.json").write_text(json.dumps({"texts": texts, "turns": turns}, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    others = [one for one in texts + turns if one["text"] != one["llama_cpp"]]
    # Its activations of 8 bits may choose otherwise only where two tokens are nearly as likely.
    assert all(one["least_margin"] < NEARLY for one in others), others
    print(f"{len(texts + turns)} texts, llama.cpp gives others in {len(others)}, each with two tokens within {NEARLY}")


if __name__ == "__main__":
    main()
