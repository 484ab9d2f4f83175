"""Training with Hugging Face's libraries: tiny models with random weights, healthy or with a leak in the libraries' own
idioms.

`trainer.py NAME` runs one of the functions below. The lines that a leak's tensors come from and are kept by are marked
`# made: NAME` and `# kept: NAME`. A leaking job trains until it is ended (`until.py`).
"""

import sys

import torch
import until
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

VOCABULARY, LENGTH = 64, 16


class Tokens(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, place):
        ids = torch.full((LENGTH,), place % VOCABULARY)
        return {"input_ids": ids, "labels": ids}


def model():
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=VOCABULARY, n_positions=LENGTH, bos_token_id=0, eos_token_id=0))


def arguments(cls=TrainingArguments, **changes):
    usual = {"output_dir": "checkpoints", "max_steps": 120, "per_device_train_batch_size": 4, "save_strategy": "no", "report_to": []}
    return cls(**{**usual, "disable_tqdm": True, "logging_steps": 20, **changes})


def train(cls=Trainer, callbacks=None, collate=None, changes=None, **more):
    more.setdefault("model", model())
    args = arguments(**(changes or {}))
    trainer = cls(args=args, train_dataset=Tokens(), callbacks=callbacks, data_collator=collate, **more)
    trainer.train()
    return trainer


def healthy_trainer():
    """Accumulation, evaluation, checkpoints and mixed precision."""
    train(
        eval_dataset=torch.utils.data.Subset(Tokens(), range(16)),
        changes={
            "gradient_accumulation_steps": 2, "eval_strategy": "steps", "eval_steps": 25, "save_strategy": "steps",
            "save_steps": 50, "bf16": True,
        },
    )  # fmt: skip


def healthy_seq2seq():
    from transformers import BartConfig, BartForConditionalGeneration, Seq2SeqTrainer, Seq2SeqTrainingArguments

    config = BartConfig(
        vocab_size=VOCABULARY, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=LENGTH,
    )  # fmt: skip
    few = torch.utils.data.Subset(Tokens(), range(8))
    args = arguments(
        Seq2SeqTrainingArguments, max_steps=60, eval_strategy="steps", eval_steps=25, predict_with_generate=True,
        generation_max_length=8,
    )  # fmt: skip
    Seq2SeqTrainer(model=BartForConditionalGeneration(config), args=args, train_dataset=Tokens(), eval_dataset=few).train()


def healthy_lora():
    from peft import LoraConfig, get_peft_model

    lora = get_peft_model(model(), LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["c_attn"], fan_in_fan_out=True))
    lora.enable_input_require_grads()
    train(model=lora, changes={"gradient_checkpointing": True})


def healthy_sft():
    from datasets import Dataset as Rows
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    words = Tokenizer(models.WordLevel({f"w{it}": it for it in range(VOCABULARY)}, unk_token="w0"))
    tokens = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w0", pad_token="w1")
    rows = Rows.from_list([{"input_ids": [it % VOCABULARY] * (4 + it % LENGTH // 2)} for it in range(256)])
    args = arguments(SFTConfig, max_steps=60, packing=False, max_length=LENGTH)
    SFTTrainer(model=model(), args=args, train_dataset=rows, processing_class=tokens).train()


def healthy_ranks():
    """Two ranks, started by torchrun."""
    few = torch.utils.data.Subset(Tokens(), range(16))
    train(eval_dataset=few, changes={"max_steps": 60, "eval_strategy": "steps", "eval_steps": 25})


def healthy_metrics():
    """Metrics of each batch of an evaluation, and predictions that are gathered over batches."""

    class Right:
        def __init__(self):
            self.right = self.all = 0

        def __call__(self, predicted, compute_result):
            self.right += (predicted.predictions.argmax(-1) == predicted.label_ids).sum().item()
            self.all += predicted.label_ids.numel()
            return {"accuracy": self.right / self.all} if compute_result else {}

    few = torch.utils.data.Subset(Tokens(), range(64))
    changes = {"eval_strategy": "steps", "eval_steps": 20, "batch_eval_metrics": True, "per_device_eval_batch_size": 4}
    train(eval_dataset=few, compute_metrics=Right(), changes=changes)


def healthy_accelerate():
    from accelerate import Accelerator

    accelerator = Accelerator(gradient_accumulation_steps=4)
    net = model()
    loader = torch.utils.data.DataLoader(Tokens(), batch_size=4)
    net, optimizer, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters()), loader)
    for _ in range(2):
        for batch in loader:
            with accelerator.accumulate(net):
                accelerator.backward(net(**batch).loss)
                optimizer.step()
                optimizer.zero_grad()


def eight_trainers():
    """320 steps in all: a new optimizer begins where the one before has ended."""
    for _ in range(8):
        train(changes={"max_steps": 40})


class Ends(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = until.is_over()


def leak(cls=Trainer, callbacks=(), changes=None, **more):
    changes = {"max_steps": until.STEPS, "logging_strategy": "no", **(changes or {})}
    train(cls, callbacks=[Ends(), *callbacks], changes=changes, **more)


class KeepsWeights(TrainerCallback):
    def __init__(self):
        self.weights = []

    def on_step_end(self, args, state, control, model=None, **_):
        weights = torch.cat([it.detach().flatten() for it in model.parameters()])  # made: callback
        self.weights.append(weights)  # kept: callback


def callback():
    leak(callbacks=[KeepsWeights()])


class KeepsLogits(Trainer):
    logits = []

    def compute_loss(self, model, inputs, return_outputs=False, **_):
        outputs = model(**inputs)  # made: subclass
        self.logits.append(outputs.logits.detach())  # kept: subclass
        return (outputs.loss, outputs) if return_outputs else outputs.loss


def subclass():
    leak(KeepsLogits)


class KeepsLosses(Trainer):
    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        self.losses = []

    def compute_loss(self, model, inputs, **_):
        loss = super().compute_loss(model, inputs)  # made: losses
        self.losses.append(loss)  # kept: losses
        return loss


def losses():
    leak(KeepsLosses)


CACHE = {}


def cached(rows):
    ids = torch.stack([it["input_ids"] for it in rows]).cuda()
    CACHE[len(CACHE)] = ids.repeat(64, 1)  # made, kept: collate
    return {"input_ids": ids, "labels": ids}


def collate():
    leak(collate=cached, changes={"dataloader_pin_memory": False})


SEEN = []


def hook():
    net = model()
    net.transformer.h[0].register_forward_hook(keeps)
    leak(model=net)


def keeps(module, inputs, output):
    hidden = output[0] if isinstance(output, tuple) else output
    SEEN.append(hidden.detach().clone())  # made, kept: hook


class Averages(TrainerCallback):
    """Keeps a copy of the weights at the end of every epoch, of 16 steps."""

    def __init__(self):
        self.copies = []

    def on_epoch_end(self, args, state, control, model=None, **_):
        self.copies.append({name: it.detach().clone() for name, it in model.named_parameters()})  # made, kept: average


def average():
    leak(callbacks=[Averages()], changes={"per_device_train_batch_size": 32})


globals()[sys.argv[1]]()
