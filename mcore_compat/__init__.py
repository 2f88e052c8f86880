"""One stable API over every Megatron-Core release.

The public names are exactly those of the ``TYPE_CHECKING`` block below, which type checkers read; at run time
each is imported when first asked for, so that ``import mcore_compat`` loads neither torch nor megatron.
"""

__version__ = "0.1.0"

# Type checkers take this name for typing's own; importing typing would cost more than all the rest here.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from mcore_compat._explain import Explanation as Explanation
    from mcore_compat._explain import explain as explain
    from mcore_compat.buffers.offload import offload as offload
    from mcore_compat.buffers.offload import reload as reload
    from mcore_compat.buffers.plan import plan_buffers as plan_buffers
    from mcore_compat.buffers.view import memory_buffers as memory_buffers
    from mcore_compat.checkpoint.read import load_checkpoint as load_checkpoint
    from mcore_compat.checkpoint.train_state import Restored as Restored
    from mcore_compat.checkpoint.train_state import TrainState as TrainState
    from mcore_compat.checkpoint.write import save_checkpoint as save_checkpoint
    from mcore_compat.checks import UpdateGuard as UpdateGuard
    from mcore_compat.checks import reference_parity as reference_parity
    from mcore_compat.contracts import Choice as Choice
    from mcore_compat.contracts import DataParallelSettings as DataParallelSettings
    from mcore_compat.contracts import EvaluatedModel as EvaluatedModel
    from mcore_compat.contracts import Group as Group
    from mcore_compat.contracts import Groups as Groups
    from mcore_compat.contracts import LoadReport as LoadReport
    from mcore_compat.contracts import LossTerm as LossTerm
    from mcore_compat.contracts import OptimizerSettings as OptimizerSettings
    from mcore_compat.contracts import ParallelLayout as ParallelLayout
    from mcore_compat.contracts import RolloutEngine as RolloutEngine
    from mcore_compat.contracts import Sampling as Sampling
    from mcore_compat.contracts import StepResult as StepResult
    from mcore_compat.contracts import TrainableModel as TrainableModel
    from mcore_compat.contracts import TrainingBackend as TrainingBackend
    from mcore_compat.contracts import UpdateResult as UpdateResult
    from mcore_compat.contracts import VocabShard as VocabShard
    from mcore_compat.errors import AmbiguousMegatron as AmbiguousMegatron
    from mcore_compat.errors import CheckpointError as CheckpointError
    from mcore_compat.errors import ConfigError as ConfigError
    from mcore_compat.errors import DataError as DataError
    from mcore_compat.errors import EnvironmentMismatch as EnvironmentMismatch
    from mcore_compat.errors import FeatureUnavailable as FeatureUnavailable
    from mcore_compat.errors import FrozenUpdate as FrozenUpdate
    from mcore_compat.errors import McoreCompatError as McoreCompatError
    from mcore_compat.errors import MegatronNotFound as MegatronNotFound
    from mcore_compat.errors import NumericalError as NumericalError
    from mcore_compat.errors import PatchError as PatchError
    from mcore_compat.errors import PeerLost as PeerLost
    from mcore_compat.errors import ReferenceMismatch as ReferenceMismatch
    from mcore_compat.errors import RuntimeDrift as RuntimeDrift
    from mcore_compat.errors import StaleParameter as StaleParameter
    from mcore_compat.errors import UnsupportedMegatron as UnsupportedMegatron
    from mcore_compat.errors import WeightsError as WeightsError
    from mcore_compat.runtime import prepare as prepare
    from mcore_compat.runtime import restore as restore
    from mcore_compat.seams.config import get_model_config as get_model_config
    from mcore_compat.seams.config import transformer_config as transformer_config
    from mcore_compat.seams.data_parallel import wrap_data_parallel as wrap_data_parallel
    from mcore_compat.seams.data_parallel import zero_grad as zero_grad
    from mcore_compat.seams.model import build_model as build_model
    from mcore_compat.seams.model import gpt_model as gpt_model
    from mcore_compat.seams.model import unwrap as unwrap
    from mcore_compat.seams.optimizer import build_optimizer as build_optimizer
    from mcore_compat.seams.parallel import groups as groups
    from mcore_compat.seams.parallel import init_parallel as init_parallel
    from mcore_compat.seams.parallel import reset as reset
    from mcore_compat.seams.rng import seed as seed
    from mcore_compat.seams.schedule import forward_backward as forward_backward
    from mcore_compat.weights import iter_weights as iter_weights
    from mcore_compat.weights import load_hf as load_hf
    from mcore_compat.weights import save_hf as save_hf
    from mcore_compat.weights import sync as sync
else:
    _homes: dict[str, str] = {}

    def _public() -> dict[str, str]:
        """Name to the module it lives in, read from the block above."""
        if not _homes:
            import ast

            body = ast.parse(__spec__.loader.get_source(__name__)).body
            block = next(node for node in body if isinstance(node, ast.If))
            for node in block.body:
                _homes.update({alias.name: node.module for alias in node.names})
        return _homes

    def __getattr__(name: str) -> object:
        if name == "__all__":
            return sorted(_public())
        if name.startswith("_") or name not in _public():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(_public()[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_public()})
