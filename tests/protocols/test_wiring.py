"""Wirings: what machines read off their edges."""

from holdfast.protocols.wiring import InputEdge, OutputEdge, Wiring
from tests.protocols.wirings import e


def test_ports_come_in_their_order_and_once_each():
    """Frames of a checkpoint are packed by port; two orders would be two contents."""
    edges = tuple(OutputEdge(e(f"u{port}>{name}"), port) for port in (8, 1, 3) for name in "xy")
    assert Wiring("u", (), edges).ports == (1, 3, 8)


def test_a_unit_is_a_source_or_on_a_cycle_by_any_of_its_inputs():
    """Its frames drive the clock, or its requests may come round, whatever else it reads."""
    plain, outside = InputEdge(e("a>u"), "a"), InputEdge(e("log>u"), "log", outside=True)
    back = InputEdge(e("b>u@2"), "b", on_cycle=True)
    mixed = Wiring("u", (plain, outside, back), ())
    assert (mixed.is_source, mixed.on_cycle) == (True, True)
    assert mixed.delays == {e("a>u"): 0, e("log>u"): 0, e("b>u@2"): 2}
    assert (Wiring("u", (plain,), ()).is_source, Wiring("u", (plain,), ()).on_cycle) == (False, False)
