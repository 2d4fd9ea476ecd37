"""Faults of a connection after a whole request: it breaks off or sends invalid bytes."""

from dataclasses import dataclass

from tests.support.providers.byte_script import End, Pause, Step
from tests.support.providers.raw_server import Behaviour, say
from tollhouse.outbound.http.port import ConnectionLost, ProtocolViolation, UpstreamError

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
COUNTED = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"
OPEN_ENDED = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
MANY_FIELDS = b"".join(b"X-%d: y\r\n" % number for number in range(257))
ENDLESS_FIELD = b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000
FIVE_BIG_FIELDS = b"".join(b"X-%d: %b\r\n" % (n, b"y" * 20_000) for n in range(5))


@dataclass(frozen=True)
class Fault:
    name: str
    error: type[UpstreamError]
    script: tuple[Step, ...]

    def __str__(self) -> str:
        return self.name

    @property
    def behave(self) -> Behaviour:
        return say(*self.script)


def _lost(name: str, *script: Step) -> Fault:
    return Fault(name, ConnectionLost, script)


def _broken(name: str, *script: Step) -> Fault:
    return Fault(name, ProtocolViolation, script)


FAULTS = (
    _lost("end-before-status-line", End.EOF),
    _lost("reset-before-status-line", End.RST),
    _lost("end-in-status-line", b"HTTP/1.", End.EOF),
    _lost("end-in-head", b"HTTP/1.1 200 OK\r\nContent-Le", End.EOF),
    _lost("reset-in-head", b"HTTP/1.1 200 OK\r\nContent-Le", End.RST),
    _lost("end-after-counted-head", COUNTED, End.EOF),
    _lost("end-after-chunked-head", CHUNKED, End.EOF),
    _lost("reset-after-head", COUNTED, End.RST),
    _lost("end-in-counted-body", COUNTED, b"half", End.EOF),
    _lost("cut-in-counted-body", COUNTED, b"half", End.CUT),
    _lost("reset-in-counted-body", COUNTED, b"half", End.RST),
    _lost("end-between-chunks", CHUNKED, b"3\r\none\r\n", End.EOF),
    _lost("cut-between-chunks", CHUNKED, b"3\r\none\r\n", End.CUT),
    _lost("reset-between-chunks", CHUNKED, b"3\r\none\r\n", End.RST),
    _lost("end-in-chunk", CHUNKED, b"5\r\non", End.EOF),
    _lost("end-in-chunk-size", CHUNKED, b"5", End.EOF),
    _lost("end-before-last-empty-line", CHUNKED, b"3\r\none\r\n0\r\n", End.EOF),
    _lost("reset-in-open-ended-body", OPEN_ENDED, b"half", End.RST),
    _broken("garbage", b"\x00\x01\x02 this is not HTTP\r\n\r\n", End.HANG),
    _broken("other-protocol", b"SSH-2.0-OpenSSH_9.2\r\n", End.HANG),
    _broken("bad-chunk-size", CHUNKED, b"xyz\r\none\r\n", End.HANG),
    _broken("bad-chunk-size-later", CHUNKED, b"3\r\none\r\n", Pause(0.01), b"xyz\r\n", End.HANG),
    _broken("bad-chunk-size-and-end", CHUNKED, Pause(0.01), b"xyz\r\none\r\n", End.EOF),
    _broken("chunk-longer-than-it-says", CHUNKED, b"3\r\nonetwo\r\n", End.HANG),
    _broken("length-with-chunks", COUNTED[:-2], CHUNKED[17:], b"0\r\n\r\n", End.HANG),
    _broken("two-lengths", COUNTED[:-2], b"Content-Length: 11\r\n\r\n", b"x" * 11, End.HANG),
    _broken("same-length-twice", COUNTED[:-2], b"Content-Length: 10\r\n\r\n", b"x" * 10, End.HANG),
    _broken("negative-length", b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", End.HANG),
    _broken("length-no-number", b"HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n", End.HANG),
    _broken("too-many-fields", b"HTTP/1.1 200 OK\r\n", MANY_FIELDS, b"\r\n", End.HANG),
    _broken("huge-field", ENDLESS_FIELD, b"\r\n\r\n", End.HANG),
    _broken("endless-field", ENDLESS_FIELD, End.HANG),
    _broken("endless-status-line", b"HTTP/1.1 200 " + b"y" * 70_000, End.HANG),
    _broken("huge-head", COUNTED[:-2], FIVE_BIG_FIELDS, b"\r\n", b"x" * 10, End.HANG),
    _broken("endless-head", COUNTED[:-2], FIVE_BIG_FIELDS, End.HANG),
    _broken(
        "endless-head-after-interim",
        b"HTTP/1.1 103 Early Hints\r\n\r\n",
        COUNTED[:-2],
        FIVE_BIG_FIELDS,
        End.HANG,
    ),
    _broken("nul-in-field", COUNTED[:-2], b"X: a\x00b\r\n\r\n", b"x" * 10, End.HANG),
    _broken("unasked-upgrade", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", End.HANG),
)
