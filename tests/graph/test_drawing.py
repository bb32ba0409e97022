"""The drawings: complete, the same every time, and no line through a box."""

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import holdfast as hf
from holdfast.declare.loading import load
from holdfast.graph.drawing import as_svg, as_text
from holdfast.graph.units import cut

from .test_units import Outside, ward

KILN = Path(__file__).parents[2] / "examples" / "kiln.py"
SVG = "{http://www.w3.org/2000/svg}"


def drawn(process):
    graph = process.graph()
    return as_text(graph, cut(graph)), as_svg(graph, cut(graph))


def boxes(svg):
    root = ElementTree.fromstring(svg)
    return [
        tuple(float(rect.get(each)) for each in ("x", "y", "width", "height"))
        for rect in root.iter(f"{SVG}rect")
        if rect.get("class") in ("op", "state", "source", "sink")
    ]


def test_the_kiln_in_the_terminal():
    text, _ = drawn(load(KILN))
    assert "kiln   frames of 1 s by column ts   1 source, 2 operators, 1 sink, 1 unit" in text
    assert "unit average on host1, ecoc extended every 10 frames ─" in text  # where to strike it
    assert "◀ probes, average as last ↺ 1 frame back   takes limit, gain" in text
    assert "avg(celsius), per zone, over 10 s every 1 s" in text
    assert "lossless, in order" in text
    assert "limit = 80.0, 20 to 120   mean above which a zone is damped" in text


def test_the_kiln_as_a_picture():
    _, svg = drawn(load(KILN))
    texts = [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    for word in ("kiln", "probes", "damped", "average", "promises lossless, in order", "average as last, 1 frame back"):
        assert word in texts
    assert "unit average · ecoc extended every 10 frames" in texts
    assert svg.count('class="back"') == 1  # feedback is dashed, and only feedback
    assert svg == drawn(load(KILN))[1]


def test_boxes_lie_apart_and_inside_the_picture():
    p = ward()
    p.split("parts", of="alarms", into={"high": "bpm > 150", "low": "bpm <= 150"})
    p.filter("weak", of="pulse", where="bpm < 40 and patient <> 'a & b'")
    p.sink("parts.high", Outside(), promise=hf.lossless)
    p.sink("parts.low", Outside())
    p.sink("weak", Outside())
    text, svg = drawn(p)
    width, height = map(float, re.search(r'viewBox="0 0 (\d+) (\d+)"', svg).groups())
    places = boxes(svg)
    assert len(places) == 2 + 5 + 4
    for x, y, w, h in places:
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
    for (x1, y1, w1, h1), (x2, y2, w2, h2) in combinations(places, 2):
        assert x1 + w1 <= x2 or x2 + w2 <= x1 or y1 + h1 <= y2 or y2 + h2 <= y1
    assert "gives parts.high to sink parts_high" in text


def points(d):
    """Places along a path of M, C and H commands."""
    x = y = 0.0
    for command, numbers in re.findall(r"([MCH])([^MCH]*)", d):
        values = [float(each) for each in re.findall(r"-?[\d.]+", numbers)]
        if command == "M":
            x, y = values
        elif command == "H":
            yield from ((x + (values[0] - x) * t / 20, y) for t in range(21))
            x = values[0]
        else:
            x1, y1, x2, y2, x3, y3 = values
            for t in (step / 20 for step in range(21)):
                a, b, c, e = (1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t**2, t**3
                yield a * x + b * x1 + c * x2 + e * x3, a * y + b * y1 + c * y2 + e * y3
            x, y = x3, y3


def test_no_edge_runs_through_a_box():
    """damped -> sink passes the aggregate, pulse -> alarms passes motion: both have lanes there."""
    for process in (load(KILN), ward()):
        _, svg = drawn(process)
        paths = [
            path.get("d") for path in ElementTree.fromstring(svg).iter(f"{SVG}path") if path.get("class") == "edge"
        ]
        assert len(paths) >= 3
        for d in paths:
            for px, py in points(d):
                for x, y, w, h in boxes(svg):
                    assert not (x + 1 < px < x + w - 1 and y + 1 < py < y + h - 1), (d, (x, y, w, h))
