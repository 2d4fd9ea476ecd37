"""What has to be asked before it is done. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS: Final = ("allow_once", "allow_always", "reject_once", "reject_always")
_LONGEST: Final = 4000
"""Characters of an operation, as people see it."""


class Verdict(Enum):
    """On an operation."""

    ALLOW = "allow"
    REJECT = "reject"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class Permits:
    """Of a run."""

    manual: bool
    """False where the caller consents to everything beforehand."""
    verdicts: Mapping[str, str]
    """On scopes of operations, for the rest of the session."""

    def verdict(self, scope: str) -> Verdict:
        """Return what holds for operations of a scope."""
        if not self.manual:
            return Verdict.ALLOW
        return Verdict(self.verdicts.get(scope, Verdict.ASK.value))


def question(scope: str, operation: str) -> dict[str, Any]:
    """Return what is asked about an operation.

    Args:
        scope: What an answer for always holds for.
        operation: What is about to be done, in the words of who wants to do it.
    """
    digest = digest_of(scope, operation)
    if len(operation) > _LONGEST:
        operation = f"{operation[:_LONGEST]}… ({len(operation) - _LONGEST} characters more)"
    told = {"scope": scope, "operation": operation, "options": list(OPTIONS)}
    return {**told, "digest": digest}


def digest_of(scope: str, operation: str) -> str:
    """Return what tells an operation from all others, however long its text is."""
    return hashlib.sha256(json.dumps([scope, operation]).encode()).hexdigest()
