"""What a process of the sandbox does to itself: its own mounts, no rights, no way to system calls that it has no use for.

In: the C library, and what stands around. These functions are called inside the sandbox, once each, in the order in which they stand
here. Like everything that runs there this file is handed to an interpreter as text: it may import the standard library alone.
"""

import ctypes
import errno
import os
import resource
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

CHANNEL = 3  # file descriptor of what a process has to say to the host
NEWNS, NEWIPC, NEWPID = 0x0002_0000, 0x0800_0000, 0x2000_0000
EMPTY, READ_ONLY = 0x6, 0x1027  # mounts: no set-user-id and no devices; the same of one that is there, and nothing is written
NO_NEW_PRIVS, AMBIENT, AMBIENT_CLEAR = 38, 47, 4
NOBODY = 65_534
HIDDEN = ("/tmp", "/proc", "/dev/shm", "/run")  # each check gets its own, empty; what another left there is not seen


def keep_only(channel: int, *standard: int) -> None:
    """These files alone stay open: the channel, and standard input, output and error."""
    kept = [os.dup(fd) for fd in (*standard, channel)]
    for place, fd in enumerate(kept):
        os.dup2(fd, place + 20)
    for place in range(len(kept)):
        os.dup2(place + 20, place)
    os.closerange(CHANNEL + 1, 1 << 16)


def own_mounts(libc: ctypes.CDLL) -> None:
    """Own mounts and IPC, and nothing of others to be seen."""
    if libc.unshare(NEWNS | NEWIPC):
        raise OSError(ctypes.get_errno(), "unshare")
    for place in HIDDEN:
        if Path(place).is_dir() and libc.mount(b"tmpfs", place.encode(), b"tmpfs", EMPTY, b"size=64m,nr_inodes=4096,mode=1777"):
            raise OSError(ctypes.get_errno(), f"mount {place}")
    for place in ("/dev", "/"):  # what bubblewrap made to hang the rest in
        if libc.mount(None, place.encode(), None, READ_ONLY, None):
            raise OSError(ctypes.get_errno(), f"mount {place}")


def drop_rights(libc: ctypes.CDLL, wall: str) -> None:
    """Become another user where `wall` is "uid N", which only root can be told; no capability stays."""
    if wall.startswith("uid "):  # elsewhere no other user is mapped into this namespace
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        uid = int(wall[4:])
        with suppress(OSError):  # a container may map few users
            os.setresuid(uid, uid, uid)
        if os.getuid() == 0:
            os.setresuid(NOBODY, NOBODY, NOBODY)
    header, none = (ctypes.c_uint32 * 2)(0x2008_0522, 0), (ctypes.c_uint32 * 6)()
    if libc.prctl(AMBIENT, AMBIENT_CLEAR, 0, 0, 0) or libc.capset(header, none):
        raise OSError(ctypes.get_errno(), "capset")


def refuse_calls(libc: ctypes.CDLL, *, filtered: bool) -> None:
    """No rights come back by running a program that has them; where `filtered`, no dangerous system call either."""
    if libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    if filtered:
        _filter(libc)


def limit(limits: Mapping[str, int]) -> None:
    """Limits as `Limits.resources` names them."""
    for name, most in limits.items():
        resource.setrlimit(getattr(resource, name), (most, most))


# System calls that a check has no use for and that faults of the kernel were found behind, by machine: the audit architecture, clone,
# and what is refused: unshare, setns, mount, umount2, pivot_root, ptrace, bpf, keyctl, add_key, request_key, userfaultfd,
# perf_event_open, process_vm_readv, process_vm_writev, open_by_handle_at; under the same numbers everywhere io_uring_setup, open_tree,
# move_mount, fsopen, mount_setattr.
REFUSED = {
    "x86_64": (0xC000_003E, 56, (272, 308, 165, 166, 155, 101, 321, 250, 248, 249, 323, 298, 310, 311, 304, 425, 428, 429, 430, 442)),
    "aarch64": (0xC000_00B7, 220, (97, 268, 40, 39, 41, 117, 280, 219, 217, 218, 282, 241, 270, 271, 265, 425, 428, 429, 430, 442)),
}
CLONE3, X32 = 435, 0x4000_0000
NAMESPACES = 0x7E02_0000  # flags of clone that make one
SET_SECCOMP, FILTER = 22, 2
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE, KILL = 0x7FFF_0000, 0x0005_0000, 0x8000_0000


def refusals(machine: str) -> bytes:
    """A seccomp filter that refuses them with EPERM, and clone3, whose flags it cannot see, with ENOSYS. Empty for an unknown machine."""
    if machine not in REFUSED:
        return b""
    arch, clone, refused = REFUSED[machine]
    steps = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, arch), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    steps += [(AT_LEAST, 0, 1, X32), (RETURN, 0, 0, REFUSE | errno.EPERM)]
    for number in refused:
        steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE | errno.EPERM)]
    steps += [(EQUAL, 0, 1, CLONE3), (RETURN, 0, 0, REFUSE | errno.ENOSYS)]
    steps += [(EQUAL, 0, 3, clone), (LOAD, 0, 0, 16), (ANY_BIT, 0, 1, NAMESPACES), (RETURN, 0, 0, REFUSE | errno.EPERM)]
    return b"".join(struct.pack("HBBI", *step) for step in [*steps, (RETURN, 0, 0, ALLOW)])


def _filter(libc: ctypes.CDLL) -> None:
    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))

    steps = refusals(os.uname().machine)
    if steps and libc.prctl(SET_SECCOMP, FILTER, ctypes.byref(Program(len(steps) // 8, steps)), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")
