"""The tables have every kind of the official packages, and the page and the parsers follow them.

The unions of the packages are read by their types: a new version of one brings its new kinds.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import pytest
import yaml
from typing_extensions import get_type_hints, is_typeddict

from tests.support.seams.formats import Invalid, adapter, endpoint
from tests.support.seams.inference import TABLES
from tests.support.stream_folding import encoded

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[4] / "docs/formats.md"
PLACES: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "kinds.yaml").read_bytes())


def _literals(hint: Any) -> Iterator[str]:
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    for each in get_args(hint):
        yield from () if isinstance(each, str) else _literals(each)


def _kinds(union: Any) -> Iterator[str]:
    """Return the values of `type` in all members of a union."""
    if is_typeddict(union):
        yield from _literals(get_type_hints(union, include_extras=True).get("type"))
    elif hasattr(union, "model_fields"):
        yield from _literals(union.model_fields["type"].annotation)
    elif get_origin(union) is Annotated:
        yield from _kinds(get_args(union)[0])
    else:
        for each in get_args(union):
            yield from _kinds(each)


@pytest.mark.parametrize("table", TABLES)
def test_every_kind_of_the_official_packages_has_a_rule(table: str) -> None:
    for path in PLACES[table]["unions"]:
        module, _, name = path.rpartition(".")
        published = set(_kinds(getattr(importlib.import_module(module), name)))

        assert len(published) > 1
        assert published - TABLES[table].keys() == set()


def _said(table: str, kind: str, dialect: str) -> str:
    """Return what is sent for an object of a kind that has nothing but its type."""
    fields = encoded({"model": "a", **PLACES[table]["body"]})
    fields = fields.replace(b'"$kind"', encoded({"type": kind}))
    return adapter(PLACES[table]["form"], dialect, fields).render_request(endpoint()).decode()


@pytest.mark.parametrize(
    ("table", "kind"), [(table, kind) for table, kinds in TABLES.items() for kind in kinds]
)
def test_each_kind_is_treated_by_its_rule(table: str, kind: str) -> None:
    path, rule = PLACES[table]["path"], TABLES[table][kind]
    said, refused = "", ""
    try:
        said = _said(table, kind, "messages" if PLACES[table]["form"] == "chat" else "chat")
    except Invalid as error:
        refused = error.message
    assert (refused == f"{path}.type: {kind!r}: {rule.how}.") == (rule.rule == "refused")
    # One that is carried may need more fields than its type, or another role.
    assert not refused or refused.startswith(path)
    assert rule.rule != "text" or f"[{kind}" in said or "missing required field" in refused


@pytest.mark.parametrize("table", TABLES)
def test_an_unknown_kind_is_refused_with_its_place(table: str) -> None:
    for dialect in {"chat", "responses", "messages"} - {PLACES[table]["form"]}:
        with pytest.raises(Invalid, match="'of_tomorrow' is not known here") as caught:
            _said(table, "of_tomorrow", dialect)
        assert caught.value.message.startswith(f"{PLACES[table]['path']}.type: ")


def test_the_page_shows_the_tables() -> None:
    rows = ["| Kind | Rule | How |", "|---|---|---|"]
    for table, kinds in TABLES.items():
        for rule in dict.fromkeys(kinds.values()):
            named = ", ".join(f"`{kind}`" for kind, each in kinds.items() if each == rule)
            rows.append(f"| {table}: {named} | {rule.rule} | {rule.how} |")

    assert "\n".join(rows) in PAGE.read_text(), "docs/formats.md needs:\n" + "\n".join(rows)
