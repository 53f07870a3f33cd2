"""What holds for every test: no network beyond this machine, an empty home, no settings from outside."""

import os
import socket
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from mulligan.errors import UsageError
from mulligan.worlds.sandbox import Limits, Program, Sandbox

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tensors in tests are small: threads of several workers would only wait for one another
hypothesis.settings.register_profile("mulligan", deadline=None, derandomize="CI" in os.environ, print_blob=True)
hypothesis.settings.load_profile("mulligan")

SETTINGS = ("OPENAI_", "MULLIGAN_", "XDG_")
THIS_MACHINE = ("localhost", "127.0.0.1", "::1", "", None)


class Outside(BaseException):
    """A test tried to leave this machine. No handler for ordinary errors hides it."""


def _stay(host: object) -> None:
    if (host.decode() if isinstance(host, bytes) else host) not in THIS_MACHINE:
        raise Outside(f"a test tried to reach {host}")


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder without settings or caches."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def shut_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, empty_home: Path) -> None:
    """Shut every test in, except that the `model` suite may reach its endpoint."""
    monkeypatch.setenv("HOME", str(empty_home))
    if request.node.get_closest_marker("model") is not None:
        return
    for name in [n for n in os.environ if n.startswith(SETTINGS)]:
        monkeypatch.delenv(name)
    connect, connect_ex, look_up = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo

    def guarded(real: Any) -> Any:
        def call(self: socket.socket, address: Any) -> Any:
            if self.family in (socket.AF_INET, socket.AF_INET6):
                _stay(address[0])
            return real(self, address)

        return call

    def guarded_look_up(host: Any, *args: Any, **options: Any) -> Any:
        _stay(host)
        return look_up(host, *args, **options)

    monkeypatch.setattr(socket.socket, "connect", guarded(connect))
    monkeypatch.setattr(socket.socket, "connect_ex", guarded(connect_ex))
    monkeypatch.setattr(socket, "getaddrinfo", guarded_look_up)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Public data sets laid beside the checkout, read only. Tests that need them skip where they are missing."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no public data in {folder}")
    return folder


@pytest.fixture(scope="session")
def walled() -> None:
    """Untrusted code can be run here. Tests that need it skip where it cannot, and say why."""
    program = Program(source="def add(a, b):\n    return a + b", tests=["assert add(1, 2) == 3"], names=["add"])
    try:
        with Sandbox(limits=Limits(wall_s=30.0, total_s=60.0)) as trial:
            worked = trial.check(program).outcomes[0].kind == "passed"
    except (UsageError, OSError, EOFError) as error:
        pytest.skip(f"no sandbox here: {error}")
    if not worked:
        pytest.skip("no sandbox here: a right program does not pass")
