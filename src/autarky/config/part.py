"""What every part of the cluster file is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """No unknown keys, anywhere: a misspelt key must not be passed over."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, model_title_generator=lambda part: part.__name__.removesuffix("Part")
    )
