"""Doses: small in `make test`, larger in `make soak`, without bound with `DOSE=full`."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.faults.ledger import Ledger, PostgresqlLedger, SqliteLedger
from tests.support.postgresql_databases import PostgresqlDatabases
from tests.support.upstream_process import UpstreamProcess, start_upstream


@pytest.fixture(scope="module")
def upstream() -> Generator[UpstreamProcess]:
    """Run a provider for the tests of a module."""
    with start_upstream() as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    """The database of the server under test."""
    if request.param == "sqlite":
        return SqliteLedger(tmp_path / "data")
    databases: PostgresqlDatabases = request.getfixturevalue("postgresql")
    return PostgresqlLedger(databases.take())
