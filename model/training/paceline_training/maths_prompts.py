"""Word problems with random numbers, arithmetic and small puzzles from the templates of maths.txt.

What is asked always has an answer, mostly in whole numbers; the answer itself is not needed: the
target writes what is learnt from.
"""

from random import Random

from .word_lists import weighted, words

BEGINNINGS = ["Help me with my homework: ", "My teacher asked this: ", "Question: ",
              "Solve this problem. "]


def numbers(rng: Random) -> dict[str, int]:
    a, b = rng.sample(range(2, 10), 2)
    c, d = sorted(rng.sample(range(10, 61), 2))
    e, f = sorted(rng.sample(range(70, 990, rng.choice([1, 2, 5, 10])), 2))
    return {"a": a, "b": b, "c": c, "d": d, "e": e, "f": f, "p": 5 * rng.randint(1, 18),
            "e2": a + 2 * rng.randint(20, 60), "ab": a + b, "abb": a + 2 * b, "abbb": a + 3 * b}


def maths_prompt(rng: Random) -> tuple[str, str]:
    """(kind, prompt)."""
    *kinds, (_, _, endings) = weighted("maths.txt")
    kind, _, choices = rng.choices(kinds, [weight for _, weight, _ in kinds])[0]
    n1, n2, n3 = rng.sample(words("name"), 3)
    things, things2 = rng.sample(words("thing"), 2)
    made = {**numbers(rng), "n1": n1, "n2": n2, "n3": n3, "things": things, "things2": things2,
            "things_upper": things[0].upper() + things[1:], "place": rng.choice(words("place")),
            "day": rng.choice(words("weekday"))}
    prompt = rng.choice(choices)
    for name, value in made.items():
        prompt = prompt.replace("{" + name + "}", str(value))
    if rng.random() < 0.1:
        prompt += " " + rng.choice(endings)
    elif rng.random() < 0.05:
        prompt = rng.choice(BEGINNINGS) + prompt
    return kind, prompt
