# SPDX-License-Identifier: Apache-2.0
"""What a limit may change of what anything.py's calls are answered."""

from anything_calls import *
from anything_setting import *


class Judge:
    """What a limit may change, and nothing else may be."""

    def __init__(self, setting):
        self.setting = setting
        self.begin()

    on_device = [f"t{TEXT_PROP + i}" for i in range(ON_DEVICE)]

    def begin(self):
        """Nothing is there yet."""
        self.code = []  # slots of modules and libraries, and what they take in a context at most
        self.stacks = False  # code was loaded that makes stacks grow
        self.contexts = self.setting.gpus
        self.unseen_bytes = 0
        self.node_bytes = 0  # of executable graphs, in each of four processes
        self.graph_bytes = 0  # of all nodes that allocate
        self.captured = set()  # streams
        self.imported = False  # any memory, by a descriptor

    def stack_bytes(self):
        """What a launch may make a context's stack grow by."""
        return (LOCAL_BYTES - DEFAULT_LIMITS[0]) * SMS * STACK_THREADS if self.stacks else 0

    def code_bytes(self):
        return sum(size for _, size in self.code)

    def image_bytes(self, call):
        number = [int(word[1:]) for word in call.words if word[0] == "t"][0]
        if number >= TEXT_PATH:
            number -= TEXT_PATH
        return IMAGE_BYTES[number] if number < len(IMAGE_BYTES) else 0

    def need(self, call):
        """How many bytes a call takes if it succeeds, at least; None where memory is not its affair."""
        name, numbers = call.name, call.number
        if name in ("cuMemAlloc_v2", "cuMemAlloc"):
            return paged(numbers(1) % 2 ** (32 if name == "cuMemAlloc" else 64))
        if name.startswith("cuMemAllocPitch"):
            return paged(round_up(numbers(2)) * numbers(3))
        if name.startswith(("cuMemAllocAsync", "cuMemAllocFromPool")):
            return round_up(numbers(1), PIECE)
        if name.startswith(("cuGraphLaunch", "cuGraphUpload", "cuGraphInstantiateWithParams")):
            # Which graph it is nobody knows here: tests/vgpu/graphs.py is exact.
            return self.graph_bytes + self.setting.nodes * ("Instantiate" in name) or None
        if name.startswith("cuArray") and "Create" in name:
            return paged(array_bytes(self.array_of(call))) or None
        if name == "cuMipmappedArrayCreate":
            return paged(array_bytes(self.array_of(call), numbers(2))) or None
        if name.startswith(("cuLaunchKernel", "cuLaunchCooperative", "cuLaunchGrid")) or name == "cuLaunch":
            return self.stack_bytes() or None
        if name == "cuIpcGetMemHandle":
            return 2 * MIB
        if name == "cuMemAllocManaged":
            return round_up(numbers(1)) if self.setting.managed == "full" else None
        if name == "cuMemCreate":
            return numbers(1) if call.words[2] in self.on_device else None
        if name.startswith("cuCtxCreate") or name in ("cuDevicePrimaryCtxRetain", "cuGreenCtxCreate"):
            return CONTEXT + (self.code_bytes() if self.setting.eager else 0)
        if name.startswith("cuGraphInstantiate"):
            return max(1, self.setting.nodes)  # of graphs that were made before as well
        if name.startswith(("cuStreamCreate", "cuGreenCtxStreamCreate")):
            return 1  # none is made where more is charged than the limit
        if name.startswith(("cuModuleLoad", "cuLibraryLoad")):
            return max(1, paged(self.image_bytes(call)) * self.contexts if self.setting.eager else 1)
        if name == "cuCtxSetLimit":
            limit, value = numbers(0), numbers(1)
            # What was set before is not looked at here: it may have been nothing.
            return max(1, value * (SMS * STACK_THREADS if limit == 0 else 1) if limit in DEFAULT_LIMITS else 1)
        return None

    @staticmethod
    def array_of(call):
        shape, form = divmod(int(call.words[1][1:]) - TEXT_ARRAY, 4)
        width, height, depth, kind, channels, flags = ARRAYS[shape]
        # The first two forms have neither depth nor flags.
        return ARRAYS[shape] if form > 1 else (width, height, 0, kind, channels, 0)

    def takes(self, call):
        return self.need(call) is not None

    def may_keep(self, call):
        """Whether it may say that no descriptor is made, of what came as one; or that a graph has no managed memory that is no device's."""
        last = call.words[-1] if call.words else ""
        if call.name.startswith(("cuGraphAdd", "cuMemAllocFromPoolAsync")):
            return last.endswith((",2,2", ",3,2")) or last in self.captured
        return self.imported and call.name in ("cuMemExportToShareableHandle", "cuMemGetHandleForAddressRange")

    def may_refuse(self, call, most):
        """Whether out of memory is right when at most so much was in use on the fullest device."""
        need = self.need(call)
        return need is not None and most + need > self.setting.limit

    def heard(self, call, answer):
        if answer.split()[0] != "0":
            return
        self.heard_of_graphs(call)
        self.imported |= call.name == "cuMemImportFromShareableHandle"
        if call.name.startswith("cuGraphInstantiate"):
            self.node_bytes = min(self.node_bytes + PIECE, 4 * self.setting.nodes)
        if call.name.startswith(("cuModuleLoad", "cuLibraryLoad")):
            self.code.append((call.makes, paged(self.image_bytes(call))))
            self.stacks |= "t3" in call.words
        elif call.name in ("cuModuleUnload", "cuLibraryUnload"):
            # The latest in this slot: what was there before is out of reach, and still loaded.
            at = max((i for i, (slot, _) in enumerate(self.code) if slot == call.ends), default=None)
            if at is not None:
                del self.code[at]
        elif call.name.startswith("cuCtxCreate"):
            self.contexts += 1
        elif call.way == "t":
            # Known as soon as it is current somewhere, and then there is nothing to refuse.
            self.unseen_bytes = self.setting.gpus * CONTEXT

    def heard_of_graphs(self, call):
        if "BeginCapture" in call.name:
            self.captured.add(call.words[0])
        elif "AllocAsync" in call.name or "AllocFromPool" in call.name:
            if call.words[-1] in self.captured:
                self.graph_bytes += round_up(call.number(1), PIECE)
        elif call.also:
            self.graph_bytes += round_up(int(call.words[-1].split(",")[2]), PIECE)

    def lag(self):
        """What launches load and make grow nobody can refuse, and it is charged a little later."""
        if self.setting.strict:
            return 0
        return self.contexts * (self.stack_bytes() + self.code_bytes()) + self.unseen_bytes + self.node_bytes

    def numbers(self, call, words, used, room):
        """Checks what is told of sizes, right after which so much was in use. None, or what is wrong."""
        limit = self.setting.limit
        if words[0] != "0" or len(words) < 2 or "kept" in words:
            return None
        data = [bytes.fromhex(word) for word in words[1:] if word not in ("kept", "null")]
        values = [int.from_bytes(word[i : i + 8], "little") for word in data for i in range(0, len(word), 8)]
        if call.name.startswith("cuDeviceTotalMem"):
            return None if values == [limit] else f"total {values}, limit {limit}"
        if call.name.startswith("cuMemGetInfo") and len(values) == 2:
            return self.free_of(values[1], values[0], None, used, room)
        if call.name == "nvmlDeviceGetMemoryInfo":
            return self.free_of(values[0], values[1], values[2], used, room)
        if call.name == "nvmlDeviceGetMemoryInfo_v2":
            return self.free_of(values[1], values[3], values[4], used, room)
        return None

    def free_of(self, total, free, in_use, used, room):
        limit = self.setting.limit
        if total != limit:
            return f"total {total}, limit {limit}"
        if in_use is not None and in_use + free != total:
            return f"used {in_use} and free {free} are not {total}"
        left = [limit - min(limit, one) for one in used or []]
        # Managed pages may have taken the device beyond what is charged for them.
        left += [min(one, more) for one, more in zip(left, room)]
        if used is not None and not any(abs(one - free) <= self.lag() for one in left):
            return f"free {free}, but of {limit} are used {used}"
        return None
