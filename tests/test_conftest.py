"""The shutters of conftest.py: what a test must not be able to do."""

import os
import socket
from pathlib import Path

import pytest

from conftest import Outside


@pytest.mark.parametrize("method", ["connect", "connect_ex"])
def test_no_connection_leaves_this_machine(method: str) -> None:
    with socket.socket() as client, pytest.raises(Outside, match=r"192\.0\.2\.1"):
        getattr(client, method)(("192.0.2.1", 80))


def test_no_name_is_looked_up() -> None:
    with pytest.raises(Outside, match=r"example\.org"):
        socket.create_connection(("example.org", 443), timeout=1)


def test_this_machine_can_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), timeout=1):
        pass


def test_home_is_elsewhere_and_settings_are_gone(empty_home: Path) -> None:
    assert Path.home() == empty_home
    assert not [name for name in os.environ if name.startswith("OPENAI_")]
