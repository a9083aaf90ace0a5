"""What users type: a directory without a command or on another machine, and misspelt words."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress

from metlmon.cli.arguments import COMMANDS
from metlmon.cli.output import is_terminal, print_message
from metlmon.errors import InputError, nearest


def is_path(word: str) -> bool:
    """Whether a word names a directory or a file, here or elsewhere. Raises InputError."""
    return os.path.lexists(word) or os.sep in word or is_elsewhere(word)


def is_elsewhere(word: str) -> bool:
    """Whether a word names a directory on another machine. Raises InputError."""
    from metlmon.remote.paths import UnusableMachine, split_argument

    try:
        return ":" in word and split_argument(word) is not None
    except UnusableMachine as error:
        raise InputError(str(error)) from None


def path_of(word: str) -> str:
    """The path of a word like ``HOST:DIR``; connects to the machine. Raises InputError."""
    if not is_elsewhere(word):
        return word
    from metlmon.cli.reading import start_watchdog, stop_watchdog
    from metlmon.remote.machine import connect_to, log_in
    from metlmon.remote.paths import UnusableMachine

    try:
        log_in(word)
        start_watchdog(word)
        return connect_to(word)
    except UnusableMachine as error:
        raise InputError(str(error)) from None
    finally:
        stop_watchdog()


def connect(options: argparse.Namespace) -> None:
    """Replace words like ``HOST:DIR`` by paths, and connect to the machines. Raises InputError.

    Of several directories, those on unusable machines are named on standard error and dropped;
    ``options.unusable`` is their number. Home has a line for those of them that are absolute, and
    keeps trying to connect.
    """
    if options.command == "serve":
        # It starts metlmon watch with the same words.
        return
    for name in ("dir", "dirs", "run", "runs"):
        given = getattr(options, name, None) or ""
        words = given if isinstance(given, list) else [given]
        if name == "run" and given and _is_key(given, options.dir):
            continue
        elsewhere = next(filter(is_elsewhere, words), None)
        if elsewhere is None:
            continue
        if not any(argument.is_remote for argument in COMMANDS[options.command].arguments):
            raise InputError(
                f"{elsewhere}: metlmon {options.command} is for directories of this machine; run "
                "it there, in a shell of ssh"
            )
        if name == "dirs" and len(words) > 1:
            at_home = options.command == "watch" and is_terminal()
            options.dirs = _usable_paths(words, may_wait=at_home)
            options.unusable = len(words) - len(options.dirs)
            continue
        words = [path_of(word) for word in words]
        setattr(options, name, words if isinstance(given, list) else words[0])


def _is_key(word: str, directory: str) -> bool:
    """Whether ``metlmon run e.dag:run0 DIR`` names a run by its key, not a remote directory."""
    from metlmon.remote.paths import split

    is_given = directory != "." and (os.path.exists(directory) or split(directory) is not None)
    return is_given or word.startswith(":") or os.path.isfile(word.partition(":")[0])


def _usable_paths(words: Sequence[str], *, may_wait: bool) -> list[str]:
    """The paths of the usable words; errors are printed. Raises InputError if none is.

    ``may_wait``: a machine of a word like ``HOST:/DIR`` may be connected later, in the background.
    """
    from metlmon.remote.machine import connect_later
    from metlmon.remote.paths import UnusableMachine

    paths, refused = [], []
    for word in words:
        try:
            paths.append(path_of(word))
        except InputError as error:
            refused.append((word, error))
    if not paths:
        raise refused[-1][1]
    for word, reason in refused:
        path = None
        with suppress(UnusableMachine):
            path = connect_later(word) if may_wait and ":/" in word else None
        if path is not None:
            paths.append(path)
        else:
            print_message(str(reason))
    return paths


def unknown_arguments(words: Sequence[str], command: str | None) -> str:
    """The error for arguments that ``command`` does not take."""
    option = words[0].partition("=")[0]
    options = {
        name: [each.name for each in declared.all_arguments() if each.name.startswith("-")]
        for name, declared in COMMANDS.items()
    }
    meant = ""
    if takers := [name for name, known in options.items() if option in known]:
        meant = f"; it is an option of {', '.join(takers[:3])}" + " and others" * (len(takers) > 3)
    elif option.startswith("-"):
        meant = did_you_mean(option, options[command] if command else ["--version"])
    return f"unrecognized arguments: {' '.join(words)}{meant}"


def explain_choice(message: str) -> str:
    """An error of argparse, with the closest of the choices that it lists."""
    match = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
    if match is None:
        return message
    return message + did_you_mean(match[1], re.findall(r"[\w-]+", match[2]))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean status?``, with the closest of ``known``; empty if none is close."""
    similar = nearest(word, known)
    return f"; did you mean {similar}?" if similar else ""


def chosen_words(
    option: str, text: str, known: Iterable[str], there: str = "there are"
) -> set[str]:
    """The words of an option, comma-separated. Raises InputError for an unknown one."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        what = unknown[0] if unknown else text
        raise InputError(f"{option} {what!r}: {there} {', '.join(known)}")
    return set(names)
