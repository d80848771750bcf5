"""What of functions of functions is in the namespace; with it, how NumPy's functions are recorded.

That is, those which NumPy has written in Python: where they keep a history, or have no values.
"""

from tiledarray.gradients import in_python
from tiledarray.gradients.custom import checkpoint, custom_jvp, custom_vjp
from tiledarray.gradients.functions import grad, hessian, hvp, jacobian, jvp, value_and_grad, vjp
from tiledarray.gradients.variables import stop_gradient, variable
from tiledarray.gradients.vmap import vmap
from tiledarray.transforms.jit import jit
from tiledarray.transforms.loops import fori_loop, while_loop

__all__ = [
    "checkpoint", "custom_jvp", "custom_vjp", "fori_loop", "grad", "hessian", "hvp", "jacobian",
    "jit", "jvp", "stop_gradient", "value_and_grad", "variable", "vjp", "vmap", "while_loop",
]  # fmt: skip

in_python.install()
