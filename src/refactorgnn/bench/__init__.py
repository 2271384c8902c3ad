"""How fast it is: each row of the benchmark beside the products it cannot do without, and beside its rivals."""
