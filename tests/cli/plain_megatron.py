"""What a framework's own test looks like: plain Megatron, written for GPUs, no word of mcore_compat."""

import os

import pytest
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.transformer_config import TransformerConfig


@pytest.fixture(scope="module", autouse=True)
def ranks():
    assert torch.cuda.is_available()
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", os.environ["PORT"])
    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl", rank=rank, world_size=int(os.environ.get("WORLD_SIZE", "1")), device_id=torch.device("cuda", rank)
    )
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=dist.get_world_size())
    model_parallel_cuda_manual_seed(1)
    yield
    dist.destroy_process_group()


def test_devices():
    assert torch.cuda.device_count() == dist.get_world_size()
    assert torch.cuda.current_device() == dist.get_rank()
    with torch.cuda.device(0):
        assert torch.cuda.current_device() == 0
    assert torch.cuda.get_device_properties(0).major == torch.cuda.get_device_capability()[0]
    assert torch.cuda.memory_allocated() <= torch.cuda.mem_get_info()[1]


def test_tensors_and_generators():
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert isinstance(generator, torch.Generator)
    with torch.device("cuda"):
        drawn = torch.empty(4).normal_(generator=generator)
        layer = torch.nn.Linear(2, 2)
    assert torch.equal(drawn, torch.randn(4, generator=generator.manual_seed(3), device="cuda:0"))
    torch.zeros_like(drawn, device="cuda").record_stream(torch.cuda.current_stream())
    wrapped = torch.nn.parallel.DistributedDataParallel(layer, device_ids=[torch.cuda.current_device()])
    wrapped(torch.ones(2, 2, device="cuda")).sum().backward()


def test_collectives():
    mesh = dist.init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("tp",))
    total = torch.ones(1, device="cuda")
    dist.all_reduce(total, group=mesh["tp"].get_group())
    assert total.item() == dist.get_world_size()
    dist.barrier(device_ids=[torch.cuda.current_device()])


def test_model():
    sizes = {"num_layers": 1, "hidden_size": 16, "num_attention_heads": 2}
    config = TransformerConfig(**sizes, tensor_model_parallel_size=dist.get_world_size())
    model = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=32, max_sequence_length=8).cuda()
    tokens = torch.arange(8, device="cuda").repeat(2, 1)
    mask = torch.ones(1, 1, 8, 8, dtype=torch.bool, device="cuda").triu(1)
    losses = model(tokens, tokens, mask, labels=tokens)
    losses.mean().backward()
    assert losses.shape == (2, 8)
    assert all(parameter.grad is not None for parameter in model.parameters())
