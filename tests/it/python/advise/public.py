"""Two trainings whose memory others have published.

`public.py loss`: one cross-entropy of bfloat16 logits in float32, 16,384 rows of 248,320 classes, with gradients that
stay. `public.py bert MODE`: BERT large on 512 tokens, one row at a time and four for a step, `plain` or `checkpointed`.
"""

import sys

import torch
from torch.nn import functional as F


def loss():
    rows, classes, width = 16384, 248320, 2048
    named = {"device": "cuda", "dtype": torch.bfloat16, "requires_grad": True}
    hidden, head = torch.randn(rows, width, **named), torch.randn(classes, width, **named)
    targets = torch.randint(0, classes, (rows,), device="cuda")
    for _ in range(3):
        F.cross_entropy((hidden @ head.T).float(), targets).backward()


def bert(mode):
    from torch.utils.data import Dataset
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    class Rows(Dataset):
        def __len__(self):
            return 512

        def __getitem__(self, place):
            return {"input_ids": torch.full((512,), 100 + place), "labels": place % 2}

    sizes = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    # As it was published: attention that is written out, and an optimizer that steps one parameter after the other.
    net = BertForSequenceClassification(BertConfig(attn_implementation="eager", **sizes))
    usual = {"output_dir": "checkpoints", "save_strategy": "no", "report_to": [], "optim": "adamw_torch"}
    usual |= {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}
    args = TrainingArguments(gradient_checkpointing=mode == "checkpointed", **usual)
    trainer = Trainer(model=net, args=args, train_dataset=Rows())
    trainer.optimizer = torch.optim.AdamW(net.parameters(), lr=5e-5, foreach=False)
    trainer.train()


{"loss": loss, "bert": bert}[sys.argv[1]](*sys.argv[2:])
