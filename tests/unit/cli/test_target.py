"""Which server a command means, decided from flags and environment alone."""

from pathlib import Path

import pytest

from tollhouse.cli import target
from tollhouse.cli.target import DataFolderServer, RemoteServer, ServerFlags, api_url, choose_server
from tollhouse.kernel.errors import StartError
from tollhouse.kernel.secret import Secret
from tollhouse.settings import environment

SOMEWHERE = {"TOLLHOUSE_BASE_URL": "https://gateway.example", "TOLLHOUSE_API_KEY": "sk-th-v1-env"}


def chosen(
    flags: ServerFlags, env: dict[str, str] | None = None
) -> tuple[str | Path | None, str | None]:
    """Return the address or folder, and the key."""
    found = choose_server(flags, env or {})
    if isinstance(found, DataFolderServer):
        return found.data_dir, None
    return found.base_url, None if found.api_key is None else found.api_key.reveal()


def test_without_a_word_the_settings_folder_is_meant() -> None:
    assert choose_server(ServerFlags(), {}) == DataFolderServer(None, None)


def test_the_environment_names_a_server() -> None:
    assert chosen(ServerFlags(), SOMEWHERE) == ("https://gateway.example/v1", "sk-th-v1-env")


def test_empty_variables_are_not_there() -> None:
    assert chosen(ServerFlags(), {"TOLLHOUSE_BASE_URL": " ", "TOLLHOUSE_API_KEY": ""}) == (
        None,
        None,
    )
    env = {"TOLLHOUSE_BASE_URL": "http://h", "TOLLHOUSE_API_KEY": ""}
    assert chosen(ServerFlags(), env) == ("http://h/v1", None)


def test_flags_stand_before_the_environment() -> None:
    flags = ServerFlags(base_url="http://127.0.0.1:1", api_key=Secret("sk-th-v1-flag"))
    assert chosen(flags, SOMEWHERE) == ("http://127.0.0.1:1/v1", "sk-th-v1-flag")
    assert chosen(ServerFlags(data_dir=Path("here")), SOMEWHERE) == (Path("here"), None)


def test_a_key_of_the_environment_goes_with_an_address_of_the_command_line() -> None:
    flags = ServerFlags(base_url="http://127.0.0.1:1")
    assert chosen(flags, SOMEWHERE) == ("http://127.0.0.1:1/v1", "sk-th-v1-env")


def test_a_key_of_the_environment_does_not_matter_to_a_folder() -> None:
    assert choose_server(ServerFlags(), {"TOLLHOUSE_API_KEY": "sk-th-v1-env"}) == DataFolderServer(
        None, None
    )


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


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gateway.example",
        "ftp://gateway.example",
        "http://",
        "http://user:sk-th-v1-secret@gateway.example",
        "http://gateway.example?key=sk-th-v1-secret",
        "http://gateway.example:port",
        "http://gateway.example:0",
        "http://[::1",
        "http://a b",
    ],
)
def test_what_is_no_address_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(StartError, match="TOLLHOUSE_BASE_URL must be an address") as refused:
        api_url(text, "TOLLHOUSE_BASE_URL")
    assert "secret" not in str(refused.value)


def test_the_names_are_those_of_the_settings() -> None:
    assert (target.BASE_URL, target.API_KEY) == (environment.BASE_URL, environment.API_KEY)


def test_a_target_does_not_show_its_key() -> None:
    assert "sk-th" not in repr(RemoteServer("http://h/v1", Secret("sk-th-v1-secret")))
