"""Effects of loading OpenVINO on the process."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("openvino")


def test_the_main_thread_keeps_its_stack_for_signals() -> None:
    """OpenVINO sets one in the thread that loads it, too small for Python's handlers where there is AMX."""
    code = """
        import ctypes
        from graphbox.deploy import Options, open_program
        from graphbox.deploy.conformance_models import sum_model

        class Stack(ctypes.Structure):
            _fields_ = [("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

        def stack():
            found = Stack()
            assert ctypes.CDLL(None).sigaltstack(None, ctypes.byref(found)) == 0
            return found.start, found.flags, found.size

        before = stack()
        choice = open_program("openvino", sum_model(), Options())
        assert stack() == before, f"{before} became {stack()}"
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=120)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_inference_that_failed_is_not_run_again(threads: int) -> None:
    """Its request is freed; the plugin's queue, which all models of a process share, must not keep it."""
    code = f"""
        import gc
        import numpy as np
        from graphbox.deploy import Options, open_program
        from graphbox.deploy.conformance_models import reshape_model, sum_model
        from graphbox.errors import InvalidRequestError

        x = np.arange(12, dtype=np.float32).reshape(4, 3)
        with open_program("openvino", reshape_model(), Options(threads={threads})).program as program:
            for shape in ([2, 6], [5, 6], [5, 6], [6, 2], [5, 6]):
                feeds = {{"x": x, "shape": np.array(shape)}}
                try:
                    answer = program.run(feeds)["result"]
                except InvalidRequestError:
                    assert shape == [5, 6]
                else:
                    np.testing.assert_array_equal(answer, x.reshape(shape))
        gc.collect()
        kept = [np.full(44, -1.0) for _ in range(10_000)]  # over what was freed
        with open_program("openvino", sum_model(), Options(threads={threads})).program as program:
            for number in range(3):
                np.testing.assert_array_equal(program.run({{"x": x + number}})["result"], 2 * (x + number))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=120)
