"""Sources without a model: Jacobi, Lookahead, a datastore: same tokens, more of them in a round, and what is refused."""

import json
import os
import unittest
from pathlib import Path

from paceline_cli import CliTest, PROMPT, TINY, paceline

SAMPLED = ["--temp", "0.8", "--seed", "7", "--repeat-penalty", "1.2"]
SOURCES = ("jacobi", "prompt-lookup+jacobi", "lookahead", "prompt-lookup+lookahead", "lookahead+first-layers")


class Guesses(CliTest):
    def config(self, text: str, name: str = "own.toml") -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def refused(self, text: str) -> str:
        done = paceline("run", "-m", TINY, "-p", "x", "-n", "1", "--config", self.config(text))
        self.assertNotEqual(done.returncode, 0)
        return done.stderr.decode()

    def store(self, *files: str) -> str:
        path = str(self.folder / "texts.store")
        self.said = self.run_ok("datastore", "-m", TINY, *files, "-o", path)
        return path

    def test_each_source_in_each_pace_gives_the_tokens_of_plain_decoding(self):
        for sampling in ([], SAMPLED):
            args = ["-p", PROMPT, "-n", "40", *sampling]
            plain = self.generate(*args)[1]
            for source in SOURCES:
                base = "jacobi" if "jacobi" in source else "lookahead"
                for pace, mode in (("sequential", "sequential"), ("ahead", "at-once"), ("lockstep", "lockstep")):
                    with self.subTest(source, pace=pace, sampling=sampling):
                        shape = "chain" if source == "jacobi" else "tree"
                        file = self.config(f'extends = "{base}"\n[draft]\nsource = "{source}"\npace = "{pace}"\n'
                                           f'[schedule]\nmode = "{mode}"\nshape = "{shape}"\n')
                        self.assertEqual(self.generate("--config", file, *args)[1], plain)

    def test_a_draft_that_guesses_beside_a_stage_correct_gives_the_tokens_of_plain_decoding(self):
        file = self.config('extends = "four-stages"\n[draft]\nsource = "lookahead"\n'
                           '[schedule]\nshape = "tree"\nrows_max = 64\ncontroller = "off"\n')
        for sampling in ([], SAMPLED):
            with self.subTest(sampling=sampling):
                args = ["-p", PROMPT, "-n", "40", *sampling]
                self.assertEqual(self.generate("--config", file, *args)[1], self.generate(*args)[1])

    def test_a_text_that_is_in_the_store_is_proposed_from_it(self):
        answer = self.generate("-p", PROMPT, "-n", "60")[0]
        text = self.folder / "text.txt"
        text.write_text(answer)
        lines = self.folder / "more.jsonl"
        lines.write_text(json.dumps({"id": "a", "messages": [{"role": "user", "content": "two three"}]}) + "\n\n"
                         + json.dumps({"text": answer}) + "\n")
        store = self.store(str(text), str(lines))
        self.assertRegex(self.said, r": 3 texts, \d+ tokens, 0\.0 MB\n$")
        for sampling in ([], SAMPLED):
            for source in ("datastore", "prompt-lookup+datastore", "datastore+first-layers"):
                with self.subTest(source, sampling=sampling):
                    file = self.config(f'extends = "rest"\n[draft]\nsource = "{source}"\ndatastore = "{store}"\n'
                                       '[schedule]\ncontroller = "off"\n')
                    args = ["-p", PROMPT, "-n", "60", *sampling]
                    _, ids, stats = self.generate("--config", file, *args)
                    self.assertEqual(ids, self.generate(*args)[1])
                    if not sampling:
                        self.assertGreater(stats["pipeline"]["candidates"], 0)

    def test_a_store_can_be_simulated_though_it_has_no_model_with_costs(self):
        text = self.folder / "text.txt"
        text.write_text("one two three")
        costs = str(self.folder / "costs.tsv")
        self.run_ok("simulate", "-m", TINY, "--measure-costs", costs, "--rows", "1,64", "--contexts", "64",
                    "--neighbours", "0", "--samples", "1", "--measure-threads", "1")
        said = self.run_ok("simulate", "-m", TINY, "--method", "rest", "--set", f"draft.datastore={self.store(str(text))}",
                           "--costs", costs, "-p", PROMPT, "-n", "12")
        self.assertRegex(said, r"draft +busy +\d+%")

    def test_a_store_that_cannot_be_used_is_refused_with_file_key_and_value(self):
        text = self.folder / "text.txt"
        text.write_text("one two three")
        store = self.store(str(text))
        damaged = self.folder / "damaged.store"
        content = bytearray(Path(store).read_bytes())
        content[-1] ^= 1
        damaged.write_bytes(content)
        for file, why in ((damaged, "a damaged datastore"), (text, "not a datastore"),
                          (self.folder / "none.store", "none.store")):
            with self.subTest(why):
                said = self.refused(f'extends = "rest"\n[draft]\ndatastore = "{file}"\n')
                self.assertIn(f'own.toml: [draft] datastore = "{file}"', said)
                self.assertIn(why, said)
        other = bytearray(Path(store).read_bytes())
        other[16] ^= 1  # the tokenizer's hash
        damaged.write_bytes(other)
        self.assertRegex(self.refused(f'extends = "rest"\n[draft]\ndatastore = "{damaged}"\n'),
                         r"another model's tokenizer: its hash is [0-9a-f]{16}, this model's [0-9a-f]{16}")
        done = paceline("datastore", "-m", TINY, str(self.folder / "none.txt"), "-o", str(self.folder / "x"))
        self.assertEqual(done.returncode, 1)
        self.assertFalse((self.folder / "x").exists())

    def test_a_store_has_its_texts_in_the_order_of_the_lines_and_replaces_an_older_one_whole(self):
        lines = self.folder / "lines.jsonl"
        lines.write_text('{"question": "one two", "id": "7", "answer": "three four"}\n')
        text = self.folder / "text.txt"
        text.write_text("one two\nthree four")
        store = self.store(str(lines))
        of_lines = Path(store).read_bytes()
        # Who has the old file mapped keeps it: the new one is another file of the same name.
        with open(store, "rb") as mapped:
            self.store(str(text))
            self.assertNotEqual(os.fstat(mapped.fileno()).st_ino, os.stat(store).st_ino)
            self.assertEqual(mapped.read(), of_lines)
        self.assertEqual(Path(store).read_bytes(), of_lines)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["lines.jsonl", "text.txt", "texts.store"])

    def test_json_that_is_nested_too_deep_is_refused_with_file_and_line(self):
        lines = self.folder / "deep.jsonl"
        for depth in (101, 100_000):
            lines.write_text('{"text": "one"}\n' + "[" * depth + '"two"' + "]" * depth + "\n")
            done = paceline("datastore", "-m", TINY, str(lines), "-o", str(self.folder / "x"))
            self.assertEqual(done.returncode, 1)
            self.assertIn("deep.jsonl:2: JSON of more than 100 levels", done.stderr.decode())
        lines.write_text("[" * 100 + '"two"' + "]" * 100)
        self.run_ok("datastore", "-m", TINY, str(lines), "-o", str(self.folder / "x"))

    def test_rest_without_a_store_drafts_with_the_model_that_is_named(self):
        args = ["-p", PROMPT, "-n", "20"]
        # As configured: whether a draft as slow as its target pays is not the question.
        file = self.config('extends = "rest"\n[schedule]\ncontroller = "off"\n')
        _, ids, stats = self.generate("--config", file, "--draft-model", TINY, *args)
        self.assertEqual(ids, self.generate(*args)[1])
        # How many of them are in time depends on load.
        self.assertGreater(stats["pipeline"]["candidates"], 0)

    def test_a_window_that_does_not_fit_is_refused_with_its_numbers(self):
        said = self.refused('extends = "lookahead"\n[draft]\nguess_window = 15\nguesses = 15\n')
        self.assertIn("guess_window = 15 does not fit: window = 15, ngram = 5, guesses = 15: 120 rows", said)
        said = self.refused('extends = "lookahead"\n[schedule]\nrows_max = 40\n')
        self.assertIn("a batch of 56 rows, [schedule] rows_max is 40", said)
        said = self.refused('extends = "lookahead"\n[draft]\ngamma = 5\n')
        self.assertIn("gamma = 5", said)
        said = self.refused('extends = "lookahead"\n[schedule]\ncontroller = "on"\n')
        self.assertIn('[draft] source = "lookahead" needs [schedule] controller = "guard" or "off"', said)
        said = self.refused('extends = "prompt-lookup"\n[draft]\nguess_window = 7\n')
        self.assertIn('guess_window = 7 is for source = "lookahead"', said)


if __name__ == "__main__":
    unittest.main()
