"""A fingerprint changes with what decides an operator's output, and with nothing else."""

import textwrap

import holdfast as hf
from holdfast.declare.loading import load
from holdfast.graph.fingerprint import fingerprint

HEAD = """
import holdfast as hf
p = hf.StreamProcess("p", frame="1 second", time="ts")
p.source("probes", object(), schema="ts timestamp, zone int, celsius double")
"""


def of(folder, body, name="hot"):
    path = folder / "changing.py"
    path.write_text(HEAD + textwrap.dedent(body))
    import linecache

    linecache.clearcache()
    return fingerprint(load(path).graph().operator(name))


PLAIN = """
    LIMIT = 80
    def scale(x):
        return x * 2
    @p.operator(over="frame")
    def hot(probes, *, step=1):
        return probes.where(scale(probes.celsius) > LIMIT)
"""


def test_comments_spaces_and_docstrings_do_not_count(tmp_path):
    same = """
        LIMIT = 80

        def scale(x):
            '''Twice.'''
            return (x
                    * 2)  # why not

        @p.operator(over="frame", delay_max="2 seconds")
        def hot(probes: object, *, step=1) -> object:
            \"\"\"Hot ones.\"\"\"
            # a comment
            return probes.where(scale(probes.celsius)   >   LIMIT)
    """
    assert of(tmp_path, same) == of(tmp_path, PLAIN)


def test_code_constants_defaults_and_helpers_count(tmp_path):
    before = of(tmp_path, PLAIN)
    for old, new in (
        ("> LIMIT", ">= LIMIT"),
        ("LIMIT = 80", "LIMIT = 81"),
        ("x * 2", "x * 3"),
        ("step=1", "step=2"),
        ("probes", "readings"),
    ):
        changed = PLAIN.replace(old, new)
        if new == "readings":
            changed = changed.replace('over="frame"', 'over="frame", inputs={"readings": "probes"}')
        assert of(tmp_path, changed) != before, (old, new)


def test_closures_count(tmp_path):
    body = """
        def make(limit):
            @p.operator(over="frame")
            def hot(probes):
                return probes.where(probes.celsius > limit)
        make({})
    """
    assert of(tmp_path, body.format(80)) == of(tmp_path, body.format(80))
    assert of(tmp_path, body.format(80)) != of(tmp_path, body.format(81))


def test_recursive_helpers_end(tmp_path):
    body = """
        def even(n): return n == 0 or odd(n - 1)
        def odd(n): return n != 0 and even(n - 1)
        @p.operator(over="frame")
        def hot(probes): return probes if even(2) else None
    """
    assert of(tmp_path, body) == of(tmp_path, body)
    assert of(tmp_path, body) != of(tmp_path, body.replace("n != 0", "n > 0"))


def test_options_and_wiring_of_built_ins_count(tmp_path):
    def body(window="10 seconds", of="probes", emits="avg(celsius)"):
        return f'p.aggregate("hot", of="{of}", by="zone", window="{window}", emits={{"m": "{emits}"}})'

    before = globals()["of"](tmp_path, body())
    assert globals()["of"](tmp_path, body()) == before
    for changed in (body(window="20 seconds"), body(of="other"), body(emits="max(celsius)")):
        assert globals()["of"](tmp_path, changed) != before


def test_state_and_schemas_of_keyed_operators_count():
    def made(state):
        p = hf.StreamProcess("p", frame="1 second", time="ts")

        @p.keyed("zone", state=state, emits="zone int, n int")
        def counted(state, probes): ...

        return fingerprint(p.graph().operator("counted"))

    assert made("n int") == made("n int")
    assert made("n int") != made("n bigint")
