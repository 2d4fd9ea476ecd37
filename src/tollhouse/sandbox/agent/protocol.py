"""The daemon's messages as values. Pure.

The daemon is trusted: it has checked what came from outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """What holds for as long as the agent lives."""

    model: str
    instructions: str = field(repr=False)
    base_url: str
    """Of an API in the format of chat completions."""
    workspace: str
    """Absolute; where commands run, and what relative paths are relative to."""
    model_seconds: float
    """How long a model may be silent."""
    intern_id: str
    """As the gateway knows it; empty where it does not."""


@dataclass(frozen=True, slots=True)
class UserInput:
    """Something that the user said."""

    id: int
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """The answer to a question that a call of a tool has waited for."""

    call: str
    permission: bool | None
    """Whether the call may be done; None if it asked for content."""
    content: Mapping[str, Any] | None = field(repr=False)
    """Fields and values, where the call asked for them; None if that was declined."""
    digest: str
    """Of the operation that was permitted: see `tools.context.operation_digest`."""


@dataclass(frozen=True, slots=True)
class RunCommand:
    """Start a run, or go on with one whose questions were answered."""

    manual: bool
    """Whether what reaches beyond the sandbox has to be asked first."""
    messages: tuple[str, ...] = field(repr=False)
    inputs: tuple[UserInput, ...]
    answers: tuple[QuestionAnswer, ...]
    verdicts: Mapping[str, str]
    """On scopes of operations, for the rest of the session: `allow` or `reject`."""
    spent: Mapping[str, Any]

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        """Return the value of a message."""
        return cls(
            fields["approval_mode"] == "manual",
            tuple(fields["messages"]),
            tuple(UserInput(**given) for given in fields["inputs"]),
            tuple(
                QuestionAnswer(
                    answer["call"],
                    answer.get("permission"),
                    answer.get("content"),
                    answer.get("digest", ""),
                )
                for answer in fields["answers"]
            ),
            fields["verdicts"],
            fields["spent"],
        )
