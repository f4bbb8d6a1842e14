"""Calls every function of the native core with sound and spoilt arguments, and says what it did not survive.

A call may return or raise an exception of ours, or TypeError where the core takes no such argument. All else
is a finding; so is a crash, of which the last line of the log tells what was called.

python -m tests.native.fuzz FOLDER [--seed 0] [--rounds 100] [--core PATH]

``--core`` takes another build of the core, for instance one with AddressSanitizer (``make test-asan``).
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import json
import os
import random
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np

CALLS = 250
"""Of a round, which has one graph and the objects made of it."""

CHANGES = ("table_attach_tier",)
"""Functions that turn an existing object into one of another kind."""

SOUND_TURNS = 3
"""Number of sound calls of each function that makes objects, before fuzzing: some need others' results."""

NOT_CALLED = ("random_copy_seconds", "random_read_seconds")
"""Functions that measure the machine: they run as long as their arguments say."""

_SPARE_BYTES = 1 << 30
_STACK_BYTES = 1 << 20
_LOG_LETTERS = 4000


def load_core(path: str) -> None:
    """Make ``graphbox._core`` the extension module at ``path``."""
    import graphbox

    spec = importlib.util.spec_from_file_location("graphbox._core", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["graphbox._core"] = module
    graphbox._core = module
    spec.loader.exec_module(module)


def begin_with_small_threads() -> None:
    """Begin anew with small stacks and one heap: else 256 threads take more addresses than the bound."""
    if os.environ.get("MALLOC_ARENA_MAX") != "1":
        os.environ["MALLOC_ARENA_MAX"] = "1"
        _, most = resource.getrlimit(resource.RLIMIT_STACK)
        resource.setrlimit(resource.RLIMIT_STACK, (_STACK_BYTES, most))
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  # this very program


def bound_memory() -> None:
    """Let this process have a GiB more of addresses, so that what asks for more is refused, not granted."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _SPARE_BYTES, used + _SPARE_BYTES))


def describe(value: Any) -> str:
    """Return a short text of an argument."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}{value.ravel()[:6].tolist()}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(describe, value)) + "]"
    return repr(value)


class Fuzzer:
    """Calls functions, and keeps what they return and raise.

    Args:
        folder: for files.
        log: where the call is written before it is made.
        largest: number to ask for.
    """

    def __init__(self, folder: Path, log: Path, largest: int) -> None:
        from graphbox import _core
        from tests.native.signatures import functions_of

        self.functions = [f for f in functions_of(_core) if f.name not in NOT_CALLED]
        self.folder = folder
        self.largest = largest
        self.log = os.open(log, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.returned: collections.Counter[str] = collections.Counter()
        self.raised: collections.Counter[str] = collections.Counter()
        self.findings: dict[str, str] = {}

    def round(self, seed: int) -> None:
        """Make calls around one graph."""
        from tests.native.fuzz_world import World

        # Only the last few, so that what they hold together stays small.
        objects: dict[str, collections.deque[Any]] = collections.defaultdict(
            lambda: collections.deque(maxlen=6)
        )
        world = World(random.Random(seed), self.folder, objects, self.largest)
        # Those that make objects first, soundly, and often: without them there is little to call.
        makers = [function for function in self.functions if function.makes or function.name in CHANGES]
        for _ in range(SOUND_TURNS):
            for function in world.random.sample(makers, len(makers)):
                self._call(world, function, seed, is_sound=True)
        for _ in range(CALLS):
            pool = makers if world.random.random() < 0.3 else self.functions
            self._call(world, world.random.choice(pool), seed)

    def _call(self, world: Any, function: Any, seed: int, *, is_sound: bool = False) -> None:
        from graphbox.errors import GraphboxError
        from tests.native.fuzz_values import RECIPES, sound, spoil

        recipe = RECIPES[function.name](world) if function.name in RECIPES else {}
        arguments = {
            parameter.name: recipe[parameter.name]
            if parameter.name in recipe
            else sound(world, parameter.name, parameter.type)
            for parameter in function.parameters
            if parameter.required or parameter.name in recipe
        }
        for _ in range(0 if is_sound else world.random.choice([0, 0, 1, 1, 1, 2, 3])):
            if arguments:
                name = world.random.choice(list(arguments))
                arguments[name] = spoil(world, arguments[name], name)
        called_on = [] if function.of_class is None else [world.object(function.of_class)]
        if called_on == [None]:
            return
        text = ", ".join(f"{name}={describe(value)}" for name, value in arguments.items())
        os.pwrite(
            self.log, f"seed {seed}: {function.name}({text})"[:_LOG_LETTERS].ljust(_LOG_LETTERS).encode(), 0
        )
        try:
            result = function.call(*called_on, **arguments)
        except (GraphboxError, TypeError):
            self.raised[function.name] += 1
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
            self.findings.setdefault(
                f"{function.name}: {type(error).__name__}: {error}"[:300],
                f"seed {seed}: {function.name}({text})",
            )
        else:
            self.returned[function.name] += 1
            if function.makes:
                world.objects[function.makes].extend(result if isinstance(result, list) else [result])


def main() -> int:
    """Run rounds, print what was found, and return 1 if anything was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--core")
    options = parser.parse_args()
    if options.core:
        load_core(options.core)
    else:
        begin_with_small_threads()
    folder = options.folder.resolve()
    os.chdir(folder)  # where names without a folder are
    # A sanitizer ends the process where memory is refused, and needs more addresses than a bound leaves.
    fuzzer = Fuzzer(folder, folder / "last_call.txt", 1 << 16 if options.core else 1 << 63)
    if not options.core:
        bound_memory()
    for seed in range(options.seed, options.seed + options.rounds):
        fuzzer.round(seed)
    names = [function.name for function in fuzzer.functions]
    report = {
        "returned": {name: fuzzer.returned[name] for name in names},
        "raised": {name: fuzzer.raised[name] for name in names},
        "findings": fuzzer.findings,
    }
    print(json.dumps(report))
    return 1 if fuzzer.findings else 0


if __name__ == "__main__":
    sys.exit(main())
