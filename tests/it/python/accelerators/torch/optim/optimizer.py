import functools


class Optimizer:
    def __init__(self, parameters):
        self.param_groups, self.state = [{"params": list(parameters)}], {}
        kind = type(self)
        if not getattr(kind.step, "hooked", False):
            kind.step = self.profile_hook_step(kind.step)
            kind.step.hooked = True

    @staticmethod
    def profile_hook_step(func):
        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            return func(*args, **kwargs)

        return wrapper


def register_optimizer_step_pre_hook(_):
    raise AssertionError("steps are watched without hooks")


register_optimizer_step_post_hook = register_optimizer_step_pre_hook
