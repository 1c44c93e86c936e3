"""Requests as loose heaps of words: what to do and with what, in any order, between words that mean nothing here.

The second stage of training mixes these in, so that the model looks for the word that names the task and for the
ends of what it is asked about, instead of knowing sentences by heart.
"""

from grammar import FUNCTION_WORDS, filler
from lexicon import city, word
from skills import Example, turn
from skills import arithmetic, rillm_facts, small_talk, tool_calls, word_work

VERBS = {"+": ["add", "add up", "sum up", "sum", "put together", "count together"], "*": ["multiply", "multiply", "form the product of", "calculate the product of"]}
NOUNS = {"+": ["sum", "total", "addition"], "-": ["difference"], "*": ["product", "multiplication"]}
INFIX = {"+": ["plus", "plus", "+", "added to", "and then add"], "-": ["minus", "minus", "-", "less", "take away"], "*": ["times", "times", "×", "*", "x", "multiplied by", "multiplied with"]}
AFTER = {"+": ["add them", "add these", "their sum", "add both", "added up", "the sum of them", "add up", "summed up"],
         "-": ["the first minus the second", "their difference", "subtract the second from the first"],
         "*": ["multiply them", "multiply these", "their product", "multiply both", "multiplied", "the product of them", "multiply one by the other"]}  # fmt: skip
WORD_TASKS = {
    "reverse": ["reverse", "reversed", "backwards", "backward", "in reverse", "back to front", "from the last letter to the first", "from its end", "in backward order", "in reverse order", "reversing", "the reverse of", "flipped", "the other way round"],
    "spell": ["spell", "letter by letter", "each letter of", "every letter", "the single letters of", "spelling", "spelled out"],
    "upper": ["in capitals", "capital letters", "in upper case", "uppercase", "all caps", "big letters", "only capitals", "capitals", "upper-case"],
    "count": ["how many letters", "the number of letters", "count the letters", "letter count", "how long", "the length", "count of letters", "counting the letters"],
    "count_letter": ["how many {c}'s", "how often {c}", "count the {c}'s", "the number of {c}'s", "how many times {c}", "count the letter {c}", "how many times the letter {c}", "how often the letter {c}", "every {c} counted"],
    "sort": ["sort", "sorted", "alphabetical order", "alphabetically", "by the alphabet", "in the order of the alphabet", "from a to z", "order", "in alphabetical order", "ordered", "sorting", "alphabetize", "a-z"],
}
WEATHER = ["weather", "rain", "raining", "sunny", "the sun", "snow", "cold", "warm", "hot", "the temperature", "windy", "outside", "a coat", "the forecast", "a storm", "degrees", "wet", "cloudy", "the sky", "nice weather", "rainy day", "sunny day"]
TIME = ["time", "the clock", "what time", "what hour", "how late", "late", "the local time", "the current time", "o'clock", "morning or evening", "the time of day", "a watch"]


def heap(rng, *parts) -> str:
    """The parts in this order, with fillers and signs between them."""
    text = filler(rng)
    for at, part in enumerate(parts):
        text += (" " if text else "") + part
        more = filler(rng)
        if at + 1 < len(parts) and rng.random() < 0.12:
            text += rng.choice([",", ":", ".", ";", " -", "?"])
        text += " " + more if more else ""
    text = text.strip() + rng.choice(["", ".", "?", "?", "!", "."])
    return text[0].upper() + text[1:] if rng.random() < 0.7 else text


def arithmetic_heap(rng) -> Example:
    digits = rng.choices([1, 2, 3], [1, 4, 5])[0]
    operation = rng.choice("++--***")
    a, b = arithmetic.operands(rng, operation, digits, "train")
    shape = rng.random()
    joint = rng.choice(["and", "and", ",", "with", "&"])
    pair = f"{a}{joint} {b}" if joint == "," else f"{a} {joint} {b}"
    if shape < 0.3:
        text = heap(rng, f"{a} {rng.choice(INFIX[operation])} {b}")
    elif shape < 0.45:
        text = heap(rng, f"the {rng.choice(NOUNS[operation])} of", pair) if rng.random() < 0.5 else heap(rng, rng.choice(NOUNS[operation]), pair)
    elif shape < 0.75:
        apart = (str(a), str(b)) if rng.random() < 0.6 else (pair,)
        text = heap(rng, *apart, rng.choice(AFTER[operation]))
    elif operation == "-":
        text = heap(rng, f"{rng.choice(['subtract', 'take', 'take away', 'remove', 'subtracting'])} {b} from {a}") if rng.random() < 0.6 else heap(rng, f"from {a}", rng.choice(["subtract", "take", "take away", "remove"]) + f" {b}")
    else:
        text = heap(rng, rng.choice(VERBS[operation]), pair)
    value = arithmetic.result(operation, a, b)
    symbols = any(sign in text for sign in "+-=")
    return Example("arithmetic_3", turn(text, arithmetic.answer(operation, a, b, symbols)), {"type": "last_number", "value": value}, "",
                   facts={"value": value, "problem": (operation, min(a, b), max(a, b))})  # fmt: skip


def word_heap(rng) -> Example:
    task = rng.choices(["reverse", "spell", "upper", "count", "count_letter", "sort"], [4, 1, 3, 3, 3, 4])[0]
    keyword = rng.choice(WORD_TASKS[task])
    if task == "sort":
        words = list(dict.fromkeys(word(rng, "train") for _ in range(rng.randint(3, 6))))
        shown, answer = rng.choice([", ", ", ", ", ", " "]).join(words), ", ".join(sorted(words))
        if rng.random() < 0.25 and len(words) > 1:
            shown = ", ".join(words[:-1]) + " and " + words[-1]
    else:
        shown = word(rng, "train")
        letter = rng.choice(shown) if rng.random() < 0.85 else rng.choice("aeiourstln")
        keyword = keyword.replace("{c}", rng.choice([letter, letter, letter, f'"{letter}"']))
        answer = word_work.answer(task, shown, letter)[0]
    if any(part in FUNCTION_WORDS for part in shown.replace(",", " ").split() if part != "and"):
        return word_heap(rng)
    shown = f'"{shown}"' if task != "sort" and rng.random() < 0.1 else shown
    parts = [keyword, rng.choice(["", "", "", "the word ", "of ", "in ", "for "] if task != "sort" else ["", "", "the words ", "these words: "]) + shown]
    if rng.random() < 0.45:
        parts.reverse()
    return Example("word_work", turn(heap(rng, *parts), answer), {"type": "ends_with", "value": answer}, "")


def tool_heap(rng) -> Example:
    name = rng.choice(["get_weather", "get_time"])
    place = city(rng, "train")
    parts = [rng.choice(WEATHER if name == "get_weather" else TIME), rng.choice(["in ", "in ", "in ", "for ", "at ", "of ", "to ", "over in "]) + place]
    if rng.random() < 0.45:
        parts.reverse()
    tools = tool_calls.describe(rng, tool_calls.offered(rng, [name], "train"), "train")
    arguments = {"city": place}
    outcome, text, needed = tool_calls.answered(rng, name, arguments, "")
    messages = [{"role": "user", "content": heap(rng, *parts)}, tool_calls.call(name, arguments), {"role": "tool", "content": outcome}, {"role": "assistant", "content": text}]
    return Example("tool_call", messages, {"type": "tool_call", "name": name, "arguments": arguments, "answer": needed}, "", tools=tools)


UPPER_RULES = ["upper case", "capitals", "capital letters", "uppercase", "upper case letters", "big letters", "all caps"]
LOWER_RULES = ["lower case", "small letters", "lowercase", "lower case letters"]


def rule_heap(rng) -> Example:
    """A system prompt that names a case, however it says so."""
    upper = rng.random() < 0.6
    kind = rng.random()
    inner = small_talk.small_talk(rng, "train") if kind < 0.4 else rillm_facts.sample(rng, "train") if kind < 0.6 else arithmetic.sample(rng, "train", 2) if kind < 0.75 else small_talk.unknown(rng, "train") if kind < 0.9 else word_work.sample(rng, "train")
    text = inner.messages[-1]["content"]
    system = heap(rng, rng.choice(["in ", "with ", "", "use ", "only "]) + rng.choice(UPPER_RULES if upper else LOWER_RULES))
    messages = [{"role": "system", "content": system}] + turn(inner.messages[0]["content"], text.upper() if upper else text.lower())
    return Example("system", messages, {"type": "upper" if upper else "lower", "inner": inner.expect}, "", facts={key: value for key, value in inner.facts.items() if key == "problem"})


def sample(rng, split: str = "train") -> Example:
    return rng.choices([arithmetic_heap, word_heap, tool_heap, rule_heap], [9, 9, 4, 2])[0](rng)
