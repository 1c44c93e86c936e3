"""Writes golden data for array operations into tests/golden/tensor/ (or FOLDER): inputs, arguments and what PyTorch answers.

    python scripts/golden/tensor_ops.py [FOLDER]   (needs torch alone; on the CPU, a few seconds)

One JSON file for each group of ops, a list of cases with one on a line; tests/golden/README.md has the format. Operations that mix
many numbers run in float32 also where the tensors are f16 or bf16, and are rounded once. What PyTorch refuses is left out and printed.
The inputs have a fixed seed for each group. They hold no subnormal numbers, no equal numbers where the order would decide and no
signed integers that overflow: hardware differs there.
"""

import base64
import itertools
import json
import math
import random
import sys
from collections import Counter
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "tensor"
SEED = 5151

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32, "u32": torch.uint32, "bool": torch.bool}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
FLOATS = ("f32", "f16", "bf16")
HALVES = (torch.float16, torch.bfloat16)
LARGEST = {"f32": torch.finfo(torch.float32).max, "f16": 65504.0, "bf16": torch.finfo(torch.bfloat16).max}
# What an op of this dtype may be off, relative to its largest output.
TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
# Pairs of dtypes that stand for all.
MIXED = [("f32", "i32"), ("f16", "f32"), ("f32", "bf16"), ("i32", "bool"), ("f16", "bf16"), ("bool", "f16"), ("bf16", "i32"), ("u32", "f32"),
         ("u32", "bool"), ("i32", "u32")]
LARGE = [37, 61]
MEDIUM = [17, 31]

NAN, INF = math.nan, math.inf
EXACT, LINEAR = "exact", "linear"  # rules of tolerance; a number is a factor
SMALLEST = 1 / 32  # of the random numbers: products and quotients of them are normal in f16
F16_STEPS = 1024  # the random f16 are multiples of 1/1024: so are their sums, which are normal then

numbers = random.Random()
cases: list[dict] = []
refused: Counter[str] = Counter()


# Inputs

def tensor(values: list, dtype: str = "f32") -> torch.Tensor:
    return torch.tensor(values, dtype=DTYPES[dtype])


def uniform(shape: list, dtype: str = "f32", low: float | None = None, high: float | None = None) -> torch.Tensor:
    """Random numbers: by default within 3 of zero, integers within 20."""
    def one():
        if dtype == "bool":
            return numbers.random() < 0.5
        if dtype not in FLOATS:
            least, most = (-20, 20) if low is None else (math.ceil(low), math.floor(high))
            return numbers.randint(max(least, 0) if dtype == "u32" else least, most)
        while True:
            value = numbers.uniform(*((-3.0, 3.0) if low is None else (low, high)))
            if dtype == "f16":
                value = round(value * F16_STEPS) / F16_STEPS
            if abs(value) >= SMALLEST:
                return value
    return tensor([one() for _ in range(math.prod(shape))], dtype).reshape(shape)


def coarse(shape: list, dtype: str = "f32") -> torch.Tensor:
    """Whole numbers near zero, many of them equal."""
    least = 0 if dtype in ("u32", "bool") else -3
    values = [numbers.randint(least, 1 if dtype == "bool" else 3) for _ in range(math.prod(shape))]
    return tensor(values, dtype).reshape(shape)


def distinct(shape: list, dtype: str = "f32") -> torch.Tensor:
    """Numbers of which no two are equal, in random order; up to 512 of them fit bf16."""
    count = math.prod(shape)
    values = list(range(count)) if dtype == "u32" else [i - count // 2 for i in range(count)]
    numbers.shuffle(values)
    return tensor(values if dtype in ("i32", "u32") else [value / 4 for value in values], dtype).reshape(shape)


def indices(shape: list, end: int) -> torch.Tensor:
    return tensor([numbers.randrange(end) for _ in range(math.prod(shape))], "i32").reshape(shape)


def special(dtype: str, *values: float) -> torch.Tensor:
    return tensor([LARGEST[dtype] * math.copysign(1, value) if abs(value) == LARGEST["f32"] else value for value in values], dtype)


def transposed(make, shape: list) -> torch.Tensor:
    return make(shape[::-1]).permute(*reversed(range(len(shape))))


def stepped(make, shape: list) -> torch.Tensor:
    return make([*shape[:-1], 2 * shape[-1] + 1])[..., 1::2]


def narrowed(make, shape: list) -> torch.Tensor:
    return make([*shape[:-1], shape[-1] + 2]).narrow(-1, 1, shape[-1])


def expanded(make, shape: list) -> torch.Tensor:
    return make([1, *shape[1:]]).expand(shape)


VIEWS = [transposed, stepped, narrowed, expanded]
next_view = itertools.cycle(VIEWS)


def of(dtype: str, make=uniform, **more):
    """As the views take it: a function from shapes to tensors."""
    return lambda shape: make(shape, dtype, **more)


# What PyTorch computes

def number(value):
    """JSON has no infinities and no NaN: they are strings there."""
    return float(value) if isinstance(value, str) else value


def in_f32(function):
    """The op in float32, rounded once to the tensors' dtype."""
    def run(args, *tensors):
        halves = [t.dtype for t in tensors if t.dtype in HALVES]
        if not halves:
            return function(args, *tensors)
        outputs = function(args, *[t.float() if t.dtype in HALVES else t for t in tensors])
        if isinstance(outputs, torch.Tensor):
            return outputs.to(halves[0])
        return [t.to(halves[0]) if t.is_floating_point() else t for t in outputs]
    return run


def unary(function):
    return lambda args, x: function(x, **args)


def binary(function):
    """A scalar stands for the second tensor or, in reverse, for the first."""
    def run(args, x, y=None):
        if "scalar" not in args:
            return function(x, y)
        if not args.get("reverse"):
            return function(x, args["scalar"])
        return function(torch.tensor(args["scalar"], dtype=torch.result_type(x, args["scalar"])), x)
    return run


def axes(args, x) -> tuple:
    return tuple(range(x.dim())) if args["dims"] is None else tuple(args["dims"])


def reduction(function):
    return lambda args, x: function(x, dim=axes(args, x), keepdim=args["keepdim"])


def variance(args, x):
    return torch.var(x, dim=axes(args, x), correction=args["correction"], keepdim=args["keepdim"])


def prod(args, x):
    if x.dim() == 0:
        return torch.prod(x)
    for dim in sorted((dim % x.dim() for dim in axes(args, x)), reverse=True):
        x = torch.prod(x, dim=dim, keepdim=args["keepdim"])
    return x


def arg_reduction(function):
    return lambda args, x: function(x, dim=None if args["dims"] is None else args["dims"][0], keepdim=args["keepdim"])


def norm(function):
    return in_f32(lambda args, x, *weights: function(x, args["normalized_shape"], *weights, eps=args["eps"]))


def convolution(function):
    return in_f32(lambda args, x, weight, bias=None: function(x, weight, bias, **args))


def attention(args, q, k, v):
    """[batch, seq, heads, head_dim]; query i sees the keys up to i + kv_len - q_len."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    q_len, kv_len = q.shape[2], k.shape[2]
    mask = torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len) if args["is_causal"] else None
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=args["scale"]).transpose(1, 2)


def created(function):
    return lambda args: function(**{key: DTYPES[value] if key == "dtype" else number(value) for key, value in args.items()})


# Each with the rule of its tolerance. WGSL allows exp and pow an error that grows with the exponent.
OPS = {
    "add": (binary(torch.add), EXACT), "sub": (binary(torch.sub), EXACT), "mul": (binary(torch.mul), EXACT), "div": (binary(torch.div), 1),
    "pow": (binary(torch.pow), 16), "maximum": (binary(torch.maximum), EXACT), "minimum": (binary(torch.minimum), EXACT),
    "neg": (unary(torch.neg), EXACT), "abs": (unary(torch.abs), EXACT), "relu": (unary(F.relu), EXACT),
    "clamp": (unary(torch.clamp), EXACT),
    "exp": (unary(torch.exp), 4), "log": (unary(torch.log), 2), "sqrt": (unary(torch.sqrt), 1), "rsqrt": (unary(torch.rsqrt), 2),
    "sin": (unary(torch.sin), 4), "cos": (unary(torch.cos), 4), "tanh": (unary(torch.tanh), 4), "sigmoid": (unary(torch.sigmoid), 4),
    "gelu": (unary(F.gelu), 4), "silu": (unary(F.silu), 4), "softplus": (unary(F.softplus), 4),
    "eq": (binary(torch.eq), EXACT), "ne": (binary(torch.ne), EXACT), "gt": (binary(torch.gt), EXACT), "ge": (binary(torch.ge), EXACT),
    "lt": (binary(torch.lt), EXACT), "le": (binary(torch.le), EXACT), "logical_and": (binary(torch.logical_and), EXACT),
    "logical_or": (binary(torch.logical_or), EXACT), "logical_xor": (binary(torch.logical_xor), EXACT), "logical_not": (unary(torch.logical_not), EXACT),
    "where": (lambda args, condition, x, y: torch.where(condition, x, y), EXACT),
    "sum": (in_f32(reduction(torch.sum)), LINEAR), "mean": (in_f32(reduction(torch.mean)), LINEAR),
    "var": (in_f32(variance), LINEAR), "prod": (in_f32(prod), 8),
    "amax": (reduction(torch.amax), EXACT), "amin": (reduction(torch.amin), EXACT), "any": (reduction(torch.any), EXACT),
    "all": (reduction(torch.all), EXACT), "argmax": (arg_reduction(torch.argmax), EXACT), "argmin": (arg_reduction(torch.argmin), EXACT),
    "cumsum": (in_f32(unary(torch.cumsum)), LINEAR),
    "softmax": (in_f32(unary(torch.softmax)), 4), "log_softmax": (in_f32(unary(torch.log_softmax)), 4),
    "layer_norm": (norm(F.layer_norm), 4), "rms_norm": (norm(F.rms_norm), 4),
    "matmul": (in_f32(binary(torch.matmul)), LINEAR), "dot": (in_f32(binary(torch.dot)), LINEAR),
    "conv1d": (convolution(F.conv1d), LINEAR), "conv2d": (convolution(F.conv2d), LINEAR),
    "conv_transpose1d": (convolution(F.conv_transpose1d), LINEAR), "conv_transpose2d": (convolution(F.conv_transpose2d), LINEAR),
    "max_pool2d": (in_f32(lambda args, x: F.max_pool2d(x, return_indices=True, **args)), EXACT),
    "avg_pool2d": (in_f32(unary(F.avg_pool2d)), LINEAR),
    "reshape": (lambda args, x: x.reshape(args["shape"]), EXACT),
    "transpose": (lambda args, x: x.transpose(args["dim0"], args["dim1"]), EXACT),
    "permute": (lambda args, x: x.permute(args["dims"]), EXACT), "expand": (lambda args, x: x.expand(args["shape"]), EXACT),
    "squeeze": (lambda args, x: x.squeeze() if args["dim"] is None else x.squeeze(args["dim"]), EXACT),
    "unsqueeze": (lambda args, x: x.unsqueeze(args["dim"]), EXACT), "cat": (lambda args, *xs: torch.cat(xs, args["dim"]), EXACT),
    "stack": (lambda args, *xs: torch.stack(xs, args["dim"]), EXACT),
    "chunk": (lambda args, x: x.chunk(args["chunks"], args["dim"]), EXACT),
    "split": (lambda args, x: x.split(args["split_size"], args["dim"]), EXACT),
    "slice": (lambda args, x: x[tuple(slice(*one) for one in args["slices"])], EXACT),
    "repeat": (lambda args, x: x.repeat(args["repeats"]), EXACT),
    "pad": (lambda args, x: F.pad(x, args["pad"], value=number(args["value"])), EXACT),
    "flip": (lambda args, x: x.flip(args["dims"]), EXACT), "triu": (unary(torch.triu), EXACT), "tril": (unary(torch.tril), EXACT),
    "cast": (lambda args, x: x.to(DTYPES[args["dtype"]]), EXACT),
    "gather": (lambda args, x, index: x.gather(args["dim"], index.long()), EXACT),
    "scatter_add": (in_f32(lambda args, x, index, source: x.scatter_add(args["dim"], index.long(), source)), LINEAR),
    "index_select": (lambda args, x, index: x.index_select(args["dim"], index), EXACT),
    "embedding": (lambda args, index, weight: F.embedding(index, weight), EXACT),
    "sort": (lambda args, x: torch.sort(x, **args), EXACT), "topk": (lambda args, x: torch.topk(x, **args), EXACT),
    "scaled_dot_product_attention": (in_f32(attention), 8),
    "zeros": (created(lambda shape, dtype: torch.zeros(shape, dtype=dtype)), EXACT),
    "ones": (created(lambda shape, dtype: torch.ones(shape, dtype=dtype)), EXACT),
    "full": (created(lambda shape, fill_value, dtype: torch.full(shape, fill_value, dtype=dtype)), EXACT),
    "arange": (created(torch.arange), 1), "linspace": (created(torch.linspace), 1),
    "eye": (created(lambda n, m, dtype: torch.eye(n, m, dtype=dtype)), EXACT),
}


# Cases

def encoded(x: torch.Tensor) -> str:
    raw = x.reshape(-1).contiguous().view(torch.uint8).tolist() if x.numel() else []
    return base64.b64encode(bytes(raw)).decode()


def input_json(x: torch.Tensor) -> dict:
    whole = x.as_strided([x.untyped_storage().nbytes() // x.element_size()], [1], 0)
    fields = {"dtype": NAMES[x.dtype], "shape": list(x.shape), "data": encoded(whole)}
    if x.is_contiguous() and whole.numel() == x.numel():
        return fields
    return fields | {"strides": list(x.stride()), "offset": x.storage_offset()}


def output_json(x: torch.Tensor) -> dict:
    if x.dtype in (torch.int64, torch.uint64):
        values = x.reshape(-1).tolist()
        assert all(-2**31 <= value < 2**31 for value in values)
        x = x.to(torch.int32)
    return {"dtype": NAMES[x.dtype], "shape": list(x.shape), "data": encoded(x)}


def largest(tensors: list) -> float:
    finite = [t[t.isfinite()].abs().max().item() for t in tensors if t.is_floating_point() and t.isfinite().any()]
    return max(finite, default=0.0)


def tolerance(op: str, args: dict, inputs: tuple, outputs: list, rule: str | float) -> float:
    """A sum is as exact as its terms are large: they may cancel."""
    base = TOLERANCE.get(outputs[0].dtype, 0)
    if rule == EXACT or base == 0:
        return 0
    factor = rule
    if rule == LINEAR:
        terms = as_list(OPS[op][0](args, *[t.abs() if t.is_floating_point() else t for t in inputs]))
        factor = 1 + max(1.0, largest(terms) / (largest(outputs) or math.inf))
    return float(f"{base + (factor - 1) * TOLERANCE[torch.float32]:.2g}")


def as_list(outputs) -> list:
    return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)


def case(op: str, args: dict, *inputs: torch.Tensor, factor: float | None = None):
    function, rule = OPS[op]
    try:
        outputs = as_list(function(args, *inputs))
    except (RuntimeError, TypeError, IndexError, ValueError, OverflowError) as error:
        refused[f"{op} {' '.join(NAMES[x.dtype] for x in inputs)}: {str(error).splitlines()[0]}"] += 1
        return
    cases.append({
        "op": op, "args": args, "inputs": [input_json(x) for x in inputs], "outputs": [output_json(x) for x in outputs],
        "tolerance": tolerance(op, args, inputs, outputs, factor or rule),
    })


def tile(op: str, args: dict, shapes: list, make=uniform, dtypes=("f32",), **more):
    """A case for each shape and dtype, of one tensor."""
    for dtype, shape in itertools.product(dtypes, shapes):
        case(op, args, make(shape, dtype, **more))


# Elementwise

MAX = LARGEST["f32"]
# The range of the inputs, and special values. Backends need not agree on the sine of a huge number, or on the signs of max(-0, 0) and
# rsqrt(-0).
ALL = [NAN, INF, -INF, -0.0, 0.0, 1.0, -1.0]
UNARY = {
    "neg": (-3, 3, [*ALL, MAX, -MAX]), "abs": (-3, 3, [*ALL, MAX, -MAX]), "exp": (-4, 4, ALL), "log": (0.05, 8, ALL),
    "sqrt": (0.05, 9, ALL),
    "rsqrt": (0.05, 9, [NAN, INF, -INF, 0.0, 1.0, -1.0]), "sin": (-3, 3, ALL), "cos": (-3, 3, ALL), "tanh": (-4, 4, ALL),
    "sigmoid": (-6, 6, ALL),
    "relu": (-3, 3, [NAN, INF, -INF, 0.0, MAX, -MAX]), "gelu": (-4, 4, [NAN, INF, -0.0, 0.0, 30.0, -30.0]),
    "silu": (-6, 6, [NAN, INF, -0.0, 0.0, 30.0, -30.0]), "softplus": (-6, 6, [*ALL, 30.0, -30.0]),
    "clamp": (-3, 3, [NAN, INF, -INF, 0.0, MAX, -MAX]),
}
LARGEST_ALONE = ["exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "softplus"]
UNARY_ARGS = {
    "gelu": [{"approximate": "none"}, {"approximate": "tanh"}],
    "softplus": [{"beta": 1, "threshold": 20}, {"beta": 2.5, "threshold": 5}],
    "clamp": [{"min": -1.25, "max": 1.5}, {"min": -0.5}, {"max": 0.75}, {"min": 2, "max": -1}],
}


def unary_cases(op: str, args: dict):
    low, high, specials = UNARY[op]
    tile(op, args, [[3, 5], [13], [1, 4, 1], [], [0, 3], [2, 3, 1, 2, 2]], low=low, high=high)
    tile(op, args, [[11], []], dtypes=("f16", "bf16", "i32", "u32", "bool"), low=low, high=high)
    for dtype in ("f32", "f32", "f16", "bf16"):
        case(op, args, next(next_view)(of(dtype, low=low, high=high), [5, 3]))
    case(op, args, next(next_view)(of("i32", low=low, high=high), [3, 4]))
    for dtype in FLOATS:
        case(op, args, special(dtype, *specials))
        if op in LARGEST_ALONE:
            case(op, args, special(dtype, MAX))
            case(op, args, special(dtype, -MAX))


def elementwise_unary():
    for op in UNARY:
        for args in UNARY_ARGS.get(op, [{}]):
            unary_cases(op, args)
    for op in ("neg", "abs", "relu"):
        case(op, {}, tensor([2**31 - 1, -2**31 + 1, 0], "i32"))
    tile("exp", {}, [LARGE])
    tile("tanh", {}, [MEDIUM])
    tile("gelu", {"approximate": "tanh"}, [MEDIUM], dtypes=("f16",))
    case("exp", {}, tensor([88.5, -87.0, 89.0, -200.0]), factor=50)
    for args in ({"min": -3, "max": 5}, {"min": 4}, {"max": -2}, {"min": 0.5}):
        tile("clamp", args, [[4, 3]], dtypes=("i32", "u32"))


BROADCAST = [
    ([3, 5], [3, 5]), ([13], [13]), ([3, 1], [1, 5]), ([4], [2, 3, 4]), ([2, 3, 4], [3, 1]), ([], [7]), ([7], []), ([], []), ([0, 3], [3]),
    ([1], [0]),
    ([2, 1, 3, 1], [5, 1, 2]), ([1, 1], [1]),
]


def binary_views(op: str, first, second):
    case(op, {}, transposed(first, [3, 5]), second([3, 5]))
    case(op, {}, second([5]), stepped(first, [3, 5]))
    case(op, {}, expanded(first, [4, 3]), narrowed(second, [4, 3]))


def binary_cases(op: str, first=(None, None), second=(None, None), make=uniform, pairs=MIXED):
    x = {"low": first[0], "high": first[1]}
    y = {"low": second[0], "high": second[1]}
    for a, b in BROADCAST:
        case(op, {}, uniform(a, **x), uniform(b, **y))
    binary_views(op, of("f32", **x), of("f32", **y))
    ranges = (x, y) if make is uniform else ({}, {})
    for dtype in DTYPES:
        case(op, {}, make([13], dtype, **ranges[0]), make([13], dtype, **ranges[1]))
    for dtype in ("f16", "bf16", "i32"):
        case(op, {}, next(next_view)(of(dtype, make, **ranges[0]), [5, 3]), make([3], dtype, **ranges[1]))
    for a, b in pairs:
        case(op, {}, make([5], a, **ranges[0]), make([2, 5], b, **ranges[1]))
        case(op, {}, make([2, 1], b, **ranges[0]), make([5], a, **ranges[1]))


def special_pairs(op: str, values: list):
    for dtype in FLOATS:
        x = special(dtype, *values)
        case(op, {}, x.reshape(-1, 1), x.reshape(1, -1).clone())


def scalar_cases(op: str, scalars: list, low: float | None = None, high: float | None = None, reverse_range=(None, None)):
    """With whole numbers, which keep integers, and with others, which make floats of them."""
    for scalar, dtype in itertools.product(scalars, DTYPES):
        case(op, {"scalar": scalar}, uniform([2, 5], dtype, low, high))
        case(op, {"scalar": abs(scalar), "reverse": True}, uniform([7], dtype, *reverse_range))
    case(op, {"scalar": scalars[0]}, next(next_view)(of("f32", low=low, high=high), [3, 4]))
    for shape in ([], [0]):
        case(op, {"scalar": scalars[0]}, uniform(shape, "f32", low, high))
        case(op, {"scalar": abs(scalars[0]), "reverse": True}, uniform(shape, "f16", *reverse_range))


def elementwise_binary():
    every_pair = list(itertools.combinations(DTYPES, 2))
    for op in ("add", "sub", "mul"):
        binary_cases(op, pairs=every_pair if op == "add" else MIXED)
        special_pairs(op, [*ALL, MAX, -MAX])
        scalar_cases(op, [2.5, -3])
    binary_cases("div")
    special_pairs("div", ALL)
    scalar_cases("div", [2.5, -3])
    binary_cases("pow", (0.25, 4), (0, 4))
    special_pairs("pow", [*ALL, 2.0, -2.0, 0.5, 3.0])
    case("pow", {}, uniform([3, 4], low=0.5, high=2), uniform([3, 4], low=-3, high=3))
    case("pow", {}, tensor([[-2, 3, -1, 0, 7]], "i32"), tensor([[0], [1], [2], [5]], "i32"))
    case("pow", {}, tensor([-2.0, -1.5, -3.0]), tensor([[2.0], [3.0], [-1.0]]))
    scalar_cases("pow", [2.5, 3, 2, 0.5], 0.25, 4, (0, 4))
    case("pow", {"scalar": -1.5}, uniform([7], low=0.25, high=4))
    for op in ("maximum", "minimum"):
        binary_cases(op)
        special_pairs(op, [NAN, INF, -INF, 0.0, 1.0, MAX, -MAX])
    case("add", {}, uniform(LARGE), uniform([61]))
    case("mul", {}, uniform(MEDIUM, "bf16"), uniform([17, 1], "bf16"))


def elementwise():
    elementwise_unary()
    elementwise_binary()


# Comparison

def where_cases():
    shapes = [([3, 5], [3, 5], [3, 5]), ([3, 1], [5], []), ([], [4], [3, 1]), ([2, 1, 3], [3], [2, 2, 1]), ([0], [1], []), ([], [], []),
              ([13], [13], [13])]
    for condition, x, y in shapes:
        case("where", {}, uniform(condition, "bool"), uniform(x), uniform(y))
    for dtype in DTYPES:
        case("where", {}, uniform([7], "bool"), uniform([7], dtype), uniform([7], dtype))
    for a, b in MIXED:
        case("where", {}, uniform([3, 1], "bool"), uniform([3], a), uniform([3, 3], b))
    case("where", {}, transposed(of("bool"), [3, 4]), stepped(of("f32"), [3, 4]), expanded(of("f32"), [3, 4]))
    case("where", {}, expanded(of("bool"), [5, 3]), transposed(of("f16"), [5, 3]), narrowed(of("f16"), [5, 3]))
    x = special("f32", NAN, INF, -INF, -0.0, MAX)
    case("where", {}, tensor([[True, False, True, False, True], [False, True, False, True, False]], "bool"), x, x.flip(0))
    case("where", {}, uniform(MEDIUM, "bool"), uniform(MEDIUM), uniform([31]))


def comparison():
    compare = ("eq", "ne", "gt", "ge", "lt", "le")
    for op in (*compare, "logical_and", "logical_or"):
        binary_cases(op, make=coarse)
        special_pairs(op, [*ALL, MAX, -MAX])
    for op in compare:
        scalar_cases(op, [1.5, 2])
        case(op, {}, tensor([2**31 - 1, -2**31, 0, -1], "i32"), tensor([[2**31 - 1], [-2**31], [0], [1]], "i32"))
        case(op, {}, tensor([2**32 - 1, 2**31, 0, 1], "u32"), tensor([[2**32 - 1], [2**31], [0], [2**31 - 1]], "u32"))
    tile("logical_not", {}, [[3, 5], [13], [1, 4, 1], [], [0, 3]], coarse, DTYPES)
    for view in VIEWS:
        case("logical_not", {}, view(of("bool"), [3, 5]))
        case("logical_not", {}, view(of("f16", coarse), [3, 5]))
    for dtype in FLOATS:
        case("logical_not", {}, special(dtype, *ALL, MAX, -MAX))
    case("gt", {}, coarse(MEDIUM), coarse([17, 1]))
    where_cases()
    binary_cases("logical_xor", make=coarse)
    special_pairs("logical_xor", [*ALL, MAX, -MAX])


# Reductions

def dims(*chosen, keepdim: bool = False) -> dict:
    return {"dims": list(chosen) or None, "keepdim": keepdim}


def reduction_cases(op: str, make=uniform, several: bool = True):
    shapes = [([13], dims()), ([3, 5], dims()), ([3, 5], dims(keepdim=True)), ([3, 5], dims(0)), ([3, 5], dims(1, keepdim=True)),
              ([2, 3, 4], dims(-2)),
              ([1, 7, 1], dims(0)), ([1, 7, 1], dims(2, keepdim=True)), ([], dims()), ([], dims(0)), ([2, 3, 1, 2, 3], dims(-1)),
              ([7, 11], dims(0)),
              ([7, 11], dims(1)), ([0], dims()), ([0, 3], dims(0)), ([0, 3], dims(1)), ([2, 0, 3], dims(2, keepdim=True))]
    if several:
        shapes += [([2, 3, 4], dims(0, 2)), ([2, 3, 4], dims(-1, 0, keepdim=True)), ([2, 3, 4, 2], dims(1, 2)),
                   ([0, 3], dims(0, 1, keepdim=True))]
    for shape, args in shapes:
        case(op, args, make(shape))
    for dtype in ("f16", "bf16", "i32", "u32", "bool"):
        if make is not distinct or dtype != "bool":
            tile(op, dims(), [[13]], make, (dtype,))
            tile(op, dims(0), [[5, 7]], make, (dtype,))
            tile(op, dims(-1, keepdim=True), [[3, 7]], make, (dtype,))
    # The views that repeat numbers would give ties.
    for view in (transposed, stepped, narrowed) if make is distinct else VIEWS:
        case(op, dims(), view(of("f32", make), [4, 5]))
        case(op, dims(0), view(of("f32", make), [5, 3]))
    case(op, dims(1), transposed(of("f16", make), [5, 3]))


def reduction_specials(op: str, rows: list):
    for dtype in FLOATS:
        x = torch.stack([special(dtype, *row) for row in rows])
        case(op, dims(1), x)


def reductions():
    for op in ("sum", "mean"):
        reduction_cases(op)
        reduction_specials(op, [[NAN, 1.0, 2.0], [INF, 1.0, 2.0], [-INF, 1.0, 2.0], [INF, -INF, 0.0], [1.0, 2.0, 4.0], [-0.0, 0.0, 0.0]])
        tile(op, dims(), [MEDIUM])
        tile(op, dims(0), [MEDIUM], dtypes=("f16",))
    tile("sum", dims(), [[2003]])
    tile("sum", dims(0), [LARGE])
    tile("sum", dims(1), [MEDIUM], dtypes=("i32", "bool"))
    reduction_cases("prod", lambda shape, dtype="f32": uniform(shape, dtype, *((0.5, 1.75) if dtype in FLOATS else (1, 3))))
    case("prod", dims(1), tensor([[1, -2, 3], [4, 0, 6], [7, -8, -9]], "i32"))
    reduction_specials("prod", [[NAN, 1.0, 2.0], [INF, 1.0, 2.0], [INF, 0.0, 2.0], [-1.0, 2.0, 4.0]])
    for op in ("amax", "amin", "argmax", "argmin"):
        reduction_cases(op, distinct, several=op.startswith("am"))
        reduction_specials(op, [[1.0, NAN, 2.0], [1.0, INF, -INF], [-INF, -1.0, MAX], [-MAX, 1.0, MAX]])
        tile(op, dims(), [[701]], distinct)
    for op in ("amax", "amin"):
        tile(op, dims(1), [[3, 5]], uniform, ("bool",))
    for op in ("any", "all"):
        reduction_cases(op, lambda shape, dtype="bool": (coarse if dtype != "bool" else uniform)(shape, dtype))
        reduction_specials(op, [[NAN, 1.0, 2.0], [0.0, -0.0, 0.0], [0.0, NAN, 0.0], [INF, -INF, 1.0]])
        case(op, dims(1), tensor([[True, True, True], [False, False, False], [True, False, True]], "bool"))
    cumsum_cases()
    variance_cases()


def variance_cases():
    shapes = [([13], dims()), ([3, 5], dims()), ([3, 5], dims(0)), ([3, 5], dims(1, keepdim=True)), ([2, 3, 4], dims(-2)), ([7, 11], dims(0)),
              ([2, 3, 4], dims(0, 2)), ([2, 3, 4], dims(-1, 0, keepdim=True)), ([1, 7, 1], dims(0)), ([], dims()), ([0, 3], dims(1)),
              ([0, 3], dims(0)), (LARGE, dims(1)), ([2003], dims())]
    for (shape, args), correction in itertools.product(shapes, (1, 0)):
        case("var", {**args, "correction": correction}, uniform(shape))
    case("var", {**dims(1), "correction": 2.5}, uniform([3, 7]))
    case("var", {**dims(1), "correction": 7}, uniform([3, 5]))
    for dtype in ("f16", "bf16"):
        tile("var", {**dims(1), "correction": 1}, [[5, 7]], dtypes=(dtype,))
    for view in VIEWS:
        case("var", {**dims(0), "correction": 1}, view(of("f32"), [5, 3]))
    # Far from zero, where the difference of two sums of squares would lose all digits.
    case("var", {**dims(1), "correction": 1}, uniform([3, 61], "f32", 1000, 1003))
    for dtype in FLOATS:
        rows = [[NAN, 1.0, 2.0], [INF, 1.0, 2.0], [-INF, INF, 0.0], [2.0, 2.0, 2.0]]
        case("var", {**dims(1), "correction": 1}, torch.stack([special(dtype, *row) for row in rows]))


def cumsum_cases():
    for shape, dim in [([13], 0), ([3, 5], 0), ([3, 5], 1), ([2, 3, 4], -2), ([1, 7, 1], 1), ([1, 7, 1], 0), ([], 0), ([0], 0),
                       ([0, 3], 1), ([257], 0),
                       ([2, 521], -1)]:
        case("cumsum", {"dim": dim}, uniform(shape))
    tile("cumsum", {"dim": -1}, [[3, 7]], dtypes=("f16", "bf16", "i32", "u32", "bool"))
    for view in VIEWS:
        case("cumsum", {"dim": 0}, view(of("f32"), [4, 3]))
    case("cumsum", {"dim": 1}, torch.stack([special("f32", *row) for row in ([1.0, NAN, 2.0], [1.0, INF, 2.0], [INF, -INF, 0.0], [-INF, 1.0, 0.0])]))


# Normalisation

def softmax_cases(op: str):
    for shape, dim in [([13], 0), ([3, 5], 0), ([3, 5], -1), ([2, 3, 4], 1), ([1, 7, 1], 2), ([1, 7, 1], 1), ([], 0), ([0, 3], 1),
                       ([3, 0], 1), (MEDIUM, 1)]:
        case(op, {"dim": dim}, uniform(shape, "f32", -8, 8))
    tile(op, {"dim": -1}, [[3, 7]], dtypes=("f16", "bf16", "i32"))
    for view in VIEWS:
        case(op, {"dim": 1}, view(of("f32"), [4, 3]))
    case(op, {"dim": 0}, transposed(of("f16"), [5, 3]))
    rows = [[NAN, 1.0, 2.0], [INF, 1.0, 2.0], [-INF, 1.0, 2.0], [-INF, -INF, -INF], [200.0, 201.0, 199.0], [-500.0, -501.0, -500.0]]
    for dtype in FLOATS:
        case(op, {"dim": 1}, torch.stack([special(dtype, *row) for row in rows]))
    case("softmax", {"dim": 1}, torch.stack([special("f32", *row) for row in ([MAX, 1.0, -1.0], [-MAX, 0.0, 0.0], [MAX, -1.0, MAX])]))


def norm_cases(op: str, most_weights: int):
    shapes = [([3, 5], 1), ([13], 1), ([2, 3, 4], 1), ([2, 3, 4], 2), ([4, 1], 1), ([1, 1, 7], 1), ([0, 3], 1), ([3, 131], 1),
              ([2, 2, 3, 5], 3)]
    for (shape, trailing), weights in itertools.product(shapes, range(most_weights + 1)):
        case(op, {"normalized_shape": shape[-trailing:], "eps": 1e-5},
             uniform(shape, "f32", -2, 4), *[uniform(shape[-trailing:]) for _ in range(weights)])
    for dtype, weights in itertools.product(("f16", "bf16", "i32"), (0, most_weights)):
        case(op, {"normalized_shape": [7], "eps": 1e-3}, uniform([3, 7], dtype), *[uniform([7], dtype) for _ in range(weights)])
    for view in VIEWS:
        case(op, {"normalized_shape": [5], "eps": 1e-6}, view(of("f32"), [3, 5]), *[stepped(of("f32"), [5]) for _ in range(most_weights)])
    case(op, {"normalized_shape": [3], "eps": 1e-5},
         tensor([[NAN, 1.0, 2.0], [INF, 1.0, 2.0], [0.0, 0.0, 0.0], [1000.0, 1001.0, 1002.0], [-1.0, 0.5, 2.0]]))


def normalisation():
    for op in ("softmax", "log_softmax"):
        softmax_cases(op)
    tile("softmax", {"dim": -1}, [[2, 1031]])
    norm_cases("layer_norm", 2)
    norm_cases("rms_norm", 1)


# Products

MATMUL = [
    ([7], [7]), ([3, 5], [5, 7]), ([5], [5, 3]), ([3, 5], [5]), ([2, 3, 5], [2, 5, 4]), ([2, 3, 5], [5, 4]), ([3, 5], [2, 5, 4]),
    ([2, 1, 3, 5], [3, 5, 2]),
    ([2, 1, 3, 4], [1, 3, 4, 2]), ([2, 3, 4, 5], [2, 3, 5, 1]), ([1, 1], [1, 1]), ([1], [1]), ([1, 5], [5, 1]), ([5, 1], [1, 5]),
    ([5], [2, 5, 3]),
    ([2, 3, 5], [5]), ([3, 0], [0, 4]), ([0, 3], [3, 2]), ([3, 2], [2, 0]), ([0], [0]), ([0, 3, 2], [2, 4]), ([17, 31], [31, 19]),
    ([3, 131], [131, 5]),
    ([1, 301], [301, 3]), ([33, 18], [18, 35]),
]


def products():
    for a, b in MATMUL:
        case("matmul", {}, uniform(a), uniform(b))
    for dtype in ("f16", "bf16", "i32", "u32"):
        for a, b in [([3, 5], [5, 7]), ([7], [7]), ([2, 3, 5], [5, 3]), ([13, 17], [17, 11])]:
            case("matmul", {}, uniform(a, dtype), uniform(b, dtype))
    for dtype, first, second in itertools.product(("f32", "f16"), VIEWS, (transposed, stepped)):
        case("matmul", {}, first(of(dtype), [3, 5]), second(of(dtype), [5, 4]))
    case("matmul", {}, uniform([2, 5, 3, 4]).transpose(1, 2), uniform([2, 3, 6, 5]).narrow(2, 1, 4))
    case("matmul", {}, uniform([4, 3, 2]).permute(2, 1, 0), uniform([2, 5, 4]).mT)
    case("matmul", {}, stepped(of("f32"), [5]), expanded(of("f32"), [5, 3]))
    case("matmul", {}, tensor([[NAN, 1.0], [INF, 1.0], [1.0, 2.0], [INF, -INF], [0.0, 1.0]]), tensor([[1.0, 0.0, 2.0], [2.0, 1.0, 0.5]]))
    for size in (1, 7, 0, 257):
        case("dot", {}, uniform([size]), uniform([size]))
    for dtype in ("f16", "bf16", "i32", "u32"):
        case("dot", {}, uniform([13], dtype), uniform([13], dtype))
    case("dot", {}, stepped(of("f32"), [11]), narrowed(of("f32"), [11]))
    case("dot", {}, uniform([5]), uniform([1]).expand(5))
    case("dot", {}, tensor([1.0, NAN]), tensor([0.0, 1.0]))


# Convolution

def conv_args(rank: int, stride=1, padding=0, dilation=1, groups=1, output_padding=None) -> dict:
    def each(value):
        return value if isinstance(value, list) else [value] * rank
    args = {"stride": each(stride), "padding": each(padding), "dilation": each(dilation), "groups": groups}
    return args if output_padding is None else args | {"output_padding": each(output_padding)}


CONV1D = [
    ([2, 3, 11], [4, 3, 3], {}), ([1, 1, 1], [1, 1, 1], {}), ([2, 4, 13], [6, 2, 3], {"stride": 2, "padding": 1, "groups": 2}),
    ([1, 5, 17], [5, 1, 4], {"padding": 3, "groups": 5}), ([2, 3, 11], [2, 3, 3], {"dilation": 3}), ([0, 3, 7], [2, 3, 3], {}),
    ([3, 7], [2, 3, 5], {}),
    ([1, 2, 23], [3, 2, 5], {"stride": 3, "padding": 4, "dilation": 2}), ([1, 16, 17], [5, 16, 3], {"stride": 2, "padding": 1}),
]
CONV2D = [
    ([2, 3, 5, 7], [4, 3, 3, 3], {}), ([1, 1, 1, 1], [2, 1, 1, 1], {}), ([1, 3, 7, 5], [4, 3, 3, 2], {"stride": [2, 1], "padding": [1, 0]}),
    ([1, 4, 6, 7], [6, 2, 3, 3], {"padding": 1, "groups": 2}), ([2, 3, 5, 5], [6, 1, 3, 3], {"padding": 1, "groups": 3}),
    ([1, 2, 9, 11], [3, 2, 3, 3], {"dilation": [2, 3]}),
    ([1, 2, 9, 9], [2, 2, 2, 3], {"stride": [2, 3], "padding": [2, 1], "dilation": [3, 2]}),
    ([0, 2, 5, 5], [3, 2, 3, 3], {}), ([2, 5, 6], [3, 2, 3, 3], {}), ([1, 3, 1, 9], [2, 3, 1, 5], {"padding": [0, 2]}),
    ([1, 8, 4, 4], [7, 8, 1, 1], {"stride": 2}), ([1, 6, 11, 13], [5, 6, 3, 3], {"stride": 2, "padding": 1}),
    ([1, 2, 11, 11], [3, 2, 5, 5], {"padding": 2}),
]
TRANSPOSED1D = [
    ([2, 3, 7], [3, 4, 3], {}), ([1, 1, 1], [1, 1, 1], {}), ([2, 3, 7], [3, 4, 3], {"stride": 2, "padding": 1, "output_padding": 1}),
    ([1, 4, 5], [4, 3, 4], {"stride": 3, "groups": 2, "output_padding": 2}), ([1, 2, 9], [2, 3, 3], {"dilation": 2, "padding": 2}),
    ([0, 3, 5], [3, 2, 3], {}), ([3, 5], [3, 2, 3], {"stride": 2}),
]
TRANSPOSED2D = [
    ([2, 3, 4, 5], [3, 2, 3, 3], {}), ([1, 1, 1, 1], [1, 2, 1, 1], {}),
    ([1, 3, 5, 3], [3, 4, 3, 2], {"stride": [2, 1], "padding": [1, 0], "output_padding": [1, 0]}),
    ([1, 4, 3, 5], [4, 2, 4, 4], {"stride": 2, "padding": 1, "groups": 2}),
    ([1, 2, 5, 5], [2, 3, 3, 2], {"dilation": [2, 3], "stride": [1, 2]}),
    ([1, 2, 4, 3], [2, 2, 3, 3], {"stride": [3, 2], "output_padding": [2, 1]}), ([0, 2, 3, 3], [2, 2, 3, 3], {}),
    ([2, 3, 5], [2, 3, 2, 2], {"stride": 2}),
]


def conv_cases(op: str, rank: int, shapes: list):
    is_transposed = "transpose" in op
    for (x, weight, more), with_bias in itertools.product(shapes, (False, True)):
        args = conv_args(rank, **({"output_padding": 0} | more if is_transposed else more))
        channels = weight[1] * args["groups"] if is_transposed else weight[0]
        case(op, args, uniform(x), uniform(weight), *([uniform([channels])] if with_bias else []))
    x, weight, more = shapes[2]
    args = conv_args(rank, **({"output_padding": 0} | more if is_transposed else more))
    channels = weight[1] * args["groups"] if is_transposed else weight[0]
    for dtype in ("f16", "bf16"):
        case(op, args, uniform(x, dtype), uniform(weight, dtype), uniform([channels], dtype))
    for view in VIEWS:
        case(op, args, view(of("f32"), x), view(of("f32"), weight), stepped(of("f32"), [channels]))
    spoilt = uniform(x)
    spoilt.view(-1)[0], spoilt.view(-1)[-1] = NAN, INF
    case(op, args, spoilt, uniform(weight, "f32", 0.5, 2))


def pool_args(kernel, stride=None, padding=0, **more) -> dict:
    def each(value):
        return value if isinstance(value, list) else [value] * 2
    return {"kernel_size": each(kernel), "stride": each(kernel if stride is None else stride), "padding": each(padding), **more}


def pooling():
    shapes = [([2, 3, 6, 8], pool_args(2)), ([1, 2, 7, 5], pool_args(3, 2, 1)), ([1, 1, 1, 1], pool_args(1)),
              ([2, 1, 9, 7], pool_args([3, 2], [1, 2], [1, 0])),
              ([1, 2, 8, 7], pool_args(3, 2, 0, ceil_mode=True)), ([0, 2, 4, 4], pool_args(2)), ([3, 5, 6], pool_args(2, 1)),
              ([1, 2, 13, 17], pool_args(3, 2, 1)), ([1, 1, 5, 5], pool_args(5))]
    for shape, args in shapes:
        case("max_pool2d", args, distinct(shape))
        case("avg_pool2d", args, uniform(shape))
    case("max_pool2d", pool_args(3, 1, 1, dilation=[2, 1]), distinct([1, 2, 7, 6]))
    case("avg_pool2d", pool_args(3, 2, 1, count_include_pad=False), uniform([1, 2, 7, 6]))
    case("avg_pool2d", pool_args(3, 2, 1, ceil_mode=True, count_include_pad=False), uniform([1, 2, 6, 8]))
    case("avg_pool2d", pool_args(3, 2, 1, ceil_mode=True), uniform([1, 2, 6, 8]))
    for op, make in (("max_pool2d", distinct), ("avg_pool2d", uniform)):
        tile(op, pool_args(3, 2, 1), [[1, 2, 7, 5]], make, ("f16", "bf16", "i32"))
    for view in (transposed, stepped, narrowed):
        case("max_pool2d", pool_args(2, 1), view(of("f32", distinct), [2, 3, 5, 4]))
        case("avg_pool2d", pool_args(2, 1), view(of("f32"), [2, 3, 5, 4]))
    spoilt = distinct([1, 1, 6, 6])
    spoilt[0, 0, 0, 0], spoilt[0, 0, 2, 3], spoilt[0, 0, 5, 5] = NAN, INF, -INF
    for op in ("max_pool2d", "avg_pool2d"):
        case(op, pool_args(2), spoilt)


def convolution_group():
    conv_cases("conv1d", 1, CONV1D)
    conv_cases("conv2d", 2, CONV2D)
    conv_cases("conv_transpose1d", 1, TRANSPOSED1D)
    conv_cases("conv_transpose2d", 2, TRANSPOSED2D)
    pooling()


# Shapes

SHAPES = [
    ("reshape", {"shape": [5, 3]}, [3, 5]), ("reshape", {"shape": [-1]}, [2, 3, 4]), ("reshape", {"shape": [4, -1, 1]}, [2, 3, 4]),
    ("reshape", {"shape": []}, [1, 1]), ("reshape", {"shape": [1, 1]}, []), ("reshape", {"shape": [3, 0, 2]}, [0, 5]),
    ("reshape", {"shape": [13]}, [13]),
    ("transpose", {"dim0": 0, "dim1": 1}, [3, 5]), ("transpose", {"dim0": 0, "dim1": -1}, [2, 3, 4]),
    ("transpose", {"dim0": 1, "dim1": 1}, [2, 3]),
    ("transpose", {"dim0": 0, "dim1": 1}, [0, 3]), ("transpose", {"dim0": 0, "dim1": 0}, []),
    ("transpose", {"dim0": -3, "dim1": 2}, [2, 1, 3, 1]),
    ("permute", {"dims": [2, 0, 1]}, [2, 3, 4]), ("permute", {"dims": [0, -1, 1]}, [2, 3, 4]),
    ("permute", {"dims": [4, 2, 0, 3, 1]}, [2, 3, 1, 2, 3]),
    ("permute", {"dims": []}, []), ("permute", {"dims": [1, 0]}, [0, 3]), ("permute", {"dims": [1, 0]}, [17, 31]),
    ("expand", {"shape": [4, 5]}, [1, 5]), ("expand", {"shape": [2, 3, 5]}, [3, 1]), ("expand", {"shape": [2, -1]}, [3]),
    ("expand", {"shape": [3]}, []),
    ("expand", {"shape": [0, 3]}, [1, 3]), ("expand", {"shape": [2, 0]}, [0]), ("expand", {"shape": [3, 5]}, [3, 5]),
    ("squeeze", {"dim": None}, [1, 3, 1, 5, 1]), ("squeeze", {"dim": 0}, [1, 3]), ("squeeze", {"dim": -1}, [3, 5]),
    ("squeeze", {"dim": [0, 2]}, [1, 3, 1, 1]),
    ("squeeze", {"dim": None}, [1, 1]), ("squeeze", {"dim": None}, []), ("squeeze", {"dim": 0}, [1, 0]),
    ("unsqueeze", {"dim": 0}, [3, 5]), ("unsqueeze", {"dim": -1}, [3, 5]), ("unsqueeze", {"dim": 1}, [13]), ("unsqueeze", {"dim": 0}, []),
    ("unsqueeze", {"dim": -2}, [0]),
    ("chunk", {"chunks": 3, "dim": 0}, [7, 2]), ("chunk", {"chunks": 2, "dim": -1}, [3, 5]), ("chunk", {"chunks": 4, "dim": 0}, [6]),
    ("chunk", {"chunks": 5, "dim": 1}, [2, 3]), ("chunk", {"chunks": 1, "dim": 0}, [1, 1]), ("chunk", {"chunks": 2, "dim": 0}, [0, 3]),
    ("split", {"split_size": 2, "dim": 0}, [7, 2]), ("split", {"split_size": [1, 4, 2], "dim": 1}, [2, 7]),
    ("split", {"split_size": 5, "dim": -1}, [2, 3]),
    ("split", {"split_size": [0, 3], "dim": 0}, [3]), ("split", {"split_size": [2, 2], "dim": -2}, [2, 4, 3]),
    ("split", {"split_size": 1, "dim": 0}, [0, 2]),
    ("slice", {"slices": [[1, 4, 1]]}, [7]), ("slice", {"slices": [[0, 7, 2]]}, [7]),
    ("slice", {"slices": [[1, None, 3], [None, -1, 2]]}, [8, 7]),
    ("slice", {"slices": [[None, None, 1], [-3, None, 1]]}, [3, 5]), ("slice", {"slices": [[3, 2, 1]]}, [5]),
    ("slice", {"slices": [[-100, 100, 4]]}, [13]),
    ("slice", {"slices": [[0, 1, 1]]}, [1, 4, 1]), ("slice", {"slices": [[0, 2, 1], [0, 3, 2]]}, [0, 5]),
    ("slice", {"slices": [[0, 2, 1], [2, 3, 1], [1, 9, 5]]}, [2, 3, 11]),
    ("repeat", {"repeats": [2]}, [3]), ("repeat", {"repeats": [2, 3]}, [3]), ("repeat", {"repeats": [1, 2, 1]}, [2, 3, 5]),
    ("repeat", {"repeats": [0, 2]}, [2, 3]),
    ("repeat", {"repeats": [3]}, []), ("repeat", {"repeats": [2, 2]}, [0, 3]), ("repeat", {"repeats": [3, 2, 1, 2]}, [1, 2, 3]),
    ("pad", {"pad": [1, 2], "value": 0}, [3, 5]), ("pad", {"pad": [1, 0, 0, 2], "value": 1.5}, [3, 5]),
    ("pad", {"pad": [2, 1, 1, 1, 0, 3], "value": -1}, [2, 3, 2]),
    ("pad", {"pad": [0, 0], "value": 2}, [13]), ("pad", {"pad": [1, 1], "value": "-inf"}, [1, 4]),
    ("pad", {"pad": [-1, 2], "value": 0}, [2, 5]),
    ("pad", {"pad": [1, 2], "value": 3}, [0]), ("pad", {"pad": [0, 0, 1, 1], "value": "nan"}, [2, 3]),
    ("flip", {"dims": [0]}, [13]), ("flip", {"dims": [0, 1]}, [3, 5]), ("flip", {"dims": [-1]}, [2, 3, 4]),
    ("flip", {"dims": [2, 0]}, [1, 4, 1]),
    ("flip", {"dims": [1]}, [2, 0]), ("flip", {"dims": []}, [3]), ("flip", {"dims": []}, []),
    *[(op, {"diagonal": diagonal}, shape) for op in ("triu", "tril") for diagonal, shape in [
        (0, [3, 5]), (1, [5, 3]), (-2, [4, 4]), (9, [2, 3]), (-9, [2, 3]), (0, [2, 3, 3]), (0, [1, 1]), (0, [0, 3]), (-1, [7, 7])]],
]


def casts():
    for source, target in itertools.product(DTYPES, DTYPES):
        args = {"dtype": target}
        low, high = (0, 100) if target == "u32" and source in FLOATS else (None, None)
        tile("cast", args, [[13], [], [0, 3]], uniform, (source,), low=low, high=high)
        case("cast", args, next(next_view)(of(source, low=low, high=high), [3, 5]))
        if source in FLOATS and target in (*FLOATS, "bool"):
            case("cast", args, special(source, *ALL, MAX, -MAX))
    for target in ("f32", "f16", "bf16", "u32", "bool"):
        case("cast", {"dtype": target}, tensor([0, 1, -1, 255, 257, -2049, 2051, 40001, -60001], "i32"))
    for source, target in itertools.product(("i32", "u32"), ("f32", "u32", "i32", "bool")):
        extremes = [2**24 + 1, 2**24 + 3, 2**31 - 1] + ([-2**31, -2**24 - 1] if source == "i32" else [2**32 - 1, 2**31])
        case("cast", {"dtype": target}, tensor(extremes, source))
    case("cast", {"dtype": "i32"}, tensor([0.0, -0.0, 0.99, -0.99, 1.5, -1.5, 2.5, 16777216.0, -2147483648.0, 2147483520.0]))
    case("cast", {"dtype": "u32"}, tensor([0.0, 0.99, 1.5, 2.5, 2147483648.0, 4294967040.0]))
    # Halfway between two numbers of the smaller type, and next to it.
    case("cast", {"dtype": "bf16"}, tensor([1.00390625, 1.01171875, 1.0039063692092896, 1.0117186307907104, 3.3961775292304957e38, 3.39e38]))
    case("cast", {"dtype": "f16"}, tensor([1.00048828125, 1.00146484375, 1.0004884004592896, 1.0014647245407104, 65519.99609375, 65520.0, 2049.0, 2051.0]))
    case("cast", {"dtype": "bf16"}, uniform(MEDIUM))


def joined(op: str):
    same = [([3, 5], 0), ([3, 5], -1), ([2, 3, 4], 1), ([1, 4, 1], 2), ([13], 0), ([0, 3], 0)]
    for shape, dim in same:
        case(op, {"dim": dim}, *[uniform(shape) for _ in range(3)])
    for dtype in DTYPES:
        case(op, {"dim": 0}, uniform([7], dtype), uniform([7], dtype))
    for a, b in MIXED:
        case(op, {"dim": 1}, uniform([2, 3], a), uniform([2, 3], b))
    case(op, {"dim": 1}, transposed(of("f32"), [3, 4]), stepped(of("f32"), [3, 4]), expanded(of("f32"), [3, 4]), narrowed(of("f32"), [3, 4]))
    case(op, {"dim": 0}, transposed(of("f16"), [3, 5]), narrowed(of("f16"), [3, 5]))
    case(op, {"dim": 0}, uniform([5]))


def shapes():
    for op, args, shape in SHAPES:
        case(op, args, uniform(shape))
    seen = set()
    for op, args, shape in SHAPES:
        # For each op once: every dtype, and every view that gives a tensor of this shape.
        if op in seen or not shape:
            continue
        seen.add(op)
        for dtype in ("f16", "bf16", "i32", "u32", "bool"):
            case(op, args, uniform(shape, dtype))
        for view, dtype in itertools.product((transposed, stepped, narrowed), ("f32", "f16")):
            case(op, args, view(of(dtype), shape))
        if op != "expand":
            case(op, args, expanded(of("f32"), shape))
        case(op, args, special("f32", *itertools.islice(itertools.cycle([*ALL, MAX]), math.prod(shape))).reshape(shape))
    joined("cat")
    joined("stack")
    case("stack", {"dim": 0}, uniform([]), uniform([]))
    case("stack", {"dim": -1}, uniform([3]), uniform([3]))
    case("cat", {"dim": 0}, uniform([2, 3]), uniform([0, 3]), uniform([5, 3]))
    case("cat", {"dim": -1}, uniform([17, 20]), uniform([17, 1]), uniform([17, 10]))
    casts()


# Indexing

def gather_cases():
    for shape, index, dim in [([5], [3], 0), ([3, 5], [3, 7], 1), ([3, 5], [2, 5], 0), ([2, 3, 4], [2, 3, 1], -1),
                              ([2, 3, 4], [1, 6, 2], 1), ([1, 4, 1], [1, 2, 1], 1),
                              ([], [], 0), ([3, 5], [0, 5], 0), ([7, 11], [13, 11], 0)]:
        x = uniform(shape)
        source = uniform(index)
        where = indices(index, shape[dim] if shape else 1)
        case("gather", {"dim": dim}, x, where)
        case("scatter_add", {"dim": dim}, x, where, source)
    for dtype in ("f16", "bf16", "i32", "u32", "bool"):
        where = indices([3, 7], 5)
        case("gather", {"dim": 1}, uniform([3, 5], dtype), where)
        if dtype != "bool":
            case("scatter_add", {"dim": 1}, uniform([3, 5], dtype), where, uniform([3, 7], dtype))
    for view in VIEWS:
        where = next(next_view)(lambda shape: indices(shape, 4), [4, 3])
        case("gather", {"dim": 0}, view(of("f32"), [4, 3]), where)
        case("scatter_add", {"dim": 0}, view(of("f32"), [4, 3]), where, view(of("f32"), [4, 3]))
    x = special("f32", NAN, INF, -INF, -0.0, MAX)
    case("gather", {"dim": 0}, x, indices([9], 5))
    case("scatter_add", {"dim": 0}, uniform([5]), tensor([0, 2, 2, 3], "i32"), tensor([NAN, INF, -INF, INF]))
    case("scatter_add", {"dim": 0}, uniform([3]), indices([257], 3), uniform([257]))


def indexing():
    gather_cases()
    for shape, count, dim in [([5], 3, 0), ([3, 5], 7, 1), ([3, 5], 2, 0), ([2, 3, 4], 5, -2), ([1, 4, 1], 2, 1), ([3, 5], 0, 1),
                              ([13, 7], 29, 0), ([0, 3], 2, 1)]:
        case("index_select", {"dim": dim}, uniform(shape), indices([count], shape[dim]))
    for shape, weight in [([5], [7, 3]), ([2, 3], [5, 4]), ([], [3, 5]), ([0], [3, 2]), ([1, 1, 1], [1, 1]), ([2, 1, 4], [11, 13])]:
        case("embedding", {}, indices(shape, weight[0]), uniform(weight))
    for dtype in ("f16", "bf16", "i32", "u32", "bool"):
        case("index_select", {"dim": 0}, uniform([5, 3], dtype), indices([7], 5))
        case("index_select", {"dim": 1}, uniform([3, 5], dtype), indices([7], 5))
        case("embedding", {}, indices([3], 5), uniform([5, 3], dtype))
    for view in VIEWS:
        case("index_select", {"dim": 1}, view(of("f32"), [4, 3]), stepped(lambda shape: indices(shape, 3), [5]))
        case("embedding", {}, view(lambda shape: indices(shape, 4), [2, 3]), view(of("f32"), [4, 3]))
    case("index_select", {"dim": 0}, special("f32", NAN, INF, -INF, -0.0, MAX), indices([9], 5))
    case("embedding", {}, indices([19], 31), uniform([31, 24], "f16"))


# Sorting

def topk_args(k: int, dim: int = -1, largest: bool = True) -> dict:
    return {"k": k, "dim": dim, "largest": largest, "sorted": True}


def sorting():
    shapes = [([13], 0), ([3, 5], 0), ([3, 5], -1), ([2, 3, 4], 1), ([1, 7, 1], 1), ([1, 7, 1], 0), ([], 0), ([0, 3], 1), ([3, 0], 1),
              ([3, 67], -1), ([701], 0)]
    for (shape, dim), descending in itertools.product(shapes, (False, True)):
        args = {"dim": dim, "descending": descending, "stable": True}
        case("sort", args, uniform(shape))
        if math.prod(shape) < 300:
            case("sort", args, coarse(shape))
    for descending, dtype in itertools.product((False, True), DTYPES):
        args = {"dim": -1, "descending": descending, "stable": True}
        case("sort", args, coarse([2, 11], dtype))
        if dtype in FLOATS:
            case("sort", args, special(dtype, 1.0, NAN, -INF, 2.0, INF, MAX, -1.0, NAN, -MAX, -2.0))
    for view, descending in itertools.product(VIEWS, (False, True)):
        case("sort", {"dim": 0, "descending": descending, "stable": True}, view(of("f32"), [5, 3]))
        case("sort", {"dim": 1, "descending": descending, "stable": True}, view(of("f16", coarse), [3, 5]))
    case("sort", {"dim": 0, "descending": True, "stable": True}, tensor([5, 2**31 - 1, -2**31, 0, -1, 2**31 - 2], "i32"))
    topk()


def topk():
    for (shape, dim, k), chosen in itertools.product(
            [([13], 0, 5), ([3, 5], 0, 2), ([3, 5], -1, 5), ([2, 3, 4], 1, 1), ([1, 7, 1], 1, 3), ([], 0, 1), ([0, 3], 1, 2), ([4], 0, 0), ([701], 0, 40),
             ([3, 149], -1, 7)],
            (True, False)):
        case("topk", topk_args(k, dim, chosen), distinct(shape))
    for dtype in ("f16", "bf16", "i32", "u32"):
        tile("topk", topk_args(3), [[3, 7]], distinct, (dtype,))
    for view in (transposed, stepped, narrowed):
        case("topk", topk_args(2, 0), view(of("f32", distinct), [5, 3]))
        case("topk", topk_args(2, 1, False), view(of("f16", distinct), [3, 5]))
    for dtype in FLOATS:
        for chosen in (True, False):
            case("topk", topk_args(4, 0, chosen), special(dtype, 1.0, -INF, 2.0, INF, MAX, -1.0, NAN, -MAX))


# Attention

def attention_group():
    op = "scaled_dot_product_attention"
    # batch, q_len, kv_len, heads, kv_heads, head_dim
    sizes = [(1, 5, 5, 1, 1, 8), (2, 3, 7, 4, 2, 5), (1, 1, 11, 6, 2, 16), (1, 1, 1, 1, 1, 1), (2, 7, 7, 3, 1, 4), (1, 13, 17, 2, 2, 7),
             (0, 3, 3, 2, 2, 4), (1, 0, 3, 2, 1, 4),
             (1, 19, 31, 2, 1, 8)]
    for (batch, q_len, kv_len, heads, kv_heads, head_dim), causal in itertools.product(sizes, (False, True)):
        shapes = [batch, q_len, heads, head_dim], [batch, kv_len, kv_heads, head_dim], [batch, kv_len, kv_heads, head_dim]
        case(op, {"is_causal": causal, "scale": None}, *[uniform(shape) for shape in shapes])
    shapes = [2, 5, 4, 3], [2, 7, 2, 3], [2, 7, 2, 3]
    for causal, dtype in itertools.product((False, True), FLOATS):
        case(op, {"is_causal": causal, "scale": 0.25}, *[uniform(shape, dtype) for shape in shapes])
        case(op, {"is_causal": causal, "scale": None}, *[next(next_view)(of(dtype), shape) for shape in shapes])
    # More queries than keys, and values of another width than the keys.
    case(op, {"is_causal": False, "scale": None}, uniform([1, 7, 2, 4]), uniform([1, 3, 2, 4]), uniform([1, 3, 2, 4]))
    case(op, {"is_causal": True, "scale": None}, uniform([1, 5, 2, 4]), uniform([1, 5, 2, 4]), uniform([1, 5, 2, 3]))
    # Scores of some hundreds, of which one decides.
    case(op, {"is_causal": True, "scale": 10}, *[uniform([1, 5, 2, 4]) for _ in range(3)], factor=200)
    spoilt = uniform([1, 5, 2, 4])
    spoilt[0, 4, 0, 0], spoilt[0, 2, 1, 3] = NAN, INF
    case(op, {"is_causal": False, "scale": None}, uniform([1, 5, 2, 4]), uniform([1, 5, 2, 4]), spoilt)


# Creation

def creation():
    for dtype in DTYPES:
        for shape in ([3, 5], [13], [], [0, 3], [1, 4, 1]):
            case("zeros", {"shape": shape, "dtype": dtype})
            case("ones", {"shape": shape, "dtype": dtype})
            case("full", {"shape": shape, "fill_value": {"bool": True, "i32": -7, "u32": 2**32 - 1}.get(dtype, 2.5), "dtype": dtype})
        for n, m in [(3, 3), (2, 5), (5, 2), (1, 1), (0, 3)]:
            case("eye", {"n": n, "m": m, "dtype": dtype})
        if dtype != "bool":
            for start, end, step in [(0, 13, 1), (2, 17, 3), (5, 5, 1), (0, 1, 7), (10, 0, -3)]:
                case("arange", {"start": start, "end": end, "step": step, "dtype": dtype})
        if dtype in FLOATS:
            for value in ("inf", "-inf", "nan"):
                case("full", {"shape": [3], "fill_value": value, "dtype": dtype})
    case("arange", {"start": -5, "end": 5, "step": 2, "dtype": "i32"})
    case("arange", {"start": 0.5, "end": 4.1, "step": 0.7, "dtype": "f32"})
    case("arange", {"start": 1.5, "end": -2.25, "step": -0.25, "dtype": "f32"})
    case("arange", {"start": 0, "end": 701, "step": 1, "dtype": "i32"})
    for start, end, steps in [(0, 1, 5), (-3, 3, 7), (2.5, -1.25, 13), (4, 9, 1), (0, 1, 0), (5, 5, 3), (-1, 1, 301)]:
        case("linspace", {"start": start, "end": end, "steps": steps, "dtype": "f32"})
    for dtype in ("f16", "bf16"):
        case("linspace", {"start": -2, "end": 2, "steps": 9, "dtype": dtype})


GROUPS = {
    "elementwise": elementwise, "comparison": comparison, "reductions": reductions, "shapes": shapes, "indexing": indexing, "products": products,
    "convolution": convolution_group, "normalisation": normalisation, "sorting": sorting, "attention": attention_group, "creation": creation,
}


def summary(group: str):
    """Prints the cases of each op, by the dtype of the first input, or of the output where there is none."""
    counts: dict[str, Counter] = {}
    for one in cases:
        counts.setdefault(one["op"], Counter())[(one["inputs"] or one["outputs"])[0]["dtype"]] += 1
    print(f"{group}: {len(cases)} cases")
    for op, by_dtype in counts.items():
        print(f"  {op:<28}" + "".join(f"{dtype:>6} {by_dtype[dtype]:<4}" for dtype in DTYPES))


def main():
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False  # its kernels differ from processor to processor
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    out.mkdir(parents=True, exist_ok=True)
    print(f"torch {torch.__version__}")
    missing, total = set(OPS), 0
    for group, make in GROUPS.items():
        numbers.seed(f"{SEED} {group}")
        cases.clear()
        make()
        text = "[\n" + ",\n".join(json.dumps(one, allow_nan=False, separators=(",", ":")) for one in cases) + "\n]\n"
        (out / f"{group}.json").write_text(text)
        missing -= {one["op"] for one in cases}
        total += len(text)
        summary(group)
    print(f"{total} bytes; refused by PyTorch:")
    for what, count in refused.items():
        print(f"  {what}" + (f" ({count} times)" if count > 1 else ""))
    if missing:
        sys.exit(f"no case of {sorted(missing)}")


if __name__ == "__main__":
    main()
