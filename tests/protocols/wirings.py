"""Small wirings that the protocol tests share, and words to build events with."""

from holdfast.protocols.dialogue import FrameProcessed, OutputFrame
from holdfast.protocols.messages import CheckId, Kind
from holdfast.protocols.wiring import InputEdge, OutputEdge, Wiring

SOURCE = Wiring(
    "sensor",
    (InputEdge("log>sensor", "log", outside=True),),
    (OutputEdge("sensor>join", 0, "join"),),
)
MIDDLE = Wiring(
    "join",
    (InputEdge("a>join", "a"), InputEdge("b>join", "b")),
    (OutputEdge("join>avg", 0, "avg"),),
)
SPLIT = Wiring(
    "split",
    (InputEdge("a>split", "a"),),
    (OutputEdge("split>left", 0, "left"), OutputEdge("split>right", 0, "right")),
)
LAST = Wiring(
    "avg",
    (InputEdge("join>avg", "join"),),
    (OutputEdge("avg>sink", 0, "sink", outside=True),),
)
LOOP = Wiring(
    "sensor",
    (
        InputEdge("log>sensor", "log", outside=True),
        InputEdge("avg>sensor", "avg", delay=1, on_cycle=True),
    ),
    (OutputEdge("sensor>join", 0, "join", on_cycle=True),),
)
FEEDS_LATE = Wiring(
    "join",
    (InputEdge("a>join", "a"),),
    (OutputEdge("join>avg", 0, "avg", lag=2),),
)
FEEDS_BACK = Wiring(
    "avg",
    (InputEdge("join>avg", "join", on_cycle=True),),
    (
        OutputEdge("avg>sensor", 0, "sensor", delay=1, on_cycle=True),
        OutputEdge("avg>sink", 0, "sink", outside=True),
    ),
)


def ids(*names: str) -> frozenset[CheckId]:
    return frozenset(CheckId(name, 1, 1) for name in names)


def processed(frame: int, inputs: tuple[int, ...] = (), state: int = 100) -> FrameProcessed:
    return FrameProcessed(frame, (), state, inputs)


def sealed(size: int = 10, port: int = 0, content: int = 0) -> OutputFrame:
    return OutputFrame(port, Kind.STABLE, content, size)


def run_to(machine, frame: int, inputs: tuple[int, ...] = ()) -> list:
    """Process frames 1 to `frame`; what the machine said to the last one."""
    said: list = []
    for number in range(1, frame + 1):
        said = machine.handle(processed(number, inputs))
    return said
