"""A process of several, from its own side: what it inherits, and what the supervisor tells it."""

from __future__ import annotations

import asyncio
import signal
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tollhouse.api.address_table import AddressTable
from tollhouse.api.handover import ControlPassing, FirstLines, WorkerPassing
from tollhouse.api.hot_routes import COUNT_TOKENS
from tollhouse.apps.processes.messages import (
    FROM_PROCESS,
    TO_PROCESS,
    Begin,
    Finish,
    Gather,
    Gathered,
    Quiet,
    Ready,
    Report,
    Reported,
    Stop,
    fixed_part,
)
from tollhouse.apps.startup import StartupResources, database_url, read_catalog
from tollhouse.inference.formats.registry import FORMATS
from tollhouse.kernel.channel import ChannelError
from tollhouse.kernel.clock import SystemClock
from tollhouse.kernel.errors import StartError
from tollhouse.storage.data_folder import DataFolder

if TYPE_CHECKING:
    from asyncio import StreamWriter
    from collections.abc import Sequence

    from tollhouse.api.request_gate import RequestGate
    from tollhouse.api.server import GatewayServer
    from tollhouse.apps.bootstrap import Bootstrapped
    from tollhouse.apps.processes.messages import FromProcess
    from tollhouse.observability.merging import Family
    from tollhouse.observability.metrics import Metrics
    from tollhouse.settings.sections import Settings

_GATHER_SECONDS: Final = 5.0
HOLD_SECONDS: Final = 30.0
"""How much longer than a shutdown requests wait for the control process."""


@dataclass(slots=True)
class Member:
    """This process, which the supervisor has begun; made inside the event loop."""

    begin: Begin
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    hand_over: bool = False
    """Whether other processes go on."""
    metrics: Metrics | None = None
    """What it counts."""
    _finish: asyncio.Event = field(default_factory=asyncio.Event)
    _questions: dict[int, asyncio.Future[Gathered]] = field(
        default_factory=dict[int, "asyncio.Future[Gathered]"]
    )
    _asked: int = 0
    _writer: StreamWriter | None = None
    _listening: asyncio.Task[None] | None = None

    @property
    def is_worker(self) -> bool:
        """Whether it answers requests to models alone."""
        return self.begin.role == "worker"

    async def listen(self, link: socket.socket) -> None:
        """Heed the supervisor from now on; SIGTERM has this process replaced by another one."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, _nothing)
        loop.add_signal_handler(signal.SIGTERM, self._end_alone)
        reader, self._writer = await asyncio.open_unix_connection(sock=link)
        messages = TO_PROCESS.reader(reader)

        async def heed() -> None:
            try:
                while True:
                    message = await messages.receive()
                    if isinstance(message, Stop):
                        self.hand_over = message.hand_over
                        self.stop.set()
                    elif isinstance(message, Finish):
                        self._finish.set()
                    elif isinstance(message, Report):
                        self.report()
                    elif isinstance(message, Gathered) and message.number in self._questions:
                        self._questions.pop(message.number).set_result(message)
            except ChannelError:  # the supervisor is gone
                self.hand_over = False
                self.stop.set()
                self._finish.set()

        self._listening = asyncio.create_task(heed(), name="supervisor")

    def ready(self, first: Bootstrapped | None, example_model: str | None) -> None:
        """Say that this process answers."""
        keys = None
        if first is not None:
            names = ("api_key", "management_key", "account_id", "workspace_id")
            keys = {name: getattr(first, name) for name in names}
        self._say(Ready(keys, example_model))

    def report(self) -> None:
        """Say what was counted so far."""
        if self.metrics is not None:
            self._say(Reported(self.metrics.report()))

    async def count_workers(self) -> int:
        """Return how many workers answer."""
        return (await self._gather(counts=False)).workers

    async def report_of_others(self) -> Sequence[Family]:
        """Return what the other processes have counted, with those that have ended."""
        return (await self._gather(counts=True)).families

    async def quiet(self) -> None:
        """Say that no intern runs any more, and return once no worker does."""
        self._say(Quiet())
        await self._finish.wait()

    def passing(
        self, server: GatewayServer, gate: RequestGate, settings: Settings
    ) -> WorkerPassing | ControlPassing:
        """Have a server hand connections over, and take those of other processes."""
        routes = FirstLines([*FORMATS, COUNT_TOKENS, "/estimate"])
        passing: WorkerPassing | ControlPassing
        if self.begin.links is None:
            path = DataFolder(settings.data_dir).workers_socket
            hold_seconds = settings.server.shutdown_seconds + HOLD_SECONDS
            passing = WorkerPassing(path, routes, server.adopt, hold_seconds)
        else:
            listener = socket.socket(fileno=self.begin.links)
            passing = ControlPassing(listener, routes, server.adopt)
        begin = self.begin
        table = AddressTable(begin.addresses, begin.rows, begin.row, begin.key)
        gate.rate.shared = table
        server.pass_on(passing, table)
        passing.start()
        return passing

    def resources(self, settings: Settings) -> StartupResources:
        """Return what the process inherits.

        Raises:
            StartError: The settings are not those that the supervisor began with.
        """
        if fixed_part(settings) != self.begin.fixed:
            raise StartError(
                "data_dir, database_url, server.host, server.port and server.workers hold until "
                "the whole server is started again: stop it, or put them back"
            )
        catalog = read_catalog(settings, SystemClock())
        folder = DataFolder(settings.data_dir)
        local = None if self.begin.local is None else socket.socket(fileno=self.begin.local)
        return StartupResources(
            catalog,
            database_url(settings, folder),
            [_inherited(each) for each in self.begin.public],
            folder,
            self.begin.address,
            local,
        )

    def _end_alone(self) -> None:
        if not self.stop.is_set():
            self.hand_over = True
            self.stop.set()

    async def _gather(self, *, counts: bool) -> Gathered:
        self._asked = number = self._asked + 1
        self._questions[number] = answer = asyncio.get_running_loop().create_future()
        self._say(Gather(number, counts))
        try:
            return await asyncio.wait_for(answer, _GATHER_SECONDS)
        except TimeoutError:
            return Gathered(number, 0, [])
        finally:
            self._questions.pop(number, None)

    def _say(self, message: FromProcess) -> None:
        if self._writer is not None:
            self._writer.write(FROM_PROCESS.encode(message))


def _nothing() -> None:
    """Do nothing: unlike one that is ignored, a signal is a program's own again that we start."""


def _inherited(descriptor: int) -> socket.socket:
    found = socket.socket(fileno=descriptor)
    found.setblocking(False)  # noqa: FBT003 - its only form
    return found
