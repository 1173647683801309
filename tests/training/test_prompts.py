"""The split rule never moves, excluded prompts are dropped, mixtures are fair and repeatable."""

import ast
import gzip
import hashlib
import json
import re
import tempfile
import unittest
from collections import Counter
from pathlib import Path
from random import Random

from paceline_training.code_functions import make_function, stub
from paceline_training.code_prompts import broken, code_of
from paceline_training.make_prompts import (Filter, SHARES, make, mbpp_prompts, question_requests,
                                            questions_in)
from paceline_training.prompts import (Exclusion, is_held_out, read_rows, read_texts, word_runs)

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
TASK = {"task_id": 7, "text": "Write a function to add two numbers.", "test_list":
        ["assert add(1, 2) == 3", "assert add(0, 0) == 0"],
        "code": "def helper(x):\r\n  return x\r\ndef add(a, b):\r\n  return helper(a) + b"}
KNOWN_HELD_OUT = [3, 13, 25]  # of "fixed 0" to "fixed 39"


class WithFolder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def file(self, name: str, *rows: dict) -> Path:
        path = self.folder / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path


class Split(unittest.TestCase):
    def test_the_rule_is_the_first_byte_of_the_hash_of_the_stripped_text(self):
        texts = [f"question number {i}?" for i in range(3000)]
        for text in texts[:50]:
            plain = int(hashlib.sha256(text.encode("utf-8")).hexdigest()[:2], 16) < 26
            self.assertEqual(is_held_out(text), plain)
            self.assertEqual(is_held_out(f"  {text}\n"), plain)
        self.assertAlmostEqual(sum(map(is_held_out, texts)) / 3000, 26 / 256, delta=0.02)

    def test_known_texts_lie_where_they_always_lay(self):
        sides = [is_held_out(f"fixed {i}") for i in range(40)]
        self.assertEqual([i for i, side in enumerate(sides) if side], KNOWN_HELD_OUT)


class Reading(WithFolder):
    def test_the_forms_of_known_data_sets_are_read(self):
        path = self.file("a.jsonl", {"prompt": "p"}, {"turns": ["t", "u"]}, {"question": "q"},
                         {"text": "x"}, {"prompt": "\n\n"},
                         {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "m"},
                                       {"role": "assistant", "content": "a"}]})
        self.assertEqual(read_texts(path), ["p", "t", "q", "x", "\n\n", "m"])
        packed = self.folder / "a.jsonl.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        self.assertEqual(read_rows(packed), read_rows(path))

    def test_a_byte_order_mark_is_no_part_of_the_first_row(self):
        path = self.folder / "marked.jsonl"
        path.write_text('{"prompt": "p"}\n', encoding="utf-8-sig")
        self.assertEqual(read_texts(path), ["p"])

    def test_a_row_that_asks_nothing_is_named(self):
        path = self.file("a.jsonl", {"prompt": "p"}, {"answer": "42"})
        with self.assertRaisesRegex(ValueError, "a.jsonl: row 2 .*42"):
            read_texts(path)
        path.write_text('{"prompt": "p"}\n[1]\n')
        with self.assertRaisesRegex(ValueError, "a.jsonl:2: a list"):
            read_rows(path)


class Excluding(WithFolder):
    def test_thirteen_shared_words_are_one_task_and_twelve_are_not(self):
        exclusion = Exclusion([self.file("bench.jsonl", {"prompt": f"Now say: {LONG}!"})])
        words = LONG.split()
        self.assertTrue(exclusion.hits("My words: " + " ".join(words[:13]).upper()))
        self.assertFalse(exclusion.hits("My words: " + " ".join(words[:12])))

    def test_a_short_prompt_is_excluded_by_an_equal_one(self):
        exclusion = Exclusion([self.file("bench.jsonl", {"turns": ["Why is the sky blue?", "x"]})])
        self.assertTrue(exclusion.hits("why is the SKY blue"))
        self.assertFalse(exclusion.hits("why is the sky dark"))
        self.assertEqual(word_runs("\n\n"), set())

    def test_no_training_prompt_is_excluded_or_held_out_and_drops_are_counted(self):
        rows = [{"prompt": f"{LONG} and {i}"} for i in range(3)]
        rows += [{"prompt": f"Please say the number {i}."} for i in range(60)]
        made = make([self.file("mine.jsonl", *rows)],
                    Exclusion([self.file("bench.jsonl", {"prompt": LONG})]), 400, seed=1)
        shared = sum(not is_held_out(row["prompt"]) for row in rows[:3])
        self.assertEqual(made.dropped["excluded"], shared)
        self.assertGreater(shared, 0)
        texts = {prompt.text for prompt in made.train}
        self.assertFalse([t for t in texts if LONG in t or is_held_out(t)])
        held = {prompt.text for prompt in made.held_out["mine"]}
        self.assertEqual(held, {r["prompt"] for r in rows if is_held_out(r["prompt"])})
        self.assertTrue(held)


class Mixing(WithFolder):
    def test_any_prefix_has_the_shares_and_no_two_prompts_are_equal(self):
        made = make([], Exclusion(), 2000, seed=1)
        self.assertEqual(len({prompt.text for prompt in made.train}), 2000)
        for prefix in (40, 400, 2000):
            counts = Counter(prompt.source.split("-")[1] for prompt in made.train[:prefix])
            for kind, share in SHARES.items():
                self.assertAlmostEqual(counts[kind] / prefix, share, delta=0.05)
        self.assertGreater(len({prompt.source for prompt in made.train}), 25)
        self.assertTrue(all(is_held_out(prompt.text) for prompt in made.held_out["own"]))

    def test_the_seed_decides_everything(self):
        first, again, other = (make([], Exclusion(), 300, seed).train for seed in (1, 1, 2))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_no_template_leaves_a_brace_behind(self):
        for prompt in make([], Exclusion(), 3000, seed=3).train:
            if "own-code" not in prompt.source:
                self.assertNotRegex(prompt.text, r"\{[a-z0-9_|]*\}")

    def test_a_task_with_tests_comes_in_three_wordings_of_one_side(self):
        asked, tested, completed = [p.text for p in mbpp_prompts(TASK, TASK["text"], "mbpp/7")]
        self.assertEqual(asked, TASK["text"])
        self.assertIn("assert add(1, 2) == 3\nassert add(0, 0) == 0", tested)
        self.assertEqual(completed, 'def add(a, b):\n    """Write a function to add two numbers.\n'
                         "    >>> add(1, 2)\n    3\n    >>> add(0, 0)\n    0\n    \"\"\"\n")


class OwnFunctions(unittest.TestCase):
    def functions(self):
        rng = Random(5)
        return [(make_function(rng), rng) for _ in range(300)]

    def test_the_examples_of_a_docstring_are_what_the_body_returns(self):
        examples = 0
        for function, rng in self.functions():
            space = {}
            exec(code_of(function), space)
            posed = stub(function, rng)
            claims = re.findall(r"^    (?:>>> (.*)\n    (.*)|(.* == .*))$", posed, re.M)
            self.assertEqual(len(claims), len(function.arguments), posed)
            for call, value, equation in claims:
                examples += 1
                self.assertTrue(eval(equation or f"{call} == {value}", space), posed)
        self.assertGreater(examples, 300)

    def test_a_stub_is_a_function_without_a_body_and_a_bug_is_a_change(self):
        for function, rng in self.functions():
            tree = ast.parse(stub(function, rng))
            self.assertEqual(len(tree.body[0].body), 1)
            self.assertNotEqual(broken(function, rng), code_of(function))


class TargetQuestions(unittest.TestCase):
    def test_numbered_lines_become_prompts_once(self):
        answer = ("Sure, here are some:\n1. What do bees eat in winter?\n"
                  "2) **How do bees find home?**\n- Describe the life of a queen bee.\n3. Bees\n"
                  "4. Bees like many flowers.\n5. What do bees eat in winter?\n")
        texts = [p.text for p in questions_in([answer], Filter(Exclusion(), set()).keeps)]
        expected = ["What do bees eat in winter?", "How do bees find home?",
                    "Describe the life of a queen bee."]
        self.assertEqual(texts, [text for text in expected if not is_held_out(text)])

    def test_every_request_is_about_another_topic_or_in_another_wording(self):
        texts = [prompt.text for prompt in question_requests(900, 1)]
        self.assertEqual(len(set(texts)), 900)


if __name__ == "__main__":
    unittest.main()
