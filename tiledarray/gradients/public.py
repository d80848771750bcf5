"""What of gradients is in the namespace, and with it how NumPy's own functions keep a history."""

from tiledarray.gradients import in_python
from tiledarray.gradients.custom import checkpoint, custom_jvp, custom_vjp
from tiledarray.gradients.functions import grad, hessian, hvp, jacobian, jvp, value_and_grad, vjp
from tiledarray.gradients.variables import stop_gradient, variable
from tiledarray.gradients.vmap import vmap

__all__ = [
    "checkpoint", "custom_jvp", "custom_vjp", "grad", "hessian", "hvp", "jacobian", "jvp",
    "stop_gradient", "value_and_grad", "variable", "vjp", "vmap",
]  # fmt: skip

in_python.install()
