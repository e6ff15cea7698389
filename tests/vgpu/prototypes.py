#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every driver function that we declare, and so all that libvgpu intercepts, has the arguments that NVIDIA's own headers
say of it: of the version that cuGetProcAddress gives it out for, which the CUDA runtime calls it by. Sizes are the
compiler's."""

import json
import re
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from harness import *
from packages import interpreter

PACKAGES = ["nvidia-cuda-runtime==13.5.37"]  # whose headers have a type for each version of each function
HEADERS = ("cudaTypedefs.h", "cudaProfilerTypedefs.h", "cudaGLTypedefs.h", "cudaEGLTypedefs.h", "cudaVDPAUTypedefs.h")
# What comes with GL, EGL and VDPAU, of which no headers are here.
OTHERS = """
typedef unsigned int GLuint, GLenum, VdpDevice, VdpVideoSurface, VdpOutputSurface;
typedef int EGLint, CUGLDeviceList;
typedef void *EGLImageKHR, *EGLStreamKHR, *EGLSyncKHR, *CUeglStreamConnection;
typedef void VdpGetProcAddress(void);
typedef struct { void *planes[3]; unsigned int numbers[9]; } CUeglFrame_v1;
"""


def arguments(text):
    """A prototype's, each as a declaration with a name."""
    text = re.sub(r"\b(CUDAAPI|CUDA_CB)\b", "", re.sub(r"\s+", " ", text)).strip()
    if text in ("", "void"):
        return []
    return [re.sub(r"(\w+) ?\[\]$", r"*\1", one.strip()) for one in text.split(",")]


def sizes(compiler, folder, name, prelude, prototypes):
    """Of each function's arguments, what the compiler says: size, and whether it is a floating one."""
    lines = [prelude, "#include <stdio.h>"]
    body = []
    for function, declarations in prototypes.items():
        words = []
        for i, declaration in enumerate(declarations):
            member = re.search(r"(\w+)$", declaration).group(1)
            lines.append(f"struct {function}_{i} {{ {declaration}; }};")
            words.append(f'printf(" %zu%s", sizeof(struct {function}_{i}), _Generic(((struct {function}_{i} *)0)->{member}, float: "f", double: "f", default: "i"));')
        body.append(f'printf("{function}"); {" ".join(words)} printf("\\n");')
    source, program = folder / f"{name}.c", folder / name
    source.write_text("\n".join(lines) + "\nint main(void)\n{\n" + "\n".join(body) + "\nreturn 0;\n}\n")
    built = subprocess.run([*compiler, "-w", "-o", program, source], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check_equal((built.returncode, built.stdout[:2000]), (0, ""), f"{name} is compiled")
    said = run([program], dict(os.environ)).stdout if built.returncode == 0 else ""
    return {line.split()[0]: line.split()[1:] for line in said.splitlines()}


python = interpreter(BUILD / "runtime", PACKAGES, skip)
(include,) = (BUILD / "runtime").glob("lib/python3*/site-packages/nvidia/cu13/include")
theirs = {}
for header in HEADERS:
    for name, text in re.findall(r"typedef CUresult ?\(CUDAAPI \*PFN_(\w+)\)\((.*?)\);", (include / header).read_text(), re.S):
        theirs[name] = arguments(text)
ours = {name: arguments(text) for name, text in re.findall(r"^CUresult (cu\w+)\((.*?)\);", (SOURCE / "src/driver/cuda.h").read_text(), re.S | re.M)}
entries = {}
for line in (SOURCE / "src/driver/entries.txt").read_text().splitlines():
    words = line.split()
    if words and not line.startswith("#"):
        entries[words[0]] = words[1:]

wanted, missing = {}, []
for name in ours:
    _, base, version, flavour = entries[name]
    typed = f"{base}_v{version}" + (f"_{flavour}" if flavour != "-" else "")
    if typed in theirs:
        wanted[name] = theirs[typed]
    else:
        missing.append(f"{name} ({typed})")
intercepted = [name for name, words in entries.items() if words[0] != "pass"]
check_equal([name for name in intercepted if name not in ours], [], "all that is intercepted is declared")
compiler = os.environ.get("CC", "cc").split()
here = sizes([*compiler, f"-I{SOURCE / 'src'}"], scratch, "ours", '#include "driver/cuda.h"', {name: ours[name] for name in wanted})
there = sizes([*compiler, f"-I{include}"], scratch, "theirs", "#define __CUDA_API_VERSION_INTERNAL /* the types of long ago as well */\n#include <cuda.h>\n" + OTHERS, wanted)
different = {name: (here.get(name), there.get(name)) for name in wanted if here.get(name) != there.get(name)}
check_equal(different, {}, f"{len(wanted)} functions have NVIDIA's arguments")
check_equal(missing, [], "each has a type there")
finish()
