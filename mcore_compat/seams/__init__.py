"""One module per axis on which Megatron releases differ; the only part that imports megatron."""
