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


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """A completion script for ``shell``: bash, zsh or fish."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](parser)


def _bash(parser: argparse.ArgumentParser) -> str:
    names = " ".join(name for name, _ in _commands(parser))
    cases = "\n".join(
        f'    {name}) flags="{" ".join(_flags(sub))}" ;;'
        for name, sub in _commands(parser)
        if name != "completion"
    )
    return f"""\
# metlmon completion for bash: eval "$(metlmon completion bash)"
_metlmon() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" flags=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=( $(compgen -W "{names} --help --version" -- "$word") )
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
    completion) flags="bash zsh fish" ;;
  esac
  if [[ "$word" == -* ]] || [ "${{COMP_WORDS[1]}}" = completion ]; then
    COMPREPLY=( $(compgen -W "$flags" -- "$word") )
  else
    COMPREPLY=( $(compgen -d -- "$word") )
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
    return "\n".join(lines) + "\n"
