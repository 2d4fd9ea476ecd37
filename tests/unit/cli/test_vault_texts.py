"""What people are told of secrets, of the hosts that receive them, and of keys."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tollhouse.cli.commands.keys import state_of
from tollhouse.cli.commands.vault import hidden, verdict
from tollhouse.cli.vault_secrets import host_warning, value_warning

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def secret(said: str, *hosts: str, **fields: Any) -> dict[str, Any]:
    return {"verdict": said, "hosts": list(hosts) or None, "hidden": [], **fields}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (secret("released", "a.example", "b.example"), "bound to a.example"),
        (
            secret("released"),
            "bound to no host, and such secrets go to any (vault.release_unbound)",
        ),
        (secret("other_host", "b.example", "c.example"), "bound to b.example, c.example"),
        (secret("something_new", "b.example"), "something_new"),
    ],
)
def test_why_a_host_receives_a_secret_or_not(found: dict[str, Any], words: str) -> None:
    assert verdict(found, "a.example") == words
    assert hidden(found) is None


ANYBODYS = (
    *("me.github.io", "github.io", "ME.GitHub.IO.", "pastebin.com", "abc.webhook.site"),
    *("s3.amazonaws.com", "bucket.s3.amazonaws.com", "bucket.s3.eu-west-1.amazonaws.com"),
    *("s3-eu-west-1.amazonaws.com", "abc.ngrok-free.app", "bit.ly", "raw.githubusercontent.com"),
)
NOT_KNOWN = (
    *("api.github.com", "mygithub.io", "s3.example", "sqs.eu-west-1.amazonaws.com"),
    *("amazonaws.com", "pastebin.com.example", ""),
)


@pytest.mark.parametrize("host", [*ANYBODYS, *NOT_KNOWN])
def test_a_host_that_anybody_may_use_is_warned_about(host: str) -> None:
    assert (host_warning(host) is not None) is (host in ANYBODYS)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        *((value, "not taken out") for value in ("a", "abc")),
        *((value, "guessed") for value in ("aaaa", "hunter2", "a" * 60_000, "12341234")),
        *((value, None) for value in ("gh0_s3cret+value/of", "7f3c9a1e5b20d846")),
        ("a passphrase, of five words", None),
    ],
)
def test_a_value_that_is_too_short_or_can_be_guessed(value: str, words: str | None) -> None:
    warning = value_warning(value)
    assert warning is None if words is None else words in (warning or "")


@pytest.mark.parametrize(
    ("disabled", "expires_at", "expected"),
    [
        (False, None, "active"),
        (False, "2026-11-20T12:00:01.000Z", "active"),
        (False, "2026-11-20T12:00:00.000Z", "expired"),
        (True, "2026-01-01T00:00:00.000Z", "disabled"),
    ],
)
def test_a_key_is_active_disabled_or_expired(
    expires_at: str | None, expected: str, *, disabled: bool
) -> None:
    assert state_of({"disabled": disabled, "expires_at": expires_at}, NOW) == expected
