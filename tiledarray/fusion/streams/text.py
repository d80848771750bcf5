"""Stream programs as text to read."""

from __future__ import annotations

from tiledarray.fusion.streams.ir import Growth, Operand, StreamProgram, Weighted
from tiledarray.fusion.streams.kernel import Shape
from tiledarray.fusion.tiles.text import Expressions


def text_of(program: StreamProgram, shape: Shape) -> str:
    """Return a program as text: what is done with each tile, then with what is combined.

    Axis ``i0`` are the product's columns, ``i1`` those of what rows are multiplied with, and
    ``i2`` is summed in the product; ``b0`` and so on are the places along the batch axes, the last
    one of them the row.
    """
    writer = Expressions(program)

    def operand(matrix: Operand) -> str:
        return writer.read(matrix.value, matrix.index)

    def grown(tile: object, growth: Growth | None) -> str:
        if growth is None:
            return f"{tile}"
        added = f"new {growth.extremum} - old {growth.extremum}"
        return f"{tile} * {writer.value(growth.factor)}".replace(f"{growth.extremum}[]", added)

    lengths = " x ".join(map(str, program.lengths[:-1])) or "1"
    lines = [
        f"for each of {lengths} products, {shape.rows} of {program.rows} rows at a time:",
        f"  for each {shape.columns} of {program.columns} columns, {shape.stages} tiles in turn:"]
    if program.mask is not None:
        negated = "" if program.mask.taken else "not "
        condition = writer.value(program.mask.condition)
        lines.append(f"    leave out where nowhere {negated}{condition}, "
                     f"if {writer.value(program.mask.other)} is infinite")
    lines.append(f"    {program.scores} = {operand(program.left)} @ {operand(program.right)}, "
                 f"summed over i2 < {program.depth}")
    if program.held is not None:
        lines.append(f"    x1 = {writer.value(program.held)}")
        writer.names[program.held] = "x1"
    for total in program.extrema:
        most = f"{total.kind}({total.tile}, {writer.value(total.expression)})"
        lines.append(f"    {total.tile} = {most}")
    asked = [each.weights if isinstance(each, Weighted) else each.expression
             for each in program.added]
    for expression in dict.fromkeys(asked):
        if asked.count(expression) > 1:
            lines.append(f"    x2 = {writer.value(expression)}")
            writer.names[expression] = "x2"
    for total in program.sums:
        lines.append(f"    {total.tile} = {grown(total.tile, total.growth)} + "
                     f"sum {writer.value(total.expression)}")
    for product in program.products:
        lines.append(f"    {product.tile} = {grown(product.tile, product.growth)} + "
                     f"{writer.value(product.weights)} @ {operand(product.right)}")
    for store in program.stores:
        where = f" for i1 < {store.domain[1]}" if store.domain[1] > 1 else ""
        lines.append(f"  store {writer.read(store.target.args[0], store.index)} = "
                     f"{writer.value(store.expression)}{where}")
    return "\n".join(lines) + "\n"
