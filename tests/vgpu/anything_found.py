# SPDX-License-Identifier: Apache-2.0
"""What anything.py once found, cut short: a sentence, what of the setting matters, and the calls."""

from anything_calls import MIB

BEGIN = """
call 0 s cuInit i0
call 0 s cuDevicePrimaryCtxRetain n33 i0
call 0 s cuCtxSetCurrent h33
call 0 s cuMemGetInfo_v2 o8 o8
"""

FOUND = [
]
