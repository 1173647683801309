"""Targets that draft for themselves: plain decoding's tokens whatever ends an answer, kills a stage or is wrong."""

import json
import os
import signal
import subprocess
import unittest
from pathlib import Path

import part_files
from deeper_model import write_deeper
from paceline_cli import BINARY, CliTest, PROMPT, TINY, environment

SAMPLED = ["--temp", "0.8", "--top-p", "0.95", "--seed", "7"]
USAGE = 2
FAILURE = 1
STAGE = '[[stage]]\nname = "target"\nrole = "segment"\n'
SUPERVISION = "[supervision]\nrestarts_max = 1000\nrestart_period_s = 1\nbackoff_ms = [0]\n"
EXIT = 'source = "exit"\nexit = 2\ngamma = 4\n'
SKIP = 'source = "skip"\nskip = "attn:3 mlp:2,4"\ngamma = 4\n'
SEARCH = 'source = "skip"\nchoose = "search"\nwindow = 4\noptimise_share = 1\ngamma = 6\ntree = "paper"\n'
PROGRAMME = 'source = "skip"\nchoose = "programme"\ninterval = 2\noptimise_share = 1\ngamma = 6\n'
WAYS = {"exit": EXIT, "skip": SKIP, "search": SEARCH, "programme": PROGRAMME,
        "adapter": EXIT + 'head = "adapter"\nconfidence_min = 0.02\n',
        "short list": EXIT + "short_list = 300\n", "search with a short list": SEARCH + "short_list = 300\n"}


class SelfDraft(CliTest):
    def setUp(self) -> None:
        super().setUp()
        self.model = str(write_deeper(TINY, self.folder / "six.gguf", 6))
        # Right by chance, and found by the way that asks for it.
        target = json.loads(self.run_ok("inspect", self.model, "-o", "json"))["fingerprint"]
        data = Path(self.model).read_bytes()
        self.parts = part_files.put(self.folder / "parts", "adapter", part_files.adapter(data, target, 2)).parent
        self.with_parts = ["--parts", str(self.parts)]

    def config(self, own: str, rest: str = "", stages: str = STAGE) -> str:
        """A pipeline that drafts in every round."""
        path = self.folder / "own.toml"
        shape = "tree" if "tree" in own else "chain"
        path.write_text(f'{stages}[self_draft]\nauto_off = false\n{own}[schedule]\nshape = "{shape}"\n'
                        f"{SUPERVISION}{rest}")
        return str(path)

    def check(self, config: str, *args: str) -> dict:
        report = self.folder / "report.json"
        self.run_ok("check", "-m", self.model, "--config", config, "--json", str(report), *args)
        figures = json.loads(report.read_text())
        self.assertTrue(figures["equal"])
        return figures

    def test_four_answers_at_once_are_equal_while_the_stage_is_killed(self):
        for name, own in WAYS.items():
            for sampling in (["--temp", "0"], SAMPLED):
                with self.subTest(way=name, sampling=sampling):
                    report = self.check(self.config(own), "--requests", "4", "--kills", "3", "--first", "6", "-n", "40",
                                        *sampling, *self.with_parts)
                    self.assertGreater(report["kills"], 0)  # a fast machine may answer before the last ones

    def test_an_early_exit_drafts_in_the_first_of_two_segments(self):
        stages = "".join(f'[[stage]]\nname = "{name}"\nrole = "segment"\n' for name in ("front", "back"))
        for exit_at in (1, 3):  # the whole first segment, too: rows that were drafted only pass through it
            for sampling in (["--temp", "0"], SAMPLED):
                with self.subTest(exit=exit_at, sampling=sampling):
                    own = f'source = "exit"\nexit = {exit_at}\ngamma = 4\n'
                    self.check(self.config(own, stages=stages), "--requests", "4", "--kills", "2", "--first", "4",
                               "-n", "40", *sampling)

    def test_answers_end_where_plain_ones_do(self):
        for name, own in WAYS.items():
            config = self.config(own)
            for limits in (["-n", "1"], ["-n", "2"], ["-n", "7"], ["-c", "60", "-n", "100"],
                           ["--temp", "1", "--seed", "3", "--logit-bias", "2=9", "-n", "60"]):
                with self.subTest(way=name, limits=limits):
                    args = ["-p", PROMPT, *limits]
                    plain = self.generate(*args, model=self.model)
                    drafted = self.generate("--config", config, *args, *self.with_parts, model=self.model)
                    self.assertEqual(drafted[1], plain[1])
                    self.assertEqual(drafted[2]["end"], plain[2]["end"])

    def test_a_stop_string_ends_the_text_at_the_same_place(self):
        whole = self.run_ok("run", "-m", self.model, "-p", PROMPT, "-n", "40")
        stop = whole[len(whole) // 2:len(whole) // 2 + 4]
        args = ["run", "-m", self.model, "-p", PROMPT, "-n", "40", "--stop", stop]
        plain = self.run_ok(*args)
        self.assertLess(len(plain), len(whole))
        for name, own in WAYS.items():
            with self.subTest(way=name):
                self.assertEqual(self.run_ok(*args, "--config", self.config(own), *self.with_parts), plain)

    def test_a_turn_after_a_stopped_one_says_what_plain_decoding_says(self):
        turns = "hello there\nand again hello there\n/quit\n".encode()
        args = ["run", "-m", self.model, "--interactive", "-n", "12"]
        plain = self.run_ok(*args, stdin=turns)
        for name, own in WAYS.items():
            with self.subTest(way=name):
                self.assertEqual(self.run_ok(*args, "--config", self.config(own), *self.with_parts, stdin=turns), plain)

    def test_ctrl_c_while_it_drafts_ends_the_answer_with_a_prefix_of_plain_decodings(self):
        never_end = [f"--logit-bias={token}=-inf" for token in range(3)]
        args = ["-m", self.model, "-p", PROMPT, "-c", "500", "-n", "400", *never_end]
        plain = self.generate(*args[2:], model=self.model)[1]
        for name, own in WAYS.items():
            with self.subTest(way=name):
                ids, stats = self.folder / "ids.json", self.folder / "stats.json"
                process = subprocess.Popen([BINARY, "run", *args, "--config", self.config(own), *self.with_parts,
                                            "--ids", str(ids), "--stats", str(stats)],
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
                os.read(process.stdout.fileno(), 1)  # it answers
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=60)
                generated = json.loads(ids.read_text())
                self.assertEqual(generated, plain[:len(generated)])
                if len(generated) < len(plain):
                    self.assertEqual(process.returncode, 130)
                    self.assertEqual(json.loads(stats.read_text())["end"], "interrupted")

    def test_a_state_is_kept_for_the_next_run_and_a_wrong_one_is_refused_by_name(self):
        state = self.folder / "found.state"
        config = self.config(SEARCH + f'state = "{state}"\n')
        args = ["-p", PROMPT, "-n", "120"]
        plain = self.generate(*args, model=self.model)[1]
        for _ in range(2):
            self.assertEqual(self.generate("--config", config, *args, model=self.model)[1], plain)
            self.assertTrue(state.exists())
        state.write_text("garbage")
        stderr = self.run_fails(FAILURE, "run", "-m", self.model, "--config", config, "-p", "x")
        self.assertIn(f"own.toml: [self_draft] state = {state}", stderr)
        stderr = self.run_fails(USAGE, "run", "-m", self.model, "--config",
                                self.config(SEARCH + 'state = "/no/such/folder/state"\n'), "-p", "x")
        self.assertIn("[self_draft] state: /no/such/folder/state", stderr)

    def test_what_does_not_fit_the_model_is_refused_with_file_key_and_value(self):
        stages = "".join(f'[[stage]]\nname = "{name}"\nrole = "segment"\n' for name in ("front", "back"))
        for own, where, says in (
                ('source = "exit"\nexit = 6\n', STAGE, "[self_draft] exit = 6: the target has 6 layers"),
                ('source = "exit"\nexit = 4\n', stages, "[self_draft] exit = 4: the first segment has 3 layers"),
                ('exit = 3\nhead = "adapter"\n', STAGE, '[self_draft] exit = 3 with head = "adapter"'),
                ('exit = 6\nhead = "adapter"\n', STAGE, "[self_draft] exit = 6: the target has 6 layers"),
                ('source = "skip"\nskip = "mlp:9"\n', STAGE, '[self_draft] skip = "mlp:9"'),
                ('source = "skip"\nkeep_first = 3\nkeep_last = 3\n', STAGE, "leaves nothing to skip of 6 layers")):
            with self.subTest(own=own):
                stderr = self.run_fails(USAGE, "run", "-m", self.model, "--config", self.config(own, stages=where),
                                        "-p", "x", *self.with_parts)
                self.assertIn("own.toml", stderr)
                self.assertIn(says, stderr)


if __name__ == "__main__":
    unittest.main()
