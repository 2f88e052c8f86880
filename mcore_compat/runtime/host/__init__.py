"""The host device: the CPU answers torch's CUDA entry points, where no CUDA exists or the CPU was asked for.

One table of patches per topic. Factories are wrapped one by one, not through a ``TorchFunctionMode``, which
would cost time on every torch call.
"""

from __future__ import annotations

from mcore_compat.runtime.patches import Patch

from . import collectives, cuda, placement, types


def patches(*, visible: bool = False) -> list[Patch]:
    """Every patch of the host device.

    Args:
        visible: What ``torch.cuda.is_available()`` says.
    """
    return [*cuda.patches(visible=visible), *placement.patches(), *types.patches(), *collectives.patches()]
