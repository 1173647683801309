"""The program with a GPU, which is emulated here: the tokens of `--device cuda:0`, whatever runs where."""

import json
import os
import subprocess
import unittest
from pathlib import Path

from deeper_model import write_deeper
from paceline_cli import BINARY, CliTest, PROMPT, TINY, environment

USAGE = 2
FAILURE = 1
SAMPLED = ["--temp", "0.8", "--top-p", "0.95", "--seed", "7"]
GPU = 'device = "cuda:0"\n'
# Processes that lose their device are started again; a test has no time for pauses between.
SUPERVISION = "[supervision]\nrestarts_max = 20\nbackoff_ms = [0]\n"


def stage(name: str, role: str, *lines: str) -> str:
    return "\n".join(["[[stage]]", f'name = "{name}"', f'role = "{role}"', "threads = 1", *lines]) + "\n"


def turns(target: str, draft: str) -> str:
    """A draft of the target's first layers and the target take turns; what each of them runs on."""
    return (stage("target", "segment", target) + stage("draft", "draft", draft) +
            '[draft]\nsource = "first-layers"\ngamma = 3\npace = "sequential"\n'
            '[schedule]\nmode = "sequential"\n' + SUPERVISION)


ON_BOTH = turns('device = "cuda:0"', "")
ON_ONE = turns('device = "cuda:0"\nprocess = "gpu"', 'device = "cuda:0"\nprocess = "gpu"')
DRAFT_ON_GPU = turns("", 'device = "cuda:0"')
SHARED = 'device = "cuda:0"\nprocess = "gpu"'
FOLD = (stage("early", "early-verify", SHARED) + stage("final", "final-verify", SHARED) +
        stage("draft", "draft") +
        '[draft]\nsource = "prompt-lookup"\ngamma = 4\nmin_ngram = 1\nexit_alternatives = 2\n' +
        "[exit]\nshort_list = 100\n" + SUPERVISION)
ADADECODE = (stage("layers", "segment", 'layers = "auto"', "segments = 4", "exit = true", SHARED) +
             "[schedule]\nbatches_in_flight = 4\n"
             "[exit]\nproposes = true\ngate = 0.2\nearly_max = 8\ndefers = true\ndefer_limit_us = 5000\n" + SUPERVISION)
# The draft tells correct its trunk, and the keys and values of it where both store them as one type.
FOUR_STAGES = (stage("early", "early-verify", SHARED) + stage("final", "final-verify", SHARED) +
               stage("draft", "draft") + stage("correct", "correct", SHARED) +
               '[draft]\nsource = "first-layers"\ngamma = 4\npace = "ahead"\nexit_alternatives = 2\n' +
               "[exit]\nshort_list = 100\n" + SUPERVISION)
EXIT = stage("target", "segment", GPU) + '[self_draft]\nexit = 2\ngamma = 3\nauto_off = false\n' + SUPERVISION
# From the middle of a layer on: its attention is the whole model's, its MLP is skipped.
SKIP = (stage("target", "segment", GPU) + '[self_draft]\nsource = "skip"\nskip = "attn:2 mlp:1"\ngamma = 3\n'
        "auto_off = false\n" + SUPERVISION)
SEARCH = (stage("target", "segment", GPU) + '[self_draft]\nsource = "skip"\nchoose = "search"\nwindow = 4\n'
          'optimise_share = 1\ngamma = 4\ntree = "paper"\nauto_off = false\n[schedule]\nshape = "tree"\n' + SUPERVISION)
PROGRAMME = (stage("target", "segment", GPU) + '[self_draft]\nsource = "skip"\nchoose = "programme"\ninterval = 2\n'
             "optimise_share = 1\ngamma = 4\nauto_off = false\n" + SUPERVISION)
TWO_SEGMENTS = "".join(stage(name, "segment", 'layers = "auto"', SHARED) for name in ("front", "back"))


class Gpu(CliTest):
    def config(self, text: str) -> str:
        path = self.folder / "pipeline.toml"
        path.write_text('[pipeline]\nname = "test"\n' + text)
        return str(path)

    def model(self) -> str:
        """The tiny model with a layer for each of four segments."""
        return write_deeper(TINY, self.folder / "deeper.gguf", 4)

    def check(self, model: str, config: str, *args: str) -> dict:
        """`paceline check`: plain decoding on the target's device, then the pipeline."""
        report = self.folder / "report.json"
        self.run_ok("check", "-m", model, "--config", self.config(config), "-n", "20", "--first", "2",
                    "-c", "128", "--json", str(report), *args)
        return json.loads(report.read_text())


class Plain(Gpu):
    def test_the_same_seed_gives_the_same_tokens_and_the_class_says_where(self):
        for sampling in (["--temp", "0"], SAMPLED):
            runs = [self.generate("--device", "cuda:0", "-p", PROMPT, "-n", "24", *sampling) for _ in range(2)]
            self.assertEqual(runs[0][1], runs[1][1])
            self.assertEqual(len(runs[0][1]), 24)
            self.assertTrue(runs[0][2]["equality_class"].startswith("cuda "), runs[0][2])

    def test_keys_and_values_are_bf16_on_a_gpu_and_f16_on_a_cpu_unless_one_says(self):
        for args, kv in ((["--device", "cuda:0"], "bf16"), ([], "f16"),
                         (["--device", "cuda:0", "--kv-dtype", "f32"], "f32")):
            _, _, stats = self.generate("-p", "x", "-n", "2", *args)
            self.assertEqual(stats["kv_dtype"], kv, args)
            self.assertIn(f"kv={kv}", stats["equality_class"])

    def test_bench_and_generate_run_there_too(self):
        rows = json.loads(self.run_ok("bench", "-m", TINY, "--device", "cuda:0", "-p", "8", "-n", "2", "-b", "2",
                                      "-r", "1", "-o", "json"))
        self.assertEqual([row["test"] for row in rows], ["pp8", "tg2", "b2"])
        self.assertEqual({(row["backends"], row["gpu_info"], row["kv_dtype"]) for row in rows},
                         {("CUDA", "emulated device", "bf16")})
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text('{"prompt": "one two"}\n{"prompt": "three"}\n')
        made = ["generate", "-m", TINY, "--prompts", str(prompts), "-o", str(self.folder / "answers"), "-n", "4"]
        self.assertIn("2 answers", self.run_ok(*made, "--device", "cuda:0"))
        self.assertIn("on cuda", self.run_fails(USAGE, *made), "a CPU's answers belong elsewhere")

    def test_exact_off_is_another_class_and_is_said_wherever_a_run_is_reported(self):
        off = ["--device", "cuda:0", "--exact", "off"]
        run = ["run", "-m", TINY, "-p", PROMPT, "-n", "8", "--device", "cuda:0"]
        for exact, said in (("on", False), ("off", True)):
            stats = self.folder / "stats.json"
            done = subprocess.run([BINARY, *run, "--exact", exact, "--stats", str(stats)], capture_output=True,
                                  timeout=120, env=environment(), check=True)
            self.assertEqual(" | exact off\n" in done.stderr.decode(), said, done.stderr)
            figures = json.loads(stats.read_text())
            self.assertEqual(" exact=off" in figures["equality_class"], said, figures)
            self.assertEqual(figures["generated_tokens"], 8)
        rows = json.loads(self.run_ok("bench", "-m", TINY, *off, "-p", "80", "-r", "1", "-o", "json"))
        self.assertEqual(rows[0]["backends"], "CUDA, exact off")

    def test_exact_off_without_a_gpu_is_refused(self):
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text('{"prompt": "one two"}\n')
        for command in (["run", "-p", "x"], ["bench"],
                        ["generate", "--prompts", str(prompts), "-o", str(self.folder / "answers")]):
            stderr = self.run_fails(USAGE, command[0], "-m", TINY, *command[1:], "--exact", "off")
            self.assertIn("--exact off is for a GPU", stderr)

    def test_exact_off_is_for_plain_decoding(self):
        config = self.config(TWO_SEGMENTS)
        for command in (["run", "-p", "x", "--method", "fold", "--device", "cuda:0"],
                        ["run", "-p", "x", "--method", "fold"],
                        ["run", "-p", "x", "--config", config],
                        ["check", "--method", "fold", "--device", "cuda:0"],
                        ["check", "--config", config]):
            stderr = self.run_fails(USAGE, command[0], "-m", TINY, *command[1:], "--exact", "off")
            self.assertIn("--exact off is for plain decoding: a pipeline gives the bytes of one process", stderr)

    def test_memory_that_is_pinned_for_a_gpu_is_told(self):
        gpu = ["--device", "cuda:0", "-p", PROMPT, "-n", "4"]
        for args, pinned in ((gpu, True), ([*gpu, "--method", "fold"], True), (gpu[2:], False),
                             ([*gpu[2:], "--method", "fold"], False)):
            _, _, stats = self.generate(*args)
            self.assertEqual(stats["pinned_bytes"] > 0, pinned, args)

    def test_bench_makes_weights_up_there_for_every_dtype(self):
        args = ["bench", "--random", "tiny", "--device", "cuda:0", "-p", "8", "-n", "0", "-r", "1", "-o", "json"]
        rows = json.loads(self.run_ok(*args, "--dtype", "auto,f32,int8,q4"))
        self.assertEqual([(row["backends"], row["model_type"]) for row in rows],
                         [("CUDA", "tiny (synthetic weights)")] * 4)
        sizes = {row["dtype"]: row["model_size"] for row in rows}
        self.assertTrue(sizes["f32"] > sizes["bf16"] > sizes["int8"] > sizes["q4"] > 0, sizes)
        # 15 GiB of weights: refused before any of them is made, wherever the host's memory ends.
        stderr = self.run_fails(FAILURE, "bench", "--random", "llama-8b", "--device", "cuda:0")
        self.assertIn("cuda:0 (emulated device) has 8.00 GiB free, layers [0, 32) need 15.", stderr)

    def test_a_device_that_breaks_ends_a_plain_run_with_its_sentence(self):
        fault = self.folder / "fault"
        fault.write_text("200")
        done = subprocess.run([BINARY, "run", "-m", TINY, "--device", "cuda:0", "-p", PROMPT], capture_output=True,
                              timeout=120, env=environment(PACELINE_EMULATED_FAULT=str(fault)), check=False)
        self.assertEqual(done.returncode, FAILURE)
        self.assertRegex(done.stderr.decode(), "paceline: .*the device is broken")


class Pipelines(Gpu):
    def test_every_shape_commits_the_tokens_of_plain_decoding_there_while_stages_are_killed(self):
        model = self.model()
        shapes = {"draft on the CPU": ON_BOTH, "draft in the same process": ON_ONE, "fold": FOLD,
                  "adadecode": ADADECODE, "two segments": TWO_SEGMENTS + SUPERVISION,
                  "early exit": EXIT, "skipped sub-layers": SKIP, "searched sub-layers": SEARCH,
                  "skipped layers": PROGRAMME}
        for name, shape in shapes.items():
            for sampling in (["--temp", "0"], SAMPLED):
                with self.subTest(shape=name, sampling=sampling):
                    report = self.check(model, shape, "--kills", "2", *sampling)
                    self.assertGreater(report["kills"], 0, report.keys())

    def test_a_draft_may_be_on_a_gpu_though_the_target_is_not(self):
        self.check(self.model(), DRAFT_ON_GPU, "--kills", "1", *SAMPLED)

    def test_draft_and_correct_may_be_on_devices_of_two_kinds_or_on_one(self):
        alone = FOUR_STAGES.replace(stage("draft", "draft"), stage("draft", "draft", SHARED))
        for shape, kv in ((FOUR_STAGES, "auto"), (FOUR_STAGES, "bf16"), (alone, "auto")):
            with self.subTest(kv=kv):
                self.check(self.model(), shape, "--kv-dtype", kv, "--kills", "1", *SAMPLED)

    def test_a_method_runs_on_a_device_as_one_process(self):
        plain = self.generate("--device", "cuda:0", "-p", PROMPT, "-n", "24", *SAMPLED)
        piped = self.generate("--device", "cuda:0", "-p", PROMPT, "-n", "24", *SAMPLED, "--method", "fold",
                              "--figures", "--baseline")
        self.assertEqual(piped[1], plain[1])
        self.assertEqual(piped[2]["kv_dtype"], "bf16")

    def test_the_placement_says_what_runs_where_and_what_it_takes_there(self):
        done = subprocess.run([BINARY, "run", "-m", TINY, "--config", self.config(ON_BOTH), "-p", "x", "-n", "2",
                               "-v"], capture_output=True, timeout=120, env=environment(), check=True)
        rows = {row.split()[0]: row.split() for row in done.stderr.decode().splitlines()}
        self.assertEqual((rows["target"][3], rows["draft"][3]), ("cuda:0", "cpu"))
        self.assertRegex(" ".join(rows["target"]), r"\d\.\d MB \d\.\d MB$")

    def test_a_device_that_breaks_in_mid_answer_costs_a_process_and_no_token(self):
        model = self.model()
        # At its first kernels after the warm-up, which launches 58, and when it has said something.
        for shape, kernel in ((ON_BOTH, 150), (FOLD, 150), (FOLD, 60)):
            with self.subTest(shape=shape, kernel=kernel):
                args = ["run", "-m", model, "-p", PROMPT, "-n", "40", *SAMPLED]
                plain = self.run_ok(*args, "--device", "cuda:0")
                fault = self.folder / "fault"
                fault.write_text(str(kernel))
                log = self.folder / "log.txt"
                done = subprocess.run([BINARY, *args, "--config", self.config(shape), "--log", str(log)],
                                      capture_output=True, timeout=120, check=False,
                                      env=environment(PACELINE_EMULATED_FAULT=str(fault)))
                error = done.stderr.decode()
                self.assertEqual((done.returncode, done.stdout.decode()), (0, plain), error)
                self.assertFalse(os.path.exists(fault), "it has happened")
                self.assertIn("is at work again (epoch 2)", error)
                self.assertRegex(log.read_text(), "the GPU failed: .*the device is broken")

    def test_a_device_that_is_broken_at_the_warm_up_ends_the_run_with_its_sentence(self):
        fault = self.folder / "fault"
        fault.write_text("1")
        done = subprocess.run([BINARY, "run", "-m", self.model(), "-p", PROMPT, "--config", self.config(FOLD)],
                              capture_output=True, timeout=120, check=False,
                              env=environment(PACELINE_EMULATED_FAULT=str(fault)))
        self.assertEqual(done.returncode, FAILURE)
        self.assertRegex(done.stderr.decode(), "stage 'gpu' .*the GPU failed: .*the device is broken")

    def test_stages_on_four_gpus_commit_the_tokens_of_one_over_every_transport_though_killed(self):
        text = "".join(stage(role, role, f'device = "cuda:{gpu}"')
                       for gpu, role in enumerate(("early-verify", "final-verify", "draft", "correct")))
        text += FOUR_STAGES[FOUR_STAGES.index("[draft]"):]
        path, report = self.folder / "four.toml", self.folder / "report.json"
        for transport in ("auto", "host", "exported", "nccl"):
            with self.subTest(transport=transport):
                path.write_text(f'[pipeline]\nname = "four"\ntransport = "{transport}"\n' + text)
                done = subprocess.run([BINARY, "check", "-m", TINY, "--config", str(path), "-n", "30", "--first", "4",
                                       "-c", "128", "--kills", "4", *SAMPLED, "--json", str(report)],
                                      capture_output=True, timeout=100, check=False,
                                      env=environment(PACELINE_EMULATED_DEVICES="4"))
                self.assertEqual(done.returncode, 0, done.stderr.decode())
                self.assertGreater(json.loads(report.read_text())["kills"], 0)


class Refusals(Gpu):
    def refused(self, config: str, *naming: str) -> None:
        stderr = self.run_fails(USAGE, "run", "-m", TINY, "-p", "x", "--config", self.config(config))
        for part in naming:
            self.assertIn(part, stderr)

    def test_a_target_on_a_cpu_and_a_gpu_is_refused(self):
        self.refused(stage("front", "segment") + stage("back", "segment", 'device = "cuda:0"'),
                     '"back": device = "cuda:0", that of "front" is "cpu"', "do not give equal bits")

    def test_a_device_that_is_not_there_is_named_with_those_that_are(self):
        self.refused(stage("all", "segment", 'device = "cuda:7"'),
                     '[[stage]] "all": device = "cuda:7" does not exist', "cuda:0 (emulated device)")
        for command in (["run", "-p", "x"], ["bench"]):
            stderr = self.run_fails(USAGE, command[0], "-m", TINY, "--device", "cuda:7", *command[1:])
            self.assertIn("--device cuda:7 does not exist; available: cuda:0 (emulated device)", stderr)

    def test_a_gpu_belongs_to_one_process(self):
        self.refused(stage("a", "segment", 'device = "cuda:0"') + stage("b", "segment", 'device = "cuda:0"'),
                     "must be in one process")

    def test_a_file_says_itself_where_its_stages_run(self):
        stderr = self.run_fails(USAGE, "run", "-m", TINY, "-p", "x", "--config", self.config(ON_ONE), "--device",
                                "cuda:0")
        self.assertIn("--device is for --method", stderr)

    def test_a_stage_has_no_key_for_being_exact(self):
        self.refused(TWO_SEGMENTS.replace(SHARED, SHARED + "\nexact = false"), "exact = false is not a known key")

    def test_words_that_are_no_device_and_what_only_a_cpu_can_do(self):
        self.assertIn("'gpu' is not cpu or cuda:N",
                      self.run_fails(USAGE, "run", "-m", TINY, "-p", "x", "--device", "gpu"))
        self.assertIn("--gemm", self.run_fails(USAGE, "bench", "-m", TINY, "--device", "cuda:0", "-b", "1", "--gemm"))

    def test_what_does_not_fit_on_the_device_is_refused_with_what_it_needs(self):
        # The model, told that it was trained for 2^24 tokens: more keys and values than 8 GiB.
        model = bytearray(Path(self.model()).read_bytes())
        key = b"llama.context_length"
        at = model.index(key) + len(key) + 4
        model[at:at + 4] = (1 << 24).to_bytes(4, "little")
        path = self.folder / "long.gguf"
        path.write_bytes(model)
        long = ["run", "-m", str(path), "-p", "x", "-c", "16777216", "--kv-dtype", "f32"]
        for args in (["--device", "cuda:0"], ["--config", self.config(TWO_SEGMENTS)]):
            stderr = self.run_fails(FAILURE, *long, *args)
            self.assertRegex(stderr, r"cuda:0 \(emulated device\) has 8.00 GiB free, layers \[0, \d\) need ")



if __name__ == "__main__":
    unittest.main()
