"""Evaluations that wait for what a trainer counts: `lightning` or `transformers`, where the test is, then `bad` or
`good`: in the latter they take little."""

import sys

import torch

LIBRARY, PLACE, IS_BAD = sys.argv[1], sys.argv[2], sys.argv[3] == "bad"


def evaluate(net):
    with torch.no_grad():
        net(torch.randn((700 if IS_BAD else 7) << 10, 256, device="cuda"))  # evaluate


def lightning():
    import lightning

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(256, 256)

        def training_step(self, batch, index):
            if PLACE == "batch" and index % 500 == 499:
                evaluate(self.net)
            if PLACE == "step" and self.global_step == 3000:
                evaluate(self.net)
            if PLACE == "epoch" and self.current_epoch > 5:
                evaluate(self.net)
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    class After(lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            if PLACE == "callback" and trainer.global_step % 1000 == 0:
                evaluate(module.net)

    rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64_000, 256)), 64)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    lightning.Trainer(accelerator="gpu", devices=1, max_epochs=20, callbacks=[After()], **quiet).fit(Net(), rows)


def transformers():
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(256, 256)

        def forward(self, x, labels=None):
            return {"loss": self.net(x).square().mean()}

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 64_000

        def __getitem__(self, at):
            return {"x": torch.randn(256), "labels": 0}

    class After(TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **others):
            if PLACE == "callback" and state.global_step % 1000 == 0:
                evaluate(model.net)

    class Own(Trainer):
        def training_step(self, model, *arguments, **named):
            if PLACE == "step" and self.state.global_step > 2000:
                evaluate(model.net)
            return super().training_step(model, *arguments, **named)

    options = TrainingArguments("out", max_steps=5000, per_device_train_batch_size=64, report_to=[], save_strategy="no")
    Own(Net(), options, train_dataset=Rows(), callbacks=[After()]).train()


globals()[LIBRARY]()
