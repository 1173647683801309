"""A wire with delay and loss between two network namespaces, in user space.

    tap_wire.py NAMESPACE DEVICE NAMESPACE DEVICE DELAY_MS LOSS

Makes a TAP device in each namespace and moves frames between them. Prints "ready"; then takes lines "DELAY_MS LOSS"
on stdin, and answers each with "set". Losses are drawn with a fixed seed. Ends with its stdin.
"""

import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TAP = 0x0002
IFF_NO_PI = 0x1000
CLONE_NEWNET = 0x40000000
FRAME_BYTES = 65536
QUEUED_MAX = 20_000  # frames on the wire; more are lost
TURN = 64            # frames that are read before any is written


def enter(path: str) -> None:
    namespace = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"setns {path}")
    os.close(namespace)


def tap(namespace: str, device: str) -> int:
    enter(f"/run/netns/{namespace}")
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TAP | IFF_NO_PI))
    return fd


def read_frame(fd: int) -> bytes | None:
    try:
        return os.read(fd, FRAME_BYTES)
    except (BlockingIOError, OSError):  # nothing there, or the device is down
        return None


def main() -> int:
    _, left_namespace, left_device, right_namespace, right_device, delay_text, loss_text = sys.argv
    ends = [tap(left_namespace, left_device), tap(right_namespace, right_device)]
    delay, loss = float(delay_text) / 1000, float(loss_text)
    chance = random.Random(1)
    order = itertools.count()  # frames that are due at the same time keep their order
    flying: list[tuple[float, int, int, bytes]] = []
    print("ready", flush=True)
    watch = select.poll()
    for fd in (*ends, 0):
        watch.register(fd, select.POLLIN)
    while True:
        wait = max(0.0, flying[0][0] - time.monotonic()) if flying else None
        for fd, _ in watch.poll(None if wait is None else wait * 1000):
            if fd == 0:
                words = sys.stdin.readline().split()
                if not words:
                    return 0
                delay, loss = float(words[0]) / 1000, float(words[1])
                print("set", flush=True)
                continue
            other = ends[1 - ends.index(fd)]
            for _turn in range(TURN):
                frame = read_frame(fd)
                if frame is None:
                    break
                if len(flying) < QUEUED_MAX and (loss == 0 or chance.random() >= loss):
                    heapq.heappush(flying, (time.monotonic() + delay, next(order), other, frame))
        now = time.monotonic()
        while flying and flying[0][0] <= now:
            _due, _order, other, frame = heapq.heappop(flying)
            try:
                os.write(other, frame)
            except (BlockingIOError, OSError):
                pass  # the device's queue is full, or it is down: lost, as on a wire


if __name__ == "__main__":
    sys.exit(main())
