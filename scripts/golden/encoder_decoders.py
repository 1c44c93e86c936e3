"""Writes tiny random encoder-decoders and what transformers answers into tests/golden/encoder_decoders/MODEL/: a Hugging Face folder as
the hub has it, and where llama.cpp knows the architecture the same model as GGUF.

    python scripts/golden/encoder_decoders.py [MODEL ...]
    (needs torch, transformers, tokenizers, sentencepiece, safetensors, gguf, numpy; on the CPU)

The reference is transformers in float32 on the CPU. Weights are random with a fixed seed and representable in bfloat16. Texts are longer
than the distances that have buckets of their own.
"""

import json
import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForSeq2SeqLM
from transformers.generation.logits_process import NoBadWordsLogitsProcessor
from transformers.utils import logging

import marian_tokenizer
from tiny_models import gguf_file

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "encoder_decoders"
SEED = 99
CONTEXT = 64
DECODER_TOKENS = 24
GREEDY_TOKENS = 32
SMALLEST_MARGIN = 0.01  # between the best and the second logit of each greedy step
FEWEST_KINDS = 9  # of tokens in all greedy answers
TEXTS = ["translate English to German: the cat sat on the mat, and the dog sings of the sea.", "a dog"]

# A unigram vocabulary with the special tokens where T5 has them, and what they score.
PIECES = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
PIECES += [(piece, -2.0 - at / 7) for at, piece in enumerate(
    ["▁", "▁the", "▁cat", "▁sat", "▁on", "▁mat", "ing", "s", "▁dog", "▁sing", "▁is", "▁a", "▁sea", "en", "er", "▁das", "▁Haus"])]
PIECES += [(letter, -8.0 - at / 50) for at, letter in enumerate("abcdefghijklmnopqrstuvwxyzäöüßEGHT.,:!?'-{}[]\"0123456789")]
# The same with the special tokens of fairseq's models, and those of languages.
LANGUAGES = ["eng_Latn", "deu_Latn", "fra_Latn"]
FAIRSEQ_PIECES = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *PIECES[3:-1], *((name, 0.0) for name in LANGUAGES)]
# More rows than tokens, as published models have.
VOCABULARY = len(PIECES) + 3
FAIRSEQ_VOCABULARY = len(FAIRSEQ_PIECES) + 1

T5 = {
    "vocab_size": VOCABULARY, "d_model": 24, "d_kv": 10, "d_ff": 36, "num_heads": 3, "n_positions": CONTEXT, "decoder_start_token_id": 0,
    "pad_token_id": 0, "eos_token_id": 1,
}
FAIRSEQ = {
    "vocab_size": FAIRSEQ_VOCABULARY, "d_model": 24, "max_position_embeddings": CONTEXT, "decoder_start_token_id": 2, "bos_token_id": 0,
    "pad_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True,
}
MODELS = {
    # Buckets that don't halve evenly, and other numbers of layers in the two halves.
    "t5": ("t5", T5 | {"num_layers": 1, "num_decoder_layers": 2, "relative_attention_num_buckets": 13, "relative_attention_max_distance": 20,
                       "feed_forward_proj": "relu", "tie_word_embeddings": True}),
    "flan_t5": ("t5", T5 | {"num_layers": 2, "num_decoder_layers": 1, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 128,
                            "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "bart": ("bart", FAIRSEQ | {"encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 20, "decoder_ffn_dim": 28,
                                "encoder_attention_heads": 2, "decoder_attention_heads": 3, "forced_bos_token_id": 0}),
    "mbart": ("mbart", FAIRSEQ | {"encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 28, "decoder_ffn_dim": 20,
                                  "encoder_attention_heads": 3, "decoder_attention_heads": 2, "scale_embedding": True,
                                  "activation_function": "relu"}),
    "nllb": ("m2m_100", FAIRSEQ | {"encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 28, "decoder_ffn_dim": 20,
                                   "encoder_attention_heads": 3, "decoder_attention_heads": 2, "scale_embedding": True}),
}
MARIAN_VOCABULARY = marian_tokenizer.vocabulary()
MARIAN_PAD = MARIAN_VOCABULARY["<pad>"]
MODELS["marian"] = ("marian", {
    "vocab_size": len(MARIAN_VOCABULARY), "d_model": 24, "max_position_embeddings": CONTEXT, "encoder_layers": 1, "decoder_layers": 2,
    "encoder_ffn_dim": 28, "decoder_ffn_dim": 20, "encoder_attention_heads": 3, "decoder_attention_heads": 2, "scale_embedding": True,
    "activation_function": "swish", "decoder_start_token_id": MARIAN_PAD, "pad_token_id": MARIAN_PAD, "eos_token_id": 0, "bos_token_id": 0,
    "forced_eos_token_id": 0, "share_encoder_decoder_embeddings": True, "tie_word_embeddings": True})
# A multilingual model is told the language by the text.
MARIAN_TEXTS = [">>deu<< the cat sat on the mat, and the dog sings of the sea.", "a dog"]
# What published configurations say besides, and transformers does not read.
MARIAN_FIELDS = {
    "static_position_embeddings": True, "normalize_before": False, "normalize_embedding": False, "add_final_layer_norm": False,
    "add_bias_logits": False, "num_beams": 4}
# What a request names, after the decoder's start.
FORCED = {"mbart": "deu_Latn", "nllb": "deu_Latn"}


def tokenizer_json(kind: str) -> dict:
    """As T5's, or as NLLB's, but for sentencepiece's table of characters, whose place NFKC has."""
    pieces = PIECES if kind == "t5" else FAIRSEQ_PIECES
    special = [piece for piece, score in pieces if score == 0]
    begin = {"t5": [], "bart": ["<s>"]}.get(kind, ["eng_Latn"])
    token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    ids = {piece: i for i, (piece, _) in enumerate(pieces)}
    text, other = ({"Sequence": {"id": which, "type_id": 0}} for which in "AB")
    before = [{"SpecialToken": {"id": name, "type_id": 0}} for name in begin]
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [token | {"id": ids[text], "content": text} for text in special],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        "post_processor": {"type": "TemplateProcessing", "single": [*before, text, end], "pair": [*before, text, end, other, end],
                           "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in [*begin, "</s>"]}},
        "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": ids["<unk>"], "vocab": pieces, "byte_fallback": False},
    }


def gain(name: str, kind: str, tied: bool) -> float:
    """How large a matrix makes what it reads. Answers shall not repeat one token."""
    if name == "lm_head.weight":
        return 4.8
    if kind != "t5":
        return 2.5 if "_attn." in name else 1.6
    # Scores are not divided by the root of a head's length.
    if name.endswith((".q.weight", ".k.weight")):
        return 0.45
    # Where the embedding is the output matrix, what layers add outweighs the last token.
    parts = {"EncDecAttention.o.weight": 1.2, "SelfAttention.o.weight": 2, ".wo.weight": 8}
    return next((of for end, of in parts.items() if tied and name.endswith(end)), 1.6)


def random_model(kind: str, fields: dict, seed: int):
    config = AutoConfig.for_model(kind, **fields)
    model = AutoModelForSeq2SeqLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    tied = fields["tie_word_embeddings"]
    if not tied:
        # transformers 5 ties T5's matrices at first; those that files hold stay apart.
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
    generator = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            shape = tuple(parameter.shape)
            if name.endswith(".bias"):
                values = generator.normal(0, 0.3, shape)
            elif len(shape) == 1:
                values = generator.uniform(0.5, 1.5, shape)
            elif "relative_attention_bias" in name:
                values = generator.normal(0, 1.5, shape)
            elif "embed_positions" in name and kind == "marian":
                continue  # sines
            elif "embed_positions" in name:
                values = generator.normal(0, 1, shape)
            elif name.endswith("shared.weight") and tied:
                # Those that are scaled are the more so; logits are large enough all the same.
                values = generator.normal(0, 1 / np.sqrt(shape[-1]) if kind == "t5" else 0.9, shape)
            else:
                values = generator.normal(0, gain(name, kind, tied) / np.sqrt(shape[-1]), shape)
            parameter.copy_(torch.from_numpy(values).to(torch.bfloat16).float())
        for name, buffer in model.named_buffers():
            if name == "final_logits_bias":
                buffer.copy_(torch.from_numpy(generator.normal(0, 0.5, tuple(buffer.shape))).to(torch.bfloat16).float())
                if kind == "marian":
                    buffer[0, MARIAN_PAD] = 20.0  # the largest, so that it has to be banned
    return config, model


@torch.inference_mode()
def answers(model, source: list[int], ids: list[int], start: list[int], bad_words: list[list[int]]) -> tuple[np.ndarray, list[int], float]:
    """→ logits [ids, vocabulary], greedy continuation of `start`, the smallest margin of its steps. Each step is a pass without a cache."""
    ban = NoBadWordsLogitsProcessor(bad_words, model.config.eos_token_id) if bad_words else lambda _, logits: logits
    run = lambda tokens: model(  # noqa: E731
        input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    sequence, margin = list(start), np.inf
    for _ in range(GREEDY_TOKENS):
        best = torch.topk(ban(torch.tensor([sequence]), run(sequence)[-1:])[0], 2)
        margin = min(margin, float(best.values[0] - best.values[1]))
        sequence.append(int(best.indices[0]))
    return run(ids).numpy(), sequence[len(start) :], margin


def t5_gguf(folder: Path, name: str, config) -> None:
    """As llama.cpp's converter writes T5 (its `conversion/t5.py`)."""
    state = {key: tensor.float().numpy() for key, tensor in load_file(folder / "model.safetensors").items()}
    keys = {
        "context_length": CONTEXT, "embedding_length": config.d_model, "feed_forward_length": config.d_ff, "block_count": config.num_layers,
        "decoder_block_count": config.num_decoder_layers, "attention.head_count": config.num_heads, "attention.key_length": config.d_kv,
        "attention.value_length": config.d_kv, "attention.layer_norm_epsilon": config.layer_norm_epsilon,
        "attention.relative_buckets_count": config.relative_attention_num_buckets,
        "attention.layer_norm_rms_epsilon": config.layer_norm_epsilon, "decoder_start_token_id": config.decoder_start_token_id,
    }
    metadata = {"general.architecture": "t5", "general.type": "model", "general.name": f"tiny random {name}", "general.file_type": 32}
    metadata |= {f"t5.{key}": value for key, value in keys.items()}
    pads = VOCABULARY - len(PIECES)
    metadata |= {
        "tokenizer.ggml.model": "t5", "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [piece for piece, _ in PIECES] + [f"[PAD{len(PIECES) + at}]" for at in range(pads)],
        "tokenizer.ggml.scores": [score for _, score in PIECES] + [-1000.0] * pads,
        "tokenizer.ggml.token_type": [3, 3, 2] + [1] * (len(PIECES) - 3) + [5] * pads, "tokenizer.ggml.add_space_prefix": True,
        "tokenizer.ggml.remove_extra_whitespaces": True, "tokenizer.ggml.eos_token_id": 1, "tokenizer.ggml.unknown_token_id": 2,
        "tokenizer.ggml.padding_token_id": 0, "tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.add_eos_token": True,
    }
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.T5, max(config.num_layers, config.num_decoder_layers))
    tensors = {}
    for key, weights in state.items():
        target = names.get_name(key, try_suffixes=(".weight",))
        assert target, f"llama.cpp has no name for {key}"
        tensors[target] = (weights, "F32" if weights.ndim == 1 else "BF16")
    gguf_file.write(folder / "model.gguf", metadata, tensors)


def write_model(name: str, seed: int) -> bool:
    kind, fields = MODELS[name]
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config, model = random_model(kind, fields, seed)
    is_marian = kind == "marian"
    tokenizer = marian_tokenizer.Marian(folder) if is_marian else Tokenizer.from_str(json.dumps(tokenizer_json(kind)))
    bad_words = [[MARIAN_PAD]] if is_marian else []
    start = [fields["decoder_start_token_id"]]
    if name in FORCED:
        start.append(tokenizer.token_to_id(FORCED[name]))
    elif "forced_bos_token_id" in fields:
        start.append(fields["forced_bos_token_id"])
    generator = np.random.default_rng(seed + 1)
    cases, logits = [], []
    for text in MARIAN_TEXTS if is_marian else TEXTS:
        source = tokenizer.encode(text).ids
        ids = start + generator.integers(2, fields["vocab_size"], DECODER_TOKENS - len(start)).tolist()
        if is_marian and not cases:
            # What would come next is banned too, but for the end.
            first = answers(model, source, ids, start, bad_words)[1]
            bad_words += [first[:2], [0]]
        of_case, greedy, margin = answers(model, source, ids, start, bad_words)
        if margin < SMALLEST_MARGIN:
            return False
        cases.append({"text": text, "source": source, "ids": ids, "greedy": greedy, "answer": tokenizer.decode(greedy)})
        logits.append(of_case)
    if sum(len(set(case["greedy"])) for case in cases) < FEWEST_KINDS:
        return False
    np.save(folder / "logits.npy", np.concatenate(logits).astype("<f4"))
    golden = {"start": start, "forced": FORCED.get(name), "cases": cases}
    if is_marian:
        golden["encoded"] = [{"text": text, "ids": (ids := tokenizer.encode(text).ids), "decoded": tokenizer.decode(ids)}
                             for text in marian_tokenizer.TEXTS]
    (folder / "golden.json").write_text(json.dumps(golden, ensure_ascii=False) + "\n")
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    # Published configurations have the fields of older versions.
    path = folder / "config.json"
    written = json.loads(path.read_text())
    written = {key: value for key, value in written.items() if key != "scale_decoder_outputs"} | {
        key: fields[key] for key in ("tie_word_embeddings", "n_positions") if key in fields} | (MARIAN_FIELDS if is_marian else {})
    path.write_text(json.dumps(written, indent=2) + "\n")
    if "forced_bos_token_id" in fields:
        path = folder / "generation_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"forced_bos_token_id": fields["forced_bos_token_id"]}, indent=2) + "\n")
    if is_marian:
        path = folder / "generation_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"bad_words_ids": bad_words, "num_beams": 4}, indent=2) + "\n")
    else:
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(kind), ensure_ascii=False))
    if kind == "t5" and fields["relative_attention_max_distance"] == 128:
        t5_gguf(folder, name, config)
    print(name, f"seed {seed},", sum(file.stat().st_size for file in folder.iterdir()), "bytes")
    return True


def main():
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    for name in sys.argv[1:] or MODELS:
        if not any(write_model(name, seed) for seed in range(SEED, SEED + 1000)):
            raise SystemExit(f"{name}: no seed gives greedy steps without near ties")


if __name__ == "__main__":
    main()
