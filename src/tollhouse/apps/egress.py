"""The egress proxy's process, `tollhouse serve egress`, which `tollhouse serve` starts.

    --link FD    the socket on which the gateway talks; --doors FD that on which sessions come
    --user       become this user before anything else
    --core-dumps, --log-level, --log-format    as of the gateway

`tollhouse serve` starts it as `python -P -m tollhouse.apps.egress`: the same, without loading the
command line, for the first intern of a server waits for this start.

It needs neither settings nor a database: everything comes over the two sockets that it inherits,
and it ends when they do. It runs as another user, where it was told one, from its first step on.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import socket
import ssl
import sys
from argparse import ArgumentParser
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_network
from typing import TYPE_CHECKING

import structlog
import uvloop

from tollhouse.apps.process import allow_open_files, keep_memory_private
from tollhouse.kernel.channel import ChannelClosed, MessageReader
from tollhouse.kernel.clock import SystemClock
from tollhouse.kernel.errors import StartError
from tollhouse.observability.logging import LogFormat, LogLevel, configure_logging
from tollhouse.outbound.dialing import CheckedDialer, SystemResolver, connect_to
from tollhouse.vault.egress.certificates import HTTP_1_1
from tollhouse.vault.egress.messages import (
    FROM_PROXY,
    LARGEST_OPEN,
    OPEN,
    TO_PROXY,
    CloseSession,
    SessionOpened,
    StartProxy,
)
from tollhouse.vault.egress.proxy import EgressProxy, ProxyContext
from tollhouse.vault.egress.request_head import connect_target
from tollhouse.vault.egress.routes import GatewayUpstream, HostConnector
from tollhouse.vault.egress.secret_broker import SecretBrokerClient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tollhouse.vault.egress.messages import ToProxy

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EgressOptions:
    """How the process was started."""

    link: int
    """Descriptor of the socket on which the gateway talks."""
    doors: int
    """Descriptor of the socket on which sessions come."""
    user: str | None
    core_dumps: bool
    log_level: LogLevel
    log_format: LogFormat


def main() -> int:
    """Serve sessions as the arguments say; return the exit code."""
    try:
        run_egress(options_of(sys.argv[1:]))
    except StartError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def options_of(arguments: Sequence[str]) -> EgressOptions:
    """Return how the process was started.

    Raises:
        SystemExit: The arguments are not those above.
    """
    parser = ArgumentParser(prog="tollhouse serve egress", allow_abbrev=False)
    parser.add_argument("--link", type=int, default=-1)
    parser.add_argument("--doors", type=int, default=-1)
    parser.add_argument("--user")
    parser.add_argument("--core-dumps", action="store_true")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-format", default="auto")
    return EgressOptions(**vars(parser.parse_args(arguments)))


def run_egress(options: EgressOptions) -> None:
    """Serve sessions until the gateway is gone.

    Raises:
        StartError: It was not started by a gateway, or cannot become the user.
    """
    configure_logging(options.log_level, options.log_format)
    link, doors = _inherited(options.link), _inherited(options.doors)
    if options.user is not None:
        _become(options.user)
    if not options.core_dumps:
        keep_memory_private()
    allow_open_files()
    for number in (signal.SIGINT, signal.SIGTERM):  # are for the gateway, which may need time
        signal.signal(number, signal.SIG_IGN)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(link, doors))


async def _serve(link: socket.socket, doors: socket.socket) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=link)
    messages = TO_PROXY.reader(reader)
    begin = await messages.receive()
    if not isinstance(begin, StartProxy):
        raise StartError("the gateway did not say how to begin")
    broker = SecretBrokerClient(writer.write)
    proxy = EgressProxy(_proxy_context(begin, broker), begin.limits, SystemClock())
    # None of these ends while the others go on: the gateway starts a new process.
    tasks = {
        asyncio.create_task(proxy.enforce_timeouts()),
        asyncio.create_task(_admit(doors, proxy, writer.write)),
        asyncio.create_task(_listen(messages, proxy, broker)),
    }
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await proxy.stop()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _listen(
    messages: MessageReader[ToProxy], proxy: EgressProxy, broker: SecretBrokerClient
) -> None:
    with suppress(ChannelClosed, OSError):  # the gateway is gone
        while True:
            match await messages.receive():
                case CloseSession(session):
                    await proxy.close(session)
                case StartProxy():
                    continue
                case answer:
                    broker.receive(answer)


async def _admit(doors: socket.socket, proxy: EgressProxy, say: Callable[[bytes], None]) -> None:
    """Take sessions, each with its socket."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    doors.setblocking(False)  # noqa: FBT003 - its only form
    loop.add_reader(doors.fileno(), ready.set)
    try:
        while True:
            await ready.wait()
            ready.clear()
            with suppress(BlockingIOError):
                data, descriptors, _, _ = socket.recv_fds(doors, LARGEST_OPEN, 1)
                if not data:
                    return
                ready.set()
                if not descriptors:
                    _log.error("egress_session_without_socket")  # no descriptor was left for it
                    continue
                opened = OPEN.decode(data)
                certificate = await proxy.open(opened, socket.socket(fileno=descriptors[0]))
                say(FROM_PROXY.encode(SessionOpened(opened.session, certificate)))
    finally:
        loop.remove_reader(doors.fileno())


def _proxy_context(begin: StartProxy, broker: SecretBrokerClient) -> ProxyContext:
    resolver = SystemResolver()
    allowed = [ip_network(each) for each in begin.allow_networks]
    dialer = CheckedDialer(resolver, allowed, begin.addresses)

    async def dial_ours(host: str, port: int) -> socket.socket:
        return await connect_to(await resolver(host, port))

    gateway = GatewayUpstream(begin.gateway, {each.encode() for each in begin.routes}, dial_ours)
    network = HostConnector(dialer, _trust(begin.authorities))
    ports = frozenset(connect_target(each.encode()) for each in begin.allow_ports)
    return ProxyContext(broker, network, gateway, frozenset(begin.tunnel_hosts), ports)


def _trust(more: str | None) -> ssl.SSLContext:
    """Return what verifies hosts: always, by the system's authorities and the operator's."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(HTTP_1_1)
    if more is not None:
        context.load_verify_locations(cadata=more)
    return context


def _inherited(descriptor: int) -> socket.socket:
    try:
        return socket.socket(fileno=descriptor)
    except (OSError, ValueError):
        message = "the egress proxy is started by `tollhouse serve`, and not by hand"
        raise StartError(message) from None


def _become(user: str) -> None:
    """Go on as another user, with nothing of this one's.

    Raises:
        StartError: There is none of this name, or this one may not.
    """
    try:
        found = pwd.getpwnam(user)
        os.setgroups([])
        os.setgid(found.pw_gid)
        os.setuid(found.pw_uid)
    except (KeyError, OSError) as error:
        raise StartError(f"egress.user: cannot become {user} ({error})") from None


if __name__ == "__main__":
    sys.exit(main())
