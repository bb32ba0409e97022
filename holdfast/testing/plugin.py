"""The pytest plug-in: `spark`, one session with Holdfast's settings for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark session for the whole test run; starting it takes some seconds."""
    from holdfast.engine.session.session import close_session, open_session

    session = open_session(tmp_path_factory.mktemp("spark"))
    yield session
    close_session(session)
