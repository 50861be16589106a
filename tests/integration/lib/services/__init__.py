"""Other parties of a test: hosts, storages and databases of our own."""
