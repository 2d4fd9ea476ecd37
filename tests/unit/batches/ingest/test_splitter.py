"""The splitter against a plain JSON parser, whatever comes and in whatever pieces."""

import json
import random
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

import pytest

from tests.support.seams.batches import (
    LARGEST_ENVELOPE,
    MalformedBatch,
    Splitter,
    SubmittedItem,
    TooLarge,
)
from tollhouse.kernel.json_text import replace_lone_surrogates

DOCUMENTS_IN_TEST = 300
DOCUMENTS_IN_SOAK = 5_000
DOCUMENTS_DAMAGED = 1_500
LARGEST_BODY = 100_000
PIECES = (1, 2, 7, 64, 1_000, 1 << 30)
WINDOWS = (1, 30, 100, 1_000, 1 << 20)
AWKWARD = (
    *('"custom_id"', '},{"custom_id":', "}]", "\\", '"', "[", "{", ",", "\0", "\n"),
    *("é", "\u2028", "\U0001f600", "plain words", "7"),
)
NAMES = ("custom_id", "body", "requests", "messages", "a", "")
NUMBERS = (0, -1, 0.5, 1e-7, 1e300, 10**400, True, False, None)


class Documents:
    """Draws batches of every layout, with texts that look like the structure around them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def text(self) -> str:
        return "".join(self.random.choices(AWKWARD, k=self.random.randrange(4)))

    def value(self, depth: int = 3) -> Any:
        kind = self.random.randrange(4 if depth else 2)
        if kind == 0:
            return self.random.choice(NUMBERS)
        if kind == 1:
            return self.text()
        count = self.random.randrange(4)
        if kind == 2:
            return [self.value(depth - 1) for _ in range(count)]
        return self.object(depth, count)

    def object(self, depth: int, count: int) -> dict[str, Any]:
        return {self.name(): self.value(depth - 1) for _ in range(count)}

    def name(self) -> str:
        return self.random.choice(NAMES) + self.random.choice(("", "", self.text()))

    def shuffled(self, fields: dict[str, Any]) -> dict[str, Any]:
        return dict(self.random.sample(list(fields.items()), len(fields)))

    def item(self) -> dict[str, Any]:
        fields = {"custom_id": self.text(), "body": self.object(4, self.random.randrange(4))}
        if self.random.random() < 0.2:
            fields["more"] = self.value()
        return self.shuffled(fields) if self.random.random() < 0.3 else fields

    def document(self) -> bytes:
        fields: dict[str, Any] = {
            "requests": [self.item() for _ in range(self.random.randrange(13))]
        }
        for _ in range(self.random.randrange(4)):
            fields.setdefault(self.name(), self.value())
        indent = self.random.choice((None, None, 1))
        separators = self.random.choice(((",", ":"), (", ", ": "), (" ,\n", "\t:\r")))
        text = json.dumps(
            self.shuffled(fields),
            ensure_ascii=self.random.random() < 0.5,
            indent=indent,
            separators=separators,
        )
        return text.encode()


def split(
    document: bytes, piece: int = 1 << 30, window: int = 1 << 20
) -> tuple[Sequence[SubmittedItem], Mapping[str, bytes]]:
    """Return the items and the envelope of a document that comes in pieces of a size."""
    splitter = Splitter(largest_body=LARGEST_BODY, window=window)
    found: list[SubmittedItem] = []
    for begin in range(0, len(document), piece):
        found += splitter.feed(document[begin : begin + piece])
    found += splitter.end()
    assert splitter.count == len(found)
    return found, splitter.envelope


def agrees(document: bytes, piece: int, window: int) -> None:
    whole = {"requests": [], **json.loads(replace_lone_surrogates(document))}
    found, envelope = split(document, piece, window)
    assert [item.number for item in found] == list(range(len(whole["requests"])))
    assert [(item.custom_id, json.loads(item.body)) for item in found] == [
        (each["custom_id"], each["body"]) for each in whole.pop("requests")
    ]
    assert {name: json.loads(value) for name, value in envelope.items()} == whole


def check_documents(first_seed: int, count: int) -> None:
    for seed in range(first_seed, first_seed + count):
        drawn = Documents(seed)
        document = drawn.document()
        agrees(document, drawn.random.choice(PIECES), drawn.random.choice(WINDOWS))


def test_it_reads_what_a_plain_parser_reads() -> None:
    check_documents(0, DOCUMENTS_IN_TEST)


@pytest.mark.soak
def test_it_reads_what_a_plain_parser_reads_in_many_documents(soak_factor: int) -> None:
    check_documents(random.randrange(1 << 60), DOCUMENTS_IN_SOAK * soak_factor)


def test_a_damaged_document_is_refused_or_read_as_a_plain_parser_reads_it() -> None:
    refused = 0
    for seed in range(DOCUMENTS_DAMAGED):
        drawn = Documents(seed)
        document = drawn.document()
        at, damage = drawn.random.randrange(len(document)), drawn.random.randrange(3)
        damaged = document[:at] + drawn.random.randbytes(damage) + document[at + 1 :]
        window = drawn.random.choice(WINDOWS)
        try:
            split(damaged, 64, window)
        except MalformedBatch:
            refused += 1
        else:
            agrees(damaged, 64, window)
    assert refused > DOCUMENTS_DAMAGED / 2


def batch(*entries: str, before: str = "", after: str = "") -> bytes:
    return f'{{{before}"requests": [{", ".join(entries)}]{after}}}'.encode()


def entry(custom_id: str = "a", body: str = "{}") -> str:
    return json.dumps({"custom_id": custom_id, "body": json.loads(body)})


@pytest.mark.parametrize("window", [1, 1 << 20])
@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"", "the body has to be a JSON object, the body ends (byte 0)"),
        (b"[1]", "the body has to be a JSON object (byte 0)"),
        (b"{1: 2}", "the name of a field has to be a string (byte 2)"),
        (b'{"model" 1}', "model: no colon follows (byte 9)"),
        (b'{"model": 1 "x": 2}', "model: no comma or brace follows (byte 12)"),
        (b'{"model": 1, "model": 2}', "model: stands twice in the body"),
        (b'{"requests": [], "requests": []}', "requests: stands twice in the body"),
        (b'{"model": 1} {', "something follows the body's end (byte 13)"),
        (b'{"model": NaN}', "model: JSON is malformed: invalid character (byte 0)"),
        (b'{"model": "\xff"}', "model: not valid UTF-8 at its byte 1"),
        (b'{"requests": {}}', "requests: has to be an array (byte 13)"),
        (batch("1"), "requests[0]: Expected `object`, got `int`"),
        (batch(entry(), '{"body": {}}'), "requests[1]: Object missing required field `custom_id`"),
        (batch(entry(), '{"custom_id": "b"}'), "requests[1]: Object missing required field `body`"),
        (
            batch(entry(), entry(), '{"custom_id": 7, "body": {}}'),
            "requests[2].custom_id: Expected `str`, got `int`",
        ),
        (batch(entry(), '{"custom_id": "b", "body": []}'), "requests[1].body: has to be an object"),
        (batch(entry(), entry())[:-2], "requests[1]: no comma or bracket follows, the body ends"),
        (batch(entry(), entry())[:-4], "requests[1]: the body ends in the middle of it (byte"),
        (batch(entry(), "nil"), "requests[1]: the body ends in the middle of it"),
        (
            batch(entry(), '{"custom_id": "b", "body": {"a" 1, "b": "long enough to be certain"}}'),
            "requests[1]: Expecting ':' delimiter",
        ),
        (batch(entry()).replace(b"{}", b'{"a": "\xff"}'), "requests[0]: not valid UTF-8"),
        (
            batch(entry("\ud800")),
            "requests[0].custom_id: holds half of a character (a lone surrogate)",
        ),
        (batch(entry() + " " + entry()), "requests[0]: no comma or bracket follows"),
        (
            batch(entry(), '{"custom_id": "b", "body": {"a":' + "[" * 2_000 + "]" * 2_000 + "}}"),
            "requests[1]: nested too deeply",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(document: bytes, message: str, window: int) -> None:
    with pytest.raises(MalformedBatch) as refused:
        split(document, window=window)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("window", [1, 40, 1 << 20])
def test_a_body_that_ends_anywhere_too_early_is_refused(window: int) -> None:
    document = batch(entry("a"), entry("b"), before='"model": "m", ', after=', "x": [1]')
    for end in range(len(document)):
        for piece in (1, 1_000):
            with pytest.raises(MalformedBatch, match=r"the body ends|has to be|must be"):
                split(document[:end], piece, window)


def test_an_error_is_told_before_the_body_has_ended() -> None:
    splitter = Splitter(largest_body=LARGEST_BODY, window=100)
    splitter.feed(b'{"requests": [' + entry().encode())
    with pytest.raises(MalformedBatch, match=r"requests\[1\]: Expecting property name"):
        splitter.feed(b", {,}" + b" " * 200)


def test_a_body_that_is_too_large_is_named() -> None:
    large = entry("b", json.dumps({"text": "x" * LARGEST_BODY}))
    with pytest.raises(
        TooLarge, match=r"requests\[1\]\.body: has 100012 bytes; 100000 are allowed"
    ):
        split(batch(entry(), large))


def test_an_item_without_an_end_does_not_gather_in_memory() -> None:
    splitter = Splitter(largest_body=LARGEST_BODY, window=1_000)
    splitter.feed(b'{"requests": [{"custom_id": "a", "body": {"text": "')
    splitter.feed(b"x" * (LARGEST_BODY + 1_000_000))
    with pytest.raises(TooLarge, match=r"requests\[0\]: has more than 1148576 bytes"):
        splitter.feed(b"x" * 100_000)


def test_a_long_item_in_small_pieces_is_looked_through_a_few_times() -> None:
    document = batch(entry(body=json.dumps({"messages": "a" * (LARGEST_BODY // 2)})))
    look, looks = json.JSONDecoder.raw_decode.__code__, 0

    def note(frame: FrameType, event: str, _arg: object) -> None:
        nonlocal looks
        looks += event == "call" and frame.f_code is look

    sys.setprofile(note)
    try:
        assert len(split(document, 50, 1_000)[0]) == 1
    finally:
        sys.setprofile(None)
    assert 1 < looks < 100


def test_an_envelope_that_is_too_large_is_refused() -> None:
    field = f'"note": "{"x" * LARGEST_ENVELOPE}", '
    with pytest.raises(TooLarge, match=r"note: has more than|fields beside requests have more"):
        split(batch(entry(), before=field))


def test_items_come_before_the_body_has_ended() -> None:
    splitter = Splitter(largest_body=LARGEST_BODY, window=100)
    found = splitter.feed(b'{"requests": [' + b", ".join([entry().encode()] * 10))
    assert 5 < len(found) < 10
