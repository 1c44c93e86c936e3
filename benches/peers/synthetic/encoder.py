"""A sentence encoder, BERT, of random weights: a GGUF file for rillm and wllama, and a folder for transformers.js. The graph has ONNX Runtime's own
operators (docs/ContribOperators.md there), into which it would join those of a graph that PyTorch exports: MultiHeadAttention, normalisation fused with the
residual, the GELU with the bias before it."""

import pathlib

import numpy as np
from gguf import GGUFWriter, PoolingType
from onnx import TensorProto, helper, save_model

from gguf_model import FILE_TYPES, random_blocks
from onnx_graph import SUFFIXES, Graph, write_json
from shapes import EMBEDDING_STD, LAYER_NORM_EPSILON, WEIGHT_STD, EncoderShape
from vocabulary import CLASS, MASK, PADDING, SEPARATOR, SPECIAL_WORDS, UNKNOWN, words


def write_encoder_gguf(path: str, name: str, shape: EncoderShape, quantization: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    writer = GGUFWriter(path, "bert")
    writer.add_name(f"{name} shape, random weights")
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.positions)
    writer.add_embedding_length(shape.n_embd)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.heads)
    writer.add_layer_norm_eps(LAYER_NORM_EPSILON)
    writer.add_causal_attention(False)
    writer.add_pooling_type(PoolingType.MEAN)
    writer.add_file_type(FILE_TYPES[quantization])
    writer.add_tokenizer_model("bert")
    writer.add_token_type_count(2)
    # Words that begin one have a mark here; in BERT's own vocabulary the others have one.
    writer.add_token_list([word if n in SPECIAL_WORDS else f"▁{word}" for n, word in enumerate(words(shape.vocab))])
    writer.add_token_types([3 if n in SPECIAL_WORDS else 1 for n in range(shape.vocab)])
    writer.add_pad_token_id(PADDING)
    writer.add_unk_token_id(UNKNOWN)
    writer.add_bos_token_id(CLASS)
    writer.add_uint32("tokenizer.ggml.cls_token_id", CLASS)
    writer.add_eos_token_id(SEPARATOR)
    writer.add_sep_token_id(SEPARATOR)
    writer.add_mask_token_id(MASK)

    def floats(tensor: str, *dims: int, mean: float = 0, std: float = WEIGHT_STD) -> None:
        writer.add_tensor(tensor, (mean + rng.standard_normal(dims) * std).astype(np.float32))

    def norm(tensor: str) -> None:
        floats(f"{tensor}.weight", shape.n_embd, mean=1)
        floats(f"{tensor}.bias", shape.n_embd)

    def matrix(tensor: str, rows: int, columns: int) -> None:
        data, raw_dtype = random_blocks(rng, quantization, rows, columns, WEIGHT_STD)
        writer.add_tensor(f"{tensor}.weight", data, raw_dtype=raw_dtype)
        floats(f"{tensor}.bias", rows)

    data, raw_dtype = random_blocks(rng, quantization, shape.vocab, shape.n_embd, EMBEDDING_STD)
    writer.add_tensor("token_embd.weight", data, raw_dtype=raw_dtype)
    floats("position_embd.weight", shape.positions, shape.n_embd, std=EMBEDDING_STD)
    floats("token_types.weight", 2, shape.n_embd, std=EMBEDDING_STD)
    norm("token_embd_norm")
    for layer in range(shape.layers):
        prefix = f"blk.{layer}"
        for part in ("q", "k", "v", "output"):
            matrix(f"{prefix}.attn_{part}", shape.n_embd, shape.n_embd)
        norm(f"{prefix}.attn_output_norm")
        matrix(f"{prefix}.ffn_up", shape.n_ff, shape.n_embd)
        matrix(f"{prefix}.ffn_down", shape.n_embd, shape.n_ff)
        norm(f"{prefix}.layer_output_norm")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Encoder(Graph):
    def __init__(self, graph_file: pathlib.Path, shape: EncoderShape, dtype: str, seed: int):
        super().__init__(graph_file, dtype, seed)
        self.shape = shape

    def norm_inputs(self, name: str) -> list[str]:
        return [self.ones(f"{name}.weight", self.shape.n_embd), self.noise(f"{name}.bias", self.shape.n_embd, std=WEIGHT_STD)]

    def add_and_norm(self, x: str, y: str, name: str, bias: str) -> str:
        inputs = [y, x, *self.norm_inputs(name), bias]
        return self.node("SkipLayerNormalization", inputs, name, domain="com.microsoft", epsilon=LAYER_NORM_EPSILON)

    def embeddings(self) -> str:
        shape = self.shape
        dims = self.node("Shape", ["input_ids"], "shape")
        length = self.node("Gather", [dims, self.constant("index_1", [1], [])], "length", axis=0)
        zero, one = self.constant("zero", [0], []), self.constant("one", [1], [])
        positions = self.node("Unsqueeze", [self.node("Range", [zero, length, one], "positions"), self.constant("axis_0", [0], [1])], "positions/batch")
        tokens = self.embedding("word_embeddings", "input_ids", shape.vocab, shape.n_embd)
        types = self.embedding("token_type_embeddings", "token_type_ids", 2, shape.n_embd)
        places = self.embedding("position_embeddings", positions, shape.positions, shape.n_embd)
        summed = self.node("Add", [self.node("Add", [tokens, types], "embeddings/typed"), places], "embeddings/sum")
        return self.node("LayerNormalization", [summed, *self.norm_inputs("embeddings/norm")], "embeddings/norm", axis=-1, epsilon=LAYER_NORM_EPSILON)

    def build(self):
        shape = self.shape
        x = self.embeddings()
        mask = self.node("Cast", ["attention_mask"], "mask", to=TensorProto.INT32)
        for layer in range(shape.layers):
            at = f"layers.{layer}"
            parts = [self.mat_mul(x, f"{at}/{part}", shape.n_embd, shape.n_embd) for part in ("query", "key", "value")]
            biases = self.noise(f"{at}/qkv.bias", 3 * shape.n_embd, std=WEIGHT_STD)
            y = self.node("MultiHeadAttention", [*parts, biases, mask], f"{at}/attention", domain="com.microsoft", num_heads=shape.heads)
            y = self.mat_mul(y, f"{at}/output", shape.n_embd, shape.n_embd)
            x = self.add_and_norm(x, y, f"{at}/attention_norm", self.noise(f"{at}/output.bias", shape.n_embd, std=WEIGHT_STD))
            y = self.mat_mul(x, f"{at}/up", shape.n_ff, shape.n_embd)
            y = self.node("BiasGelu", [y, self.noise(f"{at}/up.bias", shape.n_ff, std=WEIGHT_STD)], f"{at}/gelu", domain="com.microsoft")
            y = self.mat_mul(y, f"{at}/down", shape.n_embd, shape.n_ff)
            x = self.add_and_norm(x, y, f"{at}/norm", self.noise(f"{at}/down.bias", shape.n_embd, std=WEIGHT_STD))
        self.nodes.append(helper.make_node("Identity", [x], ["last_hidden_state"], name="last_hidden_state"))
        self.data.close()
        value = helper.make_tensor_value_info
        inputs = [value(name, TensorProto.INT64, ["batch_size", "sequence_length"]) for name in ("input_ids", "attention_mask", "token_type_ids")]
        outputs = [value("last_hidden_state", TensorProto.FLOAT, ["batch_size", "sequence_length", shape.n_embd])]
        return self.model("encoder", inputs, outputs)


def write_encoder_onnx(folder: pathlib.Path, shape: EncoderShape, dtypes: list[str], seed: int) -> None:
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    files = {}
    for dtype in dtypes:
        if dtype not in ("q8", "fp32"):
            raise SystemExit(f"encoders are written in q8 and fp32, and not in {dtype}: pass --dtypes q8,fp32")
        graph_file = folder / "onnx" / f"model{SUFFIXES[dtype]}.onnx"
        encoder = Encoder(graph_file, shape, dtype, seed)
        save_model(encoder.build(), graph_file)
        files[graph_file.name] = encoder.data.files
    write_json(folder / "config.json", {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_size": shape.n_embd,
        "intermediate_size": shape.n_ff,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.positions,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": LAYER_NORM_EPSILON,
        "pad_token_id": PADDING,
        "transformers.js_config": {"use_external_data_format": files},
    })
    write_tokenizer(folder, shape)


def write_tokenizer(folder: pathlib.Path, shape: EncoderShape) -> None:
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    begin, end = ({"SpecialToken": {"id": SPECIAL_WORDS[n], "type_id": 0}} for n in (CLASS, SEPARATOR))
    write_json(folder / "tokenizer.json", {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": n, "content": word, **special} for n, word in SPECIAL_WORDS.items()],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}, end],
            "pair": [begin, {"Sequence": {"id": "A", "type_id": 0}}, end, {"Sequence": {"id": "B", "type_id": 1}}, end],
            "special_tokens": {SPECIAL_WORDS[n]: {"id": SPECIAL_WORDS[n], "ids": [n], "tokens": [SPECIAL_WORDS[n]]} for n in (CLASS, SEPARATOR)},
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": SPECIAL_WORDS[UNKNOWN],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {word: n for n, word in enumerate(words(shape.vocab))},
        },
    })
    write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "BertTokenizer",
        "cls_token": SPECIAL_WORDS[CLASS],
        "sep_token": SPECIAL_WORDS[SEPARATOR],
        "pad_token": SPECIAL_WORDS[PADDING],
        "unk_token": SPECIAL_WORDS[UNKNOWN],
        "mask_token": SPECIAL_WORDS[MASK],
        "do_lower_case": True,
        "model_max_length": shape.positions,
    })
