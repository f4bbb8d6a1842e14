# Toolchain file: compile for 64-bit ARM Linux on another machine, with Debian's cross compiler.
#   GRAPHBOX_ARM_FOLDER   environment variable: the folder made by `make arm-root`, whose root/ is the target's system
if(NOT IS_DIRECTORY "$ENV{GRAPHBOX_ARM_FOLDER}/root")
  message(FATAL_ERROR
    "GRAPHBOX_ARM_FOLDER must name a folder with the target's system in root/, received "
    "`$ENV{GRAPHBOX_ARM_FOLDER}`. Make it with `make arm-root`.")
endif()

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_SYSROOT "$ENV{GRAPHBOX_ARM_FOLDER}/root")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)  # nanobind is a package of the build's Python

# The headers of the target's Python, in place of those of the Python that builds.
file(GLOB headers "${CMAKE_SYSROOT}/usr/include/python3.*")
set(Python_INCLUDE_DIR "${headers}" CACHE PATH "" FORCE)

set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -cpu neoverse-n1 -L "${CMAKE_SYSROOT}")
