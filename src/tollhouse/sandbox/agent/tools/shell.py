"""The shell."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ToolFailed

from tollhouse.sandbox.agent.offline import NoFilter, offline
from tollhouse.sandbox.agent.permits import Verdict
from tollhouse.sandbox.agent.tools.commands import run_command
from tollhouse.sandbox.agent.tools.consent import need_consent
from tollhouse.sandbox.agent.tools.work import Work

SCOPE: Final = "shell"
"""Of commands with network."""
LONGEST_SECONDS: Final = 3600


async def shell(
    ctx: RunContext[Work],
    command: str,
    network: bool = False,  # noqa: FBT001, FBT002 - the model names it
    timeout_seconds: Annotated[int, Field(ge=1, le=LONGEST_SECONDS)] = 120,
) -> str:
    """Run a command with bash, in the workspace, and return what it prints and its exit code.

    Nothing is typed into it. Of long output you get the beginning and the end. What it leaves in
    the background runs on; redirect the output of that, or it ends as soon as it prints.

    Args:
        ctx: Of the call.
        command: What to run; it may have several lines.
        network: Whether it needs the network.
        timeout_seconds: After so many seconds it is ended.
    """
    work = ctx.deps
    line = [work.environment["SHELL"], "-lc", command]
    if work.permits.manual:
        if network:
            need_consent(ctx, SCOPE, command)
        else:
            line = _without_network(line)
    try:
        done = await run_command(line, work.workspace, work.environment, timeout_seconds)
    except (OSError, ValueError) as error:
        raise ToolFailed(f"It cannot be run: {error}") from None
    output = done.output or "(no output)"
    if done.reason is not None:
        raise ToolFailed(f"{output}\n[{done.reason}]")
    hint = _hint(work, network=network) if done.exit_code else ""
    return f"{output}\n[exit code {done.exit_code}{hint}]"


def _without_network(line: list[str]) -> list[str]:
    try:
        return offline(line)
    except NoFilter:
        raise ToolFailed(
            "Commands cannot be kept from the network on this machine; ask with network."
        ) from None


def _hint(work: Work, *, network: bool) -> str:
    """Return what a model has to know that sees a command fail for a lack of network."""
    if not work.permits.manual or network:
        return ""
    if work.permits.verdict(SCOPE) is Verdict.REJECT:
        return "; commands have no network here"
    return "; it had no network: ask for that with network=true if it was that"
