"""The way to an intern's daemon, as the gateway tells it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.interns.replies import message
from tollhouse.cli.json_objects import fields
from tollhouse.kernel.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Renew = Callable[[], Awaitable["Access"]]
    """Asks the gateway once more: a token is changed whenever an intern is provisioned."""

_ORIGIN: Final = re.compile(r"https?://[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?(:[0-9]{1,5})?")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,1000}")
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


def access_of(reply: object) -> Access:
    """Return the way that the gateway tells.

    Raises:
        CommandFailed: It is none: an origin has no path and no user, and a token is one word.
    """
    told = fields(reply)
    match told.get("origin"), told.get("token"):
        case str(origin), str(token) if _is_origin(origin) and _TOKEN.fullmatch(token):
            return Access(origin, Secret(token))
        case _:
            text = "the gateway gave no address of the intern"
            raise CommandFailed(text)


def refusal(status: int, body: bytes) -> CommandFailed:
    """Return what a daemon's refusal, or that of whoever stands before it, is to a person.

    Args:
        status: Of the answer.
        body: Its beginning.
    """
    if status == _UNAUTHORIZED:
        text = "the intern refused the token: it was provisioned again meanwhile, try once more"
        return CommandFailed(text, passes=True)
    text = f"the intern refused: {message(body) or f'status {status}'}"
    return CommandFailed(text, passes=status >= 500)  # noqa: PLR2004 - of HTTP


def _is_origin(text: str) -> bool:
    if not _ORIGIN.fullmatch(text):
        return False
    try:
        urlsplit(text).port  # noqa: B018 - it looks at the number only when it is asked
    except ValueError:
        return False
    return True
