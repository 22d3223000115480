"""Running a Flower app: on Ray actors, in this process, and what a process may use.

- ``flower``: the one door to Flower's moving parts (its simulation runtime, its app format).
- ``serial``: a grid that calls the ClientApp in the calling process.
- ``resources``: the CPUs that a process may use, and the memory that it holds.
- ``health``: whether the engine is alive, for those who wait for it.
- ``quiet``: TensorFlow's banner left out.
"""
