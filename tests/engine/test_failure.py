"""What a unit died of: whose error it is, whether it may pass, whether it is the one before."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pyspark.errors
import pytest

import holdfast.engine.unit.spark_errors
from holdfast.engine.unit.passing import raised_may_pass, same_words
from holdfast.engine.unit.spark_errors import explain, user_lines
from holdfast.errors import HoldfastError

GRAPH = SimpleNamespace(name="ward")
PLAN = Path(holdfast.engine.unit.spark_errors.__file__).with_name("plan.py")


class Captured(Exception):
    """As PySpark hands on what Java threw: the cause and Java's text are beside the message."""

    def __init__(self, said: str, java: str = "", cause: Exception | None = None) -> None:
        super().__init__(said)
        self._stackTrace, self._cause = java, cause

    def getCondition(self) -> None:
        return None


class StreamingQueryException(Captured):
    pass


class AnalysisException(Captured):
    pass


class UnsupportedOperationException(Captured):
    pass


def met(error: BaseException | None) -> HoldfastError:
    return explain(GRAPH, "pulse", None, error, 6)


def from_worker(last: str, file: str = "/jobs/ward.py") -> Captured:
    """What comes to the driver when a Python worker raised."""
    return Captured(
        "An exception was thrown from the Python worker:\n"
        f'Traceback (most recent call last):\n  File "{file}", line 12, in slow\n    return asked(x)\n{last}\n'
    )


@pytest.mark.parametrize(
    ("error", "code", "passes"),
    [
        # Spark's own words say whether the next try may fare better.
        (Captured("Job aborted due to stage failure: [ARROW_TYPE_MISMATCH] Invalid schema"), "HF-U031", False),
        (
            Captured("Job aborted", "java.lang.NullPointerException: x\n\tat org.apache.Sockets.connect(S.java:1)"),
            "HF-U031",
            False,
        ),
        (Captured("Job aborted: java.io.IOException: No such device"), "HF-U031", True),
        (
            Captured("Job aborted", "org.apache.spark.SparkException: x\nCaused by: java.net.SocketException: x"),
            "HF-U031",
            True,
        ),
        (Captured("x", cause=Captured("y", "java.lang.OutOfMemoryError: Java heap space")), "HF-U031", True),
        (Captured("Task 3 was killed"), "HF-U031", True),
        (Captured("Futures timed out after [300 seconds]"), "HF-U031", True),
        (FileNotFoundError(2, "No such file", "/disk/x"), "HF-U031", True),
        (MemoryError(), "HF-U031", True),
        (KeyError("frame"), "HF-U031", False),
        (None, "HF-U031", True),  # whoever stopped it did not say why
        # What the user's code raised goes by its name: what it says may be a row's words.
        (from_worker("ValueError: connection timed out"), "HF-O001", False),
        (from_worker("requests.exceptions.ConnectionError: no route"), "HF-O001", True),
        (from_worker("TimeoutError: no answer"), "HF-O001", True),
        (from_worker("ConnectionRefusedError: [Errno 111] Connection refused"), "HF-O001", True),
        (from_worker("OSError: [Errno 5] Input/output error"), "HF-O001", True),
        (from_worker("FileNotFoundError: [Errno 2] No such file: 'connection.txt'"), "HF-O001", False),
        (Captured("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"), "HF-O001", False),
        (Captured("[DUPLICATED_MAP_KEY] Duplicate map key 1 was found. SQLSTATE: 23505"), "HF-O001", False),
        # A plan that is refused comes back, however it is wrapped.
        (AnalysisException("Limits are not supported"), "HF-U071", False),
        (
            StreamingQueryException("Redefining watermark is disallowed.", cause=AnalysisException("x")),
            "HF-U071",
            False,
        ),
        (UnsupportedOperationException("applyInPandasWithState is unsupported in batch query."), "HF-U031", False),
        (AnalysisException("[PATH_NOT_FOUND] Path does not exist: file:/nas/limits."), "HF-U031", True),
        # Without Java nothing goes on, and that is said of all.
        (ConnectionRefusedError(111, "Connection refused"), "HF-U030", False),
        (Captured("Answer from Java side is empty"), "HF-U030", False),
    ],
)
def test_an_error_is_whose_it_is_and_passes_if_it_may(error, code, passes):
    """Before, a service that refused an operator's connection counted as the death of Spark's Java process."""
    found = met(error)
    assert (found.code, found.may_pass) == (code, passes), str(found)
    assert "nothing is lost" in found.effect and found.do


@pytest.mark.parametrize(
    ("file", "mine"),
    [
        ("/srv/holdfast/ward.py", True),
        ("/srv/pandas/pyspark/job.py", True),
        ("/opt/venv/lib/python3.11/site-packages/pyspark/worker.py", False),
        ("/usr/lib/python3/dist-packages/pandas/core/frame.py", False),
        ("/opt/spark/python/pyspark/worker.py", False),
        ("/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", False),
        ("/opt/spark/python/lib/py4j-0.10.9.9-src.zip/py4j/protocol.py", False),
        (str(PLAN), False),
        ("<frozen runpy>", False),
    ],
)
def test_lines_of_a_traceback_are_the_users_wherever_the_file_lies(file, mine):
    """The README's own clone is a folder called holdfast: an operator in it raised, and its line was not named."""
    text = f'Traceback (most recent call last):\n  File "{file}", line 3, in f\n    return x["ts"]\nKeyError: \'ts\'\n'
    assert (f"{file}:3 in f" in user_lines(text)) == mine


def test_what_a_function_raises_while_its_frame_is_planned_is_its_own():
    """In the driver: no text of a worker's traceback comes with it. Before, it was "the query ended: 'ts'", eight times."""
    there = {}
    exec(compile("def call_operator(function):\n    return function()", str(PLAN), "exec"), there)

    def slow():
        return {}["ts"]

    with pytest.raises(KeyError) as caught:
        there["call_operator"](slow)
    found = met(caught.value)
    assert (found.code, found.what) == ("HF-O001", "an operator of unit 'pulse' raised: KeyError: 'ts'")
    assert f"{__file__}:" in found.why and 'return {}["ts"]' in found.why


def test_what_may_pass_is_not_said_to_come_back():
    assert "started again by itself" in met(from_worker("TimeoutError: no answer")).do
    assert "correct the operator" in met(from_worker("KeyError: 'ts'")).do
    assert "started again by itself" in met(Captured("Futures timed out")).do


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Task 0 in stage 3.0 failed 3 times: Lost task 0.2 (TID 7) (host-4 executor driver)", "Task 0 in stage 41.0 failed 3 times: Lost task 0.2 (TID 99) (host-4 executor driver)"),
        ("<Probe object at 0x7f3a5c0> cannot be compared", "<Probe object at 0x7f11b40> cannot be compared"),
        ("no state in /state/units/pulse/spark/4/state/0", "no state in /state/units/pulse/spark/5/state/0"),
        ("Query [id = 8a4f1c9e-0b1c-4a6e-9d58-0c6d1f1b7a10] ended", "Query [id = 11111111-2222-4333-8444-555555555555] ended"),
        ("An error occurred while calling o812.collect", "An error occurred while calling o77.collect"),
    ],
)  # fmt: skip
def test_numbers_and_names_of_one_run_do_not_make_two_errors_of_one(one, other):
    assert same_words(one) == same_words(other)


def test_other_words_are_another_error():
    assert same_words("KeyError: 'ts'") != same_words("KeyError: 'zone'")
    assert same_words("no state in /state/pulse") != same_words("no state in /state/alarms")


@pytest.mark.parametrize(
    "line", ["socket.timeout: x", "psycopg.OperationalError: x", "urllib.error.URLError: <x>", "MemoryError"]
)
def test_names_of_libraries_that_pass(line):
    assert raised_may_pass(line)


@pytest.mark.parametrize(
    "line", ["ValueError: timeout", "KeyError: 'ConnectionError'", "ZeroDivisionError", "IndexError: 3", ""]
)
def test_names_that_do_not(line):
    assert not raised_may_pass(line)


SAID = "[INVALID_ATTRIBUTE_NAME_SYNTAX] Syntax error in the attribute name: a`b. SQLSTATE: 42601"


@pytest.mark.parametrize(
    "error",
    [
        pyspark.errors.AnalysisException(SAID),
        pyspark.errors.ParseException(SAID),
        RuntimeError(
            f"An error occurred while calling o7.start.\n: org.apache.spark.sql.AnalysisException: {SAID}\n\tat org.apache"
        ),
    ],
    ids=["analysed here", "parsed here", "as text"],
)
def test_a_plan_that_is_refused_is_no_death_to_be_tried_eight_times(error):
    found = met(error)
    assert found.code == "HF-U071" and "INVALID_ATTRIBUTE_NAME_SYNTAX" in found.what


def test_a_query_that_spark_ended_says_why():
    """It said `An error occurred while calling o1955.collectToPython`."""
    text = "An error occurred while calling o1955.collectToPython.\n: org.apache.spark.SparkException: Job 5 cancelled as part of it\n\tat org.apache.x"
    found = met(RuntimeError(text))
    assert found.code == "HF-U031"
    assert found.what == "the query of unit 'pulse' ended: Job 5 cancelled as part of it"
