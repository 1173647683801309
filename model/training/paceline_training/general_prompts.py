"""Everyday prompts from the templates of general.txt over the topics of topics.txt.

Everything is chosen by the generator that is passed in: the same seed makes the same prompts.
"""

import re
from collections.abc import Callable
from random import Random

from .word_lists import article, topics, weighted, words

# Kinds whose prompts end with the text that they are about: no request about the style behind it.
NO_STYLE = ("rewrite", "classify", "translate")


def _made(rng: Random) -> dict[str, Callable[[], str]]:
    """What a template may name beside topics."""
    def pick(section: str) -> str:
        return rng.choice(words(section))

    plain = {name: lambda name=name: pick(name)
             for name in ("name", "month", "weekday", "ingredient", "job", "object", "occasion",
                          "style", "firm", "broken")}
    return plain | {
        "name2": lambda: pick("name"),
        "number": lambda: str(rng.randint(3, 12)), "age": lambda: str(rng.randint(8, 75)),
        "amount": lambda: str(rng.randint(2, 60) * rng.choice([5, 10, 50])),
        "hour": lambda: str(rng.randint(1, 12)), "year": lambda: str(rng.randint(1950, 2023)),
        "object_a": lambda: article(pick("object")),
        "shop": lambda: f"a shop for {pick('object')}s",
        "words": lambda: ", ".join(rng.sample(words("word"), rng.randint(4, 8))),
        "adjectives": lambda: ", ".join(rng.sample(words("adjective"), rng.randint(3, 6))),
        "review": lambda: fill(pick("review"), rng), "text": lambda: text(rng),
    }


def fill(template: str, rng: Random) -> str:
    """The template with everything in braces chosen; a topic never comes twice in it."""
    made, used = _made(rng), set()

    def chosen(match: re.Match) -> str:
        names = match.group(1).split("|")
        for _ in range(20):
            name = rng.choice(names)
            word = made[name]() if name in made else rng.choice(topics()[name])
            if word not in used:
                break
        used.add(word)
        return word

    return re.sub(r"\{([a-z_0-9|]+)\}", chosen, template).replace("\\n", "\n")


def text(rng: Random) -> str:
    """A few sentences about the same people."""
    people = rng.sample(words("name"), 2)
    sentences = [rng.choice(words("text_first")),
                 *rng.sample(words("text_next"), rng.randint(2, 6))]
    joined = " ".join(sentences).replace("{name}", people[0]).replace("{name2}", people[1])
    return fill(joined, rng)


def general_prompt(rng: Random) -> tuple[str, str]:
    """(kind, prompt)."""
    kinds = weighted("general.txt")
    kind, _, choices = rng.choices(kinds, [weight for _, weight, _ in kinds])[0]
    prompt = fill(rng.choice(choices), rng)
    if kind not in NO_STYLE and rng.random() < 0.12:
        prompt += " " + rng.choice(words("style"))
    return kind, prompt[0].upper() + prompt[1:]
