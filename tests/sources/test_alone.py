"""Records of many senders in one batch: none swallows, shifts or changes another, whatever it is."""

import json
import random
import socket
import string
import subprocess
import sys
import threading

import pytest

from holdfast.graph.schemas import Schema
from holdfast.sources.live.wire import Record, parse_records, split_payload
from holdfast.sources.parse.alone import objects_alone
from holdfast.sources.parse.bad import Terms

from .test_lines import Listening, line

SCHEMA = Schema.of("sender string, number bigint, text string, value double")


def parsed(records, schema=SCHEMA, **terms):
    tables, bad = parse_records(records, Terms(schema, "s", **terms), 0, first_only=False)
    return [row for table in tables for row in table.to_pylist()], bad


def honest(sender, number, text="", value=0.5):
    row = {"sender": sender, "number": number, "text": text, "value": value}
    return Record(json.dumps(row).encode(), where=sender)


def hostile(raw, format="json"):
    return Record(raw, {}, format, where="mallory")


# -- the reproductions -------------------------------------------------------------


def test_half_an_object_does_not_swallow_the_neighbours_row():
    """Three records, three rows: the count was right, and the row of B was gone."""
    mine = b'{"sender":"A","number":1,"text":"","value":1,"x":'
    rows, bad = parsed([hostile(mine), honest("B", 42), hostile(b'}{"sender":"A"}{"sender":"A"}')], missing="null")
    assert [(row["sender"], row["number"]) for row in rows] == [("B", 42)]
    assert [each.at for each in bad] == [0, 2]


def test_an_open_quote_does_not_swallow_the_neighbours_line():
    csv = [b'A,1,"open,1', b"B,42,x,0.5", b'A,2,",1\nA,3,y,1']
    rows, bad = parsed([hostile(raw, "csv") for raw in csv])
    assert [(row["sender"], row["number"]) for row in rows] == [("B", 42)]
    assert [each.at for each in bad] == [0, 2]


def test_a_topics_column_stays_with_its_message():
    """An empty message and one with two objects made the count right: p1 got what was sent for p2."""
    schema = Schema.of("patient string, bpm int")

    def message(patient, payload):
        return list(split_payload(payload, given={"patient": patient}, where=f"topic {patient}"))

    items = [*message("p1", b""), *message("p2", b'{"bpm":61} {"bpm":62}'), *message("p3", b'{"bpm":63}')]
    rows, bad = parsed(items, schema)
    assert rows == [{"patient": "p3", "bpm": 63}]
    assert [each.at for each in bad] == [0, 1]


def test_records_of_other_formats_and_other_given_columns_are_not_parsed_alike():
    """The first record's format and columns were taken for all."""
    items = [
        Record(b'{"number":1,"text":"a","value":1}', {"sender": "topic"}),
        Record(b'{"sender":"own","number":2,"text":"b","value":2}'),
        Record(b"csv,3,c,3", {}, "csv"),
        Record(b"semicolon;4;d,d;4", {}, "csv", ";"),
        Record(b'{"sender":"forged","number":5,"text":"e","value":5}', {"sender": "topic"}),
    ]
    rows, bad = parsed(items)
    assert [(row["sender"], row["number"], row["text"]) for row in rows] == [
        ("topic", 1, "a"), ("own", 2, "b"), ("csv", 3, "c"), ("semicolon", 4, "d,d"), ("topic", 5, "e"),
    ]  # fmt: skip
    assert bad == []


def test_a_byte_order_mark_means_the_same_wherever_it_stands():
    mark = b"\xef\xbb\xbf"
    for records in ([mark + b"A,1,x,1", b"B,2,x,1"], [b"B,2,x,1", mark + mark + b"A,1,x,1\r"]):
        rows, bad = parsed([hostile(raw, "csv") for raw in records])
        assert sorted(row["sender"] for row in rows) == ["A", "B"]
        assert bad == []
    rows, bad = parsed([honest("B", 2), hostile(mark + honest("A", 1).raw + b"\r")])
    assert sorted(row["sender"] for row in rows) == ["A", "B"]


NULLS = """
import pyarrow as pa
from holdfast.sources.parse.text import parsed as parsed_text
from tests.sources.test_alone import Schema, honest, hostile, parsed
for raw in (b'null', b' null ', b'{"sender":"A"} null', b'{"sender":"A"}\\nnull\\n{"sender":"A"}'):
    rows, bad = parsed([honest('B', 1), hostile(raw), honest('B', 2)], missing='null')
    print([row['number'] for row in rows], [each.at for each in bad])
schema = Schema.of('a bigint, s string')
print(parsed_text(b'{"a":null,"s":"} null"}', 'json', {}, schema, 'ignore').to_pylist())
for block in (b'null', b'{"a":1}\\nnull\\n', b'{"a":1}null{"a":2}', b'{"a":1}  \\n  null'):
    try:
        parsed_text(block, 'json', {}, schema, 'ignore')
    except pa.ArrowInvalid as error:
        print(error)
"""


def test_a_bare_null_ends_nobodys_program():
    """Arrow's parser dies of it (SIGSEGV): one line of one sender, or of a file, ended the whole process."""
    done = subprocess.run([sys.executable, "-c", NULLS], capture_output=True, text=True)
    assert done.returncode == 0, f"it ended with {done.returncode}: {done.stderr}"
    found = done.stdout.splitlines()
    assert found[:4] == ["[1, 2] [1]"] * 4
    assert found[4] == "[{'a': None, 's': '} null'}]"
    assert found[5:] == ["JSON parse error: null is no object"] * 4


@pytest.mark.parametrize(
    ("raw", "alone"),
    [
        (b"{}", True),
        (b'{"a":{"b":[{"c":"}{"}]}}', True),
        (b'{"a":"\\\\"}', True),
        (b'{"a":"\\""}', True),
        (b'{"a":"\\"}"}', True),
        (b'{"a":"{"} null {"b":"}"}', False),
        (b'{"a":1}{"b":2}', False),
        (b'{"a":1}{}', False),
        (b"{{}", False),
        (b"{", False),
        (b"}", False),
        (b"", False),
        (b'{"a":{}', False),
        (b'{"a":"\\\\"} {"b":"\\""}', False),
        (b"}{", False),
    ],
)
def test_what_is_one_object(raw, alone):
    for others in ([], [b"{}"], [b'{"a":{}}']):
        found = objects_alone([*others, raw, *others])
        assert found is None or found[: len(others)] == [True] * len(others)
        assert (found is None or found[len(others)]) == alone


# -- random senders -----------------------------------------------------------------

FRAGMENTS = [
    b"", b"{", b"}", b"[", b"]", b'"', b'""', b"\\", b'\\"', b"\\\\", b",", b":", b"null", b"true", b"NaN", b"-Infinity",
    b"1e999", b"9" * 40, b"\x00", b"\\u0000", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\r", b"\n", b" ", b"\t", b"{}", b"}{", b"[]",
    b'{"sender":"A","number":1,"text":"t","value":1}', b'{"sender":"A","number":1,"text":"t","value":1,"x":',
    b'}{"sender":"A","number":2,"text":"t","value":1}', b'{"sender":"A"', b'"number":7', b'"x":[', b'"x":{', b"]}", b'"}', b'{"',
    b'{"sender":"A","sender":"B","number":1,"text":"t","value":1}', b"\\ud800", b"//", b"/*", b"'", b"[" * 200, b"{" * 50,
    b"A,1,t,1", b'A,1,"t', b'",1', b",,,", b"'A',1,t,1",
]  # fmt: skip


# Half a record, and what makes the number of rows right again.
OBJECT = b'{"sender":"A","number":1,"text":"t","value":1}'
HALVES = {
    "json": [
        OBJECT[:-1] + b',"x":',
        OBJECT[:-1] + b',"x":[',
        b"}" + 2 * OBJECT,
        b"]}" + 2 * OBJECT,
        b"}",
        b"",
        2 * OBJECT,
    ],
    "csv": [b'A,1,"t', b't",1', b't",1\nA,1,t,1', b'A,1,t,"1', b"A,1,t,1\rA,1,t,1", b"", b'A,1,t"t,"'],
}


def random_text(chance):
    signs = string.ascii_letters + string.digits + '{}[]",:\\/ \t\u00e4\u20ac\U0001f600\u2028' + "\x00\x01\x1f"
    return "".join(chance.choice(signs) for _ in range(chance.randrange(12)))


def random_batch(chance, format):
    """Records of some senders in random order, and the rows of those who are honest."""
    items, expected = [], []
    number = 0
    for _ in range(chance.randrange(1, 14)):
        if chance.random() < 0.6:
            number += 1
            row = {
                "sender": chance.choice("BCD"),
                "number": number,
                "text": random_text(chance),
                "value": chance.choice([0.5, -1.25, 1e300]),
            }
            if format == "json":
                extra = (
                    {"more": {"a": [random_text(chance), {random_text(chance): None}]}} if chance.random() < 0.3 else {}
                )
                raw = json.dumps(row | extra, ensure_ascii=chance.random() < 0.5).encode()
                blanks = chance.choice([b"", b" ", b"\r", b"\t"])
                items.append(Record(blanks + raw + blanks, where=row["sender"]))
            else:
                row["text"] = row["text"] or "x"
                quoted = '"' + row["text"].replace('"', '""') + '"'
                items.append(
                    Record(
                        f"{row['sender']},{number},{quoted},{row['value']!r}".encode(), {}, "csv", where=row["sender"]
                    )
                )
            expected.append(row)
            continue
        if chance.random() < 0.5:
            raw = chance.choice(HALVES[format])
        else:
            raw = b"".join(chance.choice(FRAGMENTS) for _ in range(chance.randrange(5)))
        items.append(hostile(raw, format))
    return items, expected


@pytest.mark.parametrize(("format", "batches"), [("json", 1500), ("csv", 500)])
def test_every_honest_row_is_there_once_whatever_the_others_send(format, batches):
    """Random records of random senders in random batches: honest rows are there once, whole; what is not a row is bad."""
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for case in range(batches):
        items, expected = random_batch(chance, format)
        rows, bad = parsed(items)
        assert [row for row in rows if row["sender"] in ("B", "C", "D")] == expected, (
            seed,
            [item.raw for item in items],
        )
        # What a hostile record says of itself is its own affair: it is one row of its own, or bad.
        assert len(rows) + len(bad) == len(items), (seed, [item.raw for item in items])
        assert all(items[each.at].where == "mallory" for each in bad), seed
        if case % 10:
            continue
        alone = [parsed([item])[0] for item in items]
        assert [row for found in alone for row in found] == rows, (seed, "a record says the same alone as among others")


def test_lines_of_an_honest_client_beside_a_hostile_one_are_all_in_the_log(driver):
    """3,000 honest rows were answered `ok`, 2,649 were in the log."""
    driver.set(bad="drop")
    half, rest = (
        line(-1).encode().rstrip()[:-1] + b', "x":\n',
        b"}" + (line(-1) + line(-1)).replace("\n", "").encode() + b"\n",
    )
    done = threading.Event()

    def attack(port, raw):
        with socket.create_connection(("127.0.0.1", port), 20) as client:
            while not done.is_set():
                client.sendall(raw)
                client.recv(1000)

    with Listening(driver, "tcp://127.0.0.1:0") as listening:
        hostiles = [threading.Thread(target=attack, args=(listening.port, raw)) for raw in (half, rest, half, rest)]
        for each in hostiles:
            each.start()
        with listening.tcp() as client:
            for number in range(100):
                client.sendall(line(number).encode())
                found = b""
                while not found.endswith(b"\n"):
                    found += client.recv(100)
                assert found == b"ok %d\n" % (number + 1)
        done.set()
        for each in hostiles:
            each.join()
        listening.source._log.settle()
        assert [zone for zone in listening.zones() if zone >= 0] == list(range(100))
    assert listening.error is None
