from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.support.seams.accounting import Attribution
from tests.support.seams.inference import attribute
from tollhouse.kernel.errors import Invalid

HEADERS = Attribution(
    http_referer="https://a.example",
    app_title="a",
    user_agent="agent/1",
    session_id="from-the-header",
    categories="b,c",
)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read(*, anthropic: bool = False, **fields: Any) -> Attribution:
    return attribute(HEADERS, _fields.decode(msgspec.json.encode(fields)), anthropic=anthropic)


def refusal(**fields: Any) -> str:
    with pytest.raises(Invalid) as caught:
        read(**fields)
    return caught.value.message


def test_a_body_that_says_nothing_leaves_what_the_headers_say() -> None:
    assert read(model="m") is HEADERS


def test_what_the_body_says_is_added() -> None:
    said = read(user="u", trace={"trace_id": "t"}, metadata={"team": "x"})
    assert said == replace(
        HEADERS,
        external_user="u",
        trace='{"trace_id":"t"}',
        metadata='{"team":"x"}',
    )


def test_the_bodys_session_goes_before_the_headers() -> None:
    assert read(session_id="s").session_id == "s"


def test_null_says_nothing() -> None:
    assert read(user=None, session_id=None, trace=None, metadata=None) == HEADERS


def test_anthropics_metadata_names_the_user() -> None:
    said = read(anthropic=True, metadata={"user_id": "u" * 300, "more": 1})
    assert (said.external_user, said.metadata) == ("u" * 300, None)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"user": 7}, "user: "),
        ({"session_id": "x" * 257}, "session_id: "),
        ({"metadata": "x"}, "metadata: "),
        ({"metadata": {"a": 1}}, "metadata: "),
        ({"metadata": {"a": "x" * 513}}, "metadata: "),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata: "),
        ({"trace": []}, "trace: "),
        ({"trace": {"a": "x" * 20_000}}, "trace: "),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], name: str) -> None:
    assert refusal(**fields).startswith(name)


@pytest.mark.parametrize("number", [b"9" * 5000, b"[" * 100_000, b"1e999"])
def test_a_trace_that_nobody_could_read_again_is_refused(number: bytes) -> None:
    with pytest.raises(Invalid, match="trace: must be an object"):
        attribute(HEADERS, {"trace": msgspec.Raw(b'{"a":%b}' % number)}, anthropic=False)
