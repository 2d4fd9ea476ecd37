"""Random schedules: providers, readers, books and stops in any order.

Whatever happens, the reader gets an end, work that may have been done is booked once, and what the
client holds is a legal reply.
"""

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.seams.accounting import CostState
from tests.support.seams.inference import ReplyBuffer, failure
from tests.support.stream_checks.chat import check_stream
from tests.unit.inference import replies
from tests.unit.inference.fakes import (
    FakeProvider,
    FakeReply,
    FakeSettler,
    PipelineFixture,
    Step,
    steps,
    stream_reply,
    whole_reply,
)
from tollhouse.kernel.errors import ProviderUnavailable, TollhouseError

PROVIDER_ENDS = [
    "whole",
    "text",
    "tools",
    "usage twice",
    "no done",
    "no usage",
    "an error",
    "broken",
    "garbage",
    "big",
    "unreachable",
    "refused",
    "limited",
    "ambiguous",
    "bug",
]
SOAKED = 200_000 if os.environ.get("SOAK_DOSE") == "full" else 1_500

BIG = replies.chunk({"content": "x" * 300_000})
"""More than the buffer between producer and reader holds."""


@dataclass(frozen=True)
class Plan:
    """How one run goes."""

    stream: bool
    answers: list[str]
    drains: list[bool]
    waits: list[int]
    """Before which of its steps each reply waits for a `provider` event."""
    idempotent: bool
    books_break: bool
    slow_close: bool
    events: list[str]


PLANS = st.builds(
    Plan,
    stream=st.booleans(),
    answers=st.lists(st.sampled_from(PROVIDER_ENDS), min_size=1, max_size=3),
    drains=st.lists(st.booleans(), min_size=3, max_size=3),
    waits=st.lists(st.integers(0, 6), max_size=3),
    idempotent=st.booleans(),
    books_break=st.sampled_from([False, False, False, True]),
    slow_close=st.booleans(),
    events=st.lists(
        st.sampled_from(
            ["tick", "tick", "provider", "provider", "read", "abandon", "interrupt", "settle"]
        ),
        max_size=14,
    ),
)


IN_PLACE = {"an error", "garbage"}


@dataclass
class Gates:
    """Everything that waits for the schedule."""

    provider: list[asyncio.Event] = field(default_factory=list)
    books: asyncio.Event = field(default_factory=asyncio.Event)

    def new(self) -> asyncio.Event:
        self.provider.append(asyncio.Event())
        return self.provider[-1]

    def release_one(self) -> None:
        for gate in self.provider:
            if not gate.is_set():
                gate.set()
                return

    def release_all(self) -> None:
        self.books.set()
        for gate in self.provider:
            gate.set()


def answer(kind: str, *, stream: bool) -> FakeReply | BaseException:
    errors: dict[str, BaseException] = {
        "unreachable": ProviderUnavailable("x", provider_name="Acme"),
        "refused": failure("Acme", 400),
        "limited": failure("Acme", 429, retry_after=3),
        "ambiguous": ProviderUnavailable("x", provider_name="Acme", ambiguous=True),
        "bug": RuntimeError("x"),
    }
    if kind in errors:
        return errors[kind]
    cut = ProviderUnavailable("cut", provider_name="Acme", ambiguous=True)
    if not stream:
        bad: dict[str, list[Step]] = {
            "an error": [json.dumps({"error": {"message": "x"}}).encode()],
            "broken": [b"{", cut],
            "garbage": [b"garbage"],
            "no usage": list(whole_reply(usage=None).body),
        }
        return FakeReply(bad.get(kind, list(whole_reply().body)))
    bad = {
        "broken": [replies.chunk({"content": "a"}), cut],
        "garbage": [replies.chunk({"content": "a"}), b"data: garbage\n\n"],
        "big": [BIG, BIG, replies.chunk({}, "stop"), replies.DONE],
    }
    return (
        FakeReply(bad[kind]) if kind in bad else stream_reply("text" if kind == "whole" else kind)
    )


@dataclass
class Reader:
    """A client that reads when the schedule says so, and remembers how its reply ended."""

    exchange: ReplyBuffer
    got: bytes = b""
    error: TollhouseError | None = None
    ended: bool = False
    _task: asyncio.Task[None] | None = None

    def read(self) -> None:
        if not self.ended and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            piece = await self.exchange.read()
        except TollhouseError as error:
            self.error, self.ended = error, True
            return
        self.got += piece
        self.ended = not piece


async def run(plan: Plan) -> tuple[PipelineFixture, Reader, list[FakeReply], bool]:
    gates = Gates()
    answers = [answer(kind, stream=plan.stream) for kind in plan.answers]
    providers: list[FakeProvider] = []
    for each, drain in zip(answers, plan.drains, strict=False):
        if isinstance(each, FakeReply):
            for at in sorted(plan.waits, reverse=True):
                each.body.insert(at, gates.new())
            each.closing = gates.new() if plan.slow_close else None
        accepts = gates.new() if plan.waits else None
        on_disconnect = "drain" if drain else "cancel"
        providers.append(FakeProvider(each, accepts=accepts, on_disconnect=on_disconnect))  # type: ignore[arg-type]
    books = FakeSettler(ready=gates.books, broken=OSError("x") if plan.books_break else None)
    w = PipelineFixture(providers, books, idempotent=plan.idempotent)
    reader = Reader(w.begin(stream=plan.stream))
    happens: dict[str, Callable[[], None]] = {
        "tick": lambda: None,
        "provider": gates.release_one,
        "read": reader.read,
        "abandon": reader.exchange.client_left,
        "interrupt": w.pipeline.interrupt_all,
        "settle": gates.books.set,
    }
    for name in plan.events:
        happens[name]()
        # No step at all between some events: they fall into the same turn of the loop.
        if name != "abandon":
            await asyncio.sleep(0)
        if name == "tick":
            await steps()
    gates.release_all()
    for _ in range(60):
        reader.read()
        await steps()
        if reader.ended and not w.in_flight:
            break
    return (
        w,
        reader,
        [each for each in answers if isinstance(each, FakeReply)],
        "abandon" in plan.events,
    )


def accepted(plan: Plan, w: PipelineFixture) -> int:
    """Return how many providers took the request.

    An error or other words with a status of success, in place of a whole reply, took nothing.
    """
    answered = zip(w.providers, plan.answers, strict=True)
    return sum(each.accepted for each, kind in answered if plan.stream or kind not in IN_PLACE)


def check(plan: Plan) -> None:
    w, reader, given_replies, abandoned = asyncio.run(run(plan))
    # The reader always gets an end, and nothing goes on behind it.
    assert reader.ended
    assert (w.in_flight, len(w.admission.holding)) == (0, 0)
    # Booked at most once; exactly once if work may have been done.
    assert len(w.settler.records) <= 1
    if accepted(plan, w) or w.ambiguous:
        assert len(w.settler.records) == 1
    assert reader.exchange.booked == bool(w.settler.booked)
    # Every reply that a provider began is closed: once, or again where the end of everything comes
    # while words in place of a reply are let go.
    begun = [each.accepted for each in w.providers if isinstance(each.answer, FakeReply)]
    closed = [each.closed for each in given_replies]
    assert closed == begun or (not plan.stream and IN_PLACE & set(plan.answers))
    assert [each > 0 for each in closed] == [each > 0 for each in begun]
    # A provider after one that took the request was never asked.
    asked = [len(provider.calls) for provider in w.providers]
    assert asked == sorted(asked, reverse=True)
    assert accepted(plan, w) <= 1
    for record in w.settler.records:
        assert record.id == reader.exchange.generation_id
        assert record.cost_nano <= (record.provider_cost_nano or 0)
        if record.finish_reason == "error" or record.cost_state == CostState.UNKNOWN:
            assert record.cost_nano == 0
        assert abandoned or not record.cancelled
    check_reply(plan, w, reader)


def check_reply(plan: Plan, w: PipelineFixture, reader: Reader) -> None:
    if reader.exchange.abandoned:
        return
    if reader.error is not None:
        assert reader.got == b""
        return
    if plan.stream:
        whole = not check_stream(reader.got).failed
    else:
        assert json.loads(reader.got)["id"] == reader.exchange.generation_id
        whole = True
    if whole:
        # A reply that was received whole is in the books.
        assert len(w.settler.booked) == 1


@settings(deadline=None, max_examples=100)
@given(PLANS)
@example(Plan(True, ["no usage"], [False] * 3, [], False, False, False, ["provider", "abandon"]))  # noqa: FBT003
def test_any_schedule_ends_well(plan: Plan) -> None:
    check(plan)


@pytest.mark.soak
@pytest.mark.timeout(0)
@settings(deadline=None, max_examples=SOAKED, database=None)
@given(PLANS)
def test_any_schedule_of_many_ends_well(plan: Plan) -> None:
    check(plan)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("drain", [False, True])
@pytest.mark.parametrize("event", ["abandon", "interrupt"])
def test_an_end_after_any_number_of_steps_is_an_end(
    event: str,
    drain: bool,  # noqa: FBT001
    stream: bool,  # noqa: FBT001
) -> None:
    for before in range(12):
        for after in ([], ["interrupt"], ["read", "interrupt", "abandon"]):
            check(
                Plan(
                    stream=stream,
                    answers=["unreachable", "text"],
                    drains=[drain, drain, drain],
                    waits=[0, 2],
                    idempotent=False,
                    books_break=False,
                    slow_close=True,
                    events=[*["provider"] * before, event, *after],
                )
            )
