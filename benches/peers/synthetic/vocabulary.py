"""Vocabularies of any size in which " a", " b" … are one token each, so that a prompt of n tokens is easy to write for every engine: byte-level BPE for
decoders, words for BERT."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"
BEGIN, END = "<|begin_of_text|>", "<|end_of_text|>"


def byte_letters() -> list[str]:
    """The printable letter that stands for each byte in byte-level BPE (GPT-2's table)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable}
    letters |= {byte: chr(256 + n) for n, byte in enumerate(others)}
    return [letters[byte] for byte in range(256)]


def vocabulary(size: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Tokens by id, and merges. The last two tokens begin and end a text."""
    letters = byte_letters()
    space = letters[32]
    tokens = list(letters)
    merges = []
    for letter in LETTERS:
        merges.append((space, letter))
        tokens.append(space + letter)
    # Words that no merge makes: they come out of the model, never out of a text.
    tokens += [f"w{n}{space}" for n in range(len(tokens), size - 2)]
    tokens += [BEGIN, END]
    return tokens, merges


# Where bert-base-uncased has them.
PADDING, UNKNOWN, CLASS, SEPARATOR, MASK = special_ids = 0, 100, 101, 102, 103
SPECIAL_WORDS = dict(zip(special_ids, ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), strict=True))


def words(size: int) -> list[str]:
    """Words by id; the letters come after the special ones."""
    by_id = SPECIAL_WORDS | {MASK + 1 + n: letter for n, letter in enumerate(LETTERS)}
    return [by_id.get(n, f"word{n}") for n in range(size)]
