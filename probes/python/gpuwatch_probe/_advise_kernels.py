"""Liger's kernels for models of transformers, by the switch of its Trainer and of those that are made from it."""

import importlib.util

from ._advise_technique import Refused, Technique

_PACKAGE = "liger_kernel"


class Liger(Technique):
    """The package's kernels for norms, activations and positions, and a loss that never has all logits."""

    name = "liger"

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        # The class of the arguments, the model, and the types of models that the package has changed.
        self._arguments = self._model = None
        self._changed = []
        self._is_in_use = False

    def install(self):
        switches = self.advise.switches
        switches.on_made("transformers.training_args", "TrainingArguments", self._set, "__post_init__")
        switches.on_made("transformers.trainer", "Trainer", self._trains, "train")
        switches.on_called("transformers.trainer", "apply_liger_kernel", self._applies)

    def _set(self, arguments):
        if not hasattr(arguments, "use_liger_kernel"):
            return
        self._arguments = type(arguments).__name__
        self._is_in_use |= bool(arguments.use_liger_kernel)
        if self.is_active:
            arguments.use_liger_kernel = True

    def _trains(self, trainer):
        self._model = _type(trainer.model)

    def _applies(self, values, frame):
        self._changed.append(_type(values.get("model")))

    def applied(self):
        self.edit = [(None, "%s(…, use_liger_kernel=True)" % self._arguments)]
        if self._arguments is None or self._model is None:
            raise Refused("the loop is not that of transformers' Trainer")
        if self._is_in_use:
            raise Refused("the job uses Liger's kernels already")
        if importlib.util.find_spec(_PACKAGE) is None:
            raise Refused("%s is not installed" % _PACKAGE)
        # Imported after the job, because this takes memory of the host and time.
        from liger_kernel.transformers import monkey_patch

        if self._model not in monkey_patch.MODEL_TYPE_TO_APPLY_LIGER_FN:
            raise Refused("%s has no kernels for models of type %s" % (_PACKAGE, self._model))
        if self.is_active and self._model not in self._changed:
            raise Refused("the Trainer did not apply them")
        return "the model, of type %s" % self._model


def _type(model):
    """Returns what a model, or the one in an adapter around it, is called in its config."""
    base = getattr(model, "get_base_model", None)
    model = base() if callable(base) else model
    return getattr(getattr(model, "config", None), "model_type", None)
