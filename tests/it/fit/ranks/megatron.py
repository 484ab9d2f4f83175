"""A GPT of Megatron-Core's layers: tensor parallel over two ranks, its optimizer shared by the others."""

import os

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig

WORDS, LENGTH, TENSOR = 1024, 256, 2

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.distributed.init_process_group("nccl")
parallel_state.initialize_model_parallel(TENSOR, 1)
model_parallel_cuda_manual_seed(1)
config = TransformerConfig(
    num_layers=4,
    hidden_size=512,
    num_attention_heads=8,
    tensor_model_parallel_size=TENSOR,
    bf16=True,
    params_dtype=torch.bfloat16,
    use_cpu_initialization=True,
    # Fused kernels come with packages of their own.
    gradient_accumulation_fusion=False,
    masked_softmax_fusion=False,
    bias_dropout_fusion=False,
)
model = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=WORDS, max_sequence_length=LENGTH).cuda()
shared = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=True)
model = DistributedDataParallel(config, shared, Float16Module(config, model))
settings = OptimizerConfig(optimizer="adam", lr=1e-4, bf16=True, use_distributed_optimizer=True)
settings.params_dtype = torch.bfloat16
optimizer = get_megatron_optimizer(settings, [model])
positions = torch.arange(LENGTH, device="cuda").expand(4, -1)
mask = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool, device="cuda").triu(1)
for _ in range(5):
    model.zero_grad_buffer()
    optimizer.zero_grad()
    tokens = torch.randint(WORDS, (4, LENGTH), device="cuda")
    model(tokens, positions, mask, labels=tokens).float().mean().backward()
    finalize_model_grads([model])
    optimizer.step()
