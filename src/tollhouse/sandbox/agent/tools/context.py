"""What all tools share: the run that they work for, permissions, excerpts of what is long."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ApprovalRequired, ToolFailed

from tollhouse.sandbox.agent.tools.mcp_servers import McpServers

EXCERPT_BYTES: Final = 16 * 1024
OPTIONS: Final = ("allow_once", "allow_always", "reject_once", "reject_always")
DIGEST: Final = "digest"
"""Key of an operation's digest in the metadata of the call that was asked about."""
_LONGEST: Final = 4000
"""Characters of an operation, as people see it."""


class Excerpt:
    """The first and the last `most` bytes of what comes in pieces."""

    def __init__(self, most: int = EXCERPT_BYTES) -> None:
        self.size = 0
        """Bytes that came."""
        self._most = most
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        """Take a piece."""
        self.size += len(data)
        room = self._most - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._most:  # not at each piece: it moves what stays
            del self._tail[: -self._most]

    def text(self) -> str:
        """Return what is kept, with a note of what is not."""
        end = self._tail[-self._most :]
        left_out = self.size - len(self._head) - len(end)
        if not left_out:
            return _decoded(self._head + end)
        note = f"\n[... {left_out} bytes are left out here ...]\n"
        return f"{_decoded(self._head)}{note}{_decoded(end)}"


def _decoded(data: bytes | bytearray) -> str:
    return data.decode(errors="replace").replace("\0", "\ufffd")


class PermissionVerdict(Enum):
    """Whether an operation may be done."""

    ALLOW = "allow"
    REJECT = "reject"
    ASK = "ask"


def permission_request(scope: str, operation: str) -> dict[str, Any]:
    """Return the question whether an operation may be done; "always" answers for its scope."""
    digest = operation_digest(scope, operation)
    if len(operation) > _LONGEST:
        operation = f"{operation[:_LONGEST]}… ({len(operation) - _LONGEST} characters more)"
    return {"scope": scope, "operation": operation, "options": list(OPTIONS), "digest": digest}


def operation_digest(scope: str, operation: str) -> str:
    """Return what tells an operation from all others, however long its text is."""
    return hashlib.sha256(json.dumps([scope, operation]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What tools know of their run, or of the part of it until it pauses."""

    workspace: Path
    environment: Mapping[str, str] = field(repr=False)
    """Of the programs that they start."""
    manual: bool
    """False where the client has allowed everything beforehand."""
    verdicts: Mapping[str, str]
    """`allow` or `reject` by scope, for the rest of the session."""
    servers: McpServers
    """They outlive the run."""
    rejected: set[str] = field(default_factory=set[str])
    """Calls that an earlier answer for always has rejected."""

    def verdict(self, scope: str) -> PermissionVerdict:
        """Return whether operations of a scope may be done."""
        if not self.manual:
            return PermissionVerdict.ALLOW
        return PermissionVerdict(self.verdicts.get(scope, PermissionVerdict.ASK.value))


def require_approval(ctx: RunContext[ToolContext], scope: str, operation: str) -> None:
    """Return only if an operation may be done.

    Raises `ApprovalRequired` where somebody has to be asked: the run ends here, and goes on with
    the answer. Raises `ToolFailed` where its scope was rejected for the rest of the session.
    """
    if ctx.tool_call_approved:
        asked: Mapping[str, object] = ctx.tool_call_metadata or {}
        if asked.get(DIGEST) == operation_digest(scope, operation):
            return
        # Else it is another operation by now: the conversation stands where programs may write,
        # and so does what `.mcp.json` says of a server. Or nobody knows any more what was asked.
    match ctx.deps.verdict(scope):
        case PermissionVerdict.ALLOW:
            return
        case PermissionVerdict.REJECT:
            ctx.deps.rejected.add(ctx.tool_call_id or "")
            raise ToolFailed("The user rejects operations of this kind. Do not try again.")
        case PermissionVerdict.ASK:
            raise ApprovalRequired(metadata=permission_request(scope, operation))
