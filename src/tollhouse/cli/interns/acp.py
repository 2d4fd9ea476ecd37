"""`tollhouse intern acp`: an intern for an editor, over standard input and output.

Standard output carries the protocol and nothing else; what is said to people, and the library's
log, goes to standard error, which editors keep.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Final, TextIO

from acp import run_agent, stdio_streams

from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.interns.acp_agent import InternAgent
from tollhouse.cli.interns.chat import Conversation
from tollhouse.cli.interns.chat_lines import is_typed
from tollhouse.cli.interns.chat_waiting import NOTICED_SECONDS, Waiting
from tollhouse.cli.interns.lookup import find_intern
from tollhouse.kernel.ids import RandomIds

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

    from tollhouse.cli.client import Server

_LARGEST_LINE: Final = 8 * 1024 * 1024
"""A prompt of 32,000 characters, and an editor's capabilities, are far below; longer ones are read
in parts."""


async def serve(server: Server, name: str, *, manual: bool) -> None:
    """Serve the client at standard input and output until it ends; otherwise as `serve_client`.

    Raises:
        CommandFailed: Standard input or output is a file, or closed.
    """
    if is_typed():
        print(
            "This is for editors, and speaks the Agent Client Protocol; `tollhouse intern chat` is "
            "for people.",
            file=sys.stderr,
        )
    if not (_is_stream(sys.stdin) and _is_stream(sys.stdout)):
        message = "standard input and output have to be pipes: an editor starts this"
        raise CommandFailed(message)
    # The library closes what it wrote to; the command itself still has its standard output.
    with redirect_stdout(os.fdopen(os.dup(sys.stdout.fileno()), "w")):
        reader, writer = await stdio_streams(_LARGEST_LINE)
    # Who ends this program ends its input: runs are stopped, and nothing is cut.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, reader.feed_eof)
    await serve_client(server, name, reader, writer, manual=manual)


async def serve_client(
    server: Server, name: str, reader: StreamReader, writer: StreamWriter, *, manual: bool
) -> None:
    """Serve one client until its input ends.

    Args:
        server: The gateway.
        name: The intern's name or id; it is looked up when a session begins, so that an editor can
            show why there is none.
        reader: From the client.
        writer: To it.
        manual: Whether sessions begin in the mode that asks.
    """

    async def open_session(session_id: str) -> Conversation:
        intern = await find_intern(server, name)
        return Conversation(server, intern, session_id, Waiting(NOTICED_SECONDS))

    agent = InternAgent(open_session, name, RandomIds(), manual=manual)
    try:
        # Of what is still marked as unstable there, session/resume and /close are in the protocol.
        await run_agent(
            agent,  # pyright: ignore[reportArgumentType] - what it has not is refused by the library
            input_stream=writer,
            output_stream=reader,
            use_unstable_protocol=True,
        )
    finally:
        await agent.left()


def _is_stream(file: TextIO | None) -> bool:
    """Tell whether the event loop can wait for a file; one that is closed is None."""
    if not file:
        return False
    mode = os.fstat(file.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or file.isatty()
