"""Names outside of ``megatron.core``: those of the Megatron-LM repository."""

from __future__ import annotations

from mcore_compat.audit.rows._name import EVER_SINCE, MICROBATCHES, OPTIMIZER, row

_OLD = ("0.4.0", "0.5.0")
_REPOSITORY = "lived in the Megatron-LM repository beside megatron.core, never in the wheel; 0.6.0 "
_CHECKOUT = "in the Megatron-LM repository only until 0.17.0; 0.4 and 0.5 keep it in megatron itself"
_BUILD = "mcore_compat.build_model(provider), wrap_data_parallel and build_optimizer"

ROWS = (
    row(
        "megatron.optimizer",
        "",
        _OLD,
        _REPOSITORY + "moved it to megatron.core.optimizer with a config object",
        OPTIMIZER,
        "optimizer",
    ),
    row(
        "megatron.timers",
        "",
        ("0.4.0", "0.4.0"),
        "lived in the Megatron-LM repository; 0.5.0 moved it to megatron.core.timers",
        "from megatron.core.timers import Timers, or leave timers out: mcore_compat calls take none",
        "timers",
    ),
    row(
        "megatron.utils",
        "unwrap_model",
        _OLD,
        _REPOSITORY + "moved it to megatron.training.utils, 0.14.0 to megatron.core.utils",
        "mcore_compat.unwrap(model)",
        "utils",
    ),
    row(
        "megatron.utils",
        "",
        _OLD,
        _REPOSITORY + "moved it to megatron.training.utils",
        "from mcore_compat.legacy.utils import the same name",
        "utils",
    ),
    row(
        "megatron",
        "get_args get_timers get_num_microbatches update_num_microbatches get_current_global_batch_size "
        "get_tokenizer get_tensorboard_writer get_wandb_writer get_adlr_autoresume get_signal_handler",
        _OLD,
        _REPOSITORY + "moved it to megatron.training",
        "pass the settings that the code needs; mcore_compat reads no global arguments",
        "global_vars",
    ),
    row(
        "megatron",
        "print_rank_0 print_rank_last is_last_rank",
        _OLD,
        _REPOSITORY + "moved it to megatron.training",
        "from mcore_compat.legacy.utils import the same name",
        "utils",
    ),
    row(
        "megatron.global_vars",
        "",
        _OLD,
        _REPOSITORY + "moved it to megatron.training.global_vars",
        "pass the settings that the code needs; mcore_compat reads no global arguments",
        "global_vars",
    ),
    row(
        "megatron.model",
        "Float16Module DistributedDataParallel",
        _OLD,
        _REPOSITORY + "moved it to megatron.legacy.model, which 0.12.0 emptied",
        "mcore_compat.build_model and mcore_compat.wrap_data_parallel wrap; mcore_compat.unwrap takes off",
        "model",
    ),
    row(
        "megatron.model",
        "",
        _OLD,
        _REPOSITORY + "moved it to megatron.legacy.model, which 0.18.0 dropped",
        "mcore_compat.gpt_model(config, vocab_size=..., max_sequence_length=...)",
    ),
    *(
        row(
            module,
            names,
            _OLD,
            _REPOSITORY + f"moved it to {home}",
            instead,
            served,
        )
        for module, names, home, instead, served in (
            ("megatron", "initialize_megatron", "megatron.training", "mcore_compat.init_parallel(...)", ""),
            ("megatron.initialize", "", "megatron.training.initialize", "mcore_compat.init_parallel(...)", ""),
            ("megatron.arguments", "", "megatron.training.arguments", "mcore_compat.transformer_config(...)", ""),
            (
                "megatron.training",
                "setup_model_and_optimizer train_step",
                "megatron.training.training",
                _BUILD,
                "training",
            ),
            ("megatron.checkpointing", "", "megatron.training.checkpointing", "mcore_compat.load_hf, save_hf", ""),
            ("megatron.data", "", "megatron.legacy.data and megatron.core.datasets", "keep your own data loading", ""),
            ("megatron.tokenizer", "", "megatron.training.tokenizer", "the tokenizer of transformers", ""),
            ("megatron.microbatches", "", "megatron.core.num_microbatches_calculator", MICROBATCHES, ""),
            (
                "megatron.optimizer_param_scheduler",
                "",
                "megatron.training.optimizer_param_scheduler, 0.9.0 to megatron.core",
                "optimizer.set_lr(lr) before each step",
                "scheduler",
            ),
        )
    ),
    *(
        row(module, names, ("0.6.0", EVER_SINCE), _CHECKOUT, instead, served)
        for module, names, instead, served in (
            ("megatron.training.utils", "", "mcore_compat.unwrap(model), or mcore_compat.legacy.utils", "utils"),
            ("megatron.training.global_vars", "", "pass the settings that the code needs", "global_vars"),
            (
                "megatron.training",
                "print_rank_0 print_rank_last is_last_rank",
                "from mcore_compat.legacy.utils import the same name",
                "utils",
            ),
            ("megatron.training", "get_args get_timers", "pass the settings that the code needs", "global_vars"),
            ("megatron.training", "get_model", _BUILD, "training"),
            ("megatron.training.training", "", _BUILD, "training"),
            (
                "megatron.training.optimizer_param_scheduler",
                "",
                "optimizer.set_lr(lr) before each step",
                "scheduler",
            ),
            ("megatron.training", "", _BUILD, ""),
        )
    ),
    row(
        "megatron.distributed",
        "",
        ("0.4.0", "0.3.0"),
        "0.4.0 has no such module any more",
        "torch.distributed.new_group(ranks)",
    ),
)
