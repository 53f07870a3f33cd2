"""The files of a workspace: a commit with uncommitted changes, copies of it, and patches applied to a copy.

In: a git repository, a commit, patches as text. Out: folders. The repository is only read: its work tree, its index and its settings stay
as they are, and hooks are not run. A patch is untrusted: it can write inside its copy alone, makes no links, and what is protected is
restored after it. Not promised: what git itself keeps beside the files (submodules, the history); a copy has none.
"""

import atexit
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from mulligan.errors import UsageError

LONGEST = 200_000  # characters of a patch
SECONDS = 60.0  # for git to answer
PROTECTED = (
    *("test_*.py", "*_test.py", "tests/*", "test/*", "*/tests/*", "*/test/*", "conftest.py"),
    *("pytest.ini", "pytest.toml", "tox.ini", "setup.cfg", "setup.py", "pyproject.toml", "noxfile.py", ".coveragerc"),
    *("sitecustomize.py", "usercustomize.py", "*.pth", "Makefile", "package.json", "jest.config.*", "vitest.config.*"),
)
LINKS = re.compile(r"^(?:new file|new|old|deleted file) mode 1[26]0000", re.MULTILINE)
START = re.compile(r"^(?:diff --git |--- |Index: )", re.MULTILINE)
FENCE = re.compile(r"```[ \t]*(?:diff|patch)?[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
LENIENT = ("--recount", "--ignore-whitespace")
NOBODY = {"NAME": "nobody", "EMAIL": "nobody@localhost", "DATE": "2000-01-01T00:00:00Z"}  # the same repository has the same commit
READING = ("-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a task begins: a commit of a repository, and changes (a patch) that were not committed."""

    repository: str
    commit: str
    changes: str = ""


class Refused(Exception):
    """A patch that cannot be applied; the message says why."""


def git(repository: str, *words: str, folder: Path | None = None, text: str | None = None) -> str:
    """What git says to `words`, and `text` on its standard input, in `repository`; what it keeps beside it lies in `folder`, if given.

    Raises UsageError with git's words when it fails.
    """
    environment = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    environment |= {f"GIT_{who}_{what}": said for who in ("AUTHOR", "COMMITTER") for what, said in NOBODY.items()}
    if folder:
        environment |= {"GIT_INDEX_FILE": str(folder / "index"), "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    try:
        done = subprocess.run(
            ["git", *READING, *words],
            cwd=repository,
            env=environment,
            input=None if text is None else text.encode("utf-8", "surrogatepass"),
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            timeout=SECONDS,
        )
    except (OSError, ValueError) as error:
        missing = f"no folder {repository}" if shutil.which("git") else "git is not installed: apt-get install git"
        raise UsageError(missing if isinstance(error, FileNotFoundError) else f"git: {error}") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"git {words[0]} in {repository} took more than {SECONDS:g} s") from None
    if done.returncode:
        raise UsageError(f"git {words[0]} in {repository}: {done.stderr.decode('utf-8', 'replace').strip()[:300]}")
    return done.stdout.decode("utf-8", "surrogateescape")


def commit_of(repository: str, name: str) -> str:
    """The full id of a commit. Raises UsageError where the repository has none of that name."""
    return git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").strip()


def new_repository(folder: Path, patch: str) -> str:
    """Make a repository of one commit out of a patch that makes its files, or find the one that was made; the commit's id.

    Many processes may do so at once. Raises UsageError when it cannot be written.
    """
    try:
        if not (folder / ".git").is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            place = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
            git(str(place), "init", "--quiet")
            git(str(place), "apply", "--index", "-", text=patch)
            git(str(place), "commit", "--quiet", "--message", "The beginning")
            with suppress(OSError):  # another process was first
                place.rename(folder)
            shutil.rmtree(place, ignore_errors=True)
    except OSError as error:
        raise UsageError(f"cannot write a repository to {folder}: {error.strerror or error}") from None
    return commit_of(str(folder), "HEAD")


@dataclass(frozen=True, slots=True)
class Pristine:
    """The files of a source, never run in; `protected` are the paths among them that no patch may change."""

    folder: Path
    protected: frozenset[str]


def pristine(source: Source, protected: Sequence[str]) -> Pristine:
    """The files where a task begins, made once a process. Raises UsageError where repository, commit or changes are not right."""
    return _pristine(os.getpid(), source, tuple(protected))


@lru_cache(maxsize=64)
def _pristine(pid: int, source: Source, protected: tuple[str, ...]) -> Pristine:
    place = Path(tempfile.mkdtemp(prefix="mulligan-workspace-"))
    atexit.register(lambda: shutil.rmtree(place, ignore_errors=True) if os.getpid() == pid else None)
    folder = place / "files"
    folder.mkdir()
    git(source.repository, "read-tree", commit_of(source.repository, source.commit), folder=place)
    git(source.repository, "checkout-index", "--all", f"--prefix={folder}/", folder=place)
    if source.changes:
        try:
            _apply(folder, source.changes)
        except Refused as error:
            raise UsageError(f"the uncommitted changes do not apply to {source.commit}: {error}") from None
    return Pristine(folder, frozenset(_matching(folder, protected)))


def copied(folder: Path) -> Path:
    """A copy of a folder, in a new temporary one; `discard` deletes it. Blocks are shared where the file system can."""
    place = Path(tempfile.mkdtemp(prefix="mulligan-copy-"))
    copy = place / "files"
    subprocess.run(["cp", "-a", "--reflink=auto", str(folder), str(copy)], check=True, capture_output=True)
    return copy


def discard(copy: Path) -> None:
    """Delete a copy."""
    shutil.rmtree(copy.parent, ignore_errors=True)


def patched(start: Pristine, patch: str, protected: Sequence[str]) -> tuple[Path, list[str]]:
    """A copy with `patch` applied, and the protected paths that it changed, which were restored. Raises Refused."""
    copy = copied(start.folder)
    try:
        _apply(copy, patch)
        return copy, _restore(start, copy, protected)
    except BaseException:
        discard(copy)
        raise


def clean(action: str) -> str:
    """The patch of an action: what the first fence holds, from the first line of a diff on; it ends with a line break."""
    text = action.replace("\r\n", "\n")
    fenced = FENCE.search(text)
    text = fenced.group(1) if fenced else text
    found = START.search(text)
    return text[found.start() :].rstrip("\n") + "\n" if found else ""


def _apply(folder: Path, patch: str) -> None:
    """Apply a patch as git does; one whose counts or spaces are wrong, or that has no context behind a change, is given another chance."""
    if len(patch) > LONGEST:
        raise Refused(f"the patch has more than {LONGEST} characters")
    if not patch:
        raise Refused("no patch: a unified diff begins with 'diff --git' or '---'")
    if LINKS.search(patch):
        raise Refused("a patch may make no links and no submodules")
    level = "-p1" if re.search(r"^--- (?:a/|/dev/null)", patch, re.MULTILINE) or "diff --git a/" in patch else "-p0"
    said = ""
    for lenient in ((), LENIENT, (*LENIENT, "--unidiff-zero")):
        try:
            git(str(folder), "apply", "--whitespace=nowarn", level, *lenient, "-", folder=folder.parent, text=patch)
            return
        except UsageError as error:
            said = said or str(error).partition(": ")[2]
    raise Refused(said.removeprefix("error: "))


def _restore(start: Pristine, copy: Path, protected: Sequence[str]) -> list[str]:
    """Undo what was done to protected paths: none is changed, none is new."""
    changed = []
    for path in sorted(start.protected | set(_matching(copy, protected))):
        before, after = start.folder / path, copy / path
        if path not in start.protected:
            after.unlink()
        elif not _same(before, after):
            after.parent.mkdir(parents=True, exist_ok=True)
            after.unlink(missing_ok=True)
            shutil.copy2(before, after, follow_symlinks=False)
        else:
            continue
        changed.append(path)
    return changed


def _same(one: Path, other: Path) -> bool:
    if one.is_symlink() or other.is_symlink():
        return one.is_symlink() and other.is_symlink() and one.readlink() == other.readlink()
    return other.is_file() and one.stat().st_mode == other.stat().st_mode and one.read_bytes() == other.read_bytes()


def _matching(folder: Path, protected: Sequence[str]) -> list[str]:
    """Paths of files below a folder that a pattern fits; one without a slash is for the name in any folder."""
    found = []
    for above, folders, files in os.walk(folder):
        inside = Path(above).relative_to(folder)
        links = [name for name in folders if Path(above, name).is_symlink()]
        for name in (*files, *links):
            path = (inside / name).as_posix()
            if any(fnmatchcase(path if "/" in pattern else name, pattern) for pattern in protected):
                found.append(path)
    return found
