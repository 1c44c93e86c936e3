"""Reversing, spelling, upper-casing, counting letters and sorting words. Letters are spelt out before they are used."""

from grammar import ask
from lexicon import HELD_OUT_WORDS, word
from skills import Example, turn

TRAIN = {
    "reverse": [
        "Show me {w} [backwards|reversed|in reverse order].", "{w}, but [backwards|reversed|the other way round].", "I wonder what {w} is backwards.", "Mirror the word {w}.", "Write {w} from back to front.", "What is the reverse of {w}?", "Start at the end: {w}", "{w} [reversed|in reverse|reverse][|, please]", "The word is {w}. [Reverse it|Say it backwards|Flip it].", "Make {w} go backwards.", "Change the order of the letters in {w} to last to first.",
        "[Reverse|Please reverse|Turn around|Flip] the word [|\"]{w}[|\"].", "[Spell|Write|Say] [|the word ][|\"]{w}[|\"] [backwards|in reverse|from the end].",
        "What is [|\"]{w}[|\"] [backwards|spelled backwards|in reverse|reversed]?", "reverse {w}", "[Reverse|Flip] [|the letters of |the letters in ]{w}.",
        "{w} backwards", "[Can|Could] you [reverse|flip] [the word|] [|\"]{w}[|\"]?", "What [do|would] I get if I [reverse|flip] [|\"]{w}[|\"]?",
        "Read {w} from right to left.", "[Take|Use] the word {w} and reverse it.", "Reverse [this word|this]: {w}", "Flip {w} around.", "Let me see {w} reversed now.", "Give {w} to me from its end to its start.", "How does {w} look [when reversed|from behind|backwards]?", "Can {w} be read backwards? Do it.", "Swap the letters of {w} so that the last is first.", "I have {w} and want it backwards.", "Put {w} in reverse[ order|].", "Run through {w} backwards.", "Take {w} and [turn|flip] its letters around.", "How [is|do you write] {w} [in reverse|backwards]?",
    ],
    "spell": [
        "Take {w} apart into letters.", "{w}, letter by letter.", "Write {w} with dashes between the letters.", "Say {w} letter by letter.", "Break {w} into its letters.",
        "[Spell|Please spell] [|the word ][|\"]{w}[|\"].", "How [do you|do I] spell [|\"]{w}[|\"]?", "spell {w}", "[List|Show|Give me] the letters of {w}.",
        "What letters are in [|\"]{w}[|\"]?", "[Can|Could] you spell [|\"]{w}[|\"] [for me|]?",
    ],
    "upper": [
        "Show me {w} [in capitals|in big letters|in uppercase].", "The word is {w}. [Capitals, please|Make it upper case|Put it in capitals].", "Shout the word {w}.", "{w}, but in [capitals|upper case|all caps].", "Type {w} with caps lock.", "Use big letters for {w}.", "Change all letters of {w} to [capitals|upper case].", "Make capitals out of {w}.", "Return {w} [uppercased|in upper case].", "What are the capital letters of {w}?", "Transform {w} to [uppercase|capitals].", "Bring {w} into capitals.", "Render {w} in capitals.", "Get {w} into upper case.", "Switch {w} to [capitals|upper case].", "Set {w} in capitals.", "Rewrite {w} with capital letters.", "Print {w} in uppercase.", "Raise {w} to upper case.", "Please move {w} to capitals.", "Let {w} be upper case.",
        "[Write|Put|Say|Type] [|the word ][|\"]{w}[|\"] in [capitals|capital letters|upper case|uppercase].", "[Convert|Change] [|\"]{w}[|\"] [to|into] [upper case|uppercase|capitals].",
        "What is [|\"]{w}[|\"] in [upper case|uppercase|capitals|capital letters]?", "{w} in [capitals|upper case|uppercase]", "uppercase {w}", "[Make|Make the word] [|\"]{w}[|\"] [upper case|uppercase|all caps].",
        "[Capitalise|Capitalize] every letter of {w}.", "[Can|Could] you write {w} in [capitals|all caps|upper case]?", "uppercase: {w}", "How does {w} look in [capitals|upper case]?",
    ],
    "count": [
        "I wonder how many letters {w} has.", "{w}: how many letters?", "Count how [long|many letters] {w} is.", "What is the length of {w}?", "How many characters are in {w}?", "Give the letter count of {w}.", "Do you know how many letters {w} has?", "For {w}, count the letters.", "Is {w} long? Count its letters.", "Length of the word {w}?",
        "How many letters [are in|does] [|the word ][|\"]{w}[|\"] [|have]?", "How many letters [are there in|has] [|the word ][|\"]{w}[|\"]?", "[Count|Please count] the letters [in|of] [|the word ][|\"]{w}[|\"].",
        "How long is the word [|\"]{w}[|\"]?", "[number|count] of letters in {w}", "What is the number of letters in [|\"]{w}[|\"]?", "[Can|Could] you count the letters in {w}?",
        "Letters in {w}?", "[Tell me|Say] how many letters {w} has.", "The word is {w}. How many letters does it have?",
    ],
    "count_letter": [
        "I wonder how many {c}'s {w} has.", "{w}: how many {c}'s?", "For {w}, count the letter {c}.", "In {w}, how [many|often] is the letter {c}?", "How [many|much] {c} is in {w}?", "Do you know how many times {w} has the letter {c}?", "What is the count of {c} in {w}?", "Look at {w}. How many {c}'s do you see?", "Go through {w} and count every {c}.",
        "How many [times does the letter |]{c}[|'s|s] [are|are there] in [|the word ][|\"]{w}[|\"]?", "How often [does|is] [|the letter ][|\"]{c}[|\"] [appear|occur|come up] in [|\"]{w}[|\"]?",
        "[Count|Please count] the {c}'s in [|\"]{w}[|\"].", "Count the letter {c} in [|the word ]{w}.", "How many times [does|is] {c} [appear|found|used] in {w}?",
        "[Tell me|Say] how many {c}'s {w} has.", "count {c} in {w}", "[Can|Could] you count the letter {c} in {w}?", "The word is {w}. How many {c}'s does it have?",
    ],
    "sort": [
        "Here are some words: {l}. [Sort|Order] them[| alphabetically|, please].", "[Bring|Get] {l} into alphabetical order.", "{l}: [sort|order|alphabetically|in order, please]", "Show me {l} [ordered alphabetically|in a-z order|arranged by the alphabet|by first letter].", "[Sort|Order] {l} for me.", "My words are {l}. [Which comes first|What is their order] in the alphabet?", "A to z: {l}", "I have the words {l}. [Please |]sort them[ by the alphabet|].",
        "Arrange {l} by letter.", "How would {l} be [ordered|listed] in a dictionary?", "Words: {l}\n[Sort them.|Alphabetical order, please.|Order: alphabetical.]", "The list is {l}. [Alphabetize|Alphabetise|Order] it.", "[Alphabetize|Alphabetise] {l}[.|!]", "[Show|Print|Say] {l} alphabetically.", "Rearrange {l} so that they are [in alphabetical order|alphabetical].", "Make {l} a sorted list.", "{l} alphabetically", "Can you say {l} in the order of the alphabet?", "Return {l} as an alphabetical list.", "Bring the words {l} into order from first to last.", "I gave you {l} to sort.", "Put {l} into a sorted list.", "Say {l} again, but sorted.", "Let me see {l} in order.", "Take {l} and sort by letters.", "With {l} make an alphabetical list.", "Can {l} be sorted? Do it.", "Use the alphabet to sort {l} now.", "Sort {l} by the first letters, then the next ones.",
        "[Sort|Please sort|Order] [these|the|the following] words: {l}[|.]", "[Sort|Order] [|the words ]{l} [alphabetically|in alphabetical order|by the alphabet|from a to z].", "sort {l}",
        "[Put|Arrange] [these words|the words|] {l} in [alphabetical|alphabetic|] order.", "[Can|Could] you [sort|order] {l}?", "What is the alphabetical order of {l}?",
        "[Sort|Order|Arrange] this list: {l}", "Alphabetical order[ please|]: {l}", "[List|Give me|Write] {l} in alphabetical order.", "{l} - [sort|order] [them|these words|the list].",
    ],
}
HELD_OUT = {
    "reverse": ["I need the word {w} written backwards.", "Turn the letters of {w} around, please.", "Give me {w} in reverse."],
    "spell": ["I need the letters of the word {w}.", "Tell me how to spell {w}."],
    "upper": ["I need the word {w} in capital letters.", "Give me {w} in upper case.", "Please turn {w} into capitals."],
    "count": ["I need the number of letters in {w}.", "Tell me how many letters there are in {w}.", "How many letters do you count in {w}?"],
    "count_letter": ["I need to know how many times {c} is in {w}.", "Tell me how often the letter {c} appears in {w}.", "Find the number of {c}'s in {w}."],
    "sort": ["I need these words in alphabetical order: {l}", "Give me {l} sorted from a to z.", "Please put this list in order: {l}"],
}  # fmt: skip


# Words that may follow the word or the list asked about, so that its end has to be found.
TRAILERS = ["right now", "for me", "for a game", "as fast as you can", "without mistakes", "and nothing else", "this time", "again", "one more time", "if you can", "now", "today", "carefully", "quickly", "for my friend", "and show it", "once more", "in your answer", "like before", "just like that", "before lunch", "with care", "to see if you can"]


def dashed(letters) -> str:
    return "-".join(letters)


def answer(task: str, word_: str, letter: str = "") -> tuple[str, str | int]:
    """→ what the assistant says, what eval.py looks for at its end."""
    if task == "reverse":
        back = word_[::-1]
        return f"{dashed(word_)} → {dashed(back)}: {back}", back
    if task == "spell":
        return dashed(word_), dashed(word_)
    if task == "upper":
        return word_.upper(), word_.upper()
    if task == "count":
        numbered = ", ".join(f"{char} {at}" for at, char in enumerate(word_, 1))
        return f"{numbered}: {len(word_)} letters.", len(word_)
    seen, parts = 0, []
    for char in word_:
        seen += char == letter
        parts.append(f"{char} {seen}" if char == letter else char)
    return f"{', '.join(parts)}: {seen}.", seen


def trailed(rng, text: str, split: str) -> str:
    if split == "held_out" or rng.random() > 0.2:
        return text
    return text.rstrip(".?! ") + " " + rng.choice(TRAILERS) + rng.choice([".", "", "!"])


def phrase_in_capitals(rng) -> Example:
    """Several words in upper case (training only)."""
    phrase = " ".join(word(rng, "train") for _ in range(rng.randint(2, 6)))
    wording = rng.choice(TRAIN["upper"])
    shown = rng.choice([phrase, phrase, f'"{phrase}"', phrase.capitalize()])
    return Example("word_work", turn(ask(rng, wording, w=shown), phrase.upper()), {"type": "ends_with", "value": phrase.upper()}, wording)


def sample(rng, split: str) -> Example:
    if split == "train" and rng.random() < 0.08:
        return phrase_in_capitals(rng)
    task = rng.choices(["reverse", "spell", "upper", "count", "count_letter", "sort"], [5, 1, 3, 3, 3, 5])[0]
    wording = rng.choice((TRAIN if split == "train" else HELD_OUT)[task])
    noise = split == "train"
    if task == "sort":
        count = rng.choice([3, 3, 4, 4, 5, 6])
        words = []
        while len(words) < count:
            new = word(rng, split)
            if noise and words and rng.random() < 0.15:  # the same beginning, so that later letters decide
                new = words[-1][: rng.randint(1, 2)] + new[1:]
            if new not in words and not (noise and new in HELD_OUT_WORDS):
                words.append(new)
        listed = rng.choice([", ", ", ", ", ", " "] + [", ", " ", ",", "; ", " / ", "\n"] * noise).join(words) if rng.random() < 0.75 else ", ".join(words[:-1]) + " and " + words[-1]
        text = ", ".join(sorted(words))
        return Example("word_work", turn(trailed(rng, ask(rng, wording, noise=noise, l=listed), split), text), {"type": "ends_with", "value": text, "task": task}, wording)
    chosen = word(rng, split)
    letter = rng.choice(chosen) if rng.random() < 0.85 else rng.choice("aeiourstln")
    if task == "count_letter" and noise and rng.random() < 0.3:
        doubled = "".join(char * rng.choice([1, 1, 2]) for char in chosen)[:12]
        chosen = chosen if doubled in HELD_OUT_WORDS else doubled
    text, wanted = answer(task, chosen, letter)
    user = trailed(rng, ask(rng, wording, noise=noise, w=chosen, c=letter), split)
    expect = {"type": "ends_with", "value": wanted} if task in ("reverse", "spell", "upper") else {"type": "last_number", "value": wanted}
    return Example("word_work", turn(user, text), expect | {"task": task}, wording)
