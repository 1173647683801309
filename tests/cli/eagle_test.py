"""EAGLE drafts in processes: same tokens with features of the target, and which parts are refused."""

import json
import random
import struct
import unittest
from pathlib import Path

from paceline_cli import CliTest, PROMPT, TINY, paceline

SAMPLED = ["--temp", "0.8", "--seed", "7", "--repeat-penalty", "1.2"]
DIM, HEADS, KV_HEADS, HEAD_DIM, FFN = 64, 4, 2, 16, 96  # of the tiny model
SHAPES = {"layers.0.attn_norm": [DIM], "layers.0.ffn_norm": [DIM], "output_norm": [DIM],
          "layers.0.q": [HEADS * HEAD_DIM, DIM], "layers.0.k": [KV_HEADS * HEAD_DIM, DIM],
          "layers.0.v": [KV_HEADS * HEAD_DIM, DIM], "layers.0.attn_out": [DIM, HEADS * HEAD_DIM],
          "layers.0.gate": [FFN, DIM], "layers.0.up": [FFN, DIM], "layers.0.down": [DIM, FFN],
          "fuse": [DIM, 2 * DIM]}


def write_part(path: Path, target: str, layers: str = "") -> None:
    """A draft of random numbers: it proposes, and is seldom right."""
    source = random.Random(5)
    metadata = {"paceline.format": "parts-1", "paceline.part": "eagle", "paceline.target": target,
                "paceline.name": "a test's", "licence": "CC0", "layers": "1", "dim": str(DIM),
                "heads": str(HEADS), "kv_heads": str(KV_HEADS), "head_dim": str(HEAD_DIM),
                "ffn_dim": str(FFN)}
    shapes = dict(SHAPES)
    if layers:
        metadata["feature_layers"] = layers
        shapes["join"] = [DIM, DIM * len(layers.split(","))]
    header, data = {"__metadata__": metadata}, b""
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        values = [1.0] * count if len(shape) == 1 else [source.gauss(0, 0.1) for _ in range(count)]
        begin, data = len(data), data + struct.pack(f"<{count}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    tokens = list(range(0, 512, 2))
    begin, data = len(data), data + struct.pack(f"<{len(tokens)}i", *tokens)
    header["tokens"] = {"dtype": "I32", "shape": [len(tokens)], "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Eagle(CliTest):
    def part(self, layers: str = "") -> str:
        target = json.loads(self.run_ok("inspect", TINY, "-o", "json"))["fingerprint"]
        folder = self.folder / f"parts-{layers}"
        folder.mkdir(exist_ok=True)
        write_part(folder / "eagle.safetensors", target, layers)
        return str(folder)

    def test_every_method_with_an_eagle_draft_gives_the_tokens_of_plain_decoding(self):
        parts = self.part()
        for sampling in ([], SAMPLED):
            args = ["-p", PROMPT, "-n", "40", *sampling]
            plain = self.generate(*args)[1]
            for method in ("eagle2", "pearl-eagle", "fold-eagle"):
                with self.subTest(method, sampling=sampling):
                    self.assertEqual(self.generate("--method", method, "--parts", parts, *args)[1], plain)

    def test_a_draft_that_reads_states_of_two_layers_gives_them_too_and_needs_one_segment(self):
        parts = self.part("1,2")
        args = ["-p", PROMPT, "-n", "40"]
        self.assertEqual(self.generate("--method", "eagle2", "--parts", parts, *args)[1], self.generate(*args)[1])
        done = paceline("run", "-m", TINY, "--method", "fold-eagle", "--parts", parts, "-p", "x", "-n", "1")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"give the target one segment", done.stderr)

    def test_without_a_part_the_stand_in_drafts_or_the_file_is_refused(self):
        args = ["-p", PROMPT, "-n", "16"]
        self.assertEqual(self.generate("--method", "eagle2", "--parts", "none", *args)[1], self.generate(*args)[1])
        own = self.folder / "own.toml"
        own.write_text('[[stage]]\nname = "draft"\nrole = "draft"\n[[stage]]\nname = "target"\nrole = "segment"\n'
                       '[draft]\nsource = "eagle"\n')
        done = paceline("run", "-m", TINY, "--config", str(own), "-p", "x", "-n", "1")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b'[draft] source = "eagle": there is no eagle.safetensors', done.stderr)


if __name__ == "__main__":
    unittest.main()
