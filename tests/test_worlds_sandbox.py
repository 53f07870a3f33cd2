"""The sandbox: hostile programs neither pass nor escape nor hang, and the next check is as if they had not been."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.errors import UsageError
from mulligan.worlds import sandbox
from mulligan.worlds.sandbox import Limits, Outcome, Program, Sandbox
from mulligan.worlds.sandbox_inside import pack, unpack
from mulligan.worlds.sandbox_wall import refusals

PATIENT = Limits(wall_s=30.0, total_s=60.0)
HASTY = Limits(wall_s=1.0, total_s=20.0, processes=20)
GOOD = Program(source="def add(a, b):\n    return a + b", tests=["assert add(1, 2) == 3"], names=["add"])


walled = pytest.mark.usefixtures("walled")


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(limits=PATIENT) as opened:
        yield opened


def tried(box: Sandbox, source: str, *tests: str, limits: Limits = PATIENT, setup: str = "") -> list[Outcome]:
    box.limits = limits
    report = box.check(Program(source=source, tests=tests or ["assert add(1, 2) == 3"], names=["add"], setup=setup))
    return [report.fault] if report.fault else list(report.outcomes)


def body(*lines: str) -> str:
    return "import os, sys\ndef add(a, b):\n    " + "\n    ".join(lines)


WRITE = "def say(m):\n    os.write(3, len(m).to_bytes(4, 'big') + m)\n"
LIBC = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
HOSTILE = {
    # lies about values
    "equal to everything": ("class E:\n    def __eq__(s, o): return True\ndef add(a, b): return E()", "failed"),
    "an int equal to everything": ("class I(int):\n    def __eq__(s, o): return True\ndef add(a, b): return I(99)", "failed"),
    "a str equal to everything": ("class S(str):\n    def __eq__(s, o): return True\ndef add(a, b): return S('x')", "failed"),
    "a list that is equal": ("class L(list):\n    def __eq__(s, o): return True\ndef add(a, b): return L()", "failed"),
    "a type that says it is int": (
        "class F:\n    __class__ = int\n    def __eq__(s, o): return True\ndef add(a, b): return F()",
        "raised failed",
    ),
    "not a number": (body("return float('nan')"), "failed"),
    # ends, instead of an answer
    "exit when loaded": ("import sys\nsys.exit(0)", "raised"),
    "hard exit when loaded": ("import os\nos._exit(0)", "gone"),
    "exit when called": (body("sys.exit(0)"), "raised"),
    "hard exit when called": (body("os._exit(0)"), "gone"),
    "a crash": ("import ctypes\ndef add(a, b): return ctypes.string_at(0)", "gone"),
    "its own end": (body("os.kill(os.getpid(), 9)", "return 99"), "failed gone"),
    "a base exception": (body("raise BaseException('x')"), "raised"),
    "an interrupt": (body("raise KeyboardInterrupt"), "raised"),
    "a generator's end": (body("raise StopIteration(3)"), "raised"),
    # never ends
    "a loop": (body("while True: pass"), "timeout"),
    "a loop when loaded": ("while True: pass", "timeout"),
    "a loop in C": ("import itertools\ndef add(a, b): return list(itertools.product(range(10), repeat=12))", "timeout raised"),
    "a loop in the text of an error": (
        body("class X(Exception):", "    def __str__(s):", "        while True: pass", "raise X"),
        "timeout",
    ),
    "a sleep deaf to signals": (
        body("import signal, time", "for n in (1, 2, 3, 14, 15): signal.signal(n, signal.SIG_IGN)", "time.sleep(99)"),
        "timeout",
    ),
    "an endless iterator": ("import itertools\ndef add(a, b): return itertools.count()", "failed"),
    "a stopped process": (body("os.kill(os.getpid(), 19)", "while True: pass"), "timeout"),
    "standard input": (body("return input()"), "raised"),
    # takes too much
    "memory": (body("return len(bytearray(8 << 30))"), "raised"),
    "memory bit by bit": (body("x = []", "while True: x.append(bytes(1 << 20))"), "raised timeout gone"),
    "a fork bomb": (body("while True:", "    try: os.fork()", "    except OSError: pass"), "timeout gone"),
    "a big file": (body("with open('/tmp/x', 'wb') as f:", "    while True: f.write(bytes(1 << 20))"), "raised"),
    "many files": (body("for n in range(10**6): open(f'/tmp/{n}', 'w').close()"), "raised timeout"),
    "open files": (body("kept = [open('/dev/null') for _ in range(10**6)]"), "raised"),
    "a flood of output": (body("while True: print('x' * 100000)"), "raised"),
    "a number too long to write": (body("return 10 ** 3000000"), "raised timeout"),
    "endless depth": (body("x = []", "for _ in range(100000): x = [x]", "return x"), "raised gone"),
    "a list in itself": (body("x = []", "x.append(x)", "return x"), "raised"),
    "endless recursion": (body("return add(a, b)"), "raised gone"),
    "a long answer": (body("return 'x' * (9 << 20)"), "gone raised"),
    # writes where answers go
    "a forged answer": (f"import os\n{WRITE}def add(a, b):\n    say(b'3')\n    return 99", "gone"),
    "a forged report": (f'import os\n{WRITE}def add(a, b):\n    say(b\'R\' + b\'{{"kind": "passed", "test": 0}}\')\n    return 99', "gone"),
    "a forged exception": (
        f'import os\n{WRITE}def add(a, b):\n    say(b\'{{"raised": {{"kind": "passed", "builtin": "eval"}}}}\')\n    return 99',
        "raised",
    ),
    "an exception that is none": (f"import os\n{WRITE}def add(a, b):\n    say(b'{{\"raised\": 7}}')\n    return 99", "raised"),
    "noise": (body("os.write(3, os.urandom(100))", "return 99"), "gone timeout"),
    "a huge length": (body("os.write(3, bytes([255] * 1000))", "return 99"), "gone"),
    "a closed channel": (body("os.close(3)", "return 99"), "gone"),
    "patched json": ("import json\njson.dumps = lambda *a, **k: '{\"value\": 3}'\ndef add(a, b): return 99", "gone"),
    "a last word": ("import atexit, os\natexit.register(lambda: os.write(3, bytes(99)))\ndef add(a, b): return 99", "failed"),
    # looks for what it should not see
    "the tests": (
        body("import gc", "return 3 if 'assert add' in str([o for o in gc.get_objects() if isinstance(o, (str, list))]) else 99"),
        "failed",
    ),
    "the caller's frames": (body("f = sys._getframe()", "while f.f_back: f = f.f_back", "return sorted(f.f_globals)"), "failed"),
    # leaves something behind
    "a grandchild": (body("if os.fork() == 0:", "    os.setsid()", "    while True: pass", "return 99"), "failed"),
    "a thread": (body("import threading, time", "threading.Thread(target=time.sleep, args=(99,)).start()", "return 99"), "failed"),
    "no function": ("x = 3", "raised"),
    "no Python": ("def add(a, b)\n    return", "raised"),
    "a NUL": ("def add(a, b): return 3\x00", "raised"),
    "nothing": ("", "raised"),
}


@walled
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_programs_do_not_pass_and_the_next_check_is_unaffected(box: Sandbox, name: str) -> None:
    source, kinds = HOSTILE[name]
    began = time.monotonic()
    (outcome,) = tried(box, source, limits=HASTY)
    assert outcome.kind in kinds.split(), outcome
    assert time.monotonic() - began < 15
    assert [o.kind for o in tried(box, GOOD.source)] == ["passed"]


# What code behind the wall finds: an expression, and what it gives.
PLACES = ("", "/tmp", "/dev", "/dev/shm", "/etc", "/run", "/var/tmp", "/proc", "/usr")
FOUND = {
    "the environment": ("sorted(os.environ)", ["LANG", "PATH", "PWD", "PYTHONHASHSEED"]),
    "other processes": ("[os.listdir('/proc'), os.getpid(), os.getppid()]", [[], 1, 0]),
    "file descriptors": ("[fd for fd in range(300) if ok(os.fstat, fd)]", [0, 1, 2, 3]),
    "homes": ("[ok(os.stat, p) for p in ('/home', '/root/.ssh', '/root/.bashrc', '/etc/passwd', '/srv', '/mnt')]", [False] * 6),
    "this checkout": (f"ok(os.stat, {str(Path(__file__))!r})", False),
    "a system folder to write": ("ok(open, '/usr/lib/x', 'w')", False),
    "a network": ("[ok(socket.create_connection, (h, 9), 1) for h in ('1.1.1.1', '127.0.0.1')]", [False, False]),
    "others to kill": ("[ok(os.kill, n, 0) for n in (2, 3, 99, -1)]", [False] * 4),
    "rights": ("[libc.mount(b'x', b'/tmp', b'tmpfs', 0, None), libc.umount2(b'/proc', 2), libc.unshare(0x10000000)]", [-1, -1, -1]),
    "root": ("[ok(os.chroot, '/'), ok(os.mknod, '/tmp/n', 0o20666, 259), ok(os.setuid, 7), ok(socket.sethostname, 'x')]", [False] * 4),
    "old marks": (f"[ok(os.stat, p + '/mark') for p in {PLACES!r}]", [False] * len(PLACES)),
    "a host name": ("os.uname().nodename", "sandbox"),
}
SEARCH = "import os, socket\n" + LIBC + "def ok(f, *a):\n    try: f(*a)\n    except OSError: return False\n    return True\n"


@pytest.fixture(scope="module", params=["as it is", "as a user"])
def walls_of(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A sandbox, and one as it is put up where the host is not root."""
    with pytest.MonkeyPatch.context() as patch, Sandbox(limits=PATIENT) as opened:
        if request.param == "as a user":
            patch.setattr(sandbox.os, "getuid", lambda: 1000)
        yield opened


@walled
@pytest.mark.parametrize("name", FOUND)
def test_what_is_behind_the_wall(walls_of: Sandbox, name: str) -> None:
    expression, expected = FOUND[name]
    leave = f"for p in {PLACES!r}:\n    try: open(p + '/mark', 'w')\n    except OSError: pass\ndef add(a, b): return 3"
    assert tried(walls_of, leave)[0].kind == "passed"
    (outcome,) = tried(walls_of, f"{SEARCH}def add(a, b): return {expression}", f"assert add(1, 2) == {expected!r}")
    assert outcome.kind == "passed", outcome


@walled
def test_all_that_a_check_started_is_dead_when_it_ends(box: Sandbox) -> None:
    name = f"mulligan-left-{os.getpid()}"
    leave = body(
        "for _ in range(3):", "    if os.fork() == 0:", "        os.setsid()", f"        os.execlp('sleep', '{name}', '99')", "return 99"
    )
    assert tried(box, leave)[0].kind == "failed"
    commands = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
    assert not [c for c in commands if name.encode() in c]


@walled
def test_a_failing_assertion_tells_both_sides_and_an_error_its_line(box: Sandbox) -> None:
    source = "def add(a, b):\n    if a == 0:\n        raise ValueError('zero')\n    return a + b"
    tests = ["assert add(1, 2) == 4", "assert add(0, 2) == 2", "assert not add(1, 2)", "assert add(1, 2) in (5, 6), 'why'", "oops()"]
    wrong, error, false, absent, ours = tried(box, source, *tests)
    assert (wrong.kind, wrong.left, wrong.how, wrong.right) == ("failed", "3", "Eq", "4")
    assert (error.kind, error.type, error.said, error.line) == ("raised", "ValueError", "zero", 3)
    assert (false.kind, false.left) == ("failed", "")
    assert (absent.left, absent.how, absent.right) == ("3", "In", "(5, 6)")
    assert (ours.kind, ours.type, ours.line) == ("raised", "NameError", 0)


@walled
@pytest.mark.parametrize(
    ("source", "test"),
    [
        (body("a.append(b)", "return None"), "x = [1]\nadd(x, 2)\nassert x == [1, 2]"),
        (body("a.update(b)", "return a"), "x = {1: 2}\nassert add(x, {3: 4}) == {1: 2, 3: 4} == x"),
        (body("raise KeyError(a)"), "try:\n    add(1, 2)\nexcept KeyError:\n    pass\nelse:\n    assert False"),
        ("class Odd(ValueError): pass\ndef add(a, b): raise Odd('x')", "try:\n    add(1, 2)\nexcept ValueError:\n    pass"),
        (body("return lambda c: a + b + c"), "assert add(1, 2)(3) == 6"),
        (body("yield a", "yield b"), "assert list(add(1, 2)) == [1, 2]"),
        (body("return map(str, [a, b])"), "assert ''.join(add(1, 2)) == '12'"),
        ("class P:\n    def __init__(s, a, b): s.sum = a + b\nadd = P", "assert add(1, 2).sum == 3"),
        ("import collections\ndef add(a, b): return collections.Counter([a, b])", "assert add(1, 1) == {1: 2}"),
        ("import collections\nT = collections.namedtuple('T', 'x y')\ndef add(a, b): return T(a, b)", "assert add(1, 2) == (1, 2)"),
        (
            body("return [a, (b, {a}), {b: None}, 1j, b'x', range(a), 1.5, True, '\\ud800']"),
            "assert add(1, 2)[1:3] == [(2, {1}), {2: None}]",
        ),
        (body("print('said', file=sys.stderr)", "return a + b"), "assert add(a=1, b=2) == 3"),
        ("def add(a, b): return a + b", "assert twice(add(1, 2)) == 6"),
    ],
)
def test_tests_find_what_they_would_find_in_one_process(box: Sandbox, source: str, test: str) -> None:
    (outcome,) = tried(box, source, test, setup="def twice(x):\n    return 2 * x")
    assert outcome.kind == "passed", outcome


@walled
def test_a_test_that_hangs_or_ends_the_process_costs_itself(box: Sandbox) -> None:
    source = body("while a == 1: pass", "if a == 2: os._exit(1)", "return a + b")
    tests = [f"assert add({a}, 0) == {a}" for a in (0, 1, 3, 2, 4)]
    assert [o.kind for o in tried(box, source, *tests, limits=HASTY)] == ["passed", "timeout", "passed", "gone", "passed"]
    box.limits = replace(HASTY, total_s=0.5)
    report = box.check(Program(source="while True: pass", tests=tests, names=["add"]))
    assert report.fault is not None and report.fault.kind == "timeout" and not report.outcomes


@walled
def test_what_was_found_before_the_time_was_up_stays_found(box: Sandbox) -> None:
    box.limits = replace(HASTY, total_s=1.5)
    source = body("while a == 1: pass", "return a + b")
    report = box.check(Program(source=source, tests=[f"assert add({a}, 0) == {a}" for a in (0, 1, 1, 1, 1)], names=["add"]))
    assert report.fault is None and [o.kind for o in report.outcomes] == ["passed"] + ["timeout"] * 4


@walled
def test_output_is_kept_up_to_its_limit(box: Sandbox) -> None:
    box.limits = replace(PATIENT, output=20)
    report = box.check(replace(GOOD, source=body("print('x' * 1000)", "return a + b")))
    assert (report.output, report.outcomes[0].kind) == ("x" * 20, "passed")


@walled
def test_a_killed_interpreter_is_started_again(box: Sandbox) -> None:
    for _ in range(2):
        assert tried(box, GOOD.source)[0].kind == "passed"
        for warm in (box._candidates, box._judges):
            assert warm._process is not None
            outside = warm._process.pid
            inside = Path(f"/proc/{outside}/task/{outside}/children").read_text().split()
            os.kill(int(inside[0]), signal.SIGKILL)
            warm._process.wait()
    assert tried(box, GOOD.source)[0].kind == "passed"


def test_a_wall_that_cannot_be_put_up_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho no permission for namespaces >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: str(broken))
    with Sandbox() as unwalled, pytest.raises(UsageError, match=r"no permission for namespaces.*choose --sandbox=process"):
        unwalled.check(GOOD)


@walled
def test_the_example_of_the_docs(box: Sandbox) -> None:
    (outcome,) = tried(box, "def add(a, b):\n    return a - b")
    assert (outcome.kind, outcome.left, outcome.how, outcome.right) == ("failed", "-1", "Eq", "3")


@walled
def test_threads_take_turns(box: Sandbox) -> None:
    box.limits, kinds = PATIENT, list[str]()
    programs = [Program(source=body(f"return a + b + {n}"), tests=[f"assert add(1, 2) == {3 + n}"], names=["add"]) for n in range(8)]
    threads = [threading.Thread(target=lambda p=p: kinds.append(box.check(p).outcomes[0].kind)) for p in programs]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kinds == ["passed"] * 8


@walled
def test_the_interpreters_end_with_the_host(tmp_path: Path) -> None:
    code = f"import os, time\nfrom mulligan.worlds.sandbox import *\nbox = Sandbox(limits=Limits(wall_s=60))\nbox.check({GOOD!r})\n"
    code += "print(box._candidates._process.pid, box._judges._process.pid, flush=True)\ntime.sleep(60)"
    with subprocess.Popen([os.sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as host:  # type: ignore[attr-defined]
        assert host.stdout is not None
        pids = [int(pid) for pid in host.stdout.readline().split()]
        host.kill()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert pids and not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_without_bubblewrap_running_code_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    with Sandbox() as unwalled, pytest.raises(UsageError, match="apt-get install bubblewrap"):
        unwalled.check(GOOD)


@pytest.mark.parametrize("name", ["equal to everything", "hard exit when called", "a loop", "a forged report", "the tests", "memory"])
def test_limits_alone_keep_program_and_verdict_apart(name: str) -> None:
    source, kinds = HOSTILE[name]
    with Sandbox(wall="process", limits=HASTY) as weak:
        assert weak.check(replace(GOOD, source=source)).outcomes[0].kind in kinds.split()
        weak.limits = PATIENT
        assert weak.check(GOOD).outcomes[0].kind == "passed"


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner) | st.sets(st.integers()),
    max_leaves=20,
)


@given(plain)
def test_plain_values_come_back_as_they_went(value: object) -> None:
    def never(*_: object) -> list[object]:
        raise AssertionError("a handle")

    found = unpack(pack(value, never), never)
    assert found == value and type(found) is type(value)


def test_the_filter_is_a_program_of_whole_steps_for_known_machines() -> None:
    assert len(refusals("x86_64")) == len(refusals("aarch64")) and len(refusals("x86_64")) % 8 == 0
    assert refusals("vax") == b""


@walled
def test_sandboxes_do_not_share_the_limit_on_processes() -> None:
    source = body("import time", "for _ in range(6):", "    if os.fork() == 0: time.sleep(9)", "time.sleep(1)", "return 6")
    limits = replace(PATIENT, processes=10)
    with Sandbox(limits=limits) as one, Sandbox(limits=limits) as two:
        outcomes: list[str] = []

        def check(box: Sandbox) -> None:
            report = box.check(Program(source=source, tests=["assert add(1, 2) == 6"], names=["add"]))
            outcomes.extend(outcome.kind for outcome in report.outcomes)

        threads = [threading.Thread(target=check, args=(box,)) for box in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert outcomes == ["passed", "passed"]


@walled
def test_a_sandbox_that_ended_in_the_middle_says_nothing_of_the_program(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def died(warm: sandbox._Warm) -> None:
        warm.close()

    with monkeypatch.context() as patched:
        patched.setattr(sandbox._Warm, "end", died)
        assert [outcome.kind for outcome in tried(box, "def add(a, b): return a - b")] == ["broken"]
    assert tried(box, GOOD.source)[0].kind == "passed"
