"""Where a request wants to go, in each of the forms in which it may say so."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import tables
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
CASES = tables(__file__)
REASONS = {"not_a_name": NOT_A_NAME, "malformed": MALFORMED}

NO_NAMES = [
    pytest.param(name.encode("latin-1"), REASONS[why], id=id_)
    for id_, name, why in CASES["no_names"]
]
NO_PORTS = [pytest.param(port.encode("latin-1"), id=id_) for id_, port in CASES["no_ports"]]


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
    [pytest.param(sent.encode(), Target(*place), id=id_) for id_, sent, *place in CASES["connect"]],
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
        pytest.param(sent.encode(), Target(host, port), path.encode(), id=id_)
        for id_, sent, host, port, path in CASES["absolute"]
    ],
)
def test_a_url_leads_to_its_host_with_its_path(sent: bytes, target: Target, path: bytes) -> None:
    assert absolute_target(sent) == (target, path)


@pytest.mark.parametrize(
    "target", [pytest.param(sent.encode(), id=id_) for id_, sent in CASES["not_absolute"]]
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
