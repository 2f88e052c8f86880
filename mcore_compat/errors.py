"""Every error of mcore_compat, and the exit code the command line gives it.

McoreCompatError
├── MegatronNotFound          no Megatron on the path that was searched                    exit 4
├── UnsupportedMegatron       a Megatron whose call shapes match no variant                exit 4
│   └── AmbiguousMegatron     ... or match more than one                                   exit 4
├── FeatureUnavailable        the caller asked for something this release cannot do        exit 3
├── EnvironmentMismatch       a needed package is absent, too old, too new or too early    exit 4
├── RuntimeDrift              the source says one signature, the imported object another   exit 4
├── StaleParameter            a parameter no longer aliases the optimizer's buffer         exit 3
├── FrozenUpdate              gradients were non-zero and nothing changed                  exit 3
├── ReferenceMismatch         actor and reference differ before the first update           exit 3
├── NumericalError            a loss, gradient or KL term is not finite                    exit 3
├── WeightsError              a Hugging Face folder that cannot be read into the model     exit 3
├── DataError                 a prompt file, tokenizer or reward function is unusable      exit 3
├── PeerLost                  another rank failed or died                                  exit 3
├── PatchError                a patch does not fit                                         exit 3
├── ConfigError               a setting is unknown, missing or contradictory               exit 2
└── CheckpointError           a checkpoint is damaged or does not fit                      exit 3
"""

from __future__ import annotations


class McoreCompatError(Exception):
    """Base of every error this package raises on purpose.

    Args:
        message: What was found and what was expected.
        hint: The next thing to do, usually a command.
    """

    exit_code = 3

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n  next: {self.hint}" if self.hint else message

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[McoreCompatError], args: tuple[str], state: dict[str, object]) -> McoreCompatError:
    error = kind(*args)
    error.__dict__.update(state)
    return error


class MegatronNotFound(McoreCompatError):
    """No Megatron-Core where one was looked for."""

    exit_code = 4


class UnsupportedMegatron(McoreCompatError):
    """The Megatron that is there matches no known call shape of some seam."""

    exit_code = 4


class AmbiguousMegatron(UnsupportedMegatron):
    """The Megatron that is there matches more than one call shape of a seam."""


class FeatureUnavailable(McoreCompatError):
    """The caller set something that this release has no means to honour."""


class EnvironmentMismatch(McoreCompatError):
    """A package that this release needs is absent or of a wrong version, or was imported too early."""

    exit_code = 4


class RuntimeDrift(McoreCompatError):
    """The imported object has another signature than its source promised."""

    exit_code = 4


class StaleParameter(McoreCompatError):
    """A parameter no longer aliases the buffer that the optimizer updates."""


class FrozenUpdate(McoreCompatError):
    """Gradients and learning rate were non-zero, and parameters did not change."""


class ReferenceMismatch(McoreCompatError):
    """Actor and reference give different log-probabilities before any update."""


class NumericalError(McoreCompatError):
    """A loss, a gradient norm or a KL term is infinite or not a number."""


class WeightsError(McoreCompatError):
    """A Hugging Face folder is missing, broken, of unknown architecture or of wrong shapes."""


class DataError(McoreCompatError):
    """A prompt file, a tokenizer or a reward function cannot be used."""


class PeerLost(McoreCompatError):
    """Another rank failed or died, so this one stops."""


class PatchError(McoreCompatError):
    """A patch does not fit the tree it was asked to change."""


class ConfigError(McoreCompatError):
    """A setting is unknown, missing, or contradicts another one."""

    exit_code = 2


class CheckpointError(McoreCompatError):
    """A checkpoint is missing, damaged, or belongs to something else."""
