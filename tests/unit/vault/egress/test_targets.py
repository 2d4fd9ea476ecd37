"""Where a request wants to go, in each of the forms in which it may say so."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.vault.egress.rejections import (
    HOST_DISAGREES,
    MALFORMED,
    NOT_A_NAME,
    NOT_ORIGIN_FORM,
    ONE_HOST,
    Rejected,
    Rejection,
)
from tollhouse.vault.egress.request_head import (
    Target,
    absolute_target,
    check_host,
    check_origin_form,
    connect_target,
    host_header,
)

HERE = Target("a.com", 443)

NO_NAMES = [
    pytest.param(b"1.2.3.4", NOT_A_NAME, id="IPv4"),
    pytest.param(b"127.1", NOT_A_NAME, id="IPv4 in two parts"),
    pytest.param(b"2130706433", NOT_A_NAME, id="IPv4 as a number"),
    pytest.param(b"0x7f000001", NOT_A_NAME, id="IPv4 in hexadecimal"),
    pytest.param(b"1.2.3.4.", NOT_A_NAME, id="IPv4 with a dot"),
    pytest.param(b"[::1]", NOT_A_NAME, id="IPv6"),
    pytest.param(b"[::ffff:1.2.3.4]", NOT_A_NAME, id="IPv4 in IPv6"),
    pytest.param(b"[v1.x]", NOT_A_NAME, id="an address of the future"),
    pytest.param(b"::1", MALFORMED, id="IPv6 without brackets"),
    pytest.param(b"[::1]x", MALFORMED, id="something behind brackets"),
    pytest.param(b"", MALFORMED, id="nothing"),
    pytest.param(b"*.a.com", MALFORMED, id="wildcard"),
    pytest.param(b"a_b.com", MALFORMED, id="underscore"),
    pytest.param(b"a..com", MALFORMED, id="empty label"),
    pytest.param(b" a.com", MALFORMED, id="space"),
    pytest.param(b"a.com\\b", MALFORMED, id="backslash"),
    pytest.param(b"a%2ecom", MALFORMED, id="percent"),
    pytest.param(b"b\xc3\xbccher.de", MALFORMED, id="UTF-8"),
    pytest.param("\u212aapi.com".encode(), MALFORMED, id="Kelvin sign"),
    pytest.param(b"\xff", MALFORMED, id="no UTF-8"),
]
NO_PORTS = [
    pytest.param(b":", id="empty"),
    pytest.param(b":0", id="zero"),
    pytest.param(b":65536", id="too large"),
    pytest.param(b":000443", id="too long"),
    pytest.param(b":+443", id="sign"),
    pytest.param(b":-1", id="negative"),
    pytest.param(b": 443", id="space"),
    pytest.param(b":443 ", id="space behind"),
    pytest.param(b":https", id="name"),
    pytest.param(b":443:443", id="two"),
    pytest.param("\u0664\u0664\u0663".encode(), id="other digits"),
]


def refusal(read: Callable[..., object], *given: object) -> Rejection:
    with pytest.raises(Rejected) as refused:
        read(*given)
    return refused.value.rejection


def is_host(host: bytes) -> None:
    check_host([host], HERE, 443)


# Wherever a place is named


@pytest.mark.parametrize(("name", "rejection"), NO_NAMES)
def test_anything_but_a_name_is_refused(name: bytes, rejection: Rejection) -> None:
    assert refusal(connect_target, name + b":443") is rejection
    assert refusal(absolute_target, b"http://" + name + b"/") is rejection
    assert refusal(is_host, name) is rejection


@pytest.mark.parametrize("port", NO_PORTS)
def test_a_port_that_is_none_is_refused(port: bytes) -> None:
    assert refusal(connect_target, b"a.com" + port) is MALFORMED
    assert refusal(is_host, b"a.com" + port) is MALFORMED


# CONNECT


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        pytest.param(b"a.com:443", HERE, id="as most write it"),
        pytest.param(b"A.Com.:443", HERE, id="in capitals with a dot"),
        pytest.param(b"a.com:00443", HERE, id="with zeros"),
        pytest.param(b"a.com:1", Target("a.com", 1), id="the first port"),
        pytest.param(b"a.com:65535", Target("a.com", 65_535), id="the last port"),
        pytest.param(b"localhost:80", Target("localhost", 80), id="one label"),
    ],
)
def test_connect_leads_to_a_name_and_a_port(sent: bytes, read: Target) -> None:
    assert connect_target(sent) == read


@pytest.mark.parametrize(
    "target", [b"a.com", b"/", b"*", b"http://a.com/", b"user@a.com:443", b"a.com:443/"]
)
def test_connect_takes_no_other_form(target: bytes) -> None:
    assert refusal(connect_target, target) is MALFORMED


def test_a_refusal_repeats_nothing_of_the_target() -> None:
    for target in (b"\xffsecret:1", b"sec_ret:1"):
        with pytest.raises(Rejected) as refused:
            connect_target(target)
        assert (str(refused.value), refused.value.__cause__) == ("malformed", None)
        assert refused.value.__suppress_context__


# Outside a tunnel


@pytest.mark.parametrize(
    ("sent", "target", "path"),
    [
        pytest.param(b"http://a.com/b?c", Target("a.com", 80), b"/b?c", id="as most write it"),
        pytest.param(b"http://a.com", Target("a.com", 80), b"/", id="without a path"),
        pytest.param(b"http://a.com?c", Target("a.com", 80), b"/?c", id="a query alone"),
        pytest.param(b"HTTP://A.com:8080/B", Target("a.com", 8080), b"/B", id="capitals"),
        pytest.param(b"http://a.com/@b", Target("a.com", 80), b"/@b", id="an at sign in the path"),
        pytest.param(
            b"http://a.com/?u=http://b.com/",
            Target("a.com", 80),
            b"/?u=http://b.com/",
            id="a URL in the query",
        ),
    ],
)
def test_a_url_leads_to_its_host_with_its_path(sent: bytes, target: Target, path: bytes) -> None:
    assert absolute_target(sent) == (target, path)


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(b"https://a.com/", id="https"),
        pytest.param(b"ftp://a.com/", id="ftp"),
        pytest.param(b"http:/a.com/", id="one slash"),
        pytest.param(b"http:a.com", id="no slash"),
        pytest.param(b"//a.com/", id="no scheme"),
        pytest.param(b"/path", id="a path"),
        pytest.param(b"*", id="asterisk"),
        pytest.param(b"a.com:80", id="authority"),
        pytest.param(b"xhttp://a.com/", id="something before"),
        pytest.param(b"http://user@a.com/", id="user"),
        pytest.param(b"http://a.com@b.com/", id="a host as the user"),
        pytest.param(b"http://a.com\\@b.com/", id="backslash and at sign"),
        pytest.param(b"http:///path", id="no host"),
        pytest.param(b"http://a.com#b", id="fragment"),
        pytest.param(b"http://a.com/#b", id="fragment behind a path"),
        pytest.param(b"http://a.com:/", id="empty port"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_any_other_target_outside_a_tunnel_is_refused(target: bytes) -> None:
    assert refusal(absolute_target, target) is MALFORMED


# Inside a tunnel


@pytest.mark.parametrize(
    "target", [b"/", b"/a//b", b"//b.com/", b"//", b"/?a", b"/%2F", b"/http://b.com"]
)
def test_inside_a_tunnel_a_target_is_a_path(target: bytes) -> None:
    check_origin_form(target)


@pytest.mark.parametrize("target", [b"", b"*", b"a", b"/#b", b"http://a.com/", b"a.com:443"])
def test_inside_a_tunnel_any_other_target_is_refused(target: bytes) -> None:
    assert refusal(check_origin_form, target) is NOT_ORIGIN_FORM


# Host


@pytest.mark.parametrize("host", [b"a.com", b"A.COM", b"a.com.", b"a.com:443", b"a.com:0443"])
def test_the_host_header_names_the_place_that_was_connected_to(host: bytes) -> None:
    is_host(host)


@pytest.mark.parametrize(
    ("target", "default_port", "header"),
    [
        (Target("a.com", 443), 443, b"a.com"),
        (Target("a.com", 443), 80, b"a.com:443"),
        (Target("a.com", 8443), 443, b"a.com:8443"),
    ],
)
def test_a_request_names_its_port_unless_that_goes_without_saying(
    target: Target, default_port: int, header: bytes
) -> None:
    assert host_header(target, default_port) == header


def test_what_a_host_header_without_a_port_means_depends_on_where_it_stands() -> None:
    check_host([b"a.com"], Target("a.com", 80), 80)
    assert refusal(check_host, [b"a.com"], Target("a.com", 8443), 443) is HOST_DISAGREES


@pytest.mark.parametrize(
    "host", [b"b.com", b"a.com:80", b"www.a.com", b"com", b"a.com.evil.com", b"xa.com"]
)
def test_a_host_header_that_names_another_place_is_refused(host: bytes) -> None:
    assert refusal(is_host, host) is HOST_DISAGREES


@pytest.mark.parametrize(
    "hosts", [[], [b"a.com", b"a.com"], [b"a.com", b"b.com"]], ids=["none", "twice", "two"]
)
def test_there_is_exactly_one_host_header(hosts: list[bytes]) -> None:
    assert refusal(check_host, hosts, HERE, 443) is ONE_HOST


@given(st.binary(max_size=20), st.sampled_from([b"", b":443", b"://", b"/"]))
def test_any_bytes_are_a_place_or_refused(start: bytes, end: bytes) -> None:
    for read in (connect_target, absolute_target, check_origin_form):
        try:
            read(start + end)
        except Rejected:
            continue
