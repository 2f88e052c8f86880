"""A mixed-precision optimizer over the gradient buffers of Megatron-Core 0.4 and 0.5."""
