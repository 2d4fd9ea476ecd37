"""Interns' own keys: each intern has one for its life, whose text is another one at each boot.

    issue       its first boot makes the key; each further one gives it another text
    withdraw    it runs no more: the text is forgotten, the key with its limit and policy stays
    delete      it is gone

The text goes to who serves the intern, and is stored nowhere. Whether a key is disabled is for its
managers to say, and stays as they said.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tollhouse.identity import repository
from tollhouse.identity.keys import hash_key, mask_key, new_key, new_key_text
from tollhouse.identity.types import IssuedKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tollhouse.identity.auth import Authenticator
    from tollhouse.identity.types import NewKey
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.ids import IdSource
    from tollhouse.storage.transaction import Write


class InternKeys:
    """Gives interns their keys, and takes them away; effective before the answer."""

    def __init__(self, clock: Clock, ids: IdSource, authenticator: Authenticator) -> None:
        """Take what is needed.

        Args:
            clock: The time.
            ids: Where texts come from.
            authenticator: Forgets keys that changed.
        """
        self._clock = clock
        self._ids = ids
        self._authenticator = authenticator

    async def issue(
        self, write: Write, account_id: str, workspace_id: str, wanted: NewKey
    ) -> IssuedKey:
        """Give an intern its key with a new text; one that it had before opens nothing any more.

        Args:
            write: The transaction.
            account_id: Whose intern it is.
            workspace_id: Where the intern is, and its key from now on.
            wanted: What its first key is to be; a later call changes name and payer alone.
        """
        now = self._clock.now()
        known = await repository.key_of_intern(write, account_id, str(wanted.intern_id))
        if known is None:
            issued = new_key(self._ids, account_id, workspace_id, wanted, now)
            await repository.add_key(write, issued.key)
            return issued
        text = new_key_text(self._ids)
        renewed = replace(
            known,
            workspace_id=workspace_id,
            name=wanted.name,
            label=mask_key(text),
            secret_hash=hash_key(text),
            payer_hash=wanted.payer_hash,
            updated_at=now,
        )
        await repository.save_key(write, renewed)
        self._forget(write, [known.hash])
        return IssuedKey(renewed, text)

    async def withdraw(self, write: Write, intern_id: str) -> None:
        """Let an intern's key open nothing until it is issued again."""
        self._forget(write, await repository.take_texts(write, intern_id, self._clock.now()))

    async def delete(self, write: Write, intern_id: str) -> None:
        """Revoke an intern's key for ever."""
        now = self._clock.now()
        self._forget(write, await repository.delete_keys_of_intern(write, intern_id, now))

    def _forget(self, write: Write, key_hashes: Iterable[str]) -> None:
        for key_hash in key_hashes:
            write.after_commit(partial(self._authenticator.forget, key_hash))
