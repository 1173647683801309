"""What starts one task on each host of a test: Open MPI, Slurm, torchrun, or the test itself.

    job = by_mpirun(network, ["a", "b"], WORDS, folder=folder)
    job.wait(60); job.out, job.err      # bytes; of mpirun and srun, what they pass on of all tasks
    job.code                            # of the starter; where each host has its own process, of the first one

The first host is where the starter runs and where rank 0 is. WORDS are the same on each host, but by hand, which adds
--node K/N --meet HOST:PORT. `environment` is that of all tasks.
"""

import contextlib
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

from namespaces import NAMESPACES, Network

MEET_PORT = 47600


class Job:
    """Processes that were started together, and what they say."""

    def __init__(self, processes: list[subprocess.Popen], pty: bool = False) -> None:
        """`pty`: what they write passes a terminal, whose ends of lines are made plain again."""
        self.processes = list(processes)
        self.started = list(processes)
        self.pty = pty
        self.parts = {id(process): {"out": b"", "err": b""} for process in processes}
        self.changed = threading.Condition()
        self.readers = [threading.Thread(target=self.read, args=(process, name), daemon=True)
                        for process in processes for name in ("out", "err")]
        for reader in self.readers:
            reader.start()

    def read(self, process: subprocess.Popen, name: str) -> None:
        stream = process.stdout if name == "out" else process.stderr
        while block := os.read(stream.fileno(), 65536):
            with self.changed:
                self.parts[id(process)][name] += block
                self.changed.notify_all()

    @property
    def first(self) -> subprocess.Popen:
        return self.processes[0]

    @property
    def out(self) -> bytes:
        """Of the first process."""
        said = self.parts[id(self.first)]["out"]
        return said.replace(b"\r\n", b"\n") if self.pty else said

    @property
    def err(self) -> str:
        """Of all processes."""
        return "".join(self.parts[id(process)]["err"].decode(errors="replace") for process in self.started)

    def said(self, index: int) -> str:
        """stderr of one process."""
        return self.parts[id(self.processes[index])]["err"].decode(errors="replace")

    @property
    def code(self) -> int | None:
        return self.first.poll()

    def wait_for_text(self, size: int, limit: float = 60) -> bool:
        """Until the first process has written so many bytes; False: it ended before."""
        deadline = time.monotonic() + limit
        with self.changed:
            while len(self.parts[id(self.first)]["out"]) < size:
                if self.first.poll() is not None or time.monotonic() > deadline:
                    return len(self.parts[id(self.first)]["out"]) >= size
                self.changed.wait(0.05)
        return True

    def wait_for_line(self, text: str, limit: float = 60) -> bool:
        """Until one of them has written `text` to stderr; False: they all ended before."""
        deadline = time.monotonic() + limit
        with self.changed:
            while text not in self.err:
                over = all(process.poll() is not None for process in self.processes)
                if over or time.monotonic() > deadline:
                    return text in self.err
                self.changed.wait(0.05)
        return True

    def wait(self, limit: float) -> int:
        """Until all of them have ended: the first one's code. TimeoutError names those that have not."""
        deadline = time.monotonic() + limit
        for index, process in enumerate(self.processes):
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise TimeoutError(f"process {index} has not ended in {limit} s: {self.err}") from None
        for reader in self.readers:
            reader.join(5)
        return self.first.returncode

    def forget(self, index: int) -> None:
        """One that was killed: wait() does not wait for it."""
        self.processes.pop(index).wait()

    def close(self) -> None:
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
        for reader in self.readers:
            reader.join(5)
        for process in self.started:
            process.stdout.close()
            process.stderr.close()


def start(network: Network, host: str, words: list[str], environment: dict[str, str] | None) -> subprocess.Popen:
    return network.start(host, words, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)


# ---- by hand ----

def by_hand(network: Network, hosts: list[str], words: list[str], environment: dict[str, str] | None = None,
            **_: object) -> Job:
    meet = f"{hosts[0]}:{MEET_PORT}"
    return Job([start(network, host, [*words, "--node", f"{rank}/{len(hosts)}", "--meet", meet], environment)
                for rank, host in enumerate(hosts)])


# ---- Open MPI ----

def write_agent(network: Network, folder: Path) -> Path:
    """mpirun's way to another host, in place of ssh: AGENT HOST WORDS..., which a shell joins."""
    path = folder / "mpirun-agent"
    words = network.command("HOST", [])
    script = words[words.index("-c") + 1]
    path.write_text(f"""#!/bin/sh
host=$1
shift
exec nsenter --net={NAMESPACES}/{network.namespace("")}"$host" -- unshare --mount --uts -- \\
    sh -c '{script}' enter {network.folder}/hosts "$host" sh -c "$*"
""")
    path.chmod(0o755)
    return path


def by_mpirun(network: Network, hosts: list[str], words: list[str], folder: Path,
              environment: dict[str, str] | None = None, meet: str | None = "", each: int = 1) -> Job:
    """`meet`: of PACELINE_MEET; None: not passed on. `each`: tasks on a host."""
    passed = dict(environment or {})
    if meet is not None:
        passed["PACELINE_MEET"] = meet or f"{hosts[0]}:{MEET_PORT}"
    command = ["mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", str(write_agent(network, folder)),
               # A host that is lost is noticed in seconds, not in 8 minutes.
               "--mca", "oob_tcp_keepalive_time", "2", "--mca", "oob_tcp_keepalive_intvl", "1",
               "--mca", "oob_tcp_keepalive_probes", "2",
               "--host", ",".join(f"{host}:{each}" for host in hosts), "--map-by", f"ppr:{each}:node", "--bind-to", "none"]
    for name in passed:
        command += ["-x", name]
    return Job([start(network, hosts[0], command + words, passed)], pty=True)


# ---- Slurm ----

SLURM_CONF = """
ClusterName=paceline
SlurmctldHost={first}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={munge}/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout=10
SlurmctldTimeout=10
InactiveLimit=0
KillWait=3
MessageTimeout=10
"""


class Slurm:
    """A Slurm of its own on the hosts: a munged, slurmctld on the first, slurmd on each."""

    def __init__(self, network: Network, hosts: list[str], folder: Path) -> None:
        self.network = network
        self.hosts = hosts
        self.folder = Path(folder) / "slurm"
        # munged wants folders that none but root and itself may change, all the way.
        self.munge = Path(f"/run/paceline-munge-{network.number}")
        self.daemons: list[subprocess.Popen] = []

    def __enter__(self) -> "Slurm":
        try:
            self.begin()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def begin(self) -> None:
        (self.folder / "state").mkdir(parents=True)
        shutil.rmtree(self.munge, ignore_errors=True)
        self.munge.mkdir(mode=0o711)
        (self.munge / "key").write_bytes(os.urandom(128))
        (self.munge / "key").chmod(0o400)
        for path in (self.munge, self.munge / "key"):
            shutil.chown(path, "munge", "munge")
        self.daemons.append(subprocess.Popen(
            ["runuser", "-u", "munge", "--", "munged", "--foreground", f"--key-file={self.munge}/key",
             f"--socket={self.munge}/socket", f"--pid-file={self.munge}/pid", f"--seed-file={self.munge}/seed",
             f"--log-file={self.munge}/log"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self.wait_until(lambda: (self.munge / "socket").exists(), "munged does not listen")
        text = SLURM_CONF.format(first=self.hosts[0], address=self.network.address(self.hosts[0]), folder=self.folder,
                                 munge=self.munge)
        for host in self.hosts:
            text += f"NodeName={host} NodeHostname={host} NodeAddr={self.network.address(host)} CPUs=4 State=UNKNOWN\n"
        text += "PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # found by itself, it ends slurmd here
        for host, words in [(self.hosts[0], ["slurmctld", "-D"]), *((host, ["slurmd", "-D", "-N", host]) for host in self.hosts)]:
            self.daemons.append(self.network.start(host, words, env={**os.environ, **self.environment},
                                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self.wait_until(lambda: self.states() == ["idle"] * len(self.hosts), "not all nodes are idle")

    def states(self) -> list[str]:
        done = self.network.run(self.hosts[0], ["sinfo", "--noheader", "--Node", "--format=%T"], capture_output=True,
                                text=True, env={**os.environ, **self.environment}, check=False)
        return done.stdout.split()

    def wait_until(self, is_true, what: str) -> None:
        deadline = time.monotonic() + 30
        while not is_true():
            ended = [daemon.args[-1] for daemon in self.daemons if daemon.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise RuntimeError(f"Slurm: {what}; ended: {ended}; {self.logs()}")
            time.sleep(0.1)

    def logs(self) -> str:
        return "\n".join(f"{path}: {path.read_text(errors='replace')[-2000:]}"
                         for path in [*self.folder.glob("*.log"), self.munge / "log"] if path.exists())

    def end(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons = []
        shutil.rmtree(self.munge, ignore_errors=True)


def by_srun(network: Network, hosts: list[str], words: list[str], slurm: Slurm,
            environment: dict[str, str] | None = None, each: int = 1, **_: object) -> Job:
    command = ["srun", f"--nodes={len(hosts)}", f"--nodelist={','.join(hosts)}", f"--ntasks-per-node={each}",
               "--kill-on-bad-exit"]
    return Job([start(network, hosts[0], command + words, {**slurm.environment, **(environment or {})})])


# ---- torchrun ----

def torchrun() -> Path | None:
    """Of the environment that model/training/setup makes."""
    named = os.environ.get("PACELINE_TRAINING_VENV", "")
    folder = Path(named) if named not in ("", "none") else Path.home() / ".cache" / "paceline" / "training-venv"
    program = folder / "bin" / "torchrun"
    return program if named != "none" and program.exists() else None


def by_torchrun(network: Network, hosts: list[str], words: list[str], environment: dict[str, str] | None = None,
                each: int = 1, **_: object) -> Job:
    def command(rank: int) -> list[str]:
        return [str(torchrun()), "--nnodes", str(len(hosts)), "--nproc-per-node", str(each), "--node-rank", str(rank),
                "--master-addr", hosts[0], "--master-port", "29500", "--no-python", *words]
    return Job([start(network, host, command(rank), environment) for rank, host in enumerate(hosts)])


def missing(starter: str) -> str:
    """Why a starter is not here; empty: it is."""
    if starter == "torchrun":
        return "" if torchrun() else "torchrun is not here (model/training/setup)"
    needed = {"mpirun": ["mpirun"], "srun": ["srun", "slurmctld", "slurmd", "munged"], "by hand": []}[starter]
    gone = [tool for tool in needed if shutil.which(tool) is None]
    return f"{', '.join(gone)}: not installed (launch/setup --cluster)" if gone else ""
