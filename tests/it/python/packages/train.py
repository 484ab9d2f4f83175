"""Trainings with packages beside PyTorch, as their documents show them: small models, random data."""

import os
import sys
import tempfile

import torch
from torch import nn

FOLDER = tempfile.mkdtemp()


def llama(**changes):
    from transformers import LlamaConfig

    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaConfig(vocab_size=512, num_key_value_heads=2, max_position_embeddings=256, **{**sizes, **changes})


def tokens(rows=8, length=128):
    return torch.randint(5, 500, (rows, length), device="cuda")


def train(net, optimizer, loss, steps=40):
    for _ in range(steps):
        loss(net).backward()
        optimizer.step()
        optimizer.zero_grad()
    return net


def language(net):
    ids = tokens()
    return net(input_ids=ids, labels=ids).loss


def qlora(paged=False):
    import bitsandbytes
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaForCausalLM

    LlamaForCausalLM(llama()).save_pretrained(FOLDER)
    quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    net = AutoModelForCausalLM.from_pretrained(FOLDER, quantization_config=quantized, device_map={"": 0})
    net = prepare_model_for_kbit_training(net)
    net = get_peft_model(net, LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    kind = bitsandbytes.optim.PagedAdamW8bit if paged else bitsandbytes.optim.AdamW8bit
    train(net, kind([it for it in net.parameters() if it.requires_grad], lr=1e-4), language)


def qlora_paged():
    qlora(True)


def eight_bit():
    import bitsandbytes
    from transformers import LlamaForCausalLM

    net = LlamaForCausalLM(llama()).cuda()
    train(net, bitsandbytes.optim.Adam8bit(net.parameters(), min_8bit_size=1), language)


def torchao():
    from torchao.optim import AdamW8bit
    from transformers import LlamaForCausalLM

    net = LlamaForCausalLM(llama()).cuda()
    train(net, AdamW8bit(net.parameters()), language)


def torchao_float8():
    from torchao.float8 import convert_to_float8_training
    from transformers import LlamaForCausalLM

    net = LlamaForCausalLM(llama()).cuda().bfloat16()
    convert_to_float8_training(net.model)
    train(net, torch.optim.AdamW(net.parameters()), language)


def liger():
    from liger_kernel.transformers import apply_liger_kernel_to_llama
    from transformers import LlamaForCausalLM

    apply_liger_kernel_to_llama()
    net = LlamaForCausalLM(llama()).cuda()
    train(net, torch.optim.AdamW(net.parameters()), language)


def compiled():
    net = torch.compile(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 256)).cuda())
    train(net, torch.optim.AdamW(net.parameters()), lambda it: it(torch.randn(64, 256, device="cuda")).pow(2).mean())


def deepspeed(stage=1):
    import deepspeed
    from transformers import LlamaForCausalLM

    os.environ["LOCAL_RANK"] = "0"
    meeting = os.path.join(FOLDER, "ranks")
    torch.distributed.init_process_group("nccl", init_method="file://" + meeting, rank=0, world_size=1)
    deepspeed.init_distributed("nccl")
    config = {"train_micro_batch_size_per_gpu": 8, "bf16": {"enabled": True}, "zero_optimization": {"stage": stage}}
    net = LlamaForCausalLM(llama())
    optimizer = torch.optim.AdamW(net.parameters())
    engine, _, _, _ = deepspeed.initialize(model=net, optimizer=optimizer, config=config)
    for _ in range(40):
        engine.backward(language(engine))
        engine.step()


def deepspeed_2():
    deepspeed(2)


def deepspeed_3():
    deepspeed(3)


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"w%d" % it: it for it in range(500)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    made = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w0", pad_token="w1")
    made.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    return made


def arguments(cls, **changes):
    usual = {"output_dir": FOLDER, "max_steps": 30, "per_device_train_batch_size": 4, "report_to": [], "bf16": False}
    return cls(**{"save_strategy": "no", **usual, **changes})


def text(count):
    return " ".join("w%d" % (it % 400 + 5) for it in range(count))


def sft():
    from datasets import Dataset
    from transformers import LlamaForCausalLM
    from trl import SFTConfig, SFTTrainer

    rows = Dataset.from_list([{"text": text(20 + it % 60)} for it in range(200)])
    args = arguments(SFTConfig, max_length=128)
    SFTTrainer(LlamaForCausalLM(llama()), args, train_dataset=rows, processing_class=tokenizer()).train()


def dpo():
    from datasets import Dataset
    from transformers import LlamaForCausalLM
    from trl import DPOConfig, DPOTrainer

    rows = Dataset.from_list([{"prompt": text(20), "chosen": text(30), "rejected": text(25)} for _ in range(200)])
    net, reference = LlamaForCausalLM(llama()), LlamaForCausalLM(llama())
    args = arguments(DPOConfig, max_length=128)
    DPOTrainer(net, reference, args=args, train_dataset=rows, processing_class=tokenizer()).train()


def grpo():
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, LlamaForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    def reward(completions, **_):
        return [float(len(it)) for it in completions]

    rows = Dataset.from_list([{"prompt": text(10)} for _ in range(200)])
    LlamaForCausalLM(llama()).save_pretrained(FOLDER)
    net = AutoModelForCausalLM.from_pretrained(FOLDER)
    args = arguments(GRPOConfig, num_generations=4, max_completion_length=16)
    GRPOTrainer(net, reward, args=args, train_dataset=rows, processing_class=tokenizer()).train()


def ppo():
    from stable_baselines3 import PPO

    PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, device="cuda").learn(2000)


def graphs():
    from torch_geometric.data import Data
    from torch_geometric.nn import GCNConv

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = GCNConv(64, 128), GCNConv(128, 8)

        def forward(self, data):
            return self.b(self.a(data.x, data.edge_index).relu(), data.edge_index)

    edges, labels = torch.randint(0, 2000, (2, 20000)), torch.randint(0, 8, (2000,))
    data = Data(x=torch.randn(2000, 64), edge_index=edges, y=labels).to("cuda")
    data.train_mask = torch.zeros(2000, dtype=torch.bool, device="cuda")
    data.train_mask[:500] = True
    net = Net().cuda()

    def loss(net):
        out = net(data)
        return nn.functional.cross_entropy(out[data.train_mask], data.y[data.train_mask])

    train(net, torch.optim.Adam(net.parameters()), loss)
    net.eval()
    print((net(data).argmax(1) == data.y).float().mean().item())


def denoising():
    from denoising_diffusion_pytorch import GaussianDiffusion, Unet

    net = GaussianDiffusion(Unet(dim=16, dim_mults=(1, 2)), image_size=32, timesteps=20).cuda()
    train(net, torch.optim.Adam(net.parameters()), lambda it: it(torch.rand(4, 3, 32, 32, device="cuda")), 6)
    net.sample(batch_size=4)


def x_transformers():
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    layers = Decoder(dim=128, depth=2, heads=4)
    net = AutoregressiveWrapper(TransformerWrapper(num_tokens=256, max_seq_len=256, attn_layers=layers)).cuda()
    train(net, torch.optim.Adam(net.parameters()), lambda it: it(torch.randint(0, 256, (4, 129), device="cuda")), 6)
    net.generate(torch.randint(0, 256, (1, 4), device="cuda"), 16)


def detection():
    from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_fpn

    net = fasterrcnn_mobilenet_v3_large_fpn(weights=None, weights_backbone=None, num_classes=4).cuda()
    images = [torch.rand(3, 256, 256, device="cuda") for _ in range(2)]
    boxes, labels = torch.tensor([[10.0, 10.0, 90.0, 90.0]]), torch.tensor([1])
    targets = [{"boxes": boxes.cuda(), "labels": labels.cuda()}] * 2
    net.train()
    train(net, torch.optim.SGD(net.parameters(), 0.01), lambda it: sum(it(images, targets).values()), 6)


def causal():
    """As the example scripts that fine-tune a language model: evaluation at intervals, then generation."""
    from datasets import Dataset
    from transformers import DataCollatorForLanguageModeling, LlamaForCausalLM, Trainer, TrainingArguments

    made = tokenizer()
    rows = Dataset.from_list([{"input_ids": list(range(5, 5 + 32 + it % 64))} for it in range(400)])
    often = {"eval_strategy": "steps", "eval_steps": 200, "save_strategy": "steps", "save_steps": 200}
    args = arguments(TrainingArguments, max_steps=1000, **often)
    net = LlamaForCausalLM(llama())
    collator = DataCollatorForLanguageModeling(made, mlm=False)
    trainer = Trainer(net, args, train_dataset=rows, eval_dataset=rows.select(range(64)), data_collator=collator)
    trainer.train()
    trainer.save_model()
    print(trainer.evaluate())
    net.generate(tokens(2, 8), max_new_tokens=16, do_sample=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
