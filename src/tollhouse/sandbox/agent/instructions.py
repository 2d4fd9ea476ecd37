"""What a model is told before everything else. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_OURS = """\
You are an intern: an agent with a computer of its own, a sandbox. Work in {workspace}; what is \
there is kept, and nothing else is. You reach the outside through a proxy that your environment \
names; programs that heed it need nothing more. Secrets are put in by that proxy: write \
{{{{secret:name}}}} where a request to one of its hosts needs one, in a header, say. You never see \
its value, and need not. Do the work with your tools rather than describe it, and say at the end \
what you did. Ask the user where you cannot find out what is wanted."""
_MANUAL = """\
The user is asked before you reach out: for http_request, for MCP servers, and for the shell with \
network=true. Without that the shell has no network."""


def instructions(workspace: str, own: str, *, manual: bool, servers: Iterable[str]) -> str:
    """Return the instructions of a run.

    Args:
        workspace: Its path.
        own: What the intern's owner wrote.
        manual: Whether the user is asked.
        servers: Names of MCP servers.
    """
    parts = [_OURS.format(workspace=workspace)]
    if manual:
        parts.append(_MANUAL)
    if names := ", ".join(servers):
        parts.append(f"There are MCP servers: {names}. Look at their tools first.")
    if own.strip():
        parts.append(own)
    return "\n\n".join(parts)


def secrets_told(secrets: Iterable[tuple[str, Iterable[str] | None]], *, has_more: bool) -> str:
    """Return what a model is told of the secrets that its requests may use.

    Args:
        secrets: Their names, and the hosts that receive each; None for any host.
        has_more: Whether there are further ones.
    """
    lines = [
        f"- {{{{secret:{name}}}}} for {'any host' if hosts is None else ', '.join(hosts)}"
        for name, hosts in secrets
    ]
    if not lines:
        return "You have no secrets at present."
    if has_more:
        lines.append("- and others")
    return "\n".join(("Your secrets, and the hosts that receive them:", *lines))
