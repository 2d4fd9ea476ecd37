"""Host names in the one form in which they are compared, and what is none."""

import re
import socket
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.kernel.hosts import (
    LONGEST,
    LONGEST_AS_SENT,
    HostNameProblem,
    InvalidHostName,
    normal_host,
)

LONG = ".".join(["a" * 63] * 3 + ["b" * 61])


@pytest.mark.parametrize(
    ("sent", "normal"),
    [
        pytest.param("api.example.com", "api.example.com", id="as it is"),
        pytest.param("API.Example.COM", "api.example.com", id="capitals"),
        pytest.param("api.example.com.", "api.example.com", id="a dot at the end"),
        pytest.param("localhost", "localhost", id="one label"),
        pytest.param("a", "a", id="one letter"),
        pytest.param("a-b--c.d0", "a-b--c.d0", id="hyphens"),
        pytest.param("xn--bcher-kva.example", "xn--bcher-kva.example", id="international"),
        pytest.param("a" * 63 + ".b", "a" * 63 + ".b", id="the longest label"),
        pytest.param(LONG, LONG, id="the longest name"),
        pytest.param(LONG + ".", LONG, id="the longest name and a dot"),
        pytest.param("1.2.3.4.example", "1.2.3.4.example", id="numbers first"),
        pytest.param("0x7f.example", "0x7f.example", id="hexadecimal first"),
        pytest.param("1a", "1a", id="a digit first"),
        pytest.param("a.0xg", "a.0xg", id="almost hexadecimal"),
        pytest.param("a.x0", "a.x0", id="a digit last"),
    ],
)
def test_a_name_is_compared_in_small_letters_without_a_last_dot(sent: str, normal: str) -> None:
    assert normal_host(sent) == normal


NO_NAMES = {
    HostNameProblem.ADDRESS: (
        *("127.0.0.1", "1.2.3.4.", "127.1", "127.0.1", "2130706433", "0", "0177.0.0.1"),
        *("017700000001", "0x7f.1", "0X7F.1", "0x7f000001", "1.2.3.0xff", "0x", "1.2.3.4.5"),
        *("999.999.999.999", "a.com.1", "99999999999999999999"),
    ),
    HostNameProblem.NOT_ASCII: (
        "b\u00fccher.example",
        "\u212aapi.com",  # Kelvin sign
        "\u017fapi.com",  # long s
        "\u0130.com",  # dotted capital I
        "ex\u0430mple.com",  # Cyrillic a
        "\uff45xample.com",  # full width
        "api\u3002example.com",  # ideographic full stop
        "api\uff0eexample.com",  # full width full stop
        "\uff11\uff12\uff17.0.0.1",
        *("\u0661.2.3.4", "1.2.3.\u00b2", "a\u00ad.com", "a\u200b.com", "\ud800.com"),
    ),
    HostNameProblem.NO_NAME: (
        *("[::1]", "::1", "::ffff:127.0.0.1", "fe80::1%eth0", "[::1]:443", "::", "1::"),
        *("", ".", "..", "a..b", ".a.com", "a.com..", "-a.com", "a-.com", "-", "a.-"),
        *("*.a.com", "a_b.com", "a b.com", " a.com", "a.com ", "a.com\n", "\na.com", "a.com\0"),
        *("a.com:443", "http://a.com", "a.com/", "u@a.com", "a.com?b", "a.com#b", "a%2ecom"),
        *("a\\b.com", "a,b", "[a]", "a" * 64, "a" * 64 + ".com", LONG + "b"),
    ),
    HostNameProblem.TOO_LONG: (LONG + "b.", "a" * 255),
}


@pytest.mark.parametrize(
    ("why", "text"), [(why, text) for why, texts in NO_NAMES.items() for text in texts]
)
def test_an_address_what_is_not_ascii_and_what_has_other_characters_is_none(
    why: HostNameProblem, text: str
) -> None:
    with pytest.raises(InvalidHostName) as refused:
        normal_host(text)
    assert refused.value.why is why


def test_a_name_has_at_most_253_characters_and_one_for_the_dot() -> None:
    assert (len(LONG), LONGEST, LONGEST_AS_SENT) == (253, 253, 254)


def test_a_refusal_says_why_and_repeats_nothing() -> None:
    with pytest.raises(InvalidHostName) as refused:
        normal_host("secret_name")
    assert str(refused.value) == "no_name"


TEXTS = st.one_of(
    st.text(max_size=20),
    st.text(alphabet="aAzZ09xX-._:[]%/ \u212a\u0661", max_size=20),
    st.from_regex(r"[a-zA-Z0-9-]{1,5}(\.[a-zA-Z0-9x]{1,4}){0,4}\.?", fullmatch=True),
    st.ip_addresses().map(str),
)
STRICT = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*")


@given(TEXTS)
def test_what_is_accepted_is_in_its_form_and_is_no_address(text: str) -> None:
    try:
        name = normal_host(text)
    except InvalidHostName:
        return
    assert normal_host(name) == name
    assert STRICT.fullmatch(name)
    assert len(name) <= 253
    with pytest.raises(ValueError, match="does not appear"):
        ip_address(name)
    with pytest.raises(OSError, match="illegal IP address"):
        socket.inet_aton(name)


@given(st.from_regex(r"[a-zA-Z0-9]{1,5}(\.[a-zA-Z]{1,4}){0,3}", fullmatch=True))
def test_letters_and_a_last_dot_make_no_difference(name: str) -> None:
    try:
        normal = normal_host(name)
    except InvalidHostName:
        return
    for spelling in (name.upper(), name.lower(), name.swapcase(), name + "."):
        assert normal_host(spelling) == normal


@given(st.ip_addresses(), st.sampled_from(["{}", "{}.", "[{}]"]))
def test_no_address_is_accepted(address: object, written: str) -> None:
    with pytest.raises(InvalidHostName):
        normal_host(written.format(address))
