import pytest

from tollhouse.cli.vaults.trust import doubt_about


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
    assert doubt_about(host) is not None


@pytest.mark.parametrize(
    "host",
    [
        *("api.github.com", "mygithub.io", "s3.example", "sqs.eu-west-1.amazonaws.com"),
        *("amazonaws.com", "pastebin.com.example", ""),
    ],
)
def test_a_host_of_which_nothing_is_known(host: str) -> None:
    assert doubt_about(host) is None
