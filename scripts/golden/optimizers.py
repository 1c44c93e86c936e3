"""Writes tests/golden/tensor/optimizers.json: what PyTorch's optimizers, losses and schedules make of a small problem in 100 steps.

    python scripts/golden/optimizers.py   (needs torch alone; on the CPU, seconds)

The problem is a layer x · w + b with tanh and a cross entropy or a mean square; its numbers are fractions that float32 holds, so both sides begin
with the same bits. Of each way to train it all losses are kept, and the parameters after each step.
"""

import json

import torch
import torch.nn.functional as F

from tensor_ops import OUT

STEPS = 100


def numbers(*shape: int, step: int) -> torch.Tensor:
    """Fractions between −1 and 1 in no order."""
    count = torch.Size(shape).numel()
    return (((torch.arange(count) * step) % 33 - 16) / 16).float().reshape(shape)


X, W, B = numbers(6, 3, step=7), numbers(3, 4, step=5), numbers(4, step=11)
Y = numbers(6, 4, step=13)
CLASSES = [0, 3, -100, 1, 2, 2]

# The name of a way, its optimizer with options, its loss, the norm to which gradients are clipped, and its schedule.
WAYS = [
    ("SGD", {"lr": 0.1}, "mse", None, None),
    ("SGD", {"lr": 0.1, "momentum": 0.9}, "crossEntropy", None, None),
    ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weightDecay": 0.02}, "smoothed", None, "linear"),
    ("Adam", {"lr": 0.02}, "crossEntropy", None, None),
    ("Adam", {"lr": 0.02, "betas": [0.8, 0.95], "eps": 1e-6, "weightDecay": 0.05}, "mse", None, "cosine"),
    ("AdamW", {"lr": 0.02}, "smoothed", 0.25, None),
    ("AdamW", {"lr": 0.05, "weightDecay": 0.2}, "mse", 0.05, "cosine"),
]
NAMES = {"weightDecay": "weight_decay"}


def loss_of(kind: str, out: torch.Tensor) -> torch.Tensor:
    if kind == "mse":
        return F.mse_loss(out, Y)
    return F.cross_entropy(out, torch.tensor(CLASSES), label_smoothing=0.1 if kind == "smoothed" else 0.0)


def trained(optimizer: str, options: dict, loss: str, clip: float | None, schedule: str | None) -> dict:
    parameters = [W.clone().requires_grad_(), B.clone().requires_grad_()]
    made = getattr(torch.optim, optimizer)(parameters, **{NAMES.get(name, name): value for name, value in options.items()})
    rates = {
        None: lambda: None,
        "cosine": lambda: torch.optim.lr_scheduler.CosineAnnealingLR(made, STEPS, eta_min=0.1 * options["lr"]),
        "linear": lambda: torch.optim.lr_scheduler.LinearLR(made, 1.0, 0.2, STEPS),
    }[schedule]()
    losses, kept = [], []
    for step in range(STEPS):
        made.zero_grad()
        value = loss_of(loss, torch.tanh(X @ parameters[0] + parameters[1]))
        value.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        made.step()
        if rates is not None:
            rates.step()
        losses.append(value.item())
        kept.append([number for parameter in parameters for number in parameter.detach().flatten().tolist()])
    return {
        "optimizer": optimizer, "options": options, "loss": loss, "clip": clip, "schedule": schedule,
        "losses": [float(f"{value:.8g}") for value in losses], "parameters": [[float(f"{value:.8g}") for value in row] for row in kept],
    }


def main():
    torch.set_num_threads(1)
    problem = {"x": X.flatten().tolist(), "w": W.flatten().tolist(), "b": B.tolist(), "y": Y.flatten().tolist(), "classes": CLASSES}
    lines = [json.dumps(trained(*way), separators=(",", ":")) for way in WAYS]
    text = '{"problem":' + json.dumps(problem, separators=(",", ":")) + ',"ways":[\n' + ",\n".join(lines) + "\n]}\n"
    (OUT / "optimizers.json").write_text(text)
    print(f"torch {torch.__version__}: {len(lines)} ways, {len(text)} bytes")


if __name__ == "__main__":
    main()
