"""`paceline generate`: its shards hold the answers of `paceline run`; a run goes on where it stopped."""

import json
import signal
import struct
import subprocess
import time
import unittest
from pathlib import Path

from paceline_cli import BINARY, CliTest, TINY, environment, paceline

FORMATS = {"I32": "i", "I64": "q", "F16": "e"}
QUESTIONS = ["Hello", "Why is the sky blue?", "Count to ten", "one two three one two", "A poem",
             "What is a ring?", "List three colours."]
NEVER_END = [f"--logit-bias={token}=-inf" for token in range(3)]  # the tiny model's end tokens


def read_shard(path: Path) -> tuple[dict[str, list], dict[str, list[int]], dict[str, str]]:
    """Flat tensors, their shapes, and the metadata."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__")
    tensors, shapes = {}, {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        letter = FORMATS[entry["dtype"]]
        count = (end - begin) // struct.calcsize(letter)
        tensors[name] = list(struct.unpack(f"<{count}{letter}", data[begin:end]))
        shapes[name] = entry["shape"]
    return tensors, shapes, metadata


class Generate(CliTest):
    def prompts(self, *questions: str, name: str = "prompts.jsonl") -> str:
        path = self.folder / name
        path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in questions))
        return str(path)

    def answers(self, folder: str, *args: str, **kwargs) -> str:
        return self.run_ok("generate", "-m", TINY, "-o", str(self.folder / folder), "-n", "24",
                           "-t", "1", *args, **kwargs)

    def shards(self, folder: str) -> list[Path]:
        return sorted((self.folder / folder).iterdir())

    def test_answers_are_those_of_run_with_the_seed_of_their_number(self):
        sampling = ["--temp", "0.9", "--top-p", "0.95"]
        out = self.answers("a", "--prompts", self.prompts(*QUESTIONS[:4]), "--prompts",
                           self.prompts(*QUESTIONS[4:], name="more.jsonl"), "--samples", "2", "--requests", "3",
                           "--shard-size", "5", "--seed", "11", *sampling)
        self.assertIn("14 answers (0 were there)", out)
        number = 0
        for path in self.shards("a"):
            tensors, shapes, metadata = read_shard(path)
            self.assertEqual(metadata["seed"], "11")
            self.assertEqual(metadata["temperature"], "0.9")
            self.assertEqual(shapes["top_ids"], [len(tensors["tokens"]), 16])
            for answer, prompt in enumerate(tensors["prompt_index"]):
                self.assertEqual((prompt, tensors["sample"][answer]), divmod(number, 2))
                begin, end = tensors["begins"][answer:answer + 2]
                _, ids, figures = self.generate("-p", QUESTIONS[prompt], "-n", "24", "-t", "1",
                                                "--seed", str(11 + number), *sampling)
                self.assertEqual(tensors["tokens"][begin + tensors["prompt_tokens"][answer]:end], ids)
                self.assertEqual(tensors["finish"][answer], 0 if figures["end"] == "end_token" else 1)
                number += 1
        self.assertEqual(number, 14)

    def test_the_number_of_requests_changes_no_byte(self):
        files = {}
        for requests in ("1", "4", "32"):
            self.answers(requests, "--prompts", self.prompts(*QUESTIONS), "--requests", requests,
                         "--hidden", "2,1", "--top", "3", "--shard-size", "4")
            files[requests] = [path.read_bytes() for path in self.shards(requests)]
        self.assertEqual(len(files["1"]), 2)
        self.assertEqual(files["1"], files["4"])
        self.assertEqual(files["1"], files["32"])
        _, shapes, _ = read_shard(self.shards("1")[0])
        self.assertEqual(shapes["hidden.1"], shapes["hidden.2"])
        self.assertEqual(shapes["hidden.1"][0], shapes["tokens"][0])

    def test_the_method_changes_no_byte(self):
        files = {}
        for method in ("plain", "prompt-lookup", "speculative"):
            self.answers(method, "--prompts", self.prompts(*QUESTIONS), "--requests", "3", "--top", "5",
                         "--samples", "2", "--temp", "0.9", "--seed", "3", "--shard-size", "4", "--method", method)
            files[method] = [path.read_bytes() for path in self.shards(method)]
        self.assertEqual(len(files["plain"]), 4)
        self.assertEqual(files["plain"], files["prompt-lookup"])
        self.assertEqual(files["plain"], files["speculative"])

    def test_what_a_pipeline_does_not_give_is_refused_if_the_method_is_named(self):
        output = ["generate", "-m", TINY, "-o", str(self.folder / "a"), "--prompts", self.prompts("Hello")]
        self.assertIn("--hidden", self.run_fails(2, *output, "--method", "prompt-lookup", "--hidden", "1"))
        self.assertIn("--top", self.run_fails(2, *output, "--method", "prompt-lookup", "--top", "21"))
        self.assertIn("no-such", self.run_fails(2, *output, "--method", "no-such"))
        self.run_ok(*output, "-n", "4", "--hidden", "1", env=environment(PACELINE_METHOD="prompt-lookup"))

    def test_auto_is_the_default_says_its_choice_and_remembers(self):
        env = environment(PACELINE_METHOD=None, XDG_CACHE_HOME=str(self.folder))
        output = ["generate", "-m", TINY, "-n", "100", "--prompts", self.prompts(*QUESTIONS), *NEVER_END]

        def said(folder: str, *args: str) -> str:
            done = paceline(*output, "-o", str(self.folder / folder), *args, env=env)
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            return done.stderr.decode()

        self.assertIn("paceline generate: method plain: no method has shown a gain here with 32 answers", said("many"))
        self.assertIn("method plain: --hidden", said("hidden", "--hidden", "1", "--requests", "1"))
        said("one", "--method", "prompt-lookup", "--requests", "1")
        path, = (self.folder / "paceline" / "methods").glob("*.json")
        record = json.loads(path.read_text())
        rate = record["methods"]["prompt-lookup"]
        self.assertGreater(rate["gain"], 0)
        record["methods"] = {"prompt-lookup+draft": rate | {"gain": 1.0},
                             "prompt-lookup": rate | {"gain": 1.5, "runs": 3}}
        path.write_text(json.dumps(record))
        self.assertIn("method prompt-lookup: 1.50 times plain decoding in 3 earlier runs", said("auto", "--requests", "1"))
        for folder in ("one", "auto"):
            self.assertEqual([path.read_bytes() for path in self.shards(folder)],
                             [path.read_bytes() for path in self.shards("many")])

    def test_shards_that_are_there_are_skipped_and_lost_ones_are_made_again(self):
        args = ["--prompts", self.prompts(*QUESTIONS), "--shard-size", "3", "--requests", "2"]
        self.answers("a", *args)
        before = [(path.name, path.read_bytes()) for path in self.shards("a")]
        self.shards("a")[1].unlink()
        self.assertIn("3 answers (4 were there)", self.answers("a", *args))
        self.assertEqual(before, [(path.name, path.read_bytes()) for path in self.shards("a")])
        self.assertIn("0 answers (7 were there)", self.answers("a", *args))

    def test_shards_of_other_options_or_prompts_are_refused_by_name(self):
        self.answers("a", "--prompts", self.prompts(*QUESTIONS))
        output = ["generate", "-m", TINY, "-o", str(self.folder / "a"), "-n", "24"]
        said = self.run_fails(2, *output, "--prompts", self.prompts(*QUESTIONS), "--temp", "0.5")
        self.assertIn("shard-00000.safetensors was made with temperature = 0, this run has 0.5", said)
        said = self.run_fails(2, *output, "--prompts", self.prompts("Another one"))
        self.assertIn("prompts = ", said)
        path = self.shards("a")[0]
        path.write_bytes(path.read_bytes()[:-1])
        said = self.run_fails(1, *output, "--prompts", self.prompts(*QUESTIONS))
        self.assertIn("shard-00000.safetensors", said)

    def test_a_prompt_that_does_not_fit_is_skipped_and_the_others_keep_their_numbers(self):
        done = paceline("generate", "-m", TINY, "-o", str(self.folder / "a"), "-n", "8", "-c", "64",
                        "--prompts", self.prompts("Hi", "many words " * 90, "Hello"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"1 of 3 prompts are skipped", done.stderr)
        tensors, _, _ = read_shard(self.shards("a")[0])
        self.assertEqual(tensors["prompt_index"], [0, 2])

    def test_ctrl_c_keeps_whole_shards_and_the_next_run_makes_the_same_as_one_without(self):
        args = ["--prompts", self.prompts(*(f"Question {i}" for i in range(400))), "--requests", "4",
                "--shard-size", "8", "-n", "300", *NEVER_END]
        command = ["generate", "-m", TINY, "-o", str(self.folder / "a"), "-t", "1", *args]
        process = subprocess.Popen([BINARY, *command], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=environment())
        while not (self.folder / "a").is_dir() or not self.shards("a"):
            self.assertIsNone(process.poll(), "the run was over too soon")
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertEqual(out, b"")
        self.assertIn(b"run the same command again", err)
        for path in self.shards("a"):
            self.assertEqual(path.suffix, ".safetensors")
            tensors, _, _ = read_shard(path)
            self.assertEqual(len(tensors["finish"]), 8)
        self.assertLess(len(self.shards("a")), 50)

    def test_bad_values_are_named(self):
        prompts = self.prompts("Hi")
        for args, part in ((["--hidden", "1,99"], "--hidden: 99 is not a layer"),
                           (["--hidden", "x"], "--hidden"),
                           (["--top", "1000"], "--top: the vocabulary has only"),
                           (["--requests", "0"], "--requests"),
                           (["-c", "100000"], "-c: 100000 is more than the model's context"),
                           (["--prompts", str(self.folder / "none.jsonl")], "none.jsonl")):
            with self.subTest(args=args):
                code = 1 if part == "none.jsonl" else 2
                self.assertIn(part, self.run_fails(code, "generate", "-m", TINY, "--prompts", prompts,
                                                   "-o", str(self.folder / "a"), *args))
        self.assertFalse((self.folder / "a").exists())
        self.run_fails(2, "generate", "-m", TINY, "--prompts", prompts, "-o", prompts)


if __name__ == "__main__":
    unittest.main()
