"""nvidia-ml-py through the life of an instance, on a simulated machine.

usage: lifecycle.py CASE [ARGUMENT...]

A case is a function of this name below. The library is whichever
libnvidia-ml.so.1 the loader finds. The codes expected are those of NVML's
documentation and of real drivers: nvidia-smi checks much by itself, so the
library's own checks are seen only here.
"""

import ctypes
import os
import sys

import pynvml as nvml

SUCCESS, UNINITIALIZED, INVALID, UNSUPPORTED, DENIED, NOT_FOUND = 0, 1, 2, 3, 4, 6
RESET_REQUIRED, IN_USE, NO_ROOM = 16, 19, 23
SHARED = nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
JUNK = 0x5EEDED


def same(what, got, expected):
    assert got == expected, f"{what}: {got!r}, not {expected!r}"


def code(call, *arguments):
    """The code that a call answers."""
    try:
        call(*arguments)
    except nvml.NVMLError as error:
        return error.value
    return SUCCESS


def refused(expected, call, *arguments):
    allowed = expected if isinstance(expected, tuple) else (expected,)
    got = code(call, *arguments)
    shown = ", ".join(str(a) for a in arguments)
    assert got in allowed, f"{call.__name__}({shown}): {got}, not {expected}"


def address(handle):
    return ctypes.cast(handle, ctypes.c_void_p).value


def at(start, size):
    return ctypes.byref(nvml.c_nvmlGpuInstancePlacement_t(start, size))


def ci_at(start, size):
    return ctypes.byref(nvml.c_nvmlComputeInstancePlacement_t(start, size))


def placements(call, kind, parent, profile):
    """Asked twice, as nvidia-smi does: how many (the count that goes in is
    junk), then which. What lies behind the last one stays as it was."""
    count = ctypes.c_uint(JUNK)
    call(parent, profile, None, ctypes.byref(count))
    assert count.value < 64, f"{call.__name__}({profile}) counts {count.value}"
    array = (kind * (count.value + 1))()
    array[count.value].start = array[count.value].size = JUNK
    again = ctypes.c_uint(count.value)
    call(parent, profile, array, ctypes.byref(again))
    same("count of placements", again.value, count.value)
    same("behind the last placement", (array[count.value].start, array[count.value].size), (JUNK, JUNK))
    return [(p.start, p.size) for p in array[: count.value]]


def gi_placements(gpu, profile):
    return placements(
        nvml.nvmlDeviceGetGpuInstancePossiblePlacements, nvml.c_nvmlGpuInstancePlacement_t, gpu, profile
    )


def ci_placements(gi, profile):
    return placements(
        nvml.nvmlGpuInstanceGetComputeInstancePossiblePlacements, nvml.c_nvmlComputeInstancePlacement_t, gi, profile
    )


def instances(call, kind, parent, profile, most):
    """The count that comes in means nothing, clients pass what was left in it;
    never more than a profile's instance count is written."""
    lists = []
    for left_over in (0, JUNK):
        array = (kind * (most + 1))()
        array[most] = ctypes.cast(ctypes.c_void_p(JUNK), kind)
        count = ctypes.c_uint(left_over)
        call(parent, profile, array, ctypes.byref(count))
        assert count.value <= most, f"{call.__name__}({profile}) counts {count.value}, more than {most}"
        same("behind the last instance", address(array[most]), JUNK)
        lists.append([array[i] for i in range(count.value)])
    same("instances, whatever the count", *[[address(i) for i in found] for found in lists])
    return lists[0]


def gi_list(gpu, profile, most):
    return [
        nvml.nvmlGpuInstanceGetInfo(gi).id
        for gi in instances(nvml.nvmlDeviceGetGpuInstances, nvml.c_nvmlGpuInstance_t, gpu, profile, most)
    ]


def ci_list(gi, profile, most):
    return [
        nvml.nvmlComputeInstanceGetInfo(ci).id
        for ci in instances(
            nvml.nvmlGpuInstanceGetComputeInstances, nvml.c_nvmlComputeInstance_t, gi, profile, most
        )
    ]


def capacity(gpu):
    return {
        profile: nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, profile)
        for profile in (19, 20, 15, 14, 9, 5, 0)
    }


def mig_devices(gpu):
    """(GI, CI, UUID) of each, found as all clients do: every index to the
    maximum, an empty one passed over."""
    found = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
        except nvml.NVMLError as error:
            same(f"MIG device {index}", error.value, NOT_FOUND)
            continue
        same("index of a MIG device", nvml.nvmlDeviceGetIndex(device), index)
        found.append(
            (
                nvml.nvmlDeviceGetGpuInstanceId(device),
                nvml.nvmlDeviceGetComputeInstanceId(device),
                nvml.nvmlDeviceGetUUID(device),
            )
        )
    return found


# Profile enum of nvml.h -> id, slices, most, SMs, copy engines, decoders, JPEG,
# OFA, MB, name: an A100-80GB as NVIDIA's MIG User Guide and nvidia-smi show it.
A100_80GB = {
    0: (19, 1, 7, 14, 1, 0, 0, 0, 9728, "MIG 1g.10gb"),
    1: (14, 2, 3, 28, 2, 1, 0, 0, 19968, "MIG 2g.20gb"),
    2: (9, 3, 2, 42, 3, 2, 0, 0, 40192, "MIG 3g.40gb"),
    3: (5, 4, 1, 56, 4, 2, 0, 0, 40192, "MIG 4g.40gb"),
    4: (0, 7, 1, 98, 7, 5, 1, 1, 80640, "MIG 7g.80gb"),
    7: (20, 1, 1, 14, 1, 1, 1, 1, 9728, "MIG 1g.10gb+me"),
    9: (15, 1, 4, 14, 1, 1, 0, 0, 19968, "MIG 1g.20gb"),
}
A100_PLACEMENTS = {
    19: [(start, 1) for start in range(7)],
    20: [(start, 1) for start in range(7)],
    15: [(0, 2), (2, 2), (4, 2), (6, 2)],
    14: [(0, 2), (2, 2), (4, 2)],
    9: [(0, 4), (4, 4)],
    5: [(0, 4)],
    0: [(0, 8)],
}


def devices():
    """Two A100-80GB, MIG on: counted, found and named every way there is."""
    nvml.nvmlInit()
    same("count", nvml.nvmlDeviceGetCount(), 2)
    refused(INVALID, nvml.nvmlDeviceGetHandleByIndex, 2)
    uuids = set()
    for index in range(2):
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
        same("index", nvml.nvmlDeviceGetIndex(gpu), index)
        same("minor", nvml.nvmlDeviceGetMinorNumber(gpu), index)
        assert "A100" in nvml.nvmlDeviceGetName(gpu), nvml.nvmlDeviceGetName(gpu)
        uuid = nvml.nvmlDeviceGetUUID(gpu)
        assert uuid.startswith("GPU-") and len(uuid) == 40, uuid
        uuids.add(uuid)
        bus = nvml.nvmlDeviceGetPciInfo(gpu).busId
        # Eight digits of domain, capital letters: not what the kernel writes.
        assert len(bus) == 16 and bus == bus.upper(), bus
        for way, handle in (
            ("UUID", nvml.nvmlDeviceGetHandleByUUID(uuid)),
            ("bus id", nvml.nvmlDeviceGetHandleByPciBusId(bus)),
        ):
            same(f"index by {way}", nvml.nvmlDeviceGetIndex(handle), index)
        same("MIG mode", nvml.nvmlDeviceGetMigMode(gpu), [1, 1])
        same("most MIG devices", nvml.nvmlDeviceGetMaxMigDeviceCount(gpu), 7)
        same("is a MIG device", nvml.nvmlDeviceIsMigDeviceHandle(gpu).value, 0)
        same("architecture", nvml.nvmlDeviceGetArchitecture(gpu), nvml.NVML_DEVICE_ARCH_AMPERE)
        for version in (None, nvml.nvmlMemory_v2):
            memory = nvml.nvmlDeviceGetMemoryInfo(gpu, version)
            same("memory", memory.total, 81920 << 20)
            assert memory.used + memory.free <= memory.total, memory
        refused((INVALID, UNSUPPORTED), nvml.nvmlDeviceGetGpuInstanceId, gpu)
        refused((INVALID, UNSUPPORTED), nvml.nvmlDeviceGetComputeInstanceId, gpu)
    same("UUIDs", len(uuids), 2)
    refused(NOT_FOUND, nvml.nvmlDeviceGetHandleByUUID, "GPU-00000000-0000-0000-0000-000000000000")
    refused((INVALID, NOT_FOUND), nvml.nvmlDeviceGetHandleByUUID, "nonsense")
    refused((INVALID, NOT_FOUND), nvml.nvmlDeviceGetHandleByPciBusId, "00000000:FF:1F.0")
    assert nvml.nvmlSystemGetDriverVersion()
    nvml.nvmlShutdown()


def profiles():
    """Every profile, in both versions of the structure, and its placements."""
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    seen = {}
    for enum in range(18):
        got = code(nvml.nvmlDeviceGetGpuInstanceProfileInfo, gpu, enum)
        same(f"profile {enum}, version 1", code(nvml.nvmlDeviceGetGpuInstanceProfileInfo, gpu, enum, 1), got)
        if got == UNSUPPORTED:
            continue
        same(f"profile {enum}", got, SUCCESS)
        two = nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, enum)
        one = nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, enum, version=1)
        numbers = tuple(
            (i.id, i.sliceCount, i.instanceCount, i.multiprocessorCount, i.copyEngineCount)
            + (i.decoderCount, i.jpegCount, i.ofaCount, i.memorySizeMB)
            for i in (one, two)
        )
        same(f"versions 1 and 2 of profile {enum}", numbers[0], numbers[1])
        same(f"P2P and encoders of {enum}", (two.isP2pSupported, two.encoderCount), (0, 0))
        name = two.name.decode() if isinstance(two.name, bytes) else two.name
        seen[enum] = numbers[1] + (name,)
    same("profiles", seen, A100_80GB)
    for enum in (18, 99, 0xFFFFFFFF):
        refused(INVALID, nvml.nvmlDeviceGetGpuInstanceProfileInfo, gpu, enum)
        refused(INVALID, nvml.nvmlDeviceGetGpuInstanceProfileInfo, gpu, enum, 1)

    same("placements", {profile: gi_placements(gpu, profile) for profile in A100_PLACEMENTS}, A100_PLACEMENTS)
    same("capacity", capacity(gpu), {19: 7, 20: 1, 15: 4, 14: 3, 9: 2, 5: 1, 0: 1})
    # 1g.24gb+me of another model: no such profile here.
    refused(UNSUPPORTED, gi_placements, gpu, 21)
    refused(UNSUPPORTED, nvml.nvmlDeviceGetGpuInstanceRemainingCapacity, gpu, 21)

    # A structure that says it is of another version.
    info = nvml.c_nvmlGpuInstanceProfileInfo_v2_t()
    info.version = 0x07000098
    same(
        "a structure of version 7",
        nvml._nvmlGetFunctionPointer("nvmlDeviceGetGpuInstanceProfileInfoV")(gpu, 0, ctypes.byref(info)),
        INVALID,
    )
    nvml.nvmlShutdown()


def life():
    """A GPU instance and its compute instance from nothing to nothing."""
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    gpu_uuid = nvml.nvmlDeviceGetUUID(gpu)
    empty = capacity(gpu)
    same("MIG devices", mig_devices(gpu), [])

    gi = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 19, at(6, 1))
    info = nvml.nvmlGpuInstanceGetInfo(gi)
    # GPU instance ids on an A100: eighths are 7 to 14, so 1g at 6 is 13.
    same(
        "GPU instance",
        (info.id, info.profileId, info.placement.start, info.placement.size),
        (13, 19, 6, 1),
    )
    same("its GPU", nvml.nvmlDeviceGetIndex(info.device), 0)
    same("capacity", capacity(gpu), {19: 6, 20: 1, 15: 3, 14: 3, 9: 1, 5: 1, 0: 0})
    same("list", gi_list(gpu, 19, 7), [13])
    same("list of another profile", gi_list(gpu, 14, 3), [])
    same("by id", nvml.nvmlGpuInstanceGetInfo(nvml.nvmlDeviceGetGpuInstanceById(gpu, 13)).profileId, 19)
    refused(NOT_FOUND, nvml.nvmlDeviceGetGpuInstanceById, gpu, 7)
    same("MIG devices without a compute instance", mig_devices(gpu), [])
    other = nvml.nvmlDeviceGetHandleByIndex(1)
    same("the other GPU", (gi_list(other, 19, 7), capacity(other)), ([], empty))

    same("compute profile", nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, 0, SHARED).id, 0)
    same("compute capacity", nvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(gi, 0), 1)
    same("compute placements", ci_placements(gi, 0), [(0, 1)])
    ci = nvml.nvmlGpuInstanceCreateComputeInstance(gi, 0)
    info = nvml.nvmlComputeInstanceGetInfo(ci)
    same(
        "compute instance",
        (info.id, info.profileId, info.placement.start, info.placement.size),
        (0, 0, 0, 1),
    )
    # Not the MIG device: the field is the parent GPU.
    same("its GPU", nvml.nvmlDeviceGetIndex(info.device), 0)
    same("its device is a MIG device", nvml.nvmlDeviceIsMigDeviceHandle(info.device).value, 0)
    same("its GPU instance", nvml.nvmlGpuInstanceGetInfo(info.gpuInstance).id, 13)
    same("compute capacity", nvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(gi, 0), 0)
    same("compute instances", ci_list(gi, 0, 1), [0])

    ((gi_id, ci_id, uuid),) = mig_devices(gpu)
    same("MIG device", (gi_id, ci_id), (13, 0))
    assert uuid.startswith("MIG-") and len(uuid) == 40, uuid
    device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
    same("is a MIG device", nvml.nvmlDeviceIsMigDeviceHandle(device).value, 1)
    refused(NOT_FOUND, nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 1)
    refused(INVALID, nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, JUNK)
    parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
    same("its parent", nvml.nvmlDeviceGetUUID(parent), gpu_uuid)
    assert "1g.10gb" in nvml.nvmlDeviceGetName(device), nvml.nvmlDeviceGetName(device)
    # Today's form of the UUID, and that of drivers before R470.
    for form in (uuid, f"MIG-{gpu_uuid}/13/0"):
        found = nvml.nvmlDeviceGetHandleByUUID(form)
        same(f"UUID of {form}", nvml.nvmlDeviceGetUUID(found), uuid)
    for form in (f"MIG-{gpu_uuid}/13/1", f"MIG-{gpu_uuid}/12/0"):
        refused((INVALID, NOT_FOUND), nvml.nvmlDeviceGetHandleByUUID, form)
    attributes = nvml.nvmlDeviceGetAttributes(device)
    same(
        "attributes",
        (
            attributes.multiprocessorCount,
            attributes.sharedCopyEngineCount,
            attributes.sharedDecoderCount,
            attributes.gpuInstanceSliceCount,
            attributes.computeInstanceSliceCount,
            attributes.memorySizeMB,
        ),
        (14, 1, 0, 1, 1, 9728),
    )
    for version in (None, nvml.nvmlMemory_v2):
        same("memory", nvml.nvmlDeviceGetMemoryInfo(device, version).total, 9728 << 20)
    same("processes", nvml.nvmlDeviceGetComputeRunningProcesses(gpu), [])
    # Of a GPU with MIG on only the instances can be asked for attributes.
    refused(UNSUPPORTED, nvml.nvmlDeviceGetAttributes, nvml.nvmlDeviceGetHandleByIndex(1))

    refused(IN_USE, nvml.nvmlGpuInstanceDestroy, gi)
    same("nothing happened", mig_devices(gpu), [(13, 0, uuid)])
    nvml.nvmlComputeInstanceDestroy(ci)
    same("MIG devices", mig_devices(gpu), [])
    refused(NOT_FOUND, nvml.nvmlGpuInstanceGetComputeInstanceById, gi, 0)
    refused(NOT_FOUND, nvml.nvmlDeviceGetHandleByUUID, uuid)
    # Which of the two a handle of something gone gives is not documented.
    refused((INVALID, NOT_FOUND), nvml.nvmlDeviceGetUUID, device)
    refused((INVALID, NOT_FOUND), nvml.nvmlComputeInstanceDestroy, ci)
    # Half destroyed: only a list of GPU instances shows it.
    same("list", gi_list(gpu, 19, 7), [13])
    nvml.nvmlGpuInstanceDestroy(gi)
    refused(NOT_FOUND, nvml.nvmlDeviceGetGpuInstanceById, gpu, 13)
    refused((INVALID, NOT_FOUND), nvml.nvmlGpuInstanceDestroy, gi)
    refused((INVALID, NOT_FOUND), nvml.nvmlGpuInstanceGetInfo, gi)
    same("list", gi_list(gpu, 19, 7), [])
    same("capacity", capacity(gpu), empty)

    # The UUID is of the place, not of the instance: it comes back.
    gi = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 19, at(6, 1))
    nvml.nvmlGpuInstanceCreateComputeInstance(gi, 0)
    same("the same place again", mig_devices(gpu), [(13, 0, uuid)])
    nvml.nvmlShutdown()


def refusals():
    """What nvidia-smi would not even ask for."""
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    place = nvml.nvmlDeviceCreateGpuInstanceWithPlacement

    # No profile of any GPU, and one that other models have.
    for profile in (77, 21, 0xFFFFFFFF):
        refused(INVALID, nvml.nvmlDeviceCreateGpuInstance, gpu, profile)
        refused(INVALID, place, gpu, profile, at(0, 1))
        refused(UNSUPPORTED, nvml.nvmlDeviceGetGpuInstanceRemainingCapacity, gpu, profile)

    # Places that the profile does not have: outside, the wrong size, between.
    for profile, start, size in (
        (19, 7, 1),
        (19, 8, 1),
        (19, 0, 2),
        (19, 0, 0),
        (19, 0xFFFFFFFF, 2),
        (14, 1, 2),
        (14, 6, 2),
        (9, 2, 4),
        (9, 0, 3),
        (5, 4, 4),
        (0, 0, 7),
    ):
        refused(INVALID, place, gpu, profile, at(start, size))
    refused(INVALID, place, gpu, 19, None)
    same("nothing was made", capacity(gpu), {19: 7, 20: 1, 15: 4, 14: 3, 9: 2, 5: 1, 0: 1})

    # Taken, wholly or in part.
    half = place(gpu, 9, at(4, 4))
    for profile, start, size in ((9, 4, 4), (19, 4, 1), (19, 6, 1), (15, 6, 2), (14, 4, 2), (0, 0, 8)):
        refused(NO_ROOM, place, gpu, profile, at(start, size))
    refused(NO_ROOM, nvml.nvmlDeviceCreateGpuInstance, gpu, 0)
    same("a 3g at 4", capacity(gpu), {19: 4, 20: 1, 15: 2, 14: 2, 9: 1, 5: 1, 0: 0})

    # Room there would be, but only one instance has the media engines.
    media = nvml.nvmlDeviceCreateGpuInstance(gpu, 20)
    refused(NO_ROOM, nvml.nvmlDeviceCreateGpuInstance, gpu, 20)
    refused(NO_ROOM, place, gpu, 20, at(2, 1))
    same("+me left", nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, 20), 0)
    nvml.nvmlGpuInstanceDestroy(media)
    nvml.nvmlGpuInstanceDestroy(half)

    # Handles that are none.
    nothing = nvml.c_nvmlDevice_t()
    refused(INVALID, nvml.nvmlDeviceGetUUID, nothing)
    refused(INVALID, nvml.nvmlDeviceCreateGpuInstance, nothing, 19)
    refused(INVALID, nvml.nvmlGpuInstanceDestroy, nvml.c_nvmlGpuInstance_t())
    refused(INVALID, nvml.nvmlComputeInstanceDestroy, nvml.c_nvmlComputeInstance_t())
    refused(INVALID, nvml.nvmlDeviceGetUUID, ctypes.cast(ctypes.c_void_p(JUNK), nvml.c_nvmlDevice_t))
    nvml.nvmlShutdown()


def compute_instances():
    """Several compute instances in one GPU instance."""
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    gi = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 9, at(0, 4))
    seen = {}
    for enum in range(8):
        got = code(nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, gi, enum, SHARED)
        same(f"version 1 of {enum}", code(nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, gi, enum, SHARED, 1), got)
        if got == UNSUPPORTED:
            continue
        same(f"compute profile {enum}", got, SUCCESS)
        two = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, enum, SHARED)
        one = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, enum, SHARED, version=1)
        numbers = tuple(
            (i.id, i.sliceCount, i.instanceCount, i.multiprocessorCount, i.sharedCopyEngineCount, i.sharedDecoderCount)
            for i in (one, two)
        )
        same(f"versions 1 and 2 of {enum}", numbers[0], numbers[1])
        name = two.name.decode() if isinstance(two.name, bytes) else two.name
        seen[enum] = numbers[1] + (name,)
    # User Guide, "nvidia-smi mig -lcip -gi 1" in a 3g.
    same(
        "compute profiles of a 3g",
        seen,
        {
            0: (0, 1, 3, 14, 3, 2, "MIG 1c.3g.40gb"),
            1: (1, 2, 1, 28, 3, 2, "MIG 2c.3g.40gb"),
            2: (2, 3, 1, 42, 3, 2, "MIG 3g.40gb"),
        },
    )
    for enum in (99, 0xFFFFFFFF):
        refused(INVALID, nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, gi, enum, SHARED)
    refused((INVALID, UNSUPPORTED), nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, gi, 0, 9)
    same(
        "placements",
        {profile: ci_placements(gi, profile) for profile in (0, 1, 2)},
        {0: [(0, 1), (1, 1), (2, 1)], 1: [(0, 2)], 2: [(0, 3)]},
    )
    for call in (
        nvml.nvmlGpuInstanceCreateComputeInstance,
        nvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity,
        ci_placements,
    ):
        refused(UNSUPPORTED, call, gi, 4)

    place = nvml.nvmlGpuInstanceCreateComputeInstanceWithPlacement
    refused(INVALID, place, gi, 0, ci_at(3, 1))
    refused(INVALID, place, gi, 1, ci_at(1, 2))
    refused(INVALID, place, gi, 0, ci_at(0, 2))
    last = place(gi, 0, ci_at(2, 1))
    info = nvml.nvmlComputeInstanceGetInfo(last)
    same("at 2", (info.id, info.placement.start, info.placement.size), (0, 2, 1))
    refused(NO_ROOM, place, gi, 0, ci_at(2, 1))
    refused(NO_ROOM, nvml.nvmlGpuInstanceCreateComputeInstance, gi, 2)
    same(
        "left",
        [nvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(gi, p) for p in (0, 1, 2)],
        [2, 1, 0],
    )
    two = nvml.nvmlGpuInstanceCreateComputeInstance(gi, 1)
    same("the next id", nvml.nvmlComputeInstanceGetInfo(two).id, 1)
    refused(NO_ROOM, nvml.nvmlGpuInstanceCreateComputeInstance, gi, 0)
    found = mig_devices(gpu)
    same("MIG devices", [(g, c) for g, c, _ in found], [(2 if swept() else 1, 0), (2 if swept() else 1, 1)])
    same("UUIDs", len({uuid for _, _, uuid in found}), 2)

    # Indices close up when one goes, and the lowest free id is given again.
    nvml.nvmlComputeInstanceDestroy(last)
    same("MIG devices", mig_devices(gpu), found[1:])
    again = nvml.nvmlGpuInstanceCreateComputeInstance(gi, 0)
    same("the lowest free id", nvml.nvmlComputeInstanceGetInfo(again).id, 0)
    refused(IN_USE, nvml.nvmlGpuInstanceDestroy, gi)
    nvml.nvmlComputeInstanceDestroy(nvml.nvmlGpuInstanceGetComputeInstanceById(gi, 1))
    refused(IN_USE, nvml.nvmlGpuInstanceDestroy, gi)
    nvml.nvmlComputeInstanceDestroy(again)
    nvml.nvmlGpuInstanceDestroy(gi)
    nvml.nvmlShutdown()


def swept():
    return "swept" in sys.argv


def mig_off():
    """MIG off: no instances. Nothing is made, and none is found."""
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    same("MIG mode", nvml.nvmlDeviceGetMigMode(gpu), [0, 0])
    same("most MIG devices", nvml.nvmlDeviceGetMaxMigDeviceCount(gpu), 0)
    refused(UNSUPPORTED, nvml.nvmlDeviceCreateGpuInstance, gpu, 19)
    refused(UNSUPPORTED, nvml.nvmlDeviceCreateGpuInstanceWithPlacement, gpu, 19, at(0, 1))
    refused(NOT_FOUND, nvml.nvmlDeviceGetGpuInstanceById, gpu, 13)
    same("instances", list(gi_list(gpu, 19, 7)), [])
    refused(NOT_FOUND, nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 0)
    # What the GPU could do is told all the same; NVIDIA's DRA driver asks.
    same("a profile", nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, 0).id, 19)
    same("its placements", gi_placements(gpu, 19), A100_PLACEMENTS[19])
    nvml.nvmlShutdown()


def turn_on_ampere():
    """On Ampere the mode stays pending until a reset."""
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    same("status", nvml.nvmlDeviceSetMigMode(gpu, 1), RESET_REQUIRED)
    same("mode", nvml.nvmlDeviceGetMigMode(gpu), [0, 1])
    refused(UNSUPPORTED, nvml.nvmlDeviceCreateGpuInstance, gpu, 19)
    refused(INVALID, nvml.nvmlDeviceSetMigMode, gpu, 2)
    nvml.nvmlShutdown()


def is_on():
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    same("mode", nvml.nvmlDeviceGetMigMode(gpu), [1, 1])
    nvml.nvmlDeviceCreateGpuInstance(gpu, 19)
    nvml.nvmlShutdown()


def turn_on_hopper():
    """On Hopper no reset is needed; not with instances there."""
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    same("status", nvml.nvmlDeviceSetMigMode(gpu, 1), SUCCESS)
    same("mode", nvml.nvmlDeviceGetMigMode(gpu), [1, 1])
    gi = nvml.nvmlDeviceCreateGpuInstance(gpu, 19)
    # Busy is told either way: as the code, or as the status beside success.
    try:
        busy = nvml.nvmlDeviceSetMigMode(gpu, 0)
    except nvml.NVMLError as error:
        busy = error.value
    same("with an instance", busy, IN_USE)
    same("mode", nvml.nvmlDeviceGetMigMode(gpu)[0], 1)
    nvml.nvmlGpuInstanceDestroy(gi)
    same("status", nvml.nvmlDeviceSetMigMode(gpu, 0), SUCCESS)
    same("mode", nvml.nvmlDeviceGetMigMode(gpu), [0, 0])
    nvml.nvmlShutdown()


def not_root():
    """A plain user sees all and changes nothing."""
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    gi = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 19, at(6, 1))
    nvml.nvmlGpuInstanceCreateComputeInstance(gi, 0)
    ((_, _, uuid),) = mig_devices(gpu)
    nvml.nvmlShutdown()

    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    same("MIG mode", nvml.nvmlDeviceGetMigMode(gpu), [1, 1])
    same("list", gi_list(gpu, 19, 7), [13])
    same("capacity", capacity(gpu)[19], 6)
    same("placements", gi_placements(gpu, 19), A100_PLACEMENTS[19])
    same("MIG devices", mig_devices(gpu), [(13, 0, uuid)])
    gi = nvml.nvmlDeviceGetGpuInstanceById(gpu, 13)
    ci = nvml.nvmlGpuInstanceGetComputeInstanceById(gi, 0)
    refused(DENIED, nvml.nvmlDeviceCreateGpuInstance, gpu, 19)
    refused(DENIED, nvml.nvmlDeviceCreateGpuInstanceWithPlacement, gpu, 19, at(0, 1))
    refused(DENIED, nvml.nvmlGpuInstanceCreateComputeInstance, gi, 0)
    refused(DENIED, nvml.nvmlComputeInstanceDestroy, ci)
    refused(DENIED, nvml.nvmlGpuInstanceDestroy, gi)
    refused(DENIED, nvml.nvmlDeviceSetMigMode, gpu, 0)
    same("MIG devices", mig_devices(gpu), [(13, 0, uuid)])
    nvml.nvmlShutdown()


def sessions():
    """Nothing works outside of a session; sessions are counted."""
    nvml._LoadNvmlLibrary()
    refused(UNINITIALIZED, nvml.nvmlDeviceGetCount)
    refused(UNINITIALIZED, nvml.nvmlDeviceGetHandleByIndex, 0)
    refused(UNINITIALIZED, nvml.nvmlShutdown)
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlInit()
    nvml.nvmlShutdown()
    same("a session is left", nvml.nvmlDeviceGetIndex(gpu), 0)
    nvml.nvmlShutdown()
    refused(UNINITIALIZED, nvml.nvmlDeviceGetIndex, gpu)
    refused(UNINITIALIZED, nvml.nvmlDeviceCreateGpuInstance, gpu, 19)
    refused(UNINITIALIZED, nvml.nvmlShutdown)
    nvml.nvmlInit()
    same("count", nvml.nvmlDeviceGetCount(), 2)
    nvml.nvmlShutdown()


def two_processes():
    """What one process makes, another one sees, and it stays when it ends."""
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    child = os.fork()
    if child == 0:
        # A child of a fork starts its own session, as any process does.
        status = 1
        try:
            nvml.nvmlInit()
            own = nvml.nvmlDeviceGetHandleByIndex(0)
            gi = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(own, 14, at(2, 2))
            nvml.nvmlGpuInstanceCreateComputeInstance(gi, 1)
            status = 0
        finally:
            os._exit(status)
    same("the child", os.waitpid(child, 0)[1], 0)
    # Quarters are 3 to 6: 2g at 2 is 4.
    same("list", gi_list(gpu, 14, 3), [4])
    same("capacity", capacity(gpu), {19: 5, 20: 1, 15: 3, 14: 2, 9: 1, 5: 0, 0: 0})
    refused(NO_ROOM, nvml.nvmlDeviceCreateGpuInstanceWithPlacement, gpu, 19, at(3, 1))
    nvml.nvmlShutdown()


def held():
    """GPU 0 has 13/0, held by the process in the argument, and 5/0, which is
    not."""
    pid = int(sys.argv[2])
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    (other, _, _), (mine, _, _) = mig_devices(gpu)
    same("MIG devices", (other, mine), (5, 13))
    for device, processes in (
        (gpu, [(pid, 13, 0)]),
        (nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0), []),
        (nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 1), [(pid, 13, 0)]),
    ):
        found = nvml.nvmlDeviceGetComputeRunningProcesses(device)
        same("processes", [(p.pid, p.gpuInstanceId, p.computeInstanceId) for p in found], processes)
        same("processes that draw", nvml.nvmlDeviceGetGraphicsRunningProcesses(device), [])
    gi = nvml.nvmlDeviceGetGpuInstanceById(gpu, 13)
    ci = nvml.nvmlGpuInstanceGetComputeInstanceById(gi, 0)
    refused(IN_USE, nvml.nvmlComputeInstanceDestroy, ci)
    refused(IN_USE, nvml.nvmlGpuInstanceDestroy, gi)
    gi = nvml.nvmlDeviceGetGpuInstanceById(gpu, 5)
    nvml.nvmlComputeInstanceDestroy(nvml.nvmlGpuInstanceGetComputeInstanceById(gi, 0))
    nvml.nvmlGpuInstanceDestroy(gi)
    same("MIG devices", [(g, c) for g, c, _ in mig_devices(gpu)], [(13, 0)])
    nvml.nvmlShutdown()


def lost():
    """A GPU that has fallen off the bus; the other one works."""
    nvml.nvmlInit()
    same("count", nvml.nvmlDeviceGetCount(), 2)
    refused(nvml.NVML_ERROR_GPU_IS_LOST, nvml.nvmlDeviceGetHandleByIndex, 0)
    nvml.nvmlDeviceCreateGpuInstance(nvml.nvmlDeviceGetHandleByIndex(1), 19)
    nvml.nvmlShutdown()


# As the real library has them. nvidia-smi has words of its own.
WORDS = {
    0: "Success",
    2: "Invalid Argument",
    3: "Not Supported",
    4: "Insufficient Permissions",
    6: "Not Found",
    7: "Insufficient Size",
    19: "In use by another client",
    23: "Insufficient Resources",
    25: "Argument version mismatch",
    27: "System is not in ready state",
    999: "Unknown Error",
}


def words():
    """The library's words for its codes, in and outside of a session."""
    nvml._LoadNvmlLibrary()
    for inside in (False, True):
        if inside:
            nvml.nvmlInit()
        for number, expected in WORDS.items():
            got = nvml.nvmlErrorString(number)
            same(f"words for {number}", got.decode() if isinstance(got, bytes) else got, expected)
    nvml.nvmlShutdown()


def answers():
    """The codes that calls answer, for a machine with faults: `CODE...` are
    those of so many creates of a 1g, each undone again."""
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    got = []
    for _ in sys.argv[2:]:
        try:
            nvml.nvmlGpuInstanceDestroy(nvml.nvmlDeviceCreateGpuInstance(gpu, 19))
            got.append(SUCCESS)
        except nvml.NVMLError as error:
            got.append(error.value)
    same("answers", got, [int(argument) for argument in sys.argv[2:]])
    nvml.nvmlShutdown()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("done", sys.argv[1])
