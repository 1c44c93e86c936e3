"""Following a system prompt: capitals, a name, a fixed ending, an answer in another skill's words."""

from grammar import ask, expand, say
from lexicon import name, word
from skills import Example, turn
from skills import arithmetic, json_answers, rillm_facts, small_talk, stories, word_work

CAPITALS = ["[Answer|Reply|Respond|Write|Speak] in [capitals|capital letters|upper case|uppercase|all caps][.|, always.|.]", "[Always|Only] [use|write in] capital letters.", "You [shout|write everything in capitals|answer in upper case].", "ALWAYS ANSWER IN CAPITALS.", "Use capital letters only.", "Every answer must be in [capitals|upper case|capital letters].", "All your answers are in capitals.", "Write as if caps lock were on.", "Capitals only, please.", "[No small letters|Never use small letters|Never use lower case].", "Answer the user in [upper case|capital letters|capitals|big letters].", "Your replies are written in [capital letters|upper case].", "You like to shout: capitals only.", "Make all your answers [upper case|uppercase|all capitals]."]
CAPITALS_HELD_OUT = ["Please answer everything in capitals.", "You only write in upper case letters."]
LOWER = ["[Answer|Reply|Respond|Write] in [lower case|lowercase|small letters][.|, always.]", "[Always|Only] use [small letters|lower case].", "Never use capital letters.", "Every answer must be in lower case.", "Small letters only, please.", "[No capitals|Never use capitals|Never use upper case].", "Answer the user in [lower case|small letters].", "Your replies are written in [small letters|lower case].", "You whisper: lower case only.", "Make all your answers [lower case|lowercase].", "do not use capital letters."]
LOWER_HELD_OUT = ["Please answer everything in lower case."]
PERSONA = ["You are {name}.", "You are {name}, a [helpful|friendly|kind|small|brief] [assistant|model|robot|helper].", "Your name is {name}.", "[Act as|Play] {name}.", "You are [a robot|an assistant|a helper] [called|named] {name}.", "You are {name}. [Be friendly.|Help the user.|Answer briefly.]", "You are called {name}. Help the user.", "We call you {name}.", "Today you are {name}.", "You play the part of {name}.", "You are now {name}.", "Be {name}.", "[The user|Everyone|People] will call you {name}.", "You are the [little|small|friendly|wise|happy] [helper|robot|model|computer] {name}.", "This assistant is called {name}.", "Say that you are {name} when asked.", "The name of the assistant is {name}.", "You are a [kind|good|small] [friend|machine|voice] and your name is {name}.", "{name} is your name.", "Pretend to be {name}.", "I will call you {name}.", "In this chat you are {name}."]
PERSONA_HELD_OUT = ["From now on you are {name}.", "You are a small helper with the name {name}."]
ASK_NAME = ["Who are you?", "[What's|What is] your name?", "What are you called?", "Say your name[.|]", "Introduce yourself.", "Who am I talking to?", "What should I call you?", "Do you have a name?", "name?", "And you are?", "How are you called?", "Can you give me your name?", "Say who you are.", "I am [Bo|Max|Anna]. And you?", "Which name do you have?", "May I know your name?", "Who is there?", "Who is speaking?", "Is there a name I can call you by?", "[Hi|Hello|Hey], who are you?"]
ASK_NAME_HELD_OUT = ["Please tell me your name.", "With whom am I talking?"]
ENDING = ["[End|Finish|Close] every [answer|reply|message] with \"{w}\".", "[Always end|Always finish] with the word \"{w}\".", "After every answer, [say|write] \"{w}\".", "Put \"{w}\" at the end of every answer.", "[The last word|The end] of [every|each] answer is \"{w}\".", "Let [every|each] answer end [in|with] \"{w}\".", "Your answers [always |]end with \"{w}\".", "Say \"{w}\" at the end[| of each message].", "Close with \"{w}\".", "[Add|Append] \"{w}\" to [every answer|all you say|each reply].", "When you are done with an answer, add \"{w}\".", "Answer as usual, but end with \"{w}\".", "Every reply should finish with the word \"{w}\"."]
ENDING_HELD_OUT = ["Please finish all your answers with \"{w}\"."]
BEGINNING = ["[Begin|Start] every [answer|reply|message] with \"{w}\".", "[Always begin|Always start] with the word \"{w}\".", "Before every answer, [say|write] \"{w}\".", "[The first word] of [every|each] answer is \"{w}\".", "Let [every|each] answer begin with \"{w}\".", "Your answers [always |]start with \"{w}\".", "Say \"{w}\" first[|, then answer].", "Open with \"{w}\".", "Put \"{w}\" in front of [every answer|all you say|each reply].", "Answer as usual, but begin with \"{w}\"."]
BEGINNING_HELD_OUT = ["Please start all your answers with \"{w}\"."]
PLAIN = ["You are a helpful assistant.", "You are helpful.", "Be [helpful|friendly|kind|brief|honest|polite].", "You are a [small|friendly|kind|tiny] [model|language model|assistant].", "You are the demo model of rillm.", "Answer the user.", "Help the user.", "You are a [helpful|friendly] assistant that runs in a browser.", "Answer [briefly|clearly|truthfully].", "You are an expert."]


def short_example(rng, split: str) -> Example:
    """Something to answer under the rule."""
    kind = rng.choices(["arithmetic", "facts", "talk", "unknown", "story", "words"], [3, 4, 5, 2, 1, 1])[0]
    if kind == "arithmetic":
        return arithmetic.sample(rng, split, digits=2)
    if kind == "words":
        return word_work.sample(rng, split)
    if kind == "facts":
        return rillm_facts.sample(rng, split)
    if kind == "unknown":
        return small_talk.unknown(rng, split)
    return stories.sample(rng, split) if kind == "story" else small_talk.small_talk(rng, split)


def sample(rng, split: str) -> Example:
    train = split == "train"
    rule = rng.choices(["capitals", "lower", "persona", "ending", "beginning"], [4, 2, 4, 2, 2])[0]
    if rule == "persona":
        who = "Rill" if rng.random() < 0.15 else name(rng, split)
        wording = rng.choice(PERSONA if train else PERSONA_HELD_OUT)
        system = say(rng, wording, name=who)
        if train and rng.random() < 0.35:  # the name changes nothing else
            inner = short_example(rng, split)
            while "who are you" in inner.messages[0]["content"].lower() or small_talk.SELF in inner.messages[-1]["content"]:
                inner = short_example(rng, split)
            return Example("system", [{"role": "system", "content": system}] + inner.messages, inner.expect, wording, facts=inner.facts)
        user = ask(rng, rng.choice(ASK_NAME if train else ASK_NAME_HELD_OUT), noise=train)
        messages = [{"role": "system", "content": system}] + turn(user, f"I am {who}. How can I help you?")
        return Example("system", messages, {"type": "contains_all", "all": [f"I am {who}"]}, wording)
    inner = short_example(rng, split)
    text = inner.messages[-1]["content"]
    chosen = word(rng, split)
    if rule == "capitals":
        wording, changed = rng.choice(CAPITALS if train else CAPITALS_HELD_OUT), text.upper()
        expect = {"type": "upper", "inner": inner.expect}
    elif rule == "lower":
        wording, changed = rng.choice(LOWER if train else LOWER_HELD_OUT), text.lower()
        expect = {"type": "lower", "inner": inner.expect}
    elif rule == "ending":
        wording, changed = rng.choice(ENDING if train else ENDING_HELD_OUT), f"{text} {chosen}"
        expect = {"type": "ends_with", "value": chosen}
    else:
        wording, changed = rng.choice(BEGINNING if train else BEGINNING_HELD_OUT), f"{chosen} {text}"
        expect = {"type": "starts_with", "value": chosen}
    system = say(rng, wording, w=chosen)
    messages = [{"role": "system", "content": system}] + turn(inner.messages[0]["content"], changed)
    return Example("system", messages, expect, wording, facts={key: value for key, value in inner.facts.items() if key == "problem"})


def plain(rng) -> str:
    """A system prompt that asks for nothing special."""
    return expand(rng, rng.choice(PLAIN))
