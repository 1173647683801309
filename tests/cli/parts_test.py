"""Trained parts: found for their target without being named, exact whatever they say, refused by name."""

import json
import shutil
import subprocess
import unittest
from pathlib import Path

import part_files
from deeper_model import write_deeper
from paceline_cli import BINARY, CliTest, PROMPT, environment, TINY

SAMPLED = ["--temp", "0.8", "--seed", "7", "--top-p", "0.95"]
LAYERS = 4  # what every method's segments need
METHODS = ["speculative", "speculative-adaptive", "speculative-tree", "fold-sequential",
           "pearl", "pearl-lockstep", "fold", "fold-lockstep", "hybrid", "four-stages", "prompt-lookup+draft", "adadecode", "adadecode-parallel", "heads", "medusa",
           "kangaroo"]
EXIT = ('[[stage]]\nname = "d"\nrole = "draft"\n[[stage]]\nname = "a"\nrole = "early-verify"\n'
        '[[stage]]\nname = "b"\nrole = "final-verify"\n'
        '[draft]\nsource = "trained"\npace = "ahead"\nexit_alternatives = 2\n[exit]\ntop = 3\n')


class Parts(CliTest):
    def setUp(self) -> None:
        super().setUp()
        model = write_deeper(TINY, self.folder / "model.gguf", LAYERS)
        self.model = str(model)
        self.data = Path(model).read_bytes()
        self.target = self.fingerprint(self.model)
        self.parts = self.folder / "parts"

    def fingerprint(self, model: str) -> str:
        return json.loads(self.run_ok("inspect", model, "-o", "json"))["fingerprint"]

    def put_noise(self) -> None:
        """Parts that are right by chance, and know only half of the tokens."""
        noise = part_files.draft(self.data, self.target, noise=True, tokens=list(range(1, 512, 2)))
        part_files.put(self.parts, "draft-small", noise)
        part_files.put(self.parts, "heads", part_files.heads(self.data, self.target, [1, 2, 3], 2, noise=True))
        part_files.put(self.parts, "medusa", part_files.medusa(self.data, self.target))
        part_files.put(self.parts, "adapter", part_files.adapter(self.data, self.target, 2))

    def put_right(self) -> None:
        """A draft that is the target, and heads that are a logit lens."""
        part_files.put(self.parts, "draft-deep", part_files.draft(self.data, self.target))
        part_files.put(self.parts, "heads", part_files.heads(self.data, self.target, [2]))

    def run_with(self, *args: str, **env: str) -> tuple[str, list[int], dict]:
        """stderr, token ids and figures of a run."""
        ids, stats = self.folder / "ids.json", self.folder / "stats.json"
        done = subprocess.run([BINARY, "run", "-m", self.model, "-p", PROMPT, "--ids", str(ids), "--stats", str(stats),
                               "-t", "1", *args], capture_output=True, timeout=120, env=environment(**env), check=False)
        stderr = done.stderr.decode()
        self.assertEqual(done.returncode, 0, f"{args}: {stderr}")
        return stderr, json.loads(ids.read_text()), json.loads(stats.read_text())

    def refused(self, code: int, *args: str, method: str = "pearl") -> str:
        return self.run_fails(code, "run", "-m", self.model, "-p", PROMPT, "-n", "4", "--method", method, *args)

    def test_noise_for_parts_commits_the_tokens_of_plain_decoding_in_every_method(self):
        self.put_noise()
        for sampling in ([], SAMPLED):
            plain = self.run_with("-n", "24", *sampling)[1]
            for method in METHODS:
                with self.subTest(method=method, sampling=sampling):
                    args = ["--method", method, "-n", "24", "--parts", str(self.parts), *sampling]
                    stderr, ids, _ = self.run_with(*args)
                    self.assertEqual(ids, plain)
                    self.assertIn("trained ", stderr)

    def test_a_draft_that_is_the_target_is_accepted_and_named(self):
        self.put_right()
        for sampling in ([], SAMPLED):
            plain = self.run_with("-n", "60", *sampling)[1]
            stderr, ids, stats = self.run_with("--config", self.as_configured("speculative"), "-n", "60", *sampling,
                                               PACELINE_PRETRAINED=str(self.parts))
            self.assertEqual(ids, plain)
            self.assertIn(f"trained draft: {LAYERS} layers, a head of 512 tokens, {self.parts}/draft-deep", stderr)
            self.assertGreater(stats["pipeline"]["accepted_tokens"], 20)

    def test_an_exit_uses_the_adapter_or_the_head_of_its_layer_and_says_so(self):
        self.put_noise()
        self.put_right()
        config = self.folder / "exit.toml"
        plain = self.run_with("-n", "32")[1]
        for head, says in (("", "trained exit head: after layer 2"),
                           ('head = "adapter"\n', "trained adapter: exit after layer 2"),
                           ('head = "logit-lens"\n', "after layer 2 is the target's own head as a logit lens")):
            config.write_text(EXIT + head)
            stderr, ids, _ = self.run_with("--config", str(config), "-n", "32", "--parts", str(self.parts))
            self.assertEqual(ids, plain)
            self.assertIn(says, stderr)

    def test_kangaroo_drafts_with_the_adapter_of_its_exit_and_an_exit_without_one_is_refused(self):
        self.put_noise()
        said, _, stats = self.run_with("--config", self.kangaroo(2), "-n", "32", "--parts", str(self.parts))
        self.assertIn(f"trained adapter: drafts after layer 2, {self.parts}/adapter.safetensors", said)
        self.assertGreater(stats["pipeline"]["draft_rows"], 0)
        said = self.run_fails(2, "run", "-m", self.model, "-p", PROMPT, "--config", self.kangaroo(3),
                              "--parts", str(self.parts))
        self.assertIn('kangaroo.toml: [self_draft] exit = 3 with head = "adapter"', said)
        self.assertIn("no adapter after layer 3, it has one after 2", said)

    def kangaroo(self, exit_at: int) -> str:
        """The method, drafting in every round, with its exit after so many layers."""
        path = self.folder / "kangaroo.toml"
        path.write_text(f'extends = "kangaroo"\n[self_draft]\nexit = {exit_at}\nauto_off = false\n')
        return str(path)

    def test_stages_that_are_killed_open_their_parts_again(self):
        self.put_noise()
        args = ["check", "-m", self.model, "--method", "hybrid", "--parts", str(self.parts), "--first", "2",
                "-n", "24", "-t", "1", "--kills", "2"]
        self.assertIn("equal", self.run_ok(*args))

    def test_medusa_verifies_the_tree_of_its_part_and_survives_kills(self):
        self.put_noise()
        path = self.folder / "medusa.toml"
        path.write_text('extends = "medusa"\n[schedule]\ncontroller = "off"\n[exit]\nalways_on = true\n')
        stderr, _, stats = self.run_with("--config", str(path), "-n", "24", "--parts", str(self.parts))
        nodes = len(part_files.MEDUSA_TREE.split())
        self.assertIn(f"trained look-ahead heads: 5 with a tree of {nodes}, ", stderr)
        figures = stats["pipeline"]
        self.assertGreater(figures["candidates"], 5 * nodes)
        for requests in ("1", "4"):
            for sampling in ([], SAMPLED):
                said = self.run_ok("check", "-m", self.model, "--method", "medusa", "--parts", str(self.parts), "--first",
                                   "4", "-n", "24", "-t", "1", "--kills", "1", "--requests", requests, *sampling)
                self.assertIn("equal", said)

    def test_damaged_or_other_look_ahead_heads_are_refused_by_name(self):
        for part, says in ((part_files.medusa(self.data, self.target, tree="0 0"), 'has "0", which is there already'),
                           (part_files.medusa(self.data, self.target, tree=""), 'no metadata "ahead_tree"'),
                           (part_files.heads(self.data, self.target, [], 3), '"ahead_block" is "transform"')):
            with self.subTest(says=says):
                part_files.put(self.parts, "medusa", part)
                code = 1 if "already" in says else 2
                stderr = self.refused(code, "--parts", str(self.parts), method="medusa")
                self.assertIn("medusa.safetensors", stderr)
                self.assertIn(says, stderr)

    def test_what_changes_the_text_is_not_offered(self):
        for name in ("free", "lite"):
            stderr = self.refused(2, method=name)
            self.assertIn("is not offered", stderr)
            self.assertIn("the text changes", stderr)
        path = self.folder / "typical.toml"
        path.write_text('extends = "medusa"\n[acceptance]\nrule = "typical"\n')
        done = self.run_fails(2, "run", "-m", self.model, "--config", str(path), "-p", "x")
        self.assertIn("typical acceptance changes the text", done)

    def test_without_parts_the_program_says_what_stands_in(self):
        self.put_noise()
        cases = (("speculative", "no trained draft for this model: prompt lookup; slower"),
                 ("speculative-tree", "no trained draft for this model: the target's own first layers"),
                 ("fold", "no trained exit for this model after layer 3"),
                 ("heads", "no trained look-ahead heads for this model: random ones"),
                 ("medusa", "no trained residual look-ahead heads for this model: those of stand_in"),
                 ("kangaroo", "no trained adapter for this model: the exit's head without one drafts"))
        for method, says in cases:
            for args, env in ((["--parts", "none"], {"PACELINE_PRETRAINED": str(self.parts)}), ([], {})):
                with self.subTest(method=method, args=args):
                    stderr = self.run_with("--method", method, "-n", "8", *args, **env)[0]
                    self.assertIn(says, stderr)
                    self.assertNotIn("\ntrained ", stderr)

    def test_parts_of_another_model_are_passed_over_unless_they_are_named(self):
        other = "0123456789abcdef"
        path = part_files.put(self.parts, "draft-small", part_files.draft(self.data, other))
        stderr = self.run_with("--method", "pearl", "-n", "4", PACELINE_PRETRAINED=str(self.parts))[0]
        self.assertIn("no trained draft", stderr)
        config = self.folder / "named.toml"
        config.write_text('[[stage]]\nname = "d"\nrole = "draft"\n[[stage]]\nname = "a"\nrole = "segment"\n'
                          f'[draft]\nsource = "trained"\npart = "{path}"\n')
        named = self.run_fails(2, "run", "-m", self.model, "-p", "x", "--config", str(config))
        for said in (named, self.refused(2, "--parts", str(self.parts))):
            self.assertIn("draft-small.safetensors", said)
            self.assertIn(other, said)
            self.assertIn(self.target, said)

    def test_a_part_that_is_broken_is_refused_by_name(self):
        part = part_files.draft(self.data, self.target)
        whole = part.bytes()
        missing = part_files.draft(self.data, self.target)
        del missing.tensors["layers.1.up"]
        shape = part_files.draft(self.data, self.target)
        shape.add("layers.0.attn_norm", "F32", [3], b"\0" * 12)
        unknown = part_files.draft(self.data, self.target)
        unknown.metadata["type.layers.0.q"] = "Q3_K"
        self.parts.mkdir()
        for data, says in ((whole[:len(whole) // 2], "the file may be truncated"),
                           (whole[:4], "too few for a safetensors file"),
                           (missing.bytes(), 'tensor "layers.1.up" is missing'),
                           (shape.bytes(), '"layers.0.attn_norm" (F32 [3]) must have the shape [64]'),
                           (unknown.bytes(), 'metadata "type.layers.0.q" is "Q3_K"'),
                           (part_files.heads(self.data, self.target, [2]).bytes(), 'must be "draft"')):
            (self.parts / "draft-small.safetensors").write_bytes(data)
            with self.subTest(says=says):
                code = 2 if "must be \"draft\"" in says else 1
                stderr = self.refused(code, "--parts", str(self.parts))
                self.assertIn("draft-small.safetensors", stderr)
                self.assertIn(says, stderr)

    def test_a_folder_without_parts_is_refused_when_it_was_named(self):
        self.parts.mkdir()
        self.assertIn("there is none of draft-small.safetensors", self.refused(1, "--parts", str(self.parts)))
        # Searched for, it is nothing; nor is a file that cannot be read, but that is said.
        (self.parts / "heads.safetensors").write_bytes(b"no part")
        stderr = self.run_with("--method", "fold", "-n", "4", PACELINE_PRETRAINED=str(self.parts))[0]
        self.assertIn("left out: ", stderr)
        self.assertIn("heads.safetensors", stderr)

    def test_parts_beside_the_installed_program_are_found(self):
        installed = self.folder / "usr"
        (installed / "bin").mkdir(parents=True)
        shutil.copy2(BINARY, installed / "bin" / "paceline")
        self.put_right()
        shutil.copytree(self.parts, installed / "share" / "paceline" / "pretrained" / "tiny")
        done = subprocess.run([str(installed / "bin" / "paceline"), "run", "-m", self.model, "-p", PROMPT, "-n", "4",
                               "--method", "pearl"], capture_output=True, timeout=120, env=environment(), check=False)
        self.assertIn(f"{installed}/share/paceline/pretrained/tiny/draft-deep", done.stderr.decode())


if __name__ == "__main__":
    unittest.main()
