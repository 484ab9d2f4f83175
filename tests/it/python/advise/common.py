"""Five common models in float32 with AdamW, of sizes that people train on one card: `common.py MODEL`."""

import sys

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Text(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, at):
        return torch.arange(at, at + 512) % 30000


class Pictures(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return 4000

    def __getitem__(self, at):
        return torch.zeros(3, self.size, self.size)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    net = GPT2LMHeadModel(GPT2Config())
    return net, Text(), 8, lambda batch: net(batch, labels=batch).loss


def bert():
    from transformers import BertConfig, BertForMaskedLM

    net = BertForMaskedLM(BertConfig())
    return net, Text(), 16, lambda batch: net(batch, labels=batch).loss


def vit():
    import timm

    net = timm.create_model("vit_base_patch16_224")
    return net, Pictures(224), 32, lambda batch: F.cross_entropy(net(batch), batch[:, 0, 0, 0].long())


def resnet50():
    from torchvision.models import resnet50

    net = resnet50()
    return net, Pictures(224), 64, lambda batch: F.cross_entropy(net(batch), batch[:, 0, 0, 0].long())


def unet():
    from diffusers import UNet2DModel

    net = UNet2DModel(sample_size=64, block_out_channels=(128, 256, 384, 512), layers_per_block=2)
    times = torch.zeros(1, dtype=torch.long, device="cuda")
    return net, Pictures(64), 16, lambda batch: F.mse_loss(net(batch, times).sample, batch)


net, data, size, loss = globals()[sys.argv[1]]()
net.cuda().train()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
for batch in DataLoader(data, batch_size=size):
    loss(batch.cuda()).backward()
    optimizer.step()
    optimizer.zero_grad()
