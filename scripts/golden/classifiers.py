"""Writes tiny random models that score or label texts, and what transformers gives for some, into tests/golden/classifiers/MODEL/: a Hugging
Face folder as the hub has it and, where llama.cpp has the architecture with its head, the same model as GGUF with its names.

    python scripts/golden/classifiers.py [MODEL ...]   (needs torch, transformers, tokenizers, safetensors, gguf, numpy; on the CPU)

The reference is transformers in float32 on the CPU: logits of `…ForSequenceClassification`, and of a causal model's tokens. Weights are random
with a fixed seed.
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
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification
from transformers.utils import logging

import encoders
from tiny_models import SPECIAL, TEXT, gguf_file, hf_gguf, train_bpe

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "classifiers"
SEED = 909
QUERY = "Where is the cat?"
DOCUMENTS = [
    "the cat sat on the mat.", "dogs run", "", "singing is great in the city by the sea, and the dog is on the mat!", "a",
    "Is the SEA a great small city?",
]
LABELS = ["contradiction", "entailment", "neutral"]
CONTEXT = encoders.CONTEXT
VOCABULARY = 288  # of the decoders
SMALL = {"hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 60}
# The prompt of Qwen3-Reranker, as its model card has it.
PREFIX = ('<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the '
          'answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n')
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
OTHER_INSTRUCTION = "Find the document with an animal in it"
# Chat templates in the form that sentence-transformers writes for rerankers.
RERANK_TEMPLATE = (
    '{%- set ns = namespace(instruction="' + INSTRUCTION + '") -%}\n'
    '{%- for message in messages -%}{%- if message.role == "system" -%}{%- set ns.instruction = message.content -%}{%- endif -%}{%- endfor -%}\n'
    '{%- set query = messages | selectattr("role", "eq", "query") | map(attribute="content") | first -%}\n'
    '{%- set document = messages | selectattr("role", "eq", "document") | map(attribute="content") | first -%}\n'
    "{{- " + json.dumps(PREFIX) + ' + "<Instruct>: " + ns.instruction + "\\n<Query>: " + query + "\\n<Document>: " + document + '
    + json.dumps(SUFFIX) + " -}}"
)

WORD_PIECE = {
    # A cross-encoder with one label, whose files say that scores stay logits.
    "bert_reranker": ("bert", SMALL | {
        "max_position_embeddings": CONTEXT, "num_labels": 1, "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}),
    # The mean of a text's tokens goes to the head, which is that of llama.cpp.
    "modern_bert_reranker": ("modernbert", encoders.CONFIGS["modern_bert"] | {"num_labels": 1, "classifier_pooling": "mean"}),
    # Heads of other forms.
    "distilbert_labels": ("distilbert", encoders.CONFIGS["distilbert"] | {"num_labels": 2}),
    "deberta_v2_labels": ("deberta-v2", encoders.CONFIGS["deberta_v2"] | {"num_labels": 3, "id2label": dict(enumerate(LABELS))}),
    "electra_labels": ("electra", encoders.CONFIGS["electra"] | {"num_labels": 2}),
    # Of pairs, with three labels.
    "bert_nli": ("bert", SMALL | {
        "max_position_embeddings": CONTEXT, "id2label": dict(enumerate(LABELS)), "label2id": {label: i for i, label in enumerate(LABELS)}}),
}
MODELS = list(WORD_PIECE) + ["xlm_roberta_reranker", "qwen3_reward", "qwen3_reranker"]


def fill(model, generator) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            shape = tuple(parameter.shape)
            if name.endswith(".bias"):
                values = generator.normal(0, 0.3, shape)
            elif len(shape) == 1:
                values = generator.uniform(0.5, 1.5, shape)
            else:
                values = generator.normal(0, 1.6 / np.sqrt(shape[-1]), shape)
            # Representable in bfloat16, so that a smaller file holds exactly these.
            parameter.copy_(torch.from_numpy(values).bfloat16().float())


@torch.inference_mode()
def logits(model, ids: list[int], types: list[int] | None) -> list[float]:
    inputs = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
    if types is not None:
        inputs["token_type_ids"] = torch.tensor([types])
    return [round(float(x), 6) for x in model(**inputs).logits[0].reshape(-1)]


def save(model, folder: Path, tokenizer: str, dtype=torch.float32) -> dict:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model.to(dtype).save_pretrained(folder)
    model.to(torch.float32)
    (folder / "model.safetensors").chmod(0o644)
    (folder / "tokenizer.json").write_text(tokenizer + "\n")
    return {name: tensor.float().numpy() for name, tensor in load_file(folder / "model.safetensors").items()}


def cut(tokenizer: Tokenizer, most: int) -> list[list[int]]:
    """Pairs that are too long, the longer text of each cut first."""
    tokenizer.enable_truncation(most, strategy="longest_first")
    long = " ".join(DOCUMENTS * 3)
    pairs = [(QUERY, long), (long, QUERY), (long, long + " the cat")]
    ids = [tokenizer.encode(*pair).ids for pair in pairs]
    tokenizer.no_truncation()
    return [{"texts": pair, "ids": one} for pair, one in zip(pairs, ids)]


def pair_model(kind: str, model_type: str, more: dict, tokenizer_text: str, vocabulary: int, uses_types: bool) -> None:
    config = AutoConfig.for_model(model_type, vocab_size=vocabulary, **more)
    model = AutoModelForSequenceClassification.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    fill(model, np.random.default_rng(SEED))
    tokenizer = Tokenizer.from_str(tokenizer_text)
    pairs = [tokenizer.encode(QUERY, document) for document in DOCUMENTS]
    singles = [tokenizer.encode(document) for document in DOCUMENTS]
    typed = lambda encoding: logits(model, encoding.ids, encoding.type_ids if uses_types else None)  # noqa: E731
    golden = {
        "query": QUERY, "documents": DOCUMENTS, "pair_ids": [pair.ids for pair in pairs],
        "pair_logits": [typed(pair) for pair in pairs], "logits": [typed(single) for single in singles], "cut": cut(tokenizer, CONTEXT),
    }
    state = save(model, OUT / kind, tokenizer_text)
    (OUT / kind / "golden.json").write_text(json.dumps(golden) + "\n")
    write_gguf(kind, model_type, config, state)


def write_gguf(kind: str, model_type: str, config, state: dict) -> None:
    """Only where llama.cpp has the whole head."""
    if kind not in GGUF:
        return
    encoder = GGUF[kind]
    metadata = encoders.gguf_metadata(encoder, config, "cls") | {f"{encoders.ARCHS[encoder]}.pooling_type": 4}
    if encoder == "xlm_roberta":
        # As converters write it for a pair template with two tokens between the texts.
        metadata |= {"tokenizer.ggml.add_sep_token": True}
    arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == encoders.ARCHS[encoder])
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    tensors = {}
    for name, weights in state.items():
        if encoder == "modern_bert":
            # As llama.cpp's converter renames it.
            name = name.removeprefix("model.").replace("classifier.", "classifier.out_proj.")
        target = names.get_name(name.removeprefix("roberta."), try_suffixes=(".weight", ".bias"))
        assert target, f"llama.cpp has no name for {name}"
        if target == "position_embd.weight":
            weights = weights[encoders.FIRST_POSITION.get(encoder, 0) :]
        tensors[target] = (weights, "F32")
    gguf_file.write(OUT / kind / "model.gguf", metadata, tensors)


GGUF = {"xlm_roberta_reranker": "xlm_roberta", "modern_bert_reranker": "modern_bert"}


def qwen3(num_labels: int | None) -> tuple:
    sizes = {
        "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "intermediate_size": 64, "max_position_embeddings": 512, "tie_word_embeddings": num_labels is None, "pad_token_id": 0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}, "eos_token_id": 2}
    if num_labels is not None:
        sizes |= {"num_labels": num_labels, "problem_type": "regression"}
    config = AutoConfig.for_model("qwen3", **sizes)
    auto = AutoModelForCausalLM if num_labels is None else AutoModelForSequenceClassification
    model = auto.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    fill(model, np.random.default_rng(SEED + (num_labels or 0)))
    return config, model


def qwen_tokenizer() -> Tokenizer:
    """Bytes and pairs of them, with the control tokens of Qwen and the words yes and no."""
    tokenizer = train_bpe([TEXT] + ["yes", "no"] * 100, VOCABULARY, SPECIAL)
    assert all(tokenizer.token_to_id(word) is not None for word in ("yes", "no"))
    return tokenizer


def reward() -> None:
    """A decoder with a head for two numbers, as reward models have."""
    _, model = qwen3(2)
    tokenizer = qwen_tokenizer()
    text = tokenizer.to_str()
    ids = [tokenizer.encode(document).ids for document in DOCUMENTS if document]
    # A text that ends with the padding token, which is not its last one.
    ids.append(ids[0] + [0])
    golden = {"ids": ids, "logits": [logits(model, one, None) for one in ids]}
    save(model, OUT / "qwen3_reward", text, torch.bfloat16)
    (OUT / "qwen3_reward/golden.json").write_text(json.dumps(golden) + "\n")


@torch.inference_mode()
def reranker() -> None:
    """A causal model that is judged by its tokens yes and no."""
    config, model = qwen3(None)
    tokenizer = qwen_tokenizer()
    yes, no = (tokenizer.token_to_id(word) for word in ("yes", "no"))
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids  # noqa: E731
    cases = {}
    for instruction in (INSTRUCTION, OTHER_INSTRUCTION):
        scores = []
        for document in DOCUMENTS:
            ids = encode(PREFIX) + encode(f"<Instruct>: {instruction}\n<Query>: {QUERY}\n<Document>: {document}") + encode(SUFFIX)
            last = model(torch.tensor([ids])).logits[0, -1]
            scores.append({"ids": ids, "logits": [round(float(last[token]), 6) for token in (yes, no)]})
        cases[instruction] = scores
    folder = OUT / "qwen3_reranker"
    state = save(model, folder, tokenizer.to_str(), torch.bfloat16)
    golden = {"query": QUERY, "documents": DOCUMENTS, "yes": yes, "no": no, "default": cases[INSTRUCTION], "instruction": OTHER_INSTRUCTION,
              "instructed": cases[OTHER_INSTRUCTION], "chat_template": RERANK_TEMPLATE}
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")
    metadata = hf_gguf_metadata(config, tokenizer) | {
        "qwen3.pooling_type": 4, "qwen3.classifier.output_labels": ["yes", "no"], "tokenizer.chat_templates": ["rerank"],
        "tokenizer.chat_template.rerank": PREFIX + f"<Instruct>: {INSTRUCTION}\n<Query>: {{query}}\n<Document>: {{document}}" + SUFFIX,
    }
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, config.num_hidden_layers)
    tensors = {names.get_name(name, try_suffixes=(".weight",)): (weights, "F32") for name, weights in state.items() if name != "lm_head.weight"}
    tensors["cls.output.weight"] = (state["model.embed_tokens.weight"][[yes, no]], "F32")
    gguf_file.write(folder / "model.gguf", metadata, tensors)


def hf_gguf_metadata(config, tokenizer: Tokenizer) -> dict:
    keys = {
        "context_length": config.max_position_embeddings, "embedding_length": config.hidden_size, "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size, "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads, "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim, "rope.freq_base": 1000000.0, "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
    }
    general = {"general.architecture": "qwen3", "general.type": "model", "general.name": "tiny random qwen3", "general.file_type": 0}
    tokens = hf_gguf.tokenizer_metadata(json.loads(tokenizer.to_str()), SPECIAL[0], SPECIAL[2], SPECIAL[0])
    return general | {f"qwen3.{key}": value for key, value in keys.items()} | tokens


def main():
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    for kind in sys.argv[1:] or MODELS:
        if kind in WORD_PIECE:
            model_type, more = WORD_PIECE[kind]
            text = json.dumps(encoders.word_piece_tokenizer(), ensure_ascii=False)
            pair_model(kind, model_type, more, text, len(encoders.WORDS), model_type in ("bert", "electra"))
        elif kind == "xlm_roberta_reranker":
            more = encoders.CONFIGS["xlm_roberta"] | {"num_labels": 1}
            text = json.dumps(encoders.unigram_tokenizer(), ensure_ascii=False)
            pair_model(kind, "xlm-roberta", more, text, len(encoders.PIECES), False)
        elif kind == "qwen3_reward":
            reward()
        elif kind == "qwen3_reranker":
            reranker()
        print(kind, sum(f.stat().st_size for f in (OUT / kind).rglob("*") if f.is_file()), "bytes")


if __name__ == "__main__":
    main()
