"""Mutants against the tests of tests/protocols, then against the simulator, each in a forked child.

The tests are imported once, by a pytest session that gives its run loop to `_Trials`: it runs every test as it is,
notes which functions of holdfast/protocols each one enters, and then tries the mutants. A mutant of a function's body
takes the place of that function's code in a fork, where only the tests that enter the function run: no other could
notice. A mutant of a class or of a module (a constant, a default of a field), or of a function that runs when the tests
are imported, is imported from its changed source by a fork that has forgotten all modules of Holdfast, and meets all
tests.

The simulator plays its schedules in rounds over all protocols and graphs, so a mutant of one protocol is met early.
Hypothesis is derandomised and has no database: a mutant found once is found again.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from _pytest.runner import runtestprotocol

from bench.mutants.children import Verdict, in_children
from bench.mutants.making import Mutant

__all__ = ["DoesNotPass", "try_mutants"]

# All tests take 4 s of processor time and a schedule 0.01 s; a mutant may be slower and still be seen to its end.
TESTS_CPU_S = 40
SCHEDULE_CPU_S = 0.06
# These would never complete a checkpoint there. A mutant that is not refused is played like any other.
REFUSED = {(protocol, graph) for protocol in ("ecoc", "two_phase") for graph in ("sp3", "sp4", "cycles")}
# Nothing of pytest's is shown: the last line of standard output is the report's.
_WORDS = [
    "-s",
    "-o",
    "addopts=",
    "--import-mode=importlib",
    "-W",
    "ignore",
    *("-p", "no:terminal", "-p", "no:cacheprovider", "-p", "no:xdist"),
]

Function = tuple[str, str]


class DoesNotPass(Exception):
    """The tree as it is fails: nothing can be said of mutants."""


def try_mutants(
    mutants: Sequence[Mutant], root: Path, schedules: int, workers: int, told: Callable[[Mutant, Verdict], None]
) -> None:
    """`told` hears of each mutant in turn."""
    hypothesis.settings.register_profile("mutants", derandomize=True, database=None, deadline=None)
    hypothesis.settings.load_profile("mutants")
    trials = _Trials(mutants, root, schedules, workers, told)
    ended = pytest.main([*_WORDS, f"--rootdir={root}", *_tests(root)], plugins=[trials])
    if trials.failed:
        raise trials.failed
    if not trials.is_done:
        raise DoesNotPass(f"pytest ended with {ended} before a mutant was tried")


def _tests(root: Path) -> list[str]:
    return [str(path) for path in sorted((root / "tests" / "protocols").glob("test_*.py"))]


class _Trials:
    """A pytest plug-in: its run loop tries mutants."""

    def __init__(
        self,
        mutants: Sequence[Mutant],
        root: Path,
        schedules: int,
        workers: int,
        told: Callable[[Mutant, Verdict], None],
    ) -> None:
        self._mutants = mutants
        self._root = root
        self._schedules = schedules
        self._workers = workers
        self._told = told
        self._entered: set[Function] = set()
        self._at_import: set[Function] = set()
        self._enters: dict[str, set[Function]] = {}
        self._simulated: set[str] = set()
        self.failed: BaseException | None = None
        self.is_done = False

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Any:
        with self._noting():
            found = yield
        self._at_import = self._entered
        return found

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            return True
        try:
            self._learn(session.items)
            cpu_s = TESTS_CPU_S + SCHEDULE_CPU_S * self._schedules
            jobs = (lambda m=m: self._try(m, session.items) for m in self._mutants)
            for mutant, verdict in zip(self._mutants, in_children(jobs, cpu_s, self._workers), strict=True):
                self._told(mutant, verdict)
            self.is_done = True
        except BaseException as failure:
            self.failed = failure
        return True

    # ---- the tree as it is ----------------------------------------------------------------

    def _learn(self, items: Sequence[pytest.Item]) -> None:
        """Run all tests and one schedule of each kind; note the functions they enter."""
        for item in items:
            with self._noting():
                reports = runtestprotocol(item, log=False, nextitem=None)
            bad = next((report for report in reports if report.failed), None)
            if bad is not None:
                raise DoesNotPass(f"{item.nodeid}: {bad.longrepr}")
            self._enters[item.nodeid] = self._entered
        with self._noting():
            verdict = _play(1)
        if verdict.by:
            raise DoesNotPass(f"{verdict.where}: {verdict.what}")
        self._simulated = {file for file, _ in self._entered}

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Gather the functions of holdfast/protocols that are entered meanwhile."""
        inside = str(self._root / "holdfast" / "protocols") + os.sep
        entered: set[Function] = set()

        def note(frame: types.FrameType, event: str, _: Any) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename.startswith(inside):
                entered.add((code.co_filename, code.co_qualname.partition(".<locals>")[0]))

        sys.setprofile(note)
        try:
            yield
        finally:
            sys.setprofile(None)
        self._entered = entered

    # ---- in a child -----------------------------------------------------------------------

    def _try(self, mutant: Mutant, items: Sequence[pytest.Item]) -> Verdict:
        path = str(self._root / mutant.file)
        function = (path, mutant.within)
        if function not in self._at_import and _take_place(mutant, path):
            verdict = _run([item for item in items if function in self._enters[item.nodeid]])
        else:
            verdict = self._run_anew(mutant, path)
        if verdict.by or path not in self._simulated:
            return verdict
        return _play(self._schedules)

    def _run_anew(self, mutant: Mutant, path: str) -> Verdict:
        for name in [n for n in sys.modules if n.partition(".")[0] in ("holdfast", "tests")]:
            del sys.modules[name]
        module = mutant.file.removesuffix(".py").replace("/", ".")
        sys.meta_path.insert(0, _Changed(module, path, mutant.source))
        # Before pytest puts its own import hook, which rewrites assertions, in front of this one.
        importlib.import_module(module)
        seen = _Failures()
        ended = pytest.main(["-x", *_WORDS, f"--rootdir={self._root}", *_tests(self._root)], plugins=[seen])
        if seen.first:
            return Verdict("tests", *seen.first)
        return Verdict("tests", "collection", f"pytest ended with {ended}") if ended else Verdict("")


def _run(items: Sequence[pytest.Item]) -> Verdict:
    # Those that try many examples last: most mutants fall at the first example of a plain test.
    for item in sorted(items, key=lambda each: hasattr(getattr(each, "obj", None), "hypothesis")):
        for report in runtestprotocol(item, log=False, nextitem=None):
            if report.failed:
                return Verdict("tests", item.nodeid, _last_line(report))
    return Verdict("")


def _last_line(report: Any) -> str:
    lines = [line[1:].strip() for line in str(report.longrepr).splitlines() if line.startswith("E ")]
    return (lines[0] if lines else str(report.longrepr))[:200]


class _Failures:
    """A pytest plug-in: the first test that failed."""

    def __init__(self) -> None:
        self.first: tuple[str, str] | None = None

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and self.first is None:
            self.first = (report.nodeid, _last_line(report))

    pytest_collectreport = pytest_runtest_logreport


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An import hook: gives one module another source."""

    def __init__(self, module: str, path: str, source: str) -> None:
        self._module = module
        self._path = path
        self._source = source

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != self._module:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=self._path)

    def exec_module(self, module: types.ModuleType) -> None:
        exec(compile(self._source, self._path, "exec"), module.__dict__)


def _take_place(mutant: Mutant, path: str) -> bool:
    """Put the changed code into the function as it is imported everywhere; False if it lies in no function's body."""
    name, _, method = mutant.within.rpartition(".")
    module = sys.modules[mutant.file.removesuffix(".py").replace("/", ".")]
    holder: Any = module if not name else getattr(module, name, None)
    found = vars(holder).get(method) if holder is not None else None
    if isinstance(found, property):
        found = found.fget
    elif isinstance(found, staticmethod):
        found = found.__func__
    if not isinstance(found, types.FunctionType):
        return False
    code = _code_of(compile(mutant.source, path, "exec"), mutant.within)
    if code is None or code.co_freevars != found.__code__.co_freevars or mutant.is_default:
        return False
    found.__code__ = code
    return True


def _code_of(code: types.CodeType, name: str) -> types.CodeType | None:
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            if each.co_qualname == name:
                return each
            if name.startswith(each.co_qualname + "."):
                return _code_of(each, name)
    return None


# ---- the simulator ------------------------------------------------------------------------


def _play(schedules: int) -> Verdict:
    from holdfast.protocols.invariants import ProtocolRefused
    from holdfast.simulation.graphs import GRAPHS
    from holdfast.simulation.protections import PROTECTIONS
    from holdfast.simulation.run import play_one

    pairs = [(protocol, graph) for graph in GRAPHS for protocol in PROTECTIONS]
    played = seed = 0
    while played < schedules:
        for protocol, graph in pairs:
            where = f"{protocol} {graph} {seed}"
            try:
                outcome = play_one(protocol, graph, seed)
            except ProtocolRefused as refused:
                if (protocol, graph) in REFUSED:
                    continue
                return Verdict("simulator", where, f"refused: {refused}")
            played += 1
            if outcome.broken is not None:
                return Verdict("simulator", where, outcome.broken)
        seed += 1
    return Verdict("")
