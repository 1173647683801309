"""Training of the small parts beside a frozen target: drafts, heads and adapters.

`cli` reads the command line; every subcommand is a module with add_arguments(parser) and
run(options) that is imported only when it is asked for. `data`, `prompts` and `shards` need numpy
alone; PyTorch is needed for what trains.
"""
