"""The way to an intern's daemon, as the gateway tells it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from tollhouse.cli.failures import CommandFailed
from tollhouse.kernel.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Renew = Callable[[], Awaitable["Access"]]
    """Asks the gateway once more: a token is changed whenever an intern is provisioned."""

_LARGEST_ANSWER: Final = 1000
_UNAUTHORIZED: Final = 401


@dataclass(frozen=True, slots=True)
class Access:
    """Where a daemon is, and what it wants to be shown: the reply to `GET /interns/{id}/daemon`."""

    origin: str
    """`http` or `https`, a host, perhaps a port; no path, no slash at its end."""
    token: Secret = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """What every request has to show."""
        return {"Authorization": f"Bearer {self.token.reveal()}"}

    @property
    def is_near(self) -> bool:
        """Tell whether it is on this machine, where a proxy of the environment has no part."""
        host = urlsplit(self.origin).hostname or ""
        return host in {"127.0.0.1", "::1", "localhost"} or host.endswith(".localhost")


def refusal(status: int, body: bytes) -> CommandFailed:
    """Return what a daemon's refusal, or that of whoever stands before it, is to a person."""
    if status == _UNAUTHORIZED:
        text = "the intern refused the token: it was provisioned again meanwhile, try once more"
        return CommandFailed(text, passes=True)
    text = f"the intern refused: {_message(body) or f'status {status}'}"
    return CommandFailed(text, passes=status >= 500)  # noqa: PLR2004 - of HTTP


def _message(body: bytes) -> str:
    try:
        answer = json.loads(body[:_LARGEST_ANSWER])
    except ValueError:
        return ""
    error: Any = cast("dict[str, Any]", answer).get("error") if isinstance(answer, dict) else None
    message: Any = cast("dict[str, Any]", error).get("message") if isinstance(error, dict) else None
    printable = "".join(char for char in str(message or "") if char.isprintable())
    return printable.rstrip(".")
