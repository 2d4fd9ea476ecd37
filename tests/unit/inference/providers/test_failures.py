from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.seams.inference import failure, status_of_error
from tollhouse.kernel.errors import error_body, status_of

ROWS: dict[str, list[Any]] = yaml.load(
    Path(__file__).with_name("failures.yaml").read_bytes(), yaml.CSafeLoader
)
SECRET = "Your organization org-123 has run out of money"


@pytest.mark.parametrize(("theirs", "ours", "text"), ROWS["statuses"])
def test_a_providers_status_becomes_ours(theirs: int, ours: int, text: str) -> None:
    error = failure("Acme", theirs)
    assert (status_of(error), error.message) == (ours, text)
    assert error.metadata["provider_name"] == "Acme"
    assert error.provider_code == theirs
    assert not error.ambiguous


def test_a_refused_key_is_named_as_the_settings_name_it() -> None:
    error = failure("Acme Inc.", 401, slug="acme")
    assert error.message == (
        "Acme Inc. refused this gateway's key (401): check providers[acme].api_key."
    )


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refusal_shows_the_providers_text(status: int) -> None:
    assert (
        failure("Acme", status, message="too long").message == "Acme refused the request: too long."
    )


@pytest.mark.parametrize("status", [401, 402, 403, 404, 429, 500, 503, 504])
def test_any_other_failure_shows_nothing_of_the_operators_account(status: int) -> None:
    assert SECRET not in str(error_body(failure("Acme", status, message=SECRET)))


def test_a_text_keeps_its_full_stop() -> None:
    assert failure("Acme", 400, message="No.").message == "Acme refused the request: No."


def test_a_long_text_is_cut() -> None:
    assert len(failure("Acme", 400, message="x" * 10_000).message) < 600


def test_the_providers_own_code_goes_before_its_status() -> None:
    assert failure("Acme", 400, code="bad_thing").provider_code == "bad_thing"


@pytest.mark.parametrize(("status", "code", "message", "error_type", "ours"), ROWS["refusals"])
def test_a_refusal_has_the_wires_error_type(
    status: int, code: str | None, message: str | None, error_type: str, ours: int
) -> None:
    error = failure("Acme", status, code=code, message=message)
    assert error.metadata["error_type"] == error.code == error_type
    assert status_of(error) == ours


@pytest.mark.parametrize("code", ["moderation_blocked", "content_filter"])
def test_what_moderation_flags_is_forbidden_and_says_why(code: str) -> None:
    error = failure("Acme", 400, code=code, message="the prompt holds ...")
    assert status_of(error) == 403
    assert error.metadata["reasons"] == [code]
    assert error.metadata["provider_name"] == "Acme"


@pytest.mark.parametrize(("code", "status"), ROWS["words"])
def test_a_word_in_mid_stream_stands_for_a_status(code: str | int | None, status: Any) -> None:
    assert status_of_error(code) == status


def test_a_full_context_has_openais_word_beside_the_number() -> None:
    error = failure("Acme", 400, code="context_length_exceeded", message="Too long.")
    shown = error_body(error)["error"]
    assert (shown["code"], shown["type"]) == (400, "context_length_exceeded")
    assert "type" not in error_body(failure("Acme", 400))["error"]
