"""Methods: each one gives plain decoding's tokens, and the table at the end tells how."""

import json
import subprocess
import unittest

from paceline_cli import BINARY, CliTest, PROMPT, TINY, environment

SAMPLED = ["--temp", "0.8", "--seed", "7", "--top-p", "0.95"]


class Methods(CliTest):
    def names(self) -> list[str]:
        return [line.split()[0] for line in self.run_ok("run", "--list-methods").splitlines()]

    def figures(self, *args: str) -> tuple[str, dict]:
        """What stderr says of a run, and its --stats."""
        stats = self.folder / "stats.json"
        done = subprocess.run([BINARY, "run", "-m", TINY, "-p", PROMPT, "--stats", str(stats), *args],
                              capture_output=True, timeout=120, env=environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stderr.decode(), json.loads(stats.read_text())

    def without_final_segments(self, name: str) -> bool:
        # Four segments need four layers; the tiny model has two.
        return name == "adadecode"

    def test_every_method_commits_the_tokens_of_plain_decoding_greedy_and_sampled(self):
        names = self.names()
        self.assertIn("four-stages", names)
        self.assertGreaterEqual(len(names), 16)
        for sampling in ([], SAMPLED):
            args = ["-p", PROMPT, "-n", "40", *sampling]
            plain = self.generate(*args)[1]
            for name in names:
                if self.without_final_segments(name):
                    continue
                with self.subTest(method=name, sampling=sampling):
                    self.assertEqual(self.generate("--method", name, *args)[1], plain)

    def test_deferred_layers_in_one_process_commit_the_same_tokens(self):
        path = self.folder / "ada.toml"
        path.write_text('[[stage]]\nname = "s"\nrole = "segment"\nsegments = 2\nprocess = "one"\nexit = true\n'
                        '[exit]\nproposes = true\ngate = 0.0\ndefers = true\n')
        for sampling in ([], SAMPLED):
            args = ["-p", PROMPT, "-n", "40", *sampling]
            plain = self.generate(*args)[1]
            self.assertEqual(self.generate("--config", str(path), *args)[1], plain)

    def test_a_draft_model_takes_the_place_of_what_stood_in_for_it(self):
        stderr, stats = self.figures("--method", "pearl", "--draft-model", TINY, "-n", "60")
        self.assertNotIn("prompt lookup", stderr)
        # A draft that is the target is right whenever it has spoken in time.
        self.assertGreater(stats["pipeline"]["accepted_tokens"], 20)
        self.assertGreater(stats["pipeline"]["draft_forwards"], 0)

    def test_the_table_has_the_figures_and_the_baseline(self):
        stderr, stats = self.figures("--method", "four-stages", "-n", "60", "--figures", "--baseline")
        for name in ("mean acceptance length", "acceptance by position", "times autoregressive",
                     "C_total", "exit hit rate", "outcomes", "wasted rows", "final-verify  "):
            self.assertIn(name, stderr)
        for role in ("draft", "early-verify", "correct", "final-verify"):
            self.assertIn(f" {role} ", stderr)
        self.assertIn("logit lens", stderr)
        pipeline = stats["pipeline"]
        self.assertEqual(pipeline["emitted_tokens"], stats["generated_tokens"])
        self.assertEqual(pipeline["fold"]["c_total"], pipeline["waves"])

    def test_a_draft_model_with_other_tokens_is_refused_by_name(self):
        other = self.folder / "other.gguf"
        data = bytearray(open(TINY, "rb").read())
        # The first token text in the file, changed in place: ids then mean something else.
        at = data.index(b"<|im_start|>")
        data[at:at + 12] = b"<|xm_start|>"
        other.write_bytes(data)
        stderr = self.run_fails(2, "run", "-m", TINY, "--method", "pearl", "--draft-model", str(other), "-p", "x")
        self.assertIn("other.gguf does not fit", stderr)
        self.assertIn("token", stderr)


if __name__ == "__main__":
    unittest.main()
