"""The Llama that is trained: Hugging Face's parameter names and maths, flex attention over packed conversations.

`CONFIG` is the one place where the sizes stand. export.py checks that transformers computes the same logits.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

CONFIG = {
    "vocab_size": 4096,
    "hidden_size": 512,
    "intermediate_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 1024,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
BLOCK = 32


def fake_q4_0(weights):
    """What a Q4_0 file would hold, with the gradient passed straight through."""
    blocks = weights.detach().float().unflatten(-1, (-1, BLOCK))
    high, low = blocks.amax(-1, keepdim=True), blocks.amin(-1, keepdim=True)
    scale = torch.where(high >= -low, high, low) / -8
    inverse = torch.where(scale == 0, 0, 1 / scale)
    levels = (blocks * inverse + 8.5).floor().clamp(0, 15) - 8
    held = (levels * scale.half().float()).flatten(-2)
    return weights + (held - weights).detach()


def fake_q8_0(weights):
    blocks = weights.detach().float().unflatten(-1, (-1, BLOCK))
    scale = blocks.abs().amax(-1, keepdim=True) / 127
    inverse = torch.where(scale == 0, 0, 1 / scale)
    held = ((blocks * inverse).round() * scale.half().float()).flatten(-2)
    return weights + (held - weights).detach()


class Linear(nn.Linear):
    quantise = False

    def __init__(self, columns, rows):
        super().__init__(columns, rows, bias=False)

    def forward(self, x):
        return F.linear(x, fake_q4_0(self.weight) if self.quantise else self.weight)


class RMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        scaled = x.float()
        scaled = scaled * torch.rsqrt(scaled.square().mean(-1, keepdim=True) + CONFIG["rms_norm_eps"])
        return (scaled * self.weight).type_as(x)


def rotate(x, cosine, sine):  # x: [batch, heads, tokens, head_dim]; rotates the halves of a head
    first, second = x.float().chunk(2, -1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1).type_as(x)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        hidden, head = CONFIG["hidden_size"], CONFIG["head_dim"]
        self.q_proj = Linear(hidden, CONFIG["num_attention_heads"] * head)
        self.k_proj = Linear(hidden, CONFIG["num_key_value_heads"] * head)
        self.v_proj = Linear(hidden, CONFIG["num_key_value_heads"] * head)
        self.o_proj = Linear(CONFIG["num_attention_heads"] * head, hidden)

    def forward(self, x, rope, mask):
        def heads(tensor):  # [batch, tokens, heads * head_dim] → [batch, heads, tokens, head_dim]
            return tensor.unflatten(-1, (-1, CONFIG["head_dim"])).transpose(1, 2)

        query, key, value = heads(self.q_proj(x)), heads(self.k_proj(x)), heads(self.v_proj(x))
        query, key = rotate(query, *rope).type_as(value), rotate(key, *rope).type_as(value)
        if mask is None:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        else:
            mixed = flex_attention(query, key, value, block_mask=mask, enable_gqa=True)
        return self.o_proj(mixed.transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = Linear(CONFIG["hidden_size"], CONFIG["intermediate_size"])
        self.up_proj = Linear(CONFIG["hidden_size"], CONFIG["intermediate_size"])
        self.down_proj = Linear(CONFIG["intermediate_size"], CONFIG["hidden_size"])

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = RMSNorm(CONFIG["hidden_size"])
        self.self_attn = Attention()
        self.post_attention_layernorm = RMSNorm(CONFIG["hidden_size"])
        self.mlp = MLP()

    def forward(self, x, rope, mask):
        x = x + self.self_attn(self.input_layernorm(x), rope, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(CONFIG["vocab_size"], CONFIG["hidden_size"])
        self.layers = nn.ModuleList(Layer() for _ in range(CONFIG["num_hidden_layers"]))
        self.norm = RMSNorm(CONFIG["hidden_size"])


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Decoder()
        self.quantise = False
        half = CONFIG["head_dim"] // 2
        frequencies = CONFIG["rope_theta"] ** (-torch.arange(half).float() / half)
        angles = torch.outer(torch.arange(CONFIG["max_position_embeddings"]).float(), frequencies)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                narrow = (2 * CONFIG["num_hidden_layers"]) ** -0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1
                nn.init.normal_(parameter, std=0.02 * narrow)

    def set_quantise(self, on: bool):
        """Whether the forward pass sees the matrices as Q4_0 and the embedding as Q8_0 would hold them."""
        self.quantise = on
        for module in self.modules():
            if isinstance(module, Linear):
                module.quantise = on

    def forward(self, ids, mask=None):
        """ids [batch, tokens] → logits [batch, tokens, vocabulary]; mask: a BlockMask, or None for plain causal."""
        embedding = self.model.embed_tokens.weight
        if self.quantise:
            embedding = fake_q8_0(embedding)
        x = F.embedding(ids, embedding)
        rope = self.cosine[: ids.shape[1]], self.sine[: ids.shape[1]]
        for layer in self.model.layers:
            x = layer(x, rope, mask)
        return F.linear(self.model.norm(x), embedding)

