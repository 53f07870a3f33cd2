"""Write the generated sections of the documentation again; with --check only say which are out of date.

A section stands between `<!-- generated: NAME -->` and `<!-- end -->`. Each NAME is one function here.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from mulligan import records
from mulligan.nouns import to_json

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "mulligan"
SECTION = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def first_line(doc: str | None) -> str:
    """The first line of a docstring, fit for a cell of a table."""
    return (doc or "").strip().partition("\n")[0].rstrip(":").replace("|", "\\|")


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def modules() -> str:
    """The module map: every module with the first line of its docstring, packages before what they hold."""
    rows = []
    for path in sorted(SOURCE.rglob("*.py"), key=lambda p: (len(p.parts) > len(SOURCE.parts) + 1, p.with_suffix("").as_posix())):
        name = path.relative_to(SOURCE).as_posix().removesuffix("__init__.py") or "__init__.py"
        rows.append((f"`{name}`", first_line(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))))))
    return table(("module", "what it is"), rows)


def nouns() -> str:
    """The nouns in the order of records.py, with their fields."""
    made = [value for value in vars(records).values() if is_dataclass(value) and value.__module__ == records.__name__]
    return table(
        ("noun", "what it is", "fields"),
        [(f"`{n.__name__}`", first_line(n.__doc__), " ".join(f"`{f.name}`" for f in fields(n))) for n in made],
    )


def lifecycle() -> str:
    """Which state may follow which."""
    return table(
        ("state", "may become"),
        [(f"`{state}`", ", ".join(f"`{s}`" for s in sorted(after)) or "nothing: it stays") for state, after in records.LIFECYCLE.items()],
    )


def schema() -> str:
    """The store's tables as SQL."""
    from mulligan import migrations

    return f"```sql\n{migrations.schema()}\n```"


def settings() -> str:
    """Every setting of an experiment's file: dotted name, default as TOML has it, and the comment beside it."""
    from mulligan.experiment.settings import Experiment

    source = (SOURCE / "experiment" / "settings.py").read_text(encoding="utf-8")

    def rows(kind: type, prefix: str) -> Iterator[tuple[str, ...]]:
        body = source.partition(f"\nclass {kind.__name__}:")[2].partition("\nclass ")[0]
        hints = get_type_hints(kind)
        for f in fields(kind):
            if is_dataclass(hints[f.name]):
                yield from rows(hints[f.name], f"{prefix}{f.name}.")
            else:
                default = f.default_factory() if f.default is MISSING and f.default_factory is not MISSING else f.default
                shown = "must be given" if default is MISSING else "none" if default is None else f"`{to_json(default)}`"
                comment = re.search(rf"^    {f.name}: .*?  # (.*)$", body, re.MULTILINE)
                yield f"`{prefix}{f.name}`", shown, comment[1] if comment else ""

    return table(("setting", "default", "what it does"), rows(Experiment, ""))


def commands() -> str:
    """Every command with the first line of its help and its options."""
    from typer.main import get_command

    from mulligan.cli import app

    def rows(group: Any, prefix: str) -> Iterator[tuple[str, ...]]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from rows(command, f"{prefix}{name} ")
            else:
                words = [p.opts[0] if p.param_type_name == "option" else p.name.upper() for p in command.params]
                yield f"`mulligan {prefix}{name}`", first_line(command.help), " ".join(f"`{w}`" for w in words)

    return table(("command", "what it does", "takes"), rows(get_command(app), ""))


SECTIONS: dict[str, Callable[[], str]] = {made.__name__: made for made in (modules, nouns, lifecycle, schema, settings, commands)}


def renewed(text: str) -> str:
    """`text` with every generated section made anew."""
    return SECTION.sub(lambda m: f"{m[1]}{SECTIONS[m[2]]()}\n{m[3]}", text)


def main() -> int:
    """Exit status 1 when --check finds a section that differs from what would be written."""
    stale = {path: new for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")] if (new := renewed(old := path.read_text("utf-8"))) != old}
    for path, new in stale.items():
        if "--check" in sys.argv:
            print(f"{path.relative_to(ROOT)} is out of date: run `make docs`")
        else:
            path.write_text(new, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return int("--check" in sys.argv and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
