"""A daemon for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.interns.daemon.daemon_process import DaemonProcess
from tests.integration.interns.daemon.way import Way, way_to

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path) as daemon:
        yield daemon


@pytest.fixture
def way(daemon: DaemonProcess) -> Iterator[Way]:
    with way_to(daemon) as way:
        yield way
