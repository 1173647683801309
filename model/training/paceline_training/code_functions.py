"""Small Python functions that nobody has written: filter, change and combine, in every mixture.

A Function has a name, arguments, a docstring and examples that were computed, so that it can be
posed as a signature to complete, as a sentence, as a body to explain or as a bug to find.
"""

from dataclasses import dataclass
from random import Random

Step = tuple[str, str, str]  # part of the name, part of the sentence, Python expression in x and k

NUMBER_FILTERS: list[Step] = [
    ("", "", "True"),
    ("even", "even", "x % 2 == 0"),
    ("odd", "odd", "x % 2 == 1"),
    ("positive", "positive", "x > 0"),
    ("negative", "negative", "x < 0"),
    ("large", "greater than k", "x > k"),
    ("small", "smaller than k", "x < k"),
    ("divisible", "divisible by k", "x % k == 0"),
    ("not_divisible", "not divisible by k", "x % k != 0"),
    ("two_digit", "two-digit", "10 <= abs(x) <= 99"),
    ("nonzero", "nonzero", "x != 0"),
    ("ending_in_five", "ending in the digit 5", "abs(x) % 10 == 5"),
]
NUMBER_MAPS: list[Step] = [
    ("", "", "x"),
    ("squares", "squares", "x * x"),
    ("cubes", "cubes", "x ** 3"),
    ("doubles", "doubles", "2 * x"),
    ("halves", "integer halves", "x // 2"),
    ("absolutes", "absolute values", "abs(x)"),
    ("negations", "negated values", "-x"),
    ("last_digits", "last digits", "abs(x) % 10"),
    ("digit_sums", "digit sums", "sum(map(int, str(abs(x))))"),
    ("digit_counts", "numbers of digits", "len(str(abs(x)))"),
    ("remainders", "remainders modulo k", "x % k"),
    ("shifted", "values increased by k", "x + k"),
]
NUMBER_ENDS: list[Step] = [
    ("sum", "the sum of", "sum(v)"),
    ("max", "the maximum of", "max(v, default=0)"),
    ("min", "the minimum of", "min(v, default=0)"),
    ("list", "a list of", "v"),
    ("sorted", "a sorted list of", "sorted(v)"),
    ("distinct", "the number of distinct values among", "len(set(v))"),
    ("reversed", "a list in reverse order of", "v[::-1]"),
    ("first", "a list of the first two of", "v[:2]"),
    ("range", "the difference between the largest and the smallest of",
     "max(v) - min(v) if v else 0"),
    ("running", "a list of the running totals of", "[sum(v[:i + 1]) for i in range(len(v))]"),
    ("alternating", "the alternating sum of", "sum(v[::2]) - sum(v[1::2])"),
    ("unique", "a list without duplicates of", "list(dict.fromkeys(v))"),
]
WORD_FILTERS: list[Step] = [
    ("", "", "True"),
    ("long", "longer than k letters", "len(x) > k"),
    ("short", "with at most k letters", "len(x) <= k"),
    ("vowel", "starting with a vowel", "x[0] in 'aeiou'"),
    ("double", "with a double letter", "any(p == q for p, q in zip(x, x[1:]))"),
    ("ending_e", "ending in the letter e", "x.endswith('e')"),
    ("odd_length", "of odd length", "len(x) % 2 == 1"),
    ("with_a", "that contain the letter a", "'a' in x"),
]
WORD_MAPS: list[Step] = [
    ("", "", "x"),
    ("upper", "in upper case", "x.upper()"),
    ("reversed", "spelled backwards", "x[::-1]"),
    ("initials", "shortened to the first letter", "x[0]"),
    ("lengths", "replaced by their length", "len(x)"),
    ("capitalized", "with a capital first letter", "x.capitalize()"),
    ("without_vowels", "without vowels", "''.join(c for c in x if c not in 'aeiou')"),
    ("sorted_letters", "with their letters sorted", "''.join(sorted(x))"),
]
WORD_ENDS: list[Step] = [
    ("list", "a list of", "v"),
    ("sorted", "a sorted list of", "sorted(v)"),
    ("joined", "a comma-separated string of", "', '.join(map(str, v))"),
    ("count", "the number of", "len(v)"),
    ("last", "a list with the last one of", "v[-1:]"),
    ("unique", "a list without duplicates of", "list(dict.fromkeys(v))"),
    ("counts", "a dictionary that counts", "{w: v.count(w) for w in v}"),
    ("positions", "a dictionary from index to", "dict(enumerate(v))"),
]
ADJECTIVES = ("even", "odd", "positive", "negative", "two-digit", "nonzero")  # stand before a noun
WORDS = """tree apple moon letter banana orange bee coffee ice yellow sun green house echo pepper
ant river umbrella night arrow summer egg mirror snow table""".split()


@dataclass
class Function:
    name: str
    signature: str  # "def name(...) -> type:"
    sentence: str  # "the sum of the squares of the even numbers of a list"
    expression: tuple[str, str, str]  # filter, map, end
    arguments: list[tuple]
    parameter: str

    def call(self, arguments: tuple) -> str:
        return f"{self.name}({', '.join(map(repr, arguments))})"

    def value(self, arguments: tuple):
        items, k = arguments[0], arguments[1] if len(arguments) > 1 else 0
        keep, change, end = self.expression
        v = [eval(change, {"x": x, "k": k}) for x in items if eval(keep, {"x": x, "k": k})]
        return eval(end, {"v": v})

    def body(self) -> list[str]:
        """Lines of an implementation."""
        keep, change, end = self.expression
        lines = ["v = []", f"for x in {self.parameter}:"]
        lines += ([f"    v.append({change})"] if keep == "True"
                  else [f"    if {keep}:", f"        v.append({change})"])
        return [*lines, f"return {end}"]


def _sentence(steps: list[Step], noun: str, source: str) -> str:
    keep, change, end = (step[1] for step in steps)
    if noun == "numbers":
        what = f"the {change} of the " if change else "the "
        kept = f"{keep} numbers" if keep in ADJECTIVES else f"numbers {keep}"
        return f"{end} {what}{kept.strip()} in {source}"
    parts = (end, "the words", keep, "in", source + ("," if change else ""), change)
    return " ".join(part for part in parts if part)


def make_function(rng: Random) -> Function:
    noun = rng.choices(["numbers", "words"], [3, 2])[0]
    tables = ((NUMBER_FILTERS, NUMBER_MAPS, NUMBER_ENDS) if noun == "numbers"
              else (WORD_FILTERS, WORD_MAPS, WORD_ENDS))
    steps = [rng.choice(table) for table in tables]
    takes_k = any("k" in step[1].split() for step in steps)
    parameter = rng.choice(["numbers", "values", "nums", "items"] if noun == "numbers"
                           else ["words", "strings", "texts", "names"])
    typed = rng.random() < 0.6
    name = "_".join(part for part in (steps[2][0], steps[1][0], steps[0][0]) if part)
    name = rng.choice([name, f"{name}_{parameter}", f"get_{name}", f"find_{name}",
                       f"compute_{name}"])
    kind = "int" if noun == "numbers" else "str"
    inner = f"{parameter}: list[{kind}]" if typed else parameter
    if takes_k:
        inner += ", k: int" if typed else ", k"
    arguments = []
    for _ in range(rng.randint(1, 3)):
        items = ([rng.randint(-20, 60) for _ in range(rng.randint(3, 6))] if noun == "numbers"
                 else rng.sample(WORDS, rng.randint(3, 5)))
        arguments.append((items, rng.randint(2, 6)) if takes_k else (items,))
    source = f"a list of {'integers' if noun == 'numbers' else 'lower case words'}"
    made = Function(name, "", _sentence(steps, noun, source), tuple(step[2] for step in steps),
                    arguments, parameter)
    made.signature = f"def {name}({inner})" + (_arrow(made) if typed else "") + ":"
    return made


def _arrow(function: Function) -> str:
    value = function.value(function.arguments[0])
    if isinstance(value, list):
        inner = {type(item).__name__ for item in value}
        return f" -> list[{inner.pop()}]" if len(inner) == 1 else " -> list"
    return f" -> {type(value).__name__}"


def stub(function: Function, rng: Random) -> str:
    """Signature and docstring with examples; the body is missing."""
    quotes = rng.choice(['"""', '"""', "'''"])
    first = function.sentence[0].upper() + function.sentence[1:]
    lead = rng.choice(["Return ", "Return ", "Returns ", "Compute ", ""])
    lines = [function.signature, f"    {quotes}{rng.choice(['', ' '])}"
             + (lead + function.sentence if lead else first) + "."]
    for arguments in function.arguments:
        if rng.random() < 0.5:
            lines += [f"    >>> {function.call(arguments)}", f"    {function.value(arguments)!r}"]
        else:
            lines.append(f"    {function.call(arguments)} == {function.value(arguments)!r}")
    lines.append(f"    {quotes}")
    return "\n".join(lines) + "\n"
