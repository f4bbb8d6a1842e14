"""Reports of the conformance kit on the targets of this machine, as they are in docs/guides/targets.

python -m benchmarks.target_reports [TARGET ...] [--out FOLDER]

Without targets all that are installed here. Triton is started with a repository of the kit's models, in a
package folder of its own, unless ``GRAPHBOX_TRITON`` names one. Exit code 1 where a case failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from graphbox.deploy.conformance import check_adapter
from graphbox.deploy.conformance_report import write_report
from graphbox.errors import GraphboxError
from graphbox.package_folder import FOLDER_VARIABLE
from tests.deploy import triton_server

_TRITON_VARIABLE = "GRAPHBOX_TRITON"
TARGETS = ("onnxruntime", "openvino", "iree/cpu", "aotinductor", "browser", "triton_repository/python")


def main() -> int:
    """Run the kit on each target and write its report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("targets", nargs="*", default=TARGETS)
    parser.add_argument("--out", type=Path, default=Path("docs/guides/targets"))
    options = parser.parse_args()
    failed = False
    for target in options.targets:
        try:
            with _prepared(target):
                report = check_adapter(target)
        except GraphboxError as error:
            print(f"{target}: not here: {error.message}", flush=True)
            continue
        write_report(report, options.out)
        failed |= not report.passed
        outcomes = [each.outcome for each in report.cases]
        counts = ", ".join(f"{outcomes.count(each)} {each}" for each in ("passed", "refused", "failed"))
        print(f"{target}: {counts} in {report.seconds} s", flush=True)
    return int(failed)


@contextmanager
def _prepared(target: str) -> Iterator[None]:
    is_triton = target.startswith("triton_repository")
    if not is_triton or _TRITON_VARIABLE in os.environ or triton_server.why_not():
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "repository"
        with patch.dict(os.environ, {FOLDER_VARIABLE: f"{folder}/packages"}):
            triton_server.add_conformance_models(repository)
            with triton_server.triton_server(repository, Path(folder) / "log") as url:
                os.environ[_TRITON_VARIABLE] = url
                yield


if __name__ == "__main__":
    sys.exit(main())
