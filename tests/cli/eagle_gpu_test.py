"""EAGLE drafts on emulated GPUs: the tokens of plain decoding there, whatever runs where; what is planned for them."""

import json
import re
import subprocess
import unittest

from eagle_test import SAMPLED, write_part
from gpu_test import SUPERVISION, stage
from paceline_cli import BINARY, CliTest, TINY, environment

USAGE = 2
GPU = 'device = "cuda:0"'
# The target waits for proposals as long as a slow machine may take for them.
TREE = ('[draft]\nsource = "eagle"\ntree = "eagle2"\ngamma = 3\nwidth = 4\ntree_nodes = 12\npace = "sequential"\n'
        '[schedule]\nmode = "sequential"\nshape = "tree"\nrows_max = 64\ncontroller = "off"\ndraft_wait_us = 10000000\n' +
        SUPERVISION)


class EagleOnGpus(CliTest):
    @classmethod
    def setUpClass(cls):
        done = subprocess.run([BINARY, "inspect", TINY, "-o", "json"], capture_output=True, check=True, timeout=60,
                              env=environment())
        cls.target = json.loads(done.stdout)["fingerprint"]

    def part(self, layers: str = "") -> str:
        folder = self.folder / f"parts-{layers}"
        folder.mkdir(exist_ok=True)
        write_part(folder / "eagle.safetensors", self.target, layers)
        return str(folder)

    def run_on(self, gpus: int, *args: str, code: int = 0) -> subprocess.CompletedProcess:
        done = subprocess.run([BINARY, *args], capture_output=True, text=True, timeout=120, check=False,
                              env=environment(PACELINE_EMULATED_DEVICES=str(gpus)))
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done

    def check(self, gpus: int, *args: str, layers: str = "") -> dict:
        """`paceline check`: plain decoding on the target's device, then the pipeline."""
        report = self.folder / "report.json"
        self.run_on(gpus, "check", "-m", TINY, "--parts", self.part(layers), "-n", "12", "--first", "1", "-c", "128",
                    "--json", str(report), *args)
        return json.loads(report.read_text())

    def check_stages(self, gpus: int, *stages: str, args: tuple = (), layers: str = "") -> None:
        """The draft proposes and gets all features; then the same while a process is killed."""
        path = self.folder / "pipeline.toml"
        path.write_text('[pipeline]\nname = "test"\n' + "".join(stages) + TREE)
        report = self.check(gpus, "--config", str(path), *args, layers=layers)
        self.assertEqual(report["features_dropped"], 0)
        self.assertGreater(report["figures"]["candidates"], 0)
        self.assertEqual(self.check(gpus, "--config", str(path), "--kills", "1", *args, layers=layers)["kills"], 1)

    def test_every_method_with_an_eagle_draft_gives_the_tokens_of_plain_decoding_on_a_gpu(self):
        for sampling in (["--temp", "0"], SAMPLED):
            for method in ("eagle2", "pearl-eagle", "fold-eagle"):
                with self.subTest(method, sampling=sampling):
                    report = self.check(1, "--method", method, "--device", "cuda:0", "--set",
                                        "schedule.controller=off", *sampling)
                    self.assertEqual(report["features_dropped"], 0)
                    self.assertGreater(report["figures"]["draft_rows"], 0)

    def test_features_travel_between_gpus_and_from_and_to_cpus(self):
        with self.subTest("two GPUs"):
            self.check_stages(2, stage("target", "segment", GPU), stage("draft", "draft", 'device = "cuda:1"'),
                              args=tuple(SAMPLED))
        with self.subTest("a process of one GPU"):
            shared = GPU + '\nprocess = "gpu"'
            self.check_stages(1, stage("target", "segment", shared), stage("draft", "draft", shared), layers="1,2")
        with self.subTest("a draft on a GPU, its target on the CPU"):
            self.check_stages(1, stage("target", "segment"), stage("draft", "draft", GPU), layers="1,2")
        with self.subTest("a draft on the CPU, its target on a GPU"):
            self.check_stages(1, stage("target", "segment", GPU), stage("draft", "draft"), layers="1,2")

    def test_a_draft_may_be_on_two_gpus_that_share_its_matrices(self):
        both = 'device = ["cuda:0", "cuda:1"]\nprocess = "gpu"'
        self.check_stages(2, stage("target", "segment", both), stage("draft", "draft", both), layers="1,2")

    def test_a_draft_of_several_layers_states_needs_a_target_of_one_segment_on_a_gpu_too(self):
        done = self.run_on(1, "run", "-m", TINY, "--method", "fold-eagle", "--parts", self.part("1,2"), "--device",
                           "cuda:0", "-p", "x", "-n", "1", code=USAGE)
        self.assertIn("give the target one segment", done.stderr)

    def test_the_plan_places_the_draft_on_a_gpu_and_counts_its_matrices_and_features(self):
        def workspace(parts: str, name: str) -> float:
            done = self.run_on(1, "run", "-m", TINY, "--method", "eagle2", "--parts", parts, "--gpus", "0",
                               "--dry-run", "-p", "x")
            row = next(line for line in done.stdout.splitlines() if line.startswith(name))
            self.assertIn("cuda:0", row)
            return float(re.split(r"\s+", row)[-3])
        eagle, several = workspace(self.part(), "draft"), workspace(self.part("1,2"), "draft")
        self.assertGreater(several, eagle)


if __name__ == "__main__":
    unittest.main()
