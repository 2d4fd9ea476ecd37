import pytest

from tollhouse.cli.vault_secrets import host_warning, value_warning


@pytest.mark.parametrize(
    "host",
    [
        *("me.github.io", "github.io", "ME.GitHub.IO.", "pastebin.com", "abc.webhook.site"),
        *("s3.amazonaws.com", "bucket.s3.amazonaws.com", "bucket.s3.eu-west-1.amazonaws.com"),
        *(
            "s3-eu-west-1.amazonaws.com",
            "abc.ngrok-free.app",
            "bit.ly",
            "raw.githubusercontent.com",
        ),
    ],
)
def test_a_host_that_anybody_may_use(host: str) -> None:
    assert host_warning(host) is not None


@pytest.mark.parametrize(
    "host",
    [
        *("api.github.com", "mygithub.io", "s3.example", "sqs.eu-west-1.amazonaws.com"),
        *("amazonaws.com", "pastebin.com.example", ""),
    ],
)
def test_a_host_of_which_nothing_is_known(host: str) -> None:
    assert host_warning(host) is None


@pytest.mark.parametrize("value", ["a", "abc"])
def test_a_value_that_is_too_short_to_be_taken_out(value: str) -> None:
    assert "not taken out" in (value_warning(value) or "")


@pytest.mark.parametrize("value", ["aaaa", "hunter2", "a" * 60_000, "12341234"])
def test_a_value_that_can_be_guessed(value: str) -> None:
    assert "guessed" in (value_warning(value) or "")


@pytest.mark.parametrize(
    "value", ["gh0_s3cret+value/of", "7f3c9a1e5b20d846", "a passphrase, of five words"]
)
def test_a_value_of_which_nothing_is_to_be_said(value: str) -> None:
    assert value_warning(value) is None
