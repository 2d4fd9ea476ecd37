"""What a person types to the conversation and not to the intern: `/help` and others. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tollhouse.cli.values import credits_text

if TYPE_CHECKING:
    from tollhouse.cli.interns.chat_stream import Usage

_COMMAND: Final = re.compile(r"/[a-z]+")
HELP: Final = """\
/help   these lines
/new    begin another session
/cost   what this conversation has used so far
/model  the model that the intern runs with
/exit   leave, as Ctrl-D does
A line that ends with \\ goes on with the next; what is pasted is sent as one prompt. Ctrl-C stops a
turn. What looks like a command is never sent: put a space before it."""


def command_in(text: str) -> str | None:
    """Return the command that a text is; None for a prompt, such as one that begins with a path."""
    return text.rstrip() if _COMMAND.fullmatch(text.rstrip()) else None


@dataclass(slots=True)
class Spent:
    """What a conversation has used."""

    turns: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0

    def add(self, usage: Usage) -> None:
        """Count a turn."""
        self.turns += 1
        self.tokens_in += usage.prompt_tokens
        self.tokens_out += usage.completion_tokens
        self.cost += usage.cost or 0.0

    def text(self) -> str:
        """Return it for people."""
        return (
            f"{self.turns} turns: {self.tokens_in:,} tokens in, {self.tokens_out:,} out, "
            f"${credits_text(self.cost)}"
        )
