"""A federation on real machines: certificates, keys, the list of clients, and the processes."""
