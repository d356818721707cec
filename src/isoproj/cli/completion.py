"""Scripts for shells that complete verbs and options, made from the parser."""

from __future__ import annotations

import argparse


def script(verbs: dict[str, argparse.ArgumentParser], shell: str) -> str:
    """Return the completion script for bash, zsh or fish, from the parsers of verbs."""
    if shell == "fish":
        return _fish(verbs)
    begin = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return _bash(verbs, shell, begin)


def _options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the options of a parser."""
    return [action for action in parser._actions if action.option_strings]


def _words(parser: argparse.ArgumentParser) -> str:
    """Return all names of options, separated by spaces."""
    return " ".join(o for action in _options(parser) for o in action.option_strings)


def _bash(verbs: dict[str, argparse.ArgumentParser], shell: str, begin: str) -> str:
    """Return the script for bash; zsh runs the same script after one more line."""
    cases = []
    for name, verb in verbs.items():
        for action in _options(verb):
            if action.choices:
                marks = "|".join(f"{name}:{o}" for o in action.option_strings)
                words = " ".join(str(c) for c in action.choices)
                cases.append(f'    {marks}) words="{words}" ;;')
    cases += [f'    {name}:*) words="{_words(v)}" ;;' for name, v in verbs.items()]
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


def _fish(verbs: dict[str, argparse.ArgumentParser]) -> str:
    """Return the script for fish."""
    lines = ["# isoproj --completion fish | source"]
    lines += [
        f"complete -c isoproj -n __fish_use_subcommand -f -a {name}" for name in verbs
    ]
    for name, verb in verbs.items():
        for action in _options(verb):
            marks = "".join(
                f" -l {o[2:]}" if o.startswith("--") else f" -s {o[1:]}"
                for o in action.option_strings
            )
            choices = " ".join(str(c) for c in action.choices or ())
            values = f" -x -a '{choices}'" if choices else ""
            lines.append(
                f"complete -c isoproj -n '__fish_seen_subcommand_from {name}'"
                f"{marks}{values}"
            )
    return "\n".join(lines) + "\n"
