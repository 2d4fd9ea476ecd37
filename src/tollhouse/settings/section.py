"""What every section of the settings has in common."""

from __future__ import annotations

from typing import cast

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """What every section is: frozen, without unknown fields, silent about its input."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _left_empty(cls, given: object) -> object:
        # `providers:` with every entry commented out is as good as not written. An unknown name
        # stays, so that it is reported.
        if not isinstance(given, dict):
            return given
        fields = cast("dict[object, object]", given)
        return {
            name: value
            for name, value in fields.items()
            if value is not None or name not in cls.model_fields
        }
