"""`numpy.random`: NumPy draws the values, so that a seed means what it means there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tiledarray.api.arguments import default_device
from tiledarray.api.namespace import found_by, namespace_getattr, seen
from tiledarray.api.registry import KINDS
from tiledarray.arrays import by_numpy, by_places, immediate
from tiledarray.arrays.handle import Handle
from tiledarray.arrays.tracing import is_tracing
from tiledarray.recording.stretch import local

# What returns no values drawn, or returns something other than arrays.
_AS_THEY_ARE = frozenset(("bit_generator", "spawn", "bytes", "get_state", "seed", "set_state"))
# What moves the elements of an array.
_MOVING = {"shuffle": by_places.rearrange, "permutation": by_places.move, "choice": by_places.move,
           "permuted": by_places.move}
_numpy = np.random

# Laws that are one law, stretched and moved: their parameters, with those of that one.
_MOVED = {"loc": 0.0, "scale": 1.0}
_STRETCHED = {
    "normal": _MOVED, "laplace": _MOVED, "gumbel": _MOVED, "logistic": _MOVED,
    "exponential": {"scale": 1.0}, "rayleigh": {"scale": 1.0}, "uniform": {"low": 0.0, "high": 1.0},
}


@functools.cache
def _judge(legacy: bool) -> Any:
    """Return a generator whose numbers nobody takes: whether it refuses parameters is asked."""
    return _numpy.RandomState(0) if legacy else _numpy.default_rng(0)


def _stretched(
    draw: Callable[..., Any], name: str, args: Any, options: dict[str, Any], *, legacy: bool
) -> Any:
    """Draw by the one law, and stretch and move that: the parameters keep their history.

    Raises
    ------
    TypeError, ValueError, OverflowError
        As the function does.
    """
    one = _STRETCHED[name]
    given = {**one, **dict(zip((*one, "size"), args, strict=False)), **options}
    getattr(_judge(legacy), name)(
        **{key: by_places.seen(value) for key, value in given.items() if key != "size"})
    plain = {key: np.full(np.shape(given[key]), value) for key, value in one.items()}
    drawn = by_numpy.wrapped(np.asarray(draw(**{**given, **plain})), default_device())
    if name == "uniform":
        return given["low"] + (given["high"] - given["low"]) * drawn
    return given.get("loc", 0.0) + given["scale"] * drawn


def _drawing(name: str, function: Callable[..., Any], bound: bool) -> Callable[..., Any]:
    """Make a function whose arrays are ours; `bound` says that it is a method."""

    @functools.wraps(function)
    def ours(*args: Any, **kwargs: Any) -> Any:
        if is_tracing():
            scope = local.recorder.scope
            raise TypeError(
                f"a function under tiledarray.{scope.name} draws random numbers, which would be "
                f"{scope.drawn}; draw them outside, and make them an argument"
            )
        found = by_numpy.first_handle((args, kwargs))
        if found is None:
            return by_numpy.wrapped(function(*args, **kwargs), default_device())
        moving = _MOVING.get(name)
        places = [k for k, value in enumerate(args) if isinstance(value, Handle)]
        if moving is not None and by_places.any_keeps(*args) and len(places) == 1 and (
                by_numpy.first_handle(kwargs) is None):
            (k,) = places
            return moving(
                lambda places: function(*args[:k], places, *args[k + 1:], **kwargs), args[k])
        own, given = args[:bound], args[bound:]
        if name in _STRETCHED and len(given) <= len(_STRETCHED[name]) + 1 and by_places.any_keeps(
                *given, *kwargs.values()):
            legacy = not (bound and isinstance(args[0], _numpy.Generator))
            return _stretched(
                functools.partial(function, *own), name, given, kwargs, legacy=legacy)
        return by_numpy.call(f"random.{name}", function, args, kwargs)

    return ours


def _with_arrays_of_ours(base: type) -> Callable[[type], type]:
    """Let the drawing methods of a generator class return arrays of ours."""

    def decorate(made: type) -> type:
        for name in dir(base):
            if not name.startswith("_") and name not in _AS_THEY_ARE:
                original = getattr(base, name)
                ours = _drawing(name, original, bound=True)
                setattr(made, name, immediate.drawing(name, original, ours, bound=True))
        return made

    return decorate


@_with_arrays_of_ours(_numpy.Generator)
class Generator(_numpy.Generator):
    """NumPy's generator of random numbers, which fills arrays of ours."""

    __doc__ = _numpy.Generator.__doc__

    def __reduce__(self) -> Any:
        return Generator, (self.bit_generator,)


@_with_arrays_of_ours(_numpy.RandomState)
class RandomState(_numpy.RandomState):
    """NumPy's legacy generator of random numbers, which fills arrays of ours."""

    __doc__ = _numpy.RandomState.__doc__

    def __reduce__(self) -> Any:
        _, *given = super().__reduce__()
        return RandomState, *given


class SeedSequence(_numpy.SeedSequence):
    """NumPy's mixture of entropy, which takes it from arrays of ours, too."""

    __doc__ = _numpy.SeedSequence.__doc__

    def __init__(self, entropy: Any = None, **options: Any) -> None:
        super().__init__(seen(entropy), **options)


class _Either(type):
    """Takes NumPy's own sources for instances, which `default_rng` and NumPy make."""

    def __instancecheck__(cls, instance: Any) -> bool:
        base: Any = cls.__base__
        return isinstance(instance, base)


def _seeded_by_ours(base: Any) -> Any:
    """Return NumPy's source of random bits, which takes seeds from arrays of ours, too."""

    def init(self: Any, seed: Any = None, *args: Any, **options: Any) -> None:
        base.__init__(self, seen(seed), *map(seen, args),
                      **{name: seen(value) for name, value in options.items()})

    return _Either(base.__name__, (base,), {
        "__doc__": base.__doc__, "__module__": __name__, "__init__": init})


MT19937, PCG64, PCG64DXSM, Philox, SFC64 = map(_seeded_by_ours, (
    _numpy.MT19937, _numpy.PCG64, _numpy.PCG64DXSM, _numpy.Philox, _numpy.SFC64))


@functools.wraps(_numpy.default_rng)
def default_rng(seed: Any = None) -> Generator:
    """Return a generator seeded as NumPy's would be."""
    if isinstance(seed, Generator):
        return seed
    found = _numpy.default_rng(seen(seed))
    return Generator(found.bit_generator)


found_by(default_rng, "random.default_rng")


def _legacy() -> dict[str, Callable[..., Any]]:
    """Return the functions of the module's own hidden generator."""
    found = {}
    for name in dir(_numpy):
        function = getattr(_numpy, name)
        if name.startswith("_") or isinstance(function, type) or not callable(function):
            continue
        if name not in _AS_THEY_ARE and name not in ("default_rng", "test") and not name.endswith(
            "bit_generator"
        ):
            ours = _drawing(name, function, bound=False)
            found_by(ours, f"random.{name}")
            found[name] = immediate.drawing(name, function, ours, bound=False)
    return found


_LEGACY = _legacy()
KINDS.update({f"random.{name}": "host" for name in (*_LEGACY, "default_rng")})
_other = namespace_getattr(_numpy, __name__)


def __getattr__(name: str) -> Any:
    # The module keeps what was found, so that this runs once for each name.
    value = _LEGACY[name] if name in _LEGACY else _other(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*dir(_numpy), "Generator", "RandomState", "SeedSequence", "default_rng"})
