"""A writer of charges whose moment of writing the test chooses."""

import asyncio
from collections.abc import Callable, Sequence

from tests.support.seams.accounting import GenerationRecord, JournalPart, SetAside, payload_of


class Writer:
    """Writes when it is let; remembers the ids of each group."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.firsts: list[int] = []
        self.parts: list[JournalPart | None] = []
        self.booked: set[str] = set()
        self.unbookable: set[str] = set()
        self.begun = asyncio.Event()
        self.let = asyncio.Event()
        self.let.set()
        self.failure: Callable[[list[str]], Exception | None] = lambda _: None
        self.released: list[str] = []

    async def write(
        self,
        records: Sequence[GenerationRecord],
        part: JournalPart | None = None,
        first: int = 0,
    ) -> Sequence[SetAside]:
        self.firsts.append(first)
        group = [record.id for record in records]
        self.groups.append(group)
        self.parts.append(part)
        self.begun.set()
        await self.let.wait()
        if (failure := self.failure(group)) is not None:
            raise failure
        self.booked.update(set(group) - self.unbookable)
        bad = (payload_of(record) for record in records if record.id in self.unbookable)
        return [SetAside(payload, "IntegrityError") for payload in bad]

    async def release(self, holder: str) -> None:
        if (failure := self.failure([])) is not None:
            raise failure
        self.released.append(holder)

    async def close(self) -> None:
        pass
