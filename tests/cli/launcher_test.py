"""launch/paceline-launch: who sits on which GPU of the described machines, and what does not fit."""

import fcntl
import os
import signal
import subprocess
import sys
import termios
import time
import tomllib
import unittest
from pathlib import Path

from paceline_cli import BINARY, CliTest, PROMPT, ROOT, TINY, environment
from serve_server import Server

MACHINES = ROOT / "configs" / "machines"
FAILURE, USAGE = 1, 2
CONTEXT_MB = 640 * 2**20 / 1e6  # of each GPU, kept for the driver
METHODS = ("four-stages", "fold", "pearl", "hybrid", "adadecode-parallel")
LAYERS = {"llama-8b": 32, "llama-70b": 80}
# Of bf16 weights: all but the norms, which are f32 and few.
WEIGHT_GB = {"llama-1b": 2.47, "llama-8b": 16.06, "llama-70b": 141.1}


def launch(*args: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run([str(ROOT / "launch" / "paceline-launch"), *args], capture_output=True, text=True,
                          timeout=120, env=environment(**{"PACELINE_BINARY": BINARY, **variables}), check=False)


def gpus_of(machine: str) -> list[dict]:
    """The machine's GPUs by number, as its file has them."""
    tables = tomllib.loads((MACHINES / machine).read_text())
    return [gpu for gpu in tables["gpu"] for _ in range(gpu.get("count", 1))]


def number(cell: str) -> float:
    return 0.0 if cell == "-" else float(cell)


class Table:
    """A printed plan: its stages by name, and the lines below the table."""

    def __init__(self, text: str):
        lines = text.splitlines()
        head = lines[1]
        names = head.split()
        self.stages: dict[str, dict[str, str]] = {}
        self.below = []
        for line in lines[2:]:
            words = line.split()
            if self.below or len(words) < len(names) or " -> " in line or line.startswith("not used: "):
                self.below.append(line)
                continue
            # Only a GPU's name may have blanks.
            row = dict(zip(names[:3], words[:3])) | dict(zip(names[4:], words[-6:]))
            row["name"] = " ".join(words[3:-6])
            self.stages[row["stage"]] = row

    def on(self, gpu: str) -> list[dict[str, str]]:
        return [row for row in self.stages.values() if row["gpu"] == gpu]

    def segments(self) -> list[dict[str, str]]:
        return [row for row in self.stages.values() if row["layers"] != "-"]

    def gpus(self) -> set[str]:
        return {row["gpu"] for row in self.stages.values() if row["gpu"] != "cpu"}

    def drafts(self) -> list[dict[str, str]]:
        return [row for row in self.stages.values() if row["layers"] == "-"]


class Plans(CliTest):
    def plan(self, method: str, target: str, draft: str, machine: str, *more: str) -> Table:
        args = ["--random", target, "--machine", str(MACHINES / machine), "--dry-run", *more]
        if method != "adadecode-parallel":
            args += ["--draft-model", draft]
        done = launch(method, *args)
        self.assertEqual((done.returncode, done.stderr), (0, ""), f"{method} {args}")
        return Table(done.stdout)

    def check_bytes(self, table: Table, machine: str) -> None:
        """On each GPU what is held, kept and free are its memory; nothing exceeds it."""
        for index, gpu in enumerate(gpus_of(machine)):
            rows = table.on(f"cuda:{index}")
            held = sum(number(row[key]) for row in rows for key in ("weights", "kv", "workspace"))
            for row in rows:
                self.assertEqual(row["name"], gpu["name"])
                self.assertGreaterEqual(number(row["free"]), 0)
                self.assertAlmostEqual(held + CONTEXT_MB + number(row["free"]), gpu["memory_gib"] * 2**30 / 1e6,
                                       delta=0.1 * (3 * len(rows) + 2))
            self.assertLessEqual(len({row["process"] for row in rows}), 1, "a GPU's memory belongs to one process")

    def check_target(self, table: Table, target: str) -> None:
        """The segments hold all layers once, in order, over GPUs in order, and all of its weights."""
        ends = [tuple(map(int, row["layers"].split(".."))) for row in table.segments()]
        self.assertEqual([first for first, _ in ends], [0] + [last + 1 for _, last in ends[:-1]])
        self.assertEqual(ends[-1][1], LAYERS[target] - 1)
        gpus = [row["gpu"] for row in table.segments()]
        self.assertEqual(gpus, sorted(gpus))
        weights = sum(number(row["weights"]) for row in table.segments()) / 1e3
        self.assertGreater(weights, 0.99 * WEIGHT_GB[target])
        # An exit has the final head and its own beside it.
        self.assertLess(weights, WEIGHT_GB[target] + 4.5)

    def check_links(self, table: Table, kind: str) -> None:
        """Two segments in one process exchange there, those of two GPUs say by which link they are joined."""
        segments = table.segments()
        lines = [line for line in table.below if "hidden states" in line]
        self.assertEqual(len(lines), len(segments) - 1)
        for line, before, after in zip(lines, segments, segments[1:]):
            self.assertTrue(line.startswith(f"{before['stage']} -> {after['stage']}, "), line)
            same = before["process"] == after["process"]
            gpus = f"{before['gpu']} and {after['gpu']}"
            apart = f"nccl: {gpus} do not reach each other" if kind == "host" else f"exported: {gpus} reach each other"
            self.assertTrue(line.endswith(", local: in the same process" if same else f", {apart}"), line)
            self.assertEqual(f"(link {kind}, " in line, before["gpu"] != after["gpu"], line)

    def check_cores(self, table: Table, machine: str) -> None:
        """Processes with a GPU are pinned to cores of their own, of the GPU's node."""
        tables = tomllib.loads((MACHINES / machine).read_text())
        nodes = {}
        for node in tables["numa"]:
            first, last = map(int, node["cores"].split("-"))
            nodes[node["node"]] = set(range(first, last + 1))
        seen: dict[int, str] = {}
        for row in table.stages.values():
            if row["gpu"] == "cpu":
                continue
            first, last = map(int, row["cores"].split("-"))
            node = gpus_of(machine)[int(row["gpu"].removeprefix("cuda:"))]["numa"]
            for core in range(first, last + 1):
                self.assertIn(core, nodes[node])
                self.assertEqual(seen.setdefault(core, row["process"]), row["process"])

    def check_all(self, table: Table, target: str, machine: str, kind: str) -> None:
        self.check_bytes(table, machine)
        self.check_target(table, target)
        self.check_links(table, kind)
        self.check_cores(table, machine)

    def test_8b_and_1b_on_one_gpu_are_one_process(self):
        for method in METHODS:
            with self.subTest(method=method):
                table = self.plan(method, "llama-8b", "llama-1b", "1-h200.toml")
                self.check_all(table, "llama-8b", "1-h200.toml", "none")
                self.assertEqual(table.gpus(), {"cuda:0"})

    def test_8b_and_1b_on_two_gpus_are_apart(self):
        for method in METHODS:
            with self.subTest(method=method):
                table = self.plan(method, "llama-8b", "llama-1b", "2-rtx-4090.toml")
                self.check_all(table, "llama-8b", "2-rtx-4090.toml", "host")
                self.assertEqual(table.gpus(), {"cuda:0", "cuda:1"})
                for row in table.drafts():
                    self.assertEqual(row["gpu"], "cuda:1")
                    self.assertAlmostEqual(number(row["weights"]) / 1e3, WEIGHT_GB["llama-1b"], delta=0.02)

    def test_8b_and_1b_on_four_gpus_have_one_each(self):
        for method in METHODS:
            with self.subTest(method=method):
                table = self.plan(method, "llama-8b", "llama-1b", "4-a100.toml")
                self.check_all(table, "llama-8b", "4-a100.toml", "nvlink")
                self.assertEqual(len(table.gpus()), len(table.stages))
                unused = [line for line in table.below if line.startswith("not used: ")]
                self.assertEqual(len(unused), 0 if len(table.stages) == 4 else 1)

    def test_70b_goes_in_segments_with_drafts_of_either_size(self):
        for machine in ("4-a100.toml", "8-h100.toml"):
            for method in METHODS:
                for draft in ("llama-1b", "llama-8b"):
                    with self.subTest(machine=machine, method=method, draft=draft):
                        table = self.plan(method, "llama-70b", draft, machine)
                        self.check_all(table, "llama-70b", machine, "nvlink")
                        self.assertGreaterEqual(len({row["gpu"] for row in table.segments()}), 2)
                        for row in table.drafts():
                            self.assertEqual(len(table.on(row["gpu"])), 1, "a GPU of its own")

    def test_stages_of_several_machines_show_machine_and_gpu_and_travel_by_the_network(self):
        for machine, gpus in (("2x4-a100-100gbe.toml", "2,3,4,5"), ("4x4-a100-100gbe.toml", "3,4,8,12")):
            with self.subTest(machine=machine):
                table = self.plan("fold", "llama-70b", "llama-8b", machine, "--gpus", gpus)
                nodes = [row["gpu"].split("/")[0] for row in table.segments()]
                self.assertEqual(nodes, sorted(nodes), "segments in the order of the machines")
                self.assertGreater(len(set(nodes)), 1)
                self.assertIn("(link network, 12.5 GB/s, 25 us), host: on two machines", "\n".join(table.below))

    def test_gpus_are_chosen_and_devices_that_the_file_names_win(self):
        table = self.plan("fold", "llama-8b", "llama-1b", "4-a100.toml", "--gpus", "1,3")
        self.assertEqual(table.gpus(), {"cuda:1", "cuda:3"})
        config = self.folder / "mine.toml"
        config.write_text((ROOT / "configs" / "pearl.toml").read_text().replace(
            'role = "draft"', 'role = "draft"\ndevice = "cuda:0"'))
        table = self.plan(str(config), "llama-8b", "llama-1b", "4-a100.toml")
        self.assertEqual(table.stages["draft"]["gpu"], "cuda:0")
        self.assertNotEqual(table.stages["target"]["gpu"], "cuda:0")


class Refusals(CliTest):
    def refuse(self, code: int, *args: str, naming: tuple[str, ...], **variables: str) -> None:
        done = launch(*args, **variables)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        for part in naming:
            self.assertIn(part, done.stderr)

    def test_what_does_not_fit_is_named_with_stage_device_and_bytes(self):
        self.refuse(FAILURE, "pearl", "--random", "llama-70b", "--draft-model", "llama-1b", "--dry-run", "--machine",
                    str(MACHINES / "2-rtx-4090.toml"),
                    naming=('[[stage]] "target-1" needs', "cuda:0 (NVIDIA GeForce RTX 4090)", "there are 25.08 GB"))
        self.refuse(FAILURE, "fold", "--random", "llama-8b", "--draft-model", "llama-70b", "--dry-run", "--machine",
                    str(MACHINES / "4-a100.toml"), naming=('[[stage]] "draft" needs',))

    def test_a_machine_with_a_mistake_is_named_with_file_and_line(self):
        machine = self.folder / "machine.toml"
        machine.write_text((MACHINES / "4-a100.toml").read_text().replace('"nvlink"', '"nvlnk"'))
        self.refuse(USAGE, "fold", "--random", "llama-8b", "--dry-run", "--machine", str(machine),
                    naming=(f"{machine}:", 'kind = "nvlnk" is not allowed'))
        self.refuse(FAILURE, "fold", "--random", "llama-8b", "--dry-run", "--machine", "/nonexistent/m.toml",
                    naming=("/nonexistent/m.toml",))

    def test_gpus_that_are_not_there_and_options_that_contradict(self):
        shape = ("--random", "llama-8b", "--dry-run", "--machine", str(MACHINES / "2-rtx-4090.toml"))
        self.refuse(USAGE, "fold", *shape, "--gpus", "0,2", naming=("--gpus 0,2", "no GPU 2", "has 2"))
        self.refuse(USAGE, "fold", *shape, "--gpus", "1,1", naming=("names a GPU twice",))
        self.refuse(USAGE, "fold", *shape, "--gpus", "some", naming=("--gpus", "some"))
        self.refuse(USAGE, "fold", *shape, "--device", "cuda:0", naming=("--device", "--gpus"))
        self.refuse(USAGE, "plain", *shape, naming=("--method or --config",))
        self.refuse(USAGE, naming=("no CONFIG",))
        self.refuse(FAILURE, "fold", PACELINE_BINARY="/nonexistent/paceline", naming=("launch/build",))


class Runs(CliTest):
    def test_the_launcher_runs_the_pipeline_on_the_gpu_that_it_finds(self):
        plain = self.run_ok("run", "-m", TINY, "--raw", "-p", PROMPT, "-n", "8", "--device", "cuda:0")
        done = launch("four-stages", "-m", TINY, "--raw", "-p", PROMPT, "-n", "8")
        self.assertEqual((done.returncode, done.stdout), (0, plain), done.stderr)
        table = Table(done.stderr[done.stderr.index("four-stages on this machine"):])
        self.assertEqual(table.gpus(), {"cuda:0"})

    def test_the_exit_code_and_the_message_are_the_programs(self):
        done = launch("fold", "-m", "/nonexistent/model.gguf", "-p", "x")
        self.assertEqual(done.returncode, FAILURE)
        self.assertIn("/nonexistent/model.gguf", done.stderr)

    def test_with_daemon_the_pipeline_serves_on_the_gpu_that_it_finds(self):
        command = ("env", f"PACELINE_BINARY={BINARY}", str(ROOT / "launch" / "paceline-launch"), "four-stages", "--daemon")
        with Server("--queue", "4", command=command) as server:
            self.assertTrue(any("cuda:0" in line for line in server.lines), server.lines)
            self.assertEqual(server.get("/props").json["method"], "four-stages")
            answer = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 8, "temperature": 0})
        wanted = launch("four-stages", "-m", TINY, "--raw", "-p", PROMPT, "-n", "8")
        self.assertEqual(answer.json["choices"][0]["text"], wanted.stdout.removesuffix("\n"))
        refused = launch("auto", "--daemon", "-m", TINY)
        self.assertEqual(refused.returncode, USAGE)
        self.assertIn("--gpus places stages", refused.stderr)

    def test_a_signal_reaches_the_program_and_the_exit_code_comes_back(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        os.write(writer, b"." * 4090)  # the answer waits in the middle until it is read
        never_end = [f"--logit-bias={token}=-inf" for token in range(3)]
        process = subprocess.Popen([str(ROOT / "launch" / "paceline-launch"), "four-stages", "-m", TINY, "-p", "x",
                                    "-n", "60", *never_end], stdout=writer, stderr=subprocess.PIPE,
                                   env=environment(PACELINE_BINARY=BINARY))
        os.close(writer)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        while int.from_bytes(fcntl.ioctl(reader, termios.FIONREAD, b"\0" * 4), sys.byteorder) == 4090:
            self.assertIsNone(process.poll(), "the answer was over too soon")
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        while os.read(reader, 65536):
            pass
        stderr = process.stderr.read().decode()
        self.assertEqual(process.wait(timeout=120), 130, stderr)

    def test_a_program_that_finds_no_gpu_says_what_a_dry_run_does(self):
        program = str(Path(BINARY).with_name("paceline"))
        if not os.path.exists(program) or os.path.exists("/dev/nvidiactl"):
            self.skipTest("skipped: there is a GPU, or no program that looks for one")
        done = subprocess.run([program, "run", "--method", "fold", "-m", TINY, "-p", "x", "--gpus", "all"],
                              capture_output=True, text=True, timeout=120, env=environment(), check=False)
        self.assertEqual(done.returncode, FAILURE)
        self.assertRegex(done.stderr, "no GPU was found .*--dry-run --machine|built without CUDA")


if __name__ == "__main__":
    unittest.main()
