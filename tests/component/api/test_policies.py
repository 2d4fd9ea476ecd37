"""`/accounts/{id}/policy` and the like: what requests may reach and hold."""

import pytest

from tests.component.api.conftest import Acme, Client, message
from tests.support.seams.identity import Authenticator

NONE = {
    "allowed_models": None,
    "blocked_models": [],
    "allowed_providers": None,
    "blocked_providers": [],
    "allowed_endpoints": None,
    "blocked_endpoints": [],
    "data_collection": "allow",
    "patterns": [],
    "guardrails": [],
}
POLICY = {
    "allowed_models": ["acme/*"],
    "data_collection": "deny",
    "patterns": ["@email"],
    "guardrails": ["privacy"],
}


def paths(acme: Acme) -> dict[str, str]:
    return {
        "account": f"/accounts/{acme.account_id}/policy",
        "workspace": "/workspaces/default/policy",
        "key": f"/keys/{acme.api_key.key.hash}/policy",
    }


@pytest.mark.parametrize("scope", ["account", "workspace", "key"])
class TestOne:
    async def test_takes_the_place_of_the_one_before_until_an_empty_one_takes_it_away(
        self, acme: Acme, scope: str
    ) -> None:
        path = paths(acme)[scope]
        assert (await acme.management.get(path)).json() == {"data": NONE}
        for policy in (POLICY, {"blocked_models": ["x"]}, {"patterns": ["*@phone"]}, {}):
            put = await acme.management.put(path, json=policy)
            assert put.json() == {"data": NONE | policy}
            assert (await acme.management.get(path)).json() == put.json()

    async def test_holds_for_a_key_that_is_known_already(
        self, acme: Acme, authenticator: Authenticator, scope: str
    ) -> None:
        text = acme.api_key.text
        assert (await authenticator.authenticate(text)).policies == ()
        await acme.management.put(paths(acme)[scope], json=POLICY)
        [policy] = (await authenticator.authenticate(text)).policies
        assert (policy.scope, policy.allowed_models) == (scope, ("acme/*",))

    async def test_is_not_for_keys_of_inference(self, acme: Acme, scope: str) -> None:
        assert (await acme.api.put(paths(acme)[scope], json={})).status_code == 403


async def test_that_is_refused_changes_nothing(acme: Acme) -> None:
    path = paths(acme)["key"]
    await acme.management.put(path, json=POLICY)
    await acme.management.put(path, json={"guardrails": ["unknown"]})
    assert (await acme.management.get(path)).json() == {"data": NONE | POLICY}


async def test_of_another_account_does_not_tell_which_guardrails_there_are(
    acme: Acme, other: Acme
) -> None:
    reply = await other.management.put(paths(acme)["key"], json={"guardrails": ["unknown"]})
    assert "privacy" not in message(reply, 404)


async def test_all_three_hold_together(acme: Acme, authenticator: Authenticator) -> None:
    for path in paths(acme).values():
        await acme.management.put(path, json=POLICY)
    policies = (await authenticator.authenticate(acme.api_key.text)).policies
    assert [each.scope for each in policies] == ["account", "workspace", "key"]


@pytest.mark.parametrize("path", ["/accounts/x/policy", "/workspaces/x/policy", "/keys/x/policy"])
async def test_of_nobody_is_not_found(acme: Acme, path: str) -> None:
    assert (await acme.management.get(path)).status_code == 404
    assert (await acme.management.put(path, json={})).status_code == 404


async def test_an_operators_key_is_changed_by_operators_alone(acme: Acme) -> None:
    path = f"/keys/{acme.operator_key.key.hash}/policy"
    assert (await acme.management.put(path, json={})).status_code == 403


async def test_a_local_command_names_the_account_of_a_workspace(acme: Acme, local: Client) -> None:
    query = {"account_id": acme.account_id}
    reply = await local.put("/workspaces/default/policy", params=query, json=POLICY)
    assert reply.status_code == 200
