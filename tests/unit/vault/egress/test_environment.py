"""What a program finds in its environment so that it uses the proxy, and trusts it."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath, PureWindowsPath

import pytest

from tollhouse.vault.egress.session_folder import environment, gateway_environment

PROXY = "http://tollhouse:password@127.0.0.1:1234"
FOLDER = PurePosixPath("/data/egress/a1")


@pytest.mark.parametrize("name", ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"])
def test_every_client_is_led_to_the_proxy(name: str) -> None:
    found = environment(PROXY, FOLDER)
    assert found[name] == found[name.lower()] == PROXY


def test_no_host_is_reached_around_it() -> None:
    found = environment(PROXY, FOLDER)
    assert found["NO_PROXY"] == found["no_proxy"] == ""


@pytest.mark.parametrize(
    "name",
    [
        *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"),
        *("PIP_CERT", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "DENO_CERT"),
    ],
)
def test_every_client_trusts_the_session_beside_the_system(name: str) -> None:
    assert environment(PROXY, FOLDER)[name] == "/data/egress/a1/bundle.pem"


def test_node_adds_the_sessions_authority_to_its_own_and_uses_the_proxy() -> None:
    found = environment(PROXY, FOLDER)
    assert found["NODE_EXTRA_CA_CERTS"] == "/data/egress/a1/ca.pem"
    assert found["NODE_USE_ENV_PROXY"] == "1"
    assert found["NODE_OPTIONS"] == '--require "/data/egress/a1/node.cjs"'


def test_what_node_is_told_already_stays() -> None:
    found = environment(PROXY, FOLDER, "--max-old-space-size=64")
    assert found["NODE_OPTIONS"].startswith("--max-old-space-size=64 --require ")


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(PurePosixPath("/a b/c"), id="a space"),
        pytest.param(PurePosixPath('/a"b/c'), id="a quotation mark"),
        pytest.param(PurePosixPath("/a\\b/c"), id="a backslash"),
        pytest.param(PurePosixPath('/a\\"b/c'), id="both"),
        pytest.param(PureWindowsPath("C:\\a b\\c"), id="Windows"),
    ],
)
def test_any_path_is_one_word_in_nodes_options(folder: PurePosixPath) -> None:
    options = environment(PROXY, folder, "--trace-warnings")["NODE_OPTIONS"]
    assert shlex.split(options) == ["--trace-warnings", "--require", str(folder / "node.cjs")]


def test_clients_of_the_gateway_are_led_to_it_without_a_key() -> None:
    assert gateway_environment() == {
        "OPENAI_BASE_URL": "http://gateway.internal/v1",
        "OPENAI_API_KEY": "put-in-by-the-proxy",
        "ANTHROPIC_BASE_URL": "http://gateway.internal",
        "ANTHROPIC_API_KEY": "put-in-by-the-proxy",
    }
