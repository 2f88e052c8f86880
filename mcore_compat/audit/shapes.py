"""Names and orders of arguments as programs of the eras write them: what ``audit`` reads and ``legacy`` serves."""

from __future__ import annotations

# Sizes of initialize_model_parallel, and what mcore_compat.init_parallel calls them.
SIZES = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "virtual_pipeline_model_parallel_size": "vpp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
    "expert_tensor_parallel_size": "expert_tp",
}
# Flat flags of DistributedDataParallel before 0.7, and what mcore_compat.DataParallelSettings calls them.
FLAGS = {
    "accumulate_allreduce_grads_in_fp32": "grad_reduce_in_fp32",
    "overlap_grad_reduce": "overlap_grad_reduce",
    "use_distributed_optimizer": "use_distributed_optimizer",
    "disable_bucketing": "disable_bucketing",
    "bucket_size": "bucket_size",
    "check_for_nan_in_grad": "check_for_nan_in_grad",
}
# The first three of them came without defaults, after these arguments.
REQUIRED_FLAGS = tuple(FLAGS)[:3]
FLAT_PLACES = ("config", "module", "data_parallel_group", *REQUIRED_FLAGS)
# Groups that the wrapper took before 0.8.
GROUPS = ("data_parallel_group", "expert_data_parallel_group")
