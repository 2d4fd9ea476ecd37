"""Which host a client asks for in the first message of TLS."""

import ssl
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.vault.egress.tls_client_hello import LARGEST, InvalidClientHello, server_name

HOST = "api.example.com"
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
versions = pytest.mark.parametrize("version", VERSIONS, ids=["1.2", "1.3"])


def hello(
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    host: str | None = HOST,
    protocols: tuple[str, ...] = (),
) -> bytes:
    """Return what a real client says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.minimum_version = context.maximum_version = version
    if protocols:
        context.set_alpn_protocols(protocols)
    out = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=host)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


def message(data: bytes) -> bytes:
    return data[5:]


def records(content: bytes, size: int) -> bytes:
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    return b"".join(b"\x16\x03\x01" + len(each).to_bytes(2, "big") + each for each in pieces)


def vector(size: int, content: bytes) -> bytes:
    return len(content).to_bytes(size, "big") + content


def extension(kind: int, content: bytes) -> bytes:
    return kind.to_bytes(2, "big") + vector(2, content)


def names(*entries: tuple[int, bytes]) -> bytes:
    listed = b"".join(bytes([kind]) + vector(2, name) for kind, name in entries)
    return extension(0, vector(2, listed))


def written(after: bytes = b"") -> bytes:
    """Return a ClientHello with something behind its compression methods."""
    body = b"\x03\x03" + bytes(32) + vector(1, b"") + vector(2, b"\x13\x01") + vector(1, b"\0")
    return records(b"\x01" + vector(3, body + after), 1 << 14)


@versions
def test_a_real_clients_name_is_found(version: ssl.TLSVersion) -> None:
    assert server_name(hello(version, protocols=("h2", "http/1.1"))) == HOST


def test_it_is_returned_as_it_stands_there() -> None:
    assert server_name(hello(host="API.Example.com.")) == "API.Example.com."


@versions
def test_without_a_name_it_is_empty(version: ssl.TLSVersion) -> None:
    assert server_name(hello(version, host=None)) == ""


@versions
def test_a_message_that_was_cut_anywhere_is_incomplete(version: ssl.TLSVersion) -> None:
    whole = hello(version)
    assert {server_name(whole[:size]) for size in range(len(whole))} == {None}


@pytest.mark.parametrize("size", [16, 23, 60, 100])
def test_a_message_in_several_records_is_put_together(size: int) -> None:
    split = records(message(hello(protocols=("http/1.1",))), size)
    assert server_name(split) == HOST
    assert {server_name(split[:end]) for end in range(len(split))} == {None}


@pytest.mark.parametrize("first", [1, 2, 3, 4, 5])
def test_even_the_head_of_the_message_may_be_split(first: int) -> None:
    content = message(hello())
    split = records(content[:first], first) + records(content[first:], 1 << 14)
    assert server_name(split) == HOST


def test_a_message_in_more_records_than_any_client_makes_is_refused() -> None:
    content = message(hello())
    assert len(content) > 65
    assert server_name(records(b"\x01\x00\xff\xff" + bytes(28), 1)) is None
    with pytest.raises(InvalidClientHello):
        server_name(records(b"\x01\x00\xff\xff" + bytes(29), 1))


def test_what_follows_the_message_is_not_looked_at() -> None:
    assert server_name(hello() + b"garbage") == HOST
    content = message(hello())
    assert server_name(records(content + b"\x02garbage", 1 << 14)) == HOST


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"G", id="a letter"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="HTTP"),
        pytest.param(b"\x80\x2e\x01\x03\x01", id="SSL 2"),
        pytest.param(b"\x17\x03\x03\x00\x01\x01", id="another kind of record"),
        pytest.param(b"\x16\x02\x00\x00\x01\x01", id="no version of TLS"),
        pytest.param(b"\x16\x03\x01\x00\x00", id="an empty record"),
        pytest.param(b"\x16\x03\x01\x40\x01", id="too large a record"),
        pytest.param(b"\x16\x03\x01\x00\x01\x02", id="another message"),
        pytest.param(b"\x16\x03\x01\x00\x04\x01\x01\x00\x01", id="too large a message"),
        pytest.param(
            records(b"\x01\x00\x00\x09", 4) + b"\x15\x03\x01\x00\x02\x01\x00", id="an alert inside"
        ),
        pytest.param(records(b"\x01\x00\x00\x00", 4), id="an empty message"),
        pytest.param(records(b"\x01" + vector(3, bytes(34)), 99), id="no session"),
    ],
)
def test_anything_else_is_no_hello(data: bytes) -> None:
    with pytest.raises(InvalidClientHello):
        server_name(data)


def test_a_message_may_announce_65536_bytes() -> None:
    assert LARGEST == 65_536
    assert server_name(b"\x16\x03\x01\x40\x00\x01\x01\x00\x00") is None


@pytest.mark.parametrize("minor", [0, 1, 3, 4])
def test_records_of_any_version_of_tls_are_read(minor: int) -> None:
    data = bytearray(hello())
    data[2] = minor
    assert server_name(bytes(data)) == HOST


def test_a_record_may_have_16384_bytes() -> None:
    padded = written(vector(2, extension(21, bytes(16_000)) + names((0, b"a.com"))))
    assert server_name(padded) == "a.com"
    exact = written(vector(2, extension(21, bytes(16_323)) + names((0, b"a"))))
    assert int.from_bytes(exact[3:5], "big") == 16_384
    assert server_name(exact) == "a"


def test_a_message_without_extensions_has_no_name() -> None:
    assert server_name(written()) == ""
    bare = message(written())
    assert server_name(records(bare + b"\x02next", 1 << 14)) == ""
    assert server_name(written(vector(2, b""))) == ""


@pytest.mark.parametrize(
    "extensions",
    [
        pytest.param(names((0, b"a.com")) * 2, id="two extensions"),
        pytest.param(names((0, b"")) + names((0, b"a.com")), id="two, one of them empty"),
        pytest.param(names((0, b"a.com"), (0, b"b.com")), id="two names"),
        pytest.param(names((1, b"a.com")), id="another kind of name"),
        pytest.param(names((0, b"b\xfccher.de")), id="not ASCII"),
        pytest.param(extension(0, b""), id="no list"),
        pytest.param(names(), id="an empty list"),
        pytest.param(extension(0, b"\0\x05\0\0\x09ab"), id="a name that is cut"),
        pytest.param(b"\0", id="an extension that is cut"),
        pytest.param(b"\0\x15\0\x05abc", id="an extension that is too short"),
    ],
)
def test_a_name_that_two_readers_read_differently_is_refused(extensions: bytes) -> None:
    with pytest.raises(InvalidClientHello):
        server_name(written(vector(2, extensions)))


def test_extensions_that_reach_beyond_the_message_are_refused() -> None:
    with pytest.raises(InvalidClientHello):
        server_name(written(b"\x00\x20" + names((0, b"a.com"))))


def test_the_refusal_repeats_nothing() -> None:
    with pytest.raises(InvalidClientHello) as refused:
        server_name(b"secret")
    assert not refused.value.args
    with pytest.raises(InvalidClientHello) as refused:
        server_name(written(b"\x00\x20"))
    assert refused.value.__suppress_context__


@given(st.binary(max_size=300), st.booleans())
def test_garbage_is_refused_or_waited_for_and_never_fails_otherwise(
    data: bytes,
    framed: bool,  # noqa: FBT001 - drawn
) -> None:
    with suppress(InvalidClientHello):
        server_name(records(b"\x01" + vector(3, data), 90) if framed else data)


REAL = hello()


@given(st.integers(0, len(REAL) - 1), st.integers(0, 255))
def test_a_real_message_with_any_byte_changed_never_fails_otherwise(at: int, byte: int) -> None:
    changed = bytearray(REAL)
    changed[at] = byte
    with suppress(InvalidClientHello):
        server_name(bytes(changed))
