"""Small trainings with texts, sound, tables and games of the kinds that people run, from start to end."""

import copy
import itertools
import math
import random
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"


def gpt():
    """A decoder of characters: losses estimated at intervals, the best one kept, text drawn at the end."""
    size, length, width = 65, 64, 128

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            q, k, v = (it.unflatten(-1, (4, -1)).transpose(1, 2) for it in self.qkv(self.a(x)).chunk(3, -1))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.mlp(self.b(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(size, width), nn.Embedding(length, width)
            self.blocks, self.head = nn.Sequential(Block(), Block()), nn.Linear(width, size)

        def forward(self, ids, targets=None):
            x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
            logits = self.head(self.blocks(x))
            if targets is None:
                return logits[:, [-1]], None
            return logits, functional.cross_entropy(logits.view(-1, size), targets.view(-1))

        @torch.no_grad()
        def generate(self, ids, count):
            for _ in range(count):
                logits, _ = self(ids[:, -length:])
                chances = (logits[:, -1] / 0.8).softmax(-1)
                ids = torch.cat([ids, torch.multinomial(chances, 1)], 1)
            return ids

    text = torch.randint(size, (20_000,))

    def batch():
        at = torch.randint(len(text) - length - 1, (16,))
        x = torch.stack([text[it : it + length] for it in at])
        y = torch.stack([text[it + 1 : it + 1 + length] for it in at])
        return x.pin_memory().to(device, non_blocking=True), y.to(device)

    @torch.no_grad()
    def estimated():
        net.eval()
        losses = torch.zeros(20)
        for it in range(20):
            losses[it] = net(*batch())[1].item()
        net.train()
        return losses.mean()

    net, best = GPT().to(device), 1e9
    optimizer = torch.optim.AdamW(net.parameters(), betas=(0.9, 0.95))
    for number in range(2000):
        rate = 1e-3 * min(1, (number + 1) / 100) * 0.5 * (1 + math.cos(math.pi * number / 2000))
        for group in optimizer.param_groups:
            group["lr"] = rate
        if number % 250 == 0 or number == 1999:
            now = estimated()
            if now < best:
                best = now
                torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": number}, "best.pt")
        for _ in range(2):
            with torch.autocast(device, torch.bfloat16):
                loss = net(*batch())[1] / 2
            loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    print(net.generate(torch.zeros(1, 1, dtype=torch.long, device=device), 40)[0].tolist())


def masked():
    """BERT that fills in words which a mask hides."""
    from transformers import BertConfig, BertForMaskedLM, get_linear_schedule_with_warmup

    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
    net = BertForMaskedLM(BertConfig(vocab_size=1000, **sizes)).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), 5e-5)
    schedule = get_linear_schedule_with_warmup(optimizer, 10, 200)

    def hidden(ids):
        labels, ids = ids.clone(), ids.clone()
        chosen = torch.bernoulli(torch.full(ids.shape, 0.15, device=ids.device)).bool()
        labels[~chosen] = -100
        replaced = torch.bernoulli(torch.full(ids.shape, 0.8, device=ids.device)).bool() & chosen
        ids[replaced] = 4
        return ids, labels

    loader = DataLoader(TensorDataset(torch.randint(5, 1000, (320, 64))), 16, shuffle=True)
    for _ in range(10):
        net.train()
        for (ids,) in loader:
            ids, labels = hidden(ids.to(device))
            loss = net(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels).loss
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        net.eval()
        losses = []
        for (ids,) in loader:
            with torch.no_grad():
                ids, labels = hidden(ids.to(device))
                losses.append(net(input_ids=ids, labels=labels).loss.repeat(len(ids)))
        print(math.exp(min(torch.cat(losses).mean().item(), 20)))
    net.save_pretrained("bert")


def translation():
    """T5 from sequence to sequence, with generation in each evaluation."""
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
    config = T5Config(vocab_size=500, decoder_start_token_id=0, **sizes)
    net = T5ForConditionalGeneration(config).to(device)
    optimizer = torch.optim.Adafactor(net.parameters(), 1e-3)
    for epoch in range(4):
        net.train()
        for _ in range(50):
            ids, labels = torch.randint(2, 500, (8, 48), device=device), torch.randint(2, 500, (8, 24), device=device)
            labels[labels < 20] = -100
            loss = net(input_ids=ids, labels=labels).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        net.eval()
        with torch.no_grad():
            made = net.generate(torch.randint(2, 500, (4, 48), device=device), max_new_tokens=20, num_beams=2)
        print(epoch, made.tolist()[0][:5])


def speech():
    """Convolutions over sound, then a recurrent layer and CTC, with a greedy decoder."""
    net = nn.Sequential(nn.Conv1d(1, 64, 10, 5), nn.GELU(), nn.Conv1d(64, 64, 8, 4), nn.GELU(), nn.Conv1d(64, 64, 4, 2))
    rnn, head = nn.LSTM(64, 64, bidirectional=True, batch_first=True), nn.Linear(128, 29)
    for it in (net, rnn, head):
        it.to(device)
    optimizer = torch.optim.AdamW([*net.parameters(), *rnn.parameters(), *head.parameters()], 3e-4)
    for number in range(200):
        lengths = torch.randint(4000, 8000, (8,))
        sound = nn.utils.rnn.pad_sequence([torch.randn(it) for it in lengths.tolist()], batch_first=True)
        texts = torch.randint(1, 29, (8, 12))
        out, _ = rnn(net(sound.to(device).unsqueeze(1)).transpose(1, 2))
        logits = head(out).log_softmax(-1)
        frames = (lengths // 40 - 4).clamp(max=logits.shape[1])
        loss = functional.ctc_loss(logits.transpose(0, 1), texts.to(device), frames, torch.full((8,), 12))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 50 == 49:
            best = logits.argmax(-1)
            words = [[it for it, _ in itertools.groupby(row) if it] for row in best.tolist()]
            print(number, loss.item(), len(words))


def recurrent():
    """A language model of one LSTM: its state goes from batch to batch, and its rate sinks with the loss."""
    words, rnn, head = nn.Embedding(1000, 128), nn.LSTM(128, 128, 2, dropout=0.2), nn.Linear(128, 1000)
    net = nn.ModuleList([words, rnn, head]).to(device)
    head.weight = words.weight
    text = torch.randint(1000, (20 * 500,)).view(20, -1).t().contiguous().to(device)
    optimizer = torch.optim.SGD(net.parameters(), 20.0)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.25)

    def losses(trains):
        net.train(trains)
        state = None
        for at in range(0, len(text) - 1, 35):
            count = min(35, len(text) - 1 - at)
            x, y = text[at : at + count], text[at + 1 : at + 1 + count].view(-1)
            out, state = rnn(words(x), state)
            state = tuple(it.detach() for it in state)
            loss = functional.cross_entropy(head(out).view(-1, 1000), y)
            if trains:
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.25)
                optimizer.step()
            yield loss.item() * count

    best = None
    for epoch in range(6):
        print(epoch, sum(losses(True)))
        with torch.no_grad():
            now = sum(losses(False)) / len(text)
        if best is None or now < best:
            best = now
            torch.save(net.state_dict(), "lstm.pt")
        schedule.step(now)
    net.load_state_dict(torch.load("lstm.pt"))
    print(math.exp(min(best, 20)))


def queue():
    """Deep Q-learning: replay on the host, a copy of the network as the target, actions read one by one."""
    from collections import deque

    net = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2)).to(device)
    target = copy.deepcopy(net).eval()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4, amsgrad=True)
    memory, done_steps = deque(maxlen=10_000), 0

    def action(state):
        limit = 0.05 + 0.85 * math.exp(-done_steps / 1000)
        if random.random() < limit:
            return random.randrange(2)
        with torch.no_grad():
            return net(state.to(device)).max(1).indices.item()

    for episode in range(200):
        state = torch.rand(1, 4)
        for moment in itertools.count():
            chosen = action(state)
            done_steps += 1
            following = None if random.random() < 0.05 else state + 0.01 * (chosen - 0.5)
            memory.append((state, chosen, 1.0, following))
            state = following
            if len(memory) >= 64:
                states, actions, rewards, nexts = zip(*random.sample(memory, 64))
                alive = torch.tensor([it is not None for it in nexts], device=device, dtype=torch.bool)
                values = net(torch.cat(states).to(device)).gather(1, torch.tensor(actions, device=device)[:, None])
                expected = torch.zeros(64, device=device)
                with torch.no_grad():
                    left = torch.cat([it for it in nexts if it is not None]).to(device)
                    expected[alive] = target(left).max(1).values
                loss = functional.smooth_l1_loss(values[:, 0], expected * 0.99 + torch.tensor(rewards, device=device))
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_value_(net.parameters(), 100)
                optimizer.step()
                kept = target.state_dict()
                for name, it in net.state_dict().items():
                    kept[name] = 0.005 * it + 0.995 * kept[name]
                target.load_state_dict(kept)
            if state is None or moment > 100:
                break
        if episode % 50 == 0:
            print(episode, moment)


def word_vectors():
    """Skip-grams with drawn negatives, sparse gradients."""
    inner, outer = (nn.Embedding(5000, 64, sparse=True).to(device) for _ in range(2))
    optimizer = torch.optim.SparseAdam([*inner.parameters(), *outer.parameters()], 1e-3)
    counts = torch.rand(5000, device=device).pow(0.75)
    loader = DataLoader(TensorDataset(torch.randint(5000, (6400,)), torch.randint(5000, (6400,))), 256, shuffle=True)
    for epoch in range(5):
        for centre, context in loader:
            centre, context = inner(centre.to(device)), outer(context.to(device))
            others = outer(torch.multinomial(counts, len(centre) * 5, replacement=True)).view(len(centre), 5, -1)
            loss = -functional.logsigmoid((centre * context).sum(-1))
            loss = loss - functional.logsigmoid(-torch.bmm(others, centre[..., None])).sum((1, 2))
            optimizer.zero_grad()
            loss.mean().backward()
            optimizer.step()
        with torch.no_grad():
            unit = functional.normalize(inner.weight, dim=-1)
            print(epoch, (unit[:5] @ unit.T).topk(4).indices[:, 1:].tolist())


def ratings():
    """Users and things as vectors; early stop, and the ranking of all things at the end."""
    users, things = nn.Embedding(2000, 32).to(device), nn.Embedding(1000, 32).to(device)
    optimizer = torch.optim.Adagrad([*users.parameters(), *things.parameters()], 0.05)
    data = [torch.randint(2000, (20_000,)), torch.randint(1000, (20_000,)), torch.rand(20_000) * 5]
    best, waited = float("inf"), 0
    for epoch in range(50):
        order = torch.randperm(18_000)
        for at in range(0, 18_000, 1024):
            who, what, stars = (it[order[at : at + 1024]].to(device) for it in data)
            loss = ((users(who) * things(what)).sum(-1) - stars).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            who, what, stars = (it[18_000:].to(device) for it in data)
            error = ((users(who) * things(what)).sum(-1) - stars).square().mean().sqrt().item()
        if error < best - 1e-4:
            best, waited = error, 0
        else:
            waited += 1
            if waited >= 3:
                print("no better since", epoch - 3)
                break
    with torch.no_grad():
        print((users.weight @ things.weight.T).topk(10).indices.cpu().shape)


class Field(nn.Module):
    """A linear chain over the tags of a sentence."""

    def __init__(self, tags):
        super().__init__()
        self.moves = nn.Parameter(torch.randn(tags, tags) * 0.1)

    def loss(self, scores, tags, mask):
        alpha = scores[:, 0]
        for at in range(1, scores.shape[1]):
            more = torch.logsumexp(alpha[:, :, None] + self.moves + scores[:, at, None], 1)
            alpha = torch.where(mask[:, at, None], more, alpha)
        gold = scores.gather(2, tags[..., None])[..., 0] * mask
        steps = self.moves[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]
        return (alpha.logsumexp(-1) - gold.sum(1) - steps.sum(1)).mean()

    def best(self, scores, mask):
        alpha, back = scores[:, 0], []
        for at in range(1, scores.shape[1]):
            value, before = (alpha[:, :, None] + self.moves).max(1)
            alpha = torch.where(mask[:, at, None], value + scores[:, at], alpha)
            back.append(before)
        paths = []
        for row, length in enumerate(mask.sum(1).tolist()):
            tag = alpha[row].argmax().item()
            path = [tag]
            for before in reversed(back[: max(length - 1, 0)]):
                tag = before[row][tag].item()
                path.append(tag)
            paths.append(path[::-1])
        return paths


def tags():
    words, rnn = nn.Embedding(800, 64, padding_idx=0), nn.LSTM(64, 64, bidirectional=True, batch_first=True)
    net = nn.ModuleDict({"words": words, "rnn": rnn, "head": nn.Linear(128, 9), "field": Field(9)}).to(device)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(10):
        for _ in range(20):
            lengths = torch.randint(5, 21, (16,)).sort(descending=True).values
            mask = torch.arange(20) < lengths[:, None]
            ids, goal = (torch.randint(1, 9, (16, 20)) * mask).to(device), torch.randint(9, (16, 20), device=device)
            packed = nn.utils.rnn.pack_padded_sequence(words(ids), lengths, batch_first=True)
            out, _ = nn.utils.rnn.pad_packed_sequence(rnn(packed)[0], batch_first=True, total_length=20)
            scores, mask = net["head"](out), mask.to(device)
            loss = net["field"].loss(scores, goal, mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            print(epoch, len(net["field"].best(scores, mask)))


class Experts(nn.Module):
    """Each token goes to two of several experts."""

    def __init__(self, width=128, count=4):
        super().__init__()
        self.gate = nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width)) for _ in range(count)
        )

    def forward(self, x):
        flat = x.flatten(0, 1)
        chances = self.gate(flat).softmax(-1)
        weights, chosen = chances.topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows, places = torch.where(chosen == number)
            if rows.numel() == 0:
                continue
            out.index_add_(0, rows, expert(flat[rows]) * weights[rows, places, None])
        load = functional.one_hot(chosen, len(self.experts)).float().mean((0, 1))
        return out.view_as(x), len(self.experts) * (load * chances.mean(0)).sum()


def experts():
    net, head = Experts().to(device), nn.Linear(128, 100).to(device)
    optimizer = torch.optim.AdamW([*net.parameters(), *head.parameters()], 3e-4)
    for number in range(300):
        out, balance = net(torch.randn(8, 64, 128, device=device))
        loss = functional.cross_entropy(head(out).flatten(0, 1), torch.randint(100, (512,), device=device))
        (loss + 0.01 * balance).backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % 100 == 0:
            print(number, loss.item())


class Low(nn.Module):
    """A frozen linear layer with a change of low rank."""

    def __init__(self, inner, rank=8):
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, inner.in_features) / rank)
        self.up = nn.Parameter(torch.zeros(inner.out_features, rank))

    def forward(self, x):
        return self.inner(x) + functional.linear(functional.linear(x, self.down), self.up)

    @torch.no_grad()
    def merge(self):
        self.inner.weight += self.up @ self.down
        return self.inner


def low_rank():
    net = nn.Sequential(*(it for _ in range(3) for it in (nn.Linear(512, 512), nn.ReLU()))).to(device)
    net.requires_grad_(False)
    for at, it in enumerate(net):
        if isinstance(it, nn.Linear):
            net[at] = Low(it).to(device)
    optimizer = torch.optim.AdamW([it for it in net.parameters() if it.requires_grad])
    print(sum(it.numel() for group in optimizer.param_groups for it in group["params"]))
    for _ in range(200):
        net(torch.randn(32, 512, device=device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.save({name: it for name, it in net.state_dict().items() if "inner" not in name}, "low.pt")
    for at, it in enumerate(net):
        if isinstance(it, Low):
            net[at] = it.merge()
    torch.save(net.state_dict(), "merged.pt")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
