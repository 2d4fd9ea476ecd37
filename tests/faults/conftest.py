"""Doses: small in `make test`, larger in `make soak`, without bound with `DOSE=full`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.upstream_process import UpstreamProcess, start_upstream

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture(scope="module")
def upstream() -> Generator[UpstreamProcess]:
    """Run a provider for the tests of a module."""
    with start_upstream() as running:
        yield running
