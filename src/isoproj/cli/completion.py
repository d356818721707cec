"""Scripts for shells that complete verbs and options, made from the parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TypeAlias

# Of every option its verb, its names, and the words that its value may be.
_Options: TypeAlias = list[tuple[str, Sequence[str], str]]


def script(verbs: dict[str, argparse.ArgumentParser], shell: str) -> str:
    """Return the completion script for bash, zsh or fish, from the parsers of verbs."""
    options = [
        (name, action.option_strings, " ".join(map(str, action.choices or ())))
        for name, verb in verbs.items()
        for action in verb._actions
        if action.option_strings
    ]
    return _fish(verbs, options) if shell == "fish" else _bash(verbs, options, shell)


def _bash(verbs: Iterable[str], options: _Options, shell: str) -> str:
    """Return the script for bash; zsh runs the same script after one more line."""
    begin = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    cases = [
        f'    {"|".join(f"{verb}:{name}" for name in names)}) words="{choices}" ;;'
        for verb, names, choices in options
        if choices
    ]
    for verb in verbs:
        words = " ".join(n for its, names, _ in options if its == verb for n in names)
        cases.append(f'    {verb}:*) words="{words}" ;;')
    body = "\n".join(cases)
    return f"""\
# eval "$(isoproj --completion {shell})"
{begin}_isoproj() {{
  local here="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=( $(compgen -W "{" ".join(verbs)} --help --version" -- "$here") )
    return
  fi
  case "${{COMP_WORDS[1]}}:$before" in
{body}
  esac
  case "$here:$words" in
    -*) COMPREPLY=( $(compgen -W "$words" -- "$here") ) ;;
    *:-*|*:) COMPREPLY=( $(compgen -f -- "$here") ) ;;
    *) COMPREPLY=( $(compgen -W "$words" -- "$here") ) ;;
  esac
}}
complete -o filenames -F _isoproj isoproj
"""


def _fish(verbs: Iterable[str], options: _Options) -> str:
    """Return the script for fish."""
    lines = ["# isoproj --completion fish | source"]
    lines += [f"complete -c isoproj -n __fish_use_subcommand -f -a {v}" for v in verbs]
    for verb, names, choices in options:
        marks = [f"-l {n[2:]}" if n[:2] == "--" else f"-s {n[1:]}" for n in names]
        values = f" -x -a '{choices}'" if choices else ""
        lines.append(
            f"complete -c isoproj -n '__fish_seen_subcommand_from {verb}' "
            f"{' '.join(marks)}{values}"
        )
    return "\n".join(lines) + "\n"
