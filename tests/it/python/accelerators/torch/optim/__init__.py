from . import optimizer


class AdamW(optimizer.Optimizer):
    def step(self):
        import torch

        for it in self.param_groups[0]["params"]:
            if it not in self.state:
                self.state[it] = {"step": 0}
                for name in ("exp_avg", "exp_avg_sq"):
                    self.state[it][name] = torch.Tensor(it.nbytes, it.number)
            self.state[it]["step"] += 1
