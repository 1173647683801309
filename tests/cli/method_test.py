"""Methods: each one gives plain decoding's tokens, and the table at the end tells how."""

import json
import subprocess
import unittest
from pathlib import Path

import gguf_vocabulary
from deeper_model import write_deeper
from paceline_cli import BINARY, CliTest, PROMPT, TINY, demo_model, environment, needs_demo_model, paceline

SAMPLED = ["--temp", "0.8", "--seed", "7", "--top-p", "0.95"]
SKIPPING = ("draft-verify", "swift", "clasp", "pearl-skip", "fold-skip", "pearl-clasp", "fold-clasp", "pearl-swift",
            "fold-swift")


class Methods(CliTest):
    def names(self) -> list[str]:
        """The pipelines; a line that goes on with a summary begins with a space."""
        lines = self.run_ok("run", "--list-methods", "all").splitlines()
        names = [line.split()[0] for line in lines if not line.startswith(" ")]
        self.assertEqual(names[0], "plain")
        return names[1:]

    def test_the_families_hold_every_method_once(self):
        words = self.run_ok("run", "--list-methods").replace(",", " ").split()
        for name in self.names():
            self.assertEqual(words.count(name), 1, name)

    def test_a_family_is_not_listed_by_its_name(self):
        done = paceline("run", "--list-methods", "fold")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"--list-methods: must be all or left out, not 'fold'", done.stderr)

    def test_a_file_that_extends_a_method_runs_as_the_file_that_is_printed_of_it(self):
        own = self.folder / "own.toml"
        own.write_text('extends = "pearl"\n[draft]\nsource = "prompt-lookup"\ngamma = 5\n')
        printed = self.folder / "printed.toml"
        printed.write_text(self.run_ok("run", "--config", str(own), "--print-config"))
        self.assertNotIn("extends", printed.read_text())
        self.assertIn("gamma = 5\n", printed.read_text())
        self.assertIn('pace = "ahead"\n', printed.read_text())
        args = ["-p", PROMPT, "-n", "20"]
        for file in (own, printed):
            self.assertEqual(self.generate("--config", str(file), *args)[1], self.generate(*args)[1])

    def test_a_printed_configuration_has_the_numbers_as_they_are_written(self):
        printed = self.run_ok("run", "--method", "fold", "--print-config")
        self.assertIn("[ 0.0, 0.667 ]\n", printed)
        self.assertNotRegex(printed, r"\d\.\d{9}")

    def test_an_error_in_an_extended_file_names_that_file(self):
        base = self.folder / "base.toml"
        base.write_text('extends = "pearl"\n[draft]\ngamma = 99\n')
        own = self.folder / "own.toml"
        own.write_text('extends = "base.toml"\n')
        for command in ("run", "check"):
            done = paceline(command, "-m", TINY, "--config", str(own), "-n", "1")
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"{base}:3: [draft] gamma = 99 must be", done.stderr.decode())

    def figures(self, *args: str, model: str = TINY) -> tuple[str, dict]:
        """What stderr says of a run, and its --stats."""
        stats = self.folder / "stats.json"
        done = subprocess.run([BINARY, "run", "-m", model, "-p", PROMPT, "--stats", str(stats), *args],
                              capture_output=True, timeout=120, env=environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stderr.decode(), json.loads(stats.read_text())

    def test_every_method_commits_the_tokens_of_plain_decoding_greedy_and_sampled(self):
        names = self.names()
        self.assertIn("four-stages", names)
        self.assertGreaterEqual(len(names), 32)
        deeper = write_deeper(TINY, self.folder / "deeper.gguf", 6)
        for sampling in ([], SAMPLED):
            args = ["-p", PROMPT, "-n", "40", *sampling]
            plain = {model: self.generate(*args, model=model)[1] for model in (TINY, deeper)}
            for name in names:
                # Four segments, or sub-layers to choose from between those that are kept: the tiny model has two layers.
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

    def drawing(self, draws: bool) -> str:
        """A draft that is the target, verified by rejection, in three processes."""
        path = self.folder / f"draws-{draws}.toml"
        path.write_text('[[stage]]\nname = "draft"\nrole = "draft"\n[[stage]]\nname = "s"\nrole = "segment"\n'
                        'layers = "auto"\nsegments = 2\n[draft]\nsource = "first-layers"\nlayers = 2\n'
                        f'gamma = 4\nreach_min = 0.0\ndraws = {str(draws).lower()}\n[schedule]\n'
                        'controller = "off"\ndraft_wait_us = 10000000\n[acceptance]\nrule = "rejection"\n')
        return str(path)

    def test_a_draft_that_draws_from_the_targets_own_distribution_is_never_rejected(self):
        # 20 tokens are fewer than what is drawn from, so q is the whole of p.
        sampled = ["--temp", "1.0", "--top-k", "20", "-n", "60"]
        accepted = {}
        for draws in (True, False):
            for seed in ("1", "2"):
                _, stats = self.figures("--config", self.drawing(draws), "--seed", seed, *sampled)
                figures = stats["pipeline"]
                accepted[draws] = figures["accepted_tokens"]
                if draws:
                    self.assertEqual(figures["accepted_tokens"], figures["candidates"])
                    self.assertGreater(figures["mean_acceptance_length"], 4.0)
                else:
                    self.assertLess(figures["accepted_tokens"], figures["candidates"])
        self.assertGreater(accepted[True], accepted[False])
        plain = self.generate("-p", PROMPT, "-n", "40")[1]
        greedy = self.generate("--config", self.drawing(True), "-p", PROMPT, "-n", "40")[1]
        self.assertEqual(greedy, plain)

    def test_a_draft_model_takes_the_place_of_what_stood_in_for_it(self):
        # In turns, so that the target waits for it; a draft that is the target is right.
        stderr, stats = self.figures("--config", self.as_configured("speculative"), "--draft-model", TINY, "-n", "60")
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
        self.assertEqual(pipeline["fold"]["c_total"], pipeline["batches"])

    def check_self_draft(self, stats: dict, layers: int) -> None:
        """What must hold between the figures of a target that drafts for itself."""
        pipeline = stats["pipeline"]
        own = pipeline["self_draft"]
        self.assertEqual(own["draft_steps"], pipeline["draft_rows"])
        self.assertEqual(own["passes"], pipeline["draft_forwards"])
        self.assertGreater(own["draft_steps"], 0)
        forward = own["tokens_per_forward"]
        self.assertAlmostEqual(forward, pipeline["emitted_tokens"] / pipeline["batches"])
        alpha = own["acceptance_per_step"]
        self.assertAlmostEqual(alpha, pipeline["accepted_tokens"] / own["draft_steps"])
        if alpha > 0:
            for cost, expected in (("step_cost", "expected_speedup"),
                                   ("step_cost_with_head", "expected_speedup_with_head")):
                self.assertAlmostEqual(own[expected], forward * alpha / ((forward - 1) * own[cost] + alpha))
        for share in ("drafted_rounds", "chain_acceptance", "step_cost", "step_cost_with_head"):
            self.assertGreaterEqual(own[share], 0.0)
            self.assertLessEqual(own[share], 1.0)
        self.assertLessEqual(sum(own["time_shares"].values()), 1.0)
        rows = own["layer_rows_per_token"]
        self.assertEqual(rows["plain"], layers)
        self.assertAlmostEqual(rows["all"], rows["draft"] + rows["verify"] + rows["optimise"])
        tokens = pipeline["emitted_tokens"]
        self.assertAlmostEqual(rows["draft"] * tokens, own["step_cost"] * own["draft_steps"] * layers)
        # Each verified row runs at least what lies behind the sub-layers that its draft has run.
        verified = pipeline["candidates"] + pipeline["batches"]
        self.assertLessEqual(rows["verify"] * tokens, verified * layers + 1e-6)
        self.assertEqual(own["prefill_layer_rows"] % layers, 0)
        state = own["state"]
        strip = state["strip"]
        self.assertEqual([len(strip["attention"]), len(strip["mlp"])], [layers, layers])
        self.assertEqual((strip["attention"] + strip["mlp"]).count("#"), state["skipped"])
        self.assertAlmostEqual(state["skipped_ratio"], state["skipped"] / (2 * layers))

    def self_draft_run(self, model: str, method: str, *settings: str) -> tuple[str, dict]:
        """A run of 60 tokens that always drafts, with the figures."""
        config = self.folder / f"{method}.toml"
        config.write_text("\n".join([f'extends = "{method}"', "[self_draft]", "auto_off = false", *settings]) + "\n")
        return self.figures("--config", str(config), "-n", "60", "--figures", model=model)

    def test_the_figures_of_a_target_that_drafts_for_itself_agree_with_one_another(self):
        layers = 6
        model = write_deeper(TINY, self.folder / "model.gguf", layers)
        for method in ("layerskip", "kangaroo", "draft-verify", "swift", "clasp"):
            with self.subTest(method=method):
                stderr, stats = self.self_draft_run(model, method)
                self.check_self_draft(stats, layers)
                for name in ("M  ", "alpha  ", "layer-rows  ", "time  ", "expected speed-up  ",
                             "skipped by drafts  "):
                    self.assertRegex(stderr, rf"(?m)^{name}")
                strip = stats["pipeline"]["self_draft"]["state"]["strip"]
                self.assertIn("attention  " + strip["attention"] + "\n", stderr)
                self.assertIn("MLP        " + strip["mlp"] + "\n", stderr)
                self.assertNotRegex(stderr, "(?m)^auto-off")
                state = stats["pipeline"]["self_draft"]["state"]
                self.assertEqual(state["threshold"] > 0, method != "layerskip")
                if method == "layerskip":
                    self.assertEqual(strip, {"attention": "..####", "mlp": "..####"})

    def test_a_method_without_a_draft_of_its_own_has_no_such_figures(self):
        stderr, stats = self.figures("--method", "autoregressive", "-n", "8", "--figures")
        self.assertNotIn("self_draft", stats["pipeline"])
        self.assertNotIn("alpha", stderr)

    def test_auto_off_is_in_the_table_and_says_in_the_log_when_it_ends_drafting(self):
        # Of random layers that all count a draft of the first one is hardly ever right.
        model = write_deeper(TINY, self.folder / "model.gguf", 6, factor=1.0)
        stderr, stats = self.figures("--method", "layerskip", "-n", "200", "--figures", "-v", model=model)
        self.assertRegex(stderr, r"(?m)^auto-off +(drafts|off now); drafted \d+% of the rounds")
        own = stats["pipeline"]["self_draft"]
        self.assertEqual(stderr.count("decodes plainly: with drafts it is"), own["auto_offs"])
        if not own["state"]["drafts"]:
            self.assertGreater(own["auto_offs"], 0)
            self.assertLess(own["drafted_rounds"], 1.0)

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
                        _, ids, stats = self.generate("--config", self.as_configured(method), "--draft-model", str(path),
                                                      *args)
                        self.assertEqual(ids, plain)
                        if method == "speculative":  # where the target waits for the draft
                            self.assertGreater(stats["pipeline"]["draft_forwards"], 0)
                            self.assertGreater(stats["pipeline"]["accepted_tokens"], 0)

    def test_a_check_with_a_changed_setting_runs_what_was_set_and_names_what_it_cannot_set(self):
        report = self.folder / "report.json"
        check = ["check", "-m", TINY, "--config", self.as_configured("prompt-lookup"), "--first", "3", "-n", "40",
                 "--json", str(report)]
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
