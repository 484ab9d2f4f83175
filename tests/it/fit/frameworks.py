"""Trainings with frameworks: small models with random weights, and activations that need more than the weights.

`frameworks.py LIBRARY MODE` trains with one library, in `fp32`, `amp` (float16), `bf16`, or `checkpointed` (float32, with
activations that are computed again in backward). `ddp` and `fsdp` train on several devices, in float32 or, as in
`fsdp-bf16`, in mixed precision. All accumulate gradients over two batches.
"""

import itertools
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCABULARY, LENGTH, ROWS = 64, 128, 16
LIBRARY, (MODE, _, TYPE) = sys.argv[1], sys.argv[2].partition("-")
TYPE = TYPE or MODE
CHECKPOINTED = MODE == "checkpointed"
PRECISION = {"amp": torch.float16, "bf16": torch.bfloat16}.get(TYPE)
NAME = {"amp": "fp16", "bf16": "bf16"}.get(TYPE, "no")
RANK, RANKS = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


class Tokens(Dataset):
    def __len__(self):
        return 100 * ROWS

    def __getitem__(self, place):
        ids = torch.full((LENGTH,), place % VOCABULARY)
        return {"input_ids": ids, "labels": ids}


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=16384, max_position_embeddings=LENGTH, **sizes))


def gpt():
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 4, "n_head": 2, "n_embd": 128, "n_positions": LENGTH}
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0, **sizes))


def arguments(cls, **changes):
    usual = {"output_dir": "checkpoints", "max_steps": 20, "per_device_train_batch_size": ROWS, "save_strategy": "no"}
    usual |= {"gradient_accumulation_steps": 2, "gradient_checkpointing": CHECKPOINTED, "report_to": []}
    usual |= {"fp16": TYPE == "amp", "bf16": TYPE == "bf16", "use_liger_kernel": MODE == "liger"}
    if MODE == "fsdp":
        usual |= {"fsdp": "full_shard", "fsdp_config": {"fsdp_version": 2, "transformer_layer_cls_to_wrap": ["GPT2Block"]}}
    return cls(**{**usual, **changes})


def trainer(model=None):
    from transformers import Trainer, TrainingArguments

    Trainer(model=model or gpt(), args=arguments(TrainingArguments), train_dataset=Tokens()).train()


def evaluated():
    """A Trainer that evaluates with metrics, and gathers the logits for them; `drained` moves them after each batch."""
    from transformers import Trainer, TrainingArguments

    class Many(Tokens):
        def __len__(self):
            return 400 * ROWS

    args = arguments(TrainingArguments, per_device_eval_batch_size=16 * ROWS)
    args.eval_accumulation_steps = 1 if MODE == "drained" else None
    data = {"train_dataset": Tokens(), "eval_dataset": Many()}
    it = Trainer(model=gpt(), args=args, compute_metrics=lambda it: {"rows": len(it.predictions)}, **data)
    it.train()
    it.evaluate()


def peft():
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["c_attn"], fan_in_fan_out=True)
    model = get_peft_model(gpt(), lora)
    if CHECKPOINTED:
        model.enable_input_require_grads()
    trainer(model)


def large_vocabulary():
    trainer(llama())


def trl(net=None):
    from datasets import Dataset as Rows
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    words = Tokenizer(models.WordLevel({f"w{it}": it for it in range(VOCABULARY)}, unk_token="w0"))
    tokens = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w0", pad_token="w1")
    rows = Rows.from_list([{"input_ids": [it % VOCABULARY] * LENGTH} for it in range(40 * ROWS)])
    args = arguments(SFTConfig, packing=False, max_length=LENGTH)
    SFTTrainer(model=net or gpt(), args=args, train_dataset=rows, processing_class=tokens).train()


def trl_large_vocabulary():
    trl(llama())


def accelerate():
    from accelerate import Accelerator, FullyShardedDataParallelPlugin

    plugin = FullyShardedDataParallelPlugin(fsdp_version=2) if MODE == "fsdp" else None
    accelerator = Accelerator(gradient_accumulation_steps=2, mixed_precision=NAME, fsdp_plugin=plugin)
    net = gpt()
    if CHECKPOINTED:
        net.gradient_checkpointing_enable()
    loader = DataLoader(Tokens(), batch_size=ROWS)
    net, optimizer, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters()), loader)
    for batch in loader:
        with accelerator.accumulate(net):
            accelerator.backward(net(**batch).loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


def lightning():
    from lightning import LightningModule, Trainer
    from lightning.pytorch.strategies import ModelParallelStrategy

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = gpt()
            if CHECKPOINTED:
                self.net.gradient_checkpointing_enable()

        def configure_model(self):
            if MODE == "fsdp":
                shard(self.net.transformer.h, self.net, mesh=self.device_mesh["data_parallel"])

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

        def training_step(self, batch, index):
            return self.net(**batch).loss

    usual = {"max_steps": 20, "logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    precision = {"amp": "16-mixed", "bf16": "bf16-mixed"}.get(TYPE, "32-true")
    devices = torch.cuda.device_count() if MODE in ("ddp", "fsdp") else 1
    strategy = {"ddp": "ddp", "fsdp": ModelParallelStrategy(devices, 1)}.get(MODE, "auto")
    trainer = Trainer(accumulate_grad_batches=2, precision=precision, strategy=strategy, devices=devices, **usual)
    trainer.fit(Module(), DataLoader(Tokens(), batch_size=ROWS))


def shard(layers, net, **named):
    from torch.distributed.fsdp import fully_shard

    for it in layers:
        fully_shard(it, **named)
    fully_shard(net, **named)


def train(net, batch, loss, layers=()):
    """A loop of the user's own."""
    device = torch.device("cuda", RANK)
    torch.cuda.set_device(device)
    net.to(device)
    if RANKS > 1:
        torch.distributed.init_process_group("nccl", device_id=device)
    if MODE == "fsdp":
        shard(layers, net)
    elif RANKS > 1:
        net = nn.parallel.DistributedDataParallel(net, device_ids=[RANK])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", enabled=TYPE == "amp")
    for at in range(40):
        with torch.autocast("cuda", dtype=PRECISION, enabled=PRECISION is not None):
            lost = loss(net, *(it.to(device) for it in batch())) / 2
        scaler.scale(lost).backward()
        if at % 2:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def pictures(size=64):
    return torch.zeros(ROWS, 3, size, size), torch.zeros(ROWS, dtype=torch.long)


def classified(net, inputs, labels):
    return nn.functional.cross_entropy(net(inputs), labels)


def timm():
    import timm

    net = timm.create_model("vit_tiny_patch16_224", num_classes=4, img_size=64)
    net.set_grad_checkpointing(CHECKPOINTED)
    train(net, pictures, classified, net.blocks)


def torchvision():
    from torch.utils.checkpoint import checkpoint
    from torchvision.models import resnet18

    class Stage(nn.Sequential):
        def forward(self, inputs):
            run = super().forward
            return checkpoint(run, inputs, use_reentrant=False) if CHECKPOINTED else run(inputs)

    net = resnet18(num_classes=4)
    stages = [Stage(*it) for it in (net.layer1, net.layer2, net.layer3, net.layer4)]
    net.layer1, net.layer2, net.layer3, net.layer4 = stages
    train(net, pictures, classified, stages)


def diffusers():
    from diffusers import DDPMScheduler, UNet2DModel

    net = UNet2DModel(
        sample_size=32, block_out_channels=(32, 64), layers_per_block=2, norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    if CHECKPOINTED:
        net.enable_gradient_checkpointing()
    scheduler = DDPMScheduler(num_train_timesteps=100)

    def batch():
        return torch.zeros(ROWS, 3, 32, 32), torch.zeros(ROWS, 3, 32, 32), torch.zeros(ROWS, dtype=torch.long)

    def loss(net, clean, noise, at):
        return nn.functional.mse_loss(net(scheduler.add_noise(clean, noise, at), at).sample, noise)

    train(net, batch, loss, itertools.chain(net.down_blocks, net.up_blocks))


if __name__ == "__main__":
    globals()[LIBRARY]()
