"""Megatron's flat parameter buffers: where everything lies, views of it, and moving it.

==============  ==================================================================
``plan.py``     the layout that a release builds, computed (no torch, no Megatron)
``view.py``     zero-copy views of what Megatron holds
``stream.py``   whole buckets to every rank of a model
``offload.py``  storage of models and optimizers to the CPU's memory and back
==============  ==================================================================
"""
