"""sbd: does Set Block Decoding really make this model 3-5x faster on this hardware?

Importing the package loads neither torch nor transformers; see README.md for the map of the house.
"""

__version__ = "0.1.0"
