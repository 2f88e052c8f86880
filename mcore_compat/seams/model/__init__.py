"""Models: build the chunks of this rank, put the right head on the last stage, and see through wrappers."""

from mcore_compat.seams.model.build import build_model, unwrap
from mcore_compat.seams.model.gpt import gpt_model

__all__ = ["build_model", "gpt_model", "unwrap"]
