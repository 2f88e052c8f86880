"""Which release first had a field of ``TransformerConfig``, and which fields changed their name.

Read from the sources of the releases (``ModelParallelConfig`` and ``TransformerConfig``, inherited fields included).
"""

from __future__ import annotations

from collections.abc import Mapping

# newest name -> older name
RENAMED: Mapping[str, str] = {
    "bias_activation_fusion": "bias_gelu_fusion",
    "num_layers_in_first_pipeline_stage": "first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "last_pipeline_num_layers",
}

# name -> last release that had it
REMOVED: Mapping[str, str] = {
    "async_tensor_model_parallel_allreduce": "0.16.1",
    "max_position_embeddings": "0.7.0",
    "moe_extended_tp": "0.16.1",
    "moe_use_legacy_grouped_gemm": "0.16.1",
    "pipeline_model_parallel_split_rank": "0.13.1",
    "rotary_percent": "0.7.0",
}

_FIRST_WITH: Mapping[str, str] = {
    "0.4.0": """
        activation_func add_bias_linear apply_query_key_layer_scaling
        apply_residual_connection_post_layernorm async_tensor_model_parallel_allreduce attention_dropout
        attention_softmax_in_fp32 autocast_dtype barrier_with_L1_time batch_p2p_comm batch_p2p_sync bf16
        bias_dropout_fusion clone_scatter_output_in_embedding context_parallel_size
        deallocate_pipeline_outputs distribute_saved_activations enable_autocast
        expert_model_parallel_size ffn_hidden_size finalize_model_grads_func fp16
        fp32_residual_connection fp8 fp8_amax_compute_algo fp8_amax_history_len fp8_interval fp8_margin
        fp8_wgrad gated_linear_unit grad_scale_func grad_sync_func gradient_accumulation_fusion
        hidden_dropout hidden_size init_method init_method_std kv_channels layernorm_epsilon
        layernorm_zero_centered_gamma masked_softmax_fusion no_sync_func normalization
        num_attention_heads num_layers num_microbatches_with_partial_activation_checkpoints
        num_moe_experts num_query_groups output_layer_init_method overlap_p2p_comm param_sync_func
        params_dtype perform_initialization persist_layer_norm pipeline_dtype
        pipeline_model_parallel_size pipeline_model_parallel_split_rank recompute_granularity
        recompute_method recompute_num_layers sequence_parallel tensor_model_parallel_size timers
        tp_comm_bulk_dgrad tp_comm_bulk_wgrad tp_comm_overlap tp_comm_split_ag tp_comm_split_rs
        use_cpu_initialization use_ring_exchange_p2p variable_seq_lengths
        virtual_pipeline_model_parallel_size
    """,
    "0.5.0": """
        add_qkv_bias apply_rope_fusion bias_activation_fusion cpu_offloading cpu_offloading_activations
        cpu_offloading_num_layers cpu_offloading_weights memory_efficient_layer_norm moe_aux_loss_coeff
        moe_grouped_gemm moe_input_jitter_eps moe_router_load_balancing_type moe_router_topk
        moe_token_dropping moe_z_loss_coeff rotary_interleaved tp_comm_atomic_ag tp_comm_atomic_rs
        window_size
    """,
    "0.6.0": """
        defer_embedding_wgrad_compute disable_parameter_transpose_cache max_position_embeddings
        moe_per_layer_logging moe_token_dispatcher_type qk_layernorm rotary_percent test_mode
        tp_comm_overlap_ag tp_comm_overlap_rs
    """,
    "0.7.0": """
        activation_func_fp8_input_store calculate_per_token_loss enable_cuda_graph
        fp8_dot_product_attention fp8_multi_head_attention moe_expert_capacity_factor moe_extended_tp
        moe_layer_recompute moe_pad_expert_input_to_capacity moe_token_drop_policy
        tp_comm_overlap_rs_dgrad use_te_rng_tracker
    """,
    "0.8.0": """
        cross_entropy_loss_fusion deterministic_mode moe_router_pre_softmax wgrad_deferral_limit
    """,
    "0.9.0": """
        config_logger_dir external_cuda_graph tp_comm_overlap_disable_fc1 tp_comm_overlap_disable_qkv
        tp_only_amax_red
    """,
    "0.10.0": """
        cp_comm_type expert_tensor_parallel_size flash_decode hierarchical_context_parallel_sizes
        microbatch_group_size_per_vp_stage moe_ffn_hidden_size moe_layer_freq
        moe_shared_expert_intermediate_size moe_shared_expert_overlap multi_latent_attention
        overlap_p2p_comm_warmup_flush tp_comm_bootstrap_backend
    """,
    "0.11.0": """
        account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split attention_backend
        cuda_graph_retain_backward_graph cuda_graph_use_single_mempool cuda_graph_warmup_steps
        inference_rng_tracker moe_permute_fusion moe_router_bias_update_rate
        moe_router_enable_expert_bias moe_router_group_topk moe_router_num_groups
        moe_router_score_function moe_router_topk_limited_devices moe_router_topk_scaling_factor
        moe_use_legacy_grouped_gemm num_layers_in_first_pipeline_stage num_layers_in_last_pipeline_stage
        softmax_scale
    """,
    "0.12.0": """
        cross_entropy_fusion_impl cuda_graph_scope disable_bf16_reduced_precision_matmul
        first_last_layers_bf16 fp8_param fp8_recipe heterogeneous_block_specs
        init_model_with_meta_device is_hybrid_model mamba_head_dim mamba_num_groups mamba_state_dim
        moe_apply_probs_on_input moe_enable_deepep moe_router_dtype mrope_section
        mtp_loss_scaling_factor mtp_num_layers num_layers_at_end_in_bf16 num_layers_at_start_in_bf16
        pipeline_model_parallel_comm_backend recompute_modules
    """,
    "0.13.0": """
        delay_wgrad_compute hetereogenous_dist_checkpoint mamba_num_heads mlp_chunks_for_prefill
        moe_deepep_num_sms moe_router_force_load_balancing moe_router_padding_for_fp8 no_rope_freq
        pipeline_model_parallel_layout quant_recipe symmetric_ar_type use_kitchen use_mamba_mem_eff_path
    """,
    "0.14.0": """
        cpu_offloading_double_buffering embedding_init_method embedding_init_method_std
        moe_router_fusion overlap_moe_expert_parallel_comm transformer_impl
        use_fused_weighted_squared_relu
    """,
    "0.15.0": """
        activation_func_clamp_value cuda_graph_impl fp4 fp4_param fp4_recipe fused_single_qkv_rope
        glu_linear_offset inference_sampling_seed softmax_type use_te_activation_func
        window_attn_skip_freq
    """,
    "0.16.0": """
        attention_output_gate batch_invariant_mode dsa_indexer_head_dim dsa_indexer_loss_coeff
        dsa_indexer_n_heads dsa_indexer_topk dsa_indexer_use_sparse_loss
        ep_overlap_early_attn_memory_release experimental_attention_variant
        fine_grained_activation_offloading fp4_quantizer_factory fp8_quantizer_factory
        hybrid_context_parallel inference_fuse_tp_communication kitchen_attention_backend
        linear_attention_freq linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads
        linear_num_value_heads linear_value_head_dim log_max_attention_logit max_seqlen_per_dp_cp_rank
        min_offloaded_tensor_size moe_enable_routing_replay moe_flex_dispatcher_backend
        moe_hybridep_num_sms moe_latent_size moe_router_padding_for_quantization moe_shared_expert_gate
        mtp_standalone offload_modules qk_clip qk_clip_alpha qk_clip_threshold qk_l2_norm
        use_inference_optimized_layers use_kitchen_attention
    """,
    "0.17.0": """
        cpu_offloading_retain_pinned_cpu_buffers fused_residual_rmsnorm
        inference_disable_triton_nvls_kernels inference_grouped_gemm_backend
        inference_moe_disable_fused_quant_kernels moe_pad_experts_for_cuda_graph_inference
        moe_router_force_biased mtp_hybrid_override_pattern mtp_use_repeated_layer
        mup_attn_scale_power mup_base_head_dim mup_base_hidden_size mup_embedding_mult
        mup_output_mult mup_width_mult nccl_all_reduce_for_prefill use_mup
    """,
    "0.17.1": """
        moe_hybridep_num_blocks_permute moe_hybridep_num_blocks_unpermute moe_permute_fusion_into_hybridep
    """,
    "0.18.0": """
        cuda_graph_modules fine_grained_offloading_max_inflight_offloads fp8_output_proj
        high_priority_a2a_comm_stream inference_cuda_graph_scope inference_moe_token_dispatcher_type
        mlp_chunks_for_training moe_expert_rank_capacity_factor moe_hybridep_num_sms_preprocessing
        moe_mlp_glu_interleave_size moe_paged_stash moe_paged_stash_buffer_size_factor_cpu
        moe_paged_stash_buffer_size_factor_cuda moe_paged_stash_page_size moe_single_grouped_bias
        moe_single_grouped_weight overlap_dispatch_backward_with_experts_wgrad
        use_grouped_gemm_for_dense_mlp use_transformer_engine_op_fuser
    """,
    "0.19.0": """
        activation_offload_fraction delay_offload_until_cuda_graph delta_offload_bytes_across_pp_ranks
        dsa_indexer_k_norm_epsilon dsa_indexer_k_norm_fp32 dsa_indexer_rope_interleaved
        dsa_indexer_rotate_activation dsa_indexer_scoring_relu dsa_indexer_skip_topk_offset
        dsa_indexer_topk_freq dsa_kernel_backend experimental_attention_variant_loss_scale_func
        expert_gtp_weight_remat_size expert_tensor_parallel_num_weight_shards flash_attention_version
        gtp_weight_remat_size mamba_training_ssm_states_dtype moe_flex_dispatcher_num_sms
        moe_grad_scale_func moe_hybridep_pad_uneven_dispatch_inputs moe_ncclep_static_shape
        moe_ncclep_zero_copy moe_router_quantile_balancing_ema moe_shared_expert_glu_interleave_size
        mtp_detach_heads mtp_grad_scale_func tensor_parallel_num_weight_shards
        use_grouped_gemm_for_shared_expert
    """,
}

FIRST_RELEASE: Mapping[str, str] = {name: release for release, names in _FIRST_WITH.items() for name in names.split()}
