"""Several emulated GPUs in a stage: the tokens of one, in every method, though a GPU fails or hangs."""

import json
import os
import re
import subprocess
import unittest

from deeper_model import write_deeper
from exactness_matrix import methods, toml_of
from exactness_rows import has_datastore
from gpu_test import ADADECODE, FAILURE, FOLD, FOUR_STAGES, SAMPLED, SHARED, SUPERVISION, USAGE, stage
from paceline_cli import BINARY, CliTest, PROMPT, ROOT, TINY, environment

GROUP = 'device = ["cuda:0", "cuda:1"]'
BOTH = "cuda:0,cuda:1"
SHARED_GROUP = f'{GROUP}\nprocess = "gpu"'


def on_group(text: str) -> str:
    """A pipeline on one GPU, with its segments on two and the rest as it was."""
    stages = text.split("[[stage]]")
    return "[[stage]]".join(part.replace(SHARED, SHARED_GROUP) if re.search('role = "(segment|early|final)', part)
                            else part for part in stages)


class Group(CliTest):
    def run_on(self, gpus: int, *args: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess:
        done = subprocess.run([BINARY, *args], capture_output=True, text=True, timeout=300, check=False,
                              env=environment(PACELINE_EMULATED_DEVICES=str(gpus), **variables))
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done

    def config(self, text: str) -> str:
        path = self.folder / "pipeline.toml"
        path.write_text('[pipeline]\nname = "test"\n' + text)
        return str(path)

    def model(self, layers: int = 4) -> str:
        return write_deeper(TINY, self.folder / f"deeper-{layers}.gguf", layers)


class Plain(Group):
    def test_two_gpus_say_what_one_says_and_are_in_its_equality_class(self):
        for dtype in ("bf16", "int8", "q4"):
            for sampling in (["--temp", "0"], SAMPLED):
                with self.subTest(dtype=dtype, sampling=sampling):
                    said = []
                    for device in ("cuda:0", "cuda:1,cuda:0"):
                        ids = self.folder / "ids.json"
                        done = self.run_on(2, "run", "-m", self.model(), "--device", device, "-p", PROMPT, "-n", "40",
                                           "--dtype", dtype, *sampling, "--ids", str(ids))
                        said.append((done.stdout, ids.read_text()))
                    self.assertEqual(said[0], said[1])

    def test_bench_and_check_take_a_list(self):
        out = self.run_on(2, "bench", "-m", TINY, "--device", BOTH, "-p", "8", "-n", "2", "-b", "2", "-r", "1", "-o",
                          "json").stdout
        self.assertEqual({row["test"] for row in json.loads(out)} >= {"pp8", "tg2"}, True, out)
        self.run_on(2, "check", "-m", self.model(), "--method", "fold", "--device", BOTH, "-n", "16", "--first", "2",
                    "-c", "128", *SAMPLED)


class Methods(Group):
    def test_every_method_commits_the_tokens_of_plain_decoding_on_two_gpus(self):
        """Plain decoding there says what one GPU says: Plain."""
        model = self.model(6)
        for index, method in enumerate(methods()):
            if has_datastore(toml_of(method)):
                continue
            with self.subTest(method=method):
                self.run_on(2, "check", "-m", model, "--method", method, "--device", BOTH, "-n", "16", "--first", "2",
                            "-c", "128", "-t", "1", *(SAMPLED if index % 2 else ["--temp", "0"]))

    def test_stages_on_lists_commit_the_tokens_of_plain_decoding_while_they_are_killed(self):
        for name, shape in {"fold": FOLD, "adadecode": ADADECODE, "four stages": FOUR_STAGES}.items():
            with self.subTest(shape=name):
                report = self.folder / "report.json"
                self.run_on(2, "check", "-m", self.model(), "--config", self.config(on_group(shape)), "-n", "20",
                            "--first", "2", "-c", "128", "--kills", "2", *SAMPLED, "--json", str(report))
                self.assertGreater(json.loads(report.read_text())["kills"], 0)

    def test_two_groups_of_two_gpus_are_two_segments(self):
        text = (stage("front", "segment", GROUP) + stage("back", "segment", 'device = ["cuda:2", "cuda:3"]') +
                SUPERVISION)
        for transport in ("auto", "host", "exported", "nccl"):
            with self.subTest(transport=transport):
                path = self.folder / "pairs.toml"
                path.write_text(f'[pipeline]\nname = "pairs"\ntransport = "{transport}"\n' + text)
                self.run_on(4, "check", "-m", self.model(), "--config", str(path), "-n", "24", "--first", "2", "-c",
                            "128", "--kills", "2", *SAMPLED)

    def test_a_gpu_of_a_group_that_breaks_in_mid_answer_costs_a_process_and_no_token(self):
        model = self.model()
        args = ["run", "-m", model, "-p", PROMPT, "-n", "40", *SAMPLED]
        plain = self.run_on(1, *args, "--device", "cuda:0").stdout
        # Kernels of both GPUs come in turn.
        for kernel in (300, 301, 450, 451):
            with self.subTest(kernel=kernel):
                fault = self.folder / "fault"
                fault.write_text(str(kernel))
                log = self.folder / "log.txt"
                done = self.run_on(2, *args, "--config", self.config(on_group(FOLD)), "--log", str(log),
                                   PACELINE_EMULATED_FAULT=str(fault))
                self.assertEqual(done.stdout, plain)
                self.assertFalse(os.path.exists(fault), "it has happened")
                self.assertIn("is at work again (epoch 2)", done.stderr)
                self.assertRegex(log.read_text(), "the GPU failed: .*the device is broken")

    def test_a_gpu_of_a_group_that_hangs_in_mid_answer_costs_a_process_and_no_token(self):
        args = ["run", "-m", self.model(), "-p", PROMPT, "-n", "40", *SAMPLED]
        plain = self.run_on(1, *args, "--device", "cuda:0").stdout
        config = self.config(on_group(FOLD) + "hang_limit_s = 0.5\n")
        for kernel in (300, 301):
            with self.subTest(kernel=kernel):
                fault = self.folder / "fault"
                fault.write_text(f"{kernel} hang")
                done = self.run_on(2, *args, "--config", config, PACELINE_EMULATED_FAULT=str(fault))
                self.assertEqual(done.stdout, plain)
                self.assertFalse(os.path.exists(fault), "it has happened")
                self.assertIn("is at work again (epoch 2)", done.stderr)


class Apart(Group):
    """GPUs that do not reach each other's memory."""

    def test_a_group_of_them_says_what_one_gpu_says(self):
        model = self.model()
        args = ["run", "-m", model, "-p", PROMPT, "-n", "40", *SAMPLED]
        plain = self.run_on(1, *args, "--device", "cuda:0").stdout
        self.assertEqual(self.run_on(2, *args, "--device", BOTH, PACELINE_EMULATED_PEERS="0").stdout, plain)
        for text in (FOLD, ADADECODE):
            done = self.run_on(2, *args, "--config", self.config(on_group(text)), PACELINE_EMULATED_PEERS="0")
            self.assertEqual(done.stdout, plain)

    def test_the_plan_says_that_their_parts_go_through_the_host(self):
        config = self.config(stage("target", "segment", "tensor = 2"))
        done = subprocess.run([str(ROOT / "launch" / "paceline-launch"), config, "--dry-run", "--machine",
                               str(ROOT / "configs/machines/2-rtx-4090.toml"), "--random", "llama-8b"],
                              capture_output=True, text=True, timeout=120, check=False,
                              env=environment(PACELINE_BINARY=BINARY))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("target, parts of each layer: cuda:0,cuda:1, through the host's memory: they do not reach each "
                      "other", done.stdout)


class Plans(Group):
    def launch(self, gpus: int, *args: str) -> subprocess.CompletedProcess:
        return subprocess.run([str(ROOT / "launch" / "paceline-launch"), *args], capture_output=True, text=True,
                              timeout=120, check=False,
                              env=environment(PACELINE_BINARY=BINARY, PACELINE_EMULATED_DEVICES=str(gpus)))

    def test_a_stage_with_tensor_runs_on_the_gpus_that_the_plan_chooses(self):
        config = self.config(stage("target", "segment", "tensor = 2") + SUPERVISION)
        args = ["-p", PROMPT, "-n", "24", *SAMPLED]
        plain = self.run_on(1, "run", "-m", TINY, "--device", "cuda:0", *args).stdout
        done = self.launch(3, config, "-m", TINY, *args)
        self.assertEqual((done.returncode, done.stdout), (0, plain), done.stderr)

    def test_a_dry_run_has_a_line_for_each_gpu_of_a_group(self):
        config = self.config(stage("target", "segment", "tensor = 4") + stage("draft", "draft") +
                             '[draft]\nsource = "model"\nmodel = "x.gguf"\ngamma = 4\n')
        done = self.launch(1, config, "--dry-run", "--machine", str(ROOT / "configs/machines/4-a100.toml"), "--random",
                           "llama-70b", "--draft-model", "llama-8b")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line for line in done.stdout.splitlines() if "A100-SXM4" in line]
        self.assertEqual([re.search("cuda:[0-9]", line).group() for line in lines][:4],
                         ["cuda:0", "cuda:1", "cuda:2", "cuda:3"], done.stdout)
        # A quarter of the weights each, but for norms and whole tiles.
        weights = [float(re.search(r"([0-9.]+) +[0-9.]+ +[0-9.]+ +[0-9.]+( +[0-9,-]+)?$", line).group(1))
                   for line in lines[:4]]
        self.assertLess(max(weights) - min(weights), 10)
        self.assertAlmostEqual(sum(weights), 141_100, delta=500)

    def test_what_cannot_be_a_group_is_refused_before_anything_is_started(self):
        def refused(gpus: int, lines: str, *naming: str) -> None:
            done = self.run_on(gpus, "run", "-m", TINY, "-p", "x", "--config", self.config(
                stage("all", "segment", lines)), code=USAGE)
            for part in naming:
                self.assertIn(part, done.stderr)

        refused(2, 'device = ["cuda:0", "cuda:7"]', '[[stage]] "all": device = "cuda:0,cuda:7" does not exist')
        refused(2, 'device = ["cuda:0", "cuda:0"]', "names cuda:0 twice")
        refused(2, 'device = ["cuda:0", "cpu"]', 'has "cpu" in a list')
        refused(3, 'device = ["cuda:0", "cuda:1", "cuda:2"]',
                '[[stage]] "all": device = "cuda:0,cuda:1,cuda:2": 3 GPUs', "has 2 KV heads; at most 2 GPUs share the stage")
        refused(2, "tensor = 2", '[[stage]] "all": tensor = 2: no plan has chosen the GPUs')
        run = ["run", "-m", TINY, "-p", "x", "-n", "2", "--device"]
        self.assertIn("cuBLAS multiplies on one GPU alone",
                      self.run_on(2, *run, BOTH, "--exact", "off", code=USAGE).stderr)
        self.assertIn("does not exist", self.run_on(1, *run, BOTH, code=USAGE).stderr)
        self.assertIn("has 2 KV heads", self.run_on(3, *run, "cuda:0,cuda:1,cuda:2", code=FAILURE).stderr)
        config = self.config(stage("all", "segment", "tensor = 3"))
        done = self.launch(3, config, "-m", TINY, "-p", "x")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("tensor = 3: 3 GPUs", done.stderr)


if __name__ == "__main__":
    unittest.main()
