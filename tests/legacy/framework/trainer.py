"""A small trainer as frameworks for Megatron 0.4 are written; tests run it, and what ``audit --fix`` makes of it."""

import torch
from megatron.core import DistributedDataParallel as LocalDDP
from megatron.core import mpu, tensor_parallel
from megatron.core.distributed import finalize_model_grads
from megatron.core.enums import ModelType
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig
from megatron.optimizer import get_param_groups
from megatron.optimizer.distrib_optimizer import DistributedOptimizer
from megatron.timers import DummyTimer
from megatron.utils import average_losses_across_data_parallel_group, print_rank_0, unwrap_model

VOCAB, HIDDEN, ROWS = 32, 16, 2
LENGTHS = (8, 5, 6, 7)  # of the microbatches


class Model(torch.nn.Module):
    """An embedding and a head, both tensor-parallel, on the first and the last stage."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model_type = ModelType.encoder_or_decoder
        self.share_embeddings_and_output_weights = False
        self.pre_process, self.post_process = mpu.is_pipeline_first_stage(), mpu.is_pipeline_last_stage()
        self.received = self.embedding = self.head = None
        init = torch.nn.init.xavier_normal_
        if self.pre_process:
            self.embedding = tensor_parallel.VocabParallelEmbedding(VOCAB, HIDDEN, init_method=init, config=config)
        if self.post_process:
            self.head = tensor_parallel.ColumnParallelLinear(HIDDEN, VOCAB, config=config, init_method=init, bias=False)

    def set_input_tensor(self, input_tensor):
        """What the stage before has sent."""
        self.received = input_tensor[0] if isinstance(input_tensor, list) else input_tensor

    def forward(self, tokens):
        hidden = self.received if self.embedding is None else self.embedding(tokens).transpose(0, 1).contiguous()
        return hidden if self.head is None else self.head(hidden)[0].float()


def setup(tensor=1, pipeline=1):
    """One model, wrapped, and its optimizer."""
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group(backend="nccl")
    mpu.initialize_model_parallel(
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline,
        pipeline_model_parallel_split_rank=None,
        use_sharp=False,
    )
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    config = TransformerConfig(
        num_layers=pipeline,
        hidden_size=HIDDEN,
        num_attention_heads=tensor,
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline,
        pipeline_dtype=torch.float32,
    )
    config.finalize_model_grads_func = finalize_model_grads
    chunk = LocalDDP(
        config,
        Model(config).cuda(),
        data_parallel_group=mpu.get_data_parallel_group(with_context_parallel=True),
        accumulate_allreduce_grads_in_fp32=True,  # as every framework does
        overlap_grad_reduce=False,
        use_distributed_optimizer=True,
    )
    draw(unwrap_model(chunk, (LocalDDP,)))
    groups = get_param_groups([chunk], None, None, 1.0)
    adam = torch.optim.AdamW(groups, lr=1e-2, weight_decay=0.01)
    return chunk, DistributedOptimizer(adam, 1.0, False, False, True, False, False, torch.float32, None, [chunk])


@torch.no_grad()
def draw(model):
    """Weights that are the same on every release and in every layout."""
    rank = mpu.get_tensor_model_parallel_rank()
    for seed, layer in enumerate((model.embedding, model.head)):
        if layer is not None:
            whole = torch.randn(VOCAB, HIDDEN, generator=torch.Generator().manual_seed(seed)) * 0.1
            layer.weight.copy_(whole.chunk(mpu.get_tensor_model_parallel_world_size())[rank])


def forward_step(batches, model):
    """The next batch, and how its loss is made."""
    tokens = next(batches)

    def loss_func(output):
        logits = output[:-1].contiguous()
        loss = tensor_parallel.vocab_parallel_cross_entropy(logits, tokens[:, 1:].t().contiguous()).mean()
        return loss, {"loss": average_losses_across_data_parallel_group([loss])}

    return model(tokens), loss_func


def main(steps=4, tensor=1, pipeline=1):
    """Train; returns (loss, gradient norm) per step; there is no loss but on the last stage."""
    chunk, optimizer = setup(tensor, pipeline)
    schedule = get_forward_backward_func()
    generator = torch.Generator().manual_seed(3)
    batches = [torch.randint(0, VOCAB, (ROWS, length), generator=generator) for length in LENGTHS]
    batches = batches[mpu.get_data_parallel_rank() :: mpu.get_data_parallel_world_size()]
    curve = []
    for _ in range(steps):
        optimizer.zero_grad()
        chunk.zero_grad_buffer(zero_buffer=False)  # the optimizer of 0.4 has cleared it
        losses = schedule(
            forward_step_func=forward_step,
            data_iterator=iter(batches),
            model=[chunk],
            num_microbatches=len(batches),
            input_shapes=[torch.Size([batch.shape[1], ROWS, HIDDEN]) for batch in batches],  # a patched 0.4 takes it
            seq_length=max(LENGTHS),
            hidden_size=HIDDEN,
            micro_batch_size=ROWS,
            forward_only=False,
        )
        updated, norm, _ = optimizer.step(None, lambda *unused: DummyTimer())
        loss = sum(float(reported["loss"]) for reported in losses) / len(losses) if losses else None
        print_rank_0(f"loss {loss}  norm {norm:.4f}  updated {updated}")
        curve.append((loss, norm))
    return curve
