"""Open the Spark session a stream process runs in, or look at the user's own.

`open_session` starts a JVM with the settings of `engine.session.spark_settings`: nothing of it
is seen on the terminal (Spark logs to `logs/spark.log` of the state folder, the
JVM and the workers to `logs/jvm.log`), nothing is left in the current folder,
and neither Ctrl-C nor a signal to the process group reaches the JVM: who stops
the run is asked first, and stops after a frame. The JVM ends when this process
ends, however it ends, because its standard input closes.

There is one JVM per Python process (PySpark's limit), hence one open session.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from holdfast.engine.session import spark_settings as settings
from holdfast.engine.session.callbacks import asks_for_a_token, guard_callbacks
from holdfast.engine.session.class_archive import classes_options, spark_jars
from holdfast.engine.session.java import Java, cache_dir, find_java
from holdfast.engine.session.jvm_log import cut_log
from holdfast.errors import EnvironmentRefused, UsageError

__all__ = ["adopt_session", "close_session", "is_ours", "jvm_pid", "open_session", "tuned_session"]

# A socket's name has 108 bytes at most; Spark adds ".<uuid>.sock" and a slash.
SOCKET_FOLDER_LENGTH_MAX = 61
# Time for Spark's shutdown hooks; a JVM that needs longer is killed, its scratch goes anyway.
JVM_EXIT_SECONDS = 20


class _Ours:
    """The one session this process opened, if any."""

    session: SparkSession | None = None
    places: settings.Places | None = None
    proc = None
    pid = 0


def open_session(
    state_dir: str | Path,
    *,
    master: str = settings.MASTER,
    conf: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> SparkSession:
    """Start Spark for a state folder. `conf` overrides our settings; `quiet`: Spark's log may quote rows, so none."""
    _refuse_if_open()
    # Relative paths would be the JVM's and the workers' to interpret.
    state_dir = Path(state_dir).absolute()
    java = find_java()
    places = _make_places(state_dir)
    wanted = settings.session_conf(
        places, master=master, conf=dict(conf or {}), quiet=quiet, classes=classes_options(java, cache_dir())
    )
    try:
        with _launch_environment(java), _signals_untouched():
            session = _start(wanted, places)
    except BaseException as error:
        _abandon(places)
        if isinstance(error, PySparkException) or type(error).__module__.startswith("py4j"):
            raise _failed(error, java, places) from error
        raise
    # PySpark's server for accumulators prints a stack when the JVM it served is gone.
    session.sparkContext._accumulatorServer.handle_error = lambda request, client: None  # type: ignore[method-assign, assignment]
    # PySpark makes these when an expression raises, by changing the logger class of the whole
    # program for a moment: two units that raise at once would get each other's error.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name)
    # Py4J would log to the terminal when a callback meets a stopped JVM.
    logging.getLogger("py4j").addHandler(logging.NullHandler())
    _Ours.session, _Ours.places, _Ours.pid = session, places, os.getpid()
    atexit.register(close_session)
    return session


def close_session(session: SparkSession | None = None, *, exit_seconds: float = JVM_EXIT_SECONDS) -> None:
    """Stop the session we opened, with its JVM and its scratch. Others are left alone."""
    ours = _Ours.session
    # A forked child inherits the handles, not the right to stop its parent's JVM.
    if ours is None or (session is not None and session is not ours) or _Ours.pid != os.getpid():
        return
    atexit.unregister(close_session)
    # PySpark's server for accumulators looks once a second whether it is to end, and at once when the
    # JVM is gone: it ends while the JVM does, not before.
    server, ending = ours.sparkContext._accumulatorServer, None
    if server is not None:
        ending = threading.Thread(target=server.shutdown, daemon=True)
        server.shutdown = ending.start  # type: ignore[method-assign]
    with contextlib.suppress(Exception):
        ours.stop()
    _abandon(_Ours.places, exit_seconds)
    if ending is not None and ending.ident is not None:
        ending.join()
    _Ours.session = _Ours.places = None


def is_ours(session: SparkSession) -> bool:
    return session is _Ours.session


def jvm_pid(session: SparkSession) -> int:
    """The process id of the session's JVM; asked of the JVM itself, so any session will do."""
    return int(session._jvm.java.lang.ProcessHandle.current().pid())


def adopt_session(spark: SparkSession) -> list[str]:
    """What is slower or unsafe with the user's own session, one sentence each.

    Changes nothing. Settings that Spark lets a query have for itself are not
    mentioned: `tuned_session` sets those.
    """
    _refuse_remote(spark)
    if is_ours(spark):
        return []
    said = settings.remarks(
        lambda key: spark.conf.get(key, None),
        spark.sparkContext.master,
        spark.conf.isModifiable,
    )
    if not asks_for_a_token(spark.sparkContext._gateway):
        said.append("unsafe: any user of this machine can end units: PySpark's callback port asks for no token")
    python = shutil.which(spark.sparkContext.pythonExec) or spark.sparkContext.pythonExec
    if not _same_environment(python):
        said.append(
            f"unsafe: Spark's workers run {python}, not this Python: "
            "set PYSPARK_PYTHON=sys.executable before the session is made"
        )
    return said


def _same_environment(python: str) -> bool:
    """Two names of one interpreter in one environment; a virtual one's link leads out of it."""
    return os.path.realpath(os.path.dirname(python)) == os.path.realpath(os.path.dirname(sys.executable))


def tuned_session(spark: SparkSession) -> SparkSession:
    """A sibling of the user's session: same catalogue and context, our settings.

    The user's own session and its settings stay as they are.
    """
    _refuse_remote(spark)
    if is_ours(spark):
        return spark
    sibling = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    for setting in settings.SETTINGS:
        if sibling.conf.isModifiable(setting.key):
            sibling.conf.set(setting.key, setting.value)
    return sibling


def _refuse_remote(spark: SparkSession) -> None:
    if not isinstance(spark, SparkSession):
        raise UsageError(
            "HF-E004",
            "SessionIsRemote",
            "a Spark Connect session cannot run a stream process.",
            where=type(spark).__module__,
            why="frames are driven from this process; Connect runs foreachBatch in another one",
            effect="nothing was started; the session is untouched",
            do="leave out spark=, or hand in a classic session",
        )


def _refuse_if_open() -> None:
    if _Ours.session is not None and _Ours.session._jsc.sc().isStopped():
        close_session()  # The user stopped it; its JVM and scratch are still there.
    if SparkContext._active_spark_context is not None:
        whose = "opened by Holdfast" if _Ours.session is not None else "opened by this program"
        raise UsageError(
            "HF-E003",
            "SessionOpen",
            "this Python process already has a Spark session.",
            where=whose,
            why="PySpark has one JVM per process",
            effect="nothing was started; the open session is untouched",
            do="hand it in: run(spark=spark), or stop it first: spark.stop()",
        )
    remote = [name for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED") if name in os.environ]
    if remote:
        raise UsageError(
            "HF-E004",
            "SessionIsRemote",
            "this Python process is set to Spark Connect.",
            where=f"{' and '.join(remote)} in the environment",
            why="frames are driven from this process; Connect runs foreachBatch in another one",
            effect="nothing was started",
            do=f"unset {' '.join(remote)}",
        )
    # A JVM without a context is left over from a session the program stopped. It
    # lacks our class path and options, so a new one is needed.
    _drop_gateway()


def _start(wanted: Mapping[str, str], places: settings.Places) -> SparkSession:
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(wanted.items()))
    log = places.logs / "jvm.log"
    cut_log(log)
    # Appended to: what the last run said is still there, and it can be cut while the JVM writes.
    with open(log, "ab") as output:
        # A session of its own: `timeout`, a shell's `kill %1` and Ctrl-C signal a whole
        # process group, and the JVM would be gone before the frame is finished.
        with _jvm_remembered():
            gateway = launch_gateway(conf, {"stdout": output, "stderr": output, "start_new_session": True})
    _Ours.proc = gateway.proc
    guard_callbacks(gateway)
    return SparkSession(SparkContext(conf=conf, gateway=gateway))


@contextlib.contextmanager
def _jvm_remembered() -> Iterator[None]:
    """Ctrl-C while PySpark waits for its JVM: only PySpark knew the process, and it lived on."""

    def popen(*args: Any, **kwargs: Any) -> Any:
        _Ours.proc = real(*args, **kwargs)  # type: ignore[assignment]
        return _Ours.proc

    real, java_gateway.Popen = java_gateway.Popen, popen  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        java_gateway.Popen = real  # type: ignore[misc]


def _make_places(state_dir: Path) -> settings.Places:
    base = state_dir / "spark"
    try:
        _sweep(base, "")
        scratch = base / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        logs = state_dir / "logs"
        for folder in (logs, scratch / "tmp", scratch / "local"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise EnvironmentRefused(
            "HF-E005",
            "FolderUnwritable",
            f"the state folder {state_dir} cannot be written.",
            where=str(error.filename or state_dir),
            why=error.strerror or str(error),
            effect="nothing was started, nothing was read",
            do="free some space, or choose another folder: --state DIR",
        ) from error
    return settings.Places(logs, scratch, _socket_folder())


def _socket_folder() -> Path | None:
    """A private folder with a short name. None where there is none: TCP then."""
    prefix = "holdfast-"
    for base in (os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"):
        if os.path.isdir(base) and len(f"{base}/{prefix}{os.getpid()}-xxxxxxxx") <= SOCKET_FOLDER_LENGTH_MAX:
            with contextlib.suppress(OSError):
                _sweep(Path(base), prefix)
                return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=base))
    return None


def _sweep(base: Path, prefix: str) -> None:
    """Remove what killed processes left behind: folders named `<prefix><pid>-<random>`, pid dead.

    An orphaned JVM that still uses one loses it, as it should.
    """
    for folder in base.glob(f"{prefix}*-*"):
        owner = re.fullmatch(r"(\d+)-\w{8}", folder.name.removeprefix(prefix))
        if owner and not _alive(int(owner[1])) and folder.stat().st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


@contextlib.contextmanager
def _launch_environment(java: Java) -> Iterator[None]:
    """The environment the JVM and its workers inherit; ours is put back afterwards."""
    changes = {
        "JAVA_HOME": str(java.home),
        # A Spark installed elsewhere would be started instead of the one pip brought.
        "SPARK_HOME": str(_spark_home(cache_dir())),
        # Otherwise workers run the first python3 on PATH, which has no pyarrow.
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": _worker_path(),
        # glibc keeps an arena per thread; RocksDB's threads would make memory creep.
        "MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX", "4"),
        # The launcher is a JVM too, and lives for a moment: no time for a second compiler.
        "SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
    }
    if not any("UTF-8" in os.environ.get(name, "").upper() for name in ("LC_ALL", "LC_CTYPE", "LANG")):
        changes["LC_ALL"] = "C.UTF-8"  # Java 17 cannot open a file named "Öfen" in the C locale.
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _spark_home(cache: Path) -> Path:
    """The Spark that pip brought, without its `python/lib/pyspark.zip`.

    Spark puts the zip first on the path of every Python it starts, and what is
    imported from a zip is compiled anew each time: 0.7 s of one core in each of half a
    dozen processes. Without it they import PySpark from where pip put it.

    Its class path is one that Java 21 takes a class archive for: no name that leads
    nowhere (Spark adds `conf`, there or not), none twice (Spark adds slf4j-api, then
    `jars/*`, which does not match the name it has here).
    """
    spark = spark_jars().parent
    jars = sorted(path.name for path in (spark / "jars").iterdir())
    home = cache / f"spark-{blake2b(':'.join([str(spark), *jars]).encode(), digest_size=6).hexdigest()}"
    if home.is_dir():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="spark.", dir=cache))
    (draft / "bin").symlink_to(spark / "bin")
    (draft / "conf").mkdir()
    (draft / "jars").mkdir()
    for name in jars:
        (draft / "jars" / (name.removesuffix(".jar") if name.startswith("slf4j-api-") else name)).symlink_to(
            spark / "jars" / name
        )
    # Whole at once: another process may look for it right now, or be the first to put it there.
    with contextlib.suppress(OSError):
        os.rename(draft, home)
    shutil.rmtree(draft, ignore_errors=True)
    return home


def _worker_path() -> str:
    """What this process can import, workers can import: the user's folders and ours."""
    here = Path(__file__).resolve().parents[3]
    found: dict[str, None] = {}
    for entry in [*sys.path, str(here)]:
        folder = os.path.abspath(entry or os.getcwd())
        installed = folder.startswith((sys.prefix + os.sep, sys.base_prefix + os.sep))
        if os.path.exists(folder) and not installed and ":" not in folder:
            found[folder] = None
    for entry in os.environ.get("PYTHONPATH", "").split(":"):
        if entry:
            found[os.path.abspath(entry)] = None
    return ":".join(found)


@contextlib.contextmanager
def _signals_untouched() -> Iterator[None]:
    """SparkContext makes Ctrl-C cancel all jobs; ours means: stop after this frame."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _abandon(places: settings.Places | None, exit_seconds: float = JVM_EXIT_SECONDS) -> None:
    _drop_gateway(exit_seconds)
    if places is not None:
        shutil.rmtree(places.scratch, ignore_errors=True)
        if places.sockets is not None:
            shutil.rmtree(places.sockets, ignore_errors=True)


def _drop_gateway(exit_seconds: float = JVM_EXIT_SECONDS) -> None:
    """End the JVM, if there is one, and let PySpark start another."""
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    if gateway is not None:
        with contextlib.suppress(Exception):
            gateway.shutdown()
    proc, _Ours.proc = getattr(gateway, "proc", None) or _Ours.proc, None
    if proc is None:
        return
    with contextlib.suppress(OSError):
        proc.stdin.close()  # The JVM exits at the end of its input.
    try:
        proc.wait(exit_seconds)
    except Exception:
        proc.kill()
        proc.wait()


def _failed(error: BaseException, java: Java, places: settings.Places) -> EnvironmentRefused:
    log = places.logs / "jvm.log"
    with contextlib.suppress(OSError):
        last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-5:]
        reason = next((line for line in reversed(last) if "rror" in line or "xception" in line), "")
        return EnvironmentRefused(
            "HF-E002",
            "SessionFailed",
            "Spark did not start.",
            where=f"{java}; {log}",
            why=(reason or str(error)).strip()[:300],
            effect="nothing was started, nothing was read",
            do="holdfast doctor",
        )
    raise error
