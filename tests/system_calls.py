"""System calls of a program and its children, traced by strace: opened and changed files, network peers.

Operations of io_uring are not traced; graphbox's core uses it only to read files opened by a system call.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

_CHANGES = (
    *(
        "creat",
        "mkdir",
        "mkdirat",
        "mknod",
        "mknodat",
        "rename",
        "renameat",
        "renameat2",
        "unlink",
        "unlinkat",
    ),
    *("rmdir", "link", "linkat", "symlink", "symlinkat", "truncate"),
)
_OPENS = ("open", "openat", "openat2")
_CONTACTS = ("connect", "sendto", "sendmsg", "sendmmsg")
_WRITING = re.compile(r"\bO_(WRONLY|RDWR|CREAT|TRUNC|TMPFILE)\b")
_RESOLVER = re.compile(r"/etc/(resolv\.conf|hosts|host\.conf|gai\.conf|nsswitch\.conf)|/(var/)?run/nscd/.*")
_LINE = re.compile(r"(\w+)\((.*?)(?:\)\s+= (.+))?")
_PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')
_OPENED = re.compile(r"\d+<(.*?)(?: \(deleted\))?>")
_ADDRESS = re.compile(r'inet_addr\("([^"]+)"\)|inet_pton\(AF_INET6, "([^"]+)"')
_EXIT_TIMEOUT_S = 60.0
_STRACE = shutil.which("strace") or "strace"


@dataclass(frozen=True)
class SystemCall:
    """A line of strace: ``name(arguments) = result``; without a result when the program ended meanwhile."""

    name: str
    arguments: str
    result: str

    def __str__(self) -> str:
        return f"{self.name}({self.arguments}) = {self.result}"

    def paths(self, start: Path) -> list[Path]:
        """Return the paths it names; relative ones are relative to ``start`` where strace shows no folder."""
        opened = _OPENED.fullmatch(self.result) if self.name in _OPENS else None
        if opened is not None:
            return [Path(opened[1])]
        named = [
            Path(os.path.normpath(Path(folder or start, path)))
            for folder, path in _PATH.findall(self.arguments)
        ]
        # The first text of a symbolic link is what it points to.
        return named[1:] if self.name.startswith("symlink") else named


class TracedProgram:
    """A running program under strace, killed at the end of the block.

    Args:
        command: program and arguments.
        log: folder for strace's files.
        folder: working folder of the program.
        environment: its whole environment.
        errors: file for its standard error.
    """

    def __init__(
        self, command: Sequence[str], log: Path, folder: Path, environment: Mapping[str, str], errors: IO[str]
    ) -> None:
        self._log = log
        self._folder = folder
        names = ",".join(f"?{name}" for name in (*_OPENS, *_CHANGES, "chdir", "fchdir"))
        options = ["-ff", "--seccomp-bpf", "-q", "-y", "-s", "4096", "-e", f"trace=%network,{names}"]
        self.process = subprocess.Popen(
            [_STRACE, *options, "-o", str(log / "calls"), *command],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.stop(signal.SIGKILL)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def first_line(self) -> str:
        """Wait for the first line of standard output; empty when the program ends without one."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def finish(self) -> int:
        """Close standard input, wait for the end and return the exit status."""
        self.process.communicate(timeout=_EXIT_TIMEOUT_S)
        return self.process.returncode

    def stop(self, number: signal.Signals) -> int:
        """Send a signal to the program, wait for the end and return the exit status."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        os.kill(int(children[0]) if children else self.process.pid, number)
        return self.process.wait(_EXIT_TIMEOUT_S)

    def calls(self) -> list[SystemCall]:
        """Return the system calls of all threads and children so far."""
        found = []
        for file in sorted(self._log.glob("calls.*")):
            matches = (_LINE.fullmatch(line) for line in file.read_text().splitlines())
            found += [SystemCall(match[1], match[2], match[3] or "") for match in matches if match]
        assert not any(call.name in {"chdir", "fchdir"} for call in found), "relative paths are ambiguous"
        return found

    def contacts(self) -> list[str]:
        """Return each call that contacts, or prepares to contact, anything but a loopback address."""
        return [str(call) for call in self.calls() if _is_contact(call, self._folder)]

    def changed(self) -> set[Path]:
        """Return the paths that were created, opened for writing, renamed or removed, or were meant to be."""
        calls = [call for call in self.calls() if call.name in _CHANGES or _opens(call, writing=True)]
        return {path for call in calls for path in call.paths(self._folder)}

    def read(self) -> set[Path]:
        """Return the files and folders that were opened for reading."""
        calls = [
            call for call in self.calls() if _opens(call, writing=False) and not call.result.startswith("-1")
        ]
        return {path for call in calls for path in call.paths(self._folder)}


def tracer_problem() -> str | None:
    """Return why programs cannot be traced on this machine, or None."""
    if shutil.which(_STRACE) is None:
        return "strace is not installed"
    tried = subprocess.run(
        [_STRACE, "-qq", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False
    )
    return None if tried.returncode == 0 else f"strace may not trace: {tried.stderr.strip()}"


def _opens(call: SystemCall, *, writing: bool) -> bool:
    return call.name in _OPENS and bool(_WRITING.search(call.arguments)) == writing


def _is_contact(call: SystemCall, start: Path) -> bool:
    if call.name in _OPENS:
        return any(_RESOLVER.fullmatch(str(path)) for path in call.paths(start))
    if call.name == "socket":
        # Loopback peers are met by streams; datagrams are for name servers.
        return not call.arguments.startswith("AF_UNIX") and "SOCK_STREAM" not in call.arguments
    if call.name not in _CONTACTS or (call.name != "connect" and "sa_family" not in call.arguments):
        return False  # an answer to a peer that was accepted or connected
    address = _ADDRESS.search(call.arguments)
    if address is None:
        return True
    return "htons(53)" in call.arguments or not ipaddress.ip_address(address[1] or address[2]).is_loopback
