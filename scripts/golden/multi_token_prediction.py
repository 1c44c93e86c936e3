"""Writes tiny models with a head for multi-token prediction, and what it drafts, into tests/golden/mtp/MODEL/.

    python scripts/golden/multi_token_prediction.py   (needs numpy; a few seconds)

transformers leaves that head out, so the reference is written here, from the models' definitions: a forward pass in float64 whose logits are
compared with those that transformers gave for the same model (tests/golden/architectures), and the head after it. Of a position p the head
reads the hidden state after the model's last norm and the embedding of token p + 1, each normed, joined by a matrix (embedding first),
through one layer with attention over all positions up to p, and a norm; the model's output matrix gives token p + 2. What it reads for a
further token is its own normed result (DeepSeek-V3, 2.2; vLLM's qwen3_next_mtp.py).

A random head would be right once in 264 tokens. So its joining matrix is fitted to two thirds of the model's own answer, where its first drafts
are mostly right.
"""

import json
import shutil
import struct
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "demo-model"))
import gguf_file  # noqa: E402

SOURCE, OUT = ROOT / "tests" / "golden" / "architectures", ROOT / "tests" / "golden" / "mtp"
MODELS = {"qwen3_5": 4253, "qwen3_next": 4254}
EPSILON = 1e-6
# What is simulated: drafts of these lengths in an answer of this many tokens.
DRAFTS, ANSWER = (1, 2, 3, 7), 20
SMALLEST_MARGIN = 0.03  # of the head's own choices


def read_safetensors(path: Path) -> dict:
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            assert entry["dtype"] == "BF16"
            halves = np.frombuffer(data[8 + length + begin : 8 + length + end], "<u2")
            tensors[name] = (halves.astype("<u4") << 16).view("<f4").reshape(entry["shape"])
    return tensors


def write_safetensors(path: Path, tensors: dict):
    header, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, values in sorted(tensors.items()):
        blob = (np.ascontiguousarray(values, "<f4").view("<u4") >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def bf16(values: np.ndarray) -> np.ndarray:
    """The nearest numbers that bfloat16 represents."""
    words = np.ascontiguousarray(values, "<f4").view("<u4").astype(np.uint64)
    rounded = (words + 0x7FFF + ((words >> 16) & 1)) & 0xFFFF0000
    return rounded.astype("<u4").view("<f4")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def norm(x, weight):
    """The norm of these models, which multiplies by 1 + w."""
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPSILON) * (1 + weight)


class Model:
    def __init__(self, config: dict, tensors: dict):
        self.config = config
        self.w = {name.replace("model.language_model.", "model."): values.astype(np.float64) for name, values in tensors.items()}
        self.embedding = self.w["model.embed_tokens.weight"]
        self.output = self.embedding if config["tie_word_embeddings"] else self.w["lm_head.weight"]

    def rope(self, x: np.ndarray, first: int) -> np.ndarray:
        """x [tokens, heads, head_dim]; the halves of the first part of a head turn."""
        parameters = self.config["rope_parameters"]
        dim = int(x.shape[-1] * parameters["partial_rotary_factor"])
        frequencies = parameters["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
        angles = (first + np.arange(len(x)))[:, None] * frequencies
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        a, b = x[..., : dim // 2], x[..., dim // 2 : dim]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., dim:]], -1)

    def attention(self, stem: str, x: np.ndarray, cache: list) -> np.ndarray:
        """`cache` has keys and values of the positions before, and gets those of x [tokens, n_embd]."""
        heads, kv_heads, dim = (self.config[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim"))
        w = lambda part: self.w[f"{stem}.self_attn.{part}.weight"]
        first = len(cache)
        q, gate = np.split((x @ w("q_proj").T).reshape(len(x), heads, 2 * dim), 2, -1)
        q = self.rope(norm(q, w("q_norm")), first)
        k = self.rope(norm((x @ w("k_proj").T).reshape(len(x), kv_heads, dim), w("k_norm")), first)
        v = (x @ w("v_proj").T).reshape(len(x), kv_heads, dim)
        cache.extend(zip(k, v))
        keys, values = (np.repeat(np.stack(part), heads // kv_heads, 1) for part in zip(*cache))
        out = np.empty_like(q)
        for token in range(len(x)):
            seen = first + token + 1
            scores = np.einsum("hd,phd->hp", q[token], keys[:seen]) / np.sqrt(dim)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out[token] = np.einsum("hp,phd->hd", weights / weights.sum(-1, keepdims=True), values[:seen])
        return (out * sigmoid(gate)).reshape(len(x), -1) @ w("o_proj").T

    def delta_net(self, stem: str, x: np.ndarray) -> np.ndarray:
        key_heads, value_heads, key_dim, value_dim, taps = (self.config[f"linear_{key}"] for key in (
            "num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim"))
        w = lambda part: self.w[f"{stem}.linear_attn.{part}"]
        shared, n = value_heads // key_heads, len(x)
        if f"{stem}.linear_attn.in_proj_qkvz.weight" in self.w:
            parts = (x @ w("in_proj_qkvz.weight").T).reshape(n, key_heads, -1)
            q, k, v, z = np.split(parts, np.cumsum([key_dim, key_dim, shared * value_dim]), -1)
            qkv = np.concatenate([part.reshape(n, -1) for part in (q, k, v)], -1)
            b, a = (part.reshape(n, -1) for part in np.split((x @ w("in_proj_ba.weight").T).reshape(n, key_heads, -1), 2, -1))
        else:
            qkv, z = x @ w("in_proj_qkv.weight").T, x @ w("in_proj_z.weight").T
            b, a = x @ w("in_proj_b.weight").T, x @ w("in_proj_a.weight").T
        padded = np.concatenate([np.zeros((taps - 1, qkv.shape[1])), qkv])
        qkv = silu(sum(padded[tap : tap + n] * w("conv1d.weight")[:, 0, tap] for tap in range(taps)))
        q, k, v = np.split(qkv, np.cumsum([key_heads * key_dim] * 2), -1)
        q, k = (np.repeat(part.reshape(n, key_heads, key_dim), shared, 1) for part in (q, k))
        q, k = (part / np.sqrt((part**2).sum(-1, keepdims=True) + EPSILON) for part in (q, k))
        v, z = (part.reshape(n, value_heads, value_dim) for part in (v, z))
        decay = np.exp(-np.exp(w("A_log")) * np.log1p(np.exp(a + w("dt_bias"))))
        state, out = np.zeros((value_heads, key_dim, value_dim)), np.empty_like(v)
        for token in range(n):
            state *= decay[token][:, None, None]
            delta = (v[token] - np.einsum("hkv,hk->hv", state, k[token])) * sigmoid(b[token])[:, None]
            state += np.einsum("hk,hv->hkv", k[token], delta)
            out[token] = np.einsum("hkv,hk->hv", state, q[token]) / np.sqrt(key_dim)
        out = out / np.sqrt((out**2).mean(-1, keepdims=True) + EPSILON) * w("norm.weight") * silu(z)
        return out.reshape(n, -1) @ w("out_proj.weight").T

    def feed_forward(self, stem: str, x: np.ndarray) -> np.ndarray:
        def gated(stem: str, x: np.ndarray) -> np.ndarray:
            w = lambda part: self.w[f"{stem}.{part}_proj.weight"]
            return (silu(x @ w("gate").T) * (x @ w("up").T)) @ w("down").T

        if f"{stem}.mlp.gate.weight" not in self.w:
            return gated(f"{stem}.mlp", x)
        logits = x @ self.w[f"{stem}.mlp.gate.weight"].T
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        out = sigmoid(x @ self.w[f"{stem}.mlp.shared_expert_gate.weight"].T) * gated(f"{stem}.mlp.shared_expert", x)
        for token, of_token in enumerate(weights):
            best = np.argsort(-of_token)[: self.config["num_experts_per_tok"]]
            for expert in best:
                out[token] += of_token[expert] / of_token[best].sum() * gated(f"{stem}.mlp.experts.{expert}", x[token : token + 1])[0]
        return out

    def hidden(self, ids: list[int]) -> np.ndarray:
        """After the last norm, [tokens, n_embd]."""
        x = self.embedding[ids]
        for layer, kind in enumerate(self.config["layer_types"]):
            stem = f"model.layers.{layer}"
            h = norm(x, self.w[f"{stem}.input_layernorm.weight"])
            x = x + (self.attention(stem, h, []) if kind == "full_attention" else self.delta_net(stem, h))
            x = x + self.feed_forward(stem, norm(x, self.w[f"{stem}.post_attention_layernorm.weight"]))
        return norm(x, self.w["model.norm.weight"])

    def features(self, hidden: np.ndarray, following: list[int]) -> np.ndarray:
        """What the head joins: of each hidden state and of the token after it."""
        of_tokens = norm(self.embedding[following], self.w["mtp.pre_fc_norm_embedding.weight"])
        return np.concatenate([of_tokens, norm(hidden, self.w["mtp.pre_fc_norm_hidden.weight"])], -1)

    def predict(self, features: np.ndarray, cache: list) -> np.ndarray:
        """The head's hidden states."""
        x, stem = features @ self.w["mtp.fc.weight"].T, "mtp.layers.0"
        x = x + self.attention(stem, norm(x, self.w[f"{stem}.input_layernorm.weight"]), cache)
        x = x + self.feed_forward(stem, norm(x, self.w[f"{stem}.post_attention_layernorm.weight"]))
        return norm(x, self.w["mtp.norm.weight"])

    def draft(self, hidden: np.ndarray, ids: list[int], count: int) -> tuple[list[int], float]:
        """The tokens that the head drafts after `ids`, whose hidden states but the last are given, and the smallest margin of its choices."""
        cache: list = []
        states = self.predict(self.features(hidden[: len(ids) - 1], ids[1:]), cache)
        drafted, margin = [], np.inf
        for number in range(count):
            if number:
                states = self.predict(self.features(states[-1:], drafted[-1:]), cache)
            logits = self.output @ states[-1]
            second, best = np.sort(logits)[-2:]
            margin = min(margin, best - second)
            drafted.append(int(logits.argmax()))
        return drafted, float(margin)


def random_head(config: dict, generator) -> dict:
    """The tensors of a head without its joining matrix. What its layer adds is small."""
    n, heads, kv_heads, dim = (config[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"))
    matrix = lambda rows, columns, scale=1.6: bf16(generator.normal(0, scale / np.sqrt(columns), (rows, columns)))
    vector = lambda length: bf16(generator.uniform(-0.5, 0.5, length))
    small, stem = 0.15, "mtp.layers.0"

    def gated(stem: str, inner: int) -> dict:
        return {f"{stem}.gate_proj.weight": matrix(inner, n), f"{stem}.up_proj.weight": matrix(inner, n),
                f"{stem}.down_proj.weight": matrix(n, inner, small)}

    head = {
        "mtp.pre_fc_norm_embedding.weight": vector(n), "mtp.pre_fc_norm_hidden.weight": vector(n), "mtp.norm.weight": vector(n),
        f"{stem}.input_layernorm.weight": vector(n), f"{stem}.post_attention_layernorm.weight": vector(n),
        f"{stem}.self_attn.q_proj.weight": matrix(2 * heads * dim, n), f"{stem}.self_attn.k_proj.weight": matrix(kv_heads * dim, n),
        f"{stem}.self_attn.v_proj.weight": matrix(kv_heads * dim, n), f"{stem}.self_attn.o_proj.weight": matrix(n, heads * dim, 2 * small),
        f"{stem}.self_attn.q_norm.weight": vector(dim), f"{stem}.self_attn.k_norm.weight": vector(dim),
    }
    if "num_experts" not in config:
        return head | gated(f"{stem}.mlp", config["intermediate_size"])
    head |= gated(f"{stem}.mlp.shared_expert", config["shared_expert_intermediate_size"])
    head |= {f"{stem}.mlp.gate.weight": matrix(config["num_experts"], n), f"{stem}.mlp.shared_expert_gate.weight": matrix(1, n)}
    for expert in range(config["num_experts"]):
        head |= gated(f"{stem}.mlp.experts.{expert}", config["moe_intermediate_size"])
    return head


def fitted(tensors: dict, config: dict, hidden: np.ndarray, ids: list[int], prompt: int) -> np.ndarray:
    """The matrix that brings what is joined in most positions of the answer near to the output row of the token after next (ridge regression),
    also where the hidden state is the head's own."""
    matrix = np.zeros((config["hidden_size"], 2 * config["hidden_size"]))
    for _ in range(6):
        model = Model(config, tensors | {"mtp.fc.weight": matrix})
        first = model.features(hidden[:-1], ids[1:])
        own = model.predict(first, [])
        samples = [(first[at], ids[at + 2]) for at in range(prompt - 1, len(ids) - 2) if at % 3]
        if matrix.any():
            again = model.features(own[:-1], ids[2:])
            samples += [(again[at], ids[at + 3]) for at in range(prompt - 1, len(ids) - 3) if at % 3 == 1]
        x, tokens = np.stack([sample for sample, _ in samples]), [token for _, token in samples]
        y = 3 * model.output[tokens] / np.linalg.norm(model.output[tokens], axis=-1, keepdims=True)
        matrix = np.linalg.solve(x.T @ x + 0.1 * np.eye(x.shape[1]), x.T @ y).T
    return bf16(matrix)


def simulated(model: Model, hidden: np.ndarray, ids: list[int], prompt: int, count: int) -> tuple[int, int, float]:
    """How many tokens are drafted and accepted where drafts of `count` tokens go along with the answer, and the smallest margin."""
    steps, drafted, accepted, margin = 1, 0, 0, np.inf
    while steps < ANSWER:
        length = min(count, ANSWER - steps - 1)
        if length == 0:
            break
        tokens, of_draft = model.draft(hidden, ids[: prompt + steps], length)
        right = next((at for at, token in enumerate(tokens) if token != ids[prompt + steps + at]), length)
        drafted, accepted, margin = drafted + length, accepted + right, min(margin, of_draft)
        steps += right + 1
    return drafted, accepted, margin


def gguf_tensors(head: dict, layer: int) -> dict:
    """The head in llama.cpp's names: that of a layer after the last one."""
    stems = {
        "mtp.fc": "nextn.eh_proj", "mtp.pre_fc_norm_embedding": "nextn.enorm", "mtp.pre_fc_norm_hidden": "nextn.hnorm",
        "mtp.norm": "nextn.shared_head_norm", "input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm",
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
        "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate": "ffn_gate_inp",
        "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    }
    for part in ("gate", "up", "down"):
        stems |= {f"mlp.{part}_proj": f"ffn_{part}", f"mlp.shared_expert.{part}_proj": f"ffn_{part}_shexp"}
    tensors, stacks = {}, {}
    for name, values in head.items():
        stem = name.removesuffix(".weight").removeprefix("mtp.layers.0.")
        if ".experts." in name:
            _, _, expert, part = stem.split(".")
            stacks.setdefault(f"blk.{layer}.ffn_{part.removesuffix('_proj')}_exps.weight", {})[int(expert)] = values
            continue
        values = values + np.float32("norm" in name)
        if stem == "mlp.shared_expert_gate":
            values = values[0]
        tensors[f"blk.{layer}.{stems[stem]}.weight"] = values
    return tensors | {name: np.stack([stack[expert] for expert in sorted(stack)]) for name, stack in stacks.items()}


def write_gguf(name: str, head: dict, layers: int):
    metadata, tensors = gguf_file.read(SOURCE / name / "model.gguf")
    arch = metadata["general.architecture"]
    metadata |= {f"{arch}.block_count": layers + 1, f"{arch}.nextn_predict_layers": 1}
    tensors = {tensor: (values, fmt) for tensor, (values, fmt) in tensors.items()}
    tensors |= {tensor: (values, "F32") for tensor, values in gguf_tensors(head, layers).items()}
    gguf_file.write(OUT / name / "model.gguf", metadata, tensors)


def write_model(name: str, seed: int) -> bool:
    folder = SOURCE / name
    whole = json.loads((folder / "config.json").read_text())
    config = whole.get("text_config", whole)
    tensors = {key: values for key, values in read_safetensors(folder / "model.safetensors").items() if not key.startswith(("mtp.", "model.visual."))}
    golden = json.loads((folder / "golden.json").read_text())
    ids, prompt = golden["ids"] + golden["greedy"], len(golden["ids"])

    head = random_head(config, np.random.default_rng(seed))
    model = Model(config, tensors | head)
    hidden = model.hidden(ids)
    distance = np.abs(hidden[:prompt] @ model.output.T - np.load(folder / "logits.npy")).max()
    assert distance < 1e-4, f"{name}: logits differ from transformers' by {distance}"
    assert (hidden[prompt - 1 : -1] @ model.output.T).argmax(-1).tolist() == golden["greedy"]
    head["mtp.fc.weight"] = fitted(tensors | head, config, hidden, ids, prompt)
    model = Model(config, tensors | head)
    rounds = {count: simulated(model, hidden, ids, prompt, count) for count in DRAFTS}
    if min(margin for *_, margin in rounds.values()) < SMALLEST_MARGIN:
        return False
    print(f"{name}: seed {seed}, logits within {distance:.1e} of transformers', drafted and accepted {rounds}")

    out = OUT / name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    write_safetensors(out / "model.safetensors", tensors | head)
    for file in ("config.json", "tokenizer.json"):
        shutil.copy(folder / file, out / file)
    write_gguf(name, head, len(config["layer_types"]))
    counts = {str(count): [drafted, accepted] for count, (drafted, accepted, _) in rounds.items()}
    answers = {"ids": golden["ids"], "greedy": golden["greedy"], "answer": ANSWER, "drafted_and_accepted": counts}
    (out / "golden.json").write_text(json.dumps(answers) + "\n")
    return True


def main():
    for name, first in MODELS.items():
        if not any(write_model(name, seed) for seed in range(first, first + 200)):
            raise SystemExit(f"{name}: no seed gives drafts without near ties")


if __name__ == "__main__":
    main()
