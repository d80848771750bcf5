"""All peers by name.  A peer whose package is missing refuses with the reason."""

from benchmarks.peers.cupy_peer import CuPy
from benchmarks.peers.host import Numba, NumExpr, NumPy
from benchmarks.peers.jax_peer import Jax
from benchmarks.peers.peer import Peer, Refused
from benchmarks.peers.tiledarray_peer import TiledArray, TiledArrayJit
from benchmarks.peers.torch_peer import Torch, TorchCompile, TorchLibrary

PEERS: dict[str, type[Peer]] = {
    peer.name: peer
    for peer in (
        NumPy, TiledArray, TiledArrayJit, NumExpr, Numba, CuPy, Jax, Torch, TorchLibrary,
        TorchCompile,
    )
}  # fmt: skip

__all__ = ["PEERS", "Peer", "Refused"]
