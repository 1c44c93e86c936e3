"""Makes the training conversations, the tokenizer and the packed token shards.

    python data.py tokenizer --out WORK      trains the tokenizer → WORK/tokenizer.json
    python data.py shards --out WORK         writes WORK/shards/*.npy, window by window of 1024 tokens
    python data.py show                      prints a few conversations

Shard i depends only on the seed and on i, so any number of processes gives the same data. A token's highest bit
says whether the loss counts it (what the assistant says).
"""

import argparse
import multiprocessing
import os
import random
import re
from pathlib import Path

import numpy as np

import chat
import grammar
import lexicon
from bpe import train_bpe
from grammar import ask, expand
from lexicon import HELD_OUT_CITIES, HELD_OUT_NAMES, HELD_OUT_WORDS
from skills import Example, turn
from skills import arithmetic, json_answers, loose_wording, rillm_facts, small_talk, stories, system_prompts, tool_calls, word_work

SEED = 7
CONTEXT = 1024
VOCABULARY = 4096
SHARD_WINDOWS = 2048  # about two million tokens
LEARN = 1 << 15
TOKENIZER_CONVERSATIONS = 60_000
LOOSE_SHARDS_FROM = 400  # these and later ones are for the second stage of training

SAMPLERS = {
    "arithmetic": (arithmetic.sample, 50),
    "words": (word_work.sample, 26),
    "json": (json_answers.sample, 14),
    "tools": (tool_calls.sample, 10),
    "facts": (rillm_facts.sample, 8),
    "talk": (small_talk.small_talk, 7),
    "unknown": (small_talk.unknown, 5),
    "story": (stories.sample, 3),
    "system": (system_prompts.sample, 8),
}
KINDS, WEIGHTS = list(SAMPLERS), [weight for _, weight in SAMPLERS.values()]


def example(rng, kinds=KINDS, weights=WEIGHTS):
    kind = rng.choices(kinds, weights)[0]
    return SAMPLERS[kind][0](rng, "train")


def plain_turns(rng, example_):
    """Whether an example can stand inside a longer conversation: no system prompt, no tools."""
    return example_.messages[0]["role"] == "user" and example_.tools is None


def conversation(rng) -> tuple[list, list | None, list]:
    """→ messages, tools, the examples inside."""
    draw = rng.random()
    if draw < 0.01:
        examples = [small_talk.nonsense(rng) if rng.random() < 0.5 else tool_calls.missing_tool(rng)]
    elif draw < 0.04:  # tools are offered, but the question needs none
        examples = [rng.choices([small_talk.small_talk, rillm_facts.sample, word_work.sample, stories.sample, small_talk.unknown], [4, 3, 3, 1, 2])[0](rng, "train")]
        tools = tool_calls.describe(rng, tool_calls.offered(rng, [], "train"), "train")
        return examples[0].messages, tools or None, examples
    elif draw < 0.3:
        examples, wanted = [], rng.choice([2, 2, 3, 3, 4, 5])
        while len(examples) < wanted:
            if examples and examples[-1].facts.get("value") is not None and rng.random() < 0.35:
                examples.append(arithmetic.follow_up(rng, examples[-1].facts["value"]))
                continue
            named = [past.facts["name"] for past in examples if "name" in past.facts]
            if named and rng.random() < 0.4:
                examples.append(small_talk.my_name(rng, named[-1]))
                continue
            last = examples[-1].messages[-1]["content"] if examples else ""
            if last in small_talk.JOKES and rng.random() < 0.4:
                examples.append(small_talk.another_joke(rng, last))
                continue
            if examples and examples[-1].skill == "story" and rng.random() < 0.4:
                again = stories.sample(rng, "train")
                examples.append(Example("story", turn(expand(rng, "[Another one|One more|Another|Again|Tell me another|More][.|!|, please.|]"), again.messages[-1]["content"]), again.expect, ""))
                continue
            if rng.random() < 0.18:
                new = small_talk.small_talk(rng, "train", "name_given" if rng.random() < 0.3 else None)
            else:
                new = example(rng, KINDS, [7, 4, 2, 0, 2, 2, 1.5, 0.7, 0])
            if any("name" in past.facts for past in examples) and "You have not told me" in new.messages[-1]["content"]:
                continue
            if plain_turns(rng, new):
                examples.append(new)
    else:
        examples = [example(rng)]
    messages = [message for part in examples for message in part.messages]
    tools = examples[0].tools
    if tools and rng.random() < 0.2:  # a second call in the same conversation
        second = tool_calls.sample(rng, "train")
        offered = {tool["function"]["name"] for tool in tools}
        if second.expect["name"] in offered and second.messages[0]["role"] == "user":
            examples.append(second)
            messages = messages + second.messages
    if messages[0]["role"] != "system" and rng.random() < 0.22:
        messages = [{"role": "system", "content": system_prompts.plain(rng)}] + messages
    return messages, tools, examples


def assert_no_overlap(conversations: int = 20_000):
    """Held-out words, names, cities, wordings, problems and schemas occur in no training conversation."""
    held_out = {word.lower() for word in HELD_OUT_WORDS + HELD_OUT_NAMES + HELD_OUT_CITIES}
    banks = [arithmetic, word_work, tool_calls]
    train_wordings = {text for bank in banks for texts in bank.TRAIN.values() for text in texts}
    held_wordings = {text for bank in banks for texts in bank.HELD_OUT.values() for text in texts}
    train_wordings |= set(json_answers.TRAIN_ASK + json_answers.TRAIN_SYSTEM + stories.TRAIN + small_talk.UNKNOWN_TRAIN)
    held_wordings |= set(json_answers.HELD_OUT_ASK + json_answers.HELD_OUT_SYSTEM + stories.HELD_OUT + small_talk.UNKNOWN_HELD_OUT)
    for rule in ("CAPITALS", "LOWER", "PERSONA", "ASK_NAME", "ENDING", "BEGINNING"):
        train_wordings |= set(getattr(system_prompts, rule))
        held_wordings |= set(getattr(system_prompts, f"{rule}_HELD_OUT"))
    for training, held, *_ in list(small_talk.TALK.values()) + list(rillm_facts.FACTS.values()):
        train_wordings |= set(training)
        held_wordings |= set(held)
    overlap = train_wordings & held_wordings
    assert not overlap, f"wordings in both parts: {overlap}"
    rng = random.Random("overlap")

    fillers = {re.sub(r"[^a-z]+", " ", text.lower()).strip() for text in grammar.OPENINGS + grammar.CLOSINGS} - {""}
    edges = re.compile(rf"^(?:(?:{'|'.join(fillers)}) )+|(?: (?:{'|'.join(fillers)}))+$")

    def bare(text):  # what remains of a wording when case, slots, signs, openings, closings and "please" are gone
        text = re.sub(r"[^a-z]+", " ", text.lower()).strip()
        return re.sub(r"\bplease\b ?", "", edges.sub("", text)).strip()

    expanded = {bare(ask(rng, text, noise=False, **SlotNames())) for text in train_wordings for _ in range(100)}
    for training, *_ in rillm_facts.FACTS.values():
        expanded |= {bare(rillm_facts.reframed(rng, expand(rng, text))) for text in training for _ in range(60)}
    held_expanded = {bare(ask(rng, text, noise=False, **SlotNames())) for text in held_wordings for _ in range(10)}
    assert not expanded & held_expanded, f"same wording in both parts: {expanded & held_expanded}"
    for at in range(conversations):
        grammar.LOOSE = at % 2 == 1
        messages, _, examples = (loose_conversation if grammar.LOOSE else conversation)(rng)
        text = " ".join(chat.assistant_text(message) + " " for message in messages)
        found = held_out & set(re.findall(r"[^\W\d_]+", text.lower()))
        assert not found, f"held-out words in a training conversation: {found}: {text}"
        for part in examples:
            assert part.wording not in held_wordings, part.wording
            if "problem" in part.facts:
                assert not arithmetic.problem_is_held_out(*part.facts["problem"]), part.facts
            if part.expect["type"] == "json" and len(part.expect["value"]) > 1:
                assert not json_answers.schema_is_held_out(part.expect["value"]), part.expect
    grammar.LOOSE = False


class SlotNames(dict):
    """Fills every slot with a sign that is no letter."""

    SLOTS = "a b w c l e s v k city name other text keys schema full_schema end hero a_hero place thing a_thing minutes title to room country work landmark science dish language code goods person topic year thing_a animal key item x y s".split()

    def __init__(self):
        super().__init__({slot: "#" for slot in self.SLOTS})


def encode(tokenizer, conversations) -> list[np.ndarray]:
    """Token ids with the learn bit, one array per conversation, each ending in <|endoftext|>."""
    pieces, counts = [], []
    for messages, tools, _ in conversations:
        spans = chat.spans(messages, tools)
        pieces += spans
        counts.append(len(spans))
    encoded = tokenizer.encode_batch_fast([text for text, _ in pieces])
    pad = tokenizer.token_to_id(chat.PAD)
    documents, at = [], 0
    for count in counts:
        ids = []
        for (_, learn), encoding in zip(pieces[at : at + count], encoded[at : at + count]):
            ids += [token | LEARN for token in encoding.ids] if learn else encoding.ids
        at += count
        documents.append(np.array(ids + [pad], dtype=np.uint16))
    return documents


def loose_conversation(rng):
    """For the second stage: any conversation with loosened requests, or a heap of words."""
    if rng.random() > 0.3:
        return conversation(rng)
    example_ = loose_wording.sample(rng)
    messages = example_.messages
    if messages[0]["role"] != "system" and rng.random() < 0.2:
        messages = [{"role": "system", "content": system_prompts.plain(rng)}] + messages
    return messages, example_.tools, [example_]


def make_shard(tokenizer, index: int) -> np.ndarray:
    """[SHARD_WINDOWS, CONTEXT]: whole conversations, packed into the window with the least room that still fits."""
    rng = random.Random(f"{SEED}/{index}")
    grammar.LOOSE = index >= LOOSE_SHARDS_FROM
    converse = loose_conversation if grammar.LOOSE else conversation
    pad = tokenizer.token_to_id(chat.PAD)
    windows = np.full((SHARD_WINDOWS, CONTEXT), pad, dtype=np.uint16)
    row, open_rows = 0, []  # open_rows: [room left, row]
    while True:
        for document in encode(tokenizer, [converse(rng) for _ in range(256)]):
            size = len(document)
            if size > CONTEXT:
                continue
            slot = next((slot for slot in open_rows if slot[0] >= size), None)
            if slot is None:
                if row == SHARD_WINDOWS:
                    return windows
                open_rows = sorted(open_rows)[-7:]
                slot = [CONTEXT, row]
                open_rows.append(slot)
                row += 1
            start = CONTEXT - slot[0]
            windows[slot[1], start : start + size] = document
            slot[0] -= size


def load_tokenizer(work):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(work) / "tokenizer.json"))
    pieces = {token.removeprefix("Ġ") for token in tokenizer.get_vocab()}
    lexicon.PIECES[:] = sorted(piece for piece in pieces if re.fullmatch("[a-z]{1,9}", piece))
    return tokenizer


def _shard_worker(task):
    work, index = task
    path = Path(work) / "shards" / f"{index:05d}.npy"
    if not path.exists():
        part = path.with_suffix(".part")
        with open(part, "wb") as file:
            np.save(file, make_shard(_shard_worker.tokenizer, index))
        os.replace(part, path)
    return index


def _start_worker(work):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _shard_worker.tokenizer = load_tokenizer(work)


def make_tokenizer(work):
    rng = random.Random(f"{SEED}/tokenizer")
    texts = []
    for _ in range(TOKENIZER_CONVERSATIONS):
        messages, tools, _ = conversation(rng)
        texts += [text for text, _ in chat.spans(messages, tools)]
        if not tools:
            texts += [chat.assistant_text(message) for message in messages] * 2  # weigh down the tools' long listing
    specials = re.compile("|".join(map(re.escape, chat.SPECIAL_TOKENS)))
    tokenizer = train_bpe((specials.sub("", text) for text in texts), VOCABULARY, chat.SPECIAL_TOKENS)
    Path(work).mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(Path(work) / "tokenizer.json"))
    check_rendering(tokenizer)


def check_rendering(tokenizer, conversations: int = 300):
    """The pieces that training sees are what the Jinja template renders, and tokenize alike."""
    rng = random.Random("rendering")
    for _ in range(conversations):
        messages, tools, _ = conversation(rng)
        whole = chat.render(messages, tools)
        assert whole == chat.render_jinja(messages, tools), (whole, chat.render_jinja(messages, tools))
        apart = [token for text, _ in chat.spans(messages, tools) for token in tokenizer.encode(text).ids]
        assert apart == tokenizer.encode(whole).ids


def make_shards(work, first: int, count: int, processes: int):
    (Path(work) / "shards").mkdir(parents=True, exist_ok=True)
    with multiprocessing.Pool(processes, _start_worker, (str(work),)) as pool:
        for _ in pool.imap_unordered(_shard_worker, [(str(work), index) for index in range(first, first + count)]):
            pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["tokenizer", "shards", "show", "check"])
    parser.add_argument("--out", default="/tmp/rillm-demo-model")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if options.command == "tokenizer":
        assert_no_overlap()
        make_tokenizer(options.out)
    elif options.command == "shards":
        make_shards(options.out, options.first, options.count, options.processes)
    elif options.command == "check":
        assert_no_overlap()
    else:
        rng = random.Random()
        for _ in range(options.count):
            messages, tools, _ = conversation(rng)
            print(chat.render(messages, tools) + "-" * 80)


if __name__ == "__main__":
    main()
