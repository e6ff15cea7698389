# SPDX-License-Identifier: Apache-2.0
"""MIG of a simulated machine by NVML, as nvidia-smi does it: another hand on the cards than the plugin's."""

import ctypes
import os
import pathlib

INVALID_ARGUMENT = 2  # NVML_ERROR_INVALID_ARGUMENT, of a handle of one that has ended


class Placement(ctypes.Structure):
    _fields_ = [("start", ctypes.c_uint), ("size", ctypes.c_uint)]


class Info(ctypes.Structure):
    _fields_ = [("device", ctypes.c_void_p), ("id", ctypes.c_uint), ("profile", ctypes.c_uint), ("placement", Placement)]


IDS = {"1g": 19, "1g+me": 20, "1g2": 15, "2g": 14, "3g": 9, "4g": 5, "7g": 0}
SIZES = {"1g": 1, "1g+me": 1, "1g2": 2, "2g": 2, "3g": 4, "4g": 4, "7g": 8}
COMPUTE = {"1g": 0, "1g+me": 0, "1g2": 0, "2g": 1, "3g": 2, "4g": 3, "7g": 4}


class Mig:
    def __init__(self, machine, folder):
        self.machine = machine
        self.nvml = ctypes.CDLL(str(pathlib.Path(folder) / "libnvidia-ml.so.1"))

    def __enter__(self):
        os.environ["HAMI_SIM"] = str(self.machine.path)
        assert self.nvml.nvmlInit_v2() == 0
        return self

    def __exit__(self, *error):
        self.nvml.nvmlShutdown()
        del os.environ["HAMI_SIM"]

    def card(self, gpu):
        handle = ctypes.c_void_p()
        assert self.nvml.nvmlDeviceGetHandleByIndex_v2(gpu, ctypes.byref(handle)) == 0
        return handle

    def set_mode(self, gpu, on=True):
        """What became of it: 0 done, 19 in use."""
        activation = ctypes.c_int(-1)
        r = self.nvml.nvmlDeviceSetMigMode(self.card(gpu), int(on), ctypes.byref(activation))
        assert r == 0, r
        return activation.value

    def mode(self, gpu):
        """(now, after a reset)"""
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        assert self.nvml.nvmlDeviceGetMigMode(self.card(gpu), ctypes.byref(current), ctypes.byref(pending)) == 0
        return current.value, pending.value

    def make(self, gpu, profile, start, compute=True):
        """A GPU instance and all of it as a compute instance; the MIG device's uuid."""
        instance, child = ctypes.c_void_p(), ctypes.c_void_p()
        placement = Placement(start, SIZES[profile])
        r = self.nvml.nvmlDeviceCreateGpuInstanceWithPlacement(self.card(gpu), IDS[profile], ctypes.byref(placement), ctypes.byref(instance))
        assert r == 0, r
        if not compute:
            return None
        r = self.nvml.nvmlGpuInstanceCreateComputeInstance(instance, COMPUTE[profile], ctypes.byref(child))
        assert r == 0, r
        return self.uuids(gpu)[start]

    def end(self, gpu, start):
        for instance, info in self.instances(gpu):
            child = ctypes.c_void_p()
            if info.placement.start != start:
                continue
            if self.nvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0, ctypes.byref(child)) == 0:
                assert self.nvml.nvmlComputeInstanceDestroy(child) == 0
            assert self.nvml.nvmlGpuInstanceDestroy(instance) == 0

    def instances(self, gpu):
        found = []
        for profile in IDS.values():
            handles, count = (ctypes.c_void_p * 16)(), ctypes.c_uint(16)
            if self.nvml.nvmlDeviceGetGpuInstances(self.card(gpu), profile, handles, ctypes.byref(count)) != 0:
                continue
            for handle in handles[: count.value]:
                info = Info()
                code = self.nvml.nvmlGpuInstanceGetInfo(ctypes.c_void_p(handle), ctypes.byref(info))
                assert code in (0, INVALID_ARGUMENT)
                if code == 0:  # else it has ended since it was listed
                    found.append((ctypes.c_void_p(handle), info))
        return found

    def placements(self, gpu):
        """[(profile's id, start)] of all GPU instances."""
        return sorted((info.profile, info.placement.start) for _, info in self.instances(gpu))

    def uuids(self, gpu):
        """By where they begin: the devices that programs can use."""
        found = {}
        for index in range(7):
            handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
            if self.nvml.nvmlDeviceGetMigDeviceHandleByIndex(self.card(gpu), index, ctypes.byref(handle)) == 0:
                assert self.nvml.nvmlDeviceGetUUID(handle, text, 96) == 0
                found[index] = text.value.decode()
        return found
