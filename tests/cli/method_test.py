"""Methods: each one gives plain decoding's tokens, and the table at the end tells how."""

import json
import subprocess
import unittest
from pathlib import Path

import gguf_vocabulary
from deeper_model import write_deeper
from paceline_cli import BINARY, CliTest, PROMPT, TINY, demo_model, environment, needs_demo_model

SAMPLED = ["--temp", "0.8", "--seed", "7", "--top-p", "0.95"]
SKIPPING = ("draft-verify", "swift", "clasp")


class Methods(CliTest):
    def names(self) -> list[str]:
        """The pipelines; a line that goes on with a summary begins with a space."""
        lines = self.run_ok("run", "--list-methods").splitlines()
        names = [line.split()[0] for line in lines if not line.startswith(" ")]
        self.assertEqual(names[0], "plain")
        return names[1:]

    def figures(self, *args: str) -> tuple[str, dict]:
        """What stderr says of a run, and its --stats."""
        stats = self.folder / "stats.json"
        done = subprocess.run([BINARY, "run", "-m", TINY, "-p", PROMPT, "--stats", str(stats), *args],
                              capture_output=True, timeout=120, env=environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stderr.decode(), json.loads(stats.read_text())

    def test_every_method_commits_the_tokens_of_plain_decoding_greedy_and_sampled(self):
        names = self.names()
        self.assertIn("four-stages", names)
        self.assertGreaterEqual(len(names), 21)
        deeper = write_deeper(TINY, self.folder / "deeper.gguf", 4)
        for sampling in ([], SAMPLED):
            args = ["-p", PROMPT, "-n", "40", *sampling]
            plain = {model: self.generate(*args, model=model)[1] for model in (TINY, deeper)}
            for name in names:
                # Four segments, or a layer to skip between those that are kept: the tiny model has two.
                model = deeper if name in (*SKIPPING, "adadecode") else TINY
                with self.subTest(method=name, sampling=sampling):
                    self.assertEqual(self.generate("--method", name, *args, model=model)[1], plain[model])

    def test_deferred_layers_in_one_process_commit_the_same_tokens(self):
        path = self.folder / "ada.toml"
        path.write_text('[[stage]]\nname = "s"\nrole = "segment"\nsegments = 2\nprocess = "one"\nexit = true\n'
                        '[exit]\nproposes = true\ngate = 0.0\ndefers = true\n')
        for sampling in ([], SAMPLED):
            args = ["-p", PROMPT, "-n", "40", *sampling]
            plain = self.generate(*args)[1]
            self.assertEqual(self.generate("--config", str(path), *args)[1], plain)

    def test_a_draft_model_takes_the_place_of_what_stood_in_for_it(self):
        # In turns, so that the target waits for it; a draft that is the target is right.
        stderr, stats = self.figures("--method", "speculative", "--draft-model", TINY, "-n", "60")
        self.assertNotIn("prompt lookup", stderr)
        self.assertGreater(stats["pipeline"]["accepted_tokens"], 20)
        self.assertGreater(stats["pipeline"]["draft_forwards"], 0)

    def test_the_table_has_the_figures_and_the_baseline(self):
        stderr, stats = self.figures("--method", "four-stages", "-n", "60", "--figures", "--baseline", "-v")
        for name in ("mean acceptance length", "acceptance by position", "times plain decoding",
                     "C_total", "wasted rows", "final-verify  "):
            self.assertIn(name, stderr)
        for role in ("draft", "early-verify", "correct", "final-verify"):
            self.assertIn(f" {role} ", stderr)
        self.assertIn("logit lens", stderr)
        self.assertRegex(stderr, r"times plain decoding +\d+\.\d\d \[\d+\.\d\d\.\.\d+\.\d\d\] in 3 pairs")
        pipeline = stats["pipeline"]
        self.assertEqual(len(pipeline["times_plain_pairs"]), 3)
        self.assertEqual(pipeline["emitted_tokens"], stats["generated_tokens"])
        self.assertEqual(pipeline["fold"]["c_total"], pipeline["waves"])

    def test_more_computing_processes_than_cores_are_told_of_before_anything_is_decoded(self):
        stderr, _ = self.figures("--method", "four-stages", "-n", "4", "-t", "1", "--draft-model", TINY)
        self.assertIn("4 processes compute on 1 core here, where plain decoding is often faster", stderr)
        stderr, _ = self.figures("--method", "autoregressive", "-n", "4", "-t", "1")
        self.assertNotIn("is made for a device per process", stderr)

    def test_a_draft_model_may_know_fewer_tokens_than_the_target_or_more(self):
        data = Path(TINY).read_bytes()
        for name, draft in (("cut", gguf_vocabulary.cut(data, 480)), ("padded", gguf_vocabulary.padded(data, 256))):
            path = self.folder / f"{name}.gguf"
            path.write_bytes(draft)
            for sampling in ([], SAMPLED):
                args = ["-p", PROMPT, "-n", "60", *sampling]
                plain = self.generate(*args)[1]
                for method in ("speculative", "hybrid"):
                    with self.subTest(draft=name, method=method, sampling=sampling):
                        _, ids, stats = self.generate("--method", method, "--draft-model", str(path), *args)
                        self.assertEqual(ids, plain)
                        if method == "speculative":  # where the target waits for the draft
                            self.assertGreater(stats["pipeline"]["draft_forwards"], 0)
                            self.assertGreater(stats["pipeline"]["accepted_tokens"], 0)

    def test_a_check_with_a_changed_setting_runs_what_was_set_and_names_what_it_cannot_set(self):
        report = self.folder / "report.json"
        check = ["check", "-m", TINY, "--method", "prompt-lookup", "--first", "3", "-n", "40", "--json", str(report)]
        lengths = {}
        for gamma in (1, 8):
            self.run_ok(*check, "--set", f"draft.gamma={gamma}")
            lengths[gamma] = json.loads(report.read_text())["figures"]["mean_acceptance_length"]
        self.assertLessEqual(lengths[1], 2)
        self.assertGreater(lengths[8], lengths[1])
        for setting, says in (("draft.gama=8", "did you mean 'gamma'?"), ("draft-cost=1", "--set draft-cost=1"),
                              ("gamma", "'gamma' is no setting")):
            with self.subTest(setting=setting):
                self.assertIn(says, self.run_fails(2, *check, "--set", setting))

    def test_a_draft_model_with_other_tokens_is_refused_by_name(self):
        # A token text changed in place: ids then mean something else.
        other = self.folder / "other.gguf"
        other.write_bytes(Path(TINY).read_bytes().replace(b"<|im_start|>", b"<|xm_start|>", 1))
        stderr = self.run_fails(2, "run", "-m", TINY, "--method", "pearl", "--draft-model", str(other), "-p", "x")
        self.assertIn("other.gguf does not fit", stderr)
        self.assertIn("token 1 is '<|xm_start|>', the target's is '<|im_start|>'", stderr)

    @needs_demo_model
    def test_a_draft_model_of_another_family_is_refused_before_anything_starts(self):
        stderr = self.run_fails(2, "run", "-m", demo_model(), "--method", "pearl", "--draft-model", TINY, "-p", "x")
        self.assertIn("tiny-chat.gguf does not fit", stderr)

    def test_a_draft_model_needs_a_method_that_drafts(self):
        for method, says in (("plain", "--draft-model is for methods that draft"),
                             ("adadecode-parallel", "has no stage with role")):
            stderr = self.run_fails(2, "run", "-m", TINY, "--method", method, "--draft-model", TINY, "-p", "x")
            self.assertIn(says, stderr)


if __name__ == "__main__":
    unittest.main()
