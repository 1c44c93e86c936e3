"""Writes tiny random encoders and the vectors that transformers gives for some texts into tests/golden/encoders/MODEL/: a Hugging Face
folder as the hub has it, and the same model as GGUF with llama.cpp's names. And vectors of a decoder (scripts/golden/huggingface_folders.py
made it), into decoder.json.

    python scripts/golden/encoders.py [MODEL ... | decoder]   (needs torch, transformers, tokenizers, safetensors, gguf, numpy; on the CPU)

The reference is transformers in float32 on the CPU. Weights are random with a fixed seed.
"""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, T5EncoderModel
from transformers.utils import logging

from tiny_models import gguf_file

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "encoders"
SEED = 777
CONTEXT = 64
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS += list("abcdefghijklmnopqrstuvwxyz0123456789.,!?'-")
WORDS += [f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789"]
WORDS += ["the", "cat", "sat", "on", "mat", "##ing", "##ed", "##es", "dog", "run", "sing", "is", "am", "small", "great", "city", "sea"]
TEXTS = [
    "the cat sat on the mat.", "dogs run", "a", "", "singing is great!", "Is the SEA a great small city?", "héllo 42, wörld",
    "the dog sat on the cat and the cat sat on the mat, singing, running, and sing the great city by the sea",
]
# A unigram vocabulary, with the special tokens where XLM-RoBERTa has them, and what they score.
PIECES = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
PIECES += [(piece, -2.0 - at / 7) for at, piece in enumerate(
    ["▁", "▁the", "▁cat", "▁sat", "▁on", "▁mat", "ing", "s", "▁dog", "▁run", "▁sing", "▁is", "▁a", "▁small", "▁great", "▁city", "▁sea", "ng"])]
PIECES += [(letter, -8.0 - at / 50) for at, letter in enumerate("abcdefghijklmnopqrstuvwxyzé0123456789.,!?'-")]
PIECES += [("<mask>", 0.0)]
POOLING = {
    "bert": "cls", "nomic_bert": "mean", "xlm_roberta": "mean", "modern_bert": "cls", "gemma_embedding": "mean", "jina_bert_v3": "mean",
    "jina_bert_v2": "mean", "gte": "cls", "mpnet": "mean", "distilbert": "mean", "electra": "max", "deberta_v2": "mean", "t5encoder": "mean",
    "gte_new": "cls",
}
# llama.cpp's names of architectures; others have none.
ARCHS = {
    "bert": "bert", "nomic_bert": "nomic-bert", "xlm_roberta": "bert", "modern_bert": "modern-bert", "gemma_embedding": "gemma-embedding",
    "jina_bert_v2": "jina-bert-v2", "jina_bert_v3": "jina-bert-v3", "t5encoder": "t5encoder",
}
# transformers' names, where they differ from ours.
MODEL_TYPES = {
    "xlm_roberta": "xlm-roberta", "modern_bert": "modernbert", "gemma_embedding": "gemma3_text", "jina_bert_v3": "jina_embeddings_v3",
    "deberta_v2": "deberta-v2", "t5encoder": "t5", "gte_new": "gte",
}
SMALL = {"hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 60}
FOUR_LAYERS = {"hidden_size": 24, "num_hidden_layers": 4, "intermediate_size": 32}
CONFIGS = {
    "bert": {
        "hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 60,
        "max_position_embeddings": CONTEXT, "layer_norm_eps": 1e-12,
    },
    "nomic_bert": {
        "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 48,
        "max_position_embeddings": CONTEXT, "layer_norm_eps": 1e-12,
    },
    # Its first two positions are of no token and of padding.
    "xlm_roberta": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 56,
        "max_position_embeddings": CONTEXT + 2, "layer_norm_eps": 1e-5, "type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0,
        "eos_token_id": 2,
    },
}
CONFIGS |= {
    # Windows of four tokens on either side, in the second and the third layer.
    "modern_bert": SMALL | FOUR_LAYERS | {
        "local_attention": 8, "max_position_embeddings": CONTEXT, "pad_token_id": 0,
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5000.0},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 200.0}}},
    # Windows of three tokens on either side, in all layers but the third.
    "gemma_embedding": SMALL | FOUR_LAYERS | {
        "num_key_value_heads": 1, "head_dim": 16, "sliding_window": 6, "max_position_embeddings": CONTEXT,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"], "query_pre_attn_scalar": 20,
        "use_bidirectional_attention": True, "hidden_activation": "gelu_pytorch_tanh",
    },
    "jina_bert_v3": SMALL | {"max_position_embeddings": CONTEXT, "pad_token_id": 0},
    "gte": SMALL | {"max_position_embeddings": CONTEXT, "pad_token_id": 0, "type_vocab_size": 2},
    "gte_new": SMALL | {"max_position_embeddings": CONTEXT, "pad_token_id": 0, "type_vocab_size": 1},
    "mpnet": SMALL | {"max_position_embeddings": CONTEXT + 2, "layer_norm_eps": 1e-5, "pad_token_id": 1},
    "distilbert": {"dim": 36, "n_layers": 2, "n_heads": 3, "hidden_dim": 60, "max_position_embeddings": CONTEXT},
    # Its embedding is shorter than the rest.
    "electra": SMALL | {"embedding_size": 20, "max_position_embeddings": CONTEXT},
    # Distances in eight buckets to either side, which are fewer than the tokens of a text.
    "deberta_v2": SMALL | {
        "max_position_embeddings": CONTEXT, "relative_attention": True, "position_buckets": 8, "max_relative_positions": -1,
        "pos_att_type": "p2c|c2p", "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False,
        "type_vocab_size": 0, "layer_norm_eps": 1e-7},
    "t5encoder": {"d_model": 36, "d_kv": 10, "d_ff": 60, "num_layers": 2, "num_heads": 3, "relative_attention_num_buckets": 12,
                  "relative_attention_max_distance": 128, "feed_forward_proj": "relu", "n_positions": CONTEXT},
}
FIRST_POSITION = {"xlm_roberta": 2, "mpnet": 2}
# The widths of layers after the pooling, and torch's names of what comes after each.
DENSE = {"gemma_embedding": [(48, "modules.linear.Identity"), (24, "modules.activation.Tanh")]}


def tokenizer_json(kind: str) -> dict:
    return unigram_tokenizer() if kind == "xlm_roberta" else word_piece_tokenizer()


def unigram_tokenizer() -> dict:
    """As XLM-RoBERTa's, but for sentencepiece's table of characters, whose place NFKC has."""
    token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    ids = {piece: i for i, (piece, _) in enumerate(PIECES)}
    begin, end = ({"SpecialToken": {"id": text, "type_id": 0}} for text in ("<s>", "</s>"))
    text, other = ({"Sequence": {"id": which, "type_id": 0}} for which in "AB")
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [token | {"id": ids[text], "content": text} for text in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        "post_processor": {"type": "TemplateProcessing", "single": [begin, text, end], "pair": [begin, text, end, end, other, end],
                           "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in ("<s>", "</s>")}},
        "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": ids["<unk>"], "vocab": PIECES, "byte_fallback": False},
    }


def word_piece_tokenizer() -> dict:
    template = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    special = {text: {"id": text, "ids": [WORDS.index(text)], "tokens": [text]} for text in ("[CLS]", "[SEP]")}
    added = [{"id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, word in enumerate(WORDS[:5])]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": template, "pair": template + [
            {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}], "special_tokens": special},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                  "vocab": {word: i for i, word in enumerate(WORDS)}},
    }


class JinaBertV2(torch.nn.Module):
    """Jina's BERT, which transformers lacks, by the description in its paper (Günther et al. 2023) and ALiBi's (Press et al. 2021)."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        width, inner = config["hidden_size"], config["intermediate_size"]
        named = {"embeddings.word_embeddings": torch.nn.Embedding(config["vocab_size"], width),
                 "embeddings.token_type_embeddings": torch.nn.Embedding(2, width), "embeddings.LayerNorm": torch.nn.LayerNorm(width)}
        for layer in range(config["num_hidden_layers"]):
            parts = {f"attention.self.{part}": torch.nn.Linear(width, width) for part in ("query", "key", "value")}
            parts |= {"attention.output.dense": torch.nn.Linear(width, width), "attention.output.LayerNorm": torch.nn.LayerNorm(width),
                      "mlp.gated_layers": torch.nn.Linear(width, 2 * inner, bias=False), "mlp.wo": torch.nn.Linear(inner, width),
                      "mlp.layernorm": torch.nn.LayerNorm(width)}
            named |= {f"encoder.layer.{layer}.{name}": part for name, part in parts.items()}
        self.parts = torch.nn.ModuleDict({name.replace(".", "/"): part for name, part in named.items()})

    def named_parameters(self):
        return [(name.removeprefix("parts.").replace("/", "."), parameter) for name, parameter in super().named_parameters()]

    def forward(self, input_ids, attention_mask):
        part = lambda name: self.parts[name.replace(".", "/")]  # noqa: E731
        norm = lambda name, x: torch.nn.functional.layer_norm(x, x.shape[-1:], part(name).weight, part(name).bias, 1e-12)  # noqa: E731
        x = part("embeddings.word_embeddings")(input_ids[0]) + part("embeddings.token_type_embeddings").weight[0]
        x = norm("embeddings.LayerNorm", x)
        heads, tokens = self.config["num_attention_heads"], x.shape[0]
        # For 3 heads: of two, and the first of four.
        slopes = torch.tensor([2.0**-4, 2.0**-8, 2.0**-2])
        away = (torch.arange(tokens)[:, None] - torch.arange(tokens)[None]).abs()
        for layer in range(self.config["num_hidden_layers"]):
            of = f"encoder.layer.{layer}."
            q, k, v = (part(f"{of}attention.self.{name}")(x).view(tokens, heads, -1).transpose(0, 1) for name in ("query", "key", "value"))
            scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 - slopes[:, None, None] * away
            a = (scores.softmax(-1) @ v).transpose(0, 1).reshape(tokens, -1)
            x = norm(f"{of}attention.output.LayerNorm", part(f"{of}attention.output.dense")(a) + x)
            gate, up = part(f"{of}mlp.gated_layers")(x).chunk(2, -1)
            x = norm(f"{of}mlp.layernorm", part(f"{of}mlp.wo")(torch.nn.functional.gelu(gate) * up) + x)
        return type("Output", (), {"last_hidden_state": x[None]})

    def save_pretrained(self, folder):
        save_file({name: parameter.detach().contiguous() for name, parameter in self.named_parameters()}, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(self.config, indent=2) + "\n")


def random_model(kind: str):
    vocabulary = PIECES if kind == "xlm_roberta" else WORDS
    if kind == "jina_bert_v2":
        config = SMALL | {"architectures": ["JinaBertForMaskedLM"], "model_type": "bert", "vocab_size": len(WORDS), "layer_norm_eps": 1e-12,
                          "max_position_embeddings": CONTEXT, "position_embedding_type": "alibi", "feed_forward_type": "geglu",
                          "type_vocab_size": 2}
        model = JinaBertV2(config).eval()
        fill(model)
        return SimpleNamespace(**config), model
    config = AutoConfig.for_model(MODEL_TYPES.get(kind, kind), vocab_size=len(vocabulary), **CONFIGS[kind])
    model = T5EncoderModel(config).eval() if kind == "t5encoder" else AutoModel.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    fill(model)
    if kind == "gte_new":
        stretch_rope(model)
    return config, model


# What Alibaba's own configuration has (`new`), which transformers writes otherwise.
NEW_CONFIG = {
    "architectures": ["NewModel"], "model_type": "new", "type_vocab_size": 0, "rope_theta": 500.0, "rope_scaling": {"factor": 8.0, "type": "ntk"},
    "pack_qkv": False, "position_embedding_type": "rope", "layer_norm_type": "layer_norm", "logn_attention_scale": False,
    "logn_attention_clip1": False, "unpad_inputs": False, "use_memory_efficient_attention": False,
}


def stretch_rope(model) -> None:
    """Their code's frequencies, which transformers does not know: "fixed NTK" of https://kexue.fm/archives/9706. There are no token types."""
    width = model.config.hidden_size // model.config.num_attention_heads
    pairs = torch.arange(width // 2, dtype=torch.float64)
    factor = NEW_CONFIG["rope_scaling"]["factor"]
    # Pair i turns more slowly by factor^((i + 1) / pairs), so the last one by the whole factor.
    frequencies = NEW_CONFIG["rope_theta"] ** (-2 * pairs / width) / factor ** ((pairs + 1) * 2 / width)
    with torch.no_grad():
        model.rotary_emb.inv_freq.copy_(frequencies.float())
        model.embeddings.token_type_embeddings.weight.zero_()


def write_new(folder: Path) -> None:
    """The folder as Alibaba's code has it, without `pack_qkv`."""
    state = load_file(folder / "model.safetensors")
    del state["embeddings.token_type_embeddings.weight"]
    for name in [name for name in state if ".qkv_proj." in name]:
        for which, part in zip("qkv", state.pop(name).chunk(3), strict=True):
            state[name.replace("qkv_proj", f"{which}_proj")] = part.contiguous()
    save_file(state, folder / "model.safetensors")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["rope_parameters"]
    path.write_text(json.dumps(config | NEW_CONFIG, indent=2) + "\n")


def fill(model) -> None:
    generator = np.random.default_rng(SEED)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            shape = tuple(parameter.shape)
            if name.endswith(".bias"):
                values = generator.normal(0, 0.3, shape)
            elif len(shape) == 1:
                values = generator.uniform(0.5, 1.5, shape)
            else:
                values = generator.normal(0, 1.6 / np.sqrt(shape[-1]), shape)
            parameter.copy_(torch.from_numpy(values).float())


def token_ids(kind: str, text: str) -> list[int]:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(json.dumps(tokenizer_json(kind))).encode(text).ids


@torch.inference_mode()
def vector(model, ids: list[int], pooling: str, dense: list | None = None) -> np.ndarray:
    mask = torch.ones(1, len(ids), dtype=torch.long)
    states = model(input_ids=torch.tensor([ids]), attention_mask=mask).last_hidden_state[0]
    pooled = {"mean": states.mean(0), "cls": states[0], "last": states[-1], "max": states.max(0).values}[pooling]
    for weight, bias, activation in dense or []:
        pooled = torch.nn.functional.linear(pooled, weight, bias)
        pooled = torch.tanh(pooled) if activation.endswith("Tanh") else pooled
    return torch.nn.functional.normalize(pooled, dim=0).numpy()


def random_dense(kind: str, width: int) -> list:
    """Weight, bias and activation of each layer after the pooling; every other one has a bias."""
    generator = np.random.default_rng(SEED + 1)
    layers = []
    for number, (outputs, activation) in enumerate(DENSE.get(kind, [])):
        weight = generator.normal(0, 1.6 / np.sqrt(width), (outputs, width))
        bias = generator.normal(0, 0.3, outputs) if number % 2 else None
        as_tensor = lambda values: None if values is None else torch.from_numpy(values).float()  # noqa: E731
        layers.append((as_tensor(weight), as_tensor(bias), activation))
        width = outputs
    return layers


def write_modules(folder: Path, dense: list) -> None:
    """As sentence-transformers writes the steps of a model."""
    module = lambda number, kind, path: {  # noqa: E731
        "idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
    modules = [module(0, "Transformer", ""), module(1, "Pooling", "1_Pooling")]
    for number, (weight, bias, activation) in enumerate(dense, 2):
        path = folder / f"{number}_Dense"
        path.mkdir()
        tensors = {"linear.weight": weight} | ({} if bias is None else {"linear.bias": bias})
        save_file(tensors, path / "model.safetensors")
        (path / "model.safetensors").chmod(0o644)
        config = {"in_features": weight.shape[1], "out_features": weight.shape[0], "bias": bias is not None,
                  "activation_function": f"torch.nn.{activation}"}
        (path / "config.json").write_text(json.dumps(config) + "\n")
        modules.append(module(number, "Dense", path.name))
    modules.append(module(len(modules), "Normalize", f"{len(modules)}_Normalize"))
    (folder / "modules.json").write_text(json.dumps(modules) + "\n")


def gguf_metadata(kind: str, config, pooling: str) -> dict:
    arch = ARCHS[kind]
    if kind == "t5encoder":
        config = SimpleNamespace(**config.to_dict(), hidden_size=config.d_model, num_hidden_layers=config.num_layers,
                                 intermediate_size=config.d_ff, num_attention_heads=config.num_heads)
    written = [word if i < 5 else word.removeprefix("##") if word.startswith("##") else "▁" + word for i, word in enumerate(WORDS)]
    keys = {
        "context_length": CONTEXT, "embedding_length": config.hidden_size, "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size, "attention.head_count": config.num_attention_heads,
        "attention.causal": False, "pooling_type": {"mean": 1, "cls": 2}[pooling],
    }
    if kind == "gemma_embedding":
        keys |= {"attention.layer_norm_rms_epsilon": config.rms_norm_eps, "attention.head_count_kv": 1, "attention.key_length": 16,
                 "attention.value_length": 16, "attention.scale": config.query_pre_attn_scalar**-0.5,
                 "attention.sliding_window_pattern": [kind == "sliding_attention" for kind in config.layer_types],
                 "attention.sliding_window": CONFIGS[kind]["sliding_window"]}
    elif kind == "t5encoder":
        keys |= {"attention.layer_norm_rms_epsilon": config.layer_norm_epsilon, "attention.key_length": config.d_kv,
                 "attention.value_length": config.d_kv, "attention.relative_buckets_count": config.relative_attention_num_buckets}
    else:
        keys["attention.layer_norm_epsilon"] = getattr(config, "layer_norm_eps", None) or config.norm_eps
    if kind == "modern_bert":
        keys |= {"attention.sliding_window": config.local_attention, "attention.sliding_window_pattern": 3}
    if kind in ("modern_bert", "gemma_embedding"):
        keys["rope.freq_base"] = float(config.rope_parameters["full_attention"]["rope_theta"])
        keys["rope.freq_base_swa"] = float(config.rope_parameters["sliding_attention"]["rope_theta"])
    if kind in ("nomic_bert", "jina_bert_v3"):
        keys["rope.freq_base"] = float(config.rope_parameters["rope_theta"])
    general = {"general.architecture": arch, "general.type": "model", "general.name": f"tiny random {arch}", "general.file_type": 0}
    tokens = {
        "tokenizer.ggml.model": "bert", "tokenizer.ggml.token_type_count": getattr(config, "type_vocab_size", 0), "tokenizer.ggml.tokens": written,
        "tokenizer.ggml.token_type": [3] * 5 + [1] * (len(WORDS) - 5), "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.cls_token_id": 2, "tokenizer.ggml.bos_token_id": 2, "tokenizer.ggml.seperator_token_id": 3,
        "tokenizer.ggml.padding_token_id": 0, "tokenizer.ggml.mask_token_id": 4,
    }
    if kind == "xlm_roberta":
        special = [3, 3, 3, 2]  # control, and unknown
        tokens = {
            "tokenizer.ggml.model": "t5", "tokenizer.ggml.token_type_count": config.type_vocab_size,
            "tokenizer.ggml.tokens": [piece for piece, _ in PIECES], "tokenizer.ggml.scores": [score for _, score in PIECES],
            "tokenizer.ggml.token_type": special + [1] * (len(PIECES) - 5) + [3], "tokenizer.ggml.add_space_prefix": True,
            "tokenizer.ggml.remove_extra_whitespaces": True, "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.unknown_token_id": 3, "tokenizer.ggml.seperator_token_id": 2, "tokenizer.ggml.padding_token_id": 1,
            "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True,
        }
    return general | {f"{arch}.{key}": value for key, value in keys.items()} | tokens


def gguf_tensors(kind: str, config, state: dict) -> dict:
    arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == ARCHS[kind])
    names = gguf.get_tensor_name_map(arch, config.num_layers if kind == "t5encoder" else config.num_hidden_layers)
    tensors = {}
    for name, weights in state.items():
        if "pooler" in name:
            continue
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert target, f"llama.cpp has no name for {name}"
        if kind == "gemma_embedding" and "norm" in name:
            weights = weights + 1
        if target == "position_embd.weight":
            weights = weights[FIRST_POSITION.get(kind, 0) :]
        tensors[target] = (weights, "F32")
    return tensors


# Models that transformers saves under the names of their makers, with prefixes of theirs.
RENAMED = {"gte": "new.", "jina_bert_v3": "roberta."}


def write_renamed(kind: str, folder: Path, model) -> None:
    """The same model under transformers' own names, and under the makers' with a prefix."""
    makers = {RENAMED[kind] + name: tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    for name, state in (("transformers", model.state_dict()), ("prefixed", makers)):
        out = folder.with_name(f"{kind}_{name}")
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(folder, out, ignore=shutil.ignore_patterns("*.gguf"))
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, out / "model.safetensors")
        (out / "model.safetensors").chmod(0o644)


def main():
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    for kind in sys.argv[1:] or [*POOLING, "decoder"]:
        if kind == "decoder":
            decoder()
            continue
        pooling = POOLING[kind]
        folder = OUT / kind
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        config, model = random_model(kind)
        width = getattr(config, "hidden_size", None) or getattr(config, "d_model", None) or config.dim
        dense = random_dense(kind, width)
        ids = [token_ids(kind, text) for text in TEXTS]
        vectors = [vector(model, one, pooling, dense) for one in ids]
        model.save_pretrained(folder)
        if kind == "gte_new":
            write_new(folder)
        (folder / "model.safetensors").chmod(0o644)
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(kind), ensure_ascii=False) + "\n")
        (folder / "1_Pooling").mkdir()
        modes = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
        (folder / "1_Pooling/config.json").write_text(json.dumps(
            {"word_embedding_dimension": width} | {f"pooling_mode_{mode}": key == pooling for key, mode in modes.items()}) + "\n")
        if dense:
            write_modules(folder, dense)
        if kind in ARCHS:
            state = {name: tensor.float().numpy() for name, tensor in load_file(folder / "model.safetensors").items()}
            tensors = gguf_tensors(kind, config, state)
            for number, (weight, bias, activation) in enumerate(dense, 2):
                # llama.cpp has neither biases nor functions here.
                if bias is None and activation.endswith("Identity"):
                    tensors[f"dense_{number}.weight"] = (weight.numpy(), "F32")
            gguf_file.write(folder / "model.gguf", gguf_metadata(kind, config, pooling), tensors)
        golden = {"texts": TEXTS, "ids": ids, "vectors": [[round(float(x), 7) for x in one] for one in vectors]}
        if dense:
            golden["gguf_vectors"] = [[round(float(x), 7) for x in vector(model, one, pooling, dense[:1])] for one in ids]
        (folder / "golden.json").write_text(json.dumps(golden) + "\n")
        if kind in RENAMED:
            write_renamed(kind, folder, model)
        print(kind, sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()), "bytes")


def decoder():
    model = AutoModel.from_pretrained(OUT.parent / "folders/llama_sharded_f16", dtype=torch.float32, attn_implementation="eager").eval()
    golden = {"ids": [[5, 9, 200, 31, 7], [44], list(range(40, 73))]}
    for pooling in ("mean", "last"):
        golden[pooling] = [[round(float(x), 7) for x in vector(model, ids, pooling)] for ids in golden["ids"]]
    (OUT / "decoder.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
