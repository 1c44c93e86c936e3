"""Token ids of BERT's own tokenizer, in Python, for the texts of tests/golden/text/texts.json: what transformers has from before it took
over the tokenizers crate. The vocabulary is that of all-MiniLM-L6-v2 (scripts/real_model.py), which is bert-base-uncased's.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install transformers==5.23.0
    /tmp/venv/bin/python scripts/golden/bert_tokenizer.py target/minilm
"""

import json
import pathlib
import sys
import unicodedata

import transformers
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

folder = pathlib.Path(__file__).parents[2] / "tests/golden/text"
texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
tokenizer = BertTokenizerLegacy(pathlib.Path(sys.argv[1]) / "vocab.txt")

# Newer than the table of the crate that Rust programs, and so transformers itself today, take punctuation and control characters
# from (Unicode 8): text with these, or with what is no character yet, is left out.
NEWER = {0x9FD, 0xA76, *range(0xAFA, 0xB00), 0xC77, 0xC84, 0xECE}


def ids(text):
    if any(ord(c) in NEWER or unicodedata.category(c) == "Cn" for c in text):
        return None
    return tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))


golden = {
    "source": f"transformers {transformers.__version__}, BertTokenizerLegacy",
    "ids": [ids(text) for text in texts],
}
path = folder / "bert.json"
path.write_text(json.dumps(golden, separators=(",", ":")) + "\n", encoding="utf-8")
known = [ids for ids in golden["ids"] if ids is not None]
print(f"{path}: {len(known)} of {len(texts)} texts, {sum(map(len, known))} ids, {path.stat().st_size} bytes")
