"""Whether what a unit died of may be over by the next try, and whether it is what it died of before.

Kills, time-outs, the network, a lack of memory and files that cannot be read or written
pass or do not, and nothing in their text says which: they keep their tries. What the
user's code raises is judged by the name of the exception alone, since its words may be
those of a row. In doubt an error passes here: a try too many costs seconds.

Two errors are the same if their words are, apart from numbers and names that are made for
one run or one attempt: addresses, ids, line and frame numbers.

Pure: reads what it is given.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

__all__ = ["chain", "may_pass", "plan_is_refused", "raised_may_pass", "same_words"]

# Names of exceptions, of Java's and Python's libraries and of those in common use.
_NAMES = re.compile(
    r"\b(?:\w*(?:Timeout|TimedOut|Connection\w*|Connect|Socket|Channel|Disconnected|Disconnect|Unavailable|Unreachable"
    r"|Interrupted|Cancelled|Cancellation|BrokenPipe|OutOfMemory|Memory|IO|EOF|UnknownHost|NoRouteToHost|Operational|URL"
    r"|Lost|FetchFailed|RejectedExecution|RocksDB|Lock\w*|Busy\w*|Throttl\w*|TooManyRequests)(?:Error|Exception|Failure)"
    r"|ReadTimeout|ConnectTimeout|Timeout|timeout|gaierror|herror|RemoteDisconnected|IncompleteRead|AutoReconnect|FetchFailed)\b"
)
# When the user's code asks for a file that is not there, or not for it, that is the same at the next try.
_FILES = re.compile(
    r"\b\w*(?:FileNotFound|NoSuchFile|FileSystem|AccessDenied)\w*(?:Error|Exception)\b|\[(?:PATH_NOT_FOUND|FAILED_READ_FILE)"
)
_WORDS = re.compile(
    r"timed?[ -]?out|connection (?:refused|reset|closed|aborted)|broken pipe|too many open files|cannot allocate memory"
    r"|out of memory|java heap space|gc overhead|resource temporarily unavailable|temporarily|no route to host|unreachable"
    r"|input/output error|stale file handle|resource busy|service unavailable|python worker|executor (?:lost|exited)"
    r"|was killed|sigkill|shut ?down|stopped sparkcontext|stopped without an error|does not say why",
    re.IGNORECASE,
)
# "[Errno 5] Input/output error": the disk, the memory or the number of files, not what is asked of them.
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_PASSING_ERRNO = frozenset(
    {errno.EIO, errno.EAGAIN, errno.ENOMEM, errno.EBUSY, errno.ENFILE, errno.EMFILE, errno.EINTR, errno.ESTALE,
     errno.ENOSPC, errno.EDQUOT, errno.EPIPE, errno.ETIMEDOUT, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH,
     errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRINUSE}
)  # fmt: skip
# Deeper than any chain of causes that was seen; one that bites its tail has no end.
_CAUSES_MAX = 16
# Of a traceback: where it was, not what it was.
_PLACES = re.compile(r'^\s*(?:at [\w.$<>/@-]+\(|File ").*$', re.MULTILINE)
_MADE_FOR_ONE_RUN = re.compile(
    r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|\b(?=\w*\d)[0-9a-fA-F]{8,}\b|/[\w./#@:+~-]*\d[\w./#@:+~-]*|\d+"
)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what caused it, as PySpark hands it on: the message of a query does not name its exception."""
    for _ in range(_CAUSES_MAX):
        if error is None:
            return
        yield error
        error = getattr(error, "_cause", None)


def may_pass(error: BaseException | None, text: str) -> bool:
    """Of an error that is neither ours nor of the user's code: whether the next try may fare better."""
    if isinstance(error, (OSError, MemoryError, EOFError)):
        return True
    java = (getattr(each, "_stackTrace", "") for each in chain(error))  # names the exceptions, each with its words
    words = _PLACES.sub("", "\n".join([text, *java]))
    return any(pattern.search(words) for pattern in (_NAMES, _FILES, _WORDS))


def raised_may_pass(line: str) -> bool:
    """Of what the user's code raised, as the last line of its traceback: "TimeoutError: no answer"."""
    name, _, said = line.strip().partition(":")
    if (number := _ERRNO.search(said)) is not None:
        return int(number[1]) in _PASSING_ERRNO
    return _NAMES.fullmatch(name.rpartition(".")[2]) is not None


def plan_is_refused(error: BaseException | None) -> bool:
    """Spark does not take the plan, with any rows or none."""
    return any(kind.__name__ == "AnalysisException" for each in chain(error) for kind in type(each).__mro__)


def same_words(text: str) -> str:
    """What remains of an error's text when all that is made for one run or attempt is taken out."""
    return _MADE_FOR_ONE_RUN.sub("#", text)
