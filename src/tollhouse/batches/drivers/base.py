"""What a driver does for the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tollhouse.batches.books import Leased


class Driver(Protocol):
    """Runs the items of chunks in one way; `fanout` sends each as a request of its own."""

    async def run(self, leased: Leased) -> None:
        """Work on a chunk until each of its items has a result, or it has to be handed back.

        Where the batch is being closed, items that have no result get an error in place of one.
        Returns early once `stop` or `notice` says so.
        """
        ...

    def notice(self, batch_id: str) -> None:
        """Learn that a batch is being closed: begin no more of its items."""
        ...

    async def keep(self) -> None:
        """Keep the leases of chunks at work that could not be committed for a while.

        Raises:
            Exception: The database cannot be reached or written.
        """
        ...

    async def stop(self, seconds: float) -> None:
        """Begin no more items; let those under way finish for so long, hand the rest back."""
        ...
