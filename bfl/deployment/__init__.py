"""A federation on real machines: certificates, keys, the list of clients, and the processes.

What is wrong with a setting is a ConfigurationError, what is wrong with a file a DataError, and a
process that has ended a RunError; each message names the server or the client.
"""
