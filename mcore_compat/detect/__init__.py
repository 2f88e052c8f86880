"""What Megatron is there, read from its files: imports neither torch nor megatron.

``find`` says where it is and what it claims to be; ``Facts`` answers questions about its source.
"""

from mcore_compat.detect._facts import Facts
from mcore_compat.detect._find import Megatron, UnverifiedRelease, find

__all__ = ["Facts", "Megatron", "UnverifiedRelease", "find"]
