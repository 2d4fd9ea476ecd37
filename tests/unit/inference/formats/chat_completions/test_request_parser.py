import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tollhouse.accounting.types import FREE
from tollhouse.inference.formats.chat_completions.passthrough import ChatPassthroughAdapter
from tollhouse.inference.formats.chat_completions.wire import parse_request
from tollhouse.inference.formats.wire import GATEWAY_FIELDS
from tollhouse.inference.types import Endpoint
from tollhouse.kernel.errors import Invalid

ENDPOINT = Endpoint("acme", "b", FREE)
MESSAGES = b'"messages":[{"role":"user","content":"hi"}]'


def refusal(body: bytes) -> str:
    with pytest.raises(Invalid) as caught:
        parse_request(body)
    return caught.value.message


def sent(body: bytes, model: str = "large-2026") -> bytes:
    return ChatPassthroughAdapter(parse_request(body)).render_request(Endpoint("acme", model, FREE))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{%s}" % MESSAGES, "model: this field is required."),
        (b'{"model":"",%s}' % MESSAGES, "model: must not be empty."),
        (b'{"model":null,%s}' % MESSAGES, "model: must be a string."),
        (b'{"model":7,%s}' % MESSAGES, "model: must be a string."),
        (b'{"model":["a"],%s}' % MESSAGES, "model: must be a string."),
        (b'{"model":"a"}', "messages: this field is required."),
        (b'{"model":"a","messages":[]}', "messages: at least one message is required."),
        (b'{"model":"a","messages":null}', "messages: must be a list of messages."),
        (b'{"model":"a","messages":"hi"}', "messages: must be a list of messages."),
        (b'{"model":"a","messages":{"role":"user"}}', "messages: must be a list of messages."),
        (b'{"model":"a","stream":1,%s}' % MESSAGES, "stream: must be true or false."),
        (b'{"model":"a","stream":"true",%s}' % MESSAGES, "stream: must be true or false."),
        (b'{"model":"a","stream":[],%s}' % MESSAGES, "stream: must be true or false."),
    ],
)
def test_a_missing_or_mistyped_field_is_named(body: bytes, message: str) -> None:
    assert refusal(body) == message


@pytest.mark.parametrize("body", [b"[]", b"[1]", b'"text"', b"1", b"true", b"null"])
def test_a_body_that_is_not_an_object_is_rejected(body: bytes) -> None:
    assert refusal(body) == "The body must be a JSON object."


@pytest.mark.parametrize(
    ("body", "position"),
    [
        (b"", 0),
        (b"{", 1),
        (b"hello", 0),
        (b'{"model" "a"}', 9),
        (b'{"model":"a","messages":[1]', 27),
        (b'{"model":"a', 11),
        (b'{"model":"a"}x', 14),  # the decoder names the byte after it
        (b'{"model":"a",}', 13),
        (b"{'model':1}", 1),
        (b'{"x":NaN}', 5),
        (b'{"x":Infinity}', 5),
        (b'{"x":01}', 6),
        (b'{"x":"\n"}', 6),
        (b'{"x":"\\q"}', 7),
        (b"\xef\xbb\xbf{}", 0),
        (b'{"x":"\\ud800 half of a pair"}', 12),
        (b'{"x":"\\udc00 half of a pair"}', 12),
    ],
)
def test_a_body_that_is_not_json_is_rejected_with_the_position(body: bytes, position: int) -> None:
    message = refusal(body)
    assert message.startswith("The body is not valid JSON: ")
    assert message.endswith(f"(byte {position}).")


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"\xff",%s}' % MESSAGES,
        b'{"model":"a","messages":["\xff"]}',
        b'{"\xff":1,"model":"a",%s}' % MESSAGES,
        b'{"model":"a","x":{"y":"\xff"},%s}' % MESSAGES,
        b'{"model":"\xed\xa0\x80",%s}' % MESSAGES,
    ],
)
def test_a_body_that_is_not_utf8_is_rejected(body: bytes) -> None:
    assert "it is not UTF-8 (byte " in refusal(body)


@pytest.mark.parametrize("field", [b'"model"', b'"messages"', b'"stream"', b'"x"', b'"tools"'])
@pytest.mark.parametrize("closed", [True, False])
def test_a_hundred_thousand_levels_of_nesting_are_rejected(field: bytes, *, closed: bool) -> None:
    nested = b"[" * 100_000 + (b"]" * 100_000 if closed else b"")
    assert refusal(b"{%s:%s}" % (field, nested)).endswith("it is nested too deeply.")


def test_an_error_message_quotes_nothing_of_the_body() -> None:
    assert "secret" not in refusal(b'{"model":"a","secret-name":"secret-value"')
    assert "secret" not in refusal(b'{"model":["secret"]}')


def test_ten_megabytes_of_text_are_passed_through_unchanged() -> None:
    text = b"x" * 10_000_000
    body = b'{"model":"a","messages":[{"role":"user","content":"%s"}]}' % text
    request = parse_request(body)
    assert request.size == len(body)
    assert text in ChatPassthroughAdapter(request).render_request(ENDPOINT)


def test_the_last_of_duplicate_fields_is_used_and_forwarded() -> None:
    body = b'{"model":"a","x":1,"model":"b","x":2,%s}' % MESSAGES
    assert parse_request(body).model == "b"
    assert json.loads(sent(body), object_pairs_hook=list)[0] == ("model", "large-2026")
    assert sent(body).count(b'"x"') == 1


@pytest.mark.parametrize(
    ("value", "streamed"), [(b"true", True), (b"false", False), (b"null", False)]
)
def test_the_stream_field_selects_streaming(value: bytes, *, streamed: bool) -> None:
    assert parse_request(b'{"model":"a","stream":%s,%s}' % (value, MESSAGES)).stream is streamed


def test_without_the_stream_field_the_response_is_not_streamed() -> None:
    assert not parse_request(b'{"model":"a",%s}' % MESSAGES).stream


def test_the_repr_of_a_request_hides_its_content() -> None:
    assert "hi" not in repr(parse_request(b'{"model":"a",%s}' % MESSAGES))


# The provider's request


def test_only_the_model_changes() -> None:
    body = b'{"model":"acme/large",%s,"temperature":0.70,"tools":[{"b":1,"a":2}]}' % MESSAGES
    assert sent(body) == body.replace(b"acme/large", b"large-2026")


@pytest.mark.parametrize(
    "value",
    [
        b"1e999999",
        b"-1E-999999",
        b"123456789012345678901234567890123456789012345678901234567890",
        b"0.1000000000000000000000000000000000001",
        b"-0",
        b"1.0",
        b'"\\u0041\\ud83d\\ude00\\/"',
        b'"\\u0000"',
        b'{ "b" : 1 ,\n"a":\t[ ] }',
        b'{"a":1,"a":2}',
        b"[" * 200 + b"]" * 200,
        '"\N{GRINNING FACE}é"'.encode(),
    ],
)
def test_an_unknown_field_survives_byte_for_byte(value: bytes) -> None:
    assert b'"unknown":' + value in sent(b'{"model":"a",%s,"unknown":%s}' % (MESSAGES, value))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KEPT = st.text(max_size=8).filter(
    lambda name: name not in GATEWAY_FIELDS | {"model", "messages", "stream", "stream_options"}
)


@settings(deadline=None, max_examples=40)
@given(st.dictionaries(KEPT, JSON, max_size=5), st.booleans())
def test_unknown_fields_are_forwarded_unchanged(unknown: dict[str, Any], ascii_: bool) -> None:  # noqa: FBT001
    values = {name: json.dumps(value, ensure_ascii=ascii_) for name, value in unknown.items()}
    inner = "".join(f",{json.dumps(name)}:{value}" for name, value in values.items())
    body = f'{{"model":"a","messages":[1]{inner}}}'.encode()
    request = parse_request(body)
    assert {name: bytes(request.fields[name]).decode() for name in values} == values
    assert json.loads(ChatPassthroughAdapter(request).render_request(ENDPOINT)) == {
        **json.loads(body),
        "model": "b",
    }


@pytest.mark.parametrize("field", sorted(GATEWAY_FIELDS))
def test_a_field_for_the_gateway_is_left_out(field: str) -> None:
    body = b'{"model":"a",%s,"%s":{"x":1},"seed":1}' % (MESSAGES, field.encode())
    assert sent(body) == b'{"model":"large-2026",%s,"seed":1}' % MESSAGES


def test_a_model_name_is_written_as_json() -> None:
    assert json.loads(sent(b'{"model":"a",%s}' % MESSAGES, 'q"\\\n'))["model"] == 'q"\\\n'


def test_a_stream_requests_its_usage() -> None:
    body = b'{"model":"a","stream":true,%s}' % MESSAGES
    assert json.loads(sent(body))["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("given_options", "options"),
    [
        (b'{"include_usage":false}', {"include_usage": True}),
        (b'{"include_obfuscation":false}', {"include_obfuscation": False, "include_usage": True}),
        (b"null", {"include_usage": True}),
        (b"[]", {"include_usage": True}),
        (b"7", {"include_usage": True}),
    ],
)
def test_a_stream_requests_its_usage_whatever_the_client_sent(
    given_options: bytes, options: object
) -> None:
    body = b'{"model":"a","stream":true,"stream_options":%s,%s}' % (given_options, MESSAGES)
    assert json.loads(sent(body))["stream_options"] == options


def test_stream_options_are_dropped_without_streaming() -> None:
    body = b'{"model":"a","stream_options":{"include_usage":true},%s}' % MESSAGES
    assert "stream_options" not in json.loads(sent(body))


def test_two_efforts_that_differ_are_rejected() -> None:
    body = b'{"model":"a",%s,"reasoning_effort":"low","reasoning":{"effort":"high"}}' % MESSAGES
    assert refusal(body) == "reasoning_effort: contradicts reasoning.effort; give one of them."


@pytest.mark.parametrize(
    "efforts",
    [
        b'"reasoning_effort":"low","reasoning":{"effort":"low"}',
        b'"reasoning_effort":null,"reasoning":{"effort":"low"}',
        b'"reasoning_effort":"low","reasoning":{"max_tokens":9}',
        b'"reasoning_effort":"low","reasoning":null',
    ],
)
def test_two_equal_efforts_are_accepted(efforts: bytes) -> None:
    assert parse_request(b'{"model":"a",%s,%s}' % (MESSAGES, efforts)).model == "a"
