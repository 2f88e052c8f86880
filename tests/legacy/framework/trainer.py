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
from megatron.utils import print_rank_0, unwrap_model

VOCAB, LENGTH, HIDDEN = 32, 8, 16


class Model(torch.nn.Module):
    """An embedding and a tensor-parallel head."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model_type = ModelType.encoder_or_decoder
        init = torch.nn.init.xavier_normal_
        self.embedding = tensor_parallel.VocabParallelEmbedding(VOCAB, HIDDEN, init_method=init, config=config)
        self.head = tensor_parallel.ColumnParallelLinear(HIDDEN, VOCAB, config=config, init_method=init, bias=False)

    def set_input_tensor(self, input_tensor):
        """There is one stage only."""

    def forward(self, tokens):
        return self.head(self.embedding(tokens))[0].float()


def setup():
    """One model, wrapped, and its optimizer."""
    torch.distributed.init_process_group(backend="nccl")
    mpu.initialize_model_parallel(
        tensor_model_parallel_size=1,
        pipeline_model_parallel_size=1,
        pipeline_model_parallel_split_rank=None,
        use_sharp=False,
    )
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    config = TransformerConfig(num_layers=1, hidden_size=HIDDEN, num_attention_heads=1)
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
    """Weights that are the same on every release."""
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)


def forward_step(batches, model):
    """The next batch, and how its loss is made."""
    tokens = next(batches)

    def loss_func(output):
        logits = output[:, :-1].transpose(0, 1).contiguous()
        loss = tensor_parallel.vocab_parallel_cross_entropy(logits, tokens[:, 1:].t().contiguous()).mean()
        return loss, {"loss": loss.detach()}

    return model(tokens), loss_func


def main(steps=4):
    """Train; returns (loss, gradient norm) per step."""
    chunk, optimizer = setup()
    schedule = get_forward_backward_func()
    generator = torch.Generator().manual_seed(3)
    batches = [torch.randint(0, VOCAB, (2, LENGTH), generator=generator) for _ in range(2)]
    curve = []
    for _ in range(steps):
        optimizer.zero_grad()
        chunk.zero_grad_buffer(zero_buffer=False)  # the optimizer of 0.4 has cleared it
        losses = schedule(
            forward_step_func=forward_step,
            data_iterator=iter(batches),
            model=[chunk],
            num_microbatches=2,
            seq_length=LENGTH,
            hidden_size=HIDDEN,  # a patched 0.4 wants it
            micro_batch_size=2,
            forward_only=False,
        )
        updated, norm, _ = optimizer.step(None, lambda *unused: DummyTimer())
        loss = sum(float(reported["loss"]) for reported in losses) / len(losses)
        print_rank_0(f"loss {loss:.4f}  norm {norm:.4f}  updated {updated}")
        curve.append((loss, norm))
    return curve
