"""One of the measured trainings: `transformer.py MODEL OPTIMIZER BATCH POSITION`, as the measurements' README describes it."""

import sys

import torch
import transformers as hf

name, optimizer, batch, position = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


def gpt2(**named):
    return hf.GPT2Config(**named)


def none(**named):
    return hf.GPT2Config(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, **named)


# The architectures of the named models, as their configurations give them.
MODELS = {
    "EleutherAI/gpt-neo-125M": lambda: hf.GPTNeoConfig(
        hidden_size=768, num_layers=12, num_heads=12, attention_types=[[["global", "local"], 6]], max_position_embeddings=2048
    ),
    "facebook/opt-125m": lambda: hf.OPTConfig(),
    "facebook/opt-350m": lambda: hf.OPTConfig(
        hidden_size=1024,
        ffn_dim=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        word_embed_proj_dim=512,
        do_layer_norm_before=False,
    ),
    "T5-small": lambda: hf.T5Config(decoder_start_token_id=0, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8),
    "t5-base": lambda: hf.T5Config(decoder_start_token_id=0, d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12),
    "cerebras/Cerebras-GPT-111M": lambda: none(
        n_embd=768, n_head=12, n_layer=10, n_inner=3072, n_positions=2048, activation_function="gelu"
    ),
    "distilbert/distilgpt2": lambda: gpt2(n_layer=6),
    "openai-community/gpt2": lambda: gpt2(),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": lambda: hf.Qwen2Config(
        hidden_size=1536,
        intermediate_size=8960,
        num_hidden_layers=28,
        num_attention_heads=12,
        num_key_value_heads=2,
        vocab_size=151936,
        tie_word_embeddings=False,
    ),
    "Qwen/Qwen3-4B": lambda: hf.Qwen3Config(
        hidden_size=2560,
        intermediate_size=9728,
        num_hidden_layers=36,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=151936,
        tie_word_embeddings=True,
    ),
    "meta-llama/Llama-3.2-3B-Instruct": lambda: hf.LlamaConfig(
        hidden_size=3072,
        intermediate_size=8192,
        num_hidden_layers=28,
        num_attention_heads=24,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=128256,
        max_position_embeddings=131072,
        tie_word_embeddings=True,
    ),
}
config = MODELS[name]()
auto = hf.AutoModelForSeq2SeqLM if config.model_type == "t5" else hf.AutoModelForCausalLM
kind = auto._model_mapping[type(config)]
# Values do not matter: weights without values cost no time and hardly any memory of this machine.
with torch.device("meta"):
    model = kind(config)
model = model.to_empty(device="cpu")
model.tie_weights()
model.train()
if optimizer == "Adafactor":
    optimizer = getattr(torch.optim, "Adafactor")(model.parameters(), lr=0.001)
else:
    optimizer = getattr(torch.optim, optimizer)(model.parameters(), lr=0.001)
model.cuda()
length = 128
for _ in range(4):
    if position == 0:
        optimizer.zero_grad()
    tokens = torch.ones(batch, length, dtype=torch.int64)
    inputs = {it: tokens.clone().cuda() for it in ("input_ids", "attention_mask", "labels")}
    outputs = model(**inputs)
    loss = outputs.loss
    if position == 1:
        optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if position == 2:
        optimizer.zero_grad()
