"""An intern with a fake daemon, behind a chat server.

On SQLite alone: a chat hardly uses the database.
"""

from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from tests.component.interns.chat_server import CHATS_PER_MINUTE, ChatServer, serve_chat
from tests.component.interns.fake_daemon import FakeDaemon
from tests.component.interns.machine import Machine
from tollhouse.interns.chat.transcript import ChatTimeouts
from tollhouse.storage.database import Database, open_database


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
