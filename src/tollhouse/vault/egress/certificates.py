"""A certificate authority for one session, and certificates of it for hosts.

The authority's key and those of the certificates are in this process' memory and nowhere else: the
module that reads them wants a file, and gets one that has no name on any disk.

Source: RFC 5280, section 4.2 (extensions).
"""

from __future__ import annotations

import os
import ssl
import sys
import tempfile
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from datetime import datetime

    from tollhouse.kernel.clock import Clock

_AUTHORITY_DAYS: Final = 3650
_LEAF_DAYS: Final = 90
"""Well below the 398 days that clients take."""
_RENEWED_DAYS: Final = 30
_MOST_HOSTS: Final = 1_000
_BEFORE: Final = timedelta(days=1)
"""Clocks in sandboxes may be late."""
HTTP_1_1: Final = ["http/1.1"]


class Authority:
    """A certificate authority that one session alone trusts."""

    def __init__(self, name: str, clock: Clock) -> None:
        """Make its key and its certificate.

        Args:
            name: What people see as its name; at most 64 characters.
            clock: The time.
        """
        self._clock = clock
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._contexts: dict[str, tuple[ssl.SSLContext, datetime]] = {}
        self.certificate: Final = self._authority().public_bytes(Encoding.PEM).decode()
        """What clients have to trust, as PEM."""

    def context(self, host: str) -> ssl.SSLContext:
        """Return what answers a client as a host, and lets it ask for this host alone."""
        now = self._clock.now()
        context, until = self._contexts.get(host, (None, now))
        if context is None or until - now < timedelta(days=_RENEWED_DAYS):
            until = now + timedelta(days=_LEAF_DAYS)
            context = self._new_context(host, now, until)
            if len(self._contexts) >= _MOST_HOSTS:
                self._contexts.clear()
            self._contexts[host] = (context, until)
        return context

    def _new_context(self, host: str, now: datetime, until: datetime) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(HTTP_1_1)
        context.sni_callback = _asks_for(host)
        key = self._leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with _unnamed_file(key + self._leaf(host, now, until)) as path:
            context.load_cert_chain(path)
        return context

    def _authority(self) -> x509.Certificate:
        now = self._clock.now()
        public = self._key.public_key()
        builder = _builder(self._name, self._name, public, now, now + timedelta(_AUTHORITY_DAYS))
        for extension, critical in (
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (_usage(signs_certificates=True), True),
            (x509.SubjectKeyIdentifier.from_public_key(public), False),
        ):
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256())

    def _leaf(self, host: str, now: datetime, until: datetime) -> bytes:
        public = self._leaf_key.public_key()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = _builder(subject, self._name, public, now, until)
        for extension, critical in (
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_usage(signs_certificates=False), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
            (x509.SubjectAlternativeName([x509.DNSName(host)]), False),
            (issuer_key, False),
        ):
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    now: datetime,
    until: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(until)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _asks_for(
    host: str,
) -> Callable[[ssl.SSLObject | ssl.SSLSocket, str | None, ssl.SSLContext], int | None]:
    def check(_: object, name: str | None, __: ssl.SSLContext) -> int | None:
        # Exact, but for what names cannot differ in.
        if name is not None and name.lower() == host:
            return None
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    return check


@contextmanager
def _unnamed_file(data: bytes) -> Generator[str]:
    if sys.platform == "linux":
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:  # mode 0600, gone in a moment
        file.write(data)
        file.flush()
        yield file.name
