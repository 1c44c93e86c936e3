"""Calling get_weather, get_time and calculator (and a few others that come and go), then using the answer."""

import json

from grammar import ask, expand, say
from lexicon import city, name, word
from skills import Example
from skills.arithmetic import SYMBOL, problem_is_held_out, result


def tool(name_, descriptions, parameters):
    """parameters: {name: (type, description)}"""
    return name_, descriptions, parameters


MAIN = [
    tool("get_weather", ["Get the weather in a city", "Current weather for a city", "Returns the weather of a place", "Look up the weather"], {"city": ("string", ["The city", "Name of the city", "City name"])}),
    tool("get_time", ["Get the local time in a city", "Current time in a city", "Returns the time of a place", "Look up the local time"], {"city": ("string", ["The city", "Name of the city", "City name"])}),
    tool("calculator", ["Calculate an expression", "Evaluate an arithmetic expression", "Does arithmetic", "A calculator"], {"expression": ("string", ["The expression", "What to calculate, such as 2 + 3", "An arithmetic expression"])}),
]
OTHERS = [
    tool("get_news", ["News from a city", "Look up the news of a place"], {"city": ("string", ["The city", "Where"])}),
    tool("find_hotel", ["Find a hotel in a city", "Look up a place to sleep"], {"city": ("string", ["The city", "Where"])}),
    tool("get_population", ["How many people live in a city", "Look up the population"], {"city": ("string", ["The city"])}),
    tool("get_price", ["Price of a thing", "Look up what something costs"], {"item": ("string", ["What to look up", "The thing"])}),
    tool("set_timer", ["Set a timer", "Start a timer"], {"minutes": ("integer", ["Minutes to wait", "How many minutes"])}),
    tool("play_song", ["Play a song", "Start some music"], {"title": ("string", ["Title of the song", "The song"])}),
    tool("send_message", ["Send a message to a person", "Write to somebody"], {"to": ("string", ["Who gets it"]), "text": ("string", ["The message"])}),
    tool("open_door", ["Open a door", "Opens the door of a room"], {"room": ("string", ["The room"])}),
]  # fmt: skip
TRAIN = {
    "get_weather": [
        "[Which|What sort of] weather does {city} have[ today|]?", "I [wonder|am wondering] [how the weather is in|if it rains in|if it is warm in|if it is cold in] {city}.", "Weather report for {city}[, please|].", "Is {city} [sunny|cold|warm|wet|hot|cloudy] [now|today|right now]?", "What [can|should] I wear in {city} today?", "[Show|Give] me the temperature [in|of|for] {city}.", "{city} weather[ today| now|]?", "I live in {city}. [Is it cold|Is it warm|Will it rain|Is it nice] outside?",
        "We are in {city}. [What about the weather|Is it cold|Is it warm|Should we take a coat]?", "Tomorrow I [go|fly|travel] to {city}; is it [warm|cold|wet|nice] there?", "My [mother|brother|sister] is in {city}. [Is it cold there|Is it warm there|How is the weather there|Does it rain there]?", "What is the sky like in {city}?", "I'm in {city}, how's the weather?", "Any [rain|snow|sun|wind] in {city}?", "[Before I go|Before we travel] to {city}: is it [cold|warm|raining] there?", "My train leaves for {city}. Is it [cold|warm|hot] there?", "How does it look in {city}, weather-wise?",
        "[What is|What's|How is|How's] the weather [like |]in {city}[ today| now| right now|]?", "[Is it|Will it be] [sunny|raining|cold|warm|windy|snowing] in {city}[ today|]?", "weather {city}", "[Tell me|Give me|Check|Look up] the weather [in|for] {city}[.|, please.]",
        "[Do I|Will I] need [a coat|gloves|a hat] in {city}[ today|]?", "I'm [going|travelling|flying] to {city}. [How is|What is] the weather [there|like there]?", "[What|How] [about |]the weather in {city}?", "[Can|Could] you [check|look up|tell me] the weather [in|for] {city}?",
        "How [cold|warm|hot] is it in {city}[ now| today|]?", "What is the temperature in {city}?", "The weather [in|for] {city}, please.", "Does it rain in {city}?", "Weather in {city}?",
    ],
    "get_time": [
        "[Which|What] hour is it in {city}?", "I [wonder|am wondering] what time it is in {city}.", "The clock in {city}, what does it show?", "Is it [still early|already noon|past midnight|night] in {city}?", "[Show|Give] me the clock [in|of|for] {city}.", "{city} time[ now|]?", "I live in {city}. What is the time?", "We are in {city}. [How late is it|What time is it]?", "My [mother|brother|sister] is in {city}. [How late is it there|What time is it there|What is the local time there]?",
        "I'm in {city}, what's the time?", "Tomorrow I fly to {city}; what time is it there now?", "Can I call {city} now, or is it too late there?", "When I look at a clock in {city}, what do I see?", "What's the hour in {city} at the moment?",
        "What time is it in {city}[ now| right now|]?", "[What is|What's] the [time|local time|current time] in {city}[ now|]?", "time in {city}", "[Tell me|Give me|Check|Look up] the [|local |current ]time [in|for] {city}[.|, please.]",
        "[Is it|Is it already] [late|morning|evening|night|day] in {city}?", "[Can|Could] you [check|look up|tell me] [the time in|what time it is in] {city}?", "I [want|have] to call [somebody|a friend] in {city}. What time is it there?", "How late is it in {city}?",
        "Do you know the time in {city}?", "The time in {city}, please.", "What does the clock say in {city}?", "Time in {city}?",
    ],
    "calculator": [
        "I wonder what {e} is.", "Any idea what {e} is?", "[Show|Give] me {e}.", "Help me with {e}.", "{e}, please.", "How do I get {e}?", "The sum is {e}. [Solve it|What is it].", "Run the calculator [on|for|with] {e}.", "[Check|Solve|Do] {e}.", "What comes out of {e}?",
        "[What is|How much is|What's] {e}?", "[Calculate|Compute|Work out|Evaluate] {e}[.|]", "[Use the calculator|Use your calculator] [for|on] {e}.", "{e}", "{e} = ?", "[Can|Could] you [calculate|compute|work out] {e}[ for me|]?",
        "I need the result of {e}.", "[Tell me|Give me] the result of {e}.", "Please [calculate|compute] {e}.", "Let the calculator [do|solve] {e}.",
    ],
    "get_news": ["[What is|What's] new in {city}?", "[Any|Show me the|Give me the] news [from|in|of] {city}[.|]", "What is happening in {city}?", "[Tell me|Look up] the news from {city}."],
    "find_hotel": ["[Find|Look for|I need] a hotel in {city}.", "Where can I sleep in {city}?", "I want to stay in {city} for a night. Where?", "hotel {city}"],
    "get_population": ["How many people live in {city}?", "How big is {city}?", "[What is|Tell me] the population of {city}[.|]", "population {city}"],
    "get_price": ["What does {item} cost?", "How much is {item}?", "[What is|Tell me] the price of {item}[.|]", "price of {item}"],
    "set_timer": ["[Set|Start] a timer [for|of] {minutes} minutes.", "[Wake me|Remind me|Call me] in {minutes} minutes.", "timer {minutes} minutes", "I need a timer for {minutes} minutes."],
    "play_song": ["[Play|Please play|Put on] [|the song ]{title}.", "I want to hear {title}.", "[Can|Could] you play {title}?"],
    "send_message": ["[Write|Send a message] to {to}: {text}", "[Tell|Message] {to} [that |]{text}"],
    "open_door": ["[Open|Please open] the door of the {room}.", "I want to go into the {room}.", "[Can|Could] you open the {room} door?"],
}
HELD_OUT = {
    "get_weather": ["Please find out how the weather is in {city}.", "I want to know the weather in {city}.", "Say, what is it like outside in {city} today?", "I'm on my way to {city}, is it cold there?"],
    "get_time": ["Please find out what time it is in {city}.", "I want to know the time in {city}.", "Say, how late is it right now in {city}?", "My friend lives in {city}. What is the time over there?"],
    "calculator": ["Please find out what {e} is.", "I want to know {e}.", "What do I get for {e}?", "Let's use the calculator: {e}"],
}  # fmt: skip
SKY = ["sunny", "cloudy", "rainy", "snowy", "windy", "foggy", "stormy", "clear"]
TRAIN_SYSTEM = ["You [are|are a] helpful[|,] [and may use tools|assistant with tools].", "[Use|You may use] the tools [when they help|where needed].", "You are Rill.", "Be [brief|short|friendly]."]


def describe(rng, chosen, split) -> list:
    listed = []
    for name_, descriptions, parameters in chosen:
        properties = {key: {"type": kind, "description": rng.choice(texts)} for key, (kind, texts) in parameters.items()}
        if rng.random() < 0.3:
            properties = {key: {"type": value["type"]} for key, value in properties.items()}
        schema = {"type": "object", "properties": properties}
        if rng.random() < 0.7:
            schema["required"] = list(parameters)
        listed.append({"type": "function", "function": {"name": name_, "description": rng.choice(descriptions), "parameters": schema}})
    return listed


def call(name_, arguments) -> dict:
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": name_, "arguments": arguments}}]}


def answered(rng, name_, arguments, user) -> tuple[str, str, list]:
    """→ the tool's result, what the assistant makes of it, what the answer must contain."""
    if name_ == "get_weather":
        sky, degrees = rng.choice(SKY), rng.randint(-20, 40)
        shape = rng.random()
        if shape < 0.5:
            outcome = json.dumps({"city": arguments["city"], "weather": sky, "temperature": degrees}, ensure_ascii=False)
        elif shape < 0.75:
            outcome = json.dumps({"temperature": degrees, "sky": sky})
        else:
            outcome = f"{sky}, {degrees} degrees"
        return outcome, f"In {arguments['city']} it is {sky} with {degrees} degrees.", [arguments["city"], sky, str(degrees)]
    if name_ == "get_time":
        time = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
        shape = rng.random()
        outcome = json.dumps({"city": arguments["city"], "time": time}, ensure_ascii=False) if shape < 0.5 else json.dumps({"time": time}) if shape < 0.75 else time
        return outcome, f"It is {time} in {arguments['city']}.", [arguments["city"], time]
    if name_ == "calculator":
        a, sign, b = arguments["expression"].split(" ")
        value = result({"+": "+", "-": "-", "*": "*"}[sign], int(a), int(b))
        if rng.random() < 0.25:  # the answer is the tool's, whatever it is
            value = rng.randint(0, 10 ** len(str(abs(value))) + 9)
        outcome = json.dumps({"result": value}) if rng.random() < 0.6 else str(value)
        return outcome, f"{arguments['expression'].replace('*', '×')} = {value}.", [str(value)]
    if name_ == "get_news":
        event = rng.choice(["a new bridge is open", "the market is full", "the river is high", "a big race is on", "the museum is free today"])
        return json.dumps({"news": event}), f"News from {arguments['city']}: {event}.", []
    if name_ == "find_hotel":
        hotel = f"{word(rng, 'train').capitalize()} {rng.choice(['Inn', 'House', 'Hotel'])}"
        return json.dumps({"hotel": hotel}), f"You can stay in the {hotel} in {arguments['city']}.", []
    if name_ == "get_population":
        people = rng.randint(1, 9000) * 1000
        return json.dumps({"population": people}), f"{people} people live in {arguments['city']}.", []
    if name_ == "get_price":
        price = rng.randint(1, 900)
        return json.dumps({"price": price}), f"The price of {arguments['item']} is {price}.", []
    if name_ == "set_timer":
        return json.dumps({"ok": True}), f"The timer is set for {arguments['minutes']} minutes.", []
    if name_ == "play_song":
        return json.dumps({"ok": True}), f"Now playing {arguments['title']}.", []
    if name_ == "send_message":
        return json.dumps({"ok": True}), f"I sent the message to {arguments['to']}.", []
    return json.dumps({"ok": True}), f"The door of the {arguments['room']} is open.", []


def make_arguments(rng, name_, split) -> tuple[dict, dict]:
    """→ the call's arguments, the slots of the question."""
    if name_ == "get_price":
        item = word(rng, split)
        return {"item": item}, {"item": item}
    if name_ in ("get_weather", "get_time", "get_news", "find_hotel", "get_population"):
        place = city(rng, split)
        shown = place.lower() if split == "train" and rng.random() < 0.05 else place
        return {"city": shown}, {"city": shown}
    if name_ == "calculator":
        while True:
            operation = rng.choice("+-*")
            a, b = (rng.randint(1, 10 ** rng.choice([2, 3, 3, 4]) - 1) for _ in range(2))
            if split == "train" or problem_is_held_out(operation, a, b):
                break
        sign = rng.choice({"+": ["+", "plus"], "-": ["-", "minus"], "*": ["*", "x", "×", "times"]}[operation])
        tight = sign in "+-*x×" and rng.random() < 0.2
        return {"expression": f"{a} {operation} {b}"}, {"e": f"{a}{sign}{b}" if tight else f"{a} {sign} {b}"}
    if name_ == "set_timer":
        minutes = rng.randint(1, 90)
        return {"minutes": minutes}, {"minutes": minutes}
    if name_ == "play_song":
        title = " ".join(word(rng, split) for _ in range(rng.randint(1, 3))).title()
        return {"title": title}, {"title": title}
    if name_ == "send_message":
        slots = {"to": name(rng, split), "text": rng.choice(["I am late", "see you soon", "the door is open", "dinner is ready", "come home", "I will call you"])}
        return slots, slots
    room = rng.choice(["kitchen", "office", "garden", "garage", "cellar", "attic"])
    return {"room": room}, {"room": room}


def offered(rng, needed, split) -> list:
    chosen = [entry for entry in MAIN if entry[0] in needed or rng.random() < 0.75]
    if split == "train":
        chosen += [entry for entry in OTHERS if entry[0] in needed or rng.random() < 0.1]
    if rng.random() < 0.6:
        rng.shuffle(chosen)
    return chosen


def sample(rng, split: str) -> Example:
    names = [entry[0] for entry in MAIN]
    if split == "train" and rng.random() < 0.15:
        names = [entry[0] for entry in OTHERS]
    name_ = rng.choice(names)
    tools = describe(rng, offered(rng, [name_], split), split)
    arguments, slots = make_arguments(rng, name_, split)
    wording = rng.choice((TRAIN if split == "train" else HELD_OUT)[name_])
    user = ask(rng, wording, noise=split == "train", **slots)
    outcome, text, needed = answered(rng, name_, arguments, user)
    messages = [{"role": "user", "content": user}, call(name_, arguments), {"role": "tool", "content": outcome}, {"role": "assistant", "content": text}]
    if split == "train" and rng.random() < 0.25:
        messages.insert(0, {"role": "system", "content": expand(rng, rng.choice(TRAIN_SYSTEM))})
    expect = {"type": "tool_call", "name": name_, "arguments": arguments, "answer": needed}
    return Example("tool_call", messages, expect, wording, tools=tools)


def missing_tool(rng) -> Example:
    """The tool for the question is not offered, or none is: say so instead of making something up."""
    name_ = rng.choice(["get_weather", "get_time"])
    slots = make_arguments(rng, name_, "train")[1]
    wording = rng.choice(TRAIN[name_])
    what = "weather" if name_ == "get_weather" else "time"
    chosen = [entry for entry in MAIN + OTHERS if entry[0] != name_ and rng.random() < 0.4] if rng.random() < 0.4 else []
    text = say(rng, "I don't know the {what} in {city}: I have no tool for that.", what=what, **slots)
    messages = [{"role": "user", "content": ask(rng, wording, **slots)}, {"role": "assistant", "content": text}]
    return Example("unknown", messages, {"type": "contains", "any": ["don't know"]}, wording, tools=describe(rng, chosen, "train") or None)
