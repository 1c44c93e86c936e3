"""Adds the first seeds to the corpora of the fuzz targets: small sound files of every kind, for the fuzzer to damage.

    python fuzz/seeds.py
"""

import base64
import json
import struct
import zlib

from corpus import CORPUS, pack, unpack

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind: int, data) -> bytes:
    return text(data) if kind == STRING else struct.pack("<" + SCALARS[kind], data)


def array(kind: int, items: list) -> bytes:
    parts = b"".join(item if kind == ARRAY else value(kind, item) for item in items)
    return struct.pack("<IQ", kind, len(items)) + parts


def gguf(entries: list, tensors: list, version: int = 3, alignment: int = 32) -> bytes:
    """entries: (key, type, value or bytes of an array); tensors: (name, dims, type, bytes)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries))
    for key, kind, data in entries:
        out += text(key) + struct.pack("<I", kind) + (data if kind == ARRAY else value(kind, data))
    body = b""
    for name, dims, kind, size in tensors:
        body += bytes(-len(body) % alignment)
        out += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, len(body))
        body += bytes(size)
    return out + bytes(-len(out) % alignment) + body


def llama() -> bytes:
    entries = [("general.architecture", STRING, "llama"), ("tokenizer.ggml.tokens", ARRAY, array(STRING, list("abcde")))]
    for key, number in {"block_count": 1, "embedding_length": 8, "feed_forward_length": 12, "attention.head_count": 2,
                        "attention.head_count_kv": 1, "context_length": 64, "rope.dimension_count": 4}.items():
        entries.append((f"llama.{key}", 4, number))
    entries += [("llama.rope.freq_base", 6, 10000.0), ("llama.attention.layer_norm_rms_epsilon", 6, 1e-5)]
    shapes = {"token_embd": [8, 5], "output_norm": [8], "blk.0.attn_norm": [8], "blk.0.attn_q": [8, 8], "blk.0.attn_k": [8, 4],
              "blk.0.attn_v": [8, 4], "blk.0.attn_output": [8, 8], "blk.0.ffn_norm": [8], "blk.0.ffn_gate": [8, 12],
              "blk.0.ffn_up": [8, 12], "blk.0.ffn_down": [12, 8]}
    tensors = []
    for name, dims in shapes.items():
        size = 4
        for dim in dims:
            size *= dim
        tensors.append((f"{name}.weight", dims, 0, size))
    return gguf(entries, tensors)


def every_value() -> list:
    entries = [(f"scalar.{kind}", kind, 1) for kind in SCALARS] + [("scalar.text", STRING, "grüße")]
    entries += [(f"array.{kind}", ARRAY, array(kind, [0, 1])) for kind in SCALARS]
    return entries + [("array.text", ARRAY, array(STRING, ["", "one"])),
                      ("array.array", ARRAY, array(ARRAY, [array(0, [1]), array(ARRAY, [])]))]


def safetensors(tensors: dict) -> bytes:
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    packed = json.dumps(header).encode()
    return struct.pack("<Q", len(packed)) + packed + bytes(end)


CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8, "intermediate_size": 12,
    "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 64,
    "vocab_size": 5, "hidden_act": "silu", "tie_word_embeddings": True,
}
ROPES = {
    "linear": {"rope_scaling": {"type": "linear", "factor": 2.0}},
    "llama3": {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                                   "high_freq_factor": 4.0, "original_max_position_embeddings": 32}},
    "longrope": {"rope_scaling": {"rope_type": "longrope", "long_factor": [1.0, 2.0], "short_factor": [1, 1],
                                  "original_max_position_embeddings": 32}},
    "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32}},
    "dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
    "layers": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                                   "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}},
}
LISTING = {"id": "o/n", "sha": "0" * 40, "siblings": [{"rfilename": name} for name in [
    "README.md", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "big/m-BF16-00001-of-00002.gguf", "big/m-BF16-00002-of-00002.gguf", "config.json",
    "model.safetensors"]]}


def tokenizers() -> dict:
    added = [{"id": 9, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": True, "normalized": False, "special": True},
             {"id": 8, "content": "É", "single_word": True, "lstrip": True, "rstrip": False, "normalized": True, "special": False}]
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "s", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [], "special_tokens": {"s": {"id": "s", "ids": [9], "tokens": ["<s>"]}}}
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    replace = {"type": "Replace", "pattern": {"Regex": " +"}, "content": "▁"}
    split = {"type": "Split", "pattern": {"Regex": r"\w+|\s(?=\S)"}, "behavior": "Isolated", "invert": False}
    # A double array with the one key "a", replaced by "b".
    units = [0] * 512
    units[0], units[256 ^ 0x61], units[0x180] = 256 << 10, 0x61 | 1 << 8 | (256 ^ 0x61 ^ 0x180) << 10, 1 << 31
    charsmap = base64.b64encode(struct.pack("<I512I", 2048, *units) + b"b\0").decode()
    vocab = {token: i for i, token in enumerate(["<unk>", "a", "b", "ab", "▁", "##b", "1", "<0x61>"])}
    bpe = {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True, "vocab": vocab, "merges": [["a", "b"]]}
    sequence = [replace | {"pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    return {
        "bpe": {"added_tokens": added, "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, replace]}, "pre_tokenizer": split,
                "post_processor": template, "decoder": {"type": "Sequence", "decoders": sequence}, "model": bpe},
        "byte_level": {"added_tokens": added, "pre_tokenizer": level, "post_processor": level, "decoder": level, "model": bpe | {"merges": ["a b"]}},
        "word_piece": {"added_tokens": added, "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
                       "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
                       "post_processor": {"type": "BertProcessing", "sep": ["a", 1], "cls": ["<s>", 9]},
                       "model": {"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab}},
        "unigram": {"added_tokens": added, "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap}, "pre_tokenizer": metaspace,
                    "decoder": metaspace, "model": {"type": "Unigram", "unk_id": 0, "vocab": [[token, -1.0 - i] for token, i in vocab.items()]}},
        "word_level": {"added_tokens": added, "decoder": {"type": "BPEDecoder", "suffix": "b"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                           {"type": "Whitespace"}, {"type": "Digits", "individual_digits": True}, {"type": "FixedLength", "length": 3}]},
                       "model": {"type": "WordLevel", "unk_token": "<unk>", "vocab": vocab}},
    }


# An answer of each format of tool calls, by its place in the list of src/text/tools/formats/mod.rs.
ANSWERS = {
    0: '<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": "a"}<|call|>',
    1: "<start_function_call>call:get_weather{city:<escape>Oslo<escape>,days:2}<end_function_call>",
    2: '<|tool_call>call:search{query:<|"|>a<|"|>,tags:[1]}<tool_call|>',
    3: '<｜DSML｜function_calls>\n<｜DSML｜invoke name="search">\n<｜DSML｜parameter name="query" string="true">a</｜DSML｜parameter>\n<｜DSML｜parameter name="tags" string="false">["</｜DSML｜parameter>"]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    4: '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
    5: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{\"query\": \"a\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    6: '[TOOL_CALLS][{"name": "search", "arguments": {"query": "a"}, "id": "abc123def"}]',
    7: "<seed:tool_call>\n<function=search>\n<parameter=tags>[1]</parameter>\n</function>\n</seed:tool_call>",
    8: '<minimax:tool_call>\n<invoke name="search">\n<parameter name="query">a</parameter>\n</invoke>\n</minimax:tool_call>',
    9: "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>",
    10: "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
    11: 'I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>{"query": "a"}<|tool_call_end|><|tool_calls_section_end|>',
    12: '<tool_calls>[{"name": "now", "arguments": "{}"}]</tool_calls>',
    13: '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "search", "parameters": {"query": "a"}}]<|END_ACTION|>',
    14: '<TOOLCALL>[{"name": "now", "arguments": {}}]</TOOLCALL>',
    15: "<|tool_call_start|>[get_weather(city='Oslo', days=2), now()]<|tool_call_end|>",
    16: '<think>\nhm\n</think>\nI look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}\n</tool_call>',
    17: '<|tool_call|>[{"name": "now", "arguments": {}}]<|/tool_call|>',
    18: '<|python_tag|>{"name": "search", "parameters": {"query": "a", "exact": "true"}}',
    19: "```tool_code\nget_weather(city='Oslo', days=2)\n```",
    20: 'So:\n```json\n{"name": "now", "arguments": {}}\n```',
}
FIELDS = {
    "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 4, "min_p": 0.1, "seed": 7, "stop": ["a", "b"], "stream": True,
    "frequency_penalty": 0.5, "presence_penalty": -0.5, "logit_bias": {"5": -100}, "response_format": {"type": "json_object"}, "n": 1,
    "logprobs": None, "user": "me", "speculation": {"type": "prompt_lookup"},
}
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}}]
MESSAGES = [
    {"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "u"}]},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c", "content": "t"},
]


def requests() -> dict:
    schema = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {"type": "object", "properties": {"a": {"enum": [1]}}}}}
    chat = {"model": "m", "messages": MESSAGES, "tools": TOOLS, "tool_choice": "auto"}
    all_fields = {f"field-{name}": (0, {"messages": MESSAGES[:2], name: value}) for name, value in FIELDS.items()}
    return all_fields | {
        "chat": (0, chat), "schema": (0, {"messages": MESSAGES, "response_format": schema}), "completion": (1, {"prompt": "p"} | FIELDS),
        "tokens": (1, {"prompt": [1, 2]}), "embedding": (2, {"input": ["a", "b"], "encoding_format": "base64", "dimensions": 3}),
        "embedded-tokens": (2, {"input": [[1], [2, 3]], "truncate": True}),
        "ranking": (3, {"query": "q", "documents": ["a", {"text": "b"}], "top_n": 1, "instruction": "i", "use_activation": False}),
        "labels": (4, {"input": ["a", {"text": "b", "text_pair": "c"}, [1, 2]], "truncate": True}),
    }


SCHEMAS = {
    "person": {"type": "object", "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 9}, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
               "required": ["name"], "additionalProperties": False},
    "array": {"type": "array", "items": {"enum": ["a", 1, None, True]}, "minItems": 1, "maxItems": 3},
    "tuple": {"type": "array", "prefixItems": [{"type": "number", "multipleOf": 0.5}, {"const": {"a": []}}], "items": False},
    "any-of": {"anyOf": [{"type": "string", "pattern": "^a[0-9]+$"}, {"type": "null"}, {"type": "string", "format": "date-time"}]},
    "all-of": {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}}, {"required": ["a"]}], "oneOf": [{"type": "object"}]},
    "refs": {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}}, "required": []}}},
    "map": {"type": "object", "patternProperties": {"^x": {"type": "number", "exclusiveMaximum": 3.5}}, "additionalProperties": {"type": "boolean"}},
    "laid-out": {"type": ["object", "array"], "x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}},
    "unsatisfiable": {"type": "integer", "minimum": 2, "maximum": 1},
}
REGEXES = [r"[a-z]{3,8} [0-9]{2}", r"(ab|ba)*?\.", r"^\p{L}+$", r"(?i)yes|no", r"[^\x00-\x1f\"]{0,20}", r"a(b", r"(?P<x>a){2,}\d*"]
LARKS = [
    'start: ("ab" | "ba"){2,3} "."', 'start: obj\nobj: "{" [pair ("," pair)*] "}"\npair: STRING ":" NUMBER\nSTRING: /"[a-z]*"/\nNUMBER: /[0-9]+/',
    'start: %json {"type": "object"}', '%ignore / +/\nstart: "a" start? | <[1]>', 'start: T\nT[lazy, max_tokens=3]: /.*;/', 'start: a\na: b\nb: a | "x"', 'start: foo ::: 1',
]


def grammars() -> dict:
    schemas = {f"schema-{name}": bytes([0, 7]) + json.dumps(schema).encode() for name, schema in SCHEMAS.items()}
    regexes = {f"regex-{number}": bytes([1, 3]) + regex.encode() for number, regex in enumerate(REGEXES)}
    larks = {f"lark-{number}": bytes([2, 5]) + lark.encode() for number, lark in enumerate(LARKS)}
    return schemas | regexes | larks | {"choices": bytes([3, 1]) + "red fox\ngrey (wolf)\n\né".encode()}


def templates() -> dict:
    """The templates that are compared with Jinja's, some in one."""
    golden = json.loads((CORPUS.parents[1] / "tests/golden/text/jinja.json").read_text())
    all_templates = [case["template"] for case in golden["cases"]]
    return {f"golden-{at // 8}": "\n".join(all_templates[at:at + 8]).encode() for at in range(0, len(all_templates), 8)}


def proto(*fields: tuple[int, object]) -> bytes:
    """A message of protobuf's encoding, of numbers below 128, floats, and what is bytes."""
    out = b""
    for field, data in fields:
        form = 5 if isinstance(data, float) else 0 if isinstance(data, int) else 2
        key = field << 3 | form
        out += bytes([key]) if key < 128 else bytes([key & 127 | 128, key >> 7])
        out += struct.pack("<f", data) if form == 5 else bytes([data]) if form == 0 else bytes([len(data)]) + data
    return out


def sentencepieces() -> dict:
    """Every switch, each type of model, and types of pieces."""
    pieces = [("<unk>", 0.0, 2), ("</s>", 0.0, 3), ("▁", -2.0, 1), ("a", -3.0, 1), ("▁a", -1.5, 1), ("ab", -2.5, 1), ("b", -4.0, 1)]
    written = lambda more: [(1, proto((1, text.encode()), (2, score), (3, kind))) for text, score, kind in [*pieces, *more]]  # noqa: E731
    files = {}
    for at in range(64):
        switches = [at >> bit & 1 for bit in range(4)]
        training = proto((3, 1 if at < 32 else at % 4 + 1), (24, 1 - switches[3]))
        normalization = proto((1, b"identity"), (3, switches[0]), (4, switches[1]), (5, switches[2]))
        more = [("<mark>", 0.0, 4)] if at & 16 else [("日", -5.0, 1 + at % 6)] if at & 32 else []
        files[f"switches-{at}"] = proto(*written(more), (2, training), (3, normalization))
    golden = CORPUS.parents[1] / "tests/golden/encoder_decoders/marian"
    return files | {name: (golden / f"{name}.spm").read_bytes() for name in ("source", "target")}


def checkpoint(made: int, arrays: list, version: int = 1, **said) -> bytes:
    """The state of a training; what is `said` takes the place of fields of the header."""
    settings = {"rank": 2, "alpha": 4.0, "schedule": "cosine", "model": "00" * 8, "targets": ["blk.0.attn_q.weight"], "data": "11" * 8, "heldOut": "22" * 8}
    packed = json.dumps({"settings": settings, "step": made, "lengths": [len(numbers) for numbers in arrays]} | said).encode()
    begin = b"RILLMTRN" + struct.pack("<II", version, len(packed)) + packed
    numbers = b"".join(struct.pack(f"<{len(array)}f", *array) for array in arrays)
    return b"".join(part + struct.pack("<I", zlib.crc32(part)) for part in (begin, numbers))


def checkpoints() -> dict:
    """Of every few steps with what may be held out, parts of one, and headers that say something else than what lies behind them."""
    files = {}
    for step in range(0, 12, 2):
        for held_out in range(3):
            state = [[0.5] * size for size in (4, 4, 4, 6, 6, 6)][: 3 * (step % 3)]
            files[f"step-{step}-{held_out}"] = checkpoint(step, [[3.0 / (n + 1) for n in range(step)], [2.5] * held_out, *state])
    whole = checkpoint(2, [[3.0, 2.0], [2.5], [0.0] * 4])
    files |= {f"cut-{at}": whole[:at] for at in range(0, len(whole), len(whole) // 20)}
    files |= {"longer": whole + b"more", "version-2": checkpoint(0, [[], []], version=2), "one-array": checkpoint(0, [[]]), "no-arrays": checkpoint(0, [])}
    lengths = [[3, 1, 4], [2, 1], [2, 1, 2**30], [2, 1, 2**32], [2, 1, 2**62], [2, 1, 2**64], [2, 1, -4], [2, 1, 0.5], [0] * 50, "4", None]
    files |= {f"lengths-{n}": checkpoint(2, [[3.0, 2.0], [2.5], [0.0] * 4], lengths=of) for n, of in enumerate(lengths)}
    steps = [0, 3, 2**32, 2**64, -1, 1.5, "2", None]
    files |= {f"steps-{n}": checkpoint(2, [[3.0, 2.0], []], step=of) for n, of in enumerate(steps)}
    settings = [{}, {"rank": [[[]]]}, [], None, {"é": "\ud83d"}]
    return files | {f"settings-{n}": checkpoint(2, [[3.0, 2.0], []], settings=of) for n, of in enumerate(settings)}


def sessions() -> dict:
    """Changes to a sound session, as `entries/session.rs` reads them: kind, place, and what comes there."""
    change = lambda kind, at, data=None: bytes([kind]) + struct.pack("<H", at) + (data or b"")  # noqa: E731
    sized = lambda data: bytes([len(data)]) + data  # noqa: E731
    files = {"sound": b"", "two": change(1, 40, bytes([3])) + change(2, 40, sized(b'"x"'))}
    files |= {f"cut-{at}": change(0, at) for at in (0, 8, 11, 12, 16, 17, 300, 500, 560, 600, 650, 700, 1000, 4000, 9000)}
    files |= {f"gone-{at}": change(1, at, bytes([4])) for at in (0, 8, 12, 16, 20, 60, 120, 200, 400, 480, 520, 560, 580, 600, 620, 640, 680, 700, 5000)}
    numbers = [struct.pack("<I", number) for number in (0, 1, 64, 2**31, 2**32 - 1)]
    files |= {f"number-{at}-{n}": change(3, at, sized(number)) for at in (8, 12, 450, 500, 550, 600) for n, number in enumerate(numbers)}
    texts = [b'"tokens":9,', b'{"a":' * 40, b"\xff\xfe", b'"\\ud83d"', b"[" * 200, b'"adapters":[{}],', b"1e999,", b'"created":-1,']
    return files | {f"text-{n}": change(2, 17, sized(of)) for n, of in enumerate(texts)}


def adapters() -> dict:
    """Those of the golden models, and small ones of a few matrices of `golden/architectures/llama3`: right, and not quite."""
    golden = CORPUS.parents[1] / "tests/golden/adapters"
    peft = lambda config, tensors: struct.pack("<H", len(packed := json.dumps(config).encode())) + packed + tensors  # noqa: E731
    files = {"golden.gguf": (golden / "llama/adapter0.gguf").read_bytes()}
    for name in ("llama", "llama_patterns", "qwen3", "gpt2", "bloom"):
        folder = golden / name / "adapter0"
        files[name] = peft(json.loads((folder / "adapter_config.json").read_text()), (folder / "adapter_model.safetensors").read_bytes())
    sizes = {"self_attn.q_proj": (32, 64), "self_attn.k_proj": (32, 32), "self_attn.o_proj": (64, 32), "mlp.up_proj": (32, 64), "mlp.down_proj": (64, 32)}

    def pair(module: str, rank: int, kind: str = "F32", layer: int = 0) -> dict:
        columns, rows = sizes[module]
        name, width = f"base_model.model.model.layers.{layer}.{module}", 2 if "16" in kind else 4
        return {f"{name}.lora_A.weight": (kind, [rank, columns], rank * columns * width), f"{name}.lora_B.weight": (kind, [rows, rank], rows * rank * width)}

    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}
    for module in sizes:
        for rank in (1, 2, 5):
            for kind in ("F32", "F16", "BF16"):
                files[f"{module}-{rank}-{kind}"] = peft(config | {"r": rank, "target_modules": [module.split(".")[1]]}, safetensors(pair(module, rank, kind)))
    whole = safetensors(pair("self_attn.q_proj", 2))
    said = [{"r": 0}, {"r": -1}, {"r": 2**31}, {"r": 1.5}, {"r": None}, {"lora_alpha": 0}, {"lora_alpha": 1e300}, {"lora_alpha": "4"}, {"use_rslora": True},
            {"use_dora": True}, {"bias": "all"}, {"peft_type": "IA3"}, {"target_modules": "all-linear"}, {"target_modules": ".*q_proj"}, {"target_modules": "(((("},
            {"target_modules": []}, {"rank_pattern": {"q_proj": 2}}, {"rank_pattern": {"q_proj": 3}}, {"alpha_pattern": {"layers.0.*": 1}}, {"alpha_pattern": {"^": 0}},
            {"modules_to_save": ["lm_head"]}, {"layers_to_transform": [0]}, {"layers_to_transform": 7}, {"fan_in_fan_out": True}, {"trainable_token_indices": [1]}]
    files |= {f"said-{n}": peft(config | more, whole) for n, more in enumerate(said)}
    second = pair("self_attn.q_proj", 2, layer=2)
    half = dict([next(iter(pair("self_attn.q_proj", 2).items()))])
    return files | {"no-layer": peft(config, safetensors(second)), "half": peft(config, safetensors(half)), "none": peft(config, safetensors({}))}


# Of the quantised matrices of `entries/config_json.rs`, all [64, 64].
PACKED_SIZES = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}


def seeds() -> dict:
    configs = {"llama": CONFIG} | {name: CONFIG | rope for name, rope in ROPES.items()}
    for kind in ["mistral", "qwen2", "qwen3", "qwen3_moe", "mixtral", "gemma2", "gemma3_text", "phi3", "smollm3", "olmo2", "granite",
                 "stablelm", "gpt2", "bert", "roberta"]:
        configs[kind] = CONFIG | {"model_type": kind, "sliding_window": 16, "layer_norm_eps": 1e-5}
    configs["nested"] = {"model_type": "gemma3", "text_config": CONFIG}
    for method in ("gptq", "awq", "bitsandbytes", "compressed-tensors", "fp8"):
        groups = {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32, "strategy": "group"}}}
        how = {"quant_method": method, "bits": 4, "group_size": 32, "config_groups": groups, "weight_block_size": [128, 128]}
        configs[method] = CONFIG | PACKED_SIZES | {"quantization_config": how}
    configs["mlx"] = CONFIG | PACKED_SIZES | {"quantization": {"bits": 4, "group_size": 64, "lm_head": {"bits": 8, "group_size": 32}}}
    references = ["hf:o/n", "hf:o/n:Q8_0", "hf:o/n@v1/big", "hf:o/n@refs/pr/1:safetensors", "hf:o/n/m-Q8_0.gguf"]
    index = {"metadata": {"total_size": 8}, "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "x/model-00002-of-00002.safetensors"}}
    split = [("split.no", 2, 1), ("split.count", 2, 3), ("split.tensors.count", 5, 7)]
    return {
        "gguf": {"llama": llama(), "values-v2": gguf(every_value(), [], 2), "values-v3": gguf(every_value(), [("a", [4], 0, 16)]),
                 "split": gguf(split, [("a", [32, 2], 8, 68)]), "aligned": gguf([("general.alignment", 4, 8)], [("a", [3], 1, 6), ("b", [1], 0, 4)], 3, 8)},
        "safetensors": {"some": safetensors({"a": ("F32", [2, 2], 16), "b": ("BF16", [3], 6), "c": ("I64", [], 8), "d": ("F16", [0], 0)}),
                        "none": safetensors({})},
        "index_json": {"two": json.dumps(index).encode()},
        "config_json": {name: json.dumps(config).encode() for name, config in configs.items()},
        "tokenizer_json": {name: json.dumps(file, ensure_ascii=False).encode() for name, file in tokenizers().items()},
        "sentencepiece_model": sentencepieces(),
        "tool_calls": {f"family-{number}": bytes([number, 2 if "<think>" in answer else 0, number]) + answer.encode()
                       for number, answer in ANSWERS.items()},
        "requests": {name: bytes([kind]) + json.dumps(request).encode() for name, (kind, request) in requests().items()},
        "grammar_schema": grammars(),
        "chat_template": templates(),
        "checkpoint": checkpoints(),
        "session": sessions(),
        "adapter": adapters(),
        "hub": {f"reference-{number}": f"{reference}\n{json.dumps(LISTING)}".encode() for number, reference in enumerate(references)},
    }


for target, files in seeds().items():
    folder = CORPUS / target
    if (CORPUS / f"{target}.tar.gz").exists():
        unpack(target)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    print(f"{target}: {len(files)} seeds of {pack(target)} files")
