"""Runs a command in a process session of its own, for a limited time, and leaves nothing of it behind.

Output goes to a file, never to a pipe: a process that a killed command leaves behind would keep a pipe
open, and the reader waiting. The caller becomes the parent of all orphans below it (a subreaper), so
that what a command started, and what that started, is found and killed too.
"""

import ctypes
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
KILL_SECONDS = 5.0  # what a killed process may take to end; one that hangs in a driver never does


def adopt_orphans() -> bool:
    """Makes this process the parent of orphans among its descendants. False: the kernel refuses."""
    return ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def _parents_and_sessions() -> dict:
    """pid: (parent, session) of every process that can be seen and has not ended."""
    table = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path(f"/proc/{entry}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has ended meanwhile
            continue
        fields = stat[stat.rfind(")") + 2:].split()  # state, parent, group, session, ...
        if fields[0] not in ("Z", "X"):
            table[int(entry)] = (int(fields[1]), int(fields[3]))
    return table


def descendants(session: int) -> set:
    """This process's descendants, and all processes of `session`."""
    table = _parents_and_sessions()
    found = {pid for pid, (_, of) in table.items() if of == session}
    found.discard(os.getpid())
    grown = {os.getpid()} | found
    while True:
        more = {pid for pid, (parent, _) in table.items() if parent in grown} - grown
        if not more:
            break
        grown |= more
        found |= more
    return found


def _reap() -> None:
    """Takes leave of ended children that nothing waits for."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass


def kill_all(leader: subprocess.Popen) -> int:
    """Kills `leader`, its session and all descendants. How many are still there after KILL_SECONDS."""
    until = time.monotonic() + KILL_SECONDS
    while True:
        left = descendants(leader.pid)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        leader.poll()
        if leader.returncode is not None:
            _reap()
        if not left or time.monotonic() > until:
            return len(left)
        time.sleep(0.02)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int       # negative: a signal; None: it was killed because its time was over
    text: str       # what it printed
    survivors: int  # processes of it that could not be killed


def run_for(command: list, log: Path, seconds: float, folder: Path, environment: dict) -> Ended:
    """Runs `command` for at most so many seconds and appends what it prints to `log`.

    Raises OSError if it cannot be started.
    """
    with open(log, "ab") as file:
        file.write(("$ " + " ".join(command) + "\n").encode())
        file.flush()
        begin = file.tell()
        leader = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                  cwd=folder, env=environment, start_new_session=True)
        code = None
        survivors = 0
        try:
            code = leader.wait(timeout=max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            pass
        finally:
            survivors = kill_all(leader)  # what a command that ended well has left running ends too
        with open(log, "rb") as printed:
            printed.seek(begin)
            text = printed.read().decode(errors="replace")
        how = f"exit code {code}" if code is not None else f"killed after {seconds:.0f} s"
        if survivors:
            how += f", {survivors} processes of it cannot be killed"
        file.write(f"\n{how}\n\n".encode())
    return Ended(code, text, survivors)
