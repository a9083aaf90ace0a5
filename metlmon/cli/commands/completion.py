"""Shell completion, written from the parser itself so that it cannot fall behind."""

from __future__ import annotations

import argparse
from collections.abc import Iterator


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _flags(parser: argparse.ArgumentParser) -> list[str]:
    return [flag for action in parser._actions for flag in action.option_strings]


def _words(parser: argparse.ArgumentParser) -> list[str]:
    """What may stand there that is no option: ``show``, ``path``, ``validate``."""
    return [
        str(choice)
        for action in parser._actions
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction)
        for choice in action.choices or ()
    ]


def _takes_files(parser: argparse.ArgumentParser) -> str:
    """What bash completes for an argument that is not one of a few words: directories, or any
    file, where one is asked for; nothing without such an argument."""
    named = [a.metavar for a in parser._actions if not a.option_strings and not a.choices]
    return "-f" if "FILE" in named else "-d" if named else ""


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """A completion script for ``shell``: bash, zsh or fish."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](parser)


def _bash(parser: argparse.ArgumentParser) -> str:
    names = " ".join(name for name, _ in _commands(parser))
    cases = "\n".join(
        f'    {name}) flags="{" ".join(_flags(sub))}" words="{" ".join(_words(sub))}"'
        f" files={_takes_files(sub)} ;;"
        for name, sub in _commands(parser)
    )
    return f"""\
# metlmon completion for bash: eval "$(metlmon completion bash)"
_metlmon() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" flags="" words="" files=-d
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=( $(compgen -W "{names} --help --version" -- "$word") )
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  if [[ "$word" == -* ]]; then
    COMPREPLY=( $(compgen -W "$flags" -- "$word") )
  else
    COMPREPLY=( $(compgen -W "$words" $files -- "$word") )
  fi
}}
complete -o filenames -F _metlmon metlmon
"""


def _zsh(parser: argparse.ArgumentParser) -> str:
    return f"""\
# metlmon completion for zsh: eval "$(metlmon completion zsh)"
autoload -U +X bashcompinit && bashcompinit
{_bash(parser)}"""


def _fish(parser: argparse.ArgumentParser) -> str:
    lines = ["# metlmon completion for fish: metlmon completion fish | source"]
    names = " ".join(name for name, _ in _commands(parser))
    lines.append(f"complete -c metlmon -n __fish_use_subcommand -f -a '{names}'")
    for name, sub in _commands(parser):
        lines += [
            f"complete -c metlmon -n '__fish_seen_subcommand_from {name}' "
            f"-l {flag.removeprefix('--')}"
            for flag in _flags(sub)
            if flag.startswith("--")
        ]
        if _words(sub):
            lines.append(
                f"complete -c metlmon -n '__fish_seen_subcommand_from {name}' "
                f"-a '{' '.join(_words(sub))}'"
            )
    return "\n".join(lines) + "\n"
