"""What a user holds: `TiledArray`, its views, writes, methods and operators."""
