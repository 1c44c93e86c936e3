"""Trains the demo model on the shards that data.py writes; writes WORK/model.npz, the loss curve and a record.

    python train.py --work WORK --steps 9878
    python train.py --work WORK --steps 2900 --continue --first-shard 400 --shards 200 --rate 0.35 --decay 0.9

The second call goes on from WORK/model.npz with the loosened requests (data.py) and a smaller learning rate.
Matrices learn by Muon (momentum, orthogonalised), the embedding and the norms by Adam; bf16 compute, float32
weights. In the last part of the run every second step sees the weights as Q4_0 would hold them, so that the
quantised files answer as the full weights do.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import data
from model import CONFIG, Llama

SEED = 11
WARM_UP = 150
QUANTISE_SHARE = 0.3
MATRIX_RATE, ADAM_RATE = 3e-3, 3e-3
WEIGHT_DECAY = 0.05


class Muon:
    """Momentum, then the nearest orthogonal matrix by Newton–Schulz steps; matrices of one shape go together."""

    def __init__(self, parameters):
        self.groups = {}
        for parameter in parameters:
            self.groups.setdefault(parameter.shape, []).append(parameter)
        self.momentum = {shape: torch.zeros(len(group), *shape, device=group[0].device) for shape, group in self.groups.items()}

    @torch.no_grad()
    def step(self, rate):
        for shape, group in self.groups.items():
            gradient = torch.stack([parameter.grad for parameter in group]).float()
            update = muon_update(gradient, self.momentum[shape]) * (0.2 * max(shape) ** 0.5 * rate)
            torch._foreach_mul_(group, 1 - rate * WEIGHT_DECAY)
            torch._foreach_sub_(group, list(update.unbind(0)))


@torch.compile
def muon_update(gradient, momentum):
    momentum.lerp_(gradient, 0.05)
    x = gradient.lerp(momentum, 0.95).bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return (x.mT if tall else x).float()


def document_masks(device, pad):
    """→ mask(ids): attention inside each packed conversation only; on the CPU None, that is plain causal."""
    if device == "cpu":
        return lambda ids: None
    from torch.nn.attention.flex_attention import create_block_mask

    build = torch.compile(create_block_mask)

    def mask(ids):
        ends = (ids == pad).int()
        document = ends.cumsum(1) - ends

        def same_document(batch, head, query, key):
            return (query >= key) & (document[batch, query] == document[batch, key])

        return build(same_document, ids.shape[0], None, ids.shape[1], ids.shape[1], device=device)

    return mask


def windows(work, first: int, shards: int, repeat: int, batch: int, device):
    """Batches [batch, tokens] with the learn bit; each block of shards is read `repeat` times in new orders."""
    order, block = np.random.default_rng(SEED + first), []
    index = 0
    while True:
        path = Path(work) / "shards" / f"{first + index % shards:05d}.npy"
        while not path.exists():
            time.sleep(0.05)
        block.append(np.load(path))
        index += 1
        if len(block) == 4:
            held = torch.from_numpy(np.concatenate(block).astype(np.int32)).to(device)
            for _ in range(repeat):
                for rows in torch.from_numpy(order.permutation(len(held))).to(device).split(batch):
                    if len(rows) == batch:
                        yield held[rows]
            block = []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", default="/tmp/rillm-demo-model")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seconds", type=float, help="choose the steps so that training takes this long")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--shards", type=int, default=400)
    parser.add_argument("--first-shard", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--rate", type=float, default=1.0, help="times the peak learning rates")
    parser.add_argument("--decay", type=float, default=0.45, help="the learning rate falls to nothing over this last part")
    parser.add_argument("--continue", dest="go_on", action="store_true", help="start from WORK/model.npz")
    parser.add_argument("--out")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    out = Path(options.out or options.work)
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high")
    pad = data.load_tokenizer(options.work).token_to_id("<|endoftext|>")
    model, stages, earlier = Llama().to(device), [], []
    if options.go_on:
        with np.load(out / "model.npz") as state:
            model.load_state_dict({name: torch.from_numpy(state[name].astype(np.float32)) for name in state.files})
        stages, earlier = json.loads((out / "training.json").read_text())["stages"], np.loadtxt(out / "loss.csv").tolist()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    matrices = [parameter for name, parameter in model.named_parameters() if parameter.ndim == 2 and "embed" not in name]
    others = [parameter for name, parameter in model.named_parameters() if parameter.ndim == 1 or "embed" in name]
    muon = Muon(matrices)
    adam = torch.optim.AdamW(others, lr=ADAM_RATE, betas=(0.9, 0.98), weight_decay=0.0, fused=device == "cuda")
    make_mask = document_masks(device, pad)

    def loss_of(ids, targets, mask):
        with torch.autocast(device, torch.bfloat16):
            logits = model(ids, mask)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=-100)

    compiled = torch.compile(loss_of) if device == "cuda" else loss_of

    def one_step(packed, done, quantise, warm):
        rate = options.rate * min(1.0, (1 - done) / options.decay, warm)
        ids = (packed & (data.LEARN - 1)).long()
        targets = torch.where(packed[:, 1:] >= data.LEARN, ids[:, 1:], -100)
        targets = F.pad(targets, (0, 1), value=-100)
        model.set_quantise(quantise)
        loss = compiled(ids, targets, make_mask(ids))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        muon.step(MATRIX_RATE * rate)
        for group in adam.param_groups:
            group["lr"] = ADAM_RATE * rate
        adam.step()
        for parameter in model.parameters():
            parameter.grad = None
        return loss.detach()

    batches = windows(options.work, options.first_shard, options.shards, options.repeat, options.batch, device)
    losses, started, steps, timed_from = [], time.time(), options.steps, None
    pending = []
    step = 0
    while step < steps:
        done = step / steps
        quantise = done > 1 - QUANTISE_SHARE and step % 2 == 0
        if options.seconds and step == 5:  # compile the second graph before the clock is read
            quantise = True
        pending.append(one_step(next(batches), done, quantise, (step + 1) / WARM_UP))
        step += 1
        if options.seconds and step in (40, 140):
            if device == "cuda":
                torch.cuda.synchronize()
            if step == 40:
                timed_from = time.time()
            else:
                each = (time.time() - timed_from) / 100
                steps = int(step + (options.seconds - (time.time() - started)) / each)
                print(f"{each * 1000:.1f} ms a step, {options.batch * data.CONTEXT / each / 1e6:.2f} M tokens/s: {steps} steps", flush=True)
        if len(pending) == 20 or step >= steps:
            losses += torch.stack(pending).tolist()
            pending = []
            if step % 200 == 0 or step == steps:
                print(f"step {step} loss {np.mean(losses[-100:]):.4f} {time.time() - started:.0f} s", flush=True)
    seconds = time.time() - started
    # The published weights are float16 numbers: half the size to keep, and every later step starts from them.
    state = {name: parameter.detach().half().cpu().numpy() for name, parameter in model.named_parameters()}
    np.savez(out / "model.npz", **state)
    stages.append({
        "steps": steps, "batch_windows": options.batch, "window_tokens": data.CONTEXT,
        "tokens_seen": steps * options.batch * data.CONTEXT, "distinct_shards": min(options.shards, -(-steps * options.batch // (data.SHARD_WINDOWS * options.repeat) // 4 * 4)),
        "first_shard": options.first_shard, "shard_windows": data.SHARD_WINDOWS, "repeat": options.repeat, "seconds": round(seconds, 1),
        "learning_rates": {"matrices": MATRIX_RATE * options.rate, "others": ADAM_RATE * options.rate}, "decay_share": options.decay, "quantise_share": QUANTISE_SHARE, "final_loss": round(float(np.mean(losses[-100:])), 5),
    })  # fmt: skip
    record = {
        "parameters": parameters, "config": CONFIG, "seed_data": data.SEED, "seed_train": SEED, "stages": stages,
        "tokens_seen": sum(stage["tokens_seen"] for stage in stages), "seconds": round(sum(stage["seconds"] for stage in stages), 1),
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.processor(), "python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__,
    }  # fmt: skip
    (out / "training.json").write_text(json.dumps(record, indent=1) + "\n")
    np.savetxt(out / "loss.csv", np.array(earlier + losses), fmt="%.5f")
    draw(earlier + losses, options.batch * data.CONTEXT, out / "loss.png")
    print(json.dumps(record))


def draw(losses, tokens_per_step, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    width = max(1, len(losses) // 300)
    smooth = [np.mean(losses[at : at + width]) for at in range(0, len(losses), width)]
    plt.figure(figsize=(7, 3.5), dpi=90)
    plt.plot(np.arange(len(smooth)) * width * tokens_per_step / 1e6, smooth)
    plt.yscale("log")
    plt.xlabel("million tokens")
    plt.ylabel("loss on the assistant's tokens")
    plt.grid(alpha=0.3, which="both")
    plt.tight_layout()
    plt.savefig(path)


if __name__ == "__main__":
    main()
