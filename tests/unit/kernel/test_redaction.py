"""Values are taken out of what a host answers, however they are written and however they come."""

from __future__ import annotations

import base64
import html
import json
import re
import sys
from collections.abc import Callable, Iterator
from random import Random
from types import FrameType
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.kernel import redaction
from tollhouse.kernel.redaction import SHORTEST, Redactor, forms_of, readings


def streamed(redactor: Redactor, pieces: list[bytes]) -> bytes:
    return b"".join([*map(redactor.feed, pieces), redactor.flush()])


def bytewise(values: list[str], text: bytes) -> bytes:
    return streamed(Redactor(values), [bytes([each]) for each in text])


def cut_up(text: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(cut, len(text)) for cut in cuts})
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


# How a value is written


VALUE = """Gh0/a+b 'üÄ' "%\\~<&>=_-"""


def in_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def in_dotnet_json(text: str) -> str:
    """As `System.Text.Json` escapes by default.

    Source: https://learn.microsoft.com/dotnet/standard/serialization/system-text-json/character-encoding
    """
    escaped = in_json(text).replace('\\"', '"')
    return "".join(f"\\u{ord(each):04X}" if each in "\"'&<>+`" else each for each in escaped)


def in_page(text: str) -> str:
    return html.escape(text)


def every(spelling: str) -> Callable[[str], str]:
    """Return what writes every character as the spelling says of its number."""
    return lambda text: "".join(spelling.format(ord(each)) for each in text)


def in_lines(columns: int, end: str) -> Callable[[str], str]:
    def encode(text: str) -> str:
        digits = base64.b64encode(b"Bearer " + text.encode() * 6).decode()
        return "".join(digits[at : at + columns] + end for at in range(0, len(digits), columns))

    return encode


SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in small letters": str.lower,
    "in large letters": str.upper,
    "in JSON": in_json,
    "in JSON as UTF-8": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "in JSON with escaped slashes": lambda text: in_json(text).replace("/", "\\/"),
    "in JSON with large digits": in_dotnet_json,
    "in JSON for pages": lambda text: in_json(text).replace("<", "\\u003c").replace("&", "\\u0026"),
    "in JSON for pages as UTF-8": lambda text: (
        json.dumps(text, ensure_ascii=False)[1:-1].replace("<", "\\u003c").replace("&", "\\u0026")
    ),
    "in JSON with every character escaped": every("\\u{:04x}"),
    "in JSON in JSON": lambda text: in_json(in_json(text)),
    "in .NET's JSON in JSON": lambda text: in_json(in_dotnet_json(text)),
    "in JSON in JSON in JSON": lambda text: in_json(in_json(in_json(text))),
    "in braces": every("\\u{{{:x}}}"),
    "in a path": quote,
    "in a component": lambda text: quote(text, safe=""),
    "in a form": quote_plus,
    "as encodeURIComponent": lambda text: quote(text, safe="!'()*"),
    "in a URL with small digits": lambda text: re.sub(
        "%..", lambda match: match[0].lower(), quote(text, safe="")
    ),
    "in a URL with every byte escaped": lambda text: "".join(
        f"%{byte:02X}" for byte in text.encode()
    ),
    "twice in a URL": lambda text: quote(quote(text, safe="")),
    "three times in a URL": lambda text: quote(quote(quote(text, safe=""))),
    "in a URL in JSON": lambda text: in_json(quote(text)),
    "in JSON in a URL": lambda text: quote(in_json(text)),
    "in .NET's JSON in a URL in JSON": lambda text: in_json(quote(in_dotnet_json(text))),
    "in HTML": in_page,
    "in HTML with small names": lambda text: text.replace("&", "&amp;").replace("+", "&plus;"),
    "in HTML in numbers": every("&#{};"),
    "in HTML in hexadecimal": every("&#x{:x};"),
    "in HTML in large hexadecimal": every("&#X{:04X};"),
    "in HTML without semicolons": lambda text: text.replace("+", "&#43").replace("/", "&#047"),
    "twice in HTML": lambda text: in_page(in_page(text)),
    "in HTML in JSON": lambda text: in_json(in_page(text)),
    "in HTML in .NET's JSON": lambda text: in_dotnet_json(in_page(text)),
    "in JSON in HTML": lambda text: in_page(in_json(text)),
    "in a URL in HTML": lambda text: in_page(quote(text, safe="&'")),
    "in hexadecimal": lambda text: text.encode().hex(),
    "in large hexadecimal": lambda text: text.encode().hex().upper(),
    "in base64": lambda text: base64.b64encode(text.encode()).decode(),
    "in base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "in base64 in .NET's JSON": lambda text: in_dotnet_json(
        base64.b64encode(text.encode()).decode()
    ),
    "in base64 in a URL": lambda text: quote_plus(base64.b64encode(text.encode()).rstrip(b"=")),
}
LINES: dict[str, Callable[[str], str]] = {
    "76 columns, CRLF": in_lines(76, "\r\n"),
    "76 columns, LF": in_lines(76, "\n"),
    "64 columns, LF": in_lines(64, "\n"),
    "60 columns in JSON": lambda text: in_json(in_lines(60, "\n")(text)),
    "76 columns in JSON": lambda text: in_json(in_lines(76, "\r\n")(text)),
    "76 columns in a URL": lambda text: quote(in_lines(76, "\r\n")(text)),
}
NEIGHBOURS = [("<", ">"), ("%", "41"), ("\\", "u0041"), ("&", ";"), ("&#4", "3;"), ("\\u00", "%")]
"""What somebody who has a host show the value could have it show beside it."""


@pytest.mark.parametrize("write", SPELLINGS.values(), ids=SPELLINGS)
def test_a_value_is_found_however_it_is_written(write: Callable[[str], str]) -> None:
    shown = write(VALUE).encode()
    hidden = Redactor([VALUE]).mask(b"<" + shown + b">")[1:-1]
    assert len(hidden) == len(shown)
    # Base64 shares its last digit with what follows.
    assert set(hidden.rstrip(b"=")[:-1].lstrip(b"*")) == set()


@pytest.mark.parametrize("neighbours", NEIGHBOURS, ids="".join)
@pytest.mark.parametrize("write", SPELLINGS.values(), ids=SPELLINGS)
def test_no_neighbours_keep_a_value_from_being_found(
    write: Callable[[str], str], neighbours: tuple[str, str]
) -> None:
    before, after = neighbours
    if write("=") == "PQ==":
        before = after = "abc"
    shown = write(f"{before}{VALUE}{after}").encode()
    masked = Redactor([VALUE]).mask(shown)
    assert masked.count(b"*") >= len(VALUE)
    assert bytewise([VALUE], shown) == masked


@pytest.mark.parametrize("write", LINES.values(), ids=LINES)
def test_a_value_is_found_in_base64_in_lines(write: Callable[[str], str]) -> None:
    shown = b'{"content": "' + write(VALUE).encode() + b'"}\n'
    masked = Redactor([VALUE]).mask(shown)
    digits = re.sub(rb"%0D%0A|\\[rn]|\s", b"", shown)[12:-2]
    assert masked.count(b"*") >= len(digits) * 0.9
    assert bytewise([VALUE], shown) == masked
    assert masked.count(b"\n") == shown.count(b"\n")


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


def test_forms_of_a_plain_value_are_these() -> None:
    assert forms_of("abcd") == {*(b"abcd", b"ABCD", b"61626364"), *(b"YWJjZ", b"FiY2", b"hYmNk")}


@pytest.mark.parametrize("value", ["a", "ab", "abc"])
def test_what_is_too_short_to_be_told_from_chance_is_left(value: str) -> None:
    assert SHORTEST == 4
    assert all(len(form) >= 4 for form in forms_of(value))
    assert Redactor([value]).mask(b"<abc>") == b"<abc>"


def test_a_way_of_writing_that_is_not_on_the_list_is_not_found() -> None:
    shown = "a<b>c".encode("utf-16")
    assert Redactor(["a<b>c"]).mask(shown) == shown


# What takes its place


@pytest.mark.parametrize(
    ("values", "text", "shown"),
    [
        (["first", "second!"], b"a first, a second!, a first", b"a *****, a *******, a *****"),
        (["abcd"], b"<abcd>", b"<****>"),
        (["ab"], b"<6162>", b"<****>"),
        (["abcabW"], b"<YWJjYWJX>", b"<********>"),
        (["token", "token-2"], b"token token-2 token-", b"***** ******* *****-"),
        (["token-2", "token"], b"token token-2 token-", b"***** ******* *****-"),
        (["abcdef", "defghi"], b"<abcdefghi>", b"<*********>"),
        (["abcabc"], b"<abcabcabc>", b"<*********>"),
        (["0000"], b"<00000>", b"<*****>"),
        (["0000"], b"<0000000>", b"<*******>"),
        (["abcdef", "**xy"], b"abcdefxy", b"******xy"),
        ([], b"anything", b"anything"),
    ],
)
def test_values_are_hidden_whole_however_they_overlap_and_nothing_else_is(
    values: list[str], text: bytes, shown: bytes
) -> None:
    assert Redactor(values).mask(text) == shown
    assert bytewise(values, text) == shown


# A stream


def test_the_end_of_what_came_waits_for_as_long_as_it_could_be_part_of_a_value() -> None:
    redactor = Redactor(["tokn"])
    reach = len("tokn") * 8
    assert redactor.feed(b"x" * (2 * reach - 1)) == b""
    assert redactor.feed(b"x") == b"x" * reach
    assert redactor.feed(b"tok") == b""
    assert redactor.feed(b"n" + b"y" * reach) == b"x" * reach + b"****"
    assert redactor.flush() == b"y" * reach
    assert redactor.flush() == b""


def test_what_ends_a_value_is_hidden_where_its_beginning_has_gone_on() -> None:
    redactor = Redactor(["token-1"])
    assert redactor.flush(b"<tok") == b"<tok"
    assert redactor.flush(b"en-") == b"en-"
    assert redactor.flush(b"1>") == b"*>"


def test_a_line_of_base64_waits_for_the_next() -> None:
    redactor = Redactor(["token-1"])
    line = b"d" * 60 + b"\n"
    assert redactor.feed(b"a line\n" + line) == b""
    assert redactor.feed(b"another\n") == b"a line\n" + line + b"another\n"


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
    return values, text.translate(None, b"\r\n")


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
    text = text.replace(b"*", b"!")
    masked = streamed(Redactor(values), cut_up(text, cuts))
    assert len(masked) == len(text)
    for value in values:
        assert not any(form in masked for form in forms_of(value))


@given(answers())
def test_nothing_but_values_is_hidden(answer: tuple[list[str], bytes]) -> None:
    values, text = answer
    hidden: set[int] = set()
    for reading in readings(text):
        for form in {form for value in values for form in forms_of(value)}:
            for at in range(len(reading.text)):
                if reading.text.startswith(form, at):
                    hidden |= set(range(*reading.source(at, at + len(form))))
    expected = bytes(ord("*") if at in hidden else each for at, each in enumerate(text))
    assert Redactor(values).mask(text) == expected


@given(answers(), CUTS)
def test_how_much_waits_says_nothing_of_the_values(
    answer: tuple[list[str], bytes], cuts: list[int]
) -> None:
    values, text = answer
    anything = bytes(10 if each == 10 else 33 for each in text)
    ours, others = Redactor(values), Redactor(values)
    for piece, other in zip(cut_up(text, cuts), cut_up(anything, cuts), strict=True):
        assert len(ours.feed(piece)) == len(others.feed(other))


# What it costs


class Work:
    """How many lines of the search have been run."""

    def __init__(self) -> None:
        self.lines = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> Work | None:
        self.lines += event == "line"
        return self if frame.f_code.co_filename in SEARCH else None

    def of(self, redactor: Redactor, text: bytes) -> int:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            for at in range(0, len(text), 1_000):
                redactor.feed(text[at : at + 1_000])
            redactor.flush()
        finally:
            sys.settrace(before)
        return self.lines


SEARCH = {redaction.__file__}
TEXTS = {
    "one letter": ("a" * 60_000, b"a"),
    "one letter, a short value": ("aaaa", b"a"),
    "two letters": ("ab" * 4_000, b"ab"),
    "all but the end": ("a" * 700 + "b", b"a"),
    "escapes of URLs": ("a%b+c d", b"%25"),
    "backslashes": ("a\\b+c d", b"\\"),
    "escapes in escapes": ("a%b+c d", b"%5c%5cu0026#37;"),
    "lines": ("a%b+c d", b"\n"),
    "lines of base64": ("a" * 100, b"Y" * 63 + b"\n"),
}


@pytest.mark.parametrize(("value", "repeated"), TEXTS.values(), ids=TEXTS)
def test_eight_times_the_text_takes_eight_times_the_work(value: str, repeated: bytes) -> None:
    size = 30_000
    once = Work().of(Redactor([value]), (repeated * size)[:size])
    eight = Work().of(Redactor([value]), (repeated * size * 8)[: size * 8])
    assert eight < 8 * once * 1.3
    assert once < 40 * size


@pytest.fixture
def bytes_searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each search for one form has had to look at."""
    sizes: list[int] = []
    search = vars(Redactor)["_occurrences"]

    def occurrences(self: Redactor, text: bytes, form: bytes) -> Iterator[tuple[int, int]]:
        sizes.append(len(text))
        return search(self, text, form)

    monkeypatch.setattr(Redactor, "_occurrences", occurrences)
    return sizes


LETTERS = "".join(Random(2).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=65_000))
MIXED = b"%255cu0025&#37;%26#92;u003c%5c%5c&#38;amp;hello" * 170
"""Escapes of JSON, URLs and HTML, in one another."""


@pytest.mark.parametrize(
    ("short", "long", "text"),
    [
        pytest.param("a" * 500, "a" * 30_000, b"a" * 8_192, id="one letter"),
        pytest.param(LETTERS[:500], LETTERS, MIXED, id="mixed escapes"),
    ],
)
def test_a_long_value_takes_hardly_more_work_than_a_short_one(
    short: str, long: str, text: bytes, bytes_searched: list[int]
) -> None:
    def searched(value: str) -> int:
        bytes_searched.clear()
        redactor = Redactor([value])
        for at in range(0, len(text), 2_048):
            redactor.feed(text[at : at + 2_048])
        redactor.flush()
        return sum(bytes_searched)

    assert searched(long) <= 4 * searched(short) + 40 * len(text)


def test_many_values_take_no_more_work_than_one(bytes_searched: list[int]) -> None:
    values = [LETTERS[at : at + 40] for at in range(0, 8_000, 40)]
    Redactor(values).mask(MIXED)
    assert sum(bytes_searched) <= 40 * len(MIXED)


def test_a_long_value_is_hidden_whole() -> None:
    letters = Random(1).choices("abcdefghijklmnopqrstuvwxyz+/=", k=5_000)
    value = "".join(letters)
    for shown in (value, json.dumps(value), value.replace("+", "\\u002b")):
        assert set(Redactor([value]).mask(shown.encode().strip(b'"'))) == {ord("*")}
    digits = base64.b64encode(value.encode())
    assert set(Redactor([value]).mask(digits).rstrip(b"=")[:-1]) == {ord("*")}
