"""What a completion says of its end."""

import pytest

from tests.unit.inference.formats.completions_stream_checks import check_stream
from tollhouse.inference.formats.completions.writer import CompletionsWriter, render_text
from tollhouse.inference.formats.hub.events import Finished
from tollhouse.inference.types import ReplyIdentity
from tollhouse.kernel.errors import Unavailable

IDENTITY = ReplyIdentity("gen-1", "a/b", "a", 0)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "stop"),
    ],
)
def test_it_ends_for_one_of_the_reasons_that_the_format_has(reason: str, told: str) -> None:
    assert render_text(0, "said", reason)["finish_reason"] == told


def test_a_stream_does_the_same() -> None:
    writer = CompletionsWriter({}, IDENTITY)
    stream = writer.write(Finished(0, "tool_calls")) + writer.fail(Unavailable("gone"))
    assert check_stream(stream).choices[0]["finish_reason"] == "stop"
