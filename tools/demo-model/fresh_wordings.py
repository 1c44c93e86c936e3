"""Two further sets of held-out wordings for the skills with a target score.

"second wordings" were written before the first stage of the published model was trained; their scores led to the
second stage (data.py's loosened requests), so they are no longer blind. "third wordings" were written before the
second stage was trained; nothing was changed after their scores were seen.
"""

SECOND = {
    "arithmetic": {
        "+": ["Could you figure out how much {a} and {b} come to in total?", "The first number is {a}, the second is {b}. Add them up for me."],
        "-": ["Could you figure out what {a} minus {b} comes out as?", "From {a} somebody removes {b}. What number is that then?"],
        "*": ["Could you figure out what {a} times {b} comes out as?", "The first number is {a}, the second is {b}. Multiply them for me."],
        "larger": ["Could you figure out whether {a} or {b} is the larger one?"],
        "smaller": ["Could you figure out whether {a} or {b} is the smaller one?"],
        ">?": ["Could it be that {a} is greater than {b}?"],
        "<?": ["Could it be that {a} is less than {b}?"],
    },
    "words": {
        "reverse": ["How would {w} read if you went from its last letter to its first?", "Could you show me {w} in backward order?"],
        "spell": ["Could you list each letter of {w}?"],
        "upper": ["Could you show me {w} using only capital letters?"],
        "count": ["Could you figure out the number of letters that {w} has?"],
        "count_letter": ["Could you check how many {c}'s there are inside {w}?"],
        "sort": ["Could you line up {l} alphabetically?", "In which order do {l} come in the alphabet?"],
    },
    "json": ["Could you express this as JSON using the keys {keys}? {text}", "{text}\nThe JSON for it should look like {schema}"],
    "json_system": ["Whatever the user tells you, express it as JSON using the keys {keys}."],
    "tools": {
        "get_weather": ["Could you find out if the weather is good in {city}?", "Somebody in {city} asks me if it is a sunny day. Is it?"],
        "get_time": ["Could you find out how late it is over in {city}?", "Somebody in {city} asks me what time it is."],
        "calculator": ["Could you find out the value of {e}?"],
    },
}
THIRD = {
    "arithmetic": {
        "+": ["If somebody asks you for {a} plus {b}, what do you reply?", "Kindly add the numbers {a} and {b} as quickly as you are able to."],
        "-": ["If somebody asks you for {a} minus {b}, what do you reply?", "Kindly subtract the number {b} from the number {a}."],
        "*": ["If somebody asks you for {a} times {b}, what do you reply?", "Kindly multiply the number {a} by the number {b}."],
        "larger": ["If you had to pick the larger of {a} and {b}, which would it be?"],
        "smaller": ["If you had to pick the smaller of {a} and {b}, which would it be?"],
        ">?": ["Do we agree that {a} is greater than {b}?"],
        "<?": ["Do we agree that {a} is less than {b}?"],
    },
    "words": {
        "reverse": ["Kindly reverse the letters that make up {w}.", "If someone wrote {w} backwards, what would be on the paper?"],
        "spell": ["Kindly spell {w} so that I can write it down."],
        "upper": ["If someone wrote {w} in capital letters, what would be on the paper?"],
        "count": ["Kindly count the letters that make up {w}."],
        "count_letter": ["Kindly count how many times the letter {c} turns up in {w}."],
        "sort": ["Kindly sort {l} so that they follow the alphabet.", "If someone wrote {l} in alphabetical order, what would be on the paper?"],
    },
    "json": ["Kindly reply with JSON that holds {keys}, taken from this: {text}", "If someone wrote this down as JSON like {schema}, what would be on the paper? {text}"],
    "json_system": ["Kindly reply to each message with JSON that holds {keys}."],
    "tools": {
        "get_weather": ["Kindly look up what the weather is doing in {city}.", "If I step out of the door in {city}, will it be cold or warm?"],
        "get_time": ["Kindly look up what the time is in {city}.", "If I look up at the church clock in {city}, what time will it show?"],
        "calculator": ["Kindly calculate {e} with the tool you have."],
    },
}
SETS = {"second wordings": SECOND, "third wordings": THIRD}
