"""Values are taken out of what a host answers, however they are written and however they come."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.vault.egress.redaction import SHORTEST, Redactor, forms_of

VALUE = 'gh0/a+b "ü" %\\~'
ENCODINGS = {
    "as it is": lambda value: value.encode(),
    "in JSON": lambda value: json.dumps(value)[1:-1].encode(),
    "in JSON with other letters": lambda value: json.dumps(value, ensure_ascii=False)[
        1:-1
    ].encode(),
    "in JSON with escaped slashes": lambda value: (
        json.dumps(value)[1:-1].replace("/", "\\/").encode()
    ),
    "in JSON with other letters and escaped slashes": lambda value: (
        json.dumps(value, ensure_ascii=False)[1:-1].replace("/", "\\/").encode()
    ),
    "in a path": lambda value: quote(value).encode(),
    "in a component": lambda value: quote(value, safe="").encode(),
    "in a form": lambda value: quote_plus(value).encode(),
    "in a component in small letters": lambda value: small(quote(value, safe="")),
    "in a path in small letters": lambda value: small(quote(value)),
    "in a form in small letters": lambda value: small(quote_plus(value)),
    "in hexadecimal": lambda value: value.encode().hex().encode(),
    "in large hexadecimal": lambda value: value.encode().hex().upper().encode(),
}


def small(quoted: str) -> bytes:
    first, *rest = quoted.split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in rest)]).encode()


def streamed(redactor: Redactor, pieces: list[bytes]) -> bytes:
    return b"".join([*map(redactor.feed, pieces), redactor.flush()])


def bytewise(values: list[str], text: bytes) -> bytes:
    return streamed(Redactor(values), [bytes([each]) for each in text])


def cut_up(text: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(cut, len(text)) for cut in cuts})
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


# How a value is written


@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS)
def test_a_value_is_found_however_it_is_written(encode: object) -> None:
    assert callable(encode)
    shown = encode(VALUE)
    assert shown in forms_of(VALUE)
    masked = Redactor([VALUE]).mask(b"<" + shown + b">")
    assert masked == b"<" + b"*" * len(shown) + b">"


@pytest.mark.parametrize("before", range(7))
@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("value", ["token-1", "token-12", "token-123", "\u00ff\u00fe?>?>"])
@pytest.mark.parametrize("urlsafe", [False, True], ids=["plain", "urlsafe"])
def test_a_value_is_found_in_base64_wherever_it_stands(
    value: str, before: int, after: int, *, urlsafe: bool
) -> None:
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
    text = b"u" * before + value.encode() + b"p" * after
    masked = Redactor([value]).mask(encode(text))
    known = masked.replace(b"*", b"A")
    assert value.encode()[1:-1] not in base64.b64decode(known, altchars=b"-_" if urlsafe else None)
    hidden = masked.count(b"*") * 6 / 8
    assert len(value.encode()) - 2 < hidden <= len(value.encode())


def test_all_that_base64_shows_of_a_value_alone_is_hidden() -> None:
    forms = forms_of("abcdef")
    assert base64.b64encode(b"abcdef") in forms
    assert base64.b64encode(b"xabcdef")[2:-3] in forms
    assert base64.b64encode(b"xyabcdef")[3:-2] in forms


def test_no_letter_at_the_end_of_base64_is_taken_for_padding() -> None:
    assert base64.b64encode(b"abcabW") == b"YWJjYWJX"
    assert Redactor(["abcabW"]).mask(b"<YWJjYWJX>") == b"<********>"


def test_forms_of_a_plain_value_are_these() -> None:
    assert forms_of("abcd") == {
        *(b"abcd", b"ABCD", b"61626364"),
        *(b"YWJjZ", b"FiY2", b"hYmNk"),
    }


@pytest.mark.parametrize("value", ["a", "ab", "abc"])
def test_what_is_too_short_to_be_told_from_chance_is_left(value: str) -> None:
    assert SHORTEST == 4
    assert all(len(form) >= 4 for form in forms_of(value))
    assert Redactor([value]).mask(b"<abc>") == b"<abc>"


def test_four_bytes_are_enough() -> None:
    assert Redactor(["abcd"]).mask(b"<abcd>") == b"<****>"
    assert Redactor(["ab"]).mask(b"<6162>") == b"<****>"


SPELT = """it's "a" <b>&c/ é(!*) Ä"""


@pytest.mark.parametrize(
    "spelling",
    [
        pytest.param(r"""it's \"a\" <b>&c/ \u00e9(!*) \u00c4""", id="JSON"),
        pytest.param(r"""it's \"a\" <b>&c/ \u00E9(!*) \u00C4""", id="JSON with large digits"),
        pytest.param(r"""it's \"a\" <b>&c\/ é(!*) Ä""", id="JSON with escaped slashes"),
        pytest.param(
            r"""it's \"a\" \u003cb\u003e\u0026c/ \u00e9(!*) \u00c4""", id="JSON for pages"
        ),
        pytest.param(r"""it's \"a\" \u003cb\u003e\u0026c/ é(!*) Ä""", id="JSON for pages in UTF-8"),
        pytest.param(
            "it%27s%20%22a%22%20%3Cb%3E%26c%2F%20%C3%A9%28%21%2A%29%20%C3%84", id="component"
        ),
        pytest.param(
            "it%27s%20%22a%22%20%3cb%3e%26c%2f%20%c3%a9%28%21%2a%29%20%c3%84",
            id="component in small letters",
        ),
        pytest.param("it%27s%20%22a%22%20%3Cb%3E%26c/%20%C3%A9%28%21%2A%29%20%C3%84", id="path"),
        pytest.param("it%27s+%22a%22+%3Cb%3E%26c%2F+%C3%A9%28%21%2A%29+%C3%84", id="form"),
        pytest.param(
            "it's%20%22a%22%20%3Cb%3E%26c%2F%20%C3%A9(!*)%20%C3%84", id="encodeURIComponent"
        ),
        pytest.param("""it's "a" <b>&c/ é(!*) ä""", id="small letters"),
        pytest.param("""IT'S "A" <B>&C/ É(!*) Ä""", id="large letters"),
        *(
            pytest.param(
                f"it{apostrophe}s {mark}a{mark} &lt;b&gt;&amp;c/ é(!*) Ä",
                id=f"HTML with {apostrophe} and {mark}",
            )
            for apostrophe in ("'", "&#39;", "&#x27;")
            for mark in ('"', "&quot;", "&#34;")
        ),
    ],
)
def test_a_value_is_hidden_in_a_spelling(spelling: str) -> None:
    raw = spelling.encode()
    assert Redactor([SPELT]).mask(b"<" + raw + b">") == b"<" + b"*" * len(raw) + b">"


def test_a_way_of_writing_that_is_not_on_the_list_is_not_found() -> None:
    shown = "a<b>c".encode("utf-16")
    assert Redactor(["a<b>c"]).mask(shown) == shown


# What takes its place


def test_every_value_is_replaced_by_as_many_asterisks() -> None:
    masked = Redactor(["first", "second!"]).mask(b"a first, a second!, a first")
    assert masked == b"a *****, a *******, a *****"


def test_one_value_that_begins_with_another_is_hidden_whole() -> None:
    for values in (["token", "token-2"], ["token-2", "token"]):
        assert Redactor(values).mask(b"token token-2 token-") == b"***** ******* *****-"
        assert bytewise(values, b"token token-2 token-") == b"***** ******* *****-"


def test_values_that_overlap_are_hidden_whole() -> None:
    values = ["abcdef", "defghi"]
    assert Redactor(values).mask(b"<abcdefghi>") == b"<*********>"
    assert bytewise(values, b"<abcdefghi>") == b"<*********>"


def test_a_value_that_overlaps_itself_is_hidden_whole() -> None:
    for value, shown in (("abcabc", b"abcabcabc"), ("0000", b"00000"), ("0000", b"0000000")):
        text, expected = b"<" + shown + b">", b"<" + b"*" * len(shown) + b">"
        assert Redactor([value]).mask(text) == expected
        assert bytewise([value], text) == expected


def test_asterisks_that_took_a_values_place_are_not_read_again() -> None:
    values = ["abcdef", "**xy"]
    assert Redactor(values).mask(b"abcdefxy") == b"******xy"
    assert streamed(Redactor(values), [b"abcdef", b"xy"]) == b"******xy"


def test_without_values_everything_goes_on_as_it_is() -> None:
    redactor = Redactor([])
    assert redactor.feed(b"anything") == b"anything"
    assert redactor.flush() == b""
    assert redactor.mask(b"anything") == b"anything"


# A stream


def test_the_end_of_what_came_waits_for_as_long_as_it_could_be_part_of_a_value() -> None:
    redactor = Redactor(["tokn"])
    reach = max(map(len, forms_of("tokn"))) - 1
    assert redactor.feed(b"x" * 20) == b"x" * (20 - reach)
    assert redactor.feed(b"tok") == b"x" * 3
    assert redactor.feed(b"n!") == b"x" * 2
    assert redactor.flush() == b"x" * (reach - 5) + b"****!"
    assert redactor.flush() == b""


@pytest.mark.parametrize(
    "guess", [b"!token-", b"!tokenX", b"!XXXXXX", b"!746f6b656e2", b"!dG9rZW4"]
)
def test_nobody_sees_whether_a_guess_begins_a_value(guess: bytes) -> None:
    redactor, silent = Redactor(["token-1"]), Redactor(["token-1"])
    for _ in range(3):
        assert len(redactor.feed(guess)) == len(silent.feed(b"." * len(guess)))


@pytest.mark.parametrize("size", range(9))
def test_what_comes_last_may_come_with_the_end(size: int) -> None:
    redactor, text = Redactor(["token-1"]), b"token-1!"
    assert redactor.feed(text[:size]) + redactor.flush(text[size:]) == b"*******!"
    assert redactor.flush() == b""


def test_a_line_goes_on_at_its_end() -> None:
    redactor = Redactor(["token-1"])
    assert redactor.feed(b"data: token-1\n\nda") == b"data: *******\n\n"
    assert redactor.feed(b"ta: token-1\n") == b"data: *******\n"


def test_a_value_that_reaches_into_what_waits_is_not_shown_when_that_goes_on() -> None:
    redactor = Redactor(["abcdef", "defghi"])
    assert streamed(redactor, [b"abcdefgh", b"!"]) == b"******gh!"


def test_an_event_stream_is_not_held_back() -> None:
    redactor = Redactor(["gh0_abcdefghijklmnop", "sk-or-v1-0123456789"])
    for number in range(50):
        event = f'data: {{"choices":[{{"delta":{{"content":"gh0 {number}"}}}}]}}\n\n'.encode()
        assert redactor.feed(event) == event


def test_another_stream_is_looked_at_for_the_same_values_and_for_more() -> None:
    first = Redactor(["token-1"])
    first.feed(b"<token")
    second = first.anew(["another"])
    assert streamed(second, [b"-1 token-1 another"]) == b"-1 ******* *******"
    assert streamed(first, [b"-1 another"]) == b"<******* another"
    assert streamed(second.anew(), [b"token-1 another"]) == b"******* *******"


# Any text, in any pieces

WORDS = st.text(alphabet='ab01Zü/+"\\ %', min_size=1, max_size=8)
CUTS = st.lists(st.integers(0, 120), max_size=8)


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[str], bytes]:
    values = draw(st.lists(WORDS, min_size=1, max_size=2))
    forms = sorted({form for value in values for form in forms_of(value)}) or [b""]
    pieces = st.one_of(
        st.sampled_from(forms),
        st.sampled_from(forms).flatmap(
            lambda form: st.integers(0, len(form)).map(lambda size: form[:size])
        ),
        st.sampled_from(forms).flatmap(
            lambda form: st.integers(0, len(form)).map(lambda size: form[size:])
        ),
        st.binary(max_size=4),
    )
    text = b"".join(draw(st.lists(pieces, max_size=8)))
    return values, text


@given(answers(), CUTS)
def test_the_pieces_in_which_it_comes_change_nothing(
    answer: tuple[list[str], bytes], cuts: list[int]
) -> None:
    values, text = answer
    assert streamed(Redactor(values), cut_up(text, cuts)) == Redactor(values).mask(text)


@given(answers())
def test_nor_does_it_if_it_comes_byte_by_byte(answer: tuple[list[str], bytes]) -> None:
    values, text = answer
    assert bytewise(values, text) == Redactor(values).mask(text)


@given(answers(), CUTS)
def test_no_form_of_a_value_goes_on_and_everything_keeps_its_length(
    answer: tuple[list[str], bytes], cuts: list[int]
) -> None:
    values, text = answer
    text = text.replace(b"*", b"-")
    masked = streamed(Redactor(values), cut_up(text, cuts))
    assert len(masked) == len(text)
    for value in values:
        assert not any(form in masked for form in forms_of(value))


@given(answers())
def test_nothing_but_values_is_hidden(answer: tuple[list[str], bytes]) -> None:
    values, text = answer
    hidden: set[int] = set()
    for form in {form for value in values for form in forms_of(value)}:
        for at in range(len(text)):
            if text.startswith(form, at):
                hidden |= set(range(at, at + len(form)))
    expected = bytes(ord("*") if at in hidden else each for at, each in enumerate(text))
    assert Redactor(values).mask(text) == expected


@given(answers(), CUTS)
def test_how_much_waits_says_nothing_of_the_values(
    answer: tuple[list[str], bytes], cuts: list[int]
) -> None:
    values, text = answer
    anything = bytes(10 if each == 10 else 46 for each in text)
    ours, others = Redactor(values), Redactor(values)
    for piece, other in zip(cut_up(text, cuts), cut_up(anything, cuts), strict=True):
        assert len(ours.feed(piece)) == len(others.feed(other))
