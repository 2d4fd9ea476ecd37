"""A daemon that the tests of a file share; those that end it, or need other settings, have one."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest

from tests.component.sandbox.daemon.daemon_process import DaemonProcess
from tests.component.sandbox.daemon.tcp_proxy import TcpProxy, proxy_to


@pytest.fixture(scope="module")
def module_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("daemon")) as daemon:
        yield daemon


@pytest.fixture
async def daemon(module_daemon: DaemonProcess) -> AsyncIterator[DaemonProcess]:
    """The daemon of all tests of a file, without the files and terminals of other tests."""
    yield module_daemon
    for entry in module_daemon.workspace.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    async with module_daemon.client() as client:
        for each in (await client.get("/terminals")).json()["data"]:
            await client.delete(f"/terminals/{each['session']}")


@pytest.fixture
async def client(daemon: DaemonProcess) -> AsyncIterator[httpx2.AsyncClient]:
    async with daemon.client() as client:
        yield client


@pytest.fixture
def own_daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path) as daemon:
        yield daemon


@pytest.fixture
def tcp_proxy(daemon: DaemonProcess) -> Iterator[TcpProxy]:
    with proxy_to(daemon) as tcp_proxy:
        yield tcp_proxy
