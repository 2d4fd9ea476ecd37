"""A deeply nested request is refused or passed on, wherever its depth is, and never a fault."""

from __future__ import annotations

import json
import re
import traceback
from typing import TYPE_CHECKING

import pytest

from tests.support.seams.accounting import FREE
from tests.support.seams.inference import FORMATS, Endpoint, estimate_demand, read_object
from tests.unit.inference.formats.large_inputs import large, shapes
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDPOINT = Endpoint("acme", "large-2026", FREE)


def deep_bodies(depth: int) -> Iterator[tuple[str, bytes]]:
    """Yield requests in each of which one value is deeply nested."""
    deep = b"[" * depth + b"]" * depth
    for path, known in shapes("requests").items():
        for shape in known:
            body = json.dumps(large("requests", path, shape, 2), separators=(",", ":")).encode()
            # Each value behind a colon, and each that begins a list.
            for value in re.finditer(rb'(?<=":)(?:"[^"]*"|[0-9]+)|(?<=:\[)"[^"]*"', body):
                yield path, body[: value.start()] + deep + body[value.end() :]


def deepest() -> int:
    """Return the maximum depth that the first decoder accepts."""
    return next(depth for depth in range(5_000, 0, -1) if is_read(depth))


def is_read(depth: int) -> bool:
    try:
        read_object(b'{"a":' + b"[" * depth + b"]" * depth + b"}")
    except Invalid:
        return False
    return True


@pytest.mark.parametrize("less", [-4_000, 4, 12, 20, 40, 900])
def test_a_deeply_nested_request_is_rejected_or_passed_on(less: int) -> None:
    outcomes = {outcome(path, body) for path, body in deep_bodies(max(deepest() - less, 50))}
    assert outcomes <= {"refused", "passed on"}


def outcome(path: str, body: bytes) -> str:
    try:
        parsed = FORMATS[path].parse(body, {}, b"")
        estimate_demand(parsed.request, body)
        for adapter in parsed.values():
            adapter.render_request(body, ENDPOINT)
            adapter.unsupported_parameters(ENDPOINT)
    except Invalid:
        return "refused"
    except RecursionError as error:
        return f"failed: {traceback.extract_tb(error.__traceback__)[-1]}"
    return "passed on"
