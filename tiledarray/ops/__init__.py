"""The ops: what each computes, in one declaration."""
