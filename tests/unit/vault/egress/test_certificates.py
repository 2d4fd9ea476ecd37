"""What a session's authority proves to a real client of TLS, and for how long."""

import ssl
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.support.clock import FakeClock
from tollhouse.vault.egress.certificates import Authority

HOST = "api.example.com"
ANY_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME: the clock is the test's


class Client:
    """A client of TLS that trusts one authority."""

    def __init__(self, trusted: Authority, name: str | None = HOST) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.load_verify_locations(cadata=trusted.certificate)
        self.context.verify_flags |= ssl.VerifyFlags(ANY_TIME) | ssl.VERIFY_X509_STRICT
        self.context.check_hostname = name is not None
        self.name = name

    def greet(self, server: ssl.SSLContext) -> ssl.SSLObject:
        """Shake hands with a server; return this side, or raise what it hears."""
        ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = self.context.wrap_bio(ours, theirs, server_hostname=self.name)
        host = server.wrap_bio(theirs, ours, server_side=True)
        for _ in range(4):
            with suppress(ssl.SSLWantReadError):
                client.do_handshake()
            with suppress(ssl.SSLError):  # it tells the client
                host.do_handshake()
        return client


def certificate_of(authority: Authority, host: str = HOST) -> x509.Certificate:
    client = Client(authority, host)
    shown = client.greet(authority.context(host)).getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown)


@pytest.fixture
def authority(clock: FakeClock) -> Authority:
    return Authority("Tollhouse egress test", clock)


# Who is believed


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_a_client_that_trusts_the_authority_believes_the_host(
    authority: Authority, version: str
) -> None:
    client = Client(authority)
    client.context.maximum_version = ssl.TLSVersion[version]
    assert client.greet(authority.context(HOST)).cipher() is not None


@pytest.mark.parametrize(
    "asked", ["other.example.com", "example.com", "x.api.example.com", "com", None]
)
def test_a_client_that_asks_for_another_name_or_none_is_refused(
    authority: Authority, asked: str | None
) -> None:
    with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
        Client(authority, asked).greet(authority.context(HOST))


def test_a_client_of_another_session_does_not_believe_it(
    authority: Authority, clock: FakeClock
) -> None:
    other = Authority("Tollhouse egress test", clock)
    with pytest.raises(ssl.SSLCertVerificationError):
        Client(other).greet(authority.context(HOST))


def test_the_certificate_is_for_its_host_alone(authority: Authority) -> None:
    server = authority.context(HOST)
    server.sni_callback = None
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        Client(authority, "other.example.com").greet(server)


@pytest.mark.parametrize(
    "host", ["a.io", ".".join(["a" * 63] * 3 + ["b" * 61])], ids=["short", "longest"]
)
def test_a_host_name_of_any_length_is_proven(authority: Authority, host: str) -> None:
    assert Client(authority, host).greet(authority.context(host)).cipher() is not None


# What is spoken


@pytest.mark.parametrize("offered", [["http/1.1"], ["h2", "http/1.1"]])
def test_a_client_is_told_that_it_is_http_1_1(authority: Authority, offered: list[str]) -> None:
    client = Client(authority)
    client.context.set_alpn_protocols(offered)
    assert client.greet(authority.context(HOST)).selected_alpn_protocol() == "http/1.1"


# What the certificates say


def test_the_authority_signs_certificates_of_hosts_and_nothing_else(
    authority: Authority, clock: FakeClock
) -> None:
    found = x509.load_pem_x509_certificate(authority.certificate.encode())
    constraints = found.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = found.extensions.get_extension_for_class(x509.KeyUsage)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)
    assert usage.critical
    assert (usage.value.key_cert_sign, usage.value.crl_sign) == (True, True)
    assert not usage.value.digital_signature
    assert found.subject == found.issuer
    assert found.subject.rfc4514_string() == "CN=Tollhouse egress test"
    assert found.not_valid_before_utc == clock.now() - timedelta(days=1)
    assert found.not_valid_after_utc == clock.now() + timedelta(days=3650)


def test_a_hosts_certificate_proves_a_server_and_signs_nothing(authority: Authority) -> None:
    found = certificate_of(authority)
    constraints = found.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = found.extensions.get_extension_for_class(x509.KeyUsage)
    purposes = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=False, path_length=None)
    assert usage.critical
    assert (usage.value.digital_signature, usage.value.key_cert_sign) == (True, False)
    assert list(purposes.value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert list(names.value) == [x509.DNSName(HOST)]


# How long it holds


def test_a_certificate_holds_for_90_days_and_is_renewed_30_days_before_its_end(
    authority: Authority, clock: FakeClock
) -> None:
    context, first = authority.context(HOST), certificate_of(authority)
    assert first.not_valid_before_utc == clock.now() - timedelta(days=1)
    assert first.not_valid_after_utc == clock.now() + timedelta(days=90)
    clock.advance(60 * 86_400)
    assert authority.context(HOST) is context
    assert authority.context("other.example.com") is not context
    clock.advance(1)
    second = certificate_of(authority)
    assert second.serial_number != first.serial_number
    assert second.not_valid_after_utc == clock.now() + timedelta(days=90)
    assert authority.context(HOST) is authority.context(HOST)


# Where keys are


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")
def test_no_file_stays_open_with_a_key(authority: Authority) -> None:
    authority.context("first.example.com")
    before = len(list(Path("/proc/self/fd").iterdir()))
    authority.context(HOST)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_elsewhere_than_on_linux_the_file_is_gone_at_once(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server = authority.context(HOST)
    monkeypatch.undo()
    assert Client(authority).greet(server).cipher() is not None
    assert list(tmp_path.iterdir()) == []
