"""The ``metlmon`` command: the parser, and the dispatch to the commands' modules.

Only what ``--version`` needs is imported here; each command imports its own when it is called.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from keyword import iskeyword
from typing import Any, Final, NoReturn

from metlmon.cli import Exit
from metlmon.cli.arguments import ABSENT, COMMANDS, GROUPS, LOGS, load_module
from metlmon.memory import gc_paused, set_thresholds

DESCRIPTION: Final = "Watch ensembles of model trainings that run as HTCondor DAGs."

EPILOG: Final = """\
exit status:
  0  readable, whatever the jobs did; or --exit-on was met and all is well
  1  check: errors were found (with --strict: or warnings)
  2  the directory or the arguments cannot be used
  3  --exit-on: something failed or was removed, or cannot continue
  4  --exit-on: a job, or DAGMan itself, is held, or stalled
  5  --exit-on: --timeout passed first
  6  submit, new --submit: the files are written, but the pool did not take
     the DAG; act: something was refused, failed, or was not confirmed;
     export: the server refused, or failed
 70  an error of metlmon itself, no memory, or no room for the output
130  ended from the keyboard; 128 and a signal's number: ended by that signal

Settings are read from metlmon.toml in the dagdir, then from
metlmon/metlmon.toml in the user's configuration directory. NO_COLOR is
respected. Watching never writes to a dagdir.
"""


MESSAGE_LENGTH: Final = 1000
"""Maximum characters of an error message: an argument may be a megabyte."""


class HelpFormatter(argparse.HelpFormatter):
    """Breaks lines only between words: names of commands and acts contain hyphens."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        from textwrap import wrap

        return wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + each for each in self._split_lines(text, width - len(indent)))


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors are one sentence, the likely intention, and a line of usage.

    Arguments are printed sanitised: a file name can contain escape sequences.
    """

    def error(self, message: str) -> NoReturn:
        """Print the error and end with :attr:`Exit.USAGE`."""
        from metlmon.cli.command_line import explain_choice
        from metlmon.redact import redact_secrets
        from metlmon.text.formatting import plain

        text = plain(redact_secrets(explain_choice(message[: 16 * MESSAGE_LENGTH])), MESSAGE_LENGTH)
        usage = " ".join([self.prog, *self._positionals_usage()])
        self.exit(Exit.USAGE, f"{self.prog}: {text}\nusage: {usage}  (all: {self.prog} --help)\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write a text; argparse's own method ignores errors of writing."""
        if file is sys.stdout:
            print(message, end="")
        else:
            super()._print_message(message, file)

    def _positionals_usage(self) -> Iterator[str]:
        """``[OPTIONS] ACTION [DIR]``: argparse's own usage lists all options, on twenty lines."""
        yield "[OPTIONS]"
        for action in self._get_positional_actions():
            name = str(action.metavar or action.dest)
            optional = action.nargs in ("?", "*")
            yield f"[{name}]" if optional else name


def parser(command: str | None = None, whole: bool = False) -> argparse.ArgumentParser:
    """The parser of all commands, or only of ``command`` if that exists.

    Building the parsers of the others takes longer than ``--help``. ``whole``: of all commands,
    including the options that make a request.
    """
    description = DESCRIPTION
    if command not in COMMANDS:
        description += f"\n\n{_command_list()}"
    top: argparse.ArgumentParser = CommandParser(
        prog="metlmon",
        usage="metlmon [-h] [--version] COMMAND ...",
        description=description,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.set_defaults(**ABSENT)
    top.add_argument("--version", action="store_true", help="print the version and exit")
    # Without a name argparse would print a usage line for itself, which needs slow imports.
    subparsers = top.add_subparsers(
        dest="command", metavar="COMMAND", prog=top.prog, help=argparse.SUPPRESS
    )
    shown = {command: COMMANDS[command]} if command and command in COMMANDS else COMMANDS
    for name, declared in shown.items():
        subparser = subparsers.add_parser(
            name,
            help=declared.help,
            description=declared.description or f"{declared.help[:1].upper()}{declared.help[1:]}.",
            epilog=declared.epilog,
            formatter_class=HelpFormatter,
        )
        is_whole = whole or name == command
        groups: dict[tuple[str, ...], argparse._ActionsContainer] = {(): subparser}
        for argument in declared.all_arguments() if is_whole else declared.arguments:
            if (targets := argument.targets) not in groups:
                groups[targets] = subparser.add_argument_group(f"with --to {', '.join(targets)}")
            groups[targets].add_argument(argument.name, **argument.settings)
        subparser.set_defaults(report_error=subparser.error)
    return top


def _command_list() -> str:
    """All commands, grouped by purpose, each with its line of help."""
    from shutil import get_terminal_size
    from textwrap import fill

    cells = min(100, get_terminal_size().columns - 2)
    margin = 2 + max(map(len, COMMANDS)) + 2
    lines = []
    for title, commands in GROUPS.items():
        lines += ["", f"{title}:"]
        for name, command in commands.items():
            text = fill(command.help, max(20, cells - margin)).splitlines()
            lines += [f"  {name:<{margin - 2}}{text[0]}", *(" " * margin + t for t in text[1:])]
    return "\n".join(lines[1:])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_closed_descriptors()
    try:
        status = _parse_and_run(arguments)
    except SystemExit as ended:
        # From argparse: --help, or arguments that cannot be used.
        ended.code = _flush_output(int(ended.code or Exit.OK))
        raise
    except KeyboardInterrupt:
        status = Exit.INTERRUPTED
    except BrokenPipeError:
        status = Exit.OK
    except Exception as error:
        status = _report_crash(error)
    return _flush_output(status)


def _flush_output(status: int) -> int:
    """Flush standard output and standard error; return the exit status.

    The interpreter would flush them at its end, outside of every handler, and exit with 120. A
    reader that has gone has seen enough.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            # The rest of the buffer must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if status == Exit.OK and not isinstance(error, BrokenPipeError):
                status = _report_crash(error)
    return status


def _open_closed_descriptors() -> None:
    """Open closed standard descriptors (``>&-``) on /dev/null.

    Otherwise the first file that is opened would take their place.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115


def _report_crash(error: Exception) -> int:
    """Report an unexpected error, sanitised: it may quote what a job wrote."""
    from metlmon.errors import TRACEBACK, describe_error, format_traceback

    lines = [f"metlmon: {describe_error('ended by an error', error)}"]
    if isinstance(error, OSError) and error.filename is None and error.strerror:
        lines = [f"metlmon: the output could not be written: {error.strerror}"]
    if os.environ.get(TRACEBACK):
        lines += format_traceback(error)
    with suppress(OSError, ValueError):
        print(*lines, sep="\n", file=sys.stderr)
    return Exit.BROKEN


def _parse_and_run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        return _print_version()
    alone = False
    if not arguments:
        from metlmon.cli.output import is_terminal

        alone = is_terminal()
    first = arguments[0].partition("=")[0] if arguments else ""
    names = {argument.name for argument in COMMANDS["watch"].arguments}
    if alone or (first.startswith("-") and first in names):
        arguments = ["watch", *arguments]
    set_thresholds()
    if arguments and arguments[0] not in COMMANDS and not arguments[0].startswith("-"):
        from metlmon.cli.command_line import did_you_mean, is_path

        if not is_path(word := arguments[0]):
            hint = did_you_mean(word, COMMANDS)
            parser().error(f"{word!r} is not a command, file or directory{hint}")
        arguments = ["watch", *arguments]
    top = parser(arguments[0] if arguments else None)
    options, rest = top.parse_known_args(arguments)
    if rest and not _takes_words(options, rest):
        from metlmon.cli.command_line import unknown_arguments

        report_error = getattr(options, "report_error", top.error)
        report_error(unknown_arguments(rest, options.command))
    if options.version:
        return _print_version()
    options.alone = alone
    return _run_command(options)


def _takes_words(options: argparse.Namespace, words: list[str]) -> bool:
    """Take the words after an option, which argparse leaves; False if the command takes none."""
    several = options.dirs if options.targets is None else options.targets
    if options.command is None or any(word.startswith("-") for word in words):
        return False
    if several is not None:
        several += words
    elif options.command == "new" and not options.dir and len(words) == 1:
        options.dir = words[0]
    elif LOGS in COMMANDS[options.command].arguments and os.path.exists(options.dir):
        # Several logs, since the shell expands *.log.
        options.more = words
    else:
        return False
    return True


def _print_version() -> int:
    from metlmon import __version__

    print(f"metlmon {__version__}")
    return Exit.OK


def _run_command(options: argparse.Namespace) -> int:
    from metlmon.errors import InputError, unusable_path
    from metlmon.remote.paths import NoAnswer

    name = options.command
    if name is None:
        parser().print_help()
        return Exit.OK
    from metlmon.cli.output import print_message, standard_output

    try:
        if _may_be_elsewhere(options):
            from metlmon.cli.command_line import connect

            connect(options)
        with gc_paused():
            # "continue" is a keyword of Python, so its function is "continue_".
            run = getattr(load_module(name), f"{name}_" if iskeyword(name) else name)
        with standard_output(ascii=bool(options.ascii)):
            return int(run(options))
    except (InputError, NoAnswer, OSError) as error:
        refused = unusable_path(error) if isinstance(error, OSError) else error
        if refused is None:
            raise
        print_message(str(refused))
        return Exit.USAGE


def _may_be_elsewhere(options: argparse.Namespace) -> bool:
    """Whether any word for a directory may be ``HOST:DIR``."""
    given = (options.dir, options.dirs, options.run, options.runs)
    words = [each for each in given if isinstance(each, str | list)]
    return ":" in "\0".join(each if isinstance(each, str) else "\0".join(each) for each in words)


if __name__ == "__main__":
    sys.exit(main())
