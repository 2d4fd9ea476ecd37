from ipaddress import ip_network

import pytest
from hypothesis import given, settings
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

PROXIES = [ip_network("10.0.0.0/8"), ip_network("2001:db8::/32")]


# Paths


@pytest.mark.parametrize(
    ("path", "below_the_version"),
    [
        ("/v1/models", "/models"),
        ("/api/v1/models", "/models"),
        ("/v1/", "/"),
        ("/api/v1/", "/"),
        ("/v1//models", "/models"),
        ("/v1/models/", "/models"),
        ("/v1//keys//a//", "/keys//a"),
        ("/v1/v1/models", "/v1/models"),
        ("/v1/../models", "/../models"),
        ("/v1", None),
        ("/api/v1", None),
        ("/v1x", None),
        ("/v1x/models", None),
        ("/v10/models", None),
        ("/api/v1x/models", None),
        ("/api/v2/models", None),
        ("/api/models", None),
        ("/V1/models", None),
        ("//v1/models", "/models"),
        ("/x/v1/models", None),
        ("/models", None),
        ("/", None),
        ("", None),
        ("v1/models", None),
    ],
)
def test_the_api_lies_below_two_prefixes(path: str, below_the_version: str | None) -> None:
    assert api_path(path) == below_the_version


@pytest.mark.parametrize(
    ("method", "path", "is_free"),
    [
        ("GET", "/models", True),
        ("HEAD", "/models", True),
        ("GET", "/models/acme/large/endpoints", True),
        ("GET", "/model/acme/large", True),
        ("GET", "/providers", True),
        ("POST", "/models", False),
        ("DELETE", "/models", False),
        ("OPTIONS", "/models", False),
        ("get", "/models", False),
        ("GET", "/modelsx", False),
        ("GET", "//models", False),
        ("GET", "/key", False),
        ("GET", "/chat/completions", False),
    ],
)
def test_only_reading_the_catalogue_needs_no_key(
    method: str,
    path: str,
    is_free: bool,  # noqa: FBT001
) -> None:
    assert is_open(method, path) is is_free


# Keys


@pytest.mark.parametrize(
    ("header", "key"),
    [
        (b"Bearer sk-th-v1-abc", "sk-th-v1-abc"),
        (b"bearer sk-th-v1-abc", "sk-th-v1-abc"),
        (b"BEARER sk-th-v1-abc", "sk-th-v1-abc"),
        (b"bEaReR sk-th-v1-abc", "sk-th-v1-abc"),
        (b"Bearer   sk-th-v1-abc  ", "sk-th-v1-abc"),
        (b"Bearer \tsk-th-v1-abc", "sk-th-v1-abc"),
        (b"Bearer a b", "a b"),
        (b"Bearer Bearer a", "Bearer a"),
        (b"Bearer k\xe9y", "k\xe9y"),
        (b"Bearer \xff\xfe", "\xff\xfe"),
        (b"Bearer ", None),
        (b"Bearer    ", None),
        (b"Bearer", None),
        (b"Bearersk-th-v1-abc", None),
        (b"Basic dXNlcjpwYXNz", None),
        (b"sk-th-v1-abc", None),
        (b"Token sk-th-v1-abc", None),
        (b" Bearer a", None),
        (b"", None),
    ],
)
def test_a_key_is_a_bearer_token(header: bytes, key: str | None) -> None:
    assert credential({b"authorization": header}, "/chat/completions") == key


# Origins


@pytest.mark.parametrize(
    ("origin", "host", "scheme", "allowed"),
    [
        (b"https://app.example", b"gw.example", "https", True),
        (b"HTTPS://APP.EXAMPLE", b"gw.example", "https", True),
        (b"https://app.example:8443", b"gw.example", "https", False),
        (b"http://app.example", b"gw.example", "https", False),
        (b"https://app.example.evil", b"gw.example", "https", False),
        (b"https://app.example/", b"gw.example", "https", False),
        (b"https://gw.example", b"gw.example", "https", True),
        (b"https://gw.example", b"GW.Example", "https", True),
        (b"http://gw.example", b"gw.example", "https", False),
        (b"http://gw.example:8080", b"gw.example:8080", "http", True),
        (b"http://gw.example:8080", b"gw.example", "http", False),
        (b"http://gw.example", b"gw.example:8080", "http", False),
        (b"http://[::1]:8080", b"[::1]:8080", "http", True),
        (b"null", b"gw.example", "https", False),
        (b"", b"gw.example", "https", False),
        (b"", b"", "https", False),
        (b"https://", b"", "https", True),
        (b"null", None, "https", False),
        (b"https://gw.example", None, "https", False),
        (b"https://\xe9vil.example", b"gw.example", "https", False),
    ],
)
def test_a_page_of_a_listed_origin_or_our_own_may_call(
    origin: bytes,
    host: bytes | None,
    scheme: str,
    allowed: bool,  # noqa: FBT001
) -> None:
    assert origin_allowed(origin, host, scheme, {"https://app.example"}) is allowed


def test_the_null_origin_may_call_only_if_it_is_listed() -> None:
    assert origin_allowed(b"null", b"gw.example", "https", {"null"})


# Regional host names


@pytest.mark.parametrize(
    ("host", "regional"),
    [
        ("eu.gw.example", True),
        ("EU.GW.EXAMPLE", True),
        ("eu.gw.example:8080", True),
        ("eu.gw.example.", True),
        ("eu.gw.example.:443", True),
        ("a.b.gw.example", True),
        ("gw.example", False),
        ("eu.gw.example.evil", False),
        ("region-1.other", True),
        ("region-12.other", False),
        ("[::1]:8080", False),
        ("127.0.0.1:8080", False),
        ("", False),
        (":8080", False),
        ("*.gw.example", True),
    ],
)
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


@pytest.mark.parametrize(
    ("address", "trusted"),
    [
        ("10.0.0.1", True),
        ("10.255.255.255", True),
        ("11.0.0.1", False),
        ("2001:db8::1", True),
        ("2001:db9::1", False),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1:443", False),
        ("10.0.0.1 ", False),
        ("proxy.example", False),
        ("unix:", False),
        ("", False),
        (None, False),
    ],
)
def test_only_a_listed_network_is_trusted(address: str | None, trusted: bool) -> None:  # noqa: FBT001
    assert is_trusted(address, PROXIES) is trusted
    assert not is_trusted(address, [])


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("198.51.100.1", None, "198.51.100.1"),
        ("198.51.100.1", b"203.0.113.9", "198.51.100.1"),
        ("10.0.0.1", None, "10.0.0.1"),
        ("10.0.0.1", b"203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", b"1.2.3.4, 203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", b"1.2.3.4, 203.0.113.9, 10.0.0.2", "203.0.113.9"),
        ("10.0.0.1", b"10.0.0.3, 203.0.113.9, 10.0.0.2", "203.0.113.9"),
        ("10.0.0.1", b"  203.0.113.9  ", "203.0.113.9"),
        ("10.0.0.1", b"203.0.113.9,10.0.0.2,10.0.0.3", "203.0.113.9"),
        ("10.0.0.1", b"10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", b"", "10.0.0.1"),
        ("10.0.0.1", b"203.0.113.9,", "10.0.0.1"),
        ("10.0.0.1", b",", "10.0.0.1"),
        ("10.0.0.1", b"203.0.113.9:51234", "203.0.113.9"),
        ("10.0.0.1", b"[2001:db9::7]:51234", "2001:db9::7"),
        ("10.0.0.1", b"203.0.113.9, 10.0.0.2:443", "203.0.113.9"),
        ("10.0.0.1", b"garbage", "garbage"),
        ("10.0.0.1", b"\xff", "\xff"),
        ("2001:db8::1", b"2001:db9::7", "2001:db9::7"),
        ("", b"203.0.113.9", ""),
    ],
)
def test_the_client_is_the_last_hop_that_is_not_ours(
    peer: str, forwarded: bytes | None, address: str
) -> None:
    assert client_address(peer, forwarded, PROXIES) == address


def test_without_proxies_a_forwarded_address_means_nothing() -> None:
    assert client_address("10.0.0.1", b"203.0.113.9", []) == "10.0.0.1"


HOPS = st.lists(st.ip_addresses(v=4).map(str) | st.sampled_from(["", "x", "10.9.9.9"]), max_size=6)


@settings(deadline=None, max_examples=100)
@given(HOPS, st.ip_addresses(v=4).filter(lambda address: not is_trusted(str(address), PROXIES)))
def test_what_a_client_claims_never_changes_its_address(claimed: list[str], real: object) -> None:
    forwarded = ", ".join([*claimed, str(real), "10.0.0.2"]).encode()
    assert client_address("10.0.0.1", forwarded, PROXIES) == str(real)


# Loopback


@pytest.mark.parametrize(
    ("peer", "headers", "local"),
    [
        ("127.0.0.1", {}, True),
        ("127.1.2.3", {}, True),
        ("::1", {}, True),
        ("127.0.0.1", {b"host": b"gw.example"}, True),
        ("127.0.0.1", {b"x-forwarded-for": b"203.0.113.9"}, False),
        ("127.0.0.1", {b"x-forwarded-for": b""}, False),
        ("127.0.0.1", {b"forwarded": b"for=203.0.113.9"}, False),
        ("203.0.113.9", {b"x-forwarded-for": b"127.0.0.1"}, False),
        ("203.0.113.9", {}, False),
        ("10.0.0.1", {}, False),
        ("0.0.0.0", {}, False),  # noqa: S104 - nothing is bound
        ("localhost", {}, False),
        ("", {}, False),
        (None, {}, False),
    ],
)
def test_only_an_unforwarded_loopback_peer_is_local(
    peer: str | None,
    headers: dict[bytes, bytes],
    local: bool,  # noqa: FBT001
) -> None:
    assert from_loopback(peer, headers) is local


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
