"""What a policy may say of the texts that requests may not hold."""

from tests.component.api.conftest import Acme, message

NAMES = "@email, @credit_card, @iban, @api_key"


async def test_an_unknown_name_is_refused_with_those_that_there_are(acme: Acme) -> None:
    body = {"patterns": ["@email", "@phone"]}
    reply = await acme.management.put("/workspaces/default/policy", json=body)
    text = f"patterns.1: is no known name; there are {NAMES} (a * before it makes it a text)."
    assert message(reply, 400) == text


async def test_a_name_behind_a_star_is_a_text(acme: Acme) -> None:
    body = {"patterns": ["*@phone"]}
    reply = await acme.management.put("/workspaces/default/policy", json=body)
    assert reply.json()["data"]["patterns"] == ["*@phone"]
