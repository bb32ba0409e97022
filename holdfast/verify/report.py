"""The report of a verification: one HTML file that needs nothing else, with a picture for each output.

Pictures are SVG drawn here, in the page itself: it can be mailed, archived and opened in
ten years. Numbers and frames only, never rows: a process may hide its values.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.faults.plans import Fault
from holdfast.levels.arrivals import Output
from holdfast.levels.judging import judge_recomputed
from holdfast.levels.measuring import Measured
from holdfast.verify.verifying import SURVIVES, Ran, Verified

__all__ = ["page", "write_report"]

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 760, 220, 64, 34
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:820px;margin:2em auto;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.25em .8em .25em 0;border-bottom:1px solid #ddd}
.kept,.agrees{color:#176d36}.BROKEN{color:#b00020;font-weight:600}.not{color:#777}code{background:#f3f3f3;padding:.1em .3em}
svg text{font:12px system-ui,sans-serif;fill:#444}
"""


def write_report(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{name}.html"
    path.write_text(text, encoding="utf-8")
    return path


def page(process: str, found: Verified, again: str) -> str:
    verdict, kind = found.answer, "BROKEN" if not found.is_fine else "kept" if found.is_promised else "not"
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{_safe(process)}: {_safe(verdict)}</title><style>{_STYLE}</style>",
        f"<h1>{_safe(process)}: <span class={kind}>{_safe(verdict)}</span></h1>",
        f"<p>{found.ideal.frames:,} frames {_safe(found.pace)}. Ideal run {found.ideal.seconds:.0f} s, faulty run "
        f"{found.faulty.seconds:.0f} s over {found.faulty.starts} start(s), {found.faulty.deaths} unit death(s) mended inside. "
        f"Sinks were redirected: nothing was written to yours.</p>",
        _faults(found),
    ]
    ideals = {output.name: output for output in found.ideal.outputs}
    reals = {output.name: output for output in found.faulty.outputs}
    for measured in found.measured:
        parts += [f"<h2>output {_safe(measured.output)}</h2>", _table(found, measured)]
        lines = [
            _Line("ideal", "#7a9cc6", _seconds(ideals[measured.output], found.ideal)),
            _Line("faulty", "#b3541e", _seconds(reals[measured.output], found.faulty)),
        ]
        parts.append(_picture("seconds until a frame was visible, since the run's first", lines, found))
        if measured.delay_ms:
            ideal = _delays(ideals[measured.output])
            delays = [
                _Line("ideal", "#7a9cc6", ideal),
                _Line("faulty", "#b3541e", {n: ms / 1000 for n, ms in measured.delay_ms.items()}),
            ]
            parts.append(_picture("delay in seconds: due to visible", delays, found))
    parts.append(_oracle(found))
    parts.append(f"<p>This version survives {_safe(SURVIVES)}.</p><p>Again: <code>{_safe(again)}</code></p></html>")
    return "\n".join(parts)


def _delays(output: Output) -> dict[int, float]:
    """Frame -> seconds."""
    return {
        each.n: (each.at_us - each.due_us) / 1e6
        for each in output.arrivals
        if each.at_us is not None and each.due_us is not None
    }


def _faults(found: Verified) -> str:
    rows = [
        f"<tr><td>{at}</td><td>{_safe(str(fault))}</td><td>{'hit' if hit else '<span class=BROKEN>not hit</span>'}</td></tr>"
        for at, (fault, hit) in enumerate(zip(found.plan, found.faulty.hit, strict=True), 1)
    ]
    return f"<table><tr><th></th><th>fault</th><th></th></tr>{''.join(rows)}</table>"


def _oracle(found: Verified) -> str:
    """Every stream that leaves a unit, and how it was computed a second time. Frames and counts, no rows."""
    if not found.recomputed:
        return ""
    rows = []
    for line in found.recomputed:
        verdict = judge_recomputed(line)
        name = f"output {line.output}" if line.output else f"between units: {line.stream}"
        cells = "".join(f"<td>{_safe(text)}</td>" for text in (name, line.unit, line.words, line.way))
        rows.append(f"<tr>{cells}<td class={verdict.state.split()[0]}>{_safe(verdict.words)}</td></tr>")
    head = "<tr><th></th><th>unit</th><th>recomputed</th><th>how</th><th></th></tr>"
    return f"<h2>oracle</h2><p>Frames of the ideal run, computed again in a session that shares no plan with it.</p><table>{head}{''.join(rows)}</table>"


def _table(found: Verified, measured: Measured) -> str:
    rows = [
        f"<tr><td>{_safe(each.what)}</td><td>{_safe(each.promised or '-')}</td><td>{_safe(each.measured)}</td>"
        f"<td class={each.state.split()[0]}>{_safe(each.words)}</td><td>{each.level}</td></tr>"
        for each in found.verdicts
        if each.output == measured.output
    ]
    return f"<table><tr><th></th><th>promised</th><th>measured</th><th>verdict</th><th>level</th></tr>{''.join(rows)}</table>"


# ---- pictures ----


@dataclass(frozen=True)
class _Line:
    name: str
    colour: str
    points: dict[int, float]


def _seconds(output: Output, ran: Ran) -> dict[int, float]:
    at = output.visible_us()
    first = ran.began_us or min(at.values(), default=0)
    return {n: (us - first) / 1e6 for n, us in at.items()}


def _picture(title: str, lines: Sequence[_Line], found: Verified) -> str:
    numbers = [n for line in lines for n in line.points] or [1]
    first, frames = min(numbers) - 1, max([*numbers, found.ideal.last])
    top = max([0.001, *(value for line in lines for value in line.points.values())])

    def x(n: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 10) * (n - first) / max(1, frames - first)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - 30) * max(0.0, value) / top

    drawn = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{_safe(title)}">',
        f'<text x="{_LEFT}" y="16">{_safe(title)}</text>',
    ]
    for share in (0, 0.5, 1):
        drawn.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{y(share * top):.1f}" y2="{y(share * top):.1f}" stroke="#ddd"/>'
        )
        drawn.append(f'<text x="{_LEFT - 8}" y="{y(share * top) + 4:.1f}" text-anchor="end">{share * top:.3g}</text>')
    for n in sorted({first + 1, (first + 1 + frames) // 2, frames}):
        drawn.append(f'<text x="{x(n):.1f}" y="{_HEIGHT - 12}" text-anchor="middle">{n:,}</text>')
    for fault, hit in zip(found.plan, found.faulty.hit, strict=True):
        drawn.append(_strike(fault, hit, x(fault.frame)))
    for at, line in enumerate(lines):
        path = " ".join(f"{x(n):.1f},{y(value):.1f}" for n, value in sorted(line.points.items()))
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{line.colour}" stroke-width="2"/>')
        drawn.append(f'<text x="{_WIDTH - 130 + 65 * at}" y="16" style="fill:{line.colour}">{line.name}</text>')
    return "".join(drawn) + "</svg>"


def _strike(fault: Fault, hit: bool, x: float) -> str:
    dash = "" if hit else ' stroke-dasharray="2 4"'
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="24" y2="{_HEIGHT - _BOTTOM}" stroke="#b00020" opacity="0.5"{dash}>'
        f"<title>{_safe(str(fault))}{'' if hit else ' (not hit)'}</title></line>"
    )


def _safe(text: str) -> str:
    return html.escape(text, quote=True)
