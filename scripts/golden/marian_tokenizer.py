"""A tiny tokenizer as Marian's folders have it: two sentencepiece models, and the ids of the pieces of both. transformers' own class reads it.

The two languages share no more than letters. vocab.json lacks a piece of the first, and has characters that the first does not know.
"""

import contextlib
import io
import json
import tempfile
from collections import namedtuple
from functools import cache
from pathlib import Path

import sentencepiece
from transformers import MarianTokenizer

SOURCE = ["the cat sat on the mat", "and the dog sings of the sea", "a dog is in a cat's house: he sings, she sat", "0123456789 (the) \"sea\"-dog!?"]
TARGET = ["die Katze saß auf der Matte", "und der Hund singt vom Meer", "ein Hund ist im Haus der Katze: größer, öde, übel"]
CODES = [">>deu<<", ">>fra<<"]
# The whole normalisation of sentencepiece takes 240 kB.
RULES = [("ﬁ", "fi"), ("Ａ", "a"), ("\u3000", " "), ("\t", " "), ("\n", " "), ("’", "'"), ("½", "1/2")]
# Texts that only the tokenizer gets.
TEXTS = [
    "the cat sat", "  the   cat  ", "", " ", ">>deu<< the cat", ">>deu<<the cat", ">>xyz<< a dog", "a >>deu<< dog", ">>fra<<", ">> the", "<<>>deu<<",
    "ﬁ’s ½ Ａ\u3000dog\tsea\nsings", "größer ß ßß öü", "über", "日本 a 日", "</s>", "a</s> dog", "<pad>the <unk> cat</s>", "▁the ▁▁cat", "thecatsat",
    "0123456789", "e\u0301", "Hund", "a" * 70,
]


def train(lines: list[str], pieces: int) -> bytes:
    model = io.BytesIO()
    code = lambda text: " ".join(f"{ord(letter):X}" for letter in text)  # noqa: E731
    # The model names the file of its rules.
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("rules.tsv").write_text("".join(f"{code(source)}\t{code(target)}\n" for source, target in RULES))
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines * 5), model_writer=model, model_type="unigram", vocab_size=pieces, character_coverage=1.0,
            normalization_rule_tsv="rules.tsv", num_threads=1, minloglevel=2, hard_vocab_limit=False)
    return model.getvalue()


@cache
def models() -> tuple[bytes, bytes]:
    return train(SOURCE, 58), train(TARGET, 50)


@cache
def vocabulary() -> dict[str, int]:
    """The pieces of both languages, without one of the first, the codes of languages, and padding at the end."""
    pieces = []
    for model in models():
        spm = sentencepiece.SentencePieceProcessor(model_proto=model)
        ids = range(spm.vocab_size())
        pieces += [spm.id_to_piece(i) for i in ids if not (spm.is_control(i) or spm.is_unknown(i))]
    missing = "▁cat"
    assert missing in pieces, pieces
    kept = [piece for piece in dict.fromkeys(pieces) if piece != missing]
    return {piece: i for i, piece in enumerate(["</s>", "<unk>", *kept, *CODES, "<pad>"])}


class Marian:
    """transformers' tokenizer, with the methods of the crate's, and its files."""

    def __init__(self, folder: Path):
        for name, model in zip(("source.spm", "target.spm"), models(), strict=True):
            (folder / name).write_bytes(model)
        (folder / "vocab.json").write_text(json.dumps(vocabulary(), ensure_ascii=False, indent=0) + "\n")
        (folder / "tokenizer_config.json").write_text(json.dumps({
            "target_lang": "de", "source_lang": "en", "unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>", "model_max_length": 64,
            "separate_vocabs": False, "tokenizer_class": "MarianTokenizer"}) + "\n")
        self.tokenizer = MarianTokenizer.from_pretrained(folder)

    def encode(self, text: str):
        return namedtuple("Encoding", "ids")(self.tokenizer(text).input_ids)

    def decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)
