"""What tests of a module's own server share; each module makes its `server`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.egress_hosts import serving_hosts
from tests.acceptance.intern_rooms import Rooms
from tests.acceptance.payers import Payers

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.acceptance.egress_hosts import Hosts
    from tests.acceptance.server_process import ServerProcess


@pytest.fixture(scope="module")
def payers(server: ServerProcess) -> Generator[Payers]:
    """Make accounts and keys on the module's server."""
    with closing(Payers(server)) as made:
        yield made


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Generator[Hosts]:
    """Hosts that the module's server can be told to trust, whoever runs it."""
    folder = tmp_path_factory.mktemp("hosts")
    folder.chmod(0o755)
    with serving_hosts(folder) as hosts:
        yield hosts


@pytest.fixture
def rooms(server: ServerProcess) -> Generator[Rooms]:
    """The interns of the module's server; none is left for the next test."""
    rooms = Rooms(server)
    yield rooms
    rooms.clear()
