"""A certificate authority for one session, and certificates of it for hosts.

The authority's key and those of the certificates are in this process' memory and nowhere else: the
module that reads them wants a file, and gets one that has no name on any disk.

Source: RFC 5280, section 4.2 (extensions).
"""

import os
import ssl
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

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
    """A certificate authority that one session alone trusts; its name has at most 64 characters."""

    def __init__(self, name: str, clock: Clock) -> None:
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
            context = self._new_context(host, until)
            if len(self._contexts) >= _MOST_HOSTS:
                self._contexts.clear()
            self._contexts[host] = (context, until)
        return context

    def _new_context(self, host: str, until: datetime) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(HTTP_1_1)
        context.sni_callback = _asks_for(host)
        key = self._leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with _unnamed_file(key + self._leaf(host, until)) as path:
            context.load_cert_chain(path)
        return context

    def _authority(self) -> x509.Certificate:
        public = self._key.public_key()
        return self._signed(
            self._name,
            public,
            self._clock.now() + timedelta(days=_AUTHORITY_DAYS),
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (_usage(signs_certificates=True), True),
            (x509.SubjectKeyIdentifier.from_public_key(public), False),
        )

    def _leaf(self, host: str, until: datetime) -> bytes:
        leaf = self._signed(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])]),
            self._leaf_key.public_key(),
            until,
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_usage(signs_certificates=False), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
            (x509.SubjectAlternativeName([x509.DNSName(host)]), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False),
        )
        return leaf.public_bytes(Encoding.PEM)

    def _signed(
        self,
        subject: x509.Name,
        public: ec.EllipticCurvePublicKey,
        until: datetime,
        *extensions: tuple[x509.ExtensionType, bool],
    ) -> x509.Certificate:
        """Return a certificate with extensions, each of which is critical or not."""
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._clock.now() - _BEFORE)
            .not_valid_after(until)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256())


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


def _asks_for(host: str) -> Callable[[object, str | None, ssl.SSLContext], int | None]:
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
