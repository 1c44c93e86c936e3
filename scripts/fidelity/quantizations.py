"""Holds the demo model in every quantisation to llama.cpp: perplexity of held-out answers, and logits.

    python scripts/fidelity/quantizations.py FOLDER [NAME ...]   (needs numpy, gguf, jinja2 and llama-cpp-python)

Makes FOLDER/NAME.gguf of models/demo/rillm-demo-q8_0.gguf, and lets llama.cpp score the answers of models/demo/eval-prompts.json twice:
with the file as it is, where its kernels also round the activations to 8 bits (or f16), and with the same weights widened to f32,
where nothing is rounded. Files that FOLDER has already are taken as they are. Then `cargo test --test engine fidelity` runs on the same files
and token ids; it prints the table of docs/fidelity.md and fails where a difference is beyond its limit.

    python scripts/fidelity/quantizations.py --golden

writes tests/golden/llama_cpp/, which the test compares with every time: llama.cpp's logits of the committed models, both ways.
"""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import llama_cpp
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "demo"
GOLDEN = ROOT / "tests" / "golden"
# One prompt in so many, so that each kind of prompt in the file has a part.
STRIDE = 3
CONTEXT = 1024
# By the name that files of the hub have.
NAMES = [
    "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K_M", "Q4_K_S", "Q4_K_M", "Q5_K_M", "Q6_K", "IQ4_NL", "IQ4_XS",
    "MXFP4",
]
# Of committed models: how many positions at the end of the prompt are compared.
POSITIONS = 6


def rewrite(source: Path, out: Path, convert):
    """Writes a GGUF file with the same metadata and other tensors: convert(name, weights in f32) gives (array, type)."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, reader.get_field("general.architecture").contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind, inner = field.types[0], field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    for tensor in reader.tensors:
        weights = np.asarray(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        array, kind = convert(tensor.name, weights.reshape([int(n) for n in reversed(tensor.shape)]))
        writer.add_tensor(tensor.name, array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def widen(source: Path, out: Path):
    """The same weights, dequantised by the package gguf, in f32."""
    rewrite(source, out, lambda name, weights: (weights, gguf.GGMLQuantizationType.F32))


def as_mxfp4(name: str, weights: np.ndarray):
    """llama.cpp's own mix takes MXFP4 for experts alone, so the package gguf makes these; the embedding is Q8_0, as in that mix."""
    if weights.ndim == 1:
        return weights, gguf.GGMLQuantizationType.F32
    kind = gguf.GGMLQuantizationType.Q8_0 if name == "token_embd.weight" else gguf.GGMLQuantizationType.MXFP4
    return gguf.quantize(weights, kind), kind


def quantize(name: str, out: Path):
    source = DEMO / "rillm-demo-q8_0.gguf"
    if name == "MXFP4":
        return rewrite(source, out, as_mxfp4)
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{name}")
    params.allow_requantize = True  # the source is Q8_0, whose numbers all types take as they are
    params.nthread = 2
    status = llama_cpp.llama_model_quantize(str(source).encode(), str(out).encode(), ctypes.byref(params))
    if status != 0:
        raise SystemExit(f"llama.cpp could not quantise to {name}: status {status}")


def load(path: Path, exact: bool) -> llama_cpp.Llama:
    """`exact`: keys and values in f32 too, and no kernel that might round them."""
    more = {"type_k": 0, "type_v": 0, "flash_attn": False} if exact else {}
    return llama_cpp.Llama(str(path), n_ctx=CONTEXT, n_threads=2, logits_all=True, verbose=False, **more)


def texts(model: llama_cpp.Llama) -> list[dict]:
    """Token ids of prompts with their answers, and where the answers begin."""
    formatter = llama_cpp.llama_chat_format.Jinja2ChatFormatter(
        template=model.metadata["tokenizer.chat_template"], eos_token="<|im_end|>", bos_token="", add_generation_prompt=True,
    )
    prompts = [prompt for prompt in json.loads((DEMO / "eval-prompts.json").read_text()) if "tools" not in prompt]
    result = []
    for prompt in prompts[::STRIDE]:
        text = formatter(messages=prompt["messages"]).prompt
        ids = model.tokenize(text.encode("utf-8"), add_bos=False, special=True)
        result.append({"ids": ids + prompt["token_ids"], "answer": len(ids)})
    return result


def score(model: llama_cpp.Llama, all_texts: list[dict]) -> tuple[float, np.ndarray]:
    """→ negative log-likelihood of the answers' tokens, logits [n, vocabulary] that predict them."""
    loss, kept = 0.0, []
    for text in all_texts:
        model.reset()
        model.eval(text["ids"])
        rows = np.array(model.scores[text["answer"] - 1 : len(text["ids"]) - 1], dtype=np.float32)
        kept.append(rows)
        rows = rows.astype(np.float64) - rows.max(axis=1, keepdims=True)
        wanted = np.array(text["ids"][text["answer"] :])
        loss += float((np.log(np.exp(rows).sum(axis=1)) - rows[np.arange(len(wanted)), wanted]).sum())
    return loss, np.concatenate(kept)


def apart(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a.astype(np.float64) - b) / np.linalg.norm(b.astype(np.float64)))


def table(folder: Path, names: list[str]):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path, wide = folder / f"{name.lower()}.gguf", folder / "widened.f32"
        if not path.exists():
            quantize(name, path)
        own = load(path, exact=False)
        if not (folder / "texts.json").exists():
            (folder / "texts.json").write_text(json.dumps(texts(own)))
        all_texts = json.loads((folder / "texts.json").read_text())
        loss, logits = score(own, all_texts)
        widen(path, wide)
        exact_loss, exact_logits = score(load(wide, exact=True), all_texts)
        wide.unlink()
        for suffix, rows in [("logits", logits), ("f32.logits", exact_logits)]:
            path.with_suffix(f".{suffix}").write_bytes(rows.astype("<f4").tobytes())
        path.with_suffix(".json").write_text(json.dumps({"loss": loss, "f32_loss": exact_loss}))
        print(f"{name}: llama.cpp's loss {loss:.4f}, in f32 {exact_loss:.4f}; its logits {apart(logits, exact_logits):.2e} apart", flush=True)
    test = ["cargo", "test", "--test", "fidelity", "quantisation", "--", "--nocapture"]
    raise SystemExit(subprocess.run(test, cwd=ROOT, env=os.environ | {"RILLM_QUANTIZATIONS": str(folder)}).returncode)


def golden():
    out = GOLDEN / "llama_cpp"
    out.mkdir(exist_ok=True)
    chat = [50, 7, 300, 1200, 15, 9, 77, 2048, 4000, 31, 5, 600, 8, 1, 99, 1023, 640, 12, 2500, 3, 44, 811, 6, 1300]
    mixed = json.loads((GOLDEN / "tiny_llama" / "mixed.ids.json").read_text())
    models = {
        "demo-q8_0": (DEMO / "rillm-demo-q8_0.gguf", chat), "demo-q4_0": (DEMO / "rillm-demo-q4_0.gguf", chat),
        "mixed-q4_k": (GOLDEN / "tiny_llama" / "mixed-q4_k.gguf", mixed),
    }
    summary = {"llama-cpp-python": llama_cpp.__version__, "positions": POSITIONS}
    with tempfile.TemporaryDirectory() as folder:
        for name, (path, ids) in models.items():
            wide = Path(folder) / "widened.gguf"
            widen(path, wide)
            rows = {}
            for kind, model in [("own", load(path, exact=False)), ("f32", load(wide, exact=True))]:
                model.eval(ids)
                rows[kind] = np.array(model.scores[len(ids) - POSITIONS : len(ids)], dtype=np.float32)
            (out / f"{name}.logits").write_bytes(rows["f32"].astype("<f4").tobytes())
            summary[name] = {"model": str(path.relative_to(ROOT)), "ids": ids, "rounding": apart(rows["own"], rows["f32"])}
            print(f"{name}: rounded activations move llama.cpp's logits by {summary[name]['rounding']:.2e}")
    (out / "golden.json").write_text(json.dumps(summary, indent=1) + "\n")


def main():
    if sys.argv[1:] == ["--golden"]:
        golden()
    else:
        table(Path(sys.argv[1]).resolve(), sys.argv[2:] or NAMES)


if __name__ == "__main__":
    main()
