"""Where a placeholder may stand, and what takes its place."""

import base64
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.vault.egress.injection import LARGEST_INJECTED, check_target, inject, names_in
from tollhouse.vault.egress.rejections import (
    HEAD_TOO_LARGE,
    NOT_IN_A_HEADER,
    SECRET_IN_URL,
    UNKNOWN_SECRET,
    Rejected,
)

TOKEN = b"{{secret:token}}"
VALUES = {"token": b"gh0_abc", "user": b"jane"}


def basic(credentials: bytes, scheme: bytes = b"Basic ") -> bytes:
    return scheme + base64.b64encode(credentials)


def injected(value: bytes, name: bytes = b"authorization") -> bytes:
    ((_, found),) = inject([(name, value)], VALUES)
    return found


def refusal(check: Callable[..., object], *given: object) -> Rejected:
    with pytest.raises(Rejected) as refused:
        check(*given)
    return refused.value


def decoded(value: bytes) -> bytes:
    scheme, _, digits = value.partition(b" ")
    assert scheme == b"Basic"
    return base64.b64decode(digits, validate=True)


# In a URL


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(b"/?key={{secret:token}}", id="as it is"),
        pytest.param(b"/{{secret:", id="begun"),
        pytest.param(b"/?key=%7B%7Bsecret%3Atoken%7D%7D", id="encoded"),
        pytest.param(b"/?key=%7b%7bsecret%3atoken%7d%7d", id="encoded in small letters"),
        pytest.param(b"/?key={%7Bsecret:token}}", id="half encoded"),
        pytest.param(b"/%7B%7B%73%65cret:token}}", id="letters encoded"),
        pytest.param(b"/?key=%257B%257Bsecret%253Atoken", id="encoded twice"),
        pytest.param(b"/?key=%25%37B%257Bsecret:", id="encoded twice in part"),
    ],
)
def test_a_placeholder_in_a_url_is_refused_however_it_is_written(target: bytes) -> None:
    assert refusal(check_target, target).rejection is SECRET_IN_URL


@pytest.mark.parametrize(
    "target", [b"/", b"/secret:token", b"/{{secret}}", b"/{{Secret:token}}", b"/%zz%7", b"/\xff"]
)
def test_any_other_url_goes_on(target: bytes) -> None:
    check_target(target)


# Which values are asked for


@pytest.mark.parametrize(
    ("headers", "names"),
    [
        (
            [(b"authorization", b"Bearer " + TOKEN), (b"x", b"{{secret:user}}:{{secret:other}}")],
            ["token", "user", "other"],
        ),
        ([(b"a", TOKEN + TOKEN), (b"b", TOKEN), (b"accept", b"*/*")], ["token"]),
        ([(b"authorization", basic(b"{{secret:user}}:{{secret:token}}"))], ["user", "token"]),
    ],
    ids=["in any header", "once each", "inside basic credentials"],
)
def test_names_are_found(headers: list[tuple[bytes, bytes]], names: list[str]) -> None:
    assert names_in(headers) == names


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{{secret:token", id="not closed"),
        pytest.param(b"{{secret:token}", id="half closed"),
        pytest.param(b"{{secret:to{ken}}", id="a brace inside"),
        pytest.param(b"{secret:token}", id="one brace"),
        pytest.param(b"{{secrets:token}}", id="another word"),
        pytest.param(b"{{Secret:token}}", id="another case"),
        pytest.param(b"{{ secret:token}}", id="a space"),
        pytest.param(b"%7B%7Bsecret:token}}", id="encoded"),
        pytest.param(b"{{secret:a}b}}", id="a closing brace inside"),
    ],
)
def test_what_is_no_placeholder_is_left_as_it_is(value: bytes) -> None:
    assert names_in([(b"x", value)]) == []
    assert injected(value) == value


@pytest.mark.parametrize(
    "name", [b"", b"Token", b"to-ken", b"to ken", b"token ", b"a__b", b"_a", b"a" * 256, b"\xfc"]
)
def test_a_name_that_no_secret_can_have_is_refused(name: bytes) -> None:
    for value in (b"{{secret:" + name + b"}}", basic(b"x:{{secret:" + name + b"}}")):
        refused = refusal(names_in, [(b"authorization", value)])
        assert refused.rejection is UNKNOWN_SECRET
        assert refused.__suppress_context__  # the error before repeats the rule, not the name


# What goes out


def test_a_value_takes_the_place_of_its_placeholder_and_of_nothing_else() -> None:
    headers = [
        (b"host", b"a.com"),
        (b"authorization", b"Bearer {{secret:token}}!"),
        (b"x", b"a{{secret:user}}b{{secret:token}}c"),
        (b"y", b"token {{ user }}"),
    ]
    assert inject(headers, VALUES) == [
        (b"host", b"a.com"),
        (b"authorization", b"Bearer gh0_abc!"),
        (b"x", b"ajanebgh0_abcc"),
        (b"y", b"token {{ user }}"),
    ]


def test_the_innermost_placeholder_is_replaced_and_the_result_is_not_read_again() -> None:
    value = b"{{secret:{{secret:user}}}}"
    assert names_in([(b"x", value)]) == ["user"]
    assert injected(value) == b"{{secret:jane}}"


def test_a_value_that_looks_like_a_placeholder_is_not_read_again() -> None:
    (field,) = inject([(b"x", TOKEN)], {"token": b"{{secret:user}}", "user": b"jane"})
    assert field == (b"x", b"{{secret:user}}")


def test_basic_credentials_are_encoded_again_with_their_values() -> None:
    assert decoded(injected(basic(b"{{secret:user}}:{{secret:token}}"))) == b"jane:gh0_abc"


@pytest.mark.parametrize("scheme", [b"basic ", b"BASIC   ", b"Basic "])
def test_the_scheme_may_be_written_in_any_letters_with_several_spaces(scheme: bytes) -> None:
    assert decoded(injected(basic(b"x:" + TOKEN, scheme))) == b"x:gh0_abc"


@pytest.mark.parametrize("more", range(12))
def test_credentials_are_read_with_and_without_padding(more: int) -> None:
    whole = basic(TOKEN + b"W" * more)  # its base64 may end in an X
    expected = b"gh0_abc" + b"W" * more
    assert decoded(injected(whole)) == decoded(injected(whole.rstrip(b"="))) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(b"x-auth", basic(TOKEN), id="another header"),
        pytest.param(b"authorization", basic(TOKEN, b"Bearer "), id="another scheme"),
        pytest.param(b"authorization", basic(TOKEN, b""), id="no scheme"),
        pytest.param(b"authorization", basic(TOKEN, b"Basic"), id="no space"),
        pytest.param(b"authorization", basic(TOKEN, b"Basic\t"), id="a tab"),
        pytest.param(b"authorization", basic(TOKEN) + b"===", id="too much padding"),
        pytest.param(b"authorization", basic(TOKEN) + b" x", id="something behind"),
        pytest.param(b"authorization", basic(b"x:y"), id="no placeholder"),
        pytest.param(b"authorization", b"Basic abcde", id="no base64"),
        pytest.param(b"authorization", b"Basic", id="no credentials"),
        pytest.param(b"authorization", b"Basic eA", id="not padded, no placeholder"),
        pytest.param(b"authorization", basic(b"\xff{{secret:token}"), id="not closed"),
    ],
)
def test_nothing_else_that_is_encoded_is_touched(name: bytes, value: bytes) -> None:
    assert names_in([(name, value)]) == []
    assert injected(value, name) == value


@pytest.mark.parametrize("code", [*range(9), *range(10, 32), 127])
def test_a_value_with_a_control_character_does_not_go_into_a_header(code: int) -> None:
    refused = refusal(inject, [(b"x", TOKEN)], {"token": b"a" + bytes([code]) + b"b"})
    assert refused.rejection is NOT_IN_A_HEADER


@pytest.mark.parametrize("code", [9, 32, 126, 128, 255])
def test_a_tab_and_what_can_be_seen_do(code: int) -> None:
    value = b"a" + bytes([code]) + b"b"
    assert inject([(b"x", TOKEN)], {"token": value}) == [(b"x", value)]


@pytest.mark.parametrize("value", [b"a ", b"a\t", b" a", b"\ta", b" "])
def test_a_value_that_would_begin_or_end_a_header_with_a_space_does_not_go_into_it(
    value: bytes,
) -> None:
    assert refusal(inject, [(b"x", TOKEN)], {"token": value}).rejection is NOT_IN_A_HEADER
    assert inject([(b"x", b"<" + TOKEN + b">")], {"token": value}) == [(b"x", b"<" + value + b">")]


def test_a_head_may_have_256_kb_with_its_values() -> None:
    room = LARGEST_INJECTED - len(b"x")
    assert inject([(b"x", TOKEN)], {"token": b"v" * room}) == [(b"x", b"v" * room)]
    for headers in ([(b"xx", TOKEN)], [(b"x", TOKEN), (b"y", b"")]):
        assert refusal(inject, headers, {"token": b"v" * room}).rejection is HEAD_TOO_LARGE


@pytest.mark.parametrize("encoded", [False, True], ids=["as text", "in Basic credentials"])
def test_what_small_placeholders_would_become_is_not_made_before_it_is_refused(
    encoded: bool,  # noqa: FBT001 - a parameter
) -> None:
    text = TOKEN * 1_000
    tracemalloc.start()
    try:
        with pytest.raises(Rejected) as refused:
            inject([(b"authorization", basic(text) if encoded else text)], {"token": b"v" * 30_000})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused.value.rejection is HEAD_TOO_LARGE
    assert most < 4 * LARGEST_INJECTED


def test_inside_basic_credentials_any_byte_may_stand() -> None:
    ((_, found),) = inject([(b"authorization", basic(TOKEN))], {"token": b"a\r\n\0b"})
    assert decoded(found) == b"a\r\n\0b"


TEXT = st.lists(
    st.sampled_from(
        [b"{", b"}", b"{{secret:", b"}}", TOKEN, b"{{secret:user}}", b"token", b"\xe4"]
    ),
    min_size=1,
    max_size=8,
).map(b"".join)


@given(TEXT, st.booleans())
def test_values_put_in_and_taken_out_again_leave_what_was_there(
    text: bytes,
    encoded: bool,  # noqa: FBT001 - drawn
) -> None:
    value = basic(text) if encoded else text
    try:
        names = names_in([(b"authorization", value)])
    except Rejected:
        return
    marks = {name: b"<%d>" % at for at, name in enumerate(names)}
    ((_, found),) = inject([(b"authorization", value)], marks)
    if encoded:
        found = decoded(found)
    for name, mark in marks.items():
        assert mark in found
        found = found.replace(mark, b"{{secret:" + name.encode() + b"}}")
    assert found == text
