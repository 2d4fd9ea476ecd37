import pytest
from pydantic import ValidationError

from tollhouse.identity.endpoints.workspaces import PolicyBody
from tollhouse.identity.types import PATTERN_NAMES


@pytest.mark.parametrize("text", ["@acme.example", "*@phone", "@", "@2026", "me@phone", "@a b"])
def test_a_text_with_an_at_sign_that_is_no_name_stands_for_itself(text: str) -> None:
    assert PolicyBody(patterns=[text]).policy("key").patterns == (text,)


def test_the_known_names_are_taken() -> None:
    assert PolicyBody(patterns=[*PATTERN_NAMES]).policy("key").patterns == PATTERN_NAMES


@pytest.mark.parametrize("name", ["@phone", "@Email", "@credit-card", "@emails"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="@email, @credit_card, @iban, @api_key"):
        PolicyBody(patterns=[name])


def test_names_of_models_may_begin_with_an_at_sign() -> None:
    assert PolicyBody(blocked_models=["@cf"]).policy("key").blocked_models == ("@cf",)
