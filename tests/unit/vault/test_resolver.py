"""Which secret a name means, and whether it goes to a host."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import START
from tollhouse.vault.policy import resolve, verdict
from tollhouse.vault.types import Resolved, Scope, StoredSecret, Verdict

NAMES = ["a_b", "a0", "ab", "zz"]
HOSTS = ["a.com", "b.com", "sub.a.com"]


def secret(name: str, vault: str, hosts: tuple[str, ...] | None = ("a.com",)) -> StoredSecret:
    fingerprint = None if hosts is None else f"sha256:{vault}"
    return StoredSecret(vault, name, 1, hosts, fingerprint, START, START, b"sealed")


def released(resolved: dict[str, Resolved], name: str, host: str, *, unbound: bool = False) -> bool:
    return verdict(resolved, name, host, release_unbound=unbound) is Verdict.RELEASED


def test_an_interns_own_secret_wins_over_an_attached_one_and_that_over_the_workspaces() -> None:
    own, lent, shared = (secret("key", vault) for vault in ("own", "lent", "shared"))
    layers = [(Scope.WORKSPACE, [shared]), (Scope.INTERN, [own]), (Scope.ATTACHED, [lent])]
    assert resolve(layers)["key"] == Resolved(
        own, Scope.INTERN, ((Scope.ATTACHED, lent), (Scope.WORKSPACE, shared))
    )
    assert resolve([layers[0], layers[2]])["key"].scope is Scope.ATTACHED
    assert resolve([layers[0]])["key"].scope is Scope.WORKSPACE


def test_names_are_sorted_by_their_bytes() -> None:
    layers = [(Scope.INTERN, [secret("ab", "v"), secret("a_b", "v")])]
    layers += [(Scope.WORKSPACE, [secret("a0", "w")])]
    assert list(resolve(layers)) == ["a0", "a_b", "ab"]


def test_a_secret_that_wins_by_name_hides_the_others_from_every_host() -> None:
    own, shared = secret("key", "own", ("b.com",)), secret("key", "shared", ("a.com",))
    resolved = resolve([(Scope.INTERN, [own]), (Scope.WORKSPACE, [shared])])
    assert verdict(resolved, "key", "a.com", release_unbound=False) is Verdict.OTHER_HOST
    assert released(resolved, "key", "b.com")


@pytest.mark.parametrize(
    "host", ["sub.a.com", "com", "xa.com", "a.com.evil.com", "A.com", "a.com."]
)
def test_a_host_has_to_be_the_very_same(host: str) -> None:
    resolved = resolve([(Scope.INTERN, [secret("key", "own")])])
    assert not released(resolved, "key", host)


def test_a_name_that_nobody_has_goes_nowhere() -> None:
    assert verdict({}, "key", "a.com", release_unbound=True) is Verdict.UNKNOWN_NAME


def test_an_unbound_secret_goes_to_any_host_only_where_the_operator_says_so() -> None:
    resolved = resolve([(Scope.INTERN, [secret("key", "own", None)])])
    assert verdict(resolved, "key", "a.com", release_unbound=False) is Verdict.UNBOUND
    assert released(resolved, "key", "a.com", unbound=True)


def test_an_unbound_secret_hides_a_bound_one_too() -> None:
    own, shared = secret("key", "own", None), secret("key", "shared", ("a.com",))
    resolved = resolve([(Scope.ATTACHED, [own]), (Scope.WORKSPACE, [shared])])
    assert not released(resolved, "key", "a.com")


BINDINGS = st.none() | st.lists(st.sampled_from(HOSTS), min_size=1, unique=True).map(tuple)
CONTENT = st.dictionaries(st.sampled_from(NAMES), BINDINGS)


@given(
    contents=st.fixed_dictionaries(dict.fromkeys(Scope, CONTENT)),
    order=st.permutations(list(Scope)),
    name=st.sampled_from(NAMES),
    host=st.sampled_from(HOSTS),
    unbound=st.booleans(),
)
def test_it_agrees_with_the_rules_as_they_are_written_down(
    contents: dict[Scope, dict[str, tuple[str, ...] | None]],
    order: list[Scope],
    name: str,
    host: str,
    unbound: bool,  # noqa: FBT001 - drawn
) -> None:
    layers = [
        (scope, [secret(each, scope.value, hosts) for each, hosts in contents[scope].items()])
        for scope in order
    ]
    resolved = resolve(layers)
    holders = [s for s in (Scope.INTERN, Scope.ATTACHED, Scope.WORKSPACE) if name in contents[s]]
    assert set(resolved) == {each for content in contents.values() for each in content}
    if not holders:
        expected = Verdict.UNKNOWN_NAME
    else:
        found = resolved[name]
        assert [found.scope, *(scope for scope, _ in found.hidden)] == holders
        bound = contents[holders[0]][name]
        if bound is None:
            expected = Verdict.RELEASED if unbound else Verdict.UNBOUND
        else:
            expected = Verdict.RELEASED if host in bound else Verdict.OTHER_HOST
    assert verdict(resolved, name, host, release_unbound=unbound) is expected
