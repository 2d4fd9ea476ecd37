"""Asking before something is done, where that has to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic_ai.exceptions import ApprovalRequired, ToolFailed

from tollhouse.sandbox.agent.permits import Verdict, digest_of, question

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_ai import RunContext

    from tollhouse.sandbox.agent.tools.work import Work


DIGEST: Final = "digest"
"""Of what is told of a call that was asked about: that of the operation."""


def need_consent(ctx: RunContext[Work], scope: str, operation: str) -> None:
    """Return where an operation may be done.

    Args:
        ctx: Of the call.
        scope: See `permits.question`.
        operation: The same.

    Raises:
        ApprovalRequired: Somebody has to be asked; the run ends here, and goes on with the answer.
        ToolFailed: Operations of this scope were rejected for the rest of the session.
    """
    if ctx.tool_call_approved:
        asked: Mapping[str, object] = ctx.tool_call_metadata or {}
        if asked.get(DIGEST) == digest_of(scope, operation):
            return
        # Else it is another operation by now: the conversation stands where programs may write,
        # and so does what `.mcp.json` says of a server. Or nobody knows any more what was asked.
    match ctx.deps.permits.verdict(scope):
        case Verdict.ALLOW:
            return
        case Verdict.REJECT:
            ctx.deps.rejected.add(ctx.tool_call_id or "")
            raise ToolFailed("The user rejects operations of this kind. Do not try again.")
        case Verdict.ASK:
            raise ApprovalRequired(metadata=question(scope, operation))
