"""Values that are injected into requests and redacted from responses.

    first value
    second value
    name-of-a-header: its value {{secret:a}}

    the host's answer

Values stand where placeholders stood, and nothing else of a request changes. Of an answer nothing
changes but values, in whatever pieces it comes, and no form of a value is left.
"""

import base64
import binascii
from contextlib import suppress

from tollhouse.kernel.redaction import LONGEST_SPELLING, Redactor, forms_of, readings
from tollhouse.vault.egress.injection import inject, names_in
from tollhouse.vault.egress.rejections import NOT_IN_A_HEADER, UNKNOWN_SECRET, Rejected, Rejection
from tollhouse.vault.policy import check_name

OPENING, CLOSING = b"{{secret:", b"}}"
PIECES = (1, 3, 16)


def check(data: bytes) -> None:
    """Fail where a value could leak."""
    head, _, answer = data.partition(b"\n\n")
    first, second, *lines = [*head.split(b"\n"), b"", b""]
    check_request([(name.strip().lower(), value) for name, _, value in parted(lines)])
    check_answer([each.decode("utf-8", "ignore") for each in (first, second)], answer)


def parted(lines: list[bytes]) -> list[tuple[bytes, bytes, bytes]]:
    return [line.partition(b": ") for line in lines]


# Requests


def check_request(headers: list[tuple[bytes, bytes]]) -> None:
    try:
        names = names_in(headers)
    except Rejected as refused:
        expect(refused, UNKNOWN_SECRET)
        return
    for name in names:
        check_name(name)
    marks = {name: unused(at, headers) for at, name in enumerate(names)}
    try:
        injected = inject(headers, marks)
    except Rejected as refused:
        expect(refused, NOT_IN_A_HEADER)
        return
    assert len(injected) == len(headers)
    used: set[str] = set()
    for (name, value), (same, found) in zip(headers, injected, strict=True):
        assert name == same
        credentials = basic(value) if name == b"authorization" else b""
        if OPENING in credentials:
            assert found.startswith(b"Basic ")
            expected = replaced(credentials, marks, used)
            assert base64.b64decode(found[6:], validate=True) == expected
        else:
            assert found == replaced(value, marks, used)
    assert used == set(names)


def expect(refused: Rejected, rejection: Rejection) -> None:
    assert refused.rejection is rejection


def unused(at: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return a value that does not occur in a request."""
    everything = b"\n".join(value + basic(value) for _, value in headers)
    mark = b"<%d>" % at
    while mark in everything:
        mark = b"<" + mark + b">"
    return mark


def replaced(text: bytes, marks: dict[str, bytes], used: set[str]) -> bytes:
    """Return a text with marks for placeholders, found with another algorithm than the proxy's."""
    out, at = b"", 0
    while (start := text.find(OPENING, at)) >= 0:
        end = text.find(CLOSING, start)
        name = text[start + len(OPENING) : end] if end >= 0 else b"{"
        if b"{" in name or b"}" in name:
            out += text[at : start + 1]
            at = start + 1
            continue
        out += text[at:start] + marks[name.decode()]
        used.add(name.decode())
        at = end + len(CLOSING)
    return out + text[at:]


def basic(value: bytes) -> bytes:
    scheme, space, rest = value.partition(b" ")
    digits = rest.lstrip(b" ")
    bare = digits.removesuffix(b"=").removesuffix(b"=")
    if scheme.lower() != b"basic" or not space or not bare:
        return b""
    with suppress(binascii.Error):
        return base64.b64decode(bare + b"=" * (-len(bare) % 4), validate=True)
    return b""


# Answers


def check_answer(values: list[str], answer: bytes) -> None:
    forms = {form for value in values for form in forms_of(value)}
    masked = Redactor(values).mask(answer)
    assert masked == hidden(answer, forms)
    assert len(masked) == len(answer)
    if b"*" not in answer and not any(b"*" in form for form in forms):
        assert not any(form in masked for form in forms)
    longest = max(map(len, forms), default=1)
    one_line = answer.translate(None, b"\r\n")
    for size in PIECES:
        redactor, out = Redactor(values), b""
        for at in range(0, len(one_line), size):
            out += redactor.feed(one_line[at : at + size])
            assert at + size - len(out) < 2 * LONGEST_SPELLING * longest + size
        assert out + redactor.flush() == Redactor(values).mask(one_line)
        assert redactor.flush() == b""


def hidden(answer: bytes, forms: set[bytes]) -> bytes:
    """Return an answer with asterisks wherever a form stands in a reading of it."""
    masked = bytearray(answer)
    for reading in readings(answer):
        for form in forms:
            at = reading.text.find(form)
            while at >= 0:
                for place in range(*reading.source(at, at + len(form))):
                    if answer[place] not in b"\r\n":
                        masked[place] = ord("*")
                at = reading.text.find(form, at + 1)
    return bytes(masked)
