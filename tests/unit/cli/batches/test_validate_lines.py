"""Lines of a file, endpoints, and what all lines have to agree on."""

import json

import pytest

from tests.support.seams.batches import MODEL_SUFFIX, BatchEndpoint
from tollhouse.cli.batches.upload import (
    _MODEL_SUFFIX,
    ENDPOINTS,
    MOST_MISTAKES,
    BatchOptions,
    InvalidLine,
    LinesSummary,
    endpoint_option,
    known_endpoint,
    parse_line,
    validate_lines,
)
from tollhouse.kernel.errors import StartError

CHAT = "/v1/chat/completions"


def line(custom_id: str = "a", **more: object) -> bytes:
    return json.dumps({"custom_id": custom_id, "body": {"model": "acme/large"}, **more}).encode()


def surveyed(*lines: bytes, **wishes: object) -> LinesSummary:
    return validate_lines("FILE", enumerate(lines, 1), BatchOptions(**wishes))  # pyright: ignore[reportArgumentType]


def mistakes(*lines: bytes, **wishes: object) -> list[str]:
    with pytest.raises(StartError) as refused:
        surveyed(*lines, **wishes)
    return str(refused.value).splitlines()


def test_the_names_are_those_of_the_slice() -> None:
    assert list(BatchEndpoint) == list(ENDPOINTS)
    assert _MODEL_SUFFIX == MODEL_SUFFIX  # two copies of one fact


@pytest.mark.parametrize(
    "text",
    ["chat/completions", "/v1/chat/completions", "v1/chat/completions", " /chat/completions/"],
)
def test_an_endpoint_is_known_however_it_is_written(text: str) -> None:
    assert endpoint_option(text) == CHAT


@pytest.mark.parametrize("text", ["", "chat", "completions", "/v2/messages", "v1", "https://h/v1"])
def test_another_endpoint_is_refused_with_those_that_there_are(text: str) -> None:
    assert known_endpoint(text) is None
    with pytest.raises(StartError, match="chat/completions, responses, messages, embeddings"):
        endpoint_option(text)


def test_a_line_of_either_format() -> None:
    body = '{"model": "acme/large",  "n": 1.50}'
    plain = parse_line(f'{{"custom_id": "ä", "body": {body}}}'.encode())
    assert (plain.custom_id, plain.endpoint, plain.model) == ("ä", None, "acme/large")
    openai = parse_line(
        f'{{"custom_id":"ä","method":"POST","url":"/v1/responses","body":{body}}}'.encode()
    )
    assert openai.endpoint == "/v1/responses"
    assert openai.item == plain.item == f'{{"custom_id":"ä","body":{body}}}'.encode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ('{"custom_id": "a", "body": {"x": nul}}', "not JSON"),
        ("{} {}", "not JSON"),
        ("7", "not an object"),
        ("{}", "custom_id is missing"),
        ('{"custom_id": null, "body": {}}', "custom_id is missing"),
        ('{"custom_id": "", "body": {}}', "custom_id is empty"),
        ('{"custom_id": 1, "body": {}}', "custom_id has to be a text"),
        ('{"custom_id": "a"}', "body is missing"),
        ('{"custom_id": "a", "body": []}', "body has to be an object"),
        ('{"custom_id": "a", "body": {"model": 1}}', "body.model has to be a text"),
        ('{"custom_id": "a", "body": {}, "method": "GET"}', "method is 'GET'"),
        ('{"custom_id": "a", "body": {}, "url": "/v1/files"}', "url is '/v1/files', none of chat/"),
        ('{"custom_id": "a", "body": {}, "url": 1}', "url has to be a text"),
        ('{"custom_id": "a", "body": ' + '{"a":' * 100_000 + "1" + "}" * 100_001, "too deeply"),
    ],
)
def test_a_line_that_is_no_request_says_why(text: str, said: str) -> None:
    with pytest.raises(InvalidLine, match=said):
        parse_line(text.encode())


def test_a_line_is_utf_8() -> None:
    with pytest.raises(InvalidLine, match="not UTF-8 at its byte 25"):
        parse_line(b'{"custom_id": "a", "b": "\xff", "body": {}}')


def test_the_command_line_says_what_lines_leave_out() -> None:
    found = surveyed(line(body={}), model="acme/small", endpoint="/v1/messages")
    assert (found.model, found.endpoint) == ("acme/small", "/v1/messages")


def test_the_batch_variant_is_the_same_model() -> None:
    assert surveyed(line(), model="acme/large:batch").model == "acme/large:batch"


@pytest.mark.parametrize(
    ("second", "wishes", "said"),
    [
        (line(), {}, "FILE:2: custom_id 'a' is taken by line 1"),
        (line("b", body={}), {}, "FILE:2: body.model is missing"),
        (line("b", body={"model": "x"}), {}, "FILE:2: body.model is 'x', line 1 has 'acme/large'"),
        (line("b", url="/v1/messages"), {"endpoint": CHAT}, "--endpoint says /v1/chat/completions"),
    ],
)
def test_what_contradicts_an_earlier_line_names_both(
    second: bytes, wishes: dict[str, object], said: str
) -> None:
    [found] = mistakes(line(), second, **wishes)
    assert said in found
    assert found.startswith("FILE:2: ")


def test_lines_are_of_one_endpoint() -> None:
    [found] = mistakes(line("a", url=CHAT), line("b", url="/v1/messages"))
    assert found.startswith("FILE:2: url is /v1/messages, line 1 has /v1/chat/completions")


def test_a_model_of_the_command_line_is_that_of_all_lines() -> None:
    [found] = mistakes(line(), model="acme/small")
    assert found.startswith("FILE:1: body.model is 'acme/large', --model says 'acme/small'")


def test_mistakes_are_shown_together_but_not_without_end() -> None:
    assert mistakes(b"{}", line(), b"{") == [
        "FILE:1: custom_id is missing",
        "FILE:3: not JSON: Input data was truncated",
    ]
    many = mistakes(*[b"{}"] * 100)
    assert len(many) == MOST_MISTAKES + 1
    assert many[-1] == "FILE: there may be more"
