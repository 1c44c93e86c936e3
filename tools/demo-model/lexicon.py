"""The words, names and places the skills draw from, each split into a training and a held-out part.

The held-out part occurs in no training conversation (data.py asserts it). Invented words come from syllables, so
that spelling and copying are learnt for any letters, not for a list.
"""

import re

TRAIN_WORDS = """
apple arrow autumn basket beach bench berry bird blanket blossom boat book bottle branch bread bridge bright broom
brother bucket butter button cabin camera candle carpet castle cat cave chair cherry chest circle clock cloud coast
coffee copper corn cotton cousin crab cradle crown cup curtain dance desert desk dinner doctor dog dragon dream drum
duck eagle early earth east echo elbow ember engine evening falcon family farmer feather fence fiddle field finger
fire fish flag flower flute forest fountain fox friend frost fruit garden gate gentle ghost giant glass glove goat
gold goose grape grass green guitar hammer harbor hat hawk hazel heart heavy hedge hill honey horse house hunter
island ivory jacket jar jewel journey juice jungle kettle key kind king kitchen kite kitten knife ladder lake lamp
leaf lemon letter light lily lion little lizard lock loud lucky maple marble market meadow melon metal middle milk
mirror money monkey moon morning mother mountain mouse music narrow needle nest night noble north nurse oak ocean
office olive onion orange orchard otter oven owl paint paper parrot path peach pear pebble pencil pepper piano
picture pigment pillow pilot planet plate plum pocket poem pond pony potato powder prince purple puzzle quick quiet
quilt rabbit rain rainbow raven reader red ribbon river road robin rock roof room rose round sail salt sand school
sea season seed shadow sheep shell ship shirt shore silver singer sister sky small smoke snail snow soap sock song
spoon spring square squirrel stable stair star station stone storm story stove straw stream street strong sugar
summer sun swan sweet swim table tailor tall tea teacher tent thread thunder tiger time tired toast tomato tower
town train travel tree trumpet tulip tunnel turtle uncle under valley village violet violin voice wagon wall warm
water wave west whale wheat wheel whisper white wide wild window winter wolf wonder wood wool yellow young
strawberry butterfly banana letters computer browser elephant language cheese coffee hello world book balloon
""".split()
HELD_OUT_WORDS = """
acorn anchor badger barley beetle biscuit bramble canyon carrot cedar cello chimney cinnamon clover cobweb comet
compass cricket cucumber dagger daisy dolphin donkey dumpling ferry fossil galaxy ginger glacier gravel 
harvest helmet heron hornet igloo jasmine kangaroo lantern lavender leopard lobster mammoth mango meteor mitten
mustard napkin nutmeg oyster paddle panda parsley peanut pelican penguin pigeon plaster pumpkin quarry radish saddle
salmon saffron scarf seagull shovel sparrow spider spinach sponge statue stork sunset thimble thistle toffee
tortoise treasure tundra turnip umbrella vanilla velvet vessel waffle walnut walrus weasel willow wizard
zebra
""".split()

TRAIN_NAMES = """
Ada Alba Anna Arlo Ben Bela Bruno Cara Cleo Dana Daro Edda Elio Ella Emil Enna Fay Finn Flora Gil Greta Hale Hana
Hugo Ida Ilya Ines Iris Ivo Jana Jaro Jonas Juno Kai Kira Lars Lena Leo Lia Lina Lotte Luca Mara Maro Mia Milo Mira
Nando Nela Nia Nico Nora Olga Oren Otis Pau Pia Quin Rafa Rena Remo Rosa Rune Sami Sana Selma Sofi Tara Taro Tess
Theo Tilda Timo Uma Vera Vito Wanda Yara Yuri Zara Zeno Zoe
""".split()
HELD_OUT_NAMES = """
Alma Bodo Cosmo Delia Egon Fiona Gustav Hedda Ingo Jule Kosta Livia Matilda Nestor Odette Pablo Rufus Sibyl Tamsin Ulla
Viggo Wilma Xenia Ylva Zelda
""".split()

TRAIN_CITIES = """
Amsterdam Athens Auckland Bangkok Barcelona Beijing Berlin Bern Bogota Boston Brussels Budapest Cairo Chicago
Copenhagen Dakar Delhi Denver Dublin Edinburgh Florence Geneva Glasgow Hamburg Hanoi Havana Helsinki Istanbul Jakarta
Kyoto Lagos Lima London Lyon Madrid Manila Melbourne Miami Milan Montreal Mumbai Munich Nairobi Naples Oslo Ottawa
Paris Perth Prague Riga Rome Santiago Seattle Seoul Shanghai Singapore Stockholm Sydney Taipei Tokyo Toronto Turin
Venice Vienna Warsaw Zagreb Zurich
""".split() + ["New York", "Cape Town", "Hong Kong", "Buenos Aires", "San Diego", "Mexico City", "Los Angeles"]
HELD_OUT_CITIES = """
Lisbon Porto Krakow Tallinn Vilnius Sofia Belgrade Bilbao Osaka Nagoya Busan Quito Caracas Accra Tunis Rabat Houston
Dallas Portland Calgary Brisbane Hobart Cologne Dresden Bologna Palermo Seville Valencia Antwerp Bergen
""".split() + ["Kuala Lumpur", "San Francisco", "Port Louis"]

ANIMALS = """fox bear hare hedgehog owl otter mouse wolf cat dog dragon robot turtle rabbit squirrel crow frog goat bee
lion swan whale pony mole deer raven snail duck""".split()
PEOPLE = """sailor baker gardener clockmaker painter miller fisher shepherd pilot singer tailor teacher princess knight
king witch boy girl farmer musician""".split()
PLACES = {
    # place: how a story says where
    "forest": "in a deep forest", "lighthouse": "in a lighthouse by the sea", "mountain": "high on a mountain",
    "village": "in a quiet village", "city": "in a big city", "island": "on a small island", "desert": "at the edge of a desert",
    "castle": "in an old castle", "river": "by a wide river", "library": "in a dusty library", "garden": "in a walled garden",
    "harbor": "in a busy harbor", "cave": "in a cave full of echoes", "farm": "on a windy farm", "train": "on a long night train",
    "space station": "on a space station", "market": "in a noisy market", "school": "in a small school", "valley": "in a green valley",
    "ship": "on an old ship", "mill": "in a mill by the stream", "beach": "on a long beach", "snow": "where the snow never melts",
    "tower": "at the top of a tower", "swamp": "in a misty swamp", "moon": "on the moon", "attic": "in an attic", "bakery": "in a warm bakery",
}
THINGS = """key map lamp bell drum kite ring coin book seed letter clock flute mirror stone boat cup feather shell box
hat coat star ladder wheel button violin basket""".split()

ONSETS = ["b", "br", "c", "ch", "cl", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "l", "m", "n", "p", "pl", "qu",
          "r", "s", "sh", "st", "t", "th", "tr", "v", "w", "y", "z", ""]  # fmt: skip
VOWELS = ["a", "e", "i", "o", "u", "ai", "ee", "oo", "ou", "ea", "ia"]
CODAS = ["", "", "", "n", "r", "l", "s", "t", "m", "nd", "ck", "rt", "x", "p", "ng", "st", "ll", "d"]
NAME_ENDS = ["a", "o", "i", "an", "el", "is", "en", "us", "ia", "on", "ella", "ar"]
CITY_ENDS = ["ton", "burg", "ville", "ford", "haven", "stad", "mouth", "field", "dorf", "grad", "bridge", "by", "wick"]

# Letters-only tokens of the trained tokenizer (data.load_tokenizer fills it): words made of them teach every token's letters.
PIECES = []

# Letters that must not meet by chance in an invented word.
UNKIND = re.compile("sex|fuck|shit|cunt|dick|cock|piss|nig|fag|porn|rape|slut|tit|ass|nazi|hitl|cum|anus|pee|poo|jew|kill")

_HELD_OUT = {word.lower() for word in HELD_OUT_WORDS + HELD_OUT_NAMES + HELD_OUT_CITIES}


def syllables(rng, count: int) -> str:
    return "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in range(count))


def _invented(rng, make) -> str:
    while True:
        word = make()
        if 3 <= len(word) <= 12 and word.lower() not in _HELD_OUT and not UNKIND.search(word.lower()):
            return word


def word(rng, split: str) -> str:
    """A lower-case word: for training from the list, from syllables, or of random letters."""
    if split == "held_out":
        return rng.choice(HELD_OUT_WORDS)
    draw = rng.random()
    if PIECES and draw < 0.3:
        return _invented(rng, lambda: "".join(rng.choice(PIECES) for _ in range(rng.choice([1, 2, 2, 3]))))
    if draw < 0.55:
        return rng.choice(TRAIN_WORDS)
    if draw < 0.8:
        return _invented(rng, lambda: syllables(rng, rng.choice([1, 2, 2, 3])))
    if draw < 0.93:  # parts of two real words: their tokens in new company
        first, second = rng.choice(TRAIN_WORDS), rng.choice(TRAIN_WORDS)
        return _invented(rng, lambda: first[: rng.randint(2, 5)] + second[-rng.randint(2, 5) :])
    letters = "abcdefghijklmnopqrstuvwxyz"
    return _invented(rng, lambda: "".join(rng.choice(letters) for _ in range(rng.randint(3, 9))))


def name(rng, split: str) -> str:
    if split == "held_out":
        return rng.choice(HELD_OUT_NAMES)
    draw = rng.random()
    if draw < 0.4:
        return rng.choice(TRAIN_NAMES)
    if draw < 0.6:
        return word(rng, split).capitalize()
    return _invented(rng, lambda: (syllables(rng, 1) + rng.choice(NAME_ENDS)).capitalize())


def city(rng, split: str) -> str:
    if split == "held_out":
        return rng.choice(HELD_OUT_CITIES)
    draw = rng.random()
    if draw < 0.45:
        return rng.choice(TRAIN_CITIES)
    if draw < 0.6:
        return _invented(rng, lambda: rng.choice(TRAIN_WORDS).capitalize() + rng.choice(CITY_ENDS))
    if draw < 0.66:
        return rng.choice(["New", "San", "Port", "Saint", "North", "Old"]) + " " + _invented(rng, lambda: syllables(rng, 2)).capitalize()
    if draw < 0.74:
        return f"{word(rng, split).capitalize()} {word(rng, split).capitalize()}"
    if draw < 0.82:
        return word(rng, split).capitalize()
    return _invented(rng, lambda: (syllables(rng, rng.choice([1, 2])) + rng.choice(NAME_ENDS + CITY_ENDS)).capitalize())
