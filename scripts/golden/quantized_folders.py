"""Writes tiny random Llamas and Qwen3-MoEs as folders that other libraries' formats quantise, into tests/golden/quantized/NAME/.

    python scripts/golden/quantized_folders.py [NAME …]   (needs torch, transformers, safetensors, numpy; on the CPU)

The libraries themselves (GPTQModel, AutoAWQ, bitsandbytes, compressed-tensors, MLX) are not needed: each function here packs as their
documentation and sources describe it, and says which. `expected.json` has the CRC-32 of every matrix as these formats dequantise it to
float32, and `logits.npy` what transformers answers with those matrices.

- GPTQ: AutoGPTQ's QuantLinear (`qweight` int32 [inputs / 8, outputs], `qzeros` [groups, outputs / 8] less one in version 1, `scales`,
  `g_idx`); (quant - zero) * scale.
- AWQ: AutoAWQ's WQLinear_GEMM (`qweight` int32 [inputs, outputs / 8] in the order 0 2 4 6 1 3 5 7).
- bitsandbytes: Params4bit and Int8Params (`absmax`, `quant_map`, `nested_absmax`, `nested_quant_map`, `quant_state`; `SCB`).
- compressed-tensors: pack_to_int32 (offset by half of the range), IntQuantizationCompressor, FloatQuantizationCompressor.
- FP8: transformers' `finegrained_fp8`, Fp8Dequantize.
- MLX: mlx.core.quantize, mode "affine".
"""

import json
import shutil
import sys
import zlib
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3MoeConfig

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "quantized"
SEED = 4711
PROMPT_TOKENS = 11
CONFIG = dict(
    vocab_size=64, hidden_size=64, num_attention_heads=2, num_key_value_heads=1, head_dim=32, intermediate_size=256,
    num_hidden_layers=1, max_position_embeddings=64, rope_theta=10000.0, rms_norm_eps=1e-5, tie_word_embeddings=True,
    bos_token_id=0, eos_token_id=1,
)
EXPERTS = dict(num_experts=3, num_experts_per_tok=2, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])
# Rows of 96 are no whole groups of 64, nor 96 rows whole blocks of 40.
PARTS = dict(intermediate_size=96, tie_word_embeddings=False)
OURS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
OURS_OF_EXPERTS = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
NF4 = np.asarray([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], np.float32)
FP4 = np.asarray([0, 0.0625, 8, 12, 4, 6, 2, 3], np.float32) / np.float32(12)
FP4 = np.concatenate([FP4, -FP4])


def packed(quants: np.ndarray, bits: int, order=None) -> np.ndarray:
    """Numbers along the last dimension into int32, the first lowest."""
    count = 32 // bits
    rows = quants.reshape(*quants.shape[:-1], -1, count).astype(np.uint32)
    if order is not None:
        rows = rows[..., order]
    shifts = (np.arange(count) * bits).astype(np.uint32)
    return np.bitwise_or.reduce(rows << shifts, axis=-1).view(np.int32)


def tensor(array: np.ndarray, dtype=None) -> torch.Tensor:
    made = torch.from_numpy(np.ascontiguousarray(array))
    return (made if dtype is None else made.to(dtype)).clone()


def rounded(array: np.ndarray, dtype) -> np.ndarray:
    return tensor(array.astype(np.float32)).to(dtype).float().numpy()


def affine(w: np.ndarray, group: int, bits: int, dtype, symmetric: bool):
    """Quants [rows, columns], scales and zeros [rows, groups] of min-max quantisation."""
    rows, columns = w.shape
    group = min(group, columns)
    if rest := columns % group:
        parts = [affine(part, group, bits, dtype, symmetric) for part in (w[:, :columns - rest], w[:, columns - rest:])]
        return tuple(np.concatenate(arrays, axis=1) for arrays in zip(*parts))
    g = w.reshape(rows, -1, group)
    top = 2**bits - 1
    if symmetric:
        scales = rounded(np.abs(g).max(-1) * 2 / top, dtype)
        zeros = np.full(scales.shape, 2 ** (bits - 1))
    else:
        low, high = np.minimum(g.min(-1), 0), np.maximum(g.max(-1), 0)
        scales = rounded((high - low) / top, dtype)
        # Zero is not a zero point of version 1 of GPTQ's files.
        zeros = np.clip(np.round(-low / scales), 1, top)
    quants = np.clip(np.round(g / scales[..., None]) + zeros[..., None], 0, top)
    return quants.reshape(rows, columns).astype(np.int64), scales.astype(np.float32), zeros.astype(np.int64)


def spread(values: np.ndarray, columns: int) -> np.ndarray:
    return np.repeat(values, columns // values.shape[1], axis=1)


def gptq(bits, group, symmetric, version, ordered=False):
    def one(rng, w):
        rows, columns = w.shape
        of_group = columns if group == -1 else min(group, columns)
        groups = np.arange(columns) // of_group
        if ordered:
            groups = rng.permutation(groups)
        order = np.argsort(groups, kind="stable")
        quants = np.empty(w.shape, np.int64)
        quants[:, order], scales, zeros = affine(w[:, order], of_group, bits, torch.float16, symmetric)
        weights = (quants - zeros[:, groups]).astype(np.float32) * scales[:, groups]
        stored = zeros - (1 if version == "gptq" else 0)
        return weights, {
            ".qweight": tensor(packed(quants, bits).T), ".qzeros": tensor(packed(stored.T, bits)),
            ".scales": tensor(scales.T, torch.float16), ".g_idx": tensor(groups.astype(np.int32)),
        }
    how = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": symmetric, "desc_act": ordered, "checkpoint_format": version}
    return one, {"quantization_config": how}


def awq(group):
    def one(rng, w):
        quants, scales, zeros = affine(w, group, 4, torch.float16, False)
        weights = (quants - spread(zeros, w.shape[1])).astype(np.float32) * spread(scales, w.shape[1])
        return weights, {
            ".qweight": tensor(packed(quants.T, 4, AWQ_ORDER)), ".qzeros": tensor(packed(zeros.T, 4, AWQ_ORDER)),
            ".scales": tensor(scales.T, torch.float16),
        }
    return one, {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}}


def codebook(name, numbers, nested):
    def one(rng, w):
        blocks = w.reshape(-1, 64)
        absmax = np.abs(blocks).max(-1)
        tensors = {".weight.quant_map": tensor(numbers)}
        state = {"quant_type": name, "blocksize": 64, "dtype": "bfloat16", "shape": list(w.shape)}
        if nested:
            # Any sorted map of 256 numbers does; bitsandbytes' is "dynamic".
            places = np.linspace(-1, 1, 256)
            code = (np.sign(places) * places**2).astype(np.float32)
            offset = float(absmax.mean())
            rest = absmax - np.float32(offset)
            factors = np.asarray([np.abs(part).max() for part in np.split(rest, range(256, len(rest), 256))], np.float32)
            of_scale = np.repeat(factors, 256)[: len(rest)]
            bytes_ = np.abs((rest / of_scale)[:, None] - code).argmin(-1).astype(np.uint8)
            absmax = code[bytes_] * of_scale + np.float32(offset)
            state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": offset}
            tensors |= {
                ".weight.absmax": tensor(bytes_), ".weight.nested_absmax": tensor(factors), ".weight.nested_quant_map": tensor(code)}
        else:
            tensors[".weight.absmax"] = tensor(absmax.astype(np.float32))
        quants = np.abs((blocks / absmax[:, None])[..., None] - numbers).argmin(-1).reshape(-1, 2).astype(np.uint8)
        tensors[".weight"] = tensor((quants[:, :1] << 4) | quants[:, 1:])
        tensors[f".weight.quant_state.bitsandbytes__{name}"] = tensor(np.frombuffer(json.dumps(state).encode(), np.uint8).copy())
        weights = numbers[quants.reshape(-1, 64)] * absmax[:, None].astype(np.float32)
        return weights.reshape(w.shape), tensors
    how = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": name, "bnb_4bit_use_double_quant": nested}
    return one, {"quantization_config": how}


def llm_int8():
    def one(rng, w):
        maxima = np.abs(w).max(-1, keepdims=True).astype(np.float32)
        quants = np.round(w / maxima * 127).astype(np.int8)
        weights = quants.astype(np.float32) * (maxima * np.float32(1 / 127))
        # bitsandbytes' own order of products (int8_vectorwise_dequant) differs in the last bit.
        theirs = quants.astype(np.float32) * maxima * np.float32(7.874015718698502e-3)
        assert np.abs(weights - theirs).max() <= 2e-7 * np.abs(theirs).max()
        return weights, {
            ".weight": tensor(quants), ".SCB": tensor(maxima[:, 0]), ".weight_format": torch.tensor(0, dtype=torch.uint8)}
    return one, {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False}}


def compressed(form, bits, kind, group, symmetric, zeros_as_bytes=False):
    strategy = {"num_bits": bits, "type": kind, "symmetric": symmetric, "strategy": "group" if group else "channel", "group_size": group}

    def one(rng, w):
        rows, columns = w.shape
        if kind == "float":
            scales = rounded(np.abs(w).max(-1, keepdims=True) / 448, torch.bfloat16)
            quants = tensor((w / scales).astype(np.float32)).to(torch.float8_e4m3fn)
            return quants.float().numpy() * scales, {
                ".weight": quants, ".weight_scale": tensor(scales, torch.bfloat16), ".input_scale": torch.ones(1)}
        quants, scales, zeros = affine(w, group or columns, bits, torch.bfloat16, symmetric)
        weights = (quants - spread(zeros, columns)).astype(np.float32) * spread(scales, columns)
        tensors = {".weight_scale": tensor(scales, torch.bfloat16)}
        if form == "pack-quantized":
            tensors |= {".weight_packed": tensor(packed(quants, bits)), ".weight_shape": torch.tensor(w.shape)}
            if zeros_as_bytes:  # as versions before 0.9 wrote them
                tensors[".weight_zero_point"] = tensor((zeros - 2 ** (bits - 1)).astype(np.int8))
            elif not symmetric:
                tensors[".weight_zero_point"] = tensor(packed(zeros.T, bits).T)
        else:
            tensors[".weight"] = tensor((quants - 2 ** (bits - 1)).astype(np.int8))
            if not symmetric:
                tensors[".weight_zero_point"] = tensor((zeros - 2 ** (bits - 1)).astype(np.int8))
        return weights, tensors
    how = {
        "quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": strategy, "input_activations": None}}}
    return one, {"quantization_config": how}


def fp8(block):
    def one(rng, w):
        padded = np.pad(w, [(0, -size % side) for size, side in zip(w.shape, block)])
        blocks = padded.reshape(padded.shape[0] // block[0], block[0], padded.shape[1] // block[1], block[1])
        scales = (np.abs(blocks).max((1, 3)) / 448).astype(np.float32)
        of_weight = np.kron(scales, np.ones(block, np.float32))[: w.shape[0], : w.shape[1]].astype(np.float32)
        quants = tensor((w / of_weight).astype(np.float32)).to(torch.float8_e4m3fn)
        return quants.float().numpy() * of_weight, {".weight": quants, ".weight_scale_inv": tensor(scales)}
    return one, {"quantization_config": {
        "quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": list(block)}}


def fp8_tensor():
    def one(rng, w):
        scale = np.float32(np.abs(w).max() / 448)
        quants = tensor((w / scale).astype(np.float32)).to(torch.float8_e4m3fn)
        return quants.float().numpy() * scale, {
            ".weight": quants, ".weight_scale_inv": torch.tensor(scale), ".activation_scale": torch.tensor(0.5)}
    return one, {"quantization_config": {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}}


def bit_stream(quants: np.ndarray, bits: int) -> np.ndarray:
    """Numbers along the last dimension without gaps, each with its lowest bit first, as words."""
    of_number = (quants[..., None] >> np.arange(bits)) & 1
    stream = of_number.astype(np.uint8).reshape(*quants.shape[:-1], -1)
    return np.ascontiguousarray(np.packbits(stream, axis=-1, bitorder="little")).view(np.uint32)


def mlx(bits, group, dtype):
    def one(rng, w):
        rows, columns = w.shape
        g = w.reshape(rows, -1, group)
        low, high = g.min(-1), g.max(-1)
        scales = rounded((high - low) / (2**bits - 1), dtype)
        summands = rounded(low, dtype)
        quants = np.clip(np.round((g - summands[..., None]) / scales[..., None]), 0, 2**bits - 1).reshape(w.shape)
        # A product of so few bits is exact in float32, so there is one rounding.
        weights = quants.astype(np.float32) * spread(scales, columns) + spread(summands, columns)
        words = tensor(bit_stream(quants.astype(np.int64), bits))
        return weights, {".weight": words, ".scales": tensor(scales, dtype), ".biases": tensor(summands, dtype)}
    return one, {"quantization": {"group_size": group, "bits": bits}, "quantization_config": {"group_size": group, "bits": bits}}


FOLDERS = {
    "gptq4": gptq(4, 128, True, "gptq"),
    "gptq4_ordered": gptq(4, 32, False, "gptq", ordered=True),
    "gptq8": gptq(8, -1, False, "gptq_v2"),
    "awq": awq(64),
    "nf4": codebook("nf4", NF4, True),
    "fp4": codebook("fp4", FP4, False),
    "llm_int8": llm_int8(),
    "int4": compressed("pack-quantized", 4, "int", 32, False),
    "int4_symmetric": compressed("pack-quantized", 4, "int", 128, True),
    "int8": compressed("int-quantized", 8, "int", None, True),
    "int8_zeros": compressed("int-quantized", 8, "int", 64, False),
    "fp8_channels": compressed("float-quantized", 8, "float", None, True),
    "fp8_blocks": fp8((128, 128)),
    "fp8_tensor": fp8_tensor(),
    "mlx2": mlx(2, 32, torch.float16),
    "mlx3": mlx(3, 64, torch.bfloat16),
    "mlx4": mlx(4, 64, torch.float16),
    "mlx5": mlx(5, 64, torch.float16),
    "mlx6": mlx(6, 64, torch.bfloat16),
    "mlx8": mlx(8, 32, torch.bfloat16),
    "gptq4_parts": gptq(4, 64, False, "gptq"),
    "int4_zero_bytes": compressed("pack-quantized", 4, "int", 32, False, zeros_as_bytes=True),
    "awq_experts": awq(32),
    "fp8_experts": fp8((40, 64)),
}
# Of some folders other sizes. A head of its own is quantised too; modules that are named are not.
SIZES = {
    "gptq4_parts": PARTS, "awq_experts": EXPERTS | {"moe_intermediate_size": 64},
    "fp8_experts": EXPERTS | {"moe_intermediate_size": 96, "tie_word_embeddings": False},
}
# How far weights of so few bits are from the original ones.
FURTHEST = {"mlx2": 0.5, "mlx3": 0.3}
NOT_QUANTIZED = {"gptq4_parts": ["self_attn.v_proj"], "fp8_experts": ["lm_head"]}


def crc(weights: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(weights, "<f4").tobytes())


@torch.inference_mode()
def write(name: str, one, how: dict):
    out = OUT / name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    rng = np.random.default_rng(SEED)
    torch.manual_seed(SEED)
    sizes = CONFIG | SIZES.get(name, {})
    config = (Qwen3MoeConfig if "num_experts" in sizes else LlamaConfig)(**sizes)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    state, expected = {}, {}
    for stem, values in list(model.named_parameters()):
        module = stem.removesuffix(".weight")
        ours = next((f"blk.0.{ours}.weight" for theirs, ours in OURS.items() if module.endswith(theirs)), None)
        if module == "lm_head":
            ours = "output.weight"
        if any(module.endswith(plain) for plain in NOT_QUANTIZED.get(name, [])):
            ours = None
        if values.dim() >= 2:
            values.copy_(torch.from_numpy((rng.standard_normal(values.shape) * 0.15).astype(np.float32)))
        if module.endswith("embed_tokens") and name.startswith("mlx"):
            ours = "token_embd.weight"
        if values.dim() == 3:
            # transformers has the experts side by side, and gate and up in one; files have a matrix for each.
            names = ["gate_proj", "up_proj"] if stem.endswith("gate_up_proj") else ["down_proj"]
            parts = [expert.chunk(len(names)) for expert in values]
            for number, projection in enumerate(names):
                all_weights = []
                for expert, matrices in enumerate(parts):
                    original = matrices[number].numpy().copy()
                    weights, tensors = one(rng, original)
                    assert np.linalg.norm(weights - original) < FURTHEST.get(name, 0.2) * np.linalg.norm(original), (name, stem)
                    matrices[number].copy_(torch.from_numpy(weights))
                    all_weights.append(weights)
                    prefix = f"{stem.rpartition('.')[0]}.{expert}.{projection}"
                    state |= {prefix + end: part for end, part in tensors.items()}
                expected[f"blk.0.{OURS_OF_EXPERTS[projection]}.weight"] = crc(np.stack(all_weights))
            continue
        if ours is None:
            values.copy_(values.to(torch.bfloat16).float())
            state[stem] = values.to(torch.bfloat16).contiguous()
            continue
        weights, tensors = one(rng, values.numpy().astype(np.float64).astype(np.float32))
        assert weights.dtype == np.float32 and weights.shape == values.shape, name
        error = np.linalg.norm(weights - values.numpy()) / np.linalg.norm(values.numpy())
        assert error < FURTHEST.get(name, 0.2), (name, stem, error)
        values.copy_(torch.from_numpy(weights))
        expected[ours] = crc(weights)
        state |= {module + end: part for end, part in tensors.items()}
    save_file(state, out / "model.safetensors", metadata={"format": "pt"})
    said = json.loads(config.to_json_string(use_diff=False))
    kept = {key: said[key] for key in [*sizes, "model_type", "architectures", "hidden_act", "rope_parameters"] if key in said}
    # transformers calls the number of experts otherwise than the hub's files of this model.
    written = kept | {key: sizes[key] for key in sizes if key == "num_experts"} | {"architectures": [type(model).__name__]} | how
    if name in NOT_QUANTIZED:
        written["quantization_config"]["modules_to_not_convert"] = NOT_QUANTIZED[name]
    if "output.weight" in expected:
        written["quantization_config"]["lm_head"] = True
    (out / "config.json").write_text(json.dumps(written, indent=1) + "\n")
    words = {f"t{number}": number for number in range(CONFIG["vocab_size"])}
    tokenizer = {"model": {"type": "WordLevel", "unk_token": "t0", "vocab": words}, "pre_tokenizer": {"type": "Whitespace"}}
    (out / "tokenizer.json").write_text(json.dumps(tokenizer) + "\n")
    ids = np.random.default_rng(SEED).integers(0, CONFIG["vocab_size"], PROMPT_TOKENS).tolist()
    np.save(out / "logits.npy", model(torch.tensor([ids])).logits[0].numpy().astype("<f4"))
    (out / "expected.json").write_text(json.dumps({"ids": ids, "crc32": expected}, indent=1) + "\n")
    print(f"{name:16} {sum(path.stat().st_size for path in out.iterdir()):7} bytes")


def main():
    torch.set_num_threads(1)
    for name, (one, how) in FOLDERS.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            write(name, one, how)


if __name__ == "__main__":
    main()
