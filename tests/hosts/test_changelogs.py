"""Spark's changelogs on their way: nothing of their records changes, and every lineage leads to a base that is there."""

from __future__ import annotations

import json
import struct

import hypothesis.strategies as st
import pyarrow as pa
import xxhash
from hypothesis import given, settings

from holdfast.hosts.changelogs import base_of, lineage, put_together, stripped, version_of
from holdfast.hosts.increments import SparkPart

STORE = "spark/state/0/0/"


def blocks(raw: bytes, size: int) -> bytes:
    """As lz4-java writes them."""
    made = b""
    for part in (raw[at : at + size] for at in range(0, len(raw), size)):
        packed = pa.compress(part, codec="lz4_raw", asbytes=True)
        token = 0x25
        if len(packed) >= len(part):
            packed, token = part, 0x15
        check = xxhash.xxh32_intdigest(part, 0x9747B28C) & 0x0FFFFFFF
        made += b"LZ4Block" + struct.pack("<BiiI", token, len(packed), len(part), check) + packed
    return made + b"LZ4Block" + struct.pack("<BiiI", 0x15, 0, 0, 0)


def changelog(before, records: bytes, size: int = 1 << 15, version: bytes = b"v3") -> bytes:
    said = json.dumps([{"version": n, "checkpointUniqueId": own} for n, own in before]).encode()
    return blocks(struct.pack(">H", 2) + version + struct.pack(">H", len(said)) + said + records, size)


def name(item, kind: str = "changelog") -> str:
    return f"{STORE}{item[0]}_{item[1]}.{kind}"


@given(records=st.binary(max_size=300), size=st.integers(16, 400), version=st.sampled_from([b"v3", b"v4"]))
@settings(deadline=None)
def test_records_come_through_whatever_the_blocks(records, size, version):
    items = [(n, f"id-{n}") for n in range(1, 5)]
    files = {name(item): changelog(items[: item[0] - 1], records + bytes([item[0]]), size, version) for item in items}

    back = put_together({own: stripped(content) for own, content in files.items()})

    for item in items:
        content = back[name(item)]
        assert lineage(content) == items[: item[0] - 1]
        assert stripped(content) == stripped(files[name(item)])
        assert stripped(content).endswith(records + bytes([item[0]]))


def test_a_lineage_leads_past_snapshots_that_are_not_there():
    """After a snapshot Spark begins lineages with it; the backup may never have got it."""
    items = [(n, f"id-{n}") for n in range(1, 8)]
    snapshots = {3, 5}
    files = {}
    for at, item in enumerate(items):
        start = max([0, *(n - 1 for n in snapshots if n <= at)])
        files[name(item)] = changelog(items[start:at], b"records")
    assert lineage(files[name(items[-1])]) == items[4:6]

    back = put_together({own: stripped(content) for own, content in files.items()})
    assert lineage(back[name(items[-1])]) == items[:6]

    # With a base: what is before it is not asked for.
    kept = {own: stripped(content) for own, content in files.items() if version_of(own)[0] > 2}
    back = put_together(kept | {name(items[1], "zip"): b"a snapshot"})
    assert lineage(back[name(items[-1])]) == items[1:6]
    assert lineage(back[name(items[2])]) == items[1:2]


def test_a_way_back_is_found_or_refused():
    items = [(n, f"id-{n}") for n in range(1, 6)]
    said = {item: items[max(0, at - 2) : at] for at, item in enumerate(items)}
    assert base_of(5, "id-5", said.get, []) == items
    assert base_of(5, "id-5", said.get, [items[3], items[1]]) == items[3:]
    assert base_of(5, "id-5", {**said, items[2]: None}.get, []) is None
    assert base_of(5, "other", said.get, []) is None


def test_what_is_of_another_form_is_left_as_it_is():
    for content in (b"", b"\x28\xb5\x2f\xfd zstd", blocks(b"\x00\x02v2" + b"records", 100)):
        assert stripped(content) == content
        assert lineage(content) is None
    assert put_together({name((1, "a")): b"whatever"}) == {name((1, "a")): b"whatever"}


class Checkpoint:
    """A Spark checkpoint with one store, as files on disk."""

    def __init__(self, folder) -> None:
        self.folder, self.files, self.items, self.start = folder, {}, [], 0

    def put(self, own: str, content: bytes) -> None:
        path = self.folder / own.replace("/", "_")
        path.write_bytes(content)
        self.files[own] = path

    def version(self, identity: str = "a", *, snapshot: bool = False) -> None:
        item = (len(self.items) + 1, identity)
        self.put(name(item), changelog(self.items[self.start :], f"records {item}".encode()))
        self.items.append(item)
        if snapshot:
            self.put(name(item, "zip"), b"no archive")
            self.start = len(self.items) - 1

    def set_back(self) -> None:
        """The last version never counted; its file stays."""
        del self.files[name(self.items.pop())]


def test_spark_state_ships_each_changelog_once_and_no_new_snapshot(tmp_path):
    spark, part = Checkpoint(tmp_path), SparkPart()
    for _ in range(3):
        spark.version()
    assert {*part.whole(1, {}, spark.files).files} == {name((n, "a")) for n in (1, 2, 3)}
    part.packed({}, spark.files)
    for at in range(4, 12):
        spark.version(snapshot=at % 3 == 0)
        if at > 5:  # Spark tidies
            spark.files.pop(name((at - 4, "a")))
        assert {*part.since(at, {}, spark.files).files} == {name((at, "a"))}
        part.packed({}, spark.files)
    assert part.has_new_base(spark.files)


def test_a_changelog_that_is_gone_makes_the_snapshot_travel(tmp_path):
    """An interval longer than Spark keeps changelogs."""
    spark, part = Checkpoint(tmp_path), SparkPart()
    spark.version()
    part.whole(1, {}, spark.files)
    part.packed({}, spark.files)
    spark.version()
    del spark.files[name((2, "a"))]
    spark.version(snapshot=True)
    spark.version()
    assert part.since(4, {}, spark.files) is None
    assert {*part.whole(4, {}, spark.files).files} == {name((3, "a"), "zip"), name((4, "a"))}


def test_a_version_made_again_travels_again(tmp_path):
    """After a roll-back the same version has another id, and what follows is built on that one."""
    spark, part = Checkpoint(tmp_path), SparkPart()
    for _ in range(3):
        spark.version()
    part.whole(3, {}, spark.files)
    part.packed({}, spark.files)
    spark.set_back()
    spark.version("b")
    spark.version("b")
    assert {*part.since(4, {}, spark.files).files} == {name((3, "b")), name((4, "b"))}
