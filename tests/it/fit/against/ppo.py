"""Proximal policy optimization: environments in parallel, rollouts, advantages, epochs of mini-batches."""

import torch
from torch import nn
from torch.distributions import Categorical

ENVIRONMENTS, STEPS, ACTIONS, SEEN = 32, 64, 6, 128


class Agent(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(SEEN, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actor = nn.Linear(width, ACTIONS)
        self.critic = nn.Linear(width, 1)

    def value(self, seen):
        return self.critic(self.body(seen)).squeeze(-1)

    def act(self, seen, action=None):
        hidden = self.body(seen)
        choices = Categorical(logits=self.actor(hidden))
        if action is None:
            action = choices.sample()
        return action, choices.log_prob(action), choices.entropy(), self.critic(hidden).squeeze(-1)


class World:
    def __init__(self):
        self.state = torch.randn(ENVIRONMENTS, SEEN, device="cuda")

    def step(self, action):
        self.state = 0.9 * self.state + 0.1 * torch.randn_like(self.state)
        reward = self.state[:, 0] * (action == 0)
        return self.state, reward


class Rollout:
    def __init__(self):
        self.seen = torch.zeros(STEPS, ENVIRONMENTS, SEEN, device="cuda")
        self.actions = torch.zeros(STEPS, ENVIRONMENTS, device="cuda", dtype=torch.long)
        self.likely = torch.zeros(STEPS, ENVIRONMENTS, device="cuda")
        self.rewards = torch.zeros(STEPS, ENVIRONMENTS, device="cuda")
        self.values = torch.zeros(STEPS, ENVIRONMENTS, device="cuda")


def collect(agent, world, rollout):
    with torch.no_grad():
        for step in range(STEPS):
            rollout.seen[step] = world.state
            action, likely, _, value = agent.act(world.state)
            rollout.actions[step], rollout.likely[step], rollout.values[step] = action, likely, value
            _, reward = world.step(action)
            rollout.rewards[step] = reward
        return agent.value(world.state)


def advantages(rollout, last, gamma=0.99, decay=0.95):
    result = torch.zeros_like(rollout.rewards)
    sum_, following = torch.zeros_like(last), last
    for step in reversed(range(STEPS)):
        delta = rollout.rewards[step] + gamma * following - rollout.values[step]
        sum_ = delta + gamma * decay * sum_
        result[step] = sum_
        following = rollout.values[step]
    return result


def learn(agent, optimizer, rollout, gains):
    seen, actions = rollout.seen.flatten(0, 1), rollout.actions.flatten()
    likely, gains, values = rollout.likely.flatten(), gains.flatten(), rollout.values.flatten()
    goals = gains + values
    for epoch in range(2):
        for part in torch.randperm(len(actions), device="cuda").chunk(4):
            _, now, entropy, value = agent.act(seen[part], actions[part])
            ratio = (now - likely[part]).exp()
            gain = (gains[part] - gains[part].mean()) / (gains[part].std() + 1e-8)
            policy = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()
            loss = policy + 0.5 * (value - goals[part]).square().mean() - 0.01 * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def main():
    agent, world, rollout = Agent().cuda(), World(), Rollout()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    for update in range(10):
        last = collect(agent, world, rollout)
        learn(agent, optimizer, rollout, advantages(rollout, last))


main()
