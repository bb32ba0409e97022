"""The Spark settings of our own session, each with the reason for its value.

Kinds: `safe` settings keep a promise (without them a restart can be wrong or
needless), `fast` ones save time in every frame, `flat` ones keep memory and disk
flat over a hundred thousand frames, `quiet` ones keep the user's terminal and
folder clean. Times are from the study of PySpark 4.3 on two loaded cores that
preceded this: ratios, not digits. There a frame without state went from 130 to 40 ms,
one with RocksDB state from 280 to 90, one with Python state from 400 to 140.

`remarks` says what a session without them gives away. Pure: imports no Spark and
opens nothing; the paths are handed in by `engine.session.session`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["JAR", "MASTER", "SETTINGS", "Places", "Setting", "java_options", "remarks", "session_conf"]

JAR = Path(__file__).resolve().parent / "jars" / "holdfast.jar"
LOG4J = Path(__file__).resolve().parent / "log4j2.properties"

# Two slots, and three attempts for a task: with local[2] a Python worker that dies
# ends the query, because the default of local mode is one attempt.
MASTER = "local[2,3]"


@dataclass(frozen=True, slots=True)
class Setting:
    key: str
    value: str
    kind: str  # safe, fast, flat, quiet
    why: str
    without: str = ""  # what a session that has it otherwise gives away; "" = nothing to say


def _safe(key: str, value: str, why: str, without: str = "") -> Setting:
    return Setting(key, value, "safe", why, without)


def _fast(key: str, value: str, why: str, without: str = "") -> Setting:
    return Setting(key, value, "fast", why, without)


def _flat(key: str, value: str, why: str, without: str = "") -> Setting:
    return Setting(key, value, "flat", why, without)


def _quiet(key: str, value: str, why: str) -> Setting:
    return Setting(key, value, "quiet", why)


_STREAMING = "spark.sql.streaming"
_STATE = "spark.sql.streaming.stateStore"

SETTINGS: tuple[Setting, ...] = (
    # What a restart needs.
    _safe(
        f"{_STATE}.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        "State outside the heap, incremental, and the only provider with checkpoint format 2.",
        "state lives on the JVM's heap, and a rolled-back checkpoint can be silently wrong",
    ),
    _safe(
        f"{_STATE}.rocksdb.changelogCheckpointing.enabled",
        "true",
        "A commit writes one small changelog instead of a zip of the store: 170 -> 111 ms a frame.",
        "every frame uploads a snapshot of its state",
    ),
    _safe(
        f"{_STATE}.checkpointFormatVersion",
        "2",
        "State files carry ids that the commit log names. With format 1, going on after the last "
        "commit entry was deleted reads an abandoned snapshot: 160 instead of 106, no error.",
        "a rolled-back checkpoint can be silently wrong (format 1)",
    ),
    _safe(
        f"{_STREAMING}.noDataMicroBatches.enabled",
        "false",
        "Every micro-batch is a frame. An extra batch without one would shift the numbers.",
        "Spark runs micro-batches that are no frames",
    ),
    _safe(
        f"{_STREAMING}.stopActiveRunOnRestart",
        "false",
        "A query that starts with the id of a running one stops that one without a word.",
        "a copied checkpoint stops the query it was copied from",
    ),
    _safe(
        "spark.sql.session.timeZone",
        "UTC",
        "The same data gives the same frames on every host.",
        "days and hours in SQL follow the session's time zone",
    ),
    _safe("spark.sql.ansi.enabled", "true", "An overflow is an error, not a null.", "overflows become null"),
    _safe(
        "spark.sql.adaptive.enabled",
        "false",
        "Adaptive plans change with the sizes seen, so would the order of float sums; "
        "and a small frame gains nothing from being planned again.",
        "plans change with the data's size",
    ),
    _safe(
        "spark.sql.shuffle.partitions",
        "1",
        "The default of 200 makes a stateful frame take seconds. A frame is small; the process "
        "pins its own number where it needs more.",
        "each shuffle makes that many tasks",
    ),
    _safe(
        "spark.authenticate",
        "true",
        "Spark's RPC and block manager listen on loopback and take Java objects from whoever connects. In local mode Spark draws "
        "the secret itself and keeps it in the JVM; driver and executor are one, so nothing is asked of a frame.",
        "any user of this machine can speak to Spark's own ports",
    ),
    # What makes a frame quick.
    _fast(
        f"{_STREAMING}.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        "The default forks `readlink` sixteen times a micro-batch on a local disk. POSIX rename "
        "is as atomic: 130 -> 45 ms.",
        "about 80 ms more per frame: Spark forks a process for every checkpoint file",
    ),
    _fast(
        "spark.hadoop.fs.file.impl",
        "holdfast.LocalFiles",
        "Our two classes of Java: no `chmod` fork per file, 45-52 -> 27-39 ms.",
        "about 10 ms more per frame: a forked chmod for every new file",
    ),
    _fast(
        "spark.python.unix.domain.socket.enabled",
        "true",
        "On loopback TCP each task waits about 40 ms for a delayed acknowledgement.",
        "about 40 ms more per frame and Python task: loopback TCP",
    ),
    _fast(
        "spark.python.daemon.module",
        "holdfast.engine.session.worker_daemon",
        "Spares 33 ms of garbage collection after every Python task.",
        "about 30 ms more per Python task: its garbage collector looks at all imports",
    ),
    _fast(f"{_STREAMING}.pollingDelay", "1", "Asks for the next frame after 1 ms, not 10.", "10 ms between frames"),
    _fast("spark.locality.wait", "0", "There is one host: waiting for a better one is waste."),
    _fast("spark.shuffle.compress", "false", "A frame's shuffle is small and stays in the page cache."),
    _fast("spark.broadcast.compress", "false", "Task descriptions of a few KB."),
    _fast("spark.default.parallelism", "2", "As many as there are slots, whatever the host."),
    _fast(
        "spark.sql.execution.arrow.pyspark.enabled",
        "true",
        "Rows come to the driver as Arrow, where they come at all.",
    ),
    _fast(
        f"{_STATE}.rocksdb.trackTotalNumberOfRows",
        "false",
        "Counting all rows costs a lookup at every write; the board does not show it.",
    ),
    # What stays the same size after a hundred thousand frames.
    _flat(
        f"{_STREAMING}.minBatchesToRetain",
        "20",
        "Offsets, commits and state of twenty frames: more than any restart goes back, "
        "a fifth of the files of the default.",
        "Spark keeps the checkpoint files of 100 frames",
    ),
    _flat(f"{_STREAMING}.numRecentProgressUpdates", "10", "Nobody reads older ones; each is some KB of heap."),
    _flat(
        "spark.sql.classic.shuffleDependency.fileCleanup.enabled",
        "true",
        "Shuffle files go when their query ends. Otherwise they wait for a garbage collection that "
        "tiny frames hardly ever cause.",
        "shuffle files stay until the JVM collects garbage",
    ),
    _flat(
        "spark.cleaner.periodicGC.interval",
        "5min",
        "Broadcasts are released by a collection; 30 minutes are 36,000 small frames.",
    ),
    _flat("spark.ui.enabled", "false", "No server, no thread pool, no port; `holdfast status` is the view."),
    _flat(
        "spark.ui.retainedJobs",
        "100",
        "Kept even without a UI. `building` asks which jobs were run while a frame was planned.",
        "Spark keeps a thousand old jobs on its heap",
    ),
    _flat("spark.ui.retainedStages", "20", "As above."),
    _flat("spark.ui.retainedTasks", "200", "As above; the default is 100,000."),
    _flat(
        "spark.ui.liveUpdate.period", "100ms", "A job is in the status store from its start; nobody looks at the rest."
    ),
    _flat("spark.sql.ui.retainedExecutions", "10", "Each keeps its plan as text; the default is 1,000."),
    _flat(f"{_STREAMING}.ui.enabled", "false", "As above."),
    _flat("spark.driver.memory", "2g", "Enough for a million rows a frame; half of a small machine."),
    # What keeps the user's terminal and folder clean.
    _quiet("spark.ui.showConsoleProgress", "false", "Progress is ours to show."),
    _quiet("spark.sql.catalogImplementation", "in-memory", "No metastore_db, no derby.log."),
    _quiet("spark.eventLog.enabled", "false", "A file that grows for ever, if spark-defaults asks for it."),
    _quiet("spark.driver.host", "127.0.0.1", "Works without a name server and is not seen from outside."),
    _quiet("spark.driver.bindAddress", "127.0.0.1", "As above."),
)


@dataclass(frozen=True, slots=True)
class Places:
    """Where a session may write. All below the state folder, but the sockets."""

    logs: Path  # kept: spark.log, jvm.log
    scratch: Path  # of this one session: removed with it
    sockets: Path | None  # short path: a socket's name has at most 108 bytes; None = TCP


def java_options(places: Places, *, quiet: bool = False, classes: Sequence[str] = ()) -> str:
    """Options of the JVM itself; quoted, as a path may hold blanks. `classes`: those of its class archive."""
    options = [
        *classes,
        f"-Dholdfast.log.level={'off' if quiet else 'warn'}",
        f"-Dlog4j2.configurationFile={LOG4J.as_uri()}",
        f"-Dholdfast.logs={places.logs}",
        # Native libraries (RocksDB: 15 MB) are unpacked here; a killed JVM leaves them.
        f"-Djava.io.tmpdir={places.scratch / 'tmp'}",
        f"-XX:ErrorFile={places.logs / 'jvm-crash.log'}",
        "-Duser.timezone=UTC",
        # Java 17 in the C locale would read and write ASCII.
        "-Dfile.encoding=UTF-8",
        # System.gc() of Spark's cleaner must not stop a frame.
        "-XX:+ExplicitGCInvokesConcurrent",
        # No hsperfdata file in the shared temporary folder.
        "-XX:-UsePerfData",
    ]
    return " ".join('"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"' for option in options)


def session_conf(
    places: Places,
    *,
    master: str = MASTER,
    conf: dict[str, str] | None = None,
    quiet: bool = False,
    classes: Sequence[str] = (),
) -> dict[str, str]:
    """All settings of a session. The caller's `conf` comes last and wins."""
    settings = {setting.key: setting.value for setting in SETTINGS}
    settings |= {
        "spark.master": master,
        "spark.app.name": "holdfast",
        "spark.driver.extraClassPath": str(JAR),
        "spark.executor.extraClassPath": str(JAR),
        "spark.driver.extraJavaOptions": java_options(places, quiet=quiet, classes=classes),
        "spark.local.dir": str(places.scratch / "local"),
        "spark.sql.warehouse.dir": (places.scratch / "warehouse").as_uri(),
    }
    if places.sockets is None:
        settings["spark.python.unix.domain.socket.enabled"] = "false"
    else:
        settings["spark.python.unix.domain.socket.dir"] = str(places.sockets)
    for key, value in (conf or {}).items():
        if key == "spark.driver.extraJavaOptions":
            settings[key] += f" {value}"
        elif key == "spark.driver.extraClassPath":
            settings[key] += f":{value}"
        else:
            settings[key] = str(value).lower() if isinstance(value, bool) else str(value)
    if not settings["spark.master"].startswith("local") and "spark.authenticate" not in (conf or {}):
        del settings["spark.authenticate"]  # a cluster has a secret of its own, or none: not ours to say
    return settings


def remarks(value_of: Callable[[str], str | None], master: str, changeable: Callable[[str], bool]) -> list[str]:
    """What a session gives away that was not opened by us and cannot be changed any more.

    Settings for which `changeable` holds are set by us for our own queries.
    """
    said: dict[str, None] = {}
    if master.startswith("local") and "," not in master:
        said[f"unsafe: master {master} never retries a task: a worker that dies ends its unit ({MASTER} retries)"] = (
            None
        )
    for setting in SETTINGS:
        if not setting.without or changeable(setting.key):
            continue
        if value_of(setting.key) != setting.value:
            word = "unsafe" if setting.kind == "safe" else "slower" if setting.kind == "fast" else "grows"
            said[f"{word}: {setting.without} ({setting.key})"] = None
    return list(said)
