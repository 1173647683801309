"""paceline serve as a service of systemd: when it is ready, and what the unit takes from it."""

import configparser
import os
import re
import shutil
import signal
import socket
import subprocess
import unittest
from pathlib import Path

from paceline_cli import BINARY, CliTest, ROOT, pipeline_toml
from serve_server import Server

UNIT = ROOT / "launch/package/paceline.service"
EXPOSURE_MAX = 2.0  # of 10, as systemd counts it; a service without any limits has 9.6


class Ready(CliTest):
    def bound(self, name: str) -> socket.socket:
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(manager.close)
        manager.bind(name)
        manager.setblocking(False)
        os.environ["NOTIFY_SOCKET"] = name.replace("\0", "@")
        self.addCleanup(os.environ.pop, "NOTIFY_SOCKET", None)
        return manager

    def test_the_manager_is_told_when_the_model_answers_and_not_before(self):
        # A configuration that cannot be read to its end until the pipe is written.
        pipe, config = self.folder / "pipe.toml", self.folder / "config.toml"
        os.mkfifo(pipe)
        config.write_text('extends = "pipe.toml"\n')
        for name in (str(self.folder / "notify"), f"\0paceline-test-{os.getpid()}"):
            manager = self.bound(name)
            with Server("--config", str(config), "--alias", "tiny", wait_ready=False) as server:
                self.assertEqual(server.get("/health").json["status"], "loading")
                self.assertRaises(BlockingIOError, manager.recv, 4096)
                pipe.write_text(pipeline_toml(1, False))
                manager.settimeout(120)
                told = manager.recv(4096).decode().split("\n")
                self.assertEqual(told[0], "READY=1")
                self.assertIn("model tiny, method ", told[1])
                self.assertEqual(server.chat(max_tokens=2).status, 200)
                server.process.send_signal(signal.SIGTERM)
                self.assertIn("STOPPING=1", manager.recv(4096).decode().split("\n"))
                self.assertEqual(server.process.wait(timeout=120), 0)

    def test_a_manager_that_cannot_be_told_ends_nothing(self):
        os.environ["NOTIFY_SOCKET"] = str(self.folder / "nothing")
        self.addCleanup(os.environ.pop, "NOTIFY_SOCKET")
        with Server("--method", "autoregressive") as server:
            self.assertEqual(server.chat(max_tokens=2).status, 200)


class Unit(CliTest):
    def unit(self) -> configparser.RawConfigParser:
        read = configparser.RawConfigParser(strict=True)
        read.optionxform = str
        read.read(UNIT)
        return read

    def test_it_waits_for_the_model_and_ends_as_the_server_does(self):
        service = self.unit()["Service"]
        self.assertEqual(service["Type"], "notify")
        self.assertEqual(service["KillMode"], "mixed")  # SIGTERM goes to the server alone: it drains
        drain = 30  # seconds, as of --drain
        self.assertGreater(int(service["TimeoutStopSec"]), drain)
        program, command, *_ = service["ExecStart"].split()
        self.assertEqual((program, command), ("paceline", "serve"))

    def copy(self) -> str:
        """With the program that was built in place of the one on the path."""
        copy = self.folder / "paceline.service"
        copy.write_text(UNIT.read_text().replace("ExecStart=paceline ", f"ExecStart={BINARY} "))
        return str(copy)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "skipped: systemd-analyze is not here")
    def test_systemd_knows_every_line_of_it(self):
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", self.copy()],
                              capture_output=True, text=True, timeout=120, check=False)
        own = [line for line in done.stderr.splitlines() if "paceline" in line]
        self.assertEqual(own, [])

    @unittest.skipUnless(shutil.which("systemd-analyze"), "skipped: systemd-analyze is not here")
    def test_it_leaves_the_service_few_rights(self):
        done = subprocess.run(["systemd-analyze", "security", "--no-pager", "--offline=true", self.copy()],
                              capture_output=True, text=True, timeout=120, check=False)
        found = re.search(r"Overall exposure level for paceline.service: ([0-9.]+)", done.stdout)
        self.assertIsNotNone(found, done.stdout + done.stderr)
        self.assertLessEqual(float(found[1]), EXPOSURE_MAX, done.stdout)

    def test_the_program_works_with_the_rights_that_are_left(self):
        """What can be tried without systemd: no new rights, no writable and executable memory is asked for."""
        with Server("--method", "prompt-lookup") as server:
            for pid in (server.process.pid, *server.stages()):
                maps = Path(f"/proc/{pid}/maps").read_text()
                self.assertEqual([line for line in maps.splitlines() if " rwx" in line], [])


if __name__ == "__main__":
    unittest.main()
