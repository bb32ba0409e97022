"""How the shell shows things: findings, progress, status.

Results go to standard output, progress to standard error. On a terminal the
progress is a block that is drawn anew; elsewhere it is plain lines, one per
change of phase and one every ten seconds, so that a log stays readable. Colour
only on a terminal, and never with NO_COLOR (rich sees to both).

Reads the typed objects of the engine through `to_json` only, so that what is
shown and what `--json` prints cannot differ.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from holdfast.errors import Finding

__all__ = [
    "Progress",
    "as_json",
    "console",
    "counted",
    "errors",
    "graph_fields",
    "is_degraded",
    "print_finding",
    "print_status",
    "status_lines",
    "summary",
]

# A log line every ten seconds is 8,640 a day: enough to see, few enough to keep.
PLAIN_LINE_SECONDS = 10.0

# Frames after a bounded input have this boundary (frames.identity.END_US): no time to show.
END_OF_INPUT_US = 7_258_118_400_000_000
_STYLES = {
    "DEAD": "bold red", "GIVEN_UP": "bold red", "BROKEN": "bold red", "DEGRADED": "bold red", "failed": "bold red",
    "RESTARTING": "yellow", "PROBING": "yellow", "HELD": "yellow", "AWAY": "yellow", "finished": "green",
}  # fmt: skip


def console() -> Console:
    return Console(highlight=False, soft_wrap=True)


def errors() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def as_json(value: Any) -> str:
    """One line of JSON for a machine; typed objects say how they look."""
    return json.dumps(value, default=_plain, ensure_ascii=False, sort_keys=False)


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):
        answer = value.to_json()
        return json.loads(answer) if isinstance(answer, str) else answer
    if isinstance(value, Finding):
        return {name: getattr(value, name) for name in Finding.__dataclass_fields__}
    return str(value)


def graph_fields(graph: Any, units: Any) -> dict[str, Any]:
    """A graph and its units for a machine; readers and writers as they describe themselves."""
    return {
        "process": graph.name,
        "frame_ms": graph.frame_ms,
        "sources": [{"name": each.name, "reads": each.reader.describe(), "line": each.line} for each in graph.sources],
        "operators": [
            {
                "name": each.name,
                "kind": each.kind,
                "inputs": [edge.stream for edge in each.inputs],
                "outputs": each.outputs,
                "line": each.line,
            }
            for each in graph.operators
        ],
        "sinks": [
            {
                "name": each.name,
                "stream": each.stream,
                "writes": each.writer.describe(),
                "promises": [str(promise) for promise in each.promises],
            }
            for each in graph.sinks
        ],
        "units": [
            {"name": each.name, "operators": each.operators, "outputs": each.outputs, "why": each.why} for each in units
        ],
    }


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def print_finding(finding: Finding, to: Console) -> None:
    text = Text(str(finding))
    text.stylize("yellow" if finding.warning else "bold red", 0, len(finding.code))
    to.print(text)


def status_lines(status: Mapping[str, Any]) -> list[str]:
    """A status, in its JSON form, as lines for people."""
    if status["state"] == "activating":
        # Frames are counted once sources and sinks are open.
        notes = [note for note in status.get("notes", ())[-1:] if note.startswith("waits")]
        return [f"{status['process']}  activating", *(f"  {note}" for note in notes)]
    head = f"{status['process']}  {_condition(status):<10} frame {status['frame']:,}"
    if status.get("frame_last"):
        head += f" of {status['frame_last']:,}"
    if status.get("time_us") is not None and status["time_us"] < END_OF_INPUT_US:
        head += f" ({datetime.fromtimestamp(status['time_us'] / 1e6, UTC):%H:%M:%S}Z)"
    lines = [f"{head}   {status['frames_per_s']:,.1f} frames/s"]
    if status.get("degraded"):
        lines.append(f"  why    {status['degraded']}")
    for source in status.get("sources", ()):
        late = f"   late {source['late']:,}" if source["late"] else ""
        late += f"   bad {source['bad']:,}" if source.get("bad") else ""
        verb = "waits" if source["waiting"] == 1 else "wait"
        waits = (
            f"   {counted(source['waiting'], 'frame')} {verb} ({_megabytes(source)})" if source["waiting"] > 0 else ""
        )
        end = "   ended" if source["ended"] else f"   {source['why']}" if source.get("why") else ""
        lines.append(
            f"  source {source['name']:<14} {source['sealed']:>8,} sealed   {counted(source['rows'], 'row')}{late}{waits}{end}"
        )
    for unit in status.get("units", ()):
        why = f"   {unit['behind']:,} behind" if unit.get("behind", 0) > 1 else ""
        why += f"   restarted {counted(unit['restarts'], 'time')}" if unit.get("restarts") else ""
        if unit.get("host"):
            kept = (
                f", backup at {unit['stored']:,}, {_since(unit['stored_s'])} old"
                if unit.get("stored") is not None
                else ""
            )
            why += f"   on {unit['host']}{kept}"
        why += f"   {counted(unit['too_late'], 'row')} too late" if unit.get("too_late") else ""
        why += f"   {unit['marked']}" if unit.get("marked") else ""
        why += f"   {unit['why']}" if unit["why"] else ""
        lines.append(
            f"  unit   {unit['name']:<14} {unit['processed']:>8,} done     {unit['ms_per_frame']:,.0f} ms/frame   {unit['state']}{why}"
        )
    for sink in status.get("sinks", ()):
        away = f"   AWAY {sink['why']}" if sink.get("state") == "AWAY" else ""
        away += f"   {sink['marked']}" if sink.get("marked") else ""
        lines.append(
            f"  sink   {sink['name']:<14} {sink['written']:>8,} written  {counted(sink['rows'], 'row')}{_refused(sink)}{away}"
        )
    lines += _promise_lines(status)
    for name, value in status.get("params", {}).items():
        per = "".join(f"; {key}: {other}" for key, other in value["per"].items())
        lines.append(f"  param  {name:<14} {value['value']}{per}")
    lines += [f"  late   {sentence}" for sentence in status.get("delays", ())]
    if status.get("error"):
        lines.append("  " + status["error"].replace("\n", "\n  "))
    elif status.get("last_error"):
        at = status.get("last_error_at")
        lines.append(
            f"  last error            {status['last_error']}" + (f", holdfast trace {at[0]} {at[1]}" if at else "")
        )
    return lines


def edge_lines(edges: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every edge of a run: who is where, and whether a loss would be made good."""
    rows: list[tuple[str, ...]] = [
        ("edge", "produced", "queue", "consumed", "now", "stored out", "stored in", "from their backups")
    ]
    for edge in edges:
        now = "exact" if edge["exact"] else "relaxed" if edge["relaxed"] else "BROKEN"
        lost = {None: "not promised", True: "lossless", False: "BROKEN"}[edge["stored"]]
        late = f" (-{edge['delay']})" if edge["delay"] else ""
        queue = f"({edge['queue_after']:,}, {edge['queue_upto']:,}]"
        stored = ["" if edge[key] is None else f"{edge[key]:,}" for key in ("stored_out", "stored_in")]
        rows.append(
            (
                f"{edge['stream']} -> {edge['consumer']}{late}",
                f"{edge['produced']:,}",
                queue,
                f"{edge['consumed']:,}",
                now,
                *stored,
                lost,
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _condition(status: Mapping[str, Any]) -> str:
    """The word people look for first: DEGRADED while it goes on and not as declared."""
    if status.get("degraded") and status["state"] == "running":
        return f"DEGRADED for {_since(status.get('degraded_s') or 0)}  "
    return status["state"]


def _promise_lines(status: Mapping[str, Any]) -> list[str]:
    """A line per sink with all that was promised of it."""
    of_sink: dict[str, list[str]] = {}
    for each in status.get("promises", ()):
        word = f"{each['promise']} {each['state']}"
        if each["state"] == "BROKEN" and each.get("since_s") is not None:
            word += f" since {_since(each['since_s'])}"
        if each.get("why"):
            word += f" ({each['why']})"
        of_sink.setdefault(each["sink"], []).append(word)
    return [f"  promise {sink:<13} {' | '.join(words)}" for sink, words in of_sink.items()]


def _since(seconds: float) -> str:
    """About how long; nobody reads 7,264 s."""
    seconds = round(seconds)
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h {seconds % 3600 // 60} min"


def _megabytes(source: Mapping[str, Any]) -> str:
    return f"{source['waiting_bytes'] / 1e6:,.1f} of {source['bytes_bound'] / 1e6:,.0f} MB"


def is_degraded(status: Mapping[str, Any]) -> bool:
    """Runs, but not as declared: a bound is broken, a unit is dead, a sink is away, an error is pending."""
    dead = any(unit["state"] in ("DEAD", "RESTARTING", "PROBING", "GIVEN_UP") for unit in status.get("units", ()))
    away = any(sink.get("state") == "AWAY" for sink in status.get("sinks", ()))
    broken = any(each["state"] == "BROKEN" for each in status.get("promises", ()))
    return bool(dead or away or broken or status.get("degraded") or status.get("delays") or status.get("error"))


def summary(status: Mapping[str, Any], again: str) -> str:
    """The last line of a run."""
    rows = ", ".join(
        f"{counted(sink['rows'], 'row')} to {sink['name']}{_refused(sink)}" for sink in status.get("sinks", ())
    )
    late = sum(source["late"] for source in status.get("sources", ()))
    bad = sum(source.get("bad", 0) for source in status.get("sources", ()))
    line = f"{status['process']}  {status['state']:<10} {counted(status['frame'], 'frame')}"
    line += f", {rows}" if rows else ""
    line += f", {counted(late, 'late row')}" if late else ""
    line += f", {counted(bad, 'bad row')}" if bad else ""
    line += f" in {status['seconds']:,.1f} s."
    return line + (f"   go on: {again}" if status["state"] == "stopped" else "")


def _refused(sink: Mapping[str, Any]) -> str:
    """Rows that are not in the table, beside those that are."""
    return f" ({counted(sink['left_out'], 'row')} refused)" if sink.get("left_out") else ""


def print_status(status: Mapping[str, Any], to: Console) -> None:
    to.print(_painted(status_lines(status)))


def _painted(lines: list[str]) -> Text:
    text = Text("\n".join(lines))
    for word, style in _STYLES.items():
        text.highlight_words([word], style)
    return text


class Progress:
    """Shows what a run reports. Used as a context manager around the run."""

    def __init__(self, to: Console | None = None) -> None:
        self._console = to or errors()
        self._live: Live | None = None
        self._phase = ""
        self._shown_at = float("-inf")

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            # What a console sink prints goes above the block, unless it goes into a pipe.
            self._live = Live(console=self._console, refresh_per_second=4, redirect_stdout=sys.stdout.isatty())
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, line: str) -> None:
        """A line that stays."""
        with contextlib.suppress(OSError):
            self._console.print(Text(line))

    def __call__(self, status: Any) -> None:
        """The engine's `on_progress`. A closed terminal must not end a run: OSError is dropped."""
        fields = _plain(status)
        lines = status_lines(fields)
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.update(_painted(lines))
            return
        # That it degrades, and why, is news; so is that it is well again.
        phase, now = f"{fields['state']} {bool(fields.get('degraded'))}", time.monotonic()
        if phase != self._phase or now - self._shown_at >= PLAIN_LINE_SECONDS:
            self._phase, self._shown_at = phase, now
            self.say("\n".join(lines[: 2 if fields.get("degraded") else 1]))
