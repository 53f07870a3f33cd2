"""mem0 as a reference: its search over the same texts, with the same vectors, in a process and an environment of its own.

Run as a script by the other interpreter, this file serves one mem0 memory over standard input and output, a JSON line each way.
mem0 2.2 is set up as its own documentation has it for local use: Qdrant in a folder, no server. Texts are added with
infer=False, so that no language model is asked; the embedder is the one of this package, hooked in where mem0 looks up its
providers; telemetry is off, and sockets are shut, so nothing leaves the machine. What mem0 has only with extras (spaCy, BM25) is not
installed, which makes its search faster, not slower.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

VERSION = "2.2.1"


class Mem0:
    """The client: a mem0 memory in another process. `search` gives the milliseconds that it took there."""

    most = 2_000  # records: more take mem0 minutes to add

    def __init__(self, interpreter: Path | None, folder: Path) -> None:
        """Starts it; without an interpreter, one is made in `folder` with mem0 installed, which takes a minute or two."""
        python = interpreter or install(folder / "mem0-venv")
        home = folder / "mem0-home"
        home.mkdir()
        environ = {"PATH": os.environ["PATH"], "HOME": str(home), "MEM0_DIR": str(home), "MEM0_TELEMETRY": "False"}
        environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1] / "src")
        command = [str(python), str(Path(__file__).resolve()), str(home)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
        self.held = 0
        self._answer()  # it is ready

    def add(self, text: str) -> None:
        """Store a text."""
        self._ask({"add": text})
        self.held += 1

    def search(self, text: str) -> float:
        """Search as an agent would for three memories; milliseconds in that process."""
        return float(self._ask({"search": text})["ms"])

    def _ask(self, request: dict[str, str]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise SystemExit("mem0 ended, see above: the interpreter needs mem0ai and wordllama")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.communicate()  # closes its input, which ends it


def install(folder: Path) -> Path:
    """A new environment with mem0 and the word vectors in it; its interpreter."""
    from importlib.metadata import version

    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    wanted = [f"mem0ai=={VERSION}", *(f"{name}=={version(name)}" for name in ("wordllama", "numpy", "pydantic"))]
    subprocess.run([str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *wanted], check=True, stdout=sys.stderr)
    return python


def serve(home: str) -> None:
    """Answer requests until the input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr
    _shut_sockets()
    from mem0 import Memory
    from mem0.utils.factory import EmbedderFactory

    EmbedderFactory.provider_to_class["langchain"] = f"{__name__}.{_hooked().__name__}"
    memory = Memory.from_config(
        {
            "vector_store": {"provider": "qdrant", "config": {"path": f"{home}/qdrant", "embedding_model_dims": 256}},
            "embedder": {"provider": "langchain", "config": {"embedding_dims": 256}},
            "llm": {"provider": "openai", "config": {"api_key": "none"}},
            "history_db_path": f"{home}/history.db",
        }
    )
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        start = time.perf_counter_ns()
        if "add" in request:
            found = memory.add(request["add"], user_id="u", infer=False)
        else:
            found = memory.search(request["search"], top_k=3, filters={"user_id": "u"})
        taken = (time.perf_counter_ns() - start) / 1e6
        print(json.dumps({"ms": taken, "found": len(found["results"])}), file=answers, flush=True)


def _shut_sockets() -> None:
    import socket

    def refuse(*_: object) -> None:
        raise OSError("this benchmark does not use the network")

    socket.socket.connect = socket.socket.connect_ex = refuse  # type: ignore[assignment,method-assign]
    socket.getaddrinfo = refuse  # type: ignore[assignment]


def _hooked() -> type:
    """An embedder of mem0's that gives this package's vectors; made late, since mem0 is not installed on the client's side."""
    from mem0.embeddings.base import EmbeddingBase

    from mulligan.embeddings import StaticEmbedder

    class Hooked(EmbeddingBase):
        vectors = StaticEmbedder()

        def embed(self, text: str, memory_action: object = None) -> list[float]:
            return [float(value) for value in self.vectors.embed([text])[0]]

    globals()["Hooked"] = Hooked
    return Hooked


if __name__ == "__main__":
    serve(sys.argv[1])
