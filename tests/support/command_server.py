"""Commands of the program, each in its own process, forked from one that has imported it."""

from __future__ import annotations

import importlib
import os
import pickle
import pkgutil
import resource
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen
from tempfile import TemporaryFile
from typing import BinaryIO, NoReturn

ROOT = Path(__file__).resolve().parents[2]

Ran = CompletedProcess[bytes]


def run_program(
    arguments: Sequence[str | bytes | Path],
    directory: Path,
    environment: Mapping[str, str],
    user: int | None = None,
    limits: Mapping[int, int] | None = None,
) -> Ran:
    """Run the program in ``directory``, as ``user``, with files as streams; return its output.

    ``limits``: of resources, by their numbers in ``resource``.
    """
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    words = [os.fsdecode(word) for word in arguments]
    request = words, str(directory), dict(environment), user, dict(limits or {})
    pickle.dump(request, server.stdin)
    server.stdin.flush()
    ran: Ran = pickle.load(server.stdout)
    return ran


def read_before(dagdir: Path) -> None:
    """Let the server read ``dagdir`` now, so that commands on all of it need not."""
    server = _server()
    assert server.stdin is not None
    pickle.dump(dagdir, server.stdin)
    server.stdin.flush()


@cache
def _server() -> Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": ""}
    return Popen([sys.executable, __file__], stdin=PIPE, stdout=PIPE, env=environment, cwd=ROOT)


def _serve() -> None:
    from metlmon.cli.main import main
    from tests.support.shared_readers import shared_readers

    # An ordinary user may be unable to read this Python: import everything before.
    for module in pkgutil.walk_packages([str(ROOT / "metlmon")], "metlmon."):
        if "__main__" not in module.name and "trainer" not in module.name:
            importlib.import_module(module.name)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    main(["report", str(ROOT / "fixtures" / "rescue"), "--html", "-"])
    dagdirs: set[Path] = set()
    with shared_readers(dagdirs.__contains__):
        _answer(answers, dagdirs)


def _answer(answers: BinaryIO, dagdirs: set[Path]) -> None:
    """Answer requests; ``dagdirs``: those read before a command runs on them."""
    from tests.support.shared_readers import read_shared

    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        if isinstance(request, Path):
            dagdirs.add(request)
            read_shared(request)
            continue
        words, directory, environment, user, limits = request
        with TemporaryFile() as out, TemporaryFile() as err:
            child = os.fork()
            if not child:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                for limit, most in limits.items():
                    resource.setrlimit(limit, (most, most))
                _run(words, directory, environment, user)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            out.seek(0)
            err.seek(0)
            pickle.dump(CompletedProcess(words, status, out.read(), err.read()), answers)
            answers.flush()


def _run(
    words: list[str], directory: str, environment: dict[str, str], user: int | None
) -> NoReturn:
    from metlmon.cli.main import main

    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    sys.argv = ["metlmon", *words]
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    try:
        code = main(words)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code))


if __name__ == "__main__":
    _serve()
