"""Conversations with an intern over the gateway's route, as a client has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2

from tests.chat_grammar import check_stream

if TYPE_CHECKING:
    from tests.acceptance.intern_rooms import Rooms
    from tests.chat_grammar import Told


class Refused(AssertionError):
    """No stream came."""

    def __init__(self, reply: httpx2.Response) -> None:
        super().__init__(reply.text)
        self.reply = reply

    @property
    def reason(self) -> str:
        return self.reply.json()["error"]["metadata"]["reason"]


class Talk:
    """One conversation; every stream in it is legal."""

    def __init__(self, rooms: Rooms, intern: str, **fields: Any) -> None:
        self._rooms = rooms
        self._intern = intern
        self._fields = fields
        self.session: str | None = None
        self.heard = b""
        """All that came."""

    def say(self, text: str) -> Told:
        return self._told([{"role": "user", "content": text}])

    def answer(self, asked: Told, content: str) -> Told:
        """Answer the question that a turn ended with."""
        assert asked.call is not None
        echo = {"role": "assistant", "content": None, "tool_calls": [asked.call]}
        reply = {"role": "tool", "tool_call_id": asked.call["id"], "content": content}
        return self._told([echo, reply])

    def _told(self, messages: list[dict[str, Any]]) -> Told:
        session = {} if self.session is None else {"session_id": self.session}
        reply = httpx2.post(
            f"{self._rooms.server.base_url}/interns/{self._intern}/chat/completions",
            headers={"Authorization": f"Bearer {self._rooms.key}"},
            json={"stream": True, "messages": messages, **self._fields, **session},
            timeout=120,
        )
        if reply.status_code != 200:
            raise Refused(reply)
        self.heard += reply.content
        told = check_stream(reply.content)
        self.session = told.session_id or self.session
        return told
