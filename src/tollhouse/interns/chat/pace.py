"""How many chats an account may begin in any minute; each server counts for itself."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tollhouse.accounting.admission.sliding_window import SlidingMinute
from tollhouse.interns.chat.errors import retry_seconds
from tollhouse.kernel.errors import RateLimited, RateWindow

if TYPE_CHECKING:
    from tollhouse.kernel.clock import Now

_MOST_IDLE: Final = 1_000
"""Accounts that are remembered before those are forgotten that have been quiet for a minute."""


class ChatPace:
    """The chats of the last minute, account by account."""

    def __init__(self, per_minute: int) -> None:
        """Say how many an account may begin in any 60 seconds."""
        self._most = per_minute
        self._minutes: dict[str, SlidingMinute] = {}

    def take(self, account_id: str, now: Now) -> None:
        """Count a chat.

        Raises:
            RateLimited: The account has begun too many.
        """
        minute = self._minutes.get(account_id)
        if minute is None:
            self._forget(now)
            minute = self._minutes[account_id] = SlidingMinute()
        wait = minute.wait(self._most, now.monotonic)
        if not wait:
            minute.take(now.monotonic)
            return
        window = RateWindow(self._most, 0, now.at + timedelta(seconds=wait))
        message = f"Interns may be talked to {self._most} times a minute; wait a moment."
        raise RateLimited(message, window=window, retry_after=retry_seconds(wait))

    def _forget(self, now: Now) -> None:
        if len(self._minutes) >= _MOST_IDLE:
            idle = [name for name, each in self._minutes.items() if each.idle(now.monotonic)]
            for name in idle:
                del self._minutes[name]
