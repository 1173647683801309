"""The scripts beside paceline_cuda_bench, without a GPU and without the peers: what is written, read, told."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from peer_report import read_shape  # noqa: E402: found through the line above
from synthetic_gguf import write_gguf  # noqa: E402: likewise

SHAPES = HERE.parent.parent / "configs" / "shapes"
TINY = SHAPES / "tiny.toml"
PACELINE = os.environ.get("PACELINE_BINARY", str(HERE.parent.parent / "build" / "release" / "paceline"))

# Writes the words of its command line down and says what llama-bench and llama-batched-bench say.
LLAMA = f"""#!{sys.executable}
import json, sys
from pathlib import Path
words = sys.argv[1:]
here = Path(__file__)
here.with_suffix(".words").write_text(json.dumps(words))
option = dict(zip(words, words[1:]))
assert Path(option["-m"]).stat().st_size > 190000
if here.name == "llama-bench":
    for ub in (512, 2048):
        common = dict(build_commit="abc", backends="CUDA", gpu_info="a card", model_type="tiny", n_ubatch=ub)
        print(json.dumps(dict(common, n_prompt=2048, n_gen=0, samples_ns=[9e9, 4e9 if ub == 512 else 2e9, 1e6])))
        print(json.dumps(dict(common, n_prompt=0, n_gen=128, samples_ns=[128e6, 128e6, 256e6])))
else:
    print("a line of its own")
    for seconds in (1.0, 3.0, 2.0):
        for pp in option["-npp"].split(","):
            for pl in (1, 8):
                print(json.dumps(dict(pp=int(pp), pl=pl, tg=32, t_tg=32e-3 * seconds * (1.5 if pl == 8 else 1))))
"""

# Stands for paceline_cuda_bench and for a Python with torch: figures, or exit code and message of a file.
PROGRAM = f"""#!{sys.executable}
import json, sys
from pathlib import Path
said = Path(__file__).with_suffix(".says")
if said.exists():
    code, message = said.read_text().split(" ", 1)
    print(message, file=sys.stderr)
    sys.exit(int(code))
words = sys.argv[1:]
Path(__file__).with_suffix(".words").write_text(json.dumps(words))
option = dict(zip(words, words[1:]))
figures = json.loads(Path(__file__).with_suffix(".figures").read_text())
Path(option["--json"]).write_text(json.dumps(dict(card="a card", figures=figures)))
"""


class Folder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def program(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def script(self, name: str, *words, **variables: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-B", str(HERE / name), *map(str, words)], capture_output=True,
                              text=True, check=False, env=os.environ | variables)


class Shapes(Folder):
    def test_every_shape_is_read_and_counts_what_the_bench_counts(self):
        shapes = {path.stem: read_shape(path) for path in SHAPES.glob("*.toml")}
        self.assertEqual(shapes["llama-8b"].layer_weights(), 218_103_808)
        # Weights without the embedding, which is not read as a whole, and 131,072 bytes for each of 513 keys.
        self.assertEqual(shapes["llama-8b"].batch_bytes(1, 512), 2 * (32 * 218_103_808 + 128256 * 4096) + 513 * 131072)
        # 2,048 tokens: 2 for each weight, 4 for each number of q and each of (t + 1) keys.
        self.assertEqual(shapes["llama-8b"].prefill_operations(2048),
                         32 * (2 * 218_103_808 * 2048 + 4 * 4096 * 2048 * 2049 / 2))
        self.assertTrue(all(shape.family == "llama" for shape in shapes.values()))

    def test_a_key_that_no_shape_has_is_refused_by_name(self):
        wrong = self.folder / "wrong.toml"
        wrong.write_text(TINY.read_text() + "depth = 3\n")
        done = self.script("synthetic_gguf.py", wrong, "-o", self.folder / "m.gguf")
        self.assertEqual(done.returncode, 1)
        self.assertIn("'depth'", done.stderr)


class RandomGguf(Folder):
    def inspect(self, path: Path) -> str:
        done = subprocess.run([PACELINE, "inspect", "-m", str(path)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def written(self, **changes) -> Path:
        text = TINY.read_text() + "".join(f"{key} = {value}\n" for key, value in changes.items())
        keys = [line.split(" = ")[0] for line in text.splitlines()]
        kept = [line for i, line in enumerate(text.splitlines()) if keys[i] not in keys[i + 1:]]
        shape, path = self.folder / "shape.toml", self.folder / "shape.gguf"
        shape.write_text("\n".join(kept) + "\n")
        self.assertEqual(write_gguf(read_shape(shape), path), path.stat().st_size)
        return path

    def test_what_is_written_is_a_model_of_that_shape(self):
        said = self.inspect(self.written())
        for line in ("architecture  llama, 94.5 k parameters, a head of its own",
                     "shape         2 layers, 64 wide, 4 heads of 16, 2 KV heads, feed-forward 96",
                     "rope          base 10000, 16 dimensions, scaling none", "context       512 tokens",
                     "vocabulary    256 tokens"):
            self.assertIn(line, said)
        self.assertRegex(said, r"blk\.\*\.ffn_down\.weight +2 +BF16 +\[64, 96\]")

    def test_tied_embeddings_biases_and_norms_of_heads_are_there_or_not(self):
        self.assertIn("tied embeddings", self.inspect(self.written(tied_embeddings="true")))
        self.assertIn("architecture  qwen2", self.inspect(self.written(qkv_bias="true")))
        said = self.inspect(self.written(qk_norm="true"))
        self.assertIn("architecture  qwen3", said)
        self.assertIn("blk.*.attn_k_norm.weight", said)

    def test_the_model_can_be_computed_with(self):
        done = subprocess.run([PACELINE, "bench", "-m", str(self.written()), "-t", "1", "-p", "8", "-n", "4", "-r",
                               "1"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_rows_of_a_matrix_differ(self):
        data = self.written().read_bytes()
        rows = {data[-32768 + 128 * i:-32768 + 128 * (i + 1)] for i in range(256)}  # the head
        self.assertEqual(len(rows), 256)

    def test_other_types_are_refused(self):
        shape = self.folder / "shape.toml"
        shape.write_text(TINY.read_text().replace('"bf16"', '"q4_0"'))
        done = self.script("synthetic_gguf.py", shape, "-o", self.folder / "m.gguf")
        self.assertEqual(done.returncode, 1)
        self.assertIn("only bf16 is made", done.stderr)


class LlamaPeer(Folder):
    def told(self, *words) -> dict:
        for name in ("llama-bench", "llama-batched-bench"):
            self.program(name, LLAMA)
        told = self.folder / "f.json"
        done = self.script("llama_peer.py", "--shape", TINY, "--llama", self.folder, "--work", self.folder, "--rows",
                           "1,8", "--contexts", "64", "--json", told, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(told.read_text())

    def test_without_the_rates_of_the_card_no_share_is_told(self):
        everything = self.told()
        self.assertFalse([name for name in everything["figures"] if "share" in name])
        llama_bench, batches = everything["tables"]
        for table, column in ((llama_bench, "of the data sheet"), (batches, "of a copy")):
            at = table["header"].index(column)
            self.assertEqual({row[at] for row in table["rows"]} - {""}, {"-"})

    def test_medians_and_rates_of_what_the_programs_say(self):
        everything = self.told("--bandwidth", "4e9", "--flops", "1e12")
        figures = everything["figures"]
        seconds, read = 2e-3, read_shape(TINY).batch_bytes(1, 64 + 16)
        self.assertIn(f"{100 * read / seconds / 4e9:.1f} %", everything["tables"][1]["rows"][0])
        self.assertAlmostEqual(figures["batch.wall.seconds.1.64"], 2e-3)
        self.assertAlmostEqual(figures["batch.wall.seconds.8.64"], 3e-3)
        self.assertAlmostEqual(figures["batch.wall.ratio.8.64"], 1.5)
        self.assertAlmostEqual(figures["decode.seconds.128"], 1e-3)
        self.assertAlmostEqual(figures["prefill.wall.seconds.512"], 4.0)
        self.assertAlmostEqual(figures["prefill.wall.seconds.2048"], 2.0)
        self.assertEqual(figures["prefill.share"], figures["prefill.share.2048"])
        self.assertIn("nvidia-smi", everything["card"] + " nvidia-smi")
        self.assertEqual(everything["build"], "llama.cpp abc, CUDA, a card; tiny")
        words = json.loads((self.folder / "llama-batched-bench.words").read_text())
        self.assertIn("-pps", words)
        self.assertEqual(words[words.index("-npl") + 1], ",".join(["1,8"] * 5))
        self.assertEqual(list(self.folder.glob("llama-peer-*")), [])  # the synthetic file is gone

    def test_without_a_build_it_says_how_to_make_one(self):
        done = self.script("llama_peer.py", "--shape", TINY, "--llama", self.folder)
        self.assertEqual(done.returncode, 77)
        self.assertIn("bench/build_llama_cpp --cuda", done.stderr)


class Ratios(Folder):
    def peers(self, *words, figures=None) -> subprocess.CompletedProcess:
        figures = (figures or {}) | {"batch.wall.seconds.1.512": 0.002, "prefill.wall.seconds.64": 0.5, "prefill.wall.seconds.512": 0.25}
        (self.folder / "bench.figures").write_text(json.dumps(figures))
        (self.folder / "python.figures").write_text(json.dumps(
            {"batch.wall.seconds.1.512": 0.003, "prefill.wall.seconds.2048": 0.2}))
        return self.script("peers.py", "--shape", TINY, "--out", self.folder / "out", "--bench",
                           self.program("bench", PROGRAM), "--python", self.program("python", PROGRAM), "--llama",
                           self.folder, *words)

    def test_rates_are_compared_and_the_missing_is_named(self):
        done = self.peers()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| batch of 1 after 512 | 500 | 333 | **1.50** | - | - |", done.stdout)
        self.assertIn("| prefill of 2048 | 8192 | 10240 | **0.80** | - | - |", done.stdout)
        self.assertIn("llama is left out: llama_peer: llama-bench and llama-batched-bench are not in", done.stdout)
        self.assertIn("Paceline's two runs: at most 0.0 % apart", done.stdout)
        told = json.loads((self.folder / "out" / "tiny.peers.json").read_text())
        self.assertAlmostEqual(told["figures"]["ratio.torch.batch.of.1.after.512"], 1.5)
        self.assertAlmostEqual(told["figures"]["paceline.batch.wall.seconds.1.512"], 0.002)

    def test_peers_are_given_the_rates_that_our_bench_measured_or_found(self):
        def words(**known) -> list[str]:
            self.peers(**known)
            return json.loads((self.folder / "python.words").read_text())

        told = words(figures={"copy.bytes_per_s": 3e12, "sheet.flops": 9e14})
        self.assertEqual(float(told[told.index("--bandwidth") + 1]), 3e12)
        self.assertEqual(float(told[told.index("--flops") + 1]), 9e14)
        told = words(figures={"copy.bytes_per_s": 3e12})  # a card without a data sheet
        self.assertNotIn("--flops", told)

    def test_without_any_peer_there_is_nothing_to_compare(self):
        (self.folder / "python.says").write_text("77 no torch")
        done = self.peers()
        self.assertEqual(done.returncode, 77)
        self.assertIn("no torch; llama_peer:", done.stderr)

    def test_a_peer_that_fails_does_not_hide_the_others(self):
        for name in ("llama-bench", "llama-batched-bench"):
            self.program(name, LLAMA)
        (self.folder / "python.says").write_text("3 broken")
        done = self.peers("--rows", "1,8", "--contexts", "512")
        self.assertEqual(done.returncode, 1)
        self.assertIn("torch: exit code 3: broken", done.stderr)
        self.assertIn("| batch of 1 after 512 | 500 | - | - | 500 | **1.00** |", done.stdout)


class TorchPeer(Folder):
    def test_without_torch_it_says_what_is_missing(self):
        (self.folder / "torch.py").write_text("raise ImportError('no torch here')\n")
        done = self.script("torch_peer.py", "--shape", TINY, PYTHONPATH=str(self.folder))
        self.assertEqual(done.returncode, 77)
        self.assertIn("no torch here; bench/cuda/requirements.txt", done.stderr)


if __name__ == "__main__":
    unittest.main()
