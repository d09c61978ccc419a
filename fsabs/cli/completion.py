"""`fsabs completion`: the script by which a shell completes commands, options and paths, also remote ones."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .program import Invocation, common, program


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common
def command(invocation: Invocation, shell: str) -> None:
    """Write the script that teaches a shell to complete fsabs; let it read the script when it starts.

    \b
    Example: fsabs completion bash > ~/.local/share/bash-completion/completions/fsabs
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.ClickException(f"click has no completion for {shell}")
    click.echo(kind(program, {}, "fsabs", "_FSABS_COMPLETE").source())
