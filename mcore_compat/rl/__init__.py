"""Proximal policy optimisation on any engine that satisfies :class:`mcore_compat.contracts.TrainingBackend`.

One convention holds in every module. Tensors are [R, T], and the entry at position t is about the *prediction
made at t*, that is, about token t + 1: ``targets[:, t] == tokens[:, t + 1]``, ``logprobs[:, t]`` is the
log-probability of that target, ``values[:, t]`` the critic's estimate before it is drawn, and
``response_mask[:, t]`` says whether it belongs to the response. Losses are thereby pointwise in t, and the
last column is never part of anything.

Read ``update`` first; ``experience`` builds what it learns from; ``trainer`` is the loop around both.
"""
