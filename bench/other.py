"""Another package as a reference: in a process and an environment of its own, asked in JSON lines over standard input and output."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[1]


class Other:
    """The client of a script that serves such a process."""

    def __init__(self, script: str, needs: tuple[str, ...], interpreter: Path | None, folder: Path) -> None:
        """Starts it; without an interpreter, one is made in `folder` with what the script needs, which takes a minute or two."""
        python = interpreter or install(folder / "venv", needs)
        home = folder / "home"
        home.mkdir()
        environ = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT / "src"), **self.environ(home)}
        command = [str(python), script, str(home)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
        self._needs = " and ".join(needs)
        self._answer()  # it is ready

    def environ(self, home: Path) -> dict[str, str]:
        """What else it needs in its environment."""
        return {}

    def ask(self, request: dict[str, str]) -> dict[str, Any]:
        """One request, one answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise SystemExit(f"the other process ended, see above: its interpreter needs {self._needs}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.communicate()  # closes its input, which ends it


def install(folder: Path, needs: tuple[str, ...]) -> Path:
    """A new environment with packages in it; its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *needs], check=True, stdout=sys.stderr)
    return python
