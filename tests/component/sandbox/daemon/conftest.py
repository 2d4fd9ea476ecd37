"""A daemon for each test; tests that do nothing to the process itself may share a file's."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.component.sandbox.daemon.daemon_process import DaemonProcess
from tests.component.sandbox.daemon.tcp_proxy import TcpProxy, proxy_to

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def files_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("daemon")) as daemon:
        yield daemon


@pytest.fixture
def shared_daemon(files_daemon: DaemonProcess) -> Iterator[DaemonProcess]:
    """The daemon of all tests of a file, with an empty workspace."""
    yield files_daemon
    for entry in files_daemon.workspace.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


@pytest.fixture
async def terminals_daemon(shared_daemon: DaemonProcess) -> AsyncIterator[DaemonProcess]:
    """The daemon of all tests of a file, without the terminals of other tests."""
    yield shared_daemon
    async with shared_daemon.client() as client:
        for each in (await client.get("/terminals")).json()["data"]:
            await client.delete(f"/terminals/{each['session']}")


@pytest.fixture
def tcp_proxy(daemon: DaemonProcess) -> Iterator[TcpProxy]:
    with proxy_to(daemon) as tcp_proxy:
        yield tcp_proxy
