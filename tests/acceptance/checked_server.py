"""A `tollhouse serve` process whose chat streams are all checked when it ends.

For tests in which a command line, an editor or a published library reads the chats: a test that
reads a stream itself checks it.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import chat_tee
from tests.support.chat_grammar import check_recorded
from tests.support.server_process import ServerProcess, start_server

RECORDING = "chats"


def chats_of(server: ServerProcess) -> list[chat_tee.RecordedStream]:
    """Return the chats that a server has streamed so far."""
    file = server.data_dir.with_name(RECORDING)
    lines = file.read_text().splitlines() if file.exists() else []
    return [chat_tee.RecordedStream.from_line(line) for line in lines]


@contextmanager
def start_checked_server(tmp_path: Path, **options: Any) -> Generator[ServerProcess]:
    """Run a server until the end of the block, and check every chat that it streamed.

    Args:
        tmp_path: As for `start_server`.
        options: As for `start_server`, without a program.

    Raises:
        IllegalStream: A stream breaks the grammar.
    """
    program = (sys.executable, str(Path(chat_tee.__file__)), str(tmp_path / RECORDING))
    with start_server(tmp_path, program=program, **options) as server:
        yield server
    for recorded in chats_of(server):
        check_recorded(recorded)
