"""A client of the gateway's chat with interns."""

from typing import Any

import httpx2

from tests.support.chat_grammar import ParsedChat, check_stream
from tests.support.intern_client import InternClient


class ChatRefused(AssertionError):
    """The server refused a chat."""

    def __init__(self, reply: httpx2.Response) -> None:
        super().__init__(reply.text)
        self.reply = reply

    @property
    def reason(self) -> str:
        return self.reply.json()["error"]["metadata"]["reason"]


class Conversation:
    """One conversation; every stream in it is checked."""

    def __init__(self, interns: InternClient, intern: str, **fields: Any) -> None:
        self._interns = interns
        self._intern = intern
        self._fields = fields
        self.session: str | None = None
        self.received = b""
        """The bytes of all streams."""

    def send(self, text: str) -> ParsedChat:
        return self._stream([{"role": "user", "content": text}])

    def answer(self, asked: ParsedChat, content: str) -> ParsedChat:
        """Answer the question with which a turn ended."""
        assert asked.call is not None
        echo = {"role": "assistant", "content": None, "tool_calls": [asked.call]}
        reply = {"role": "tool", "tool_call_id": asked.call["id"], "content": content}
        return self._stream([echo, reply])

    def _stream(self, messages: list[dict[str, Any]]) -> ParsedChat:
        session = {} if self.session is None else {"session_id": self.session}
        reply = httpx2.post(
            f"{self._interns.server.base_url}/interns/{self._intern}/chat/completions",
            headers={"Authorization": f"Bearer {self._interns.key}"},
            json={"stream": True, "messages": messages, **self._fields, **session},
            timeout=120,
        )
        if reply.status_code != 200:
            raise ChatRefused(reply)
        self.received += reply.content
        chat = check_stream(reply.content)
        self.session = chat.session_id or self.session
        return chat
