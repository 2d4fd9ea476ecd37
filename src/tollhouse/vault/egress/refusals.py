"""What the proxy refuses, in words of its own: nothing of a request or of a failure is repeated.

Each is an answer of its own, complete before it is needed. `x-tollhouse-egress` names the reason,
so that a client can tell an answer of the proxy's from one of the host's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

REASON_HEADER: Final = b"x-tollhouse-egress"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something is refused, and with which status."""

    status: int
    reason: str
    message: str

    @property
    def phrase(self) -> str:
        """The status in words."""
        return HTTPStatus(self.status).phrase

    def body(self) -> bytes:
        """Return the body of the answer."""
        error = {
            "code": self.status,
            "message": self.message,
            "metadata": {"reason": self.reason},
        }
        return json.dumps({"error": error}).encode() + b"\n"

    def answer(self) -> bytes:
        """Return the whole answer, after which the connection is closed."""
        body = self.body()
        asks = self.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED
        challenge = 'Proxy-Authenticate: Basic realm="tollhouse"\r\n' if asks else ""
        head = (
            f"HTTP/1.1 {self.status} {self.phrase}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"{REASON_HEADER.decode()}: {self.reason}\r\n{challenge}"
            "Connection: close\r\n\r\n"
        )
        return head.encode() + body


class Refused(Exception):
    """Something is refused; says which of the constants below it is."""

    def __init__(self, refusal: Refusal) -> None:
        """Take the refusal."""
        super().__init__(refusal.reason)
        self.refusal = refusal


MALFORMED: Final = Refusal(400, "malformed", "The request is no well-formed HTTP/1.1.")
AMBIGUOUS_LENGTH: Final = Refusal(
    400, "ambiguous_length", "The request says in more than one way where its body ends."
)
ONE_HOST: Final = Refusal(400, "one_host", "The request must have exactly one Host header.")
HOST_DISAGREES: Final = Refusal(
    400, "host_disagrees", "The host that was connected to and the Host header must be the same."
)
NOT_ORIGIN_FORM: Final = Refusal(
    400, "not_origin_form", "Inside a tunnel the target of a request is a path."
)
NOT_A_NAME: Final = Refusal(
    403, "not_a_name", "Hosts are reached by their names, and not by an IP address."
)
METHOD: Final = Refusal(405, "method", "CONNECT and TRACE are not passed on.")
TLS_NEEDED: Final = Refusal(403, "tls_needed", "This workspace allows no HTTP without TLS.")
TLS_FOR_SECRETS: Final = Refusal(
    403, "tls_for_secrets", "A secret is bound to this host, so it is reached over TLS alone."
)
SECRET_IN_URL: Final = Refusal(
    403, "secret_in_url", "A secret may stand in the value of a header, and not in the URL."
)
UNKNOWN_SECRET: Final = Refusal(
    403, "unknown_secret", "There is no secret of the name that the request asks for."
)
OTHER_HOST: Final = Refusal(
    403, "other_host", "The secret that the request asks for is bound to other hosts."
)
OTHER_PORT: Final = Refusal(
    403, "other_port", "Secrets go to port 443 of a host, and to ports that the operator allows."
)
UNBOUND: Final = Refusal(
    403, "unbound", "The secret that the request asks for is bound to no host: store it again."
)
NOT_IN_A_HEADER: Final = Refusal(
    403, "not_in_a_header", "The value of the secret cannot stand in a header."
)
NOT_OPENED: Final = Refusal(
    503, "not_opened", "The secret cannot be released now; nothing was sent."
)
NO_SECRETS: Final = Refusal(
    403, "no_secrets", "The vault that is attached here is gone, so no host can be reached."
)
DESTINATION: Final = Refusal(
    403, "destination", "The host has an address that may not be called from here."
)
UNREACHABLE: Final = Refusal(502, "unreachable", "The host cannot be reached.")
CERTIFICATE: Final = Refusal(
    502, "certificate", "The host's certificate does not prove that it is the host."
)
BROKEN: Final = Refusal(502, "broken", "The host's answer broke off, or is no HTTP/1.1.")
COMPRESSED: Final = Refusal(
    502, "compressed", "The host compressed an answer that has to be read for secrets."
)
EXTENSION: Final = Refusal(
    502, "extension", "The host agreed to an extension of WebSocket that was not offered to it."
)
NO_ROUTE: Final = Refusal(
    404, "no_route", "Only inference is reached here, and what is an intern's own, to be read."
)
HEAD_TOO_LARGE: Final = Refusal(431, "head_too_large", "The head of the request is too large.")
TOO_SLOW: Final = Refusal(408, "too_slow", "The request did not arrive in time.")
TOO_MANY: Final = Refusal(429, "too_many_connections", "Too many connections are open here.")
PASSWORD: Final = Refusal(407, "password", "This proxy is for the program that it was begun for.")
UNAVAILABLE: Final = Refusal(503, "unavailable", "The gateway does not answer; try again.")
