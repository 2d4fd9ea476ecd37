import json
from typing import Any

import pytest

from tests.unit.inference.formats.responses.response_fixtures import request
from tollhouse.inference.formats.responses.wire import parse_request
from tollhouse.kernel.errors import Invalid


def test_a_request_has_a_model_a_size_and_all_its_fields() -> None:
    parsed = request(novelty=1, stream=True)
    assert (parsed.model, parsed.stream, parsed.size) == ("acme/large", True, len(parsed.body))
    assert parsed.fields.keys() == {"model", "input", "novelty", "stream"}


def test_the_repr_of_a_request_hides_its_content() -> None:
    assert "hello" not in repr(request())


@pytest.mark.parametrize("harmless", [{"store": False}, {"previous_response_id": None}])
def test_a_request_may_disable_storage_explicitly(harmless: dict[str, Any]) -> None:
    assert request(**harmless).stream is False


@pytest.mark.parametrize(
    "name_and_value",
    [
        ("store", True),
        ("store", "yes"),
        ("background", True),
        ("previous_response_id", "resp_1"),
        ("conversation", {"id": "conv_1"}),
        ("stream", 1),
        ("input", ""),
        ("input", []),
        ("input", None),
        ("input", {"role": "user"}),
        ("model", ""),
        ("model", 7),
    ],
)
def test_an_invalid_field_is_named(name_and_value: tuple[str, Any]) -> None:
    name, value = name_and_value
    with pytest.raises(Invalid, match=f"^{name}: "):
        request(**{name: value})


@pytest.mark.parametrize("missing", ["model", "input"])
def test_a_missing_field_is_named(missing: str) -> None:
    fields = {"model": "acme/large", "input": "hello"}
    del fields[missing]
    with pytest.raises(Invalid, match=f"^{missing}: this field is required"):
        parse_request(json.dumps(fields).encode())


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model":"\xff"}', b"[" * 100_000])
def test_a_body_that_is_not_a_json_object_is_rejected(body: bytes) -> None:
    with pytest.raises(Invalid, match="body"):
        parse_request(body)
