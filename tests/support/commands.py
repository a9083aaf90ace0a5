"""Commands run in this process, and their output."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import pytest

from metlmon.cli import Exit
from metlmon.cli.main import main

Captured = pytest.CaptureFixture[str]


def run_command(command: str, capsys: Captured, *arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output and standard error; ``command``: the first words."""
    code = main([*command.split(), *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def text_output(command: str, capsys: Captured, *arguments: object) -> str:
    """Standard output of a command that succeeds."""
    code, out, _ = run_command(command, capsys, *arguments)
    assert code == Exit.OK
    return out


def json_output(command: str, capsys: Captured, *arguments: object) -> dict[str, Any]:
    """The JSON of a successful command, by the standard: no NaN, no Infinity."""
    text = text_output(command, capsys, *arguments, "--json")
    value: dict[str, Any] = json.loads(text, parse_constant=_refuse)
    return value


def _refuse(name: str) -> NoReturn:
    raise AssertionError(f"{name} is not JSON")


def usage_error(command: str, capsys: Captured, *arguments: object) -> str:
    """The only line on standard error of a command with bad arguments."""
    code, out, err = run_command(command, capsys, *arguments)
    assert (code, out) == (Exit.USAGE, "")
    assert err.startswith("metlmon: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err
