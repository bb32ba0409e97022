"""One Spark session for all tests that need one: a JVM takes seconds to start."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """The session a stream process runs in, opened as `holdfast run` opens it."""
    from holdfast.engine.session import close_session, open_session

    session = open_session(tmp_path_factory.mktemp("state"))
    yield session
    close_session(session)
