"""Writes what training makes of the adapters of tests/golden/adapters, into CASE there: gradients, and numbers after a few steps.

    python scripts/golden/lora_gradients.py [CASE ...]   (needs torch, transformers, peft, safetensors, gguf, numpy; on the CPU)

The reference is transformers with PEFT in float32 on the CPU, with the models, adapters and token ids of scripts/golden/adapters.py. The
first tokens of the text don't count, as a chat's prompt. adapter0/gradients.safetensors has the gradients of the loss at the adapter's
numbers, in the form of the adapter itself, and adapter0/after.safetensors its numbers after a few steps of torch.optim.AdamW with clipped
gradients. training.json has the settings, and the loss and the norm of all gradients in each step.
"""

import json
import sys

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers.utils import logging

from adapters import CASES, OUT, with_adapters

# Whether the numbers after the steps are kept too.
NAMES = {"llama": True, "qwen3": False, "gemma3": False, "llama_q4_0": True}
PROMPT = 9
STEPS = 5
RATE = 1e-2
DECAY = 0.01
MAX_NORM = 1.0


def save(path, tensors: dict) -> None:
    save_file({key: np.ascontiguousarray(of.detach().numpy().astype(np.float32)) for key, of in tensors.items()}, path)


def main():
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    for name in sys.argv[1:] or NAMES:
        folder = OUT / name
        case = CASES[name]
        ids = json.loads((folder / "golden.json").read_text())["ids"]
        model = with_adapters(case, [folder / "adapter0"], [1.0])
        parameters = {}
        for key, parameter in model.named_parameters():
            parameter.requires_grad_("lora_" in key)
            if "lora_" in key:
                parameters[key.replace(".a0.", ".")] = parameter
        labels = torch.tensor([[-100] * PROMPT + ids[PROMPT:]])
        optimizer = torch.optim.AdamW(list(parameters.values()), lr=RATE, weight_decay=DECAY)
        losses, norms = [], []
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = model(torch.tensor([ids]), labels=labels).loss
            loss.backward()
            if step == 0:
                save(folder / "adapter0" / "gradients.safetensors", {key: of.grad for key, of in parameters.items()})
            losses.append(float(loss.detach()))
            norms.append(float(torch.nn.utils.clip_grad_norm_(list(parameters.values()), MAX_NORM)))
            optimizer.step()
        if NAMES[name]:
            save(folder / "adapter0" / "after.safetensors", parameters)
        said = {"prompt": PROMPT, "rate": RATE, "decay": DECAY, "max_norm": MAX_NORM, "losses": losses, "norms": norms}
        (folder / "training.json").write_text(json.dumps(said) + "\n")
        print(f"{name}: losses {', '.join(f'{loss:.4f}' for loss in losses)}", flush=True)


if __name__ == "__main__":
    main()
