"""Fine-tuning: a frozen trunk, adapters, mixed precision, gathered predictions."""

import torch
from torch import nn


class Adapter(nn.Module):
    def __init__(self, width, rank):
        super().__init__()
        self.down = nn.Parameter(torch.zeros(width, rank))  # adapter
        self.up = nn.Parameter(torch.zeros(rank, width))

    def forward(self, x):
        return x + x @ self.down @ self.up


class Trunk(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.adapters = nn.ModuleList(Adapter(width, 8) for _ in range(depth))  # rank

    def forward(self, x):
        for layer, adapter in zip(self.layers, self.adapters):
            x = torch.relu(adapter(layer(x)))
        return x


def freeze(model):
    for name, weight in model.named_parameters():
        weight.requires_grad_("adapters" in name)  # frozen


def predict(model):
    kept = []
    with torch.no_grad():
        for _ in range(8):
            rows = model(torch.randn(512, 512, device="cuda"))
            kept.append(rows.argmax(1))  # predictions
    return torch.cat(kept)


def main():
    model = Trunk(512, 6).cuda()
    freeze(model)
    own = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(own)
    for step in range(40):
        inputs = torch.randn(512, 512, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):  # precision
            outputs = model(inputs)
        loss = outputs.float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    predict(model)


main()
