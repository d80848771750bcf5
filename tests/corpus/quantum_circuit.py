"""State vectors of qubits: gates by tensordot and by kron, Fourier transform, Grover search."""

import numpy as np

SIZES = {
    "test": {"qubits": 3, "small": 2, "rounds": 1},
    "tiny": {"qubits": 6, "small": 4, "rounds": 12},
    "middle": {"qubits": 14, "small": 7, "rounds": 6},
    "large": {"qubits": 19, "small": 9, "rounds": 1},
}
H = np.array([[1, 1], [1, -1]]) / np.sqrt(2)
X = np.array([[0, 1], [1, 0]])


def make(qubits, small, rounds):
    state = np.zeros(2**qubits, dtype=complex)
    state[0] = 1
    return state, qubits, small, rounds


def apply(state, gate, target, n):
    psi = state.reshape([2] * n)
    psi = np.tensordot(gate, psi, axes=(1, target))
    return np.moveaxis(psi, 0, target).reshape(-1)


def controlled_phase(state, angle, control, target, n):
    """In place, on a view of the amplitudes where both are 1."""
    psi = state.reshape([2] * n)
    key = [slice(None)] * n
    key[control] = key[target] = 1
    psi[tuple(key)] *= np.exp(1j * angle)


def fourier(state, n):
    for i in range(n):
        state = apply(state, H, i, n)
        for j in range(i + 1, n):
            controlled_phase(state, np.pi / 2 ** (j - i), j, i, n)
    return state.reshape([2] * n).transpose(range(n)[::-1]).reshape(-1)


def by_kron(gates):
    whole = np.eye(1)
    for gate in gates:
        whole = np.kron(whole, gate)
    return whole


def grover(n, marked):
    size = 2**n
    state = np.full(size, 1 / np.sqrt(size))
    for _ in range(int(np.pi / 4 * np.sqrt(size))):
        state[marked] *= -1
        state = 2 * state.mean() - state
    return state


def run(state, n, small, rounds):
    for k in range(rounds):
        for target in range(n):
            angle = 0.1 * (target + 1) + 0.05 * k
            c, s = np.cos(angle), np.sin(angle)
            state[:] = apply(state, np.array([[c, -s], [s, c]]), target, n)
        controlled_phase(state, 0.3, 0, n - 1, n)
    assert np.isclose(np.vdot(state, state).real, 1)
    transformed = fourier(state, n)
    assert np.allclose(transformed, np.fft.ifft(state, norm="ortho"))
    start = np.eye(2**small)[0]
    full = by_kron([H] * (small - 1) + [X]) @ start
    found = grover(small, 2**small - 2)
    chances = np.abs(transformed) ** 2
    entropy = -np.sum(chances * np.log2(chances + 1e-30))
    return transformed, full, found, found.argmax(), entropy
