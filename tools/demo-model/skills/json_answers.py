"""Answers that are one JSON object with the keys asked for, filled from a short text."""

import json

from grammar import ask, expand, fill, held_out_hash, join_words
from lexicon import city, name, word
from skills import Example

COLORS = "red green blue yellow white black brown grey orange purple pink silver".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
JOBS = "baker doctor farmer nurse painter pilot sailor singer tailor teacher gardener cook driver hunter writer".split()
FOODS = "apples pears plums lemons eggs cakes loaves potatoes onions cherries melons peaches oranges buns cups bowls".split()


def whole(low, high):
    return lambda rng, split: rng.randint(low, high)


def one_of(values):
    return lambda rng, split: rng.choice(values)


# key: (type, value, training fragments, held-out fragments); {v} is the value, {s} the subject
ATTRIBUTES = {
    "name": ("string", None, [], []),
    "age": ("integer", whole(1, 99), ["{s} has lived for {v} years", "at {v}, {s} is [still young|the oldest]", "{s} celebrates birthday number {v}", "{v} years is the age of {s}", "age of {s}: {v}", "{s} is {v} years old", "{s} is {v}", "{s}, aged {v}, is here", "{s} turned {v} [this week|today]"], ["{s} is now {v} years old"]),
    "city": ("string", city, ["the home of {s} is {v}", "{v} is where {s} lives", "{s} was born in {v}", "you find {s} in {v}", "{s} stays in {v} [this year|with friends]", "in {v} lives {s}", "city of {s}: {v}", "{s} lives in {v}", "{s} is from {v}", "{s} moved to {v}", "{s} has a [house|flat|room] in {v}", "{s} comes from {v}"], ["{s} now lives in {v}"]),
    "job": ("string", one_of(JOBS), ["{s} is [working|employed] as a {v}", "the job of {s} is {v}", "{s} wants to be a {v}", "{s}, a {v}, is here", "job of {s}: {v}", "{s} is a {v}", "{s} works as a {v}", "{s} became a {v}", "{s} has been a {v} for years"], ["{s} now works as a {v}"]),
    "color": ("string", one_of(COLORS), ["{v} is the color of {s}", "{s} always wears {v}", "{s} painted everything {v}", "{s} prefers {v}", "color of {s}: {v}", "{s} likes [the color |]{v}", "the favorite color of {s} is {v}", "{s} loves {v} most"], ["{s} really likes {v}"]),
    "pet": ("string", one_of("cat dog parrot rabbit horse goat hamster turtle pony duck".split()), ["{s} and a {v} live together", "the {v} of {s} is friendly", "{s} takes care of a {v}", "the pet of {s} is a {v}", "pet of {s}: {v}", "{s} has a {v}", "{s} owns a {v}", "{s} walks with a {v}"], ["{s} keeps a {v}"]),
    "married": ("boolean", one_of([True, False]), {True: ["{s} is married", "{s} has married"], False: ["{s} is not married", "{s} isn't married"]}, {True: ["{s} is married now"], False: ["{s} is still not married"]}),
    "member": ("boolean", one_of([True, False]), {True: ["{s} is a member", "{s} joined the club"], False: ["{s} is not a member", "{s} isn't a member"]}, {True: ["{s} is a member now"], False: ["{s} is still not a member"]}),
    "day": ("string", one_of(DAYS), ["on {v} {s} is free", "the day of {s} is {v}", "{v} is good for {s}", "{s} can meet on {v}", "day of {s}: {v}", "{s} comes on {v}", "{s} is here on {v}", "{s} has time on {v}", "{s} will arrive on {v}"], ["{s} will come on {v}"]),
    "month": ("string", one_of(MONTHS), ["{s} came in {v}", "{s} travels in {v}", "in {v} {s} is on holiday", "the month of {s} is {v}", "{v} is the month of {s}", "{s} was born in {v}", "the birthday of {s} is in {v}", "{s} has a birthday in {v}"], ["{s} has the birthday in {v}"]),
    "hour": ("integer", whole(1, 24), ["at {v} o'clock {s} is here", "{s} [leaves|comes home|eats|sleeps] at {v}", "the hour of {s} is {v}", "meet {s} at {v} o'clock", "{s} gets up at {v}", "{s} starts at {v} o'clock", "{s} calls at {v}"], ["{s} starts work at {v} o'clock"]),
    "children": ("integer", whole(1, 9), ["{v} children belong to {s}", "{s} looks after {v} children", "{s} is a parent of {v}", "children of {s}: {v}", "{s} has {v} children", "{s} has {v} kids"], ["{s} and the {v} children are here"]),
    "item": ("string", one_of(FOODS), ["{s} ordered {v}", "{s} carries {v}", "{v} are for {s}", "{s} asked for {v}", "{s} needs {v}", "item of {s}: {v}", "{s} wants {v}", "{s} likes to eat {v}", "{s} is buying {v}"], ["{s} would like {v}"]),
    "price": ("integer", whole(1, 999), ["{s} paid {v}", "it costs {s} {v} coins", "{v} coins is the price for {s}", "{s} gave {v} coins", "{s} must pay {v}", "price for {s}: {v}", "{s} pays {v} coins", "{s} spent {v} coins", "the bill of {s} is {v} coins"], ["{s} has to pay {v} coins"]),
    "team": ("string", one_of(COLORS), ["the team of {s} is {v}", "{v} is the team of {s}", "{s} joined team {v}", "team of {s}: {v}", "{s} plays for the {v} team", "{s} is on the {v} team"], ["{s} is with the {v} team"]),
    "score": ("integer", whole(0, 200), ["the score of {s} is {v}", "{v} points go to {s}", "{s} ended with {v} points", "{s} made {v} points", "{s} reached {v}", "score of {s}: {v}", "{s} scored {v} points", "{s} has {v} points", "{s} won {v} points"], ["{s} got {v} points"]),
    "email": ("string", lambda rng, split: f"{word(rng, split)}@{word(rng, 'train')}.example", ["{v} is the email of {s}", "{s} reads mail at {v}", "mail {s} at {v}", "{s} can be reached at {v}", "email of {s}: {v}", "the email of {s} is {v}", "write to {s} at {v}", "{s} uses the address {v}"], ["{s} has the email {v}"]),
    "phone": ("string", lambda rng, split: "".join(rng.choice("0123456789") for _ in range(6)), ["{v} is the number of {s}", "{s} answers on {v}", "dial {v} for {s}", "{s} can be called at {v}", "phone of {s}: {v}", "the phone number of {s} is {v}", "call {s} on {v}", "{s} has the number {v}"], ["{s} has the phone number {v}"]),
    "height": ("integer", whole(90, 210), ["the height of {s} is {v} centimeters", "{s} has a height of {v}", "{s} grew to {v} centimeters", "height of {s}: {v}", "{s} is {v} centimeters tall", "{s} measures {v} centimeters"], ["{s} is about {v} centimeters tall"]),
    "hobby": ("string", one_of("painting singing dancing reading swimming cooking chess fishing running sailing knitting".split()), ["{s} spends the day {v}", "{v} is the hobby of {s}", "{s} is good at {v}", "{s} does a lot of {v}", "hobby of {s}: {v}", "the hobby of {s} is {v}", "{s} loves {v}", "{s} enjoys {v}"], ["{s} really enjoys {v}"]),
    "room": ("integer", whole(1, 400), ["room {v} is for {s}", "{s} lives in room {v}", "find {s} in room {v}", "the room of {s} is {v}", "room of {s}: {v}", "{s} is in room {v}", "{s} has room {v}", "{s} sleeps in room {v}"], ["{s} stays in room {v}"]),
    "language": ("string", one_of("English French German Spanish Italian Greek Polish Danish Dutch Finnish Turkish Korean".split()), ["{v} is the language of {s}", "{s} writes in {v}", "{s} grew up with {v}", "{s} teaches {v}", "language of {s}: {v}", "{s} speaks {v}", "the language of {s} is {v}", "{s} is learning {v}"], ["{s} can speak {v}"]),
}
KEYS = [key for key in ATTRIBUTES if key != "name"]
TRAIN_ASK = [
    "This is the text: {text} [Show|Write down|List] {keys} [as|in] JSON.", "[From|Using] this text, make JSON with [the keys |]{keys}: {text}", "{text}\nJSON keys: {keys}", "{text} [Put|Bring] [the facts|everything] into a JSON object: {keys}.", "My schema is {schema}. My text is: {text}", "Schema {full_schema}, text: {text} [Answer in JSON.|JSON, please.|]",
    "Parse this into JSON with {keys}: {text}", "Summarize as JSON ({keys}): {text}", "[Store|Save] this as JSON with [the fields |]{keys}: {text}", "{schema} <- fill this in from: {text}", "For the text \"{text}\" return JSON with {keys}.", "What is the JSON with {keys} for this text? {text}", "Be a parser. Keys: {keys}. {text}",
    "Take the schema {schema} and this text: {text} [Fill it in.|Answer in JSON.|What is the JSON?]", "Use the following JSON schema.\n{full_schema}\n{text}", "[Read the text and answer in JSON|JSON, please]. Text: {text} Schema: {schema}", "A text and a schema. {text} {full_schema}", "{text} [Show|Say] that as a JSON object that has {keys}.",
    "[Answer|Reply|Respond] [in|with|as] JSON with the keys {keys}: {text}", "{text} [Give me|Return|Write|Make] [a JSON object|JSON] with [the keys |the fields |]{keys}.",
    "[Extract|Get|Find] {keys} [from this text |]as JSON: {text}", "[Turn|Convert|Change] this [text |sentence |]into JSON with {keys}: {text}", "JSON with {keys}: {text}",
    "Text: {text}\nKeys: {keys}\n[Answer in JSON.|Give JSON.|Output JSON.]", "{text}\n[Return|Output|Answer with] only JSON with [the keys |the fields |]{keys}.",
    "[Fill in|Complete|Use] this schema[ with the text|]: {schema}\n{text}", "{text} [Answer|Reply] [in|as] JSON[ like this|]: {schema}", "Schema: {schema}\nText: {text}",
    "[Read|Take] this: {text} [Now |]write [it|that] as JSON with [the keys |]{keys}.", "[Can|Could] you [give|write] {keys} as JSON? {text}",
    "[Follow|Use] this JSON schema: {full_schema}\n[Text: |]{text}", "{text}\n[Answer|Reply] with JSON that [matches|follows] this schema: {full_schema}",
    "Make a JSON object from this: {text} The keys are {keys}.", "I need JSON. Keys: {keys}. Text: {text}", "{text} As JSON with {keys}, please.",
]  # fmt: skip
HELD_OUT_ASK = [
    "Please write the following as a JSON object with the keys {keys}: {text}", "Here is a text: {text} I want JSON with the keys {keys}.",
    "Give me the JSON for this schema: {schema}\nThe text is: {text}", "{text} Put this into JSON with the keys {keys}, please.",
    "The JSON schema is {full_schema}\nPlease answer in JSON for this text: {text}",
]
TRAIN_SYSTEM = [
    "The user gives [you |]a text. [Give back|Return|Write] JSON with {keys}.", "You are a parser. The keys are {keys}.", "For every text, fill in this schema: {schema}", "[Convert|Change] what the user [says|writes] into JSON: {schema}", "You make JSON objects with [the keys |the fields |]{keys}, nothing else.", "JSON schema of your answers: {full_schema}", "Find {keys} in each message and give them as JSON.",
    "[Always answer|Answer|Reply|Respond] [in|with] JSON with the keys {keys}.", "You [extract|read out] {keys} from [the text|what the user says] and answer in JSON.",
    "[Output|Return] only JSON[ with this schema|]: {schema}", "[Answer|Reply] [only |]with JSON that [follows|matches] this schema: {full_schema}",
]
HELD_OUT_SYSTEM = ["You turn each text into JSON with the keys {keys}.", "Every answer must be JSON with this schema: {schema}"]
SUMS = ["[Answer|Reply] in JSON with the key {key}: [what is|how much is|] {a} [plus|+] {b}?", "[What is|How much is] {a} [plus|+] {b}? [Answer|Reply] [in|as] JSON with the key {key}.",
        "{a} + {b} as JSON with the key {key}"]  # fmt: skip


def schema_is_held_out(keys) -> bool:
    return held_out_hash("schema", *sorted(keys), share=0.12)


def sentence(rng, split, key, subject, value, first) -> str:
    kind, _, training, held_out = ATTRIBUTES[key]
    fragments = training if split == "train" else held_out
    if kind == "boolean":
        fragments = fragments[value]
    text = fill(expand(rng, rng.choice(fragments)), {"s": subject, "v": value})
    return text[0].upper() + text[1:] if first else text


def describe(rng, split, values: dict) -> str:
    """A short text that tells every value; `name` is the subject."""
    subject = values.get("name")
    pronoun = rng.choice(["she", "he"])
    keys = [key for key in values if key != "name"]
    if rng.random() < 0.6:
        rng.shuffle(keys)
    parts, text = [], ""
    for at, key in enumerate(keys):
        shown = (subject if rng.random() < 0.25 or at == 0 else pronoun) if subject else rng.choice(["I", "she", "he"])
        own = ATTRIBUTES[key][2 if split == "train" else 3]
        if not subject or "of {s}" in str(own) or "to {s}" in str(own):
            shown = subject or name(rng, split)
        parts.append((key, shown))
    sentences = [sentence(rng, split, key, shown, values[key], first=False) for key, shown in parts]
    if len(sentences) == 2 and rng.random() < 0.4:
        text = f"{sentences[0]} and {sentences[1]}."
    elif len(sentences) > 1 and rng.random() < 0.25:
        text = join_words(sentences) + "."
    else:
        text = " ".join(f"{part[0].upper()}{part[1:]}." for part in sentences)
    return text[0].upper() + text[1:]


def show_keys(rng, keys) -> str:
    quote = rng.choice(['"', "", "", "'"])
    quoted = [f"{quote}{key}{quote}" for key in keys]
    if rng.random() < 0.3:
        quoted = [f"{shown} ({ATTRIBUTES[key][0]})" for shown, key in zip(quoted, keys)]
    return join_words(quoted) if rng.random() < 0.7 else ", ".join(quoted)


def sample(rng, split: str) -> Example:
    noise = split == "train"
    if noise:
        draw = rng.random()
        if draw < 0.05:
            return json_sum(rng)
        if draw < 0.25:
            return free_keys(rng)
    while True:
        keys = ["name"] + rng.sample(KEYS, rng.choice([1, 1, 2, 2, 3]))
        if rng.random() < 0.4:
            rng.shuffle(keys)
        if schema_is_held_out(keys) == (split == "held_out"):
            break
    full_name = noise and rng.random() < 0.12
    values = {key: name(rng, split) + (" " + name(rng, split) if full_name else "") if key == "name" else ATTRIBUTES[key][1](rng, split) for key in keys}
    told = dict(values)
    if rng.random() < 0.15:  # the text says more than is asked for
        extra = rng.choice([key for key in KEYS if key not in keys])
        told[extra] = ATTRIBUTES[extra][1](rng, split)
    text = describe(rng, split, {"name": told.pop("name"), **told})
    types = {key: ATTRIBUTES[key][0] for key in keys}
    slots = {
        "text": text,
        "keys": show_keys(rng, keys),
        "schema": json.dumps(types) if rng.random() < 0.7 else "{" + ", ".join(f'"{key}": ...' for key in keys) + "}",
        "full_schema": json.dumps({"type": "object", "properties": {key: {"type": kind} for key, kind in types.items()}}),
    }
    messages = []
    if rng.random() < 0.2:
        wording = rng.choice(TRAIN_SYSTEM if noise else HELD_OUT_SYSTEM)
        messages.append({"role": "system", "content": fill(expand(rng, wording), slots)})
        user = text
    else:
        wording = rng.choice(TRAIN_ASK if noise else HELD_OUT_ASK)
        user = ask(rng, wording, noise=noise and rng.random() < 0.5, **slots)
    messages += [{"role": "user", "content": user}, {"role": "assistant", "content": json.dumps(values, ensure_ascii=False)}]
    return Example("json", messages, {"type": "json", "value": values}, wording)


FREE = [
    "the {key} of {s} is {v}", "{s} has the {key} {v}", "{key} of {s}: {v}", "{v} is the {key} of {s}", "for {s} the {key} is {v}", "as {key}, {s} has {v}", "{s}'s {key} is {v}", "{key}: {v}", "{key} = {v}", "the {key} is {v}", "{v} is the {key}",
    "there is the {key} {v}", "with {v} as {key}", "{s} chose {v} as {key}", "we know the {key}: {v}",
]


def free_keys(rng) -> Example:
    """Any word as a key, any word or number as its value (training only)."""
    subject, values, told = name(rng, "train"), {}, []
    if rng.random() < 0.5:
        values["name"] = subject
    for _ in range(rng.choice([1, 2, 2, 3, 3, 4])):
        key = word(rng, "train") if rng.random() < 0.8 else f"{word(rng, 'train')}_{word(rng, 'train')}"
        draw = rng.random()
        if draw < 0.35:
            value = rng.randint(0, 10 ** rng.randint(1, 4))
        elif draw < 0.6:
            value = word(rng, "train")
        elif draw < 0.8:
            value = city(rng, "train")
        elif draw < 0.9:
            value = f"{word(rng, 'train')}@{word(rng, 'train')}.{rng.choice(['example', 'com', 'org', 'test'])}"
        else:
            value = name(rng, "train")
        values[key] = value
        told.append(fill(rng.choice(FREE), {"key": key.replace("_", " "), "s": subject, "v": value}))
    if "name" in values and not any(subject in part for part in told):
        told.insert(0, rng.choice([f"this is about {subject}", f"name: {subject}", f"{subject} is here", f"the name is {subject}"]))
    joined = rng.choice([". ", ", ", "; ", "\n", " and "]).join(told) + rng.choice([".", "", "."])
    keys = list(values)
    if rng.random() < 0.3:
        rng.shuffle(keys)
    values = {key: values[key] for key in keys}
    types = {key: "integer" if isinstance(value, int) else "string" for key, value in values.items()}
    quote = rng.choice(['"', "", "'"])
    slots = {
        "text": joined[0].upper() + joined[1:] if joined.split(" ")[0] not in values else joined,
        "keys": join_words([f"{quote}{key}{quote}" for key in keys]),
        "schema": json.dumps(types) if rng.random() < 0.7 else "{" + ", ".join(f'"{key}": ...' for key in keys) + "}",
        "full_schema": json.dumps({"type": "object", "properties": {key: {"type": kind} for key, kind in types.items()}}),
    }
    wording = rng.choice(TRAIN_ASK)
    messages = [{"role": "user", "content": ask(rng, wording, noise=rng.random() < 0.5, **slots)}, {"role": "assistant", "content": json.dumps(values, ensure_ascii=False)}]
    return Example("json", messages, {"type": "json_free", "value": values}, wording)


def json_sum(rng) -> Example:
    from skills.arithmetic import problem_is_held_out

    a, b = rng.randint(0, 99), rng.randint(0, 99)
    if problem_is_held_out("+", a, b):
        return json_sum(rng)
    key = rng.choice(["result", "sum", "answer", "total", "value"])
    wording = rng.choice(SUMS)
    messages = [{"role": "user", "content": ask(rng, wording, a=a, b=b, key=rng.choice([key, f'"{key}"']))},
                {"role": "assistant", "content": json.dumps({key: a + b})}]  # fmt: skip
    return Example("json", messages, {"type": "json", "value": {key: a + b}}, wording)
