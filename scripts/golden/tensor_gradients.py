"""Writes tests/golden/tensor/gradients.json: what PyTorch's autograd gives for cases of the other files there (tensor_ops.py).

    python scripts/golden/tensor_gradients.py           (needs torch alone; on the CPU, seconds)
    python scripts/golden/tensor_gradients.py --check   (half a minute; or of one file: --check products)

Each line names a case by its file and its place there and has the gradient of each float input, null for the others. The gradient of the outputs
is the same everywhere: of element i it is ((37 i) mod 23 − 11) / 8, which all dtypes hold.

`--check` writes nothing: it compares every gradient of float32 with central differences of the same function in float64. Points where these differ,
such as equal numbers that a maximum is chosen from, are counted and printed; a case that differs nearly everywhere stops the script.
"""

import base64
import json
import math
import sys
from collections import Counter

import torch

import tensor_ops
from tensor_ops import DTYPES, HALVES, OPS, OUT, TOLERANCE, as_list, encoded

# Cases of each op: of f32 without views, of f32 with views, and of 16-bit floats.
MOST = {"plain": 6, "views": 4, "halves": 2}
LARGEST = 700  # elements of all inputs
STEP = 1e-5  # of central differences


def decoded(field: dict) -> torch.Tensor:
    raw = torch.frombuffer(bytearray(base64.b64decode(field["data"])) or bytearray(1), dtype=torch.uint8)
    dtype = DTYPES[field["dtype"]]
    whole = raw.view(dtype) if math.prod(field["shape"]) else torch.empty(0, dtype=dtype)
    if "strides" not in field:
        return whole[:math.prod(field["shape"])].reshape(field["shape"])
    return whole.as_strided(field["shape"], field["strides"], field["offset"])


def upstream(like: torch.Tensor) -> torch.Tensor:
    i = torch.arange(like.numel())
    return (((37 * i) % 23 - 11) / 8).to(like.dtype).reshape(like.shape)


def loss(function, args: dict, tensors: list) -> torch.Tensor:
    """The sum over float outputs of each element times its gradient."""
    outputs = [x for x in as_list(function(args, *tensors)) if x.is_floating_point()]
    return sum((x.double() * upstream(x).double()).sum() for x in outputs)


def gradients(function, args: dict, inputs: list) -> list:
    leaves = [x.detach().clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    wanted = [x for x in leaves if x.is_floating_point()]
    outputs = [x for x in as_list(function(args, *leaves)) if x.is_floating_point()]
    found = iter(torch.autograd.grad(outputs, wanted, [upstream(x) for x in outputs], allow_unused=True))
    return [next(found) if x.is_floating_point() else None for x in leaves]


def central_differences(function, args: dict, inputs: list) -> list:
    inputs = [x.double().clone() if x.is_floating_point() else x for x in inputs]
    found = []
    for at, x in enumerate(inputs):
        if not x.is_floating_point():
            found.append(None)
            continue
        slopes = torch.zeros(x.numel(), dtype=torch.float64)
        for element in range(x.numel()):
            sums = []
            for step in (STEP, -STEP):
                moved = x.clone().reshape(-1)
                moved[element] += step
                sums.append(loss(function, args, [*inputs[:at], moved.reshape(x.shape), *inputs[at + 1:]]).item())
            slopes[element] = (sums[0] - sums[1]) / (2 * STEP)
        found.append(slopes.reshape(x.shape))
    return found


edges: Counter[str] = Counter()


def check(op: str, args: dict, inputs: list):
    function = OPS[op][0]
    # Exactly the numbers of the case, in f64: what autograd says there, and what differences say.
    doubles = [x.double() if x.is_floating_point() else x for x in inputs]
    exact, slopes = gradients(function, args, doubles), central_differences(function, args, doubles)
    compared = differing = 0
    for one, other in zip(exact, slopes):
        if one is None or other is None or one.numel() == 0:
            continue
        largest = max(one.abs().max().item(), 1.0)
        differing += int(((one - other).abs() > 1e-5 * largest).sum())
        compared += one.numel()
    edges[op] += differing
    # Of equal numbers in order the differences see two, and the gradient one.
    if compared and differing > 0.6 * compared and op not in ("sort", "topk"):
        sys.exit(f"{op} {args}: {differing} of {compared} slopes differ from central differences")


def kind_of(case: dict) -> str | None:
    dtypes = [x["dtype"] for x in case["inputs"]]
    if any(dtype in ("f16", "bf16") for dtype in dtypes):
        return "halves"
    if "f32" not in dtypes:
        return None
    return "views" if any("strides" in x for x in case["inputs"]) else "plain"


def main():
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False
    checks, only = sys.argv[1:2] == ["--check"], sys.argv[2:]
    lines, counts = [], Counter()
    for group in tensor_ops.GROUPS:
        if group == "creation" or (only and group not in only):
            continue
        for at, case in enumerate(json.loads((OUT / f"{group}.json").read_text())):
            op, args, kind = case["op"], case["args"], kind_of(case)
            inputs = [decoded(x) for x in case["inputs"]]
            outputs = [decoded(x) for x in case["outputs"]]
            floats = [x for x in outputs if x.is_floating_point()]
            if kind is None or not floats or counts[op, kind] >= MOST[kind] or sum(x.numel() for x in inputs) > LARGEST:
                continue
            if not all(x.isfinite().all() for x in [*floats, *[x for x in inputs if x.is_floating_point()]]):
                continue
            # A second empty case, or a scalar beside another one, tells little.
            empty = any(x.numel() == 0 for x in inputs)
            if empty and counts[op, "empty"] >= 1:
                continue
            found = gradients(OPS[op][0], args, inputs)
            if any(x is not None and not x.isfinite().all() for x in found):
                continue
            # A cast rounds away the steps.
            if checks and kind != "halves" and op != "cast":
                check(op, args, inputs)
            counts[op, kind] += 1
            counts[op, "empty"] += empty
            terms = max((x.abs().max().item() for x in found if x is not None and x.numel()), default=0.0)
            base = max(TOLERANCE[x.dtype] for x in [*floats, *[x for x in inputs if x.is_floating_point()]])
            rule = 20 if base == TOLERANCE[torch.float32] else 3
            lines.append({
                "group": group, "at": at, "tolerance": float(f"{base * rule:.2g}"), "scale": float(f"{terms:.3g}"),
                "gradients": [None if x is None else encoded(x) for x in found],
            })
    print(f"torch {torch.__version__}: {len(lines)} cases of {len({op for op, _ in counts})} operations")
    if checks:
        print("slopes that central differences do not find:", dict(+edges))
        return
    text = "[\n" + ",\n".join(json.dumps(one, separators=(",", ":")) for one in lines) + "\n]\n"
    (OUT / "gradients.json").write_text(text)
    print(f"{len(text)} bytes")


if __name__ == "__main__":
    main()
