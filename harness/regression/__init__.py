"""Two or more runs held against each other: may they be compared, what changed, and does a change fail a build.

In: runs as they were recorded, or two revisions that are measured in fresh processes. Out: changes, judgements, an exit code.
Open ``gate`` first; ``history`` keeps the figures of runs over time.
"""
