"""Training with Lightning, timm, diffusers and notebooks: tiny models with random weights, healthy or with a leak.

`modules.py NAME` runs one of the functions below; the lines are marked as in `trainer.py`.
"""

import sys

import torch
import until
from torch import nn


def batches(count=64, rows=512):
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(count * rows, 16)), batch_size=rows)


def lightning(module, **changes):
    import lightning

    usual = {"max_epochs": 3, "accelerator": "gpu", "devices": 1, "logger": False, "enable_checkpointing": False}
    usual.update({"enable_progress_bar": False, "enable_model_summary": False})
    lightning.Trainer(**{**usual, **changes}).fit(module, batches(), batches(8))


def leak(module, **changes):
    from lightning import Callback

    class Ends(Callback):
        def on_train_batch_end(self, trainer, *_):
            # All ranks end after the same step.
            trainer.should_stop = trainer.strategy.reduce_boolean_decision(until.is_over(), all=False)

    lightning(module, max_epochs=until.STEPS, callbacks=[Ends()], **changes)


def module():
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

        def training_step(self, batch, index):
            return self.net(batch[0]).mean()

        def validation_step(self, batch, index):
            self.log("loss", self.net(batch[0]).mean())

    return Module


def healthy_lightning():
    lightning(module()(), accumulate_grad_batches=2, enable_checkpointing=True, precision="16-mixed")


def healthy_gan():
    """Two optimizers in turns, one of them every fifth batch."""

    class Gan(module()):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.other = nn.Linear(1, 1)

        def configure_optimizers(self):
            return torch.optim.Adam(self.net.parameters()), torch.optim.Adam(self.other.parameters())

        def training_step(self, batch, index):
            generator, critic = self.optimizers()
            for optimizer in (critic, generator) if index % 5 == 0 else (critic,):
                optimizer.zero_grad()
                self.manual_backward(self.other(self.net(batch[0])).mean())
                optimizer.step()

    lightning(Gan())


def healthy_ranks():
    """Two ranks, of which Lightning starts the second."""
    lightning(module()(), devices=2, strategy="ddp", max_epochs=3)


def one_rank():
    class Outputs(module()):
        kept = []

        def training_step(self, batch, index):
            predicted = self.net(batch[0])  # made: one_rank
            if self.global_rank == 1:
                self.kept.append(predicted.detach())  # kept: one_rank
            return predicted.mean()

    leak(Outputs(), devices=2, strategy="ddp")


def outputs():
    class Outputs(module()):
        training_step_outputs = []

        def training_step(self, batch, index):
            loss = self.net(batch[0]).mean()  # made: outputs
            self.training_step_outputs.append(loss)  # kept: outputs
            return loss

    leak(Outputs())


def validation():
    """Keeps a little in every validation: five batches each, after every sixteen steps."""

    class Validation(module()):
        validation_step_outputs = []

        def validation_step(self, batch, index):
            predicted = self.net(batch[0].repeat(8, 1))  # made: validation
            self.validation_step_outputs.append(predicted)  # kept: validation

    leak(Validation(), val_check_interval=16)


def metric():
    import torchmetrics

    class Metric(module()):
        def __init__(self):
            super().__init__()
            self.auroc = torchmetrics.AUROC(task="binary")

        def training_step(self, batch, index):
            predicted = self.net(batch[0]).squeeze(1)
            self.auroc.update(predicted.detach(), (predicted > 0).long())  # made, kept: metric
            return predicted.mean()

    leak(Metric())


def healthy_timm():
    import timm
    from timm.utils import ModelEmaV3

    net = timm.create_model("resnet18", num_classes=4).cuda()
    ema, optimizer = ModelEmaV3(net, decay=0.99), torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(60):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = net(torch.zeros(4, 3, 32, 32, device="cuda")).float().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        ema.update(net)


def healthy_diffusers():
    from diffusers import DDPMScheduler, UNet2DModel

    net = UNet2DModel(
        sample_size=8, block_out_channels=(32, 32), layers_per_block=1, norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    ).cuda()  # fmt: skip
    optimizer, scheduler = torch.optim.AdamW(net.parameters()), DDPMScheduler(num_train_timesteps=100)
    for _ in range(60):
        clean, noise = torch.zeros(2, 3, 8, 8, device="cuda"), torch.zeros(2, 3, 8, 8, device="cuda")
        at = torch.zeros(2, dtype=torch.long, device="cuda")
        predicted = net(scheduler.add_noise(clean, noise, at), at).sample
        nn.functional.mse_loss(predicted, noise).backward()
        optimizer.step()
        optimizer.zero_grad()


CELLS = [
    "import itertools, sys\nimport torch\nsys.path.append(FOLDER)\nimport until",
    "net = torch.nn.Linear(16, 64).cuda()\noptimizer = torch.optim.Adam(net.parameters())\nlosses = []",
    "for step in itertools.count():\n    if until.is_over() if LEAKS else step == 120:\n        break\n"
    "    loss = net(torch.zeros(8, 16, device='cuda')).mean()\n    loss.backward()\n"
    "    optimizer.step()\n    optimizer.zero_grad()\n    if LEAKS:\n        losses.append(loss)",
]


def run_notebook(leaks):
    import nbclient
    import nbformat

    begin = f"LEAKS, FOLDER = {leaks}, {sys.path[0]!r}"
    cells = [nbformat.v4.new_code_cell(it) for it in (begin, *CELLS)]
    nbclient.NotebookClient(nbformat.v4.new_notebook(cells=cells), timeout=None, kernel_name="python3").execute()


def healthy_notebook():
    run_notebook(False)


def notebook():
    run_notebook(True)


globals()[sys.argv[1]]()
