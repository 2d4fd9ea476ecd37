from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tests.support.seams.inference import NO_PREFERENCES, MaxPrice, Preferences, read_preferences
from tollhouse.kernel.errors import Invalid

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read(**fields: Any) -> Preferences:
    return read_preferences(_fields.decode(msgspec.json.encode({"model": "m", **fields})))


def refusal(**fields: Any) -> str:
    with pytest.raises(Invalid) as caught:
        read(**fields)
    return caught.value.message


def test_a_request_that_says_nothing_has_no_preferences() -> None:
    assert read() is NO_PREFERENCES


@pytest.mark.parametrize("fields", [{"provider": None}, {"models": None}, {"provider": {}}])
def test_null_says_nothing(fields: dict[str, Any]) -> None:
    assert read(**fields) == NO_PREFERENCES


def test_every_preference_is_read() -> None:
    given = {
        "order": ["a"],
        "only": ["a", "b"],
        "ignore": ["c"],
        "allow_fallbacks": False,
        "require_parameters": True,
        "data_collection": "deny",
        "sort": "price",
        "max_price": {"prompt": "1.5", "completion": 2, "image": "0.01"},
    }
    assert read(provider=given, models=["x"]) == Preferences(
        models=("x",),
        order=("a",),
        only=("a", "b"),
        ignore=("c",),
        allow_fallbacks=False,
        require_parameters=True,
        deny_data_collection=True,
        by_price=True,
        max_price=MaxPrice(prompt=Decimal("1.5"), completion=Decimal(2), image=Decimal("0.01")),
    )


@pytest.mark.parametrize(
    "required",
    [{"enforce_distillable_text": True}, {"quantizations": ["fp8"]}],
)
def test_a_requirement_that_nobody_here_claims_is_noted(required: dict[str, Any]) -> None:
    assert read(provider=required).unsupported_guarantees
    assert not read(provider={"zdr": True}).unsupported_guarantees


def test_an_unknown_quantization_is_what_every_endpoint_has() -> None:
    assert not read(provider={"quantizations": ["unknown", "fp8"]}).unsupported_guarantees


def test_messages_name_their_fallbacks_as_objects() -> None:
    assert read(fallbacks=[{"model": "x"}]).models == ("x",)


def test_models_and_fallbacks_contradict_each_other() -> None:
    assert refusal(models=["x"], fallbacks=[{"model": "y"}]).startswith("fallbacks: ")


def test_fields_of_later_versions_are_passed_over() -> None:
    assert read(provider={"preferred_max_latency": 3}) == NO_PREFERENCES


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"models": "x"}, "models: "),
        ({"models": [1]}, "models[0]: "),
        ({"provider": "x"}, "provider: "),
        ({"provider": {"only": "x"}}, "provider.only: "),
        ({"provider": {"data_collection": "maybe"}}, "provider.data_collection: "),
        ({"provider": {"max_price": {"prompt": "dear"}}}, "provider.max_price.prompt: "),
        ({"provider": {"max_price": {"prompt": -1}}}, "provider.max_price.prompt: "),
        ({"models": ["x"] * 33}, "models: must be at most 32 models."),
        *[
            (
                {"provider": {name: ["x"] * 257}},
                f"provider.{name}: Expected `array` of length <= 256.",
            )
            for name in ("order", "only", "ignore", "quantizations")
        ],
    ],
)
def test_what_is_wrong_is_named_by_its_path(fields: dict[str, Any], path: str) -> None:
    assert refusal(**fields).startswith(path)
