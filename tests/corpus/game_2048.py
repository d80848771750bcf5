"""The game 2048 by a greedy player with rot90, and connect four by looking for lines."""

import numpy as np

SIZES = {
    "test": {"side": 4, "moves": 5, "games": 1},
    "tiny": {"side": 4, "moves": 50, "games": 4},
    "middle": {"side": 12, "moves": 250, "games": 40},
    "large": {"side": 40, "moves": 400, "games": 120},
}


class Game2048:
    def __init__(self, side, seed):
        self.board = np.zeros((side, side), dtype=int)
        self.state = seed
        self.score = 0
        self.spawn()

    def random(self, n):
        self.state = (1103515245 * self.state + 12345) % 2**31
        return (self.state >> 8) % n

    def spawn(self):
        empty = np.argwhere(self.board == 0)
        if len(empty):
            r, c = empty[self.random(len(empty))]
            self.board[r, c] = 4 if self.random(10) == 0 else 2

    @staticmethod
    def slide(row):
        tiles = row[row != 0]
        merged, score, k = [], 0, 0
        while k < len(tiles):
            if k + 1 < len(tiles) and tiles[k] == tiles[k + 1]:
                merged.append(2 * int(tiles[k]))
                score += merged[-1]
                k += 2
            else:
                merged.append(int(tiles[k]))
                k += 1
        return np.array(merged + [0] * (len(row) - len(merged)), dtype=row.dtype), score

    def look(self, direction):
        turned = np.rot90(self.board, direction).copy()
        total = 0
        for i, row in enumerate(turned):
            turned[i], score = self.slide(row)
            total += score
        return np.rot90(turned, -direction), total

    def move(self):
        options = [self.look(d) for d in range(4)]
        legal = [k for k in range(4) if not np.array_equal(options[k][0], self.board)]
        if not legal:
            return False
        best = max(legal, key=lambda k: (options[k][1], np.sum(options[k][0] == 0), -k))
        self.board, score = options[best]
        self.score += score
        self.spawn()
        return True


def winner(board):
    """Four in a line of the same player, anywhere."""
    for player in (1, 2):
        own = board == player
        across = own[:, :-3] & own[:, 1:-2] & own[:, 2:-1] & own[:, 3:]
        down = own[:-3] & own[1:-2] & own[2:-1] & own[3:]
        slanted = own[:-3, :-3] & own[1:-2, 1:-2] & own[2:-1, 2:-1] & own[3:, 3:]
        other = own[3:, :-3] & own[2:-1, 1:-2] & own[1:-2, 2:-1] & own[:-3, 3:]
        if across.any() or down.any() or slanted.any() or other.any():
            return player
    return 0


def connect_four(rng):
    board = np.zeros((6, 7), dtype=np.int8)
    for turn in range(42):
        column = rng.choice(np.flatnonzero(board[0] == 0))
        row = np.count_nonzero(board[:, column] == 0) - 1
        board[row, column] = 1 + turn % 2
        if turn > 5 and winner(board):
            break
    return winner(board), board


def make(side, moves, games):
    return side, moves, games


def run(side, moves, games):
    game = Game2048(side, 7)
    played = 0
    while played < moves and game.move():
        played += 1
    rng = np.random.RandomState(55)
    ends = [connect_four(rng) for _ in range(games)]
    wins = np.bincount([who for who, _ in ends], minlength=3)
    return game.board, game.score, played, wins, np.sum([board != 0 for _, board in ends], axis=0)
