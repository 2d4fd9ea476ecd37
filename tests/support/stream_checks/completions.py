"""Checks that a completions stream is legal, without any code of the gateway."""

import json
from dataclasses import dataclass
from typing import Any

from tests.support.stream_checks.chat import until_done


@dataclass(frozen=True)
class CheckedStream:
    """The content of a legal stream."""

    chunks: list[dict[str, Any]]
    """Every chunk; the last has the usage or the error."""

    @property
    def last(self) -> dict[str, Any]:
        return self.chunks[-1]

    @property
    def failed(self) -> bool:
        return "error" in self.last

    @property
    def choices(self) -> list[dict[str, Any]]:
        return [choice for chunk in self.chunks for choice in chunk["choices"]]

    @property
    def text(self) -> str:
        return "".join(choice["text"] for choice in self.choices)


def check_stream(stream: bytes) -> CheckedStream:
    """Return the content of a complete stream.

    Raises:
        AssertionError: The stream is not legal.
    """
    *events, end = stream.split(b"\n\n")
    assert end == b"", "something follows the last event"
    assert all(event.startswith(b"data: ") and b"\n" not in event for event in events)
    data, behind = until_done([event.removeprefix(b"data: ") for event in events])
    chunks = [json.loads(each) for each in data]
    assert behind == ([{"error": chunks[-1]["error"]}] if "error" in chunks[-1] else [])
    if behind:
        assert chunks.pop() == chunks[-1] | {"choices": []}
    assert all(chunk["object"] == "text_completion" for chunk in chunks)
    assert len({(chunk["id"], chunk["model"]) for chunk in chunks}) == 1
    assert not any("error" in chunk or "usage" in chunk for chunk in chunks[:-1])
    assert ("error" in chunks[-1]) != ("usage" in chunks[-1])
    return CheckedStream(chunks)
