"""Small wirings that the protocol tests share, and words to build events with."""

from holdfast.frames.identity import Kind
from holdfast.protocols.dialogue import FrameProcessed, OutputFrame
from holdfast.protocols.messages import CheckId
from holdfast.protocols.wiring import EdgeId, InputEdge, OutputEdge, Wiring


def e(text: str) -> EdgeId:
    return EdgeId.parse(text)


SOURCE = Wiring(
    "sensor",
    (InputEdge(e("log>sensor"), "log", outside=True),),
    (OutputEdge(e("sensor>join"), 0),),
)
MIDDLE = Wiring(
    "join",
    (InputEdge(e("a>join"), "a"), InputEdge(e("b>join"), "b")),
    (OutputEdge(e("join>avg"), 0),),
)
SPLIT = Wiring(
    "split",
    (InputEdge(e("a>split"), "a"),),
    (OutputEdge(e("split>left"), 0), OutputEdge(e("split>right"), 0)),
)
LAST = Wiring(
    "avg",
    (InputEdge(e("join>avg"), "join"),),
    (OutputEdge(e("avg>sink avg"), 0, outside=True),),
)
LOOP = Wiring(
    "sensor",
    (
        InputEdge(e("log>sensor"), "log", outside=True),
        InputEdge(e("avg>sensor@1"), "avg", on_cycle=True),
    ),
    (OutputEdge(e("sensor>join"), 0, on_cycle=True),),
)
FEEDS_LATE = Wiring(
    "join",
    (InputEdge(e("a>join"), "a"),),
    (OutputEdge(e("join>avg"), 0, lag=2),),
)
FEEDS_BACK = Wiring(
    "avg",
    (InputEdge(e("join>avg"), "join", on_cycle=True),),
    (
        OutputEdge(e("avg>sensor@1"), 0, on_cycle=True),
        OutputEdge(e("avg>sink avg"), 0, outside=True),
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
