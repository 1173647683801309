"""--lora: a target with a LoRA merged decodes the same text in every method, and is no other target."""

import json
import unittest
from pathlib import Path

import part_files
from deeper_model import write_deeper
from paceline_cli import CliTest, PROMPT, TINY, environment, paceline

SAMPLED = ["--temp", "0.8", "--seed", "7", "--top-p", "0.95"]
LAYERS = 4  # what every method's segments need
METHODS = ["speculative", "speculative-tree", "pearl", "fold", "four-stages", "adadecode", "adadecode-parallel",
           "layerskip", "draft-verify"]
FIRST_LAYERS = ["--method", "pearl", "--set", "draft.source=first-layers"]


class Lora(CliTest):
    def setUp(self) -> None:
        super().setUp()
        self.model = str(write_deeper(TINY, self.folder / "model.gguf", LAYERS))
        self.data = Path(self.model).read_bytes()
        self.target = self.inspected()["fingerprint"]
        self.parts = self.folder / "parts"
        self.lora = self.put(part_files.lora(self.data, self.target))

    def put(self, part: part_files.Part, name: str = "early-exit") -> str:
        return str(part_files.put(self.parts, name, part))

    def inspected(self, *args: str, **env: str) -> dict:
        return json.loads(self.run_ok("inspect", self.model, "-o", "json", *args, env=environment(**env)))

    def ids(self, *args: str, **env: str) -> list[int]:
        return self.generate("-p", PROMPT, "-n", "24", "-t", "1", *args, model=self.model, env=environment(**env))[1]

    def refused(self, code: int, *args: str, **env: str) -> str:
        return self.run_fails(code, "run", "-m", self.model, "-p", "x", "-n", "2", *args, env=environment(**env))

    def test_every_method_commits_the_tokens_of_plain_decoding_with_the_same_lora(self):
        for sampling in ([], SAMPLED):
            plain = self.ids(*sampling)
            merged = self.ids("--lora", self.lora, *sampling)
            self.assertNotEqual(merged, plain, "the LoRA is seen in the text")
            for method in METHODS:
                with self.subTest(method=method, sampling=sampling):
                    self.assertEqual(self.ids("--lora", self.lora, "--method", method, *sampling), merged)

    def test_other_types_of_weights_are_exact_too(self):
        for dtype in ("f32", "bf16", "q4"):
            with self.subTest(dtype):
                args = ["--lora", self.lora, "--dtype", dtype]
                self.assertEqual(self.ids(*args, "--method", "adadecode"), self.ids(*args))

    def test_drafts_of_the_first_layers_and_killed_stages_have_the_merged_weights(self):
        check = ["check", "-m", self.model, "--lora", self.lora, "--first", "2", "-n", "24", "-t", "1"]
        self.assertIn("equal", self.run_ok(*check, *FIRST_LAYERS, "--kills", "2"))

    def test_the_word_finds_the_part_of_the_model_in_the_folders_of_trained_parts(self):
        merged = self.ids("--lora", self.lora)
        self.assertEqual(self.ids("--lora", "early-exit", PACELINE_PRETRAINED=str(self.parts)), merged)
        self.assertEqual(self.ids("--lora", "early-exit", "--parts", str(self.parts)), merged)
        method = ["--method", "pearl", "--lora", "early-exit"]
        self.assertEqual(self.ids(*method, PACELINE_PRETRAINED=str(self.parts)), merged)
        self.assertEqual(self.ids(*method, "--parts", str(self.parts)), merged)
        stats = self.generate("-p", "x", "-n", "1", "--lora", self.lora, model=self.model)[2]
        self.assertEqual((stats["model"], stats["lora"]), (self.model, self.lora))

    def test_a_merged_target_has_a_fingerprint_of_its_own_and_parts_of_its_own(self):
        self.put(part_files.draft(self.data, self.target), "draft-deep")
        merged = self.inspected("--lora", self.lora)
        self.assertNotEqual(merged["fingerprint"], self.target)
        self.assertEqual(merged["lora"]["plain_fingerprint"], self.target)
        self.assertEqual((merged["lora"]["rank"], merged["lora"]["scale"]), (2, 2.0))
        self.assertEqual((merged["lora"]["exits"], merged["lora"]["matrices"]), ([2, 3], 7 * LAYERS))
        self.assertIsNone(self.inspected()["lora"])
        self.assertIn(f"lora          {self.lora}: rank 2, scale 2, 28 matrices, exits after layers 2, 3",
                      self.run_ok("inspect", self.model, "--lora", self.lora))
        other = self.put(part_files.lora(self.data, self.target, seed=7), "other")
        self.assertNotEqual(self.inspected("--lora", other)["fingerprint"], merged["fingerprint"])
        run = ["run", "-m", self.model, "-p", PROMPT, "-n", "4", "--method", "pearl"]
        for lora, says in (([], "trained draft"), (["--lora", self.lora], "no trained draft for this model")):
            for where, env in (([], {"PACELINE_PRETRAINED": str(self.parts)}), (["--parts", str(self.parts)], {})):
                with self.subTest(lora=lora, where=where):
                    self.assertIn(says, self.stderr_of(*run, *lora, *where, **env))
        self.put(part_files.draft(self.data, merged["fingerprint"]), "draft-deep")
        self.assertIn("trained draft", self.stderr_of(*run, "--lora", self.lora, "--parts", str(self.parts)))

    def stderr_of(self, *args: str, **env: str) -> str:
        done = paceline(*args, env=environment(**env))
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stderr.decode()

    def test_other_commands_take_it_too(self):
        bench = json.loads(self.run_ok("bench", "-m", self.model, "--lora", self.lora, "-p", "0", "-n", "4", "-t", "1",
                                       "-r", "1", "-o", "json"))
        self.assertIn(self.lora, bench[0]["model_type"])
        table = self.folder / "costs.tsv"
        self.run_ok("simulate", "-m", self.model, "--lora", self.lora, "--measure-costs", str(table), "--rows", "1",
                    "--contexts", "8", "--measure-threads", "1", "--neighbours", "0", "--samples", "1", "--parts", "none")
        self.assertIn("model+early-exit:auto", table.read_text())

    def test_what_does_not_fit_is_refused_by_name(self):
        wrong = self.put(part_files.lora(self.data, "0123456789abcdef"), "wrong")
        said = self.refused(2, "--lora", wrong)
        for word in (wrong, "0123456789abcdef", self.target):
            self.assertIn(word, said)
        shape = part_files.lora(self.data, self.target)
        shape.add("blk.1.attn_k.lora_b", "F32", [64, 2], bytes(4 * 128))
        self.assertIn('"blk.1.attn_k.lora_b" (F32 [64, 2]) must have the shape [32, 2]',
                      self.refused(1, "--lora", self.put(shape, "shape"), "--method", "pearl"))
        self.assertIn("wrong one", self.refused(1, "--lora", str(self.folder / "wrong one")))
        draft = self.put(part_files.draft(self.data, self.target), "draft")
        self.assertIn('paceline.part is "draft", wanted is "lora"', self.refused(2, "--lora", draft))
        self.assertIn("--parts none excludes them", self.refused(2, "--lora", "early-exit", "--parts", "none"))
        nothing = self.refused(1, "--lora", "early-exit", PACELINE_PRETRAINED=str(self.folder))
        self.assertIn("there is no early-exit.safetensors for " + self.model, nothing)
        self.assertIn(self.target, nothing)
        self.put(part_files.lora(self.data, "0123456789abcdef"))
        other = self.refused(1, "--lora", "early-exit", PACELINE_PRETRAINED=str(self.parts))
        self.assertIn("was made for the model with the fingerprint 0123456789abcdef", other)
        random = self.run_fails(2, "bench", "--random", "smollm2-135m", "--lora", self.lora)
        self.assertIn("--lora", random)


if __name__ == "__main__":
    unittest.main()
