"""``mcore-compat matrix drift``: what an upgrade changes in upstream's signatures."""

from __future__ import annotations

from dataclasses import asdict
from importlib.util import find_spec

import click

from mcore_compat.cli._output import print_json, print_table
from mcore_compat.errors import EnvironmentMismatch
from mcore_compat.matrix.overlay import overlay
from mcore_compat.seams._registry import seams

# Constructors and functions whose keywords ``seams.keywords`` passes where they are accepted.
_KEYWORDS = {
    "megatron.core.distributed:DistributedDataParallelConfig",
    "megatron.core.models.gpt:GPTModel",
    "megatron.core.models.gpt.gpt_layer_specs:get_gpt_layer_local_spec",
    "megatron.core.models.gpt.gpt_layer_specs:get_gpt_layer_with_transformer_engine_spec",
    "megatron.core.optimizer:OptimizerConfig",
    "megatron.core.parallel_state:initialize_model_parallel",
    "megatron.core.transformer.transformer_config:TransformerConfig",
}


@click.command()
@click.argument("old")
@click.argument("new")
@click.option("--all", "everything", is_flag=True, help="Also signatures that no seam looks at.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with all of them.")
def matrix_drift(old: str, new: str, everything: bool, as_json: bool) -> None:
    """List the signatures of Megatron-Core that changed from release OLD to NEW, and the seam that each concerns.

    Reads source only: needs neither torch nor a GPU.
    """
    if find_spec("griffe") is None:
        raise EnvironmentMismatch("griffe is not installed", hint="pip install 'mcore-compat[matrix]'")
    from mcore_compat.matrix.drift import Signatures, drift

    changes = drift(Signatures(overlay(old)), Signatures(overlay(new)), _places())
    if as_json:
        print_json({"old": old, "new": new, "changes": [asdict(change) for change in changes]})
        return
    shown = [change for change in changes if change.seams or everything]
    print_table(
        ["signature", "change", "seam"],
        [[change.place, ", ".join(change.changes), ", ".join(change.seams)] for change in shown],
    )
    hidden = len(changes) - len(shown)
    hint = f"; {hidden} that concern no seam are shown by --all" if hidden else ""
    click.echo(f"{len(changes)} signatures changed{hint}", err=True)


def _places() -> dict[str, set[str]]:
    """Seam to everything in upstream that its shapes look at."""
    found = {"keywords": _KEYWORDS}
    for seam in seams():
        spots = found.setdefault(seam.name, {seam.target} if seam.target else set())
        for variant in seam.variants:
            shape = variant.shape
            spots |= {shape.target} if shape.target else set()
            spots |= {*shape.defines, *shape.undefined}
            spots |= {place for place, _ in (*shape.contains, *shape.omits)}
    return found
