"""Where Slack is, and how fast it is talked to; without the library, which takes long to load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SLACK_URL: Final = "https://slack.com/api/"
_EDIT_SECONDS: Final = 1.2
"""Between two edits of a message: Slack takes some fifty a minute."""
_PING_SECONDS: Final = 5.0
_FIRST_PAUSE: Final = 1.0


@dataclass(frozen=True, slots=True)
class SlackPace:
    """How fast things go, in seconds."""

    edit: float = _EDIT_SECONDS
    ping: float = _PING_SECONDS
    pause: float = _FIRST_PAUSE
    """Until a connection is tried again that failed; each time twice as long, up to a minute."""


@dataclass(frozen=True, slots=True)
class SlackServer:
    """Where Slack is, and how it is talked to."""

    url: str = SLACK_URL
    pace: SlackPace = SlackPace()
