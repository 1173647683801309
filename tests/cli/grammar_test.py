"""Grammars: --json-schema and --grammar give valid answers, the same ones in every method, also when processes are killed."""

import json
import unittest

from deeper_model import write_deeper
from method_test import SAMPLED, SKIPPING
from paceline_cli import CliTest, PROMPT, TINY, paceline

SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "size", "tags", "open"],
          "properties": {"name": {"type": "string", "maxLength": 12}, "size": {"enum": ["small", "large", 12, None]},
                         "tags": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"enum": ["red", "green"]}},
                         "open": {"type": "boolean"}}}
RULES = 'root ::= line (", " line){2}\nline ::= [a-f]{2,4} "-" [0-9]+ | "none"\n'


def has_grammars() -> bool:
    done = paceline("run", "-m", TINY, "--json-schema", "/nowhere", "-p", PROMPT)
    return b"this build has no grammars" not in done.stderr


class Refusals(CliTest):
    @unittest.skipIf(has_grammars(), "skipped: this build has grammars")
    def test_a_build_without_grammars_says_how_to_get_them(self):
        done = paceline("run", "-m", TINY, "--grammar", "/nowhere", "-p", PROMPT)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"launch/setup --grammar", done.stderr)


@unittest.skipUnless(has_grammars(), "skipped: this build has no grammars (launch/setup --grammar)")
class Grammars(CliTest):
    def setUp(self) -> None:
        super().setUp()
        self.schema = self.folder / "schema.json"
        self.schema.write_text(json.dumps(SCHEMA))
        self.rules = self.folder / "rules.ebnf"
        self.rules.write_text(RULES)

    def answer(self, *args: str, model: str = TINY) -> str:
        """What the model says, without the newline that the terminal gets."""
        done = paceline("run", "-m", model, "-q", "-p", PROMPT, *args)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stdout.decode().removesuffix("\n")

    def test_answers_are_of_the_language_greedy_and_sampled(self):
        for number, sampling in enumerate([[], *(["--temp", "1", "--seed", str(seed)] for seed in range(12))]):
            with self.subTest(sampling=sampling):
                # Digits of a number may go on for ever; what is cut is no JSON.
                got = json.loads(self.answer("--json-schema", str(self.schema), "-n", "300", *sampling))
                self.assertEqual(list(got), ["name", "size", "tags", "open"])
                self.assertLessEqual(len(got["name"]), 12)
                self.assertIn(got["size"], SCHEMA["properties"]["size"]["enum"])
                self.assertTrue(1 <= len(got["tags"]) <= 3 and set(got["tags"]) <= {"red", "green"})
                self.assertIsInstance(got["open"], bool)
                if number < 4:
                    text = self.answer("--grammar", str(self.rules), "-n", "300", "--logit-bias", "19=-3", *sampling)
                    self.assertRegex(text, r"\A((\A|, )([a-f]{2,4}-[0-9]+|none)){3}\Z")

    def test_every_method_commits_the_tokens_of_plain_decoding(self):
        lines = self.run_ok("run", "--list-methods", "all").splitlines()
        names = [line.split()[0] for line in lines if not line.startswith(" ")][1:]
        deeper = write_deeper(TINY, self.folder / "deeper.gguf", 6)
        plain = {}
        for number, name in enumerate(names):
            model = deeper if name in (*SKIPPING, "adadecode") else TINY
            # Of each method one of the pairs of sampling and grammar; neighbours have others.
            sampling = SAMPLED if number % 2 else []
            grammar = ["--json-schema", str(self.schema)] if number // 2 % 2 else ["--grammar", str(self.rules)]
            args = ["-p", PROMPT, "-n", "40", *sampling, *grammar]
            key = (model, *args)
            if key not in plain:
                plain[key] = self.generate(*args, model=model)[1]
            with self.subTest(method=name, sampling=sampling, grammar=grammar[0]):
                self.assertEqual(self.generate("--method", name, *args, model=model)[1], plain[key])

    def test_many_answers_at_once_are_those_of_plain_decoding_also_when_processes_are_killed(self):
        for method, more in (("four-stages", ["--kills", "6"]), ("prompt-lookup+draft", ["--kills", "3"]),
                             ("fold", ["--kv-memory", "100000"])):
            with self.subTest(method=method):
                self.run_ok("check", "-m", TINY, "--method", method, "--json-schema", str(self.schema), "--temp", "1",
                            "--seed", "3", "--requests", "8", "--first", "10", "-n", "40", "-c", "256",
                            "--set", "supervision.restarts_max=1000", *more)

    def test_log_probabilities_are_those_of_the_model_before_the_grammar(self):
        stats = self.folder / "stats.json"
        args = ["--json-schema", str(self.schema), "-n", "6", "--logprobs", "3", "--stats", str(stats)]
        self.answer(*args)
        plain = json.loads(stats.read_text())["logprobs"]
        self.answer(*args, "--method", "four-stages")
        self.assertEqual(json.loads(stats.read_text())["logprobs"], plain)
        # The first token is "{", which this model would hardly say.
        self.assertGreater(plain[0]["rank"], 0)

    def test_a_limit_of_tokens_cuts_the_answer(self):
        stats = self.folder / "stats.json"
        text = self.answer("--json-schema", str(self.schema), "-n", "3", "--stats", str(stats))
        self.assertTrue(text.startswith("{"))
        self.assertEqual(json.loads(stats.read_text())["end"], "max_tokens")

    def test_a_grammar_that_cannot_be_compiled_is_refused_with_the_reason(self):
        bad = self.folder / "bad"
        for option, text, words in (("--json-schema", '{"type": "object"', "JSON schema"),
                                    ("--json-schema", '{"type": "none"}', "none"),
                                    ("--grammar", 'root ::= "a" | other', "line 1"),
                                    ("--grammar", 'first ::= "a"', "root")):
            bad.write_text(text)
            done = paceline("run", "-m", TINY, "-p", PROMPT, option, str(bad))
            with self.subTest(text=text):
                self.assertEqual(done.returncode, 2)
                self.assertIn("cannot be compiled", done.stderr.decode())
                self.assertIn(words, done.stderr.decode())
                self.assertNotRegex(done.stderr.decode(), r"\.cc:\d")

    def test_a_command_line_that_makes_no_sense_is_refused(self):
        for args in (["--json-schema", str(self.schema), "--grammar", str(self.rules), "-p", "a"],
                     ["--json-schema", str(self.schema), "--interactive"],
                     ["--json-schema", str(self.folder / "nowhere"), "-p", "a"]):
            done = paceline("run", "-m", TINY, *args)
            self.assertIn(done.returncode, (1, 2), args)


if __name__ == "__main__":
    unittest.main()
