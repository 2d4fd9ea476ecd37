"""What a secret may be called and bound to, which one a name means, and who gets it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import START
from tests.support.seams.identity import Switches
from tollhouse.kernel.errors import Invalid, TollhouseError
from tollhouse.vault import policy
from tollhouse.vault.policy import resolve, verdict
from tollhouse.vault.types import Resolved, Scope, StoredSecret, Verdict

INTERN = "0b9f1d8e-6d9a-4b3c-8a53-0a51f7f3c111"
OFF = Switches(intern_programme=False, vault_writes=False)


@pytest.mark.parametrize("name", ["a", "a1", "a_b", "github_token", "a" * 255, "x0_9_y"])
def test_a_name_has_lower_case_letters_digits_and_single_underscores(name: str) -> None:
    assert policy.check_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "A", "1a", "_a", "a_", "a__b", "a-b", "a b", "a" * 256, "a\n", "ä", "a.b", "copy/x", "\0"],
)
def test_anything_else_is_no_name(name: str) -> None:
    with pytest.raises(Invalid, match="name:"):
        policy.check_name(name)


@given(st.text(alphabet="ab0_A-\n", max_size=12))
def test_names_are_those_of_the_published_pattern(name: str) -> None:
    published = re.fullmatch(r"(?!.*__)[a-z]([a-z0-9_]*[a-z0-9])?", name, re.DOTALL)
    try:
        policy.check_name(name)
    except Invalid:
        assert not published
    else:
        assert published


def test_the_gateways_own_name_is_none_to_bind_a_secret_to() -> None:
    with pytest.raises(Invalid, match="gateway itself"):
        policy.normal_host("Gateway.Internal.")


def test_hosts_are_kept_once_each_in_their_order() -> None:
    sent = ["b.com", "A.com", "a.com.", "B.COM"]
    assert policy.normal_hosts(sent) == ("b.com", "a.com")


def test_refusals_say_what_to_do() -> None:
    told = {
        lambda: policy.normal_host("*"): "host: must be a host name such as api.example.com, "
        "without scheme, port, path or wildcard.",
        lambda: policy.normal_host("1.2.3.4"): "host: must be a name and not an IP address.",
        lambda: policy.check_name("A"): "name: must have 1 to 255 characters: lower-case letters, "
        "digits and single underscores, a letter first and no underscore last.",
        lambda: policy.intern_uuid("x"): "internId: must be a UUID.",
        lambda: policy.check_value("\n", "secrets.3.value"): "secrets.3.value: must not contain a "
        "line break or U+0000: no header can carry them.",
        lambda: policy.check_writes(OFF): "Changes to secrets are switched off here; an operator "
        "can switch them on.",
    }
    for asks, text in told.items():
        with pytest.raises(TollhouseError) as refused:
            asks()
        assert refused.value.message == text


@pytest.mark.parametrize("count", [0, 101])
def test_there_are_1_to_100_hosts(count: int) -> None:
    with pytest.raises(Invalid, match="hosts:"):
        policy.normal_hosts([f"h{at}.com" for at in range(count)])


def test_a_wrong_host_is_named_by_its_place() -> None:
    with pytest.raises(Invalid, match=r"hosts\.1:"):
        policy.normal_hosts(["a.com", "*.b.com"])


@pytest.mark.parametrize("value", ["x", "x" * 65_536, "ü" * 65_536, "a b\tc", '{"json": 1}'])
def test_a_value_has_up_to_65536_characters(value: str) -> None:
    assert policy.check_value(value) == value


@pytest.mark.parametrize("value", ["", "x" * 65_537, "a\rb", "a\nb", "a\0b", "a\n", "\ud800"])
def test_a_value_that_no_header_could_carry_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(Invalid, match="value:") as refused:
        policy.check_value(value)
    assert not value or value not in str(refused.value)


# Which secret a name means, and whether it goes to a host


NAMES = ["a_b", "a0", "ab", "zz"]
HOSTS = ["a.com", "b.com", "sub.a.com"]


def secret(name: str, vault: str, hosts: tuple[str, ...] | None = ("a.com",)) -> StoredSecret:
    fingerprint = None if hosts is None else f"sha256:{vault}"
    return StoredSecret(vault, name, 1, hosts, fingerprint, START, START, b"sealed")


def released(resolved: dict[str, Resolved], name: str, host: str, *, unbound: bool = False) -> bool:
    return verdict(resolved, name, host, release_unbound=unbound) is Verdict.RELEASED


def test_names_are_sorted_by_their_bytes() -> None:
    layers = [(Scope.INTERN, [secret("ab", "v"), secret("a_b", "v")])]
    layers += [(Scope.WORKSPACE, [secret("a0", "w")])]
    assert list(resolve(layers)) == ["a0", "a_b", "ab"]


@pytest.mark.parametrize(
    "host", ["sub.a.com", "com", "xa.com", "a.com.evil.com", "A.com", "a.com."]
)
def test_a_host_has_to_be_the_very_same(host: str) -> None:
    resolved = resolve([(Scope.INTERN, [secret("key", "own")])])
    assert not released(resolved, "key", host)


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
