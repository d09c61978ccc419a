"""`fsabs completion`: the script by which a shell completes commands, options and paths, also remote ones."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, get_completion_class

from .program import Invocation, common, program

_BASH = r"""
%(complete_func)s() {
    local IFS=$'\n' line word before response completion type value
    # The words of COMP_WORDS end at colons, and the current one is replaced from its last colon on.
    line=${COMP_LINE:0:COMP_POINT}
    word=${line##*[[:space:]]}
    before=${word%%"$2"}
    [[ $line == *[[:space:]] ]] && line+="''"
    response=$(env COMP_WORDS="$line" COMP_CWORD=-1 %(complete_var)s=bash_complete "$1" 2>/dev/null)
    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"
        if [[ $type == dir ]]; then
            compopt -o dirnames
        elif [[ $type == file ]]; then
            compopt -o default
        else
            COMPREPLY+=("${value#"$before"}")
            [[ $value == */ ]] && compopt -o nospace
        fi
    done
    return 0
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class _BashComplete(BashComplete):
    """click's completion for bash, with words that have colons in them: URLs."""

    source_template = _BASH


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common
def command(invocation: Invocation, shell: str) -> None:
    """Write the script that teaches a shell to complete fsabs; let it read the script when it starts.

    \b
    Example: fsabs completion bash > ~/.local/share/bash-completion/completions/fsabs
    """
    kind = _BashComplete if shell == "bash" else get_completion_class(shell)
    if kind is None:
        raise click.ClickException(f"click has no completion for {shell}")
    click.echo(kind(program, {}, "fsabs", "_FSABS_COMPLETE").source())
