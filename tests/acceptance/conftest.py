"""What tests of a module's own server share."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.payers import Payers

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.acceptance.server_process import ServerProcess


@pytest.fixture(scope="module")
def payers(server: ServerProcess) -> Generator[Payers]:
    """Make accounts and keys on the module's server."""
    with closing(Payers(server)) as made:
        yield made
