"""Run files: what is written can be read, and damage is found."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import StateRefused
from holdfast.operators.runs import RunRef, fold, read_run_file, sweep, write_run_file

TABLE = pa.table({"k": pa.array([1, 2, 3]), "v": pa.array(["a", None, "c"])})


def test_what_is_written_is_read(tmp_path):
    name, size = write_run_file(tmp_path, 7, TABLE)

    assert read_run_file(tmp_path, name, TABLE.schema) == TABLE
    assert (tmp_path / name).stat().st_size == size
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("at", [0, 100, -1])
def test_a_changed_byte_is_found(tmp_path, at):
    """State that was read wrong would be sealed into frames for ever."""
    name, _ = write_run_file(tmp_path, 7, TABLE)
    content = bytearray((tmp_path / name).read_bytes())
    content[at] ^= 1
    (tmp_path / name).write_bytes(content)

    with pytest.raises(StateRefused, match="HF-O010 StateDamaged"):
        read_run_file(tmp_path, name, TABLE.schema)


@pytest.mark.parametrize("left", [0, 50])
def test_a_cut_file_is_found(tmp_path, left):
    name, _ = write_run_file(tmp_path, 7, TABLE)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:left])

    with pytest.raises(StateRefused, match="HF-O010 StateDamaged"):
        read_run_file(tmp_path, name, TABLE.schema)


def test_a_missing_file_is_found(tmp_path):
    with pytest.raises(StateRefused, match="HF-O010 StateDamaged"):
        read_run_file(tmp_path, "00000001-abc-def.arrow", TABLE.schema)


def test_state_of_another_shape_is_refused(tmp_path):
    name, _ = write_run_file(tmp_path, 7, TABLE)

    with pytest.raises(StateRefused, match="HF-O011 StateDoesNotFit") as refused:
        read_run_file(tmp_path, name, pa.schema({"k": pa.int64(), "v": pa.float64()}))
    assert "stored k int64, v string; declared k int64, v double" in refused.value.why


def test_a_sweep_spares_what_is_kept_and_what_may_be_under_way(tmp_path):
    """A later version may belong to an attempt that is not noted yet."""
    names = [write_run_file(tmp_path, version, TABLE)[0] for version in (1, 2, 3, 4)]
    (tmp_path / f".{names[0]}.tmp").write_bytes(b"half")  # of a worker that was killed
    (tmp_path / "README").write_text("not ours")

    assert sweep(tmp_path, [RunRef(names[0], 0, 0, 3, 1)], up_to=3) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([names[0], names[3], "README"])


def test_a_reference_survives_json():
    run = RunRef("00000001-abc-def.arrow", 3, 10, 20, 999)

    assert RunRef.from_json(run.to_json()) == run
    assert run.rows == 10


@given(st.lists(st.sets(st.integers(0, 60), min_size=1), max_size=40), st.integers(0, 63))
def test_runs_stay_few_and_lose_no_key(commits, shard):
    """Sizes at least halve, so a shard of n keys has at most log2(n) runs."""
    runs, seen = [], set()
    for changed in commits:
        kept, slots = fold(runs, np.array(sorted(changed)), shard)
        runs = [*runs[:kept], slots]
        seen |= changed

        assert set(np.concatenate(runs)) == seen
        assert all(len(older) >= 2 * len(newer) for older, newer in zip(runs, runs[1:]))
        assert sum(map(len, runs[1:])) < 0.5 * len(runs[0])
        assert all(len(set(run)) == len(run) for run in runs)


def test_shards_of_one_size_fold_in_different_frames():
    """Otherwise one frame in some would rewrite the whole state."""
    base = np.arange(10_000)
    folded = set()
    for shard in range(16):
        runs, frame = [base], 0
        while frame == 0 or len(runs) > 1:
            frame += 1
            kept, slots = fold(runs, np.arange(frame * 100, frame * 100 + 100), shard)
            runs = [*runs[:kept], slots]
        folded.add(frame)
    assert len(folded) >= 8
    assert min(folded) >= 25 and max(folded) <= 50
