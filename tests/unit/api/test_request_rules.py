from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.seams.accounting import Attribution
from tests.support.seams.api import (
    api_path,
    attribution,
    client_address,
    credential,
    from_loopback,
    is_host,
    is_open,
    is_regional,
    is_trusted,
    origin_allowed,
)

FILE = Path(__file__).with_name("request_rules.yaml")
ROWS: dict[str, list[list[Any]]] = yaml.load(FILE.read_bytes(), yaml.CSafeLoader)
PROXIES = [ip_network("10.0.0.0/8"), ip_network("2001:db8::/32")]


# Paths


@pytest.mark.parametrize(("path", "below_the_version"), ROWS["paths"])
def test_the_api_lies_below_two_prefixes(path: str, below_the_version: str | None) -> None:
    assert api_path(path) == below_the_version


@pytest.mark.parametrize(("method", "path", "is_free"), ROWS["open_paths"])
def test_only_reading_the_catalogue_needs_no_key(
    method: str,
    path: str,
    is_free: bool,  # noqa: FBT001
) -> None:
    assert is_open(method, path) is is_free


# Keys


@pytest.mark.parametrize(("header", "key"), ROWS["credentials"])
def test_a_key_is_a_bearer_token(header: str, key: str | None) -> None:
    assert credential({b"authorization": header.encode("latin-1")}, "/chat/completions") == key


# Origins


@pytest.mark.parametrize(("origin", "host", "scheme", "allowed"), ROWS["origins"])
def test_a_page_of_a_listed_origin_or_our_own_may_call(
    origin: str,
    host: str | None,
    scheme: str,
    allowed: bool,  # noqa: FBT001
) -> None:
    sent = origin.encode("latin-1"), None if host is None else host.encode()
    assert origin_allowed(*sent, scheme, {"https://app.example"}) is allowed


def test_the_null_origin_may_call_only_if_it_is_listed() -> None:
    assert origin_allowed(b"null", b"gw.example", "https", {"null"})


# Regional host names


@pytest.mark.parametrize(("host", "regional"), ROWS["regional_hosts"])
def test_a_regional_host_name_is_matched_by_pattern(host: str, regional: bool) -> None:  # noqa: FBT001
    assert is_regional(host, ["*.GW.example", "region-?.other"]) is regional


def test_an_address_in_brackets_can_be_a_pattern_without_them() -> None:
    assert is_regional("[2001:db8::1]:443", ["2001:db8::1"])


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        *((host, True) for host in ("gw.example", "gw.example:8080", "[::1]:8080", "10.0.0.1")),
        *((host, False) for host in ("a/b", "a@b", "[", "[1]", "a:b", "", "ä")),
    ],
)
def test_a_host_is_a_name_or_an_address_and_perhaps_a_port(
    host: str,
    is_one: bool,  # noqa: FBT001
) -> None:
    assert is_host(host) is is_one


# Proxies


@pytest.mark.parametrize(("address", "trusted"), ROWS["trusted_addresses"])
def test_only_a_listed_network_is_trusted(address: str | None, trusted: bool) -> None:  # noqa: FBT001
    assert is_trusted(address, PROXIES) is trusted
    assert not is_trusted(address, [])


@pytest.mark.parametrize(("peer", "forwarded", "address"), ROWS["client_addresses"])
def test_the_client_is_the_last_hop_that_is_not_ours(
    peer: str, forwarded: str | None, address: str
) -> None:
    sent = None if forwarded is None else forwarded.encode("latin-1")
    assert client_address(peer, sent, PROXIES) == address


def test_without_proxies_a_forwarded_address_means_nothing() -> None:
    assert client_address("10.0.0.1", b"203.0.113.9", []) == "10.0.0.1"


HOPS = st.lists(st.ip_addresses(v=4).map(str) | st.sampled_from(["", "x", "10.9.9.9"]), max_size=6)


@given(HOPS, st.ip_addresses(v=4).filter(lambda address: not is_trusted(str(address), PROXIES)))
def test_what_a_client_claims_never_changes_its_address(claimed: list[str], real: object) -> None:
    forwarded = ", ".join([*claimed, str(real), "10.0.0.2"]).encode()
    assert client_address("10.0.0.1", forwarded, PROXIES) == str(real)


# Loopback


@pytest.mark.parametrize(("peer", "headers", "local"), ROWS["local_peers"])
def test_only_an_unforwarded_loopback_peer_is_local(
    peer: str | None,
    headers: dict[str, str],
    local: bool,  # noqa: FBT001
) -> None:
    sent = {name.encode(): value.encode() for name, value in headers.items()}
    assert from_loopback(peer, sent) is local


# Who says that it called


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, Attribution()),
        ({b"http-referer": b"https://a.example"}, Attribution(http_referer="https://a.example")),
        ({b"referer": b"https://a.example"}, Attribution(http_referer="https://a.example")),
        (
            {b"referer": b"https://b.example", b"http-referer": b"https://a.example"},
            Attribution(http_referer="https://a.example"),
        ),
        ({b"x-title": b"App"}, Attribution(app_title="App")),
        ({b"x-title": b"b", b"x-openrouter-title": b"a"}, Attribution(app_title="a")),
        ({b"user-agent": b"curl/8"}, Attribution(user_agent="curl/8")),
        ({b"x-session-id": b"s"}, Attribution(session_id="s")),
        ({b"user-agent": b"\xff\x00"}, Attribution(user_agent="\N{REPLACEMENT CHARACTER}")),
        ({b"user-agent": b"x" * 5000}, Attribution(user_agent="x" * 512)),
    ],
)
def test_headers_say_which_program_called(headers: dict[bytes, bytes], said: Attribution) -> None:
    assert attribution(headers) == said
