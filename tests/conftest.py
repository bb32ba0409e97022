"""Real servers for whatever test asks for one: started once, stopped at the end."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def postgres_server():
    """One real server for all tests; whoever kills it starts it again."""
    from tests.services.postgres import PostgresServer

    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres(postgres_server):
    """The server with nothing in it."""
    import psycopg

    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute("set client_min_messages = error")
        connection.execute("drop schema public cascade")
        connection.execute("create schema public")
    return postgres_server
