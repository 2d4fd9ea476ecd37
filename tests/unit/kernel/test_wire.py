from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
from pydantic import ValidationError

from tollhouse.kernel.wire import (
    STORABLE,
    Name,
    Omittable,
    RequestModel,
    ResponseModel,
    SentTime,
    UtcTime,
)


class Order(RequestModel):
    name: Omittable[Name] = None
    """What it is called."""
    count: int = 1
    share: float = 0.5
    remark: Annotated[str, STORABLE] = ""
    at: UtcTime | None = None


class Sent(ResponseModel):
    at: SentTime | None = None
    """When."""


def problems(**fields: Any) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        Order.model_validate(fields)
    return {
        ".".join(map(str, error["loc"])): error["msg"]
        for error in caught.value.errors(include_url=False)
    }


@pytest.mark.parametrize(
    "fields", [{"count": "1"}, {"count": 1.0}, {"count": True}, {"share": "0.5"}, {"name": 1}]
)
def test_a_body_takes_no_value_of_another_type(fields: dict[str, object]) -> None:
    assert list(problems(**fields)) == list(fields)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_body_takes_finite_numbers_only(number: float) -> None:
    assert problems(share=number) == {"share": "Input should be a finite number"}


def test_an_omittable_field_may_not_be_null() -> None:
    assert problems(name=None) == {"name": "may be left out, but must not be null"}


def test_an_omittable_field_has_the_rules_of_its_type_and_no_null_in_its_schema() -> None:
    assert problems(name="") == {"name": "String should have at least 1 character"}
    schema = Order.model_json_schema()["properties"]["name"]
    assert (schema["type"], schema["minLength"], schema["maxLength"]) == ("string", 1, 100)
    assert schema["description"] == "What it is called."


def test_a_text_that_a_database_cannot_store_is_refused() -> None:
    assert problems(remark="a\0b") == {"remark": "must not contain the character U+0000"}
    assert problems(remark="a\ud800") == {"remark": "must be valid Unicode"}


@pytest.mark.parametrize(
    ("sent", "instant"),
    [
        ("2030-01-31T12:00:00Z", datetime(2030, 1, 31, 12, tzinfo=UTC)),
        ("2030-01-31T12:00:00+00:00", datetime(2030, 1, 31, 12, tzinfo=UTC)),
        ("2030-01-31T12:00:00.25Z", datetime(2030, 1, 31, 12, 0, 0, 250_000, tzinfo=UTC)),
        ("2030-01-31T12:00:00.123456789Z", datetime(2030, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC)),
    ],
)
def test_a_time_in_utc_with_seconds_is_taken(sent: str, instant: datetime) -> None:
    assert Order.model_validate({"at": sent}).at == instant


@pytest.mark.parametrize(
    "sent",
    [
        "2030-01-31T12:00Z",
        "2030-01-31T12:00:00",
        "2030-01-31T12:00:00+01:00",
        "2030-01-31 12:00:00Z",
        "2030-02-31T12:00:00Z",
        "2030-01-31",
        "",
        1_900_000_000,
        datetime(2030, 1, 31, tzinfo=UTC),
    ],
)
def test_any_other_time_is_refused(sent: object) -> None:
    assert problems(at=sent)["at"].startswith("must be an ISO 8601 time in UTC with seconds")


def test_a_time_is_sent_in_utc_with_milliseconds() -> None:
    at = datetime(2030, 1, 31, 12, 0, 0, 1_999, tzinfo=UTC)

    assert Sent(at=at).model_dump_json() == '{"at":"2030-01-31T12:00:00.001Z"}'
