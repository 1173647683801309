"""Runs a program under which the kernel denies some system calls: a filter of a few BPF instructions, as container
runtimes install them. It is passed on to every process that the program starts."""

import ctypes
import errno
import os
import platform
import struct
import unittest
from collections.abc import Callable

# The numbers of the system calls that starting and watching a stage uses and that an old kernel or a container's
# profile may deny, by machine.
NUMBERS = {
    "x86_64": {"clone": 56, "fallocate": 285, "madvise": 28, "memfd_create": 319, "prctl": 157, "prlimit64": 302,
               "sched_getaffinity": 204, "sched_setaffinity": 203, "setpgid": 109, "eventfd2": 290,
               "timerfd_create": 283, "close_range": 436, "pidfd_open": 434, "pidfd_send_signal": 424,
               "clone3": 435, "statx": 332, "rseq": 334, "getrandom": 318, "sysinfo": 99,
               "set_robust_list": 273, "sched_yield": 24},
    "aarch64": {"clone": 220, "fallocate": 47, "madvise": 233, "memfd_create": 279, "prctl": 167, "prlimit64": 261,
                "sched_getaffinity": 123, "sched_setaffinity": 122, "setpgid": 154, "eventfd2": 19,
                "timerfd_create": 85, "close_range": 436, "pidfd_open": 434, "pidfd_send_signal": 424,
                "clone3": 435, "statx": 291, "rseq": 293, "getrandom": 278, "sysinfo": 179,
                "set_robust_list": 99, "sched_yield": 124},
}.get(platform.machine(), {})

needs_numbers = unittest.skipUnless(NUMBERS, "skipped: the numbers of system calls are not known on this machine")

LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF instructions, as in linux/bpf_common.h
ALLOW, ANSWER_ERRNO = 0x7FFF0000, 0x00050000  # answers of a filter, as in linux/seccomp.h
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2


def deny(calls: list[str], error: int) -> Callable[[], None]:
    """For preexec_fn: from then on these calls answer `error` in the process and its descendants."""
    program = [struct.pack("=HBBI", LOAD_WORD, 0, 0, 0)]  # the number of the call
    for call in calls:
        program.append(struct.pack("=HBBI", JUMP_IF_EQUAL, 0, 1, NUMBERS[call]))
        program.append(struct.pack("=HBBI", RETURN, 0, 0, ANSWER_ERRNO | error))
    program.append(struct.pack("=HBBI", RETURN, 0, 0, ALLOW))
    code = b"".join(program)
    libc = ctypes.CDLL(None, use_errno=True)

    def install() -> None:
        words = ctypes.create_string_buffer(code, len(code))
        # struct sock_fprog: a count and a pointer, aligned as the machine does it.
        header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(words)))
        if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or libc.prctl(PR_SET_SECCOMP, MODE_FILTER, header) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    return install


def without_proc() -> Callable[[], None]:
    """For preexec_fn: an empty file system lies over /proc, in a mount namespace of the process's own."""
    libc = ctypes.CDLL(None, use_errno=True)
    new_mounts, new_users, private, recursive = 0x00020000, 0x10000000, 1 << 18, 1 << 14

    def checked(code: int) -> None:
        if code != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def install() -> None:
        if libc.unshare(new_mounts) != 0:
            if ctypes.get_errno() != errno.EPERM:
                checked(-1)
            checked(libc.unshare(new_mounts | new_users))
        checked(libc.mount(b"none", b"/", None, private | recursive, None))
        checked(libc.mount(b"none", b"/proc", b"tmpfs", 0, None))

    return install
