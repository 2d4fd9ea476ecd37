"""Checks every cell of the tables in docs/formats.md against the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest

from tests.support.seams.accounting import FREE, charge_for
from tests.support.seams.formats import Asked
from tests.support.seams.inference import (
    CHAT_PROVIDER,
    MESSAGES_PROVIDER,
    RESPONSES_PROVIDER,
    Block,
    CanonicalRequest,
    CanonicalResponse,
    CanonicalToolChoice,
    Choice,
    Dialect,
    Endpoint,
    EventParser,
    JsonOutput,
    ReplyIdentity,
    ThinkingOptions,
    ToolDefinition,
    Turn,
)
from tests.support.stream_folding import encoded, folded, streamed
from tests.unit.inference.formats.features import features, outcome_of
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.seams.inference import AdaptedResponse, AdaptedStream
    from tests.unit.inference.formats.features import Body, Feature

PLAIN_REQUESTS, REQUESTS = features("requests")
_, REPLIES = features("replies")
PAGE = (Path(__file__).parents[4] / "docs/formats.md").read_text()
PATHS = {
    "chat": "/chat/completions",
    "responses": "/responses",
    "messages": "/messages",
    "completions": "/completions",
}
PROVIDER_FORMATS = {
    "chat": CHAT_PROVIDER,
    "responses": RESPONSES_PROVIDER,
    "messages": MESSAGES_PROVIDER,
}
DIALECTS: dict[str, Dialect] = {
    name: provider_format.dialect for name, provider_format in PROVIDER_FORMATS.items()
}
PAIRS = [(client, dialect) for client in PATHS for dialect in PROVIDER_FORMATS if client != dialect]
ENDPOINT = Endpoint(provider="acme", model="large-2026", price=FREE)
IDENTITY = ReplyIdentity(id="gen-1", model="acme/large", provider="Acme", created=1700000000)
CELL = re.compile(r"(kept|changed|dropped|refused|-)(?: \((\d+)\))?")
Row = dict[tuple[str, str], str]


def table(title: str) -> dict[str, Row]:
    """Return the cells of the table with this title, by row and pair of formats."""
    after = PAGE[PAGE.index(f"| {title} |") :]
    lines = after.partition("\n\n")[0].splitlines()
    heading, _, *rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    pairs = [tuple(column.split(" → ")) for column in heading[1:]]
    assert pairs == PAIRS
    return {name: dict(zip(PAIRS, cells, strict=True)) for name, *cells in rows}


def words(row: Row) -> Row:
    return {pair: cell.partition(" (")[0] for pair, cell in row.items()}


ASKED, ANSWERED = table("Request"), table("Reply")


@pytest.mark.parametrize("name", REQUESTS)
def test_request_features_are_translated_as_documented(name: str) -> None:
    found = {pair: _asked(REQUESTS[name], *pair) for pair in PAIRS}

    assert words(ASKED[name]) == found


@pytest.mark.parametrize("name", REPLIES)
def test_reply_features_are_translated_as_documented(name: str) -> None:
    feature = REPLIES[name]

    if feature.whole:
        assert words(ANSWERED[name]) == {pair: _whole(feature, *pair) for pair in PAIRS}
    if feature.streamed:
        assert words(ANSWERED[name]) == {pair: _streamed(feature, *pair) for pair in PAIRS}


def test_every_row_has_a_test() -> None:
    assert [*ASKED] == [*REQUESTS]
    assert [*ANSWERED] == [*REPLIES]


@pytest.mark.parametrize("cells", [ASKED, ANSWERED], ids=["requests", "replies"])
def test_every_cell_is_a_known_term_and_every_change_has_a_note(cells: Any) -> None:
    for name, row in cells.items():
        for pair, cell in row.items():
            match = CELL.fullmatch(cell)
            assert match, (name, pair, cell)
            assert match[2] or match[1] != "changed", (name, pair, "has no note")


def test_every_note_exists_and_is_used() -> None:
    used = {int(match) for match in re.findall(r"(?:kept|changed|dropped|refused) \((\d+)\)", PAGE)}
    list_of_notes = PAGE.partition("### Notes")[2]
    notes = [int(number) for number in re.findall(r"^(\d+)\. ", list_of_notes, re.MULTILINE)]

    assert notes == list(range(1, len(notes) + 1))
    assert used == set(notes)


def test_every_canonical_field_has_a_row() -> None:
    carriers = (
        *(
            Turn,
            CanonicalRequest,
            ToolDefinition,
            CanonicalToolChoice,
            JsonOutput,
            ThinkingOptions,
            CanonicalResponse,
            Choice,
        ),
        *get_args(Block),
    )
    carried = {f"{each.__name__}.{name}" for each in carriers for name in each.__struct_fields__}
    features = (*REQUESTS.values(), *REPLIES.values())

    assert {name for feature in features for name in feature.covers} == carried


def test_every_supported_parameter_has_a_row() -> None:
    known = {feature.parameter for feature in REQUESTS.values()}

    assert (
        frozenset[str]().union(
            *(provider_format.supported_parameters for provider_format in PROVIDER_FORMATS.values())
        )
        <= known
    )


@pytest.mark.parametrize("dialect", PROVIDER_FORMATS)
def test_supported_parameters_are_those_that_the_table_keeps(dialect: str) -> None:
    kept = {
        feature.parameter
        for name, feature in REQUESTS.items()
        for (_, target), word in words(ASKED[name]).items()
        if feature.parameter and target == dialect and word in {"kept", "changed"}
    }

    assert kept == PROVIDER_FORMATS[dialect].supported_parameters


@pytest.mark.parametrize("name", [name for name, feature in REQUESTS.items() if feature.parameter])
def test_a_parameter_that_the_dialect_lacks_is_unsupported(name: str) -> None:
    feature = REQUESTS[name]
    for client, dialect in PAIRS:
        if client in feature.says:
            adapter = _adapter(client, dialect, feature.says[client])
            lost = feature.parameter in adapter.unsupported_parameters(ENDPOINT)
            assert lost == (
                feature.parameter not in PROVIDER_FORMATS[dialect].supported_parameters
            ), (
                client,
                dialect,
            )


def _asked(feature: Feature, client: str, dialect: str) -> str:
    if client not in feature.says:
        return "-"
    try:
        body = _provider_body(client, dialect, feature.says[client])
    except Invalid:
        return "refused"
    plain = _provider_body(client, dialect, feature.plain[client])
    return outcome_of(feature, client, dialect, body, plain)


def _provider_body(client: str, dialect: str, body: Body) -> Body:
    return json.loads(_adapter(client, dialect, body).render_request(ENDPOINT))


def _adapter(client: str, dialect: str, body: Body) -> Asked:
    return Asked(PATHS[client], DIALECTS[dialect], encoded(body))


def _whole(feature: Feature, client: str, dialect: str) -> str:
    if client not in feature.clients or dialect not in feature.says:
        return "-"
    adapter = _answered(feature, client, dialect)
    body, plain = (_whole_of(adapter, each[dialect]) for each in (feature.says, feature.plain))
    return outcome_of(feature, dialect, client, body, plain)


def _streamed(feature: Feature, client: str, dialect: str) -> str:
    if client not in feature.clients or dialect not in feature.says:
        return "-"
    adapter = _answered(feature, client, dialect)
    events = feature.streams.get(dialect) or streamed(dialect, feature.says[dialect])
    plain = streamed(dialect, feature.plain[dialect])
    body = folded(client, _stream_of(adapter, events))
    return outcome_of(feature, dialect, client, body, folded(client, _stream_of(adapter, plain)))


def _answered(feature: Feature, client: str, dialect: str) -> Asked:
    return _adapter(client, dialect, {**PLAIN_REQUESTS[client], **feature.asks.get(client, {})})


def _whole_of(adapter: Asked, body: Body) -> Body:
    whole = adapter.parse_response(encoded(body))
    return json.loads(whole.render(IDENTITY, _charge(whole)))


def _stream_of(adapter: Asked, events: Iterable[Body]) -> list[Body]:
    stream = adapter.open_stream(IDENTITY)
    said = b"".join([stream.feed(encoded(event)) for event in events])
    assert stream.done or stream.complete
    given = EventParser().feed(said + stream.end(_charge(stream)))
    return [json.loads(data) for data in given if data != b"[DONE]"]


def _charge(reading: AdaptedResponse | AdaptedStream) -> Any:
    reason = reading.finish_reason
    return charge_for(reading.reported, reading.seen, FREE, finish_reason=reason, broken_off=False)
