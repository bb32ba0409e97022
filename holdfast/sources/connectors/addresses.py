"""Addresses of live sources, read once: what cannot be an address is refused when it is declared.

Pure text: no name is looked up, nothing is opened.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from holdfast.errors import UsageError

__all__ = ["Address", "Topic", "address_of", "not_an_address"]


@dataclass(frozen=True, slots=True)
class Address:
    scheme: str
    host: str
    port: int
    path: str  # without the leading slash

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def address_of(url: object, ports: dict[str, int | None], example: str) -> Address:
    """`ports`: the schemes that are known, each with its usual port."""
    if not isinstance(url, str):
        raise not_an_address(url, "it is no text", example)
    # A topic may hold '{', '+' and '#'; the last would be a fragment.
    found = urlsplit(url.replace("#", "%23"))
    if found.scheme not in ports:
        raise not_an_address(url, f"it does not begin with {' or '.join(f'{each}://' for each in ports)}", example)
    if found.password is not None or found.username is not None:
        raise UsageError(
            "HF-C033",
            "NotAnAddress",
            "a user or password stands in an address.",
            why="it would be shown wherever the source is named",
            effect="nothing was declared",
            do="take it out, and login=hf.secret('NAME') with NAME=user:password in the environment",
        )
    try:
        port = found.port
    except ValueError as error:
        raise not_an_address(url, str(error), example) from error
    port = ports[found.scheme] if port is None else port
    if not found.hostname or port is None:
        raise not_an_address(url, "it names no host" if not found.hostname else "it names no port", example)
    return Address(found.scheme, found.hostname, port, found.path.lstrip("/").replace("%23", "#"))


def not_an_address(url: object, why: str, example: str) -> UsageError:
    return UsageError(
        "HF-C033",
        "NotAnAddress",
        f"{url!r} is no address that can be read.",
        why=why,
        effect="nothing was declared",
        do=f"write it like {example!r}",
    )


class Topic:
    """A topic whose levels in braces become columns: 'ward4/{patient}/ecg'."""

    def __init__(self, text: str, example: str) -> None:
        levels = text.split("/")
        names, patterns = [], []
        for at, level in enumerate(levels):
            named = re.fullmatch(r"\{([A-Za-z_]\w*)\}", level)
            if named is not None:
                names.append(named[1])
                patterns.append(f"(?P<{named[1]}>[^/]*)")
            elif level == "+":
                patterns.append("[^/]*")
            elif level == "#" and at == len(levels) - 1:
                continue  # the level above too, as brokers see it: see below
            elif set(level) & set("{}+#") or not text:
                raise not_an_address(text, f"level {level!r} of the topic is no name, {{column}}, + or #", example)
            else:
                patterns.append(re.escape(level))
        if len(set(names)) < len(names):
            raise not_an_address(text, "a column stands in the topic twice", example)
        self.columns = tuple(names)
        self.filter = "/".join("+" if re.fullmatch(r"\{.*\}", level) else level for level in levels)
        # A topic that did not match would leave its columns to the payload, and so to whoever sends it.
        deeper = ("(?:/.*)?" if patterns else ".*") if levels[-1] == "#" else ""
        self._matches = re.compile("/".join(patterns) + deeper, re.DOTALL)

    def given(self, topic: str) -> dict[str, str]:
        """The columns of a message's topic."""
        found = self._matches.fullmatch(topic)
        return found.groupdict() if found is not None else {}
