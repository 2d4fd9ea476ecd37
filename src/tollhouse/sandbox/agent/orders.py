"""What the daemon wants, as values. Pure.

The daemon is trusted: it has checked what came from outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Setup:
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

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        """Return what a line says."""
        return cls(
            fields["model"],
            fields["instructions"],
            fields["base_url"],
            fields["workspace"],
            fields["model_seconds"],
            fields["intern_id"],
        )


@dataclass(frozen=True, slots=True)
class Input:
    """Something that was said to the intern."""

    number: int
    text: str = field(repr=False)

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        """Return what a line says."""
        return cls(fields["id"], fields["text"])


@dataclass(frozen=True, slots=True)
class Answer:
    """To a question that a call of a tool had waited for."""

    call: str
    permission: bool | None
    """Of a call that asked for one."""
    content: Mapping[str, Any] | None = field(repr=False)
    """Of a call that asked for content: fields and values; None where it was declined."""
    digest: str = ""
    """Of a permission: that of what was asked; see `permits.digest_of`."""

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        """Return what a line says."""
        permission, content = fields.get("permission"), fields.get("content")
        return cls(fields["call"], permission, content, fields.get("digest", ""))


@dataclass(frozen=True, slots=True)
class Order:
    """A run, or one that goes on with what was answered."""

    manual: bool
    """Whether what reaches beyond the sandbox has to be asked first."""
    messages: tuple[str, ...] = field(repr=False)
    inputs: tuple[Input, ...]
    answers: tuple[Answer, ...]
    verdicts: Mapping[str, str]
    """On scopes of operations, for the rest of the session: `allow` or `reject`."""
    spent: Mapping[str, Any]

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        """Return what a line says."""
        return cls(
            fields["approval_mode"] == "manual",
            tuple(fields["messages"]),
            tuple(map(Input.read, fields["inputs"])),
            tuple(map(Answer.read, fields["answers"])),
            fields["verdicts"],
            fields["spent"],
        )
