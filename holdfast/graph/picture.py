"""The graph as a picture: layered SVG, sources left, sinks right, feedback dashed.

Columns are blocks: a source, a unit (its operators in columns of their own), a sink.
An edge that skips a column gets a free lane in it, so no line runs through a box.
Feedback runs below everything, dashed, and says how many frames it goes back.

Pure: a graph and its units in, text out; the same graph gives the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from xml.sax.saxutils import escape

from holdfast.graph.known import columns_of, show_columns
from holdfast.graph.model import Graph, Operator
from holdfast.graph.protections import none
from holdfast.graph.units import Unit
from holdfast.graph.wording import count, described, outside

__all__ = ["as_svg"]

_ROW, _GAP_X, _GAP_Y, _PAD, _MARGIN, _LANE = 15, 92, 26, 16, 28, 18
_STYLE = """
  svg { font-family: system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; background: #fdfdfb }
  .title { font-size: 19px; font-weight: 600; fill: #1f2a37 }
  .sub, .why, .note { font-size: 11.5px; fill: #6b7280 }
  .name { font-size: 13.5px; font-weight: 600; fill: #1f2a37 }
  .unit { fill: #f1f5f9; stroke: #94a3b8; stroke-width: 1.2 }
  .unitname { font-size: 11.5px; font-weight: 600; fill: #475569 }
  .source { fill: #e0f2fe; stroke: #0284c7 } .sink { fill: #dcfce7; stroke: #16a34a }
  .op { fill: #ffffff; stroke: #64748b } .state { fill: #fef3c7; stroke: #d97706 }
  .edge { fill: none; stroke: #64748b; stroke-width: 1.5 }
  .back { fill: none; stroke: #be123c; stroke-width: 1.5; stroke-dasharray: 6 4 }
  .port { font-size: 10.5px; fill: #475569; paint-order: stroke; stroke: #fdfdfb; stroke-width: 3px }
  .backport { font-size: 10.5px; fill: #be123c }
  .promise { font-size: 11.5px; fill: #15803d; font-weight: 600 }
"""


@dataclass
class _Box:
    """A vertex with its lines of text; x, y are absolute once placed."""

    name: str
    lines: list[tuple[str, str]]  # (class, text)
    style: str
    title: str = ""
    x: float = 0
    y: float = 0
    span: float = 0  # a lane passes its whole column

    @property
    def is_lane(self) -> bool:
        return not self.lines

    @property
    def width(self) -> float:
        return max((_text_width(text, kind) + 24 for kind, text in self.lines), default=0)

    @property
    def height(self) -> float:
        return _LANE if self.is_lane else len(self.lines) * _ROW + 16

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass
class _Block:
    """What takes a place in a column: a unit, a lone vertex, or a lane for an edge that passes."""

    columns: list[list[_Box]]
    unit: Unit | None = None
    label: list[tuple[str, str]] = field(default_factory=list)
    x: float = 0
    y: float = 0

    @property
    def boxes(self) -> list[_Box]:
        return [box for column in self.columns for box in column]

    @property
    def top(self) -> float:
        return 18 + _ROW * len(self.label) if self.unit else 0

    @property
    def width(self) -> float:
        inner = sum(max(box.width for box in column) for column in self.columns) + _GAP_X * (len(self.columns) - 1)
        words = max((_text_width(text, kind) for kind, text in self.label), default=0)
        return max(inner, words) + (2 * _PAD if self.unit else 0)

    @property
    def height(self) -> float:
        tall = max(sum(b.height for b in column) + _GAP_Y * (len(column) - 1) for column in self.columns)
        return tall + (self.top + _PAD if self.unit else 0)

    @property
    def is_lane(self) -> bool:
        return self.unit is None and self.columns[0][0].is_lane

    def place(self, x: float, y: float, span: float) -> None:
        """Put it at the left of a column `span` wide; blocks are centred, lanes pass through."""
        self.x, self.y = x + (0 if self.is_lane else (span - self.width) / 2), y
        at = self.x + (_PAD if self.unit else 0)
        inner = self.height - (self.top + _PAD if self.unit else 0)
        for column in self.columns:
            down = y + self.top + (inner - sum(b.height for b in column) - _GAP_Y * (len(column) - 1)) / 2
            wide = max(box.width for box in column)
            for box in column:
                box.x, box.y = at + (0 if box.is_lane else (wide - box.width) / 2), down
                box.span = span if self.is_lane else wide
                down += box.height + _GAP_Y
            at += wide + _GAP_X


def as_svg(graph: Graph, units: tuple[Unit, ...]) -> str:
    picture = _Picture(graph, units)
    picture.arrange()
    return picture.draw()


class _Picture:
    def __init__(self, graph: Graph, units: tuple[Unit, ...]) -> None:
        self._graph = graph
        self._blocks: dict[str, _Block] = {}
        for source in graph.sources:
            columns = source.schema.ddl.split(", ") if source.schema else []
            lines = [("name", source.name), *_wrapped(outside(source.reader)), *_wrapped(columns)]
            box = _Box(source.name, lines, "source", f"source {source.name}, {source.line}")
            self._blocks[f"source {source.name}"] = _Block([[box]])
        for unit in units:
            self._blocks[f"unit {unit.name}"] = self._unit_block(unit)
        for sink in graph.sinks:
            lines = [("name", sink.name), *_wrapped(outside(sink.writer))]
            if sink.promises:  # a tick would say that it is kept; it is what was promised
                lines += _wrapped("promises " + ", ".join(map(str, sink.promises)), 30, "promise")
            box = _Box(f"sink {sink.name}", lines, "sink", f"sink {sink.name}, {sink.line}")
            self._blocks[f"sink {sink.name}"] = _Block([[box]])
        self._home = {box.name: key for key, block in self._blocks.items() for box in block.boxes}
        self._boxes = {box.name: box for block in self._blocks.values() for box in block.boxes}
        self._lanes: dict[tuple[str, str], list[_Box]] = {}
        self._width = self._height = 0.0

    def _unit_block(self, unit: Unit) -> _Block:
        depth: dict[str, int] = {}
        columns: list[list[_Box]] = []
        for name in unit.operators:
            operator = self._graph.operator(name)
            before = [
                depth[producer.name]
                for edge in operator.inputs
                if not edge.is_feedback
                and isinstance(producer := self._graph.producer_of(edge.stream), Operator)
                and producer.name in depth
            ]
            depth[name] = max(before, default=-1) + 1
            while len(columns) <= depth[name]:
                columns.append([])
            columns[depth[name]].append(self._operator_box(operator))
        label = [("unitname", f"unit {unit.name}" + (f" · {unit.protect}" if unit.protect != none else ""))]
        label += _wrapped(unit.why, 46, "why")
        return _Block(columns, unit, label)

    def _operator_box(self, operator: Operator) -> _Box:
        kind = operator.kind if operator.kind not in ("frame", "stream") else f"over the {operator.kind}"
        lines = [("name", operator.name), ("sub", kind), *_wrapped(described(operator))]
        title = [f"{operator.kind} operator {operator.name}, {operator.line}"]
        for stream in operator.outputs:
            columns = columns_of(self._graph, stream)
            title.append(f"{stream}: {show_columns(columns) if columns else 'columns known after check'}")
        return _Box(operator.name, lines, "state" if operator.is_stateful else "op", "\n".join(title))

    # -- places ------------------------------------------------------------------

    def _links(self) -> list[tuple[str, str]]:
        """(from box, to box) of every ordinary edge, to sinks too."""
        found = []
        for edge in self._graph.edges():
            producer = self._graph.producer_of(edge.stream)
            if producer is not None and not edge.is_feedback:
                found.append((producer.name, edge.consumer))
        for sink in self._graph.sinks:
            producer = self._graph.producer_of(sink.stream)
            if producer is not None:
                found.append((producer.name, f"sink {sink.name}"))
        return list(dict.fromkeys(found))

    def arrange(self) -> None:
        links = self._links()
        between = {(self._home[a], self._home[b]) for a, b in links if self._home[a] != self._home[b]}
        layer = dict.fromkeys(self._blocks, 0)
        for _ in self._blocks:  # longest path; the units have no cycle, so it settles
            for a, b in sorted(between):
                layer[b] = max(layer[b], layer[a] + 1)
        last = max((n for key, n in layer.items() if not key.startswith("sink ")), default=0) + 1
        layer |= {key: last for key in self._blocks if key.startswith("sink ")}
        for key in self._blocks:  # a source stands just before its first reader
            readers = [layer[b] for a, b in between if a == key]
            if key.startswith("source ") and readers:
                layer[key] = min(readers) - 1
        columns: list[list[_Block]] = [[] for _ in range(last + 1)]
        for key, block in self._blocks.items():
            columns[layer[key]].append(block)
        near: dict[int, list[_Block]] = {id(block): [] for block in self._blocks.values()}
        for a, b in links:
            one, two = self._home[a], self._home[b]
            if one == two:
                self._lanes[a, b] = self._lanes_within(one, a, b)
                continue
            chain = [self._blocks[one]]
            for at in range(layer[one] + 1, layer[two]):
                lane = _Block([[_Box("", [], "")]])
                near[id(lane)] = []
                columns[at].append(lane)
                chain.append(lane)
            between_blocks = [block.boxes[0] for block in chain[1:]]
            self._lanes[a, b] = [*self._lanes_out(a), *between_blocks, *self._lanes_in(b)]
            chain.append(self._blocks[two])
            for x, y in pairwise(chain):
                near[id(x)].append(y)
                near[id(y)].append(x)
        self._place(columns, near)

    def _lanes_out(self, name: str) -> list[_Box]:
        """Lanes above the columns of its unit that come after it."""
        columns = self._blocks[self._home[name]].columns
        return [_lane_in(column, top=True) for column in columns[_column_of(columns, name) + 1 :]]

    def _lanes_in(self, name: str) -> list[_Box]:
        """Lanes below the columns of its unit that come before it."""
        columns = self._blocks[self._home[name]].columns
        return [_lane_in(column, top=False) for column in columns[: _column_of(columns, name)]]

    def _lanes_within(self, block: str, a: str, b: str) -> list[_Box]:
        columns = self._blocks[block].columns
        skipped = columns[_column_of(columns, a) + 1 : _column_of(columns, b)]
        return [_lane_in(column, top=True) for column in skipped]

    def _place(self, columns: list[list[_Block]], near: dict[int, list[_Block]]) -> None:
        self._stack(columns)
        for sweep in range(4):  # neighbours pull a block up or down; four sweeps settle small graphs
            for column in columns if sweep % 2 == 0 else reversed(columns):
                column.sort(key=lambda block: _pull(block, near[id(block)]))
            self._stack(columns)

    def _stack(self, columns: list[list[_Block]]) -> None:
        heights = [sum(b.height for b in column) + _GAP_Y * (len(column) - 1) for column in columns]
        tall = max(heights, default=0)
        x, top = float(_MARGIN), 84.0
        for column, height in zip(columns, heights, strict=True):
            wide = max((block.width for block in column), default=0)
            y = top + (tall - height) / 2
            for block in column:
                block.place(x, y, wide)
                y += block.height + _GAP_Y
            x += wide + _GAP_X
        self._width, self._height = x - _GAP_X + _MARGIN, top + tall + _MARGIN

    # -- ink ---------------------------------------------------------------------

    def draw(self) -> str:
        graph = self._graph
        back = [edge for edge in graph.edges() if edge.is_feedback and graph.producer_of(edge.stream)]
        floor = self._height
        height = self._height + (34 * len(back) if back else 0)
        legend = (
            f"frames of {graph.frame_ms:,} ms" if graph.frame_ms % 1000 else f"frames of {graph.frame_ms // 1000} s"
        )
        legend += f" by {graph.time}" if isinstance(graph.time, str) else " by arrival" if graph.time else ""
        legend += f" · {count(len(graph.operators), 'operator')} in {count(self._unit_count(), 'unit')}"
        width = max(self._width, _text_width(legend, "sub") + 2 * _MARGIN)
        ink = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" height="{height:.0f}" role="img">',
            f"<title>stream process {escape(graph.name)}</title>",
            f"<style>{_STYLE}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto"><path d="M0,0.6 L8,4 L0,7.4 z" fill="#64748b"/></marker>'
            '<marker id="backtip" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto"><path d="M0,0.6 L8,4 L0,7.4 z" fill="#be123c"/></marker></defs>',
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fdfdfb"/>',
            _text(_MARGIN, 36, "title", graph.name),
            _text(_MARGIN, 56, "sub", legend),
        ]
        ink += [line for block in self._blocks.values() if block.unit for line in _unit_ink(block)]
        ink += [line for a, b in self._links() for line in self._edge_ink(a, b)]
        ink += [line for i, edge in enumerate(back) for line in self._back_ink(edge, floor + 34 * i)]
        ink += [line for box in self._boxes.values() for line in _box_ink(box)]
        return "\n".join([*ink, "</svg>"]) + "\n"

    def _unit_count(self) -> int:
        return sum(block.unit is not None for block in self._blocks.values())

    def _edge_ink(self, a: str, b: str) -> list[str]:
        start, end = self._boxes[a], self._boxes[b]
        y1, y2 = self._slot(start, b, leaving=True), self._slot(end, a, leaving=False)
        x, y = start.x + start.width, y1
        path = f"M{x:.1f},{y:.1f}"
        home, away = self._blocks[self._home[a]], self._blocks[self._home[b]]
        if home is not away and not self._lanes_left(a):  # straight to the border: no line through a label
            x = home.x + home.width - (_PAD if home.unit else 0)
            path += f" H{x:.1f}"
        for lane in self._lanes.get((a, b), []):
            path += _curve(x, y, lane.x, lane.middle) + f" H{lane.x + lane.span:.1f}"
            x, y = lane.x + lane.span, lane.middle
        enters = away.x + _PAD if home is not away and not self._lanes_before(b) and away.unit else end.x
        path += _curve(x, y, enters, y2) + (f" H{end.x:.1f}" if enters != end.x else "")
        ink = [f'<path class="edge" d="{path}" marker-end="url(#tip)"/>']
        read = [
            edge.stream.partition(".")[2]
            for edge in self._graph.edges()
            if (edge.consumer, edge.is_feedback) == (b, False) and self._made_by(edge.stream) == a
        ]
        read += [sink.stream.partition(".")[2] for sink in self._graph.sinks if f"sink {sink.name}" == b]
        if shown := ", ".join(dict.fromkeys(port for port in read if port)):
            ink.append(_text(start.x + start.width + 6, y1 - 5, "port", shown))
        return ink

    def _lanes_left(self, name: str) -> bool:
        columns = self._blocks[self._home[name]].columns
        return _column_of(columns, name) < len(columns) - 1

    def _lanes_before(self, name: str) -> bool:
        return _column_of(self._blocks[self._home[name]].columns, name) > 0

    def _made_by(self, stream: str) -> str:
        producer = self._graph.producer_of(stream)
        return producer.name if producer is not None else ""

    def _slot(self, box: _Box, other: str, *, leaving: bool) -> float:
        """Where on a side an edge sits: spread out in the order of where the edges go next."""
        links = self._links()
        ends = [b for a, b in links if a == box.name] if leaving else [a for a, b in links if b == box.name]

        def next_height(name: str) -> tuple[float, str]:
            lanes = self._lanes.get((box.name, name) if leaving else (name, box.name), [])
            towards = (lanes[0] if leaving else lanes[-1]) if lanes else self._boxes[name]
            return towards.middle, name

        ends.sort(key=next_height)
        at = ends.index(other)
        return box.y + box.height * (at + 1) / (len(ends) + 1)

    def _back_ink(self, edge: Any, floor: float) -> list[str]:
        start, end = self._boxes[self._graph.producer_of(edge.stream).name], self._boxes[edge.consumer]
        x1, x2 = start.x + start.width * 0.6, end.x + end.width * 0.4
        y1, y2 = start.y + start.height, end.y + end.height
        r = 12.0
        path = (
            f"M{x1:.1f},{y1:.1f} V{floor - r:.1f} Q{x1:.1f},{floor:.1f} {x1 - r:.1f},{floor:.1f} "
            f"H{x2 + r:.1f} Q{x2:.1f},{floor:.1f} {x2:.1f},{floor - r:.1f} V{y2:.1f}"
        )
        words = f"{edge.stream} as {edge.port}, {count(edge.feedback_frames, 'frame')} back"
        return [
            f'<path class="back" d="{path}" marker-end="url(#backtip)"/>',
            _text((x1 + x2) / 2, floor + 15, "backport", words, anchor="middle"),
        ]


def _column_of(columns: list[list[_Box]], name: str) -> int:
    return next(i for i, column in enumerate(columns) if any(box.name == name for box in column))


def _lane_in(column: list[_Box], *, top: bool) -> _Box:
    lane = _Box("", [], "")
    column.insert(0 if top else len(column), lane)
    return lane


def _curve(x1: float, y1: float, x2: float, y2: float) -> str:
    bend = max(20.0, (x2 - x1) / 2)
    return f" C{x1 + bend:.1f},{y1:.1f} {x2 - bend:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"


def _pull(block: _Block, near: list[_Block]) -> float:
    if not near:
        return block.y
    return sum(other.y + other.height / 2 for other in near) / len(near)


def _unit_ink(block: _Block) -> list[str]:
    ink = [
        f'<rect class="unit" x="{block.x:.1f}" y="{block.y:.1f}" width="{block.width:.1f}" '
        f'height="{block.height:.1f}" rx="10"/>'
    ]
    for i, (kind, text) in enumerate(block.label):
        ink.append(_text(block.x + _PAD, block.y + 20 + _ROW * i, kind, text))
    return ink


def _box_ink(box: _Box) -> list[str]:
    radius = 6 if box.style in ("op", "state") else box.height / 2 if len(box.lines) < 3 else 18
    ink = [
        "<g>",
        f"<title>{escape(box.title)}</title>",
        f'<rect class="{box.style}" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="{radius:g}" stroke-width="1.4"/>',
    ]
    for i, (kind, text) in enumerate(box.lines):
        ink.append(_text(box.x + 12, box.y + 20 + _ROW * i, kind, text))
    return [*ink, "</g>"]


def _text(x: float, y: float, kind: str, text: str, anchor: str = "") -> str:
    where = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{where}>{escape(text)}</text>'


def _text_width(text: str, kind: str) -> float:
    # Averages of Helvetica at the sizes of the style sheet, a little generous.
    return len(text) * {"title": 11.0, "name": 8.0, "promise": 7.0, "unitname": 7.0}.get(kind, 6.6)


def _wrapped(text: str | list[str], width: int = 34, kind: str = "sub") -> list[tuple[str, str]]:
    """At most four lines, broken at spaces; a list is broken between its items only."""
    gap = ", " if isinstance(text, list) else " "
    lines: list[str] = []
    for word in text.split() if isinstance(text, str) else text:
        if lines and len(lines[-1]) + len(gap) + len(word) <= width:
            lines[-1] += gap + word
        else:
            lines.append(word)
    if len(lines) > 4:
        lines = [*lines[:3], lines[3][: width - 2] + " …"]
    return [(kind, line) for line in lines]
