"""Keywords that came or went, from the tables by which the seams pass or refuse them."""

from __future__ import annotations

from mcore_compat.audit.table import Row
from mcore_compat.audit.uses import Keyword
from mcore_compat.seams.config.fields import FIRST_RELEASE as FIELDS
from mcore_compat.seams.config.fields import REMOVED, RENAMED
from mcore_compat.seams.keywords import FIRST_RELEASE

_STABLE = {
    "initialize_model_parallel": "mcore_compat.init_parallel(..., {}=...)",
    "DistributedDataParallelConfig": "mcore_compat.DataParallelSettings({}=...)",
    "OptimizerConfig": "mcore_compat.DataParallelSettings({}=...)",
    "GPTModel": "mcore_compat.gpt_model(config, ..., {}=...)",
}
_GONE = {
    "TransformerConfig": (*REMOVED, *RENAMED.values()),
    "ModelParallelConfig": (
        "async_tensor_model_parallel_allreduce",
        "moe_extended_tp",
        "pipeline_model_parallel_split_rank",
    ),
}
_OLDEST = "0.4.0"
# The older names of renamed fields, where they are not as old as the table.
_FIRST = {"first_pipeline_num_layers": "0.9.0", "last_pipeline_num_layers": "0.9.0"}
_FIELD = "mcore_compat.transformer_config({}=...)"


def _since(function: str, name: str, first: str) -> Row:
    return Row(
        Keyword(function, frozenset({name})),
        first,
        "",
        f"{first} brought {name}",
        _STABLE[function].format(name) + " passes it where it is taken and says so where not",
    )


def _removed(config: str, name: str) -> Row:
    newer = {old: new for new, old in RENAMED.items()}.get(name)
    last = REMOVED.get(name) or _before(FIELDS[newer or name])
    return Row(
        Keyword(config, frozenset({name})),
        _FIRST.get(name) or FIELDS.get(name, _OLDEST),
        last,
        f"renamed to {newer}" if newer else f"no release after {last} has it",
        _FIELD.format(newer or name) + (" on every release" if newer else " or leave it out"),
        "config",
    )


def _before(release: str) -> str:
    """The newest release of the minor before."""
    return {"0.5.0": "0.4.0", "0.11.0": "0.10.0"}[release]


ROWS = (
    *(_since(function, name, first) for function in _STABLE for name, first in FIRST_RELEASE[function].items()),
    *(_removed(config, name) for config, names in _GONE.items() for name in names),
    *(
        Row(
            Keyword("TransformerConfig", frozenset({name})),
            first,
            REMOVED.get(name, ""),
            f"{first} brought {name}",
            _FIELD.format(name) + " says so where a release has no such field",
        )
        for name, first in FIELDS.items()
        if first != _OLDEST and name not in REMOVED
    ),
)
