"""What a process of the sandbox does to itself: its own mounts, no rights, no way to system calls that it has no use for.

Made ready by a process that forks, used once by each of its children, in the order in which the methods stand here. Like everything that
runs inside, this file is handed to an interpreter as text: it may import the standard library alone.
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


class Program(ctypes.Structure):
    """A filter as the kernel takes it."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


class Prepared:
    """What a process needs to wall itself off, made ready before it is forked: a page that it is the first to touch has to be copied.

    `told` says what stands around: bubblewrap, started by root ("uid N": become that one) or by another "user", or "none".
    """

    def __init__(self, told: str) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.stands = told != "none"
        self._uid = int(told[4:]) if told.startswith("uid ") else 0  # elsewhere no other user is mapped into this namespace
        self._places = [place.encode() for place in HIDDEN if Path(place).is_dir()]
        self._header, self._none = (ctypes.c_uint32 * 2)(0x2008_0522, 0), (ctypes.c_uint32 * 6)()
        steps = refusals(os.uname().machine)
        self._filter = ctypes.byref(Program(len(steps) // 8, steps)) if steps and self.stands else None

    def own_mounts(self) -> None:
        """Own mounts and IPC, and nothing of others to be seen."""
        mount = self.libc.mount
        if self.libc.unshare(NEWNS | NEWIPC):
            raise OSError(ctypes.get_errno(), "unshare")
        for place in self._places:
            if mount(b"tmpfs", place, b"tmpfs", EMPTY, b"size=64m,nr_inodes=4096,mode=1777"):
                raise OSError(ctypes.get_errno(), "mount")
        for place in (b"/dev", b"/"):  # what bubblewrap made to hang the rest in
            if mount(None, place, None, READ_ONLY, None):
                raise OSError(ctypes.get_errno(), "mount")

    def drop_rights(self) -> None:
        """Become another user, which only root can; no capability stays."""
        if self._uid:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            with suppress(OSError):  # a container may map few users
                os.setresuid(self._uid, self._uid, self._uid)
            if os.getuid() == 0:
                os.setresuid(NOBODY, NOBODY, NOBODY)
        if self.libc.prctl(AMBIENT, AMBIENT_CLEAR, 0, 0, 0) or self.libc.capset(self._header, self._none):
            raise OSError(ctypes.get_errno(), "capset")

    def refuse_calls(self) -> None:
        """No rights come back by running a program that has them; behind a wall, no dangerous system call either."""
        if self.libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")
        if self._filter and self.libc.prctl(SET_SECCOMP, FILTER, self._filter, 0, 0):
            raise OSError(ctypes.get_errno(), "seccomp")


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
