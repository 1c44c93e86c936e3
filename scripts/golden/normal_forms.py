"""Texts in Unicode's normal forms by Python's unicodedata, and as BERT's tokenizer normalizes them: tests/golden/text/normal_forms.json.

    python3 scripts/golden/normal_forms.py

BERT's steps are those of its paper's code (google-research/bert, tokenization.py: _clean_text, _tokenize_chinese_chars,
_run_strip_accents), in its order.
"""

import json
import pathlib
import unicodedata

folder = pathlib.Path(__file__).parents[2] / "tests/golden/text"
texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
# Composed Hangul, singletons, what composition leaves out, ligatures, order of marks, signs in circles, halves and wholes of width.
own = ["각각각", "Åω\u212bΩ", "क़ \u0958", "שּׁ", "ﷺ ﬃ ﬅ", "a\u0323\u0307 a\u0307\u0323 ạ̇", "①⑳㍿", "ＡｂＣ ｶﾞ ﾊﾟ", "x² ½ Ⅷ", "ǆ ŀ", "𝔘𝕟𝖎"]

# In these blocks BERT takes a character for a word.
IDEOGRAPHS = [
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
]


def is_blank(c):
    return c in "\t\n\r" or c.isspace()


def bert(text):
    # Of the category C only what is assigned; blanks are kept.
    text = "".join(c for c in text if c != "\ufffd" and (c in "\t\n\r" or unicodedata.category(c) not in ("Cc", "Cf", "Co")))
    text = "".join(" " if is_blank(c) else c for c in text)
    text = "".join(f" {c} " if any(a <= ord(c) <= b for a, b in IDEOGRAPHS) else c for c in text)
    text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
    return "".join(c.lower() for c in text)


def is_known(text):
    """What is no character yet may be one in a browser."""
    return all(unicodedata.category(c) != "Cn" for c in text)


steps = {form: lambda text, form=form: unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC", "NFKD")} | {"BERT": bert}


def cases(step):
    """All of our own texts, and some of the others that the step changes."""
    changed = [text for text in texts if is_known(text) and step(text) != text]
    return [[text, step(text)] for text in own + changed[:: max(1, len(changed) // 150)]]


golden = {
    "source": f"Python's unicodedata, Unicode {unicodedata.unidata_version}",
    "cases": {name: cases(step) for name, step in steps.items()},
}
path = folder / "normal_forms.json"
path.write_text(json.dumps(golden, separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8")
print({name: len(cases) for name, cases in golden["cases"].items()}, path.stat().st_size, "bytes")
