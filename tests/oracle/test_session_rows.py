"""Sessions as a plain loop finds them: which rows belong together, and when that is settled."""

from __future__ import annotations

from holdfast.oracle.session_rows import session_rows


class Seconds:
    """Frame n ends at n seconds."""

    def boundary_us(self, n: int) -> int:
        return n * 1_000_000

    def since_us(self, n: int) -> int:
        return (n - 1) * 1_000_000


def sessions(*rows: tuple[str, float, int], last: int = 20, late_s: float = 0.0) -> dict[tuple[int, int], set[int]]:
    """(start in ms, frame) -> rows; rows are (key, second, frame), the gap is half a second."""
    found: dict[tuple[int, int], set[int]] = {}
    times = [round(at * 1e6) for _, at, _ in rows]
    spans = session_rows(
        [(key,) for key, _, _ in rows],
        times,
        [n for _, _, n in rows],
        Seconds(),
        last,
        gap_us=500_000,
        late_us=round(late_s * 1e6),
    )
    for row, _, start, _, n in spans:
        found.setdefault((start // 1000, n), set()).add(row)
    return found


def test_a_row_at_exactly_the_gap_still_belongs_and_is_waited_for():
    assert sessions(("a", 0.1, 1), ("a", 0.5, 1), ("a", 1.0, 2)) == {(100, 2): {0, 1, 2}}
    assert sessions(("a", 0.5, 1), ("a", 1.1, 2)) == {(500, 2): {0}, (1100, 2): {1}}


def test_keys_do_not_meet_and_what_is_open_at_the_end_does_not_come_out():
    assert sessions(("a", 0.1, 1), ("b", 0.2, 1), ("a", 1.9, 2), last=2) == {(100, 1): {0}, (200, 1): {1}}


def test_a_late_row_joins_what_is_open_makes_two_one_and_is_too_late_alone():
    assert sessions(("a", 1.2, 2), ("a", 2.0, 2), ("a", 1.6, 3), late_s=3) == {(1200, 6): {0, 1, 2}}
    assert sessions(("a", 0.1, 4)) == {}
    assert sessions(("a", 0.1, 4), late_s=5) == {(100, 6): {0}}
