"""Arrays on a GPU, with compiled kernels."""

from __future__ import annotations

import pytest

from tests.sample.device_arrays import DeviceArrayReads

pytestmark = pytest.mark.gpu


class TestCompiled(DeviceArrayReads):
    pass
