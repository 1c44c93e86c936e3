"""Short stories: 24 plots, each with its own turns, told about any hero, name, place and thing."""

from grammar import ask, say, with_article
from lexicon import ANIMALS, PEOPLE, PLACES, THINGS, TRAIN_NAMES, name, word
from skills import Example, turn

OPENING = [
    "Once there was {a_hero} named {name} who lived {place}.", "{place_cap} lived {a_hero} named {name}.", "There once lived {a_hero} called {name} {place}.",
    "This is the story of {name}, {a_hero} who lived {place}.", "Long ago, {a_hero} named {name} lived {place}.",
]
# Each plot: sentences in order. "{name}" is the hero, "{other}" a second one, {a_other} what the second one is.
PLOTS = {
    "lost thing": ["One [morning|day|evening], {name} lost {a_thing} that meant the world to {name}.", "{name} looked [under every stone|in every corner|high and low], but the {thing} was gone.", "Then {other}, {a_other}, came by and [offered to help|asked what was wrong].", "Together they [followed small marks on the ground|searched until it was dark].", "At last they saw the {thing}, [shining in the moonlight|hanging on a branch|half buried in the sand].", "{name} laughed with joy, and {name} and {other} were friends from then on."],
    "found thing": ["One day {name} found {a_thing} [on the ground|behind an old door|in a hollow tree].", "It [glowed softly|hummed a quiet tune|felt warm] when {name} touched it.", "\"Whose can it be?\" {name} wondered, and asked {other}, {a_other}.", "\"It belongs to [the one who is kind|the one who finds it|nobody now],\" said {other}.", "So {name} [shared it with everyone|used it to help the others].", "And the {thing} glowed brighter every [night|day]."],
    "storm": ["One night a great storm [came up|rolled in], and the wind [howled|roared].", "{name} heard a small voice calling for help outside.", "It was {other}, {a_other}, [wet and cold|shaking with cold].", "{name} opened the door, [lit a fire|made warm soup] and shared the last [bread|blanket].", "In the morning the sun came out and the [air was clear|world looked new].", "\"I will never forget this,\" said {other}, and {other} never did."],
    "race": ["Every year there was a race, and {other}, {a_other}, [always won|had never lost].", "{name} was slow, but {name} wanted to try.", "[All the others laughed|Nobody believed in {name}], but {name} practiced every day.", "On the day of the race, {other} [stopped to rest|looked back and fell].", "{name} kept going, step by step, and [crossed the line first|won by a nose].", "\"Well done,\" said {other}, and [nobody laughed again|they shared the prize]."],
    "map": ["In an old book, {name} found a map with a red mark.", "{name} packed {a_thing} and [set out at dawn|left before sunrise].", "The way led [over seven hills|through thick fog|past a sleeping giant].", "On the way {name} met {other}, {a_other}, who [knew the paths|was looking for the same place].", "At the red mark they dug and found [a box full of letters|a single seed|a small golden bell].", "It was not gold, but it was [the best thing they had ever found|enough to make them happy]."],
    "fear of dark": ["{name} was afraid of the dark.", "Every night {name} [hid under the blanket|left {a_thing} by the bed].", "One night {other}, {a_other}, knocked and said, \"Come out and look!\"", "Outside the sky was full of [stars|shooting stars|silver light].", "\"You can only see them in the dark,\" said {other}.", "Since that night {name} [is not afraid any more|waits for the dark to come]."],
    "music": ["{name} wanted to make music, but had only {a_thing}.", "So {name} [tapped on it|shook it|blew into it] until it made a sound.", "{other}, {a_other}, heard it and [began to dance|sang along].", "Soon [everyone|the whole neighborhood] came to listen.", "They played until [the moon was high|the last light went out].", "And if you listen well, you can [still hear the tune|hear it on quiet nights]."],
    "garden": ["{name} planted a tiny seed and watered it every day.", "Days went by, but nothing [grew|happened].", "\"Be patient,\" said {other}, {a_other}.", "After a long [winter|time], a green leaf [came out|looked out of the ground].", "It grew into a tree with [golden apples|blue flowers|silver leaves].", "{name} gave the first [fruit|flower] to {other}, who had believed in it."],
    "secret door": ["Behind a curtain, {name} discovered a little door.", "It was locked, and only {a_thing} could open it.", "{name} asked {other}, {a_other}, who [had one|knew where to find one].", "When the door opened, they saw [a room full of light|a garden under glass|a stair of stone].", "They [stayed until evening|danced for hours] and promised to keep the secret.", "The door is still there, but [only friends can find it|it opens only for two]."],
    "new friend": ["{name} was [often alone|new and knew nobody].", "One day {name} saw {other}, {a_other}, sitting alone too.", "{name} was shy, but [took a deep breath|was brave] and said hello.", "They found out that they both loved [rain|old songs|honey cake].", "Since then they [meet every day|do everything together].", "It takes only one word to begin, and the word is hello."],
    "wish": ["One night {name} saw a falling star and made a wish.", "\"I wish for {a_thing},\" said {name}.", "In the morning the {thing} was there, but {name} had nobody to show it to.", "Then {other}, {a_other}, came by and [smiled|said, \"How beautiful!\"].", "{name} gave the {thing} to {other}.", "And that, {name} found, was the [real|best] wish of all."],
    "invention": ["{name} loved to build things from [wood and wire|old wheels|scrap].", "One day {name} built a machine out of {a_thing} and [some string|two springs].", "It [rattled and smoked|jumped and whistled], and then it [flew|stood still].", "\"It doesn't work,\" said {other}, {a_other}.", "{name} turned one [screw|wheel], and the machine began to [make tea|paint pictures|sing].", "Now {other} comes every [morning|evening] to [drink tea|watch|listen]."],
    "promise": ["{name} had promised to bring {a_thing} to {other}, {a_other}.", "But the way was long, and [it began to rain|the bridge was broken].", "\"A promise is a promise,\" said {name}, and [walked on|found another way].", "Late at night {name} knocked at the door of {other}, [tired|wet] but happy.", "\"I knew you would come,\" said {other}.", "They [drank hot milk|sat by the fire] until the [rain stopped|stars came out]."],
    "thief": ["Somebody was stealing the [cakes|apples|cherries], one every night.", "{name} decided to stay awake and [hid behind {a_thing}|keep watch].", "At midnight {other}, {a_other}, crept in on [soft feet|tiptoe].", "\"I was so hungry,\" {other} said [quietly|and began to cry].", "{name} was not angry, but cut the cake in two.", "From then on nothing was stolen, because everything was shared."],
    "boat": ["{name} built a small boat and put {a_thing} [on the mast|in the bow].", "\"It will sink,\" said {other}, {a_other}.", "But {name} pushed off, and the boat [rocked|danced] on the waves.", "Suddenly [a wave|the wind] turned it around, and {other} [threw a rope|jumped in to help].", "Together they [sailed home|reached the other side].", "Now the boat has two seats and [two names|two captains]."],
    "snow": ["It snowed for [three days|a week], and {name} could not get out.", "There was [little food|no wood] left, only {a_thing} and some bread.", "Then something [scratched|knocked] at the window: {other}, {a_other}, had dug a tunnel.", "\"I thought you might be lonely,\" said {other}.", "They [told stories|played games] until the snow melted.", "{name} was almost sad when spring came."],
    "mirror": ["In the attic {name} found an old mirror [covered with dust|behind {a_thing}].", "When {name} cleaned it, the face in it [winked|smiled first].", "\"What do you see?\" asked {other}, {a_other}.", "\"Myself, but braver,\" said {name}.", "Every day {name} looked, and every day {name} became [a little braver|more like the picture].", "One day the mirror was only a mirror, [and that was fine|because it had done its work]."],
    "clock": ["One day all the clocks stopped, and nobody knew [the time|when to eat].", "{name} climbed up to the big clock with {a_thing}.", "Between the wheels sat {other}, {a_other}, fast asleep.", "\"It is so warm and quiet here,\" said {other}, [yawning|rubbing both eyes].", "{name} found {other} a better bed, and the clock [ticked again|began to strike].", "It struck thirteen, just to say thank you."],
    "letter": ["A letter came, but [the rain had washed off the name|it had no name on it].", "{name} read it: \"Meet me [at the old tree|by the well] and bring {a_thing}.\"", "{name} went, and there stood {other}, {a_other}.", "\"Did you write this?\" they both asked, and both shook their heads.", "They never found out who wrote it, [but they stayed and talked|but they had a fine evening].", "Perhaps somebody [wanted them to meet|knew that they were lonely]."],
    "giant": ["One day the ground shook, because a giant [was crying|had come down from the hills].", "Everyone ran away, only {name} [stayed|stood still].", "\"Why are you crying?\" asked {name}. \"I lost my {thing},\" said the giant.", "{name} and {other}, {a_other}, searched and found it [in a nest|under a cart].", "The giant laughed so loud that [the leaves fell|the windows shook].", "Since then, the giant [carries them on long walks|keeps the storms away]."],
    "paint": ["Everything {place} was grey, and {name} [did not like it|wanted color].", "{name} mixed paint from [berries|flowers] and painted {a_thing} on the wall.", "\"That is not allowed,\" said {other}, {a_other}, but kept looking.", "The next day {other} came back with a brush.", "They painted [the doors|every wall] red and yellow and blue.", "Now people come from far away to see it and [go home smiling|bring their own brushes]."],
    "egg": ["{name} found a big [blue|spotted|golden] egg and kept it warm [with {a_thing}|in a hat].", "{other}, {a_other}, came every day to ask, \"Has it hatched?\"", "On the [seventh|tenth] day the egg cracked.", "Out came a tiny [bird|dragon|turtle] that [sneezed|blinked] and looked at them both.", "\"It thinks that we are its parents,\" said {other}.", "And so they were, until it was big enough to [fly away|swim away], and it waved."],
    "well": ["The well was dry, and everybody was [thirsty|worried].", "{name} took {a_thing} and climbed down [to look|into the dark].", "At the bottom sat {other}, {a_other}, on a big stone.", "\"I am stuck,\" said {other}, \"and so is the water.\"", "{name} [pulled|pushed] with all might until the stone moved.", "The water came back, and {other} came up with it, [laughing|soaking wet]."],
    "moon": ["{name} wanted to bring the moon down, just for one night.", "{name} took {a_thing} and climbed the highest [roof|tree|hill].", "{other}, {a_other}, held the ladder and [said nothing|hoped].", "{name} reached out, but the moon was too far away.", "Then {other} pointed at [the pond|a bucket of water]: there lay the moon, [round and bright|quite still].", "They sat beside it until it was morning."],
}  # fmt: skip
ENDINGS = ["The end.", "", "", "", "And that is the end of the story."]
TRAIN = [
    "[Tell|Write] [me |]a [short |little |nice |]story[.|!|, please.]", "[Tell|Write] [me |us |]a [short |little |nice |new |]story about {a_hero}[.|]", "[Tell|Write] [me |]a [short |]story about {a_hero} {place}[.|]", "[Tell|Write] [me |]a [short |]story about {a_hero} [named|called] {name}[.|]",
    "[Tell|Write] [me |]a [short |]story about {a_hero} [named|called] {name} {place}[.|]", "story about {a_hero}", "[I want|I'd like] [to hear |]a story[| about {a_hero}| about {a_hero} {place}][.|]", "[Can|Could|Will] you tell [me |]a story[| about {a_hero}| about {a_hero} named {name}]?", "A story about {a_hero}[ and {a_thing}|], please.",
    "Once upon a time there was {a_hero}. [Go on|Continue][.|!]", "[Make up|Invent] a story [about|with] {a_hero}[ and {a_thing}| named {name}| {place}|][.|]", "[Tell|Write] [me |]a story [about|with] {a_thing}[.|]", "[Tell|Write] [me |]a story about {name} [and|with] {a_thing}[.|]", "[Tell|Write] a story that [plays|happens] {place}[.|]",
    "[Tell|Write] [me |]a bedtime story[| about {a_hero}| {place}].", "Do you know a story about {a_hero}?", "[Another|One more|A new] story[| about {a_hero}][, please|][.|!]", "[Do you have|Have you] a story [with|about] {a_hero}[ named {name}| called {name}|]?", "The hero is {a_hero}[ named {name}| called {name}|]. Tell the story.", "[Let me hear|Read me] a story about {a_hero}[ named {name}| {place}|].", "Hero: {name}, {a_hero}. Story, please.", "Something about {a_hero} [called|named] {name}, please.", "{name} is {a_hero}. Tell me [more|a story about that|what happened].", "[Tell|Write] a [fairy tale|tale|fable] about {a_hero}[ {place}| named {name}|].", "We want a story where {a_hero} lives {place}.", "{a_hero} lives {place}. [Tell the story|What happens|Go on].", "Can I have a story? It should be about {a_hero}[ named {name}| {place}|].", "[Spin|Create] a tale of {a_hero}[ called {name}| who lives {place}|].", "story: {hero}, {name}", "[Tell|Write] [me |]a [short |]story about {a_hero} [who|that] [wants to fly|is lost|cannot sleep|loves cake|finds a friend|is afraid|goes to school|travels far|has a secret|can talk|learns to swim|is very small|lost {a_thing}|found {a_thing}].", "[Tell|Write] [me |]a [short |]story about a [brave|little|clever|lazy|happy|sad|tiny|young|wise|lonely] {hero}[ named {name}| called {name}|][| and a friend| {place}].", "[Tell|Write] [me |]a story about {name}, {a_hero}.", "[Tell|Write] [me |]a [funny|sad|happy|good|nice|long|new] story[ about {a_hero}|][.|]", "I like {hero} stories. Tell me one[ with {name}| {place}|].", "story", "tell me something about {a_hero} named {name}",
]
HELD_OUT = ["I would love to hear a story about {a_hero} who lives {place}.", "Please think of a tale about {a_hero} with the name {name}.", "Give me a story, and let {a_hero} named {name} be in it.", "My child wants a story about {a_hero} {place}."]


SLOTS = ["hero", "a_hero", "a_other", "name", "other", "thing", "a_thing", "place", "place_cap"]


def sample(rng, split: str) -> Example:
    wording = rng.choice(TRAIN if split == "train" else HELD_OUT)
    hero = rng.choice(ANIMALS if rng.random() < 0.65 else PEOPLE)
    other = rng.choice([animal for animal in ANIMALS + PEOPLE if animal != hero])
    thing = rng.choice(THINGS)
    place_word = rng.choice(list(PLACES))
    place = PLACES[place_word]
    text_template = ask(rng, wording, noise=split == "train", **{key: "{" + key + "}" for key in SLOTS})
    first, second = name(rng, split) if "{name}" in text_template else rng.choice(TRAIN_NAMES), rng.choice(TRAIN_NAMES)
    while second == first:
        second = rng.choice(TRAIN_NAMES)
    if split == "train" and rng.random() < 0.2:  # any word can be a hero
        hero = word(rng, split)
    slots = {
        "hero": hero, "a_hero": with_article(hero), "a_other": with_article(other), "name": first, "other": second, "thing": thing,
        "a_thing": with_article(thing), "place": place, "place_cap": place[0].upper() + place[1:],
    }  # fmt: skip
    plot = PLOTS[rng.choice(list(PLOTS))]
    # A thing that was asked for must come up.
    if "thing}" in text_template:
        while not any("{a_thing}" in sentence and "[" not in sentence.split("{a_thing}")[0][-30:] for sentence in plot):
            plot = PLOTS[rng.choice(list(PLOTS))]
    sentences = [say(rng, rng.choice(OPENING), **slots)] + [say(rng, sentence, **slots) for sentence in plot]
    ending = rng.choice(ENDINGS)
    story = " ".join(sentences + ([ending] if ending else []))
    user = text_template
    for key, value in slots.items():
        user = user.replace("{" + key + "}", value)
    asked = [value for key, value in (("hero", hero), ("name", first), ("place", place_word)) if "{" + key in text_template or "{a_" + key in text_template]
    place_asked = [place] if "{place}" in text_template else []
    needed = [value for value in asked if value != place_word] + place_asked
    return Example("story", turn(user, story), {"type": "story", "all": needed, "words": 50}, wording)
