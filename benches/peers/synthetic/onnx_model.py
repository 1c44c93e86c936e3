"""The folder that transformers.js loads, of a shape with random weights. The graph is laid out as onnxruntime-genai's model
builder writes decoders (https://github.com/microsoft/onnxruntime-genai, src/python/py/models/builder.py) and its operators are
ONNX Runtime's own (docs/ContribOperators.md there): GroupQueryAttention with packed query, key and value and the rope inside,
normalisation fused with the residual, products as onnx_graph.py has them. Logits are those of the last token only (num_logits_to_keep)."""

import pathlib

import numpy as np
from onnx import TensorProto, helper, save_model

from onnx_graph import DTYPES, SUFFIXES, Graph, write_json
from shapes import CONTEXT_LENGTH, EPSILON, Shape
from vocabulary import BEGIN, END, vocabulary


class Decoder(Graph):
    def __init__(self, graph_file: pathlib.Path, shape: Shape, dtype: str, seed: int):
        super().__init__(graph_file, dtype, seed)
        self.shape = shape

    def rope_caches(self) -> tuple[str, str]:
        dim = self.shape.head_dim
        frequencies = self.shape.rope_theta ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
        angles = np.outer(np.arange(CONTEXT_LENGTH), frequencies)  # [positions, head_dim / 2]
        return tuple(self.data.add(name, table.astype(self.numpy), self.element) for name, table in (("cos_cache", np.cos(angles)), ("sin_cache", np.sin(angles))))

    def lengths(self) -> tuple[str, str]:
        """What GroupQueryAttention wants to know of the mask: for each sequence its length less one, and the longest length."""
        summed = self.node("ReduceSum", ["attention_mask", self.constant("axis_1", [1], [1])], "mask/sum", keepdims=0)
        less_one = self.node("Sub", [summed, self.constant("one", [1], [1])], "mask/less_one")
        past = self.node("Cast", [less_one], "mask/seqlens_k", to=TensorProto.INT32)
        dims = self.node("Shape", ["attention_mask"], "mask/shape")
        total = self.node("Gather", [dims, self.constant("index_1", [1], [])], "mask/total", axis=0)
        return past, self.node("Cast", [total], "mask/total_sequence_length", to=TensorProto.INT32)

    def build(self):
        shape = self.shape
        query, key_value = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        x = self.embedding("embed_tokens", "input_ids", shape.vocab, shape.n_embd)
        cos, sin = self.rope_caches()
        seqlens_k, total = self.lengths()

        norm = self.ones("layers.0.input_layernorm.weight", shape.n_embd)
        normed = self.node("SimplifiedLayerNormalization", [x, norm], "layers.0/input_layernorm", axis=-1, epsilon=EPSILON, stash_type=1)
        for layer in range(shape.layers):
            at = f"layers.{layer}"
            qkv = self.mat_mul(normed, f"{at}/qkv_proj", query + 2 * key_value, shape.n_embd, bias=shape.arch == "qwen2")
            past = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
            present = [f"present.{layer}.{part}" for part in ("key", "value")]
            attention = self.node(
                "GroupQueryAttention", [qkv, "", "", *past, seqlens_k, total, cos, sin], f"{at}/attention", [f"{at}/attention/output", *present],
                domain="com.microsoft", num_heads=shape.heads, kv_num_heads=shape.kv_heads, scale=shape.head_dim**-0.5,
                do_rotary=1, rotary_interleaved=0, local_window_size=-1,
            )
            y = self.mat_mul(attention, f"{at}/o_proj", shape.n_embd, query)
            normed, x = self.add_and_norm(x, y, f"{at}/post_attention_layernorm")
            gate = self.mat_mul(normed, f"{at}/gate_proj", shape.n_ff, shape.n_embd)
            up = self.mat_mul(normed, f"{at}/up_proj", shape.n_ff, shape.n_embd)
            swish = self.node("Mul", [gate, self.node("Sigmoid", [gate], f"{at}/sigmoid")], f"{at}/swish")
            y = self.mat_mul(self.node("Mul", [swish, up], f"{at}/gated"), f"{at}/down_proj", shape.n_embd, shape.n_ff)
            last = layer + 1 == shape.layers
            normed, x = self.add_and_norm(x, y, "norm" if last else f"layers.{layer + 1}/input_layernorm")
        begin = self.node("Neg", ["num_logits_to_keep"], "logits/begin")
        begin = self.node("Unsqueeze", [begin, self.constant("axis_0", [0], [1])], "logits/begin_1d")
        bounds = [begin, self.constant("int64_max", [2**63 - 1], [1]), "axis_1"]
        kept = self.node("Slice", [normed, *bounds], "logits/kept")
        logits = self.mat_mul(kept, "lm_head", shape.vocab, shape.n_embd)
        self.nodes[-1].output[0] = "logits"
        assert logits == "lm_head/output"
        self.data.close()
        return self.graph()

    def add_and_norm(self, x: str, y: str, name: str) -> tuple[str, str]:
        gamma = self.ones(f"{name}.weight", self.shape.n_embd)
        outputs = [f"{name}/output", "", "", f"{name}/sum"]
        self.node("SkipSimplifiedLayerNormalization", [x, y, gamma], name, outputs, domain="com.microsoft", epsilon=EPSILON)
        return outputs[0], outputs[3]

    def graph(self):
        shape = self.shape
        value = helper.make_tensor_value_info
        cache = lambda name, length: value(name, self.element, ["batch_size", shape.kv_heads, length, shape.head_dim])
        parts = [(layer, part) for layer in range(shape.layers) for part in ("key", "value")]
        inputs = [
            value("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"]),
            value("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"]),
            value("num_logits_to_keep", TensorProto.INT64, []),
            *(cache(f"past_key_values.{layer}.{part}", "past_sequence_length") for layer, part in parts),
        ]
        outputs = [
            value("logits", self.element, ["batch_size", "num_logits_to_keep", shape.vocab]),
            *(cache(f"present.{layer}.{part}", "total_sequence_length") for layer, part in parts),
        ]
        return self.model("decoder", inputs, outputs)


def write_onnx(folder: pathlib.Path, shape: Shape, dtypes: list[str], seed: int) -> None:
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    files = {}
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise SystemExit(f"there is no dtype {dtype} here: there are {', '.join(DTYPES)}")
        graph_file = folder / "onnx" / f"model{SUFFIXES[dtype]}.onnx"
        decoder = Decoder(graph_file, shape, dtype, seed)
        save_model(decoder.build(), graph_file)
        files[graph_file.name] = decoder.data.files
    write_json(folder / "config.json", config(shape, files))
    ends = {"bos_token_id": shape.vocab - 2, "eos_token_id": shape.vocab - 1}
    write_json(folder / "generation_config.json", {"do_sample": False, **ends})
    write_tokenizer(folder, shape.vocab)


def config(shape: Shape, files: dict[str, int]) -> dict:
    llama = shape.arch == "llama"
    return {
        "architectures": ["LlamaForCausalLM" if llama else "Qwen2ForCausalLM"],
        "model_type": shape.arch,
        "hidden_size": shape.n_embd,
        "intermediate_size": shape.n_ff,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "max_position_embeddings": CONTEXT_LENGTH,
        "rms_norm_eps": EPSILON,
        "rope_theta": shape.rope_theta,
        "tie_word_embeddings": True,
        "bos_token_id": shape.vocab - 2,
        "eos_token_id": shape.vocab - 1,
        "transformers.js_config": {"use_external_data_format": files},
    }


def write_tokenizer(folder: pathlib.Path, size: int) -> None:
    tokens, merges = vocabulary(size)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    write_json(folder / "tokenizer.json", {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": tokens.index(token), "content": token, **special} for token in (BEGIN, END)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: n for n, token in enumerate(tokens)},
            "merges": [" ".join(merge) for merge in merges],
        },
    })
    write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": CONTEXT_LENGTH,
    })
