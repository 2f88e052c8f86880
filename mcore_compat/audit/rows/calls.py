"""Calls that changed their shape or their meaning."""

from __future__ import annotations

from mcore_compat.audit.shapes import GROUPS, REQUIRED_FLAGS
from mcore_compat.audit.table import Row
from mcore_compat.audit.uses import Attribute, Call, Keyword, Method, Positional, Rebinding

_WRAP = "mcore_compat.wrap_data_parallel([module], config, DataParallelSettings(...))[0]"
_DDP = "DistributedDataParallel"
_GROUPS = frozenset(GROUPS)
_FLAT = frozenset(REQUIRED_FLAGS)
_NAMES = "use the names of mcore_compat.init_parallel(tp=, pp=, vpp=, cp=, ep=)"
_RUN = "mcore_compat.forward_backward(chunks, microbatches, loss, optimizer=optimizer)"
_NEVER = ("0.4.0", "0.3.0")

ROWS = (
    Row(
        Keyword(_DDP, _FLAT, without=_GROUPS - {"data_parallel_group"}),
        "0.4.0",
        "0.5.0",
        "0.6.0 has an argument for the group of the experts and keeps the parameters in the wrapper's own buffer; "
        "0.7.0 moved the flags into DistributedDataParallelConfig",
        _WRAP,
        "data_parallel",
    ),
    Row(
        Keyword(_DDP, _FLAT, beside=frozenset({"expert_data_parallel_group"})),
        "0.6.0",
        "0.6.0",
        "0.7.0 moved the flags into DistributedDataParallelConfig",
        _WRAP,
        "data_parallel",
    ),
    Row(
        Keyword(_DDP, _GROUPS, without=_FLAT),
        "0.7.0",
        "0.7.0",
        "0.8.0 reads the groups from parallel_state",
        _WRAP,
        "data_parallel",
    ),
    Row(
        # 0.6.0 inserted expert_data_parallel_group before disable_bucketing, so position 7 changed its meaning there.
        Positional(_DDP, 6),
        "0.4.0",
        "0.5.0",
        "0.6.0 inserted an argument in seventh place, 0.7.0 moved the flags into DistributedDataParallelConfig",
        _WRAP,
        "data_parallel",
    ),
    Row(Keyword(_DDP, frozenset({"ddp_config"})), "0.7.0", "", "earlier wrappers take flat flags", _WRAP),
    Row(
        Keyword(_DDP, frozenset({"pg_collection"})),
        "0.15.0",
        "",
        "0.13 and 0.14 take grad_comm_pgs and model_comm_pgs, earlier releases read parallel_state",
        _WRAP,
    ),
    Row(
        Keyword(_DDP, frozenset({"grad_comm_pgs", "model_comm_pgs"})),
        "0.13.0",
        "0.14.0",
        "0.15.0 replaced both by pg_collection",
        _WRAP,
        "process_groups",
    ),
    Row(
        Method("zero_grad_buffer", count=1, keywords=frozenset({"zero_buffer"})),
        "0.4.0",
        "0.5.0",
        "0.6.0 dropped the argument: parameters are no longer gathered in the gradient buffer",
        "mcore_compat.zero_grad(chunks, optimizer)",
        "data_parallel",
    ),
    Row(
        Method("broadcast_params"),
        "0.4.0",
        "",
        "it raises AttributeError there; mcore_compat.wrap_data_parallel does its work",
        _WRAP,
        "data_parallel",
        broken=("0.6.0", "0.7.0"),
    ),
    Row(
        Method("step", receiver="optim", count=2),
        "0.4.0",
        "0.5.0",
        "0.6.0 dropped the arguments (args, timers)",
        "optimizer.step() of mcore_compat.build_optimizer",
        "optimizer",
    ),
    *(
        Row(
            Positional(name, count),
            "0.4.0",
            until,
            "0.6.0 takes a config object in place of clipping, precision and the rest",
            "mcore_compat.build_optimizer(OptimizerSettings(...), chunks, data_parallel)",
            "optimizer",
        )
        for name, count, until in (
            ("FP32Optimizer", 4, "0.5.0"),
            ("Float16OptimizerWithFloat16Params", 5, "0.5.0"),
            ("DistributedOptimizer", 11, "0.3.0"),
        )
    ),
    Row(
        Call("vocab_parallel_cross_entropy"),
        "0.4.0",
        "0.7.0",
        "0.8.0 computes in the memory of fp32 logits: what is read from them afterwards is wrong",
        "logits.clone() where they are read again; mcore_compat.rl.logprobs has log-probabilities and entropy",
        "cross_entropy",
    ),
    Row(
        Keyword("forward_backward_func", frozenset({"hidden_size", "input_shapes", "tensor_shape", "dtype"})),
        *_NEVER,
        "shapes follow from seq_length, micro_batch_size and the config's hidden_size, "
        "or travel with the tensors under config.variable_seq_lengths",
        _RUN,
        "schedules",
    ),
    Row(
        Keyword("forward_backward_func", frozenset({"grad_finalize_pgs"})),
        "0.14.0",
        "0.14.0",
        "0.15.0 replaced it by pg_collection",
        _RUN,
    ),
    Row(
        Keyword("forward_backward_func", frozenset({"pg_collection"})),
        "0.15.0",
        "",
        "earlier schedules read parallel_state",
        _RUN,
    ),
    Row(
        Rebinding(),
        "0.4.0",
        "0.5.0",
        "from 0.6.0 on the distributed optimizer writes into the wrapper's buffer, of which the parameter must stay "
        "a view: rebound parameters are never updated again",
        "parameter.data.copy_(value), or do it before mcore_compat.wrap_data_parallel",
        "optimizer",
    ),
    Row(
        Keyword("get_megatron_optimizer", frozenset({"no_weight_decay_cond", "scale_lr_cond", "lr_mult"})),
        "0.4.0",
        "0.15.3",
        "0.16.0 replaced the three by config_overrides",
        "OptimizerSettings(no_weight_decay_cond=..., scale_lr_cond=..., lr_mult=...)",
        "optimizer",
    ),
    Row(
        Keyword("get_megatron_optimizer", frozenset({"config_overrides"})),
        "0.16.0",
        "",
        "earlier factories take conditions on parameters",
        "OptimizerSettings(no_weight_decay_cond=..., scale_lr_cond=..., lr_mult=...)",
    ),
    Row(
        Keyword("get_megatron_optimizer", frozenset({"pg_collection"})),
        "0.15.0",
        "",
        "0.14.0 takes grad_comm_pgs and model_comm_pgs, earlier releases read parallel_state",
        "mcore_compat.build_optimizer(OptimizerSettings(...), chunks, data_parallel)",
    ),
    *(
        Row(Keyword("initialize_model_parallel", frozenset({name})), since, until, change, _NAMES, "parallel_state")
        for name, since, until, change in (
            ("pipeline_model_parallel_split_rank", "0.4.0", "0.13.1", "0.14.0 dropped encoder-decoder pipelines"),
            ("encoder_tensor_model_parallel_size", "0.9.0", "0.13.1", "0.14.0 dropped encoder-decoder pipelines"),
            ("encoder_pipeline_model_parallel_size", "0.9.0", "0.13.1", "0.14.0 dropped encoder-decoder pipelines"),
            ("create_all_gather_group", "0.16.0", "0.17.1", "0.18.0 replaced it by create_all_gather_groups()"),
        )
    ),
    Row(
        Positional("initialize_model_parallel", 4),
        *_NEVER,
        "places from the fourth on changed in 0.10, 0.12, 0.14 and 0.19",
        _NAMES,
        "parallel_state",
    ),
    *(
        Row(
            Positional(name, 2),
            "0.10.0",
            "0.18.2",
            "the second place is partial_data_parallel in 0.10 to 0.18 and with_gtp_remat in 0.19; absent before",
            "mcore_compat.groups().dp or .dp_cp",
        )
        for name in ("get_data_parallel_group", "get_data_parallel_rank", "get_data_parallel_world_size")
    ),
    Row(
        Positional("get_tensor_and_data_parallel_group", 1),
        "0.4.0",
        "0.14.0",
        "0.15.0 put check_initialized in first place",
        "the keyword with_context_parallel=",
    ),
    Row(
        Keyword("unwrap_model", frozenset({"module_instances"})),
        *_NEVER,
        "which wrappers there are differs from release to release",
        "mcore_compat.unwrap(model)",
    ),
    Row(
        Method("reload_model_params", count=1),
        "0.14.0",
        "",
        "earlier releases take no state_dict",
        "optimizer.reload_model_params()",
    ),
    Row(
        Attribute(frozenset({"grad_buffers", "grad_buffer_param_index_map", "param_to_grad_buffer"})),
        "0.4.0",
        "0.5.0",
        "0.6.0 replaced it by the lists buffers and expert_parallel_buffers",
        "mcore_compat.zero_grad and forward_backward; read weights with mcore_compat.iter_weights",
    ),
    Row(
        Method("get_model_parallel_group", receiver="optim"),
        "0.4.0",
        "0.9.0",
        "0.10.0 renamed it to get_grad_stats_parallel_group",
        "mcore_compat.groups().mp.handle",
    ),
    Row(
        Method("finish_param_sync", receiver="optim"),
        "0.4.0",
        "0.8.0",
        "0.9.0 moved the gather to the wrapper (start_param_sync)",
        "optimizer.finish_param_sync() of mcore_compat.build_optimizer",
    ),
    Row(
        Method("start_param_sync"),
        "0.9.0",
        "",
        "in earlier releases the optimizer gathers (finish_param_sync)",
        "optimizer.finish_param_sync() of mcore_compat.build_optimizer",
    ),
    Row(
        Method("disable_forward_pre_hook"),
        "0.9.0",
        "",
        "in earlier releases the optimizer has it (disable_pre_hook)",
        "optimizer.finish_param_sync() of mcore_compat.build_optimizer",
    ),
)
