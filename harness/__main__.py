"""`python -m harness` is `sbd`, for places where scripts are not on the path."""

from harness.cli import main

main()
