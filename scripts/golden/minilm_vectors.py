"""Vectors that transformers gives for 200 sentences with all-MiniLM-L6-v2 (scripts/real_model.py), pooled and normalized as its model card
does it, into tests/golden/minilm/: sentences.json, and vectors.npy in float16 (an error of 1e-7 in the cosine).

    python scripts/golden/minilm_vectors.py target/minilm   (needs torch, transformers, numpy; on the CPU)
"""

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "minilm"
COUNT = 200

WRITTEN = [
    "a", "Hello!", "What is the capital of France?", "Paris is the capital of France.", "The quick brown fox jumps over the lazy dog.",
    "How do I reset my password?", "Click on “Forgot password” and follow the link in the e-mail.", "E = mc²", "1 + 1 = 2", "🙂 🙃",
    "Der Hund läuft schnell durch den Wald.", "Le chat dort sur le canapé.", "El tiempo es oro.", "今天天气很好。", "これはペンです。", "Привет, мир!",
    "مرحبا بالعالم", "for i in range(10): print(i)", "SELECT name FROM users WHERE id = 7;", "https://example.org/a?b=c",
    "In 1969, two people walked on the Moon for the first time; six hundred million others watched them.",
    "The mitochondrion is the powerhouse of the cell.", "Prices rose by 3.4% in the second quarter, more than analysts expected.",
    "She didn't know whether he'd've come anyway.", "   spaces   everywhere   ", "ALL CAPITALS ARE LOUD", "naïve café résumé",
    "A GPU runs many simple threads at once, which suits the products of matrices that neural networks are made of.",
    "Rain is expected in the north, and sun in the south.", "antidisestablishmentarianism",
]
WHO = ["My neighbour", "A small company", "The old teacher", "Nobody in the village", "The engine of a ship"]
DOES = ["bought", "forgot", "repaired", "was looking for", "could not explain"]
WHAT = ["a blue bicycle", "the recipe for bread", "three letters from the sea", "the theory of relativity", "last year's tax report",
        "a song about winter", "the way to the station"]


def sentences() -> list[str]:
    made = [f"{who} {does} {what}." for who, does, what in itertools.product(WHO, DOES, WHAT)]
    some = [made[(11 * i) % len(made)] for i in range(COUNT - len(WRITTEN) - 10)]
    # From two of them to as many as the model takes.
    long = [" ".join(made[11 * n : 11 * n + 2 * n + 2]) for n in range(10)]
    return WRITTEN + some + long


@torch.inference_mode()
def main():
    torch.set_num_threads(1)
    tokenizer, model = AutoTokenizer.from_pretrained(sys.argv[1]), AutoModel.from_pretrained(sys.argv[1]).eval()
    texts = sentences()
    assert len(set(texts)) == COUNT
    vectors, longest = [], 0
    for text in texts:
        # One by one and without padding, so that nothing but the text counts.
        inputs = tokenizer(text, return_tensors="pt", padding=False, truncation=True, max_length=256)
        longest = max(longest, inputs["input_ids"].shape[1])
        states = model(**inputs).last_hidden_state[0]
        vectors.append(torch.nn.functional.normalize(states.mean(0), dim=0).numpy())
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "sentences.json").write_text(json.dumps(texts, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    np.save(OUT / "vectors.npy", np.asarray(vectors).astype("<f2"))
    print(f"{len(texts)} sentences of up to {longest} tokens")


if __name__ == "__main__":
    main()
