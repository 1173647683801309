"""A connection between two hosts beside plain TCP: at least 0.8 of it on links that are no faster than real ones."""

import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from cluster_case import BINARY
from namespaces import Network, Wire, why_not

HOP = Path(BINARY).parent / "bench" / "hop" / "bench_hop"
SHARE_MIN = 0.8


@unittest.skipIf(why_not(), f"skipped: {why_not()}")
@unittest.skipUnless(HOP.exists(), f"skipped: {HOP} is not built (launch/build bench_hop)")
class Hop(unittest.TestCase):
    def measure(self, network: Network, folder: Path) -> dict[str, float]:
        key = folder / "cluster.key"
        key.write_text("5c" * 32 + "\n")
        key.chmod(0o600)
        server = network.start("b", [str(HOP), "--listen", "eth0:47700", "--key", str(key)], stdout=subprocess.PIPE)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.assertIn(b"listening", server.stdout.readline())
        table = network.run("a", [str(HOP), "--connect", "b:47700", "--key", str(key), "--rounds", "1"], check=True,
                            capture_output=True, text=True, timeout=300).stdout
        print(f"\n{table}", end="")
        return {name: float(share) for name, share in re.findall(r"(?m)^\| (round trip|tensors).*\| ([\d.]+) \|$", table)}

    def test_the_round_trip_on_a_link_with_a_delay(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        with Network(["a", "b"], folder, wires={"b": Wire(delay_ms=0.5)}) as network:
            self.assertGreaterEqual(self.measure(network, folder)["round trip"], SHARE_MIN)

    def test_the_throughput_on_a_link_of_a_gigabit(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        with Network(["a", "b"], folder) as network:
            network.slow("a", "1gbit")
            self.assertGreaterEqual(self.measure(network, folder)["tensors"], SHARE_MIN)


if __name__ == "__main__":
    unittest.main()
