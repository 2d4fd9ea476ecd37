"""The features of replies in each dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.inference.formats.features.finish_reasons import FINISH_REASONS
from tests.unit.inference.formats.features.reasoning_replies import REASONING_REPLIES
from tests.unit.inference.formats.features.reply_content import REPLY_CONTENT

if TYPE_CHECKING:
    from tests.unit.inference.formats.features.feature import ReplyFeature

REPLIES: dict[str, ReplyFeature] = {**REPLY_CONTENT, **REASONING_REPLIES, **FINISH_REASONS}
"""By name in the documentation."""
