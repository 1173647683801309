"""From prompts to text, as a user does it: the program's answers, trained parts, exported files,
and the program again, which must commit plain decoding's tokens with them.

It is also where PyTorch and the program must mean the same by a part. Some parts here are the
target itself in another shape (a draft of all its layers; an adapter that is the last layer's
attention, whose feed-forward part is zero): they must be right nearly always. Others are trained,
and must be right as often in the program as in PyTorch, on the same answers.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import gguf
import numpy as np
import torch

from paceline_training import cli
from paceline_training.losses import VerifyBatches
from paceline_training.modules import Context, DraftModel, ResidualHead, THead
from paceline_training.shards import Shards
from paceline_training.target import Target

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cli"))
from deeper_model import write_deeper  # noqa: E402

BINARY = Path(os.environ.get("PACELINE_BINARY", ROOT / "build" / "release" / "paceline"))
TINY = ROOT / "tests" / "fixtures" / "models" / "tiny-chat.gguf"
LAYERS, VOCAB = 4, 512
ANSWERS, TOKENS, GAMMA = 24, 40, 8
SAMPLED = ["--temp", "0.8", "--top-p", "0.95", "--seed", "7"]
# method: what it says of the parts that it uses
METHODS = {
    "speculative": ["trained draft: 2 layers"],
    "pearl": ["trained draft: 2 layers"],
    "fold": ["trained draft: 2 layers", "trained exit head: after layer 3"],
    "four-stages": ["trained draft: 2 layers", "trained adapter: exit after layer 2"],
    "hybrid": ["trained draft: 2 layers", "trained exit head: after layer 3"],
    "adadecode": ["trained exit head: after layer 1, 2, 3"],
    "adadecode-parallel": ["trained adapter: exit after layer 2"],
    "heads": ["trained look-ahead heads: 2"],
    "medusa": ["trained look-ahead heads: 3 with a tree of "],
}
CHAIN = """[[stage]]
name = "draft"
role = "draft"
[[stage]]
name = "target"
role = "segment"
[draft]
source = "trained"
pace = "sequential"
gamma = 8
reach_min = 0.0
[schedule]
mode = "sequential"
controller = "off"
draft_wait_us = 10000000
"""
# One candidate a verdict, of the first residual head.
AHEAD = """[[stage]]
name = "target"
role = "segment"
[exit]
ahead = 1
ahead_block = "residual"
always_on = true
[schedule]
controller = "off"
"""
# Whatever an exit says goes ahead, and is judged.
EXIT = """[[stage]]
name = "first"
role = "segment"
layers = [0.0, {at}]
process = "target"
exit = true
[[stage]]
name = "last"
role = "segment"
layers = [{at}, 1.0]
process = "target"
[exit]
head = "{head}"
proposes = true
gate = 0.0
early_max = 1
always_on = true
[schedule]
controller = "off"
"""


def run(*command) -> subprocess.CompletedProcess:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PACELINE_")}
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=120, check=False, env=environment)


def make_target(path: Path) -> None:
    """A model of LAYERS layers whose last one has attention alone: ffn_down is zero."""
    write_deeper(str(TINY), path, LAYERS, factor=1.0)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path, "r+").tensors}
    data = tensors[f"blk.{LAYERS - 1}.ffn_down.weight"].data
    data[:] = 0
    data.flush()


@unittest.skipUnless(BINARY.exists(), f"skipped: {BINARY} is not built")
class EndToEnd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)
        cls.model = cls.folder / "model.gguf"
        make_target(cls.model)
        cls.every_token = cls.folder / "all.txt"
        cls.every_token.write_text("\n".join(map(str, range(VOCAB))))
        cls.step("data", "--work", cls.folder, "-m", cls.model, "--paceline", BINARY, "--count", 60,
                 "--part", f"all:{ANSWERS}:1,2,3,{LAYERS}", "--held-out", 3, "--held-out-hidden",
                 f"1,2,3,{LAYERS}", "-n", TOKENS, "--top", 32, "--requests", 8, "-t", 1)
        cls.prompts = cls.folder / "answers" / "all-greedy" / "prompts.jsonl"
        # A rate that leads far away from the identity.
        cls.train("heads", "heads", "--exits", "1,2,3", "--ahead", "1,2", "--rate", 3e-2, steps=40)
        cls.train("heads", "medusa", "--ahead", "1,2,3", "--residual", "--rate", 3e-2, steps=40)
        cls.train("adapter", "adapter", "--exits", 2, "--rate", 3e-3, steps=30)
        cls.train("adapter", "attention", "--exits", 3, "--rate", 0)
        cls.train("draft", "small", "--from-layers", "2,3", "--rate", 1e-3, steps=40)
        cls.train("draft", "whole", "--from-layers", "0,1,2,3", "--rate", 0)
        cls.export("small", "parts/draft-small", "--type", "f32")
        cls.export("heads", "parts/heads")
        cls.export("medusa", "parts/medusa")
        cls.export("adapter", "parts/adapter")

    @classmethod
    def step(cls, *words) -> None:
        """A step of paceline-train, in this process: importing PyTorch takes seconds."""
        err = io.StringIO()
        with contextlib.redirect_stdout(err), contextlib.redirect_stderr(err):
            code = cli.main([str(word) for word in words])
        assert code == 0, f"{words[0]}: {err.getvalue()[-2000:]}"

    @classmethod
    def train(cls, step, name, *more, steps=1) -> None:
        answers = cls.folder / "answers"
        cls.step(step, "-m", cls.model, "--answers", answers / "all-greedy", "--answers",
                 answers / "all-sampled", "--heldout", answers / "own-heldout-greedy", "-o",
                 cls.folder / "runs" / name, "--length", 256, "--batch-tokens", 1024, "-t", 1,
                 "--dtype", "f32", "--token-list", cls.every_token, "--steps", steps, *more)

    @classmethod
    def export(cls, name, part, *more) -> None:
        cls.step("export", "--run", cls.folder / "runs" / name, "-o",
                 cls.folder / f"{part}.safetensors", *more)

    def trained(self, name: str) -> dict[str, torch.Tensor]:
        checkpoint = self.folder / "runs" / name / "checkpoint.pt"
        return torch.load(checkpoint, weights_only=True)["module"]

    def answers(self, layer: int = LAYERS) -> list:
        """Greedy ones, to the prompts that the program is asked again."""
        return Shards([self.folder / "answers" / "all-greedy"], [layer]).answers

    def check(self, parts: str, *words) -> dict:
        """`paceline check` of the prompts that were learnt from, which must be equal."""
        report = self.folder / "check.json"
        done = run(BINARY, "check", "-m", self.model, "--parts", self.folder / parts, "--prompts",
                   self.prompts, "-n", TOKENS, "-t", 1, "--json", report, *words)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stdout[-2000:]}{done.stderr}")
        made = json.loads(report.read_text())
        self.assertTrue(made["equal"])
        return made["figures"]

    def config(self, text: str) -> Path:
        path = self.folder / "config.toml"
        path.write_text(text)
        return path

    def test_every_method_with_trained_parts_says_what_plain_decoding_says(self):
        for method, says in METHODS.items():
            with self.subTest(method=method):
                for sampling in ([], SAMPLED):
                    figures = self.check("parts", "--method", method, "--first", 2, *sampling)
                    self.assertGreater(figures["emitted_tokens"], 0)
                done = run(BINARY, "run", "-m", self.model, "--parts", self.folder / "parts",
                           "--method", method, "-p", "Why?", "-n", 4, "-t", 1)
                self.assertEqual(done.returncode, 0, done.stderr)
                for line in says:
                    self.assertIn(line, done.stderr)

    def test_a_draft_of_all_layers_is_accepted_nearly_always(self):
        for kind in ("f16", "q8_0"):
            with self.subTest(kind=kind):
                self.export("whole", f"whole-{kind}/draft-small", "--type", kind)
                figures = self.check(f"whole-{kind}", "--config", self.config(CHAIN), "--first", 6)
                self.assertGreater(figures["candidates"], 100)
                self.assertGreater(figures["accepted_tokens"], 0.95 * figures["candidates"])

    @torch.no_grad()
    def test_a_trained_draft_is_right_as_often_as_in_pytorch(self):
        target = Target(self.model)
        draft = DraftModel(target.shape, [target.layer(0)] * 2, target.output_norm)
        draft.load_state_dict(self.trained("small"))
        with_prompt, behind_prompt = VerifyBatches(GAMMA), VerifyBatches(GAMMA)
        for answer in self.answers():
            tokens = torch.from_numpy(np.array(answer.tokens)).long()
            positions = torch.arange(len(tokens))[None]
            context = Context(target.shape, positions, torch.ones_like(positions), torch.float32)
            last = draft(target.embedding()[tokens][None], context)[0]
            guesses = (draft.output_norm(last) @ target.embedding().T).argmax(-1)
            agrees = (guesses[:-1] == tokens[1:]).numpy()
            with_prompt.add(agrees[answer.prompt_tokens - 1:])
            behind_prompt.add(agrees[answer.prompt_tokens:])
        self.assertGreater(behind_prompt.committed / behind_prompt.batches, 1.5)
        # A quick draft has a chain ready for the prompt's own batch; behind a slow one that batch
        # gives one token, and the chains begin after it.
        least, most = sorted([with_prompt.batches, ANSWERS + behind_prompt.batches])
        found = self.check("parts", "--config", self.config(CHAIN))["batches"]
        self.assertGreater(found, 0.95 * least)
        self.assertLess(found, 1.05 * most)

    def test_an_adapter_that_is_the_last_layer_is_right_nearly_always(self):
        self.export("attention", "attention/adapter")
        config = self.config(EXIT.format(head="adapter", at=0.75))
        early = self.check("attention", "--config", config, "--first", 6)["adadecode"]
        self.assertGreater(early["early_proposed"], 50)
        self.assertLess(early["rejection_rate"], 0.05)

    @torch.no_grad()
    def test_a_trained_head_is_right_as_often_as_in_pytorch(self):
        transform = self.trained("heads")["exit_3.transform"]
        wanted = self.right_share(transform, layer=3)
        # Another matrix would not do as well: so the program's is this one, the right way round.
        self.assertGreater(wanted, self.right_share(transform.T, layer=3) + 0.05)
        early = self.check("parts", "--config", self.config(EXIT.format(head="trained", at=0.75)))
        self.assertAlmostEqual(1 - early["adadecode"]["rejection_rate"], wanted, delta=0.03)

    @torch.no_grad()
    def test_a_trained_residual_head_is_right_as_often_as_in_pytorch(self):
        wanted = self.ahead_share(self.trained("medusa")["ahead_1.transform"])
        # The target's own head, W = 0, is right at other places: so the program's W is this one.
        own = self.ahead_share(torch.zeros(self.dim, self.dim))
        self.assertGreater(abs(wanted - own), 0.03)
        figures = self.check("parts", "--config", self.config(AHEAD))
        self.assertGreater(figures["candidates"], 10 * ANSWERS)
        found = figures["accepted_tokens"] / figures["candidates"]
        self.assertAlmostEqual(found, wanted, delta=0.03)

    @property
    def dim(self) -> int:
        return len(Target(self.model).output_norm)

    def ahead_share(self, transform: torch.Tensor) -> float:
        """Of the candidates that verdict after verdict would propose: those that are right."""
        target = Target(self.model)
        head = ResidualHead(target.output_norm, target.shape.epsilon)
        head.load_state_dict({"transform": transform})
        hits = []
        for answer in self.answers(LAYERS):
            states = torch.from_numpy(answer.hidden(LAYERS).astype(np.float32))
            guesses = (head(states) @ target.embedding().T).argmax(-1).numpy()
            at = answer.prompt_tokens - 1  # the last row that was accepted
            while at + 2 < len(answer):
                hits.append(guesses[at] == answer.tokens[at + 2])
                at += 2 if hits[-1] else 1
        return float(np.mean(hits))

    def right_share(self, transform: torch.Tensor, layer: int) -> float:
        target = Target(self.model)
        head = THead(target.output_norm, target.shape.epsilon, norm_first=False)
        head.load_state_dict({"transform": transform})
        hits = []
        for answer in self.answers(layer):
            rows = slice(answer.prompt_tokens - 1, len(answer) - 1)
            states = torch.from_numpy(answer.hidden(layer)[rows].astype(np.float32))
            guesses = (head(states) @ target.embedding().T).argmax(-1).numpy()
            hits.extend(guesses == answer.tokens[answer.prompt_tokens:])
        return float(np.mean(hits))


if __name__ == "__main__":
    unittest.main()
