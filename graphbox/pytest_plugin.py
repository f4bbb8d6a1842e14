"""pytest plugin that runs the conformance kit: ``pytest --graphbox-target NAME``, a test for each case.

pytest imports this module wherever graphbox is installed; adapters and the kit are imported when it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from graphbox.deploy import Adapter, Device
    from graphbox.deploy.conformance import Check

__all__: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the kit."""
    group = parser.getgroup("graphbox", "graphbox's conformance kit for adapters")
    group.addoption(
        "--graphbox-target",
        action="append",
        default=[],
        metavar="NAME",
        help="run the cases of the conformance kit on an adapter, or on adapter/device; may be repeated",
    )
    group.addoption(
        "--graphbox-cycles",
        type=int,
        default=1000,
        metavar="N",
        help="programs to load and close while memory has to stay flat (default: 1000)",
    )


def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add the cases of the targets that were asked for."""
    for target in dict.fromkeys(config.getoption("graphbox_target")):
        items += TargetCases.from_parent(session, target=target).collect()


class TargetCases(pytest.Collector):
    """All cases of a target.

    Args:
        target: an adapter's name, or ``adapter/device``.

    Raises:
        pytest.UsageError: there is no such target, or it is not available.
    """

    def __init__(self, *, target: str, **options: Any) -> None:
        from graphbox.deploy import choose
        from graphbox.errors import GraphboxError

        super().__init__(name=target, nodeid=f"graphbox-target/{target}", **options)
        try:
            self.adapter, self.device = choose(target)
        except GraphboxError as error:
            raise pytest.UsageError(f"--graphbox-target {target}: {error}") from error

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a test for each case."""
        from graphbox.deploy.conformance import cases

        for name, check in cases(self.adapter, self.config.getoption("graphbox_cycles")):
            yield TargetCase.from_parent(
                self, name=name, check=check, adapter=self.adapter, device=self.device
            )


class TargetCase(pytest.Item):
    """One case; skipped where the adapter refuses what it needs, with the adapter's reason.

    Args:
        check: of the case.
        adapter: that is tested.
        device: on which.
    """

    def __init__(self, *, check: Check, adapter: Adapter, device: Device, **options: Any) -> None:
        super().__init__(**options)
        self._check, self._adapter, self._device = check, adapter, device

    def runtest(self) -> None:
        """Run the case."""
        from graphbox.deploy.conformance import RefusedCaseError

        try:
            self._check(self._adapter, self._device)
        except RefusedCaseError as refusal:
            pytest.skip(str(refusal))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return what the case found; of other errors the traceback."""
        from graphbox.deploy.conformance import FailedCaseError

        if isinstance(excinfo.value, FailedCaseError):
            return f"{self._adapter.name}/{self._device.name}: {self.name}: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Return the case as it is listed."""
        return self.path, None, f"{self._adapter.name}/{self._device.name}: {self.name}"
