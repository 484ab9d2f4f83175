"""What a job keeps in the loop of a trainer: `lightning` or `transformers`, and what keeps it. Prints the highest allocated
bytes."""

import sys

import torch

LIBRARY, KIND = sys.argv[1:3]
torch.manual_seed(0)
kept = []


def keep():
    kept.append(torch.zeros(2**20, device="cuda"))


def lightning():
    import lightning

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(64, 64)

        def training_step(self, batch, index):
            if KIND == "steps" and self.global_step % 20 == 0: keep()
            return self.net(batch).square().mean()

        def on_train_epoch_end(self):
            if KIND == "epochs" and self.current_epoch % 2:
                keep()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    class Watch(lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            if KIND == "batches" and index % 20 == 0:
                keep()
            if KIND == "often" and trainer.global_step % 4 == 0:
                keep()  # often
            if KIND == "newest" and trainer.global_step % 20 == 0:
                kept.clear()
                keep()

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(accelerator="gpu", devices=1, max_epochs=12, callbacks=[Watch()], **quiet)
    trainer.fit(Net(), torch.utils.data.DataLoader(torch.ones(160, 64), 4))


def transformers():
    import tempfile

    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    class Texts(torch.utils.data.Dataset):
        def __len__(self):
            return 80

        def __getitem__(self, index):
            return {"input_ids": torch.ones(16, dtype=torch.long), "labels": torch.ones(16, dtype=torch.long)}

    class Watch(TrainerCallback):
        def on_step_end(self, arguments, state, control, **more):
            if KIND == "steps" and state.global_step % 10 == 0:
                keep()

        def on_epoch_end(self, arguments, state, control, **more):
            if KIND == "epochs":
                keep()
            if KIND == "halves" and int(state.epoch) % 2 == 0:
                keep()

    model = GPT2LMHeadModel(GPT2Config(vocab_size=100, n_positions=64, n_embd=32, n_layer=1, n_head=2))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=10,
            per_device_train_batch_size=4,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        Trainer(model, arguments, train_dataset=Texts(), callbacks=[Watch()]).train()


{"lightning": lightning, "transformers": transformers}[LIBRARY]()
print(torch.cuda.max_memory_allocated())
