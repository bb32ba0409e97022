"""The rules beyond their examples: what is exempt, what only warns, what fits."""

import pytest

import holdfast as hf
from holdfast.graph.rules import check_structure

PROBES = "ts timestamp, zone int, celsius double"


class Outside:
    reliable = False

    def describe(self):
        return "outside"


class Files(Outside):
    reliable = True


def process(**settings):
    p = hf.StreamProcess("p", **({"frame": "1 second", "time": "ts"} | settings))
    p.source("probes", Outside(), schema=PROBES)
    return p


def codes(p):
    return [finding.code for finding in check_structure(p.graph())]


def only(p):
    (finding,) = check_structure(p.graph())
    return finding


def test_a_cyclic_process_with_feedback_is_well_formed():
    p = process()

    @p.operator(over="frame", inputs={"last": hf.feedback("average", schema="zone int, mean double")})
    def damped(probes, last): ...

    p.aggregate("average", of="damped", by="zone", window="10 seconds", emits={"mean": "avg(celsius)"})
    p.sink("damped", Outside())
    assert codes(p) == []


def test_disabled_ports_are_exempt_from_the_port_rules():
    p = process()

    @p.operator(over="frame")
    def hot(probes, doors=None): ...

    assert codes(p) == ["HF-G001", "HF-G002"]
    p.disable("hot.doors")
    p.disable("hot")
    assert codes(p) == []
    assert [edge.port for edge in p.graph().operator("hot").inputs] == ["probes"]
    p.disable("hot.windows")
    assert codes(p) == ["HF-G017"]


def test_two_vertices_may_have_ports_of_one_name():
    """Rule 1 is about (vertex, port): matching the port alone would see two edges on one."""
    p = process()
    p.filter("a", of="probes", where="true")
    p.filter("b", of="probes", where="true")
    p.sink("a", Outside())
    p.sink("b", Outside())
    assert codes(p) == []


def test_an_operator_cannot_live_on_feedback_alone():
    p = process()

    @p.operator(over="frame")
    def hot(probes): ...

    @p.operator(over="frame", inputs={"last": hf.feedback("hot", schema=PROBES)})
    def echo(last): ...

    p.sink("echo", Outside())
    assert codes(p) == ["HF-G001"]


def test_a_self_loop_needs_feedback_too():
    p = process()

    @p.operator(over="frame", inputs={"last": "count"})
    def count(probes, last): ...

    p.sink("count", Outside())
    assert codes(p) == ["HF-G007"]


def test_a_port_alone_is_answered_with_its_stream():
    p = process()
    p.split("parts", of="probes", into={"hot": "celsius > 80"})

    @p.operator(over="frame")
    def alarm(hot): ...

    p.sink("alarm", Outside())
    assert only(p).do == "did you mean inputs={'hot': 'parts.hot'}?"


def test_sources_read_again_cannot_be_cut_by_arrival():
    p = hf.StreamProcess("p", frame="1 second", time=hf.ARRIVAL)
    p.source("probes", Files(), schema=PROBES)
    p.filter("hot", of="probes", where="true")
    p.sink("hot", Outside())
    assert (only(p).code, only(p).do) == ("HF-G009", "time='ts'")


def test_time_windows_need_element_time():
    p = process(time=hf.ARRIVAL)
    p.aggregate("mean", of="probes", by="zone", window="10 seconds", emits={"m": "avg(celsius)"})
    p.aggregate("mean_100", of="probes", by="zone", window=hf.rows(100), emits={"m": "avg(celsius)"})
    p.sink("mean", Outside())
    p.sink("mean_100", Outside())
    assert only(p).code == "HF-G009"
    assert "'mean'" in only(p).what


@pytest.mark.parametrize(
    ("window", "every"),
    [("500 ms", None), ("1500 ms", None), ("10 seconds", "1500 ms"), ("2 seconds", "3 seconds")],
)
def test_windows_that_do_not_fit_the_frame_are_refused(window, every):
    p = process()
    p.aggregate("mean", of="probes", by="zone", window=window, every=every, emits={"m": "avg(celsius)"})
    p.sink("mean", Outside())
    assert only(p).code == "HF-G009"


def test_time_must_be_a_timestamp_and_must_be_said():
    p = hf.StreamProcess("p", frame="1 second", time="at")
    p.source("probes", Outside(), schema="at bigint, zone int")
    p.filter("hot", of="probes", where="true")
    p.sink("hot", Outside())
    assert (only(p).code, only(p).do) == ("HF-G011", "declare it 'at timestamp'")
    p = hf.StreamProcess("p", frame="1 second")
    p.source("probes", Outside(), schema=PROBES)
    p.filter("hot", of="probes", where="true")
    p.sink("hot", Outside())
    assert (only(p).code, only(p).do) == ("HF-G011", "time='ts'")


def test_a_window_after_a_window_needs_its_time_carried():
    """An aggregate drops the time column unless told to keep the window's end."""
    p = process()
    p.aggregate("mean", of="probes", by="zone", window="1 second", emits={"m": "avg(celsius)"})
    p.aggregate("top", of="mean", by="zone", window="10 seconds", emits={"m": "max(m)"})
    p.sink("top", Outside())
    assert only(p).code == "HF-G011"
    assert only(p).do == "let 'mean' carry it: emits={'ts': 'window_end', ...}"


def test_known_columns_are_followed_through_built_ins():
    p = process()
    p.filter("hot", of="probes", where="celsius > 80")
    p.map("renamed", of="hot", select=["ts", "zone as place", "celsius"])
    p.aggregate("mean", of="renamed", by="zone", window="1 second", emits={"m": "avg(celcius)"})
    p.sink("mean", Outside())
    assert [(f.code, f.do) for f in check_structure(p.graph())] == [
        ("HF-G003", "did you mean 'celsius'?"),
        ("HF-G010", "there is: celsius, place, ts"),
    ]


def test_a_union_of_two_schemas_is_refused():
    p = process()
    p.source("doors", Outside(), schema="ts timestamp, zone int, open boolean")
    p.union("all", of=["probes", "doors"])
    p.sink("all", Outside())
    assert (only(p).code, "'of2'" in only(p).what) == ("HF-G003", True)


def test_keys_of_a_join_must_be_on_both_sides():
    p = process()
    p.source("doors", Outside(), schema="ts timestamp, gate int")
    p.join("seen", left="probes", right="doors", on="zone", within="1 second")
    p.sink("seen", Outside())
    assert (only(p).code, "'right'" in only(p).what) == ("HF-G010", True)


def test_a_queue_must_hold_a_checkpoint_interval():
    """Held at a full queue, the request for the checkpoint that would empty it never comes."""
    p = process(queue="1 MB")
    p.filter("hot", of="probes", where="true")
    p.sink("hot", Outside())
    p.protect(hf.ecoc(every="1 hour"))
    assert codes(p) == ["HF-G015"]


def test_plain_ecoc_off_the_cycle_is_fine():
    p = process()
    p.filter("hot", of="probes", where="true")
    p.sink("hot", Outside())
    p.protect(hf.ecoc(every=hf.frames(10)))
    assert codes(p) == []


@pytest.mark.parametrize(
    ("hosts", "backup", "fits"),
    [
        (None, None, True),  # two hosts, one copy
        (("a",), None, False),
        (("a",), hf.backup("/mnt/other"), True),
        (("a", "b"), hf.backup(copies=2), False),
        (("a", "b", "c"), hf.backup(copies=2), True),
    ],
)
def test_every_copy_needs_another_host(hosts, backup, fits):
    """One that is nowhere is never stored: the process would run as if it were not protected."""
    p = process(hosts=hosts, backup=backup)
    p.filter("hot", of="probes", where="true")
    p.sink("hot", Outside())
    assert codes(p) == []
    p.protect(hf.ecoc(every="5 seconds"))
    assert codes(p) == ([] if fits else ["HF-G029"])


@pytest.mark.parametrize(
    ("hosts", "backup", "code"),
    [
        ({"a": "/disk1", "b": "/disk2"}, None, []),
        ({"a": "/disk1", "b": "/disk1/"}, None, ["HF-G032"]),
        ({"a": "/disk1", "b": "/disk1/b"}, None, ["HF-G032"]),
        ({"a": "/disk", "b": "/disk1"}, None, []),
        ({"a": "/disk1", "b": "/disk2"}, hf.backup("file:///disk2/copies"), ["HF-G032"]),
        ({"a": "/disk1", "b": "/disk2"}, hf.backup("/other", "/other"), ["HF-G032"]),
        ({"a": "/disk1", "b": "/disk2"}, hf.backup("memory://disk2"), []),
        ({"a": "/disk1", "b": "/disk2"}, hf.backup("local:///disk2/copies"), ["HF-G032"]),
        ({"a": "/disk1", "b": "/disk2"}, hf.backup("memory://x", "memory://x/y"), ["HF-G032"]),
        ({"a": ".", "b": "/disk2"}, None, ["HF-G032"]),
        ({"a": ".holdfast/p/records", "b": "/disk2"}, None, ["HF-G032"]),
        (None, hf.backup(".holdfast/p/hosts/host1/copies"), ["HF-G032"]),
    ],
)
def test_hosts_and_backups_do_not_share_a_folder(hosts, backup, code):
    p = process(hosts=hosts, backup=backup)
    p.filter("hot", of="probes", where="true")
    p.sink("hot", Outside())
    p.protect(hf.ecoc(every="5 seconds"))
    assert codes(p) == code


def test_a_promise_that_the_loss_of_a_host_would_break_warns():
    p = process()
    p.filter("hot", of="probes", where="true", protect=hf.checkpoint(every="5 seconds"))
    p.filter("hotter", of="hot", where="true", protect=hf.ecoc(every="5 seconds"))
    p.sink("hotter", Outside(), promise=[hf.lossless, hf.in_order])
    assert (only(p).code, only(p).warning) == ("HF-L001", True)
    assert only(p).why == "hot: hf.checkpoint keeps state, not the frames since the last one"


def test_a_promise_that_every_operator_above_is_protected_for_does_not_warn():
    p = process()
    p.source("files", Files(), schema=PROBES)
    p.filter("hot", of="files", where="true", protect=hf.uncoordinated(every="5 seconds"))
    p.sink("hot", Outside(), promise=hf.lossless)
    assert [code for code in codes(p) if code.startswith("HF-L")] == []


@pytest.mark.parametrize("reader", [hf.read.mqtt("mqtt://broker/t"), hf.read.lines("tcp://127.0.0.1:9000")])
def test_a_promise_that_rests_on_the_state_folders_disk_warns(reader):
    """The log of a live source is the only copy of what it acknowledged, and no backup covers the state folder."""
    p = hf.StreamProcess("p", frame="1 second", time="ts")
    p.source("live", reader, schema="ts timestamp, zone int")
    p.source("files", hf.read.files("*.csv"), schema="ts timestamp, zone int")
    p.union("both", of=["live", "files"])
    p.filter("hot", of="files", where="true")
    p.protect(hf.ecoc(every="5 seconds"))
    p.sink("both", Outside(), promise=hf.lossless)
    p.sink("hot", Outside(), promise=hf.lossless)
    assert (only(p).code, only(p).warning) == ("HF-L010", True)
    assert "output 'both'" in only(p).what and only(p).why.startswith("live cannot be read again")


def test_a_promise_that_one_gap_breaks_for_good_warns():
    """With hf.checkpoint a lost host leaves a gap; a running sum never gets over it."""

    def declared(**settings):
        p = process()
        p.source("files", Files(), schema=PROBES)
        p.filter("hot", of="files", where="true", protect=hf.checkpoint(every="5 seconds"))
        p.aggregate(
            "sums", of="hot", by="zone", emits={"n": "count(*)"}, protect=hf.ecoc(every="5 seconds"), **settings
        )
        p.sink("sums", Outside(), promise=hf.loses(at_most=0.1, wrong_at_most=0.1))
        return [code for code in codes(p) if code.startswith("HF-L")]

    assert declared() == ["HF-L001", "HF-L011"]
    assert declared(stabilises="5 minutes") == ["HF-L001"]
    assert declared(window="10 seconds", time="ts") == ["HF-L001"]


def test_a_parameter_nobody_takes_only_warns():
    p = process()
    p.param("limit", 80.0)
    p.filter("hot", of="probes", where="true")
    p.sink("hot", Outside())
    assert (only(p).code, only(p).warning) == ("HF-G030", True)


def test_a_range_of_other_types_is_refused_not_raised():
    p = process()
    p.param("limit", "high", between=(1, 2))

    @p.operator(over="frame")
    def hot(probes, *, limit): ...

    p.sink("hot", Outside())
    assert only(p).code == "HF-G013"


def test_a_unit_word_that_cannot_be_granted_warns():
    p = process()
    p.aggregate("a", of="probes", by="zone", emits={"n": "count(*)"}, unit="one")
    p.aggregate("b", of="a", by="zone", emits={"n": "count(*)"}, unit="one")
    p.sink("b", Outside())
    assert (only(p).code, only(p).warning) == ("HF-G031", True)


def test_order_across_names_a_sink_that_is_there():
    p = process()
    p.filter("hot", of="probes", where="true")
    p.sink("hot", Outside(), promise=hf.in_order_across("cold"))
    assert codes(p) == ["HF-G017"]
