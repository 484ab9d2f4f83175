"""Sizes that a schedule sets within the loop of a trainer: `lightning` or `transformers`, what sets it, then `whole` or `end`
(the sizes of the training's end from its begin on). Prints the highest allocated bytes."""

import sys

import torch

LIBRARY, KIND, IS_WHOLE = sys.argv[1], sys.argv[2], sys.argv[3] == "whole"
torch.manual_seed(0)


def at(value, end):
    return value if IS_WHOLE else end


def lightning():
    import lightning

    class Rows(torch.utils.data.Dataset):
        width = at(64, 2000)

        def __len__(self):
            return 80

        def __getitem__(self, index):
            return torch.randn(self.width)

    class Net(lightning.LightningModule):
        rows = at(100, 3000)

        def __init__(self):
            super().__init__()
            self.net = torch.nn.Conv1d(1, 32, 3, padding=1)

        def training_step(self, batch, index):
            count = 64
            if KIND == "epoch":
                count = 256 if at(self.current_epoch, 80) < 77 else 4096
            elif KIND == "table":
                count = {0: 128, 5: 512, 9: 4096, 13: 64}.get(at(self.current_epoch, 9), 256)
            elif KIND == "ramp":
                count = 64 + 20 * at(self.global_step, 199)
            elif KIND == "hook":
                count = self.rows
            elif KIND == "data":
                count = batch.shape[1]
            return self.net(batch.new_zeros(batch.shape[0], 1, count)).square().mean()

        def on_train_epoch_end(self):
            if IS_WHOLE:
                self.rows += 290

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    class Wider(lightning.Callback):
        def on_train_epoch_start(self, trainer, module):
            if KIND == "data" and trainer.current_epoch >= 7:
                data.width = 2000

    data, epochs = Rows(), {"epoch": 90, "table": 20}.get(KIND, 10 + (KIND == "hook"))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    loader = torch.utils.data.DataLoader(data, 4)
    trainer = lightning.Trainer(accelerator="gpu", devices=1, max_epochs=at(epochs, 1), callbacks=[Wider()], **quiet)
    trainer.fit(Net(), loader)


def transformers():
    import tempfile

    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    class Texts(torch.utils.data.Dataset):
        length = at(16, 256)

        def __len__(self):
            return 80

        def __getitem__(self, index):
            tokens = torch.ones(self.length if KIND == "epoch" else 512, dtype=torch.long)
            return {"input_ids": tokens, "labels": tokens}

    class Collator:
        made = at(0, 100)

        def __call__(self, items):
            self.made += 1
            length = 512 if self.made > 53 or KIND != "calls" else 32
            return {name: torch.stack([it[name][:length] for it in items]) for name in items[0]}

    class Longer(TrainerCallback):
        def on_epoch_begin(self, arguments, state, control, **more):
            if IS_WHOLE:
                texts.length = 32 * (1 + int(state.epoch or 0))

    class Crops(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **more):
            tokens = inputs["input_ids"]
            if KIND == "steps":
                done = at(self.state.global_step, 159) / 160
                tokens = tokens[:, : int(64 + 448 * done)]
            return model(input_ids=tokens, labels=tokens).loss

    texts = Texts()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=100, n_positions=512, n_embd=32, n_layer=1, n_head=2))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=at(8, 1),
            per_device_train_batch_size=4,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        Crops(model, arguments, train_dataset=texts, data_collator=Collator(), callbacks=[Longer()]).train()


{"lightning": lightning, "transformers": transformers}[LIBRARY]()
print(torch.cuda.max_memory_allocated())
