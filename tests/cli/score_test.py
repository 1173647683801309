"""Log probabilities: the same in every method, in `run` and `score`, greedy and drawn, when stages are killed."""

import json
import math
import unittest

from paceline_cli import CliTest, PROMPT, TINY

SAMPLED = ["--temp", "0.8", "--seed", "7", "--repeat-penalty", "1.3"]
METHODS = ("prompt-lookup", "speculative", "four-stages", "pearl", "fold", "layerskip")  # all: exactness_test.py


class Score(CliTest):
    def scored(self, *args: str, tokens: str = "24") -> dict:
        """The figures of a run with the log probabilities of its tokens."""
        path = self.folder / "stats.json"
        self.run_ok("run", "-m", TINY, "-p", PROMPT, "-q", "-n", tokens, "--stats", str(path), "--logprobs", "3", *args)
        return json.loads(path.read_text())

    def test_every_method_gives_the_numbers_of_plain_decoding(self):
        for sampling in ([], SAMPLED):
            plain = self.scored(*sampling)["logprobs"]
            self.assertEqual(len(plain), 24)
            for method in METHODS:
                with self.subTest(method, sampling=sampling):
                    self.assertEqual(self.scored("--config", self.as_configured(method), *sampling)["logprobs"], plain)

    def test_the_prompt_is_scored_alike_by_run_and_by_score(self):
        text = self.folder / "text.txt"
        text.write_text(PROMPT)
        said = json.loads(self.run_ok("score", "-m", TINY, "-o", "json", "--top", "3", str(text)))
        for method in ("plain", "four-stages"):
            with self.subTest(method):
                tokens = self.scored("--raw", "--method", method, tokens="0")["logprobs"]
                self.assertEqual(tokens, said["tokens"])
        self.assertIsNone(said["tokens"][0]["logprob"])
        values = [token["logprob"] for token in said["tokens"][1:]]
        self.assertEqual(said["scored"], len(values))
        self.assertAlmostEqual(said["logprob"], sum(values), places=9)
        self.assertAlmostEqual(said["perplexity"], math.exp(-sum(values) / len(values)), places=9)

    def test_a_token_that_is_among_the_most_probable_ones_has_their_value(self):
        for token in self.scored()["logprobs"]:  # greedy: each is the first of them
            self.assertEqual(token["rank"], 0)
            self.assertEqual(token["top"][0], {"id": token["id"], "token": token["token"], "logprob": token["logprob"]})
            values = [other["logprob"] for other in token["top"]]
            self.assertEqual(values, sorted(values, reverse=True))

    def test_a_table_has_a_line_for_each_token_after_the_answer(self):
        said = self.run_ok("run", "-m", TINY, "-p", PROMPT, "-q", "-n", "5", "--logprobs", "1")
        lines = said.splitlines()
        self.assertEqual(lines[-6].split(), ["position", "id", "log", "prob", "rank", "token"])
        self.assertEqual([line.split()[3] for line in lines[-5:]], ["0"] * 5)

    def test_several_texts_are_scored_each_from_its_beginning(self):
        text = self.folder / "text.txt"
        text.write_text("one two three")
        alone = self.run_ok("score", "-m", TINY, "-o", "json", str(text))
        both = self.run_ok("score", "-m", TINY, "-o", "json", str(text), str(text)).splitlines()
        self.assertEqual(both, [alone.rstrip("\n")] * 2)

    def test_what_cannot_be_scored_is_refused_by_name(self):
        empty = self.folder / "empty.txt"
        empty.write_text("")
        missing = str(self.folder / "missing.txt")
        self.assertIn(missing, self.run_fails(1, "score", "-m", TINY, missing))
        self.assertIn("--top", self.run_fails(2, "score", "-m", TINY, "--top", "21", str(empty)))
        self.assertIn("--logprobs", self.run_fails(2, "run", "-m", TINY, "-p", "x", "--logprobs", "21"))
        self.assertIn("--logprobs is for a single answer", self.run_fails(2, "run", "-i", "--logprobs", "1"))
        self.assertIn("files is required", self.run_fails(2, "score", "-m", TINY))


if __name__ == "__main__":
    unittest.main()
