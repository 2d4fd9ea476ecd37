"""Host names in the one form in which they are compared: lower case, ASCII, no dot at the end.

What is bound to a host and what is asked for one both come through here, so that equality is all
that is left to decide.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

LONGEST: Final = 253
LONGEST_AS_SENT: Final = 254
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")


class HostNameProblem(StrEnum):
    """Why a text is no host name."""

    NOT_ASCII = "not_ascii"
    TOO_LONG = "too_long"
    NO_NAME = "no_name"
    ADDRESS = "address"


class InvalidHostName(ValueError):
    """The text is no host name; it is not repeated."""

    def __init__(self, why: HostNameProblem) -> None:
        super().__init__(why.value)
        self.why = why


def normal_host(text: str) -> str:
    """Return a host name in the form in which it is compared.

    Raises:
        InvalidHostName: It is none, or an IP address in any spelling.

    Source: RFC 1123, section 2.1 (labels); https://url.spec.whatwg.org/#ends-in-a-number-checker.
    """
    # Before lower case: the Kelvin sign's is an ASCII k.
    if not text.isascii():
        raise InvalidHostName(HostNameProblem.NOT_ASCII)
    if len(text) > LONGEST_AS_SENT:
        raise InvalidHostName(HostNameProblem.TOO_LONG)
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > LONGEST or not all(map(_LABEL.fullmatch, labels)):
        raise InvalidHostName(HostNameProblem.NO_NAME)
    # As browsers read it: a name that ends in a number is an IPv4 address, however written.
    if _NUMBER.fullmatch(labels[-1]):
        raise InvalidHostName(HostNameProblem.ADDRESS)
    return name
