"""What each setting takes, and what is said of anything else."""

from __future__ import annotations

from decimal import Decimal
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from tollhouse.settings.sections import GuardrailSettings, ProviderSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    Load = Callable[..., Settings]
    Problems = Callable[..., list[str]]

EXAMPLE = """
providers:
  - slug: acme
    kind: openai_compatible
    base_url: https://llm.acme.example/v1
    api_key: ${ACME_KEY}
models:
  - id: acme/large
    context_length: 128000
    max_completion_tokens: 16000
    endpoints:
      - provider: acme
        model: large-2026
        pricing: {prompt: "0.000001", completion: "0.000002", input_cache_read: "0.0000001"}
"""


def endpoint(pricing: str, model: str = "a/b") -> str:
    return f"""
providers: [{{slug: sim, kind: simulated}}]
models:
  - id: {model}
    context_length: 1
    endpoints: [{{provider: sim, model: m, pricing: {pricing}}}]
"""


def provider(setting: str = "", kind: str = "anthropic") -> str:
    return f"providers: [{{slug: acme, kind: {kind}{', ' if setting else ''}{setting}}}]"


def test_the_example_of_the_guide_loads(load_text: Load) -> None:
    settings = load_text(EXAMPLE, {"ACME_KEY": "sk-acme-key"})
    assert settings.providers[0].api_key is not None
    assert settings.providers[0].api_key.reveal() == "sk-acme-key"
    pricing = settings.models[0].endpoints[0].pricing
    assert pricing not in {None, "free"}
    assert pricing.input_cache_read == Decimal("1e-7")


def test_an_empty_file_gives_the_defaults(load_text: Load, tmp_path: Path) -> None:
    settings = load_text("")
    assert settings == Settings(data_dir=settings.data_dir)
    assert settings.server.port == 8080
    assert settings.accounting.initial_grant == 1_000
    assert settings.server.body_limit_bytes == 32 * 1024 * 1024
    assert tmp_path not in settings.data_dir.parents


def test_sections_are_frozen() -> None:
    settings = Settings(data_dir=Path("/data"))
    with pytest.raises(ValidationError, match="frozen"):
        settings.server.port = 1


PRICE = "models.0.endpoints.0.pricing"
TAKEN: list[tuple[str, str, Any]] = [
    ("server:\nproviders:\nlogging:\n  level:\n", "logging.level", "info"),
    ("logging: {level: WARNING}", "logging.level", "warning"),
    (provider(), "providers.0.base_url", "https://api.anthropic.com/v1"),
    (provider("base_url: http://h:1/v1/"), "providers.0.base_url", "http://h:1/v1"),
    (provider(kind="simulated"), "providers.0.name", "acme"),
    (provider("name: Acme Inc.", "simulated"), "providers.0.name", "Acme Inc."),
    (provider(kind="simulated"), "providers.0.idempotent", False),
    (provider("idempotent: 'true'", "simulated"), "providers.0.idempotent", True),
    *(
        (endpoint("free", model), "models.0.id", model)
        for model in ("a/b:free", "~a/b-1.5@x+y", "meta.llama/3_1:beta")
    ),
    (endpoint("free"), PRICE, "free"),
    (endpoint(""), PRICE, None),
    *(
        (endpoint(f"{{prompt: {written}, completion: 0}}"), f"{PRICE}.prompt", Decimal(exact))
        for written, exact in (
            ('"0.000001"', "0.000001"),
            ("1e-6", "0.000001"),  # without a dot YAML takes it for text
            ("3", "3"),
            ('"0.100000000000000000000000000000"', "0.1"),
            ('"-0"', "0"),
        )
    ),
    *(
        (f"accounting: {{initial_grant: {amount}}}", "accounting.initial_grant", Decimal(exact))
        for amount, exact in (("0", "0"), ('"0.000000001"', "1e-9"), ('"12.5"', "12.5"))
    ),
    (
        "server: {trusted_proxies: [10.0.0.1, 10.1.0.0/16, '::1']}",
        "server.trusted_proxies",
        (ip_network("10.0.0.1"), ip_network("10.1.0.0/16"), ip_network("::1")),
    ),
]


@pytest.mark.parametrize(("text", "setting", "value"), TAKEN)
def test_a_setting_is_taken(load_text: Load, text: str, setting: str, value: object) -> None:
    found: Any = load_text(text)
    for name in setting.split("."):
        found = found[int(name)] if name.isdigit() else getattr(found, name)
    assert found == value
    if isinstance(found, Decimal):
        assert not found.is_signed()


OF_PROVIDER, OF_PRICE = "providers[0].", "models[0].endpoints[0].pricing"
MUST_BE_FLOATLESS = "must be in quotes: without them it is a binary float, which is not exact"
REFUSED: list[tuple[str, str]] = [
    (provider(kind="openai_compatible"), OF_PROVIDER + "base_url: is required for kind openai"),
    *(
        (provider(setting, "simulated"), OF_PROVIDER + name + ": has no effect")
        for name, setting in (
            ("base_url", "base_url: http://h"),
            ("api_key", "api_key: k"),
            ("headers", "headers: {a: b}"),
            ("proxy", "proxy: http://h"),
        )
    ),
    (provider("api_key: sk-1234"), OF_PROVIDER + "api_key: has fewer than 8 characters"),
    *(
        (provider(f"idempotent: {written}"), OF_PROVIDER + "idempotent: must be true or false")
        for written in ("perhaps", "2", "[true]")
    ),
    *(
        (
            provider().replace("acme", repr(slug), 1),
            OF_PROVIDER + "slug: must be lower-case letters",
        )
        for slug in ("Acme", "-acme", "a_b", "a b", "")
    ),
    *(
        (endpoint("free", model), "models[0].id: must look like author/slug")
        for model in ("b", "a/", "/b", "a/b/c", "a b/c")
    ),
    (
        "models: [{id: a/b, context_length: 1, endpoints: []}]",
        "models[0].endpoints: must have at least one entry",
    ),
    (endpoint('{prompt: 0.000001, completion: "0"}'), f"{OF_PRICE}.prompt: {MUST_BE_FLOATLESS}"),
    *(
        (endpoint(f"{{prompt: {price}, completion: 0}}"), f"{OF_PRICE}.prompt: must ")
        for price in (
            *('"-1"', '"x"', '"NaN"', '"Infinity"', '"1e-19"', '"1e7"', '"1e999999999"'),
            *("true", "[1]"),
        )
    ),
    (endpoint("{prompt: 1}"), f"{OF_PRICE}.completion: is required"),
    *((endpoint(word), f"{OF_PRICE}: must be a mapping") for word in ("gratis", "0", "'0.1'")),
    *(
        (f"accounting: {{initial_grant: {amount}}}", "accounting.initial_grant: must ")
        for amount in ("12.5", '"-1"', '"0.0000000001"', '"1e10"', "yes")
    ),
    *(
        (f"server: {{port: {port}}}", "server.port: must be ")
        for port in ("-1", "65536", "http", "80.5", "yes")
    ),
    *(
        (f"upstream: {{idle_seconds: {seconds}}}", "upstream.idle_seconds: must be ")
        for seconds in ("0", "-1", ".inf", ".nan", "soon", "yes", "100000")
    ),
    *(
        (
            f"server: {{trusted_proxies: [{network}]}}",
            "server.trusted_proxies[0]: must be an address or a network",
        )
        for network in ("10.0.0.1/8", "proxy.example", "'*'", "5")
    ),
    *(
        (f"server: {{cors_origins: [{origin}]}}", "server.cors_origins[0]: must be an origin")
        for origin in ("'*'", "app.example", "https://app.example/", "'nil'")
    ),
    *(
        (
            f"interns: {{public_url: '{url}'}}",
            "interns.public_url: must look like https://{intern}.example.com, without a path",
        )
        for url in (
            *("https://interns.example.com", "https://x.{intern}.example.com"),
            *("https://{intern}", "https://{intern}.example.com/", "{intern}.example.com"),
            *("https://{intern}.example.com/x", "ftp://{intern}.example.com"),
            *("https://a@{intern}.example.com", "https://{intern}.-a.com"),
            *("https://{intern}.example.com:0", "https://{intern}.example.com?x"),
            "https://{intern}x.com",
        )
    ),
    *(
        (
            f"server: {{regional_hostnames: [{pattern}]}}",
            "server.regional_hostnames[0]: must be a host name",
        )
        for pattern in ("http://eu.example", "eu.example:80", "''")
    ),
    *(
        (f"egress: {{allow_ports: [{place}]}}", "egress.allow_ports[0]: must be host:port")
        for place in (
            *("a.example", "a.example:0", "a.example:65536", "'[::1]:443'", "'*.example:443'"),
        )
    ),
    *(
        (
            f"database_url: {url}",
            "database_url: must look like postgresql://user:password@host:5432/name",
        )
        for url in ("mysql://h/d", "postgres://h/d", "/var/db", "postgresql", "'postgresql:h'")
    ),
]


@pytest.mark.parametrize(("text", "beginning"), REFUSED)
def test_anything_else_is_one_problem_of_its_setting(
    problems_of: Problems, text: str, beginning: str
) -> None:
    (problem,) = problems_of(text)
    assert problem.startswith(beginning)


def test_a_key_from_a_file_loses_its_line_end() -> None:
    key = ProviderSettings(slug="acme", kind="anthropic", api_key="sk-12345\n").api_key  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert key is not None
    assert key.reveal() == "sk-12345"


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            {"kind": "openai_compatible", "base_url": url}
            for url in (
                *("llm.acme.example/v1", "ftp://h/v1", "http://", "http://h:0/v1", ""),
                *("http://h:99999/v1", "http://[::1/v1", "http://user:pass@h/v1"),
                *("http://h/v1?key=1", "http://h/v1#top", "http://h/v1/chat/completions"),
                "http://h/v 1",
            )
        ),
        *({"api_key": key} for key in ("", "  ", "two words", "line\nend", "schlüssel", 5)),
        *(
            {"headers": {name: "value"}}
            for name in ("Host", "content-length", "with space", "", "a:b")
        ),
        {"headers": {"x-a": "a\r\nx-b: c"}},
        {"slug": "acme\n"},
    ],
)
def test_a_provider_that_cannot_be_called_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ProviderSettings.model_validate({"slug": "acme", "kind": "anthropic"} | wrong)


def test_a_guardrail_refuses_where_it_fails_unless_it_says_otherwise() -> None:
    plain = GuardrailSettings.model_validate({"slug": "a", "url": "https://h/judge/"})
    assert (plain.url, plain.on_failure) == ("https://h/judge/", "refuse")
    assert plain.timeout_seconds == 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "guard.example"},
        {"url": "file:///etc/passwd"},
        {"url": "https://user@h/judge"},
        {"url": "https://h/judge?key=1"},
        {"on_failure": "ignore"},
        {"timeout_seconds": 0},
        {"headers": {"Content-Length": "1"}},
        {"slug": "Privacy"},
    ],
)
def test_a_guardrail_that_cannot_be_asked_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        GuardrailSettings.model_validate({"slug": "a", "url": "https://h"} | wrong)
