"""What may be shown of a database's address: host and database, never the password.

An address is a URL (`postgresql://user:password@host/database?...`) or libpq's own
form (`host=... password=...`). Reads both without a driver; what it cannot read it
does not show. Pure: text in, text out.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.graph.secrets import Secret

__all__ = ["password_in", "shown", "without_password"]

_PAIR = re.compile(r"(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|\S+)")
_SECRET = ("password", "sslpassword", "passfile", "oauth_client_secret", "scram_client_key", "scram_server_key")
#: Shorter ones would be found everywhere; no message holds them by itself.
_LETTERS_MIN = 4


def shown(url: str | Secret) -> str:
    """'PostgreSQL clinic at db.example:5432'."""
    if isinstance(url, Secret):
        return f"PostgreSQL {url}"
    parts = _parts(url)
    at = parts.get("host") or parts.get("hostaddr") or ""
    if at and parts.get("port"):
        at += f":{parts['port']}"
    return f"PostgreSQL {parts.get('dbname', '')}".rstrip() + (f" at {at}" if at else "")


def password_in(url: str) -> bool:
    return bool(_parts(url).get("password"))


def without_password(text: str, url: str) -> str:
    """A message of the driver's, fit to be shown."""
    text = text.strip()
    hidden = [url] + [value for name, value in _parts(url).items() if name in _SECRET]
    for each in sorted(hidden, key=len, reverse=True):
        if len(each) >= _LETTERS_MIN:
            text = text.replace(each, "***")
    return text


def _parts(url: str) -> dict[str, str]:
    try:
        if "://" not in url:
            return {name: re.sub(r"\\(.)", r"\1", value.strip("'")) for name, value in _PAIR.findall(url)}
        split = urlsplit(url)
        netloc, _, hosts = split.netloc.rpartition("@")
        parts = dict(parse_qsl(split.query))
        _, colon, password = netloc.partition(":")
        if colon:
            parts["password"] = unquote(password)
        if "," in hosts:
            parts["host"] = hosts  # several, with their ports
        else:
            parts["host"] = split.hostname or parts.get("host", "")
            parts["port"] = str(split.port or parts.get("port", ""))
        parts["dbname"] = unquote(split.path.lstrip("/")) or parts.get("dbname", "")
        return parts
    except ValueError:
        return {}
