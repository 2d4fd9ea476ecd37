"""What ends a generation early, at each point of its way: every cell of the table in its module.

Its client gets one legal end, what a provider may have done is booked once, and nothing is held.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.support.seams.accounting import AdmissionRequest, Admitted
from tests.support.seams.inference import generation
from tests.support.stream_checks.chat import check_stream
from tests.unit.inference import replies
from tests.unit.inference.fakes import (
    FakeAdmission,
    FakeProvider,
    FakeSettler,
    PipelineFixture,
    Step,
    outcome,
    steps,
)
from tests.unit.inference.generation.pipeline_fixtures import CUT, UNREACHABLE, good_reply
from tollhouse.kernel.errors import TollhouseError, status_of

FAILURES = {"is not reached": UNREACHABLE, "breaks off": CUT}
POINTS = ("is admitted", "is sent", "is accepted", "is answered", "is booked")
HELLO = replies.chunk({"content": "Hello"})


def cells() -> Iterator[tuple[str, str, str]]:
    """Yield the point, the cause and the outcome of each cell of the module's table."""
    lines = [line.strip() for line in (generation.__doc__ or "").splitlines()]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    [_, *causes], *rest = rows
    for point, *outcomes in rest:
        for cause, said in zip(causes, outcomes, strict=True):
            yield point, cause, said


CELLS = [(point, cause, said) for point, cause, said in cells() if said]


def test_the_table_has_every_point() -> None:
    assert tuple(dict.fromkeys(point for point, _, _ in CELLS)) == POINTS


@dataclass
class WaitingAdmission(FakeAdmission):
    """Lets a request wait until there is enough."""

    enough: asyncio.Event = field(default_factory=asyncio.Event)

    def try_admit(self, request: AdmissionRequest) -> Admitted | None:  # type: ignore[override]
        return super().try_admit(request) if self.enough.is_set() else None

    async def admit(self, request: AdmissionRequest) -> Admitted:
        await self.enough.wait()
        return super().try_admit(request)


@dataclass
class Stage:
    """A generation that has come to a point of its way and goes no further by itself."""

    point: str
    cause: str
    stream: bool
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """What it waits for there."""

    def set_up(self) -> PipelineFixture:
        answer = good_reply(stream=self.stream)
        failure = FAILURES.get(self.cause)
        first: list[Step] = [HELLO] if self.stream else [b" "]
        then: list[Step] = [self.gate] if failure is None else [self.gate, failure]
        if self.point == "is accepted":
            answer.body[:0] = [*then, *first]
        elif self.point == "is answered":
            answer.body[:0] = [*first, *then]
        is_sent = self.point == "is sent"
        asked = FakeProvider(
            failure if is_sent and failure is not None else answer,
            accepts=self.gate if is_sent else None,
        )
        is_booked = self.point == "is booked"
        settler = FakeSettler(ready=self.gate if is_booked else None)
        settler.broken = OSError("disk full") if self.cause == "books fail" else None
        admission = WaitingAdmission(enough=asyncio.Event())
        if self.point == "is admitted":
            admission.enough = self.gate
        else:
            admission.enough.set()
        beside = FakeProvider(good_reply(stream=self.stream), name="Beside")
        return PipelineFixture([asked, beside], settler, admission=admission)

    async def end(self) -> str:
        """Let the cause happen, and all go on; return what the client got and what is booked."""
        w = self.set_up()
        exchange = w.begin(stream=self.stream)
        await steps()
        if self.cause == "client leaves":
            exchange.client_left()
        elif self.cause == "gateway stops":
            w.pipeline.interrupt_all()
        await steps()
        self.gate.set()
        said = await outcome(exchange)
        await steps()
        assert (w.in_flight, w.admission.holding) == (0, set())
        assert len(w.settler.records) <= 1
        if w.providers[1].calls:
            return "next"
        return f"{'gone' if exchange.abandoned else self.seen(said)}, {self.booked(w)}"

    def seen(self, said: bytes | TollhouseError) -> str:
        if isinstance(said, TollhouseError):
            return str(status_of(said))
        return "event" if self.stream and check_stream(said).failed else "reply"

    def booked(self, w: PipelineFixture) -> str:
        for record in w.settler.booked:
            if not record.cost_nano:
                return "free"
            return "exact" if record.cost_state == "exact" else "seen"
        return "none"


@pytest.mark.parametrize(("point", "cause", "said"), CELLS)
async def test_what_ends_a_stream_early_is_as_the_table_says(
    point: str, cause: str, said: str
) -> None:
    assert await Stage(point, cause, stream=True).end() == said


@pytest.mark.parametrize(("point", "cause", "said"), CELLS)
async def test_a_whole_reply_has_not_begun_before_its_end(
    point: str, cause: str, said: str
) -> None:
    status = "503" if cause in {"gateway stops", "books fail"} else "502"
    expected = said.replace("event", status)
    assert await Stage(point, cause, stream=False).end() == expected
