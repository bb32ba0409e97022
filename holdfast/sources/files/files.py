"""Files as a source: read again from where they are, cut by what is in them.

Elements come in the order of file names, then rows. Which frame an element is in
depends on the files alone, so every host that can read them makes the same
frames, and none of them is copied. With no element time (ARRIVAL), each file is
one frame.

With `growing=True` the files may grow and more may come: no end, and frames are
written down as they close (`growing`).

Here is the declaration; `cutting` does the work. It imports no Arrow, so that
`check` stays quick.
"""

from __future__ import annotations

import glob
import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import SourceError, UsageError
from holdfast.graph.declared import did_you_mean
from holdfast.sources.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.sources.files.file_source import OpenFiles
    from holdfast.sources.files.growing_source import OpenGrowing
    from holdfast.sources.reader import SourceContext

__all__ = ["FileReader"]

_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}


class FileReader:
    """Made by `hf.read.files`. Declares; opens nothing."""

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        *,
        format: str | None = None,
        rate: object = None,
        options: dict[str, object] | None = None,
        growing: bool = False,
    ) -> None:
        self.growing = growing
        # What was there when a frame closed is chance: such frames come out of a list, as those of live sources do.
        self.bounded = self.reliable = not growing
        self.pattern = os.fspath(pattern)
        self.rate = rate  # the engine releases frames at this pace
        self._pace = Pace.of(rate)
        self.options = dict(options or {})
        self.format = format
        if growing and rate is not None:
            raise UsageError(
                "HF-C030",
                "NotARate",
                "rate= means nothing to files that grow.",
                why="they have a pace of their own",
                effect="nothing was declared",
                do="leave rate= out, or growing=True",
            )
        if format is not None and format not in ("parquet", "csv", "json"):
            raise UsageError(
                "HF-C031",
                "NotAFormat",
                f"format {format!r} is not one Holdfast reads.",
                effect="nothing was declared",
                do="write 'parquet', 'csv' or 'json', or leave it to the suffix",
            )

    def describe(self) -> str:
        return f"files {self.pattern}, " + ("growing" if self.growing else str(self._pace))

    def open(self, context: SourceContext) -> OpenFiles | OpenGrowing:
        if self.growing:
            from holdfast.sources.files.growing_source import OpenGrowing

            self._check_folder(context)
            return OpenGrowing(self, context, lambda: self._list(context))
        from holdfast.sources.files.file_source import OpenFiles

        return OpenFiles(self, context, self._list(context))

    def _check_folder(self, context: SourceContext) -> None:
        """Files may come later; the folder they come to is there, or its name is wrong."""
        folder = os.path.join(context.base, self.pattern)
        while glob.has_magic(folder) or (folder and not os.path.isdir(folder) and folder.endswith(self.pattern)):
            folder = os.path.dirname(folder)
        if not os.path.isdir(folder):
            raise SourceError(
                "HF-S001",
                "SourceMissing",
                f"there is no folder {folder!r} to watch.",
                where=f"source {context.name!r}, pattern {self.pattern!r}",
                effect="nothing was read",
                do="make the folder, or correct the pattern; it starts at the folder of the process's file",
            )

    def _list(self, context: SourceContext) -> list[tuple[str, str]]:
        """(path, format) in name order."""
        whole = os.path.abspath(os.path.join(context.base, self.pattern))
        if os.path.isdir(whole):
            found = [path for path in _below(whole) if self.format or _format_of(path)]
        elif glob.has_magic(whole):
            found = [path for path in glob.glob(whole, recursive=True) if os.path.isfile(path)]
        else:
            found = [whole] if os.path.isfile(whole) else []
        if not found and not self.growing:
            raise SourceError(
                "HF-S001",
                "SourceMissing",
                f"no file matches {self.pattern!r}.",
                where=f"source {context.name!r}, looked in {context.base}",
                effect="nothing was read",
                do=did_you_mean(
                    self.pattern,
                    _beside(context.base, self.pattern),
                    "correct the pattern; it starts at the folder of the process's file",
                ),
            )
        pairs = []
        for path in sorted(found, key=lambda path: path.split(os.sep)):
            format = self.format or _format_of(path)
            if format is None:
                raise SourceError(
                    "HF-S005",
                    "Unreadable",
                    "the file's name does not say what format it has.",
                    where=path,
                    effect="nothing was read",
                    do="name the format: read.files(..., format='csv')",
                )
            pairs.append((path, format))
        return pairs

    def options_for(self, path: str, format: str) -> dict[str, object]:
        if format == "parquet":
            return {}
        if format == "json":
            return {"missing": self.options.get("missing", "error")}
        tabs = path.removesuffix(".gz").endswith(".tsv")
        return {
            "header": self.options.get("header", True),
            "delimiter": self.options.get("delimiter") or ("\t" if tabs else ","),
            "quote": self.options.get("quote", '"'),
            "null": self.options.get("null", ""),
        }


def _below(folder: str) -> Iterator[str]:
    """Files of a folder and those below it. As Spark does: names that begin with . or _ are not data."""
    for entry in os.scandir(folder):
        if entry.name[0] in "._":
            continue
        if entry.is_dir():
            yield from _below(entry.path)
        elif entry.is_file():
            yield entry.path


def _beside(base: str | os.PathLike[str], pattern: str) -> list[str]:
    """Files a misspelt name may have meant, as they would be written in its place."""
    folder = os.path.dirname(pattern)
    if glob.has_magic(pattern):
        return []
    there = Path(base, folder)
    return [os.path.join(folder, path.name) for path in there.iterdir() if path.is_file()] if there.is_dir() else []


@lru_cache(maxsize=65_536)  # a watched folder is listed again and again
def _format_of(path: str) -> str | None:
    name = path.removesuffix(".gz")
    found = _FORMATS.get(os.path.splitext(name)[1].lower())
    return None if found == "parquet" and name != path else found
