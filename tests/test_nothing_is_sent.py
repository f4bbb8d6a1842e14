"""graphbox sends nothing and leaves nothing outside the workspace: real commands under strace.

The check is itself checked: a program that uses ONNX Runtime without graphbox has to be caught by it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import certifi
import httpx
import numpy as np
import pytest

import graphbox
from graphbox.deploy.onnx_writer import Node, write_onnx
from tests.cli.conftest import write_tables
from tests.server.sample_models import build_workspace
from tests.server.server_process import EVERY_ADDRESS, TOKEN, wait_until
from tests.system_calls import TracedProgram, tracer_problem

pytestmark = pytest.mark.slow

TELEMETRY_TIMEOUT_S = 60.0
SERVER = Path(__file__).parent / "server" / "run_server.py"
BARE_SESSION = """
import sys
import onnxruntime
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
print("ready", flush=True)
sys.stdin.read()
"""

# Everything that may be read outside the workspace, the interpreter, its packages and graphbox.
READABLE = {
    r".*/[^/]+\.so(\.[0-9]+)*": "shared libraries",
    r"/etc/ld\.so\.cache": "the dynamic linker finds libraries by it",
    r"/usr/(lib|share)/locale/.*|/usr/share/i18n/.*|/etc/locale\.alias": "the C library's locales",
    r"/usr/lib/.*/gconv/gconv-modules(\.cache|\.d/.*)?": "the C library's character sets",
    r"/etc/python3[^/]*/.*": "Debian's settings of its Python",
    r"/etc/localtime|/usr/share/zoneinfo(/.*)?": "the time zone",
    r"/etc/os-release|/usr/lib/os-release": "the system's name, for `graphbox doctor` and ONNX Runtime's log",
    r"/etc/mime\.types": "media types of the web page's files",
    r"(/etc|/usr/lib)/ssl/openssl\.cnf": "OpenSSL's settings; Python's hashes come from OpenSSL",
    r"/dev/(null|zero|urandom|random)": "no data",
    r"/proc/(cpuinfo|meminfo|stat|filesystems|mounts|version)": "processors and memory of the machine",
    r"/proc/sys/(vm/(overcommit_memory|nr_hugepages)|kernel/.*)": "memory settings, for allocators",
    r"/proc/self/(fd|task|stat|statm|status|io|maps|mounts|limits|cgroup|cpuset|mountinfo)": "memory, limits",
    r"/sys/bus/dax/devices": "OpenVINO's search for memory",
    r"/proc/self/environ": "OpenMP's settings",
    r"/sys/fs/cgroup(/.*)?": "the container's limits of processors and memory",
    r"/sys/devices/system/(cpu|node)(/.*)?": "processors, for the number of threads",
    r"/sys/kernel/mm/.*": "huge pages, for allocators",
    r"/sys/bus/pci/devices|/sys/devices/pci.*|/sys/class/(accel|drm)(/.*)?": "ONNX Runtime's search for GPUs",
    r"/usr/include/.*|/usr/lib/gcc/.*|/usr/lib/[^/]+/[^/]+\.[ao]": "the C++ compiler, for AOTInductor",
    r"/dev/nvidia.*|/proc/driver/nvidia(/.*)?|/dev/kfd": "drivers of GPUs",
}
# No files on a disk: a process resets its peak memory, and semaphores of joblib are removed at once.
WRITABLE = re.compile(r"/dev/null|/proc/self/clear_refs|/dev/shm/sem\.\w+(-\d+-\w+)?|/dev/nvidia.*")


class Enclosure:
    """Empty folders for a traced program, and the environment that names them.

    The environment does not have the variables of CI services: ONNX Runtime sends nothing where it sees one.
    """

    def __init__(self, root: Path) -> None:
        self.home, self.temporary, self.work, self._log = (
            root / name for name in ("home", "tmp", "work", "log")
        )
        for folder in (self.home, self.temporary, self.work, self._log):
            folder.mkdir(parents=True)
        places = ("CACHE", "CONFIG", "DATA", "STATE")
        self._environment = {
            "PATH": os.defpath,
            "LANG": "C.UTF-8",
            "HOME": str(self.home),
            "USER": "ann",  # without a name PyTorch looks the user up for its cache in TMPDIR
            "TMPDIR": str(self.temporary),
            **{f"XDG_{place}_HOME": str(self.home / place.lower()) for place in places},
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "ORT_DISABLE_TELEMETRY": "0",  # graphbox sends nothing, whatever the environment says
            "SSL_CERT_FILE": certifi.where(),  # ONNX Runtime does not upload without one
        }

    def start(self, *arguments: str) -> TracedProgram:
        """Start a Python program."""
        with (self._log / "errors").open("w") as errors:
            command = [sys.executable, *arguments]
            return TracedProgram(command, self._log, self.work, self._environment, errors)

    def check(self, program: TracedProgram) -> None:
        """Check what a program did that has ended."""
        assert program.contacts() == []
        assert self.changed_outside(program) == []
        surprising = sorted(str(path) for path in program.read() if not self._may_read(path))
        assert surprising == [], (
            "reads of no listed purpose: add them to READABLE with the reason, or avoid them"
        )
        assert list(self.home.iterdir()) == []
        assert any(path.name.startswith("errors.") for path in program.read()), "graphbox was not traced"

    def changed_outside(self, program: TracedProgram) -> list[str]:
        """Return the paths that a program changed, or tried to, elsewhere than it may."""
        allowed = (self.work, self.temporary)
        changed = [path for path in program.changed() if not _is_below(path, *allowed)]
        return sorted(str(path) for path in changed if not WRITABLE.fullmatch(_own_process(path)))

    def errors(self) -> str:
        return (self._log / "errors").read_text()

    def _may_read(self, path: Path) -> bool:
        text = _own_process(path)
        folders = (self.work, self.home, self.temporary, *_code_folders())
        return (
            _is_below(path, *folders)
            or path in _LISTED_FOLDERS
            or any(re.fullmatch(pattern, text) for pattern in READABLE)
        )


def _code_folders() -> list[Path]:
    """Return the folders of the interpreter, its packages, graphbox, and the program that starts servers."""
    package = Path(graphbox.__file__).parent
    named = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return [
        *named,
        package,
        *(path.resolve() for path in package.iterdir()),
        SERVER,
        Path(sys.prefix, "pyvenv.cfg"),
    ]


# Python lists each folder of its search path.
_LISTED_FOLDERS = {Path(graphbox.__file__).parent.parent, SERVER.parent}


def _is_below(path: Path, *folders: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _own_process(path: Path) -> str:
    return re.sub(r"^/proc/\d+/(task/\d+/)?", "/proc/self/", str(path))


@pytest.fixture
def enclosure(tmp_path: Path) -> Callable[[str], Enclosure]:
    problem = tracer_problem()
    if problem is not None and os.environ.get("CI") == "true":
        pytest.fail(problem)
    if problem is not None:
        pytest.skip(problem)
    return lambda name: Enclosure(tmp_path / name)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("doctor", "--no-bandwidths", "--json"),
        ("targets",),
        ("import", "follows.csv"),
        ("run", "run.yaml", "--quiet"),  # import, train, evaluate, export, compress, bench
    ],
    ids=lambda arguments: arguments[0].strip("-"),
)
def test_commands(enclosure: Callable[[str], Enclosure], arguments: tuple[str, ...]) -> None:
    box = enclosure("box")
    (box.work / "follows.csv").write_text("source,target\nann,bob\nbob,cid\ncid,ann\n")
    write_tables(box.work)
    with box.start("-m", "graphbox", *arguments) as program:
        assert program.finish() == 0, box.errors()
    box.check(program)
    assert (box.work / "workspace").exists() == (arguments[0] in {"import", "run"})


@contextmanager
def running_server(box: Enclosure, host: str) -> Iterator[tuple[TracedProgram, str]]:
    """Yield a server for sample models, and its address."""
    build_workspace(box.work / "workspace").close()
    settings = {"workspace": str(box.work / "workspace"), "host": host, "port": 0, "token": TOKEN}
    with box.start(str(SERVER), json.dumps(settings)) as program:
        address = re.search(r":(\d+)/", program.first_line())
        assert address is not None, box.errors()
        yield program, f"http://127.0.0.1:{address[1]}"


def ask(url: str) -> None:
    """Request the page, one of its scripts, and embeddings."""
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {TOKEN}"}, timeout=30) as client:
        page = client.get("/")
        assert page.status_code == 200
        for script in re.findall(r'src="([^"]+\.js)"', page.text):
            assert client.get(script).status_code == 200
        inputs: list[dict[str, Any]] = [
            {"name": "id", "datatype": "BYTES", "shape": [2], "data": ["nginx", "curl"]}
        ]
        answer = client.post("/v2/models/companion/infer", json={"inputs": inputs})
        assert answer.status_code == 200, answer.text


def test_server_on_every_address(enclosure: Callable[[str], Enclosure]) -> None:
    box = enclosure("box")
    with running_server(box, EVERY_ADDRESS) as (server, url):
        ask(url)
        assert server.stop(signal.SIGTERM) == 0, box.errors()
    box.check(server)


def test_server_while_a_bare_session_looks_up_a_host(enclosure: Callable[[str], Enclosure]) -> None:
    box, bare_box = enclosure("box"), enclosure("bare")
    model = bare_box.work / "model.onnx"
    model.write_bytes(
        write_onnx([Node("Neg", ["x"], ["y"])], {"x": (np.float32, ["n"])}, {"y": (np.float32, ["n"])})
    )
    with running_server(box, "127.0.0.1") as (server, url):
        ask(url)
        with bare_box.start("-c", BARE_SESSION, str(model)) as bare:
            assert bare.first_line() == "ready", bare_box.errors()
            # The server has run for longer, so its runtime would have looked up the host too.
            wait_until(lambda: bool(bare.contacts()), TELEMETRY_TIMEOUT_S, "a bare session to look up a host")
            assert bare.finish() == 0, bare_box.errors()
        assert server.stop(signal.SIGTERM) == 0, box.errors()
    box.check(server)
    assert any("deviceid" in path for path in bare_box.changed_outside(bare))
    with pytest.raises(AssertionError):
        bare_box.check(bare)


@pytest.mark.parametrize(
    "statement",
    [
        "socket.getfqdn('graphbox.invalid')",
        "socket.create_connection(('192.0.2.1', 80), timeout=0.01)",
        "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 53))",
        "socket.socket(socket.AF_UNIX).connect('/run/graphbox.invalid')",
    ],
)
def test_contacts_are_caught(enclosure: Callable[[str], Enclosure], statement: str) -> None:
    box = enclosure("box")
    with box.start(
        "-c", f"import contextlib, socket\nwith contextlib.suppress(OSError): {statement}"
    ) as program:
        assert program.finish() == 0, box.errors()
    assert program.contacts() != []


@pytest.mark.parametrize(
    ("statement", "path"),
    [
        ("Path('../home/new').write_text('x')", "/home/new"),
        ("Path('../home/new').mkdir()", "/home/new"),
        ("os.rename('old', '../home/new')", "/home/new"),
        ("os.symlink('old', '../home/new')", "/home/new"),
        ("os.unlink('/etc/graphbox.invalid')", "/etc/graphbox.invalid"),
        ("Path('/etc/passwd').read_text()", "/etc/passwd"),
    ],
)
def test_files_outside_are_caught(enclosure: Callable[[str], Enclosure], statement: str, path: str) -> None:
    box = enclosure("box")
    (box.work / "old").write_text("")
    code = "import contextlib, os, graphbox.errors\nfrom pathlib import Path\n"
    with box.start("-c", f"{code}with contextlib.suppress(OSError): {statement}") as program:
        assert program.finish() == 0, box.errors()
    with pytest.raises(AssertionError, match=re.escape(f"{path}'")):
        box.check(program)
