"""mem0 as a reference: its search over the same texts, with the same vectors, in a process and an environment of its own.

Run as a script by the other interpreter, this file serves one mem0 memory over standard input and output, a JSON line each way.
mem0 2.2 is set up as its own documentation has it for local use: Qdrant in a folder, no server. Texts are added with
infer=False, so that no language model is asked; the embedder is the one of this package, hooked in where mem0 looks up its
providers; telemetry is off, and sockets are shut, so nothing leaves the machine. What mem0 has only with extras (spaCy, BM25) is not
installed, which makes its search faster, not slower.
"""

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
from bench.other import Other

VERSION = "2.2.1"


class Mem0(Other):
    """The client: a mem0 memory in another process. `search` gives the milliseconds that it took there."""

    most = 2_000  # records: more take mem0 minutes to add

    def __init__(self, interpreter: Path | None, folder: Path) -> None:
        needs = (f"mem0ai=={VERSION}", *(f"{name}=={version(name)}" for name in ("wordllama", "numpy", "pydantic")))
        super().__init__(str(Path(__file__).resolve()), needs, interpreter, folder)
        self.held = 0

    def environ(self, home: Path) -> dict[str, str]:
        """Its folder, and no telemetry."""
        return {"MEM0_DIR": str(home), "MEM0_TELEMETRY": "False"}

    def add(self, text: str) -> None:
        """Store a text."""
        self.ask({"add": text})
        self.held += 1

    def search(self, text: str) -> float:
        """Search as an agent would for three memories; milliseconds in that process."""
        return float(self.ask({"search": text})["ms"])


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
