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
