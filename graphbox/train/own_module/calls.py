"""Calls of a user's own code, whose mistakes become errors that name the module and the line."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphbox.errors import GraphboxError, UsageError

_PACKAGE = Path(__file__).parents[2]


class OwnCode:
    """A user's own class, by its import path.

    Args:
        path: import path of the class.
        made: the class.
    """

    def __init__(self, path: str, made: Callable[..., Any]) -> None:
        self.path = path
        self._made = made

    def place(self, method: str | None = None) -> str:
        """Return file and line of the class, or of one of its methods; its import path if unknown."""
        code: Any = self._made if method is None else getattr(self._made, method, self._made)
        try:
            _, line = inspect.getsourcelines(code)
            return f"{inspect.getsourcefile(code)}:{line}"
        except (OSError, TypeError):
            return self.path

    def check_class(self, where: str, methods: tuple[str, ...]) -> None:
        """Check that the class is a module with some methods.

        Raises:
            UsageError: it is not.
        """
        if not (isinstance(self._made, type) and issubclass(self._made, nn.Module)):
            raise UsageError(
                f"expected a class derived from torch.nn.Module, received `{self.path}`, which is none",
                where=where,
                hint=f"see {self.place()}",
            )
        for name in methods:
            if not callable(getattr(self._made, name, None)):
                raise UsageError(
                    f"expected `{self.path}` to have a method `{name}(batch)`, received a class without one",
                    where=self.place(),
                    hint=f"define `def {name}(self, batch)`",
                )

    def check_options(self, where: str, options: Mapping[str, object]) -> None:
        """Check that the class can be called with its inputs and some keyword arguments.

        Args:
            where: key of the options in the run file.
            options: the keyword arguments.

        Raises:
            UsageError: it lacks one of them, or needs others.
        """
        signature = inspect.signature(self._made)
        try:
            signature.bind(None, **options)
        except TypeError as error:
            known = ", ".join(list(signature.parameters)[1:]) or "none"
            raise UsageError(
                f"expected options that `{self.path}` takes: {known}; received "
                f"{', '.join(options) or 'none'} ({error})",
                where=where,
                hint=f"the class is in {self.place()}",
            ) from None

    @contextmanager
    def calling(self, what: str) -> Iterator[None]:
        """Turn an exception of the user's code into an error that says what was called, and where it failed.

        Raises:
            UsageError: the block raised anything but an error of graphbox.
        """
        try:
            yield
        except (GraphboxError, torch.cuda.OutOfMemoryError):
            raise
        except Exception as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise UsageError(
                f"expected {what} of `{self.path}` to return, received {type(error).__name__}: {reason}",
                where=_line_of(error) or self.place(),
                hint="correct the module, and resume the run",
            ) from error

    def check_loss(self, loss: object) -> Tensor:
        """Return the loss if it is one number that has a gradient.

        Raises:
            UsageError: it is not.
        """
        received = _in_words(loss)
        if isinstance(loss, Tensor) and loss.numel() == 1 and loss.is_floating_point():
            if loss.requires_grad:
                return loss.reshape(())
            received = "one that depends on no parameter and no row"
        raise UsageError(
            f"expected loss(batch) of `{self.path}` to return a tensor of one number, received {received}",
            where=self.place("loss"),
            hint="return the mean loss of the batch's seeds, such as functional.cross_entropy(...)",
        )

    def check_output(self, found: object, seeds: int, columns: int | None) -> Tensor:
        """Return the output of the module if it has a row for each seed.

        Args:
            found: the output.
            seeds: number of seeds of the batch.
            columns: number of columns that it must have; None: any.

        Raises:
            UsageError: it is no such tensor, or has a value that is not finite.
        """
        wanted = f"[{seeds}, {'dim' if columns is None else columns}]"
        is_matrix = isinstance(found, Tensor) and found.dim() == 2 and len(found) == seeds
        if not is_matrix or (columns is not None and found.shape[1] != columns):  # type: ignore[attr-defined]
            raise UsageError(
                f"expected forward(batch) of `{self.path}` to return a tensor {wanted}, a row for each seed, "
                f"received {_in_words(found)}",
                where=self.place("forward"),
                hint="the seeds are the first nodes of their type: return their rows alone",
            )
        assert isinstance(found, Tensor)  # noqa: S101 - for the type checker
        if not torch.isfinite(found).all():
            raise GraphboxError(
                f"expected finite numbers from forward(batch) of `{self.path}`, received NaN or infinity",
                where=self.place("forward"),
                hint="lower the learning rates, or bound what the module computes",
            )
        return found.float()


def _in_words(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    return f"an object of type {type(value).__name__}"


def _line_of(error: Exception) -> str | None:
    """Return file and line where the user's code raised; None: nowhere in it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if _PACKAGE not in Path(each.filename).parents]
    # Of the libraries that it calls the last line says less than the last of its own.
    own = [each for each in own if "site-packages" not in each.filename] or own
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None
