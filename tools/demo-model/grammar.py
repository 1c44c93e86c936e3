"""Phrase templates: `[a|b]` picks one, `{slot}` is filled in, and people's typing is imitated on the rest.

Knows nothing of any skill. Noise (lower case, a missing full stop, a slip of the fingers) touches only the
template's own words, never what fills a slot, so that an answer stays right.
"""

import functools
import hashlib
import re

SLOT = re.compile(r"\{([a-z_]+)\}")


def held_out_hash(*parts, share: float = 0.1) -> bool:
    """Whether this combination belongs to the held-out share; the same on every machine."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") < share * 2**32


@functools.lru_cache(maxsize=None)
def _parse(template: str):
    def sequence(position, inside):
        items, literal = [], ""
        while position < len(template):
            char = template[position]
            if char == "[":
                options, position = alternatives(position + 1)
                if literal:
                    items.append(literal)
                items.append(options)
                literal = ""
                continue
            if inside and char in "|]":
                break
            literal += char
            position += 1
        if literal:
            items.append(literal)
        return items, position

    def alternatives(position):
        options = []
        while True:
            items, position = sequence(position, True)
            options.append(items)
            if position >= len(template):
                raise ValueError(f"no closing bracket in {template!r}")
            position += 1
            if template[position - 1] == "]":
                return tuple(options), position

    return sequence(0, False)[0]


def expand(rng, template: str) -> str:
    """One expansion of the alternatives; slots are left as they are."""

    def walk(items):
        return "".join(item if isinstance(item, str) else walk(rng.choice(item)) for item in items)

    return walk(_parse(template))


def fill(text: str, slots: dict) -> str:
    return SLOT.sub(lambda match: str(slots[match.group(1)]), text)


def say(rng, template: str, **slots) -> str:
    """Expand and fill, without noise: what an assistant says."""
    return fill(expand(rng, template), slots)


OPENINGS = [
    "Please", "Hey,", "Hello!", "Hi,", "Quick question:", "Could you help me?", "I need some help.", "One more thing:",
    "Okay,", "So,", "Now", "Next question.", "Tell me,", "Hi there!", "Good morning.", "I have a question:", "Listen,",
    "Can you help?", "Well,", "Alright,", "Hmm,", "Oh, and", "Also,", "Let's see.", "Dear model,", "A small task:",
    "My question:", "For my homework:", "Just wondering:", "Attention:", "Here is one:", "Try this:", "Sorry to bother you.", "I was thinking.",
]
CLOSINGS = ["Thanks!", "Thank you.", "please", "Please.", "Thanks a lot!", "I'm curious.", "If you can.", ":)", "Go!", "ok?"]


BEFORE = [
    "I am learning English.", "It's for a game.", "My friend asked me this.", "I have little time.", "This is a test.", "I am doing my homework.", "We are playing a quiz.", "My teacher wants to know.", "I can't do it alone.", "You are good at this.", "I have tried it myself.", "Let's do something else.", "Here is my next question.", "I hope you can do this.", "This one is hard.", "This one is easy.", "I am not sure about this.", "Don't be long.", "I asked my sister, but she was busy.", "Let me test you.", "I want to see how good you are.", "Okay, next one.", "A friend of mine is here.", "It is late here.", "Let's go on.",
]
AFTER = [
    "It's for a game.", "I need it for school.", "I am not sure myself.", "Take your time.", "My friend wants to know.", "I forgot.", "That would be great.", "Be careful.", "I can't do it alone.", "It is important.", "Do it well.", "No mistakes, please.", "I am waiting.", "Thanks in advance.", "I bet you can.", "It can't be hard.",
]


# Common words that name no task and are never asked about.
FUNCTION_WORDS = """a about after again all also always am an and another any anybody are as ask asked asks at be because been before both but by can
check come comes could dear did do does done each easy even every everybody exactly far figure find for friend from get give given go going good got had has
have he help her here hers him his how i if in inside into is it its just kindly know known last later let like line little ll look looks made make many may maybe me
mean mind mine more must my name need never new next nice nobody now of off often oh ok on once only or other our out over own people perhaps please put quickly quite read
really result right said same say says see shall she should show simply so some somebody someone something soon still such sure take tell than thank that the
their them then there these they thing think this those though to today together told too tried try under understand until up us use used using very wait want wanted wants
was way we well were what when whether which while who whom why will wish with within without wonder word work worked would write written yes yet you your yours""".split()
SAFE_FILLERS = [word for word in FUNCTION_WORDS if word not in ("and", "or", "word", "many", "often", "a", "i", "ll", "without", "result", "together")] + ["together", "result"]
PHRASES = ["could you", "would you", "can you", "I want", "I need", "I would like", "my friend asks", "somebody wants to know", "let me see", "find out", "figure out", "check", "tell me", "show me", "for me", "if you can", "what is", "what do you get for", "how would it be", "do you know", "I think", "in your answer", "as quickly as possible", "at last", "by the way", "my teacher says", "so that I know", "what comes out", "they ask me", "we want to see", "have a look at", "let us", "it should be", "there is", "here is", "you can use", "one more", "will you", "what about", "I am asking for"]


def filler(rng) -> str:
    """Nothing, a few common words, or a phrase."""
    draw = rng.random()
    if draw < 0.3:
        return ""
    if draw < 0.65:
        return rng.choice(PHRASES)
    return " ".join(rng.choice(SAFE_FILLERS) for _ in range(rng.randint(1, 5)))


# In the second stage of training, requests are loosened: words come and go. Off, no random number is drawn for it.
LOOSE = False


def _loosen(rng, text: str) -> str:
    words = text.split(" ")
    kept = [part for part in words if part.lower() not in FUNCTION_WORDS or rng.random() > 0.12] or words
    for _ in range(rng.choice([1, 1, 2, 3])):
        kept.insert(rng.randint(0, len(kept)), rng.choice(PHRASES) if rng.random() < 0.4 else rng.choice(SAFE_FILLERS))
    return " ".join(kept)


def _slip(rng, text: str) -> str:
    words = [match for match in re.finditer(r"[a-z]{4,}", text)]
    if not words:
        return text
    word = rng.choice(words)
    at = rng.randrange(word.start() + 1, word.end() - 1)
    kind = rng.randrange(3)
    if kind == 0:
        return text[:at] + text[at + 1 :]
    if kind == 1:
        return text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    return text[:at] + text[at] + text[at:]


def ask(rng, template: str, noise: bool = True, **slots) -> str:
    """What a person types: expanded, with openings, closings and typing habits, then filled."""
    text = expand(rng, template)
    if noise:
        if LOOSE and rng.random() < 0.4:
            text = _loosen(rng, text)
        draw = rng.random()
        if draw < 0.14:
            opening = rng.choice(OPENINGS)
            if opening[-1] in ",e:wd" and text[0].isupper() and not text.startswith("I "):
                text = text[0].lower() + text[1:]
            text = f"{opening} {text}"
        if 0.08 < draw < 0.16:
            closing = rng.choice(CLOSINGS)
            text = f"{text} {closing}"
        draw = rng.random()
        if draw < 0.05:
            text = f"{rng.choice(BEFORE)} {text}"
        elif draw < 0.09 and text[-1] in ".?!":
            text = f"{text} {rng.choice(AFTER)}"
        pieces = re.split(r"(\{[a-z_]+\})", text)
        draw = rng.random()
        if draw < 0.16:
            pieces = [piece if piece.startswith("{") else piece.lower() for piece in pieces]
        elif draw < 0.18:
            pieces = [piece if piece.startswith("{") else piece.upper() for piece in pieces]
        if rng.random() < 0.1:
            for _ in range(rng.choice([1, 1, 2])):
                at = rng.randrange(len(pieces))
                if not pieces[at].startswith("{"):
                    pieces[at] = _slip(rng, pieces[at])
        if rng.random() < 0.12 and pieces[-1] and pieces[-1][-1] in ".?!":
            pieces[-1] = pieces[-1][:-1]
        elif rng.random() < 0.02:
            pieces[-1] = pieces[-1] + rng.choice(["?", "!", "..", " "])
        text = "".join(pieces)
    return fill(text, slots)


def join_words(words, last: str = "and") -> str:
    words = list(words)
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + f" {last} " + words[-1]


def with_article(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun
