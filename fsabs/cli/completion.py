"""`fsabs completion`: the script by which a shell completes commands, options and paths, also remote ones.

The script runs `fsabs completion SHELL` with the words of a command line, and gets the last one's completions, a line
each. Where there are none, the shell completes local files.
"""

from __future__ import annotations

import contextlib
import itertools
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator

from ..core import keys
from .paths import Paths
from .program import PROGRAM, Command, Group, Invocation, argument, command

_MOST = 1000  # members of a directory

# The words of COMP_WORDS end at colons, and the current one is replaced from its last colon on: bash gives the line.
_BASH = r"""
_fsabs_complete() {
    local line word before value
    line=${COMP_LINE:0:COMP_POINT}
    word=${line##*[[:space:]]}
    before=${word%%"$2"}
    [[ $line == *[[:space:]] ]] && line+="''"
    while IFS= read -r value; do
        COMPREPLY+=("${value#"$before"}")
        [[ $value == */ ]] && compopt -o nospace
    done < <("$1" completion bash -- "$line" 2>/dev/null)
    [[ ${#COMPREPLY[@]} == 0 && $word != *://* ]] && compopt -o default
    return 0
}
complete -o nosort -F _fsabs_complete fsabs
"""
_ZSH = r"""#compdef fsabs
_fsabs() {
    local -a values
    values=("${(@f)$(fsabs completion zsh -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    values=(${values:#})
    if (( ! ${#values} )); then
        [[ ${words[CURRENT]} == *://* ]] || _files
    else
        compadd -U -V unsorted -S '' -- ${(M)values:#*/}
        compadd -U -V unsorted -- ${values:#*/}
    fi
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _fsabs "$@"
else
    compdef _fsabs fsabs
fi
"""
_FISH = r"""
function _fsabs_complete
    set -l word (commandline --current-token)
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    set -l values (fsabs completion fish -- $words[2..] "$word" 2>/dev/null)
    if test (count $values) -gt 0
        printf '%s\n' $values
    else if not string match --quiet '*://*' -- "$word"
        __fish_complete_path "$word"
    end
end
complete --no-files --keep-order --command fsabs --arguments '(_fsabs_complete)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


@command(
    argument("shell", choices=list(_SCRIPTS), metavar="SHELL", help="bash, zsh or fish."),
    argument("words", nargs="*", metavar="WORD", help="Of a line, whose last one's completions the script asks for."),
)
def completion(invocation: Invocation, given: Namespace) -> None:
    """Write the script that teaches a shell to complete fsabs; let it read the script when it starts.

    Example: fsabs completion bash > ~/.local/share/bash-completion/completions/fsabs
    """
    if not given.words:
        sys.stdout.write(_SCRIPTS[given.shell])
        return
    words = _words(given.words[0])[1:] if given.shell == "bash" else given.words
    for found in _completions(words or [""]):
        invocation.output.line(found)


def _words(line: str) -> list[str]:
    """Return the words of a line of a shell, of which the last quotation may be open."""
    for end in ("", "'", '"', "\\"):
        with contextlib.suppress(ValueError):
            return shlex.split(line + end)
    return []


def _completions(words: list[str]) -> Iterator[str]:
    """Yield what the last of the words that follow the program's name may become."""
    *before, word = words
    found: Command | Group | None = PROGRAM
    while isinstance(found, Group):
        at = next((at for at, one in enumerate(before) if not one.startswith("-")), None)
        if at is None:
            break
        found, before = found.find(before[at]), before[at + 1 :]
    if found is None:
        return
    parser = found.parser("fsabs")
    options = {name: action for action in parser.arguments for name in action.option_strings}
    valued = {name for name, action in options.items() if action.nargs is None}
    name, given, value = word.partition("=")
    if before and before[-1] in valued:
        yield from _starting(word, options[before[-1]].choices or ())
    elif given and name in valued:
        yield from (f"{name}={choice}" for choice in _starting(value, options[name].choices or ()))
    elif word.startswith("-"):
        yield from _starting(word, options)
    elif isinstance(found, Group):
        yield from _starting(word, sorted(found.commands))
    elif "://" in word:
        yield from _members(word)
    else:
        places = [action for action in parser.arguments if not action.option_strings]
        at = sum(not one.startswith("-") and last not in valued for last, one in itertools.pairwise(["", *before]))
        yield from _starting(word, places[min(at, len(places) - 1)].choices or () if places else ())


def _starting(word: str, choices: Iterable[str]) -> Iterator[str]:
    return (choice for choice in choices if choice.startswith(word))


def _members(word: str) -> Iterator[str]:
    """Yield the members of the directory that an unfinished URL leads to."""
    folder = word[: word.rfind("/") + 1]
    with contextlib.suppress(Exception), Paths() as paths:
        found = paths.resolve(folder)
        names = (folder + keys.to_url_path(name) for name in found.fs.list(found.path))
        yield from itertools.islice(_starting(word, names), _MOST)
