from collections.abc import Callable
from decimal import Decimal
from ipaddress import ip_network
from pathlib import Path

import pytest
from pydantic import ValidationError

from tollhouse.settings.sections import GuardrailSettings, ProviderSettings, Settings

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


def provider(**fields: object) -> ProviderSettings:
    return ProviderSettings.model_validate({"slug": "acme", **fields})


def endpoint(pricing: str) -> str:
    return f"""
providers: [{{slug: sim, kind: simulated}}]
models:
  - id: a/b
    context_length: 1
    endpoints: [{{provider: sim, model: m, pricing: {pricing}}}]
"""


def test_the_example_of_the_guide_loads(load_text: Load) -> None:
    settings = load_text(EXAMPLE, {"ACME_KEY": "sk-acme"})
    assert settings.providers[0].api_key is not None
    assert settings.providers[0].api_key.reveal() == "sk-acme"
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


def test_a_section_left_empty_counts_as_not_written(load_text: Load) -> None:
    assert load_text("server:\nproviders:\nlogging:\n  level:\n").logging.level == "info"


def test_a_log_level_may_be_in_capitals(load_text: Load) -> None:
    assert load_text("logging: {level: WARNING}").logging.level == "warning"


def test_an_anthropic_provider_has_its_address_already() -> None:
    assert provider(kind="anthropic").base_url == "https://api.anthropic.com/v1"


def test_an_openai_compatible_provider_needs_an_address(problems_of: Problems) -> None:
    text = "providers: [{slug: acme, kind: openai_compatible}]"
    assert problems_of(text) == [
        "providers[0].base_url: is required for kind openai_compatible",
    ]


@pytest.mark.parametrize(
    "setting",
    ["base_url: http://h", "api_key: k", "headers: {a: b}", "proxy: http://h"],
)
def test_a_simulated_provider_takes_nothing_about_a_connection(
    problems_of: Problems, setting: str
) -> None:
    (problem,) = problems_of(f"providers: [{{slug: sim, kind: simulated, {setting}}}]")
    assert problem.startswith(f"providers[0].{setting.partition(':')[0]}: has no effect")


def test_a_provider_is_called_by_its_slug_unless_named() -> None:
    assert provider(kind="simulated").name == "acme"
    assert provider(kind="simulated", name="Acme Inc.").name == "Acme Inc."


def test_a_provider_is_idempotent_only_if_it_says_so() -> None:
    assert not provider(kind="simulated").idempotent
    assert provider(kind="simulated", idempotent="true").idempotent


@pytest.mark.parametrize("written", ["perhaps", "2", "[true]"])
def test_what_is_neither_true_nor_false_is_refused(problems_of: Problems, written: str) -> None:
    text = f"providers: [{{slug: acme, kind: anthropic, idempotent: {written}}}]"
    assert problems_of(text) == ["providers[0].idempotent: must be true or false"]


def test_a_base_url_loses_its_last_slash() -> None:
    assert provider(kind="anthropic", base_url="http://h:1/v1/").base_url == "http://h:1/v1"


@pytest.mark.parametrize(
    "url",
    [
        "llm.acme.example/v1",
        "ftp://h/v1",
        "http://",
        "http://h:0/v1",
        "http://h:99999/v1",
        "http://[::1/v1",
        "http://user:pass@h/v1",
        "http://h/v1?key=1",
        "http://h/v1#top",
        "http://h/v1/chat/completions",
        "http://h/v 1",
        "",
    ],
)
def test_a_base_url_that_cannot_work_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        provider(kind="openai_compatible", base_url=url)


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


def test_a_key_from_a_file_loses_its_line_end() -> None:
    key = provider(kind="anthropic", api_key="sk-1\n").api_key
    assert key is not None
    assert key.reveal() == "sk-1"


@pytest.mark.parametrize("key", ["", "  ", "two words", "line\nend", "schlüssel", 5])
def test_a_key_that_cannot_be_sent_is_refused(key: object) -> None:
    with pytest.raises(ValidationError):
        provider(kind="anthropic", api_key=key)


@pytest.mark.parametrize("name", ["Host", "content-length", "with space", "", "a:b"])
def test_a_header_that_cannot_be_set_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        provider(kind="anthropic", headers={name: "value"})


def test_a_header_value_on_two_lines_is_refused() -> None:
    with pytest.raises(ValidationError):
        provider(kind="anthropic", headers={"x-a": "a\r\nx-b: c"})


@pytest.mark.parametrize("slug", ["Acme", "-acme", "a_b", "a b", "acme\n", ""])
def test_a_slug_of_other_characters_is_refused(problems_of: Problems, slug: str) -> None:
    (problem,) = problems_of(f"providers: [{{slug: {slug!r}, kind: anthropic}}]")
    assert problem.startswith("providers[0].slug: must be lower-case letters")


@pytest.mark.parametrize("model", ["a/b", "a/b:free", "~a/b-1.5@x+y", "meta.llama/3_1:beta"])
def test_a_model_id_is_author_and_slug_with_a_variant(load_text: Load, model: str) -> None:
    text = endpoint("free").replace("a/b", model)
    assert load_text(text).models[0].id == model


@pytest.mark.parametrize("model", ["b", "a/", "/b", "a/b/c", "a b/c"])
def test_a_model_id_of_another_shape_is_refused(problems_of: Problems, model: str) -> None:
    (problem,) = problems_of(endpoint("free").replace("a/b", model))
    assert problem.startswith("models[0].id: must look like author/slug")


def test_a_model_needs_an_endpoint(problems_of: Problems) -> None:
    text = "models: [{id: a/b, context_length: 1, endpoints: []}]"
    assert problems_of(text) == ["models[0].endpoints: must have at least one entry"]


def test_a_price_as_a_float_is_refused_with_what_to_do(problems_of: Problems) -> None:
    (problem,) = problems_of(endpoint('{prompt: 0.000001, completion: "0"}'))
    assert problem == (
        "models[0].endpoints[0].pricing.prompt: must be in quotes: "
        "without them it is a binary float, which is not exact"
    )


@pytest.mark.parametrize(
    ("written", "exact"),
    [
        ('"0.000001"', "0.000001"),
        ("1e-6", "0.000001"),  # without a dot YAML takes it for text
        ("0", "0"),
        ("3", "3"),
        ('"0.100000000000000000000000000000"', "0.1"),
        ('"-0"', "0"),
    ],
)
def test_a_price_is_exact(load_text: Load, written: str, exact: str) -> None:
    text = endpoint(f"{{prompt: {written}, completion: 0}}")
    pricing = load_text(text).models[0].endpoints[0].pricing
    assert pricing not in {None, "free"}
    assert pricing.prompt == Decimal(exact)
    assert not pricing.prompt.is_signed()


@pytest.mark.parametrize(
    "price",
    ['"-1"', '"x"', '"NaN"', '"Infinity"', '"1e-19"', '"1e7"', '"1e999999999"', "true", "[1]"],
)
def test_a_price_that_is_none_is_refused(problems_of: Problems, price: str) -> None:
    (problem,) = problems_of(endpoint(f"{{prompt: {price}, completion: 0}}"))
    assert problem.startswith("models[0].endpoints[0].pricing.prompt: must ")


def test_a_table_of_prices_needs_both_directions(problems_of: Problems) -> None:
    assert problems_of(endpoint("{prompt: 1}")) == [
        "models[0].endpoints[0].pricing.completion: is required"
    ]


def test_prices_may_be_free_or_left_out(load_text: Load) -> None:
    assert load_text(endpoint("free")).models[0].endpoints[0].pricing == "free"
    assert load_text(endpoint("")).models[0].endpoints[0].pricing is None


@pytest.mark.parametrize("word", ["gratis", "0", "'0.1'"])
def test_another_word_for_a_price_is_refused(problems_of: Problems, word: str) -> None:
    (problem,) = problems_of(endpoint(word))
    assert problem.startswith("models[0].endpoints[0].pricing: must be a mapping")


@pytest.mark.parametrize("amount", ["0", "10", '"0.000000001"', '"12.5"'])
def test_a_grant_may_be_anything_down_to_nothing(load_text: Load, amount: str) -> None:
    settings = load_text(f"accounting: {{initial_grant: {amount}}}")
    assert settings.accounting.initial_grant == Decimal(amount.strip('"'))


@pytest.mark.parametrize("amount", ["12.5", '"-1"', '"0.0000000001"', '"1e10"', "yes"])
def test_a_grant_that_is_no_amount_is_refused(problems_of: Problems, amount: str) -> None:
    (problem,) = problems_of(f"accounting: {{initial_grant: {amount}}}")
    assert problem.startswith("accounting.initial_grant: must ")


@pytest.mark.parametrize("port", ["-1", "65536", "http", "80.5", "yes"])
def test_a_port_outside_of_its_range_is_refused(problems_of: Problems, port: str) -> None:
    (problem,) = problems_of(f"server: {{port: {port}}}")
    assert problem.startswith("server.port: must be ")


@pytest.mark.parametrize("seconds", ["0", "-1", ".inf", ".nan", "soon", "yes", "100000"])
def test_a_time_limit_that_is_none_is_refused(problems_of: Problems, seconds: str) -> None:
    (problem,) = problems_of(f"upstream: {{idle_seconds: {seconds}}}")
    assert problem.startswith("upstream.idle_seconds: must be ")


def test_a_trusted_proxy_is_an_address_or_a_network(load_text: Load) -> None:
    proxies = load_text("server: {trusted_proxies: [10.0.0.1, 10.1.0.0/16, '::1']}").server
    assert proxies.trusted_proxies == (
        ip_network("10.0.0.1"),
        ip_network("10.1.0.0/16"),
        ip_network("::1"),
    )


@pytest.mark.parametrize("network", ["10.0.0.1/8", "proxy.example", "'*'", "5"])
def test_a_trusted_proxy_of_another_kind_is_refused(problems_of: Problems, network: str) -> None:
    (problem,) = problems_of(f"server: {{trusted_proxies: [{network}]}}")
    assert problem.startswith("server.trusted_proxies[0]: must be an address or a network")


@pytest.mark.parametrize("origin", ["'*'", "app.example", "https://app.example/", "'null'"])
def test_an_origin_that_no_browser_sends_is_refused(problems_of: Problems, origin: str) -> None:
    (problem,) = problems_of(f"server: {{cors_origins: [{origin}]}}")
    assert problem.startswith("server.cors_origins[0]: must be an origin")


@pytest.mark.parametrize(
    "url",
    [
        *("https://interns.example.com", "https://x.{intern}.example.com", "https://{intern}"),
        *(
            "https://{intern}.example.com/",
            "https://{intern}.example.com/x",
            "{intern}.example.com",
        ),
        *(
            "ftp://{intern}.example.com",
            "https://a@{intern}.example.com",
            "https://{intern}.-a.com",
        ),
        *(
            "https://{intern}.example.com:0",
            "https://{intern}.example.com?x",
            "https://{intern}x.com",
        ),
    ],
)
def test_an_address_of_interns_that_is_no_origin_is_refused(
    problems_of: Problems, url: str
) -> None:
    (problem,) = problems_of(f"interns: {{public_url: '{url}'}}")
    assert problem.startswith(
        "interns.public_url: must look like https://{intern}.example.com, without a path"
    )


@pytest.mark.parametrize("pattern", ["http://eu.example", "eu.example:80", "''"])
def test_a_host_pattern_with_more_than_a_host_is_refused(
    problems_of: Problems, pattern: str
) -> None:
    (problem,) = problems_of(f"server: {{regional_hostnames: [{pattern}]}}")
    assert problem.startswith("server.regional_hostnames[0]: must be a host name")


@pytest.mark.parametrize(
    "place",
    ["a.example", "a.example:0", "a.example:65536", "'[::1]:443'", "'*.example:443'"],
)
def test_a_place_that_is_no_host_and_port_is_refused(problems_of: Problems, place: str) -> None:
    (problem,) = problems_of(f"egress: {{allow_ports: [{place}]}}")
    assert problem.startswith("egress.allow_ports[0]: must be host:port")


@pytest.mark.parametrize(
    "url", ["mysql://h/d", "postgres://h/d", "/var/db", "postgresql", "'postgresql:h'"]
)
def test_a_database_of_another_kind_is_refused(problems_of: Problems, url: str) -> None:
    assert problems_of(f"database_url: {url}") == [
        "database_url: must look like postgresql://user:password@host:5432/name"
    ]
