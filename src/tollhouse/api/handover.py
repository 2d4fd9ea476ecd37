"""Connections of clients go from one of our processes to another, each with the bytes it has sent.

A worker answers requests to models. A connection on which another request begins goes to the
control process, which answers it, and goes back once the next one is for a worker. Nothing is
forwarded: no head, no stream, no address of a client. Who ends hands over all that are idle, so
that no request meets a connection that is just being closed.

    worker ── descriptor, bytes ──> control        over a Unix socket, `workers.sock`
    worker <── descriptor, bytes ── control

Frames are packets: a letter, and the bytes that the client has sent of its next request.

    H          hello: send connections                  control, when it takes the socket
    P... C     a connection, with the last of its bytes, and before that with others
    L          leaving: send no more; what is on its way is taken
    A          nothing more comes: the answer to L

Source: unix(7), SOCK_SEQPACKET and SCM_RIGHTS.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from tollhouse.api.request_rules import PREFIXES

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES: Final = 65_536
"""Of a packet, beside its letter."""
_MOST_HELD: Final = 4_096
"""Connections that wait for the control process."""
_RETRY_SECONDS: Final = 0.1
_ANSWER_SECONDS: Final = 2.0
"""How long is waited for the answer to L."""
_HELLO, _PART, _CONNECTION, _LEAVING, _NOTHING_MORE = b"H", b"P", b"C", b"L", b"A"
_BODY: Final = msgspec.json.encode(
    {"error": {"code": 503, "message": "This part of the gateway is being started; try again."}}
)
_UNAVAILABLE: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)

Take = Callable[[socket.socket, bytes], None]
"""Takes a connection, and what was read of it."""


class FirstLines:
    """Tells by its first bytes whether a request is for a worker."""

    def __init__(self, routes: Iterable[str]) -> None:
        """Take the routes of workers, paths below the version segment, which are posted to."""
        lines = [f"POST {prefix}{route}" for prefix in PREFIXES for route in routes]
        lines.append("GET /healthz")
        self._beginnings = tuple(f"{line}{end}".encode() for line in lines for end in " ?")
        self._longest = max(map(len, self._beginnings))

    def for_worker(self, data: bytes) -> bool | None:
        """Tell it; None where more bytes have to come."""
        if data.startswith(self._beginnings):
            return True
        if len(data) < self._longest and any(each.startswith(data) for each in self._beginnings):
            return None
        return False


class Passing(Protocol):
    """What a server asks about connections that it may hand over."""

    answers_all: bool
    """Whether any request can be answered here, if it has to be."""

    def is_ours(self, data: bytes) -> bool | None:
        """Tell by its first bytes whether a request is answered here; None: more have to come."""
        ...

    def hand(self, descriptor: int, data: bytes) -> bool:
        """Hand a connection over, which is not this process's any more; false: it stays."""
        ...


class HandoverLink:
    """One end of the socket between two processes."""

    def __init__(self, link: socket.socket, take: Take) -> None:
        self.hello = asyncio.Event()
        self.leaving = asyncio.Event()
        """Set once the other side takes no more connections, or is gone."""
        self.ended = asyncio.Event()
        self._all_came = asyncio.Event()
        self._link = link
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._outgoing: deque[tuple[bytes, int | None]] = deque()
        self._parts: list[bytes] = []
        link.setblocking(False)  # noqa: FBT003 - its only form
        self._loop.add_reader(link.fileno(), self._read)

    @property
    def is_open(self) -> bool:
        """Whether the other side takes connections."""
        return self.hello.is_set() and not self.leaving.is_set()

    def greet(self) -> None:
        """Let the other side send connections."""
        self.hello.set()
        self._send(_HELLO)

    def hand(self, descriptor: int, data: bytes) -> None:
        """Send a connection; the descriptor is closed once it is sent."""
        while len(data) > MOST_BYTES:
            self._outgoing.append((_PART + data[:MOST_BYTES], None))
            data = data[MOST_BYTES:]
        self._send(_CONNECTION + data, descriptor)

    async def leave(self) -> None:
        """Have the other side send no more, and return once all that it sent has come."""
        self._send(_LEAVING)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_came.wait(), _ANSWER_SECONDS)

    async def close(self) -> None:
        """Close the socket, once all is sent."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                while self._outgoing and not self.ended.is_set():  # noqa: ASYNC110 - at an end
                    await asyncio.sleep(0.01)
        self._end()

    def unsent(self) -> Iterable[tuple[int, bytes]]:
        """Return the connections that the other side did not get: it is gone."""
        parts: list[bytes] = []
        for frame, descriptor in self._outgoing:
            parts.append(frame[1:])
            if descriptor is not None:
                yield descriptor, b"".join(parts)
                parts = []
        self._outgoing.clear()

    def _send(self, frame: bytes, descriptor: int | None = None) -> None:
        self._outgoing.append((frame, descriptor))
        self._write()

    def _write(self) -> None:
        while self._outgoing and not self.ended.is_set():
            frame, descriptor = self._outgoing[0]
            try:
                socket.send_fds(self._link, [frame], [] if descriptor is None else [descriptor])
            except BlockingIOError:
                self._loop.add_writer(self._link.fileno(), self._write)
                return
            except OSError:
                self._end()
                return
            self._outgoing.popleft()
            if descriptor is not None:
                os.close(descriptor)
        if not self.ended.is_set():
            self._loop.remove_writer(self._link.fileno())

    def _read(self) -> None:
        while not self.ended.is_set():
            try:
                frame, descriptors, _, _ = socket.recv_fds(self._link, MOST_BYTES + 1, 1)
            except BlockingIOError:
                return
            except OSError:
                frame, descriptors = b"", []
            if not frame:
                self._end()
                return
            self._receive(frame[:1], frame[1:], descriptors)

    def _receive(self, kind: bytes, data: bytes, descriptors: list[int]) -> None:
        if kind == _HELLO:
            self.hello.set()
        elif kind == _PART:
            self._parts.append(data)
        elif kind == _LEAVING:
            self.leaving.set()
            self._send(_NOTHING_MORE)
        elif kind == _NOTHING_MORE:
            self._all_came.set()
        elif kind == _CONNECTION:
            data, self._parts = b"".join((*self._parts, data)), []
            for descriptor in descriptors:  # none where no more files may be open
                self._take(socket.socket(fileno=descriptor), data)

    def _end(self) -> None:
        if not self.ended.is_set():
            self._loop.remove_reader(self._link.fileno())
            self._loop.remove_writer(self._link.fileno())
            self._link.close()
            for event in (self.ended, self.leaving, self.hello, self._all_came):
                event.set()


class WorkerPassing:
    """A worker's side: to the control process goes whatever is not for workers."""

    answers_all = False

    def __init__(
        self, path: Path, first_lines: FirstLines, take: Take, hold_seconds: float
    ) -> None:
        """Hold what is for the control process for so long while there is none."""
        self._path = path
        self._first_lines = first_lines
        self._take = take
        self._hold_seconds = hold_seconds
        self._link: HandoverLink | None = None
        self._links: set[HandoverLink] = set()
        self._held: deque[tuple[float, int, bytes]] = deque()
        """With the time until which each waits."""
        self._is_leaving = False
        self._connecting: asyncio.Task[None] | None = None

    def is_ours(self, data: bytes) -> bool | None:
        """Tell whether a request is for a worker; one that ends begins no more of them."""
        return False if self._is_leaving else self._first_lines.for_worker(data)

    def hand(self, descriptor: int, data: bytes) -> bool:
        """Hand a connection to the control process, or hold it until there is one."""
        if self._link is not None and self._link.is_open:
            self._link.hand(descriptor, data)
        elif len(self._held) >= _MOST_HELD:
            _refuse(descriptor)
        else:
            until = asyncio.get_running_loop().time() + self._hold_seconds
            self._held.append((until, descriptor, data))
        return True

    def start(self) -> None:
        """Connect to the control process, and to each one that follows it."""
        self._connecting = asyncio.create_task(self._connect(), name="link to control")

    async def leave(self, *, hand_over: bool) -> None:
        """Take no more connections; `hand_over`: no request begins here from now on."""
        self._is_leaving = hand_over
        await asyncio.gather(*(link.leave() for link in tuple(self._links)))

    async def close(self) -> None:
        """End, once what is held is sent, or has waited; at the end of a server nothing waits."""
        while self._held and self._is_leaving:  # noqa: ASYNC110 - at an end
            await asyncio.sleep(_RETRY_SECONDS)
        while self._held:
            _refuse(self._held.popleft()[1])
        if self._connecting is not None:
            self._connecting.cancel()
        await asyncio.gather(*(link.close() for link in tuple(self._links)))

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            found = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            found.setblocking(False)  # noqa: FBT003 - its only form
            try:
                await loop.sock_connect(found, str(self._path))
            except OSError:
                found.close()
                self._refuse_late()
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            link = HandoverLink(found, self._take)
            self._links.add(link)
            while not link.hello.is_set():
                self._refuse_late()
                with suppress(TimeoutError):
                    await asyncio.wait_for(link.hello.wait(), _RETRY_SECONDS)
            self._link = link
            held, self._held = self._held, deque()
            for _, descriptor, data in held:
                self.hand(descriptor, data)
            await link.leaving.wait()
            asyncio.create_task(self._forget(link)).add_done_callback(_looked_at)

    async def _forget(self, link: HandoverLink) -> None:
        await link.ended.wait()
        self._links.discard(link)
        for descriptor, data in link.unsent():
            self.hand(descriptor, data)

    def _refuse_late(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._held and self._held[0][0] <= now:
            _refuse(self._held.popleft()[1])


class ControlPassing:
    """The control process's side: to the workers, in turn, goes what is for them."""

    answers_all = True

    def __init__(self, listener: socket.socket, first_lines: FirstLines, take: Take) -> None:
        self._listener = listener
        self._first_lines = first_lines
        self._take = take
        self._links: deque[HandoverLink] = deque()
        self._is_leaving = False

    def is_ours(self, data: bytes) -> bool | None:
        """Tell whether a request is not for workers; one that ends begins none."""
        if self._is_leaving:
            return False
        for_worker = self._first_lines.for_worker(data)
        return None if for_worker is None else not for_worker

    def hand(self, descriptor: int, data: bytes) -> bool:
        """Hand a connection to a worker, if there is one."""
        for _ in range(len(self._links)):
            self._links.rotate(-1)
            if self._links[-1].is_open:
                self._links[-1].hand(descriptor, data)
                return True
        return False

    def start(self) -> None:
        """Take the links of workers."""
        self._listener.setblocking(False)  # noqa: FBT003 - its only form
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    async def leave(self, *, hand_over: bool) -> None:
        """Take no more connections; `hand_over`: no request begins here from now on."""
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        self._is_leaving = hand_over
        await asyncio.gather(*(link.leave() for link in self._links))

    async def close(self) -> None:
        """End once all is sent."""
        await asyncio.gather(*(link.close() for link in tuple(self._links)))
        self._listener.close()

    def _accept(self) -> None:
        with suppress(BlockingIOError):
            link = HandoverLink(self._listener.accept()[0], self._take)
            self._links.append(link)
            link.greet()
            asyncio.create_task(self._forget(link)).add_done_callback(_looked_at)

    async def _forget(self, link: HandoverLink) -> None:
        await link.ended.wait()
        self._links.remove(link)
        for descriptor, data in link.unsent():
            # One that no worker takes is closed, as if the connection had been lost.
            if not self.hand(descriptor, data):
                os.close(descriptor)


def _looked_at(task: asyncio.Task[None]) -> None:
    _ = task.cancelled() or task.exception()


def _refuse(descriptor: int) -> None:
    """Answer a request that nobody could, and close its connection."""
    with socket.socket(fileno=descriptor) as connection, suppress(OSError):
        connection.send(_UNAVAILABLE)
        connection.shutdown(socket.SHUT_WR)
