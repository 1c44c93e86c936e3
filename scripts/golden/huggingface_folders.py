"""Writes tiny random models as Hugging Face folders, as transformers saves them, and their logits into tests/golden/folders/NAME/.

    python scripts/golden/huggingface_folders.py   (needs torch, transformers, tokenizers, safetensors, gguf, numpy; on the CPU)

The reference is transformers in float32 on the CPU, on exactly the weights that the files hold, and on what is left of them when the
package gguf has quantised all matrices. Here the container is in question (several files with an index, types of elements);
architectures are in architectures.py.
"""

import json
import shutil
from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from tiny_models import FIELDS, SPECIAL, TEXT, random_state, reference_model, train_bpe

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "folders"
SEED = 777
PROMPT_TOKENS = 21
SIZES = FIELDS | {"vocab_size": 272, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96}
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
MODELS = {
    # Several files with an index, float16, an output matrix of its own.
    "llama_sharded_f16": ("llama", torch.float16, "48KB", SIZES | {
        "head_dim": 16, "rope_theta": 500000.0, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}),
    # One file, bfloat16, biases, tied embeddings.
    "qwen2_bf16": ("qwen2", torch.bfloat16, "1GB", SIZES | {"rope_theta": 1000000.0, "rms_norm_eps": 1e-6}),
}


@torch.inference_mode()
def write_model(name: str, arch: str, dtype: torch.dtype, shard: str, config: dict):
    out = OUT / name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    state = random_state(arch, config, SEED)
    reference_model(arch, config, state).to(dtype).save_pretrained(out, max_shard_size=shard)
    tokenizer = train_bpe([TEXT], config["vocab_size"], SPECIAL)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=SPECIAL[2], pad_token=SPECIAL[0], chat_template=TEMPLATE)
    fast.save_pretrained(out)
    ids = np.random.default_rng(SEED).integers(0, config["vocab_size"], PROMPT_TOKENS).tolist()
    # Read again, since `to` rounds rope's frequencies too, which no file holds.
    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager").eval()
    logits = model(torch.tensor([ids])).logits[0].numpy()
    np.save(out / "logits.npy", logits.astype("<f4"))
    (out / "ids.json").write_text(json.dumps(ids) + "\n")
    for target in ("q8_0", "q4_0"):
        quantized = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager").eval()
        for stem, matrix in quantized.named_parameters():
            if matrix.dim() == 2:
                # What gives the logits is worth more than four bits.
                gives_logits = stem.startswith("lm_head") or (config["tie_word_embeddings"] and "embed_tokens" in stem)
                kind = gguf.GGMLQuantizationType["Q8_0" if gives_logits else target.upper()]
                blocks = gguf.quants.quantize(matrix.numpy(), kind)
                matrix.copy_(torch.from_numpy(gguf.quants.dequantize(blocks, kind).reshape(matrix.shape)))
        np.save(out / f"logits.{target}.npy", quantized(torch.tensor([ids])).logits[0].numpy().astype("<f4"))
    print(name, sorted(path.name for path in out.iterdir()))


def main():
    torch.set_num_threads(1)
    for name, spec in MODELS.items():
        write_model(name, *spec)


if __name__ == "__main__":
    main()
