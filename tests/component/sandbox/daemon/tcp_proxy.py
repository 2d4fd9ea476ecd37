"""A TCP proxy to the daemon whose connections a test can cut.

It runs in a thread of its own, so that tests may wait for a terminal meanwhile.
"""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from tests.component.sandbox.daemon.daemon_process import DaemonProcess

ATTACH = str(Path(__file__).with_name("attach.py"))
"""A script that attaches to a terminal."""


class TcpProxy:
    """A port that forwards to the daemon."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self._daemon = daemon
        self._loop = asyncio.new_event_loop()
        self._port: Future[int] = Future()
        self._ended = asyncio.Event()
        self._is_open = True
        self._writers: set[asyncio.StreamWriter] = set()
        self.thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))

    @property
    def environment(self) -> dict[str, str]:
        """The environment with which a client reaches the daemon."""
        return {"ORIGIN": f"http://127.0.0.1:{self._port.result()}", "TOKEN": self._daemon.token}

    def disconnect(self) -> None:
        """End all connections, and refuse new ones until `reconnect`."""
        self._is_open = False
        self._in_loop(self._cut)

    def reconnect(self) -> None:
        self._is_open = True

    def reset_connections(self) -> None:
        """End all connections; new ones are accepted at once."""
        self._in_loop(self._cut)

    def end(self) -> None:
        self._in_loop(self._cut)
        self._loop.call_soon_threadsafe(self._ended.set)
        self.thread.join()
        self._loop.close()

    def _in_loop(self, call: object) -> None:
        done: Future[None] = Future()

        def run() -> None:
            call()  # type: ignore[operator]
            done.set_result(None)

        self._loop.call_soon_threadsafe(run)
        done.result(30)

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port.set_result(server.sockets[0].getsockname()[1])
        await self._ended.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._is_open:
            writer.transport.abort()
            return
        inner_reader, inner_writer = await asyncio.open_unix_connection(self._daemon.path)
        ends = {writer, inner_writer}
        self._writers |= ends
        try:
            await asyncio.gather(_pass_on(reader, inner_writer), _pass_on(inner_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass  # cut
        finally:
            for end in ends:
                end.transport.abort()
            self._writers -= ends


@contextmanager
def proxy_to(daemon: DaemonProcess) -> Iterator[TcpProxy]:
    tcp_proxy = TcpProxy(daemon)
    tcp_proxy.thread.start()
    try:
        yield tcp_proxy
    finally:
        tcp_proxy.end()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.transport.abort()
