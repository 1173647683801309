"""Packed copies of folders that are loaded with --dtype int8 or q4: made once, exact, verified, left out on request."""

import fcntl
import json
import os
import shutil
import struct
import subprocess
import time
import unittest
from pathlib import Path

import part_files
from paceline_cli import BINARY, CliTest, environment, paceline

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
FOLDER = str(FIXTURES / "folders" / "llama-untied-f16")
OTHER = str(FIXTURES / "folders" / "llama-linear-bf16")


def sealed(content: bytes) -> bytes:
    """`content` with the seal of model/weights/packed_copy.hpp."""
    word, lanes = (1 << 64) - 1, 8

    def mixed(state: int, number: int) -> int:
        product = ((state ^ number) * 0x9E3779B97F4A7C15) & word
        return (product << 29 | product >> 35) & word

    whole = len(content) // (8 * lanes) * lanes
    sums = list(range(1, lanes + 1))
    for i, (number,) in enumerate(struct.iter_unpack("<Q", content[:8 * whole])):
        sums[i % lanes] = mixed(sums[i % lanes], number)
    total = len(content)
    for number in (*sums, *content[8 * whole:]):
        total = mixed(total, number)
    return content + b"PACEseal" + struct.pack("<Q", total)


class PackedCache(CliTest):
    def setUp(self) -> None:
        super().setUp()
        self.cache = self.folder / "cache" / "paceline" / "packed"
        self.env = environment(XDG_CACHE_HOME=str(self.folder / "cache"))

    def words(self, model: str, dtype: str, ids: Path, *args: str) -> list[str]:
        return ["run", "-m", model, "-p", "Hello, world", "-n", "16", "-t", "1", "--raw", "--dtype", dtype,
                "--ids", str(ids), *args]

    def ids(self, *args: str, model: str = FOLDER, dtype: str = "q4") -> list[int]:
        """The tokens; what was said on stderr is kept."""
        path = self.folder / "ids.json"
        done = paceline(*self.words(model, dtype, path, *args), env=self.env)
        self.said = done.stderr.decode()
        self.assertEqual(done.returncode, 0, self.said)
        return json.loads(path.read_text())

    def copies(self) -> list[Path]:
        return sorted(self.cache.glob("*.gguf"))

    def test_the_first_start_makes_a_copy_and_the_next_one_uses_it(self):
        texts = set()
        for dtype, suffix in (("int8", "-q8_0.gguf"), ("q4", "-q4_1.gguf")):
            wanted = self.ids("--no-cache", dtype=dtype)
            self.assertEqual(self.ids(dtype=dtype), wanted)
            made = [copy for copy in self.copies() if copy.name.endswith(suffix)]
            self.assertEqual(len(made), 1)
            before = made[0].stat()
            self.assertEqual(self.ids(dtype=dtype), wanted)
            self.assertEqual(self.ids("--method", "four-stages", dtype=dtype), wanted)
            after = made[0].stat()
            self.assertEqual((after.st_ino, after.st_mtime_ns), (before.st_ino, before.st_mtime_ns))
            texts.add(tuple(wanted))
        self.assertEqual(len(texts), 2, "the dtype is seen in the text of random weights")
        self.assertEqual(len(list(self.cache.glob("*.known"))), 1 if self.is_stable(FOLDER) else 0)
        self.assertEqual(list(self.cache.glob("*.paceline-part")), [])

    def is_stable(self, folder: str) -> bool:
        """Whether the files are old enough to be known by their times (a fresh checkout is not)."""
        newest = max(file.stat().st_ctime for file in Path(folder).glob("*.safetensors"))
        return newest + 3 < os.stat(self.cache).st_ctime

    def test_what_is_read_comes_from_the_copy(self):
        wanted = self.ids()
        copy, = self.copies()
        whole = copy.read_bytes()
        self.change(copy)
        self.assertNotEqual(self.ids(), wanted, "a copy with other numbers gives other tokens")
        self.assertNotIn("damaged", self.said)
        copy.write_bytes(sealed(whole[:-16]))
        self.assertEqual(copy.read_bytes(), whole)
        self.assertEqual(self.ids(), wanted)

    def test_a_copy_of_another_model_is_made_anew(self):
        wanted = self.ids()
        other = self.ids(model=OTHER)
        self.assertNotEqual(wanted, other)
        of_folder, of_other = sorted(self.copies(), key=lambda copy: copy.stat().st_mtime_ns)
        shutil.copy(of_other, of_folder)  # whole, but of another model: same shapes, no head of its own
        self.assertEqual(self.ids(), wanted)
        self.assertIn("is damaged", self.said)

    def test_a_damaged_copy_is_replaced_by_a_new_one(self):
        wanted = self.ids()
        copy, = self.copies()
        whole = copy.read_bytes()
        changed = bytearray(whole)
        changed[len(whole) // 2] ^= 1
        for damage in (bytes(changed), whole[:-100], b"", b"GGUF"):
            copy.write_bytes(damage)
            self.assertEqual(self.ids(), wanted)
            self.assertIn(f"{copy}", self.said)
            self.assertIn("it is replaced by a new one", self.said)
            self.assertEqual(copy.read_bytes(), whole)
            self.ids()
            self.assertNotIn("damaged", self.said)

    def test_a_copy_is_found_by_content_and_not_by_name(self):
        moved = self.folder / "moved"
        shutil.copytree(FOLDER, moved)
        time.sleep(3)  # younger files are not known by what the file system says of them
        wanted = self.ids()
        self.assertEqual(self.ids(model=str(moved)), wanted)
        self.assertEqual(len(self.copies()), 1)
        self.assertEqual(len(list(self.cache.glob("*.known"))), 2)
        file = moved / "model-00004-of-00004.safetensors"
        weights = bytearray(file.read_bytes())
        times = file.stat()
        weights[-2:] = b"\x00\x3c"  # a number of the last tensor
        file.write_bytes(weights)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # as if nothing had been written
        self.ids(model=str(moved))
        self.assertEqual(len(self.copies()), 2, "other bytes have another copy, whatever their times say")

    def test_nothing_is_kept_where_it_is_not_wanted_or_would_not_be_right(self):
        self.ids("--no-cache")
        self.ids(dtype="auto")
        self.ids(dtype="bf16")
        self.run_ok("inspect", FOLDER, env=self.env)
        gguf = str(FIXTURES / "models" / "llama-untied-f16.gguf")
        self.ids(model=gguf)
        target = json.loads(self.run_ok("inspect", FOLDER, "-o", "json"))["fingerprint"]
        lora = part_files.put(self.folder / "part", "lora", part_files.lora(Path(gguf).read_bytes(), target))
        merged = self.ids("--lora", str(lora))
        self.assertFalse(self.cache.exists())
        self.ids()
        self.assertEqual(self.ids("--lora", str(lora)), merged)

    def near_copy(self) -> str:
        """The folder with another last number: it drafts well for the folder, and has a copy of its own."""
        near = self.folder / "near"
        shutil.copytree(FOLDER, near)
        file = near / "model-00004-of-00004.safetensors"
        weights = bytearray(file.read_bytes())
        weights[-2:] = b"\x00\x3c"
        file.write_bytes(weights)
        return str(near)

    def change(self, copy: Path) -> None:
        """Half of its numbers, under a seal that is right."""
        whole = copy.read_bytes()
        half = len(whole) // 2
        copy.write_bytes(sealed(whole[:half] + bytes(byte ^ 1 for byte in whole[half:-16])))

    def drafted(self, *args: str, model: str = FOLDER) -> tuple[list[int], int]:
        """The tokens, and how many of them a draft model proposed."""
        stats = self.folder / "stats.json"
        ids = self.ids("--config", self.as_configured("speculative"), "--stats", str(stats), *args, model=model)
        return ids, json.loads(stats.read_text())["pipeline"]["accepted_tokens"]

    def test_a_draft_model_is_read_from_its_copy(self):
        near = self.near_copy()
        wanted, accepted = self.drafted("--draft-model", near, "--no-cache")
        self.assertFalse(self.cache.exists())
        self.assertGreater(accepted, 0)
        self.assertEqual(self.drafted("--draft-model", near), (wanted, accepted))
        of_target, of_draft = sorted(self.copies(), key=lambda copy: copy.stat().st_mtime_ns)
        self.assertEqual(self.drafted("--draft-model", near), (wanted, accepted))
        self.assertEqual(len(self.copies()), 2)
        self.change(of_draft)
        ids, fewer = self.drafted("--draft-model", near)
        self.assertEqual(ids, wanted, "a draft never changes a token")
        self.assertLess(fewer, accepted, "a copy with other numbers drafts other tokens")
        of_draft.write_bytes(of_draft.read_bytes()[:-100])
        self.assertEqual(self.drafted("--draft-model", near), (wanted, accepted))
        self.assertIn(f"{of_draft}", self.said)
        self.assertNotIn(f"{of_target}", self.said)

    def test_a_draft_beside_a_target_with_a_lora_has_its_copy(self):
        near = self.near_copy()
        gguf = str(FIXTURES / "models" / "llama-untied-f16.gguf")
        target = json.loads(self.run_ok("inspect", FOLDER, "-o", "json"))["fingerprint"]
        lora = part_files.put(self.folder / "part", "lora", part_files.lora(Path(gguf).read_bytes(), target))
        merged = self.ids("--lora", str(lora))
        self.assertFalse(self.cache.exists(), "the sum of folder and LoRA has no copy")
        self.assertEqual(self.drafted("--draft-model", near, "--lora", str(lora))[0], merged)
        self.assertEqual(len(self.copies()), 1)

    def test_check_bench_and_simulate_have_the_copies_of_run(self):
        near = self.near_copy()
        config = self.folder / "p.toml"
        config.write_text('[[stage]]\nname = "d"\nrole = "draft"\n[[stage]]\nname = "t"\nrole = "segment"\n'
                          f'[draft]\nsource = "model"\nmodel = "{near}"\ngamma = 4\n')
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text('{"prompt": "Hello, world"}\n')
        self.run_ok("check", "-m", FOLDER, "--config", str(config), "--prompts", str(prompts), "-n", "8", "-t", "1",
                    "--dtype", "int8", env=self.env)
        self.assertEqual(len(self.copies()), 2)
        shutil.rmtree(self.cache)
        bench = ("bench", "-m", FOLDER, "-t", "1", "-p", "8", "-n", "0", "-r", "1", "-o", "json", "--dtype",
                 "bf16,int8,q4")
        self.run_ok(*bench, "--no-cache", env=self.env)
        self.assertFalse(self.cache.exists())
        rows = json.loads(self.run_ok(*bench, env=self.env))
        self.assertEqual(len(rows), 3)
        self.assertEqual(sorted(copy.name[-9:-5] for copy in self.copies()), ["q4_1", "q8_0"])
        shutil.rmtree(self.cache)
        self.run_ok("simulate", "-m", FOLDER, "--measure-costs", str(self.folder / "costs"), "--draft-models", near,
                    "--dtype", "q4", "--rows", "1,2,4,8,64", "--contexts", "8,64", "--depths", "1,2",
                    "--measure-threads", "1", "--neighbours", "0", "--samples", "1", env=self.env)
        self.assertEqual(len(self.copies()), 2)
        shutil.rmtree(self.cache)
        def accepted() -> int:
            report = self.folder / "report.json"
            self.run_ok("simulate", "-m", FOLDER, "--config", str(config), "--costs", str(self.folder / "costs"),
                        "--dtype", "q4", "--prompt", "Hello", "-n", "32", "--check", "--json", str(report), env=self.env)
            return json.loads(report.read_text())[0]["figures"]["accepted_tokens"]

        near_tokens = accepted()
        of_target, of_draft = sorted(self.copies(), key=lambda copy: copy.stat().st_mtime_ns)
        self.change(of_draft)
        self.assertLess(accepted(), near_tokens, "the draft is read from its copy")
        self.assertEqual(len(self.copies()), 2)

    def test_processes_that_begin_at_once_make_one_copy(self):
        wanted = self.ids("--no-cache")
        paths = [self.folder / f"ids-{i}.json" for i in range(4)]
        running = [subprocess.Popen([BINARY, *self.words(FOLDER, "q4", path, "-q")], env=self.env,
                                    stdout=subprocess.DEVNULL) for path in paths]
        self.assertEqual([process.wait(60) for process in running], [0] * 4)
        self.assertEqual([json.loads(path.read_text()) for path in paths], [wanted] * 4)
        self.assertEqual(len(self.copies()), 1)
        self.assertEqual(list(self.cache.glob("*.paceline-part")), [])

    def test_what_a_killed_process_left_is_taken_over(self):
        wanted = self.ids()
        copy, = self.copies()
        whole = copy.read_bytes()
        copy.rename(f"{copy}.paceline-part")
        with open(f"{copy}.paceline-part", "ab") as part:
            part.write(b"more")
        self.assertEqual(self.ids(), wanted)
        self.assertEqual(copy.read_bytes(), whole)
        self.assertEqual(list(self.cache.glob("*.paceline-part")), [])

    def test_what_interrupted_processes_left_of_other_models_is_removed(self):
        self.cache.mkdir(parents=True)
        left = self.cache / "0123-q4_1.gguf.paceline-part"
        held = self.cache / "4567-q4_1.gguf.paceline-part"
        other = self.cache / "notes.txt"
        for file in (left, held, other):
            file.write_text("half")
        with held.open("r+") as writer:
            fcntl.flock(writer, fcntl.LOCK_EX)
            self.ids()
        self.assertFalse(left.exists())
        self.assertTrue(held.exists(), "its writer still runs")
        self.assertTrue(other.exists())
        self.ids()
        self.assertFalse(held.exists())

    def test_a_cache_that_cannot_be_written_costs_a_remark_and_no_answer(self):
        wanted = self.ids("--no-cache")
        (self.folder / "cache").write_text("a file")
        self.assertEqual(self.ids(), wanted)
        self.assertIn(f"no packed copy of {FOLDER} is kept: ", self.said)
        self.ids("-q")
        self.assertEqual(self.said, "")


if __name__ == "__main__":
    unittest.main()
