"""A parameter declared per key, as a keyed function sees it: a look-up with a default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PerKey"]


class PerKey:
    """`pulse_max["p7"]` for one key, `pulse_max.of(rows.patient)` for a column of them."""

    def __init__(self, default: Any, values: Mapping[str, Any]) -> None:
        self.default, self._values = default, dict(values)

    def __getitem__(self, key: object) -> Any:
        return self._values.get(str(key), self.default)

    def of(self, keys: pd.Series) -> pd.Series:
        return (
            keys.astype(str)
            .map(self._values)
            .astype(object)
            .where(lambda found: found.notna(), self.default)
            .astype(type(self.default))
        )
