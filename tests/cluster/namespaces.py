"""Hosts of a test: network namespaces on one machine, joined by a bridge. For root.

    with Network(["a", "b"], folder) as network:
        network.run("a", ["hostname"])            # in the namespace, with a host name and /etc/hosts of its own
        network.cut("b")                          # both ways; cut("b", Way.FROM): what b sends is lost
        network.heal("b")
        network.slow("b", "100mbit")              # a rate, by tbf
    network.restart("b")                      # power off and on
    # nothing is left: no namespace, no process in one

Host number i has the address 10.77.N.i, with N chosen so that two tests on a machine do not meet. A host in
`wires` is joined by a wire in user space with delay and loss (tap_wire.py), because this kernel may have no netem.
A cut loses packets without a sign at either end, as a switch that fails does: queues of length 0, no link down.
"""

import contextlib
import dataclasses
import enum
import fcntl
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMESPACES = Path("/run/netns")
INTERFACE = "eth0"  # of every host
PREFIX = "paceline-"


class Way(enum.Enum):
    """What a cut loses, seen from the host."""
    BOTH = "both"
    FROM = "from"  # what it sends
    TO = "to"      # what is sent to it


@dataclasses.dataclass
class Wire:
    """A host's wire in user space: delay of one way, and the share of packets that is lost."""
    delay_ms: float = 0.0
    loss: float = 0.0


def ip(*words: str) -> None:
    call("ip", *words)


def call(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(words)}: {done.stderr.strip() or done.stdout.strip()}")


def processes_in(namespace: str) -> list[int]:
    done = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
    return [int(pid) for pid in done.stdout.split()]


class Network:
    def __init__(self, hosts: list[str], folder: Path, wires: dict[str, Wire] | None = None) -> None:
        """`folder`: for the hosts' /etc/hosts; outlives the network."""
        self.hosts = list(hosts)
        self.folder = Path(folder)
        self.wires = wires or {}
        self.lock = None
        self.wire_processes: dict[str, subprocess.Popen] = {}
        self.rates: dict[str, str] = {}
        self.cuts: dict[str, Way] = {}

    def __enter__(self) -> "Network":
        try:
            self.make()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    # ---- making and removing ----

    def make(self) -> None:
        self.take_number()
        (self.folder / "hosts").write_text(
            "127.0.0.1 localhost\n" + "".join(f"{self.address(host)} {host}\n" for host in self.hosts))
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        for host in self.hosts:
            self.add_host(host)

    def add_host(self, host: str) -> None:
        ip("netns", "add", self.namespace(host))
        ip("-n", self.namespace(host), "link", "set", "lo", "up")
        if host in self.wires:
            self.lay_wire(host)
        else:
            ip("-n", self.switch, "link", "add", self.port(host), "type", "veth",
               "peer", "name", INTERFACE, "netns", self.namespace(host))
        ip("-n", self.switch, "link", "set", self.port(host), "master", "br0", "up")
        # A host that is restarted has the same: others remember it.
        hardware = f"02:00:00:00:{self.number:02x}:{self.hosts.index(host) + 1:02x}"
        ip("-n", self.namespace(host), "link", "set", INTERFACE, "address", hardware)
        ip("-n", self.namespace(host), "addr", "add", f"{self.address(host)}/24", "dev", INTERFACE)
        ip("-n", self.namespace(host), "link", "set", INTERFACE, "up")

    def take_number(self) -> None:
        """A number that no other network on this machine has, held by a lock; what a killed test left under it goes."""
        for number in range(1, 200):
            lock = open(f"/run/lock/paceline-network-{number}", "w")  # noqa: SIM115: held until remove()
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                continue
            self.lock = lock
            self.number = number
            for left in NAMESPACES.glob(f"{PREFIX}{number}-*"):
                remove_namespace(left.name)
            return
        raise RuntimeError("200 test networks are in use")

    def lay_wire(self, host: str) -> None:
        wire = self.wires[host]
        process = subprocess.Popen(
            [sys.executable, "-B", str(HERE / "tap_wire.py"), self.namespace(host), INTERFACE, self.switch,
             self.port(host), str(wire.delay_ms), str(wire.loss)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.wire_processes[host] = process
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"the wire of host {host} did not start")

    def remove(self) -> None:
        """Kills what runs on the hosts, and removes them."""
        for process in self.wire_processes.values():
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
        self.wire_processes = {}
        if self.lock is None:
            return
        for host in self.hosts:
            remove_namespace(self.namespace(host))
        remove_namespace(self.switch)
        self.lock.close()
        self.lock = None

    # ---- names ----

    @property
    def switch(self) -> str:
        return f"{PREFIX}{self.number}-switch"

    def namespace(self, host: str) -> str:
        return f"{PREFIX}{self.number}-host-{host}"

    def port(self, host: str) -> str:
        """The switch's end of a host's link."""
        return f"port{self.hosts.index(host) + 1}"

    def address(self, host: str) -> str:
        return f"10.77.{self.number}.{self.hosts.index(host) + 1}"

    # ---- commands on a host ----

    def command(self, host: str, words: list[str]) -> list[str]:
        """`words` on a host. exec all the way: the process that is started is that of `words`.

        nsenter and not `ip netns exec`, which mounts a new /sys, in which no cgroup is found.
        """
        script = ('mount --make-rprivate / && mount --bind "$1" /etc/hosts && hostname "$2" && shift 2 && exec "$@"')
        return ["nsenter", f"--net={NAMESPACES / self.namespace(host)}", "--", "unshare", "--mount", "--uts", "--",
                "sh", "-c", script, "enter", str(self.folder / "hosts"), host, *words]

    def run(self, host: str, words: list[str], **options: object) -> subprocess.CompletedProcess:
        return subprocess.run(self.command(host, words), **options)  # noqa: PLW1510: the caller's

    def start(self, host: str, words: list[str], **options: object) -> subprocess.Popen:
        return subprocess.Popen(self.command(host, words), **options)

    def processes(self, host: str) -> list[int]:
        return processes_in(self.namespace(host))

    def freeze(self, host: str) -> None:
        """The machine stands still: its processes are stopped, until thaw(). One may start in between: until none does."""
        self.signal_all(host, signal.SIGSTOP)

    def thaw(self, host: str) -> None:
        self.signal_all(host, signal.SIGCONT)

    def signal_all(self, host: str, number: signal.Signals) -> None:
        told: set[int] = set()
        while new := set(self.processes(host)) - told:
            for pid in new:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            told |= new

    def kill_all(self, host: str) -> None:
        """Power off: everything on the host is killed; its link stays."""
        kill_in(self.namespace(host))

    def restart(self, host: str) -> None:
        """Power off and on, of a host without a wire: its connections end without a sign to the others."""
        ip("-n", self.switch, "link", "del", self.port(host))
        remove_namespace(self.namespace(host))
        self.add_host(host)

    # ---- faults of a link ----

    def cut(self, host: str, way: Way = Way.BOTH) -> None:
        self.cuts[host] = way
        self.set_queues(host)

    def heal(self, host: str) -> None:
        self.cuts.pop(host, None)
        self.set_queues(host)

    def slow(self, host: str, rate: str | None) -> None:
        """`rate` as tc writes it ("100mbit"), in each direction; None: as fast as the machine."""
        if rate is None:
            self.rates.pop(host, None)
        else:
            self.rates[host] = rate
        self.set_queues(host)

    def set_wire(self, host: str, wire: Wire) -> None:
        process = self.wire_processes[host]
        process.stdin.write(f"{wire.delay_ms} {wire.loss}\n")
        process.stdin.flush()
        if process.stdout.readline().strip() != "set":
            raise RuntimeError(f"the wire of host {host} has ended")

    def set_queues(self, host: str) -> None:
        cut = self.cuts.get(host)
        for namespace, device, ways in ((self.namespace(host), INTERFACE, (Way.BOTH, Way.FROM)),
                                        (self.switch, self.port(host), (Way.BOTH, Way.TO))):
            queue = ["pfifo_fast"]
            if host in self.rates:
                queue = ["tbf", "rate", self.rates[host], "burst", "64k", "latency", "20ms"]
            if cut in ways:
                queue = ["pfifo", "limit", "0"]  # every packet finds it full
            call("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", *queue)


def kill_in(namespace: str) -> None:
    deadline = time.monotonic() + 10
    while pids := processes_in(namespace):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes {pids} in {namespace} do not end")
        time.sleep(0.01)


def remove_namespace(name: str) -> None:
    if not (NAMESPACES / name).exists():
        return
    kill_in(name)
    ip("netns", "del", name)


def why_not() -> str:
    """Why no network can be made here; empty: one can."""
    if os.geteuid() != 0:
        return "not root"
    for tool in ("ip", "tc", "nsenter", "unshare"):
        if not any((Path(folder) / tool).exists() for folder in ("/usr/sbin", "/usr/bin", "/sbin", "/bin")):
            return f"{tool} is missing (launch/setup --cluster)"
    done = subprocess.run(["unshare", "--net", "--mount", "--uts", "true"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "namespaces are denied here"
