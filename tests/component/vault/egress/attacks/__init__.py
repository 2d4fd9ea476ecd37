"""Attacks on the proxy; importing these modules fills the table."""

from tests.component.vault.egress.attacks import answers, requests
from tests.component.vault.egress.attacks.table import ATTACKS

__all__ = ["ATTACKS", "answers", "requests"]
