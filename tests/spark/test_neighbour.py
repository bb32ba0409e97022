"""Another user of the machine speaks to every port a run has open; and what runs of one program leave behind."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from holdfast.engine.session.callbacks import asks_for_a_token
from holdfast.engine.session.session import jvm_pid
from holdfast.journals.incidents import incidents_of
from holdfast.testing.runs import KeepingWriter
from tests.spark.processes import readings
from tests.spark.test_scenarios import Gate, begin, process, warm_of, whole

NOBODY = 65534

# Speaks Python's and the JVM's Py4J, HTTP, and Spark's RPC with a Java object in it; says what it heard.
NEIGHBOUR = r"""
import json, os, socket, struct, sys
words = [b"c\np%d\ntoString\ne\n" % n for n in range(40)] + [b"g\np%d\ne\n" % n for n in range(40)]
words += [b"c\nt\ngetClass\ne\n", b"A\n\ne\n", b"A\nwrong\ne\nc\np0\ncall\ne\n", b"s\n", b"GET / HTTP/1.0\r\n\r\n"]
rpc = b"\x03" + struct.pack(">QI", 7, 5) + b"\xac\xed\x00\x05sr"
words += [struct.pack(">Q", 8 + len(rpc)) + rpc, os.urandom(300), b"\x00" * 64, b"\xff" * 4096]
heard = []
for port in json.loads(sys.argv[1]):
    for word in words:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
                s.settimeout(0.05)
                s.sendall(word)
                try:
                    heard.append([port, s.recv(4096).decode("latin-1")])
                except TimeoutError:
                    heard.append([port, ""])
        except OSError:
            heard.append([port, ""])
print(json.dumps([os.getuid(), heard]))
"""


def listening(pid: int) -> set[int]:
    """TCP ports of a process: its sockets by inode."""
    own = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            own.add(os.readlink(each).removeprefix("socket:[").removesuffix("]"))
        except OSError:
            continue
    lines = [
        line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return {int(line[1].rpartition(":")[2], 16) for line in lines if line[3] == "0A" and line[9] in own}


def attack(ports: set[int]) -> tuple[int, list]:
    command = [sys.executable, "-I", "-S", "-c", NEIGHBOUR, json.dumps(sorted(ports))]
    if os.getuid() == 0:
        try:
            done = subprocess.run(
                command, user=NOBODY, group=NOBODY, cwd="/", capture_output=True, text=True, timeout=300
            )
        except (
            PermissionError
        ):  # nobody may not look into this environment: then without the token is all that is tried
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    else:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return tuple(json.loads(done.stdout))


def test_a_neighbour_who_speaks_to_every_port_changes_nothing(tmp_path, spark):
    """Py4J's callback port let anybody forget our functions, which ended both units of a run."""
    assert asks_for_a_token(spark.sparkContext._gateway)
    p = process(tmp_path)
    warm_of(p)
    p.sink("warm", gate := Gate(at=3))
    with begin(p, tmp_path, spark) as run:
        ports = listening(os.getpid()) | listening(jvm_pid(spark))
        assert len(ports) >= 3  # Py4J in both directions, and Spark's own
        uid, heard = attack(ports)
        threads = [thread for thread in threading.enumerate() if "control" not in thread.name]
        assert len(threads) < 120  # they are bounded, whoever connects
        gate.open_gate.set()
        run.wait()
        status = run.status()
    assert status.state == "finished"
    assert [said for _, said in heard if said.startswith(("!y", "y", "HTTP"))] == []
    assert {said for _, said in heard if "Traceback" in said or "File " in said} == set()  # no path of ours
    assert incidents_of(tmp_path / "state") == []  # no unit died of it
    assert whole(gate)["count"].to_pylist() == readings(1).to_pandas().query("celsius > 60")["count"].tolist()


def test_no_command_line_environment_or_setting_holds_a_secret(spark):
    token = spark.sparkContext._gateway.callback_server_parameters.auth_token
    assert len(token) == 64
    for pid in (os.getpid(), jvm_pid(spark)):
        assert token.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert token.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    conf = dict(spark.sparkContext.getConf().getAll())
    assert conf["spark.authenticate"] == "true"
    assert "spark.authenticate.secret" not in conf and token not in str(conf)


def left_behind(spark) -> dict[str, int]:
    gc.collect()
    names = [thread.name for thread in threading.enumerate()]
    return {
        "threads": len(names),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "functions": len(spark.sparkContext._gateway.gateway_property.pool),
    }


def test_starts_and_stops_leave_nothing_behind(tmp_path, spark):
    """Two threads, a descriptor and a function stayed for each run and unit: 600 threads after 200 runs."""

    def cycles(first: int, count: int) -> None:
        for at in range(first, first + count):
            folder = tmp_path / str(at)
            folder.mkdir()
            p = process(folder)
            warm_of(p)
            p.sink("warm", KeepingWriter())
            with begin(p, folder, spark, until_frame=2) as run:
                run.wait()

    cycles(0, 2)
    first = patiently(spark, None)
    cycles(2, 3)
    assert is_flat(first, patiently(spark, first))
    cycles(5, 3)
    assert is_flat(first, patiently(spark, first))


def is_flat(first: dict[str, int], now: dict[str, int]) -> bool:
    """The JVM's collector has one connection of its own, from the first function it forgets, whenever that is."""
    grown = {what: now[what] - first[what] for what in first}
    return grown["functions"] == 0 and grown["threads"] in (0, 1) and grown["descriptors"] == grown["threads"]


def patiently(spark, expected):
    """What is closed ends within moments; the counts are taken when they are as expected, or after ten seconds."""
    found = left_behind(spark)
    done = threading.Event()
    for _ in range(100):
        if expected is not None and is_flat(expected, found):
            break
        done.wait(0.1)
        now = left_behind(spark)
        if expected is None and now == found:
            break
        found = now
    return found
