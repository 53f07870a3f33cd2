"""The shape of the package as a test: who may import whom, who may use which library, how large things may grow.

The tables are in architecture.py.
"""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import mulligan
from architecture import (
    BANNED,
    EXCEPTIONS,
    MAX_DEPTH,
    MAX_FILE,
    MAX_FUNCTION,
    MAX_PACKAGE,
    MAX_PARAMETERS,
    MAX_PUBLIC,
    MAX_SUMMARY,
    MAY_IMPORT,
    MAY_USE,
    RUNS_STRANGERS,
    SHORTER,
    TYPES_ONLY,
)

PACKAGE = Path(mulligan.__file__).parent
ROOT = PACKAGE.parents[1]


@dataclass(frozen=True)
class Module:
    """A module of ours: dotted name without the package's own, and source."""

    name: str
    source: str
    is_package: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    def imports(self) -> Iterator[tuple[str, bool]]:
        """Every imported dotted name, wherever in the file it stands, and whether it is there for type checking only."""
        typing = {id(n) for i in ast.walk(self.tree) if _tests_type_checking(i) for s in i.body for n in ast.walk(s)}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.name, id(node) in typing
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    yield f"{self._origin(node)}.{alias.name}", id(node) in typing

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        here = ["mulligan", *self.name.split(".")]
        parent = here[: len(here) - node.level + self.is_package]
        return ".".join([*parent, *filter(None, [node.module])])

    def uses(self) -> set[str]:
        """Dotted names of everything taken from libraries: what is imported, and attributes read from imported modules."""
        names = {"__import__": "__import__"}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                names |= {a.asname or a.name.partition(".")[0]: a.name if a.asname else a.name.partition(".")[0] for a in node.names}
            elif isinstance(node, ast.ImportFrom):
                names |= {a.asname or a.name: f"{self._origin(node)}.{a.name}" for a in node.names}
        read = {_dotted(n, names) for n in ast.walk(self.tree) if isinstance(n, ast.Attribute | ast.Name)}
        return {found for found, _ in self.imports()} | {r for r in read if r}


def _tests_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _dotted(node: ast.expr, names: Mapping[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    head = _dotted(node.value, names) if isinstance(node, ast.Attribute) else ""
    return f"{head}.{node.attr}" if head else ""


def matches(name: str, patterns: str) -> bool:
    """Whether a space-separated list of patterns admits `name`."""
    words = patterns.split()
    taken = any(fnmatchcase(name, w[1:]) for w in words if w.startswith("!"))
    return not taken and any(fnmatchcase(name, w) for w in words)


def row(table: Mapping[str, str], name: str) -> str | None:
    """The first row of a table one of whose keys fits `name`."""
    return next((value for keys, value in table.items() if matches(name, keys)), None)


class Tree:
    """The modules that are checked together, and one method a rule: each yields (place, what is wrong)."""

    def __init__(self, sources: Mapping[str, str], packages: frozenset[str] = frozenset()) -> None:
        self.modules = {name: Module(name, source, name in packages) for name, source in sources.items()}

    @classmethod
    def read(cls, folder: Path) -> "Tree":
        """All modules below a folder; a package goes by its own name, the outermost by `__init__`."""
        sources, packages = {}, set()
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join(parts[:-1]) or "__init__" if parts[-1] == "__init__" else ".".join(parts)
            packages |= {name} if parts[-1] == "__init__" else set()
            sources[name] = path.read_text(encoding="utf-8")
        return cls(sources, frozenset(packages))

    def edges(self, module: Module) -> Iterator[tuple[str, bool]]:
        """Modules of ours that a module imports, with the type-checking flag."""
        for found, typing in module.imports():
            if found.partition(".")[0] != "mulligan":
                continue
            inner = found.partition(".")[2]
            while inner and inner not in self.modules and row(MAY_IMPORT, inner) is None:
                inner = inner.rpartition(".")[0]  # a name inside a module
            while inner and inner not in self.modules and inner.rpartition(".")[0] in self.modules:
                inner = inner.rpartition(".")[0]
            yield inner or "__init__", typing

    def direction(self) -> Iterator[tuple[str, str]]:
        for module in self.modules.values():
            allowed = row(MAY_IMPORT, module.name)
            if allowed is None:
                yield module.name, "has no row in MAY_IMPORT"
                continue
            for target, typing in self.edges(module):
                if matches(target, allowed) or (typing and matches(target, row(TYPES_ONLY, module.name) or "")):
                    continue
                yield module.name, f"may not import {target}"

    def cycles(self) -> Iterator[tuple[str, str]]:
        graph = {
            m.name: {t for t, typing in self.edges(m) if not (typing and matches(t, row(TYPES_ONLY, m.name) or ""))}
            for m in self.modules.values()
        }
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            yield error.args[1][0], "import cycle " + " -> ".join(reversed(error.args[1]))

    def libraries(self) -> Iterator[tuple[str, str]]:
        for module in self.modules.values():
            for used in sorted(module.uses()):
                prefixes = [used[:i] for i, c in enumerate(used + ".") if c == "."]
                rows = [allowed for p in prefixes if (allowed := row(MAY_USE, p)) is not None]
                if any(not matches(module.name, allowed) for allowed in rows):
                    yield module.name, f"may not use {used}"
                elif not rows and prefixes[0] not in sys.stdlib_module_names | {"mulligan", "__import__"}:
                    yield module.name, f"uses {prefixes[0]}, which has no row in MAY_USE"

    def sizes(self) -> Iterator[tuple[str, str]]:
        total = 0
        for module in self.modules.values():
            lines = len(module.source.splitlines())
            total += lines
            if lines > (limit := SHORTER.get(module.name, MAX_FILE)):
                yield module.name, f"has {lines} lines, at most {limit}"
            if len(module.name.split(".")) > MAX_DEPTH:
                yield module.name, f"lies deeper than {MAX_DEPTH} levels"
            for node in ast.walk(module.tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    place = f"{module.name}:{node.name}"
                    if (length := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION:
                        yield place, f"has {length} lines, at most {MAX_FUNCTION}"
                    if (count := _parameters(node.args)) > MAX_PARAMETERS:
                        yield place, f"has {count} parameters, at most {MAX_PARAMETERS}"
        if total > MAX_PACKAGE:
            yield "mulligan", f"has {total} lines, at most {MAX_PACKAGE}"

    def names(self) -> Iterator[tuple[str, str]]:
        for name in self.modules:
            for word in BANNED.intersection(name.replace(".", "_").split("_")):
                yield name, f"is called {word}: say what is inside"

    def handlers(self) -> Iterator[tuple[str, str]]:
        for module in (m for m in self.modules.values() if m.name not in RUNS_STRANGERS):
            functions = [n for n in ast.walk(module.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
            for node in ast.walk(module.tree):
                if _swallows_everything(node):
                    around = [f.name for f in functions if f.lineno <= node.lineno <= (f.end_lineno or 0)]
                    yield f"{module.name}:{around[-1] if around else ''}", "swallows every exception"

    def docstrings(self) -> Iterator[tuple[str, str]]:
        """What takes more than one statement deserves a sentence, unless it is private or the seam or base class has said it."""
        classes = [n for m in self.modules.values() for n in ast.walk(m.tree) if isinstance(n, ast.ClassDef)]
        methods = [(c, n) for c in classes for n in c.body if isinstance(n, ast.FunctionDef)]
        seams = {n.name for c, n in methods if "Protocol" in map(ast.unparse, c.bases)}
        told = {n.name for _, n in methods if ast.get_docstring(n)}
        excused = {id(n) for c, n in methods if n.name in seams or (c.bases and n.name in told)}
        for module in self.modules.values():
            summary = (ast.get_docstring(module.tree) or "").partition("\n")[0]
            if not summary.endswith((".", ":")) or len(summary) > MAX_SUMMARY:
                yield module.name, f"wants a first line of at most {MAX_SUMMARY} characters that ends in a full stop or colon"
            for node, path in _public(module.tree.body, module.name):
                if not ast.get_docstring(node) and len(node.body) > 1 and id(node) not in excused:
                    yield path, "wants a docstring"


def _parameters(args: ast.arguments) -> int:
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, [args.vararg, args.kwarg])]
    return len(every) - (bool(every) and every[0].arg in ("self", "cls"))


def _swallows_everything(node: ast.AST) -> bool:
    """A bare or broad handler that does not raise again as its last step, or the same through contextlib.suppress."""
    if isinstance(node, ast.ExceptHandler):
        kinds = ast.unparse(node.type) if node.type else "Exception"
        reraised = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
        kinds, reraised = " ".join(map(ast.unparse, node.args)), False
    else:
        return False
    return not reraised and bool({"Exception", "BaseException"}.intersection(kinds.strip("()").replace(",", " ").split()))


def _public(body: list[ast.stmt], path: str) -> Iterator[tuple[ast.ClassDef | ast.FunctionDef, str]]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node, f"{path}:{node.name}"
            if isinstance(node, ast.ClassDef):
                yield from _public(node.body, f"{path}:{node.name}")


RULES: dict[str, Callable[[Tree], Iterator[tuple[str, str]]]] = {
    "direction": Tree.direction,
    "cycles": Tree.cycles,
    "libraries": Tree.libraries,
    "sizes": Tree.sizes,
    "names": Tree.names,
    "handlers": Tree.handlers,
    "docstrings": Tree.docstrings,
}


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree.read(PACKAGE)


@pytest.mark.parametrize("rule", RULES)
def test_the_package_keeps_the_rule(tree: Tree, rule: str) -> None:
    found = [(place, what) for place, what in RULES[rule](tree) if (rule, place) not in EXCEPTIONS]
    assert not found, "\n" + "\n".join(dict.fromkeys(f"{place} {what}" for place, what in found))


def test_every_exception_is_still_needed(tree: Tree) -> None:
    needed = {(rule, place) for rule, check in RULES.items() for place, _ in check(tree)}
    assert set(EXCEPTIONS) <= needed
    assert all(EXCEPTIONS.values())


DOC = '"""What it is."""\n'
LONG = "def f():\n" + "    x = 1\n" * 60
PLANTED = [
    ("direction", {"records": "from mulligan.store import Store", "store": ""}, "records may not import store"),
    ("direction", {"records": "import mulligan.store", "store": ""}, "records may not import store"),
    ("direction", {"records": "def f():\n from mulligan import store", "store": ""}, "records may not import store"),
    ("direction", {"records": "from . import store", "store": ""}, "records may not import store"),
    ("direction", {"write.checks": "from .signals import find", "write.signals": ""}, "write.checks may not import write.signals"),
    ("direction", {"write.checks": "from ..store import Store", "store": ""}, "write.checks may not import store"),
    ("direction", {"write.checks": "from mulligan.store import Store"}, "write.checks may not import store"),
    ("direction", {"read.features": "import mulligan.read.selection"}, "read.features may not import read.selection"),
    ("direction", {"store": "from mulligan import Memory", "__init__": ""}, "store may not import __init__"),
    ("direction", {"memory": "from mulligan.agents.react import React"}, "memory may not import agents.react"),
    ("direction", {"protocols": "from mulligan.memory import Memory"}, "protocols may not import memory"),
    ("direction", {"agents.react": "if TYPE_CHECKING:\n from mulligan.store import Store"}, "agents.react may not import store"),
    ("direction", {"experiment.run": "from mulligan.cli import app"}, "experiment.run may not import cli"),
    ("direction", {"novelty": ""}, "novelty has no row in MAY_IMPORT"),
    ("cycles", {"store": "import mulligan.search", "search": "def f():\n from mulligan.store import Store"}, "import cycle"),
    ("cycles", {"store": "import mulligan.search", "search": "if TYPE_CHECKING:\n import mulligan.store"}, "import cycle"),
    ("libraries", {"write.checks": "import sqlite3"}, "write.checks may not use sqlite3"),
    ("libraries", {"memory": "def f():\n from openai import OpenAI"}, "memory may not use openai.OpenAI"),
    ("libraries", {"store": "from concurrent import futures"}, "store may not use concurrent.futures"),
    ("libraries", {"store": "import os as o\nif o.fork() == 0: pass"}, "store may not use os.fork"),
    ("libraries", {"store": "from os import posix_spawnp"}, "store may not use os.posix_spawnp"),
    ("libraries", {"store": "import pickle"}, "store may not use pickle"),
    ("libraries", {"worlds.grid": "import torch.nn"}, "worlds.grid may not use torch.nn"),
    ("libraries", {"write.checks": "import importlib\nimportlib.import_module('x')"}, "write.checks may not use importlib.import_module"),
    ("libraries", {"write.checks": "__import__('x')"}, "write.checks may not use __import__"),
    ("libraries", {"cli": "import tabulate"}, "cli uses tabulate, which has no row in MAY_USE"),
    ("sizes", {"store": "x = 1\n" * 501}, "store has 501 lines, at most 500"),
    ("sizes", {"protocols": "x = 1\n" * 121}, "protocols has 121 lines, at most 120"),
    ("sizes", {"store": LONG}, "store:f has 61 lines, at most 60"),
    ("sizes", {"store": "class A:\n def f(self, a, b, c, d, /, e, *f, g, h, **i): ..."}, "store:f has 9 parameters, at most 8"),
    ("sizes", {"worlds.sql.compare": ""}, "worlds.sql.compare lies deeper than 2 levels"),
    ("sizes", {f"worlds.w{i}": "x = 1\n" * 401 for i in range(90)}, "mulligan has 36090 lines, at most 36000"),
    ("names", {"worlds.sql_utils": ""}, "worlds.sql_utils is called utils"),
    ("names", {"core.store": ""}, "core.store is called core"),
    ("handlers", {"pool": "def f():\n try: g()\n except Exception: pass"}, "pool:f swallows every exception"),
    ("handlers", {"pool": "def f():\n try: g()\n except (KeyError, BaseException) as e: h(e)"}, "pool:f swallows every exception"),
    ("handlers", {"pool": "try: g()\nexcept: pass"}, "pool: swallows every exception"),
    ("handlers", {"pool": "def f():\n with contextlib.suppress(Exception): g()"}, "pool:f swallows every exception"),
    ("docstrings", {"pool": ""}, "pool wants a first line"),
    ("docstrings", {"pool": '"""What it is"""'}, "pool wants a first line"),
    ("docstrings", {"pool": f'"""{"a" * 120}."""'}, "pool wants a first line"),
    ("docstrings", {"pool": DOC + "def f():\n x = 1\n return x"}, "pool:f wants a docstring"),
    ("docstrings", {"pool": DOC + "class A:\n x: int\n y: int"}, "pool:A wants a docstring"),
    ("docstrings", {"pool": DOC + "class A:\n '''An A.'''\n def f(self):\n  x = 1\n  return x"}, "pool:A:f wants a docstring"),
]
ALLOWED = [
    ("direction", {"protocols": "if TYPE_CHECKING:\n from mulligan.memory import Memory", "memory": ""}),
    ("direction", {"write.checks": "from mulligan.records import Check\nfrom mulligan import protocols", "records": "", "protocols": ""}),
    ("direction", {"memory": "from mulligan.write import admission, checks", "write.admission": "", "write.checks": "", "write": ""}),
    ("cycles", {"protocols": "if TYPE_CHECKING:\n import mulligan.memory", "memory": "import mulligan.protocols"}),
    ("libraries", {"store": "import sqlite3, os\nos.getpid()", "worlds.sql": "import sqlglot.expressions"}),
    ("sizes", {"store": "class A:\n def f(self, a, b, c, d, /, e, *f, g, h): ..."}),
    ("names", {"read.selection": "", "write.corelation": ""}),
    ("handlers", {"store": "try: f()\nexcept BaseException:\n roll_back()\n raise"}),
    ("handlers", {"store": "try: f()\nexcept (KeyError, OSError): pass"}),
    ("docstrings", {"pool": DOC + "def f(): return 1\ndef _g():\n x = 1\n return x\nclass E(Exception): ..."}),
    ("docstrings", {"pool": DOC + "class P(Protocol):\n def f(self): ...\nclass A:\n 'An A.'\n def f(self):\n  x = 1\n  return x"}),
    ("docstrings", {"pool": DOC + "class A:\n 'An A.'\n def f(self): 'F.'\nclass B(A):\n 'A B.'\n def f(self):\n  x = 1\n  return x"}),
]


def _planted(sources: Mapping[str, str], rule: str) -> list[str]:
    packages = frozenset(name for name in sources if any(other.startswith(f"{name}.") for other in sources))
    return [f"{place} {what}" for place, what in RULES[rule](Tree(sources, packages))]


@pytest.mark.parametrize(("rule", "sources", "message"), PLANTED, ids=[message for *_, message in PLANTED])
def test_a_planted_violation_is_named(rule: str, sources: Mapping[str, str], message: str) -> None:
    assert any(message in found for found in _planted(sources, rule))


@pytest.mark.parametrize(("rule", "sources"), ALLOWED)
def test_what_is_allowed_passes(rule: str, sources: Mapping[str, str]) -> None:
    assert _planted(sources, rule) == []


HEAVY = "torch transformers trl peft starlette fastapi mcp openai pydantic typer rich sqlglot wordllama xllamacpp matplotlib"
PROBE = """
import os, sys

package, found = sys.argv[1], []


def watch(event, args):
    if event == "open" and not str(args[0]).endswith((".py", ".pyc", ".so")):
        found.append(f"opens {args[0]}")
    elif event in ("sqlite3.connect", "os.fork", "os.posix_spawn", "os.mkdir") or event.startswith(("socket.", "subprocess.", "shutil.")):
        found.append(event)


class Spy(dict):
    # Counts what the package's own code reads: libraries that it loads may look at their own variables.
    def note(self, name):
        frame = sys._getframe(2)
        while frame.f_globals.get("__name__") in ("os", "__main__"):
            frame = frame.f_back
        if frame.f_globals.get("__name__", "").partition(".")[0] == package:
            found.append(f"reads {name} from the environment")

    def __getitem__(self, name):
        self.note(name)
        return super().__getitem__(name)

    def get(self, name, default=None):
        self.note(name)
        return super().get(name, default)

    def __contains__(self, name):
        self.note(name)
        return super().__contains__(name)


os.environ = Spy(os.environ)
sys.addaudithook(watch)
__import__(package)
found += [f"loads {name}" for name in sys.argv[2].split() if name in sys.modules]
print(*found, sep="\\n")
"""


def _probe(package: str, folder: Path, heavy: str = HEAVY) -> list[str]:
    """What a fresh interpreter sees when it imports a package: files, sockets and variables touched, heavy modules loaded."""
    command = [sys.executable, "-B", "-c", f"import sys; sys.path.insert(0, {str(folder)!r}){PROBE}", package, heavy]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return done.stdout.split("\n")[:-1] if done.stdout.strip() else []


def test_importing_the_package_does_nothing() -> None:
    assert _probe("mulligan", PACKAGE.parent) == []


def test_the_probe_sees_what_an_import_does(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(
        "import os, sqlite3, xml.dom\nos.getenv('A'), os.environ.get('B'), 'C' in os.environ\n"
        "open('note', 'w').close()\nsqlite3.connect(':memory:').close()\n"
    )
    found = _probe("planted", tmp_path, "xml.dom xml.sax")
    assert found == [*(f"reads {n} from the environment" for n in "ABC"), "opens note", "sqlite3.connect", "loads xml.dom"]


def test_the_public_surface_is_small() -> None:
    names = getattr(mulligan, "__all__", ())
    assert len(names) <= MAX_PUBLIC
    assert all(hasattr(mulligan, name) for name in names)


@pytest.mark.parametrize("folder", ["tests", "bench", "scripts"])
def test_code_beside_the_package_is_of_the_same_size(folder: str) -> None:
    tree = Tree.read(ROOT / folder)
    assert [(place, what) for place, what in tree.sizes() if place != "mulligan"] == []
