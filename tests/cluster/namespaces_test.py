"""The hosts of these tests, without Paceline: what a cut, a rate, a wire and a frozen machine do."""

import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from namespaces import NAMESPACES, Network, Way, Wire, why_not

# Answers each line with the same line.
ECHO = """
import socket, sys
server = socket.create_server(("0.0.0.0", 7000))
print("ready", flush=True)
while True:
    peer, _ = server.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while block := peer.recv(1 << 16):
        peer.sendall(block)
"""
# Connects to argv[1] and prints the time of each round trip that stdin asks for with a size; "lost" after 0.5 s.
ASK = """
import socket, sys, time
peer = socket.create_connection((sys.argv[1], 7000), timeout=5)
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
print("ready", flush=True)
owed = 0
for line in sys.stdin:
    size, limit = line.split()
    owed += int(size)
    start = time.monotonic()
    peer.settimeout(float(limit))
    try:
        if int(size): peer.sendall(b"x" * int(size))
        while owed: owed -= len(peer.recv(1 << 16))
        print(time.monotonic() - start, flush=True)
    except TimeoutError:
        print("lost", flush=True)
"""

# Connects to argv[1]; asked by a line of stdin, says whether the connection has ended within half a second.
WAIT = """
import socket, sys
peer = socket.create_connection((sys.argv[1], 7000), timeout=5)
print("ready", flush=True)
sys.stdin.readline()
peer.settimeout(0.5)
try:
    print("it ended", peer.recv(1), flush=True)
except TimeoutError:
    print("nothing came", flush=True)
"""


@unittest.skipIf(why_not(), f"skipped: {why_not()}")
class Hosts(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def network(self, **options: object) -> Network:
        network = Network(["a", "b"], self.folder, **options)
        self.addCleanup(network.remove)
        return network.__enter__()

    def start(self, network: Network, host: str, program: str, *args: str) -> subprocess.Popen:
        process = network.start(host, [sys.executable, "-c", program, *args], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)
        for end in (process.stdin, process.stdout):
            self.addCleanup(end.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def pair(self, network: Network) -> subprocess.Popen:
        self.start(network, "b", ECHO)
        return self.start(network, "a", ASK, "b")

    def ask(self, asker: subprocess.Popen, size: int = 1, limit: float = 5) -> float | None:
        asker.stdin.write(f"{size} {limit}\n")
        asker.stdin.flush()
        said = asker.stdout.readline().strip()
        return None if said == "lost" else float(said)

    def test_a_host_has_its_own_name_and_knows_the_others(self):
        network = self.network()
        said = network.run("b", ["sh", "-c", "hostname; getent hosts a; ls /sys/fs/cgroup | wc -l"],
                           capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual(said[0], "b")
        self.assertEqual(said[1], network.address("a"))
        self.assertNotEqual(socket.gethostname(), "b")

    def test_the_process_that_is_started_is_that_of_the_command(self):
        network = self.network()
        process = network.start("a", ["sleep", "1000"])
        deadline = time.monotonic() + 5
        while Path(f"/proc/{process.pid}/cmdline").read_bytes() != b"sleep\x001000\x00":
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.assertEqual(network.processes("a"), [process.pid])
        process.kill()
        process.wait()

    def test_nothing_is_left_of_a_network(self):
        network = self.network()
        names = [network.switch, network.namespace("a"), network.namespace("b")]
        process = network.start("a", ["sleep", "1000"])
        for name in names:
            self.assertTrue((NAMESPACES / name).exists())
        network.remove()
        self.assertNotEqual(process.wait(5), 0)
        for name in names:
            self.assertFalse((NAMESPACES / name).exists())

    def test_two_networks_do_not_meet(self):
        first = self.network()
        other = tempfile.TemporaryDirectory()
        self.addCleanup(other.cleanup)
        with Network(["a", "b"], Path(other.name)) as second:
            self.assertNotEqual(first.address("a"), second.address("a"))

    def test_a_cut_link_loses_everything_and_a_healed_one_brings_it(self):
        network = self.network()
        asker = self.pair(network)
        self.assertIsNotNone(self.ask(asker))
        for way in Way:
            with self.subTest(way=way):
                network.cut("b", way)
                self.assertIsNone(self.ask(asker, limit=0.3))
                network.heal("b")
                self.assertIsNotNone(self.ask(asker, size=0, limit=10))  # TCP sends again what was lost

    def test_a_cut_of_one_way_lets_the_other_way_through(self):
        network = self.network()
        receiver = ('import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(("0.0.0.0", 7001))\n'
                    's.settimeout(2)\nprint("ready", flush=True)\n'
                    'try: print(s.recv(9).decode(), flush=True)\nexcept TimeoutError: print("nothing", flush=True)\n')
        # Static neighbours: otherwise the cut would lose the question for the address as well.
        for host, other in (("a", "b"), ("b", "a")):
            mac = network.run(other, ["ip", "-br", "link", "show", "eth0"], capture_output=True, text=True,
                              check=True).stdout.split()[2]
            network.run(host, ["ip", "neigh", "replace", network.address(other), "lladdr", mac, "dev", "eth0"], check=True)
        sender = 'import socket, sys\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"through", (sys.argv[1], 7001))'
        for way, to_b, to_a in ((Way.FROM, "through", "nothing"), (Way.TO, "nothing", "through")):
            network.cut("b", way)
            for host, other, expected in (("b", "a", to_b), ("a", "b", to_a)):
                with self.subTest(way=way, to=host):
                    process = self.start(network, host, receiver)
                    network.run(other, [sys.executable, "-c", sender, host], check=True)
                    self.assertEqual(process.stdout.readline().strip(), expected)
            network.heal("b")

    def test_a_rate_limits_a_link(self):
        network = self.network()
        asker = self.pair(network)
        network.slow("b", "20mbit")
        took = self.ask(asker, size=1 << 20, limit=30)
        self.assertGreater(took, 0.3)  # 1 MiB at 20 Mbit/s: 0.42 s less the burst
        network.slow("b", None)
        self.assertLess(self.ask(asker, size=1 << 20, limit=30), took)

    def test_a_wire_delays_and_loses(self):
        network = self.network(wires={"b": Wire(delay_ms=20)})
        asker = self.pair(network)
        self.assertGreater(self.ask(asker), 0.04)
        network.set_wire("b", Wire())
        self.assertLess(self.ask(asker), 0.04)
        network.set_wire("b", Wire(loss=1))
        self.assertIsNone(self.ask(asker, limit=0.3))
        network.set_wire("b", Wire(delay_ms=1, loss=0.02))
        self.assertIsNotNone(self.ask(asker, size=300_000, limit=30))

    def test_a_frozen_machine_does_nothing_until_it_is_thawed(self):
        network = self.network()
        asker = self.pair(network)
        network.freeze("b")
        self.assertIsNone(self.ask(asker, limit=0.3))
        network.thaw("b")
        self.assertIsNotNone(self.ask(asker, size=0))

    def test_a_machine_without_power_is_empty_and_can_be_used_again(self):
        network = self.network()
        self.pair(network)
        network.kill_all("b")
        self.assertEqual(network.processes("b"), [])
        self.assertTrue(network.processes("a"))
        self.start(network, "b", ECHO)

    def test_the_end_of_a_host_that_is_restarted_reaches_no_other_one(self):
        network = self.network()
        self.start(network, "b", ECHO)
        # Prints what ends a wait for a byte.
        waiter = self.start(network, "a", WAIT, "b")
        network.restart("b")
        self.assertEqual(network.processes("b"), [])
        waiter.stdin.write("wait\n")
        waiter.stdin.flush()
        self.assertEqual(waiter.stdout.readline(), "nothing came\n")
        self.pair(network)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    unittest.main()
