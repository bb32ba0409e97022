"""What a run answers to another shell: one request of `control`, one answer."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from holdfast.engine.observe.control import not_begun

if TYPE_CHECKING:
    from holdfast.engine.run.run import Run

__all__ = ["answer"]


def answer(run: Run, request: dict) -> dict:
    match request["do"]:
        case "status":
            return run.status().to_json()
        case "edges":
            return {"edges": [asdict(edge) for edge in run.consistency()]}
        case "set":
            change = run.set(
                note=request.get("note", ""),
                key=request.get("key"),
                who=request.get("who"),
                **request["values"],
            )
            return {"frame": change.frame, "n": change.n}
        case "stop" if run.status().state == "activating":
            raise not_begun("; ".join(run.notes[-1:]))
        case "stop":
            run.ask_to_stop()
            return {"stopping": True}
        case other:
            return {"error": f"no such request: {other!r}", "code": "", "exit": 2}
