"""Trains a small sentencepiece BPE model on tests/golden/text/texts.json and writes it, with the ids that sentencepiece itself
gives for every text, to tests/golden/text/sentencepiece.json. The scores are sentencepiece's own, and runs of one character,
where merges of equal score compete, are in the texts. And a unigram model with a normalisation like T5's and XLM-RoBERTa's, cut
to the characters of the texts (the whole one takes 300 kB), to tests/golden/text/unigram.json.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install sentencepiece==0.2.3 protobuf
    /tmp/venv/bin/python scripts/golden/sentencepiece_model.py
"""

import base64
import io
import json
import pathlib
import tempfile
import unicodedata

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

folder = pathlib.Path(__file__).parents[2] / "tests/golden/text"
texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))[:600]

model = io.BytesIO()
lines = [line for text in texts for line in text.split("\n") if line and "\0" not in line]
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(lines * 3), model_writer=model, model_type="bpe", vocab_size=1200, byte_fallback=True,
    character_coverage=0.985, normalization_rule_name="identity", remove_extra_whitespaces=False,
    split_by_whitespace=False, allow_whitespace_only_pieces=True, split_digits=True, num_threads=1,
    minloglevel=2, hard_vocab_limit=False,
)
spm = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def token_type(i):
    return 2 if spm.is_unknown(i) else 3 if spm.is_control(i) else 6 if spm.is_byte(i) else 5 if spm.is_unused(i) else 1


ids = range(spm.vocab_size())
# sentencepiece takes a text with NUL only up to there in some of its ways in; those texts are left out.
kept = [text for text in texts if "\0" not in text]
golden = {
    "source": f"sentencepiece {sentencepiece.__version__}",
    "add_special": False,
    "vocabulary": {
        "model": "llama",
        "tokens": [spm.id_to_piece(i) for i in ids],
        "scores": [spm.get_score(i) for i in ids],
        "token_types": [token_type(i) for i in ids],
        "merges": [],
        "bos": spm.bos_id(),
        "eos": spm.eos_id(),
        "unk": spm.unk_id(),
    },
    "texts": kept,
    "ids": [spm.encode(text) for text in kept],
    "decoded": [spm.decode(spm.encode(text)) for text in kept],
}
path = folder / "sentencepiece.json"
path.write_text(json.dumps(golden, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
print(f"{path}: {len(ids)} tokens, {len(kept)} texts, {sum(map(len, golden['ids']))} ids, {path.stat().st_size} bytes")

texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
rules = {("e\u0301", "é"), ("a\u0308", "ä")}
for c in sorted({c for text in texts for c in text}):
    space = c in "\t\n\r\u200b" or unicodedata.category(c) in ("Zs", "Zl", "Zp")
    control = unicodedata.category(c) == "Cc"
    rules.add((c, " " if space else "" if control else unicodedata.normalize("NFKC", c)))
points = lambda text: " ".join(f"{ord(c):X}" for c in text)
with tempfile.NamedTemporaryFile("w", suffix=".tsv") as tsv:
    tsv.writelines(f"{points(a)}\t{points(b)}\n" for a, b in sorted(rules) if a != b and "\0" not in a)
    tsv.flush()
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 3), model_writer=model, model_type="unigram", vocab_size=900,
        character_coverage=0.985, normalization_rule_tsv=tsv.name, num_threads=1, minloglevel=2, hard_vocab_limit=False,
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, user_defined_symbols=["<mark>"],
    )
spm = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
ids = range(spm.vocab_size())
golden = {
    "source": f"sentencepiece {sentencepiece.__version__}, unigram",
    "vocabulary": {
        "tokens": [spm.id_to_piece(i) for i in ids],
        "scores": [spm.get_score(i) for i in ids],
        "token_types": [4 if spm.id_to_piece(i) == "<mark>" else token_type(i) for i in ids],
        "charsmap": base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode(),
    },
    "ids": [None if "\0" in text else spm.encode(text) for text in texts],
}
path = folder / "unigram.json"
path.write_text(json.dumps(golden, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
print(f"{path}: {len(ids)} tokens, {len(texts)} texts, {path.stat().st_size} bytes")
