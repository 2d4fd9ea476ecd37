"""Which messages of a conversation are new, so that only these are written down again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, ToolReturnPart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic_ai.messages import ModelMessage

_OPEN: int = 2
"""So many messages at the end may still be changed where they stand."""


class Unwritable(Exception):
    """A message holds what cannot be written down."""


class Unreadable(Exception):
    """What the daemon has of a conversation cannot be read."""


class History:
    """What the daemon has of a conversation."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Take it as the daemon told it."""
        self._texts = list(texts)
        self._seen: list[ModelMessage] = []

    def messages(self) -> list[ModelMessage]:
        """Return it as pydantic-ai has it.

        Raises:
            Unreadable: It is none that this version can read.
        """
        try:
            self._seen = ModelMessagesTypeAdapter.validate_json(f"[{','.join(self._texts)}]")
        except ValueError:
            raise Unreadable from None
        return self._seen

    def kept(self) -> tuple[int, list[str]]:
        """Return that all messages stay, and none follows."""
        return len(self._texts), []

    def changes(self, messages: Sequence[ModelMessage]) -> tuple[int, list[str]]:
        """Return how many messages stay, and which follow, so that the daemon has these.

        Raises:
            Unwritable: One of them cannot be.
        """
        same = 0
        for ours, theirs in zip(self._seen[:-_OPEN], messages, strict=False):
            if ours is not theirs:
                break
            same += 1
        texts = self._texts[:same] + [_text(message) for message in messages[same:]]
        while same < min(len(texts), len(self._texts)) and texts[same] == self._texts[same]:
            same += 1
        self._texts, self._seen = texts, list(messages)
        return same, texts[same:]


def interrupted(
    messages: Sequence[ModelMessage], results: Sequence[ToolReturnPart]
) -> list[ModelMessage]:
    """Return a conversation as it would be if the run ended now, amid calls of tools.

    Args:
        messages: Up to the calls.
        results: Of those that have ended.
    """
    return [*messages, ModelRequest(parts=list(results), state="interrupted")]


def _text(message: ModelMessage) -> str:
    try:
        return ModelMessagesTypeAdapter.dump_json([message]).decode()[1:-1]
    except ValueError:  # half a character, say
        raise Unwritable from None
