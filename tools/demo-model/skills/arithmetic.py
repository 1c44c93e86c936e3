"""Sums, differences, products of numbers up to three digits, and comparisons. Products show their working."""

from grammar import ask, held_out_hash
from lexicon import name
from skills import Example, turn

TRAIN = {
    "+": [
        "What is {a} [plus|+|and] {b}?", "[How much is|What's|What does] {a} [plus|+] {b} [|make]?", "{a} [+|plus] {b}", "{a} + {b} = ?",
        "{a}+{b}", "{a}+{b}=", "[Add|Please add] {a} and {b}.", "Add {b} to {a}.", "[Calculate|Compute|Work out|Solve|Evaluate] {a} [+|plus] {b}[.|]",
        "[What is|Give me|Find|Tell me] the sum of {a} and {b}[.|?]", "[I need|I want] {a} plus {b}[|, please].", "sum: {a} {b}",
        "If I add {b} to {a}, what do I get?", "What do you get when you add {a} and {b}?", "[Can|Could] you add {a} and {b} [for me|]?",
        "What [number|value] is {a} + {b}?", "How much do {a} and {b} make [together|]?", "{a} and {b} [added|added up|together] is what?",
        "I have {a} [apples|coins|books|shells|cards] and [get|find|buy] {b} more. How many [do I have|are there] [now|]?",
        "{name} has {a} [stamps|marbles|pears|eggs] and {other} gives {name} {b} more. How many [are there|does {name} have]?",
        "There are {a} [birds|sheep|boats] here and {b} there. How many [in all|are there in total|altogether]?",
        "I wonder what {a} plus {b} is.", "Any idea what {a} [+|plus] {b} is?", "Put {a} and {b} together: [how many|how much] is that?", "Help me [add|with] {a} + {b}.", "My sum is {a} + {b}. [Solve it|What is it].", "Increase {a} by {b}.", "How [many|much] is {a} [and|plus] another {b}?",
        "Do you know what {a} plus {b} is?", "Take {a} and add {b}. [What is the result|What comes out]?", "the result of {a} + {b}",
    ],
    "-": [
        "What is {a} [minus|-|less] {b}?", "[How much is|What's|What does] {a} [minus|-] {b} [|make]?", "{a} [-|minus] {b}", "{a} - {b} = ?",
        "{a}-{b}", "{a}-{b}=", "[Subtract|Please subtract|Take] {b} from {a}.", "[Calculate|Compute|Work out|Solve|Evaluate] {a} [-|minus] {b}[.|]",
        "[What is|Give me|Find|Tell me] the difference between {a} and {b}[.|?]", "[I need|I want] {a} minus {b}[|, please].",
        "If I take {b} from {a}, what [is left|remains]?", "What do you get when you subtract {b} from {a}?", "What is {a} take away {b}?",
        "[Can|Could] you subtract {b} from {a} [for me|]?", "What [number|value] is {a} - {b}?",
        "I wonder what {a} minus {b} is.", "Any idea what {a} [-|minus] {b} is?", "Remove {b} from {a}: [how many|how much] is that?", "Help me [subtract|with] {a} - {b}.", "Decrease {a} by {b}.", "How [many|much] is {a} without {b}?", "Starting at {a}, go down by {b}.", "By how much is {a} more than {b}?",
        "Do you know what {a} minus {b} is?", "Take {a} and subtract {b}. [What is the result|What comes out]?", "the result of {a} - {b}",
    ],
    "story-": [  # only where a >= b
        "I have {a} [apples|coins|books|shells|cards] and [lose|sell|eat|give away] {b}. How many [do I have|are left] [now|]?",
        "{name} has {a} [stamps|marbles|pears|eggs] and gives {other} {b} [of them|]. How many [are left|does {name} have]?",
        "There were {a} [birds|sheep|boats] and {b} left. How many [are left|remain|are still there]?",
    ],
    "*": [
        "What is {a} [times|x|*|×|multiplied by] {b}?", "[How much is|What's|What does] {a} [times|x|*] {b} [|make]?", "{a} [x|*|×|times] {b}",
        "{a} [×|*] {b} = ?", "{a}*{b}", "{a}x{b}", "{a}*{b}=", "[Multiply|Please multiply] {a} [by|and|with] {b}.",
        "[Calculate|Compute|Work out|Solve|Evaluate] {a} [x|*|×|times] {b}[.|]", "[What is|Give me|Find|Tell me] the product of {a} and {b}[.|?]",
        "[I need|I want] {a} times {b}[|, please].", "If I multiply {a} by {b}, what do I get?", "What do you get when you multiply {a} and {b}?",
        "[Can|Could] you multiply {a} by {b} [for me|]?", "What [number|value] is {a} × {b}?", "Do you know what {a} times {b} is?", "I wonder what {a} times {b} is.", "Any idea what {a} [×|times|*] {b} is?", "Help me [multiply|with] {a} × {b}.", "{b} times {a}, [how much is that|please]?", "There are {a} rows of {b} [trees|chairs|stones]. How many [is that|are there]?",
        "I have {a} [boxes|bags|baskets] with {b} [apples|coins|books|shells] [each|in each]. How many [are there|do I have]?",
        "Take {a} and multiply it by {b}. [What is the result|What comes out]?", "the result of {a} * {b}",
    ],
    "larger": [
        "Here are two numbers: {a} and {b}. [What|Which one] is the [larger|bigger|greater] one?", "Look at {a} and {b}. Which is the [larger|bigger|greater]?", "Given {a} and {b}, name the [larger|bigger|greater] one.",
        "Between {a} and {b}, [which is|what is] [more|larger|bigger|greater]?", "My numbers are {a} and {b}; [find|show me|name] the [larger|bigger] one.", "Choose the [larger|bigger|greater] number from {a} and {b}.", "I am looking for the [larger|bigger] one of {a} and {b}.",
        "{name} has {a} points and {other} has {b}. Which number is [larger|higher|bigger]?", "[Larger|Bigger|Greater] of the two: {a}, {b}", "Take {a} and {b}. Which one wins as the [larger|bigger] number?", "Which one of these is [larger|bigger|greater|the largest|the biggest]: {a}, {b}?", "Do you know which is [more|bigger|larger], {a} or {b}?",
        "One box holds {a} coins, the other holds {b}. What is the [larger|bigger] number?", "Numbers: {a} and {b}. [Largest|Biggest|Larger|Bigger|Maximum]?", "{a} and {b}: [find|say] the [maximum|larger one|bigger one].",
        "Which is [larger|bigger|greater|more], {a} or {b}?", "Which number is [larger|bigger|greater]: {a} or {b}?", "What is [larger|bigger|more], {a} or {b}?",
        "Is {a} or {b} the [larger|bigger|greater] number?", "[Tell me|Say] which is [larger|bigger]: {a} or {b}.", "{a} or {b}, which [one|] is [larger|bigger|greater|more]?",
        "[Find|Pick|Give me] the [larger|bigger|greater] of {a} and {b}.", "Compare {a} and {b}: which is [larger|bigger]?", "max of {a} and {b}",
        "Of {a} and {b}, which [number|one] is [greater|larger|bigger]?", "[larger|bigger]: {a} or {b}?",
    ],
    "smaller": [
        "Here are two numbers: {a} and {b}. [What|Which one] is the [smaller|lower] one?", "Look at {a} and {b}. Which is the [smaller|lower]?", "Given {a} and {b}, name the [smaller|lower] one.",
        "Between {a} and {b}, [which is|what is] [less|smaller|lower]?", "My numbers are {a} and {b}; [find|show me|name] the [smaller|lower] one.", "Choose the [smaller|lower] number from {a} and {b}.", "I am looking for the [smaller|lower] one of {a} and {b}.",
        "{name} has {a} points and {other} has {b}. Which number is [smaller|lower]?", "[Smaller|Lower] of the two: {a}, {b}", "Take {a} and {b}. Which one is the [smaller|lower] number?", "Which one of these is [smaller|lower|the smallest|the lowest]: {a}, {b}?", "Do you know which is [less|smaller|lower], {a} or {b}?",
        "One box holds {a} coins, the other holds {b}. What is the [smaller|lower] number?", "Numbers: {a} and {b}. [Smallest|Lowest|Smaller|Lower|Minimum]?", "{a} and {b}: [find|say] the [minimum|smaller one|lower one].",
        "Which is [smaller|less|lower], {a} or {b}?", "Which number is [smaller|lower]: {a} or {b}?", "What is [smaller|less], {a} or {b}?",
        "Is {a} or {b} the [smaller|lower] number?", "[Tell me|Say] which is [smaller|lower]: {a} or {b}.", "{a} or {b}, which [one|] is [smaller|lower|less]?",
        "[Find|Pick|Give me] the [smaller|lower] of {a} and {b}.", "Compare {a} and {b}: which is [smaller|lower]?", "min of {a} and {b}",
        "Of {a} and {b}, which [number|one] is [smaller|lower]?", "[smaller|lower]: {a} or {b}?",
    ],
    ">?": [
        "Does {a} [beat|exceed] {b}?", "Do you [think|believe] {a} is [larger|bigger|greater|more] than {b}?", "I say {a} is [larger|bigger|greater] than {b}. [Right|Correct|Is that right|True]?", "Check this: {a} is [larger|bigger|greater|more] than {b}.", "Are {a} coins more than {b} coins?",
        "Is {a}, as a number, [larger|bigger|greater] than {b}?", "{a} is [larger|bigger|greater] than {b}, [isn't it|right|true or false|yes or no]?", "Is {a} [a larger|a bigger|a greater] number than {b}?", "Is the value {a} [larger|above|more] than the value {b}?", "Is {a} above {b}?", "Tell me if {a} is [larger|bigger|greater] than {b}.",
        "Is {a} [larger|bigger|greater|more] than {b}?", "{a} > {b}?", "Is it true that {a} is [larger|bigger|greater] than {b}?",
        "[True or false|Yes or no]: {a} is [larger|bigger|greater] than {b}[.|?]", "[Can|Could] you tell me if {a} is [larger|bigger|greater] than {b}?",
    ],
    "<?": [
        "Does {a} [stay below|fall below] {b}?", "Do you [think|believe] {a} is [smaller|less|lower] than {b}?", "I say {a} is [smaller|less|lower] than {b}. [Right|Correct|Is that right|True]?", "Check this: {a} is [smaller|less|lower] than {b}.", "Are {a} coins [less|fewer] than {b} coins?",
        "Is {a}, as a number, [smaller|less|lower] than {b}?", "{a} is [smaller|less|lower] than {b}, [isn't it|right|true or false|yes or no]?", "Is {a} [a smaller|a lower] number than {b}?", "Is the value {a} [smaller|below|less] than the value {b}?", "Is {a} below {b}?", "Tell me if {a} is [smaller|less|lower] than {b}.",
        "Is {a} [smaller|less|lower] than {b}?", "{a} < {b}?", "Is it true that {a} is [smaller|less] than {b}?",
        "[True or false|Yes or no]: {a} is [smaller|less|lower] than {b}[.|?]", "[Can|Could] you tell me if {a} is [smaller|less|lower] than {b}?",
    ],
}
HELD_OUT = {
    "+": ["Tell me what {a} plus {b} comes to.", "Please work out the sum {a} + {b} for me.", "How much do I get if I add {a} and {b} together?",
          "I would like to know {a} plus {b}.", "{name} finds {a} shells and then {b} more. How many shells are there in all?"],
    "-": ["Tell me what {a} minus {b} comes to.", "Please work out the difference {a} - {b} for me.", "How much is left if I subtract {b} from {a}?",
          "I would like to know {a} minus {b}.", "Find what you get when {b} is taken from {a}."],
    "*": ["Tell me what {a} times {b} comes to.", "Please work out the product {a} × {b} for me.", "How much do I get if I multiply {a} and {b} together?",
          "I would like to know {a} times {b}.", "There are {a} bags and {b} coins in each bag. How many coins in total?"],
    "larger": ["I have two numbers, {a} and {b}. Which of them is larger?", "Please tell me the bigger number: {a} or {b}?"],
    "smaller": ["I have two numbers, {a} and {b}. Which of them is smaller?", "Please tell me the lower number: {a} or {b}?"],
    ">?": ["Would you say that {a} is greater than {b}?", "Is the number {a} bigger than the number {b}?"],
    "<?": ["Would you say that {a} is less than {b}?", "Is the number {a} smaller than the number {b}?"],
}  # fmt: skip
ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
SYMBOL = {"+": "+", "-": "-", "*": "×"}
WORD = {"+": "plus", "-": "minus", "*": "times"}


def in_words(number: int) -> str:
    if number < 20:
        return ONES[number]
    return TENS[number // 10] + ("-" + ONES[number % 10] if number % 10 else "")


def result(operation: str, a: int, b: int) -> int:
    return a + b if operation == "+" else a - b if operation == "-" else a * b


def product_working(a: int, b: int) -> str:
    """347 × 586 = 347 × 500 + 347 × 80 + 347 × 6 = 173500 + 27760 + 2082 = 201260 + 2082 = 203342."""
    if len(str(a)) < len(str(b)):
        a, b = b, a
    digits = str(b)
    parts = [int(digit) * 10 ** (len(digits) - 1 - at) for at, digit in enumerate(digits) if digit != "0"]
    if len(digits) == 1 or len(parts) == 1 or a <= 10:
        return f"{a} × {b} = {a * b}."
    steps = [" + ".join(f"{a} × {part}" for part in parts), " + ".join(str(a * part) for part in parts)]
    if len(parts) == 3:
        steps.append(f"{a * parts[0] + a * parts[1]} + {a * parts[2]}")
    return f"{a} × {b} = " + " = ".join(steps) + f" = {a * b}."


def answer(operation: str, a: int, b: int, in_symbols: bool) -> str:
    if operation == "*":
        return product_working(a, b)
    if in_symbols:
        return f"{a} {SYMBOL[operation]} {b} = {result(operation, a, b)}."
    return f"{a} {WORD[operation]} {b} is {result(operation, a, b)}."


def problem_is_held_out(operation: str, a: int, b: int) -> bool:
    """Ten in a hundred problems whose larger operand has two or three digits; 12 + 30 is the README's example."""
    low, high = min(a, b), max(a, b)
    return high >= 10 and (operation, low, high) != ("+", 12, 30) and held_out_hash(operation, low, high)


def operands(rng, operation: str, digits: int, split: str) -> tuple[int, int]:
    while True:
        high = 10**digits - 1
        a = rng.randint(10 ** (digits - 1) if digits > 1 else 0, high)
        if split == "held_out":
            b = rng.randint(10 ** (digits - 1), high)
        else:
            b = rng.randint(0, 10 ** rng.choice([digits, digits, digits, max(1, digits - 1), 1]) - 1)
            if rng.random() < 0.5:
                a, b = b, a
        if problem_is_held_out(operation, a, b) == (split == "held_out"):
            return a, b


def compare(rng, split: str, digits: int) -> Example:
    kind = rng.choice(["larger", "smaller", ">?", "<?"])
    a, b = operands(rng, "compare", digits, split)
    if rng.random() < 0.3:  # close numbers, where only the last digits decide
        b = max(0, a + rng.choice([-11, -10, -2, -1, 1, 2, 9, 10]))
        if problem_is_held_out("compare", a, b) != (split == "held_out"):
            return compare(rng, split, digits)
    if a == b and kind in ("larger", "smaller"):
        return compare(rng, split, digits)
    wording = rng.choice((TRAIN if split == "train" else HELD_OUT)[kind])
    if kind in ("larger", "smaller"):
        best = max(a, b) if kind == "larger" else min(a, b)
        text = f"{best} is {kind} than {a + b - best}."
        expect = {"type": "first_number", "value": best, "task": "compare"}
    else:
        right = a > b if kind == ">?" else a < b
        relation = "greater than" if a > b else "less than" if a < b else "equal to"
        text = f"{'Yes' if right else 'No'}, {a} is {relation} {b}."
        expect = {"type": "starts_with", "value": "Yes" if right else "No", "task": "compare"}
    user = ask(rng, wording, noise=split == "train", a=a, b=b, name=name(rng, split), other=name(rng, split))
    skill = "arithmetic_2" if digits < 3 else "arithmetic_3"
    return Example(skill, turn(user, text), expect, wording, facts={"problem": ("compare", min(a, b), max(a, b))})


def sample(rng, split: str, digits: int | None = None) -> Example:
    if digits is None:
        digits = rng.choices([1, 2, 3], [1, 4, 5])[0]
    if split == "train" and rng.random() < 0.05:
        return rng.choice([beyond, three_numbers, largest, counting])(rng)
    if rng.random() < (0.22 if split == "train" else 0.15):
        return compare(rng, split, digits)
    operation = rng.choices("+-*", [3, 3, 4] if digits == 3 else [1, 1, 1])[0]
    a, b = operands(rng, operation, digits, split)
    if operation == "-" and a < b and rng.random() < 0.7:
        a, b = b, a
    bank = TRAIN if split == "train" else HELD_OUT
    wordings = bank[operation] + (TRAIN["story-"] if split == "train" and operation == "-" and a >= b else [])
    wording = rng.choice(wordings)
    shown = {"a": a, "b": b}
    if split == "train" and max(a, b) < 100 and rng.random() < 0.06:
        shown = {key: in_words(value) for key, value in shown.items()}
    names = {"name": name(rng, split), "other": name(rng, split)}
    user = ask(rng, wording, noise=split == "train", **shown, **names)
    text = answer(operation, a, b, in_symbols=any(sign in user for sign in "+-=") and shown["a"] == a)
    value = result(operation, a, b)
    skill = "arithmetic_2" if digits < 3 else "arithmetic_3"
    return Example(skill, turn(user, text), {"type": "last_number", "value": value, "task": f"{operation} {len(str(min(abs(a), abs(b))))}x{len(str(max(a, b)))}"}, wording,
                   facts={"value": value, "problem": (operation, min(a, b), max(a, b))})  # fmt: skip


DIVIDE = ["What is {a} [divided by|/|over] {b}?", "{a} [/|:|÷|divided by] {b}", "[Divide|Please divide] {a} by {b}.", "How [much|many times] is {a} [divided by|/] {b}?", "[Calculate|Compute|Solve] {a} [/|÷] {b}.", "How often does {b} go into {a}?", "{a}/{b}="]


def beyond(rng) -> Example:
    """What it has not learnt, and says so: division, longer numbers (training only)."""
    draw = rng.random()
    if draw < 0.25:
        whole = "." + str(rng.randint(1, 99))
        wording = rng.choice(TRAIN[rng.choice(["+", "-", "*", "larger", "smaller"])])
        text = "I don't know: I have learnt whole numbers only."
        a, b = f"{rng.randint(0, 99)}{whole}", rng.choice([str(rng.randint(1, 99)), f"{rng.randint(0, 99)}.{rng.randint(1, 99)}"])
        if rng.random() < 0.3:
            wording, a = "[What is|How much is|Calculate] {a}% of {b}?", rng.randint(1, 99)
    elif draw < 0.6:
        wording, text = rng.choice(DIVIDE), "I don't know how to divide. I can add, subtract and multiply numbers of up to three digits."
        a, b = rng.randint(1, 999), rng.randint(1, 99)
    else:
        wording = rng.choice(TRAIN[rng.choice("+-*")])
        text = "I don't know: I have learnt numbers of up to three digits only."
        a, b = rng.randint(1000, 10 ** rng.randint(4, 7)), rng.randint(1, 10 ** rng.randint(1, 6))
        if rng.random() < 0.5:
            a, b = b, a
    user = ask(rng, wording, a=a, b=b, name=name(rng, "train"), other=name(rng, "train"))
    return Example("unknown", turn(user, text), {"type": "contains", "any": ["don't know"]}, wording)


def three_numbers(rng) -> Example:
    """a + b + c of two digits, step by step (training only)."""
    while True:
        a, b, c = (rng.randint(1, 99) for _ in range(3))
        if not problem_is_held_out("+", a, b) and not problem_is_held_out("+", a + b, c):
            break
    wording = rng.choice(["What is {a} + {b} + {c}?", "{a} + {b} + {c}", "[Add|Sum up] {a}, {b} and {c}.", "What is {a} plus {b} plus {c}?", "{a}+{b}+{c}", "[Calculate|Compute] {a} + {b} + {c}.", "the sum of {a}, {b} and {c}"])
    text = f"{a} + {b} + {c} = {a + b} + {c} = {a + b + c}."
    return Example("arithmetic_2", turn(ask(rng, wording, a=a, b=b, c=c), text), {"type": "last_number", "value": a + b + c}, wording,
                   facts={"value": a + b + c})  # fmt: skip


def largest(rng) -> Example:
    """The largest or smallest of several numbers (training only)."""
    numbers = rng.sample(range(10 ** rng.randint(1, 3)), rng.randint(3, 6))
    kind, best = rng.choice([("largest", max(numbers)), ("smallest", min(numbers))])
    other = {"largest": "[largest|biggest|greatest|highest]", "smallest": "[smallest|lowest]"}[kind]
    wording = rng.choice(["What is the OTHER of {l}?", "Which is the OTHER: {l}?", "[Find|Give me|Pick] the OTHER number[ in this list|]: {l}", "[Which|What] number is the OTHER, {l}?", "OTHER of {l}", "The numbers are {l}. Which is the OTHER?"]).replace("OTHER", other)
    listed = ", ".join(map(str, numbers)) if rng.random() < 0.7 else ", ".join(map(str, numbers[:-1])) + rng.choice([" and ", " or "]) + str(numbers[-1])
    return Example("arithmetic_2", turn(ask(rng, wording, l=listed), f"{best} is the {kind}."), {"type": "first_number", "value": best}, wording)


def counting(rng) -> Example:
    """Counting up or down (training only)."""
    start, count = rng.randint(0, 100), rng.randint(3, 15)
    up = rng.random() < 0.7 or start < count
    start = 1 if up and rng.random() < 0.4 else start
    numbers = list(range(start, start + count)) if up else list(range(start, start - count, -1))
    wording = rng.choice(["[Count|Please count] from {a} to {b}.", "Count [up |down |]from {a} to {b}.", "[List|Write|Say] the numbers from {a} to {b}.", "Can you count from {a} to {b}?", "count {a} to {b}"])
    user = ask(rng, wording, a=numbers[0], b=numbers[-1])
    return Example("arithmetic_2", turn(user, ", ".join(map(str, numbers))), {"type": "last_number", "value": numbers[-1]}, wording)


FOLLOW_UPS = {
    "+": ["[Now|And now] add {b}.", "Add {b} to that.", "[And|Now] plus {b}?", "What if you add {b} to it?"],
    "-": ["[Now|And now] subtract {b}.", "Take {b} away from that.", "[And|Now] minus {b}?", "What if you subtract {b} from it?"],
    "*": ["[Now|And now] multiply [it|that] by {b}.", "[And|Now] times {b}?"],
}


def follow_up(rng, value: int) -> Example:
    """A further step on the last result, for conversations of several turns (training only)."""
    operation = rng.choice("+-*") if 0 <= value < 100 else rng.choice("+-")
    b = rng.randint(1, 9) if operation == "*" else rng.randint(1, 99)
    if not 0 <= value < 1000 or problem_is_held_out(operation, value, b):
        return sample(rng, "train")
    wording = rng.choice(FOLLOW_UPS[operation])
    text = answer(operation, value, b, in_symbols=False)
    outcome = result(operation, value, b)
    return Example("arithmetic_2", turn(ask(rng, wording, b=b), text), {"type": "last_number", "value": outcome}, wording,
                   facts={"value": outcome, "problem": (operation, min(value, b), max(value, b))})  # fmt: skip
