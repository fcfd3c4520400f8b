"""`twostroke alias`: a user's own names for models."""

from __future__ import annotations

import click

from twostroke.cli.shared.command import ExampleCommand, clear_errors, output_flags, print_json
from twostroke.types.errors import ConfigError, ModelNotFound
from twostroke.types.reading.user_path import is_there, user_path


@click.command(cls=ExampleCommand, example="twostroke alias mine llama3.2:1b")
@click.argument("name", required=False)
@click.argument("model", required=False)
@click.option("--rm", "removed", is_flag=True, help="Forget NAME; the model stays.")
@output_flags
def command(name: str | None, model: str | None, removed: bool, as_json: bool, verbose: bool) -> None:
    """Let NAME mean MODEL wherever a model is named; show what NAME means, or all aliases."""
    with clear_errors(verbose):
        from twostroke.assembly.settings.names import alias_file
        from twostroke.weights.store.aliases import meaning_of, read_aliases, remove_alias, set_alias

        file = alias_file()
        if removed:
            if name is None or model is not None:
                raise ConfigError("What is to be forgotten is not clear.", fix="Write: twostroke alias --rm NAME")
            if remove_alias(file, name) is None:
                raise _unknown(name)
        elif name is not None and model is not None:
            _check(name)
            before = set_alias(file, name, _full(model))
            if before is not None and not as_json:
                click.echo(f"{name} meant {before} before.")
        elif name is not None and meaning_of(name, read_aliases(file)) is None:
            raise _unknown(name)
        found = read_aliases(file)
        shown = found if name is None or removed else {name: meaning_of(name, found)}
        if as_json:
            print_json({"file": str(file), "aliases": shown})
        elif not removed:
            click.echo("\n".join(f"{alias} = {meant}" for alias, meant in shown.items()) or "There are no aliases.")


def _check(name: str) -> None:
    """Raises ConfigError where a new alias has the name of a model of this package, such as spark."""
    from twostroke.assembly.folders import SHIPPED

    if name.lower() in SHIPPED:
        raise ConfigError(f"{name} cannot be an alias.", why="It is a model of this package.", fix="Take another name.")


def _full(model: str) -> str:
    """Returns what is kept for a model: an absolute path, or the meaning of an alias instead of its name. So an alias
    means the same from every folder, and no two aliases can mean each other. Raises ModelNotFound."""
    from twostroke.assembly.folders import SHIPPED
    from twostroke.assembly.settings.names import meant
    from twostroke.weights.hub.reference import reference_of

    name = meant(model)
    if is_there(name):
        return str(user_path(name).absolute())
    if name in SHIPPED or reference_of(name) is not None:
        return name
    raise ModelNotFound(
        f"{model} is no model.",
        why="It is no path that exists, no id of the hub, no short name and no alias.",
        fix="Check the spelling; ids of the hub read publisher/model.",
    )


def _unknown(name: str) -> ConfigError:
    return ConfigError(f"There is no alias {name}.", fix="See `twostroke alias`.")
