"""Trains a small language model on random tokens, and keeps its outputs for a measure of accuracy at the end."""

import torch
from torch import nn

VOCABULARY, WIDTH, BATCH, LENGTH = 2048, 512, 16, 256


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 4)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.layers(self.embed(tokens)))


model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
outputs = []

for step in range(400):
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH), device="cuda")
    logits = model(tokens)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    outputs.append((logits, tokens))
