"""Fixtures of tests with a server of their own; each module defines its `server`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.egress_hosts import serve_hosts
from tests.support.accounts import Accounts
from tests.support.intern_client import InternClient

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.acceptance.egress_hosts import EgressHosts
    from tests.support.server_process import ServerProcess


@pytest.fixture(scope="module")
def accounts(server: ServerProcess) -> Generator[Accounts]:
    """Accounts and keys on the module's server."""
    with closing(Accounts(server)) as made:
        yield made


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Generator[EgressHosts]:
    """Hosts that the module's server can trust, whichever user runs it."""
    folder = tmp_path_factory.mktemp("hosts")
    folder.chmod(0o755)
    with serve_hosts(folder) as hosts:
        yield hosts


@pytest.fixture
def interns(server: ServerProcess) -> Generator[InternClient]:
    """The interns of the module's server; all are deleted after the test."""
    interns = InternClient(server)
    yield interns
    interns.delete_all()
