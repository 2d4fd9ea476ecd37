"""Tool names: legal for the target, unique within a request, and told back."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.seams.inference import ANTHROPIC_NAMES, OPENAI_NAMES, NameRule, ToolNames

_NAMES = st.text(st.sampled_from("a_-.é/ "), max_size=80)
_PATHS = st.lists(st.lists(_NAMES, min_size=1, max_size=3).map(tuple), unique=True, max_size=30)


@given(_PATHS, st.sampled_from([OPENAI_NAMES, ANTHROPIC_NAMES]))
def test_every_name_is_legal_unique_and_leads_back(
    paths: list[tuple[str, ...]], rule: NameRule
) -> None:
    names = ToolNames.of(paths, rule)
    sent = [names.add(*path) for path in paths]
    assert all(map(rule.legal, sent))
    assert len(set(sent)) == len(paths)
    assert [names.path(name) for name in sent] == paths


def test_a_legal_name_stays_and_a_changed_one_is_the_same_in_every_request() -> None:
    long = "mcp__" + "x" * 75
    first, second = ToolNames.of([("read",), (long,)]), ToolNames(OPENAI_NAMES)
    assert (first.add("read"), first.add(long)) == ("read", long)
    changed = second.add(long)
    assert changed == ToolNames.of([("a", "b"), (long,)], OPENAI_NAMES).add(long)
    assert changed.startswith("mcp__xxx")
    assert second.changed == {changed: (long,)}
    assert second.path("unknown") == ("unknown",)


def test_a_tool_keeps_its_name_before_one_of_a_namespace() -> None:
    names = ToolNames.of([("a", "b"), ("a__b",)])
    assert names.add("a__b") == "a__b"
    assert names.add("a", "b") != "a__b"
