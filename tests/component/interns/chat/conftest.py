"""An intern with a fake daemon, behind a chat server.

On SQLite alone: a chat hardly uses the database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.component.interns.chat_server import CHATS_PER_MINUTE, serve_chat
from tollhouse.interns.chat.transcript import ChatTimeouts
from tollhouse.storage.database import Database, open_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import sqlalchemy as sa

    from tests.component.interns.chat_server import ChatServer
    from tests.component.interns.fake_daemon import FakeDaemon
    from tests.component.interns.machine import Machine


@pytest.fixture
async def database(migrated_sqlite: sa.URL) -> AsyncIterator[Database]:
    opened = open_database(migrated_sqlite)
    yield opened
    await opened.close()


@pytest.fixture
def paces() -> ChatTimeouts:
    """The timeouts of a chat, which a module may override."""
    return ChatTimeouts()


@pytest.fixture
def chats() -> int:
    """How many chats may begin in a minute."""
    return CHATS_PER_MINUTE


@pytest.fixture
async def chat(machine: Machine, paces: ChatTimeouts, chats: int) -> AsyncIterator[ChatServer]:
    async with serve_chat(machine, paces, chats) as opened:
        yield opened


@pytest.fixture
def daemon(chat: ChatServer) -> FakeDaemon:
    return chat.daemon
