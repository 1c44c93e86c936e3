"""Writes tests/golden/tensor/transformer.json: the losses of a tiny transformer that PyTorch trains on characters for 200 steps.

    python scripts/golden/tiny_transformer.py   (needs torch alone; on the CPU, seconds)

Two layers of two heads, by AdamW. Weights and batches follow from integers by a hash that JavaScript computes as well, so both sides begin with the
same bits and see the same data. The text is the first stanza of William Blake's "The Tyger" (1794) and the last.
"""

import json

import torch
import torch.nn.functional as F

from tensor_ops import OUT

TEXT = """Tyger Tyger, burning bright,
In the forests of the night;
What immortal hand or eye,
Could frame thy fearful symmetry?
Tyger Tyger burning bright,
In the forests of the night:
What immortal hand or eye,
Dare frame thy fearful symmetry?
"""
STEPS, BATCH, LENGTH, WIDTH, HEADS, LAYERS, RATE = 200, 4, 24, 32, 2, 2, 0.003


def hashed(index: int, seed: int) -> int:
    """32 bits (the finalizer of MurmurHash3, Appleby 2011)."""
    h = (index * 0x9E3779B1 + seed * 0x85EBCA77) & 0xFFFFFFFF
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = ((h ^ (h >> shift)) * factor) & 0xFFFFFFFF
    return h ^ (h >> 16)


def weights(seed: int, *shape: int) -> torch.Tensor:
    """Uniform, of the variance 1 / (3 · the number of inputs); multiples of 2^-16 before they are scaled, which is a power of two."""
    count = torch.Size(shape).numel()
    scale = 2.0 ** -3 if shape[0] > 16 else 2.0 ** -2
    values = [((hashed(i, seed) >> 16) / 32768 - 1) * scale for i in range(count)]
    return torch.tensor(values, dtype=torch.float32).reshape(shape)


def main():
    torch.set_num_threads(1)
    characters = sorted(set(TEXT))
    ids = torch.tensor([characters.index(c) for c in TEXT])
    classes = len(characters)
    shapes = [(classes, WIDTH), (LENGTH, WIDTH), (WIDTH, classes)]
    shapes += [shape for _ in range(LAYERS) for shape in ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))]
    matrices = [weights(seed, *shape).requires_grad_() for seed, shape in enumerate(shapes)]
    scales = [torch.ones(WIDTH, requires_grad=True) for _ in range(2 * LAYERS + 1)]

    def logits(tokens):
        x = matrices[0][tokens] + matrices[1]
        for layer in range(LAYERS):
            qkv, out, up, down = matrices[3 + 4 * layer:7 + 4 * layer]
            q, k, v = (part.reshape(BATCH, LENGTH, HEADS, -1).transpose(1, 2) for part in (F.rms_norm(x, (WIDTH,), scales[2 * layer], 1e-6) @ qkv).chunk(3, -1))
            x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH) @ out
            x = x + F.gelu(F.rms_norm(x, (WIDTH,), scales[2 * layer + 1], 1e-6) @ up) @ down
        return F.rms_norm(x, (WIDTH,), scales[-1], 1e-6) @ matrices[2]

    optimizer = torch.optim.AdamW([*matrices, *scales], lr=RATE)
    losses = []
    for step in range(STEPS):
        starts = [hashed(step * BATCH + row, 1000) % (len(TEXT) - LENGTH - 1) for row in range(BATCH)]
        tokens = torch.stack([ids[start:start + LENGTH] for start in starts])
        targets = torch.stack([ids[start + 1:start + 1 + LENGTH] for start in starts])
        loss = F.cross_entropy(logits(tokens).reshape(-1, classes), targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(f"{loss.item():.7g}"))
    numbers = {"steps": STEPS, "batch": BATCH, "length": LENGTH, "width": WIDTH, "heads": HEADS, "layers": LAYERS, "rate": RATE}
    text = json.dumps({"text": TEXT, **numbers, "losses": losses}, separators=(",", ":")) + "\n"
    (OUT / "transformer.json").write_text(text)
    print(f"torch {torch.__version__}: losses {losses[0]} to {losses[-1]}, {len(text)} bytes")


if __name__ == "__main__":
    main()
