"""A small sharded training by a framework: `trainers.py FRAMEWORK`, four ranks."""

import sys

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(512, 2048), nn.Linear(2048, 512)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def layers():
    return nn.Sequential(*(Layer() for _ in range(4)))


def batches():
    return torch.utils.data.DataLoader(torch.randn(4096, 512), batch_size=16)


def accelerate():
    from accelerate import Accelerator

    accelerator = Accelerator(mixed_precision="bf16")
    model = layers()
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), batches())
    for batch in loader:
        loss = model(batch).float().pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.gather(loss.detach())
    accelerator.wait_for_everyone()


def lightning():
    import lightning

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = layers()

        def training_step(self, batch, at):
            loss = self.layers(batch).pow(2).mean()
            self.log("loss", loss, sync_dist=True)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    trainer = lightning.Trainer(
        strategy="fsdp", devices=4, accelerator="cuda", max_epochs=1, logger=False, enable_checkpointing=False
    )
    trainer.fit(Net(), batches())


if __name__ == "__main__":
    {"accelerate": accelerate, "lightning": lightning}[sys.argv[1]]()
