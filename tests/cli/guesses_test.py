"""Sources without a model: Jacobi, Lookahead, a datastore: same tokens, more of them in a round, and what is refused."""

import json
import unittest
from pathlib import Path

from paceline_cli import CliTest, PROMPT, TINY, paceline

SAMPLED = ["--temp", "0.8", "--seed", "7", "--repeat-penalty", "1.2"]
SOURCES = ("jacobi", "lookahead", "prompt-lookup+lookahead", "lookahead+first-layers")


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
                base = "jacobi" if source == "jacobi" else "lookahead"
                for pace, mode in (("sequential", "sequential"), ("ahead", "at-once"), ("lockstep", "lockstep")):
                    with self.subTest(source, pace=pace, sampling=sampling):
                        file = self.config(f'extends = "{base}"\n[draft]\nsource = "{source}"\npace = "{pace}"\n'
                                           f'[schedule]\nmode = "{mode}"\n')
                        self.assertEqual(self.generate("--config", file, *args)[1], plain)

    def test_lookahead_commits_more_than_a_token_in_a_round(self):
        stats = self.generate("--method", "lookahead", "-p", PROMPT, "-n", "100")[2]["pipeline"]
        self.assertGreater(stats["mean_acceptance_length"], 1.0)

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
                        self.assertGreater(stats["pipeline"]["mean_acceptance_length"], 1.2)

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
        done = paceline("datastore", "-m", TINY, str(self.folder / "none.txt"), "-o", str(self.folder / "x"))
        self.assertEqual(done.returncode, 1)
        self.assertFalse((self.folder / "x").exists())

    def test_a_window_that_does_not_fit_is_refused_with_its_numbers(self):
        said = self.refused('extends = "lookahead"\n[draft]\nwindow = 15\nguesses = 15\n')
        self.assertIn("window = 15, ngram = 5, guesses = 15", said)
        said = self.refused('extends = "lookahead"\n[schedule]\nrows_max = 40\n')
        self.assertIn("a batch of 56 rows, [schedule] rows_max is 40", said)
        said = self.refused('extends = "lookahead"\n[draft]\ngamma = 5\n')
        self.assertIn("gamma = 5", said)
        said = self.refused('extends = "prompt-lookup"\n[draft]\nwindow = 7\n')
        self.assertIn('window = 7 is for source = "lookahead"', said)


if __name__ == "__main__":
    unittest.main()
