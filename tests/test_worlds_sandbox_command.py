"""One command in the sandbox: what it may and may not do, how it ends, and what it leaves behind."""

import os
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mulligan.errors import UsageError
from mulligan.worlds import sandbox
from mulligan.worlds.sandbox import Limits, Wall
from mulligan.worlds.sandbox_command import Command, Finished, run_command, taken

LIMITS = Limits(wall_s=15.0, cpu_s=10, processes=64)
walled = pytest.mark.usefixtures("walled")


@pytest.fixture(params=["bubblewrap", "process"])
def wall(request: pytest.FixtureRequest) -> Wall:
    if request.param == "bubblewrap":
        request.getfixturevalue("walled")
    return request.param


def shell(folder: Path, script: str, wall: Wall = "bubblewrap", limits: Limits = LIMITS, **environment: str) -> Finished:
    return run_command(Command(argv=["sh", "-c", script], folder=folder, environment=environment), limits, wall)


def test_a_command_works_in_its_folder_and_says_how_it_ended(tmp_path: Path, wall: Wall) -> None:
    (tmp_path / "in.txt").write_text("read\n")
    found = shell(tmp_path, "cat in.txt; echo $TOLD; echo error >&2; echo made > out.txt; exit 3", wall, TOLD="told")
    assert (found.status, found.output, found.timed_out, found.left) == (3, "read\ntold\nerror\n", False, 0)
    assert taken(tmp_path, "out.txt") == b"made\n"
    assert (tmp_path / "out.txt").stat().st_uid == tmp_path.stat().st_uid == os.getuid()


def test_a_command_that_is_not_there_is_an_exit_status(tmp_path: Path, wall: Wall) -> None:
    found = run_command(Command(argv=["no-such-command"], folder=tmp_path), LIMITS, wall)
    assert found.status == 127
    assert "No such file" in found.output


def test_the_end_of_the_command_is_the_end_though_a_child_goes_on(tmp_path: Path, wall: Wall) -> None:
    found = shell(tmp_path, "(sleep 30; echo late > late.txt) & setsid sleep 30 & exit 0", wall)
    assert (found.status, found.timed_out) == (0, False)
    assert found.left >= 2
    assert found.seconds < 10


def test_what_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path, wall: Wall) -> None:
    script = "(setsid sh -c 'while :; do date +%N > beat; sleep 0.05; done') & sleep 60"
    found = shell(tmp_path, script, wall, replace(LIMITS, wall_s=1.5))
    assert (found.status, found.timed_out) == (None, True)
    before = (tmp_path / "beat").read_text()
    time.sleep(0.3)
    assert (tmp_path / "beat").read_text() == before


def test_a_command_that_ignores_every_signal_is_ended(tmp_path: Path, wall: Wall) -> None:
    found = shell(tmp_path, "trap '' TERM INT HUP ALRM; while :; do :; done", wall, replace(LIMITS, wall_s=1.0))
    assert found.timed_out


def test_output_without_end_is_cut_in_the_middle(tmp_path: Path, wall: Wall) -> None:
    limits = replace(LIMITS, output=200, file_size=1 << 20)
    found = shell(tmp_path, "echo first; yes", wall, limits)
    assert found.output.startswith("first\ny\n")
    assert found.output.endswith("y\ny\n")
    assert "bytes left out" in found.output
    assert found.status is not None
    assert found.status < 0
    found = shell(tmp_path, "yes | head -c 1000; echo last", wall, limits)
    assert (found.status, found.output[-5:]) == (0, "last\n")


def test_standard_input_is_closed(tmp_path: Path, wall: Wall) -> None:
    found = shell(tmp_path, "read line; echo $?", wall)
    assert found.output == "1\n"


def test_limits_hold(tmp_path: Path, wall: Wall) -> None:
    big = "import sys\ntry: bytearray(3 << 30)\nexcept MemoryError: sys.exit(7)"
    assert run_command(Command(argv=[sys.executable, "-I", "-c", big], folder=tmp_path), LIMITS, wall).status == 7
    shell(tmp_path, "head -c 9000000 /dev/zero > big", wall, replace(LIMITS, file_size=1 << 20))
    assert (tmp_path / "big").stat().st_size == 1 << 20


@walled
def test_processes_without_end_hit_the_limit(tmp_path: Path) -> None:
    bomb = "\n".join(
        (
            "import os, time",
            "n = 0",
            "try:",
            "    while n < 500:",
            "        if os.fork() == 0: time.sleep(60)",
            "        n += 1",
            "except OSError: print(n)",
        )
    )
    found = run_command(Command(argv=[sys.executable, "-I", "-c", bomb], folder=tmp_path), replace(LIMITS, processes=20), "bubblewrap")
    assert int(found.output) < 20
    assert found.left == int(found.output)


def test_secrets_of_the_environment_are_not_told(tmp_path: Path, wall: Wall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "xyzzy-123")
    assert "xyzzy" not in shell(tmp_path, "env; tr '\\0' '\\n' < /proc/self/environ", wall).output


OUTSIDE = {
    "reads the user's files": "cat {home}/secret.txt",
    "lists the user's folder": "ls {home}",
    "changes the system": "echo x > /usr/lib/mulligan-was-here",
    "changes the interpreter": "echo x > {python}/mulligan-was-here",
    "becomes another user": "setpriv --reuid 0 --clear-groups true",
    "makes a namespace": "unshare --user --map-root-user true",
    "mounts": "mount -t tmpfs none /mnt",
    "reads its launcher's files": "ls /proc/$PPID/fd/",
    "writes its launcher's report": "echo '{{}}' > /proc/$PPID/fd/3",
    "reads its launcher's memory": "head -c 1 /proc/$PPID/mem",
    "reaches the network": "{interpreter} -I -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 2)'",
    "sees other processes": "test $(ls -d /proc/[0-9]* | wc -l) -gt 8",
}


@walled
@pytest.mark.parametrize("name", OUTSIDE)
def test_what_lies_outside_is_out_of_reach(tmp_path: Path, name: str) -> None:
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    (home / "secret.txt").write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        words = {"home": home, "python": sys.prefix, "interpreter": sys.executable, "port": listening.getsockname()[1]}
        found = shell(folder, f"({OUTSIDE[name].format(**words)}) && echo REACHED")
    assert found.status not in (0, None)
    assert "REACHED" not in found.output
    assert shell(folder, "echo next").output == "next\n"


@walled
def test_a_place_that_is_named_can_be_read_and_not_written(tmp_path: Path) -> None:
    place, folder = tmp_path / "place", tmp_path / "work"
    place.mkdir()
    folder.mkdir()
    (place / "a.txt").write_text("readable\n")
    place.chmod(0o755)
    tmp_path.chmod(0o755)
    script = f"cat {place}/a.txt; echo x > {place}/b.txt"
    found = run_command(Command(argv=["sh", "-c", script], folder=folder, readable=[place]), LIMITS)
    assert found.output.startswith("readable\n")
    assert not (place / "b.txt").exists()


@walled
def test_a_command_that_kills_its_launcher_has_no_status(tmp_path: Path) -> None:
    found = shell(tmp_path, "echo before; kill -9 $PPID; sleep 30")
    assert (found.status, found.timed_out, found.output) == (None, False, "before\n")


@walled
def test_the_private_folders_are_writable_empty_and_gone_afterwards(tmp_path: Path) -> None:
    script = "ls -A /tmp /dev/shm; echo x > /tmp/left && echo x > /dev/shm/left && echo fine"
    assert [shell(tmp_path, script).output.splitlines()[-1] for _ in range(2)] == ["fine", "fine"]
    assert "left" not in shell(tmp_path, "ls -A /tmp /dev/shm").output


def test_without_bubblewrap_a_command_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    with pytest.raises(UsageError, match="apt-get install bubblewrap"):
        shell(tmp_path, "true")


def test_where_no_wall_can_be_put_up_that_is_an_error_and_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: no permission' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: str(fake))
    with pytest.raises(UsageError, match="bwrap: no permission"):
        shell(tmp_path, "true")


def test_only_plain_files_of_the_folder_are_taken(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    folder = tmp_path / "work"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "report.xml").write_text("<fine/>")
    (folder / "link").symlink_to(outside / "secret")
    (folder / "way").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    assert taken(folder, "below/report.xml") == b"<fine/>"
    assert taken(folder, "below/report.xml", most=3) is None
    for name in ("link", "way/secret", "pipe", "below", "missing", "missing/report.xml", "../outside/secret"):
        assert taken(folder, name) is None
