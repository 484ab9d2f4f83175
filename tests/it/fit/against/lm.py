"""A language model: embedding, blocks, a head over a vocabulary, evaluation."""

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, VOCABULARY, LENGTH, BATCH = 128, 4096, 64, 8  # sizes


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)  # up
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        hidden = self.norm(x)
        hidden = F.gelu(self.up(hidden))
        return x + self.down(hidden)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH) for _ in range(2))  # blocks
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)  # logits
        return logits


def batch():
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH), device="cuda")
    return tokens, tokens.roll(-1, 1)


def loss_of(model, tokens, targets):
    logits = model(tokens)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@torch.no_grad()  # eval
def evaluate(model):
    model.eval()
    total = 0
    for _ in range(3):
        total = total + loss_of(model, *batch())  # sum
    model.train()
    return total


def main():
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)  # optimizer
    losses = []
    for step in range(40):
        tokens, targets = batch()
        loss = loss_of(model, tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().cpu())  # log
    evaluate(model)


main()
