"""What is taken as a provider's key, how it is shown, and what its provider is shown of it."""

from __future__ import annotations

import json

import pytest

from tollhouse.kernel.errors import Invalid
from tollhouse.provider_keys.policy import check_key, label_of, single_text

SECRET = "sk-proj-0123456789abcdef"
AZURE = {"api_key": SECRET, "endpoint_url": "https://r.openai.azure.com/openai/v1"}
BEDROCK = {"accessKeyId": "AKIA0123456789ABCDEF", "secretAccessKey": SECRET, "region": "eu-west-1"}
VERTEX = {
    "type": "service_account",
    "project_id": "p-1",
    "private_key": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n",
    "client_email": "robot@p-1.iam.gserviceaccount.com",
    "token_uri": "https://oauth2.googleapis.com/token",
}
REGIONAL = {"api_key": SECRET, "region": "eu"}


@pytest.mark.parametrize(
    ("provider", "key", "label", "shown"),
    [
        ("groq", SECRET, "sk-...def", SECRET),
        ("groq", "short-key", "...", "short-key"),
        ("anthropic/2", SECRET, "sk-...def", SECRET),
        ("openai", SECRET, "sk-...def", SECRET),
        ("azure", AZURE, "sk-...def", None),
        ("azure", AZURE | {"model_slug": "openai/gpt-5"}, "sk-...def", None),
        ("amazon-bedrock", BEDROCK, "AKI...DEF", None),
        ("amazon-bedrock/claude-on-aws", f"ABSK{SECRET}", "ABS...def", f"ABSK{SECRET}"),
        ("google-vertex", VERTEX, "rob...com", None),
    ],
)
def test_a_key_of_its_providers_form_is_taken(
    provider: str, key: str | dict[str, str], label: str, shown: str | None
) -> None:
    text = key if isinstance(key, str) else json.dumps(key)
    check_key(provider, text)
    assert (label_of(provider, text), single_text(text)) == (label, shown)


@pytest.mark.parametrize(
    ("provider", "key", "told"),
    [
        ("groq", "short", "8 to 32768 characters"),
        ("groq", "x" * 32_769, "8 to 32768 characters"),
        ("openai", REGIONAL, "amazon-bedrock takes one"),
        ("fireworks/eu", REGIONAL, "key.region: fireworks/eu is called at one address"),
        ("azure", AZURE | {"region": "eu"}, "key.region: azure"),
        ("groq", f"{SECRET}\n", "without spaces"),
        ("groq", f"{SECRET}é", "printable"),
        ("azure", SECRET, "a JSON object with api_key, endpoint_url"),
        ("azure", {"api_key": SECRET}, "key.endpoint_url: is missing"),
        ("azure", AZURE | {"endpoint_url": "http://r.example"}, "key.endpoint_url: is not"),
        ("azure", AZURE | {"resource": SECRET}, "azure does not take"),
        ("amazon-bedrock", SECRET, "accessKeyId, secretAccessKey, region"),
        ("amazon-bedrock", BEDROCK | {"region": "EU West"}, "key.region: is not"),
        ("amazon-bedrock", BEDROCK | {"secretAccessKey": 5}, "key.secretAccessKey: is not"),
        ("google-vertex", VERTEX | {"type": "authorized_user"}, "key.type: is not"),
        ("google-vertex", VERTEX | {"private_key": SECRET}, "key.private_key: is not"),
        ("groq", f'{{"other":"{SECRET}"}}', "must be one text"),
    ],
)
def test_another_is_refused_and_not_repeated(provider: str, key: object, told: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_key(provider, key if isinstance(key, str) else json.dumps(key))
    assert told in refused.value.message
    assert SECRET not in refused.value.message
