"""What is installed only by who needs it: `pip install 'holdfast[mqtt]'`.

The core runs files, lines, SQLite and Parquet. Each of these names the packages behind it; what
needs one asks here first, so that a package that is missing is an error that says what to install,
and not an ImportError out of the middle of a run.

Looks whether a package can be found; imports none.
"""

from __future__ import annotations

import importlib.util

from holdfast.errors import EnvironmentRefused

__all__ = ["EXTRAS", "need"]

# extra -> modules it brings; the same as in pyproject.toml, which a test compares.
EXTRAS = {
    "mqtt": ("paho",),
    "postgres": ("psycopg",),
    "duckdb": ("duckdb",),
    "predict": ("matplotlib", "scipy"),
    "demo": ("matplotlib", "scipy", "wfdb"),
}


def need(extra: str, what: str, where: str = "") -> None:
    """Refuses what cannot work here. `what`: what was asked for."""
    missing = [module for module in EXTRAS[extra] if importlib.util.find_spec(module) is None]
    if missing:
        raise EnvironmentRefused(
            "HF-E064",
            "ExtraMissing",
            f"{what} needs {', '.join(missing)}, which is not installed.",
            where=where,
            why=f"it comes with the extra [{extra}], not with the core",
            effect="nothing was read or written",
            do=f"pip install 'holdfast[{extra}]'",
        )
