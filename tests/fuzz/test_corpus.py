"""Every input of the corpus passes its target: known attacks, and what fuzzing found."""

from pathlib import Path

import pytest

from tests.fuzz.inbound import check_whole, read
from tests.fuzz.targets import CORPUS, TARGETS

KEPT = sorted(CORPUS.glob("*/*"))


@pytest.mark.parametrize("path", KEPT, ids=[f"{each.parent.name}-{each.name}" for each in KEPT])
def test_an_input_that_is_kept_passes(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("path", sorted((CORPUS / "http").iterdir()), ids=lambda path: path.name)
def test_a_request_is_read_alike_wherever_it_is_split(path: Path) -> None:
    data = path.read_bytes()
    whole = check_whole(data)
    assert [at for at in range(len(data)) if read((data[:at], data[at:])) != whole] == []


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_has_inputs_to_begin_with(target: str) -> None:
    assert len(list((CORPUS / target).iterdir())) > 10
