"""What the proxy refuses, in words of its own: nothing of a request or of a failure is repeated.

Each is an answer of its own, complete before it is needed. `x-tollhouse-egress` names the reason,
so that a client can tell an answer of the proxy's from one of the host's.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

REASON_HEADER: Final = b"x-tollhouse-egress"


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why something is refused, and with which status."""

    reason: str
    message: str
    status: int = 403

    def body(self) -> bytes:
        """Return the body of the answer."""
        metadata = {"reason": self.reason}
        error = {"code": self.status, "message": self.message, "metadata": metadata}
        return json.dumps({"error": error}).encode() + b"\n"

    def answer(self) -> bytes:
        """Return the whole answer, after which the connection is closed."""
        body = self.body()
        asks = self.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED
        challenge = 'Proxy-Authenticate: Basic realm="tollhouse"\r\n' if asks else ""
        head = (
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"{REASON_HEADER.decode()}: {self.reason}\r\n{challenge}"
            "Connection: close\r\n\r\n"
        )
        return head.encode() + body


class Rejected(Exception):
    """Something is refused; says which of the constants below it is."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.reason)
        self.rejection = rejection


MALFORMED = Rejection("malformed", "The request is no well-formed HTTP/1.1.", 400)
AMBIGUOUS_LENGTH = Rejection(
    "ambiguous_length", "The request says in more than one way where its body ends.", 400
)
ONE_HOST = Rejection("one_host", "The request must have exactly one Host header.", 400)
HOST_DISAGREES = Rejection(
    "host_disagrees", "The host that was connected to and the Host header must be the same.", 400
)
NOT_ORIGIN_FORM = Rejection(
    "not_origin_form", "Inside a tunnel the target of a request is a path.", 400
)
NOT_A_NAME = Rejection("not_a_name", "Hosts are reached by their names, and not by an IP address.")
METHOD = Rejection("method", "CONNECT and TRACE are not passed on.", 405)
TLS_NEEDED = Rejection("tls_needed", "This workspace allows no HTTP without TLS.")
TLS_FOR_SECRETS = Rejection(
    "tls_for_secrets", "A secret is bound to this host, so it is reached over TLS alone."
)
SECRET_IN_URL = Rejection(
    "secret_in_url", "A secret may stand in the value of a header, and not in the URL."
)
UNKNOWN_SECRET = Rejection(
    "unknown_secret", "There is no secret of the name that the request asks for."
)
OTHER_HOST = Rejection(
    "other_host", "The secret that the request asks for is bound to other hosts."
)
OTHER_PORT = Rejection(
    "other_port", "Secrets go to port 443 of a host, and to ports that the operator allows."
)
UNBOUND = Rejection(
    "unbound", "The secret that the request asks for is bound to no host: store it again."
)
NOT_IN_A_HEADER = Rejection("not_in_a_header", "The value of the secret cannot stand in a header.")
NOT_OPENED = Rejection("not_opened", "The secret cannot be released now; nothing was sent.", 503)
NO_SECRETS = Rejection(
    "no_secrets", "The vault that is attached here is gone, so no host can be reached."
)
DESTINATION = Rejection("destination", "The host has an address that may not be called from here.")
UNREACHABLE = Rejection("unreachable", "The host cannot be reached.", 502)
CERTIFICATE = Rejection(
    "certificate", "The host's certificate does not prove that it is the host.", 502
)
BROKEN = Rejection("broken", "The host's answer broke off, or is no HTTP/1.1.", 502)
COMPRESSED = Rejection(
    "compressed", "The host compressed an answer that has to be read for secrets.", 502
)
EXTENSION = Rejection(
    "extension", "The host agreed to an extension of WebSocket that was not offered to it.", 502
)
NO_ROUTE = Rejection(
    "no_route", "Only inference is reached here, and what is an intern's own, to be read.", 404
)
HEAD_TOO_LARGE = Rejection("head_too_large", "The head of the request is too large.", 431)
TOO_SLOW = Rejection("too_slow", "The request did not arrive in time.", 408)
TOO_MANY = Rejection("too_many_connections", "Too many connections are open here.", 429)
PASSWORD = Rejection("password", "This proxy is for the program that it was begun for.", 407)
UNAVAILABLE = Rejection("unavailable", "The gateway does not answer; try again.", 503)

BY_REASON: Final[Mapping[str, Rejection]] = {
    each.reason: each for each in globals().copy().values() if isinstance(each, Rejection)
}
