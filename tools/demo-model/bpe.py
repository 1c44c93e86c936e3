"""Trains a byte-level BPE tokenizer with the pre-tokenizer that GGUF files call "qwen2".

Knows text and vocabulary sizes, nothing about the model.
"""

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

# What GGUF readers apply for `tokenizer.ggml.pre = "qwen2"`: contractions, words with at most one leading
# other character, single digits, runs of punctuation, line ends, spaces.
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_bpe(texts, vocab_size: int, special_tokens: list[str]) -> Tokenizer:
    """vocab_size counts the special tokens, which take the last ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(special_tokens),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special_tokens])
    if tokenizer.get_vocab_size() != vocab_size:
        raise ValueError(f"wanted {vocab_size} tokens, the text gave {tokenizer.get_vocab_size()}")
    return tokenizer
