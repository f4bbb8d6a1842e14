"""Keys that choose the parts of a task that a model learns from."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from graphbox.config.section import Section


class LearntParts(Section):
    """Keys of models that can learn from the validation part as well."""

    train_on: Literal["train", "train_and_validation"] = "train"
    """Parts of the task to learn from. Choose the settings with `train`, which measures on the validation
    part as it goes, and train the final model with `train_and_validation`."""
    validate_first: bool = False
    """With `train_and_validation`: train twice. First on the training part alone, which gives the report a
    validation figure and, where a model ends as it was best there, its number of epochs; then on both parts.
    Without it training takes half as long, all `epochs` are trained, and the report has no validation
    figure."""

    @property
    def sees_validation(self) -> bool:
        """Whether the final model learns from the validation part as well."""
        return self.train_on == "train_and_validation"

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if self.validate_first and not self.sees_validation:
            raise PydanticCustomError(
                "not_together",
                "`validate_first` has no meaning with `train_on: train`, which measures as it goes",
                {"hint": "leave `validate_first` out, or set `train_on: train_and_validation`"},
            )
        if self.validate_first and getattr(self, "distil", None) is not None:
            raise PydanticCustomError(
                "not_together",
                "`validate_first` measures a model that has not seen the validation part; its teachers have",
                {"hint": "leave `validate_first` out, or the section `distil`"},
            )
        return self
