"""Which server a command means, decided from flags and environment alone."""

from pathlib import Path

import pytest

from tests.support.tables import tables
from tollhouse.cli import target
from tollhouse.cli.target import DataFolderServer, RemoteServer, ServerFlags, api_url, choose_server
from tollhouse.kernel.errors import StartError
from tollhouse.kernel.secret import Secret
from tollhouse.settings import environment

CASES = tables(__file__)

SOMEWHERE = {"TOLLHOUSE_BASE_URL": "https://gateway.example", "TOLLHOUSE_API_KEY": "sk-th-v1-env"}


@pytest.mark.parametrize(
    ("flags", "env", "address", "key"),
    [
        (ServerFlags(), {}, None, None),
        (ServerFlags(), SOMEWHERE, "https://gateway.example/v1", "sk-th-v1-env"),
        (ServerFlags(), {"TOLLHOUSE_BASE_URL": " ", "TOLLHOUSE_API_KEY": ""}, None, None),
        (
            *(ServerFlags(), {"TOLLHOUSE_BASE_URL": "http://h", "TOLLHOUSE_API_KEY": ""}),
            *("http://h/v1", None),
        ),
        (
            *(ServerFlags(base_url="http://h", api_key=Secret("sk-th-v1-flag")), SOMEWHERE),
            *("http://h/v1", "sk-th-v1-flag"),
        ),
        (ServerFlags(base_url="http://h"), SOMEWHERE, "http://h/v1", "sk-th-v1-env"),
        (ServerFlags(data_dir=Path("here")), SOMEWHERE, Path("here"), None),
        (ServerFlags(), {"TOLLHOUSE_API_KEY": "sk-th-v1-env"}, None, None),
    ],
)
def test_flags_stand_before_the_environment_and_that_before_the_settings_folder(
    flags: ServerFlags, env: dict[str, str], address: str | Path | None, key: str | None
) -> None:
    found = choose_server(flags, env)
    if isinstance(found, DataFolderServer):
        assert (found.data_dir, found.api_key) == (address, None)
    else:
        shown = None if found.api_key is None else found.api_key.reveal()
        assert (found.base_url, shown) == (address, key)


def test_what_acts_for_a_key_takes_it_along_to_a_folder() -> None:
    env = {"TOLLHOUSE_API_KEY": "sk-th-v1-env"}
    for flags, key in [
        (ServerFlags(), "sk-th-v1-env"),
        (ServerFlags(api_key=Secret("flag")), "flag"),
    ]:
        found = choose_server(flags, env, by_key=True)
        assert isinstance(found, DataFolderServer)
        assert found.api_key is not None
        assert found.api_key.reveal() == key
    assert choose_server(ServerFlags(), {}, by_key=True) == DataFolderServer(None, None)
    with pytest.raises(StartError):
        choose_server(ServerFlags(api_key=Secret("sécret")), env, by_key=True)


@pytest.mark.parametrize(
    "flags",
    [
        ServerFlags(base_url="http://h", data_dir=Path("here")),
        ServerFlags(api_key=Secret("sk-th-v1-secret")),
        ServerFlags(data_dir=Path("here"), api_key=Secret("sk-th-v1-secret")),
        ServerFlags(base_url="http://h", api_key=Secret("sk-th-v1-sécret")),
        ServerFlags(base_url="http://h", api_key=Secret("sk-th-v1-secret\r\nx: y")),
        ServerFlags(base_url="h"),
    ],
)
def test_what_contradicts_itself_is_refused_without_showing_the_key(flags: ServerFlags) -> None:
    with pytest.raises(StartError) as refused:
        choose_server(flags, {})
    assert "cret" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/", "/api/v1", "/api/v1/"])
def test_an_address_may_end_in_the_version_or_not(ending: str) -> None:
    assert api_url(f"http://127.0.0.1:8080{ending}", "--base-url") == "http://127.0.0.1:8080/v1"
    assert api_url(f"https://h.example/gate{ending}", "-") == "https://h.example/gate/v1"
    assert api_url(f"http://[::1]:80{ending}", "-") == "http://[::1]:80/v1"


@pytest.mark.parametrize("text", CASES["what_is_no_address_is_refused_without_repeating_it"])
def test_what_is_no_address_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(StartError, match="TOLLHOUSE_BASE_URL must be an address") as refused:
        api_url(text, "TOLLHOUSE_BASE_URL")
    assert "secret" not in str(refused.value)


def test_the_names_are_those_of_the_settings() -> None:
    assert (target.BASE_URL, target.API_KEY) == (environment.BASE_URL, environment.API_KEY)


def test_a_target_does_not_show_its_key() -> None:
    assert "sk-th" not in repr(RemoteServer("http://h/v1", Secret("sk-th-v1-secret")))
