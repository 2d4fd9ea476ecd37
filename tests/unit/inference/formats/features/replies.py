"""What a reply may have, in the words of each dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.inference.formats.features.ends import ENDS
from tests.unit.inference.formats.features.said import SAID_BY_MODEL
from tests.unit.inference.formats.features.thoughts import THOUGHTS

if TYPE_CHECKING:
    from tests.unit.inference.formats.features.feature import ReplyFeature

REPLIES: dict[str, ReplyFeature] = {**SAID_BY_MODEL, **THOUGHTS, **ENDS}
"""By their names in the documentation."""
