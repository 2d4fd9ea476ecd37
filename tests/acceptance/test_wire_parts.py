"""Images and documents, as clients write them and as a provider takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.wire import said
from tests.support.scripted_providers import reply

if TYPE_CHECKING:
    from tests.acceptance.wire import Wire

JPEG, PNG, PDF = "/9j/4AAQ", "iVBORw0KGgoA", "JVBERi0xLjQK"
IN_CHAT = [
    (f"data:image/jpg;base64,{JPEG}", "image/jpeg", JPEG),
    (f"data:IMAGE/JPEG;base64,{JPEG}", "image/jpeg", JPEG),
    (f"data:image/x-png;base64,{PNG}", "image/png", PNG),
    (f"data:;base64,{PNG}", "image/png", PNG),
    (f"data:application/octet-stream;base64,{JPEG}", "image/jpeg", JPEG),
    (f"data:image/webp;base64,{JPEG}", "image/jpeg", JPEG),
]


def part_for_messages(wire: Wire, form: str, **fields: Any) -> Any:
    """Return what a provider of messages gets as the last part of a request."""
    wire.providers.say("messages", reply(said("messages", "yes")))
    answer = wire.ask("t/messages", form, **fields)
    assert answer.status_code == 200, answer.text
    [asked] = wire.providers.asked("messages")
    return asked["messages"][0]["content"][-1]


def from_user(part: dict[str, Any]) -> list[Any]:
    return [{"role": "user", "content": [{"type": "text", "text": "see"}, part]}]


@pytest.mark.parametrize(("url", "media_type", "data"), IN_CHAT)
def test_an_image_has_the_type_that_providers_know(
    wire: Wire, url: str, media_type: str, data: str
) -> None:
    part = {"type": "image_url", "image_url": {"url": url}}
    shown = part_for_messages(wire, "/chat/completions", messages=from_user(part))
    assert shown["source"] == {"type": "base64", "media_type": media_type, "data": data}


@pytest.mark.parametrize(
    ("file_data", "source"),
    [
        (PDF, {"type": "base64", "media_type": "application/pdf", "data": PDF}),
        (
            f"data:application/x-pdf;base64,{PDF}",
            {"type": "base64", "media_type": "application/pdf", "data": PDF},
        ),
        ("https://acme.example/a.pdf", {"type": "url", "url": "https://acme.example/a.pdf"}),
    ],
)
def test_a_document_may_come_as_bare_base64(
    wire: Wire, file_data: str, source: dict[str, str]
) -> None:
    part = {"type": "file", "file": {"filename": "a.pdf", "file_data": file_data}}
    shown = part_for_messages(wire, "/chat/completions", messages=from_user(part))
    assert shown["source"] == source
    item = {"type": "input_file", "filename": "a.pdf", "file_data": file_data}
    asked = [{"role": "user", "content": [{"type": "input_text", "text": "see"}, item]}]
    assert part_for_messages(wire, "/responses", input=asked)["source"] == source
