"""A parameter declared per key, as a keyed function sees it: a look-up with a default.

Values are set for keys as text (`holdfast set FILE limit[p7]=80`). A key is that text as Spark writes it
(`cast(key as string)`), so that operators in SQL and functions in Python find the same value.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PerKey"]


class PerKey:
    """`pulse_max["p7"]` for one key, `pulse_max.of(rows.patient)` for a column of them."""

    def __init__(self, default: Any, values: Mapping[str, Any]) -> None:
        self.default, self._values = default, dict(values)

    def __getitem__(self, key: object) -> Any:
        return self._values.get(_written(key), self.default)

    def of(self, keys: pd.Series) -> pd.Series:
        import pandas as pd

        kinds = pd.api.types
        is_other = kinds.is_bool_dtype(keys.dtype) or kinds.is_datetime64_any_dtype(keys.dtype)
        return (
            (keys.astype(object).map(_written) if is_other else keys.astype(str))
            .map(self._values)
            .astype(object)
            .where(lambda found: found.notna(), self.default)
            .astype(type(self.default))
        )


def _written(key: object) -> str:
    """As Spark writes it, where Python writes it another way."""
    if isinstance(key, datetime):
        moment = key.astimezone(UTC) if key.tzinfo is not None else key
        fraction = f"{moment.microsecond:06d}".rstrip("0")
        return f"{moment:%Y-%m-%d %H:%M:%S}" + (f".{fraction}" if fraction else "")
    text = str(key)
    return text.lower() if text in ("True", "False") and not isinstance(key, str) else text
