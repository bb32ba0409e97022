"""Wirings: what machines read off their edges."""

from holdfast.protocols.wiring import InputEdge, OutputEdge, Wiring


def test_ports_come_in_their_order_and_once_each():
    """Frames of a checkpoint are packed by port; two orders would be two contents."""
    edges = tuple(OutputEdge(f"u>{port}{name}", port, name) for port in (8, 1, 3) for name in "xy")
    assert Wiring("u", (), edges).ports == (1, 3, 8)


def test_a_unit_is_a_source_or_on_a_cycle_by_any_of_its_inputs():
    """Its frames drive the clock, or its requests may come round, whatever else it reads."""
    plain, outside = InputEdge("a>u", "a"), InputEdge("log>u", "log", outside=True)
    back = InputEdge("b>u", "b", delay=2, on_cycle=True)
    mixed = Wiring("u", (plain, outside, back), ())
    assert (mixed.is_source, mixed.on_cycle) == (True, True)
    assert mixed.delays == {"a>u": 0, "log>u": 0, "b>u": 2}
    assert (Wiring("u", (plain,), ()).is_source, Wiring("u", (plain,), ()).on_cycle) == (False, False)
