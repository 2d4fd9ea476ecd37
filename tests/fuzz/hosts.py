"""Host names as they are compared: two spellings, one on each line.

Whatever is accepted is a name by the strict grammar, in the form that it is compared in, and an
address to nobody. Two spellings lead to the same place exactly where their normal forms are equal.
"""

import re
import socket
from contextlib import suppress
from ipaddress import ip_address

from tollhouse.kernel.hosts import InvalidHostName, normal_host
from tollhouse.vault.egress.rejections import Rejected
from tollhouse.vault.egress.request_head import (
    HTTP_PORT,
    HTTPS_PORT,
    Target,
    absolute_target,
    check_host,
    connect_target,
)

STRICT = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*")


def check(data: bytes) -> None:
    """Fail where a host could be taken for another one."""
    first, _, second = data.partition(b"\n")
    places = [place for place in map(check_one, (first, second)) if place is not None]
    for mine in places:
        for other in (first, second):
            expected = place_of(other)
            assert agrees(other, mine) == (expected == mine)


def check_one(sent: bytes) -> Target | None:
    name = check_name(sent.decode("utf-8", "surrogateescape"))
    place = place_of(sent)
    if name is not None:
        assert place == Target(name, HTTPS_PORT)
    for written, port in ((sent, HTTP_PORT), (sent + b":8080", 8080)):
        with suppress(Rejected):
            found, path = absolute_target(b"http://" + written + b"/x?y")
            if b"/" not in sent and b"?" not in sent:
                assert path == b"/x?y"
            if name is not None:
                assert found == Target(name, port)
            check_name(found.host)
    return place


def check_name(text: str) -> str | None:
    """Return the normal form of what is accepted."""
    try:
        name = normal_host(text)
    except InvalidHostName:
        return None
    assert normal_host(name) == name
    assert len(name) <= 253
    assert STRICT.fullmatch(name)
    assert name == text.encode("ascii").lower().decode().removesuffix(".")
    assert not is_address(name)
    return name


def is_address(name: str) -> bool:
    with suppress(ValueError):
        ip_address(name)
        return True
    with suppress(OSError):
        socket.inet_aton(name)
        return True
    return False


def place_of(sent: bytes) -> Target | None:
    """Return where CONNECT leads; on the port of https where none is named."""
    for written in (sent, sent + b":443"):
        with suppress(Rejected):
            return connect_target(written)
    return None


def agrees(host: bytes, place: Target) -> bool:
    try:
        check_host([host], place, HTTPS_PORT)
    except Rejected:
        return False
    return True
