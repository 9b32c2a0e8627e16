"""What ``generate(custom_generate=FOLDER, trust_remote_code=True)`` runs: SBD decoding of the installed package sbd-bench.

transformers copies this file alone and executes it, hence trust_remote_code. All that it does is in
harness.integrations.custom_generate.
Keyword arguments are those of generate(), and ``arm`` and ``mask_token_id``.
"""

from __future__ import annotations

from typing import Any

from transformers import GenerationMixin

# In a try block: else transformers advises to install a package of the module's name, which is another project's.
try:
    from harness.integrations.custom_generate import refuse_unseen, sbd
except ImportError as error:
    raise ImportError("this decoding method needs the package sbd-bench: pip install 'sbd-bench[run]'") from error


def generate(model: Any, **options: Any) -> Any:
    """generate() with our decoding loop; options that it would drop on the way there are refused."""
    refuse_unseen(options)
    return GenerationMixin.generate(model, custom_generate=sbd, **options)
