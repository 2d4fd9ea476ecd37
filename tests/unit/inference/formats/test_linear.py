"""The work of a translation grows linearly with its input, whatever the input consists of.

The work is measured at a size and at eight times that size. Linear work takes eight times as much
(an exponent of 1), quadratic work 64 times (2). In the gate it is counted in calls of functions,
Python's own included. The soak takes this thread's CPU time, which knows of copies, too. What other
programs do can only make that longer, so a time that seems too long is taken again, and the
shortest counts. A large input that no longer fits a processor's cache was seen to take up to 1.36
on linear work, so the limit of times lies in the middle.
"""

from __future__ import annotations

import gc
import json
import math
import sys
from dataclasses import dataclass
from time import thread_time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.seams.accounting import FREE, Charge, CostState, Usage
from tests.support.seams.formats import Asked
from tests.support.seams.identity import AccessPolicy
from tests.support.seams.inference import (
    FORMATS,
    Behaviour,
    Dialect,
    Endpoint,
    EventParser,
    InvalidSimulatedRequest,
    ReplyIdentity,
    estimate_demand,
    estimate_raw_demand,
    event,
    plan_reply,
    policy_filter,
    render_chunks,
    render_completion,
)
from tests.unit.inference.formats.large_inputs import large, shapes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.seams.inference import Adapters

    Work = Callable[[], object]

TIMES = 8
TRIES = 6
ITEMS = 200
EVENTS = 100
RUN = 1_500
"""Shapes that need more items to reveal a step that copies everything before it."""
ENDPOINT = Endpoint("acme", "large-2026", FREE)
IDENTITY = ReplyIdentity("gen-1", "m", "Acme", 1)
CHARGE = Charge(CostState.UNKNOWN, Usage(), 0, None, None)
DIALECTS = {
    "chat": Dialect.CHAT,
    "responses": Dialect.RESPONSES,
    "messages": Dialect.MESSAGES,
}


@dataclass(frozen=True)
class Dose:
    """How much work is measured, and how."""

    measure: Callable[[Work], float]
    most: float
    """The exponent that is too much."""
    factor: float
    tries: int

    def grows(self, work: Callable[[int], Work], size: int) -> float:
        """Return the exponent of the work: 1 if it is linear in the size."""
        small = int(size * self.factor)
        pair = work(small), work(small * TIMES)
        least = [math.inf, math.inf]
        exponent = math.inf
        for _ in range(self.tries):
            least = [min(best, self.measure(each)) for best, each in zip(least, pair, strict=True)]
            exponent = math.log(least[1] / least[0], TIMES)
            if exponent < self.most:
                break
        return exponent


def calls(work: Work) -> float:
    """Return how many functions are called."""
    count = 0

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def seconds(work: Work) -> float:
    gc.disable()
    try:
        began = thread_time()
        work()
        return thread_time() - began
    finally:
        gc.enable()


@pytest.fixture(
    params=[
        pytest.param(Dose(calls, 1.2, 1 / 4, 1), id="calls"),
        pytest.param(Dose(seconds, 1.5, 1, TRIES), id="seconds", marks=pytest.mark.soak),
        pytest.param(Dose(seconds, 1.5, 8, TRIES), id="more seconds", marks=pytest.mark.soak),
    ]
)
def dose(request: pytest.FixtureRequest) -> Dose:
    return request.param


def encoded(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def adapters(path: str, body: bytes) -> Adapters:
    return FORMATS[path].parse(body, {}, b"")


def adapter_of(path: str, dialect: Dialect) -> Asked:
    return Asked(path, dialect, encoded(large("requests", path, "plain", 1)))


def dialects(path: str) -> list[Dialect]:
    return list(adapters(path, encoded(large("requests", path, "plain", 1))))


def clients(dialect: Dialect) -> list[str]:
    return [path for path in shapes("requests") if dialect in dialects(path)]


def cases(kind: str) -> list[tuple[str, str]]:
    given = shapes(kind).items()
    return [(form, shape) for form, known in given for shape in known if shape != "plain"]


# Requests


def request_work(path: str, shape: str, dialect: Dialect) -> Callable[[int], Work]:
    def of_size(size: int) -> Work:
        body = encoded(large("requests", path, shape, size))

        def work() -> object:
            adapter = Asked(path, dialect, body)
            return adapter.unsupported_parameters(ENDPOINT), adapter.render_request(ENDPOINT)

        return work

    return of_size


@pytest.mark.parametrize(("path", "shape"), cases("requests"))
def test_a_request_is_rendered_for_every_dialect_in_linear_time(
    path: str, shape: str, dose: Dose
) -> None:
    found = {each: dose.grows(request_work(path, shape, each), ITEMS) for each in dialects(path)}
    assert max(found.values()) < dose.most, found


@pytest.mark.parametrize(
    ("shape", "dialect"), [("function calls", Dialect.CHAT), ("outputs", Dialect.MESSAGES)]
)
def test_consecutive_calls_or_results_are_merged_in_linear_time(
    shape: str, dialect: Dialect, dose: Dose
) -> None:
    assert dose.grows(request_work("/responses", shape, dialect), RUN) < dose.most


@pytest.mark.parametrize(("path", "shape"), cases("requests"))
def test_token_estimates_and_field_lookups_take_linear_time(
    path: str, shape: str, dose: Dose
) -> None:
    policy = AccessPolicy("key", patterns=("@email", "@credit_card", "@iban", "a*zz"))

    def judging(size: int) -> Work:
        body = encoded(large("requests", path, shape, size))
        request = adapters(path, body).request

        def work() -> object:
            weighed = estimate_demand(request, body), estimate_raw_demand(body)
            fields = request.whole(body)
            return weighed, policy_filter.texts(fields), policy_filter.flagged([policy], body)

        return work

    assert dose.grows(judging, ITEMS) < dose.most


@pytest.mark.parametrize("says", ["echo", "calls", "script"])
@pytest.mark.parametrize("shape", [shape for form, shape in cases("requests") if "chat" in form])
def test_a_simulated_response_takes_linear_time(shape: str, says: Any, dose: Dose) -> None:
    def answering(size: int) -> Work:
        body = encoded(large("requests", "/chat/completions", shape, size))

        def work() -> object:
            try:
                said = plan_reply(body, Behaviour("", reply_kind=says))
            except InvalidSimulatedRequest:
                return None
            chunks = [encoded(each) for each in render_chunks("m", said)]
            return encoded(render_completion("m", said)), chunks

        return work

    assert dose.grows(answering, EVENTS) < dose.most


# Responses


@pytest.mark.parametrize(("name", "shape"), cases("replies"))
def test_a_response_is_rendered_in_every_format_in_linear_time(
    name: str, shape: str, dose: Dose
) -> None:
    def answering(path: str) -> Callable[[int], Work]:
        def of_size(size: int) -> Work:
            body = encoded(large("replies", name, shape, size))
            adapter = adapter_of(path, DIALECTS[name])
            return lambda: adapter.parse_response(body).render(IDENTITY, CHARGE)

        return of_size

    found = {path: dose.grows(answering(path), ITEMS) for path in clients(DIALECTS[name])}
    assert max(found.values()) < dose.most, found


def stream_work(name: str, shape: str, path: str) -> Callable[[int], Work]:
    def of_size(size: int) -> Work:
        events = [encoded(each) for each in large("streams", name, shape, size)]
        adapter = adapter_of(path, DIALECTS[name])

        def work() -> object:
            stream = adapter.open_stream(IDENTITY)
            said = [stream.feed(each) for each in events]
            assert stream.complete
            return said, stream.end(CHARGE)

        return work

    return of_size


@pytest.mark.parametrize(("name", "shape"), cases("streams"))
def test_a_stream_is_encoded_in_every_format_in_linear_time(
    name: str, shape: str, dose: Dose
) -> None:
    paths = clients(DIALECTS[name])
    found = {path: dose.grows(stream_work(name, shape, path), EVENTS) for path in paths}
    assert max(found.values()) < dose.most, found


@pytest.mark.parametrize(
    "shape", ["pieces of a call behind a long one", "pieces of two calls in turn"]
)
def test_arguments_are_scanned_once_while_other_calls_arrive(shape: str, dose: Dose) -> None:
    assert dose.grows(stream_work("chat", shape, "/messages"), RUN) < dose.most


# Bytes

WRITTEN: dict[str, Callable[[int], bytes]] = {
    "many events": lambda size: event(b'{"a":"b"}') * size,
    "one long event": lambda size: event(b"a" * 40 * size),
    "an event of many lines": lambda size: b"data: a\n" * size + b"\n",
    "lines without an event": lambda size: b": waiting\n" * size,
}


@pytest.mark.parametrize("at_once", [1, 7, 1_000_000])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("write", WRITTEN.values(), ids=WRITTEN)
def test_events_are_parsed_in_linear_time_for_any_chunking(
    write: Callable[[int], bytes], line_end: bytes, at_once: int, dose: Dose
) -> None:
    def parsing(size: int) -> Work:
        stream = write(size).replace(b"\n", line_end)
        pieces = [stream[at : at + at_once] for at in range(0, len(stream), at_once)]

        def work() -> object:
            parser = EventParser()
            return [parser.feed(piece) for piece in pieces]

        return work

    assert dose.grows(parsing, ITEMS) < dose.most
