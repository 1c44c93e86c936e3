"""Writes tiny random encoders and the vectors that transformers gives for some texts into tests/golden/encoders/MODEL/: a Hugging Face
folder as the hub has it, and the same model as GGUF with llama.cpp's names. And vectors of a decoder (scripts/golden/huggingface_folders.py
made it), into decoder.json.

    python scripts/golden/encoders.py   (needs torch, transformers, tokenizers, safetensors, gguf, numpy; on the CPU)

The reference is transformers in float32 on the CPU. Weights are random with a fixed seed.
"""

import json
import shutil
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel
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
POOLING = {"bert": "cls", "nomic_bert": "mean", "xlm_roberta": "mean"}
# llama.cpp's names of architectures.
ARCHS = {"bert": "bert", "nomic_bert": "nomic-bert", "xlm_roberta": "bert"}
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
FIRST_POSITION = {"xlm_roberta": 2}


def tokenizer_json(kind: str) -> dict:
    return unigram_tokenizer() if kind == "xlm_roberta" else word_piece_tokenizer()


def unigram_tokenizer() -> dict:
    """As XLM-RoBERTa's, but for sentencepiece's table of characters, whose place NFKC has."""
    token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    ids = {piece: i for i, (piece, _) in enumerate(PIECES)}
    begin, end = ({"SpecialToken": {"id": text, "type_id": 0}} for text in ("<s>", "</s>"))
    text = {"Sequence": {"id": "A", "type_id": 0}}
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [token | {"id": ids[text], "content": text} for text in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        "post_processor": {"type": "TemplateProcessing", "single": [begin, text, end], "pair": [begin, text, end, end, text, end],
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


def random_model(kind: str):
    vocabulary = PIECES if kind == "xlm_roberta" else WORDS
    config = AutoConfig.for_model(kind.replace("xlm_", "xlm-"), vocab_size=len(vocabulary), **CONFIGS[kind])
    model = AutoModel.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
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
    return config, model


def token_ids(kind: str, text: str) -> list[int]:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(json.dumps(tokenizer_json(kind))).encode(text).ids


@torch.inference_mode()
def vector(model, ids: list[int], pooling: str) -> np.ndarray:
    states = model(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids))).last_hidden_state[0]
    pooled = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[pooling]
    return torch.nn.functional.normalize(pooled, dim=0).numpy()


def gguf_metadata(kind: str, config, pooling: str) -> dict:
    arch = ARCHS[kind]
    written = [word if i < 5 else word.removeprefix("##") if word.startswith("##") else "▁" + word for i, word in enumerate(WORDS)]
    keys = {
        "context_length": CONTEXT, "embedding_length": config.hidden_size, "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size, "attention.head_count": config.num_attention_heads,
        "attention.layer_norm_epsilon": config.layer_norm_eps, "attention.causal": False, "pooling_type": {"mean": 1, "cls": 2}[pooling],
    }
    if kind == "nomic_bert":
        keys["rope.freq_base"] = float(config.rope_parameters["rope_theta"])
    general = {"general.architecture": arch, "general.type": "model", "general.name": f"tiny random {arch}", "general.file_type": 0}
    tokens = {
        "tokenizer.ggml.model": "bert", "tokenizer.ggml.token_type_count": config.type_vocab_size, "tokenizer.ggml.tokens": written,
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
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    tensors = {}
    for name, weights in state.items():
        if "pooler" in name:
            continue
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert target, f"llama.cpp has no name for {name}"
        if target == "position_embd.weight":
            weights = weights[FIRST_POSITION.get(kind, 0) :]
        tensors[target] = (weights, "F32")
    return tensors


def main():
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    for kind, pooling in POOLING.items():
        folder = OUT / kind
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        config, model = random_model(kind)
        ids = [token_ids(kind, text) for text in TEXTS]
        vectors = [vector(model, one, pooling) for one in ids]
        model.save_pretrained(folder)
        (folder / "model.safetensors").chmod(0o644)
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(kind), ensure_ascii=False) + "\n")
        (folder / "1_Pooling").mkdir()
        modes = {"cls": "cls_token", "mean": "mean_tokens"}
        (folder / "1_Pooling/config.json").write_text(json.dumps(
            {"word_embedding_dimension": config.hidden_size} | {f"pooling_mode_{mode}": key == pooling for key, mode in modes.items()}) + "\n")
        state = {name: tensor.float().numpy() for name, tensor in load_file(folder / "model.safetensors").items()}
        gguf_file.write(folder / "model.gguf", gguf_metadata(kind, config, pooling), gguf_tensors(kind, config, state))
        golden = {"texts": TEXTS, "ids": ids, "vectors": [[round(float(x), 7) for x in one] for one in vectors]}
        (folder / "golden.json").write_text(json.dumps(golden) + "\n")
        print(kind, sorted(state)[:4], sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()), "bytes")
    decoder = AutoModel.from_pretrained(OUT.parent / "folders/llama_sharded_f16", dtype=torch.float32, attn_implementation="eager").eval()
    golden = {"ids": [[5, 9, 200, 31, 7], [44], list(range(40, 73))]}
    for pooling in ("mean", "last"):
        golden[pooling] = [[round(float(x), 7) for x in vector(decoder, ids, pooling)] for ids in golden["ids"]]
    (OUT / "decoder.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
